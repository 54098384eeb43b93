//! A shard's queues: where they are, what they want done, what waits for the disk. The other half of a shard are its
//! connections; both meet in requests and answers (`mail.rs`).
//!
//! `requests` (what links ask), `bodies` (the turn's batch and the ring), `dead_letters` (from queue to queue). Must not know
//! protocols or connections. The store is not called from here: a batch and requests for it are gathered, and the shard hands
//! them over at the end of the turn.

mod bodies;
mod commands;
mod dead_letters;
mod limits;
mod once;
mod orphans;
mod requests;
mod staged;

pub(crate) use once::OnceEnqueue;

use crate::confirms::Confirms;
use crate::directory::Directory;
use crate::io::{Effect, Level, Mail};
use crate::mail::{Answer, Body, Deliver, LinkName, LinkRef, TxnAnswer};
use crate::ring::Ring;
use crate::topology::Topology;
use crate::transactions::Transactions;
use crate::{Config, Counters};
use commands::Commands;
use dead_letters::Relocating;
use limits::Producers;
use packhorse_model::{
    BrokerId, ClientSession, ConnectionId, Content, DuplicateId, EntryKey, LargeId, Map, Now, Overlay, QueueId,
    QueueName, QueueSettings, Seed, ShardId,
};
use packhorse_queue::{self as queue, ConsumerId, DeliveryKey, Input, Queue, Turn};
use packhorse_store::{Batch, LargeOp, Load, LoadLarge, RecoveredEntry, RecoveredProducer, Ticket};
use packhorse_txn::ReplyTo;
use staged::Staged;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Entries that one call of a queue's dispatch hands out; then the links get a word.
const DISPATCH_RUN: u32 = 64;

/// A queue in its place.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: QueueId,
    pub(crate) queue: Queue,
    /// In the list of queues to be dispatched.
    ready: bool,
    /// In the list of queues that wait for the disk.
    awaiting: bool,
    /// In the list of queues that have a deadline.
    timed: bool,
    /// Of a queue with limits.
    producers: Producers,
}

/// A consumer of one of this shard's queues.
#[derive(Debug)]
struct Subscriber {
    link: LinkRef,
    slot: u32,
    /// It drains: the limit of its request.
    draining: Option<u64>,
}

/// Who is told of a settlement: a link and its number for the delivery.
type Reply = (LinkRef, u32);

/// What is due when a ticket is durable.
#[derive(Debug)]
pub(crate) enum Due {
    /// Tell a producer.
    Confirm { link: LinkRef, first: u32, last: u32 },
    /// Tell a consumer.
    Settled { link: LinkRef, delivery: u32 },
    /// A dead letter has arrived at this queue of ours, or at that of another shard.
    Arrived { to: EntryKey, level: u8 },
    /// A producer that numbers its messages is known to its queue.
    Opened { link: LinkRef, queue: QueueId, floor: u64 },
    /// A change of the directory is safe.
    Topology(crate::topology::Change),
    /// Tell an operator.
    Command { id: u64, reply: crate::Reply },
}

/// See the module.
pub(crate) struct Queues {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: ShardId,
    pub(crate) directory: Directory,
    pub(crate) topology: Topology,
    pub(crate) transactions: Transactions,
    pub(crate) broker: BrokerId,
    pub(crate) held: slab::Slab<Held>,
    slots: Map<QueueId, u32>,
    subscribers: Map<ConsumerId, Subscriber>,
    next_consumer: u64,
    draining: Vec<ConsumerId>,
    commands: Commands,
    relocating: BTreeMap<EntryKey, Relocating>,
    /// Who is told of an entry that waits for room in its dead-letter queue.
    postponed: BTreeMap<EntryKey, Reply>,
    ready: Vec<u32>,
    awaiting: Vec<u32>,
    timed: Vec<u32>,
    pub(crate) due: Confirms<Due>,

    now: Now,
    pub(crate) ticket: Ticket,
    pub(crate) batch: Batch,
    /// Numbers of the batch's pieces in the ring, by index; 0 = not yet taken.
    pieces: Vec<u64>,
    pub(crate) ring: Ring,
    volatile: Vec<u8>,
    volatile_buffer: u64,
    volatile_entries: Vec<(u8, EntryKey)>,
    staged: Staged,
    /// Messages with a duplicate id that came since those of all queues were counted.
    identified: u32,
    started_at_ms: u64,
    run: u64,
    large_count: u32,

    /// Loads that were not handed over yet, and how many are under way.
    pub(crate) loads: VecDeque<Load>,
    loading: u64,
    pub(crate) large_ops: Vec<LargeOp>,
    pub(crate) large_loads: Vec<LoadLarge>,
    /// Who asked for a part of a large message, by token.
    pub(crate) large_readers: Map<u64, LinkRef>,
    next_token: u64,
    /// Who streams a large message in.
    pub(crate) large_writers: Map<LargeId, LinkRef>,
    orphans: Vec<orphans::Orphan>,

    /// The store is behind: producers get no new credit.
    pub(crate) behind: bool,
    /// Producers that got none for that reason.
    pub(crate) starved: Vec<LinkRef>,
    /// Links by what makes them the same.
    pub(crate) names: Map<LinkName, LinkRef>,
    /// Answers to links of this shard.
    pub(crate) answers: Vec<(LinkRef, Answer)>,
    /// The same of transactions.
    pub(crate) txn_answers: Vec<TxnAnswer>,
    /// Client sessions that ask for a commit's outcome: their other connections are over.
    pub(crate) taken_over: Vec<(ClientSession, ReplyTo)>,
    /// Links of this shard whose queue exists now, or cannot.
    pub(crate) resumed: Vec<LinkRef>,
    /// Queues that were deleted in this turn: links to them end.
    pub(crate) deleted: Vec<QueueId>,
    /// Queues that have other settings since this turn.
    pub(crate) changed: Vec<QueueId>,
    pub(crate) out: Vec<Effect>,
    effects: Vec<queue::Effect>,
    #[cfg(test)]
    pub(crate) unheard: Vec<crate::mail::Unheard>,
}

impl Queues {
    pub(crate) fn new(
        config: Arc<Config>,
        shard: ShardId,
        seed: Seed,
        run: u64,
        broker: BrokerId,
        started_at_ms: u64,
    ) -> Queues {
        let budget = config.memory_bytes / u64::from(config.shards);
        let pinned_max = config.transactions.max_memory_bytes / u64::from(config.shards);
        Queues {
            directory: Directory::new(config.shards, seed),
            topology: Topology::new(seed),
            transactions: Transactions::new(&config, shard, run, broker),
            broker,
            held: slab::Slab::new(),
            slots: seed.map(),
            subscribers: seed.map(),
            next_consumer: 1,
            draining: Vec::new(),
            commands: Commands::default(),
            relocating: BTreeMap::new(),
            postponed: BTreeMap::new(),
            ready: Vec::new(),
            awaiting: Vec::new(),
            timed: Vec::new(),
            due: Confirms::new(),
            now: Now::default(),
            ticket: Ticket(1),
            batch: Batch::default(),
            pieces: Vec::new(),
            ring: Ring::new(budget, pinned_max),
            volatile: Vec::new(),
            volatile_buffer: 0,
            volatile_entries: Vec::new(),
            staged: Staged::default(),
            identified: 0,
            started_at_ms,
            run,
            large_count: 0,
            loads: VecDeque::new(),
            loading: 0,
            large_ops: Vec::new(),
            large_loads: Vec::new(),
            large_readers: seed.map(),
            next_token: 1,
            large_writers: seed.map(),
            orphans: Vec::new(),
            behind: false,
            starved: Vec::new(),
            names: seed.map(),
            answers: Vec::new(),
            txn_answers: Vec::new(),
            taken_over: Vec::new(),
            resumed: Vec::new(),
            deleted: Vec::new(),
            changed: Vec::new(),
            out: Vec::new(),
            effects: Vec::new(),
            #[cfg(test)]
            unheard: Vec::new(),
            config,
            shard,
        }
    }

    /// The time of all that follows.
    pub(crate) fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// A number that no peer knows, another for each connection.
    pub(crate) fn secret(&self, connection: ConnectionId) -> u64 {
        use std::hash::BuildHasher;
        self.directory.hasher().hash_one(connection)
    }

    /// Broker time, ms.
    pub(crate) fn broker_ms(&self) -> u64 {
        self.started_at_ms + self.now.mono_ms()
    }

    /// Monotonic time, ms.
    pub(crate) fn mono_ms(&self) -> u64 {
        self.now.mono_ms()
    }

    pub(crate) fn log(&mut self, level: Level, connection: Option<ConnectionId>, text: String) {
        self.out.push(Effect::Log { level, connection, text });
    }

    pub(crate) fn mail(&mut self, to: ShardId, body: Body) {
        self.out.push(Effect::Mail { to, mail: Box::new(Mail(body)) });
    }

    /// The same mail to all other shards.
    pub(crate) fn mail_others(&mut self, mut body: impl FnMut() -> Body) {
        for other in 0..self.config.shards {
            if ShardId(other) != self.shard {
                self.mail(ShardId(other), body());
            }
        }
    }

    pub(crate) fn slot(&self, id: QueueId) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, id: QueueId, queue: Queue) {
        let slot = self.held.insert(Held {
            id,
            queue,
            ready: false,
            awaiting: false,
            timed: false,
            producers: Producers::default(),
        }) as u32;
        self.slots.insert(id, slot);
    }

    pub(crate) fn remove(&mut self, id: QueueId) {
        let Some(slot) = self.slots.remove(&id) else { return };
        self.held.remove(slot as usize);
        self.ready.retain(|s| *s != slot);
        self.awaiting.retain(|s| *s != slot);
        self.timed.retain(|s| *s != slot);
        let gone: Vec<_> = self.subscribers.iter().filter(|(_, s)| s.slot == slot).map(|(c, s)| (*c, s.link)).collect();
        for (consumer, link) in gone {
            self.subscribers.remove(&consumer);
            let why = "the queue was deleted".to_string();
            self.answer(link, Answer::Ended { condition: "amqp:resource-deleted", why });
        }
        self.forget_relocating(id);
        self.forget_commands(id);
        self.forget_staged(id);
    }

    pub(crate) fn new_queue(
        &self,
        id: QueueId,
        name: QueueName,
        settings: QueueSettings,
        next: u64,
        reserved: u64,
    ) -> Queue {
        let dead_letters =
            name.as_str() == self.config.dead_letter_queue || self.directory.names_dead_letter(name.as_str());
        let mut queue = Queue::new(id, name, settings, next, reserved, dead_letters);
        queue.remember_ids(self.config.duplicate_ids);
        queue
    }

    /// What queues of this name take a message without a word on durability for.
    pub(crate) fn default_durable(&self, id: QueueId) -> bool {
        self.directory.by_id(id).is_none_or(|known| known.settings.default_durable)
    }

    /// Whether producers of this queue ask it before they are given credit.
    pub(crate) fn limited(&self, id: QueueId) -> bool {
        self.directory.by_id(id).is_some_and(|known| known.settings.limits.any())
    }

    /// A queue from before this start; every shard hears of all.
    pub(crate) fn recovered_queue(
        &mut self,
        id: QueueId,
        name: QueueName,
        settings: QueueSettings,
        next: u64,
        reserved: u64,
    ) {
        self.directory.insert(id, name.clone(), settings.clone());
        if id.owner(self.config.shards) == self.shard {
            let queue = self.new_queue(id, name, settings, next, reserved);
            self.insert(id, queue);
        }
    }

    /// All queues are known: which of them take dead letters can be told only now.
    pub(crate) fn all_recovered(&mut self) {
        self.appoint_dead_letter_queues();
    }

    /// Tells each queue whether it is a dead-letter queue, after the directory changed.
    pub(crate) fn appoint_dead_letter_queues(&mut self) {
        let named: BTreeSet<&str> = self.directory.dead_letter_names().collect();
        for (_, held) in &mut self.held {
            let name = held.queue.name().as_str();
            let dead_letters = name == self.config.dead_letter_queue || named.contains(name);
            held.queue.set_dead_letters(dead_letters);
        }
        self.look_at_limits();
    }

    /// An entry from before this start.
    pub(crate) fn recovered(&mut self, entry: Box<RecoveredEntry>) {
        let Some(slot) = self.slot(entry.key.queue) else { return };
        self.tell(slot, Input::Recovered(entry));
    }

    /// A producer that numbers its messages, from before this start.
    pub(crate) fn recovered_producer(&mut self, told: Box<RecoveredProducer>) {
        let Some(slot) = self.slot(told.queue) else { return };
        self.tell(slot, Input::RecoveredProducer(told));
    }

    pub(crate) fn recovered_id(&mut self, queue: QueueId, id: DuplicateId, at_ms: u64) {
        let Some(slot) = self.slot(queue) else { return };
        self.tell(slot, Input::RecoveredId(id, at_ms));
    }

    /// Lets a queue handle an input and notes what follows from it.
    pub(crate) fn handle(&mut self, slot: u32, input: Input<'_>) -> queue::Answer {
        let broker_ms = self.broker_ms();
        let held = &mut self.held[slot as usize];
        let mut turn = Turn {
            now: self.now,
            broker_ms,
            ticket: self.ticket,
            batch: &mut self.batch,
            oldest_resident: self.ring.oldest(),
            short: self.ring.pins_much(),
        };
        let answer = held.queue.handle(input, &mut turn, &mut self.effects);
        self.note(slot);
        answer
    }

    /// The same, where nobody looks at the effects first.
    pub(crate) fn tell(&mut self, slot: u32, input: Input<'_>) -> queue::Answer {
        let answer = self.handle(slot, input);
        self.run_effects(slot);
        answer
    }

    /// Keeps the lists of queues that want a dispatch or wait for the disk.
    fn note(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if !held.timed && held.queue.next_deadline().is_some() {
            held.timed = true;
            self.timed.push(slot);
        }
        if !held.awaiting && held.queue.waits() {
            held.awaiting = true;
            self.awaiting.push(slot);
        }
        if !held.ready {
            held.ready = true;
            self.ready.push(slot);
        }
    }

    fn run_effects(&mut self, slot: u32) {
        self.run_effects_for(slot, None);
    }

    fn run_effects_for(&mut self, slot: u32, mut reply: Option<(DeliveryKey, (LinkRef, u32))>) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        let mut overlay = None;
        for effect in effects.drain(..) {
            match effect {
                queue::Effect::Deliver(deliver) => self.deliver(slot, &deliver, overlay.take()),
                queue::Effect::Overlay(told) => overlay = Some(told),
                queue::Effect::Load(load) => self.loads.push_back(load),
                queue::Effect::Relocate(relocation) => {
                    let reply = reply.take_if(|(key, _)| *key == relocation.key).map(|(_, reply)| reply);
                    self.relocate(slot, relocation, reply);
                }
                queue::Effect::Purged { token, count } => {
                    self.settle_postponed(slot);
                    self.purged(token, count);
                }
                queue::Effect::Moved { token, count } => self.moved(token, count),
                queue::Effect::Discard(id) => self.large_ops.push(LargeOp::Abort { id }),
                queue::Effect::Ahead(ahead) => self.write_ahead(ahead),
                queue::Effect::Gathered(gathered) => self.gathered(slot, *gathered),
                queue::Effect::Damaged { level: _, sequence } => {
                    let held = &self.held[slot as usize];
                    let text = format!(
                        "queue {}: entry {sequence} is damaged: its body failed its checksum or could not be read",
                        held.queue.name()
                    );
                    self.log(Level::Error, None, text);
                    self.settle_postponed(slot);
                }
            }
        }
        debug_assert!(self.effects.is_empty(), "whoever lets a queue handle something runs its effects");
        self.effects = effects;
    }

    fn deliver(&mut self, slot: u32, deliver: &queue::Deliver, overlay: Option<Box<Overlay>>) {
        let Some(subscriber) = self.subscribers.get(&deliver.consumer) else { return };
        let to = subscriber.link;
        let overlay = overlay.or_else(|| {
            let queue = &self.held[slot as usize].queue;
            let overlay = deliver.has_overlay().then(|| queue.overlay(deliver.key().level, deliver.sequence)).flatten();
            overlay.cloned().map(Box::new)
        });
        let content = deliver.content();
        let body = match content {
            Content::Body(place) if to.shard != self.shard => self.ring.get(place),
            _ => None,
        };
        let (key, head, deliveries) = (deliver.key(), deliver.head(), deliver.deliveries);
        self.answer(to, Answer::Deliver(Deliver { key, head, content, body, deliveries, overlay }));
    }

    /// One round over the queues that may have something to hand out; answers are left in `answers`. False: nothing is left.
    pub(crate) fn dispatch(&mut self) -> bool {
        let round = std::mem::take(&mut self.ready);
        let broker_ms = self.broker_ms();
        for slot in &round {
            let held = &mut self.held[*slot as usize];
            held.ready = false;
            let mut turn = Turn {
                now: self.now,
                broker_ms,
                ticket: self.ticket,
                batch: &mut self.batch,
                oldest_resident: self.ring.oldest(),
                short: self.ring.pins_much(),
            };
            let more = held.queue.dispatch(&mut turn, DISPATCH_RUN, &mut self.effects);
            if !held.awaiting && held.queue.waits() {
                held.awaiting = true;
                self.awaiting.push(*slot);
            }
            if !held.timed && held.queue.next_deadline().is_some() {
                held.timed = true;
                self.timed.push(*slot);
            }
            if more && !held.ready {
                held.ready = true;
                self.ready.push(*slot);
            }
            let blocked = held.producers.any_blocked();
            self.run_effects(*slot);
            if blocked {
                self.relieve_producers(*slot);
            }
        }
        !self.ready.is_empty()
    }

    /// Whether a queue waits for its next dispatch.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Tells consumers that drain and for which there is nothing more.
    pub(crate) fn answer_drains(&mut self) {
        let mut draining = std::mem::take(&mut self.draining);
        draining.retain(|consumer| {
            let Some(subscriber) = self.subscribers.get_mut(consumer) else { return false };
            let Some(limit) = subscriber.draining else { return false };
            let held = &self.held[subscriber.slot as usize];
            if held.queue.credit_of(*consumer) > 0 && (held.ready || !held.queue.quiet_for(*consumer)) {
                return true;
            }
            subscriber.draining = None;
            let (link, slot) = (subscriber.link, subscriber.slot);
            // The link's credit is used up from now on; what it grants anew is told.
            self.tell(slot, Input::Credit { consumer: *consumer, limit: 0 });
            self.answer(link, Answer::Drained { limit });
            false
        });
        draining.append(&mut self.draining);
        self.draining = draining;
    }

    /// Everything up to here is durable: queues learn it first, so that what becomes visible is visible before confirms go out.
    pub(crate) fn on_durable(&mut self, up_to: Ticket) {
        let before = self.due.durable();
        self.due.durable_up_to(up_to);
        self.transactions_durable(before, up_to);
        let round = std::mem::take(&mut self.awaiting);
        for slot in round {
            self.held[slot as usize].awaiting = false;
            if self.held[slot as usize].queue.awaits().is_some_and(|ticket| ticket <= up_to) {
                self.tell(slot, Input::Durable { up_to });
            } else {
                self.held[slot as usize].awaiting = true;
                self.awaiting.push(slot);
            }
        }
        while let Some(due) = self.due.release() {
            self.fall_due(due);
        }
    }

    /// What was done before this is safe.
    #[inline]
    fn fall_due(&mut self, due: Due) {
        match due {
            Due::Confirm { link, first, last } => self.answer(link, Answer::Enqueued { first, last }),
            Due::Settled { link, delivery } => self.answer(link, Answer::Settled { delivery }),
            Due::Arrived { to, level } => self.relocated(to, level, true),
            Due::Opened { link, queue, floor } => self.answer(link, Answer::ProducerOpened { queue, floor }),
            Due::Topology(change) => self.changed(change),
            Due::Command { id, reply } => self.reply(id, reply),
        }
    }

    /// Whether nothing waits for the disk: all that was submitted is durable, and nothing more is to be submitted.
    pub(crate) fn all_durable(&self) -> bool {
        self.batch.is_empty() && self.due.durable().next() >= self.ticket
    }

    /// When a queue wants to be dispatched without any other cause, monotonic µs.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let queues = self.timed.iter().filter_map(|slot| self.held[*slot as usize].queue.next_deadline());
        queues.chain(self.transactions_deadline()).min()
    }

    /// Queues whose time has come want a dispatch; transactions whose time is over are rolled back.
    pub(crate) fn tick(&mut self) {
        self.tick_transactions();
        let now_us = self.now.mono_us;
        let mut timed = std::mem::take(&mut self.timed);
        timed.retain(|slot| {
            let held = &mut self.held[*slot as usize];
            let deadline = held.queue.next_deadline();
            if deadline.is_some_and(|at| at <= now_us) && !held.ready {
                held.ready = true;
                self.ready.push(*slot);
            }
            held.timed = deadline.is_some();
            held.timed
        });
        self.timed = timed;
    }

    /// The counts of a queue.
    pub(crate) fn counters(&self, slot: u32) -> Counters {
        let stats = self.held[slot as usize].queue.stats();
        Counters {
            ready: stats.ready,
            scheduled: stats.scheduled,
            acquired: stats.acquired,
            removing: stats.removing,
            moving: stats.moving,
            damaged: stats.damaged,
            staged: stats.staged,
            prepared_in: stats.prepared_in,
            prepared_out: stats.prepared_out,
            depth: stats.depth,
            bytes: stats.bytes,
            consumers: stats.consumers,
            credit: stats.credit,
            enqueued_total: stats.enqueued_total,
            acknowledged_total: stats.acknowledged_total,
            redelivered_total: stats.redelivered_total,
            duplicates_total: stats.duplicates_total,
            expired_total: 0,
            dead_lettered_total: stats.dead_lettered_total,
            purged_total: stats.purged_total,
            moved_total: stats.moved_total,
        }
    }
}
