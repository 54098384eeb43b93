//! Links, clients and brokers that go away while deliveries are open.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    cell::{Batch, Cell, Check, MANY, PATIENCE_MS, all_counted, in_order, same_body, send_command},
    client::Client,
};

/// Deliveries the application never asked for: the link closes in order, all are back as if never delivered.
pub(crate) fn detach_unseen(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("first", "", MANY)?;
    cell.counters(&[("acquired", MANY), ("ready", 0)])?;
    cell.detach("first")?;
    cell.counters(&[("acquired", 0), ("ready", MANY)])?;
    cell.receiver("second", "", 100)?;
    let messages = cell.receive("second", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 0)?;
    cell.counters_at_rest(MANY)
}

/// The client dies with all messages unacknowledged: all are back, in order, delivery-count raised.
pub(crate) fn disconnect(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("first", "", MANY)?;
    let messages = cell.receive("first", MANY, "hold")?;
    in_order(&messages, 0, 1024)?;
    cell.counters(&[("acquired", MANY), ("ready", 0)])?;
    std::mem::replace(cell.client, Client::start(cell.recipe)?).kill();

    cell.open()?;
    cell.receiver("second", "", 100)?;
    let messages = cell.receive("second", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    if cell.broker.is_ours() {
        // Whether a lost connection counts as a failed delivery is the broker's choice.
        all_counted(&messages, 1)?;
    }
    cell.counters_at_rest(MANY)
}

/// Everything confirmed, broker killed: the durable messages are there in order, the others are not. (A message that does
/// not say is as durable as its queue.)
pub(crate) fn kill_confirmed(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.fill(Batch { from: MANY, durable: Some(false), ..Batch::of(100) })?;
    cell.broker.kill_and_restart()?;
    cell.client.reset()?;
    cell.open()?;
    let kept = if cell.kind.says_not_durable() || !cell.broker.is_ours() { MANY } else { MANY + 100 };
    cell.counters(&[("ready", kept), ("depth", kept)])?;
    cell.receiver("in", "", 100)?;
    let messages = cell.receive("in", kept, "accept")?;
    in_order(&messages, 0, 1024)?;
    cell.receive_nothing("in")?;
    cell.counters(&[("ready", 0), ("acquired", 0), ("depth", 0)])
}

/// Everything confirmed, broker killed, and all of it sent again under the same duplicate ids, with more behind: each is there once.
pub(crate) fn kill_duplicate_id(cell: &mut Cell<'_>) -> Check {
    let all = Batch { ids: true, ..Batch::of(MANY + 10) };
    cell.open()?;
    cell.fill(Batch { count: MANY, ..all })?;
    cell.broker.kill_and_restart()?;
    cell.client.reset()?;
    cell.open()?;
    cell.fill(all)?;
    cell.fill(all)?;
    cell.receiver("in", "", 100)?;
    let messages = cell.receive("in", MANY + 10, "accept")?;
    in_order(&messages, 0, 1024)?;
    cell.receive_nothing("in")?;
    cell.counters(&[("depth", 0), ("duplicates_total", 2 * MANY + 10)])
}

/// Killed in the middle of sends: every confirmed message is there, in order and once; of the unconfirmed, any may be.
pub(crate) fn kill_sending(cell: &mut Cell<'_>) -> Check {
    const COUNT: u64 = 100_000;
    cell.open()?;
    cell.sender("out", "")?;
    let mut command = send_command("out", Batch { window: 1000, ..Batch::of(COUNT) });
    command["progress"] = json!(MANY);
    let broker = &mut *cell.broker;
    let answer = cell.client.call_with(&command, &mut |event| {
        if event["confirmed"].as_u64() == Some(4 * MANY) { broker.kill() } else { Ok(()) }
    })?;
    let confirmed: BTreeSet<i64> =
        answer["confirmed"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_i64).collect();
    if answer["lost"].as_str().is_none_or(str::is_empty) {
        return Err(format!("the client never noticed that the broker was killed; {} confirmed", confirmed.len()));
    }
    cell.broker.restart()?;
    cell.client.reset()?;
    cell.open()?;
    cell.receiver("in", "", 1000)?;
    let path = format!("/api/v1/queues/{}", cell.queue);
    let mut left = cell.broker.get(&path)?.and_then(|(_, facts)| facts["depth"].as_u64());
    let mut last = -1;
    let mut missing = confirmed.clone();
    while left != Some(0) {
        // Somebody else's broker does not tell how many there are: then silence is the end.
        let messages = cell.receive_within("in", left.unwrap_or(MANY).min(MANY), "accept", PATIENCE_MS)?;
        if messages.is_empty() {
            break;
        }
        left = left.map(|left| left - messages.len() as u64);
        for message in messages {
            if message.number <= last {
                return Err(format!("message {} came after {last}", message.number));
            }
            same_body(&message, 1024)?;
            last = message.number;
            missing.remove(&last);
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("{} of {} confirmed messages are lost, first {first}", missing.len(), confirmed.len()))
        }
    }
}

/// Killed while a consumer holds deliveries: they are back, in order, and say that they may have been seen.
pub(crate) fn kill_unsettled(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.fill(Batch::of(MANY))?;
    cell.receiver("first", "", MANY)?;
    let messages = cell.receive("first", MANY, "hold")?;
    in_order(&messages, 0, 1024)?;
    cell.broker.kill_and_restart()?;
    cell.client.reset()?;
    cell.open()?;
    cell.receiver("second", "", 100)?;
    let messages = cell.receive("second", MANY, "accept")?;
    in_order(&messages, 0, 1024)?;
    if cell.broker.is_ours() {
        // A peer may leave the flag out after its own crash; ours may not.
        all_counted(&messages, 1)?;
    }
    cell.receive_nothing("second")
}
