//! A connection of a peer: login, the loop over the engine's events, and its end in whatever way it comes.

use super::link::{Kind, Link};
use super::open_txns::OpenTxns;
use super::render::Refused;
use crate::Config;
use crate::access::Principal;
use crate::io::{Effect, Endpoint, Level};
use crate::mail::{Answer, LinkName, LinkRef, Request};
use crate::queues::Queues;
use bytes::Bytes;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{Data, Error, Map, Open, Role, SaslCode};
use packhorse_amqp10::engine::{
    self, Chunks, DeliveryOutcome, Event, Fault, Input, LinkId, ServerConfig, SessionId, Told,
};
use packhorse_amqp10::transaction;
use packhorse_model::{ClientSession, ConnectionId, LargeId, QueueId};
use packhorse_queue::DeliveryKey;
use packhorse_sasl::Mechanism;

/// See the module.
pub(crate) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) me: LinkRef,
    pub(super) endpoint: Endpoint,
    pub(super) engine: engine::Connection,
    pub(super) limits: Limits,
    partial: Vec<u8>,
    pub(super) principal: Principal,
    pub(super) container: String,
    pub(super) links: slab::Slab<Link>,
    next_generation: u32,
    outcomes: Vec<DeliveryOutcome>,
    /// Room for deliveries that one frame ends in a transaction.
    pub(super) retired: Vec<DeliveryKey>,
    /// Reused: what goes out in front of a message.
    pub(super) front: Vec<u8>,
    /// Our answers to `detach`, `end` and `close` that wait until everything before them is answered.
    farewells: Vec<Farewell>,
    /// Consumers' links that could not send, and go on when the window or the output has room.
    pub(super) blocked: Vec<u32>,
    /// Large messages on their way in whose bytes the store has not written: reading is paused for them.
    pub(super) paused_by: u32,
    paused: bool,
    /// The store is far behind.
    choked: bool,
    sessions: usize,
    /// The client's session over all its connections, if it has named one.
    client_session: Option<ClientSession>,
    pub(super) txns: OpenTxns,
    /// Nothing further happens; the shard forgets the connection.
    over: bool,
}

/// An answer that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Detach { token: u64, closed: bool },
    End { session: SessionId },
    Close,
}

/// How a link's end is told to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// In order: what it holds was not seen.
    InOrder,
    /// The peer ended it, and named an error: it may have seen what it holds. What it sent before counts.
    InError,
    /// Another one took its place, or it broke a rule, or we cannot go on with it. The client has not said what it saw, so what it
    /// holds counts as seen; the link is told.
    Stolen,
    /// The connection broke.
    Lost,
}

impl Going {
    /// How the peer ended it: with this error, or none.
    fn told(error: Option<&Error<'_>>) -> Going {
        if error.is_some() { Going::InError } else { Going::InOrder }
    }
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, slot: u32, endpoint: Endpoint, queues: &mut Queues) -> Connection {
        let config = &queues.config;
        let limits = limits(config);
        let server = ServerConfig {
            limits,
            container_id: config.broker_name.as_str().into(),
            idle_timeout_ms: config.idle_timeout_ms,
            allow_bare: endpoint.loopback,
            header_ms: config.first_byte_timeout_ms,
            sasl_ms: config.sasl_timeout_ms,
            open_ms: config.open_timeout_ms,
            seed: queues.secret(id),
            ..ServerConfig::default()
        };
        let mut engine = engine::Connection::server(server, queues.mono_ms());
        let names = Mechanism::ALL.map(Mechanism::name);
        // Something must be offered, or the peer waits; from elsewhere every login fails as long as there are no users.
        engine.sasl_mechanisms(if endpoint.loopback { &names } else { &["PLAIN"] });
        let me = LinkRef { shard: queues.shard, slot, connection: id, link: 0, generation: 0 };
        Connection {
            id,
            me,
            endpoint,
            engine,
            limits,
            partial: Vec::new(),
            principal: Principal { user: None },
            container: String::new(),
            links: slab::Slab::new(),
            next_generation: 0,
            outcomes: Vec::new(),
            retired: Vec::new(),
            front: Vec::new(),
            farewells: Vec::new(),
            blocked: Vec::new(),
            paused_by: 0,
            paused: false,
            choked: false,
            sessions: 0,
            client_session: None,
            txns: OpenTxns::default(),
            over: false,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Whether the shard may forget it.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Open sessions are not counted here; links are.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    // ---- bytes in ----

    /// Bytes of the peer.
    pub(crate) fn receive(&mut self, queues: &mut Queues, fresh: &[u8]) {
        let mut partial = std::mem::take(&mut self.partial);
        let mut input = Input { partial: &mut partial, fresh };
        loop {
            match self.engine.next(&mut input, queues.mono_ms()) {
                Ok(Some(event)) => self.on_event(queues, event),
                Ok(None) => break,
                Err(fault) => self.on_fault(queues, &fault),
            }
        }
        self.partial = partial;
    }

    fn on_event(&mut self, queues: &mut Queues, event: Event<'_>) {
        match event {
            Event::Transfer(transfer) => self.on_transfer(queues, &transfer),
            Event::Disposition { ours, state, count, .. } => {
                let mut outcomes = std::mem::take(&mut self.outcomes);
                self.engine.take_outcomes(&mut outcomes);
                if count == 0 {
                    self.nothing_retired(queues, state.as_ref());
                } else if ours {
                    self.on_outcomes(queues, &outcomes, state.as_ref());
                }
                outcomes.clear();
                self.outcomes = outcomes;
            }
            Event::Credit { link, token, window_opened, frame, .. } => {
                if !self.credit_in(queues, token, frame.decode().properties) {
                    return;
                }
                self.on_credit(queues, token);
                if window_opened {
                    self.unblock(queues, self.engine.link_session(link));
                }
            }
            Event::SenderFlow { link, window_opened: true, .. } => {
                self.unblock(queues, self.engine.link_session(link));
            }
            Event::SessionFlow { session, window_opened: true, .. } => self.unblock(queues, Some(session)),
            Event::Attach(attach) => self.on_attach(queues, &attach),
            Event::Detached { token, closed, error, answered, .. } => {
                if let Some(error) = &error {
                    let name = self.link(token).map_or("", |link| &link.name);
                    let text = format!("the peer detached link \"{name}\": {}", words(error));
                    queues.log(Level::Info, Some(self.id), text);
                }
                self.link_goes(queues, token, Going::told(error.as_ref()));
                if answered {
                    self.forget(queues, token);
                } else if self.link(token).is_some() {
                    self.farewells.push(Farewell::Detach { token, closed });
                }
            }
            Event::LinkFailed { token, fault, .. } => {
                let name = self.link(token).map_or("", |link| &link.name);
                queues.log(Level::Warn, Some(self.id), format!("link \"{name}\" ended: {fault}"));
                self.link_goes(queues, token, Going::Stolen);
            }
            Event::SessionBegun { .. } => self.sessions += 1,
            Event::SessionEnded { session, error, answered, .. } => {
                if let Some(error) = &error {
                    queues.log(Level::Info, Some(self.id), format!("the peer ended a session: {}", words(error)));
                }
                self.session_goes(queues, session, Going::told(error.as_ref()));
                if answered {
                    self.forget_links(queues, session);
                    self.sessions -= 1;
                } else {
                    self.farewells.push(Farewell::End { session });
                }
            }
            Event::SessionFailed { session, fault, .. } => {
                queues.log(Level::Warn, Some(self.id), format!("session ended: {fault}"));
                self.session_goes(queues, session, Going::Lost);
                self.forget_links(queues, session);
            }
            Event::Closed { error, answered } => {
                if let Some(error) = &error {
                    queues.log(Level::Info, Some(self.id), format!("the peer closed: {}", words(error)));
                }
                self.all_go(queues, Going::told(error.as_ref()));
                if !answered {
                    self.farewells.push(Farewell::Close);
                }
            }
            Event::SaslInit { mechanism, initial_response, .. } => {
                self.on_login(queues, mechanism, initial_response.unwrap_or_default());
            }
            // Both mechanisms end with the first message.
            Event::SaslResponse(_) => self.refuse_login(queues, "a response without a challenge"),
            Event::Opened(frame) => {
                let open = frame.decode();
                self.container = open.container_id.into();
                if let Some((session, next)) = open.properties.as_ref().and_then(commits) {
                    self.client_session = Some(session);
                    queues.open_session(session, next);
                }
                self.on_open(queues);
            }
            _ => {}
        }
    }

    // ---- login ----

    fn on_login(&mut self, queues: &mut Queues, name: &str, response: &[u8]) {
        let claim = match Mechanism::by_name(name) {
            None => Err(format!("mechanism \"{}\" is not offered", clip(name))),
            Some(_) if !self.endpoint.loopback => {
                Err("without a configured user, logins are taken from loopback addresses only".into())
            }
            Some(mechanism) => packhorse_sasl::parse(mechanism, response).map_err(|e| e.to_string()),
        };
        match claim {
            Ok(claim) => {
                if let packhorse_sasl::Claim::Password { user, .. } = claim {
                    self.principal.user = Some(user);
                }
                let done = self.engine.sasl_outcome(SaslCode::Ok, None);
                debug_assert!(done.is_ok(), "an outcome was asked for");
            }
            Err(why) => self.refuse_login(queues, &why),
        }
    }

    fn refuse_login(&mut self, queues: &mut Queues, why: &str) {
        queues.log(Level::Warn, Some(self.id), format!("login from {} refused: {why}", self.endpoint.peer));
        let done = self.engine.sasl_outcome(SaslCode::Auth, None);
        debug_assert!(done.is_ok(), "an outcome was asked for");
    }

    fn on_open(&mut self, queues: &mut Queues) {
        let mut properties = Vec::new();
        packhorse_amqp10::codec::ValueWriter::map(&mut properties, |map| {
            packhorse_amqp10::codec::put_symbol(map.next(), "product");
            packhorse_amqp10::codec::put_string(map.next(), "Packhorse");
            packhorse_amqp10::codec::put_symbol(map.next(), "version");
            packhorse_amqp10::codec::put_string(map.next(), env!("CARGO_PKG_VERSION"));
            packhorse_amqp10::codec::put_symbol(map.next(), transaction::BROKER_PROPERTY);
            packhorse_amqp10::codec::put_uuid(map.next(), queues.broker.0);
        });
        let properties = Map::from_encoded(&properties, &self.limits).ok();
        let name = queues.config.broker_name.clone();
        let open = Open { container_id: &name, properties, ..Open::default() };
        if let Err(misuse) = self.engine.open(&open, queues.mono_ms()) {
            queues.log(Level::Error, Some(self.id), format!("our open did not go out: {misuse}"));
            return;
        }
        let text = format!(
            "opened by container \"{}\" as {} from {}",
            clip(&self.container),
            self.principal.name(),
            self.endpoint.peer
        );
        queues.log(Level::Debug, Some(self.id), text);
    }

    // ---- faults and ends ----

    fn on_fault(&mut self, queues: &mut Queues, fault: &Fault) {
        let text = match fault.told {
            Told::TlsHello => format!(
                "{} speaks TLS to a port without TLS ({}); use amqp:// here",
                self.endpoint.peer, self.endpoint.local
            ),
            _ => format!("connection from {} ended: {fault}", self.endpoint.peer),
        };
        queues.log(Level::Warn, Some(self.id), text);
        self.all_go(queues, Going::Lost);
    }

    /// The socket is gone; everything read from it was handed in.
    pub(crate) fn lost(&mut self, queues: &mut Queues, how: &str) {
        if !self.links.is_empty() {
            queues.log(Level::Info, Some(self.id), format!("connection from {} lost: {how}", self.endpoint.peer));
        }
        self.all_go(queues, Going::Lost);
        self.over = true;
    }

    /// Ends the connection in order by our own wish.
    pub(crate) fn stop(&mut self, queues: &mut Queues, condition: &str, why: &str) {
        self.all_go(queues, Going::InOrder);
        let error = Error { condition, description: Some(why), info: None };
        if self.engine.close(Some(&error), queues.mono_ms()).is_err() && !self.engine.wants_close() {
            // Not even a header was exchanged.
            self.over = true;
            queues.out.push(Effect::Close { connection: self.id });
        }
    }

    pub(super) fn all_go(&mut self, queues: &mut Queues, going: Going) {
        let tokens: Vec<u64> = self.links.iter().map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            self.link_goes(queues, token, going);
        }
    }

    fn session_goes(&mut self, queues: &mut Queues, session: SessionId, going: Going) {
        let links = self.links.iter().filter(|(_, link)| link.session == session);
        let tokens: Vec<u64> = links.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            self.link_goes(queues, token, going);
        }
    }

    /// A link ends: its queue learns it. The link stays in its place until its `detach` is answered.
    pub(super) fn link_goes(&mut self, queues: &mut Queues, token: u64, going: Going) {
        let me = self.me_at(token);
        let Some(link) = self.link_mut(token) else { return };
        let kind = std::mem::replace(&mut link.kind, Kind::Over);
        let name = link.name.clone();
        let receiver = matches!(kind, Kind::Consumer(_));
        match kind {
            Kind::Consumer(consumer) => {
                let lost = going != Going::InOrder;
                queues.request(consumer.queue, Request::Unsubscribe { consumer: consumer.consumer, lost });
            }
            Kind::Producer(producer) => self.producer_goes(queues, token, producer, going),
            Kind::Coordinator(coordinator) => self.coordinator_goes(queues, token, &coordinator),
            Kind::Pending(pending) => {
                self.release_name(queues, &name, pending.receiver, me);
                return;
            }
            Kind::Over => return,
        }
        self.release_name(queues, &name, receiver, me);
    }

    fn release_name(&mut self, queues: &mut Queues, name: &str, receiver: bool, me: LinkRef) {
        let name = self.link_name(name, receiver);
        if queues.names.get(&name) == Some(&me) {
            queues.names.remove(&name);
        }
    }

    pub(super) fn link_name(&self, name: &str, receiver: bool) -> LinkName {
        LinkName { container: self.container.clone(), name: name.into(), receiver, user: self.principal.user.clone() }
    }

    /// Ends a link by our own wish.
    pub(super) fn fail_link(&mut self, queues: &mut Queues, token: u64, why: &Refused) {
        let Some(link) = self.link(token) else { return };
        let (id, name) = (link.id, link.name.clone());
        queues.log(
            Level::Warn,
            Some(self.id),
            format!("link \"{}\" ended: {}: {}", clip(&name), why.condition, why.why),
        );
        self.link_goes(queues, token, Going::Stolen);
        let error = Error { condition: why.condition, description: Some(&why.why), info: None };
        // A link that is gone already needs no detach.
        let _ = self.engine.detach(id, true, Some(&error));
    }

    fn forget(&mut self, queues: &mut Queues, token: u64) {
        self.link_goes(queues, token, Going::InOrder);
        if self.link(token).is_some() {
            // Both sides have ended it; what came whole and is not safe yet goes its way without it.
            self.link_goes(queues, token, Going::Lost);
            self.links.remove(index(token) as usize);
        }
    }

    /// The links of a session that is over for both sides.
    fn forget_links(&mut self, queues: &mut Queues, session: SessionId) {
        let links = self.links.iter().filter(|(_, link)| link.session == session);
        let tokens: Vec<u64> = links.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            self.forget(queues, token);
        }
    }

    /// Sends those of our farewells before which nothing is left to be said.
    fn say_farewell(&mut self, queues: &mut Queues) {
        let mut farewells = std::mem::take(&mut self.farewells);
        farewells.retain(|farewell| match *farewell {
            Farewell::Detach { token, closed } => {
                let Some(held) = self.link(token) else { return false };
                if held.is_amid() {
                    return true;
                }
                // An error says that the engine has ended it already.
                let (id, session) = (held.id, held.session);
                let _ = self.engine.detach(id, closed, None);
                if !closed {
                    // Its deliveries went back to their queues when the peer detached; nothing waits for a late word on them.
                    self.engine.forget_deliveries(session, id);
                }
                self.links.remove(index(token) as usize);
                false
            }
            Farewell::End { session } => {
                if self.links.iter().any(|(_, link)| link.session == session && link.is_amid()) {
                    return true;
                }
                let _ = self.engine.end(session, None);
                self.sessions -= 1;
                self.links.retain(|_, link| link.session != session);
                false
            }
            Farewell::Close => {
                if self.links.iter().any(|(_, link)| link.is_amid()) {
                    return true;
                }
                let _ = self.engine.close(None, queues.mono_ms());
                false
            }
        });
        self.farewells = farewells;
    }

    // ---- links ----

    pub(super) fn insert(&mut self, id: LinkId, session: SessionId, name: &str, kind: Kind) -> u64 {
        self.next_generation = self.next_generation.wrapping_add(1);
        let generation = self.next_generation;
        let link = Link { id, session, generation, name: name.into(), waiting: 0, leaving: false, kind };
        token(self.links.insert(link) as u32, generation)
    }

    pub(super) fn link(&self, token: u64) -> Option<&Link> {
        self.links.get(index(token) as usize).filter(|link| link.generation == generation(token))
    }

    pub(super) fn link_mut(&mut self, token: u64) -> Option<&mut Link> {
        self.links.get_mut(index(token) as usize).filter(|link| link.generation == generation(token))
    }

    /// The link's name for queues.
    pub(super) fn me_at(&self, token: u64) -> LinkRef {
        LinkRef { link: index(token), generation: generation(token), ..self.me }
    }

    // ---- answers ----

    /// An answer of a queue to one of the links.
    pub(crate) fn answer(&mut self, queues: &mut Queues, to: LinkRef, answer: Answer) {
        let token = token(to.link, to.generation);
        if self.link(token).is_none() {
            if let Answer::Subscribed { queue, consumer } = answer {
                queues.request(queue, Request::Unsubscribe { consumer, lost: false });
            }
            return;
        }
        match answer {
            Answer::Enqueued { first, last } => self.on_confirmed(token, first, last),
            Answer::NotEnqueued { delivery, condition, why } => {
                self.reject(queues, token, delivery, &Refused::new(condition, why));
                self.answered(token, 1);
            }
            Answer::ProducerOpened { queue, floor } => self.on_producer_opened(queues, token, queue, floor),
            Answer::Room { share } => self.on_room(queues, token, share),
            Answer::Subscribed { queue, consumer } => self.on_subscribed(queues, token, queue, consumer),
            Answer::Deliver(deliver) => self.deliver(queues, token, deliver),
            Answer::Drained { limit } => self.on_drained(queues, token, limit),
            Answer::Settled { delivery } => {
                if let Some(link) = self.link(token) {
                    // The session may have ended meanwhile; then nobody asks any more.
                    let _ = self.engine.settle_outgoing(link.session, delivery);
                }
                self.answered(token, 1);
            }
            Answer::Ended { condition, why } => self.on_ended(queues, token, &Refused::new(condition, why)),
        }
    }

    /// The client's session over all its connections, if it has named one.
    pub(crate) fn client_session(&self) -> Option<ClientSession> {
        self.client_session
    }

    /// Another connection of the client's session asks for a commit's outcome: this one does nothing more.
    pub(crate) fn taken_over(&mut self, queues: &mut Queues) {
        self.all_go(queues, Going::Stolen);
        self.stop(
            queues,
            "amqp:connection:forced",
            "another connection of the same client session asks for a commit's outcome",
        );
    }

    pub(super) fn answered(&mut self, token: u64, count: u32) {
        if let Some(link) = self.link_mut(token) {
            debug_assert!(link.waiting >= count, "answers are asked for");
            link.waiting = link.waiting.saturating_sub(count);
        }
    }

    /// Links of a deleted queue end.
    pub(crate) fn queue_deleted(&mut self, queues: &mut Queues, queue: QueueId) {
        let producers =
            self.links.iter().filter(|(_, link)| matches!(&link.kind, Kind::Producer(p) if p.queue == queue));
        let tokens: Vec<u64> = producers.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            self.fail_link(queues, token, &Refused::new("amqp:resource-deleted", "the queue was deleted"));
        }
    }

    /// Links of a queue that has other settings go by them.
    pub(crate) fn queue_changed(&mut self, queues: &mut Queues, queue: QueueId) {
        let producers =
            self.links.iter().filter(|(_, link)| matches!(&link.kind, Kind::Producer(p) if p.queue == queue));
        let tokens: Vec<u64> = producers.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            self.limits_changed(queues, token);
        }
    }

    /// A large message's bytes are written, or its file is synced.
    pub(crate) fn large_written(&mut self, to: LinkRef, id: LargeId, written: u64) {
        self.on_large_written(token(to.link, to.generation), id, written);
    }

    /// See [`Connection::large_written`].
    pub(crate) fn large_synced(&mut self, queues: &mut Queues, to: LinkRef, id: LargeId, length: u64) {
        self.on_large_synced(queues, token(to.link, to.generation), id, length);
    }

    /// A part of a large message that was asked for.
    pub(crate) fn large_loaded(&mut self, queues: &mut Queues, to: LinkRef, bytes: Option<Bytes>) {
        self.on_large_loaded(queues, token(to.link, to.generation), bytes);
    }

    // ---- the end of a turn ----

    /// Puts everything that this turn had to say into the output. Tells the shell what changed.
    pub(crate) fn end_turn(&mut self, queues: &mut Queues) {
        self.say_farewell(queues);
        self.engine.flush(queues.mono_ms());
        let publishes = || self.links.iter().any(|(_, link)| matches!(link.kind, Kind::Producer(_)));
        let ours = self.paused_by > 0 || self.choked && publishes();
        // A peer that does not read what it is told is not read either; that is its own silence, so it may be found idle.
        let paused = ours || !self.engine.wants_read() && !self.engine.wants_close();
        if paused != self.paused && !self.over {
            self.paused = paused;
            self.engine.set_reading(!ours, queues.mono_ms());
            queues.out.push(Effect::Reading { connection: self.id, paused });
        }
        if self.over {
            return;
        }
        if self.engine.output_len() > 0 {
            queues.out.push(Effect::Output { connection: self.id });
        }
        if self.engine.wants_close() {
            self.all_go(queues, Going::Lost);
            self.over = true;
            queues.out.push(Effect::Close { connection: self.id });
        }
    }

    /// When time alone changes something, monotonic ms.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.engine.next_deadline()
    }

    pub(crate) fn tick(&mut self, queues: &mut Queues) {
        if let Err(fault) = self.engine.on_tick(queues.mono_ms()) {
            self.on_fault(queues, &fault);
        }
    }

    pub(crate) fn output(&self) -> Chunks<'_> {
        self.engine.output()
    }

    /// True: links that were blocked go on, and a turn must follow.
    pub(crate) fn written(&mut self, queues: &mut Queues, count: usize) -> bool {
        self.engine.advance_output(count);
        // Reading may go on; the end of the turn that follows says so.
        let resumes = self.paused && self.engine.wants_read();
        if self.blocked.is_empty() || self.engine.output_len() > self.limits.output_bytes / 2 {
            return resumes;
        }
        self.unblock(queues, None);
        true
    }

    /// The store is far behind (or has caught up): a connection that publishes is not read meanwhile.
    pub(crate) fn choke(&mut self, choked: bool) {
        self.choked = choked;
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions
    }

    pub(super) fn is_receiver(role: Role) -> bool {
        role == Role::Receiver
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        open_frame_bytes: config.max_frame_before_open_bytes,
        frame_bytes: config.max_frame_bytes,
        channel_max: config.max_sessions - 1,
        handle_max: config.max_links - 1,
        sessions: u32::from(config.max_sessions),
        links: config.max_links,
        output_bytes: config.max_output_bytes,
        ..Limits::default()
    }
}

/// The client's session that an `open` names, and the number that its next commit will have.
fn commits(properties: &Map<'_>) -> Option<(ClientSession, u64)> {
    let session = match properties.get(transaction::SESSION_PROPERTY)?.data() {
        Data::Uuid(session) => ClientSession(session),
        _ => return None,
    };
    let next = properties.get(transaction::NEXT_COMMIT_PROPERTY)?.as_u64()?;
    Some((session, next))
}

/// A link's number in the engine: its place and the generation of that place.
pub(super) fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

pub(super) fn index(token: u64) -> u32 {
    token as u32
}

pub(super) fn generation(token: u64) -> u32 {
    (token >> 32) as u32
}

/// An error in a log line.
fn words(error: &Error<'_>) -> String {
    match error.description {
        Some(description) => format!("{}: {}", clip(error.condition), clip(description)),
        None => clip(error.condition).into(),
    }
}

/// A peer's words in a log line: at most 200 characters of them.
pub(super) fn clip(text: &str) -> &str {
    text.char_indices().nth(200).map_or(text, |(end, _)| &text[..end])
}
