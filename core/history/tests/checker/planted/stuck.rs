//! I9: what is ready and wanted is delivered.

use super::*;

/// A consumer whose process says every 100 ms that it is alive, from 100 to `until`.
fn alive(mut story: Story, process: usize, until: u64) -> Story {
    for ms in (100..=until).step_by(100) {
        story = story.at(ms, process, Event::Tick);
    }
    story
}

fn one_consumer() -> Story {
    Story::of(2).at(1, 1, attach(1)).at(1, 1, credit(1, 10))
}

#[test]
fn ready_wanted_and_not_delivered() {
    let story = alive(one_consumer().confirmed(10, 0..3), 1, 1_500);
    let story = story.at(1_550, 1, recv(0, 1, 0)).at(1_551, 1, recv(1, 1, 0)).at(1_552, 1, recv(2, 1, 0));
    assert_eq!(story.broken(), [("I9", 1)]);
}

#[test]
fn never_delivered_at_all() {
    let story = alive(one_consumer().confirmed(10, 0..1), 1, 1_500);
    assert_eq!(story.broken(), [("I9", 1)]);
}

#[test]
fn less_than_a_second() {
    let story = alive(one_consumer().confirmed(10, 0..1), 1, 900);
    assert_eq!(story.at(950, 1, recv(0, 1, 0)).broken(), NOTHING);
}

#[test]
fn confirmed_or_given_credit_in_the_middle_of_the_silence() {
    let story = alive(one_consumer().confirmed(900, 0..1), 1, 1_500);
    assert_eq!(story.at(1_550, 1, recv(0, 1, 0)).broken(), NOTHING);
    let mut story = Story::of(2).at(1, 1, attach(1)).at(1, 1, credit(1, 0)).confirmed(10, 0..1);
    for ms in (100..1_500).step_by(100) {
        story = story.at(ms, 1, Event::Tick);
        if ms == 900 {
            story = story.at(901, 1, credit(1, 5));
        }
    }
    assert_eq!(story.at(1_550, 1, recv(0, 1, 0)).broken(), NOTHING);
}

fn changed(persistent: bool, ttl_ms: u64) -> Event<'static> {
    match send(0) {
        Event::Send { message, queue, size_bytes, crc, delay_ms, priority, tx, .. } => {
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx }
        }
        other => other,
    }
}

#[test]
fn a_message_that_may_be_gone() {
    let story = one_consumer().at(10, 0, changed(true, 100)).at(15, 0, sent_ok(0));
    assert_eq!(alive(story, 1, 2_000).broken(), NOTHING, "expired");
    let story = || one_consumer().at(10, 0, changed(false, 0)).at(15, 0, sent_ok(0));
    assert_eq!(alive(story().at(20, 0, kill()).at(30, 0, start()), 1, 2_000).broken(), NOTHING, "not persistent");
    assert_eq!(alive(story(), 1, 2_000).broken(), [("I9", 1)]);
}

#[test]
fn a_link_that_chooses_may_not_want_it() {
    let choosy = Event::Attach { consumer: 1, queue: QUEUE, presettled: false, filtered: true };
    let story = Story::of(2).at(1, 1, choosy).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
    assert_eq!(alive(story, 1, 2_000).broken(), NOTHING);
}

#[test]
fn a_process_that_stands_still_sees_nothing() {
    assert_eq!(one_consumer().confirmed(10, 0..1).at(5_000, 1, recv(0, 1, 0)).broken(), NOTHING);
}

#[test]
fn no_credit() {
    let story = Story::of(2).at(1, 1, attach(1)).at(1, 1, credit(1, 0)).confirmed(10, 0..1);
    assert_eq!(alive(story, 1, 2_000).broken(), NOTHING);
}

#[test]
fn used_up_credit() {
    let story = Story::of(2).at(1, 1, attach(1)).at(1, 1, credit(1, 1)).confirmed(10, 0..2);
    assert_eq!(alive(story.at(20, 1, recv(0, 1, 0)), 1, 2_000).broken(), NOTHING);
}

#[test]
fn another_consumer_that_stands_still_may_hold_it() {
    assert_eq!(alive(two_consumers().confirmed(10, 0..1), 1, 2_000).broken(), NOTHING);
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(1, 2, attach(2)).at(1, 2, credit(2, 0));
    assert_eq!(alive(story.confirmed(10, 0..1), 1, 2_000).broken(), [("I9", 1)], "without credit it holds nothing");
}

#[test]
fn its_next_life_shows_that_it_is_gone() {
    let story = two_consumers().and(&header(2, 1, 200)).confirmed(10, 0..1);
    assert_eq!(alive(story, 1, 2_000).broken(), [("I9", 1)]);
}

#[test]
fn a_broker_that_is_down_and_a_fault_that_lasts() {
    let story = one_consumer().confirmed(10, 0..1).at(20, 0, kill()).at(1_400, 0, start());
    assert_eq!(alive(story, 1, 2_000).broken(), NOTHING);
    let pause = |start| Event::Fault { kind: "pause", target: "broker", start };
    let story = one_consumer().confirmed(10, 0..1).at(20, 0, pause(true)).at(1_400, 0, pause(false));
    assert_eq!(alive(story, 1, 2_000).broken(), NOTHING);
}

#[test]
fn a_link_of_a_broker_that_has_died() {
    let story = || one_consumer().confirmed(10, 0..1).at(20, 0, kill()).at(40, 0, start());
    assert_eq!(alive(story(), 1, 2_000).broken(), NOTHING, "the client has not noticed");
    let story = story().at(50, 1, attach(2)).at(50, 1, credit(2, 1));
    assert_eq!(alive(story, 1, 2_000).broken(), [("I9", 1)]);
}

#[test]
fn something_else_was_delivered() {
    let story = one_consumer().confirmed(10, 0..4);
    let story = story.at(600, 1, recv(0, 1, 0)).at(1_200, 1, recv(1, 1, 0)).at(1_800, 1, recv(2, 1, 0));
    assert_eq!(alive(story, 1, 2_000).at(2_050, 1, recv(3, 1, 0)).broken(), NOTHING);
}

#[test]
fn a_message_that_is_not_confirmed_need_not_be_ready() {
    assert_eq!(alive(one_consumer().at(10, 0, send(0)), 1, 2_000).broken(), NOTHING);
}

#[test]
fn given_back_and_wanted() {
    let story = one_consumer().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(30, 1, release(0, 1));
    assert_eq!(alive(story, 1, 1_500).broken(), [("I9", 1)]);
    let story = one_consumer().confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(
        30,
        1,
        Event::Modified {
            message: message(0),
            consumer: 1,
            delivery_failed: false,
            undeliverable_here: true,
            tx: None,
        },
    );
    assert_eq!(alive(story, 1, 1_500).broken(), NOTHING, "it may not go to this link");
}

#[test]
fn acknowledged_and_given_back_by_a_slow_client_of_a_broker_that_has_died() {
    // Consumer 1 reads what the dead broker had sent it after consumer 2 has taken the message from the living one.
    let story = |second: &[Event<'static>]| {
        let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
        let story = story.at(20, 0, kill()).at(40, 0, start());
        let story = story.at(50, 2, attach(2)).at(50, 2, credit(2, 10)).at(60, 2, recv(0, 2, 1));
        let story = second.iter().fold(story, |story, event| story.at(61, 2, *event));
        let story = story.at(70, 1, recv(0, 1, 0)).at(71, 1, release(0, 1));
        alive(alive(story.at(80, 1, lost(1)), 1, 2_000), 2, 2_000)
    };
    assert_eq!(story(&[ack(0, 2), ack_ok(0, 2)]).broken(), NOTHING);
    assert_eq!(story(&[ack(0, 2)]).broken(), NOTHING, "the answer may be lost");
    assert_eq!(story(&[release(0, 2)]).broken(), [("I9", 1)]);
}

#[test]
fn a_lost_message_is_called_lost_and_not_stuck() {
    assert_eq!(alive(one_consumer().confirmed(10, 0..1), 1, 1_500).at(1_600, 1, drained()).broken(), [("I1", 1)]);
}
