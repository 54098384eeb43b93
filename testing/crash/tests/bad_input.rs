//! Wrong input, case by case: one clear sentence with thing, limit and value; the standard's condition on the wire; a line in the
//! log; the documented exit code where the process ends.
//!
//! | case | where |
//! |---|---|
//! | name too long, control characters | here, over AMQP and HTTP |
//! | message over the limit | here; `packhorse send` in `apps/packhorse/tests/verbs.rs` |
//! | frame over the limit | here |
//! | wrong protocol header, TLS to a plain port | here |
//! | bad SASL | here; every malformed form in `hostile/frames.rs` (`bad_logins`) |
//! | bad configuration key, flag, environment | `apps/packhorse/tests/start.rs` |
//! | data directory of another version | `apps/packhorse/tests/start.rs` |
//! | data directory in use | `apps/packhorse/tests/start.rs` |
//! | data directory damaged, without its STORE | here |
//! | port in use | `apps/packhorse/tests/start.rs` |
//! | disk full at start | `storage.rs`; a refusing system in `apps/packhorse/tests/start.rs` |
//! | what is not there yet | here |

use packhorse_client_core::codec::{
    Attach, AttachTarget, FrameHeader, FrameKind, PROTOCOL_HEADER, Role, SASL_PROTOCOL_HEADER, SaslInit, Source,
    Target, Transfer,
};
use packhorse_crash::{Broker, Heard, OPEN, Peer, serve};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sentence that came, which must hold all of these.
fn says(heard: &Heard, condition: &str, parts: &[&str]) -> String {
    assert_eq!(heard.condition(), condition, "{heard:?}");
    let (_, sentence) = heard.error.clone().unwrap();
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is not in {sentence:?}");
    }
    assert!(!sentence.contains('\n'), "one sentence: {sentence:?}");
    sentence
}

fn logged(broker: &Broker, parts: &[&str]) {
    broker.logged(&[&["WARN"][..], parts].concat());
}

/// A request by hand: status and the problem document.
fn put(broker: &Broker, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(broker.http()).unwrap();
    let length = body.len();
    write!(
        stream,
        "PUT {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn names_that_are_too_long_or_hold_control_characters() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let mut peer = Peer::begun(broker.amqp());
    let long = "n".repeat(256);
    let told = peer.sender(0, &long).until("detach");
    says(&told, "amqp:invalid-field", &["255", "256"]);
    logged(&broker, &["255", "256"]);
    let told = peer.receiver(1, &long).until("detach");
    says(&told, "amqp:invalid-field", &["255", "256"]);
    let told = peer.sender(2, "a\u{7}b").until("detach");
    says(&told, "amqp:invalid-field", &["control"]);
    // The longest that is allowed, by bytes.
    let longest = "ü".repeat(127) + "x";
    peer.sender(3, &longest).until_credit();
    // The same over HTTP.
    let (status, answer) = put(&broker, &format!("/api/v1/queues/{long}"), "{}");
    assert!(status == 400 && answer.contains("255") && answer.contains("256"), "{answer}");
    let (status, answer) = put(&broker, "/api/v1/queues/a%07b", "{}");
    assert!(status == 400 && answer.contains("control"), "{answer}");
}

#[test]
fn messages_over_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.max_message_bytes=10000"]);
    let mut peer = Peer::begun(broker.amqp());
    // One frame, and one that only grows past the limit.
    peer.sender(0, "q").until_credit();
    let message = [&[0x00, 0x53, 0x75, 0xb0, 0, 0, 0x30, 0][..], &[1; 0x3000]].concat();
    let told = peer.transfer(0, 0, &message).until("detach");
    says(&told, "amqp:link:message-size-exceeded", &["10000", "12296"]);
    logged(&broker, &["amqp:link:message-size-exceeded", "10000"]);
    peer.sender(1, "q").until_credit();
    for part in 0..4 {
        peer.frame(0, |out| {
            let first = part == 0;
            let transfer = Transfer {
                handle: 1,
                delivery_id: first.then_some(1),
                delivery_tag: first.then_some(b"t"),
                more: true,
                ..Transfer::default()
            };
            transfer.encode(out);
            out.extend_from_slice(&message[if first { 0..3000 } else { 3000..6000 }]);
        });
    }
    says(&peer.until("detach"), "amqp:link:message-size-exceeded", &["10000"]);
    // At the limit it is taken; the session is the same.
    let fits = [&[0x00, 0x53, 0x75, 0xb0, 0, 0, 0x27, 0x08][..], &[1; 0x2708]].concat();
    assert_eq!(fits.len(), 10_000);
    peer.sender(2, "q").until_credit();
    assert_eq!(peer.transfer(2, 2, &fits).until("disposition").state, "accepted");
}

#[test]
fn frames_over_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.max_frame_bytes=4096"]);
    // One byte over, told from its first four bytes.
    let mut peer = Peer::opened(broker.amqp());
    let told = peer.say(&4097u32.to_be_bytes()).until("close");
    says(&told, "amqp:connection:framing-error", &["4096", "4097"]);
    logged(&broker, &["4096", "4097"]);
    // Before `open` the limit is another one.
    let mut peer = Peer::connect(broker.amqp());
    let told = peer.log_in().say(&8193u32.to_be_bytes()).until("close");
    says(&told, "amqp:connection:framing-error", &["8192", "8193"]);
    // And for logins a third: there is no way to tell but the log.
    let mut peer = Peer::connect(broker.amqp());
    let all = peer.say(&SASL_PROTOCOL_HEADER).say(&16_385u32.to_be_bytes()).rest();
    assert_eq!(all.last().unwrap().what, "sasl-mechanisms", "{all:?}");
    logged(&broker, &["16384", "16385"]);
}

#[test]
fn wrong_protocol_headers_and_tls() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let mut peer = Peer::connect(broker.amqp());
    let all = peer.say(b"AMQP\x00\x00\x09\x01").rest();
    assert_eq!(all.iter().map(|heard| (heard.what, heard.channel)).collect::<Vec<_>>(), [("header", 3)]);
    logged(&broker, &["AMQP 0.9.1", "AMQP 1.0"]);
    let mut peer = Peer::connect(broker.amqp());
    let all = peer.say(b"\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03").rest();
    assert_eq!(all.len(), 1);
    logged(&broker, &["speaks TLS to a port without TLS", &broker.amqp().to_string()]);
    // The wrong header at the second place.
    let mut peer = Peer::connect(broker.amqp());
    let login = |out: &mut Vec<u8>| {
        FrameHeader::encode(out, FrameKind::Sasl, 0, |out| {
            SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out);
        });
    };
    let mut bytes = SASL_PROTOCOL_HEADER.to_vec();
    login(&mut bytes);
    bytes.extend_from_slice(&SASL_PROTOCOL_HEADER);
    let all = peer.say(&bytes).rest();
    let headers: Vec<u16> = all.iter().filter(|heard| heard.what == "header").map(|heard| heard.channel).collect();
    assert_eq!(headers, [3, 0], "{all:?}: ours, for what we want");
    assert_eq!(PROTOCOL_HEADER[4], 0);
}

#[test]
fn bad_logins() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for (mechanism, response, why) in [
        ("GSSAPI", &b""[..], "\"GSSAPI\" is not offered"),
        ("PLAIN", b"no nul", "exactly 2 NUL bytes"),
        ("PLAIN", b"\0\xff\0x", "UTF-8"),
        ("PLAIN", &[&[b'u'; 1025][..], b"\0u\0p"].concat(), "1024"),
    ] {
        let mut peer = Peer::connect(broker.amqp());
        peer.say(&SASL_PROTOCOL_HEADER).sasl(|out| {
            SaslInit { mechanism, initial_response: Some(response), hostname: None }.encode(out);
        });
        let all = peer.rest();
        assert_eq!(all.last().map(|heard| &*heard.state), Some("Auth"), "{why}: {all:?}");
        logged(&broker, &["refused", why]);
    }
}

#[test]
fn what_is_not_there_yet_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let mut peer = Peer::begun(broker.amqp());
    let link = |handle, source: Source<'static>, target| Attach {
        name: "later",
        handle,
        role: Role::Receiver,
        source: Some(source),
        target: Some(target),
        ..Attach::default()
    };
    let plain = || AttachTarget::Target(Target::default());
    let topic = Source { address: Some("topic://prices"), ..Source::default() };
    let told = peer.frame(0, |out| link(0, topic, plain()).encode(out)).until("detach");
    says(&told, "amqp:not-implemented", &["topic"]);
    let dynamic = Source { dynamic: true, ..Source::default() };
    let told = peer.frame(0, |out| link(1, dynamic, plain()).encode(out)).until("detach");
    says(&told, "amqp:not-implemented", &["dynamic"]);
}

// ---- the data directory ----

fn segments(data: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Messages in a journal, stopped in order so that its end proves what is before.
fn with_messages(dir: &Path) -> PathBuf {
    let broker = Broker::start(dir, &[]);
    let mut peer = Peer::begun(broker.amqp());
    peer.sender(0, "orders").until_credit();
    for n in 0..20 {
        peer.transfer(0, n, &[0x00, 0x53, 0x75, 0xa0, 4, b'b', b'o', b'd', b'y']).until("disposition");
    }
    drop(peer);
    broker.signal(Signal::TERM);
    assert_eq!(broker.end().code, Some(0));
    dir.join("data")
}

fn refused(command: Command, dir: &Path) -> (Option<i32>, String) {
    let ended = Broker::from_command(dir, command).err().expect("it must not start");
    (ended.code, ended.last().to_string())
}

#[test]
fn fs_63_a_damaged_journal_is_65_with_file_and_place_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = with_messages(dir.path());
    let segment = segments(&data).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    // The block of a message amid the others: 4 KiB of header, then 4 KiB for each small block.
    let at = 15 * 4096 + 80;
    bytes[at] ^= 0xff;
    fs::write(&segment, &bytes).unwrap();
    let (code, said) = refused(serve(dir.path(), &[]), dir.path());
    assert_eq!(code, Some(65), "{said}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    for part in [name, "61440", "orders", &data.display().to_string()] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(fs::read(&segment).unwrap(), bytes, "nothing was changed");
    // With the byte as it was, it starts again.
    bytes[at] ^= 0xff;
    fs::write(&segment, &bytes).unwrap();
    let broker = Broker::start(dir.path(), &[]);
    assert_eq!(broker.queue("orders")["ready"], 20);
}

#[test]
fn a_journal_without_its_store_file_is_65() {
    let dir = tempfile::tempdir().unwrap();
    let data = with_messages(dir.path());
    let store = fs::read(data.join("STORE")).unwrap();
    fs::remove_file(data.join("STORE")).unwrap();
    let before = segments(&data);
    let (code, said) = refused(serve(dir.path(), &[]), dir.path());
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("STORE") && said.contains(&data.display().to_string()), "{said}");
    assert_eq!(segments(&data), before);
    // Damaged.
    fs::write(data.join("STORE"), &store[..20]).unwrap();
    let (code, said) = refused(serve(dir.path(), &[]), dir.path());
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("STORE"), "{said}");
    fs::write(data.join("STORE"), &store).unwrap();
    assert_eq!(Broker::start(dir.path(), &[]).queue("orders")["ready"], 20);
}

#[test]
fn an_idle_time_out_that_nobody_can_keep_is_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let mut peer = Peer::connect(broker.amqp());
    let open = packhorse_client_core::codec::Open { idle_time_out: Some(5), ..OPEN };
    let told = peer.log_in().open(&open).until("close");
    says(&told, "amqp:not-allowed", &["5", "1000"]);
}
