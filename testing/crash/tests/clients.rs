//! FS-57 and FS-97 on the real process: what an application has seen, and what a client only had ahead.

use packhorse_client_core::Verdict;
use packhorse_crash::{Broker, Producer, Read, Reader};
use std::sync::atomic::{AtomicBool, AtomicU64};

const QUEUE: &str = "orders";

/// A broker with a queue of this limit, and so many messages in it.
fn filled(dir: &std::path::Path, limit: u32, messages: usize) -> Broker {
    let broker = Broker::start(dir, &[]);
    let path = format!("/api/v1/queues/{QUEUE}");
    let (status, answer) = broker.request("PUT", &path, &format!(r#"{{"max_deliveries":{limit}}}"#));
    assert_eq!(status, 201, "{answer}");
    let mut producer = Producer { most: messages, ..Producer::new(1, QUEUE, 100, 200) };
    producer.run(broker.amqp(), &AtomicBool::new(false), &AtomicU64::new(0)).expect("the broker takes them");
    broker
}

fn numbers(read: &[Read]) -> Vec<u64> {
    read.iter().map(|one| one.number).collect()
}

fn only_dead_letter(broker: &Broker, number: u64) {
    broker.until("it is a dead letter", |broker| broker.queue("DLQ")["ready"] == 1);
    let dead = Reader::open(broker, "DLQ", 10).and_then(|mut reader| reader.take(1)).expect("it is there");
    assert_eq!((dead[0].number, dead[0].reason.as_deref()), (number, Some("delivery-limit")));
}

#[test]
fn fs_57_only_what_the_application_saw_counts_towards_the_limit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = filled(dir.path(), 3, 10);
    let mut reader = Reader::open(&broker, QUEUE, 10).expect("the broker lives");
    for attempt in 0..3 {
        let came = reader.take(10).expect("they come");
        assert_eq!(numbers(&came), (0..10).collect::<Vec<_>>());
        assert_eq!(came[0].deliveries, attempt);
        assert!(came[1..].iter().all(|one| one.deliveries == 0), "never seen, never redelivered");
        for one in came[1..].iter().rev() {
            reader.decide(one, Verdict::Release).expect("ours");
        }
        reader.decide(&came[0], Verdict::Modify { failed: true, undeliverable_here: false }).expect("ours");
        reader.answered().expect("the broker answers");
        reader.grant(10).expect("a link of ours");
    }
    let came = reader.take(9).expect("they come");
    assert_eq!(numbers(&came), (1..10).collect::<Vec<_>>());
    assert!(came.iter().all(|one| one.deliveries == 0), "for the first time: {came:?}");
    only_dead_letter(&broker, 0);
}

#[test]
fn fs_97_a_client_that_dies_on_its_oldest_message_loses_only_that_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = filled(dir.path(), 10, 150);
    for life in 1..=12 {
        let mut reader = Reader::open(&broker, QUEUE, 100).expect("the broker lives");
        let came = reader.take(100).expect("they come");
        assert_eq!(came[0].number, u64::from(life > 10), "the tenth time is the last");
        drop(reader);
        broker.until("it is gone", |broker| broker.queue(QUEUE)["acquired"] == 0);
    }
    only_dead_letter(&broker, 0);
    assert_eq!(broker.queue(QUEUE)["depth"], 149, "nothing is deleted");
    let mut reader = Reader::open(&broker, QUEUE, 149).expect("the broker lives");
    assert_eq!(numbers(&reader.take(149).expect("they come")), (1..150).collect::<Vec<_>>());
}
