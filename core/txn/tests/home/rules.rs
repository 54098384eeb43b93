//! What the rules say beside the scenarios: limits, memory, timeouts, local transactions, failures of disk and store, what operators see.

use crate::rig::{A, B, Flight, World, control, lose, world, xid};
use packhorse_model::{QueueId, ShardId, TxnId};
use packhorse_txn::state::{State, Verb};
use packhorse_txn::{Act, Cause, Code, Input, Limit, NoWork, Part, Record, Reply, Resolution, Scan, Work};

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
fn a_loss_that_waited_does_not_reach_the_next_branch_of_that_name() {
    let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
    world.working(a, &x);
    world.xa(a, &x, Verb::End);
    let commit = world.ask(a, &x, Verb::CommitOnePhase, 0);
    let start = world.ask(b, &x, Verb::Start, 0);
    lose(&mut world, A.0);
    world.pump();
    assert_eq!((world.code(commit), world.code(start)), (Code::Ok, Code::Ok));
    assert_eq!(world.home.branch(&x, world.ms).unwrap().state, State::Associated);
    assert_eq!(world.xa(b, &x, Verb::End), Code::Ok, "its own connection is there");
}

#[test]
fn who_is_lost_while_it_waits_to_come_in_does_not_come_in() {
    for whole_connection in [false, true] {
        let (mut world, a, b, x) = (world(), control(A.0, A.1), control(B.0, B.1), xid(1));
        let lose_b = |world: &mut World| {
            if whole_connection {
                lose(world, B.0);
            } else {
                world.handle(Input::ControlLost { control: b });
            }
        };
        world.working(a, &x);
        world.xa(a, &x, Verb::End);
        let commit = world.ask(a, &x, Verb::CommitOnePhase, 0);
        let start = world.ask(b, &x, Verb::Start, 0);
        let other = world.ask(control(B.0, 7), &x, Verb::Join, 0);
        lose_b(&mut world);
        world.pump();
        assert_eq!(world.code(commit), Code::Ok);
        assert!(!world.replies.contains_key(&start), "nobody is there to be answered");
        assert_eq!(world.replies.contains_key(&other), !whole_connection, "another session of it is asked for");
        assert_eq!(world.home.stats(world.ms).branches, 0, "no branch is left to a connection that is gone");
        // A join waits for the record with which a name used before begins again.
        let start = world.ask(a, &x, Verb::Start, 0);
        world.ask(b, &x, Verb::Join, 0);
        lose_b(&mut world);
        world.pump();
        assert_eq!(world.code(start), Code::Ok);
        assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
        assert_eq!(world.xa(a, &x, Verb::Prepare), Code::ReadOnly, "nobody else works in it");
    }
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
fn a_queue_is_gone_when_a_prepared_branch_is_committed() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let (txn, ops) = world.prepared(a, &x);
    let question = world.ask(a, &x, Verb::Commit, 0);
    world.flights.retain(|flight| !matches!(flight, Flight::Gather { queue: QueueId(2), .. }));
    world.handle(Input::Gathered { txn, queue: QueueId(2), answer: packhorse_txn::Gathered::Gone });
    world.settle();
    // The log has the part still, for nobody recorded that it went; so it is judged here, not by the rig's fold.
    let Some((_, Record::Heuristic { parts, who, .. })) = world.log.last() else {
        panic!("a part is lost, so the branch ends mixed and stays until it is forgotten: {:?}", world.log.last())
    };
    assert_eq!((parts, who.as_str()), (&vec![(QueueId(1), ops[..2].to_vec())], "broker"));
    world.pump();
    assert_eq!(world.code(question), Code::HeuristicMixed);
    assert_eq!(world.home.branch(&x, world.ms).unwrap().state, State::HeuristicMixed);
}

#[test]
fn a_failure_that_is_told_too_late_changes_nothing() {
    let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
    let (txn, _) = world.working(a, &x);
    world.xa(a, &x, Verb::End);
    let question = world.ask(a, &x, Verb::Prepare, 0);
    world.settle();
    world.handle(Input::Failed { txn, cause: Cause::Full });
    world.pump();
    world.handle(Input::Failed { txn, cause: Cause::Full });
    assert_eq!(world.code(question), Code::Ok);
    assert_eq!(world.home.branch(&x, world.ms).unwrap().cause, None);
    assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
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
    let open = "open transactions per connection: 3 is more than the limit of 2; end one of them first";
    assert_eq!(text(&world, to.question), open);
    let question = world.ask(a, &xid(1), Verb::Start, 0);
    assert_eq!((text(&world, question).as_str(), world.code(question)), (open, Code::ResourceError));
    // Bytes: the transaction is undone, its end says why.
    world.work(a, local, 1, 3);
    world.work(a, local, 1, 1);
    let [NoWork::Limit(refusal)] = &world.refused[..] else {
        panic!("40 bytes are beyond the limit of 30, so the second work is refused for that: {:?}", world.refused)
    };
    let why = "bytes staged in a transaction: 40 is more than the limit of 30; commit the work in smaller transactions";
    assert_eq!(refusal.to_string(), format!("transaction {local}: {why}"));
    assert!(world.rolled_back(local));
    assert_eq!(world.commit(a, local), Reply::RolledBack(Cause::Limit(Limit::StagedBytes)));
    assert!(world.parts.is_empty() && world.log.is_empty());
    // Branches.
    world.prepared(b, &xid(1));
    world.prepared(b, &xid(2));
    world.prepared(b, &xid(3));
    let question = world.ask(c, &xid(4), Verb::Start, 0);
    let why = "branches in all: 4 is more than the limit of 3; end some first; those in doubt are decided by their transaction \
               manager or an operator";
    assert_eq!(text(&world, question), why);
    // Questions that wait.
    world.ask(b, &xid(1), Verb::Commit, 0);
    world.ask(b, &xid(1), Verb::Commit, 0);
    let question = world.ask(b, &xid(1), Verb::Commit, 0);
    let why = ": questions that wait for a branch: 2 is more than the limit of 1; wait for the answers first";
    assert!(text(&world, question).ends_with(why), "{}", text(&world, question));
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
    assert_eq!(world.applied, [(txn, QueueId(1), Resolution::Commit, ops)]);
    // Without anything to keep there is no record to wait for.
    let txn = world.declare(control(4, 0));
    world.work_with(control(4, 0), txn, 1, 2, true);
    let records = world.log.len();
    assert_eq!(world.commit(control(4, 0), txn), Reply::Committed);
    assert_eq!(world.log.len(), records);
}

#[test]
fn a_branch_discharged_by_a_plain_client_is_committed_in_one_phase_or_rolled_back() {
    for fail in [false, true] {
        let (mut world, a, x) = (world(), control(A.0, A.1), xid(1));
        let (txn, ops) = world.working(a, &x);
        let question = world.discharge(a, txn, fail, None);
        world.pump();
        assert_eq!(world.code(question), Code::Ok);
        assert_eq!(world.stored(world.durable).committed.len(), if fail { 0 } else { ops.len() });
        assert_eq!(world.rolled_back(txn), fail);
        let question = world.discharge(a, txn, fail, None);
        assert_eq!(world.replies[&question], Reply::Unknown);
    }
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
    let far = TxnId { run: 0x0102_0304_0506_0708, home: ShardId(0x090a), number: 0x0b0c_0d0e_0f10_1112 };
    assert_eq!(far.to_bytes()[..], (1..=18).collect::<Vec<u8>>(), "clients see run, home, number");
    assert_eq!(TxnId::from_bytes(&far.to_bytes()), Some(far));
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

#[test]
fn refused_work_that_comes_to_its_queue_ends_a_branch_that_could_still_be_committed() {
    for idle in [false, true] {
        let mut world = world();
        let (a, b, x) = (control(1, 0), control(2, 0), xid(1));
        let (txn, _) = world.working(a, &x);
        if idle {
            assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
        }
        world.work(b, txn, 1, 3);
        assert_eq!(world.refused, [NoWork::Unknown]);
        // In queue 1 as many operations are to be undone as come there in all.
        world.pump();
        assert!(world.parts.is_empty() && world.owed.is_empty(), "{:?} {:?}", world.parts, world.owed);
        assert!(world.rolled_back(txn));
        if !idle {
            assert_eq!(world.xa(a, &x, Verb::End), Cause::OperationFailed.code());
        }
        assert_eq!(world.xa(a, &x, Verb::Prepare), Cause::OperationFailed.code());
    }
}

#[test]
fn refused_work_that_comes_while_parts_are_gathered_is_undone_with_them() {
    let mut world = world();
    let (a, b, x) = (control(1, 0), control(2, 0), xid(1));
    let (txn, _) = world.working(a, &x);
    world.settle();
    assert_eq!(world.xa(a, &x, Verb::End), Code::Ok);
    let prepare = world.ask(a, &x, Verb::Prepare, 0);
    world.work(b, txn, 1, 3);
    world.pump();
    assert_eq!(world.code(prepare), Cause::OperationFailed.code());
    assert!(world.parts.is_empty() && world.owed.is_empty(), "{:?} {:?}", world.parts, world.owed);
}

#[test]
fn refused_work_leaves_a_prepared_branch_as_it_is() {
    for comes_first in [false, true] {
        let mut world = world();
        let (a, b, x) = (control(1, 0), control(2, 0), xid(1));
        let (txn, ops) = world.prepared(a, &x);
        // In a queue with a part of the branch, and in one without.
        for queue in [1, 3] {
            world.work(b, txn, queue, 3);
            if comes_first {
                world.settle();
            }
        }
        assert_eq!(world.refused, [NoWork::Unknown, NoWork::Unknown]);
        assert_eq!(world.recover(10), std::slice::from_ref(&x));
        assert_eq!(world.xa(a, &x, Verb::Commit), Code::Ok);
        assert_eq!(world.stored(world.durable).committed, ops.into_iter().collect());
        assert!(world.parts.is_empty() && world.owed.is_empty(), "{:?} {:?}", world.parts, world.owed);
    }
}
