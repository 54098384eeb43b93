//! Records: how operations look in a block's metadata (`docs/formats/journal.md`, "Records"). Encoding runs on the shard's
//! thread before any lock; decoding is the one way back, for the live index and for recovery alike.
//!
//! Must not know: blocks, places, files. Offsets of bodies are relative to the batch's content.

pub(crate) mod transactions;

use crate::bytes_io::{Malformed, Reader, pad_to, put_bytes, put_u32, put_u64, put_varint};
use crate::transactions::{IdKey, Numbering};
use bytes::Bytes;
use packhorse_model::{
    ContentFormat, DeadLetter, DuplicateId, EntryKey, Head, HeadFlags, LargeId, OnFull, Overlay, Planted, ProducerId,
    QueueId, QueueLimits, QueueName, QueueSettings, Reason, Sequence, planted,
};
use packhorse_store::{Batch, Op, Stored};
use transactions::{Content, Transactional};

/// Codes of records, in the specification's words. Reserved for later: Schedule 4, Damage 6, LaneEpoch 14, Leave 15, Left 16, Reclaim 17, Fence 18, Arrive 19, EpochClosed 20,
/// Reloc 23.
pub(crate) mod code {
    pub(crate) const ENQUEUE: u8 = 1;
    pub(crate) const ACKNOWLEDGE: u8 = 2;
    pub(crate) const REDELIVER: u8 = 3;
    pub(crate) const RELOCATE: u8 = 5;
    pub(crate) const DISPATCH_MARK: u8 = 7;
    pub(crate) const COMMIT: u8 = 8;
    pub(crate) const TX_OPS: u8 = 9;
    pub(crate) const PREPARE: u8 = 10;
    pub(crate) const DECIDE: u8 = 11;
    pub(crate) const HEURISTIC: u8 = 12;
    pub(crate) const FORGET: u8 = 13;
    pub(crate) const PRODUCER: u8 = 21;
    pub(crate) const DUPLICATE_ID: u8 = 26;
    pub(crate) const META: u8 = 22;
    pub(crate) const EXACT_MARK: u8 = 24;
    pub(crate) const TX_DROP: u8 = 25;
    pub(crate) const BATCH: u8 = 64;
}

/// Kinds of a Meta record, in its flags byte.
mod meta {
    pub(super) const QUEUE_CREATE: u8 = 1;
    pub(super) const QUEUE_CHANGE: u8 = 2;
    pub(super) const QUEUE_DELETE: u8 = 3;
    pub(super) const RESERVE: u8 = 4;
    pub(super) const START: u8 = 5;
    pub(super) const STOP: u8 = 6;
}

const VOLATILE: u8 = 1;
const LARGE: u8 = 2;
const OVERLAY: u8 = 4;
/// Of a Producer: a message is stored.
const STORED: u8 = 1;

/// Bytes of an Enqueue record without large content.
const ENQUEUE_BYTES: usize = 64;

/// A batch made ready for a block: metadata, and content in pieces that are written as they are.
#[derive(Debug)]
pub struct Encoded {
    pub(crate) meta: Vec<u8>,
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) content: u32,
    pub(crate) urgent: bool,
    /// Large messages that it refers to; mostly none.
    pub(crate) large: Vec<LargeId>,
}

impl Encoded {
    /// Encodes a batch and sums its bodies. Needs no lock.
    ///
    /// # Panics
    /// When an operation names bytes outside its batch, or the batch holds 2 GiB: the caller's mistake, and half a batch
    /// must not be written.
    #[must_use]
    pub fn new(batch: Batch) -> Encoded {
        let urgent = batch.urgent();
        let (mut ops, pieces) = batch.into_parts();
        if planted_at(&ops) {
            ops.pop();
        }
        let mut starts = Vec::with_capacity(pieces.len());
        let mut content = 0usize;
        for piece in &pieces {
            starts.push(content);
            content += piece.len();
        }
        assert!(content < 1 << 31, "a batch of {content} bytes; the limit is 2 GiB");
        let mut out = Vec::with_capacity(24 + ops.len() * ENQUEUE_BYTES);
        let batch_start = open(&mut out, code::BATCH, 0, 0, 0);
        put_u32(&mut out, content as u32);
        put_u32(&mut out, 0);
        put_u64(&mut out, 0); // shard and ticket, set by `stamp`
        close(&mut out, batch_start);
        let large = ops.iter().filter_map(|op| match op {
            Op::Enqueue { content: Stored::Large { id, .. }, .. } => Some(*id),
            _ => None,
        });
        let mut large: Vec<LargeId> = large.collect();
        let bodies = Content { pieces: &pieces, starts: &starts };
        let mut ops = ops.iter().peekable();
        while let Some(op) = ops.next() {
            match op {
                Op::Acknowledge { queue, first, last } => {
                    let start = open(&mut out, code::ACKNOWLEDGE, 0, 0, 0);
                    put_u64(&mut out, queue.0);
                    let more = std::iter::from_fn(|| {
                        match ops.next_if(|op| matches!(op, Op::Acknowledge { queue: q, .. } if q == queue)) {
                            Some(Op::Acknowledge { first, last, .. }) => Some((*first, *last)),
                            _ => None,
                        }
                    });
                    put_ranges(&mut out, std::iter::once((*first, *last)).chain(more));
                    close(&mut out, start);
                }
                op => put_op(&mut out, op, &bodies, &mut large),
            }
        }
        Encoded { meta: out, pieces, content: content as u32, urgent, large }
    }

    /// Writes shard and ticket into the batch's header.
    pub(crate) fn stamp(&mut self, shard: u16, ticket: u64) {
        self.meta[12..14].copy_from_slice(&shard.to_le_bytes());
        self.meta[16..24].copy_from_slice(&ticket.to_le_bytes());
    }

    /// Bytes that this batch adds to a block.
    pub(crate) fn bytes(&self) -> usize {
        self.meta.len() + self.content as usize
    }
}

/// How the run before a start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order: the log's last block is [`stop_meta`].
    Stop,
    /// Otherwise, as far as can be known not before this broker time, ms.
    Crash(u64),
}

/// The metadata of the block that ends a log in order.
pub(crate) fn stop_meta() -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    let start = open(&mut out, code::META, meta::STOP, 0, 0);
    close(&mut out, start);
    out
}

/// The metadata of a Start block: this run exists, the one before it ended so, and each queue's numbers jump.
pub(crate) fn start_meta(run: u32, jump: u64, before: End) -> Vec<u8> {
    let mut out = Vec::new();
    let batch = open(&mut out, code::BATCH, 0, 0, 0);
    put_u64(&mut out, 0);
    put_u64(&mut out, 0);
    close(&mut out, batch);
    let start = open(&mut out, code::META, meta::START, 0, 0);
    put_u64(&mut out, u64::from(run));
    put_u64(&mut out, jump);
    let (crashed, at_ms) = match before {
        End::Stop => (0, 0),
        End::Crash(at_ms) => (1, at_ms),
    };
    put_u64(&mut out, crashed);
    put_u64(&mut out, at_ms);
    close(&mut out, start);
    out
}

pub(crate) fn open(out: &mut Vec<u8>, code: u8, flags: u8, a: u8, b: u8) -> usize {
    let start = out.len();
    out.extend_from_slice(&[code, flags, a, b, 0, 0, 0, 0]);
    start
}

pub(crate) fn close(out: &mut Vec<u8>, start: usize) {
    pad_to(out, 8);
    let length = (out.len() - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Whether a planted fault forgets the last of these records: of several, and one about a message.
fn planted_at(ops: &[Op]) -> bool {
    let message = |op: &Op| matches!(op, Op::Enqueue { .. } | Op::Acknowledge { .. } | Op::Redeliver { .. });
    ops.len() > 1 && ops.last().is_some_and(message) && planted(Planted::DropLastRecord)
}

fn put_op(out: &mut Vec<u8>, op: &Op, bodies: &Content<'_>, large: &mut Vec<LargeId>) {
    match op {
        Op::Enqueue { queue, sequence, head, content, volatile } => {
            let in_file = matches!(content, Stored::Large { .. });
            let flags = if *volatile { VOLATILE } else { 0 } | if in_file { LARGE } else { 0 };
            let start = open(out, code::ENQUEUE, flags, 0, 0);
            put_u64(out, queue.0);
            put_u64(out, *sequence);
            put_head(out, head);
            match content {
                Stored::Body(body) => {
                    bodies.put(out, body);
                    put_u32(out, 0);
                }
                Stored::Large { id, length } => {
                    put_u64(out, id.0);
                    put_u64(out, *length);
                }
            }
            close(out, start);
        }
        Op::Acknowledge { .. } => unreachable!("acknowledgements are encoded in runs"),
        Op::Redeliver { entry, deliveries, attempts, overlay } => {
            let flags = if overlay.is_some() { OVERLAY } else { 0 };
            let start = open(out, code::REDELIVER, flags, 0, 0);
            put_key(out, *entry);
            put_u32(out, *deliveries);
            put_u32(out, *attempts);
            if let Some(overlay) = overlay {
                put_overlay(out, overlay);
            }
            close(out, start);
        }
        Op::Relocate { from, to, head, deliveries, attempts, overlay } => {
            let start = open(out, code::RELOCATE, OVERLAY, 0, 0);
            put_key(out, *from);
            put_key(out, *to);
            put_head(out, head);
            put_u32(out, *deliveries);
            put_u32(out, *attempts);
            put_overlay(out, overlay);
            close(out, start);
        }
        Op::DispatchMark { queue, first, count } => {
            let start = open(out, code::DISPATCH_MARK, 0, 0, 0);
            put_u64(out, queue.0);
            put_u64(out, *first);
            put_u32(out, *count);
            close(out, start);
        }
        Op::ExactMark { queue, first, last, at_ms } => {
            let start = open(out, code::EXACT_MARK, 0, 0, 0);
            [queue.0, *first, *last, *at_ms].into_iter().for_each(|n| put_u64(out, n));
            close(out, start);
        }
        Op::QueueCreate { id, name, settings, reserved } => {
            let start = open(out, code::META, meta::QUEUE_CREATE, 0, 0);
            put_u64(out, id.0);
            put_u64(out, *reserved);
            put_bytes(out, name.as_str().as_bytes());
            put_settings(out, settings);
            close(out, start);
        }
        Op::QueueChange { id, settings } => {
            let start = open(out, code::META, meta::QUEUE_CHANGE, 0, 0);
            put_u64(out, id.0);
            put_settings(out, settings);
            close(out, start);
        }
        Op::QueueDelete { id } => {
            let start = open(out, code::META, meta::QUEUE_DELETE, 0, 0);
            put_u64(out, id.0);
            close(out, start);
        }
        Op::Reserve { queue, up_to } => {
            let start = open(out, code::META, meta::RESERVE, 0, 0);
            put_u64(out, queue.0);
            put_u64(out, *up_to);
            close(out, start);
        }
        Op::Producer { queue, producer, floor, stored, at_ms } => {
            let start = open(out, code::PRODUCER, if stored.is_some() { STORED } else { 0 }, 0, 0);
            put_u64(out, queue.0);
            out.extend_from_slice(&producer.0);
            put_u64(out, *floor);
            put_u64(out, *at_ms);
            if let Some(number) = stored {
                put_u64(out, *number);
            }
            close(out, start);
        }
        Op::DuplicateId { queue, id, at_ms } => {
            let start = open(out, code::DUPLICATE_ID, 0, 0, 0);
            put_u64(out, queue.0);
            out.extend_from_slice(&id.0);
            put_u64(out, *at_ms);
            close(out, start);
        }
        Op::TxOps(_)
        | Op::TxDrop { .. }
        | Op::Commit(_)
        | Op::Prepare(_)
        | Op::Decide(_)
        | Op::Heuristic(_)
        | Op::Forget { .. } => transactions::put(out, op, bodies, large),
    }
}

pub(crate) fn put_key(out: &mut Vec<u8>, key: EntryKey) {
    put_u64(out, key.queue.0);
    put_u64(out, key.sequence);
}

pub(crate) fn put_head(out: &mut Vec<u8>, head: &Head) {
    let mut bytes = [0u8; 24];
    bytes[0..8].copy_from_slice(&head.arrived_ms.to_le_bytes());
    bytes[8..12].copy_from_slice(&head.ttl_ms.to_le_bytes());
    bytes[12..16].copy_from_slice(&head.message_format.to_le_bytes());
    bytes[16] = head.priority;
    bytes[17] = head.flags.0;
    bytes[18] = head.format as u8;
    out.extend_from_slice(&bytes);
}

/// Bits of the settings' first byte.
const DURABLE: u8 = 1;
const LIMITED: u8 = 2;
/// Stands for no limit.
const NO_LIMIT: u64 = u64::MAX;

pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &QueueSettings) {
    let limits = settings.limits;
    let limited = limits != QueueLimits::default();
    out.push(u8::from(settings.default_durable) | if limited { LIMITED } else { 0 });
    put_u32(out, settings.delivery_limit);
    match &settings.dead_letter {
        Some(name) => put_bytes(out, name.as_str().as_bytes()),
        None => put_u32(out, 0),
    }
    if limited {
        put_u64(out, limits.max_messages.unwrap_or(NO_LIMIT));
        put_u64(out, limits.max_bytes.unwrap_or(NO_LIMIT));
        out.push(limits.on_full as u8);
    }
}

/// A bit of a dead letter's reason.
const LEAVING: u8 = 0x80;

pub(crate) fn put_overlay(out: &mut Vec<u8>, overlay: &Overlay) {
    put_bytes(out, &overlay.annotations);
    match &overlay.dead_letter {
        Some(letter) => {
            out.push(letter.reason as u8 | if letter.leaving { LEAVING } else { 0 });
            put_bytes(out, letter.detail.as_bytes());
            put_bytes(out, letter.address.as_str().as_bytes());
            put_u64(out, letter.sequence);
            put_u32(out, letter.deliveries);
        }
        None => out.push(0),
    }
}

/// Where an Enqueue's content is, within its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Body { offset: u32, length: u32, crc: u32 },
    Large { id: LargeId, length: u64 },
}

/// A decoded record.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// A batch begins; its records follow.
    Batch {
        content: u32,
    },
    Enqueue {
        queue: QueueId,
        sequence: Sequence,
        head: Head,
        content: Where,
        volatile: bool,
    },
    Acknowledge {
        queue: QueueId,
        ranges: Ranges<'a>,
    },
    Redeliver {
        entry: EntryKey,
        deliveries: u32,
        attempts: u32,
        overlay: Option<Box<Overlay>>,
    },
    Relocate {
        from: EntryKey,
        to: EntryKey,
        head: Head,
        deliveries: u32,
        attempts: u32,
        overlay: Box<Overlay>,
    },
    DispatchMark {
        queue: QueueId,
        first: Sequence,
        count: u32,
    },
    ExactMark {
        queue: QueueId,
        first: Sequence,
        last: Sequence,
        at_ms: u64,
    },
    QueueCreate {
        id: QueueId,
        name: QueueName,
        settings: QueueSettings,
        reserved: Sequence,
    },
    QueueChange {
        id: QueueId,
        settings: QueueSettings,
    },
    QueueDelete {
        id: QueueId,
    },
    Reserve {
        queue: QueueId,
        up_to: Sequence,
    },
    Start {
        jump: u64,
        before: End,
    },
    Stop,
    Producer(Numbering),
    DuplicateId {
        key: IdKey,
        at_ms: u64,
    },
    Transaction(Box<Transactional>),
}

/// A count, and for each range two varints.
pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: impl Iterator<Item = (Sequence, Sequence)>) {
    let start = out.len();
    put_u32(out, 0);
    let (mut before, mut count) = (0u64, 0u32);
    for (first, last) in ranges {
        put_varint(out, zigzag(first.wrapping_sub(before) as i64));
        put_varint(out, last.wrapping_sub(first));
        before = last;
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_le_bytes());
}

/// The ranges of an Acknowledge record, (first, last), closed.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<'a> {
    reader: Reader<'a>,
    left: u32,
    before: u64,
}

impl<'a> Ranges<'a> {
    /// The ranges that [`put_ranges`] wrote, up to the record's end.
    pub(crate) fn new(mut reader: Reader<'a>) -> Result<Ranges<'a>, Malformed> {
        let left = reader.u32()?;
        Ok(Ranges { reader, left, before: 0 })
    }
}

impl Iterator for Ranges<'_> {
    type Item = (Sequence, Sequence);

    fn next(&mut self) -> Option<(Sequence, Sequence)> {
        self.left = self.left.checked_sub(1)?;
        let first = self.before.wrapping_add(unzigzag(self.reader.varint().ok()?) as u64);
        let last = first.wrapping_add(self.reader.varint().ok()?);
        self.before = last;
        Some((first, last))
    }
}

/// Reads the records of a block's metadata one by one.
pub(crate) struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(meta: &'a [u8]) -> Records<'a> {
        Records { rest: meta }
    }

    /// The next record, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut header = Reader::new(self.rest);
        let (code, flags, _) = (header.u8()?, header.u8()?, header.u16()?);
        let length = header.u32()? as usize;
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Malformed);
        }
        let (record, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        decode(code, flags, &record[8..]).map(Some)
    }
}

fn decode(code: u8, flags: u8, body: &[u8]) -> Result<Record<'_>, Malformed> {
    let mut r = Reader::new(body);
    Ok(match code {
        code::BATCH => Record::Batch { content: r.u32()? },
        code::ENQUEUE => {
            let (queue, sequence, head) = (QueueId(r.u64()?), r.u64()?, head(&mut r)?);
            let content = if flags & LARGE != 0 {
                Where::Large { id: LargeId(r.u64()?), length: r.u64()? }
            } else {
                Where::Body { offset: r.u32()?, length: r.u32()?, crc: r.u32()? }
            };
            Record::Enqueue { queue, sequence, head, content, volatile: flags & VOLATILE != 0 }
        }
        code::ACKNOWLEDGE => Record::Acknowledge { queue: QueueId(r.u64()?), ranges: Ranges::new(r)? },
        code::REDELIVER => Record::Redeliver {
            entry: key(&mut r)?,
            deliveries: r.u32()?,
            attempts: r.u32()?,
            overlay: if flags & OVERLAY != 0 { Some(Box::new(overlay(&mut r)?)) } else { None },
        },
        code::RELOCATE => Record::Relocate {
            from: key(&mut r)?,
            to: key(&mut r)?,
            head: head(&mut r)?,
            deliveries: r.u32()?,
            attempts: r.u32()?,
            overlay: Box::new(overlay(&mut r)?),
        },
        code::DISPATCH_MARK => Record::DispatchMark { queue: QueueId(r.u64()?), first: r.u64()?, count: r.u32()? },
        code::EXACT_MARK => {
            Record::ExactMark { queue: QueueId(r.u64()?), first: r.u64()?, last: r.u64()?, at_ms: r.u64()? }
        }
        code::META => match flags {
            meta::QUEUE_CREATE => {
                let (id, reserved) = (QueueId(r.u64()?), r.u64()?);
                Record::QueueCreate { id, reserved, name: name(r.text()?)?, settings: settings(&mut r)? }
            }
            meta::QUEUE_CHANGE => Record::QueueChange { id: QueueId(r.u64()?), settings: settings(&mut r)? },
            meta::QUEUE_DELETE => Record::QueueDelete { id: QueueId(r.u64()?) },
            meta::RESERVE => Record::Reserve { queue: QueueId(r.u64()?), up_to: r.u64()? },
            meta::START => {
                let _run = r.u64()?;
                let jump = r.u64()?;
                // Version 1 did not say how the run before had ended.
                let (crashed, at_ms) = if r.is_empty() { (1, 0) } else { (r.u64()?, r.u64()?) };
                Record::Start { jump, before: if crashed == 0 { End::Stop } else { End::Crash(at_ms) } }
            }
            meta::STOP => Record::Stop,
            _ => return Err(Malformed),
        },
        code::PRODUCER => {
            let key = (QueueId(r.u64()?), ProducerId(transactions::id(&mut r)?));
            let (floor, at_ms) = (r.u64()?, r.u64()?);
            let stored = if flags & STORED == 0 { None } else { Some(r.u64()?) };
            Record::Producer(Numbering { key, floor, stored, at_ms })
        }
        code::DUPLICATE_ID => {
            let key = (QueueId(r.u64()?), DuplicateId(transactions::id(&mut r)?));
            Record::DuplicateId { key, at_ms: r.u64()? }
        }
        code::COMMIT..=code::FORGET | code::TX_DROP => Record::Transaction(transactions::decode(code, flags, &mut r)?),
        _ => return Err(Malformed),
    })
}

pub(crate) fn name(text: &str) -> Result<QueueName, Malformed> {
    QueueName::new(text).map_err(|_| Malformed)
}

pub(crate) fn key(r: &mut Reader<'_>) -> Result<EntryKey, Malformed> {
    Ok(EntryKey { queue: QueueId(r.u64()?), sequence: r.u64()? })
}

pub(crate) fn head(r: &mut Reader<'_>) -> Result<Head, Malformed> {
    let (arrived_ms, ttl_ms, message_format) = (r.u64()?, r.u32()?, r.u32()?);
    let (priority, flags, format) = (r.u8()?, r.u8()?, r.u8()?);
    r.take(5)?;
    let format = match format {
        1 => ContentFormat::Amqp10,
        _ => return Err(Malformed),
    };
    Ok(Head { arrived_ms, ttl_ms, message_format, priority, flags: HeadFlags(flags), format })
}

pub(crate) fn settings(r: &mut Reader<'_>) -> Result<QueueSettings, Malformed> {
    let bits = r.u8()?;
    if bits & !(DURABLE | LIMITED) != 0 {
        return Err(Malformed);
    }
    let delivery_limit = r.u32()?;
    let dead_letter = match r.text()? {
        "" => None,
        text => Some(name(text)?),
    };
    let limits = if bits & LIMITED == 0 {
        QueueLimits::default()
    } else {
        let limit = |value| (value != NO_LIMIT).then_some(value);
        QueueLimits {
            max_messages: limit(r.u64()?),
            max_bytes: limit(r.u64()?),
            on_full: match r.u8()? {
                0 => OnFull::Block,
                1 => OnFull::Reject,
                2 => OnFull::DropOldest,
                _ => return Err(Malformed),
            },
        }
    };
    Ok(QueueSettings { default_durable: bits & DURABLE != 0, delivery_limit, dead_letter, limits })
}

pub(crate) fn overlay(r: &mut Reader<'_>) -> Result<Overlay, Malformed> {
    let annotations = Bytes::copy_from_slice(r.bytes()?);
    let dead_letter = match r.u8()? {
        0 => None,
        reason => Some(Box::new(DeadLetter {
            reason: match reason & !LEAVING {
                1 => Reason::Rejected,
                2 => Reason::DeliveryLimit,
                3 => Reason::BrokerCrash,
                4 => Reason::Overflow,
                _ => return Err(Malformed),
            },
            detail: r.text()?.into(),
            address: name(r.text()?)?,
            sequence: r.u64()?,
            deliveries: r.u32()?,
            leaving: reason & LEAVING != 0,
        })),
    };
    Ok(Overlay { annotations, dead_letter })
}

#[cfg(test)]
mod tests;
