//! Producers: order, and when they are told (G1, G3 in `spec/README.md`; sequence 4).

use crate::world::{Msg, SenderTerms, each, number};
use packhorse_amqp10::codec::{
    DeliveryState, Disposition, ReceiverSettleMode, Role, SenderSettleMode, TransactionalState, Transfer,
};

#[test]
fn a_persistent_message_is_confirmed_only_when_durable() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        let r = world[c].receiver("q", 10);
        world.run();
        world.hold_store();
        world[c].send(s, Msg::new(1).durable(true).bytes());
        world[c].send(s, number(2));
        world.run();
        assert!(world[c].links[s].outcomes.is_empty());
        assert!(world[c].numbers(r).is_empty(), "nor is it visible");
        assert_eq!(world.queue("q").counters.staged, 2);
        world.flush();
        assert_eq!(world[c].confirmed(s), [0, 1]);
        assert_eq!(world[c].links[s].settled, [0, 1]);
        world.free_store();
        assert_eq!(world[c].numbers(r), [1, 2]);
    });
}

#[test]
fn what_is_not_persistent_is_confirmed_at_once_unless_it_stands_behind() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        let r = world[c].receiver("q", 10);
        world.run();
        world.hold_store();
        world[c].send(s, Msg::new(1).durable(false).bytes());
        world.run();
        assert_eq!(world[c].confirmed(s), [0]);
        assert_eq!(world[c].numbers(r), [1]);
        world[c].send(s, Msg::new(2).durable(true).bytes());
        world[c].send(s, Msg::new(3).durable(false).bytes());
        world.run();
        assert_eq!(world[c].numbers(r), [1], "it does not overtake");
        world.free_store();
        assert_eq!(world[c].numbers(r), [1, 2, 3]);
        assert_eq!(world[c].links[s].outcomes.len(), 3);
    });
}

#[test]
fn confirms_are_ranges_in_order() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        world.hold_store();
        for n in 0..100 {
            world[p].transfer(0, n, &number(u64::from(n)));
        }
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.flush();
        let said: Vec<_> = world[p].said().into_iter().filter(|s| s.starts_with("disp")).collect();
        assert_eq!(said, ["disp(0-99, accepted, settled)"]);
        world.free_store();
    });
}

#[test]
fn ids_may_wrap_and_ranges_do_not_go_across() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        for n in [u32::MAX - 1, u32::MAX, 0, 1] {
            world[p].transfer(0, n, &number(u64::from(n)));
        }
        world.run();
        let said: Vec<_> = world[p].said().into_iter().filter(|s| s.starts_with("disp")).collect();
        let all = said.join(" ");
        assert!(!all.contains("4294967294-1") && !all.contains("4294967295-0"), "{all}");
        assert_eq!(world.queue("q").counters.ready, 4);
        let told: usize = said.iter().map(|s| if s.contains('-') { 2 } else { 1 }).sum();
        assert_eq!(told, 4, "{all}");
    });
}

#[test]
fn pre_settled_messages_get_no_answer_and_are_there() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        let t = world[c].sender_with(
            0,
            "settled",
            "q",
            SenderTerms { snd: SenderSettleMode::Settled, ..SenderTerms::default() },
        );
        world.run();
        world[c].send_as(s, number(1), true, 0);
        world[c].send_as(t, number(2), true, 0);
        world.run();
        assert!(world[c].links[s].outcomes.is_empty() && world[c].links[t].outcomes.is_empty());
        let r = world[c].receiver("q", 10);
        world.run();
        assert_eq!(world[c].numbers(r), [1, 2]);
    });
}

#[test]
fn order_holds_per_producer() {
    each(|world| {
        let (a, b, c) = (world.client("a"), world.client("b"), world.client("c"));
        let (sa, sb) = (world[a].sender("q"), world[b].sender("q"));
        world.run();
        for n in 0..300 {
            let durable = n % 3 != 0;
            world[a].send(sa, Msg::new(n).durable(durable).bytes());
            world[b].send(sb, Msg::new(1000 + n).durable(!durable).bytes());
        }
        world.run();
        let r = world[c].receiver("q", 1000);
        world.run();
        let numbers = world[c].numbers(r);
        let of = |low: bool| numbers.iter().copied().filter(|n| (*n < 1000) == low).collect::<Vec<_>>();
        assert_eq!(of(true), (0..300).collect::<Vec<_>>());
        assert_eq!(of(false), (1000..1300).collect::<Vec<_>>());
    });
}

#[test]
fn higher_priorities_first_and_above_nine_is_nine() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        for (n, priority) in [(1, 0), (2, 4), (3, 9), (4, 255), (5, 9)] {
            world[c].send(s, Msg::new(n).priority(priority).bytes());
        }
        world[c].send(s, number(6));
        world.run();
        let r = world[c].receiver("q", 10);
        world.run();
        assert_eq!(world[c].numbers(r), [3, 4, 5, 2, 6, 1]);
        let said: Vec<_> = world[c].links[r].got.iter().map(|got| got.header().priority).collect();
        assert_eq!(said, [Some(9), Some(255), Some(9), Some(4), None, Some(0)], "priorities leave as they came");
    });
}

#[test]
fn sequence_4_settle_second_in() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach(&packhorse_amqp10::codec::Attach {
            name: "s",
            role: Role::Sender,
            rcv_settle_mode: ReceiverSettleMode::Second,
            source: Some(packhorse_amqp10::codec::Source::default()),
            target: Some(packhorse_amqp10::codec::AttachTarget::Target(packhorse_amqp10::codec::Target {
                address: Some("q"),
                ..packhorse_amqp10::codec::Target::default()
            })),
            initial_delivery_count: Some(0),
            ..packhorse_amqp10::codec::Attach::default()
        });
        world.run();
        world[p].said();
        world.hold_store();
        world[p].transfer(0, 3, &number(1));
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        world.flush();
        assert_eq!(world[p].said(), ["disp(3, accepted)"]);
        let done = Disposition {
            role: Role::Sender,
            first: 3,
            last: None,
            settled: true,
            state: Some(DeliveryState::Accepted),
            batchable: false,
        };
        world[p].frame(0, |out| done.encode(out));
        world.run();
        assert_eq!(world[p].said(), [""; 0]);
        // Its id and tag are free again.
        world[p].transfer(0, 3, &number(2));
        world.free_store();
        assert_eq!(world[p].said(), ["disp(3, accepted)"]);
        // A delivery may ask for first.
        let tag = [9];
        let transfer = Transfer {
            handle: 0,
            delivery_id: Some(4),
            delivery_tag: Some(&tag),
            rcv_settle_mode: Some(ReceiverSettleMode::First),
            ..Transfer::default()
        };
        world[p].transfer_as(&transfer, &number(3));
        world.run();
        assert_eq!(world[p].said(), ["disp(4, accepted, settled)"]);
    });
}

#[test]
fn garbage_is_rejected_and_the_link_goes_on() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        world[p].transfer(0, 0, b"");
        world[p].transfer(0, 1, b"\xde\xad\xbe\xef");
        world[p].transfer(0, 2, &number(1));
        world.run();
        assert_eq!(
            world[p].said(),
            [
                "disp(0, rejected amqp:decode-error, settled)",
                "disp(1, rejected amqp:decode-error, settled)",
                "disp(2, accepted, settled)"
            ],
            "an empty payload is no message"
        );
        assert_eq!(world.queue("q").counters.ready, 1);
    });
}

#[test]
fn garbage_that_is_settled_ends_the_link() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        let transfer = Transfer {
            handle: 0,
            delivery_id: Some(0),
            delivery_tag: Some(b"t"),
            settled: Some(true),
            ..Transfer::default()
        };
        world[p].transfer_as(&transfer, b"\x00\x53\x75");
        world.run();
        assert_eq!(world[p].said(), ["detach 0 closed amqp:decode-error"]);
    });
}

#[test]
fn a_transaction_that_is_not_known_is_rejected_or_ends_the_link() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t1", outcome: None });
        let transfer = Transfer {
            handle: 0,
            delivery_id: Some(0),
            delivery_tag: Some(b"t"),
            state: Some(state),
            ..Transfer::default()
        };
        world[p].transfer_as(&transfer, &number(1));
        world[p].transfer(0, 1, &number(2));
        world.run();
        assert_eq!(
            world[p].said(),
            ["disp(0, rejected amqp:transaction:unknown-id, settled)", "disp(1, accepted, settled)"]
        );
        let transfer = Transfer { settled: Some(true), delivery_id: Some(2), ..transfer };
        world[p].transfer_as(&transfer, &number(3));
        world.run();
        assert_eq!(world[p].said(), ["detach 0 closed amqp:transaction:unknown-id"]);
        assert_eq!(world.queue("q").counters.ready, 1);
    });
}

#[test]
fn sequence_8_an_aborted_delivery_gets_no_answer() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "q");
        world.run();
        world[p].said();
        let first = Transfer {
            handle: 0,
            delivery_id: Some(5),
            delivery_tag: Some(b"five"),
            more: true,
            ..Transfer::default()
        };
        world[p].transfer_as(&first, &number(1)[..5]);
        world[p].transfer_as(&Transfer { handle: 0, aborted: true, ..Transfer::default() }, b"");
        world[p].transfer(0, 6, &number(2));
        world.run();
        assert_eq!(world[p].said(), ["disp(6, accepted, settled)"]);
        assert_eq!(world.queue("q").counters.ready, 1);
    });
}

#[test]
fn credit_is_renewed_and_bounded_by_bytes() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        for n in 0..6000 {
            world[c].send_as(s, Msg::new(n).durable(false).bytes(), true, 0);
        }
        world.run();
        assert_eq!(world[c].unsent(s), 0, "credit was renewed");
        for n in 0..200 {
            world[c].send_as(s, Msg::new(n).length(100_000).durable(false).bytes(), true, 0);
        }
        world.run();
        let credit = world[c].engine.credit(world[c].links[s].id);
        assert!(credit < 200, "8 MiB over the mean size: {credit}");
        assert!(credit >= 1);
    });
}
