//! Random changes to real frames and messages: nothing may panic. The seed is fixed, so that a failure stays.

use super::*;
use crate::fuzz;
use crate::message::{write_annotations, write_data, write_header, write_sequence, write_value};

/// xorshift64*: enough to scatter changes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn message() -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, Some(true), Some(7), Some(60_000), None, Some(2));
    write_annotations(&mut out, |map| {
        put_symbol(map.next(), "x-opt-jms-msg-type");
        put_byte(map.next(), 5);
        put_ulong(map.next(), 77);
        put_timestamp(map.next(), 1 << 41);
    });
    Properties {
        message_id: Some(MessageId::String("ID:1")),
        to: Some("queue"),
        correlation_id: Some(MessageId::Ulong(4)),
        content_type: Some("text/plain"),
        creation_time: Some(1 << 41),
        group_id: Some("g"),
        group_sequence: Some(3),
        ..Properties::default()
    }
    .encode(&mut out);
    put_descriptor(&mut out, 0x74);
    ValueWriter::map(&mut out, |map| {
        put_string(map.next(), "color");
        put_string(map.next(), "blue");
        put_string(map.next(), "n");
        put_double(map.next(), 0.5);
    });
    write_data(&mut out, b"some bytes of a body");
    write_data(&mut out, &[0; 40]);
    put_descriptor(&mut out, 0x78);
    ValueWriter::map(&mut out, |map| {
        put_symbol(map.next(), "sum");
        put_uint(map.next(), 99);
    });
    out
}

pub(super) fn messages() -> Vec<Vec<u8>> {
    let mut sequence = Vec::new();
    write_sequence(&mut sequence, |list| {
        put_int(list.next(), 1);
        ValueWriter::map(list.next(), |map| {
            put_string(map.next(), "k");
            put_symbols(map.next(), &Symbols::from_slice(&["a", "bc"]));
        });
    });
    let mut value = Vec::new();
    write_value(&mut value, |out| {
        put_symbolic_descriptor(out, "com.example:point:list");
        ValueWriter::list(out, |list| {
            put_float(list.next(), 1.0);
            put_uuid(list.next(), [4; 16]);
            put_char(list.next(), 'x');
        });
    });
    alloc::vec![message(), sequence, value]
}

/// The bodies of frames as they occur, one of each performative at least.
pub(super) fn bodies() -> Vec<Vec<u8>> {
    let limits = limits();
    let mut map = Vec::new();
    ValueWriter::map(&mut map, |map| {
        put_symbol(map.next(), "product");
        put_string(map.next(), "test");
    });
    let map = Map::from_encoded(&map, &limits).expect("a map");
    let error = Error { condition: "amqp:internal-error", description: Some("none"), info: Some(map) };
    let transfer = Transfer {
        delivery_id: Some(300),
        delivery_tag: Some(&[1, 2, 3, 4]),
        message_format: Some(0),
        settled: Some(false),
        state: Some(DeliveryState::Transactional(TransactionalState { txn_id: &[8; 8], outcome: None })),
        ..Transfer::default()
    };
    let frames: Vec<Performative<'_>> = alloc::vec![
        Open {
            container_id: "c",
            hostname: Some("h"),
            offered_capabilities: Symbols::from_slice(&["A", "B"]),
            properties: Some(map),
            ..Open::default()
        }
        .into(),
        Begin { remote_channel: Some(3), incoming_window: 2048, outgoing_window: 100, ..Begin::default() }.into(),
        Attach {
            name: "link",
            role: Role::Receiver,
            source: Some(Source {
                address: Some("q"),
                filter: Some(map),
                outcomes: Symbols::from_slice(&[Accepted::SYMBOL, Rejected::SYMBOL]),
                default_outcome: Some(Outcome::Modified(Modified { delivery_failed: true, ..Modified::default() })),
                ..Source::default()
            }),
            target: Some(Target { address: Some("t"), dynamic_node_properties: Some(map), ..Target::default() }.into()),
            unsettled: Some(map),
            ..Attach::default()
        }
        .into(),
        Flow {
            next_incoming_id: Some(1),
            incoming_window: 2,
            next_outgoing_id: 3,
            outgoing_window: 4,
            handle: Some(0),
            delivery_count: Some(700),
            link_credit: Some(100),
            ..Flow::default()
        }
        .into(),
        Disposition {
            role: Role::Receiver,
            first: 3,
            last: Some(9),
            settled: true,
            state: Some(DeliveryState::Rejected(Rejected { error: Some(error) })),
            ..Disposition::default()
        }
        .into(),
        Detach { handle: 1, closed: true, error: Some(error) }.into(),
        End { error: Some(error) }.into(),
        Close { error: None }.into(),
    ];
    let mut bodies: Vec<Vec<u8>> = frames
        .iter()
        .map(|frame| {
            let mut out = Vec::new();
            frame.encode(&mut out);
            out
        })
        .collect();
    for message in messages() {
        let mut out = Vec::new();
        transfer.encode(&mut out);
        out.extend_from_slice(&message);
        bodies.push(out);
    }
    bodies
}

pub(super) fn sasl_bodies() -> Vec<Vec<u8>> {
    let frames: [SaslPerformative<'_>; 3] = [
        SaslMechanisms { sasl_server_mechanisms: Symbols::from_slice(&["SCRAM-SHA-256", "PLAIN"]) }.into(),
        SaslInit { mechanism: "PLAIN", initial_response: Some(b"\0u\0p"), hostname: Some("h") }.into(),
        SaslOutcome { code: SaslCode::SysTemp, additional_data: Some(b"v=1") }.into(),
    ];
    frames
        .iter()
        .map(|frame| {
            let mut out = Vec::new();
            frame.encode(&mut out);
            out
        })
        .collect()
}

/// Calls `target` with `rounds` changed copies of `seeds`.
fn mutate(seeds: &[Vec<u8>], rounds: usize, target: impl Fn(&[u8])) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::new();
    for round in 0..rounds {
        let seed = &seeds[round % seeds.len()];
        bytes.clear();
        bytes.extend_from_slice(seed);
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(8) {
                // The bytes that steer: constructors, sizes, counts.
                0 => bytes[at] = [0x00, 0x40, 0x45, 0xc0, 0xc1, 0xd0, 0xd1, 0xe0, 0xf0, 0xff][random.below(10)],
                1 => bytes[at] = bytes[at].wrapping_add(1),
                2 => bytes[at] = bytes[at].wrapping_sub(1),
                3 => bytes.truncate(at.max(1)),
                4 => {
                    let from = random.below(bytes.len());
                    let copy = bytes[from..(from + 9).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copy);
                }
                5 => bytes[at] ^= 1 << random.below(8),
                _ => bytes[at] = random.next() as u8,
            }
        }
        target(&bytes);
    }
}

#[test]
fn a_million_changed_frames_and_messages_do_no_harm() {
    on_small_stack(|| {
        mutate(&bodies(), 600_000, fuzz::performative);
        mutate(&messages(), 300_000, fuzz::message);
        mutate(&sasl_bodies(), 60_000, fuzz::sasl);
        let values: Vec<_> = messages().iter().chain(&bodies()).cloned().collect();
        mutate(&values, 100_000, fuzz::value);
        let frames: Vec<_> = bodies()
            .iter()
            .map(|body| {
                let mut out = Vec::new();
                FrameHeader::encode(&mut out, FrameKind::Amqp, 1, |out| out.extend_from_slice(body));
                out
            })
            .collect();
        mutate(&frames, 100_000, fuzz::frame);
    });
}

#[test]
fn every_prefix_of_every_frame_is_an_error_or_a_whole_one() {
    for body in bodies().iter().chain(&sasl_bodies()) {
        for len in 0..=body.len() {
            fuzz::performative(&body[..len]);
            fuzz::sasl(&body[..len]);
            fuzz::value(&body[..len]);
        }
    }
}
