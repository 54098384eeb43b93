//! Scenarios of the specification, as far as they concern the state machine, by name, and others that are told in words.

use crate::rig::{BROKER, Flight, World, control, xid};
use packhorse_model::{BrokerId, ConnectionId, QueueId, TxnId, Xid, XidError};
use packhorse_txn::state::{State, Verb};
use packhorse_txn::{
    Act, Cause, Code, Input, Limit, NoWork, Outcome, Part, Record, Reply, Scan, Start, TxStatus, Work,
};
use std::slice;

const A: (u64, u32) = (1, 0);
const B: (u64, u32) = (2, 0);

fn world() -> World {
    World::new(|_| {})
}

fn lose(world: &mut World, connection: u64) {
    world.handle(Input::ConnectionLost { connection: ConnectionId(connection) });
}

#[test]
fn fs_36_ended_with_fail_then_prepared_and_committed() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let (txn, _) = world.working(a, &x);
    assert_eq!(world.xa(a, &x, Verb::Fail), Code::Ok);
    assert!(world.rolled_back(txn), "the work is undone at once");
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::RolledBack);
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::NotThere);
    assert!(world.log.is_empty() && world.recover(10).is_empty());
}

#[test]
fn fs_37_a_timeout_unlocks_at_once_and_is_told_from_then_on() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let question = world.ask(a, &x, Verb::Start, 1_000);
    assert_eq!(world.code(question), Code::Ok);
    let txn = world.txn(&x);
    world.work(a, txn, 1, 1);
    world.settle();
    assert_eq!(world.home.next_deadline(), Some((world.ms + 1_000) * 1000));
    world.pass(999);
    assert!(world.applied.is_empty());
    world.pass(1);
    assert!(world.rolled_back(txn));
    assert_eq!(world.home.next_deadline(), None);
    world.work(a, txn, 1, 1);
    assert_eq!(world.refused, [NoWork::RolledBack(Cause::Timeout)]);
    assert_eq!(world.xa(a, &x, Verb::End), Code::RolledBackTimeout);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::RolledBackTimeout);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::RolledBackTimeout, "also when asked again");
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::NotThere);
    assert!(world.parts.is_empty(), "the late work is dropped where it arrives");
}

#[test]
fn a_timeout_never_touches_what_is_prepared_or_on_its_way() {
    let (mut world, a) = (world(), control(A.0, A.1));
    let (x, y) = (xid(1), xid(2));
    world.prepared(a, &x);
    world.working(a, &y);
    world.xa(a, &y, Verb::End);
    let prepare = world.ask(a, &y, Verb::Prepare, 0);
    world.settle();
    assert_eq!(world.home.next_deadline(), None);
    world.pass(10_000_000);
    world.pump();
    assert_eq!(world.code(prepare), Code::Ok);
    world.crash();
    assert_eq!(world.home.next_deadline(), None);
    world.pass(10_000_000);
    assert_eq!(world.recover(1), [x.clone(), y.clone()]);
    assert_eq!(world.xa(control(9, 0), &x, Verb::Commit), Code::Ok);
    assert_eq!(world.xa(control(9, 0), &y, Verb::Rollback), Code::Ok);
    assert!(world.recover(1).is_empty());
}

#[test]
fn fs_39_every_cell_by_the_verbs_themselves() {
    // The pure table is compared in `states.rs`; here states are reached by verbs, and answers come out of the home.
    const CELLS: &str = "
                  Start Join       Resume     End        Suspend    Fail       Prepare     Commit  CommitOnePhase Rollback Forget
none              OK    NOTA       NOTA       NOTA       NOTA       NOTA       NOTA        NOTA    NOTA           NOTA     NOTA
associated        DUPID OK         PROTO      PROTO      PROTO      PROTO      PROTO       PROTO   PROTO          PROTO    PROTO
suspended         DUPID PROTO      OK         OK         PROTO      OK         PROTO       PROTO   PROTO          PROTO    PROTO
idle              DUPID OK         PROTO      PROTO      PROTO      PROTO      OK          PROTO   OK             OK       PROTO
idle,no-work      DUPID OK         PROTO      PROTO      PROTO      PROTO      RDONLY      PROTO   OK             OK       PROTO
idle,stale        DUPID OK         PROTO      PROTO      PROTO      PROTO      RBINTEGRITY PROTO   RBINTEGRITY    OK       PROTO
rollback-only     DUPID RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK RBROLLBACK  PROTO   RBROLLBACK     OK       PROTO
prepared          DUPID PROTO      PROTO      PROTO      PROTO      PROTO      OK          OK      PROTO          OK       PROTO
committed         OK    NOTA       NOTA       NOTA       NOTA       NOTA       NOTA        OK      OK             NOTA     NOTA
rolled-back       OK    NOTA       NOTA       NOTA       NOTA       NOTA       RBROLLBACK  NOTA    RBROLLBACK     OK       NOTA
lost              OK    NOTA       NOTA       NOTA       NOTA       NOTA       RBCOMMFAIL  NOTA    RBCOMMFAIL     OK       NOTA
h-committed       DUPID PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURCOM PROTO          HEURCOM  OK
h-rolled-back     DUPID PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURRB  PROTO          HEURRB   OK
h-mixed           DUPID PROTO      PROTO      PROTO      PROTO      PROTO      PROTO       HEURMIX PROTO          HEURMIX  OK
";
    let mut lines = CELLS.trim_start_matches('\n').lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let verbs = lines.next().unwrap();
    assert_eq!(verbs.len(), 11);
    let mut cells = 0;
    for row in lines {
        for (at, verb) in Verb::ALL[..11].iter().enumerate() {
            assert_eq!(verbs[at], format!("{verb:?}"));
            // As asked by a stranger, and the same after a crash where the state survives one.
            let survives = ["prepared", "committed", "h-committed", "h-rolled-back", "h-mixed"].contains(&row[0]);
            for crash in [false, true].into_iter().take(1 + usize::from(survives)) {
                let mut world = world();
                bring(&mut world, row[0]);
                if crash {
                    world.crash();
                }
                let code = world.xa(control(9, 0), &xid(1), *verb);
                let name = code.name().trim_start_matches("XA_").trim_start_matches("XAER_");
                assert_eq!(name, row[at + 1], "{} {verb:?} after a crash: {crash}", row[0]);
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 14 * 11 + 5 * 11);
}

/// Brings branch 1 into a state by verbs of connection 1.
fn bring(world: &mut World, case: &str) {
    let (a, x) = (control(A.0, A.1), xid(1));
    let end = |world: &mut World| assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
    match case {
        "none" => {}
        "associated" => drop(world.working(a, &x)),
        "suspended" => {
            world.working(a, &x);
            assert_eq!(world.xa(a, &x, Verb::Suspend), Code::Ok);
        }
        "idle" => {
            world.working(a, &x);
            end(world);
        }
        "idle,no-work" => {
            assert_eq!(world.xa(a, &x, Verb::Start), Code::Ok);
            end(world);
        }
        "idle,stale" => {
            let (txn, _) = world.working(a, &x);
            world.handle(Input::Failed { txn, cause: Cause::Stale });
            end(world);
        }
        "rollback-only" => {
            world.working(a, &x);
            assert_eq!(world.xa(a, &x, Verb::Fail), Code::Ok);
        }
        "prepared" => drop(world.prepared(a, &x)),
        "committed" => {
            world.prepared(a, &x);
            assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
        }
        "rolled-back" => {
            world.prepared(a, &x);
            assert_eq!(world.xa(a, &x, Verb::Rollback), Code::Ok);
        }
        "lost" => {
            world.working(a, &x);
            lose(world, A.0);
        }
        "h-committed" => {
            world.prepared(a, &x);
            assert_eq!(world.operate(&x, Act::Commit), Code::Ok);
        }
        "h-rolled-back" => {
            world.prepared(a, &x);
            assert_eq!(world.operate(&x, Act::Rollback), Code::Ok);
        }
        "h-mixed" => {
            world.prepared(a, &x);
            assert_eq!(world.operate(&x, Act::Force(QueueId(1))), Code::Ok);
            assert_eq!(world.xa(a, &x, Verb::Commit), Code::HeuristicMixed);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn fs_39_names_differ_by_each_part_and_are_bounded() {
    let (mut world, a) = (world(), control(A.0, A.1));
    let x = Xid::new(1, b"g", b"b").unwrap();
    for other in [Xid::new(2, b"g", b"b"), Xid::new(1, b"gb", b""), Xid::new(1, b"", b"gb")] {
        assert_ne!(other.clone().unwrap(), x);
        world.prepared(a, &other.unwrap());
    }
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::NotThere, "none of them is this one");
    assert_eq!(world.recover(2).len(), 3);
    assert!(Xid::new(0, &[1; 64], &[2; 64]).is_ok());
    let long = XidError::TooLong { part: "global id", bytes: 65 };
    assert_eq!(Xid::new(0, &[1; 65], &[2; 64]), Err(long));
    assert_eq!(
        Xid::new(0, &[1; 64], &[2; 65]).unwrap_err().to_string(),
        "the branch qualifier has 65 bytes; the limit is 64"
    );
    assert_eq!(Xid::new(-1, b"g", b"b"), Err(XidError::Null));
}

#[test]
fn fs_39_who_may_start() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let to = world.to(a);
    let start = Start { timeout_ms: 0, local_work: true, client: "test".into() };
    world.handle(Input::Xa { to, xid: x.clone(), verb: Verb::Start, start: Some(start) });
    assert_eq!(world.code(to.question), Code::Outside);
    world.working(a, &x);
    assert_eq!(world.xa(a, &xid(2), Verb::Start), Code::Protocol, "it is in a branch already");
    assert_eq!(world.xa(a, &x, Verb::Join), Code::Protocol);
    assert_eq!(world.xa(a, &x, Verb::Suspend), Code::Ok);
    assert_eq!(world.xa(a, &xid(2), Verb::Start), Code::Ok, "what rests does not count");
    let to = world.to(a);
    world.handle(Input::Xa { to, xid: x, verb: Verb::Timeout, start: None });
    assert_eq!(world.code(to.question), Code::Invalid);
}

#[test]
fn fs_40_suspended_here_resumed_here_and_elsewhere() {
    let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
    let (txn, _) = world.working(a, &x);
    for resumes in [a, b] {
        assert_eq!(world.xa(a, &x, Verb::Suspend), Code::Ok);
        assert_eq!(world.xa(b, &x, Verb::Rollback), Code::Protocol, "and the branch is still there");
        assert_eq!(world.home.branch(&x, world.ms).unwrap().state, State::Suspended);
        assert_eq!(world.xa(resumes, &x, Verb::Resume), Code::Ok);
        world.work(resumes, txn, 1, 1);
    }
    assert_eq!(world.refused, []);
    assert_eq!(world.xa(b, &x, Verb::Suspend), Code::Ok);
    assert_eq!(world.xa(a, &x, Verb::Rollback), Code::Protocol);
    assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
    assert_eq!(world.xa(a, &x, Verb::Rollback), Code::Ok);
    assert!(world.rolled_back(txn));
}

#[test]
fn fs_40_its_session_closes_while_it_is_suspended() {
    for whole_connection in [false, true] {
        let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
        let (txn, _) = world.working(a, &x);
        world.xa(a, &x, Verb::Suspend);
        if whole_connection {
            lose(&mut world, A.0);
        } else {
            world.handle(Input::ControlLost { control: a });
        }
        assert!(world.rolled_back(txn));
        assert_eq!(world.xa(b, &x, Verb::Prepare), Code::RolledBackCommunication);
        assert_eq!(world.xa(b, &x, Verb::Start), Code::Ok, "the xid is not stuck");
    }
}

#[test]
fn fs_41_decided_by_an_operator_and_known_as_that_after_a_crash() {
    for (act, code, outcome) in [
        (Act::Commit, Code::HeuristicCommitted, Outcome::Commit),
        (Act::Rollback, Code::HeuristicRolledBack, Outcome::Rollback),
    ] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let (txn, ops) = world.prepared(a, &x);
        assert_eq!(world.operate(&x, act), Code::Ok);
        assert_eq!(world.applied.iter().filter(|(t, _, o, _)| *t == txn && *o == outcome).count(), 2);
        assert_eq!((world.audits.len(), &*world.audits[0].who, &*world.audits[0].reason), (1, "ann", "stuck"));
        world.crash();
        assert_eq!(world.recover(5), slice::from_ref(&x));
        let view = world.home.branch(&x, world.ms).unwrap();
        assert_eq!((view.decided.unwrap().reason.as_str(), view.age_ms), ("stuck", 0));
        assert_eq!(world.xa(a, &x, Verb::Rollback), code);
        assert_eq!(world.xa(a, &x, Verb::Commit), code, "the state is kept");
        assert_eq!(world.operate(&x, Act::Commit), code, "what is decided stays decided");
        assert_eq!(world.xa(a, &x, Verb::Forget), Code::Ok);
        assert!(world.recover(5).is_empty());
        let committed = world.stored(world.durable).committed;
        assert!(ops.iter().all(|op| committed.contains(op) == (act == Act::Commit)));
        world.crash();
        assert_eq!(world.xa(a, &x, Verb::Forget), Code::NotThere);
    }
}

#[test]
fn fs_41_and_fs_43_a_part_is_rolled_back_by_force() {
    for (decision, outcome) in [(Verb::Commit, Outcome::Commit), (Verb::Rollback, Outcome::Rollback)] {
        for crash in [false, true] {
            let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
            let (txn, ops) = world.prepared(a, &x);
            assert_eq!(world.operate(&x, Act::Force(QueueId(5))), Code::NotThere);
            assert_eq!(world.operate(&x, Act::Force(QueueId(1))), Code::Ok);
            assert_eq!(world.applied, [(txn, QueueId(1), Outcome::Rollback, ops[..2].to_vec())]);
            if crash {
                world.crash();
            }
            let view = world.home.branch(&x, world.ms).unwrap();
            assert_eq!((view.state, view.lost[0].queue), (State::Prepared, QueueId(1)));
            assert_eq!(world.xa(a, &x, decision), Code::HeuristicMixed);
            assert_eq!(world.applied[1..], [(txn, QueueId(2), outcome, ops[2..].to_vec())]);
            if crash {
                world.crash();
            }
            assert_eq!(world.recover(5), slice::from_ref(&x));
            assert_eq!(world.xa(a, &x, Verb::Commit), Code::HeuristicMixed);
            assert_eq!(world.operate(&x, Act::Forget), Code::Ok);
            assert!(world.recover(5).is_empty());
        }
    }
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    world.xa(a, &x, Verb::Start);
    let txn = world.txn(&x);
    world.work(a, txn, 1, 1);
    world.xa(a, &x, Verb::End);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::Ok);
    assert_eq!(world.operate(&x, Act::Force(QueueId(1))), Code::Ok);
    world.crash();
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::HeuristicRolledBack, "there is no other queue");
}

#[test]
fn an_operator_needs_a_name_a_reason_and_a_branch_in_doubt() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    world.working(a, &x);
    assert_eq!(world.operate(&x, Act::Rollback), Code::Protocol);
    assert_eq!(world.operate(&xid(9), Act::Rollback), Code::NotThere);
    for (who, reason) in [("ann", " "), ("", "stuck")] {
        let to = world.to(a);
        let input = Input::Operate { to, xid: x.clone(), act: Act::Rollback, who: who.into(), reason: reason.into() };
        world.handle(input);
        assert_eq!(world.code(to.question), Code::Invalid);
    }
    assert!(world.audits.is_empty());
}

#[test]
fn fs_42_two_connections_in_one_branch() {
    let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
    assert!(world.home.is_same(BROKER) && !world.home.is_same(BrokerId([8; 16])));
    let (txn, mut ops) = world.working(a, &x);
    assert_eq!(world.xa(b, &x, Verb::Join), Code::Ok);
    ops.extend(world.work(b, txn, 3, 2));
    assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::Protocol, "the other still works in it");
    assert_eq!(world.xa(b, &x, Verb::End), Code::Ok);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::Ok);
    world.crash();
    assert_eq!(world.xa(control(3, 0), &x, Verb::Commit), Code::Ok);
    let committed = world.stored(world.durable).committed;
    assert!(ops.iter().all(|op| committed.contains(op)));
}

#[test]
fn a_joined_branch_loses_one_of_its_connections() {
    let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
    let (txn, _) = world.working(a, &x);
    world.xa(b, &x, Verb::Join);
    lose(&mut world, A.0);
    assert!(world.rolled_back(txn));
    world.work(b, txn, 1, 1);
    assert_eq!(world.refused, [NoWork::RolledBack(Cause::Lost)]);
    assert_eq!(world.xa(b, &x, Verb::End), Code::RolledBackCommunication);
    assert_eq!(world.xa(b, &x, Verb::Prepare), Code::RolledBackCommunication);
    assert!(world.parts.is_empty());
    // The session of ended work may go, its connection may not.
    world.working(a, &x);
    world.xa(a, &x, Verb::End);
    world.handle(Input::ControlLost { control: a });
    assert_eq!(world.xa(b, &x, Verb::Prepare), Code::Ok);
}

#[test]
fn fs_30_the_connection_goes_before_during_and_after_the_prepare() {
    // During: its record may become durable, so it is waited for.
    let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
    let (_, ops) = world.working(a, &x);
    world.xa(a, &x, Verb::End);
    world.ask(a, &x, Verb::Prepare, 0);
    world.settle();
    assert_eq!(world.log.len(), 1);
    lose(&mut world, A.0);
    assert!(world.applied.is_empty() && world.recover(5).is_empty());
    let commit = world.ask(b, &x, Verb::Commit, 0);
    assert!(!world.replies.contains_key(&commit), "it waits");
    let heuristic = world.operate_later(&x, Act::Rollback);
    world.flush(1);
    assert_eq!(world.recover(5), slice::from_ref(&x));
    world.pump();
    assert_eq!((world.code(commit), world.code(heuristic)), (Code::Ok, Code::NotThere));
    assert!(ops.iter().all(|op| world.stored(world.durable).committed.contains(op)));
    // Before: undone, and the late prepare is told why.
    let (txn, _) = world.working(a, &x);
    world.xa(a, &x, Verb::End);
    lose(&mut world, A.0);
    assert!(world.rolled_back(txn));
    assert_eq!(world.xa(b, &x, Verb::Prepare), Code::RolledBackCommunication);
    world.pass(600_000);
    assert_eq!(world.xa(b, &x, Verb::Prepare), Code::NotThere, "after some minutes it is forgotten");
}

#[test]
fn fs_26_to_fs_29_crashes_around_the_records() {
    let (a, x) = (control(A.0, A.1), xid(1));
    for (flushed, listed) in [(0, 0), (1, 1)] {
        let mut world = world();
        world.working(a, &x);
        world.xa(a, &x, Verb::End);
        world.ask(a, &x, Verb::Prepare, 0);
        world.settle();
        world.flush(flushed);
        world.crash();
        assert_eq!(world.recover(5).len(), listed);
        assert_eq!(world.xa(a, &x, Verb::Prepare), [Code::NotThere, Code::Ok][listed]);
    }
    for flushed in [1, 2] {
        let mut world = world();
        let (_, ops) = world.prepared(a, &x);
        world.ask(a, &x, Verb::Commit, 0);
        world.settle();
        assert!(world.applied.is_empty());
        assert_eq!(world.recover(5), slice::from_ref(&x));
        world.flush(flushed);
        world.crash();
        assert_eq!(world.recover(5).len(), 2 - flushed as usize);
        assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
        assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok, "a retried commit");
        assert!(ops.iter().all(|op| world.stored(world.durable).committed.contains(op)));
        assert!(world.recover(5).is_empty());
    }
}

#[test]
fn fs_34_and_fs_35_something_in_the_branch_failed() {
    for cause in [Cause::Stale, Cause::Full] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let (txn, _) = world.working(a, &x);
        world.xa(a, &x, Verb::End);
        // Only the queue knows, and says so when it is asked.
        world.fail_at(txn, 2, cause);
        assert_eq!(world.xa(a, &x, Verb::Prepare), cause.code());
        assert!(world.rolled_back(txn) && world.log.is_empty());
        assert_eq!(world.xa(a, &x, Verb::Prepare), cause.code());
        world.crash();
        assert!(world.recover(5).is_empty());
        // The same in a local transaction.
        let txn = world.declare(a);
        world.work(a, txn, 1, 2);
        world.fail_at(txn, 1, cause);
        assert_eq!(world.commit(a, txn), Reply::RolledBack(cause));
        let txn = world.declare(a);
        world.work(a, txn, 1, 2);
        world.handle(Input::Failed { txn, cause });
        assert_eq!(world.commit(a, txn), Reply::RolledBack(cause));
        assert!(world.log.is_empty() && world.parts.is_empty());
    }
}

#[test]
fn fs_38_no_work_and_work_that_is_not_persistent() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    world.xa(a, &x, Verb::Start);
    world.xa(a, &x, Verb::End);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::ReadOnly);
    assert!(world.recover(5).is_empty());
    world.xa(a, &x, Verb::Start);
    let txn = world.txn(&x);
    world.work_with(a, txn, 1, 3, true);
    world.xa(a, &x, Verb::End);
    assert_eq!(world.xa(a, &x, Verb::Prepare), Code::Ok);
    assert_eq!(world.home.branch(&x, world.ms).unwrap().volatile, 3);
    world.crash();
    assert_eq!(world.recover(5), slice::from_ref(&x));
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
    assert_eq!(world.volatile_lost, [3], "the number is told");
}

#[test]
fn a_queue_is_deleted_in_between() {
    for prepare in [true, false] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let txn = if prepare { world.working(a, &x).0 } else { world.declare(a) };
        if prepare {
            world.xa(a, &x, Verb::End);
        } else {
            world.work(a, txn, 1, 2);
            world.work(a, txn, 2, 1);
        }
        let question = if prepare { world.ask(a, &x, Verb::Prepare, 0) } else { world.discharge(a, txn, false, None) };
        world.flights.retain(|flight| !matches!(flight, Flight::Gather { queue: QueueId(1), .. }));
        world.parts.remove(&(txn, QueueId(1)));
        world.settle();
        assert!(world.log.is_empty());
        let answer = packhorse_txn::Gathered::Gone;
        world.handle(Input::Gathered { txn, queue: QueueId(1), answer });
        world.pump();
        assert_eq!(world.code(question), Code::RolledBackOther);
        assert!(world.log.is_empty());
    }
}

#[test]
fn a_name_used_again_is_forgotten_durably_before_it_begins() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    world.prepared(a, &x);
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
    let start = world.ask(a, &x, Verb::Start, 1_000);
    assert!(!world.replies.contains_key(&start));
    assert!(matches!(world.log.last(), Some((_, Record::Forget { .. }))));
    let end = world.ask(a, &x, Verb::End, 0);
    world.pump();
    assert_eq!((world.code(start), world.code(end)), (Code::Ok, Code::Ok));
    assert!(world.home.next_deadline().is_some(), "its clock runs");
    world.crash();
    // Its work is lost with the crash; the first branch's commit is not taken for its own.
    assert_eq!(world.xa(a, &x, Verb::CommitOnePhase), Code::NotThere);
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::NotThere);
    // An outcome that is not told any more may still be in the store.
    world.prepared(a, &xid(2));
    world.xa(a, &xid(2), Verb::Commit);
    world.pass(700_000);
    assert_eq!(world.xa(a, &xid(2), Verb::Commit), Code::NotThere);
    let records = world.log.len();
    assert_eq!(world.xa(a, &xid(2), Verb::Start), Code::Ok);
    assert_eq!(world.log.len(), records + 1);
}

#[test]
fn the_memory_is_bounded_by_count() {
    let mut world = World::new(|config| config.memory_max = 2);
    let a = control(A.0, A.1);
    for n in 1..=3 {
        world.prepared(a, &xid(n));
        world.xa(a, &xid(n), Verb::Commit);
    }
    let codes: Vec<Code> = (1..=3).map(|n| world.xa(a, &xid(n), Verb::Commit)).collect();
    assert_eq!(codes, [Code::NotThere, Code::Ok, Code::Ok]);
    assert_eq!(world.home.stats(world.ms).remembered, 2);
}

#[test]
fn a_full_disk_makes_a_commit_retry_and_nothing_else() {
    let (mut world, a) = (world(), control(A.0, A.1));
    world.prepared(a, &xid(1));
    world.prepared(a, &xid(2));
    world.handle(Input::Space { full: true });
    assert_eq!(world.xa(a, &xid(1), Verb::Commit), Code::Retry);
    assert_eq!(world.recover(5), [xid(1), xid(2)]);
    let rollback = world.ask(a, &xid(2), Verb::Rollback, 0);
    assert!(!world.replies.contains_key(&rollback), "it waits for room");
    world.handle(Input::Space { full: false });
    world.pump();
    assert_eq!(world.code(rollback), Code::Ok);
    assert_eq!(world.xa(a, &xid(1), Verb::Commit), Code::Ok);
}

#[test]
fn a_failed_store_leaves_outcomes_unknown() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    world.working(a, &x);
    world.xa(a, &x, Verb::End);
    let commit = world.ask(a, &x, Verb::CommitOnePhase, 0);
    let rollback = world.ask(a, &x, Verb::Rollback, 0);
    let b = control(B.0, B.1);
    let txn = world.declare(b);
    world.work(b, txn, 1, 1);
    let local = world.discharge(b, txn, false, None);
    world.settle();
    world.handle(Input::StoreFailed);
    for question in [commit, rollback, local] {
        assert_eq!(world.code(question), Code::ResourceFailure);
    }
    world.flush(9);
    assert!(world.applied.is_empty(), "nothing is told to anybody any more");
    let later = world.ask(a, &x, Verb::Rollback, 0);
    assert_eq!(world.code(later), Code::ResourceFailure);
}

#[test]
fn recover_takes_flags_and_cursors() {
    let (mut world, a) = (world(), control(A.0, A.1));
    for n in 1..=3 {
        world.prepared(a, &xid(n));
    }
    let ask = |world: &mut World, scan: Scan| {
        let to = world.to(a);
        world.handle(Input::Recover { to, scan, max: 2 });
        match &world.replies[&to.question] {
            Reply::Xids(page) => Ok((page.xids.clone(), page.more)),
            reply => Err(reply.code()),
        }
    };
    let (start, end) = (0x0100_0000, 0x0080_0000);
    assert_eq!(ask(&mut world, Scan::Flags(0)), Err(Code::Invalid), "no scan is open");
    assert_eq!(ask(&mut world, Scan::Flags(start | 1)), Err(Code::Invalid));
    assert_eq!(ask(&mut world, Scan::Flags(start)), Ok((vec![xid(1), xid(2)], true)));
    assert_eq!(ask(&mut world, Scan::Flags(0)), Ok((vec![xid(3)], false)));
    assert_eq!(ask(&mut world, Scan::Flags(0)), Ok((vec![], false)));
    assert_eq!(ask(&mut world, Scan::Flags(end)), Ok((vec![], false)));
    assert_eq!(ask(&mut world, Scan::Flags(0)), Err(Code::Invalid));
    assert_eq!(ask(&mut world, Scan::Flags(start | end)), Ok((vec![xid(1), xid(2)], true)));
    assert_eq!(ask(&mut world, Scan::Flags(end)), Err(Code::Invalid));
    assert_eq!(ask(&mut world, Scan::After(None)), Ok((vec![xid(1), xid(2)], true)));
    assert_eq!(ask(&mut world, Scan::After(Some(xid(2)))), Ok((vec![xid(3)], false)));
}

#[test]
fn limits_name_what_they_limit() {
    let mut world = World::new(|config| {
        (config.open_per_connection_max, config.branches_max) = (2, 3);
        (config.staged_bytes_max, config.waiting_max) = (30, 1);
    });
    let (a, b, c) = (control(A.0, A.1), control(B.0, B.1), control(3, 0));
    let text = |world: &World, question: u32| match &world.replies[&question] {
        Reply::Refused(refusal) => refusal.to_string(),
        reply => format!("{reply:?}"),
    };
    world.declare(a);
    let local = world.declare(a);
    let to = world.to(a);
    world.handle(Input::Declare { to, client: "test".into() });
    let open = "open transactions per connection: 3 is more than the limit of 2";
    assert_eq!(text(&world, to.question), open);
    let question = world.ask(a, &xid(1), Verb::Start, 0);
    assert_eq!((text(&world, question).as_str(), world.code(question)), (open, Code::ResourceError));
    // Bytes: the transaction is undone, its end says why.
    world.work(a, local, 1, 3);
    world.work(a, local, 1, 1);
    let [NoWork::Limit(refusal)] = &world.refused[..] else { panic!("{:?}", world.refused) };
    let said = format!("transaction {local}: bytes staged in a transaction: 40 is more than the limit of 30");
    assert_eq!(refusal.to_string(), said);
    assert!(world.rolled_back(local));
    assert_eq!(world.commit(a, local), Reply::RolledBack(Cause::Limit(Limit::StagedBytes)));
    assert!(world.parts.is_empty() && world.log.is_empty());
    // Branches.
    world.prepared(b, &xid(1));
    world.prepared(b, &xid(2));
    world.prepared(b, &xid(3));
    let question = world.ask(c, &xid(4), Verb::Start, 0);
    assert_eq!(text(&world, question), "branches in all: 4 is more than the limit of 3");
    // Questions that wait.
    world.ask(b, &xid(1), Verb::Commit, 0);
    world.ask(b, &xid(1), Verb::Commit, 0);
    let question = world.ask(b, &xid(1), Verb::Commit, 0);
    assert!(text(&world, question).ends_with("questions that wait for a branch: 2 is more than the limit of 1"));
    world.pump();
}

#[test]
fn local_transactions_are_all_or_nothing_and_end_once() {
    let (mut world, a) = (world(), control(A.0, A.1));
    let (s, t) = (world.declare(a), world.declare(a));
    assert_ne!(s, t);
    let committed = world.work(a, s, 1, 2);
    world.work(a, t, 1, 2);
    assert_eq!(world.commit(a, s), Reply::Committed);
    let question = world.discharge(a, t, true, None);
    assert_eq!(world.replies[&question], Reply::RolledBack(Cause::Asked));
    assert_eq!(world.stored(world.durable).committed, committed.into_iter().collect());
    assert_eq!(world.commit(a, s), Reply::Unknown);
    // A late transfer of an ended transaction is refused, and never joins the next one.
    let next = world.declare(a);
    world.work(a, t, 1, 1);
    assert_eq!(world.refused, [NoWork::Unknown]);
    world.work(control(A.0, 7), next, 1, 1);
    assert_eq!(world.refused.len(), 2, "nor is that of another link");
    world.pump();
    assert!(world.home.view(next, world.ms).unwrap().parts.is_empty());
    world.handle(Input::ControlLost { control: a });
    assert_eq!(world.commit(a, next), Reply::Unknown);
    assert_eq!(world.home.stats(world.ms).local, 0);
}

#[test]
fn a_local_commit_survives_its_connection_once_its_record_is_written() {
    let (mut world, a) = (world(), control(A.0, A.1));
    let txn = world.declare(a);
    let ops = world.work(a, txn, 1, 2);
    let question = world.discharge(a, txn, false, None);
    let again = world.discharge(a, txn, true, None);
    assert_eq!(world.replies[&again], Reply::Unknown);
    world.settle();
    lose(&mut world, A.0);
    assert!(world.applied.is_empty());
    world.pump();
    assert_eq!(world.replies[&question], Reply::Committed);
    assert_eq!(world.applied, [(txn, QueueId(1), Outcome::Commit, ops)]);
    // Without anything to keep there is no record to wait for.
    let txn = world.declare(control(4, 0));
    world.work_with(control(4, 0), txn, 1, 2, true);
    let records = world.log.len();
    assert_eq!(world.commit(control(4, 0), txn), Reply::Committed);
    assert_eq!(world.log.len(), records);
}

#[test]
fn a_branch_discharged_by_a_plain_client_is_committed_in_one_phase_or_rolled_back() {
    for (fail, code) in [(false, Code::Ok), (true, Code::Ok)] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let (txn, ops) = world.working(a, &x);
        let question = world.discharge(a, txn, fail, None);
        world.pump();
        assert_eq!(world.code(question), code);
        assert_eq!(world.stored(world.durable).committed.len(), if fail { 0 } else { ops.len() });
        assert_eq!(world.rolled_back(txn), fail);
        let question = world.discharge(a, txn, fail, None);
        assert_eq!(world.replies[&question], Reply::Unknown);
    }
}

#[test]
fn fs_44_a_lost_commit_reply_is_resolved() {
    let (mut world, a) = (world(), control(A.0, A.1));
    world.open_session();
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.discharge(a, txn, false, Some(1));
    world.settle();
    world.status(1);
    assert_eq!(world.closed, 1);
    assert!(world.statuses.is_empty(), "a commit in flight is awaited");
    world.pump();
    assert_eq!(world.statuses, [TxStatus::Committed]);
    world.crash();
    world.status(1);
    assert_eq!(world.statuses[1..], [TxStatus::Committed]);
    // What was never let in never will be.
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.status(2);
    assert_eq!(world.statuses[2..], [TxStatus::RolledBack]);
    let question = world.discharge(a, txn, false, Some(2));
    world.pump();
    assert_eq!(world.replies[&question], Reply::RolledBack(Cause::Fenced));
    assert!(world.rolled_back(txn));
    // The next one may.
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    let question = world.discharge(a, txn, false, Some(3));
    world.pump();
    assert_eq!(world.replies[&question], Reply::Committed);
    // A crash before the flush: it never was.
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.discharge(a, txn, false, Some(4));
    world.settle();
    world.crash();
    world.status(4);
    assert_eq!(world.statuses[3..], [TxStatus::RolledBack]);
    world.pass(600_000);
    world.status(3);
    assert_eq!(world.statuses[4..], [TxStatus::Expired]);
}

#[test]
fn operators_see_names_ages_and_parts() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let (txn, _) = world.prepared(a, &x);
    world.declare(a);
    world.pass(5_000);
    let view = &world.home.branches(None, 10, world.ms)[0];
    assert_eq!((view.txn, view.xid.as_ref(), view.state.word(), view.age_ms), (txn, Some(&x), "prepared", 5_000));
    let part = |adds| Part { adds, removes: 0, bytes: adds * 10 };
    assert_eq!(view.parts, [(QueueId(1), part(2)), (QueueId(2), part(1))]);
    assert_eq!((&*view.client, view.connections.len()), ("test", 0));
    let stats = world.home.stats(world.ms);
    assert_eq!((stats.local, stats.branches, stats.in_doubt, stats.in_doubt_age_ms), (1, 1, 1, 5_000));
    assert_eq!(world.home.locals(None, 10, world.ms).len(), 1);
    assert!(world.home.branches(Some(&x), 10, world.ms).is_empty());
    world.crash();
    assert_eq!(world.home.stats(world.ms).in_doubt_age_ms, 5_000, "a crash does not make it younger");
}

#[test]
fn ids_of_transactions_go_there_and_back() {
    let mut world = world();
    let txn = world.declare(control(1, 0));
    assert_eq!(TxnId::from_bytes(&txn.to_bytes()), Some(txn));
    assert_eq!(TxnId::from_bytes(&[0; 17]), None);
    assert_eq!(txn.to_string(), "1.0.1");
    world.crash();
    assert_ne!(world.declare(control(1, 0)), txn, "no id is used again, in no run");
}

#[test]
fn work_that_was_not_sent_leaves_nothing_behind_when_it_is_refused() {
    let (mut world, a) = (world(), control(A.0, A.1));
    let txn = TxnId { number: 99, ..world.declare(a) };
    let part = Part { adds: 1, removes: 0, bytes: 1 };
    world.handle(Input::Work(Work { txn, control: a, queue: QueueId(1), part, sent: false }));
    assert_eq!(world.refused, [NoWork::Unknown]);
    assert!(world.parts.is_empty() && world.applied.is_empty());
}
