//! The fold of a log: what queues and entries are there once all its blocks have been taken in. Used at a start; the live
//! index is made from it.
//!
//! Must not know: files, how blocks are found.

mod transactions;

use crate::bytes_io::Malformed;
use crate::checkpoint::{Held, Item as Told, Items};
use crate::index::{Facts, Index, Marks, Note, Place, Stored, Suspect};
use crate::line::{Item, Line};
use crate::record::transactions::{Transactional, Work};
use crate::record::{End, Record, Records, Where};
use crate::transactions::{Refused, Transactions};
use packhorse_model::{EntryKey, Head, LargeId, Overlay, QueueId, QueueName, Sequence};
use packhorse_store::{Recovered, RecoveredEntry, Redelivery, Remember};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Folded {
    sequence: Sequence,
    live: bool,
    head: Head,
    stored: Stored,
    deliveries: u32,
    attempts: u32,
    overlay: Option<Box<Overlay>>,
    suspect: Option<Box<Suspect>>,
    /// Under this key no Enqueue tells it.
    moved: bool,
}

impl Folded {
    /// The run has ended. `marked`: the entry lies in a range from which something may have been dispatched.
    fn survive(&mut self, marked: bool, end: End) {
        // Suspects are never dispatched under the mark of a range.
        let delivered = self.suspect.as_ref().map_or(marked, |suspect| suspect.marked_ms.is_some());
        self.deliveries = self.deliveries.saturating_add(u32::from(delivered));
        match (end, &mut self.suspect) {
            // A stop in order kills nobody.
            (End::Stop, suspect) => *suspect = None,
            (End::Crash(_), None) if !marked => {}
            (End::Crash(_), suspect @ None) => *suspect = Some(Box::default()),
            (End::Crash(at_ms), Some(suspect)) => {
                suspect.blame = suspect.blame.after_crash(suspect.marked_ms.take(), at_ms);
            }
        }
    }
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
    facts: Facts,
    entries: Line<Folded>,
    /// Entries that a checkpoint lists, to be found in the log; sorted.
    listed: Vec<(Sequence, Sequence)>,
    /// What the checkpoint says happened to them.
    numbers: BTreeMap<Sequence, Note>,
    /// Entries that branches in doubt remove: crashes do not touch them.
    held: BTreeSet<Sequence>,
}

impl Queue {
    fn new(facts: Facts) -> Queue {
        let (entries, listed, numbers) = (Line::default(), Vec::new(), BTreeMap::new());
        Queue { facts, entries, listed, numbers, held: BTreeSet::new() }
    }

    /// The run has ended. Its marks have had their effect: numbers drawn from now on lie in other ranges, and what lies in
    /// these has been looked at.
    fn survive(&mut self, end: End) {
        let mut marks = std::mem::take(&mut self.facts.marks);
        marks.tidy(0);
        let mut marks = marks.ranges.iter().peekable();
        let held = &self.held;
        self.entries.change(0, Sequence::MAX, |entry| {
            while marks.next_if(|mark| mark.1 < entry.sequence).is_some() {}
            // Nobody is given what leaves.
            let leaves = entry.overlay.as_ref().is_some_and(|overlay| overlay.leaves());
            if leaves || !held.is_empty() && held.contains(&entry.sequence) {
                return;
            }
            entry.survive(marks.peek().is_some_and(|mark| mark.0 <= entry.sequence), end);
        });
    }

    /// An entry has come back from a delivery.
    fn redeliver(&mut self, sequence: Sequence, back: Redelivery) {
        let Some(entry) = self.entries.get_mut(sequence) else { return };
        (entry.deliveries, entry.attempts, entry.suspect) = (back.deliveries, back.attempts, None);
        if back.overlay.is_some() {
            entry.overlay = back.overlay;
        }
    }

    /// Puts in an entry that the checkpoint lists; false: it lists no such one.
    fn fill(&mut self, sequence: Sequence, head: Head, content: Where, batch: Place) -> Result<bool, Malformed> {
        if !self.lists(sequence) || matches!(content, Where::Large { .. }) {
            return Ok(false);
        }
        let stored = content.at(batch)?;
        let Note { deliveries, attempts, overlay, suspect, .. } = self.numbers.remove(&sequence).unwrap_or_default();
        let entry = Folded::new(sequence, head, stored, false);
        self.entries.insert(Folded { deliveries, attempts, overlay, suspect, ..entry });
        Ok(true)
    }

    fn lists(&self, sequence: Sequence) -> bool {
        let at = self.listed.partition_point(|range| range.1 < sequence);
        self.listed.get(at).is_some_and(|range| range.0 <= sequence)
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u64,
    /// What a checkpoint says that entries were which blocks behind it move.
    moved: BTreeMap<EntryKey, Stored>,
    transactions: Transactions,
}

impl Fold {
    /// Of nothing.
    pub(crate) fn new(remember: Remember) -> Fold {
        Fold { transactions: Transactions::new(remember), ..Fold::default() }
    }

    /// Begins with a checkpoint: its sections. Answers the segments that hold something live; those with listed entries are
    /// to be handed to [`Fold::fill`].
    pub(crate) fn load(&mut self, next_queue: u64, sections: &[&[u8]]) -> Result<Vec<Held>, Malformed> {
        self.next_queue = next_queue;
        let mut held = Vec::new();
        for section in sections {
            let mut items = Items::new(section);
            while let Some(item) = items.next()? {
                match item {
                    Told::Queue { id, facts } => drop(self.queues.insert(id, Queue::new(facts))),
                    Told::Listed { queue, ranges } => {
                        let queue = self.queues.get_mut(&queue).ok_or(Malformed)?;
                        queue.listed.extend(ranges);
                    }
                    Told::Entry { key, stored, note } => {
                        let queue = self.queues.get_mut(&key.queue).ok_or(Malformed)?;
                        let Note { deliveries, attempts, overlay, head, suspect, .. } = note;
                        let head = head.ok_or(Malformed)?;
                        let (sequence, live, moved) = (key.sequence, true, true);
                        queue.entries.insert(Folded {
                            sequence,
                            live,
                            head,
                            stored,
                            deliveries,
                            attempts,
                            overlay,
                            suspect,
                            moved,
                        });
                    }
                    Told::Numbers { key, note } => {
                        let queue = self.queues.get_mut(&key.queue).ok_or(Malformed)?;
                        queue.numbers.insert(key.sequence, note);
                    }
                    Told::Moved { key, stored } => drop(self.moved.insert(key, stored)),
                    Told::Segment(segment) => held.push(segment),
                    item => self.tell(item)?,
                }
            }
        }
        for queue in self.queues.values_mut() {
            // One run after another for each level.
            queue.listed.sort_unstable();
            let listed: u64 = queue.listed.iter().map(|range| range.1.wrapping_sub(range.0) & 0xffff_ffff).sum();
            queue.entries.reserve(listed.min(1 << 22) as usize);
        }
        self.hold_all();
        Ok(held)
    }

    /// Finds listed entries in the metadata of a block that the checkpoint covers; answers how many.
    pub(crate) fn fill(&mut self, meta: &[u8], content: Place) -> Result<u64, Malformed> {
        let mut records = Records::new(meta);
        let (mut here, mut next, mut found) = (content.offset, content.offset, 0);
        while let Some(record) = records.next()? {
            match record {
                Record::Batch { content } => {
                    here = next;
                    next = next.checked_add(content).ok_or(Malformed)?;
                }
                Record::Enqueue { queue, sequence, head, content: body, volatile: false } => {
                    let Some(queue) = self.queues.get_mut(&queue) else { continue };
                    let batch = Place { segment: content.segment, offset: here };
                    found += u64::from(queue.fill(sequence, head, body, batch)?);
                }
                Record::Transaction(record) => {
                    let Transactional::Commit(commit) = &*record else { continue };
                    let batch = Place { segment: content.segment, offset: here };
                    for part in &commit.parts {
                        let (Some(queue), Some(numbers)) = (self.queues.get_mut(&part.queue), part.numbers) else {
                            continue;
                        };
                        for work in &part.works {
                            let Work::Add { index, head, content } = *work else { continue };
                            let sequence = numbers.first.saturating_add(u64::from(index));
                            found += u64::from(queue.fill(sequence, head, content, batch)?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

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
                record => {
                    let mut add = |body: Where| {
                        let Where::Body { offset, length, crc } = body else { return Ok(()) };
                        let end = u64::from(here) + u64::from(offset) + u64::from(length);
                        if end > u64::from(next) {
                            return Err(Malformed);
                        }
                        bodies.push((Place { segment: content.segment, offset: here + offset }, length, crc));
                        Ok(())
                    };
                    match &record {
                        Record::Enqueue { content, .. } => add(*content)?,
                        Record::Transaction(record) => record.works().filter_map(Work::content).try_for_each(add)?,
                        _ => {}
                    }
                }
            }
        }
        Ok(bodies)
    }

    /// Takes in a block's metadata; its content begins at `content`.
    pub(crate) fn apply(&mut self, meta: &[u8], content: Place) -> Result<(), Refused> {
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

    fn take(&mut self, record: Record<'_>, batch: Place) -> Result<(), Refused> {
        match record {
            Record::Batch { .. } => {}
            Record::Enqueue { volatile: true, .. } => {}
            Record::Enqueue { queue, sequence, head, content, volatile: false } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                queue.facts.reserved = queue.facts.reserved.max(sequence.saturating_add(1));
                queue.entries.insert(Folded::new(sequence, head, content.at(batch)?, false));
            }
            Record::Acknowledge { queue, ranges } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                for (first, last) in ranges {
                    queue.entries.remove(first, last, |e| e.live = false);
                }
            }
            Record::Redeliver { entry, deliveries, attempts, overlay } => {
                if let Some(queue) = self.queues.get_mut(&entry.queue) {
                    queue.redeliver(entry.sequence, Redelivery { deliveries, attempts, overlay });
                }
            }
            Record::Relocate { from, to, head, deliveries, attempts, overlay } => {
                // What a checkpoint says is looked at once: a second move of the same entry moves nothing.
                let before = self.moved.remove(&from);
                let Some(stored) = self.leave(from).or(before) else { return Ok(()) };
                let Some(queue) = self.queues.get_mut(&to.queue) else { return Ok(()) };
                queue.facts.reserved = queue.facts.reserved.max(to.sequence.saturating_add(1));
                queue.entries.insert(Folded {
                    sequence: to.sequence,
                    live: true,
                    head,
                    stored,
                    deliveries,
                    attempts,
                    overlay: Some(overlay),
                    suspect: None,
                    moved: true,
                });
            }
            Record::DispatchMark { queue, first, count } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                queue.facts.marks.add(first, u64::from(count));
            }
            Record::ExactMark { queue, first, last, at_ms } => {
                let Some(queue) = self.queues.get_mut(&queue) else { return Ok(()) };
                queue.entries.change(first, last, |entry| {
                    if let Some(suspect) = &mut entry.suspect {
                        suspect.marked_ms = Some(at_ms);
                    }
                });
            }
            Record::QueueCreate { id, name, settings, reserved } => {
                self.next_queue = self.next_queue.max(id.0 + 1);
                let facts = Facts { name, settings, next: 0, reserved, marks: Marks::default() };
                self.queues.insert(id, Queue::new(facts));
            }
            Record::QueueChange { id, settings } => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.facts.settings = settings;
                }
            }
            Record::QueueDelete { id } => {
                self.queues.remove(&id);
                self.transactions.queue_gone(id);
            }
            Record::Reserve { queue, up_to } => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.facts.reserved = queue.facts.reserved.max(up_to);
                }
            }
            Record::Stop => {}
            Record::Start { jump, before } => {
                self.start_transactions();
                for queue in self.queues.values_mut() {
                    queue.survive(before);
                    queue.facts.next = queue.facts.reserved;
                    queue.facts.reserved = queue.facts.reserved.saturating_add(jump);
                }
            }
            Record::Producer(told) => {
                let exists = self.queues.contains_key(&told.key.0);
                self.transactions.numbered(told, exists);
            }
            Record::DuplicateId { key, at_ms } => {
                let exists = self.queues.contains_key(&key.0);
                self.transactions.identified(key, at_ms, exists);
            }
            Record::Transaction(record) => self.transaction(*record, batch)?,
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
        self.queues.values().map(|q| q.facts.name.clone()).collect()
    }

    /// Entries that may have been with a consumer when the process died.
    pub(crate) fn suspects(&self) -> u64 {
        let entries = self.queues.values().flat_map(|q| q.entries.from(0));
        entries.filter(|e| e.suspect.is_some()).count() as u64
    }

    /// Large messages that entries refer to, and those that branches add.
    pub(crate) fn large(&self) -> BTreeSet<LargeId> {
        let entries = self.queues.values().flat_map(|q| q.entries.from(0));
        let large = entries.filter_map(|e| match e.stored {
            Stored::Large { id, .. } => Some(id),
            Stored::Body { .. } => None,
        });
        large.chain(self.transactions.large()).collect()
    }

    /// Ends the fold at this broker time, ms: fills the index, and answers what each of `shards` shards recovers, queues first.
    pub(crate) fn finish(mut self, index: &mut Index, shards: u16, now_ms: u64) -> (Vec<Vec<Recovered>>, u64) {
        self.transactions.expire_all(now_ms);
        let mut directory = Vec::with_capacity(self.queues.len() + 1);
        let mut counts = vec![0; usize::from(shards)];
        for (id, queue) in &self.queues {
            let Facts { name, settings, next, reserved, .. } = queue.facts.clone();
            directory.push(Recovered::Queue { id: *id, name, settings, next, reserved });
            counts[usize::from(id.owner(shards).0)] += queue.entries.from(0).count();
        }
        directory.push(Recovered::NextQueueId(QueueId(self.next_queue)));
        index.restore_next_queue(self.next_queue);
        let total = counts.iter().sum::<usize>() as u64;
        let told = counts.into_iter().map(|count| {
            let mut told = Vec::with_capacity(directory.len() + count);
            told.extend_from_slice(&directory);
            told
        });
        let mut recovered: Vec<Vec<Recovered>> = told.collect();
        drop(directory);
        let (ops, rest) = self.recovered(shards);
        for (id, queue) in self.queues {
            index.restore_queue(id, queue.facts);
            let out = &mut recovered[usize::from(id.owner(shards).0)];
            for entry in queue.entries.into_live() {
                let Folded { sequence, head, stored, deliveries, attempts, overlay, suspect, moved, .. } = entry;
                let content = transactions::told(stored);
                let large = match stored {
                    Stored::Body { .. } => None,
                    Stored::Large { id, length } => Some((id, length)),
                };
                let blame = suspect.as_ref().map(|suspect| suspect.blame);
                let noted = moved || deliveries > 0 || attempts > 0 || overlay.is_some();
                let note = noted.then(|| {
                    let head = moved.then_some(head);
                    Note { deliveries, attempts, overlay: overlay.clone(), head, large, suspect }
                });
                index.restore(id, head.level(), sequence, stored, note);
                let key = EntryKey { queue: id, sequence };
                out.push(Recovered::Entry(Box::new(RecoveredEntry {
                    key,
                    head,
                    content,
                    deliveries,
                    attempts,
                    suspect: blame,
                    overlay,
                })));
            }
        }
        index.restore_transactions(self.transactions);
        for (out, ops) in recovered.iter_mut().zip(ops) {
            out.extend(ops);
        }
        recovered[0].extend(rest);
        (recovered, total)
    }
}
