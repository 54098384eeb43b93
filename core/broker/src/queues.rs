//! A shard's queues and everything between them and the store: the turn's batch, the ring of bodies, what waits for the
//! disk, consumers, dead letters. The other half of a shard are its connections; both meet in requests and answers (`mail.rs`).
//!
//! Must not know protocols or connections. The store is not called from here: a batch and requests for it are gathered,
//! and the shard hands them over at the end of the turn.

use crate::confirms::Confirms;
use crate::directory::Directory;
use crate::frontend::amqp10::render;
use crate::io::{Effect, Level, Mail};
use crate::mail::{Answer, Body, Deliver, LinkName, LinkRef, Payload, Request};
use crate::ring::Ring;
use crate::topology::Topology;
use crate::{Config, Counters};
use bytes::Bytes;
use packhorse_model::{
    ConnectionId, Content, EntryKey, Head, LargeId, Map, Now, Outcome, Overlay, QueueId, QueueName, QueueSettings,
    Resident, Seed, ShardId,
};
use packhorse_queue::{self as queue, ConsumerId, DeliveryKey, Enqueue, Input, Queue, Turn};
use packhorse_store::{Batch, LargeOp, Load, LoadLarge, Loaded, Op, RecoveredEntry, Stored, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A body of at least this many bytes that came in many frames becomes a piece of its own instead of being copied.
const SHARE_FROM_BYTES: usize = 64 << 10;

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
    /// Being deleted: nothing enters any more.
    pub(crate) closing: bool,
}

/// A consumer of one of this shard's queues.
#[derive(Debug)]
struct Subscriber {
    link: LinkRef,
    slot: u32,
    /// It drains: the limit of its request.
    draining: Option<u64>,
}

/// What is due when a ticket is durable.
#[derive(Debug)]
pub(crate) enum Due {
    /// Tell a producer.
    Confirm { link: LinkRef, first: u32, last: u32 },
    /// Tell a consumer.
    Settled { link: LinkRef, delivery: u32 },
    /// A dead letter has arrived at this queue of ours, or at that of another shard.
    Arrived { to: EntryKey, level: u8 },
    /// A change of the directory is safe.
    Topology(crate::topology::Change),
}

/// An entry on its way to a dead-letter queue.
#[derive(Debug)]
struct Relocating {
    relocation: Box<queue::Relocation>,
    /// The store has got it since it was offered.
    spilled: bool,
    /// Who is told when it is there.
    reply: Option<(LinkRef, u32)>,
}

/// See the module.
pub(crate) struct Queues {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: ShardId,
    pub(crate) directory: Directory,
    pub(crate) topology: Topology,
    pub(crate) held: slab::Slab<Held>,
    slots: Map<QueueId, u32>,
    subscribers: Map<ConsumerId, Subscriber>,
    next_consumer: u64,
    draining: Vec<ConsumerId>,
    relocating: BTreeMap<EntryKey, Relocating>,
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
    started_at_ms: u64,
    run: u64,
    large_count: u32,

    pub(crate) loads: Vec<Load>,
    pub(crate) large_ops: Vec<LargeOp>,
    pub(crate) large_loads: Vec<LoadLarge>,
    /// Who asked for a part of a large message, by token.
    pub(crate) large_readers: Map<u64, LinkRef>,
    next_token: u64,
    /// Who streams a large message in.
    pub(crate) large_writers: Map<LargeId, LinkRef>,

    /// The store is behind: producers get no new credit.
    pub(crate) behind: bool,
    /// Producers that got none for that reason.
    pub(crate) starved: Vec<LinkRef>,
    /// Links by what makes them the same.
    pub(crate) names: Map<LinkName, LinkRef>,
    /// Answers to links of this shard.
    pub(crate) answers: Vec<(LinkRef, Answer)>,
    /// Links of this shard whose queue exists now, or cannot.
    pub(crate) resumed: Vec<LinkRef>,
    /// Queues that were deleted in this turn: links to them end.
    pub(crate) deleted: Vec<QueueId>,
    pub(crate) out: Vec<Effect>,
    effects: Vec<queue::Effect>,
}

impl Queues {
    pub(crate) fn new(config: Arc<Config>, shard: ShardId, seed: Seed, run: u64, started_at_ms: u64) -> Queues {
        let budget = config.memory_bytes / u64::from(config.shards);
        Queues {
            directory: Directory::new(config.shards, seed),
            topology: Topology::new(seed),
            held: slab::Slab::new(),
            slots: seed.map(),
            subscribers: seed.map(),
            next_consumer: 1,
            draining: Vec::new(),
            relocating: BTreeMap::new(),
            ready: Vec::new(),
            awaiting: Vec::new(),
            timed: Vec::new(),
            due: Confirms::new(),
            now: Now::default(),
            ticket: Ticket(1),
            batch: Batch::default(),
            pieces: Vec::new(),
            ring: Ring::new(budget),
            volatile: Vec::new(),
            volatile_buffer: 0,
            volatile_entries: Vec::new(),
            started_at_ms,
            run,
            large_count: 0,
            loads: Vec::new(),
            large_ops: Vec::new(),
            large_loads: Vec::new(),
            large_readers: seed.map(),
            next_token: 1,
            large_writers: seed.map(),
            behind: false,
            starved: Vec::new(),
            names: seed.map(),
            answers: Vec::new(),
            resumed: Vec::new(),
            deleted: Vec::new(),
            out: Vec::new(),
            effects: Vec::new(),
            config,
            shard,
        }
    }

    /// The time of all that follows.
    pub(crate) fn set_now(&mut self, now: Now) {
        self.now = now;
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

    // ---- places ----

    pub(crate) fn slot(&self, id: QueueId) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn insert(&mut self, id: QueueId, queue: Queue) {
        let slot =
            self.held.insert(Held { id, queue, ready: false, awaiting: false, timed: false, closing: false }) as u32;
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
        self.relocating.retain(|from, _| from.queue != id);
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
        Queue::new(id, name, settings, next, reserved, dead_letters)
    }

    /// What queues of this name take a message without a word on durability for.
    pub(crate) fn default_durable(&self, id: QueueId) -> bool {
        self.directory.by_id(id).is_none_or(|known| known.settings.default_durable)
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
    }

    /// An entry from before this start.
    pub(crate) fn recovered(&mut self, entry: Box<RecoveredEntry>) {
        let Some(slot) = self.slot(entry.key.queue) else { return };
        self.tell(slot, Input::Recovered(entry));
    }

    // ---- queues ----

    /// Lets a queue handle an input and notes what follows from it.
    pub(crate) fn handle(&mut self, slot: u32, input: Input<'_>) -> queue::Answer {
        let held = &mut self.held[slot as usize];
        let mut turn =
            Turn { now: self.now, ticket: self.ticket, batch: &mut self.batch, oldest_resident: self.ring.oldest() };
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
        if !held.awaiting && held.queue.awaits().is_some() {
            held.awaiting = true;
            self.awaiting.push(slot);
        }
        if !held.ready {
            held.ready = true;
            self.ready.push(slot);
        }
    }

    /// Takes a request for a queue, here or elsewhere.
    pub(crate) fn request(&mut self, id: QueueId, request: Request) {
        if id.owner(self.config.shards) != self.shard {
            self.mail(id.owner(self.config.shards), Body::Request { queue: id, request });
            return;
        }
        self.on_request(id, request);
    }

    /// A message for a queue. `settled`: the producer wants no answer.
    pub(crate) fn enqueue(
        &mut self,
        id: QueueId,
        from: LinkRef,
        delivery: u32,
        settled: bool,
        head: Head,
        payload: Payload<'_>,
    ) {
        if id.owner(self.config.shards) != self.shard {
            let payload = payload.into_owned();
            let request = Request::Enqueue { from, delivery, settled, head, payload };
            self.mail(id.owner(self.config.shards), Body::Request { queue: id, request });
            return;
        }
        match self.slot(id).filter(|slot| !self.held[*slot as usize].closing) {
            Some(slot) => {
                self.enter(slot, head, payload, None);
                if settled {
                } else if head.persistent() {
                    self.confirm(from, delivery);
                } else {
                    self.answer(from, Answer::Enqueued { first: delivery, last: delivery });
                }
            }
            None if settled => {
                self.log(
                    Level::Warn,
                    Some(from.connection),
                    format!("a settled message for queue {id} was dropped: the queue is gone"),
                );
            }
            None => {
                let why = "the queue was deleted".to_string();
                self.answer(from, Answer::NotEnqueued { delivery, condition: "amqp:resource-deleted", why });
            }
        }
    }

    /// Puts a message into a queue of this shard.
    fn enter(&mut self, slot: u32, head: Head, payload: Payload<'_>, overlay: Option<Box<Overlay>>) -> u64 {
        let persistent = head.persistent();
        let mut keep = None;
        let (content, stored) = match payload {
            Payload::Large { id, length } => (Content::Large { id, length }, Some(Stored::Large { id, length })),
            Payload::Slice(bytes) if persistent => self.copy(bytes),
            Payload::Shared(bytes) if persistent && bytes.len() < SHARE_FROM_BYTES => self.copy(&bytes),
            Payload::Shared(bytes) if persistent => {
                let body = self.batch.share_body(bytes);
                let buffer = self.piece(body.piece);
                (Content::Body(Resident { buffer, offset: 0, length: body.length }), Some(Stored::Body(body)))
            }
            Payload::Slice(bytes) => (self.copy_volatile(bytes), None),
            Payload::Shared(bytes) if bytes.len() < SHARE_FROM_BYTES => (self.copy_volatile(&bytes), None),
            Payload::Shared(bytes) => {
                let buffer = self.ring.open();
                let content = Content::Body(Resident { buffer, offset: 0, length: bytes.len() as u32 });
                keep = Some((buffer, bytes));
                (content, None)
            }
        };
        let entered = self.tell(slot, Input::Enqueue(Enqueue { head, content, stored, overlay }));
        let sequence = entered.sequence().expect("an enqueue draws a number");
        let key = EntryKey { queue: self.held[slot as usize].id, sequence };
        if let Some((buffer, bytes)) = keep {
            let held = bytes.len();
            self.ring.fill_volatile(buffer, bytes, held, vec![(head.level(), key)]);
        } else if stored.is_none() {
            self.volatile_entries.push((head.level(), key));
        }
        sequence
    }

    fn copy(&mut self, bytes: &[u8]) -> (Content, Option<Stored>) {
        let body = self.batch.copy_body(bytes);
        let buffer = self.piece(0);
        let content = Content::Body(Resident { buffer, offset: body.offset, length: body.length });
        (content, Some(Stored::Body(body)))
    }

    fn copy_volatile(&mut self, bytes: &[u8]) -> Content {
        if self.volatile_buffer == 0 {
            self.volatile_buffer = self.ring.open();
        }
        let offset = self.volatile.len() as u32;
        self.volatile.extend_from_slice(bytes);
        Content::Body(Resident { buffer: self.volatile_buffer, offset, length: bytes.len() as u32 })
    }

    /// The number in the ring of a piece of the batch.
    fn piece(&mut self, index: u32) -> u64 {
        let index = index as usize;
        if self.pieces.len() <= index {
            self.pieces.resize(index + 1, 0);
        }
        if self.pieces[index] == 0 {
            self.pieces[index] = self.ring.open();
        }
        self.pieces[index]
    }

    fn confirm(&mut self, link: LinkRef, delivery: u32) {
        if let Some(Due::Confirm { link: l, last, .. }) = self.due.last_mut(self.ticket)
            && *l == link
            && last.wrapping_add(1) == delivery
        {
            *last = delivery;
            return;
        }
        self.due.wait(self.ticket, Due::Confirm { link, first: delivery, last: delivery });
    }

    pub(crate) fn on_request(&mut self, id: QueueId, request: Request) {
        match request {
            Request::Enqueue { from, delivery, settled, head, payload } => {
                self.enqueue(id, from, delivery, settled, head, payload);
            }
            Request::Subscribe { from, pre_settled } => self.subscribe(id, from, pre_settled),
            Request::Credit { consumer, limit, drain } => {
                let Some(subscriber) = self.subscribers.get_mut(&consumer) else { return };
                if drain && subscriber.draining.is_none() {
                    self.draining.push(consumer);
                }
                subscriber.draining = drain.then_some(limit);
                let slot = subscriber.slot;
                self.tell(slot, Input::Credit { consumer, limit });
            }
            Request::Settle { key, outcome, reply } => self.settle(id, key, outcome, reply),
            Request::Unsubscribe { consumer, lost } => {
                let Some(subscriber) = self.subscribers.remove(&consumer) else { return };
                self.tell(subscriber.slot, Input::Unsubscribe { consumer, lost });
            }
        }
    }

    fn subscribe(&mut self, id: QueueId, from: LinkRef, pre_settled: bool) {
        let Some(slot) = self.slot(id).filter(|slot| !self.held[*slot as usize].closing) else {
            let why = "the queue was deleted".to_string();
            self.answer(from, Answer::Ended { condition: "amqp:not-found", why });
            return;
        };
        let consumer = ConsumerId(self.next_consumer);
        self.next_consumer += 1;
        self.subscribers.insert(consumer, Subscriber { link: from, slot, draining: None });
        self.tell(slot, Input::Subscribe { consumer, pre_settled });
        self.answer(from, Answer::Subscribed { queue: id, consumer });
    }

    fn settle(&mut self, id: QueueId, key: DeliveryKey, outcome: Outcome, reply: Option<(LinkRef, u32)>) {
        let Some(slot) = self.slot(id) else {
            if let Some((link, delivery)) = reply {
                self.answer(link, Answer::Settled { delivery });
            }
            return;
        };
        let outcome = self.with_earlier_annotations(slot, key, outcome);
        let first = self.effects.len();
        self.handle(slot, Input::Settle { key, outcome });
        // A dead letter's answer waits until the letter has arrived.
        let relocates = self.effects[first..].iter().any(|e| matches!(e, queue::Effect::Relocate(r) if r.key == key));
        if relocates {
            self.run_effects_for(slot, reply.map(|reply| (key, reply)));
            return;
        }
        self.run_effects(slot);
        if let Some((link, delivery)) = reply {
            self.settled_when_durable(link, delivery);
        }
    }

    fn settled_when_durable(&mut self, link: LinkRef, delivery: u32) {
        if self.batch.is_empty() {
            self.answer(link, Answer::Settled { delivery });
        } else {
            self.batch.require_flush();
            self.due.wait(self.ticket, Due::Settled { link, delivery });
        }
    }

    /// A `modified` says what to add; the queue keeps the whole of what was added.
    fn with_earlier_annotations(&self, slot: u32, key: DeliveryKey, mut outcome: Outcome) -> Outcome {
        if let Outcome::ReturnSeen { annotations, .. } | Outcome::ReturnModified { annotations, .. } = &mut outcome
            && !annotations.is_empty()
            && let Some(overlay) = self.held[slot as usize].queue.overlay(key.level, key.sequence)
            && !overlay.annotations.is_empty()
        {
            *annotations = render::merge_annotations(&overlay.annotations, annotations);
        }
        outcome
    }

    /// To a link, here or elsewhere.
    pub(crate) fn answer(&mut self, to: LinkRef, answer: Answer) {
        if to.shard == self.shard {
            self.answers.push((to, answer));
        } else {
            self.mail(to.shard, Body::Answer { to, answer });
        }
    }

    // ---- effects of queues ----

    fn run_effects(&mut self, slot: u32) {
        self.run_effects_for(slot, None);
    }

    fn run_effects_for(&mut self, slot: u32, mut reply: Option<(DeliveryKey, (LinkRef, u32))>) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut overlay = None;
        for effect in effects.drain(..) {
            match effect {
                queue::Effect::Deliver(deliver) => self.deliver(slot, &deliver, overlay.take()),
                queue::Effect::Overlay(told) => overlay = Some(told),
                queue::Effect::Load(load) => self.loads.push(load),
                queue::Effect::Relocate(relocation) => {
                    let reply = reply.take_if(|(key, _)| *key == relocation.key).map(|(_, reply)| reply);
                    self.relocate(slot, relocation, reply);
                }
                queue::Effect::Purged { .. } => {}
                queue::Effect::Damaged { level: _, sequence } => {
                    let held = &self.held[slot as usize];
                    let text = format!(
                        "queue {}: entry {sequence} is damaged: its body failed its checksum or could not be read",
                        held.queue.name()
                    );
                    self.log(Level::Error, None, text);
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
        for slot in &round {
            let held = &mut self.held[*slot as usize];
            held.ready = false;
            let mut turn = Turn {
                now: self.now,
                ticket: self.ticket,
                batch: &mut self.batch,
                oldest_resident: self.ring.oldest(),
            };
            let more = held.queue.dispatch(&mut turn, DISPATCH_RUN, &mut self.effects);
            if !held.awaiting && held.queue.awaits().is_some() {
                held.awaiting = true;
                self.awaiting.push(*slot);
            }
            if more && !held.ready {
                held.ready = true;
                self.ready.push(*slot);
            }
            self.run_effects(*slot);
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

    // ---- dead letters ----

    fn relocate(&mut self, slot: u32, relocation: Box<queue::Relocation>, reply: Option<(LinkRef, u32)>) {
        let held = &self.held[slot as usize];
        let from = EntryKey { queue: held.id, sequence: relocation.key.sequence };
        let name =
            held.queue.settings().dead_letter.as_ref().map_or(self.config.dead_letter_queue.as_str(), |n| n.as_str());
        let target = self.directory.by_name(name).map(|known| (known.id, known.owner));
        let name = name.to_string();
        match target {
            Some((id, owner)) if owner == self.shard => {
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                let Some(relocating) = self.relocating.get(&from) else { return };
                let relocation = &relocating.relocation;
                let (head, content, overlay) = (relocation.head, relocation.content, relocation.overlay.clone());
                let stored = relocation.stored;
                let to = self.reserve(id, head, content, None, stored, overlay);
                self.on_reserved(from, to, head.level());
            }
            Some((id, owner)) => {
                let (head, overlay) = (relocation.head, relocation.overlay.clone());
                let (content, bytes) = match relocation.content {
                    Content::Body(place) if !relocation.stored => (relocation.content, self.ring.get(place)),
                    Content::Body(place) => (Content::Body(Resident { buffer: 0, ..place }), None),
                    large => (large, None),
                };
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                self.mail(owner, Body::Reserve { from, to: id, head, content, bytes, overlay });
            }
            None => {
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                self.want_dead_letter_queue(&name, from);
            }
        }
    }

    /// The dead-letter queue exists now (or cannot): entries that waited for it go on.
    pub(crate) fn relocate_again(&mut self, from: EntryKey, exists: bool) {
        let Some(Relocating { mut relocation, spilled, reply }) = self.relocating.remove(&from) else { return };
        let Some(slot) = self.slot(from.queue) else { return };
        if exists {
            relocation.stored |= spilled;
            self.relocate(slot, relocation, reply);
        } else {
            self.tell(slot, Input::RelocateFailed { key: relocation.key });
        }
    }

    /// Keeps a place in a dead-letter queue of this shard.
    pub(crate) fn reserve(
        &mut self,
        id: QueueId,
        head: Head,
        content: Content,
        bytes: Option<Bytes>,
        stored: bool,
        overlay: Box<Overlay>,
    ) -> Option<EntryKey> {
        let slot = self.slot(id).filter(|slot| !self.held[*slot as usize].closing)?;
        let mut keep = None;
        let content = match (content, bytes) {
            (Content::Body(place), Some(bytes)) => {
                let buffer = self.ring.open();
                keep = Some((buffer, bytes));
                Content::Body(Resident { buffer, offset: 0, ..place })
            }
            (content, _) => content,
        };
        let answer = self.tell(slot, Input::Reserve { head, content, stored, overlay });
        let to = EntryKey { queue: id, sequence: answer.sequence()? };
        if let Some((buffer, bytes)) = keep {
            let held = bytes.len();
            self.ring.fill_volatile(buffer, bytes, held, vec![(head.level(), to)]);
        } else if !stored && let Content::Body(place) = content {
            if place.buffer == self.volatile_buffer {
                self.volatile_entries.push((head.level(), to));
            } else {
                self.ring.also_in(place.buffer, (head.level(), to));
            }
        }
        Some(to)
    }

    /// The place in the dead-letter queue is known: write the move.
    pub(crate) fn on_reserved(&mut self, from: EntryKey, to: Option<EntryKey>, level: u8) {
        let Some(Relocating { relocation, reply, .. }) = self.relocating.remove(&from) else {
            // The source was deleted meanwhile.
            if let Some(to) = to {
                self.relocated(to, level, false);
            }
            return;
        };
        let Some(slot) = self.slot(from.queue) else { return };
        let Some(to) = to else {
            self.tell(slot, Input::RelocateFailed { key: relocation.key });
            return;
        };
        let stored = relocation.stored;
        let done = self.tell(slot, Input::Relocate { key: relocation.key, to, stored }).settled();
        if done && stored {
            self.batch.require_flush();
            self.due.wait(self.ticket, Due::Arrived { to, level });
        } else {
            self.relocated(to, level, done);
        }
        if let Some((link, delivery)) = reply {
            self.settled_when_durable(link, delivery);
        }
    }

    /// The reserved entry has come, or never will: tell its queue, here or elsewhere.
    pub(crate) fn relocated(&mut self, to: EntryKey, level: u8, done: bool) {
        let owner = to.queue.owner(self.config.shards);
        if owner != self.shard {
            self.mail(owner, Body::Relocated { to, level, done });
            return;
        }
        let Some(slot) = self.slot(to.queue) else { return };
        let sequence = to.sequence;
        let input = if done { Input::Arrived { level, sequence } } else { Input::Abandon { level, sequence } };
        self.tell(slot, input);
    }

    // ---- the store ----

    /// Everything up to here is durable: queues learn it first, so that what becomes visible is visible before confirms go out.
    pub(crate) fn on_durable(&mut self, up_to: Ticket) {
        self.due.durable_up_to(up_to);
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
            match due {
                Due::Confirm { link, first, last } => self.answer(link, Answer::Enqueued { first, last }),
                Due::Settled { link, delivery } => self.answer(link, Answer::Settled { delivery }),
                Due::Arrived { to, level } => self.relocated(to, level, true),
                Due::Topology(change) => self.changed(change),
            }
        }
    }

    /// Whether nothing waits for the disk: all that was submitted is durable, and nothing more is to be submitted.
    pub(crate) fn all_durable(&self) -> bool {
        self.batch.is_empty() && self.due.durable().next() >= self.ticket
    }

    /// Bodies are in memory now.
    pub(crate) fn on_loaded(&mut self, loaded: &Loaded) {
        let buffer = self.ring.open();
        self.ring.fill(buffer, loaded.buffer.clone(), loaded.buffer.len(), Ticket(0));
        if let Some(slot) = self.slot(loaded.load.queue) {
            self.tell(slot, Input::Loaded { buffer, loaded });
        }
    }

    /// Makes the bytes that were copied in so far readable.
    pub(crate) fn seal_volatile(&mut self) {
        if self.volatile_buffer != 0 {
            let next = self.ring.buffer_for(self.volatile.len());
            let bytes = std::mem::replace(&mut self.volatile, next);
            let held = bytes.capacity();
            let entries = std::mem::take(&mut self.volatile_entries);
            self.ring.fill_volatile(std::mem::take(&mut self.volatile_buffer), Bytes::from(bytes), held, entries);
        }
    }

    /// Takes the turn's batch, if there is anything in it; its bodies stay in the ring.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        if self.batch.is_empty() {
            debug_assert!(self.pieces.is_empty(), "bodies come with operations");
            return None;
        }
        // The next turn will bring about as much as this one.
        let copied = self.batch.copied_bytes();
        let next = if copied == 0 { Vec::new() } else { self.ring.buffer_for(copied) };
        let mut batch = std::mem::replace(&mut self.batch, Batch::with_buffer(next));
        let copied = batch.copied_capacity();
        for (index, piece) in batch.seal().iter().enumerate() {
            if let Some(buffer) = self.pieces.get(index).copied().filter(|b| *b != 0) {
                let held = if index == 0 { copied } else { piece.len() };
                self.ring.fill(buffer, piece.clone(), held, self.ticket);
            }
        }
        self.pieces.clear();
        Some(batch)
    }

    /// Evicts bodies while memory is short; non-persistent ones go to the store first.
    pub(crate) fn reclaim(&mut self) {
        while let Some(spill) = self.ring.reclaim(self.due.durable()) {
            let mut piece = None;
            for (level, key) in &spill.entries {
                let Some(slot) = self.slot(key.queue) else { continue };
                let queue = &mut self.held[slot as usize].queue;
                let Some((head, place)) = queue.spill(*level, key.sequence, spill.buffer) else { continue };
                if let Some(relocating) = self.relocating.get_mut(key) {
                    relocating.spilled = true;
                }
                let piece = *piece.get_or_insert_with(|| self.batch.share_piece(spill.bytes.clone()));
                let body = packhorse_store::Body { piece, offset: place.offset, length: place.length };
                self.batch.push(Op::Enqueue {
                    queue: key.queue,
                    sequence: key.sequence,
                    head,
                    content: Stored::Body(body),
                    volatile: true,
                });
            }
            let after = if piece.is_some() { self.ticket } else { Ticket(0) };
            self.ring.spilled(spill, after);
        }
    }

    /// A file for a large message. Unique for ever: it names the start, the shard and a count.
    pub(crate) fn new_large(&mut self) -> LargeId {
        self.large_count += 1;
        LargeId(self.run << 40 | u64::from(self.shard.0) << 32 | u64::from(self.large_count))
    }

    /// Asks for a part of a large message, for a link of this shard.
    pub(crate) fn read_large(&mut self, link: LinkRef, id: LargeId, offset: u64, length: u32) {
        let token = self.next_token;
        self.next_token += 1;
        self.large_readers.insert(token, link);
        self.large_loads.push(LoadLarge { token, id, offset, length });
    }

    /// When a queue wants to be dispatched without any other cause, monotonic µs.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timed.iter().filter_map(|slot| self.held[*slot as usize].queue.next_deadline()).min()
    }

    /// Queues whose time has come want a dispatch.
    pub(crate) fn tick(&mut self) {
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
            prepared_in: 0,
            prepared_out: 0,
            depth: stats.depth,
            bytes: stats.bytes,
            consumers: stats.consumers,
            credit: stats.credit,
            enqueued_total: stats.enqueued_total,
            acknowledged_total: stats.acknowledged_total,
            redelivered_total: stats.redelivered_total,
            expired_total: 0,
            dead_lettered_total: stats.dead_lettered_total,
            purged_total: stats.purged_total,
        }
    }
}
