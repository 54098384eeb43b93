//! I5: of what is ready the higher priority comes first.

use super::*;

fn of(sequence: u64, priority: u8, persistent: bool) -> Event<'static> {
    let (message, queue) = (message(sequence), QUEUE);
    let (size_bytes, crc, ttl_ms, delay_ms, tx) = (100, 5, 0, 0, None);
    Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx }
}

/// Two messages, confirmed at 15, before there is credit at `credit_at`; the one of a low priority comes first.
fn low_first(high: u8, persistent: bool, credit_at: u64) -> Story {
    let story = Story::of(2).at(1, 1, attach(1)).at(10, 0, of(0, 4, true)).at(11, 0, of(1, high, persistent));
    let story = story.at(15, 0, sent_ok(0)).at(15, 0, sent_ok(1)).at(credit_at, 1, credit(1, 10));
    let story = story.at(40, 1, recv(0, 1, 0)).at(41, 1, recv(1, 1, 0));
    story.at(42, 1, ack(0, 1)).at(43, 1, ack(1, 1)).at(50, 1, drained())
}

#[test]
fn one_of_a_higher_priority_that_is_ready_comes_first() {
    assert_eq!(low_first(9, true, 20).broken(), [("I5", 1)]);
    assert_eq!(low_first(5, true, 20).broken(), [("I5", 1)]);
}

#[test]
fn not_if_it_is_not_higher_or_nobody_knows_that_it_was_ready_in_time() {
    assert_eq!(low_first(4, true, 20).broken(), NOTHING);
    assert_eq!(low_first(3, true, 20).broken(), NOTHING);
    assert_eq!(low_first(9, true, 14).broken(), NOTHING, "it came when the other one was on its way");
    assert_eq!(low_first(9, false, 20).broken(), NOTHING, "its confirm does not say that it is visible");
}

#[test]
fn not_if_another_link_may_have_held_it_unread() {
    let held = Story::of(3).at(1, 2, attach(2)).at(2, 2, credit(2, 10)).at(10, 0, of(0, 9, true));
    let held = held.at(12, 0, sent_ok(0)).at(10, 0, of(1, 4, true)).at(12, 0, sent_ok(1)).at(20, 1, attach(1));
    let held = held.at(21, 1, credit(1, 10)).at(30, 2, detach(2)).at(40, 1, recv(1, 1, 0));
    let held = held.at(41, 1, recv(0, 1, 0)).at(42, 1, ack(0, 1)).at(43, 1, ack(1, 1));
    assert_eq!(held.broken(), NOTHING);
}

#[test]
fn not_if_it_has_come_back_or_an_operator_was_at_the_queue() {
    let back = low_first(9, true, 20);
    let purge = |messages| Event::Purge { operation: 1, queue: QUEUE, deletes: false, messages };
    assert_eq!(back.at(60, 0, purge(None)).at(61, 0, purge(Some(0))).broken(), NOTHING);
    let story = two_consumers().at(10, 0, of(0, 9, true)).at(11, 0, sent_ok(0)).at(12, 2, recv(0, 2, 0));
    let story = story.at(13, 0, of(1, 4, true)).at(14, 0, sent_ok(1)).at(20, 1, credit(1, 20));
    let story = story.at(21, 1, recv(1, 1, 0)).at(22, 2, release(0, 2)).at(30, 1, recv(0, 1, 0));
    assert_eq!(story.at(31, 1, ack(0, 1)).at(32, 1, ack(1, 1)).broken(), NOTHING);
}
