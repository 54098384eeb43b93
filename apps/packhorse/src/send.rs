//! `packhorse send`: messages to an address, ended when the broker has answered for each.

use crate::End;
use crate::amqp::{Wait, Wire};
use crate::cli::Send;
use packhorse_client_core::codec::DeliveryState;
use packhorse_client_core::{
    Body, Client, Decision, Draft, Event, LinkId, Misuse, Piece, SenderOptions, SenderSettleMode,
};
use std::io::Read;
use std::time::Duration;

/// How long the broker may say nothing while messages wait for credit or for their outcomes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Send) -> End {
    match send(args) {
        Ok(()) => End::Done,
        Err(end) => end,
    }
}

/// How far the sending is.
struct Progress {
    message: Vec<u8>,
    count: u64,
    /// Messages whose last byte was handed over.
    sent: u64,
    /// Bytes handed over of the one under way.
    at: Option<usize>,
    accepted: u64,
    refused: u64,
    why: Option<String>,
}

fn send(args: &Send) -> Result<(), End> {
    if args.delay.is_some() {
        return Err(End::Usage("--delay is not implemented yet".into()));
    }
    let mut progress =
        Progress { message: message(args)?, count: args.count, sent: 0, at: None, accepted: 0, refused: 0, why: None };
    let (mut wire, session) = Wire::open(&args.amqp, "send")?;
    let options =
        SenderOptions { name: "send", address: Some(&args.address), settle: SenderSettleMode::Unsettled, token: 0 };
    let link = wire.client.sender(session, &options).map_err(misuse)?;
    while progress.accepted + progress.refused < progress.count {
        progress.go_on(&mut wire.client, link)?;
        let wait = wire.turn(PATIENCE, |client, event| progress.on(client, event))?;
        if matches!(wait, Wait::Silent) {
            let open = progress.count - progress.accepted - progress.refused;
            let seconds = PATIENCE.as_secs();
            return Err(End::Refused(format!(
                "{open} messages are not confirmed, and the broker says nothing for {seconds} s"
            )));
        }
    }
    wire.close()?;
    let Progress { accepted, refused, why, .. } = progress;
    if args.json {
        println!("{}", serde_json::json!({ "address": args.address, "accepted": accepted, "refused": refused }));
    } else {
        println!("{accepted} sent to {}, confirmed", args.address);
    }
    match why {
        None => Ok(()),
        Some(why) => Err(End::Refused(format!("{refused} refused, the last one: {why}"))),
    }
}

impl Progress {
    /// Sends while there is credit and room.
    fn go_on(&mut self, client: &mut Client, link: LinkId) -> Result<(), End> {
        while self.sent < self.count {
            let Some(at) = self.at else {
                if !client.sendable(link) {
                    return Ok(());
                }
                if client.fits(link, self.message.len()) {
                    client.send(link, self.sent, false, &[Piece::Copy(&self.message)]).map_err(misuse)?;
                    self.sent += 1;
                } else {
                    client.begin_message(link, self.sent, false).map_err(misuse)?;
                    self.at = Some(0);
                }
                continue;
            };
            let part = client.send_part(link, Piece::Copy(&self.message[at..]), true).map_err(misuse)?;
            if part.done {
                self.at = None;
                self.sent += 1;
            } else {
                self.at = Some(at + part.consumed);
                return Ok(());
            }
        }
        Ok(())
    }

    fn on(&mut self, client: &mut Client, event: Event<'_>) -> Result<(), End> {
        match event {
            Event::LinkLost(lost) => return Err(End::Refused(lost.reason.to_string())),
            Event::Outcomes { state } => {
                for outcome in client.outcomes() {
                    match outcome.state {
                        Decision::Received => {}
                        Decision::Accepted => self.accepted += 1,
                        other => {
                            self.refused += 1;
                            self.why = Some(match &state {
                                Some(DeliveryState::Rejected(rejected)) => rejected.error.map_or_else(
                                    || "rejected".into(),
                                    |e| format!("{}: {}", e.condition, e.description.unwrap_or("rejected")),
                                ),
                                _ => format!("{other:?}"),
                            });
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn message(args: &Send) -> Result<Vec<u8>, End> {
    let mut properties = Vec::new();
    for pair in &args.property {
        let pair = pair.split_once('=').ok_or_else(|| End::Usage(format!("--property {pair}: write KEY=VALUE")))?;
        properties.push(pair);
    }
    let mut input = Vec::new();
    let body = match (args.text.as_deref(), args.size) {
        (None, Some(size)) => {
            input.resize(size, b'x');
            Body::Data(&input)
        }
        (Some("-"), _) => {
            std::io::stdin()
                .read_to_end(&mut input)
                .map_err(|e| End::Usage(format!("cannot read standard input: {e}")))?;
            std::str::from_utf8(&input).map_or(Body::Data(&input), Body::Text)
        }
        (Some(text), _) => Body::Text(text),
        (None, None) => {
            return Err(End::Usage("say what to send: a TEXT, - for standard input, or --size BYTES".into()));
        }
    };
    let mut draft = Draft::new(body);
    draft.durable = Some(args.durable);
    draft.priority = args.priority;
    draft.ttl_ms = args.ttl;
    draft.application = &properties;
    let mut message = Vec::new();
    draft.encode(&mut message);
    Ok(message)
}

fn misuse(misuse: Misuse) -> End {
    End::Refused(misuse.to_string())
}
