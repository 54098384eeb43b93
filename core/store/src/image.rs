//! What operations mean: the fold of a log into the facts that a start recovers. The plainest possible code, for every other
//! store is compared with it.
//!
//! Must not know: tickets, flushes, shards.

mod branches;
mod ids;
mod producers;
mod remembered;

use crate::{Blame, LargeOp, Load, Loaded, LoadedBody, Op, RESERVE, Recovered, RecoveredEntry, Remember, Stored};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use branches::Branches;
use bytes::Bytes;
use core::ops::Bound::{Excluded, Unbounded};
use ids::Ids;
use packhorse_model::{
    Content, EntryKey, Head, LargeId, Overlay, QueueId, QueueName, QueueSettings, Resident, Sequence,
};
use producers::Producers;
use remembered::Remembered;

#[derive(Clone, Debug)]
struct Entry {
    head: Head,
    content: Stuff,
    volatile: bool,
    deliveries: u32,
    attempts: u32,
    overlay: Option<Box<Overlay>>,
    suspect: Option<Suspect>,
    /// A branch in doubt removes it. It is not to be loaded, and its numbers are exact: marks do not touch it.
    held: bool,
}

/// An entry that may have been with a consumer when the process died.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    blame: Blame,
    /// Broker time of its exact mark in this run.
    marked_ms: Option<u64>,
}

#[derive(Clone, Debug)]
enum Stuff {
    Bytes(Bytes),
    Large { id: LargeId, length: u64 },
}

#[derive(Clone, Debug)]
struct Queue {
    name: QueueName,
    settings: QueueSettings,
    next: Sequence,
    reserved: Sequence,
    entries: BTreeMap<Sequence, Entry>,
    /// First and last number of each marked range.
    marks: BTreeSet<(Sequence, Sequence)>,
}

#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    synced: bool,
}

/// All facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u64,
    files: BTreeMap<LargeId, File>,
    branches: Branches,
    remembered: Remembered,
    producers: Producers,
    ids: Ids,
}

impl Stuff {
    /// As a start tells it: not in memory.
    fn recovered(&self) -> Content {
        match self {
            Stuff::Bytes(bytes) => Content::Body(Resident { buffer: 0, offset: 0, length: bytes.len() as u32 }),
            Stuff::Large { id, length } => Content::Large { id: *id, length: *length },
        }
    }
}

impl Entry {
    fn new(head: Head, content: Stuff, volatile: bool) -> Entry {
        Entry { head, content, volatile, deliveries: 0, attempts: 0, overlay: None, suspect: None, held: false }
    }

    /// The process has ended. `marked`: it lies in a range from which something may have been dispatched.
    fn survive(&mut self, marked: bool, crashed_ms: Option<u64>) {
        // Nobody is given what leaves.
        if self.held || self.overlay.as_ref().is_some_and(|overlay| overlay.leaves()) {
            return;
        }
        // Suspects are never dispatched under the mark of a range.
        let delivered = self.suspect.map_or(marked, |s| s.marked_ms.is_some());
        self.deliveries = self.deliveries.saturating_add(u32::from(delivered));
        self.suspect = match (crashed_ms, self.suspect) {
            // A stop in order kills nobody.
            (None, _) => None,
            (Some(_), None) => marked.then(Suspect::default),
            (Some(crashed), Some(Suspect { blame, marked_ms })) => {
                Some(Suspect { blame: blame.after_crash(marked_ms, crashed), marked_ms: None })
            }
        };
    }
}

impl Image {
    /// Of a new store that remembers so much.
    pub(crate) fn new(remember: Remember) -> Image {
        let (remembered, producers) = (Remembered::new(remember), Producers::new(remember));
        Image { remembered, producers, ids: Ids::new(remember), ..Image::default() }
    }

    /// Applies one batch.
    pub(crate) fn apply(&mut self, ops: &[Op], pieces: &[Bytes]) {
        for op in ops {
            self.apply_one(op, pieces);
        }
    }

    fn apply_one(&mut self, op: &Op, pieces: &[Bytes]) {
        match op {
            Op::Enqueue { queue, sequence, head, content, volatile } => {
                let entry = Entry::new(*head, self.stuff(*content, pieces), *volatile);
                self.insert(*queue, *sequence, entry);
            }
            Op::Acknowledge { queue, first, last } => {
                while let Some(q) = self.queues.get_mut(queue)
                    && let Some((&sequence, _)) = q.entries.range(*first..=*last).next()
                    && let Some(entry) = q.entries.remove(&sequence)
                {
                    assert!(!entry.held, "what a branch in doubt removes is nobody else's");
                    self.drop_content(&entry.content);
                }
            }
            Op::Redeliver { entry, deliveries, attempts, overlay } => {
                if let Some(e) = self.entry(entry) {
                    assert!(!e.held, "what a branch in doubt removes is nobody else's");
                    (e.deliveries, e.attempts, e.suspect) = (*deliveries, *attempts, None);
                    if overlay.is_some() {
                        e.overlay.clone_from(overlay);
                    }
                }
            }
            Op::Relocate { from, to, head, deliveries, attempts, overlay } => {
                let moved = self.queues.get_mut(&from.queue).and_then(|q| q.entries.remove(&from.sequence));
                if let Some(moved) = moved {
                    assert!(!moved.held, "what a branch in doubt removes is nobody else's");
                    let entry = Entry {
                        head: *head,
                        deliveries: *deliveries,
                        attempts: *attempts,
                        overlay: Some(overlay.clone()),
                        suspect: None,
                        ..moved
                    };
                    self.insert(to.queue, to.sequence, entry);
                }
            }
            Op::DispatchMark { queue, first, count } => {
                if let Some(q) = self.queues.get_mut(queue)
                    && *count > 0
                {
                    q.marks.insert((*first, first + u64::from(*count) - 1));
                }
            }
            Op::ExactMark { queue, first, last, at_ms } => {
                let entries = self.queues.get_mut(queue).map(|q| q.entries.range_mut(*first..=*last));
                for suspect in entries.into_iter().flatten().filter_map(|(_, e)| e.suspect.as_mut()) {
                    suspect.marked_ms = Some(*at_ms);
                }
            }
            Op::QueueCreate { id, name, settings, reserved } => {
                assert!(id.0 >= self.next_queue, "a queue's id is never used again");
                self.next_queue = id.0 + 1;
                let queue = Queue {
                    name: name.clone(),
                    settings: settings.clone(),
                    next: 0,
                    reserved: *reserved,
                    entries: BTreeMap::new(),
                    marks: BTreeSet::new(),
                };
                self.queues.insert(*id, queue);
            }
            Op::QueueChange { id, settings } => {
                if let Some(q) = self.queues.get_mut(id) {
                    q.settings = settings.clone();
                }
            }
            Op::QueueDelete { id } => {
                let entries = self.queues.remove(id).map(|q| q.entries);
                entries.into_iter().flatten().for_each(|(_, entry)| self.drop_content(&entry.content));
                self.parts_gone(*id);
                self.producers.queue_gone(*id);
                self.ids.queue_gone(*id);
            }
            Op::Reserve { queue, up_to } => {
                if let Some(q) = self.queues.get_mut(queue) {
                    q.reserved = q.reserved.max(*up_to);
                }
            }
            Op::Producer { queue, producer, floor, stored, at_ms } => {
                self.producers.expire(*at_ms);
                if self.queues.contains_key(queue) {
                    self.producers.take((*queue, *producer), *floor, *stored, *at_ms);
                }
            }
            Op::DuplicateId { queue, id, at_ms } => {
                self.ids.expire(*at_ms);
                if self.queues.contains_key(queue) {
                    self.ids.take((*queue, *id), *at_ms);
                }
            }
            Op::TxOps(ops) => self.tx_ops(ops, pieces),
            Op::TxDrop { txn, queue } => self.tx_drop(*txn, *queue),
            Op::Commit(commit) => self.commit(commit, pieces),
            Op::Prepare(prepare) => self.prepare(prepare, pieces),
            Op::Decide(decide) => self.decide(decide),
            Op::Heuristic(heuristic) => self.heuristic(heuristic),
            Op::Forget { xid } => self.forget(xid),
        }
    }

    /// What an operation's content is.
    fn stuff(&self, content: Stored, pieces: &[Bytes]) -> Stuff {
        match content {
            Stored::Body(b) => {
                let (from, to) = (b.offset as usize, (b.offset + b.length) as usize);
                Stuff::Bytes(pieces[b.piece as usize].slice(from..to))
            }
            Stored::Large { id, length } => {
                let file = self.files.get(&id);
                assert!(
                    file.is_some_and(|f| f.synced && f.bytes.len() as u64 == length),
                    "an Enqueue refers to a file that is whole and synced"
                );
                Stuff::Large { id, length }
            }
        }
    }

    /// An entry enters a queue, if that is there.
    fn insert(&mut self, queue: QueueId, sequence: Sequence, entry: Entry) {
        if let Some(q) = self.queues.get_mut(&queue) {
            let before = q.entries.insert(sequence, entry);
            assert!(before.is_none(), "a number is drawn once");
        } else {
            self.drop_content(&entry.content);
        }
    }

    /// A message is gone, and its file with it.
    fn drop_content(&mut self, content: &Stuff) {
        if let Stuff::Large { id, .. } = content {
            self.files.remove(id);
        }
    }

    fn entry(&mut self, key: &EntryKey) -> Option<&mut Entry> {
        self.queues.get_mut(&key.queue)?.entries.get_mut(&key.sequence)
    }

    /// Applies a step of a large file; the file's length then, unless the file is not there any more.
    pub(crate) fn large(&mut self, op: &LargeOp) -> Option<u64> {
        match op {
            LargeOp::Begin { id } => {
                let before = self.files.insert(*id, File { bytes: Vec::new(), synced: false });
                assert!(before.is_none(), "a large message's id is used once");
                Some(0)
            }
            LargeOp::Chunk { id, bytes } => {
                let file = self.files.get_mut(id)?;
                file.bytes.extend_from_slice(bytes);
                Some(file.bytes.len() as u64)
            }
            LargeOp::End { id } => {
                let file = self.files.get_mut(id)?;
                file.synced = true;
                Some(file.bytes.len() as u64)
            }
            LargeOp::Abort { id } => {
                self.files.remove(id);
                None
            }
        }
    }

    /// A part of a large file.
    pub(crate) fn read_large(&self, id: LargeId, offset: u64, length: u32) -> Option<Bytes> {
        let file = self.files.get(&id)?;
        let from = (offset as usize).min(file.bytes.len());
        let to = (from + length as usize).min(file.bytes.len());
        Some(Bytes::copy_from_slice(&file.bytes[from..to]))
    }

    pub(crate) fn large_files(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn cut_large_files(&mut self, length: usize) {
        self.files.values_mut().for_each(|file| file.bytes.truncate(length));
        self.files.retain(|_, file| !file.bytes.is_empty());
    }

    /// What a crash at this broker time or a stop in order (`None`) leaves for the next start, which comes at this broker time,
    /// with its jump of the numbers.
    pub(crate) fn start(&mut self, crashed_ms: Option<u64>, started_ms: u64) {
        for queue in self.queues.values_mut() {
            queue.entries.retain(|_, e| !e.volatile);
            let marks = core::mem::take(&mut queue.marks);
            for (sequence, entry) in &mut queue.entries {
                let marked = marks.iter().any(|(first, last)| (*first..=*last).contains(sequence));
                entry.survive(marked, crashed_ms);
            }
            queue.next = queue.reserved;
            queue.reserved += RESERVE;
        }
        self.start_branches();
        self.remembered.expire(started_ms);
        self.producers.expire(started_ms);
        self.ids.expire(started_ms);
        let entries = self.queues.values().flat_map(|q| q.entries.values());
        let entries = entries.filter_map(|e| match e.content {
            Stuff::Large { id, .. } => Some(id),
            Stuff::Bytes(_) => None,
        });
        let used: BTreeSet<LargeId> = entries.chain(self.branches.files()).collect();
        self.files.retain(|id, _| used.contains(id));
    }

    /// All queues, then the lowest id that no queue had.
    pub(crate) fn recover_queues(&self) -> Vec<Recovered> {
        let queues = self.queues.iter().map(|(id, q)| Recovered::Queue {
            id: *id,
            name: q.name.clone(),
            settings: q.settings.clone(),
            next: q.next,
            reserved: q.reserved,
        });
        queues.chain([Recovered::NextQueueId(QueueId(self.next_queue))]).collect()
    }

    /// The first entry after `after`, in queues that `owned` names.
    pub(crate) fn recover_after(
        &self,
        after: Option<EntryKey>,
        owned: impl Fn(QueueId) -> bool,
    ) -> Option<RecoveredEntry> {
        let (from, mut below) = after.map_or((QueueId(0), None), |key| (key.queue, Some(key.sequence)));
        for (id, q) in self.queues.range(from..).filter(|(id, _)| owned(**id)) {
            let below = if *id == from { below.take() } else { None };
            let next = q.entries.range((below.map_or(Unbounded, Excluded), Unbounded)).next();
            if let Some((sequence, e)) = next {
                return Some(RecoveredEntry {
                    key: EntryKey { queue: *id, sequence: *sequence },
                    head: e.head,
                    content: e.content.recovered(),
                    deliveries: e.deliveries,
                    attempts: e.attempts,
                    suspect: e.suspect.map(|s| s.blame),
                    overlay: e.overlay.clone(),
                });
            }
        }
        None
    }

    /// The operations of branches in doubt in queues that `owned` names, and producers of these; with `all` then the branches, and what is remembered.
    pub(crate) fn recover_transactions(&self, owned: impl Fn(QueueId) -> bool, all: bool) -> VecDeque<Recovered> {
        let mut out: VecDeque<Recovered> = self.branches.recover_ops(&owned).collect();
        out.extend(self.producers.recover(&owned));
        out.extend(self.ids.recover(&owned));
        if all {
            out.extend(self.branches.recover());
            out.extend(self.remembered.recover_completed());
            out.extend(self.remembered.recover_sessions());
        }
        out
    }

    /// Bodies of one level. What is held is left out: nobody gets it before it comes back. Large messages are left out: they have no body here.
    pub(crate) fn load(&self, load: Load) -> Loaded {
        let mut buffer = Vec::new();
        let mut bodies = Vec::new();
        let entries = self.queues.get(&load.queue).map(|q| q.entries.range(load.from..));
        for (sequence, entry) in entries.into_iter().flatten() {
            if entry.head.level() != load.level || entry.held {
                continue;
            }
            let Stuff::Bytes(bytes) = &entry.content else { continue };
            let full = !bodies.is_empty() && buffer.len() + bytes.len() > load.bytes as usize;
            if bodies.len() as u32 == load.count || full {
                break;
            }
            bodies.push(LoadedBody { sequence: *sequence, range: Some((buffer.len() as u32, bytes.len() as u32)) });
            buffer.extend_from_slice(bytes);
        }
        Loaded { load, buffer: Bytes::from(buffer), bodies }
    }
}
