//! What is known of producers that number their messages, and for how long ([`crate::Remember`]).

use super::remembered::{later, now_ms};
use super::transactions::{
    Do, Part, add, ahead, figures, force, from, numbered, operator, part, told, txn, unnamed, xid,
};
use super::{A, B, Build, Found, Make, StoreUnderTest, recover, with_queues};
use crate::{HeuristicOutcome, Op, RecoveredProducer};
use alloc::vec::Vec;
use packhorse_model::{ProducerId, QueueId};

/// A name that sorts as its number.
pub(super) fn producer(n: u64) -> ProducerId {
    let mut name = [9; 16];
    name[..8].copy_from_slice(&n.to_be_bytes());
    ProducerId(name)
}

impl Build {
    /// A producer is known to a queue from now on.
    fn opens(self, queue: QueueId, of: u64, floor: u64, at_ms: u64) -> Build {
        self.op(Op::Producer { queue, producer: producer(of), floor, stored: None, at_ms })
    }

    /// A message of a producer has entered a queue.
    fn stored(self, queue: QueueId, of: u64, floor: u64, number: u64, at_ms: u64) -> Build {
        self.op(Op::Producer { queue, producer: producer(of), floor, stored: Some(number), at_ms })
    }
}

fn known(queue: QueueId, of: u64, floor: u64, runs: &[(u64, u64)], used_ms: u64) -> RecoveredProducer {
    RecoveredProducer { queue, producer: producer(of), floor, runs: runs.to_vec(), used_ms }
}

fn producers(found: &Found) -> Vec<RecoveredProducer> {
    found.producers.values().cloned().collect()
}

/// Numbers come back as runs from the floor on, in the shard of their queue, as long as that is there. The floor only rises. Of a producer
/// that was not announced nothing is known: it may have been forgotten, and higher numbers with it.
pub fn numbers_of_producers_are_known<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    let t = now_ms(&mut store);
    let build = Build::default().opens(A, 1, 5, t).stored(A, 1, 5, 7, t + 1).stored(A, 1, 5, 5, t + 2);
    let build = build.stored(A, 1, 3, 6, t + 1).stored(A, 1, 5, 9, t).stored(A, 1, 0, 4, t).stored(A, 1, 5, 9, t);
    build.opens(A, 2, 0, t).stored(A, 3, 1, 8, t).stored(QueueId(99), 1, 0, 1, t).submit(&mut store, 0);
    let build = Build::default().opens(B, 1, 0, t).stored(B, 1, 0, u64::MAX, t).stored(B, 1, 0, 0, t);
    build.submit(&mut store, 1);
    store.settle();
    let mut all = [
        known(A, 1, 5, &[(5, 7), (9, 9)], t + 2),
        known(A, 2, 0, &[], t),
        known(B, 1, 0, &[(0, 0), (u64::MAX, u64::MAX)], t),
    ];
    for (start, shards) in [2, 2, 1, 2].into_iter().enumerate() {
        store = if start == 1 { store.restart(shards) } else { store.crash(shards, start as u64) };
        assert_eq!(producers(&recover(&mut store, shards)), all);
    }
    // A floor within a run cuts it, one beyond all leaves none.
    let build = Build::default().stored(A, 1, 6, 8, t + 3).opens(B, 1, 3, t);
    build.submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    all[0] = known(A, 1, 6, &[(6, 9)], t + 3);
    all[2] = known(B, 1, 3, &[(u64::MAX, u64::MAX)], t);
    assert_eq!(producers(&recover(&mut store, 2)), all);
    Build::default().op(Op::QueueDelete { id: A }).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    assert_eq!(producers(&recover(&mut store, 2)), [all[2].clone()]);
}

/// A message and its number are one: after a crash both are there or neither is.
pub fn a_number_comes_with_its_message<S: StoreUnderTest>(make: Make<'_, S>) {
    for seed in 0..12 {
        let mut store = with_queues(make, 1);
        let t = now_ms(&mut store);
        Build::default().opens(A, 1, 0, t).submit(&mut store, 0);
        store.settle();
        for n in 0..8 {
            Build::default().stored(A, 1, 0, n, t).enqueue(A, n, b"numbered").submit(&mut store, 0);
            if n == seed % 8 {
                store.settle();
            }
        }
        let mut store = store.crash(1, seed);
        let found = recover(&mut store, 1);
        let there = found.sequences(A).len() as u64;
        assert!(there > seed % 8);
        assert_eq!(producers(&found), [known(A, 1, 0, &[(0, there - 1)], t)]);
    }
}

/// Beyond so many gaps a producer's lowest numbers are forgotten, and its floor says so.
pub fn a_producer_has_so_many_gaps<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, gaps) = (now_ms(&mut store), u64::from(store.remember().gaps_max));
    let runs = |from: u64, to: u64| (from..to).map(|n| (10 * n, 10 * n + 1)).collect::<Vec<_>>();
    let named = |from: u64, to: u64| {
        (from..to).fold(Build::default(), |build, n| build.stored(A, 1, 0, 10 * n, t).stored(A, 1, 0, 10 * n + 1, t))
    };
    Build::default().opens(A, 1, 10, t).submit(&mut store, 0);
    named(1, gaps + 2).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    assert_eq!(producers(&recover(&mut store, 1)), [known(A, 1, 10, &runs(1, gaps + 2), t)]);
    named(gaps + 2, gaps + 4).submit(&mut store, 0);
    // It is forgotten, and stays so.
    Build::default().stored(A, 1, 0, 10, t).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    assert_eq!(producers(&recover(&mut store, 1)), [known(A, 1, 22, &runs(3, gaps + 4), t)]);
}

/// Beyond the count those that were not used for longest are forgotten, whatever their queue.
pub fn the_producers_used_last_are_known<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, max) = (now_ms(&mut store), u64::from(store.remember().producers_max));
    let queue = |n: u64| if n.is_multiple_of(2) { A } else { B };
    let mut from = 0;
    while from < max {
        let upper = (from + 500).min(max);
        (from..upper).fold(Build::default(), |build, n| build.opens(queue(n), n, n, t + n)).submit(&mut store, 0);
        store.settle();
        from = upper;
    }
    // The first is used again, so the second and third make room for two that are new.
    let build = Build::default().stored(A, 0, 0, 1, t + max).opens(A, max, 0, t + max);
    build.opens(B, max + 1, 0, t + max + 1).submit(&mut store, 0);
    let mut store = store.restart(1);
    let mut expected: Vec<_> = (3..max).map(|n| known(queue(n), n, n, &[], t + n)).collect();
    expected.push(known(A, 0, 0, &[(1, 1)], t + max));
    expected.extend([known(A, max, 0, &[], t + max), known(B, max + 1, 0, &[], t + max + 1)]);
    expected.sort_by_key(|p| (p.queue, p.producer));
    assert!(producers(&recover(&mut store, 1)) == expected);
}

/// A producer that was not used for its time is forgotten when another is used, when it is used itself, and at a start.
pub fn producers_are_forgotten_in_time<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, keep) = (now_ms(&mut store), store.remember().producers_ms);
    let build = Build::default().opens(A, 1, 0, t).opens(A, 2, 0, t).opens(B, 3, 0, t + 1);
    build.stored(A, 2, 0, 4, t + keep).submit(&mut store, 0);
    let build = Build::default().opens(A, 1, 3, t + keep).stored(A, 1, 0, 4, t + keep);
    build.stored(B, 3, 0, 4, t + keep).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let mut all = alloc::vec![known(A, 1, 3, &[(4, 4)], t + keep), known(B, 3, 0, &[(4, 4)], t + keep),];
    for ms in [keep, keep - 1_000, 2_000] {
        let passed;
        (store, passed) = later(store, ms);
        let now = now_ms(&mut store);
        all.retain(|p| p.used_ms + keep > now);
        assert_eq!(producers(&recover(&mut store, 1)), all);
        assert_eq!(passed && ms == 2_000, all.is_empty(), "after twice its time, and not before");
    }
}

/// What a transaction adds, with its number.
fn message(index: u32, of: u64, number: u64) -> [Do; 2] {
    [add(index, b"numbered"), Do::Number(producer(of), number, 0)]
}

/// What a transaction calls its messages counts when it is committed, whether it went ahead or came with the record, in all queues; and
/// never if it is not.
pub fn numbers_count_with_their_commit<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let t = now_ms(&mut store);
    let (first, second) = (message(0, 1, 3), message(1, 1, 4));
    Build::default().opens(A, 1, 0, t).opens(B, 1, 0, t).ahead(txn(1), A, 0, &first).submit(&mut store, 0);
    Build::default().ahead(txn(2), A, 0, &message(0, 1, 7)).submit(&mut store, 0);
    Build::default().ahead(txn(3), A, 0, &message(0, 1, 9)).submit(&mut store, 0);
    let all = figures(&[first.clone(), second.clone()].concat());
    let a = Part { ahead: ahead(&first), figures: all, ..numbered(&second, 10, 2) };
    let b = numbered(&message(0, 1, 8), 10, 1);
    let build = Build::default().commit(txn(1), &[(A, a), (B, b)], unnamed(t + 5));
    build.drop_ahead(txn(2), A).submit(&mut store, 0);
    store.settle();
    let all = [known(A, 1, 0, &[(3, 4)], t + 5), known(B, 1, 0, &[(8, 8)], t + 5)];
    for start in 0..3 {
        store = if start == 1 { store.restart(1) } else { store.crash(1, start) };
        let found = recover(&mut store, 1);
        assert_eq!(producers(&found), all);
        assert_eq!((found.sequences(A), found.sequences(B)), (alloc::vec![10, 11], alloc::vec![10]));
    }
    // In a queue that has gone meanwhile it is nothing, and neither is it of a producer that is not known.
    let gone = numbered(&message(0, 1, 5), 20, 1);
    let here = numbered(&[message(0, 2, 5), message(1, 2, 6)].concat(), 20, 2);
    let build = Build::default().op(Op::QueueDelete { id: A });
    build.commit(txn(4), &[(A, gone), (B, here)], unnamed(t + 6)).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 9);
    assert_eq!(producers(&recover(&mut store, 1)), [all[1].clone()]);
}

/// A branch in doubt keeps the numbers of its messages over starts. They count when it is committed, by its manager or by an operator, and
/// not when it, or the part that has them, is rolled back.
pub fn numbers_of_branches_count_with_their_decision<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    let t = now_ms(&mut store);
    let build = Build::default().opens(A, 1, 0, t).ahead(txn(1), A, 0, &message(0, 1, 1));
    build.submit(&mut store, A.owner(2).0);
    Build::default().opens(B, 1, 0, t).submit(&mut store, B.owner(2).0);
    store.settle();
    let more = message(1, 1, 2);
    let whole = [message(0, 1, 1), more.clone()].concat();
    let split = Part { ahead: ahead(&message(0, 1, 1)), figures: figures(&whole), ..part(&more) };
    let mut build = Build::default().prepare(txn(1), xid(1), &[(A, split), (B, part(&message(0, 1, 1)))], t);
    for n in 2..=5 {
        let both = [(A, part(&message(0, 1, 10 * n))), (B, part(&message(0, 1, 10 * n)))];
        build = build.prepare(txn(n), xid(n), &both, t);
    }
    build.submit(&mut store, 0);
    store.settle();
    for start in 0..3 {
        store = if start == 1 { store.restart(2) } else { store.crash(2, start) };
        let found = recover(&mut store, 2);
        assert_eq!(producers(&found), [known(A, 1, 0, &[], t), known(B, 1, 0, &[], t)]);
        assert_eq!(found.parts[&(txn(1), A)], told(&whole));
        assert_eq!(found.parts[&(txn(3), B)], told(&message(0, 1, 30)));
        assert!(found.branches.values().all(|branch| branch.volatile == 0), "numbers are no messages");
    }
    let build = Build::default().decide(xid(1), true, &[(A, from(10, 2)), (B, from(10, 1))], t + 1);
    let build = build.decide(xid(2), false, &[], t + 2).heuristic(&force(4, B));
    let build = build.heuristic(&operator(3, HeuristicOutcome::Committed, &[(A, from(20, 1)), (B, from(20, 1))]));
    let build = build.heuristic(&operator(4, HeuristicOutcome::Mixed, &[(A, from(30, 1))]));
    build.heuristic(&operator(5, HeuristicOutcome::RolledBack, &[])).submit(&mut store, 0);
    store.settle();
    // An operator's decisions have their own time.
    let at_ms = operator(3, HeuristicOutcome::Committed, &[]).at_ms;
    let a = known(A, 1, 0, &[(1, 2), (30, 30), (40, 40)], at_ms.max(t + 1));
    let all = [a, known(B, 1, 0, &[(1, 1), (30, 30)], at_ms.max(t + 1))];
    for start in 0..2 {
        store = store.crash(2, start);
        assert_eq!(producers(&recover(&mut store, 2)), all);
    }
}
