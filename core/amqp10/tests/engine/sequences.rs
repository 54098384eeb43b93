//! The twelve sequences of the rules, as scripts. `>` is what the peer sends, `<` what we send.

use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

#[test]
fn sequence_1_pipelining() {
    let mut rig = Rig::raw_server(config());
    let all = [
        SASL_PROTOCOL_HEADER.to_vec(),
        sasl_frame(|out| SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out)),
        PROTOCOL_HEADER.to_vec(),
        perform(0, Open { container_id: "c", ..Open::default() }),
        perform(0, begin()),
        perform(0, sender("s", 0)),
    ]
    .concat();
    rig.feed(&all);
    assert_eq!(rig.seen(), ["init(ANONYMOUS, None)"]);
    rig.conn.sasl_outcome(SaslCode::Ok, None).unwrap();
    // Once for the open, once more behind our answer to it.
    rig.feed(&[]);
    rig.feed(&[]);
    assert_eq!(
        rig.out(),
        [
            "SASL",
            "mechanisms(PLAIN ANONYMOUS)",
            "outcome(Ok)",
            "AMQP",
            "open",
            "begin(0 answers 0)",
            "attach(s Receiver)",
            "flow(0: 0, 10)"
        ]
    );
}

#[test]
fn sequence_2_sole_connection_refused() {
    let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    rig.answer = false;
    let sole = Symbols::one("sole-connection-for-container");
    let open = Open { container_id: "c", desired_capabilities: sole, ..Open::default() };
    rig.feed(&[&PROTOCOL_HEADER[..], &perform(0, open)].concat());
    let mut map = Vec::new();
    ValueWriter::map(&mut map, |w| {
        put_symbol(w.next(), "amqp:connection-establishment-failed");
        put_boolean(w.next(), true);
    });
    let properties = Some(Map::from_encoded(&map, &packhorse_amqp10::Limits::default()).unwrap());
    rig.conn.open(&Open { container_id: "us", properties, ..Open::default() }, 0).unwrap();
    let mut info = Vec::new();
    ValueWriter::map(&mut info, |w| {
        put_symbol(w.next(), "invalid-field");
        put_symbol(w.next(), "container-id");
    });
    let info = Some(Map::from_encoded(&info, &packhorse_amqp10::Limits::default()).unwrap());
    rig.conn.close(Some(&Error { condition: "amqp:invalid-field", description: None, info }), 0).unwrap();
    assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:invalid-field)"]);
    rig.send(Close::default());
    assert!(rig.conn.wants_close());
}

#[test]
fn sequence_3_refused_attach() {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Refuse;
    rig.feed(&[perform(0, sender("s", 0)), with_payload(0, first(0, 0), b"x")].concat());
    assert_eq!(rig.out(), ["attach(s Receiver no source no target)", "detach(0 closed amqp:not-found)"]);
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.seen(), ["attach(s Receiver)", "detached(closed - answered)"]);
}

#[test]
fn sequence_4_rcv_settle_mode_second_both_ways() {
    let mut rig = Rig::server();
    rig.send(Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..receiver("out", 0) });
    rig.send(Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..sender("in", 1) });
    rig.send(link_flow(0, 0, 10));
    rig.out();
    rig.seen();
    rig.conn.send(rig.links[0], &SendParams::default(), &[Piece::Copy(b"x")]).unwrap();
    assert_eq!(rig.out(), ["transfer(0 0 1)"]);
    rig.send(disposition(Role::Receiver, 0, 0, false, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Accepted)"]);
    rig.conn.settle_outgoing(rig.sessions[0], 0).unwrap();
    assert_eq!(rig.out(), ["disp(sent 0, none, settled)"]);

    rig.transfer(first(1, 3), "x");
    rig.conn.settle_incoming(rig.links[1], 3, Some(&DeliveryState::Accepted), false).unwrap();
    assert_eq!(rig.out(), ["disp(received 3, accepted)"]);
    rig.seen();
    rig.send(disposition(Role::Sender, 3, 3, true, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), ["outcomes(of theirs: 3 Accepted settled)"]);
    assert_eq!(rig.out(), [""; 0]);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 0);
}

/// A server that has sent `sent` deliveries on handle 0.
fn after(sent: u32) -> (Rig, LinkId) {
    let mut rig = Rig::server();
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, sent));
    let link = rig.links[0];
    for _ in 0..sent {
        rig.conn.send(link, &SendParams { settled: true, ..SendParams::default() }, &[]).unwrap();
    }
    rig.out();
    rig.seen();
    (rig, link)
}

#[test]
fn sequence_5_drain_with_two_ready_then_with_credit_0() {
    let (mut rig, link) = after(10);
    rig.send(Flow { drain: true, ..link_flow(0, 10, 5) });
    for _ in 0..2 {
        rig.conn.send(link, &SendParams::default(), &[]).unwrap();
    }
    rig.conn.drained(link).unwrap();
    assert_eq!(rig.out(), ["transfer(0 10 0)", "transfer(0 11 0)", "flow(0: 15, 0 drain)"]);
    rig.send(Flow { drain: true, ..link_flow(0, 15, 0) });
    assert_eq!(rig.seen().last().unwrap(), "credit(0 drain)");
    rig.conn.drained(link).unwrap();
    assert_eq!(rig.out(), ["flow(0: 15, 0 drain)"]);
}

#[test]
fn sequence_6_a_stale_flow_grants_nothing() {
    let (mut rig, link) = after(10);
    rig.send(link_flow(0, 10, 3));
    for _ in 0..3 {
        rig.conn.send(link, &SendParams::default(), &[]).unwrap();
    }
    rig.send(link_flow(0, 10, 2));
    assert_eq!(rig.conn.credit(link), 0);
    assert!(!rig.conn.sendable(link));
    rig.send(link_flow(0, 13, 4));
    for _ in 0..4 {
        rig.conn.send(link, &SendParams::default(), &[]).unwrap();
    }
    assert_eq!(rig.conn.send(link, &SendParams::default(), &[]), Err(Misuse::NotSendable));
}

#[test]
fn sequence_7_the_delivery_count_wraps() {
    // Our count reaches the last number by a drain of nearly all credit there is.
    let (mut rig, link) = after(0);
    rig.send(Flow { drain: true, ..link_flow(0, 0, u32::MAX) });
    rig.conn.drained(link).unwrap();
    assert_eq!(rig.out(), ["flow(0: 4294967295, 0 drain)"]);
    rig.send(link_flow(0, u32::MAX, 2));
    for _ in 0..2 {
        rig.conn.send(link, &SendParams::default(), &[]).unwrap();
    }
    assert_eq!(rig.conn.delivery_count(link), Some(1));
    assert!(!rig.conn.sendable(link));

    // And theirs.
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Accept(2);
    rig.send(Attach { initial_delivery_count: Some(u32::MAX), ..sender("in", 0) });
    assert_eq!(rig.out(), ["attach(in Receiver)", "flow(0: 4294967295, 2)"]);
    rig.transfer(first(0, 0), "a");
    rig.transfer(first(0, 1), "b");
    assert_eq!(rig.conn.delivery_count(rig.links[0]), Some(1));
    rig.transfer(first(0, 2), "c");
    assert_eq!(rig.seen().last().unwrap(), "link failed(amqp:link:transfer-limit-exceeded)");
}

#[test]
fn sequence_8_an_aborted_delivery_gets_no_outcome_and_the_next_does() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    rig.transfer(more(first(0, 5)), "half");
    rig.transfer(Transfer { aborted: true, ..next(0) }, "");
    rig.transfer(first(0, 6), "whole");
    let link = rig.links[0];
    assert_eq!(rig.conn.settle_incoming(link, 5, Some(&DeliveryState::Accepted), true), Ok(false));
    assert_eq!(rig.conn.settle_incoming(link, 6, Some(&DeliveryState::Accepted), true), Ok(true));
    assert_eq!(rig.out(), ["disp(received 6, accepted, settled)"]);
}

#[test]
fn sequence_9_a_link_stolen_by_a_second_connection() {
    let mut old = Rig::server();
    let mut new = Rig::server();
    for rig in [&mut old, &mut new] {
        rig.on_attach = OnAttach::Leave;
    }
    old.send(receiver("n", 0));
    old.conn.accept_link(old.links[0], &old.reply.clone()).unwrap();
    old.out();
    new.send(receiver("n", 0));
    // The front end found the older link of the same container.
    old.conn.steal(old.links[0]).unwrap();
    assert_eq!(old.out(), ["detach(0 closed amqp:link:stolen)"]);
    new.conn.accept_link(new.links[0], &new.reply.clone()).unwrap();
    assert_eq!(new.out(), ["attach(n Sender from 0)"]);
}

#[test]
fn sequence_10_acks_right_before_close_all_count() {
    let (mut rig, link) = after(0);
    rig.send(link_flow(0, 0, 10));
    for token in 0..10 {
        rig.conn.send(link, &SendParams { token, ..SendParams::default() }, &[]).unwrap();
    }
    rig.out();
    rig.seen();
    let acks = perform(0, disposition(Role::Receiver, 4, 9, true, Some(DeliveryState::Accepted)));
    rig.feed(&[acks, perform(0, Close::default())].concat());
    let told: Vec<u64> = rig.outcomes.iter().map(|outcome| outcome.token).collect();
    assert_eq!(told, [4, 5, 6, 7, 8, 9]);
    assert_eq!(rig.seen().last().unwrap(), "closed(-)");
    assert_eq!(rig.out(), ["close(-)"]);
    assert!(rig.conn.wants_close());
}

#[test]
fn sequence_11_we_kept_no_map_so_the_client_sends_anew() {
    let mut rig = Rig::server();
    rig.reply.empty_unsettled = true;
    let map = [0xc1, 0x06, 0x02, 0xa0, 0x02, b't', b'1', 0x40];
    let unsettled = Some(Map::from_encoded(&map, &packhorse_amqp10::Limits::default()).unwrap());
    rig.send(Attach { unsettled, ..sender("n", 0) });
    let bytes = rig.bytes();
    let answer = Attach::decode(&bytes[8..], &packhorse_amqp10::Limits::default()).unwrap().0;
    assert_eq!(answer.unsettled, Some(Map::default()));
    assert_eq!(
        answer
            .target
            .map(|target| matches!(target, AttachTarget::Target(t) if t.durable == TerminusDurability::default())),
        Some(true)
    );
    rig.transfer(Transfer { delivery_tag: Some(b"t1"), ..first(0, 0) }, "again");
    assert_eq!(rig.seen()[1], "transfer(0 first last \"again\")");
}

#[test]
fn sequence_12_unsubscribe_by_a_look_up() {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Leave;
    rig.send(Attach { source: None, ..receiver("sub|global", 0) });
    let held = LinkReply { source: source("topic"), target: target("here"), ..LinkReply::default() };
    rig.conn.accept_link(rig.links[0], &held).unwrap();
    assert_eq!(rig.out(), ["attach(sub|global Sender from 0)"]);
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.out(), ["detach(0 closed -)"]);
}
