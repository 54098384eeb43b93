//! I2: what a link gave back as undeliverable here.

use super::*;

fn declined(consumer: u32, failed: bool, here: bool) -> Event<'static> {
    Event::Modified { message: message(0), consumer, delivery_failed: failed, undeliverable_here: here, tx: None }
}

fn again(failed: bool, here: bool, consumer: u32) -> Story {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, declined(1, failed, here));
    let count = u32::from(failed);
    let process = consumer as usize;
    let story = story.at(30, process, recv(0, consumer, count)).at(31, process, ack(0, consumer));
    story.at(50, 1, drained()).at(51, 1, drained_of("DLQ"))
}

#[test]
fn what_a_link_gave_back_as_undeliverable_here_does_not_come_to_it_again() {
    assert_eq!(again(false, true, 1).broken(), [("I2", 1)]);
    assert_eq!(again(true, true, 1).broken(), [("I2", 1)]);
}

#[test]
fn it_may_come_to_another_link_and_what_was_given_back_otherwise_to_the_same() {
    assert_eq!(again(false, true, 2).broken(), NOTHING);
    assert_eq!(again(true, true, 2).broken(), NOTHING);
    assert_eq!(again(false, false, 1).broken(), NOTHING);
    assert_eq!(again(true, false, 1).broken(), NOTHING);
}

#[test]
fn after_a_move_nobody_says_that_any_more() {
    let there = |messages| Event::Move { operation: 1, queue: QUEUE, target: "other", messages };
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, declined(1, false, true));
    let story = story.at(22, 0, there(None)).at(25, 0, there(Some(1))).at(30, 1, recv(0, 1, 0));
    assert_eq!(story.at(31, 1, ack(0, 1)).broken(), NOTHING);
}
