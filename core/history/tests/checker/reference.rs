//! A tiny correct broker: entries in memory, a durable copy that a flush brings up to date, crashes that fall back to it.
//!
//! It keeps the promises of `spec/entry.md` in the plainest way. One planted [`Fault`] makes it break one of them.
//! Must not know: clients' processes, files, the checker.

use packhorse_history::MessageId;
use std::collections::{BTreeMap, BTreeSet};

/// Entries of one mark range: all of them are flagged after a crash if one was dispatched.
const RANGE: u64 = 4;
/// Failed deliveries after which an entry is a dead letter.
const ATTEMPTS: u32 = 4;

/// What the broker does wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A confirmed message vanishes.
    Lose,
    /// A message comes back although its acknowledgement was confirmed.
    Duplicate,
    /// A message that was delivered comes again as if for the first time.
    Unflagged,
    /// Two messages change places.
    Swap,
    /// A count goes down.
    CountDown,
    /// A message comes that nobody sent.
    Phantom,
    /// A body changes.
    Body,
    /// Nothing is delivered for a while.
    Silence,
    /// A counter is one too high at the end.
    Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for a flush.
    Staged,
    Ready,
    Held(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: MessageId,
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    pub(crate) order: u64,
    pub(crate) state: State,
    pub(crate) deliveries: u32,
    pub(crate) attempts: u32,
    declined: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue(usize, Entry),
    Gone(usize, MessageId),
    Count(usize, MessageId, u32, u32),
    Dead(usize, MessageId),
}

/// What a client is told when the flush that covers it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Confirmed(MessageId),
    Acknowledged(MessageId),
}

/// How a consumer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accept { reply: bool },
    Release,
    Decline,
    Fail,
    Reject,
}

/// The broker. Queues are numbers.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) queues: Vec<Vec<Entry>>,
    pub(crate) dead: Vec<MessageId>,
    pub(crate) enqueued: Vec<i64>,
    pub(crate) acknowledged: Vec<i64>,
    durable: Vec<BTreeMap<MessageId, Entry>>,
    durable_dead: Vec<MessageId>,
    marked: BTreeSet<(usize, u64)>,
    pending: Vec<Op>,
    waiting: Vec<(u32, Answer)>,
    next_order: u64,
}

impl Broker {
    pub(crate) fn new(queues: usize) -> Broker {
        Broker {
            queues: vec![Vec::new(); queues],
            dead: Vec::new(),
            enqueued: vec![0; queues],
            acknowledged: vec![0; queues],
            durable: vec![BTreeMap::new(); queues],
            durable_dead: Vec::new(),
            marked: BTreeSet::new(),
            pending: Vec::new(),
            waiting: Vec::new(),
            next_order: 0,
        }
    }

    /// A message comes in on a link; answers whether its confirm is due at once.
    pub(crate) fn enqueue(&mut self, queue: usize, link: u32, id: MessageId, priority: u8, persistent: bool) -> bool {
        let order = self.next_order;
        self.next_order += 1;
        let behind = self.queues[queue].iter().any(|one| one.priority == priority && one.state == State::Staged);
        let state = if persistent || behind { State::Staged } else { State::Ready };
        let entry = Entry { id, priority, persistent, order, state, deliveries: 0, attempts: 0, declined: Vec::new() };
        self.enqueued[queue] += 1;
        if persistent {
            self.pending.push(Op::Enqueue(queue, entry.clone()));
            self.waiting.push((link, Answer::Confirmed(id)));
        }
        self.queues[queue].push(entry);
        !persistent
    }

    /// Everything so far becomes durable; answers who is told what.
    pub(crate) fn flush(&mut self) -> Vec<(u32, Answer)> {
        for op in std::mem::take(&mut self.pending) {
            match op {
                Op::Enqueue(queue, entry) => {
                    self.durable[queue].insert(entry.id, entry);
                }
                Op::Gone(queue, id) => {
                    self.durable[queue].remove(&id);
                }
                Op::Count(queue, id, deliveries, attempts) => {
                    if let Some(entry) = self.durable[queue].get_mut(&id) {
                        (entry.deliveries, entry.attempts) = (deliveries, attempts);
                    }
                }
                Op::Dead(queue, id) => {
                    if self.durable[queue].remove(&id).is_some() {
                        self.durable_dead.push(id);
                    }
                }
            }
        }
        for entry in self.queues.iter_mut().flatten().filter(|entry| entry.state == State::Staged) {
            entry.state = State::Ready;
        }
        std::mem::take(&mut self.waiting)
    }

    /// The process dies and starts again.
    pub(crate) fn crash(&mut self) {
        self.pending.clear();
        self.waiting.clear();
        self.dead.clone_from(&self.durable_dead);
        for (queue, durable) in self.durable.iter_mut().enumerate() {
            self.enqueued[queue] = 0;
            self.acknowledged[queue] = 0;
            for entry in durable.values_mut().filter(|entry| self.marked.contains(&(queue, entry.order / RANGE))) {
                entry.deliveries += 1;
            }
            let mut entries: Vec<Entry> = durable.values().cloned().collect();
            entries.sort_by_key(|entry| entry.order);
            for entry in &mut entries {
                entry.state = State::Ready;
            }
            self.queues[queue] = entries;
        }
    }

    /// The next entry for this link: highest priority, oldest.
    pub(crate) fn dispatch(&mut self, queue: usize, link: u32) -> Option<&Entry> {
        let ready = self.queues[queue]
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.state == State::Ready && !entry.declined.contains(&link));
        let (index, _) = ready.min_by_key(|(_, entry)| (std::cmp::Reverse(entry.priority), entry.order))?;
        let entry = &mut self.queues[queue][index];
        entry.state = State::Held(link);
        self.marked.insert((queue, entry.order / RANGE));
        Some(entry)
    }

    /// A link settles. Late ones find nothing.
    pub(crate) fn settle(&mut self, queue: usize, link: u32, id: MessageId, outcome: Outcome) {
        let held = |entry: &Entry| entry.id == id && entry.state == State::Held(link);
        let Some(index) = self.queues[queue].iter().position(held) else { return };
        match outcome {
            Outcome::Accept { reply } => {
                self.queues[queue].remove(index);
                self.acknowledged[queue] += 1;
                self.pending.push(Op::Gone(queue, id));
                if reply {
                    self.waiting.push((link, Answer::Acknowledged(id)));
                }
            }
            Outcome::Release => self.queues[queue][index].state = State::Ready,
            Outcome::Decline => {
                self.queues[queue][index].declined.push(link);
                self.queues[queue][index].state = State::Ready;
            }
            Outcome::Fail => self.failed(queue, index),
            Outcome::Reject => self.bury(queue, index),
        }
    }

    fn failed(&mut self, queue: usize, index: usize) {
        let entry = &mut self.queues[queue][index];
        entry.deliveries += 1;
        entry.attempts += 1;
        if entry.attempts >= ATTEMPTS {
            return self.bury(queue, index);
        }
        // Not again before the count is durable.
        entry.state = State::Staged;
        self.pending.push(Op::Count(queue, entry.id, entry.deliveries, entry.attempts));
    }

    fn bury(&mut self, queue: usize, index: usize) {
        let entry = self.queues[queue].remove(index);
        self.dead.push(entry.id);
        if entry.persistent {
            self.pending.push(Op::Dead(queue, entry.id));
        }
    }

    /// A link closes in order: what it holds goes back as it was.
    pub(crate) fn close(&mut self, queue: usize, link: u32) {
        for entry in self.queues[queue].iter_mut().filter(|entry| entry.state == State::Held(link)) {
            entry.state = State::Ready;
        }
    }

    /// A connection breaks: what it holds may have been seen.
    pub(crate) fn cut(&mut self, queue: usize, link: u32) {
        self.waiting.retain(|(to, _)| *to != link);
        while let Some(index) = self.queues[queue].iter().position(|entry| entry.state == State::Held(link)) {
            self.failed(queue, index);
        }
    }

    pub(crate) fn held(&self, queue: usize) -> usize {
        self.queues[queue].iter().filter(|entry| matches!(entry.state, State::Held(_))).count()
    }
}

/// What a correct broker never does.
impl Broker {
    /// An entry vanishes, from memory and from the disk.
    pub(crate) fn forget(&mut self, queue: usize, id: MessageId) {
        self.queues[queue].retain(|entry| entry.id != id);
        self.durable[queue].remove(&id);
        self.pending.retain(|op| !matches!(op, Op::Enqueue(_, entry) if entry.id == id));
    }

    /// An entry that is gone is there again.
    pub(crate) fn revive(&mut self, queue: usize, id: MessageId) {
        let entry = Entry {
            id,
            priority: 4,
            persistent: true,
            order: 0,
            state: State::Ready,
            deliveries: 50,
            attempts: 0,
            declined: Vec::new(),
        };
        self.durable[queue].insert(id, entry.clone());
        self.queues[queue].push(entry);
    }
}
