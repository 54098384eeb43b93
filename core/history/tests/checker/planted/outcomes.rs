//! Outcomes in transactions: they happen at the commit, and rolled back each is a delivery that was seen.

use super::*;

fn released() -> Event<'static> {
    Event::Release { message: message(0), consumer: 1, tx: Some(1) }
}

fn modified(delivery_failed: bool, undeliverable_here: bool) -> Event<'static> {
    Event::Modified { message: message(0), consumer: 1, delivery_failed, undeliverable_here, tx: Some(1) }
}

/// Message 0 came to consumer 1, which said this in transaction 1.
fn said(what: Event<'static>) -> Story {
    two_consumers().confirmed(10, 0..1).at(15, 1, begin(1)).at(20, 1, recv(0, 1, 0)).at(21, 1, what)
}

fn committed(story: Story) -> Story {
    story.at(25, 1, commit(1)).at(26, 1, commit_ok(1))
}

fn rolled_back(story: Story) -> Story {
    story.at(26, 1, rollback_ok(1))
}

fn again(story: Story, count: u32) -> Vec<(&'static str, u64)> {
    story.at(40, 2, recv(0, 2, count)).at(41, 2, ack(0, 2)).at(60, 1, drained()).at(61, 1, drained_of("DLQ")).broken()
}

#[test]
fn a_rollback_makes_any_of_them_a_delivery() {
    for unseen in [released, || modified(false, true)] {
        assert_eq!(again(committed(said(unseen())), 0), NOTHING);
        assert_eq!(again(rolled_back(said(unseen())), 0), [("I4", 1)]);
        assert_eq!(again(rolled_back(said(unseen())), 1), NOTHING);
        let unknown = said(unseen()).at(25, 1, commit(1)).at(26, 1, commit_unknown(1));
        assert_eq!(again(unknown, 0), NOTHING, "it may be committed");
    }
    assert_eq!(again(committed(said(modified(true, false))), 0), [("I4", 1)]);
    assert_eq!(again(committed(said(modified(true, false))), 1), NOTHING);
}

#[test]
fn what_was_rejected_in_one_that_was_rolled_back_is_not_gone() {
    let reject = || Event::Reject { message: message(0), consumer: 1, tx: Some(1) };
    let letter = Event::Dlq { message: message(0), reason: "rejected" };
    let end = |story: Story| story.at(60, 1, drained()).at(61, 1, drained_of("DLQ")).broken();
    assert_eq!(end(committed(said(reject())).at(50, 1, letter)), NOTHING);
    assert_eq!(end(rolled_back(said(reject()))), [("I1", 1)], "it is nowhere");
    assert_eq!(again(rolled_back(said(reject())), 1), NOTHING);
}

#[test]
fn undeliverable_here_holds_from_the_commit_on() {
    let back = |story: Story| story.at(40, 1, recv(0, 1, 1)).at(41, 1, ack(0, 1)).broken();
    assert_eq!(back(committed(said(modified(true, true)))), [("I2", 1)]);
    assert_eq!(back(rolled_back(said(modified(true, true)))), NOTHING);
}

#[test]
fn a_link_that_has_ended_gives_nothing_back_that_a_transaction_has() {
    let ended = |tx: Option<u64>| {
        let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10)).confirmed(10, 0..3).at(15, 1, begin(1));
        let story = story.at(20, 1, recv(0, 1, 0)).at(21, 1, Event::Release { message: message(0), consumer: 1, tx });
        let story = story.at(25, 1, detach(1)).at(30, 1, detached(1)).at(35, 2, attach(2)).at(35, 2, credit(2, 10));
        let story = story.at(40, 2, recv(1, 2, 0)).at(45, 1, commit(1)).at(46, 1, commit_ok(1));
        story.at(50, 2, recv(0, 2, 0)).broken()
    };
    assert_eq!(ended(None), [("I5", 1)]);
    assert_eq!(ended(Some(1)), NOTHING);
}
