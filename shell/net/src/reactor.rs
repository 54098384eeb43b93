//! The readiness loop of one shard: poll, read within a budget, one turn of the machine, one vectored write per connection.
//!
//! Owns sockets and their readiness (edge-triggered, remembered in flags), and the end of connections. Everything that a
//! peer does to it is bounded: bytes read a turn, output (by the machine), the time to take last bytes.

use crate::accept::Acceptor;
use crate::connection::{Closing, Connection, Life};
use crate::mailbox::{Accepted, Door, Mailbox, Post};
use crate::{Host, Machine};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use packhorse_broker::{Effect, Input, Lost};
use packhorse_model::{ConnectionId, Now, ShardId};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time, all shards together.
    pub connections: usize,
    /// Time that the end of a connection may take: our last bytes and the peer's answer to them.
    pub linger: Duration,
}

/// One read, bytes.
const READ_BYTES: usize = 64 << 10;
/// All reads of a turn, bytes.
const TURN_BYTES: usize = 256 << 10;
/// Reading ends after this time in a turn.
const TURN_TIME: Duration = Duration::from_millis(1);
/// Slices in one vectored write.
const SLICES: usize = 64;
/// A connection that ends with more unwritten than this is cut.
const REST_BYTES: usize = 4 << 20;
/// Bytes dropped of a peer that goes on sending to a connection that has ended.
const DROP_BYTES: usize = 4 << 20;
/// Events taken from one poll.
const EVENTS: usize = 1024;

pub(crate) const WAKER: Token = Token(usize::MAX);

fn listener_token(n: usize) -> Token {
    Token(usize::MAX - 1 - n)
}

/// Tokens above this are not connections.
const CONNECTION_TOKENS: usize = usize::MAX - 1024;

/// The loop of one shard.
pub struct Reactor<M, H> {
    shard: ShardId,
    poll: Poll,
    mailboxes: Arc<[Arc<Mailbox>]>,
    machine: M,
    host: Arc<H>,
    limits: Limits,
    acceptor: Acceptor,
    connections: HashMap<u64, Connection>,
    /// To read, in turn.
    ready: VecDeque<u64>,
    /// To write at the end of this turn.
    dirty: Vec<u64>,
    /// Writable again after having been blocked.
    unblocked: Vec<u64>,
    /// Ended in this turn: their last output is taken when it is over.
    ending: Vec<(u64, bool)>,
    /// Deadlines of connections that end, ascending, monotonic µs.
    lingering: VecDeque<(u64, u64)>,
    effects: Vec<Effect>,
    posts: Vec<Post>,
    outgoing: Vec<Vec<Post>>,
    buffer: Vec<u8>,
    /// End the loop when nothing is left to write, or at this time, monotonic µs.
    exit_at_us: Option<u64>,
}

impl<M: Machine, H: Host> Reactor<M, H> {
    /// A loop around `machine`, waiting at `door`.
    pub fn new(door: Door, machine: M, host: Arc<H>, limits: Limits) -> Reactor<M, H> {
        let shards = door.mailboxes.len();
        Reactor {
            shard: door.shard,
            poll: door.poll,
            mailboxes: door.mailboxes,
            machine,
            host,
            limits,
            acceptor: Acceptor::new(limits.connections),
            connections: HashMap::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            unblocked: Vec::new(),
            ending: Vec::new(),
            lingering: VecDeque::new(),
            effects: Vec::new(),
            posts: Vec::new(),
            outgoing: (0..shards).map(|_| Vec::new()).collect(),
            buffer: vec![0; READ_BYTES],
            exit_at_us: None,
        }
    }

    /// Runs until [`Post::Exit`]. An error is the poll's: the process cannot go on.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout(self.host.now());
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            for event in &events {
                self.note(event);
            }
            let now = self.host.now();
            self.turn(now)?;
            if self.exit_at_us.is_some_and(|at| self.lingering.is_empty() || now.mono_us >= at) {
                return Ok(());
            }
        }
    }

    /// How long the poll may wait.
    fn timeout(&self, now: Now) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let accept = self.acceptor.ready.then_some(self.acceptor.not_before_us);
        let linger = self.lingering.front().map(|(at, _)| *at);
        let due = [self.machine.next_deadline(), accept, linger, self.exit_at_us].into_iter().flatten().min()?;
        Some(Duration::from_micros(due.saturating_sub(now.mono_us)))
    }

    /// Remembers what the poll says. Edge-triggered: it says so once.
    fn note(&mut self, event: &Event) {
        let Token(id) = event.token();
        if event.token() == WAKER {
            return;
        }
        if id > CONNECTION_TOKENS {
            self.acceptor.ready = true;
            return;
        }
        let id = id as u64;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if event.is_error() && connection.paused && connection.is_open() {
            // A reset: what it sent is lost in the system anyhow, and nobody will ask to read it.
            self.ending.push((id, true));
            return;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            connection.readable = true;
            connection.ended |= event.is_read_closed() || event.is_error();
            enqueue(&mut self.ready, id, connection);
        }
        if event.is_writable() && connection.blocked {
            connection.blocked = false;
            self.unblocked.push(id);
        }
    }

    fn turn(&mut self, now: Now) -> io::Result<()> {
        // A reset while paused was noted by the poll: tell the machine first.
        for at in 0..self.ending.len() {
            let how = Lost::Error("connection reset by peer".into());
            self.machine.handle(lost(self.ending[at].0, how), now, &mut self.effects);
        }
        self.take_mail(now)?;
        // Before dispatch, which has room again only by this.
        let mut unblocked = std::mem::take(&mut self.unblocked);
        for id in unblocked.drain(..) {
            self.write(id);
        }
        self.unblocked = unblocked;
        self.acceptor.accept(now, &self.mailboxes, &*self.host);
        self.read(now);
        self.machine.end_turn(now, &mut self.effects);
        self.carry_out();
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.dirty = false;
                self.write(id);
            }
        }
        self.dirty = dirty;
        let mut ending = std::mem::take(&mut self.ending);
        for (id, cut) in ending.drain(..) {
            self.close(id, cut, now);
        }
        self.ending = ending;
        while self.lingering.front().is_some_and(|(at, _)| *at <= now.mono_us) {
            let (_, id) = self.lingering.pop_front().expect("just seen");
            self.connections.remove(&id);
        }
        // Deadlines of connections that have ended in time.
        while self.lingering.front().is_some_and(|(_, id)| !self.connections.contains_key(id)) {
            self.lingering.pop_front();
        }
        Ok(())
    }

    fn take_mail(&mut self, now: Now) -> io::Result<()> {
        let mut posts = std::mem::take(&mut self.posts);
        self.mailboxes[usize::from(self.shard.0)].take(&mut posts);
        for post in posts.drain(..) {
            match post {
                Post::Listen(listeners) => self.acceptor.serve(listeners, self.poll.registry(), listener_token)?,
                Post::Accepted(accepted) => self.adopt(*accepted, now),
                Post::Mail(mail) => self.machine.handle(Input::Mail(mail), now, &mut self.effects),
                Post::Admin { id, command } => {
                    self.machine.handle(Input::Admin { id, command }, now, &mut self.effects);
                }
                Post::Stop => {
                    self.acceptor.close();
                    self.machine.handle(Input::Stop, now, &mut self.effects);
                }
                Post::Exit => self.exit_at_us = Some(now.mono_us + self.linger_us()),
            }
        }
        self.posts = posts;
        Ok(())
    }

    fn linger_us(&self) -> u64 {
        u64::try_from(self.limits.linger.as_micros()).unwrap_or(u64::MAX)
    }

    fn adopt(&mut self, accepted: Accepted, now: Now) {
        let Accepted { connection, endpoint, mut stream, slot } = accepted;
        let ConnectionId(id) = connection;
        let interest = Interest::READABLE | Interest::WRITABLE;
        // Fails when the system has no memory for it: the socket is closed by being dropped.
        if self.poll.registry().register(&mut stream, Token(id as usize), interest).is_ok() {
            self.connections.insert(id, Connection::new(stream, slot));
            self.machine.handle(Input::Accepted { connection, endpoint }, now, &mut self.effects);
        }
    }

    /// Reads ready sockets in turn until the budget of the turn is used.
    fn read(&mut self, now: Now) {
        if self.ready.is_empty() {
            return;
        }
        let started = Instant::now();
        let mut budget = TURN_BYTES;
        while budget > 0 {
            let Some(id) = self.ready.pop_front() else { break };
            budget -= self.read_one(id, READ_BYTES.min(budget), now);
            if started.elapsed() >= TURN_TIME {
                break;
            }
        }
    }

    /// One read of at most `want` bytes; returns how many came.
    fn read_one(&mut self, id: u64, want: usize, now: Now) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        connection.queued = false;
        if !connection.readable || (connection.paused && connection.is_open()) {
            return 0;
        }
        let got = connection.stream.read(&mut self.buffer[..want]);
        match got {
            Ok(n) if n > 0 => {
                // A short read has emptied the socket, unless the end of the stream is waiting behind it.
                connection.readable = n == want || connection.ended;
                match &mut connection.life {
                    Life::Open => {
                        let bytes = &self.buffer[..n];
                        let connection = ConnectionId(id);
                        self.machine.handle(Input::Received { connection, bytes }, now, &mut self.effects);
                    }
                    Life::Closing(closing) => {
                        closing.dropped += n;
                        if closing.dropped > DROP_BYTES {
                            self.connections.remove(&id);
                            return n;
                        }
                    }
                }
                if let Some(connection) = self.connections.get_mut(&id)
                    && connection.readable
                {
                    enqueue(&mut self.ready, id, connection);
                }
                return n;
            }
            Ok(_) => self.finished(id, None, now),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => enqueue(&mut self.ready, id, connection),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                if let Some(how) = connection.broken.take() {
                    self.finished(id, Some(how), now);
                }
            }
            Err(e) => self.finished(id, Some(e.to_string()), now),
        }
        0
    }

    /// The peer will send no more: by its end of stream, or by an error.
    fn finished(&mut self, id: u64, error: Option<String>, now: Now) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.readable = false;
        connection.ended = true;
        let cut = error.is_some();
        match &mut connection.life {
            Life::Open => {
                let how = error.map_or(Lost::Eof, Lost::Error);
                self.machine.handle(lost(id, how), now, &mut self.effects);
                self.ending.push((id, cut));
            }
            Life::Closing(closing) => {
                closing.eof = true;
                if cut || closing.shut {
                    self.connections.remove(&id);
                }
            }
        }
    }

    /// Does what the machine asked for.
    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Output { connection: ConnectionId(id) } => {
                    if let Some(connection) = self.connections.get_mut(&id)
                        && !connection.dirty
                    {
                        connection.dirty = true;
                        self.dirty.push(id);
                    }
                }
                Effect::Close { connection: ConnectionId(id) } => self.ending.push((id, false)),
                Effect::Reading { connection: ConnectionId(id), paused } => {
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.paused = paused;
                        if !paused && connection.readable {
                            enqueue(&mut self.ready, id, connection);
                        }
                    }
                }
                Effect::AdminReply { id, reply } => self.host.reply(id, *reply),
                Effect::Mail { to, mail } => self.outgoing[usize::from(to.0)].push(Post::Mail(mail)),
                Effect::Log { level, connection, text } => self.host.log(self.shard, level, connection, &text),
                Effect::Stopped => self.host.stopped(self.shard),
                Effect::StoreFailed { what } => self.host.store_failed(&what),
            }
        }
        self.effects = effects;
        for (to, posts) in self.outgoing.iter_mut().enumerate() {
            if !posts.is_empty() {
                self.mailboxes[to].post_all(posts);
            }
        }
    }

    /// Writes what a connection has until there is nothing more or the socket takes no more.
    fn write(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_open() {
            self.write_rest(id);
            return;
        }
        while !connection.blocked && connection.broken.is_none() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.machine.output(ConnectionId(id), &mut slices);
            let slices = &slices[..count];
            let whole: usize = slices.iter().map(|s| s.len()).sum();
            if whole == 0 {
                return;
            }
            match connection.stream.write_vectored(slices) {
                Ok(n) => {
                    self.machine.written(ConnectionId(id), n);
                    connection.blocked = n < whole;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => connection.blocked = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // What the peer sent before still counts: read to the end, then it is lost.
                    connection.broken = Some(e.to_string());
                    connection.readable = true;
                    connection.paused = false;
                    enqueue(&mut self.ready, id, connection);
                }
            }
        }
    }

    /// The connection is over for the machine: takes its last output into a buffer of its own, so that the machine can forget it.
    fn close(&mut self, id: u64, cut: bool, now: Now) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_open() {
            return;
        }
        let mut rest = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.machine.output(ConnectionId(id), &mut slices);
            let whole: usize = slices[..count].iter().map(|s| s.len()).sum();
            if whole == 0 || cut || rest.len() + whole > REST_BYTES {
                break;
            }
            for slice in &slices[..count] {
                rest.extend_from_slice(slice);
            }
            self.machine.written(ConnectionId(id), whole);
        }
        if cut || connection.broken.is_some() {
            self.connections.remove(&id);
            return;
        }
        let eof = connection.ended && !connection.readable;
        connection.life = Life::Closing(Closing { rest, written: 0, shut: false, eof, dropped: 0 });
        if connection.readable {
            enqueue(&mut self.ready, id, connection);
        }
        self.lingering.push_back((now.mono_us + self.linger_us(), id));
        self.write_rest(id);
    }

    /// Goes on with the end of a connection: last bytes, shut our direction, wait for the peer's end. (Closing at once
    /// with the peer's bytes unread would reset the connection and may destroy what we sent last.)
    fn write_rest(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Life::Closing(closing) = &mut connection.life else { return };
        while closing.written < closing.rest.len() && !connection.blocked {
            match connection.stream.write(&closing.rest[closing.written..]) {
                Ok(n) => closing.written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => connection.blocked = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.connections.remove(&id);
                    return;
                }
            }
        }
        if closing.written == closing.rest.len() && !closing.shut {
            closing.shut = true;
            if connection.stream.shutdown(Shutdown::Write).is_err() || closing.eof {
                self.connections.remove(&id);
            }
        }
    }
}

fn lost(id: u64, how: Lost) -> Input<'static> {
    Input::Lost { connection: ConnectionId(id), how }
}

/// Puts a connection at the end of the queue of those to read, once.
fn enqueue(ready: &mut VecDeque<u64>, id: u64, connection: &mut Connection) {
    if !connection.queued {
        connection.queued = true;
        ready.push_back(id);
    }
}
