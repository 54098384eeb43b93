//! I6, and what I1 to I4, I8 and I12 say of transactions: everything that a transaction did is there, or nothing.

use super::*;

/// Sends `sequences` in transaction 1, from 10, and asks for its commit at 15.
fn asked(sequences: std::ops::Range<u64>) -> Story {
    let mut story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(9, 0, begin(1));
    for sequence in sequences {
        story = story.at(10, 0, send_in(1, sequence)).at(12, 0, sent_ok(sequence));
    }
    story.at(15, 0, commit(1))
}

fn taken(story: Story, ms: u64, sequence: u64) -> Story {
    story.at(ms, 1, recv(sequence, 1, 0)).at(ms + 1, 1, ack(sequence, 1)).at(ms + 2, 1, ack_ok(sequence, 1))
}

/// Message 0, confirmed, is acknowledged by consumer 1 in transaction 1, which sends message 1 as well.
fn both() -> Story {
    let story = two_consumers().confirmed(2, 0..1).at(9, 1, begin(1)).at(10, 1, recv(0, 1, 0));
    story.at(11, 1, ack_in(1, 0, 1)).at(11, 0, send_in(1, 1))
}

fn empty(story: Story) -> Story {
    story.at(100, 2, drained()).at(101, 2, drained_of("DLQ"))
}

mod sends {
    use super::*;

    #[test]
    fn half_of_what_was_sent() {
        let told = taken(asked(0..2).at(17, 0, commit_ok(1)), 20, 0);
        assert_eq!(empty(told).broken(), [("I6", 1)]);
        let unknown = taken(asked(0..2).at(17, 0, commit_unknown(1)), 20, 0);
        assert_eq!(empty(unknown).broken(), [("I6", 1)], "whatever it became, it is the same for both");
    }

    #[test]
    fn half_of_what_was_shown() {
        let browser = Event::Browser { consumer: 9, queue: QUEUE };
        let browsed = Event::Browsed { message: message(0), consumer: 9, crc_ok: true };
        let story = asked(0..2).at(17, 0, commit_unknown(1)).at(20, 2, browser).at(21, 2, browsed);
        assert_eq!(empty(taken(story, 30, 1)).broken(), [("I6", 1)], "the one that was shown is gone");
    }

    #[test]
    fn all_or_nothing_if_nobody_knows() {
        let story = || asked(0..2).at(17, 0, commit_unknown(1));
        assert_eq!(empty(story()).broken(), NOTHING);
        assert_eq!(empty(taken(taken(story(), 20, 0), 30, 1)).broken(), NOTHING);
        assert_eq!(taken(story(), 20, 0).broken(), NOTHING, "nobody looked whether the other one is there");
        assert_eq!(empty(asked(0..2)).broken(), NOTHING);
    }

    #[test]
    fn a_look_before_it_was_decided_says_nothing() {
        let story = asked(0..1).at(16, 0, commit_unknown(1)).at(18, 2, drained()).at(19, 2, drained_of("DLQ"));
        assert_eq!(taken(story, 20, 0).broken(), NOTHING);
        let other = |sequence| match send_in(1, sequence) {
            Event::Send { message, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx, .. } => {
                let queue = "other";
                Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx }
            }
            other => other,
        };
        let elsewhere = |looked| {
            let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).at(10, 0, send_in(1, 0));
            let story = story.at(10, 0, other(1)).at(15, 0, commit(1)).at(16, 0, commit_unknown(1));
            let story = story.at(looked, 2, drained_of("other"));
            taken(story, 50, 0).broken()
        };
        assert_eq!(elsewhere(40), NOTHING, "it was perhaps decided only then");
        assert_eq!(elsewhere(60), [("I6", 1)]);
    }

    #[test]
    fn nothing_under_way_is_decided() {
        // Gone for good by what it acknowledged, and its message is nowhere, by looks at different times.
        let story = |quiet: bool| {
            let story = both().at(15, 0, commit(1)).at(16, 0, commit_unknown(1));
            let story = if quiet { story.at(90, 2, counters(0)) } else { story };
            empty(story).broken()
        };
        assert_eq!(story(true), [("I6", 1)]);
        assert_eq!(story(false), [("I6", 1)], "one look for both");
    }

    #[test]
    fn committed_and_all_of_it_lost() {
        assert_eq!(empty(asked(0..2).at(17, 0, commit_ok(1))).broken(), [("I1", 2)]);
        assert_eq!(asked(0..2).at(17, 0, commit_ok(1)).broken(), NOTHING);
    }

    #[test]
    fn told_by_the_question_what_became_of_it() {
        let story = |answer| empty(asked(0..2).at(17, 0, commit_unknown(1)).at(50, 0, answer)).broken();
        assert_eq!(story(commit_ok(1)), [("I1", 2)]);
        assert_eq!(story(rollback_ok(1)), NOTHING);
    }

    #[test]
    fn not_committed_and_seen() {
        let never = Story::of(3).at(9, 0, begin(1)).at(10, 0, send_in(1, 0)).at(12, 0, sent_ok(0));
        assert_eq!(taken(never, 20, 0).broken(), [("I2", 1)], "nobody asked for it");
        assert_eq!(taken(asked(0..1).at(17, 0, rollback_ok(1)), 20, 0).broken(), [("I2", 1)]);
        assert_eq!(taken(asked(0..1).at(17, 0, commit_ok(1)), 20, 0).broken(), NOTHING);
        let browser = Event::Browser { consumer: 9, queue: QUEUE };
        let browsed = Event::Browsed { message: message(0), consumer: 9, crc_ok: true };
        let shown = asked(0..1).at(17, 0, rollback_ok(1)).at(20, 2, browser).at(21, 2, browsed);
        assert_eq!(shown.broken(), [("I2", 1)]);
        let dead = asked(0..1).at(17, 0, rollback_ok(1)).at(20, 2, Event::Dlq { message: message(0), reason: "?" });
        assert_eq!(dead.broken(), [("I2", 1)]);
    }

    #[test]
    fn seen_before_its_commit_was_asked_for() {
        let story = Story::of(3).at(9, 0, begin(1)).at(10, 0, send_in(1, 0)).at(12, 0, sent_ok(0));
        let story = taken(story, 20, 0).at(30, 0, commit(1)).at(31, 0, commit_ok(1));
        assert_eq!(story.broken(), [("I2", 1)]);
    }

    #[test]
    fn sent_after_the_commit_is_not_in_it() {
        let late = || asked(0..1).at(16, 0, send_in(1, 1)).at(17, 0, commit_ok(1));
        assert_eq!(taken(late(), 20, 0).at(50, 2, drained()).broken(), NOTHING);
        assert_eq!(taken(taken(late(), 20, 0), 30, 1).broken(), [("I2", 1)]);
    }

    #[test]
    fn what_was_refused_within_it_is_not_in_it() {
        let refused = || {
            let story = Story::of(3).at(9, 0, begin(1)).at(10, 0, send_in(1, 0)).at(10, 0, send_in(1, 1));
            story.at(11, 0, Event::SentRejected { message: message(1), reason: "full" }).at(15, 0, commit(1))
        };
        assert_eq!(empty(refused().at(17, 0, rollback_ok(1))).broken(), NOTHING);
        assert_eq!(empty(taken(refused().at(17, 0, commit_ok(1)), 20, 0)).broken(), NOTHING);
        assert_eq!(taken(refused().at(17, 0, commit_ok(1)), 20, 1).broken(), [("I2", 1)]);
    }

    #[test]
    fn two_are_told_different_things() {
        let story = Story::of(2).at(1, 0, branch(1, "b")).at(2, 0, xa(XaVerb::Commit, "b"));
        let story = story.at(3, 1, xa(XaVerb::Rollback, "b")).at(5, 0, answer(XaVerb::Commit, "b", 0));
        assert_eq!(story.at(6, 1, answer(XaVerb::Rollback, "b", 0)).broken(), [("I6", 1)]);
    }

    #[test]
    fn what_is_not_persistent_goes_with_its_broker() {
        let volatile = |sequence| match send_in(1, sequence) {
            Event::Send { message, queue, size_bytes, crc, ttl_ms, delay_ms, priority, tx, .. } => {
                Event::Send { message, queue, size_bytes, crc, persistent: false, ttl_ms, delay_ms, priority, tx }
            }
            other => other,
        };
        let story = || Story::of(3).at(10, 0, send_in(1, 0)).at(10, 0, volatile(1)).at(15, 0, commit(1));
        let story = || story().at(17, 0, commit_ok(1));
        assert_eq!(empty(taken(story(), 20, 0)).broken(), [("I6", 1)]);
        assert_eq!(empty(taken(story().at(18, 2, kill()).at(19, 2, start()), 20, 0)).broken(), NOTHING);
    }

    #[test]
    fn what_an_operator_may_have_removed() {
        let purge = |messages| Event::Purge { operation: 1, queue: QUEUE, deletes: false, messages };
        let story = asked(0..2).at(17, 0, commit_unknown(1)).at(40, 2, purge(None)).at(41, 2, purge(Some(1)));
        assert_eq!(empty(taken(story, 20, 0)).broken(), NOTHING);
    }
}

mod acknowledgements {
    use super::*;

    /// It comes again, flagged or not, and is acknowledged by itself.
    fn again(story: Story, count: u32) -> Story {
        let story = story.at(40, 2, recv(0, 2, count)).at(41, 2, ack(0, 2)).at(42, 2, ack_ok(0, 2));
        empty(story)
    }

    fn alone() -> Story {
        let story = two_consumers().confirmed(2, 0..1).at(9, 1, begin(1)).at(10, 1, recv(0, 1, 0));
        story.at(11, 1, ack_in(1, 0, 1)).at(15, 1, commit(1))
    }

    #[test]
    fn committed_it_does_not_come_again() {
        assert_eq!(empty(alone().at(17, 1, commit_ok(1))).broken(), NOTHING);
        assert_eq!(again(alone().at(17, 1, commit_ok(1)), 1).broken(), [("I3", 1)]);
        assert_eq!(again(alone().at(17, 1, commit_ok(1)), 0).broken(), [("I3", 1)], "flagged or not");
        let dead = alone().at(17, 1, commit_ok(1)).at(40, 2, Event::Dlq { message: message(0), reason: "attempts" });
        assert_eq!(dead.broken(), [("I3", 1)]);
    }

    #[test]
    fn rolled_back_it_comes_again_and_says_so() {
        for answer in [rollback_ok(1), commit_unknown(1)] {
            assert_eq!(again(alone().at(17, 1, answer), 1).broken(), NOTHING);
            assert_eq!(again(alone().at(17, 1, answer), 0).broken(), [("I4", 1)]);
        }
        assert_eq!(empty(alone().at(17, 1, rollback_ok(1))).broken(), [("I1", 1)]);
        assert_eq!(empty(alone().at(17, 1, commit_unknown(1))).broken(), NOTHING, "it may have been committed");
    }

    #[test]
    fn never_committed_it_comes_again() {
        let open = || two_consumers().confirmed(2, 0..1).at(10, 1, recv(0, 1, 0)).at(11, 1, ack_in(1, 0, 1));
        let gone = || open().at(12, 1, lost(1));
        assert_eq!(empty(gone()).broken(), [("I1", 1)]);
        assert_eq!(again(gone(), 1).broken(), NOTHING);
    }

    #[test]
    fn an_answer_to_the_acknowledgement_says_only_that_the_transaction_has_it() {
        let answered = Event::Ack { message: message(0), consumer: 1, confirmed: true, tx: Some(1) };
        let story = two_consumers().confirmed(2, 0..1).at(10, 1, recv(0, 1, 0)).at(11, 1, ack_in(1, 0, 1));
        assert_eq!(again(story.at(12, 1, answered).at(13, 1, rollback_ok(1)), 1).broken(), NOTHING);
    }

    #[test]
    fn sent_and_acknowledged_are_decided_alike() {
        let unknown = || both().at(15, 0, commit(1)).at(16, 0, commit_unknown(1));
        let message_1 = |story: Story| story.at(50, 1, recv(1, 1, 0)).at(51, 1, ack(1, 1)).at(52, 1, ack_ok(1, 1));
        assert_eq!(empty(message_1(unknown())).broken(), NOTHING, "committed");
        assert_eq!(again(unknown(), 1).broken(), NOTHING, "rolled back");
        assert_eq!(again(message_1(unknown()), 1).broken(), [("I6", 1)]);
        assert_eq!(empty(unknown()).broken(), [("I6", 1)], "neither the one nor the other");
    }

    #[test]
    fn two_acknowledgements_are_decided_alike() {
        let story = two_consumers().confirmed(2, 0..2).at(10, 1, recv(0, 1, 0)).at(10, 1, recv(1, 1, 0));
        let story = story.at(11, 1, ack_in(1, 0, 1)).at(11, 1, ack_in(1, 1, 1));
        let story = story.at(15, 1, commit(1)).at(16, 1, commit_unknown(1));
        assert_eq!(again(story, 1).broken(), [("I6", 1)], "0 came again, 1 did not");
    }

    #[test]
    fn of_two_transactions_the_one_that_came_last_has_it() {
        // Rolled back the first time, nobody knows of the second one.
        let story = alone().at(17, 1, commit_unknown(1)).at(40, 2, recv(0, 2, 1)).at(41, 2, ack_in(2, 0, 2));
        assert_eq!(empty(story.at(42, 2, commit(2))).broken(), NOTHING);
    }
}

mod looks {
    use super::*;

    fn survey(start: bool) -> Event<'static> {
        Event::Survey { start }
    }

    fn found(story: Story, sequences: &[u64]) -> Vec<(&'static str, u64)> {
        let mut story = story.at(60, 2, survey(true));
        for sequence in sequences {
            story = story.at(61, 2, Event::Present { message: message(*sequence), queue: QUEUE });
        }
        story.at(62, 2, survey(false)).broken()
    }

    #[test]
    fn a_survey_finds_what_was_committed() {
        assert_eq!(found(asked(0..1).at(17, 0, commit_ok(1)), &[]), [("I8", 1)]);
        assert_eq!(found(asked(0..1).at(17, 0, commit_ok(1)), &[0]), NOTHING);
        assert_eq!(found(asked(0..1).at(17, 0, commit_unknown(1)), &[]), NOTHING);
        assert_eq!(found(asked(0..1).at(17, 0, rollback_ok(1)), &[]), NOTHING);
        assert_eq!(found(both().at(15, 0, rollback_ok(1)), &[]), [("I8", 1)], "given back");
        assert_eq!(found(both().at(15, 0, commit(1)).at(16, 0, commit_ok(1)), &[1]), NOTHING);
    }

    #[test]
    fn counters_count_what_was_committed() {
        let depth = |story: Story, depth| story.at(60, 2, counters(depth)).broken();
        let committed = || asked(0..2).at(17, 0, commit_ok(1));
        assert_eq!(depth(committed(), 2), NOTHING);
        assert_eq!(depth(committed(), 1), [("I12", 1)]);
        let unknown = || asked(0..2).at(17, 0, commit_unknown(1));
        assert_eq!(depth(unknown(), 0), NOTHING);
        assert_eq!(depth(unknown(), 2), NOTHING);
        assert_eq!(depth(unknown(), 3), [("I12", 1)]);
        let rolled_back = || asked(0..2).at(17, 0, rollback_ok(1));
        assert_eq!(depth(rolled_back(), 0), NOTHING);
        assert_eq!(depth(rolled_back(), 1), [("I12", 1)]);
        let acknowledged = || both().at(15, 0, commit(1)).at(16, 0, commit_ok(1));
        assert_eq!(depth(acknowledged(), 1), NOTHING, "0 is gone and 1 is there");
        assert_eq!(depth(acknowledged(), 2), [("I12", 1)]);
    }

    #[test]
    fn ready_from_its_commit_on() {
        let mut story = asked(0..1).at(17, 0, commit_ok(1));
        for ms in (100..1_500).step_by(100) {
            story = story.at(ms, 1, Event::Tick);
        }
        assert_eq!(story.broken(), [("I9", 1)]);
        let mut story = asked(0..1).at(17, 0, commit_unknown(1));
        for ms in (100..1_500).step_by(100) {
            story = story.at(ms, 1, Event::Tick);
        }
        assert_eq!(story.broken(), NOTHING);
    }

    #[test]
    fn totals_and_how_much_was_judged() {
        let report = asked(0..2).at(17, 0, commit_ok(1)).at(18, 0, begin(2)).at(19, 0, send_in(2, 7)).check();
        let totals = report.totals;
        assert_eq!((totals.sent, totals.confirmed, totals.rolled_back, totals.unknown), (3, 2, 1, 0));
        assert_eq!((totals.transactions, totals.transactions_committed, totals.transactions_unknown), (2, 1, 0));
        assert_eq!(report.judged(packhorse_history::Invariant::Atomicity), 2);
    }
}
