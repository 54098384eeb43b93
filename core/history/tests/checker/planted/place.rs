//! I8: each message in one place.

use super::*;

fn survey(start: bool) -> Event<'static> {
    Event::Survey { start }
}

fn present(sequence: u64, queue: &'static str) -> Event<'static> {
    Event::Present { message: message(sequence), queue }
}

/// Three confirmed, the first of them consumed.
fn three() -> Story {
    Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(22, 1, ack_ok(0, 1))
}

#[test]
fn a_message_in_two_places() {
    let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, QUEUE));
    assert_eq!(story.at(53, 1, present(2, "other")).at(54, 1, survey(false)).broken(), [("I8", 1)]);
}

#[test]
fn a_message_in_no_place() {
    let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(54, 1, survey(false));
    assert_eq!(story.broken(), [("I8", 1)]);
}

#[test]
fn each_in_one_place_whatever_its_queue() {
    let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, "DLQ"));
    assert_eq!(story.at(54, 1, survey(false)).broken(), NOTHING);
}

#[test]
fn a_survey_that_is_not_complete_says_nothing() {
    assert_eq!(three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).broken(), NOTHING);
}

#[test]
fn what_nobody_knows_for_certain_may_be_missing() {
    // Not confirmed; acknowledged without an answer; found as a dead letter; not persistent over an end of the broker.
    let story = Story::of(2).at(10, 0, send(0)).confirmed(11, 1..3);
    let story = story.at(20, 1, recv(1, 1, 0)).at(21, 1, ack(1, 1));
    let story = story.at(22, 1, Event::Dlq { message: message(2), reason: "rejected" });
    let Event::Send { message: id, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } = send(3) else {
        panic!("a send")
    };
    let volatile =
        Event::Send { message: id, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx };
    let story = story.at(23, 0, volatile).at(24, 0, sent_ok(3)).at(30, 1, kill()).at(40, 1, start());
    assert_eq!(story.at(50, 1, survey(true)).at(54, 1, survey(false)).broken(), NOTHING);
}

#[test]
fn each_survey_is_judged_by_itself() {
    let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, QUEUE));
    let story = story.at(54, 1, survey(false)).at(60, 1, survey(true)).at(61, 1, present(2, QUEUE));
    assert_eq!(story.at(64, 1, survey(false)).broken(), [("I8", 1)]);
}
