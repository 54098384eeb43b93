//! I2: what is received was sent, as it was sent, to where it was sent.

use super::*;

#[test]
fn a_message_that_nobody_sent() {
    assert_eq!(Story::of(2).confirmed(10, 0..1).at(20, 1, recv(9, 1, 0)).broken(), [("I2", 1)]);
}

#[test]
fn a_message_that_seems_to_come_before_it_was_sent_was_sent() {
    assert_eq!(Story::of(2).at(20, 1, recv(0, 1, 0)).confirmed(21, 0..1).broken(), NOTHING);
}

#[test]
fn a_refused_message_and_one_without_an_answer() {
    let refused = Event::SentRejected { message: message(0), reason: "full" };
    let story = Story::of(2).at(10, 0, send(0)).at(12, 0, refused).at(20, 1, recv(0, 1, 0));
    assert_eq!(story.broken(), [("I2", 1)]);
    let unknown = Event::SentUnknown { message: message(0) };
    let story = Story::of(2).at(10, 0, send(0)).at(12, 0, unknown).at(20, 1, recv(0, 1, 0));
    assert_eq!(story.broken(), NOTHING);
}

fn received(queue: &'static str, crc_ok: bool) -> Event<'static> {
    Event::Recv { message: message(0), consumer: 1, queue, delivery_count: 0, redelivered: false, crc_ok, tx: None }
}

#[test]
fn the_wrong_queue_and_the_wrong_body() {
    assert_eq!(Story::of(2).confirmed(10, 0..1).at(20, 1, received("other", true)).broken(), [("I2", 1)]);
    assert_eq!(Story::of(2).confirmed(10, 0..1).at(20, 1, received(QUEUE, false)).broken(), [("I2", 1)]);
    assert_eq!(Story::of(2).confirmed(10, 0..1).at(20, 1, received(QUEUE, true)).broken(), NOTHING);
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, received("other", true)).at(50, 1, drained());
    assert_eq!(story.broken(), [("I2", 1)], "it is not lost as well");
}

#[test]
fn a_body_that_does_not_say_whose_it_is() {
    let event = Event::Recv {
        message: MessageId::NONE,
        consumer: 1,
        queue: QUEUE,
        delivery_count: 0,
        redelivered: false,
        crc_ok: false,
        tx: None,
    };
    let acknowledged = Event::Ack { message: MessageId::NONE, consumer: 1, confirmed: false, tx: None };
    assert_eq!(Story::of(1).at(20, 0, event).at(21, 0, acknowledged).broken(), [("I2", 1)]);
}
