//! The table of what a start finds and decides: damage told from a torn tail, cuts, strangers' files.
#![cfg(feature = "sim")]

use packhorse_journal::sim::{CrashMode, Sim, SimDisk};
use packhorse_journal::{Checkpoints, Dir, FileName, JournalError, Options, Report};
use packhorse_model::{ContentFormat, Head, HeadFlags, Now, QueueId, QueueName, QueueSettings, ShardId};
use packhorse_store::{Batch, Event, Load, Op, RESERVE, Recovered, Store, Stored};

const QUEUE: QueueId = QueueId(1);

fn options() -> Options {
    // The log alone is what is looked at here.
    Options { segment_bytes: 64 * 1024, spare_segments: 1, checkpoints: Checkpoints::never(), ..Options::new(1, 99) }
}

fn start(disk: SimDisk) -> Result<(Sim, Report), JournalError> {
    start_at(disk, 1_000_000)
}

fn start_at(disk: SimDisk, wall_ms: i64) -> Result<(Sim, Report), JournalError> {
    Sim::open(disk, &options(), Now { mono_us: 0, wall_ms }).map_err(|(error, _)| error)
}

fn body(sequence: u64) -> Vec<u8> {
    vec![sequence as u8 + 1; 2000]
}

/// Blocks 2 to 11: the queue, and an entry each, 0 to 9.
fn ten_blocks(sim: &Sim) {
    let mut handle = sim.handle(ShardId(0));
    for sequence in 0..10 {
        let mut batch = Batch::default();
        if sequence == 0 {
            let name = QueueName::new("orders").unwrap();
            batch.push(Op::QueueCreate { id: QUEUE, name, settings: QueueSettings::default(), reserved: RESERVE });
        }
        enqueue(&mut batch, sequence);
        handle.submit(batch);
        sim.settle();
    }
}

fn enqueue(batch: &mut Batch, sequence: u64) {
    let head = Head {
        arrived_ms: 0,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    };
    let content = Stored::Body(batch.copy_body(&body(sequence)));
    batch.push(Op::Enqueue { queue: QUEUE, sequence, head, content, volatile: false });
}

/// The disk of a store that held ten entries when it crashed right after the last was confirmed.
fn crashed() -> SimDisk {
    let (sim, _) = start(SimDisk::new(5)).unwrap();
    ten_blocks(&sim);
    sim.disk().crash(CrashMode::Lose, 1)
}

/// The same, stopped in order.
fn stopped() -> SimDisk {
    let (sim, _) = start(SimDisk::new(5)).unwrap();
    ten_blocks(&sim);
    sim.stop()
}

/// Where a block's header lies: by its magic and number, in the last place if there are several.
fn block(disk: &SimDisk, number: u64) -> (FileName, usize) {
    let mut found = None;
    for name in disk.names().filter(|n| n.dir() == Dir::Journal) {
        for (unit, bytes) in disk.content(name).unwrap().chunks(4096).enumerate() {
            if bytes[..4] == *b"phBK" && bytes[8..16] == number.to_le_bytes() {
                found = Some((name, unit * 4096));
            }
        }
    }
    found.unwrap_or_else(|| panic!("there is no block {number}"))
}

/// Which entries are there, and which of their bodies read back.
fn entries(sim: &Sim) -> (Vec<u64>, Vec<u64>) {
    let mut handle = sim.handle(ShardId(0));
    let mut out = Vec::new();
    while handle.recover(100, &mut out) {}
    let there = out
        .iter()
        .filter_map(|r| match r {
            Recovered::Entry(entry) => Some(entry.key.sequence),
            _ => None,
        })
        .collect();
    handle.load(Load { queue: QUEUE, level: 4, from: 0, count: 100, bytes: 1 << 20 });
    sim.settle();
    let mut events = Vec::new();
    handle.poll(&mut events);
    let Some(Event::Loaded(loaded)) = events.pop() else { panic!("a load is answered") };
    let whole = loaded.bodies.iter().filter_map(|b| {
        let (at, n) = b.range?;
        assert_eq!(loaded.buffer[at as usize..(at + n) as usize], body(b.sequence));
        Some(b.sequence)
    });
    (there, whole.collect())
}

fn without(gone: u64) -> Vec<u64> {
    (0..10).filter(|n| *n != gone).collect()
}

#[track_caller]
fn assert_damaged(disk: SimDisk, name: FileName, at: usize, queues: &[&str]) {
    let error = start(disk).err().expect("a confirmed block is damaged");
    assert_eq!(error.exit_code(), 65);
    let JournalError::Damaged { segment, offset, queues: found, .. } = &error else { panic!("{error}") };
    assert_eq!((segment, *offset), (&name.to_string(), at as u64), "{error}");
    assert_eq!(found.iter().map(QueueName::as_str).collect::<Vec<_>>(), queues);
    assert!(error.to_string().starts_with(&format!("{name} is damaged at byte {at}: ")), "{error}");
}

#[test]
fn nothing_wrong() {
    for disk in [crashed(), stopped()] {
        let (sim, report) = start(disk).unwrap();
        assert_eq!((report.messages, report.queues, report.torn), (10, 1, None));
        let all: Vec<u64> = (0..10).collect();
        assert_eq!(entries(&sim), (all.clone(), all));
    }
}

#[test]
fn fs_63_a_damaged_body_costs_that_entry_only() {
    let mut disk = stopped();
    let (name, at) = block(&disk, 5);
    disk.damage(name, at + 1000, |bytes| bytes[0] ^= 1);
    let (sim, report) = start(disk).unwrap();
    assert_eq!(report.messages, 10);
    assert_eq!(entries(&sim), ((0..10).collect(), without(3)));
}

#[test]
fn fs_63_damaged_metadata_of_a_confirmed_block_is_refused() {
    // In the header, in the metadata behind it.
    for offset in [0, 9, 50, 63, 64, 100] {
        let mut disk = crashed();
        let (name, at) = block(&disk, 5);
        disk.damage(name, at + offset, |bytes| bytes[0] ^= 0x40);
        assert_damaged(disk, name, at, &["orders"]);
    }
    let mut disk = crashed();
    let (name, at) = block(&disk, 1);
    disk.damage(name, at, |bytes| bytes[..4096].fill(0));
    assert_damaged(disk, name, at, &[]);
}

#[test]
fn fs_63_one_flipped_bit_in_a_last_block_that_nothing_proves_loses_nothing() {
    let whole = crashed();
    let (name, at) = block(&whole, 11);
    let length = u32::from_le_bytes(whole.content(name).unwrap()[at + 40..at + 44].try_into().unwrap()) as usize;
    let meta = 64 + u32::from_le_bytes(whole.content(name).unwrap()[at + 44..at + 48].try_into().unwrap()) as usize;
    for bit in (0..length * 8).filter(|bit| *bit < meta * 8 || bit % 31 == 0) {
        let mut disk = whole.clone();
        disk.damage(name, at + bit / 8, |bytes| bytes[0] ^= 1 << (bit % 8));
        let (sim, report) = start(disk).unwrap();
        let in_body = bit >= meta * 8;
        let mended = if in_body { vec![] } else { vec![(name.to_string(), at as u64)] };
        assert_eq!((report.messages, report.torn, report.mended), (10, None, mended), "bit {bit}");
        let all: Vec<u64> = (0..10).collect();
        let readable = if in_body { without(9) } else { all.clone() };
        assert_eq!(entries(&sim), (all.clone(), readable.clone()), "bit {bit}");
        // What was put right is right on the medium, and the next start finds nothing wrong.
        let (sim, report) = start(sim.disk().crash(CrashMode::Lose, 1)).unwrap();
        assert_eq!((report.messages, report.torn, report.mended.len()), (10, None, 0), "bit {bit}");
        assert_eq!(entries(&sim), (all, readable), "bit {bit}");
    }
}

#[test]
fn fs_63_a_flipped_bit_in_the_only_block_of_a_segment_or_in_each_of_the_last_two_loses_nothing() {
    // A first block of a segment: the start's own.
    let (sim, _) = start(stopped()).unwrap();
    let mut disk = sim.disk().crash(CrashMode::Lose, 1);
    let (name, at) = block(&disk, 13);
    assert_eq!(at, 4096);
    disk.damage(name, at + 9, |bytes| bytes[0] ^= 4);
    let (sim, report) = start(disk).unwrap();
    assert_eq!((report.messages, report.mended), (10, vec![(name.to_string(), at as u64)]));
    assert_eq!(entries(&sim).1.len(), 10);
    // Its segment is kept.
    let (_, report) = start(sim.disk().crash(CrashMode::Lose, 1)).unwrap();
    assert_eq!((report.messages, report.mended.len()), (10, 0));
    // Two blocks of one flush time, neither of which knows of the other.
    let mut disk = two_at_once();
    let places = [block(&disk, 12), block(&disk, 13)];
    for (name, at) in places {
        disk.damage(name, at + 70, |bytes| bytes[0] ^= 1);
    }
    let (sim, report) = start(disk).unwrap();
    assert_eq!((report.messages, report.mended.len()), (12, 2));
    assert_eq!(entries(&sim).1.len(), 12);
}

#[test]
fn fs_63_a_last_block_that_nothing_proves_is_a_torn_tail() {
    for offset in [0, 60, 64, 100, 1000] {
        let mut disk = crashed();
        let (name, at) = block(&disk, 11);
        disk.damage(name, at + offset, |bytes| bytes[..4].iter_mut().for_each(|byte| *byte ^= 0x5a));
        let (sim, report) = start(disk).unwrap();
        // Without its header there is nothing to be seen of it.
        let torn = if offset < 64 { None } else { Some((name.to_string(), at as u64)) };
        assert_eq!((report.messages, report.torn), (9, torn), "offset {offset}");
        assert_eq!(entries(&sim).0, (0..9).collect::<Vec<_>>());
    }
}

#[test]
fn a_last_block_is_proved_by_the_empty_one_behind_it() {
    // After a stop in order, and after a second without work.
    let idle = || {
        let (sim, _) = start(SimDisk::new(5)).unwrap();
        ten_blocks(&sim);
        sim.advance(sim.now().mono_us + 2_000_000);
        sim.disk().crash(CrashMode::Lose, 1)
    };
    for mut disk in [stopped(), idle()] {
        let (name, at) = block(&disk, 11);
        disk.damage(name, at + 70, |bytes| bytes[0] ^= 1);
        assert_damaged(disk, name, at, &["orders"]);
    }
}

/// Twelve entries, the last two in blocks that were written at the same time.
fn two_at_once() -> SimDisk {
    let (sim, _) = start(SimDisk::new(5)).unwrap();
    ten_blocks(&sim);
    sim.with_disk(|disk| disk.set_slow(1000));
    let mut handle = sim.handle(ShardId(0));
    for sequence in 10..12 {
        let mut batch = Batch::default();
        enqueue(&mut batch, sequence);
        handle.submit(batch);
        sim.advance(sim.now().mono_us);
        sim.with_disk(|disk| disk.set_slow(1));
    }
    sim.settle();
    sim.disk().crash(CrashMode::Lose, 1)
}

#[test]
fn what_an_earlier_start_has_read_is_confirmed() {
    let (sim, _) = start(crashed()).unwrap();
    let mut disk = sim.disk().crash(CrashMode::Lose, 1);
    let (name, at) = block(&disk, 11);
    disk.damage(name, at + 70, |bytes| bytes[0] ^= 1);
    assert_damaged(disk, name, at, &["orders"]);
}

#[test]
fn what_a_start_has_cut_off_stays_void() {
    // Block 11 is torn, a start cuts it off, and then it is whole again.
    let mut disk = crashed();
    let (name, at) = block(&disk, 11);
    let whole = disk.content(name).unwrap().to_vec();
    disk.damage(name, at + 70, |bytes| bytes[..3].fill(0x77));
    let (sim, _) = start(disk).unwrap();
    let mut disk = sim.disk().crash(CrashMode::Lose, 1);
    assert_ne!(block(&disk, 11).0, name, "the start's own block has that number now");
    disk.damage(name, at, |bytes| bytes.copy_from_slice(&whole[at..]));
    let (sim, report) = start(disk).unwrap();
    assert_eq!((report.messages, report.torn), (9, None));
    assert_eq!(entries(&sim).1, (0..9).collect::<Vec<_>>());
}

#[test]
fn fs_63_a_damaged_segment_header_is_refused() {
    let mut disk = stopped();
    let (name, _) = block(&disk, 5);
    disk.damage(name, 20, |bytes| bytes[0] ^= 1);
    assert_damaged(disk, name, 0, &[]);
}

#[test]
fn a_missing_segment_is_noticed() {
    // Three starts make three segments with blocks.
    let disk = || {
        let (sim, _) = start(crashed()).unwrap();
        let (sim, _) = start(sim.disk().crash(CrashMode::Lose, 1)).unwrap();
        sim.disk().crash(CrashMode::Lose, 1)
    };
    let names: Vec<FileName> = [1, 12, 13].map(|number| block(&disk(), number).0).to_vec();
    assert_eq!(names.len(), 3);
    for gone in &names[..2] {
        let mut disk = disk();
        disk.plant(*gone, None);
        assert!(matches!(start(disk), Err(JournalError::Damaged { .. })), "{gone} is missing");
    }
}

#[test]
fn strangers_files_are_named() {
    let mut disk = stopped();
    let (other, _) = Sim::open(SimDisk::new(5), &Options { seed: 1, ..options() }, Now::default())
        .unwrap_or_else(|(error, _)| panic!("{error}"));
    let other = other.stop();
    let name = other.names().find(|n| n.dir() == Dir::Journal).unwrap();
    disk.plant(FileName::Segment(77), other.content(name).map(<[u8]>::to_vec));
    let error = start(disk).err().expect("it is refused");
    assert!(error.to_string().starts_with("journal/00000077.seg holds a segment of another store"), "{error}");
    assert_eq!(error.exit_code(), 65);

    let mut disk = stopped();
    disk.plant(FileName::Store, Some(b"something else entirely".to_vec()));
    let error = start(disk).err().expect("it is refused");
    assert!(
        error.to_string().starts_with("STORE holds no Packhorse store, this program reads formats 1 to 4;"),
        "{error}"
    );

    let mut disk = stopped();
    disk.plant(FileName::Store, None);
    let error = start(disk).err().expect("it is refused");
    assert!(error.to_string().contains("without the STORE file"), "{error}");
}

#[test]
fn headers_decide_and_names_are_hints() {
    let mut disk = stopped();
    let (name, _) = block(&disk, 5);
    let content = disk.content(name).unwrap().to_vec();
    disk.plant(name, None);
    disk.plant(FileName::Pool(50), Some(content.clone()));
    let (sim, report) = start(disk).unwrap();
    assert_eq!(report.messages, 10);
    assert_eq!(entries(&sim).1.len(), 10);

    let mut disk = stopped();
    disk.plant(FileName::Pool(50), Some(content));
    let error = start(disk).err().expect("one segment cannot be there twice");
    assert!(error.to_string().contains("another file has the same segment number"), "{error}");
}

#[test]
fn broker_time_goes_on_and_downtime_counts() {
    let (sim, _) = start_at(SimDisk::new(1), 1_000_000).unwrap();
    assert_eq!(sim.handle(ShardId(0)).started_at_ms(), 0);
    sim.advance(5_000_000);
    let disk = sim.stop();
    // The empty block after the stop was written 5 s after the start, at wall time 1,005,000.
    for (wall_ms, expected) in [(1_065_000, 65_000), (1_005_000, 5_000), (900_000, 5_000)] {
        let (sim, _) = start_at(disk.clone(), wall_ms).unwrap();
        assert_eq!(sim.handle(ShardId(0)).started_at_ms(), expected);
        assert_eq!(sim.handle(ShardId(0)).run(), 2);
    }
}

#[test]
fn no_space_for_a_start_says_how_much_is_needed() {
    let mut disk = SimDisk::new(1);
    disk.set_free_bytes(Some(10_000));
    let error = start(disk).err().expect("there is no space");
    assert_eq!(error, JournalError::NoSpace { needed: 65_536, path: "journal/00000001.seg".into() });
    assert_eq!(error.exit_code(), 70);
}

#[test]
fn unused_segments_and_spares_are_used_again() {
    let (sim, _) = start(SimDisk::new(3)).unwrap();
    ten_blocks(&sim);
    sim.advance(sim.now().mono_us + 5_000_000);
    let mut disk = sim.stop();
    for _ in 0..20 {
        let (sim, _) = start(disk).unwrap();
        sim.advance(5_000_000);
        disk = sim.stop();
    }
    let files = disk.names().filter(|n| matches!(n.dir(), Dir::Journal | Dir::Pool)).count();
    // Each start needs one segment; besides, one is ready and one spare.
    assert!(files <= 21 + 3, "{files} files");
}

#[test]
fn fs_63_any_flipped_bit_is_noticed_or_costs_one_body() {
    let whole = stopped();
    let names: Vec<FileName> = whole.names().collect();
    let (mut seed, mut refused, mut costly) = (1u64, 0, 0);
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..1500 {
        let mut disk = whole.clone();
        let name = names[random(names.len())];
        let used = disk.content(name).unwrap().iter().rposition(|b| *b != 0).map_or(1, |at| at + 1);
        let (at, bit) = (random(used), random(8));
        disk.damage(name, at, |bytes| bytes[0] ^= 1 << bit);
        match start(disk) {
            Err(error) => {
                assert_eq!(error.exit_code(), 65, "{name} byte {at}: {error}");
                refused += 1;
            }
            Ok((sim, report)) => {
                assert_eq!(report.messages, 10, "{name} byte {at}");
                let (there, readable) = entries(&sim);
                assert_eq!(there.len(), 10, "{name} byte {at}");
                assert!(readable.len() >= 9, "{name} byte {at}: {readable:?}");
                costly += 10 - readable.len();
            }
        }
    }
    assert!(refused > 50 && costly > 50, "{refused} refused, {costly} bodies lost");
}

#[test]
fn fs_63_a_segment_cut_short_is_noticed_when_confirmed_blocks_are_missing() {
    let whole = stopped();
    let (name, last) = block(&whole, 11);
    for length in (0..last).step_by(1024) {
        let mut disk = whole.clone();
        let content = disk.content(name).unwrap()[..length].to_vec();
        disk.plant(name, Some(content));
        // Nothing is left that could prove anything once all later blocks are gone: what is there must be a prefix.
        match start(disk) {
            Ok((sim, report)) => {
                let (there, readable) = entries(&sim);
                assert_eq!(there, (0..report.messages).collect::<Vec<_>>(), "{length}");
                assert_eq!(readable, there, "{length}");
            }
            Err(error) => assert_eq!(error.exit_code(), 65, "{length}: {error}"),
        }
    }
}
