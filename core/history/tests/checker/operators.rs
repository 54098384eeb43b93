//! Planted histories of operators and browsers: what they excuse, and what is still caught beside them.

use super::story::*;
use packhorse_history::{Counters, Event, HistoryError, MessageId, Options, check_files};

const NOTHING: [(&str, u64); 0] = [];
const OTHER: &str = "others";

fn purge(operation: u64) -> Event<'static> {
    Event::Purge { operation, queue: QUEUE, deletes: false, messages: None }
}

fn purged(operation: u64, messages: u64) -> Event<'static> {
    Event::Purge { operation, queue: QUEUE, deletes: false, messages: Some(messages) }
}

fn delete(operation: u64) -> Event<'static> {
    Event::Purge { operation, queue: QUEUE, deletes: true, messages: None }
}

fn moves(operation: u64) -> Event<'static> {
    Event::Move { operation, queue: QUEUE, target: OTHER, messages: None }
}

fn moved(operation: u64, messages: u64) -> Event<'static> {
    Event::Move { operation, queue: QUEUE, target: OTHER, messages: Some(messages) }
}

fn recv_of(queue: &'static str, sequence: u64, consumer: u32, delivery_count: u32) -> Event<'static> {
    let redelivered = delivery_count > 0;
    let message = message(sequence);
    Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok: true, tx: None }
}

/// Both queues are seen empty, and the dead-letter queue.
fn empty(story: Story, at: u64) -> Story {
    story.at(at, 1, drained()).at(at, 1, drained_of(OTHER)).at(at + 5, 1, drained_of("DLQ"))
}

mod removed {
    use super::*;

    /// Four confirmed by 15, a purge from 20 to 30.
    fn story(messages: Option<u64>) -> Story {
        let story = Story::of(3).confirmed(10, 0..4).at(20, 2, purge(1));
        match messages {
            Some(messages) => story.at(30, 2, purged(1, messages)),
            None => story,
        }
    }

    #[test]
    fn what_a_purge_took_is_not_lost_and_no_more_than_it_took() {
        assert_eq!(empty(story(Some(4)), 50).broken(), NOTHING);
        assert_eq!(empty(story(Some(5)), 50).broken(), NOTHING, "one without a confirm may have gone as well");
        assert_eq!(empty(story(Some(3)), 50).broken(), [("I1", 1)]);
        assert_eq!(empty(story(Some(0)), 50).broken(), [("I1", 4)], "it was refused");
        assert_eq!(empty(story(None), 50).broken(), NOTHING, "nobody knows");
    }

    #[test]
    fn what_was_sent_after_a_purge_is_not_excused_by_it() {
        let story = story(Some(9)).at(40, 0, send(7)).at(42, 0, sent_ok(7));
        assert_eq!(empty(story, 50).broken(), [("I1", 1)]);
    }

    #[test]
    fn what_was_seen_after_a_purge_is_not_excused_by_it() {
        let story = story(Some(9)).at(40, 1, attach(1)).at(40, 1, credit(1, 5));
        let story = story.at(45, 1, recv(0, 1, 0)).at(46, 1, release(0, 1));
        assert_eq!(empty(story, 50).broken(), [("I1", 1)]);
    }

    #[test]
    fn a_link_that_is_over_without_its_consumer_knowing_holds_nothing() {
        let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 5)).confirmed(5, 0..1);
        let story = story.at(12, 1, recv(0, 1, 0)).at(20, 2, purge(1)).at(30, 2, purged(1, 1));
        assert_eq!(empty(story.at(40, 1, release(0, 1)).at(45, 1, lost(1)), 50).broken(), NOTHING);
    }

    #[test]
    fn a_purge_takes_nothing_that_somebody_holds_and_a_delete_does() {
        let held = |begin: Event<'static>, end: Event<'static>| {
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 5)).confirmed(5, 0..1);
            let story = story.at(12, 1, recv(0, 1, 0)).at(20, 2, begin).at(30, 2, end);
            empty(story.at(40, 1, release(0, 1)).at(42, 1, detach(1)).at(44, 1, detached(1)), 50).broken()
        };
        assert_eq!(held(purge(1), purged(1, 1)), [("I1", 1)]);
        let deleted = Event::Purge { operation: 1, queue: QUEUE, deletes: true, messages: Some(1) };
        assert_eq!(held(delete(1), deleted), NOTHING);
    }

    #[test]
    fn one_without_an_answer_is_over_when_its_broker_ends() {
        let story = story(None).at(35, 2, kill()).at(37, 2, start());
        let story = story.at(40, 0, send(7)).at(42, 0, sent_ok(7));
        assert_eq!(empty(story, 50).broken(), [("I1", 1)]);
    }

    #[test]
    fn several_purges_share_what_is_missing() {
        let story = Story::of(3).confirmed(10, 0..4).at(20, 2, purge(1)).at(22, 2, purged(1, 3));
        let story = story.confirmed(30, 4..6).at(40, 2, purge(2)).at(42, 2, purged(2, 3));
        assert_eq!(empty(story, 50).broken(), NOTHING);
        let story = Story::of(3).confirmed(10, 0..2).at(20, 2, purge(1)).at(22, 2, purged(1, 5));
        let story = story.confirmed(30, 4..6).at(40, 2, purge(2)).at(42, 2, purged(2, 1));
        assert_eq!(empty(story, 50).broken(), [("I1", 1)], "the first has room, but came too early");
    }

    #[test]
    fn a_dead_letter_may_go_with_a_purge_of_its_queue() {
        let purge = |messages| Event::Purge { operation: 1, queue: "DLQ", deletes: false, messages };
        let story = |count| {
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 5)).confirmed(5, 0..1);
            let story =
                story.at(12, 1, recv(0, 1, 0)).at(13, 1, Event::Reject { message: message(0), consumer: 1, tx: None });
            empty(story.at(20, 2, purge(None)).at(30, 2, purge(Some(count))), 50).broken()
        };
        assert_eq!(story(1), NOTHING);
        assert_eq!(story(0), [("I1", 1)]);
        let never_delivered = Story::of(3).confirmed(5, 0..1).at(20, 2, purge(None)).at(30, 2, purge(Some(1)));
        assert_eq!(empty(never_delivered, 50).broken(), [("I1", 1)]);
    }

    #[test]
    fn counters_lack_what_a_purge_took() {
        let depth = |depth| {
            let story = Story::of(3).confirmed(10, 0..4).at(20, 2, purge(1)).at(25, 2, purged(1, 3));
            story.at(40, 2, counters(depth)).broken()
        };
        assert_eq!(depth(1), NOTHING);
        assert_eq!(depth(2), [("I12", 1)]);
        assert_eq!(depth(0), [("I12", 1)]);
        let after_all = |depth| {
            let story = empty(story(Some(4)), 50).at(60, 0, send(9)).at(61, 0, sent_ok(9));
            story.at(70, 2, counters(depth)).broken()
        };
        assert_eq!(after_all(1), NOTHING, "what is over is over");
        assert_eq!(after_all(0), [("I12", 1)]);
    }

    #[test]
    fn a_deleted_queue_counts_anew() {
        let count = |enqueued| {
            let deleted = Event::Purge { operation: 1, queue: QUEUE, deletes: true, messages: Some(4) };
            let story = Story::of(3).confirmed(10, 0..4).at(20, 2, delete(1)).at(25, 2, deleted);
            let counters = Counters { quiet: true, depth: Some(0), enqueued: Some(enqueued), ..Counters::default() };
            story.at(40, 2, Event::Counters { queue: QUEUE, counters }).broken()
        };
        assert_eq!(count(0), NOTHING);
        assert_eq!(count(-1), [("I12", 1)]);
    }

    #[test]
    fn a_survey_looks_for_what_nobody_can_have_removed() {
        let survey =
            |story: Story| story.at(40, 2, Event::Survey { start: true }).at(41, 2, Event::Survey { start: false });
        assert_eq!(survey(story(Some(4))).broken(), NOTHING);
        let late = story(Some(4)).at(35, 0, send(8)).at(36, 0, sent_ok(8));
        assert_eq!(survey(late).broken(), [("I8", 1)]);
    }

    #[test]
    fn answers_that_fit_no_question() {
        let check = |story: Story| -> Result<(), HistoryError> {
            let files = story.files();
            let sources = files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
            check_files(sources, &Options::default()).map(|_| ())
        };
        check(Story::of(1).at(1, 0, purge(1)).at(2, 0, purged(1, 0))).expect("it fits");
        check(Story::of(1).at(1, 0, purged(1, 0))).expect_err("no question");
        check(Story::of(1).at(1, 0, purge(1)).at(2, 0, purge(1))).expect_err("asked twice");
        check(Story::of(1).at(1, 0, purge(1)).at(2, 0, moved(1, 0))).expect_err("another question");
        check(Story::of(1).at(1, 0, purge(1)).at(2, 0, purged(1, 0)).at(3, 0, purged(1, 0))).expect_err("answered");
    }
}

mod elsewhere {
    use super::*;

    /// Consumer 1 on the queue, consumer 2 on the other one, four confirmed by 15, a move from 20 to 30.
    fn story(messages: u64) -> Story {
        let other = Event::Attach { consumer: 2, queue: OTHER, presettled: false, filtered: false };
        let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(1, 2, other).at(1, 2, credit(2, 10));
        story.confirmed(10, 0..4).at(20, 0, moves(1)).at(30, 0, moved(1, messages))
    }

    #[test]
    fn a_message_may_be_where_it_was_moved_and_as_many_as_were_moved() {
        let both = |messages| {
            let story = story(messages).at(40, 2, recv_of(OTHER, 0, 2, 0)).at(41, 2, recv_of(OTHER, 1, 2, 0));
            story.at(42, 2, ack(0, 2)).at(42, 2, ack(1, 2)).broken()
        };
        assert_eq!(both(2), NOTHING);
        assert_eq!(both(1), [("I2", 1)]);
        assert_eq!(both(0), [("I2", 2)]);
        assert_eq!(story(4).at(40, 2, recv_of("nowhere", 0, 9, 0)).broken(), [("I2", 1)]);
    }

    #[test]
    fn before_the_move_or_sent_after_it() {
        assert_eq!(story(4).at(17, 2, recv_of(OTHER, 0, 2, 0)).broken(), [("I2", 1)]);
        let late = story(4).at(35, 0, send(9)).at(36, 0, sent_ok(9)).at(40, 2, recv_of(OTHER, 9, 2, 0));
        assert_eq!(late.broken(), [("I2", 1)]);
    }

    #[test]
    fn what_is_moved_is_not_lost_on_its_way() {
        assert_eq!(empty(story(4), 50).broken(), [("I1", 4)]);
        let story = story(4).at(50, 1, drained());
        assert_eq!(story.broken(), NOTHING, "nobody looked into the other queue");
    }

    /// Seed 2007 of b1891c8 in the simulator.
    #[test]
    fn what_was_moved_may_be_on_its_way_to_a_pre_settled_link_that_is_lost() {
        let lost = |presettled| {
            let other = Event::Attach { consumer: 7, queue: OTHER, presettled, filtered: false };
            let story = story(4).at(32, 2, other).at(33, 2, credit(7, 10));
            let story = story.at(35, 2, Event::Detach { consumer: 7, orderly: false, confirmed: false });
            story.at(40, 0, Event::Survey { start: true }).at(41, 0, Event::Survey { start: false }).broken()
        };
        assert_eq!(lost(true), NOTHING);
        assert_eq!(lost(false), [("I8", 4)]);
    }

    #[test]
    fn a_move_hides_no_duplicate() {
        let acknowledged = || story(4).at(40, 2, recv_of(OTHER, 0, 2, 0)).at(41, 2, ack(0, 2)).at(43, 2, ack_ok(0, 2));
        assert_eq!(acknowledged().at(60, 1, recv(0, 1, 0)).broken(), [("I3", 1)]);
        let silent = story(4).at(18, 1, recv(0, 1, 0)).at(40, 2, recv_of(OTHER, 0, 2, 0));
        assert_eq!(silent.broken(), [("I4", 1)]);
        let released = story(4).at(17, 1, recv(0, 1, 0)).at(18, 1, release(0, 1)).at(40, 2, recv_of(OTHER, 0, 2, 0));
        assert_eq!(released.broken(), NOTHING);
    }

    #[test]
    fn counts_go_along() {
        let failed = Event::Modified {
            message: message(0),
            consumer: 1,
            delivery_failed: true,
            undeliverable_here: false,
            tx: None,
        };
        let story = |count| {
            let other = Event::Attach { consumer: 2, queue: OTHER, presettled: false, filtered: false };
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(5, 0..1);
            let story = story.at(12, 1, recv(0, 1, 1)).at(13, 1, failed).at(20, 0, moves(1)).at(30, 0, moved(1, 1));
            story.at(40, 2, other).at(40, 2, credit(2, 5)).at(45, 2, recv_of(OTHER, 0, 2, count)).broken()
        };
        assert_eq!(story(2), NOTHING);
        assert_eq!(story(0), [("I10", 1)]);
    }

    #[test]
    fn moved_ones_come_in_their_order() {
        let two = |first, second| {
            let story = story(4).at(40, 2, recv_of(OTHER, first, 2, 0)).at(41, 2, recv_of(OTHER, second, 2, 0));
            story.broken()
        };
        assert_eq!(two(1, 3), NOTHING);
        assert_eq!(two(3, 1), [("I5", 1)]);
        // One that was seen before has lost its place.
        let seen = story(4).at(16, 1, recv(1, 1, 0)).at(17, 1, release(1, 1));
        let seen = seen.at(40, 2, recv_of(OTHER, 3, 2, 0)).at(41, 2, recv_of(OTHER, 1, 2, 0));
        assert_eq!(seen.broken(), NOTHING);
    }

    #[test]
    fn between_links_of_the_other_queue() {
        let story = |from| {
            let late = Event::Attach { consumer: 3, queue: OTHER, presettled: false, filtered: false };
            let story = story(4).at(40, 2, recv_of(OTHER, 3, 2, 0)).at(from, 1, late).at(from, 1, credit(3, 5));
            story.at(60, 1, recv_of(OTHER, 1, 3, 0)).broken()
        };
        assert_eq!(story(50), [("I5", 1)]);
        assert_eq!(story(35), NOTHING, "it may have been sent out before");
    }

    #[test]
    fn where_it_is_counts_in_one_of_both_queues() {
        let depth = |here, there| {
            let other = Counters { quiet: true, depth: Some(there), ..Counters::default() };
            story(2).at(40, 0, counters(here)).at(40, 0, Event::Counters { queue: OTHER, counters: other }).broken()
        };
        assert_eq!(depth(2, 2), NOTHING);
        assert_eq!(depth(5, 2), [("I12", 1)]);
        assert_eq!(depth(2, 5), [("I12", 1)]);
    }

    #[test]
    fn a_survey_finds_it_in_a_queue_where_it_can_be() {
        let found = |queue| {
            let story = story(4).at(40, 0, Event::Survey { start: true });
            let story = (0..4).fold(story, |story, n| story.at(41, 0, Event::Present { message: message(n), queue }));
            story.at(42, 0, Event::Survey { start: false }).broken()
        };
        assert_eq!(found(OTHER), NOTHING);
        assert_eq!(found(QUEUE), NOTHING);
        assert_eq!(found("DLQ"), NOTHING);
        assert_eq!(found("nowhere"), [("I8", 4)]);
    }
}

mod wanted {
    use super::*;

    /// A consumer with credit whose process says every 100 ms until 1,500 that it is alive, and one message, confirmed by 15.
    fn story(then: impl Fn(Story) -> Story) -> Story {
        let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..1);
        (100..=1_500).step_by(100).fold(then(story), |story, ms| story.at(ms, 1, Event::Tick))
    }

    #[test]
    fn what_was_moved_away_is_not_ready_any_more() {
        let story = story(|story| story.at(20, 2, moves(1)).at(30, 2, moved(1, 1)));
        assert_eq!(story.broken(), NOTHING);
    }

    /// Seed 9807: it came to the queue with a commit, was moved away, and its producer learned of the commit long after.
    #[test]
    fn what_was_moved_away_before_its_producer_was_told_is_not_ready() {
        let late = |move_it: bool| {
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(10, 0, send(0));
            let story = if move_it { story.at(20, 2, moves(1)).at(30, 2, moved(1, 1)) } else { story };
            let story = story.at(100, 0, sent_ok(0));
            (100..=1_500).step_by(100).fold(story, |story, ms| story.at(ms, 1, Event::Tick)).broken()
        };
        assert_eq!(late(true), NOTHING);
        assert_eq!(late(false), [("I9", 1)]);
    }

    /// Seed 12102 of d9a4e2c: a message was moved away after its broker had ended, and a client that had not noticed gave it back after that.
    #[test]
    fn what_is_given_back_may_have_been_moved_away_since_it_was_sent_there() {
        let received = |story: Story| story.at(20, 1, recv(0, 1, 0));
        let story_of_seed =
            story(|story| received(story).at(30, 2, moves(1)).at(40, 2, moved(1, 1)).at(50, 1, release(0, 1)));
        assert_eq!(story_of_seed.broken(), NOTHING);
        let nothing_moved = story(|story| received(story).at(50, 1, release(0, 1)));
        assert_eq!(nothing_moved.broken(), [("I9", 1)]);
    }

    #[test]
    fn what_was_moved_before_a_link_was_there_says_nothing_of_what_the_link_gives_back() {
        let story = Story::of(3).confirmed(10, 0..1).at(20, 2, moves(1)).at(30, 2, moved(1, 1));
        let story = story.at(40, 1, attach(1)).at(40, 1, credit(1, 10)).at(50, 1, recv(0, 1, 0));
        let story =
            (100..=1_500).step_by(100).fold(story.at(60, 1, release(0, 1)), |story, ms| story.at(ms, 1, Event::Tick));
        assert_eq!(story.broken(), [("I9", 1)]);
    }
}

mod browsed {
    use super::*;

    fn browser(consumer: u32) -> Event<'static> {
        Event::Browser { consumer, queue: QUEUE }
    }

    fn shown(sequence: u64, consumer: u32) -> Event<'static> {
        Event::Browsed { message: message(sequence), consumer, crc_ok: true }
    }

    fn story() -> Story {
        Story::of(3).confirmed(10, 0..4).at(20, 2, browser(7))
    }

    #[test]
    fn a_browser_is_shown_what_is_there_and_takes_nothing() {
        let story = story().at(25, 2, shown(0, 7)).at(26, 2, shown(3, 7));
        assert_eq!(empty(story, 50).broken(), [("I1", 4)]);
    }

    #[test]
    fn what_was_never_sent_or_refused_or_has_another_body() {
        assert_eq!(story().at(25, 2, shown(9, 7)).broken(), [("I2", 1)]);
        let nobody = Event::Browsed { message: MessageId::NONE, consumer: 7, crc_ok: true };
        assert_eq!(story().at(25, 2, nobody).broken(), [("I2", 1)]);
        let other = Event::Browsed { message: message(1), consumer: 7, crc_ok: false };
        assert_eq!(story().at(25, 2, other).broken(), [("I2", 1)]);
        let refused = Event::SentRejected { message: message(8), reason: "full" };
        let refused = story().at(21, 0, send(8)).at(22, 0, refused).at(25, 2, shown(8, 7));
        assert_eq!(refused.broken(), [("I2", 1)]);
    }

    #[test]
    fn what_was_surely_gone() {
        let gone = |answer| {
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 9)).confirmed(5, 0..2);
            let story = story.at(12, 1, recv(0, 1, 0)).at(13, 1, ack(0, 1)).at(answer, 1, ack_ok(0, 1));
            story.at(20, 2, browser(7)).at(25, 2, shown(0, 7)).broken()
        };
        assert_eq!(gone(14), [("I2", 1)]);
        assert_eq!(gone(22), NOTHING, "it was there when the browser came");
    }

    #[test]
    fn of_another_queue() {
        let other = Event::Browser { consumer: 7, queue: OTHER };
        let story = || Story::of(3).confirmed(10, 0..1);
        assert_eq!(story().at(20, 2, other).at(25, 2, shown(0, 7)).broken(), [("I2", 1)]);
        let moved = story().at(20, 0, moves(1)).at(25, 0, moved(1, 1)).at(30, 2, other).at(35, 2, shown(0, 7));
        assert_eq!(moved.broken(), NOTHING);
        let too_few = story().at(20, 0, moves(1)).at(25, 0, super::moved(1, 0)).at(30, 2, other).at(35, 2, shown(0, 7));
        assert_eq!(too_few.broken(), [("I2", 1)]);
    }

    #[test]
    fn each_once_and_in_order() {
        assert_eq!(story().at(25, 2, shown(1, 7)).at(26, 2, shown(1, 7)).broken(), [("I4", 1)]);
        assert_eq!(story().at(25, 2, shown(1, 7)).at(26, 2, shown(0, 7)).broken(), [("I5", 1)]);
        let two = story().at(21, 2, browser(8)).at(25, 2, shown(1, 7)).at(26, 2, shown(1, 8)).at(27, 2, shown(0, 8));
        assert_eq!(two.broken(), [("I5", 1)], "each link by itself");
    }

    /// Seed 774 of 4262d47: a consumer gave back what it had while an operator moved messages, and it was moved behind later ones.
    #[test]
    fn what_was_given_back_during_a_move_is_behind_what_was_sent_later() {
        let shown_there = |had: bool| {
            let other = Event::Browser { consumer: 7, queue: OTHER };
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 9)).confirmed(5, 0..2);
            let story = story.at(20, 0, moves(1));
            let story = if had { story.at(12, 1, recv(0, 1, 0)).at(21, 1, release(0, 1)) } else { story };
            story.at(25, 0, moved(1, 2)).at(30, 2, other).at(35, 2, shown(1, 7)).at(36, 2, shown(0, 7)).broken()
        };
        assert_eq!(shown_there(true), NOTHING);
        assert_eq!(shown_there(false), [("I5", 1)]);
    }
}
