//! The journal over a disk that keeps nothing: batches encoded, blocks formed, operations answered at once.

use bytes::Bytes;
use packhorse_journal::{
    BlockingDisk, Dir, DiskOp, Encoded, FileName, IoDone, IoError, IoErrorKind, IoResult, Lane, Log, Options, recover,
};
use packhorse_model::{ContentFormat, Head, HeadFlags, Now, QueueId, QueueName, QueueSettings, ShardId};
use packhorse_store::{Batch, Event, Op, Stored};
use std::collections::BTreeMap;

/// Messages of a batch.
const BATCH: u64 = 32;
const BODY: [u8; 1024] = [0x5a; 1024];
const QUEUE: QueueId = QueueId(1);

/// A disk that takes everything and keeps only what a start reads back: small files.
#[derive(Default)]
pub(crate) struct Nowhere {
    files: BTreeMap<String, Vec<u8>>,
}

impl BlockingDisk for Nowhere {
    fn list(&mut self, _: Dir) -> Result<Vec<(FileName, u64)>, IoError> {
        Ok(Vec::new())
    }

    fn run(&mut self, op: DiskOp) -> IoResult {
        match op {
            DiskOp::Write { name: FileName::Segment(_) | FileName::Pool(_) | FileName::PoolTemp(_), .. } => {}
            DiskOp::Write { name, pieces, .. } => {
                self.files.insert(name.to_string(), pieces.concat());
            }
            DiskOp::Rename { from, to } => {
                if let Some(content) = self.files.remove(&from.to_string()) {
                    self.files.insert(to.to_string(), content);
                }
            }
            DiskOp::Read { name, offset, length } => {
                let content = self
                    .files
                    .get(&name.to_string())
                    .ok_or_else(|| IoError { kind: IoErrorKind::NotFound, text: format!("{name} is not kept here") })?;
                let from = (offset as usize).min(content.len());
                let to = (from + length as usize).min(content.len());
                return Ok(IoDone::Read(Bytes::copy_from_slice(&content[from..to])));
            }
            _ => {}
        }
        Ok(IoDone::Done)
    }
}

/// A new journal for one shard, and the disk that it is on.
pub(crate) fn open(now: Now) -> (Log, Nowhere) {
    let mut disk = Nowhere::default();
    // One segment and no spare: writing ahead is not what is counted.
    let options = Options { segment_bytes: 1 << 30, spare_segments: 0, ..Options::new(1, 2026) };
    match recover(&mut disk, &options, now) {
        Ok(recovery) => (recovery.log, disk),
        Err(error) => panic!("an empty disk opens: {error}"),
    }
}

/// Appends messages and acknowledges each in the next batch.
pub(crate) fn append(messages: u64) {
    let shard = ShardId(0);
    let mut now = Now { mono_us: 0, wall_ms: 1_800_000_000_000 };
    let (mut log, mut disk) = open(now);
    let mut batch = Batch::default();
    let name = QueueName::new("bench").expect("a valid name");
    batch.push(Op::QueueCreate { id: QUEUE, name, settings: QueueSettings::default(), reserved: u64::MAX / 2 });
    log.submit(shard, Encoded::new(batch), now);
    let head = Head {
        arrived_ms: 0,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    };
    let mut events = Vec::new();
    let mut durable = 0;
    for round in 0..messages / BATCH {
        let mut batch = Batch::with_buffer(Vec::with_capacity(64 << 10));
        for sequence in round * BATCH..(round + 1) * BATCH {
            let body = batch.copy_body(&BODY);
            batch.push(Op::Enqueue { queue: QUEUE, sequence, head, content: Stored::Body(body), volatile: false });
            if let Some(before) = sequence.checked_sub(BATCH) {
                batch.acknowledge(QUEUE, before);
            }
        }
        let ticket = log.submit(shard, Encoded::new(batch), now);
        now.mono_us += 100;
        write(&mut log, &mut disk, now);
        log.poll(shard, &mut events);
        for event in events.drain(..) {
            if let Event::Durable { up_to } = event {
                durable = up_to.0;
            }
        }
        assert!(durable >= ticket.0, "what was written is durable");
    }
}

/// Does what the journal wants of the disk.
pub(crate) fn write(log: &mut Log, disk: &mut Nowhere, now: Now) {
    for lane in [Lane::Side, Lane::Flush, Lane::Side] {
        while let Some((id, op)) = log.next_io(lane, now) {
            let result = disk.run(op);
            log.on_io(id, result, now);
        }
    }
}
