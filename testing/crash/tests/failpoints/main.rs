//! Scenarios of `spec/scenarios.md` that name a place in the process, on the real binary: it dies, fails, waits or stands still at
//! a failpoint (`shell/runtime/src/failpoints`). Runs with the feature `failpoints` of this package, against a broker that was
//! built with the feature of the same name; the step `planted` of the test command builds both.

mod planted;
mod transactions;

use packhorse_client_core::{Event, Misuse, Numbering, ReceiverOptions, Verdict};
use packhorse_crash::{Again, Books, Broken, Broker, Consumer, Ended, Producer, Segments, Wire, serve};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const QUEUE: &str = "orders";
/// Of the scenarios in which a message is given back as failed.
const DELIVERY_LIMIT: usize = 3;
/// Small, so that checkpoints come soon and segments are given up.
const SMALL: [&str; 4] = ["--set", "data.segment_bytes=1048576", "--set", "data.checkpoint_bytes=1048576"];

/// A broker with failpoints armed as in `PACKHORSE_FAILPOINTS`, which may end before it is ready.
fn try_start(dir: &Path, armed: &str, flags: &[&str]) -> Result<Broker, Ended> {
    let mut command = serve(dir, flags);
    command.env("PACKHORSE_FAILPOINTS", armed);
    Broker::from_command(dir, command)
}

/// One that becomes ready.
fn start(dir: &Path, armed: &str, flags: &[&str]) -> Broker {
    try_start(dir, armed, flags)
        .unwrap_or_else(|ended| panic!("the broker did not become ready: exit {:?}\n{}", ended.code, ended.log))
}

/// A request to `/api/v1/failpoints…`.
fn ask(broker: &Broker, method: &str, name: &str, action: &str) -> Value {
    let (status, answer) = broker.request(method, &format!("/api/v1/failpoints{name}"), action);
    assert_eq!(status, 200, "{method} {name} {action}: {answer}");
    answer
}

/// A figure of a failpoint.
fn figure(broker: &Broker, name: &str, what: &str) -> u64 {
    let all = ask(broker, "GET", "", "");
    let one = all.as_array().and_then(|all| all.iter().find(|point| point["name"] == name));
    one.and_then(|point| point[what].as_u64()).expect("a point of the table")
}

/// A client in a thread of its own, over one life of a broker.
struct Worker<C> {
    thread: JoinHandle<(C, Result<(), Broken>)>,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl<C> Worker<C> {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Tells it to stop, and waits for it.
    fn stop(self) -> (C, Result<(), Broken>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a client does not panic")
    }

    /// Waits for the end that it comes to by itself.
    fn end(self) -> (C, Result<(), Broken>) {
        self.thread.join().expect("a client does not panic")
    }
}

fn work<C: Send + 'static>(
    mut client: C,
    to: SocketAddr,
    run: impl FnOnce(&mut C, SocketAddr, &AtomicBool, &AtomicU64) -> Result<(), Broken> + Send + 'static,
) -> Worker<C> {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (his_stop, his_count) = (Arc::clone(&stop), Arc::clone(&count));
    let thread = std::thread::spawn(move || {
        let end = run(&mut client, to, &his_stop, &his_count);
        (client, end)
    });
    Worker { thread, stop, count }
}

fn produce(broker: &Broker, producer: Producer) -> Worker<Producer> {
    work(producer, broker.amqp(), Producer::run)
}

fn consume(broker: &Broker, consumer: Consumer) -> Worker<Consumer> {
    work(consumer, broker.amqp(), Consumer::run)
}

fn producer(most: usize) -> Producer {
    Producer { most, ..Producer::new(1, QUEUE, 100, 700) }
}

/// The process was killed by the failpoint.
fn killed(broker: Broker) -> Ended {
    let ended = broker.end();
    assert_eq!(ended.code, None, "a signal ends it: {}", ended.log);
    ended
}

/// Takes everything from the queue on an ordinary start, and judges all that was ever sent and received.
fn finish(dir: &Path, producer: Producer, mut consumer: Consumer) -> Books {
    let broker = start(dir, "", &SMALL);
    consumer.life += 1;
    let worker = consume(&broker, consumer);
    broker.until("the queue is empty", |broker| {
        let queue = broker.queue(QUEUE);
        queue.is_null() || queue["depth"] == 0
    });
    let (consumer, end) = worker.stop();
    end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
    let books = Books { sent: [(1, producer.sent)].into(), received: consumer.received, orderly: Vec::new() };
    assert_eq!(books.judge(), Vec::<String>::new());
    books
}

/// How many times each message was received.
fn times(books: &Books) -> Vec<usize> {
    let mut times = vec![0; books.sent[&1].len()];
    for receipt in &books.received {
        times[receipt.number as usize] += 1;
    }
    times
}

#[test]
fn fs_47_killed_around_an_enqueue() {
    // What was not confirmed may be absent, and is never half there (the judge checks bodies).
    for (point, kept) in [
        ("entry.enqueue.before_sync", false),
        ("entry.enqueue.after_sync_before_visible", true),
        ("entry.enqueue.after_visible_before_confirm", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        // One in flight: the third message meets the third pass.
        let broker = start(dir.path(), &format!("{point}=crash@3"), &SMALL);
        let worker = produce(&broker, Producer { window: 1, ..producer(10) });
        killed(broker);
        let (producer, end) = worker.end();
        end.expect_err("the broker is gone");
        assert_eq!(producer.sent, [true, true, false], "{point}");
        let books = finish(dir.path(), producer, Consumer::new(QUEUE, 10));
        let expected = if kept { vec![1, 1, 1] } else { vec![1, 1, 0] };
        assert_eq!(times(&books), expected, "{point}");
    }
}

#[test]
fn fs_47_sent_again_under_the_same_duplicate_id_it_is_there_once() {
    for (point, stored) in [
        ("entry.enqueue.before_sync", 2),
        ("entry.enqueue.after_sync_before_visible", 3),
        ("entry.enqueue.after_visible_before_confirm", 3),
        ("none: all are confirmed", 3),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let forgetful = || Producer { window: 1, again: Again::ByIds, ..producer(3) };
        let armed = point.starts_with("entry");
        let broker = start(dir.path(), &if armed { format!("{point}=crash@3") } else { String::new() }, &SMALL);
        let (first, end) = produce(&broker, forgetful()).end();
        assert_eq!(end.is_err(), armed, "{point}: {end:?}");
        assert_eq!(first.sent, [true, true, !armed], "{point}");
        if armed {
            killed(broker);
        } else {
            broker.kill();
        }
        // It has forgotten what was confirmed, twice, with a kill behind the confirms.
        for (round, stored) in [stored, 3].into_iter().enumerate() {
            let broker = start(dir.path(), "", &SMALL);
            let (again, end) = produce(&broker, forgetful()).end();
            end.expect("the broker lives");
            assert_eq!(again.sent, [true; 3], "{point}: all are confirmed");
            let queue = broker.queue(QUEUE);
            assert_eq!((&queue["depth"], &queue["duplicates_total"]), (&3.into(), &stored.into()), "{point}, {round}");
            broker.kill();
        }
        let books = finish(dir.path(), Producer { sent: vec![true; 3], ..forgetful() }, Consumer::new(QUEUE, 10));
        assert_eq!(times(&books), [1; 3], "{point}");
    }
}

#[test]
fn fs_47_sent_again_under_the_same_number_it_is_there_once() {
    for (point, stored) in [
        ("entry.enqueue.before_sync", 0),
        ("entry.enqueue.after_sync_before_visible", 1),
        ("entry.enqueue.after_visible_before_confirm", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let numbering = Numbering::new(*b"fs_47's producer");
        let careful = Producer { window: 1, again: Again::ByNumbers(numbering), ..producer(3) };
        let broker = start(dir.path(), &format!("{point}=crash@3"), &SMALL);
        let (careful, end) = produce(&broker, careful).end();
        end.expect_err("the broker is gone");
        killed(broker);
        assert_eq!(careful.sent, [true, true, false], "{point}");
        // It knows what has no answer, sends that again, and goes on; with a kill behind the confirms.
        let broker = start(dir.path(), "", &SMALL);
        let (careful, end) = produce(&broker, Producer { most: 5, ..careful }).end();
        end.expect("the broker lives");
        assert_eq!(careful.sent, [true; 5], "{point}: all are confirmed");
        let queue = broker.queue(QUEUE);
        assert_eq!((&queue["depth"], &queue["duplicates_total"]), (&5.into(), &stored.into()), "{point}");
        broker.kill();
        let books = finish(dir.path(), careful, Consumer::new(QUEUE, 10));
        assert_eq!(times(&books), [1; 5], "{point}");
    }
}

#[test]
fn fs_48_killed_with_a_hundred_in_flight_all_come_back_in_order_and_flagged() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path(), "entry.ack.before_sync=crash", &SMALL);
    let (sent, end) = produce(&broker, producer(300)).end();
    end.expect("the broker lives");
    // Its first acknowledgements kill the broker; by then it has its hundred.
    let worker = consume(&broker, Consumer::new(QUEUE, 100));
    killed(broker);
    let (consumer, end) = worker.end();
    end.expect_err("the broker is gone");
    let before = consumer.received.len();
    assert!(before > 0);
    let books = finish(dir.path(), sent, consumer);
    let again: Vec<_> = books.received[before..].iter().collect();
    assert!(again.iter().map(|receipt| receipt.number).eq(0..300), "all come back, in order");
    assert!(again[..before].iter().all(|receipt| receipt.deliveries > 0), "what was in flight is flagged");
    // A mark covers a range of 256 numbers.
    assert!(again[256..].iter().all(|receipt| receipt.deliveries == 0), "what was in no marked range is not");
}

#[test]
fn fs_49_killed_around_an_acknowledgement_that_wants_a_reply() {
    for (point, gone) in [("entry.ack.before_sync", false), ("entry.ack.after_sync_before_reply", true)] {
        let dir = tempfile::tempdir().unwrap();
        let broker = start(dir.path(), &format!("{point}=crash"), &SMALL);
        let (sent, end) = produce(&broker, producer(1)).end();
        end.expect("the broker lives");
        let worker = consume(&broker, Consumer::new(QUEUE, 1));
        killed(broker);
        let (consumer, end) = worker.end();
        end.expect_err("the broker is gone");
        assert!(!consumer.received[0].acknowledged, "{point}: there was no reply");
        let books = finish(dir.path(), sent, consumer);
        assert_eq!(times(&books), [if gone { 1 } else { 2 }], "{point}");
        assert!(books.received[1..].iter().all(|receipt| receipt.deliveries > 0), "{point}: {:?}", books.received);
    }
}

/// Gives the first message of the queue back as failed, again and again, until the broker is gone. Answers how often.
fn fail_until_it_is_gone(to: SocketAddr) -> usize {
    let refused = |misuse: Misuse| Broken::Refused(misuse.to_string());
    let (mut wire, session) = Wire::open(to, "failing").expect("the broker lives");
    let options = ReceiverOptions { name: "failing", address: QUEUE, presettled: false, credit: 1, token: 0 };
    let link = wire.client.receiver(session, &options).expect("a session stands");
    let mut failed = 0;
    loop {
        let turn = wire.turn(Duration::from_millis(20), |client, event| {
            if let Event::Message(transfer) = event {
                let verdict = Verdict::Modify { failed: true, undeliverable_here: false };
                client.settle(link, transfer.delivery_id, verdict).map_err(refused)?;
                failed += 1;
                // The one behind it stays where it is.
                if failed < DELIVERY_LIMIT {
                    client.grant(link, 1).map_err(refused)?;
                }
            }
            Ok(())
        });
        match turn {
            Ok(()) => {}
            Err(Broken::Lost(_)) => return failed,
            Err(broken) => panic!("{broken:?}"),
        }
    }
}

#[test]
fn fs_56_killed_around_the_move_to_the_dead_letter_queue_it_is_in_one_place() {
    let limit = format!("queues.delivery_limit={DELIVERY_LIMIT}");
    let flags = [&SMALL[..], &["--set", &limit]].concat();
    for (point, moved) in [("entry.relocate.before_sync", false), ("entry.relocate.after_sync", true)] {
        let dir = tempfile::tempdir().unwrap();
        let broker = start(dir.path(), &format!("{point}=crash"), &flags);
        let (sent, end) = produce(&broker, producer(2)).end();
        end.expect("the broker lives");
        assert_eq!(fail_until_it_is_gone(broker.amqp()), DELIVERY_LIMIT, "{point}");
        killed(broker);
        let broker = start(dir.path(), "", &flags);
        let mut received = Vec::new();
        for queue in [QUEUE, "DLQ"] {
            let worker = consume(&broker, Consumer::new(queue, 10));
            broker.until("the queue is empty", |broker| broker.queue(queue)["depth"] == 0);
            let (consumer, end) = worker.stop();
            end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
            let numbers: Vec<u64> = consumer.received.iter().map(|receipt| receipt.number).collect();
            if moved {
                assert_eq!(numbers, [if queue == QUEUE { 1 } else { 0 }], "{point}: {queue}");
            }
            received.extend(consumer.received);
        }
        let mut books = Books { sent: [(1, sent.sent)].into(), received, orderly: Vec::new() };
        assert_eq!(times(&books), [1, 1], "{point}");
        // The dead letter was read last.
        books.received.sort_unstable_by_key(|receipt| receipt.number);
        assert_eq!(books.judge(), Vec::<String>::new(), "{point}");
    }
}

#[test]
fn fs_63_a_torn_or_flipped_last_block_that_nobody_was_told_of_is_cut_off() {
    for torn in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        // One in flight: the third message is stored, and its sender never hears of it.
        let broker = start(dir.path(), "entry.enqueue.after_sync_before_visible=crash@3", &SMALL);
        let worker = produce(&broker, Producer { window: 1, size: 9_000, ..producer(10) });
        killed(broker);
        let (producer, end) = worker.end();
        end.expect_err("the broker is gone");
        assert_eq!(producer.sent, [true, true, false]);
        let segments = Segments::of(&dir.path().join("data"));
        let (file, block) = segments.blocks().pop().unwrap();
        let (of, body) = segments.body(2).expect("it was written");
        assert!(of == file && body > block, "it is in the last block");
        if torn {
            Segments::tear(&file, body + 5_000);
        } else {
            // One wrong bit would say that the block was whole (decision 0007), and cost the message alone.
            Segments::flip(&file, body + 5_000);
            Segments::flip(&file, body + 5_700);
        }
        let books = finish(dir.path(), producer, Consumer::new(QUEUE, 10));
        assert_eq!(times(&books), [1, 1, 0], "torn {torn}");
    }
}

#[test]
fn fs_62_killed_at_each_step_of_a_checkpoint_under_load() {
    for point in ["begin", "mid", "before_switch", "after_switch", "before_delete_old"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut sender, mut consumer) = (producer(usize::MAX), Consumer::new(QUEUE, 200));
        // The second, so that there is an older one to fall back to; then once more on what that left.
        for pass in ["@2", "@1"] {
            let broker = match try_start(dir.path(), &format!("checkpoint.{point}=crash{pass}"), &SMALL) {
                Ok(broker) => broker,
                // A checkpoint may be due at once, before anybody can connect.
                Err(ended) => {
                    assert_eq!(ended.code, None, "a signal ends it: {}", ended.log);
                    continue;
                }
            };
            let (sending, eating) = (produce(&broker, sender), consume(&broker, consumer));
            killed(broker);
            let end;
            (sender, end) = sending.end();
            end.expect_err("the broker is gone");
            let end;
            (consumer, end) = eating.end();
            end.expect_err("the broker is gone");
            consumer.life += 1;
        }
        let books = finish(dir.path(), sender, consumer);
        assert!(books.confirmed() > 1000, "checkpoint.{point}: there was no load: {}", books.confirmed());
    }
}

#[test]
fn fs_64_a_flush_that_fails_once_ends_it_all_and_nothing_confirmed_is_missing() {
    for action in ["disk.sync=error@1", "disk.write=error@1", "checkpoint.before_switch=error@1"] {
        let dir = tempfile::tempdir().unwrap();
        let broker = start(dir.path(), "", &SMALL);
        let worker = produce(&broker, producer(usize::MAX));
        broker.until("confirms come", |_| worker.count() > 500);
        let (name, what) = action.split_once('=').unwrap();
        ask(&broker, "PUT", &format!("/{name}"), what);
        let ended = broker.end();
        assert_eq!(ended.code, Some(70), "{action}: {}", ended.log);
        assert!(ended.last().contains("the storage failed") && ended.last().contains(name), "{}", ended.last());
        let (sent, end) = worker.end();
        end.expect_err("the broker is gone");
        finish(dir.path(), sent, Consumer::new(QUEUE, 300));
    }
}

#[test]
fn a_broken_assertion_ends_the_process_with_134_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path(), "entry.enqueue.before_sync=panic@20", &SMALL);
    let worker = produce(&broker, Producer { window: 2, ..producer(usize::MAX) });
    let ended = broker.end();
    // As a signal or as a code: what a shell shows is 134 both times.
    assert!(matches!(ended.code, None | Some(134)), "{:?}: {}", ended.code, ended.log);
    assert!(ended.log.contains("the failpoint entry.enqueue.before_sync says so"), "{}", ended.log);
    let (sent, end) = worker.end();
    end.expect_err("the broker is gone");
    let books = finish(dir.path(), sent, Consumer::new(QUEUE, 10));
    assert!(books.confirmed() > 0);
}

#[test]
fn a_process_that_stands_still_confirms_nothing_and_goes_on_when_told() {
    const POINT: &str = "entry.enqueue.after_sync_before_visible";
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path(), &format!("{POINT}=pause@10"), &SMALL);
    let worker = produce(&broker, Producer { window: 1, ..producer(50) });
    broker.until("it stands still", |broker| figure(broker, POINT, "waiting") == 1);
    assert_eq!(worker.count(), 9, "the tenth is stored and not confirmed");
    ask(&broker, "DELETE", &format!("/{POINT}"), "");
    let (sent, end) = worker.end();
    end.expect("it goes on");
    assert!(sent.sent.iter().all(|confirmed| *confirmed) && sent.sent.len() == 50);
    broker.kill();
    finish(dir.path(), sent, Consumer::new(QUEUE, 10));
}

#[test]
fn a_slow_flush_costs_time_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(dir.path(), "disk.sync=delay:30@1+", &SMALL);
    let (sent, end) = produce(&broker, producer(2_000)).end();
    end.expect("slow is not broken");
    assert!(figure(&broker, "disk.sync", "passed") > 10);
    broker.kill();
    finish(dir.path(), sent, Consumer::new(QUEUE, 300));
}
