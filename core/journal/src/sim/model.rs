//! The naive model that recovered stores are compared with: what each operation means, as maps, and nothing of how it is kept.

mod transactions;

use bytes::Bytes;
use packhorse_model::{
    Content, DuplicateId, EntryKey, Head, Overlay, ProducerId, QueueId, QueueName, QueueSettings, Sequence,
};
use packhorse_store::{Op, PASSED, RESERVE, Recovered, RecoveredEntry, Stored};
use std::collections::{BTreeMap, BTreeSet};

use transactions::Transactions;
pub(crate) use transactions::{Branch, Work, messages};

/// An entry as the model knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) volatile: bool,
    pub(crate) content: Stuff,
    deliveries: u32,
    attempts: u32,
    overlay: Option<Box<Overlay>>,
    pub(crate) suspect: Option<Suspect>,
    /// A branch in doubt removes it.
    pub(crate) held: bool,
}

/// An entry that may have been delivered before a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Suspect {
    crashes: u32,
    passed: u32,
    /// Whether it had passed.
    marked: Option<bool>,
}

/// An entry's bytes, in the log or in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stuff {
    Bytes(Bytes),
    Large(u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
struct Queue {
    name: QueueName,
    settings: QueueSettings,
    next: Sequence,
    reserved: Sequence,
    marks: Vec<(Sequence, Sequence)>,
}

/// All facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u64,
    pub(crate) entries: BTreeMap<EntryKey, Entry>,
    pub(crate) transactions: Transactions,
    producers: BTreeMap<(QueueId, ProducerId), Producer>,
    ids: BTreeMap<(QueueId, DuplicateId), u64>,
}

/// What is known of a producer's numbers.
#[derive(Clone, Debug, PartialEq)]
struct Producer {
    floor: u64,
    stored: BTreeSet<u64>,
    used_ms: u64,
}

impl Entry {
    fn new(head: Head, content: Stuff, volatile: bool) -> Entry {
        let (overlay, suspect, held) = (None, None, false);
        Entry { head, volatile, content, deliveries: 0, attempts: 0, overlay, suspect, held }
    }
}

/// What a batch says that a content is.
fn stuff(stored: Stored, pieces: &[Bytes]) -> Stuff {
    match stored {
        Stored::Body(b) => {
            let (from, to) = (b.offset as usize, (b.offset + b.length) as usize);
            Stuff::Bytes(pieces[b.piece as usize].slice(from..to))
        }
        Stored::Large { id, length } => Stuff::Large(id.0, length),
    }
}

/// Whether a content is what the model has.
fn same(expected: &Stuff, found: &Content) -> bool {
    match (expected, found) {
        (Stuff::Bytes(bytes), Content::Body(body)) => body.length as usize == bytes.len() && body.buffer == 0,
        (Stuff::Large(id, length), Content::Large { id: found, length: n }) => found.0 == *id && n == length,
        _ => false,
    }
}

impl Model {
    /// One batch: all of it.
    pub(crate) fn apply(&mut self, ops: &[Op], pieces: &[Bytes]) {
        for op in ops {
            match op {
                Op::Enqueue { queue, sequence, head, content, volatile } => {
                    let key = EntryKey { queue: *queue, sequence: *sequence };
                    let entry = Entry::new(*head, stuff(*content, pieces), *volatile);
                    assert!(self.entries.insert(key, entry).is_none(), "the workload draws each number once");
                }
                Op::Acknowledge { queue, first, last } => {
                    self.entries.retain(|k, _| k.queue != *queue || !(*first..=*last).contains(&k.sequence));
                }
                Op::Redeliver { entry, deliveries, attempts, overlay } => {
                    if let Some(e) = self.entries.get_mut(entry) {
                        (e.deliveries, e.attempts, e.suspect) = (*deliveries, *attempts, None);
                        if overlay.is_some() {
                            e.overlay.clone_from(overlay);
                        }
                    }
                }
                Op::Relocate { from, to, head, deliveries, attempts, overlay } => {
                    if let Some(mut e) = self.entries.remove(from) {
                        (e.head, e.deliveries, e.attempts) = (*head, *deliveries, *attempts);
                        (e.overlay, e.suspect) = (Some(overlay.clone()), None);
                        self.entries.insert(*to, e);
                    }
                }
                Op::DispatchMark { queue, first, count } => {
                    let queue = self.queues.get_mut(queue).expect("the workload marks queues that exist");
                    queue.marks.push((*first, first + u64::from(*count) - 1));
                }
                Op::ExactMark { queue, first, last, at_ms } => {
                    for (key, entry) in &mut self.entries {
                        if key.queue == *queue && (*first..=*last).contains(&key.sequence) {
                            entry.suspect.iter_mut().for_each(|suspect| suspect.marked = Some(at_ms & PASSED != 0));
                        }
                    }
                }
                Op::QueueCreate { id, name, settings, reserved } => {
                    let (name, settings, reserved) = (name.clone(), settings.clone(), *reserved);
                    self.queues.insert(*id, Queue { name, settings, next: 0, reserved, marks: Vec::new() });
                    self.next_queue = id.0 + 1;
                }
                Op::QueueChange { id, settings } => {
                    let queue = self.queues.get_mut(id).expect("the workload changes queues that exist");
                    queue.settings = settings.clone();
                }
                Op::QueueDelete { id } => {
                    self.queues.remove(id);
                    self.transactions.queue_gone(*id);
                    self.producers.retain(|(queue, _), _| queue != id);
                    self.ids.retain(|(queue, _), _| queue != id);
                    self.entries.retain(|k, _| k.queue != *id);
                }
                Op::Reserve { queue, up_to } => {
                    let queue = self.queues.get_mut(queue).expect("the workload reserves for queues that exist");
                    queue.reserved = queue.reserved.max(*up_to);
                }
                Op::Producer { queue, producer, floor, stored, at_ms } => {
                    self.numbered(*queue, *producer, *floor, *stored, *at_ms);
                }
                Op::DuplicateId { queue, id, at_ms } => drop(self.ids.insert((*queue, *id), *at_ms)),
                Op::TxOps(_)
                | Op::TxDrop { .. }
                | Op::Commit(_)
                | Op::Prepare(_)
                | Op::Decide(_)
                | Op::Heuristic(_)
                | Op::Forget { .. } => self.transaction(op, pieces),
            }
        }
    }

    fn numbered(&mut self, queue: QueueId, producer: ProducerId, floor: u64, stored: Option<u64>, at_ms: u64) {
        if stored.is_some() && !self.producers.contains_key(&(queue, producer)) {
            return;
        }
        let new = Producer { floor, stored: BTreeSet::new(), used_ms: 0 };
        let known = self.producers.entry((queue, producer)).or_insert(new);
        (known.floor, known.used_ms) = (known.floor.max(floor), known.used_ms.max(at_ms));
        known.stored.extend(stored);
        known.stored = known.stored.split_off(&known.floor);
    }

    /// What a start after a crash leaves of it; exact marks are all young.
    pub(crate) fn start(&mut self) {
        self.entries.retain(|_, e| !e.volatile);
        self.start_transactions();
        for (key, entry) in &mut self.entries {
            // Nobody can have got what is held, or leaves.
            if entry.held || entry.overlay.as_ref().is_some_and(|overlay| overlay.leaves()) {
                continue;
            }
            let marks = &self.queues[&key.queue].marks;
            let marked = marks.iter().any(|m| m.0 <= key.sequence && key.sequence <= m.1);
            match &mut entry.suspect {
                Some(Suspect { crashes, passed, marked: Some(has_passed) }) => {
                    entry.deliveries += 1;
                    let crashes = if *has_passed { (*crashes).min(1) } else { *crashes + 1 };
                    let passed = *passed + u32::from(*has_passed);
                    entry.suspect = Some(Suspect { crashes, passed, marked: None });
                }
                Some(suspect) => *suspect = Suspect::default(),
                None if marked => {
                    entry.deliveries += 1;
                    entry.suspect = Some(Suspect::default());
                }
                None => {}
            }
        }
        for queue in self.queues.values_mut() {
            queue.marks.clear();
            queue.next = queue.reserved;
            queue.reserved += RESERVE;
        }
    }

    /// The first number that a queue may draw in this run.
    pub(crate) fn next(&self, queue: QueueId) -> Option<Sequence> {
        self.queues.get(&queue).map(|q| q.next)
    }

    /// The lowest id that no queue had.
    pub(crate) fn next_queue(&self) -> u64 {
        self.next_queue
    }

    /// Queues there are.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.queues.keys().copied()
    }

    /// Numbers of a queue's entries that no branch holds.
    pub(crate) fn sequences(&self, queue: QueueId) -> Vec<Sequence> {
        self.entries.iter().filter(|(k, e)| k.queue == queue && !e.held).map(|(k, _)| k.sequence).collect()
    }

    fn producers_differ(&self, told: &[Vec<Recovered>]) -> Option<String> {
        let (mut found, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for (shard, thing) in told.iter().enumerate().flat_map(|(shard, own)| own.iter().map(move |t| (shard, t))) {
            let producer = match thing {
                Recovered::Producer(producer) => producer,
                Recovered::DuplicateId { queue, id, at_ms } => {
                    ids.insert((*queue, *id), *at_ms);
                    continue;
                }
                _ => continue,
            };
            if usize::from(producer.queue.owner(told.len() as u16).0) != shard {
                return Some(format!("shard {shard} is told of {producer:?}"));
            }
            let stored = producer.runs.iter().flat_map(|(first, last)| *first..=*last).collect();
            let (floor, used_ms) = (producer.floor, producer.used_ms);
            found.insert((producer.queue, producer.producer), Producer { floor, stored, used_ms });
        }
        if ids != self.ids {
            return Some(format!("ids are {ids:?} and not {:?}", self.ids));
        }
        (found != self.producers).then(|| format!("producers are {found:?} and not {:?}", self.producers))
    }

    /// In which way what a start told differs from this model; `None`: in none. `told` is what each shard was told.
    pub(crate) fn differs(&self, told: &[Vec<Recovered>]) -> Option<String> {
        if let Some(difference) = self.transactions_differ(told) {
            return Some(difference);
        }
        if let Some(difference) = self.producers_differ(told) {
            return Some(difference);
        }
        let mut entries: BTreeMap<EntryKey, &RecoveredEntry> = BTreeMap::new();
        for own in told {
            let mut queues = BTreeMap::new();
            for thing in own {
                match thing {
                    Recovered::Queue { id, name, settings, next, reserved } => {
                        queues.insert(*id, (name, settings, *next, *reserved));
                    }
                    Recovered::NextQueueId(id) if id.0 != self.next_queue => {
                        return Some(format!("the next queue's id is {id} and not {}", self.next_queue));
                    }
                    Recovered::NextQueueId(_) => {}
                    Recovered::BranchOp(_)
                    | Recovered::DuplicateId { .. }
                    | Recovered::Producer(_)
                    | Recovered::Branch(_)
                    | Recovered::Completed { .. }
                    | Recovered::Session(_) => {}
                    Recovered::Entry(entry) => {
                        entries.insert(entry.key, entry);
                    }
                }
            }
            let expected: BTreeMap<_, _> =
                self.queues.iter().map(|(id, q)| (*id, (&q.name, &q.settings, q.next, q.reserved))).collect();
            if queues != expected {
                return Some(format!("the queues are {queues:?} and not {expected:?}"));
            }
        }
        for (key, expected) in &self.entries {
            let Some(found) = entries.remove(key) else { return Some(format!("entry {key} is missing")) };
            let same = same(&expected.content, &found.content)
                && found.head == expected.head
                && (found.deliveries, found.attempts) == (expected.deliveries, expected.attempts)
                && found.suspect.map(|b| (b.crashes(), b.passed())) == expected.suspect.map(|s| (s.crashes, s.passed))
                && found.overlay == expected.overlay;
            if !same {
                return Some(format!("entry {key} is {found:?} and not {expected:?}"));
            }
        }
        entries.keys().next().map(|key| format!("entry {key} should not be there"))
    }
}
