//! FS-58 on the real process: a client that kills the broker whenever it gets one certain message (`docs/decisions/0010-poison-guard.md`).

use packhorse_client_core::{BodySection, Event, Joiner, Limits, MessageView, ReceiverOptions, Verdict};
use packhorse_crash::{Broken, Broker, Producer, Wire};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

const QUEUE: &str = "orders";
const MESSAGES: u64 = 24;
const POISON: u64 = 9;
const TURN: Duration = Duration::from_millis(20);

/// A message as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    deliveries: u32,
    reason: Option<String>,
}

fn read(message: &[u8]) -> Seen {
    let view = MessageView::parse(message, &Limits::default()).expect("a message");
    let data = view.body().find_map(|section| match section {
        BodySection::Data(bytes) => Some(bytes),
        _ => None,
    });
    // A body of the books: CRC, a word, the producer, the number.
    let number = data.and_then(|bytes| bytes.get(12..20)).expect("a body of the books");
    let number = u64::from_be_bytes(number.try_into().expect("8 bytes"));
    let reason = view.message_annotations().and_then(|map| map.get("x-opt-packhorse-reason"));
    let reason = reason.and_then(|value| value.as_str()).map(str::to_string);
    Seen { number, deliveries: view.header().delivery_count.unwrap_or(0), reason }
}

/// Takes messages from a queue one by one and accepts each, until `count` of them are accepted for sure or the message `last`
/// comes, which it leaves open. What came, in order; and the connection, which still stands.
fn take(
    broker: &Broker,
    queue: &str,
    credit: u32,
    count: usize,
    last: Option<u64>,
) -> Result<(Vec<Seen>, Wire), Broken> {
    let (mut wire, session) = Wire::open(broker.amqp(), "poisoned")?;
    let options = ReceiverOptions { name: "in", address: queue, presettled: false, credit, token: 0 };
    let link = wire.client.careful_receiver(session, &options).expect("a link");
    let mut joiner = Joiner::default();
    let (mut seen, mut sure, mut reached): (Vec<Seen>, usize, bool) = (Vec::new(), 0, false);
    while sure < count && !reached {
        wire.turn(TURN, |client, event| {
            match event {
                Event::Message(transfer) if !reached => {
                    let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
                    let message = read(bytes);
                    reached = Some(message.number) == last;
                    seen.push(message);
                    if !reached {
                        client.decide(link, transfer.delivery_id, Verdict::Accept).expect("a delivery of ours");
                    }
                }
                Event::Confirmed => sure += client.outcomes().len(),
                _ => {}
            }
            Ok(())
        })?;
        if wire.client.credit(link) == 0 {
            wire.client.grant(link, credit).expect("a link of ours");
        }
    }
    Ok((seen, wire))
}

fn filled(dir: &Path) {
    let broker = Broker::start(dir, &[]);
    let mut producer = Producer { most: MESSAGES as usize, ..Producer::new(1, QUEUE, 100, 60) };
    producer.run(broker.amqp(), &AtomicBool::new(false), &AtomicU64::new(0)).expect("the broker takes them");
    broker.kill();
}

fn numbers(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|message| message.number).collect()
}

/// Starts the broker, takes messages until the poison comes, and kills the broker.
fn life(dir: &Path, credit: u32) -> Vec<Seen> {
    let broker = Broker::start(dir, &[]);
    let (seen, wire) = take(&broker, QUEUE, credit, usize::MAX, Some(POISON)).expect("the broker lives so far");
    broker.kill();
    drop(wire);
    seen
}

#[test]
fn fs_58_a_message_that_kills_the_broker_four_times_is_quarantined_at_the_fifth_start() {
    // One by one, and all of them at once.
    for credit in [1, 100] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        filled(dir.path());
        let mut taken = Vec::new();
        for start in 1..=4 {
            let seen = life(dir.path(), credit);
            let poison = seen.last().expect("it comes");
            assert_eq!((poison.number, poison.deliveries), (POISON, start - 1), "credit {credit} start {start}");
            taken.extend(numbers(&seen));
        }
        let broker = Broker::start(dir.path(), &[]);
        broker.until("it is a dead letter", |broker| broker.queue("DLQ")["depth"] == 1);
        let left = (MESSAGES - POISON - 1) as usize;
        assert_eq!(broker.queue(QUEUE)["depth"], left, "credit {credit}\n{}", broker.log_tail());
        let (seen, _wire) = take(&broker, QUEUE, credit, left, None).expect("the broker lives on");
        assert_eq!(numbers(&seen), (POISON + 1..MESSAGES).collect::<Vec<_>>(), "the others flow, in order");
        let (dead, _wire) = take(&broker, "DLQ", 1, 1, None).expect("the broker lives on");
        let expected = Seen { number: POISON, deliveries: 0, reason: Some("broker-crash".into()) };
        assert_eq!(dead, [expected]);
        broker.logged(&["did not stop in order"]);
        broker.logged(&["is quarantined"]);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken, (0..=POISON).collect::<Vec<_>>(), "what came before it was taken, credit {credit}");
    }
}

#[test]
fn what_is_accepted_at_the_fourth_time_was_no_poison() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    filled(dir.path());
    for _ in 0..3 {
        life(dir.path(), 100);
    }
    let broker = Broker::start(dir.path(), &[]);
    // Acknowledgements of those before it may have died with the broker: nobody had an answer.
    let left = broker.queue(QUEUE)["depth"].as_u64().expect("a number");
    let first = MESSAGES - left;
    assert!(first <= POISON, "{left} messages are left");
    let (seen, _wire) = take(&broker, QUEUE, 100, left as usize, None).expect("the broker lives on");
    assert_eq!(numbers(&seen), (first..MESSAGES).collect::<Vec<_>>());
    assert_eq!(seen[(POISON - first) as usize].deliveries, 3);
    assert!(seen.iter().all(|message| message.deliveries > 0), "all may have been delivered before: {seen:?}");
    assert_eq!(broker.queue("DLQ")["depth"], serde_json::Value::Null, "there is no dead letter");
}
