//! Transactions: what goes ahead, branches in doubt, and how they end (`spec/transactions.md`, "Records").

pub(super) mod dropped;
mod work;

use super::{A, B, Build, Found, Make, StoreUnderTest, bodies, events, head, recover, with_queues};
use crate::{
    Ahead, Event, Figures, HeuristicOutcome, LargeOp, LoadLarge, Op, RESERVE, RecoveredWork, Redelivery, Stored,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{Content, EntryKey, Head, LargeId, QueueId, Sequence, ShardId};
pub(super) use work::{
    Do, Part, add, ahead, figures, force, from, lost, messages, numbered, operator, part, remove, told, txn, unnamed,
    xid,
};

/// Enqueues a message for each of these numbers, with the number as its body.
fn enqueued<S: StoreUnderTest>(store: &mut S, shards: u16, queue: QueueId, numbers: &[Sequence]) {
    let build = numbers.iter().fold(Build::default(), |b, n| b.enqueue(queue, *n, &n.to_be_bytes()));
    build.submit(store, queue.owner(shards).0);
    store.settle();
}

fn with_bodies(numbers: &[Sequence]) -> Vec<(Sequence, Vec<u8>)> {
    numbers.iter().map(|n| (*n, n.to_be_bytes().to_vec())).collect()
}

/// Much comes and goes, so that a store has a reason to use its room again.
fn churn<S: StoreUnderTest>(store: &mut S, shards: u16, first: Sequence) {
    for n in first..first + 40 {
        let build = Build::default().enqueue(B, n, &[n as u8; 9_000]);
        let build = if n > first { build.acknowledge(B, n - 1) } else { build };
        build.submit(store, B.owner(shards).0);
        store.settle();
    }
    Build::default().acknowledge(B, first + 39).submit(store, B.owner(shards).0);
    store.settle();
}

/// Number, deliveries, attempts and whether it is a suspect, of each entry of a queue.
fn numbers(found: &Found, queue: QueueId) -> Vec<(Sequence, u32, u32, bool)> {
    let entries = found.entries.values().filter(|e| e.key.queue == queue);
    entries.map(|e| (e.key.sequence, e.deliveries, e.attempts, e.suspect.is_some())).collect()
}

/// All of a commit happens: messages get the part's numbers, entries are gone, in queues of several shards. Indexes without an
/// operation leave gaps.
pub fn a_commit_happens_in_all_queues<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    enqueued(&mut store, 2, A, &[0, 1, 2]);
    enqueued(&mut store, 2, B, &[5, 6]);
    let a = numbered(&[add(0, b"one"), remove(1), add(3, &[7; 5_000])], 10, 4);
    let b = part(&[remove(6), remove(5)]);
    let build = Build::default().enqueue(A, 3, b"beside").commit_all(1, &[(A, a), (B, b)]);
    build.submit(&mut store, A.owner(2).0);
    store.settle();
    let a = [with_bodies(&[0, 2]), vec![(3, b"beside".to_vec()), (10, b"one".to_vec()), (13, vec![7; 5_000])]].concat();
    for crash in 0..3 {
        assert_eq!(bodies(&mut store, 2, A, 4), a);
        assert_eq!(bodies(&mut store, 2, B, 4), []);
        store = store.crash(2, crash);
        let found = recover(&mut store, 2);
        assert_eq!(found.sequences(A), [0, 2, 3, 10, 13]);
        assert_eq!(found.sequences(B), [0u64; 0]);
        let new = found.entry(A, 13);
        assert_eq!((new.head, new.deliveries, new.attempts, new.suspect), (head(4), 0, 0, None));
        assert!(found.branches.is_empty() && found.parts.is_empty() && found.completed.is_empty());
    }
}

/// What was given back in a transaction comes back at the commit, under its number, with the numbers and the overlay that its operation
/// names; a rollback makes nothing of that. So if it is in the record itself or ahead of it, and of a branch. What leaves for the
/// dead-letter queue is nobody's to have: marks do not touch it, however often the process dies, until it is moved.
pub fn a_commit_brings_back_what_was_returned<S: StoreUnderTest>(make: Make<'_, S>) {
    let back = |deliveries, attempts, overlay| Arc::new(Redelivery { deliveries, attempts, overlay });
    let mut letter = super::dead_letter(3);
    letter.dead_letter.as_mut().expect("it is one").leaving = true;
    let work = [
        Do::Return(0, 5, 5, back(4, 4, None)),
        Do::Return(1, 6, 6, back(6, 6, Some(super::overlay("new")))),
        Do::Remove(2, 7, 7),
        Do::Return(3, 8, 8, back(7, 7, Some(letter.clone()))),
        // What it had stays.
        Do::Return(4, 9, 9, back(9, 9, None)),
    ];
    for (prepares, goes_ahead, commits) in
        [(false, false, true), (false, true, true), (true, false, true), (true, true, true), (true, true, false)]
    {
        let mut store = with_queues(make, 2);
        enqueued(&mut store, 2, A, &[0, 1, 2, 3, 4, 5]);
        let old = Op::Redeliver {
            entry: EntryKey { queue: A, sequence: 4 },
            deliveries: 1,
            attempts: 1,
            overlay: Some(super::overlay("old")),
        };
        let mark = Op::DispatchMark { queue: A, first: 0, count: 256 };
        let build = Build::default().op(mark.clone()).op(old);
        let build = if goes_ahead { build.ahead(txn(1), A, 0, &work) } else { build };
        build.submit(&mut store, A.owner(2).0);
        store.settle();
        let whole = match goes_ahead {
            true => Part { ahead: ahead(&work), figures: figures(&work), ..Part::default() },
            false => part(&work),
        };
        if prepares {
            Build::default().prepare_all(1, &[(A, whole)]).submit(&mut store, 0);
            store.settle();
            store = store.crash(2, 1);
            let found = recover(&mut store, 2);
            assert_eq!(found.parts[&(txn(1), A)], told(&work));
            let held = [0, 1, 2, 3].map(|sequence| (sequence, 0, 0, false));
            assert_eq!(numbers(&found, A)[..4], held, "nothing has happened yet");
            Build::default().decide(xid(1), commits, &[], 2_000).submit(&mut store, 0);
        } else {
            Build::default().commit_all(1, &[(A, whole)]).submit(&mut store, 0);
        }
        store.settle();
        if !commits {
            let found = recover(&mut store.crash(2, 2), 2);
            let expected = [(0, 5, 5), (1, 6, 6), (2, 7, 7), (3, 8, 8), (4, 9, 9)].map(|(s, d, a)| (s, d, a, false));
            assert_eq!(numbers(&found, A)[..5], expected);
            assert!((0..4).all(|sequence| found.entry(A, sequence).overlay.is_none()));
            continue;
        }
        store = store.crash(2, 2);
        let found = recover(&mut store, 2);
        // A commit in the run of the mark: they may have been delivered again since, but for what leaves.
        let again = u32::from(!prepares);
        let expected = [(0, 4 + again, 4, !prepares), (1, 6 + again, 6, !prepares), (3, 7, 7, false)];
        assert_eq!(numbers(&found, A)[..3], expected, "prepared {prepares}, ahead {goes_ahead}");
        assert_eq!(numbers(&found, A)[3], (4, 9 + again, 9, !prepares));
        // Another run, with a mark, in which the log uses its room again.
        Build::default().op(mark).submit(&mut store, A.owner(2).0);
        churn(&mut store, 2, 100 + 2 * RESERVE);
        store = store.crash(2, 3);
        let found = recover(&mut store, 2);
        assert_eq!(numbers(&found, A)[2], (3, 7, 7, false), "nobody can have got what leaves");
        let overlays = [0, 1, 3, 4].map(|sequence| found.entry(A, sequence).overlay.clone());
        let kept = [None, Some(super::overlay("new")), Some(letter.clone()), Some(super::overlay("old"))];
        assert_eq!(overlays, kept);
        assert!(found.branches.is_empty() && found.parts.is_empty());
        let to = EntryKey { queue: B, sequence: found.queues[&B].2 };
        let moved = super::relocate(EntryKey { queue: A, sequence: 3 }, to);
        Build::default().op(moved).submit(&mut store, A.owner(2).0);
        store.settle();
        let mut store = store.crash(2, 4);
        let found = recover(&mut store, 2);
        assert_eq!(found.sequences(A), [0, 1, 4, 5]);
        assert_eq!(found.entry(B, to.sequence).overlay, Some(super::dead_letter(3)));
    }
}

/// Operations that went ahead, in several records and queues, belong to the commit that names them, before its own.
pub fn operations_ahead_belong_to_their_commit<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    enqueued(&mut store, 2, A, &[0, 1, 2]);
    enqueued(&mut store, 2, B, &[0, 1]);
    let (a, b) = (A.owner(2).0, B.owner(2).0);
    let first = [add(0, &[1; 3_000]), remove(2)];
    let second = [add(1, b"1")];
    let b_work = [add(0, b""), remove(0)];
    Build::default().ahead(txn(1), A, 0, &first).submit(&mut store, a);
    Build::default().ahead(txn(1), B, 0, &b_work).submit(&mut store, b);
    // Another transaction, which names nothing of this one.
    Build::default().ahead(txn(2), A, 0, &[add(0, b"other"), remove(0)]).submit(&mut store, a);
    Build::default().ahead(txn(1), A, 1, &second).submit(&mut store, a);
    store.settle();
    churn(&mut store, 2, 100);
    assert_eq!(bodies(&mut store, 2, A, 4), with_bodies(&[0, 1, 2]), "what goes ahead means nothing yet");
    assert_eq!(bodies(&mut store, 2, B, 4), with_bodies(&[0, 1]));
    let a_part =
        Part { ahead: Ahead { records: 2, ops: 3, bytes: 3_001 }, ..numbered(&[add(2, b"2"), remove(0)], 20, 3) };
    let b_part = Part { ahead: ahead(&b_work), ..numbered(&[], 300, 1) };
    Build::default().commit_all(1, &[(A, a_part), (B, b_part)]).submit(&mut store, b);
    store.settle();
    let expected = [with_bodies(&[1]), vec![(20, vec![1; 3_000]), (21, b"1".to_vec()), (22, b"2".to_vec())]].concat();
    for crash in 0..3 {
        assert_eq!(bodies(&mut store, 2, A, 4), expected);
        assert_eq!(bodies(&mut store, 2, B, 4), [with_bodies(&[1]), vec![(300, vec![])]].concat());
        store = store.crash(2, crash);
        let found = recover(&mut store, 2);
        assert_eq!((found.sequences(A), found.sequences(B)), (vec![1, 20, 21, 22], vec![1, 300]));
        // Their numbers are as they were: nobody took them.
        assert_eq!(numbers(&found, A)[0], (1, 0, 0, false));
    }
}

/// What no record names by then, a start drops: nothing of it is seen, nothing is held, also after a stop in order.
pub fn operations_ahead_of_nothing_are_dropped_at_a_start<S: StoreUnderTest>(make: Make<'_, S>) {
    for orderly in [false, true] {
        let mut store = with_queues(make, 1);
        enqueued(&mut store, 1, A, &[0, 1, 2]);
        let work = [add(0, &[9; 2_000]), remove(0), remove(1)];
        Build::default().ahead(txn(1), A, 0, &work).submit(&mut store, 0);
        // It was rolled back meanwhile, which nobody writes down, and one of its entries went to another consumer.
        Build::default().acknowledge(A, 1).submit(&mut store, 0);
        store.settle();
        assert_eq!(bodies(&mut store, 1, A, 4), with_bodies(&[0, 2]));
        store = if orderly { store.restart(1) } else { store.crash(1, 2) };
        let found = recover(&mut store, 1);
        assert_eq!(numbers(&found, A), [(0, 0, 0, false), (2, 0, 0, false)]);
        assert!(found.branches.is_empty() && found.parts.is_empty());
        // It is forgotten, then: the same name means another transaction, which would not be allowed otherwise.
        let again = numbered(&[add(0, b"again")], RESERVE, 1);
        Build::default().commit_all(1, &[(A, again)]).submit(&mut store, 0);
        store.settle();
        let mut store = store.crash(1, 3);
        assert_eq!(recover(&mut store, 1).sequences(A), [0, 2, RESERVE]);
    }
}

/// A store with a branch in doubt over both queues, much of it ahead of its record, and what a start should tell of its parts.
fn with_doubt<S: StoreUnderTest>(make: Make<'_, S>) -> (S, [Vec<RecoveredWork>; 2]) {
    let mut store = with_queues(make, 2);
    enqueued(&mut store, 2, A, &[0, 1, 2, 3]);
    enqueued(&mut store, 2, B, &[0, 1]);
    let (first, rest) =
        ([add(0, &[5; 4_000]), Do::Remove(1, 4, 2)], [Do::Remove(3, 1, 0), Do::Add(1, 9, b"high".to_vec())]);
    let b = [add(0, b"b"), remove(0)];
    Build::default().ahead(txn(1), A, 0, &first).submit(&mut store, A.owner(2).0);
    store.settle();
    let all = [&first[..], &rest].concat();
    let a_part = Part { ahead: ahead(&first), figures: figures(&all), ..part(&rest) };
    Build::default().prepare_all(1, &[(A, a_part), (B, part(&b))]).submit(&mut store, 0);
    store.settle();
    (store, [told(&all), told(&b)])
}

/// A prepared branch is there after any number of crashes and stops, with its operations in their order. What it adds is not
/// seen, what it removes is an entry and cannot be had.
pub fn a_prepared_branch_survives<S: StoreUnderTest>(make: Make<'_, S>) {
    let (mut store, [a, b]) = with_doubt(make);
    for start in 0..5u64 {
        assert_eq!(bodies(&mut store, 2, A, 4), with_bodies(&[0, 2]), "start {start}");
        assert_eq!(bodies(&mut store, 2, A, 9), [], "start {start}");
        assert_eq!(bodies(&mut store, 2, B, 4), with_bodies(&[1]), "start {start}");
        churn(&mut store, 2, 100 + start * RESERVE);
        store = if start == 3 { store.restart(2) } else { store.crash(2, start) };
        let found = recover(&mut store, 2);
        assert_eq!((found.sequences(A), found.sequences(B)), (vec![0, 1, 2, 3], vec![0, 1]));
        let branch = &found.branches[&xid(1)];
        assert_eq!((branch.txn, &*branch.client, branch.wall_ms, branch.at_ms), (txn(1), "ann", 996, 1_001));
        let doubt =
            [(A, Figures { adds: 2, removes: 2, bytes: 4_004 }), (B, Figures { adds: 1, removes: 1, bytes: 1 })];
        assert_eq!(branch.parts, doubt);
        assert_eq!((&branch.lost, branch.volatile, &branch.decided), (&vec![], 0, &None));
        assert_eq!((&found.parts[&(txn(1), A)], &found.parts[&(txn(1), B)]), (&a, &b));
        assert_eq!((found.branches.len(), found.completed.len()), (1, 0));
    }
}

/// The number of shards may change while a branch is in doubt: its parts go to their queues' owners.
pub fn a_prepared_branch_follows_its_queues_to_other_shards<S: StoreUnderTest>(make: Make<'_, S>) {
    let (mut store, [a, b]) = with_doubt(make);
    for shards in [1, 3, 2] {
        store = store.restart(shards);
        let found = recover(&mut store, shards);
        assert_eq!((&found.parts[&(txn(1), A)], &found.parts[&(txn(1), B)]), (&a, &b));
        assert_eq!(found.branches.len(), 1);
    }
}

/// A decision to commit gives what was added its numbers, and the bodies can be loaded by them; what was removed is gone. It is
/// remembered, and the branch is over.
pub fn a_decision_commits_what_was_prepared<S: StoreUnderTest>(make: Make<'_, S>) {
    for starts in 0..3u64 {
        let (mut store, _) = with_doubt(make);
        for n in 0..starts {
            churn(&mut store, 2, 100 + n * RESERVE);
            store = store.crash(2, n);
            recover(&mut store, 2);
        }
        let next = 50 + starts * RESERVE;
        let drawn = [(A, from(next, 2)), (B, from(next + 5, 1))];
        Build::default().decide(xid(1), true, &drawn, 3_000).submit(&mut store, 0);
        store.settle();
        for crash in 0..3 {
            assert_eq!(bodies(&mut store, 2, A, 4), [with_bodies(&[0, 2]), vec![(next, vec![5; 4_000])]].concat());
            assert_eq!(bodies(&mut store, 2, A, 9), [(next + 1, b"high".to_vec())]);
            assert_eq!(bodies(&mut store, 2, B, 4), [with_bodies(&[1]), vec![(next + 5, b"b".to_vec())]].concat());
            store = store.crash(2, crash);
            let found = recover(&mut store, 2);
            assert_eq!(found.sequences(A), [0, 2, next, next + 1]);
            assert_eq!(found.sequences(B), [1, next + 5]);
            assert_eq!(found.completed, [(xid(1), true, 3_000)]);
            assert!(found.branches.is_empty() && found.parts.is_empty());
        }
        // They are entries like others.
        let to = EntryKey { queue: B, sequence: next + 9 };
        let moved = super::relocate(EntryKey { queue: A, sequence: next }, to);
        Build::default().acknowledge(A, next + 1).op(moved).submit(&mut store, A.owner(2).0);
        store.settle();
        assert_eq!(bodies(&mut store, 2, B, 9), [(next + 9, vec![5; 4_000])]);
        let mut store = store.crash(2, 4);
        assert_eq!(recover(&mut store, 2).sequences(A), [0, 2]);
    }
}

/// After a decision to roll back nothing is there of what was added, and what was removed comes back under its number, with
/// deliveries and attempts as its operation says.
pub fn what_was_removed_comes_back_under_its_number<S: StoreUnderTest>(make: Make<'_, S>) {
    for starts in 0..3u64 {
        let (mut store, _) = with_doubt(make);
        for n in 0..starts {
            store = store.crash(2, n);
            let found = recover(&mut store, 2);
            assert!(numbers(&found, A).iter().all(|e| *e == (e.0, 0, 0, false)), "not before");
        }
        Build::default().decide(xid(1), false, &[], 3_000).submit(&mut store, 0);
        store.settle();
        for crash in 0..3 {
            assert_eq!(bodies(&mut store, 2, A, 4), with_bodies(&[0, 1, 2, 3]));
            assert_eq!(bodies(&mut store, 2, A, 9), []);
            assert_eq!(bodies(&mut store, 2, B, 4), with_bodies(&[0, 1]));
            store = store.crash(2, crash);
            let found = recover(&mut store, 2);
            assert_eq!(numbers(&found, A), [(0, 0, 0, false), (1, 4, 2, false), (2, 0, 0, false), (3, 1, 0, false)]);
            assert_eq!(numbers(&found, B), [(0, 1, 1, false), (1, 0, 0, false)]);
            assert_eq!(found.completed, [(xid(1), false, 3_000)]);
            assert!(found.branches.is_empty() && found.parts.is_empty());
        }
        // They are entries like others.
        let back =
            Op::Redeliver { entry: EntryKey { queue: A, sequence: 1 }, deliveries: 5, attempts: 3, overlay: None };
        Build::default().acknowledge(A, 3).op(back).submit(&mut store, A.owner(2).0);
        store.settle();
        let mut store = store.crash(2, 4);
        let found = recover(&mut store, 2);
        assert_eq!(numbers(&found, A), [(0, 0, 0, false), (1, 5, 3, false), (2, 0, 0, false)]);
    }
}

/// Marks, before and after the prepare, of ranges and exact, do not touch what a branch in doubt removes: its numbers are those of
/// the store and of the operation, and it is no suspect. Once it has come back it is like any other in a marked range.
pub fn marks_do_not_touch_what_is_held<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    enqueued(&mut store, 1, A, &[0, 1, 2, 3]);
    let mark = Op::DispatchMark { queue: A, first: 0, count: 256 };
    Build::default().op(mark.clone()).submit(&mut store, 0);
    let build = Build::default().prepare_all(1, &[(A, part(&[Do::Remove(0, 1, 1)]))]);
    build.prepare_all(2, &[(A, part(&[Do::Remove(1, 1, 1)]))]).op(mark.clone()).submit(&mut store, 0);
    Build::default().decide(xid(2), false, &[], 2_000).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    // 1 came back in the run of the mark, so it may have been delivered again.
    assert_eq!(numbers(&found, A), [(0, 0, 0, false), (1, 2, 1, true), (2, 1, 0, true), (3, 1, 0, true)]);
    // Suspects that are acknowledged in branches under exact marks.
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    let exact = Op::ExactMark { queue: A, first: 0, last: 3, at_ms: now_ms };
    let build = Build::default().op(exact.clone()).prepare_all(3, &[(A, part(&[Do::Remove(2, 2, 1)]))]);
    build.prepare_all(4, &[(A, part(&[Do::Remove(3, 2, 1)]))]).op(exact.clone()).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 2);
    let found = recover(&mut store, 1);
    assert_eq!(numbers(&found, A), [(0, 0, 0, false), (1, 3, 1, true), (2, 1, 0, false), (3, 1, 0, false)]);
    assert_eq!(found.entry(A, 1).suspect.map(|blame| blame.crashes()), Some(1));
    // Back in a run without a mark: exact, and nobody is blamed.
    let build = Build::default().decide(xid(1), false, &[], 3_000).decide(xid(3), false, &[], 3_000);
    build.submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 3);
    let found = recover(&mut store, 1);
    assert_eq!(numbers(&found, A), [(0, 1, 1, false), (1, 3, 1, true), (2, 2, 1, false), (3, 1, 0, false)]);
    // And in a run with one, whichever came first.
    Build::default().op(mark).decide(xid(4), false, &[], 4_000).submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    assert_eq!(numbers(&found, A), [(0, 2, 1, false), (1, 3, 1, false), (2, 3, 1, false), (3, 3, 1, false)]);
}

/// An entry that had an overlay has it while it is held and when it comes back.
pub fn what_is_held_keeps_its_overlay<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    enqueued(&mut store, 1, A, &[0]);
    let overlay = Some(super::overlay("mine"));
    let entry = EntryKey { queue: A, sequence: 0 };
    let back = Op::Redeliver { entry, deliveries: 2, attempts: 1, overlay: overlay.clone() };
    Build::default().op(back).prepare_all(1, &[(A, part(&[Do::Remove(0, 3, 2)]))]).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    assert_eq!((&found.entry(A, 0).overlay, numbers(&found, A)), (&overlay, vec![(0, 2, 1, false)]));
    Build::default().decide(xid(1), false, &[], 2_000).submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    assert_eq!((&found.entry(A, 0).overlay, numbers(&found, A)), (&overlay, vec![(0, 3, 2, false)]));
}

/// Branches in doubt are apart: each has its own operations, and a decision of one leaves the others alone.
pub fn branches_are_apart<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    enqueued(&mut store, 1, A, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let work = |n: u64| [add(0, &[n as u8; 700]), remove(2 * n), remove(2 * n + 1)];
    for n in 0..4 {
        Build::default().prepare_all(n, &[(A, part(&work(n)))]).submit(&mut store, 0);
    }
    store.settle();
    let mut store = store.crash(1, 1);
    recover(&mut store, 1);
    let build = Build::default().decide(xid(2), true, &[(A, from(RESERVE, 1))], 2_000);
    build.decide(xid(1), false, &[], 2_001).submit(&mut store, 0);
    store.settle();
    for crash in 0..2 {
        assert_eq!(bodies(&mut store, 1, A, 4), [with_bodies(&[2, 3]), vec![(RESERVE, vec![2; 700])]].concat());
        store = store.crash(1, crash);
        let found = recover(&mut store, 1);
        assert_eq!(found.sequences(A), [0, 1, 2, 3, 6, 7, RESERVE]);
        assert_eq!(found.branches.keys().collect::<Vec<_>>(), [&xid(0), &xid(3)]);
        for n in [0, 3] {
            assert_eq!(found.parts[&(txn(n), A)], told(&work(n)));
        }
        assert_eq!(found.completed, [(xid(2), true, 2_000), (xid(1), false, 2_001)]);
    }
}

/// An operator rolls back the part in one queue: what it removed is back, the rest stays in doubt, and the branch says who did it.
/// Then the rest is decided.
pub fn a_part_is_rolled_back_by_force<S: StoreUnderTest>(make: Make<'_, S>) {
    for commit in [true, false] {
        let (mut store, [_, b]) = with_doubt(make);
        Build::default().heuristic(&force(1, A)).submit(&mut store, 0);
        store.settle();
        for crash in 0..2 {
            assert_eq!(bodies(&mut store, 2, A, 4), with_bodies(&[0, 1, 2, 3]));
            assert_eq!(bodies(&mut store, 2, B, 4), with_bodies(&[1]), "the other part is in doubt");
            store = store.crash(2, crash);
            let found = recover(&mut store, 2);
            assert_eq!(numbers(&found, A), [(0, 0, 0, false), (1, 4, 2, false), (2, 0, 0, false), (3, 1, 0, false)]);
            let branch = &found.branches[&xid(1)];
            assert_eq!((&branch.lost, &branch.decided), (&vec![lost(A)], &None));
            assert_eq!(branch.parts, [(B, Figures { adds: 1, removes: 1, bytes: 1 })]);
            assert_eq!((found.parts.len(), &found.parts[&(txn(1), B)]), (1, &b));
            assert!(found.completed.is_empty());
        }
        let next = 2 * RESERVE;
        let drawn = if commit { vec![(B, from(next, 1))] } else { vec![] };
        let mixed = operator(1, HeuristicOutcome::Mixed, &drawn);
        Build::default().heuristic(&mixed).submit(&mut store, 0);
        store.settle();
        let expected = if commit { vec![1, next] } else { vec![0, 1] };
        for crash in 0..2 {
            store = store.crash(2, crash);
            let found = recover(&mut store, 2);
            let branch = &found.branches[&xid(1)];
            assert_eq!((&branch.lost, &branch.decided), (&vec![lost(A)], &Some(Box::new(mixed.clone()))));
            assert!(branch.parts.is_empty() && found.parts.is_empty());
            assert_eq!((found.sequences(A), found.sequences(B)), (vec![0, 1, 2, 3], expected.clone()));
        }
    }
}

/// Every part of a branch may be rolled back by force: it is in doubt still, and has nothing.
pub fn a_branch_without_parts_stays_in_doubt<S: StoreUnderTest>(make: Make<'_, S>) {
    let (mut store, _) = with_doubt(make);
    Build::default().heuristic(&force(1, A)).heuristic(&force(1, B)).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    let found = recover(&mut store, 2);
    let branch = &found.branches[&xid(1)];
    assert_eq!((&branch.parts, &branch.lost, &branch.decided), (&vec![], &vec![lost(A), lost(B)], &None));
    assert_eq!((found.sequences(A), found.sequences(B)), (vec![0, 1, 2, 3], vec![0, 1]));
}

/// An operator's decision does what one of the manager does, and the branch stays, as it was decided, until it is forgotten. It is
/// not among those that are remembered for a time.
pub fn a_heuristic_outcome_stays_until_it_is_forgotten<S: StoreUnderTest>(make: Make<'_, S>) {
    for outcome in [HeuristicOutcome::Committed, HeuristicOutcome::RolledBack] {
        let (mut store, _) = with_doubt(make);
        let commit = outcome == HeuristicOutcome::Committed;
        let drawn = if commit { vec![(A, from(70, 2)), (B, from(80, 1))] } else { vec![] };
        let heuristic = operator(1, outcome, &drawn);
        Build::default().heuristic(&heuristic).submit(&mut store, 0);
        store.settle();
        let expected = if commit { (vec![0, 2, 70, 71], vec![1, 80]) } else { (vec![0, 1, 2, 3], vec![0, 1]) };
        for start in 0..3 {
            store = if start == 1 { store.restart(2) } else { store.crash(2, start) };
            let found = recover(&mut store, 2);
            let branch = &found.branches[&xid(1)];
            assert_eq!((branch.txn, &*branch.client, branch.wall_ms, branch.at_ms), (txn(1), "ann", 996, 1_001));
            assert_eq!(branch.decided, Some(Box::new(heuristic.clone())));
            assert!(branch.parts.is_empty() && branch.lost.is_empty() && found.parts.is_empty());
            assert_eq!((found.sequences(A), found.sequences(B)), expected);
            assert!(found.completed.is_empty());
        }
        if commit {
            assert_eq!(bodies(&mut store, 2, A, 9), [(71, b"high".to_vec())]);
        }
        Build::default().op(Op::Forget { xid: xid(1) }).submit(&mut store, 0);
        store.settle();
        let mut store = store.crash(2, 4);
        let found = recover(&mut store, 2);
        assert!(found.branches.is_empty() && found.completed.is_empty());
        assert_eq!((found.sequences(A), found.sequences(B)), expected, "what it did is done");
        // The name is free.
        let next = found.queues[&A].2;
        Build::default().prepare_all(1, &[(A, part(&[remove(2)]))]).submit(&mut store, 0);
        Build::default().enqueue(A, next, b"x").submit(&mut store, A.owner(2).0);
        let mut store = store.restart(2);
        assert_eq!(recover(&mut store, 2).parts[&(txn(1), A)], told(&[remove(2)]));
    }
}

/// Messages that are not persistent count in the figures and as indexes, and are lost at a start; so are removes of entries that
/// are kept for memory's sake only. The rest of the branch is as it was.
pub fn volatile_work_is_counted_and_lost<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let passing = Head { flags: packhorse_model::HeadFlags::default(), ..head(4) };
    let build = Build::default().enqueue(A, 0, b"stays").enqueue_at(A, 1, passing, b"passes", true);
    build.enqueue_at(B, 0, passing, b"passes", true).submit(&mut store, 0);
    store.settle();
    let a =
        Part { figures: Figures { adds: 3, removes: 2, bytes: 99 }, ..part(&[remove(1), add(2, b"third"), remove(0)]) };
    let b = Part { figures: Figures { adds: 1, removes: 1, bytes: 9 }, ..part(&[remove(0)]) };
    let only = Part { figures: Figures { adds: 4, removes: 0, bytes: 9 }, ..Part::default() };
    Build::default().prepare_all(1, &[(A, a), (B, b)]).prepare_all(2, &[(B, only)]).submit(&mut store, 0);
    store.settle();
    assert_eq!((bodies(&mut store, 1, A, 4), bodies(&mut store, 1, B, 4)), (vec![], vec![]));
    for crash in 0..3 {
        store = store.crash(1, crash);
        let found = recover(&mut store, 1);
        let branch = &found.branches[&xid(1)];
        assert_eq!((&branch.parts, branch.volatile), (&vec![(A, Figures { adds: 1, removes: 1, bytes: 5 })], 5));
        assert_eq!(found.parts[&(txn(1), A)], told(&[add(2, b"third"), remove(0)]));
        assert_eq!(found.parts.len(), 1, "of a part of which nothing is left nothing is told");
        assert_eq!((&found.branches[&xid(2)].parts, found.branches[&xid(2)].volatile), (&vec![], 4));
        assert_eq!((found.sequences(A), found.sequences(B)), (vec![0], vec![]));
    }
    let next = 3 * RESERVE;
    let drawn = [(A, from(next, 3)), (B, from(next, 1))];
    Build::default().decide(xid(1), true, &drawn, 2_000).decide(xid(2), false, &[], 2_000).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 4);
    let found = recover(&mut store, 1);
    assert_eq!((found.sequences(A), found.sequences(B)), (vec![next + 2], vec![]));
    assert_eq!(bodies(&mut store, 1, A, 4), [(next + 2, b"third".to_vec())]);
}

/// A part of many operations, most of them ahead of its record, is told in their order and applied to the last.
pub fn a_large_part_is_whole_and_in_order<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    enqueued(&mut store, 1, A, &(0..500).collect::<Vec<_>>());
    let work: Vec<Do> = (0..500u32)
        .flat_map(|n| [remove(u64::from(n) * 7 % 500), Do::Add(n, (n % 10) as u8, vec![n as u8; (n % 300) as usize])])
        .collect();
    for (record, work) in work[..900].chunks(300).enumerate() {
        Build::default().ahead(txn(1), A, record as u32, work).submit(&mut store, 0);
        store.settle();
        churn(&mut store, 1, 10_000 + 100 * record as u64);
    }
    let ahead = Ahead { records: 3, ops: 900, bytes: ahead(&work[..900]).bytes };
    let whole = Part { ahead, figures: figures(&work), ..part(&work[900..]) };
    Build::default().prepare_all(1, &[(A, whole)]).submit(&mut store, 0);
    store.settle();
    for crash in 0..2 {
        churn(&mut store, 1, 20_000 + crash * RESERVE);
        store = store.crash(1, crash);
        let found = recover(&mut store, 1);
        assert!(found.parts[&(txn(1), A)] == told(&work), "all of it, in its order");
    }
    let first = 2 * RESERVE;
    Build::default().decide(xid(1), true, &[(A, from(first, 500))], 2_000).submit(&mut store, 0);
    store.settle();
    for crash in 0..2 {
        for level in 0..10u32 {
            let expected = (0..500).filter(|n| n % 10 == level);
            let expected = expected.map(|n| (first + u64::from(n), vec![n as u8; (n % 300) as usize]));
            assert_eq!(bodies(&mut store, 1, A, level as u8), expected.collect::<Vec<_>>());
        }
        store = store.crash(1, crash);
        assert_eq!(recover(&mut store, 1).sequences(A), (first..first + 500).collect::<Vec<_>>());
    }
}

/// What a transaction did is seen all or not at all, wherever a crash comes between its records; a decision is there or the branch
/// is in doubt.
pub fn a_crash_between_any_two_records_leaves_one_state<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut met = [[false; 4]; 2];
    for seed in 0..24u64 {
        let (prepares, commits) = (seed % 2 == 0, seed % 4 < 2);
        let mut store = with_queues(make, 2);
        enqueued(&mut store, 2, A, &[0, 1]);
        enqueued(&mut store, 2, B, &[0, 1]);
        let work = [add(0, &[3; 2_000]), remove(1)];
        let a = Part { ahead: ahead(&work), figures: figures(&work), ..numbered(&[], 10, 1) };
        let b = numbered(&work, 10, 1);
        let shard = A.owner(2).0;
        Build::default().ahead(txn(1), A, 0, &work).submit(&mut store, shard);
        let drawn = if commits { vec![(A, from(10, 1)), (B, from(10, 1))] } else { vec![] };
        if prepares {
            let unnumbered = |part: &Part| Part { numbers: None, ..part.clone() };
            let parts = [(A, unnumbered(&a)), (B, unnumbered(&b))];
            Build::default().prepare_all(1, &parts).submit(&mut store, shard);
            Build::default().decide(xid(1), commits, &drawn, 2_000).submit(&mut store, shard);
        } else {
            Build::default().commit_all(1, &[(A, a), (B, b)]).submit(&mut store, shard);
        }
        let mut store = store.crash(2, seed);
        let found = recover(&mut store, 2);
        assert_eq!(found.sequences(A), found.sequences(B), "in both or in none (seed {seed})");
        let doubt = !found.branches.is_empty();
        let state = match (found.sequences(A).as_slice(), doubt, found.completed.len()) {
            ([0, 1], false, 0) => 0,
            ([0, 1], true, 0) => 1,
            ([0, 10], false, n) if n == usize::from(prepares) => 2,
            ([0, 1], false, 1) if !commits => 3,
            other => panic!("half a transaction (seed {seed}): {other:?}"),
        };
        assert_eq!(found.parts.len(), if doubt { 2 } else { 0 });
        met[usize::from(prepares)][state] = true;
        let mut store = store.crash(2, seed + 1);
        let again = recover(&mut store, 2);
        let same = again.entries == found.entries && again.parts == found.parts && again.branches == found.branches;
        assert!(same && again.completed == found.completed, "the next start finds the same (seed {seed})");
        if doubt {
            let drawn = [(A, from(2 * RESERVE, 1)), (B, from(2 * RESERVE, 1))];
            Build::default().decide(xid(1), true, &drawn, 2_000).submit(&mut store, 0);
            store.settle();
            assert_eq!(bodies(&mut store, 2, B, 4), [with_bodies(&[0]), vec![(2 * RESERVE, vec![3; 2_000])]].concat());
        }
    }
    // Where a store makes all of it durable at once, or loses all of it, other states are not met.
    assert!(met.iter().all(|states| states.contains(&true)));
}

/// A whole large message of 100 000 equal bytes, synced.
fn large<S: StoreUnderTest>(store: &mut S, id: u64) -> LargeId {
    let id = LargeId(id);
    store.handle(ShardId(0)).large(LargeOp::Begin { id });
    store.handle(ShardId(0)).large(LargeOp::Chunk { id, bytes: Bytes::from(vec![id.0 as u8; 100_000]) });
    store.handle(ShardId(0)).large(LargeOp::End { id });
    store.settle();
    events(store, 0);
    id
}

/// Whether a large message's file is there, with what it had.
fn readable<S: StoreUnderTest>(store: &mut S, id: u64) -> bool {
    let load = LoadLarge { token: 9, id: LargeId(id), offset: 99_990, length: 100 };
    store.handle(ShardId(0)).load_large(load);
    store.settle();
    let answer = events(store, 0).into_iter().find_map(|e| match e {
        Event::LargeLoaded { token: 9, bytes } => Some(bytes),
        _ => None,
    });
    let bytes = answer.expect("a load is answered");
    assert!(bytes.as_ref().is_none_or(|bytes| *bytes == [id as u8; 10][..]), "a file has what was written");
    bytes.is_some()
}

/// The files of large messages that a prepared branch adds or removes stay; then, as it ends, one of them or the other is gone. That
/// of an add that went ahead of nothing is gone at the next start.
pub fn large_files_of_a_branch_stay_until_its_end<S: StoreUnderTest>(make: Make<'_, S>) {
    for commit in [true, false] {
        let mut store = with_queues(make, 1);
        let [old, new, ahead_of, dropped, local] = [1, 2, 3, 4, 5].map(|n| large(&mut store, n));
        let content = Stored::Large { id: old, length: 100_000 };
        let enqueue = Op::Enqueue { queue: A, sequence: 0, head: head(4), content, volatile: false };
        let (first, rest) = ([Do::Large(0, ahead_of, 100_000)], [Do::Large(1, new, 100_000), remove(0)]);
        Build::default().op(enqueue).submit(&mut store, 0);
        let build = Build::default().ahead(txn(1), A, 0, &first).ahead(txn(2), A, 0, &[Do::Large(0, dropped, 100_000)]);
        build.submit(&mut store, 0);
        let all = [&first[..], &rest].concat();
        let whole = Part { ahead: ahead(&first), figures: figures(&all), ..part(&rest) };
        let build = Build::default().prepare_all(1, &[(A, whole)]);
        build.commit_all(3, &[(B, numbered(&[Do::Large(0, local, 100_000)], 7, 1))]).submit(&mut store, 0);
        store.settle();
        assert!((1..6).all(|n| readable(&mut store, n)), "all of them are there");
        for crash in 0..2 {
            store = store.crash(1, crash);
            let found = recover(&mut store, 1);
            assert_eq!(found.parts[&(txn(1), A)], told(&all));
            assert_eq!(found.branches[&xid(1)].parts, [(A, Figures { adds: 2, removes: 1, bytes: 200_000 })]);
            assert_eq!(found.entry(B, 7).content, Content::Large { id: local, length: 100_000 });
            assert_eq!([1, 2, 3, 4, 5].map(|n| readable(&mut store, n)), [true, true, true, false, true]);
        }
        let next = 2 * RESERVE;
        let drawn = if commit { vec![(A, from(next, 2))] } else { vec![] };
        Build::default().decide(xid(1), commit, &drawn, 2_000).submit(&mut store, 0);
        store.settle();
        assert_eq!([1, 2, 3].map(|n| readable(&mut store, n)), [!commit, commit, commit], "at once");
        for start in 0..2 {
            store = if start == 0 { store.restart(1) } else { store.crash(1, 3) };
            let found = recover(&mut store, 1);
            let expected = if commit { vec![next, next + 1] } else { vec![0] };
            assert_eq!(found.sequences(A), expected);
            assert_eq!([1, 2, 3, 4, 5].map(|n| readable(&mut store, n)), [!commit, commit, commit, false, true]);
        }
    }
}

/// With a queue its part of a branch goes, rolled back by force before or not; the branch and its other parts stay in doubt.
pub fn a_deleted_queue_takes_its_part_of_a_branch<S: StoreUnderTest>(make: Make<'_, S>) {
    for forced in [true, false] {
        let (mut store, [_, b]) = with_doubt(make);
        if forced {
            Build::default().heuristic(&force(1, A)).submit(&mut store, 0);
            store.settle();
        }
        Build::default().op(Op::QueueDelete { id: A }).submit(&mut store, A.owner(2).0);
        store.settle();
        for crash in 0..2 {
            store = store.crash(2, crash);
            let found = recover(&mut store, 2);
            assert_eq!(found.entries.keys().map(|k| (k.queue, k.sequence)).collect::<Vec<_>>(), [(B, 0), (B, 1)]);
            let branch = &found.branches[&xid(1)];
            assert_eq!(branch.lost, if forced { vec![lost(A)] } else { vec![] });
            assert_eq!(branch.parts, [(B, Figures { adds: 1, removes: 1, bytes: 1 })]);
            assert_eq!((found.parts.len(), &found.parts[&(txn(1), B)]), (1, &b));
        }
        let next = 2 * RESERVE;
        let mixed = operator(1, HeuristicOutcome::Mixed, &[(A, from(next, 2)), (B, from(next, 1))]);
        Build::default().heuristic(&mixed).submit(&mut store, 0);
        store.settle();
        assert_eq!(bodies(&mut store, 2, B, 4), [with_bodies(&[1]), vec![(next, b"b".to_vec())]].concat());
        let mut store = store.crash(2, 3);
        assert_eq!(recover(&mut store, 2).sequences(B), [1, next]);
    }
}

/// A record that names a part in a queue that was deleted meanwhile does what it says elsewhere, and there is nothing amiss.
pub fn a_part_in_a_deleted_queue_is_nothing<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    enqueued(&mut store, 2, A, &[0, 1]);
    enqueued(&mut store, 2, B, &[0, 1]);
    let work = [add(0, &[8; 1_000]), remove(0)];
    let build = Build::default().ahead(txn(1), A, 0, &work).ahead(txn(2), A, 0, &work);
    build.op(Op::QueueDelete { id: A }).ahead(txn(1), A, 1, &work).submit(&mut store, A.owner(2).0);
    store.settle();
    let two = Ahead { records: 2, ops: 4, bytes: 2_000 };
    let a = Part { ahead: two, figures: figures(&work), ..numbered(&work, 10, 3) };
    Build::default().commit_all(1, &[(A, a), (B, numbered(&work, 10, 1))]).submit(&mut store, 0);
    let a = Part { ahead: ahead(&work), figures: figures(&work), ..Part::default() };
    let b = part(&[remove(1)]);
    Build::default().prepare_all(2, &[(A, a), (B, b)]).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    let found = recover(&mut store, 2);
    assert_eq!(found.entries.keys().map(|k| (k.queue, k.sequence)).collect::<Vec<_>>(), [(B, 1), (B, 10)]);
    let branch = &found.branches[&xid(2)];
    assert_eq!((&branch.parts, branch.volatile), (&vec![(B, Figures { adds: 0, removes: 1, bytes: 0 })], 0));
}
