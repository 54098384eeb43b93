//! Sessions of foreign clients, recorded byte for byte between client and broker (`cargo run -p packhorse-interop --
//! --capture core/amqp10/tests/vectors`): every frame decodes and survives our own encoding, every message parses, and
//! our server engine takes each client's whole session without finding a fault in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;
use packhorse_amqp10::message::MessageView;

const CLIENTS: [&str; 3] = ["proton", "rhea", "qpid-jms"];

#[expect(clippy::disallowed_methods, reason = "a test that replays files")]
fn vector(client: &str, side: &str) -> Vec<u8> {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(client).join(side);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What the frames of one stream carried.
#[derive(Default)]
struct Seen {
    names: BTreeMap<&'static str, usize>,
    payloads: Vec<Vec<u8>>,
}

/// Decodes each frame, encodes it with our codec, decodes that, and compares.
fn walk(stream: &[u8]) -> Seen {
    let limits = Limits::default();
    let mut seen = Seen::default();
    let mut open: BTreeMap<(u16, u32), Vec<u8>> = BTreeMap::new();
    let mut rest = stream;
    let mut kind = FrameKind::Sasl;
    while !rest.is_empty() {
        if rest.starts_with(b"AMQP") {
            kind = if rest.starts_with(&SASL_PROTOCOL_HEADER) { FrameKind::Sasl } else { FrameKind::Amqp };
            assert!(kind == FrameKind::Sasl || rest.starts_with(&PROTOCOL_HEADER));
            rest = &rest[8..];
            continue;
        }
        let header = FrameHeader::parse(rest, u32::MAX, kind).expect("a frame").expect("a whole header");
        let (frame, behind) = rest.split_at(header.size as usize);
        rest = behind;
        let body = header.body(frame);
        if kind == FrameKind::Sasl {
            let ours = SaslPerformative::decode(body, &limits).expect("a SASL frame");
            let mut again = Vec::new();
            ours.encode(&mut again);
            assert_eq!(SaslPerformative::decode(&again, &limits).expect("our own encoding"), ours);
            *seen.names.entry(ours.name()).or_default() += 1;
            continue;
        }
        let Some((performative, payload)) = Performative::decode(body, &limits).expect("an AMQP frame") else {
            continue;
        };
        let mut again = Vec::new();
        performative.encode(&mut again);
        let (decoded, nothing) = Performative::decode(&again, &limits).expect("our own encoding").expect("not empty");
        assert_eq!(decoded, performative);
        assert!(nothing.is_empty());
        *seen.names.entry(performative.name()).or_default() += 1;
        if let Performative::Transfer(transfer) = &performative {
            let key = (header.channel, transfer.handle);
            let mut whole = open.remove(&key).unwrap_or_default();
            whole.extend_from_slice(payload);
            if transfer.more {
                open.insert(key, whole);
            } else {
                seen.payloads.push(whole);
            }
        }
    }
    seen
}

#[test]
fn every_frame_of_the_recordings_survives_decoding_and_encoding() {
    for client in CLIENTS {
        let sent = walk(&vector(client, "from-client.bin"));
        for name in ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"] {
            assert!(sent.names.contains_key(name), "{client} never sent {name}: {:?}", sent.names);
        }
        let came = walk(&vector(client, "from-broker.bin"));
        for name in ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"] {
            assert!(came.names.contains_key(name), "{client} never got {name}: {:?}", came.names);
        }
    }
}

#[test]
fn every_message_of_the_recordings_parses_and_its_bare_part_is_what_came_out() {
    let limits = Limits::default();
    for client in CLIENTS {
        let sent = walk(&vector(client, "from-client.bin")).payloads;
        let came = walk(&vector(client, "from-broker.bin")).payloads;
        assert!(sent.len() > 10, "{client}: {} messages", sent.len());
        let bare = |payload: &Vec<u8>| {
            let view = MessageView::parse(payload, &limits).unwrap_or_else(|error| panic!("{client}: {error:?}"));
            assert!(view.layout().is_whole());
            view.bare_and_footer().to_vec()
        };
        let sent: Vec<Vec<u8>> = sent.iter().map(bare).collect();
        for payload in &came {
            assert!(sent.contains(&bare(payload)), "{client} got a message that it never sent");
        }
    }
}

/// A broker of a few lines: takes everything, sends each message to whoever gives credit.
struct Replay {
    conn: Connection,
    stored: Vec<Vec<u8>>,
    outcomes: Vec<DeliveryOutcome>,
    accepted: usize,
    other: usize,
    closed: bool,
}

impl Replay {
    fn new(stored: Vec<Vec<u8>>) -> Self {
        let config = ServerConfig { container_id: "replay".into(), seed: 7, ..ServerConfig::default() };
        let mut conn = Connection::server(config, 0);
        conn.sasl_mechanisms(&["PLAIN", "ANONYMOUS"]);
        Self { conn, stored, outcomes: Vec::new(), accepted: 0, other: 0, closed: false }
    }

    /// Feeds the stream in pieces of `step` bytes.
    fn feed(&mut self, stream: &[u8], step: usize) -> Result<(), String> {
        let mut partial = Vec::new();
        for fresh in stream.chunks(step) {
            let mut input = Input { partial: &mut partial, fresh };
            while let Some(event) = self.conn.next(&mut input, 0).map_err(|fault| format!("{fault:?}"))? {
                let label = format!("{event:?}");
                Self::answer(&mut self.conn, &mut self.stored, &mut self.closed, event)
                    .map_err(|misuse| format!("{misuse:?} after {label}"))?;
                // At once: these clients read our credit before they sent.
                self.conn.flush(0);
                let written = self.conn.output_len();
                self.conn.advance_output(written);
                self.conn.take_outcomes(&mut self.outcomes);
                for outcome in self.outcomes.drain(..) {
                    match outcome.state {
                        Decision::Accepted => self.accepted += 1,
                        Decision::None | Decision::Received => {}
                        _ => self.other += 1,
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(
        conn: &mut Connection,
        stored: &mut Vec<Vec<u8>>,
        closed: &mut bool,
        event: Event<'_>,
    ) -> Result<(), Misuse> {
        match event {
            Event::SaslInit { .. } => conn.sasl_outcome(SaslCode::Ok, None),
            Event::Opened(_) => conn.open(&Open { container_id: "replay", ..Open::default() }, 0),
            Event::Attach(attach) => {
                let frame = attach.frame.decode();
                let reply = LinkReply { source: frame.source, target: frame.target, ..LinkReply::default() };
                conn.accept_link(attach.link, &reply)?;
                // Every recording's broker gave this much or more.
                if attach.role == Role::Receiver { conn.grant(attach.link, 1000) } else { Ok(()) }
            }
            Event::Transfer(transfer) if transfer.last && !transfer.settled && !transfer.aborted => {
                let accepted = DeliveryState::Accepted;
                conn.settle_incoming(transfer.link, transfer.delivery_id, Some(&accepted), true).map(|_| ())
            }
            Event::Credit { link, drain, .. } => {
                while conn.sendable(link) && !stored.is_empty() {
                    let payload = stored.remove(0);
                    conn.send(link, &SendParams::default(), &[Piece::Copy(&payload)])?;
                }
                if drain { conn.drained(link) } else { Ok(()) }
            }
            Event::Detached { link, closed, answered: false, .. } => conn.detach(link, closed, None),
            Event::SessionEnded { session, answered: false, .. } => conn.end(session, None),
            Event::Closed { answered, error } => {
                assert!(error.is_none(), "{error:?}");
                *closed = true;
                if answered { Ok(()) } else { conn.close(None, 0) }
            }
            Event::LinkFailed { fault, .. } | Event::SessionFailed { fault, .. } => panic!("{fault:?}"),
            _ => Ok(()),
        }
    }
}

#[test]
fn our_engine_takes_the_whole_session_of_each_client() {
    for client in CLIENTS {
        let stream = vector(client, "from-client.bin");
        // What their broker sent them is sent again, in the same order, so that their dispositions fit.
        let stored = walk(&vector(client, "from-broker.bin")).payloads;
        for step in [stream.len(), 1, 7, 100] {
            let mut replay = Replay::new(stored.clone());
            replay.feed(&stream, step).unwrap_or_else(|fault| panic!("{client}, {step} bytes at a time: {fault}"));
            assert!(replay.closed, "{client}: no close");
            assert!(replay.accepted > 10, "{client}: {} accepted", replay.accepted);
            assert!(replay.other >= 4, "{client}: reject, release and two modified make 4, not {}", replay.other);
        }
    }
}
