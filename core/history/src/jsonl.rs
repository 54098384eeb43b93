//! The history as JSON lines: writing. One flat object a line; numbers, strings and booleans only; no blank, no line break inside.
//!
//! Reading is in `scan` and `source`. Must not allocate per event: an event is formatted into one buffer that is kept.

use crate::event::{BrokerChange, Event, Header, MessageId, XaVerb};
use std::io::{self, Write};

/// The version that this crate writes and reads.
pub const VERSION: u32 = 1;
/// The buffer goes to the file when it holds so much, or at [`JsonlWriter::flush`].
const BUFFER_BYTES: usize = 64 << 10;

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
        self.bytes.extend_from_slice(b"{\"packhorse_history\":");
        self.digits(u64::from(VERSION));
        self.text("run", &format!("{:016x}", header.run));
        self.text("process", &header.process);
        self.number("pid", u64::from(header.pid));
        self.number("incarnation", u64::from(header.incarnation));
        self.text("clock", &header.clock);
        self.number("mono_ns", header.mono_ns);
        self.number("wall_ns", header.wall_ns);
        self.bytes.extend_from_slice(b"}\n");
    }

    fn event(&mut self, at_ns: u64, event: &Event<'_>) {
        self.bytes.extend_from_slice(b"{\"at\":");
        self.digits(at_ns);
        self.bytes.extend_from_slice(b",\"event\":\"");
        self.bytes.extend_from_slice(kind(event).as_bytes());
        self.bytes.push(b'"');
        self.fields(event);
        self.bytes.extend_from_slice(b"}\n");
    }

    fn fields(&mut self, event: &Event<'_>) {
        match *event {
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx } => {
                self.message(message);
                self.text("queue", queue);
                self.number("size_bytes", u64::from(size_bytes));
                self.number("crc", u64::from(crc));
                self.flag("persistent", persistent);
                self.number_unless_0("ttl_ms", ttl_ms);
                self.number_unless_0("delay_ms", delay_ms);
                self.number("priority", u64::from(priority));
                self.tx(tx);
            }
            Event::SentOk { message } | Event::SentUnknown { message } | Event::Expired { message } => {
                self.message(message);
            }
            Event::SentRejected { message, reason } | Event::Dlq { message, reason } => {
                self.message(message);
                self.text("reason", reason);
            }
            Event::Attach { consumer, queue, presettled, filtered } => {
                self.number("consumer", u64::from(consumer));
                self.text("queue", queue);
                self.flag_if("presettled", presettled);
                self.flag_if("filtered", filtered);
            }
            Event::Credit { consumer, credit } => {
                self.number("consumer", u64::from(consumer));
                self.number("credit", u64::from(credit));
            }
            Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok, tx } => {
                self.message(message);
                self.number("consumer", u64::from(consumer));
                self.text("queue", queue);
                self.number("delivery_count", u64::from(delivery_count));
                self.flag("redelivered", redelivered);
                self.flag("crc_ok", crc_ok);
                self.tx(tx);
            }
            Event::Ack { message, consumer, confirmed, tx } => {
                self.message(message);
                self.number("consumer", u64::from(consumer));
                self.flag_if("confirmed", confirmed);
                self.tx(tx);
            }
            Event::Release { message, consumer } | Event::Reject { message, consumer } => {
                self.message(message);
                self.number("consumer", u64::from(consumer));
            }
            Event::Modified { message, consumer, delivery_failed, undeliverable_here } => {
                self.message(message);
                self.number("consumer", u64::from(consumer));
                self.flag_if("delivery_failed", delivery_failed);
                self.flag_if("undeliverable_here", undeliverable_here);
            }
            Event::Detach { consumer, orderly, confirmed } => {
                self.number("consumer", u64::from(consumer));
                self.flag("orderly", orderly);
                self.flag_if("confirmed", confirmed);
            }
            Event::Drained { queue } => self.text("queue", queue),
            Event::Counters { queue, counters } => {
                self.text("queue", queue);
                self.flag("quiet", counters.quiet);
                self.signed("depth", counters.depth);
                self.signed("ready", counters.ready);
                self.signed("acquired", counters.acquired);
                self.signed("enqueued", counters.enqueued);
                self.signed("acknowledged", counters.acknowledged);
                self.signed("dead_lettered", counters.dead_lettered);
            }
            Event::Broker { change } => match change {
                BrokerChange::Start => self.text("change", "start"),
                BrokerChange::Kill => self.text("change", "kill"),
                BrokerChange::Exit(code) => {
                    self.text("change", "exit");
                    self.signed("code", code.map(i64::from));
                }
            },
            Event::Fault { kind, target, start } => {
                self.text("kind", kind);
                self.text("target", target);
                self.flag("start", start);
            }
            Event::Tick | Event::End => {}
            Event::Clock { wall_ns } => self.number("wall_ns", wall_ns),
            Event::TxBegin { tx }
            | Event::CommitSent { tx }
            | Event::CommitOk { tx }
            | Event::CommitUnknown { tx }
            | Event::RollbackOk { tx } => self.number("tx", tx),
            Event::Xa { xid, code, .. } => {
                self.text("xid", xid);
                self.signed("code", code.map(i64::from));
            }
            Event::RecoverList { xids } => self.text("xids", xids),
        }
    }

    fn message(&mut self, message: MessageId) {
        self.number("producer", u64::from(message.producer));
        self.number("sequence", message.sequence);
    }

    fn tx(&mut self, tx: Option<u64>) {
        if let Some(tx) = tx {
            self.number("tx", tx);
        }
    }

    fn key(&mut self, key: &str) {
        self.bytes.extend_from_slice(b",\"");
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(b"\":");
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        self.digits(number);
    }

    fn number_unless_0(&mut self, key: &str, number: u64) {
        if number != 0 {
            self.number(key, number);
        }
    }

    fn signed(&mut self, key: &str, number: Option<i64>) {
        let Some(number) = number else { return };
        self.key(key);
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.digits(number.unsigned_abs());
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.key(key);
        self.bytes.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    fn flag_if(&mut self, key: &str, flag: bool) {
        if flag {
            self.flag(key, true);
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        put_json_string(&mut self.bytes, text);
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

/// The word for an event in a file.
pub(crate) fn kind(event: &Event<'_>) -> &'static str {
    match event {
        Event::Send { .. } => "send",
        Event::SentOk { .. } => "sent_ok",
        Event::SentRejected { .. } => "sent_rejected",
        Event::SentUnknown { .. } => "sent_unknown",
        Event::Attach { .. } => "attach",
        Event::Credit { .. } => "credit",
        Event::Recv { .. } => "recv",
        Event::Ack { .. } => "ack",
        Event::Release { .. } => "release",
        Event::Reject { .. } => "reject",
        Event::Modified { .. } => "modified",
        Event::Detach { .. } => "detach",
        Event::Expired { .. } => "expired",
        Event::Dlq { .. } => "dlq",
        Event::Drained { .. } => "drained",
        Event::Counters { .. } => "counters",
        Event::Broker { .. } => "broker",
        Event::Fault { .. } => "fault",
        Event::Tick => "tick",
        Event::Clock { .. } => "clock",
        Event::End => "end",
        Event::TxBegin { .. } => "tx_begin",
        Event::CommitSent { .. } => "commit_sent",
        Event::CommitOk { .. } => "commit_ok",
        Event::CommitUnknown { .. } => "commit_unknown",
        Event::RollbackOk { .. } => "rollback_ok",
        Event::Xa { verb, .. } => match verb {
            XaVerb::Start => "xa_start",
            XaVerb::End => "xa_end",
            XaVerb::Prepare => "xa_prepare",
            XaVerb::Commit => "xa_commit",
            XaVerb::Rollback => "xa_rollback",
            XaVerb::Forget => "xa_forget",
        },
        Event::RecoverList { .. } => "recover_list",
    }
}
