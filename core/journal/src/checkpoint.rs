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
use crate::index::{Facts, Index, Marks, Note, Place, Said, Stored};
use crate::record::{self, Ranges, close, open, put_head, put_key, put_overlay, put_ranges, put_settings};
use crate::segment::VERSION;
use crate::tally::Tally;
use packhorse_model::{EntryKey, LargeId, QueueId, Sequence};
use std::ops::Bound;

const MAGIC: &[u8; 8] = b"phCHECKP";
/// Bytes of the header that are summed.
const SUMMED: usize = 136;
/// Bytes in front of a section: length and sum.
pub(crate) const SECTION_HEADER: usize = 8;
/// Queues that a slice looks at.
const SLICE_QUEUES: usize = 512;
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
        put_u64(&mut out, 0);
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
        r.take(24).ok()?;
        if magic != MAGIC || r.u32().ok()? != crc(0, bytes.get(..SUMMED)?) {
            return None;
        }
        if version != VERSION {
            return Some(Err(version));
        }
        let header = Header {
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
            length,
            sum,
        };
        Some(Ok(header))
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
    Queue { id: QueueId, facts: Facts },
    /// Entries that are live, and described by their Enqueue in the log.
    Listed { queue: QueueId, ranges: Ranges<'a> },
    /// An entry with all that is to be known of it.
    Entry { key: EntryKey, stored: Stored, note: Note },
    /// What happened to a listed entry.
    Numbers { key: EntryKey, note: Note },
    /// What an entry was that a block behind the covered one moves.
    Moved { key: EntryKey, stored: Stored },
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
    let overlay = if flags & OVERLAY != 0 { Some(Box::new(record::overlay(r)?)) } else { None };
    Ok(Note { deliveries, attempts, overlay, head: None, large: None })
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
    if let Some(overlay) = &note.overlay {
        put_overlay(out, overlay);
    }
}

fn flags(stored: Option<&Stored>, note: Option<&Note>) -> u8 {
    let large = matches!(stored, Some(Stored::Large { .. }));
    let overlay = note.is_some_and(|note| note.overlay.is_some());
    (if large { LARGE } else { 0 }) | if overlay { OVERLAY } else { 0 }
}

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The queue after this one is next.
    After(Option<QueueId>),
    /// Entries of a level, from a number on.
    Level { queue: QueueId, level: usize, from: Sequence },
    /// Notes from a number on.
    Notes { queue: QueueId, from: Sequence },
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
        for entry in line.from(from) {
            if *entries == 0 {
                self.at = At::Level { queue: id, level, from: entry.sequence };
                break;
            }
            *entries -= 1;
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

    fn notes(
        &mut self,
        index: &mut Index,
        id: QueueId,
        from: Sequence,
        entries: &mut usize,
        out: &mut Vec<u8>,
    ) {
        self.at = At::After(Some(id));
        let Some(queue) = index.queue(id) else { return };
        let numbers: Vec<Sequence> =
            queue.notes.range((Bound::Included(from), Bound::Unbounded)).take(*entries + 1).map(|(n, _)| *n).collect();
        for sequence in numbers {
            if *entries == 0 || out.len() >= SLICE_BYTES {
                self.at = At::Notes { queue: id, from: sequence };
                return;
            }
            *entries -= 1;
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
