//! Recording costs a load generator no allocation: shown with an allocator that counts.
//!
//! Counted is the test's own thread: the one that runs tests allocates when it likes.
#![expect(unsafe_code, reason = "only an implementation of GlobalAlloc can count allocations")]

use packhorse_history::body::{self, Checked, Template};
use packhorse_history::{BinaryWriter, Event, Header, JsonlWriter, MessageId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may allocate after its own variables are gone; nobody asks for its count.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
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

const QUEUE: &str = "a queue with a \"name\"";

#[test]
fn a_message_from_body_to_acknowledgement_allocates_nothing() {
    let header = Header {
        run: 7,
        process: "one".to_owned(),
        pid: 1,
        incarnation: 0,
        clock: "c".to_owned(),
        mono_ns: 1,
        wall_ns: 1,
    };
    let mut writer = JsonlWriter::new(std::io::sink(), &header).expect("a sink takes everything");
    let mut binary = BinaryWriter::new(std::io::sink(), &header).expect("a sink takes everything");
    binary.put(0, &Event::Drained { queue: QUEUE }).expect("a sink takes everything");
    let mut template = Template::new(7, 1024).expect("long enough");
    let mut other = [0; 100];
    let mut intact = 0;
    let mut all = || {
        for sequence in 0..10_000u64 {
            let message = MessageId::new(1, sequence);
            let (body, crc) = template.stamp(message)?;
            intact += u64::from(body::check(7, body) == Checked::Intact(message));
            body::fill(7, message, &mut other)?;
            let queue = QUEUE;
            let events = [
                Event::Send {
                    message,
                    queue,
                    size_bytes: 1024,
                    crc,
                    persistent: true,
                    ttl_ms: 1,
                    delay_ms: 1,
                    priority: 4,
                    tx: Some(1),
                },
                Event::SentOk { message },
                Event::Recv {
                    message,
                    consumer: 1,
                    queue,
                    delivery_count: 0,
                    redelivered: false,
                    crc_ok: true,
                    tx: None,
                },
                Event::Ack { message, consumer: 1, confirmed: false, tx: None },
                Event::Ack { message, consumer: 1, confirmed: true, tx: None },
            ];
            for (step, event) in events.iter().enumerate() {
                writer.put(sequence * 10 + step as u64, event).expect("a sink takes everything");
                binary.put(sequence * 10 + step as u64, event).expect("a sink takes everything");
            }
        }
        Ok::<(), body::BodyError>(())
    };
    let before = ALLOCATIONS.get();
    all().expect("bodies are long enough");
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(intact, 10_000);
}
