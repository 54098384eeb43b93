//! Branches of XA over AMQP: the whole tour, every verb in every state that a client can reach, crashes between the verbs, joins
//! from other connections. Scenarios of `spec/scenarios.md`, B, are named after their numbers.

use crate::coordinator::{
    answer, ask, commit, controlled, declare, discharge, end, forget, prepare, recover, rollback, start,
};
use crate::world::{C, Msg, World, each, each_with, number};
use packhorse_amqp10::codec::{Modified, Outcome, Rejected};
use packhorse_amqp10::transaction::{Request, XaCommit, XaPrepare, XaRecover, XaStart, XaXid, flags};
use packhorse_broker::{By, Command, Reply};
use packhorse_model::Xid;

const ACCEPTED: Option<Outcome<'static>> = Some(Outcome::Accepted);
const X: &[u8] = b"X";

/// Who works in a branch: its link to the coordinator, a sender and a receiver of queue `q`.
struct Worker {
    c: C,
    control: usize,
    s: usize,
    r: usize,
}

fn worker(world: &mut World, name: &str, credit: u32) -> Worker {
    let (c, control) = controlled(world, name);
    let s = world[c].sender("q");
    let r = world[c].receiver("q", credit);
    world.run();
    Worker { c, control, s, r }
}

/// Starts a branch; the id to work under.
fn begin(world: &mut World, c: C, control: usize, g: &[u8]) -> Vec<u8> {
    assert_eq!(start(world, c, control, g, flags::NONE), "declared");
    world[c].links[control].declared.last().unwrap().clone()
}

/// Queue `q` holds 0 to 3; branch X has acknowledged 0 and 1 and added 10 and 11, and its work has ended.
fn worked(world: &mut World) -> Worker {
    world.fill("q", 0..4);
    let w = worker(world, "x", 2);
    let txn = begin(world, w.c, w.control, X);
    for at in 0..2 {
        world[w.c].decide_in(&txn, w.r, at, ACCEPTED, true);
        world[w.c].send_in(&txn, w.s, number(10 + at as u64), false);
    }
    world.run();
    assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 0");
    w
}

fn prepared(world: &mut World) -> Worker {
    let w = worked(world);
    assert_eq!(prepare(world, w.c, w.control, X), "xa 0");
    w
}

/// `ready`, `prepared_in`, `prepared_out`, `depth` of the queue.
fn counts(world: &mut World) -> [u64; 4] {
    let c = world.queue("q").counters;
    [c.ready, c.prepared_in, c.prepared_out, c.depth]
}

fn numbers(world: &mut World) -> Vec<u64> {
    world.take("q").into_iter().map(|(n, _)| n).collect()
}

fn browse(world: &mut World) -> Vec<u64> {
    let c = world.client("browser");
    let b = world[c].browser("q", 100);
    world.run();
    let numbers = world[c].numbers(b);
    world[c].close();
    world.run();
    numbers
}

/// The manager comes again, on a new connection.
fn manager(world: &mut World) -> (C, usize) {
    controlled(world, "manager")
}

#[test]
fn the_whole_tour() {
    each(|world| {
        let w = prepared(world);
        assert_eq!(recover(world, w.c, w.control), [X]);
        assert_eq!(prepare(world, w.c, w.control, X), "xa 0", "asked again");
        assert_eq!(commit(world, w.c, w.control, X, true), "xa -6", "it is prepared");
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa -6");
        assert_eq!(start(world, w.c, w.control, X, flags::JOIN), "xa -6");
        assert_eq!(forget(world, w.c, w.control, X), "xa -6");
        assert_eq!(commit(world, w.c, w.control, X, false), "xa 0");
        assert_eq!(commit(world, w.c, w.control, X, false), "xa 0", "remembered");
        assert!(recover(world, w.c, w.control).is_empty());
        world[w.c].close();
        world.run();
        assert_eq!(numbers(world), [2, 3, 10, 11]);
        let (m, control) = manager(world);
        // A name that was used may be used again, and what was remembered of it is forgotten.
        begin(world, m, control, X);
        assert_eq!(end(world, m, control, X, flags::SUCCESS), "xa 0");
        assert_eq!(rollback(world, m, control, X), "xa 0");
        assert_eq!(commit(world, m, control, X, false), "xa -4");
    });
}

#[test]
fn fs_23_a_prepared_branch_survives_and_is_committed() {
    each(|world| {
        prepared(world);
        world.crash(1);
        assert_eq!(counts(world), [2, 2, 2, 4]);
        let (m, control) = manager(world);
        assert_eq!(recover(world, m, control), [X]);
        assert_eq!(browse(world), [2, 3]);
        let k = world.client("k");
        let r = world[k].receiver("q", 10);
        world.run();
        assert_eq!(world[k].numbers(r), [2, 3]);
        assert_eq!(commit(world, m, control, X, false), "xa 0");
        assert_eq!(world[k].numbers(r), [2, 3, 10, 11]);
        assert!(recover(world, m, control).is_empty());
        assert_eq!(world.queue("q").counters.depth, 4);
    });
}

#[test]
fn fs_24_a_prepared_branch_survives_and_is_rolled_back() {
    each(|world| {
        prepared(world);
        world.crash(2);
        let (m, control) = manager(world);
        let k = world.client("k");
        let r = world[k].receiver("q", 1);
        world.run();
        assert_eq!(world[k].numbers(r), [2]);
        assert_eq!(rollback(world, m, control, X), "xa 0");
        assert_eq!(world.queue("q").counters.depth, 4);
        assert_eq!(browse(world), [0, 1, 3]);
        world[k].accept(r, 0);
        world[k].credit(r, 10);
        world.run();
        assert_eq!(world[k].numbers(r), [2, 0, 1, 3]);
        let deliveries: Vec<u32> = world[k].links[r].got.iter().map(|got| got.deliveries()).collect();
        assert_eq!(&deliveries[1..3], [1, 1], "they were seen");
        world[k].accept_all(r);
        world.run();
        assert_eq!(world.queue("q").counters.depth, 0);
        assert_eq!(rollback(world, m, control, X), "xa 0", "remembered");
    });
}

#[test]
fn fs_25_time_does_nothing_to_what_is_prepared() {
    each_with(
        |config| config.transactions.branch_timeout_ms = 1_000,
        |world| {
            prepared(world);
            world.pass(3_000);
            world.crash(3);
            world.pass(3_000);
            let (m, control) = manager(world);
            assert_eq!(recover(world, m, control), [X]);
            assert_eq!(commit(world, m, control, X, false), "xa 0");
            assert_eq!(numbers(world), [2, 3, 10, 11]);
        },
    );
}

#[test]
fn fs_26_fs_27_a_prepare_whose_answer_is_missing_was_written_or_never_was() {
    let (never, written) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    each(|world| {
        for seed in 0..12 {
            let w = worked(world);
            world.hold_store();
            let request = XaPrepare { format_id: 1, global_id: X, branch_qualifier: b"b" };
            let token = world[w.c].request(w.control, &Request::Prepare(request));
            world.run();
            assert_eq!(answer(world, w.c, w.control, token), "nothing");
            world.crash(seed);
            world.free_store();
            let (m, control) = manager(world);
            if recover(world, m, control).is_empty() {
                assert_eq!(prepare(world, m, control, X), "xa -4");
                never.set(never.get() + 1);
            } else {
                assert_eq!(prepare(world, m, control, X), "xa 0", "asked again");
                assert_eq!(rollback(world, m, control, X), "xa 0");
                written.set(written.get() + 1);
            }
            assert_eq!(numbers(world), [0, 1, 2, 3]);
        }
    });
    assert!(never.get() > 5 && written.get() > 5, "both happen: {} {}", never.get(), written.get());
}

#[test]
fn fs_28_fs_29_a_decision_whose_answer_is_missing_is_asked_for_again() {
    let (open, decided) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    each(|world| {
        for seed in 0..12 {
            let w = prepared(world);
            world.hold_store();
            let request = XaCommit { format_id: 1, global_id: X, branch_qualifier: b"b", one_phase: false };
            let token = world[w.c].request(w.control, &Request::Commit(request));
            world.run();
            assert_eq!(answer(world, w.c, w.control, token), "nothing");
            assert_eq!(browse(world), [2, 3], "nothing is seen before");
            world.crash(seed);
            world.free_store();
            let (m, control) = manager(world);
            if recover(world, m, control).is_empty() {
                decided.set(decided.get() + 1);
            } else {
                open.set(open.get() + 1);
            }
            assert_eq!(commit(world, m, control, X, false), "xa 0");
            assert_eq!(numbers(world), [2, 3, 10, 11]);
        }
    });
    assert!(open.get() > 5 && decided.get() > 5, "both happen: {} {}", open.get(), decided.get());
}

#[test]
fn fs_30_the_managers_connection_is_cut() {
    each(|world| {
        let w = prepared(world);
        world.kill(w.c);
        world.run();
        let (m, control) = manager(world);
        assert_eq!(commit(world, m, control, X, false), "xa 0");
        assert_eq!(numbers(world), [2, 3, 10, 11]);
        // Before the prepare it is rolled back.
        let w = worked(world);
        world.kill(w.c);
        world.run();
        assert_eq!(prepare(world, m, control, X), "xa 101", "XA_RBCOMMFAIL");
        let left = world.take("q");
        assert_eq!(left, [(0, 1), (1, 1), (2, 0), (3, 0)]);
    });
}

#[test]
fn fs_31_again_and_again() {
    each(|world| {
        prepared(world);
        for seed in 0..5 {
            world.crash(seed);
        }
        world.restart();
        assert_eq!(counts(world), [2, 2, 2, 4]);
        let (m, control) = manager(world);
        assert_eq!(commit(world, m, control, X, false), "xa 0");
        world.crash(9);
        assert_eq!(numbers(world), [2, 3, 10, 11]);
        let (m, control) = manager(world);
        assert_eq!(commit(world, m, control, X, false), "xa 0", "remembered over crashes");
        assert_eq!(forget(world, m, control, X), "xa -4");
    });
}

#[test]
fn fs_32_what_comes_back_comes_before_what_came_meanwhile() {
    each(|world| {
        let w = prepared(world);
        world.fill("q", 100..120);
        assert_eq!(rollback(world, w.c, w.control, X), "xa 0");
        world[w.c].close();
        world.run();
        let expected: Vec<u64> = (0..4).chain(100..120).collect();
        assert_eq!(numbers(world), expected);
    });
}

#[test]
fn fs_33_two_branches_in_one_queue() {
    each(|world| {
        world.fill("q", 0..4);
        let x = worker(world, "x", 4);
        let second = world[x.c].controller(0, "second");
        world.run();
        let (one, two) = (begin(world, x.c, x.control, X), begin(world, x.c, second, b"Y"));
        for at in 0..4 {
            world[x.c].decide_in(if at % 2 == 0 { &one } else { &two }, x.r, at, ACCEPTED, true);
        }
        world.run();
        for (control, g) in [(x.control, X), (second, b"Y")] {
            assert_eq!(end(world, x.c, control, g, flags::SUCCESS), "xa 0");
            assert_eq!(prepare(world, x.c, control, g), "xa 0");
        }
        world.crash(4);
        let (m, control) = manager(world);
        assert_eq!(recover(world, m, control), [X, b"Y"]);
        assert_eq!(commit(world, m, control, b"Y", false), "xa 0");
        assert_eq!(rollback(world, m, control, X), "xa 0");
        assert_eq!(world.take("q"), [(0, 1), (2, 1)]);
    });
}

#[test]
fn fs_34_what_another_branch_holds_cannot_be_acknowledged() {
    each(|world| {
        let w = prepared(world);
        // The same delivery, said to be acknowledged in another branch and outside of any.
        let txn = begin(world, w.c, w.control, b"Y");
        let state =
            packhorse_amqp10::codec::DeliveryState::Transactional(packhorse_amqp10::codec::TransactionalState {
                txn_id: &txn,
                outcome: ACCEPTED,
            });
        for state in [state, packhorse_amqp10::codec::DeliveryState::Accepted] {
            let disposition = packhorse_amqp10::codec::Disposition {
                role: packhorse_amqp10::codec::Role::Receiver,
                first: 0,
                last: None,
                settled: true,
                state: Some(state),
                batchable: false,
            };
            let mut frame = Vec::new();
            packhorse_amqp10::codec::FrameHeader::encode(
                &mut frame,
                packhorse_amqp10::codec::FrameKind::Amqp,
                0,
                |out| disposition.encode(out),
            );
            world.pipe_of(w.c).to_broker.extend_from_slice(&frame);
            world.run();
        }
        assert_eq!(end(world, w.c, w.control, b"Y", flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, b"Y"), "xa 103", "XA_RBINTEGRITY");
        assert_eq!(counts(world), [2, 2, 2, 4], "X is as it was");
        assert_eq!(commit(world, w.c, w.control, X, false), "xa 0");
    });
}

#[test]
fn fs_35_an_error_in_a_branch_is_told_at_its_prepare() {
    each(|world| {
        let w = worker(world, "x", 0);
        let txn = begin(world, w.c, w.control, X);
        world[w.c].send_in(&txn, w.s, number(1), false);
        world[w.c].send_in(&txn, w.s, vec![0xff; 5], false);
        world[w.c].send_in(&txn, w.s, number(3), false);
        world.run();
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, X), "xa 104", "XA_RBOTHER");
        world.crash(5);
        let (m, control) = manager(world);
        assert!(recover(world, m, control).is_empty());
        assert_eq!(counts(world), [0, 0, 0, 0]);
    });
}

#[test]
fn fs_36_work_that_failed_is_undone() {
    each(|world| {
        world.fill("q", 0..2);
        let w = worker(world, "x", 1);
        let txn = begin(world, w.c, w.control, X);
        world[w.c].decide_in(&txn, w.r, 0, ACCEPTED, true);
        world[w.c].send_in(&txn, w.s, number(10), false);
        world.run();
        assert_eq!(end(world, w.c, w.control, X, flags::FAIL), "xa 0");
        assert_eq!(counts(world), [2, 0, 0, 2]);
        assert_eq!(prepare(world, w.c, w.control, X), "xa 100", "XA_RBROLLBACK");
        assert_eq!(commit(world, w.c, w.control, X, false), "xa -4");
        world[w.c].close();
        world.run();
        assert_eq!(world.take("q"), [(0, 1), (1, 0)]);
    });
}

#[test]
fn fs_37_a_branch_that_takes_too_long() {
    each(|world| {
        world.fill("q", 0..1);
        let w = worker(world, "x", 1);
        let start = XaStart { format_id: 1, global_id: X, branch_qualifier: b"b", flags: 0, timeout: 1_000 };
        assert_eq!(ask(world, w.c, w.control, &Request::Start(start)), "declared");
        let txn = world[w.c].links[w.control].declared.last().unwrap().clone();
        world[w.c].decide_in(&txn, w.r, 0, ACCEPTED, true);
        let k = world.client("k");
        let r = world[k].receiver("q", 1);
        world.pass(990);
        assert!(world[k].links[r].got.is_empty());
        world.pass(20);
        assert_eq!((world[k].numbers(r), world[k].links[r].got[0].deliveries()), (vec![0], 1));
        let late = world[w.c].send_in(&txn, w.s, number(1), false);
        world.run();
        // Where the branch's home is another shard, the refusal comes behind the answer.
        let told = world[w.c].links[w.s].outcomes.iter().find(|(t, _)| *t == late).unwrap().1.clone();
        assert!(["rejected amqp:transaction:timeout", "in transaction accepted"].contains(&&told[..]), "{told}");
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 106", "XA_RBTIMEOUT");
        assert_eq!(prepare(world, w.c, w.control, X), "xa 106");
        assert_eq!(prepare(world, w.c, w.control, X), "xa 106", "remembered for a while");
        assert_eq!(counts(world), [0, 0, 0, 1]);
    });
}

#[test]
fn fs_38_nothing_to_prepare_and_only_what_does_not_survive() {
    each(|world| {
        let w = worker(world, "x", 0);
        begin(world, w.c, w.control, X);
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, X), "xa 3", "XA_RDONLY");
        assert!(recover(world, w.c, w.control).is_empty());
        let txn = begin(world, w.c, w.control, b"Y");
        world[w.c].send_in(&txn, w.s, Msg::new(1).durable(false).bytes(), false);
        world[w.c].send_in(&txn, w.s, Msg::new(2).durable(false).bytes(), false);
        world.run();
        assert_eq!(end(world, w.c, w.control, b"Y", flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, b"Y"), "xa 0");
        world.crash(6);
        let (m, control) = manager(world);
        assert_eq!(recover(world, m, control), [b"Y"]);
        assert_eq!(commit(world, m, control, b"Y", false), "xa 0");
        assert_eq!(counts(world), [0, 0, 0, 0]);
        assert!(world.logged("without 2 of its operations"));
    });
}

#[test]
fn what_does_not_survive_is_committed_while_the_process_lives() {
    each(|world| {
        let w = worker(world, "x", 0);
        let txn = begin(world, w.c, w.control, X);
        world[w.c].send_in(&txn, w.s, Msg::new(1).durable(false).bytes(), false);
        world[w.c].send_in(&txn, w.s, Msg::new(2).bytes(), false);
        world.run();
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, X), "xa 0");
        assert_eq!(commit(world, w.c, w.control, X, false), "xa 0");
        world[w.c].close();
        world.run();
        assert_eq!(numbers(world), [1, 2]);
    });
}

#[test]
fn fs_39_names_differ_by_their_format_and_have_bounds() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let second = world[c].controller(0, "second");
        world.run();
        for (link, format_id) in [(control, 1), (second, 2)] {
            let start = XaStart { format_id, global_id: X, branch_qualifier: b"", flags: 0, timeout: 0 };
            assert_eq!(ask(world, c, link, &Request::Start(start)), "declared");
        }
        for part in [&[7; 64][..], &[7; 65]] {
            let prepare = XaPrepare { format_id: 1, global_id: b"", branch_qualifier: part };
            let code = if part.len() > 64 { "xa -5" } else { "xa -4" };
            assert_eq!(ask(world, c, control, &Request::Prepare(prepare)), code);
        }
    });
}

#[test]
fn fs_40_suspended_here_and_resumed_elsewhere() {
    each(|world| {
        world.fill("q", 0..2);
        let w = worker(world, "x", 2);
        let first = begin(world, w.c, w.control, X);
        world[w.c].decide_in(&first, w.r, 0, ACCEPTED, true);
        world.run();
        assert_eq!(end(world, w.c, w.control, X, flags::SUSPEND), "xa 0");
        // What comes under the old id is in nothing.
        let late = world[w.c].send_in(&first, w.s, number(9), false);
        world.run();
        let told = &world[w.c].links[w.s].outcomes;
        assert_eq!(told.iter().find(|(t, _)| *t == late).unwrap().1, "rejected amqp:transaction:unknown-id");
        assert_eq!(rollback(world, w.c, w.control, X), "xa -6", "it is suspended, and still there");
        assert_eq!(start(world, w.c, w.control, X, flags::RESUME), "declared");
        assert_eq!(end(world, w.c, w.control, X, flags::SUSPEND), "xa 0");
        let (other, theirs) = controlled(world, "other");
        let s = world[other].sender("q");
        world.run();
        assert_eq!(start(world, other, theirs, X, flags::RESUME), "declared");
        let txn = world[other].links[theirs].declared.last().unwrap().clone();
        world[other].send_in(&txn, s, number(10), false);
        world.run();
        assert_eq!(end(world, other, theirs, X, flags::SUCCESS), "xa 0");
        assert_eq!(rollback(world, other, theirs, X), "xa 0");
        assert_eq!(counts(world)[0], 1, "the other one is still with the first");
        // A suspended one whose link goes is rolled back, and its name is free again.
        begin(world, w.c, w.control, X);
        assert_eq!(end(world, w.c, w.control, X, flags::SUSPEND), "xa 0");
        world[w.c].detach(w.control, true);
        world.run();
        begin(world, other, theirs, X);
    });
}

#[test]
fn fs_41_an_operator_decides() {
    each(|world| {
        prepared(world);
        let decided = decide(world, packhorse_broker::TxAct::Commit);
        assert!(decided, "the operator may");
        world.crash(8);
        let (m, control) = manager(world);
        assert_eq!(recover(world, m, control), [X]);
        assert_eq!(rollback(world, m, control, X), "xa 7", "XA_HEURCOM");
        assert_eq!(commit(world, m, control, X, false), "xa 7");
        assert_eq!(forget(world, m, control, X), "xa 0");
        assert!(recover(world, m, control).is_empty());
        assert_eq!(numbers(world), [2, 3, 10, 11]);
    });
}

#[test]
fn fs_42_one_branch_over_two_connections() {
    each(|world| {
        world.fill("q", 0..1);
        world.declare("out");
        let w = worker(world, "x", 1);
        let txn = begin(world, w.c, w.control, X);
        let (other, theirs) = controlled(world, "other");
        let s = world[other].sender("out");
        world.run();
        assert_eq!(start(world, other, theirs, X, flags::JOIN), "declared");
        let joined = world[other].links[theirs].declared.last().unwrap().clone();
        world[w.c].decide_in(&txn, w.r, 0, ACCEPTED, true);
        world[other].send_in(&joined, s, number(10), false);
        world.run();
        assert_eq!(end(world, w.c, w.control, X, flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, w.c, w.control, X), "xa -6", "the other one still works in it");
        assert_eq!(end(world, other, theirs, X, flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, other, theirs, X), "xa 0");
        world.crash(10);
        let (m, control) = manager(world);
        assert_eq!(commit(world, m, control, X, false), "xa 0");
        assert_eq!(world.take("q"), []);
        assert_eq!(world.take("out"), [(10, 0)]);
    });
}

#[test]
fn fs_43_a_queue_with_work_in_doubt_is_not_deleted() {
    each(|world| {
        prepared(world);
        let by = || Some(By { who: "me".into(), reason: "it has to go".into() });
        let code = world.refused(Command::QueueDelete { name: "q".into(), force: false, by: by() });
        assert_eq!(code, "queue-in-doubt");
        let reply = world.ask(Command::QueueDelete { name: "q".into(), force: true, by: by() });
        assert!(matches!(reply, Reply::Deleted { .. }), "{reply:?}");
        let (m, control) = manager(world);
        assert_eq!(recover(world, m, control), [X]);
        assert_eq!(commit(world, m, control, X, false), "xa 6", "XA_HEURRB: there was no other queue");
        assert_eq!(forget(world, m, control, X), "xa 0");
        assert!(recover(world, m, control).is_empty());
    });
}

#[test]
fn a_commit_in_one_phase_and_its_ways_to_fail() {
    each(|world| {
        let w = worked(world);
        assert_eq!(commit(world, w.c, w.control, X, true), "xa 0");
        assert_eq!(commit(world, w.c, w.control, X, true), "xa 0", "remembered");
        let txn = begin(world, w.c, w.control, b"Y");
        world[w.c].send_in(&txn, w.s, vec![0xff], false);
        world.run();
        assert_eq!(end(world, w.c, w.control, b"Y", flags::SUCCESS), "xa 0");
        assert_eq!(commit(world, w.c, w.control, b"Y", true), "xa 104");
        world[w.c].close();
        world.run();
        assert_eq!(numbers(world), [2, 3, 10, 11]);
    });
}

#[test]
fn a_client_that_knows_nothing_of_xa_ends_a_branch_by_its_id() {
    each(|world| {
        world.fill("q", 0..2);
        let w = worker(world, "x", 2);
        for (at, fail) in [(0, false), (1, true)] {
            let txn = begin(world, w.c, w.control, &[at as u8]);
            world[w.c].decide_in(&txn, w.r, at, ACCEPTED, true);
            world.run();
            assert_eq!(discharge(world, w.c, w.control, &txn, fail), "accepted");
        }
        world[w.c].close();
        world.run();
        assert_eq!(world.take("q"), [(1, 1)]);
    });
}

#[test]
fn local_work_and_a_branch_do_not_go_together() {
    each(|world| {
        let w = worker(world, "x", 0);
        let txn = declare(world, w.c, w.control);
        world[w.c].send_in(&txn, w.s, number(1), false);
        world.run();
        assert_eq!(start(world, w.c, w.control, X, flags::NONE), "xa -9", "XAER_OUTSIDE");
        assert_eq!(discharge(world, w.c, w.control, &txn, false), "accepted");
        begin(world, w.c, w.control, X);
    });
}

#[test]
fn other_outcomes_wait_for_the_decision() {
    each(|world| {
        world.fill("q", 0..4);
        let w = worker(world, "x", 4);
        for (at, g, commits) in [(0, b"A", true), (1, b"B", false)] {
            let txn = begin(world, w.c, w.control, g);
            world[w.c].decide_in(&txn, w.r, at, Some(Outcome::Rejected(Rejected::default())), true);
            world[w.c].decide_in(&txn, w.r, at + 2, ACCEPTED, true);
            world.run();
            assert_eq!(end(world, w.c, w.control, g, flags::SUCCESS), "xa 0");
            assert_eq!(prepare(world, w.c, w.control, g), "xa 0");
            let before = world.queue("q").counters;
            assert_eq!(before.dead_lettered_total, u64::from(!commits), "{g:?}");
            if commits {
                assert_eq!(commit(world, w.c, w.control, g, false), "xa 0");
            } else {
                assert_eq!(rollback(world, w.c, w.control, g), "xa 0");
            }
        }
        world[w.c].close();
        world.run();
        assert_eq!(numbers(world), [1, 3]);
        assert_eq!(world.take("DLQ").len(), 1);
    });
}

#[test]
fn other_outcomes_survive_with_their_branch() {
    each(|world| {
        for (g, commits) in [(b"A", true), (b"B", false)] {
            world.fill("q", 0..4);
            let w = worker(world, "x", 4);
            let txn = begin(world, w.c, w.control, g);
            let failed = Modified { delivery_failed: true, undeliverable_here: false, message_annotations: None };
            let rejected = Outcome::Rejected(Rejected::default());
            let outcomes = [Outcome::Released, Outcome::Modified(failed), rejected, Outcome::Accepted];
            for (at, outcome) in outcomes.into_iter().enumerate() {
                world[w.c].decide_in(&txn, w.r, at, Some(outcome), true);
            }
            world.run();
            assert_eq!(end(world, w.c, w.control, g, flags::SUCCESS), "xa 0");
            assert_eq!(prepare(world, w.c, w.control, g), "xa 0");
            world.crash(1);
            assert_eq!(counts(world), [0, 0, 4, 4], "nothing has happened");
            let (m, control) = manager(world);
            if commits {
                assert_eq!(commit(world, m, control, g, false), "xa 0");
            } else {
                assert_eq!(rollback(world, m, control, g), "xa 0");
            }
            world.crash(2);
            let (left, letters): (&[(u64, u32)], &[u64]) =
                if commits { (&[(0, 0), (1, 1)], &[2]) } else { (&[(0, 1), (1, 1), (2, 1), (3, 1)], &[]) };
            assert_eq!(world.take("q"), left);
            assert_eq!(world.take("DLQ").iter().map(|(n, _)| *n).collect::<Vec<_>>(), letters);
        }
    });
}

#[test]
fn many_branches_are_listed_in_pages_that_fit_the_peers_frames() {
    each(|world| {
        let w = worker(world, "x", 0);
        let names: Vec<Vec<u8>> = (0..20).map(|n| vec![b'a' + n; 60]).collect();
        for g in &names {
            let txn = begin(world, w.c, w.control, g);
            world[w.c].send_in(&txn, w.s, number(1), false);
            world.run();
            assert_eq!(end(world, w.c, w.control, g, flags::SUCCESS), "xa 0");
            assert_eq!(prepare(world, w.c, w.control, g), "xa 0");
        }
        let c = world.narrow_client("narrow", 1_000, 700);
        let control = world[c].controller(0, "control");
        world.run();
        let mut pages = 0;
        loop {
            let last = world[c].links[control].listed.last().cloned();
            let after = last.as_deref().map(|g| XaXid { format_id: 1, global_id: g, branch_qualifier: b"b" });
            let answer = ask(world, c, control, &Request::Recover(XaRecover { after, max: 1000 }));
            pages += 1;
            if answer == "xa 0" {
                break;
            }
            assert_eq!(answer, "xa 0 more");
        }
        assert_eq!(world[c].links[control].listed, names);
        assert!(pages > 3, "{pages}");
        for g in &names {
            assert_eq!(rollback(world, c, control, g), "xa 0");
        }
    });
}

/// What an operator does with X.
fn decide(world: &mut World, act: packhorse_broker::TxAct) -> bool {
    let by = By { who: "me".into(), reason: "the manager is gone".into() };
    let reply = world.ask(Command::TxDecide { xid: Xid::parse("1:58:62").unwrap(), act, by });
    matches!(reply, Reply::Decided { .. })
}
