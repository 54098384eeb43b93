//! Inputs in every order within a turn and between turns: acknowledgements, cancels, ends of connections, words that come late.

use crate::{FAILED, Q, decide, filled, numbers, worlds};
use packhorse_client_core::Verdict;
use packhorse_sim::{Got, Shape};
use std::collections::BTreeSet;

#[test]
fn fs_50_acknowledgements_that_come_before_a_dispatch_is_over_leave_nothing_in_flight() {
    // 4,000 turns with acknowledgements in them, 10^6 on one queue elsewhere.
    worlds(5_000, 20, |script| {
        let writer = script.client();
        let sender = script.producer(writer, Q);
        let clients = [script.client(), script.client()];
        let receivers = clients.map(|who| script.consumer(who, Q, 20));
        let mut settled = [0; 2];
        let mut sent = 0;
        for _ in 0..100 {
            script.rest();
            script.freeze();
            let count = script.draw(1, 6);
            sent += count;
            for _ in 0..count {
                let persistent = script.draw(0, 1) == 0;
                script.send_shaped(sender, Shape { persistent, ..Shape::default() });
            }
            for (at, receiver) in receivers.into_iter().enumerate() {
                let open = script.got(receiver)[settled[at]..].to_vec();
                settled[at] += open.len();
                decide(script, receiver, &open, Verdict::Accept);
                // Words on what this very turn will give out, and once more on what is over.
                let last = script.got(receiver).last().map(|got| got.delivery);
                let next = last.map_or(0, |last| last + 1) + script.draw(0, 2) as u32;
                script.claim(clients[at], next, next.is_multiple_of(2));
                let over = script.got(receiver).iter().rev().find(|got| got.answered).map(|got| got.delivery);
                if let Some(over) = over {
                    script.claim(clients[at], over, true);
                    script.claim(clients[at], over, false);
                }
                script.grant(receiver, 20);
            }
            script.thaw();
        }
        script.rest();
        for (at, receiver) in receivers.into_iter().enumerate() {
            let open = script.got(receiver)[settled[at]..].to_vec();
            decide(script, receiver, &open, Verdict::Accept);
        }
        script.rest();
        let seen: Vec<u64> = receivers.iter().flat_map(|r| numbers(script.got(*r))).collect();
        assert_eq!(seen.len() as u64, sent, "each came once");
        let counters = script.queue(Q).expect("it is there").counters;
        assert_eq!((counters.depth, counters.acquired, counters.acknowledged_total), (0, 0, sent));
    });
}

#[test]
fn fs_51_a_cancel_before_a_dispatch_is_over_leaves_each_message_there_once() {
    worlds(5_100, 10, |script| {
        let writer = script.client();
        let sender = script.producer(writer, Q);
        let mut count = 0;
        for round in 0..12 {
            let who = script.client();
            // With credit from the start, or with credit that comes with the cancel.
            let early = script.draw(0, 1) == 0;
            let receiver = script.consumer(who, Q, 0);
            let also = script.consumer(who, Q, 0);
            script.rest();
            if script.draw(0, 2) > 0 {
                script.freeze();
            }
            script.send(sender, 2);
            count += 2;
            script.grant(receiver, 30);
            if early {
                let us = script.draw(1, 1_500);
                script.wait(us);
            }
            script.grant(also, 30);
            match round % 4 {
                0 => script.detach(receiver),
                1 => script.end_session(who),
                2 => script.close(who),
                _ => {
                    script.detach(receiver);
                    script.end_session(who);
                }
            }
            script.thaw();
            let us = script.draw(0, 3_000);
            script.wait(us);
            script.close(who);
            script.until("the client leaves", |s| !s.is_there(who));
            script.rest();
            let counters = script.queue(Q).expect("it is there").counters;
            assert_eq!((counters.ready, counters.acquired, counters.depth), (count, 0, count), "round {round}");
        }
        let all = script.drain(Q);
        assert_eq!(numbers(&all), (0..count).collect::<Vec<_>>(), "each once, in order");
    });
}

#[test]
fn fs_52_an_acknowledgement_and_a_disconnect_race_to_one_result() {
    // 1,200 races, 10^5 on one queue elsewhere.
    worlds(5_200, 20, |script| {
        let writer = script.client();
        let sender = script.producer(writer, Q);
        let other = script.client();
        let rescuer = script.consumer(other, Q, 0);
        let mut rescued = 0;
        for round in 0..30 {
            let count = script.draw(1, 6) as usize;
            let who = script.client();
            let receiver = script.consumer(who, Q, 10);
            let persistent = script.draw(0, 1) == 0;
            for _ in 0..count {
                script.send_shaped(sender, Shape { persistent, ..Shape::default() });
            }
            let mut held = script.receive(receiver, 0, count);
            script.rest();
            script.grant(rescuer, 100);
            if script.draw(0, 1) == 0 {
                script.freeze();
            }
            script.shuffle(&mut held);
            let said = script.draw(0, count as u64) as usize;
            let how = script.draw(0, 3);
            if how == 3 {
                script.single(who, 10_000);
            }
            decide(script, receiver, &held[..said], Verdict::Accept);
            let us = if how < 2 { 2 } else { script.draw(2, 600) };
            script.wait(us);
            match how {
                0 => script.kill_client(who),
                1 => script.close(who),
                // What is on its way is lost, a part of a frame with it.
                _ => script.cut(who),
            }
            script.thaw();
            script.until("the client leaves", |s| !s.is_there(who));
            script.rest();
            let back: Vec<Got> = script.got(rescuer)[rescued..].to_vec();
            rescued += back.len();
            decide(script, rescuer, &back, Verdict::Accept);
            let back_numbers: BTreeSet<u64> = numbers(&back).into_iter().collect();
            assert_eq!(back_numbers.len(), back.len(), "round {round}: each comes back once");
            let answered: Vec<u64> =
                script.got(receiver).iter().filter(|got| got.answered).map(|got| got.number).collect();
            assert!(answered.iter().all(|n| !back_numbers.contains(n)), "round {round}: what was answered is gone");
            let unsaid = &held[said..];
            assert!(unsaid.iter().all(|got| back_numbers.contains(&got.number)), "round {round}: the others are there");
            // A close in order gives back unseen; a client that is gone counts against the oldest alone, and flags all.
            assert!(back.iter().all(|got| got.deliveries == u32::from(how != 1)), "round {round}, {how}: {back:?}");
            if how < 2 {
                let told = &held[..said];
                assert!(told.iter().all(|got| !back_numbers.contains(&got.number)), "round {round}: it was in time");
            }
            script.rest();
            let counters = script.queue(Q).expect("it is there").counters;
            assert_eq!((counters.depth, counters.acquired), (0, 0), "round {round}");
            script.grant(rescuer, 0);
            script.rest();
        }
    });
}

#[test]
fn fs_61_late_double_and_unknown_words_are_ignored_and_the_session_lives() {
    worlds(6_100, 6, |script| {
        filled(script, Q, 6);
        let who = script.client();
        let receiver = script.consumer(who, Q, 1);
        let first = script.receive(receiver, 0, 1).remove(0);
        script.rest();
        script.grant(receiver, 1);
        script.decide(receiver, first.delivery, FAILED);
        let second = script.receive(receiver, 1, 1).remove(0);
        assert_eq!((second.number, second.deliveries), (0, 1), "the same message, in another delivery");
        // Of the delivery before; of none; of none yet.
        for delivery in [first.delivery, second.delivery + 1, second.delivery + 7, 1 << 30, u32::MAX] {
            for accept in [true, false] {
                script.claim(who, delivery, accept);
                script.rest();
                let counters = script.queue(Q).expect("it is there").counters;
                assert_eq!((counters.depth, counters.acquired), (6, 1), "delivery {delivery}");
            }
        }
        script.decide(receiver, second.delivery, Verdict::Accept);
        script.rest();
        assert!(script.got(receiver)[1].answered, "the right word counts");
        // Twice, and then the other word.
        for accept in [true, false] {
            script.claim(who, second.delivery, accept);
        }
        script.grant(receiver, 2);
        let more = script.receive(receiver, 2, 2);
        assert_eq!(numbers(&more), [1, 2]);
        // A link ends; words on what it had come too late.
        script.detach(receiver);
        script.rest();
        for got in &more {
            script.claim(who, got.delivery, true);
        }
        script.rest();
        let counters = script.queue(Q).expect("it is there").counters;
        assert_eq!((counters.ready, counters.acquired, counters.acknowledged_total), (5, 0, 1));
        // A broker that was started again knows none of them, and the session of another client has its own numbers.
        script.kill(packhorse_sim::Death::Kill);
        crate::restarted(script);
        let late = script.client();
        script.rest();
        for delivery in 0..6 {
            script.claim(late, delivery, true);
        }
        script.rest();
        assert!(script.is_there(late), "the session lives");
        let again = script.consumer(late, Q, 1);
        assert_eq!(script.receive(again, 0, 1)[0].number, 1);
        let rest = script.got(again).to_vec();
        decide(script, again, &rest, Verdict::Release);
        script.close(late);
        script.until("it leaves", |s| !s.is_there(late));
        assert_eq!(numbers(&script.drain(Q)), [1, 2, 3, 4, 5]);
    });
}
