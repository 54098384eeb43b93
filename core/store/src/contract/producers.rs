//! What is known of producers that number their messages, and for how long ([`crate::Remember`]).

use super::remembered::{later, now_ms};
use super::{A, B, Build, Found, Make, StoreUnderTest, recover, with_queues};
use crate::{Op, RecoveredProducer};
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

/// Numbers come back as runs from the floor on, in the shard of their queue, as long as that is there. The floor only rises. A producer
/// that was not announced has its first number as its floor: it may have been forgotten.
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
        known(A, 3, 8, &[(8, 8)], t),
        known(B, 1, 0, &[(0, 0), (u64::MAX, u64::MAX)], t),
    ];
    for (start, shards) in [2, 2, 1, 2].into_iter().enumerate() {
        store = if start == 1 { store.restart(shards) } else { store.crash(shards, start as u64) };
        assert_eq!(producers(&recover(&mut store, shards)), all);
    }
    // A floor within a run cuts it, one beyond all leaves none.
    let build = Build::default().stored(A, 1, 6, 8, t + 3).opens(A, 3, 9, t).opens(B, 1, 3, t);
    build.submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    all[0] = known(A, 1, 6, &[(6, 9)], t + 3);
    all[2] = known(A, 3, 9, &[], t);
    all[3] = known(B, 1, 3, &[(u64::MAX, u64::MAX)], t);
    assert_eq!(producers(&recover(&mut store, 2)), all);
    Build::default().op(Op::QueueDelete { id: A }).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    assert_eq!(producers(&recover(&mut store, 2)), [all[3].clone()]);
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
    Build::default().stored(A, 1, 0, 4, t + keep).stored(B, 3, 0, 4, t + keep).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let mut all = alloc::vec![
        known(A, 1, 4, &[(4, 4)], t + keep),
        known(A, 2, 4, &[(4, 4)], t + keep),
        known(B, 3, 0, &[(4, 4)], t + keep),
    ];
    for ms in [keep, keep - 1_000, 2_000] {
        let passed;
        (store, passed) = later(store, ms);
        let now = now_ms(&mut store);
        all.retain(|p| p.used_ms + keep > now);
        assert_eq!(producers(&recover(&mut store, 1)), all);
        assert_eq!(passed && ms == 2_000, all.is_empty(), "after twice its time, and not before");
    }
}
