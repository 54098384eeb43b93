//! Numbered messages in transactions: a number counts once its transaction is committed, is free again after a rollback, and is told to be
//! undecided in between.

use crate::coordinator::{answer, commit, controlled, declare, discharge, end, prepare, rollback, start};
use crate::numbered::{LOST, attached, numbers, opening, sent};
use crate::world::{C, Msg, World, each, number};
use packhorse_amqp10::codec::Discharge;
use packhorse_amqp10::transaction::{Request, flags};
use packhorse_broker::{By, Command, Reply, TxAct};
use packhorse_model::Xid;

const UNDECIDED: &str = "rejected packhorse:dedup-undecided";
const X: &[u8] = b"x";

/// A client with a link to the coordinator, and its link as the producer; it has sent nothing from `next` on.
fn worker(world: &mut World, name: &str, address: &str, next: u64) -> (C, usize, usize) {
    let (c, control) = controlled(world, name);
    let s = world[c].numbered_sender(address, opening(0, next));
    world.run();
    assert!(world[c].links[s].attached, "{:?}", world[c].links[s].ended);
    (c, control, s)
}

/// Sends these in a local transaction, and commits it; what the broker says.
fn committed(world: &mut World, (c, control, s): (C, usize, usize), all: &[u64]) -> String {
    let txn = declare(world, c, control);
    for n in all {
        world[c].send_numbered_in(&txn, s, number(*n), *n);
    }
    world.run();
    discharge(world, c, control, &txn, false)
}

#[test]
fn what_is_sent_again_after_a_rollback_is_stored() {
    for how in 0..4 {
        each(|world| {
            let w = worker(world, "first", "q", 0);
            let (c, control, s) = w;
            let txn = declare(world, c, control);
            for n in 0..3 {
                world[c].send_numbered_in(&txn, s, number(n), n);
            }
            world.run();
            let w = match how {
                0 => {
                    assert_eq!(discharge(world, c, control, &txn, true), "accepted");
                    w
                }
                1 => {
                    world.kill(c);
                    world.run();
                    worker(world, "again", "q", 3)
                }
                2 => {
                    world.crash(1);
                    worker(world, "again", "q", 3)
                }
                _ => {
                    world.restart();
                    worker(world, "again", "q", 3)
                }
            };
            assert_eq!(committed(world, w, &[0, 1, 2, 3]), "accepted", "{how}");
            assert_eq!(sent(world, (w.0, w.2), 1, 0), "accepted");
            assert_eq!(numbers(world, "q"), [0, 1, 2, 3]);
        });
    }
}

#[test]
fn what_is_sent_again_after_a_commit_whose_answer_was_lost_is_stored_once() {
    for seed in 0..8 {
        each(|world| {
            let (c, control, s) = worker(world, "first", "q", 0);
            assert_eq!(committed(world, (c, control, s), &[0]), "accepted");
            let txn = declare(world, c, control);
            // Also what goes ahead of the commit.
            world[c].send_numbered_in(&txn, s, Msg::new(1).length(600 << 10).bytes(), 1);
            world[c].send_numbered_in(&txn, s, Msg::new(2).length(600 << 10).bytes(), 2);
            world[c].send_numbered_in(&txn, s, number(3), 3);
            world.run();
            world.hold_store();
            let token = world[c].request(control, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
            world.run();
            assert_eq!(answer(world, c, control, token), "nothing");
            if seed == 0 {
                world.kill(c);
                world.free_store();
            } else {
                // The commit may be on the disk, or not.
                world.crash(seed);
                world.free_store();
            }
            world.run();
            let w = worker(world, "again", "q", 4);
            assert_eq!(committed(world, w, &[1, 2, 3]), "accepted");
            // Outside of transactions as well.
            assert_eq!([0, 3].map(|n| sent(world, (w.0, w.2), n, 0)), ["accepted", "accepted"]);
            assert_eq!(numbers(world, "q"), [0, 1, 2, 3]);
        });
    }
}

#[test]
fn a_number_in_an_open_transaction_is_undecided_for_others() {
    each(|world| {
        let (c, control, s) = worker(world, "first", "q", 0);
        let txn = declare(world, c, control);
        // Twice in the same one is once.
        for n in [0, 1, 0] {
            world[c].send_numbered_in(&txn, s, number(n), n);
        }
        world.run();
        let other = worker(world, "other", "q", 2);
        assert_eq!(sent(world, (other.0, other.2), 0, 0), UNDECIDED);
        assert_eq!(committed(world, other, &[2, 1]), "rejected amqp:transaction:rollback");
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(committed(world, other, &[2, 1]), "accepted");
        assert_eq!(numbers(world, "q"), [0, 1, 2]);
    });
}

/// A branch in doubt that adds message 0 to each of these queues; its client is gone.
fn in_doubt(world: &mut World, queues: &[&str]) {
    let (c, control) = controlled(world, "manager");
    assert_eq!(start(world, c, control, X, flags::NONE), "declared");
    let txn = world[c].links[control].declared.last().unwrap().clone();
    for queue in queues {
        let s = world[c].numbered_sender(queue, opening(0, 0));
        world.run();
        world[c].send_numbered_in(&txn, s, number(0), 0);
    }
    world.run();
    assert_eq!(end(world, c, control, X, flags::SUCCESS), "xa 0");
    assert_eq!(prepare(world, c, control, X), "xa 0");
    world.kill(c);
    world.run();
}

/// The same, over a crash or a stop in order.
fn started_again(world: &mut World, how: u64) {
    match how {
        0 => world.run(),
        1 => world.restart(),
        seed => world.crash(seed),
    }
}

#[test]
fn a_number_in_doubt_is_undecided_until_the_manager_has_decided() {
    for (how, commits) in (0..4).flat_map(|how| [(how, true), (how, false)]) {
        each(|world| {
            in_doubt(world, &["q"]);
            started_again(world, how);
            let w = worker(world, "again", "q", 1);
            assert_eq!(sent(world, (w.0, w.2), 0, 0), UNDECIDED);
            assert_eq!(committed(world, w, &[0]), "rejected amqp:transaction:rollback");
            let (m, control) = controlled(world, "manager");
            let said = if commits { commit(world, m, control, X, false) } else { rollback(world, m, control, X) };
            assert_eq!(said, "xa 0");
            started_again(world, how);
            let link = attached(world, "late", "q", 0, 1);
            assert_eq!(sent(world, link, 0, 0), "accepted");
            assert_eq!(numbers(world, "q"), [0]);
        });
    }
}

#[test]
fn an_operators_decision_decides_numbers_too() {
    let xid = || Xid::new(1, X, b"b").unwrap();
    let by = || By { who: "ann".into(), reason: "the manager is gone".into() };
    for (how, act) in (0..3).flat_map(|how| [(how, TxAct::Commit), (how, TxAct::Rollback)]) {
        each(|world| {
            in_doubt(world, &["a", "b"]);
            started_again(world, how);
            // One queue goes by force, and takes its part with it.
            let gone = world.ask(Command::QueueDelete { name: "b".into(), force: true, by: Some(by()) });
            assert!(!matches!(gone, Reply::Refused(_)), "{gone:?}");
            let link = attached(world, "c", "a", 0, 1);
            assert_eq!(sent(world, link, 0, 0), UNDECIDED);
            let reply = world.ask(Command::TxDecide { xid: xid(), act, by: by() });
            assert!(matches!(reply, Reply::Decided { .. }), "{reply:?}");
            started_again(world, how);
            let link = attached(world, "d", "a", 0, 1);
            assert_eq!(sent(world, link, 0, 0), "accepted");
            assert_eq!(numbers(world, "a"), [0]);
            let link = attached(world, "e", "b", 0, 1);
            assert_eq!(sent(world, link, 0, 0), LOST, "another queue knows nothing");
            assert_eq!(numbers(world, "b"), []);
        });
    }
}

#[test]
fn a_transaction_with_a_message_that_may_be_there_is_not_committed() {
    each(|world| {
        let link = attached(world, "first", "q", 0, 0);
        assert_eq!(sent(world, link, 0, 0), "accepted");
        world.kill(link.0);
        world.pass(600_001);
        let w = worker(world, "late", "q", 1);
        assert_eq!(committed(world, w, &[1, 0]), "rejected amqp:transaction:rollback");
        assert_eq!(committed(world, w, &[1]), "accepted");
        assert_eq!(numbers(world, "q"), [0, 1]);
    });
}
