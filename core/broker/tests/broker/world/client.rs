//! A client: the engine's client role with a diary. It answers endings, sends what is put into its links' outboxes as credit
//! allows, and settles only when told to.

use super::{Pipe, number_of};
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, Coordinator, DeliveryState, Map, Modified, Open, Outcome, ReceiverSettleMode, Rejected, Role,
    SaslCode, SenderSettleMode, Source, Symbols, Target, TerminusDurability, TerminusExpiryPolicy, TransactionalState,
};
use packhorse_amqp10::engine::{
    ClientConfig, Connection, Decision, DeliveryOutcome, Event, Input, LinkId, Piece, SendParams, SessionId,
};
use packhorse_amqp10::message::MessageView;
use packhorse_amqp10::producer::{self, Opening};
use packhorse_amqp10::transaction::{Request, Response};
use std::collections::VecDeque;

/// Names a client of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct C(pub(crate) usize);

/// A message that came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) delivery: u32,
    pub(crate) settled: bool,
    pub(crate) format: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) whole: bool,
    pub(crate) aborted: bool,
    /// What we said of it.
    pub(crate) decided: bool,
    /// The broker settled it after we decided.
    pub(crate) settled_later: bool,
}

impl Got {
    pub(crate) fn number(&self) -> u64 {
        number_of(&self.bytes)
    }

    /// The delivery-count in its header.
    pub(crate) fn deliveries(&self) -> u32 {
        self.header().delivery_count.unwrap_or(0)
    }

    pub(crate) fn header(&self) -> packhorse_amqp10::codec::Header {
        *self.view().header()
    }

    pub(crate) fn view(&self) -> MessageView<'_> {
        MessageView::parse(&self.bytes, &Limits::default()).expect("what arrives is a message")
    }

    /// A message annotation, as text.
    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        let view = self.view();
        let value = view.message_annotation(key)?;
        Some(
            value.as_text().map(String::from).or_else(|| value.as_integer().map(|n| n.to_string())).unwrap_or_default(),
        )
    }
}

/// A message on its way out.
#[derive(Debug)]
struct Out {
    token: u64,
    settled: bool,
    format: u32,
    bytes: Vec<u8>,
    /// The transaction it is in; empty: none.
    txn: Vec<u8>,
    /// Empty: one of the engine's choice.
    tag: Vec<u8>,
    sent: usize,
    begun: bool,
}

/// A link's diary. Its index is its token.
#[derive(Debug)]
pub(crate) struct Diary {
    pub(crate) id: LinkId,
    pub(crate) name: String,
    sender: bool,
    pub(crate) attached: bool,
    /// The peer's `attach`, as text.
    pub(crate) answer: String,
    /// … and what it says that is known of a producer's numbers.
    pub(crate) floor: Option<u64>,
    pub(crate) refused: bool,
    /// The condition with which the broker ended it; empty: without one.
    pub(crate) ended: Option<String>,
    /// Its description.
    pub(crate) why: String,
    pub(crate) drained: u32,
    pub(crate) got: Vec<Got>,
    outbox: VecDeque<Out>,
    next_token: u64,
    /// What became of what was sent: token and state, in the order it was told.
    pub(crate) outcomes: Vec<(u64, String)>,
    /// Tokens that the broker has settled.
    pub(crate) settled: Vec<u64>,
    /// Of a link to the coordinator: ids of what was declared, in order.
    pub(crate) declared: Vec<Vec<u8>>,
    /// … and branches that were listed.
    pub(crate) listed: Vec<Vec<u8>>,
}

/// How a sender attaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderTerms {
    pub(crate) snd: SenderSettleMode,
    pub(crate) rcv: ReceiverSettleMode,
}

impl Default for SenderTerms {
    fn default() -> SenderTerms {
        SenderTerms { snd: SenderSettleMode::Mixed, rcv: ReceiverSettleMode::First }
    }
}

/// How a receiver attaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverTerms<'a> {
    pub(crate) snd: SenderSettleMode,
    pub(crate) rcv: ReceiverSettleMode,
    pub(crate) credit: u32,
    pub(crate) default_outcome: Option<Outcome<'a>>,
    pub(crate) max_message_size: Option<u64>,
    /// It only browses.
    pub(crate) browses: bool,
    /// As JMS clients attach durable subscriptions.
    pub(crate) durable: bool,
}

impl Default for ReceiverTerms<'_> {
    fn default() -> Self {
        ReceiverTerms {
            snd: SenderSettleMode::Unsettled,
            rcv: ReceiverSettleMode::First,
            credit: 100,
            default_outcome: None,
            max_message_size: None,
            browses: false,
            durable: false,
        }
    }
}

/// See the module.
pub(crate) struct Client {
    pub(crate) pipe: usize,
    pub(crate) engine: Connection,
    partial: Vec<u8>,
    container: String,
    user: Option<String>,
    pub(crate) opened: bool,
    pub(crate) open_answer: String,
    pub(crate) sessions: Vec<SessionId>,
    /// The broker's words at the end of sessions: token and condition.
    pub(crate) session_ends: Vec<(u64, String)>,
    pub(crate) links: Vec<Diary>,
    /// The condition with which the broker closed; empty: without one.
    pub(crate) closed: Option<String>,
    pub(crate) failed: Option<String>,
    outcomes: Vec<DeliveryOutcome>,
    now_ms: u64,
}

impl Client {
    pub(super) fn new(
        pipe: usize,
        container: &str,
        user: Option<&str>,
        now_ms: u64,
        limits: Limits,
        incoming_window: u32,
    ) -> Client {
        let config = ClientConfig {
            container_id: container.into(),
            limits,
            idle_timeout_ms: 0,
            incoming_window,
            ..ClientConfig::default()
        };
        Client {
            pipe,
            engine: Connection::client(config, now_ms),
            partial: Vec::new(),
            container: container.into(),
            user: user.map(String::from),
            opened: false,
            open_answer: String::new(),
            sessions: Vec::new(),
            session_ends: Vec::new(),
            links: Vec::new(),
            closed: None,
            failed: None,
            outcomes: Vec::new(),
            now_ms,
        }
    }

    // ---- commands ----

    /// One more session; its number among ours.
    pub(crate) fn begin(&mut self) -> usize {
        let session = self.engine.begin(self.sessions.len() as u64).expect("a session can be begun");
        self.sessions.push(session);
        self.sessions.len() - 1
    }

    /// Attaches a sender in the first session.
    pub(crate) fn sender(&mut self, address: &str) -> usize {
        let name = format!("s{}", self.links.len());
        self.sender_with(0, &name, address, SenderTerms::default())
    }

    pub(crate) fn sender_with(&mut self, session: usize, name: &str, address: &str, terms: SenderTerms) -> usize {
        let attach = Attach {
            name,
            role: Role::Sender,
            snd_settle_mode: terms.snd,
            rcv_settle_mode: terms.rcv,
            source: Some(Source::default()),
            target: Some(AttachTarget::Target(Target { address: Some(address), ..Target::default() })),
            ..Attach::default()
        };
        self.attach(session, &attach)
    }

    /// Attaches a receiver in the first session.
    pub(crate) fn receiver(&mut self, address: &str, credit: u32) -> usize {
        let name = format!("r{}", self.links.len());
        self.receiver_with(0, &name, address, ReceiverTerms { credit, ..ReceiverTerms::default() })
    }

    /// Attaches a browser in the first session.
    pub(crate) fn browser(&mut self, address: &str, credit: u32) -> usize {
        let name = format!("b{}", self.links.len());
        self.receiver_with(0, &name, address, ReceiverTerms { credit, browses: true, ..ReceiverTerms::default() })
    }

    pub(crate) fn receiver_with(
        &mut self,
        session: usize,
        name: &str,
        address: &str,
        terms: ReceiverTerms<'_>,
    ) -> usize {
        let source = Source {
            address: Some(address),
            outcomes: Symbols::from_slice(&OUTCOMES),
            default_outcome: terms.default_outcome,
            distribution_mode: terms.browses.then_some("copy"),
            durable: if terms.durable { TerminusDurability::UnsettledState } else { TerminusDurability::None },
            expiry_policy: if terms.durable { TerminusExpiryPolicy::Never } else { TerminusExpiryPolicy::SessionEnd },
            ..Source::default()
        };
        let attach = Attach {
            name,
            role: Role::Receiver,
            snd_settle_mode: terms.snd,
            rcv_settle_mode: terms.rcv,
            source: Some(source),
            target: Some(AttachTarget::Target(Target::default())),
            max_message_size: terms.max_message_size,
            ..Attach::default()
        };
        let link = self.attach(session, &attach);
        if terms.credit > 0 {
            self.credit(link, terms.credit);
        }
        link
    }

    pub(crate) fn attach(&mut self, session: usize, attach: &Attach<'_>) -> usize {
        let token = self.links.len();
        let id = self.engine.attach(self.sessions[session], attach, token as u64).expect("a link can be attached");
        self.links.push(Diary {
            id,
            name: attach.name.into(),
            sender: attach.role == Role::Sender,
            attached: false,
            answer: String::new(),
            floor: None,
            refused: false,
            ended: None,
            why: String::new(),
            drained: 0,
            got: Vec::new(),
            outbox: VecDeque::new(),
            next_token: 0,
            outcomes: Vec::new(),
            settled: Vec::new(),
            declared: Vec::new(),
            listed: Vec::new(),
        });
        token
    }

    /// Puts a message into a sender's outbox; its token.
    pub(crate) fn send(&mut self, link: usize, bytes: Vec<u8>) -> u64 {
        self.send_as(link, bytes, false, 0)
    }

    pub(crate) fn send_as(&mut self, link: usize, bytes: Vec<u8>, settled: bool, format: u32) -> u64 {
        let (txn, tag) = (Vec::new(), Vec::new());
        self.put_out(link, Out { token: 0, settled, format, bytes, txn, tag, sent: 0, begun: false })
    }

    /// Attaches a sender that numbers its messages, in the first session.
    pub(crate) fn numbered_sender(&mut self, address: &str, opening: Opening) -> usize {
        let (name, properties) = (format!("n{}", self.links.len()), opening.encoded());
        let attach = Attach {
            name: &name,
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AttachTarget::Target(Target { address: Some(address), ..Target::default() })),
            properties: Some(Map::from_encoded(&properties, &Limits::default()).expect("a map")),
            ..Attach::default()
        };
        self.attach(0, &attach)
    }

    /// Puts a message with a number into a sender's outbox; its token.
    pub(crate) fn send_numbered(&mut self, link: usize, bytes: Vec<u8>, number: u64, lowest: u64) -> u64 {
        // As it is, sense or not.
        let tag = [number.to_be_bytes(), lowest.to_be_bytes()].concat();
        let txn = Vec::new();
        self.put_out(link, Out { token: 0, settled: false, format: 0, bytes, txn, tag, sent: 0, begun: false })
    }

    /// Puts a message in a transaction into a sender's outbox; its token.
    pub(crate) fn send_in(&mut self, txn: &[u8], link: usize, bytes: Vec<u8>, settled: bool) -> u64 {
        let (txn, tag) = (txn.into(), Vec::new());
        self.put_out(link, Out { token: 0, settled, format: 0, bytes, txn, tag, sent: 0, begun: false })
    }

    /// The same with a number.
    pub(crate) fn send_numbered_in(&mut self, txn: &[u8], link: usize, bytes: Vec<u8>, number: u64) -> u64 {
        let tag = [number.to_be_bytes(), 0u64.to_be_bytes()].concat();
        self.put_out(
            link,
            Out { token: 0, settled: false, format: 0, bytes, txn: txn.into(), tag, sent: 0, begun: false },
        )
    }

    fn put_out(&mut self, link: usize, out: Out) -> u64 {
        let diary = &mut self.links[link];
        let token = diary.next_token;
        diary.next_token += 1;
        diary.outbox.push_back(Out { token, ..out });
        token
    }

    /// Attaches a link to the coordinator, in this session.
    pub(crate) fn controller(&mut self, session: usize, name: &str) -> usize {
        let outcomes = ["amqp:accepted:list", "amqp:rejected:list", "amqp:declared:list"];
        let attach = Attach {
            name,
            role: Role::Sender,
            snd_settle_mode: SenderSettleMode::Unsettled,
            source: Some(Source { outcomes: Symbols::from_slice(&outcomes), ..Source::default() }),
            target: Some(Coordinator { capabilities: Symbols::one("amqp:local-transactions") }.into()),
            ..Attach::default()
        };
        self.attach(session, &attach)
    }

    /// Asks the coordinator; the request's token.
    pub(crate) fn request(&mut self, link: usize, request: &Request<'_>) -> u64 {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.send(link, bytes)
    }

    /// Says in a transaction what becomes of the message at this place of the diary.
    pub(crate) fn decide_in(
        &mut self,
        txn: &[u8],
        link: usize,
        at: usize,
        outcome: Option<Outcome<'_>>,
        settled: bool,
    ) {
        let state = DeliveryState::Transactional(TransactionalState { txn_id: txn, outcome });
        self.decide(link, at, Some(state), settled);
    }

    /// How many messages wait in the outbox.
    pub(crate) fn unsent(&self, link: usize) -> usize {
        self.links[link].outbox.len()
    }

    pub(crate) fn credit(&mut self, link: usize, credit: u32) {
        self.engine.grant(self.links[link].id, credit).expect("credit can be granted");
    }

    pub(crate) fn drain(&mut self, link: usize) {
        self.engine.drain(self.links[link].id).expect("a receiver can be drained");
    }

    /// Says what becomes of the message at this place of the diary.
    pub(crate) fn decide(&mut self, link: usize, at: usize, state: Option<DeliveryState<'_>>, settled: bool) {
        let diary = &mut self.links[link];
        let got = &mut diary.got[at];
        got.decided = true;
        self.engine
            .settle_incoming(diary.id, got.delivery, state.as_ref(), settled)
            .expect("a delivery can be settled");
    }

    pub(crate) fn accept(&mut self, link: usize, at: usize) {
        self.decide(link, at, Some(DeliveryState::Accepted), true);
    }

    pub(crate) fn release(&mut self, link: usize, at: usize) {
        self.decide(link, at, Some(DeliveryState::Released), true);
    }

    pub(crate) fn reject(&mut self, link: usize, at: usize, condition: &str, description: &str) {
        let error = packhorse_amqp10::codec::Error { condition, description: Some(description), info: None };
        self.decide(link, at, Some(DeliveryState::Rejected(Rejected { error: Some(error) })), true);
    }

    pub(crate) fn modify(
        &mut self,
        link: usize,
        at: usize,
        failed: bool,
        not_here: bool,
        annotations: &[(&str, &str)],
    ) {
        let mut encoded = Vec::new();
        packhorse_amqp10::codec::ValueWriter::map(&mut encoded, |map| {
            for (key, value) in annotations {
                packhorse_amqp10::codec::put_symbol(map.next(), key);
                packhorse_amqp10::codec::put_string(map.next(), value);
            }
        });
        let map = Map::from_encoded(&encoded, &Limits::default()).expect("a map");
        let modified = Modified {
            delivery_failed: failed,
            undeliverable_here: not_here,
            message_annotations: (!annotations.is_empty()).then_some(map),
        };
        self.decide(link, at, Some(DeliveryState::Modified(modified)), true);
    }

    /// Accepts all that came on a link and was not decided; how many that were.
    pub(crate) fn accept_all(&mut self, link: usize) -> usize {
        let open: Vec<usize> = (0..self.links[link].got.len()).filter(|at| self.links[link].got[*at].open()).collect();
        for at in &open {
            self.accept(link, *at);
        }
        open.len()
    }

    pub(crate) fn detach(&mut self, link: usize, closed: bool) {
        self.engine.detach(self.links[link].id, closed, None).expect("a link can be detached");
    }

    pub(crate) fn end(&mut self, session: usize) {
        self.engine.end(self.sessions[session], None).expect("a session can be ended");
    }

    pub(crate) fn close(&mut self) {
        self.engine.close(None, self.now_ms).expect("a connection can be closed");
    }

    // ---- questions ----

    /// Numbers of what came on a link, in order.
    pub(crate) fn numbers(&self, link: usize) -> Vec<u64> {
        self.links[link].got.iter().filter(|got| got.whole && !got.aborted).map(Got::number).collect()
    }

    /// Tokens of what was accepted on a sender, in the order it was told.
    pub(crate) fn confirmed(&self, link: usize) -> Vec<u64> {
        self.links[link].outcomes.iter().filter(|(_, state)| state == "accepted").map(|(token, _)| *token).collect()
    }

    // ---- the pump ----

    /// Reads, says what is due, writes. True: something happened.
    pub(super) fn pump(&mut self, pipe: &mut Pipe, now_ms: u64) -> bool {
        if pipe.gone || pipe.closed && pipe.from_broker.is_empty() || self.failed.is_some() {
            pipe.from_broker.clear();
            return false;
        }
        self.now_ms = now_ms;
        let fresh = std::mem::take(&mut pipe.from_broker);
        let mut partial = std::mem::take(&mut self.partial);
        let mut input = Input { partial: &mut partial, fresh: &fresh };
        loop {
            match self.engine.next(&mut input, now_ms) {
                Ok(Some(event)) => self.on(event, now_ms),
                Ok(None) => break,
                Err(fault) => {
                    self.failed = Some(fault.to_string());
                    break;
                }
            }
        }
        self.partial = partial;
        if self.engine.next_deadline().is_some_and(|at| at <= now_ms)
            && let Err(fault) = self.engine.on_tick(now_ms)
        {
            self.failed = Some(fault.to_string());
        }
        for link in 0..self.links.len() {
            self.write_out(link);
        }
        self.engine.flush(now_ms);
        let mut count = 0;
        for chunk in self.engine.output() {
            pipe.to_broker.extend_from_slice(chunk);
            count += chunk.len();
        }
        self.engine.advance_output(count);
        !fresh.is_empty() || count > 0
    }

    fn write_out(&mut self, link: usize) {
        let diary = &mut self.links[link];
        while let Some(out) = diary.outbox.front_mut() {
            let state = DeliveryState::Transactional(TransactionalState { txn_id: &out.txn, outcome: None });
            let state = (!out.txn.is_empty()).then_some(&state);
            let (token, settled, format) = (out.token, out.settled, out.format);
            let tag = (!out.tag.is_empty()).then_some(&out.tag[..]);
            let params = SendParams { token, settled, format, state, tag, ..SendParams::default() };
            if !out.begun {
                if !self.engine.sendable(diary.id) {
                    return;
                }
                if self.engine.fits(diary.id, out.bytes.len()) && out.bytes.len() < 256 << 10 {
                    self.engine.send(diary.id, &params, &[Piece::Copy(&out.bytes)]).expect("it is sendable");
                    diary.outbox.pop_front();
                    continue;
                }
                self.engine.begin_delivery(diary.id, &params).expect("it is sendable");
                out.begun = true;
            }
            let Ok(sent) = self.engine.send_chunk(diary.id, Piece::Copy(&out.bytes[out.sent..]), true) else { return };
            out.sent += sent.consumed;
            if !sent.done {
                return;
            }
            diary.outbox.pop_front();
        }
    }

    /// Begins a message that goes in parts.
    pub(crate) fn begin_parts(&mut self, link: usize) {
        let params = SendParams { token: u64::MAX, ..SendParams::default() };
        self.engine.begin_delivery(self.links[link].id, &params).expect("there is credit");
    }

    /// Sends one of its parts, which is not the last one.
    pub(crate) fn send_part(&mut self, link: usize, bytes: &[u8]) {
        let sent = self.engine.send_chunk(self.links[link].id, Piece::Copy(bytes), false).expect("it was begun");
        assert_eq!(sent.consumed, bytes.len(), "the part fits the window");
    }

    pub(crate) fn abort(&mut self, link: usize) {
        self.engine.abort_delivery(self.links[link].id).expect("it was begun");
    }

    fn on(&mut self, event: Event<'_>, now_ms: u64) {
        match event {
            Event::SaslMechanisms(_) => {
                let (mechanism, response) = match &self.user {
                    Some(user) => ("PLAIN", format!("\0{user}\0secret")),
                    None => ("ANONYMOUS", String::new()),
                };
                self.engine.sasl_init(mechanism, Some(response.as_bytes()), None).expect("it was asked for");
            }
            Event::SaslOutcome { code: SaslCode::Ok, .. } => {
                let open = Open { container_id: &self.container, ..Open::default() };
                self.engine.open(&open, now_ms).expect("the login is done");
            }
            Event::Opened(frame) => {
                self.opened = true;
                self.open_answer = format!("{frame:?}");
            }
            Event::SessionEnded { session, token, error, answered } => {
                self.session_ends.push((token, error.map_or("", |e| e.condition).into()));
                if !answered {
                    self.engine.end(session, None).expect("the end is owed");
                }
            }
            Event::SessionFailed { fault, .. } | Event::LinkFailed { fault, .. } => {
                panic!("the broker breaks a rule: {fault}");
            }
            Event::Attach(attach) if attach.answer => {
                let diary = &mut self.links[attach.token as usize];
                diary.attached = !attach.refused;
                diary.refused = attach.refused;
                diary.floor = producer::floor(attach.frame.decode().properties);
                diary.answer = format!("{:?}", attach.frame);
            }
            Event::Detached { link, token, closed, error, answered, .. } => {
                let diary = &mut self.links[token as usize];
                diary.ended = Some(error.map_or("", |e| e.condition).into());
                diary.why = error.and_then(|e| e.description).unwrap_or_default().into();
                diary.attached = false;
                if !answered {
                    self.engine.detach(link, closed, None).expect("the detach is owed");
                }
            }
            Event::Credit { drain, .. } => assert!(!drain, "the broker does not drain"),
            Event::SenderFlow { token, drained, .. } => self.links[token as usize].drained += u32::from(drained),
            Event::Drained { token, .. } => self.links[token as usize].drained += 1,
            Event::Transfer(transfer) => self.on_transfer(&transfer),
            Event::Disposition { session, ours, state, .. } => self.on_disposition(session, ours, state.as_ref()),
            Event::Closed { error, answered } => {
                self.closed = Some(error.map_or("", |e| e.condition).into());
                if !answered {
                    let _ = self.engine.close(None, now_ms);
                }
            }
            _ => {}
        }
    }

    fn on_transfer(&mut self, transfer: &packhorse_amqp10::engine::TransferEvent<'_>) {
        let got = &mut self.links[transfer.token as usize].got;
        if transfer.first {
            got.push(Got {
                delivery: transfer.delivery_id,
                settled: false,
                format: transfer.format,
                bytes: Vec::new(),
                whole: false,
                aborted: false,
                decided: false,
                settled_later: false,
            });
        }
        let last = got.last_mut().expect("a delivery begins with its first frame");
        last.bytes.extend_from_slice(transfer.payload);
        last.settled |= transfer.settled;
        last.whole = transfer.last;
        last.aborted = transfer.aborted;
    }

    fn on_disposition(&mut self, session: SessionId, ours: bool, state: Option<&DeliveryState<'_>>) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.engine.take_outcomes(&mut outcomes);
        for outcome in &outcomes {
            let diary = &mut self.links[outcome.link_token as usize];
            if !ours {
                let got = diary.got.iter_mut().rev().find(|got| got.delivery == outcome.delivery_id);
                got.expect("a delivery that came").settled_later = true;
                continue;
            }
            assert!(diary.sender);
            if outcome.settled {
                diary.settled.push(outcome.token);
            } else if outcome.state != Decision::Transactional {
                self.engine.settle_outgoing(session, outcome.delivery_id).expect("it was decided");
            }
            if !outcome.repeated {
                let text = diary.words(outcome.state, state);
                diary.outcomes.push((outcome.token, text));
            }
        }
        outcomes.clear();
        self.outcomes = outcomes;
    }
}

impl Diary {
    /// A state as text; what comes with it is kept.
    fn words(&mut self, decision: Decision, state: Option<&DeliveryState<'_>>) -> String {
        let state = match (decision, state) {
            // The source's default outcome stands for what was not said.
            (Decision::Released, _) => return "released".into(),
            (_, Some(state)) => state,
            (other, None) => return format!("{other:?}"),
        };
        match state {
            DeliveryState::Accepted => "accepted".into(),
            DeliveryState::Rejected(Rejected { error }) => {
                self.why = error.and_then(|error| error.description).unwrap_or_default().into();
                format!("rejected {}", error.map_or("", |error| error.condition))
            }
            DeliveryState::Declared(declared) => {
                self.declared.push(declared.txn_id.into());
                "declared".into()
            }
            DeliveryState::Transactional(TransactionalState { outcome: Some(outcome), .. }) => {
                format!("in transaction {}", self.words(Decision::Other, Some(&(*outcome).into())))
            }
            state => match Response::read(state, &Limits::default()).expect("the broker's outcomes decode") {
                Response::Result(result) => {
                    let xids = result.xids(&Limits::default()).expect("the broker's pages decode");
                    self.listed.extend(xids.iter().map(|xid| xid.global_id.to_vec()));
                    format!("xa {}{}", result.code, if result.more { " more" } else { "" })
                }
                Response::Status(status) => format!("{status:?}").to_lowercase(),
                _ => format!("{decision:?}"),
            },
        }
    }
}

impl Got {
    /// Whole, and still to be decided.
    pub(crate) fn open(&self) -> bool {
        self.whole && !self.aborted && !self.settled && !self.decided
    }
}

const OUTCOMES: [&str; 4] = ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"];
