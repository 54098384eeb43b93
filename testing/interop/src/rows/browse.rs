//! Browsers: receivers that look at a queue and take nothing from it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cell::{Arrived, Batch, Cell, Check, MANY, PATIENCE_MS, QUIET_MS, all_counted, in_order};

/// Everything comes once and in order, whatever is said of it has no effect, what somebody holds is not shown; then a
/// consumer gets all of it as if nobody had looked.
pub(crate) fn browse(cell: &mut Cell<'_>) -> Check {
    const HELD: u64 = 100;
    cell.open()?;
    cell.fill(Batch::of(MANY))?;

    // With credit that the client renews by itself, for JMS ahead of the application.
    cell.browser("look", 50)?;
    let messages = cell.receive("look", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 0)?;
    at_once(|| cell.receive_nothing("look"))?;
    // Once the link is closed the broker has read what was said of the messages.
    cell.detach("look")?;
    untouched(cell, 0)?;

    // With prefetch 0 a JMS consumer asks for one at a time, so that it too holds just as many as it was asked for.
    cell.receiver("holder", "", 0)?;
    if cell.kind.grants_credit() {
        cell.call(json!({"do": "credit", "link": "holder", "count": HELD}))?;
    }
    let messages = cell.receive("holder", HELD, "hold")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 0)?;
    untouched(cell, HELD)?;

    // Now with a drain: its answer is the end of what there is to see.
    cell.browser("again", 0)?;
    let messages = at_once(|| drained(cell, "again", MANY - HELD))?;
    if messages.len() as u64 != MANY - HELD {
        return Err(format!("{} of {} that nobody holds were shown", messages.len(), MANY - HELD));
    }
    in_order(&messages, HELD, 1024)?;
    all_counted(&messages, 0)?;
    cell.receive_nothing("again")?;
    cell.detach("again")?;
    untouched(cell, HELD)?;

    cell.call(json!({"do": "settle", "link": "holder", "outcome": "release"}))?;
    cell.detach("holder")?;
    untouched(cell, 0)?;
    cell.receiver("in", "", 100)?;
    let messages = cell.receive("in", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 0)?;
    cell.receive_nothing("in")?;
    cell.counters_at_rest(MANY)
}

/// All that a drain of a browser brings where `available` can be seen.
fn drained(cell: &mut Cell<'_>, link: &str, available: u64) -> Check<Vec<Arrived>> {
    let mut messages = Vec::new();
    if cell.kind.grants_credit() {
        cell.call(json!({"do": "credit", "link": link, "count": MANY + 100}))?;
        let first = if cell.kind.takes_credit_back_to_drain() { available } else { 1 };
        messages = cell.receive(link, first, "accept")?;
        cell.call(json!({"do": "drain", "link": link}))?;
    }
    messages.extend(cell.receive_within(link, MANY + 100, "accept", QUIET_MS)?);
    Ok(messages)
}

/// The end of a browse is silence, for JMS the broker's answer to a drain. That client also ends it when it gives the
/// broker up after a minute, which is no answer.
fn at_once<T>(end: impl FnOnce() -> Check<T>) -> Check<T> {
    let begin = Instant::now();
    let told = end()?;
    let took = begin.elapsed();
    if took < Duration::from_millis(PATIENCE_MS) {
        Ok(told)
    } else {
        Err(format!("the end of what can be browsed came after {} s, by a limit of the client", took.as_secs()))
    }
}

/// All are in the queue and none is acknowledged, `held` by a consumer.
fn untouched(cell: &Cell<'_>, held: u64) -> Check {
    cell.counters(&[
        ("ready", MANY - held),
        ("acquired", held),
        ("depth", MANY),
        ("enqueued_total", MANY),
        ("acknowledged_total", 0),
        ("dead_lettered_total", 0),
    ])
}
