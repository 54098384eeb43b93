//! The orderly stop: peers are told, everything is durable, then the shards say so (`spec/operate.md`, "Start").

use crate::coordinator::{commit, controlled, declare, end, prepare, start};
use crate::world::{World, each, number};
use packhorse_amqp10::codec::Outcome;
use packhorse_amqp10::transaction::flags;
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

#[test]
fn what_is_open_is_rolled_back_and_what_is_prepared_stays() {
    each(|world| {
        world.fill("q", 0..5);
        let (c, control) = controlled(world, "c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 2));
        world.run();
        let local = declare(world, c, control);
        world[c].decide_in(&local, r, 0, Some(Outcome::Accepted), true);
        world[c].send_in(&local, s, number(10), false);
        world.run();
        let (d, control) = controlled(world, "d");
        let (s, r) = (world[d].sender("q"), world[d].receiver("q", 1));
        world.run();
        assert_eq!(start(world, d, control, b"X", flags::NONE), "declared");
        let branch = world[d].links[control].declared.last().unwrap().clone();
        world[d].decide_in(&branch, r, 0, Some(Outcome::Accepted), true);
        world[d].send_in(&branch, s, number(11), false);
        world.run();
        assert_eq!(end(world, d, control, b"X", flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, d, control, b"X"), "xa 0");
        // Nobody works in this branch any more, so only the end of its connection undoes it; and its peer does not answer.
        let (e, control) = controlled(world, "e");
        let r = world[e].receiver("q", 1);
        world.run();
        assert_eq!(start(world, e, control, b"Y", flags::NONE), "declared");
        let branch = world[e].links[control].declared.last().unwrap().clone();
        world[e].decide_in(&branch, r, 0, Some(Outcome::Accepted), true);
        world.run();
        assert_eq!(end(world, e, control, b"Y", flags::SUCCESS), "xa 0");
        world.pipe_of(e).room = 0;
        world.stop();
        world.run();
        assert!(world.stopped.len() < usize::from(world.kind.shards));
        world.pass(3_000);
        assert_eq!(world.stopped.len(), usize::from(world.kind.shards));
        world.restart();
        assert_eq!(world.queue("q").counters.prepared_in, 1);
        // All may have been delivered, for they are marked; what transactions had acknowledged was.
        assert_eq!(world.take("q"), [(0, 2), (1, 1), (3, 2), (4, 1)]);
        let (m, control) = controlled(world, "m");
        assert_eq!(commit(world, m, control, b"X", false), "xa 0");
        assert_eq!(world.take("q"), [(11, 0)]);
    });
}
