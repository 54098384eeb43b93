//! Scenarios of the specification, as far as they concern the state machine, by name.

use crate::rig::{A, B, BROKER, World, control, lose, world, xid};
use packhorse_model::{BrokerId, QueueId, Xid, XidError};
use packhorse_txn::state::{State, Verb};
use packhorse_txn::{Act, Cause, Code, Input, NoWork, Reply, Resolution, Start, TxStatus};
use std::slice;

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
    let asked: &[Verb] = match case {
        "none" => &[],
        "associated" | "lost" => &[Verb::Start],
        "suspended" => &[Verb::Start, Verb::Suspend],
        "idle" | "idle,no-work" | "idle,stale" => &[Verb::Start, Verb::End],
        "rollback-only" => &[Verb::Start, Verb::Fail],
        "committed" => &[Verb::Start, Verb::End, Verb::Prepare, Verb::Commit],
        "rolled-back" => &[Verb::Start, Verb::End, Verb::Prepare, Verb::Rollback],
        "prepared" | "h-committed" | "h-rolled-back" | "h-mixed" => &[Verb::Start, Verb::End, Verb::Prepare],
        other => panic!("the table has a row `{other}`, and nothing here brings a branch there"),
    };
    for verb in asked {
        assert_eq!(world.xa(a, &x, *verb), Code::Ok, "{case}: {verb:?}");
        if *verb == Verb::Start && case != "idle,no-work" {
            let txn = world.txn(&x);
            world.work(a, txn, 1, 2);
            world.work(a, txn, 2, 1);
            if case == "idle,stale" {
                world.handle(Input::Failed { txn, cause: Cause::Stale });
            }
        }
    }
    match case {
        "lost" => lose(world, A.0),
        "h-committed" => assert_eq!(world.operate(&x, Act::Commit), Code::Ok),
        "h-rolled-back" => assert_eq!(world.operate(&x, Act::Rollback), Code::Ok),
        "h-mixed" => {
            assert_eq!(world.operate(&x, Act::Force(QueueId(1))), Code::Ok);
            assert_eq!(world.xa(a, &x, Verb::Commit), Code::HeuristicMixed);
        }
        _ => {}
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
        (Act::Commit, Code::HeuristicCommitted, Resolution::Commit),
        (Act::Rollback, Code::HeuristicRolledBack, Resolution::Rollback),
    ] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let (txn, ops) = world.prepared(a, &x);
        assert_eq!(world.operate(&x, act), Code::Ok);
        assert_eq!(world.applied.iter().filter(|(t, _, o, _)| *t == txn && *o == outcome).count(), 2);
        assert_eq!((world.audits.len(), &*world.audits[0].who, &*world.audits[0].reason), (1, "ann", "stuck"));
        world.crash();
        assert_eq!(world.recover(5), slice::from_ref(&x));
        let view = world.home.branch(&x, world.ms).unwrap();
        let decided = view.decided.unwrap();
        assert_eq!((decided.act, decided.who.as_str(), decided.reason.as_str()), (act, "ann", "stuck"));
        assert_eq!(view.age_ms, 0);
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
    for (decision, outcome) in [(Verb::Commit, Resolution::Commit), (Verb::Rollback, Resolution::Rollback)] {
        for crash in [false, true] {
            let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
            let (txn, ops) = world.prepared(a, &x);
            assert_eq!(world.operate(&x, Act::Force(QueueId(5))), Code::NotThere);
            assert_eq!(world.operate(&x, Act::Force(QueueId(1))), Code::Ok);
            assert_eq!(world.applied, [(txn, QueueId(1), Resolution::Rollback, ops[..2].to_vec())]);
            if crash {
                world.crash();
            }
            let view = world.home.branch(&x, world.ms).unwrap();
            assert_eq!((view.state, view.lost[0].queue), (State::Prepared, QueueId(1)));
            assert_eq!(view.decided.unwrap().act, Act::Force(QueueId(1)), "crash or not");
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
fn fs_44_a_lost_commit_reply_is_resolved() {
    let (mut world, a) = (world(), control(A.0, A.1));
    world.open_session(1);
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
    // A commit that was let in and failed: it has ended.
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.handle(Input::Failed { txn, cause: Cause::Stale });
    world.discharge(a, txn, false, Some(4));
    world.status(4);
    assert_eq!(world.statuses.pop(), Some(TxStatus::RolledBack));
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.fail_at(txn, 1, Cause::Full);
    let question = world.discharge(a, txn, false, Some(5));
    world.pump();
    assert_eq!(world.replies[&question], Reply::RolledBack(Cause::Full));
    world.status(5);
    assert_eq!(world.statuses.pop(), Some(TxStatus::RolledBack));
    // A crash before the flush: it never was.
    let txn = world.declare(a);
    world.work(a, txn, 1, 1);
    world.discharge(a, txn, false, Some(6));
    world.settle();
    world.crash();
    world.status(6);
    assert_eq!(world.statuses[3..], [TxStatus::RolledBack]);
    world.pass(600_000);
    world.status(3);
    assert_eq!(world.statuses[4..], [TxStatus::Expired]);
}
