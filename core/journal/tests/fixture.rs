//! Small stores of each format version, kept as files: they are read, and the same history still makes the same bytes.
#![cfg(feature = "sim")]

use bytes::Bytes;
use packhorse_journal::sim::{CrashMode, Sim, SimDisk};
use packhorse_journal::{Checkpoints, Dir, FileName, Options, Slot};
use packhorse_model::{
    BrokerId, ClientSession, Content, ContentFormat, DeadLetter, DuplicateId, EntryKey, Head, HeadFlags, LargeId, Now,
    OnFull, Overlay, ProducerId, QueueId, QueueLimits, QueueName, QueueSettings, Reason, ShardId, Token, TxnId, Xid,
};
use packhorse_store::{
    Ahead, Batch, Blame, Commit, Decide, Event, Figures, Heuristic, HeuristicOutcome, LargeOp, Load, LoadLarge,
    LostPart, Numbers, Op, Prepare, RESERVE, Recovered, RecoveredBranch, RecoveredEntry, RecoveredOp,
    RecoveredProducer, RecoveredSession, RecoveredWork, Redelivery, Store, Stored, TxOps, TxnOp, TxnPart,
};
use std::sync::Arc;

/// What this version makes of [`history`].
const FILES: [(FileName, &[u8]); 5] = [
    (FileName::Store, include_bytes!("fixtures/v5/STORE")),
    (FileName::Segment(1), include_bytes!("fixtures/v5/00000001.seg")),
    (FileName::Segment(3), include_bytes!("fixtures/v5/00000003.seg")),
    (FileName::Segment(5), include_bytes!("fixtures/v5/00000005.seg")),
    (FileName::Large(0x1_0000_0001), include_bytes!("fixtures/v5/0000000100000001")),
];

const CHECKPOINTS: [(FileName, &[u8]); 2] = [
    (FileName::Checkpoint(Slot::A), include_bytes!("fixtures/v5/ckpt.A")),
    (FileName::Checkpoint(Slot::B), include_bytes!("fixtures/v5/ckpt.B")),
];

/// What version 4 made of the same, without producers.
const FILES_4: [(FileName, &[u8]); 5] = [
    (FileName::Store, include_bytes!("fixtures/v4/STORE")),
    (FileName::Segment(1), include_bytes!("fixtures/v4/00000001.seg")),
    (FileName::Segment(3), include_bytes!("fixtures/v4/00000003.seg")),
    (FileName::Segment(5), include_bytes!("fixtures/v4/00000005.seg")),
    (FileName::Large(0x1_0000_0001), include_bytes!("fixtures/v4/0000000100000001")),
];

const CHECKPOINTS_4: [(FileName, &[u8]); 2] = [
    (FileName::Checkpoint(Slot::A), include_bytes!("fixtures/v4/ckpt.A")),
    (FileName::Checkpoint(Slot::B), include_bytes!("fixtures/v4/ckpt.B")),
];

/// What version 3 made of the same, without transactions.
const FILES_3: [(FileName, &[u8]); 5] = [
    (FileName::Store, include_bytes!("fixtures/v3/STORE")),
    (FileName::Segment(1), include_bytes!("fixtures/v3/00000001.seg")),
    (FileName::Segment(3), include_bytes!("fixtures/v3/00000003.seg")),
    (FileName::Segment(5), include_bytes!("fixtures/v3/00000005.seg")),
    (FileName::Large(0x1_0000_0001), include_bytes!("fixtures/v3/0000000100000001")),
];

const CHECKPOINTS_3: [(FileName, &[u8]); 2] = [
    (FileName::Checkpoint(Slot::A), include_bytes!("fixtures/v3/ckpt.A")),
    (FileName::Checkpoint(Slot::B), include_bytes!("fixtures/v3/ckpt.B")),
];

/// What version 2 made of the same, without limits.
const FILES_2: [(FileName, &[u8]); 5] = [
    (FileName::Store, include_bytes!("fixtures/v2/STORE")),
    (FileName::Segment(1), include_bytes!("fixtures/v2/00000001.seg")),
    (FileName::Segment(3), include_bytes!("fixtures/v2/00000003.seg")),
    (FileName::Segment(5), include_bytes!("fixtures/v2/00000005.seg")),
    (FileName::Large(0x1_0000_0001), include_bytes!("fixtures/v2/0000000100000001")),
];

const CHECKPOINTS_2: [(FileName, &[u8]); 2] = [
    (FileName::Checkpoint(Slot::A), include_bytes!("fixtures/v2/ckpt.A")),
    (FileName::Checkpoint(Slot::B), include_bytes!("fixtures/v2/ckpt.B")),
];

/// What version 1 made of the same, without exact marks, of two runs that were stopped.
const FILES_1: [(FileName, &[u8]); 5] = [
    (FileName::Store, include_bytes!("fixtures/v1/STORE")),
    (FileName::Segment(1), include_bytes!("fixtures/v1/00000001.seg")),
    (FileName::Segment(2), include_bytes!("fixtures/v1/00000002.seg")),
    (FileName::Segment(4), include_bytes!("fixtures/v1/00000004.seg")),
    (FileName::Large(0x1_0000_0001), include_bytes!("fixtures/v1/0000000100000001")),
];

const CHECKPOINTS_1: [(FileName, &[u8]); 2] = [
    (FileName::Checkpoint(Slot::A), include_bytes!("fixtures/v1/ckpt.A")),
    (FileName::Checkpoint(Slot::B), include_bytes!("fixtures/v1/ckpt.B")),
];

const A: QueueId = QueueId(1);
const B: QueueId = QueueId(2);
const LARGE: LargeId = LargeId(0x1_0000_0001);

/// Only at a stop, where it does not change the log.
const AT_STOP: Checkpoints =
    Checkpoints { every_bytes: u64::MAX, every_us: u64::MAX, at_stop: true, slice_entries: 100 };

fn open(disk: SimDisk) -> Sim {
    // The log alone.
    open_with(disk, Checkpoints::never())
}

fn open_with(disk: SimDisk, checkpoints: Checkpoints) -> Sim {
    let options = Options { segment_bytes: 16 * 1024, spare_segments: 0, checkpoints, ..Options::new(1, 2026) };
    let (sim, _) = Sim::open(disk, &options, Now { mono_us: 0, wall_ms: 1_800_000_000_000 })
        .unwrap_or_else(|(error, _)| panic!("{error}"));
    sim
}

fn head(priority: u8) -> Head {
    Head {
        arrived_ms: 12_345,
        ttl_ms: 60_000,
        message_format: 0,
        priority,
        flags: HeadFlags::PERSISTENT.with(HeadFlags::PRIORITY_SAID),
        format: ContentFormat::Amqp10,
    }
}

fn overlay() -> Box<Overlay> {
    let dead_letter = Some(Box::new(DeadLetter {
        reason: Reason::Rejected,
        detail: "no such customer".into(),
        address: QueueName::new("orders").unwrap(),
        sequence: 1,
        deliveries: 4,
        leaving: false,
    }));
    Box::new(Overlay { annotations: Bytes::from_static(b"\xc1\x01\x00"), dead_letter })
}

fn settings(limits: QueueLimits) -> QueueSettings {
    let dead_letter = Some(QueueName::new("graveyard").unwrap());
    QueueSettings { delivery_limit: 4, dead_letter, limits, ..QueueSettings::default() }
}

/// What one of the queues is limited to, since version 3.
const LIMITS: QueueLimits =
    QueueLimits { max_messages: Some(1 << 20), max_bytes: Some(1 << 40), on_full: OnFull::DropOldest };

const NONE: QueueLimits = QueueLimits { max_messages: None, max_bytes: None, on_full: OnFull::Block };

/// A queue for transactions, since version 4.
const C: QueueId = QueueId(4);
const SESSION: ClientSession = ClientSession([0xaa; 16]);
/// Since version 5.
const PRODUCER: ProducerId = ProducerId([0xcc; 16]);

fn txn(number: u64) -> TxnId {
    TxnId { run: 1, number, home: ShardId(0) }
}

fn xid(number: u64) -> Xid {
    Xid::new(7, &number.to_be_bytes(), b"branch").unwrap()
}

fn add(batch: &mut Batch, index: u32, body: &str) -> TxnOp {
    TxnOp::Enqueue { index, head: head(4), content: Stored::Body(batch.copy_body(body.as_bytes())) }
}

fn part(ops: Vec<TxnOp>) -> TxnPart {
    TxnPart { ops, ..TxnPart::default() }
}

/// The duplicate id of a message, since version 5.
fn duplicate(text: &str) -> DuplicateId {
    DuplicateId::of(text.as_bytes())
}

/// The number of a message, since version 5.
fn number(number: u64) -> TxnOp {
    TxnOp::Number { producer: PRODUCER, number, floor: 6 }
}

/// What was released in a transaction, since version 5.
fn released() -> Option<Arc<Redelivery>> {
    Some(Arc::new(Redelivery { deliveries: 1, attempts: 0, overlay: None }))
}

/// What was rejected in one that is committed, since version 5: a dead letter that has not left.
fn leaving() -> Box<Overlay> {
    let mut overlay = overlay();
    overlay.dead_letter.iter_mut().for_each(|letter| letter.leaving = true);
    overlay
}

fn ahead(batch: &mut Batch, number: u64) {
    let ops = vec![add(batch, 0, "ahead 0"), add(batch, 1, "ahead 1")];
    batch.push(Op::TxOps(Box::new(TxOps { txn: txn(number), queue: C, record: 0, ops })));
}

fn prepare(batch: &mut Batch, number: u64, parts: Vec<(QueueId, TxnPart)>) {
    let parts = parts.into_iter().map(|(queue, part)| (queue, part, Figures { adds: 2, removes: 1, bytes: 70 }));
    let (txn, xid, client) = (txn(number), xid(number), "client".into());
    batch.push(Op::Prepare(Box::new(Prepare { txn, xid, client, parts: parts.collect(), wall_ms: 90, at_ms: 8 })));
}

fn heuristic(number: u64, outcome: HeuristicOutcome) -> Heuristic {
    let (numbers, who, reason) = (Vec::new(), "ann".into(), "stuck".into());
    Heuristic { xid: xid(number), outcome, commit: false, numbers, who, reason, wall_ms: 91, at_ms: 9 }
}

/// One record of each kind about transactions.
fn transactions(batch: &mut Batch) {
    let (id, name) = (C, QueueName::new("transfers").unwrap());
    batch.push(Op::QueueCreate { id, name, settings: settings(NONE), reserved: RESERVE });
    let content = Stored::Body(batch.copy_body(b"held"));
    batch.push(Op::Enqueue { queue: C, sequence: 0, head: head(9), content, volatile: false });
    batch.push(Op::Producer { queue: C, producer: PRODUCER, floor: 6, stored: None, at_ms: 4 });
    ahead(batch, 1);
    let mut whole = part(vec![add(batch, 2, "committed"), number(7), TxnOp::DuplicateId(duplicate("committed"))]);
    (whole.ahead, whole.numbers) = (Ahead { records: 1, ops: 2, bytes: 14 }, Some(Numbers { first: 1, count: 3 }));
    let token = Some(Token { broker: BrokerId([0xbb; 16]), session: SESSION, counter: 41 });
    let parts = vec![(C, whole)];
    batch.push(Op::Commit(Box::new(Commit { txn: txn(1), parts, token, xid: None, at_ms: 5 })));
    // One that stays in doubt, one that is committed, one that an operator decides, one of which he rolls a part back.
    let held = TxnOp::Acknowledge { sequence: 0, deliveries: 2, attempts: 1, redelivery: released() };
    let ops = vec![add(batch, 0, "in doubt"), number(8), TxnOp::DuplicateId(duplicate("in doubt")), held];
    prepare(batch, 2, vec![(C, part(ops))]);
    for number in [3, 4] {
        let ops = vec![add(batch, 1, "decided")];
        prepare(batch, number, vec![(C, part(ops))]);
    }
    let numbers = vec![(C, Numbers { first: 4, count: 2 })];
    batch.push(Op::Decide(Box::new(Decide { xid: xid(3), commit: true, numbers, at_ms: 6 })));
    batch.push(Op::Heuristic(Box::new(heuristic(4, HeuristicOutcome::RolledBack))));
    let parts = vec![(A, part(vec![add(batch, 0, "lost")])), (C, part(vec![add(batch, 0, "not lost")]))];
    prepare(batch, 5, parts);
    batch.push(Op::Heuristic(Box::new(heuristic(5, HeuristicOutcome::PartRolledBack(A)))));
    let (parts, token, at_ms) = (Vec::new(), None, 7);
    batch.push(Op::Commit(Box::new(Commit { txn: txn(6), parts, token, xid: Some(xid(6)), at_ms })));
    batch.push(Op::Forget { xid: xid(6) });
    ahead(batch, 8);
    batch.push(Op::TxDrop { txn: txn(8), queue: C });
    let redelivery = Some(Arc::new(Redelivery { deliveries: 6, attempts: 5, overlay: Some(leaving()) }));
    let parts = vec![(B, part(vec![TxnOp::Acknowledge { sequence: 0, deliveries: 7, attempts: 6, redelivery }]))];
    batch.push(Op::Commit(Box::new(Commit { txn: txn(9), parts, token: None, xid: None, at_ms: 8 })));
}

/// One record of each kind that is written today, over three starts: after nothing, a crash, and a stop.
fn history(checkpoints: Checkpoints) -> SimDisk {
    let sim = open_with(SimDisk::new(1), checkpoints);
    let mut handle = sim.handle(ShardId(0));
    handle.large(LargeOp::Begin { id: LARGE });
    handle.large(LargeOp::Chunk { id: LARGE, bytes: Bytes::from(vec![7; 70_000]) });
    handle.large(LargeOp::End { id: LARGE });
    sim.settle();
    let mut batch = Batch::default();
    let (id, name) = (A, QueueName::new("orders").unwrap());
    batch.push(Op::QueueCreate { id, name, settings: settings(NONE), reserved: RESERVE });
    let (id, name) = (B, QueueName::new("graveyard").unwrap());
    batch.push(Op::QueueCreate { id, name, settings: QueueSettings::default(), reserved: RESERVE });
    for sequence in 0..5 {
        let content = Stored::Body(batch.copy_body(format!("body {sequence}").as_bytes()));
        let head = head(if sequence == 4 { 9 } else { 4 });
        batch.push(Op::Enqueue { queue: A, sequence, head, content, volatile: sequence == 3 });
    }
    let content = Stored::Large { id: LARGE, length: 70_000 };
    batch.push(Op::Enqueue { queue: A, sequence: 5, head: head(4), content, volatile: false });
    batch.push(Op::DispatchMark { queue: A, first: 0, count: 3 });
    handle.submit(batch);
    sim.settle();
    let mut batch = Batch::default();
    batch.acknowledge(A, 0);
    let entry = EntryKey { queue: A, sequence: 2 };
    batch.push(Op::Redeliver { entry, deliveries: 3, attempts: 2, overlay: None });
    let (from, to) = (EntryKey { queue: A, sequence: 1 }, EntryKey { queue: B, sequence: 0 });
    batch.push(Op::Relocate { from, to, head: head(4), deliveries: 4, attempts: 4, overlay: overlay() });
    batch.push(Op::QueueChange { id: B, settings: settings(LIMITS) });
    batch.push(Op::Reserve { queue: B, up_to: 3 * RESERVE });
    let (id, name) = (QueueId(3), QueueName::new("short-lived").unwrap());
    batch.push(Op::QueueCreate { id, name, settings: QueueSettings::default(), reserved: RESERVE });
    batch.push(Op::QueueDelete { id });
    transactions(&mut batch);
    let stored = [None, Some(4), Some(6), Some(3)];
    let producer = |stored| Op::Producer { queue: A, producer: PRODUCER, floor: 3, stored, at_ms: 10 };
    stored.into_iter().for_each(|stored| batch.push(producer(stored)));
    batch.push(Op::DuplicateId { queue: A, id: duplicate("order 1"), at_ms: 11 });
    handle.submit(batch);
    sim.settle();
    let sim = open_with(sim.disk().crash(CrashMode::Kill, 0), checkpoints);
    let mut batch = Batch::default();
    // The one that is left of those in the marked range.
    batch.push(Op::ExactMark { queue: A, first: 2, last: 3, at_ms: 5 });
    // What is ahead at a stop, and at the checkpoint that it takes.
    ahead(&mut batch, 7);
    sim.handle(ShardId(0)).submit(batch);
    open_with(sim.stop(), checkpoints).stop()
}

#[test]
fn the_same_history_makes_the_same_bytes() {
    same_bytes(&history(Checkpoints::never()), &FILES);
}

#[test]
fn the_same_history_makes_the_same_checkpoints() {
    let disk = history(AT_STOP);
    same_bytes(&disk, &CHECKPOINTS);
    // And with them the same is found, though the log before them is not looked at.
    check(open(disk), 4, (5, None), LIMITS, 5);
}

#[expect(clippy::disallowed_methods, reason = "new bytes are left beside the build for whoever makes a new version")]
fn same_bytes(disk: &SimDisk, files: &[(FileName, &[u8])]) {
    let mut changed = Vec::new();
    for (name, kept) in files.iter().copied() {
        let written = disk.content(name).expect("the file is there");
        // Segments are kept without the zeros at their end.
        let end = written.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        let written = if name.dir() == Dir::Journal { &written[..end] } else { written };
        if written != kept {
            let path = format!("{}/{}", env!("CARGO_TARGET_TMPDIR"), name.to_string().replace('/', "-"));
            std::fs::write(&path, written).expect("the build's folder is writable");
            changed.push(path);
        }
    }
    assert!(
        changed.is_empty(),
        "not as version 5 wrote it, which needs a new version; the new bytes are in {changed:?}"
    );
}

/// A disk with kept files.
fn planted(files: &[(FileName, &[u8])]) -> SimDisk {
    let mut disk = SimDisk::new(1);
    for (name, kept) in files.iter().copied() {
        let mut content = kept.to_vec();
        if name.dir() == Dir::Journal {
            content.resize(16 * 1024, 0);
        }
        disk.plant(name, Some(content));
    }
    disk
}

#[test]
fn version_5_is_read() {
    check(open(planted(&FILES)), 4, (5, None), LIMITS, 5);
    check(open(planted(&[&FILES[..], &CHECKPOINTS].concat())), 4, (5, None), LIMITS, 5);
}

#[test]
fn version_4_is_read() {
    let disk = planted(&FILES_4);
    check(open(disk.clone()), 4, (5, None), LIMITS, 4);
    check(open(planted(&[&FILES_4[..], &CHECKPOINTS_4].concat())), 4, (5, None), LIMITS, 4);
    // A program that takes checkpoints goes on with it.
    let disk = open_with(disk, AT_STOP).stop();
    check(open_with(disk, AT_STOP), 5, (5, None), LIMITS, 4);
}

#[test]
fn version_3_is_read() {
    let disk = planted(&FILES_3);
    check(open(disk.clone()), 4, (5, None), LIMITS, 3);
    check(open(planted(&[&FILES_3[..], &CHECKPOINTS_3].concat())), 4, (5, None), LIMITS, 3);
    // A program that takes checkpoints goes on with it.
    let disk = open_with(disk, AT_STOP).stop();
    check(open_with(disk, AT_STOP), 5, (5, None), LIMITS, 3);
}

#[test]
fn version_2_is_read() {
    let disk = planted(&FILES_2);
    check(open(disk.clone()), 4, (5, None), NONE, 2);
    check(open(planted(&[&FILES_2[..], &CHECKPOINTS_2].concat())), 4, (5, None), NONE, 2);
    // A program that takes checkpoints goes on with it.
    let disk = open_with(disk, AT_STOP).stop();
    check(open_with(disk, AT_STOP), 5, (5, None), NONE, 2);
}

#[test]
fn version_1_is_read() {
    let disk = planted(&FILES_1);
    // What lies in a marked range is suspected: version 1 did not say how a run ended.
    check(open(disk.clone()), 3, (4, Some(0)), NONE, 1);
    check(open(planted(&[&FILES_1[..], &CHECKPOINTS_1].concat())), 3, (4, Some(0)), NONE, 1);
    // A program that takes checkpoints goes on with it.
    let disk = open_with(disk, AT_STOP).stop();
    assert!(disk.content(FileName::Checkpoint(Slot::A)).is_some());
    check(open_with(disk, AT_STOP), 4, (4, None), NONE, 1);
}

/// What the history leaves, seen by this start. `marked`: earlier deliveries and crashes of what lies in the marked range.
/// `limits`: those of the second queue. `version`: that of the program that wrote it.
fn check(sim: Sim, run: u64, marked: (u32, Option<u32>), limits: QueueLimits, version: u32) {
    let transactions = version >= 4;
    let mut handle = sim.handle(ShardId(0));
    assert_eq!(handle.run(), run);
    let mut found = Vec::new();
    while handle.recover(100, &mut found) {}
    let queue = |id, name: &str, limits, reserved| Recovered::Queue {
        id,
        name: QueueName::new(name).unwrap(),
        settings: settings(limits),
        next: reserved - RESERVE,
        reserved,
    };
    let entry = |queue, sequence, priority, length, suspect, numbers: (u32, u32), overlay| {
        let content = match length {
            Some(length) => Content::Body(packhorse_model::Resident { buffer: 0, offset: 0, length }),
            None => Content::Large { id: LARGE, length: 70_000 },
        };
        let (key, head) = (EntryKey { queue, sequence }, head(priority));
        let (deliveries, attempts) = numbers;
        Recovered::Entry(Box::new(RecoveredEntry { key, head, content, deliveries, attempts, suspect, overlay }))
    };
    let transactional = |these: Vec<Recovered>| these.into_iter().filter(|_| transactions);
    let mut expected = vec![
        // Each start has reserved numbers, this one among them.
        queue(A, "orders", NONE, run * RESERVE),
        queue(B, "graveyard", limits, (run + 2) * RESERVE),
    ];
    expected.extend(transactional(vec![queue(C, "transfers", NONE, run * RESERVE)]));
    expected.extend([
        Recovered::NextQueueId(QueueId(if transactions { 5 } else { 4 })),
        entry(A, 2, 4, Some(6), marked.1.map(Blame), (marked.0, 2), None),
        entry(A, 4, 9, Some(6), None, (0, 0), None),
        entry(A, 5, 4, None, None, (0, 0), None),
        match version {
            5.. => entry(B, 0, 4, Some(6), None, (6, 5), Some(leaving())),
            _ => entry(B, 0, 4, Some(6), None, (4, 4), Some(overlay())),
        },
    ]);
    let op = |txn, op| Recovered::BranchOp(Box::new(RecoveredOp { txn, queue: C, op }));
    let added = |txn, length| {
        let content = Content::Body(packhorse_model::Resident { buffer: 0, offset: 0, length });
        op(txn, RecoveredWork::Enqueue { index: 0, head: head(4), content })
    };
    let branch = |number, adds, bytes, removes, decided| {
        let parts = vec![(C, Figures { adds, removes, bytes })];
        RecoveredBranch {
            txn: txn(number),
            xid: xid(number),
            client: "client".into(),
            wall_ms: 90,
            at_ms: 8,
            parts: if adds > 0 { parts } else { Vec::new() },
            lost: Vec::new(),
            volatile: 3 - (adds + removes).max(1),
            decided,
        }
    };
    let decided = Some(Box::new(heuristic(4, HeuristicOutcome::RolledBack)));
    let lost = vec![LostPart { queue: A, who: "ann".into(), reason: "stuck".into(), wall_ms: 91 }];
    let mixed = RecoveredBranch { lost, volatile: 4, ..branch(5, 1, 8, 0, None) };
    let session = RecoveredSession { session: SESSION, floor: 41, runs: vec![(41, 41)], used_ms: 5 };
    expected.extend(transactional(vec![
        entry(C, 0, 9, Some(4), None, (0, 0), None),
        entry(C, 1, 4, Some(7), None, (0, 0), None),
        entry(C, 2, 4, Some(7), None, (0, 0), None),
        entry(C, 3, 4, Some(9), None, (0, 0), None),
        entry(C, 5, 4, Some(7), None, (0, 0), None),
        added(txn(2), 8),
    ]));
    let redelivery = released().filter(|_| version >= 5);
    let staged = RecoveredWork::Number { producer: PRODUCER, number: 8, floor: 6 };
    let identified = RecoveredWork::DuplicateId(duplicate("in doubt"));
    expected.extend([staged, identified].into_iter().filter(|_| version >= 5).map(|work| op(txn(2), work)));
    expected.extend(transactional(vec![
        op(txn(2), RecoveredWork::Acknowledge { sequence: 0, deliveries: 2, attempts: 1, redelivery }),
        added(txn(5), 8),
    ]));
    let producer =
        RecoveredProducer { queue: A, producer: PRODUCER, floor: 3, runs: vec![(3, 4), (6, 6)], used_ms: 10 };
    let other = RecoveredProducer { queue: C, producer: PRODUCER, floor: 6, runs: vec![(7, 7)], used_ms: 5 };
    let producers = [producer, other].into_iter().filter(|_| version >= 5);
    expected.extend(producers.map(|producer| Recovered::Producer(Box::new(producer))));
    let ids = [(A, "order 1", 11), (C, "committed", 5)].into_iter().filter(|_| version >= 5);
    expected.extend(ids.map(|(queue, text, at_ms)| Recovered::DuplicateId { queue, id: duplicate(text), at_ms }));
    expected.extend(transactional(vec![
        Recovered::Branch(Box::new(branch(2, 1, 8, 1, None))),
        Recovered::Branch(Box::new(branch(4, 0, 0, 0, decided))),
        Recovered::Branch(Box::new(mixed)),
        Recovered::Completed { xid: xid(3), committed: true, at_ms: 6 },
        Recovered::Session(Box::new(session)),
    ]));
    assert_eq!(found, expected);
    let added = if transactions { "ahead 0ahead 1committeddecided" } else { "" };
    let loads = [(A, 4, "body 2"), (A, 9, "body 4"), (B, 4, "body 1"), (C, 4, added), (C, 9, "")];
    for (queue, level, body) in loads {
        handle.load(Load { queue, level, from: 0, count: 10, bytes: 1000 });
        sim.settle();
        let mut events = Vec::new();
        handle.poll(&mut events);
        let Some(Event::Loaded(loaded)) = events.pop() else { panic!("a load is answered") };
        // What lies between them may come as well.
        let bodies = loaded.bodies.iter().map(|b| b.range.expect("it is whole"));
        let bodies = bodies.flat_map(|(at, length)| &loaded.buffer[at as usize..(at + length) as usize]);
        assert_eq!(bodies.copied().collect::<Vec<u8>>(), body.as_bytes());
    }
    handle.load_large(LoadLarge { token: 1, id: LARGE, offset: 0, length: 100_000 });
    sim.settle();
    let mut events = Vec::new();
    handle.poll(&mut events);
    assert_eq!(events, [Event::LargeLoaded { token: 1, bytes: Some(Bytes::from(vec![7; 70_000])) }]);
}
