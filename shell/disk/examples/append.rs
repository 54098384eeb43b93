//! Appends messages with a window and acknowledges each once it is durable; prints rate, CPU and flush figures.
//!
//! `cargo run --release -p packhorse-disk --example append -- [--dir DIR] [--window N] [--batch N] [--size BYTES] [--seconds S]`
//!
//! With `--fill N --queues Q` it stores N messages in Q queues instead and ends as if killed: the next run's first line is
//! what a start then takes. With `--fill 0` it only starts.

use packhorse_disk::{DiskStore, OpenOptions, ShardStore};
use packhorse_model::{ContentFormat, Head, HeadFlags, QueueId, QueueName, QueueSettings};
use packhorse_store::{Batch, Event, Load, Op, Store, Stored, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEAD: Head = Head {
    arrived_ms: 0,
    ttl_ms: 0,
    message_format: 0,
    priority: 4,
    flags: HeadFlags::PERSISTENT,
    format: ContentFormat::Amqp10,
};

fn main() {
    let mut args = std::env::args().skip(1);
    let (mut dir, mut window, mut most, mut size, mut seconds) = (String::from("append-data"), 1000, 64, 1024, 3);
    let (mut fill, mut queues) = (None, 1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--dir" => dir = value,
            "--window" => window = value.parse().expect("a number"),
            "--batch" => most = value.parse().expect("a number"),
            "--size" => size = value.parse().expect("a number"),
            "--fill" => fill = Some(value.parse().expect("a number")),
            "--queues" => queues = value.parse().expect("a number"),
            "--seconds" => seconds = value.parse().expect("a number"),
            _ => panic!("unknown option {name}"),
        }
    }
    let me = std::thread::current();
    let wake = Arc::new(move |_| me.unpark());
    let (store, mut shards, report) =
        DiskStore::open(&OpenOptions::new(&dir, 1, 1), wake).unwrap_or_else(|e| panic!("{e}"));
    println!(
        "open: {} messages in {} queues, {} MiB, {} ms",
        report.messages,
        report.queues,
        report.bytes >> 20,
        report.recovery_ms
    );
    let mut shard = shards.pop().expect("one shard");
    if let Some(messages) = fill {
        fill_queues(&mut shard, report.run, messages, queues, &vec![7u8; size]);
        store.settle().unwrap_or_else(|f| panic!("{}", f.what));
        // No stop in order: neither the empty block nor the checkpoint of one.
        std::process::exit(0);
    }
    let queue = QueueId(report.run);
    let mut batch = Batch::default();
    batch.push(Op::QueueCreate {
        id: queue,
        name: QueueName::new(&format!("run {}", report.run)).expect("a valid name"),
        settings: QueueSettings::default(),
        reserved: u64::MAX / 2,
    });
    shard.submit(batch);
    let body = vec![7u8; size];
    let before = cpu_us();
    let begin = Instant::now();
    let (mut sent, mut confirmed, mut acknowledged) = (0u64, 0u64, 0u64);
    let mut flying: VecDeque<(Ticket, u64)> = VecDeque::new();
    let mut events = Vec::new();
    while begin.elapsed() < Duration::from_secs(seconds) || confirmed < sent {
        let mut batch = Batch::with_buffer(Vec::with_capacity(64 * 1024));
        let go_on = begin.elapsed() < Duration::from_secs(seconds);
        while go_on && sent - confirmed < window && batch.ops().len() < most {
            let body = batch.copy_body(&body);
            batch.push(Op::Enqueue { queue, sequence: sent, head: HEAD, content: Stored::Body(body), volatile: false });
            sent += 1;
        }
        while acknowledged < confirmed {
            batch.acknowledge(queue, acknowledged);
            acknowledged += 1;
        }
        if !batch.is_empty() {
            flying.push_back((shard.submit(batch), sent));
        }
        shard.poll(&mut events);
        if events.is_empty() && (sent - confirmed == window || !go_on) {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        for event in events.drain(..) {
            match event {
                Event::Durable { up_to } => {
                    while flying.front().is_some_and(|(ticket, _)| *ticket <= up_to) {
                        confirmed = flying.pop_front().expect("there is a front").1;
                    }
                }
                Event::Failed(failure) => panic!("{}", failure.what),
                _ => {}
            }
        }
    }
    let took = begin.elapsed().as_secs_f64();
    let status = shard.status();
    println!(
        "{confirmed} messages of {size} B, window {window}: {:.0} msg/s, {:.2} µs CPU a message, {} flushes ({:.1} a 1,000), mean {} µs, longest {} µs, {:.0} MB/s written, {} segments",
        confirmed as f64 / took,
        (cpu_us() - before) as f64 / confirmed as f64,
        status.flushes,
        status.flushes as f64 * 1000.0 / confirmed as f64,
        status.flush_us_total / status.flushes.max(1),
        status.flush_us_max,
        status.written_bytes as f64 / took / 1e6,
        status.segments,
    );
    load_all(&mut shard, report.run);
    store.shutdown().unwrap_or_else(|f| panic!("{}", f.what));
}

/// Stores messages in queues, by turns.
fn fill_queues(shard: &mut ShardStore, run: u64, messages: u64, queues: u64, body: &[u8]) {
    if messages == 0 {
        return;
    }
    let id = |n: u64| QueueId(run << 32 | (n + 1));
    let mut batch = Batch::default();
    for n in 0..queues {
        let name = QueueName::new(&format!("run {run} queue {n}")).expect("a valid name");
        let settings = QueueSettings::default();
        batch.push(Op::QueueCreate { id: id(n), name, settings, reserved: messages });
        if batch.ops().len() == 1024 {
            shard.submit(std::mem::take(&mut batch));
        }
    }
    for n in 0..messages {
        let content = Stored::Body(batch.copy_body(body));
        let (queue, sequence) = (id(n % queues), n / queues);
        batch.push(Op::Enqueue { queue, sequence, head: HEAD, content, volatile: false });
        if batch.ops().len() >= 128 || n + 1 == messages {
            while shard.unflushed_bytes() > 16 << 20 {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            shard.submit(std::mem::take(&mut batch));
        }
    }
}

/// Stores a backlog and reads it back in pages.
fn load_all(shard: &mut ShardStore, run: u64) {
    let queue = QueueId(run | 1 << 40);
    let mut batch = Batch::default();
    batch.push(Op::QueueCreate {
        id: queue,
        name: QueueName::new("backlog").expect("a valid name"),
        settings: QueueSettings::default(),
        reserved: u64::MAX / 2,
    });
    let body = [9u8; 1024];
    let begin = Instant::now();
    let messages = 200_000;
    let mut ticket = Ticket(0);
    for sequence in 0..messages {
        let content = Stored::Body(batch.copy_body(&body));
        batch.push(Op::Enqueue { queue, sequence, head: HEAD, content, volatile: false });
        if batch.ops().len() == 128 || sequence + 1 == messages {
            while shard.unflushed_bytes() > 16 << 20 {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            ticket = shard.submit(std::mem::take(&mut batch));
        }
    }
    let mut events = Vec::new();
    while !events.iter().any(|e| matches!(e, Event::Durable { up_to } if *up_to == ticket)) {
        std::thread::park_timeout(Duration::from_millis(10));
        shard.poll(&mut events);
    }
    let stored = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let mut from = 0;
    while from < messages {
        shard.load(Load { queue, level: 4, from, count: 4096, bytes: 1 << 20 });
        events.clear();
        while events.is_empty() {
            std::thread::park_timeout(Duration::from_millis(10));
            shard.poll(&mut events);
        }
        for event in &events {
            let Event::Loaded(loaded) = event else { continue };
            assert!(loaded.bodies.iter().all(|b| b.range.is_some()), "all bodies are whole");
            from = loaded.bodies.last().map_or(messages, |b| b.sequence + 1);
        }
    }
    let read = begin.elapsed().as_secs_f64();
    println!(
        "backlog of {messages}: in {:.0} msg/s, out {:.0} msg/s",
        messages as f64 / stored,
        messages as f64 / read
    );
}

/// CPU time of this process so far, µs.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in parentheses").split_whitespace().collect();
    let ticks = |i: usize| fields[i].parse::<u64>().expect("a number");
    (ticks(11) + ticks(12)) * 10_000
}
