//! What befalls one of several brokers.

use super::*;
use packhorse_history::BrokerChange;

fn host(queue: &'static str, broker: &'static str) -> Event<'static> {
    Event::Host { queue, broker }
}

fn node(broker: &'static str, change: BrokerChange) -> Event<'static> {
    Event::Node { broker, change }
}

fn two() -> Story {
    Story::of(2).at(0, 1, host(QUEUE, "a")).at(0, 1, host("elsewhere", "b"))
}

#[test]
fn the_end_of_another_broker_is_no_excuse() {
    let volatile = |sequence| match send(sequence) {
        Event::Send { message, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } => {
            Event::Send { message, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx }
        }
        other => other,
    };
    let story = |broker| {
        let story = two().at(10, 0, volatile(0)).at(12, 0, sent_ok(0)).at(20, 1, node(broker, BrokerChange::Kill));
        story.at(30, 1, node(broker, BrokerChange::Start)).at(50, 1, drained()).broken()
    };
    assert_eq!(story("b"), [("I1", 1)]);
    assert_eq!(story("a"), NOTHING);
}

#[test]
fn a_fault_of_another_broker_explains_no_silence() {
    let story = |target| {
        let mut story = two().at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
        story = story.at(20, 0, Event::Fault { kind: "pause", target, start: true });
        for ms in (30..3_000).step_by(50) {
            story = story.at(ms, 1, Event::Tick);
        }
        story.broken()
    };
    assert_eq!(story("b"), [("I9", 1)]);
    assert_eq!(story("a"), NOTHING);
    assert_eq!(story("somewhere"), NOTHING);
}
