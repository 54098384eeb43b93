//! Errors of the disk at every operation: the store ends, tells everyone once, and confirms nothing more; or the error is one
//! that costs only what it concerns.
#![cfg(feature = "sim")]

use bytes::Bytes;
use packhorse_journal::sim::{CrashMode, Effect, Sim, SimDisk, SimFault, SimStore, Trouble, Verb};
use packhorse_journal::{DiskOp, IoErrorKind, JournalError, Options};
use packhorse_model::{ContentFormat, Head, HeadFlags, LargeId, Now, QueueId, QueueName, QueueSettings, ShardId};
use packhorse_store::{Batch, Event, LargeOp, Load, LoadLarge, Op, RESERVE, Recovered, Store, Stored, Ticket};

const QUEUE: QueueId = QueueId(1);
const BATCHES: u64 = 30;

fn open(disk: SimDisk) -> Result<Sim, (JournalError, Box<SimDisk>)> {
    let options = Options { segment_bytes: 16 * 1024, spare_segments: 1, ..Options::new(2, 4) };
    Sim::open(disk, &options, Now { mono_us: 0, wall_ms: 1 }).map(|(sim, _)| sim)
}

/// What the two shards were told.
#[derive(Default)]
struct Told {
    durable: Ticket,
    failed: [Vec<String>; 2],
    synced: Vec<LargeId>,
    loaded: usize,
    unreadable: usize,
    /// Whether the disk was said to be full, each time.
    full: [Vec<bool>; 2],
}

impl Told {
    fn listen(&mut self, handles: &mut [SimStore]) {
        for shard in [0, 1] {
            let mut events = Vec::new();
            handles[shard].poll(&mut events);
            for event in events {
                match event {
                    Event::Durable { up_to } => {
                        assert!(self.failed[shard].is_empty(), "nothing becomes durable after a failure");
                        if shard == 0 {
                            self.durable = up_to;
                        }
                    }
                    Event::Failed(failure) => self.failed[shard].push(failure.what),
                    Event::LargeSynced { id, .. } => self.synced.push(id),
                    Event::Loaded(loaded) => {
                        self.loaded += 1;
                        self.unreadable += loaded.bodies.iter().filter(|b| b.range.is_none()).count();
                    }
                    Event::Space { full } => self.full[shard].push(full),
                    Event::LargeWritten { .. } | Event::LargeLoaded { .. } => {}
                }
            }
        }
    }
}

fn enqueue(batch: &mut Batch, sequence: u64) {
    if sequence == 0 {
        let name = QueueName::new("orders").unwrap();
        batch.push(Op::QueueCreate { id: QUEUE, name, settings: QueueSettings::default(), reserved: RESERVE });
    }
    let head = Head {
        arrived_ms: 0,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    };
    let content = Stored::Body(batch.copy_body(&[sequence as u8; 1500]));
    batch.push(Op::Enqueue { queue: QUEUE, sequence, head, content, volatile: false });
}

/// One entry a batch, a large message, loads, over several segments; `ops` collects what the disk was asked.
fn play(sim: &Sim, ops: &mut Vec<DiskOp>) -> Told {
    let mut handles = [sim.handle(ShardId(0)), sim.handle(ShardId(1))];
    let mut told = Told::default();
    for sequence in 0..BATCHES {
        let mut batch = Batch::default();
        enqueue(&mut batch, sequence);
        handles[0].submit(batch);
        if sequence == 3 {
            let id = LargeId(1);
            handles[1].large(LargeOp::Begin { id });
            handles[1].large(LargeOp::Chunk { id, bytes: Bytes::from(vec![1; 100_000]) });
            handles[1].large(LargeOp::End { id });
        }
        if sequence % 5 == 4 {
            handles[0].load(Load { queue: QUEUE, level: 4, from: 0, count: 100, bytes: 100_000 });
        }
        for _ in 0..4 {
            sim.step(&mut |_, _, op| ops.push(op.clone()));
            told.listen(&mut handles);
        }
    }
    for _ in 0..2000 {
        if sim.quiet() || !sim.step(&mut |_, _, op| ops.push(op.clone())) {
            break;
        }
        told.listen(&mut handles);
    }
    // What goes on in the background ends too.
    sim.advance(sim.now().mono_us + 100_000);
    told.listen(&mut handles);
    told
}

/// The entries that a start finds.
fn found(disk: SimDisk) -> Vec<u64> {
    let sim = open(disk).unwrap_or_else(|(error, _)| panic!("{error}"));
    let mut out = Vec::new();
    while sim.handle(ShardId(0)).recover(100, &mut out) {}
    while sim.handle(ShardId(1)).recover(100, &mut out) {}
    out.iter()
        .filter_map(|r| match r {
            Recovered::Entry(entry) => Some(entry.key.sequence),
            _ => None,
        })
        .collect()
}

/// The disk right after a start, and what the play asks of it when nothing fails.
fn prepared() -> (SimDisk, Vec<DiskOp>) {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    let disk = sim.disk().crash(CrashMode::Kill, 0);
    let sim = open(disk.clone()).unwrap_or_else(|(error, _)| panic!("{error}"));
    let mut ops = Vec::new();
    let told = play(&sim, &mut ops);
    assert_eq!((told.durable, told.synced.len(), told.loaded), (Ticket(BATCHES), 1, 6));
    (disk, ops)
}

#[test]
fn a_failed_operation_ends_the_store_and_confirms_nothing() {
    let (disk, ops) = prepared();
    assert!(ops.len() > 60);
    let mut kinds = std::collections::BTreeSet::new();
    for (n, op) in ops.iter().enumerate() {
        let sim = open(disk.clone()).unwrap_or_else(|(error, _)| panic!("{error}"));
        sim.with_disk(|disk| disk.inject(SimFault { op: disk.ops() + n as u64 + 1, kind: IoErrorKind::Other }));
        let told = play(&sim, &mut Vec::new());
        kinds.insert(op.verb());
        if let DiskOp::Read { .. } = op {
            assert!(told.failed[0].is_empty(), "a read that fails once is asked for once more");
            assert_eq!((told.unreadable, told.durable), (0, Ticket(BATCHES)));
            continue;
        }
        for failed in &told.failed {
            let sentence = format!("the disk failed to {} {}: injected error", op.verb(), op.subject());
            assert_eq!(failed, &[sentence], "operation {n}");
        }
        let mut handle = sim.handle(ShardId(0));
        handle.submit(Batch::default());
        assert!(sim.quiet(), "it is over");
        for mode in [CrashMode::Lose, CrashMode::Torn(512), CrashMode::Kill] {
            let there = found(sim.disk().crash(mode, n as u64));
            assert!(there.len() as u64 >= told.durable.0, "operation {n} {mode:?}: {there:?} of {:?}", told.durable);
            assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>(), "operation {n} {mode:?}");
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["create", "read", "rename", "sync", "write"]);
}

#[test]
fn a_read_that_fails_twice_costs_what_it_was_to_read_and_no_more() {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    let mut handle = sim.handle(ShardId(0));
    for sequence in 0..3 {
        let mut batch = Batch::default();
        enqueue(&mut batch, sequence);
        handle.submit(batch);
    }
    let id = LargeId(1);
    handle.large(LargeOp::Begin { id });
    handle.large(LargeOp::Chunk { id, bytes: Bytes::from(vec![1; 100_000]) });
    handle.large(LargeOp::End { id });
    sim.settle();
    let mut read = |times: u64| -> Vec<usize> {
        if times > 0 {
            let trouble = Trouble { id: 7, verb: Verb::Read, effect: Effect::Error, times };
            sim.with_disk(|disk| disk.plant_trouble(trouble));
        }
        let mut events = Vec::new();
        handle.poll(&mut events);
        events.clear();
        handle.load(Load { queue: QUEUE, level: 4, from: 0, count: 100, bytes: 100_000 });
        sim.settle();
        handle.load_large(LoadLarge { token: 1, id, offset: 0, length: 100_000 });
        sim.settle();
        handle.poll(&mut events);
        let body = |e: &Event| match e {
            Event::Loaded(loaded) => Some(loaded.bodies.iter().filter(|b| b.range.is_some()).count()),
            Event::LargeLoaded { bytes, .. } => Some(bytes.as_ref().map_or(0, Bytes::len)),
            _ => None,
        };
        events.iter().filter_map(body).collect()
    };
    assert_eq!(read(0), [3, 100_000]);
    assert_eq!(read(1), [3, 100_000], "once is no answer");
    assert_eq!(read(2), [0, 100_000]);
    assert_eq!(read(3), [0, 100_000], "the one for the large one is the first of its own");
    assert_eq!(read(4), [0, 0]);
    assert_eq!(read(0), [3, 100_000], "it was the disk, not what is on it");
}

#[test]
fn a_full_disk_is_waited_for() {
    let (disk, ops) = prepared();
    let (mut tried, mut said) = (0, 0);
    for (n, op) in ops.iter().enumerate() {
        let large = matches!(op, DiskOp::Write { name, .. } if name.to_string().starts_with("large/"));
        if !large && !matches!(op, DiskOp::Create { length: 1.., .. }) {
            continue;
        }
        tried += 1;
        let sim = open(disk.clone()).unwrap_or_else(|(error, _)| panic!("{error}"));
        sim.with_disk(|disk| disk.inject(SimFault { op: disk.ops() + n as u64 + 1, kind: IoErrorKind::NoSpace }));
        let told = play(&sim, &mut Vec::new());
        assert!(told.failed[0].is_empty(), "operation {n}: {:?}", told.failed);
        assert_eq!((told.durable, told.synced.len()), (Ticket(BATCHES), 1), "operation {n}");
        // Every shard is told once that it is full and once that it is not any more; of a spare segment nobody need know.
        assert_eq!(told.full[0], told.full[1], "operation {n}");
        assert!(told.full[0].is_empty() || told.full[0] == [true, false], "operation {n}: {:?}", told.full[0]);
        assert!(!large || !told.full[0].is_empty(), "operation {n}");
        said += usize::from(!told.full[0].is_empty());
        assert_eq!(found(sim.stop()), (0..BATCHES).collect::<Vec<_>>());
    }
    assert!(tried >= 6 && said >= 2, "{tried} tried, {said} told");
}

#[test]
fn a_disk_that_stays_full_delays_and_loses_nothing() {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    sim.with_disk(|disk| disk.set_free_bytes(Some(0)));
    let told = play(&sim, &mut Vec::new());
    assert!(told.durable < Ticket(BATCHES) && told.durable > Ticket(0), "{:?}", told.durable);
    assert!(told.failed[0].is_empty());
    assert_eq!(told.full, [[true], [true]], "said once, not at each attempt");
    assert!(sim.handle(ShardId(0)).unflushed_bytes() > 0);
    sim.with_disk(|disk| disk.set_free_bytes(None));
    sim.settle();
    let mut after = Told::default();
    after.listen(&mut [sim.handle(ShardId(0)), sim.handle(ShardId(1))]);
    assert_eq!(after.full, [[false], [false]]);
    assert_eq!(found(sim.stop()), (0..BATCHES).collect::<Vec<_>>());
}

#[test]
fn a_start_that_fails_says_what_and_changes_nothing() {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    play(&sim, &mut Vec::new());
    let disk = sim.disk().crash(CrashMode::Lose, 0);
    for n in 1.. {
        let mut failing = disk.clone();
        failing.inject(SimFault { op: failing.ops() + n, kind: IoErrorKind::Other });
        match open(failing) {
            Ok(_) => {
                assert!(n > 15, "a start has more than {n} operations");
                return;
            }
            Err((error, after)) => {
                assert_eq!(error.exit_code(), 70, "{error}");
                assert!(error.to_string().starts_with("the disk failed to "), "{error}");
                assert_eq!(found(after.crash(CrashMode::Torn(512), n)), (0..BATCHES).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_stalled_flush_is_overtaken_and_confirms_stay_in_order() {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    let mut handle = sim.handle(ShardId(0));
    let submit = |handle: &mut SimStore, sequence| {
        let mut batch = Batch::default();
        enqueue(&mut batch, sequence);
        handle.submit(batch);
    };
    submit(&mut handle, 0);
    sim.settle();
    sim.with_disk(|disk| disk.set_slow(1000));
    submit(&mut handle, 1);
    sim.advance(sim.now().mono_us);
    sim.with_disk(|disk| disk.set_slow(1));
    submit(&mut handle, 2);
    let before = handle.status().flushes;
    while handle.status().flushes == before {
        assert!(sim.step(&mut |_, _, _| {}));
    }
    let mut events = Vec::new();
    handle.poll(&mut events);
    assert_eq!(events, [Event::Durable { up_to: Ticket(1) }], "the second flush is done, the first is not");
    sim.settle();
    events.clear();
    handle.poll(&mut events);
    assert_eq!(events, [Event::Durable { up_to: Ticket(3) }]);
}

#[test]
fn a_start_after_a_failed_flush_builds_on_nothing_that_only_the_cache_has() {
    let (disk, ops) = prepared();
    for (n, op) in ops.iter().enumerate() {
        if !matches!(op, DiskOp::Write { sync: true, .. } | DiskOp::Sync { .. }) {
            continue;
        }
        let sim = open(disk.clone()).unwrap_or_else(|(error, _)| panic!("{error}"));
        sim.with_disk(|disk| disk.inject(SimFault { op: disk.ops() + n as u64 + 1, kind: IoErrorKind::Other }));
        let told = play(&sim, &mut Vec::new());
        assert_eq!(told.failed[0].len(), 1, "operation {n}");
        // The process ends, the next one starts on the same system, and then the power goes.
        let second = open(sim.disk().crash(CrashMode::Kill, 0)).unwrap_or_else(|(error, _)| panic!("{error}"));
        let there = found(second.disk().crash(CrashMode::Lose, 0));
        assert!(there.len() as u64 >= told.durable.0, "operation {n}: {there:?} of {:?}", told.durable);
        assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>(), "operation {n}");
    }
}

#[test]
#[should_panic(expected = "before it is synced")]
fn an_entry_of_a_large_message_that_is_not_safe_is_not_taken() {
    let sim = open(SimDisk::new(6)).unwrap_or_else(|(error, _)| panic!("{error}"));
    let mut handle = sim.handle(ShardId(0));
    let id = LargeId(1);
    handle.large(LargeOp::Begin { id });
    handle.large(LargeOp::End { id });
    let mut batch = Batch::default();
    enqueue(&mut batch, 0);
    let head = Head {
        arrived_ms: 0,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    };
    let content = Stored::Large { id, length: 0 };
    batch.push(Op::Enqueue { queue: QUEUE, sequence: 1, head, content, volatile: false });
    handle.submit(batch);
}
