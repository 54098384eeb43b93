//! The world: time, the node, its disk, the clients, and what goes wrong between them.

use crate::digest::Digest;
use crate::draw::Draw;
use crate::ledger::{Ended, Ledger, Totals};
use crate::pipe::{Arrival, Pipes, Way};
use crate::script::{Scripted, Task};
use packhorse_broker::{Config, Effect, Endpoint, Input, Lost, Node};
use packhorse_journal::sim::{CrashMode, Sim, SimDisk, SimStore};
use packhorse_journal::{Checkpoints, Options};
use packhorse_model::{ConnectionId, Now, Seed, ShardId};
use std::collections::BTreeMap;

/// How a world is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Everything follows from it.
    pub seed: u64,
    /// Shards of the node.
    pub shards: u16,
    /// Messages in all.
    pub messages: u64,
    /// Whether connections are cut and the power goes.
    pub faults: bool,
}

impl Settings {
    /// The usual world of a seed.
    pub fn new(seed: u64, shards: u16) -> Settings {
        Settings { seed, shards, messages: 600, faults: true }
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Equal runs have equal digests.
    pub digest: u64,
    /// What happened.
    pub totals: Totals,
    /// Promises broken; must be empty.
    pub violations: Vec<String>,
    /// Virtual time, µs.
    pub virtual_us: u64,
}

/// Virtual time after which a world that has not come to its end is stuck.
const PATIENCE_US: u64 = 600_000_000;

/// Wall time at the start: 2026-01-01.
const WALL_MS: i64 = 1_767_225_600_000;

struct World {
    settings: Settings,
    now_us: u64,
    sim: Sim,
    node: Node<SimStore>,
    pipes: Pipes,
    clients: Vec<Scripted>,
    /// All connections of this life of the broker: which client, which shard.
    connections: BTreeMap<u64, (usize, ShardId)>,
    /// The connection that each client has now.
    of_client: BTreeMap<usize, u64>,
    next_connection: u64,
    ledger: Ledger,
    digest: Digest,
    draw: Draw,
    /// Times of faults to come, soonest last.
    faults: Vec<(u64, Fault)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A client's stream is cut.
    Cut,
    /// The broker's process dies.
    Kill,
    /// The power goes: what was not synced is lost, in part or whole.
    Power,
}

fn config(shards: u16) -> Config {
    // Idle times are for another world; here time jumps.
    Config { shards, idle_timeout_ms: 0, ..Config::default() }
}

fn now_at(us: u64) -> Now {
    Now { mono_us: us, wall_ms: WALL_MS + (us / 1000) as i64 }
}

fn journal_options(settings: &Settings) -> Options {
    // Small, so that segments fill, checkpoints are taken and segments are used again within a world.
    let (segment_bytes, every_bytes) =
        if settings.seed.is_multiple_of(2) { (256 << 10, 400 << 10) } else { (1 << 20, 2 << 20) };
    let checkpoints = Checkpoints { every_bytes, every_us: 300_000, slice_entries: 16, ..Checkpoints::default() };
    Options { segment_bytes, spare_segments: 1, checkpoints, ..Options::new(settings.shards, settings.seed) }
}

/// Runs the world of these settings to its end.
pub fn run(settings: Settings) -> Verdict {
    let mut world = World::new(settings);
    world.run();
    world.ledger.close();
    let mut violations = std::mem::take(&mut world.ledger.violations);
    for shard in 0..settings.shards {
        if let Err(why) = world.node.shard(ShardId(shard)).audit() {
            violations.push(format!("shard {shard}: {why}"));
        }
    }
    world.digest.number(world.now_us);
    Verdict { digest: world.digest.value(), totals: world.ledger.totals, violations, virtual_us: world.now_us }
}

impl World {
    fn new(settings: Settings) -> World {
        let mut draw = Draw::new(settings.seed, 2);
        let sim = match Sim::open(SimDisk::new(settings.seed), &journal_options(&settings), now_at(0)) {
            Ok((sim, _)) => sim,
            Err((error, _)) => panic!("an empty disk opens: {error}"),
        };
        let node = start(&settings, &sim, now_at(0));
        let queues = draw.range(1, 4) as u32;
        let producers = draw.range(1, 4);
        let mut clients = Vec::new();
        let add = |clients: &mut Vec<Scripted>, task, at| {
            let name = clients.len() as u32;
            clients.push(Scripted::new(settings.seed, name, task, at));
        };
        for producer in 0..producers {
            let queue = (producer as u32) % queues;
            let until = settings.messages / producers;
            let task = Task::Produce { queue, next: 0, until, window: draw.range(1, 100) };
            let at = draw.range(0, 50_000);
            add(&mut clients, task, at);
        }
        for consumer in 0..queues as u64 + draw.range(0, 3) {
            let task = Task::Consume {
                queue: (consumer as u32) % queues,
                credit: draw.range(1, 60) as u32,
                accepts: draw.range(60, 100),
                dead_letters: false,
                holds: draw.range(1, 20) as usize,
            };
            let at = draw.range(0, 100_000);
            add(&mut clients, task, at);
        }
        let task = Task::Consume { queue: u32::MAX, credit: 50, accepts: 100, dead_letters: true, holds: 1 };
        add(&mut clients, task, 10_000);
        let mut faults = Vec::new();
        if settings.faults {
            for _ in 0..draw.range(0, 6) {
                faults.push((draw.range(20_000, 1_500_000), Fault::Cut));
            }
            for _ in 0..draw.range(0, 3) {
                let fault = if draw.chance(50) { Fault::Kill } else { Fault::Power };
                faults.push((draw.range(20_000, 1_500_000), fault));
            }
            faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        }
        World {
            pipes: Pipes::new(settings.seed),
            now_us: 0,
            sim,
            node,
            clients,
            connections: BTreeMap::new(),
            of_client: BTreeMap::new(),
            next_connection: 1,
            ledger: Ledger::default(),
            digest: Digest::new(),
            draw,
            faults,
            settings,
        }
    }

    fn run(&mut self) {
        let mut quiet_since = None;
        while let Some(at) = self.next_time() {
            self.now_us = self.now_us.max(at);
            if self.now_us > PATIENCE_US {
                let left: Vec<_> =
                    (0..self.settings.shards).map(|shard| self.node.shard(ShardId(shard)).totals()).collect();
                self.ledger.break_rule(format!("I9 stuck: the world did not come to its end; in the queues: {left:?}"));
                return;
            }
            self.sim.advance(self.now_us);
            self.fail_if_due();
            self.connect_if_due();
            self.carry();
            for client in 0..self.clients.len() {
                self.act(client);
            }
            self.turn(Vec::new());
            let produced = self.clients.iter().all(|c| c.done()) && self.faults.is_empty();
            if produced {
                for client in &mut self.clients {
                    client.calm = true;
                }
            }
            // At the end everything has been consumed, and stays so for a while.
            if produced && self.drained() {
                let since = *quiet_since.get_or_insert(self.now_us);
                if self.now_us - since > 2_000_000 {
                    return;
                }
            } else {
                quiet_since = None;
            }
        }
    }

    fn drained(&self) -> bool {
        (0..self.settings.shards).all(|shard| {
            let shard = self.node.shard(ShardId(shard));
            shard.totals().depth == 0 && shard.totals().staged == 0
        })
    }

    fn next_time(&self) -> Option<u64> {
        let clients = self.clients.iter().flat_map(|c| [c.connects_at_us, c.settles_at_us]).flatten().min();
        let fault = self.faults.last().map(|(at, _)| *at);
        let times = [self.pipes.next_us(), self.sim.next_event_us(), self.node.next_deadline(), clients, fault];
        // A tick, so that the end is seen.
        Some(times.into_iter().flatten().min().unwrap_or(u64::MAX).clamp(self.now_us, self.now_us + 100_000))
    }

    fn fail_if_due(&mut self) {
        while let Some((at, fault)) = self.faults.last().copied()
            && at <= self.now_us
        {
            self.faults.pop();
            match fault {
                Fault::Cut => {
                    let up: Vec<(usize, u64)> = self.of_client.iter().map(|(client, id)| (*client, *id)).collect();
                    if !up.is_empty() {
                        self.ledger.totals.cuts += 1;
                        let (client, connection) = up[self.draw.range(0, up.len() as u64 - 1) as usize];
                        // The broker may see the cut, and give the messages to another, before the client does.
                        self.ledger.gone(self.clients[client].consumer(), Ended::Cut);
                        self.pipes.cut(self.now_us, connection);
                    }
                }
                Fault::Kill => self.crash(CrashMode::Kill),
                Fault::Power => {
                    let mode = match self.draw.range(0, 2) {
                        0 => CrashMode::Lose,
                        1 => CrashMode::Torn(512),
                        _ => CrashMode::Torn(4096),
                    };
                    self.crash(mode);
                }
            }
        }
    }

    /// The broker dies and starts again on what the disk kept.
    fn crash(&mut self, mode: CrashMode) {
        self.ledger.totals.crashes += 1;
        let disk = self.sim.disk().crash(mode, self.draw.next());
        let now = now_at(self.now_us);
        match Sim::open(disk, &journal_options(&self.settings), now) {
            Ok((sim, _)) => {
                self.node = start(&self.settings, &sim, now);
                self.sim = sim;
            }
            Err((error, _)) => panic!("seed {}: the broker does not start again: {error}", self.settings.seed),
        }
        self.pipes.clear();
        self.connections.clear();
        for (client, _) in std::mem::take(&mut self.of_client) {
            self.clients[client].lost(&mut self.ledger, self.now_us);
        }
    }

    fn connect_if_due(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].connects_at_us.is_none_or(|at| at > self.now_us) {
                continue;
            }
            self.clients[client].connect(self.now_us / 1000);
            let connection = self.next_connection;
            self.next_connection += 1;
            let shard = ShardId((connection % u64::from(self.settings.shards)) as u16);
            self.connections.insert(connection, (client, shard));
            self.of_client.insert(client, connection);
            let endpoint = Endpoint { peer: format!("sim:{client}"), local: "sim:0".into(), loopback: true };
            let accepted = Input::Accepted { connection: ConnectionId(connection), endpoint };
            self.turn(vec![(shard, accepted)]);
        }
    }

    /// Hands over what has arrived.
    fn carry(&mut self) {
        while let Some((connection, way, arrival)) = self.pipes.take(self.now_us) {
            let (client, shard) = self.connections[&connection];
            // A client that has hung up hears nothing more; the broker still hears what was under way.
            if way == Way::ToClient && self.of_client.get(&client) != Some(&connection) {
                continue;
            }
            self.digest.number(connection << 1 | u64::from(way == Way::ToClient));
            match (way, arrival) {
                (Way::ToBroker, Arrival::Bytes(bytes)) => {
                    self.digest.add(&bytes);
                    let input = Input::Received { connection: ConnectionId(connection), bytes: &bytes };
                    let mut effects = Vec::new();
                    self.node.turn([(shard, input)], now_at(self.now_us), &mut effects);
                    self.obey(effects);
                }
                (Way::ToBroker, Arrival::End) => {
                    self.turn(vec![(shard, Input::Lost { connection: ConnectionId(connection), how: Lost::Eof })]);
                }
                (Way::ToClient, Arrival::Bytes(bytes)) => {
                    self.digest.add(&bytes);
                    if let Err(why) = self.clients[client].receive(&bytes, &mut self.ledger, self.now_us) {
                        self.ledger.break_rule(format!("client {client}: {why}"));
                        self.hang_up(connection, client);
                    }
                }
                (Way::ToClient, Arrival::End) => self.hang_up(connection, client),
            }
        }
    }

    fn hang_up(&mut self, connection: u64, client: usize) {
        self.of_client.remove(&client);
        self.clients[client].lost(&mut self.ledger, self.now_us);
        self.pipes.end(self.now_us, connection, Way::ToBroker);
    }

    fn act(&mut self, client: usize) {
        let Some(connection) = self.of_client.get(&client).copied() else { return };
        self.clients[client].act(&mut self.ledger, self.now_us);
        let bytes = self.clients[client].take_output();
        if !bytes.is_empty() {
            self.pipes.send(self.now_us, connection, Way::ToBroker, &bytes);
        }
    }

    fn turn(&mut self, inputs: Vec<(ShardId, Input<'_>)>) {
        let mut effects = Vec::new();
        self.node.turn(inputs, now_at(self.now_us), &mut effects);
        self.obey(effects);
    }

    fn obey(&mut self, effects: Vec<(ShardId, Effect)>) {
        for (shard, effect) in effects {
            match effect {
                Effect::Output { connection } | Effect::Close { connection } => {
                    let close = matches!(effect, Effect::Close { .. });
                    let node = self.node.shard_mut(shard);
                    let bytes: Vec<u8> = node.output(connection).flatten().copied().collect();
                    node.written(connection, bytes.len());
                    if self.connections.contains_key(&connection.0) {
                        self.pipes.send(self.now_us, connection.0, Way::ToClient, &bytes);
                        if close {
                            self.pipes.end(self.now_us, connection.0, Way::ToClient);
                        }
                    }
                }
                Effect::StoreFailed { what } => panic!("seed {}: {what}", self.settings.seed),
                Effect::Reading { .. }
                | Effect::AdminReply { .. }
                | Effect::Mail { .. }
                | Effect::Log { .. }
                | Effect::Stopped => {}
            }
        }
    }
}

fn start(settings: &Settings, sim: &Sim, now: Now) -> Node<SimStore> {
    let handles = (0..settings.shards).map(|shard| sim.handle(ShardId(shard)));
    Node::new(config(settings.shards), Seed::fixed(settings.seed), handles, now)
}
