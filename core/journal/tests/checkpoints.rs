//! Checkpoints seen from outside: the directory stays small, a start reads little, and what is damaged is noticed or made up
//! for by the checkpoint before.
#![cfg(feature = "sim")]

mod small;

use packhorse_journal::sim::{CrashMode, Sim, SimDisk, SimFault, When};
use packhorse_journal::{Checkpoints, Dir, DiskOp, FileName, IoErrorKind, JournalError, Options, Report, Slot};
use packhorse_model::{Now, ShardId};
use packhorse_store::{Batch, Event, Load, Op, RESERVE, Recovered, Store, Stored};
use small::{HEAD, QUEUE, SEGMENT, options};

fn start(disk: SimDisk) -> Result<(Sim, Report), (JournalError, Box<SimDisk>)> {
    Sim::open(disk, &options(), Now { mono_us: 0, wall_ms: 1_000 })
}

fn started(disk: SimDisk) -> (Sim, Report) {
    start(disk).unwrap_or_else(|(error, _)| panic!("{error}"))
}

fn body(sequence: u64) -> Vec<u8> {
    vec![sequence as u8; 1500]
}

/// Entries `from..to` one after another; all but the last ten go, and those that `stay`. The first makes the queue.
fn flow(sim: &Sim, from: u64, to: u64, stay: impl Fn(u64) -> bool, look: &mut dyn FnMut(&DiskOp)) {
    let mut handle = sim.handle(ShardId(0));
    for sequence in from..to {
        let mut batch = Batch::default();
        if sequence == 0 {
            small::make_queue(&mut batch);
        }
        let content = Stored::Body(batch.copy_body(&body(sequence)));
        batch.push(Op::Enqueue { queue: QUEUE, sequence, head: HEAD, content, volatile: false });
        if let Some(old) = sequence.checked_sub(10).filter(|old| !stay(*old)) {
            batch.acknowledge(QUEUE, old);
        }
        handle.submit(batch);
        for _ in 0..10_000 {
            if sim.quiet() || !sim.step(&mut |_, _, op| look(op)) {
                break;
            }
        }
    }
    // What goes on in the background, too.
    let end = sim.now().mono_us + 100_000;
    while sim.next_event_us().is_some_and(|at| at < end) && sim.step(&mut |_, _, op| look(op)) {}
}

/// What a flow leaves.
fn left(to: u64, stay: impl Fn(u64) -> bool) -> Vec<u64> {
    (0..to).filter(|n| n + 10 >= to || stay(*n)).collect()
}

/// Entries that are there, all of whose bodies must read back.
fn entries(sim: &Sim) -> Vec<u64> {
    let mut handle = sim.handle(ShardId(0));
    let mut out = Vec::new();
    while handle.recover(100, &mut out) {}
    let there = out.iter().filter_map(|r| match r {
        Recovered::Entry(entry) => {
            assert_eq!(entry.head, HEAD);
            Some(entry.key.sequence)
        }
        _ => None,
    });
    let there: Vec<u64> = there.collect();
    handle.load(Load { queue: QUEUE, level: 4, from: 0, count: 10_000, bytes: u32::MAX });
    sim.settle();
    let mut events = Vec::new();
    handle.poll(&mut events);
    let Some(Event::Loaded(loaded)) = events.pop() else { panic!("a load is answered") };
    let whole = loaded.bodies.iter().map(|b| {
        let (at, n) = b.range.unwrap_or_else(|| panic!("the body of {} is whole", b.sequence));
        assert_eq!(loaded.buffer[at as usize..(at + n) as usize], body(b.sequence));
        b.sequence
    });
    assert_eq!(whole.collect::<Vec<_>>(), there);
    there
}

fn never(_: u64) -> bool {
    false
}

/// A disk after a long flow and a crash, and its two checkpoints, the newest first.
fn flowed(stay: impl Fn(u64) -> bool) -> (SimDisk, [FileName; 2]) {
    let (sim, _) = started(SimDisk::new(1));
    let mut newest = Slot::A;
    flow(&sim, 0, 200, stay, &mut |op| {
        if let DiskOp::Write { name: FileName::Checkpoint(slot), offset: 0, .. } = op {
            newest = *slot;
        }
    });
    // The last one is safe or was never begun.
    sim.advance(sim.now().mono_us + 1_000_000);
    let disk = sim.disk().crash(CrashMode::Lose, 0);
    (disk, [FileName::Checkpoint(newest), FileName::Checkpoint(newest.other())])
}

fn files(disk: &SimDisk) -> usize {
    disk.names().filter(|n| matches!(n.dir(), Dir::Journal | Dir::Pool)).count()
}

#[test]
fn a_steady_flow_keeps_the_directory_small_and_a_start_short() {
    let (sim, _) = started(SimDisk::new(1));
    let (mut most, mut recycled) = (0, 0);
    let mut created = 0;
    for n in 0..10 {
        flow(&sim, n * 100, (n + 1) * 100, never, &mut |op| match op {
            DiskOp::Rename { from: FileName::Segment(_), to: FileName::Pool(_) } => recycled += 1,
            DiskOp::Create { name: FileName::Segment(_), .. } => created += 1,
            _ => {}
        });
        most = most.max(files(&sim.disk()));
    }
    // 4 KiB a message: 125 segments have been filled.
    assert!(most <= 9, "{most} files at once");
    assert!(recycled >= 100 && created < 20, "{recycled} used again, {created} new");
    assert!(sim.handle(ShardId(0)).status().segments <= 6);
    let disk = sim.disk().crash(CrashMode::Torn(512), 3);
    let size: usize = Slot::ALL.iter().filter_map(|s| disk.content(FileName::Checkpoint(*s))).map(<[u8]>::len).sum();
    assert!(size < 40_000, "{size} bytes of checkpoints");
    let (sim, report) = started(disk);
    assert_eq!(entries(&sim), left(1000, never));
    assert!(report.blocks < 60, "{report:?}");
}

#[test]
fn lives_that_are_short_do_not_pile_up_segments() {
    // Each start begins a segment, and hardly anything comes into it before the process dies again: a second later.
    const LIVES: u64 = 100;
    let (mut disk, mut most) = (SimDisk::new(3), 0);
    for life in 0..LIVES {
        let (sim, report) = started(disk);
        most = most.max(report.bytes);
        flow(&sim, life, life + 1, never, &mut |_| {});
        sim.advance(sim.now().mono_us + 1_000_000);
        disk = sim.disk().crash(CrashMode::Lose, life);
    }
    // Ten of them hold the last ten entries.
    assert!(most <= 16 * SEGMENT, "a start had {most} bytes to read");
    assert!(files(&disk) <= 20, "{} files", files(&disk));
    let (sim, _) = started(disk);
    assert_eq!(entries(&sim), left(LIVES, never));
}

#[test]
fn a_full_disk_goes_on_with_what_checkpoints_free() {
    // None is due for a long time but for the want of space.
    let checkpoints = Checkpoints { every_bytes: 1 << 40, every_us: 1 << 50, ..options().checkpoints };
    let (sim, _) = Sim::open(SimDisk::new(1), &Options { checkpoints, ..options() }, Now::default())
        .unwrap_or_else(|(error, _)| panic!("{error}"));
    flow(&sim, 0, 40, never, &mut |_| {});
    sim.with_disk(|disk| disk.set_free_bytes(Some(0)));
    flow(&sim, 40, 300, never, &mut |_| {});
    assert_eq!(sim.handle(ShardId(0)).unflushed_bytes(), 0, "nothing waits for space");
    let mut disk = sim.disk().crash(CrashMode::Torn(512), 1);
    disk.set_free_bytes(None);
    assert_eq!(entries(&started(disk).0), left(300, never));
}

#[test]
fn a_message_that_stays_keeps_its_segment_alone() {
    let stay = |n: u64| n == 3 || n == 60;
    let (disk, _) = flowed(stay);
    let mut segments: Vec<u32> = disk
        .names()
        .filter_map(|name| match name {
            FileName::Segment(id) => Some(id),
            _ => None,
        })
        .collect();
    segments.sort_unstable();
    assert!(segments.len() <= 8 && segments[0] == 1 && segments[1] > 4, "{segments:?}");
    // Over starts and more flow.
    let (sim, _) = started(disk);
    assert_eq!(entries(&sim), left(200, stay));
    flow(&sim, RESERVE, RESERVE + 100, never, &mut |_| {});
    let (sim, _) = started(sim.disk().crash(CrashMode::Torn(4096), 1));
    let there = entries(&sim);
    assert_eq!((there[0], there[1], there.len()), (3, 60, 22));
}

#[test]
fn a_damaged_checkpoint_is_made_up_for_by_the_one_before() {
    let stay = |n| n % 50 == 0;
    let (disk, [newest, before]) = flowed(stay);
    assert!(disk.content(FileName::Segment(3)).is_none(), "segments are gone");
    let used = disk.content(newest).unwrap().iter().rposition(|b| *b != 0).unwrap();
    for at in [0, 20, 60, 130, 4096, 4104, used] {
        let mut disk = disk.clone();
        disk.damage(newest, at, |bytes| bytes[0] ^= 4);
        let (sim, _) = started(disk);
        assert_eq!(entries(&sim), left(200, stay), "byte {at}");
        // And goes on from there: the damaged one is written anew.
        flow(&sim, RESERVE, RESERVE + 100, never, &mut |_| {});
        let (sim, _) = started(sim.disk().crash(CrashMode::Lose, 0));
        assert_eq!(entries(&sim).len(), left(200, stay).len() + 10);
    }
    let mut disk = disk;
    disk.plant(before, None);
    assert_eq!(entries(&started(disk).0), left(200, stay), "the newest one is enough");
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_made_up_for_by_the_one_before() {
    let stay = |n| n % 50 == 0;
    let (disk, [newest, before]) = flowed(stay);
    let ops = started(disk.clone()).0.disk().ops() - disk.ops();
    let mut made_up_for = 0;
    for n in 1..=ops {
        let mut failing = disk.clone();
        failing.inject(SimFault { op: failing.ops() + n, kind: IoErrorKind::Other });
        match start(failing) {
            Ok((sim, _)) => {
                assert_eq!(entries(&sim), left(200, stay), "operation {n}");
                made_up_for += 1;
            }
            Err((error, after)) => {
                assert_eq!(error.exit_code(), 70, "{error}");
                assert_eq!(entries(&started(after.crash(CrashMode::Kill, 0)).0), left(200, stay), "operation {n}");
            }
        }
    }
    // Of each file the sync, the cache, the header; of the newest what follows.
    assert_eq!(made_up_for, 7, "of {ops}");
    // Without another one it is what ends the start.
    for n in 1..=ops {
        let mut failing = disk.clone();
        failing.plant(before, None);
        failing.inject(SimFault { op: failing.ops() + n, kind: IoErrorKind::Other });
        if let Err((error, _)) = start(failing) {
            assert_eq!(error.exit_code(), 70, "{error}");
            made_up_for -= u64::from(error.to_string().contains(&newest.to_string()));
        }
    }
    assert_eq!(made_up_for, 3, "the four operations on the newest one");
}

#[test]
fn without_a_checkpoint_that_is_needed_nothing_is_started_or_changed() {
    let (disk, slots) = flowed(never);
    let destroyed = |how: &dyn Fn(&mut SimDisk, FileName)| {
        let mut disk = disk.clone();
        slots.iter().for_each(|name| how(&mut disk, *name));
        disk
    };
    for lost in [
        destroyed(&|disk, name| disk.damage(name, 33, |bytes| bytes[0] ^= 1)),
        destroyed(&|disk, name| disk.plant(name, Some(Vec::new()))),
        destroyed(&|disk, name| disk.plant(name, None)),
    ] {
        let (error, after) = start(lost).err().expect("messages would be missing");
        assert_eq!(error.exit_code(), 65);
        assert!(matches!(error, JournalError::CheckpointLost { covers } if covers > 1), "{error}");
        assert!(error.to_string().contains("ckpt.A, ckpt.B") && error.to_string().contains("salvage"), "{error}");
        // With one of them back all is well.
        let mut disk2 = after.crash(CrashMode::Kill, 0);
        disk2.plant(slots[0], disk.content(slots[0]).map(<[u8]>::to_vec));
        assert_eq!(entries(&started(disk2).0), left(200, never));
    }
}

#[test]
fn a_checkpoint_older_than_what_is_gone_is_not_used() {
    let (sim, _) = started(SimDisk::new(1));
    let mut first = None;
    flow(&sim, 0, 30, never, &mut |_| {});
    let early = sim.disk();
    for slot in Slot::ALL {
        first = first.or(early.content(FileName::Checkpoint(slot)).map(<[u8]>::to_vec));
    }
    flow(&sim, 30, 200, never, &mut |_| {});
    let mut disk = sim.disk().crash(CrashMode::Lose, 0);
    disk.plant(FileName::Checkpoint(Slot::A), first);
    disk.plant(FileName::Checkpoint(Slot::B), None);
    let (error, _) = start(disk).err().expect("messages would be missing");
    assert!(matches!(error, JournalError::CheckpointLost { .. }), "{error}");
}

#[test]
fn damage_in_a_segment_that_holds_messages_is_noticed() {
    let stay = |n: u64| n == 3;
    let (disk, _) = flowed(stay);
    let name = FileName::Segment(1);
    let refused = |disk: SimDisk, at: u64, words: &str| {
        let (error, _) = start(disk).err().expect("a confirmed message is gone");
        let JournalError::Damaged { segment, offset, what, queues } = &error else { panic!("{error}") };
        assert_eq!((segment, *offset), (&name.to_string(), at), "{error}");
        assert!(what.contains(words), "{what}");
        assert_eq!(queues[0].as_str(), "orders");
    };
    let mut missing = disk.clone();
    missing.plant(name, None);
    refused(missing, 0, "is missing");
    for unit in 1..8 {
        for at in [0, 9, 64] {
            let mut damaged = disk.clone();
            damaged.damage(name, unit * 4096 + at, |bytes| bytes[0] ^= 1);
            refused(damaged, unit as u64 * 4096, "cannot be read");
        }
    }
    // A body costs that entry alone.
    let mut body = disk.clone();
    body.damage(name, 5 * 4096 + 300, |bytes| bytes[0] ^= 1);
    assert!(start(body).is_ok());
}

#[test]
fn damage_behind_a_checkpoint_is_told_from_a_torn_tail() {
    let (sim, _) = started(SimDisk::new(1));
    flow(&sim, 0, 40, never, &mut |_| {});
    sim.advance(sim.now().mono_us + 62_000_000);
    let disk = sim.disk().crash(CrashMode::Lose, 0);
    let (_, report) = started(disk.clone());
    assert!(report.blocks <= 1, "a checkpoint was taken after a minute: {report:?}");
    flow(&sim, 40, 44, never, &mut |_| {});
    let disk = sim.disk().crash(CrashMode::Lose, 0);
    let mut blocks = Vec::new();
    for name in disk.names().filter(|n| n.dir() == Dir::Journal) {
        for (unit, bytes) in disk.content(name).unwrap().chunks(4096).enumerate() {
            if bytes[..4] == *b"phBK" {
                blocks.push((u64::from_le_bytes(bytes[8..16].try_into().unwrap()), name, unit * 4096));
            }
        }
    }
    blocks.sort_unstable();
    let last = blocks.len() - 1;
    let mut torn = disk.clone();
    torn.damage(blocks[last].1, blocks[last].2 + 64, |bytes| bytes[..400].fill(0));
    let (sim, report) = started(torn);
    assert!(report.torn.is_some());
    assert_eq!(entries(&sim).last(), Some(&42));
    let mut damaged = disk;
    damaged.damage(blocks[last - 2].1, blocks[last - 2].2 + 64, |bytes| bytes[0] ^= 1);
    let (error, _) = start(damaged).err().expect("a confirmed block is damaged");
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}

#[test]
fn a_block_that_a_checkpoint_has_seen_was_confirmed() {
    let (sim, _) = started(SimDisk::new(1));
    sim.with_disk(|disk| disk.set_slow(3));
    let mut handle = sim.handle(ShardId(0));
    let mut tried = 0;
    for sequence in 0..150 {
        let mut batch = Batch::default();
        if sequence == 0 {
            small::make_queue(&mut batch);
        }
        let content = Stored::Body(batch.copy_body(&body(sequence)));
        batch.push(Op::Enqueue { queue: QUEUE, sequence, head: HEAD, content, volatile: false });
        handle.submit(batch);
        for _ in 0..3 {
            sim.step(&mut |_, _, _| {});
            let disk = sim.disk().crash(CrashMode::Lose, 0);
            // The newest that is whole on the medium: covered and seen block.
            let number = |bytes: &[u8], at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let headers = Slot::ALL.iter().filter_map(|s| disk.content(FileName::Checkpoint(*s)));
            let headers = headers.filter(|bytes| bytes.len() > 4096 && bytes[0] != 0);
            let newest = headers.map(|b| (number(b, 32), number(b, 48), number(b, 56))).max();
            let Some((_, covered, seen)) = newest.filter(|(_, covered, seen)| seen > covered) else { continue };
            let mut lost = disk.clone();
            for name in disk.names().filter(|n| n.dir() == Dir::Journal) {
                for (unit, bytes) in disk.content(name).unwrap().chunks(4096).enumerate() {
                    if bytes[..4] == *b"phBK" && number(bytes, 8) >= seen {
                        lost.damage(name, unit * 4096, |bytes| bytes[..4096].fill(0));
                    }
                }
            }
            let (_, report) = started(disk);
            assert!(report.blocks >= seen - covered);
            tried += 1;
            let (error, _) = start(lost).err().expect("a block that was confirmed is gone");
            assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
        }
    }
    assert!(tried > 10, "{tried}");
}

#[test]
fn a_stop_in_order_leaves_nothing_to_read() {
    let at_stop = |disk| {
        let checkpoints = Checkpoints { at_stop: true, ..options().checkpoints };
        Sim::open(disk, &Options { checkpoints, ..options() }, Now { mono_us: 0, wall_ms: 1_000 })
            .unwrap_or_else(|(error, _)| panic!("{error}"))
    };
    let (sim, _) = at_stop(SimDisk::new(1));
    flow(&sim, 0, 25, |n| n < 5, &mut |_| {});
    let mut disk = sim.stop();
    for _ in 0..5 {
        let (sim, report) = at_stop(disk);
        assert!(report.blocks <= 1, "{report:?}");
        assert_eq!(report.messages, 15);
        assert_eq!(entries(&sim), left(25, |n| n < 5));
        disk = sim.stop();
    }
    let (sim, _) = at_stop(disk);
    assert_eq!(sim.handle(ShardId(0)).run(), 7);
    flow(&sim, RESERVE * 7, RESERVE * 7 + 30, never, &mut |_| {});
    assert_eq!(entries(&at_stop(sim.stop()).0).len(), 25);
}

#[test]
fn an_idle_store_takes_one_checkpoint_and_then_no_more() {
    let (sim, _) = started(SimDisk::new(1));
    flow(&sim, 0, 5, never, &mut |_| {});
    let mut taken = 0;
    let mut look = |op: &DiskOp| {
        taken += u32::from(matches!(op, DiskOp::Write { name: FileName::Checkpoint(_), offset: 0, .. }));
    };
    while sim.step(&mut |_, _, op| look(op)) {}
    sim.advance(sim.now().mono_us + 600_000_000);
    while sim.step(&mut |_, _, op| look(op)) {}
    assert_eq!(taken, 1);
}

#[test]
fn a_failed_step_of_a_checkpoint_ends_the_store_and_a_full_disk_puts_it_off() {
    let (sim, _) = started(SimDisk::new(1));
    let disk = sim.disk().crash(CrashMode::Kill, 0);
    let (sim, _) = started(disk.clone());
    let mut ops = Vec::new();
    flow(&sim, 0, 60, never, &mut |op| ops.push(op.clone()));
    let of_checkpoint = |op: &DiskOp| {
        let name = op.subject().to_string();
        name.starts_with("ckpt") || (name == "the data directory" && op.verb() == "sync")
    };
    let mut kinds = std::collections::BTreeSet::new();
    for (n, op) in ops.iter().enumerate().filter(|(_, op)| of_checkpoint(op)) {
        kinds.insert(op.verb());
        let (sim, _) = started(disk.clone());
        sim.with_disk(|disk| disk.inject(SimFault { op: disk.ops() + n as u64 + 1, kind: IoErrorKind::Other }));
        flow(&sim, 0, 60, never, &mut |_| {});
        let mut events = Vec::new();
        sim.handle(ShardId(0)).poll(&mut events);
        let told = events.iter().find_map(|event| match event {
            Event::Failed(failure) => Some(failure.what.clone()),
            _ => None,
        });
        assert_eq!(told, Some(format!("the disk failed to {} {}: injected error", op.verb(), op.subject())));
        for mode in [CrashMode::Lose, CrashMode::Kill] {
            let left = sim.disk().crash(mode, n as u64);
            drop(started(left));
        }
        if op.verb() == "write" || op.verb() == "create" {
            let (sim, _) = started(disk.clone());
            sim.with_disk(|disk| disk.inject(SimFault { op: disk.ops() + n as u64 + 1, kind: IoErrorKind::NoSpace }));
            flow(&sim, 0, 60, never, &mut |_| {});
            assert_eq!(entries(&started(sim.disk().crash(CrashMode::Lose, 0)).0), left(60, never), "operation {n}");
            // It is taken up again.
            let mut taken = 0;
            while sim.step(&mut |_, _, op| {
                taken += u32::from(matches!(op, DiskOp::Write { name: FileName::Checkpoint(_), offset: 0, .. }));
            }) {}
            assert!(taken > 0, "operation {n}");
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["create", "sync", "write"]);
}

#[test]
fn strangers_checkpoints_are_named() {
    let (disk, [newest, _]) = flowed(never);
    let (other, _) = Sim::open(SimDisk::new(5), &Options { seed: 1, ..options() }, Now::default())
        .unwrap_or_else(|(e, _)| panic!("{e}"));
    flow(&other, 0, 60, never, &mut |_| {});
    let other = other.disk().crash(CrashMode::Lose, 0);
    let stranger = other.content(FileName::Checkpoint(Slot::A)).map(<[u8]>::to_vec);
    let mut disk = disk;
    disk.plant(newest, stranger);
    let (error, _) = start(disk).err().expect("it is refused");
    assert!(error.to_string().contains("a checkpoint of another store"), "{error}");
    assert_eq!(error.exit_code(), 65);
}

/// Twice the process dies between making a checkpoint's file and making its name safe; the next one finds the file, and the log that it
/// stands for is given up. Then the power goes. (Simulator, seeds 850 and 1129 of 70cc1e4.)
#[test]
fn a_checkpoint_whose_name_was_not_safe_is_not_lost_with_the_power() {
    let mut disk = SimDisk::new(1);
    for run in 0..2 {
        let (sim, _) = started(disk);
        sim.with_disk(|disk| disk.crash_on(|op| matches!(op, DiskOp::SyncDir { dir: Dir::Root }), 1, When::Before));
        flow(&sim, run * 100, (run + 1) * 100, never, &mut |_| {});
        assert!(sim.disk().crashed(), "a checkpoint's file is made in run {run}");
        disk = sim.disk().crash(CrashMode::Kill, 0);
    }
    let (sim, _) = started(disk);
    flow(&sim, 200, 400, never, &mut |_| {});
    sim.advance(sim.now().mono_us + 1_000_000);
    let (sim, _) = started(sim.disk().crash(CrashMode::Lose, 0));
    let there = entries(&sim);
    assert!((390..400).all(|sequence| there.contains(&sequence)), "{there:?}");
}
