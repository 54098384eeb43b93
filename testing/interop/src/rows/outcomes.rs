//! What a receiver may say of a delivery, and what becomes of the message.

use serde_json::json;

use crate::{
    cell::{Batch, Cell, Check, MANY, PATIENCE_MS, all_counted, in_order, same_body},
    recorder::Recorder,
    wire::{self, Value},
};

/// Gone, each once.
pub(crate) fn accept(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("in", "", 50)?;
    let messages = cell.receive("in", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    cell.receive_nothing("in")?;
    cell.counters_at_rest(MANY)
}

/// To the dead-letter queue at once, content unchanged, with the reason and where it came from.
pub(crate) fn reject(cell: &mut Cell<'_>) -> Check {
    const DEAD_LETTERS: &str = "DLQ";
    let lock = cell.dead_letters;
    let _alone = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let recorder = Recorder::start(cell.broker.amqp())?;
    cell.connect(([127, 0, 0, 1], recorder.port()).into(), None)?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver_with_credit("in", MANY)?;
    let messages = cell.receive("in", MANY, "reject")?;
    in_order(&messages, 0, 1024)?;
    cell.counters(&[
        ("ready", 0),
        ("acquired", 0),
        ("depth", 0),
        ("acknowledged_total", 0),
        ("dead_lettered_total", MANY),
    ])?;
    cell.detach("in")?;

    let before = delivered(&recorder)?.len();
    cell.receiver_of(DEAD_LETTERS, "dead", "", 100)?;
    let messages = cell.receive_within("dead", MANY, "accept", PATIENCE_MS)?;
    if messages.len() as u64 != MANY {
        return Err(format!("{} of {MANY} are in {DEAD_LETTERS}", messages.len()));
    }
    in_order(&messages, 0, 1024)?;
    for message in &messages {
        same_body(message, 1024)?;
    }
    if cell.broker.is_ours() {
        for payload in delivered(&recorder)?.iter().skip(before) {
            let annotations = wire::sections(payload)?.message_annotations;
            let annotations = wire::value(&annotations, &mut 0).unwrap_or(Value::Null);
            let told = |key: &str| annotations.entry(key).cloned().unwrap_or(Value::Null);
            let (reason, origin) = (told("x-opt-packhorse-reason"), told("x-opt-packhorse-original-address"));
            if !matches!(&reason, Value::Text(text) if !text.is_empty()) {
                return Err(format!("a dead letter without its reason: {annotations:?}"));
            }
            if origin != Value::Text(cell.queue.clone()) {
                return Err(format!("a dead letter says it came from {origin:?}, not {}", cell.queue));
            }
        }
    }
    cell.counters_of(DEAD_LETTERS, &[("ready", 0), ("depth", 0)])
}

/// The payloads the broker has delivered through the recorder.
fn delivered(recorder: &Recorder) -> Check<Vec<Vec<u8>>> {
    recorder.recordings().iter().try_fold(Vec::new(), |mut all, recording| {
        all.extend(wire::payloads(&recording.from_broker)?);
        Ok(all)
    })
}

/// Back in its place, as if it had not been delivered.
pub(crate) fn release(cell: &mut Cell<'_>) -> Check {
    given_back(cell, "release", 0)
}

/// Back in its place, delivery-count raised.
pub(crate) fn modify_failed(cell: &mut Cell<'_>) -> Check {
    given_back(cell, "fail", 1)
}

fn given_back(cell: &mut Cell<'_>, outcome: &str, count: u64) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver_with_credit("first", MANY)?;
    let messages = cell.receive("first", MANY, "hold")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 0)?;
    cell.call(json!({"do": "settle", "link": "first", "outcome": outcome}))?;
    cell.detach("first")?;
    cell.counters(&[("ready", MANY), ("acquired", 0), ("depth", MANY), ("acknowledged_total", 0)])?;

    cell.receiver("second", "", 100)?;
    let messages = cell.receive("second", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, count)?;
    cell.counters_at_rest(MANY)
}

/// Never again to this link, to any other at once. (The clients say delivery-failed too: JMS cannot say one alone.)
pub(crate) fn modify_undeliverable(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver_with_credit("first", MANY)?;
    let messages = cell.receive("first", MANY, "undeliverable")?;
    in_order(&messages, 0, 1024)?;
    cell.counters(&[("ready", MANY), ("acquired", 0), ("acknowledged_total", 0)])?;
    if cell.kind.grants_credit() {
        cell.call(json!({"do": "credit", "link": "first", "count": MANY}))?;
    }
    cell.receive_nothing("first")?;

    cell.receiver("second", "", 100)?;
    let messages = cell.receive("second", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 1)?;
    cell.counters_at_rest(MANY)
}
