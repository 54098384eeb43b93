//! A world in memory: shards, the store, pipes, clients, time. Nothing happens in it but by [`World::run`].
//!
//! Must not judge: tests do.

mod client;
mod message;
mod peer;

pub(crate) use client::{C, Client, Got, ReceiverTerms, SenderTerms};
pub(crate) use message::{Msg, number, number_of};
pub(crate) use peer::{P, Peer};

use packhorse_broker::{
    Command, Config, Effect, Endpoint, Input, Level, Lost, Mail, Node, QueuePatch, QueueReport, Reply, Shard,
};
use packhorse_model::{ConnectionId, Now, Seed, ShardId};
use packhorse_store::{Memory, MemoryStore, Store};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// A pipe between the broker and one peer.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) id: ConnectionId,
    pub(crate) shard: usize,
    pub(crate) to_broker: Vec<u8>,
    /// Bytes at the front of `to_broker` that have been carried over.
    carried: usize,
    pub(crate) from_broker: Vec<u8>,
    /// The broker has closed it.
    pub(crate) closed: bool,
    /// The peer has gone.
    pub(crate) gone: bool,
    /// The broker does not read.
    pub(crate) paused: bool,
    /// The peer does not read: at most so many more bytes leave the broker.
    pub(crate) room: usize,
}

/// An input that waits for the shard's next turn.
enum Feed {
    Accepted(ConnectionId, Endpoint),
    Bytes(ConnectionId, Vec<u8>),
    Lost(ConnectionId, Lost),
    Admin(u64, Command),
    Mail(Box<Mail>),
    Stop,
}

impl Feed {
    fn input(&mut self) -> Input<'_> {
        match self {
            Feed::Accepted(connection, endpoint) => {
                Input::Accepted { connection: *connection, endpoint: endpoint.clone() }
            }
            Feed::Bytes(connection, bytes) => Input::Received { connection: *connection, bytes },
            Feed::Lost(connection, how) => Input::Lost { connection: *connection, how: how.clone() },
            Feed::Admin(id, command) => Input::Admin { id: *id, command: command.clone() },
            Feed::Mail(_) => unreachable!("mail is moved, not lent"),
            Feed::Stop => Input::Stop,
        }
    }
}

/// Who moves the shards.
enum Driver {
    /// All in one: mail is handed over at once.
    Node(Node<MemoryStore>),
    /// One by one: mail waits for the receiver's next turn, as between threads.
    Shards(Vec<Shard<MemoryStore>>),
}

impl Driver {
    fn shard(&mut self, index: usize) -> &mut Shard<MemoryStore> {
        match self {
            Driver::Node(node) => node.shard_mut(ShardId(index as u16)),
            Driver::Shards(shards) => &mut shards[index],
        }
    }
}

/// How a world differs from others: tests run in all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) shards: u16,
    /// The shard of the first connection; the others follow in turn.
    first: usize,
    /// Driven by `Node`.
    node: bool,
    /// Bytes reach the broker in pieces.
    cut: bool,
}

const KINDS: [Kind; 5] = [
    Kind { shards: 1, first: 0, node: false, cut: false },
    Kind { shards: 1, first: 0, node: true, cut: true },
    Kind { shards: 2, first: 0, node: true, cut: false },
    Kind { shards: 2, first: 0, node: false, cut: true },
    Kind { shards: 2, first: 1, node: false, cut: false },
];

/// Runs a test in every kind of world, and looks at each world when it is done.
pub(crate) fn each(test: impl Fn(&mut World)) {
    each_with(|_| {}, test);
}

/// The same with other settings.
pub(crate) fn each_with(settings: impl Fn(&mut Config), test: impl Fn(&mut World)) {
    for kind in KINDS {
        run_in(kind, &settings, &test);
    }
}

/// Runs a test that is long in one kind of world only.
pub(crate) fn in_one(settings: impl Fn(&mut Config), test: impl Fn(&mut World)) {
    run_in(KINDS[4], &settings, &test);
}

fn run_in(kind: Kind, settings: &impl Fn(&mut Config), test: &impl Fn(&mut World)) {
    eprintln!("in {kind:?}");
    let mut config = Config { broker_name: "broker".into(), shards: kind.shards, ..Config::default() };
    settings(&mut config);
    let mut world = World::new(kind, config);
    test(&mut world);
    world.finish();
}

/// See the module.
pub(crate) struct World {
    pub(crate) kind: Kind,
    config: Config,
    driver: Driver,
    pub(crate) memory: Memory,
    pub(crate) now: Now,
    pub(crate) pipes: Vec<Pipe>,
    clients: Vec<Client>,
    peers: Vec<Peer>,
    feeds: Vec<VecDeque<Feed>>,
    replies: BTreeMap<u64, Reply>,
    next_command: u64,
    connections: usize,
    random: u64,
    /// What is submitted is durable at once.
    auto: bool,
    pub(crate) logs: Vec<(Level, String)>,
    /// Shards that have stopped.
    pub(crate) stopped: Vec<usize>,
    pub(crate) failed: Option<String>,
    /// The test expects a log line of level error.
    pub(crate) errors_expected: bool,
}

impl World {
    fn new(kind: Kind, config: Config) -> World {
        let memory = Memory::new(config.shards, true);
        World::over(kind, config, memory, Now { mono_us: 5_000_000, wall_ms: 1_700_000_000_000 })
    }

    fn over(kind: Kind, config: Config, memory: Memory, now: Now) -> World {
        let stores: Vec<_> = (0..config.shards).map(|shard| memory.handle(ShardId(shard))).collect();
        let seed = Seed::fixed(7);
        let driver = if kind.node {
            Driver::Node(Node::new(config.clone(), seed, stores, now))
        } else {
            let config = Arc::new(config.clone());
            let shards = stores.into_iter().enumerate().map(|(index, store)| {
                let mut shard = Shard::new(config.clone(), ShardId(index as u16), seed, store);
                while !shard.recover_step(now).done {}
                shard
            });
            Driver::Shards(shards.collect())
        };
        World {
            kind,
            driver,
            memory,
            now,
            pipes: Vec::new(),
            clients: Vec::new(),
            peers: Vec::new(),
            feeds: (0..config.shards).map(|_| VecDeque::new()).collect(),
            replies: BTreeMap::new(),
            next_command: 0,
            connections: 0,
            random: 0x1234_5678,
            auto: true,
            logs: Vec::new(),
            stopped: Vec::new(),
            failed: None,
            errors_expected: false,
            config,
        }
    }

    // ---- the store ----

    /// From now on nothing is durable but by [`World::flush`].
    pub(crate) fn hold_store(&mut self) {
        self.auto = false;
        self.memory.set_auto(false);
    }

    /// Everything submitted so far becomes durable, and the broker is told.
    pub(crate) fn flush(&mut self) {
        self.memory.flush_all();
        self.run();
    }

    /// From now on everything is durable at once.
    pub(crate) fn free_store(&mut self) {
        self.auto = true;
        self.memory.set_auto(true);
        self.flush();
    }

    /// The process dies; each shard keeps what is durable and some prefix of the rest. Started again. Clients are gone.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.stamp();
        let memory = self.memory.crash(self.config.shards, seed);
        self.replace(memory);
    }

    /// The same in order: nothing is lost.
    pub(crate) fn restart(&mut self) {
        self.stamp();
        let memory = self.memory.restart(self.config.shards);
        self.replace(memory);
    }

    /// Tells the store what time it is.
    fn stamp(&self) {
        let started_at_ms = self.memory.handle(ShardId(0)).started_at_ms();
        self.memory.set_broker_time_ms(started_at_ms + self.now.mono_ms());
    }

    fn replace(&mut self, memory: Memory) {
        memory.set_auto(self.auto);
        let mut world = World::over(self.kind, self.config.clone(), memory, Now { mono_us: 0, ..self.now });
        std::mem::swap(self, &mut world);
        self.logs = world.logs;
        self.next_command = world.next_command;
        self.connections = world.connections;
        self.random = world.random;
        self.errors_expected = world.errors_expected;
        self.run();
    }

    // ---- connections ----

    pub(crate) fn pipe(&mut self, shard: usize, loopback: bool) -> usize {
        self.connections += 1;
        let id = ConnectionId(self.connections as u64);
        let endpoint = Endpoint { peer: format!("peer:{}", id.0), local: "here:5672".into(), loopback };
        self.feeds[shard].push_back(Feed::Accepted(id, endpoint));
        self.pipes.push(Pipe {
            id,
            shard,
            to_broker: Vec::new(),
            carried: 0,
            from_broker: Vec::new(),
            closed: false,
            gone: false,
            paused: false,
            room: usize::MAX,
        });
        self.pipes.len() - 1
    }

    /// The shard that the next connection goes to.
    fn next_shard(&self) -> usize {
        (self.kind.first + self.connections) % usize::from(self.kind.shards)
    }

    /// A client, open, with one session.
    pub(crate) fn client(&mut self, container: &str) -> C {
        let shard = self.next_shard();
        self.client_at(shard, container)
    }

    /// The same at this shard (of those that there are).
    pub(crate) fn client_at(&mut self, shard: usize, container: &str) -> C {
        self.client_as(shard, container, None)
    }

    /// The same, logged in by PLAIN.
    pub(crate) fn client_as(&mut self, shard: usize, container: &str, user: Option<&str>) -> C {
        let pipe = self.pipe(shard % usize::from(self.kind.shards), true);
        self.clients.push(Client::new(
            pipe,
            container,
            user,
            self.now.mono_ms(),
            packhorse_amqp10::Limits::default(),
            2048,
        ));
        let c = C(self.clients.len() - 1);
        self.open(c)
    }

    /// A client whose session takes few frames, which are small.
    pub(crate) fn narrow_client(&mut self, container: &str, window: u32, frame_bytes: u32) -> C {
        let shard = self.next_shard();
        let pipe = self.pipe(shard, true);
        let limits = packhorse_amqp10::Limits { frame_bytes, ..packhorse_amqp10::Limits::default() };
        self.clients.push(Client::new(pipe, container, None, self.now.mono_ms(), limits, window));
        let c = C(self.clients.len() - 1);
        self.open(c)
    }

    fn open(&mut self, c: C) -> C {
        self.run();
        assert!(self[c].opened, "a client's connection opens: {:?}", self.logs);
        self[c].begin();
        self.run();
        c
    }

    /// A peer that writes frames byte by byte as told.
    pub(crate) fn peer(&mut self) -> P {
        let shard = self.next_shard();
        self.peer_at(shard, true)
    }

    pub(crate) fn peer_at(&mut self, shard: usize, loopback: bool) -> P {
        let pipe = self.pipe(shard % usize::from(self.kind.shards), loopback);
        self.peers.push(Peer::new(pipe));
        P(self.peers.len() - 1)
    }

    /// A raw peer past `open` and `begin`, what was said about those dropped.
    pub(crate) fn peer_open(&mut self, container: &str) -> P {
        let p = self.peer();
        self[p].hello(container);
        self.run();
        let said = self[p].said();
        assert!(said.iter().any(|s| s.starts_with("begin")), "{said:?}");
        p
    }

    /// The client is gone from one moment to the next.
    pub(crate) fn kill(&mut self, c: C) {
        let pipe = self.clients[c.0].pipe;
        self.cut_pipe(pipe, Lost::Error("connection reset by peer".into()));
    }

    pub(crate) fn cut_pipe(&mut self, pipe: usize, how: Lost) {
        let pipe = &mut self.pipes[pipe];
        if !pipe.gone {
            pipe.gone = true;
            pipe.to_broker.clear();
            pipe.carried = 0;
            self.feeds[pipe.shard].push_back(Feed::Lost(pipe.id, how));
        }
    }

    /// The peer closes its socket in order: what it wrote is read first.
    pub(crate) fn fin(&mut self, p: P) {
        let pipe = &mut self.pipes[self.peers[p.0].pipe];
        let bytes = pipe.to_broker.split_off(pipe.carried);
        pipe.gone = true;
        self.feeds[pipe.shard].push_back(Feed::Bytes(pipe.id, bytes));
        self.feeds[pipe.shard].push_back(Feed::Lost(pipe.id, Lost::Eof));
    }

    pub(crate) fn pipe_of(&mut self, c: C) -> &mut Pipe {
        &mut self.pipes[self.clients[c.0].pipe]
    }

    pub(crate) fn peer_pipe(&mut self, p: P) -> &mut Pipe {
        &mut self.pipes[self.peers[p.0].pipe]
    }

    // ---- time ----

    /// Lets time pass, with a turn at every deadline on the way.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now.mono_us + ms * 1000;
        loop {
            let next = self.next_deadline().filter(|at| *at <= until);
            let to = next.unwrap_or(until).max(self.now.mono_us);
            self.now.wall_ms += ((to - self.now.mono_us) / 1000) as i64;
            self.now.mono_us = to;
            self.run();
            if next.is_none() {
                return;
            }
        }
    }

    fn next_deadline(&mut self) -> Option<u64> {
        let broker = match &self.driver {
            Driver::Node(node) => node.next_deadline(),
            Driver::Shards(shards) => shards.iter().filter_map(Shard::next_deadline).min(),
        };
        let clients = self.clients.iter().filter(|c| !self.pipes[c.pipe].gone && !self.pipes[c.pipe].closed);
        let clients = clients.filter_map(|c| c.engine.next_deadline()).map(|ms| ms * 1000).min();
        [broker, clients].into_iter().flatten().min()
    }

    /// Turns until nothing happens any more.
    pub(crate) fn run(&mut self) {
        let mut quiet = 0;
        let mut turns = 0;
        while quiet < 4 {
            turns += 1;
            assert!(turns < 200_000, "the world comes to rest; last log lines: {:?}", self.logs.last());
            quiet = if self.turn() { 0 } else { quiet + 1 };
        }
    }

    /// One turn of everybody. True: something happened.
    pub(crate) fn turn(&mut self) -> bool {
        let now_ms = self.now.mono_ms();
        let mut busy = false;
        for client in &mut self.clients {
            busy |= client.pump(&mut self.pipes[client.pipe], now_ms);
        }
        for peer in &mut self.peers {
            busy |= peer.pump(&mut self.pipes[peer.pipe]);
        }
        for index in 0..self.pipes.len() {
            self.carry(index);
        }
        busy |= self.feeds.iter().any(|feeds| !feeds.is_empty());
        let submitted = self.memory.submitted();
        let effects = self.drive();
        busy |= self.memory.submitted() > submitted;
        for (shard, effect) in effects {
            busy = true;
            self.effect(usize::from(shard.0), effect);
        }
        for index in 0..self.pipes.len() {
            busy |= self.drain(index);
        }
        busy
    }

    /// Bytes on their way to the broker: all of them, or some.
    fn carry(&mut self, index: usize) {
        let pipe = &mut self.pipes[index];
        let waiting = pipe.to_broker.len() - pipe.carried;
        if pipe.gone || pipe.closed || pipe.paused || waiting == 0 {
            return;
        }
        let most = waiting.min(256 << 10);
        let count = if self.kind.cut {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1 + (self.random >> 33) as usize % most
        } else {
            most
        };
        let bytes = pipe.to_broker[pipe.carried..pipe.carried + count].to_vec();
        pipe.carried += count;
        if pipe.carried == pipe.to_broker.len() {
            pipe.to_broker.clear();
            pipe.carried = 0;
        }
        self.feeds[pipe.shard].push_back(Feed::Bytes(pipe.id, bytes));
    }

    fn drive(&mut self) -> Vec<(ShardId, Effect)> {
        let now = self.now;
        let mut out = Vec::new();
        match &mut self.driver {
            Driver::Node(node) => {
                let mut feeds: Vec<(ShardId, Feed)> = Vec::new();
                for (shard, waiting) in self.feeds.iter_mut().enumerate() {
                    feeds.extend(waiting.drain(..).map(|feed| (ShardId(shard as u16), feed)));
                }
                node.turn(feeds.iter_mut().map(|(shard, feed)| (*shard, feed.input())), now, &mut out);
            }
            Driver::Shards(shards) => {
                let mut effects = Vec::new();
                for (index, shard) in shards.iter_mut().enumerate() {
                    for mut feed in std::mem::take(&mut self.feeds[index]) {
                        match feed {
                            Feed::Mail(mail) => shard.handle(Input::Mail(mail), now, &mut effects),
                            _ => shard.handle(feed.input(), now, &mut effects),
                        }
                    }
                    shard.end_turn(now, &mut effects);
                    for effect in effects.drain(..) {
                        match effect {
                            Effect::Mail { to, mail } => {
                                self.feeds[usize::from(to.0)].push_back(Feed::Mail(mail));
                            }
                            other => out.push((ShardId(index as u16), other)),
                        }
                    }
                }
            }
        }
        out
    }

    fn effect(&mut self, shard: usize, effect: Effect) {
        match effect {
            Effect::Output { .. } => {}
            Effect::Close { connection } => {
                self.take_output(connection);
                self.pipe_at(connection).closed = true;
            }
            Effect::Reading { connection, paused } => self.pipe_at(connection).paused = paused,
            Effect::AdminReply { id, reply } => {
                let before = self.replies.insert(id, *reply);
                assert!(before.is_none(), "a command is answered once");
            }
            Effect::Mail { .. } => unreachable!("mail is handed over by the driver"),
            Effect::Log { level, text, .. } => self.logs.push((level, text)),
            Effect::Stopped => self.stopped.push(shard),
            Effect::StoreFailed { what } => self.failed = Some(what),
        }
    }

    fn pipe_at(&mut self, id: ConnectionId) -> &mut Pipe {
        self.pipes.iter_mut().find(|pipe| pipe.id == id).expect("a known connection")
    }

    fn take_output(&mut self, connection: ConnectionId) -> bool {
        let pipe = self.pipes.iter_mut().find(|pipe| pipe.id == connection).expect("a known connection");
        if pipe.closed || pipe.gone {
            return false;
        }
        let shard = self.driver.shard(pipe.shard);
        let mut count = 0;
        for chunk in shard.output(connection) {
            let take = chunk.len().min(pipe.room - count);
            pipe.from_broker.extend_from_slice(&chunk[..take]);
            count += take;
        }
        if pipe.room != usize::MAX {
            pipe.room -= count;
        }
        if count > 0 {
            shard.written(connection, count);
        }
        count > 0
    }

    /// Bytes on their way from the broker.
    fn drain(&mut self, index: usize) -> bool {
        self.take_output(self.pipes[index].id)
    }

    // ---- operators ----

    /// Gives a command to a shard; the answer comes later.
    pub(crate) fn command(&mut self, shard: usize, command: Command) -> u64 {
        self.next_command += 1;
        let id = self.next_command;
        self.feeds[shard].push_back(Feed::Admin(id, command));
        id
    }

    pub(crate) fn reply(&mut self, id: u64) -> Option<Reply> {
        self.replies.remove(&id)
    }

    /// Gives a command to every shard in turn of calls, and waits for the answer.
    pub(crate) fn ask(&mut self, command: Command) -> Reply {
        let shard = self.next_command as usize % usize::from(self.kind.shards);
        self.ask_at(shard, command)
    }

    pub(crate) fn ask_at(&mut self, shard: usize, command: Command) -> Reply {
        let id = self.command(shard, command);
        self.run();
        self.reply(id).expect("a command is answered")
    }

    pub(crate) fn put(&mut self, name: &str, patch: QueuePatch) -> Reply {
        self.ask(Command::QueuePut { name: name.into(), patch })
    }

    /// A queue with these settings, so that it exists before anything else happens.
    pub(crate) fn declare(&mut self, name: &str) {
        let reply = self.put(name, QueuePatch::default());
        assert!(matches!(reply, Reply::Created { new: true, .. }), "{reply:?}");
    }

    /// The report on a queue that exists.
    pub(crate) fn queue(&mut self, name: &str) -> QueueReport {
        match self.ask(Command::QueueGet { name: name.into() }) {
            Reply::Queue(report) => *report,
            other => panic!("queue {name}: {other:?}"),
        }
    }

    /// Messages with these numbers, confirmed.
    pub(crate) fn fill(&mut self, queue: &str, numbers: impl IntoIterator<Item = u64>) {
        let c = self.client("filler");
        let s = self[c].sender(queue);
        self.run();
        let sent = numbers.into_iter().map(|n| self[c].send(s, number(n))).count();
        self.run();
        assert_eq!(self[c].confirmed(s).len(), sent);
        self[c].close();
        self.run();
    }

    /// What a consumer that comes for this gets from a queue: numbers and earlier deliveries.
    pub(crate) fn take(&mut self, queue: &str) -> Vec<(u64, u32)> {
        let c = self.client("taker");
        let r = self[c].receiver(queue, 100_000);
        self.run();
        let got = self[c].links[r].got.iter().map(|got| (got.number(), got.deliveries())).collect();
        self[c].accept_all(r);
        self.run();
        self[c].close();
        self.run();
        got
    }

    /// The code with which a command is refused.
    pub(crate) fn refused(&mut self, command: Command) -> &'static str {
        match self.ask(command) {
            Reply::Refused(refusal) => refusal.code,
            other => panic!("it is refused: {other:?}"),
        }
    }

    pub(crate) fn exists(&mut self, name: &str) -> bool {
        matches!(self.ask(Command::QueueGet { name: name.into() }), Reply::Queue(_))
    }

    /// `ready`, `acquired`, `enqueued_total`, `acknowledged_total` of a queue that exists.
    pub(crate) fn counts(&mut self, name: &str) -> (u64, u64, u64, u64) {
        let counters = self.queue(name).counters;
        (counters.ready, counters.acquired, counters.enqueued_total, counters.acknowledged_total)
    }

    pub(crate) fn stop(&mut self) {
        for feeds in &mut self.feeds {
            feeds.push_back(Feed::Stop);
        }
    }

    // ---- the end ----

    /// Checks what holds in every world at any time.
    pub(crate) fn audit(&mut self) {
        for shard in 0..usize::from(self.kind.shards) {
            if let Err(why) = self.driver.shard(shard).audit() {
                panic!("audit of shard {shard}: {why}");
            }
        }
    }

    fn finish(&mut self) {
        self.run();
        self.audit();
        let errors: Vec<_> = self.logs.iter().filter(|(level, _)| *level >= Level::Error).collect();
        assert!(self.errors_expected || errors.is_empty(), "the broker is in no trouble: {errors:?}");
    }

    /// Whether some log line holds these words.
    /// The codes of all shards' alarms.
    pub(crate) fn alarms(&mut self) -> Vec<&'static str> {
        let mut codes = Vec::new();
        for shard in 0..usize::from(self.kind.shards) {
            match self.ask_at(shard, Command::Status) {
                Reply::Shard(report) => codes.extend(report.alarms.iter().map(|alarm| alarm.code)),
                other => panic!("a report was asked for: {other:?}"),
            }
        }
        codes
    }

    pub(crate) fn logged(&self, words: &str) -> bool {
        self.logs.iter().any(|(_, text)| text.contains(words))
    }
}

impl Index<C> for World {
    type Output = Client;
    fn index(&self, c: C) -> &Client {
        &self.clients[c.0]
    }
}

impl IndexMut<C> for World {
    fn index_mut(&mut self, c: C) -> &mut Client {
        &mut self.clients[c.0]
    }
}

impl Index<P> for World {
    type Output = Peer;
    fn index(&self, p: P) -> &Peer {
        &self.peers[p.0]
    }
}

impl IndexMut<P> for World {
    fn index_mut(&mut self, p: P) -> &mut Peer {
        &mut self.peers[p.0]
    }
}
