//! The walk through the index that makes a checkpoint's sections of it, a slice at a time.

use super::item::{code, flags, put_numbers, put_stored};
use super::transactions::Telling;
use crate::bytes_io::{put_bytes, put_u64};
use crate::index::{Facts, Index, Place, Said, Stored};
use crate::record::{close, open, put_head, put_key, put_ranges, put_settings};
use crate::tally::Tally;
use packhorse_model::{EntryKey, QueueId, Sequence};
use std::ops::Bound;

/// Queues that a slice looks at.
const SLICE_QUEUES: usize = 512;
/// A look at an entry of a queue with notes, and at a note, count as so many entries: they are searched for.
const SEARCH_COST: usize = 4;
const NOTE_COST: usize = 8;
/// Bytes after which a slice ends.
pub(super) const SLICE_BYTES: usize = 128 * 1024;

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Transactions, as they were at the beginning.
    Transactions,
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
    telling: Telling,
    listed: Tally,
    whole: Tally,
}

impl Walk {
    /// Begins; from now on the index remembers moves, and what transactions are now.
    pub(crate) fn new(index: &mut Index, boundary: Place) -> Walk {
        index.watch(true);
        let (listed, whole) = (Tally::default(), Tally::default());
        Walk { boundary, at: At::Transactions, telling: Telling::default(), listed, whole }
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
                At::Transactions => {
                    let transactions = index.transactions();
                    if self.telling.go_on(transactions, &mut entries, out, &mut self.whole) {
                        self.at = At::After(None);
                    }
                }
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
