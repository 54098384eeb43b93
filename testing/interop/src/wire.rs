//! Just enough of AMQP 1.0's frames and types to compare what went into the broker with what came out, byte by byte.
//! Written apart from `core/amqp10` on purpose: a judge that shares the codec under test would share its errors.
//! Reads complete recordings of our own clients; it is no parser for hostile input.

use std::collections::BTreeMap;

/// One piece of a byte stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    /// A protocol header, `AMQP` and four bytes.
    Header,
    /// A frame: its type (0 AMQP, 1 SASL), channel, and all behind the extended header.
    Frame { kind: u8, channel: u16, body: &'a [u8] },
}

/// An AMQP value, as far as the driver looks into values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// All unsigned integers.
    Number(u64),
    /// String and symbol.
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Described(Box<Value>, Box<Value>),
    /// Any other type, as its encoded bytes.
    Other(Vec<u8>),
}

type Parsed<T> = Result<T, String>;

/// Splits a recording into protocol headers and frames; a last, incomplete piece is left out.
pub(crate) fn pieces(mut stream: &[u8]) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    while stream.len() >= 8 {
        if stream.starts_with(b"AMQP") {
            out.push(Piece::Header);
            stream = &stream[8..];
            continue;
        }
        let size = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]) as usize;
        let start = usize::from(stream[4]) * 4;
        if size < 8 || stream.len() < size || start > size {
            break;
        }
        let channel = u16::from_be_bytes([stream[6], stream[7]]);
        out.push(Piece::Frame { kind: stream[5], channel, body: &stream[start..size] });
        stream = &stream[size..];
    }
    out
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Parsed<&'a [u8]> {
    let part = bytes
        .get(*at..*at + count)
        .ok_or_else(|| format!("{count} bytes wanted at {at}, there are {}", bytes.len()))?;
    *at += count;
    Ok(part)
}

fn number(bytes: &[u8], at: &mut usize, width: usize) -> Parsed<u64> {
    Ok(take(bytes, at, width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Decodes the value at `at` and moves `at` behind it.
pub(crate) fn value(bytes: &[u8], at: &mut usize) -> Parsed<Value> {
    let begin = *at;
    let code = take(bytes, at, 1)?[0];
    Ok(match code {
        0x00 => {
            let descriptor = value(bytes, at)?;
            Value::Described(Box::new(descriptor), Box::new(value(bytes, at)?))
        }
        0x40 => Value::Null,
        0x41 => Value::Bool(true),
        0x42 => Value::Bool(false),
        0x43 | 0x44 => Value::Number(0),
        0x45 => Value::List(Vec::new()),
        0x50 | 0x52 | 0x53 => Value::Number(number(bytes, at, 1)?),
        0x56 => Value::Bool(number(bytes, at, 1)? == 1),
        0x60 => Value::Number(number(bytes, at, 2)?),
        0x70 => Value::Number(number(bytes, at, 4)?),
        0x80 => Value::Number(number(bytes, at, 8)?),
        0xa1 | 0xa3 | 0xb1 | 0xb3 => {
            let size = number(bytes, at, if code < 0xb0 { 1 } else { 4 })? as usize;
            Value::Text(String::from_utf8_lossy(take(bytes, at, size)?).into_owned())
        }
        0xc0 | 0xc1 | 0xd0 | 0xd1 => {
            let width = if code < 0xd0 { 1 } else { 4 };
            number(bytes, at, width)?; // the size, which the count makes needless
            let count = number(bytes, at, width)?;
            let items = (0..count).map(|_| value(bytes, at)).collect::<Parsed<Vec<_>>>()?;
            if code & 1 == 0 {
                Value::List(items)
            } else {
                Value::Map(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
        }
        _ => {
            let size = match code >> 4 {
                0x5 => 1,
                0x6 => 2,
                0x7 => 4,
                0x8 => 8,
                0x9 => 16,
                0xa | 0xe => number(bytes, at, 1)? as usize,
                0xb | 0xf => number(bytes, at, 4)? as usize,
                _ => return Err(format!("no type has the code {code:#04x}")),
            };
            take(bytes, at, size)?;
            Value::Other(bytes[begin..*at].to_vec())
        }
    })
}

impl Value {
    /// Field `index` of a performative or composite section; null where it was left out.
    pub(crate) fn field(&self, index: usize) -> &Value {
        match self {
            Value::Described(_, inner) => inner.field(index),
            Value::List(items) => items.get(index).unwrap_or(&Value::Null),
            _ => &Value::Null,
        }
    }

    /// The numeric descriptor of a described value.
    pub(crate) fn code(&self) -> Option<u64> {
        match self {
            Value::Described(descriptor, _) => match descriptor.as_ref() {
                Value::Number(code) => Some(*code),
                _ => None,
            },
            _ => None,
        }
    }

    /// The entry of a (described) map under a text key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Described(_, inner) => inner.entry(key),
            Value::Map(pairs) => {
                pairs.iter().find(|(name, _)| *name == Value::Text(key.to_owned())).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    fn as_number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// A message's payload, cut into what is compared apart.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Sections {
    /// The header section, decoded: the broker rebuilds it, only its meaning must stay.
    pub(crate) header: Option<Value>,
    /// The delivery annotations, which live one hop.
    pub(crate) delivery_annotations: Option<Value>,
    /// The message annotations' bytes.
    pub(crate) message_annotations: Vec<u8>,
    /// From the properties to the footer, as bytes.
    pub(crate) bare: Vec<u8>,
}

/// Cuts a payload into sections.
pub(crate) fn sections(payload: &[u8]) -> Parsed<Sections> {
    let mut out = Sections::default();
    let mut at = 0;
    while at < payload.len() {
        let begin = at;
        let section = value(payload, &mut at)?;
        match section.code() {
            Some(0x70) => out.header = Some(section),
            Some(0x71) => out.delivery_annotations = Some(section),
            Some(0x72) => out.message_annotations = payload[begin..at].to_vec(),
            Some(0x73..=0x78) => {
                out.bare = payload[begin..].to_vec();
                return Ok(out);
            }
            other => return Err(format!("no section has the descriptor {other:?}")),
        }
    }
    Ok(out)
}

/// The payloads of all whole deliveries in one direction of a recording, in order of their last frame.
pub(crate) fn payloads(stream: &[u8]) -> Parsed<Vec<Vec<u8>>> {
    let mut open: BTreeMap<(u16, u64), Vec<u8>> = BTreeMap::new();
    let mut out = Vec::new();
    for piece in pieces(stream) {
        let Piece::Frame { kind: 0, channel, body } = piece else { continue };
        if body.is_empty() {
            continue;
        }
        let mut at = 0;
        let performative = value(body, &mut at)?;
        if performative.code() != Some(0x14) {
            continue;
        }
        let handle = performative.field(0).as_number().ok_or("a transfer without handle")?;
        let (more, aborted) = (performative.field(5), performative.field(9));
        let mut payload = open.remove(&(channel, handle)).unwrap_or_default();
        payload.extend_from_slice(&body[at..]);
        match (more, aborted) {
            (_, Value::Bool(true)) => {}
            (Value::Bool(true), _) => {
                open.insert((channel, handle), payload);
            }
            _ => out.push(payload),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channel: u16, body: &[u8]) -> Vec<u8> {
        let mut out = (8 + body.len() as u32).to_be_bytes().to_vec();
        out.extend_from_slice(&[2, 0]);
        out.extend_from_slice(&channel.to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    /// A transfer on handle 1 with id, tag, format, settled and `more`.
    fn transfer(more: bool, payload: &[u8]) -> Vec<u8> {
        let more = if more { 0x41 } else { 0x42 };
        let mut body = vec![0x00, 0x53, 0x14, 0xc0, 11, 6, 0x52, 1, 0x43, 0xa0, 1, b't', 0x43, 0x41, more];
        body[4] = (body.len() - 5) as u8;
        body.extend_from_slice(payload);
        frame(0, &body)
    }

    #[test]
    fn a_recording_is_cut_into_headers_and_frames_and_an_incomplete_end_is_left_out() {
        let mut stream = b"AMQP\x03\x01\x00\x00".to_vec();
        stream.extend(frame(7, b"xy"));
        stream.extend(&frame(1, b"abcdef")[..10]);
        assert_eq!(pieces(&stream), [Piece::Header, Piece::Frame { kind: 0, channel: 7, body: b"xy" }]);
    }

    #[test]
    fn a_delivery_of_several_frames_is_one_payload() {
        let stream =
            [transfer(true, b"one"), frame(0, b""), transfer(false, b"two"), transfer(false, b"three")].concat();
        assert_eq!(payloads(&stream).unwrap(), [b"onetwo".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn sections_are_told_apart_and_the_bare_message_keeps_its_bytes() {
        let header = [0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
        let annotations = [0x00, 0x53, 0x72, 0xc1, 6, 2, 0xa3, 1, b'k', 0x54, 5];
        let bare = [0x00, 0x53, 0x75, 0xa0, 2, 0xff, 0x00];
        let cut = sections(&[&header[..], &annotations, &bare].concat()).unwrap();
        assert_eq!(cut.header.unwrap().field(0), &Value::Bool(true));
        assert_eq!(cut.message_annotations, annotations);
        assert_eq!(cut.bare, bare);
    }

    #[test]
    fn every_shape_of_type_is_passed_over_exactly() {
        let mut samples: Vec<Vec<u8>> =
            vec![vec![0x40], vec![0x45], vec![0xa1, 2, b'h', b'i'], vec![0xb0, 0, 0, 0, 1, 9]];
        samples.extend(
            [1usize, 2, 4, 8, 16]
                .iter()
                .zip([0x51u8, 0x61, 0x72, 0x83, 0x98])
                .map(|(size, code)| [vec![code], vec![0; *size]].concat()),
        );
        samples.push(vec![0xe0, 3, 1, 0x54, 7]);
        samples.push(vec![0xc1, 4, 2, 0x54, 1, 0x40]);
        samples.push(vec![0xd0, 0, 0, 0, 5, 0, 0, 0, 1, 0x41]);
        for sample in samples {
            let mut at = 0;
            value(&sample, &mut at).unwrap();
            assert_eq!(at, sample.len(), "{sample:x?}");
            assert!(value(&sample[..sample.len() - 1], &mut 0).is_err() || sample.len() == 1, "{sample:x?}");
        }
    }
}
