//! The fold of a log: what queues and entries are there once all its blocks have been taken in. Used at a start; the live
//! index is made from it.
//!
//! Must not know: files, how blocks are found.

use crate::bytes_io::Malformed;
use crate::index::{Entry, Index, Place};
use crate::line::{Item, Line};
use crate::record::{Record, Records, Where};
use packhorse_model::{
    Content, EntryKey, Head, LargeId, Overlay, QueueId, QueueName, QueueSettings, Resident, Sequence,
};
use packhorse_store::{Recovered, RecoveredEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a body and their sum, or a file.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Body { place: Place, length: u32, crc: u32 },
    Large { id: LargeId, length: u64 },
}

#[derive(Debug)]
struct Folded {
    sequence: Sequence,
    live: bool,
    head: Head,
    stored: Stored,
    deliveries: u32,
    attempts: u32,
    overlay: Option<Box<Overlay>>,
}

impl Item for Folded {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn live(&self) -> bool {
        self.live
    }
}

#[derive(Debug)]
struct Queue {
    name: QueueName,
    settings: QueueSettings,
    /// First number of this run.
    next: Sequence,
    reserved: Sequence,
    entries: Line<Folded>,
    /// Marked ranges, closed; neighbours joined as they come.
    marks: Vec<(Sequence, Sequence)>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u64,
}

impl Fold {
    /// Reads a block's metadata without taking it in: the bodies it holds, or that it is no metadata of ours.
    pub(crate) fn bodies_of(meta: &[u8], content: Place) -> Result<Vec<(Place, u32, u32)>, Malformed> {
        let mut records = Records::new(meta);
        let (mut here, mut next) = (content.offset, content.offset);
        let mut bodies = Vec::new();
        while let Some(record) = records.next()? {
            match record {
                Record::Batch { content } => {
                    here = next;
                    next = next.checked_add(content).ok_or(Malformed)?;
                }
                Record::Enqueue { content: Where::Body { offset, length, crc }, .. } => {
                    let end = u64::from(here) + u64::from(offset) + u64::from(length);
                    if end > u64::from(next) {
                        return Err(Malformed);
                    }
                    bodies.push((Place { segment: content.segment, offset: here + offset }, length, crc));
                }
                _ => {}
            }
        }
        Ok(bodies)
    }

    /// Takes in a block's metadata; its content begins at `content`.
    pub(crate) fn apply(&mut self, meta: &[u8], content: Place) -> Result<(), Malformed> {
        let mut records = Records::new(meta);
        let (mut here, mut next) = (content.offset, content.offset);
        while let Some(record) = records.next()? {
            if let Record::Batch { content } = record {
                here = next;
                next = next.checked_add(content).ok_or(Malformed)?;
            } else {
                self.take(record, Place { segment: content.segment, offset: here })?;
            }
        }
        Ok(())
    }

    fn take(&mut self, record: Record<'_>, batch: Place) -> Result<(), Malformed> {
        match record {
            Record::Batch { .. } => {}
            Record::Enqueue { volatile: true, .. } => {}
            Record::Enqueue { queue, sequence, head, content, volatile: false } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                let stored = match content {
                    Where::Body { offset, length, crc } => {
                        let offset = batch.offset.checked_add(offset).ok_or(Malformed)?;
                        Stored::Body { place: Place { segment: batch.segment, offset }, length, crc }
                    }
                    Where::Large { id, length } => Stored::Large { id, length },
                };
                queue.reserved = queue.reserved.max(sequence.saturating_add(1));
                queue.entries.insert(Folded {
                    sequence,
                    live: true,
                    head,
                    stored,
                    deliveries: 0,
                    attempts: 0,
                    overlay: None,
                });
            }
            Record::Acknowledge { queue, ranges } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                for (first, last) in ranges {
                    queue.entries.remove(first, last, |e| e.live = false);
                }
            }
            Record::Redeliver { entry, deliveries, attempts, overlay } => {
                let found = self.queues.get_mut(&entry.queue).and_then(|q| q.entries.get_mut(entry.sequence));
                if let Some(entry) = found {
                    entry.deliveries = deliveries;
                    entry.attempts = attempts;
                    if overlay.is_some() {
                        entry.overlay = overlay;
                    }
                }
            }
            Record::Relocate { from, to, head, deliveries, attempts, overlay } => {
                let Some(stored) = self.leave(from) else { return Ok(()) };
                let Some(queue) = self.queues.get_mut(&to.queue) else { return Ok(()) };
                queue.reserved = queue.reserved.max(to.sequence.saturating_add(1));
                let overlay = Some(overlay);
                let entry = Folded { sequence: to.sequence, live: true, head, stored, deliveries, attempts, overlay };
                queue.entries.insert(entry);
            }
            Record::DispatchMark { queue, first, count } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                let Some(more) = count.checked_sub(1) else { return Ok(()) };
                let last = first.saturating_add(u64::from(more));
                match queue.marks.last_mut() {
                    Some(before) if before.0 <= first && first <= before.1.saturating_add(1) => {
                        before.1 = before.1.max(last);
                    }
                    _ => queue.marks.push((first, last)),
                }
            }
            Record::QueueCreate { id, name, settings, reserved } => {
                self.next_queue = self.next_queue.max(id.0 + 1);
                let queue = Queue { name, settings, next: 0, reserved, entries: Line::default(), marks: Vec::new() };
                self.queues.insert(id, queue);
            }
            Record::QueueChange { id, settings } => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.settings = settings;
                }
            }
            Record::QueueDelete { id } => {
                self.queues.remove(&id);
            }
            Record::Reserve { queue, up_to } => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.reserved = queue.reserved.max(up_to);
                }
            }
            Record::Start { jump } => {
                for queue in self.queues.values_mut() {
                    queue.next = queue.reserved;
                    queue.reserved = queue.reserved.saturating_add(jump);
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, from: EntryKey) -> Option<Stored> {
        let queue = self.queues.get_mut(&from.queue)?;
        let stored = queue.entries.get_mut(from.sequence)?.stored;
        queue.entries.remove(from.sequence, from.sequence, |e| e.live = false);
        Some(stored)
    }

    /// Names of the queues there are.
    pub(crate) fn names(&self) -> Vec<QueueName> {
        self.queues.values().map(|q| q.name.clone()).collect()
    }

    /// Large messages that entries refer to.
    pub(crate) fn large(&self) -> BTreeSet<LargeId> {
        let entries = self.queues.values().flat_map(|q| q.entries.from(0));
        entries
            .filter_map(|e| match e.stored {
                Stored::Large { id, .. } => Some(id),
                Stored::Body { .. } => None,
            })
            .collect()
    }

    /// Ends the fold: fills the index, and answers what each of `shards` shards recovers, queues first.
    pub(crate) fn finish(self, index: &mut Index, shards: u16) -> (Vec<Vec<Recovered>>, u64) {
        let mut directory = Vec::with_capacity(self.queues.len() + 1);
        let mut entries: Vec<Vec<Recovered>> = (0..shards).map(|_| Vec::new()).collect();
        let mut total = 0;
        for (id, mut queue) in self.queues {
            queue.marks.sort_unstable();
            directory.push(Recovered::Queue {
                id,
                name: queue.name,
                settings: queue.settings,
                next: queue.next,
                reserved: queue.reserved,
            });
            let out = &mut entries[usize::from(id.owner(shards).0)];
            let mut marks = queue.marks.iter().peekable();
            for entry in queue.entries.into_live() {
                total += 1;
                while marks.next_if(|mark| mark.1 < entry.sequence).is_some() {}
                let marked = marks.peek().is_some_and(|mark| mark.0 <= entry.sequence);
                let (sequence, level) = (entry.sequence, entry.head.level());
                let content = match entry.stored {
                    Stored::Body { place, length, crc } => {
                        index.restore(id, level, Entry { sequence, place, length, crc }, None);
                        Content::Body(Resident { buffer: 0, offset: 0, length })
                    }
                    Stored::Large { id: file, length } => {
                        let place = Place { segment: 0, offset: 0 };
                        index.restore(id, level, Entry { sequence, place, length: 0, crc: 0 }, Some(file));
                        Content::Large { id: file, length }
                    }
                };
                out.push(Recovered::Entry(Box::new(RecoveredEntry {
                    key: EntryKey { queue: id, sequence },
                    head: entry.head,
                    content,
                    deliveries: entry.deliveries,
                    attempts: entry.attempts,
                    marked,
                    overlay: entry.overlay,
                })));
            }
        }
        directory.push(Recovered::NextQueueId(QueueId(self.next_queue)));
        let recovered = entries
            .into_iter()
            .map(|own| {
                let mut all = directory.clone();
                all.extend(own);
                all
            })
            .collect();
        (recovered, total)
    }
}
