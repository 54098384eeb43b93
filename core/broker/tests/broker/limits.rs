//! Limits of queues: what credit producers get, what is rejected, what is dropped (`spec/lanes.md`, "Flow control for clients").

use crate::world::{C, Msg, World, each, number};
use packhorse_broker::{Command, Limit, OnFull, QueueLimits, QueuePatch, Reply};

fn messages(max: u64, on_full: OnFull) -> QueueLimits {
    QueueLimits { max_messages: Some(max), max_bytes: None, on_full }
}

fn bytes(max: u64, on_full: OnFull) -> QueueLimits {
    QueueLimits { max_messages: None, max_bytes: Some(max), on_full }
}

fn declare(world: &mut World, name: &str, limits: QueueLimits) {
    let reply = world.put(name, QueuePatch { limits: Some(limits), ..QueuePatch::default() });
    assert!(matches!(reply, Reply::Created { new: true, .. }), "{reply:?}");
}

fn change(world: &mut World, name: &str, limits: QueueLimits) {
    match world.ask(Command::QueueChange { name: name.into(), limits }) {
        Reply::Changed { queue } => assert_eq!(queue.settings.limits, limits),
        other => panic!("{other:?}"),
    }
}

/// A producer with messages for a queue.
fn producer(world: &mut World, name: &str, queue: &str, numbers: impl IntoIterator<Item = u64>) -> (C, usize) {
    let c = world.client(name);
    let s = world[c].sender(queue);
    world.run();
    for n in numbers {
        world[c].send(s, number(n));
    }
    world.run();
    (c, s)
}

#[test]
fn a_full_queue_gives_no_credit_until_there_is_room() {
    each(|world| {
        declare(world, "q", messages(10, OnFull::Block));
        let (c, s) = producer(world, "p", "q", 0..100);
        assert_eq!(world[c].confirmed(s).len(), 10);
        let queue = world.queue("q");
        assert_eq!((queue.counters.ready, queue.full), (10, Some(Limit::Messages)));
        let r = world[c].receiver("q", 4);
        world.run();
        assert_eq!(world[c].confirmed(s).len(), 10, "what is held counts");
        world[c].accept(r, 0);
        world.run();
        assert_eq!(world[c].confirmed(s).len(), 11, "there is room for one");
        for round in 0..200 {
            assert!(round < 199, "it comes to an end");
            world[c].accept_all(r);
            world[c].credit(r, 4);
            world.run();
            assert!(world.queue("q").counters.depth <= 10);
            if world[c].numbers(r).len() == 100 {
                break;
            }
        }
        assert_eq!(world[c].numbers(r), (0..100).collect::<Vec<_>>());
        assert_eq!(world[c].confirmed(s).len(), 100);
    });
}

#[test]
fn producers_share_the_room_and_none_is_left_behind() {
    each(|world| {
        declare(world, "q", messages(20, OnFull::Block));
        let producers: Vec<_> =
            (0..5u64).map(|n| producer(world, &format!("p{n}"), "q", n * 100..n * 100 + 50)).collect();
        let depth = world.queue("q").counters.depth;
        // Each may have had its share of what was free when it asked.
        assert!((20..=20 + 5 * 20).contains(&depth), "{depth}");
        for (c, s) in &producers {
            assert!(world[*c].confirmed(*s).len() <= 50);
        }
        let c = world.client("c");
        let r = world[c].receiver("q", 1000);
        for _ in 0..400 {
            world.run();
            if world[c].accept_all(r) == 0 {
                break;
            }
        }
        let mut all = world[c].numbers(r);
        all.sort_unstable();
        assert_eq!(all, (0..5u64).flat_map(|n| n * 100..n * 100 + 50).collect::<Vec<_>>());
        for (c, s) in producers {
            assert_eq!(world[c].confirmed(s).len(), 50, "none is stuck");
        }
        let queue = world.queue("q");
        assert_eq!((queue.counters.depth, queue.full), (0, None));
    });
}

#[test]
fn a_link_to_another_queue_of_the_same_connection_goes_on() {
    each(|world| {
        declare(world, "full", messages(5, OnFull::Block));
        world.declare("free");
        let (c, s) = producer(world, "p", "full", 0..50);
        let free = world[c].sender("free");
        world.run();
        for n in 0..500 {
            world[c].send(free, number(n));
        }
        let r = world[c].receiver("free", 1000);
        world.run();
        assert_eq!((world[c].confirmed(s).len(), world[c].confirmed(free).len()), (5, 500));
        assert_eq!(world[c].numbers(r).len(), 500);
        world.kill(c);
        world.run();
        let (c, s) = producer(world, "next", "full", [99]);
        assert_eq!(world[c].confirmed(s).len(), 0);
        let r = world[c].receiver("full", 100);
        world.run();
        world[c].accept_all(r);
        world.run();
        assert_eq!(world[c].numbers(r), [0, 1, 2, 3, 4, 99], "who is gone has no share any more");
    });
}

#[test]
fn bytes_are_limited_too() {
    each(|world| {
        declare(world, "q", bytes(100_000, OnFull::Block));
        let c = world.client("p");
        let s = world[c].sender("q");
        world.run();
        for n in 0..100 {
            world[c].send(s, Msg::new(n).length(10_000).bytes());
        }
        world.run();
        let queue = world.queue("q");
        // The first credit took them for small ones.
        assert!((10..100).contains(&queue.counters.depth), "{}", queue.counters.depth);
        assert_eq!(queue.full, Some(Limit::Bytes));
        let r = world[c].receiver("q", 1000);
        for _ in 0..300 {
            world.run();
            if world[c].accept_all(r) == 0 {
                break;
            }
        }
        assert_eq!(world[c].numbers(r), (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn a_queue_that_rejects_says_why() {
    each(|world| {
        declare(world, "q", messages(3, OnFull::Reject));
        let (c, s) = producer(world, "p", "q", 0..5);
        let rejected = "rejected amqp:resource-limit-exceeded";
        let mut outcomes = world[c].links[s].outcomes.clone();
        outcomes.sort();
        let words: Vec<_> = outcomes.iter().map(|(_, words)| words.as_str()).collect();
        assert_eq!(words, ["accepted", "accepted", "accepted", rejected, rejected]);
        assert_eq!(world.queue("q").full, Some(Limit::Messages));
        world[c].send_as(s, number(7), true, 0);
        world.run();
        assert!(world.logged("a settled message was dropped"));
        assert_eq!(world.take("q"), [(0, 0), (1, 0), (2, 0)]);
        world[c].send(s, number(8));
        world.run();
        assert_eq!(world.take("q"), [(8, 0)]);
        // One that does not fit at all, and one that does, in a file.
        change(world, "q", bytes(3 << 20, OnFull::Reject));
        for (n, length) in [(9, 4 << 20), (10, 2 << 20), (11, 2 << 20), (12, 10)] {
            world[c].send(s, Msg::new(n).length(length).bytes());
        }
        world.run();
        assert_eq!(world.take("q"), [(10, 0), (12, 0)]);
    });
}

#[test]
fn a_queue_that_drops_keeps_the_youngest_and_the_oldest_are_dead_letters() {
    each(|world| {
        for name in ["DLQ", "other"] {
            world.declare(name);
        }
        declare(world, "q", messages(5, OnFull::DropOldest));
        let c = world.client("c");
        let r = world[c].receiver("q", 2);
        let (p, s) = producer(world, "p", "q", 0..12);
        assert_eq!(world[p].confirmed(s).len(), 12, "producers go on");
        let counters = world.queue("q").counters;
        assert_eq!((counters.depth, counters.acquired, counters.dead_lettered_total), (5, 2, 7));
        let d = world[c].receiver("DLQ", 100);
        world.run();
        let mut dropped = world[c].numbers(d);
        let got = &world[c].links[d].got[0];
        assert_eq!(got.annotation("x-opt-packhorse-reason").as_deref(), Some("overflow"));
        assert_eq!(got.annotation("x-opt-packhorse-deliveries").as_deref(), Some("0"));
        assert!(dropped.is_sorted(), "the oldest first: {dropped:?}");
        world[c].release(r, 0);
        world[c].release(r, 1);
        world.run();
        world[c].detach(r, true);
        world.run();
        let mut kept: Vec<u64> = world.take("q").into_iter().map(|(n, _)| n).collect();
        assert_eq!(kept[2..], [9, 10, 11], "what is held is not dropped");
        dropped.append(&mut kept);
        dropped.sort_unstable();
        assert_eq!(dropped, (0..12).collect::<Vec<_>>());
    });
}

#[test]
fn a_dead_letter_queue_limits_only_bytes_and_what_finds_no_room_waits_with_an_alarm() {
    each(|world| {
        let limits = QueueLimits { max_messages: Some(1), max_bytes: Some(100), on_full: OnFull::DropOldest };
        declare(world, "DLQ", limits);
        declare(world, "q", messages(2, OnFull::DropOldest));
        let (p, s) = producer(world, "p", "q", 0..40);
        let dead = world.queue("DLQ");
        assert_eq!(dead.counters.dead_lettered_total, 0, "nothing is dropped there");
        assert!(dead.counters.depth > 1 && dead.counters.bytes <= 100, "bytes are limited there, messages are not");
        let counters = world.queue("q").counters;
        assert!(counters.scheduled > 0 && counters.ready <= 40);
        assert_eq!(counters.depth + dead.counters.depth, world[p].confirmed(s).len() as u64);
        let alarms = |world: &mut World| -> Vec<&'static str> {
            let mut codes = Vec::new();
            for shard in 0..usize::from(world.kind.shards) {
                let Reply::Shard(report) = world.ask_at(shard, Command::Status) else { panic!("figures") };
                codes.extend(report.alarms.into_iter().map(|alarm| alarm.code));
            }
            codes
        };
        assert_eq!(alarms(world), ["dead-letter-queue-full"]);
        assert!(world.logged("stays here, because the dead-letter queue cannot take it"));
        let mut dead: Vec<u64> = Vec::new();
        for _ in 0..60 {
            dead.extend(world.take("DLQ").into_iter().map(|(n, _)| n));
            world.pass(1_100);
        }
        assert_eq!(alarms(world), [""; 0]);
        assert_eq!(world[p].confirmed(s).len(), 40, "its producers have gone on");
        assert_eq!(world.queue("q").counters.depth, 2);
        dead.extend(world.take("q").into_iter().map(|(n, _)| n));
        dead.sort_unstable();
        assert_eq!(dead, (0..40).collect::<Vec<_>>());
    });
}

#[test]
fn other_limits_are_durable_and_hold_at_once_for_those_who_wait() {
    each(|world| {
        declare(world, "q", messages(2, OnFull::Block));
        let (c, s) = producer(world, "p", "q", 0..30);
        assert_eq!(world[c].confirmed(s).len(), 2);
        change(world, "q", messages(6, OnFull::Block));
        world.run();
        assert_eq!(world[c].confirmed(s).len(), 6);
        world.hold_store();
        let id = world.command(0, Command::QueueChange { name: "q".into(), limits: QueueLimits::default() });
        world.run();
        assert_eq!(world.reply(id), None, "it is not durable");
        world.free_store();
        world.run();
        assert!(matches!(world.reply(id), Some(Reply::Changed { .. })));
        assert_eq!(world[c].confirmed(s).len(), 30, "without limits");
        // A limit for a link that has all the credit in the world.
        change(world, "q", messages(40, OnFull::Block));
        for n in 0..1000 {
            world[c].send(s, number(n));
        }
        world.run();
        assert_eq!(world[c].confirmed(s).len(), 40);
        world.restart();
        let queue = world.queue("q");
        assert_eq!((queue.settings.limits, queue.full), (messages(40, OnFull::Block), Some(Limit::Messages)));
        let (c, s) = producer(world, "p2", "q", [1]);
        assert_eq!(world[c].confirmed(s).len(), 0);
        let put = world.put("q", QueuePatch::default());
        let Reply::Refused(refusal) = put else { panic!("{put:?}") };
        assert!(refusal.detail.contains("max_messages is 40, asked for none"), "{}", refusal.detail);
        assert_eq!(
            world.refused(Command::QueueChange { name: "nix".into(), limits: QueueLimits::default() }),
            "queue-not-found"
        );
    });
}
