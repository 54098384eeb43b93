//! Marks, suspects, and who is blamed for a crash (`docs/formats/journal.md`, "Marks and suspects").

use super::{A, B, Build, Make, StoreUnderTest, recover, relocate, with_queues};
use crate::{BLAME_MS, Op, PASSED, RESERVE};
use alloc::vec;
use alloc::vec::Vec;
use packhorse_model::{EntryKey, Sequence, ShardId};

/// Number, earlier deliveries and crashes of each entry of the queue A at this start.
fn suspects<S: StoreUnderTest>(store: &mut S) -> Vec<(Sequence, u32, Option<u32>)> {
    let found = recover(store, 1);
    let (own, others): (Vec<_>, Vec<_>) = found.entries.values().partition(|e| e.key.queue == A);
    assert!(others.iter().all(|e| e.suspect.is_none()), "nothing is marked in another queue");
    own.into_iter().map(|e| (e.key.sequence, e.deliveries, e.suspect.map(|blame| blame.0))).collect()
}

/// Entries within a marked range, whenever they were stored, are suspects after a crash and have one delivery more; others are
/// not. Once: neither the next crash nor a mark of the range for others' sake tells anything new of them.
pub fn a_mark_makes_suspects_of_its_range_once<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    Build::default().enqueue(A, 255, b"x").enqueue(A, 256, b"x").submit(&mut store, 0);
    Build::default().op(Op::DispatchMark { queue: A, first: 256, count: 256 }).submit(&mut store, 0);
    Build::default().enqueue(A, 511, b"x").enqueue(A, 512, b"x").enqueue(B, 300, b"x").submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 0);
    let expected = [(255, 0, None), (256, 1, Some(0)), (511, 1, Some(0)), (512, 0, None)];
    assert_eq!(suspects(&mut store), expected);
    let mut store = store.crash(1, 1);
    assert_eq!(suspects(&mut store), expected);
    Build::default().op(Op::DispatchMark { queue: A, first: 256, count: 512 }).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 2);
    assert_eq!(suspects(&mut store), [(255, 0, None), (256, 1, Some(0)), (511, 1, Some(0)), (512, 1, Some(0))]);
}

fn exact(first: Sequence, last: Sequence, at_ms: u64) -> Op {
    Op::ExactMark { queue: A, first, last, at_ms }
}

/// A store with suspects 0 to 9 in the queue A, and an entry 300 that is none.
fn with_suspects<S: StoreUnderTest>(make: Make<'_, S>) -> S {
    let mut store = with_queues(make, 1);
    let mut build = Build::default().op(Op::DispatchMark { queue: A, first: 0, count: 256 }).enqueue(A, 300, b"x");
    for n in 0..10 {
        build = build.enqueue(A, n, b"x");
    }
    build.submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 3);
    let found = suspects(&mut store);
    assert!(found[..10].iter().all(|(_, deliveries, crashes)| (*deliveries, *crashes) == (1, Some(0))));
    assert_eq!(found[10], (300, 0, None));
    store
}

/// A crash soon after an exact mark counts for the suspects that it names, and one more delivery; another crash without takes
/// the count back. Acknowledged, returned or moved in between, an entry is no suspect.
pub fn an_exact_mark_names_what_is_blamed<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_suspects(make);
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    let key = |sequence| EntryKey { queue: A, sequence };
    Build::default().op(exact(0, 0, now_ms)).op(exact(2, 6, now_ms)).op(exact(300, 300, now_ms)).submit(&mut store, 0);
    Build::default().acknowledge(A, 3).submit(&mut store, 0);
    let back = Op::Redeliver { entry: key(4), deliveries: 1, attempts: 0, overlay: None };
    let moved = EntryKey { queue: B, sequence: 7 };
    Build::default().op(back).op(relocate(key(5), moved)).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 4);
    let untouched = [(7, 1, Some(0)), (8, 1, Some(0)), (9, 1, Some(0)), (300, 0, None)];
    let first = [(0, 2, Some(1)), (1, 1, Some(0)), (2, 2, Some(1)), (4, 1, None), (6, 2, Some(1))];
    assert_eq!(suspects(&mut store), [&first[..], &untouched].concat());
    // Again 0 and, twice, 1, as if it had gone once more; 2 and 6 not this time.
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    Build::default().op(exact(0, 1, now_ms)).submit(&mut store, 0);
    Build::default().op(exact(1, 1, now_ms)).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 5);
    let second = [(0, 3, Some(2)), (1, 2, Some(1)), (2, 2, Some(0)), (4, 1, None), (6, 2, Some(0))];
    assert_eq!(suspects(&mut store), [&second[..], &untouched].concat());
    // A crash right after takes all counts back, and nothing else.
    let mut store = store.crash(1, 6);
    let third = second.map(|(sequence, deliveries, crashes)| (sequence, deliveries, crashes.map(|_| 0)));
    assert_eq!(suspects(&mut store), [&third[..], &untouched].concat());
}

/// One that has passed is not blamed, and not cleared either: it counts as blamed once at most, and that it was there is counted
/// apart.
pub fn one_that_has_passed_keeps_its_count<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_suspects(make);
    let passed = 1 << 16;
    let expected = [[1, 1, 1], [2, 2, 1 | passed], [3, 1 | passed, 1 | (passed << 1)], [0, 0, 1 | (3 * passed)]];
    for (crash, counts) in expected.into_iter().enumerate() {
        let now_ms = store.handle(ShardId(0)).started_at_ms();
        let passes = |first| [exact(first, 2, now_ms), exact(first, 2, now_ms | PASSED)];
        let ops = match crash {
            0 => vec![exact(0, 2, now_ms)],
            1 => [vec![exact(0, 1, now_ms)], passes(2).into()].concat(),
            2 => [vec![exact(0, 0, now_ms)], passes(1).into()].concat(),
            _ => passes(2).into(),
        };
        ops.into_iter().fold(Build::default(), Build::op).submit(&mut store, 0);
        store.settle();
        store = store.crash(1, crash as u64);
        let found: Vec<u32> = suspects(&mut store)[..3].iter().map(|(.., blame)| blame.unwrap_or(99)).collect();
        assert_eq!(found, counts, "crash {crash}");
    }
}

/// Ten seconds after its exact mark a crash is not blamed on a suspect, also if nothing else happened in all that time.
pub fn an_exact_mark_of_some_age_blames_nobody<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_suspects(make);
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    Build::default().op(exact(0, 0, now_ms)).submit(&mut store, 0);
    store.settle();
    if !store.pass(9_000) {
        return;
    }
    Build::default().op(exact(1, 1, now_ms + 9_000)).submit(&mut store, 0);
    store.settle();
    store.pass(BLAME_MS - 9_000 + 100);
    let mut store = store.crash(1, 5);
    assert_eq!(suspects(&mut store)[..3], [(0, 2, Some(0)), (1, 2, Some(1)), (2, 1, Some(0))]);
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    Build::default().op(exact(1, 1, now_ms)).submit(&mut store, 0);
    store.settle();
    store.pass(3_600_000);
    let mut store = store.crash(1, 5);
    assert_eq!(suspects(&mut store)[..3], [(0, 2, Some(0)), (1, 3, Some(0)), (2, 1, Some(0))]);
}

/// After a stop in order nothing is a suspect. What may have been delivered, by any mark, has one delivery more.
pub fn a_stop_in_order_clears_all_suspects<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_suspects(make);
    let now_ms = store.handle(ShardId(0)).started_at_ms();
    // The first number of this run.
    let build = Build::default().op(exact(0, 1, now_ms)).enqueue(A, RESERVE, b"x");
    build.op(Op::DispatchMark { queue: A, first: RESERVE, count: 256 }).submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = suspects(&mut store);
    assert!(found.iter().all(|(.., crashes)| crashes.is_none()), "{found:?}");
    let deliveries: Vec<u32> = found.iter().map(|(_, deliveries, _)| *deliveries).collect();
    assert_eq!(deliveries, [2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1]);
    // The stop has ended all marks; also a second one right after it, and a crash.
    let mut store = store.restart(1).crash(1, 2);
    assert_eq!(suspects(&mut store), found);
}
