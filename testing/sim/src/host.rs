//! A machine with a broker's process on it: its disk, its wall clock, its life from a start to an end. The process is the product's own
//! `Node` over the product's own journal; what is replaced is what `shell/` does: sockets, files, threads, clocks.

use crate::books::host_name;
use crate::client::IDLE_MS;
use crate::damage::Flipped;
use crate::draw::Draw;
use crate::seam::{Seam, SeamStore};
use packhorse_broker::{Command, Config, Node, TransactionConfig};
use packhorse_journal::sim::{Sim, SimDisk, When};
use packhorse_journal::{Checkpoints, DiskOp, FileName, JournalError, Options};
use packhorse_model::{ConnectionId, Now, Seed, ShardId};
use packhorse_store::Store;
use std::rc::Rc;

/// Wall time at the start: 2026-01-01.
const WALL_MS: i64 = 1_767_225_600_000;

/// How a broker is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) shards: u16,
    pub(crate) segment_bytes: u64,
    pub(crate) spare_segments: u32,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) checkpoint_us: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) output_bytes: usize,
    /// Attempts that a message gets.
    pub(crate) delivery_limit: u32,
    /// For bodies that wait in transactions.
    pub(crate) transaction_bytes: u64,
    /// Mail between its shards takes its time, as between threads; otherwise it is there at once.
    pub(crate) slow_mail: bool,
    /// Names of its queues.
    pub(crate) queues: Vec<String>,
}

impl Setup {
    pub(crate) fn draw(draw: &mut Draw, shards: u16) -> Setup {
        // Small, so that segments fill, checkpoints are taken, bodies leave memory within a world.
        Setup {
            shards,
            segment_bytes: [128 << 10, 256 << 10, 512 << 10][draw.below(3)],
            spare_segments: draw.range(1, 2) as u32,
            checkpoint_bytes: draw.range(200, 900) << 10,
            checkpoint_us: draw.range(100_000, 500_000),
            memory_bytes: [64 << 10, 256 << 10, 1 << 20][draw.below(3)],
            output_bytes: [64 << 10, 256 << 10][draw.below(2)],
            delivery_limit: Config::default().delivery_limit,
            transaction_bytes: TransactionConfig::default().max_memory_bytes,
            slow_mail: false,
            queues: (0..draw.range(1, 4)).map(|n| format!("q{n}")).collect(),
        }
    }

    fn config(&self) -> Config {
        Config {
            shards: self.shards,
            memory_bytes: self.memory_bytes,
            max_output_bytes: self.output_bytes,
            delivery_limit: self.delivery_limit,
            idle_timeout_ms: IDLE_MS,
            transactions: TransactionConfig {
                max_memory_bytes: self.transaction_bytes,
                ..TransactionConfig::default()
            },
            max_message_bytes: 8 << 20,
            ..Config::default()
        }
    }

    fn options(&self, seed: u64) -> Options {
        let checkpoints = Checkpoints {
            every_bytes: self.checkpoint_bytes,
            every_us: self.checkpoint_us,
            slice_entries: 32,
            ..Checkpoints::default()
        };
        Options {
            segment_bytes: self.segment_bytes,
            spare_segments: self.spare_segments,
            checkpoints,
            // So few that the larger transactions are taken in by several slices.
            slice_operations: 3,
            ..Options::new(self.shards, seed)
        }
    }
}

/// A process from its start to its end.
pub(crate) struct Life {
    pub(crate) node: Node<SeamStore>,
    pub(crate) sim: Sim,
    boot_us: u64,
    /// The next turn, if one is wanted.
    pub(crate) turn_at: Option<u64>,
    /// The disk's next word, as the world expects it.
    pub(crate) disk_at: Option<u64>,
    /// Streams with something to hand in.
    pub(crate) ready: Vec<usize>,
    /// Commands to hand in: to which shard, their numbers.
    pub(crate) commands: Vec<(ShardId, u64, Command)>,
    /// Streams that a client made room on while the process stood still.
    pub(crate) unwritten: Vec<usize>,
    /// Shards that have said that they have stopped; `None`: nobody asked.
    pub(crate) stopping: Option<u16>,
    /// It stands still.
    pub(crate) paused: bool,
}

/// A machine.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) setup: Setup,
    seed: u64,
    /// While no process has it.
    pub(crate) disk: Option<SimDisk>,
    pub(crate) life: Option<Life>,
    /// Starts so far.
    pub(crate) starts: u32,
    wall_offset_ms: i64,
    /// When the process is started again.
    pub(crate) starts_at: Option<u64>,
    /// Troubles of the disk that have struck since the last start that went well.
    pub(crate) ill: Vec<u64>,
    /// Reads that have failed: one that fails is tried once more, and then nobody gets what it was to bring.
    pub(crate) unread: std::collections::BTreeSet<(packhorse_journal::FileName, u64, u32)>,
    /// Bits of confirmed blocks that were flipped.
    pub(crate) flipped: Vec<Flipped>,
    /// Where a script lets its process end.
    pub(crate) seam: Rc<Seam>,
}

impl Host {
    pub(crate) fn new(number: usize, seed: u64, setup: Setup) -> Host {
        let seed = seed ^ (number as u64) << 56;
        Host {
            name: host_name(number),
            setup,
            seed,
            disk: Some(SimDisk::new(seed)),
            life: None,
            starts: 0,
            wall_offset_ms: 0,
            starts_at: Some(0),
            ill: Vec::new(),
            unread: Default::default(),
            flipped: Vec::new(),
            seam: Rc::default(),
        }
    }

    fn wall_ms(&self, now_us: u64) -> i64 {
        WALL_MS + (now_us / 1000) as i64 + self.wall_offset_ms
    }

    /// The process's time: its monotonic clock begins with it.
    pub(crate) fn now(&self, now_us: u64) -> Now {
        let boot_us = self.life.as_ref().map_or(now_us, |life| life.boot_us);
        Now { mono_us: now_us - boot_us, wall_ms: self.wall_ms(now_us) }
    }

    /// Sets the wall clock by so much.
    pub(crate) fn step_wall(&mut self, now_us: u64, by_ms: i64) {
        self.wall_offset_ms += by_ms;
        if let Some(life) = &self.life {
            life.sim.set_wall_ms(self.wall_ms(now_us));
        }
    }

    /// Starts the process on the disk as it is.
    ///
    /// # Errors
    /// As the journal refuses; the disk stays.
    pub(crate) fn start(&mut self, now_us: u64) -> Result<(), JournalError> {
        let mut disk = self.disk.take().expect("no process has the disk");
        self.starts += 1;
        self.starts_at = None;
        let now = Now { mono_us: 0, wall_ms: self.wall_ms(now_us) };
        disk.set_now_us(0);
        let options = self.setup.options(self.seed ^ u64::from(self.starts) << 32);
        let sim = match Sim::open(disk, &options, now) {
            Ok((sim, _)) => sim,
            Err((error, disk)) => {
                self.disk = Some(*disk);
                return Err(error);
            }
        };
        let handles = (0..self.setup.shards).map(|shard| SeamStore::new(sim.handle(ShardId(shard)), self.seam.clone()));
        let seed = Seed::fixed(self.seed ^ u64::from(self.starts));
        let mut node = Node::new(self.setup.config(), seed, handles, now);
        if self.setup.slow_mail {
            let mut draw = Draw::new(self.seed ^ u64::from(self.starts), 9);
            node.delay_mail(move |waiting| match draw.range(0, 2) {
                0 => 0,
                1 => draw.range(1, waiting as u64) as usize,
                _ => waiting,
            });
        }
        self.life = Some(Life {
            node,
            sim,
            boot_us: now_us,
            turn_at: None,
            disk_at: None,
            ready: Vec::new(),
            commands: Vec::new(),
            unwritten: Vec::new(),
            stopping: None,
            paused: false,
        });
        Ok(())
    }

    /// The process is over; what it had on the disk stays for `keep` to judge.
    pub(crate) fn end(&mut self, keep: impl FnOnce(&SimDisk) -> SimDisk) {
        if let Some(life) = self.life.take() {
            // The handles first: the disk is then this one's alone.
            drop(life.node);
            self.disk = Some(keep(&life.sim.disk()));
        }
    }

    /// Stops the process in order: all its shards have stopped.
    pub(crate) fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            drop(life.node);
            self.disk = Some(life.sim.stop());
        }
    }

    /// Lets the disk, wherever it is, be changed.
    pub(crate) fn with_disk<T>(&mut self, change: impl FnOnce(&mut SimDisk) -> T) -> T {
        if let Some(disk) = &mut self.disk {
            return change(disk);
        }
        let life = self.life.as_ref().expect("a disk is with the process or with nobody");
        let mut answer = None;
        life.sim.with_disk(|disk| answer = Some(change(disk)));
        answer.expect("the disk was there")
    }

    /// The store's time is now, before anything is handed to it: what it begins begins now, and not when it was last asked.
    pub(crate) fn catch_up(&self, now_us: u64) {
        if let Some(life) = self.life.as_ref().filter(|life| !life.paused) {
            life.sim.advance(now_us - life.boot_us);
        }
    }

    /// Moves the store on to now. True: shards have something to hear.
    pub(crate) fn advance(&mut self, now_us: u64, scratch: &mut Vec<ShardId>) -> bool {
        let Some(life) = &self.life else { return false };
        if life.paused {
            return false;
        }
        if self.seam.is_due() {
            let a_block = |op: &DiskOp| matches!(op, DiskOp::Write { name: FileName::Segment(_), sync: true, .. });
            life.sim.with_disk(|disk| disk.crash_on(a_block, 1, When::During));
        }
        life.sim.advance(now_us - life.boot_us);
        scratch.clear();
        life.sim.take_wakes(scratch);
        !scratch.is_empty()
    }

    /// When the store has something to say next.
    pub(crate) fn disk_next(&self) -> Option<u64> {
        let life = self.life.as_ref().filter(|life| !life.paused)?;
        life.sim.next_event_us().map(|at| at + life.boot_us)
    }

    /// When the shards want a turn even if nothing happens.
    pub(crate) fn turn_next(&self) -> Option<u64> {
        let life = self.life.as_ref().filter(|life| !life.paused)?;
        life.node.next_deadline().map(|at| at.saturating_add(life.boot_us))
    }

    /// The process goes on after a standstill.
    pub(crate) fn wake_up(&mut self, now_us: u64) {
        if let Some(life) = &mut self.life {
            life.paused = false;
            (life.turn_at, life.disk_at) = (None, None);
            life.sim.wake_up(now_us - life.boot_us);
        }
    }

    /// Bytes of bodies that settings allow it in memory: the budget, what no flush covers yet (a buffer is used by half at least), what
    /// one turn of each shard brings, and a run of bodies that was read for each.
    pub(crate) fn memory_most(&self) -> u64 {
        let Some(life) = &self.life else { return 0 };
        let unflushed = life.node.shard(ShardId(0)).store().unflushed_bytes();
        let shards = u64::from(self.setup.shards);
        self.setup.memory_bytes + 2 * unflushed + shards * ((512 << 10) + (320 << 10))
    }

    /// Bytes that it may hold for a connection that does not read.
    pub(crate) fn output_most(&self) -> u64 {
        self.setup.output_bytes as u64 + (1 << 20)
    }

    /// Bytes that it holds for a connection.
    pub(crate) fn output_bytes(&self, shard: ShardId, connection: u64) -> u64 {
        let Some(life) = &self.life else { return 0 };
        life.node.shard(shard).output(ConnectionId(connection)).map(|chunk| chunk.len() as u64).sum()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.life.is_some()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.life.as_ref().is_some_and(|life| !life.paused)
    }
}
