//! Producers that number their messages: what is sent twice is stored once, over lost connections and crashes, as long as the
//! broker remembers; afterwards it says so, and stores nothing.

use crate::world::{C, Msg, World, each, number};
use packhorse_amqp10::producer::Opening;
use packhorse_broker::{Command, QueuePatch};
use packhorse_model::{OnFull, QueueLimits};

pub(crate) const LOST: &str = "rejected packhorse:dedup-lost";

pub(crate) fn opening(lowest: u64, next: u64) -> Opening {
    Opening { producer: [7; 16], lowest, next }
}

/// A client, and its link as this producer; the answer has come.
pub(crate) fn attached(world: &mut World, name: &str, address: &str, lowest: u64, next: u64) -> (C, usize) {
    let c = world.client(name);
    let s = world[c].numbered_sender(address, opening(lowest, next));
    world.run();
    assert!(world[c].links[s].attached, "{:?}", world[c].links[s].ended);
    (c, s)
}

/// Sends a message whose number in the world is its number; what the broker said of it.
pub(crate) fn sent(world: &mut World, (c, s): (C, usize), n: u64, lowest: u64) -> String {
    let token = world[c].send_numbered(s, number(n), n, lowest);
    world.run();
    let outcomes = &world[c].links[s].outcomes;
    outcomes.iter().find(|(of, _)| *of == token).map(|(_, state)| state.clone()).unwrap_or_default()
}

fn floor(world: &World, (c, s): (C, usize)) -> Option<u64> {
    world[c].links[s].floor
}

pub(crate) fn numbers(world: &mut World, queue: &str) -> Vec<u64> {
    world.take(queue).into_iter().map(|(n, _)| n).collect()
}

#[test]
fn a_message_that_is_sent_again_after_a_lost_connection_is_stored_once() {
    each(|world| {
        for address in ["a", "b"] {
            let link = attached(world, "first", address, 0, 0);
            assert_eq!(floor(world, link), Some(0));
            for n in 0..3 {
                assert_eq!(sent(world, link, n, 0), "accepted");
            }
            world.kill(link.0);
            world.run();
            // Confirmations of 1 and 2 were lost; 3 is new.
            let link = attached(world, "again", address, 1, 3);
            assert_eq!(floor(world, link), Some(1));
            for n in [1, 2, 3, 2] {
                assert_eq!(sent(world, link, n, 1), "accepted");
            }
            assert_eq!(numbers(world, address), [0, 1, 2, 3]);
        }
    });
}

#[test]
fn fs_47_a_retry_under_the_same_number_is_present_exactly_once() {
    for seed in 0..6 {
        each(|world| {
            // Not flushed: absent, or there; visible and not confirmed: there. In both cases once after the retry.
            let link = attached(world, "first", "q", 0, 0);
            assert_eq!(sent(world, link, 0, 0), "accepted");
            world.hold_store();
            for n in 1..5 {
                assert_eq!(sent(world, link, n, 1), "", "nothing is confirmed before it is safe");
                if n == 2 {
                    world.flush();
                }
            }
            world.crash(seed);
            world.free_store();
            let link = attached(world, "again", "q", 1, 5);
            assert_eq!(floor(world, link), Some(1));
            for n in 1..6 {
                assert_eq!(sent(world, link, n, 1), "accepted", "{n}");
            }
            assert_eq!(numbers(world, "q"), [0, 1, 2, 3, 4, 5]);
        });
    }
}

#[test]
fn fs_47_a_retry_while_the_first_is_not_safe_is_confirmed_with_it() {
    each(|world| {
        // The client has given its connection up; the broker has not noticed.
        let first = attached(world, "first", "q", 0, 0);
        let link = attached(world, "again", "q", 0, 1);
        world.hold_store();
        assert_eq!(sent(world, first, 0, 0), "");
        assert_eq!(sent(world, link, 0, 0), "", "the first one is not safe yet");
        world.free_store();
        world.run();
        assert_eq!(world[link.0].confirmed(link.1), [0]);
        assert_eq!(numbers(world, "q"), [0]);
    });
}

#[test]
fn an_attach_is_answered_when_the_producer_would_be_known_after_a_crash() {
    each(|world| {
        world.declare("q");
        world.hold_store();
        let c = world.client("c");
        let s = world[c].numbered_sender("q", opening(0, 0));
        world.run();
        assert!(!world[c].links[s].attached);
        world.free_store();
        world.run();
        assert!(world[c].links[s].attached);
        // Its first message dies with the broker, which knows that it has none.
        world.hold_store();
        assert_eq!(sent(world, (c, s), 0, 0), "");
        world.crash(0);
        world.free_store();
        let link = attached(world, "again", "q", 0, 1);
        assert_eq!(sent(world, link, 0, 0), "accepted");
        assert_eq!(numbers(world, "q"), [0]);
    });
}

#[test]
fn one_that_was_forgotten_is_told_so_and_nothing_is_stored() {
    each(|world| {
        let link = attached(world, "first", "q", 0, 0);
        assert_eq!(sent(world, link, 0, 0), "accepted");
        world.kill(link.0);
        world.pass(599_000);
        let link = attached(world, "again", "q", 0, 1);
        assert_eq!(
            (floor(world, link), sent(world, link, 0, 0)),
            (Some(0), "accepted".into()),
            "it is known for 10 minutes"
        );
        world.kill(link.0);
        world.pass(600_001);
        let link = attached(world, "late", "q", 0, 1);
        assert_eq!((floor(world, link), sent(world, link, 0, 0)), (Some(1), LOST.into()));
        // What it sends for the first time is taken, and known.
        assert_eq!([1, 1].map(|n| sent(world, link, n, 0)), ["accepted", "accepted"]);
        // The same for a link that stands all the time.
        world.pass(600_001);
        assert_eq!([2, 2, 1].map(|n| sent(world, link, n, 1)), ["accepted", "accepted", LOST]);
        assert_eq!(numbers(world, "q"), [0, 1, 2]);
        // A start forgets as well.
        world.kill(link.0);
        world.pass(600_001);
        world.restart();
        let link = attached(world, "last", "q", 2, 3);
        assert_eq!((floor(world, link), sent(world, link, 2, 2)), (Some(3), LOST.into()));
        assert_eq!(numbers(world, "q"), []);
    });
}

#[test]
fn a_queue_takes_its_producers_with_it_and_a_refusal_keeps_no_number() {
    each(|world| {
        let limits = QueueLimits { max_messages: Some(1), max_bytes: None, on_full: OnFull::Reject };
        let limit = QueuePatch { limits: Some(limits), ..QueuePatch::default() };
        world.put("q", limit);
        let link = attached(world, "c", "q", 0, 0);
        assert_eq!(sent(world, link, 0, 0), "accepted");
        assert_eq!(sent(world, link, 1, 0), "rejected amqp:resource-limit-exceeded");
        assert_eq!(numbers(world, "q"), [0]);
        assert_eq!([1, 0].map(|n| sent(world, link, n, 0)), ["accepted", "accepted"], "taken now; taken before");
        assert_eq!(numbers(world, "q"), [1]);
        world.ask(Command::QueueDelete { name: "q".into(), force: false, by: None });
        world.run();
        let link = attached(world, "d", "q", 0, 2);
        assert_eq!(
            (floor(world, link), sent(world, link, 1, 0)),
            (Some(2), LOST.into()),
            "another queue knows nothing"
        );
    });
}

#[test]
fn large_and_volatile_messages_have_numbers_too() {
    each(|world| {
        let link = attached(world, "c", "q", 0, 0);
        let (c, s) = link;
        // What follows a large one waits for it, with its number.
        for _ in 0..2 {
            world[c].send_numbered(s, Msg::new(0).length(2 << 20).bytes(), 0, 0);
            world[c].send_numbered(s, Msg::new(1).durable(false).bytes(), 1, 0);
            world.run();
        }
        let mut confirmed = world[c].confirmed(s);
        confirmed.sort_unstable();
        assert_eq!(confirmed, [0, 1, 2, 3]);
        let (files, counts) = (world.memory.large_files(), world.counts("q"));
        assert_eq!((files, counts.0), (1, 2));
        // A crash loses what is not persistent, and its number.
        world.crash(1);
        let link = attached(world, "again", "q", 0, 2);
        assert_eq!([1].map(|n| sent(world, link, n, 0)), ["accepted"]);
        world[link.0].send_numbered(link.1, Msg::new(0).length(2 << 20).bytes(), 0, 0);
        world.run();
        assert_eq!((world.counts("q").0, world.memory.large_files()), (2, 1));
    });
}

#[test]
fn a_broken_link_leaves_its_numbers_to_what_it_sent() {
    each(|world| {
        world.hold_store();
        world.free_store();
        let (c, s) = attached(world, "c", "q", 0, 0);
        world.hold_store();
        world[c].send_numbered(s, Msg::new(0).length(2 << 20).bytes(), 0, 0);
        world[c].send_numbered(s, number(1), 1, 0);
        world.run();
        world.kill(c);
        world.run();
        world.free_store();
        world.run();
        let link = attached(world, "again", "q", 0, 2);
        assert_eq!(sent(world, link, 1, 0), "accepted");
        assert_eq!(numbers(world, "q"), [0, 1]);
    });
}

#[test]
fn others_are_told_what_is_wrong() {
    each(|world| {
        let link = attached(world, "c", "q", 0, 0);
        let (c, s) = link;
        world[c].send(s, number(1));
        world.run();
        assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:invalid-field"), "a delivery-tag of another kind");
        let s = world[c].numbered_sender("q", opening(0, 0));
        world.run();
        world[c].send_numbered(s, number(1), 1, 2);
        world.run();
        assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:invalid-field"), "confirmed, and sent again");
        let s = world[c].numbered_sender("q", opening(1, 0));
        world.run();
        assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:invalid-field"));
        assert_eq!(numbers(world, "q"), []);
    });
}
