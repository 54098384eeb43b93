//! A history told by hand: files in memory, times in milliseconds, one queue unless said, producer 1, consumer numbers free.
//!
//! Must not know: what the checker makes of it.

use packhorse_history::{
    BrokerChange, Counters, Event, Header, JsonlWriter, MessageId, Options, Report, XaVerb, check_files,
};

pub(crate) const QUEUE: &str = "orders";
pub(crate) const PRODUCER: u32 = 1;

/// The header of a process.
pub(crate) fn header(process: usize, incarnation: u32, at_ms: u64) -> Header {
    Header {
        run: 7,
        process: format!("client-{process}"),
        pid: 100 + process as u32,
        incarnation,
        clock: "boot-1".to_owned(),
        mono_ns: at_ms * 1_000_000,
        wall_ns: 1_700_000_000_000_000_000,
    }
}

/// The message of producer 1 with this number.
pub(crate) fn message(sequence: u64) -> MessageId {
    MessageId::new(PRODUCER, sequence)
}

/// A persistent message to the queue.
pub(crate) fn send(sequence: u64) -> Event<'static> {
    Event::Send {
        message: message(sequence),
        queue: QUEUE,
        size_bytes: 100,
        crc: 5,
        persistent: true,
        ttl_ms: 0,
        delay_ms: 0,
        priority: 4,
        tx: None,
    }
}

/// A delivery from the queue; flagged if its count is not 0.
pub(crate) fn recv(sequence: u64, consumer: u32, delivery_count: u32) -> Event<'static> {
    Event::Recv {
        message: message(sequence),
        consumer,
        queue: QUEUE,
        delivery_count,
        redelivered: delivery_count > 0,
        crc_ok: true,
        tx: None,
    }
}

pub(crate) fn sent_ok(sequence: u64) -> Event<'static> {
    Event::SentOk { message: message(sequence) }
}

pub(crate) fn ack(sequence: u64, consumer: u32) -> Event<'static> {
    Event::Ack { message: message(sequence), consumer, confirmed: false, tx: None }
}

pub(crate) fn ack_ok(sequence: u64, consumer: u32) -> Event<'static> {
    Event::Ack { message: message(sequence), consumer, confirmed: true, tx: None }
}

pub(crate) fn release(sequence: u64, consumer: u32) -> Event<'static> {
    Event::Release { message: message(sequence), consumer, tx: None }
}

pub(crate) fn attach(consumer: u32) -> Event<'static> {
    Event::Attach { consumer, queue: QUEUE, presettled: false, filtered: false }
}

pub(crate) fn credit(consumer: u32, credit: u32) -> Event<'static> {
    Event::Credit { consumer, credit }
}

pub(crate) fn detach(consumer: u32) -> Event<'static> {
    Event::Detach { consumer, orderly: true, confirmed: false }
}

/// The broker's answer to `detach`.
pub(crate) fn detached(consumer: u32) -> Event<'static> {
    Event::Detach { consumer, orderly: true, confirmed: true }
}

pub(crate) fn lost(consumer: u32) -> Event<'static> {
    Event::Detach { consumer, orderly: false, confirmed: false }
}

pub(crate) fn drained() -> Event<'static> {
    Event::Drained { queue: QUEUE }
}

pub(crate) fn drained_of(queue: &'static str) -> Event<'static> {
    Event::Drained { queue }
}

pub(crate) fn kill() -> Event<'static> {
    Event::Broker { change: BrokerChange::Kill }
}

pub(crate) fn start() -> Event<'static> {
    Event::Broker { change: BrokerChange::Start }
}

/// A quiet reading.
pub(crate) fn counters(depth: i64) -> Event<'static> {
    Event::Counters { queue: QUEUE, counters: Counters { quiet: true, depth: Some(depth), ..Counters::default() } }
}

/// The same in a transaction.
pub(crate) fn send_in(tx: u64, sequence: u64) -> Event<'static> {
    match send(sequence) {
        Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, .. } => {
            let tx = Some(tx);
            Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx }
        }
        other => other,
    }
}

pub(crate) fn ack_in(tx: u64, sequence: u64, consumer: u32) -> Event<'static> {
    Event::Ack { message: message(sequence), consumer, confirmed: false, tx: Some(tx) }
}

pub(crate) fn begin(tx: u64) -> Event<'static> {
    Event::TxBegin { tx, xid: None, broker: None }
}

pub(crate) fn branch(tx: u64, xid: &'static str) -> Event<'static> {
    Event::TxBegin { tx, xid: Some(xid), broker: None }
}

pub(crate) fn commit(tx: u64) -> Event<'static> {
    Event::CommitSent { tx }
}

pub(crate) fn commit_ok(tx: u64) -> Event<'static> {
    Event::CommitOk { tx }
}

pub(crate) fn commit_unknown(tx: u64) -> Event<'static> {
    Event::CommitUnknown { tx }
}

pub(crate) fn rollback_ok(tx: u64) -> Event<'static> {
    Event::RollbackOk { tx }
}

pub(crate) fn xa(verb: XaVerb, xid: &'static str) -> Event<'static> {
    Event::Xa { verb, xid, code: None }
}

pub(crate) fn answer(verb: XaVerb, xid: &'static str, code: i32) -> Event<'static> {
    Event::Xa { verb, xid, code: Some(code) }
}

pub(crate) fn recover() -> Event<'static> {
    Event::RecoverList { xids: None, broker: None }
}

pub(crate) fn listed(xids: &'static str) -> Event<'static> {
    Event::RecoverList { xids: Some(xids), broker: None }
}

/// Files being told.
pub(crate) struct Story {
    files: Vec<JsonlWriter<Vec<u8>>>,
}

impl Story {
    /// As many processes, all begun at 0.
    pub(crate) fn of(processes: usize) -> Story {
        let files = (0..processes).map(|process| new_file(&header(process, 0, 0)));
        Story { files: files.collect() }
    }

    /// One more file.
    pub(crate) fn and(mut self, header: &Header) -> Story {
        self.files.push(new_file(header));
        self
    }

    /// An event of a process.
    pub(crate) fn at(mut self, ms: u64, process: usize, event: Event<'_>) -> Story {
        self.files[process].put(ms * 1_000_000, &event).expect("a vector takes everything");
        self
    }

    /// One message sent and confirmed by process 0 in each of these milliseconds.
    pub(crate) fn confirmed(mut self, ms: u64, sequences: std::ops::Range<u64>) -> Story {
        for sequence in sequences {
            self = self.at(ms, 0, send(sequence)).at(ms + 5, 0, sent_ok(sequence));
        }
        self
    }

    /// The files as bytes, with their names.
    pub(crate) fn files(self) -> Vec<(String, Vec<u8>)> {
        let bytes = self.files.into_iter().map(|file| file.into_inner().expect("a vector takes everything"));
        bytes.enumerate().map(|(index, bytes)| (format!("file-{index}"), bytes)).collect()
    }

    pub(crate) fn check(self) -> Report {
        let files = self.files();
        let sources = files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
        check_files(sources, &Options::default()).expect("the story is a history")
    }

    /// The codes of the invariants that are broken, with how often.
    pub(crate) fn broken(self) -> Vec<(&'static str, u64)> {
        let report = self.check();
        let counts = packhorse_history::Invariant::ALL.iter().map(|one| (one.code(), report.count(*one)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

fn new_file(header: &Header) -> JsonlWriter<Vec<u8>> {
    JsonlWriter::new(Vec::new(), header).expect("a vector takes everything")
}
