//! Transactions seen from outside: what a branch in doubt needs is kept while segments come and go, and nothing longer.
#![cfg(feature = "sim")]

mod small;

use packhorse_journal::FileName;
use packhorse_journal::sim::{CrashMode, Sim, SimDisk, When};
use packhorse_model::{EntryKey, Now, QueueId, QueueName, QueueSettings, ShardId, TxnId, Xid};
use packhorse_store::{
    Ahead, Batch, Commit, Decide, Event, Figures, Load, Numbers, Op, Prepare, RESERVE, Recovered, RecoveredWork, Store,
    Stored, TxOps, TxnOp, TxnPart,
};
use small::{HEAD, QUEUE, options};

fn started(disk: SimDisk) -> Sim {
    Sim::open(disk, &options(), Now { mono_us: 0, wall_ms: 1_000 }).unwrap_or_else(|(error, _)| panic!("{error}")).0
}

/// A store with a queue.
fn new_store() -> Sim {
    let sim = started(SimDisk::new(1));
    submit(&sim, |batch| {
        small::make_queue(batch);
    });
    sim
}

/// A batch that is durable, and whatever goes on in the background then.
fn submit(sim: &Sim, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    fill(&mut batch);
    sim.handle(ShardId(0)).submit(batch);
    sim.settle();
    sim.advance(sim.now().mono_us + 20_000);
}

fn txn(number: u64) -> TxnId {
    TxnId { run: 1, number, home: ShardId(0) }
}

fn xid(number: u64) -> Xid {
    Xid::new(1, &number.to_be_bytes(), b"b").unwrap()
}

fn body(n: u64) -> Vec<u8> {
    (0..1500u64).map(|i| (i + n * 3) as u8).collect()
}

/// Entries of so many numbers come and go, segment after segment.
fn flow(sim: &Sim, numbers: std::ops::Range<u64>) {
    for sequence in numbers {
        submit(sim, |batch| {
            let content = Stored::Body(batch.copy_body(&body(sequence)));
            batch.push(Op::Enqueue { queue: QUEUE, sequence, head: HEAD, content, volatile: false });
            if let Some(old) = sequence.checked_sub(1).filter(|n| *n >= RESERVE / 2) {
                batch.acknowledge(QUEUE, old);
            }
        });
    }
}

fn adds(batch: &mut Batch, indexes: std::ops::Range<u32>) -> Vec<TxnOp> {
    let each = indexes.map(|index| {
        let content = Stored::Body(batch.copy_body(&body(u64::from(index))));
        TxnOp::Enqueue { index, head: HEAD, content }
    });
    each.collect()
}

fn go_ahead(sim: &Sim, number: u64, record: u32) {
    submit(sim, |batch| {
        let ops = adds(batch, record * 4..record * 4 + 4);
        batch.push(Op::TxOps(Box::new(TxOps { txn: txn(number), queue: QUEUE, record, ops })));
    });
}

/// Entries 0 to 3, of which a branch removes two; it adds eight messages that went ahead in two records, and one more.
fn in_doubt() -> Sim {
    let sim = new_store();
    for sequence in 0..4 {
        submit(&sim, |batch| {
            let content = Stored::Body(batch.copy_body(&body(sequence)));
            batch.push(Op::Enqueue { queue: QUEUE, sequence, head: HEAD, content, volatile: false });
        });
    }
    flow(&sim, RESERVE / 2..RESERVE / 2 + 40);
    go_ahead(&sim, 1, 0);
    flow(&sim, RESERVE / 2 + 40..RESERVE / 2 + 80);
    go_ahead(&sim, 1, 1);
    flow(&sim, RESERVE / 2 + 80..RESERVE / 2 + 120);
    submit(&sim, |batch| {
        let mut ops = adds(batch, 8..9);
        ops.extend([0, 1].map(|sequence| TxnOp::Acknowledge {
            sequence,
            deliveries: 3,
            attempts: 2,
            redelivery: None,
        }));
        let ahead = Ahead { records: 2, ops: 8, bytes: 8 * 1500 };
        let part = TxnPart { ops, ahead, ..TxnPart::default() };
        let parts = vec![(QUEUE, part, Figures { adds: 9, removes: 2, bytes: 9 * 1500 })];
        let (txn, xid, client) = (txn(1), xid(1), "client".into());
        batch.push(Op::Prepare(Box::new(Prepare { txn, xid, client, parts, wall_ms: 1, at_ms: 1 })));
    });
    flow(&sim, RESERVE / 2 + 120..RESERVE / 2 + 160);
    sim
}

fn decide(sim: &Sim, commit: bool, first: u64) {
    submit(sim, |batch| {
        let numbers = if commit { vec![(QUEUE, Numbers { first, count: 9 })] } else { Vec::new() };
        batch.push(Op::Decide(Box::new(Decide { xid: xid(1), commit, numbers, at_ms: 2 })));
    });
}

fn recovered(sim: &Sim) -> Vec<Recovered> {
    let mut out = Vec::new();
    while sim.handle(ShardId(0)).recover(100, &mut out) {}
    out
}

/// What a start tells but for the numbers of queues, which jump.
fn facts(sim: &Sim) -> Vec<Recovered> {
    recovered(sim).into_iter().filter(|thing| !matches!(thing, Recovered::Queue { .. })).collect()
}

/// Entries with their bodies.
fn loaded(sim: &Sim) -> Vec<(u64, Vec<u8>)> {
    let mut handle = sim.handle(ShardId(0));
    handle.load(Load { queue: QUEUE, level: 4, from: 0, count: 10_000, bytes: u32::MAX });
    sim.settle();
    let mut events = Vec::new();
    handle.poll(&mut events);
    let Some(Event::Loaded(loaded)) = events.pop() else { panic!("a load is answered") };
    let whole = loaded.bodies.iter().map(|b| {
        let (at, n) = b.range.unwrap_or_else(|| panic!("the body of {} is whole", b.sequence));
        (b.sequence, loaded.buffer[at as usize..(at + n) as usize].to_vec())
    });
    whole.collect()
}

/// Segments that lie far behind the one in use: something in them is kept.
fn kept(sim: &Sim) -> usize {
    let disk = sim.disk();
    let ids = disk.names().filter_map(|name| match name {
        FileName::Segment(id) => Some(id),
        _ => None,
    });
    let ids: Vec<u32> = ids.collect();
    let last = ids.iter().max().copied().unwrap_or(0);
    ids.into_iter().filter(|id| id + 8 < last).count()
}

/// What is left of the flow, its last entry.
const LAST: u64 = RESERVE / 2 + 159;

#[test]
fn fs_31_a_branch_in_doubt_is_whole_after_kills_during_recovery_and_segments_used_again() {
    let sim = in_doubt();
    let mut recycled = 0;
    // Some more, and count what is used again.
    for n in 0..20 {
        let before = sim.disk().names().filter(|name| matches!(name, FileName::Pool(_))).count();
        flow(&sim, LAST + 1 + n * 8..LAST + 9 + n * 8);
        recycled += usize::from(sim.disk().names().filter(|name| matches!(name, FileName::Pool(_))).count() != before);
    }
    assert!(recycled > 5, "{recycled}");
    let last = LAST + 160;
    let mut disk = sim.disk().crash(CrashMode::Torn(512), 9);
    let expected = facts(&started(disk.clone()));
    let ops = expected.iter().filter(|thing| matches!(thing, Recovered::BranchOp(_))).count();
    assert_eq!(ops, 11, "nine messages and two entries");
    for (n, when) in [(1, When::After), (9, When::During), (17, When::Before), (23, When::After), (31, When::During)] {
        let mut cut = disk.clone();
        cut.crash_at(n, when);
        match Sim::open(cut, &options(), Now { mono_us: 0, wall_ms: 1_000 }) {
            Ok(_) => panic!("a start has more than {n} operations"),
            Err((_, left)) => disk = left.crash(CrashMode::Torn(4096), n),
        }
        assert_eq!(facts(&started(disk.clone())), expected, "after a kill at {n}");
    }
    // Committed: every body is there; rolled back: what was removed.
    let first = 50 * RESERVE;
    let sim = started(disk.clone());
    decide(&sim, true, first);
    let mut whole = vec![(2, body(2)), (3, body(3)), (last, body(last))];
    whole.extend((0..9).map(|n| (first + n, body(n))));
    assert_eq!(loaded(&sim), whole);
    let sim = started(sim.disk().crash(CrashMode::Lose, 1));
    assert_eq!(loaded(&sim), whole, "and over another start");
    let sim = started(disk);
    decide(&sim, false, 0);
    assert_eq!(loaded(&sim), [0, 1, 2, 3, last].map(|n| (n, body(n))));
    let after = recovered(&started(sim.disk().crash(CrashMode::Lose, 1)));
    let back = after.iter().filter_map(|thing| match thing {
        Recovered::Entry(entry) if entry.key.sequence < 2 => Some((entry.deliveries, entry.attempts)),
        _ => None,
    });
    assert_eq!(back.collect::<Vec<_>>(), [(3, 2), (3, 2)]);
    assert!(after.iter().any(|thing| matches!(thing, Recovered::Completed { committed: false, .. })));
}

#[test]
fn a_large_decision_is_taken_in_by_slices_and_nobody_sees_half_of_it() {
    for commit in [true, false] {
        let sim = in_doubt();
        let mut handle = sim.handle(ShardId(0));
        let mut batch = Batch::default();
        let first = 50 * RESERVE;
        let numbers = if commit { vec![(QUEUE, Numbers { first, count: 9 })] } else { Vec::new() };
        batch.push(Op::Decide(Box::new(Decide { xid: xid(1), commit, numbers, at_ms: 2 })));
        let decision = handle.submit(batch);
        // What comes after it may rest on it.
        let mut batch = Batch::default();
        batch.require_flush();
        batch.acknowledge(QUEUE, if commit { first + 8 } else { 1 });
        let (mut events, mut next) = (Vec::new(), Some(batch));
        let (mut slices, mut asked) = (0, false);
        for _ in 0..100 {
            handle.poll(&mut events);
            let durable = events.iter().any(|e| matches!(e, Event::Durable { up_to } if *up_to >= decision));
            if sim.is_behind() {
                slices += 1;
                if durable && !asked {
                    asked = true;
                    handle.load(Load { queue: QUEUE, level: 4, from: 0, count: 10_000, bytes: u32::MAX });
                }
                if let Some(batch) = next.take() {
                    handle.submit(batch);
                }
            }
            sim.step(&mut |_, _, _| {});
        }
        assert!(asked, "the decision is durable before it is taken in");
        assert!(slices >= 5, "eleven operations, two at once: {slices}");
        sim.settle();
        handle.poll(&mut events);
        let Some(Event::Loaded(loaded)) = events.iter().find(|e| matches!(e, Event::Loaded(_))) else {
            panic!("{events:?}")
        };
        let numbers: Vec<u64> = loaded.bodies.iter().map(|b| b.sequence).collect();
        let (back, added) = if commit { (2, 9) } else { (4, 0) };
        let mut expected: Vec<u64> = (4 - back..4).chain([LAST]).chain(first..first + added).collect();
        // What the batch behind it acknowledges is gone or still there, whichever came first; but not more is missing.
        let gone = if commit { first + 8 } else { 1 };
        if !numbers.contains(&gone) {
            expected.retain(|n| *n != gone);
        }
        assert_eq!(numbers, expected);
        let left: Vec<u64> = self::loaded(&sim).into_iter().map(|(n, _)| n).collect();
        assert!(!left.contains(&gone), "acknowledged by the batch that came after the decision: {left:?}");
    }
}

#[test]
fn segments_of_a_branch_are_kept_until_it_is_decided() {
    let sim = in_doubt();
    flow(&sim, LAST + 1..LAST + 100);
    // What went ahead, twice, and the record; and the segment with the entries.
    assert_eq!(kept(&sim), 4);
    decide(&sim, false, 0);
    flow(&sim, LAST + 100..LAST + 200);
    assert_eq!(kept(&sim), 1, "that of the entries, two of which came back");
    submit(&sim, |batch| batch.push(Op::Acknowledge { queue: QUEUE, first: 0, last: 3 }));
    flow(&sim, LAST + 200..LAST + 300);
    assert_eq!(kept(&sim), 0);
}

#[test]
fn what_went_ahead_is_kept_until_it_is_given_up_or_a_start() {
    let sim = new_store();
    let mut at = RESERVE / 2;
    let mut more = |sim: &Sim| {
        flow(sim, at..at + 100);
        at += 100;
        kept(sim)
    };
    for number in [1, 2] {
        go_ahead(&sim, number, 0);
        more(&sim);
    }
    assert_eq!(more(&sim), 2);
    // A commit that names nothing of it.
    submit(&sim, |batch| {
        let (parts, token, xid) = (Vec::new(), None, None);
        batch.push(Op::Commit(Box::new(Commit { txn: txn(1), parts, token, xid, at_ms: 1 })));
    });
    assert_eq!(more(&sim), 1);
    let sim = started(sim.disk().crash(CrashMode::Lose, 1));
    assert!(!recovered(&sim).iter().any(|thing| matches!(thing, Recovered::Branch(_) | Recovered::BranchOp(_))));
    submit(&sim, |batch| batch.push(Op::Acknowledge { queue: QUEUE, first: 0, last: RESERVE }));
    flow(&sim, RESERVE * 3..RESERVE * 3 + 200);
    assert_eq!(kept(&sim), 0);
}

#[test]
fn transactions_rolled_back_again_and_again_take_no_room() {
    let sim = new_store();
    let files = |sim: &Sim| sim.disk().names().filter(|name| !matches!(name, FileName::Checkpoint(_))).count();
    let mut most = 0;
    for number in 0..60 {
        // About four segments each.
        (0..20).for_each(|record| go_ahead(&sim, number, record));
        submit(&sim, |batch| batch.push(Op::TxDrop { txn: txn(number), queue: QUEUE }));
        most = most.max(files(&sim));
    }
    assert!(most <= 16, "{most} files at once");
    flow(&sim, RESERVE / 2..RESERVE / 2 + 100);
    assert_eq!(kept(&sim), 0);
    let sim = started(sim.disk().crash(CrashMode::Torn(512), 1));
    assert_eq!(loaded(&sim), [(RESERVE / 2 + 99, body(RESERVE / 2 + 99))]);
    assert_eq!(kept(&sim), 0);
}

#[test]
fn a_drop_frees_one_part_and_a_checkpoint_before_it_does_not_bring_it_back() {
    let sim = new_store();
    let mut at = RESERVE / 2;
    let mut more = |sim: &Sim| {
        flow(sim, at..at + 100);
        at += 100;
        kept(sim)
    };
    for number in [1, 2] {
        go_ahead(&sim, number, 0);
        more(&sim);
    }
    assert_eq!(more(&sim), 2);
    // Checkpoints tell both. Their drop is behind them, and not urgent; then the first goes on as if it began.
    submit(&sim, |batch| batch.push(Op::TxDrop { txn: txn(1), queue: QUEUE }));
    go_ahead(&sim, 1, 0);
    let disk = sim.disk().crash(CrashMode::Lose, 1);
    assert!(
        !recovered(&started(disk)).iter().any(|thing| matches!(thing, Recovered::Branch(_) | Recovered::BranchOp(_)))
    );
    assert_eq!(more(&sim), 2, "the second, and what came after");
    submit(&sim, |batch| {
        let ahead = Ahead { records: 1, ops: 4, bytes: 6000 };
        let parts =
            vec![(QUEUE, TxnPart { ahead, numbers: Some(Numbers { first: 0, count: 4 }), ..TxnPart::default() })];
        batch.push(Op::Commit(Box::new(Commit { txn: txn(1), parts, token: None, xid: None, at_ms: 1 })));
        batch.push(Op::TxDrop { txn: txn(2), queue: QUEUE });
    });
    assert_eq!(more(&sim), 1, "that of the entries");
    let sim = started(sim.disk().crash(CrashMode::Lose, 2));
    assert_eq!(loaded(&sim)[..4], [0, 1, 2, 3].map(|n| (n, body(n))));
}

#[test]
fn what_went_ahead_in_a_queue_goes_with_it() {
    let sim = new_store();
    let id = QueueId(2);
    submit(&sim, |batch| {
        let (name, settings) = (QueueName::new("short-lived").unwrap(), QueueSettings::default());
        batch.push(Op::QueueCreate { id, name, settings, reserved: RESERVE });
    });
    for record in 0..8 {
        submit(&sim, |batch| {
            let ops = adds(batch, record * 4..record * 4 + 4);
            batch.push(Op::TxOps(Box::new(TxOps { txn: txn(1), queue: id, record, ops })));
        });
    }
    flow(&sim, RESERVE / 2..RESERVE / 2 + 100);
    assert!(kept(&sim) > 1);
    submit(&sim, |batch| {
        batch.push(Op::QueueDelete { id });
        // What was on its way, and the rollback.
        let ops = adds(batch, 32..36);
        batch.push(Op::TxOps(Box::new(TxOps { txn: txn(1), queue: id, record: 8, ops })));
        batch.push(Op::TxDrop { txn: txn(1), queue: id });
    });
    flow(&sim, RESERVE / 2 + 100..RESERVE / 2 + 200);
    assert_eq!(kept(&sim), 0);
}

#[test]
fn a_branch_of_many_messages_is_told_in_order_over_checkpoints() {
    let sim = new_store();
    let count = 400;
    for record in 0..count / 4 {
        go_ahead(&sim, 1, record);
    }
    submit(&sim, |batch| {
        let ahead = Ahead { records: count / 4, ops: u64::from(count), bytes: u64::from(count) * 1500 };
        let parts = vec![(
            QUEUE,
            TxnPart { ahead, ..TxnPart::default() },
            Figures { adds: u64::from(count), removes: 0, bytes: 0 },
        )];
        let (txn, xid, client) = (txn(1), xid(1), "client".into());
        batch.push(Op::Prepare(Box::new(Prepare { txn, xid, client, parts, wall_ms: 1, at_ms: 1 })));
    });
    flow(&sim, RESERVE / 2..RESERVE / 2 + 100);
    let sim = started(sim.disk().crash(CrashMode::Lose, 1));
    let indexes = recovered(&sim).into_iter().filter_map(|thing| match thing {
        Recovered::BranchOp(op) => match op.op {
            RecoveredWork::Enqueue { index, .. } => Some(index),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(indexes.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
}

#[test]
fn an_entry_from_a_transaction_is_like_any_other_over_checkpoints() {
    let sim = new_store();
    go_ahead(&sim, 1, 0);
    submit(&sim, |batch| {
        let ahead = Ahead { records: 1, ops: 4, bytes: 6000 };
        let (ops, numbers) = (adds(batch, 4..8), Some(Numbers { first: 10, count: 8 }));
        let parts = vec![(QUEUE, TxnPart { ops, ahead, numbers, ..TxnPart::default() })];
        batch.push(Op::Commit(Box::new(Commit { txn: txn(1), parts, token: None, xid: None, at_ms: 1 })));
        batch.acknowledge(QUEUE, 11);
        batch.acknowledge(QUEUE, 15);
        for sequence in [12, 16] {
            let entry = EntryKey { queue: QUEUE, sequence };
            batch.push(Op::Redeliver { entry, deliveries: 7, attempts: 5, overlay: None });
        }
    });
    for _ in 0..3 {
        flow(&sim, RESERVE / 2..RESERVE / 2 + 100);
        submit(&sim, |batch| batch.acknowledge(QUEUE, RESERVE / 2 + 99));
    }
    let numbers: Vec<u64> = loaded(&sim).into_iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(numbers, [10, 12, 13, 14, 16, 17]);
    let sim = started(sim.disk().crash(CrashMode::Torn(512), 1));
    assert_eq!(loaded(&sim), [10, 12, 13, 14, 16, 17].map(|n| (n, body(n - 10))));
    let told = recovered(&started(sim.disk().crash(CrashMode::Torn(512), 1)));
    let deliveries = told.iter().filter_map(|thing| match thing {
        Recovered::Entry(entry) => Some((entry.deliveries, entry.attempts)),
        _ => None,
    });
    assert_eq!(deliveries.collect::<Vec<_>>(), [(0, 0), (7, 5), (0, 0), (0, 0), (7, 5), (0, 0)]);
}
