//! Frames, openings, messages, first bytes and logins that are wrong: each gets what the standard owes it.

use crate::{Run, text};
use packhorse_client_core::codec::{
    FrameHeader, FrameKind, Open, PROTOCOL_HEADER, SASL_PROTOCOL_HEADER, SaslInit, SaslResponse,
};
use packhorse_crash::frames::{self, Case, Owed};
use packhorse_crash::{Heard, OPEN, Peer};

fn check(case: &Case, all: &[Heard], when: &str) {
    let last = all.last().unwrap_or_else(|| panic!("{} {when}: not a word", case.name));
    match case.owed {
        Owed::Close(condition) => {
            assert_eq!((last.what, last.condition()), ("close", condition), "{} {when}: {all:?}", case.name);
            let (_, sentence) = last.error.as_ref().unwrap();
            assert!(sentence.len() > 10, "{} {when}: a sentence for people: {sentence:?}", case.name);
        }
        Owed::Fine => assert!(all.iter().all(|heard| heard.error.is_none()), "{} {when}: {all:?}", case.name),
        Owed::Reject(_) => unreachable!("messages are looked at where they are sent"),
    }
}

pub(crate) fn frames_after_login(run: &Run) {
    for case in frames::connection_cases() {
        let mut peer = Peer::opened(run.to);
        let all = peer.say(&case.bytes).hang_up().rest();
        if case.owed != Owed::Fine {
            check(&case, &all, "after open");
        }
        // In one write with everything before it.
        let mut peer = Peer::connect(run.to);
        let all = peer.log_in().open(&OPEN).say(&case.bytes).hang_up().rest();
        check(&case, &all, "pipelined");
        // Amid the work of a session.
        let mut peer = Peer::begun(run.to);
        peer.sender(0, "hostile").until_credit();
        peer.transfer(0, 0, &text()).say(&case.bytes).hang_up();
        let all = peer.rest();
        if let Owed::Close(condition) = case.owed {
            // A second `begin` on channel 0 is a fault of its own, found when the frame itself can be read.
            assert_eq!(
                (all.last().unwrap().what, all.last().unwrap().condition()),
                ("close", condition),
                "{}",
                case.name
            );
        }
    }
}

pub(crate) fn frames_before_login(run: &Run) {
    for case in frames::connection_cases().iter().chain(&frames::open_cases()).chain(&frames::message_cases()) {
        // As the first bytes: our header, and the end.
        let mut peer = Peer::connect(run.to);
        let all = peer.say(&case.bytes).hang_up().rest();
        assert!(all.len() <= 1 && all.iter().all(|heard| heard.what == "header"), "{}: {all:?}", case.name);
        // In place of sasl-init: the mechanisms have been said, then the end without a login.
        let mut peer = Peer::connect(run.to);
        let all = peer.say(&SASL_PROTOCOL_HEADER).say(&case.bytes).hang_up().rest();
        assert!(
            all.iter().all(|heard| ["header", "sasl-mechanisms"].contains(&heard.what)),
            "{} in the login: {all:?}",
            case.name
        );
        // As a SASL frame whose body this is.
        let mut peer = Peer::connect(run.to);
        peer.say(&SASL_PROTOCOL_HEADER);
        let body = case.bytes.get(8..).unwrap_or_default().to_vec();
        let all = peer.sasl(|out| out.extend_from_slice(&body)).hang_up().rest();
        assert!(all.iter().all(|heard| heard.what != "open"), "{} as a SASL frame: {all:?}", case.name);
    }
}

pub(crate) fn openings(run: &Run) {
    for case in frames::open_cases() {
        let mut peer = Peer::connect(run.to);
        check(&case, &peer.log_in().say(&case.bytes).hang_up().rest(), "in place of open");
        // Without SASL.
        let mut peer = Peer::connect(run.to);
        check(&case, &peer.say(&PROTOCOL_HEADER).say(&case.bytes).hang_up().rest(), "in place of open, no SASL");
    }
}

pub(crate) fn tiny_frame_sizes(run: &Run) {
    for size in 0..512 {
        let mut peer = Peer::connect(run.to);
        let told = peer.log_in().open(&Open { max_frame_size: size, ..OPEN }).closed();
        let (condition, sentence) = told.error.unwrap_or_default();
        assert_eq!(condition, "amqp:connection:framing-error", "{size}");
        assert!(sentence.contains("512") && sentence.contains(&size.to_string()), "limit and value: {sentence}");
    }
    // 512 itself is served, by frames of at most that size.
    let mut peer = Peer::connect(run.to);
    peer.log_in().open(&Open { max_frame_size: 512, ..OPEN }).begin(0).sender(0, "hostile").until_credit();
}

pub(crate) fn messages(run: &Run) {
    let mut peer = Peer::begun(run.to);
    peer.sender(0, "hostile-messages").until_credit();
    for (delivery, case) in frames::message_cases().into_iter().enumerate() {
        // All on one link, which outlives them.
        peer.transfer(0, delivery as u32, &case.bytes);
        let told = peer.until("disposition");
        assert_eq!(told.delivery, Some(delivery as u32), "{}", case.name);
        match case.owed {
            Owed::Reject(condition) => {
                assert_eq!((&*told.state, told.condition()), ("rejected", condition), "{}: {told:?}", case.name);
            }
            _ => assert_eq!(told.state, "accepted", "{}: {told:?}", case.name),
        }
    }
    assert_eq!(run.broker.queue("hostile-messages")["ready"], 1, "only the legal one is there");
}

pub(crate) fn foreign_protocols(run: &Run) {
    for (name, hello) in frames::foreign_hellos() {
        let all = Peer::connect(run.to).say(&hello).rest();
        assert_eq!(all.iter().map(|heard| heard.what).collect::<Vec<_>>(), ["header"], "{name}");
        assert_eq!(all[0].channel, 3, "{name}: the header of SASL is what we want");
    }
    run.broker.logged(&["speaks TLS to a port without TLS"]);
    // Nothing at all, and gone.
    for _ in 0..100 {
        drop(Peer::connect(run.to));
        assert!(Peer::connect(run.to).hang_up().ends());
    }
    // Garbage on the HTTP port.
    for garbage in [&b"\x16\x03\x01\x02\x00\x01"[..], b"AMQP\x00\x01\x00\x00", &[0xff; 70_000], b"GET /\r\n", b"POST "]
    {
        assert!(Peer::connect(run.broker.http()).say(garbage).hang_up().ends());
    }
}

pub(crate) fn bad_logins(run: &Run) {
    let huge = vec![b'x'; 15 << 10];
    let plain: &[(&str, &[u8])] = &[
        ("GSSAPI", b""),
        ("", b""),
        // The log is made of lines: nobody else may begin one.
        ("X\nERROR forged", b""),
        ("plain", b"\0a\0b"),
        (&"M".repeat(10_000), b""),
        ("PLAIN", b""),
        ("PLAIN", b"no nul bytes"),
        ("PLAIN", b"a\0b"),
        ("PLAIN", b"\0\0pw"),
        ("PLAIN", b"a\0b\0c\0d"),
        ("PLAIN", b"\0\xff\0x"),
        ("PLAIN", b"other\0me\0pw"),
        ("PLAIN", &huge),
    ];
    for (mechanism, response) in plain {
        let mut peer = Peer::connect(run.to);
        peer.say(&SASL_PROTOCOL_HEADER).sasl(|out| {
            SaslInit { mechanism, initial_response: Some(response), hostname: None }.encode(out);
        });
        let name =
            format!("{} {}", &mechanism[..mechanism.len().min(20)], response[..response.len().min(20)].escape_ascii());
        let all = peer.rest();
        assert_eq!(
            all.last().map(|heard| (heard.what, &*heard.state)),
            Some(("sasl-outcome", "Auth")),
            "{name}: {all:?}"
        );
    }
    // Above the limit of a SASL frame, responses without a challenge, inits without end, AMQP before the login is over.
    let mut over = SASL_PROTOCOL_HEADER.to_vec();
    FrameHeader::encode(&mut over, FrameKind::Sasl, 0, |out| {
        SaslInit { mechanism: "PLAIN", initial_response: Some(&[b'x'; 17 << 10]), hostname: None }.encode(out);
    });
    let mut responses = SASL_PROTOCOL_HEADER.to_vec();
    for _ in 0..100 {
        FrameHeader::encode(&mut responses, FrameKind::Sasl, 0, |out| SaslResponse { response: b"x" }.encode(out));
    }
    let mut inits = SASL_PROTOCOL_HEADER.to_vec();
    for _ in 0..100 {
        FrameHeader::encode(&mut inits, FrameKind::Sasl, 0, |out| {
            SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out);
        });
    }
    let headers = SASL_PROTOCOL_HEADER.repeat(100);
    let amqp = [SASL_PROTOCOL_HEADER, PROTOCOL_HEADER].concat();
    for (name, bytes) in
        [("over", over), ("responses", responses), ("inits", inits), ("headers", headers), ("no login", amqp)]
    {
        let all = Peer::connect(run.to).say(&bytes).rest();
        assert!(all.iter().all(|heard| heard.what != "open"), "{name}: {all:?}");
    }
    run.broker.logged(&["a PLAIN response has exactly 2 NUL bytes"]);
}
