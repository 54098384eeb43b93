//! I10: counts and flags do not go down.

use super::*;

#[test]
fn lower_after_a_restart() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 2)).at(30, 0, kill()).at(30, 1, lost(1));
    let story = story.at(30, 2, lost(2)).at(35, 0, start()).at(40, 2, attach(3)).at(40, 2, credit(3, 5));
    assert_eq!(story.at(45, 2, recv(0, 3, 1)).broken(), [("I10", 1)]);
}

#[test]
fn the_flag_is_gone_on_the_same_link() {
    let flagged = |redelivered| Event::Recv {
        message: message(0),
        consumer: 1,
        queue: QUEUE,
        delivery_count: 1,
        redelivered,
        crc_ok: true,
        tx: None,
    };
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, flagged(true)).at(21, 1, release(0, 1));
    assert_eq!(story.at(22, 1, flagged(false)).broken(), [("I10", 1)]);
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, flagged(true)).at(21, 1, release(0, 1));
    assert_eq!(story.at(22, 1, flagged(true)).broken(), NOTHING);
}

#[test]
fn higher_or_the_same_is_right() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 1)).at(30, 0, kill()).at(30, 1, lost(1));
    let story = story.at(30, 2, lost(2)).at(35, 0, start()).at(40, 2, attach(3)).at(40, 2, credit(3, 5));
    assert_eq!(story.at(45, 2, recv(0, 3, 2)).broken(), NOTHING);
}

#[test]
fn a_lower_one_that_may_have_been_sent_before() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 1)).at(45, 2, recv(0, 2, 0));
    assert_eq!(story.broken(), NOTHING);
}
