//! The store in memory: the reference model of what the other stores promise, for tests and simulations.
//!
//! One [`Memory`] is the store, with a [`MemoryStore`] handle for each shard. Batches become durable when the test says so, or
//! at once. A crash keeps what is durable and, of the rest, any prefix of each shard's batches.
#![expect(clippy::disallowed_types, reason = "the handles of all shards and the test share one store, on one thread")]

use crate::image::Image;
use crate::{Batch, Event, Failure, LargeOp, Load, LoadLarge, Op, Recovered, Remember, Store, StoreStatus, Ticket};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::RefCell;
use packhorse_model::{BrokerId, EntryKey, ShardId};

/// A batch that is not durable.
#[derive(Debug)]
struct Waiting {
    /// Order over all shards.
    number: u64,
    ops: Vec<Op>,
    pieces: Vec<Bytes>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Shard {
    submitted: Ticket,
    durable: Ticket,
    waiting: VecDeque<Waiting>,
    events: Vec<Event>,
    /// Large messages that are safe once the disk is waited for.
    syncing: Vec<Event>,
    /// Parts of large messages that are held back.
    parts: Vec<Event>,
    recovered: Option<Cursor>,
    /// Branches and what is remembered, as far as it is not told yet.
    doubt: VecDeque<Recovered>,
}

/// How far a shard's recovery has come.
#[derive(Clone, Copy, Debug)]
enum Cursor {
    Queues(usize),
    Entries(Option<EntryKey>),
    /// What there is of transactions, in the shard's `doubt`.
    Transactions,
}

#[derive(Debug)]
struct World {
    image: Image,
    shards: Vec<Shard>,
    submitted: u64,
    auto: bool,
    hold_parts: bool,
    hold_files: bool,
    failed: bool,
    broker: BrokerId,
    run: u64,
    started_at_ms: u64,
    now_ms: u64,
    status: StoreStatus,
}

/// The store itself: what a test holds. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct Memory {
    world: Rc<RefCell<World>>,
}

/// One shard's handle.
#[derive(Debug)]
pub struct MemoryStore {
    world: Rc<RefCell<World>>,
    shard: usize,
}

impl Memory {
    /// A new store without any queue, at its first start, for this many shards. `auto`: what is submitted is durable at
    /// once; otherwise [`Memory::flush`] makes it so.
    pub fn new(shards: u16, auto: bool) -> Memory {
        Memory::remembering(shards, auto, Remember::default())
    }

    /// The same, and it remembers so much of what is completed.
    pub fn remembering(shards: u16, auto: bool, remember: Remember) -> Memory {
        let mut image = Image::new(remember);
        image.start(None, 0);
        Memory::over(image, shards, auto, 1, 0)
    }

    fn over(image: Image, shards: u16, auto: bool, run: u64, started_at_ms: u64) -> Memory {
        let shards = (0..shards).map(|_| Shard::default()).collect();
        let world = World {
            image,
            shards,
            submitted: 0,
            auto,
            hold_parts: false,
            hold_files: false,
            failed: false,
            broker: BrokerId(*b"memory of broker"),
            run,
            started_at_ms,
            now_ms: started_at_ms,
            status: StoreStatus::default(),
        };
        Memory { world: Rc::new(RefCell::new(world)) }
    }

    /// The handle of a shard.
    pub fn handle(&self, shard: ShardId) -> MemoryStore {
        MemoryStore { world: self.world.clone(), shard: usize::from(shard.0) }
    }

    /// Whether what is submitted from now on is durable at once.
    pub fn set_auto(&self, auto: bool) {
        self.world.borrow_mut().auto = auto;
    }

    /// Whether parts of large messages that are asked for come only when this is called with `false`, in the order of asking.
    pub fn hold_parts(&self, hold: bool) {
        let mut world = self.world.borrow_mut();
        world.hold_parts = hold;
        for shard in world.shards.iter_mut().filter(|_| !hold) {
            shard.events.append(&mut shard.parts);
        }
    }

    /// Whether files of large messages are safe only when this is called with `false`, whatever else is durable.
    pub fn hold_files(&self, hold: bool) {
        let mut world = self.world.borrow_mut();
        world.hold_files = hold;
        for shard in world.shards.iter_mut().filter(|_| !hold) {
            shard.events.append(&mut shard.syncing);
        }
    }

    /// Batches submitted so far, of all shards.
    pub fn submitted(&self) -> u64 {
        self.world.borrow().submitted
    }

    /// Makes up to `count` more batches of a shard durable; how many it were.
    pub fn flush(&self, shard: ShardId, count: usize) -> usize {
        self.world.borrow_mut().flush(usize::from(shard.0), count)
    }

    /// Makes everything durable that was submitted.
    pub fn flush_all(&self) {
        let mut world = self.world.borrow_mut();
        for shard in 0..world.shards.len() {
            world.flush(shard, usize::MAX);
        }
    }

    /// The store fails: nothing more becomes durable, and every shard is told.
    pub fn fail(&self, what: &str) {
        let mut world = self.world.borrow_mut();
        world.failed = true;
        for shard in &mut world.shards {
            shard.events.push(Event::Failed(Failure { what: String::from(what) }));
        }
    }

    /// Files of large messages, whole or not.
    pub fn large_files(&self) -> usize {
        self.world.borrow().image.large_files()
    }

    /// Parts of transactions of which something went ahead, and nothing is decided.
    pub fn parts_ahead(&self) -> usize {
        self.world.borrow().image.parts_ahead()
    }

    /// From now on no file of a large message has more bytes of content than this; 0: they are gone.
    pub fn cut_large_files(&self, length: usize) {
        self.world.borrow_mut().image.cut_large_files(length);
    }

    /// Broker time, which the next start continues.
    pub fn set_broker_time_ms(&self, now_ms: u64) {
        self.world.borrow_mut().now_ms = now_ms;
    }

    /// What is left after a crash, started again with this many shards. Of the batches that are not durable each shard
    /// keeps a prefix, which the seed chooses. Handles of this store stay what they were; they belong to a dead process.
    pub fn crash(&self, shards: u16, seed: u64) -> Memory {
        let crashed_ms = self.world.borrow().now_ms;
        self.end(shards, seed, Some(crashed_ms))
    }

    fn end(&self, shards: u16, seed: u64, crashed_ms: Option<u64>) -> Memory {
        let world = self.world.borrow();
        let mut image = world.image.clone();
        let mut kept: Vec<&Waiting> = Vec::new();
        for (index, shard) in world.shards.iter().enumerate() {
            let draw = mix(seed.wrapping_add(index as u64)) as usize % (shard.waiting.len() + 1);
            kept.extend(shard.waiting.iter().take(draw));
        }
        kept.sort_by_key(|waiting| waiting.number);
        for waiting in kept {
            image.apply(&waiting.ops, &waiting.pieces);
        }
        image.start(crashed_ms, world.now_ms);
        Memory::over(image, shards, world.auto, world.run + 1, world.now_ms)
    }

    /// An orderly stop, and a start with this many shards.
    pub fn restart(&self, shards: u16) -> Memory {
        self.flush_all();
        self.end(shards, 0, None)
    }
}

impl World {
    fn flush(&mut self, shard: usize, count: usize) -> usize {
        if self.failed {
            return 0;
        }
        let hold = self.hold_files;
        let mut synced = if hold { Vec::new() } else { core::mem::take(&mut self.shards[shard].syncing) };
        self.shards[shard].events.append(&mut synced);
        let mut flushed = 0;
        while flushed < count
            && let Some(waiting) = self.shards[shard].waiting.pop_front()
        {
            self.image.apply(&waiting.ops, &waiting.pieces);
            self.shards[shard].durable = self.shards[shard].durable.next();
            self.status.written_bytes += waiting.bytes;
            flushed += 1;
        }
        if flushed > 0 {
            self.status.flushes += 1;
            self.status.durable_block += 1;
            let up_to = self.shards[shard].durable;
            match self.shards[shard].events.last_mut() {
                Some(Event::Durable { up_to: last }) => *last = up_to,
                _ => self.shards[shard].events.push(Event::Durable { up_to }),
            }
        }
        flushed
    }
}

/// Spreads a seed over 64 bits (the finalizer of SplitMix64).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Store for MemoryStore {
    fn next_ticket(&self) -> Ticket {
        self.world.borrow().shards[self.shard].submitted.next()
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        let mut world = self.world.borrow_mut();
        let bytes = batch.content_bytes() as u64;
        let (ops, pieces) = batch.into_parts();
        world.submitted += 1;
        world.status.content_bytes += bytes;
        let number = world.submitted;
        let shard = &mut world.shards[self.shard];
        shard.submitted = shard.submitted.next();
        shard.waiting.push_back(Waiting { number, ops, pieces, bytes });
        let ticket = shard.submitted;
        if world.auto {
            world.flush(self.shard, usize::MAX);
        }
        ticket
    }

    fn large(&mut self, op: LargeOp) {
        let mut world = self.world.borrow_mut();
        if world.failed {
            return;
        }
        let (length, at_once) = (world.image.large(&op), world.auto && !world.hold_files);
        let shard = &mut world.shards[self.shard];
        let events = &mut shard.events;
        match (op, length) {
            (LargeOp::Chunk { id, .. }, Some(written)) => events.push(Event::LargeWritten { id, written }),
            (LargeOp::End { id }, Some(length)) if at_once => events.push(Event::LargeSynced { id, length }),
            // The disk takes its time here too: told with the next flush.
            (LargeOp::End { id }, Some(length)) => shard.syncing.push(Event::LargeSynced { id, length }),
            (LargeOp::Begin { .. } | LargeOp::Abort { .. }, _) | (_, None) => {}
        }
    }

    fn load(&mut self, load: Load) {
        let mut world = self.world.borrow_mut();
        let loaded = world.image.load(load);
        world.shards[self.shard].events.push(Event::Loaded(Box::new(loaded)));
    }

    fn load_large(&mut self, load: LoadLarge) {
        let mut world = self.world.borrow_mut();
        let bytes = world.image.read_large(load.id, load.offset, load.length);
        let hold = world.hold_parts;
        let shard = &mut world.shards[self.shard];
        let out = if hold { &mut shard.parts } else { &mut shard.events };
        out.push(Event::LargeLoaded { token: load.token, bytes });
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.world.borrow_mut().shards[self.shard].events);
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let shards = world.shards.len() as u16;
        let owned = |queue: packhorse_model::QueueId| usize::from(queue.owner(shards).0) == self.shard;
        let mut cursor = world.shards[self.shard].recovered.unwrap_or(Cursor::Queues(0));
        let end = out.len() + limit;
        let mut more = true;
        while more && out.len() < end {
            cursor = match cursor {
                Cursor::Queues(at) => {
                    let before = out.len();
                    out.extend(world.image.recover_queues().into_iter().skip(at).take(end - before));
                    if out.len() == before { Cursor::Entries(None) } else { Cursor::Queues(at + out.len() - before) }
                }
                Cursor::Entries(after) => match world.image.recover_after(after, owned) {
                    Some(entry) => {
                        let key = entry.key;
                        out.push(Recovered::Entry(Box::new(entry)));
                        Cursor::Entries(Some(key))
                    }
                    None => {
                        world.shards[self.shard].doubt = world.image.recover_transactions(owned, self.shard == 0);
                        Cursor::Transactions
                    }
                },
                Cursor::Transactions => {
                    let thing = world.shards[self.shard].doubt.pop_front();
                    more = thing.is_some();
                    out.extend(thing);
                    cursor
                }
            };
        }
        world.shards[self.shard].recovered = Some(cursor);
        more
    }

    fn broker(&self) -> BrokerId {
        self.world.borrow().broker
    }

    fn run(&self) -> u64 {
        self.world.borrow().run
    }

    fn started_at_ms(&self) -> u64 {
        self.world.borrow().started_at_ms
    }

    fn unflushed_bytes(&self) -> u64 {
        self.world.borrow().shards.iter().flat_map(|s| &s.waiting).map(|w| w.bytes).sum()
    }

    fn status(&self) -> StoreStatus {
        self.world.borrow().status
    }
}
