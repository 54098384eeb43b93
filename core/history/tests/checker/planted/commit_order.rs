//! I5: what is sent in transactions comes in the order of commits.

use super::*;

fn sent(story: Story, ms: u64, tx: u64, sequence: u64) -> Story {
    story.at(ms, 0, send_in(tx, sequence)).at(ms + 1, 0, sent_ok(sequence))
}

fn committed(story: Story, ms: u64, tx: u64) -> Story {
    story.at(ms, 0, commit(tx)).at(ms + 2, 0, commit_ok(tx))
}

/// Received in this order on one link, and by two links of which the second begins after the first delivery was seen.
fn orders(story: impl Fn() -> Story, first: u64, second: u64) -> [Vec<(&'static str, u64)>; 2] {
    let one = story().at(60, 1, recv(first, 1, 0)).at(61, 1, recv(second, 1, 0));
    let two = story().at(60, 1, recv(first, 1, 0)).at(70, 2, attach(3)).at(70, 2, credit(3, 5));
    [one.broken(), two.at(75, 2, recv(second, 3, 0)).broken()]
}

fn good() -> [Vec<(&'static str, u64)>; 2] {
    [NOTHING.to_vec(), NOTHING.to_vec()]
}

fn bad() -> [Vec<(&'static str, u64)>; 2] {
    [vec![("I5", 1)], vec![("I5", 1)]]
}

#[test]
fn within_one_transaction_in_the_order_of_sending() {
    let story = || committed(sent(sent(two_consumers(), 10, 1, 0), 12, 1, 1), 20, 1);
    assert_eq!(orders(story, 0, 1), good());
    assert_eq!(orders(story, 1, 0), bad());
}

#[test]
fn the_one_that_was_committed_first_comes_first() {
    let story = || committed(committed(sent(sent(two_consumers(), 10, 1, 0), 12, 2, 1), 20, 2), 30, 1);
    assert_eq!(orders(story, 1, 0), good());
    assert_eq!(orders(story, 0, 1), bad());
}

#[test]
fn two_commits_at_a_time_have_no_order() {
    let story = || {
        let story = sent(sent(two_consumers(), 10, 1, 0), 12, 2, 1).at(20, 0, commit(2)).at(21, 0, commit(1));
        story.at(25, 0, commit_ok(2)).at(26, 0, commit_ok(1))
    };
    assert_eq!(orders(story, 0, 1), good());
    assert_eq!(orders(story, 1, 0), good());
}

#[test]
fn by_itself_and_in_a_transaction() {
    // 0 in a transaction that is committed after 1 was confirmed; 2 is sent after the commit.
    let story = || {
        let story = sent(two_consumers(), 10, 1, 0).at(12, 0, send(1)).at(14, 0, sent_ok(1));
        committed(story, 20, 1).at(25, 0, send(2)).at(27, 0, sent_ok(2))
    };
    assert_eq!(orders(story, 1, 0), good());
    assert_eq!(orders(story, 0, 1), bad());
    assert_eq!(orders(story, 0, 2), good());
    assert_eq!(orders(story, 2, 0), bad());
    let unconfirmed = || committed(sent(two_consumers(), 10, 1, 0).at(12, 0, send(1)), 20, 1).at(30, 0, sent_ok(1));
    assert_eq!(orders(unconfirmed, 0, 1), good(), "nobody knows which came first");
}

#[test]
fn a_commit_of_which_nobody_knows_has_its_place_when_it_is_seen() {
    let story = || sent(two_consumers(), 10, 1, 0).at(20, 0, commit(1)).at(22, 0, commit_unknown(1));
    let later = || story().at(30, 0, send(1)).at(32, 0, sent_ok(1));
    assert_eq!(orders(later, 1, 0), good());
    let seen = story().at(40, 1, recv(0, 1, 0)).at(41, 1, release(0, 1)).at(50, 0, send(1)).at(52, 0, sent_ok(1));
    assert_eq!(seen.at(60, 1, recv(1, 1, 0)).at(61, 1, recv(0, 1, 0)).broken(), NOTHING, "it had been given out");
}
