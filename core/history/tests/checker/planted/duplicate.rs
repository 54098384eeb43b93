//! I3: what was acknowledged, and answered, does not come again.

use super::*;

/// Received by consumer 1 at 20, acknowledged at 21, the answer seen at 25.
fn acknowledged() -> Story {
    two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1))
}

#[test]
fn again_on_another_link() {
    assert_eq!(acknowledged().at(40, 2, recv(0, 2, 1)).broken(), [("I3", 1)]);
    assert_eq!(acknowledged().at(40, 2, recv(0, 2, 0)).broken(), [("I3", 1)]);
}

#[test]
fn again_after_a_crash() {
    let story = acknowledged().at(30, 0, kill()).at(30, 1, lost(1)).at(30, 2, lost(2)).at(35, 0, start());
    let story = story.at(40, 2, attach(3)).at(40, 2, credit(3, 5)).at(45, 2, recv(0, 3, 1));
    assert_eq!(story.broken(), [("I3", 1)]);
}

#[test]
fn without_an_answer_the_acknowledgement_may_be_lost() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    let story = story.at(30, 0, kill()).at(30, 1, lost(1)).at(30, 2, lost(2)).at(35, 0, start());
    let story = story.at(40, 2, attach(3)).at(40, 2, credit(3, 5)).at(45, 2, recv(0, 3, 1));
    assert_eq!(story.broken(), NOTHING);
}

#[test]
fn an_answer_that_came_after_the_second_delivery() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    assert_eq!(story.at(24, 2, recv(0, 2, 1)).at(25, 1, ack_ok(0, 1)).broken(), NOTHING);
}

#[test]
fn an_old_delivery_that_a_stopped_process_reads_late() {
    // Process 2 was stopped with the delivery in its socket; the broker gave the message to consumer 1, one count higher.
    let story = two_consumers().confirmed(10, 0..1).at(2_000, 1, recv(0, 1, 1)).at(2_001, 1, ack(0, 1));
    assert_eq!(story.at(2_005, 1, ack_ok(0, 1)).at(5_000, 2, recv(0, 2, 0)).broken(), NOTHING);
}

#[test]
fn the_same_on_a_link_that_is_too_young_for_it() {
    let story = two_consumers().confirmed(10, 0..1).at(2_000, 1, recv(0, 1, 1)).at(2_001, 1, ack(0, 1));
    let story = story.at(2_005, 1, ack_ok(0, 1)).at(4_000, 2, attach(3)).at(4_000, 2, credit(3, 5));
    assert_eq!(story.at(5_000, 2, recv(0, 3, 0)).broken(), [("I3", 1)]);
}

#[test]
fn the_same_with_credit_that_is_too_young_for_it() {
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(1, 2, attach(2)).at(1, 2, credit(2, 0));
    let story = story.confirmed(10, 0..1).at(2_000, 1, recv(0, 1, 1)).at(2_001, 1, ack(0, 1));
    let story = story.at(2_005, 1, ack_ok(0, 1)).at(4_000, 2, credit(2, 1));
    assert_eq!(story.at(5_000, 2, recv(0, 2, 0)).broken(), [("I3", 1)]);
}

#[test]
fn an_old_delivery_that_was_on_its_way_to_a_link_that_closed() {
    let story = || two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    let closed_before = story().at(15, 2, detach(2)).at(25, 1, ack_ok(0, 1)).at(32, 2, recv(0, 2, 0));
    assert_eq!(closed_before.broken(), NOTHING);
    let closed_after = story().at(25, 1, ack_ok(0, 1)).at(30, 2, detach(2)).at(32, 2, recv(0, 2, 0));
    assert_eq!(closed_after.broken(), [("I3", 1)], "it cannot have gone back before consumer 1 had it");
}

#[test]
fn two_consumers_are_told_that_it_was_theirs() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    let story = story.at(20, 2, recv(0, 2, 1)).at(22, 2, ack(0, 2)).at(25, 1, ack_ok(0, 1));
    assert_eq!(story.at(25, 2, ack_ok(0, 2)).broken(), [("I3", 1)]);
}

#[test]
fn a_dead_letter_as_well() {
    let dead = Event::Dlq { message: message(0), reason: "attempts" };
    assert_eq!(acknowledged().at(40, 2, dead).broken(), [("I3", 1)]);
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    assert_eq!(story.at(40, 2, dead).broken(), NOTHING);
}
