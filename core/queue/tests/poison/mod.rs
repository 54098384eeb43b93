//! FS-58 and what it is not: a message whose delivery kills the broker, and messages that only were near
//! (`docs/decisions/0010-poison-guard.md`).

use crate::rig::{DLQ, Got, Q, Rig, seen};
use packhorse_model::{Outcome, Reason};
use packhorse_queue::Input;
use packhorse_store::Blame;

/// An application takes messages one by one and acknowledges them, until it takes the poison: then the broker dies. `window`: its
/// credit. Answers what it took, with the numbers of earlier deliveries, and whether the broker died.
fn life(rig: &mut Rig, window: u64, poison: u64) -> (Vec<(u64, u32)>, bool) {
    let consumer = rig.subscribe(Q, 1);
    let mut taken = Vec::new();
    loop {
        rig.credit(Q, consumer, window);
        rig.flush();
        let got = rig.take(consumer);
        if got.is_empty() {
            return (taken, false);
        }
        for got in got {
            taken.push((got.number(), got.deliveries));
            if got.number() == poison {
                return (taken, true);
            }
            assert!(rig.settle(&got, Outcome::Acknowledge));
        }
        rig.flush();
    }
}

fn numbers(taken: &[(u64, u32)]) -> Vec<u64> {
    taken.iter().map(|(number, _)| *number).collect()
}

/// What the dead-letter queue holds: number, reason and deliveries.
fn dead(rig: &mut Rig) -> Vec<(u64, Reason, u32)> {
    rig.flush();
    let told = rig.relocations.iter().map(|r| r.overlay.dead_letter.clone().expect("a dead letter says why"));
    let told: Vec<_> = told.map(|letter| (letter.sequence, letter.reason, letter.deliveries)).collect();
    assert_eq!(rig.queue(DLQ).stats().depth, told.len() as u64);
    told
}

#[test]
fn fs_58_a_message_that_kills_the_broker_four_times_is_quarantined_at_the_fifth_start_and_others_flow() {
    for window in [1, 2, 7, 100] {
        let mut rig = Rig::new(2);
        rig.send_all(20);
        for start in 1..=4u32 {
            let (taken, died) = life(&mut rig, window, 6);
            assert!(died, "start {start} window {window}");
            let first = if start == 1 { (0..=6).collect::<Vec<_>>() } else { vec![6] };
            assert_eq!(numbers(&taken), first, "start {start} window {window}: in order, the poison last");
            assert_eq!(taken.last(), Some(&(6, start - 1)), "each earlier delivery is told");
            assert_eq!(dead(&mut rig), [], "start {start}");
            rig = rig.crash(u64::from(start));
        }
        let (taken, died) = life(&mut rig, window, 6);
        assert!(!died, "window {window}: nobody gets it any more");
        assert_eq!(numbers(&taken), (7..20).collect::<Vec<_>>(), "window {window}");
        assert_eq!(dead(&mut rig), [(6, Reason::BrokerCrash, 4)]);
        assert_eq!(rig.queue(Q).stats().dead_lettered_total, 1);
        // It stays there, and is a message like any other.
        let mut rig = rig.crash(9);
        assert_eq!(rig.drain(Q, 1), []);
        assert_eq!(rig.drain(DLQ, 2), [(6, 0)]);
    }
}

#[test]
fn three_crashes_are_not_four() {
    let mut rig = Rig::new(2);
    rig.send_all(3);
    for start in 1..=3 {
        assert!(life(&mut rig, 5, 0).1);
        rig = rig.crash(start);
    }
    assert_eq!(rig.drain(Q, 1), [(0, 3)], "what waits behind it goes when it is settled");
    assert_eq!(dead(&mut rig), []);
}

#[test]
fn crashes_are_no_attempts() {
    let mut rig = Rig::new(2);
    rig.send_all(1);
    for start in 1..=3 {
        assert!(life(&mut rig, 1, 0).1);
        rig = rig.crash(start);
    }
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 1);
    assert!(rig.settle(&got[0], seen()));
    assert_eq!(dead(&mut rig), [], "the first attempt of two");
    let got = rig.receive(Q, consumer, 1);
    assert_eq!(got[0].deliveries, 4);
    assert!(rig.settle(&got[0], seen()));
    assert_eq!(dead(&mut rig), [(0, Reason::DeliveryLimit, 5)]);
}

/// Lets the broker die over message 0 so often that one more time would be too much.
fn nearly() -> Rig {
    let mut rig = Rig::new(9);
    rig.send_all(4);
    for start in 1..=3 {
        assert!(life(&mut rig, 1, 0).1);
        rig = rig.crash(start);
    }
    rig
}

/// How often it takes from here until message 0 is quarantined.
fn crashes_left(mut rig: Rig) -> u32 {
    for crashes in 0..9 {
        if !life(&mut rig, 1, 0).1 {
            assert_eq!(dead(&mut rig).len(), 1);
            return crashes;
        }
        rig = rig.crash(crashes.into());
    }
    panic!("it is never quarantined");
}

#[test]
fn one_more_crash_is_too_much() {
    assert_eq!(crashes_left(nearly()), 1);
}

#[test]
fn a_crash_without_its_delivery_in_between_takes_the_count_back() {
    // A suspect that nobody took: the mark for the third time in a row is missing.
    assert_eq!(crashes_left(nearly().crash(5)), 3);
    // However often that happens.
    let mut rig = nearly();
    for start in 0..6 {
        rig = rig.crash(start);
        rig.flush();
    }
    assert_eq!(dead(&mut rig), []);
}

#[test]
fn a_stop_in_order_in_between_clears_it() {
    assert_eq!(crashes_left(nearly().restart()), 4, "the first one only makes it a suspect");
    let mut rig = nearly();
    assert!(life(&mut rig, 1, 0).1);
    assert_eq!(crashes_left(rig.restart()), 4, "also while it is with a consumer");
}

#[test]
fn returned_in_between_it_is_no_suspect() {
    for outcome in [Outcome::ReturnUnseen, seen(), Outcome::ReturnLost { attempted: false }] {
        let mut rig = nearly();
        let consumer = rig.subscribe(Q, 7);
        let got = rig.receive(Q, consumer, 1);
        assert!(rig.settle(&got[0], outcome.clone()));
        rig.flush();
        assert_eq!(crashes_left(rig.crash(3)), 4, "{outcome:?}");
    }
    // And so it is when its consumer leaves, in whatever way.
    for lost in [false, true] {
        let mut rig = nearly();
        let consumer = rig.subscribe(Q, 7);
        assert_eq!(rig.receive(Q, consumer, 1).len(), 1);
        rig.unsubscribe(Q, consumer, lost);
        rig.flush();
        assert_eq!(crashes_left(rig.crash(3)), 4, "lost: {lost}");
    }
}

#[test]
fn a_crash_ten_seconds_after_its_delivery_is_not_blamed_on_it() {
    let mut rig = nearly();
    assert!(life(&mut rig, 1, 0).1);
    rig.pass(10_000);
    assert_eq!(crashes_left(rig.crash(3)), 3);
    let mut rig = nearly();
    assert!(life(&mut rig, 1, 0).1);
    rig.pass(9_900);
    assert_eq!(crashes_left(rig.crash(3)), 0);
}

#[test]
fn acknowledged_it_is_gone() {
    let mut rig = nearly();
    let consumer = rig.subscribe(Q, 7);
    let got = rig.receive(Q, consumer, 1);
    assert!(rig.settle(&got[0], Outcome::Acknowledge));
    rig.flush();
    let mut rig = rig.crash(1);
    assert_eq!(rig.drain(Q, 1), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(dead(&mut rig), []);
}

#[test]
fn suspects_of_a_window_share_one_flush_and_others_need_none() {
    let mut rig = Rig::new(9);
    rig.send_all(600);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 10).len(), 10);
    let mut rig = rig.crash(1);
    let consumer = rig.subscribe(Q, 1);
    // Bodies are read first.
    let before = rig.flushes();
    let got = rig.receive(Q, consumer, 100);
    assert_eq!((got.len(), rig.flushes() - before), (100, 1), "all that present credit can take are marked together");
    let before = rig.flushes();
    let got: Vec<Got> = rig.receive(Q, consumer, 100);
    assert_eq!((got.len(), rig.flushes() - before), (100, 1));
    // After the last of them the marks are those of ranges again.
    let rest = rig.receive(Q, consumer, 400);
    assert_eq!(rest.len(), 400);
    let before = rig.flushes();
    rig.send_all(1);
    let cost = rig.flushes() - before;
    assert!(cost <= 2 && rig.take(consumer).is_empty(), "{cost}");
}

#[test]
fn one_that_was_blamed_twice_goes_alone_until_it_is_settled_or_a_tenth_of_a_second_is_over() {
    let mut rig = Rig::new(9);
    rig.send_all(3);
    for start in 0..3 {
        let consumer = rig.subscribe(Q, 1);
        assert_eq!(rig.receive(Q, consumer, 10).len(), 3, "all at once at start {start}");
        rig = rig.crash(start);
    }
    let consumer = rig.subscribe(Q, 1);
    let first = rig.receive(Q, consumer, 10);
    assert_eq!(first.iter().map(Got::number).collect::<Vec<_>>(), [0], "now all of them were blamed twice");
    rig.send(Q, 77, 9, true);
    rig.flush();
    assert!(rig.take(consumer).is_empty(), "also another, whatever its priority");
    rig.pass(80);
    assert!(rig.take(consumer).is_empty());
    rig.pass(40);
    let more: Vec<u64> = rig.take(consumer).iter().map(Got::number).collect();
    assert_eq!(more, [77, 1], "then the next one, and what is no suspect before it");
    assert!(rig.settle(&first[0], Outcome::Acknowledge));
    rig.flush();
    assert!(rig.take(consumer).is_empty(), "that was not the one waited for");
    rig.pass(150);
    assert_eq!(rig.take(consumer).iter().map(Got::number).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_mark_that_was_not_used_at_once_is_renewed() {
    let mut rig = nearly();
    let consumer = rig.subscribe(Q, 1);
    rig.credit(Q, consumer, 1);
    // The mark is written, and the credit is gone before it is durable.
    rig.turns();
    rig.handle(Q, Input::Credit { consumer, limit: 0 });
    rig.flush();
    rig.pass(60_000);
    let got = rig.receive(Q, consumer, 1);
    assert_eq!(got.len(), 1);
    assert_eq!(crashes_left(rig.crash(1)), 0, "the time of its delivery counts, not that of the first mark");
}

#[test]
fn in_a_dead_letter_queue_it_stays() {
    let mut rig = Rig::new(9);
    rig.send(DLQ, 5, 4, true);
    rig.flush();
    for start in 0..6 {
        let consumer = rig.subscribe(DLQ, 1);
        let got = rig.receive(DLQ, consumer, 1);
        assert_eq!((got[0].number(), u64::from(got[0].deliveries)), (5, start));
        rig = rig.crash(start);
    }
    assert_eq!(rig.relocations, []);
}

#[test]
fn a_quarantined_one_that_is_purged_or_deleted_meanwhile_is_gone() {
    let mut rig = nearly();
    assert!(life(&mut rig, 1, 0).1);
    let mut rig = rig.crash(1);
    rig.handle(Q, Input::Purge { token: 1 });
    let consumer = rig.subscribe(Q, 1);
    assert!(rig.receive(Q, consumer, 10).is_empty());
    assert_eq!(dead(&mut rig).len(), 1, "it is on its way before anything is purged");
    assert_eq!(rig.queue(Q).stats().depth, 0);
}

/// Receives what the queue gives to a consumer that settles nothing before it holds `window`, until nothing comes any more, or the
/// poison does. Numbers in order, the virtual time it took, ms, and whether the broker died.
fn hoard(rig: &mut Rig, window: u64, poison: Option<u64>) -> (Vec<u64>, u64, bool) {
    let consumer = rig.subscribe(Q, 1);
    let (mut taken, mut held, mut idle, mut ms) = (Vec::new(), Vec::new(), 0, 0);
    rig.credit(Q, consumer, window);
    while idle < 1000 {
        rig.pass(10);
        ms += 10;
        let got = rig.take(consumer);
        idle = if got.is_empty() { idle + 10 } else { 0 };
        for got in got {
            taken.push(got.number());
            if Some(got.number()) == poison {
                return (taken, ms, true);
            }
            held.push(got);
        }
        let none_left = rig.queue(Q).stats().ready == 0;
        if held.len() as u64 == window || none_left {
            held.drain(..).for_each(|got| assert!(rig.settle(&got, Outcome::Acknowledge)));
            rig.credit(Q, consumer, window);
            rig.flush();
            if none_left && rig.queue(Q).stats().depth == 0 {
                return (taken, ms, false);
            }
        }
    }
    panic!("it stands still after {}", taken.len());
}

/// A thousand entries, each blamed once: they were out together at two crashes.
fn a_thousand_blamed() -> Rig {
    let mut rig = Rig::new(9);
    rig.send_all(1_000);
    for start in 0..2 {
        let consumer = rig.subscribe(Q, 1);
        assert_eq!(rig.receive(Q, consumer, 1_000).len(), 1_000);
        rig = rig.crash(start);
    }
    rig
}

#[test]
fn a_thousand_that_were_blamed_are_through_in_seconds_although_a_hundred_are_held_unsettled() {
    let (taken, ms, died) = hoard(&mut a_thousand_blamed(), 100, None);
    assert_eq!(taken, (0..1_000).collect::<Vec<_>>());
    assert!(!died && ms <= 5_000, "{ms} ms");
}

#[test]
fn a_poison_one_among_a_thousand_that_were_blamed_is_found_and_nobody_else() {
    for poison in [0, 1, 31, 32, 99, 100, 470, 999] {
        let mut rig = a_thousand_blamed();
        let mut gone = std::collections::BTreeSet::new();
        for start in 3..=4 {
            let (taken, ms, died) = hoard(&mut rig, 100, Some(poison));
            assert!(died && ms <= 5_000, "start {start} poison {poison}: {ms} ms");
            // Whatever a window filled, its consumer has settled.
            gone.extend(taken);
            rig = rig.crash(start);
        }
        let (taken, ms, died) = hoard(&mut rig, 100, Some(poison));
        assert!(!died && ms <= 8_000, "poison {poison}: {ms} ms");
        assert_eq!(dead(&mut rig), [(poison, Reason::BrokerCrash, 4)], "at the fifth start, and none that is innocent");
        gone.extend(taken);
        assert_eq!(gone, (0..1_000).collect(), "poison {poison}: all others were delivered");
    }
}

/// How long one of several consumers waits for its next delivery at most, ms, while the queue works through entries with this blame. What
/// the others get, they keep: nobody is at the end of their connections. So does this one, or it `settles`.
fn longest_wait(consumers: u64, live: u64, blame: Blame, settles: bool) -> u64 {
    let mut rig = Rig::new(9);
    rig.send_all(100);
    let consumer = rig.subscribe(Q, 1);
    assert_eq!(rig.receive(Q, consumer, 100).len(), 100);
    let mut rig = rig.crash_with(1, |entry| entry.suspect = Some(blame));
    let all: Vec<_> = (0..consumers).map(|id| rig.subscribe(Q, id)).collect();
    all.iter().for_each(|consumer| rig.credit(Q, *consumer, 1_000));
    let (mut ms, mut since, mut longest) = (0, 0, 0);
    while rig.queue(Q).stats().ready > 0 {
        // Nothing else happens in this queue.
        let next = rig.queue(Q).next_deadline().map_or(ms + 10, |us| us.div_ceil(1000).max(ms + 1));
        rig.pass(next - ms);
        ms = next;
        longest = longest.max(ms - since);
        for got in rig.take(all[live as usize]) {
            since = ms;
            if settles {
                assert!(rig.settle(&got, Outcome::Acknowledge));
            }
        }
        assert!(ms < 60_000, "it stands still");
    }
    longest
}

/// I9 of the checker. A queue with three consumers, of which two had gone unnoticed, gave the third nothing for 1.3 s.
#[test]
fn i9_a_consumer_gets_something_each_second_beside_others_that_say_nothing() {
    for consumers in [1, 2, 3, 4, 5, 12] {
        for (live, blame, settles) in (0..consumers).flat_map(|live| {
            let blames = [Blame(2), Blame(2 | 1 << 16), Blame(2 | 2 << 16), Blame(1 | 1 << 16)];
            blames.into_iter().flat_map(move |blame| [(live, blame, false), (live, blame, true)])
        }) {
            let ms = longest_wait(consumers, live, blame, settles);
            assert!(ms <= 800, "{live} of {consumers}, {blame:?}, settles: {settles}: {ms} ms");
        }
    }
}

/// The same for a broker that dies some time after the delivery, from whatever the message set going.
#[test]
fn a_poison_one_that_takes_its_time_is_found_too() {
    for (delay_ms, starts) in [(50, 5), (150, 6), (380, 6), (900, 7), (9_000, 7)] {
        let mut rig = Rig::new(9);
        rig.send_all(40);
        let mut start = 1;
        loop {
            let consumer = rig.subscribe(Q, 1);
            let mut left = None;
            rig.credit(Q, consumer, 100);
            for _ in 0..1_500 {
                rig.flush();
                let came = rig.take(consumer).iter().any(|got| got.number() == 17);
                left = left.or(came.then_some(delay_ms));
                rig.pass(10);
                left = left.map(|ms: u64| ms.saturating_sub(10));
                if left == Some(0) {
                    break;
                }
            }
            if left != Some(0) {
                break;
            }
            rig = rig.crash(start);
            start += 1;
        }
        let dead: Vec<u64> = rig.drain(DLQ, 2).iter().map(|(number, _)| *number).collect();
        assert!(dead.contains(&17), "after {delay_ms} ms: {dead:?}");
        assert_eq!(start, starts, "after {delay_ms} ms: {dead:?}");
        assert!(delay_ms > 400 || dead.len() == 1, "after {delay_ms} ms: {dead:?}");
    }
}
