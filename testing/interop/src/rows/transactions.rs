//! Local transactions: sends and acknowledgements happen together at the commit, and not at all otherwise. What happened is
//! asked of the broker's counters and of a witness on a connection of its own, never of the client that worked.

use serde_json::json;

use crate::{
    cell::{Arrived, Batch, Cell, Check, PATIENCE_MS, all_counted, in_order, send_command},
    recorder::Recorder,
};

/// Messages of one transaction.
const SOME: u64 = 100;

/// Not there before the commit, all there after it; the coordinator's link is good for the next transaction.
pub(crate) fn send(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let queue = cell.queue.clone();
    let queue = queue.as_str();
    witness(cell, queue)?;
    cell.sender("out", "")?;
    let mut sent = 0;
    for count in [SOME, SOME / 2] {
        declare(cell, "t")?;
        send_in(cell, "out", "t", Batch { from: sent, ..Batch::of(count) })?;
        cell.counters(&[("staged", count), ("ready", 0), ("depth", 0), ("enqueued_total", sent)])?;
        cell.receive_nothing("seen")?;
        commit(cell, "t")?;
        let messages = cell.receive("seen", count, "accept")?;
        in_order(&messages, sent, 1024)?;
        all_counted(&messages, 0)?;
        sent += count;
        cell.counters_at_rest(sent)?;
    }
    cell.counters(&[("staged", 0)])
}

/// What an aborted transaction sent never comes, and is not in the next one.
pub(crate) fn send_abort(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let queue = cell.queue.clone();
    witness(cell, &queue)?;
    cell.sender("out", "")?;
    declare(cell, "t")?;
    send_in(cell, "out", "t", Batch::of(SOME))?;
    cell.counters(&[("staged", SOME), ("depth", 0)])?;
    abort(cell, "t")?;
    cell.counters(&[("staged", 0), ("ready", 0), ("depth", 0), ("enqueued_total", 0)])?;
    cell.receive_nothing("seen")?;

    declare(cell, "t")?;
    send_in(cell, "out", "t", Batch { from: SOME, ..Batch::of(SOME / 2) })?;
    commit(cell, "t")?;
    let messages = cell.receive("seen", SOME / 2, "accept")?;
    in_order(&messages, SOME, 1024)?;
    cell.receive_nothing("seen")?;
    cell.counters_at_rest(SOME / 2)
}

/// Bodies of several frames, which all are in the transaction; those of 10 MiB are on their way while others are sent.
pub(crate) fn send_large(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let queue = cell.queue.clone();
    witness(cell, &queue)?;
    cell.sender("out", "")?;
    let batches =
        [(0, 3, 1 << 20), (3, 2, 10 << 20)].map(|(from, count, size)| Batch { from, size, ..Batch::of(count) });
    for ending in [abort, commit] {
        declare(cell, "t")?;
        for batch in batches {
            send_in(cell, "out", "t", batch)?;
        }
        cell.counters(&[("staged", 5), ("ready", 0), ("depth", 0), ("enqueued_total", 0)])?;
        ending(cell, "t")?;
        cell.counters(&[("staged", 0)])?;
    }
    for Batch { from, count, size, .. } in batches {
        in_order(&cell.receive("seen", count, "accept")?, from, size)?;
    }
    cell.receive_nothing("seen")?;
    cell.counters_at_rest(5)
}

/// Settled when they are sent, and in the transaction all the same: its end is the only answer.
pub(crate) fn send_pre_settled(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let queue = cell.queue.clone();
    witness(cell, &queue)?;
    cell.sender("out", "settled")?;
    for (from, ending) in [(0, abort as fn(&mut Cell<'_>, &str) -> Check), (SOME, commit)] {
        declare(cell, "t")?;
        send_answered(cell, "out", "t", Batch { from, ..Batch::of(SOME) })?;
        cell.counters(&[("staged", SOME), ("ready", 0), ("depth", 0)])?;
        ending(cell, "t")?;
        cell.counters(&[("staged", 0)])?;
    }
    in_order(&cell.receive("seen", SOME, "accept")?, SOME, 1024)?;
    cell.receive_nothing("seen")?;
    cell.counters_at_rest(SOME)
}

/// What is said otherwise than *accepted* in a transaction happens at its commit, and not after an abort.
pub(crate) fn outcomes(cell: &mut Cell<'_>) -> Check {
    const EACH: u64 = 10;
    let lock = cell.dead_letters;
    let _alone = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    transacted(cell)?;
    cell.fill(Batch::of(3 * EACH))?;
    cell.receiver_with_credit("in", 3 * EACH)?;
    for ending in [abort, commit] {
        declare(cell, "t")?;
        said(cell, EACH)?;
        cell.counters(&[("ready", 0), ("depth", 3 * EACH), ("dead_lettered_total", 0), ("acknowledged_total", 0)])?;
        ending(cell, "t")?;
        if cell.broker.is_ours() && cell.kind.grants_credit() {
            cell.call(json!({"do": "credit", "link": "in", "count": 3 * EACH}))?;
        }
    }
    cell.counters(&[("depth", 2 * EACH), ("dead_lettered_total", EACH), ("acknowledged_total", 0)])?;
    let messages = cell.receive("in", 2 * EACH, "accept")?;
    in_order(&messages, EACH, 1024)?;
    // What an abort gives back was seen.
    let seen = u64::from(cell.broker.is_ours());
    all_counted(&messages[..EACH as usize], seen)?;
    all_counted(&messages[EACH as usize..], seen + 1)?;
    cell.receiver_of("DLQ", "dead", "", EACH)?;
    in_order(&cell.receive("dead", EACH, "accept")?, 0, 1024)?;
    cell.counters(&[("depth", 0), ("dead_lettered_total", EACH), ("acknowledged_total", 2 * EACH)])
}

/// Credit for a transaction: what it brings is held under that, and goes back when it is rolled back, said of or not.
pub(crate) fn acquire(cell: &mut Cell<'_>) -> Check {
    const TAKEN: u64 = 20;
    transacted(cell)?;
    cell.fill(Batch::of(SOME))?;
    for (count, ending) in [(0, abort as fn(&mut Cell<'_>, &str) -> Check), (1, commit)] {
        let link = format!("in.{count}");
        cell.receiver(&link, "", 0)?;
        declare(cell, "t")?;
        let command = json!({"do": "acquire", "link": link, "txn": "t", "count": TAKEN, "accept": TAKEN / 2});
        let messages = cell.receive_so(command)?;
        in_order(&messages, 0, 1024)?;
        all_counted(&messages, count)?;
        cell.counters(&[
            ("ready", SOME - TAKEN),
            ("removing", TAKEN / 2),
            ("acquired", TAKEN / 2),
            ("acknowledged_total", 0),
        ])?;
        ending(cell, "t")?;
        if count == 0 {
            cell.counters(&[("ready", SOME), ("removing", 0), ("acquired", 0)])?;
        }
    }
    // The commit leaves with the link what was not decided.
    cell.counters(&[
        ("ready", SOME - TAKEN),
        ("removing", 0),
        ("acquired", TAKEN / 2),
        ("acknowledged_total", TAKEN / 2),
    ])?;
    cell.call(json!({"do": "end", "session": "s"}))?;
    cell.counters(&[("ready", SOME - TAKEN / 2), ("acquired", 0)])?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.receiver("again", "", SOME)?;
    in_order(&cell.receive("again", SOME - TAKEN / 2, "accept")?, TAKEN / 2, 1024)?;
    cell.counters_at_rest(SOME)
}

/// Accepted in a transaction: nobody else gets it, and it counts until the commit. After an abort all come again, in order,
/// with one more delivery; so whether the client settles with the outcome or leaves that to the end of the transaction.
pub(crate) fn accept(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let queue = cell.queue.clone();
    cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
    cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": queue}))?;
    cell.receiver_with_credit("in", SOME)?;
    let mut done = 0;
    for settled in [true, false] {
        cell.send("fill", Batch { from: done, ..Batch::of(SOME) })?;
        for (count, ending) in [(0, "abort"), (1, "abort"), (2, "commit")] {
            declare_so(cell, "t", settled)?;
            let messages = cell.receive("in", SOME, "hold")?;
            in_order(&messages, done, 1024)?;
            all_counted(&messages, count)?;
            cell.call(json!({"do": "settle", "link": "in", "outcome": "accept", "txn": "t"}))?;
            cell.counters(&[("ready", 0), ("depth", SOME), ("acknowledged_total", done)])?;
            if ending == "abort" {
                // A consumer with credit would get them at once, which is right too: the counters are asked first.
                abort(cell, "t")?;
                cell.counters(&[("depth", SOME), ("removing", 0), ("acknowledged_total", done)])?;
            } else {
                commit(cell, "t")?;
            }
            if cell.kind.grants_credit() {
                cell.call(json!({"do": "credit", "link": "in", "count": SOME}))?;
            }
        }
        done += SOME;
        cell.counters_at_rest(done)?;
    }
    cell.receive_nothing("in")
}

/// A rollback amid what is prefetched: all come again in the queue's order, also those that the application has not seen yet.
pub(crate) fn rollback_order(cell: &mut Cell<'_>) -> Check {
    const SEEN: u64 = 30;
    transacted(cell)?;
    let queue = cell.queue.clone();
    cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
    cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": queue}))?;
    cell.send("fill", Batch::of(SOME))?;
    cell.receiver("in", "", SOME / 2)?;
    for seen in [SEEN, 2 * SEEN, SEEN] {
        declare(cell, "t")?;
        in_order(&receive_in(cell, "in", "t", seen)?, 0, 1024)?;
        abort(cell, "t")?;
        cell.counters(&[("removing", 0), ("depth", SOME), ("acknowledged_total", 0)])?;
    }
    declare(cell, "t")?;
    let messages = receive_in(cell, "in", "t", SOME)?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages[..SEEN as usize], 3)?;
    all_counted(&messages[SEEN as usize..2 * SEEN as usize], 1)?;
    all_counted(&messages[2 * SEEN as usize..], 0)?;
    commit(cell, "t")?;
    cell.counters_at_rest(SOME)
}

/// From one queue to another, on two sessions where the client can: an abort moves nothing, a commit everything.
pub(crate) fn both(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let (from, to) = (cell.queue.clone(), format!("{}.to", cell.queue));
    cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
    cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": from}))?;
    cell.send("fill", Batch::of(SOME))?;
    witness(cell, &to)?;
    let session = if cell.kind.transactions_are_of_one_session() { "s" } else { "plain" };
    cell.call(json!({"do": "sender", "session": session, "link": "out", "address": to}))?;
    cell.receiver_with_credit("in", SOME)?;
    for count in [0, 1] {
        declare(cell, "t")?;
        let messages = receive_in(cell, "in", "t", SOME)?;
        in_order(&messages, 0, 1024)?;
        all_counted(&messages, count)?;
        send_in(cell, "out", "t", Batch::of(SOME))?;
        cell.counters_of(&to, &[("staged", SOME), ("depth", 0)])?;
        cell.counters(&[("removing", SOME), ("depth", SOME)])?;
        if count == 0 {
            abort(cell, "t")?;
            cell.counters(&[("removing", 0), ("depth", SOME)])?;
            cell.receive_nothing("seen")?;
            cell.counters_of(&to, &[("staged", 0), ("depth", 0), ("enqueued_total", 0)])?;
            if cell.kind.grants_credit() {
                cell.call(json!({"do": "credit", "link": "in", "count": SOME}))?;
            }
        } else {
            commit(cell, "t")?;
        }
    }
    in_order(&cell.receive("seen", SOME, "accept")?, 0, 1024)?;
    cell.counters_at_rest(SOME)?;
    cell.counters_of(&to, &[("depth", 0), ("enqueued_total", SOME), ("acknowledged_total", SOME)])
}

/// Two transactions at once on one session, of one coordinator: what is in one is not in the other.
pub(crate) fn two(cell: &mut Cell<'_>) -> Check {
    const EACH: u64 = 5;
    transacted(cell)?;
    let to = format!("{}.to", cell.queue);
    cell.fill(Batch::of(4 * EACH))?;
    cell.call(json!({"do": "sender", "session": "s", "link": "out", "address": to}))?;
    cell.receiver_with_credit("in", 4 * EACH)?;
    declare(cell, "lost")?;
    declare(cell, "kept")?;
    for (number, txn) in ["lost", "kept", "lost", "kept"].into_iter().enumerate() {
        let from = number as u64 * EACH;
        in_order(&receive_in(cell, "in", txn, EACH)?, from, 1024)?;
        if cell.kind.sends_in_transactions() {
            send_in(cell, "out", txn, Batch { from, ..Batch::of(EACH) })?;
        }
    }
    cell.counters(&[("removing", 4 * EACH), ("depth", 4 * EACH)])?;
    abort(cell, "lost")?;
    commit(cell, "kept")?;
    cell.counters(&[("ready", 2 * EACH), ("removing", 0), ("acknowledged_total", 2 * EACH)])?;
    cell.receiver("again", "", 2 * EACH)?;
    for from in [0, 2 * EACH] {
        let messages = cell.receive("again", EACH, "accept")?;
        in_order(&messages, from, 1024)?;
        all_counted(&messages, 1)?;
    }
    cell.counters_at_rest(4 * EACH)?;
    if cell.kind.sends_in_transactions() {
        witness(cell, &to)?;
        for from in [EACH, 3 * EACH] {
            in_order(&cell.receive("seen", EACH, "accept")?, from, 1024)?;
        }
        cell.receive_nothing("seen")?;
        cell.counters_of(&to, &[("staged", 0), ("depth", 0), ("enqueued_total", 2 * EACH)])?;
    }
    Ok(())
}

/// A coordinator's link that is closed rolls back what began on it; the next one works.
pub(crate) fn link_closed(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    rolled_back_by(cell, |cell| cell.detach("coordinator"))?;
    cell.call(json!({"do": "coordinator", "session": "s", "link": "coordinator"}))?;
    declare(cell, "t")?;
    cell.receiver("again", "", SOME)?;
    let messages = receive_in(cell, "again", "t", SOME)?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 1)?;
    commit(cell, "t")?;
    cell.counters_at_rest(SOME)
}

/// A session that ends rolls back what it did in a transaction that nobody committed.
pub(crate) fn session_closed(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    rolled_back_by(cell, |cell| cell.call(json!({"do": "end", "session": "s"})).map(|_| ()))?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.receiver("again", "", SOME)?;
    let messages = cell.receive("again", SOME, "accept")?;
    in_order(&messages, 0, 1024)?;
    all_counted(&messages, 1)?;
    cell.counters_at_rest(SOME)
}

/// Takes from the cell's queue and adds to another in a transaction that `end` ends: all of it is undone.
fn rolled_back_by(cell: &mut Cell<'_>, end: impl FnOnce(&mut Cell<'_>) -> Check) -> Check {
    let to = format!("{}.to", cell.queue);
    // JMS settles in the transaction whatever a transacted session sends, so the filling has a session of its own.
    cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
    let queue = cell.queue.clone();
    cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": queue}))?;
    cell.send("fill", Batch::of(SOME))?;
    witness(cell, &to)?;
    declare(cell, "t")?;
    cell.receiver_with_credit("in", SOME)?;
    in_order(&receive_in(cell, "in", "t", SOME)?, 0, 1024)?;
    if cell.kind.sends_in_transactions() {
        cell.call(json!({"do": "sender", "session": "s", "link": "out", "address": to}))?;
        send_in(cell, "out", "t", Batch::of(SOME))?;
        cell.counters_of(&to, &[("staged", SOME)])?;
    }
    cell.counters(&[("removing", SOME), ("depth", SOME), ("ready", 0)])?;
    end(cell)?;
    cell.counters(&[("removing", 0), ("ready", SOME), ("depth", SOME), ("acknowledged_total", 0)])?;
    cell.receive_nothing("seen")?;
    cell.counters_of(&to, &[("staged", 0), ("depth", 0), ("enqueued_total", 0)])
}

/// Work and ends that name a transaction which does not exist, or no longer, are refused by name, and join no other.
pub(crate) fn unknown_id(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    cell.fill(Batch::of(SOME))?;
    cell.sender("out", "")?;
    cell.call(json!({"do": "forge", "link": "coordinator", "txn": "forged"}))?;
    declare(cell, "over")?;
    commit(cell, "over")?;
    declare(cell, "open")?;
    for txn in ["forged", "over"] {
        if cell.kind.sends_in_transactions() {
            let answer = send_answered(cell, "out", txn, Batch::of(1));
            let refused = match &answer {
                Ok(answer) => answer["accepted"] == 0 && answer["others"].to_string().contains(UNKNOWN),
                Err(error) => {
                    cell.kind.reads_no_outcome_outside_a_transaction().is_some_and(|says| error.contains(says))
                }
            };
            if !refused {
                return Err(format!("a message sent in a transaction that is {txn} was answered {answer:?}"));
            }
        }
        if cell.kind.discharges_any_id() {
            refused(cell, json!({"do": "discharge", "txn": txn, "fail": false}), UNKNOWN)?;
            refused(cell, json!({"do": "discharge", "txn": txn, "fail": true}), UNKNOWN)?;
        }
        let link = format!("in.{txn}");
        cell.receiver_with_credit(&link, 1)?;
        receive_in(cell, &link, txn, 1)?;
        let next = json!({"do": "receive", "link": link, "count": 1, "timeout_ms": PATIENCE_MS, "settle": "accept"});
        refused(cell, next, UNKNOWN)?;
    }
    commit(cell, "open")?;
    cell.counters(&[("staged", 0), ("removing", 0), ("enqueued_total", SOME), ("acknowledged_total", 0)])?;
    cell.receiver("again", "", SOME)?;
    in_order(&cell.receive("again", SOME, "accept")?, 0, 1024)?;
    cell.counters_at_rest(SOME)
}

const UNKNOWN: &str = "amqp:transaction:unknown-id";

/// Killed amid a transaction: what was committed before is there, nothing of what was not, and the client is told no commit.
pub(crate) fn kill(cell: &mut Cell<'_>) -> Check {
    transacted(cell)?;
    let to = half_way(cell)?;
    cell.broker.kill()?;
    if cell.call(json!({"do": "discharge", "txn": "t", "fail": false})).is_ok() {
        return Err("a commit at a broker that is dead was answered".into());
    }
    cell.broker.restart()?;
    cell.client.reset()?;
    cell.open()?;
    let moved = if cell.kind.sends_in_transactions() { SOME / 2 } else { 0 };
    cell.counters(&[("ready", SOME / 2), ("depth", SOME / 2), ("removing", 0)])?;
    cell.receiver("again", "", SOME)?;
    let messages = cell.receive("again", SOME / 2, "accept")?;
    in_order(&messages, SOME / 2, 1024)?;
    all_counted(&messages, 1)?;
    cell.receive_nothing("again")?;
    if moved > 0 {
        witness(cell, &to)?;
        in_order(&cell.receive("seen", moved, "accept")?, 0, 1024)?;
        cell.receive_nothing("seen")?;
    }
    cell.counters(&[("depth", 0)])
}

/// Killed amid the commit: either all of it happened or nothing, and all of it if the commit was answered.
pub(crate) fn kill_committing(cell: &mut Cell<'_>) -> Check {
    let name = cell.queue.clone();
    for (round, delay_ms) in [0, 1, 3, 9].into_iter().enumerate() {
        cell.queue = format!("{name}.{round}");
        let to = format!("{}.to", cell.queue);
        transacted(cell)?;
        cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
        let from = cell.queue.clone();
        cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": from}))?;
        cell.send("fill", Batch::of(SOME))?;
        cell.receiver_with_credit("in", SOME)?;
        declare(cell, "t")?;
        receive_in(cell, "in", "t", SOME)?;
        if cell.kind.sends_in_transactions() {
            cell.call(json!({"do": "sender", "session": "s", "link": "out", "address": to}))?;
            send_in(cell, "out", "t", Batch::of(SOME))?;
        }
        let answered = cell.killed_amid(&json!({"do": "discharge", "txn": "t", "fail": false}), delay_ms)?.is_ok();
        cell.broker.restart()?;
        cell.client.reset()?;
        let (left, there) = (cell.depth_of(&from)?, cell.depth_of(&to)?);
        let moved = if cell.kind.sends_in_transactions() { SOME } else { 0 };
        let (all, nothing) = ((left, there) == (0, moved), (left, there) == (SOME, 0));
        if !(all || nothing && !answered) {
            let what = if answered { "was answered" } else { "was not answered" };
            return Err(format!("{left} of {SOME} are left, {there} are there, and the commit {what}"));
        }
    }
    Ok(())
}

/// Killed right behind the commit: what was rejected, given back as failed and released in it is as the commit made it.
pub(crate) fn kill_outcomes(cell: &mut Cell<'_>) -> Check {
    const EACH: u64 = 10;
    transacted(cell)?;
    cell.fill(Batch::of(3 * EACH))?;
    cell.receiver_with_credit("in", 3 * EACH)?;
    declare(cell, "t")?;
    said(cell, EACH)?;
    commit(cell, "t")?;
    cell.broker.kill_and_restart()?;
    cell.client.reset()?;
    cell.open()?;
    cell.counters(&[("depth", 2 * EACH), ("ready", 2 * EACH), ("removing", 0)])?;
    cell.receiver("again", "", 2 * EACH)?;
    let messages = cell.receive("again", 2 * EACH, "accept")?;
    in_order(&messages, EACH, 1024)?;
    // What was released comes first; both may have been given out once more, behind the commit.
    if let Some(wrong) = messages[EACH as usize..].iter().find(|message| message.count == 0) {
        return Err(format!(
            "message {} was given back as failed in the transaction, and does not say so",
            wrong.number
        ));
    }
    cell.receive_nothing("again")?;
    cell.receiver_of("DLQ", "dead", "", EACH)?;
    in_order(&cell.receive("dead", EACH, "accept")?, 0, 1024)
}

/// Receives in the transaction: a few are rejected, as many released, as many given back as failed.
fn said(cell: &mut Cell<'_>, each: u64) -> Check {
    for outcome in ["reject", "release", "fail"] {
        let command = json!({"do": "receive", "link": "in", "count": each, "settle": outcome, "txn": "t", "timeout_ms": PATIENCE_MS});
        cell.receive_so(command)?;
    }
    Ok(())
}

/// As [`kill`], by a client that finds its broker again by itself: the commit says that the transaction was rolled back, and
/// on the same session the work is done again.
pub(crate) fn kill_failover(cell: &mut Cell<'_>) -> Check {
    // The broker's port is another after its restart; the proxy's is not.
    let proxy = Recorder::start(cell.broker.amqp())?;
    let command =
        json!({"do": "connect", "connection": "c", "host": "127.0.0.1", "port": proxy.port(), "failover": true});
    cell.call(command)?;
    cell.call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    cell.call(json!({"do": "coordinator", "session": "s", "link": "coordinator"}))?;
    let to = half_way(cell)?;
    cell.broker.kill_and_restart()?;
    proxy.aim(cell.broker.amqp());
    refused(cell, json!({"do": "discharge", "txn": "t", "fail": false}), "TransactionRolledBackException")?;
    // The witness sees the broker without what the client believes; its own connection does not come back by itself.
    witness_as(cell, "after", &to)?;
    in_order(&cell.receive("after", SOME / 2, "accept")?, 0, 1024)?;
    cell.receive_nothing("after")?;
    cell.counters(&[("depth", SOME / 2), ("removing", 0), ("acknowledged_total", 0)])?;

    declare(cell, "t")?;
    let messages = receive_in(cell, "in", "t", SOME / 2)?;
    in_order(&messages, SOME / 2, 1024)?;
    all_counted(&messages, 1)?;
    send_in(cell, "out", "t", Batch { from: SOME / 2, ..Batch::of(SOME / 2) })?;
    commit(cell, "t")?;
    in_order(&cell.receive("after", SOME / 2, "accept")?, SOME / 2, 1024)?;
    cell.receive_nothing("after")?;
    cell.counters(&[("depth", 0), ("removing", 0)])
}

/// Moves one half in a transaction that is committed; the other half in one that is left open.
fn half_way(cell: &mut Cell<'_>) -> Check<String> {
    let to = format!("{}.to", cell.queue);
    cell.call(json!({"do": "session", "connection": "c", "session": "plain"}))?;
    let queue = cell.queue.clone();
    cell.call(json!({"do": "sender", "session": "plain", "link": "fill", "address": queue}))?;
    cell.send("fill", Batch::of(SOME))?;
    cell.call(json!({"do": "sender", "session": "s", "link": "out", "address": to}))?;
    cell.receiver_with_credit("in", SOME)?;
    for from in [0, SOME / 2] {
        declare(cell, "t")?;
        in_order(&receive_in(cell, "in", "t", SOME / 2)?, from, 1024)?;
        if cell.kind.sends_in_transactions() {
            send_in(cell, "out", "t", Batch { from, ..Batch::of(SOME / 2) })?;
        }
        if from == 0 {
            commit(cell, "t")?;
        }
    }
    cell.counters(&[("removing", SOME / 2), ("acknowledged_total", SOME / 2)])?;
    if cell.kind.sends_in_transactions() {
        cell.counters_of(&to, &[("staged", SOME / 2), ("ready", SOME / 2)])?;
    }
    Ok(to)
}

/// Connects, with a session that is the coordinator's too.
fn transacted(cell: &mut Cell<'_>) -> Check {
    cell.open()?;
    cell.call(json!({"do": "coordinator", "session": "s", "link": "coordinator"})).map(|_| ())
}

/// A consumer `seen` of a queue on a connection of its own.
fn witness(cell: &mut Cell<'_>, queue: &str) -> Check {
    witness_as(cell, "seen", queue)
}

fn witness_as(cell: &mut Cell<'_>, name: &str, queue: &str) -> Check {
    let at = cell.broker.amqp();
    cell.call(json!({"do": "connect", "connection": name, "host": at.ip().to_string(), "port": at.port()}))?;
    cell.call(json!({"do": "session", "connection": name, "session": name}))?;
    cell.call(json!({"do": "receiver", "session": name, "link": name, "address": queue, "prefetch": SOME})).map(|_| ())
}

fn declare(cell: &mut Cell<'_>, txn: &str) -> Check {
    declare_so(cell, txn, true)
}

/// `settled`: what is accepted in it is settled at once; otherwise that is left to its end, where the client can.
fn declare_so(cell: &mut Cell<'_>, txn: &str, settled: bool) -> Check {
    cell.call(json!({"do": "declare", "link": "coordinator", "txn": txn, "settle": settled})).map(|_| ())
}

fn commit(cell: &mut Cell<'_>, txn: &str) -> Check {
    cell.call(json!({"do": "discharge", "txn": txn, "fail": false})).map(|_| ())
}

fn abort(cell: &mut Cell<'_>, txn: &str) -> Check {
    cell.call(json!({"do": "discharge", "txn": txn, "fail": true})).map(|_| ())
}

fn send_answered(cell: &mut Cell<'_>, link: &str, txn: &str, batch: Batch) -> Check<serde_json::Value> {
    let mut command = send_command(link, batch);
    command["txn"] = json!(txn);
    cell.call(command)
}

/// Sends in a transaction; all are accepted in it.
fn send_in(cell: &mut Cell<'_>, link: &str, txn: &str, batch: Batch) -> Check {
    let answer = send_answered(cell, link, txn, batch)?;
    if answer["accepted"].as_u64() == Some(batch.count) {
        Ok(())
    } else {
        Err(format!(
            "{} of {} accepted in a transaction, others: {}",
            answer["accepted"], batch.count, answer["others"]
        ))
    }
}

/// Receives exactly `count` and accepts each in a transaction.
fn receive_in(cell: &mut Cell<'_>, link: &str, txn: &str, count: u64) -> Check<Vec<Arrived>> {
    let messages = cell.receive_so(
        json!({"do": "receive", "link": link, "count": count, "settle": "accept", "timeout_ms": PATIENCE_MS, "txn": txn}),
    )?;
    if messages.len() as u64 == count {
        Ok(messages)
    } else {
        Err(format!("{} of {count} messages came to be accepted in a transaction", messages.len()))
    }
}

/// Expects an error that says `what`.
fn refused(cell: &mut Cell<'_>, command: serde_json::Value, what: &str) -> Check {
    let said = command.to_string();
    match cell.call(command) {
        Err(error) if error.contains(what) => Ok(()),
        Err(error) => Err(format!("{said} failed with `{error}`, which is not {what}")),
        Ok(answer) => Err(format!("{said} was answered {answer}, wanted {what}")),
    }
}
