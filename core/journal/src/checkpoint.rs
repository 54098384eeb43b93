//! A checkpoint: the fold of the log up to one block, as a file, and how it is taken from the live index
//! (`docs/formats/journal.md`, "Checkpoints").
//!
//! It is taken in slices while work goes on. A slice tells a queue as it is then, so that later ones may know of blocks
//! that are not covered. That does no harm, because a start takes in all blocks from the covered one on once more, and
//! each record but one says what holds afterwards, whatever held before. The one is Relocate, which needs what the entry
//! was: the index remembers that while a checkpoint is taken, and it is told as an item of its own.
//!
//! Must not know: files, when a checkpoint is due.

use crate::block::UNIT;
use crate::bytes_io::{Malformed, Reader, crc, pad_to, put_bytes, put_u32, put_u64};
use crate::index::{Facts, Index, Marks, Note, Place, Said, Stored, Suspect};
use crate::record::{self, Ranges, close, open, put_head, put_key, put_overlay, put_ranges, put_settings};
use crate::segment::{READS, VERSION};
use crate::tally::Tally;
use packhorse_model::{EntryKey, LargeId, QueueId, Sequence};
use packhorse_store::Blame;
use std::ops::Bound;

const MAGIC: &[u8; 8] = b"phCHECKP";
/// Bytes of the header that are summed.
const SUMMED: usize = 136;
/// Bytes in front of a section: length and sum.
pub(crate) const SECTION_HEADER: usize = 8;
/// Queues that a slice looks at.
const SLICE_QUEUES: usize = 512;
/// A look at an entry of a queue with notes, and at a note, count as so many entries: they are searched for.
const SEARCH_COST: usize = 4;
const NOTE_COST: usize = 8;
/// Bytes after which a slice ends.
const SLICE_BYTES: usize = 128 * 1024;

/// The kinds of items.
mod code {
    pub(super) const QUEUE: u8 = 1;
    pub(super) const LISTED: u8 = 2;
    pub(super) const ENTRY: u8 = 3;
    pub(super) const NUMBERS: u8 = 4;
    pub(super) const MOVED: u8 = 5;
    pub(super) const SEGMENT: u8 = 6;
}

const LARGE: u8 = 2;
const OVERLAY: u8 = 4;
const SUSPECT: u8 = 8;

/// A flag of the header: the covered block ends a run in order.
const STOPPED: u64 = 1;

/// A checkpoint's header: in the first 4 KiB of its file, within one sector; written when all else is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) store: [u8; 16],
    /// + 1 each checkpoint of a store.
    pub(crate) number: u64,
    pub(crate) salt: u32,
    /// The start that wrote it.
    pub(crate) run: u32,
    /// Blocks up to this one are covered: a start reads from the next one on.
    pub(crate) block: u64,
    /// The covered block's chain.
    pub(crate) chain: u32,
    /// Where the next block is, or in the segment after.
    pub(crate) place: Place,
    /// The last block that a slice may know of: known to be durable.
    pub(crate) seen: u64,
    pub(crate) broker_ms: u64,
    pub(crate) wall_ms: i64,
    pub(crate) next_queue: u64,
    /// The covered block ends a run in order.
    pub(crate) stopped: bool,
    /// Bytes of all sections.
    pub(crate) length: u64,
    /// The last section's sum, continued from all before it.
    pub(crate) sum: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(UNIT as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.store);
        put_u64(&mut out, self.number);
        put_u32(&mut out, self.salt);
        put_u32(&mut out, self.run);
        put_u64(&mut out, self.block);
        put_u64(&mut out, self.seen);
        put_u32(&mut out, self.place.segment);
        put_u32(&mut out, self.place.offset);
        put_u64(&mut out, self.broker_ms);
        put_u64(&mut out, self.wall_ms as u64);
        put_u64(&mut out, self.next_queue);
        put_u64(&mut out, self.length);
        put_u32(&mut out, self.chain);
        put_u32(&mut out, self.sum);
        put_u64(&mut out, if self.stopped { STOPPED } else { 0 });
        put_u64(&mut out, 0);
        put_u64(&mut out, 0);
        debug_assert_eq!(out.len(), SUMMED);
        let sum = crc(0, &out);
        put_u32(&mut out, sum);
        pad_to(&mut out, UNIT as usize);
        out
    }

    /// Reads a header; `None` when it is not whole. A version of its own is told.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Header, u32>> {
        let mut r = Reader::new(bytes);
        let (magic, version, _) = (r.take(8).ok()?, r.u32().ok()?, r.u32().ok()?);
        let store = r.take(16).ok()?.try_into().ok()?;
        let (number, salt, run) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
        let (block, seen) = (r.u64().ok()?, r.u64().ok()?);
        let place = Place { segment: r.u32().ok()?, offset: r.u32().ok()? };
        let (broker_ms, wall_ms) = (r.u64().ok()?, r.u64().ok()? as i64);
        let (next_queue, length) = (r.u64().ok()?, r.u64().ok()?);
        let (chain, sum) = (r.u32().ok()?, r.u32().ok()?);
        let stopped = r.u64().ok()? & STOPPED != 0;
        r.take(16).ok()?;
        if magic != MAGIC || r.u32().ok()? != crc(0, bytes.get(..SUMMED)?) {
            return None;
        }
        if !READS.contains(&version) {
            return Some(Err(version));
        }
        Some(Ok(Header {
            store,
            number,
            salt,
            run,
            block,
            chain,
            place,
            seen,
            broker_ms,
            wall_ms,
            next_queue,
            stopped,
            length,
            sum,
        }))
    }
}

/// A segment with something live in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) id: u32,
    pub(crate) salt: u32,
    /// It holds no block from this one on.
    pub(crate) end: u64,
    /// Entries to be found in it.
    pub(crate) listed: u64,
    /// Entries told whole whose bodies it holds.
    pub(crate) whole: u64,
}

/// One fact of a checkpoint.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Queue {
        id: QueueId,
        facts: Facts,
    },
    /// Entries that are live, and described by their Enqueue in the log.
    Listed {
        queue: QueueId,
        ranges: Ranges<'a>,
    },
    /// An entry with all that is to be known of it.
    Entry {
        key: EntryKey,
        stored: Stored,
        note: Note,
    },
    /// What happened to a listed entry.
    Numbers {
        key: EntryKey,
        note: Note,
    },
    /// What an entry was that a block behind the covered one moves.
    Moved {
        key: EntryKey,
        stored: Stored,
    },
    Segment(Held),
}

/// Reads the items of a section one by one.
pub(crate) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    pub(crate) fn new(section: &'a [u8]) -> Items<'a> {
        Items { rest: section }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut header = Reader::new(self.rest);
        let (code, flags, _, length) = (header.u8()?, header.u8()?, header.u16()?, header.u32()? as usize);
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Malformed);
        }
        let (item, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        decode(code, flags, &item[8..]).map(Some)
    }
}

fn decode(code: u8, flags: u8, body: &[u8]) -> Result<Item<'_>, Malformed> {
    let mut r = Reader::new(body);
    let queue = |r: &mut Reader<'_>| r.u64().map(QueueId);
    Ok(match code {
        code::QUEUE => {
            let (id, next, reserved) = (queue(&mut r)?, r.u64()?, r.u64()?);
            let (name, settings) = (record::name(r.text()?)?, record::settings(&mut r)?);
            let mut marks = Marks::default();
            marks.ranges.extend(Ranges::new(r)?);
            Item::Queue { id, facts: Facts { name, settings, next, reserved, marks } }
        }
        code::LISTED => Item::Listed { queue: queue(&mut r)?, ranges: Ranges::new(r)? },
        code::ENTRY => {
            let (key, stored, head) = (record::key(&mut r)?, stored(&mut r, flags)?, record::head(&mut r)?);
            let large = match stored {
                Stored::Large { id, length } => Some((id, length)),
                Stored::Body { .. } => None,
            };
            Item::Entry { key, stored, note: Note { head: Some(head), large, ..numbers(&mut r, flags)? } }
        }
        code::NUMBERS => Item::Numbers { key: record::key(&mut r)?, note: numbers(&mut r, flags)? },
        code::MOVED => Item::Moved { key: record::key(&mut r)?, stored: stored(&mut r, flags)? },
        code::SEGMENT => {
            let (id, salt) = (r.u32()?, r.u32()?);
            Item::Segment(Held { id, salt, end: r.u64()?, listed: r.u64()?, whole: r.u64()? })
        }
        _ => return Err(Malformed),
    })
}

fn stored(r: &mut Reader<'_>, flags: u8) -> Result<Stored, Malformed> {
    Ok(if flags & LARGE != 0 {
        Stored::Large { id: LargeId(r.u64()?), length: r.u64()? }
    } else {
        Stored::Body { place: Place { segment: r.u32()?, offset: r.u32()? }, length: r.u32()?, crc: r.u32()? }
    })
}

fn numbers(r: &mut Reader<'_>, flags: u8) -> Result<Note, Malformed> {
    let (deliveries, attempts) = (r.u32()?, r.u32()?);
    let suspect = if flags & SUSPECT != 0 {
        let (crashes, marked, at_ms) = (r.u32()?, r.u32()?, r.u64()?);
        Some(Box::new(Suspect { blame: Blame(crashes), marked_ms: (marked != 0).then_some(at_ms) }))
    } else {
        None
    };
    let overlay = if flags & OVERLAY != 0 { Some(Box::new(record::overlay(r)?)) } else { None };
    Ok(Note { deliveries, attempts, overlay, head: None, large: None, suspect })
}

fn put_stored(out: &mut Vec<u8>, stored: &Stored) {
    match *stored {
        Stored::Body { place, length, crc } => {
            [place.segment, place.offset, length, crc].into_iter().for_each(|n| put_u32(out, n));
        }
        Stored::Large { id, length } => [id.0, length].into_iter().for_each(|n| put_u64(out, n)),
    }
}

fn put_numbers(out: &mut Vec<u8>, note: &Note) {
    put_u32(out, note.deliveries);
    put_u32(out, note.attempts);
    if let Some(suspect) = &note.suspect {
        put_u32(out, suspect.blame.0);
        put_u32(out, u32::from(suspect.marked_ms.is_some()));
        put_u64(out, suspect.marked_ms.unwrap_or(0));
    }
    if let Some(overlay) = &note.overlay {
        put_overlay(out, overlay);
    }
}

fn flags(stored: Option<&Stored>, note: Option<&Note>) -> u8 {
    let large = matches!(stored, Some(Stored::Large { .. }));
    let overlay = note.is_some_and(|note| note.overlay.is_some());
    let suspect = note.is_some_and(|note| note.suspect.is_some());
    let flag = |set, flag| if set { flag } else { 0 };
    flag(large, LARGE) | flag(overlay, OVERLAY) | flag(suspect, SUSPECT)
}

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The queue after this one is next.
    After(Option<QueueId>),
    /// Entries of a level, from a number on.
    Level {
        queue: QueueId,
        level: usize,
        from: Sequence,
    },
    /// Notes from a number on.
    Notes {
        queue: QueueId,
        from: Sequence,
    },
    Done,
}

/// Walks through the index and makes sections of it.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Entries stored here or later are told by the blocks that are not covered.
    boundary: Place,
    at: At,
    listed: Tally,
    whole: Tally,
}

impl Walk {
    /// Begins; from now on the index remembers moves.
    pub(crate) fn new(index: &mut Index, boundary: Place) -> Walk {
        index.watch_moves(true);
        Walk { boundary, at: At::After(None), listed: Tally::default(), whole: Tally::default() }
    }

    /// Whether all queues have been told.
    pub(crate) fn done(&self) -> bool {
        matches!(self.at, At::Done)
    }

    /// Segments with something live, as far as it was told.
    pub(crate) fn held(&self, segment: u32) -> (u64, u64) {
        (self.listed.get(segment), self.whole.get(segment))
    }

    /// Numbers of all segments with something live.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u32> + '_ {
        let whole = self.whole.iter().filter(|(id, _)| self.listed.get(*id) == 0);
        self.listed.iter().chain(whole).map(|(id, _)| id)
    }

    /// The next slice, appended to a section: it looks at `most` entries, fewer if there are many queues or bytes.
    pub(crate) fn slice(&mut self, index: &mut Index, out: &mut Vec<u8>, most: usize) {
        let (mut queues, mut entries) = (SLICE_QUEUES, most);
        while queues > 0 && entries > 0 && out.len() < SLICE_BYTES {
            queues -= 1;
            match self.at {
                At::After(before) => match index.queue_after(before) {
                    Some(id) => self.queue(index, id, out),
                    None => {
                        self.at = At::Done;
                        break;
                    }
                },
                At::Level { queue, level, from } => self.level(index, queue, level, from, &mut entries, out),
                At::Notes { queue, from } => self.notes(index, queue, from, &mut entries, out),
                At::Done => break,
            }
        }
        self.moved(index, out);
    }

    fn queue(&mut self, index: &mut Index, id: QueueId, out: &mut Vec<u8>) {
        let queue = index.queue(id).expect("ids are those of queues");
        queue.tidy_marks();
        let Facts { name, settings, next, reserved, marks } = &queue.facts;
        let start = open(out, code::QUEUE, 0, 0, 0);
        [id.0, *next, *reserved].into_iter().for_each(|n| put_u64(out, n));
        put_bytes(out, name.as_str().as_bytes());
        put_settings(out, settings);
        put_ranges(out, marks.ranges.iter().copied());
        close(out, start);
        self.at = At::Level { queue: id, level: 0, from: 0 };
    }

    fn level(
        &mut self,
        index: &mut Index,
        id: QueueId,
        level: usize,
        from: Sequence,
        entries: &mut usize,
        out: &mut Vec<u8>,
    ) {
        // A queue that is gone in the meantime is gone in what follows the covered block, too.
        let line = index.queue(id).map(|queue| (&*queue, queue.levels.get(level)));
        let Some((queue, Some((_, line)))) = line else {
            self.at = At::Notes { queue: id, from: 0 };
            return;
        };
        self.at = At::Level { queue: id, level: level + 1, from: 0 };
        let mut ranges: Vec<(Sequence, Sequence)> = Vec::new();
        // Entries of one segment mostly follow one another.
        let (mut segment, mut same) = (0, 0);
        let cost = if queue.notes.is_empty() { 1 } else { SEARCH_COST };
        for entry in line.from(from) {
            if *entries == 0 {
                self.at = At::Level { queue: id, level, from: entry.sequence };
                break;
            }
            *entries = entries.saturating_sub(cost);
            let Said::Listed(place) = queue.said(entry, self.boundary) else { continue };
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == entry.sequence => last.1 = entry.sequence,
                _ => ranges.push((entry.sequence, entry.sequence)),
            }
            if place.segment != segment {
                self.listed.add(segment, std::mem::take(&mut same));
                segment = place.segment;
            }
            same += 1;
        }
        self.listed.add(segment, same);
        if !ranges.is_empty() {
            let start = open(out, code::LISTED, 0, 0, 0);
            put_u64(out, id.0);
            put_ranges(out, ranges.into_iter());
            close(out, start);
        }
    }

    fn notes(&mut self, index: &mut Index, id: QueueId, from: Sequence, entries: &mut usize, out: &mut Vec<u8>) {
        self.at = At::After(Some(id));
        let Some(queue) = index.queue(id) else { return };
        let numbers: Vec<Sequence> = queue
            .notes
            .range((Bound::Included(from), Bound::Unbounded))
            .take(*entries / NOTE_COST + 2)
            .map(|(n, _)| *n)
            .collect();
        for sequence in numbers {
            if *entries == 0 || out.len() >= SLICE_BYTES {
                self.at = At::Notes { queue: id, from: sequence };
                return;
            }
            *entries = entries.saturating_sub(NOTE_COST);
            let Some(entry) = queue.find(sequence) else { continue };
            let key = EntryKey { queue: id, sequence };
            match queue.said(&entry, self.boundary) {
                Said::Whole(stored, note) => {
                    if let Stored::Body { place, .. } = stored {
                        self.whole.add(place.segment, 1);
                    }
                    let start = open(out, code::ENTRY, flags(Some(&stored), Some(note)), 0, 0);
                    put_key(out, key);
                    put_stored(out, &stored);
                    put_head(out, &note.head.expect("an entry told whole has its head"));
                    put_numbers(out, note);
                    close(out, start);
                }
                Said::Listed(_) => {
                    let note = &queue.notes[&sequence];
                    let start = open(out, code::NUMBERS, flags(None, Some(note)), 0, 0);
                    put_key(out, key);
                    put_numbers(out, note);
                    close(out, start);
                }
                Said::Nothing => {}
            }
        }
    }

    /// What has moved since the last slice; after the last one, until the checkpoint ends.
    pub(crate) fn moved(&mut self, index: &mut Index, out: &mut Vec<u8>) {
        for (key, stored) in index.moved() {
            if let Stored::Body { place, .. } = stored {
                self.whole.add(place.segment, 1);
            }
            let start = open(out, code::MOVED, flags(Some(&stored), None), 0, 0);
            put_key(out, key);
            put_stored(out, &stored);
            close(out, start);
        }
    }
}

/// The table of segments, which ends a checkpoint.
pub(crate) fn put_segments(out: &mut Vec<u8>, held: impl Iterator<Item = Held>) {
    for Held { id, salt, end, listed, whole } in held {
        let start = open(out, code::SEGMENT, 0, 0, 0);
        put_u32(out, id);
        put_u32(out, salt);
        [end, listed, whole].into_iter().for_each(|n| put_u64(out, n));
        close(out, start);
    }
}

/// Fills in the header in front of a section whose items begin at [`SECTION_HEADER`]; answers the sum that the next one
/// continues.
pub(crate) fn finish_section(section: &mut [u8], sum: u32) -> u32 {
    let items = &section[SECTION_HEADER..];
    let (length, sum) = (items.len() as u32, crc(sum, items));
    section[..4].copy_from_slice(&length.to_le_bytes());
    section[4..8].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Takes the sections apart; `None` when they are not what the header says.
pub(crate) fn sections<'a>(header: &Header, mut bytes: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let (mut sum, mut sections) = (header.salt, Vec::new());
    if bytes.len() as u64 != header.length {
        return None;
    }
    while !bytes.is_empty() {
        let mut r = Reader::new(bytes);
        let (length, expected) = (r.u32().ok()? as usize, r.u32().ok()?);
        let items = r.take(length).ok()?;
        sum = crc(sum, items);
        if sum != expected {
            return None;
        }
        sections.push(items);
        bytes = &bytes[SECTION_HEADER + length..];
    }
    (sum == header.sum).then_some(sections)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes_io::Draw;
    use crate::fold::Fold;
    use crate::record::{Encoded, End, start_meta};
    use bytes::Bytes;
    use packhorse_model::{
        ContentFormat, DeadLetter, Head, HeadFlags, Overlay, QueueLimits, QueueName, QueueSettings, Reason,
    };
    use packhorse_store::{BLAME_MS, Batch, Load, Op, PASSED, RESERVE, Recovered, Stored as Content};
    use std::collections::BTreeMap;

    /// Broker time of crashes, ms.
    const CRASH_MS: u64 = 50_000;

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
            let what = if self.next.is_empty() { 99 } else { self.below(100) };
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
                88..92 => {
                    let first = entry.sequence.saturating_sub(self.below(40));
                    let young = CRASH_MS - BLAME_MS + 1;
                    let at_ms = [0, young | PASSED, young][self.below(8).min(2) as usize];
                    batch.push(Op::ExactMark { queue: entry.queue, first, last: entry.sequence, at_ms });
                }
                92..94 => batch.push(Op::QueueChange { id: entry.queue, settings: self.settings() }),
                94..96 => {
                    let up_to = self.draw.next() % (5 * RESERVE);
                    batch.push(Op::Reserve { queue: entry.queue, up_to });
                }
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
        index.watch_moves(false);
        let held = walk.segments().map(|id| {
            let (listed, whole) = walk.held(id);
            Held { id, salt: 7, end: 1, listed, whole }
        });
        put_segments(&mut out, held.collect::<Vec<_>>().into_iter());
        (out, walk)
    }

    /// The fold of a checkpoint, the blocks that it covers, and those behind them.
    fn fold(next_queue: u64, items: &[u8], covered: &[Block], tail: &[Block]) -> Fold {
        let mut fold = Fold::default();
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
        let (recovered, _) = fold.finish(&mut index, 2);
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
        let (mut moved, mut noted, mut between, mut crashes, mut passed) = (0, 0, 0, [0; 3], 0);
        for seed in 0..400 {
            let mut history = History { draw: Draw::new(seed), next: BTreeMap::new(), live: Vec::new(), queues: 0 };
            let mut all: Vec<Block> = (0..40).map(|n| history.block(n)).collect();
            // Two runs that ended in a crash, and the start after; the third is the one in which the checkpoint is taken.
            for (run, n) in [(2, 6), (3, FIRST), (4, 39)] {
                all[n].0 = start(run);
            }
            let covered = FIRST + 1 + history.below(39 - FIRST as u64) as usize;
            let most = 1 + history.below(4) as usize;
            let mut before = Fold::default();
            all[..=FIRST].iter().for_each(|(meta, content)| before.apply(meta, *content).unwrap());
            let mut index = Index::new(2);
            before.finish(&mut index, 2);
            let mut applied = FIRST + 1;
            let apply = |index: &mut Index, applied: &mut usize| {
                if let Some((meta, content)) = all[..39].get(*applied) {
                    index.apply(meta, *content, &mut Vec::new()).unwrap();
                    *applied += 1;
                }
            };
            (FIRST + 1..covered).for_each(|_| apply(&mut index, &mut applied));
            let (items, _) = take(&mut index, place(covered as u32), most, |index| {
                if history.below(3) == 0 {
                    apply(index, &mut applied);
                    between += 1;
                }
            });
            let mut read = Items::new(&items);
            while let Some(item) = read.next().unwrap() {
                moved += usize::from(matches!(item, Item::Moved { .. }));
                noted += usize::from(matches!(item, Item::Numbers { .. } | Item::Entry { .. }));
            }
            // A queue made in a block behind counts as well when that block is taken in.
            let next_queue = index.next_queue();
            let mut whole = Fold::default();
            all.iter().for_each(|(meta, content)| whole.apply(meta, *content).unwrap());
            let (expected, places, _) = facts(whole, history.queues);
            for thing in expected.iter().flatten() {
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
        assert!(moved > 100 && noted > 1000 && between > 1000, "{moved} {noted} {between}");
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
        History { draw: Draw::new(0), next: BTreeMap::new(), live: Vec::new(), queues: 0 }
    }

    fn header() -> Header {
        Header {
            store: [3; 16],
            number: 1,
            salt: 2,
            run: 3,
            block: 4,
            chain: 5,
            place: Place { segment: 6, offset: 7 },
            seen: 8,
            broker_ms: 9,
            wall_ms: -10,
            next_queue: 11,
            stopped: true,
            length: 12,
            sum: 13,
        }
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
}
