//! A shard over the journal and one client on one connection: what it takes from a queue is sent there again, with and without
//! transactions. Both ends are counted, and what the disk would do is not.

use crate::journal::{self, Nowhere};
use packhorse_broker::{Config, Effect, Endpoint, Input, Shard};
use packhorse_client_core::codec::Discharge;
use packhorse_client_core::transaction::{Request, Response};
use packhorse_client_core::{
    Body, Client, ControllerOptions, Draft, Event, Input as Incoming, LinkId, Options, Piece, ReceiverOptions,
    SenderOptions, SenderSettleMode, Verdict, response,
};
use packhorse_journal::{Encoded, Log};
use packhorse_model::{BrokerId, ConnectionId, Now, Seed, ShardId};
use packhorse_store::{Batch, Event as Told, LargeOp, Load, LoadLarge, Recovered, Store, StoreStatus, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages of a round, which is a transaction if there are any.
const ROUND: u64 = 100;
const CONNECTION: ConnectionId = ConnectionId(1);
const SHARD: ShardId = ShardId(0);
const START: Now = Now { mono_us: 1, wall_ms: 1_800_000_000_000 };
const QUEUE: &str = "bench";

/// Messages through a queue without transactions.
pub(crate) fn plain(messages: u64) {
    let mut world = World::new();
    for _ in 0..messages / ROUND {
        world.round(None);
        world.settle_down();
    }
}

/// The same messages in transactions, one after the other.
pub(crate) fn transactions(messages: u64) {
    let mut world = World::new();
    for _ in 0..messages / ROUND {
        world.ask(&Request::Declare);
        let txn = world.client.txn.take().expect("the coordinator declares");
        world.round(Some(&txn));
        world.ask(&Request::Discharge(Discharge { txn_id: &txn, fail: false }));
    }
}

/// The journal; what it wants of the disk is done when it is polled.
struct Journal {
    log: Log,
    disk: Nowhere,
    now: Now,
}

impl Store for Journal {
    fn next_ticket(&self) -> Ticket {
        self.log.next_ticket(SHARD)
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        self.log.submit(SHARD, Encoded::new(batch), self.now)
    }

    fn large(&mut self, op: LargeOp) {
        self.log.large(SHARD, op);
    }

    fn load(&mut self, load: Load) {
        self.log.load(SHARD, load);
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.log.load_large(SHARD, load);
    }

    fn poll(&mut self, out: &mut Vec<Told>) {
        self.now.mono_us += 100;
        journal::write(&mut self.log, &mut self.disk, self.now);
        self.log.poll(SHARD, out);
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        self.log.recover(SHARD, limit, out)
    }

    fn broker(&self) -> BrokerId {
        BrokerId(self.log.store())
    }

    fn run(&self) -> u64 {
        self.log.run()
    }

    fn started_at_ms(&self) -> u64 {
        self.log.started_at_ms()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.log.unflushed_bytes()
    }

    fn status(&self) -> StoreStatus {
        self.log.status()
    }
}

/// The links of a client.
#[derive(Clone, Copy)]
struct Links {
    sender: LinkId,
    receiver: LinkId,
    controller: LinkId,
}

/// A client that sends to a queue and takes from it.
struct Peer {
    engine: Client,
    held: Vec<u8>,
    links: Option<Links>,
    /// Deliveries that came and are not settled.
    came: VecDeque<u32>,
    confirmed: u64,
    txn: Option<Vec<u8>>,
    /// Requests that were answered.
    answers: u64,
}

/// The token of requests to the coordinator.
const REQUEST: u64 = u64::MAX;

impl Peer {
    fn new() -> Peer {
        Peer {
            engine: Client::new(Options { idle_timeout_ms: 0, ..Options::default() }, 0),
            held: Vec::new(),
            links: None,
            came: VecDeque::new(),
            confirmed: 0,
            txn: None,
            answers: 0,
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let mut input = Incoming { partial: &mut self.held, fresh: bytes };
        while let Some(event) = self.engine.next(&mut input, 0).expect("the broker keeps the rules") {
            match event {
                Event::Opened(_) => self.links = Some(attach(&mut self.engine)),
                Event::Message(transfer) => self.came.push_back(transfer.delivery_id),
                Event::Outcomes { state } => match self.engine.outcomes() {
                    [outcome] if outcome.token == REQUEST => {
                        match response(state.as_ref()) {
                            Response::Declared(id) => self.txn = Some(id.to_vec()),
                            Response::Accepted => {}
                            other => panic!("a request was answered with {other:?}"),
                        }
                        self.answers += 1;
                    }
                    outcomes => self.confirmed += outcomes.len() as u64,
                },
                _ => {}
            }
        }
    }
}

fn attach(engine: &mut Client) -> Links {
    let session = engine.begin(0).expect("the connection is open");
    let settle = SenderSettleMode::Unsettled;
    let sender = SenderOptions { name: "sender", address: Some(QUEUE), settle, token: 0 };
    let receiver = ReceiverOptions { name: "receiver", address: QUEUE, presettled: false, credit: 1000, token: 0 };
    let controller = ControllerOptions { name: "controller", xa: false, token: 0 };
    Links {
        sender: engine.sender(session, &sender).expect("the session has begun"),
        receiver: engine.receiver(session, &receiver).expect("the session has begun"),
        controller: engine.controller(session, &controller).expect("the session has begun"),
    }
}

/// The shard, its client, and a queue with two rounds of messages in it.
struct World {
    shard: Shard<Journal>,
    client: Peer,
    now: Now,
    out: Vec<Effect>,
    message: Vec<u8>,
    wire: Vec<u8>,
    sent: u64,
}

impl World {
    fn new() -> World {
        let (log, disk) = journal::open(START);
        let journal = Journal { log, disk, now: START };
        let mut shard = Shard::new(Arc::new(Config::default()), SHARD, Seed::fixed(7), journal);
        while !shard.recover_step(START).done {}
        let mut message = Vec::new();
        Draft { durable: Some(true), ..Draft::new(Body::Data(&[0x5a; 1024])) }.encode(&mut message);
        let mut out = Vec::new();
        let endpoint = Endpoint { peer: "peer".into(), local: "here".into(), loopback: true };
        shard.handle(Input::Accepted { connection: CONNECTION, endpoint }, START, &mut out);
        let (client, wire) = (Peer::new(), Vec::with_capacity(256 << 10));
        let mut world = World { shard, client, now: START, out, message, wire, sent: 0 };
        let attached =
            |world: &World| world.client.links.is_some_and(|links| world.client.engine.sendable(links.sender));
        world.turns_until(attached);
        for _ in 0..2 * ROUND {
            world.send(None);
        }
        world.turns_until(|world| world.client.came.len() as u64 == 2 * ROUND);
        world
    }

    fn links(&self) -> Links {
        self.client.links.expect("links are attached first")
    }

    fn send(&mut self, txn: Option<&[u8]>) {
        let (sender, pieces) = (self.links().sender, [Piece::Copy(&self.message)]);
        let engine = &mut self.client.engine;
        match txn {
            Some(txn) => engine.send_in(txn, sender, self.sent, false, &pieces),
            None => engine.send(sender, self.sent, false, &pieces),
        }
        .expect("it is sendable");
        self.sent += 1;
    }

    /// Sends a round of messages, and takes as many.
    fn round(&mut self, txn: Option<&[u8]>) {
        let receiver = self.links().receiver;
        for _ in 0..ROUND {
            let delivery = self.client.came.pop_front().expect("a round of messages is there");
            let engine = &mut self.client.engine;
            match txn {
                Some(txn) => engine.settle_in(txn, receiver, delivery, Verdict::Accept),
                None => engine.settle(receiver, delivery, Verdict::Accept),
            }
            .expect("it came, and is settled once");
            self.send(txn);
        }
        self.client.engine.grant(receiver, 1000).expect("the link stands");
    }

    /// Until what was sent is confirmed and has come.
    fn settle_down(&mut self) {
        self.turns_until(|world| world.client.confirmed == world.sent && world.client.came.len() as u64 == 2 * ROUND);
    }

    /// Asks the coordinator and waits for the answer.
    fn ask(&mut self, request: &Request<'_>) {
        let wanted = self.client.answers + 1;
        self.client.engine.request(self.links().controller, REQUEST, request).expect("it is sendable");
        self.turns_until(|world| world.client.answers == wanted);
    }

    fn turns_until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..100 {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("what was waited for does not come");
    }

    /// What the client has said goes in, a turn ends, and it hears what comes of it.
    fn turn(&mut self) {
        self.now.mono_us += 100;
        let World { shard, client, now, out, wire, .. } = self;
        client.engine.flush(0);
        carry(wire, client.engine.output());
        client.engine.written(wire.len());
        shard.handle(Input::Received { connection: CONNECTION, bytes: wire }, *now, out);
        shard.end_turn(*now, out);
        carry(wire, shard.output(CONNECTION));
        shard.written(CONNECTION, wire.len());
        client.read(wire);
        for effect in out.drain(..) {
            assert!(!matches!(effect, Effect::Close { .. } | Effect::StoreFailed { .. }), "{effect:?}");
        }
    }
}

/// What a socket does: the bytes of one end become those of the other.
pub(crate) fn carry<'a>(wire: &mut Vec<u8>, chunks: impl Iterator<Item = &'a [u8]>) {
    wire.clear();
    for chunk in chunks {
        wire.extend_from_slice(chunk);
    }
}
