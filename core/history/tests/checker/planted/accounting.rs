//! I12: counters are what clients saw.

use super::*;

fn read(counters: Counters) -> Event<'static> {
    Event::Counters { queue: QUEUE, counters: Counters { quiet: true, ..counters } }
}

#[test]
fn one_too_many_and_one_too_few() {
    let story =
        || Story::of(2).confirmed(10, 0..5).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1));
    assert_eq!(story().at(100, 1, counters(4)).broken(), NOTHING);
    assert_eq!(story().at(100, 1, counters(5)).broken(), [("I12", 1)]);
    assert_eq!(story().at(100, 1, counters(3)).broken(), [("I12", 1)]);
}

#[test]
fn a_negative_one() {
    let loud = Counters { ready: Some(-1), ..Counters::default() };
    assert_eq!(Story::of(1).at(10, 0, Event::Counters { queue: QUEUE, counters: loud }).broken(), [("I12", 1)]);
}

#[test]
fn outcomes_that_nobody_knows_leave_room() {
    let story =
        || Story::of(2).confirmed(10, 0..2).at(20, 0, send(2)).at(25, 0, Event::SentUnknown { message: message(2) });
    assert_eq!(story().at(100, 1, counters(2)).broken(), NOTHING);
    assert_eq!(story().at(100, 1, counters(3)).broken(), NOTHING);
    assert_eq!(story().at(100, 1, counters(4)).broken(), [("I12", 1)]);
    assert_eq!(story().at(100, 1, counters(1)).broken(), [("I12", 1)]);
}

#[test]
fn what_was_received_had_been_stored() {
    let story = Story::of(2).at(20, 0, send(0)).at(25, 0, Event::SentUnknown { message: message(0) });
    let story = story.at(100, 1, counters(0)).at(200, 1, recv(0, 1, 0));
    assert_eq!(story.broken(), [("I12", 1)]);
}

#[test]
fn an_acknowledgement_without_an_answer_counts_while_nobody_dies() {
    let story = || Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    assert_eq!(story().at(100, 1, counters(1)).broken(), [("I12", 1)]);
    assert_eq!(story().at(30, 1, kill()).at(50, 1, start()).at(100, 1, counters(1)).broken(), NOTHING);
    assert_eq!(story().at(30, 1, lost(1)).at(100, 1, counters(1)).broken(), NOTHING);
}

#[test]
fn what_was_sent_later_was_not_there() {
    assert_eq!(Story::of(2).at(5, 1, counters(0)).confirmed(10, 0..1).broken(), NOTHING);
}

#[test]
fn what_may_be_a_dead_letter_or_expired_may_be_there() {
    let failed = Event::Modified {
        message: message(0),
        consumer: 1,
        delivery_failed: true,
        undeliverable_here: false,
        tx: None,
    };
    let Event::Send { message, queue, size_bytes, crc, persistent, delay_ms, priority, tx, .. } = send(0) else {
        unreachable!("that is a send")
    };
    let mortal = Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 9, delay_ms, priority, tx };
    for depth in [0, 1] {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, failed);
        assert_eq!(story.at(100, 1, counters(depth)).broken(), NOTHING);
        let story = Story::of(2).at(10, 0, mortal).at(15, 0, sent_ok(0));
        assert_eq!(story.at(100, 1, counters(depth)).broken(), NOTHING);
    }
}

#[test]
fn a_send_without_any_answer_is_over_when_its_process_or_all_activity_is() {
    let story = || Story::of(2).at(20, 0, send(0));
    let later = |story: Story| story.at(60, 1, drained()).at(100, 1, counters(1)).broken();
    assert_eq!(later(story()), NOTHING, "it may have arrived after the look");
    assert_eq!(later(story().and(&header(0, 1, 40))), [("I12", 1)], "its process had another life by then");
    assert_eq!(later(story().at(50, 1, counters(1))), [("I12", 1)], "nothing was under way by then");
}

#[test]
fn an_empty_queue_is_empty() {
    let story = Story::of(2).at(20, 0, send(0)).at(25, 0, Event::SentUnknown { message: message(0) });
    assert_eq!(story.at(60, 1, drained()).at(100, 1, counters(1)).broken(), [("I12", 1)]);
}

#[test]
fn totals_and_who_holds_what() {
    let story =
        || Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1));
    let right = Counters {
        enqueued: Some(3),
        acknowledged: Some(1),
        dead_lettered: Some(0),
        ready: Some(2),
        acquired: Some(0),
        depth: Some(2),
        quiet: true,
    };
    assert_eq!(story().at(30, 1, detach(1)).at(100, 1, read(right)).broken(), NOTHING);
    for wrong in [
        Counters { enqueued: Some(4), ..right },
        Counters { acknowledged: Some(0), ..right },
        Counters { dead_lettered: Some(1), ..right },
        Counters { acquired: Some(1), ..right },
        Counters { ready: Some(3), ..right },
    ] {
        let broken = story().at(30, 1, detach(1)).at(100, 1, read(wrong)).broken();
        assert_eq!(broken, [("I12", 1)], "{wrong:?}");
    }
    let begun_again = Counters { enqueued: Some(0), acknowledged: Some(0), ..right };
    let story = story().at(30, 1, detach(1)).at(40, 1, kill()).at(50, 1, start());
    assert_eq!(story.at(100, 1, read(begun_again)).broken(), NOTHING);
}
