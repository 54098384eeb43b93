//! Rules of the connection: headers, SASL, open, close, limits, deadlines.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;

use crate::kit::*;

fn init() -> Vec<u8> {
    sasl_frame(|out| SaslInit { mechanism: "PLAIN", initial_response: Some(b"\0a\0b"), hostname: None }.encode(out))
}

fn open() -> Vec<u8> {
    perform(0, Open { container_id: "peer", ..Open::default() })
}

#[test]
fn r2_2_a_foreign_header_is_answered_with_ours() {
    for foreign in [*b"AMQP\x00\x00\x09\x01", *b"AMQP\x02\x01\x00\x00", *b"AMQP\x03\x01\x01\x00", *b"GET / HT"] {
        let mut rig = Rig::raw_server(config());
        rig.feed(&foreign);
        assert_eq!(rig.out(), ["SASL"], "{foreign:?}");
        assert_eq!(rig.seen(), ["fault(amqp:connection:framing-error, Header)"]);
        assert!(rig.conn.wants_close());
    }
}

#[test]
fn r2_2_a_foreign_header_shorter_than_eight_bytes_is_answered_at_once() {
    let mut rig = Rig::raw_server(config());
    rig.feed(b"AMQ");
    assert!(!rig.conn.wants_close());
    rig.feed(b"x");
    assert_eq!(rig.out(), ["SASL"]);
    assert!(rig.conn.wants_close());
}

#[test]
fn r2_2_tls_to_a_plain_port_is_answered_and_told_apart() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert_eq!(rig.out(), ["SASL"]);
    assert_eq!(rig.seen(), ["fault(amqp:connection:framing-error, TlsHello)"]);
}

#[test]
fn r2_2_a_bare_header_only_where_it_is_allowed() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&PROTOCOL_HEADER);
    assert_eq!(rig.out(), ["SASL"]);
    assert_eq!(rig.seen(), ["fault(amqp:unauthorized-access, Header)"]);
    assert!(rig.conn.wants_close());

    let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    rig.feed(&PROTOCOL_HEADER);
    assert!(rig.conn.login_skipped());
    rig.feed(&open());
    assert_eq!(rig.out(), ["AMQP", "open"]);
    assert_eq!(rig.conn.phase(), Phase::Open);
}

#[test]
fn r5_3_3_1_mechanisms_come_right_after_the_header_even_if_init_was_first() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&[&SASL_PROTOCOL_HEADER[..], &init()].concat());
    assert_eq!(rig.out(), ["SASL", "mechanisms(PLAIN ANONYMOUS)"]);
    assert_eq!(rig.seen(), ["init(PLAIN, Some([0, 97, 0, 98]))"]);
}

#[test]
fn r5_3_3_6_a_failed_login_is_told_in_sasl_and_ends_the_connection() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&[&SASL_PROTOCOL_HEADER[..], &init(), &PROTOCOL_HEADER, &open()].concat());
    rig.out();
    rig.conn.sasl_outcome(SaslCode::Auth, None).unwrap();
    assert_eq!(rig.out(), ["outcome(Auth)"]);
    assert!(rig.conn.wants_close());
    rig.seen();
    rig.feed(&[]);
    assert_eq!(rig.seen(), [""; 0]);
    assert_eq!(rig.conn.sasl_outcome(SaslCode::Ok, None), Err(Misuse::WrongState));
}

#[test]
fn r2_4_2_nothing_behind_the_login_is_read_before_it_is_decided() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&[&SASL_PROTOCOL_HEADER[..], &init(), &PROTOCOL_HEADER, &open(), &perform(0, begin())].concat());
    rig.out();
    assert_eq!(rig.seen().len(), 1);
    assert!(!rig.conn.wants_read());
    rig.feed(&[]);
    assert_eq!(rig.seen(), [""; 0]);
    rig.conn.sasl_outcome(SaslCode::Ok, None).unwrap();
    assert!(rig.conn.wants_read());
    rig.answer = false;
    rig.feed(&[]);
    assert_eq!(rig.seen(), ["opened(peer)"]);
    assert_eq!(rig.out(), ["outcome(Ok)", "AMQP"]);
    assert!(!rig.conn.wants_read());
    rig.conn.open(&Open { container_id: "us", ..Open::default() }, 0).unwrap();
    rig.feed(&[]);
    assert_eq!(rig.seen(), ["begun(by peer)"]);
    assert_eq!(rig.out(), ["open", "begin(0 answers 0)"]);
    assert!(!rig.conn.login_skipped());
}

#[test]
fn what_is_held_before_the_login_is_bounded() {
    let mut rig = Rig::raw_server(config());
    rig.feed(&[&SASL_PROTOCOL_HEADER[..], &init(), &PROTOCOL_HEADER].concat());
    rig.out();
    rig.seen();
    let mut peak = 0;
    for _ in 0..40 {
        rig.feed(&[0; 1000]);
        peak = peak.max(rig.held());
    }
    assert_eq!(rig.seen(), ["fault(amqp:resource-limit-exceeded, Silence)"]);
    assert!(rig.conn.wants_close());
    assert!(peak <= 64 * 1024, "{peak}");
    assert_eq!(rig.held(), 0);
}

#[test]
fn r5_3_1_a_malformed_sasl_frame_ends_the_connection_without_a_word() {
    let amqp = open();
    let empty = sasl_frame(|_| {});
    let two = sasl_frame(|out| {
        SaslResponse { response: b"x" }.encode(out);
        SaslResponse { response: b"x" }.encode(out);
    });
    let nonsense = sasl_frame(|out| out.extend_from_slice(&[1, 2, 3]));
    let huge = [0x00, 0x00, 0x40, 0x01, 2, 1, 0, 0].to_vec();
    let early = sasl_frame(|out| SaslResponse { response: b"x" }.encode(out));
    for bad in [amqp, empty, two, nonsense, huge, early] {
        let mut rig = Rig::raw_server(config());
        rig.feed(&SASL_PROTOCOL_HEADER);
        rig.out();
        rig.feed(&bad);
        assert!(rig.conn.wants_close());
        assert!(rig.seen()[0].ends_with("Silence)"));
        assert_eq!(rig.out(), [""; 0]);
    }
}

#[test]
fn r5_3_1_long_tokens_pass_and_rounds_are_bounded() {
    let mut rig = Rig::raw_server(config());
    let token = vec![b'x'; 16_000];
    rig.feed(&SASL_PROTOCOL_HEADER);
    rig.feed(&sasl_frame(|out| {
        SaslInit { mechanism: "X", initial_response: Some(&token), hostname: None }.encode(out)
    }));
    assert!(rig.seen()[0].starts_with("init(X"));
    for _ in 0..8 {
        rig.conn.sasl_challenge(b"more").unwrap();
        rig.feed(&sasl_frame(|out| SaslResponse { response: b"x" }.encode(out)));
        assert_eq!(rig.seen(), ["response([120])"]);
    }
    assert_eq!(rig.conn.sasl_challenge(b"more"), Err(Misuse::Full));
    rig.conn.sasl_outcome(SaslCode::Ok, None).unwrap();
}

#[test]
fn r2_4_1_our_open_fits_in_512_bytes() {
    let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    rig.answer = false;
    rig.feed(&[&PROTOCOL_HEADER[..], &open()].concat());
    let long = "x".repeat(600);
    assert_eq!(rig.conn.open(&Open { container_id: &long, ..Open::default() }, 0), Err(Misuse::FrameTooSmall));
    rig.conn.open(&Open { container_id: "us", ..Open::default() }, 0).unwrap();
    assert_eq!(rig.conn.open(&Open { container_id: "us", ..Open::default() }, 0), Err(Misuse::WrongState));
    assert_eq!(rig.out(), ["AMQP", "open"]);
}

/// What a server on an open connection answers to bytes.
fn answer_to(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut rig = Rig::server();
    rig.feed(bytes);
    (rig.seen(), rig.out())
}

#[test]
fn r2_3_1_bad_sizes_and_offsets_are_caught_before_anything_is_held() {
    for bad in [
        [0, 0, 0, 7, 2, 0, 0, 0],
        [0, 2, 0, 0, 2, 0, 0, 0],
        [0, 0, 0, 8, 1, 0, 0, 0],
        [0, 0, 0, 8, 3, 0, 0, 0],
        [0, 0, 0, 8, 2, 1, 0, 0],
    ] {
        let (seen, out) = answer_to(&bad);
        assert_eq!(seen, ["fault(amqp:connection:framing-error, Frame)"], "{bad:?}");
        assert_eq!(out, ["close(amqp:connection:framing-error)"]);
    }
    let mut rig = Rig::server();
    rig.feed(&[0xff, 0xff, 0xff, 0xff]);
    assert_eq!(rig.out(), ["close(amqp:connection:framing-error)"]);
    assert_eq!(rig.held(), 0);
    assert!(!rig.conn.wants_close(), "the peer shall read our close first");
    rig.feed(&[7; 10_000]);
    assert_eq!(rig.held(), 0);
    rig.now = rig.conn.next_deadline().unwrap();
    rig.conn.on_tick(rig.now).unwrap();
    assert!(rig.conn.wants_close());
}

#[test]
fn r2_3_1_an_extended_header_is_skipped() {
    let mut rig = Rig::server();
    let mut bytes = perform(0, Close::default());
    bytes.splice(8..8, [1, 2, 3, 4]);
    bytes[3] += 4;
    bytes[4] = 3;
    rig.feed(&bytes);
    assert_eq!(rig.seen(), ["closed(-)"]);
}

#[test]
fn r2_4_1_open_comes_first_once_and_on_channel_0() {
    let bare = || Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    let mut rig = bare();
    rig.feed(&[&PROTOCOL_HEADER[..], &perform(0, begin())].concat());
    assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:illegal-state)"]);

    let mut rig = bare();
    rig.feed(&[&PROTOCOL_HEADER[..], &perform(1, Open { container_id: "peer", ..Open::default() })].concat());
    assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:connection:framing-error)"]);

    let mut rig = Rig::server();
    rig.feed(&open());
    assert_eq!(rig.out(), ["close(amqp:illegal-state)"]);
}

#[test]
fn r1_3_4_an_undecodable_body_is_a_decode_error() {
    // A mandatory field missing, a body that is no performative, an unknown performative, payload behind a flow.
    let missing = frame(0, |out| out.extend_from_slice(&[0, 0x53, 0x11, 0x45]));
    let garbage = frame(0, |out| out.extend_from_slice(&[0xff, 0xff]));
    let unknown = frame(0, |out| out.extend_from_slice(&[0, 0x53, 0x77, 0x45]));
    let behind = frame(0, |out| {
        Flow { next_incoming_id: Some(0), ..Flow::default() }.encode(out);
        out.push(0x40);
    });
    for bad in [missing, garbage, unknown, behind] {
        let (seen, out) = answer_to(&bad);
        assert_eq!(seen, ["fault(amqp:decode-error, Frame)"]);
        assert_eq!(out, ["close(amqp:decode-error)"]);
    }
}

#[test]
fn r2_7_1_a_max_frame_size_below_512_is_a_clean_close() {
    for size in [0, 1, 511] {
        let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
        rig.feed(
            &[&PROTOCOL_HEADER[..], &perform(0, Open { container_id: "p", max_frame_size: size, ..Open::default() })]
                .concat(),
        );
        assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:connection:framing-error)"]);
        rig.feed(&perform(0, Close::default()));
        assert!(rig.conn.wants_close());
    }
    Rig::server_with(config(), Open { container_id: "p", max_frame_size: 512, ..Open::default() });
}

#[test]
fn r2_7_1_max_frame_size_counts_per_direction() {
    let limits = Limits { frame_bytes: 1000, ..Limits::default() };
    let mut rig = Rig::server_with(
        ServerConfig { limits, ..config() },
        Open { container_id: "p", max_frame_size: 600, ..Open::default() },
    );
    rig.send(sender("in", 0));
    rig.send(receiver("out", 1));
    rig.send(link_flow(1, 0, 10));
    rig.out();
    rig.transfer(first(0, 0), &"x".repeat(950));
    assert!(rig.seen().last().unwrap().starts_with("transfer(0 first last"));
    rig.conn.send(rig.links[1], &SendParams::default(), &[Piece::Copy(&[7; 1500])]).unwrap();
    let bytes = rig.bytes();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let size = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        assert!(size <= 600);
        rest = &rest[size..];
    }
    rig.transfer(first(0, 1), &"x".repeat(1000));
    assert_eq!(rig.out(), ["close(amqp:connection:framing-error)"]);
}

#[test]
fn r2_7_1_channels_stay_below_the_lower_channel_max() {
    let limits = Limits { channel_max: 3, ..Limits::default() };
    let open = || Open { container_id: "p", channel_max: 1, ..Open::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, open());
    rig.feed(&perform(4, begin()));
    assert_eq!(rig.out(), ["close(amqp:connection:framing-error)"]);

    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, open());
    rig.feed(&perform(3, begin()));
    assert_eq!(rig.out(), ["begin(1 answers 3)"]);
    assert_eq!(rig.conn.begin(0), Err(Misuse::Full));
    rig.feed(&perform(2, begin()));
    assert_eq!(rig.out(), ["close(amqp:resource-limit-exceeded)"]);
}

#[test]
fn r2_4_5_a_sign_of_life_goes_out_at_half_of_their_idle_time() {
    let open = Open { container_id: "p", idle_time_out: Some(10_000), ..Open::default() };
    let mut rig = Rig::server_with(config(), open);
    assert_eq!(rig.conn.next_deadline(), Some(5_000));
    rig.now = 4_999;
    rig.conn.on_tick(rig.now).unwrap();
    assert_eq!(rig.out(), [""; 0]);
    rig.now = 5_000;
    rig.conn.on_tick(rig.now).unwrap();
    assert_eq!(rig.out(), ["empty"]);
    assert_eq!(rig.conn.next_deadline(), Some(10_000));
    // Any frame will do.
    rig.now = 9_000;
    rig.conn.probe(rig.sessions[0]).unwrap();
    assert_eq!(rig.out(), ["flow(in 0 window 2048 echo)"]);
    assert_eq!(rig.conn.next_deadline(), Some(14_000));
}

#[test]
fn r2_4_5_they_expire_at_twice_what_we_told_unless_we_do_not_read() {
    let mut rig = Rig::server_with(
        ServerConfig { idle_timeout_ms: 3_000, ..config() },
        Open { container_id: "p", ..Open::default() },
    );
    assert_eq!(rig.conn.next_deadline(), Some(6_000));
    rig.now = 5_000;
    rig.feed(&frame(9, |_| {}));
    rig.now = 10_999;
    rig.conn.on_tick(rig.now).unwrap();
    rig.conn.set_reading(false, rig.now);
    rig.now = 50_000;
    assert_eq!(rig.conn.next_deadline(), None);
    rig.conn.on_tick(rig.now).unwrap();
    rig.conn.set_reading(true, rig.now);
    assert_eq!(rig.conn.next_deadline(), Some(56_000));
    rig.now = 56_000;
    let fault = rig.conn.on_tick(rig.now).unwrap_err();
    assert_eq!(fault.condition, "amqp:resource-limit-exceeded");
    assert_eq!(rig.out(), ["close(amqp:resource-limit-exceeded)"]);
}

#[test]
fn r2_4_5_an_idle_time_below_a_second_is_not_allowed_and_0_is_none() {
    let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    rig.feed(
        &[&PROTOCOL_HEADER[..], &perform(0, Open { container_id: "p", idle_time_out: Some(999), ..Open::default() })]
            .concat(),
    );
    assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:not-allowed)"]);
    let rig = Rig::server_with(config(), Open { container_id: "p", idle_time_out: Some(0), ..Open::default() });
    assert_eq!(rig.conn.next_deadline(), None);
}

#[test]
fn slow_peers_are_cut_at_each_step() {
    let mut rig = Rig::raw_server(config());
    assert_eq!(rig.conn.next_deadline(), Some(5_000));
    rig.feed(b"AMQP");
    assert!(rig.conn.on_tick(5_000).is_err());
    assert!(rig.conn.wants_close());
    assert_eq!(rig.out(), [""; 0]);

    let mut rig = Rig::raw_server(config());
    rig.now = 1_000;
    rig.feed(&SASL_PROTOCOL_HEADER);
    assert_eq!(rig.conn.next_deadline(), Some(11_000));
    rig.out();
    assert!(rig.conn.on_tick(11_000).is_err());
    assert!(rig.conn.wants_close());

    let mut rig = Rig::raw_server(config());
    rig.feed(&[&SASL_PROTOCOL_HEADER[..], &init()].concat());
    rig.conn.sasl_outcome(SaslCode::Ok, None).unwrap();
    rig.now = 2_000;
    rig.feed(&PROTOCOL_HEADER);
    assert_eq!(rig.conn.next_deadline(), Some(12_000));
    rig.out();
    rig.now = 12_000;
    assert!(rig.conn.on_tick(12_000).is_err());
    assert_eq!(rig.out(), ["open", "close(amqp:resource-limit-exceeded)"]);
    assert!(!rig.conn.wants_close());
    assert_eq!(rig.conn.next_deadline(), Some(17_000));
    rig.conn.on_tick(17_000).unwrap();
    assert!(rig.conn.wants_close());
}

#[test]
fn r2_4_3_after_our_close_nothing_is_sent_and_what_comes_is_dropped() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    let error = Error { condition: "amqp:connection:forced", ..Error::default() };
    rig.conn.close(Some(&error), 0).unwrap();
    rig.transfer(first(0, 0), "x");
    rig.send(Flow { echo: true, ..link_flow(0, 0, 1) });
    rig.feed(&frame(0, |out| out.push(0xff)));
    assert_eq!(rig.conn.grant(rig.links[0], 5), Err(Misuse::NotOpen));
    assert_eq!(rig.conn.close(None, 0), Err(Misuse::WrongState));
    assert_eq!(rig.out(), ["close(amqp:connection:forced)"]);
    assert!(!rig.conn.wants_close());
    rig.send(Close::default());
    assert_eq!(rig.seen(), ["closed(- answered)"]);
    assert!(rig.conn.wants_close());
    assert_eq!(rig.out(), [""; 0]);
}

#[test]
fn r2_4_3_behind_their_close_nothing_counts() {
    let mut rig = Rig::server();
    rig.answer = false;
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    rig.send(Close::default());
    rig.transfer(first(0, 0), "x");
    rig.send(Close::default());
    assert_eq!(rig.seen(), ["closed(-)"]);
    rig.conn.close(None, 0).unwrap();
    assert_eq!(rig.out(), ["close(-)"]);
    assert!(rig.conn.wants_close());
}

#[test]
fn r2_4_3_before_our_open_a_close_is_preceded_by_it() {
    let mut rig = Rig::raw_server(ServerConfig { allow_bare: true, ..config() });
    rig.answer = false;
    rig.feed(&[&PROTOCOL_HEADER[..], &open()].concat());
    let error = Error { condition: "amqp:not-allowed", ..Error::default() };
    rig.conn.close(Some(&error), 0).unwrap();
    assert_eq!(rig.out(), ["AMQP", "open", "close(amqp:not-allowed)"]);
}

#[test]
fn a_long_sentence_never_hinders_the_close() {
    let mut rig = Rig::server_with(config(), Open { container_id: "p", max_frame_size: 512, ..Open::default() });
    let long = "x".repeat(1000);
    rig.conn
        .close(Some(&Error { condition: "amqp:connection:forced", description: Some(&long), info: None }), 0)
        .unwrap();
    assert_eq!(rig.out(), ["close(amqp:connection:forced)"]);
}

#[test]
fn r2_4_2_a_client_may_say_all_at_once() {
    let mut rig = Rig::raw_client(ClientConfig { container_id: "c".into(), ..ClientConfig::default() });
    assert_eq!(rig.conn.open(&Open::default(), 0), Err(Misuse::WrongState));
    rig.conn.sasl_init("ANONYMOUS", None, None).unwrap();
    rig.conn.open(&Open { container_id: "c", ..Open::default() }, 0).unwrap();
    let session = rig.conn.begin(0).unwrap();
    rig.conn.attach(session, &receiver("r", 0), 0).unwrap();
    assert_eq!(rig.out(), ["SASL", "sasl-init", "AMQP", "open", "begin(0)", "attach(r Receiver)"]);
    rig.feed(&SASL_PROTOCOL_HEADER);
    rig.feed(&sasl_frame(|out| SaslMechanisms { sasl_server_mechanisms: Symbols::one("ANONYMOUS") }.encode(out)));
    rig.feed(&sasl_frame(|out| SaslOutcome { code: SaslCode::Ok, additional_data: None }.encode(out)));
    rig.feed(&[&PROTOCOL_HEADER[..], &open(), &perform(3, Begin { remote_channel: Some(0), ..begin() })].concat());
    assert_eq!(rig.seen(), ["mechanisms(ANONYMOUS)", "outcome(Ok)", "opened(peer)", "begun(by us)"]);
}

#[test]
fn a_client_logs_in_step_by_step_and_hears_a_refusal() {
    let mut rig = Rig::raw_client(ClientConfig { container_id: "c".into(), ..ClientConfig::default() });
    rig.feed(&SASL_PROTOCOL_HEADER);
    rig.feed(&sasl_frame(|out| {
        SaslMechanisms { sasl_server_mechanisms: Symbols::from_slice(&["A", "B"]) }.encode(out)
    }));
    assert_eq!(rig.seen(), ["mechanisms(A B)"]);
    rig.conn.sasl_init("A", None, None).unwrap();
    rig.feed(&sasl_frame(|out| SaslChallenge { challenge: b"c" }.encode(out)));
    assert_eq!(rig.seen(), ["challenge([99])"]);
    rig.conn.sasl_response(b"r").unwrap();
    rig.feed(&sasl_frame(|out| SaslOutcome { code: SaslCode::Auth, additional_data: None }.encode(out)));
    assert_eq!(rig.seen(), ["outcome(Auth)"]);
    assert!(rig.conn.wants_close());
    assert_eq!(rig.out(), ["SASL", "sasl-init", "sasl-response"]);
}

#[test]
fn a_client_tells_a_server_that_speaks_something_else() {
    let mut rig = Rig::raw_client(ClientConfig::default());
    rig.feed(b"AMQP\x00\x00\x09\x01");
    assert_eq!(rig.seen(), ["fault(amqp:connection:framing-error, Header)"]);
    assert!(rig.conn.wants_close());
    assert_eq!(rig.out(), ["SASL"]);
}

#[test]
fn frames_are_taken_whole_from_any_cut_and_a_finished_one_holds_no_memory() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    let bytes = with_payload(0, first(0, 0), &[b'x'; 20_000]);
    for chunk in bytes.chunks(777) {
        rig.feed(chunk);
    }
    assert!(rig.seen()[0].starts_with("transfer(0 first last"));
    assert_eq!(rig.received.len(), 20_000);
    rig.feed(&frame(0, |_| {}));
    assert!(rig.held() <= 4096);
}
