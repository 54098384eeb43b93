//! The client against the engine's server role over a pipe in memory that cuts the bytes at will.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{AttachTarget, DeliveryState, Error, Open, Role, SaslCode};
use packhorse_amqp10::engine::{Connection, Event as Peer, Input, LinkId, LinkReply, Piece, SendParams, ServerConfig};
use packhorse_client_core::{
    Body, Client, Decision, Draft, Event, Failure, Joiner, Login, Options, ReceiverOptions, SenderOptions,
    SenderSettleMode, Verdict,
};
use std::collections::VecDeque;

/// A broker of one queue that accepts everything but the address `forbidden`, and gives back what is not accepted.
struct Server {
    connection: Connection,
    held: Vec<u8>,
    coming: Vec<u8>,
    queue: VecDeque<Vec<u8>>,
    receivers: Vec<LinkId>,
    /// Sent and not settled, by token.
    out: Vec<Option<Vec<u8>>>,
    plain: Option<Vec<u8>>,
}

impl Server {
    fn new(mechanisms: &[&str]) -> Server {
        let limits = Limits { frame_bytes: 1024, ..Limits::default() };
        let mut connection =
            Connection::server(ServerConfig { limits, incoming_window: 8, ..ServerConfig::default() }, 0);
        connection.sasl_mechanisms(mechanisms);
        Server {
            connection,
            held: Vec::new(),
            coming: Vec::new(),
            queue: VecDeque::new(),
            receivers: Vec::new(),
            out: Vec::new(),
            plain: None,
        }
    }

    fn turn(&mut self, fresh: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        let mut input = Input { partial: &mut held, fresh };
        while let Some(event) = self.connection.next(&mut input, 0).unwrap() {
            self.on(event);
        }
        self.held = held;
        self.dispatch();
        self.connection.flush(0);
    }

    fn on(&mut self, event: Peer<'_>) {
        match event {
            Peer::SaslInit { mechanism, initial_response, .. } => {
                if mechanism == "PLAIN" {
                    self.plain = initial_response.map(<[u8]>::to_vec);
                }
                let known = mechanism != "PLAIN" || self.plain.as_deref() == Some(b"\0me\0secret");
                self.connection.sasl_outcome(if known { SaslCode::Ok } else { SaslCode::Auth }, None).unwrap();
            }
            Peer::Opened(_) => self.connection.open(&Open { container_id: "server", ..Open::default() }, 0).unwrap(),
            Peer::Attach(attach) => {
                let frame = attach.frame.decode();
                let target = match frame.target {
                    Some(AttachTarget::Target(target)) => target.address,
                    _ => None,
                };
                if [target, frame.source.and_then(|s| s.address)].contains(&Some("forbidden")) {
                    let error = Error { condition: "amqp:unauthorized-access", description: Some("no"), info: None };
                    return self.connection.refuse_link(attach.link, &error).unwrap();
                }
                let reply = LinkReply { source: frame.source, target: frame.target, ..LinkReply::default() };
                self.connection.accept_link(attach.link, &reply).unwrap();
                match attach.role {
                    Role::Receiver => self.connection.grant(attach.link, 5).unwrap(),
                    Role::Sender => self.receivers.push(attach.link),
                }
            }
            Peer::Transfer(transfer) => {
                self.coming.extend_from_slice(transfer.payload);
                if transfer.aborted {
                    self.coming.clear();
                } else if transfer.last {
                    self.queue.push_back(std::mem::take(&mut self.coming));
                    if !transfer.settled {
                        let accepted = DeliveryState::Accepted;
                        self.connection
                            .settle_incoming(transfer.link, transfer.delivery_id, Some(&accepted), true)
                            .unwrap();
                    }
                    self.connection.grant(transfer.link, 5).unwrap();
                }
            }
            Peer::Disposition { session, ours: true, .. } => {
                let outcomes = self.connection.outcomes().to_vec();
                for outcome in outcomes {
                    let message = self.out[outcome.token as usize].take().unwrap();
                    if outcome.state != Decision::Accepted {
                        self.queue.push_front(message);
                    }
                    if !outcome.settled {
                        self.connection.settle_outgoing(session, outcome.delivery_id).unwrap();
                    }
                }
            }
            Peer::Detached { link, closed, answered, .. } => {
                self.receivers.retain(|l| *l != link);
                if !answered {
                    self.connection.detach(link, closed, None).unwrap();
                }
            }
            Peer::SessionEnded { session, .. } => self.connection.end(session, None).unwrap(),
            Peer::Closed { .. } => self.connection.close(None, 0).unwrap(),
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        for link in self.receivers.clone() {
            while let Some(message) = self.queue.front().filter(|_| self.connection.sendable(link)) {
                if !self.connection.fits(link, message.len()) {
                    return;
                }
                let token = self.out.len() as u64;
                let params = SendParams { token, ..SendParams::default() };
                self.connection.send(link, &params, &[Piece::Copy(message)]).unwrap();
                self.out.push(self.queue.pop_front());
            }
            if self.connection.draining(link) && self.queue.is_empty() {
                self.connection.drained(link).unwrap();
            }
        }
    }
}

struct Pair {
    client: Client,
    held: Vec<u8>,
    server: Server,
    cut: usize,
}

impl Pair {
    fn new(login: Login, mechanisms: &[&str], cut: usize) -> Pair {
        let client = Client::new(Options { login, ..Options::default() }, 0);
        Pair { client, held: Vec::new(), server: Server::new(mechanisms), cut }
    }

    /// Moves bytes until both are silent; `on` sees the client's events.
    fn run(&mut self, mut on: impl FnMut(&mut Client, Event<'_>)) -> Result<(), Failure> {
        loop {
            // As after a time without events: the caller looks for something to do.
            on(&mut self.client, Event::Other);
            self.client.flush(0);
            let there: Vec<u8> = self.client.output().flatten().copied().collect();
            self.client.written(there.len());
            for piece in there.chunks(self.cut) {
                self.server.turn(piece);
            }
            let back: Vec<u8> = self.server.connection.output().flatten().copied().collect();
            self.server.connection.advance_output(back.len());
            for piece in back.chunks(self.cut) {
                let mut input = Input { partial: &mut self.held, fresh: piece };
                while let Some(event) = self.client.next(&mut input, 0)? {
                    on(&mut self.client, event);
                }
            }
            if there.is_empty() && back.is_empty() {
                return Ok(());
            }
        }
    }
}

fn message(n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let body = vec![n as u8; n * 700];
    Draft::new(Body::Data(&body)).encode(&mut bytes);
    bytes
}

#[test]
fn messages_of_any_length_go_out_and_come_back_in_order_however_the_bytes_are_cut() {
    for cut in [1, 7, 100, 1 << 20] {
        let mut pair = Pair::new(Login::Anonymous, &["PLAIN", "ANONYMOUS"], cut);
        let (mut sender, mut next, mut outcomes, mut got) = (None, 0, Vec::new(), Vec::new());
        let mut joiner = Joiner::default();
        pair.run(|client, event| {
            match event {
                Event::Opened(frame) => {
                    assert_eq!(frame.decode().container_id, "server");
                    let session = client.begin(1).unwrap();
                    let options =
                        SenderOptions { name: "s", address: Some("q"), settle: SenderSettleMode::Mixed, token: 10 };
                    sender = Some(client.sender(session, &options).unwrap());
                    let options = ReceiverOptions { name: "r", address: "q", presettled: false, credit: 3, token: 11 };
                    client.receiver(session, &options).unwrap();
                }
                Event::Outcomes { state } => {
                    assert_eq!(state, Some(DeliveryState::Accepted));
                    outcomes.extend(client.outcomes().iter().map(|o| (o.token, o.link_token, o.state)));
                }
                Event::Message(transfer) => {
                    assert_eq!(transfer.token, 11);
                    if let Some(message) = joiner.push(&transfer) {
                        got.push(message.to_vec());
                        assert!(client.settle(transfer.link, transfer.delivery_id, Verdict::Accept).unwrap());
                        client.grant(transfer.link, 3).unwrap();
                    }
                }
                Event::LinkLost(lost) => panic!("{}", lost.reason),
                _ => {}
            }
            // Whatever happened, send on while there is credit and room.
            while let Some(link) = sender.filter(|link| next < 10 && client.sendable(*link)) {
                if !client.fits(link, message(next).len()) {
                    break;
                }
                client.send(link, 100 + next as u64, false, &[Piece::Copy(&message(next))]).unwrap();
                next += 1;
            }
        })
        .unwrap();
        assert_eq!(outcomes, (0..10).map(|n| (100 + n, 10, Decision::Accepted)).collect::<Vec<_>>(), "cut {cut}");
        assert!(got == (0..10).map(message).collect::<Vec<_>>());
        assert!(pair.server.out.iter().all(Option::is_none), "all settled");
    }
}

#[test]
fn a_message_larger_than_the_window_goes_in_parts_or_is_taken_back() {
    enum Step {
        TakeBack,
        Begin,
        Go(usize),
        Done,
    }
    let mut pair = Pair::new(Login::Anonymous, &["ANONYMOUS"], 1 << 20);
    let large = message(100);
    let (mut sender, mut step, mut accepted) = (None, Step::TakeBack, Vec::new());
    pair.run(|client, event| {
        match event {
            Event::Opened(_) => {
                let session = client.begin(0).unwrap();
                let options = SenderOptions { name: "s", address: None, settle: SenderSettleMode::Unsettled, token: 0 };
                sender = Some(client.sender(session, &options).unwrap());
            }
            Event::Outcomes { .. } => accepted.extend(client.outcomes().iter().map(|o| o.token)),
            _ => {}
        }
        let Some(link) = sender else { return };
        match step {
            Step::TakeBack if client.sendable(link) => {
                assert!(!client.fits(link, large.len()));
                client.begin_message(link, 1, false).unwrap();
                assert!(!client.send_part(link, Piece::Copy(&large[..3000]), false).unwrap().done);
                client.abort_message(link).unwrap();
                step = Step::Begin;
            }
            Step::Begin if client.sendable(link) => {
                client.begin_message(link, 2, false).unwrap();
                step = Step::Go(0);
            }
            Step::Go(at) => {
                let sent = client.send_part(link, Piece::Copy(&large[at..]), true).unwrap();
                step = if sent.done { Step::Done } else { Step::Go(at + sent.consumed) };
            }
            _ => {}
        }
    })
    .unwrap();
    assert!(matches!(step, Step::Done));
    assert_eq!(accepted, [2], "what is taken back has no outcome");
    assert!(pair.server.queue == [large]);
}

#[test]
fn a_refused_link_is_told_with_the_reason_and_the_rest_goes_on() {
    let mut pair = Pair::new(Login::Anonymous, &["ANONYMOUS"], 16);
    let (mut lost, mut attached) = (Vec::new(), Vec::new());
    pair.run(|client, event| match event {
        Event::Opened(_) => {
            let session = client.begin(0).unwrap();
            for (token, address) in [(1, "forbidden"), (2, "q")] {
                let name = format!("r{token}");
                let options = ReceiverOptions { name: &name, address, presettled: false, credit: 1, token };
                client.receiver(session, &options).unwrap();
            }
            let options =
                SenderOptions { name: "s", address: Some("forbidden"), settle: SenderSettleMode::Mixed, token: 3 };
            client.sender(session, &options).unwrap();
        }
        Event::Attached { token, .. } => attached.push(token),
        Event::LinkLost(link) => {
            assert!(link.refused);
            lost.push((link.token, link.reason.to_string()));
        }
        _ => {}
    })
    .unwrap();
    lost.sort();
    let reason = "amqp:unauthorized-access: no".to_string();
    assert_eq!(lost, [(1, reason.clone()), (3, reason)]);
    assert_eq!(attached, [2]);
}

#[test]
fn a_drain_is_answered_and_a_given_back_message_comes_again() {
    let mut pair = Pair::new(Login::Anonymous, &["ANONYMOUS"], 64);
    pair.server.queue.push_back(message(1));
    let (mut deliveries, mut drained, mut closed) = (0, 0, 0);
    pair.run(|client, event| match event {
        Event::Opened(_) => {
            let session = client.begin(0).unwrap();
            let options = ReceiverOptions { name: "r", address: "q", presettled: false, credit: 10, token: 5 };
            client.receiver(session, &options).unwrap();
        }
        Event::Message(transfer) => {
            deliveries += 1;
            let verdict =
                [Verdict::Release, Verdict::Modify { failed: true, undeliverable_here: false }, Verdict::Accept];
            client.settle(transfer.link, transfer.delivery_id, verdict[deliveries - 1]).unwrap();
            if deliveries == 3 {
                assert_eq!(client.credit(transfer.link), 7);
                client.drain(transfer.link).unwrap();
            }
        }
        Event::Drained { link, token } => {
            assert_eq!((token, client.credit(link)), (5, 0));
            drained += 1;
            client.detach(link).unwrap();
        }
        Event::LinkLost(lost) => {
            assert!(!lost.refused);
            client.close(0).unwrap();
        }
        Event::Closed { .. } => closed += 1,
        _ => {}
    })
    .unwrap();
    assert_eq!((deliveries, drained, closed), (3, 1, 1));
    assert!(pair.client.wants_close());
}

#[test]
fn a_careful_receiver_hears_when_its_acknowledgement_is_safe() {
    let mut pair = Pair::new(Login::Anonymous, &["ANONYMOUS"], 64);
    pair.server.queue.extend([message(1), message(2), message(3)]);
    let (mut decided, mut confirmed) = (Vec::new(), Vec::new());
    pair.run(|client, event| match event {
        Event::Opened(_) => {
            let session = client.begin(0).unwrap();
            let options = ReceiverOptions { name: "r", address: "q", presettled: false, credit: 10, token: 5 };
            client.careful_receiver(session, &options).unwrap();
        }
        Event::Message(transfer) if transfer.last => {
            assert!(client.decide(transfer.link, transfer.delivery_id, Verdict::Accept).unwrap());
            decided.push(transfer.delivery_id);
        }
        Event::Confirmed => confirmed.extend(client.outcomes().iter().map(|o| o.delivery_id)),
        _ => {}
    })
    .unwrap();
    assert_eq!(decided.len(), 3);
    assert_eq!(confirmed, decided);
}

#[test]
fn logins_succeed_or_say_why_not() {
    let plain = |password: &str| Login::Plain { user: "me".into(), password: password.into() };
    let opened = |login: Login, mechanisms: &[&str]| {
        let mut pair = Pair::new(login, mechanisms, 3);
        let mut opened = false;
        let end = pair.run(|_, event| opened |= matches!(event, Event::Opened(_)));
        assert_eq!(end.is_err(), pair.client.wants_close());
        end.map(|()| opened)
    };
    assert_eq!(opened(plain("secret"), &["PLAIN", "ANONYMOUS"]), Ok(true));
    assert_eq!(opened(plain("wrong"), &["PLAIN"]), Err(Failure::LoginRefused { code: SaslCode::Auth }));
    let offered = Failure::NoMechanism { wanted: "ANONYMOUS", offered: "PLAIN EXTERNAL".into() };
    assert_eq!(opened(Login::Anonymous, &["PLAIN", "EXTERNAL"]), Err(offered));
}
