//! Dead letters: rejected messages and those with too many attempts go where an operator finds them, with their history
//! (`spec/entry.md`, "Redelivery").

use crate::world::{C, Msg, World, each, number};
use packhorse_amqp10::codec::DeliveryState;
use packhorse_broker::{Command, QueuePatch, Reply};

/// A client with a sender (link 0) and a receiver (link 1) on `queue`.
fn both(world: &mut World, queue: &str, credit: u32) -> C {
    let c = world.client("c");
    world[c].sender(queue);
    world[c].receiver(queue, credit);
    world.run();
    c
}

/// The one message in a queue.
fn read(world: &mut World, queue: &str) -> crate::world::Got {
    let c = world.client("reader");
    let r = world[c].receiver(queue, 10);
    world.run();
    assert_eq!(world[c].links[r].got.len(), 1);
    world[c].links[r].got[0].clone()
}

#[test]
fn a_rejected_message_goes_to_the_dead_letter_queue_with_its_history() {
    each(|world| {
        let c = both(world, "orders", 1);
        world[c].send(0, Msg::new(7).durable(true).ttl(1_000_000).bytes());
        world.run();
        world[c].modify(1, 0, true, false, &[("x-opt-mine", "kept")]);
        world[c].credit(1, 1);
        world.run();
        world[c].reject(1, 1, "app:broken", "no such customer");
        world.run();
        assert_eq!(world.counts("orders"), (0, 0, 1, 0));
        assert_eq!(world.queue("orders").counters.dead_lettered_total, 1);
        let got = read(world, "DLQ");
        assert_eq!(got.number(), 7);
        assert_eq!(got.annotation("x-opt-packhorse-reason").as_deref(), Some("rejected"));
        assert_eq!(got.annotation("x-opt-packhorse-detail").as_deref(), Some("app:broken: no such customer"));
        assert_eq!(got.annotation("x-opt-packhorse-original-address").as_deref(), Some("orders"));
        assert!(got.annotation("x-opt-packhorse-original-sequence").is_some());
        assert_eq!(got.annotation("x-opt-packhorse-deliveries").as_deref(), Some("2"));
        assert_eq!(got.annotation("x-opt-mine").as_deref(), Some("kept"));
        assert_eq!(got.header().ttl, None, "the time to live is gone");
        assert_eq!(got.header().durable, Some(true));
        assert_eq!(got.deliveries(), 0);
    });
}

#[test]
fn attempts_are_limited_to_ten() {
    each(|world| {
        let c = both(world, "q", 1);
        world[c].send(0, number(1));
        world.run();
        for round in 0..10 {
            assert_eq!(world[c].links[1].got.len(), round + 1, "attempt {}", round + 1);
            world[c].modify(1, round, true, false, &[]);
            world[c].credit(1, 1);
            world.run();
        }
        assert_eq!(world[c].links[1].got.len(), 10);
        let got = read(world, "DLQ");
        assert_eq!(got.annotation("x-opt-packhorse-reason").as_deref(), Some("delivery-limit"));
        assert_eq!(got.annotation("x-opt-packhorse-deliveries").as_deref(), Some("10"));
    });
}

#[test]
fn a_queue_names_its_own_limit_and_dead_letter_queue() {
    each(|world| {
        world
            .put("q", QueuePatch { max_deliveries: Some(2), dead_letter: Some("graves".into()), ..Default::default() });
        let c = both(world, "q", 10);
        world[c].send(0, number(1));
        world.run();
        world[c].modify(1, 0, true, false, &[]);
        world.run();
        world[c].modify(1, 1, true, false, &[]);
        world.run();
        assert_eq!(read(world, "graves").number(), 1);
        assert!(matches!(world.ask(Command::QueueGet { name: "DLQ".into() }), Reply::Refused(_)));
    });
}

#[test]
fn the_dead_letter_queue_is_on_whatever_shard() {
    each(|world| {
        // Ids alternate between the shards.
        for name in ["a", "DLQ", "b", "c"] {
            world.declare(name);
        }
        for (n, queue) in [(1, "a"), (2, "b"), (3, "c")] {
            for durable in [true, false] {
                let c = both(world, queue, 10);
                world[c].send(0, Msg::new(n).durable(durable).bytes());
                world.run();
                world[c].reject(1, 0, "x", "y");
                world[c].close();
                world.run();
            }
            assert_eq!(world.queue(queue).counters.depth, 0);
        }
        assert_eq!(world.queue("DLQ").counters.ready, 6);
        let c = world.client("reader");
        let r = world[c].receiver("DLQ", 10);
        world.run();
        assert_eq!(world[c].numbers(r), [1, 1, 2, 2, 3, 3]);
        world[c].accept_all(r);
        world.run();
        assert_eq!(world.queue("DLQ").counters.depth, 0);
    });
}

#[test]
fn a_dead_letter_is_never_in_two_places_nor_in_none_over_a_crash() {
    for seed in 0..12 {
        each(|world| {
            for name in ["DLQ", "q"] {
                world.declare(name);
            }
            let c = both(world, "q", 10);
            for n in 0..5 {
                world[c].send(0, number(n));
            }
            world.run();
            world.hold_store();
            for n in 0..5 {
                world[c].reject(1, n, "x", "y");
                world.run();
                if seed % 3 == 0 {
                    world.memory.flush(packhorse_model::ShardId(0), 1);
                }
            }
            world.crash(seed);
            world.free_store();
            let c = world.client("reader");
            let (q, d) = (world[c].receiver("q", 100), world[c].receiver("DLQ", 100));
            world.run();
            let mut all = [world[c].numbers(q), world[c].numbers(d)].concat();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4]);
        });
    }
}

#[test]
fn rejected_in_the_dead_letter_queue_stays_for_others() {
    each(|world| {
        let c = both(world, "DLQ", 10);
        world[c].send(0, number(1));
        world.run();
        world[c].reject(1, 0, "x", "y");
        world.run();
        assert_eq!(world[c].links[1].got.len(), 1);
        assert_eq!(world.counts("DLQ"), (1, 0, 1, 0));
        let other = world[c].receiver("DLQ", 1);
        world.run();
        assert_eq!(world[c].numbers(other), [1]);
    });
}

#[test]
fn attempt_limits_do_not_apply_in_the_dead_letter_queue() {
    each(|world| {
        let c = both(world, "DLQ", 1);
        world[c].send(0, number(1));
        world.run();
        for round in 0..15 {
            world[c].modify(1, round, true, false, &[]);
            world[c].credit(1, 1);
            world.run();
        }
        assert_eq!(world[c].links[1].got.len(), 16);
    });
}

#[test]
fn rejects_while_the_dead_letter_queue_is_being_created() {
    each(|world| {
        let c = both(world, "q", 10);
        for n in 0..4 {
            world[c].send(0, Msg::new(n).durable(n % 2 == 0).bytes());
        }
        world.run();
        world.hold_store();
        world[c].reject(1, 0, "x", "y");
        world.run();
        world[c].reject(1, 1, "x", "y");
        world[c].close();
        world.run();
        for _ in 0..4 {
            world.flush();
        }
        world.free_store();
        assert_eq!(world.counts("q").0, 2);
        assert_eq!(world.queue("DLQ").counters.ready, 2);
    });
}

#[test]
fn a_reject_right_before_the_link_goes_counts() {
    each(|world| {
        let c = both(world, "q", 10);
        world[c].send(0, number(1));
        world[c].send(0, number(2));
        world.run();
        world[c].reject(1, 0, "x", "y");
        world[c].detach(1, true);
        world.run();
        assert_eq!(world[c].links[1].ended.as_deref(), Some(""));
        assert_eq!(world.queue("DLQ").counters.ready, 1);
        assert_eq!(world.counts("q"), (1, 0, 2, 0));
    });
}

#[test]
fn a_dead_letter_keeps_its_priority_and_large_body() {
    each(|world| {
        let c = both(world, "q", 10);
        world[c].send(0, Msg::new(1).length(3 << 20).priority(7).bytes());
        world.run();
        assert_eq!(world[c].numbers(1), [1]);
        world[c].reject(1, 0, "x", "y");
        world.run();
        let got = read(world, "DLQ");
        assert_eq!((got.number(), got.header().priority), (1, Some(7)));
        assert_eq!(got.annotation("x-opt-packhorse-original-address").as_deref(), Some("q"));
    });
}

#[test]
fn without_room_it_waits_here_and_so_does_the_reply() {
    each(|world| {
        world.declare("DLQ");
        let c = both(world, "q", 10);
        world[c].send(0, number(1));
        world.run();
        world.hold_store();
        let delete = world.command(0, Command::QueueDelete { name: "DLQ".into(), force: true, by: None });
        world.run();
        world[c].decide(1, 0, Some(DeliveryState::Rejected(Default::default())), false);
        world.run();
        assert_eq!(world.queue("q").counters.scheduled, 1);
        world.free_store();
        assert!(matches!(world.reply(delete), Some(Reply::Deleted { .. })));
        assert!(!world[c].links[1].got[0].settled_later);
        world[c].detach(1, false);
        world.run();
        assert_eq!(world[c].links[1].ended, None, "the answer to the disposition comes first");
        world.pass(1_500);
        assert_eq!(world[c].links[1].ended.as_deref(), Some(""));
        assert_eq!(world.queue("DLQ").counters.ready, 1);
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn deleting_the_source_answers_whoever_waits() {
    each(|world| {
        let c = both(world, "q", 10);
        world[c].send(0, number(1));
        world.run();
        world.hold_store();
        world[c].decide(1, 0, Some(DeliveryState::Rejected(Default::default())), false);
        world.run();
        world.command(0, Command::QueueDelete { name: "q".into(), force: true, by: None });
        world.run();
        world[c].close();
        world.run();
        world.free_store();
        assert_eq!(world[c].closed.as_deref(), Some(""));
        let there = if world.exists("DLQ") { world.queue("DLQ").counters.depth } else { 0 };
        assert_eq!(there, 0);
    });
}
