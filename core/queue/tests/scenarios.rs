//! Fault scenarios of `spec/scenarios.md` as far as one queue and its dead-letter queue can show them.

mod browse;
mod poison;
#[expect(dead_code, reason = "the model check uses the rest of it")]
mod rig;

use packhorse_model::{Outcome, Reason};
use packhorse_queue::{ConsumerId, DeliveryKey, Input};
use rig::{DLQ, Got, Q, Rig, seen};

/// Numbers for choices.
fn mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

fn numbers(got: &[Got]) -> Vec<u64> {
    got.iter().map(Got::number).collect()
}

#[test]
fn fs_48_after_a_kill_all_in_flight_come_back_in_order_and_flagged_only_in_marked_ranges() {
    for seed in 0..8 {
        let mut rig = Rig::new(10);
        rig.send_all(700);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 100);
        assert_eq!(numbers(&got), (0..100).collect::<Vec<_>>());
        let mut rig = rig.crash(seed);
        let all = rig.drain(Q, 1);
        assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..700).collect::<Vec<_>>());
        let flagged = all.iter().filter(|(_, deliveries)| *deliveries > 0).count();
        assert!(all[..100].iter().all(|(_, deliveries)| *deliveries == 1), "what was in flight is flagged, once");
        assert!(flagged % 256 == 0 && flagged <= 256, "{flagged} flagged: ranges of 256, and one was dispatched from");
    }
}

#[test]
fn fs_50_acknowledgements_before_the_dispatching_step_is_over_leave_nothing_in_flight() {
    let mut rig = Rig::new(10);
    let consumer = rig.subscribe(Q, 1);
    let mut sequence = 0;
    for round in 0..20_000u64 {
        for number in 0..50 {
            rig.send(Q, number, 4, round % 2 == 0);
        }
        rig.credit(Q, consumer, 50);
        rig.flush();
        // Whatever was given while there is more to give is answered before the next step.
        for got in rig.take(consumer) {
            assert_eq!(got.key.sequence, sequence);
            sequence += 1;
            assert!(rig.settle(&got, Outcome::Acknowledge));
            assert!(!rig.settle(&got, Outcome::Acknowledge), "the second one does nothing");
            assert!(!rig.settle(&got, seen()), "nor does another word");
        }
        rig.end_turn();
    }
    rig.flush();
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.depth, stats.acquired, stats.acknowledged_total), (0, 0, 1_000_000));
    assert!(rig.queue(Q).audit().is_ok());
}

#[test]
fn fs_50_acknowledgements_between_slices_of_one_dispatch() {
    let mut rig = Rig::new(10);
    for number in 0..1_000 {
        rig.send(Q, number, 4, false);
    }
    rig.end_turn();
    let consumer = rig.subscribe(Q, 1);
    rig.credit(Q, consumer, 1_000);
    let mut acknowledged = 0;
    loop {
        let more = rig.dispatch(Q, 1);
        for got in rig.take(consumer) {
            assert!(rig.settle(&got, Outcome::Acknowledge));
            acknowledged += 1;
        }
        if !more {
            break;
        }
    }
    assert_eq!(acknowledged, 1_000);
    assert_eq!(rig.queue(Q).stats().depth, 0);
}

#[test]
fn fs_51_a_cancel_between_slices_of_a_dispatch_leaves_each_message_available_once() {
    for slice in 1..40 {
        let mut rig = Rig::new(10);
        rig.send_all(30);
        let consumer = rig.subscribe(Q, 1);
        rig.credit(Q, consumer, 30);
        // The first offer waits for its mark.
        rig.flush();
        rig.take(consumer);
        let other = rig.subscribe(Q, 2);
        rig.credit(Q, other, 30);
        rig.unsubscribe(Q, consumer, false);
        rig.dispatch(Q, slice);
        rig.unsubscribe(Q, other, false);
        rig.flush();
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.ready, stats.acquired), (30, 0));
        assert_eq!(rig.drain(Q, 3), (0..30).map(|n| (n, 0)).collect::<Vec<_>>());
    }
}

#[test]
fn fs_52_an_acknowledgement_and_a_disconnect_race_to_one_result() {
    let mut seed = 52;
    for _ in 0..100_000 {
        let mut rig = Rig::new(10);
        let count = 1 + mix(&mut seed) % 6;
        for number in 0..count {
            rig.send(Q, number, 4, false);
        }
        rig.end_turn();
        let consumer = rig.subscribe(Q, 1);
        rig.credit(Q, consumer, count);
        rig.turns();
        let held = rig.take(consumer);
        // The disconnect somewhere among the acknowledgements, the way back in slices between them.
        let cut = mix(&mut seed) % (count + 1);
        let mut gone = Vec::new();
        for got in &held {
            if got.number() == cut {
                rig.unsubscribe(Q, consumer, true);
            }
            if got.number() > cut {
                rig.dispatch(Q, (mix(&mut seed) % 3) as u32);
            }
            if rig.settle(got, Outcome::Acknowledge) {
                gone.push(got.number());
            }
        }
        if cut == count {
            rig.unsubscribe(Q, consumer, true);
        }
        rig.turns();
        let left = rig.drain(Q, 2);
        let expected: Vec<u64> = (0..count).filter(|n| !gone.contains(n)).collect();
        assert_eq!(left.iter().map(|(n, _)| *n).collect::<Vec<_>>(), expected, "gone or there, never both");
        assert!(left.iter().all(|(_, deliveries)| *deliveries == 1), "what came back from a lost consumer counts once");
        assert!((0..cut).all(|n| gone.contains(&n)), "an acknowledgement before the disconnect holds");
    }
}

#[test]
fn fs_53_ten_thousand_returns_in_random_order_among_a_million() {
    let mut rig = Rig::new(0);
    let total = 1_000_000;
    for number in 0..total {
        rig.send(Q, number, 4, false);
        if number % 10_000 == 0 {
            rig.end_turn();
        }
    }
    rig.end_turn();
    let consumer = rig.subscribe(Q, 1);
    rig.credit(Q, consumer, total / 2);
    rig.turns();
    let mut held = rig.take(consumer);
    assert_eq!(held.len() as u64, total / 2);
    let mut seed = 53;
    for at in (1..held.len()).rev() {
        held.swap(at, mix(&mut seed) as usize % (at + 1));
    }
    let mut back: Vec<u64> = Vec::new();
    for (n, got) in held.iter().enumerate() {
        let outcome = if n < 10_000 { seen() } else { Outcome::Acknowledge };
        if n < 10_000 {
            back.push(got.number());
        }
        assert!(rig.settle(got, outcome));
    }
    back.sort_unstable();
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.ready, stats.depth), (total / 2 + 10_000, total / 2 + 10_000));
    rig.turns();
    let all = rig.drain(Q, 2);
    assert!(all[..10_000].iter().map(|(n, _)| *n).eq(back), "what came back stands at its place");
    assert!(all[..10_000].iter().all(|(_, deliveries)| *deliveries == 1));
    assert!(all[10_000..].iter().copied().eq((total / 2..total).map(|n| (n, 0))), "and the others behind it");
}

#[test]
fn fs_54_three_consumers_return_three_times_and_a_fourth_reads_in_order() {
    for persistent in [true, false] {
        let mut rig = Rig::new(0);
        for number in 0..100 {
            rig.send(Q, number, 4, persistent);
        }
        rig.flush();
        let consumers = [1, 2, 3].map(|id| rig.subscribe(Q, id));
        let mut seed = 54;
        for round in 0..3 {
            for consumer in consumers {
                rig.credit(Q, consumer, 33 + round);
            }
            rig.flush();
            let mut held: Vec<Got> = consumers.iter().flat_map(|c| rig.take(*c)).collect();
            assert!(held.len() >= 99);
            for at in (1..held.len()).rev() {
                held.swap(at, mix(&mut seed) as usize % (at + 1));
            }
            for consumer in consumers {
                rig.credit(Q, consumer, 0);
            }
            for got in &held {
                assert!(rig.settle(got, seen()));
            }
            rig.flush();
        }
        for consumer in consumers {
            rig.unsubscribe(Q, consumer, false);
        }
        let all = rig.drain(Q, 4);
        assert_eq!(all.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn fs_55_a_million_deliveries_of_a_killed_connection_come_back_in_slices_while_another_queue_flows() {
    const SLICE: u32 = 64;
    let mut rig = Rig::new(0);
    let total = 1_000_000;
    for number in 0..total {
        rig.send(Q, number, 4, false);
        if number % 10_000 == 0 {
            rig.end_turn();
        }
    }
    rig.end_turn();
    let consumer = rig.subscribe(Q, 1);
    rig.credit(Q, consumer, total);
    rig.turns();
    assert_eq!(rig.take(consumer).len() as u64, total);
    let other = rig.subscribe(DLQ, 2);
    rig.credit(DLQ, other, total);
    rig.unsubscribe(Q, consumer, true);
    let mut held = rig.queue(Q).stats().acquired;
    assert_eq!(held, total, "the end of the connection itself takes nothing back");
    let mut slices = 0;
    loop {
        let more = rig.dispatch(Q, SLICE);
        slices += 1;
        let left = rig.queue(Q).stats().acquired;
        assert!(held - left <= u64::from(SLICE), "a slice is bounded: {held} before, {left} after it");
        held = left;
        // Between any two slices another queue takes, delivers and forgets a message, in the same turn.
        let sent = rig.send(DLQ, slices, 4, false);
        rig.dispatch(DLQ, SLICE);
        let got = rig.take(other);
        assert_eq!(got.iter().map(|got| got.key.sequence).collect::<Vec<_>>(), [sent]);
        assert!(rig.settle(&got[0], Outcome::Acknowledge));
        rig.end_turn();
        if !more {
            break;
        }
    }
    assert!(slices >= total / u64::from(SLICE), "{slices} slices");
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.ready, stats.acquired, stats.depth), (total, 0, total));
    let all = rig.drain(Q, 3);
    assert!(all.iter().copied().eq((0..total).map(|number| (number, 1))), "in order, each flagged");
}

#[test]
fn fs_56_the_third_seen_return_moves_to_the_dead_letter_queue_once_whatever_a_crash_keeps() {
    for seed in 0..16 {
        let mut rig = Rig::new(3);
        rig.send_all(2);
        let consumer = rig.subscribe(Q, 1);
        for attempt in 0..3 {
            let got = rig.receive(Q, consumer, 1);
            assert_eq!((got[0].number(), got[0].deliveries), (0, attempt));
            assert!(rig.settle(&got[0], seen()));
        }
        assert_eq!(rig.queue(DLQ).stats().ready, 0, "not to be seen before its record is durable");
        let durable = seed % 2 == 0;
        if durable {
            rig.flush();
            assert_eq!((rig.queue(Q).stats().depth, rig.queue(DLQ).stats().ready), (1, 1));
            assert_eq!(rig.queue(Q).stats().dead_lettered_total, 1);
        } else {
            rig.end_turn();
        }
        let letter = rig.relocations[0].overlay.dead_letter.clone().unwrap();
        assert_eq!((letter.reason, letter.deliveries, letter.address.as_str()), (Reason::DeliveryLimit, 3, "q"));
        assert_eq!((letter.sequence, rig.relocations[0].head.ttl_ms), (0, 0));
        let mut rig = rig.crash(seed);
        let kept: Vec<u64> = rig.drain(Q, 2).iter().map(|(n, _)| *n).collect();
        let dead = rig.drain(DLQ, 3);
        assert!(dead.iter().all(|(n, deliveries)| (*n, *deliveries) == (0, 0)), "body kept, counts begin anew");
        assert_eq!(kept.len() + dead.len(), 2, "in one place: {kept:?} {dead:?}");
        assert!(!durable || dead.len() == 1, "a durable move is done");
        if dead.len() == 1 {
            let overlay = rig.queue(DLQ).overlay(4, 0).expect("it has a history");
            assert_eq!(overlay.dead_letter.as_ref(), Some(&letter), "which survives");
        }
    }
}

#[test]
fn fs_57_only_what_the_application_saw_counts_towards_the_limit() {
    let mut rig = Rig::new(3);
    rig.send_all(10);
    let consumer = rig.subscribe(Q, 1);
    for _ in 0..3 {
        let got = rig.receive(Q, consumer, 10);
        assert_eq!(numbers(&got), (0..10).collect::<Vec<_>>());
        rig.credit(Q, consumer, 0);
        for got in got.iter().rev() {
            let outcome = if got.number() == 0 { seen() } else { Outcome::ReturnUnseen };
            assert!(rig.settle(got, outcome));
        }
        rig.flush();
    }
    let got = rig.receive(Q, consumer, 10);
    assert_eq!(numbers(&got), (1..10).collect::<Vec<_>>());
    assert!(got.iter().all(|g| g.deliveries == 0), "never seen, never redelivered");
    assert_eq!(rig.drain(DLQ, 2), [(0, 0)]);
}

#[test]
fn fs_60_what_comes_back_stands_by_priority_and_then_by_number() {
    let mut rig = Rig::new(0);
    for number in 0..20 {
        rig.send(Q, number, if number % 2 == 0 { 2 } else { 7 }, true);
    }
    rig.flush();
    let expected: Vec<u64> = (1..20).step_by(2).chain((0..20).step_by(2)).collect();
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 20);
    assert_eq!(numbers(&got), expected);
    rig.unsubscribe(Q, consumer, false);
    rig.flush();
    assert_eq!(rig.drain(Q, 2).iter().map(|(n, _)| *n).collect::<Vec<_>>(), expected);
}

#[test]
fn fs_61_late_and_unknown_words_are_ignored() {
    let mut rig = Rig::new(10);
    rig.send_all(2);
    let consumer = rig.subscribe(Q, 1);
    let first = rig.receive(Q, consumer, 1).remove(0);
    assert!(rig.settle(&first, Outcome::ReturnUnseen));
    let second = rig.receive(Q, consumer, 1).remove(0);
    assert_eq!(first.key.sequence, second.key.sequence);
    for outcome in [Outcome::Acknowledge, seen(), Outcome::ReturnUnseen, Outcome::Reject { detail: "no".into() }] {
        assert!(!rig.settle(&first, outcome), "the word belongs to an earlier delivery");
    }
    for key in [
        DeliveryKey { sequence: 77, ..second.key },
        DeliveryKey { level: 9, ..second.key },
        DeliveryKey { level: 200, ..second.key },
        DeliveryKey { epoch: second.key.epoch + 1, ..second.key },
        DeliveryKey { sequence: 1, ..second.key },
    ] {
        assert!(!rig.handle(Q, Input::Settle { key, outcome: Outcome::Acknowledge }).settled(), "{key:?}");
    }
    assert!(rig.settle(&second, Outcome::Acknowledge), "the right word still counts");
    rig.flush();
    assert_eq!(rig.queue(Q).stats().depth, 1);
}

#[test]
fn fs_96_a_cut_connection_flags_all_that_it_held_and_counts_the_oldest() {
    let mut rig = Rig::new(10);
    rig.send_all(20);
    let (one, two) = (rig.subscribe(Q, 1), rig.subscribe(Q, 2));
    let first = rig.receive(Q, one, 10);
    let second = rig.receive(Q, two, 10);
    assert_eq!((numbers(&first), numbers(&second)), ((0..10).collect(), (10..20).collect()));
    rig.unsubscribe(Q, one, true);
    rig.flush();
    for got in &second {
        assert!(rig.settle(got, Outcome::Acknowledge));
    }
    let again = rig.receive(Q, two, 20);
    assert_eq!(numbers(&again), (0..10).collect::<Vec<_>>());
    assert!(again.iter().all(|g| g.deliveries == 1));
}

#[test]
fn fs_97_a_client_that_dies_on_its_oldest_message_loses_only_that_one() {
    let mut rig = Rig::new(10);
    rig.send_all(150);
    for life in 1..=12 {
        let consumer = rig.subscribe(Q, life);
        let got = rig.receive(Q, consumer, 100);
        assert_eq!(got.len(), 100);
        assert_eq!(got[0].number(), u64::from(life > 10), "the tenth time is the last");
        rig.unsubscribe(Q, consumer, true);
        rig.flush();
        assert_eq!(rig.queue(DLQ).stats().ready, u64::from(life >= 10));
    }
    assert_eq!(rig.drain(DLQ, 100), [(0, 0)]);
    let left = rig.drain(Q, 101);
    assert_eq!(left.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (1..150).collect::<Vec<_>>());
}

#[test]
fn a_rejected_message_goes_to_the_dead_letter_queue_and_a_rejected_dead_letter_stays() {
    let mut rig = Rig::new(10);
    rig.send_all(3);
    let consumer = rig.subscribe(Q, 1);
    for got in rig.receive(Q, consumer, 3) {
        assert!(rig.settle(&got, Outcome::Reject { detail: "app:bad: not mine".into() }));
    }
    rig.flush();
    let letter = rig.relocations[1].overlay.dead_letter.clone().unwrap();
    assert_eq!((letter.reason, &*letter.detail, letter.deliveries), (Reason::Rejected, "app:bad: not mine", 1));
    let reader = rig.subscribe(DLQ, 2);
    let dead = rig.receive(DLQ, reader, 10);
    assert_eq!(numbers(&dead), [0, 1, 2]);
    assert!(rig.settle(&dead[1], Outcome::Reject { detail: String::new() }));
    rig.credit(DLQ, reader, 10);
    rig.flush();
    assert!(rig.take(reader).is_empty(), "the one that rejected it does not get it again");
    assert_eq!(rig.drain(DLQ, 3), [(1, 1)], "it is there for others");
    assert_eq!(rig.relocations.len(), 3);
}

#[test]
fn a_message_undeliverable_to_one_consumer_hinders_nobody() {
    let mut rig = Rig::new(0);
    rig.send_all(6);
    let (one, two) = (rig.subscribe(Q, 1), rig.subscribe(Q, 2));
    let got = rig.receive(Q, one, 2);
    let never = || Outcome::ReturnSeen { undeliverable_here: true, annotations: bytes::Bytes::from_static(b"map") };
    for got in &got {
        assert!(rig.settle(got, never()));
    }
    assert_eq!(numbers(&rig.receive(Q, one, 2)), [2, 3], "the next ones come");
    assert!(!rig.queue(Q).quiet_for(one));
    let got = rig.receive(Q, two, 3);
    assert_eq!(numbers(&got), [0, 1, 4]);
    assert_eq!(rig.queue(Q).overlay(4, got[0].key.sequence).unwrap().annotations, "map");
    for got in &got[..2] {
        assert!(rig.settle(got, Outcome::ReturnUnseen));
    }
    rig.flush();
    assert_eq!(numbers(&rig.receive(Q, one, 5)), [5]);
    assert!(rig.queue(Q).quiet_for(one), "nothing is left for it");
    assert!(!rig.queue(Q).quiet_for(two));
    rig.unsubscribe(Q, one, false);
    rig.flush();
    assert_eq!(numbers(&rig.receive(Q, two, 5)), [0, 1, 2, 3, 5]);
}

#[test]
fn after_a_restart_bodies_are_loaded_ahead_and_in_order() {
    let mut rig = Rig::new(10);
    for number in 0..1_000 {
        rig.send(Q, number, [4, 4, 4, 9][number as usize % 4], true);
        rig.end_turn();
    }
    rig.flush();
    let mut rig = rig.crash(1);
    let all: Vec<u64> = rig.drain(Q, 1).iter().map(|(n, _)| *n).collect();
    let expected: Vec<u64> = (0..1_000).filter(|n| n % 4 == 3).chain((0..1_000).filter(|n| n % 4 != 3)).collect();
    assert_eq!(all, expected);
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.acquired, stats.enqueued_total, stats.redelivered_total), (1_000, 0, 0));
    // 750 of one level and 250 of another come in loads of at most 256, each asked for once.
    assert_eq!(
        rig.loads.iter().map(|l| (l.level, l.count)).collect::<Vec<_>>(),
        [(9, 256), (4, 256), (4, 256), (4, 256)]
    );
}

#[test]
fn the_next_bodies_are_asked_for_while_half_of_the_last_ones_wait() {
    let mut rig = Rig::new(10);
    rig.send_all(1_000);
    let mut rig = rig.crash(1);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 100).len(), 100);
    assert_eq!(rig.loads.iter().map(|l| l.from).collect::<Vec<_>>(), [0]);
    assert_eq!(rig.receive(Q, consumer, 50).len(), 50);
    assert_eq!(rig.loads.iter().map(|l| l.from).collect::<Vec<_>>(), [0, 256], "106 are there still");
}

#[test]
fn numbers_are_never_drawn_twice_over_starts() {
    let mut rig = Rig::new(10);
    let mut last = None;
    for start in 0..5 {
        for number in 0..10 {
            let sequence = rig.send(Q, number, 4, start % 2 == 0);
            assert!(last < Some(sequence));
            last = Some(sequence);
        }
        rig.end_turn();
        rig = rig.crash(start);
    }
}

#[test]
fn a_large_one_whose_file_cannot_be_read_is_set_aside_and_the_next_is_given() {
    let mut rig = Rig::new(10);
    let bad = rig.send_large(Q, 1 << 21);
    rig.send_all(2);
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 1);
    assert_eq!(got[0].key.sequence, bad);
    assert!(rig.unreadable(&got[0]));
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.damaged, stats.acquired, stats.ready, stats.depth), (1, 0, 2, 3));
    assert_eq!(rig.damaged, [bad]);
    assert!(!rig.unreadable(&got[0]) && !rig.settle(&got[0], Outcome::Acknowledge), "once");
    rig.unsubscribe(Q, consumer, true);
    let second = rig.subscribe(Q, 2);
    assert_eq!(numbers(&rig.receive(Q, second, 5)), [0, 1], "nobody gets it again");
    rig.handle(Q, Input::Purge { token: 1 });
    rig.flush();
    assert_eq!(rig.queue(Q).stats().damaged, 0);
    // It was said of this run alone: what could not be read is asked for again after the next start.
    let mut rig = Rig::new(10);
    let bad = rig.send_large(Q, 1 << 21);
    rig.flush();
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 1);
    assert!(rig.unreadable(&got[0]));
    let mut rig = rig.restart();
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 1)[0].key.sequence, bad);
}

#[test]
fn a_large_one_for_a_consumer_that_settles_nothing_stays_until_it_is_sent() {
    let mut rig = Rig::new(10);
    rig.send_large(Q, 1 << 21);
    rig.send_all(1);
    let consumer = ConsumerId(1);
    rig.handle(Q, Input::Subscribe { consumer, pre_settled: true });
    let got = rig.receive(Q, consumer, 5);
    assert_eq!(got.len(), 2);
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.acquired, stats.depth), (1, 1), "the small one is gone, the file of the large one is needed");
    assert!(rig.settle(&got[0], Outcome::Acknowledge));
    rig.flush();
    assert_eq!(rig.queue(Q).stats().depth, 0);
}
