//! Messages and links: the client's engine against the broker's role of the same engine, over bytes in memory.

use crate::broker::carry;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{DeliveryState, Open, SaslCode};
use packhorse_amqp10::engine::{Connection, Event as Peer, LinkReply, ServerConfig};
use packhorse_client_core::{
    Body, Client, Draft, Event, Input, LinkId, MessageView, Options, Piece, SenderOptions, SenderSettleMode,
};
use std::hint::black_box;

const BODY: [u8; 1024] = [0x5a; 1024];
/// Messages of a turn.
const TURN: u64 = 32;
const CREDIT: u32 = 1000;

fn encode(out: &mut Vec<u8>) {
    out.clear();
    Draft { durable: Some(true), ..Draft::new(Body::Data(black_box(&BODY))) }.encode(out);
}

/// Encodes messages and reads them as the broker does.
pub(crate) fn message(messages: u64) {
    let mut bytes = Vec::with_capacity(2048);
    let limits = Limits::default();
    for _ in 0..messages {
        encode(&mut bytes);
        let view = MessageView::parse(black_box(&bytes), &limits).expect("we wrote it");
        assert_eq!(view.header().durable, Some(true));
        black_box(view.layout().content_start());
    }
}

/// The broker's end of the connection: accepts what comes.
struct Broker {
    connection: Connection,
    held: Vec<u8>,
    taken: u64,
}

impl Broker {
    fn new() -> Broker {
        let mut connection = Connection::server(ServerConfig::default(), 0);
        connection.sasl_mechanisms(&["ANONYMOUS"]);
        Broker { connection, held: Vec::new(), taken: 0 }
    }

    fn turn(&mut self, bytes: &[u8]) {
        let mut input = Input { partial: &mut self.held, fresh: bytes };
        while let Some(event) = self.connection.next(&mut input, 0).expect("the client keeps the rules") {
            let engine = &mut self.connection;
            let done = match event {
                Peer::SaslInit { .. } => engine.sasl_outcome(SaslCode::Ok, None),
                Peer::Opened(_) => engine.open(&Open { container_id: "broker", ..Open::default() }, 0),
                Peer::Attach(attach) => {
                    let frame = attach.frame.decode();
                    let reply = LinkReply { source: frame.source, target: frame.target, ..LinkReply::default() };
                    engine.accept_link(attach.link, &reply).and_then(|()| engine.grant(attach.link, CREDIT))
                }
                Peer::Transfer(transfer) => {
                    black_box(transfer.payload);
                    self.taken += u64::from(transfer.last);
                    let granted = match engine.credit(transfer.link) <= CREDIT / 2 {
                        true => engine.grant(transfer.link, CREDIT),
                        false => Ok(()),
                    };
                    let accepted = DeliveryState::Accepted;
                    let settled = engine.settle_incoming(transfer.link, transfer.delivery_id, Some(&accepted), true);
                    granted.and(settled.map(drop))
                }
                _ => Ok(()),
            };
            done.expect("the engine takes what is right at this moment");
        }
        self.connection.flush(0);
    }
}

/// The client's end.
struct Producer {
    client: Client,
    held: Vec<u8>,
    link: Option<LinkId>,
    confirmed: u64,
}

impl Producer {
    fn turn(&mut self, bytes: &[u8]) {
        let mut input = Input { partial: &mut self.held, fresh: bytes };
        while let Some(event) = self.client.next(&mut input, 0).expect("the broker keeps the rules") {
            match event {
                Event::Opened(_) => {
                    let options = SenderOptions {
                        name: "bench",
                        address: Some("bench"),
                        settle: SenderSettleMode::Unsettled,
                        token: 0,
                    };
                    let session = self.client.begin(0).expect("the connection is open");
                    self.link = Some(self.client.sender(session, &options).expect("the session has begun"));
                }
                Event::Outcomes { .. } => self.confirmed += self.client.outcomes().len() as u64,
                _ => {}
            }
        }
    }
}

/// Sends messages over a link; each is settled by the broker's end, and the outcome read.
pub(crate) fn link(messages: u64) {
    let mut broker = Broker::new();
    let client = Client::new(Options { idle_timeout_ms: 0, ..Options::default() }, 0);
    let mut producer = Producer { client, held: Vec::new(), link: None, confirmed: 0 };
    let (mut wire, mut bytes, mut sent) = (Vec::with_capacity(64 << 10), Vec::with_capacity(2048), 0);
    while producer.confirmed < messages {
        let mut turn = 0;
        if let Some(link) = producer.link {
            while sent < messages && turn < TURN && producer.client.sendable(link) {
                encode(&mut bytes);
                producer.client.send(link, sent, false, &[Piece::Copy(&bytes)]).expect("it is sendable");
                sent += 1;
                turn += 1;
            }
        }
        producer.client.flush(0);
        carry(&mut wire, producer.client.output());
        producer.client.written(wire.len());
        broker.turn(&wire);
        carry(&mut wire, broker.connection.output());
        broker.connection.advance_output(wire.len());
        producer.turn(&wire);
    }
    assert_eq!(broker.taken, messages);
}
