//! What the faults planted in a queue do, each with its near miss. One test, for the choice of a fault is the process's.

#[expect(dead_code, reason = "scenarios use the rest of it")]
mod rig;

use packhorse_model::{Outcome, Planted, choose_planted};
use rig::{Got, Q, Rig, seen};

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
    without_a_choice_nothing_happens();
}
