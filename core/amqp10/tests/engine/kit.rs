//! A connection under test with a scripted peer: frames in as structs, frames out and events as short lines.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

/// What the rig does by itself when the peer asks for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAttach {
    /// Accept, and grant this credit on receiving links.
    Accept(u32),
    /// Refuse with `amqp:not-found`.
    Refuse,
    /// Nothing: the test answers.
    Leave,
}

/// The connection, its input, and what happened.
pub(crate) struct Rig {
    pub(crate) conn: Connection,
    partial: Vec<u8>,
    pub(crate) now: u64,
    pub(crate) on_attach: OnAttach,
    pub(crate) reply: LinkReply<'static>,
    /// Whether to answer `open`, `detach`, `end`, `close` by itself.
    pub(crate) answer: bool,
    pub(crate) events: Vec<String>,
    pub(crate) links: Vec<LinkId>,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) outcomes: Vec<DeliveryOutcome>,
    pub(crate) received: Vec<u8>,
    out: Vec<u8>,
}

pub(crate) fn target(address: &str) -> Option<AttachTarget<'_>> {
    Some(AttachTarget::Target(Target { address: Some(address), ..Target::default() }))
}

pub(crate) fn source(address: &str) -> Option<Source<'_>> {
    Some(Source { address: Some(address), ..Source::default() })
}

/// The attach of a peer that sends.
pub(crate) fn sender(name: &str, handle: u32) -> Attach<'_> {
    Attach {
        name,
        handle,
        role: Role::Sender,
        source: source("here"),
        target: target("q"),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

/// The attach of a peer that receives.
pub(crate) fn receiver(name: &str, handle: u32) -> Attach<'_> {
    Attach { name, handle, role: Role::Receiver, source: source("q"), target: target("here"), ..Attach::default() }
}

/// A first transfer frame; the tag is the id.
pub(crate) fn first(handle: u32, id: u32) -> Transfer<'static> {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(Box::leak(Box::new(id.to_be_bytes()))),
        ..Transfer::default()
    }
}

pub(crate) fn more(transfer: Transfer<'_>) -> Transfer<'_> {
    Transfer { more: true, ..transfer }
}

pub(crate) fn settled(transfer: Transfer<'_>) -> Transfer<'_> {
    Transfer { settled: Some(true), ..transfer }
}

pub(crate) fn next(handle: u32) -> Transfer<'static> {
    Transfer { handle, ..Transfer::default() }
}

pub(crate) fn link_flow(handle: u32, delivery_count: u32, credit: u32) -> Flow<'static> {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 0x7fff_ffff,
        outgoing_window: 100,
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

pub(crate) fn disposition(
    role: Role,
    first: u32,
    last: u32,
    settled: bool,
    state: Option<DeliveryState<'_>>,
) -> Disposition<'_> {
    Disposition { role, first, last: Some(last), settled, state, ..Disposition::default() }
}

pub(crate) fn frame(channel: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader::encode(&mut out, FrameKind::Amqp, channel, fill);
    out
}

pub(crate) fn sasl_frame(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader::encode(&mut out, FrameKind::Sasl, 0, fill);
    out
}

pub(crate) fn perform<'a>(channel: u16, performative: impl Into<Performative<'a>>) -> Vec<u8> {
    let performative = performative.into();
    frame(channel, |out| performative.encode(out))
}

pub(crate) fn with_payload(channel: u16, transfer: Transfer<'_>, payload: &[u8]) -> Vec<u8> {
    frame(channel, |out| {
        transfer.encode(out);
        out.extend_from_slice(payload);
    })
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig { container_id: "us".into(), idle_timeout_ms: 0, seed: 7, ..ServerConfig::default() }
}

impl Rig {
    /// A server before its first byte.
    pub(crate) fn raw_server(config: ServerConfig) -> Self {
        let mut conn = Connection::server(config, 0);
        conn.sasl_mechanisms(&["PLAIN", "ANONYMOUS"]);
        Self::of(conn)
    }

    /// A client before its first byte.
    pub(crate) fn raw_client(config: ClientConfig) -> Self {
        Self::of(Connection::client(config, 0))
    }

    fn of(conn: Connection) -> Self {
        Self {
            conn,
            partial: Vec::new(),
            now: 0,
            on_attach: OnAttach::Accept(10),
            reply: LinkReply { source: source("q"), target: target("q"), ..LinkReply::default() },
            answer: true,
            events: Vec::new(),
            links: Vec::new(),
            sessions: Vec::new(),
            outcomes: Vec::new(),
            received: Vec::new(),
            out: Vec::new(),
        }
    }

    /// A server that is open, with a session on the peer's channel 0.
    pub(crate) fn server() -> Self {
        Self::server_with(config(), Open { container_id: "peer", max_frame_size: 4096, ..Open::default() })
    }

    pub(crate) fn server_with(config: ServerConfig, open: Open<'_>) -> Self {
        let mut rig = Self::raw_server(ServerConfig { allow_bare: true, ..config });
        rig.feed(&PROTOCOL_HEADER);
        rig.feed(&perform(0, open));
        rig.feed(&perform(0, begin()));
        assert_eq!(rig.out(), ["AMQP", "open", "begin(0 answers 0)"]);
        assert_eq!(rig.seen()[1], "begun(by peer)");
        rig
    }

    /// A client that is open, with a session of its own on channel 0.
    pub(crate) fn client() -> Self {
        let mut rig = Self::raw_client(ClientConfig {
            container_id: "us".into(),
            sasl: false,
            idle_timeout_ms: 0,
            ..ClientConfig::default()
        });
        rig.conn.open(&Open { container_id: "us", ..Open::default() }, 0).unwrap();
        rig.feed(&PROTOCOL_HEADER);
        rig.feed(&perform(0, Open { container_id: "peer", max_frame_size: 4096, ..Open::default() }));
        let session = rig.conn.begin(77).unwrap();
        rig.sessions.push(session);
        rig.feed(&perform(5, Begin { remote_channel: Some(0), ..begin() }));
        assert_eq!(rig.out(), ["AMQP", "open", "begin(0)"]);
        assert_eq!(rig.seen(), ["opened(peer)", "begun(by us)"]);
        rig
    }

    /// Gives bytes to the connection; what happens is noted and, as configured, answered.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut partial = std::mem::take(&mut self.partial);
        let mut input = Input { partial: &mut partial, fresh: bytes };
        loop {
            match self.conn.next(&mut input, self.now) {
                Ok(Some(event)) => {
                    let line = self.handle(event);
                    self.events.push(line);
                }
                Ok(None) => break,
                Err(fault) => self.events.push(format!("fault({}, {:?})", fault.condition, fault.told)),
            }
        }
        assert!(input.fresh.is_empty());
        self.partial = partial;
    }

    pub(crate) fn send<'a>(&mut self, performative: impl Into<Performative<'a>>) {
        self.feed(&perform(0, performative));
    }

    pub(crate) fn transfer(&mut self, transfer: Transfer<'_>, payload: &str) {
        self.feed(&with_payload(0, transfer, payload.as_bytes()));
    }

    pub(crate) fn held(&self) -> usize {
        self.partial.capacity()
    }

    fn handle(&mut self, event: Event<'_>) -> String {
        match event {
            Event::SaslInit { mechanism, initial_response, .. } => format!("init({mechanism}, {initial_response:?})"),
            Event::SaslResponse(bytes) => format!("response({bytes:?})"),
            Event::SaslMechanisms(frame) => {
                format!("mechanisms({})", frame.decode().sasl_server_mechanisms.iter().collect::<Vec<_>>().join(" "))
            }
            Event::SaslChallenge(bytes) => format!("challenge({bytes:?})"),
            Event::SaslOutcome { code, .. } => format!("outcome({code:?})"),
            Event::Opened(frame) => {
                if self.answer && self.conn.phase() == Phase::Opening {
                    let _ = self.conn.open(&Open { container_id: "us", ..Open::default() }, self.now);
                }
                format!("opened({})", frame.decode().container_id)
            }
            Event::SessionBegun { session, by_peer, frame } => {
                let _ = frame.decode();
                if by_peer {
                    self.sessions.push(session);
                }
                format!("begun(by {})", if by_peer { "peer" } else { "us" })
            }
            Event::SessionEnded { session, error, answered, .. } => {
                if self.answer && !answered {
                    self.conn.end(session, None).unwrap();
                }
                format!("ended({}{})", condition(&error), if answered { " answered" } else { "" })
            }
            Event::SessionFailed { fault, .. } => format!("session failed({})", fault.condition),
            Event::Attach(attach) => {
                if !attach.answer {
                    self.links.push(attach.link);
                    self.conn.set_link_token(attach.link, 100 + self.links.len() as u64 - 1).unwrap();
                    match self.on_attach {
                        OnAttach::Accept(credit) => {
                            self.conn.accept_link(attach.link, &self.reply).unwrap();
                            if attach.role == Role::Receiver {
                                self.conn.grant(attach.link, credit).unwrap();
                            }
                        }
                        OnAttach::Refuse => {
                            let error = Error { condition: "amqp:not-found", ..Error::default() };
                            self.conn.refuse_link(attach.link, &error).unwrap();
                        }
                        OnAttach::Leave => {}
                    }
                }
                let name = attach.frame.decode().name;
                let answer = if attach.answer { " answer" } else { "" };
                let refused = if attach.refused { " refused" } else { "" };
                let stolen = if attach.stolen.is_some() { " steals" } else { "" };
                format!("attach({name} {:?}{answer}{refused}{stolen})", attach.role)
            }
            Event::Detached { link, closed, error, answered, midway, .. } => {
                if self.answer && !answered {
                    self.conn.detach(link, closed, None).unwrap();
                }
                let closed = if closed { "closed" } else { "suspended" };
                let answered = if answered { " answered" } else { "" };
                let midway = if midway { " midway" } else { "" };
                format!("detached({closed} {}{answered}{midway})", condition(&error))
            }
            Event::LinkFailed { fault, .. } => format!("link failed({})", fault.condition),
            Event::Credit { credit, drain, window_opened, .. } => {
                let drain = if drain { " drain" } else { "" };
                let opened = if window_opened { " window" } else { "" };
                format!("credit({credit}{drain}{opened})")
            }
            Event::SenderFlow { available, drained, .. } => {
                format!("sender flow({available}{})", if drained { " drained" } else { "" })
            }
            Event::Drained { .. } => "drained".to_owned(),
            Event::SessionFlow { window_opened, .. } => {
                format!("session flow({})", if window_opened { "window" } else { "" })
            }
            Event::Transfer(t) => {
                self.received.extend_from_slice(t.payload);
                let flags: Vec<&str> = [
                    (t.first, "first"),
                    (t.last, "last"),
                    (t.settled, "settled"),
                    (t.aborted, "aborted"),
                    (t.resume, "resume"),
                    (t.state.is_some(), "state"),
                ]
                .into_iter()
                .filter_map(|(on, name)| on.then_some(name))
                .collect();
                format!("transfer({} {} {:?})", t.delivery_id, flags.join(" "), String::from_utf8_lossy(t.payload))
            }
            Event::Disposition { ours, count, .. } => {
                let from = self.outcomes.len();
                self.conn.take_outcomes(&mut self.outcomes);
                assert_eq!(self.outcomes.len() - from, count as usize);
                let told: Vec<String> = self.outcomes[from..]
                    .iter()
                    .map(|o| {
                        let settled = if o.settled { " settled" } else { "" };
                        let repeated = if o.repeated { " repeated" } else { "" };
                        format!("{} {:?}{settled}{repeated}", o.delivery_id, o.state)
                    })
                    .collect();
                format!("outcomes({}: {})", if ours { "of ours" } else { "of theirs" }, told.join(", "))
            }
            Event::Closed { error, answered } => {
                if self.answer && !answered {
                    self.conn.close(None, self.now).unwrap();
                }
                format!("closed({}{})", condition(&error), if answered { " answered" } else { "" })
            }
            other => panic!("an event the rig does not know: {other:?}"),
        }
    }

    /// The events since the last call.
    pub(crate) fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Ends the turn and takes the bytes written.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        self.conn.flush(self.now);
        let bytes: Vec<u8> = self.conn.output().flatten().copied().collect();
        assert_eq!(bytes.len(), self.conn.output_len());
        self.conn.advance_output(bytes.len());
        bytes
    }

    /// Ends the turn and reads what the connection wrote, a line per frame.
    pub(crate) fn out(&mut self) -> Vec<String> {
        let bytes = self.bytes();
        self.out.extend_from_slice(&bytes);
        let out = std::mem::take(&mut self.out);
        lines(&out)
    }
}

pub(crate) fn begin() -> Begin<'static> {
    Begin { next_outgoing_id: 0, incoming_window: 2048, outgoing_window: 2048, ..Begin::default() }
}

fn condition(error: &Option<Error<'_>>) -> String {
    error.as_ref().map_or_else(|| "-".to_owned(), |error| error.condition.to_owned())
}

/// Renders whole frames and headers.
pub(crate) fn lines(mut bytes: &[u8]) -> Vec<String> {
    let limits = Limits::default();
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        if bytes.starts_with(b"AMQP") {
            lines.push(if bytes[4] == 3 { "SASL".to_owned() } else { "AMQP".to_owned() });
            bytes = &bytes[8..];
            continue;
        }
        let size = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        let (one, rest) = bytes.split_at(size);
        bytes = rest;
        if one[5] == 1 {
            let header = FrameHeader::parse(one, u32::MAX, FrameKind::Sasl).unwrap().unwrap();
            lines.push(match SaslPerformative::decode(header.body(one), &limits).unwrap() {
                SaslPerformative::SaslMechanisms(m) => {
                    format!("mechanisms({})", m.sasl_server_mechanisms.iter().collect::<Vec<_>>().join(" "))
                }
                SaslPerformative::SaslOutcome(o) => format!("outcome({:?})", o.code),
                other => other.name().to_owned(),
            });
            continue;
        }
        let header = FrameHeader::parse(one, u32::MAX, FrameKind::Amqp).unwrap().unwrap();
        let Some((performative, payload)) = Performative::decode(header.body(one), &limits).unwrap() else {
            lines.push("empty".to_owned());
            continue;
        };
        lines.push(line(header.channel, &performative, payload));
    }
    lines
}

fn line(channel: u16, performative: &Performative<'_>, payload: &[u8]) -> String {
    match performative {
        Performative::Open(_) => "open".to_owned(),
        Performative::Begin(b) => match b.remote_channel {
            Some(remote) => format!("begin({channel} answers {remote})"),
            None => format!("begin({channel})"),
        },
        Performative::Attach(a) => {
            let source = if a.source.is_some() { "" } else { " no source" };
            let target = if a.target.is_some() { "" } else { " no target" };
            let count = a.initial_delivery_count.map_or_else(String::new, |count| format!(" from {count}"));
            format!("attach({} {:?}{source}{target}{count})", a.name, a.role)
        }
        Performative::Flow(f) => {
            assert!(f.next_incoming_id.is_some());
            let echo = if f.echo { " echo" } else { "" };
            match f.handle {
                None => {
                    assert_eq!((f.delivery_count, f.link_credit, f.available), (None, None, None));
                    format!("flow(in {} window {}{echo})", f.next_incoming_id.unwrap(), f.incoming_window)
                }
                Some(handle) => {
                    let drain = if f.drain { " drain" } else { "" };
                    let (count, credit) = (f.delivery_count.unwrap(), f.link_credit.unwrap());
                    format!("flow({handle}: {count}, {credit}{drain}{echo})")
                }
            }
        }
        Performative::Transfer(t) => {
            let id = t.delivery_id.map_or_else(String::new, |id| format!(" {id}"));
            let flags: String = [
                (t.settled == Some(true), " settled"),
                (t.more, " more"),
                (t.aborted, " aborted"),
                (t.resume, " resume"),
                (t.batchable, " batchable"),
            ]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
            format!("transfer({}{id}{flags} {})", t.handle, payload.len())
        }
        Performative::Disposition(d) => {
            let range = match d.last {
                None => d.first.to_string(),
                Some(last) => format!("{}-{last}", d.first),
            };
            let state = match &d.state {
                None => "none".to_owned(),
                Some(DeliveryState::Rejected(r)) => format!("rejected {}", condition(&r.error)),
                Some(DeliveryState::Modified(m)) => {
                    format!("modified {} {}", m.delivery_failed, m.undeliverable_here)
                }
                Some(state) => format!("{state:?}").to_lowercase(),
            };
            let role = if d.role == Role::Receiver { "received" } else { "sent" };
            format!("disp({role} {range}, {state}{})", if d.settled { ", settled" } else { "" })
        }
        Performative::Detach(d) => {
            format!("detach({} {}{})", d.handle, if d.closed { "closed " } else { "" }, condition(&d.error))
        }
        Performative::End(e) => format!("end({})", condition(&e.error)),
        Performative::Close(c) => format!("close({})", condition(&c.error)),
    }
}
