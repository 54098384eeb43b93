//! Crashes and restarts: what was confirmed is there, in order; what may have been delivered says so (G1, G2; `spec/entry.md`).

use crate::world::{Msg, World, each, number};

/// Numbers and delivery-counts of everything in `q`.
fn content(world: &mut World) -> Vec<(u64, u32)> {
    let c = world.client("reader");
    let r = world[c].receiver("q", 10_000);
    world.run();
    world[c].links[r].got.iter().map(|got| (got.number(), got.deliveries())).collect()
}

#[test]
fn every_confirmed_message_survives_and_the_rest_is_a_prefix() {
    for seed in 0..10 {
        each(|world| {
            let c = world.client("c");
            let s = world[c].sender("q");
            world.run();
            world.hold_store();
            for n in 0..40 {
                world[c].send(s, Msg::new(n).durable(true).bytes());
                world.turn();
                if n == 15 {
                    world.run();
                    world.flush();
                }
            }
            world.run();
            let confirmed = world[c].confirmed(s).len();
            assert_eq!(confirmed, 16);
            world.crash(seed);
            world.free_store();
            let there: Vec<u64> = content(world).iter().map(|(n, _)| *n).collect();
            assert!(there.len() >= confirmed, "{} of {confirmed}", there.len());
            assert_eq!(there, (0..there.len() as u64).collect::<Vec<_>>());
        });
    }
}

#[test]
fn acknowledged_ones_are_gone_and_only_they() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 100));
        world.run();
        for n in 0..20 {
            world[c].send(s, number(n));
        }
        world.run();
        for at in [0, 1, 5, 19] {
            world[c].accept(r, at);
        }
        world.run();
        world.crash(1);
        let there: Vec<u64> = content(world).iter().map(|(n, _)| *n).collect();
        let left: Vec<u64> = (0..20).filter(|n| ![0, 1, 5, 19].contains(n)).collect();
        assert_eq!(there, left);
    });
}

#[test]
fn what_may_have_been_delivered_is_flagged_and_nothing_else() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        let t = world[c].sender("untouched");
        world.run();
        for n in 0..600 {
            world[c].send(s, number(n));
        }
        world[c].send(t, number(1));
        let r = world[c].receiver("q", 3);
        world.run();
        let given = world[c].numbers(r).len() as u64;
        assert_eq!(given, 3);
        world.crash(1);
        let there = content(world);
        assert_eq!(there.len(), 600);
        assert!(there.iter().all(|(n, deliveries)| *n >= given || *deliveries == 1), "no under-reporting");
        assert!(there.iter().all(|(n, deliveries)| *n < 512 || *deliveries == 0), "ranges of 256 at most two");
        let d = world.client("d");
        let u = world[d].receiver("untouched", 1);
        world.run();
        assert_eq!(world[d].links[u].got[0].deliveries(), 0);
    });
}

#[test]
fn counts_and_annotations_survive() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 1));
        world.run();
        world[c].send(s, number(1));
        world.run();
        world[c].modify(r, 0, true, false, &[("x-opt-note", "one")]);
        world[c].credit(r, 1);
        world.run();
        world[c].modify(r, 1, true, false, &[("x-opt-more", "two")]);
        world.run();
        world.restart();
        let c = world.client("c");
        let r = world[c].receiver("q", 1);
        world.run();
        let got = &world[c].links[r].got[0];
        assert!(got.deliveries() >= 2, "{}", got.deliveries());
        assert_eq!(got.annotation("x-opt-note").as_deref(), Some("one"));
        assert_eq!(got.annotation("x-opt-more").as_deref(), Some("two"));
    });
}

#[test]
fn a_message_without_flush_is_lost_with_its_queue_or_both_are_there() {
    for seed in 0..6 {
        each(|world| {
            world.hold_store();
            let c = world.client("c");
            let s = world[c].sender("new");
            world.run();
            assert!(!world[c].links[s].attached);
            world.crash(seed);
            world.free_store();
            let c = world.client("c");
            let s = world[c].sender("new");
            world.run();
            world[c].send(s, number(1));
            world.run();
            assert_eq!(world[c].confirmed(s), [0]);
            assert_eq!(world.queue("new").counters.depth, 1);
        });
    }
}

#[test]
fn ids_of_queues_and_numbers_of_entries_are_not_used_again() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, number(1));
        world.run();
        let before = world.queue("q").id;
        world.ask(packhorse_broker::Command::QueueDelete { name: "q".into(), force: true, by: None });
        world.restart();
        world.declare("q");
        let after = world.queue("q").id;
        assert!(after > before);
        assert_eq!(world.queue("q").counters.depth, 0);
        // A dead letter tells the number of its original.
        let mut last = 0;
        for round in 0..3 {
            let c = world.client("c");
            let (s, r) = (world[c].sender("q"), world[c].receiver("q", 1));
            world.run();
            world[c].send(s, number(round));
            world.run();
            world[c].reject(r, 0, "x", "y");
            world.run();
            let d = world[c].receiver("DLQ", 10);
            world.run();
            let sequence: u64 =
                world[c].links[d].got[0].annotation("x-opt-packhorse-original-sequence").unwrap().parse().unwrap();
            world[c].accept_all(d);
            world.run();
            assert!(sequence > last, "{sequence} after {last}");
            last = sequence;
            world.crash(round);
        }
    });
}

#[test]
fn what_is_not_persistent_does_not_survive_a_stop() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, Msg::new(1).durable(false).bytes());
        world[c].send(s, Msg::new(2).durable(true).bytes());
        world.run();
        world.restart();
        assert_eq!(content(world), [(2, 0)]);
    });
}

#[test]
fn many_restarts_in_a_row() {
    each(|world| {
        for round in 0..6 {
            let c = world.client("c");
            let s = world[c].sender("q");
            world.run();
            world[c].send(s, number(round));
            world.run();
            if round % 2 == 0 { world.restart() } else { world.crash(round) }
        }
        let there: Vec<u64> = content(world).iter().map(|(n, _)| *n).collect();
        assert_eq!(there, [0, 1, 2, 3, 4, 5]);
    });
}
