//! The history of one side as `docs/formats/history.md` has it, if somebody wants it.
//!
//! An act is in the file before its bytes go out: the loops call [`Diary::flush`] before they write.

use super::clock;
use crate::End;
use packhorse_client_core::{Limits, MessageView};
use packhorse_history::{Event, Header, JsonlWriter, MessageId};
use std::fs::File;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module. Without a folder it writes nothing.
pub(super) struct Diary {
    writer: Option<JsonlWriter<File>>,
    queues: Vec<String>,
}

impl Diary {
    /// Begins `NAME.jsonl` in the folder. `queues`: the addresses, as the sides number them.
    pub(super) fn new(folder: Option<&Path>, name: &str, run: u64, queues: &[String]) -> Result<Diary, End> {
        let Some(folder) = folder else { return Ok(Diary { writer: None, queues: Vec::new() }) };
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        let path = folder.join(format!("{name}.jsonl"));
        let file = File::create(&path).map_err(|e| failed(&path, &e))?;
        // One boot, one monotonic clock. Where it cannot be read all files are of the same machine anyway.
        let clock = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header {
            run,
            process: name.into(),
            pid: std::process::id(),
            incarnation: 0,
            clock: clock.trim().into(),
            mono_ns: clock::now_ns(),
            wall_ns: wall.as_nanos() as u64,
        };
        let writer = JsonlWriter::new(file, &header).map_err(|e| failed(&path, &e))?;
        Ok(Diary { writer: Some(writer), queues: queues.to_vec() })
    }

    fn put(&mut self, at_ns: u64, event: &Event<'_>) -> Result<(), End> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.put(at_ns, event).map_err(|e| lost(&e))
    }

    /// A message goes out.
    pub(super) fn sent(
        &mut self,
        at_ns: u64,
        message: MessageId,
        queue: usize,
        size: usize,
        crc: u32,
        persistent: bool,
    ) -> Result<(), End> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let size_bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let queue = &self.queues[queue];
        let event =
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 0, delay_ms: 0, priority: 4, tx: None };
        writer.put(at_ns, &event).map_err(|e| lost(&e))
    }

    /// A message was confirmed.
    pub(super) fn confirmed(&mut self, at_ns: u64, message: MessageId) -> Result<(), End> {
        self.put(at_ns, &Event::SentOk { message })
    }

    /// A message was not accepted.
    pub(super) fn refused(&mut self, at_ns: u64, message: MessageId, reason: &str) -> Result<(), End> {
        self.put(at_ns, &Event::SentRejected { message, reason })
    }

    /// A consumer attaches.
    pub(super) fn attached(&mut self, at_ns: u64, consumer: u32, queue: usize) -> Result<(), End> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let event = Event::Attach { consumer, queue: &self.queues[queue], presettled: false, filtered: false };
        writer.put(at_ns, &event).map_err(|e| lost(&e))
    }

    /// A consumer's credit is set.
    pub(super) fn credit(&mut self, at_ns: u64, consumer: u32, credit: u32) -> Result<(), End> {
        self.put(at_ns, &Event::Credit { consumer, credit })
    }

    /// A message came, whole and unchanged as far as its body says; `bytes`: all of it.
    pub(super) fn received(
        &mut self,
        at_ns: u64,
        message: MessageId,
        consumer: u32,
        queue: usize,
        bytes: &[u8],
    ) -> Result<(), End> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let limits = Limits { message_head_bytes: u32::MAX, ..Limits::default() };
        let view = MessageView::parse(bytes, &limits).map_err(|e| End::Refused(format!("message {message}: {e}")))?;
        let delivery_count = view.header().delivery_count.unwrap_or(0);
        let event = Event::Recv {
            message,
            consumer,
            queue: &self.queues[queue],
            delivery_count,
            redelivered: delivery_count > 0,
            crc_ok: true,
            tx: None,
        };
        writer.put(at_ns, &event).map_err(|e| lost(&e))
    }

    /// A message is accepted; no answer is asked for.
    pub(super) fn acknowledged(&mut self, at_ns: u64, message: MessageId, consumer: u32) -> Result<(), End> {
        self.put(at_ns, &Event::Ack { message, consumer, confirmed: false, tx: None })
    }

    /// A consumer ends; `confirmed`: the broker has answered that, and everything that came before is told.
    pub(super) fn detached(&mut self, at_ns: u64, consumer: u32, confirmed: bool) -> Result<(), End> {
        self.put(at_ns, &Event::Detach { consumer, orderly: true, confirmed })
    }

    /// All that had reached us by then is told.
    pub(super) fn ticked(&mut self, at_ns: u64) -> Result<(), End> {
        self.put(at_ns, &Event::Tick)
    }

    /// A queue holds nothing; asked for at that time.
    pub(super) fn drained(&mut self, at_ns: u64, queue: usize) -> Result<(), End> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.put(at_ns, &Event::Drained { queue: &self.queues[queue] }).map_err(|e| lost(&e))
    }

    /// Whether anybody will read this.
    pub(super) fn kept(&self) -> bool {
        self.writer.is_some()
    }

    /// Everything so far goes to the file.
    pub(super) fn flush(&mut self) -> Result<(), End> {
        self.writer.as_mut().map_or(Ok(()), JsonlWriter::flush).map_err(|e| lost(&e))
    }

    /// The last event.
    pub(super) fn end(&mut self) -> Result<(), End> {
        self.put(clock::now_ns(), &Event::End)?;
        self.flush()
    }
}

fn failed(path: &Path, error: &std::io::Error) -> End {
    End::Refused(format!("cannot write the history {}: {error}", path.display()))
}

fn lost(error: &std::io::Error) -> End {
    End::Refused(format!("cannot write the history: {error}"))
}
