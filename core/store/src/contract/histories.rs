//! Random histories: whatever happened, a crash leaves the fold of some prefix of each shard's batches.

mod transactor;

use super::ids::duplicate;
use super::producers::producer;
use super::{Build, Found, Make, StoreUnderTest, bodies, dead_letter, head, overlay, recover};
use crate::image::Image;
use crate::memory::mix;
use crate::{Load, Op, Recovered, RecoveredBranch, RecoveredWork, Ticket};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{EntryKey, QueueId, Sequence, ShardId};
use transactor::{Transactor, transact};

/// Two queues for each shard, and one with a line for each batch, which tells how many batches survived.
const SHARDS: u16 = 2;
const QUEUES: [[QueueId; 3]; 2] = [[QueueId(2), QueueId(4), QueueId(6)], [QueueId(3), QueueId(5), QueueId(7)]];

/// A generator for the test's choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % n
    }
}

/// What a history may do next.
#[derive(Default)]
struct State {
    /// Where each queue's numbers go on; the lines of the third queue count batches.
    next: [[Sequence; 3]; 2],
    /// What each queue has and nobody has removed.
    alive: [[Vec<Sequence>; 3]; 2],
    /// Entries that came or changed, and it may not be durable.
    fresh: BTreeSet<EntryKey>,
    /// Entries that are there once a record of the other shard is durable.
    later: Vec<EntryKey>,
    transactor: Transactor,
}

impl State {
    /// A run begins, with what was found.
    fn begin(&mut self, found: &Found, run: u64, now_ms: u64) {
        let transactor = Transactor::new(found, run, now_ms, &self.transactor);
        *self = State { transactor, ..State::default() };
        self.next = QUEUES.map(|ids| ids.map(|id| found.queues.get(&id).map_or(0, |q| q.2)));
        let held = found.parts.iter().flat_map(|((_, queue), part)| {
            part.iter().filter_map(|work| match work {
                RecoveredWork::Enqueue { .. } | RecoveredWork::Number { .. } | RecoveredWork::DuplicateId(_) => None,
                RecoveredWork::Acknowledge { sequence, .. } => Some((*queue, *sequence)),
            })
        });
        let held: BTreeSet<(QueueId, Sequence)> = held.collect();
        let alive = |id| found.sequences(id).into_iter().filter(|s| !held.contains(&(id, *s))).collect();
        self.alive = QUEUES.map(|ids| ids.map(alive));
    }
}

/// A batch as it was submitted.
#[derive(Clone)]
struct Said {
    shard: u16,
    ops: Vec<Op>,
    pieces: Vec<Bytes>,
}

/// Random batches over two shards with crashes and stops between; after each start the store is compared with the fold of
/// what survived.
pub fn any_history_folds_to_the_same_facts<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut met = [0usize; 9];
    for seed in 0..24 {
        history(make, seed, &mut met);
    }
    assert!(!met.contains(&0), "histories meet all that there is of transactions and producers: {met:?}");
}

/// Counts what a start tells of transactions and producers.
fn meet(found: &Found, met: &mut [usize; 9]) {
    let branches = found.branches.values();
    let doubt = branches.clone().filter(|b| b.decided.is_none());
    let (over, parts) = (branches.clone().filter(|b| b.decided.is_some()).count(), |b: &RecoveredBranch| b.parts.len());
    let lost = doubt.clone().filter(|b| !b.lost.is_empty() && parts(b) > 0).count();
    let both = doubt.filter(|b| b.parts.iter().any(|(queue, _)| QUEUES[1].contains(queue)) && parts(b) > 1).count();
    let volatile = branches.filter(|b| b.volatile > 0).count();
    let runs = found.producers.values().filter(|producer| producer.runs.len() > 1).count();
    let work = found.parts.values().flatten();
    let staged = work.filter(|work| matches!(work, RecoveredWork::Number { .. })).count();
    let counts =
        [over, lost, both, volatile, found.completed.len(), found.sessions.len(), runs, staged, found.ids.len()];
    met.iter_mut().zip(counts).for_each(|(met, count)| *met += count);
}

fn history<S: StoreUnderTest>(make: Make<'_, S>, seed: u64, met: &mut [usize; 9]) {
    let mut dice = Dice(seed);
    let mut store = make(SHARDS);
    recover(&mut store, SHARDS);
    let mut image = Image::new(store.remember());
    image.start(None, store.handle(ShardId(0)).started_at_ms());
    let mut build = Build::default();
    for (n, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        // Ids are drawn ascending.
        build = build.queue(QUEUES[n % 2][n / 2], name);
    }
    let (ops, pieces) = build.0.clone().into_parts();
    image.apply(&ops, &pieces);
    build.submit(&mut store, 0);
    store.settle();
    let mut state = State::default();
    for run in 0..4u64 {
        state.begin(&facts(&image), store.handle(ShardId(0)).run(), store.handle(ShardId(0)).started_at_ms());
        if run == 0 {
            state.next = [[0; 3]; 2];
        }
        let first_line = state.next;
        let mut said: Vec<Said> = Vec::new();
        let mut settled = [0u64; 2];
        for n in 0..16 {
            let shard = dice.below(2) as usize;
            let build = batch(&mut dice, shard, &mut state);
            let (ops, pieces) = build.0.clone().into_parts();
            said.push(Said { shard: shard as u16, ops, pieces });
            let ticket = build.submit(&mut store, shard as u16);
            assert!(ticket > Ticket(0));
            if dice.below(5) == 0 || n == 3 {
                store.settle();
                state.settled();
                settled = [0, 1].map(|shard| said.iter().filter(|s| s.shard == shard).count() as u64);
            }
        }
        let orderly = dice.below(4) == 0;
        store = if orderly { store.restart(SHARDS) } else { store.crash(SHARDS, dice.below(1 << 40)) };
        let found = recover(&mut store, SHARDS);
        let mut kept = [0u64; 2];
        for shard in 0..2 {
            let lines = found.sequences(QUEUES[shard][2]);
            kept[shard] = lines.iter().filter(|s| **s >= first_line[shard][2]).count() as u64;
            let submitted = said.iter().filter(|s| usize::from(s.shard) == shard).count() as u64;
            let least = if orderly { submitted } else { settled[shard] };
            assert!((least..=submitted).contains(&kept[shard]), "seed {seed} run {run}: {kept:?} of {submitted}");
        }
        let mut seen = [0u64; 2];
        for batch in &said {
            let shard = usize::from(batch.shard);
            seen[shard] += 1;
            if seen[shard] <= kept[shard] {
                image.apply(&batch.ops, &batch.pieces);
            }
        }
        // Exact marks are young at whatever time the crash comes.
        image.start((!orderly).then_some(0), store.handle(ShardId(0)).started_at_ms());
        let expected = facts(&image);
        meet(&found, met);
        assert_eq!(found, expected, "seed {seed} run {run}, kept {kept:?}");
        for id in QUEUES.iter().flatten() {
            for level in [0, 4, 9] {
                let all = image.load(Load { queue: *id, level, from: 0, count: u32::MAX, bytes: u32::MAX });
                let expected: Vec<(Sequence, Vec<u8>)> = all
                    .bodies
                    .iter()
                    .filter_map(|b| {
                        let (offset, length) = b.range?;
                        Some((b.sequence, all.buffer[offset as usize..(offset + length) as usize].to_vec()))
                    })
                    .collect();
                assert_eq!(bodies(&mut store, SHARDS, *id, level), expected, "seed {seed} run {run} queue {id}");
            }
        }
    }
}

/// A random batch of a shard: enqueues, acknowledgements, redeliveries, moves within the shard, marks, transactions, and its line.
fn batch(dice: &mut Dice, shard: usize, state: &mut State) -> Build {
    let mut build = Build::default();
    let draw = |state: &mut State, queue: usize| {
        state.next[shard][queue] += 1;
        state.next[shard][queue] - 1
    };
    for _ in 0..dice.below(6) {
        let queue = dice.below(2) as usize;
        let id = QUEUES[shard][queue];
        let pick = match state.alive[shard][queue].len() as u64 {
            0 => None,
            n => Some(dice.below(n) as usize),
        };
        match (dice.below(13), pick) {
            (0 | 1, Some(at)) => build = build.acknowledge(id, state.alive[shard][queue].remove(at)),
            (2, Some(at)) => {
                let entry = EntryKey { queue: id, sequence: state.alive[shard][queue][at] };
                let overlay = (dice.below(2) == 0).then(|| overlay("some"));
                let deliveries = dice.below(9) as u32;
                build = build.op(Op::Redeliver { entry, deliveries, attempts: deliveries / 2, overlay });
                state.fresh.insert(entry);
            }
            (3, Some(at)) => {
                let from = EntryKey { queue: id, sequence: state.alive[shard][queue].remove(at) };
                let to = EntryKey { queue: QUEUES[shard][1 - queue], sequence: draw(state, 1 - queue) };
                state.alive[shard][1 - queue].push(to.sequence);
                state.fresh.insert(to);
                let overlay = dead_letter(from.sequence);
                build = build.op(Op::Relocate { from, to, head: head(9), deliveries: 1, attempts: 0, overlay });
            }
            (4, Some(at)) => {
                let first = state.alive[shard][queue][at] / 256 * 256;
                build = build.op(Op::DispatchMark { queue: id, first, count: 256 });
            }
            (5, Some(at)) => {
                let (first, at_ms) = (state.alive[shard][queue][at], u64::MAX / 2);
                build = build.op(Op::ExactMark { queue: id, first, last: first + dice.below(3), at_ms });
            }
            (6..=8, _) => build = transact(dice, state, shard, build),
            (9, _) => {
                let floor = dice.below(8);
                let (stored, at_ms) = ((dice.below(4) > 0).then(|| dice.below(24)), state.transactor.now_ms());
                let producer = producer(dice.below(3));
                build = build.op(Op::Producer { queue: id, producer, floor, stored, at_ms });
                if dice.below(2) == 0 {
                    build = build.op(Op::DuplicateId { queue: id, id: duplicate(dice.below(40)), at_ms });
                }
            }
            _ => {
                let sequence = draw(state, queue);
                let body = vec![sequence as u8; [0, 10, 900][dice.below(3) as usize]];
                let volatile = dice.below(6) == 0;
                build = build.enqueue_at(id, sequence, head([0, 4, 9][dice.below(3) as usize]), &body, volatile);
                state.alive[shard][queue].push(sequence);
                state.fresh.insert(EntryKey { queue: id, sequence });
            }
        }
    }
    let line = draw(state, 2);
    build.enqueue(QUEUES[shard][2], line, b"line")
}

/// What a start over this image finds.
fn facts(image: &Image) -> Found {
    let mut found = Found::default();
    let things = image.recover_queues().into_iter().chain(image.recover_transactions(|_| true, true));
    things.for_each(|thing| found.add(thing));
    let mut after = None;
    while let Some(entry) = image.recover_after(after, |id| id.owner(SHARDS) <= ShardId(SHARDS)) {
        after = Some(entry.key);
        found.add(Recovered::Entry(Box::new(entry)));
    }
    found
}
