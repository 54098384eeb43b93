//! A worker: the feeder, which sends all origins in transactions, or a transformer, which takes messages and sends them on. Its commits
//! have names, and one whose answer is missing is asked for before anything else is done, by whichever life of the worker comes next.

use super::super::clock::now_ns;
use super::super::diary::Diary;
use super::super::message::{Encoder, Kind, Seen};
use super::super::orders::{self, Order, Orders};
use super::book::Book;
use super::{IN, OUT};
use crate::Random;
use crate::load::misuse;
use crate::wire::{Broken, Wire};
use packhorse_client_core::codec::Discharge;
use packhorse_client_core::transaction::{Request, Response, TxCommit, TxOutcome, TxStatus};
use packhorse_client_core::{
    Client, Commits, ControllerOptions, Decision, Event as Told, Joiner, LinkId, Options, Piece, ReceiverOptions,
    SenderOptions, SenderSettleMode, SessionId, Verdict, broker_id, response,
};
use packhorse_history::{Event, MessageId};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(3);
/// How long a turn waits, and an answer may take.
const TURN: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// Most messages of a transaction.
const MOST: usize = 24;
const CREDIT: u32 = 100;
/// One transaction in so many is rolled back on purpose.
const ROLLED_BACK: usize = 12;
/// Between two ticks of the history, at least.
const TICK_NS: u64 = 50_000_000;
/// Lives that a worker may have, and its links and transactions in each.
const LIVES: u32 = 400;
const EACH: u64 = 1_000_000;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sends all origins.
    Feeder,
    /// Takes messages, and sends them on.
    Transformer,
}

/// The command line of a worker.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerOptions {
    /// What it does
    #[arg(long)]
    pub role: Role,
    /// Its number among the workers
    #[arg(long)]
    pub number: u32,
    /// Its life, from 0
    #[arg(long)]
    pub life: u32,
    /// The broker
    #[arg(long)]
    pub to: SocketAddr,
    /// The run, as in bodies and histories
    #[arg(long)]
    pub run: u64,
    /// What it does is drawn from this
    #[arg(long)]
    pub seed: u64,
    /// Its history
    #[arg(long)]
    pub history: PathBuf,
    /// Its book, over all its lives
    #[arg(long)]
    pub book: PathBuf,
    /// How many origins there are
    #[arg(long)]
    pub origins: u64,
}

/// Why a connection's work is over.
enum End {
    /// It is gone; there will be another one.
    Lost,
    /// The worker cannot go on: a sentence.
    Failed(String),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        match broken {
            Broken::Lost(_) | Broken::Closed { .. } => End::Lost,
            Broken::Refused(why) => End::Failed(why),
        }
    }
}

impl From<String> for End {
    fn from(why: String) -> End {
        End::Failed(why)
    }
}

/// A message that came and is not in a transaction yet.
#[derive(Clone, Copy, Debug)]
struct Got {
    delivery: u32,
    message: MessageId,
    origin: u64,
}

/// What came by the last turns.
#[derive(Default)]
struct Heap {
    got: VecDeque<Got>,
    joiner: Joiner,
    /// The answer that is waited for: token, and what was said.
    waits: u64,
    answer: Option<Said>,
    consumer: u32,
    run: u64,
}

/// What a coordinator said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Declared(Vec<u8>),
    Accepted,
    Rejected(String),
    Status(TxOutcome),
    Other,
}

impl Heap {
    fn take(&mut self, client: &Client, event: Told<'_>, diary: &mut Diary) -> Result<(), Broken> {
        match event {
            Told::Message(transfer) => {
                let Some(bytes) = self.joiner.push(&transfer) else { return Ok(()) };
                let Seen { message, whole, count, origin, .. } = Seen::of(self.run, bytes);
                let event = Event::Recv {
                    message,
                    consumer: self.consumer,
                    queue: IN,
                    delivery_count: count,
                    redelivered: count > 0,
                    crc_ok: whole,
                    tx: None,
                };
                diary.put(now_ns(), &event).map_err(Broken::Refused)?;
                let origin = origin.ok_or_else(|| Broken::Refused(format!("{message} has no origin")))?;
                self.got.push_back(Got { delivery: transfer.delivery_id, message, origin });
            }
            Told::Outcomes { state } => {
                for outcome in client.outcomes() {
                    if outcome.token == self.waits && outcome.state != Decision::Transactional {
                        self.answer = Some(match response(state.as_ref()) {
                            Response::Declared(id) => Said::Declared(id.to_vec()),
                            Response::Accepted => Said::Accepted,
                            Response::Rejected(error) => {
                                Said::Rejected(error.map_or(String::new(), |error| error.condition.to_owned()))
                            }
                            Response::Status(outcome) => Said::Status(outcome),
                            Response::Result(_) | Response::Other => Said::Other,
                        });
                    } else if outcome.state == Decision::Rejected {
                        return Err(Broken::Refused(format!("a message in a transaction is refused: {state:?}")));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

struct Worker<'a> {
    options: &'a WorkerOptions,
    random: Random,
    diary: Diary,
    book: Book,
    orders: Orders,
    encoder: Encoder,
    /// The worker's number with its life, from which numbers of links and transactions are made.
    base: u32,
    links: u32,
    txs: u64,
    told_to_end: bool,
    ticked_at: u64,
    /// The last commit of which the history was told that its answer is missing.
    unknown: Option<u64>,
    /// The consuming link that stands, in the history.
    consumer: Option<u32>,
}

/// A connection that stands.
struct Open {
    wire: Wire,
    session: SessionId,
    control: LinkId,
    out: LinkId,
    producer: u32,
    sequence: u64,
    broker: [u8; 16],
    heap: Heap,
    tokens: u64,
}

/// Runs until its work is done, or it is told to end. Err: it cannot go on; a sentence.
pub fn work(options: &WorkerOptions) -> Result<(), String> {
    if options.life >= LIVES {
        return Err(format!("worker {} has no life {}", options.number, options.life));
    }
    let name = format!("{:?}-{}-{}", options.role, options.number, options.life).to_lowercase();
    let mut worker = Worker {
        options,
        random: Random::new(options.seed),
        diary: Diary::begin(&options.history, &name, options.run)?,
        book: Book::open(&options.book)?,
        orders: Orders::default(),
        encoder: Encoder::default(),
        base: options.number * LIVES + options.life,
        links: 0,
        txs: 0,
        told_to_end: false,
        ticked_at: 0,
        unknown: None,
        consumer: None,
    };
    loop {
        match worker.connection(&name) {
            Err(End::Lost) => {
                if let Some(consumer) = worker.consumer.take() {
                    let gone = Event::Detach { consumer, orderly: false, confirmed: false };
                    worker.diary.tell(&gone)?;
                }
                // Told once, however often the broker is not there.
                let open = worker.book.open.and_then(|asked| asked.tx);
                if let Some(tx) = open.filter(|_| worker.unknown != open) {
                    worker.unknown = open;
                    worker.diary.tell(&Event::CommitUnknown { tx })?;
                }
                orders::wait(RETRY);
                worker.listen()?;
            }
            Ok(()) => return worker.diary.tell(&Event::End),
            Err(End::Failed(why)) => return Err(why),
        }
    }
}

impl Worker<'_> {
    fn listen(&mut self) -> Result<(), String> {
        if let Some(order) = self.orders.next()? {
            self.told_to_end |= order == Order::End;
        }
        Ok(())
    }

    fn link_number(&mut self) -> u32 {
        self.links += 1;
        // Few links per life: the whole must stay below 2^32.
        self.base * 1_000 + self.links
    }

    fn tx_number(&mut self) -> u64 {
        self.txs += 1;
        u64::from(self.base) * EACH + self.txs
    }

    /// The client's session is the same in all lives.
    fn session(&self) -> [u8; 16] {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&self.options.run.to_be_bytes());
        session[8..12].copy_from_slice(&self.options.number.to_be_bytes());
        session[15] = 1;
        session
    }

    fn connection(&mut self, name: &str) -> Result<(), End> {
        let commits = Some(Commits { session: self.session(), next: self.book.next });
        let options = Options { container_id: name.into(), commits, ..Options::default() };
        let mut broker = None;
        let (mut wire, session) = Wire::open_with(self.options.to, options, |open| broker = broker_id(open))?;
        let broker = broker.ok_or_else(|| End::Failed("the broker does not say which one it is".into()))?;
        let control = wire.client.controller(session, &ControllerOptions { name: "control", xa: false, token: 0 });
        let address = if self.options.role == Role::Feeder { IN } else { OUT };
        let sender =
            SenderOptions { name: "out", address: Some(address), settle: SenderSettleMode::Unsettled, token: 1 };
        let out = wire.client.sender(session, &sender).map_err(misuse)?;
        let (producer, control) = (self.link_number(), control.map_err(misuse)?);
        let heap = Heap { run: self.options.run, ..Heap::default() };
        let mut open = Open { wire, session, control, out, producer, sequence: 0, broker, heap, tokens: 0 };
        self.resolve(&mut open)?;
        if self.book.committed.is_none() {
            // The broker is to know the session before anything depends on it.
            self.transaction(&mut open, &[], None)?;
        }
        match self.options.role {
            Role::Feeder => self.feed(&mut open)?,
            Role::Transformer => self.transform(&mut open)?,
        }
        // What this says is not waited for: all answers are there.
        let _ = open.wire.close();
        Ok(())
    }

    /// Writes and reads for a moment; acts are in the history before their bytes go out.
    fn turn(&mut self, open: &mut Open) -> Result<(), End> {
        self.diary.flush()?;
        let (heap, diary) = (&mut open.heap, &mut self.diary);
        open.wire.turn(TURN, |client, event| heap.take(client, event, diary))?;
        Ok(())
    }

    fn ask(&mut self, open: &mut Open, request: &Request<'_>) -> Result<Said, End> {
        let until = Instant::now() + PATIENCE;
        while !open.wire.client.sendable(open.control) {
            self.turn(open)?;
            if Instant::now() > until {
                return Err(End::Failed("no credit from the coordinator for a minute".into()));
            }
        }
        open.tokens += 1;
        // Those of messages are odd.
        open.heap.waits = open.tokens * 2;
        open.heap.answer = None;
        open.wire.client.request(open.control, open.heap.waits, request).map_err(misuse)?;
        loop {
            if let Some(said) = open.heap.answer.take() {
                return Ok(said);
            }
            if Instant::now() > until {
                return Err(End::Failed(format!("no answer to {request:?} for a minute")));
            }
            self.turn(open)?;
        }
    }

    /// What became of the commit whose answer is missing.
    fn resolve(&mut self, open: &mut Open) -> Result<(), End> {
        let Some(asked) = self.book.open else { return Ok(()) };
        let (broker, session) = (open.broker, self.session());
        let said = self.ask(open, &Request::TxStatus(TxStatus { broker, session, counter: asked.counter }))?;
        let committed = match (said, asked.tx) {
            (Said::Status(TxOutcome::Committed), _) => true,
            (Said::Status(TxOutcome::RolledBack), _) => false,
            // The session's first, which carries nothing.
            (Said::Status(TxOutcome::Expired), None) => false,
            (said, _) => return Err(End::Failed(format!("what became of {asked:?}: {said:?}"))),
        };
        self.know(committed)?;
        Ok(())
    }

    fn know(&mut self, committed: bool) -> Result<(), String> {
        if let Some(tx) = self.book.open.and_then(|asked| asked.tx) {
            let event = if committed { Event::CommitOk { tx } } else { Event::RollbackOk { tx } };
            self.diary.tell(&event)?;
        }
        self.book.learn(committed)
    }

    /// Sends these origins in a transaction in which these messages are taken, and commits it. `took`: the messages, and their link.
    fn transaction(&mut self, open: &mut Open, origins: &[u64], took: Option<(LinkId, &[Got])>) -> Result<(), End> {
        let tx = (!origins.is_empty()).then(|| self.tx_number());
        if let Some(tx) = tx {
            self.diary.put(now_ns(), &Event::TxBegin { tx, xid: None, broker: None })?;
        }
        let txn = match self.ask(open, &Request::Declare)? {
            Said::Declared(txn) => txn,
            said => return Err(End::Failed(format!("{said:?} to a declare"))),
        };
        if let (Some((link, all)), Some(consumer)) = (took, self.consumer) {
            for got in all {
                self.diary.put(now_ns(), &Event::Ack { message: got.message, consumer, confirmed: false, tx })?;
                open.wire.client.settle_in(&txn, link, got.delivery, Verdict::Accept).map_err(misuse)?;
            }
        }
        for origin in origins {
            self.send(open, &txn, tx, *origin)?;
        }
        if let Some(tx) = tx
            && self.random.below(ROLLED_BACK) == 0
        {
            let said = self.ask(open, &Request::Discharge(Discharge { txn_id: &txn, fail: true }))?;
            if said != Said::Accepted {
                return Err(End::Failed(format!("{said:?} to a rollback")));
            }
            self.diary.put(now_ns(), &Event::RollbackOk { tx })?;
            return Ok(());
        }
        let counter = self.book.ask(tx, origins.last().map_or(self.book.origins(), |last| last + 1))?;
        if let Some(tx) = tx {
            self.diary.put(now_ns(), &Event::CommitSent { tx })?;
        }
        let (broker, session) = (open.broker, self.session());
        match self.ask(open, &Request::TxCommit(TxCommit { txn_id: &txn, broker, session, counter }))? {
            Said::Accepted => self.know(true)?,
            Said::Rejected(why) if why.starts_with("amqp:transaction:") => self.know(false)?,
            said => return Err(End::Failed(format!("{said:?} to a commit"))),
        }
        Ok(())
    }

    fn send(&mut self, open: &mut Open, txn: &[u8], tx: Option<u64>, origin: u64) -> Result<(), End> {
        let message = MessageId::new(open.producer, open.sequence);
        open.sequence += 1;
        let kind = Kind { size: 40 + self.random.below(400), persistent: true, priority: 4 };
        let queue = if self.options.role == Role::Feeder { IN } else { OUT };
        let (bytes, crc) = self.encoder.encode_about(self.options.run, message, kind, Some(origin));
        let bytes = bytes.to_vec();
        let until = Instant::now() + PATIENCE;
        while !open.wire.client.sendable(open.out) || !open.wire.client.fits(open.out, bytes.len()) {
            self.turn(open)?;
            if Instant::now() > until {
                return Err(End::Failed(format!("no credit from {queue} for a minute")));
            }
        }
        let event = Event::Send {
            message,
            queue,
            size_bytes: kind.size as u32,
            crc,
            persistent: true,
            ttl_ms: 0,
            delay_ms: 0,
            priority: kind.priority,
            tx,
        };
        self.diary.put(now_ns(), &event)?;
        let token = message.sequence * 2 + 1;
        open.wire.client.send_in(txn, open.out, token, false, &[Piece::Copy(&bytes)]).map_err(misuse)?;
        Ok(())
    }

    fn feed(&mut self, open: &mut Open) -> Result<(), End> {
        while self.book.origins() < self.options.origins {
            self.listen()?;
            let first = self.book.origins();
            let last = (first + 1 + self.random.below(4 * MOST) as u64).min(self.options.origins);
            let origins: Vec<u64> = (first..last).collect();
            self.transaction(open, &origins, None)?;
        }
        Ok(())
    }

    fn transform(&mut self, open: &mut Open) -> Result<(), End> {
        let consumer = self.link_number();
        let at = now_ns();
        self.diary.put(at, &Event::Attach { consumer, queue: IN, presettled: false, filtered: false })?;
        self.diary.put(at, &Event::Credit { consumer, credit: CREDIT })?;
        let receiver = ReceiverOptions { name: "in", address: IN, presettled: false, credit: CREDIT, token: 2 };
        let link = open.wire.client.receiver(open.session, &receiver).map_err(misuse)?;
        (self.consumer, open.heap.consumer) = (Some(consumer), consumer);
        loop {
            self.listen()?;
            let now = now_ns();
            if now - self.ticked_at >= TICK_NS {
                self.ticked_at = now;
                self.diary.put(now, &Event::Tick)?;
            }
            if open.heap.got.is_empty() {
                if self.told_to_end {
                    self.diary.tell(&Event::Detach { consumer, orderly: true, confirmed: false })?;
                    self.consumer = None;
                    return Ok(());
                }
                self.turn(open)?;
            } else {
                let count = open.heap.got.len().min(1 + self.random.below(MOST));
                let took: Vec<Got> = open.heap.got.drain(..count).collect();
                let origins: Vec<u64> = took.iter().map(|got| got.origin).collect();
                self.transaction(open, &origins, Some((link, &took)))?;
            }
            if open.wire.client.credit(link) <= CREDIT / 2 {
                self.diary.put(now_ns(), &Event::Credit { consumer, credit: CREDIT })?;
                open.wire.client.grant(link, CREDIT).map_err(misuse)?;
            }
        }
    }
}
