//! Hostile and broken peers against the real broker: each is refused, bounded or ended, and nobody else notices.

mod common;

use common::Broker;
use packhorse_client_core::codec::{
    Attach, Begin, Flow, FrameHeader, FrameKind, Open, PROTOCOL_HEADER, Role, SASL_PROTOCOL_HEADER, SaslInit, Source,
    put_binary, put_descriptor,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A peer that speaks bytes.
struct Peer(TcpStream);

impl Peer {
    fn new(broker: &Broker) -> Peer {
        let stream = TcpStream::connect(broker.amqp()).unwrap();
        // A broker that never ends a connection fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Peer(stream)
    }

    fn say(&mut self, bytes: &[u8]) -> &mut Peer {
        // The broker may have closed already.
        let _ = self.0.write_all(bytes);
        self
    }

    fn frame(&mut self, kind: FrameKind, fill: impl FnOnce(&mut Vec<u8>)) -> &mut Peer {
        let mut bytes = Vec::new();
        FrameHeader::encode(&mut bytes, kind, 0, fill);
        self.say(&bytes)
    }

    /// Logs in as ANONYMOUS; the AMQP header is out.
    fn log_in(&mut self) -> &mut Peer {
        self.say(&SASL_PROTOCOL_HEADER);
        self.frame(FrameKind::Sasl, |out| {
            SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out);
        });
        self.say(&PROTOCOL_HEADER)
    }

    fn open(&mut self, open: &Open<'_>) -> &mut Peer {
        self.frame(FrameKind::Amqp, |out| open.encode(out))
    }

    /// Says that nothing more comes, so that the broker need not wait for our `close`.
    fn hang_up(&mut self) -> &mut Peer {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        self
    }

    /// Everything that the broker says until it ends the connection.
    fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        match self.0.read_to_end(&mut all) {
            Ok(_) => all,
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => all,
            Err(e) => panic!("the broker does not end the connection: {e}; it said {}", all.escape_ascii()),
        }
    }
}

fn contains(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|w| w == text.as_bytes())
}

const OPEN: Open<'static> = Open {
    container_id: "hostile",
    hostname: None,
    max_frame_size: u32::MAX,
    channel_max: u16::MAX,
    idle_time_out: None,
    outgoing_locales: packhorse_client_core::codec::Symbols::EMPTY,
    incoming_locales: packhorse_client_core::codec::Symbols::EMPTY,
    offered_capabilities: packhorse_client_core::codec::Symbols::EMPTY,
    desired_capabilities: packhorse_client_core::codec::Symbols::EMPTY,
    properties: None,
};

/// A list32 or map32 constructor with this size and count, and nothing behind it.
fn compound(code: u8, size: u32, count: u32) -> Vec<u8> {
    [&[code][..], &size.to_be_bytes(), &count.to_be_bytes()].concat()
}

/// So many list32 in each other, well formed.
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = vec![0x45];
    for _ in 0..depth {
        let size = (bytes.len() + 4) as u32;
        bytes = [&compound(0xd0, size, 1)[..], &bytes].concat();
    }
    bytes
}

#[test]
fn foreign_protocols_get_our_header_and_the_end_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for hello in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00",
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\0\0\0\0",
    ] {
        let answer = Peer::new(&broker).say(hello).rest();
        assert!(answer.starts_with(b"AMQP"), "{}: {}", hello.escape_ascii(), answer.escape_ascii());
        assert_eq!(answer.len(), 8);
    }
    broker.done(&["send", "q", "alive"]);
}

#[test]
fn malformed_frames_end_their_connection_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let encoded = [&compound(0xd1, 4, u32::MAX)[..]].concat();
    let begin = |value: &[u8]| {
        let mut bytes = Vec::new();
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| {
            put_descriptor(out, 0x11);
            // remote-channel, next-outgoing-id, windows, handle-max, capabilities, properties
            let fields = [&[0x40, 0x43, 0x52, 10, 0x52, 10, 0x52, 10, 0x40, 0x40][..], value].concat();
            out.extend_from_slice(&compound(0xd0, fields.len() as u32 + 4, 8));
            out.extend_from_slice(&fields);
        });
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("frame of size 4", vec![0, 0, 0, 4, 2, 0, 0, 0]),
        ("frame of size 5", vec![0, 0, 0, 5, 2, 0, 0, 0]),
        ("data offset 1", vec![0, 0, 0, 8, 1, 0, 0, 0]),
        ("data offset behind the frame", vec![0, 0, 0, 8, 3, 0, 0, 0]),
        ("frame of 4 GiB", vec![0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0]),
        ("frame type 7", vec![0, 0, 0, 8, 2, 7, 0, 0]),
        ("unknown performative", vec![0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45]),
        ("performative cut off", vec![0, 0, 0, 11, 2, 0, 0, 0, 0, 0x53, 0x11]),
        ("properties of 4 G entries", begin(&encoded)),
        ("properties of size 0", begin(&compound(0xd1, 0, 0))),
        ("properties nested 6,000 times", begin(&nested(6000))),
        ("text that is no UTF-8", begin(&[0xc1, 6, 2, 0xa3, 1, b'k', 0xa1, 1, 0xff])),
        ("transfer on no session", vec![0, 0, 0, 14, 2, 0, 0, 0, 0, 0x53, 0x14, 0xc0, 2, 0]),
    ];
    for (what, bytes) in cases {
        let answer = Peer::new(&broker).log_in().open(&OPEN).say(&bytes).hang_up().rest();
        // Our header, outcome, open, and a close that names the fault.
        assert!(contains(&answer, "amqp:"), "{what}: {}", answer.escape_ascii());
        broker.done(&["send", "q", what]);
    }
    assert_eq!(broker.queue("q")["ready"], 13);
}

#[test]
fn an_open_below_512_bytes_is_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for size in [0, 1, 511] {
        let answer = Peer::new(&broker).log_in().open(&Open { max_frame_size: size, ..OPEN }).hang_up().rest();
        assert!(contains(&answer, "amqp:"), "{}", answer.escape_ascii());
        assert!(contains(&answer, "512"), "the limit is named: {}", answer.escape_ascii());
    }
    broker.done(&["send", "q", "alive"]);
}

#[test]
fn bad_logins_end_without_a_clue() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for (mechanism, response) in [
        ("GSSAPI", &b""[..]),
        ("PLAIN", b"no nul bytes"),
        ("PLAIN", b"a\0b"),
        ("PLAIN", b"\0\0pw"),
        ("PLAIN", b"\0\xff\0x"),
    ] {
        let mut peer = Peer::new(&broker);
        peer.say(&SASL_PROTOCOL_HEADER);
        peer.frame(FrameKind::Sasl, |out| {
            SaslInit { mechanism, initial_response: Some(response), hostname: None }.encode(out);
        });
        let answer = peer.rest();
        // sasl-outcome (0x44) with a code other than 0.
        let at = answer.windows(2).rposition(|w| w == [0x53, 0x44]);
        assert!(at.is_some(), "{mechanism} {}: {}", response.escape_ascii(), answer.escape_ascii());
    }
    broker.done(&["send", "q", "alive"]);
}

#[test]
fn slow_peers_have_deadlines() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ["first_byte_timeout_ms", "sasl_timeout_ms", "open_timeout_ms"];
    let sets: Vec<String> = limits.iter().map(|l| format!("limits.{l}=200")).collect();
    let flags: Vec<&str> = sets.iter().flat_map(|s| ["--set", s.as_str()]).collect();
    let broker = Broker::start(dir.path(), &flags);
    let mut silent = Peer::new(&broker);
    let mut half = Peer::new(&broker);
    half.say(b"AMQ");
    let mut no_login = Peer::new(&broker);
    no_login.say(&SASL_PROTOCOL_HEADER);
    let mut no_open = Peer::new(&broker);
    no_open.log_in();
    for peer in [&mut silent, &mut half, &mut no_login, &mut no_open] {
        peer.rest();
    }
    broker.done(&["send", "q", "alive"]);
}

/// Resident memory of a process, KiB.
fn resident_kib(broker: &Broker) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.facts["pid"])).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_peer_before_its_login_costs_at_most_32_kib() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.done(&["send", "q", "warm"]);
    let before = resident_kib(&broker);
    const PEERS: usize = 400;
    // As much as a frame may have before the login, without its last byte.
    let mut most = SASL_PROTOCOL_HEADER.to_vec();
    most.extend_from_slice(&[0, 0, 0x20, 0, 2, 1, 0, 0]);
    most.resize(8 + 8191, 0);
    let peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let mut peer = Peer::new(&broker);
            peer.say(&most);
            // The mechanisms have come: it was read.
            peer.0.read_exact(&mut [0; 8]).unwrap();
            peer
        })
        .collect();
    broker.done(&["send", "q", "others are served"]);
    let each = resident_kib(&broker).saturating_sub(before) / PEERS as u64;
    assert!(each <= 32, "{each} KiB a peer");
    drop(peers);
}

#[test]
fn a_peer_that_never_reads_costs_a_bounded_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.memory_bytes=16777216"]);
    // 96 MiB in messages; few of them fit the memory for bodies.
    broker.done(&["send", "q", "--size", "98304", "--count", "1000"]);
    let before = resident_kib(&broker);
    let mut peer = Peer::new(&broker);
    peer.log_in().open(&OPEN);
    peer.frame(FrameKind::Amqp, |out| {
        Begin { incoming_window: u32::MAX, outgoing_window: 100, handle_max: 10, ..Begin::default() }.encode(out);
    });
    peer.frame(FrameKind::Amqp, |out| {
        let source = Source { address: Some("q"), ..Source::default() };
        Attach { name: "glutton", role: Role::Receiver, source: Some(source), ..Attach::default() }.encode(out);
    });
    peer.frame(FrameKind::Amqp, |out| {
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: u32::MAX,
            next_outgoing_id: 0,
            outgoing_window: 100,
            handle: Some(0),
            delivery_count: Some(0),
            link_credit: Some(1000),
            ..Flow::default()
        };
        flow.encode(out);
    });
    // It has been given what its buffer holds, and no more is taken from the queue.
    let mut acquired = 0;
    let settled = (0..2000).any(|_| {
        let now = broker.queue("q")["acquired"].as_u64().unwrap();
        std::mem::replace(&mut acquired, now) == now && now > 0
    });
    assert!(settled && acquired < 500, "{acquired} of 1000 taken");
    for n in 0..20 {
        broker.done(&["send", "other", &format!("{n}")]);
        assert_eq!(broker.done(&["receive", "other", "--count", "1"]), format!("{n}\n"));
    }
    let grown = resident_kib(&broker).saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more");
    drop(peer);
    // Everything comes back.
    assert!((0..2000).any(|_| broker.queue("q")["ready"] == 1000));
}

#[test]
fn messages_and_frames_over_the_limit_are_told_with_limit_and_value() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.max_frame_bytes=4096"]);
    let mut large = Vec::new();
    FrameHeader::encode(&mut large, FrameKind::Amqp, 0, |out| {
        put_descriptor(out, 0x11);
        put_binary(out, &[0; 5000]);
    });
    let answer = Peer::new(&broker).log_in().open(&OPEN).say(&large).hang_up().rest();
    assert!(contains(&answer, "amqp:connection:framing-error"), "{}", answer.escape_ascii());
    assert!(contains(&answer, "4096"), "{}", answer.escape_ascii());
    broker.done(&["send", "q", "--size", "100000"]);
}

#[test]
fn out_of_descriptors_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready.json");
    // The hard limit too: the broker raises the soft one.
    let script = format!(
        "ulimit -n 60; exec {} serve --data {dir}/data --listen 127.0.0.1:0 --http 127.0.0.1:0 --ready-file {dir}/ready.json",
        common::BIN,
        dir = dir.path().display()
    );
    let broker = Broker::spawn(std::process::Command::new("sh").arg("-c").arg(script), &ready);
    let address = broker.amqp();
    // All of them are connected as far as they know: the system's backlog has those that the broker cannot accept.
    let peers: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut first = &peers[0];
    first.write_all(&SASL_PROTOCOL_HEADER).unwrap();
    first.read_exact(&mut [0; 8]).unwrap();
    drop(peers);
    // Until the broker has noticed that they are gone, whoever comes may be turned away before login.
    let again = |words: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let output = broker.run(words);
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            assert!(Instant::now() < deadline, "{words:?}: {output:?}");
        }
    };
    again(&["send", "q", "there is room again"]);
    assert_eq!(again(&["receive", "q"]), "there is room again\n");
}
