//! An operator empties a queue of what nobody holds.

use crate::world::{each, number};
use packhorse_amqp10::codec::{DeliveryState, Rejected};
use packhorse_broker::{Command, OnFull, QueueLimits, QueuePatch, RefusalKind, Reply};

fn purge(name: &str) -> Command {
    Command::QueuePurge { name: name.into(), by: None }
}

#[test]
fn a_purge_takes_what_nobody_holds_and_its_answer_waits_for_the_record() {
    each(|world| {
        world.fill("q", 0..10);
        let c = world.client("c");
        let r = world[c].receiver("q", 3);
        world.run();
        world.hold_store();
        let id = world.command(0, purge("q"));
        world.run();
        assert_eq!(world.reply(id), None);
        world.flush();
        assert_eq!(world.reply(id), Some(Reply::Purged { messages: 7 }));
        world.crash(3);
        world.free_store();
        let _ = (c, r);
        let c = world.client("again");
        let r = world[c].receiver("q", 100);
        world.run();
        assert_eq!(world[c].numbers(r), [0, 1, 2], "what was held comes back, what was purged does not");
    });
}

#[test]
fn a_purge_of_many_goes_over_turns_and_leaves_what_comes_later() {
    each(|world| {
        world.fill("q", 0..6000);
        world.hold_store();
        let id = world.command(0, purge("q"));
        world.turn();
        let c = world.client("late");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, number(7000));
        world.run();
        world.free_store();
        world.run();
        assert_eq!(world.reply(id), Some(Reply::Purged { messages: 6000 }));
        let queue = world.queue("q").counters;
        assert_eq!((queue.ready, queue.purged_total), (1, 6000));
        assert_eq!(world.ask(purge("q")), Reply::Purged { messages: 1 });
        assert_eq!(world.ask(purge("q")), Reply::Purged { messages: 0 });
    });
}

#[test]
fn a_purge_is_answered_once_when_its_queue_goes_or_the_broker_stops() {
    each(|world| {
        let Reply::Refused(refusal) = world.ask(purge("nix")) else { panic!("there is none") };
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::NotFound, "queue-not-found"));
        world.fill("q", 0..6000);
        let id = world.command(0, purge("q"));
        world.turn();
        let gone = world.command(0, Command::QueueDelete { name: "q".into(), force: true, by: None });
        world.run();
        assert!(matches!(world.reply(gone), Some(Reply::Deleted { .. })));
        match world.reply(id) {
            Some(Reply::Purged { messages: 6000 }) => {}
            Some(Reply::Refused(refusal)) => assert_eq!(refusal.code, "queue-not-found"),
            other => panic!("{other:?}"),
        }
        world.stop();
        let late = world.command(0, purge("q"));
        world.run();
        let Some(Reply::Refused(refusal)) = world.reply(late) else { panic!("it is stopping") };
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::Unavailable, "broker-stopping"));
    });
}

/// A rejected message waits for room in the dead-letter queue, and its consumer for the answer, which comes when the message is gone
/// another way.
#[test]
fn who_waits_for_a_dead_letter_that_is_purged_gets_an_answer() {
    each(|world| {
        let limits = QueueLimits { max_messages: None, max_bytes: Some(1), on_full: OnFull::Reject };
        world.put("DLQ", QueuePatch { limits: Some(limits), ..QueuePatch::default() });
        world.fill("q", [0]);
        let c = world.client("c");
        let r = world[c].receiver("q", 1);
        world.run();
        world[c].decide(r, 0, Some(DeliveryState::Rejected(Rejected::default())), false);
        world.run();
        assert_eq!(world.queue("q").counters.scheduled, 1);
        assert!(!world[c].links[r].got[0].settled_later, "it is not decided what becomes of it");
        assert_eq!(world.ask(purge("q")), Reply::Purged { messages: 1 });
        assert!(world[c].links[r].got[0].settled_later);
        world[c].detach(r, true);
        world.run();
        assert!(world[c].links[r].ended.is_some());
    });
}
