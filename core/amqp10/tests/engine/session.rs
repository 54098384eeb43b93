//! Rules of sessions: begin, end, windows.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

#[test]
fn r2_5_1_the_answer_names_their_channel_and_goes_out_on_any_of_ours() {
    let mut rig = Rig::server();
    rig.feed(&perform(9, begin()));
    rig.feed(&perform(4, begin()));
    assert_eq!(rig.out(), ["begin(1 answers 9)", "begin(2 answers 4)"]);
    rig.feed(&perform(9, End::default()));
    assert_eq!(rig.out(), ["end(-)"]);
    rig.feed(&perform(8, begin()));
    assert_eq!(rig.out(), ["begin(1 answers 8)"]);
}

#[test]
fn r2_5_1_begin_on_a_busy_channel_or_an_answer_to_nothing() {
    let mut rig = Rig::server();
    rig.send(begin());
    assert_eq!(rig.out(), ["close(amqp:illegal-state)"]);
    let mut rig = Rig::server();
    rig.feed(&perform(1, Begin { remote_channel: Some(0), ..begin() }));
    assert_eq!(rig.out(), ["close(amqp:invalid-field)"]);
    let mut rig = Rig::server();
    rig.feed(&perform(1, Begin { remote_channel: Some(17), ..begin() }));
    assert_eq!(rig.out(), ["close(amqp:invalid-field)"]);
}

#[test]
fn r2_5_1_a_frame_on_an_unmapped_channel() {
    let flow = Flow { next_incoming_id: Some(0), ..Flow::default() };
    let frames = [
        perform(1, flow),
        perform(1, End::default()),
        perform(1, sender("x", 0)),
        perform(1, Detach::default()),
        with_payload(1, first(0, 0), b"x"),
        perform(1, disposition(Role::Receiver, 0, 0, true, None)),
    ];
    for bytes in frames {
        let mut rig = Rig::server();
        rig.feed(&bytes);
        assert_eq!(rig.out(), ["close(amqp:not-allowed)"]);
    }
}

#[test]
fn r2_5_6_the_incoming_window_counts_frames_and_is_refreshed_when_half_used() {
    let mut rig = Rig::server_with(
        ServerConfig { incoming_window: 4, ..config() },
        Open { container_id: "p", ..Open::default() },
    );
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(more(first(0, 0)), "a");
    assert_eq!(rig.out(), [""; 0]);
    rig.transfer(more(next(0)), "b");
    assert_eq!(rig.out(), ["flow(in 2 window 4)"]);
    for _ in 0..4 {
        rig.transfer(more(next(0)), "c");
    }
    assert_eq!(rig.out(), ["flow(in 6 window 4)"]);
    rig.seen();
    for _ in 0..5 {
        rig.transfer(more(next(0)), "d");
    }
    let seen = rig.seen();
    assert_eq!(seen[4], "session failed(amqp:session:window-violation)");
    assert_eq!(rig.out(), ["end(amqp:session:window-violation)"]);
}

#[test]
fn r2_5_6_the_window_is_never_withheld_because_of_one_link() {
    let mut rig = Rig::server_with(
        ServerConfig { incoming_window: 8, ..config() },
        Open { container_id: "p", ..Open::default() },
    );
    rig.on_attach = OnAttach::Accept(100);
    rig.send(sender("a", 0));
    rig.send(sender("b", 1));
    rig.out();
    // Nothing of link a is settled or granted again; its frames, dropped or not, free the window.
    for id in 0..4 {
        rig.transfer(first(0, id), "x");
    }
    assert_eq!(rig.out(), ["flow(in 4 window 8)"]);
    rig.conn.detach(rig.links[0], true, None).unwrap();
    for id in 4..8 {
        rig.transfer(first(0, id), "dropped");
    }
    assert_eq!(rig.out(), ["detach(0 closed -)", "flow(in 8 window 8)"]);
}

#[test]
fn r2_5_6_we_send_within_their_window_which_is_serial_and_counts_frames() {
    let mut rig = Rig::server_with(config(), Open { container_id: "p", max_frame_size: 512, ..Open::default() });
    rig.send(receiver("out", 0));
    rig.send(Flow { incoming_window: 3, ..link_flow(0, 0, 100) });
    let link = rig.links[0];
    rig.out();
    assert_eq!(rig.conn.session_window(rig.sessions[0]), 3);
    // Two frames; a second such message would need two and finds one.
    assert!(rig.conn.fits(link, 600));
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(&[1; 600])]).unwrap();
    assert!(rig.conn.sendable(link));
    assert!(!rig.conn.fits(link, 600));
    assert_eq!(rig.conn.send(link, &SendParams::default(), &[Piece::Copy(&[1; 600])]), Err(Misuse::NotSendable));
    assert_eq!(rig.conn.credit(link), 99);
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"x")]).unwrap();
    assert!(!rig.conn.sendable(link));
    // Their flow crossed two frames: 1 + 5 − 3.
    rig.seen();
    rig.send(Flow { next_incoming_id: Some(1), incoming_window: 5, ..Flow::default() });
    assert_eq!(rig.seen(), ["session flow(window)"]);
    assert_eq!(rig.conn.session_window(rig.sessions[0]), 3);
    rig.send(Flow { next_incoming_id: Some(1), incoming_window: 1, ..Flow::default() });
    assert_eq!(rig.conn.session_window(rig.sessions[0]), 0);
    // Null: our first id.
    rig.send(Flow { next_incoming_id: None, incoming_window: 4, ..Flow::default() });
    assert_eq!(rig.conn.session_window(rig.sessions[0]), 1);
    rig.send(Flow { next_incoming_id: Some(u32::MAX), incoming_window: 10, ..Flow::default() });
    assert_eq!(rig.conn.session_window(rig.sessions[0]), 6);
}

#[test]
fn r2_5_6_their_next_outgoing_id_is_copied_and_their_transfer_ids_may_start_anywhere() {
    let mut rig = Rig::server();
    rig.feed(&perform(1, Begin { next_outgoing_id: u32::MAX, ..begin() }));
    rig.feed(&perform(1, sender("in", 0)));
    rig.out();
    rig.feed(&perform(
        1,
        Flow { next_incoming_id: Some(0), next_outgoing_id: u32::MAX, echo: true, ..Flow::default() },
    ));
    assert_eq!(rig.out(), ["flow(in 4294967295 window 2048)"]);
    rig.feed(&with_payload(1, first(0, 5), b"x"));
    rig.feed(&perform(1, Flow { next_incoming_id: Some(0), next_outgoing_id: 0, echo: true, ..Flow::default() }));
    assert_eq!(rig.out(), ["flow(in 0 window 2048)"]);
    // They jump: copied, and the window told anew.
    rig.feed(&perform(1, Flow { next_incoming_id: Some(0), next_outgoing_id: 50, ..Flow::default() }));
    assert_eq!(rig.out(), ["flow(in 50 window 2048)"]);
}

#[test]
fn r2_5_6_links_share_the_window_by_turns_and_other_links_go_in_between() {
    let mut rig = Rig::server_with(config(), Open { container_id: "p", max_frame_size: 512, ..Open::default() });
    rig.send(receiver("a", 0));
    rig.send(receiver("b", 1));
    rig.send(Flow { incoming_window: 2, ..link_flow(0, 0, 5) });
    rig.send(Flow { incoming_window: 2, ..link_flow(1, 0, 5) });
    rig.out();
    let (a, b) = (rig.links[0], rig.links[1]);
    let body = [1; 1200];
    rig.conn.begin_delivery(a, &SendParams::default()).unwrap();
    let sent = rig.conn.send_chunk(a, Piece::Copy(&body[..400]), false).unwrap();
    assert_eq!(sent, Sent { consumed: 400, done: false });
    rig.conn.send(b, &SendParams::default(), &[Piece::Copy(b"y")]).unwrap();
    let sent = rig.conn.send_chunk(a, Piece::Copy(&body[400..]), true).unwrap();
    assert_eq!(sent, Sent { consumed: 0, done: false });
    assert_eq!(rig.out(), ["transfer(0 0 more 400)", "transfer(1 1 1)"]);
    rig.send(Flow { next_incoming_id: Some(2), incoming_window: 2, ..Flow::default() });
    let sent = rig.conn.send_chunk(a, Piece::Copy(&body[400..]), true).unwrap();
    assert_eq!(sent, Sent { consumed: 800, done: true });
    let out = rig.out();
    assert_eq!(out.len(), 2);
    assert!(out[0].starts_with("transfer(0 0 more"), "{out:?}");
}

#[test]
fn r2_5_2_frames_before_their_end_count_and_we_settle_before_ours() {
    let mut rig = Rig::server();
    rig.answer = false;
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(first(0, 0), "x");
    rig.send(End::default());
    assert_eq!(rig.seen()[1..], ["transfer(0 first last \"x\")", "ended(-)"]);
    rig.conn.end(rig.sessions[0], None).unwrap();
    assert_eq!(rig.out(), ["end(-)"]);
    assert_eq!(rig.conn.end(rig.sessions[0], None), Err(Misuse::NoSession));
    assert_eq!(rig.conn.detach(rig.links[0], true, None), Err(Misuse::NoLink));

    let mut rig = Rig::server();
    rig.answer = false;
    rig.send(sender("in", 0));
    rig.out();
    rig.transfer(first(0, 0), "x");
    rig.send(End::default());
    rig.conn.settle_incoming(rig.links[0], 0, Some(&DeliveryState::Accepted), true).unwrap();
    rig.conn.end(rig.sessions[0], None).unwrap();
    assert_eq!(rig.out(), ["disp(received 0, accepted, settled)", "end(-)"]);
}

#[test]
fn r2_5_2_crossing_ends_answer_each_other() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.out();
    rig.conn.end(rig.sessions[0], None).unwrap();
    // Still theirs: dropped until their end.
    rig.transfer(first(0, 0), "x");
    rig.send(link_flow(0, 0, 1));
    rig.send(sender("in2", 1));
    rig.send(End::default());
    assert_eq!(rig.out(), ["end(-)"]);
    assert_eq!(rig.seen()[1..], ["ended(- answered)"]);
    rig.send(begin());
    assert_eq!(rig.out(), ["begin(0 answers 0)"]);
    rig.send(sender("in", 0));
    assert_eq!(rig.out(), ["attach(in Receiver)", "flow(0: 0, 10)"]);
}

#[test]
fn r2_5_4_after_our_end_with_error_input_is_dropped_until_theirs() {
    let mut rig = Rig::server();
    rig.send(Flow { handle: Some(9), ..link_flow(9, 0, 1) });
    assert_eq!(rig.seen(), ["session failed(amqp:session:unattached-handle)"]);
    rig.send(Flow { handle: Some(9), ..link_flow(9, 0, 1) });
    rig.transfer(first(9, 0), "x");
    assert_eq!(rig.out(), ["end(amqp:session:unattached-handle)"]);
    rig.send(End::default());
    assert_eq!(rig.seen(), ["ended(- answered)"]);
    rig.send(End::default());
    assert_eq!(rig.out(), ["close(amqp:not-allowed)"]);
}

#[test]
fn a_client_ends_a_session_before_it_was_answered() {
    let mut rig = Rig::client();
    let session = rig.conn.begin(5).unwrap();
    rig.conn.end(session, None).unwrap();
    rig.feed(&perform(6, Begin { remote_channel: Some(1), ..begin() }));
    assert_eq!(rig.seen(), [""; 0]);
    rig.feed(&perform(6, End::default()));
    assert_eq!(rig.seen(), ["ended(- answered)"]);
    assert_eq!(rig.out(), ["begin(1)", "end(-)"]);
    rig.conn.begin(6).unwrap();
    assert_eq!(rig.out(), ["begin(1)"]);
}

#[test]
fn sessions_are_capped() {
    let limits = Limits { sessions: 3, ..Limits::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, Open { container_id: "p", ..Open::default() });
    rig.feed(&perform(1, begin()));
    rig.feed(&perform(2, begin()));
    assert_eq!(rig.conn.begin(0), Err(Misuse::Full));
    rig.out();
    rig.feed(&perform(3, begin()));
    assert_eq!(rig.out(), ["close(amqp:resource-limit-exceeded)"]);
}

#[test]
fn tokens_stay_with_their_session() {
    let mut rig = Rig::server();
    let session = rig.sessions[0];
    assert_eq!(rig.conn.session_token(session), Some(0));
    rig.conn.set_session_token(session, 42).unwrap();
    assert_eq!(rig.conn.session_token(session), Some(42));
    rig.send(End::default());
    assert_eq!(rig.conn.session_token(session), None);
    assert_eq!(rig.conn.set_session_token(session, 1), Err(Misuse::NoSession));
}
