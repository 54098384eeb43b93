//! The connection: protocol headers, `open`, `close`, the dispatch of frames, and what happens when a rule is broken.
//!
//! Owns all state of one connection; the parts of it that concern sessions, links, deliveries and SASL are changed in the
//! files named for them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::emit::{Emit, Kind};
use super::event::{DeliveryOutcome, Event, Fault, Told};
use super::input::{Cut, Input};
use super::link::Link;
use super::output::{Chunks, Output};
use super::session::Session;
use super::slab::{Slab, SmallMap};
use super::terms::{ClientConfig, Misuse, ServerConfig};
use super::timer::{Timer, Wait};
use super::{LinkId, SessionId};
use crate::codec::{
    Close, DecodeError, Error, FrameHeader, FrameKind, Open, PROTOCOL_HEADER, Performative, Role, SASL_PROTOCOL_HEADER,
    Transfer,
};
use crate::limits::Limits;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Protocol headers and login.
    Handshake,
    /// Logged in; not both `open`s are out.
    Opening,
    /// Open in both directions.
    Open,
    /// A `close` is out in one direction, or in both and not yet written.
    Closing,
    /// Over: only what is left of the output may be written.
    Over,
}

/// Room for outcomes that is kept from one disposition to the next.
const OUTCOMES_KEPT: usize = 4096;

/// The code of `transfer`, as it stands in a frame.
const TRANSFER: u8 = Transfer::CODE as u8;

/// What the next bytes of the peer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Its first eight bytes.
    FirstHeader,
    /// SASL frames.
    Sasl,
    /// The header behind SASL.
    AmqpHeader,
    /// AMQP frames.
    Frames,
}

/// Settings of a connection, alike for both roles.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) server: bool,
    pub(crate) limits: Limits,
    pub(crate) container_id: Arc<str>,
    pub(crate) idle_ms: u32,
    pub(crate) incoming_window: u32,
    pub(crate) seed: u64,
    pub(crate) allow_bare: bool,
    pub(crate) sasl: bool,
    pub(crate) sasl_ms: u32,
    pub(crate) open_ms: u32,
    pub(crate) close_ms: u32,
}

/// One AMQP 1.0 connection, of either role. See the module for how it is driven.
#[derive(Debug)]
pub struct Connection {
    pub(crate) set: Settings,
    pub(crate) expect: Expect,
    /// Input waits for a command: a decision on login or `open`.
    pub(crate) waiting: bool,
    /// Nothing more is read or said.
    pub(crate) over: bool,
    /// Where the peer's frames end is not known any more: what it sends is dropped unread.
    deaf: bool,
    pub(crate) sasl: super::sasl::Sasl,
    pub(crate) header_sent: bool,
    pub(crate) open_sent: bool,
    pub(crate) open_seen: bool,
    pub(crate) close_sent: bool,
    pub(crate) close_seen: bool,
    /// Consumed bytes at the front of the caller's `partial`.
    taken: usize,
    pub(crate) out: Output,
    /// Whether a frame was made since the last `flush`.
    pub(crate) wrote: bool,
    pub(crate) timer: Timer,
    /// The largest frame the peer takes.
    pub(crate) peer_frame: u32,
    pub(crate) peer_channel_max: u16,

    pub(crate) sessions: Slab<Session>,
    /// The peer's channels.
    pub(crate) channels_in: SmallMap<SessionId>,
    /// Our channels.
    pub(crate) channels_out: SmallMap<SessionId>,
    pub(crate) links: Slab<Link>,
    /// Links by name and our role, from the first `attach` to the first `detach`.
    pub(crate) names: [BTreeMap<Arc<str>, LinkId>; 2],
    pub(crate) outcomes: Vec<DeliveryOutcome>,
    /// Sessions with something for `flush`, each once.
    pub(crate) dirty_sessions: Vec<SessionId>,
    /// Links with a `flow` for `flush`, each once.
    pub(crate) dirty_links: Vec<LinkId>,
    /// Events that came beside another one.
    pub(crate) pending: VecDeque<Emit>,
    /// Links whose frame that aborts a delivery waits for the window.
    pub(crate) owed_aborts: u32,
    /// For encoding a delivery's state before it is compared.
    pub(crate) scratch: Vec<u8>,
}

/// The position of a role in [`Connection::names`].
pub(crate) fn role_index(role: Role) -> usize {
    usize::from(role.wire())
}

impl Connection {
    /// The server's side of a fresh connection. Call [`Self::sasl_mechanisms`] before the first [`Self::next`], unless only
    /// bare connections are allowed.
    #[must_use]
    pub fn server(config: ServerConfig, now_ms: u64) -> Self {
        let timer = Timer::new(now_ms, config.idle_timeout_ms, Wait::Header, config.header_ms);
        Self::new(
            Settings {
                server: true,
                limits: config.limits,
                container_id: config.container_id,
                idle_ms: config.idle_timeout_ms,
                incoming_window: config.incoming_window.max(1),
                seed: config.seed,
                allow_bare: config.allow_bare,
                sasl: true,
                sasl_ms: config.sasl_ms,
                open_ms: config.open_ms,
                close_ms: config.close_ms,
            },
            timer,
        )
    }

    /// The client's side of a fresh connection: the first protocol header is queued. With SASL, answer
    /// [`Event::SaslMechanisms`] by `sasl_init` (or call it at once, not to wait a round trip). Call `open` when the login is
    /// done (or at once).
    #[must_use]
    pub fn client(config: ClientConfig, now_ms: u64) -> Self {
        let timer = Timer::new(now_ms, config.idle_timeout_ms, Wait::Header, config.handshake_ms);
        let mut conn = Self::new(
            Settings {
                server: false,
                limits: config.limits,
                container_id: config.container_id,
                idle_ms: config.idle_timeout_ms,
                incoming_window: config.incoming_window.max(1),
                seed: config.seed,
                allow_bare: true,
                sasl: config.sasl,
                sasl_ms: config.handshake_ms,
                open_ms: config.handshake_ms,
                close_ms: config.close_ms,
            },
            timer,
        );
        if config.sasl {
            conn.raw(&SASL_PROTOCOL_HEADER);
        } else {
            conn.send_header();
        }
        conn
    }

    fn new(set: Settings, timer: Timer) -> Self {
        Self {
            set,
            expect: Expect::FirstHeader,
            waiting: false,
            over: false,
            deaf: false,
            sasl: super::sasl::Sasl::default(),
            header_sent: false,
            open_sent: false,
            open_seen: false,
            close_sent: false,
            close_seen: false,
            taken: 0,
            out: Output::default(),
            wrote: false,
            timer,
            peer_frame: 512,
            peer_channel_max: u16::MAX,
            sessions: Slab::default(),
            channels_in: SmallMap::default(),
            channels_out: SmallMap::default(),
            links: Slab::default(),
            names: [BTreeMap::new(), BTreeMap::new()],
            outcomes: Vec::new(),
            dirty_sessions: Vec::new(),
            dirty_links: Vec::new(),
            pending: VecDeque::new(),
            owed_aborts: 0,
            scratch: Vec::new(),
        }
    }

    /// Reads on. `None`: all input is used up (or waits for a decision on login or `open`; then call again after giving it,
    /// with or without fresh bytes). Call it until `None` each time bytes were read.
    ///
    /// `now_ms` is monotonic time in milliseconds, from any start, the same in all calls.
    ///
    /// # Errors
    ///
    /// The peer broke a rule of the connection: what it is owed (a `close`, a header, nothing) is queued, and from now on
    /// its input is dropped until its `close`. Go on calling `next` until [`Self::wants_close`].
    pub fn next<'i>(&mut self, input: &'i mut Input<'_>, now_ms: u64) -> Result<Option<Event<'i>>, Fault> {
        self.outcomes.clear();
        if self.outcomes.capacity() > OUTCOMES_KEPT {
            self.outcomes = Vec::new();
        }
        if !input.fresh.is_empty() {
            self.timer.heard(now_ms);
        }
        loop {
            if let Some(emit) = self.pending.pop_front() {
                return Ok(Some(emit.event(&[], &self.set.limits)));
            }
            if self.over || self.deaf {
                input.drop_all(&mut self.taken);
                return Ok(None);
            }
            if self.waiting {
                let held = input.hold(&mut self.taken);
                if held > self.set.limits.held_bytes {
                    let text = alloc::format!(
                        "{held} bytes before the login was answered: at most {} are held",
                        self.set.limits.held_bytes
                    );
                    let fault = Fault::told("amqp:resource-limit-exceeded", text, Told::Silence);
                    return Err(self.fail(fault, now_ms));
                }
                return Ok(None);
            }
            let found = match self.expect {
                Expect::FirstHeader | Expect::AmqpHeader => {
                    let wanted = self.expect;
                    input.cut(&mut self.taken, |bytes| header_size(bytes, wanted, self.set.sasl))
                }
                Expect::Sasl => {
                    let limit = self.set.limits.sasl_frame_bytes;
                    input.cut(&mut self.taken, |bytes| {
                        frame_size(bytes, limit, FrameKind::Sasl).map_err(|error| sasl_fault(&error))
                    })
                }
                Expect::Frames => {
                    let limit = if self.open_sent && self.open_seen {
                        self.set.limits.frame_bytes
                    } else {
                        self.set.limits.open_frame_bytes
                    };
                    input.cut(&mut self.taken, |bytes| {
                        frame_size(bytes, limit, FrameKind::Amqp).map_err(|error| decode_fault(&error))
                    })
                }
            };
            let cut: Cut<'_> = match found {
                Ok(Some(cut)) => cut,
                Ok(None) => return Ok(None),
                Err(fault) => return self.fault(fault, input, now_ms),
            };
            let step = {
                let bytes = cut.bytes(input);
                match self.expect {
                    Expect::FirstHeader | Expect::AmqpHeader => self.on_header(bytes, now_ms).map(|()| None),
                    Expect::Sasl => self.on_sasl(bytes, now_ms),
                    Expect::Frames => self.on_frame(bytes, now_ms),
                }
            };
            match step {
                Ok(None) => {}
                Ok(Some(emit)) => return Ok(Some(emit.event(cut.bytes(input), &self.set.limits))),
                Err(fault) => return Err(self.fail(fault, now_ms)),
            }
        }
    }

    /// A fault in the outer form of the input: where frames end is not known any more, nothing further can be read.
    fn fault<'i>(&mut self, fault: Fault, input: &mut Input<'_>, now_ms: u64) -> Result<Option<Event<'i>>, Fault> {
        // The socket stays open for a while, so that our `close` is read before the end of the stream is seen.
        self.deaf = true;
        input.drop_all(&mut self.taken);
        if self.close_sent { Ok(None) } else { Err(self.fail(fault, now_ms)) }
    }

    /// Answers a fault of the connection and says it again.
    pub(crate) fn fail(&mut self, fault: Fault, now_ms: u64) -> Fault {
        match fault.told {
            Told::Silence => self.over = true,
            Told::Header | Told::TlsHello => {
                if self.set.server && !self.header_sent {
                    let wanted =
                        if self.expect == Expect::FirstHeader { SASL_PROTOCOL_HEADER } else { PROTOCOL_HEADER };
                    self.raw(&wanted);
                }
                self.over = true;
            }
            Told::Frame => {
                let error = Error { condition: fault.condition, description: Some(&fault.sentence), info: None };
                self.send_close(Some(&error));
                self.timer.wait(now_ms, Wait::Close, self.set.close_ms);
            }
        }
        fault
    }

    /// Ends with `close`, once; what is pending goes out before it.
    fn send_close(&mut self, error: Option<&Error<'_>>) {
        if self.close_sent {
            return;
        }
        self.waiting = false;
        if !self.open_sent {
            //= amqp10 2.4.3 (each side sends `open` before `close`)
            let id = Arc::clone(&self.set.container_id);
            let open = self.our_open(&Open { container_id: &id, ..Open::default() });
            self.frame(0, |out| open.encode(out));
            self.open_sent = true;
        }
        self.flush_pending();
        let fits = self.try_frame(0, |out| Close { error: error.copied() }.encode(out));
        if !fits {
            // A long sentence, or a map, in a small frame: the condition alone always fits.
            let bare = error.map(|error| Error { condition: error.condition, description: None, info: None });
            self.frame(0, |out| Close { error: bare }.encode(out));
        }
        self.close_sent = true;
        if self.close_seen {
            self.over = true;
        }
    }

    //= amqp10 2.2
    fn on_header(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), Fault> {
        let sasl = bytes == SASL_PROTOCOL_HEADER;
        if self.expect == Expect::AmqpHeader || !sasl {
            if bytes != PROTOCOL_HEADER {
                return Err(wrong_header(bytes, "AMQP 1.0"));
            }
            if self.expect == Expect::FirstHeader && self.set.server && !self.set.allow_bare {
                return Err(Fault::told(
                    "amqp:unauthorized-access",
                    "a connection without SASL is not allowed here",
                    Told::Header,
                ));
            }
            if self.expect == Expect::FirstHeader && !self.set.server && self.set.sasl {
                return Err(wrong_header(bytes, "SASL"));
            }
            if !self.header_sent && self.set.server {
                self.send_header();
            }
            self.expect = Expect::Frames;
            self.timer.wait(now_ms, Wait::Open, self.set.open_ms);
            return Ok(());
        }
        if !self.set.sasl || (self.set.server && self.sasl.mechanisms.is_empty()) {
            return Err(wrong_header(bytes, "AMQP 1.0"));
        }
        self.expect = Expect::Sasl;
        self.timer.wait(now_ms, Wait::Sasl, self.set.sasl_ms);
        if self.set.server {
            self.raw(&SASL_PROTOCOL_HEADER);
            self.send_mechanisms();
        }
        Ok(())
    }

    /// Queues the AMQP header, once.
    pub(crate) fn send_header(&mut self) {
        if !mem::replace(&mut self.header_sent, true) {
            self.raw(&PROTOCOL_HEADER);
        }
    }

    fn on_frame(&mut self, bytes: &[u8], now_ms: u64) -> Result<Option<Emit>, Fault> {
        let header = match FrameHeader::parse(bytes, u32::MAX, FrameKind::Amqp) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(decode_fault(&error)),
        };
        let body = header.body(bytes);
        // Nearly all frames are transfers: decoded by themselves they are spared the moves of the largest performative.
        if let [0x00, 0x53, TRANSFER, ..] = body
            && self.open_seen
            && !self.close_sent
            && !self.close_seen
        {
            return match Transfer::decode(body, &self.set.limits) {
                Ok((transfer, payload)) => self.on_transfer(header.channel, &transfer, payload, bytes, body),
                Err(error) => Err(decode_fault(&error)),
            };
        }
        let decoded = Performative::decode(body, &self.set.limits);
        if self.close_sent {
            //= amqp10 2.4.6 (after our `close` the peer's input is discarded until its own)
            return Ok(match decoded {
                Ok(Some((Performative::Close(_), _))) => self.on_close(bytes, body),
                _ => None,
            });
        }
        if self.close_seen {
            // Nothing may follow their close.
            return Ok(None);
        }
        let (performative, payload) = match decoded {
            Ok(Some(decoded)) => decoded,
            //= amqp10 2.4.5 (an empty frame only shows that the peer lives)
            Ok(None) => return Ok(None),
            Err(error) => return Err(decode_fault(&error)),
        };
        if !self.open_seen {
            return match performative {
                Performative::Open(open) => self.on_open(&open, header.channel, bytes, body, now_ms),
                //= amqp10 2.4.1
                other => Err(Fault::new(
                    "amqp:illegal-state",
                    alloc::format!("the first frame must be open, {} came", other.name()),
                )),
            };
        }
        let channel = header.channel;
        match performative {
            //= amqp10 2.4.1
            Performative::Open(_) => Err(Fault::new("amqp:illegal-state", "open came a second time")),
            Performative::Close(_) => Ok(self.on_close(bytes, body)),
            Performative::Begin(begin) => self.on_begin(channel, &begin, bytes, body),
            Performative::End(end) => self.on_end(channel, &end, bytes, body),
            Performative::Attach(attach) => self.on_attach(channel, &attach, bytes, body),
            Performative::Detach(detach) => self.on_detach(channel, &detach, bytes, body),
            Performative::Flow(flow) => self.on_flow(channel, &flow, bytes, body),
            Performative::Transfer(transfer) => self.on_transfer(channel, &transfer, payload, bytes, body),
            Performative::Disposition(disposition) => self.on_disposition(channel, &disposition, bytes, body),
        }
    }

    //= amqp10 2.4.1, 2.7.1
    fn on_open(
        &mut self,
        open: &Open<'_>,
        channel: u16,
        frame: &[u8],
        body: &[u8],
        now_ms: u64,
    ) -> Result<Option<Emit>, Fault> {
        self.open_seen = true;
        if channel != 0 {
            return Err(Fault::new(
                "amqp:connection:framing-error",
                alloc::format!("open came on channel {channel}: it belongs on channel 0"),
            ));
        }
        if open.max_frame_size < 512 {
            return Err(Fault::new(
                "amqp:connection:framing-error",
                alloc::format!("max-frame-size {}: at least 512 is needed", open.max_frame_size),
            ));
        }
        let idle = open.idle_time_out.unwrap_or(0);
        if idle > 0 && idle < 1000 {
            return Err(Fault::new(
                "amqp:not-allowed",
                alloc::format!("idle-time-out of {idle} ms: at least 1000 is needed"),
            ));
        }
        self.peer_frame = open.max_frame_size;
        self.peer_channel_max = open.channel_max;
        self.timer.peer_idle(idle);
        if self.open_sent {
            self.timer.opened(now_ms);
        } else {
            self.waiting = true;
        }
        Ok(Some(Emit::framed(Kind::Opened, frame, body)))
    }

    fn on_close(&mut self, frame: &[u8], body: &[u8]) -> Option<Emit> {
        self.close_seen = true;
        if self.close_sent {
            self.over = true;
        }
        Some(Emit::framed(Kind::Closed { answered: self.close_sent }, frame, body))
    }

    /// Sends our `open`. A server calls it after [`Event::Opened`]; a client any time after `sasl_init`.
    ///
    /// `max_frame_size`, `channel_max` and `idle_time_out` are the engine's own, whatever stands in `open`.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`] (sent already, or too early), [`Misuse::FrameTooSmall`] (more than 512 bytes: the peer need not
    /// take more; amqp10 2.4.1).
    pub fn open(&mut self, open: &Open<'_>, now_ms: u64) -> Result<(), Misuse> {
        if self.open_sent || self.over {
            return Err(Misuse::WrongState);
        }
        if self.set.server {
            if self.expect != Expect::Frames {
                return Err(Misuse::WrongState);
            }
        } else {
            if self.set.sasl && !self.sasl.init_sent {
                return Err(Misuse::WrongState);
            }
            self.send_header();
        }
        let open = self.our_open(open);
        //= amqp10 2.4.1
        if !self.framed(0, FrameKind::Amqp, 512, |out| open.encode(out)) {
            return Err(Misuse::FrameTooSmall);
        }
        self.open_sent = true;
        if self.open_seen {
            self.waiting = false;
            self.timer.opened(now_ms);
        }
        Ok(())
    }

    fn our_open<'a>(&self, open: &Open<'a>) -> Open<'a> {
        Open {
            max_frame_size: self.set.limits.frame_bytes,
            channel_max: self.set.limits.channel_max,
            idle_time_out: Some(self.set.idle_ms).filter(|ms| *ms > 0),
            ..*open
        }
    }

    /// Closes the connection, in answer to the peer's `close` or by our own wish; what was settled goes out before. If our
    /// `open` is not out yet, one goes out before it. Nothing is sent after it, and the peer's input is dropped until its
    /// `close`; [`Self::wants_close`] tells when the socket can go.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`]: closed already, or no protocol header was exchanged (then just drop the connection).
    pub fn close(&mut self, error: Option<&Error<'_>>, now_ms: u64) -> Result<(), Misuse> {
        if self.close_sent || self.over || !self.header_sent {
            return Err(Misuse::WrongState);
        }
        self.send_close(error);
        if !self.over {
            self.timer.wait(now_ms, Wait::Close, self.set.close_ms);
        }
        Ok(())
    }

    /// Whether the socket should be closed once the output is written. (If the peer closes it before: drop the connection.)
    #[must_use]
    pub fn wants_close(&self) -> bool {
        self.over
    }

    /// Whether to read from the socket now: not while a decision on login or `open` is awaited, nor when all is over, nor
    /// while twice `Limits::output_bytes` wait to be written: a peer that does not read would only collect answers.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !self.waiting && !self.over && self.out.len() < 2 * self.set.limits.output_bytes
    }

    /// Whether the peer (a client) came without SASL.
    #[must_use]
    pub fn login_skipped(&self) -> bool {
        self.expect == Expect::Frames && !self.sasl.done
    }

    /// How far the connection has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.over {
            Phase::Over
        } else if self.close_sent || self.close_seen {
            Phase::Closing
        } else if self.expect != Expect::Frames {
            Phase::Handshake
        } else if self.open_sent && self.open_seen {
            Phase::Open
        } else {
            Phase::Opening
        }
    }

    /// Whether commands about sessions and links are taken.
    pub(crate) fn usable(&self) -> bool {
        self.open_sent && !self.close_sent && !self.over
    }

    /// The largest frame that the peer takes, in bytes; 512 before its `open`.
    #[must_use]
    pub fn peer_max_frame_size(&self) -> u32 {
        self.peer_frame
    }

    /// Writes what waits for the end of the turn (dispositions, flows) to the output. Call it before writing.
    pub fn flush(&mut self, now_ms: u64) {
        if self.usable() {
            self.flush_pending();
        }
        if mem::replace(&mut self.wrote, false) {
            self.timer.said(now_ms);
        }
    }

    /// Writes the dispositions and flows that wait, so that what is sent next stands behind them. [`Self::flush`] is still to be
    /// called before writing.
    pub fn settle_now(&mut self) {
        if self.usable() {
            self.flush_pending();
        }
    }

    /// Whether [`Self::flush`] has anything to do: bytes written since the last one, dispositions or flows waiting.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.wrote || !self.dirty_sessions.is_empty() || !self.dirty_links.is_empty()
    }

    /// The bytes to write, in order, in chunks that are never empty.
    #[must_use]
    pub fn output(&self) -> Chunks<'_> {
        self.out.chunks()
    }

    /// How many bytes are to be written.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.out.len()
    }

    /// Says that the first `n` bytes of the output were written.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn advance_output(&mut self, n: usize) {
        self.out.advance(n);
    }

    /// Moves the outcomes of the [`Event::Disposition`] just seen to the end of `to`, in order of delivery.
    pub fn take_outcomes(&mut self, to: &mut Vec<DeliveryOutcome>) {
        to.append(&mut self.outcomes);
    }

    /// The outcomes of the [`Event::Disposition`] just seen.
    #[must_use]
    pub fn outcomes(&self) -> &[DeliveryOutcome] {
        &self.outcomes
    }

    /// Says whether the caller reads from the socket. While it does not, the peer cannot be found idle.
    ///
    //= amqp10 2.4.5
    pub fn set_reading(&mut self, reading: bool, now_ms: u64) {
        self.timer.set_reading(reading, now_ms);
    }

    /// When [`Self::on_tick`] has something to do, if nothing else happens before; in the time of `now_ms`.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        self.timer.deadline(self.open_sent && !self.close_sent, self.close_sent)
    }

    /// Time has passed: keeps the connection alive, or finds the peer too slow or gone.
    ///
    /// # Errors
    ///
    /// As [`Self::next`]: what the peer is owed is queued.
    pub fn on_tick(&mut self, now_ms: u64) -> Result<(), Fault> {
        if self.over {
            return Ok(());
        }
        if let Some(fault) = self.timer.expired(now_ms, self.close_sent) {
            if self.close_sent {
                // It was told already; it does not answer.
                self.over = true;
                return Ok(());
            }
            return Err(self.fail(fault, now_ms));
        }
        if self.open_sent && !self.close_sent && self.timer.must_speak(now_ms) && !self.wrote {
            //= amqp10 2.4.5
            self.frame(0, |_| {});
        }
        Ok(())
    }
}

/// The size of a protocol header; wrong first bytes are told before eight are there.
fn header_size(bytes: &[u8], expect: Expect, sasl: bool) -> Result<Option<usize>, Fault> {
    let known = bytes.len().min(4);
    if bytes[..known] != PROTOCOL_HEADER[..known] {
        let wanted = if expect == Expect::FirstHeader && sasl { "SASL" } else { "AMQP 1.0" };
        return Err(wrong_header(bytes, wanted));
    }
    Ok((bytes.len() >= 8).then_some(8))
}

fn frame_size(bytes: &[u8], limit: u32, kind: FrameKind) -> Result<Option<usize>, DecodeError> {
    Ok(FrameHeader::parse(bytes, limit, kind)?.map(|header| header.size as usize))
}

#[cold]
fn wrong_header(bytes: &[u8], wanted: &str) -> Fault {
    // A TLS record of type handshake, major version 3.
    let tls = bytes.len() >= 2 && bytes[0] == 0x16 && bytes[1] == 3 || bytes == [0x16];
    if tls {
        Fault::told("amqp:connection:framing-error", "a TLS client spoke to a port without TLS", Told::TlsHello)
    } else {
        let text = match *bytes {
            [b'A', b'M', b'Q', b'P', id, major, minor, revision, ..] => {
                alloc::format!("protocol header of AMQP {major}.{minor}.{revision}, protocol {id}")
            }
            _ => alloc::format!("protocol header \"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
        };
        Fault::told(
            "amqp:connection:framing-error",
            alloc::format!("{text}: the {wanted} header is needed"),
            Told::Header,
        )
    }
}

/// A fault in a SASL frame: the layer has no way to tell it.
#[cold]
pub(crate) fn sasl_fault(error: &DecodeError) -> Fault {
    Fault::told("amqp:decode-error", alloc::format!("SASL: {error}"), Told::Silence)
}

/// A fault in an AMQP frame.
#[cold]
pub(crate) fn decode_fault(error: &DecodeError) -> Fault {
    let condition = match error.condition() {
        "amqp:connection:framing-error" => "amqp:connection:framing-error",
        _ => "amqp:decode-error",
    };
    Fault::new(condition, alloc::format!("{error}"))
}
