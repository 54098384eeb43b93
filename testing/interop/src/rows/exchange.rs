//! Messages through a queue: settled or not, durable or not, of all sizes, after either login.

use serde_json::json;

use crate::cell::{Batch, Cell, Check, MANY, all_counted, in_order};

/// The attach makes the queue; it is there afterwards, and was not before.
pub(crate) fn auto_created(cell: &mut Cell<'_>) -> Check {
    let path = format!("/api/v1/queues/{}", cell.queue);
    if let Some((status, _)) = cell.broker.get(&path)?
        && status != 404
    {
        return Err(format!("before the attach the queue answers {status}"));
    }
    cell.open()?;
    cell.sender("out", "")?;
    if let Some((status, facts)) = cell.broker.get(&path)?
        && (status != 200 || facts["name"] != json!(cell.queue))
    {
        return Err(format!("after the attach the queue answers {status}: {facts}"));
    }
    cell.send("out", Batch::of(MANY))?;
    take_all(cell, MANY, 1024).map(|_| ())
}

/// What says durable says so on arrival.
pub(crate) fn durable(cell: &mut Cell<'_>) -> Check {
    durability(cell, true)
}

/// What says it is not durable does not on arrival.
pub(crate) fn non_durable(cell: &mut Cell<'_>) -> Check {
    durability(cell, false)
}

fn durability(cell: &mut Cell<'_>, durable: bool) -> Check {
    cell.open()?;
    cell.fill(Batch { durable: Some(durable), ..Batch::of(MANY) })?;
    for message in take_all(cell, MANY, 1024)? {
        if message.durable != durable {
            return Err(format!("message {} arrived with durable {}", message.number, message.durable));
        }
    }
    Ok(())
}

/// Nobody answers these; the closing of the link says that all were read.
pub(crate) fn pre_settled_send(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.sender("out", "settled")?;
    cell.call(json!({"do": "send", "link": "out", "count": MANY, "size": 1024, "durable": true}))?;
    cell.detach("out")?;
    cell.counters(&[("enqueued_total", MANY)])?;
    take_all(cell, MANY, 1024).map(|_| ())
}

/// The broker forgets each message as it sends it; the client says nothing about them.
pub(crate) fn pre_settled_receive(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("in", "settled", MANY)?;
    let messages = cell.receive("in", MANY, "hold")?;
    in_order(&messages, 0, 1024)?;
    cell.counters_at_rest(MANY)
}

/// Both sides unsettled: acquired while held, gone once accepted.
pub(crate) fn unsettled(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.sender("out", "unsettled")?;
    cell.send("out", Batch::of(MANY))?;
    cell.receiver("in", "unsettled", MANY)?;
    let messages = cell.receive("in", MANY, "hold")?;
    in_order(&messages, 0, 1024)?;
    cell.counters(&[("acquired", MANY), ("ready", 0), ("depth", MANY), ("acknowledged_total", 0)])?;
    cell.call(json!({"do": "settle", "link": "in", "outcome": "accept"}))?;
    cell.counters_at_rest(MANY)
}

/// Thousands of sends nobody waits for, then thousands of deliveries held at once.
pub(crate) fn in_flight(cell: &mut Cell<'_>) -> Check {
    const COUNT: u64 = 5_000;
    cell.open()?;
    cell.sender("out", "")?;
    cell.send("out", Batch { size: 64, ..Batch::of(COUNT) })?;
    cell.receiver("in", "", COUNT)?;
    let messages = cell.receive("in", COUNT, "hold")?;
    in_order(&messages, 0, 64)?;
    cell.counters(&[("acquired", COUNT), ("ready", 0), ("acknowledged_total", 0)])?;
    cell.call(json!({"do": "settle", "link": "in", "outcome": "accept"}))?;
    cell.counters_at_rest(COUNT)
}

/// SASL ANONYMOUS.
pub(crate) fn login_anonymous(cell: &mut Cell<'_>) -> Check {
    login(cell, None)
}

/// SASL PLAIN.
pub(crate) fn login_plain(cell: &mut Cell<'_>) -> Check {
    login(cell, Some("guest"))
}

fn login(cell: &mut Cell<'_>, user: Option<&str>) -> Check {
    cell.connect(cell.broker.amqp(), user)?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.fill(Batch::of(MANY))?;
    take_all(cell, MANY, 1024)?;
    cell.call(json!({"do": "end", "session": "s"}))?;
    cell.call(json!({"do": "close", "connection": "c"})).map(|_| ())
}

pub(crate) fn body_empty(cell: &mut Cell<'_>) -> Check {
    bodies(cell, MANY, 0)
}

pub(crate) fn body_1_kib(cell: &mut Cell<'_>) -> Check {
    bodies(cell, MANY, 1 << 10)
}

pub(crate) fn body_64_kib(cell: &mut Cell<'_>) -> Check {
    bodies(cell, MANY, 64 << 10)
}

pub(crate) fn body_1_mib(cell: &mut Cell<'_>) -> Check {
    bodies(cell, 3, 1 << 20)
}

pub(crate) fn body_10_mib(cell: &mut Cell<'_>) -> Check {
    bodies(cell, 3, 10 << 20)
}

pub(crate) fn body_100_mib(cell: &mut Cell<'_>) -> Check {
    bodies(cell, 3, 100 << 20)
}

/// Large bodies go one at a time, so that the clients need not hold several.
fn bodies(cell: &mut Cell<'_>, count: u64, size: u64) -> Check {
    let large = size >= 1 << 20;
    cell.open()?;
    cell.fill(Batch { size, window: if large { 1 } else { 0 }, ..Batch::of(count) })?;
    cell.receiver("in", "", if large { 1 } else { 100 })?;
    let messages = cell.receive("in", count, "accept")?;
    in_order(&messages, 0, size)?;
    cell.counters_at_rest(count)
}

/// Receives and accepts everything, once and in order, and leaves an empty queue.
fn take_all(cell: &mut Cell<'_>, count: u64, size: u64) -> Check<Vec<crate::cell::Arrived>> {
    cell.receiver("in", "", 100)?;
    let messages = cell.receive("in", count, "accept")?;
    in_order(&messages, 0, size)?;
    all_counted(&messages, 0)?;
    cell.counters_at_rest(count)?;
    Ok(messages)
}
