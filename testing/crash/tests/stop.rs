//! A broker under load that is stopped in order, again and again: everybody is told, what was confirmed is there, in order, and
//! nothing else. (Kills are the harness's, `cargo xtask crash`.)
//!
//! `PACKHORSE_CRASH_SEED` changes when it happens.

use packhorse_crash::{Books, Broken, Broker, Consumer, Producer, Random};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Producers with 500 unconfirmed each, one of large messages, and a consumer, over many lives of a broker.
struct Load {
    producers: Vec<Producer>,
    consumer: Consumer,
    confirmed: &'static AtomicU64,
    received: &'static AtomicU64,
    orderly: Vec<u32>,
}

/// The same while a broker lives.
struct Running {
    producers: Vec<JoinHandle<(Producer, Result<(), Broken>)>>,
    consumer: JoinHandle<(Consumer, Result<(), Broken>)>,
    load: (&'static AtomicU64, &'static AtomicU64, Vec<u32>),
    stop: &'static AtomicBool,
    done: &'static AtomicBool,
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

impl Load {
    fn new() -> Load {
        // Small ones, larger ones, and some that go through files of their own.
        let producers = vec![
            Producer::new(1, "orders", 500, 200),
            Producer::new(2, "orders", 500, 2_000),
            Producer::new(3, "orders", 3, 1_200_000),
        ];
        let [confirmed, received] = [(); 2].map(|()| leak(AtomicU64::new(0)));
        Load { producers, consumer: Consumer::new("orders", 300), confirmed, received, orderly: Vec::new() }
    }

    fn run(self, to: SocketAddr) -> Running {
        let Load { producers, mut consumer, confirmed, received, orderly } = self;
        let [stop, done] = [(); 2].map(|()| leak(AtomicBool::new(false)));
        let producers = producers.into_iter().map(|mut producer| {
            std::thread::spawn(move || {
                let end = producer.run(to, stop, confirmed);
                (producer, end)
            })
        });
        let producers = producers.collect();
        let consumer = std::thread::spawn(move || {
            let end = consumer.run(to, done, received);
            (consumer, end)
        });
        Running { producers, consumer, load: (confirmed, received, orderly), stop, done }
    }

    fn books(self) -> Books {
        let sent = self.producers.into_iter().map(|producer| (producer.id, producer.sent)).collect();
        Books { sent, received: self.consumer.received, orderly: self.orderly }
    }
}

impl Running {
    /// Messages confirmed over all lives.
    fn confirmed(&self) -> u64 {
        self.load.0.load(Ordering::Relaxed)
    }

    /// All have ended because the broker did. What they saw of it, and the load for the next life.
    fn broken(self) -> (Load, Vec<Broken>) {
        let mut seen = Vec::new();
        let mut producers = Vec::new();
        for producer in self.producers {
            let (producer, end) = producer.join().expect("a producer does not panic");
            seen.push(end.expect_err("the broker is gone"));
            producers.push(producer);
        }
        let (mut consumer, end) = self.consumer.join().expect("the consumer does not panic");
        seen.push(end.expect_err("the broker is gone"));
        consumer.life += 1;
        let (confirmed, received, orderly) = self.load;
        (Load { producers, consumer, confirmed, received, orderly }, seen)
    }

    /// Lets the producers come to their end, and the consumer take everything.
    fn finish(self, broker: &Broker) -> Load {
        self.stop.store(true, Ordering::Relaxed);
        let mut producers = Vec::new();
        for producer in self.producers {
            let (producer, end) = producer.join().expect("a producer does not panic");
            end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
            producers.push(producer);
        }
        broker.until("the queue is empty", |broker| broker.queue("orders")["depth"] == 0);
        self.done.store(true, Ordering::Relaxed);
        let (consumer, end) = self.consumer.join().expect("the consumer does not panic");
        end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
        broker.until("no file of a large message is left", |broker| broker.large_files() == 0);
        let (confirmed, received, orderly) = self.load;
        Load { producers, consumer, confirmed, received, orderly }
    }
}

/// The end of it all: the books are judged.
fn judge(load: Load, seed: u64) {
    let books = load.books();
    let wrong = books.judge();
    let (sent, again) = (books.sent.values().map(Vec::len).sum::<usize>(), {
        books.received.iter().filter(|receipt| receipt.deliveries > 0).count()
    });
    println!(
        "{sent} sent, {} confirmed, {} received, {again} of them flagged",
        books.confirmed(),
        books.received.len()
    );
    assert!(books.confirmed() > 1000, "there was no load: {} messages confirmed", books.confirmed());
    assert!(
        wrong.is_empty(),
        "{} violations, the first: {:#?}; again with PACKHORSE_CRASH_SEED={seed}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
}

#[expect(clippy::disallowed_methods, reason = "a fault comes at a time that nothing in the broker has to do with")]
fn let_it_live(random: &mut Random, from_ms: usize, to_ms: usize) {
    std::thread::sleep(Duration::from_millis((from_ms + random.below(to_ms - from_ms)) as u64));
}

#[test]
fn an_orderly_stop_under_load_tells_everybody_and_loses_nothing() {
    const LIVES: u32 = 4;
    let (mut random, seed) = Random::from_environment(0x7465_726d);
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--shards", "2"];
    let mut load = Load::new();
    for life in 0..LIVES {
        let broker = Broker::start(dir.path(), &flags);
        let before = load.confirmed.load(Ordering::Relaxed);
        let running = load.run(broker.amqp());
        broker.until("confirms come", |_| running.confirmed() > before);
        let_it_live(&mut random, 1, 250);
        broker.signal(Signal::TERM);
        let ended = broker.end();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(ended.last().ends_with("stopped"), "{}", ended.last());
        let (next, seen) = running.broken();
        for broken in seen {
            match broken {
                Broken::Closed { condition: Some(condition), .. } => assert_eq!(condition, "amqp:connection:forced"),
                other => panic!("a client was not told, it saw {other:?}"),
            }
        }
        load = next;
        load.orderly.push(life);
    }
    let broker = Broker::start(dir.path(), &flags);
    let running = load.run(broker.amqp());
    let load = running.finish(&broker);
    judge(load, seed);
}
