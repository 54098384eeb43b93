//! The poison guard, as peers and operators see it (FS-58; `docs/decisions/0010-poison-guard.md`). What it does to one queue is tested
//! in `packhorse_queue`.

use crate::world::{World, each, number};

const POISON: u64 = 3;

/// A new client takes messages from `q` one by one until the poison comes, and accepts what comes before it. How often that had
/// been delivered; nothing when all is taken without it.
fn take(world: &mut World, credit: u32) -> Option<u32> {
    let c = world.client("eater");
    let r = world[c].receiver("q", credit);
    world.run();
    let mut at = 0;
    while let Some(got) = world[c].links[r].got.get(at).cloned() {
        if got.number() == POISON {
            return Some(got.deliveries());
        }
        world[c].accept(r, at);
        world[c].credit(r, credit);
        world.run();
        at += 1;
    }
    None
}

fn fill(world: &mut World) {
    let c = world.client("filler");
    let s = world[c].sender("q");
    world.run();
    for n in 0..12 {
        world[c].send(s, number(n));
    }
    world.run();
}

#[test]
fn fs_58_a_message_that_kills_the_broker_four_times_is_in_the_dead_letter_queue_at_the_fifth_start() {
    for credit in [1, 5, 100] {
        each(|world| {
            fill(world);
            for start in 0..4u32 {
                assert_eq!(take(world, credit), Some(start), "start {start}");
                assert!(!world.exists("DLQ"), "start {start}");
                world.crash(u64::from(start));
            }
            assert_eq!(take(world, credit), None);
            assert_eq!(world.queue("q").counters.depth, 0, "the others flow");
            assert_eq!(world.queue("q").counters.dead_lettered_total, 1);
            assert!(world.logged("queue \"q\": message ") && world.logged("is quarantined"), "{:?}", world.logs);
            let c = world.client("operator");
            let d = world[c].receiver("DLQ", 10);
            world.run();
            let got = world[c].links[d].got[0].clone();
            assert_eq!((world[c].numbers(d), got.deliveries()), (vec![POISON], 0));
            assert_eq!(got.annotation("x-opt-packhorse-reason").as_deref(), Some("broker-crash"));
            assert_eq!(got.annotation("x-opt-packhorse-original-address").as_deref(), Some("q"));
            assert_eq!(got.annotation("x-opt-packhorse-deliveries").as_deref(), Some("4"));
            assert!(got.annotation("x-opt-packhorse-detail").is_some_and(|words| words.contains("three times")));
        });
    }
}

#[test]
fn three_times_or_over_a_stop_in_order_or_after_ten_seconds_is_not_that() {
    // What comes between the third and the fourth crash.
    let between: [fn(&mut World); 4] = [
        World::restart,
        |world| {
            // It is given, and ten seconds pass.
            take(world, 1);
            world.pass(10_500);
            world.crash(1);
        },
        |world| {
            // It is given and comes back.
            let c = world.client("another");
            let r = world[c].receiver("q", 1);
            world.run();
            world[c].release(r, 0);
            world.run();
            world.crash(1);
        },
        // It is not given to anybody.
        |world| world.crash(1),
    ];
    for (n, between) in between.into_iter().enumerate() {
        each(|world| {
            fill(world);
            for start in 0..3u32 {
                assert_eq!(take(world, 5), Some(start));
                world.crash(u64::from(start));
            }
            between(world);
            assert!(take(world, 5).is_some(), "{n}: it is there, and given");
            world.crash(3);
            assert!(take(world, 5).is_some(), "{n}: still");
            assert!(!world.exists("DLQ"), "{n}");
        });
    }
}

#[test]
fn a_consumer_that_says_nothing_keeps_others_waiting_for_a_tenth_of_a_second_only() {
    each(|world| {
        fill(world);
        for seed in 0..3 {
            let c = world.client("silent");
            let r = world[c].receiver("q", 100);
            world.run();
            assert_eq!(world[c].numbers(r).len(), 12);
            world.crash(seed);
        }
        let c = world.client("silent");
        let r = world[c].receiver("q", 100);
        world.run();
        assert_eq!(world[c].numbers(r), [0], "each of them was blamed twice");
        world.pass(150);
        assert_eq!(world[c].numbers(r), [0, 1]);
        world.pass(10_000);
        assert_eq!(world[c].numbers(r), (0..12).collect::<Vec<_>>(), "nothing else has to happen for that");
    });
}
