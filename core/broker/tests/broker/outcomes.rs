//! What a consumer says and what becomes of it: the table of ARCHITECTURE.md, "AMQP 1.0", row by row.

use crate::world::{C, ReceiverTerms, World, each, number};
use packhorse_amqp10::codec::{
    DeliveryState, Disposition, Modified, Outcome, Received, ReceiverSettleMode, Role, TransactionalState,
};

/// A client with a sender (link 0) and a receiver (link 1) on queue `q`, with messages 1 to `count` delivered.
fn delivered(world: &mut World, count: u64, terms: ReceiverTerms<'_>) -> C {
    let c = world.client("c");
    let s = world[c].sender("q");
    world[c].receiver_with(0, "r", "q", terms);
    world.run();
    for n in 1..=count {
        world[c].send(s, number(n));
    }
    world.run();
    assert_eq!(world[c].numbers(1), (1..=count).collect::<Vec<_>>());
    c
}

fn credit(credit: u32) -> ReceiverTerms<'static> {
    ReceiverTerms { credit, ..ReceiverTerms::default() }
}

#[test]
fn accepted_acknowledges() {
    each(|world| {
        let c = delivered(world, 3, credit(10));
        assert_eq!(world.counts("q"), (0, 3, 3, 0));
        world[c].accept(1, 1);
        world.run();
        assert_eq!(world.counts("q"), (0, 2, 3, 1));
        world[c].accept(1, 0);
        world[c].accept(1, 2);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 3, 3));
    });
}

#[test]
fn released_returns_unseen_to_its_place() {
    each(|world| {
        let c = delivered(world, 3, credit(3));
        world[c].release(1, 2);
        world[c].release(1, 0);
        world.run();
        assert_eq!(world.counts("q"), (2, 1, 3, 0));
        world[c].credit(1, 10);
        world.run();
        assert_eq!(world[c].numbers(1), [1, 2, 3, 1, 3]);
        assert_eq!(world[c].links[1].got[3].deliveries(), 0);
        assert_eq!(world.queue("q").counters.redelivered_total, 0);
    });
}

#[test]
fn modified_delivery_failed_counts() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        for round in 1..4 {
            let at = world[c].links[1].got.len() - 1;
            world[c].modify(1, at, true, false, &[]);
            world[c].credit(1, 1);
            world.run();
            let last = world[c].links[1].got.last().unwrap();
            assert_eq!((last.number(), last.deliveries()), (1, round));
        }
        assert_eq!(world.queue("q").counters.redelivered_total, 3);
    });
}

#[test]
fn modified_without_delivery_failed_does_not_count() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        world[c].modify(1, 0, false, false, &[]);
        world[c].credit(1, 1);
        world.run();
        assert_eq!(world[c].links[1].got[1].deliveries(), 0);
    });
}

#[test]
fn undeliverable_here_never_comes_to_this_link_again() {
    each(|world| {
        let c = delivered(world, 2, credit(10));
        world[c].modify(1, 0, true, true, &[]);
        world.run();
        assert_eq!(world[c].numbers(1), [1, 2]);
        assert_eq!(world.counts("q"), (1, 1, 2, 0));
        let other = world[c].receiver("q", 10);
        world.run();
        assert_eq!(world[c].numbers(other), [1]);
        assert_eq!(world[c].links[other].got[0].deliveries(), 1);
        // Drain is answered although something is there, but not for this link.
        world[c].release(other, 0);
        world[c].detach(other, true);
        world[c].drain(1);
        world.run();
        assert_eq!(world[c].links[1].drained, 1);
    });
}

#[test]
fn annotations_of_modified_merge_and_replace() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        for (at, pairs) in
            [(0, &[("x-opt-a", "1"), ("x-opt-b", "1")][..]), (1, &[("x-opt-b", "2"), ("x-opt-c", "2")]), (2, &[])]
        {
            world[c].modify(1, at, true, false, pairs);
            world[c].credit(1, 1);
            world.run();
        }
        let last = &world[c].links[1].got[3];
        assert_eq!(last.deliveries(), 3);
        let of = |key| last.annotation(key);
        assert_eq!(of("x-opt-a").as_deref(), Some("1"));
        assert_eq!(of("x-opt-b").as_deref(), Some("2"));
        assert_eq!(of("x-opt-c").as_deref(), Some("2"));
        assert_eq!(last.number(), 1, "the body is what it was");
    });
}

#[test]
fn settled_without_a_state_is_the_default_outcome_or_released() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        world[c].decide(1, 0, None, true);
        world.run();
        assert_eq!(world.counts("q"), (1, 0, 1, 0));
        world[c].detach(1, true);
        world.run();
        let modified = Modified { delivery_failed: true, ..Modified::default() };
        let terms =
            ReceiverTerms { credit: 1, default_outcome: Some(Outcome::Modified(modified)), ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "with default", "q", terms);
        world.run();
        world[c].decide(r, 0, None, true);
        world[c].credit(r, 1);
        world.run();
        assert_eq!(world[c].links[r].got[1].deliveries(), 1);
        let terms = ReceiverTerms { credit: 1, default_outcome: Some(Outcome::Accepted), ..ReceiverTerms::default() };
        world[c].release(r, 1);
        world[c].detach(r, true);
        let r = world[c].receiver_with(0, "accepting", "q", terms);
        world.run();
        world[c].decide(r, 0, None, true);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 1, 1));
    });
}

#[test]
fn unsettled_without_a_state_or_with_received_is_no_last_word() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        world[c].decide(1, 0, Some(DeliveryState::Received(Received { section_number: 1, section_offset: 3 })), false);
        world.run();
        world[c].decide(1, 0, None, false);
        world.run();
        assert_eq!(world.counts("q"), (0, 1, 1, 0));
        world[c].accept(1, 0);
        world.run();
        assert_eq!(world.counts("q"), (0, 0, 1, 1));
    });
}

#[test]
fn a_decision_is_final() {
    each(|world| {
        let p = world.peer_open("c");
        let f = world.client("f");
        let s = world[f].sender("q");
        world.run();
        world[f].send(s, number(1));
        world[p].attach_receiver("r", 0, "q");
        world[p].flow(0, 0, 1, false);
        world.run();
        world[p].said();
        world.hold_store();
        world[p].dispose(0, 0, Some(DeliveryState::Accepted), false);
        world[p].dispose(0, 0, Some(DeliveryState::Released), false);
        world[p].dispose(0, 0, Some(DeliveryState::Released), true);
        world[p].dispose(0, 7, Some(DeliveryState::Released), true);
        world.run();
        world.free_store();
        assert_eq!(world.counts("q"), (0, 0, 1, 1));
        assert_eq!(world[p].said(), [""; 0], "it has settled itself");
    });
}

#[test]
fn sequence_4_settle_second_out_is_settled_by_us_after_the_flush() {
    each(|world| {
        let terms = ReceiverTerms { rcv: ReceiverSettleMode::Second, credit: 10, ..ReceiverTerms::default() };
        let c = delivered(world, 4, terms);
        world.hold_store();
        world[c].decide(1, 0, Some(DeliveryState::Accepted), false);
        world[c].decide(1, 1, Some(DeliveryState::Accepted), false);
        world.run();
        assert_eq!(world.counts("q").3, 2);
        assert!(!world[c].links[1].got[0].settled_later, "not before it is durable");
        world.flush();
        assert!(world[c].links[1].got[0].settled_later && world[c].links[1].got[1].settled_later);
        // Where nothing is written, there is nothing to wait for.
        world[c].decide(1, 2, Some(DeliveryState::Released), false);
        world.run();
        assert!(world[c].links[1].got[2].settled_later);
        world.free_store();
    });
}

#[test]
fn any_unsettled_disposition_gets_a_reply_when_durable() {
    each(|world| {
        let c = delivered(world, 3, credit(3));
        world.hold_store();
        let modified = Modified { delivery_failed: true, ..Modified::default() };
        world[c].decide(1, 0, Some(DeliveryState::Accepted), false);
        world[c].decide(1, 1, Some(DeliveryState::Modified(modified)), false);
        world[c].decide(1, 2, Some(DeliveryState::Rejected(Default::default())), false);
        world.run();
        let told = |world: &World| world[c].links[1].got.iter().filter(|got| got.settled_later).count();
        assert_eq!(told(world), 0);
        // The dead-letter queue first, then the message's way into it, between shards too.
        world.flush();
        world.flush();
        world.flush();
        assert_eq!(told(world), 3);
        world.free_store();
        assert_eq!(world.queue("DLQ").counters.ready, 1);
    });
}

#[test]
fn an_outcome_that_is_not_known_ends_the_link() {
    each(|world| {
        let c = delivered(world, 1, credit(1));
        let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: None });
        world[c].decide(1, 0, Some(state), true);
        world.run();
        assert_eq!(world[c].links[1].ended.as_deref(), Some("amqp:transaction:unknown-id"));
        assert_eq!(world.counts("q"), (1, 0, 1, 0));
    });
}

#[test]
fn an_outcome_the_source_does_not_name_ends_the_link() {
    each(|world| {
        let f = world.client("f");
        let s = world[f].sender("q");
        world.run();
        world[f].send(s, number(1));
        let p = world.peer_open("c");
        world[p].attach(&packhorse_amqp10::codec::Attach {
            name: "r",
            role: Role::Receiver,
            source: Some(packhorse_amqp10::codec::Source {
                address: Some("q"),
                outcomes: packhorse_amqp10::codec::Symbols::from_slice(&["amqp:accepted:list"]),
                ..Default::default()
            }),
            target: Some(packhorse_amqp10::codec::AttachTarget::Target(Default::default())),
            ..Default::default()
        });
        world[p].flow(0, 0, 1, false);
        world.run();
        world[p].said();
        let disposition = Disposition {
            role: Role::Receiver,
            first: 0,
            last: None,
            settled: true,
            state: Some(DeliveryState::Released),
            batchable: false,
        };
        world[p].frame(0, |out| disposition.encode(out));
        world.run();
        assert_eq!(world[p].said(), ["detach 0 closed amqp:not-allowed"]);
        assert_eq!(world.counts("q"), (1, 0, 1, 0));
    });
}
