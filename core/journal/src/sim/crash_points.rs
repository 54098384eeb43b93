//! Crash points: workloads are run over the simulated disk, and before, during and after each of their disk operations the
//! power goes. What a start then finds must be the model of some prefix of the batches, no shorter than what was told
//! durable; its bodies must read back; work must go on, and survive another crash; and a crash during recovery itself must
//! change nothing.

use crate::bytes_io::Draw;
use crate::io::{DiskOp, FileName, IoId};
use crate::log::Options;
use crate::sim::model::{Model, Stuff};
use crate::sim::workloads::end_branches;
use crate::sim::{CrashMode, Sim, SimDisk, SimStore, When, Workload};
use bytes::Bytes;
use packhorse_model::{Now, ShardId, TxnId};
use packhorse_store::{Batch, Event, LargeOp, Load, LoadLarge, Recovered, Store, Ticket};
use std::collections::BTreeMap;

/// Turns before a crash that comes before the play.
const EARLIER_TURNS: u64 = 8;

/// What crashing a workload has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Disk operations of the workload.
    pub disk_ops: u64,
    /// Checkpoints that became safe.
    pub checkpoints: u64,
    /// Segments that were used again.
    pub recycled: u64,
    /// Starts after a crash, each of them compared with the model.
    pub recoveries: u64,
    /// Comparisons that held, of workloads run at all.
    pub passed: u64,
    /// What went wrong, and how to see it again.
    pub failures: Vec<String>,
}

/// At which disk operations of a workload to crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// At every one.
    All,
    /// At each `n`-th.
    Each(u64),
    /// At this one alone, for a replay.
    One(u64),
}

impl Points {
    fn has(self, n: u64) -> bool {
        match self {
            Points::All => true,
            Points::Each(every) => n.is_multiple_of(every),
            Points::One(one) => n == one,
        }
    }
}

/// Crashes a workload at its disk operations.
pub fn crash_everywhere(workload: &Workload, seed: u64, points: Points) -> Tally {
    let mut tally = Tally::default();
    let mut disk = SimDisk::new(seed);
    disk.set_slow(workload.slow);
    let mut player = match Player::open(disk, workload, seed, Model::default()) {
        Ok(player) => player,
        Err(error) => {
            tally.failures.push(format!("{} seed {seed}: the first start: {error}", workload.name));
            return tally;
        }
    };
    for life in 0..workload.earlier {
        for turn in 0..EARLIER_TURNS {
            (workload.turn)(&mut player, turn);
        }
        player.sim.settle();
        let mut state = player.state().clone();
        state.start();
        player = match Player::open(player.sim.disk().crash(CrashMode::Kill, 0), workload, seed + life, state) {
            Ok(player) => player,
            Err(error) => {
                tally.failures.push(format!("{} seed {seed}: start {life}: {error}", workload.name));
                return tally;
            }
        };
    }
    for turn in 0..workload.turns {
        (workload.turn)(&mut player, turn);
        let steps = player.below(6) + 1;
        let last = turn + 1 == workload.turns;
        for _ in 0..if last { 10_000 } else { steps } {
            let sim = player.sim.clone();
            let going = {
                let (states, told) = (&player.states, player.told);
                sim.step(&mut |disk, id, op| {
                    tally.disk_ops += 1;
                    match op {
                        DiskOp::Write { name: FileName::Checkpoint(_), offset: 0, .. } => tally.checkpoints += 1,
                        DiskOp::Rename { from: FileName::Segment(_), .. } => tally.recycled += 1,
                        _ => {}
                    }
                    if points.has(tally.disk_ops) {
                        let point = Point { workload, seed, n: tally.disk_ops, states, told };
                        point.crash(disk, id, op, &mut tally);
                    }
                })
            };
            player.listen();
            if !going || (last && sim.quiet()) {
                break;
            }
        }
    }
    if player.told + 1 != player.states.len() {
        tally.failures.push(format!("{} seed {seed}: not all batches became durable", workload.name));
    }
    if let Err(error) = player.read_back() {
        tally.failures.push(format!("{} seed {seed}: at the end: {error}", workload.name));
    }
    tally
}

/// A place to crash, and what may be found after it.
struct Point<'a> {
    workload: &'a Workload,
    seed: u64,
    n: u64,
    /// The model after each batch; the first is that of no batch.
    states: &'a [Model],
    /// So many batches were told durable.
    told: usize,
}

impl Point<'_> {
    fn crash(&self, disk: &SimDisk, id: IoId, op: &DiskOp, tally: &mut Tally) {
        let mut draw = Draw::new(self.seed ^ self.n.wrapping_mul(0x1234_5678_9abc_def1));
        let variants = [When::Before, When::During, When::After].map(|when| {
            let modes = match when {
                When::Before => [CrashMode::Lose, CrashMode::Torn(512), CrashMode::Torn(4096)],
                When::During => [CrashMode::Torn(512), CrashMode::Torn(512), CrashMode::Torn(4096)],
                When::After => [CrashMode::Kill, CrashMode::Lose, CrashMode::Torn(512)],
            };
            (when, modes[(draw.next() % 3) as usize])
        });
        for (when, mode) in variants {
            let mut disk = disk.clone();
            if when != When::Before {
                disk.start(id, op.clone());
            }
            if when == When::After {
                disk.finish(id);
            }
            let left = disk.crash(mode, draw.next());
            let mut case = Case { point: self, draw: Draw::new(draw.next()), tally };
            match case.check(left) {
                Ok(()) => tally.passed += 1,
                Err(error) => tally.failures.push(format!(
                    "{error}\n  at {} {} ({when:?}, {mode:?}); again: cargo run -p packhorse-journal \
                     --features sim --example crash_points -- --workload {} --seed {} --op {}",
                    op.verb(),
                    op.subject(),
                    self.workload.name,
                    self.seed,
                    self.n,
                )),
            }
        }
    }
}

struct Case<'a> {
    point: &'a Point<'a>,
    draw: Draw,
    tally: &'a mut Tally,
}

impl Case<'_> {
    fn check(&mut self, left: SimDisk) -> Result<(), String> {
        let workload = self.point.workload;
        // A tenth: the power goes again, at each operation of the start.
        if self.draw.next().is_multiple_of(10) {
            for n in 1.. {
                let mut disk = left.clone();
                let when = [When::Before, When::During, When::After][(self.draw.next() % 3) as usize];
                disk.crash_at(n, when);
                let seed = self.draw.next();
                let Err((_, disk)) = Sim::open(disk, &options(workload, seed), now()) else { break };
                if !disk.crashed() {
                    return Err(format!("the start that was to be cut off at its operation {n} failed before"));
                }
                let mode =
                    [CrashMode::Lose, CrashMode::Torn(512), CrashMode::Torn(4096)][(self.draw.next() % 3) as usize];
                let again = disk.crash(mode, self.draw.next());
                let (states, told) = (self.point.states, self.point.told);
                // The start that was cut off may have made its jump of the numbers safe.
                self.recover_among(again, states, told, 2)
                    .map_err(|e| format!("after a second crash at operation {n} of the start: {e}"))?;
            }
        }
        let mut player = self.recover_among(left, self.point.states, self.point.told, 1)?;
        player.read_back()?;
        // An eighth: work goes on, and the power goes again.
        if self.draw.next().is_multiple_of(8) {
            let turns = 2 + self.draw.next() % 4;
            for turn in 0..turns {
                (workload.turn)(&mut player, workload.turns + turn);
                for _ in 0..self.draw.next() % 12 {
                    player.sim.step(&mut |_, _, _| {});
                }
                player.listen();
            }
            let left = player.sim.disk().crash(CrashMode::Torn(512), self.draw.next());
            let (states, told) = (std::mem::take(&mut player.states), player.told);
            drop(player);
            let mut again = self.recover_among(left, &states, told, 1).map_err(|e| format!("after more work: {e}"))?;
            again.read_back().map_err(|e| format!("after more work: {e}"))?;
            player = again;
        }
        // What branches in doubt add can be read once they are committed, and what comes back is there.
        end_branches(&mut player);
        player.read_back().map_err(|e| format!("after the branches in doubt were decided: {e}"))
    }

    /// Starts, and finds out which prefix is there, seen through one start or up to so many.
    fn recover_among(&mut self, left: SimDisk, states: &[Model], told: usize, starts: usize) -> Result<Player, String> {
        self.tally.recoveries += 1;
        let seed = self.draw.next();
        let workload = self.point.workload;
        let (sim, _) =
            Sim::open(left, &options(workload, seed), now()).map_err(|(e, _)| format!("the start failed: {e}"))?;
        let facts: Vec<Vec<Recovered>> = (0..workload.shards)
            .map(|shard| {
                let mut out = Vec::new();
                while sim.handle(ShardId(shard)).recover(64, &mut out) {}
                out
            })
            .collect();
        let mut nearest = String::new();
        for (kept, state) in states.iter().enumerate().rev() {
            let mut state = state.clone();
            for _ in 0..starts {
                state.start();
                match state.differs(&facts) {
                    None if kept < told => {
                        return Err(format!("only {kept} batches are there, {told} were told durable"));
                    }
                    None => return Ok(Player::new(sim, workload, seed, state)),
                    Some(difference) if kept >= told => nearest = format!("with {kept} batches {difference}"),
                    Some(_) => {}
                }
            }
        }
        Err(format!("no prefix from {told} to {} batches is what is there: {nearest}", states.len() - 1))
    }
}

fn options(workload: &Workload, seed: u64) -> Options {
    let Workload { shards, segment_bytes, checkpoints, .. } = *workload;
    // So few that transactions are taken in by several slices.
    Options { segment_bytes, spare_segments: 1, checkpoints, slice_operations: 2, ..Options::new(shards, seed) }
}

fn now() -> Now {
    Now { mono_us: 5_000_000, wall_ms: 1_700_000_000_000 }
}

/// Who plays a workload: submits, keeps the model of each prefix, and listens.
pub struct Player {
    sim: Sim,
    handles: Vec<SimStore>,
    pub(super) draw: Draw,
    states: Vec<Model>,
    told: usize,
    /// For each batch told durable in turn: shard and ticket.
    tickets: Vec<(u16, Ticket)>,
    durable: Vec<Ticket>,
    next: BTreeMap<u64, u64>,
    next_large: u64,
    next_txn: u64,
    synced: Vec<(u64, u64)>,
    large: BTreeMap<u64, Vec<u8>>,
    loads: u64,
    answers: Vec<Event>,
}

impl Player {
    fn open(disk: SimDisk, workload: &Workload, seed: u64, state: Model) -> Result<Player, String> {
        let (sim, _) = Sim::open(disk, &options(workload, seed), now()).map_err(|(e, _)| e.to_string())?;
        Ok(Player::new(sim, workload, seed, state))
    }

    fn new(sim: Sim, workload: &Workload, seed: u64, state: Model) -> Player {
        Player {
            handles: (0..workload.shards).map(|shard| sim.handle(ShardId(shard))).collect(),
            next_large: sim.handle(ShardId(0)).run() << 32,
            next_txn: 0,
            sim,
            draw: Draw::new(seed),
            states: vec![state],
            told: 0,
            tickets: Vec::new(),
            durable: vec![Ticket(0); usize::from(workload.shards)],
            next: BTreeMap::new(),
            synced: Vec::new(),
            large: BTreeMap::new(),
            loads: 0,
            answers: Vec::new(),
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw.next() % n
    }

    /// The state with everything that was submitted.
    pub(super) fn state(&self) -> &Model {
        self.states.last().expect("the first state is always there")
    }

    /// A number of a queue, never drawn before.
    pub(super) fn draw_sequence(&mut self, queue: packhorse_model::QueueId) -> u64 {
        let first = self.state().next(queue).unwrap_or(0);
        let next = self.next.entry(queue.0).or_insert(first);
        *next += 1;
        *next - 1
    }

    /// A transaction's id, never drawn before.
    pub(super) fn draw_txn(&mut self) -> TxnId {
        self.next_txn += 1;
        let home = ShardId((self.draw.next() % self.handles.len() as u64) as u16);
        TxnId { run: self.handles[0].run(), number: self.next_txn, home }
    }

    /// Submits a batch on a shard, unless it is empty.
    pub(super) fn submit(&mut self, shard: u16, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let (ops, pieces) = batch.clone().into_parts();
        let mut state = self.state().clone();
        state.apply(&ops, &pieces);
        self.states.push(state);
        let ticket = self.handles[usize::from(shard)].submit(batch);
        self.tickets.push((shard, ticket));
    }

    /// Sends a large message's bytes to the disk; it may be referred to once [`Player::synced`] tells it.
    pub(super) fn large(&mut self, shard: u16, length: u64, abort: bool) {
        self.next_large += 1;
        let id = packhorse_model::LargeId(self.next_large);
        let handle = &mut self.handles[usize::from(shard)];
        handle.large(LargeOp::Begin { id });
        let content = large_content(id.0, length);
        for chunk in content.chunks(30_000) {
            handle.large(LargeOp::Chunk { id, bytes: Bytes::copy_from_slice(chunk) });
        }
        handle.large(if abort { LargeOp::Abort { id } } else { LargeOp::End { id } });
        self.large.insert(id.0, content);
    }

    /// Large messages that are safe and not referred to yet: id and length.
    pub(super) fn take_synced(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.synced)
    }

    /// Asks for bodies, to have reads under way.
    pub(super) fn load(&mut self, shard: u16, load: Load) {
        self.loads += 1;
        self.handles[usize::from(shard)].load(load);
    }

    /// Takes in what the store tells.
    fn listen(&mut self) {
        for shard in 0..self.handles.len() {
            let mut events = Vec::new();
            self.handles[shard].poll(&mut events);
            for event in events {
                match event {
                    Event::Durable { up_to } => self.durable[shard] = up_to,
                    Event::LargeSynced { id, length } => self.synced.push((id.0, length)),
                    Event::Loaded(_) | Event::LargeLoaded { .. } => self.answers.push(event),
                    Event::LargeWritten { .. } | Event::Space { .. } => {}
                    Event::Failed(failure) => panic!("no fault was injected: {}", failure.what),
                }
            }
        }
        // Batches become durable in the order of all submissions.
        while let Some((shard, ticket)) = self.tickets.get(self.told)
            && *ticket <= self.durable[usize::from(*shard)]
        {
            self.told += 1;
        }
    }

    /// Reads every body back and compares it with the model.
    fn read_back(&mut self) -> Result<(), String> {
        self.sim.settle();
        self.listen();
        self.answers.clear();
        let state = self.state().clone();
        for queue in state.queues() {
            for level in [0, 4, 9] {
                let load = Load { queue, level, from: 0, count: 10_000, bytes: u32::MAX };
                self.handles[0].load(load);
                self.sim.settle();
                self.listen();
                let Some(Event::Loaded(loaded)) = self.answers.pop() else {
                    return Err("a load was not answered".into());
                };
                let expected = state.entries.iter().filter_map(|(k, e)| match &e.content {
                    Stuff::Bytes(bytes) if k.queue == queue && e.head.level() == level && !e.held => {
                        Some((k.sequence, &bytes[..]))
                    }
                    _ => None,
                });
                let expected: Vec<(u64, &[u8])> = expected.collect();
                if loaded.bodies.len() != expected.len() {
                    let (n, m) = (loaded.bodies.len(), expected.len());
                    return Err(format!("queue {queue} level {level}: {n} bodies came and not {m}"));
                }
                for (body, (sequence, bytes)) in loaded.bodies.iter().zip(expected) {
                    let found = body.range.map(|(at, n)| &loaded.buffer[at as usize..(at + n) as usize]);
                    if body.sequence != sequence || found != Some(bytes) {
                        return Err(format!("queue {queue}: the body of {sequence} is wrong: {body:?}"));
                    }
                }
            }
        }
        for entry in state.entries.values() {
            let Stuff::Large(id, length) = entry.content else { continue };
            let load = LoadLarge { token: id, id: packhorse_model::LargeId(id), offset: 0, length: length as u32 + 1 };
            self.handles[0].load_large(load);
            self.sim.settle();
            self.listen();
            let Some(Event::LargeLoaded { bytes, .. }) = self.answers.pop() else {
                return Err("a load was not answered".into());
            };
            if bytes.as_deref() != Some(&large_content(id, length)[..]) {
                return Err(format!("large message {id:x} is wrong"));
            }
        }
        Ok(())
    }
}

fn large_content(id: u64, length: u64) -> Vec<u8> {
    (0..length).map(|i| (i / 3 + id) as u8).collect()
}
