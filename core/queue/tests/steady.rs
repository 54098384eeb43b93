//! A steady flow allocates nothing in the queue: shown with an allocator that counts.
//!
//! Its own test binary, with one test, so that no other test's allocations are counted.
#![expect(unsafe_code, reason = "only an implementation of GlobalAlloc can count allocations")]

use packhorse_model::{
    Content, ContentFormat, Head, HeadFlags, Now, Outcome, QueueId, QueueName, QueueSettings, Resident,
};
use packhorse_queue::{ConsumerId, DeliveryKey, Effect, Enqueue, Input, Queue, Turn};
use packhorse_store::{Batch, Body, Op, Stored, Ticket};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator as it is; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `at` came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`; `at` came from the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A flow through one queue: some messages in, a flush, deliveries out, acknowledgements back; round after round.
struct Flow {
    queue: Queue,
    ticket: u64,
    out: Vec<Effect>,
    held: Vec<DeliveryKey>,
    given: u64,
    /// Allocations inside the queue, without those of the batches that it fills.
    inside: u64,
    marks: u64,
}

impl Flow {
    fn turn(&mut self, act: impl FnOnce(&mut Queue, &mut Turn<'_>, &mut Vec<Effect>)) {
        // The batch's vector belongs to the caller; its room is made before counting.
        let mut batch = Batch::default();
        for _ in 0..600 {
            batch.push(Op::QueueDelete { id: QueueId(0) });
        }
        let mut turn = Turn {
            now: Now::default(),
            broker_ms: 0,
            ticket: Ticket(self.ticket),
            batch: &mut batch,
            oldest_resident: 1,
            short: false,
        };
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        act(&mut self.queue, &mut turn, &mut self.out);
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        self.inside += after - before;
        let room = batch.ops().len();
        assert!(room <= 1_024, "the room suffices: {room}");
        self.marks += batch.ops().iter().filter(|op| matches!(op, Op::DispatchMark { .. })).count() as u64;
        self.ticket += 1;
    }

    fn round(&mut self, messages: u64, depth: u64, persistent: bool) {
        let flags = if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() };
        self.turn(|queue, turn, out| {
            for _ in 0..messages {
                let head = Head {
                    arrived_ms: 0,
                    ttl_ms: 0,
                    message_format: 0,
                    priority: 4,
                    flags,
                    format: ContentFormat::Amqp10,
                };
                let content = Content::Body(Resident { buffer: turn.ticket.0, offset: 0, length: 100 });
                let stored = Some(Stored::Body(Body { piece: 0, offset: 0, length: 100 }));
                queue.handle(Input::Enqueue(Enqueue { head, content, stored, overlay: None }), turn, out);
            }
        });
        let up_to = Ticket(self.ticket - 1);
        let limit = self.given + messages;
        self.turn(|queue, turn, out| {
            queue.handle(Input::Durable { up_to }, turn, out);
            queue.handle(Input::Credit { consumer: ConsumerId(1), limit }, turn, out);
            while queue.dispatch(turn, 64, out) {}
        });
        for effect in self.out.drain(..) {
            if let Effect::Deliver(deliver) = effect {
                self.given += 1;
                self.held.push(deliver.key());
            }
        }
        let acknowledge = self.held.len().saturating_sub(depth as usize);
        let held = std::mem::take(&mut self.held);
        let (done, keep) = held.split_at(acknowledge);
        self.turn(|queue, turn, out| {
            for key in done {
                let answer = queue.handle(Input::Settle { key: *key, outcome: Outcome::Acknowledge }, turn, out);
                assert!(answer.settled());
            }
        });
        self.held = keep.to_vec();
    }
}

#[test]
fn a_steady_flow_allocates_nothing_in_the_queue() {
    for (persistent, depth) in [(false, 0), (true, 0), (true, 300)] {
        let name = QueueName::new("q").unwrap();
        let queue = Queue::new(QueueId(1), name, QueueSettings::default(), 0, 1 << 40, false);
        let (out, held) = (Vec::with_capacity(1_024), Vec::new());
        let mut flow = Flow { queue, ticket: 1, out, held, given: 0, inside: 0, marks: 0 };
        flow.turn(|queue, turn, out| {
            queue.handle(Input::Subscribe { consumer: ConsumerId(1), pre_settled: false }, turn, out);
        });
        for _ in 0..200 {
            flow.round(100, depth, persistent);
        }
        let (before, given) = (flow.inside, flow.given);
        for _ in 0..500 {
            flow.round(100, depth, persistent);
        }
        let messages = flow.given - given;
        assert!(messages >= 49_000, "the flow flows: {messages}");
        let allocations = flow.inside - before;
        // The set of marked ranges grows a node now and then: at most one for each range of 256 numbers.
        let allowed = if persistent { messages / 256 } else { 0 };
        assert!(
            allocations <= allowed,
            "{allocations} allocations for {messages} messages, persistent: {persistent}, depth {depth}, marks {}",
            flow.marks
        );
        assert_eq!(flow.marks > 0, persistent, "only persistent messages are marked");
        assert!(flow.queue.audit().is_ok());
    }
}
