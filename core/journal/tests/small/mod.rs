//! A store with small segments and frequent checkpoints, and one queue in it.

use packhorse_journal::{Checkpoints, Options};
use packhorse_model::{ContentFormat, Head, HeadFlags, QueueId, QueueName, QueueSettings};
use packhorse_store::{Batch, Op, RESERVE};

pub(crate) const QUEUE: QueueId = QueueId(1);
pub(crate) const SEGMENT: u64 = 32 * 1024;
pub(crate) const HEAD: Head = Head {
    arrived_ms: 5,
    ttl_ms: 6,
    message_format: 0,
    priority: 4,
    flags: HeadFlags::PERSISTENT,
    format: ContentFormat::Amqp10,
};

pub(crate) fn options() -> Options {
    let checkpoints =
        Checkpoints { every_bytes: 40 * 1024, at_stop: false, slice_entries: 7, ..Checkpoints::default() };
    // So few that what branches do is taken in by several slices.
    Options { segment_bytes: SEGMENT, spare_segments: 1, checkpoints, slice_operations: 2, ..Options::new(1, 31) }
}

pub(crate) fn make_queue(batch: &mut Batch) {
    let (name, settings) = (QueueName::new("orders").unwrap(), QueueSettings::default());
    batch.push(Op::QueueCreate { id: QUEUE, name, settings, reserved: RESERVE });
}
