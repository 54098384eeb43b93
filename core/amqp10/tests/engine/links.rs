//! Rules of links: attach, refusal, detach, names, handles, recovery.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

fn decode_attach(bytes: &[u8]) -> Attach<'_> {
    Attach::decode(&bytes[8..], &Limits::default()).unwrap().0
}

#[test]
fn r2_6_1_a_name_attached_again_steals_the_link() {
    let mut rig = Rig::server();
    rig.send(receiver("n", 0));
    rig.send(link_flow(0, 0, 1));
    rig.conn.send(rig.links[0], &SendParams { token: 5, ..SendParams::default() }, &[Piece::Copy(b"x")]).unwrap();
    rig.out();
    rig.seen();
    rig.send(receiver("n", 1));
    assert_eq!(rig.seen(), ["attach(n Sender steals)"]);
    assert_eq!(rig.out(), ["detach(0 closed amqp:link:stolen)", "attach(n Sender from 0)"]);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Sender), 0);
    // The other role under the same name is another link.
    rig.send(sender("n", 2));
    assert_eq!(rig.seen(), ["attach(n Receiver)"]);
    // The old handle is busy until they detach.
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.seen(), ["detached(closed - answered)"]);
    rig.send(receiver("m", 0));
    assert_eq!(rig.seen(), ["attach(m Sender)"]);
}

#[test]
fn r2_6_1_steal_tells_the_old_link() {
    let mut rig = Rig::server();
    rig.send(sender("n", 0));
    rig.out();
    rig.conn.steal(rig.links[0]).unwrap();
    assert_eq!(rig.out(), ["detach(0 closed amqp:link:stolen)"]);
    assert_eq!(rig.conn.steal(rig.links[0]), Err(Misuse::NoLink));
}

#[test]
fn r2_8_4_a_handle_is_free_again_after_both_detaches() {
    let mut rig = Rig::server();
    rig.send(sender("a", 7));
    rig.send(sender("b", 7));
    assert_eq!(rig.out().last().unwrap(), "close(amqp:session:handle-in-use)");

    let mut rig = Rig::server();
    rig.answer = false;
    rig.send(sender("a", 7));
    rig.send(Detach { handle: 7, closed: true, error: None });
    rig.transfer(first(7, 0), "x");
    assert_eq!(rig.out().last().unwrap(), "end(amqp:session:unattached-handle)");

    let mut rig = Rig::server();
    rig.send(sender("a", 7));
    rig.send(Detach { handle: 7, closed: true, error: None });
    rig.send(sender("b", 7));
    assert_eq!(rig.out(), ["attach(a Receiver)", "detach(0 closed -)", "attach(b Receiver)", "flow(0: 0, 10)"]);
}

#[test]
fn r2_8_17_an_unknown_handle_ends_the_session() {
    let frames = [
        perform(0, Detach { handle: 3, closed: true, error: None }),
        perform(0, link_flow(3, 0, 1)),
        with_payload(0, first(3, 0), b"x"),
    ];
    for bytes in frames {
        let mut rig = Rig::server();
        rig.feed(&bytes);
        assert_eq!(rig.out(), ["end(amqp:session:unattached-handle)"]);
        assert_eq!(rig.seen(), ["session failed(amqp:session:unattached-handle)"]);
    }
}

#[test]
fn r2_7_2_handles_stay_below_handle_max_and_links_are_capped() {
    let limits = Limits { handle_max: 5, links: 2, ..Limits::default() };
    let open = || Open { container_id: "p", ..Open::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, open());
    rig.send(sender("a", 6));
    assert_eq!(rig.out(), ["close(amqp:connection:framing-error)"]);

    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, open());
    rig.send(sender("a", 5));
    rig.send(sender("b", 4));
    rig.send(sender("c", 3));
    assert_eq!(rig.out().last().unwrap(), "end(amqp:resource-limit-exceeded)");

    // Theirs binds ours.
    let mut rig = Rig::server();
    rig.feed(&perform(1, Begin { handle_max: 0, ..begin() }));
    let session = rig.sessions[1];
    rig.conn.attach(session, &sender("x", 0), 0).unwrap();
    assert_eq!(rig.conn.attach(session, &sender("y", 0), 0), Err(Misuse::Full));
    rig.feed(&perform(1, sender("z", 0)));
    assert_eq!(rig.out().last().unwrap(), "end(amqp:resource-limit-exceeded)");
}

#[test]
fn r2_6_3_a_refusal_is_a_null_terminus_and_at_once_a_detach() {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Refuse;
    rig.send(sender("in", 0));
    rig.transfer(first(0, 0), "in flight");
    rig.send(receiver("out", 1));
    rig.send(Flow { next_outgoing_id: 1, ..link_flow(1, 0, 5) });
    let out = rig.out();
    assert_eq!(
        out,
        [
            "attach(in Receiver no source no target)",
            "detach(0 closed amqp:not-found)",
            "attach(out Sender no source no target from 0)",
            "detach(1 closed amqp:not-found)",
        ]
    );
    assert_eq!(rig.seen(), ["attach(in Receiver)", "attach(out Sender)"]);
    rig.send(Detach { handle: 0, closed: true, error: None });
    rig.send(Detach { handle: 1, closed: true, error: None });
    assert_eq!(rig.seen(), ["detached(closed - answered)", "detached(closed - answered)"]);
    assert_eq!(rig.out(), [""; 0]);
}

#[test]
fn r2_6_3_a_client_sees_a_refusal_for_both_roles() {
    let mut rig = Rig::client();
    let session = rig.sessions[0];
    rig.conn.attach(session, &sender("s", 0), 1).unwrap();
    rig.conn.attach(session, &receiver("r", 0), 2).unwrap();
    rig.conn.attach(session, &sender("ok", 0), 3).unwrap();
    assert_eq!(rig.out(), ["attach(s Sender from 0)", "attach(r Receiver)", "attach(ok Sender from 0)"]);
    rig.feed(&perform(5, Attach { target: None, ..receiver("s", 8) }));
    rig.feed(&perform(
        5,
        Detach { handle: 8, closed: true, error: Some(Error { condition: "amqp:not-found", ..Error::default() }) },
    ));
    rig.feed(&perform(5, Attach { source: None, initial_delivery_count: None, ..sender("r", 9) }));
    rig.feed(&perform(5, Detach { handle: 9, closed: true, error: None }));
    rig.feed(&perform(5, receiver("ok", 8)));
    assert_eq!(
        rig.seen(),
        [
            "attach(s Sender answer refused)",
            "detached(closed amqp:not-found)",
            "attach(r Receiver answer refused)",
            "detached(closed -)",
            "attach(ok Sender answer)",
        ]
    );
    assert_eq!(rig.out(), ["detach(0 closed -)", "detach(1 closed -)"]);
}

#[test]
fn r2_6_3_a_look_up_has_no_terminus_and_its_null_answer_is_no_refusal() {
    let mut rig = Rig::client();
    let lookup = Attach { source: None, ..receiver("sub", 0) };
    rig.conn.attach(rig.sessions[0], &lookup, 0).unwrap();
    assert_eq!(rig.out(), ["attach(sub Receiver no source)"]);
    rig.feed(&perform(5, sender("sub", 0)));
    assert_eq!(rig.seen(), ["attach(sub Receiver answer)"]);
}

#[test]
fn r2_7_3_initial_delivery_count_is_given_and_needed() {
    let mut rig = Rig::server();
    rig.send(receiver("out", 0));
    assert_eq!(rig.out(), ["attach(out Sender from 0)"]);
    rig.seen();
    rig.send(Attach { initial_delivery_count: None, ..sender("in", 1) });
    assert_eq!(rig.out(), ["attach(in Receiver no source no target)", "detach(1 closed amqp:invalid-field)"]);
    assert_eq!(rig.seen(), [""; 0]);
    rig.send(Attach { initial_delivery_count: Some(4_294_967_290), ..sender("high", 2) });
    assert_eq!(rig.out(), ["attach(high Receiver)", "flow(2: 4294967290, 10)"]);

    let mut rig = Rig::client();
    let link = rig.conn.attach(rig.sessions[0], &receiver("r", 0), 0).unwrap();
    rig.feed(&perform(5, Attach { initial_delivery_count: None, ..sender("r", 0) }));
    assert_eq!(rig.seen(), ["link failed(amqp:invalid-field)"]);
    assert_eq!(rig.conn.grant(link, 1), Err(Misuse::NoLink));
    assert_eq!(rig.out(), ["attach(r Receiver)", "detach(0 closed amqp:invalid-field)"]);
}

#[test]
fn r2_7_3_settle_modes_are_answered_as_asked() {
    for snd in [SenderSettleMode::Unsettled, SenderSettleMode::Settled, SenderSettleMode::Mixed] {
        for rcv in [ReceiverSettleMode::First, ReceiverSettleMode::Second] {
            for peer in [sender("n", 0), receiver("n", 0)] {
                let mut rig = Rig::server();
                rig.send(Attach { snd_settle_mode: snd, rcv_settle_mode: rcv, ..peer });
                let bytes = rig.bytes();
                let answer = decode_attach(&bytes);
                assert_eq!((answer.snd_settle_mode, answer.rcv_settle_mode), (snd, rcv));
                assert_eq!(rig.conn.settle_modes(rig.links[0]), Some((snd, rcv)));
            }
        }
    }
}

#[test]
fn r2_7_3_a_client_learns_the_modes_that_belong_to_the_other_side() {
    let mut rig = Rig::client();
    let session = rig.sessions[0];
    let ours = Attach {
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..sender("s", 0)
    };
    let link = rig.conn.attach(session, &ours, 0).unwrap();
    let theirs = Attach {
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::First,
        max_message_size: Some(9),
        ..receiver("s", 0)
    };
    rig.feed(&perform(5, theirs));
    assert_eq!(rig.conn.settle_modes(link), Some((SenderSettleMode::Unsettled, ReceiverSettleMode::First)));
    assert_eq!(rig.conn.peer_max_message_size(link), Some(9));
    assert_eq!(rig.conn.link_role(link), Some(Role::Sender));
    assert_eq!(rig.conn.link_name(link), Some("s"));
    assert_eq!(rig.conn.link_session(link), Some(session));
}

#[test]
fn r2_6_13_no_unsettled_delivery_was_kept_and_the_answer_says_so() {
    let map = [0xc1, 0x05, 0x02, 0xa0, 0x01, b't', 0x40];
    let unsettled = Some(Map::from_encoded(&map, &Limits::default()).unwrap());
    let mut rig = Rig::server();
    rig.reply.empty_unsettled = true;
    rig.send(Attach { unsettled, ..sender("n", 0) });
    let bytes = rig.bytes();
    assert_eq!(decode_attach(&bytes).unsettled, Some(Map::default()));
    rig.send(sender("m", 1));
    let bytes = rig.bytes();
    assert_eq!(decode_attach(&bytes).unsettled, None);
}

#[test]
fn r2_7_5_a_resumed_delivery_is_unknown_here_and_passed_over() {
    let mut rig = Rig::server();
    rig.send(sender("n", 0));
    rig.out();
    rig.seen();
    rig.transfer(more(Transfer { resume: true, ..first(0, 0) }), "a");
    rig.transfer(next(0), "b");
    rig.transfer(first(0, 1), "c");
    assert_eq!(rig.seen(), ["transfer(1 first last \"c\")"]);
    assert_eq!(rig.conn.credit(rig.links[0]), 8);
    assert_eq!(rig.conn.unsettled(rig.sessions[0], Role::Receiver), 1);
}

#[test]
fn r2_7_3_with_an_incomplete_map_only_resumes_may_come() {
    let mut rig = Rig::server();
    rig.send(Attach { incomplete_unsettled: true, ..sender("n", 0) });
    rig.out();
    rig.seen();
    rig.transfer(Transfer { resume: true, ..first(0, 0) }, "a");
    assert_eq!(rig.seen(), [""; 0]);
    rig.transfer(first(0, 1), "b");
    assert_eq!(rig.seen(), ["link failed(amqp:not-allowed)"]);
}

#[test]
fn a_link_name_past_the_limit_is_refused_and_not_held() {
    let mut rig = Rig::server();
    let long = "n".repeat(1025);
    rig.send(sender(&long, 0));
    let out = rig.out();
    assert_eq!(out.len(), 2);
    assert!(out[0].ends_with(" Receiver no source no target)"));
    assert_eq!(out[1], "detach(0 closed amqp:resource-limit-exceeded)");
    assert_eq!(rig.seen(), [""; 0]);
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.seen(), ["detached(closed - answered)"]);
    rig.send(sender(&long[1..], 0));
    assert_eq!(rig.out()[0], format!("attach({} Receiver)", &long[1..]));
}

#[test]
fn r2_6_6_the_answer_to_a_detach_comes_from_the_caller_once() {
    let mut rig = Rig::server();
    rig.answer = false;
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(first(0, 0), "x");
    rig.seen();
    rig.send(Detach { handle: 0, closed: false, error: None });
    assert_eq!(rig.seen(), ["detached(suspended -)"]);
    let link = rig.links[0];
    assert_eq!(rig.conn.grant(link, 1), Err(Misuse::WrongState));
    // What is decided now goes out before our detach; after it nothing does.
    assert_eq!(rig.conn.settle_incoming(link, 0, Some(&DeliveryState::Accepted), true), Ok(true));
    rig.conn.detach(link, false, None).unwrap();
    assert_eq!(rig.conn.detach(link, false, None), Err(Misuse::NoLink));
    assert_eq!(rig.conn.settle_incoming(link, 0, Some(&DeliveryState::Accepted), true), Err(Misuse::NoLink));
    assert_eq!(rig.out(), ["disp(received 0, accepted, settled)", "detach(0 -)"]);
}

#[test]
fn r2_6_6_a_link_suspended_attaches_again_under_its_name() {
    let mut rig = Rig::server();
    rig.send(receiver("sub", 0));
    rig.send(Detach { handle: 0, closed: false, error: None });
    rig.send(receiver("sub", 0));
    assert_eq!(rig.seen(), ["attach(sub Sender)", "detached(suspended -)", "attach(sub Sender)"]);
    assert_ne!(rig.links[0], rig.links[1]);
    assert_eq!(rig.conn.link_token(rig.links[0]), None);
    assert_eq!(rig.conn.link_token(rig.links[1]), Some(101));
}

#[test]
fn r2_6_5_after_our_error_detach_what_is_in_flight_is_dropped() {
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Accept(1);
    rig.send(sender("in", 0));
    rig.send(sender("other", 1));
    rig.out();
    rig.transfer(first(0, 0), "a");
    rig.transfer(first(0, 1), "past the credit");
    rig.transfer(first(0, 2), "in flight");
    rig.send(Flow { echo: true, next_outgoing_id: 3, ..link_flow(0, 3, 0) });
    rig.transfer(first(1, 3), "innocent");
    assert_eq!(
        rig.seen()[2..],
        [
            "transfer(0 first last \"a\")",
            "link failed(amqp:link:transfer-limit-exceeded)",
            "transfer(3 first last \"innocent\")",
        ]
    );
    assert_eq!(rig.out(), ["detach(0 closed amqp:link:transfer-limit-exceeded)"]);
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.seen(), ["detached(closed - answered)"]);
}

#[test]
fn an_attach_that_the_caller_leaves_open_is_answered_whatever_comes() {
    // Detached by the peer first.
    let mut rig = Rig::server();
    rig.on_attach = OnAttach::Leave;
    rig.send(sender("a", 0));
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.seen(), ["attach(a Receiver)", "detached(closed -)"]);
    assert_eq!(rig.out(), ["attach(a Receiver no source no target)", "detach(0 closed -)"]);
    // Accepted after the peer's detach.
    rig.answer = false;
    rig.send(sender("a", 0));
    rig.send(Detach { handle: 0, closed: true, error: None });
    assert_eq!(rig.conn.accept_link(rig.links[1], &LinkReply::default()), Err(Misuse::WrongState));
    rig.conn.detach(rig.links[1], true, None).unwrap();
    rig.out();
    // A transfer that nobody granted.
    rig.seen();
    rig.send(sender("b", 0));
    rig.transfer(first(0, 0), "x");
    assert_eq!(rig.seen(), ["attach(b Receiver)", "link failed(amqp:link:transfer-limit-exceeded)"]);
    assert_eq!(
        rig.out(),
        ["attach(b Receiver no source no target)", "detach(0 closed amqp:link:transfer-limit-exceeded)"]
    );
    // Stolen.
    rig.send(sender("c", 1));
    rig.send(sender("c", 2));
    assert_eq!(rig.out(), ["attach(c Receiver no source no target)", "detach(1 closed amqp:link:stolen)"]);
    assert_eq!(rig.conn.accept_link(rig.links[3], &LinkReply::default()), Err(Misuse::NoLink));
    rig.conn.accept_link(rig.links[4], &rig.reply.clone()).unwrap();
    assert_eq!(rig.conn.accept_link(rig.links[4], &rig.reply.clone()), Err(Misuse::WrongState));
    assert_eq!(rig.conn.refuse_link(rig.links[4], &Error::default()), Err(Misuse::WrongState));
}

#[test]
fn a_client_names_a_link_once_and_detaches_before_the_answer() {
    let mut rig = Rig::client();
    let session = rig.sessions[0];
    let link = rig.conn.attach(session, &sender("s", 0), 0).unwrap();
    assert_eq!(rig.conn.attach(session, &sender("s", 0), 0), Err(Misuse::NameInUse));
    rig.conn.detach(link, true, None).unwrap();
    assert_eq!(rig.conn.attach(session, &sender("s", 0), 0), Err(Misuse::NameInUse));
    rig.feed(&perform(5, receiver("s", 3)));
    assert_eq!(rig.seen(), [""; 0]);
    rig.feed(&perform(5, link_flow(3, 0, 10)));
    rig.feed(&perform(5, Detach { handle: 3, closed: true, error: None }));
    assert_eq!(rig.seen(), ["detached(closed - answered)"]);
    rig.conn.attach(session, &sender("s", 0), 0).unwrap();
    assert_eq!(rig.out(), ["attach(s Sender from 0)", "detach(0 closed -)", "attach(s Sender from 0)"]);
}

#[test]
fn r2_8_17_a_performative_that_fits_no_frame_ends_the_session() {
    let open = Open { container_id: "p", max_frame_size: 512, ..Open::default() };
    let mut rig = Rig::server_with(config(), open);
    rig.on_attach = OnAttach::Leave;
    rig.send(sender("in", 0));
    let long: &'static str = Box::leak("x".repeat(600).into_boxed_str());
    let reply = LinkReply { target: target(long), ..LinkReply::default() };
    assert_eq!(rig.conn.accept_link(rig.links[0], &reply), Err(Misuse::FrameTooSmall));
    assert_eq!(rig.out(), ["end(amqp:session:frame-size-too-small)"]);
    rig.seen();
    rig.feed(&[]);
    assert_eq!(rig.seen(), ["session failed(amqp:session:frame-size-too-small)"]);
}

#[test]
fn commands_on_links_of_the_wrong_kind_change_nothing() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.send(receiver("out", 1));
    rig.out();
    let (input, output) = (rig.links[0], rig.links[1]);
    assert_eq!(rig.conn.grant(output, 1), Err(Misuse::WrongRole));
    assert_eq!(rig.conn.drain(output), Err(Misuse::WrongRole));
    assert_eq!(rig.conn.drained(input), Err(Misuse::WrongRole));
    assert_eq!(rig.conn.set_available(input, 1), Err(Misuse::WrongRole));
    assert_eq!(rig.conn.send(input, &SendParams::default(), &[]), Err(Misuse::WrongRole));
    assert_eq!(rig.conn.send(output, &SendParams::default(), &[]), Err(Misuse::NotSendable));
    assert_eq!(rig.conn.send_chunk(output, Piece::Copy(b"x"), true), Err(Misuse::WrongState));
    assert_eq!(rig.conn.abort_delivery(output), Err(Misuse::WrongState));
    assert_eq!(rig.conn.settle_incoming(input, 5, None, true), Ok(false));
    assert_eq!(rig.conn.settle_outgoing(rig.sessions[0], 5), Ok(false));
    assert_eq!(rig.out(), [""; 0]);
}
