//! How long a large transaction keeps others from the store: while a branch of many messages is prepared and decided, another shard
//! asks for the store's lock again and again. What it waits at most, in the best of a few runs, is printed; it must be a small part of
//! the time that taking the transaction in takes, and on a quiet machine it is less than a millisecond.

#![expect(clippy::disallowed_methods, reason = "who waits for the lock is not to ask for it all the time")]

use packhorse_disk::{Checkpoints, DiskStore, OpenOptions, ShardStore};
use packhorse_model::{ContentFormat, Head, HeadFlags, QueueId, QueueName, QueueSettings, ShardId, TxnId, Xid};
use packhorse_store::{
    Ahead, Batch, Decide, Event, Figures, Numbers, Op, Prepare, Store, Stored, Ticket, TxOps, TxnOp, TxnPart,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const QUEUE: QueueId = QueueId(1);
const HEAD: Head = Head {
    arrived_ms: 5,
    ttl_ms: 0,
    message_format: 0,
    priority: 4,
    flags: HeadFlags::PERSISTENT,
    format: ContentFormat::Amqp10,
};
/// Operations of each kind: as many messages as the branch adds, it removes.
const MESSAGES: u64 = 500_000;
const RUNS: usize = 3;
/// Operations of a record that goes ahead, as queues write them: 1 MiB with 64 bytes for each.
const AHEAD: u64 = 14_000;

/// A shard, and what its store calls when there is something to poll.
struct Shard {
    store: ShardStore,
    bell: Receiver<()>,
}

impl Shard {
    fn wait(&mut self, ticket: Ticket) {
        let mut events = Vec::new();
        loop {
            self.store.poll(&mut events);
            if events.iter().any(|e| matches!(e, Event::Durable { up_to } if *up_to >= ticket)) {
                return;
            }
            self.bell.recv_timeout(Duration::from_secs(60)).expect("the store calls");
        }
    }
}

/// How long a step took, how long its shard was in the store at most, and how long another one waited for the lock at most.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    took: Duration,
    submit: Duration,
    wait: Duration,
}

fn submit(shard: &mut Shard, times: &mut Times, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    fill(&mut batch);
    batch.require_flush();
    let begun = Instant::now();
    let ticket = shard.store.submit(batch);
    times.submit = times.submit.max(begun.elapsed());
    shard.wait(ticket);
    times.took += begun.elapsed();
}

/// Messages are added, a branch adds as many and removes these, and is decided.
fn run(commit: bool) -> Vec<(&'static str, Times)> {
    let dir = tempfile::tempdir().unwrap();
    let (ring, bell) = channel();
    // The test may be over.
    let wake = move |_| ring.send(()).unwrap_or_default();
    let options = OpenOptions { checkpoints: Checkpoints::never(), ..OpenOptions::new(dir.path(), 2, 7) };
    let (store, shards, _) = DiskStore::open(&options, Arc::new(wake)).unwrap_or_else(|e| panic!("{e}"));
    let [store_of_one, other] = <[ShardStore; 2]>::try_from(shards).unwrap_or_else(|_| panic!("two shards"));
    let mut shard = Shard { store: store_of_one, bell };
    let (txn, xid) = (TxnId { run: 1, number: 1, home: ShardId(0) }, Xid::new(1, b"large", b"b").unwrap());
    let mut steps = Vec::new();
    let mut step = |name, shard: &mut Shard, fill: &mut dyn FnMut(&mut Shard, &mut Times)| {
        let done = AtomicBool::new(false);
        let mut times = Times::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let _ = other.unflushed_bytes();
                    longest = longest.max(begun.elapsed());
                    // As a shard that has other things to do.
                    std::thread::sleep(Duration::from_micros(50));
                }
                longest
            });
            fill(shard, &mut times);
            // Until it is taken in: what comes after it is durable.
            submit(shard, &mut times, |_| {});
            done.store(true, Ordering::Relaxed);
            times.wait = waiter.join().unwrap();
        });
        steps.push((name, times));
    };
    step("messages", &mut shard, &mut |shard, times| {
        submit(shard, times, |batch| {
            let (name, settings) = (QueueName::new("orders").unwrap(), QueueSettings::default());
            batch.push(Op::QueueCreate { id: QUEUE, name, settings, reserved: 4 * MESSAGES });
        });
        for first in (0..MESSAGES).step_by(1000) {
            submit(shard, times, |batch| {
                for sequence in first..first + 1000 {
                    let content = Stored::Body(batch.copy_body(b"body"));
                    batch.push(Op::Enqueue { queue: QUEUE, sequence, head: HEAD, content, volatile: false });
                }
            });
        }
    });
    let mut records = 0;
    step("go ahead", &mut shard, &mut |shard, times| {
        for first in (0..MESSAGES).step_by(AHEAD as usize / 2) {
            submit(shard, times, |batch| {
                let mut ops = Vec::new();
                for n in first..(first + AHEAD / 2).min(MESSAGES) {
                    let content = Stored::Body(batch.copy_body(b"body"));
                    ops.push(TxnOp::Enqueue { index: n as u32, head: HEAD, content });
                    ops.push(TxnOp::Acknowledge { sequence: n, deliveries: 1, attempts: 1, redelivery: None });
                }
                batch.push(Op::TxOps(Box::new(TxOps { txn, queue: QUEUE, record: records, ops })));
            });
            records += 1;
        }
    });
    step("prepare", &mut shard, &mut |shard, times| {
        submit(shard, times, |batch| {
            let ahead = Ahead { records, ops: 2 * MESSAGES, bytes: 4 * MESSAGES };
            let figures = Figures { adds: MESSAGES, removes: MESSAGES, bytes: 4 * MESSAGES };
            let parts = vec![(QUEUE, TxnPart { ahead, ..TxnPart::default() }, figures)];
            let (xid, client) = (xid.clone(), "client".into());
            batch.push(Op::Prepare(Box::new(Prepare { txn, xid, client, parts, wall_ms: 1, at_ms: 1 })));
        });
    });
    step(if commit { "commit" } else { "rollback" }, &mut shard, &mut |shard, times| {
        submit(shard, times, |batch| {
            let numbers = Numbers { first: 2 * MESSAGES, count: MESSAGES as u32 };
            let numbers = if commit { vec![(QUEUE, numbers)] } else { Vec::new() };
            batch.push(Op::Decide(Box::new(Decide { xid: xid.clone(), commit, numbers, at_ms: 2 })));
        });
    });
    drop(shard);
    store.settle().unwrap();
    steps
}

#[test]
fn a_transaction_of_a_million_operations_keeps_nobody_from_the_store() {
    for commit in [true, false] {
        let mut best = run(commit);
        for _ in 1..RUNS {
            for ((_, best), (_, times)) in best.iter_mut().zip(run(commit)) {
                best.submit = best.submit.min(times.submit);
                if times.wait < best.wait {
                    (best.wait, best.took) = (times.wait, times.took);
                }
            }
        }
        for (name, Times { took, submit, wait }) in &best {
            println!("{name}: {took:?}, longest submission {submit:?}, longest wait for the lock {wait:?}");
        }
        for (name, Times { took, wait, .. }) in &best[2..] {
            assert!(*wait < *took / 4, "{name} takes {took:?}, and somebody waited for {wait:?}");
        }
    }
}
