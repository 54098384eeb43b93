//! I5: first deliveries in the order of sending.

use super::*;

#[test]
fn swapped_on_one_link() {
    let story = two_consumers().confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, recv(2, 1, 0));
    assert_eq!(story.at(22, 1, recv(1, 1, 0)).broken(), [("I5", 1)]);
}

#[test]
fn a_return_to_its_place_is_no_first_delivery() {
    let story = two_consumers().confirmed(10, 0..3).at(20, 2, recv(0, 2, 0)).at(21, 1, recv(1, 1, 0));
    let story = story.at(22, 1, recv(2, 1, 0)).at(30, 2, release(0, 2)).at(35, 1, recv(0, 1, 0));
    assert_eq!(story.broken(), NOTHING);
    let story = two_consumers().confirmed(10, 0..2).at(20, 1, recv(1, 1, 0)).at(35, 1, recv(0, 1, 1));
    assert_eq!(story.broken(), NOTHING, "one that is flagged was with somebody before");
}

#[test]
fn what_was_sent_again_may_be_late_where_messages_are_refused() {
    // The second is answered first, the first when its client has sent it again; the third is refused, or not.
    let story = |again: bool, refused: bool, browses: bool| {
        let mut story = two_consumers().at(10, 0, send(0)).at(10, 0, send(1)).at(10, 0, send(2)).at(11, 0, sent_ok(1));
        story = if again { story.at(12, 0, Event::SentUnknown { message: message(0) }) } else { story };
        story = if refused {
            story.at(13, 0, Event::SentRejected { message: message(2), reason: "full" })
        } else {
            story.at(13, 0, sent_ok(2))
        };
        story = story.at(18, 0, sent_ok(0));
        if browses {
            let shown = |n| Event::Browsed { message: message(n), consumer: 9, crc_ok: true };
            let browser = Event::Browser { consumer: 9, queue: QUEUE };
            return story.at(20, 2, browser).at(21, 2, shown(1)).at(22, 2, shown(0)).broken();
        }
        story.at(20, 1, recv(1, 1, 0)).at(30, 1, recv(0, 1, 0)).broken()
    };
    for browses in [false, true] {
        assert_eq!(story(true, true, browses), NOTHING);
        assert_eq!(story(true, false, browses), [("I5", 1)], "nothing says that the first was refused");
        assert_eq!(story(false, true, browses), [("I5", 1)], "it was sent once");
    }
}

#[test]
fn what_came_back_before_a_link_began_comes_before_what_was_sent_later() {
    // The link that held the first one ends, and is answered at 30; another one begins then or before.
    let ended = |began: u64, released: bool, answered: bool| {
        let mut story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..3);
        if began < 20 {
            story = story.at(began, 2, attach(2)).at(began, 2, credit(2, 10));
        }
        story = story.at(20, 1, recv(0, 1, 0));
        story = if released { story.at(21, 1, release(0, 1)) } else { story };
        story = story.at(25, 1, detach(1));
        story = if answered { story.at(30, 1, detached(1)) } else { story };
        if began >= 20 {
            story = story.at(began, 2, attach(2)).at(began, 2, credit(2, 10));
        }
        story.at(40, 2, recv(1, 2, 0)).at(41, 2, recv(0, 2, 0))
    };
    assert_eq!(ended(35, true, true).broken(), [("I5", 1)]);
    assert_eq!(ended(35, false, true).broken(), [("I5", 1)], "the end of the link gave it back");
    assert_eq!(ended(35, true, false).broken(), NOTHING, "nobody knows when");
    assert_eq!(ended(5, true, true).broken(), NOTHING, "the other one was on its way before");
}

#[test]
fn what_was_on_its_way_to_a_link_that_closed_went_back_unseen() {
    let story = two_consumers().confirmed(10, 0..2).at(20, 1, recv(1, 1, 0)).at(25, 2, detach(2));
    assert_eq!(story.at(30, 1, recv(0, 1, 0)).broken(), NOTHING);
    let over = Event::Detached { consumer: 2 };
    let story = two_consumers().at(5, 2, detach(2)).at(7, 2, over).confirmed(10, 0..2).at(20, 1, recv(1, 1, 0));
    assert_eq!(story.at(30, 1, recv(0, 1, 0)).broken(), [("I5", 1)], "it closed before they were sent");
    let story =
        two_consumers().confirmed(10, 0..2).at(20, 1, recv(1, 1, 0)).at(25, 2, detach(2)).at(26, 2, detached(2));
    assert_eq!(story.at(30, 1, recv(0, 1, 0)).broken(), [("I5", 1)], "it read everything and this was not among it");
}

#[test]
fn a_link_that_closed_can_have_held_only_what_it_had_credit_and_time_for() {
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..2);
    let story = story.at(20, 1, recv(1, 1, 0)).at(25, 2, attach(2)).at(25, 2, credit(2, 10)).at(28, 2, detach(2));
    assert_eq!(story.at(30, 1, recv(0, 1, 0)).broken(), [("I5", 1)], "it came too late");
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(1, 2, attach(2)).at(1, 2, credit(2, 1));
    let story = story.confirmed(10, 0..3).at(20, 1, recv(1, 1, 0)).at(21, 2, recv(2, 2, 0)).at(25, 2, detach(2));
    assert_eq!(story.at(30, 1, recv(0, 1, 0)).broken(), [("I5", 1)], "its credit was used up");
}

#[test]
fn a_delayed_message_has_no_place_in_the_order() {
    let delayed = match send(0) {
        Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, priority, tx, .. } => {
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms: 20, priority, tx }
        }
        other => other,
    };
    let story = two_consumers().at(10, 0, delayed).at(11, 0, send(1)).at(20, 1, recv(1, 1, 0));
    assert_eq!(story.at(40, 1, recv(0, 1, 0)).broken(), NOTHING);
}

#[test]
fn priorities_producers_and_queues_have_orders_of_their_own() {
    let Event::Send { queue, size_bytes, crc, persistent, ttl_ms, delay_ms, tx, .. } = send(0) else {
        unreachable!("that is a send")
    };
    let with =
        |message, priority| Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx };
    let story = two_consumers().at(10, 0, with(message(0), 1)).at(11, 0, with(message(1), 9));
    let story = story.at(20, 1, recv(1, 1, 0)).at(21, 1, recv(0, 1, 0));
    assert_eq!(story.broken(), NOTHING);
    let other = MessageId::new(2, 0);
    let from_other = Event::Recv {
        message: other,
        consumer: 1,
        queue: QUEUE,
        delivery_count: 0,
        redelivered: false,
        crc_ok: true,
        tx: None,
    };
    let story = two_consumers().at(10, 0, with(message(0), 4)).at(11, 0, with(other, 4));
    assert_eq!(story.at(20, 1, from_other).at(21, 1, recv(0, 1, 0)).broken(), NOTHING);
}

#[test]
fn handed_out_after_a_later_one_had_been_seen() {
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..2);
    let story = story.at(20, 1, recv(1, 1, 0)).at(30, 2, attach(2)).at(30, 2, credit(2, 10));
    assert_eq!(story.at(35, 2, recv(0, 2, 0)).broken(), [("I5", 1)]);
}

#[test]
fn the_later_one_that_was_seen_first_counts() {
    let story =
        two_consumers().confirmed(10, 0..3).at(20, 1, recv(2, 1, 0)).at(50, 1, attach(3)).at(50, 1, credit(3, 1));
    let story = story.at(60, 1, recv(0, 3, 0)).at(100, 2, recv(1, 2, 0));
    assert_eq!(story.broken(), [("I5", 1)]);
}

#[test]
fn a_link_that_chooses_may_take_a_later_one() {
    let choosy = Event::Attach { consumer: 1, queue: QUEUE, presettled: false, filtered: true };
    let story = Story::of(3).at(1, 1, choosy).at(1, 1, credit(1, 10)).confirmed(10, 0..2);
    let story = story.at(20, 1, recv(1, 1, 0)).at(30, 2, attach(2)).at(30, 2, credit(2, 10));
    assert_eq!(story.at(35, 2, recv(0, 2, 0)).broken(), NOTHING);
}

#[test]
fn two_consumers_may_see_theirs_in_any_order() {
    let story = two_consumers().confirmed(10, 0..2).at(20, 1, recv(1, 1, 0)).at(900, 2, recv(0, 2, 0));
    assert_eq!(story.broken(), NOTHING);
}
