//! I1: what is confirmed comes to an end that somebody knows.

use super::*;

#[test]
fn a_confirmed_message_that_nobody_gets() {
    let story = Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    let story = story.at(22, 1, recv(2, 1, 0)).at(23, 1, ack(2, 1));
    assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
}

#[test]
fn without_a_confirm_it_may_be_gone() {
    let story = Story::of(2).at(10, 0, send(0)).at(11, 0, send(1));
    let story = story.at(12, 0, Event::SentUnknown { message: message(1) });
    assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
}

#[test]
fn what_was_received_was_stored_and_may_not_be_gone_either() {
    let seen = |send: Event<'static>| Story::of(2).at(10, 0, send).at(20, 1, recv(0, 1, 0)).at(25, 1, lost(1));
    let empty = |story: Story| story.at(50, 1, drained()).at(60, 1, drained_of("DLQ"));
    assert_eq!(empty(seen(send(0))).broken(), [("I1", 1)]);
    assert_eq!(empty(seen(send(0)).at(26, 0, Event::SentUnknown { message: message(0) })).broken(), [("I1", 1)]);
    assert_eq!(empty(seen(volatile(0))).broken(), NOTHING, "one that is not persistent is not safe then");
    assert_eq!(empty(seen(send(0)).at(40, 1, recv(0, 2, 1)).at(41, 1, ack(0, 2))).broken(), NOTHING);
    assert_eq!(seen(send(0)).at(50, 1, drained()).broken(), NOTHING, "it may be a dead letter");
    let acknowledged = Story::of(2).at(10, 0, send(0)).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    assert_eq!(empty(acknowledged).broken(), NOTHING);
}

#[test]
fn a_confirm_after_the_look_says_nothing() {
    assert_eq!(Story::of(2).at(5, 1, drained()).confirmed(10, 0..1).broken(), NOTHING);
}

#[test]
fn a_queue_that_nobody_saw_empty_is_not_judged_and_the_report_says_so() {
    let report = Story::of(1).confirmed(10, 0..4).check();
    assert!(report.is_clean());
    assert_eq!(report.totals.not_judged_for_loss, 4);
    assert!(report.notes().iter().any(|note| note.starts_with("4 confirmed messages were not judged")), "{report}");
}

#[test]
fn an_acknowledgement_without_an_answer_is_an_end() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(22, 1, lost(1));
    assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
}

#[test]
fn a_returned_message_that_does_not_come_back() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, release(0, 1));
    let story = story.at(50, 1, drained()).at(60, 1, drained_of("DLQ"));
    assert_eq!(story.broken(), [("I1", 1)]);
}

#[test]
fn a_returned_message_may_be_a_dead_letter_while_nobody_looked() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, lost(1));
    assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0));
    let story = story.at(21, 1, Event::Reject { message: message(0), consumer: 1, tx: None });
    let story = story.at(30, 1, Event::Dlq { message: message(0), reason: "rejected" });
    assert_eq!(story.at(50, 1, drained()).at(60, 1, drained_of("DLQ")).broken(), NOTHING);
}

#[test]
fn a_rejected_message_that_is_no_dead_letter() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0));
    let story = story.at(21, 1, Event::Reject { message: message(0), consumer: 1, tx: None });
    assert_eq!(story.at(50, 1, drained()).at(60, 1, drained_of("DLQ")).broken(), [("I1", 1)]);
}

#[test]
fn a_dead_letter_queue_that_was_empty_before_says_nothing() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, lost(1));
    assert_eq!(story.at(40, 1, drained_of("DLQ")).at(50, 1, drained()).broken(), NOTHING);
}

#[test]
fn a_delivery_that_seems_to_come_before_it_was_sent_counts() {
    let story = Story::of(2).at(20, 1, recv(0, 1, 0)).at(22, 1, ack(0, 1)).confirmed(21, 0..1);
    assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
}

#[test]
fn numbers_with_gaps() {
    let story = Story::of(2).confirmed(10, 3..4).confirmed(20, 7..9).confirmed(30, 1_000..1_001);
    let story = story.at(40, 1, recv(3, 1, 0)).at(41, 1, ack(3, 1)).at(42, 1, recv(8, 1, 0)).at(43, 1, ack(8, 1));
    let story = story.at(44, 1, recv(1_000, 1, 0)).at(45, 1, ack(1_000, 1));
    assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)], "7 is lost");
    assert_eq!(Story::of(2).confirmed(10, 3..4).confirmed(20, 7..8).at(40, 1, recv(5, 1, 0)).broken(), [("I2", 1)]);
}

fn volatile(sequence: u64) -> Event<'static> {
    match send(sequence) {
        Event::Send { message, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } => {
            Event::Send { message, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx }
        }
        other => other,
    }
}

#[test]
fn a_message_that_is_not_persistent_survives_no_end_of_the_broker_but_everything_else() {
    let story = Story::of(2).at(10, 0, volatile(0)).at(12, 0, sent_ok(0));
    assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
    let story = Story::of(2).at(10, 0, volatile(0)).at(12, 0, sent_ok(0)).at(20, 1, kill()).at(30, 1, start());
    assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
    let story = Story::of(2).at(1, 1, kill()).at(5, 1, start()).at(10, 0, volatile(0)).at(12, 0, sent_ok(0));
    assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
}

fn with_ttl(sequence: u64) -> Event<'static> {
    match send(sequence) {
        Event::Send { message, queue, size_bytes, crc, persistent, delay_ms, priority, tx, .. } => {
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 100, delay_ms, priority, tx }
        }
        other => other,
    }
}

#[test]
fn a_message_with_a_time_to_live_is_lost_only_if_the_expiry_queue_lacks_it() {
    let story = || Story::of(2).at(10, 0, with_ttl(0)).at(12, 0, sent_ok(0)).at(500, 1, drained());
    assert_eq!(story().broken(), NOTHING);
    assert_eq!(story().at(510, 1, drained_of("Expiry")).broken(), [("I1", 1)]);
    let found = story().at(505, 1, Event::Expired { message: message(0) });
    assert_eq!(found.at(510, 1, drained_of("Expiry")).broken(), NOTHING);
}

#[test]
fn what_was_on_its_way_to_a_presettled_link_counts_as_acknowledged_or_not() {
    let presettled = Event::Attach { consumer: 1, queue: QUEUE, presettled: true, filtered: false };
    let count = |acknowledged| {
        let story = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
        let story = story.at(20, 1, detach(1));
        let counters = Counters { quiet: true, acknowledged: Some(acknowledged), ..Counters::default() };
        story.at(40, 1, Event::Counters { queue: QUEUE, counters }).broken()
    };
    assert_eq!(count(0), NOTHING);
    assert_eq!(count(1), NOTHING);
    assert_eq!(count(2), [("I12", 1)]);
}

#[test]
fn what_was_on_its_way_to_a_presettled_link_that_broke_is_gone_rightly() {
    let presettled = Event::Attach { consumer: 1, queue: QUEUE, presettled: true, filtered: false };
    let story = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
    assert_eq!(story.at(20, 1, lost(1)).at(50, 1, drained()).broken(), NOTHING);
    let story = || Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10));
    let late = story().at(5, 1, lost(1)).confirmed(2_000, 0..1);
    assert_eq!(late.at(2_050, 1, drained()).broken(), [("I1", 1)], "the broker knew by then");
    let dead = story().at(4, 1, kill()).at(5, 1, lost(1)).at(6, 1, start()).confirmed(10, 0..1);
    assert_eq!(dead.at(50, 1, drained()).broken(), [("I1", 1)], "the link died with its broker");
    let closed = story().confirmed(10, 0..1).at(20, 1, detach(1));
    assert_eq!(closed.at(50, 1, drained()).broken(), NOTHING, "it was on its way when the link closed");
    let answered = story().confirmed(10, 0..1).at(20, 1, detach(1)).at(22, 1, detached(1));
    assert_eq!(answered.at(50, 1, drained()).broken(), [("I1", 1)], "it read everything and this was not among it");
    let used_up = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 1)).confirmed(10, 0..2);
    let used_up = used_up.at(15, 1, recv(0, 1, 0)).at(20, 1, detach(1));
    assert_eq!(used_up.at(50, 1, drained()).broken(), [("I1", 1)], "it had had all that it may have");
}
