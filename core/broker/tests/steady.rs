//! A steady flow costs the broker no allocation per message: bytes of a producer in, confirms out, deliveries out,
//! acknowledgements in, over the journal. Shown with an allocator that counts while the shard is at work.
//!
//! Its own test binary, with one test, so that no other test's allocations are counted.
#![expect(unsafe_code, reason = "only an implementation of GlobalAlloc can count allocations")]

use bytes::Bytes;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, DeliveryState, Open, Role, SaslCode, SenderSettleMode, Source, Target,
};
use packhorse_amqp10::engine::{ClientConfig, Connection, Event, Input as Bytes10, LinkId, Piece, SendParams};
use packhorse_amqp10::message::{write_data, write_header};
use packhorse_broker::{Config, Effect, Endpoint, Input, Shard};
use packhorse_journal::{
    BlockingDisk, Dir, DiskOp, Encoded, FileName, IoDone, IoError, IoErrorKind, IoResult, Lane, Log, Options, recover,
};
use packhorse_model::{BrokerId, ConnectionId, Now, Seed, ShardId};
use packhorse_store::{Batch, Event as Told, LargeOp, Load, LoadLarge, Recovered, Store, StoreStatus, Ticket};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Who is at work.
const NOBODY: usize = 0;
const SHARD: usize = 1;
const STORE: usize = 2;

struct Counting;

thread_local! {
    // Nobody's thread allocates when it likes: the one that runs the tests.
    static AT_WORK: Cell<usize> = const { Cell::new(NOBODY) };
}
static ALLOCATIONS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

fn count() {
    ALLOCATIONS[AT_WORK.try_with(Cell::get).unwrap_or(NOBODY)].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call is handed to the system's allocator as it is; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `at` came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`; `at` came from the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What happens in `act` is that one's.
fn working<T>(who: usize, act: impl FnOnce() -> T) -> T {
    let before = AT_WORK.replace(who);
    let done = act();
    AT_WORK.set(before);
    done
}

fn allocations(who: usize) -> u64 {
    ALLOCATIONS[who].load(Ordering::Relaxed)
}

/// A disk that takes everything and keeps what a start reads back.
#[derive(Default)]
struct Nowhere {
    files: BTreeMap<String, Vec<u8>>,
}

impl BlockingDisk for Nowhere {
    fn list(&mut self, _: Dir) -> Result<Vec<(FileName, u64)>, IoError> {
        Ok(Vec::new())
    }

    fn run(&mut self, op: DiskOp) -> IoResult {
        match op {
            DiskOp::Write { name: FileName::Store, pieces, .. } => {
                self.files.insert(FileName::Store.to_string(), pieces.concat());
            }
            DiskOp::Read { name, offset, length } => {
                let missing = || IoError { kind: IoErrorKind::NotFound, text: format!("{name} is not kept here") };
                let content = self.files.get(&name.to_string()).ok_or_else(missing)?;
                let from = (offset as usize).min(content.len());
                let to = (from + length as usize).min(content.len());
                return Ok(IoDone::Read(Bytes::copy_from_slice(&content[from..to])));
            }
            _ => {}
        }
        Ok(IoDone::Done)
    }
}

/// The journal; whatever it wants of the disk is done when it is polled.
struct Journal {
    log: Log,
    disk: Nowhere,
    now: Now,
}

const ONE: ShardId = ShardId(0);

impl Journal {
    fn new() -> Journal {
        let mut disk = Nowhere::default();
        let now = Now { mono_us: 0, wall_ms: 1_800_000_000_000 };
        let log = recover(&mut disk, &Options::new(1, 2026), now).map_or_else(|e| panic!("{e}"), |r| r.log);
        Journal { log, disk, now }
    }
}

impl Store for Journal {
    fn next_ticket(&self) -> Ticket {
        self.log.next_ticket(ONE)
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        working(STORE, || self.log.submit(ONE, Encoded::new(batch), self.now))
    }

    fn large(&mut self, op: LargeOp) {
        self.log.large(ONE, op);
    }

    fn load(&mut self, load: Load) {
        self.log.load(ONE, load);
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.log.load_large(ONE, load);
    }

    fn poll(&mut self, out: &mut Vec<Told>) {
        self.now.mono_us += 1000;
        working(STORE, || {
            for lane in [Lane::Side, Lane::Flush, Lane::Read] {
                while let Some((id, op)) = self.log.next_io(lane, self.now) {
                    let done = working(NOBODY, || self.disk.run(op));
                    self.log.on_io(id, done, self.now);
                }
            }
            self.log.poll(ONE, out);
        });
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        self.log.recover(ONE, limit, out)
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

/// A client with one link.
struct Client {
    id: ConnectionId,
    engine: Connection,
    link: Option<LinkId>,
    partial: Vec<u8>,
    to_broker: Vec<u8>,
    from_broker: Vec<u8>,
    role: Role,
    /// Deliveries that came and are not settled yet.
    came: Vec<u32>,
    confirmed: u64,
    scratch: Vec<packhorse_amqp10::engine::DeliveryOutcome>,
}

const QUEUE: &str = "q";

impl Client {
    fn new(id: u64, role: Role) -> Client {
        let config = ClientConfig { container_id: format!("client-{id}").into(), ..ClientConfig::default() };
        Client {
            id: ConnectionId(id),
            engine: Connection::client(config, 0),
            link: None,
            partial: Vec::new(),
            to_broker: Vec::new(),
            from_broker: Vec::new(),
            role,
            came: Vec::new(),
            confirmed: 0,
            scratch: Vec::new(),
        }
    }

    fn attach(&mut self) {
        let session = self.engine.begin(0).unwrap();
        let address = Some(QUEUE);
        let (source, target) = match self.role {
            Role::Sender => (Source::default(), Target { address, ..Target::default() }),
            Role::Receiver => (Source { address, ..Source::default() }, Target::default()),
        };
        let attach = Attach {
            name: "link",
            role: self.role,
            snd_settle_mode: SenderSettleMode::Unsettled,
            source: Some(source),
            target: Some(AttachTarget::Target(target)),
            ..Attach::default()
        };
        self.link = Some(self.engine.attach(session, &attach, 0).unwrap());
    }

    fn read(&mut self) {
        let fresh = std::mem::take(&mut self.from_broker);
        let mut partial = std::mem::take(&mut self.partial);
        let mut input = Bytes10 { partial: &mut partial, fresh: &fresh };
        while let Some(event) = self.engine.next(&mut input, 0).unwrap() {
            match event {
                Event::SaslMechanisms(_) => self.engine.sasl_init("ANONYMOUS", None, None).unwrap(),
                Event::SaslOutcome { code: SaslCode::Ok, .. } => {
                    self.engine.open(&Open { container_id: "c", ..Open::default() }, 0).unwrap();
                }
                Event::Transfer(transfer) => {
                    assert!(transfer.first && transfer.last);
                    self.came.push(transfer.delivery_id);
                }
                Event::Disposition { session, .. } => {
                    self.engine.take_outcomes(&mut self.scratch);
                    for outcome in self.scratch.drain(..) {
                        self.confirmed += 1;
                        if !outcome.settled {
                            self.engine.settle_outgoing(session, outcome.delivery_id).unwrap();
                        }
                    }
                }
                _ => {}
            }
        }
        self.partial = partial;
        self.from_broker = fresh;
        self.from_broker.clear();
    }

    fn write(&mut self) {
        self.engine.flush(0);
        let mut count = 0;
        for chunk in self.engine.output() {
            self.to_broker.extend_from_slice(chunk);
            count += chunk.len();
        }
        self.engine.advance_output(count);
    }
}

/// A shard over the journal, a producer and a consumer.
struct World {
    shard: Shard<Journal>,
    producer: Client,
    consumer: Client,
    now: Now,
    out: Vec<Effect>,
    message: Vec<u8>,
    sent: u64,
    acknowledged: u64,
}

impl World {
    fn new() -> World {
        // Little memory, so that it is full soon and buffers are used again.
        let config = Config { memory_bytes: 16 << 20, ..Config::default() };
        let now = Now { mono_us: 1, wall_ms: 1_800_000_000_000 };
        let mut shard = Shard::new(Arc::new(config), ONE, Seed::fixed(7), Journal::new());
        while !shard.recover_step(now).done {}
        let mut message = Vec::new();
        write_header(&mut message, Some(true), None, None, None, None);
        write_data(&mut message, &[0x5a; 1024]);
        let mut world = World {
            shard,
            producer: Client::new(1, Role::Sender),
            consumer: Client::new(2, Role::Receiver),
            now,
            out: Vec::new(),
            message,
            sent: 0,
            acknowledged: 0,
        };
        let endpoint = Endpoint { peer: "peer".into(), local: "here".into(), loopback: true };
        for id in [1, 2] {
            let input = Input::Accepted { connection: ConnectionId(id), endpoint: endpoint.clone() };
            world.shard.handle(input, now, &mut world.out);
        }
        for _ in 0..8 {
            world.turn();
        }
        for client in [&mut world.producer, &mut world.consumer] {
            client.attach();
        }
        let link = world.consumer.link.unwrap();
        world.consumer.engine.grant(link, 1000).unwrap();
        for _ in 0..8 {
            world.turn();
        }
        world
    }

    /// What the clients have said goes in, a turn ends, and they hear what comes of it.
    fn turn(&mut self) {
        self.now.mono_us += 1000;
        let World { shard, producer, consumer, now, out, .. } = self;
        for client in [producer, consumer] {
            client.write();
            let input = Input::Received { connection: client.id, bytes: &client.to_broker };
            working(SHARD, || shard.handle(input, *now, out));
            client.to_broker.clear();
        }
        working(SHARD, || shard.end_turn(*now, out));
        for client in [&mut self.producer, &mut self.consumer] {
            let mut count = 0;
            for chunk in shard.output(client.id) {
                client.from_broker.extend_from_slice(chunk);
                count += chunk.len();
            }
            working(SHARD, || shard.written(client.id, count));
            client.read();
        }
        for effect in out.drain(..) {
            assert!(!matches!(effect, Effect::Close { .. } | Effect::StoreFailed { .. }), "{effect:?}");
        }
    }

    /// A turn in which the producer sends so many more, as far as its credit goes, and the consumer settles what came before.
    fn flow(&mut self, messages: u64) {
        let link = self.producer.link.unwrap();
        for _ in 0..messages {
            if !self.producer.engine.sendable(link) {
                break;
            }
            let params = SendParams { token: self.sent, ..SendParams::default() };
            self.producer.engine.send(link, &params, &[Piece::Copy(&self.message)]).unwrap();
            self.sent += 1;
        }
        let link = self.consumer.link.unwrap();
        for delivery in self.consumer.came.drain(..) {
            self.consumer.engine.settle_incoming(link, delivery, Some(&DeliveryState::Accepted), true).unwrap();
            self.acknowledged += 1;
        }
        self.consumer.engine.grant(link, 1000).unwrap();
        self.turn();
    }
}

/// Allocations of shard and store in a hundred turns that bring so many messages each, and take as many.
fn hundred_turns(world: &mut World, messages: u64) -> [u64; 2] {
    // Until memory for bodies is full and its buffers go round, with turns of this size.
    for _ in 0..40_000 / messages {
        world.flow(messages);
    }
    let (before, acknowledged) = ([SHARD, STORE].map(allocations), world.acknowledged);
    for _ in 0..100 {
        world.flow(messages);
    }
    assert_eq!(world.acknowledged - acknowledged, 100 * messages, "the flow flows");
    assert!(world.producer.confirmed >= world.sent - 2 * messages, "and it is confirmed");
    let [shard, store] = [SHARD, STORE].map(allocations);
    [shard - before[0], store - before[1]]
}

#[test]
fn a_message_from_its_bytes_to_its_acknowledgement_costs_no_allocation_of_its_own() {
    let mut world = World::new();
    let few = hundred_turns(&mut world, 64);
    let many = hundred_turns(&mut world, 256);
    let said = format!("allocations in 100 turns of shard, store: {few:?} with 64 messages each, {many:?} with 256");
    // What a turn costs, however much it brings. The shard: the batch's operations, its vectors of pieces, their shared
    // counts, the list of connections to write to, answers; a link's output, which grows step by step to what a turn puts
    // out. The store: the encoded batch, the block's head, its list of pieces, its tickets. Now and then a dispatch mark, a
    // chunk of the index, a segment, a checkpoint.
    assert!(many[0] <= 100 * 20 && many[1] <= 100 * 8, "{said}");
    // A message costs nothing more: 192 more of them in a turn no more than the doublings of the output, from 16 KiB on.
    assert!(many[0] <= few[0] + 100 * 7 && many[1] <= few[1] + 50, "{said}");
    assert!(world.shard.audit().is_ok());
}
