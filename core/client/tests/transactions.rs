//! The client's part in transactions against the engine's server role: what goes over the wire, and what comes back.

use packhorse_amqp10::codec::{
    AttachTarget, Coordinator, Declared, DeliveryState, Map, Open, Outcome, Role, Symbols, TransactionalState,
    ValueWriter, put_symbol, put_uuid,
};
use packhorse_amqp10::engine::{Connection, Event as Peer, LinkReply, SendParams, ServerConfig};
use packhorse_amqp10::message::MessageView;
use packhorse_amqp10::transaction::{Request, Response, XaPrepare, XaResult, as_state};
use packhorse_client_core::{
    Body, Client, Commits, ControllerOptions, Draft, Event, Input, Limits, LinkId, Login, Options, Piece,
    ReceiverOptions, SenderOptions, SenderSettleMode, Verdict, broker_id, response,
};

const BROKER: [u8; 16] = [7; 16];

/// A broker that declares `t1`, answers verbs with `XAER_PROTO`, and writes down what it is told.
struct Broker {
    connection: Connection,
    held: Vec<u8>,
    controller: Option<LinkId>,
    heard: Vec<String>,
}

impl Broker {
    fn new() -> Broker {
        let mut connection = Connection::server(ServerConfig { allow_bare: true, ..ServerConfig::default() }, 0);
        connection.sasl_mechanisms(&["ANONYMOUS"]);
        Broker { connection, held: Vec::new(), controller: None, heard: Vec::new() }
    }

    fn turn(&mut self, fresh: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        let mut input = Input { partial: &mut held, fresh };
        while let Some(event) = self.connection.next(&mut input, 0).unwrap() {
            self.on(event);
        }
        self.held = held;
        self.connection.flush(0);
    }

    fn on(&mut self, event: Peer<'_>) {
        match event {
            Peer::Opened(frame) => {
                if let Some(properties) = frame.decode().properties {
                    self.heard.push(format!("open {properties:?}"));
                }
                let mut map = Vec::new();
                ValueWriter::map(&mut map, |map| {
                    put_symbol(map.next(), "packhorse:broker");
                    put_uuid(map.next(), BROKER);
                });
                let properties = Map::from_encoded(&map, &Limits::default()).ok();
                self.connection.open(&Open { container_id: "broker", properties, ..Open::default() }, 0).unwrap();
            }
            Peer::Attach(attach) => {
                let frame = attach.frame.decode();
                if let Some(AttachTarget::Coordinator(wanted)) = frame.target {
                    self.heard.push(format!("coordinator {:?}", wanted.capabilities));
                    self.controller = Some(attach.link);
                }
                let target = match frame.target {
                    Some(AttachTarget::Coordinator(_)) => {
                        let capabilities = Symbols::one("amqp:local-transactions");
                        Some(Coordinator { capabilities }.into())
                    }
                    other => other,
                };
                let reply = LinkReply { source: frame.source, target, ..LinkReply::default() };
                self.connection.accept_link(attach.link, &reply).unwrap();
                if attach.role == Role::Receiver {
                    self.connection.grant(attach.link, 10).unwrap();
                }
            }
            Peer::Credit { link, .. } => {
                let mut message = Vec::new();
                Draft::new(Body::Text("m")).encode(&mut message);
                while self.connection.sendable(link) {
                    self.connection.send(link, &SendParams::default(), &[Piece::Copy(&message)]).unwrap();
                }
            }
            Peer::Transfer(transfer) if self.controller == Some(transfer.link) => {
                let view = MessageView::parse(transfer.payload, &Limits::default()).unwrap();
                let request = Request::read(&view, &Limits::default()).unwrap();
                self.heard.push(format!("{request:?}"));
                let mut ours = Vec::new();
                XaResult { code: -6, xids: None, more: false, description: None }.encode(&mut ours);
                let state = match request {
                    Request::Declare => DeliveryState::Declared(Declared { txn_id: b"t1" }),
                    Request::Discharge(_) => DeliveryState::Accepted,
                    _ => as_state(&ours, &Limits::default()).unwrap(),
                };
                self.connection.settle_incoming(transfer.link, transfer.delivery_id, Some(&state), true).unwrap();
            }
            Peer::Transfer(transfer) => {
                self.heard.push(format!("posted {:?} last {}", transfer.state, transfer.last));
                if transfer.last {
                    let outcome = Some(Outcome::Accepted);
                    let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t1", outcome });
                    // Not settled: it is not over yet.
                    self.connection.settle_incoming(transfer.link, transfer.delivery_id, Some(&state), false).unwrap();
                }
            }
            Peer::Disposition { ours, state, session, .. } => {
                self.heard.push(format!("{} {state:?}", if ours { "outcome" } else { "settled" }));
                for outcome in self.connection.outcomes().to_vec() {
                    if ours && !outcome.settled {
                        self.connection.settle_outgoing(session, outcome.delivery_id).unwrap();
                    }
                }
            }
            _ => {}
        }
    }
}

fn run(mut client: Client, mut on: impl FnMut(&mut Client, Event<'_>)) -> Vec<String> {
    let (mut broker, mut held) = (Broker::new(), Vec::new());
    loop {
        client.flush(0);
        let there: Vec<u8> = client.output().flatten().copied().collect();
        client.written(there.len());
        broker.turn(&there);
        let back: Vec<u8> = broker.connection.output().flatten().copied().collect();
        broker.connection.advance_output(back.len());
        let mut input = Input { partial: &mut held, fresh: &back };
        while let Some(event) = client.next(&mut input, 0).unwrap() {
            on(&mut client, event);
        }
        if there.is_empty() && back.is_empty() {
            return broker.heard;
        }
    }
}

fn client(commits: Option<Commits>) -> Client {
    Client::new(Options { login: Login::Bare, commits, ..Options::default() }, 0)
}

#[test]
fn a_transaction_is_declared_worked_in_and_discharged() {
    let (mut sender, mut controller, mut told) = (None, None, Vec::new());
    let heard = run(client(None), |client, event| match event {
        Event::Opened(frame) => {
            assert_eq!(broker_id(&frame), Some(BROKER));
            let session = client.begin(0).unwrap();
            let options = ControllerOptions { name: "c", xa: true, token: 1 };
            controller = Some(client.controller(session, &options).unwrap());
            let options = SenderOptions { name: "s", address: Some("q"), settle: SenderSettleMode::Mixed, token: 2 };
            sender = Some(client.sender(session, &options).unwrap());
            let options = ReceiverOptions { name: "r", address: "q", presettled: false, credit: 2, token: 3 };
            client.careful_receiver(session, &options).unwrap();
        }
        Event::Credit { token: 1, link, .. } if told.is_empty() => {
            told.push("credit".to_string());
            client.request(link, 10, &Request::Declare).unwrap();
        }
        Event::Outcomes { state } => {
            let of = client.outcomes()[0];
            match response(state.as_ref()) {
                Response::Declared(txn) => {
                    assert_eq!((txn, of.token), (&b"t1"[..], 10));
                    let mut message = Vec::new();
                    Draft::new(Body::Text("x")).encode(&mut message);
                    client.send_in(b"t1", sender.unwrap(), 20, false, &[Piece::Copy(&message)]).unwrap();
                    client.begin_message_in(b"t1", sender.unwrap(), 21, true).unwrap();
                    client.send_part(sender.unwrap(), Piece::Copy(&message), true).unwrap();
                }
                Response::Other => {
                    told.push(format!("{} {:?} settled {}", of.token, of.state, of.settled));
                    let discharge = packhorse_amqp10::codec::Discharge { txn_id: b"t1", fail: false };
                    client.request(controller.unwrap(), 11, &Request::Discharge(discharge)).unwrap();
                }
                Response::Accepted => {
                    told.push(format!("{} accepted", of.token));
                    let prepare = XaPrepare { format_id: 1, global_id: b"g", branch_qualifier: b"" };
                    client.request(controller.unwrap(), 12, &Request::Prepare(prepare)).unwrap();
                }
                Response::Result(result) => told.push(format!("{} code {}", of.token, result.code)),
                other => panic!("{other:?}"),
            }
        }
        Event::Message(transfer) => {
            let id = transfer.delivery_id;
            if id == 0 {
                assert!(client.settle_in(b"t1", transfer.link, id, Verdict::Accept).unwrap());
            } else {
                assert!(client.decide_in(b"t1", transfer.link, id, Verdict::Release).unwrap());
            }
        }
        Event::Confirmed => told.push("confirmed".to_string()),
        Event::LinkLost(lost) => panic!("{}", lost.reason),
        _ => {}
    });
    // The outcome of a posting is provisional, so the client has not settled it.
    told.sort();
    assert_eq!(told, ["11 accepted", "12 code -6", "20 Transactional settled false", "confirmed", "credit"]);
    assert!(heard[0].contains("amqp:local-transactions") && heard[0].contains("amqp:distributed-transactions"));
    let of = |what: &str| heard.iter().filter(|line| line.contains(what)).count();
    assert_eq!((of("posted Some(Transactional"), of("outcome Some(Transactional")), (2, 2), "{heard:#?}");
    assert_eq!((of("Accepted"), of("Released"), of("settled None")), (1, 1, 0), "{heard:#?}");
}

#[test]
fn the_end_of_a_transaction_does_not_overtake_what_was_settled_in_it() {
    let (mut controller, mut working, mut settled) = (None, false, 0);
    let heard = run(client(None), |client, event| match event {
        Event::Opened(_) => {
            let session = client.begin(0).unwrap();
            let options = ControllerOptions { name: "c", xa: false, token: 1 };
            controller = Some(client.controller(session, &options).unwrap());
        }
        Event::Credit { token: 1, .. } if !working => {
            working = true;
            // Another session's work: it counts as well.
            let session = client.begin(0).unwrap();
            let options = ReceiverOptions { name: "r", address: "q", presettled: false, credit: 2, token: 3 };
            client.receiver(session, &options).unwrap();
        }
        Event::Message(transfer) => {
            assert!(client.settle_in(b"t1", transfer.link, transfer.delivery_id, Verdict::Accept).unwrap());
            settled += 1;
            if settled == 2 {
                let discharge = packhorse_amqp10::codec::Discharge { txn_id: b"t1", fail: false };
                client.request(controller.unwrap(), 11, &Request::Discharge(discharge)).unwrap();
            }
        }
        _ => {}
    });
    let place = |what: &str| heard.iter().position(|line| line.contains(what)).unwrap();
    assert!(place("outcome Some(Transactional") < place("Discharge"), "{heard:#?}");
}

#[test]
fn the_commits_session_stands_in_the_open() {
    let commits = Commits { session: [9; 16], next: 41 };
    let mut opened = false;
    let heard = run(client(Some(commits)), |_, event| opened |= matches!(event, Event::Opened(_)));
    assert!(
        opened && heard[0].contains("packhorse:session") && heard[0].contains("packhorse:next-commit"),
        "{heard:?}"
    );
    assert!(heard[0].contains("41"), "{heard:?}");
}
