//! A peer that writes what the test says, frame by frame, and reads every frame into a short text in the notation of the
//! sequences in `spec/amqp10.md`. For rules that the engine's client role does not let one break.

use super::Pipe;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, Begin, Close, Coordinator, DeliveryState, Detach, Disposition, Error, Flow, FrameHeader,
    FrameKind, Map, Open, PROTOCOL_HEADER, Performative, Role, SASL_PROTOCOL_HEADER, SaslInit, SaslPerformative,
    Source, Target, Transfer, ValueWriter, put_binary, put_symbol,
};
use packhorse_amqp10::transaction::Request;

/// Names a raw peer of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct P(pub(crate) usize);

/// See the module.
pub(crate) struct Peer {
    pub(crate) pipe: usize,
    writing: Vec<u8>,
    held: Vec<u8>,
    said: Vec<String>,
    /// Raw frames, for a closer look; protocol headers are not among them.
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Peer {
    pub(super) fn new(pipe: usize) -> Peer {
        Peer { pipe, writing: Vec::new(), held: Vec::new(), said: Vec::new(), frames: Vec::new() }
    }

    pub(super) fn pump(&mut self, pipe: &mut Pipe) -> bool {
        let busy = !self.writing.is_empty() || !pipe.from_broker.is_empty();
        if !pipe.gone {
            pipe.to_broker.append(&mut self.writing);
        }
        self.held.append(&mut pipe.from_broker);
        while let Some(size) = unit(&self.held) {
            let frame: Vec<u8> = self.held.drain(..size).collect();
            self.said.push(text(&frame));
            if !frame.starts_with(b"AMQP") {
                self.frames.push(frame);
            }
        }
        busy
    }

    /// What the broker has said since the last call.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.frames.clear();
        std::mem::take(&mut self.said)
    }

    /// What is about to be written.
    pub(crate) fn written(&self) -> Vec<u8> {
        self.writing.clone()
    }

    // ---- writing ----

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.writing.extend_from_slice(bytes);
    }

    pub(crate) fn frame(&mut self, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        FrameHeader::encode(&mut self.writing, FrameKind::Amqp, channel, fill);
    }

    pub(crate) fn sasl(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        FrameHeader::encode(&mut self.writing, FrameKind::Sasl, 0, fill);
    }

    pub(crate) fn login(&mut self, mechanism: &str, response: Option<&[u8]>) {
        self.raw(&SASL_PROTOCOL_HEADER);
        let init = SaslInit { mechanism, initial_response: response, hostname: None };
        self.sasl(|out| init.encode(out));
    }

    /// Everything up to a session, in one write.
    pub(crate) fn hello(&mut self, container: &str) {
        self.login("ANONYMOUS", Some(b""));
        self.raw(&PROTOCOL_HEADER);
        let open = Open { container_id: container, ..Open::default() };
        self.frame(0, |out| open.encode(out));
        self.begin(u32::MAX >> 1);
    }

    pub(crate) fn begin(&mut self, incoming_window: u32) {
        let begin = Begin { incoming_window, outgoing_window: 1 << 20, ..Begin::default() };
        self.frame(0, |out| begin.encode(out));
    }

    pub(crate) fn attach(&mut self, attach: &Attach<'_>) {
        self.frame(0, |out| attach.encode(out));
    }

    /// We send to `address`.
    pub(crate) fn attach_sender(&mut self, name: &str, handle: u32, address: &str) {
        self.attach(&Attach {
            name,
            handle,
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AttachTarget::Target(Target { address: Some(address), ..Target::default() })),
            initial_delivery_count: Some(0),
            ..Attach::default()
        });
    }

    /// We ask the coordinator.
    pub(crate) fn attach_controller(&mut self, name: &str, handle: u32) {
        self.attach(&Attach {
            name,
            handle,
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(Coordinator::default().into()),
            initial_delivery_count: Some(0),
            ..Attach::default()
        });
    }

    /// Asks.
    pub(crate) fn request(&mut self, handle: u32, delivery: u32, request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.transfer(handle, delivery, &bytes);
    }

    /// We receive from `address`.
    pub(crate) fn attach_receiver(&mut self, name: &str, handle: u32, address: &str) {
        self.attach(&Attach {
            name,
            handle,
            role: Role::Receiver,
            source: Some(Source { address: Some(address), ..Source::default() }),
            target: Some(AttachTarget::Target(Target::default())),
            ..Attach::default()
        });
    }

    pub(crate) fn flow(&mut self, handle: u32, delivery_count: u32, link_credit: u32, drain: bool) {
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: u32::MAX >> 1,
            next_outgoing_id: 0,
            outgoing_window: 1 << 20,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(link_credit),
            drain,
            ..Flow::default()
        };
        self.frame(0, |out| flow.encode(out));
    }

    /// Credit for a transaction.
    pub(crate) fn flow_in(&mut self, txn: &[u8], handle: u32, delivery_count: u32, link_credit: u32) {
        let mut properties = Vec::new();
        ValueWriter::map(&mut properties, |map| {
            put_symbol(map.next(), "txn-id");
            put_binary(map.next(), txn);
        });
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: u32::MAX >> 1,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(link_credit),
            properties: Map::from_encoded(&properties, &Limits::default()).ok(),
            ..Flow::default()
        };
        self.frame(0, |out| flow.encode(out));
    }

    /// A whole unsettled message.
    pub(crate) fn transfer(&mut self, handle: u32, delivery: u32, payload: &[u8]) {
        let tag = delivery.to_be_bytes();
        let transfer =
            Transfer { handle, delivery_id: Some(delivery), delivery_tag: Some(&tag), ..Transfer::default() };
        self.transfer_as(&transfer, payload);
    }

    pub(crate) fn transfer_as(&mut self, transfer: &Transfer<'_>, payload: &[u8]) {
        self.frame(0, |out| {
            transfer.encode(out);
            out.extend_from_slice(payload);
        });
    }

    /// We receive: what became of these deliveries.
    pub(crate) fn dispose(&mut self, first: u32, last: u32, state: Option<DeliveryState<'_>>, settled: bool) {
        let disposition =
            Disposition { role: Role::Receiver, first, last: Some(last), settled, state, batchable: false };
        self.frame(0, |out| disposition.encode(out));
    }

    pub(crate) fn detach(&mut self, handle: u32, closed: bool) {
        self.frame(0, |out| Detach { handle, closed, error: None }.encode(out));
    }

    pub(crate) fn end(&mut self) {
        self.frame(0, |out| packhorse_amqp10::codec::End { error: None }.encode(out));
    }

    pub(crate) fn close(&mut self) {
        self.frame(0, |out| Close { error: None }.encode(out));
    }
}

/// The size of the protocol header or frame at the front, if it is all there.
fn unit(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < 8 {
        return None;
    }
    let size = if bytes.starts_with(b"AMQP") { 8 } else { u32::from_be_bytes(bytes[..4].try_into().ok()?) as usize };
    (bytes.len() >= size).then_some(size)
}

fn text(frame: &[u8]) -> String {
    if frame.starts_with(b"AMQP") {
        return format!("header {}", frame[4]);
    }
    let limits = Limits::default();
    let body = &frame[usize::from(frame[4]) * 4..];
    if frame[5] == 1 {
        return match SaslPerformative::decode(body, &limits).expect("the broker's frames decode") {
            SaslPerformative::SaslMechanisms(m) => {
                format!("mechanisms {}", m.sasl_server_mechanisms.iter().collect::<Vec<_>>().join(" "))
            }
            SaslPerformative::SaslOutcome(outcome) => format!("outcome {:?}", outcome.code).to_lowercase(),
            other => format!("{other:?}"),
        };
    }
    let Some((performative, payload)) = Performative::decode(body, &limits).expect("the broker's frames decode") else {
        return "empty".into();
    };
    match performative {
        Performative::Open(_) => "open".into(),
        Performative::Begin(_) => "begin".into(),
        Performative::Attach(attach) => {
            let there = |there: bool| if there { "" } else { " null" };
            match attach.role {
                Role::Sender => format!("attach {} sender{}", attach.name, there(attach.source.is_some())),
                Role::Receiver => format!("attach {} receiver{}", attach.name, there(attach.target.is_some())),
            }
        }
        Performative::Flow(flow) => match flow.handle {
            Some(handle) => format!(
                "flow {handle} ({}, {}{}{})",
                flow.delivery_count.map_or("-".into(), |n| n.to_string()),
                flow.link_credit.map_or("-".into(), |n| n.to_string()),
                if flow.drain { ", drain" } else { "" },
                if flow.echo { ", echo" } else { "" },
            ),
            None => "flow".into(),
        },
        Performative::Transfer(t) => {
            let id = t.delivery_id.map_or("-".into(), |id| id.to_string());
            let marks = [(t.more, " more"), (t.settled == Some(true), " settled"), (t.aborted, " aborted")];
            let marks: String = marks.iter().filter(|(there, _)| *there).map(|(_, word)| *word).collect();
            format!("transfer {}:{id}{marks} [{}]", t.handle, payload.len())
        }
        Performative::Disposition(d) => {
            let range =
                d.last.filter(|last| *last != d.first).map_or(d.first.to_string(), |l| format!("{}-{l}", d.first));
            let state = d.state.map_or(String::new(), |state| format!(", {}", state_text(&state)));
            let role = if d.role == Role::Receiver { "" } else { "sender's " };
            format!("{role}disp({range}{state}{})", if d.settled { ", settled" } else { "" })
        }
        Performative::Detach(d) => {
            let closed = if d.closed { " closed" } else { "" };
            format!("detach {}{closed}{}", d.handle, error_text(d.error))
        }
        Performative::End(e) => format!("end{}", error_text(e.error)),
        Performative::Close(c) => format!("close{}", error_text(c.error)),
    }
}

fn error_text(error: Option<Error<'_>>) -> String {
    error.map_or(String::new(), |e| format!(" {}", e.condition))
}

fn state_text(state: &DeliveryState<'_>) -> String {
    match state {
        DeliveryState::Accepted => "accepted".into(),
        DeliveryState::Released => "released".into(),
        DeliveryState::Rejected(rejected) => format!("rejected{}", error_text(rejected.error)),
        other => format!("{other:?}"),
    }
}
