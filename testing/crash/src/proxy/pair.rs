//! One connection: the client's socket, the broker's, a pipe each way, and what is being done to it.

use super::pipe::{Flow, Pipe, Source};
use super::{Fault, Felt, Kind, Way};
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::set_socket_linger;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Bytes that a connection on which work is done has carried to the broker: its login, a session and a link take less.
const WORKS_BYTES: u64 = 600;
/// Bytes each way after which there is something to be hurt.
const STANDS_BYTES: u64 = 200;
/// How long an end in order may take when nobody else waits for it.
const FAREWELL_NS: u64 = 500_000_000;
/// Bytes that must go alone for that to have been tried.
const ALONE_BYTES: u64 = 50;

/// How far a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It lasts until its time is over.
    Lasts,
    /// Bytes of a client that will be cut are gathered.
    Gathers,
    /// The client is cut; its next connection is waited for.
    Waits,
    /// What was gathered goes.
    Releases {
        /// Written before that.
        before: u64,
    },
}

/// A fault under way.
#[derive(Debug)]
struct Trouble {
    fault: Fault,
    stage: Stage,
    until: u64,
    reply: Sender<Felt>,
}

/// A cut at a byte, from the connection's first one on.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) way: Way,
    pub(super) bytes: u64,
    pub(super) rude: bool,
    pub(super) reply: Sender<Felt>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pair {
    /// Connections have ascending numbers.
    pub(super) number: u64,
    pub(super) door: usize,
    client: Option<TcpStream>,
    broker: Option<TcpStream>,
    up: Pipe,
    down: Pipe,
    trouble: Option<Trouble>,
    ordered: Option<Ordered>,
    /// Nothing is waited for beyond this: one side was told of the end.
    farewell: Option<u64>,
    over: bool,
}

impl Pair {
    /// Two connected sockets that never block.
    pub(super) fn new(
        number: u64,
        door: usize,
        client: TcpStream,
        broker: TcpStream,
        ordered: Option<Ordered>,
    ) -> Pair {
        let (mut up, mut down) = (Pipe::new(), Pipe::new());
        if let Some(Ordered { way, bytes, .. }) = ordered {
            let pipe = if way == Way::ToBroker { &mut up } else { &mut down };
            pipe.limit = Some(bytes);
        }
        let (client, broker) = (Some(client), Some(broker));
        Pair { number, door, client, broker, up, down, trouble: None, ordered, farewell: None, over: false }
    }

    /// Nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Its client uses it: work went to the broker, and the broker answers.
    pub(super) fn works(&self) -> bool {
        self.client.is_some() && self.up.written >= WORKS_BYTES && self.down.written >= STANDS_BYTES
    }

    /// A fault can begin on it.
    pub(super) fn stands(&self) -> bool {
        let carried = self.up.written >= STANDS_BYTES && self.down.written >= STANDS_BYTES;
        carried && self.trouble.is_none() && self.ordered.is_none() && self.client.is_some() && self.broker.is_some()
    }

    /// What is to be waited for: for each socket, to read, to write.
    pub(super) fn wants(&self, now: u64) -> [(Option<&TcpStream>, bool, bool); 2] {
        [
            (self.client.as_ref(), self.up.reads(), self.down.writable(now) > 0),
            (self.broker.as_ref(), self.down.reads(), self.up.writable(now) > 0),
        ]
    }

    /// When it must be looked at even if nothing happens.
    pub(super) fn next_deadline(&self, now: u64) -> Option<u64> {
        let until = self.trouble.as_ref().map(|trouble| trouble.until);
        [until, self.farewell, self.up.next_due(now), self.down.next_due(now)].into_iter().flatten().min()
    }

    /// A fault begins.
    pub(super) fn begin(&mut self, fault: Fault, reply: Sender<Felt>, now: u64) {
        let mut until = now + fault.time.as_nanos() as u64;
        let late = fault.late.as_nanos() as u64;
        let mut stage = Stage::Lasts;
        match fault.kind {
            Kind::Blackhole(way) => self.pipe(way).flow = Flow::Held,
            Kind::Reset => until = now,
            Kind::HalfOpenClient | Kind::HalfOpenBroker => {
                (self.up.flow, self.down.flow) = (Flow::Held, Flow::Held);
                reset(if fault.kind == Kind::HalfOpenClient { &mut self.broker } else { &mut self.client });
            }
            Kind::OldAlive => {
                self.up.flow = Flow::Gathered;
                (stage, until) = (Stage::Gathers, now + late);
            }
            Kind::OneByte => (self.up.flow, self.down.flow) = (Flow::Bytewise, Flow::Bytewise),
            Kind::Delay => (self.up.flow, self.down.flow) = (Flow::Late(late), Flow::Late(late)),
            Kind::Cut(way) => self.pipe(way).cut_frame = Some(fault.at),
        }
        (self.up.slowed, self.down.slowed) = (0, 0);
        self.trouble = Some(Trouble { fault, stage, until, reply });
    }

    fn pipe(&mut self, way: Way) -> &mut Pipe {
        match way {
            Way::ToBroker => &mut self.up,
            Way::ToClient => &mut self.down,
        }
    }

    /// Carries what can be carried, and what is due of a fault happens. `newer`: the client's next connection works.
    pub(super) fn step(&mut self, now: u64, newer: bool) {
        self.carry(now);
        if let Some(trouble) = self.trouble.take() {
            self.trouble = self.suffer(trouble, now, newer);
        }
        if self.ordered.as_ref().is_some_and(|ordered| self.limited(ordered.way).at_limit()) {
            let ordered = self.ordered.take().expect("looked at just now");
            self.cut(ordered.way, ordered.rude, now);
            let _ = ordered.reply.send(Felt { done: true, bytes: ordered.bytes });
        }
        self.end_if_done(now);
    }

    fn limited(&self, way: Way) -> &Pipe {
        if way == Way::ToBroker { &self.up } else { &self.down }
    }

    fn carry(&mut self, now: u64) {
        if let Some(client) = &self.client {
            self.up.read(client, now);
        }
        if let Some(broker) = &self.broker {
            self.down.read(broker, now);
            self.up.write(broker, now);
        }
        if let Some(client) = &self.client {
            self.down.write(client, now);
        }
    }

    /// A fault goes on; `None`: it is over.
    fn suffer(&mut self, mut trouble: Trouble, now: u64, newer: bool) -> Option<Trouble> {
        let Fault { kind, rude, .. } = trouble.fault;
        let late = now >= trouble.until;
        let felt = |done, bytes| Felt { done, bytes };
        let end = match (kind, trouble.stage) {
            (Kind::Cut(way), _) if self.limited(way).at_limit() => {
                let bytes = self.limited(way).written;
                self.cut(way, rude, now);
                felt(true, bytes)
            }
            (Kind::OldAlive, Stage::Gathers) if late => {
                // What it has sent until now is under way; it learns nothing more.
                if let Some(client) = &self.client {
                    self.up.read(client, now);
                }
                if self.up.held() == 0 || self.client.is_none() {
                    self.up.set_free();
                    felt(false, 0)
                } else {
                    // Without a reset it is ended in order, unless it has more to say.
                    if rude {
                        reset(&mut self.client)
                    } else {
                        self.client = None
                    }
                    self.up.source = Source::Ended;
                    self.down.flow = Flow::Dropped;
                    trouble.until = now + trouble.fault.time.as_nanos() as u64;
                    trouble.stage = Stage::Waits;
                    return Some(trouble);
                }
            }
            (Kind::OldAlive, Stage::Waits) if newer || late => {
                if !newer {
                    self.abort();
                    felt(false, 0)
                } else {
                    let before = self.up.written;
                    self.up.flow = Flow::Free;
                    trouble.until = now + FAREWELL_NS;
                    trouble.stage = Stage::Releases { before };
                    self.carry(now);
                    return Some(trouble);
                }
            }
            (Kind::OldAlive, Stage::Releases { before }) if late || self.up.is_done() => {
                let bytes = self.up.written - before;
                // It ends after that, as `end_if_done` says.
                if late {
                    self.abort()
                }
                felt(bytes > 0, bytes)
            }
            (Kind::OldAlive, _) => return Some(trouble),
            _ if !late && (self.client.is_some() || self.broker.is_some()) => return Some(trouble),
            (Kind::Blackhole(way), _) => {
                let bytes = self.withheld(way);
                if rude {
                    self.abort()
                } else {
                    self.pipe(way).set_free()
                }
                felt(bytes > 0, bytes)
            }
            (Kind::Reset, _) => {
                let bytes = self.withheld(Way::ToBroker) + self.withheld(Way::ToClient);
                self.abort();
                felt(true, bytes)
            }
            (Kind::HalfOpenClient | Kind::HalfOpenBroker, _) => {
                let way = if kind == Kind::HalfOpenClient { Way::ToBroker } else { Way::ToClient };
                let bytes = self.withheld(way);
                self.abort();
                felt(true, bytes)
            }
            (Kind::OneByte | Kind::Delay, _) => {
                let bytes = self.up.slowed + self.down.slowed;
                self.up.set_free();
                self.down.set_free();
                felt(bytes >= if kind == Kind::OneByte { ALONE_BYTES } else { 1 }, bytes)
            }
            (Kind::Cut(_), _) => {
                self.up.set_free();
                self.down.set_free();
                (self.up.limit, self.down.limit) = (None, None);
                felt(false, 0)
            }
        };
        let _ = trouble.reply.send(end);
        None
    }

    /// Bytes of a way that have come as far as here.
    fn withheld(&self, way: Way) -> u64 {
        let (pipe, source) = if way == Way::ToBroker { (&self.up, &self.client) } else { (&self.down, &self.broker) };
        let waiting = source.as_ref().and_then(|socket| ioctl_fionread(socket).ok()).unwrap_or(0);
        waiting + pipe.held() as u64
    }

    /// The end to which a way goes hears its end after what was written; the other one is reset.
    fn cut(&mut self, way: Way, rude: bool, now: u64) {
        let (near, far) = match way {
            Way::ToBroker => (&mut self.broker, &mut self.client),
            Way::ToClient => (&mut self.client, &mut self.broker),
        };
        reset(far);
        if rude {
            reset(near);
        } else if let Some(socket) = near {
            let _ = socket.shutdown(Shutdown::Write);
        }
        for pipe in [&mut self.up, &mut self.down] {
            pipe.forget();
            pipe.broken = true;
            pipe.flow = Flow::Dropped;
        }
        self.farewell = Some(now + FAREWELL_NS);
    }

    /// Both ends are reset, and what is held is gone.
    pub(super) fn abort(&mut self) {
        reset(&mut self.client);
        reset(&mut self.broker);
        self.over = true;
    }

    /// Passes ends on, and is over when nobody is left.
    fn end_if_done(&mut self, now: u64) {
        let was_reset = |pipe: &Pipe| pipe.source == Source::Reset;
        let silent = self.trouble.as_ref().is_some_and(|trouble| trouble.fault.kind != Kind::OldAlive);
        if silent && (self.up.flow == Flow::Held || self.down.flow == Flow::Held) {
            // News of an end is held back as well.
            return;
        }
        if self.farewell.is_some_and(|until| now >= until) {
            self.abort();
        }
        let (up, down) = (self.up.is_done(), self.down.is_done());
        if (up && (down || was_reset(&self.up))) || (down && was_reset(&self.down)) {
            // A reset end gets no answer any more.
            let rude = was_reset(&self.up) || was_reset(&self.down);
            if rude { self.abort() } else { self.over = true }
        } else if up || down {
            let to = if up { &self.broker } else { &self.client };
            match to {
                Some(socket) if self.farewell.is_none() => {
                    let _ = socket.shutdown(Shutdown::Write);
                    // One whose client is gone waits for nobody; otherwise the other side says when it is through.
                    if self.client.is_none() {
                        self.farewell = Some(now + FAREWELL_NS);
                    }
                }
                Some(_) => {}
                None => self.over = true,
            }
        }
        if self.client.is_none() && self.broker.is_none() {
            self.over = true;
        }
        if self.over {
            self.answer();
        }
    }

    /// Whoever waits for something that will not happen any more is told.
    fn answer(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            let slowed = self.up.slowed + self.down.slowed;
            let least = if trouble.fault.kind == Kind::OneByte { ALONE_BYTES } else { 1 };
            let done = matches!(trouble.fault.kind, Kind::OneByte | Kind::Delay) && slowed >= least;
            let _ = trouble.reply.send(Felt { done, bytes: slowed });
        }
        if let Some(ordered) = self.ordered.take() {
            let _ = ordered.reply.send(Felt::default());
        }
    }

    /// A fault ends before its time.
    pub(super) fn calm(&mut self, now: u64) {
        let Some(trouble) = &mut self.trouble else {
            if self.client.is_none() {
                self.abort();
            }
            return;
        };
        let stands = self.client.is_some() && self.broker.is_some();
        match trouble.fault.kind {
            Kind::Blackhole(_) | Kind::OneByte | Kind::Delay | Kind::Cut(_) if stands => {
                (trouble.fault.rude, trouble.until) = (false, now);
                // A cut that has not come does not come any more.
                (self.up.cut_frame, self.down.cut_frame) = (None, None);
                (self.up.limit, self.down.limit) = (None, None);
            }
            _ => self.abort(),
        }
        self.step(now, false);
    }
}

/// Closes a socket so that its peer is told with a reset.
pub(super) fn reset(socket: &mut Option<TcpStream>) {
    if let Some(socket) = socket.take() {
        // Where that cannot be set, it is an end instead.
        let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    }
}
