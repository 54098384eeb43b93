//! Operators' commands (`spec/operate.md`, "HTTP", rows `/status` and `/queues`).

use crate::world::{World, each, number};
use packhorse_broker::{Command, QueuePatch, Refusal, RefusalKind, Reply};

fn refusal(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("refused: {other:?}"),
    }
}

fn delete(world: &mut World, name: &str, force: bool) -> Reply {
    world.ask(Command::QueueDelete { name: name.into(), force, by: None })
}

#[test]
fn a_queue_is_created_once_and_the_answer_waits_for_its_record() {
    each(|world| {
        world.hold_store();
        let patch = QueuePatch { max_deliveries: Some(3), ..QueuePatch::default() };
        let put = Command::QueuePut { name: "q".into(), patch: patch.clone() };
        let last = usize::from(world.kind.shards) - 1;
        let (a, b) = (world.command(0, put.clone()), world.command(last, put.clone()));
        world.run();
        assert!(world.reply(a).is_none() && world.reply(b).is_none());
        world.flush();
        let mut new = 0;
        for id in [a, b] {
            match world.reply(id) {
                Some(Reply::Created { queue, new: is_new }) => {
                    assert_eq!(queue.settings.delivery_limit, 3);
                    new += usize::from(is_new);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(new, 1, "one of them has made it");
        world.free_store();
        assert!(matches!(world.put("q", patch), Reply::Created { new: false, .. }));
    });
}

#[test]
fn creations_under_way_with_other_settings_conflict() {
    each(|world| {
        world.hold_store();
        let put = |limit| Command::QueuePut {
            name: "q".into(),
            patch: QueuePatch { max_deliveries: Some(limit), ..QueuePatch::default() },
        };
        let (a, b) = (world.command(0, put(3)), world.command(0, put(4)));
        world.run();
        world.free_store();
        assert!(matches!(world.reply(a), Some(Reply::Created { new: true, .. })));
        let refusal = refusal(world.reply(b).expect("an answer"));
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::Conflict, "queue-exists"));
    });
}

#[test]
fn other_arguments_on_an_existing_queue_are_a_conflict_that_names_the_difference() {
    each(|world| {
        world.declare("q");
        for (patch, words) in [
            (QueuePatch { max_deliveries: Some(3), ..QueuePatch::default() }, "max_deliveries is 10, asked for 3"),
            (QueuePatch { default_durable: Some(false), ..QueuePatch::default() }, "default_durable is true"),
            (QueuePatch { dead_letter: Some("d".into()), ..QueuePatch::default() }, "dead_letter is none, asked for d"),
        ] {
            let refusal = refusal(world.put("q", patch));
            assert_eq!((refusal.kind, refusal.code), (RefusalKind::Conflict, "queue-exists"));
            assert!(refusal.detail.contains(words), "{}", refusal.detail);
        }
    });
}

#[test]
fn names_have_rules() {
    each(|world| {
        for name in ["", "a\tb", &"x".repeat(256)] {
            let refusal = refusal(world.put(name, QueuePatch::default()));
            assert_eq!((refusal.kind, refusal.code), (RefusalKind::Invalid, "invalid-name"));
        }
        let patch = QueuePatch { dead_letter: Some("\n".into()), ..QueuePatch::default() };
        assert_eq!(refusal(world.put("q", patch)).kind, RefusalKind::Invalid);
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    each(|world| {
        let get = refusal(world.ask(Command::QueueGet { name: "nix".into() }));
        let gone = refusal(delete(world, "nix", true));
        for refusal in [get, gone] {
            assert_eq!((refusal.kind, refusal.code), (RefusalKind::NotFound, "queue-not-found"));
            assert!(refusal.detail.contains("nix"));
        }
    });
}

#[test]
fn lists_go_by_pages_over_the_shards() {
    each(|world| {
        let names: Vec<String> = (0..25).map(|n| format!("q{n:02}")).collect();
        for name in names.iter().rev() {
            world.declare(name);
        }
        let mut all = Vec::new();
        for shard in 0..usize::from(world.kind.shards) {
            let mut after = None;
            loop {
                let Reply::Queues(page) = world.ask_at(shard, Command::QueueList { after: after.clone(), limit: 4 })
                else {
                    panic!("a page")
                };
                assert!(page.queues.len() <= 4);
                assert!(page.queues.iter().all(|queue| usize::from(queue.shard) == shard));
                assert!(page.queues.is_sorted_by(|a, b| a.name < b.name));
                after = page.queues.last().map(|queue| queue.name.clone());
                all.extend(page.queues.into_iter().map(|queue| queue.name));
                if !page.more {
                    break;
                }
            }
        }
        all.sort();
        assert_eq!(all, names);
    });
}

#[test]
fn a_queue_in_use_is_deleted_only_by_force() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("full");
        world[c].receiver("read", 1);
        world.run();
        world[c].send(s, number(1));
        world.run();
        for (name, words) in [("full", "1 messages"), ("read", "1 consumers")] {
            let refusal = refusal(delete(world, name, false));
            assert_eq!((refusal.kind, refusal.code), (RefusalKind::Conflict, "queue-in-use"));
            assert!(refusal.detail.contains(words), "{}", refusal.detail);
        }
        assert_eq!(delete(world, "full", true), Reply::Deleted { messages: 1 });
        assert_eq!(delete(world, "read", true), Reply::Deleted { messages: 0 });
    });
}

#[test]
fn deleting_ends_the_links_and_waits_for_its_record() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 5));
        let d = world.client("d");
        let (t, u) = (world[d].sender("q"), world[d].receiver("q", 5));
        world.run();
        for n in 0..4 {
            world[c].send(s, number(n));
        }
        world.run();
        world.hold_store();
        let id = world.command(0, Command::QueueDelete { name: "q".into(), force: true, by: None });
        world.run();
        assert!(world.reply(id).is_none());
        world.free_store();
        assert_eq!(world.reply(id), Some(Reply::Deleted { messages: 4 }));
        for (client, link) in [(c, s), (c, r), (d, t), (d, u)] {
            assert_eq!(world[client].links[link].ended.as_deref(), Some("amqp:resource-deleted"));
        }
        assert!(matches!(world.ask(Command::QueueGet { name: "q".into() }), Reply::Refused(_)));
        world.restart();
        assert!(matches!(world.ask(Command::QueueGet { name: "q".into() }), Reply::Refused(_)));
    });
}

#[test]
fn a_name_declared_again_is_another_queue() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, number(1));
        world.run();
        let first = world.queue("q").id;
        delete(world, "q", true);
        let r = world[c].receiver("q", 5);
        world.run();
        assert!(world[c].links[r].attached);
        assert_ne!(world.queue("q").id, first);
        assert!(world[c].numbers(r).is_empty());
        let t = world[c].sender("q");
        world.run();
        world[c].send(t, number(2));
        world.run();
        assert_eq!(world[c].numbers(r), [2]);
        world.restart();
        assert_eq!(world.queue("q").counters.depth, 1);
    });
}

#[test]
fn deleting_while_messages_and_attaches_are_under_way_answers_everybody() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world.hold_store();
        world[c].send(s, number(1));
        world.run();
        let id = world.command(0, Command::QueueDelete { name: "q".into(), force: true, by: None });
        world.turn();
        world[c].send(s, number(2));
        let d = world.client("d");
        let r = world[d].receiver("q", 1);
        world.run();
        world.free_store();
        assert!(matches!(world.reply(id), Some(Reply::Deleted { .. })));
        assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:resource-deleted"));
        let diary = &world[d].links[r];
        assert!(diary.attached || diary.ended.is_some(), "an answer in any case");
    });
}

#[test]
fn counters_right_after_each_step() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 3));
        world.run();
        for n in 0..5 {
            world[c].send(s, number(n));
        }
        world.run();
        let counters = world.queue("q").counters;
        assert_eq!((counters.ready, counters.acquired, counters.depth), (2, 3, 5));
        assert_eq!((counters.consumers, counters.credit, counters.enqueued_total), (1, 0, 5));
        assert_eq!(counters.bytes, 5 * 21);
        world[c].accept(r, 0);
        world[c].release(r, 1);
        world[c].modify(r, 2, true, false, &[]);
        world.run();
        let counters = world.queue("q").counters;
        assert_eq!((counters.ready, counters.acquired, counters.depth), (4, 0, 4));
        assert_eq!((counters.acknowledged_total, counters.redelivered_total), (1, 0));
        assert_eq!(counters.bytes, 4 * 21);
        world[c].credit(r, 4);
        world.run();
        assert_eq!(world.queue("q").counters.redelivered_total, 1, "it counts when it is delivered again");
        world[c].reject(r, 3, "x", "y");
        world.run();
        let counters = world.queue("q").counters;
        assert_eq!((counters.acquired, counters.depth, counters.dead_lettered_total), (3, 3, 1));
        assert_eq!(world.queue("DLQ").counters.enqueued_total, 1);
    });
}

#[test]
fn the_oldest_entrys_age() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        assert_eq!(world.queue("q").oldest_age_ms, None);
        world[c].send(s, number(1));
        world.run();
        world.pass(7_000);
        assert_eq!(world.queue("q").oldest_age_ms, Some(7_000));
    });
}
