//! The contract of a store: rules that the journal, memory and every later store pass. Feature `contract`, for their tests.
//!
//! A store says how it is started, settled, stopped and crashed ([`StoreUnderTest`]); `contract_tests!` makes one test of each
//! rule. Must not know: how a store works.

use self::found::{Found, kind, not_in_memory, recover};
use crate::memory::mix;
use crate::{Batch, Event, LargeOp, Load, LoadLarge, Loaded, LoadedBody, Op, RESERVE, Remember, Store, Stored, Ticket};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{
    Content, ContentFormat, DeadLetter, EntryKey, Head, HeadFlags, LargeId, OnFull, Overlay, QueueId, QueueLimits,
    QueueName, QueueSettings, Reason, Sequence, ShardId,
};

/// So little is remembered that the rules' histories forget some; see [`StoreUnderTest::remember`].
pub const FEW: Remember = Remember {
    branches_ms: 600_000,
    branches_max: 40,
    sessions_ms: 500_000,
    sessions_max: 30,
    gaps_max: 5,
    producers_ms: 400_000,
    producers_max: 20,
    ids_ms: 300_000,
    ids_max: 25,
};

/// A store as the rules handle it.
pub trait StoreUnderTest: Sized {
    /// The handle of a shard.
    fn handle(&mut self, shard: ShardId) -> &mut dyn Store;

    /// Returns when everything that was submitted is durable and everything that was asked for is answered: each handle's
    /// next [`Store::poll`] tells it.
    fn settle(&mut self);

    /// An orderly stop, after which everything submitted is durable, and a start with this many shards.
    fn restart(self, shards: u16) -> Self;

    /// A crash, and a start with this many shards. What was not durable may be lost, as the rules for stores allow; `seed`
    /// chooses where there is a choice.
    fn crash(self, shards: u16, seed: u64) -> Self;

    /// Lets so much broker time pass, ms, with whatever the store does by itself meanwhile. False: its time cannot be moved, and
    /// rules that need it are checked with other stores.
    fn pass(&mut self, ms: u64) -> bool {
        let _ = ms;
        false
    }

    /// How much it remembers of what is completed. Low counts make it quick to check.
    fn remember(&self) -> Remember {
        Remember::default()
    }
}

/// Starts an empty store at its first start, with so many shards.
pub type Make<'a, S> = &'a mut dyn FnMut(u16) -> S;

/// One test for each rule: `contract_tests!(|shards| MyStore::new(shards));` in a test module.
#[macro_export]
macro_rules! contract_tests {
    ($make:expr) => {
        $crate::contract_tests! { @ $make;
            a_first_start_is_empty, tickets_count_by_one_and_durable_is_a_prefix, what_is_settled_survives_a_crash,
            a_batch_is_all_or_nothing_and_in_order, entries_come_back_as_they_were, acknowledged_is_gone,
            redeliver_keeps_numbers_and_overlay, relocate_moves_by_reference_across_shards,
            a_relocated_entry_is_in_one_place_at_any_crash, loads_are_ascending_complete_and_of_one_level,
            numbers_jump_at_each_start, queue_ids_are_not_used_again, settings_change, volatile_is_skipped,
            a_mark_makes_suspects_of_its_range_once, an_exact_mark_names_what_is_blamed,
            an_exact_mark_of_some_age_blames_nobody, one_that_has_passed_keeps_its_count,
            a_stop_in_order_clears_all_suspects, a_deleted_queue_takes_its_entries, large_files_are_whole_once_synced,
            an_aborted_large_file_leaves_nothing, recovery_comes_in_pages_queues_first, shards_may_change_between_starts,
            a_second_crash_right_after_the_first_changes_nothing, any_history_folds_to_the_same_facts,
            a_commit_happens_in_all_queues, a_commit_brings_back_what_was_returned, operations_ahead_belong_to_their_commit,
            operations_ahead_of_nothing_are_dropped_at_a_start, a_prepared_branch_survives,
            a_prepared_branch_follows_its_queues_to_other_shards, a_decision_commits_what_was_prepared,
            what_was_removed_comes_back_under_its_number, marks_do_not_touch_what_is_held,
            what_is_held_keeps_its_overlay, branches_are_apart, a_part_is_rolled_back_by_force,
            a_branch_without_parts_stays_in_doubt, a_heuristic_outcome_stays_until_it_is_forgotten,
            volatile_work_is_counted_and_lost, a_large_part_is_whole_and_in_order,
            a_crash_between_any_two_records_leaves_one_state, large_files_of_a_branch_stay_until_its_end,
            a_deleted_queue_takes_its_part_of_a_branch, a_part_in_a_deleted_queue_is_nothing,
            what_went_ahead_is_dropped_in_one_queue, a_crash_around_a_drop_leaves_one_state,
            files_of_what_never_will_be_go_at_once,
            outcomes_are_remembered, the_oldest_outcomes_are_forgotten_first, outcomes_are_forgotten_in_time,
            commits_of_sessions_are_remembered, a_session_has_so_many_gaps, the_sessions_used_last_are_remembered,
            sessions_are_forgotten_in_time,
            numbers_of_producers_are_known, a_number_comes_with_its_message, a_producer_has_so_many_gaps,
            the_producers_used_last_are_known, producers_are_forgotten_in_time, numbers_count_with_their_commit,
            numbers_of_branches_count_with_their_decision, ids_come_with_their_messages, the_last_ids_are_known,
            ids_in_transactions_count_with_them
        }
    };
    (@ $make:expr; $($rule:ident),+) => {
        $(
            #[test]
            fn $rule() {
                $crate::contract::$rule(&mut $make);
            }
        )+
    };
}

const A: QueueId = QueueId(10);
const B: QueueId = QueueId(11);

fn head(priority: u8) -> Head {
    Head {
        arrived_ms: 1_000,
        ttl_ms: 7,
        message_format: 3,
        priority,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    }
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).expect("the test's names are valid")
}

/// A batch under construction.
#[derive(Default)]
struct Build(Batch);

impl Build {
    fn queue(mut self, id: QueueId, text: &str) -> Build {
        let op = Op::QueueCreate { id, name: name(text), settings: QueueSettings::default(), reserved: RESERVE };
        self.0.push(op);
        self
    }

    fn enqueue(self, queue: QueueId, sequence: Sequence, body: &[u8]) -> Build {
        self.enqueue_at(queue, sequence, head(4), body, false)
    }

    fn enqueue_at(mut self, queue: QueueId, sequence: Sequence, head: Head, body: &[u8], volatile: bool) -> Build {
        // Long bodies travel as pieces of their own.
        let body =
            if body.len() < 512 { self.0.copy_body(body) } else { self.0.share_body(Bytes::copy_from_slice(body)) };
        self.0.push(Op::Enqueue { queue, sequence, head, content: Stored::Body(body), volatile });
        self
    }

    fn op(mut self, op: Op) -> Build {
        self.0.push(op);
        self
    }

    fn acknowledge(mut self, queue: QueueId, sequence: Sequence) -> Build {
        self.0.acknowledge(queue, sequence);
        self
    }

    fn submit<S: StoreUnderTest>(self, store: &mut S, shard: u16) -> Ticket {
        store.handle(ShardId(shard)).submit(self.0)
    }
}

fn events<S: StoreUnderTest>(store: &mut S, shard: u16) -> Vec<Event> {
    let mut out = Vec::new();
    store.handle(ShardId(shard)).poll(&mut out);
    out
}

fn load<S: StoreUnderTest>(store: &mut S, shards: u16, load: Load) -> Box<Loaded> {
    let shard = load.queue.owner(shards);
    store.handle(shard).load(load);
    store.settle();
    let answer = events(store, shard.0).into_iter().find_map(|e| match e {
        Event::Loaded(loaded) if loaded.load == load => Some(loaded),
        _ => None,
    });
    answer.expect("a load is answered")
}

/// The bodies of one level, read in pages of three.
fn bodies<S: StoreUnderTest>(store: &mut S, shards: u16, queue: QueueId, level: u8) -> Vec<(Sequence, Vec<u8>)> {
    let mut out: Vec<(Sequence, Vec<u8>)> = Vec::new();
    loop {
        let from = out.last().map_or(0, |(sequence, _)| sequence + 1);
        let loaded = load(store, shards, Load { queue, level, from, count: 3, bytes: 1 << 20 });
        if loaded.bodies.is_empty() {
            return out;
        }
        for LoadedBody { sequence, range } in loaded.bodies {
            assert!(out.last().is_none_or(|(last, _)| *last < sequence), "bodies come in ascending order");
            let (offset, length) = range.expect("the body is readable");
            out.push((sequence, loaded.buffer[offset as usize..(offset + length) as usize].to_vec()));
        }
    }
}

/// A store with the queues A and B, settled.
fn with_queues<S: StoreUnderTest>(make: Make<'_, S>, shards: u16) -> S {
    let mut store = make(shards);
    recover(&mut store, shards);
    Build::default().queue(A, "a").queue(B, "b").submit(&mut store, 0);
    store.settle();
    events(&mut store, 0);
    store
}

/// Nothing is there at first, and the first run is number 1.
pub fn a_first_start_is_empty<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = make(2);
    assert_eq!(recover(&mut store, 2), Found::default());
    for shard in 0..2 {
        assert_eq!(store.handle(ShardId(shard)).run(), 1);
        assert_eq!(store.handle(ShardId(shard)).next_ticket(), Ticket(1));
        assert_eq!(store.handle(ShardId(shard)).unflushed_bytes(), 0);
        assert!(events(&mut store, shard).is_empty(), "there is nothing to tell");
    }
}

/// Each shard counts its own tickets; what is told durable ascends to the last of them.
pub fn tickets_count_by_one_and_durable_is_a_prefix<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    for shard in 0..2u16 {
        let first = store.handle(ShardId(shard)).next_ticket();
        assert_eq!(first, Ticket(2 - u64::from(shard)));
        let mut told = Ticket(first.0 - 1);
        for n in 0..20u64 {
            let queue = if A.owner(2) == ShardId(shard) { A } else { B };
            assert_eq!(store.handle(ShardId(shard)).next_ticket(), Ticket(first.0 + n));
            let ticket = Build::default().enqueue(queue, n, b"x").submit(&mut store, shard);
            assert_eq!(ticket, Ticket(first.0 + n));
            for event in events(&mut store, shard) {
                let Event::Durable { up_to } = event else { panic!("nothing else was asked for: {event:?}") };
                assert!(told < up_to && up_to <= ticket, "durable ascends, and never runs ahead");
                told = up_to;
            }
        }
        store.settle();
        for event in events(&mut store, shard) {
            let Event::Durable { up_to } = event else { panic!("nothing else was asked for: {event:?}") };
            assert!(told < up_to, "durable ascends");
            told = up_to;
        }
        assert_eq!(told, Ticket(first.0 + 19), "everything submitted becomes durable");
        assert_eq!(store.handle(ShardId(shard)).unflushed_bytes(), 0);
    }
}

/// What was told durable is there after a crash.
pub fn what_is_settled_survives_a_crash<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    for n in 0..50 {
        Build::default().enqueue(A, n, format!("body {n}").as_bytes()).submit(&mut store, 0);
    }
    store.settle();
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    assert_eq!(found.sequences(A), (0..50).collect::<Vec<_>>());
    assert_eq!(store.handle(ShardId(0)).run(), 2);
    assert_eq!(store.handle(ShardId(0)).next_ticket(), Ticket(1), "tickets begin anew in each run");
    for (sequence, body) in bodies(&mut store, 1, A, 4) {
        assert_eq!(body, format!("body {sequence}").as_bytes());
    }
}

/// A crash keeps a prefix of each shard's batches, each of them whole.
pub fn a_batch_is_all_or_nothing_and_in_order<S: StoreUnderTest>(make: Make<'_, S>) {
    for seed in 0..12 {
        let mut store = with_queues(make, 2);
        let batches = 2 + mix(seed) % 9;
        for n in 0..batches {
            // Some are durable, the others under way.
            if n == batches / 2 {
                store.settle();
            }
            for (shard, queue) in [(A.owner(2).0, A), (B.owner(2).0, B)] {
                let build = Build::default().enqueue(queue, 3 * n, b"1").enqueue(queue, 3 * n + 1, &[b'2'; 700]);
                build.enqueue(queue, 3 * n + 2, b"").submit(&mut store, shard);
            }
        }
        let mut store = store.crash(2, seed);
        let found = recover(&mut store, 2);
        for queue in [A, B] {
            let kept = found.sequences(queue);
            assert_eq!(kept.len() % 3, 0, "no part of a batch (seed {seed}): {kept:?}");
            assert_eq!(kept, (0..kept.len() as u64).collect::<Vec<_>>(), "no hole (seed {seed})");
            assert!(kept.len() as u64 >= 3 * (batches / 2), "what was durable is there (seed {seed}): {kept:?}");
        }
    }
}

/// Head, content and length of an entry are those that were stored.
pub fn entries_come_back_as_they_were<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let heads: Vec<Head> = (0..12u8)
        .map(|n| Head {
            arrived_ms: u64::from(n) << 40,
            ttl_ms: u32::from(n) * 1_000_000,
            message_format: u32::MAX - u32::from(n),
            priority: n * 23,
            flags: HeadFlags(HeadFlags::PERSISTENT.0 | (n % 8)),
            format: ContentFormat::Amqp10,
        })
        .collect();
    let body = |n: usize| -> Vec<u8> { (0..n * n * 100).map(|i| (i * 7 + n) as u8).collect() };
    let mut build = Build::default();
    for (n, head) in heads.iter().enumerate() {
        build = build.enqueue_at(A, n as u64, *head, &body(n), false);
    }
    build.submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    for (n, head) in heads.iter().enumerate() {
        let entry = found.entry(A, n as u64);
        assert_eq!((entry.head, entry.content.length()), (*head, body(n).len() as u64));
        assert!(matches!(entry.content, Content::Body(r) if r.buffer == 0), "a recovered body is not in memory");
        assert_eq!((entry.deliveries, entry.attempts, entry.suspect, &entry.overlay), (0, 0, None, &None));
    }
    for level in 0..10 {
        for (sequence, bytes) in bodies(&mut store, 1, A, level) {
            assert_eq!(heads[sequence as usize].level(), level, "a load is of one level");
            assert_eq!(bytes, body(sequence as usize));
        }
    }
}

/// Ranges of acknowledgements remove what they name, in any order, and nothing else.
pub fn acknowledged_is_gone<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let mut build = Build::default();
    for n in 0..40 {
        build = build.enqueue(A, n, b"x").enqueue(B, n, b"y");
    }
    build.submit(&mut store, 0);
    // One by one out of order, a range with numbers that name nothing, and one in the batch of its own enqueue.
    Build::default().acknowledge(A, 7).acknowledge(A, 3).acknowledge(A, 4).submit(&mut store, 0);
    Build::default().op(Op::Acknowledge { queue: A, first: 30, last: 1000 }).submit(&mut store, 0);
    Build::default().enqueue(A, 2000, b"z").acknowledge(A, 2000).enqueue(A, 2001, b"z").submit(&mut store, 0);
    store.settle();
    let expected: Vec<Sequence> = (0..30).filter(|n| ![3, 4, 7].contains(n)).chain([2001]).collect();
    let loaded: Vec<Sequence> = bodies(&mut store, 1, A, 4).into_iter().map(|(s, _)| s).collect();
    assert!(expected.iter().all(|s| loaded.contains(s)), "what lives can be loaded");
    let mut store = store.crash(1, 3);
    let found = recover(&mut store, 1);
    assert_eq!(found.sequences(A), expected);
    assert_eq!(found.sequences(B).len(), 40, "another queue keeps its entries");
}

fn overlay(text: &str) -> Box<Overlay> {
    Box::new(Overlay { annotations: Bytes::copy_from_slice(text.as_bytes()), dead_letter: None })
}

/// The last word on deliveries and attempts holds; an overlay stays until another replaces it.
pub fn redeliver_keeps_numbers_and_overlay<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let redeliver = |sequence, deliveries, attempts, overlay| Op::Redeliver {
        entry: EntryKey { queue: A, sequence },
        deliveries,
        attempts,
        overlay,
    };
    let mut build = Build::default();
    for n in 0..4 {
        build = build.enqueue(A, n, b"x");
    }
    build.op(redeliver(1, 1, 1, Some(overlay("old")))).submit(&mut store, 0);
    Build::default().op(redeliver(1, 2, 1, None)).submit(&mut store, 0);
    Build::default().op(redeliver(2, 70_000, 3, Some(overlay("first")))).submit(&mut store, 0);
    Build::default().op(redeliver(2, 70_001, 4, Some(overlay("second")))).submit(&mut store, 0);
    Build::default().op(redeliver(3, 1, 1, None)).acknowledge(A, 3).submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    let facts = |sequence| {
        let e = found.entry(A, sequence);
        (e.deliveries, e.attempts, e.overlay.as_ref().map(|o| o.annotations.to_vec()))
    };
    assert_eq!(facts(0), (0, 0, None));
    assert_eq!(facts(1), (2, 1, Some(b"old".to_vec())));
    assert_eq!(facts(2), (70_001, 4, Some(b"second".to_vec())));
    assert_eq!(found.sequences(A), [0, 1, 2]);
    let mut store = store.crash(1, 0);
    assert_eq!(recover(&mut store, 1).entries, found.entries, "the next start finds the same");
}

fn dead_letter(sequence: Sequence) -> Box<Overlay> {
    Box::new(Overlay {
        annotations: Bytes::from_static(b"kept"),
        dead_letter: Some(Box::new(DeadLetter {
            reason: Reason::Rejected,
            detail: String::from("why: \u{20ac}"),
            address: name("a"),
            sequence,
            deliveries: 5,
            leaving: false,
        })),
    })
}

fn relocate(from: EntryKey, to: EntryKey) -> Op {
    Op::Relocate { from, to, head: head(9), deliveries: 2, attempts: 1, overlay: dead_letter(from.sequence) }
}

/// One record takes an entry out of one queue and puts it into another, on another shard, with the same body.
pub fn relocate_moves_by_reference_across_shards<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    let (from, to) = (EntryKey { queue: A, sequence: 1 }, EntryKey { queue: B, sequence: 77 });
    let build = Build::default().enqueue(A, 0, b"zero").enqueue(A, 1, &[b'1'; 5000]).enqueue(A, 2, b"two");
    build.submit(&mut store, A.owner(2).0);
    store.settle();
    Build::default().op(relocate(from, to)).submit(&mut store, A.owner(2).0);
    store.settle();
    assert_eq!(bodies(&mut store, 2, B, 9), [(77, vec![b'1'; 5000])], "the new owner can load it in the same run");
    let mut store = store.crash(2, 5);
    let found = recover(&mut store, 2);
    assert_eq!(found.sequences(A), [0, 2]);
    let there = found.entry(B, 77);
    assert_eq!((there.head, there.deliveries, there.attempts, there.suspect), (head(9), 2, 1, None));
    assert_eq!(there.overlay, Some(dead_letter(1)));
    assert_eq!(bodies(&mut store, 2, B, 9), [(77, vec![b'1'; 5000])]);
    // Acknowledged there, it is gone for good.
    Build::default().acknowledge(B, 77).submit(&mut store, B.owner(2).0);
    let mut store = store.restart(2);
    assert_eq!(recover(&mut store, 2).sequences(B), [0u64; 0]);
}

/// Whatever a crash keeps, a relocated entry is in exactly one of both queues.
pub fn a_relocated_entry_is_in_one_place_at_any_crash<S: StoreUnderTest>(make: Make<'_, S>) {
    for seed in 0..12 {
        let mut store = with_queues(make, 2);
        let shard = A.owner(2).0;
        let mut build = Build::default();
        for n in 0..8 {
            build = build.enqueue(A, n, format!("{n}").as_bytes());
        }
        build.submit(&mut store, shard);
        store.settle();
        for n in 0..8 {
            let (from, to) = (EntryKey { queue: A, sequence: n }, EntryKey { queue: B, sequence: 100 + n });
            Build::default().op(relocate(from, to)).submit(&mut store, shard);
        }
        let mut store = store.crash(2, seed);
        let found = recover(&mut store, 2);
        let moved = found.sequences(B).len() as u64;
        assert_eq!(found.sequences(B), (100..100 + moved).collect::<Vec<_>>());
        assert_eq!(found.sequences(A), (moved..8).collect::<Vec<_>>(), "in one place (seed {seed})");
        for (sequence, body) in bodies(&mut store, 2, B, 9) {
            assert_eq!(body, format!("{}", sequence - 100).as_bytes());
        }
    }
}

/// A load answers the live entries of one level, ascending and without a gap, within its limits but with at least one.
pub fn loads_are_ascending_complete_and_of_one_level<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    for n in 0..30u64 {
        let level = if n % 3 == 0 { 9 } else { 0 };
        let body = vec![n as u8; 100];
        Build::default().enqueue_at(A, n, head(level), &body, false).submit(&mut store, 0);
    }
    store.settle();
    let ask = |from, count, bytes| Load { queue: A, level: 9, from, count, bytes };
    let sequences = |loaded: Box<Loaded>| loaded.bodies.iter().map(|b| b.sequence).collect::<Vec<_>>();
    assert_eq!(sequences(load(&mut store, 1, ask(0, 100, 1 << 20))), (0..30).step_by(3).collect::<Vec<_>>());
    assert_eq!(sequences(load(&mut store, 1, ask(4, 2, 1 << 20))), [6, 9], "at most count, from the first at or above");
    assert_eq!(sequences(load(&mut store, 1, ask(0, 100, 350))), [0, 3, 6], "at most bytes");
    assert_eq!(sequences(load(&mut store, 1, ask(0, 100, 1))), [0], "at least one");
    assert_eq!(sequences(load(&mut store, 1, ask(28, 100, 1 << 20))), [0u64; 0], "nothing is above");
    // The same after a start, beside new entries.
    let mut store = store.restart(1);
    recover(&mut store, 1);
    Build::default().enqueue_at(A, RESERVE + 5, head(9), b"new", false).submit(&mut store, 0);
    store.settle();
    let all = sequences(load(&mut store, 1, ask(20, 100, 1 << 20)));
    assert_eq!(all, [21, 24, 27, RESERVE + 5]);
    // Several loads at once are all answered, and what was acknowledged need not be in them.
    Build::default().acknowledge(A, 21).submit(&mut store, 0);
    store.handle(ShardId(0)).load(ask(0, 2, 1 << 20));
    store.handle(ShardId(0)).load(Load { level: 0, ..ask(0, 2, 1 << 20) });
    store.settle();
    let answers = events(&mut store, 0).into_iter().filter(|e| matches!(e, Event::Loaded(_))).count();
    assert_eq!(answers, 2);
}

/// Each start gives a queue numbers above all that were reserved before, and a reservation counts once it is durable.
pub fn numbers_jump_at_each_start<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    for start in 1..4u64 {
        store = if start % 2 == 0 { store.restart(1) } else { store.crash(1, start) };
        let found = recover(&mut store, 1);
        let (_, _, next, reserved) = found.queues[&A];
        assert_eq!((next, reserved), (start * RESERVE, (start + 1) * RESERVE), "start {start}");
    }
    Build::default().op(Op::Reserve { queue: A, up_to: 9 * RESERVE }).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 9);
    let found = recover(&mut store, 1);
    assert_eq!((found.queues[&A].2, found.queues[&A].3), (9 * RESERVE, 10 * RESERVE));
    assert_eq!((found.queues[&B].2, found.queues[&B].3), (4 * RESERVE, 5 * RESERVE));
}

/// The lowest free id of a queue never falls, even if the queue with the highest id is deleted.
pub fn queue_ids_are_not_used_again<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    Build::default().queue(QueueId(20), "c").submit(&mut store, 0);
    Build::default().op(Op::QueueDelete { id: QueueId(20) }).submit(&mut store, 0);
    let mut store = store.restart(2);
    let found = recover(&mut store, 2);
    assert_eq!(found.queues.keys().copied().collect::<Vec<_>>(), [A, B]);
    assert_eq!(found.next_queue, 21);
    let mut store = store.crash(2, 0);
    assert_eq!(recover(&mut store, 2).next_queue, 21, "the next start knows it, too");
}

/// A queue has the name it was created with and the settings it was given last.
pub fn settings_change<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let limits = QueueLimits { max_messages: Some(3), max_bytes: Some(1 << 40), on_full: OnFull::Reject };
    let dead_letter = Some(name("grüße/€"));
    let settings = QueueSettings { default_durable: false, delivery_limit: 3, dead_letter, limits };
    Build::default().op(Op::QueueChange { id: A, settings: settings.clone() }).submit(&mut store, 0);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    assert_eq!((&found.queues[&A].0, &found.queues[&A].1), (&name("a"), &settings));
    assert_eq!(found.queues[&B].1, QueueSettings::default());
}

/// A volatile entry can be loaded in its run, and no start finds it.
pub fn volatile_is_skipped<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let passing = Head { flags: HeadFlags::default(), ..head(4) };
    let build = Build::default().enqueue_at(A, 0, passing, b"passes", true).enqueue(A, 1, b"stays");
    build.enqueue_at(A, 2, passing, b"moves", true).submit(&mut store, 0);
    store.settle();
    let all = bodies(&mut store, 1, A, 4);
    assert_eq!(all, [(0, b"passes".to_vec()), (1, b"stays".to_vec()), (2, b"moves".to_vec())]);
    let (from, to) = (EntryKey { queue: A, sequence: 2 }, EntryKey { queue: B, sequence: 0 });
    Build::default().op(relocate(from, to)).submit(&mut store, 0);
    store.settle();
    assert_eq!(bodies(&mut store, 1, B, 9), [(0, b"moves".to_vec())]);
    let mut store = store.restart(1);
    let found = recover(&mut store, 1);
    assert_eq!(found.sequences(A), [1]);
    assert_eq!(found.sequences(B), [0u64; 0], "it stays volatile where it moved");
}

/// With a queue its entries go; another queue of the same name is another queue.
pub fn a_deleted_queue_takes_its_entries<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    Build::default().enqueue(A, 0, b"x").enqueue(B, 0, b"y").submit(&mut store, 0);
    Build::default().op(Op::QueueDelete { id: A }).submit(&mut store, 0);
    Build::default().queue(QueueId(12), "a").enqueue(QueueId(12), 5, b"z").submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 0);
    let found = recover(&mut store, 1);
    assert_eq!(found.queues.keys().copied().collect::<Vec<_>>(), [B, QueueId(12)]);
    assert_eq!(found.entries.keys().map(|k| (k.queue, k.sequence)).collect::<Vec<_>>(), [(B, 0), (QueueId(12), 5)]);
    assert_eq!(bodies(&mut store, 1, QueueId(12), 4), [(5, b"z".to_vec())]);
}

/// A large message's file is told written and then synced; an entry that refers to it reads it back, after a crash too. It is gone
/// with its entry, not only after the next start.
pub fn large_files_are_whole_once_synced<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let id = LargeId(5);
    let chunk = |n: u8| Bytes::from(vec![n; 100_000]);
    store.handle(ShardId(0)).large(LargeOp::Begin { id });
    for n in 0..20 {
        store.handle(ShardId(0)).large(LargeOp::Chunk { id, bytes: chunk(n) });
    }
    store.handle(ShardId(0)).large(LargeOp::End { id });
    store.settle();
    let mut written = 0;
    let mut synced = None;
    for event in events(&mut store, 0) {
        match event {
            Event::LargeWritten { id: of, written: now } => {
                assert!(of == id && written < now && synced.is_none(), "written ascends, and then it is synced");
                written = now;
            }
            Event::LargeSynced { id: of, length } => {
                assert_eq!(of, id);
                synced = Some(length);
            }
            other => panic!("nothing else was asked for: {other:?}"),
        }
    }
    assert_eq!((written, synced), (2_000_000, Some(2_000_000)));
    let content = Stored::Large { id, length: 2_000_000 };
    Build::default()
        .op(Op::Enqueue { queue: A, sequence: 0, head: head(4), content, volatile: false })
        .submit(&mut store, 0);
    store.settle();
    assert!(bodies(&mut store, 1, A, 4).is_empty(), "a large message has no body to load");
    for start in 0..2 {
        if start > 0 {
            store = store.crash(1, start);
            let found = recover(&mut store, 1);
            assert_eq!(found.entry(A, 0).content, Content::Large { id, length: 2_000_000 });
        }
        for (token, offset, length, expected) in [
            (7, 0, 10, vec![0u8; 10]),
            (8, 99_995, 10, [[0u8; 5], [1u8; 5]].concat()),
            (9, 1_999_990, 100, vec![19; 10]),
        ] {
            store.handle(ShardId(0)).load_large(LoadLarge { token, id, offset, length });
            store.settle();
            let answer = events(&mut store, 0).into_iter().find_map(|e| match e {
                Event::LargeLoaded { token: of, bytes } if of == token => Some(bytes),
                _ => None,
            });
            assert_eq!(answer.expect("a load is answered").expect("the file is readable"), expected);
        }
    }
    Build::default().acknowledge(A, 0).submit(&mut store, 0);
    store.settle();
    store.handle(ShardId(0)).load_large(LoadLarge { token: 1, id, offset: 0, length: 1 });
    store.settle();
    assert!(events(&mut store, 0).contains(&Event::LargeLoaded { token: 1, bytes: None }), "it goes with its entry");
}

/// A file that was given up is not there, and its id is free of trouble for others.
pub fn an_aborted_large_file_leaves_nothing<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    store.handle(ShardId(0)).large(LargeOp::Begin { id: LargeId(1) });
    store.handle(ShardId(0)).large(LargeOp::Chunk { id: LargeId(1), bytes: Bytes::from_static(b"half") });
    store.handle(ShardId(0)).large(LargeOp::Abort { id: LargeId(1) });
    store.handle(ShardId(0)).large(LargeOp::Begin { id: LargeId(2) });
    store.handle(ShardId(0)).large(LargeOp::End { id: LargeId(2) });
    store.settle();
    let synced: Vec<_> = events(&mut store, 0)
        .into_iter()
        .filter_map(|e| match e {
            Event::LargeSynced { id, length } => Some((id, length)),
            _ => None,
        })
        .collect();
    assert_eq!(synced, [(LargeId(2), 0)], "an empty file is a file, an aborted one is not");
    let mut store = store.restart(1);
    recover(&mut store, 1);
    store.handle(ShardId(0)).load_large(LoadLarge { token: 1, id: LargeId(1), offset: 0, length: 4 });
    store.settle();
    assert!(events(&mut store, 0).contains(&Event::LargeLoaded { token: 1, bytes: None }));
}

/// Recovery answers in pages of at most the size asked for, and says when nothing is left.
pub fn recovery_comes_in_pages_queues_first<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let mut build = Build::default();
    for n in 0..25 {
        build = build.enqueue(if n % 2 == 0 { A } else { B }, n, b"x");
    }
    build.submit(&mut store, 0);
    let mut store = store.restart(1);
    let mut all = Vec::new();
    for page in 0.. {
        assert!(page < 100, "recovery comes to an end");
        let before = all.len();
        let more = store.handle(ShardId(0)).recover(4, &mut all);
        assert!(all.len() - before <= 4, "a page has at most the size asked for");
        if !more {
            break;
        }
    }
    let kinds: Vec<u8> = all.iter().map(|thing| kind(thing).0).collect();
    assert!(kinds.is_sorted(), "queues come first");
    assert_eq!(kinds.iter().filter(|k| **k == 1).count(), 25);
    assert!(!store.handle(ShardId(0)).recover(4, &mut all), "nothing comes after the end");
}

/// The count of shards may change between two starts: entries go to their queues' owners.
pub fn shards_may_change_between_starts<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    for (queue, body) in [(A, b"a"), (B, b"b")] {
        Build::default().enqueue(queue, 1, body).submit(&mut store, queue.owner(2).0);
    }
    store.settle();
    let mut before = None;
    for shards in [1, 3, 2, 1] {
        store = store.restart(shards);
        let found = recover(&mut store, shards);
        assert_eq!(found.entries.len(), 2);
        assert!(before.is_none_or(|b| b == found.entries), "the same entries, whoever owns them");
        before = Some(found.entries);
        assert_eq!(bodies(&mut store, shards, A, 4), [(1, b"a".to_vec())]);
        assert_eq!(bodies(&mut store, shards, B, 4), [(1, b"b".to_vec())]);
    }
}

/// What one start found, the next one finds, however soon the second crash comes.
pub fn a_second_crash_right_after_the_first_changes_nothing<S: StoreUnderTest>(make: Make<'_, S>) {
    for seed in 0..6 {
        let mut store = with_queues(make, 1);
        for n in 0..10 {
            Build::default().enqueue(A, n, b"x").submit(&mut store, 0);
        }
        let mut store = store.crash(1, seed);
        let first = recover(&mut store, 1);
        let mut store = store.crash(1, seed + 1);
        let second = recover(&mut store, 1);
        assert_eq!(first.entries, second.entries, "seed {seed}");
        let mut store = store.crash(1, seed + 2);
        Build::default().enqueue(A, second.queues[&A].3, b"later").submit(&mut store, 0);
        let mut store = store.restart(1);
        let third = recover(&mut store, 1);
        assert_eq!(third.entries.len(), second.entries.len() + 1, "what was cut off stays cut off (seed {seed})");
    }
}

mod found;
mod histories;
pub(crate) mod ids;
pub(crate) mod producers;
mod remembered;
mod suspects;
mod transactions;
pub use histories::any_history_folds_to_the_same_facts;
pub use ids::{ids_come_with_their_messages, ids_in_transactions_count_with_them, the_last_ids_are_known};
pub use producers::{
    a_number_comes_with_its_message, a_producer_has_so_many_gaps, numbers_count_with_their_commit,
    numbers_of_branches_count_with_their_decision, numbers_of_producers_are_known, producers_are_forgotten_in_time,
    the_producers_used_last_are_known,
};
pub use remembered::{
    a_session_has_so_many_gaps, commits_of_sessions_are_remembered, outcomes_are_forgotten_in_time,
    outcomes_are_remembered, sessions_are_forgotten_in_time, the_oldest_outcomes_are_forgotten_first,
    the_sessions_used_last_are_remembered,
};
pub use suspects::{
    a_mark_makes_suspects_of_its_range_once, a_stop_in_order_clears_all_suspects, an_exact_mark_names_what_is_blamed,
    an_exact_mark_of_some_age_blames_nobody, one_that_has_passed_keeps_its_count,
};
pub use transactions::dropped::{
    a_crash_around_a_drop_leaves_one_state, files_of_what_never_will_be_go_at_once,
    what_went_ahead_is_dropped_in_one_queue,
};
pub use transactions::{
    a_branch_without_parts_stays_in_doubt, a_commit_brings_back_what_was_returned, a_commit_happens_in_all_queues,
    a_crash_between_any_two_records_leaves_one_state, a_decision_commits_what_was_prepared,
    a_deleted_queue_takes_its_part_of_a_branch, a_heuristic_outcome_stays_until_it_is_forgotten,
    a_large_part_is_whole_and_in_order, a_part_in_a_deleted_queue_is_nothing, a_part_is_rolled_back_by_force,
    a_prepared_branch_follows_its_queues_to_other_shards, a_prepared_branch_survives, branches_are_apart,
    large_files_of_a_branch_stay_until_its_end, marks_do_not_touch_what_is_held,
    operations_ahead_belong_to_their_commit, operations_ahead_of_nothing_are_dropped_at_a_start,
    volatile_work_is_counted_and_lost, what_is_held_keeps_its_overlay, what_was_removed_comes_back_under_its_number,
};
