//! Rules of transfers and dispositions.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

/// A server that receives on handle 0, its attach altered by `with`.
fn receiving(with: impl FnOnce(Attach<'static>) -> Attach<'static>) -> (Rig, LinkId) {
    let mut rig = Rig::server();
    rig.send(with(sender("in", 0)));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    (rig, link)
}

/// A server that sends on handle 0 with credit 100.
fn sending(reply: LinkReply<'static>, with: impl FnOnce(Attach<'static>) -> Attach<'static>) -> (Rig, LinkId) {
    let mut rig = Rig::server();
    rig.reply = reply;
    rig.send(with(receiver("out", 0)));
    rig.send(link_flow(0, 0, 100));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    (rig, link)
}

fn plain() -> LinkReply<'static> {
    LinkReply { source: source("q"), target: target("here"), ..LinkReply::default() }
}

fn send(rig: &mut Rig, link: LinkId, token: u64) -> u32 {
    rig.conn.send(link, &SendParams { token, ..SendParams::default() }, &[Piece::Copy(b"x")]).unwrap()
}

/// What becomes of the link when these frames come.
fn verdict(frames: &[(Transfer<'_>, &str)], with: impl FnOnce(Attach<'static>) -> Attach<'static>) -> String {
    let (mut rig, _) = receiving(with);
    for (transfer, payload) in frames {
        rig.transfer(*transfer, payload);
    }
    let last = rig.seen().pop().unwrap();
    let out = rig.out();
    if let Some(condition) = last.strip_prefix("link failed(") {
        assert_eq!(out, [format!("detach(0 closed {condition}")]);
    } else {
        assert_eq!(out, [""; 0]);
    }
    assert_eq!(rig.conn.phase(), Phase::Open);
    last
}

const INVALID: &str = "link failed(amqp:invalid-field)";

#[test]
fn r2_7_5_the_first_frame_has_id_and_tag_and_no_format_is_0() {
    assert_eq!(verdict(&[(Transfer { delivery_id: None, ..first(0, 0) }, "x")], |a| a), INVALID);
    assert_eq!(verdict(&[(Transfer { delivery_tag: None, ..first(0, 0) }, "x")], |a| a), INVALID);
    assert_eq!(verdict(&[(first(0, 0), "x")], |a| a), "transfer(0 first last \"x\")");
}

#[test]
fn r2_7_5_the_event_has_tag_format_state_and_flags() {
    let mut conn = Connection::server(ServerConfig { allow_bare: true, ..config() }, 0);
    let mut partial = Vec::new();
    let attach = perform(0, sender("in", 0));
    let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t1", outcome: None });
    let transfer = Transfer {
        delivery_tag: Some(b"tag"),
        message_format: Some(5),
        state: Some(state),
        batchable: true,
        ..first(0, 9)
    };
    let bytes = [
        PROTOCOL_HEADER.to_vec(),
        perform(0, Open { container_id: "p", ..Open::default() }),
        perform(0, begin()),
        attach,
        with_payload(0, transfer, b"body"),
    ]
    .concat();
    let mut input = Input { partial: &mut partial, fresh: &bytes };
    let mut found = false;
    while let Some(event) = conn.next(&mut input, 0).unwrap() {
        match event {
            Event::Opened(_) => conn.open(&Open { container_id: "us", ..Open::default() }, 0).unwrap(),
            Event::Attach(attach) => {
                conn.accept_link(attach.link, &plain()).unwrap();
                conn.set_link_token(attach.link, 11).unwrap();
                conn.grant(attach.link, 1).unwrap();
                conn.flush(0);
            }
            Event::Transfer(t) => {
                assert_eq!((t.tag, t.format, t.payload, t.token), (&b"tag"[..], 5, &b"body"[..], 11));
                assert!(t.batchable && !t.resume && t.settle_first);
                assert_eq!(t.state, Some(state));
                found = true;
            }
            _ => {}
        }
    }
    assert!(found);
    assert!(std::mem::size_of::<Event<'_>>() <= 256, "{}", std::mem::size_of::<Event<'_>>());
}

#[test]
fn r2_6_14_continuations_say_the_same_or_nothing() {
    let begun = (more(first(0, 4)), "a");
    assert_eq!(verdict(&[begun, (first(0, 4), "b")], |a| a), "transfer(4 last \"b\")");
    assert_eq!(verdict(&[begun, (next(0), "b")], |a| a), "transfer(4 last \"b\")");
    assert_eq!(verdict(&[begun, (Transfer { delivery_id: Some(5), ..next(0) }, "b")], |a| a), INVALID);
    assert_eq!(verdict(&[begun, (Transfer { delivery_tag: Some(b"other"), ..next(0) }, "b")], |a| a), INVALID);
    assert_eq!(verdict(&[begun, (Transfer { message_format: Some(1), ..next(0) }, "b")], |a| a), INVALID);
    assert_eq!(
        verdict(&[begun, (Transfer { message_format: Some(0), ..next(0) }, "b")], |a| a),
        "transfer(4 last \"b\")"
    );
}

#[test]
fn r2_7_5_settled_is_inherited_and_may_come_late_but_never_goes() {
    let (mut rig, _) = receiving(|a| a);
    rig.transfer(more(settled(first(0, 0))), "a");
    rig.transfer(next(0), "b");
    rig.transfer(more(first(0, 1)), "c");
    rig.transfer(settled(next(0)), "d");
    assert_eq!(
        rig.seen(),
        [
            "transfer(0 first settled \"a\")",
            "transfer(0 last settled \"b\")",
            "transfer(1 first \"c\")",
            "transfer(1 last settled \"d\")",
        ]
    );
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 0);
    let back = Transfer { settled: Some(false), ..next(0) };
    assert_eq!(verdict(&[(more(settled(first(0, 0))), "a"), (back, "b")], |a| a), INVALID);
}

#[test]
fn r2_7_5_the_frames_settle_mode_only_turns_second_into_first() {
    let second = |a| Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..a };
    let mode = |mode, t| Transfer { rcv_settle_mode: Some(mode), ..t };
    assert_eq!(verdict(&[(mode(ReceiverSettleMode::Second, first(0, 0)), "x")], |a| a), INVALID);
    let fine = "transfer(0 first last \"x\")";
    assert_eq!(verdict(&[(mode(ReceiverSettleMode::Second, first(0, 0)), "x")], second), fine);
    assert_eq!(verdict(&[(mode(ReceiverSettleMode::First, first(0, 0)), "x")], second), fine);
    let turned = more(mode(ReceiverSettleMode::First, first(0, 0)));
    assert_eq!(verdict(&[(turned, "x"), (mode(ReceiverSettleMode::Second, next(0)), "y")], second), INVALID);
}

#[test]
fn r2_7_5_the_links_settle_mode_binds_its_deliveries() {
    let unsettled = |a| Attach { snd_settle_mode: SenderSettleMode::Unsettled, ..a };
    let settle = |a| Attach { snd_settle_mode: SenderSettleMode::Settled, ..a };
    assert_eq!(verdict(&[(settled(first(0, 0)), "x")], unsettled), INVALID);
    assert_eq!(verdict(&[(first(0, 0), "x")], unsettled), "transfer(0 first last \"x\")");
    let given_up = Transfer { settled: Some(true), aborted: true, ..next(0) };
    assert_eq!(
        verdict(&[(more(first(0, 0)), "x"), (given_up, "")], unsettled),
        "transfer(0 last settled aborted \"\")"
    );
    assert_eq!(verdict(&[(first(0, 0), "x")], settle), INVALID);
    assert_eq!(verdict(&[(more(first(0, 0)), "x"), (settled(next(0)), "y")], settle), "transfer(0 last settled \"y\")");

    let (mut rig, link) = sending(plain(), settle);
    assert_eq!(rig.conn.send(link, &SendParams::default(), &[]), Err(Misuse::SettleMode));
    rig.conn.send(link, &SendParams { settled: true, ..SendParams::default() }, &[]).unwrap();
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
    let (mut rig, link) = sending(plain(), unsettled);
    assert_eq!(
        rig.conn.send(link, &SendParams { settled: true, ..SendParams::default() }, &[]),
        Err(Misuse::SettleMode)
    );
}

#[test]
fn r2_8_7_tags_are_short_and_unique_while_unsettled() {
    let long = [7; 33];
    let tagged = |id, tag| Transfer { delivery_tag: Some(tag), ..first(0, id) };
    assert_eq!(verdict(&[(tagged(0, &long), "x")], |a| a), "link failed(amqp:not-allowed)");
    assert_eq!(verdict(&[(tagged(0, &long[..32]), "x")], |a| a), "transfer(0 first last \"x\")");
    assert_eq!(verdict(&[(tagged(0, b"t"), "x"), (tagged(1, b"t"), "y")], |a| a), "link failed(amqp:not-allowed)");
    assert_eq!(
        verdict(&[(settled(tagged(0, b"t")), "x"), (tagged(1, b"t"), "y")], |a| a),
        "transfer(1 first last \"y\")"
    );

    let (mut rig, link) = receiving(|a| a);
    rig.transfer(tagged(0, b"t"), "x");
    rig.conn.settle_incoming(link, 0, Some(&DeliveryState::Accepted), true).unwrap();
    rig.transfer(tagged(1, b"t"), "y");
    assert_eq!(rig.seen().len(), 2);
    // Another link has its own.
    rig.send(sender("in2", 1));
    rig.out();
    rig.transfer(Transfer { delivery_tag: Some(b"t"), ..first(1, 2) }, "z");
    assert_eq!(rig.seen().last().unwrap(), "transfer(2 first last \"z\")");
}

#[test]
fn r2_6_12_ids_of_the_peer_may_be_any_not_in_use_and_ours_are_consecutive() {
    let (mut rig, link) = receiving(|a| a);
    for id in [7, 3, u32::MAX, 0x8000_0000, 4] {
        rig.transfer(first(0, id), "x");
    }
    assert_eq!(rig.seen().len(), 5);
    for id in [3, 7, 4, u32::MAX, 0x8000_0000] {
        assert_eq!(rig.conn.settle_incoming(link, id, Some(&DeliveryState::Accepted), true), Ok(true));
    }
    assert_eq!(
        verdict(&[(first(0, 7), "x"), (Transfer { delivery_tag: Some(b"u"), ..first(0, 7) }, "y")], |a| a),
        INVALID
    );

    let (mut rig, a) = sending(plain(), |a| a);
    rig.send(receiver("two", 1));
    rig.send(link_flow(1, 0, 10));
    let b = rig.links[1];
    // A delivery that waits for its first frame has no id yet.
    rig.conn.begin_delivery(a, &SendParams::default()).unwrap();
    assert_eq!(send(&mut rig, b, 0), 0);
    rig.conn.send_chunk(a, Piece::Copy(b"y"), true).unwrap();
    assert_eq!(send(&mut rig, b, 0), 2);
    assert_eq!(rig.out()[1..], ["transfer(1 0 1)", "transfer(0 1 1)", "transfer(1 2 1)"]);
}

#[test]
fn r2_7_5_aborted_beats_more_and_payload() {
    let aborted = |t| Transfer { aborted: true, ..t };
    let (mut rig, _) = receiving(|a| a);
    rig.transfer(more(first(0, 0)), "a");
    rig.transfer(aborted(more(next(0))), "b");
    rig.transfer(first(0, 1), "c");
    rig.transfer(aborted(first(0, 2)), "d");
    assert_eq!(
        rig.seen(),
        [
            "transfer(0 first \"a\")",
            "transfer(0 last aborted \"\")",
            "transfer(1 first last \"c\")",
            "transfer(2 first last aborted \"\")",
        ]
    );
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 1);
    assert_eq!(rig.out(), [""; 0]);
}

#[test]
fn r2_7_5_a_detach_midway_aborts() {
    let (mut rig, _) = receiving(|a| a);
    rig.transfer(more(first(0, 0)), "a");
    rig.send(Detach { handle: 0, closed: false, error: None });
    assert_eq!(rig.seen()[1], "detached(suspended - midway)");
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 0);

    let (mut rig, link) = sending(plain(), |a| a);
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.send_chunk(link, Piece::Copy(b"a"), false).unwrap();
    rig.conn.detach(link, false, None).unwrap();
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
}

#[test]
fn r2_7_5_an_abort_waits_for_the_window() {
    let mut rig = Rig::server();
    rig.send(receiver("out", 0));
    rig.send(Flow { incoming_window: 1, ..link_flow(0, 0, 9) });
    let link = rig.links[0];
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.send_chunk(link, Piece::Copy(b"a"), false).unwrap();
    rig.conn.abort_delivery(link).unwrap();
    assert_eq!(rig.conn.abort_delivery(link), Err(Misuse::WrongState));
    assert!(!rig.conn.sendable(link));
    assert_eq!(rig.out()[1..], ["transfer(0 0 more 1)"]);
    rig.send(Flow { next_incoming_id: Some(1), incoming_window: 2, ..Flow::default() });
    assert!(rig.conn.sendable(link));
    assert_eq!(rig.out(), ["transfer(0 0 aborted 0)"]);
}

#[test]
fn r2_7_3_the_message_size_is_checked_as_bytes_arrive() {
    let mut rig = Rig::server();
    rig.reply.max_message_size = 10;
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(first(0, 0), "0123456789");
    rig.transfer(more(first(0, 1)), "012345");
    rig.transfer(more(next(0)), "67890");
    rig.transfer(next(0), "in flight");
    assert_eq!(rig.seen()[3..], ["link failed(amqp:link:message-size-exceeded)"]);
    assert_eq!(rig.out(), ["detach(0 closed amqp:link:message-size-exceeded)"]);
    assert_eq!(rig.received, b"0123456789012345");
}

#[test]
fn r2_7_3_their_message_size_is_obeyed_and_0_is_no_limit() {
    let (mut rig, link) = sending(plain(), |a| Attach { max_message_size: Some(4), ..a });
    assert_eq!(
        rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"12"), Piece::Copy(b"345")]),
        Err(Misuse::TooLarge)
    );
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"12"), Piece::Copy(b"34")]).unwrap();
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    assert_eq!(rig.conn.send_chunk(link, Piece::Copy(b"123"), false).unwrap().consumed, 3);
    assert_eq!(rig.conn.send_chunk(link, Piece::Copy(b"45"), true), Err(Misuse::TooLarge));
    rig.conn.abort_delivery(link).unwrap();
    let (mut rig, link) = sending(plain(), |a| Attach { max_message_size: Some(0), ..a });
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(&[0; 5000])]).unwrap();
}

#[test]
fn r2_8_7_our_tags_are_short_or_the_callers() {
    let (mut rig, link) = sending(plain(), |a| a);
    for bad in [&b""[..], &[0; 33]] {
        assert_eq!(
            rig.conn.send(link, &SendParams { tag: Some(bad), ..SendParams::default() }, &[]),
            Err(Misuse::BadTag)
        );
    }
    rig.conn.send(link, &SendParams::default(), &[]).unwrap();
    let tag = rig.bytes();
    let tag = Transfer::decode(&tag[8..], &Limits::default()).unwrap().0.delivery_tag.unwrap().to_vec();
    assert!(!tag.is_empty() && tag.len() <= 12);
    rig.conn.send(link, &SendParams { tag: Some(b"mine"), ..SendParams::default() }, &[]).unwrap();
    let bytes = rig.bytes();
    assert_eq!(Transfer::decode(&bytes[8..], &Limits::default()).unwrap().0.delivery_tag, Some(&b"mine"[..]));
}

#[test]
fn r2_7_6_a_disposition_of_role_receiver_speaks_of_what_we_sent() {
    let (mut rig, link) = sending(plain(), |a| a);
    for token in 0..4 {
        send(&mut rig, link, 50 + token);
    }
    // Role sender means nothing to them, and a range of nearly all ids costs what is outstanding.
    rig.send(disposition(Role::Sender, 0, 3, true, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), [""; 0]);
    rig.send(disposition(Role::Receiver, 0x8000_0002, 1, true, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Accepted settled, 1 Accepted settled)"]);
    assert_eq!((rig.outcomes[1].token, rig.outcomes[1].link, rig.outcomes[1].link_token), (51, link, 100));
    // Unknown or settled already: nothing.
    rig.send(disposition(Role::Receiver, 0, 1, true, Some(DeliveryState::Released)));
    rig.send(disposition(Role::Receiver, 17, 90, true, None));
    assert_eq!(rig.seen(), [""; 0]);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 2);
}

#[test]
fn r2_7_6_first_after_last_ends_the_session() {
    let (mut rig, _) = sending(plain(), |a| a);
    rig.send(disposition(Role::Receiver, 5, 4, true, None));
    assert_eq!(rig.out(), ["end(amqp:invalid-field)"]);
}

#[test]
fn r3_4_received_or_no_state_changes_nothing_and_a_terminal_one_is_final() {
    let (mut rig, link) = sending(plain(), |a| a);
    send(&mut rig, link, 1);
    let tell = |rig: &mut Rig, settled, state| rig.send(disposition(Role::Receiver, 0, 0, settled, state));
    tell(&mut rig, false, None);
    tell(&mut rig, false, Some(DeliveryState::Received(Received { section_number: 1, section_offset: 0 })));
    assert_eq!(rig.seen(), [""; 0]);
    tell(&mut rig, false, Some(DeliveryState::Released));
    tell(&mut rig, false, Some(DeliveryState::Accepted));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Released)"]);
    tell(&mut rig, true, Some(DeliveryState::Accepted));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Released settled repeated)"]);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
}

#[test]
fn r3_5_3_settled_without_a_state_is_the_default_outcome_or_released() {
    let (mut rig, link) = sending(plain(), |a| a);
    send(&mut rig, link, 1);
    rig.send(disposition(Role::Receiver, 0, 0, true, None));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Released settled)"]);

    let outcome = Outcome::Modified(Modified { delivery_failed: true, ..Modified::default() });
    let source = Some(Source { default_outcome: Some(outcome), ..source("q").unwrap() });
    let (mut rig, link) = sending(LinkReply { source, ..plain() }, |a| a);
    send(&mut rig, link, 1);
    rig.send(disposition(Role::Receiver, 0, 0, true, None));
    assert_eq!(
        rig.seen(),
        ["outcomes(of ours: 0 Modified { delivery_failed: true, undeliverable_here: false } settled)"]
    );
}

#[test]
fn r3_5_3_an_outcome_outside_the_sources_is_not_allowed() {
    let source =
        Some(Source { outcomes: Symbols::from_slice(&[Accepted::SYMBOL, Rejected::SYMBOL]), ..source("q").unwrap() });
    let (mut rig, link) = sending(LinkReply { source, ..plain() }, |a| a);
    rig.send(receiver("other", 1));
    rig.send(link_flow(1, 0, 5));
    rig.reply = plain();
    rig.send(receiver("free", 2));
    rig.send(link_flow(2, 0, 5));
    rig.out();
    rig.seen();
    send(&mut rig, link, 1);
    let free = rig.links[2];
    send(&mut rig, free, 2);
    rig.out();
    rig.send(disposition(Role::Receiver, 0, 0, true, Some(DeliveryState::Accepted)));
    send(&mut rig, link, 3);
    rig.out();
    rig.seen();
    rig.send(disposition(Role::Receiver, 1, 2, true, Some(DeliveryState::Released)));
    assert_eq!(rig.seen(), ["outcomes(of ours: 1 Released settled)", "link failed(amqp:not-allowed)"]);
    assert_eq!(rig.out(), ["detach(0 closed amqp:not-allowed)"]);
}

#[test]
fn r2_8_3_mode_first_settles_once_and_mode_second_waits_for_the_sender() {
    let (mut rig, link) = receiving(|a| Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..a });
    rig.transfer(first(0, 3), "x");
    rig.conn.set_incoming_token(link, 3, 33).unwrap();
    assert_eq!(rig.conn.settle_incoming(link, 3, Some(&DeliveryState::Accepted), false), Ok(true));
    assert_eq!(rig.out(), ["disp(received 3, accepted)"]);
    rig.seen();
    rig.send(disposition(Role::Sender, 3, 3, true, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), ["outcomes(of theirs: 3 Accepted settled)"]);
    assert_eq!((rig.outcomes[0].token, rig.outcomes[0].link), (33, link));
    assert_eq!(rig.conn.settle_incoming(link, 3, Some(&DeliveryState::Accepted), true), Ok(false));
    assert_eq!(rig.out(), [""; 0]);
    // Its tag is free again.
    rig.transfer(Transfer { delivery_id: Some(4), ..first(0, 3) }, "y");
    assert_eq!(rig.seen(), ["transfer(4 first last \"y\")"]);

    let (mut rig, link) = sending(plain(), |a| Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..a });
    send(&mut rig, link, 1);
    rig.out();
    rig.send(disposition(Role::Receiver, 0, 0, false, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Accepted)"]);
    assert_eq!(rig.conn.settle_outgoing(rig.sessions[0], 0), Ok(true));
    assert_eq!(rig.conn.settle_outgoing(rig.sessions[0], 0), Ok(false));
    assert_eq!(rig.out(), ["disp(sent 0, none, settled)"]);
}

#[test]
fn r2_7_6_adjacent_equal_states_make_one_range() {
    let (mut rig, link) = receiving(|a| a);
    for id in 0..9 {
        rig.transfer(first(0, id), "x");
    }
    let accepted = DeliveryState::Accepted;
    let error = Error { condition: "amqp:decode-error", description: Some("why"), info: None };
    let rejected = DeliveryState::Rejected(Rejected { error: Some(error) });
    let modified = DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() });
    for (id, state) in
        [(0, accepted), (1, accepted), (2, accepted), (3, rejected), (4, rejected), (6, modified), (5, accepted)]
    {
        rig.conn.settle_incoming(link, id, Some(&state), true).unwrap();
    }
    rig.conn.settle_incoming(link, 7, Some(&accepted), true).unwrap();
    rig.conn.settle_incoming(link, 8, Some(&accepted), false).unwrap();
    assert!(rig.conn.needs_flush());
    assert_eq!(
        rig.out(),
        [
            "disp(received 0-2, accepted, settled)",
            "disp(received 3-4, rejected amqp:decode-error, settled)",
            "disp(received 6, modified true false, settled)",
            "disp(received 5, accepted, settled)",
            "disp(received 7, accepted, settled)",
            "disp(received 8, accepted)",
        ]
    );
    assert!(!rig.conn.needs_flush());
}

#[test]
fn r2_7_6_no_range_crosses_the_wrap() {
    let (mut rig, link) = receiving(|a| a);
    for id in [u32::MAX - 1, u32::MAX, 0, 1] {
        rig.transfer(first(0, id), "x");
    }
    for id in [u32::MAX - 1, u32::MAX, 0, 1] {
        rig.conn.settle_incoming(link, id, Some(&DeliveryState::Accepted), true).unwrap();
    }
    assert_eq!(
        rig.out(),
        ["disp(received 4294967294-4294967295, accepted, settled)", "disp(received 0-1, accepted, settled)"]
    );
}

#[test]
fn r2_7_6_dispositions_for_a_suspended_link_still_apply_and_for_a_closed_one_not() {
    for closed in [false, true] {
        let (mut rig, link) = sending(plain(), |a| a);
        send(&mut rig, link, 9);
        rig.send(Detach { handle: 0, closed, error: None });
        rig.seen();
        rig.send(disposition(Role::Receiver, 0, 0, true, Some(DeliveryState::Accepted)));
        let seen = rig.seen();
        if closed {
            assert_eq!(seen, [""; 0]);
        } else {
            assert_eq!(seen, ["outcomes(of ours: 0 Accepted settled)"]);
            assert_eq!(rig.outcomes[0].token, 9);
        }
    }
    let (mut rig, link) = sending(plain(), |a| a);
    send(&mut rig, link, 9);
    rig.send(Detach { handle: 0, closed: false, error: None });
    rig.conn.forget_deliveries(rig.sessions[0], link);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
}

#[test]
fn the_deliveries_of_a_closed_link_are_forgotten() {
    let (mut rig, link) = receiving(|a| a);
    rig.transfer(first(0, 0), "x");
    rig.conn.detach(link, true, None).unwrap();
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 0);

    let (mut rig, link) = sending(plain(), |a| a);
    rig.conn.begin_delivery(link, &SendParams::default()).unwrap();
    rig.conn.send_chunk(link, Piece::Copy(b"x"), true).unwrap();
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 1);
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
}

#[test]
fn a_long_error_never_hinders_a_disposition() {
    let mut rig = Rig::server_with(config(), Open { container_id: "p", max_frame_size: 512, ..Open::default() });
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(first(0, 0), "x");
    let long = "y".repeat(900);
    let error = Error { condition: "amqp:not-found", description: Some(&long), info: None };
    let state = DeliveryState::Rejected(Rejected { error: Some(error) });
    rig.conn.settle_incoming(rig.links[0], 0, Some(&state), true).unwrap();
    assert_eq!(rig.out(), ["disp(received 0, rejected amqp:not-found, settled)"]);
}

#[test]
fn r2_8_11_other_message_formats_pass_as_they_are() {
    let (mut rig, _) = receiving(|a| a);
    rig.transfer(Transfer { message_format: Some(0x1234_5600), ..first(0, 0) }, "\u{1}odd");
    assert_eq!(rig.seen(), ["transfer(0 first last \"\\u{1}odd\")"]);
    let (mut rig, link) = sending(plain(), |a| a);
    rig.conn
        .send(link, &SendParams { format: 0x1234_5600, ..SendParams::default() }, &[Piece::Copy(b"\x01odd")])
        .unwrap();
    let bytes = rig.bytes();
    let (transfer, payload) = Transfer::decode(&bytes[8..], &Limits::default()).unwrap();
    assert_eq!((transfer.message_format, payload), (Some(0x1234_5600), &b"\x01odd"[..]));
}

#[test]
fn a_transfer_on_a_link_that_the_peer_receives_on_is_not_allowed() {
    let (mut rig, _) = sending(plain(), |a| a);
    rig.transfer(first(0, 0), "x");
    assert_eq!(rig.out(), ["detach(0 closed amqp:not-allowed)"]);
}

#[test]
fn r4_4_transactional_states_are_told_each_time_with_their_fields() {
    let (mut rig, link) = sending(plain(), |a| a);
    send(&mut rig, link, 1);
    let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: Some(Outcome::Accepted) });
    rig.send(disposition(Role::Receiver, 0, 0, false, Some(state)));
    rig.send(disposition(Role::Receiver, 0, 0, true, Some(state)));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Transactional)", "outcomes(of ours: 0 Transactional settled)"]);
}
