//! A shard: its connections, its queues, its handle on the store, and the turn that moves all three.
//!
//! A turn is: inputs by [`Shard::handle`], then [`Shard::end_turn`], in which what has become durable is told to queues and
//! links, queues are dispatched, everything new is one batch for the store, and each connection's words go into its output.
//! Must not know sockets, threads or clocks.

use crate::frontend::amqp10::Connection;
use crate::io::{Effect, Input, Level, Lost, Mail};
use crate::mail::{Answer, Body, LinkRef, Request, TxnAnswer};
use crate::queues::Queues;
use crate::{Alarm, Command, Config, Counters, QueueInDoubt, Reply, ShardReport};
use packhorse_model::{ClientSession, ConnectionId, Map, Now, Seed, ShardId};
use packhorse_queue::Stats;
use packhorse_store::{Event, Recovered, Store};
use packhorse_txn::ReplyTo;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Unflushed bytes past which producers get no new credit (`architecture.md` §2, "Nothing in core blocks").
const NO_CREDIT_FROM_BYTES: u64 = 16 << 20;
/// … past which connections that publish are not read.
const NO_READING_FROM_BYTES: u64 = 128 << 20;
/// … below which they are read again.
const READING_BELOW_BYTES: u64 = 64 << 20;

/// Rounds of dispatch in one turn; what is left waits for the next, so that nobody else starves.
const ROUNDS: usize = 64;

const DISK_FULL: &str = "the disk of the data directory is full: what is sent waits and is not confirmed, and so do \
    acknowledgements; free some space, and all goes on by itself";
const DAMAGED: &str = "messages are damaged and set aside: their bodies failed their checksums or could not be read; each queue's \
    `damaged` says how many. What is behind them is delivered. A start with the files from a backup brings them back, deleting their queue removes \
    them";
const DISK_HAS_ROOM: &str = "there is room again on the disk of the data directory";

/// How long an orderly stop waits for peers to answer our `close`.
const STOP_PATIENCE_US: u64 = 2_000_000;

/// Things recovered in one step.
const RECOVER_PAGE: usize = 4096;

/// How far recovery has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Queues known so far.
    pub queues: u64,
    /// Entries of this shard so far.
    pub entries: u64,
    /// Nothing is left: the shard may take inputs.
    pub done: bool,
}

/// A connection in its place.
struct Held {
    connection: Box<Connection>,
    /// In the list of those that have something to say at the end of the turn.
    touched: bool,
    /// The earliest time at which the timer heap knows it, ms.
    alarm_ms: Option<u64>,
}

/// See the module.
pub struct Shard<S> {
    pub(crate) queues: Queues,
    store: S,
    connections: slab::Slab<Held>,
    places: Map<ConnectionId, u32>,
    touched: Vec<u32>,
    /// Connections that are over: their last bytes are written, then they are forgotten.
    over: Vec<u32>,
    alarms: BinaryHeap<Reverse<(u64, u32, ConnectionId)>>,
    events: Vec<Event>,
    recovered: Vec<Recovered>,
    recovery: Recovery,
    /// Something happened outside a turn that a turn must follow.
    wake: bool,
    stop_at_us: Option<u64>,
    /// The same while it is waited for.
    stop_deadline_us: Option<u64>,
    stopped: bool,
    failed: bool,
    /// The store waits for room in its file system.
    full: bool,
    /// The store is so far behind that publishing connections are not read.
    choked: bool,
}

impl<S: Store> Shard<S> {
    /// A shard without connections. Call [`Shard::recover_step`] until it is done before anything else.
    pub fn new(config: Arc<Config>, id: ShardId, seed: Seed, store: S) -> Shard<S> {
        let mut queues = Queues::new(config, id, seed, store.run(), store.broker(), store.started_at_ms());
        queues.ticket = store.next_ticket();
        Shard {
            queues,
            store,
            connections: slab::Slab::new(),
            places: seed.map(),
            touched: Vec::new(),
            over: Vec::new(),
            alarms: BinaryHeap::new(),
            events: Vec::new(),
            recovered: Vec::new(),
            recovery: Recovery::default(),
            wake: false,
            stop_at_us: None,
            stop_deadline_us: None,
            stopped: false,
            failed: false,
            full: false,
            choked: false,
        }
    }

    /// Its number.
    pub fn id(&self) -> ShardId {
        self.queues.shard
    }

    /// The store handle, for figures.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Gives the store handle back, for an orderly end.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Recovers the next page of what the store holds.
    pub fn recover_step(&mut self, now: Now) -> Recovery {
        self.queues.set_now(now);
        let mut page = std::mem::take(&mut self.recovered);
        let more = self.store.recover(RECOVER_PAGE, &mut page);
        for thing in page.drain(..) {
            match thing {
                Recovered::Queue { id, name, settings, next, reserved } => {
                    self.recovery.queues += 1;
                    self.queues.recovered_queue(id, name, settings, next, reserved);
                }
                Recovered::NextQueueId(id) => self.queues.topology.used(id),
                Recovered::Entry(entry) => {
                    self.recovery.entries += 1;
                    self.queues.recovered(entry);
                }
                Recovered::BranchOp(op) => self.queues.recovered_op(op),
                Recovered::Producer(producer) => self.queues.recovered_producer(producer),
                Recovered::DuplicateId { queue, id, at_ms } => self.queues.recovered_id(queue, id, at_ms),
                transaction @ (Recovered::Branch(_) | Recovered::Completed { .. } | Recovered::Session(_)) => {
                    self.queues.recovered_transaction(transaction);
                }
            }
        }
        self.recovered = page;
        self.recovery.done = !more;
        if !more {
            self.queues.all_recovered();
        }
        self.recovery
    }

    // ---- inputs ----

    /// Takes an input.
    pub fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Effect>) {
        self.queues.set_now(now);
        match input {
            Input::Received { connection, bytes } => self.with(connection, |c, queues| c.receive(queues, bytes)),
            Input::Accepted { connection, endpoint } => {
                if self.stop_at_us.is_some() {
                    out.push(Effect::Close { connection });
                    return;
                }
                let slot = self.connections.vacant_key() as u32;
                let made = Connection::new(connection, slot, endpoint, &mut self.queues);
                self.connections.insert(Held { connection: Box::new(made), touched: false, alarm_ms: None });
                self.places.insert(connection, slot);
                self.touch(slot);
            }
            Input::Lost { connection, how } => {
                let how = match &how {
                    Lost::Eof => "the peer closed its socket",
                    Lost::Error(text) => text,
                };
                self.with(connection, |c, queues| c.lost(queues, how));
            }
            Input::Admin { id, command: Command::Status } => {
                let report = self.report();
                self.queues.reply(id, Reply::Shard(Box::new(report)));
            }
            Input::Admin { id, command } => self.queues.command(id, command),
            Input::Mail(mail) => self.on_mail(*mail),
            Input::Stop => {
                if self.stop_at_us.is_none() {
                    self.stop_at_us = Some(now.mono_us + STOP_PATIENCE_US);
                    self.stop_deadline_us = self.stop_at_us;
                    self.queues.stop_commands();
                }
                let slots: Vec<u32> = self.connections.iter().map(|(slot, _)| slot as u32).collect();
                for slot in slots {
                    self.at(slot, |c, queues| c.stop(queues, "amqp:connection:forced", "the broker is stopping"));
                }
            }
        }
        self.queues.tell_works();
        out.append(&mut self.queues.out);
    }

    fn on_mail(&mut self, mail: Mail) {
        match mail.0 {
            Body::Request { queue, request } => self.queues.on_request(queue, request),
            Body::Answer { to, answer } => self.queues.answers.push((to, answer)),
            Body::Want { name, settings } => {
                self.queues.create(name, settings);
            }
            Body::Own { id, name, settings } => self.queues.own(id, name, settings),
            Body::Exists { id, name, settings } => self.queues.exists(id, name, settings),
            Body::Gone { id } => self.queues.gone(id),
            Body::Admin { id, command } => self.queues.command(id, command),
            Body::Report { id, queue, report } => self.queues.report(id, queue, report),
            Body::Changed { id, settings } => self.queues.settings_changed(id, settings),
            Body::Reserve { from, to, guest } => {
                let level = guest.head.level();
                let place = self.queues.reserve(to, guest);
                let back = from.queue.owner(self.queues.config.shards);
                self.queues.mail(back, Body::Reserved { from, to: place, level });
            }
            Body::Reserved { from, to, level } => self.queues.on_reserved(from, to, level),
            Body::Relocated { to, level, done } => self.queues.relocated(to, level, done),
            Body::Steal { link, by } => {
                if let Some(old) = self.queues.names.get(&link).copied()
                    && !self.outlives(old, by)
                {
                    self.queues.names.remove(&link);
                    self.queues.steal(old);
                }
                // The answer goes out behind what the old link's end has sent.
                self.settle_answers();
                self.queues.mail(by.shard, Body::Stolen { by, from: self.queues.shard });
            }
            Body::Home(input) => self.queues.home(*input),
            Body::Gather { txn, queue, operations, purpose } => self.queues.on_gather(txn, queue, operations, purpose),
            Body::Apply { txn, queue, operations, resolution } => {
                self.queues.on_apply(txn, queue, operations, resolution);
            }
            Body::DropRefused { txn, queue, operations } => self.queues.on_drop_refused(txn, queue, operations),
            Body::InDoubt { id, queue, txns, command } => self.queues.on_in_doubt(id, queue, &txns, command),
            Body::TxnAnswer(answer) => self.queues.txn_answers.push(answer),
            Body::Session(input) => self.queues.tell_sessions(*input),
            Body::CloseOthers { session, but } => self.queues.taken_over.push((session, but)),
            Body::OthersClosed { but } => self.queues.others_closed(but),
            Body::Stolen { by, from } => {
                self.link(by, |c, queues| c.stolen_elsewhere(queues, by, from));
            }
        }
    }

    /// Two links of one name attached at the same time on two shards, each asking the other to give way: the later connection
    /// keeps the name. (If both gave way, clients that come back together would never hold it.)
    fn outlives(&self, old: LinkRef, by: LinkRef) -> bool {
        let held = self.connections.get(old.slot as usize).filter(|held| held.connection.id() == old.connection);
        old.connection > by.connection && held.is_some_and(|held| held.connection.asks_to_steal(old, by.shard))
    }

    // ---- connections ----

    fn touch(&mut self, slot: u32) {
        if let Some(held) = self.connections.get_mut(slot as usize)
            && !held.touched
        {
            held.touched = true;
            self.touched.push(slot);
        }
    }

    /// False: there is no such connection any more.
    fn at(&mut self, slot: u32, act: impl FnOnce(&mut Connection, &mut Queues)) -> bool {
        let held = self.connections.get_mut(slot as usize).filter(|held| !held.connection.is_over());
        let Some(held) = held else { return false };
        act(&mut held.connection, &mut self.queues);
        self.touch(slot);
        true
    }

    fn with(&mut self, connection: ConnectionId, act: impl FnOnce(&mut Connection, &mut Queues)) {
        if let Some(slot) = self.places.get(&connection).copied() {
            self.at(slot, act);
        }
    }

    /// Acts on the connection of a link, if that very connection is still there.
    fn link(&mut self, to: LinkRef, act: impl FnOnce(&mut Connection, &mut Queues)) -> bool {
        let there = self.connections.get(to.slot as usize).is_some_and(|held| held.connection.id() == to.connection);
        there && self.at(to.slot, act)
    }

    /// Hands answers to links until there are none; what they do may make new ones.
    fn settle_answers(&mut self) {
        loop {
            let mut answers = std::mem::take(&mut self.queues.answers);
            let queues = &self.queues;
            let quiet = queues.resumed.is_empty() && queues.deleted.is_empty() && queues.changed.is_empty();
            let quiet = quiet && queues.txn_answers.is_empty() && queues.taken_over.is_empty();
            if answers.is_empty() && quiet {
                self.queues.answers = answers;
                return;
            }
            for (to, answer) in answers.drain(..) {
                #[cfg(test)]
                if !self.places.contains_key(&to.connection) {
                    let body = match &answer {
                        Answer::Deliver(crate::mail::Deliver {
                            body: None,
                            content: packhorse_model::Content::Body(place),
                            ..
                        }) => self.queues.ring.get(*place),
                        _ => None,
                    };
                    self.queues.unheard.push(crate::mail::Unheard::Link(to, answer, body));
                    continue;
                }
                let subscribed = match &answer {
                    Answer::Subscribed { queue, consumer } => Some((*queue, *consumer)),
                    _ => None,
                };
                let there = self.link(to, |c, queues| c.answer(queues, to, answer));
                if !there && let Some((queue, consumer)) = subscribed {
                    // The connection went while its consumer came.
                    self.queues.request(queue, Request::Unsubscribe { consumer, lost: true });
                }
            }
            if self.queues.answers.is_empty() {
                self.queues.answers = answers;
            }
            for answer in std::mem::take(&mut self.queues.txn_answers) {
                self.txn_answer(answer);
            }
            for (session, but) in std::mem::take(&mut self.queues.taken_over) {
                self.close_others(session, but);
            }
            for to in std::mem::take(&mut self.queues.resumed) {
                self.link(to, |c, queues| c.resume(queues, to));
            }
            for queue in std::mem::take(&mut self.queues.deleted) {
                for slot in 0..self.connections.capacity() as u32 {
                    self.at(slot, |c, queues| c.queue_deleted(queues, queue));
                }
            }
            for queue in std::mem::take(&mut self.queues.changed) {
                for slot in 0..self.connections.capacity() as u32 {
                    self.at(slot, |c, queues| c.queue_changed(queues, queue));
                }
            }
        }
    }

    /// Tells a connection what became of a question or of work in a transaction.
    fn txn_answer(&mut self, answer: TxnAnswer) {
        #[cfg(test)]
        if !self.places.contains_key(&answer.control().connection) {
            self.queues.unheard.push(crate::mail::Unheard::Txn(answer));
            return;
        }
        self.with(answer.control().connection, |c, queues| match answer {
            TxnAnswer::Reply { to, reply } => c.on_txn_reply(queues, to.question, reply),
            TxnAnswer::Refused { txn, why, .. } => c.on_txn_refused(queues, txn, &why),
            TxnAnswer::Status { to, status } => c.on_tx_status(to.question, status),
        });
    }

    /// Ends the connections of a client's session but the asker's, and says so.
    fn close_others(&mut self, session: ClientSession, but: ReplyTo) {
        for slot in 0..self.connections.capacity() as u32 {
            let others = |held: &&Held| {
                held.connection.client_session() == Some(session) && held.connection.id() != but.control.connection
            };
            if self.connections.get(slot as usize).filter(others).is_some() {
                self.at(slot, |c, queues| c.taken_over(queues));
            }
        }
        self.queues.others_closed(but);
    }

    // ---- the turn ----

    /// Ends a turn.
    pub fn end_turn(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.queues.set_now(now);
        self.wake = false;
        self.forget_over();
        self.ring_alarms(now);
        self.queues.tick();
        self.poll_store();
        self.queues.go_on_with_commands();
        self.relieve();
        self.queues.seal_volatile();
        for _ in 0..ROUNDS {
            self.settle_answers();
            if !self.queues.dispatch() {
                break;
            }
        }
        self.settle_answers();
        self.queues.answer_drains();
        self.settle_answers();
        // Dead letters may have brought new bodies.
        self.queues.seal_volatile();
        self.queues.tell_works();
        self.submit();
        self.flush(out);
        self.end_stop(now, out);
        out.append(&mut self.queues.out);
    }

    fn poll_store(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.store.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Durable { up_to } => self.queues.on_durable(up_to),
                Event::Loaded(loaded) => self.queues.on_loaded(&loaded),
                Event::LargeWritten { id, written } => {
                    if let Some(to) = self.queues.large_writers.get(&id).copied() {
                        self.link(to, |c, _| c.large_written(to, id, written));
                    }
                }
                Event::LargeSynced { id, length } => {
                    if let Some(to) = self.queues.large_writers.remove(&id) {
                        self.link(to, |c, queues| c.large_synced(queues, to, id, length));
                        self.queues.orphan_synced(id);
                    }
                }
                Event::LargeLoaded { token, bytes } => {
                    if let Some(to) = self.queues.large_readers.remove(&token) {
                        self.link(to, |c, queues| c.large_loaded(queues, to, bytes));
                    }
                }
                Event::Space { full } => {
                    self.full = full;
                    self.queues.home(packhorse_txn::Input::Space { full });
                    // Every shard hears it; one of them says it.
                    if self.id().0 == 0 {
                        let (level, text) = if full { (Level::Warn, DISK_FULL) } else { (Level::Info, DISK_HAS_ROOM) };
                        self.queues.log(level, None, text.into());
                    }
                }
                Event::Failed(failure) => {
                    self.failed = true;
                    self.queues.home(packhorse_txn::Input::StoreFailed);
                    self.queues.out.push(Effect::StoreFailed { what: failure.what });
                }
            }
        }
        self.events = events;
    }

    /// Back-pressure of the store on producers.
    fn relieve(&mut self) {
        let unflushed = self.store.unflushed_bytes();
        self.queues.behind = unflushed >= NO_CREDIT_FROM_BYTES;
        if !self.queues.behind && !self.queues.starved.is_empty() {
            for to in std::mem::take(&mut self.queues.starved) {
                self.link(to, |c, queues| c.feed(queues, to));
            }
        }
        let choked = if self.choked { unflushed > READING_BELOW_BYTES } else { unflushed > NO_READING_FROM_BYTES };
        if choked != self.choked {
            self.choked = choked;
            for slot in 0..self.connections.capacity() as u32 {
                self.at(slot, |c, _| c.choke(choked));
            }
        }
    }

    fn submit(&mut self) {
        self.queues.reclaim();
        if let Some(batch) = self.queues.take_batch() {
            let ticket = self.store.submit(batch);
            assert_eq!(ticket, self.queues.ticket, "tickets count by one");
            self.queues.ticket = self.store.next_ticket();
        }
        for op in self.queues.large_ops.drain(..) {
            self.store.large(op);
        }
        while let Some(load) = self.queues.next_load() {
            self.store.load(load);
        }
        for load in self.queues.large_loads.drain(..) {
            self.store.load_large(load);
        }
    }

    /// Every connection that had something to do says it.
    fn flush(&mut self, out: &mut Vec<Effect>) {
        for slot in std::mem::take(&mut self.touched) {
            let Some(held) = self.connections.get_mut(slot as usize) else { continue };
            held.touched = false;
            held.connection.end_turn(&mut self.queues);
            if held.connection.is_over() {
                self.queues.connection_gone(held.connection.id());
                self.over.push(slot);
                continue;
            }
            if let Some(at) = held.connection.next_deadline_ms()
                && held.alarm_ms.is_none_or(|known| at < known)
            {
                held.alarm_ms = Some(at);
                self.alarms.push(Reverse((at, slot, held.connection.id())));
            }
        }
        out.append(&mut self.queues.out);
        // What a connection's end changed for queues (its consumers are gone) is for the next turn.
        self.wake |= self.queues.has_ready() || !self.queues.answers.is_empty();
        self.wake |= !self.queues.txn_answers.is_empty() || self.queues.has_commands();
    }

    fn forget_over(&mut self) {
        for slot in std::mem::take(&mut self.over) {
            if let Some(held) = self.connections.try_remove(slot as usize) {
                self.places.remove(&held.connection.id());
            }
        }
    }

    fn ring_alarms(&mut self, now: Now) {
        let now_ms = now.mono_ms();
        while let Some(Reverse((at, slot, id))) = self.alarms.peek().copied()
            && at <= now_ms
        {
            self.alarms.pop();
            let Some(held) = self.connections.get_mut(slot as usize).filter(|held| held.connection.id() == id) else {
                continue;
            };
            if held.alarm_ms != Some(at) {
                continue;
            }
            held.alarm_ms = None;
            self.at(slot, |c, queues| c.tick(queues));
        }
    }

    fn end_stop(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(at) = self.stop_at_us else { return };
        if self.stopped {
            return;
        }
        let patience_over = now.mono_us >= at;
        if self.connections.len() > self.over.len() && !patience_over {
            return;
        }
        // From here on the store is waited for, and its word starts a turn.
        self.stop_deadline_us = None;
        for (_, held) in &self.connections {
            self.queues.connection_gone(held.connection.id());
        }
        if self.queues.has_ready() {
            // What comes back from transactions that are rolled back is written first.
            self.wake = true;
            return;
        }
        if self.queues.all_durable() && !self.queues.has_orphans() {
            self.stopped = true;
            out.push(Effect::Stopped);
        }
    }

    /// The monotonic time, µs, at which the next turn has something to do even if nothing else happens. 0: at once.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.wake || self.queues.has_ready() || !self.over.is_empty() {
            return Some(0);
        }
        let alarm = self.alarms.peek().map(|Reverse((at, ..))| at * 1000);
        [alarm, self.stop_deadline_us, self.queues.next_deadline()].into_iter().flatten().min()
    }

    // ---- bytes out ----

    /// The bytes to write to a connection, in order; nothing for one that is unknown.
    pub fn output(&self, connection: ConnectionId) -> impl Iterator<Item = &[u8]> {
        let slot = self.places.get(&connection);
        let held = slot.and_then(|slot| self.connections.get(*slot as usize));
        held.into_iter().flat_map(|held| held.connection.output())
    }

    /// Says that the first `count` bytes of the output were written.
    pub fn written(&mut self, connection: ConnectionId, count: usize) {
        let Some(slot) = self.places.get(&connection).copied() else { return };
        let Some(held) = self.connections.get_mut(slot as usize) else { return };
        if held.connection.written(&mut self.queues, count) {
            self.touch(slot);
            self.wake = true;
        }
    }

    // ---- figures ----

    /// Sums over the queues.
    pub fn totals(&self) -> Counters {
        let mut totals = Counters::default();
        for (slot, _) in &self.queues.held {
            totals.add(&self.queues.counters(slot as u32));
        }
        totals
    }

    /// The queues with most work of branches in doubt.
    fn in_doubt(&self) -> Vec<QueueInDoubt> {
        let mut queues: Vec<QueueInDoubt> = self
            .queues
            .held
            .iter()
            .filter(|(_, held)| held.queue.in_doubt())
            .map(|(_, held)| {
                let Stats { prepared_in, prepared_out, .. } = held.queue.stats();
                QueueInDoubt { name: held.queue.name().as_str().to_string(), prepared_in, prepared_out }
            })
            .collect();
        QueueInDoubt::keep_most(&mut queues);
        queues
    }

    fn report(&self) -> ShardReport {
        let totals = self.totals();
        let mut alarms = if self.failed {
            vec![Alarm { code: "store-failed", text: "the store has failed: nothing is confirmed any more".into() }]
        } else if self.full && self.id().0 == 0 {
            vec![Alarm { code: "disk-full", text: DISK_FULL.into() }]
        } else {
            Vec::new()
        };
        if totals.damaged > 0 {
            alarms.push(Alarm { code: "damaged", text: DAMAGED.into() });
        }
        alarms.extend(self.queues.alarms());
        let transactions = self.queues.transaction_figures();
        alarms.extend(self.queues.transaction_alarm(&transactions));
        ShardReport {
            connections: self.connections.len() as u64,
            sessions: self.connections.iter().map(|(_, held)| held.connection.session_count() as u64).sum(),
            links: self.connections.iter().map(|(_, held)| held.connection.link_count() as u64).sum(),
            queues: self.queues.held.len() as u64,
            totals,
            memory_bytes: self.queues.ring.bytes(),
            store: self.store.status(),
            transactions,
            in_doubt: self.in_doubt(),
            alarms,
        }
    }

    /// Checks every queue against its invariants, for tests and simulations.
    pub fn audit(&self) -> Result<(), String> {
        for (_, held) in &self.queues.held {
            held.queue.audit().map_err(|why| format!("queue {}: {why}", held.queue.name()))?;
        }
        Ok(())
    }
}
