//! Hostile and broken peers, one after the other, against one broker process, while a well-behaved pair keeps sending and
//! receiving. At the end the process lives, nothing panicked, the pair's books are perfect, nothing is left of the others.
//!
//! `PACKHORSE_CRASH_ONLY=name` runs one attack; `PACKHORSE_CRASH_SEED` and `PACKHORSE_CRASH_CASE` replay one damaged session.

mod frames;
mod hoarders;
mod links;
mod random;
mod slow;

use packhorse_crash::{Broker, Pair, Peer, Producer};
use slow::{Slow, drip_pause};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// Deadlines of the run, ms: short enough to be waited for, long enough for a machine that does other things as well.
const FIRST_BYTE_MS: u32 = 2_000;
const SASL_MS: u32 = 4_000;
const OPEN_MS: u32 = 4_000;
/// Memory for message bodies in this run.
const BODIES: u64 = 32 << 20;
/// Largest message in this run, bytes.
const MAX_MESSAGE: usize = 4 << 20;
/// Most credit of a producer in this run.
const CREDIT: u32 = 500;
/// What the process may take at any time beyond what it took when the pair alone was there: the bodies' memory, the most that a
/// hostile connection may hold (output, unfinished frames, links), and what an allocator keeps for itself.
const MOST_KIB: u64 = (BODIES >> 10) + (160 << 10);

/// One broker, the pair, and who attacks.
struct Run {
    broker: Broker,
    pair: Pair,
    to: SocketAddr,
    /// Resident memory with only the pair there, KiB.
    calm_kib: u64,
}

type Attack = (&'static str, fn(&Run));

const ATTACKS: &[Attack] = &[
    ("frames_after_login", frames::frames_after_login),
    ("frames_before_login", frames::frames_before_login),
    ("openings", frames::openings),
    ("tiny_frame_sizes", frames::tiny_frame_sizes),
    ("messages", frames::messages),
    ("foreign_protocols", frames::foreign_protocols),
    ("bad_logins", frames::bad_logins),
    ("memory_before_login", hoarders::memory_before_login),
    ("never_reads", hoarders::never_reads),
    ("never_settles", hoarders::never_settles),
    ("too_many_sessions", links::too_many_sessions),
    ("too_many_links", links::too_many_links),
    ("one_name_for_many", links::one_name_for_many),
    ("storms_unread", links::storms_unread),
    ("dispositions_over_everything", links::dispositions_over_everything),
    ("flow_storms", links::flow_storms),
    ("transfers_without_credit", links::transfers_without_credit),
    ("endless_message", hoarders::endless_message),
    ("aborted_floods", hoarders::aborted_floods),
    ("damaged_sessions", random::damaged_sessions),
    ("churn", random::churn),
];

#[test]
fn one_broker_survives_all_of_them_and_nobody_else_notices() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        format!("limits.first_byte_timeout_ms={FIRST_BYTE_MS}"),
        format!("limits.sasl_timeout_ms={SASL_MS}"),
        format!("limits.open_timeout_ms={OPEN_MS}"),
        format!("limits.memory_bytes={BODIES}"),
        format!("limits.max_message_bytes={MAX_MESSAGE}"),
        format!("limits.link_credit_max={CREDIT}"),
        "broker.shards=2".into(),
    ];
    let flags: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let broker = Broker::start(dir.path(), &flags);
    let to = broker.amqp();
    let pair = Pair::start(to);
    pair.goes_on().unwrap();
    let mut run = Run { calm_kib: broker.resident_kib(), broker, pair, to };
    let calm_descriptors = run.broker.descriptors();
    let slow = Slow::start(to);
    let only = std::env::var("PACKHORSE_CRASH_ONLY").ok();
    for (name, attack) in ATTACKS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        let begin = Instant::now();
        attack(&run);
        run.pair.goes_on().unwrap_or_else(|why| panic!("after {name}: {why}\n{}", run.broker.log_tail()));
        assert!(run.broker.alive(), "the broker is dead after {name}:\n{}", run.broker.log_tail());
        let grown = run.broker.resident_kib().saturating_sub(run.calm_kib);
        println!("{name:<32} {:>6.2} s  {grown:>7} KiB more", begin.elapsed().as_secs_f64());
        assert!(grown <= MOST_KIB, "{name}: {grown} KiB more resident memory, at most {MOST_KIB} are allowed");
    }
    slow.check();

    assert_eq!(run.broker.get("/healthz").0, 200);
    // Only the pair is left.
    run.broker.until("connections go back to the pair's two", |broker| broker.status()["connections"] == 2);
    run.broker.until("descriptors go back", |broker| broker.descriptors() <= calm_descriptors + 8);
    let books = run.pair.finish().unwrap_or_else(|why| panic!("{why}\n{}", run.broker.log_tail()));
    assert_eq!(books.judge(), Vec::<String>::new());
    assert_eq!(books.confirmed(), books.received.len(), "nothing twice, nothing missing");
    assert!(books.received.iter().all(|receipt| receipt.deliveries == 0 && receipt.acknowledged));
    println!("the pair sent and received {} messages meanwhile", books.confirmed());
    let log = run.broker.log();
    // Lines begin with time and level; what peers say stands behind.
    let bad = |line: &&str| {
        line.contains("panicked") || line.split_whitespace().nth(1) == Some("ERROR") || !line.starts_with("20")
    };
    let bad: Vec<&str> = log.lines().filter(bad).collect();
    assert!(bad.is_empty(), "lines that must not be in the log: {bad:?}");
    run.broker.signal(rustix::process::Signal::TERM);
    assert_eq!(run.broker.end().code, Some(0));
}

#[test]
fn a_peer_that_falls_silent_amid_a_frame_is_closed_and_one_that_only_lives_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.idle_timeout_ms=1000"]);
    let mut quiet = Peer::begun(broker.amqp());
    let mut silent = Peer::begun(broker.amqp());
    silent.say(&[0, 0, 1, 0, 2, 0, 0, 0, 1, 2, 3]);
    let alive = std::thread::spawn(move || {
        // The signs of life are twice as many as are needed.
        for _ in 0..16 {
            drip_pause();
            quiet.say(&[0, 0, 0, 8, 2, 0, 0, 0]);
        }
        quiet.sender(0, "quiet").until_credit()
    });
    let close = silent.until("close");
    assert_eq!(close.condition(), "amqp:resource-limit-exceeded", "{close:?}");
    assert!(silent.hang_up().rest().is_empty());
    assert!(alive.join().unwrap() > 0, "who says that it lives is left alone");
}

/// A small message.
fn text() -> Vec<u8> {
    vec![0x00, 0x53, 0x77, 0xa1, 2, b'h', b'i']
}

/// Sends `count` messages of `size` bytes and waits for their confirms.
fn fill(run: &Run, queue: &'static str, count: usize, size: usize) {
    let mut producer = Producer { most: count, ..Producer::new(99, queue, 500, size) };
    let end = producer.run(run.to, &AtomicBool::new(false), &AtomicU64::new(0));
    end.unwrap_or_else(|broken| panic!("{queue}: {broken:?}"));
    assert_eq!(run.broker.queue(queue)["ready"], count);
}
