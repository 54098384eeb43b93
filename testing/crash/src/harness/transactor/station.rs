//! The connection of a client that works in transactions: a link to the coordinator, links to queues, and what is recorded of them.
//!
//! Each request waits for its answer; what comes meanwhile is recorded as it comes. Must not know what the transactions are for.

use super::super::clock::now_ns;
use super::super::diary::Diary;
use super::super::flow::{Figures, Place, Stage};
use super::super::intake::{In, Standing};
use super::super::line::{Line, READ_BYTES, Read};
use super::super::message::{Encoder, Kind};
use super::super::options::ClientOptions;
use super::super::orders::{Order, Orders};
use crate::Random;
use crate::transact::global_id;
use packhorse_client_core::codec::{DeliveryState, Outcome};
use packhorse_client_core::transaction::{Request, Response, TxOutcome, XaXid};
use packhorse_client_core::{
    Commits, ControllerOptions, Decision, DeliveryOutcome, Event as Told, Limits, LinkId, Misuse, Options, Piece,
    ReceiverOptions, SenderOptions, SenderSettleMode, SessionId, broker_id, response,
};
use packhorse_history::{Event, MessageId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a turn waits.
const TURN: Duration = Duration::from_millis(20);
/// How long anything may take that must come at last: less than the run waits for its clients.
const PATIENCE: Duration = Duration::from_secs(45);
/// Between two ticks of the history, at least.
const TICK_NS: u64 = 50_000_000;
/// Transactions that one client may have in its life.
const TRANSACTIONS: u64 = 1_000_000;
/// Most messages that are sent, or acknowledged, at a step.
const STEP: usize = 6;
/// Of so many requests the client dies after one, and of so many steps after one.
const DEATHS: usize = 60;
/// The number of the coordinator's link for the client, and of the receiving link; those between are sending ones.
const CONTROL: u64 = 0;
const IN: u64 = 100;

/// Why the work on a connection is over.
pub(super) enum End {
    /// It is gone; there will be another one.
    Lost,
    /// The client cannot go on: a sentence.
    Failed(String),
}

fn lost(_: String) -> End {
    End::Lost
}

fn misuse(misuse: Misuse) -> End {
    End::Failed(misuse.to_string())
}

/// What a coordinator said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The id to work under.
    Declared(Vec<u8>),
    Accepted,
    /// With the error's condition.
    Rejected(String),
    /// A code of XA; branches by their global ids, and whether there are more.
    Code(i32, Vec<String>, bool),
    Status(TxOutcome),
    Other,
}

impl Said {
    fn read(state: Option<&DeliveryState<'_>>) -> Said {
        match response(state) {
            Response::Declared(id) => Said::Declared(id.to_vec()),
            Response::Accepted => Said::Accepted,
            Response::Rejected(error) => Said::Rejected(error.map_or("", |error| error.condition).to_owned()),
            Response::Result(result) => {
                let xids: Vec<XaXid<'_>> = result.xids(&Limits::default()).unwrap_or_default();
                Said::Code(result.code, xids.iter().map(global_id).collect(), result.more)
            }
            Response::Status(outcome) => Said::Status(outcome),
            Response::Other => Said::Other,
        }
    }
}

/// A sending link.
struct Out {
    queue: String,
    link: LinkId,
    number: u32,
    sequence: u64,
}

/// A connection that stands.
pub(super) struct Open {
    line: Line,
    read: Read,
    session: Option<SessionId>,
    control: Option<LinkId>,
    outs: Vec<Out>,
    /// Which broker it is.
    broker: Option<[u8; 16]>,
    /// The number of the request that waits for its answer, and the answer.
    asked: u64,
    said: Option<Said>,
}

impl Open {
    /// Which broker it is, as its `open` says.
    pub(super) fn broker(&self) -> Result<[u8; 16], End> {
        self.broker.ok_or_else(|| End::Failed("the broker does not say which one it is".into()))
    }

    fn control(&self) -> Result<LinkId, End> {
        self.control.ok_or_else(|| End::Failed("there is no link to the coordinator".into()))
    }
}

/// See the module.
pub(super) struct Station<'a> {
    pub(super) random: Random,
    options: &'a ClientOptions,
    name: String,
    diary: Diary,
    place: Place,
    orders: Orders,
    encoder: Encoder,
    input: In,
    buffer: Vec<u8>,
    links: u32,
    transactions: u64,
    over: u64,
    told_to_end: bool,
    ticked_at: u64,
    found: BTreeSet<String>,
}

impl Station<'_> {
    /// Before the first connection. `role`: the first part of its name.
    pub(super) fn begin<'a>(options: &'a ClientOptions, role: &str) -> Result<Station<'a>, String> {
        let name = format!("{role}-{}", options.number);
        let mut random = Random::new(options.seed);
        let queue = options.queue.first().ok_or("there is no queue to work on")?;
        Ok(Station {
            input: In::held_back(queue, &mut random),
            random,
            options,
            diary: Diary::begin(&options.history, &name, options.run)?,
            name,
            place: Place::open(&options.flow, options.number).map_err(|e| format!("cannot show figures: {e}"))?,
            orders: Orders::default(),
            encoder: Encoder::default(),
            buffer: vec![0; READ_BYTES],
            links: 0,
            transactions: 0,
            over: 0,
            told_to_end: false,
            ticked_at: 0,
            found: BTreeSet::new(),
        })
    }

    /// Records an event of now.
    pub(super) fn put(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.diary.put(now_ns(), event)
    }

    /// Something is not as the client knows that it must be. It works on, so that everything else is judged as well.
    pub(super) fn found(&mut self, what: String) {
        self.found.insert(what);
    }

    /// The number of a new transaction: it is recorded, as a branch of this name in histories if it is one.
    pub(super) fn begins(&mut self, xid: impl FnOnce(u64) -> Option<String>) -> Result<u64, String> {
        self.transactions += 1;
        let tx = u64::from(self.options.number) * TRANSACTIONS + self.transactions;
        let xid = xid(tx);
        self.put(&Event::TxBegin { tx, xid: xid.as_deref(), broker: None })?;
        Ok(tx)
    }

    /// A transaction is over.
    pub(super) fn is_over(&mut self) {
        self.over += 1;
    }

    /// Shows how many transactions are open, or branches in doubt.
    pub(super) fn show(&mut self, open: u64) -> Result<(), String> {
        let figures = Figures { done: self.over, open, stage: Stage::Working };
        self.place.show(figures).map_err(|e| format!("cannot show figures: {e}"))
    }

    fn link_number(&mut self) -> u32 {
        self.links += 1;
        self.options.link_number(self.links - 1)
    }

    /// Whether it is to come to an end.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.told_to_end
    }

    /// Connects and attaches all links. `xa`: the coordinator is to know the verbs of XA.
    pub(super) fn connect(&mut self, commits: Option<Commits>, xa: bool) -> Result<Open, End> {
        let options = Options { container_id: self.name.clone(), commits, ..Options::default() };
        let line = Line::open_with(self.options.to, options).map_err(lost)?;
        let (outs, read) = (Vec::new(), Read::All);
        let mut open = Open { line, read, session: None, control: None, outs, broker: None, asked: 0, said: None };
        self.until(&mut open, "an open", |open| open.session.is_some())?;
        let session = open.session.ok_or(End::Lost)?;
        let client = &mut open.line.client;
        let control = ControllerOptions { name: "control", xa, token: CONTROL };
        open.control = Some(client.controller(session, &control).map_err(misuse)?);
        for (nth, queue) in self.options.queue.iter().enumerate() {
            let (name, token) = (format!("out-{nth}"), CONTROL + 1 + nth as u64);
            let options =
                SenderOptions { name: &name, address: Some(queue), settle: SenderSettleMode::Unsettled, token };
            let link = open.line.client.sender(session, &options).map_err(misuse)?;
            open.outs.push(Out { queue: queue.clone(), link, number: self.link_number(), sequence: 0 });
        }
        self.input.number = self.link_number();
        self.input.attach(&mut self.diary).map_err(End::Failed)?;
        let In { queue, presettled, credit, .. } = &self.input;
        let options =
            ReceiverOptions { name: "in", address: queue, presettled: *presettled, credit: *credit, token: IN };
        self.input.link = Some(open.line.client.receiver(session, &options).map_err(misuse)?);
        Ok(open)
    }

    /// Writes and reads for a moment; acts are in the history before their bytes go out.
    pub(super) fn turn(&mut self, open: &mut Open) -> Result<(), End> {
        let failed = End::Failed;
        if let Some(order) = self.orders.next().map_err(failed)? {
            if order != Order::End {
                return Err(End::Failed(format!("{} was told to {}", self.name, order.word())));
            }
            self.told_to_end = true;
        }
        if self.input.standing == Standing::Up && self.input.has_room() {
            self.input.grant(&mut open.line.client, &mut self.diary).map_err(failed)?;
        }
        self.diary.flush().map_err(failed)?;
        let written = open.line.write().map_err(lost)?;
        if open.read == Read::All {
            open.line.wait_for_socket(!written, TURN);
        }
        let Open { line, session, broker, outs, asked, said, .. } = open;
        let (input, diary, run) = (&mut self.input, &mut self.diary, self.options.run);
        let mut failure = None;
        let read = line.read(&mut self.buffer, |client, event| {
            let heard = match event {
                Told::Opened(frame) => {
                    *broker = broker_id(&frame);
                    *session = Some(client.begin(0).map_err(|e| e.to_string())?);
                    Ok(())
                }
                Told::Attached { token: IN, .. } => {
                    input.stands();
                    Ok(())
                }
                Told::Message(transfer) => input.receive(&transfer, run, diary),
                Told::Drained { token: IN, .. } => input.drained(diary),
                Told::Credit { link, drain: true, .. } => client.drained(link).map_err(|e| e.to_string()),
                Told::Outcomes { state } => {
                    client.outcomes().iter().filter(|one| !one.repeated).try_for_each(|outcome| {
                        match outcome.link_token {
                            CONTROL if outcome.token == *asked => *said = Some(Said::read(state.as_ref())),
                            CONTROL => {}
                            _ => return refused(outcome, state.as_ref(), outs, diary),
                        }
                        Ok(())
                    })
                }
                Told::LinkLost(link) if link.token == IN && input.standing == Standing::Ending => {
                    input.ended(&link.reason, diary)
                }
                Told::LinkLost(link) => return Err(format!("the broker ended a link: {}", link.reason)),
                _ => Ok(()),
            };
            heard.inspect_err(|why| failure = Some(why.clone()))
        });
        if let Some(why) = failure {
            return Err(End::Failed(why));
        }
        open.read = read.map_err(lost)?;
        open.line.tick().map_err(lost)?;
        let now = now_ns();
        if open.read == Read::All && now - self.ticked_at >= TICK_NS && !self.input.is_midway() {
            self.ticked_at = now;
            self.diary.put(now, &Event::Tick).map_err(failed)?;
        }
        Ok(())
    }

    fn until(&mut self, open: &mut Open, what: &str, done: impl Fn(&Open) -> bool) -> Result<(), End> {
        let until = Instant::now() + PATIENCE;
        while !done(open) {
            if Instant::now() > until {
                return Err(End::Failed(format!("{what}: not after {} s", PATIENCE.as_secs())));
            }
            self.turn(open)?;
        }
        Ok(())
    }

    /// One in so many times, the client dies.
    fn may_die(&mut self) -> Result<(), End> {
        if !self.told_to_end && self.random.below(DEATHS) == 0 { Err(End::Lost) } else { Ok(()) }
    }

    /// Asks the coordinator, and waits for what it says. The client may die when it has asked.
    pub(super) fn ask(&mut self, open: &mut Open, request: &Request<'_>) -> Result<Said, End> {
        let control = open.control()?;
        self.until(open, "credit of the coordinator", |open| open.line.client.sendable(control))?;
        open.asked += 1;
        open.said = None;
        open.line.client.request(control, open.asked, request).map_err(misuse)?;
        self.diary.flush().map_err(End::Failed)?;
        open.line.write().map_err(lost)?;
        self.may_die()?;
        self.until(open, "an answer of the coordinator", |open| open.said.is_some())?;
        open.said.take().ok_or(End::Lost)
    }

    /// Works in a transaction: a few steps of messages sent and acknowledged. The client may die at each.
    pub(super) fn work(&mut self, open: &mut Open, txn: &[u8], tx: u64) -> Result<(), End> {
        for _ in 0..1 + self.random.below(4) {
            if self.random.below(10) < 7 {
                let out = self.random.below(open.outs.len());
                for _ in 0..1 + self.random.below(STEP) {
                    self.send(open, out, txn, tx)?;
                }
            }
            if self.input.standing == Standing::Up && self.random.below(10) < 7 {
                let most = 1 + self.random.below(2 * STEP);
                self.input.accept_in(txn, tx, most, &mut open.line.client, &mut self.diary).map_err(End::Failed)?;
            }
            self.turn(open)?;
            self.may_die()?;
        }
        Ok(())
    }

    fn send(&mut self, open: &mut Open, out: usize, txn: &[u8], tx: u64) -> Result<(), End> {
        let kind = Kind::draw(&mut self.random);
        let (link, bytes) = (open.outs[out].link, kind.size + Encoder::AROUND_BYTES);
        let free = |open: &Open| open.line.client.sendable(link) && open.line.client.fits(link, bytes);
        self.until(open, "credit of a queue", free)?;
        let Out { queue, number, sequence, .. } = &mut open.outs[out];
        let message = MessageId::new(*number, *sequence);
        let (encoded, crc) = self.encoder.encode(self.options.run, message, kind);
        let event = Event::Send {
            message,
            queue,
            size_bytes: kind.size as u32,
            crc,
            persistent: kind.persistent,
            ttl_ms: 0,
            delay_ms: 0,
            priority: kind.priority,
            tx: Some(tx),
        };
        self.diary.put(now_ns(), &event).map_err(End::Failed)?;
        open.line.client.send_in(txn, link, *sequence, false, &[Piece::Copy(encoded)]).map_err(misuse)?;
        *sequence += 1;
        Ok(())
    }

    /// Closes the connection in order, with everything open: the broker ends the transactions on it.
    pub(super) fn close(&mut self, open: &mut Open) -> Result<(), End> {
        self.input.ends(&mut self.diary, true).map_err(End::Failed)?;
        self.diary.flush().map_err(End::Failed)?;
        let now_ms = open.line.now_ms();
        open.line.client.close(now_ms).map_err(misuse)?;
        let until = Instant::now() + PATIENCE;
        // The broker's answer is the end of the connection.
        while self.turn(open).is_ok() {
            if Instant::now() > until {
                return Err(End::Failed("no answer to a close".into()));
            }
        }
        Ok(())
    }

    /// Gives back what it holds, in order, and closes the connection.
    pub(super) fn leave(&mut self, open: &mut Open) -> Result<(), End> {
        let until = Instant::now() + PATIENCE;
        while !self.input.is_gone() {
            let done = match self.input.standing {
                Standing::Up => self.input.drain(&mut open.line.client),
                Standing::Drained => self.input.detach(&mut open.line.client, &mut self.diary),
                _ => Ok(()),
            };
            done.map_err(End::Failed)?;
            if Instant::now() > until {
                return Err(End::Failed("its link does not end".into()));
            }
            self.turn(open)?;
        }
        self.close(open)
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self) -> Result<(), String> {
        self.input.ends(&mut self.diary, false)?;
        self.diary.flush()?;
        if let Some(order) = self.orders.next()? {
            self.told_to_end |= order == Order::End;
        }
        Ok(())
    }

    /// The client has come to its end. Err: what it found.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.diary.tell(&Event::End)?;
        let found: Vec<String> = self.found.into_iter().collect();
        if found.is_empty() { Ok(()) } else { Err(found.join("; ")) }
    }
}

/// What is said of a message in a transaction: it matters only if the transaction does not have it.
fn refused(
    outcome: &DeliveryOutcome,
    state: Option<&DeliveryState<'_>>,
    outs: &[Out],
    diary: &mut Diary,
) -> Result<(), String> {
    let reason = match (outcome.state, state) {
        (Decision::Received, _) => return Ok(()),
        (_, Some(DeliveryState::Transactional(state))) => match state.outcome {
            Some(Outcome::Accepted) | None => return Ok(()),
            Some(_) => "not taken into the transaction",
        },
        (_, Some(DeliveryState::Rejected(rejected))) => rejected.error.map_or("rejected", |error| error.condition),
        _ => "not taken",
    };
    let nth = usize::try_from(outcome.link_token - CONTROL - 1).map_err(|e| e.to_string())?;
    let out = outs.get(nth).ok_or("an outcome of a link that sends nothing")?;
    let message = MessageId::new(out.number, outcome.token);
    diary.put(now_ns(), &Event::SentRejected { message, reason })
}
