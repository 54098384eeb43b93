//! Messages of others with a duplicate id: what comes again under one is confirmed and not stored, over crashes too, as long as the queue
//! remembers it.

use crate::coordinator::{commit, controlled, declare, discharge, end, prepare, start};
use crate::world::{C, Msg, World, each, each_with};
use packhorse_amqp10::codec::{ValueWriter, put_binary, put_string, put_ulong};
use packhorse_amqp10::transaction::flags;

/// The section that gives a message this id.
fn section(put: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0, 0x53, 0x74];
    ValueWriter::map(&mut out, |map| {
        put_string(map.next(), "other");
        put_ulong(map.next(), 1);
        put_string(map.next(), "_AMQ_DUPL_ID");
        put(map.next());
    });
    out
}

fn with_id(number: u64, id: &str) -> Msg {
    Msg::new(number).sections(&section(|out| put_string(out, id)))
}

/// Sends a message; what the broker said of it.
fn sent(world: &mut World, (c, s): (C, usize), msg: &Msg) -> String {
    let token = world[c].send(s, msg.bytes());
    world.run();
    let outcomes = &world[c].links[s].outcomes;
    outcomes.iter().find(|(of, _)| *of == token).map(|(_, state)| state.clone()).unwrap_or_default()
}

fn producer(world: &mut World, queue: &str) -> (C, usize) {
    // Clients of one name would take each other's links.
    let c = world.client(queue);
    let s = world[c].sender(queue);
    world.run();
    (c, s)
}

fn numbers(world: &mut World, queue: &str) -> Vec<u64> {
    world.take(queue).into_iter().map(|(n, _)| n).collect()
}

#[test]
fn what_comes_again_is_confirmed_and_not_stored() {
    each(|world| {
        for queue in ["a", "b"] {
            let link = producer(world, queue);
            for (n, id) in [(1, "x"), (2, "y"), (3, "x"), (4, "z")] {
                assert_eq!(sent(world, link, &with_id(n, id)), "accepted");
            }
            // The same bytes are the same id.
            let binary = Msg::new(5).sections(&section(|out| put_binary(out, b"x")));
            assert_eq!(sent(world, link, &binary), "accepted");
            assert_eq!(sent(world, link, &Msg::new(6)), "accepted");
            assert_eq!(world.queue(queue).counters.duplicates_total, 2);
            // Whoever sends it, also after it has been consumed.
            assert_eq!(numbers(world, queue), [1, 2, 4, 6]);
            let other = producer(world, queue);
            assert_eq!(sent(world, other, &with_id(7, "y")), "accepted");
            assert_eq!(numbers(world, queue), []);
        }
    });
}

#[test]
fn fs_47_a_retry_under_the_same_id_is_present_exactly_once() {
    for seed in 0..6 {
        each(|world| {
            let link = producer(world, "q");
            assert_eq!(sent(world, link, &with_id(0, "0")), "accepted");
            world.hold_store();
            for n in 1..5 {
                assert_eq!(sent(world, link, &with_id(n, &n.to_string())), "");
                // Again, before the first is safe: nothing is said of either.
                assert_eq!(sent(world, link, &with_id(n, &n.to_string())), "");
                if n == 2 {
                    world.flush();
                }
            }
            world.crash(seed);
            world.free_store();
            let link = producer(world, "q");
            for n in 0..6 {
                assert_eq!(sent(world, link, &with_id(n, &n.to_string())), "accepted", "{n}");
            }
            assert_eq!(numbers(world, "q"), [0, 1, 2, 3, 4, 5]);
        });
    }
}

#[test]
fn each_queue_remembers_so_many_for_so_long() {
    let settings = |config: &mut packhorse_broker::Config| {
        config.duplicate_ids.max = 2;
        config.duplicate_ids.keep_ms = 10_000;
    };
    each_with(settings, |world| {
        let link = producer(world, "q");
        for (n, id) in [(1, "x"), (2, "y"), (3, "x"), (4, "z"), (5, "x")] {
            assert_eq!(sent(world, link, &with_id(n, id)), "accepted");
            // A start knows their order by the millisecond.
            world.pass(1);
        }
        assert_eq!(numbers(world, "q"), [1, 2, 4, 5], "the third id made it forget the first");
        world.restart();
        let link = producer(world, "q");
        assert_eq!(sent(world, link, &with_id(6, "z")), "accepted");
        world.pass(10_000);
        assert_eq!(sent(world, link, &with_id(7, "z")), "accepted");
        assert_eq!(numbers(world, "q"), [7]);
    });
    each_with(
        |config| config.duplicate_ids.max = 0,
        |world| {
            let link = producer(world, "q");
            for n in 1..3 {
                assert_eq!(sent(world, link, &with_id(n, "x")), "accepted");
            }
            assert_eq!(numbers(world, "q"), [1, 2], "none is remembered");
        },
    );
}

#[test]
fn all_queues_together_remember_so_many() {
    each_with(
        |config| config.all_duplicate_ids = 64,
        |world| {
            // Few in one queue, many in others: those forget.
            let few = producer(world, "few");
            for n in 0..4 {
                assert_eq!(sent(world, few, &with_id(n, &n.to_string())), "accepted");
            }
            let many = ["m1", "m2", "m3", "m4"].map(|queue| producer(world, queue));
            for n in 0..200 {
                assert_eq!(sent(world, many[n as usize % 4], &with_id(n, &n.to_string())), "accepted");
            }
            for n in 0..4 {
                assert_eq!(sent(world, few, &with_id(n, &n.to_string())), "accepted");
            }
            assert_eq!(world.queue("few").counters.duplicates_total, 4);
            // The last first, for what is stored again makes others be forgotten.
            for n in (0..200).rev() {
                assert_eq!(sent(world, many[n as usize % 4], &with_id(n, &n.to_string())), "accepted");
            }
            let known: u64 = (1..=4).map(|n| world.queue(&format!("m{n}")).counters.duplicates_total).sum();
            assert!((1..=140).contains(&known), "{known} of 200 were remembered");
        },
    );
}

#[test]
fn in_transactions_an_id_counts_with_the_commit() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        for (n, fail) in [(1, true), (2, false), (3, false)] {
            let txn = declare(world, c, control);
            world[c].send_in(&txn, s, with_id(n, "x").bytes(), false);
            world.run();
            assert_eq!(discharge(world, c, control, &txn, fail), "accepted");
        }
        assert_eq!(numbers(world, "q"), [2]);
        // In doubt, over a crash.
        assert_eq!(start(world, c, control, b"x", flags::NONE), "declared");
        let txn = world[c].links[control].declared.last().unwrap().clone();
        world[c].send_in(&txn, s, with_id(4, "y").bytes(), false);
        world.run();
        assert_eq!(end(world, c, control, b"x", flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, c, control, b"x"), "xa 0");
        world.crash(2);
        let link = producer(world, "q");
        assert_eq!(sent(world, link, &with_id(5, "y")), "rejected packhorse:dedup-undecided");
        let (c, control) = controlled(world, "manager");
        assert_eq!(commit(world, c, control, b"x", false), "xa 0");
        world.crash(3);
        let link = producer(world, "q");
        assert_eq!(sent(world, link, &with_id(6, "y")), "accepted");
        assert_eq!(numbers(world, "q"), [4]);
    });
}

#[test]
fn large_ones_have_ids_and_others_are_told_what_is_wrong() {
    each(|world| {
        let link = producer(world, "q");
        for n in [0, 0] {
            assert_eq!(sent(world, link, &with_id(n, "large").length(2 << 20)), "accepted");
        }
        assert_eq!((world.counts("q").0, world.memory.large_files()), (1, 1));
        let wrong = Msg::new(1).sections(&section(|out| put_ulong(out, 1)));
        assert_eq!(sent(world, link, &wrong), "rejected amqp:invalid-field");
        assert_eq!(sent(world, link, &with_id(2, &"x".repeat(256))), "rejected amqp:invalid-field");
        assert_eq!(world.counts("q").0, 1);
    });
}
