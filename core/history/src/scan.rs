//! One line of a history taken apart: a flat JSON object of numbers, strings and booleans; and events made of such fields, wherever they
//! come from.
//!
//! Strings are unescaped in place, so nothing is allocated per line. Must not know: files, order of events.

use crate::encode::VERSION;
use crate::event::{BrokerChange, Counters, Event, Header, MessageId, XaVerb};
use crate::words::Key;
use std::ops::Range;

/// Most fields that an object may have; the widest event has 11.
const FIELDS: usize = 24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Value {
    #[default]
    None,
    Number {
        negative: bool,
        magnitude: u64,
    },
    /// From where to where in the line.
    Text(u32, u32),
    Word(&'static str),
    Flag(bool),
}

#[derive(Clone, Copy, Debug, Default)]
struct Field {
    key: Name,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    /// From where to where in the line.
    At(u32, u32),
    Key(Key),
}

impl Default for Name {
    fn default() -> Name {
        Name::At(0, 0)
    }
}

impl Name {
    fn bytes(self, line: &[u8]) -> &[u8] {
        match self {
            Name::At(from, to) => &line[from as usize..to as usize],
            Name::Key(key) => key.name().as_bytes(),
        }
    }
}

/// The fields of the line that was scanned last; places refer to that line.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    fields: [Field; FIELDS],
    count: usize,
}

impl Fields {
    /// Takes a line apart. Its strings are changed in place where they hold escapes.
    pub(crate) fn scan(&mut self, line: &mut [u8]) -> Result<(), String> {
        self.count = 0;
        let mut scanner = Scanner { line, at: 0 };
        scanner.expect(b'{')?;
        if scanner.peek() == Some(b'}') {
            scanner.at += 1;
            return scanner.end();
        }
        loop {
            let Range { start, end } = scanner.text()?;
            scanner.expect(b':')?;
            let value = scanner.value()?;
            self.add(Field { key: Name::At(start, end), value })?;
            match scanner.next() {
                Some(b',') => {}
                Some(b'}') => return scanner.end(),
                _ => return Err(scanner.wanted("`,` or `}`")),
            }
        }
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a field that has been taken apart already.
    pub(crate) fn push(&mut self, key: Key, value: Value) -> Result<(), String> {
        self.add(Field { key: Name::Key(key), value })
    }

    fn add(&mut self, field: Field) -> Result<(), String> {
        let place = self.fields.get_mut(self.count).ok_or_else(|| format!("more than {FIELDS} fields"))?;
        *place = field;
        self.count += 1;
        Ok(())
    }

    /// The time of an event: its field `at`.
    pub(crate) fn at_ns(&self, line: &[u8]) -> Result<u64, String> {
        Taker::new(self, line).number("at")
    }

    /// The header that the line holds.
    pub(crate) fn header(&self, line: &[u8]) -> Result<Header, String> {
        let mut take = Taker::new(self, line);
        let version = take
            .optional_number("packhorse_history")?
            .ok_or("not a history: its first line has no field `packhorse_history`")?;
        if !(1..=u64::from(VERSION)).contains(&version) {
            return Err(format!(
                "version {version} of the history format; this checker reads versions up to {VERSION}"
            ));
        }
        let run = take.text("run")?;
        let run =
            u64::from_str_radix(run, 16).map_err(|_| format!("field `run`: `{run}` is not a number in hexadecimal"))?;
        let header = Header {
            run,
            process: take.text("process")?.to_owned(),
            pid: take.small("pid")?,
            incarnation: take.small("incarnation")?,
            clock: take.text("clock")?.to_owned(),
            mono_ns: take.number("mono_ns")?,
            wall_ns: take.number("wall_ns")?,
        };
        take.nothing_left()?;
        Ok(header)
    }

    /// The event that the line holds.
    pub(crate) fn event<'l>(&self, line: &'l [u8]) -> Result<Event<'l>, String> {
        let mut take = Taker::new(self, line);
        take.number("at")?;
        let kind = take.text("event")?;
        let event = event(kind, &mut take)?;
        take.nothing_left()?;
        Ok(event)
    }
}

fn event<'l>(kind: &str, take: &mut Taker<'_, 'l>) -> Result<Event<'l>, String> {
    Ok(match kind {
        "send" => Event::Send {
            message: take.message()?,
            queue: take.text("queue")?,
            size_bytes: take.small("size_bytes")?,
            crc: take.small("crc")?,
            persistent: take.flag("persistent")?,
            ttl_ms: take.optional_number("ttl_ms")?.unwrap_or(0),
            delay_ms: take.optional_number("delay_ms")?.unwrap_or(0),
            priority: take.priority()?,
            tx: take.optional_number("tx")?,
        },
        "sent_ok" => Event::SentOk { message: take.message()? },
        "sent_rejected" => Event::SentRejected { message: take.message()?, reason: take.text("reason")? },
        "sent_unknown" => Event::SentUnknown { message: take.message()? },
        "attach" => Event::Attach {
            consumer: take.small("consumer")?,
            queue: take.text("queue")?,
            presettled: take.optional_flag("presettled")?,
            filtered: take.optional_flag("filtered")?,
        },
        "credit" => Event::Credit { consumer: take.small("consumer")?, credit: take.small("credit")? },
        "recv" => Event::Recv {
            message: take.message()?,
            consumer: take.small("consumer")?,
            queue: take.text("queue")?,
            delivery_count: take.small("delivery_count")?,
            redelivered: take.flag("redelivered")?,
            crc_ok: take.flag("crc_ok")?,
            tx: take.optional_number("tx")?,
        },
        "ack" => Event::Ack {
            message: take.message()?,
            consumer: take.small("consumer")?,
            confirmed: take.optional_flag("confirmed")?,
            tx: take.optional_number("tx")?,
        },
        "release" => Event::Release {
            message: take.message()?,
            consumer: take.small("consumer")?,
            tx: take.optional_number("tx")?,
        },
        "reject" => Event::Reject {
            message: take.message()?,
            consumer: take.small("consumer")?,
            tx: take.optional_number("tx")?,
        },
        "modified" => Event::Modified {
            message: take.message()?,
            consumer: take.small("consumer")?,
            delivery_failed: take.optional_flag("delivery_failed")?,
            undeliverable_here: take.optional_flag("undeliverable_here")?,
            tx: take.optional_number("tx")?,
        },
        "detach" => Event::Detach {
            consumer: take.small("consumer")?,
            orderly: take.flag("orderly")?,
            confirmed: take.optional_flag("confirmed")?,
        },
        "detached" => Event::Detached { consumer: take.small("consumer")? },
        "expired" => Event::Expired { message: take.message()? },
        "dlq" => Event::Dlq { message: take.message()?, reason: take.text("reason")? },
        "drained" => Event::Drained { queue: take.text("queue")? },
        "counters" => Event::Counters {
            queue: take.text("queue")?,
            counters: Counters {
                quiet: take.flag("quiet")?,
                depth: take.signed("depth")?,
                ready: take.signed("ready")?,
                acquired: take.signed("acquired")?,
                enqueued: take.signed("enqueued")?,
                acknowledged: take.signed("acknowledged")?,
                dead_lettered: take.signed("dead_lettered")?,
            },
        },
        "broker" => Event::Broker { change: take.change()? },
        "node" => Event::Node { broker: take.text("broker")?, change: take.change()? },
        "host" => Event::Host { queue: take.text("queue")?, broker: take.text("broker")? },
        "damaged" => Event::Damaged { message: take.message()? },
        "survey" => Event::Survey { start: take.flag("start")? },
        "present" => Event::Present { message: take.message()?, queue: take.text("queue")? },
        "gauge" => Event::Gauge {
            kind: take.text("kind")?,
            target: take.text("target")?,
            value: take.number("value")?,
            most: take.number("most")?,
        },
        "purge" => Event::Purge {
            operation: take.number("operation")?,
            queue: take.text("queue")?,
            deletes: take.optional_flag("deletes")?,
            messages: take.optional_number("messages")?,
        },
        "move" => Event::Move {
            operation: take.number("operation")?,
            queue: take.text("queue")?,
            target: take.text("target")?,
            messages: take.optional_number("messages")?,
        },
        "browser" => Event::Browser { consumer: take.small("consumer")?, queue: take.text("queue")? },
        "browsed" => {
            Event::Browsed { message: take.message()?, consumer: take.small("consumer")?, crc_ok: take.flag("crc_ok")? }
        }
        "fault" => Event::Fault { kind: take.text("kind")?, target: take.text("target")?, start: take.flag("start")? },
        "tick" => Event::Tick,
        "clock" => Event::Clock { wall_ns: take.number("wall_ns")? },
        "end" => Event::End,
        "tx_begin" => Event::TxBegin {
            tx: take.number("tx")?,
            xid: take.optional_text("xid")?,
            broker: take.optional_text("broker")?,
        },
        "commit_sent" => Event::CommitSent { tx: take.number("tx")? },
        "commit_ok" => Event::CommitOk { tx: take.number("tx")? },
        "commit_unknown" => Event::CommitUnknown { tx: take.number("tx")? },
        "rollback_ok" => Event::RollbackOk { tx: take.number("tx")? },
        "xa_start" => take.xa(XaVerb::Start)?,
        "xa_end" => take.xa(XaVerb::End)?,
        "xa_prepare" => take.xa(XaVerb::Prepare)?,
        "xa_commit" => take.xa(XaVerb::Commit)?,
        "xa_rollback" => take.xa(XaVerb::Rollback)?,
        "xa_forget" => take.xa(XaVerb::Forget)?,
        "recover_list" => {
            Event::RecoverList { xids: take.optional_text("xids")?, broker: take.optional_text("broker")? }
        }
        "decide" => Event::Decide { xid: take.text("xid")?, commit: take.flag("commit")?, code: take.code()? },
        other => return Err(format!("unknown kind of event `{other}`")),
    })
}

/// Takes fields by name. Writers keep an order, so the search begins after the field found last.
struct Taker<'f, 'l> {
    fields: &'f [Field],
    line: &'l [u8],
    next: usize,
    taken: u32,
}

impl<'f, 'l> Taker<'f, 'l> {
    fn new(fields: &'f Fields, line: &'l [u8]) -> Taker<'f, 'l> {
        Taker { fields: &fields.fields[..fields.count], line, next: 0, taken: 0 }
    }

    fn optional(&mut self, key: &str) -> Value {
        let count = self.fields.len();
        for step in 0..count {
            let index = if self.next + step < count { self.next + step } else { self.next + step - count };
            if self.fields[index].key.bytes(self.line) == key.as_bytes() {
                self.taken |= 1 << index;
                self.next = index + 1;
                return self.fields[index].value;
            }
        }
        Value::None
    }

    fn optional_number(&mut self, key: &str) -> Result<Option<u64>, String> {
        match self.optional(key) {
            Value::None => Ok(None),
            Value::Number { negative: false, magnitude } => Ok(Some(magnitude)),
            _ => Err(format!("field `{key}` is not a number from 0")),
        }
    }

    fn number(&mut self, key: &str) -> Result<u64, String> {
        self.optional_number(key)?.ok_or_else(|| missing(key))
    }

    fn small(&mut self, key: &str) -> Result<u32, String> {
        u32::try_from(self.number(key)?).map_err(|_| format!("field `{key}` is above 2^32 − 1"))
    }

    fn signed(&mut self, key: &str) -> Result<Option<i64>, String> {
        match self.optional(key) {
            Value::None => Ok(None),
            Value::Number { negative, magnitude } => {
                let number =
                    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
                Ok(Some(number.ok_or_else(|| format!("field `{key}` does not fit 64 bits"))?))
            }
            _ => Err(format!("field `{key}` is not a number")),
        }
    }

    fn code(&mut self) -> Result<Option<i32>, String> {
        let code = self.signed("code")?;
        code.map(|code| i32::try_from(code).map_err(|_| "field `code` does not fit 32 bits".to_owned())).transpose()
    }

    fn change(&mut self) -> Result<BrokerChange, String> {
        Ok(match self.text("change")? {
            "start" => BrokerChange::Start,
            "kill" => BrokerChange::Kill,
            "exit" => BrokerChange::Exit(self.code()?),
            other => return Err(format!("field `change`: `{other}` is none of start, kill, exit")),
        })
    }

    fn text(&mut self, key: &str) -> Result<&'l str, String> {
        self.optional_text(key)?.ok_or_else(|| missing(key))
    }

    fn optional_text(&mut self, key: &str) -> Result<Option<&'l str>, String> {
        match self.optional(key) {
            Value::None => Ok(None),
            Value::Word(word) => Ok(Some(word)),
            Value::Text(from, to) => std::str::from_utf8(&self.line[from as usize..to as usize])
                .map(Some)
                .map_err(|_| format!("field `{key}` is not UTF-8")),
            _ => Err(format!("field `{key}` is not a string")),
        }
    }

    fn flag(&mut self, key: &str) -> Result<bool, String> {
        match self.optional(key) {
            Value::None => Err(missing(key)),
            Value::Flag(flag) => Ok(flag),
            _ => Err(format!("field `{key}` is neither true nor false")),
        }
    }

    fn optional_flag(&mut self, key: &str) -> Result<bool, String> {
        match self.optional(key) {
            Value::None => Ok(false),
            Value::Flag(flag) => Ok(flag),
            _ => Err(format!("field `{key}` is neither true nor false")),
        }
    }

    fn message(&mut self) -> Result<MessageId, String> {
        Ok(MessageId { producer: self.small("producer")?, sequence: self.number("sequence")? })
    }

    fn priority(&mut self) -> Result<u8, String> {
        match self.number("priority")? {
            priority @ 0..=9 => Ok(priority as u8),
            priority => Err(format!("field `priority`: {priority} is not within 0 to 9")),
        }
    }

    fn xa(&mut self, verb: XaVerb) -> Result<Event<'l>, String> {
        Ok(Event::Xa { verb, xid: self.text("xid")?, code: self.code()? })
    }

    /// A field nobody asked for is an error: it may change what the others mean.
    fn nothing_left(&self) -> Result<(), String> {
        let left = (0..self.fields.len()).find(|index| self.taken & 1 << index == 0);
        match left {
            None => Ok(()),
            Some(index) => {
                let name = self.fields[index].key.bytes(self.line);
                Err(format!("unknown field `{}`", String::from_utf8_lossy(name)))
            }
        }
    }
}

fn missing(key: &str) -> String {
    format!("field `{key}` is missing")
}

struct Scanner<'l> {
    line: &'l mut [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r') = self.line.get(self.at) {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        match self.next() {
            Some(byte) if byte == wanted => Ok(()),
            _ => Err(self.wanted(&format!("`{}`", char::from(wanted)))),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(format!("something follows the object, from byte {}", self.at + 1)),
        }
    }

    fn wanted(&self, what: &str) -> String {
        format!("not an event: {what} expected at byte {}", self.at.max(1))
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(b'"') => self.text().map(|Range { start, end }| Value::Text(start, end)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Value::Flag(true)),
            Some(b'f') => self.word(b"false", Value::Flag(false)),
            _ => Err(self.wanted("a number, a string, true or false")),
        }
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, String> {
        if !self.line[self.at..].starts_with(word) {
            return Err(self.wanted("true or false"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let negative = self.line[self.at] == b'-';
        self.at += usize::from(negative);
        let first = self.at;
        let mut magnitude = 0u64;
        while let Some(digit @ b'0'..=b'9') = self.line.get(self.at) {
            magnitude = magnitude
                .checked_mul(10)
                .and_then(|number| number.checked_add(u64::from(digit - b'0')))
                .ok_or("a number above 2^64 − 1")?;
            self.at += 1;
        }
        if self.at == first || matches!(self.line.get(self.at), Some(b'.' | b'e' | b'E')) {
            return Err(self.wanted("a whole number"));
        }
        Ok(Value::Number { negative, magnitude })
    }

    /// A string; escapes are resolved in place, which never makes it longer.
    fn text(&mut self) -> Result<Range<u32>, String> {
        self.expect(b'"')?;
        let start = self.at;
        let mut to = start;
        loop {
            let Some(&byte) = self.line.get(self.at) else { return Err(self.wanted("the end of a string")) };
            self.at += 1;
            match byte {
                b'"' => return Ok(start as u32..to as u32),
                b'\\' => to = self.escape(to)?,
                _ => {
                    self.line[to] = byte;
                    to += 1;
                }
            }
        }
    }

    fn escape(&mut self, to: usize) -> Result<usize, String> {
        let Some(&byte) = self.line.get(self.at) else { return Err(self.wanted("an escape")) };
        self.at += 1;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => self.unicode()?,
            _ => return Err(self.wanted("an escape")),
        };
        let mut utf8 = [0; 4];
        let utf8 = character.encode_utf8(&mut utf8).as_bytes();
        self.line[to..to + utf8.len()].copy_from_slice(utf8);
        Ok(to + utf8.len())
    }

    fn unicode(&mut self) -> Result<char, String> {
        let high = self.hex4()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.wanted("a character"));
        }
        if self.line.get(self.at..self.at + 2) != Some(b"\\u") {
            return Err(self.wanted("the second half of a pair"));
        }
        self.at += 2;
        let low = self.hex4()?;
        let code = 0x1_0000 + ((high - 0xd800) << 10) + low.wrapping_sub(0xdc00);
        if !(0xdc00..0xe000).contains(&low) {
            return Err(self.wanted("the second half of a pair"));
        }
        char::from_u32(code).ok_or_else(|| self.wanted("a character"))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let digits = self.line.get(self.at..self.at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.ok_or_else(|| self.wanted("four hexadecimal digits"))?;
        let code = digits.iter().fold(0, |code, digit| code * 16 + char::from(*digit).to_digit(16).unwrap_or(0));
        self.at += 4;
        Ok(code)
    }
}
