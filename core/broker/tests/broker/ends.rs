//! Ends of links, sessions and connections: what was said before counts, what is held goes back (`spec/amqp10.md`, sequence 10;
//! `spec/entry.md`, "Redelivery").

use crate::world::{C, Msg, World, each, number};
use packhorse_amqp10::codec::{DeliveryState, Error, TransactionalState};

/// A client with a sender (link 0) and a receiver (link 1) on `q`, and `count` messages in its hands.
fn holding(world: &mut World, count: u64) -> C {
    let c = world.client("c");
    let s = world[c].sender("q");
    world[c].receiver("q", 100);
    world.run();
    for n in 1..=count {
        world[c].send(s, number(n));
    }
    world.run();
    assert_eq!(world[c].links[1].got.len() as u64, count);
    c
}

/// Number and delivery-count of everything in `q`, given to a new consumer.
fn rest(world: &mut World) -> Vec<(u64, u32)> {
    let c = world.client("rest");
    let r = world[c].receiver("q", 1000);
    world.run();
    let all = world[c].links[r].got.iter().map(|got| (got.number(), got.deliveries())).collect();
    world[c].close();
    world.run();
    all
}

#[test]
fn a_detached_link_returns_what_it_holds_unseen() {
    for closed in [true, false] {
        each(|world| {
            let c = holding(world, 3);
            world[c].accept(1, 1);
            world[c].detach(1, closed);
            world.run();
            assert_eq!(world[c].links[1].ended.as_deref(), Some(""));
            assert_eq!(world.queue("q").counters.consumers, 0);
            assert_eq!(rest(world), [(1, 0), (3, 0)]);
        });
    }
}

#[test]
fn a_link_that_we_end_ourselves_returns_what_it_holds_as_seen() {
    each(|world| {
        let c = holding(world, 3);
        // A transaction that nobody knows ends the link; the application may have worked on all of them.
        let unknown = DeliveryState::Transactional(TransactionalState { txn_id: b"none", outcome: None });
        world[c].decide(1, 1, Some(unknown), true);
        world.run();
        assert_eq!(world[c].links[1].ended.as_deref(), Some("amqp:transaction:unknown-id"));
        assert_eq!(rest(world), [(1, 1), (2, 1), (3, 1)]);
    });
}

/// A client that ends in error has not said what it saw (simulator, seeds 6360, 6793, 7490: its broker was silent for too long).
#[test]
fn what_a_client_ends_with_an_error_returns_what_it_holds_as_seen() {
    let error = Error { condition: "amqp:resource-limit-exceeded", description: None, info: None };
    for how in 0..3 {
        each(|world| {
            let c = holding(world, 2);
            let client = &mut world[c];
            let (link, session) = (client.links[1].id, client.sessions[0]);
            match how {
                0 => client.engine.detach(link, true, Some(&error)).unwrap(),
                1 => client.engine.end(session, Some(&error)).unwrap(),
                _ => client.engine.close(Some(&error), 0).unwrap(),
            }
            world.run();
            assert_eq!(rest(world), [(1, 1), (2, 1)], "way {how}");
        });
    }
}

#[test]
fn an_ended_session_returns_what_it_holds_unseen() {
    each(|world| {
        let c = holding(world, 3);
        world[c].accept(1, 0);
        world[c].end(0);
        world.run();
        assert_eq!(world[c].session_ends, [(0, String::new())]);
        assert_eq!(world.queue("q").counters.consumers, 0);
        assert_eq!(rest(world), [(2, 0), (3, 0)]);
    });
}

#[test]
fn sequence_10_acks_right_before_close_all_count() {
    each(|world| {
        let c = holding(world, 6);
        for at in 0..6 {
            world[c].accept(1, at);
        }
        world[c].close();
        world.run();
        assert_eq!(world[c].closed.as_deref(), Some(""));
        assert_eq!(world.counts("q"), (0, 0, 6, 6));
    });
}

#[test]
fn everything_before_a_fin_counts() {
    each(|world| {
        let f = holding(world, 4);
        world[f].detach(1, true);
        let p = world.peer_open("p");
        world[p].attach_receiver("r", 0, "q");
        world[p].attach_sender("s", 1, "q");
        world[p].flow(0, 0, 10, false);
        world.run();
        world[p].dispose(0, 2, Some(DeliveryState::Accepted), true);
        world[p].transfer(1, 0, &number(9));
        world.turn();
        world.fin(p);
        world.run();
        assert_eq!(rest(world), [(4, 1), (9, 0)]);
    });
}

#[test]
fn after_an_abrupt_disconnect_deliveries_count_and_attempts_for_the_oldest() {
    each(|world| {
        // Of a window of three, the one it was working on is the one to blame.
        let mut expected = vec![(1, 0), (2, 0), (3, 0)];
        let c = world.client("filler");
        let s = world[c].sender("q");
        world.run();
        for n in 1..=3 {
            world[c].send(s, number(n));
        }
        world.run();
        for round in 1..=9u32 {
            let c = world.client("crashing");
            let r = world[c].receiver("q", 10);
            world.run();
            assert_eq!(world[c].links[r].got.len(), 3);
            world.kill(c);
            world.run();
            expected.iter_mut().for_each(|(_, deliveries)| *deliveries = round);
        }
        assert_eq!(rest(world), expected);
        let c = world.client("crashing");
        world[c].receiver("q", 10);
        world.run();
        world.kill(c);
        world.run();
        assert_eq!(rest(world), [(2, 10), (3, 10)], "ten attempts of the first, none of the others");
        assert_eq!(world.queue("DLQ").counters.ready, 1);
    });
}

#[test]
fn our_detach_comes_after_the_confirms() {
    each(|world| {
        let p = world.peer_open("p");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        world.hold_store();
        for n in 0..3 {
            world[p].transfer(0, n, &number(1));
        }
        world[p].detach(0, true);
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.free_store();
        assert_eq!(world[p].said(), ["disp(0-2, accepted, settled)", "detach 0 closed"]);
    });
}

#[test]
fn our_end_comes_after_the_confirms() {
    each(|world| {
        let p = world.peer_open("p");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        world.hold_store();
        world[p].transfer(0, 0, &number(1));
        world[p].end();
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.free_store();
        assert_eq!(world[p].said(), ["disp(0, accepted, settled)", "end"]);
        world[p].begin(100);
        world.run();
        assert_eq!(world[p].said(), ["begin"]);
    });
}

#[test]
fn our_close_comes_after_the_confirms_of_all_links() {
    each(|world| {
        for queue in ["a", "b"] {
            world.declare(queue);
        }
        let p = world.peer_open("p");
        world[p].attach_sender("s", 0, "a");
        world[p].attach_sender("t", 1, "b");
        world.run();
        world[p].said();
        world.hold_store();
        world[p].transfer(0, 0, &number(1));
        world[p].transfer(1, 1, &number(2));
        world[p].close();
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.free_store();
        let mut said = world[p].said();
        assert_eq!(said.pop().as_deref(), Some("close"));
        let told: usize = said.iter().map(|s| if s.contains('-') { 2 } else { 1 }).sum();
        assert_eq!(told, 2, "{said:?}");
        assert!(world.peer_pipe(p).closed);
    });
}

#[test]
fn our_detach_comes_after_the_replies_to_dispositions() {
    each(|world| {
        let f = holding(world, 2);
        world[f].detach(1, true);
        let p = world.peer_open("p");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 10, false);
        world.run();
        world[p].said();
        world.hold_store();
        world[p].dispose(0, 1, Some(DeliveryState::Accepted), false);
        world[p].detach(0, true);
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.free_store();
        assert_eq!(world[p].said(), ["sender's disp(0-1, settled)", "detach 0 closed"]);
        assert_eq!(world.counts("q"), (0, 0, 2, 2));
    });
}

#[test]
fn dispositions_after_a_suspending_detach_have_no_effect_here() {
    each(|world| {
        let f = holding(world, 2);
        world[f].detach(1, true);
        let p = world.peer_open("p");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 1, false);
        world.run();
        world[p].detach(0, false);
        world[p].dispose(0, 0, Some(DeliveryState::Accepted), true);
        world.run();
        let said = world[p].said();
        assert_eq!(said.last().map(String::as_str), Some("detach 0"), "{said:?}");
        // It was given back by then: at least once.
        assert_eq!(rest(world), [(1, 0), (2, 0)]);
    });
}

#[test]
fn a_killed_producer_loses_nothing_that_was_read() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world.hold_store();
        for n in 0..5 {
            world[c].send(s, Msg::new(n).durable(n % 2 == 0).bytes());
        }
        world.run();
        world.kill(c);
        world.run();
        world.free_store();
        assert_eq!(rest(world).len(), 5);
    });
}

#[test]
fn a_protocol_fault_gives_everything_back() {
    each(|world| {
        let f = holding(world, 2);
        world[f].detach(1, true);
        let p = world.peer_open("p");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 10, false);
        world.run();
        world[p].said();
        world[p].raw(&[0, 0, 0, 4, 2, 0, 0, 0]);
        world.run();
        assert_eq!(world[p].said(), ["close amqp:connection:framing-error"]);
        assert_eq!(world.counts("q"), (2, 0, 2, 0));
        world.pass(6_000);
        assert!(world.peer_pipe(p).closed, "it is not waited for for ever");
    });
}

#[test]
fn a_session_fault_ends_that_session_only() {
    each(|world| {
        let p = world.peer_open("p");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        world[p].transfer(5, 0, &number(1));
        world.run();
        assert_eq!(world[p].said(), ["end amqp:session:unattached-handle"]);
        world[p].end();
        world[p].begin(100);
        world[p].attach_sender("s", 0, "q");
        world.run();
        assert_eq!(world[p].said(), ["begin", "attach s receiver", "flow 0 (0, 5000)"]);
        world[p].transfer(0, 0, &number(1));
        world.run();
        assert_eq!(world[p].said(), ["disp(0, accepted, settled)"]);
    });
}

#[test]
fn attaching_and_detaching_many_times_leaves_nothing_behind() {
    each(|world| {
        let c = world.client("c");
        for round in 0..50 {
            let r = world[c].receiver("q", 3);
            let s = world[c].sender("q");
            world.run();
            world[c].send(s, number(round));
            world.run();
            world[c].accept_all(r);
            world[c].detach(r, round % 2 == 0);
            world[c].detach(s, round % 3 == 0);
            world.run();
        }
        assert_eq!(world.counts("q"), (0, 0, 50, 50));
        assert_eq!(world.queue("q").counters.consumers, 0);
    });
}

#[test]
fn sessions_of_one_connection_are_independent() {
    each(|world| {
        let c = world.client("c");
        let second = world[c].begin();
        let s = world[c].sender("q");
        let t = world[c].sender_with(second, "t", "q", crate::world::SenderTerms::default());
        let r = world[c].receiver("q", 2);
        let terms = crate::world::ReceiverTerms { credit: 2, ..crate::world::ReceiverTerms::default() };
        let u = world[c].receiver_with(second, "u", "q", terms);
        world.run();
        for n in 0..2 {
            world[c].send(s, number(n));
            world[c].send(t, number(10 + n));
        }
        world.run();
        assert_eq!((world[c].confirmed(s), world[c].confirmed(t)), (vec![0, 1], vec![0, 1]));
        assert_eq!((world[c].links[r].got.len(), world[c].links[u].got.len()), (2, 2));
        // Delivery-ids are counted per session.
        assert_eq!(world[c].links[r].got[1].delivery, 1);
        assert_eq!(world[c].links[u].got[1].delivery, 1);
        world[c].end(0);
        world.run();
        world[c].accept_all(u);
        world[c].send(t, number(20));
        world[c].credit(u, 10);
        world.run();
        assert_eq!(world[c].confirmed(t), [0, 1, 2]);
        assert_eq!(world[c].links[u].got.len(), 5, "what the other session held comes here");
        assert_eq!(world.queue("q").counters.consumers, 1);
    });
}
