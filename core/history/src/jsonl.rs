//! The history as JSON lines: writing. One flat object a line; numbers, strings and booleans only; no blank, no line break inside.
//!
//! Reading is in `scan` and `source`. Must not allocate per event: an event is formatted into one buffer that is kept.

use crate::encode::{self, Encoder};
use crate::event::{Event, Header};
use crate::words::Key;
use std::io::{self, Write};

/// The buffer goes to the file when it holds so much, or at `flush`.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Writes one process's file.
///
/// An act must be in the file before it is done: call [`flush`](JsonlWriter::flush) before bytes go to a socket, once for all
/// events of a turn. Then a client that is killed has never done what its file does not say.
#[derive(Debug)]
pub struct JsonlWriter<W: Write> {
    out: W,
    line: Line,
}

impl<W: Write> JsonlWriter<W> {
    /// A new file, beginning with its header.
    pub fn new(out: W, header: &Header) -> io::Result<JsonlWriter<W>> {
        let mut writer = JsonlWriter { out, line: Line { bytes: Vec::with_capacity(BUFFER_BYTES + (4 << 10)) } };
        writer.line.header(header);
        writer.flush()?;
        Ok(writer)
    }

    /// Adds an event that happened at `at_ns` of the monotonic clock. It is in the file after the next `flush`.
    pub fn put(&mut self, at_ns: u64, event: &Event<'_>) -> io::Result<()> {
        self.line.event(at_ns, event);
        if self.line.bytes.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Everything so far goes to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.line.bytes.is_empty() {
            self.out.write_all(&self.line.bytes)?;
            self.line.bytes.clear();
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

/// The buffer, and how values look in it.
#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    fn header(&mut self, header: &Header) {
        let begin = self.bytes.len();
        encode::header(self, header);
        self.end(begin);
    }

    fn event(&mut self, at_ns: u64, event: &Event<'_>) {
        self.bytes.extend_from_slice(b"{\"at\":");
        self.digits(at_ns);
        self.bytes.extend_from_slice(b",\"event\":\"");
        self.bytes.extend_from_slice(encode::kind(event).name().as_bytes());
        self.bytes.push(b'"');
        encode::fields(self, event);
        self.bytes.extend_from_slice(b"}\n");
    }

    /// Ends an object whose first field was put at `begin`, like all others after a comma.
    fn end(&mut self, begin: usize) {
        self.bytes[begin] = b'{';
        self.bytes.extend_from_slice(b"}\n");
    }

    fn key(&mut self, key: Key) {
        self.bytes.extend_from_slice(b",\"");
        self.bytes.extend_from_slice(key.name().as_bytes());
        self.bytes.extend_from_slice(b"\":");
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }
}

impl Encoder for Line {
    fn number(&mut self, key: Key, number: u64) {
        self.key(key);
        self.digits(number);
    }

    fn signed(&mut self, key: Key, number: Option<i64>) {
        let Some(number) = number else { return };
        self.key(key);
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.digits(number.unsigned_abs());
    }

    fn flag(&mut self, key: Key, flag: bool) {
        self.key(key);
        self.bytes.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    fn text(&mut self, key: Key, text: &str) {
        self.key(key);
        put_json_string(&mut self.bytes, text);
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn put_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            0..=0x1f => {
                let hex = |digit: u8| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
