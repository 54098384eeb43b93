//! Credit, drain, prefetch, and many links and sessions beside each other.

use serde_json::json;

use crate::cell::{Batch, Cell, Check, MANY, QUIET_MS, in_order};

/// Exactly as many come as were granted.
pub(crate) fn credit(cell: &mut Cell<'_>) -> Check {
    const FIRST: u64 = 100;
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("in", "", 0)?;
    cell.receive_nothing("in")?;
    cell.call(json!({"do": "credit", "link": "in", "count": FIRST}))?;
    let messages = cell.receive("in", FIRST, "hold")?;
    in_order(&messages, 0, 1024)?;
    cell.receive_nothing("in")?;
    cell.counters(&[("acquired", FIRST), ("ready", MANY - FIRST), ("credit", 0)])?;
    cell.call(json!({"do": "settle", "link": "in", "outcome": "accept"}))?;

    cell.call(json!({"do": "credit", "link": "in", "count": MANY - FIRST}))?;
    let messages = cell.receive("in", MANY - FIRST, "accept")?;
    in_order(&messages, FIRST, 1024)?;
    cell.counters_at_rest(MANY)
}

/// What is there comes, the rest of the credit is gone: a message sent later waits for new credit.
pub(crate) fn drain(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.sender("out", "")?;
    cell.send("out", Batch::of(MANY))?;
    cell.receiver("in", "", 0)?;
    let mut messages = Vec::new();
    if cell.kind.grants_credit() {
        cell.call(json!({"do": "credit", "link": "in", "count": MANY + 100}))?;
        let first = if cell.kind.takes_credit_back_to_drain() { MANY } else { 1 };
        messages = cell.receive("in", first, "accept")?;
    }
    cell.call(json!({"do": "drain", "link": "in"}))?;
    // JMS drains at each receive, so there the exact number is asked for.
    let asked = if cell.kind.grants_credit() { MANY + 100 } else { MANY } - messages.len() as u64;
    messages.extend(cell.receive_within("in", asked, "accept", QUIET_MS)?);
    if messages.len() as u64 != MANY {
        return Err(format!("{} of {MANY} came before the drain was answered", messages.len()));
    }
    in_order(&messages, 0, 1024)?;
    cell.counters(&[("ready", 0), ("acquired", 0), ("credit", 0), ("acknowledged_total", MANY)])?;

    cell.send("out", Batch { from: MANY, ..Batch::of(1) })?;
    cell.counters(&[("ready", 1), ("acquired", 0)])?;
    if cell.kind.grants_credit() {
        cell.receive_nothing("in")?;
        cell.call(json!({"do": "credit", "link": "in", "count": 1}))?;
    }
    let messages = cell.receive("in", 1, "accept")?;
    in_order(&messages, MANY, 1024)?;
    cell.counters_at_rest(MANY + 1)
}

/// As many are with the client as it lets come ahead; then all arrive through that window.
pub(crate) fn prefetch(cell: &mut Cell<'_>) -> Check {
    const AHEAD: u64 = 100;
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("in", "", AHEAD)?;
    let ahead = if cell.kind.prefetch_waits_for_the_application() { AHEAD } else { MANY };
    cell.counters(&[("acquired", ahead), ("ready", MANY - ahead)])?;
    let messages = cell.receive("in", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    cell.counters_at_rest(MANY)
}

/// A receive on an empty queue comes back without a message, and the link is as good as before.
pub(crate) fn receive_timeout(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.receiver("in", "", 10)?;
    cell.receive_nothing("in")?;
    cell.receive_nothing("in")?;
    cell.sender("out", "")?;
    cell.send("out", Batch::of(MANY))?;
    let messages = cell.receive("in", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    cell.receive_nothing("in")?;
    cell.counters_at_rest(MANY)
}

/// 50 senders and 50 receivers on one session, each pair with a queue of its own.
pub(crate) fn many_links(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    let sessions = vec!["s".to_owned(); 50];
    many(cell, &sessions)
}

/// 50 sessions on one connection, each with a sender and a receiver.
pub(crate) fn many_sessions(cell: &mut Cell<'_>) -> Check {
    cell.connect(cell.broker.amqp(), None)?;
    let sessions: Vec<String> = (0..50).map(|number| format!("s{number}")).collect();
    for session in &sessions {
        cell.call(json!({"do": "session", "connection": "c", "session": session}))?;
    }
    many(cell, &sessions)
}

fn many(cell: &mut Cell<'_>, sessions: &[String]) -> Check {
    let each = MANY / sessions.len() as u64;
    let queue = |cell: &Cell<'_>, number: usize| format!("{}.{number}", cell.queue);
    for (number, session) in sessions.iter().enumerate() {
        let address = queue(cell, number);
        cell.call(json!({"do": "sender", "session": session, "link": format!("out{number}"), "address": address}))?;
        cell.call(json!({"do": "receiver", "session": session, "link": format!("in{number}"), "address": address, "prefetch": 5}))?;
    }
    for number in 0..sessions.len() {
        cell.send(&format!("out{number}"), Batch { from: number as u64 * each, ..Batch::of(each) })?;
    }
    for number in 0..sessions.len() {
        let messages = cell.receive(&format!("in{number}"), each, "accept")?;
        in_order(&messages, number as u64 * each, 1024)?;
    }
    for number in 0..sessions.len() {
        let counters = [("depth", 0), ("enqueued_total", each), ("acknowledged_total", each)];
        cell.counters_of(&queue(cell, number), &counters)?;
    }
    Ok(())
}
