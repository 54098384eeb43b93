//! Frames that end the process of other brokers and clients, as bytes to be sent, each with what is owed for it.
//!
//! The same cases are tests of the codec, in process; here they are for a live broker.

use crate::peer::{frame, transfer};

/// What the broker owes for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// A `close` with this condition.
    Close(&'static str),
    /// The message is rejected with this condition; the link lives.
    Reject(&'static str),
    /// Nothing is wrong with it.
    Fine,
}

/// One hostile frame.
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// The bytes of a whole frame or more, for channel 0 of an open connection without sessions.
    pub bytes: Vec<u8>,
    /// What is owed.
    pub owed: Owed,
}

/// A list32, map32 or array32 constructor with this size and count, and nothing behind it.
fn compound(code: u8, size: u32, count: u32) -> Vec<u8> {
    [&[code][..], &size.to_be_bytes(), &count.to_be_bytes()].concat()
}

/// A performative with these encoded fields.
fn composite(code: u8, count: u32, fields: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, code][..], &compound(0xd0, fields.len() as u32 + 4, count), fields].concat()
}

/// So many list32 in each other, well formed.
fn nested_lists(levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in 0..levels {
        bytes.extend_from_slice(&compound(0xd0, ((levels - level - 1) * 9 + 1) as u32 + 4, 1));
    }
    bytes.push(0x40);
    bytes
}

fn nested_arrays(levels: usize) -> Vec<u8> {
    let mut bytes = vec![0xf0];
    for level in 0..levels {
        bytes.extend_from_slice(&(((levels - level - 1) * 9 + 1) as u32 + 5).to_be_bytes());
        bytes.extend_from_slice(&1u32.to_be_bytes());
        bytes.push(if level + 1 == levels { 0x41 } else { 0xf0 });
    }
    bytes.push(0);
    bytes
}

/// A map32 of one symbol `k` with this value.
fn map_of(value: &[u8]) -> Vec<u8> {
    let pair = [&[0xa3, 1, b'k'][..], value].concat();
    [&compound(0xd1, pair.len() as u32 + 4, 2)[..], &pair].concat()
}

/// `begin` with these properties.
fn begin(properties: &[u8]) -> Vec<u8> {
    let fields = [&[0x40, 0x43, 0x52, 10, 0x52, 10, 0x52, 10, 0x40, 0x40][..], properties].concat();
    frame(0, |out| out.extend_from_slice(&composite(0x11, 8, &fields)))
}

/// `open` with container-id `c` and these fields behind it.
fn open(count: u32, fields: &[u8]) -> Vec<u8> {
    let fields = [&[0xa1, 1, b'c'][..], fields].concat();
    frame(0, |out| out.extend_from_slice(&composite(0x10, count + 1, &fields)))
}

fn raw(size: u32, doff: u8, rest: &[u8]) -> Vec<u8> {
    [&size.to_be_bytes()[..], &[doff, 0, 0, 0], rest].concat()
}

/// Frames to be sent right after `open`, and the same as `open` itself.
pub fn connection_cases() -> Vec<Case> {
    const DECODE: Owed = Owed::Close("amqp:decode-error");
    const FRAMING: Owed = Owed::Close("amqp:connection:framing-error");
    let mut cases = vec![
        ("begin, properties nested 6,000 times", begin(&map_of(&nested_lists(6_000))), DECODE),
        ("begin of 60 KB, inconsistent sizes", begin(&[0xc1, 0xff, 2, 0x40].repeat(15_000)), DECODE),
        ("begin, 20,000 described values", begin(&[0x00, 0x53, 0x01].repeat(20_000)), DECODE),
        ("begin, nested arrays", begin(&map_of(&nested_arrays(6_000))), DECODE),
        ("begin, map32 of 4 G entries", begin(&compound(0xd1, 4, u32::MAX - 1)), DECODE),
        ("begin, list32 of 4 G entries", begin(&map_of(&compound(0xd0, 4, u32::MAX))), DECODE),
        ("begin, array32 of 4 G nulls", begin(&map_of(&[&compound(0xf0, 5, u32::MAX)[..], &[0x40]].concat())), DECODE),
        ("begin, compound of size 0", begin(&compound(0xd1, 0, 0)), DECODE),
        ("begin, map8 of size 0", begin(&[0xc1, 0, 0]), DECODE),
        ("begin, map as a key, which is harmless", begin(&[0xc1, 7, 2, 0xc1, 3, 2, 0x40, 0x40, 0x41]), Owed::Fine),
        ("begin, text that is no UTF-8", begin(&map_of(&[0xa1, 2, 0xc3, 0x28])), DECODE),
        ("begin, a surrogate as char", begin(&map_of(&[0x73, 0, 0, 0xdf, 0xff])), DECODE),
        ("begin, binary32 of 4 GiB", begin(&map_of(&[0xb0, 0xff, 0xff, 0xff, 0xff, 1])), DECODE),
        (
            "begin, a list32 of size 0 itself",
            frame(0, |o| o.extend([0, 0x53, 0x11, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0])),
            DECODE,
        ),
        ("begin without windows", frame(0, |o| o.extend(composite(0x11, 0, &[]))), DECODE),
        ("begin, four mandatory nulls", frame(0, |o| o.extend(composite(0x11, 4, &[0x40; 4]))), DECODE),
        ("an unknown performative", frame(0, |o| o.extend([0, 0x53, 0x99, 0x45])), DECODE),
        ("a performative cut off", frame(0, |o| o.extend([0, 0x53, 0x11])), DECODE),
        ("a descriptor that is a list", frame(0, |o| o.extend([0, 0x45, 0x45])), DECODE),
        ("20,000 descriptors of descriptors", frame(0, |o| o.extend([0; 20_000])), DECODE),
        (
            "payload behind begin",
            frame(0, |o| o.extend([&composite(0x11, 4, &[0x40, 0x43, 0x43, 0x43])[..], b"x"].concat())),
            DECODE,
        ),
        ("a second open", open(0, &[]), Owed::Close("amqp:illegal-state")),
        ("frame of 4 GiB", raw(u32::MAX, 2, &[]), FRAMING),
        ("frame one above the limit", raw((1 << 20) + 1, 2, &[]), FRAMING),
        ("frame type 7", vec![0, 0, 0, 8, 2, 7, 0, 0], FRAMING),
        ("a SASL frame after the login", vec![0, 0, 0, 8, 2, 1, 0, 0], FRAMING),
        ("an extended header, which is legal", raw(12, 3, &[1, 2, 3, 4]), Owed::Fine),
        ("an empty frame", raw(8, 2, &[]), Owed::Fine),
    ];
    for size in 0..8 {
        cases.push(("frame of size 0 to 7", raw(size, 2, &[]), FRAMING));
    }
    for doff in [0, 1, 3, 255] {
        cases.push(("data offset 0, 1, 3, 255 of 8 bytes", raw(8, doff, &[]), FRAMING));
    }
    cases.into_iter().map(|(name, bytes, owed)| Case { name, bytes, owed }).collect()
}

/// Openings: sent in place of `open`.
pub fn open_cases() -> Vec<Case> {
    const DECODE: Owed = Owed::Close("amqp:decode-error");
    let capabilities = [&[0x40; 6][..], &compound(0xf0, 6, u32::MAX), &[0xa3, 0]].concat();
    let properties = |value: &[u8]| open(9, &[&[0x40; 8][..], value].concat());
    [
        ("open, capabilities of 4 G entries", open(7, &capabilities), DECODE),
        ("open, properties nested 600 times", properties(&map_of(&nested_lists(600))), DECODE),
        ("open, 2,000 described values", properties(&[0x00, 0x53, 0x01].repeat(2_000)), DECODE),
        ("open, properties of size 0", properties(&compound(0xd1, 0, 0)), DECODE),
        ("open without container-id", frame(0, |o| o.extend(composite(0x10, 0, &[]))), DECODE),
        ("open, container-id no UTF-8", frame(0, |o| o.extend(composite(0x10, 1, &[0xa1, 2, 0xc3, 0x28]))), DECODE),
        ("open of 60 KB", properties(&map_of(&nested_lists(6_000))), Owed::Close("amqp:connection:framing-error")),
        ("begin before open", begin(&[0x40]), Owed::Close("amqp:illegal-state")),
        ("transfer before open", transfer(0, 0, &[]), Owed::Close("amqp:illegal-state")),
    ]
    .into_iter()
    .map(|(name, bytes, owed)| Case { name, bytes, owed })
    .collect()
}

/// Messages. The bytes are the message alone, for a transfer.
pub fn message_cases() -> Vec<Case> {
    const REJECT: Owed = Owed::Reject("amqp:decode-error");
    let value = |bytes: &[u8]| [&[0x00, 0x53, 0x77], bytes].concat();
    let section = |code: u8, bytes: &[u8]| [&[0x00, 0x53, code], bytes].concat();
    [
        ("20,000 nested list8, inconsistent sizes", value(&[0xc0, 0xff, 1].repeat(20_000)), REJECT),
        ("7,000 nested list32", value(&nested_lists(7_000)), REJECT),
        ("20,000 nested described values", value(&[&[0x00, 0x53, 0x01].repeat(20_000)[..], &[0x40]].concat()), REJECT),
        ("20,000 nested arrays", value(&nested_arrays(20_000)), REJECT),
        ("list32 of 4 G in 16 bytes", value(&[&compound(0xd0, 8, u32::MAX)[..], &[0x40; 4]].concat()), REJECT),
        (
            "application-properties of 4 G",
            section(0x74, &[&compound(0xd1, 8, u32::MAX - 1)[..], &[0x40; 4]].concat()),
            REJECT,
        ),
        ("array32 of 4 G nulls", value(&[&compound(0xf0, 5, u32::MAX)[..], &[0x40]].concat()), REJECT),
        ("compound of size 0", value(&compound(0xd0, 0, 0)), REJECT),
        ("header of size 0", section(0x70, &[0xc0, 0]), REJECT),
        ("map as a key of application-properties", section(0x74, &[0xc1, 7, 2, 0xc1, 3, 2, 0x40, 0x40, 0x41]), REJECT),
        ("map as a key in the body, which is legal", value(&[0xc1, 7, 2, 0xc1, 3, 2, 0x40, 0x40, 0x41]), Owed::Fine),
        ("data of 4 GiB", section(0x75, &[0xb0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]), REJECT),
        ("an empty payload", Vec::new(), REJECT),
        ("no section at all", b"hello".to_vec(), REJECT),
        ("two headers", [section(0x70, &[0x45]), section(0x70, &[0x45]), value(&[0x40])].concat(), REJECT),
        ("body before properties", [value(&[0x40]), section(0x73, &[0x45])].concat(), REJECT),
    ]
    .into_iter()
    .map(|(name, bytes, owed)| Case { name, bytes, owed })
    .collect()
}

/// First bytes that are no AMQP 1.0.
pub fn foreign_hellos() -> Vec<(&'static str, Vec<u8>)> {
    let tls = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
    vec![
        ("HTTP", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
        ("AMQP 0-9-1", b"AMQP\x00\x00\x09\x01".to_vec()),
        ("AMQP with TLS inside", b"AMQP\x02\x01\x00\x00".to_vec()),
        ("AMQP 2.0", b"AMQP\x00\x02\x00\x00".to_vec()),
        ("STOMP", b"CONNECT\naccept-version:1.2\n\n\0".to_vec()),
        ("MQTT", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00".to_vec()),
        ("OpenWire", b"\0\0\0\x52\x01ActiveMQ\0\0\0\x0c".to_vec()),
        ("TLS", tls),
        ("zeros", vec![0; 64]),
        ("ones", vec![0xff; 64]),
        ("a frame without a header", raw(8, 2, &[])),
        ("a frame of size 4", raw(4, 2, &[])),
    ]
}
