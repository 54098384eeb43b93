//! A small shard for scenarios: queues over the store in memory, a ring of bodies, one turn after the other.
//!
//! Must not judge: scenarios do.

pub(crate) mod transactions;

use bytes::Bytes;
use packhorse_model::{
    Content, ContentFormat, EntryKey, Head, HeadFlags, LargeId, Now, Outcome, QueueId, QueueName, QueueSettings,
    Resident, ShardId, TxnId,
};
use packhorse_queue::{Answer, ConsumerId, DeliveryKey, Effect, Enqueue, Input, Queue, Relocation, Turn};
use packhorse_store::{
    Batch, Event, LargeOp, Load, Memory, MemoryStore, Op, RESERVE, Recovered, RecoveredEntry, Store, Stored, Ticket,
};
use std::collections::{BTreeMap, VecDeque};

/// The queue of most scenarios, and the dead-letter queue.
pub(crate) const Q: QueueId = QueueId(1);
pub(crate) const DLQ: QueueId = QueueId(2);

/// A delivery as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) queue: QueueId,
    pub(crate) key: DeliveryKey,
    pub(crate) body: Vec<u8>,
    pub(crate) deliveries: u32,
}

impl Got {
    /// The number that the body tells.
    pub(crate) fn number(&self) -> u64 {
        String::from_utf8(self.body.clone()).unwrap().parse().unwrap()
    }
}

pub(crate) struct Rig {
    memory: Memory,
    store: MemoryStore,
    queues: BTreeMap<QueueId, Queue>,
    batch: Batch,
    out: Vec<Effect>,
    ring: BTreeMap<u64, Bytes>,
    next_buffer: u64,
    /// The buffer that the turn's small bodies go to.
    open: u64,
    arriving: Vec<(Ticket, u8, u64)>,
    got: BTreeMap<ConsumerId, VecDeque<Got>>,
    given: BTreeMap<ConsumerId, u64>,
    pub(crate) relocations: Vec<Relocation>,
    pub(crate) loads: Vec<Load>,
    /// All tickets up to here are durable.
    pub(crate) durable: Ticket,
    /// Files that are not wanted.
    pub(crate) discarded: Vec<LargeId>,
    /// How often what went ahead of a transaction was dropped, in turns that are over.
    pub(crate) drops: usize,
    sides: BTreeMap<TxnId, transactions::Side>,
    files: u64,
    /// What was found damaged.
    pub(crate) damaged: Vec<u64>,
    now_us: u64,
    /// Memory for bodies that wait is short.
    pub(crate) short: bool,
}

impl Rig {
    /// The queue Q with this delivery limit and its dead-letter queue; batches are durable at each [`Rig::flush`].
    pub(crate) fn new(delivery_limit: u32) -> Rig {
        let memory = Memory::new(1, false);
        let mut rig = Rig::over(memory);
        for (id, name) in [(Q, "q"), (DLQ, "DLQ")] {
            let settings = QueueSettings { delivery_limit, ..QueueSettings::default() };
            let name = QueueName::new(name).unwrap();
            let op = Op::QueueCreate { id, name: name.clone(), settings: settings.clone(), reserved: RESERVE };
            rig.batch.push(op);
            rig.queues.insert(id, Queue::new(id, name, settings, 0, RESERVE, id == DLQ));
        }
        rig.end_turn();
        rig.flush();
        rig
    }

    fn over(memory: Memory) -> Rig {
        let store = memory.handle(ShardId(0));
        Rig {
            memory,
            store,
            queues: BTreeMap::new(),
            batch: Batch::default(),
            out: Vec::new(),
            ring: BTreeMap::new(),
            next_buffer: 2,
            open: 1,
            arriving: Vec::new(),
            got: BTreeMap::new(),
            given: BTreeMap::new(),
            relocations: Vec::new(),
            loads: Vec::new(),
            durable: Ticket(0),
            discarded: Vec::new(),
            drops: 0,
            sides: BTreeMap::new(),
            files: 0,
            damaged: Vec::new(),
            now_us: 0,
            short: false,
        }
    }

    /// The broker is killed, with some of what is not durable, and starts again.
    pub(crate) fn crash(self, seed: u64) -> Rig {
        self.crash_with(seed, |_| {})
    }

    /// The same, and the start gets every entry wrong in this way.
    pub(crate) fn crash_with(self, seed: u64, wrong: impl Fn(&mut RecoveredEntry)) -> Rig {
        Rig::recovered(self.memory.crash(1, seed), wrong)
    }

    /// The broker stops in order and starts again.
    pub(crate) fn restart(self) -> Rig {
        Rig::recovered(self.memory.restart(1), |_| {})
    }

    fn recovered(memory: Memory, wrong: impl Fn(&mut RecoveredEntry)) -> Rig {
        let mut rig = Rig::over(memory);
        let mut all = Vec::new();
        while rig.store.recover(100, &mut all) {}
        for thing in all {
            match thing {
                Recovered::Queue { id, name, settings, next, reserved } => {
                    rig.queues.insert(id, Queue::new(id, name, settings, next, reserved, id == DLQ));
                }
                Recovered::NextQueueId(_) => {}
                Recovered::Producer(told) => drop(rig.handle(told.queue, Input::RecoveredProducer(told))),
                Recovered::DuplicateId { queue, id, at_ms } => drop(rig.handle(queue, Input::RecoveredId(id, at_ms))),
                Recovered::BranchOp(_) | Recovered::Branch(_) | Recovered::Completed { .. } | Recovered::Session(_) => {
                    rig.recovered_of_transactions(thing);
                }
                Recovered::Entry(mut entry) => {
                    wrong(&mut entry);
                    rig.handle(entry.key.queue, Input::Recovered(entry));
                }
            }
        }
        rig
    }

    /// Large files that the store has.
    pub(crate) fn large_files(&self) -> usize {
        self.memory.large_files()
    }

    pub(crate) fn broker_ms(&self) -> u64 {
        self.store.started_at_ms() + self.now_us / 1000
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1000;
        self.memory.set_broker_time_ms(self.broker_ms());
        self.flush();
    }

    /// Flushes since the start.
    pub(crate) fn flushes(&self) -> u64 {
        self.store.status().flushes
    }

    pub(crate) fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[&id]
    }

    /// Lets a queue handle an input in the running turn.
    pub(crate) fn handle(&mut self, id: QueueId, input: Input<'_>) -> Answer {
        let oldest_resident = self.ring.keys().next().copied().unwrap_or(self.open);
        let mut turn = Turn {
            now: Now { mono_us: self.now_us, wall_ms: 0 },
            broker_ms: self.broker_ms(),
            ticket: self.store.next_ticket(),
            batch: &mut self.batch,
            oldest_resident,
            short: self.short,
        };
        self.queues.get_mut(&id).unwrap().handle(input, &mut turn, &mut self.out)
    }

    /// Dispatches from a queue; true: there is more to do.
    pub(crate) fn dispatch(&mut self, id: QueueId, budget: u32) -> bool {
        let oldest_resident = self.ring.keys().next().copied().unwrap_or(self.open);
        let mut turn = Turn {
            now: Now { mono_us: self.now_us, wall_ms: 0 },
            broker_ms: self.broker_ms(),
            ticket: self.store.next_ticket(),
            batch: &mut self.batch,
            oldest_resident,
            short: self.short,
        };
        let more = self.queues.get_mut(&id).unwrap().dispatch(&mut turn, budget, &mut self.out);
        self.run_effects(id);
        more
    }

    fn run_effects(&mut self, id: QueueId) {
        for effect in std::mem::take(&mut self.out) {
            match effect {
                Effect::Deliver(d) => {
                    let body = match d.content() {
                        Content::Body(Resident { buffer, offset, length }) if buffer != self.open => {
                            self.ring[&buffer][offset as usize..(offset + length) as usize].to_vec()
                        }
                        // Of this very turn.
                        _ => Vec::new(),
                    };
                    *self.given.entry(d.consumer).or_default() += 1;
                    let got = Got { queue: id, key: d.key(), body, deliveries: d.deliveries };
                    self.got.entry(d.consumer).or_default().push_back(got);
                }
                Effect::Load(load) => {
                    self.loads.push(load);
                    self.store.load(load);
                }
                Effect::Relocate(relocation) => {
                    self.relocations.push((*relocation).clone());
                    let Relocation { key, head, content, stored, deliveries, overlay, .. } = *relocation;
                    let to = self
                        .handle(DLQ, Input::Reserve { head, content, stored, deliveries, overlay })
                        .sequence()
                        .unwrap();
                    let moved =
                        self.handle(id, Input::Relocate { key, to: EntryKey { queue: DLQ, sequence: to }, stored });
                    assert!(moved.settled());
                    if stored {
                        self.arriving.push((self.store.next_ticket(), head.level(), to));
                    } else {
                        // No record says it, so there is no flush to wait for.
                        self.handle(DLQ, Input::Arrived { level: head.level(), sequence: to });
                    }
                }
                Effect::Damaged { sequence, .. } => self.damaged.push(sequence),
                Effect::Ahead(ops) => self.go_ahead(*ops),
                Effect::Gathered(gathered) => {
                    let side = self.side(gathered.txn);
                    assert!(side.gathered.replace(*gathered).is_none(), "one answer to a question");
                }
                Effect::Discard(id) => {
                    self.discarded.push(id);
                    self.store.large(LargeOp::Abort { id });
                }
                Effect::Overlay(_) | Effect::Purged { .. } | Effect::Moved { .. } => {}
            }
        }
    }

    /// Hands over the turn's batch.
    pub(crate) fn end_turn(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return;
        }
        self.drops += batch.ops().iter().filter(|op| matches!(op, Op::TxDrop { .. })).count();
        let body = batch.seal()[0].clone();
        self.ring.insert(self.open, body);
        self.open = self.next_buffer;
        self.next_buffer += 1;
        self.store.submit(batch);
    }

    /// Turns until nothing more happens without a flush.
    pub(crate) fn turns(&mut self) {
        loop {
            let mut more = false;
            for id in [Q, DLQ] {
                more |= self.queues.contains_key(&id) && self.dispatch(id, 64);
            }
            self.end_turn();
            let mut events = Vec::new();
            self.store.poll(&mut events);
            more |= !events.is_empty();
            for event in events {
                match event {
                    Event::Durable { up_to } => {
                        self.durable = up_to;
                        for id in [Q, DLQ] {
                            if self.queues.get(&id).is_some_and(|q| q.awaits().is_some_and(|t| t <= up_to)) {
                                self.handle(id, Input::Durable { up_to });
                            }
                        }
                        let (come, wait) = self.arriving.iter().partition(|(ticket, ..)| *ticket <= up_to);
                        self.arriving = wait;
                        let come: Vec<(Ticket, u8, u64)> = come;
                        for (_, level, sequence) in come {
                            self.handle(DLQ, Input::Arrived { level, sequence });
                        }
                    }
                    Event::Loaded(loaded) => {
                        let buffer = self.next_buffer;
                        self.next_buffer += 1;
                        self.ring.insert(buffer, loaded.buffer.clone());
                        self.handle(loaded.load.queue, Input::Loaded { buffer, loaded: &loaded });
                    }
                    Event::LargeWritten { .. } | Event::LargeSynced { .. } => {}
                    other => panic!("nobody asked for {other:?}"),
                }
            }
            if !more {
                break;
            }
        }
        for (id, queue) in &self.queues {
            if let Err(broken) = queue.audit() {
                panic!("queue {id}: {broken}");
            }
        }
    }

    /// Everything submitted becomes durable, and everything that follows from it happens, to the end.
    pub(crate) fn flush(&mut self) {
        loop {
            self.turns();
            if self.memory.flush(ShardId(0), usize::MAX) == 0 {
                break;
            }
        }
    }

    /// The oldest batch becomes durable, and what follows from it happens. False: there is none.
    pub(crate) fn flush_one(&mut self) -> bool {
        let flushed = self.memory.flush(ShardId(0), 1) > 0;
        self.turns();
        flushed
    }

    /// The ticket that this turn's batch will have.
    pub(crate) fn ticket(&self) -> Ticket {
        self.store.next_ticket()
    }

    /// All that the queues and the store are, for whoever compares.
    pub(crate) fn write_all(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        write!(out, "{:?} {:?} {:?} {:?}", self.queues, self.memory, self.ring.keys(), self.given)
    }

    /// A producer sends a number.
    pub(crate) fn send(&mut self, id: QueueId, number: u64, priority: u8, persistent: bool) -> u64 {
        let body = self.batch.copy_body(number.to_string().as_bytes());
        let flags = if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() };
        let head = Head {
            arrived_ms: self.now_us / 1_000,
            ttl_ms: 60_000,
            message_format: 0,
            priority,
            flags,
            format: ContentFormat::Amqp10,
        };
        let place = Resident { buffer: self.open, offset: body.offset, length: body.length };
        let input = Input::Enqueue(Enqueue {
            head,
            content: Content::Body(place),
            stored: Some(Stored::Body(body)),
            overlay: None,
        });
        self.handle(id, input).sequence().unwrap()
    }

    /// A file that is safe.
    fn large_file(&mut self, length: usize) -> LargeId {
        self.files += 1;
        let file = LargeId(self.store.run() << 40 | self.files);
        self.store.large(LargeOp::Begin { id: file });
        self.store.large(LargeOp::Chunk { id: file, bytes: Bytes::from(vec![7; length]) });
        self.store.large(LargeOp::End { id: file });
        file
    }

    /// A producer sends a large message, whose file is safe.
    pub(crate) fn send_large(&mut self, id: QueueId, length: usize) -> u64 {
        let file = self.large_file(length);
        let head = Head {
            arrived_ms: 0,
            ttl_ms: 0,
            message_format: 0,
            priority: 4,
            flags: HeadFlags::PERSISTENT,
            format: ContentFormat::Amqp10,
        };
        let length = length as u64;
        let content = Content::Large { id: file, length };
        let stored = Some(Stored::Large { id: file, length });
        self.handle(id, Input::Enqueue(Enqueue { head, content, stored, overlay: None })).sequence().unwrap()
    }

    /// The content of a delivery could not be read.
    pub(crate) fn unreadable(&mut self, got: &Got) -> bool {
        let done = self.handle(got.queue, Input::Unreadable { key: got.key }).settled();
        self.run_effects(got.queue);
        done
    }

    /// Persistent numbers 0 to `count` - 1 of the usual priority, durable.
    pub(crate) fn send_all(&mut self, count: u64) {
        for number in 0..count {
            self.send(Q, number, 4, true);
        }
        self.flush();
    }

    pub(crate) fn subscribe(&mut self, id: QueueId, consumer: u64) -> ConsumerId {
        let consumer = ConsumerId(consumer);
        self.handle(id, Input::Subscribe { consumer, pre_settled: false });
        consumer
    }

    /// Grants credit for this many more deliveries.
    pub(crate) fn credit(&mut self, id: QueueId, consumer: ConsumerId, credit: u64) {
        let limit = self.given.get(&consumer).copied().unwrap_or(0) + credit;
        self.handle(id, Input::Credit { consumer, limit });
    }

    /// What a consumer got since it was asked last.
    pub(crate) fn take(&mut self, consumer: ConsumerId) -> Vec<Got> {
        self.got.remove(&consumer).unwrap_or_default().into()
    }

    /// Grants credit, lets everything happen, and gives back what came.
    pub(crate) fn receive(&mut self, id: QueueId, consumer: ConsumerId, credit: u64) -> Vec<Got> {
        self.credit(id, consumer, credit);
        self.flush();
        self.take(consumer)
    }

    pub(crate) fn settle(&mut self, got: &Got, outcome: Outcome) -> bool {
        let settled = self.handle(got.queue, Input::Settle { key: got.key, outcome }).settled();
        self.run_effects(got.queue);
        settled
    }

    pub(crate) fn unsubscribe(&mut self, id: QueueId, consumer: ConsumerId, lost: bool) {
        self.handle(id, Input::Unsubscribe { consumer, lost });
    }

    /// A consumer that came for this reads all there is, and the numbers and earlier deliveries are told.
    pub(crate) fn drain(&mut self, id: QueueId, consumer: u64) -> Vec<(u64, u32)> {
        let consumer = self.subscribe(id, consumer);
        let got = self.receive(id, consumer, 1 << 40);
        got.iter().map(|g| (g.number(), g.deliveries)).collect()
    }
}

pub(crate) fn seen() -> Outcome {
    Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::new() }
}
