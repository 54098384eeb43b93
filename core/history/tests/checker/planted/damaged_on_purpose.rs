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
