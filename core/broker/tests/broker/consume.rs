//! Credit, drain, windows, output: who gets what and when (`spec/amqp10.md`, "Flow", "Session"; sequences 5 to 7).

use crate::world::{C, Msg, ReceiverTerms, World, each, each_with, number};
use packhorse_amqp10::codec::{Flow, SenderSettleMode};

/// A client that puts these numbers into the queue.
fn fill(world: &mut World, queue: &str, numbers: impl Iterator<Item = u64>) -> C {
    let c = world.client("filler");
    let s = world[c].sender(queue);
    world.run();
    for n in numbers {
        world[c].send(s, number(n));
    }
    world.run();
    c
}

#[test]
fn credit_is_obeyed_and_raised() {
    each(|world| {
        fill(world, "q", 0..50);
        let c = world.client("c");
        let r = world[c].receiver("q", 0);
        world.run();
        assert_eq!(world[c].numbers(r).len(), 0);
        world[c].credit(r, 7);
        world.run();
        assert_eq!(world[c].numbers(r), (0..7).collect::<Vec<_>>());
        world[c].credit(r, 3);
        world.run();
        assert_eq!(world[c].numbers(r), (0..10).collect::<Vec<_>>());
        assert_eq!(world.queue("q").counters.credit, 0);
        world[c].credit(r, 100);
        world.run();
        assert_eq!(world[c].numbers(r).len(), 50);
        assert_eq!(world.queue("q").counters.credit, 60);
        world[c].credit(r, 0);
        world.run();
        assert_eq!(world.queue("q").counters.credit, 0, "credit can be taken back");
    });
}

#[test]
fn messages_that_come_later_are_given_at_once() {
    each(|world| {
        let c = world.client("c");
        let r = world[c].receiver("q", 10);
        world.run();
        fill(world, "q", 0..3);
        assert_eq!(world[c].numbers(r), [0, 1, 2]);
    });
}

#[test]
fn sequence_5_drain_with_two_ready_and_then_with_credit_0() {
    each(|world| {
        fill(world, "q", 0..2);
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world.run();
        world[p].said();
        world[p].flow(0, 0, 5, true);
        world.run();
        assert_eq!(world[p].said(), ["transfer 0:0 [21]", "transfer 0:1 [21]", "flow 0 (5, 0, drain)"]);
        world[p].flow(0, 5, 0, true);
        world.run();
        assert_eq!(world[p].said(), ["flow 0 (5, 0, drain)"]);
    });
}

#[test]
fn drain_of_an_empty_queue_is_answered() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 5, true);
        world.run();
        let said = world[p].said();
        assert_eq!(said, ["attach r sender", "flow 0 (5, 0, drain)"]);
    });
}

#[test]
fn drain_with_more_ready_than_credit_is_answered() {
    each(|world| {
        fill(world, "q", 0..20);
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 5, true);
        world.run();
        let said = world[p].said();
        assert_eq!(said.iter().filter(|s| s.starts_with("transfer")).count(), 5, "{said:?}");
        assert_eq!(said.last().map(String::as_str), Some("flow 0 (5, 0, drain)"));
        world[p].flow(0, 5, 0, true);
        world.run();
        assert_eq!(world[p].said(), ["flow 0 (5, 0, drain)"], "with credit 0 at once");
    });
}

#[test]
fn drain_does_not_wait_for_what_is_staged_and_waits_for_what_is_loaded() {
    each_with(
        |config| config.memory_bytes = 1,
        |world| {
            fill(world, "q", 0..40);
            let p = world.client("p");
            let s = world[p].sender("q");
            world.run();
            world.hold_store();
            world[p].send(s, number(40));
            let c = world.client("c");
            let r = world[c].receiver("q", 1000);
            world[c].drain(r);
            world.run();
            world.flush();
            assert_eq!(world[c].links[r].drained, 1);
            let numbers = world[c].numbers(r);
            assert_eq!(numbers[..40], (0..40).collect::<Vec<_>>());
            world.free_store();
            assert!(world[c].numbers(r).len() <= 41);
        },
    );
}

#[test]
fn drain_waits_for_the_session_window() {
    each(|world| {
        fill(world, "q", 0..30);
        let c = world.narrow_client("c", 4, 512);
        let r = world[c].receiver("q", 20);
        world[c].drain(r);
        world.run();
        assert_eq!(world[c].numbers(r), (0..20).collect::<Vec<_>>(), "all that credit allows comes before the answer");
        assert_eq!(world[c].links[r].drained, 1);
        world[c].credit(r, 20);
        world[c].drain(r);
        world.run();
        assert_eq!(world[c].numbers(r), (0..30).collect::<Vec<_>>());
        assert_eq!(world[c].links[r].drained, 2);
    });
}

#[test]
fn drain_brings_all_that_is_ready_however_often_the_window_closes_meanwhile() {
    // Windows around the parts in which a queue is told of a link's credit.
    for window in [1, 16, 32, 64, 255, 256, 257] {
        each(|world| {
            fill(world, "q", 0..600);
            let c = world.narrow_client("c", window, 512);
            let r = world[c].receiver("q", 1_000);
            world[c].drain(r);
            world.run();
            assert_eq!((world[c].links[r].got.len(), world[c].links[r].drained), (600, 1), "window {window}");
        });
    }
}

#[test]
fn credit_after_a_drain_counts_anew() {
    each(|world| {
        let c = world.client("c");
        let r = world[c].receiver("q", 10);
        world.run();
        for round in 0..5 {
            world[c].drain(r);
            world.run();
            assert_eq!(world[c].links[r].drained, round + 1);
            assert_eq!(world.queue("q").counters.credit, 0);
            world[c].credit(r, 2);
            world.run();
            fill(world, "q", 0..1);
            assert_eq!(world[c].numbers(r).len(), round as usize + 1);
        }
    });
}

#[test]
fn sequence_6_a_stale_flow_grants_nothing() {
    each(|world| {
        fill(world, "q", 0..20);
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 3, false);
        world.run();
        world[p].said();
        world[p].flow(0, 0, 2, false);
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world[p].flow(0, 3, 4, false);
        world.run();
        assert_eq!(world[p].said().len(), 4);
    });
}

#[test]
fn echo_is_answered_once_without_echo() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world.run();
        world[p].said();
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: 100,
            handle: Some(0),
            delivery_count: Some(0),
            link_credit: Some(3),
            echo: true,
            ..Flow::default()
        };
        world[p].frame(0, |out| flow.encode(out));
        world.run();
        assert_eq!(world[p].said(), ["flow 0 (0, 3)"]);
    });
}

#[test]
fn acquiring_in_a_transaction_that_nobody_knows_ends_the_link() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_receiver("r", 0, "q");
        world.run();
        world[p].said();
        world[p].flow_in(b"1", 0, 0, 3);
        world.run();
        assert_eq!(world[p].said(), ["detach 0 closed amqp:transaction:unknown-id"]);
        assert_eq!(world.queue("q").counters.consumers, 0);
    });
}

#[test]
fn a_tiny_window_lets_big_and_many_messages_through() {
    each(|world| {
        let f = fill(world, "q", 0..50);
        for n in 50..60 {
            world[f].send(0, Msg::new(n).length(5_000).bytes());
        }
        for n in 60..100 {
            world[f].send(0, number(n));
        }
        world.run();
        let c = world.narrow_client("c", 2, 512);
        let r = world[c].receiver("q", 1000);
        world.run();
        assert_eq!(world[c].numbers(r), (0..100).collect::<Vec<_>>());
        world[c].accept_all(r);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 100, 100));
    });
}

#[test]
fn a_peer_that_never_reads_costs_a_bounded_buffer_and_loses_nothing() {
    each_with(
        |config| config.max_output_bytes = 64 << 10,
        |world| {
            let f = world.client("f");
            let s = world[f].sender("q");
            world.run();
            for n in 0..300 {
                world[f].send(s, Msg::new(n).length(4_000).bytes());
            }
            world.run();
            let c = world.client("c");
            let r = world[c].receiver("q", 10_000);
            world.run();
            let before = world[c].numbers(r).len();
            assert_eq!(before, 300, "while it reads everything comes");
            world[c].close();
            world.run();
            let c = world.client("deaf");
            world.pipe_of(c).room = 500;
            let r = world[c].receiver("q", 10_000);
            world.run();
            let acquired = world.queue("q").counters.acquired;
            assert!((15..=80).contains(&acquired), "about 64 KiB of 4 KB each: {acquired}");
            let other = world.client("other");
            let o = world[other].receiver("q", 10);
            world.run();
            assert_eq!(world[other].numbers(o).len(), 10, "others are served");
            world[other].accept_all(o);
            world.pipe_of(c).room = usize::MAX;
            world.run();
            assert_eq!(world[c].numbers(r).len() + 10, 300);
            world[c].accept_all(r);
            world.run();
            assert_eq!(world.queue("q").counters.depth, 0);
        },
    );
}

#[test]
fn links_of_a_session_share_its_window() {
    each(|world| {
        for queue in ["a", "b", "c"] {
            fill(world, queue, 0..40);
        }
        let c = world.narrow_client("c", 3, 512);
        let links: Vec<_> = ["a", "b", "c"].map(|queue| world[c].receiver(queue, 100)).into();
        world.run();
        for link in links {
            assert_eq!(world[c].numbers(link), (0..40).collect::<Vec<_>>());
        }
    });
}

#[test]
fn consumers_take_turns() {
    each(|world| {
        let clients: Vec<_> = (0..3).map(|n| world.client(&format!("c{n}"))).collect();
        let links: Vec<_> = clients.iter().map(|c| world[*c].receiver("q", 100)).collect();
        world.run();
        for n in 0..30 {
            fill(world, "q", n..n + 1);
        }
        let counts: Vec<_> = clients.iter().zip(&links).map(|(c, r)| world[*c].numbers(*r).len()).collect();
        assert_eq!(counts, [10, 10, 10]);
        fill(world, "q", 30..90);
        let counts: Vec<_> = clients.iter().zip(&links).map(|(c, r)| world[*c].numbers(*r).len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 90);
        assert!(counts.iter().all(|n| (20..=40).contains(n)), "{counts:?}");
    });
}

#[test]
fn pre_settled_deliveries_are_gone_at_dispatch() {
    each(|world| {
        fill(world, "q", 0..5);
        let c = world.client("c");
        let terms = ReceiverTerms { snd: SenderSettleMode::Settled, credit: 3, ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "r", "q", terms);
        world.run();
        assert_eq!(world[c].numbers(r), [0, 1, 2]);
        assert!(world[c].links[r].got.iter().all(|got| got.settled));
        assert_eq!(world.counts("q"), (2, 0, 5, 3));
        world.kill(c);
        world.run();
        assert_eq!(world.counts("q"), (2, 0, 5, 3));
    });
}

#[test]
fn a_message_over_the_links_limit_is_passed_over() {
    each(|world| {
        let f = fill(world, "q", 0..1);
        world[f].send(0, Msg::new(1).length(10_000).bytes());
        world[f].send(0, number(2));
        world.run();
        let c = world.client("c");
        let terms = ReceiverTerms { max_message_size: Some(1_000), ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "small", "q", terms);
        world.run();
        assert_eq!(world[c].numbers(r), [0, 2]);
        assert_eq!(world.counts("q"), (1, 2, 3, 0));
        assert!(world.logged("takes messages of at most 1000 bytes"));
        let big = world[c].receiver("q", 10);
        world.run();
        assert_eq!(world[c].numbers(big), [1]);
        assert_eq!(world[c].links[big].got[0].deliveries(), 0, "nobody saw it before");
    });
}

#[test]
fn thousands_in_flight() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        let r = world[c].receiver("q", 100_000);
        world.run();
        for n in 0..4000 {
            world[c].send(s, number(n));
        }
        world.run();
        assert_eq!(world[c].numbers(r).len(), 4000);
        assert_eq!(world[c].confirmed(s), (0..4000).collect::<Vec<_>>());
        world[c].accept_all(r);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 4000, 4000));
    });
}
