//! The history in a compact form: the same objects as in JSON lines, with numbers for words and for queue names.
//!
//! Owns both directions. A file is `phHIST1\n` and records: a length, then fields. Must not allocate per event.

use crate::encode::{self, Encoder};
use crate::event::{Event, Header};
use crate::jsonl::BUFFER_BYTES;
use crate::scan::{Fields, Value};
use crate::words::{Key, Kind};
use packhorse_model::{Map, Seed};
use std::io::{self, Write};

/// How a binary file begins.
pub(crate) const MAGIC: &[u8; 8] = b"phHIST1\n";

/// Room for the queue name used last; longer ones cost an allocation.
const NAME_BYTES: usize = 256;

/// Added to a key's number if the field is a flag that is set.
const SET: u8 = 0x80;

/// Writes one process's file, with the rules of [`JsonlWriter`](crate::JsonlWriter), in a fifth of the bytes.
#[derive(Debug)]
pub struct BinaryWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
    record: Record,
    last_ns: u64,
}

impl<W: Write> BinaryWriter<W> {
    /// A new file, beginning with its header.
    pub fn new(out: W, header: &Header) -> io::Result<BinaryWriter<W>> {
        let record = Record {
            bytes: Vec::with_capacity(4 << 10),
            names: Seed::fixed(7).map(),
            last: (String::with_capacity(NAME_BYTES), 0),
        };
        let buffer = Vec::with_capacity(BUFFER_BYTES + (4 << 10));
        let mut writer = BinaryWriter { out, buffer, record, last_ns: header.mono_ns };
        writer.buffer.extend_from_slice(MAGIC);
        encode::header(&mut writer.record, header);
        writer.end_record();
        writer.flush()?;
        Ok(writer)
    }

    /// Adds an event that happened at `at_ns` of the monotonic clock. It is in the file after the next `flush`.
    pub fn put(&mut self, at_ns: u64, event: &Event<'_>) -> io::Result<()> {
        let bytes = &mut self.record.bytes;
        bytes.push(encode::kind(event) as u8);
        put_number(bytes, zigzag(at_ns.wrapping_sub(self.last_ns).cast_signed()));
        self.last_ns = at_ns;
        encode::fields(&mut self.record, event);
        self.end_record();
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn end_record(&mut self) {
        put_number(&mut self.buffer, self.record.bytes.len() as u64);
        self.buffer.extend_from_slice(&self.record.bytes);
        self.record.bytes.clear();
    }

    /// Everything so far goes to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        self.out.flush()
    }

    /// The file. What is not flushed is not in it yet.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Flushes and gives the file back.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}

/// A record being made, and the queue names that the file has had.
#[derive(Debug)]
struct Record {
    bytes: Vec<u8>,
    names: Map<String, u64>,
    last: (String, u64),
}

impl Encoder for Record {
    fn number(&mut self, key: Key, number: u64) {
        self.bytes.push(key as u8);
        put_number(&mut self.bytes, number);
    }

    fn signed(&mut self, key: Key, number: Option<i64>) {
        if let Some(number) = number {
            self.number(key, zigzag(number));
        }
    }

    fn flag(&mut self, key: Key, flag: bool) {
        self.bytes.push(key as u8 | if flag { SET } else { 0 });
    }

    fn text(&mut self, key: Key, text: &str) {
        self.bytes.push(key as u8);
        if key == Key::Queue {
            if self.last.0 == text && !text.is_empty() {
                return put_number(&mut self.bytes, self.last.1);
            }
            if let Some(number) = self.names.get(text) {
                put_number(&mut self.bytes, *number);
                self.last.0.clear();
                self.last.0.push_str(text);
                self.last.1 = *number;
                return;
            }
            // The next number, and the name that it stands for from here on.
            let number = self.names.len() as u64;
            self.names.insert(text.to_owned(), number);
            put_number(&mut self.bytes, number);
        }
        put_number(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Seven bits a byte, the lowest first.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Small for numbers near 0 of either sign.
fn zigzag(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// What a reader of a binary file remembers.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    names: Vec<Vec<u8>>,
    last_ns: u64,
}

impl Decoder {
    /// Takes the first record apart.
    pub(crate) fn header(&mut self, record: &mut Vec<u8>, fields: &mut Fields) -> Result<(), String> {
        fields.clear();
        self.fields(record, 0, fields)
    }

    /// Times count from the header's.
    pub(crate) fn begin(&mut self, mono_ns: u64) {
        self.last_ns = mono_ns;
    }

    /// Takes an event's record apart.
    pub(crate) fn event(&mut self, record: &mut Vec<u8>, fields: &mut Fields) -> Result<(), String> {
        fields.clear();
        let kind = *record.first().ok_or("an empty record")?;
        let kind = Kind::from_number(kind).ok_or_else(|| format!("unknown kind of event, number {kind}"))?;
        let mut at = 1;
        let passed = unzigzag(take_number(record, &mut at)?);
        self.last_ns = self.last_ns.wrapping_add(passed.cast_unsigned());
        fields.push(Key::At, Value::Number { negative: false, magnitude: self.last_ns })?;
        fields.push(Key::Event, Value::Word(kind.name()))?;
        self.fields(record, at, fields)
    }

    fn fields(&mut self, record: &mut Vec<u8>, mut at: usize, fields: &mut Fields) -> Result<(), String> {
        // Names are put behind the record, so that all texts are in one place.
        let end = record.len();
        while at < end {
            let byte = record[at];
            at += 1;
            let key = Key::from_number(byte & !SET).ok_or_else(|| format!("unknown field, number {}", byte & !SET))?;
            let value = match shape(key) {
                Shape::Flag => Value::Flag(byte & SET != 0),
                _ if byte & SET != 0 => return Err(format!("field `{}` is no flag", key.name())),
                Shape::Number => Value::Number { negative: false, magnitude: take_number(&record[..end], &mut at)? },
                Shape::Signed => {
                    let number = unzigzag(take_number(&record[..end], &mut at)?);
                    Value::Number { negative: number < 0, magnitude: number.unsigned_abs() }
                }
                Shape::Text => take_text(&record[..end], &mut at)?,
                Shape::Name => self.name(record, end, &mut at)?,
            };
            fields.push(key, value)?;
        }
        Ok(())
    }

    fn name(&mut self, record: &mut Vec<u8>, end: usize, at: &mut usize) -> Result<Value, String> {
        let number = take_number(&record[..end], at)?;
        if number == self.names.len() as u64 {
            let value = take_text(&record[..end], at)?;
            if let Value::Text(from, to) = value {
                self.names.push(record[from as usize..to as usize].to_vec());
            }
            return Ok(value);
        }
        let name = usize::try_from(number).ok().and_then(|number| self.names.get(number));
        let name = name.ok_or_else(|| format!("queue number {number} has no name yet"))?;
        let from = record.len() as u32;
        record.extend_from_slice(name);
        Ok(Value::Text(from, record.len() as u32))
    }
}

/// What follows the number of a key.
enum Shape {
    Number,
    Signed,
    Flag,
    Text,
    Name,
}

fn shape(key: Key) -> Shape {
    match key {
        Key::Queue => Shape::Name,
        Key::Run | Key::Process | Key::Clock | Key::Event | Key::Reason | Key::Change => Shape::Text,
        Key::Kind | Key::Target | Key::Xid | Key::Xids | Key::Broker => Shape::Text,
        Key::Persistent | Key::Presettled | Key::Filtered | Key::Redelivered | Key::CrcOk => Shape::Flag,
        Key::Confirmed | Key::DeliveryFailed | Key::UndeliverableHere | Key::Orderly => Shape::Flag,
        Key::Quiet | Key::Start | Key::Deletes | Key::Commit => Shape::Flag,
        Key::Depth | Key::Ready | Key::Acquired | Key::Enqueued | Key::Acknowledged => Shape::Signed,
        Key::DeadLettered | Key::Code => Shape::Signed,
        Key::PackhorseHistory | Key::Pid | Key::Incarnation | Key::MonoNs | Key::WallNs | Key::At => Shape::Number,
        Key::Producer | Key::Sequence | Key::SizeBytes | Key::Crc | Key::TtlMs | Key::DelayMs => Shape::Number,
        Key::Priority | Key::Tx | Key::Consumer | Key::Credit | Key::DeliveryCount => Shape::Number,
        Key::Value | Key::Most | Key::Operation | Key::Messages => Shape::Number,
    }
}

fn take_number(bytes: &[u8], at: &mut usize) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or("a record that ends in a number")?;
        *at += 1;
        if shift == 63 && byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a number above 2^64 − 1".to_owned())
}

fn take_text(bytes: &[u8], at: &mut usize) -> Result<Value, String> {
    let length = take_number(bytes, at)?;
    let from = *at;
    let to = usize::try_from(length).ok().and_then(|length| from.checked_add(length)).filter(|to| *to <= bytes.len());
    *at = to.ok_or("a record that ends in a text")?;
    Ok(Value::Text(from as u32, *at as u32))
}
