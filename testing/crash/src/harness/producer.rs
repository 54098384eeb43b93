//! A producing client: keeps its windows full, over all lives of the broker, and writes down what it did and saw.
//!
//! What has no answer when a connection breaks stays unknown and is not sent again: a producer that sends again would hide a loss. One
//! producer in three numbers its messages and does send them again: then nothing may be stored twice. All of its lives are one.

use super::clock::now_ns;
use super::diary::Diary;
use super::flow::{Figures, Place, Stage};
use super::line::{Line, Lost, READ_BYTES, Read};
use super::message::{Encoder, Kind};
use super::options::ClientOptions;
use super::orders::{self, Order, Orders};
use crate::Random;
use packhorse_client_core::{
    Client, Decision, Event as Told, LinkId, Misuse, Numbering, Piece, SenderOptions, SenderSettleMode, SessionId,
};
use packhorse_history::{Event, MessageId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(3);
/// Longest wait while nothing happens.
const NAP: Duration = Duration::from_millis(20);
/// Messages that a link sends before others and the socket have their turn.
const TURN_MESSAGES: usize = 64;
/// Output that waits at most before more is made.
const OUTPUT_BYTES: usize = 1 << 20;
/// The token of a message: the link's place above, its sequence below.
const SEQUENCE_BITS: u32 = 48;
/// A pre-settled message each so many turns: enough to be seen, too few to weigh.
const ONCE_TURNS: u64 = 40;

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is none.
    None,
    /// Asked for.
    Coming,
    /// It stands.
    Up,
    /// It is to end: no more is sent, answers are waited for.
    Leaving,
    /// Its end is asked for.
    Ending,
}

/// One sending link over all its lives.
struct Out {
    queue: String,
    presettled: bool,
    window: usize,
    link: Option<LinkId>,
    standing: Standing,
    number: u32,
    sequence: u64,
    /// Sent, without an answer.
    open: BTreeSet<u64>,
    next: Kind,
    numbers: Option<Numbers>,
}

/// Of a link whose messages have numbers, which are their sequences.
struct Numbers {
    numbering: Numbering,
    /// What each message without an answer is.
    kinds: BTreeMap<u64, Kind>,
    /// To be sent again, ascending.
    again: VecDeque<u64>,
}

impl Numbers {
    fn new(random: &mut Random) -> Numbers {
        let producer = (u128::from(random.number()) << 64 | u128::from(random.number())).to_be_bytes();
        Numbers { numbering: Numbering::new(producer), kinds: BTreeMap::new(), again: VecDeque::new() }
    }
}

impl Out {
    /// What goes out next: something again, or the next one.
    fn due(&self) -> (Option<u64>, Kind) {
        let numbers = self.numbers.as_ref();
        match numbers.and_then(|numbers| Some((*numbers.again.front()?, numbers))) {
            Some((again, numbers)) => (Some(again), numbers.kinds[&again]),
            None => (None, self.next),
        }
    }
}

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    /// The socket is closed without a word.
    Cut,
    /// A link is ended in order and attached again.
    Again(usize),
    /// Nothing is sent for a while.
    Idle(u64),
}

struct Producer<'a> {
    options: &'a ClientOptions,
    random: Random,
    diary: Diary,
    place: Place,
    encoder: Encoder,
    outs: Vec<Out>,
    session: Option<SessionId>,
    links: u32,
    done: u64,
    turns: u64,
    stopping: bool,
    closing: bool,
    idle_until: u64,
    mischief_at: u64,
    failure: Option<String>,
}

/// Runs until it is told to end. Err: it cannot go on; a sentence.
pub fn run(options: &ClientOptions) -> Result<(), String> {
    let name = format!("producer-{}", options.number);
    let mut random = Random::new(options.seed);
    let queues = options.queue.iter().map(|queue| (queue, false)).chain(options.once.iter().map(|queue| (queue, true)));
    let numbered = options.number.is_multiple_of(3);
    let outs = queues.map(|(queue, presettled)| Out {
        queue: queue.clone(),
        presettled,
        window: 48 + random.below(160),
        link: None,
        standing: Standing::None,
        number: 0,
        sequence: 0,
        open: BTreeSet::new(),
        next: Kind { size: 100, persistent: true, priority: 4 },
        numbers: (numbered && !presettled).then(|| Numbers::new(&mut random)),
    });
    let outs = outs.collect();
    let producer = Producer {
        options,
        diary: Diary::begin(&options.history, &name, options.run)?,
        place: Place::open(&options.flow, options.number).map_err(|e| format!("cannot show figures: {e}"))?,
        encoder: Encoder::default(),
        outs,
        session: None,
        links: 0,
        done: 0,
        turns: 0,
        stopping: false,
        closing: false,
        idle_until: 0,
        mischief_at: now_ns() + random.number() % 1_500_000_000,
        failure: None,
        random,
    };
    producer.work(&name)
}

impl Producer<'_> {
    fn work(mut self, name: &str) -> Result<(), String> {
        let mut orders = Orders::default();
        let mut buffer = vec![0; READ_BYTES];
        let mut line: Option<Line> = None;
        loop {
            match orders.next()? {
                Some(Order::End) => self.stopping = true,
                Some(other) => return Err(format!("a producer was told to {}", other.word())),
                None => {}
            }
            if line.is_none() && !self.stopping {
                line = Line::open(self.options.to, name).ok();
            }
            let Some(open) = &mut line else {
                if self.stopping {
                    break;
                }
                orders::wait(RETRY);
                continue;
            };
            let turn = self.turn(open, &mut buffer);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if turn.is_err() {
                line = None;
                self.lost()?;
                if self.closing {
                    break;
                }
            }
            let open = self.outs.iter().map(|out| out.open.len() as u64).sum();
            let figures = Figures { done: self.done, open, stage: Stage::Working };
            self.place.show(figures).map_err(|e| format!("cannot show figures: {e}"))?;
        }
        self.diary.tell(&Event::End)
    }

    /// Reads, acts, writes, waits. Err: the connection is gone.
    fn turn(&mut self, line: &mut Line, buffer: &mut [u8]) -> Result<(), Lost> {
        let read = line.read(buffer, |client, event| self.on(client, event))?;
        let now = now_ns();
        if now >= self.mischief_at && !self.stopping {
            self.mischief_at = now + 200_000_000 + self.random.number() % 2_500_000_000;
            match self.draw_mischief() {
                Mischief::Cut => return Err("cut on purpose".into()),
                Mischief::Again(which) if self.outs[which].standing == Standing::Up => {
                    self.outs[which].standing = Standing::Leaving;
                }
                Mischief::Again(_) => {}
                Mischief::Idle(ns) => self.idle_until = now + ns,
            }
        }
        if self.session.is_some() && !self.closing {
            self.keep_links(&mut line.client)?;
            if !self.stopping && now >= self.idle_until {
                self.send(line)?;
            }
        }
        if self.stopping && !self.closing && self.outs.iter().all(|out| out.open.is_empty()) {
            self.closing = true;
            let now_ms = line.now_ms();
            line.client.close(now_ms).map_err(misuse)?;
        }
        let flushed = self.diary.flush();
        self.keep(flushed)?;
        let written = line.write()?;
        line.tick()?;
        if read == Read::All {
            let busy = written
                && self
                    .outs
                    .iter()
                    .any(|out| self.wants(out) && out.link.is_some_and(|link| line.client.sendable(link)));
            line.wait(!written, if busy && now >= self.idle_until { Duration::ZERO } else { NAP });
        }
        Ok(())
    }

    /// A failure of our own ends the process, not the connection alone.
    fn keep(&mut self, result: Result<(), String>) -> Result<(), Lost> {
        result.inspect_err(|failure| self.failure = Some(failure.clone()))
    }

    fn draw_mischief(&mut self) -> Mischief {
        match self.random.below(4) {
            0 => Mischief::Cut,
            1 | 2 => Mischief::Again(self.random.below(self.outs.len())),
            _ => Mischief::Idle(10_000_000 + self.random.number() % 60_000_000),
        }
    }

    fn wants(&self, out: &Out) -> bool {
        out.standing == Standing::Up && !out.presettled && out.open.len() < out.window && !self.stopping
    }

    /// Attaches what is to stand, ends what is to end.
    fn keep_links(&mut self, client: &mut Client) -> Result<(), Lost> {
        let Some(session) = self.session else { return Ok(()) };
        for (index, out) in self.outs.iter_mut().enumerate() {
            match (out.standing, out.link) {
                (Standing::None, _) if !self.stopping => {
                    if out.numbers.is_none() || out.sequence == 0 {
                        out.number = self.options.link_number(self.links);
                        self.links += 1;
                        out.sequence = 0;
                    }
                    let name = format!("out-{index}");
                    let settle = if out.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
                    let options = SenderOptions { name: &name, address: Some(&out.queue), settle, token: index as u64 };
                    let link = match &out.numbers {
                        Some(numbers) => client.numbered_sender(session, &options, &numbers.numbering),
                        None => client.sender(session, &options),
                    };
                    out.link = Some(link.map_err(misuse)?);
                    out.standing = Standing::Coming;
                }
                (Standing::Leaving, Some(link)) if out.open.is_empty() => {
                    client.detach(link).map_err(misuse)?;
                    out.standing = Standing::Ending;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, line: &mut Line) -> Result<(), Lost> {
        self.turns += 1;
        for index in 0..self.outs.len() {
            let mut left = TURN_MESSAGES;
            while left > 0 && line.client.output_len() < OUTPUT_BYTES {
                let out = &self.outs[index];
                let Some(link) = out.link.filter(|_| out.standing == Standing::Up) else { break };
                let due = if out.presettled {
                    left == TURN_MESSAGES && self.turns.is_multiple_of(ONCE_TURNS)
                } else {
                    out.open.len() < out.window
                };
                let bytes = out.due().1.size + Encoder::AROUND_BYTES;
                if !due || !line.client.sendable(link) || !line.client.fits(link, bytes) {
                    break;
                }
                self.send_one(&mut line.client, index, link)?;
                left -= 1;
            }
        }
        Ok(())
    }

    fn send_one(&mut self, client: &mut Client, index: usize, link: LinkId) -> Result<(), Lost> {
        let run = self.options.run;
        let out = &mut self.outs[index];
        let (again, kind) = out.due();
        let message = MessageId::new(out.number, again.unwrap_or(out.sequence));
        let at = now_ns();
        let (bytes, crc) = self.encoder.encode(run, message, kind);
        let token = (index as u64) << SEQUENCE_BITS | message.sequence;
        let pieces = [Piece::Copy(bytes)];
        if let (Some(sequence), Some(numbers)) = (again, &mut out.numbers) {
            client.send_numbered(link, token, &numbers.numbering, sequence, &pieces).map_err(misuse)?;
            numbers.again.pop_front();
            out.open.insert(sequence);
            return Ok(());
        }
        let event = Event::Send {
            message,
            queue: &out.queue,
            size_bytes: kind.size as u32,
            crc,
            persistent: kind.persistent,
            ttl_ms: 0,
            delay_ms: 0,
            priority: kind.priority,
            tx: None,
        };
        self.diary.put(at, &event).inspect_err(|failure| self.failure = Some(failure.clone()))?;
        match &mut out.numbers {
            Some(numbers) => {
                let number = numbers.numbering.draw();
                debug_assert_eq!(number, out.sequence, "its number is its place among all of its link");
                numbers.kinds.insert(number, kind);
                client.send_numbered(link, token, &numbers.numbering, number, &pieces)
            }
            None => client.send(link, token, out.presettled, &pieces),
        }
        .map_err(misuse)?;
        if !out.presettled {
            out.open.insert(out.sequence);
        }
        out.sequence += 1;
        out.next = if out.presettled {
            Kind { size: 16 + self.random.below(500), persistent: true, priority: 4 }
        } else {
            // A crash forgets numbers of what is not persistent, with the messages.
            let kind = Kind::draw(&mut self.random);
            Kind { persistent: kind.persistent || out.numbers.is_some(), ..kind }
        };
        Ok(())
    }

    fn on(&mut self, client: &mut Client, event: Told<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(_) => self.session = Some(client.begin(0).map_err(misuse)?),
            Told::Attached { token, .. } => {
                let out = &mut self.outs[token as usize];
                if out.standing == Standing::Coming {
                    out.standing = Standing::Up;
                }
            }
            Told::LinkLost(lost) => {
                let out = &mut self.outs[lost.token as usize];
                if out.standing != Standing::Ending {
                    return Err(format!("the broker ended a link: {}", lost.reason));
                }
                (out.standing, out.link) = (Standing::None, None);
            }
            Told::Credit { link, drain: true, .. } => client.drained(link).map_err(misuse)?,
            Told::Outcomes { .. } => {
                let at = now_ns();
                for outcome in client.outcomes().iter().filter(|outcome| !outcome.repeated) {
                    let index = (outcome.token >> SEQUENCE_BITS) as usize;
                    let sequence = outcome.token & ((1 << SEQUENCE_BITS) - 1);
                    let out = &mut self.outs[index];
                    if outcome.state == Decision::Received || !out.open.remove(&sequence) {
                        continue;
                    }
                    if let Some(numbers) = &mut out.numbers {
                        numbers.numbering.done(sequence);
                        numbers.kinds.remove(&sequence);
                    }
                    let message = MessageId::new(out.number, sequence);
                    let put = if outcome.state == Decision::Accepted {
                        self.done += 1;
                        self.diary.put(at, &Event::SentOk { message })
                    } else {
                        let reason = format!("{:?}", outcome.state);
                        self.diary.put(at, &Event::SentRejected { message, reason: &reason })
                    };
                    put.inspect_err(|failure| self.failure = Some(failure.clone()))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The connection is gone: nobody will say what became of what is open.
    fn lost(&mut self) -> Result<(), String> {
        let at = now_ns();
        self.session = None;
        for out in &mut self.outs {
            for sequence in std::mem::take(&mut out.open) {
                self.diary.put(at, &Event::SentUnknown { message: MessageId::new(out.number, sequence) })?;
            }
            if let Some(numbers) = &mut out.numbers {
                numbers.again = numbers.numbering.unconfirmed().collect();
            }
            (out.standing, out.link) = (Standing::None, None);
        }
        self.diary.flush()
    }
}

fn misuse(misuse: Misuse) -> Lost {
    misuse.to_string()
}
