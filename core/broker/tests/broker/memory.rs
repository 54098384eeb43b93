//! Memory is bounded by configuration, not by depth; a store that is behind slows producers (`architecture.md` §2 and §3).

use crate::world::{Msg, World, each, each_with, in_one, number};
use packhorse_broker::{Command, Config, Reply};

fn tight(config: &mut Config) {
    config.memory_bytes = 64 << 10;
}

fn memory(world: &mut World) -> u64 {
    (0..usize::from(world.kind.shards))
        .map(|shard| match world.ask_at(shard, Command::Status) {
            Reply::Shard(report) => report.memory_bytes,
            other => panic!("{other:?}"),
        })
        .sum()
}

/// Puts 200 messages of 4 KiB into `q`, more than memory takes.
fn fill(world: &mut World, durable: impl Fn(u64) -> bool) {
    let c = world.client("filler");
    let s = world[c].sender("q");
    world.run();
    for n in 0..200 {
        world[c].send(s, Msg::new(n).length(4_000).durable(durable(n)).bytes());
        if n % 8 == 0 {
            world.run();
        }
    }
    world.run();
    assert_eq!(world[c].confirmed(s).len(), 200);
}

/// Everything in `q`, received with this credit at a time.
fn drain(world: &mut World, credit: u32) -> Vec<u64> {
    let c = world.client("reader");
    let r = world[c].receiver("q", credit);
    world.run();
    let mut last = usize::MAX;
    while world[c].links[r].got.len() != last {
        last = world[c].links[r].got.len();
        world[c].accept_all(r);
        world[c].credit(r, credit);
        world.run();
    }
    world[c].numbers(r)
}

#[test]
fn persistent_bodies_are_evicted_and_read_again() {
    each_with(tight, |world| {
        fill(world, |_| true);
        let used = memory(world);
        assert!(used <= 80 << 10, "{used} bytes");
        for credit in [1000, 7] {
            assert_eq!(drain(world, credit).len(), if credit == 1000 { 200 } else { 0 });
        }
        assert_eq!(world.counts("q"), (0, 0, 200, 200));
    });
}

#[test]
fn bodies_that_are_not_persistent_go_to_the_store_for_memorys_sake() {
    each_with(tight, |world| {
        fill(world, |n| n % 2 == 0);
        let used = memory(world);
        assert!(used <= 80 << 10, "{used} bytes");
        assert_eq!(drain(world, 9), (0..200).collect::<Vec<_>>());
        fill(world, |_| false);
        assert_eq!(drain(world, 9), (0..200).collect::<Vec<_>>());
        fill(world, |n| n % 2 == 0);
        world.restart();
        assert_eq!(drain(world, 50), (0..200).step_by(2).collect::<Vec<_>>());
    });
}

#[test]
fn spilling_while_the_store_is_slow_loses_nothing() {
    each_with(tight, |world| {
        world.declare("q");
        world.hold_store();
        let c = world.client("filler");
        let s = world[c].sender("q");
        world.run();
        for n in 0..100 {
            world[c].send(s, Msg::new(n).length(4_000).durable(false).bytes());
            world.turn();
        }
        world.run();
        assert_eq!(world[c].confirmed(s).len(), 100);
        let r = world[c].receiver("q", 30);
        world.run();
        world.free_store();
        world[c].credit(r, 100);
        world.run();
        assert_eq!(world[c].numbers(r), (0..100).collect::<Vec<_>>());
        assert_eq!(world[c].accept_all(r), 100);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 100, 100));
    });
}

#[test]
fn recovered_messages_are_read_when_wanted() {
    each_with(tight, |world| {
        fill(world, |_| true);
        world.crash(3);
        assert_eq!(memory(world), 0);
        assert_eq!(drain(world, 20), (0..200).collect::<Vec<_>>());
    });
}

#[test]
fn dead_letters_of_evicted_bodies() {
    each_with(tight, |world| {
        for queue in ["DLQ", "q", "other"] {
            world.declare(queue);
        }
        fill(world, |n| n % 3 != 0);
        let c = world.client("rejecting");
        let r = world[c].receiver("q", 500);
        world.run();
        for at in 0..200 {
            world[c].reject(r, at, "x", "y");
            if at % 10 == 0 {
                world.run();
            }
        }
        world.run();
        assert_eq!(world.queue("DLQ").counters.ready, 200);
        let d = world[c].receiver("DLQ", 500);
        world.run();
        let mut numbers = world[c].numbers(d);
        assert_eq!(numbers.len(), 200);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    });
}

/// A producer of big messages over a store that flushes nothing.
fn flood(world: &mut World, count: u64) -> crate::world::C {
    let c = world.client("c");
    let s = world[c].sender("q");
    world.run();
    world.hold_store();
    for n in 0..count {
        world[c].send(s, Msg::new(n).length(900_000).durable(true).bytes());
    }
    world.run();
    c
}

fn unflushed(world: &World) -> u64 {
    packhorse_store::Store::unflushed_bytes(&world.memory.handle(packhorse_model::ShardId(0)))
}

#[test]
fn a_store_that_is_behind_gets_no_new_credit() {
    each_with(
        |config| config.link_credit_max = 4,
        |world| {
            let c = flood(world, 40);
            let behind = unflushed(world);
            assert!((16 << 20..22 << 20).contains(&behind), "{behind}");
            assert!(world[c].unsent(0) > 10);
            let late = world.client("late");
            let t = world[late].sender("q");
            world.run();
            assert!(world[late].links[t].attached);
            assert_eq!(world[late].engine.credit(world[late].links[t].id), 0, "a new link gets none");
            world.free_store();
            assert_eq!(world[c].unsent(0), 0);
            assert_eq!(world[c].confirmed(0).len(), 40);
            assert!(world[late].engine.credit(world[late].links[t].id) > 0);
        },
    );
}

#[test]
fn credit_given_before_is_honored_until_publishing_connections_are_not_read() {
    let generous = |config: &mut Config| config.link_credit_bytes = 1 << 40;
    in_one(generous, |world| {
        let c = flood(world, 170);
        let behind = unflushed(world);
        assert!((128 << 20..140 << 20).contains(&behind), "{behind}");
        assert!(world.pipe_of(c).paused);
        let reader = world.client("reader");
        let r = world[reader].receiver("other", 1);
        world.run();
        assert!(world[reader].links[r].ended.is_none(), "who does not publish is read");
        assert!(!world.pipe_of(reader).paused);
        world.free_store();
        assert_eq!(world[c].confirmed(0).len(), 170);
    });
}

#[test]
fn a_failed_store_stops_confirms_and_says_why() {
    each(|world| {
        world.errors_expected = true;
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, number(1));
        world.run();
        world.hold_store();
        world[c].send(s, number(2));
        world.run();
        world.memory.fail("fdatasync of segment 3: Input/output error");
        world.run();
        world.memory.flush_all();
        world.run();
        assert!(world.failed.as_deref().is_some_and(|what| what.contains("segment 3")));
        world[c].send(s, Msg::new(3).durable(true).bytes());
        world.run();
        assert_eq!(world[c].confirmed(s), [0]);
        let Reply::Shard(report) = world.ask(Command::Status) else { panic!("a report") };
        assert_eq!(report.alarms[0].code, "store-failed");
    });
}

#[test]
fn a_purely_volatile_flow_needs_no_store() {
    each(|world| {
        world.declare("q");
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 1000));
        world.run();
        world.hold_store();
        for n in 0..500 {
            world[c].send(s, Msg::new(n).durable(false).bytes());
        }
        world.run();
        assert_eq!(world[c].numbers(r).len(), 500);
        assert_eq!(world[c].confirmed(s).len(), 500);
        world[c].accept_all(r);
        world.run();
        assert_eq!(world.queue("q").counters.depth, 0);
        world.free_store();
    });
}

#[test]
fn a_dead_letter_spilled_while_its_queue_is_being_created() {
    each_with(tight, |world| {
        world.declare("q");
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 5));
        world.run();
        for n in 0..5 {
            world[c].send(s, Msg::new(n).length(4_000).durable(false).bytes());
        }
        world.run();
        world.hold_store();
        for n in 0..5 {
            world[c].reject(r, n, "x", "y");
        }
        world.run();
        // Memory is wanted for others; what is spilled for them becomes durable before the new queue is asked for.
        let t = world[c].sender("q");
        world.run();
        for n in 10..60 {
            world[c].send(t, Msg::new(n).length(4_000).durable(false).bytes());
            world.turn();
        }
        world.run();
        world.free_store();
        assert_eq!(world.queue("DLQ").counters.ready, 5);
        let d = world[c].receiver("DLQ", 10);
        world.run();
        assert_eq!(world[c].numbers(d), [0, 1, 2, 3, 4]);
        world[c].accept_all(d);
        world.run();
        world.restart();
        assert_eq!(world.queue("DLQ").counters.depth, 0);
    });
}
