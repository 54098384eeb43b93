//! Checkpoints inside the crate: what the walk tells, slice by slice, and what a start makes of it.

mod transactions;

use super::header::SUMMED;
use super::*;
use crate::bytes_io::Draw;
use crate::fold::Fold;
use crate::index::{Index, Place};
use crate::record::{Encoded, End, start_meta};
use bytes::Bytes;
use packhorse_model::{
    ContentFormat, DeadLetter, EntryKey, Head, HeadFlags, LargeId, Overlay, QueueId, QueueLimits, QueueName,
    QueueSettings, Reason, ShardId, TxnId, Xid,
};
use packhorse_store::{
    Ahead, BLAME_MS, Batch, Decide, Figures, Load, Op, PASSED, Prepare, RESERVE, Recovered, Remember,
    Stored as Content, TxOps, TxnOp, TxnPart,
};
use std::collections::BTreeMap;

/// Broker time of crashes, ms.
const CRASH_MS: u64 = 50_000;

/// So little that much is forgotten.
const REMEMBER: Remember = Remember {
    branches_ms: 60,
    branches_max: 3,
    sessions_ms: 60,
    sessions_max: 2,
    gaps_max: 1,
    producers_ms: 60,
    producers_max: 3,
    ids_ms: 60,
    ids_max: 4,
};

/// The block of the third start.
const FIRST: usize = 12;

/// Metadata of a block, and where its content begins.
type Block = (Vec<u8>, Place);

/// Random blocks of all operations; four blocks a segment.
struct History {
    draw: Draw,
    next: BTreeMap<u64, u64>,
    live: Vec<EntryKey>,
    queues: u64,
    transactions: transactions::Transactions,
}

impl History {
    fn below(&mut self, n: u64) -> u64 {
        self.draw.next() % n
    }

    fn new_key(&mut self, queue: QueueId) -> EntryKey {
        let next = self.next.get_mut(&queue.0).expect("it is a queue");
        // Gaps are legal.
        *next += 1 + self.draw.next() % 3 / 2;
        EntryKey { queue, sequence: *next }
    }

    fn some_queue(&mut self) -> QueueId {
        let at = self.below(self.next.len() as u64) as usize;
        QueueId(*self.next.keys().nth(at).expect("there are as many"))
    }

    fn head(&mut self) -> Head {
        Head {
            arrived_ms: self.draw.next(),
            ttl_ms: 1,
            message_format: 0,
            priority: [4, 4, 0, 9][self.below(4) as usize],
            flags: HeadFlags::PERSISTENT,
            format: ContentFormat::Amqp10,
        }
    }

    fn overlay(&mut self) -> Box<Overlay> {
        let annotations = Bytes::from(vec![self.draw.next() as u8; 5]);
        let dead_letter = (self.below(2) == 0).then(|| {
            Box::new(DeadLetter {
                reason: Reason::Rejected,
                detail: "why".into(),
                address: QueueName::new("orders").unwrap(),
                sequence: 1,
                deliveries: 2,
                leaving: self.below(4) == 0,
            })
        });
        Box::new(Overlay { annotations, dead_letter })
    }

    fn settings(&mut self) -> QueueSettings {
        let max_messages = (self.below(2) == 0).then(|| self.below(100));
        let limits = QueueLimits { max_messages, ..QueueLimits::default() };
        QueueSettings { delivery_limit: self.below(100) as u32, limits, ..QueueSettings::default() }
    }

    fn op(&mut self, batch: &mut Batch) {
        let what = if self.next.is_empty() { 99 } else { self.below(160) };
        let entry = match self.live.len() as u64 {
            0 => EntryKey { queue: QueueId(1), sequence: 1 },
            n => self.live[self.draw.next() as usize % n as usize],
        };
        match what {
            0..40 => {
                let queue = self.some_queue();
                let (key, head, volatile) = (self.new_key(queue), self.head(), self.below(8) == 0);
                let content = match self.below(8) {
                    0 => Content::Large { id: LargeId(self.draw.next()), length: 5 },
                    n => Content::Body(batch.copy_body(&vec![n as u8; n as usize])),
                };
                batch.push(Op::Enqueue { queue, sequence: key.sequence, head, content, volatile });
                self.live.push(key);
            }
            40..58 => {
                let (queue, first, last) = (entry.queue, entry.sequence, entry.sequence + self.below(3));
                batch.push(Op::Acknowledge { queue, first, last });
                self.live.retain(|k| k.queue != queue || k.sequence < first || k.sequence > last);
            }
            58..72 => {
                let (deliveries, attempts) = (self.below(9) as u32, 1);
                let overlay = (self.below(3) == 0).then(|| self.overlay());
                batch.push(Op::Redeliver { entry, deliveries, attempts, overlay });
            }
            72..85 => {
                let to = self.some_queue();
                let (to, head, overlay) = (self.new_key(to), self.head(), self.overlay());
                batch.push(Op::Relocate { from: entry, to, head, deliveries: 3, attempts: 2, overlay });
                if self.live.contains(&entry) {
                    self.live.retain(|key| *key != entry);
                    self.live.push(to);
                }
            }
            85..88 => {
                batch.push(Op::DispatchMark { queue: entry.queue, first: entry.sequence / 8 * 8, count: 24 });
            }
            88..92 | 126.. => {
                let first = entry.sequence.saturating_sub(self.below(40));
                let young = CRASH_MS - BLAME_MS + 1;
                let at_ms = [0, young | PASSED, young][self.below(8).min(2) as usize];
                batch.push(Op::ExactMark { queue: entry.queue, first, last: entry.sequence, at_ms });
            }
            92..94 => batch.push(Op::QueueChange { id: entry.queue, settings: self.settings() }),
            94..=98 if self.below(2) == 0 => self.numbered(batch),
            94..96 => {
                let up_to = self.draw.next() % (5 * RESERVE);
                batch.push(Op::Reserve { queue: entry.queue, up_to });
            }
            100..126 => self.transaction(batch),
            96 if self.next.len() > 1 => {
                let id = self.some_queue();
                self.next.remove(&id.0);
                self.live.retain(|key| key.queue != id);
                batch.push(Op::QueueDelete { id });
            }
            _ => {
                self.queues += 1;
                let (id, settings) = (QueueId(self.queues), self.settings());
                let name = QueueName::new(&format!("queue {}", id.0)).unwrap();
                self.next.insert(id.0, 0);
                batch.push(Op::QueueCreate { id, name, settings, reserved: RESERVE });
            }
        }
    }

    fn block(&mut self, n: u32) -> Block {
        let mut meta = Vec::new();
        for _ in 0..=self.below(2) {
            let mut batch = Batch::default();
            for _ in 0..self.below(6) {
                self.op(&mut batch);
            }
            meta.extend(Encoded::new(batch).meta);
        }
        (meta, place(n))
    }
}

fn place(n: u32) -> Place {
    Place { segment: n / 4 + 1, offset: n % 4 * 4096 + 4096 }
}

/// The items of a whole checkpoint: slices of `most` entries, between which `between` happens.
fn take(index: &mut Index, boundary: Place, most: usize, mut between: impl FnMut(&mut Index)) -> (Vec<u8>, Walk) {
    let mut walk = Walk::new(index, boundary);
    let mut out = Vec::new();
    while !walk.done() {
        walk.slice(index, &mut out, most);
        if !walk.done() {
            between(index);
        }
    }
    walk.moved(index, &mut out);
    index.watch(false);
    let held = walk.segments().map(|id| {
        let (listed, whole) = walk.held(id);
        Held { id, salt: 7, end: 1, listed, whole }
    });
    put_segments(&mut out, held.collect::<Vec<_>>().into_iter());
    (out, walk)
}

/// The fold of a checkpoint, the blocks that it covers, and those behind them.
fn fold(next_queue: u64, items: &[u8], covered: &[Block], tail: &[Block]) -> Fold {
    let mut fold = Fold::new(REMEMBER);
    let held = fold.load(next_queue, &[items]).unwrap();
    let mut found = BTreeMap::new();
    for (meta, content) in covered {
        // A segment that the checkpoint does not name is gone.
        if held.iter().any(|h| h.id == content.segment) {
            *found.entry(content.segment).or_insert(0) += fold.fill(meta, *content).unwrap();
        }
    }
    for held in held {
        assert_eq!(found.remove(&held.id).unwrap_or(0), held.listed, "in segment {}", held.id);
    }
    tail.iter().for_each(|(meta, content)| fold.apply(meta, *content).unwrap());
    fold
}

/// What queues are told, and every place.
fn facts(fold: Fold, queues: u64) -> (Vec<Vec<Recovered>>, Vec<String>, Index) {
    let mut index = Index::new(1);
    let (recovered, _) = fold.finish(&mut index, 2, 0);
    let mut places = Vec::new();
    for queue in (1..=queues).map(QueueId) {
        for level in [0, 4, 9] {
            let load = Load { queue, level, from: 0, count: 100_000, bytes: u32::MAX };
            places.push(format!("{queue} {level} {:?}", index.find(&load, |_| false)));
        }
    }
    (recovered, places, index)
}

/// A start after a crash.
fn start(run: u32) -> Vec<u8> {
    start_meta(run, RESERVE, End::Crash(CRASH_MS))
}

#[test]
fn a_checkpoint_and_the_blocks_behind_it_are_the_whole_log() {
    let (mut moved, mut noted, mut between, mut behind, mut crashes, mut passed) = (0, 0, 0, 0, [0; 3], 0);
    // Items of transactions, by kind; and what was recovered of them.
    let (mut items_of, mut told) = ([0; 7], [0; 6]);
    for seed in 0..640 {
        let mut history = History { draw: Draw::new(seed), ..empty() };
        // Two runs that ended in a crash, and the start after; the third is the one in which the checkpoint is taken.
        let starts = [(2, 6), (3, FIRST), (4, 39)];
        let blocks = (0..40).map(|n| match starts.iter().find(|(_, at)| *at == n) {
            Some((run, _)) => {
                history.start();
                (start(*run), place(n as u32))
            }
            None => history.block(n as u32),
        });
        let all: Vec<Block> = blocks.collect();
        let covered = FIRST + 1 + history.below(39 - FIRST as u64) as usize;
        let most = 1 + history.below(4) as usize;
        let mut before = Fold::new(REMEMBER);
        all[..=FIRST].iter().for_each(|(meta, content)| before.apply(meta, *content).unwrap());
        // Transactions are taken in by slices, some of which come between those of the checkpoint.
        let mut slices = Draw::new(seed + 1);
        let mut index = Index::new(2);
        index.set_slice(1 + (slices.next() % 3) as usize);
        before.finish(&mut index, 2, 0);
        let mut applied = FIRST + 1;
        let take_in = |index: &mut Index| {
            index.catch_up(usize::MAX, &mut Vec::new()).unwrap();
        };
        let apply = |index: &mut Index, applied: &mut usize| {
            if let Some((meta, content)) = all[..39].get(*applied) {
                take_in(index);
                index.apply(meta, *content, &mut Vec::new()).unwrap();
                *applied += 1;
            }
        };
        (FIRST + 1..covered).for_each(|_| apply(&mut index, &mut applied));
        take_in(&mut index);
        let (items, _) = take(&mut index, place(covered as u32), most, |index| {
            behind += usize::from(index.is_behind());
            if history.below(3) == 0 {
                apply(index, &mut applied);
                between += 1;
            } else if slices.next().is_multiple_of(2) {
                index.catch_up(1, &mut Vec::new()).unwrap();
            }
        });
        let mut read = Items::new(&items);
        while let Some(item) = read.next().unwrap() {
            moved += usize::from(matches!(item, Item::Moved { .. }));
            noted += usize::from(matches!(item, Item::Numbers { .. } | Item::Entry { .. }));
            match item {
                Item::Branch { .. } => items_of[0] += 1,
                Item::Ahead { .. } => items_of[1] += 1,
                Item::Operations { .. } => items_of[2] += 1,
                Item::Completed { .. } => items_of[3] += 1,
                Item::Session { .. } => items_of[4] += 1,
                Item::Producer { .. } => items_of[5] += 1,
                Item::DuplicateId { .. } => items_of[6] += 1,
                _ => {}
            }
        }
        // A queue made in a block behind counts as well when that block is taken in.
        let next_queue = index.next_queue();
        let mut whole = Fold::new(REMEMBER);
        all.iter().for_each(|(meta, content)| whole.apply(meta, *content).unwrap());
        let (expected, places, _) = facts(whole, history.queues);
        for thing in expected.iter().flatten() {
            match thing {
                Recovered::BranchOp(_) => told[0] += 1,
                Recovered::Branch(_) => told[1] += 1,
                Recovered::Completed { .. } => told[2] += 1,
                Recovered::Session(_) => told[3] += 1,
                Recovered::Producer(_) => told[4] += 1,
                Recovered::DuplicateId { .. } => told[5] += 1,
                _ => {}
            }
            if let Recovered::Entry(entry) = thing
                && let Some(n) = entry.suspect
            {
                crashes[(n.crashes() as usize).min(2)] += 1;
                passed += u64::from(n.passed() > 0);
            }
        }
        let again = fold(next_queue, &items, &all[..covered], &all[covered..]);
        let (found, found_places, mut index) = facts(again, history.queues);
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(found_places, places, "seed {seed}");
        // What a start has made of it makes the same checkpoint again.
        let (items, walk) = take(&mut index, place(40), most, |_| {});
        for segment in 0..12 {
            let (listed, whole) = walk.held(segment);
            assert_eq!(index.live_in(segment), listed + whole, "seed {seed}");
        }
        let again = fold(index.next_queue(), &items, &all, &[]);
        assert_eq!(facts(again, history.queues).0, expected, "seed {seed}, the second");
    }
    assert!(items_of.iter().all(|n| *n > 200), "items of transactions, by kind: {items_of:?}");
    assert!(told.iter().all(|n| *n > 300), "operations, branches, completed ones, sessions, producers: {told:?}");
    assert!(moved > 100 && noted > 1000 && between > 1000 && behind > 100, "{moved} {noted} {between} {behind}");
    assert!(
        crashes[0] > 500 && crashes[1] > 30 && crashes[2] > 0 && passed > 0,
        "suspects that were blamed so often: {crashes:?}, and that passed: {passed}"
    );
}

#[test]
fn a_long_line_costs_a_few_bytes() {
    let mut index = Index::new(1);
    let mut batch = Batch::default();
    let (queue, name) = (QueueId(1), QueueName::new("long").unwrap());
    batch.push(Op::QueueCreate { id: queue, name, settings: QueueSettings::default(), reserved: RESERVE });
    for sequence in 0..100_000 {
        let content = Content::Body(batch.copy_body(b"x"));
        let head = Head { priority: 4, ..History::head(&mut empty()) };
        batch.push(Op::Enqueue { queue, sequence, head, content, volatile: false });
    }
    index.apply(&Encoded::new(batch).meta, place(0), &mut Vec::new()).unwrap();
    let (items, _) = take(&mut index, place(1_000_000), 8192, |_| {});
    assert!(items.len() < 1000, "{} bytes", items.len());
    // Every other one is gone: the worst that runs can meet.
    let mut batch = Batch::default();
    (0..50_000).for_each(|n| batch.acknowledge(queue, 2 * n));
    index.apply(&Encoded::new(batch).meta, place(4), &mut Vec::new()).unwrap();
    let (items, _) = take(&mut index, place(1_000_000), 8192, |_| {});
    assert!(items.len() < 101_000, "{} bytes for 50,000", items.len());
}

fn empty() -> History {
    let transactions = transactions::Transactions::default();
    History { draw: Draw::new(0), next: BTreeMap::new(), live: Vec::new(), queues: 0, transactions }
}

fn header() -> Header {
    let place = Place { segment: 6, offset: 7 };
    let moment =
        Moment { store: [3; 16], run: 3, block: 4, chain: 5, place, broker_ms: 9, wall_ms: -10, stopped: true };
    Header { moment, number: 1, salt: 2, seen: 8, next_queue: 11, length: 12, sum: 13 }
}

#[test]
fn a_header_is_read_back_and_each_flipped_bit_is_noticed() {
    let bytes = header().encode();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(Header::decode(&bytes), Some(Ok(header())));
    for bit in 0..(SUMMED + 4) * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::decode(&bad), None, "bit {bit}");
    }
    assert_eq!(Header::decode(&bytes[..SUMMED]), None);
    let mut other = bytes;
    other[8] = 9;
    let sum = crc(0, &other[..SUMMED]);
    other[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Header::decode(&other), Some(Err(9)));
}

#[test]
fn sections_are_whole_and_in_order_or_not_there() {
    let mut bytes = Vec::new();
    let mut sum = header().salt;
    for items in [&b"12345678"[..], b"", b"abcdefghijklmnop"] {
        let mut section = vec![0; SECTION_HEADER];
        section.extend_from_slice(items);
        sum = finish_section(&mut section, sum);
        bytes.extend(section);
    }
    let header = Header { length: bytes.len() as u64, sum, ..header() };
    assert_eq!(sections(&header, &bytes).unwrap(), [&b"12345678"[..], b"", b"abcdefghijklmnop"]);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(sections(&header, &bad), None, "bit {bit}");
    }
    assert_eq!(sections(&header, &bytes[..bytes.len() - 8]), None);
    // Another checkpoint's sections in the same file.
    assert_eq!(sections(&Header { salt: 99, ..header }, &bytes), None);
}

#[test]
fn a_big_branch_is_told_in_slices_while_it_ends() {
    let mut index = Index::new(1);
    let mut history = History { draw: Draw::new(1), ..empty() };
    let (queue, name) = (QueueId(1), QueueName::new("big").unwrap());
    let mut block = 0;
    let mut apply = |index: &mut Index, op: Op, batch: Batch| {
        let mut batch = batch;
        batch.push(op);
        block += 4;
        index.apply(&Encoded::new(batch).meta, place(block), &mut Vec::new()).unwrap();
    };
    let create = Op::QueueCreate { id: queue, name, settings: QueueSettings::default(), reserved: RESERVE };
    apply(&mut index, create, Batch::default());
    let txn = TxnId { run: 1, number: 1, home: ShardId(0) };
    let mut batch = Batch::default();
    let ops: Vec<TxnOp> = (0..20_000)
        .map(|index| TxnOp::Enqueue { index, head: history.head(), content: Content::Body(batch.copy_body(b"x")) })
        .collect();
    apply(&mut index, Op::TxOps(Box::new(TxOps { txn, queue, record: 0, ops })), batch);
    let xid = Xid::new(1, b"big", b"").unwrap();
    let ahead = Ahead { records: 1, ops: 20_000, bytes: 20_000 };
    let part = TxnPart { ahead, ..TxnPart::default() };
    let parts = vec![(queue, part, Figures { adds: 20_000, removes: 0, bytes: 20_000 })];
    let (client, wall_ms, at_ms) = ("".into(), 0, 0);
    let prepare = Prepare { txn, xid: xid.clone(), client, parts, wall_ms, at_ms };
    apply(&mut index, Op::Prepare(Box::new(prepare)), Batch::default());
    let take_in = |index: &mut Index| {
        let mut slices = 0;
        while index.is_behind() {
            index.catch_up(1000, &mut Vec::new()).unwrap();
            slices += 1;
        }
        slices
    };
    assert_eq!(take_in(&mut index), 19, "and one with the record");
    let mut walk = Walk::new(&mut index, place(1_000_000));
    let (mut told, mut slices, mut ended) = (0, 0, false);
    while !walk.done() {
        let mut section = Vec::new();
        walk.slice(&mut index, &mut section, 8192);
        assert!(section.len() < 200_000, "{} bytes in a slice", section.len());
        let mut items = Items::new(&section);
        while let Some(item) = items.next().unwrap() {
            if let Item::Operations { works, in_doubt: true, .. } = item {
                assert!(works.len() <= 8192);
                told += works.len();
            }
        }
        slices += 1;
        // It ends after the first slice, and is told on as it was.
        if !std::mem::replace(&mut ended, true) {
            let decide = Decide { xid: xid.clone(), commit: false, numbers: Vec::new(), at_ms: 1 };
            apply(&mut index, Op::Decide(Box::new(decide)), Batch::default());
        }
    }
    assert_eq!(told, 20_000);
    assert!(slices >= 6, "{slices}");
    assert_eq!(walk.held(3), (0, 20_000), "its bodies are held");
    assert_eq!(index.live_in(3), 20_000 - 1024, "the record itself takes in no more than a slice");
    take_in(&mut index);
    assert_eq!(index.live_in(3), 0, "and live no more");
}
