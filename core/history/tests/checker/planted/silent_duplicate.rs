//! I4: what comes again says so.

use super::*;

#[test]
fn the_second_one_looks_like_the_first() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, lost(1));
    assert_eq!(story.at(40, 2, recv(0, 2, 0)).broken(), [("I4", 1)]);
}

#[test]
fn a_crash_is_no_excuse() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    let story = story.at(30, 0, kill()).at(30, 1, lost(1)).at(30, 2, lost(2)).at(35, 0, start());
    let story = story.at(40, 2, attach(3)).at(40, 2, credit(3, 5));
    assert_eq!(story.at(45, 2, recv(0, 3, 0)).broken(), [("I4", 1)]);
}

#[test]
fn flagged_or_counted_is_not_silent() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, lost(1));
    assert_eq!(story.at(40, 2, recv(0, 2, 1)).broken(), NOTHING);
}

#[test]
fn given_back_unseen() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, release(0, 1));
    assert_eq!(story.at(40, 2, recv(0, 2, 0)).broken(), NOTHING);
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, detach(1));
    assert_eq!(story.at(40, 2, recv(0, 2, 0)).broken(), NOTHING);
    let declined = |delivery_failed| Event::Modified {
        message: message(0),
        consumer: 1,
        delivery_failed,
        undeliverable_here: true,
        tx: None,
    };
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, declined(false));
    assert_eq!(story.at(40, 2, recv(0, 2, 0)).broken(), NOTHING);
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(25, 1, declined(true));
    assert_eq!(story.at(40, 2, recv(0, 2, 0)).broken(), [("I4", 1)]);
}

#[test]
fn given_back_too_late_for_it() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(40, 2, recv(0, 2, 0));
    assert_eq!(story.at(50, 1, release(0, 1)).broken(), [("I4", 1)]);
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(40, 2, recv(0, 2, 0));
    assert_eq!(story.at(50, 1, detach(1)).broken(), [("I4", 1)]);
}

#[test]
fn an_orderly_end_returns_only_what_was_not_acknowledged() {
    let story = two_consumers().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
    assert_eq!(story.at(25, 1, detach(1)).at(40, 2, recv(0, 2, 0)).broken(), [("I4", 1)]);
}
