//! A peer that speaks bytes: frames as the test makes them, answers read one by one. For everything that a client's engine
//! would never do.

use packhorse_client_core::Limits;
use packhorse_client_core::codec::{
    Attach, AttachTarget, Begin, Close, DeliveryState, Detach, Disposition, End, Error, Flow, FrameHeader, FrameKind,
    Open, PROTOCOL_HEADER, Performative, Role, SASL_PROTOCOL_HEADER, SaslInit, SaslPerformative, Source, Symbols,
    Target, Transfer,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How long the broker may say nothing where it must say something.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a flood waits for the broker to take more before it counts as stopped.
const BLOCKED: Duration = Duration::from_millis(300);

/// An `open` that asks for nothing.
pub const OPEN: Open<'static> = Open {
    container_id: "hostile",
    hostname: None,
    max_frame_size: u32::MAX,
    channel_max: u16::MAX,
    idle_time_out: None,
    outgoing_locales: Symbols::EMPTY,
    incoming_locales: Symbols::EMPTY,
    offered_capabilities: Symbols::EMPTY,
    desired_capabilities: Symbols::EMPTY,
    properties: None,
};

/// One thing that the broker said, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// `header`, `empty`, or the name of the performative.
    pub what: &'static str,
    /// The channel.
    pub channel: u16,
    /// The handle, where there is one.
    pub handle: Option<u32>,
    /// The link-credit of a flow.
    pub credit: Option<u32>,
    /// The delivery-id of a transfer or the first of a disposition.
    pub delivery: Option<u32>,
    /// The outcome of a disposition, or the code of a SASL outcome.
    pub state: String,
    /// Condition and sentence, of a rejection too.
    pub error: Option<(String, String)>,
}

impl Heard {
    /// The condition, or nothing.
    pub fn condition(&self) -> &str {
        self.error.as_ref().map_or("", |(condition, _)| condition)
    }
}

/// See the module.
pub struct Peer {
    stream: TcpStream,
    held: Vec<u8>,
    /// The broker has ended the connection.
    ended: bool,
}

impl Peer {
    /// Connects and says nothing.
    pub fn connect(to: SocketAddr) -> Peer {
        let stream = TcpStream::connect(to).unwrap_or_else(|e| panic!("{to}: {e}: the broker does not listen"));
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        Peer { stream, held: Vec::new(), ended: false }
    }

    /// Logged in and opened as a container of its own, with the answers read.
    pub fn opened(to: SocketAddr) -> Peer {
        let mut peer = Peer::connect(to);
        let port = peer.stream.local_addr().map_or(0, |address| address.port());
        peer.log_in().open(&Open { container_id: &format!("hostile-{port}"), ..OPEN }).until("open");
        peer
    }

    /// The same with a session on channel 0.
    pub fn begun(to: SocketAddr) -> Peer {
        let mut peer = Peer::opened(to);
        peer.begin(0).until("begin");
        peer
    }

    // ---- speaking ----

    /// Bytes. That the broker has gone meanwhile is no error.
    pub fn say(&mut self, bytes: &[u8]) -> &mut Peer {
        match self.stream.write_all(bytes) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the broker takes no bytes for {} s", PATIENCE.as_secs())
            }
            _ => self,
        }
    }

    /// Writes `bytes` again and again, until `most` times or until the broker takes no more: how many bytes it took.
    pub fn flood(&mut self, bytes: &[u8], most: usize) -> usize {
        self.stream.set_write_timeout(Some(BLOCKED)).expect("not zero");
        let mut taken = 0;
        'all: for _ in 0..most {
            let mut at = 0;
            while at < bytes.len() {
                match self.stream.write(&bytes[at..]) {
                    Ok(n) => at += n,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        taken += at;
                        break 'all;
                    }
                }
            }
            taken += at;
        }
        self.stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        taken
    }

    /// An AMQP frame.
    pub fn frame(&mut self, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Peer {
        let bytes = frame(channel, fill);
        self.say(&bytes)
    }

    /// A SASL frame.
    pub fn sasl(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Peer {
        let mut bytes = Vec::new();
        FrameHeader::encode(&mut bytes, FrameKind::Sasl, 0, fill);
        self.say(&bytes)
    }

    /// ANONYMOUS, up to our AMQP header.
    pub fn log_in(&mut self) -> &mut Peer {
        let bytes = log_in();
        self.say(&bytes)
    }

    /// `open`.
    pub fn open(&mut self, open: &Open<'_>) -> &mut Peer {
        self.frame(0, |out| open.encode(out))
    }

    /// `begin` with windows that allow everything.
    pub fn begin(&mut self, channel: u16) -> &mut Peer {
        self.frame(channel, |out| begin().encode(out))
    }

    /// `attach` of a link on which we send, on channel 0.
    pub fn sender(&mut self, handle: u32, address: &str) -> &mut Peer {
        let bytes = frame(0, |out| sender(&format!("out-{handle}"), handle, address).encode(out));
        self.say(&bytes)
    }

    /// `attach` of a link on which we receive, on channel 0.
    pub fn receiver(&mut self, handle: u32, address: &str) -> &mut Peer {
        let bytes = frame(0, |out| receiver(&format!("in-{handle}"), handle, address).encode(out));
        self.say(&bytes)
    }

    /// `flow` of a link on channel 0.
    pub fn flow(&mut self, handle: u32, delivery_count: u32, credit: u32) -> &mut Peer {
        self.frame(0, |out| flow(handle, delivery_count, credit).encode(out))
    }

    /// A whole message on channel 0, unsettled.
    pub fn transfer(&mut self, handle: u32, delivery: u32, message: &[u8]) -> &mut Peer {
        let bytes = transfer(handle, delivery, message);
        self.say(&bytes)
    }

    /// Our outcome for deliveries of the broker, on channel 0.
    pub fn settle(&mut self, first: u32, last: u32, state: DeliveryState<'_>) -> &mut Peer {
        let disposition = Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            settled: true,
            state: Some(state),
            batchable: false,
        };
        self.frame(0, |out| disposition.encode(out))
    }

    /// Says that nothing more comes, so that the broker need not wait for our `close`.
    pub fn hang_up(&mut self) -> &mut Peer {
        let _ = self.stream.shutdown(Shutdown::Write);
        self
    }

    // ---- hearing ----

    /// Whether the broker has ended the connection, as far as is known without waiting.
    pub fn is_ended(&mut self) -> bool {
        if !self.ended {
            self.stream.set_nonblocking(true).expect("a socket");
            while self.read() == Some(true) {}
            self.stream.set_nonblocking(false).expect("a socket");
        }
        self.ended
    }

    /// Reads what there is: true if bytes came, false at the end, nothing if none came in time.
    fn read(&mut self) -> Option<bool> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => {
                self.held.extend_from_slice(&buffer[..n]);
                return Some(true);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
            Err(e) if e.kind() == ErrorKind::Interrupted => return Some(true),
            // A reset: an end as well.
            Err(_) => self.ended = true,
        }
        Some(false)
    }

    /// The next thing that the broker says; nothing when it has ended the connection.
    pub fn hear(&mut self) -> Option<Heard> {
        loop {
            if let Some(size) = unit(&self.held) {
                let frame: Vec<u8> = self.held.drain(..size).collect();
                return Some(understand(&frame));
            }
            if self.ended {
                assert!(self.held.is_empty(), "the broker ended amid a frame: {}", self.held.escape_ascii());
                return None;
            }
            if self.read().is_none() {
                panic!("the broker says nothing for {} s and does not end the connection", PATIENCE.as_secs());
            }
        }
    }

    /// Reads until the broker says this, which must come before it ends the connection.
    pub fn until(&mut self, what: &str) -> Heard {
        let mut all = Vec::new();
        while let Some(heard) = self.hear() {
            if heard.what == what {
                return heard;
            }
            all.push(heard);
        }
        panic!("the broker ended the connection without {what}; it said {all:?}")
    }

    /// Reads until the broker says one of these, which it must before it ends the connection.
    pub fn until_any(&mut self, what: &[&str]) -> Heard {
        loop {
            let heard = self.hear().unwrap_or_else(|| panic!("the end without {what:?}"));
            if what.contains(&heard.what) {
                return heard;
            }
        }
    }

    /// Reads until the broker's `close`, answers it, and reads to the end, before which nothing must come: the `close`.
    pub fn closed(&mut self) -> Heard {
        let told = self.until("close");
        let rest = self.say(&close()).rest();
        assert!(rest.is_empty(), "nothing comes after close: {rest:?}");
        told
    }

    /// Reads until the broker has answered our `attach` and given credit for it. (Its handles are its own.)
    pub fn until_credit(&mut self) -> u32 {
        self.until("attach");
        loop {
            if let Some(credit) = self.until("flow").credit.filter(|credit| *credit > 0) {
                return credit;
            }
        }
    }

    /// Everything that the broker says until it ends the connection.
    pub fn rest(&mut self) -> Vec<Heard> {
        let mut all = Vec::new();
        while let Some(heard) = self.hear() {
            all.push(heard);
        }
        all
    }

    /// Reads to the end without looking at it; true if the broker ends the connection in time.
    pub fn ends(&mut self) -> bool {
        loop {
            self.held.clear();
            match self.read() {
                Some(true) => {}
                Some(false) => return true,
                None => return false,
            }
        }
    }
}

// ---- frames ----

/// One AMQP frame.
pub(crate) fn frame(channel: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameHeader::encode(&mut bytes, FrameKind::Amqp, channel, fill);
    bytes
}

/// SASL header, ANONYMOUS, AMQP header.
pub(crate) fn log_in() -> Vec<u8> {
    let mut bytes = SASL_PROTOCOL_HEADER.to_vec();
    FrameHeader::encode(&mut bytes, FrameKind::Sasl, 0, |out| {
        SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out);
    });
    bytes.extend_from_slice(&PROTOCOL_HEADER);
    bytes
}

pub(crate) fn begin() -> Begin<'static> {
    Begin { incoming_window: u32::MAX >> 1, outgoing_window: u32::MAX >> 1, ..Begin::default() }
}

pub(crate) fn sender<'a>(name: &'a str, handle: u32, address: &'a str) -> Attach<'a> {
    Attach {
        name,
        handle,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AttachTarget::Target(Target { address: Some(address), ..Target::default() })),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

pub(crate) fn receiver<'a>(name: &'a str, handle: u32, address: &'a str) -> Attach<'a> {
    Attach {
        name,
        handle,
        role: Role::Receiver,
        source: Some(Source { address: Some(address), ..Source::default() }),
        target: Some(AttachTarget::Target(Target::default())),
        ..Attach::default()
    }
}

/// A flow of a link, or with its default values of the session.
pub(crate) fn flow(handle: u32, delivery_count: u32, credit: u32) -> Flow<'static> {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: u32::MAX >> 1,
        next_outgoing_id: 0,
        outgoing_window: u32::MAX >> 1,
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

pub(crate) fn transfer(handle: u32, delivery: u32, message: &[u8]) -> Vec<u8> {
    let tag = delivery.to_be_bytes();
    frame(0, |out| {
        Transfer { handle, delivery_id: Some(delivery), delivery_tag: Some(&tag), ..Transfer::default() }.encode(out);
        out.extend_from_slice(message);
    })
}

pub(crate) fn detach(handle: u32) -> Vec<u8> {
    frame(0, |out| Detach { handle, closed: true, error: None }.encode(out))
}

pub(crate) fn end(channel: u16) -> Vec<u8> {
    frame(channel, |out| End { error: None }.encode(out))
}

pub(crate) fn close() -> Vec<u8> {
    frame(0, |out| Close { error: None }.encode(out))
}

/// The size of the protocol header or frame at the front, if it is all there.
fn unit(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < 8 {
        return None;
    }
    let size = if bytes.starts_with(b"AMQP") { 8 } else { u32::from_be_bytes(bytes[..4].try_into().ok()?) as usize };
    assert!(size >= 8, "the broker's frames have at least 8 bytes");
    (bytes.len() >= size).then_some(size)
}

fn understand(frame: &[u8]) -> Heard {
    if frame.starts_with(b"AMQP") {
        return Heard { what: "header", channel: frame[4].into(), ..Heard::default() };
    }
    let limits = Limits { frame_bytes: u32::MAX, ..Limits::default() };
    let channel = u16::from_be_bytes([frame[6], frame[7]]);
    let body = &frame[usize::from(frame[4]) * 4..];
    if frame[5] == 1 {
        let sasl = SaslPerformative::decode(body, &limits).expect("the broker's frames decode");
        let state = match sasl {
            SaslPerformative::SaslOutcome(outcome) => format!("{:?}", outcome.code),
            _ => String::new(),
        };
        return Heard { what: sasl.name(), state, ..Heard::default() };
    }
    let decoded = Performative::decode(body, &limits).expect("the broker's frames decode");
    let Some((performative, _)) = decoded else { return Heard { what: "empty", channel, ..Heard::default() } };
    let mut heard = Heard { what: performative.name(), channel, ..Heard::default() };
    let words = |error: Option<Error<'_>>| {
        error.map(|e| (e.condition.to_string(), e.description.unwrap_or_default().to_string()))
    };
    match performative {
        Performative::Attach(attach) => heard.handle = Some(attach.handle),
        Performative::Flow(flow) => (heard.handle, heard.credit) = (flow.handle, flow.link_credit),
        Performative::Transfer(transfer) => {
            (heard.handle, heard.delivery) = (Some(transfer.handle), transfer.delivery_id);
        }
        Performative::Disposition(disposition) => {
            heard.delivery = Some(disposition.first);
            match disposition.state {
                Some(DeliveryState::Accepted) => heard.state = "accepted".into(),
                Some(DeliveryState::Rejected(rejected)) => {
                    heard.state = "rejected".into();
                    heard.error = words(rejected.error);
                }
                other => heard.state = format!("{other:?}"),
            }
        }
        Performative::Detach(detach) => (heard.handle, heard.error) = (Some(detach.handle), words(detach.error)),
        Performative::End(end) => heard.error = words(end.error),
        Performative::Close(close) => heard.error = words(close.error),
        _ => {}
    }
    heard
}
