//! The store on real files: what is confirmed is there after a drop without a stop, and a directory has one user.

use bytes::Bytes;
use packhorse_disk::{Checkpoints, DiskStore, OpenError, OpenOptions, OpenReport, ShardStore};
use packhorse_model::{
    Content, ContentFormat, EntryKey, Head, HeadFlags, LargeId, Overlay, QueueId, QueueName, QueueSettings,
};
use packhorse_store::{
    Batch, Event, LargeOp, Load, LoadLarge, Loaded, Op, Recovered, RecoveredEntry, Store, Stored, Ticket,
};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Wakes a test that waits for any shard.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn wait(&self) {
        let rung = self.rung.lock().unwrap();
        let (mut rung, timeout) = self.rings.wait_timeout_while(rung, Duration::from_secs(30), |r| !*r).unwrap();
        assert!(!timeout.timed_out(), "the store has not called for 30 s");
        *rung = false;
    }
}

struct Open {
    store: DiskStore,
    shards: Vec<ShardStore>,
    report: OpenReport,
    bell: Arc<Bell>,
}

fn options(dir: &Path) -> OpenOptions {
    OpenOptions { segment_bytes: 256 * 1024, ..OpenOptions::new(dir, 2, 42) }
}

fn open(dir: &Path) -> Open {
    open_with(&options(dir))
}

fn open_with(options: &OpenOptions) -> Open {
    let bell = Arc::new(Bell::default());
    let rings = bell.clone();
    let wake = Arc::new(move |_| {
        *rings.rung.lock().unwrap() = true;
        rings.rings.notify_all();
    });
    let (store, shards, report) = DiskStore::open(options, wake).unwrap_or_else(|e| panic!("{e}"));
    Open { store, shards, report, bell }
}

impl Open {
    fn wait_durable(&mut self, shard: usize, ticket: Ticket) {
        let mut out = Vec::new();
        loop {
            self.shards[shard].poll(&mut out);
            if out.iter().any(|e| matches!(e, Event::Durable { up_to } if *up_to >= ticket)) {
                return;
            }
            out.clear();
            self.bell.wait();
        }
    }

    fn wait_for<T>(&mut self, shard: usize, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        let mut out = Vec::new();
        loop {
            self.shards[shard].poll(&mut out);
            if let Some(found) = out.drain(..).find_map(&mut pick) {
                return found;
            }
            self.bell.wait();
        }
    }

    fn load(&mut self, shard: usize, queue: u64, count: u32) -> Loaded {
        let load = Load { queue: QueueId(queue), level: 4, from: 0, count, bytes: 1 << 24 };
        self.shards[shard].load(load);
        self.wait_for(shard, |e| match e {
            Event::Loaded(loaded) => Some(*loaded),
            _ => None,
        })
    }

    fn recovered(&mut self, shard: usize) -> (Vec<QueueId>, Vec<RecoveredEntry>) {
        let mut out = Vec::new();
        while self.shards[shard].recover(10, &mut out) {}
        let mut queues = Vec::new();
        let mut entries = Vec::new();
        for thing in out {
            match thing {
                Recovered::Queue { id, .. } => queues.push(id),
                Recovered::Entry(entry) => entries.push(*entry),
                Recovered::NextQueueId(_) | Recovered::Producer(_) | Recovered::DuplicateId { .. } => {}
                Recovered::BranchOp(_) | Recovered::Branch(_) | Recovered::Completed { .. } | Recovered::Session(_) => {
                    unreachable!("no transactions here")
                }
            }
        }
        (queues, entries)
    }
}

fn head() -> Head {
    Head {
        arrived_ms: 1,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    }
}

fn create(batch: &mut Batch, id: u64) {
    batch.push(Op::QueueCreate {
        id: QueueId(id),
        name: QueueName::new(&format!("q{id}")).unwrap(),
        settings: QueueSettings::default(),
        reserved: 1 << 20,
    });
}

fn enqueue(batch: &mut Batch, queue: u64, sequence: u64, body: &[u8]) {
    let body = batch.copy_body(body);
    batch.push(Op::Enqueue {
        queue: QueueId(queue),
        sequence,
        head: head(),
        content: Stored::Body(body),
        volatile: false,
    });
}

fn body(sequence: u64) -> Vec<u8> {
    (0..sequence * 7 % 3000).map(|i| (i * 7 + sequence) as u8).collect()
}

#[test]
fn what_was_confirmed_is_there_after_a_drop_without_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = open(dir.path());
    assert_eq!((s.report.run, s.report.messages), (1, 0));
    let identity = s.report.store;
    let mut batch = Batch::default();
    create(&mut batch, 1);
    create(&mut batch, 2);
    s.shards[0].submit(batch);
    let mut last = [Ticket(0); 2];
    // Enough for several segments.
    for sequence in 0..600 {
        for shard in [0, 1] {
            let queue = if shard == 0 { 2 } else { 1 };
            let mut batch = Batch::default();
            enqueue(&mut batch, queue, sequence, &body(sequence));
            if sequence % 3 == 0 && sequence > 0 {
                batch.acknowledge(QueueId(queue), sequence - 1);
            }
            last[shard] = s.shards[shard].submit(batch);
            if sequence % 20 == 0 {
                s.wait_durable(shard, last[shard]);
            }
        }
    }
    s.wait_durable(0, last[0]);
    s.wait_durable(1, last[1]);
    assert!(s.shards[0].status().segments > 3, "{:?}", s.shards[0].status());
    assert_eq!(s.shards[0].unflushed_bytes(), 0);
    drop(s);

    let mut s = open(dir.path());
    assert_eq!((s.report.run, s.report.queues, s.report.store), (2, 2, identity));
    for (shard, queue) in [(0, 2), (1, 1)] {
        let (queues, entries) = s.recovered(shard);
        assert_eq!(queues, [QueueId(1), QueueId(2)]);
        let expected: Vec<u64> = (0..600).filter(|n| !(n % 3 == 2 && n + 1 < 600)).collect();
        assert_eq!(entries.iter().map(|e| e.key.sequence).collect::<Vec<_>>(), expected);
        assert!(entries.iter().all(|e| e.key.queue == QueueId(queue) && e.head == head()));
        let loaded = s.load(shard, queue, 1000);
        assert_eq!(loaded.bodies.len(), expected.len());
        for (got, want) in loaded.bodies.iter().zip(expected) {
            let (at, length) = got.range.expect("the body is whole");
            assert_eq!(got.sequence, want);
            assert_eq!(&loaded.buffer[at as usize..(at + length) as usize], body(want));
        }
    }
}

#[test]
fn a_stop_makes_everything_durable_that_was_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = open(dir.path());
    let mut batch = Batch::default();
    create(&mut batch, 2);
    for sequence in 0..100 {
        enqueue(&mut batch, 2, sequence, &body(sequence));
    }
    s.shards[0].submit(batch);
    let mut lazy = Batch::default();
    lazy.acknowledge(QueueId(2), 7);
    s.shards[0].submit(lazy);
    let Open { store, shards, .. } = s;
    assert_eq!(store.shutdown(), Ok(()));
    drop(shards);
    let mut s = open(dir.path());
    assert_eq!(s.report.messages, 99);
    assert_eq!(s.report.torn, None);
    assert!(s.recovered(0).1.iter().all(|e| e.key.sequence != 7));
}

#[test]
fn a_large_message_is_read_back_in_parts_and_removed_with_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
    let (id, orphan) = (LargeId(0x1_0000_0001), LargeId(0x1_0000_0002));
    let mut s = open(dir.path());
    let mut batch = Batch::default();
    create(&mut batch, 2);
    s.shards[0].submit(batch);
    for file in [id, orphan] {
        s.shards[0].large(LargeOp::Begin { id: file });
        for chunk in content.chunks(10_000) {
            s.shards[0].large(LargeOp::Chunk { id: file, bytes: Bytes::copy_from_slice(chunk) });
        }
        s.shards[0].large(LargeOp::End { id: file });
        let length = s.wait_for(0, |e| match e {
            Event::LargeSynced { id, length } if id == file => Some(length),
            _ => None,
        });
        assert_eq!(length, 300_000);
    }
    let mut batch = Batch::default();
    batch.push(Op::Enqueue {
        queue: QueueId(2),
        sequence: 1,
        head: head(),
        content: Stored::Large { id, length: 300_000 },
        volatile: false,
    });
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    drop(s);

    let mut s = open(dir.path());
    assert_eq!(s.report.orphans, 1);
    assert!(dir.path().join("large/attic").join(format!("{:016x}", orphan.0)).exists());
    let (_, entries) = s.recovered(0);
    assert_eq!(entries[0].content, Content::Large { id, length: 300_000 });
    for (token, (offset, length)) in
        [(0, 10), (65_530, 20), (65_536, 131_072), (299_990, 100), (0, 400_000)].into_iter().enumerate()
    {
        s.shards[0].load_large(LoadLarge { token: token as u64, id, offset, length });
        let bytes = s.wait_for(0, |e| match e {
            Event::LargeLoaded { token: t, bytes } if t == token as u64 => Some(bytes),
            _ => None,
        });
        let end = content.len().min((offset + u64::from(length)) as usize);
        assert_eq!(bytes.expect("the file is whole"), &content[offset as usize..end]);
    }
    let mut batch = Batch::default();
    batch.acknowledge(QueueId(2), 1);
    batch.require_flush();
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    let path = dir.path().join("large").join(format!("{:016x}", id.0));
    s.store.settle().unwrap();
    assert!(!path.exists(), "the removal follows the confirmation");
}

#[test]
fn a_large_message_whose_file_was_hurt_is_told_unreadable_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = open(dir.path());
    let mut batch = Batch::default();
    create(&mut batch, 2);
    s.shards[0].submit(batch);
    let ids: Vec<LargeId> = (1..=4).map(|n| LargeId(1 << 40 | n)).collect();
    let mut batch = Batch::default();
    for (sequence, id) in (1..).zip(ids.iter().copied()) {
        s.shards[0].large(LargeOp::Begin { id });
        s.shards[0].large(LargeOp::Chunk { id, bytes: Bytes::from(vec![5; 200_000]) });
        s.shards[0].large(LargeOp::End { id });
        s.wait_for(0, |e| matches!(e, Event::LargeSynced { id: of, .. } if of == id).then_some(()));
        let content = Stored::Large { id, length: 200_000 };
        batch.push(Op::Enqueue { queue: QueueId(2), sequence, head: head(), content, volatile: false });
    }
    batch.require_flush();
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    drop(s);
    let path = |id: LargeId| dir.path().join("large").join(format!("{:016x}", id.0));
    std::fs::remove_file(path(ids[0])).unwrap();
    let mut bytes = std::fs::read(path(ids[1])).unwrap();
    std::fs::write(path(ids[1]), &bytes[..100_000]).unwrap();
    bytes[150_000] ^= 1;
    std::fs::write(path(ids[2]), &bytes).unwrap();
    let mut s = open(dir.path());
    let lengths: Vec<Option<usize>> = (0..)
        .zip(&ids)
        .map(|(token, id)| {
            s.shards[0].load_large(LoadLarge { token, id: *id, offset: 0, length: 200_000 });
            s.wait_for(0, |e| match e {
                Event::LargeLoaded { token: of, bytes } if of == token => Some(bytes.map(|bytes| bytes.len())),
                _ => None,
            })
        })
        .collect();
    assert_eq!((lengths[0].unwrap_or(0), lengths[2], lengths[3]), (0, None, Some(200_000)));
    assert!(lengths[1].is_none_or(|length| length < 200_000), "a part of it is not all of it");
    // They go like others.
    let mut batch = Batch::default();
    (1..=4).for_each(|sequence| batch.acknowledge(QueueId(2), sequence));
    batch.require_flush();
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    s.store.settle().unwrap();
    assert!(ids.iter().all(|id| !path(*id).exists()));
    assert_eq!(s.store.shutdown(), Ok(()));
}

#[test]
fn relocated_entries_keep_their_body_across_shards() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = open(dir.path());
    let mut batch = Batch::default();
    create(&mut batch, 1);
    create(&mut batch, 2);
    enqueue(&mut batch, 2, 5, b"poison");
    s.shards[0].submit(batch);
    let mut batch = Batch::default();
    batch.push(Op::Relocate {
        from: EntryKey { queue: QueueId(2), sequence: 5 },
        to: EntryKey { queue: QueueId(1), sequence: 9 },
        head: head(),
        deliveries: 3,
        attempts: 2,
        overlay: Box::new(Overlay { annotations: Bytes::from_static(b"note"), dead_letter: None }),
    });
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    for again in [false, true] {
        if again {
            drop(s);
            s = open(dir.path());
            assert!(s.recovered(0).1.is_empty());
            let (_, entries) = s.recovered(1);
            assert_eq!((entries[0].key.sequence, entries[0].deliveries, entries[0].attempts), (9, 3, 2));
            assert_eq!(entries[0].overlay.as_ref().unwrap().annotations, &b"note"[..]);
        }
        assert!(s.load(0, 2, 10).bodies.is_empty());
        let loaded = s.load(1, 1, 10);
        assert_eq!((loaded.bodies[0].sequence, &loaded.buffer[..]), (9, &b"poison"[..]));
    }
}

#[test]
fn shards_in_threads_of_their_own_lose_nothing_that_was_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = open(dir.path());
    let mut batch = Batch::default();
    create(&mut batch, 1);
    create(&mut batch, 2);
    let ticket = s.shards[0].submit(batch);
    s.wait_durable(0, ticket);
    let threads: Vec<_> = s
        .shards
        .drain(..)
        .enumerate()
        .map(|(shard, mut handle)| {
            let queue = if shard == 0 { 2 } else { 1 };
            std::thread::spawn(move || {
                let (mut sequence, mut confirmed) = (0, 0);
                let first = handle.next_ticket().0;
                // A window of 50 batches; the thread ends with some of them under way.
                while confirmed < 2000 {
                    if sequence < confirmed + 50 {
                        let mut batch = Batch::default();
                        enqueue(&mut batch, queue, sequence, &body(sequence));
                        handle.submit(batch);
                        sequence += 1;
                    }
                    let mut events = Vec::new();
                    handle.poll(&mut events);
                    for event in events {
                        let Event::Durable { up_to } = event else { panic!("{event:?}") };
                        confirmed = up_to.0 + 1 - first;
                    }
                }
                (handle, confirmed, sequence)
            })
        })
        .collect();
    let ends: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    drop(s);
    let told: Vec<(u64, u64)> = ends.iter().map(|(_, confirmed, sent)| (*confirmed, *sent)).collect();
    drop(ends);
    let mut s = open(dir.path());
    for (shard, (confirmed, sent)) in told.into_iter().enumerate() {
        let there: Vec<u64> = s.recovered(shard).1.iter().map(|e| e.key.sequence).collect();
        let n = there.len() as u64;
        assert!((confirmed..=sent).contains(&n), "{n} of {confirmed} to {sent}");
        assert_eq!(there, (0..n).collect::<Vec<_>>());
    }
}

#[test]
fn a_steady_flow_uses_its_files_again_and_a_start_reads_little() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints { every_bytes: 600 * 1024, slice_entries: 20, ..Checkpoints::default() };
    let options = OpenOptions { checkpoints, ..options(dir.path()) };
    for run in 0..3u64 {
        let mut it = open_with(&options);
        assert_eq!(it.report.messages, run, "one of each run stays");
        for n in 0..600 {
            let mut batch = Batch::default();
            if run == 0 && n == 0 {
                create(&mut batch, 2);
            }
            let sequence = (run << 20) + n;
            enqueue(&mut batch, 2, sequence, &body(sequence));
            if n > 0 {
                batch.acknowledge(QueueId(2), sequence - 1);
            }
            let ticket = it.shards[0].submit(batch);
            it.wait_durable(0, ticket);
        }
        let files = |folder: &str| std::fs::read_dir(dir.path().join(folder)).unwrap().count();
        let all = files("journal") + files("pool");
        // 600 blocks of 4 KiB, in segments of 256 KiB: each run fills nine and more.
        assert!(all <= 18, "{all} files after run {run}");
        assert!(dir.path().join("ckpt.A").exists() && dir.path().join("ckpt.B").exists());
        // Once without a stop in order.
        if run == 1 {
            drop(it);
        } else {
            it.store.shutdown().unwrap();
        }
    }
    assert_eq!(open_with(&options).report.messages, 3);
}

#[test]
fn a_directory_has_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let s = open(dir.path());
    let error = DiskStore::open(&options(dir.path()), Arc::new(|_| {})).err().expect("it is in use");
    assert_eq!(error, OpenError::InUse { dir: dir.path().display().to_string() });
    assert_eq!(error.exit_code(), 66);
    drop(s);
    open(dir.path());
}

#[test]
fn a_directory_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("STORE");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, bytes).unwrap();
    let error = DiskStore::open(&options(dir.path()), Arc::new(|_| {})).err().expect("another version");
    assert!(error.to_string().starts_with("STORE holds format 9, this program reads formats 1 to 4;"), "{error}");
    assert_eq!(error.exit_code(), 65);
    std::fs::remove_file(&path).unwrap();
    let error = DiskStore::open(&options(dir.path()), Arc::new(|_| {})).err().expect("no STORE file");
    assert_eq!(error.exit_code(), 65, "{error}");
}
