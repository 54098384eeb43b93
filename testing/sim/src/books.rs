//! The histories of all who take part, in memory, and the numbers of links: what `core/history` judges at the end.
//!
//! Each event gets a time of its own, later than all before it, so that the order in the world is the order in the history.

use crate::contents::Contents;
use crate::digest::Digest;
use packhorse_history::{BinaryWriter, Event, Header, Options, Report, check_files};

/// The run in all headers and bodies.
pub(crate) const RUN: u64 = 0x5eed;

/// One line of a history for each participant.
pub(crate) struct Books {
    files: Vec<(String, BinaryWriter<Vec<u8>>)>,
    now_us: u64,
    last_ns: u64,
    links: u32,
    txs: u64,
    /// What messages have to carry.
    pub(crate) contents: Contents,
    /// Events in all.
    pub(crate) events: u64,
    /// Messages sent.
    pub(crate) sent: u64,
    /// Confirmed.
    pub(crate) confirmed: u64,
    /// Deliveries seen.
    pub(crate) received: u64,
    /// Acknowledgements told to a broker.
    pub(crate) acknowledged: u64,
    /// Dead letters seen.
    pub(crate) dead_letters: u64,
}

impl Books {
    pub(crate) fn new() -> Books {
        Books {
            files: Vec::new(),
            now_us: 0,
            last_ns: 0,
            links: 0,
            txs: 0,
            contents: Contents::default(),
            events: 0,
            sent: 0,
            confirmed: 0,
            received: 0,
            acknowledged: 0,
            dead_letters: 0,
        }
    }

    /// A new participant; answers its number.
    pub(crate) fn open(&mut self, name: String) -> usize {
        let header = Header {
            run: RUN,
            process: name.clone(),
            pid: 0,
            incarnation: 0,
            clock: "virtual".into(),
            mono_ns: 0,
            wall_ns: 0,
        };
        let writer = BinaryWriter::new(Vec::new(), &header).expect("a vector takes everything");
        self.files.push((name, writer));
        self.files.len() - 1
    }

    pub(crate) fn set_now(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    /// A number for a link that nobody had before.
    pub(crate) fn link(&mut self) -> u32 {
        self.links += 1;
        self.links
    }

    /// A number for a transaction that nobody had before.
    pub(crate) fn tx(&mut self) -> u64 {
        self.txs += 1;
        self.txs
    }

    /// A time for one event.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.last_ns = (self.last_ns + 1).max(self.now_us * 1000);
        self.last_ns
    }

    /// Adds an event that happens now.
    pub(crate) fn put(&mut self, who: usize, event: &Event<'_>) {
        let at = self.stamp();
        self.put_at(at, who, event);
    }

    /// Adds an event with the time of a stamp.
    pub(crate) fn put_at(&mut self, at_ns: u64, who: usize, event: &Event<'_>) {
        self.events += 1;
        match event {
            Event::Send { .. } => self.sent += 1,
            Event::SentOk { .. } => self.confirmed += 1,
            Event::Recv { .. } => self.received += 1,
            Event::Ack { confirmed: false, .. } => self.acknowledged += 1,
            Event::Dlq { .. } => self.dead_letters += 1,
            _ => {}
        }
        self.files[who].1.put(at_ns, event).expect("a vector takes everything");
    }

    /// Closes all books; what they come to.
    pub(crate) fn judge(self, brokers: usize, digest: &mut Digest) -> Judgment {
        let mut files = Vec::new();
        for (name, writer) in self.files {
            let bytes = writer.into_inner().expect("a vector takes everything");
            digest.add(&bytes);
            files.push((name, bytes));
        }
        let options = Options {
            // Times are exact here.
            slack_ns: 0,
            // Twice the time-out, and a hole before.
            unaware_ns: 20_000_000_000,
            dead_letter_queues: (0..brokers).map(|host| queue_name(host, "DLQ")).collect(),
            expiry_queues: Vec::new(),
            shown_most: 5,
            ..Options::default()
        };
        let sources = files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
        let report = check_files(sources, &options).map_err(|error| error.to_string());
        Judgment { report, files }
    }
}

/// What the books came to.
pub(crate) struct Judgment {
    pub(crate) report: Result<Report, String>,
    /// The histories, for whoever wants to look.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

/// What the history calls a broker's queue.
pub(crate) fn queue_name(host: usize, queue: &str) -> String {
    format!("{}/{queue}", host_name(host))
}

/// What the history calls a broker.
pub(crate) fn host_name(host: usize) -> String {
    format!("n{host}")
}
