//! `packhorse receive`: messages from an address, printed and acknowledged (or given back).

use crate::End;
use crate::amqp::{Wait, Wire};
use crate::cli::Receive;
use packhorse_client_core::codec::{Data, Map, Value};
use packhorse_client_core::{
    BodySection, Client, Event, Joiner, Limits, LinkId, MessageId, MessageView, ReceiverOptions, TransferEvent, Verdict,
};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

/// Credit given at a time.
const WINDOW: u32 = 500;
/// How long to wait for a message when a count is given and no time.
const WAIT_MS: u64 = 10_000;
/// How long the broker may take to say that nothing is ready.
const DRAIN_MS: u64 = 60_000;
/// How long the broker may take to confirm an acknowledgement.
const CONFIRM: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Receive) -> End {
    match receive(args) {
        Ok(()) => End::Done,
        Err(end) => end,
    }
}

struct Progress<'a> {
    args: &'a Receive,
    joiner: Joiner,
    got: u64,
    /// Of the present round of draining.
    round: u64,
    /// The drain of the present round is answered.
    drained: bool,
    /// To be given back at the end, not before: they would come again.
    held: Vec<u32>,
    /// Acknowledged, and not yet told that this is safe.
    unconfirmed: u64,
    last: Instant,
}

fn receive(args: &Receive) -> Result<(), End> {
    if args.selector.is_some() {
        return Err(End::Usage("--selector is not implemented yet".into()));
    }
    let wanted = args.count.unwrap_or(u64::MAX);
    // Neither a count nor a time: what is there now.
    let draining = args.count.is_none() && args.timeout.is_none();
    let silence = Duration::from_millis(args.timeout.unwrap_or(if draining { DRAIN_MS } else { WAIT_MS }));
    let (mut wire, session) = Wire::open(&args.amqp, "receive")?;
    let credit = u32::try_from(wanted).unwrap_or(WINDOW).min(WINDOW);
    let options = ReceiverOptions { name: "receive", address: &args.address, presettled: false, credit, token: 0 };
    let refused = |e: packhorse_client_core::Misuse| End::Refused(e.to_string());
    let link = wire.client.careful_receiver(session, &options).map_err(refused)?;
    if draining {
        wire.client.drain(link).map_err(refused)?;
    }
    let mut progress = Progress {
        args,
        joiner: Joiner::default(),
        got: 0,
        round: 0,
        drained: false,
        held: Vec::new(),
        unconfirmed: 0,
        last: Instant::now(),
    };
    let mut silent = false;
    while progress.got < wanted && !silent {
        if std::mem::take(&mut progress.drained) {
            if std::mem::take(&mut progress.round) == 0 {
                break;
            }
            wire.client.grant(link, WINDOW).map_err(refused)?;
            wire.client.drain(link).map_err(refused)?;
        } else if !draining {
            let left = wanted - progress.got;
            if u64::from(wire.client.credit(link)) < left.min(u64::from(WINDOW / 2)) {
                wire.client.grant(link, u32::try_from(left).unwrap_or(WINDOW).min(WINDOW)).map_err(refused)?;
            }
        }
        let left = silence.saturating_sub(progress.last.elapsed());
        silent = matches!(wire.turn(left, |client, event| progress.on(client, event))?, Wait::Silent);
    }
    // Done means done: what was printed is acknowledged on the broker's disk, and a crash does not bring it again.
    while progress.unconfirmed > 0 {
        if matches!(wire.turn(CONFIRM, |client, event| progress.on(client, event))?, Wait::Silent) {
            let open = progress.unconfirmed;
            return Err(End::Refused(format!(
                "the broker has not confirmed {open} acknowledgements; they may come again"
            )));
        }
    }
    let (got, held) = (progress.got, progress.held);
    give_back(&mut wire.client, link, &held);
    wire.close()?;
    match args.count {
        Some(count) if got < count => {
            Err(End::Refused(format!("{got} of {count} messages came; then none for {} ms", silence.as_millis())))
        }
        _ => Ok(()),
    }
}

fn give_back(client: &mut Client, link: LinkId, held: &[u32]) {
    for delivery in held {
        // The end of the connection gives it back otherwise.
        let _ = client.settle(link, *delivery, Verdict::Release);
    }
}

impl Progress<'_> {
    fn on(&mut self, client: &mut Client, event: Event<'_>) -> Result<(), End> {
        match event {
            Event::LinkLost(lost) => Err(End::Refused(lost.reason.to_string())),
            Event::Drained { .. } => {
                self.drained = true;
                Ok(())
            }
            Event::Confirmed => {
                self.unconfirmed = self.unconfirmed.saturating_sub(client.outcomes().len() as u64);
                Ok(())
            }
            Event::Message(transfer) => self.message(client, &transfer),
            _ => Ok(()),
        }
    }

    fn message(&mut self, client: &mut Client, transfer: &TransferEvent<'_>) -> Result<(), End> {
        self.last = Instant::now();
        let Some(bytes) = self.joiner.push(transfer) else { return Ok(()) };
        // More than was asked for: it goes back when the link ends.
        if self.args.count.is_some_and(|count| self.got >= count) {
            return Ok(());
        }
        let printed = print(bytes, self.args.json);
        self.got += 1;
        self.round += 1;
        if printed.is_err() || self.args.no_ack {
            self.held.push(transfer.delivery_id);
        } else if !transfer.settled {
            client
                .decide(transfer.link, transfer.delivery_id, Verdict::Accept)
                .map_err(|e| End::Refused(e.to_string()))?;
            self.unconfirmed += 1;
        }
        printed.map_err(|e| {
            End::Refused(format!("cannot write to standard output: {e}; the message was not acknowledged"))
        })
    }
}

fn print(bytes: &[u8], as_json: bool) -> std::io::Result<()> {
    let limits = Limits { message_head_bytes: u32::MAX, ..Limits::default() };
    let mut out = std::io::stdout().lock();
    match MessageView::parse(bytes, &limits) {
        Ok(view) if as_json => writeln!(out, "{}", document(&view))?,
        Ok(view) => {
            for section in view.body() {
                match section {
                    BodySection::Data(data) => out.write_all(data)?,
                    BodySection::Value(value) => match value.as_str() {
                        Some(text) => out.write_all(text.as_bytes())?,
                        None => write!(out, "{}", to_json(&value))?,
                    },
                    BodySection::Sequence(list) => {
                        let items: Vec<_> = list.iter().map(|v| to_json(&v)).collect();
                        write!(out, "{}", json!(items))?;
                    }
                }
            }
            out.write_all(b"\n")?;
        }
        Err(e) if as_json => writeln!(out, "{}", json!({ "not_a_message": e.to_string(), "base64": base64(bytes) }))?,
        Err(_) => {
            out.write_all(bytes)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()
}

fn document(view: &MessageView<'_>) -> serde_json::Value {
    let header = view.header();
    let properties = view.properties();
    let body: Vec<_> = view
        .body()
        .map(|section| match section {
            BodySection::Data(bytes) => binary(bytes),
            BodySection::Value(value) => to_json(&value),
            BodySection::Sequence(list) => list.iter().map(|v| to_json(&v)).collect(),
        })
        .collect();
    let mut document = json!({
        "durable": header.durable.unwrap_or(false),
        "priority": header.priority.unwrap_or(4),
        "delivery_count": header.delivery_count.unwrap_or(0),
        "body": if body.len() == 1 { body[0].clone() } else { json!(body) },
    });
    let mut set = |key: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            document[key] = value;
        }
    };
    let id = |id: Option<MessageId<'_>>| {
        id.map(|id| match id {
            MessageId::Ulong(n) => json!(n.to_string()),
            MessageId::Uuid(bytes) => json!(uuid(bytes)),
            MessageId::Binary(bytes) => binary(bytes),
            MessageId::String(text) => json!(text),
        })
    };
    set("ttl_ms", header.ttl.map(|n| json!(n)));
    set("message_id", id(properties.message_id));
    set("correlation_id", id(properties.correlation_id));
    set("to", properties.to.map(|t| json!(t)));
    set("reply_to", properties.reply_to.map(|t| json!(t)));
    set("subject", properties.subject.map(|t| json!(t)));
    set("content_type", properties.content_type.map(|t| json!(t)));
    set("group_id", properties.group_id.map(|t| json!(t)));
    set("properties", view.application_properties().map(|m| map(&m)));
    set("annotations", view.message_annotations().map(|m| map(&m)));
    document
}

fn map(map: &Map<'_>) -> serde_json::Value {
    let key = |value: &Value<'_>| value.as_text().map_or_else(|| to_json(value).to_string(), str::to_string);
    map.iter().map(|(k, v)| (key(&k), to_json(&v))).collect::<serde_json::Map<_, _>>().into()
}

/// A value for people and scripts. Whole numbers beyond what JSON readers hold exactly are texts, as in the HTTP API.
fn to_json(value: &Value<'_>) -> serde_json::Value {
    const EXACT: i128 = 1 << 53;
    if let Some(n) = value.as_integer() {
        return match i64::try_from(n) {
            Ok(small) if n.abs() <= EXACT => json!(small),
            _ => json!(n.to_string()),
        };
    }
    match value.data() {
        Data::Null => serde_json::Value::Null,
        Data::Boolean(b) => json!(b),
        Data::Float(f) => json!(f),
        Data::Double(f) => json!(f),
        Data::Char(c) => json!(c.to_string()),
        Data::Timestamp(ms) => json!(ms),
        Data::Uuid(bytes) => json!(uuid(bytes)),
        Data::Binary(bytes) => binary(bytes),
        Data::String(text) | Data::Symbol(text) => json!(text),
        Data::List(list) => list.iter().map(|v| to_json(&v)).collect(),
        Data::Map(m) => map(&m),
        Data::Described(_, value) => to_json(&value),
        other => json!(format!("{other:?}")),
    }
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Bytes that are text, as text; others in base64.
fn binary(bytes: &[u8]) -> serde_json::Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!({ "base64": base64(bytes) }), |text| json!(text))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let word = part.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= part.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_client_core::{Body, Draft};

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn a_message_is_shown_with_what_it_has() {
        let mut draft = Draft::new(Body::Text("hi")).with_id(MessageId::Uuid([0xab; 16]));
        draft.durable = Some(true);
        draft.application = &[("k", "v")];
        let mut bytes = Vec::new();
        draft.encode(&mut bytes);
        let view = MessageView::parse(&bytes, &Limits::default()).unwrap();
        let expected = json!({
            "durable": true, "priority": 4, "delivery_count": 0, "body": "hi",
            "message_id": "abababab-abab-abab-abab-abababababab", "properties": { "k": "v" },
        });
        assert_eq!(document(&view), expected);
    }

    #[test]
    fn bytes_that_are_no_text_are_in_base64() {
        let mut bytes = Vec::new();
        Draft::new(Body::Data(&[0xff, 0])).encode(&mut bytes);
        let view = MessageView::parse(&bytes, &Limits::default()).unwrap();
        assert_eq!(document(&view)["body"], json!({ "base64": "/wA=" }));
    }
}
