//! The journal over the simulated disk: shard handles like those of the real one, and virtual time moved by the test.
#![expect(clippy::disallowed_types, reason = "the handles of all shards and the test share one journal, on one thread")]

use crate::bytes_io::Draw;
use crate::error::JournalError;
use crate::io::{DiskOp, IoId, Lane};
use crate::log::{Log, Options};
use crate::record::Encoded;
use crate::recover::{Recovery, Report, recover};
use crate::sim::{CrashMode, SimDisk};
use packhorse_model::{BrokerId, Now, ShardId};
use packhorse_store::{Batch, Event, LargeOp, Load, LoadLarge, Recovered, Store, StoreStatus, Ticket};
use std::cell::RefCell;
use std::rc::Rc;

/// Between two slices of a large transaction, µs.
const SLICE_US: u64 = 500;

struct World {
    log: Log,
    disk: SimDisk,
    now: Now,
    draw: Draw,
    shards: u16,
}

/// A journal on a simulated disk. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub struct Sim {
    world: Rc<RefCell<World>>,
}

/// One shard's handle.
pub struct SimStore {
    world: Rc<RefCell<World>>,
    shard: ShardId,
}

impl Sim {
    /// Starts the journal on this disk at this time.
    ///
    /// # Errors
    /// As [`recover`]; the disk as it is then comes back as well.
    pub fn open(mut disk: SimDisk, options: &Options, now: Now) -> Result<(Sim, Report), (JournalError, Box<SimDisk>)> {
        match recover(&mut disk, options, now) {
            Ok(Recovery { log, report }) => {
                disk.set_now_us(now.mono_us);
                let draw = Draw::new(options.seed ^ log.run());
                let shards = options.shards;
                Ok((Sim { world: Rc::new(RefCell::new(World { log, disk, now, draw, shards })) }, report))
            }
            Err(error) => Err((error, Box::new(disk))),
        }
    }

    /// The handle of a shard.
    pub fn handle(&self, shard: ShardId) -> SimStore {
        assert!(shard.0 < self.world.borrow().shards, "there is no shard {}", shard.0);
        SimStore { world: self.world.clone(), shard }
    }

    /// Virtual time.
    pub fn now(&self) -> Now {
        self.world.borrow().now
    }

    /// When the next thing happens by itself, µs; `None`: nothing will until something is submitted.
    pub fn next_event_us(&self) -> Option<u64> {
        self.world.borrow().next_event_us()
    }

    /// Moves time on to `now_us`; everything due until then happens.
    pub fn advance(&self, now_us: u64) {
        let mut world = self.world.borrow_mut();
        world.begin(&mut |_, _, _| {});
        while let Some(at) = world.next_event_us().filter(|at| *at <= now_us) {
            world.step_to(at);
            world.begin(&mut |_, _, _| {});
        }
        world.step_to(now_us);
    }

    /// The process slept until `now_us`: what the disk has ended meanwhile it learns now, all at once.
    pub fn wake_up(&self, now_us: u64) {
        let mut world = self.world.borrow_mut();
        world.step_to(now_us);
        world.begin(&mut |_, _, _| {});
    }

    /// Sets the wall clock, ms since 1970; from there on it goes with the monotonic one.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        self.world.borrow_mut().now.wall_ms = wall_ms;
    }

    /// Why the journal has ended, if it has.
    pub fn failure(&self) -> Option<String> {
        self.world.borrow().log.failed().map(|failure| failure.what.clone())
    }

    /// Moves time on to the next thing that happens; false: nothing does. `look` sees each operation before it begins.
    pub fn step(&self, look: &mut dyn FnMut(&SimDisk, IoId, &DiskOp)) -> bool {
        let mut world = self.world.borrow_mut();
        world.begin(look);
        let Some(at) = world.next_event_us() else { return false };
        world.step_to(at);
        true
    }

    /// Moves time on until everything submitted is durable and everything asked for is answered.
    pub fn settle(&self) {
        while !self.world.borrow().log.quiet() {
            assert!(self.step(&mut |_, _, _| {}), "what was submitted never becomes durable");
        }
    }

    /// Whether there is nothing left to become durable or to be answered.
    pub fn quiet(&self) -> bool {
        self.world.borrow().log.quiet()
    }

    /// An orderly stop; what is on the disk then.
    pub fn stop(self) -> SimDisk {
        self.world.borrow_mut().log.close();
        while !self.world.borrow().log.settled() {
            assert!(self.step(&mut |_, _, _| {}), "what was submitted never becomes durable");
        }
        self.disk().crash(CrashMode::Kill, 0)
    }

    /// A copy of the disk as it is, with what is running.
    pub fn disk(&self) -> SimDisk {
        self.world.borrow().disk.clone()
    }

    /// Lets a test change the disk: faults, space, slowness.
    pub fn with_disk(&self, change: impl FnOnce(&mut SimDisk)) {
        change(&mut self.world.borrow_mut().disk);
    }

    /// Whether a transaction is being taken in, see [`Log::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.world.borrow().log.is_behind()
    }

    /// Shards with something to poll since the last call.
    pub fn take_wakes(&self, out: &mut Vec<ShardId>) {
        self.world.borrow_mut().log.take_wakes(out);
    }
}

impl World {
    /// Begins all operations there are, lanes in a seeded order: no lane waits for another.
    fn begin(&mut self, look: &mut dyn FnMut(&SimDisk, IoId, &DiskOp)) {
        self.log.catch_up();
        let mut lanes = [Lane::Flush, Lane::Side, Lane::Read];
        lanes.rotate_left((self.draw.next() % 3) as usize);
        let mut again = true;
        // A flush that has no room to go to makes work for the side lane.
        while std::mem::take(&mut again) || self.log.side_due() {
            for lane in lanes {
                if let Some((id, op)) = self.log.next_io(lane, self.now) {
                    look(&self.disk, id, &op);
                    self.disk.start(id, op);
                    again = true;
                }
            }
        }
    }

    fn next_event_us(&self) -> Option<u64> {
        let deadlines = [Lane::Flush, Lane::Side, Lane::Read].map(|lane| self.log.next_deadline(lane));
        // A deadline that has passed waits for an operation to end, or was just acted on.
        let deadlines = deadlines.into_iter().flatten().filter(|at| *at > self.now.mono_us);
        let slice = self.log.is_behind().then_some(self.now.mono_us + SLICE_US);
        let deadlines = deadlines.chain(slice);
        deadlines.chain(self.disk.next_completion()).min()
    }

    fn step_to(&mut self, at_us: u64) {
        let passed_ms = at_us / 1000 - self.now.mono_us / 1000;
        self.now = Now { mono_us: at_us, wall_ms: self.now.wall_ms + passed_ms as i64 };
        while let Some((id, result)) = self.disk.advance(at_us) {
            self.log.on_io(id, result, self.now);
        }
    }
}

impl Store for SimStore {
    fn next_ticket(&self) -> Ticket {
        self.world.borrow().log.next_ticket(self.shard)
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        world.log.submit(self.shard, Encoded::new(batch), now)
    }

    fn large(&mut self, op: LargeOp) {
        self.world.borrow_mut().log.large(self.shard, op);
    }

    fn load(&mut self, load: Load) {
        self.world.borrow_mut().log.load(self.shard, load);
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.world.borrow_mut().log.load_large(self.shard, load);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.world.borrow_mut().log.poll(self.shard, out);
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        self.world.borrow_mut().log.recover(self.shard, limit, out)
    }

    fn broker(&self) -> BrokerId {
        BrokerId(self.world.borrow().log.store())
    }

    fn run(&self) -> u64 {
        self.world.borrow().log.run()
    }

    fn started_at_ms(&self) -> u64 {
        self.world.borrow().log.started_at_ms()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.world.borrow().log.unflushed_bytes()
    }

    fn status(&self) -> StoreStatus {
        self.world.borrow().log.status()
    }
}
