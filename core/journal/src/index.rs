//! The live index: which entries of which queue live where. Only it knows places, so that moving stored bytes updates
//! nothing else. It is the fold of all blocks handed out so far, in their order, and so what a checkpoint is made of: it
//! also keeps the queues' facts, marks, redelivery numbers and overlays, these only for entries that have some.
//!
//! Must not know: heads of entries that nothing happened to (their Enqueue in the log has them), files.

mod behind;
mod transactions;

use crate::line::{Item, Line};
use crate::record::{Record, Records, Where};
use crate::tally::Tally;
use crate::transactions::{Refused, Transactions};
use behind::Behind;
use packhorse_model::{
    EntryKey, Head, LargeId, Map, Overlay, Planted, QueueId, QueueName, QueueSettings, Seed, Sequence, planted,
};
use packhorse_store::{BLAME_MS, Blame, Load, PASSED, Redelivery};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// Where bytes are: ordered as they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

impl Place {
    /// Whether `place` lies before this one.
    pub(crate) fn covers(self, place: Place) -> bool {
        place < self
    }
}

/// Bytes of a body and their sum, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Body { place: Place, length: u32, crc: u32 },
    Large { id: LargeId, length: u64 },
}

/// An entry in the index. A body's place, or [`LARGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    pub(crate) place: Place,
    /// Within the index: with [`VOLATILE`].
    pub(crate) length: u32,
    pub(crate) crc: u32,
}

/// Operations of transactions that are done at once, see [`Index::catch_up`]: less than a millisecond's work.
pub(crate) const SLICE_OPERATIONS: usize = 1024;

/// Segment 0 never exists: a removed entry.
const DEAD: u32 = 0;
/// Nor does this one: the content is a file, named in the entry's note.
const LARGE: u32 = u32::MAX;
/// In an entry's length: no start recovers it. (A batch holds less than 2 GiB.)
const VOLATILE: u32 = 1 << 31;

impl Entry {
    /// Whether its content is a file of its own.
    pub(crate) fn large(&self) -> bool {
        self.place.segment == LARGE
    }

    fn volatile(&self) -> bool {
        self.length & VOLATILE != 0
    }

    /// As others see it.
    fn plain(mut self) -> Entry {
        self.length &= !VOLATILE;
        self
    }
}

impl Item for Entry {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn live(&self) -> bool {
        self.place.segment != DEAD
    }
}

/// What is known of an entry beyond its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    pub(crate) deliveries: u32,
    pub(crate) attempts: u32,
    pub(crate) overlay: Option<Box<Overlay>>,
    /// Its head, if no Enqueue with a body tells it under this key: it was moved here, or its content is a file.
    pub(crate) head: Option<Head>,
    pub(crate) large: Option<(LargeId, u64)>,
    pub(crate) suspect: Option<Box<Suspect>>,
}

/// An entry that may have been with a consumer when the process died, and has not come back from a delivery since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) blame: Blame,
    /// Broker time of that mark in this run, ms.
    pub(crate) marked_ms: Option<u64>,
}

/// A queue's facts.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) name: QueueName,
    pub(crate) settings: QueueSettings,
    /// First number of this run.
    pub(crate) next: Sequence,
    pub(crate) reserved: Sequence,
    pub(crate) marks: Marks,
}

/// Marked ranges of a queue, closed; neighbours are joined as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) ranges: Vec<(Sequence, Sequence)>,
    /// Ranges kept when it was last tidied.
    tidied: usize,
}

impl Marks {
    /// Marks `count` numbers from `first` on.
    pub(crate) fn add(&mut self, first: Sequence, count: u64) {
        let Some(more) = count.checked_sub(1) else { return };
        let last = first.saturating_add(more);
        match self.ranges.last_mut() {
            Some(before) if before.0 <= first && first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => self.ranges.push((first, last)),
        }
    }

    /// Whether tidying may pay.
    fn untidy(&self) -> bool {
        self.ranges.len() > 2 * self.tidied + 64
    }

    /// Sorts, joins, and drops what lies below `floor`.
    pub(crate) fn tidy(&mut self, floor: Sequence) {
        self.ranges.retain(|range| range.1 >= floor);
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1.saturating_add(1);
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
        self.tidied = self.ranges.len();
    }
}

#[derive(Debug)]
pub(crate) struct QueueIndex {
    pub(crate) facts: Facts,
    pub(crate) levels: Vec<(u8, Line<Entry>)>,
    pub(crate) notes: BTreeMap<Sequence, Box<Note>>,
    /// Entries that branches in doubt remove: live until these are decided, and not loaded.
    held: BTreeSet<Sequence>,
    /// The highest number that an entry had.
    highest: Sequence,
}

impl QueueIndex {
    fn new(facts: Facts) -> QueueIndex {
        QueueIndex { facts, levels: Vec::new(), notes: BTreeMap::new(), held: BTreeSet::new(), highest: 0 }
    }

    fn insert(&mut self, level: u8, entry: Entry) {
        self.highest = self.highest.max(entry.sequence);
        let line = match self.levels.iter().position(|(l, _)| *l == level) {
            Some(at) => &mut self.levels[at].1,
            None => {
                self.levels.push((level, Line::default()));
                &mut self.levels.last_mut().expect("it was just pushed").1
            }
        };
        line.insert(entry);
    }

    /// The live entry of this number.
    pub(crate) fn find(&mut self, sequence: Sequence) -> Option<Entry> {
        self.levels.iter_mut().find_map(|(_, line)| line.get_mut(sequence).copied())
    }

    /// No entry lives below it, nor will.
    fn floor(&self) -> Sequence {
        let first = |(_, line): &(u8, Line<Entry>)| line.from(0).next().map(|e| e.sequence);
        self.levels.iter().filter_map(first).min().unwrap_or(self.highest)
    }

    fn take(&mut self, sequence: Sequence) -> Option<(Entry, Option<Box<Note>>)> {
        for (_, line) in &mut self.levels {
            if let Some(entry) = line.get_mut(sequence).copied() {
                line.remove(sequence, sequence, |e| e.place.segment = DEAD);
                return Some((entry, self.notes.remove(&sequence)));
            }
        }
        None
    }

    /// Tidies the marks and answers them.
    pub(crate) fn tidy_marks(&mut self) -> &[(Sequence, Sequence)] {
        let floor = self.floor();
        self.facts.marks.tidy(floor);
        &self.facts.marks.ranges
    }
}

/// See the file's head.
pub(crate) struct Index {
    queues: Map<QueueId, QueueIndex>,
    /// Ids of all queues, in order, for whoever walks through them.
    ids: BTreeSet<QueueId>,
    next_queue: u64,
    /// References to large messages' files.
    references: BTreeMap<LargeId, u32>,
    /// Entries, volatile ones too, and messages that transactions add, whose bodies lie in a segment.
    live: Tally,
    transactions: Transactions,
    behind: Behind,
    /// Operations of transactions that are done at once.
    slice: usize,
    /// While a checkpoint is being taken: what entries that moved were before, for the replay of their move.
    moved: Option<Vec<(EntryKey, Stored)>>,
    young_marks: YoungMarks,
}

/// Broker times of exact marks whose suspects a crash would be blamed on, ascending, ms. Those that come close together count as
/// the last of them.
#[derive(Debug, Default)]
struct YoungMarks(VecDeque<u64>);

impl YoungMarks {
    /// What is close together.
    const CLOSE_MS: u64 = 250;

    fn add(&mut self, at_ms: u64) {
        match self.0.back_mut() {
            Some(last) if at_ms <= last.saturating_add(YoungMarks::CLOSE_MS) => *last = at_ms.max(*last),
            _ => self.0.push_back(at_ms),
        }
    }
}

impl Index {
    pub(crate) fn new(seed: u64) -> Index {
        Index {
            transactions: Transactions::default(),
            behind: Behind::default(),
            slice: SLICE_OPERATIONS,
            queues: Seed::fixed(seed).map(),
            ids: BTreeSet::new(),
            next_queue: 0,
            references: BTreeMap::new(),
            live: Tally::default(),
            moved: None,
            young_marks: YoungMarks::default(),
        }
    }

    /// Takes in the metadata of a block whose content begins at `content`. Files that no entry refers to any more are
    /// appended to `unlinks`.
    pub(crate) fn apply(&mut self, meta: &[u8], content: Place, unlinks: &mut Vec<LargeId>) -> Result<(), Refused> {
        let mut records = Records::new(meta);
        let (mut here, mut next) = (content.offset, content.offset);
        let (mut stored, mut slice) = (0, self.slice);
        while let Some(record) = records.next()? {
            match record {
                Record::Batch { content } => {
                    here = next;
                    next += content;
                }
                Record::Enqueue { queue, sequence, head, content: body, volatile } => {
                    // As the fold has it: what comes after the queue's end is lost with it.
                    let Some(queue) = self.queues.get_mut(&queue) else {
                        if let Where::Large { id, .. } = body {
                            refer(&mut self.references, id);
                            release(&mut self.references, id, unlinks);
                        }
                        continue;
                    };
                    if !volatile {
                        queue.facts.reserved = queue.facts.reserved.max(sequence.saturating_add(1));
                    }
                    let flag = if volatile { VOLATILE } else { 0 };
                    let entry = match body {
                        Where::Body { offset, length, crc } => {
                            stored += 1;
                            let place = Place { segment: content.segment, offset: here + offset };
                            Entry { sequence, place, length: length | flag, crc }
                        }
                        Where::Large { id, length } => {
                            let note = Note { head: Some(head), large: Some((id, length)), ..Note::default() };
                            queue.notes.insert(sequence, Box::new(note));
                            refer(&mut self.references, id);
                            Entry { sequence, place: Place { segment: LARGE, offset: 0 }, length: flag, crc: 0 }
                        }
                    };
                    queue.insert(head.level(), entry);
                }
                Record::Acknowledge { queue, ranges } => {
                    // Those of this very block are counted first.
                    self.live.add(content.segment, std::mem::take(&mut stored));
                    if self.is_behind() {
                        self.before(queue, ranges.clone(), unlinks)?;
                    }
                    if !planted(Planted::ResurrectAcknowledged) {
                        self.acknowledge(queue, ranges, unlinks);
                    }
                }
                Record::Redeliver { entry, deliveries, attempts, overlay } => {
                    self.before(entry.queue, one(entry.sequence), unlinks)?;
                    if let Some(queue) = self.queues.get_mut(&entry.queue) {
                        queue.redeliver(entry.sequence, Redelivery { deliveries, attempts, overlay });
                    }
                }
                Record::Relocate { from, to, head, deliveries, attempts, overlay } => {
                    self.live.add(content.segment, std::mem::take(&mut stored));
                    self.before(from.queue, one(from.sequence), unlinks)?;
                    let (overlay, head) = (Some(overlay), Some(head));
                    let note = Note { deliveries, attempts, overlay, head, ..Note::default() };
                    self.relocate(from, to, note, unlinks);
                }
                Record::DispatchMark { queue, first, count } => {
                    if let Some(queue) = self.queues.get_mut(&queue) {
                        queue.facts.marks.add(first, u64::from(count));
                        if queue.facts.marks.untidy() {
                            queue.tidy_marks();
                        }
                    }
                }
                Record::ExactMark { queue, first, last, at_ms } => {
                    self.young_marks.add(at_ms & !PASSED);
                    let notes = self.queues.get_mut(&queue).map(|queue| queue.notes.range_mut(first..=last));
                    for suspect in notes.into_iter().flatten().filter_map(|(_, note)| note.suspect.as_mut()) {
                        suspect.marked_ms = Some(at_ms);
                    }
                }
                Record::QueueCreate { id, name, settings, reserved } => {
                    self.next_queue = self.next_queue.max(id.0 + 1);
                    self.restore_queue(id, Facts { name, settings, next: 0, reserved, marks: Marks::default() });
                }
                Record::QueueChange { id, settings } => {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.facts.settings = settings;
                    }
                }
                Record::QueueDelete { id } => {
                    self.live.add(content.segment, std::mem::take(&mut stored));
                    self.before_number(unlinks)?;
                    self.ids.remove(&id);
                    let gone = self.transactions.queue_gone(id);
                    self.give_up(gone);
                    let Some(queue) = self.queues.remove(&id) else { continue };
                    for id in queue.notes.into_values().filter_map(|note| note.large) {
                        release(&mut self.references, id.0, unlinks);
                    }
                    // Entries of one segment mostly follow one another.
                    let (mut segment, mut same) = (LARGE, 0);
                    for entry in queue.levels.into_iter().flat_map(|(_, line)| line.into_live()) {
                        if entry.place.segment != segment {
                            self.forget(segment, std::mem::take(&mut same));
                            segment = entry.place.segment;
                        }
                        same += 1;
                    }
                    self.forget(segment, same);
                }
                Record::Reserve { queue, up_to } => {
                    if let Some(queue) = self.queues.get_mut(&queue) {
                        queue.facts.reserved = queue.facts.reserved.max(up_to);
                    }
                }
                // A start's own, taken in by the fold before there is an index; and what the next start looks for.
                Record::Start { .. } | Record::Stop => {}
                Record::Producer(told) => {
                    self.before_number(unlinks)?;
                    let exists = self.queues.contains_key(&told.key.0);
                    self.transactions.numbered(told, exists);
                }
                Record::DuplicateId { key, at_ms } => {
                    self.before_number(unlinks)?;
                    let exists = self.queues.contains_key(&key.0);
                    self.transactions.identified(key, at_ms, exists);
                }
                Record::Transaction(record) => {
                    self.live.add(content.segment, std::mem::take(&mut stored));
                    self.transaction(*record, Place { segment: content.segment, offset: here }, unlinks)?;
                    slice = self.catch_up(slice, unlinks)?;
                }
            }
        }
        self.live.add(content.segment, stored);
        Ok(())
    }

    /// So many operations of transactions are done at once.
    pub(crate) fn set_slice(&mut self, operations: usize) {
        self.slice = operations.max(1);
    }

    /// See [`Index::set_slice`].
    pub(crate) fn slice(&self) -> usize {
        self.slice
    }

    /// Entries of these ranges are gone.
    #[inline]
    fn acknowledge(
        &mut self,
        queue: QueueId,
        ranges: impl Iterator<Item = (Sequence, Sequence)>,
        unlinks: &mut Vec<LargeId>,
    ) {
        let Some(queue) = self.queues.get_mut(&queue) else { return };
        let QueueIndex { levels, notes, .. } = queue;
        for (first, last) in ranges {
            for (_, line) in levels.iter_mut() {
                line.remove(first, last, |entry| {
                    if !notes.is_empty()
                        && let Some(note) = notes.remove(&entry.sequence)
                        && let Some((id, _)) = note.large
                    {
                        release(&mut self.references, id, unlinks);
                    }
                    if !entry.large() {
                        self.live.take(entry.place.segment, 1);
                    }
                    entry.place.segment = DEAD;
                });
            }
        }
    }

    /// So many entries are gone whose bodies lay in this segment.
    fn forget(&mut self, segment: u32, entries: u64) {
        if segment != LARGE && entries > 0 {
            self.live.take(segment, entries);
        }
    }

    fn relocate(&mut self, from: EntryKey, to: EntryKey, mut note: Note, unlinks: &mut Vec<LargeId>) {
        let Some((mut entry, before)) = self.queues.get_mut(&from.queue).and_then(|q| q.take(from.sequence)) else {
            return;
        };
        note.large = before.and_then(|note| note.large);
        if let Some(moved) = &mut self.moved
            && !entry.volatile()
        {
            let stored = match note.large {
                Some((id, length)) => Stored::Large { id, length },
                None => Stored::Body { place: entry.place, length: entry.length, crc: entry.crc },
            };
            moved.push((from, stored));
        }
        let Some(queue) = self.queues.get_mut(&to.queue) else {
            match note.large {
                Some((id, _)) => release(&mut self.references, id, unlinks),
                None => self.live.take(entry.place.segment, 1),
            }
            return;
        };
        if !entry.volatile() {
            queue.facts.reserved = queue.facts.reserved.max(to.sequence.saturating_add(1));
        }
        entry.sequence = to.sequence;
        queue.insert(note.head.map_or(0, |head| head.level()), entry);
        queue.notes.insert(to.sequence, Box::new(note));
    }

    /// Puts a queue in.
    pub(crate) fn restore_queue(&mut self, id: QueueId, facts: Facts) {
        self.ids.insert(id);
        self.queues.insert(id, QueueIndex::new(facts));
    }

    /// Puts a recovered entry of a queue that was put in before back.
    pub(crate) fn restore(
        &mut self,
        queue: QueueId,
        level: u8,
        sequence: Sequence,
        stored: Stored,
        note: Option<Note>,
    ) {
        let Some(queue) = self.queues.get_mut(&queue) else { return };
        let entry = match stored {
            Stored::Body { place, length, crc } => {
                self.live.add(place.segment, 1);
                Entry { sequence, place, length, crc }
            }
            Stored::Large { id, .. } => {
                refer(&mut self.references, id);
                Entry { sequence, place: Place { segment: LARGE, offset: 0 }, length: 0, crc: 0 }
            }
        };
        queue.insert(level, entry);
        if let Some(note) = note {
            queue.notes.insert(sequence, Box::new(note));
        }
    }

    pub(crate) fn restore_next_queue(&mut self, next: u64) {
        self.next_queue = next;
    }

    /// The lowest id that no queue had.
    pub(crate) fn next_queue(&self) -> u64 {
        self.next_queue
    }

    /// The first queue after this one, in the order of ids.
    pub(crate) fn queue_after(&self, before: Option<QueueId>) -> Option<QueueId> {
        let from = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.ids.range((from, Bound::Unbounded)).next().copied()
    }

    /// A queue, for a checkpoint.
    pub(crate) fn queue(&mut self, id: QueueId) -> Option<&mut QueueIndex> {
        self.queues.get_mut(&id)
    }

    /// From now on, what moves is remembered for [`Index::moved`], and what transactions are now for who tells them.
    pub(crate) fn watch(&mut self, watch: bool) {
        self.moved = watch.then(Vec::new);
        self.transactions.watch(watch);
    }

    /// What there is of transactions, for a checkpoint.
    pub(crate) fn transactions(&mut self) -> &mut Transactions {
        &mut self.transactions
    }

    /// What entries were that have moved since the last call.
    pub(crate) fn moved(&mut self) -> Vec<(EntryKey, Stored)> {
        self.moved.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Entries, volatile ones too, and messages that transactions add, whose bodies lie in this segment.
    pub(crate) fn live_in(&self, segment: u32) -> u64 {
        self.live.get(segment)
    }

    /// A block of this broker time follows: a crash after it is blamed on no mark that is older by [`BLAME_MS`].
    pub(crate) fn acquit(&mut self, block_ms: u64) {
        let marks = &mut self.young_marks.0;
        while marks.pop_front_if(|at_ms| at_ms.saturating_add(BLAME_MS) <= block_ms).is_some() {}
    }

    /// At which broker time a block is to follow for that purpose, ms.
    pub(crate) fn acquittal_ms(&self) -> Option<u64> {
        self.young_marks.0.front()?.checked_add(BLAME_MS)
    }

    /// The entries that answer a load, ascending; large ones are not loaded this way, and what a branch in doubt removes is not
    /// loaded before it is decided.
    pub(crate) fn find(&self, load: &Load, gone: impl Fn(Sequence) -> bool) -> Vec<Entry> {
        let Some(queue) = self.queues.get(&load.queue) else { return Vec::new() };
        let Some((_, line)) = queue.levels.iter().find(|(level, _)| *level == load.level) else { return Vec::new() };
        let mut bytes = 0u64;
        let mut found = Vec::new();
        let held = |sequence| !queue.held.is_empty() && queue.held.contains(&sequence);
        for entry in line.from(load.from).filter(|e| !e.large() && !held(e.sequence) && !gone(e.sequence)) {
            let entry = entry.plain();
            bytes += u64::from(entry.length);
            if found.len() as u64 >= u64::from(load.count) || (!found.is_empty() && bytes > u64::from(load.bytes)) {
                break;
            }
            found.push(entry);
        }
        found
    }
}

/// What a checkpoint says of one entry.
pub(crate) enum Said<'a> {
    /// Its Enqueue in the log says all.
    Listed(Place),
    /// All of it.
    Whole(Stored, &'a Note),
    /// Nothing: it is volatile, or what comes behind the checkpoint says it.
    Nothing,
}

impl QueueIndex {
    /// What a checkpoint of all blocks before `boundary` says of this entry.
    pub(crate) fn said<'a>(&'a self, entry: &Entry, boundary: Place) -> Said<'a> {
        if entry.volatile() {
            return Said::Nothing;
        }
        let note = if self.notes.is_empty() { None } else { self.notes.get(&entry.sequence) };
        match note {
            Some(note) if note.head.is_some() => {
                let stored = match note.large {
                    Some((id, length)) => Stored::Large { id, length },
                    None => Stored::Body { place: entry.place, length: entry.length, crc: entry.crc },
                };
                Said::Whole(stored, note)
            }
            _ if boundary.covers(entry.place) => Said::Listed(entry.place),
            _ => Said::Nothing,
        }
    }
}

/// A range of one number.
fn one(sequence: Sequence) -> impl Iterator<Item = (Sequence, Sequence)> {
    std::iter::once((sequence, sequence))
}

fn refer(references: &mut BTreeMap<LargeId, u32>, id: LargeId) {
    *references.entry(id).or_default() += 1;
}

fn release(references: &mut BTreeMap<LargeId, u32>, id: LargeId, unlinks: &mut Vec<LargeId>) {
    if let Some(count) = references.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            references.remove(&id);
            unlinks.push(id);
        }
    }
}
