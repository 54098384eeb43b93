//! Deliveries in transactions: what a client says of them, in ranges and singly, and what its credit acquires.

use crate::coordinator::{controlled, declare, discharge};
use crate::transactions::{raw, ready, received};
use crate::world::{Msg, ReceiverTerms, World, each, each_with, number};
use packhorse_amqp10::codec::{
    DeliveryState, Discharge, Modified, Outcome, ReceiverSettleMode, Rejected, SenderSettleMode, TransactionalState,
};
use packhorse_amqp10::transaction::Request;

const ACCEPTED: Option<Outcome<'static>> = Some(Outcome::Accepted);

#[test]
fn ranges_are_acknowledged_and_a_stranger_among_them_ends_nothing() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=6, 6);
        let txn = declare(world, c, control);
        world[c].accept(r, 2);
        world.run();
        for at in [0, 1, 3, 4] {
            world[c].decide_in(&txn, r, at, ACCEPTED, true);
        }
        world.run();
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        world[c].close();
        world.run();
        assert_eq!(world.take("q"), [(6, 0)]);
    });
}

#[test]
fn a_range_over_links_is_acknowledged_in_one_transaction() {
    for fail in [false, true] {
        each(|world| {
            let (c, control) = controlled(world, "c");
            world.fill("a", 1..=5);
            world.fill("b", 11..=13);
            let a = world[c].receiver("a", 2);
            world.run();
            let b = world[c].receiver("b", 3);
            world.run();
            world[c].credit(a, 3);
            world.run();
            let txn = declare(world, c, control);
            // One range on the wire, for their numbers follow each other: two of one link, three of another, and of the first again.
            for (link, at) in [(a, 0), (a, 1), (b, 0), (b, 1), (b, 2), (a, 2), (a, 3)] {
                world[c].decide_in(&txn, link, at, ACCEPTED, true);
            }
            world.run();
            assert_eq!(discharge(world, c, control, &txn, fail), "accepted");
            world[c].close();
            world.run();
            let (of_a, of_b) = if fail { (1, 11) } else { (5, 14) };
            // Of the fifth nothing was said.
            let left = world.take("a");
            assert_eq!(left.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (of_a..=5).collect::<Vec<_>>());
            assert!(left.iter().all(|(n, seen)| *n == 5 || *seen == 1), "{left:?}");
            assert_eq!(world.take("b"), (of_b..=13).map(|n| (n, 1)).collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_range_that_is_refused_comes_back_and_is_one_line_in_the_log() {
    let told = std::cell::Cell::new(0);
    each_with(
        |config| config.transactions.max_staged_bytes = 64 << 10,
        |world| {
            let (c, control) = controlled(world, "c");
            let r = received(world, c, "a", 1..=4, 4);
            let s = world[c].sender("q");
            world.run();
            let txn = declare(world, c, control);
            // More than it may have: it can only be rolled back from here on.
            world[c].send_in(&txn, s, Msg::new(1).length(70_000).bytes(), false);
            world.run();
            (0..4).for_each(|at| world[c].decide_in(&txn, r, at, ACCEPTED, true));
            world.run();
            let words = "deliveries in transaction";
            let lines: Vec<&String> = world.logs.iter().map(|(_, text)| text).filter(|t| t.contains(words)).collect();
            assert!(lines.iter().all(|line| line.contains("the end of 4 deliveries")) && lines.len() <= 1, "{lines:?}");
            told.set(told.get() + lines.len());
            assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:rollback");
            world[c].close();
            world.run();
            assert_eq!(world.take("a"), [(1, 1), (2, 1), (3, 1), (4, 1)]);
        },
    );
    assert!(told.get() >= 2, "a home on the same shard refuses at once: {}", told.get());
}

#[test]
fn an_acknowledgement_of_nothing_can_only_roll_back() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=2, 2);
        let s = world[c].sender("other");
        world.run();
        let txn = declare(world, c, control);
        world[c].accept(r, 0);
        world.run();
        world[c].send_in(&txn, s, number(9), false);
        // It is settled, and is said to be acknowledged in the transaction as well.
        let state = DeliveryState::Transactional(TransactionalState { txn_id: &txn, outcome: ACCEPTED });
        let disposition = packhorse_amqp10::codec::Disposition {
            role: packhorse_amqp10::codec::Role::Receiver,
            first: 0,
            last: None,
            settled: true,
            state: Some(state),
            batchable: false,
        };
        let mut frame = Vec::new();
        packhorse_amqp10::codec::FrameHeader::encode(&mut frame, packhorse_amqp10::codec::FrameKind::Amqp, 0, |out| {
            disposition.encode(out)
        });
        world.pipe_of(c).to_broker.extend_from_slice(&frame);
        world.run();
        assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:rollback");
        assert!(world[c].links[control].why.contains("did not hold"), "{}", world[c].links[control].why);
        assert_eq!(ready(world, &["other"]), [0]);
    });
}

#[test]
fn an_acknowledgement_in_an_unknown_transaction_ends_the_link() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=2, 2);
        let txn = declare(world, c, control);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        world[c].decide_in(&txn, r, 0, ACCEPTED, true);
        world.run();
        assert_eq!(world[c].links[r].ended.as_deref(), Some("amqp:transaction:unknown-id"));
        assert_eq!(ready(world, &["q"]), [2], "never acknowledged outside of it");
    });
}

#[test]
fn what_the_client_has_not_settled_we_settle_when_it_is_over() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        world.fill("q", 1..=2);
        let terms = ReceiverTerms { credit: 1, rcv: ReceiverSettleMode::Second, ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "r", "q", terms);
        world.run();
        for (at, fail) in [(0, true), (1, false)] {
            let txn = declare(world, c, control);
            world[c].decide_in(&txn, r, at, ACCEPTED, false);
            world.run();
            assert!(!world[c].links[r].got[at].settled_later);
            assert_eq!(discharge(world, c, control, &txn, fail), "accepted");
            assert!(world[c].links[r].got[at].settled_later);
            world[c].credit(r, 1);
            world.run();
        }
        assert_eq!(world[c].numbers(r), [1, 1, 2], "rolled back it comes again, for this link too");
    });
}

#[test]
fn other_outcomes_happen_at_the_commit_and_not_before() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=4, 4);
        let modified = Modified { delivery_failed: true, undeliverable_here: false, message_annotations: None };
        let outcomes =
            [Outcome::Released, Outcome::Modified(modified), Outcome::Rejected(Rejected::default()), Outcome::Accepted];
        let txn = declare(world, c, control);
        for (at, outcome) in outcomes.into_iter().enumerate() {
            world[c].decide_in(&txn, r, at, Some(outcome), true);
        }
        world.run();
        assert_eq!(world.queue("q").counters.removing, 4);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(world.take("q"), [(1, 0), (2, 1)]);
        assert_eq!(world.take("DLQ").iter().map(|(n, _)| *n).collect::<Vec<_>>(), [3]);
    });
}

#[test]
fn rolled_back_other_outcomes_never_were() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=4, 4);
        let txn = declare(world, c, control);
        let modified = Modified { delivery_failed: false, undeliverable_here: true, message_annotations: None };
        let outcomes =
            [Outcome::Released, Outcome::Modified(modified), Outcome::Rejected(Rejected::default()), Outcome::Accepted];
        for (at, outcome) in outcomes.into_iter().enumerate() {
            // Whether the client has settled them or not.
            world[c].decide_in(&txn, r, at, Some(outcome), at.is_multiple_of(2));
        }
        world.run();
        assert_eq!(discharge(world, c, control, &txn, true), "accepted");
        assert!(world[c].links[r].got[1].settled_later && world[c].links[r].got[3].settled_later);
        assert_eq!(world.take("q"), [(1, 1), (2, 1), (3, 1), (4, 1)], "as any that a rollback brings back");
        assert!(!world.exists("DLQ") || ready(world, &["DLQ"]) == [0]);
    });
}

#[test]
fn a_consumer_that_goes_leaves_its_outcomes_in_the_transaction() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "q", 1..=4, 4);
        let txn = declare(world, c, control);
        world[c].decide_in(&txn, r, 0, ACCEPTED, true);
        world[c].decide_in(&txn, r, 1, Some(Outcome::Released), true);
        world[c].decide_in(&txn, r, 2, Some(Outcome::Rejected(Rejected::default())), true);
        world[c].detach(r, true);
        world.run();
        assert_eq!(ready(world, &["q"]), [1]);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(world.take("q"), [(2, 0), (4, 0)]);
        assert_eq!(world.take("DLQ").iter().map(|(n, _)| *n).collect::<Vec<_>>(), [3]);
    });
}

#[test]
fn browsers_and_consumers_of_what_is_settled_when_sent_have_nothing_to_retire() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        world.fill("q", 1..=2);
        let browser = world[c].browser("q", 5);
        world.run();
        let txn = declare(world, c, control);
        world[c].decide_in(&txn, browser, 0, ACCEPTED, true);
        world[c].decide_in(&txn, browser, 1, ACCEPTED, false);
        world.run();
        assert!(world[c].links[browser].got[1].settled_later);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(world.take("q"), [(1, 0), (2, 0)]);
    });
}

// ---- acquisitions ----

/// A raw peer whose receiver (handle 2) has acquired the first two of four messages in a transaction.
fn acquired(world: &mut World) -> (crate::world::P, Vec<u8>) {
    world.fill("in", 1..=4);
    let (p, txn) = raw(world);
    world[p].attach_receiver("r", 2, "in");
    world.run();
    world[p].said();
    world[p].flow_in(&txn, 2, 0, 2);
    world.run();
    let said = world[p].said();
    assert_eq!(said.iter().filter(|line| line.starts_with("transfer 2")).count(), 2, "{said:?}");
    (p, txn)
}

fn end(world: &mut World, p: crate::world::P, txn: &[u8], fail: bool) {
    world[p].request(0, 9, &Request::Discharge(Discharge { txn_id: txn, fail }));
    world.run();
    let said = world[p].said();
    assert!(said.contains(&"disp(9, accepted, settled)".to_string()), "{said:?}");
}

#[test]
fn what_was_acquired_in_a_transaction_goes_back_when_it_is_rolled_back() {
    each(|world| {
        let (p, txn) = acquired(world);
        world[p].dispose(0, 0, Some(DeliveryState::Accepted), true);
        world.run();
        assert_eq!((world.queue("in").counters.removing, world.queue("in").counters.acquired), (1, 1));
        end(world, p, &txn, true);
        assert_eq!(ready(world, &["in"]), [4]);
        // What is said of it later concerns nobody.
        world[p].dispose(1, 1, Some(DeliveryState::Accepted), true);
        world.run();
        assert_eq!(world.take("in"), [(1, 1), (2, 1), (3, 0), (4, 0)]);
    });
}

#[test]
fn what_was_acquired_in_a_transaction_stays_when_it_is_committed() {
    each(|world| {
        let (p, txn) = acquired(world);
        let released = TransactionalState { txn_id: &txn, outcome: ACCEPTED };
        world[p].dispose(0, 0, Some(DeliveryState::Transactional(released)), true);
        world.run();
        end(world, p, &txn, false);
        assert_eq!((world.queue("in").counters.depth, world.queue("in").counters.acquired), (3, 1));
        // An ordinary delivery from now on; and no more come for the transaction's credit.
        world.fill("in", [5]);
        world[p].dispose(1, 1, Some(DeliveryState::Released), true);
        world.run();
        assert!(!world[p].said().iter().any(|line| line.starts_with("transfer")));
        world[p].flow(2, 2, 1, false);
        world.run();
        assert_eq!(world[p].said().iter().filter(|line| line.starts_with("transfer 2")).count(), 1);
        world[p].close();
        world.run();
        assert_eq!(world.take("in"), [(2, 0), (3, 0), (4, 0), (5, 0)]);
    });
}

#[test]
fn credit_that_is_left_when_the_transaction_ends_is_for_nothing() {
    each(|world| {
        world.declare("in");
        let (p, txn) = raw(world);
        world[p].attach_receiver("r", 2, "in");
        world.run();
        world[p].flow_in(&txn, 2, 0, 5);
        world.run();
        end(world, p, &txn, false);
        world.fill("in", [1]);
        assert!(!world[p].said().iter().any(|line| line.starts_with("transfer")));
        // A drain is answered all the same.
        world[p].flow(2, 0, 5, true);
        world.run();
        let said = world[p].said();
        assert!(said.iter().any(|line| line.starts_with("transfer 2:0")), "{said:?}");
        assert!(said.iter().any(|line| line.starts_with("flow 2 (5, 0, drain")), "{said:?}");
    });
}

#[test]
fn what_is_settled_when_sent_cannot_be_acquired_in_a_transaction() {
    each(|world| {
        let (p, txn) = raw(world);
        world[p].attach(&packhorse_amqp10::codec::Attach {
            name: "r",
            handle: 2,
            role: packhorse_amqp10::codec::Role::Receiver,
            snd_settle_mode: SenderSettleMode::Settled,
            source: Some(packhorse_amqp10::codec::Source { address: Some("in"), ..Default::default() }),
            target: Some(packhorse_amqp10::codec::Target::default().into()),
            ..Default::default()
        });
        world.run();
        world[p].said();
        world[p].flow_in(&txn, 2, 0, 5);
        world.run();
        assert!(world[p].said().contains(&"detach 2 closed amqp:not-implemented".to_string()));
    });
}

// ---- after a crash ----
