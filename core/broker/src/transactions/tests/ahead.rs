//! What went ahead of transactions that end without a record, in whatever way: the store keeps nothing of it.

use super::*;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    RolledBack,
    Lost,
    TimedOut,
    TooMuch,
    QueueGone,
}

const ALL: [Ends; 5] = [Ends::RolledBack, Ends::Lost, Ends::TimedOut, Ends::TooMuch, Ends::QueueGone];

/// Large messages, and so many others that some go ahead in each queue.
fn fill(rig: &mut Rig, control: Control, txn: TxnId, queues: [QueueId; 2]) {
    let text = "x".repeat(40_000);
    for queue in queues {
        rig.add_large(control, txn, queue, true);
        (0..30).for_each(|_| rig.add(control, txn, queue, &text));
    }
    rig.run();
}

#[test]
fn nothing_that_went_ahead_of_a_rollback_is_kept() {
    let settings = |config: &mut Config| {
        let transactions = TransactionConfig { max_staged_bytes: 20 << 20, ..TransactionConfig::default() };
        config.transactions = TransactionConfig { local_timeout_ms: 1_000, ..transactions };
    };
    for ends in ALL {
        each_with(settings, |rig, at| {
            let (a, b) = (rig.declare("a"), rig.declare("b"));
            for again in 0..2 {
                let control = rig.control(at);
                let txn = rig.begin(control);
                fill(rig, control, txn, [a, b]);
                let deleted = ends == Ends::QueueGone && again == 1;
                assert_eq!(rig.memory.parts_ahead(), 2 - usize::from(deleted), "{ends:?}");
                match ends {
                    Ends::RolledBack => drop(rig.discharge(control, txn, true)),
                    Ends::Lost => rig.lose(control),
                    Ends::TimedOut => rig.later(1_001),
                    Ends::TooMuch => {
                        // What is on its way to a home elsewhere when that is so comes to the queues all the same.
                        let text = "x".repeat(40_000);
                        let refused = (0..600).filter(|_| rig.add_as(control, txn, b, &text, true).is_err()).count();
                        rig.run();
                        assert_eq!(refused > 0, rig.refused.is_empty(), "{refused}");
                        rig.refused.clear();
                    }
                    Ends::QueueGone => {
                        if !deleted {
                            rig.ask(Command::QueueDelete { name: "a".into(), force: true, by: None });
                            assert_eq!(rig.memory.parts_ahead(), 1);
                        }
                        let gone = packhorse_txn::Reply::RolledBack(Cause::QueueGone);
                        assert_eq!(rig.commit(control, txn), gone);
                    }
                }
                rig.run();
                assert_eq!((rig.memory.parts_ahead(), rig.memory.large_files(), rig.pinned()), (0, 0, 0), "{ends:?}");
            }
            assert!(rig.texts(b).is_empty());
        });
    }
}

#[test]
fn nothing_that_went_ahead_is_kept_when_the_rollback_overtakes_the_rest() {
    let mut rig = Rig::new(3);
    let (a, b) = (rig.declare("a"), rig.declare("b"));
    let control = rig.control(1);
    for _ in 0..2 {
        let txn = rig.start(control, &xid("x"));
        fill(&mut rig, control, txn, [a, b]);
        assert_eq!(rig.memory.parts_ahead(), 2);
        rig.slow(Some((1, 2)));
        fill(&mut rig, control, txn, [a, b]);
        assert_eq!(rig.code(control, &xid("x"), Verb::Fail), Code::Ok);
        assert_eq!(rig.memory.parts_ahead(), 0);
        rig.slow(None);
        rig.run();
        assert_eq!((rig.memory.parts_ahead(), rig.memory.large_files(), rig.pinned()), (0, 0, 0));
        assert_eq!(rig.code(control, &xid("x"), Verb::Rollback), Code::Ok);
    }
    assert!(rig.texts(a).is_empty() && rig.texts(b).is_empty());
}
