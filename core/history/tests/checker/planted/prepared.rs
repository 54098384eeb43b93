//! I7: a prepared branch stays as it is until somebody decides it.

use super::*;

const B: &str = "1:aa:bb";

/// Branch B acknowledges message 0, sends message 1, and is prepared at 20.
fn prepared() -> Story {
    let story = two_consumers().confirmed(2, 0..1).at(9, 1, branch(1, B)).at(9, 1, xa(XaVerb::Start, B));
    let story = story.at(10, 1, answer(XaVerb::Start, B, 0)).at(10, 1, recv(0, 1, 0)).at(11, 1, ack_in(1, 0, 1));
    let story = story.at(12, 0, send_in(1, 1)).at(13, 1, xa(XaVerb::End, B)).at(14, 1, answer(XaVerb::End, B, 0));
    story.at(15, 1, xa(XaVerb::Prepare, B)).at(20, 1, answer(XaVerb::Prepare, B, 0))
}

fn asked(story: Story, ms: u64, verb: XaVerb, code: i32) -> Story {
    story.at(ms, 1, xa(verb, B)).at(ms + 5, 1, answer(verb, B, code))
}

fn list(story: Story, ms: u64, xids: &'static str) -> Story {
    story.at(ms, 2, recover()).at(ms + 5, 2, listed(xids))
}

/// An operator empties a queue, or deletes it.
fn emptied(story: Story, (ms, process): (u64, usize), queue: &'static str, deletes: bool) -> Story {
    let purge = |messages| Event::Purge { operation: 1, queue, deletes, messages };
    story.at(ms, process, purge(None)).at(ms + 1, process, purge(Some(0)))
}

fn decided(story: Story, ms: u64, commit: bool) -> Story {
    let decide = |code| Event::Decide { xid: B, commit, code };
    story.at(ms, 0, decide(None)).at(ms + 2, 0, decide(Some(0)))
}

mod recover {
    use super::*;

    #[test]
    fn a_branch_in_doubt_is_listed() {
        assert_eq!(list(prepared(), 50, B).broken(), NOTHING);
        assert_eq!(list(prepared(), 50, "").broken(), [("I7", 1)]);
        let died = prepared().at(30, 0, kill()).at(30, 1, lost(1)).at(30, 2, lost(2)).at(35, 0, start());
        assert_eq!(list(died, 50, "").broken(), [("I7", 1)]);
    }

    #[test]
    fn one_that_is_being_decided_may_be_listed() {
        for verb in [XaVerb::Commit, XaVerb::Rollback] {
            for xids in [B, ""] {
                let story = prepared().at(52, 1, xa(verb, B)).at(58, 1, answer(verb, B, 0));
                assert_eq!(list(story, 50, xids).broken(), NOTHING, "{verb:?} {xids}");
                let unknown = list(prepared().at(40, 1, xa(verb, B)), 50, xids);
                assert_eq!(unknown.broken(), NOTHING, "{verb:?} {xids}: it may have been in vain");
            }
        }
    }

    #[test]
    fn one_that_is_over_is_not_listed() {
        for verb in [XaVerb::Commit, XaVerb::Rollback] {
            assert_eq!(list(asked(prepared(), 30, verb, 0), 50, "").broken(), NOTHING);
            assert_eq!(list(asked(prepared(), 30, verb, 0), 50, B).broken(), [("I7", 1)], "{verb:?}");
        }
    }

    #[test]
    fn a_request_in_vain_changes_nothing() {
        for (verb, code) in [(XaVerb::Commit, 4), (XaVerb::Commit, -6), (XaVerb::Rollback, -6)] {
            assert_eq!(list(asked(prepared(), 30, verb, code), 50, "").broken(), [("I7", 1)], "{verb:?} {code}");
            assert_eq!(list(asked(prepared(), 30, verb, code), 50, B).broken(), NOTHING, "{verb:?} {code}");
        }
    }

    #[test]
    fn what_nobody_prepared_is_not_listed() {
        let idle = || Story::of(3).at(9, 1, branch(1, B)).at(10, 1, xa(XaVerb::Start, B));
        assert_eq!(list(idle(), 50, B).broken(), [("I7", 1)]);
        assert_eq!(list(idle().at(52, 1, xa(XaVerb::Prepare, B)), 50, B).broken(), NOTHING);
        assert_eq!(list(idle(), 50, "9:cc:").broken(), [("I7", 1)], "nobody began it");
        assert_eq!(list(asked(idle(), 20, XaVerb::Prepare, 100), 50, B).broken(), [("I7", 1)]);
        assert_eq!(list(asked(idle(), 20, XaVerb::Prepare, 3), 50, B).broken(), [("I7", 1)]);
        assert_eq!(list(idle().at(20, 1, xa(XaVerb::Prepare, B)), 50, "").broken(), NOTHING, "nobody knows");
        assert_eq!(list(prepared(), 50, "1:aa:bb 1:aa:bb").broken(), [("I7", 1)], "twice");
    }

    #[test]
    fn what_an_operator_decided_is_listed_until_it_is_forgotten() {
        for commit in [true, false] {
            let done = || decided(prepared(), 30, commit);
            assert_eq!(list(done(), 50, B).broken(), NOTHING);
            assert_eq!(list(done(), 50, "").broken(), [("I7", 1)]);
            let later = list(asked(prepared(), 30, XaVerb::Commit, 0), 50, B);
            let decide = Event::Decide { xid: B, commit, code: None };
            assert_eq!(later.at(70, 0, decide).broken(), [("I7", 1)], "he came when it was over");
            let forgotten = || asked(done(), 40, XaVerb::Forget, 0);
            assert_eq!(list(forgotten(), 50, "").broken(), NOTHING);
            assert_eq!(list(forgotten(), 50, B).broken(), [("I7", 1)]);
        }
    }

    #[test]
    fn another_broker_lists_others() {
        let begin = Event::TxBegin { tx: 1, xid: Some(B), broker: Some("b") };
        let story = |broker| {
            let story = asked(Story::of(3).at(9, 1, begin), 10, XaVerb::Prepare, 0);
            let story = story.at(50, 2, Event::RecoverList { xids: None, broker: Some(broker) });
            story.at(51, 2, Event::RecoverList { xids: Some(""), broker: Some(broker) }).broken()
        };
        assert_eq!(story("a"), NOTHING);
        assert_eq!(story("b"), [("I7", 1)]);
    }
}

mod verbs {
    use super::*;

    #[test]
    fn a_branch_in_doubt_is_known() {
        for verb in [XaVerb::Prepare, XaVerb::Commit, XaVerb::Rollback] {
            assert_eq!(asked(prepared(), 30, verb, -4).broken(), [("I7", 1)], "{verb:?}");
            assert_eq!(asked(prepared(), 30, verb, 0).broken(), NOTHING, "{verb:?}");
        }
    }

    #[test]
    fn one_that_may_be_over_need_not_be_known() {
        let first = prepared().at(25, 0, xa(XaVerb::Commit, B));
        assert_eq!(asked(first, 30, XaVerb::Commit, -4).broken(), NOTHING);
        let idle = Story::of(3).at(9, 1, branch(1, B)).at(10, 1, xa(XaVerb::Prepare, B));
        assert_eq!(asked(idle, 30, XaVerb::Commit, -4).broken(), NOTHING, "nobody knows whether it was prepared");
    }

    #[test]
    fn a_branch_in_doubt_does_not_roll_itself_back() {
        for code in [100, 101, 106] {
            assert_eq!(asked(prepared(), 30, XaVerb::Commit, code).broken(), [("I7", 1)], "{code}");
            assert_eq!(asked(prepared(), 30, XaVerb::Prepare, code).broken(), [("I7", 1)], "{code}");
            let first = prepared().at(25, 0, xa(XaVerb::Rollback, B));
            assert_eq!(asked(first, 30, XaVerb::Commit, code).broken(), NOTHING, "{code}");
        }
    }

    #[test]
    fn only_an_operator_decides_otherwise() {
        for code in [5, 6, 7] {
            assert_eq!(asked(prepared(), 30, XaVerb::Commit, code).broken(), [("I7", 1)], "{code}");
        }
        assert_eq!(asked(decided(prepared(), 25, true), 30, XaVerb::Rollback, 7).broken(), NOTHING);
        assert_eq!(asked(decided(prepared(), 25, false), 30, XaVerb::Commit, 6).broken(), NOTHING);
    }

    #[test]
    fn an_operator_who_empties_a_queue_of_its_own_decides_otherwise() {
        for code in [-4, 5, 6, 106] {
            let broken = |when, queue| {
                let story = emptied(prepared(), when, queue, true);
                asked(story, 30, XaVerb::Commit, code).broken()
            };
            assert_eq!(broken((25, 0), QUEUE), NOTHING, "{code}");
            assert_eq!(broken((25, 0), "other"), [("I7", 1)], "{code}: nothing of it was there");
            assert_eq!(broken((5, 2), QUEUE), [("I7", 1)], "{code}: before anything of it was there");
            assert_eq!(broken((50, 0), QUEUE), [("I7", 1)], "{code}: he came later");
        }
    }
}

mod messages {
    use super::*;

    #[test]
    fn of_a_branch_in_doubt_nothing_is_seen() {
        assert_eq!(prepared().at(40, 2, recv(1, 2, 0)).broken(), [("I7", 1)]);
        let browser = Event::Browser { consumer: 9, queue: QUEUE };
        let browsed = |sequence| Event::Browsed { message: message(sequence), consumer: 9, crc_ok: true };
        assert_eq!(prepared().at(40, 2, browser).at(41, 2, browsed(1)).broken(), [("I7", 1)]);
        assert_eq!(prepared().at(40, 2, browser).at(41, 2, browsed(0)).broken(), [("I7", 1)]);
        let before = prepared().at(5, 2, browser).at(6, 2, browsed(0));
        assert_eq!(before.broken(), NOTHING);
    }

    #[test]
    fn what_it_acknowledged_does_not_come_again() {
        assert_eq!(prepared().at(40, 2, recv(0, 2, 1)).broken(), [("I7", 1)]);
        let rolled_back = asked(prepared(), 50, XaVerb::Rollback, 0);
        assert_eq!(rolled_back.at(40, 2, recv(0, 2, 1)).broken(), [("I7", 1)], "before anybody asked for it");
        assert_eq!(asked(prepared(), 30, XaVerb::Rollback, 0).at(40, 2, recv(0, 2, 1)).broken(), NOTHING);
        assert_eq!(prepared().at(30, 1, xa(XaVerb::Rollback, B)).at(40, 2, recv(0, 2, 1)).broken(), NOTHING);
        let committed = asked(prepared(), 30, XaVerb::Commit, 0);
        assert_eq!(committed.at(40, 2, recv(0, 2, 1)).broken(), [("I3", 1)]);
    }

    #[test]
    fn a_queue_with_something_in_doubt_is_not_empty() {
        assert_eq!(prepared().at(40, 2, drained()).broken(), [("I7", 2)], "what was sent and what was acknowledged");
        assert_eq!(prepared().at(40, 2, drained()).at(41, 2, drained_of("DLQ")).broken(), [("I1", 1), ("I7", 2)]);
        let asked = prepared().at(30, 1, xa(XaVerb::Commit, B)).at(40, 2, drained());
        assert_eq!(asked.broken(), NOTHING, "it may have been decided");
    }

    #[test]
    fn half_of_a_branch() {
        let committed = asked(prepared(), 30, XaVerb::Commit, 0);
        let story = committed.at(40, 2, recv(1, 2, 0)).at(41, 2, ack(1, 2)).at(45, 2, recv(0, 2, 1));
        assert_eq!(story.broken(), [("I6", 1)]);
        let rolled_back = asked(prepared(), 30, XaVerb::Rollback, 0);
        assert_eq!(rolled_back.at(40, 2, recv(1, 2, 0)).broken(), [("I2", 1)]);
    }

    #[test]
    fn by_an_operators_hand_it_becomes_what_he_says() {
        let story = decided(prepared(), 30, true).at(40, 2, recv(1, 2, 0));
        assert_eq!(story.broken(), NOTHING);
        assert_eq!(decided(prepared(), 30, false).at(40, 2, recv(0, 2, 1)).broken(), NOTHING);
        assert_eq!(decided(prepared(), 30, false).at(40, 2, recv(1, 2, 0)).broken(), [("I2", 1)]);
        let mixed =
            asked(prepared(), 30, XaVerb::Commit, 5).at(29, 0, Event::Decide { xid: B, commit: false, code: None });
        assert_eq!(mixed.at(40, 2, recv(1, 2, 0)).at(41, 2, recv(0, 2, 1)).broken(), NOTHING, "both, he was told");
        let forced = asked(emptied(prepared(), (25, 0), QUEUE, true), 30, XaVerb::Commit, 5);
        assert_eq!(forced.at(40, 2, recv(1, 2, 0)).broken(), NOTHING, "a queue had gone with its part of the branch");
    }

    #[test]
    fn an_operator_who_empties_a_queue_by_force_gives_back_what_was_acknowledged_there() {
        for shown in [false, true] {
            let purge = |queue, when| {
                let story = emptied(prepared(), when, queue, false);
                if !shown {
                    return story.at(40, 2, recv(0, 2, 1)).broken();
                }
                let browsed = Event::Browsed { message: message(0), consumer: 9, crc_ok: true };
                story.at(40, 2, Event::Browser { consumer: 9, queue: QUEUE }).at(41, 2, browsed).broken()
            };
            assert_eq!(purge(QUEUE, (30, 0)), NOTHING);
            assert_eq!(purge("other", (30, 0)), [("I7", 1)]);
            assert_eq!(purge(QUEUE, (50, 0)), [("I7", 1)], "he came later");
            assert_eq!(purge(QUEUE, (5, 2)), [("I7", 1)], "before it was acknowledged");
        }
        let over = emptied(asked(prepared(), 30, XaVerb::Commit, 0), (37, 0), QUEUE, false);
        assert_eq!(over.at(40, 2, recv(0, 2, 1)).broken(), [("I3", 1)], "he came when it was over");
    }

    #[test]
    fn an_operator_who_empties_a_queue_by_force_leaves_nothing_in_doubt_there() {
        let drained = |queue, when| emptied(prepared(), when, queue, false).at(40, 2, drained()).broken();
        assert_eq!(drained(QUEUE, (30, 0)), NOTHING);
        assert_eq!(drained("other", (30, 0)), [("I7", 2)]);
        assert_eq!(drained(QUEUE, (5, 2)), [("I7", 2)], "before anything was there");
        let moved = |messages| Event::Move { operation: 1, queue: QUEUE, target: "other", messages };
        let story = prepared().at(30, 0, moved(None)).at(31, 0, moved(Some(0)));
        assert_eq!(story.at(40, 2, super::drained()).broken(), [("I7", 2)], "what is in doubt is not moved");
    }

    #[test]
    fn another_process_decides_after_the_first_one_died() {
        let story = prepared().and(&header(1, 1, 30)).at(35, 3, recover()).at(36, 3, listed(B));
        let story = story.at(37, 3, xa(XaVerb::Commit, B)).at(40, 3, answer(XaVerb::Commit, B, 0));
        let story = story.at(45, 2, recv(1, 2, 0)).at(46, 2, ack(1, 2)).at(50, 2, drained());
        assert_eq!(story.at(51, 2, drained_of("DLQ")).broken(), NOTHING);
    }
}
