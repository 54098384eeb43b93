//! The queue against a naive model: random lives of a queue, every answer and every effect judged by the rules of
//! `spec/entry.md`. The model keeps one map and looks at all of it each time; it shares no code with the queue.

use bytes::Bytes;
use packhorse_model::{
    Content, ContentFormat, EntryKey, Head, HeadFlags, Now, Outcome, Overlay, QueueId, QueueName, QueueSettings,
    Reason, Resident,
};
use packhorse_queue::{Answer, ConsumerId, DeliveryKey, Effect, Enqueue, Input, Queue, Turn};
use packhorse_store::{Batch, Blame, Body, Load, Loaded, LoadedBody, Op, PASSED, RecoveredEntry, Stored, Ticket};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LIMIT: u32 = 3;
const ID: QueueId = QueueId(1);
const RETRY_US: u64 = 1_000_000;
/// So long all others wait for suspects that were blamed before; and if they had passed once when the next crash came.
const PROBATION_US: u64 = 100_000;
const LONG_PROBATION_US: u64 = 400_000;
/// One that had passed so often does not pass any more.
const PASSES: u32 = 2;
/// So many that were blamed once are on probation together.
const GROUP: u64 = 32;
/// A suspect's mark older than so many seconds is made again.
const FRESH_S: u64 = 2;
/// Blamed so often a suspect is given to nobody.
const CRASHES: u32 = 3;
/// Broker time at the start.
const STARTED_MS: u64 = 70_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// Until this ticket is durable; `None`: until it arrives from elsewhere.
    Staged(Option<u64>),
    Ready,
    Acquired(u64, DeliveryKey),
    /// On its way to the dead-letter queue; `retry` is set between two offers.
    Doomed {
        key: DeliveryKey,
        scheduled: bool,
        retry: Option<u64>,
    },
    Damaged,
}

#[derive(Debug)]
struct Entry {
    level: u8,
    persistent: bool,
    /// The store has its body.
    stored: bool,
    state: Is,
    buffer: u64,
    length: u64,
    deliveries: u32,
    attempts: u32,
    /// Not given before this ticket is durable.
    held: Option<u64>,
    refused_by: BTreeSet<u64>,
    overlay: Option<Vec<u8>>,
    /// How often it was blamed, and had passed, of a suspect.
    suspect: Option<(u32, u32)>,
    /// When its own mark became durable.
    marked_us: Option<u64>,
    quarantined: bool,
}

#[derive(Debug, Default)]
struct Consumer {
    pre_settled: bool,
    limit: u64,
    given: u64,
    /// What it holds, oldest first.
    held: VecDeque<u64>,
    /// Something was ever kept from it.
    choosy: bool,
}

#[derive(Debug)]
struct Leaving {
    id: u64,
    lost: bool,
    oldest_is_back: bool,
    held: VecDeque<u64>,
    choosy: bool,
}

#[derive(Debug, Default, PartialEq)]
struct Totals {
    enqueued: u64,
    acknowledged: u64,
    redelivered: u64,
    dead_lettered: u64,
    purged: u64,
}

/// How an entry comes back.
#[derive(Clone, Copy, PartialEq)]
enum Back {
    Unseen,
    Modified,
    Seen,
    Lost,
}

/// What a turn must have brought.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    enqueued: Vec<(u64, bool)>,
    acknowledged: BTreeSet<u64>,
    redelivered: Vec<(u64, u32, u32, bool)>,
    relocated: Vec<(u64, u64)>,
    offers: Vec<(u64, Reason, u32)>,
    damaged: Vec<u64>,
}

/// The queue, the model, and the world around both.
struct World {
    queue: Queue,
    dead_letters: bool,
    /// Some bodies are in memory only; then nothing is purged, for the model sees purges by their records.
    unstored: bool,
    entries: BTreeMap<u64, Entry>,
    consumers: BTreeMap<u64, Consumer>,
    leaving: VecDeque<Leaving>,
    next_consumer: u64,
    next: u64,
    keys: Vec<DeliveryKey>,
    loads: Vec<Load>,
    totals: Totals,
    now_us: u64,
    ticket: u64,
    durable: u64,
    volatile: u64,
    buffer: u64,
    oldest_resident: u64,
    reserved: u64,
    reserving: Option<(u64, u64)>,
    marks: BTreeSet<u64>,
    marking: Vec<(u64, u64)>,
    /// Those that were blamed and marked together last.
    group: BTreeSet<u64>,
    /// All others wait for these, with the broker time of their deliveries, until then at most.
    probation: BTreeMap<u64, u64>,
    until_us: u64,
    /// That time has come: they pass when something else is to go.
    over: bool,
    /// Token, first number not meant, entries purged.
    purges: VecDeque<(u64, u64, u64)>,
    batch: Batch,
    out: Vec<Effect>,
    expected: Expected,
}

fn nth<T>(items: Vec<T>, n: u32) -> Option<T> {
    let count = items.len();
    items.into_iter().nth(n as usize % count.max(1))
}

impl World {
    fn new(start: u64, reserved: u64, dead_letters: bool, unstored: bool) -> World {
        let settings = QueueSettings { delivery_limit: LIMIT, ..QueueSettings::default() };
        World {
            queue: Queue::new(ID, QueueName::new("q").unwrap(), settings, start, reserved, dead_letters),
            dead_letters,
            unstored,
            entries: BTreeMap::new(),
            consumers: BTreeMap::new(),
            leaving: VecDeque::new(),
            next_consumer: 1,
            next: start,
            keys: Vec::new(),
            loads: Vec::new(),
            totals: Totals::default(),
            now_us: 0,
            ticket: 1,
            durable: 0,
            volatile: 0,
            buffer: 1,
            oldest_resident: 1,
            reserved,
            reserving: None,
            marks: BTreeSet::new(),
            marking: Vec::new(),
            group: BTreeSet::new(),
            probation: BTreeMap::new(),
            until_us: 0,
            over: false,
            purges: VecDeque::new(),
            batch: Batch::default(),
            out: Vec::new(),
            expected: Expected::default(),
        }
    }

    /// Entries of earlier runs, each told by a byte: suspects and others.
    fn recover(&mut self, before: &[u8]) {
        let first = self.next - before.len() as u64;
        for (sequence, what) in (first..).zip(before.iter().copied()) {
            let level = [4, 4, 9][usize::from(what) % 3];
            let crashes = [None, Some(0), Some(1), Some(1), Some(2), Some(3)][usize::from(what / 3) % 6];
            let suspect = crashes.map(|crashes| (crashes, [0, 0, 1, 2][usize::from(what / 54) % 4]));
            let deliveries = u32::from(what / 18 % 3) + crashes.map_or(0, |crashes| crashes + 1);
            self.add(sequence, level, true, Is::Ready, 5);
            // It was there before, and is in no buffer.
            self.totals.enqueued -= 1;
            let entry = self.entries.get_mut(&sequence).unwrap();
            (entry.buffer, entry.suspect, entry.deliveries) = (0, suspect, deliveries);
            let head = Head { arrived_ms: 1_000 + sequence, ..self.head(level, true) };
            self.handle(Input::Recovered(Box::new(RecoveredEntry {
                key: EntryKey { queue: ID, sequence },
                head,
                content: Content::Body(Resident { buffer: 0, offset: 0, length: 5 }),
                deliveries,
                attempts: 0,
                suspect: suspect.map(|(crashes, passed)| Blame(crashes | passed << 16)),
                overlay: None,
            })));
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Queue, &mut Turn<'_>, &mut Vec<Effect>) -> T) -> T {
        let mut turn = Turn {
            now: Now { mono_us: self.now_us, wall_ms: 0 },
            broker_ms: STARTED_MS + self.now_us / 1000,
            ticket: Ticket(self.ticket),
            batch: &mut self.batch,
            oldest_resident: self.oldest_resident,
        };
        act(&mut self.queue, &mut turn, &mut self.out)
    }

    fn handle(&mut self, input: Input<'_>) -> Answer {
        self.with(|queue, turn, out| queue.handle(input, turn, out))
    }

    /// One turn: an input, a dispatch, and the batch handed over.
    fn step(&mut self, choice: u32) {
        let [what, a, b, c] = choice.to_le_bytes().map(u32::from);
        self.input(what % 22, a, b);
        assert!(!self.out.iter().any(|e| matches!(e, Effect::Deliver(_))), "only dispatch delivers");
        self.dispatch([1, 2, 5, 1000, 1000, 1000][c as usize % 6]);
        self.end_turn();
        self.check();
    }

    fn input(&mut self, what: u32, a: u32, b: u32) {
        match what {
            0..=4 => self.enqueue([4, 4, 4, 9, 0, 12][a as usize % 6], !b.is_multiple_of(3), b),
            5 | 6 => {
                if let Some(id) = nth(self.consumers.keys().copied().collect(), a) {
                    let consumer = self.consumers.get_mut(&id).unwrap();
                    consumer.limit = (consumer.given + u64::from(b % 8)).saturating_sub(1);
                    let limit = consumer.limit;
                    self.handle(Input::Credit { consumer: ConsumerId(id), limit });
                }
            }
            7 if self.consumers.len() < 4 => {
                let (id, pre_settled) = (self.next_consumer, a.is_multiple_of(5));
                self.next_consumer += 1;
                let limit = u64::from(b % 6);
                self.consumers.insert(id, Consumer { pre_settled, limit, ..Consumer::default() });
                self.handle(Input::Subscribe { consumer: ConsumerId(id), pre_settled });
                self.handle(Input::Credit { consumer: ConsumerId(id), limit });
            }
            8 => {
                if let Some(id) = nth(self.consumers.keys().copied().collect(), a) {
                    let Consumer { held, choosy, .. } = self.consumers.remove(&id).unwrap();
                    let lost = b.is_multiple_of(2);
                    if choosy || !held.is_empty() {
                        self.leaving.push_back(Leaving { id, lost, oldest_is_back: false, held, choosy });
                    }
                    self.handle(Input::Unsubscribe { consumer: ConsumerId(id), lost });
                }
            }
            9..=12 => {
                let acquired = self.entries.values().filter_map(|e| match e.state {
                    Is::Acquired(_, key) => Some(key),
                    _ => None,
                });
                if let Some(key) = nth(acquired.collect(), a) {
                    self.settle(key, b);
                }
            }
            13 => {
                if let Some(key) = nth(self.keys.clone(), a) {
                    self.settle(key, b);
                }
            }
            14 | 15 => self.flush(u64::from(a % 4) + 1),
            16 => self.evict(u64::from(a % 8)),
            17 => self.load_answer(a, b),
            18 => self.relocation_answer(a, b),
            19 => self.now_us += 400_000,
            20 => self.reservation(a, b),
            21 if b.is_multiple_of(8) && !self.unstored => {
                self.purges.push_back((u64::from(a), self.next, 0));
                self.handle(Input::Purge { token: u64::from(a) });
            }
            _ => {}
        }
    }

    fn head(&self, priority: u8, persistent: bool) -> Head {
        let flags = if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() };
        // The time of arrival tells the number, so that the oldest can be checked.
        Head {
            arrived_ms: 1_000 + self.next,
            ttl_ms: 5,
            message_format: 0,
            priority,
            flags,
            format: ContentFormat::Amqp10,
        }
    }

    fn enqueue(&mut self, priority: u8, persistent: bool, length: u32) {
        let level = priority.min(9);
        let head = self.head(priority, persistent);
        let sequence = self.next;
        self.next += 1;
        let waits = self.entries.values().rev().filter(|e| e.level == level).find_map(|e| match e.state {
            Is::Staged(until) => until,
            _ => None,
        });
        let reservation = self.reserving.map_or(self.ticket, |(ticket, _)| ticket);
        let reservation = (sequence >= self.reserved).then_some(reservation);
        let until = if persistent { Some(self.ticket) } else { waits.max(reservation) };
        let state = if until.is_some() { Is::Staged(until) } else { Is::Ready };
        self.add(sequence, level, persistent, state, u64::from(length));
        let stored = persistent || !self.unstored || length.is_multiple_of(2);
        self.entries.get_mut(&sequence).unwrap().stored = stored;
        if stored {
            self.expected.enqueued.push((sequence, !persistent));
            self.volatile = if persistent { self.volatile } else { self.ticket };
        }
        let answer = self.handle(Input::Enqueue(Enqueue {
            head,
            content: Content::Body(Resident { buffer: self.buffer, offset: 0, length }),
            stored: stored.then_some(Stored::Body(Body { piece: 0, offset: 0, length })),
            overlay: None,
        }));
        assert_eq!(answer, Answer::Entered(sequence), "numbers are drawn one by one");
        self.buffer += 1;
    }

    fn add(&mut self, sequence: u64, level: u8, persistent: bool, state: Is, length: u64) {
        let entry = Entry {
            level,
            persistent,
            stored: true,
            state,
            buffer: self.buffer,
            length,
            deliveries: 0,
            attempts: 0,
            held: None,
            refused_by: BTreeSet::new(),
            overlay: None,
            suspect: None,
            marked_us: None,
            quarantined: false,
        };
        self.totals.enqueued += u64::from(state == Is::Ready);
        self.entries.insert(sequence, entry);
    }

    /// The oldest buffers are wanted for something else: what is nowhere else is stored first.
    fn evict(&mut self, count: u64) {
        let oldest = (self.oldest_resident + count).min(self.buffer);
        for (sequence, entry) in &mut self.entries {
            let wanted = !entry.stored && entry.buffer < oldest;
            assert_eq!(self.queue.spill(entry.level, *sequence, entry.buffer + 1), None, "it is in another buffer");
            if entry.buffer >= oldest {
                continue;
            }
            let spilled = self.queue.spill(entry.level, *sequence, entry.buffer);
            assert_eq!(spilled.is_some(), wanted, "only what lives and is in memory only is spilled");
            assert_eq!(self.queue.spill(entry.level, *sequence, entry.buffer), None, "once");
            let Some((head, place)) = spilled else { continue };
            assert_eq!((head.arrived_ms, u64::from(place.length)), (1_000 + sequence, entry.length));
            let content = Stored::Body(Body { piece: 0, offset: 0, length: place.length });
            self.batch.push(Op::Enqueue { queue: ID, sequence: *sequence, head, content, volatile: true });
            self.expected.enqueued.push((*sequence, true));
            entry.stored = true;
        }
        for gone in &self.keys {
            if !self.entries.contains_key(&gone.sequence) {
                assert_eq!(self.queue.spill(gone.level, gone.sequence, 1), None, "what is gone is not spilled");
            }
        }
        self.oldest_resident = oldest;
    }

    fn reservation(&mut self, a: u32, b: u32) {
        let staged = self.entries.iter().filter(|(_, e)| e.state == Is::Staged(None));
        let staged: Vec<(u64, u8)> = staged.map(|(s, e)| (*s, e.level)).collect();
        let Some((sequence, level)) = nth(staged, a).filter(|_| !b.is_multiple_of(3)) else {
            let sequence = self.next;
            let (level, persistent) = ([4, 9][a as usize % 2], !a.is_multiple_of(3));
            let head = self.head(level, persistent);
            self.next += 1;
            self.add(sequence, level, persistent, Is::Staged(None), 7);
            let (deliveries, told) = (b % 4, !b.is_multiple_of(2));
            let entry = self.entries.get_mut(&sequence).unwrap();
            (entry.deliveries, entry.overlay) = (deliveries, told.then(|| b"there".to_vec()));
            let annotations = if told { Bytes::from_static(b"there") } else { Bytes::new() };
            let answer = self.handle(Input::Reserve {
                head,
                content: Content::Body(Resident { buffer: self.buffer, offset: 0, length: 7 }),
                stored: true,
                deliveries,
                overlay: Box::new(Overlay { annotations, dead_letter: None }),
            });
            assert_eq!(answer, Answer::Entered(sequence), "numbers are drawn one by one");
            self.buffer += 1;
            return;
        };
        if b % 3 == 1 {
            self.totals.enqueued += 1;
            self.entries.get_mut(&sequence).unwrap().state = Is::Ready;
            self.handle(Input::Arrived { level, sequence });
        } else {
            self.entries.remove(&sequence);
            self.handle(Input::Abandon { level, sequence });
        }
    }

    fn flush(&mut self, batches: u64) {
        self.durable = (self.durable + batches).min(self.ticket - 1);
        let durable = |ticket: u64| ticket <= self.durable;
        for entry in self.entries.values_mut() {
            if let Is::Staged(Some(until)) = entry.state
                && durable(until)
            {
                entry.state = Is::Ready;
                self.totals.enqueued += 1;
            }
            if entry.held.is_some_and(durable) {
                entry.held = None;
                entry.marked_us = Some(self.now_us);
            }
        }
        self.marks.extend(self.marking.iter().filter(|(ticket, _)| durable(*ticket)).map(|(_, range)| *range));
        self.marking.retain(|(ticket, _)| *ticket > self.durable);
        if let Some((ticket, up_to)) = self.reserving
            && durable(ticket)
        {
            (self.reserved, self.reserving) = (up_to, None);
        }
        let up_to = Ticket(self.durable);
        self.handle(Input::Durable { up_to });
    }

    fn settle(&mut self, key: DeliveryKey, b: u32) {
        let held_by = self.entries.get(&key.sequence).and_then(|e| match e.state {
            Is::Acquired(consumer, now) if now == key => Some(consumer),
            _ => None,
        });
        let undeliverable_here = b & 64 != 0;
        let annotations = if b & 32 != 0 { Bytes::from(vec![b as u8; 3]) } else { Bytes::new() };
        let outcome = match b % 8 {
            0 | 1 => Outcome::Acknowledge,
            2 => Outcome::ReturnUnseen,
            3 => Outcome::ReturnSeen { undeliverable_here, annotations: annotations.clone() },
            4 => Outcome::ReturnLost { attempted: b & 16 != 0 },
            5 => Outcome::ReturnModified { undeliverable_here, annotations: annotations.clone() },
            6 => Outcome::Reject { detail: "why".into() },
            _ => Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::new() },
        };
        if let Some(consumer) = held_by {
            match &outcome {
                Outcome::Acknowledge => {
                    self.let_go(consumer, key.sequence);
                    let gone = self.entries.remove(&key.sequence).unwrap();
                    self.totals.acknowledged += 1;
                    if gone.stored {
                        self.expected.acknowledged.insert(key.sequence);
                    }
                }
                Outcome::ReturnUnseen => self.back(key, consumer, Back::Unseen, false, &Bytes::new()),
                Outcome::ReturnSeen { undeliverable_here, annotations } => {
                    self.back(key, consumer, Back::Seen, *undeliverable_here, annotations);
                }
                Outcome::ReturnLost { attempted } => {
                    let back = if *attempted { Back::Seen } else { Back::Lost };
                    self.back(key, consumer, back, false, &Bytes::new());
                }
                Outcome::ReturnModified { undeliverable_here, annotations } => {
                    let back = if annotations.is_empty() { Back::Unseen } else { Back::Modified };
                    self.back(key, consumer, back, *undeliverable_here, annotations);
                }
                Outcome::Reject { .. } if self.dead_letters => {
                    self.back(key, consumer, Back::Seen, true, &Bytes::new());
                }
                Outcome::Reject { .. } => {
                    self.let_go(consumer, key.sequence);
                    self.doom(key, Reason::Rejected);
                }
            }
        }
        let answer = self.handle(Input::Settle { key, outcome });
        assert_eq!(answer, Answer::Settled(held_by.is_some()), "an outcome has its effect once, a late one none");
    }

    fn let_go(&mut self, consumer: u64, sequence: u64) {
        self.probation.remove(&sequence);
        let held = match self.consumers.get_mut(&consumer) {
            Some(consumer) => &mut consumer.held,
            None => &mut self.leaving.iter_mut().find(|l| l.id == consumer).unwrap().held,
        };
        held.retain(|s| *s != sequence);
    }

    fn doom(&mut self, key: DeliveryKey, reason: Reason) {
        let entry = self.entries.get_mut(&key.sequence).unwrap();
        entry.state = Is::Doomed { key, scheduled: false, retry: None };
        self.expected.offers.push((key.sequence, reason, entry.deliveries + 1));
    }

    fn back(&mut self, key: DeliveryKey, consumer: u64, back: Back, undeliverable_here: bool, annotations: &Bytes) {
        self.let_go(consumer, key.sequence);
        let ticket = self.ticket;
        let entry = self.entries.get_mut(&key.sequence).unwrap();
        if !annotations.is_empty() {
            entry.overlay = Some(annotations.to_vec());
        }
        if back == Back::Seen && entry.attempts + 1 >= LIMIT && !self.dead_letters {
            self.doom(key, Reason::DeliveryLimit);
            return;
        }
        if undeliverable_here {
            entry.refused_by.insert(consumer);
            match self.consumers.get_mut(&consumer) {
                Some(consumer) => consumer.choosy = true,
                None => self.leaving.iter_mut().find(|l| l.id == consumer).unwrap().choosy = true,
            }
        }
        entry.state = Is::Ready;
        entry.deliveries += u32::from(matches!(back, Back::Seen | Back::Lost));
        entry.attempts += u32::from(back == Back::Seen);
        // A suspect's return is written down, however it came back, and it is none any more.
        let suspect = entry.suspect.take();
        if (back != Back::Unseen || suspect.is_some()) && entry.persistent {
            entry.held = Some(ticket);
            let redelivered = (key.sequence, entry.deliveries, entry.attempts, entry.overlay.is_some());
            self.expected.redelivered.push(redelivered);
        }
    }

    fn resident(&self, entry: &Entry) -> bool {
        entry.buffer >= self.oldest_resident
    }

    fn load_answer(&mut self, a: u32, b: u32) {
        let Some(load) = nth(self.loads.clone(), a) else { return };
        self.loads.retain(|l| *l != load);
        let there = self.entries.range(load.from..).filter(|(_, e)| e.level == load.level);
        let there = there.filter(|(_, e)| !matches!(e.state, Is::Staged(_))).map(|(s, _)| *s);
        let forgets_head = b % 16 == 15;
        let mut bodies: Vec<LoadedBody> = Vec::new();
        for sequence in there.take(1 + b as usize % 4) {
            if forgets_head && sequence == load.from {
                continue;
            }
            let unreadable = (b / 16 + bodies.len() as u32).is_multiple_of(8);
            bodies.push(LoadedBody { sequence, range: (!unreadable).then_some((0, self.length(sequence))) });
        }
        let buffer = self.buffer;
        self.buffer += 1;
        for body in &bodies {
            if self.resident(&self.entries[&body.sequence]) {
                continue;
            }
            let entry = self.entries.get_mut(&body.sequence).unwrap();
            if body.range.is_some() {
                entry.buffer = buffer;
            } else if entry.state == Is::Ready {
                entry.state = Is::Damaged;
                self.expected.damaged.push(body.sequence);
            }
        }
        if bodies.first().is_none_or(|body| body.sequence != load.from)
            && self.volatile <= self.durable
            && let Some(entry) = self.entries.get(&load.from)
            && (entry.state, self.resident(entry)) == (Is::Ready, false)
        {
            self.entries.get_mut(&load.from).unwrap().state = Is::Damaged;
            self.expected.damaged.push(load.from);
        }
        let loaded = Loaded { load, buffer: Bytes::new(), bodies };
        self.handle(Input::Loaded { buffer, loaded: &loaded });
    }

    fn length(&self, sequence: u64) -> u32 {
        self.entries[&sequence].length as u32
    }

    fn relocation_answer(&mut self, a: u32, b: u32) {
        let doomed = self.entries.values().filter_map(|e| match e.state {
            Is::Doomed { key, retry: None, .. } => Some(key),
            _ => None,
        });
        let Some(key) = nth(doomed.collect(), a) else { return };
        match b % 4 {
            0 => {
                let retry = Some(self.now_us + RETRY_US);
                self.entries.get_mut(&key.sequence).unwrap().state = Is::Doomed { key, scheduled: true, retry };
                self.handle(Input::RelocateFailed { key });
            }
            1 => {
                let stale = DeliveryKey { epoch: key.epoch.wrapping_sub(1), ..key };
                let to = EntryKey { queue: QueueId(2), sequence: 1 };
                assert_eq!(self.handle(Input::Relocate { key: stale, to, stored: false }), Answer::Settled(false));
            }
            _ => {
                let to = EntryKey { queue: QueueId(2), sequence: u64::from(a) };
                let gone = self.entries.remove(&key.sequence).unwrap();
                self.totals.dead_lettered += 1;
                // What is not persistent may have been spilled since the place was reserved.
                let stored = gone.stored && (gone.persistent || a.is_multiple_of(2));
                if stored {
                    self.expected.relocated.push((key.sequence, to.sequence));
                } else if gone.stored {
                    self.expected.acknowledged.insert(key.sequence);
                }
                assert_eq!(self.handle(Input::Relocate { key, to, stored }), Answer::Settled(true));
                assert_eq!(self.handle(Input::Relocate { key, to, stored }), Answer::Settled(false), "once only");
            }
        }
    }

    /// Takes back what gone consumers held, oldest first, each at the price of one.
    fn take_back(&mut self, work: &mut u32) -> bool {
        while let Some(front) = self.leaving.front() {
            let (id, lost, oldest_is_back, choosy) = (front.id, front.lost, front.oldest_is_back, front.choosy);
            if *work == 0 {
                return false;
            }
            if let Some(&sequence) = front.held.front() {
                *work -= 1;
                let Is::Acquired(_, key) = self.entries[&sequence].state else { panic!("what is held is acquired") };
                let back = match (lost, oldest_is_back) {
                    (false, _) => Back::Unseen,
                    (true, false) => Back::Seen,
                    (true, true) => Back::Lost,
                };
                self.back(key, id, back, false, &Bytes::new());
                self.leaving.front_mut().unwrap().oldest_is_back = true;
            } else if choosy && let Some(entry) = self.entries.values_mut().find(|e| e.refused_by.contains(&id)) {
                *work -= 1;
                entry.refused_by.remove(&id);
            } else {
                self.leaving.pop_front();
            }
        }
        true
    }

    fn candidate(&self, consumer: u64) -> Option<u64> {
        let ready = self.entries.iter().filter(|(_, e)| e.state == Is::Ready && !e.refused_by.contains(&consumer));
        ready.max_by_key(|(sequence, e)| (e.level, u64::MAX - **sequence)).map(|(sequence, _)| *sequence)
    }

    fn credit(&self) -> u64 {
        self.consumers.values().map(|c| c.limit.saturating_sub(c.given)).sum()
    }

    fn ready(&self) -> u64 {
        self.entries.values().filter(|e| e.state == Is::Ready).count() as u64
    }

    /// Suspects that were blamed too often leave at the first dispatch.
    fn quarantine(&mut self) {
        let mut epoch = 0;
        for (sequence, entry) in &mut self.entries {
            if entry.suspect.is_some_and(|(crashes, _)| crashes >= CRASHES) && !self.dead_letters && !entry.quarantined
            {
                let key = DeliveryKey { sequence: *sequence, epoch, level: entry.level };
                (entry.state, entry.quarantined) = (Is::Doomed { key, scheduled: true, retry: None }, true);
                self.expected.offers.push((*sequence, Reason::BrokerCrash, entry.deliveries));
                epoch += 1;
            }
        }
    }

    fn dispatch(&mut self, budget: u32) {
        self.over = self.until_us <= self.now_us;
        self.quarantine();
        for (sequence, entry) in &mut self.entries {
            if let Is::Doomed { key, scheduled, retry: Some(at) } = entry.state
                && at <= self.now_us
            {
                entry.state = Is::Doomed { key, scheduled, retry: None };
                // The reason is checked where it was first offered.
                let deliveries = entry.deliveries + u32::from(!entry.quarantined);
                self.expected.offers.push((*sequence, Reason::Rejected, deliveries));
            }
        }
        let mut work = budget;
        let returned = self.take_back(&mut work);
        let ops = self.batch.ops().len();
        let more = self.with(|queue, turn, out| queue.dispatch(turn, budget, out));
        self.pass(ops);
        if !returned {
            assert!(more, "what is not back yet is more work");
            assert!(!self.out.iter().any(|e| matches!(e, Effect::Deliver(_))), "nothing goes before all is back");
        }
        self.purge(returned, work);
        let plenty = self.ready() > self.credit();
        let nobody_refused = self.entries.values().all(|e| e.refused_by.is_empty());
        let mut given: BTreeMap<u64, u64> = self.consumers.keys().map(|id| (*id, 0)).collect();
        let mut offers = Vec::new();
        let mut damaged = Vec::new();
        let mut overlay: Option<Box<Overlay>> = None;
        for effect in std::mem::take(&mut self.out) {
            match effect {
                Effect::Deliver(deliver) => {
                    let consumer = deliver.consumer.0;
                    *given.get_mut(&consumer).expect("the consumer is there") += 1;
                    let past = self.deliver(consumer, deliver.key(), deliver.deliveries, deliver.has_overlay());
                    assert_eq!(overlay.take().map(|o| o.annotations.to_vec()), past);
                }
                Effect::Overlay(with) => overlay = Some(with),
                Effect::Load(load) => {
                    assert!(self.loads.iter().all(|l| l.level != load.level), "one load at a time for a level");
                    let entry = &self.entries[&load.from];
                    assert_eq!((load.queue, load.level, entry.state), (ID, entry.level, Is::Ready));
                    assert!(!self.resident(entry), "only what is not in memory is loaded");
                    self.loads.push(load);
                }
                Effect::Relocate(offer) => {
                    let letter = offer.overlay.dead_letter.as_ref().unwrap();
                    assert_eq!((letter.address.as_str(), letter.sequence), ("q", offer.key.sequence));
                    let stored = self.entries.get(&offer.key.sequence).is_none_or(|e| e.stored);
                    assert_eq!((offer.head.ttl_ms, offer.stored), (0, stored));
                    let annotations = self.entries.get(&offer.key.sequence).and_then(|e| e.overlay.clone());
                    if annotations.is_some() {
                        assert_eq!(Some(offer.overlay.annotations.to_vec()), annotations);
                    }
                    offers.push((offer.key.sequence, letter.reason, letter.deliveries));
                }
                Effect::Purged { token, count } => {
                    let (expected, _, purged) = self.purges.pop_front().expect("a purge was asked for");
                    assert_eq!((token, count), (expected, purged));
                }
                Effect::Moved { .. } => panic!("nobody moves"),
                Effect::Damaged { level, sequence } => {
                    // A purge may have taken it in the same turn.
                    assert!(self.entries.get(&sequence).is_none_or(|e| e.level == level));
                    damaged.push(sequence);
                }
            }
        }
        assert!(given.values().sum::<u64>() <= u64::from(budget), "work is bounded");
        // An offer that is made again has the reason of the first one, whatever that was.
        let numbers = |offers: &[(u64, Reason, u32)]| {
            let mut numbers: Vec<_> = offers.iter().map(|(s, _, d)| (*s, *d)).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(numbers(&offers), numbers(&self.expected.offers));
        assert_eq!(damaged, self.expected.damaged);
        if nobody_refused {
            let shares = given.iter().filter(|(id, _)| {
                let consumer = &self.consumers[*id];
                consumer.limit > consumer.given
            });
            let shares: Vec<u64> = shares.map(|(_, n)| *n).collect();
            let spread = shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0);
            assert!(spread <= if plenty { 32 } else { 1 }, "{given:?} is not fair");
        }
        if !more {
            self.nothing_is_left_undone();
        }
    }

    /// Those on probation have passed, as the batch tells it from this operation on.
    fn pass(&mut self, from: usize) {
        let mut passed: BTreeMap<u64, u64> = BTreeMap::new();
        for op in &self.batch.ops()[from..] {
            if let Op::ExactMark { queue, first, last, at_ms } = op
                && at_ms & PASSED != 0
            {
                assert_eq!(*queue, ID);
                let times = (*first..=*last).map(|s| self.probation.get(&s).copied().expect("it was on probation"));
                assert_eq!(times.max(), Some(at_ms & !PASSED));
                passed.extend((*first..=*last).map(|s| (s, 0)));
            }
        }
        let others = self.out.iter().any(|e| matches!(e, Effect::Deliver(d) if !self.group.contains(&d.sequence)));
        let marks =
            self.batch.ops()[from..].iter().any(|op| matches!(op, Op::ExactMark { at_ms, .. } if at_ms & PASSED == 0));
        if passed.is_empty() && !others && !marks {
            return;
        }
        if !self.probation.is_empty() {
            assert!(self.over, "nobody passes before the time");
        }
        let may = |s: &u64| self.entries[s].suspect.is_some_and(|(_, passed)| passed < PASSES);
        let all: BTreeSet<u64> = self.probation.keys().copied().filter(may).collect();
        assert_eq!(passed.into_keys().collect::<BTreeSet<_>>(), all, "that they have passed is written down");
        self.probation.clear();
    }

    /// Applies what a purge removed, as the batch tells it.
    fn purge(&mut self, returned: bool, mut work: u32) {
        let mut told: BTreeSet<u64> = BTreeSet::new();
        for op in self.batch.ops() {
            if let Op::Acknowledge { first, last, .. } = op {
                told.extend(*first..=*last);
            }
        }
        for effect in &self.out {
            if let Effect::Deliver(deliver) = effect
                && self.consumers[&deliver.consumer.0].pre_settled
            {
                let stored = self.entries[&deliver.sequence].stored;
                assert_eq!(
                    told.remove(&deliver.sequence),
                    stored,
                    "a pre-settled delivery is acknowledged in its turn"
                );
            }
        }
        for sequence in &self.expected.acknowledged {
            assert!(told.remove(sequence), "an acknowledgement is told to the store");
        }
        assert!(returned || told.is_empty(), "a purge waits for what comes back");
        let mut told = told.into_iter().peekable();
        let mut purged: Vec<u64> = Vec::new();
        let done = self.out.iter().filter(|e| matches!(e, Effect::Purged { .. })).count();
        purged.extend(told.by_ref());
        for (index, (_, below, count)) in self.purges.iter_mut().enumerate() {
            let mine: Vec<u64> = purged.iter().copied().filter(|s| s < below).collect();
            purged.retain(|s| s >= below);
            for sequence in mine {
                let entry = self.entries.remove(&sequence).expect("a purged entry was there");
                let free = matches!(entry.state, Is::Ready | Is::Damaged | Is::Doomed { retry: Some(_), .. });
                assert!(free, "{sequence} was not to be purged: {entry:?}");
                work = work.checked_sub(1).expect("work is bounded");
                *count += 1;
                self.totals.purged += 1;
            }
            let left = self.entries.iter().any(|(sequence, e)| {
                sequence < below && matches!(e.state, Is::Ready | Is::Damaged | Is::Doomed { retry: Some(_), .. })
            });
            assert!(index >= done || !left, "a complete purge leaves nothing");
        }
        assert!(purged.is_empty(), "{purged:?} is gone without a reason");
        let settled: Vec<u64> = std::mem::take(&mut self.expected.acknowledged).into_iter().collect();
        assert!(settled.iter().all(|s| !self.entries.contains_key(s)));
    }

    /// Judges one delivery; the answer is the overlay that must have come with it if it is pre-settled.
    fn deliver(&mut self, to: u64, key: DeliveryKey, deliveries: u32, has_overlay: bool) -> Option<Vec<u8>> {
        let consumer = &self.consumers[&to];
        assert!(consumer.limit > consumer.given, "a delivery needs credit");
        assert_eq!(self.candidate(to), Some(key.sequence), "order: priority, then number; nobody gets what it refused");
        let entry = &self.entries[&key.sequence];
        assert!(self.resident(entry), "only what is in memory is given");
        assert_eq!(entry.held, None, "a returned entry waits for its record");
        let belongs = entry.suspect.is_some() && self.group.contains(&key.sequence);
        assert!(self.probation.is_empty() || belongs, "all others wait for those that were blamed");
        if let Some((crashes, passed)) = entry.suspect {
            let marked_s = entry.marked_us.expect("a suspect has a mark of its own") / 1_000_000;
            assert!(self.now_us / 1_000_000 - marked_s <= FRESH_S, "a mark tells the time of the delivery");
            assert!(crashes == 0 || belongs, "they go in groups");
            if crashes > 0 && !consumer.pre_settled {
                self.probation.insert(key.sequence, STARTED_MS + self.now_us / 1000);
                self.over = false;
                self.until_us = self.now_us + if passed == 1 { LONG_PROBATION_US } else { PROBATION_US };
            }
        } else {
            assert!(!entry.persistent || self.marks.contains(&(key.sequence / 256)), "a mark is durable first");
        }
        assert_eq!((key.level, deliveries, has_overlay), (entry.level, entry.deliveries, entry.overlay.is_some()));
        assert!(!self.keys.contains(&key), "a delivery has a key of its own");
        self.totals.redelivered += u64::from(entry.deliveries > 0);
        self.keys.push(key);
        let consumer = self.consumers.get_mut(&to).unwrap();
        consumer.given += 1;
        if consumer.pre_settled {
            self.totals.acknowledged += 1;
            return self.entries.remove(&key.sequence).unwrap().overlay;
        }
        consumer.held.push_back(key.sequence);
        self.entries.get_mut(&key.sequence).unwrap().state = Is::Acquired(to, key);
        None
    }

    /// After a dispatch that says it is done: whoever has credit has nothing to get, or waits for something on its way.
    fn nothing_is_left_undone(&self) {
        assert!(self.leaving.is_empty() && self.purges.is_empty());
        for (id, consumer) in &self.consumers {
            if consumer.limit <= consumer.given {
                continue;
            }
            let Some(sequence) = self.candidate(*id) else { continue };
            let entry = &self.entries[&sequence];
            let marking = self.marking_of(sequence);
            if !self.probation.is_empty() && !self.over {
                continue;
            }
            let marking_group = self.group.iter().any(|s| self.entries.get(s).is_some_and(|e| e.held.is_some()));
            if entry.suspect.is_some_and(|(crashes, _)| crashes > 0) && marking_group {
                continue;
            }
            if entry.suspect.is_some() && self.resident(entry) && entry.held.is_none() {
                let marked = self.batch.ops().iter().any(|op| match op {
                    Op::ExactMark { first, last, .. } => (*first..=*last).contains(&sequence),
                    _ => false,
                });
                assert!(marked && self.batch.urgent(), "{sequence} should have been given");
                continue;
            }
            if let Some(ticket) = entry.held {
                assert!(ticket < self.ticket || self.batch.urgent(), "whoever waits for a record has it flushed");
            } else if !self.resident(entry) {
                assert!(self.loads.iter().any(|l| l.level == entry.level), "what is not in memory is asked for");
            } else {
                assert!(
                    entry.persistent && !self.marks.contains(&(sequence / 256)),
                    "{sequence} should have been given"
                );
                let ticket = marking.expect("what is not marked is being marked");
                assert!(ticket < self.ticket || self.batch.urgent(), "whoever waits for a mark has it flushed");
            }
        }
    }

    fn marking_of(&self, sequence: u64) -> Option<u64> {
        let before = self.marking.iter().find(|(_, range)| *range == sequence / 256).map(|(ticket, _)| *ticket);
        let now = self.batch.ops().iter().any(|op| match op {
            Op::DispatchMark { first, count, .. } => (*first..first + u64::from(*count)).contains(&sequence),
            _ => false,
        });
        before.or(now.then_some(self.ticket))
    }

    /// The batch contains exactly the records that the rules ask for, and is handed over.
    fn end_turn(&mut self) {
        let mut told = Expected::default();
        let mut marked: Vec<((u32, u32), u64)> = Vec::new();
        for op in self.batch.ops() {
            match op {
                Op::Enqueue { queue, sequence, volatile, .. } => {
                    assert_eq!(*queue, ID);
                    told.enqueued.push((*sequence, *volatile));
                }
                Op::Redeliver { entry, deliveries, attempts, overlay } => {
                    told.redelivered.push((entry.sequence, *deliveries, *attempts, overlay.is_some()));
                }
                Op::Relocate { from, to, head, .. } => {
                    assert_eq!((head.ttl_ms, from.queue), (0, ID));
                    told.relocated.push((from.sequence, to.sequence));
                }
                Op::DispatchMark { queue, first, count } => {
                    assert_eq!((*queue, first % 256, count % 256), (ID, 0, 0));
                    self.marking.extend((0..u64::from(*count) / 256).map(|n| (self.ticket, first / 256 + n)));
                }
                // Looked at when it was pushed.
                Op::ExactMark { at_ms, .. } if at_ms & PASSED != 0 => {}
                Op::ExactMark { queue, first, last, at_ms } => {
                    assert_eq!((*queue, *at_ms), (ID, STARTED_MS + self.now_us / 1000));
                    for sequence in *first..=*last {
                        let entry = self.entries.get_mut(&sequence).expect("a suspect is there");
                        assert_eq!((entry.state, entry.held), (Is::Ready, None));
                        let suspect = entry.suspect.expect("only suspects are named");
                        entry.held = Some(self.ticket);
                        marked.push((suspect, sequence));
                    }
                }
                Op::Reserve { queue, up_to } => {
                    assert_eq!((*queue, self.reserving), (ID, None));
                    assert!(*up_to > self.reserved && *up_to > self.next);
                    self.reserving = Some((self.ticket, *up_to));
                }
                Op::Acknowledge { .. } => {}
                other => panic!("nobody asked for {other:?}"),
            }
        }
        let blamed: Vec<_> = marked.iter().filter(|((crashes, _), _)| *crashes > 0).collect();
        if let Some(((crashes, passed), _)) = blamed.first() {
            let alike = blamed.iter().all(|(kind, _)| *kind == (*crashes, *passed));
            assert!(alike && blamed.len() as u64 <= if *crashes == 1 { GROUP } else { 1 }, "{blamed:?} are no group");
            self.group = blamed.iter().map(|(_, sequence)| *sequence).collect();
        }
        let expected = std::mem::take(&mut self.expected);
        assert_eq!(told.enqueued, expected.enqueued);
        assert_eq!(told.redelivered, expected.redelivered);
        assert_eq!(told.relocated, expected.relocated);
        if !std::mem::take(&mut self.batch).is_empty() {
            self.ticket += 1;
        }
    }

    /// What the queue says of itself is what the model sees.
    fn check(&self) {
        if let Err(broken) = self.queue.audit() {
            panic!("{broken}");
        }
        let count = |which: fn(&Is) -> bool| self.entries.values().filter(|e| which(&e.state)).count() as u64;
        let stats = self.queue.stats();
        let staged = count(|s| matches!(s, Is::Staged(_)));
        let acquired = count(|s| matches!(s, Is::Acquired(..) | Is::Doomed { scheduled: false, .. }));
        let scheduled = count(|s| matches!(s, Is::Doomed { scheduled: true, .. }));
        assert_eq!((stats.ready, stats.staged, stats.acquired), (self.ready(), staged, acquired));
        assert_eq!((stats.scheduled, stats.damaged), (scheduled, count(|s| *s == Is::Damaged)));
        assert_eq!((stats.removing, stats.moving, stats.prepared_in, stats.prepared_out), (0, 0, 0, 0));
        let depth: Vec<&Entry> = self.entries.values().filter(|e| !matches!(e.state, Is::Staged(_))).collect();
        assert_eq!((stats.depth, stats.bytes), (depth.len() as u64, depth.iter().map(|e| e.length).sum()));
        let totals = Totals {
            enqueued: stats.enqueued_total,
            acknowledged: stats.acknowledged_total,
            redelivered: stats.redelivered_total,
            dead_lettered: stats.dead_lettered_total,
            purged: stats.purged_total,
        };
        assert_eq!(totals, self.totals);
        assert_eq!((stats.consumers, stats.credit), (self.consumers.len() as u64, self.credit()));
        let oldest = self.entries.iter().find(|(_, e)| !matches!(e.state, Is::Staged(_))).map(|(s, _)| 1_000 + s);
        assert_eq!(stats.oldest_arrived_ms, oldest);
        for id in self.consumers.keys().copied().chain([u64::MAX]) {
            let nothing = if self.consumers.contains_key(&id) { self.candidate(id).is_none() } else { true };
            let quiet = self.leaving.is_empty() && nothing;
            assert_eq!(self.queue.quiet_for(ConsumerId(id)), quiet, "quiet for {id}");
        }
        let staged = self.entries.values().filter_map(|e| match e.state {
            Is::Staged(until) => until,
            _ => e.held,
        });
        let waits = staged.chain(self.reserving.map(|(ticket, _)| ticket)).chain(self.marking.iter().map(|m| m.0));
        let waits = waits.min();
        assert!(
            waits.is_none_or(|ticket| self.queue.awaits().is_some_and(|a| a.0 <= ticket)),
            "it says what it awaits"
        );
        assert!(self.durable < self.ticket - 1 || self.queue.awaits().is_none(), "nothing is left to wait for");
        for (sequence, entry) in &self.entries {
            let overlay = self.queue.overlay(entry.level, *sequence).map(|o| o.annotations.to_vec());
            assert_eq!(overlay, entry.overlay);
        }
        let retry = self.entries.values().filter_map(|e| match e.state {
            Is::Doomed { retry, .. } => retry,
            _ => None,
        });
        let probation = (!self.probation.is_empty() && !self.over).then_some(self.until_us);
        assert_eq!(self.queue.next_deadline(), retry.chain(probation).min());
    }

    /// Lets everything come to rest: all durable, all loaded, one consumer with all credit takes what is left.
    fn come_to_rest(&mut self) {
        let id = self.next_consumer;
        self.consumers.insert(id, Consumer { limit: 1_000, ..Consumer::default() });
        self.handle(Input::Subscribe { consumer: ConsumerId(id), pre_settled: false });
        self.handle(Input::Credit { consumer: ConsumerId(id), limit: 1_000 });
        for round in 0.. {
            assert!(round < 2_000, "a queue comes to rest");
            self.flush(u64::MAX / 2);
            // Second arguments that read every body: no damage on the way out.
            self.load_answer(0, 16 + 3);
            self.dispatch(1000);
            self.end_turn();
            self.check();
            // Nobody settles what is on probation.
            if !self.probation.is_empty() {
                self.now_us = self.now_us.max(self.until_us);
            }
            if self.ready() == 0 && self.durable == self.ticket - 1 && self.leaving.is_empty() {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_is_what_the_model_says(
        start in 0u64..600,
        scarce in any::<bool>(),
        dead_letters in any::<bool>(),
        unstored in any::<bool>(),
        before in prop::collection::vec(any::<u8>(), 0..9),
        steps in prop::collection::vec(any::<u32>(), 1..48),
    ) {
        let reserved = if scarce { start + 4 } else { start + (1 << 20) };
        let start = start + before.len() as u64;
        let reserved = reserved + before.len() as u64;
        let mut world = World::new(start, reserved, dead_letters, unstored);
        world.recover(&before);
        for step in steps {
            world.step(step);
        }
        world.come_to_rest();
    }
}
