//! Rules of credit: grants, stale flows, drain, echo, counts.

use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

/// A server with one link on which it sends.
fn sending() -> (Rig, LinkId) {
    let mut rig = Rig::server();
    rig.send(receiver("out", 0));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    (rig, link)
}

fn send(rig: &mut Rig, link: LinkId) {
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"x")]).unwrap();
}

/// A server with one link on which it receives, with this credit.
fn receiving(credit: u32) -> (Rig, LinkId) {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Accept(credit);
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    (rig, link)
}

#[test]
fn r2_6_7_credit_is_their_count_plus_their_credit_minus_ours() {
    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5));
    assert_eq!(rig.seen(), ["credit(5)"]);
    send(&mut rig, link);
    send(&mut rig, link);
    assert_eq!(rig.conn.credit(link), 3);
    rig.send(link_flow(0, 1, 5));
    assert_eq!(rig.seen(), ["credit(4)"]);
    rig.send(link_flow(0, 0, 1));
    assert_eq!(rig.seen(), ["credit(0)"]);
    assert!(!rig.conn.sendable(link));
    // Null count: our initial one.
    rig.send(Flow { delivery_count: None, ..link_flow(0, 0, 4) });
    assert_eq!(rig.seen(), ["credit(2)"]);
    // The greatest credit is no negative number.
    rig.send(link_flow(0, 2, u32::MAX));
    assert_eq!(rig.conn.credit(link), u32::MAX);
}

#[test]
fn r2_7_4_a_flow_without_credit_keeps_the_old_one() {
    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5));
    send(&mut rig, link);
    rig.send(Flow { link_credit: None, delivery_count: Some(1), ..link_flow(0, 0, 0) });
    assert_eq!(rig.conn.credit(link), 4);
}

#[test]
fn r2_7_4_flows_before_the_link_is_accepted_count() {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Leave;
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, 5));
    let link = rig.links[0];
    assert!(!rig.conn.sendable(link));
    rig.conn.accept_link(link, &rig.reply.clone()).unwrap();
    assert!(rig.conn.sendable(link));
    assert_eq!(rig.conn.credit(link), 5);
}

#[test]
fn r2_6_7_drain_is_answered_behind_what_is_ready_and_with_credit_0_too() {
    let (mut rig, link) = sending();
    rig.send(Flow { drain: true, ..link_flow(0, 0, 5) });
    assert_eq!(rig.seen(), ["credit(5 drain)"]);
    assert!(rig.conn.draining(link));
    send(&mut rig, link);
    rig.conn.drained(link).unwrap();
    assert!(!rig.conn.draining(link));
    assert_eq!(rig.out(), ["transfer(0 0 1)", "flow(0: 5, 0 drain)"]);
    rig.send(Flow { drain: true, ..link_flow(0, 5, 0) });
    rig.conn.drained(link).unwrap();
    assert_eq!(rig.out(), ["flow(0: 5, 0 drain)"]);
    rig.send(link_flow(0, 5, 2));
    assert_eq!(rig.conn.credit(link), 2);
}

#[test]
fn r2_6_7_never_drain_with_credit_left() {
    let (mut rig, _) = sending();
    rig.send(Flow { drain: true, echo: true, ..link_flow(0, 0, 5) });
    assert_eq!(rig.out(), ["flow(0: 0, 5)"]);
}

#[test]
fn r2_7_4_echo_is_answered_once_without_echo() {
    let (mut rig, _) = sending();
    rig.send(Flow { echo: true, ..link_flow(0, 0, 3) });
    assert_eq!(rig.out(), ["flow(0: 0, 3)"]);
    rig.send(Flow { echo: true, next_incoming_id: Some(0), incoming_window: 9, ..Flow::default() });
    assert_eq!(rig.out(), ["flow(in 0 window 2048)"]);
    let (mut rig, _) = receiving(4);
    rig.send(Flow { echo: true, ..link_flow(0, 0, 0) });
    assert_eq!(rig.out(), ["flow(0: 0, 4)"]);
    assert_eq!(rig.out(), [""; 0]);
}

#[test]
fn r2_6_7_available_is_told() {
    let (mut rig, link) = sending();
    rig.conn.set_available(link, 12).unwrap();
    rig.send(Flow { echo: true, ..link_flow(0, 0, 0) });
    let bytes = rig.bytes();
    let flow = Flow::decode(&bytes[8..], &packhorse_amqp10::Limits::default()).unwrap().0;
    assert_eq!(flow.available, Some(12));
    let (mut rig, _) = receiving(4);
    rig.send(Flow { available: Some(7), ..link_flow(0, 0, 4) });
    assert_eq!(rig.seen(), ["sender flow(7)"]);
}

#[test]
fn r2_6_7_counts_include_settled_and_aborted_deliveries() {
    let (mut rig, link) = receiving(10);
    rig.transfer(settled(first(0, 0)), "a");
    rig.transfer(more(first(0, 1)), "b");
    rig.transfer(Transfer { aborted: true, ..next(0) }, "");
    assert_eq!(rig.conn.delivery_count(link), Some(2));
    assert_eq!(rig.conn.credit(link), 8);

    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5));
    rig.conn.send(link, &SendParams { settled: true, ..SendParams::default() }, &[]).unwrap();
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.send_chunk(link, Piece::Copy(b"x"), false).unwrap();
    rig.conn.abort_delivery(link).unwrap();
    assert_eq!(rig.out(), ["transfer(0 0 settled 0)", "transfer(0 1 more 1)", "transfer(0 1 aborted 0)"]);
    assert_eq!((rig.conn.delivery_count(link), rig.conn.credit(link)), (Some(2), 3));
}

#[test]
fn r2_6_7_a_delivery_given_up_before_its_first_frame_never_was() {
    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5));
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.abort_delivery(link).unwrap();
    send(&mut rig, link);
    assert_eq!(rig.out(), ["transfer(0 0 1)"]);
    assert_eq!(rig.conn.credit(link), 4);
}

#[test]
fn r2_6_7_no_flow_of_ours_amid_a_delivery() {
    let (mut rig, link) = receiving(10);
    rig.transfer(more(first(0, 0)), "a");
    rig.conn.grant(link, 20).unwrap();
    assert_eq!(rig.out(), [""; 0]);
    rig.transfer(more(next(0)), "b");
    rig.send(Flow { echo: true, next_outgoing_id: 2, ..link_flow(0, 0, 0) });
    assert_eq!(rig.out(), [""; 0]);
    rig.transfer(next(0), "c");
    assert_eq!(rig.out(), ["flow(0: 1, 20)"]);

    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5));
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.send_chunk(link, Piece::Copy(b"x"), false).unwrap();
    rig.send(Flow { echo: true, drain: true, ..link_flow(0, 0, 5) });
    assert_eq!(rig.conn.drained(link), Err(Misuse::WrongState));
    assert_eq!(rig.out(), ["transfer(0 0 more 1)"]);
    rig.conn.send_chunk(link, Piece::Copy(b"x"), true).unwrap();
    rig.conn.drained(link).unwrap();
    assert_eq!(rig.out(), ["transfer(0 0 1)", "flow(0: 5, 0 drain)"]);
}

#[test]
fn r2_6_7_a_transfer_without_credit_is_a_fault_only_if_it_was_never_granted() {
    let (mut rig, link) = receiving(3);
    rig.transfer(first(0, 0), "a");
    // Lowered to nothing; two may still be in flight.
    rig.conn.grant(link, 0).unwrap();
    assert_eq!(rig.out(), ["flow(0: 1, 0)"]);
    rig.transfer(first(0, 1), "b");
    rig.transfer(first(0, 2), "c");
    rig.transfer(first(0, 3), "d");
    let seen = rig.seen();
    assert_eq!(
        seen[1..],
        [
            "transfer(1 first last \"b\")",
            "transfer(2 first last \"c\")",
            "link failed(amqp:link:transfer-limit-exceeded)"
        ]
    );
    assert_eq!(rig.out(), ["detach(0 closed amqp:link:transfer-limit-exceeded)"]);
}

#[test]
fn r2_6_7_a_grant_not_yet_told_is_not_credit() {
    let (mut rig, link) = receiving(1);
    rig.transfer(first(0, 0), "a");
    rig.conn.grant(link, 5).unwrap();
    rig.transfer(first(0, 1), "too early");
    assert_eq!(rig.seen()[1], "link failed(amqp:link:transfer-limit-exceeded)");
}

#[test]
fn r2_6_7_a_grant_counts_from_now_whatever_came_before_it_was_told() {
    let (mut rig, link) = receiving(3);
    rig.conn.grant(link, 5).unwrap();
    rig.transfer(first(0, 0), "a");
    rig.transfer(first(0, 1), "b");
    assert_eq!(rig.out(), ["flow(0: 2, 3)"]);
}

#[test]
fn r2_6_7_drain_of_ours_is_answered_by_their_count() {
    let (mut rig, link) = receiving(5);
    rig.conn.drain(link).unwrap();
    assert_eq!(rig.out(), ["flow(0: 0, 5 drain)"]);
    rig.transfer(first(0, 0), "a");
    rig.send(Flow { link_credit: Some(4), available: Some(3), ..link_flow(0, 1, 4) });
    assert_eq!(rig.seen()[1], "sender flow(3)");
    rig.send(Flow { drain: true, ..link_flow(0, 5, 0) });
    assert_eq!(rig.seen(), ["sender flow(0 drained)"]);
    rig.send(Flow { next_outgoing_id: 1, ..link_flow(0, 5, 0) });
    assert_eq!(rig.seen(), ["sender flow(0)"]);
    assert_eq!((rig.conn.credit(link), rig.conn.delivery_count(link)), (0, Some(5)));
    rig.conn.grant(link, 2).unwrap();
    assert_eq!(rig.out(), ["flow(0: 5, 2)"]);
    rig.transfer(first(0, 1), "b");
    assert_eq!(rig.seen(), ["transfer(1 first last \"b\")"]);
}

#[test]
fn r2_6_7_drain_of_ours_is_answered_by_deliveries_alone() {
    let (mut rig, link) = receiving(2);
    rig.conn.drain(link).unwrap();
    // Not told yet: what comes now is no answer.
    rig.transfer(first(0, 0), "a");
    assert_eq!(rig.seen(), ["transfer(0 first last \"a\")"]);
    assert_eq!(rig.out(), ["flow(0: 1, 1 drain)"]);
    rig.transfer(more(first(0, 1)), "b");
    assert_eq!(rig.seen(), ["transfer(1 first \"b\")"]);
    rig.transfer(next(0), "c");
    assert_eq!(rig.seen(), ["transfer(1 last \"c\")", "drained"]);
    rig.send(Flow { drain: true, next_outgoing_id: 3, ..link_flow(0, 2, 0) });
    assert_eq!(rig.seen(), ["sender flow(0)"]);
}

#[test]
fn r2_6_7_a_sender_that_counts_at_the_last_frame_moves_nothing_back() {
    let (mut rig, link) = receiving(5);
    rig.transfer(more(first(0, 0)), "a");
    rig.send(link_flow(0, 0, 5));
    rig.transfer(next(0), "b");
    assert_eq!(rig.conn.delivery_count(link), Some(1));
    assert_eq!(rig.conn.credit(link), 4);
}

#[test]
fn r2_6_7_a_client_may_grant_before_the_answer() {
    let mut rig = Rig::client();
    let link = rig.conn.attach(rig.sessions[0], &receiver("r", 0), 9).unwrap();
    rig.conn.grant(link, 3).unwrap();
    rig.conn.flush(0);
    rig.bytes();
    rig.feed(&perform(5, Attach { initial_delivery_count: Some(100), ..sender("r", 0) }));
    assert_eq!(rig.out(), ["flow(0: 100, 3)"]);
    for id in 0..3 {
        rig.feed(&with_payload(5, first(0, id), b"x"));
    }
    assert_eq!(rig.seen().len(), 4);
    rig.feed(&with_payload(5, first(0, 3), b"x"));
    assert_eq!(rig.seen(), ["link failed(amqp:link:transfer-limit-exceeded)"]);
}

#[test]
fn nothing_is_sendable_above_the_output_limit() {
    let (mut rig, link) = sending();
    rig.send(link_flow(0, 0, 5000));
    let body = bytes::Bytes::from(vec![0; 100_000]);
    let mut sent = 0;
    while rig.conn.sendable(link) {
        rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"head"), Piece::Share(&body)]).unwrap();
        sent += 1;
    }
    assert_eq!(sent, 11);
    assert_eq!(rig.conn.send(link, &SendParams::default(), &[]), Err(Misuse::NotSendable));
    rig.conn.advance_output(600_000);
    assert!(rig.conn.sendable(link));
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    let big = vec![0; 3 << 20];
    let sent = rig.conn.send_chunk(link, Piece::Copy(&big), true).unwrap();
    assert!(!sent.done && sent.consumed > 400_000 && sent.consumed < 600_000, "{sent:?}");
}

#[test]
fn nothing_is_sendable_with_too_many_unsettled() {
    let limits = packhorse_amqp10::Limits { unsettled: 2, ..packhorse_amqp10::Limits::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, Open { container_id: "p", ..Open::default() });
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, u32::MAX));
    let link = rig.links[0];
    send(&mut rig, link);
    send(&mut rig, link);
    assert!(!rig.conn.sendable(link));
    assert_eq!(rig.conn.begin_delivery(link, &SendParams::default()), Err(Misuse::NotSendable));
    rig.send(disposition(Role::Receiver, 0, 0, true, Some(DeliveryState::Accepted)));
    assert!(rig.conn.sendable(link));
}
