//! Clients: each drives the real engine in the client role over one connection at a time, over all lives of its broker, and writes down
//! what it does and sees by the rules of `docs/formats/history.md`.
//!
//! This file owns what all have in common: coming, going, reading, ticking. What they do is in the files beside it.

mod browser;
mod consumer;
mod controller;
mod desk;
mod helper;
mod hostile;
mod intake;
mod manager;
mod outlet;
mod producer;
mod scripted;
mod transactor;
mod work;

use crate::books::{Books, queue_name};
use crate::draw::Draw;
use crate::message::Press;
pub(crate) use browser::Browser;
pub(crate) use consumer::{Consumer, Use};
pub use controller::Tx;
pub(crate) use controller::{Branch, Said};
pub(crate) use desk::{Desk, Question, Subject, Verb};
pub(crate) use helper::{Board, Helper};
pub(crate) use hostile::Hostile;
pub(crate) use intake::{In, Manner};
pub(crate) use manager::Manager;
pub(crate) use outlet::Out;
use packhorse_client_core::{Client, Event, Input, LinkId, Login, Options, SessionId};
pub(crate) use producer::Producer;
pub use scripted::Got;
pub(crate) use scripted::{Order, Scripted};
pub(crate) use transactor::Transactor;
pub(crate) use work::Work;

/// Silence after which a client gives its broker up, and a broker its client.
pub(crate) const IDLE_MS: u32 = 3_000;

/// Between two ticks of a history.
const TICK_US: u64 = 200_000;

/// Why a connection is of no more use; a sentence.
pub(crate) type Lost = String;

/// A name of a queue: as the broker knows it, and as the history does.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) full: String,
}

impl Queue {
    pub(crate) fn new(host: usize, name: &str) -> Queue {
        Queue { name: name.to_owned(), full: queue_name(host, name) }
    }
}

/// What a client is for.
pub(crate) enum Role {
    Produce(Producer),
    Consume(Consumer),
    Annoy(Hostile),
    Browse(Browser),
    Transact(Box<Transactor>),
    Manage(Box<Manager>),
    Help(Box<Helper>),
    Script(Scripted),
}

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It does what it is for.
    Working,
    /// It is to end everything in order and go.
    Leaving,
    /// It is not there.
    Gone,
}

/// What happens around a client in one step.
pub(crate) struct Around<'a> {
    pub(crate) now_us: u64,
    pub(crate) books: &'a mut Books,
    /// The client's own among them.
    pub(crate) book: usize,
    pub(crate) press: &'a mut Press,
    /// A fault of ours: the world must not go on.
    pub(crate) wrong: &'a mut Vec<String>,
}

impl Around<'_> {
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// Writes down what the client does or sees now.
    fn put(&mut self, event: &packhorse_history::Event<'_>) {
        self.books.put(self.book, event);
    }

    /// The same of an earlier moment: see `Books::stamp`.
    fn put_at(&mut self, at_ns: u64, event: &packhorse_history::Event<'_>) {
        self.books.put_at(at_ns, self.book, event);
    }
}

/// A connection as its client knows it.
pub(crate) struct Line {
    pub(crate) client: Client,
    pub(crate) session: Option<SessionId>,
    held: Vec<u8>,
    /// The end was asked for.
    pub(crate) closing: bool,
    /// Bytes that no engine would say, behind what it says.
    pub(crate) raw: Vec<u8>,
}

impl Line {
    /// What every client does about an event, before it does what it is for.
    fn hear(&mut self, event: &Event<'_>) -> Result<(), Lost> {
        match event {
            Event::Opened(_) => self.begin(),
            // The broker stops, or gives up: the end of the stream follows.
            Event::Closed { .. } => {
                self.closing = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A new session.
    fn begin(&mut self) -> Result<(), Lost> {
        self.session = Some(self.client.begin(0).map_err(misuse)?);
        Ok(())
    }

    /// Ends the connection in order.
    fn close(&mut self, around: &Around<'_>) -> Result<(), Lost> {
        self.closing = true;
        self.client.close(around.now_ms()).map_err(misuse)
    }
}

/// See the module.
pub(crate) struct Person {
    /// Its book.
    pub(crate) book: usize,
    pub(crate) host: usize,
    pub(crate) role: Role,
    pub(crate) stage: Stage,
    pub(crate) line: Option<Line>,
    /// The stream of `line`.
    pub(crate) stream: Option<usize>,
    /// When it connects.
    pub(crate) connects_at: Option<u64>,
    /// It reads nothing before.
    pub(crate) asleep_until: u64,
    /// When the world looks after it next; kept by the world.
    pub(crate) alarm_at: Option<u64>,
    draw: Draw,
    name: String,
    ticked_at: u64,
}

impl Person {
    pub(crate) fn new(seed: u64, number: usize, book: usize, host: usize, role: Role, connects_at: u64) -> Person {
        Person {
            book,
            host,
            role,
            stage: Stage::Working,
            line: None,
            stream: None,
            connects_at: Some(connects_at),
            asleep_until: 0,
            alarm_at: None,
            draw: Draw::new(seed, 100 + number as u64),
            name: format!("client-{number}"),
            ticked_at: 0,
        }
    }

    /// A new connection; the world brings its stream.
    pub(crate) fn connect(&mut self, now_us: u64, stream: usize) {
        self.connects_at = None;
        self.stream = Some(stream);
        let options = Options {
            container_id: self.name.clone(),
            login: match self.draw.range(0, 4) {
                0 => Login::Bare,
                1 | 2 => Login::Anonymous,
                _ => Login::Plain { user: "guest".into(), password: "guest".into() },
            },
            idle_timeout_ms: IDLE_MS,
            incoming_window: match self.draw.range(0, 9) {
                0 => 2,
                1 | 2 => 32,
                _ => 2048,
            },
            seed: self.draw.next(),
            commits: match &self.role {
                Role::Transact(transactor) => Some(transactor.commits()),
                Role::Script(scripted) => scripted.commits,
                _ => None,
            },
            ..Options::default()
        };
        let client = Client::new(options, now_us / 1000);
        self.line = Some(Line { client, session: None, held: Vec::new(), closing: false, raw: Vec::new() });
    }

    /// The connection is gone, as far as the client knows.
    pub(crate) fn lost(&mut self, around: &mut Around<'_>) {
        let Some(line) = self.line.take() else { return };
        self.stream = None;
        self.asleep_until = 0;
        match &mut self.role {
            Role::Produce(producer) => producer.lost(around),
            Role::Consume(consumer) => consumer.lost(around),
            Role::Annoy(hostile) => hostile.lost(),
            Role::Browse(browser) => browser.lost(around),
            Role::Transact(transactor) => transactor.lost(around),
            Role::Manage(manager) => manager.lost(around),
            Role::Help(helper) => helper.lost(around),
            Role::Script(scripted) => scripted.lost(around),
        }
        let done = match &self.role {
            Role::Consume(consumer) => consumer.surveyed,
            // It comes back under another name, if the script says so.
            Role::Script(_) => true,
            Role::Produce(_)
            | Role::Annoy(_)
            | Role::Browse(_)
            | Role::Transact(_)
            | Role::Manage(_)
            | Role::Help(_) => false,
        };
        if self.stage == Stage::Leaving || done {
            // Whoever closed in order has done so; others have nothing left either.
            self.stage = Stage::Gone;
        } else {
            let wait = if line.closing { self.draw.range(500, 60_000) } else { self.draw.range(1_000, 120_000) };
            self.connects_at = Some(around.now_us + wait);
        }
    }

    /// Bytes of the broker.
    pub(crate) fn receive(&mut self, bytes: &[u8], around: &mut Around<'_>) -> Result<(), Lost> {
        let now_ms = around.now_ms();
        let Some(line) = &mut self.line else { return Ok(()) };
        let mut held = std::mem::take(&mut line.held);
        let mut input = Input { partial: &mut held, fresh: bytes };
        let result = loop {
            match line.client.next(&mut input, now_ms) {
                Ok(None) => break Ok(()),
                Ok(Some(event)) => {
                    let done = line.hear(&event).and_then(|()| match &mut self.role {
                        Role::Produce(producer) => producer.on(line, event, around),
                        Role::Consume(consumer) => consumer.on(line, event, around),
                        // It hears nothing.
                        Role::Annoy(_) => Ok(()),
                        Role::Browse(browser) => browser.on(line, event, around),
                        Role::Transact(transactor) => transactor.on(line, event, around),
                        Role::Manage(manager) => manager.on(line, event, around),
                        Role::Help(helper) => helper.on(line, event, around),
                        Role::Script(scripted) => scripted.on(line, event, around),
                    });
                    if let Err(why) = done {
                        break Err(why);
                    }
                }
                Err(failure) => {
                    // Whoever breaks rules is told so; nobody else may be.
                    if !matches!(self.role, Role::Annoy(_)) {
                        around.wrong.push(format!("{}: {failure}", self.name));
                    }
                    break Err(failure.to_string());
                }
            }
        };
        if let Some(line) = &mut self.line {
            line.held = held;
        }
        result
    }

    /// Does what is to be done now; its words are in the client's output. Err: the connection is of no more use.
    pub(crate) fn act(&mut self, around: &mut Around<'_>) -> Result<(), Lost> {
        if self.line.is_none() {
            self.tick(around);
            return Ok(());
        }
        if self.asleep_until > around.now_us {
            return Ok(());
        }
        self.tick(around);
        let Some(line) = &mut self.line else { return Ok(()) };
        let now_ms = around.now_us / 1000;
        if line.client.next_deadline().is_some_and(|at| at <= now_ms) {
            line.client.on_tick(now_ms).map_err(|failure| failure.to_string())?;
        }
        if !line.closing && line.session.is_some() {
            let leaving = self.stage == Stage::Leaving;
            match &mut self.role {
                Role::Produce(producer) => producer.act(line, leaving, around)?,
                Role::Consume(consumer) => {
                    self.asleep_until = consumer.act(line, leaving, around)?;
                }
                Role::Annoy(hostile) => hostile.act(line, leaving, around)?,
                Role::Browse(browser) => browser.act(line, leaving, around)?,
                Role::Transact(transactor) => transactor.act(line, leaving, around)?,
                Role::Manage(manager) => manager.act(line, leaving, around)?,
                Role::Help(helper) => helper.act(line, leaving, around)?,
                Role::Script(scripted) => scripted.act(line, leaving, around)?,
            }
        }
        line.client.flush(now_ms);
        Ok(())
    }

    /// Whether its history says that it reads.
    fn ticks(&self) -> bool {
        match &self.role {
            Role::Consume(_) | Role::Transact(_) | Role::Manage(_) | Role::Help(_) => true,
            Role::Script(scripted) => scripted.consumes(),
            Role::Produce(_) | Role::Annoy(_) | Role::Browse(_) => false,
        }
    }

    fn tick(&mut self, around: &mut Around<'_>) {
        if around.now_us >= self.ticked_at + TICK_US && self.stage != Stage::Gone {
            self.ticked_at = around.now_us;
            if self.ticks() {
                around.put(&packhorse_history::Event::Tick);
            }
        }
    }

    /// When it has something to do if nothing else happens.
    pub(crate) fn next_at(&self, now_us: u64) -> Option<u64> {
        if self.stage == Stage::Gone {
            return None;
        }
        let tick = self.ticks().then_some(self.ticked_at + TICK_US);
        let Some(line) = &self.line else {
            return [self.connects_at, tick].into_iter().flatten().min();
        };
        if self.asleep_until > now_us {
            return Some(self.asleep_until);
        }
        let timer = line.client.next_deadline().map(|ms| ms * 1000);
        let own = match &self.role {
            _ if line.closing || line.session.is_none() => None,
            Role::Produce(producer) => producer.next_at(),
            Role::Consume(consumer) => consumer.next_at(),
            Role::Annoy(hostile) => hostile.next_at(),
            Role::Browse(browser) => browser.next_at(),
            Role::Transact(transactor) => transactor.next_at(),
            Role::Manage(manager) => manager.next_at(),
            Role::Help(helper) => helper.next_at(),
            Role::Script(_) => None,
        };
        // What is due has been done, or waits for something to come.
        [timer, own, tick].into_iter().flatten().filter(|at| *at > now_us).min()
    }

    /// What it is at, in a few words.
    pub(crate) fn state(&self) -> String {
        let line = match &self.line {
            None => format!("connects at {:?}", self.connects_at),
            Some(line) => format!("{:?} closing {}", line.client.phase(), line.closing),
        };
        let what = match &self.role {
            Role::Produce(_) => "produces",
            Role::Consume(_) => "consumes",
            Role::Annoy(_) => "annoys",
            Role::Browse(_) => "browses",
            Role::Transact(_) => "has transactions",
            Role::Manage(_) => "manages branches",
            Role::Help(_) => "helps in branches",
            Role::Script(_) => "does as it is told",
        };
        format!("{what} at {}, {:?}, {line}, {} in flight", self.host, self.stage, self.in_flight())
    }

    /// What it waits for: confirms, or ends of deliveries.
    pub(crate) fn in_flight(&self) -> u64 {
        match &self.role {
            Role::Produce(producer) => producer.unconfirmed(),
            Role::Consume(consumer) => consumer.open(),
            Role::Annoy(_) | Role::Browse(_) => 0,
            Role::Transact(transactor) => transactor.open(),
            Role::Manage(manager) => manager.open(),
            Role::Help(helper) => helper.open(),
            Role::Script(scripted) => scripted.open(),
        }
    }

    /// Whether it has done what it is for; a consumer never knows.
    pub(crate) fn is_done(&self) -> bool {
        match &self.role {
            Role::Produce(producer) => producer.is_done(),
            Role::Consume(_) | Role::Annoy(_) | Role::Browse(_) => true,
            Role::Transact(transactor) => transactor.is_done(),
            Role::Manage(manager) => manager.is_done(),
            Role::Help(helper) => helper.is_done(),
            Role::Script(scripted) => scripted.is_answered(),
        }
    }
}

/// A link that the client's engine knows, or a sentence.
fn known(link: Option<LinkId>) -> Result<LinkId, Lost> {
    link.ok_or_else(|| "a link that is not there".to_owned())
}

fn misuse(misuse: packhorse_client_core::Misuse) -> Lost {
    misuse.to_string()
}
