//! An operator moves messages from one queue to another.

use crate::world::{Msg, World, each, each_with, number};
use packhorse_broker::{Command, QueueLimits, QueuePatch, Reply};

fn move_all(from: &str, to: &str) -> Command {
    move_some(from, to, u64::MAX)
}

fn move_some(from: &str, to: &str, limit: u64) -> Command {
    Command::QueueMove { from: from.into(), to: to.into(), limit }
}

fn numbers(taken: &[(u64, u32)]) -> Vec<u64> {
    taken.iter().map(|(number, _)| *number).collect()
}

/// Queues on both shards, if there are two.
fn declare(world: &mut World) {
    for name in ["q", "to"] {
        world.declare(name);
    }
}

#[test]
fn messages_keep_their_order_and_their_deliveries_and_the_answer_waits_for_the_records() {
    each(|world| {
        declare(world);
        world.fill("q", 0..600);
        world.fill("to", [1000]);
        let c = world.client("c");
        let r = world[c].receiver("q", 3);
        world.run();
        // 0 comes back seen, 1 unseen, 2 is still held.
        world[c].modify(r, 0, true, false, &[]);
        world[c].release(r, 1);
        world.run();
        world.hold_store();
        let id = world.command(0, move_all("q", "to"));
        world.run();
        assert_eq!(world.reply(id), None);
        world.free_store();
        world.run();
        assert_eq!(world.reply(id), Some(Reply::Moved { messages: 599 }));
        let counters = world.queue("q").counters;
        assert_eq!((counters.depth, counters.acquired, counters.moved_total), (1, 1, 599));
        assert_eq!(world.queue("to").counters.ready, 600);
        let taken = world.take("to");
        let expected = [1000, 0, 1].into_iter().chain(3..600);
        assert_eq!(numbers(&taken), expected.collect::<Vec<_>>());
        assert_eq!(taken[1], (0, 1), "the flag stays up");
        assert_eq!(taken[2], (1, 0));
        assert_eq!(world.queue("q").counters.depth, 1, "what was held stays");
    });
}

#[test]
fn attempts_begin_again() {
    each(|world| {
        for name in ["q", "to"] {
            world.put(name, QueuePatch { max_deliveries: Some(2), ..QueuePatch::default() });
        }
        world.fill("q", [1]);
        let c = world.client("c");
        let r = world[c].receiver("q", 1);
        world.run();
        world[c].modify(r, 0, true, false, &[("x-opt-mine", "kept")]);
        world.run();
        assert_eq!(world.ask(move_all("q", "to")), Reply::Moved { messages: 1 });
        let r = world[c].receiver("to", 10);
        world.run();
        assert_eq!(world[c].links[r].got[0].annotation("x-opt-mine").as_deref(), Some("kept"));
        world[c].modify(r, 0, true, false, &[]);
        world.run();
        assert_eq!(world[c].links[r].got.len(), 2, "it was the first attempt there");
        world[c].modify(r, 1, true, false, &[]);
        world.run();
        assert_eq!(world.queue("to").counters.dead_lettered_total, 1);
    });
}

#[test]
fn a_limit_takes_the_oldest_and_what_comes_later_stays() {
    each(|world| {
        declare(world);
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        for (n, priority) in [(0, 4), (1, 9), (2, 4), (3, 9)] {
            world[c].send(s, Msg::new(n).priority(priority).bytes());
        }
        world.run();
        assert_eq!(world.ask(move_some("q", "to", 3)), Reply::Moved { messages: 3 });
        assert_eq!(numbers(&world.take("to")), [1, 0, 2]);
        assert_eq!(numbers(&world.take("q")), [3]);
        assert_eq!(world.ask(move_some("q", "to", 3)), Reply::Moved { messages: 0 });
        assert_eq!(world.ask(move_some("q", "to", 0)), Reply::Moved { messages: 0 });
        world.fill("q", 0..1000);
        let id = world.command(0, move_all("q", "to"));
        world.turn();
        world[c].send(s, number(5000));
        world.run();
        assert_eq!(world.reply(id), Some(Reply::Moved { messages: 1000 }));
        assert_eq!(numbers(&world.take("to")), (0..1000).collect::<Vec<_>>());
        assert_eq!(numbers(&world.take("q")), [5000]);
    });
}

#[test]
fn what_is_not_persistent_and_what_is_large_goes_too() {
    each(|world| {
        declare(world);
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, Msg::new(1).durable(false).length(100).bytes());
        world[c].send(s, Msg::new(2).durable(true).length(2 << 20).bytes());
        world[c].send(s, Msg::new(3).durable(false).length(200_000).bytes());
        world.run();
        assert_eq!(world.ask(move_all("q", "to")), Reply::Moved { messages: 3 });
        assert_eq!(numbers(&world.take("to")), [1, 2, 3]);
        for queue in ["q", "to"] {
            assert_eq!(world.queue(queue).counters.depth, 0);
        }
    });
}

#[test]
fn a_dead_letter_that_is_moved_keeps_its_history() {
    each(|world| {
        world.declare("q");
        world.fill("q", [1]);
        let c = world.client("c");
        let r = world[c].receiver("q", 1);
        world.run();
        world[c].reject(r, 0, "app:broken", "no such customer");
        world.run();
        assert_eq!(world.ask(move_all("DLQ", "again")), Reply::Moved { messages: 1 });
        let r = world[c].receiver("again", 1);
        world.run();
        let got = &world[c].links[r].got[0];
        assert_eq!(got.annotation("x-opt-packhorse-reason").as_deref(), Some("rejected"));
        assert_eq!(got.annotation("x-opt-packhorse-original-address").as_deref(), Some("q"));
    });
}

#[test]
fn a_move_into_the_dead_letter_queue_ends_the_time_to_live() {
    each(|world| {
        for name in ["DLQ", "q", "to"] {
            world.declare(name);
        }
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        for n in 0..2 {
            world[c].send(s, Msg::new(n).ttl(1_000_000).bytes());
        }
        world.run();
        assert_eq!(world.ask(move_some("q", "DLQ", 1)), Reply::Moved { messages: 1 });
        assert_eq!(world.ask(move_some("q", "to", 1)), Reply::Moved { messages: 1 });
        let (d, t) = (world[c].receiver("DLQ", 1), world[c].receiver("to", 1));
        world.run();
        assert_eq!(world[c].links[d].got[0].header().ttl, None);
        assert!(world[c].links[t].got[0].header().ttl.is_some());
    });
}

#[test]
fn a_queue_to_move_to_is_created_as_an_attach_would_create_it() {
    each(|world| {
        world.fill("q", 0..5);
        assert_eq!(world.ask(move_all("q", "fresh")), Reply::Moved { messages: 5 });
        assert_eq!(world.queue("fresh").counters.ready, 5);
        assert_eq!(world.refused(move_all("nix", "q")), "queue-not-found");
        assert_eq!(world.refused(move_all("q", "q")), "same-queue");
        assert_eq!(world.refused(move_all("q", "a\nb")), "invalid-name");
    });
    each_with(
        |config| config.auto_create = false,
        |world| {
            world.declare("q");
            assert_eq!(world.refused(move_all("q", "fresh")), "queue-not-found");
            assert!(!world.exists("fresh"));
        },
    );
}

#[test]
fn a_full_queue_takes_no_more_and_the_rest_stays_in_its_place() {
    each(|world| {
        declare(world);
        let limits = QueueLimits { max_messages: Some(7), ..QueueLimits::default() };
        assert!(matches!(world.ask(Command::QueueChange { name: "to".into(), limits }), Reply::Changed { .. }));
        world.fill("q", 0..20);
        assert_eq!(world.ask(move_all("q", "to")), Reply::Moved { messages: 7 });
        assert_eq!(world.refused(move_all("q", "to")), "queue-full");
        assert_eq!(numbers(&world.take("to")), (0..7).collect::<Vec<_>>());
        assert_eq!(numbers(&world.take("q")), (7..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_move_is_answered_once_when_a_queue_goes_or_the_broker_stops_and_nothing_is_lost() {
    for turns in 0..6 {
        for victim in ["q", "to", ""] {
            each(|world| {
                declare(world);
                world.fill("q", 0..2000);
                let id = world.command(0, move_all("q", "to"));
                for _ in 0..turns {
                    world.turn();
                }
                let gone = if victim.is_empty() {
                    world.stop();
                    None
                } else {
                    Some(world.command(0, Command::QueueDelete { name: victim.into(), force: true, by: None }))
                };
                world.run();
                if let Some(gone) = gone {
                    assert!(matches!(world.reply(gone), Some(Reply::Deleted { .. })));
                }
                let reply = world.reply(id).expect("it is answered");
                let moved = match &reply {
                    Reply::Moved { messages } => *messages,
                    Reply::Refused(refusal) => {
                        assert!(["queue-not-found", "queue-full", "broker-stopping"].contains(&refusal.code));
                        0
                    }
                    other => panic!("{other:?}"),
                };
                match victim {
                    "q" => assert!(world.queue("to").counters.ready >= moved),
                    "to" => {
                        let left = world.queue("q").counters;
                        assert_eq!((left.ready, left.ready + left.moved_total), (left.depth, 2000));
                        // A queue of this name that came after it is another one.
                        let taken = world.take("q");
                        assert!(taken.iter().zip(taken.iter().skip(1)).all(|(a, b)| a < b));
                    }
                    _ => {
                        world.restart();
                        let mut all = [numbers(&world.take("q")), numbers(&world.take("to"))].concat();
                        all.sort_unstable();
                        assert_eq!(all, (0..2000).collect::<Vec<_>>());
                    }
                }
            });
        }
    }
}

#[test]
fn a_moved_message_is_never_in_two_places_nor_in_none_over_a_crash() {
    for seed in 0..12 {
        each(|world| {
            declare(world);
            world.fill("q", 0..300);
            world.hold_store();
            let id = world.command(0, move_all("q", "to"));
            for step in 0..seed {
                world.turn();
                if step % 3 == 0 {
                    world.memory.flush(packhorse_model::ShardId(0), 1);
                }
            }
            let _ = id;
            world.crash(seed);
            world.free_store();
            let (left, moved) = (world.take("q"), world.take("to"));
            let (left, moved) = (numbers(&left), numbers(&moved));
            assert_eq!(moved, (0..moved.len() as u64).collect::<Vec<_>>(), "the oldest, in order");
            assert_eq!(left, (moved.len() as u64..300).collect::<Vec<_>>());
        });
    }
}

/// A message that no store has is there at once, those before it when their records are durable.
#[test]
fn one_that_is_not_persistent_does_not_overtake_those_that_are() {
    each(|world| {
        declare(world);
        let c = world.client("c");
        let s = world[c].sender("q");
        let r = world[c].receiver("to", 10);
        world.run();
        for n in 0..4 {
            world[c].send(s, Msg::new(n).durable(n != 3).bytes());
        }
        world.run();
        world.hold_store();
        let id = world.command(0, move_all("q", "to"));
        world.run();
        assert_eq!(world[c].links[r].got.len(), 0, "the last one waits for those before it");
        world.free_store();
        world.run();
        assert_eq!(world.reply(id), Some(Reply::Moved { messages: 4 }));
        assert_eq!(world[c].numbers(r), [0, 1, 2, 3]);
    });
}
