//! One connection: the engine's client role with login, links by address, and endings answered.

use crate::event::{Event, Failure, LinkLost, Reason};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, DeliveryState, Error, Map, Modified, Open, ReceiverSettleMode, Rejected, Role, SaslCode,
    SenderSettleMode, Source, Symbols, Target, ValueWriter, put_symbol, put_ulong, put_uuid,
};
use packhorse_amqp10::engine::{
    self, ClientConfig, Connection, DeliveryOutcome, Input, LinkId, Misuse, Phase, Piece, SendParams, Sent, SessionId,
};
use packhorse_amqp10::transaction;

/// How to log in.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// No SASL at all.
    Bare,
    /// As nobody in particular.
    Anonymous,
    /// By name and password, in clear.
    Plain {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

/// How a connection is to be.
#[derive(Clone)]
pub struct Options {
    /// Our name among the broker's clients.
    pub container_id: String,
    /// The virtual host wanted.
    pub hostname: Option<String>,
    /// How to log in.
    pub login: Login,
    /// What the peer may make us hold; `frame_bytes` is the largest frame that we take.
    pub limits: Limits,
    /// Silence after which the peer is given up, ms; 0 = never.
    pub idle_timeout_ms: u32,
    /// Frames that the peer may send per session before we say more.
    pub incoming_window: u32,
    /// Deadline of each step until the connection is open, ms.
    pub handshake_ms: u32,
    /// A secret that keeps peers from choosing colliding delivery tags.
    pub seed: u64,
    /// A name for the commits of this client, so that it can ask what became of one.
    pub commits: Option<Commits>,
}

/// A client's session over all its connections, and how far its commits have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// The session's id, of the client's choice.
    pub session: [u8; 16],
    /// The number that its next commit will have.
    pub next: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            container_id: "packhorse-client".into(),
            hostname: None,
            login: Login::Anonymous,
            limits: Limits::default(),
            idle_timeout_ms: 60_000,
            incoming_window: 2048,
            handshake_ms: 20_000,
            seed: 0,
            commits: None,
        }
    }
}

/// A link on which we send.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions<'a> {
    /// The link's name; unique for this container and direction.
    pub name: &'a str,
    /// Where messages go; `None`: each message's own `to`.
    pub address: Option<&'a str>,
    /// Whether deliveries are settled when sent.
    pub settle: SenderSettleMode,
    /// The caller's number for the link.
    pub token: u64,
}

/// A link on which we receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions<'a> {
    /// The link's name; unique for this container and direction.
    pub name: &'a str,
    /// Where messages come from.
    pub address: &'a str,
    /// The broker settles when it sends: at most once.
    pub presettled: bool,
    /// First credit; more by [`Client::grant`].
    pub credit: u32,
    /// The caller's number for the link.
    pub token: u64,
}

/// What we say of a message that we got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Done.
    Accept,
    /// Give it back unseen.
    Release,
    /// Never again; with words for the operator.
    Reject {
        /// A condition, such as `amqp:decode-error`.
        condition: &'a str,
        /// One sentence.
        description: &'a str,
    },
    /// Give it back.
    Modify {
        /// The attempt counts.
        failed: bool,
        /// Never again to this link.
        undeliverable_here: bool,
    },
    /// Give it back with something added to its annotations.
    Annotate {
        /// The attempt counts.
        failed: bool,
        /// Never again to this link.
        undeliverable_here: bool,
        /// What is merged into its annotations.
        annotations: Map<'a>,
    },
}

impl<'a> Verdict<'a> {
    pub(crate) fn state(self) -> DeliveryState<'a> {
        match self {
            Verdict::Accept => DeliveryState::Accepted,
            Verdict::Release => DeliveryState::Released,
            Verdict::Reject { condition, description } => DeliveryState::Rejected(Rejected {
                error: Some(Error { condition, description: Some(description), info: None }),
            }),
            Verdict::Modify { failed, undeliverable_here } => DeliveryState::Modified(Modified {
                delivery_failed: failed,
                undeliverable_here,
                message_annotations: None,
            }),
            Verdict::Annotate { failed, undeliverable_here, annotations } => DeliveryState::Modified(Modified {
                delivery_failed: failed,
                undeliverable_here,
                message_annotations: Some(annotations),
            }),
        }
    }
}

/// A client's connection.
pub struct Client {
    pub(crate) connection: Connection,
    container_id: String,
    hostname: Option<String>,
    login: Login,
    commits: Option<Commits>,
    /// Links whose `attach` the peer answered by a refusal, until its `detach` tells why.
    refused: Vec<LinkId>,
    outcomes: Vec<DeliveryOutcome>,
    failed: bool,
}

impl Client {
    /// A fresh connection: its first bytes wait in [`Client::output`]. `now_ms` is monotonic time from any start, the same in
    /// all calls.
    pub fn new(options: Options, now_ms: u64) -> Client {
        let config = ClientConfig {
            container_id: Arc::from(options.container_id.as_str()),
            limits: options.limits,
            idle_timeout_ms: options.idle_timeout_ms,
            sasl: options.login != Login::Bare,
            incoming_window: options.incoming_window,
            handshake_ms: options.handshake_ms,
            seed: options.seed,
            ..ClientConfig::default()
        };
        let mut client = Client {
            connection: Connection::client(config, now_ms),
            container_id: options.container_id,
            hostname: options.hostname,
            login: options.login,
            commits: options.commits,
            refused: Vec::new(),
            outcomes: Vec::new(),
            failed: false,
        };
        if client.login == Login::Bare {
            client.open(now_ms);
        }
        client
    }

    /// Reads on; call it until `None` each time bytes were read.
    ///
    /// # Errors
    ///
    /// The connection cannot go on: see [`Failure`].
    pub fn next<'i>(&mut self, input: &'i mut Input<'_>, now_ms: u64) -> Result<Option<Event<'i>>, Failure> {
        self.outcomes.clear();
        let event = match self.connection.next(input, now_ms) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(None),
            Err(fault) => return Err(Failure::Fault(fault)),
        };
        self.answer(event, now_ms).map(Some)
    }

    /// Says what an event of the engine means, and does what needs no decision.
    fn answer<'i>(&mut self, event: engine::Event<'i>, now_ms: u64) -> Result<Event<'i>, Failure> {
        use engine::Event as E;
        Ok(match event {
            E::SaslMechanisms(frame) => {
                self.log_in(frame.decode().sasl_server_mechanisms)?;
                Event::Other
            }
            E::SaslOutcome { code: SaslCode::Ok, .. } => {
                self.open(now_ms);
                Event::Other
            }
            E::SaslOutcome { code, .. } => return Err(self.fail(Failure::LoginRefused { code })),
            // Neither ANONYMOUS nor PLAIN has one.
            E::SaslChallenge(_) => return Err(self.fail(Failure::LoginRefused { code: SaslCode::Sys })),
            E::Opened(frame) => Event::Opened(frame),
            E::SessionBegun { session, by_peer: false, .. } => {
                Event::Begun { session, token: self.connection.session_token(session).unwrap_or(0) }
            }
            E::SessionBegun { session, by_peer: true, .. } => {
                // Nothing of ours happens on a session of the broker's.
                let _ = self.connection.end(session, Some(&NOT_WANTED));
                Event::Other
            }
            E::SessionEnded { session, token, error, answered } => {
                if !answered {
                    let _ = self.connection.end(session, None);
                }
                Event::SessionLost { session, token, reason: Reason::of(error) }
            }
            E::SessionFailed { session, token, fault } => {
                Event::SessionLost { session, token, reason: Reason::Fault(fault) }
            }
            E::Attach(attach) if !attach.answer => {
                let _ = self.connection.refuse_link(attach.link, &NOT_WANTED);
                Event::Other
            }
            E::Attach(attach) if attach.refused => {
                self.refused.push(attach.link);
                Event::Other
            }
            E::Attach(attach) => Event::Attached { link: attach.link, token: attach.token, frame: attach.frame },
            E::Detached { link, token, closed, error, answered, .. } => {
                if !answered {
                    let _ = self.connection.detach(link, closed, None);
                }
                let refused = self.refused.iter().position(|l| *l == link);
                if let Some(at) = refused {
                    self.refused.swap_remove(at);
                }
                Event::LinkLost(LinkLost { link, token, refused: refused.is_some(), reason: Reason::of(error) })
            }
            E::LinkFailed { link, token, fault } => {
                self.refused.retain(|l| *l != link);
                Event::LinkLost(LinkLost { link, token, refused: false, reason: Reason::Fault(fault) })
            }
            E::Credit { link, token, credit, drain, .. } => Event::Credit { link, token, credit, drain },
            E::SenderFlow { link, token, drained: true, .. } | E::Drained { link, token } => {
                Event::Drained { link, token }
            }
            E::SenderFlow { window_opened: true, .. } => Event::Room { session: None },
            E::SessionFlow { session, window_opened: true, .. } => Event::Room { session: Some(session) },
            E::Transfer(transfer) => Event::Message(transfer),
            E::Disposition { session, ours: true, state, .. } => {
                self.connection.take_outcomes(&mut self.outcomes);
                for outcome in self.outcomes.iter().filter(|o| !o.settled) {
                    // In a transaction it is what will be; the broker settles, or we do when the transaction has ended.
                    if !matches!(outcome.state, engine::Decision::Received | engine::Decision::Transactional) {
                        let _ = self.connection.settle_outgoing(session, outcome.delivery_id);
                    }
                }
                Event::Outcomes { state }
            }
            E::Disposition { ours: false, .. } => {
                self.connection.take_outcomes(&mut self.outcomes);
                Event::Confirmed
            }
            E::Closed { error, answered } => {
                if !answered {
                    let _ = self.connection.close(None, now_ms);
                }
                Event::Closed { reason: Reason::of(error) }
            }
            _ => Event::Other,
        })
    }

    fn log_in(&mut self, offered: Symbols<'_>) -> Result<(), Failure> {
        let (wanted, response) = match &self.login {
            Login::Anonymous | Login::Bare => ("ANONYMOUS", Vec::new()),
            Login::Plain { user, password } => ("PLAIN", [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()),
        };
        if !offered.contains(wanted) {
            let offered = offered.iter().collect::<Vec<_>>().join(" ");
            return Err(self.fail(Failure::NoMechanism { wanted, offered }));
        }
        // Cannot be the wrong moment: the engine just asked.
        let _ = self.connection.sasl_init(wanted, Some(&response), self.hostname.as_deref());
        Ok(())
    }

    fn open(&mut self, now_ms: u64) {
        let mut properties = Vec::new();
        if let Some(Commits { session, next }) = self.commits {
            ValueWriter::map(&mut properties, |map| {
                put_symbol(map.next(), transaction::SESSION_PROPERTY);
                put_uuid(map.next(), session);
                put_symbol(map.next(), transaction::NEXT_COMMIT_PROPERTY);
                put_ulong(map.next(), next);
            });
        }
        let properties = Map::from_encoded(&properties, &Limits::default()).ok();
        let hostname = self.hostname.as_deref();
        let open = Open { container_id: &self.container_id, hostname, properties, ..Open::default() };
        if self.connection.open(&open, now_ms).is_err() {
            // Names of more than 512 bytes: the peer then sees one without.
            let _ = self.connection.open(&Open::default(), now_ms);
        }
    }

    fn fail(&mut self, failure: Failure) -> Failure {
        self.failed = true;
        failure
    }

    /// Begins a session; its links may be attached at once. Not before [`Event::Opened`].
    ///
    /// # Errors
    ///
    /// As [`Connection::begin`].
    pub fn begin(&mut self, token: u64) -> Result<SessionId, Misuse> {
        self.connection.begin(token)
    }

    /// Attaches a sender. [`Event::Attached`] or [`Event::LinkLost`] follows; credit comes after that.
    ///
    /// # Errors
    ///
    /// As [`Connection::attach`].
    pub fn sender(&mut self, session: SessionId, options: &SenderOptions<'_>) -> Result<LinkId, Misuse> {
        self.attach_sender(session, options, None)
    }

    pub(crate) fn attach_sender(
        &mut self,
        session: SessionId,
        options: &SenderOptions<'_>,
        properties: Option<Map<'_>>,
    ) -> Result<LinkId, Misuse> {
        let attach = Attach {
            name: options.name,
            role: Role::Sender,
            snd_settle_mode: options.settle,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: Some(Source { outcomes: OUTCOMES, ..Source::default() }),
            target: Some(AttachTarget::Target(Target { address: options.address, ..Target::default() })),
            properties,
            ..Attach::default()
        };
        self.connection.attach(session, &attach, options.token)
    }

    /// Attaches a receiver with its first credit.
    ///
    /// # Errors
    ///
    /// As [`Connection::attach`].
    pub fn receiver(&mut self, session: SessionId, options: &ReceiverOptions<'_>) -> Result<LinkId, Misuse> {
        self.attach_receiver(session, options, ReceiverSettleMode::First)
    }

    /// As [`Client::receiver`], for a link that settles second: what is decided by [`Client::decide`] is answered by
    /// [`Event::Confirmed`] when it is safe.
    ///
    /// # Errors
    ///
    /// As [`Connection::attach`].
    pub fn careful_receiver(&mut self, session: SessionId, options: &ReceiverOptions<'_>) -> Result<LinkId, Misuse> {
        self.attach_receiver(session, options, ReceiverSettleMode::Second)
    }

    fn attach_receiver(
        &mut self,
        session: SessionId,
        options: &ReceiverOptions<'_>,
        settles: ReceiverSettleMode,
    ) -> Result<LinkId, Misuse> {
        let attach = Attach {
            name: options.name,
            role: Role::Receiver,
            snd_settle_mode: if options.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled },
            rcv_settle_mode: settles,
            source: Some(Source { address: Some(options.address), outcomes: OUTCOMES, ..Source::default() }),
            target: Some(AttachTarget::Target(Target::default())),
            ..Attach::default()
        };
        let link = self.connection.attach(session, &attach, options.token)?;
        if options.credit > 0 {
            self.connection.grant(link, options.credit)?;
        }
        Ok(link)
    }

    /// Attaches a link with every field as given; for what [`Client::sender`] and [`Client::receiver`] do not say.
    ///
    /// # Errors
    ///
    /// As [`Connection::attach`].
    pub fn attach(&mut self, session: SessionId, attach: &Attach<'_>, token: u64) -> Result<LinkId, Misuse> {
        self.connection.attach(session, attach, token)
    }

    /// Whether a message can be sent, or begun, on a sender now.
    pub fn sendable(&self, link: LinkId) -> bool {
        self.connection.sendable(link)
    }

    /// Whether a message of so many bytes fits the session's window now, so that [`Client::send`] takes it whole.
    pub fn fits(&self, link: LinkId, bytes: usize) -> bool {
        self.connection.fits(link, bytes)
    }

    /// Sends a whole message, the pieces one after the other. Unless `settled`, its outcome comes with `token`.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`]; [`Misuse::NotSendable`] passes.
    pub fn send(&mut self, link: LinkId, token: u64, settled: bool, pieces: &[Piece<'_>]) -> Result<u32, Misuse> {
        self.connection.send(link, &SendParams { token, settled, ..SendParams::default() }, pieces)
    }

    /// Begins a message that comes by [`Client::send_part`]: one that does not fit the window, or is made as it is sent.
    ///
    /// # Errors
    ///
    /// As [`Connection::begin_delivery`].
    pub fn begin_message(&mut self, link: LinkId, token: u64, settled: bool) -> Result<(), Misuse> {
        self.connection.begin_delivery(link, &SendParams { token, settled, ..SendParams::default() })
    }

    /// Sends a part of the message begun, as far as there is room; give the rest again later.
    ///
    /// # Errors
    ///
    /// As [`Connection::send_chunk`].
    pub fn send_part(&mut self, link: LinkId, part: Piece<'_>, last: bool) -> Result<Sent, Misuse> {
        self.connection.send_chunk(link, part, last)
    }

    /// Takes back the message begun.
    ///
    /// # Errors
    ///
    /// As [`Connection::abort_delivery`].
    pub fn abort_message(&mut self, link: LinkId) -> Result<(), Misuse> {
        self.connection.abort_delivery(link)
    }

    /// Answers the drain of [`Event::Credit`].
    ///
    /// # Errors
    ///
    /// As [`Connection::drained`].
    pub fn drained(&mut self, link: LinkId) -> Result<(), Misuse> {
        self.connection.drained(link)
    }

    /// The deliveries of the [`Event::Outcomes`] or [`Event::Confirmed`] just seen.
    pub fn outcomes(&self) -> &[DeliveryOutcome] {
        &self.outcomes
    }

    /// Lets a receiver get `credit` messages from now on, in place of what was granted before.
    ///
    /// # Errors
    ///
    /// As [`Connection::grant`].
    pub fn grant(&mut self, link: LinkId, credit: u32) -> Result<(), Misuse> {
        self.connection.grant(link, credit)
    }

    /// Credit not used up, of either kind of link.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.connection.credit(link)
    }

    /// Asks for what is ready, at most the credit; then [`Event::Drained`] comes.
    ///
    /// # Errors
    ///
    /// As [`Connection::drain`].
    pub fn drain(&mut self, link: LinkId) -> Result<(), Misuse> {
        self.connection.drain(link)
    }

    /// Says what became of a message that came unsettled, and settles it. False: it was settled already.
    ///
    /// # Errors
    ///
    /// As [`Connection::settle_incoming`].
    pub fn settle(&mut self, link: LinkId, delivery_id: u32, verdict: Verdict<'_>) -> Result<bool, Misuse> {
        self.connection.settle_incoming(link, delivery_id, Some(&verdict.state()), true)
    }

    /// Says what became of a message that came unsettled, and asks for an answer: [`Event::Confirmed`] when it is safe.
    /// For links made by [`Client::careful_receiver`]. False: it was settled already.
    ///
    /// # Errors
    ///
    /// As [`Connection::settle_incoming`].
    pub fn decide(&mut self, link: LinkId, delivery_id: u32, verdict: Verdict<'_>) -> Result<bool, Misuse> {
        self.connection.settle_incoming(link, delivery_id, Some(&verdict.state()), false)
    }

    /// Ends a link for good. [`Event::LinkLost`] follows when the peer has answered.
    ///
    /// # Errors
    ///
    /// As [`Connection::detach`].
    pub fn detach(&mut self, link: LinkId) -> Result<(), Misuse> {
        self.connection.detach(link, true, None)
    }

    /// Ends a session with its links. [`Event::SessionLost`] follows when the peer has answered.
    ///
    /// # Errors
    ///
    /// As [`Connection::end`].
    pub fn end(&mut self, session: SessionId) -> Result<(), Misuse> {
        self.connection.end(session, None)
    }

    /// Closes the connection. [`Event::Closed`] follows when the peer has answered.
    ///
    /// # Errors
    ///
    /// As [`Connection::close`].
    pub fn close(&mut self, now_ms: u64) -> Result<(), Misuse> {
        self.connection.close(None, now_ms)
    }

    /// How far the connection has come.
    pub fn phase(&self) -> Phase {
        self.connection.phase()
    }

    /// Whether the socket should be closed once the output is written.
    pub fn wants_close(&self) -> bool {
        self.failed || self.connection.wants_close()
    }

    /// Ends a turn: dispositions and credit go to the output. Call it before writing.
    pub fn flush(&mut self, now_ms: u64) {
        self.connection.flush(now_ms);
    }

    /// The bytes to write, in order.
    pub fn output(&self) -> engine::Chunks<'_> {
        self.connection.output()
    }

    /// How many bytes are to be written.
    pub fn output_len(&self) -> usize {
        self.connection.output_len()
    }

    /// So many of them are written.
    pub fn written(&mut self, bytes: usize) {
        self.connection.advance_output(bytes);
    }

    /// When [`Client::on_tick`] is due if nothing else happens; in the time of `now_ms`.
    pub fn next_deadline(&self) -> Option<u64> {
        self.connection.next_deadline()
    }

    /// Time has passed: keeps the connection alive, or finds the peer gone.
    ///
    /// # Errors
    ///
    /// [`Failure::Fault`]: the peer was silent for too long.
    pub fn on_tick(&mut self, now_ms: u64) -> Result<(), Failure> {
        self.connection.on_tick(now_ms).map_err(Failure::Fault)
    }
}

/// What a broker that begins things by itself is told.
const NOT_WANTED: Error<'static> =
    Error { condition: "amqp:not-implemented", description: Some("this client begins its links itself"), info: None };

/// Outcomes that we understand.
const OUTCOMES: Symbols<'static> =
    Symbols::from_slice(&["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"]);
