//! Every section and every type, out as sent: seen with the client's own eyes, and compared byte by byte in what went
//! over its sockets.

use serde_json::{Value as Json, json};

use crate::{
    cell::{Cell, Check, MANY, PATIENCE_MS},
    recorder::Recorder,
    specs::{self, Spec},
    wire::{self, Sections, Value},
};

/// Header, both annotations, properties, application properties, the body kinds, footer.
pub(crate) fn sections(cell: &mut Cell<'_>) -> Check {
    unchanged(cell, specs::sections())
}

/// Every type of AMQP as body, application property and message annotation.
pub(crate) fn types(cell: &mut Cell<'_>) -> Check {
    unchanged(cell, specs::types())
}

fn unchanged(cell: &mut Cell<'_>, specs: Vec<Spec>) -> Check {
    let kind = cell.kind;
    let distinct: Vec<Json> =
        specs.into_iter().filter(|spec| specs::expressible(kind, spec)).map(|spec| spec.message).collect();
    let sent: Vec<Json> = distinct.iter().cycle().take((MANY as usize).max(distinct.len())).cloned().collect();
    let recorder = Recorder::start(cell.broker.amqp())?;
    cell.connect(([127, 0, 0, 1], recorder.port()).into(), None)?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.sender("out", "")?;
    let answer = cell.call(json!({"do": "send_specs", "link": "out", "messages": sent}))?;
    let count = sent.len() as u64;
    if answer["accepted"].as_u64() != Some(count) {
        return Err(format!("{} of {count} accepted, others: {}", answer["accepted"], answer["others"]));
    }
    cell.receiver("in", "", 100)?;
    let answer =
        cell.call(json!({"do": "receive", "link": "in", "count": count, "timeout_ms": PATIENCE_MS, "detail": true}))?;
    let seen = answer["messages"].as_array().cloned().unwrap_or_default();
    if seen.len() as u64 != count {
        return Err(format!("{} of {count} messages came", seen.len()));
    }
    // All were there before the receiver was: higher priorities come first, otherwise as sent.
    let mut order: Vec<usize> = (0..sent.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(sent[*at]["header"]["priority"].as_u64().unwrap_or(4)));
    for (at, seen) in order.iter().zip(&seen) {
        specs::same_view(&sent[*at], seen)
            .map_err(|difference| format!("message {at}, as the client sees it: {difference}"))?;
    }

    let recordings = recorder.recordings();
    let recording = recordings.first().ok_or("nothing was recorded")?;
    let (into, out) = (wire::payloads(&recording.from_client)?, wire::payloads(&recording.from_broker)?);
    if into.len() as u64 != count || out.len() as u64 != count {
        return Err(format!(
            "{} messages went in and {} came out on the wire, {count} were sent",
            into.len(),
            out.len()
        ));
    }
    for (at, out) in order.iter().zip(&out) {
        same_bytes(&into[*at], out, cell.broker.is_ours())
            .map_err(|difference| format!("message {at}, on the wire: {difference}"))?;
    }
    cell.counters_at_rest(count)
}

/// Bare message, footer and message annotations to the bit; the header in its meaning; no delivery annotations.
fn same_bytes(sent: &[u8], came: &[u8], ours: bool) -> Check {
    let (sent, came) = (wire::sections(sent)?, wire::sections(came)?);
    if sent.bare != came.bare {
        return Err(format!("the bare message {} became {}", hex(&sent.bare), hex(&came.bare)));
    }
    if sent.message_annotations != came.message_annotations {
        let (sent, came) = (hex(&sent.message_annotations), hex(&came.message_annotations));
        return Err(format!("the message annotations {sent} became {came}"));
    }
    if ours && let Some(annotations) = &came.delivery_annotations {
        return Err(format!("delivery annotations outlived their hop: {annotations:?}"));
    }
    let field = |sections: &Sections, index: usize, default: Value| match &sections.header {
        Some(header) if header.field(index) != &Value::Null => header.field(index).clone(),
        _ => default,
    };
    for (index, name, default) in [(0, "durable", Value::Bool(false)), (1, "priority", Value::Number(4))] {
        let (sent, came) = (field(&sent, index, default.clone()), field(&came, index, default));
        if sent != came {
            return Err(format!("{name} {sent:?} became {came:?}"));
        }
    }
    match (field(&sent, 2, Value::Null), field(&came, 2, Value::Null)) {
        (Value::Number(sent), Value::Number(came)) if came <= sent => {}
        // Zero means no expiry with us; a peer may drop or keep it.
        (Value::Null | Value::Number(0), Value::Null | Value::Number(0)) => {}
        (sent, came) => return Err(format!("ttl {sent:?} became {came:?}")),
    }
    match field(&came, 4, Value::Number(0)) {
        Value::Number(0) => Ok(()),
        count => Err(format!("delivery-count is {count:?} at first")),
    }
}

fn hex(bytes: &[u8]) -> String {
    let text: String = bytes.iter().take(80).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 80 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: [u8; 5] = [0x00, 0x53, 0x77, 0x54, 0x07];

    fn with(prefix: &[u8]) -> Vec<u8> {
        [prefix, &BARE].concat()
    }

    #[test]
    fn a_header_that_means_the_same_is_the_same_and_every_other_change_is_found() {
        let durable = with(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
        let rebuilt = with(&[0x00, 0x53, 0x70, 0xc0, 5, 4, 0x41, 0x40, 0x40, 0x42]);
        assert_eq!(same_bytes(&durable, &rebuilt, true), Ok(()));
        assert_eq!(same_bytes(&BARE, &BARE, true), Ok(()));
        assert!(same_bytes(&durable, &BARE, true).is_err());
        assert!(same_bytes(&BARE, &[&BARE[..4], &[8]].concat(), true).is_err());
        let annotated = with(&[0x00, 0x53, 0x72, 0xc1, 1, 0]);
        assert!(same_bytes(&annotated, &BARE, true).is_err());
        let for_one_hop = with(&[0x00, 0x53, 0x71, 0xc1, 1, 0]);
        assert_eq!(same_bytes(&for_one_hop, &BARE, true), Ok(()));
        assert!(same_bytes(&BARE, &for_one_hop, true).is_err());
        let seen_before = with(&[0x00, 0x53, 0x70, 0xc0, 7, 5, 0x40, 0x40, 0x40, 0x40, 0x52, 1]);
        assert!(same_bytes(&BARE, &seen_before, true).is_err());
    }
}
