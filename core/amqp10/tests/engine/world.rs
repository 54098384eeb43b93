//! Two engines on a pipe: a client and a server that both send and receive, check each other, and must never be told of a
//! fault.

use std::collections::{BTreeMap, VecDeque};

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

/// A link as one side sees it.
pub(crate) struct End {
    pub(crate) id: LinkId,
    pub(crate) role: Role,
    pub(crate) session: SessionId,
    pub(crate) attached: bool,
    /// Receiver: bytes of the delivery under way.
    open: Option<Vec<u8>>,
    /// Receiver: deliveries that wait to be settled, and whether a state was told already.
    pub(crate) waiting: Vec<(u32, bool)>,
    /// Receiver: whole messages, in order.
    pub(crate) got: Vec<u64>,
    /// Receiver: what was told of each message.
    pub(crate) told: BTreeMap<u32, &'static str>,
    /// Sender: the streamed delivery under way: message and bytes left.
    pub(crate) stream: Option<(u64, VecDeque<u8>)>,
    /// Sender: messages sent and not settled.
    pub(crate) out: BTreeMap<u64, Option<Decision>>,
    /// Sender: what became of the messages.
    pub(crate) fate: BTreeMap<u64, Decision>,
    /// Sender: the peer wants the credit used up.
    pub(crate) drain: bool,
    /// Sender: messages begun, in order, aborted ones taken out again.
    pub(crate) sent: Vec<u64>,
    pub(crate) drained: u32,
}

/// One side of the pipe.
pub(crate) struct Side {
    pub(crate) conn: Connection,
    partial: Vec<u8>,
    pub(crate) ends: BTreeMap<String, End>,
    names: BTreeMap<LinkId, String>,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) gone: Vec<End>,
    /// Bytes on their way to the other side.
    pub(crate) wire: VecDeque<u8>,
    pub(crate) bytes_out: u64,
}

pub(crate) struct World {
    pub(crate) client: Side,
    pub(crate) server: Side,
    next_message: u64,
}

/// The bytes of a message: all that follows from its number and length.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(len as u64).to_be_bytes());
    bytes.extend((0..len as u64).map(|i| (i.wrapping_mul(31) ^ number) as u8));
    bytes
}

fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    let len = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
    assert_eq!(bytes, message(number, len as usize), "a message arrived changed");
    number
}

impl Side {
    fn new(conn: Connection) -> Self {
        Self {
            conn,
            partial: Vec::new(),
            ends: BTreeMap::new(),
            names: BTreeMap::new(),
            sessions: Vec::new(),
            gone: Vec::new(),
            wire: VecDeque::new(),
            bytes_out: 0,
        }
    }

    fn end_of(&mut self, link: LinkId) -> Option<&mut End> {
        self.ends.get_mut(self.names.get(&link)?)
    }

    fn add(&mut self, name: &str, id: LinkId, role: Role, session: SessionId, attached: bool) {
        let end = End {
            id,
            role,
            session,
            attached,
            open: None,
            waiting: Vec::new(),
            got: Vec::new(),
            told: BTreeMap::new(),
            stream: None,
            out: BTreeMap::new(),
            fate: BTreeMap::new(),
            drain: false,
            sent: Vec::new(),
            drained: 0,
        };
        self.names.insert(id, name.to_owned());
        assert!(self.ends.insert(name.to_owned(), end).is_none(), "{name} is attached");
    }

    fn remove(&mut self, link: LinkId) {
        if let Some(name) = self.names.remove(&link) {
            self.gone.extend(self.ends.remove(&name));
        }
    }

    pub(crate) fn attach(
        &mut self,
        session: usize,
        name: &str,
        role: Role,
        snd: SenderSettleMode,
        rcv: ReceiverSettleMode,
    ) {
        let session = self.sessions[session];
        let attach = Attach {
            name,
            role,
            snd_settle_mode: snd,
            rcv_settle_mode: rcv,
            source: Some(Source { address: Some("a"), ..Source::default() }),
            target: Some(AttachTarget::Target(Target { address: Some("b"), ..Target::default() })),
            ..Attach::default()
        };
        let id = self.conn.attach(session, &attach, 0).unwrap();
        self.add(name, id, role, session, false);
    }

    pub(crate) fn detach(&mut self, name: &str, closed: bool) {
        let Some(end) = self.ends.get_mut(name) else { return };
        if end.attached {
            end.attached = false;
            let (id, session) = (end.id, end.session);
            self.conn.detach(id, closed, None).unwrap();
            self.conn.forget_deliveries(session, id);
        }
    }

    /// Reads all of these bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut partial = std::mem::take(&mut self.partial);
        let mut input = Input { partial: &mut partial, fresh: bytes };
        while let Some(event) = self.conn.next(&mut input, 0).expect("no fault") {
            self.handle(event);
        }
        assert!(input.fresh.is_empty());
        self.partial = partial;
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Opened(_) => {
                let _ = self.conn.open(&Open { container_id: "server", ..Open::default() }, 0);
            }
            Event::SessionBegun { session, by_peer, .. } => {
                if by_peer {
                    self.sessions.push(session);
                }
            }
            Event::Attach(attach) => {
                let peer = attach.frame.decode();
                if attach.answer {
                    assert!(!attach.refused);
                    if let Some(end) = self.end_of(attach.link) {
                        end.attached = true;
                    }
                } else {
                    let reply = LinkReply { source: peer.source, target: peer.target, ..LinkReply::default() };
                    self.conn.accept_link(attach.link, &reply).unwrap();
                    self.add(peer.name, attach.link, attach.role, attach.session, true);
                }
            }
            Event::Detached { link, closed, answered, midway, .. } => {
                if let Some(end) = self.end_of(link) {
                    assert_eq!(midway, end.open.take().is_some() && !answered);
                    let session = end.session;
                    if !answered {
                        self.conn.detach(link, closed, None).unwrap();
                        self.conn.forget_deliveries(session, link);
                    }
                }
                self.remove(link);
            }
            Event::Credit { link, drain, credit, .. } => {
                assert_eq!(credit, self.conn.credit(link));
                if let Some(end) = self.end_of(link) {
                    end.drain = drain;
                }
            }
            Event::SenderFlow { link, drained, .. } => {
                if let Some(end) = self.end_of(link) {
                    end.drained += u32::from(drained);
                }
            }
            Event::SessionFlow { .. } => {}
            Event::Drained { link, .. } => {
                if let Some(end) = self.end_of(link) {
                    end.drained += 1;
                }
            }
            Event::Transfer(t) => {
                let (aborted, last, settled, id, payload) =
                    (t.aborted, t.last, t.settled, t.delivery_id, t.payload.to_vec());
                let first = t.first;
                let end = self.end_of(t.link).expect("a transfer only on a link that is known");
                assert_eq!(first, end.open.is_none());
                let mut bytes = end.open.take().unwrap_or_default();
                bytes.extend_from_slice(&payload);
                if !last {
                    end.open = Some(bytes);
                } else if !aborted {
                    end.got.push(number_of(&bytes));
                    if !settled {
                        end.waiting.push((id, false));
                    }
                }
            }
            Event::Disposition { ours, .. } => {
                let mut outcomes = Vec::new();
                self.conn.take_outcomes(&mut outcomes);
                for outcome in outcomes {
                    assert!(outcome.settled || ours);
                    let Some(end) = self.end_of(outcome.link) else { continue };
                    if !ours {
                        let at =
                            end.waiting.iter().position(|(id, _)| *id == outcome.delivery_id).expect("was unsettled");
                        end.waiting.remove(at);
                    } else if outcome.settled {
                        let known = end.out.remove(&outcome.token).expect("was unsettled");
                        assert_eq!(outcome.repeated, known.is_some());
                        assert!(known.is_none_or(|known| known == outcome.state), "a terminal state is final");
                        end.fate.insert(outcome.token, outcome.state);
                    } else {
                        let known = end.out.get_mut(&outcome.token).expect("was unsettled");
                        assert!(known.is_none());
                        *known = Some(outcome.state);
                        let (session, id) = (end.session, outcome.delivery_id);
                        end.out.remove(&outcome.token);
                        end.fate.insert(outcome.token, outcome.state);
                        assert!(self.conn.settle_outgoing(session, id).unwrap());
                    }
                }
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Ends a turn: what was written goes on the wire.
    pub(crate) fn flush(&mut self) {
        self.conn.flush(0);
        let n = self.conn.output_len();
        for chunk in self.conn.output() {
            self.wire.extend(chunk);
        }
        self.conn.advance_output(n);
        self.bytes_out += n as u64;
    }

    pub(crate) fn grant(&mut self, name: &str, credit: u32) {
        if let Some(end) = self.ends.get(name)
            && end.role == Role::Receiver
            && end.attached
        {
            self.conn.grant(end.id, credit).unwrap();
        }
    }

    pub(crate) fn drain(&mut self, name: &str) {
        if let Some(end) = self.ends.get(name)
            && end.role == Role::Receiver
            && end.attached
        {
            self.conn.drain(end.id).unwrap();
        }
    }

    /// Answers a drain that is asked for, where no delivery is under way.
    pub(crate) fn drained(&mut self, name: &str) {
        if let Some(end) = self.ends.get_mut(name)
            && end.attached
            && end.drain
            && end.stream.is_none()
            && self.conn.drained(end.id).is_ok()
        {
            end.drain = false;
        }
    }

    /// Sends a message at once, if it can be.
    pub(crate) fn send(&mut self, name: &str, number: u64, len: usize, settled: bool) -> bool {
        let Some(end) = self.ends.get_mut(name).filter(|end| end.role == Role::Sender && end.attached) else {
            return false;
        };
        let bytes = message(number, len);
        if !self.conn.sendable(end.id) || !self.conn.fits(end.id, bytes.len()) {
            return false;
        }
        let settled = match self.conn.settle_modes(end.id).unwrap().0 {
            SenderSettleMode::Settled => true,
            SenderSettleMode::Unsettled => false,
            SenderSettleMode::Mixed => settled,
        };
        let params = SendParams { token: number, settled, ..SendParams::default() };
        let shared = bytes::Bytes::copy_from_slice(&bytes[16..]);
        self.conn.send(end.id, &params, &[Piece::Copy(&bytes[..16]), Piece::Share(&shared)]).unwrap();
        end.sent.push(number);
        if !settled {
            end.out.insert(number, None);
        }
        true
    }

    /// Begins a streamed message, if it can be.
    pub(crate) fn begin_stream(&mut self, name: &str, number: u64, len: usize) -> bool {
        let Some(end) = self.ends.get_mut(name).filter(|end| end.role == Role::Sender && end.attached) else {
            return false;
        };
        let settled = self.conn.settle_modes(end.id).unwrap().0 == SenderSettleMode::Settled;
        let params = SendParams { token: number, settled, ..SendParams::default() };
        if self.conn.begin_delivery(end.id, &params).is_err() {
            return false;
        }
        end.stream = Some((number, message(number, len).into()));
        end.sent.push(number);
        if !settled {
            end.out.insert(number, None);
        }
        true
    }

    /// Goes on with a streamed message, by up to `n` bytes. Tells whether anything went.
    pub(crate) fn chunk(&mut self, name: &str, n: usize) -> bool {
        let Some(end) = self.ends.get_mut(name).filter(|end| end.attached) else { return false };
        let Some((_, left)) = &mut end.stream else { return false };
        let bytes: Vec<u8> = left.iter().copied().take(n).collect();
        let last = bytes.len() == left.len();
        let sent = self.conn.send_chunk(end.id, Piece::Copy(&bytes), last).unwrap();
        left.drain(..sent.consumed);
        if sent.done {
            assert!(left.is_empty());
            end.stream = None;
        }
        sent.done || sent.consumed > 0
    }

    pub(crate) fn abort(&mut self, name: &str) {
        if let Some(end) = self.ends.get_mut(name).filter(|end| end.attached)
            && let Some((number, _)) = end.stream.take()
        {
            self.conn.abort_delivery(end.id).unwrap();
            end.out.remove(&number);
            end.sent.retain(|sent| *sent != number);
        }
    }

    /// Settles the n-th delivery that waits on a link.
    pub(crate) fn settle(&mut self, name: &str, nth: usize, what: usize) {
        let Some(end) = self.ends.get_mut(name).filter(|end| end.attached && !end.waiting.is_empty()) else { return };
        let at = nth % end.waiting.len();
        let (id, told) = end.waiting[at];
        let modified = Modified { delivery_failed: true, ..Modified::default() };
        let (word, state) = match what % 4 {
            0 | 1 => ("accepted", DeliveryState::Accepted),
            2 => ("released", DeliveryState::Released),
            _ => ("modified", DeliveryState::Modified(modified)),
        };
        let second = self.conn.settle_modes(end.id).unwrap().1 == ReceiverSettleMode::Second;
        if second && told {
            return;
        }
        assert!(self.conn.settle_incoming(end.id, id, Some(&state), !second).unwrap());
        end.told.insert(id, word);
        if second {
            end.waiting[at].1 = true;
        } else {
            end.waiting.remove(at);
        }
    }
}

impl World {
    /// Both open, with two sessions begun by the client.
    pub(crate) fn new(client_frame: u32, server_frame: u32, window: u32) -> Self {
        let limits = |frame_bytes| Limits { frame_bytes, ..Limits::default() };
        let client = Connection::client(
            ClientConfig {
                container_id: "client".into(),
                sasl: false,
                incoming_window: window,
                limits: limits(client_frame),
                seed: 1,
                ..ClientConfig::default()
            },
            0,
        );
        let server = Connection::server(
            ServerConfig {
                container_id: "server".into(),
                allow_bare: true,
                incoming_window: window,
                limits: limits(server_frame),
                seed: 2,
                ..ServerConfig::default()
            },
            0,
        );
        let mut world = Self { client: Side::new(client), server: Side::new(server), next_message: 0 };
        world.client.conn.open(&Open { container_id: "client", ..Open::default() }, 0).unwrap();
        for _ in 0..2 {
            let session = world.client.conn.begin(0).unwrap();
            world.client.sessions.push(session);
        }
        world
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_message += 1;
        self.next_message
    }

    pub(crate) fn side(&mut self, server: bool) -> &mut Side {
        if server { &mut self.server } else { &mut self.client }
    }

    /// Moves up to `n` bytes of one side's wire to the other. Tells whether there were any.
    pub(crate) fn pump(&mut self, from_server: bool, n: usize) -> bool {
        let (from, to) =
            if from_server { (&mut self.server, &mut self.client) } else { (&mut self.client, &mut self.server) };
        let n = n.min(from.wire.len());
        let bytes: Vec<u8> = from.wire.drain(..n).collect();
        to.feed(&bytes);
        n > 0
    }

    /// Flushes and pumps until nothing moves.
    pub(crate) fn settle_down(&mut self) {
        loop {
            self.client.flush();
            self.server.flush();
            let a = self.pump(false, usize::MAX);
            let b = self.pump(true, usize::MAX);
            if !a && !b {
                break;
            }
        }
    }

    /// What must agree when nothing is on its way.
    pub(crate) fn check_agreement(&mut self) {
        assert_eq!(
            self.client.ends.keys().collect::<Vec<_>>(),
            self.server.ends.keys().collect::<Vec<_>>(),
            "both sides know the same links"
        );
        for (name, ours) in &self.client.ends {
            let theirs = &self.server.ends[name];
            let of = |side: &Side, end: &End| (side.conn.delivery_count(end.id), side.conn.credit(end.id));
            assert_eq!(of(&self.client, ours), of(&self.server, theirs), "delivery-count and credit of {name}");
        }
        for (ours, theirs) in self.client.sessions.iter().zip(&self.server.sessions) {
            for role in [Role::Sender, Role::Receiver] {
                let other = if role == Role::Sender { Role::Receiver } else { Role::Sender };
                let (mine, yours) =
                    (self.client.conn.unsettled(*ours, role), self.server.conn.unsettled(*theirs, other));
                assert_eq!(mine, yours, "unsettled deliveries sent and received");
            }
        }
    }
}
