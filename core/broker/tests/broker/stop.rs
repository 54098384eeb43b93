//! The orderly stop: peers are told, everything is durable, then the shards say so (`spec/operate.md`, "Start").

use crate::world::{World, each, number};
use packhorse_broker::{Command, Reply};

#[test]
fn peers_are_told_and_everything_is_durable_first() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 10));
        let d = world.client("d");
        world.run();
        world[c].send(s, number(1));
        world.run();
        world.hold_store();
        world[c].send(s, number(2));
        world[c].accept(r, 0);
        world.run();
        world.stop();
        world.run();
        for client in [c, d] {
            assert_eq!(world[client].closed.as_deref(), Some("amqp:connection:forced"));
        }
        let late = world.pipe(0, true);
        world.run();
        assert!(world.pipes[late].closed, "nobody new is let in");
        world.pass(3_000);
        world.flush();
        world.flush();
        let mut stopped = world.stopped.clone();
        stopped.sort_unstable();
        stopped.dedup();
        assert_eq!(stopped.len(), usize::from(world.kind.shards));
        assert_eq!(stopped.len(), world.stopped.len(), "each says it once");
        world.free_store();
        world.restart();
        assert_eq!(world.counts("q").0, 1);
    });
}

#[test]
fn not_before_what_was_submitted_is_durable() {
    each(|world| {
        world.declare("a");
        world.declare("q");
        let c = world.client("c");
        let s = world[c].sender("q");
        let t = world[c].sender("a");
        world.run();
        world.hold_store();
        world[c].send(s, number(1));
        world[c].send_as(t, number(1), true, 0);
        world.run();
        world.stop();
        world.run();
        world.pass(10_000);
        assert!(world.stopped.is_empty(), "a settled message without an answer counts too");
        world.flush();
        assert_eq!(world.stopped.len(), usize::from(world.kind.shards));
    });
}

#[test]
fn a_peer_that_does_not_answer_is_not_waited_for() {
    each(|world| {
        let p = world.peer_open("silent");
        let fresh = world.peer();
        world.run();
        world.stop();
        world.run();
        assert_eq!(world[p].said(), ["close amqp:connection:forced"]);
        world.pass(2_500);
        assert_eq!(world.stopped.len(), usize::from(world.kind.shards));
        assert!(world.peer_pipe(fresh).closed);
    });
}

#[test]
fn with_nobody_there_it_is_done_at_once() {
    each(|world| {
        world.stop();
        world.run();
        assert_eq!(world.stopped.len(), usize::from(world.kind.shards));
    });
}

#[test]
fn commands_are_answered_to_the_end() {
    fn status(world: &mut World) -> bool {
        matches!(world.ask(Command::Status), Reply::Shard(_))
    }
    each(|world| {
        world.client("c");
        world.stop();
        assert!(status(world));
        world.pass(3_000);
        assert!(status(world));
    });
}
