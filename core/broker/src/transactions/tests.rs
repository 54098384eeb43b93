//! Transactions over queues of one and two shards, without connections.

mod ahead;
mod refused;

use super::rig::{Rig, xid};
use crate::{By, Command, Config, Level, QueuePatch, Refusal, Reply, TransactionConfig, TxAct, TxState};
use packhorse_model::{ClientSession, OnFull, QueueId, QueueLimits, ShardId, Token, TxnId};
use packhorse_store::Store;
use packhorse_txn::state::Verb;
use packhorse_txn::{Cause, Code, Control, Limit, NoWork, TxStatus};

/// With one shard and with two; of two, the connection is on either.
fn each(test: impl Fn(&mut Rig, usize)) {
    each_with(|_| {}, test);
}

fn each_with(settings: impl Fn(&mut Config), test: impl Fn(&mut Rig, usize)) {
    for (shards, at) in [(1, 0), (2, 0), (2, 1)] {
        let mut config = Config { shards, ..Config::default() };
        settings(&mut config);
        test(&mut Rig::with(config), at);
    }
}

fn refusal(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn by() -> By {
    By { who: "ann".into(), reason: "the manager is gone".into() }
}

fn decide(rig: &mut Rig, name: &str, act: TxAct) -> Reply {
    rig.ask(Command::TxDecide { xid: xid(name), act, by: by() })
}

#[test]
fn what_is_committed_is_seen_and_nothing_before() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        rig.send(a, "old");
        let consumer = rig.consumer(a);
        let old = rig.got(consumer).remove(0);
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "one");
        rig.add(control, txn, b, "two");
        rig.add_as(control, txn, b, "three", false).unwrap();
        rig.remove(control, txn, a, old.key);
        rig.run();
        assert!(rig.got(consumer).is_empty());
        assert!(rig.texts(b).is_empty());
        assert_eq!(rig.pinned(), 11);
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Committed);
        assert_eq!(rig.got(consumer).iter().map(|got| got.text.as_str()).collect::<Vec<_>>(), ["one"]);
        rig.leave(consumer);
        assert_eq!(rig.texts(b), ["two", "three"]);
        assert_eq!(rig.pinned(), 0);
        rig.restart();
        assert_eq!(rig.ready(a), [("one".to_string(), 1)]);
        assert_eq!(rig.texts(b), ["two"]);
    });
}

/// One commit over two queues, with a crash after so many flushes. `None`: there are not so many.
fn crash_after(flushes: usize, seed: u64, at: usize, large: bool) -> Option<()> {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.declare("a"), rig.declare("b"));
    rig.send(a, "old");
    let consumer = rig.consumer(a);
    let old = rig.got(consumer).remove(0);
    let control = rig.control(at);
    let txn = rig.begin(control);
    rig.memory.set_auto(false);
    let filler = "f".repeat(300_000);
    for queue in [a, b] {
        rig.add(control, txn, queue, "first");
        for _ in 0..if large { 5 } else { 0 } {
            rig.add(control, txn, queue, &filler);
        }
        rig.add(control, txn, queue, "last");
    }
    rig.remove(control, txn, a, old.key);
    let question = rig.discharge(control, txn, false);
    let mut done = 0;
    let mut crashed = false;
    for _ in 0..40 {
        rig.turn();
        for shard in 0..2 {
            if done == flushes {
                crashed = true;
                break;
            }
            done += rig.memory.flush(ShardId(shard), 1);
        }
        if crashed {
            break;
        }
    }
    rig.turn();
    let committed = rig.replies.get(&question).cloned();
    rig.crash(seed);
    let (in_a, in_b) = (rig.texts(a), rig.texts(b));
    let short = |texts: &[String]| texts.iter().map(|text| text[..1].to_string()).collect::<String>();
    let all = if large { ("ffffff", "ffffff") } else { ("f", "f") };
    let all = (format!("{}l", all.0), format!("{}l", all.1));
    let found = (short(&in_a), short(&in_b));
    let happened = found == all;
    assert!(happened || found == ("o".into(), String::new()), "{found:?} after {flushes} flushes, {at}, {seed}");
    match committed {
        Some(packhorse_txn::Reply::Committed) => assert!(happened, "after {flushes} flushes, {at}, {seed}"),
        None => {}
        other => panic!("{other:?}"),
    }
    crashed.then_some(())
}

#[test]
fn a_commit_over_two_shards_is_all_or_nothing_whatever_crashes_when() {
    for (large, at) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        for seed in 0..if large { 2 } else { 6 } {
            let mut flushes = 0;
            while crash_after(flushes, seed, at, large).is_some() {
                flushes += 1;
            }
            assert!(flushes >= if large { 3 } else { 1 }, "{flushes}");
        }
    }
}

#[test]
fn a_lost_connection_rolls_back_and_what_it_acknowledged_comes_back_in_its_place() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        for text in ["one", "two", "three"] {
            rig.send(a, text);
        }
        let consumer = rig.consumer(a);
        let got = rig.got(consumer);
        let control = rig.control(at);
        let (txn, other) = (rig.begin(control), rig.begin(control));
        rig.add(control, txn, b, "new");
        rig.add(control, other, b, "newer");
        rig.remove(control, txn, a, got[1].key);
        rig.run();
        rig.leave(consumer);
        assert_eq!(rig.ready(a), [("one".into(), 0), ("three".into(), 0)]);
        rig.lose(control);
        assert_eq!(rig.ready(a), [("one".into(), 0), ("two".into(), 1), ("three".into(), 0)]);
        assert!(rig.texts(b).is_empty());
        assert_eq!(rig.pinned(), 0);
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Unknown);
    });
}

/// A branch that adds to both queues and removes "old" from the first, prepared.
fn prepared(rig: &mut Rig, control: Control, name: &str) -> (QueueId, QueueId) {
    let (a, b) = (rig.declare("a"), rig.declare("b"));
    for text in ["older", "old", "young"] {
        rig.send(a, text);
    }
    let consumer = rig.consumer(a);
    let got = rig.got(consumer);
    let txn = rig.start(control, &xid(name));
    rig.add(control, txn, a, "new");
    rig.add(control, txn, b, "new");
    rig.add_as(control, txn, b, "fleeting", false).unwrap();
    rig.remove(control, txn, a, got[1].key);
    rig.leave(consumer);
    rig.prepare(control, &xid(name));
    (a, b)
}

fn counts(rig: &mut Rig, name: &str) -> (u64, u64, u64, u64) {
    match rig.ask(Command::QueueGet { name: name.into() }) {
        Reply::Queue(queue) => {
            let c = queue.counters;
            (c.depth, c.ready, c.prepared_in, c.prepared_out)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prepared_branch_survives_its_connection_and_a_crash_and_is_committed() {
    for crashes in [false, true] {
        each(|rig, at| {
            let control = rig.control(at);
            let (a, b) = prepared(rig, control, "x");
            rig.lose(control);
            assert_eq!(rig.pinned(), 8, "what no store has stays");
            if crashes {
                rig.crash(1);
            }
            assert_eq!(rig.ready(a), [("older".into(), u32::from(crashes)), ("young".into(), u32::from(crashes))]);
            assert!(rig.texts(b).is_empty());
            assert_eq!(counts(rig, "a"), (3, 2, 1, 1));
            assert_eq!(counts(rig, "b"), (0, 0, if crashes { 1 } else { 2 }, 0));
            let control = rig.control(1 - at.min(rig.shards.len() - 1));
            let at = usize::from(control.shard.0).min(rig.shards.len() - 1);
            let control = rig.control(at);
            assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::Ok);
            assert_eq!(rig.texts(a), ["older", "young", "new"]);
            assert_eq!(rig.texts(b), if crashes { vec!["new"] } else { vec!["new", "fleeting"] });
            assert_eq!((counts(rig, "a"), rig.pinned()), ((3, 3, 0, 0), 0));
            let lost = rig
                .logs
                .iter()
                .any(|(level, text)| *level == Level::Warn && text.contains("without 1 of its operations"));
            assert_eq!(lost, crashes, "{:?}", rig.logs);
            // A commit that is asked again is answered as before, after another crash too.
            rig.crash(2);
            let control = rig.control(at);
            assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::Ok);
            assert_eq!(rig.texts(b), ["new"]);
        });
    }
}

#[test]
fn a_prepared_branch_is_rolled_back_and_everything_is_in_its_place() {
    for crashes in [false, true] {
        each(|rig, at| {
            let control = rig.control(at);
            let (a, b) = prepared(rig, control, "x");
            if crashes {
                rig.crash(1);
            }
            let control = rig.control(at);
            assert_eq!(rig.code(control, &xid("x"), Verb::Rollback), Code::Ok);
            let seen = u32::from(crashes);
            assert_eq!(rig.ready(a), [("older".into(), seen), ("old".into(), 1), ("young".into(), seen)]);
            assert!(rig.texts(b).is_empty());
            assert_eq!((counts(rig, "b"), rig.pinned()), ((0, 0, 0, 0), 0));
        });
    }
}

#[test]
fn a_stale_acknowledgement_poisons() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        rig.send(a, "old");
        let consumer = rig.consumer(a);
        let old = rig.got(consumer).remove(0);
        rig.acknowledge(a, old.key);
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, b, "new");
        rig.remove(control, txn, a, old.key);
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(Cause::Stale));
        let branch = rig.start(control, &xid("x"));
        rig.add(control, branch, b, "new");
        rig.remove(control, branch, a, old.key);
        assert_eq!(rig.code(control, &xid("x"), Verb::End), Code::Ok);
        assert_eq!(rig.code(control, &xid("x"), Verb::Prepare), Code::RolledBackIntegrity);
        assert!(rig.texts(b).is_empty());
        assert_eq!(rig.pinned(), 0);
    });
}

#[test]
fn a_full_queue_that_rejects_poisons() {
    each(|rig, at| {
        let limits = QueueLimits { max_messages: Some(2), max_bytes: None, on_full: OnFull::Reject };
        let patch = QueuePatch { limits: Some(limits), ..QueuePatch::default() };
        let a = rig.declare_with("a", patch);
        rig.send(a, "old");
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "one");
        rig.add(control, txn, a, "two");
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(Cause::Full));
        let txn = rig.begin(control);
        rig.add(control, txn, a, "one");
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Committed);
        assert_eq!(rig.texts(a), ["old", "one"]);
        assert_eq!(rig.pinned(), 0);
    });
}

#[test]
fn work_that_crosses_a_timeout_is_refused_and_leaves_nothing() {
    let settings = |config: &mut Config| {
        config.transactions = TransactionConfig { branch_timeout_ms: 1_000, ..TransactionConfig::default() };
    };
    let test = |rig: &mut Rig, at: usize| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        let control = rig.control(at);
        let txn = rig.start(control, &xid("x"));
        for queue in [a, b] {
            rig.add(control, txn, queue, "before");
        }
        rig.run();
        assert_eq!(rig.pinned(), 12);
        // The time is over at home when work is on its way; where home is here, it is refused at once.
        rig.now.mono_us += 1_500_000;
        let mut refused = 0;
        for queue in [a, b] {
            refused += u32::from(rig.add_as(control, txn, queue, "after", true).is_err());
        }
        rig.run();
        let told = rig.refused.iter().filter(|(_, of, why)| *of == txn && *why == NoWork::RolledBack(Cause::Timeout));
        assert_eq!((refused, told.count()), if at == 0 { (2, 0) } else { (0, 2) }, "{:?}", rig.refused);
        assert_eq!(rig.pinned(), 0);
        assert_eq!(rig.code(control, &xid("x"), Verb::End), Code::RolledBackTimeout);
        assert!(rig.texts(a).is_empty() && rig.texts(b).is_empty());
        assert_eq!(counts(rig, "a"), (0, 0, 0, 0));
    };
    each_with(settings, test);
    // Home, connection and queue in three shards: the rollback overtakes the message.
    let mut config = Config { shards: 3, ..Config::default() };
    settings(&mut config);
    test(&mut Rig::with(config), 1);
}

#[test]
fn a_message_that_comes_after_the_rollback_is_dropped() {
    let mut rig = Rig::new(3);
    let (_, b) = (rig.declare("a"), rig.declare("b"));
    let control = rig.control(1);
    for persistent in [true, false] {
        let txn = rig.start(control, &xid("x"));
        rig.slow(Some((1, 2)));
        for text in ["one", "two"] {
            rig.add_as(control, txn, b, text, persistent).unwrap();
        }
        rig.run();
        assert_eq!(rig.code(control, &xid("x"), Verb::Fail), Code::Ok);
        assert_eq!(rig.pinned(), 0);
        rig.slow(None);
        rig.run();
        assert_eq!((rig.pinned(), counts(&mut rig, "b")), (0, (0, 0, 0, 0)));
        assert_eq!(rig.code(control, &xid("x"), Verb::Rollback), Code::Ok);
    }
    let txn = rig.start(control, &xid("x"));
    rig.add(control, txn, b, "three");
    rig.prepare(control, &xid("x"));
    assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::Ok);
    assert_eq!(rig.texts(b), ["three"]);
}

#[test]
fn a_local_transaction_times_out_by_itself() {
    let settings = |config: &mut Config| {
        config.transactions = TransactionConfig { local_timeout_ms: 1_000, ..TransactionConfig::default() };
    };
    each_with(settings, |rig, at| {
        let a = rig.declare("a");
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "new");
        rig.run();
        assert!(rig.shards[at].next_deadline().is_some_and(|at| at <= rig.now.mono_us + 1_000_000));
        rig.later(1_001);
        assert_eq!(rig.pinned(), 0);
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(Cause::Timeout));
    });
}

#[test]
fn staged_bytes_have_a_limit() {
    let settings = |config: &mut Config| {
        config.transactions = TransactionConfig { max_staged_bytes: 100_000, ..TransactionConfig::default() };
    };
    each_with(settings, |rig, at| {
        let a = rig.declare("a");
        let control = rig.control(at);
        let txn = rig.begin(control);
        let text = "t".repeat(60_000);
        rig.add(control, txn, a, &text);
        match rig.add_as(control, txn, a, &text, true) {
            Err(NoWork::Limit(refusal)) => {
                assert_eq!((refusal.limit, refusal.value, refusal.wanted), (Limit::StagedBytes, 100_000, 120_000));
            }
            other => panic!("{other:?}"),
        }
        rig.run();
        assert_eq!(rig.pinned(), 0);
        let cause = Cause::Limit(Limit::StagedBytes);
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(cause));
    });
}

#[test]
fn bodies_that_wait_in_many_transactions_have_a_limit_in_sum() {
    let settings = |config: &mut Config| config.transactions.max_memory_bytes = u64::from(config.shards) << 20;
    each_with(settings, |rig, at| {
        let a = rig.declare("a");
        let text = "t".repeat(10_000);
        let control = rig.control(at);
        let begin = |rig: &mut Rig, persistent| {
            let txn = rig.begin(control);
            rig.add_as(control, txn, a, &text, persistent).unwrap();
            rig.run();
            txn
        };
        // More than half of what there is, and nothing of it can be written.
        let mut all: Vec<TxnId> = (0..60).map(|_| begin(rig, false)).collect();
        let written: Vec<TxnId> = (0..30).map(|_| begin(rig, true)).collect();
        assert_eq!(rig.pinned(), 900_000);
        for txn in &written {
            rig.add(control, *txn, a, &text);
        }
        rig.run();
        assert_eq!(rig.pinned(), 600_000, "what can be written went ahead, of each transaction that went on");
        all.extend((0..44).map(|n| begin(rig, n % 2 == 0)));
        for persistent in [false, true] {
            let one_too_many = begin(rig, persistent);
            assert_eq!(rig.pinned(), 1_040_000, "what is refused takes nothing");
            assert_eq!(rig.commit(control, one_too_many), packhorse_txn::Reply::RolledBack(Cause::Memory));
        }
        assert_eq!(rig.commit(control, all[0]), packhorse_txn::Reply::Committed);
        all[0] = begin(rig, false);
        for txn in all.iter().chain(&written) {
            assert_eq!(rig.commit(control, *txn), packhorse_txn::Reply::Committed);
        }
        assert_eq!((rig.pinned(), rig.texts(a).len()), (0, 104 + 1 + 2 * 30));
    });
}

#[test]
fn a_queue_that_is_deleted_rolls_back_what_is_open_in_it() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "one");
        rig.add(control, txn, b, "two");
        rig.run();
        assert!(matches!(
            rig.ask(Command::QueueDelete { name: "a".into(), force: true, by: None }),
            Reply::Deleted { messages: 1 }
        ));
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(Cause::QueueGone));
        assert!(rig.texts(b).is_empty());
        let txn = rig.begin(control);
        rig.add(control, txn, a, "late");
        rig.add(control, txn, b, "two");
        assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::RolledBack(Cause::QueueGone));
        assert_eq!(rig.pinned(), 0);
    });
}

#[test]
fn a_queue_with_work_in_doubt_is_deleted_only_with_a_name_and_a_reason() {
    each(|rig, at| {
        let control = rig.control(at);
        let (_, b) = prepared(rig, control, "x");
        let delete = |force, by| Command::QueueDelete { name: "a".into(), force, by };
        for command in [delete(false, None), delete(true, None), delete(false, Some(by()))] {
            let refusal = refusal(rig.ask(command));
            assert_eq!(refusal.code, "queue-in-doubt");
            assert!(refusal.detail.contains(&xid("x").to_string()), "{}", refusal.detail);
        }
        assert!(matches!(rig.ask(delete(true, Some(by()))), Reply::Deleted { .. }));
        match rig.ask(Command::TxShow { xid: xid("x") }) {
            Reply::Transaction(report) => {
                assert_eq!(report.view.state, TxState::Prepared);
                assert_eq!(report.lost.len(), 1);
                let By { who, reason } = &report.lost[0].by;
                assert!(who == "ann" && reason.contains("the manager is gone"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        rig.crash(1);
        let control = rig.control(at);
        assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::HeuristicMixed);
        assert_eq!(rig.texts(b), ["new"]);
        assert_eq!(rig.code(control, &xid("x"), Verb::Forget), Code::Ok);
        assert_eq!(rig.code(control, &xid("x"), Verb::Forget), Code::NotThere);
    });
}

#[test]
fn a_queue_is_deleted_behind_the_record_of_a_commit_with_work_in_it() {
    for at in [0, 1] {
        let mut rig = Rig::new(2);
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "one");
        rig.add(control, txn, b, "two");
        rig.run();
        rig.memory.set_auto(false);
        let question = rig.discharge(control, txn, false);
        rig.run();
        let delete = rig.command(0, Command::QueueDelete { name: "a".into(), force: true, by: None });
        rig.run();
        assert!(rig.admin.is_empty() && rig.replies.is_empty());
        rig.memory.set_auto(true);
        rig.memory.flush_all();
        rig.run();
        assert_eq!(rig.replies.remove(&question), Some(packhorse_txn::Reply::Committed));
        assert!(matches!(rig.admin.remove(&delete), Some(Reply::Deleted { messages: 1 })));
        assert_eq!(rig.texts(b), ["two"]);
        rig.crash(1);
        assert_eq!(rig.texts(b), ["two"]);
    }
}

#[test]
fn a_queue_is_not_deleted_while_a_prepare_is_on_its_way() {
    for at in [0, 1] {
        let mut rig = Rig::new(2);
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        let control = rig.control(at);
        let txn = rig.start(control, &xid("x"));
        rig.add(control, txn, a, "one");
        rig.add(control, txn, b, "two");
        assert_eq!(rig.code(control, &xid("x"), Verb::End), Code::Ok);
        rig.memory.set_auto(false);
        let question = rig.xa(control, &xid("x"), Verb::Prepare);
        rig.run();
        let delete = rig.command(0, Command::QueueDelete { name: "a".into(), force: true, by: None });
        rig.run();
        assert!(rig.admin.is_empty() && rig.replies.is_empty());
        rig.memory.set_auto(true);
        rig.memory.flush_all();
        rig.run();
        assert_eq!(rig.replies.remove(&question).map(|reply| reply.code()), Some(Code::Ok));
        assert_eq!(refusal(rig.admin.remove(&delete).unwrap()).code, "queue-in-doubt");
        assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::Ok);
        assert_eq!((rig.texts(a), rig.texts(b)), (vec!["one".to_string()], vec!["two".to_string()]));
    }
}

#[test]
fn a_queue_with_work_in_doubt_is_purged_only_with_a_name_and_a_reason() {
    each(|rig, at| {
        let control = rig.control(at);
        let (a, b) = prepared(rig, control, "x");
        let purge = |by| Command::QueuePurge { name: "a".into(), by };
        assert_eq!(refusal(rig.ask(purge(None))).code, "queue-in-doubt");
        assert_eq!(counts(rig, "a"), (3, 2, 1, 1));
        assert_eq!(rig.ask(purge(Some(by()))), Reply::Purged { messages: 3 });
        assert_eq!(counts(rig, "a"), (0, 0, 0, 0));
        rig.crash(1);
        assert_eq!(counts(rig, "a"), (0, 0, 0, 0));
        let control = rig.control(at);
        assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::HeuristicMixed);
        assert!(rig.texts(a).is_empty());
        assert_eq!(rig.texts(b), ["new"]);
    });
}

#[test]
fn operators_see_and_decide_what_is_in_doubt() {
    each(|rig, at| {
        let control = rig.control(at);
        let (a, b) = prepared(rig, control, "x");
        let other = rig.control(at);
        let _ = rig.start(other, &xid("y"));
        let page = |rig: &mut Rig, states| match rig.ask(Command::TxList { after: None, states, limit: 1 }) {
            Reply::Transactions(page) => page,
            other => panic!("{other:?}"),
        };
        let both = page(rig, Vec::new());
        assert_eq!((both.transactions.len(), both.next), (1, Some(xid("x"))));
        let doubtful = page(rig, vec![TxState::Prepared]);
        assert_eq!((doubtful.transactions.len(), doubtful.next), (1, None));
        let txn = doubtful.transactions[0].view.txn;
        let names: Vec<_> = doubtful.transactions[0].parts.iter().map(|part| part.name.clone().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
        let mut seen = Vec::new();
        loop {
            let from = seen.len() as u64;
            match rig.ask(Command::TxPart { txn, queue: a, from, limit: 1 }) {
                Reply::TxContents(contents) => {
                    seen.extend(contents.messages);
                    if !contents.more {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        let seen: Vec<_> = seen.iter().map(|message| (message.removes.is_some(), message.length)).collect();
        assert_eq!(seen, [(false, 3), (true, 3)]);
        let nobody = By { who: " ".into(), reason: "x".into() };
        let refused = rig.ask(Command::TxDecide { xid: xid("x"), act: TxAct::Commit, by: nobody });
        assert_eq!(refusal(refused).code, "reason-missing");
        assert_eq!(refusal(decide(rig, "z", TxAct::Commit)).code, "branch-not-found");
        assert_eq!(refusal(decide(rig, "y", TxAct::Commit)).code, "branch-not-in-doubt");
        match decide(rig, "x", TxAct::Commit) {
            Reply::Decided { branch: Some(report) } => {
                assert_eq!(report.view.state, TxState::HeuristicCommitted);
                assert_eq!(report.decided().map(|audit| audit.who.as_str()), Some("ann"));
            }
            other => panic!("{other:?}"),
        }
        assert!(
            rig.logs.iter().any(|(_, text)| text.contains("ann") && text.contains("the manager is gone")),
            "{:?}",
            rig.logs
        );
        assert_eq!(rig.texts(b), ["new", "fleeting"]);
        rig.crash(1);
        assert_eq!(refusal(decide(rig, "x", TxAct::Rollback)).code, "branch-decided");
        let control = rig.control(at);
        assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::HeuristicCommitted);
        assert_eq!(
            rig.ask(Command::TxDecide {
                xid: xid("x"),
                act: TxAct::Forget,
                by: By { who: "ann".into(), reason: String::new() },
            }),
            Reply::Decided { branch: None }
        );
        assert_eq!(rig.code(control, &xid("x"), Verb::Forget), Code::NotThere);
        assert_eq!(rig.texts(b), ["new"]);
    });
}

#[test]
fn a_branch_in_doubt_for_long_is_an_alarm() {
    let settings = |config: &mut Config| config.transactions.in_doubt_alarm_ms = 60_000;
    each_with(settings, |rig, at| {
        let control = rig.control(at);
        prepared(rig, control, "x");
        let alarms = |rig: &mut Rig| match rig.ask(Command::Status) {
            Reply::Shard(report) => {
                let codes: Vec<_> = report.alarms.iter().map(|alarm| alarm.code).collect();
                (report.transactions.0.in_doubt, codes)
            }
            other => panic!("{other:?}"),
        };
        rig.later(59_000);
        assert_eq!(alarms(rig), (1, vec![]));
        rig.crash(1);
        rig.later(1_000);
        assert_eq!(alarms(rig), (1, vec!["transactions-in-doubt"]));
        assert!(matches!(decide(rig, "x", TxAct::Rollback), Reply::Decided { .. }));
        assert_eq!(alarms(rig), (0, vec![]));
    });
}

#[test]
fn a_lost_commit_reply_is_resolved() {
    each(|rig, at| {
        let a = rig.declare("a");
        let broker = rig.memory.handle(ShardId(0)).broker();
        let session = ClientSession([7; 16]);
        let token = |counter| Token { broker, session, counter };
        let control = rig.control(at);
        rig.queues(at).open_session(session, 1);
        let status = |rig: &mut Rig, counter| {
            let control = rig.control(at);
            let to = rig.question(control);
            rig.queues(at).tx_status(to, token(counter));
            rig.run();
            rig.statuses.remove(&to.question)
        };
        for counter in 1..=2 {
            let txn = rig.begin(control);
            rig.add(control, txn, a, "new");
            let question = rig.transact(control, |to| packhorse_txn::Input::Discharge {
                to,
                txn,
                fail: false,
                token: Some(token(counter)),
            });
            rig.run();
            assert_eq!(rig.replies.remove(&question), Some(packhorse_txn::Reply::Committed));
            if counter == 1 {
                // The next one is fenced if it is asked for before.
                assert_eq!(status(rig, 1), Some(TxStatus::Committed));
            }
        }
        let txn = rig.begin(control);
        rig.add(control, txn, a, "never");
        assert_eq!(status(rig, 3), Some(TxStatus::RolledBack));
        let question =
            rig.transact(control, |to| packhorse_txn::Input::Discharge { to, txn, fail: false, token: Some(token(3)) });
        rig.run();
        assert_eq!(rig.replies.remove(&question), Some(packhorse_txn::Reply::RolledBack(Cause::Fenced)));
        rig.crash(1);
        assert_eq!([status(rig, 2), status(rig, 3)], [Some(TxStatus::Committed), Some(TxStatus::RolledBack)]);
        assert_eq!(rig.texts(a), ["new", "new"]);
    });
}

#[test]
fn what_is_large_goes_ahead_and_does_not_stay_in_memory() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        let control = rig.control(at);
        for commits in [false, true] {
            let txn = rig.begin(control);
            for n in 0..100 {
                let text = format!("{n:03}{}", "x".repeat(40_000));
                rig.add(control, txn, [a, b][n % 2], &text);
                rig.run();
                assert!(rig.pinned() <= 2 * (1 << 20), "{}", rig.pinned());
            }
            if commits {
                assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Committed);
            } else {
                rig.lose(control);
            }
            assert_eq!(rig.pinned(), 0);
        }
        let numbers = |texts: Vec<String>| texts.iter().map(|text| text[..3].parse().unwrap()).collect::<Vec<usize>>();
        for crashes in [false, true] {
            if crashes {
                rig.crash(1);
            }
            assert_eq!(numbers(rig.texts(a)), (0..100).step_by(2).collect::<Vec<_>>());
            assert_eq!(numbers(rig.texts(b)), (1..100).step_by(2).collect::<Vec<_>>());
        }
    });
}

#[test]
fn the_file_of_a_large_message_lives_as_long_as_the_message_may() {
    each(|rig, at| {
        let (a, b) = (rig.declare("a"), rig.declare("b"));
        for persistent in [false, true] {
            for queue in [a, b] {
                let control = rig.control(at);
                let txn = rig.begin(control);
                rig.add_large(control, txn, queue, persistent);
                rig.run();
                assert_eq!(rig.memory.large_files(), 1);
                rig.lose(control);
                assert_eq!(rig.memory.large_files(), 0);
                let txn = rig.begin(control);
                rig.add_large(control, txn, queue, persistent);
                assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Committed);
                assert_eq!(rig.memory.large_files(), 1);
                let consumer = rig.consumer(queue);
                let got = rig.got(consumer);
                assert_eq!(got.len(), 1);
                rig.acknowledge(queue, got[0].key);
                rig.leave(consumer);
                assert_eq!(rig.memory.large_files(), 0);
                for commits in [false, true] {
                    let control = rig.control(at);
                    let txn = rig.start(control, &xid("x"));
                    rig.add_large(control, txn, queue, persistent);
                    rig.prepare(control, &xid("x"));
                    rig.crash(1);
                    assert_eq!(rig.memory.large_files(), usize::from(persistent));
                    let control = rig.control(at);
                    let verb = if commits { Verb::Commit } else { Verb::Rollback };
                    assert_eq!(rig.code(control, &xid("x"), verb), Code::Ok);
                    assert_eq!(rig.memory.large_files(), usize::from(commits && persistent));
                    assert_eq!(rig.texts(queue).len(), usize::from(commits && persistent));
                    assert_eq!(
                        rig.ask(Command::QueuePurge { name: "a".into(), by: None }),
                        Reply::Purged { messages: u64::from(commits && persistent && queue == a) }
                    );
                    rig.ask(Command::QueuePurge { name: "b".into(), by: None });
                    rig.run();
                    assert_eq!(rig.memory.large_files(), 0);
                }
            }
        }
    });
}

#[test]
fn what_is_not_persistent_is_whole_after_the_commit_though_memory_is_short() {
    each_with(
        |config| config.memory_bytes = 64 << 10,
        |rig, at| {
            let (a, b) = (rig.declare("a"), rig.declare("b"));
            let control = rig.control(at);
            let text = |n: usize| format!("{n:03}{}", "x".repeat(2_000));
            let txn = rig.begin(control);
            for n in 0..200 {
                rig.add_as(control, txn, [a, b][n % 2], &text(n), n % 3 == 0).unwrap();
            }
            assert_eq!(rig.commit(control, txn), packhorse_txn::Reply::Committed);
            assert_eq!(rig.pinned(), 0);
            rig.run();
            assert_eq!(rig.texts(a), (0..200).step_by(2).map(text).collect::<Vec<_>>());
            assert_eq!(rig.texts(b), (1..200).step_by(2).map(text).collect::<Vec<_>>());
            // Staged bodies count as memory.
            let txn = rig.begin(control);
            rig.add_as(control, txn, a, &"y".repeat(100_000), false).unwrap();
            rig.run();
            assert!(rig.shards.iter().any(|shard| shard.queues.ring.is_short()));
            assert_eq!(rig.texts(a).len(), 100, "loads go on, one at a time");
        },
    );
}

#[test]
fn a_question_waits_for_the_commit_that_is_on_its_way() {
    each(|rig, at| {
        let a = rig.declare("a");
        let broker = rig.memory.handle(ShardId(0)).broker();
        let token = Token { broker, session: ClientSession([7; 16]), counter: 1 };
        let control = rig.control(at);
        let txn = rig.begin(control);
        rig.add(control, txn, a, "new");
        rig.run();
        rig.memory.set_auto(false);
        rig.transact(control, |to| packhorse_txn::Input::Discharge { to, txn, fail: false, token: Some(token) });
        rig.run();
        let other = rig.control(at);
        let to = rig.question(other);
        rig.queues(at).tx_status(to, token);
        rig.run();
        assert!(rig.statuses.is_empty());
        rig.memory.set_auto(true);
        rig.memory.flush_all();
        rig.run();
        assert_eq!(rig.statuses.remove(&to.question), Some(TxStatus::Committed));
    });
}
