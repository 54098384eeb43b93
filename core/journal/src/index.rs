//! The live index: which entries of which queue live where. Only it knows places, so that moving stored bytes updates
//! nothing else. It is the fold of all blocks handed out so far, in their order.
//!
//! Must not know: heads, redelivery numbers, overlays (queues keep those), files.

use crate::bytes_io::Malformed;
use crate::line::{Item, Line};
use crate::record::{Record, Records, Where};
use packhorse_model::{EntryKey, LargeId, Map, QueueId, Seed, Sequence};
use packhorse_store::Load;
use std::collections::BTreeMap;

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

/// An entry in the index. A body's place, or [`LARGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    pub(crate) place: Place,
    pub(crate) length: u32,
    pub(crate) crc: u32,
}

/// Segment 0 never exists: a removed entry.
const DEAD: u32 = 0;
/// Nor does this one: the content is a file, named in the queue's `large`.
const LARGE: u32 = u32::MAX;

impl Entry {
    /// Whether its content is a file of its own.
    pub(crate) fn large(&self) -> bool {
        self.place.segment == LARGE
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

#[derive(Debug, Default)]
struct QueueIndex {
    levels: Vec<(u8, Line<Entry>)>,
    large: BTreeMap<Sequence, LargeId>,
}

impl QueueIndex {
    fn level(&mut self, level: u8) -> &mut Line<Entry> {
        match self.levels.iter().position(|(l, _)| *l == level) {
            Some(at) => &mut self.levels[at].1,
            None => {
                self.levels.push((level, Line::default()));
                &mut self.levels.last_mut().expect("it was just pushed").1
            }
        }
    }

    fn take(&mut self, sequence: Sequence) -> Option<(Entry, Option<LargeId>)> {
        for (_, line) in &mut self.levels {
            if let Some(entry) = line.get_mut(sequence).copied() {
                line.remove(sequence, sequence, |e| e.place.segment = DEAD);
                return Some((entry, self.large.remove(&sequence)));
            }
        }
        None
    }
}

/// See the file's head.
pub(crate) struct Index {
    queues: Map<QueueId, QueueIndex>,
    /// References to large messages' files.
    references: BTreeMap<LargeId, u32>,
}

impl Index {
    pub(crate) fn new(seed: u64) -> Index {
        Index { queues: Seed::fixed(seed).map(), references: BTreeMap::new() }
    }

    /// Takes in the metadata of a block whose content begins at `content`. Files that no entry refers to any more are
    /// appended to `unlinks`.
    pub(crate) fn apply(&mut self, meta: &[u8], content: Place, unlinks: &mut Vec<LargeId>) -> Result<(), Malformed> {
        let mut records = Records::new(meta);
        let (mut here, mut next) = (content.offset, content.offset);
        while let Some(record) = records.next()? {
            match record {
                Record::Batch { content } => {
                    here = next;
                    next += content;
                }
                Record::Enqueue { queue, sequence, head, content: stored, volatile: _ } => {
                    let queue = self.queues.entry(queue).or_default();
                    let entry = match stored {
                        Where::Body { offset, length, crc } => {
                            let place = Place { segment: content.segment, offset: here + offset };
                            Entry { sequence, place, length, crc }
                        }
                        Where::Large { id, .. } => {
                            queue.large.insert(sequence, id);
                            *self.references.entry(id).or_default() += 1;
                            Entry { sequence, place: Place { segment: LARGE, offset: 0 }, length: 0, crc: 0 }
                        }
                    };
                    queue.level(head.level()).insert(entry);
                }
                Record::Acknowledge { queue, ranges } => {
                    let Some(queue) = self.queues.get_mut(&queue) else { continue };
                    for (first, last) in ranges {
                        for (_, line) in &mut queue.levels {
                            line.remove(first, last, |entry| {
                                if entry.large()
                                    && let Some(id) = queue.large.remove(&entry.sequence)
                                {
                                    release(&mut self.references, id, unlinks);
                                }
                                entry.place.segment = DEAD;
                            });
                        }
                    }
                }
                Record::Relocate { from, to, head, .. } => self.relocate(from, to, head.level()),
                Record::QueueDelete { id } => {
                    for id in self.queues.remove(&id).into_iter().flat_map(|queue| queue.large.into_values()) {
                        release(&mut self.references, id, unlinks);
                    }
                }
                Record::Redeliver { .. }
                | Record::DispatchMark { .. }
                | Record::QueueCreate { .. }
                | Record::QueueChange { .. }
                | Record::Reserve { .. }
                | Record::Start { .. } => {}
            }
        }
        Ok(())
    }

    fn relocate(&mut self, from: EntryKey, to: EntryKey, level: u8) {
        let Some((mut entry, large)) = self.queues.get_mut(&from.queue).and_then(|q| q.take(from.sequence)) else {
            return;
        };
        entry.sequence = to.sequence;
        let queue = self.queues.entry(to.queue).or_default();
        queue.level(level).insert(entry);
        if let Some(id) = large {
            queue.large.insert(to.sequence, id);
        }
    }

    /// Puts a recovered entry back.
    pub(crate) fn restore(&mut self, queue: QueueId, level: u8, entry: Entry, large: Option<LargeId>) {
        let queue = self.queues.entry(queue).or_default();
        let mut entry = entry;
        if let Some(id) = large {
            entry.place.segment = LARGE;
            queue.large.insert(entry.sequence, id);
            *self.references.entry(id).or_default() += 1;
        }
        queue.level(level).insert(entry);
    }

    /// The entries that answer a load, ascending; large ones are not loaded this way.
    pub(crate) fn find(&self, load: &Load, gone: impl Fn(Sequence) -> bool) -> Vec<Entry> {
        let Some(queue) = self.queues.get(&load.queue) else { return Vec::new() };
        let Some((_, line)) = queue.levels.iter().find(|(level, _)| *level == load.level) else { return Vec::new() };
        let mut bytes = 0u64;
        let mut found = Vec::new();
        for entry in line.from(load.from).filter(|e| !e.large() && !gone(e.sequence)) {
            bytes += u64::from(entry.length);
            if found.len() as u64 >= u64::from(load.count) || (!found.is_empty() && bytes > u64::from(load.bytes)) {
                break;
            }
            found.push(*entry);
        }
        found
    }
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
