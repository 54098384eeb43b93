//! What the faults planted in a queue do, each with its near miss. One test, for the choice of a fault is the process's.

#[expect(dead_code, reason = "scenarios use the rest of it")]
mod rig;

use packhorse_model::{Outcome, Planted, choose_planted};
use rig::transactions::txn;
use rig::{DLQ, Got, Q, Rig, seen};

fn numbers(got: &[Got]) -> Vec<u64> {
    got.iter().map(Got::number).collect()
}

/// Ten messages, all taken by one consumer that has credit for more.
fn taken() -> (Rig, Vec<Got>) {
    let mut rig = Rig::new(10);
    rig.send_all(10);
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 20);
    (rig, got)
}

fn swapped_neighbors_change_places_and_nobody_else() {
    choose_planted(Some(Planted::SwapMessages), 5);
    let (rig, got) = taken();
    // The fifth and the tenth offer; two waited for the dispatch mark.
    assert_eq!(numbers(&got), [0, 1, 3, 2, 4, 5, 6, 8, 7, 9]);
    assert!(got.iter().all(|g| g.deliveries == 0));
    assert_eq!(rig.queue(Q).stats().acquired, 10);
}

fn a_delivery_comes_twice_and_counts_as_one() {
    choose_planted(Some(Planted::DeliverTwice), 4);
    let (mut rig, got) = taken();
    assert_eq!(numbers(&got), [0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9]);
    assert_eq!(got[3], got[4]);
    assert!(rig.settle(&got[3], Outcome::Acknowledge));
    assert!(!rig.settle(&got[4], Outcome::Acknowledge));
    // Nobody gets more than there is credit for.
    choose_planted(Some(Planted::DeliverTwice), 1);
    let mut rig = Rig::new(10);
    rig.send_all(4);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(numbers(&rig.receive(Q, consumer, 3)), [0, 0, 1]);
}

fn a_returned_message_comes_without_its_count_and_keeps_it() {
    choose_planted(Some(Planted::RedeliverUnflagged), 2);
    let mut rig = Rig::new(10);
    rig.send_all(4);
    let consumer = rig.subscribe(Q, 1);
    let mut told = || {
        let got = rig.receive(Q, consumer, 4);
        for got in &got {
            rig.settle(got, seen());
        }
        got.iter().map(|g| (g.number(), g.deliveries)).collect::<Vec<_>>()
    };
    assert_eq!(told(), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    assert_eq!(told(), [(0, 1), (1, 0), (2, 1), (3, 0)]);
    assert_eq!(told(), [(0, 2), (1, 0), (2, 2), (3, 0)]);
    choose_planted(None, 1);
    assert_eq!(told(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
    // Nor does one whose consumer was lost.
    assert_eq!(rig.receive(Q, consumer, 4).len(), 4);
    rig.unsubscribe(Q, consumer, true);
    choose_planted(Some(Planted::RedeliverUnflagged), 2);
    assert_eq!(rig.drain(Q, 2), [(0, 5), (1, 0), (2, 5), (3, 0)]);
}

fn an_acknowledged_message_is_gone_until_the_next_start() {
    choose_planted(Some(Planted::ForgetAcknowledgement), 3);
    let (mut rig, got) = taken();
    for got in &got {
        assert!(rig.settle(got, Outcome::Acknowledge));
    }
    rig.end_turn();
    rig.flush();
    assert_eq!(rig.queue(Q).stats().depth, 0);
    choose_planted(None, 1);
    let back: Vec<u64> = rig.crash(1).drain(Q, 2).iter().map(|(number, _)| *number).collect();
    assert_eq!(back, [2, 5, 8]);
}

fn a_delivery_goes_to_a_second_consumer_that_has_credit() {
    let two = |fault| {
        choose_planted(fault, 3);
        let mut rig = Rig::new(10);
        rig.send_all(4);
        let both = [1, 2].map(|consumer| rig.subscribe(Q, consumer));
        both.iter().for_each(|consumer| rig.credit(Q, *consumer, 10));
        rig.flush();
        let mut all: Vec<u64> = both.iter().flat_map(|consumer| numbers(&rig.take(*consumer))).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(two(Some(Planted::DeliverToTwo)), [0, 1, 2, 2, 3]);
    assert_eq!(two(None), [0, 1, 2, 3]);
    choose_planted(Some(Planted::DeliverToTwo), 1);
    assert_eq!(numbers(&taken().1), (0..10).collect::<Vec<_>>(), "nobody else is there");
}

fn credit_leaks() {
    choose_planted(Some(Planted::LeakCredit), 2);
    let mut rig = Rig::new(10);
    rig.send_all(10);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 6).len(), 6);
    // It has paid for nine.
    assert_eq!(numbers(&rig.receive(Q, consumer, 3)), []);
    assert_eq!(numbers(&rig.receive(Q, consumer, 4)), [6]);
}

fn what_comes_back_waits_for_the_end() {
    let order = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        rig.send_all(5);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 2);
        assert!(rig.settle(&got[0], Outcome::ReturnUnseen));
        numbers(&rig.receive(Q, consumer, 10))
    };
    assert_eq!(order(Some(Planted::ReturnToTail)), [2, 3, 4, 0]);
    assert_eq!(order(None), [0, 2, 3, 4]);
}

/// What is there after a crash of three messages that a consumer held.
fn held_at_a_crash() -> Vec<(u64, u32)> {
    let mut rig = Rig::new(10);
    rig.send_all(3);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 3).len(), 3);
    rig.crash(1).drain(Q, 2)
}

fn a_mark_is_lost() {
    choose_planted(Some(Planted::LoseMark), 1);
    assert_eq!(held_at_a_crash(), [(0, 0), (1, 0), (2, 0)]);
    choose_planted(None, 1);
    assert_eq!(held_at_a_crash(), [(0, 1), (1, 1), (2, 1)]);
}

fn a_count_is_forgotten() {
    let count = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        rig.send_all(1);
        let consumer = rig.subscribe(Q, 1);
        for _ in 0..3 {
            let got = rig.receive(Q, consumer, 1);
            assert!(rig.settle(&got[0], seen()));
        }
        rig.flush();
        rig.restart().drain(Q, 2)
    };
    // Its range is marked, so the start adds one for whoever may have had it.
    assert_eq!(count(Some(Planted::ForgetCount)), [(0, 3)]);
    assert_eq!(count(None), [(0, 4)]);
}

/// Where a rejected message is, in its queue and in the dead-letter queue, before and after a crash.
fn rejected(fault: Option<Planted>) -> [usize; 4] {
    choose_planted(fault, 1);
    let rejected = || {
        let mut rig = Rig::new(10);
        rig.send_all(1);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 1);
        assert!(rig.settle(&got[0], Outcome::Reject { detail: String::new() }));
        rig.flush();
        rig
    };
    let (mut now, mut later) = (rejected(), rejected().crash(1));
    [now.drain(Q, 2).len(), now.drain(DLQ, 3).len(), later.drain(Q, 2).len(), later.drain(DLQ, 3).len()]
}

fn a_dead_letter_is_in_two_places_or_in_none() {
    assert_eq!(rejected(Some(Planted::KeepSource)), [1, 1, 0, 1]);
    assert_eq!(rejected(Some(Planted::ForgetDeadLetterHalf)), [0, 1, 0, 0]);
    assert_eq!(rejected(None), [0, 1, 0, 1]);
}

fn what_is_delivered_again_is_counted_twice() {
    let acquired = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        rig.send_all(1);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 1);
        assert!(rig.settle(&got[0], seen()));
        rig.flush();
        rig.credit(Q, consumer, 1);
        // Not a whole turn, which ends with an audit that finds it.
        rig.dispatch(Q, 64);
        (rig.queue(Q).stats().acquired, rig.queue(Q).audit().is_ok())
    };
    assert_eq!(acquired(Some(Planted::CountTwice)), (2, false));
    assert_eq!(acquired(None), (1, true));
}

fn a_number_is_drawn_again_after_a_start() {
    let drawn = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        let first = rig.send(Q, 0, 4, true);
        let urgent = rig.send(Q, 1, 7, true);
        rig.flush();
        let again = rig.restart().send(Q, 2, 4, true);
        (first < urgent, again == urgent)
    };
    assert_eq!(drawn(Some(Planted::ReuseSequence)), (true, true));
    assert_eq!(drawn(None), (true, false));
}

fn what_is_on_its_way_to_the_disk_is_visible() {
    let ready = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        for number in 0..2 {
            rig.send(Q, number, 4, true);
            rig.end_turn();
        }
        // In the turn after that.
        rig.dispatch(Q, 64);
        rig.queue(Q).stats().ready
    };
    assert_eq!(ready(Some(Planted::ShowEarly)), 2);
    assert_eq!(ready(None), 0);
}

fn a_commit_of_several_brings_all_but_one() {
    let there = |fault, one_in, count| {
        choose_planted(fault, one_in);
        let mut rig = Rig::new(10);
        (0..count).for_each(|number| rig.stage_number(txn(1), number));
        rig.commit(txn(1));
        rig.flush();
        rig.drain(Q, 1).iter().map(|(number, _)| *number).collect::<Vec<_>>()
    };
    assert_eq!(there(Some(Planted::HalveCommit), 3, 4), [0, 1, 3]);
    assert_eq!(there(None, 1, 4), [0, 1, 2, 3]);
    assert_eq!(there(Some(Planted::HalveCommit), 1, 1), [0], "one has no half");
}

fn what_a_branch_in_doubt_has_acknowledged_is_ready_again() {
    let there = |fault| {
        choose_planted(fault, 1);
        let mut rig = Rig::new(10);
        rig.send_all(4);
        let consumer = rig.subscribe(Q, 1);
        for got in rig.receive(Q, consumer, 2) {
            assert!(rig.remove(txn(1), &got));
        }
        rig.prepare(txn(1));
        rig.unsubscribe(Q, consumer, true);
        rig.flush();
        rig.drain(Q, 2)
    };
    assert_eq!(there(Some(Planted::ReleaseRemove)), [(1, 1), (2, 0), (3, 0)]);
    assert_eq!(there(None), [(2, 0), (3, 0)]);
}

fn without_a_choice_nothing_happens() {
    choose_planted(None, 1);
    let (_, got) = taken();
    assert_eq!(numbers(&got), (0..10).collect::<Vec<_>>());
}

#[test]
fn each_fault_does_what_its_name_says() {
    swapped_neighbors_change_places_and_nobody_else();
    a_delivery_comes_twice_and_counts_as_one();
    a_returned_message_comes_without_its_count_and_keeps_it();
    an_acknowledged_message_is_gone_until_the_next_start();
    a_delivery_goes_to_a_second_consumer_that_has_credit();
    credit_leaks();
    what_comes_back_waits_for_the_end();
    a_mark_is_lost();
    a_count_is_forgotten();
    a_dead_letter_is_in_two_places_or_in_none();
    what_is_delivered_again_is_counted_twice();
    a_number_is_drawn_again_after_a_start();
    what_is_on_its_way_to_the_disk_is_visible();
    a_commit_of_several_brings_all_but_one();
    what_a_branch_in_doubt_has_acknowledged_is_ready_again();
    without_a_choice_nothing_happens();
}
