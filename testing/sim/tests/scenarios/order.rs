//! What comes back stands where it stood: out of order, from many at once, among priorities; and only what was seen counts.

use crate::{FAILED, Q, decide, filled, numbers, worlds};
use packhorse_client_core::Verdict;
use packhorse_client_core::transaction::flags;
use packhorse_sim::{Branch, Control, Got, Receiver, Script, Sender, Shape};

#[test]
fn fs_53_returns_in_random_order_stand_in_the_order_of_numbers() {
    // 500 of 2,000 through a whole broker, whose bodies leave memory; 10,000 of 1,000,000 on one queue elsewhere.
    worlds(5_300, 2, |script| {
        filled(script, Q, 2_000);
        let who = script.client();
        let receiver = script.consumer(who, Q, 900);
        let mut held = script.receive(receiver, 0, 900);
        assert_eq!(numbers(&held), (0..900).collect::<Vec<_>>());
        script.shuffle(&mut held);
        let (back, gone) = held.split_at(500);
        for (at, got) in back.iter().enumerate() {
            script.decide(receiver, got.delivery, FAILED);
            if at % 50 == 0 {
                script.wait(100);
            }
            script.decide(receiver, gone[at * gone.len() / back.len()].delivery, Verdict::Accept);
        }
        decide(script, receiver, gone, Verdict::Accept);
        script.rest();
        let counters = script.queue(Q).expect("it is there").counters;
        assert_eq!((counters.depth, counters.acquired), (1_600, 0));
        let mut expected = numbers(back);
        expected.sort_unstable();
        let all = script.drain(Q);
        assert_eq!(numbers(&all[..500]), expected, "what came back stands at its place");
        assert!(all[..500].iter().all(|got| got.deliveries == 1));
        assert_eq!(numbers(&all[500..]), (900..2_000).collect::<Vec<_>>(), "and the others behind it");
    });
}

#[test]
fn fs_54_three_consumers_give_back_three_times_at_once_and_a_fourth_reads_in_order() {
    worlds(5_400, 6, |script| {
        filled(script, Q, 100);
        let clients = [(); 3].map(|()| script.client());
        let receivers = clients.map(|who| script.consumer(who, Q, 0));
        let mut seen = [0; 3];
        for round in 0..3 {
            // Everything is out, at all three.
            for receiver in receivers {
                script.grant(receiver, 33 + round);
            }
            let before: usize = seen.iter().sum();
            let out = 100.min(3 * (33 + round) as usize);
            script.until("all are out", |s| receivers.iter().map(|r| s.got(*r).len()).sum::<usize>() >= before + out);
            script.rest();
            for receiver in receivers {
                script.grant(receiver, 0);
            }
            script.rest();
            let mut held: Vec<(usize, Got)> = Vec::new();
            for (at, receiver) in receivers.into_iter().enumerate() {
                let came = script.got(receiver)[seen[at]..].to_vec();
                seen[at] += came.len();
                held.extend(came.into_iter().map(|got| (at, got)));
            }
            assert!(held.len() >= 99);
            script.shuffle(&mut held);
            for (at, got) in &held {
                let verdict = if script.draw(0, 1) == 0 { FAILED } else { Verdict::Release };
                script.decide(receivers[*at], got.delivery, verdict);
                if script.draw(0, 9) == 0 {
                    let us = script.draw(1, 400);
                    script.wait(us);
                }
            }
            script.rest();
        }
        for who in clients {
            script.close(who);
        }
        let all = script.drain(Q);
        assert_eq!(numbers(&all), (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn fs_57_only_what_the_application_saw_counts_towards_the_limit() {
    worlds(5_700, 6, |script| {
        script.create(Q, 3);
        filled(script, Q, 10);
        let who = script.client();
        let receiver = script.consumer(who, Q, 10);
        for attempt in 0..3 {
            let mut came = script.receive(receiver, 10 * attempt, 10);
            assert_eq!(numbers(&came), (0..10).collect::<Vec<_>>());
            assert_eq!(came[0].deliveries as usize, attempt);
            assert!(came[1..].iter().all(|got| got.deliveries == 0), "never seen, never redelivered");
            script.rest();
            // The application has had the first one; the client gives back what it had ahead.
            let ahead = came.split_off(1);
            decide(script, receiver, &ahead, Verdict::Release);
            decide(script, receiver, &came, FAILED);
            script.rest();
            script.grant(receiver, 10);
        }
        let came = script.receive(receiver, 30, 9);
        assert_eq!(numbers(&came), (1..10).collect::<Vec<_>>());
        assert!(came.iter().all(|got| got.deliveries == 0), "the first time, not again: {came:?}");
        decide(script, receiver, &came, Verdict::Accept);
        let dead = script.drain("DLQ");
        assert_eq!((numbers(&dead), dead[0].reason.as_deref()), (vec![0], Some("delivery-limit")));
        assert_eq!(script.queue(Q).expect("it is there").counters.depth, 0);
    });
}

#[test]
fn fs_60_what_comes_back_stands_by_priority_and_then_by_number() {
    worlds(6_000, 4, |script| {
        let writer = script.client();
        let sender = script.producer(writer, Q);
        for number in 0..40u64 {
            let priority = if number % 2 == 0 { 2 } else { 7 };
            let persistent = script.draw(0, 3) > 0;
            script.send_shaped(sender, Shape { priority, persistent, ..Shape::default() });
        }
        script.rest();
        let expected: Vec<u64> = (1..40).step_by(2).chain((0..40).step_by(2)).collect();
        let clients = [script.client(), script.client()];
        // Each has some of both; they leave at the same time, each in its way.
        let receivers = clients.map(|who| script.consumer(who, Q, 17));
        script.until("both have theirs", |s| receivers.iter().all(|r| s.got(*r).len() == 17));
        script.rest();
        let high = script.got(receivers[0]).iter().chain(script.got(receivers[1])).filter(|got| got.number % 2 == 1);
        assert_eq!(high.count(), 20, "the higher ones first");
        script.freeze();
        script.detach(receivers[0]);
        script.close(clients[1]);
        script.thaw();
        script.rest();
        let all = script.drain(Q);
        assert_eq!(numbers(&all), expected);
        assert!(all.iter().all(|got| got.deliveries == 0), "nobody has seen them");
    });
}

#[test]
fn fs_96_a_cut_connection_flags_all_that_it_held_and_counts_the_oldest_alone() {
    worlds(9_600, 6, |script| {
        script.create(Q, 2);
        filled(script, Q, 20);
        let clients = [script.client(), script.client()];
        let first = script.consumer(clients[0], Q, 10);
        script.receive(first, 0, 10);
        let second = script.consumer(clients[1], Q, 10);
        let held = script.receive(second, 0, 10);
        assert_eq!(numbers(&held), (10..20).collect::<Vec<_>>());
        script.cut(clients[0]);
        decide(script, second, &held, Verdict::Accept);
        script.grant(second, 20);
        let again = script.receive(second, 10, 10);
        assert_eq!(numbers(&again), (0..10).collect::<Vec<_>>(), "in order, none of the accepted ones");
        assert!(again.iter().all(|got| got.deliveries == 1), "after a cut none can be known unseen");
        // Once more: of all that were held twice, one has reached the limit.
        script.cut(clients[1]);
        script.until("it leaves", |s| !s.is_there(clients[1]));
        script.until("the oldest goes", |s| s.queue("DLQ").is_some_and(|dlq| dlq.counters.ready == 1));
        let left = script.drain(Q);
        assert_eq!(numbers(&left), (1..10).collect::<Vec<_>>());
        assert!(left.iter().all(|got| got.deliveries == 2));
        assert_eq!(numbers(&script.drain("DLQ")), [0]);
    });
}

#[test]
fn fs_97_a_client_that_dies_on_its_oldest_message_loses_only_that_one() {
    worlds(9_700, 4, |script| {
        script.create(Q, 10);
        filled(script, Q, 150);
        for life in 1..=12 {
            let who = script.client();
            let receiver = script.consumer(who, Q, 100);
            let came = script.receive(receiver, 0, 100);
            assert_eq!(came[0].number, u64::from(life > 10), "the tenth time is the last");
            script.kill_client(who);
            script.rest();
        }
        assert_eq!(numbers(&script.drain(Q)), (1..150).collect::<Vec<_>>(), "nothing is deleted");
        let dead = script.drain("DLQ");
        assert_eq!((numbers(&dead), dead[0].reason.as_deref()), (vec![0], Some("delivery-limit")));
    });
}

/// Another queue takes and gives a message every 25 ms, which are two flushes, both of them slow ones.
fn flows_meanwhile(script: &mut Script, sender: Sender, receiver: Receiver) {
    for n in 0..40 {
        script.send(sender, 1);
        script.wait(25_000);
        let got = script.got(receiver).to_vec();
        assert_eq!(numbers(&got), (0..=n).collect::<Vec<_>>(), "the other queue delivers meanwhile");
        script.decide(receiver, got[n as usize].delivery, Verdict::Accept);
    }
}

#[test]
fn fs_55_a_cut_connection_with_thousands_of_deliveries_leaves_other_queues_alone() {
    // 4,000 deliveries here, a million on one queue elsewhere.
    worlds(5_550, 2, |script| {
        filled(script, Q, 4_000);
        let (holder, other) = (script.client(), script.client());
        let sender = script.producer(other, "other");
        let receiver = script.consumer(other, "other", 100);
        let holds = script.consumer(holder, Q, 4_000);
        script.receive(holds, 0, 4_000);
        script.cut(holder);
        flows_meanwhile(script, sender, receiver);
        script.rest();
        let all = script.drain(Q);
        assert_eq!(numbers(&all), (0..4_000).collect::<Vec<_>>());
        assert!(all.iter().all(|got| got.deliveries == 1));
    });
}

#[test]
fn fs_55_the_end_of_a_transaction_of_thousands_leaves_other_queues_alone() {
    // 4,000 operations here, a million of each kind on one queue elsewhere (`core/queue/tests/transactions/slices.rs`).
    const HALF: u64 = 2_000;
    let ends: [fn(&mut Script, Control, &Branch); 2] = [
        |script, control, _| script.cut(script.client_of_control(control)),
        |script, control, x| script.post_decision(control, x, false),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        worlds(5_560 + number as u64, 1, |script| {
            filled(script, Q, HALF);
            let (control, other) = (script.manager(), script.client());
            let holder = script.client_of_control(control);
            let (sender, receiver) = (script.producer(other, "other"), script.consumer(other, "other", 100));
            let (adds, holds) = (script.producer(holder, Q), script.consumer(holder, Q, HALF as u32));
            let held = script.receive(holds, 0, HALF as usize);
            let x = script.branch();
            let tx = script.begin(control, &x);
            for got in &held {
                script.accept_in(&tx, holds, got.delivery);
            }
            script.send_in(&tx, adds, HALF);
            assert_eq!(script.end(control, &x, flags::SUCCESS), Some(0));
            end(script, control, &x);
            flows_meanwhile(script, sender, receiver);
            script.rest();
            assert_eq!(script.counts(Q), [HALF, 0, 0, HALF]);
            script.close(holder);
            let all = script.drain(Q);
            assert_eq!(numbers(&all), (0..HALF).collect::<Vec<_>>(), "in the old order, and nothing that was sent");
            assert!(all.iter().all(|got| got.deliveries == 1));
        });
    }
}
