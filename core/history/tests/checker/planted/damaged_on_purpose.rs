//! Messages whose stored bodies were damaged on purpose.

use super::*;

fn damaged(sequence: u64) -> Event<'static> {
    Event::Damaged { message: message(sequence) }
}

#[test]
fn it_may_be_missing_and_only_it() {
    let story = || Story::of(2).confirmed(10, 0..2).at(20, 1, damaged(0));
    assert_eq!(story().at(50, 1, drained()).broken(), [("I1", 1)], "1 is lost");
    let story = story().at(30, 1, recv(1, 1, 0)).at(31, 1, ack(1, 1));
    assert_eq!(story.at(50, 1, drained()).at(60, 1, counters(1)).broken(), NOTHING, "it still counts");
}

#[test]
fn it_never_comes_with_another_body() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, damaged(0));
    let Event::Recv { message, consumer, queue, delivery_count, redelivered, tx, .. } = recv(0, 1, 0) else {
        panic!("a delivery")
    };
    let wrong = Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok: false, tx };
    assert_eq!(story.at(30, 1, wrong).at(31, 1, ack(0, 1)).broken(), [("I2", 1)]);
}

#[test]
fn while_it_is_set_aside_what_is_behind_it_goes_on() {
    let mut sorted: Vec<(u64, Event<'static>)> = vec![(20, recv(1, 1, 0)), (40, recv(0, 1, 0))];
    let mut story = |damaged_at: u64| {
        sorted.retain(|(_, event)| !matches!(event, Event::Damaged { .. }));
        sorted.push((damaged_at, damaged(0)));
        sorted.sort_by_key(|(at, _)| *at);
        sorted.iter().fold(two_consumers().confirmed(10, 0..2), |story, (at, event)| story.at(*at, 1, *event)).broken()
    };
    assert_eq!(story(15), NOTHING);
    assert_eq!(story(30), [("I5", 1)], "it was in its place when the other one came");
}
