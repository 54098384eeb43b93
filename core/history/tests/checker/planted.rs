//! One planted history for each invariant that breaks just it, and near misses that break nothing.

use super::story::*;
use packhorse_history::{Counters, Event, MessageId};

const NOTHING: [(&str, u64); 0] = [];

/// Two consumers with credit for 10 each, in processes 1 and 2.
fn two_consumers() -> Story {
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10));
    story.at(1, 2, attach(2)).at(1, 2, credit(2, 10))
}

mod lost {
    use super::*;

    #[test]
    fn a_confirmed_message_that_nobody_gets() {
        let story = Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
        let story = story.at(22, 1, recv(2, 1, 0)).at(23, 1, ack(2, 1));
        assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
    }

    #[test]
    fn without_a_confirm_it_may_be_gone() {
        let story = Story::of(2).at(10, 0, send(0)).at(11, 0, send(1));
        let story = story.at(12, 0, Event::SentUnknown { message: message(1) });
        assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
    }

    #[test]
    fn what_was_received_was_stored_and_may_not_be_gone_either() {
        let seen = |send: Event<'static>| Story::of(2).at(10, 0, send).at(20, 1, recv(0, 1, 0)).at(25, 1, lost(1));
        let empty = |story: Story| story.at(50, 1, drained()).at(60, 1, drained_of("DLQ"));
        assert_eq!(empty(seen(send(0))).broken(), [("I1", 1)]);
        assert_eq!(empty(seen(send(0)).at(26, 0, Event::SentUnknown { message: message(0) })).broken(), [("I1", 1)]);
        assert_eq!(empty(seen(volatile(0))).broken(), NOTHING, "one that is not persistent is not safe then");
        assert_eq!(empty(seen(send(0)).at(40, 1, recv(0, 2, 1)).at(41, 1, ack(0, 2))).broken(), NOTHING);
        assert_eq!(seen(send(0)).at(50, 1, drained()).broken(), NOTHING, "it may be a dead letter");
        let acknowledged = Story::of(2).at(10, 0, send(0)).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
        assert_eq!(empty(acknowledged).broken(), NOTHING);
    }

    #[test]
    fn a_confirm_after_the_look_says_nothing() {
        assert_eq!(Story::of(2).at(5, 1, drained()).confirmed(10, 0..1).broken(), NOTHING);
    }

    #[test]
    fn a_queue_that_nobody_saw_empty_is_not_judged_and_the_report_says_so() {
        let report = Story::of(1).confirmed(10, 0..4).check();
        assert!(report.is_clean());
        assert_eq!(report.totals.not_judged_for_loss, 4);
        assert!(report.notes().iter().any(|note| note.starts_with("4 confirmed messages were not judged")), "{report}");
    }

    #[test]
    fn an_acknowledgement_without_an_answer_is_an_end() {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(22, 1, lost(1));
        assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
    }

    #[test]
    fn a_returned_message_that_does_not_come_back() {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, release(0, 1));
        let story = story.at(50, 1, drained()).at(60, 1, drained_of("DLQ"));
        assert_eq!(story.broken(), [("I1", 1)]);
    }

    #[test]
    fn a_returned_message_may_be_a_dead_letter_while_nobody_looked() {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, lost(1));
        assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0));
        let story = story.at(21, 1, Event::Reject { message: message(0), consumer: 1 });
        let story = story.at(30, 1, Event::Dlq { message: message(0), reason: "rejected" });
        assert_eq!(story.at(50, 1, drained()).at(60, 1, drained_of("DLQ")).broken(), NOTHING);
    }

    #[test]
    fn a_rejected_message_that_is_no_dead_letter() {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0));
        let story = story.at(21, 1, Event::Reject { message: message(0), consumer: 1 });
        assert_eq!(story.at(50, 1, drained()).at(60, 1, drained_of("DLQ")).broken(), [("I1", 1)]);
    }

    #[test]
    fn a_dead_letter_queue_that_was_empty_before_says_nothing() {
        let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, lost(1));
        assert_eq!(story.at(40, 1, drained_of("DLQ")).at(50, 1, drained()).broken(), NOTHING);
    }

    #[test]
    fn a_delivery_that_seems_to_come_before_it_was_sent_counts() {
        let story = Story::of(2).at(20, 1, recv(0, 1, 0)).at(22, 1, ack(0, 1)).confirmed(21, 0..1);
        assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
    }

    #[test]
    fn numbers_with_gaps() {
        let story = Story::of(2).confirmed(10, 3..4).confirmed(20, 7..9).confirmed(30, 1_000..1_001);
        let story = story.at(40, 1, recv(3, 1, 0)).at(41, 1, ack(3, 1)).at(42, 1, recv(8, 1, 0)).at(43, 1, ack(8, 1));
        let story = story.at(44, 1, recv(1_000, 1, 0)).at(45, 1, ack(1_000, 1));
        assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)], "7 is lost");
        assert_eq!(Story::of(2).confirmed(10, 3..4).confirmed(20, 7..8).at(40, 1, recv(5, 1, 0)).broken(), [("I2", 1)]);
    }

    fn volatile(sequence: u64) -> Event<'static> {
        match send(sequence) {
            Event::Send { message, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } => {
                Event::Send { message, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx }
            }
            other => other,
        }
    }

    #[test]
    fn a_message_that_is_not_persistent_survives_no_end_of_the_broker_but_everything_else() {
        let story = Story::of(2).at(10, 0, volatile(0)).at(12, 0, sent_ok(0));
        assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
        let story = Story::of(2).at(10, 0, volatile(0)).at(12, 0, sent_ok(0)).at(20, 1, kill()).at(30, 1, start());
        assert_eq!(story.at(50, 1, drained()).broken(), NOTHING);
        let story = Story::of(2).at(1, 1, kill()).at(5, 1, start()).at(10, 0, volatile(0)).at(12, 0, sent_ok(0));
        assert_eq!(story.at(50, 1, drained()).broken(), [("I1", 1)]);
    }

    fn with_ttl(sequence: u64) -> Event<'static> {
        match send(sequence) {
            Event::Send { message, queue, size_bytes, crc, persistent, delay_ms, priority, tx, .. } => {
                Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 100, delay_ms, priority, tx }
            }
            other => other,
        }
    }

    #[test]
    fn a_message_with_a_time_to_live_is_lost_only_if_the_expiry_queue_lacks_it() {
        let story = || Story::of(2).at(10, 0, with_ttl(0)).at(12, 0, sent_ok(0)).at(500, 1, drained());
        assert_eq!(story().broken(), NOTHING);
        assert_eq!(story().at(510, 1, drained_of("Expiry")).broken(), [("I1", 1)]);
        let found = story().at(505, 1, Event::Expired { message: message(0) });
        assert_eq!(found.at(510, 1, drained_of("Expiry")).broken(), NOTHING);
    }

    #[test]
    fn what_was_on_its_way_to_a_presettled_link_counts_as_acknowledged_or_not() {
        let presettled = Event::Attach { consumer: 1, queue: QUEUE, presettled: true, filtered: false };
        let count = |acknowledged| {
            let story = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
            let story = story.at(20, 1, detach(1));
            let counters = Counters { quiet: true, acknowledged: Some(acknowledged), ..Counters::default() };
            story.at(40, 1, Event::Counters { queue: QUEUE, counters }).broken()
        };
        assert_eq!(count(0), NOTHING);
        assert_eq!(count(1), NOTHING);
        assert_eq!(count(2), [("I12", 1)]);
    }

    #[test]
    fn what_was_on_its_way_to_a_presettled_link_that_broke_is_gone_rightly() {
        let presettled = Event::Attach { consumer: 1, queue: QUEUE, presettled: true, filtered: false };
        let story = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
        assert_eq!(story.at(20, 1, lost(1)).at(50, 1, drained()).broken(), NOTHING);
        let story = || Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 10));
        let late = story().at(5, 1, lost(1)).confirmed(2_000, 0..1);
        assert_eq!(late.at(2_050, 1, drained()).broken(), [("I1", 1)], "the broker knew by then");
        let dead = story().at(4, 1, kill()).at(5, 1, lost(1)).at(6, 1, start()).confirmed(10, 0..1);
        assert_eq!(dead.at(50, 1, drained()).broken(), [("I1", 1)], "the link died with its broker");
        let closed = story().confirmed(10, 0..1).at(20, 1, detach(1));
        assert_eq!(closed.at(50, 1, drained()).broken(), NOTHING, "it was on its way when the link closed");
        let answered = story().confirmed(10, 0..1).at(20, 1, detach(1)).at(22, 1, detached(1));
        assert_eq!(answered.at(50, 1, drained()).broken(), [("I1", 1)], "it read everything and this was not among it");
        let used_up = Story::of(2).at(1, 1, presettled).at(1, 1, credit(1, 1)).confirmed(10, 0..2);
        let used_up = used_up.at(15, 1, recv(0, 1, 0)).at(20, 1, detach(1));
        assert_eq!(used_up.at(50, 1, drained()).broken(), [("I1", 1)], "it had had all that it may have");
    }
}

mod phantom {
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
}

mod duplicate {
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
}

mod silent_duplicate {
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
}

mod order {
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
        assert_eq!(
            story.at(30, 1, recv(0, 1, 0)).broken(),
            [("I5", 1)],
            "it read everything and this was not among it"
        );
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
        let with = |message, priority| Event::Send {
            message,
            queue,
            size_bytes,
            crc,
            persistent,
            ttl_ms,
            delay_ms,
            priority,
            tx,
        };
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
}

mod stuck {
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
            Event::Modified { message: message(0), consumer: 1, delivery_failed: false, undeliverable_here: true },
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
}

mod counts {
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
}

mod accounting {
    use super::*;

    fn read(counters: Counters) -> Event<'static> {
        Event::Counters { queue: QUEUE, counters: Counters { quiet: true, ..counters } }
    }

    #[test]
    fn one_too_many_and_one_too_few() {
        let story =
            || Story::of(2).confirmed(10, 0..5).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1));
        assert_eq!(story().at(100, 1, counters(4)).broken(), NOTHING);
        assert_eq!(story().at(100, 1, counters(5)).broken(), [("I12", 1)]);
        assert_eq!(story().at(100, 1, counters(3)).broken(), [("I12", 1)]);
    }

    #[test]
    fn a_negative_one() {
        let loud = Counters { ready: Some(-1), ..Counters::default() };
        assert_eq!(Story::of(1).at(10, 0, Event::Counters { queue: QUEUE, counters: loud }).broken(), [("I12", 1)]);
    }

    #[test]
    fn outcomes_that_nobody_knows_leave_room() {
        let story = || {
            Story::of(2).confirmed(10, 0..2).at(20, 0, send(2)).at(25, 0, Event::SentUnknown { message: message(2) })
        };
        assert_eq!(story().at(100, 1, counters(2)).broken(), NOTHING);
        assert_eq!(story().at(100, 1, counters(3)).broken(), NOTHING);
        assert_eq!(story().at(100, 1, counters(4)).broken(), [("I12", 1)]);
        assert_eq!(story().at(100, 1, counters(1)).broken(), [("I12", 1)]);
    }

    #[test]
    fn what_was_received_had_been_stored() {
        let story = Story::of(2).at(20, 0, send(0)).at(25, 0, Event::SentUnknown { message: message(0) });
        let story = story.at(100, 1, counters(0)).at(200, 1, recv(0, 1, 0));
        assert_eq!(story.broken(), [("I12", 1)]);
    }

    #[test]
    fn an_acknowledgement_without_an_answer_counts_while_nobody_dies() {
        let story = || Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1));
        assert_eq!(story().at(100, 1, counters(1)).broken(), [("I12", 1)]);
        assert_eq!(story().at(30, 1, kill()).at(50, 1, start()).at(100, 1, counters(1)).broken(), NOTHING);
        assert_eq!(story().at(30, 1, lost(1)).at(100, 1, counters(1)).broken(), NOTHING);
    }

    #[test]
    fn what_was_sent_later_was_not_there() {
        assert_eq!(Story::of(2).at(5, 1, counters(0)).confirmed(10, 0..1).broken(), NOTHING);
    }

    #[test]
    fn what_may_be_a_dead_letter_or_expired_may_be_there() {
        let failed =
            Event::Modified { message: message(0), consumer: 1, delivery_failed: true, undeliverable_here: false };
        let Event::Send { message, queue, size_bytes, crc, persistent, delay_ms, priority, tx, .. } = send(0) else {
            unreachable!("that is a send")
        };
        let mortal = Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 9, delay_ms, priority, tx };
        for depth in [0, 1] {
            let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, failed);
            assert_eq!(story.at(100, 1, counters(depth)).broken(), NOTHING);
            let story = Story::of(2).at(10, 0, mortal).at(15, 0, sent_ok(0));
            assert_eq!(story.at(100, 1, counters(depth)).broken(), NOTHING);
        }
    }

    #[test]
    fn a_send_without_any_answer_is_over_when_its_process_or_all_activity_is() {
        let story = || Story::of(2).at(20, 0, send(0));
        let later = |story: Story| story.at(60, 1, drained()).at(100, 1, counters(1)).broken();
        assert_eq!(later(story()), NOTHING, "it may have arrived after the look");
        assert_eq!(later(story().and(&header(0, 1, 40))), [("I12", 1)], "its process had another life by then");
        assert_eq!(later(story().at(50, 1, counters(1))), [("I12", 1)], "nothing was under way by then");
    }

    #[test]
    fn an_empty_queue_is_empty() {
        let story = Story::of(2).at(20, 0, send(0)).at(25, 0, Event::SentUnknown { message: message(0) });
        assert_eq!(story.at(60, 1, drained()).at(100, 1, counters(1)).broken(), [("I12", 1)]);
    }

    #[test]
    fn totals_and_who_holds_what() {
        let story =
            || Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1));
        let right = Counters {
            enqueued: Some(3),
            acknowledged: Some(1),
            dead_lettered: Some(0),
            ready: Some(2),
            acquired: Some(0),
            depth: Some(2),
            quiet: true,
        };
        assert_eq!(story().at(30, 1, detach(1)).at(100, 1, read(right)).broken(), NOTHING);
        for wrong in [
            Counters { enqueued: Some(4), ..right },
            Counters { acknowledged: Some(0), ..right },
            Counters { dead_lettered: Some(1), ..right },
            Counters { acquired: Some(1), ..right },
            Counters { ready: Some(3), ..right },
        ] {
            let broken = story().at(30, 1, detach(1)).at(100, 1, read(wrong)).broken();
            assert_eq!(broken, [("I12", 1)], "{wrong:?}");
        }
        let begun_again = Counters { enqueued: Some(0), acknowledged: Some(0), ..right };
        let story = story().at(30, 1, detach(1)).at(40, 1, kill()).at(50, 1, start());
        assert_eq!(story.at(100, 1, read(begun_again)).broken(), NOTHING);
    }
}

mod place {
    use super::*;

    fn survey(start: bool) -> Event<'static> {
        Event::Survey { start }
    }

    fn present(sequence: u64, queue: &'static str) -> Event<'static> {
        Event::Present { message: message(sequence), queue }
    }

    /// Three confirmed, the first of them consumed.
    fn three() -> Story {
        Story::of(2).confirmed(10, 0..3).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(22, 1, ack_ok(0, 1))
    }

    #[test]
    fn a_message_in_two_places() {
        let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, QUEUE));
        assert_eq!(story.at(53, 1, present(2, "other")).at(54, 1, survey(false)).broken(), [("I8", 1)]);
    }

    #[test]
    fn a_message_in_no_place() {
        let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(54, 1, survey(false));
        assert_eq!(story.broken(), [("I8", 1)]);
    }

    #[test]
    fn each_in_one_place_whatever_its_queue() {
        let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, "DLQ"));
        assert_eq!(story.at(54, 1, survey(false)).broken(), NOTHING);
    }

    #[test]
    fn a_survey_that_is_not_complete_says_nothing() {
        assert_eq!(three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).broken(), NOTHING);
    }

    #[test]
    fn what_nobody_knows_for_certain_may_be_missing() {
        // Not confirmed; acknowledged without an answer; found as a dead letter; not persistent over an end of the broker.
        let story = Story::of(2).at(10, 0, send(0)).confirmed(11, 1..3);
        let story = story.at(20, 1, recv(1, 1, 0)).at(21, 1, ack(1, 1));
        let story = story.at(22, 1, Event::Dlq { message: message(2), reason: "rejected" });
        let Event::Send { message: id, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } = send(3) else {
            panic!("a send")
        };
        let volatile =
            Event::Send { message: id, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx };
        let story = story.at(23, 0, volatile).at(24, 0, sent_ok(3)).at(30, 1, kill()).at(40, 1, start());
        assert_eq!(story.at(50, 1, survey(true)).at(54, 1, survey(false)).broken(), NOTHING);
    }

    #[test]
    fn each_survey_is_judged_by_itself() {
        let story = three().at(50, 1, survey(true)).at(51, 1, present(1, QUEUE)).at(52, 1, present(2, QUEUE));
        let story = story.at(54, 1, survey(false)).at(60, 1, survey(true)).at(61, 1, present(2, QUEUE));
        assert_eq!(story.at(64, 1, survey(false)).broken(), [("I8", 1)]);
    }
}

mod bounds {
    use super::*;

    fn gauge(value: u64) -> Event<'static> {
        Event::Gauge { kind: "memory", target: "broker", value, most: 1_000 }
    }

    #[test]
    fn more_than_settings_allow() {
        assert_eq!(Story::of(1).at(10, 0, gauge(1_001)).broken(), [("I11", 1)]);
    }

    #[test]
    fn just_what_settings_allow() {
        assert_eq!(Story::of(1).at(10, 0, gauge(0)).at(11, 0, gauge(1_000)).broken(), NOTHING);
    }
}

mod damaged_on_purpose {
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
}

mod several_brokers {
    use super::*;
    use packhorse_history::BrokerChange;

    fn host(queue: &'static str, broker: &'static str) -> Event<'static> {
        Event::Host { queue, broker }
    }

    fn node(broker: &'static str, change: BrokerChange) -> Event<'static> {
        Event::Node { broker, change }
    }

    fn two() -> Story {
        Story::of(2).at(0, 1, host(QUEUE, "a")).at(0, 1, host("elsewhere", "b"))
    }

    #[test]
    fn the_end_of_another_broker_is_no_excuse() {
        let volatile = |sequence| match send(sequence) {
            Event::Send { message, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } => {
                Event::Send { message, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx }
            }
            other => other,
        };
        let story = |broker| {
            let story = two().at(10, 0, volatile(0)).at(12, 0, sent_ok(0)).at(20, 1, node(broker, BrokerChange::Kill));
            story.at(30, 1, node(broker, BrokerChange::Start)).at(50, 1, drained()).broken()
        };
        assert_eq!(story("b"), [("I1", 1)]);
        assert_eq!(story("a"), NOTHING);
    }

    #[test]
    fn a_fault_of_another_broker_explains_no_silence() {
        let story = |target| {
            let mut story = two().at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
            story = story.at(20, 0, Event::Fault { kind: "pause", target, start: true });
            for ms in (30..3_000).step_by(50) {
                story = story.at(ms, 1, Event::Tick);
            }
            story.broken()
        };
        assert_eq!(story("b"), [("I9", 1)]);
        assert_eq!(story("a"), NOTHING);
        assert_eq!(story("somewhere"), NOTHING);
    }
}

mod not_here {
    use super::*;

    fn declined(consumer: u32, failed: bool, here: bool) -> Event<'static> {
        Event::Modified { message: message(0), consumer, delivery_failed: failed, undeliverable_here: here }
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
}

mod priorities {
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
}
