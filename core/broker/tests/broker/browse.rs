//! Browsers: consumers with the source's distribution mode `copy`.

use crate::world::{Msg, ReceiverTerms, each, in_one, number};
use packhorse_amqp10::codec::{ReceiverSettleMode, SenderSettleMode};
use packhorse_broker::{Command, Reply};

#[test]
fn a_browser_sees_everything_once_in_order_and_holds_nothing() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        for (n, priority) in [(0, 4), (1, 4), (2, 9), (3, 4)] {
            world[c].send(s, Msg::new(n).priority(priority).bytes());
        }
        world.run();
        let b = world[c].browser("q", 100);
        world.run();
        assert!(world[c].links[b].answer.contains("copy"), "{}", world[c].links[b].answer);
        assert_eq!(world[c].numbers(b), [2, 0, 1, 3]);
        let counters = world.queue("q").counters;
        assert_eq!((counters.ready, counters.acquired, counters.consumers), (4, 0, 1));
        let r = world[c].receiver("q", 100);
        world.run();
        assert_eq!(world[c].numbers(r), [2, 0, 1, 3]);
        assert!(world[c].links[r].got.iter().all(|got| got.deliveries() == 0), "a look is no delivery");
        assert_eq!(world[c].accept_all(r), 4);
        world.run();
        assert_eq!(world[c].numbers(b), [2, 0, 1, 3], "once each");
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn what_a_browser_says_of_a_message_has_no_effect() {
    for rcv in [ReceiverSettleMode::First, ReceiverSettleMode::Second] {
        each(|world| {
            world.fill("q", 0..5);
            let c = world.client("c");
            let terms = ReceiverTerms { rcv, browses: true, ..ReceiverTerms::default() };
            let b = world[c].receiver_with(0, "b", "q", terms);
            world.run();
            assert_eq!(world[c].numbers(b), [0, 1, 2, 3, 4]);
            world[c].accept(b, 0);
            world[c].release(b, 1);
            world[c].reject(b, 2, "x", "y");
            world[c].modify(b, 3, true, true, &[("x-opt-mine", "lost")]);
            world[c].decide(b, 4, Some(packhorse_amqp10::codec::DeliveryState::Accepted), false);
            world.run();
            assert!(world[c].links[b].got[4].settled_later, "who asks for an answer gets one");
            assert_eq!(world.queue("q").counters.ready, 5);
            assert!(!world.exists("DLQ"));
            let r = world[c].receiver("q", 10);
            world.run();
            assert_eq!(world[c].numbers(r), [0, 1, 2, 3, 4]);
            assert!(world[c].links[r].got.iter().all(|got| got.deliveries() == 0));
            assert_eq!(world[c].links[r].got[3].annotation("x-opt-mine"), None);
            // And its end brings nothing back.
            world[c].detach(b, true);
            world.run();
            assert_eq!(world.queue("q").counters.acquired, 5);
        });
    }
}

#[test]
fn a_drain_ends_a_browse_and_later_arrivals_are_seen_while_the_link_stays() {
    each(|world| {
        world.fill("q", 0..300);
        let c = world.client("c");
        let b = world[c].browser("q", 1000);
        world[c].drain(b);
        world.run();
        assert_eq!(world[c].numbers(b), (0..300).collect::<Vec<_>>());
        assert_eq!(world[c].links[b].drained, 1);
        world.fill("q", [300]);
        assert_eq!(world[c].numbers(b).len(), 300, "the drain took the credit");
        world[c].credit(b, 10);
        world.run();
        world.fill("q", [301]);
        assert_eq!(world[c].numbers(b), (0..302).collect::<Vec<_>>());
        let e = world[c].browser("empty", 10);
        world[c].drain(e);
        world.run();
        assert_eq!((world[c].links[e].drained, world[c].numbers(e).len()), (1, 0));
    });
}

#[test]
fn credit_bounds_a_browser_and_its_place_outlives_what_stood_there() {
    each(|world| {
        world.fill("q", 0..10);
        let c = world.client("c");
        let b = world[c].browser("q", 3);
        world.run();
        assert_eq!(world[c].numbers(b), [0, 1, 2]);
        let r = world[c].receiver("q", 5);
        world.run();
        world[c].accept_all(r);
        world.run();
        assert_eq!(world.queue("q").counters.ready, 5);
        world[c].credit(b, 100);
        world.run();
        assert_eq!(world[c].numbers(b), [0, 1, 2, 5, 6, 7, 8, 9]);
        assert_eq!(world.ask(Command::QueuePurge { name: "q".into(), by: None }), Reply::Purged { messages: 5 });
        world.fill("q", [10]);
        assert_eq!(world[c].numbers(b), [0, 1, 2, 5, 6, 7, 8, 9, 10]);
    });
}

#[test]
fn a_browser_shows_no_message_that_is_not_durable_and_none_that_somebody_holds() {
    each(|world| {
        let c = world.client("c");
        let (s, r) = (world[c].sender("q"), world[c].receiver("q", 1));
        let b = world[c].browser("q", 10);
        world.run();
        world[c].send(s, number(0));
        world.run();
        assert_eq!(world[c].numbers(r), [0]);
        let seen = world[c].numbers(b).len();
        assert!(seen <= 1, "whoever comes first");
        world.hold_store();
        world[c].send(s, number(1));
        world.run();
        assert_eq!(world[c].numbers(b).len(), seen);
        world.free_store();
        world.run();
        assert_eq!(world[c].numbers(b).last(), Some(&1));
        let late = world[c].browser("q", 10);
        world.run();
        assert_eq!(world[c].numbers(late), [1]);
    });
}

#[test]
fn bodies_that_are_not_in_memory_are_loaded_for_a_browser() {
    each(|world| {
        world.fill("q", 0..1000);
        world.restart();
        let c = world.client("c");
        let b = world[c].browser("q", 2000);
        world[c].drain(b);
        world.run();
        assert_eq!(world[c].numbers(b), (0..1000).collect::<Vec<_>>());
        assert_eq!(world[c].links[b].drained, 1);
        assert_eq!(world.queue("q").counters.ready, 1000);
        assert_eq!(world.take("q").len(), 1000);
    });
}

#[test]
fn browsers_and_consumers_hinder_each_other_in_nothing() {
    each(|world| {
        world.fill("q", 0..2000);
        let c = world.client("c");
        let settled = ReceiverTerms { snd: SenderSettleMode::Settled, credit: 5000, ..ReceiverTerms::default() };
        let browsing = ReceiverTerms { browses: true, ..settled };
        let b = world[c].receiver_with(0, "b", "q", browsing);
        let r = world[c].receiver_with(0, "r", "q", settled);
        let again = world[c].browser("q", 5000);
        world.run();
        assert_eq!(world[c].numbers(r), (0..2000).collect::<Vec<_>>(), "a consumer gets all");
        for browser in [b, again] {
            let seen = world[c].numbers(browser);
            assert!(seen.is_sorted_by(|a, b| a < b), "in order, once each");
        }
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn large_messages_can_be_browsed() {
    in_one(
        |_| {},
        |world| {
            let c = world.client("c");
            let s = world[c].sender("q");
            world.run();
            for n in 0..2 {
                world[c].send(s, Msg::new(n).length(2 << 20).bytes());
            }
            world.run();
            let b = world[c].browser("q", 10);
            world.run();
            assert_eq!(world[c].numbers(b), [0, 1]);
            assert_eq!(world.queue("q").counters.ready, 2);
        },
    );
}

#[test]
fn a_durable_subscription_that_asks_for_copies_consumes() {
    each(|world| {
        world.fill("q", 0..3);
        let c = world.client("c");
        let terms = ReceiverTerms { browses: true, durable: true, ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "sub", "q", terms);
        world.run();
        assert_eq!(world.queue("q").counters.acquired, 3);
        assert_eq!(world[c].accept_all(r), 3);
        world.run();
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}
