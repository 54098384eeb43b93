//! Ten million events of 16 client processes, judged: prints seconds and the peak of resident memory.
//!
//! `cargo run --release -p packhorse-history --example ten_million`. The files are made as they are read, so no disk is measured; what
//! making them costs is printed beside it. Fails if the checker blames the history, or misses the one fault in it.

use packhorse_history::{BinaryWriter, Event, Header, Invariant, JsonlWriter, MessageId, Options, check_files};
use std::io::{self, BufReader, Read};
#[expect(clippy::disallowed_types, reason = "the example measures how long it takes")]
use std::time::Instant;

const PRODUCERS: u32 = 8;
const MESSAGES: u64 = 250_000;
const QUEUES: [&str; 16] =
    ["q00", "q01", "q02", "q03", "q04", "q05", "q06", "q07", "q08", "q09", "q10", "q11", "q12", "q13", "q14", "q15"];

fn queue(sequence: u64) -> &'static str {
    QUEUES[sequence as usize % QUEUES.len()]
}

/// Either form.
enum Writer {
    Json(JsonlWriter<Vec<u8>>),
    Binary(BinaryWriter<Vec<u8>>),
}

impl Writer {
    fn put(&mut self, at_ns: u64, event: &Event<'_>) -> io::Result<()> {
        match self {
            Writer::Json(writer) => writer.put(at_ns, event),
            Writer::Binary(writer) => writer.put(at_ns, event),
        }
    }

    /// What has been written since the last time.
    fn take(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let bytes = match self {
            Writer::Json(writer) => writer.flush().map(|()| writer.get_mut())?,
            Writer::Binary(writer) => writer.flush().map(|()| writer.get_mut())?,
        };
        std::mem::swap(into, bytes);
        Ok(())
    }
}

/// One process's file, made as it is read. Even processes produce, odd ones consume what the one before them sent.
struct Client {
    process: u32,
    next: u64,
    writer: Writer,
    ready: Vec<u8>,
    taken: usize,
}

impl Client {
    fn new(process: u32, binary: bool) -> io::Result<Client> {
        let header = Header {
            run: 1,
            process: format!("client-{process}"),
            pid: process,
            incarnation: 0,
            clock: "one".to_owned(),
            mono_ns: 1,
            wall_ns: 1,
        };
        let writer = match binary {
            true => Writer::Binary(BinaryWriter::new(Vec::new(), &header)?),
            false => Writer::Json(JsonlWriter::new(Vec::new(), &header)?),
        };
        Ok(Client { process, next: 0, writer, ready: Vec::new(), taken: 0 })
    }

    /// The events of one message: two for its producer, three for its consumer.
    fn step(&mut self) -> io::Result<()> {
        let message = MessageId::new(self.process / 2, self.next);
        let at = 1_000 + self.next * 20_000;
        let queue = queue(self.next);
        let w = &mut self.writer;
        if self.process.is_multiple_of(2) {
            let send = Event::Send {
                message,
                queue,
                size_bytes: 1024,
                crc: 0x1234_5678,
                persistent: true,
                ttl_ms: 0,
                delay_ms: 0,
                priority: 4,
                tx: None,
            };
            w.put(at, &send)?;
            w.put(at + 1_000_000, &Event::SentOk { message })?;
        } else {
            let consumer = self.process * 100 + (self.next % 16) as u32;
            let recv =
                Event::Recv { message, consumer, queue, delivery_count: 0, redelivered: false, crc_ok: true, tx: None };
            w.put(at + 1_200_000, &recv)?;
            w.put(at + 1_300_000, &Event::Ack { message, consumer, confirmed: false, tx: None })?;
            w.put(at + 2_300_000, &Event::Ack { message, consumer, confirmed: true, tx: None })?;
            if self.process == 15 && self.next == MESSAGES - 1 {
                // The planted one: again, after its acknowledgement was confirmed.
                let again = MessageId::new(7, 5);
                let consumer = 1_505;
                let recv = Event::Recv {
                    message: again,
                    consumer,
                    queue: QUEUES[5],
                    delivery_count: 1,
                    redelivered: true,
                    crc_ok: true,
                    tx: None,
                };
                w.put(at + 3_000_000, &recv)?;
            }
        }
        self.next += 1;
        Ok(())
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
            let until = (self.next + 200).min(MESSAGES);
            while self.next < until {
                self.step()?;
            }
            self.writer.take(&mut self.ready)?;
        }
        let left = &self.ready[self.taken..];
        let length = left.len().min(into.len());
        into[..length].copy_from_slice(&left[..length]);
        self.taken += length;
        Ok(length)
    }
}

fn clients(binary: bool) -> io::Result<Vec<(String, Client)>> {
    (0..PRODUCERS * 2).map(|process| Ok((format!("client-{process}"), Client::new(process, binary)?))).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for binary in [false, true] {
        judge(binary)?;
    }
    println!("peak resident memory: {} MiB", peak_mib().unwrap_or(0));
    Ok(())
}

#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the example measures how long it takes")]
fn judge(binary: bool) -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let mut bytes = 0;
    for (_, mut client) in clients(binary)? {
        bytes += io::copy(&mut client, &mut io::sink())?;
    }
    let making = begin.elapsed().as_secs_f64();

    let begin = Instant::now();
    let sources = clients(binary)?.into_iter().map(|(name, client)| (name, BufReader::with_capacity(64 << 10, client)));
    let report = check_files(sources, &Options::default())?;
    let seconds = begin.elapsed().as_secs_f64();

    let events = report.totals.events;
    let form = if binary { "binary" } else { "JSON lines" };
    println!("{report}");
    println!("{events} events in {} files, {} MB of {form}", report.totals.files, bytes / 1_000_000);
    println!("written in {making:.1} s: {:.0} ns an event", making * 1e9 / events as f64);
    println!("written and checked in {seconds:.1} s: {:.0} ns an event", seconds * 1e9 / events as f64);
    if report.violation_count() != 1 || report.count(Invariant::Duplicate) != 1 {
        return Err("the history holds one duplicate, and the checker found something else".into());
    }
    Ok(())
}

/// The kernel's figure for this process.
#[expect(clippy::disallowed_methods, reason = "the example measures its own memory")]
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}
