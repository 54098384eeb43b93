//! The log: batches in, disk operations out, events back. One for the process, shared by all shards behind a lock that the
//! shell holds for microseconds.
//!
//! Group commit: a block takes all that waits, up to 1 MiB. A second block is begun while one is being flushed only when
//! much waits or the first is slow, because splitting what waits makes two half-empty flushes. `Durable` is released in the
//! order of blocks. Any failed write, flush, rename or sync ends the log for good: nothing is tried again.
//!
//! Must not know: files' handles, clocks, queues' rules.

use crate::block::{self, BlockHeader, HEADER};
use crate::checkpoint::Moment;
use crate::checkpointer::{Checkpointer, Checkpoints, Kept, Summary};
use crate::index::{Index, Place, SLICE_OPERATIONS};
use crate::io::{DiskOp, FileName, IoDone, IoError, IoId, IoResult, Lane, Subject};
use crate::large::{self, Done, LargeFiles};
use crate::load::LoadJob;
use crate::record::{Encoded, Record, Records, stop_meta};
use crate::supply::{Part, Segment, Supply};
use bytes::Bytes;
use packhorse_model::{LargeId, Now, QueueId, Sequence, ShardId};
use packhorse_store::{Event, Failure, LargeOp, Load, LoadLarge, Recovered, Remember, StoreStatus, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// A block takes what waits up to this; a larger batch is a block of its own. The disk's bandwidth is saturated there.
const BLOCK_BYTES: u64 = 1 << 20;
/// A second flush is begun beside a running one when this much waits …
const OVERLAP_BYTES: u64 = 256 * 1024;
/// … or when the running one takes this many times the usual time: it starves or stalls.
const OVERLAP_AGE: u64 = 4;
/// Batches that nobody waits for are put off at most this long.
const LAZY_US: u64 = 5_000;
/// After so long without work an empty block follows, which proves the last one confirmed.
const IDLE_US: u64 = 1_000_000;

/// What a log is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shards that use it.
    pub shards: u16,
    /// Bytes of a segment, a multiple of 4096, less than 4 GiB.
    pub segment_bytes: u64,
    /// Pre-written segments kept in reserve.
    pub spare_segments: u32,
    /// Source of salts and of a new store's identity; from the system's randomness, fixed in simulations.
    pub seed: u64,
    /// When checkpoints are taken.
    pub checkpoints: Checkpoints,
    /// How much is remembered of transactions that are completed.
    pub remember: Remember,
    /// Operations of transactions that are taken in at once, see [`Log::catch_up`].
    pub slice_operations: usize,
}

impl Options {
    /// The defaults for this many shards.
    pub fn new(shards: u16, seed: u64) -> Options {
        let (checkpoints, remember) = (Checkpoints::default(), Remember::default());
        let slice_operations = SLICE_OPERATIONS;
        Options { shards, segment_bytes: 64 << 20, spare_segments: 2, seed, checkpoints, remember, slice_operations }
    }
}

#[derive(Debug)]
struct Waiting {
    shard: u16,
    ticket: Ticket,
    batch: Encoded,
    at_us: u64,
}

#[derive(Debug)]
struct Flight {
    io: IoId,
    number: u64,
    /// As counted in `unflushed`.
    bytes: u64,
    started_us: u64,
    done: bool,
    /// The last ticket of each shard in it.
    tickets: Vec<(u16, Ticket)>,
    unlinks: Vec<LargeId>,
    end: Place,
}

#[derive(Debug, Default)]
struct Shard {
    submitted: Ticket,
    durable: Ticket,
    told: Ticket,
    events: Vec<Event>,
    recovered: VecDeque<Recovered>,
    woken: bool,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Block,
    Supply(Part),
    Checkpoint,
    Large(LargeId, Done),
    Remove,
    /// `again`: it failed before.
    Read {
        job: u64,
        read: usize,
        again: bool,
    },
    LargeRead {
        shard: u16,
        load: LoadLarge,
        again: bool,
    },
}

#[derive(Debug)]
struct Running {
    work: Work,
    verb: &'static str,
    subject: Subject,
}

/// Where a log begins: what a start has found and made.
pub(crate) struct Beginning {
    pub(crate) store: [u8; 16],
    pub(crate) run: u32,
    pub(crate) started_at_ms: u64,
    pub(crate) now: Now,
    pub(crate) next_block: u64,
    pub(crate) chain: u32,
    pub(crate) active: Segment,
    pub(crate) segments: BTreeMap<u32, Kept>,
    pub(crate) supply: Supply,
    pub(crate) checkpoints: Checkpointer,
    pub(crate) index: Index,
    pub(crate) recovered: Vec<Vec<Recovered>>,
}

/// See the file's head.
pub struct Log {
    store: [u8; 16],
    run: u32,
    started_at_ms: u64,
    started_mono_us: u64,
    shards: Vec<Shard>,
    wakes: Vec<ShardId>,

    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    waiting_urgent: usize,
    unflushed: u64,
    flights: VecDeque<Flight>,
    closing: bool,

    next_block: u64,
    chain: u32,
    durable: u64,
    durable_end: Place,
    /// The last block holds nothing: there is nothing left to prove.
    proved: bool,
    /// The last block ends the run in order.
    stopped: bool,
    /// The block to come needs a segment with this much room, and none is ready.
    blocked: Option<u64>,
    /// The file system was full when it was last asked for room: for the next segment, for a large message. Shards know it.
    full: (bool, bool),
    /// The side lane may have work.
    side: bool,
    quiet_since_us: u64,
    usual_flush_us: u64,
    active: Segment,
    supply: Supply,
    /// All segments in use, the active one among them.
    segments: BTreeMap<u32, Kept>,
    checkpoints: Checkpointer,
    /// The side lane's next step is a checkpoint's, if it has one: turn and turn about.
    checkpoint_next: bool,

    index: Index,
    large: LargeFiles,
    removals: VecDeque<LargeId>,
    jobs: BTreeMap<u64, LoadJob>,
    next_job: u64,
    reads: VecDeque<(Work, DiskOp)>,
    /// Loads that wait until all blocks up to the number are durable.
    parked: VecDeque<(u64, u16, Load)>,

    running: BTreeMap<IoId, Running>,
    next_io: u64,
    failed: Option<Failure>,
    status: StoreStatus,
}

impl Log {
    pub(crate) fn new(begin: Beginning) -> Log {
        let shards = begin.recovered.into_iter().map(|r| Shard { recovered: r.into(), ..Shard::default() }).collect();
        let status = StoreStatus {
            segments: begin.segments.len() as u64,
            segment_bytes: begin.segments.values().map(|kept| kept.size).sum(),
            ..StoreStatus::default()
        };
        Log {
            store: begin.store,
            run: begin.run,
            started_at_ms: begin.started_at_ms,
            started_mono_us: begin.now.mono_us,
            shards,
            wakes: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_urgent: 0,
            unflushed: 0,
            flights: VecDeque::new(),
            closing: false,
            next_block: begin.next_block,
            chain: begin.chain,
            durable: begin.next_block - 1,
            durable_end: Place { segment: begin.active.id, offset: begin.active.offset as u32 },
            proved: false,
            stopped: false,
            blocked: None,
            full: (false, false),
            side: true,
            quiet_since_us: begin.now.mono_us,
            usual_flush_us: 500,
            active: begin.active,
            supply: begin.supply,
            segments: begin.segments,
            checkpoints: begin.checkpoints,
            checkpoint_next: false,
            index: begin.index,
            large: LargeFiles::default(),
            removals: VecDeque::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            reads: VecDeque::new(),
            parked: VecDeque::new(),
            running: BTreeMap::new(),
            next_io: 0,
            failed: None,
            status,
        }
    }

    /// The number of this start of the store.
    pub fn run(&self) -> u64 {
        u64::from(self.run)
    }

    /// The store's identity, drawn when it was made.
    pub fn store(&self) -> [u8; 16] {
        self.store
    }

    /// Broker time at this start, ms.
    pub fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    /// The ticket of a shard's next batch.
    pub fn next_ticket(&self, shard: ShardId) -> Ticket {
        self.shards[usize::from(shard.0)].submitted.next()
    }

    /// Takes a shard's batch. It becomes durable in the order of all submissions.
    ///
    /// # Panics
    /// When it refers to a large message that is still being written: what it confirms could be lost.
    pub fn submit(&mut self, shard: ShardId, mut batch: Encoded, now: Now) -> Ticket {
        let state = &mut self.shards[usize::from(shard.0)];
        let ticket = state.submitted.next();
        state.submitted = ticket;
        if self.failed.is_some() {
            return ticket;
        }
        for id in &batch.large {
            assert!(!self.large.under_way(*id), "an Enqueue refers to large message {:x} before it is synced", id.0);
        }
        batch.stamp(shard.0, ticket.0);
        let bytes = batch.bytes() as u64;
        self.status.content_bytes += u64::from(batch.content);
        self.waiting_bytes += bytes;
        self.unflushed += bytes;
        self.waiting_urgent += usize::from(batch.urgent);
        self.waiting.push_back(Waiting { shard: shard.0, ticket, batch, at_us: now.mono_us });
        ticket
    }

    /// Takes a step in the life of a large message's file.
    pub fn large(&mut self, shard: ShardId, op: LargeOp) {
        if self.failed.is_none() {
            self.large.step(shard.0, op);
            self.side = true;
        }
    }

    /// Takes a request for bodies.
    pub fn load(&mut self, shard: ShardId, load: Load) {
        if self.failed.is_none() {
            self.plan_load(shard.0, load);
        }
    }

    /// Takes a request for a part of a large message.
    pub fn load_large(&mut self, shard: ShardId, load: LoadLarge) {
        if self.failed.is_none() {
            self.read_large(shard.0, load, false);
        }
    }

    /// Appends what has happened for a shard since the last call.
    pub fn poll(&mut self, shard: ShardId, out: &mut Vec<Event>) {
        let state = &mut self.shards[usize::from(shard.0)];
        state.woken = false;
        if state.durable > state.told {
            state.told = state.durable;
            out.push(Event::Durable { up_to: state.durable });
        }
        out.append(&mut state.events);
    }

    /// Appends at most `limit` things recovered for a shard; false when there is nothing more.
    pub fn recover(&mut self, shard: ShardId, limit: usize, out: &mut Vec<Recovered>) -> bool {
        let recovered = &mut self.shards[usize::from(shard.0)].recovered;
        out.extend(recovered.drain(..limit.min(recovered.len())));
        if recovered.is_empty() {
            *recovered = VecDeque::new();
        }
        !recovered.is_empty()
    }

    /// Shards that have got something to poll since the last call; to be woken outside the lock.
    pub fn take_wakes(&mut self, out: &mut Vec<ShardId>) {
        out.append(&mut self.wakes);
    }

    /// Bytes submitted and not yet durable.
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed
    }

    /// Figures for operators.
    pub fn status(&self) -> StoreStatus {
        StoreStatus { durable_block: self.durable, ..self.status }
    }

    /// Why the log has ended, if it has.
    pub fn failed(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// An orderly stop: nothing waits for company any more, a block that says so follows the last one, and a checkpoint that.
    pub fn close(&mut self) {
        self.closing = true;
        self.proved = false;
        self.side = true;
    }

    /// Whether all that was submitted is durable (after [`Log::close`]: and proved, and in a checkpoint), or never will be.
    pub fn settled(&self) -> bool {
        let idle = self.waiting.is_empty() && self.flights.is_empty();
        let closed = !self.closing || (self.proved && !self.checkpoints.keeps_stop());
        (idle && closed) || self.failed.is_some()
    }

    /// Whether a stop in order has nothing left to do but its checkpoint.
    fn stopping(&self) -> bool {
        self.closing && self.proved && self.waiting.is_empty() && self.flights.is_empty()
    }

    /// Whether nothing waits and nothing is being flushed.
    pub fn idle(&self) -> bool {
        self.waiting.is_empty() && self.flights.iter().all(|f| f.done)
    }

    /// Whether everything that shards asked for is done and told: batches, loads, large messages.
    pub fn quiet(&self) -> bool {
        let nothing = self.idle() && self.jobs.is_empty() && self.reads.is_empty() && self.parked.is_empty();
        let large = self.large.quiet() && self.removals.is_empty();
        let large = large && !self.index.is_behind();
        let running = self.running.values().all(|r| matches!(r.work, Work::Supply(_) | Work::Checkpoint | Work::Block));
        (nothing && large && running) || self.failed.is_some()
    }

    /// Whether blocks handed out have left something for [`Log::catch_up`].
    pub fn is_behind(&self) -> bool {
        self.failed.is_none() && self.index.is_behind()
    }

    /// Takes in more of what transactions did that blocks have decided, [`Options::slice_operations`] at most; to be called, with the
    /// lock given back in between, as long as [`Log::is_behind`], for no further block is built before.
    pub fn catch_up(&mut self) {
        if !self.is_behind() {
            return;
        }
        let mut unlinks = Vec::new();
        self.index.catch_up(self.index.slice(), &mut unlinks).expect("what was just encoded can be read");
        match self.flights.back_mut() {
            // It is the last block that has decided; files go when that is safe.
            Some(flight) => flight.unlinks.extend(unlinks),
            None => {
                self.side |= !unlinks.is_empty();
                self.removals.extend(unlinks);
            }
        }
        if !self.index.is_behind() {
            self.side = true;
            self.unpark();
        }
    }

    /// Whether a flusher would get work now.
    pub fn flush_due(&self, now: Now) -> bool {
        if self.failed.is_some() || self.blocked.is_some() || self.index.is_behind() {
            return false;
        }
        let us = now.mono_us;
        let mut under_way = self.flights.iter().filter(|f| !f.done);
        match (under_way.next(), under_way.next()) {
            (None, _) => match self.waiting.front() {
                Some(first) => {
                    self.waiting_urgent > 0
                        || self.closing
                        || self.waiting_bytes >= BLOCK_BYTES
                        || first.at_us + LAZY_US <= us
                }
                None => {
                    let proof = !self.proved && (self.closing || self.quiet_since_us + IDLE_US <= us);
                    proof || self.acquittal_us().is_some_and(|at| at <= us)
                }
            },
            (Some(first), None) => {
                self.waiting_bytes >= OVERLAP_BYTES
                    || (self.waiting_urgent > 0 && first.started_us + OVERLAP_AGE * self.usual_flush_us <= us)
            }
            _ => false,
        }
    }

    /// When an otherwise idle log writes a block for the sake of its time, monotonic µs: a start knows the time of a crash from
    /// the last block alone, and so long after an exact mark a crash is not blamed on what was marked.
    fn acquittal_us(&self) -> Option<u64> {
        let since_start_ms = self.index.acquittal_ms()?.saturating_sub(self.started_at_ms);
        self.started_mono_us.checked_add(since_start_ms.checked_mul(1000)?)
    }

    /// The next operation of a lane, if there is one.
    pub fn next_io(&mut self, lane: Lane, now: Now) -> Option<(IoId, DiskOp)> {
        if self.failed.is_some() {
            return None;
        }
        let (work, op) = match lane {
            Lane::Flush => (Work::Block, self.next_block_io(now)?),
            Lane::Side => {
                let next = self.next_side_io(now);
                self.side = next.is_some();
                next?
            }
            Lane::Read => self.reads.pop_front()?,
        };
        self.next_io += 1;
        let id = IoId(self.next_io);
        if let Work::Block = work {
            self.flights.back_mut().expect("a block was just begun").io = id;
        }
        self.running.insert(id, Running { work, verb: op.verb(), subject: op.subject() });
        Some((id, op))
    }

    /// Whether the side lane may have got work since it last had none.
    pub fn side_due(&self) -> bool {
        self.side && self.failed.is_none()
    }

    /// Whether there is something to read.
    pub fn read_due(&self) -> bool {
        !self.reads.is_empty()
    }

    /// When a lane will have something to do that it has not now, in monotonic µs.
    pub fn next_deadline(&self, lane: Lane) -> Option<u64> {
        if self.failed.is_some() {
            return None;
        }
        match lane {
            Lane::Side => {
                let parts = [self.supply.next_deadline(), self.large.next_deadline(), self.checkpoints.next_deadline()];
                parts.into_iter().flatten().min()
            }
            Lane::Read => None,
            Lane::Flush if self.blocked.is_some() => None,
            Lane::Flush => {
                let mut under_way = self.flights.iter().filter(|f| !f.done);
                match (under_way.next(), self.waiting.front()) {
                    (None, Some(first)) => Some(first.at_us + LAZY_US),
                    (None, None) => {
                        let proof = (!self.proved).then_some(self.quiet_since_us + IDLE_US);
                        [proof, self.acquittal_us()].into_iter().flatten().min()
                    }
                    (Some(flight), Some(_)) if self.waiting_urgent > 0 && under_way.next().is_none() => {
                        Some(flight.started_us + OVERLAP_AGE * self.usual_flush_us)
                    }
                    _ => None,
                }
            }
        }
    }

    fn next_side_io(&mut self, now: Now) -> Option<(Work, DiskOp)> {
        if let Some(room) = self.blocked {
            self.supply.want(room, self.next_block, now.mono_us);
        } else if self.active.half_full() {
            self.supply.want(block::UNIT, self.next_block, now.mono_us);
        }
        // What flushes wait for comes first; then checkpoints and all else, turn and turn about.
        if self.blocked.is_none()
            && std::mem::take(&mut self.checkpoint_next)
            && let Some(op) = self.next_checkpoint_io(now)
        {
            return Some((Work::Checkpoint, op));
        }
        self.checkpoint_next = true;
        if let Some((id, op)) = self.large.next_io(&self.store, now.mono_us) {
            return Some((Work::Large(id, Done::of(&op)), op));
        }
        if let Some(id) = self.removals.pop_front() {
            return Some((Work::Remove, DiskOp::Unlink { name: FileName::Large(id.0) }));
        }
        if let Some((part, op)) = self.supply.next_io(now.mono_us) {
            return Some((Work::Supply(part), op));
        }
        self.next_checkpoint_io(now).map(|op| (Work::Checkpoint, op))
    }

    fn next_checkpoint_io(&mut self, now: Now) -> Option<DiskOp> {
        let pressed = self.blocked.is_some() && self.supply.full();
        let due = self.checkpoints.due(now.mono_us, self.stopping())
            || (pressed && self.checkpoints.pressed(now.mono_us, &self.segments));
        // It stands for whole blocks.
        if due && !self.index.is_behind() {
            let moment = Moment {
                store: self.store,
                run: self.run,
                block: self.next_block - 1,
                chain: self.chain,
                place: Place { segment: self.active.id, offset: self.active.offset as u32 },
                broker_ms: self.broker_ms(now),
                wall_ms: now.wall_ms,
                stopped: self.stopped,
            };
            self.checkpoints.begin(moment, &mut self.index, now.mono_us);
        }
        self.checkpoints.next_io(&mut self.index, &self.segments, self.next_block, self.durable)
    }

    /// Gives back the segments that a checkpoint does not need and that no newer one does either.
    fn free_segments(&mut self, checkpoint: &Summary) {
        let needed = |id: u32| {
            checkpoint.needs(id) || self.index.live_in(id) > 0 || self.jobs.values().any(|job| job.reads_from(id))
        };
        let free: Vec<u32> = self.segments.keys().copied().filter(|id| !needed(*id)).collect();
        for id in &free {
            let kept = self.segments.remove(id).expect("it was just found");
            self.status.segments -= 1;
            self.status.segment_bytes -= kept.size;
            self.supply.covers(checkpoint.block);
            self.supply.give_back(*id, kept.size);
        }
        if !free.is_empty() {
            self.supply.end_give_back();
        }
    }

    fn broker_ms(&self, now: Now) -> u64 {
        self.started_at_ms + now.mono_us.saturating_sub(self.started_mono_us) / 1000
    }

    /// Builds the block that a flusher may write now.
    fn next_block_io(&mut self, now: Now) -> Option<DiskOp> {
        if !self.flush_due(now) {
            return None;
        }
        let (mut count, mut meta, mut length) = (0usize, 0usize, HEADER as u64);
        let limit = BLOCK_BYTES.min(self.supply.room());
        for waiting in &self.waiting {
            let bytes = waiting.batch.bytes() as u64;
            if count > 0 && length + bytes > limit {
                break;
            }
            count += 1;
            meta += waiting.batch.meta.len();
            length += bytes;
        }
        let stop = count == 0 && self.closing;
        let stop_record = if stop { stop_meta() } else { Vec::new() };
        meta += stop_record.len();
        length += stop_record.len() as u64;
        let room = block::padded(length);
        if self.active.offset + room > self.active.size {
            match self.supply.take(room) {
                Some(segment) => {
                    let Segment { size, salt, .. } = segment;
                    if let Some(before) = self.segments.get_mut(&self.active.id) {
                        before.end = self.next_block;
                    }
                    self.segments.insert(segment.id, Kept { size, salt, end: u64::MAX });
                    self.active = segment;
                    self.status.segments += 1;
                    self.status.segment_bytes += segment.size;
                }
                None => {
                    self.blocked = Some(room);
                    self.side = true;
                    return None;
                }
            }
        }
        let mut head = Vec::with_capacity(HEADER + meta);
        head.resize(HEADER, 0);
        let mut pieces = Vec::with_capacity(2 + count);
        pieces.push(Bytes::new());
        let mut tickets: Vec<(u16, Ticket)> = Vec::new();
        for waiting in self.waiting.drain(..count) {
            head.extend_from_slice(&waiting.batch.meta);
            pieces.extend(waiting.batch.pieces.into_iter().filter(|p| !p.is_empty()));
            self.waiting_urgent -= usize::from(waiting.batch.urgent);
            match tickets.iter_mut().find(|(shard, _)| *shard == waiting.shard) {
                Some((_, ticket)) => *ticket = waiting.ticket,
                None => tickets.push((waiting.shard, waiting.ticket)),
            }
        }
        let bytes = length - HEADER as u64 - stop_record.len() as u64;
        head.extend_from_slice(&stop_record);
        self.waiting_bytes -= bytes;
        let number = self.next_block;
        let broker_ms = self.broker_ms(now);
        let header = BlockHeader {
            run: self.run,
            number,
            durable: self.durable,
            broker_ms,
            wall_ms: now.wall_ms,
            length: u32::try_from(length).expect("a batch is limited to 2 GiB"),
            meta: meta as u32,
            count: count as u32,
            previous: self.chain,
        };
        self.chain = block::finish(&mut head, &header, self.active.salt);
        let offset = self.active.offset;
        let content = Place { segment: self.active.id, offset: (offset + (HEADER + meta) as u64) as u32 };
        let mut unlinks = Vec::new();
        self.index.apply(&head[HEADER..], content, &mut unlinks).expect("what was just encoded can be read");
        pieces[0] = Bytes::from(head);
        pieces.extend(block::padding(length));
        self.active.offset += room;
        self.checkpoints.block(room, count > 0);
        self.side |= (self.active.half_full() && self.supply.idle()) || self.checkpoints.due(now.mono_us, false);
        self.next_block += 1;
        self.proved = count == 0;
        self.stopped = stop;
        self.index.acquit(broker_ms);
        self.status.written_bytes += room;
        self.flights.push_back(Flight {
            io: IoId(0),
            number,
            bytes,
            started_us: now.mono_us,
            done: false,
            tickets,
            unlinks,
            end: Place { segment: self.active.id, offset: self.active.offset as u32 },
        });
        Some(DiskOp::Write { name: FileName::Segment(self.active.id), offset, pieces, sync: true })
    }

    /// An operation has ended.
    pub fn on_io(&mut self, id: IoId, result: IoResult, now: Now) {
        let Some(Running { work, verb, subject }) = self.running.remove(&id) else { return };
        if self.failed.is_some() {
            return;
        }
        self.side |= !matches!(work, Work::Block | Work::Read { .. } | Work::LargeRead { .. });
        let failed = match work {
            Work::Block => match result {
                Ok(_) => {
                    self.block_done(id, now);
                    None
                }
                Err(error) => Some(error),
            },
            Work::Supply(part) => {
                let failed = self.supply.on_io(part, result, now.mono_us).err();
                if self.supply.ready() {
                    self.blocked = None;
                }
                // An attempt under way says nothing yet.
                if self.supply.full() || self.supply.ready() {
                    self.space((self.supply.full(), self.full.1));
                }
                failed
            }
            Work::Checkpoint => match self.checkpoints.on_io(result, &mut self.index, now.mono_us) {
                Ok(before) => {
                    if let Some(before) = before {
                        self.free_segments(&before);
                    }
                    None
                }
                Err(error) => Some(error),
            },
            Work::Large(file, done) => match self.large.on_io(file, done, result, now.mono_us) {
                Ok(event) => {
                    // Only what needed room and found it says that there is some.
                    if self.large.full() || matches!(event, Some((_, Event::LargeWritten { .. }))) {
                        self.space((self.full.0, self.large.full()));
                    }
                    if let Some((shard, event)) = event {
                        self.tell(shard, event);
                    }
                    None
                }
                Err(error) => Some(error),
            },
            Work::Remove => result.err(),
            // What fails once is asked for once more: the cable, not the platter. What comes and is wrong would come again.
            Work::Read { job, read, again: false } if result.is_err() => {
                let op = self.jobs[&job].op(read);
                self.reads.push_back((Work::Read { job, read, again: true }, op));
                None
            }
            Work::Read { job, read, .. } => {
                self.read_done(job, read, result);
                None
            }
            Work::LargeRead { shard, load, again: false } if result.is_err() => {
                self.read_large(shard, load, true);
                None
            }
            Work::LargeRead { shard, load, .. } => {
                let bytes = match result {
                    Ok(IoDone::Read(bytes)) => large::extract(load.id, load.offset, load.length, bytes),
                    _ => None,
                };
                self.tell(shard, Event::LargeLoaded { token: load.token, bytes });
                None
            }
        };
        if let Some(error) = failed {
            self.fail(verb, subject, &error);
        }
    }

    fn block_done(&mut self, id: IoId, now: Now) {
        let flight = self.flights.iter_mut().find(|f| f.io == id).expect("a running block has its flight");
        flight.done = true;
        let took = now.mono_us.saturating_sub(flight.started_us);
        self.status.flushes += 1;
        self.status.flush_us_total += took;
        self.status.flush_us_max = self.status.flush_us_max.max(took);
        self.usual_flush_us = (self.usual_flush_us * 7 + took) / 8;
        self.quiet_since_us = now.mono_us;
        while self.flights.front().is_some_and(|f| f.done) {
            let flight = self.flights.pop_front().expect("there is a front");
            self.durable = flight.number;
            self.durable_end = flight.end;
            self.unflushed -= flight.bytes;
            self.side |= !flight.unlinks.is_empty();
            self.removals.extend(flight.unlinks);
            for (shard, ticket) in flight.tickets {
                self.shards[usize::from(shard)].durable = ticket;
                self.wake(shard);
            }
        }
        self.side |= self.checkpoints.busy() || self.stopping();
        self.unpark();
    }

    /// Goes on with loads whose blocks are durable and taken in.
    fn unpark(&mut self) {
        while !self.index.is_behind() && self.parked.front().is_some_and(|(block, ..)| *block <= self.durable) {
            let (_, shard, load) = self.parked.pop_front().expect("there is a front");
            self.plan_load(shard, load);
        }
    }

    fn read_large(&mut self, shard: u16, load: LoadLarge, again: bool) {
        let op = large::read_op(load.id, load.offset, load.length);
        self.reads.push_back((Work::LargeRead { shard, load, again }, op));
    }

    fn plan_load(&mut self, shard: u16, load: Load) {
        let gone = self.waiting_acknowledgements(load.queue);
        let entries = self.index.find(&load, |sequence| gone.iter().any(|r| r.0 <= sequence && sequence <= r.1));
        if entries.iter().any(|e| !self.durable_end.covers(e.place)) || self.index.is_behind_in(load.queue) {
            // Being written: readable once it is safe. Or being taken in.
            self.parked.push_back((self.next_block - 1, shard, load));
            return;
        }
        let (job, ops) = LoadJob::new(shard, load, entries);
        if job.done() {
            self.tell(shard, job.finish());
            return;
        }
        let id = self.next_job;
        self.next_job += 1;
        self.jobs.insert(id, job);
        let reads = ops.into_iter().enumerate().map(|(read, op)| (Work::Read { job: id, read, again: false }, op));
        self.reads.extend(reads);
    }

    /// Ranges of a queue that batches acknowledge which are in no block yet.
    fn waiting_acknowledgements(&self, queue: QueueId) -> Vec<(Sequence, Sequence)> {
        let mut gone = Vec::new();
        for waiting in &self.waiting {
            let mut records = Records::new(&waiting.batch.meta);
            while let Ok(Some(record)) = records.next() {
                match record {
                    Record::Acknowledge { queue: q, ranges } if q == queue => gone.extend(ranges),
                    Record::Transaction(record) => {
                        gone.extend(record.removed(queue).map(|sequence| (sequence, sequence)))
                    }
                    _ => {}
                }
            }
        }
        gone
    }

    fn read_done(&mut self, id: u64, read: usize, result: IoResult) {
        let bytes = match result {
            Ok(IoDone::Read(bytes)) => Some(bytes),
            _ => None,
        };
        let job = self.jobs.get_mut(&id).expect("a job is kept until its last read");
        if job.on_read(read, bytes) {
            let job = self.jobs.remove(&id).expect("it was just used");
            let shard = job.shard;
            self.tell(shard, job.finish());
        }
    }

    /// What is known of the room in the file system; shards hear when it changes.
    fn space(&mut self, full: (bool, bool)) {
        let (before, now) = (self.full.0 || self.full.1, full.0 || full.1);
        self.full = full;
        if before != now {
            for shard in 0..self.shards.len() as u16 {
                self.tell(shard, Event::Space { full: now });
            }
        }
    }

    fn tell(&mut self, shard: u16, event: Event) {
        self.shards[usize::from(shard)].events.push(event);
        self.wake(shard);
    }

    fn wake(&mut self, shard: u16) {
        let state = &mut self.shards[usize::from(shard)];
        if !state.woken {
            state.woken = true;
            self.wakes.push(ShardId(shard));
        }
    }

    fn fail(&mut self, verb: &str, subject: Subject, error: &IoError) {
        let failure = Failure { what: format!("the disk failed to {verb} {subject}: {}", error.text) };
        self.failed = Some(failure.clone());
        self.index.watch(false);
        self.waiting.clear();
        self.reads.clear();
        self.parked.clear();
        self.jobs.clear();
        for shard in 0..self.shards.len() as u16 {
            self.tell(shard, Event::Failed(failure.clone()));
        }
    }
}
