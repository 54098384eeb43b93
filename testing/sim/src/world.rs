//! The world: virtual time, machines with brokers, clients, and streams between them; one event after the other, in an order that the
//! seed alone decides.
//!
//! This file owns time and traffic. Faults are in `world/trouble.rs`, the way to the end in `world/phases.rs`.

mod operators;
mod phases;
mod power;
pub(crate) mod script;
mod trouble;

use crate::books::{Books, Judgment};
use crate::client::{Around, Person, Role, Stage};
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::draw::Draw;
use crate::fault::Kind;
use crate::host::Host;
use crate::message::Press;
use crate::net::{Net, Way};
use crate::plan::{Fault, Plan, Settings};
use crate::verdict::{Breach, Occurred, Totals, Verdict};
use operators::Operators;
use packhorse_broker::{Effect, Endpoint, Input, Lost, Reply};
use packhorse_journal::sim::Struck;
use packhorse_model::{ConnectionId, ShardId};
use phases::Phase;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use trouble::Spell;

/// Bytes that a broker takes in one turn, over all its connections.
const TURN_BYTES: usize = 256 << 10;

/// Between two looks at the whole.
const LOOK_US: u64 = 25_000;
/// The same in a script, which only measures.
const LOOK_OF_SCRIPT_US: u64 = 250_000;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Something arrives on a stream.
    Net(usize, bool),
    /// A broker's turn.
    Turn(usize),
    /// A disk has something to say.
    Disk(usize),
    /// A client wants to do something.
    Client(usize),
    /// The next fault of the plan.
    Fault,
    /// A broker is started.
    Start(usize),
    /// The end of a spell.
    Heal(usize),
    /// A look at the whole.
    Look,
    /// The next act of an operator.
    Operator,
    /// Limits of a broker's queues are taken away.
    Lift(usize),
    /// Only time passes.
    Nothing,
}

/// See the module.
pub(crate) struct World {
    now_us: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    order: u64,
    net: Net,
    hosts: Vec<Host>,
    people: Vec<Person>,
    books: Books,
    /// The book of what happens to brokers.
    book: usize,
    press: Press,
    digest: Digest,
    draw: Draw,
    seed: u64,
    phase: Phase,
    phase_since: u64,
    faults: Vec<Fault>,
    /// More of them, if these hit too little.
    reserve: Vec<Fault>,
    /// All of `reserve` is wanted, however much was hit: somebody has chosen.
    chosen: bool,
    /// What was carried out.
    told: Vec<Occurred>,
    operators: Operators,
    /// How often the next fault has been put off.
    put_off: u32,
    spells: Vec<Spell>,
    /// Faults of streams that last until both ends have noticed.
    noticed: BTreeMap<usize, Vec<String>>,
    /// Troubles that a disk may meet: which fault each is of.
    planted: BTreeMap<u64, (usize, Kind)>,
    /// Those of disks that were broken and have been replaced.
    replaced: BTreeSet<u64>,
    replies: Vec<(u64, Reply)>,
    asked: u64,
    struck: Vec<Struck>,
    wakes: Vec<ShardId>,
    effects: Vec<(ShardId, Effect)>,
    hits: [u64; Kind::COUNT],
    coverage: Coverage,
    wrong: Vec<String>,
    breaches: Vec<Breach>,
    /// Codes with which brokers have ended by themselves.
    exits: Vec<i32>,
    turns: u64,
    steps: u64,
    notes: Option<Vec<(u64, String)>>,
}

/// Runs the world of these settings to its end.
pub fn run(settings: &Settings) -> Verdict {
    World::new(settings).run()
}

impl World {
    fn new(settings: &Settings) -> World {
        World::of(settings, Plan::draw(settings))
    }

    fn of(settings: &Settings, plan: Plan) -> World {
        let Plan { hosts, cast, faults, reserve, acts } = plan;
        let mut books = Books::new();
        books.contents.limit = hosts.first().map_or(0, |setup| setup.delivery_limit);
        let book = books.open("world".into());
        let hosts: Vec<Host> =
            hosts.into_iter().enumerate().map(|(number, setup)| Host::new(number, settings.seed, setup)).collect();
        let mut world = World {
            now_us: 0,
            heap: BinaryHeap::new(),
            order: 0,
            net: Net::new(settings.seed),
            hosts,
            people: Vec::new(),
            books,
            book,
            press: Press::default(),
            digest: Digest::new(),
            draw: Draw::new(settings.seed, 4),
            seed: settings.seed,
            phase: Phase::Work,
            phase_since: 0,
            faults,
            reserve,
            chosen: settings.faults.is_some(),
            told: Vec::new(),
            operators: Operators::new(acts),
            put_off: 0,
            spells: Vec::new(),
            noticed: BTreeMap::new(),
            planted: BTreeMap::new(),
            replaced: BTreeSet::new(),
            replies: Vec::new(),
            asked: 0,
            struck: Vec::new(),
            wakes: Vec::new(),
            effects: Vec::new(),
            hits: [0; Kind::COUNT],
            coverage: Coverage::begin(),
            wrong: Vec::new(),
            breaches: Vec::new(),
            exits: Vec::new(),
            turns: 0,
            steps: 0,
            notes: settings.notes.then(Vec::new),
        };
        world.tell_whose_queues();
        for host in 0..world.hosts.len() {
            world.at(0, Due::Start(host));
        }
        for one in cast {
            world.join(one.host, one.role, one.connects_at);
        }
        world.at(LOOK_US, Due::Look);
        world.arm_fault();
        world.arm_operators();
        world
    }

    /// A client joins.
    fn join(&mut self, host: usize, role: Role, connects_at: u64) {
        let number = self.people.len();
        let book = self.books.open(format!("client-{number}"));
        self.people.push(Person::new(self.seed, number, book, host, role, connects_at));
        self.alarm(number);
    }

    fn at(&mut self, at_us: u64, due: Due) {
        self.order += 1;
        self.heap.push(Reverse((at_us.max(self.now_us), self.order, due)));
    }

    fn run(mut self) -> Verdict {
        while self.step_on() {}
        self.verdict()
    }

    /// The next thing happens. False: the world is at its end.
    fn step_on(&mut self) -> bool {
        if self.phase != Phase::Done
            && let Some(Reverse((at, _, due))) = self.heap.pop()
        {
            self.now_us = at;
            self.books.set_now(at);
            self.steps += 1;
            match due {
                Due::Net(stream, to_client) => {
                    self.arrive(stream, if to_client { Way::ToClient } else { Way::ToBroker })
                }
                Due::Turn(host) => {
                    if self.hosts[host].life.as_ref().is_some_and(|life| life.turn_at == Some(at) && !life.paused) {
                        self.turn(host);
                    }
                }
                Due::Disk(host) => {
                    if self.hosts[host].life.as_ref().is_some_and(|life| life.disk_at == Some(at)) {
                        self.advance(host);
                    }
                }
                Due::Client(client) => {
                    if self.people[client].alarm_at == Some(at) {
                        self.people[client].alarm_at = None;
                        self.step(client);
                    }
                }
                Due::Fault => self.next_fault(),
                Due::Start(host) => self.start(host),
                Due::Heal(spell) => self.heal(spell),
                Due::Operator => self.next_act(),
                Due::Lift(host) => self.lift(host),
                Due::Nothing => {}
                Due::Look => {
                    self.look();
                    let us = if self.phase == Phase::Script { LOOK_OF_SCRIPT_US } else { LOOK_US };
                    self.at(self.now_us + us, Due::Look);
                }
            }
            return true;
        }
        false
    }

    fn verdict(mut self) -> Verdict {
        for host in &self.hosts {
            let Some(life) = &host.life else { continue };
            for shard in 0..host.setup.shards {
                if let Err(why) = life.node.shard(ShardId(shard)).audit() {
                    self.breaches.push(Breach::new("audit", format!("{} shard {shard}: {why}", host.name)));
                }
            }
        }
        for what in std::mem::take(&mut self.books.contents.wrong) {
            self.breaches.push(Breach::new("I10", what));
        }
        for what in std::mem::take(&mut self.wrong) {
            self.breaches.push(Breach::new("protocol", what));
        }
        self.digest.number(self.now_us);
        self.coverage.credit();
        let totals = Totals {
            events: self.books.events,
            sent: self.books.sent,
            confirmed: self.books.confirmed,
            received: self.books.received,
            acknowledged: self.books.acknowledged,
            dead_letters: self.books.dead_letters,
            starts: self.hosts.iter().map(|host| u64::from(host.starts)).sum(),
            connections: self.net.count() as u64,
            turns: self.turns,
            steps: self.steps,
            virtual_us: self.now_us,
        };
        let Judgment { report, files } = self.books.judge(self.hosts.len(), &mut self.digest);
        match report {
            Ok(report) => {
                let told = report.violations().iter();
                self.breaches.extend(told.map(|one| Breach::new(one.invariant.code(), one.to_string())));
            }
            Err(error) => self.breaches.push(Breach::new("history", error)),
        }
        let (digest, breaches, hits, coverage) = (self.digest.value(), self.breaches, self.hits, self.coverage);
        let notes = self.notes.unwrap_or_default();
        Verdict { digest, totals, breaches, hits, coverage, faults: self.told, files, notes }
    }

    fn note(&mut self, what: impl FnOnce(&World) -> String) {
        if self.notes.is_some() {
            let (at, text) = (self.now_us, what(self));
            self.notes.get_or_insert_default().push((at, text));
        }
    }

    // ---- streams ----

    fn arm_net(&mut self, at: Option<u64>, stream: usize, way: Way) {
        if let Some(at) = at {
            self.at(at, Due::Net(stream, way == Way::ToClient));
        }
    }

    fn arrive(&mut self, stream: usize, way: Way) {
        let (next, some) = self.net.arrive(self.now_us, stream, way);
        self.arm_net(next, stream, way);
        if !some {
            return;
        }
        let (client, host, life, left) = {
            let one = self.net.get(stream);
            (one.client, one.host, one.life, one.left)
        };
        match way {
            Way::ToBroker => {
                if self.net.get(stream).forgotten || self.hosts[host].starts != life {
                    self.net.read(stream, way);
                } else if let Some(life) = &mut self.hosts[host].life {
                    life.ready.push(stream);
                    self.want_turn(host, 4);
                }
            }
            Way::ToClient if !left && self.people[client].stream == Some(stream) => self.step(client),
            Way::ToClient => {
                self.net.read(stream, way);
            }
        }
    }

    // ---- brokers ----

    fn want_turn(&mut self, host: usize, in_us: u64) {
        let at = self.now_us + in_us;
        if let Some(life) = &mut self.hosts[host].life
            && life.turn_at.is_none_or(|known| known > at)
        {
            life.turn_at = Some(at);
            self.at(at, Due::Turn(host));
        }
    }

    /// Moves a disk on, and sets the next times of its broker.
    fn advance(&mut self, host: usize) {
        let mut wakes = std::mem::take(&mut self.wakes);
        if self.hosts[host].advance(self.now_us, &mut wakes) {
            self.want_turn(host, 2);
        }
        self.wakes = wakes;
        self.look_for_struck(host);
        let next = self.hosts[host].disk_next();
        if let Some(life) = &mut self.hosts[host].life
            && life.disk_at != next
        {
            life.disk_at = next;
            if let Some(at) = next {
                self.at(at, Due::Disk(host));
            }
        }
        if let Some(at) = self.hosts[host].turn_next() {
            self.want_turn(host, at.saturating_sub(self.now_us).max(1));
        }
    }

    /// A broker's turn: everything that has come is handed in, everything that it says is sent.
    fn turn(&mut self, host: usize) {
        self.turns += 1;
        self.hosts[host].catch_up(self.now_us);
        let now = self.hosts[host].now(self.now_us);
        let mut effects = std::mem::take(&mut self.effects);
        let mut read = Vec::new();
        let mut later = Vec::new();
        {
            let Host { life, starts, .. } = &mut self.hosts[host];
            let Some(life) = life else { return };
            life.turn_at = None;
            let ready = std::mem::take(&mut life.ready);
            let mut inputs: Vec<(ShardId, Input<'_>)> = Vec::with_capacity(ready.len());
            let mut bytes = 0;
            for stream in ready {
                let one = self.net.get(stream);
                if one.forgotten || one.life != *starts || read.contains(&stream) {
                    continue;
                }
                if bytes >= TURN_BYTES {
                    later.push(stream);
                    continue;
                }
                let (shard, connection) = (ShardId(one.shard), ConnectionId(stream as u64));
                if !one.accepted {
                    let endpoint =
                        Endpoint { peer: format!("client:{}", one.client), local: "sim:0".into(), loopback: true };
                    inputs.push((shard, Input::Accepted { connection, endpoint }));
                }
                read.push(stream);
                if one.stopped {
                    continue;
                }
                let inbox = self.net.inbox(stream, Way::ToBroker);
                bytes += inbox.len();
                if !inbox.is_empty() {
                    self.digest.number(self.now_us << 20 | stream as u64);
                    self.digest.add(inbox);
                    inputs.push((shard, Input::Received { connection, bytes: inbox }));
                }
                if self.net.is_ended(stream, Way::ToBroker) {
                    inputs.push((shard, Input::Lost { connection, how: Lost::Eof }));
                }
            }
            for (shard, id, command) in std::mem::take(&mut life.commands) {
                inputs.push((shard, Input::Admin { id, command }));
                self.operators.asking.push(id);
            }
            life.node.turn(inputs, now, &mut effects);
            life.ready.extend(&later);
        }
        for stream in read {
            let one = self.net.get_mut(stream);
            one.accepted = true;
            if one.stopped {
                continue;
            }
            if self.net.is_ended(stream, Way::ToBroker) {
                self.forget(stream);
                // Whoever reads the end of a stream closes it.
                let at = self.net.end(self.now_us, stream, Way::ToClient);
                self.arm_net(at, stream, Way::ToClient);
            }
            if self.net.read(stream, Way::ToBroker) {
                let client = self.net.get(stream).client;
                self.alarm_now(client);
            }
        }
        self.obey(host, &mut effects);
        self.operators.asking.clear();
        effects.clear();
        self.effects = effects;
        if !later.is_empty() {
            self.want_turn(host, 1);
        }
        self.advance(host);
    }

    fn obey(&mut self, host: usize, effects: &mut Vec<(ShardId, Effect)>) {
        if let Some(death) = self.hosts[host].seam.take_over() {
            self.die(host, death);
            return;
        }
        if let Some(what) = effects.iter().find_map(|(_, effect)| match effect {
            Effect::StoreFailed { what } => Some(what.clone()),
            _ => None,
        }) {
            // The process ends before it says another word.
            self.exit_failed(host, &what);
            return;
        }
        for (shard, effect) in effects.drain(..) {
            match effect {
                Effect::Output { connection } => self.write(host, shard, connection.0 as usize),
                Effect::Close { connection } => {
                    let stream = connection.0 as usize;
                    self.net.get_mut(stream).closing = true;
                    self.write(host, shard, stream);
                }
                Effect::Reading { connection, paused } => {
                    let stream = connection.0 as usize;
                    self.net.get_mut(stream).stopped = paused;
                    if !paused && let Some(life) = &mut self.hosts[host].life {
                        life.ready.push(stream);
                        self.want_turn(host, 1);
                    }
                }
                Effect::AdminReply { id, reply } => {
                    if !self.operator_answered(id, &reply) {
                        self.replies.push((id, *reply));
                    }
                }
                Effect::Stopped => self.stopped(host),
                Effect::Log { level, connection, text } => self.note(|world| {
                    let client = connection.map_or("-".into(), |id| world.net.get(id.0 as usize).client.to_string());
                    format!("{} shard {} {level:?}, client {client}: {text}", world.hosts[host].name, shard.0)
                }),
                Effect::StoreFailed { .. } | Effect::Mail { .. } => {}
            }
        }
    }

    /// Writes what a broker has to say on a connection, as far as there is room.
    fn write(&mut self, host: usize, shard: ShardId, stream: usize) {
        if self.net.get(stream).forgotten || self.net.get(stream).life != self.hosts[host].starts {
            return;
        }
        let closing = self.net.get(stream).closing;
        // What is left at a close is written however little the peer reads: a real socket would give up in the end.
        let room = if closing { usize::MAX } else { self.net.room(stream, Way::ToClient) };
        let mut bytes = self.net.buffer();
        let Some(life) = &mut self.hosts[host].life else { return };
        let node = life.node.shard_mut(shard);
        let connection = ConnectionId(stream as u64);
        let mut more = false;
        for chunk in node.output(connection) {
            let n = chunk.len().min(room.saturating_sub(bytes.len()));
            bytes.extend_from_slice(&chunk[..n]);
            if n < chunk.len() {
                more = true;
                break;
            }
        }
        if !bytes.is_empty() {
            node.written(connection, bytes.len());
        }
        self.digest.number(self.now_us << 20 | stream as u64);
        self.digest.add(&bytes);
        let at = self.net.send(self.now_us, stream, Way::ToClient, bytes);
        self.arm_net(at, stream, Way::ToClient);
        if more {
            self.net.wait(stream, Way::ToClient);
        }
        if closing {
            let at = self.net.end(self.now_us, stream, Way::ToClient);
            self.arm_net(at, stream, Way::ToClient);
            self.forget(stream);
        }
        if let Some(at) = self.hosts[host].turn_next() {
            self.want_turn(host, at.saturating_sub(self.now_us).max(1));
        }
    }

    /// The broker does not know a stream any more.
    fn forget(&mut self, stream: usize) {
        self.net.get_mut(stream).forgotten = true;
        self.notice(stream);
    }

    /// Ends what lasts until both ends of a stream have noticed, if they have.
    fn notice(&mut self, stream: usize) {
        let one = self.net.get(stream);
        if !(one.forgotten && one.left) {
            return;
        }
        let host = one.host;
        for name in self.noticed.remove(&stream).unwrap_or_default() {
            self.tell_fault(&name, host, false);
        }
    }

    // ---- clients ----

    /// When a client is to be looked after.
    fn alarm(&mut self, client: usize) {
        let person = &mut self.people[client];
        let Some(at) = person.next_at(self.now_us) else { return };
        let at = at.max(self.now_us + 1);
        if person.alarm_at.is_none_or(|known| known > at) {
            person.alarm_at = Some(at);
            self.at(at, Due::Client(client));
        }
    }

    fn alarm_now(&mut self, client: usize) {
        let at = self.now_us + 1;
        if self.people[client].alarm_at.is_none_or(|known| known > at) {
            self.people[client].alarm_at = Some(at);
            self.at(at, Due::Client(client));
        }
    }

    /// A client reads, acts and writes.
    fn step(&mut self, client: usize) {
        if self.people[client].stage == Stage::Gone {
            return;
        }
        if self.people[client].line.is_none() {
            self.connect(client);
        }
        let World { now_us, net, people, books, press, wrong, .. } = self;
        let person = &mut people[client];
        let mut around = Around { now_us: *now_us, books, book: person.book, press, wrong };
        let (mut over, mut wake_broker) = (None, false);
        if let Some(stream) = person.stream
            && person.asleep_until <= *now_us
        {
            let bytes = net.inbox(stream, Way::ToClient);
            if !bytes.is_empty() {
                if let Err(why) = person.receive(bytes, &mut around) {
                    over = Some(why);
                }
                wake_broker = net.read(stream, Way::ToClient);
            }
            if over.is_none() && net.is_ended(stream, Way::ToClient) {
                over = Some("the stream has ended".into());
            }
        }
        if over.is_none()
            && let Err(why) = person.act(&mut around)
        {
            over = Some(why);
        }
        let stream = person.stream;
        if let (Some(line), Some(stream)) = (&mut person.line, stream) {
            let room = net.room(stream, Way::ToBroker);
            let mut bytes = net.buffer();
            let mut more = false;
            for chunk in line.client.output() {
                let n = chunk.len().min(room.saturating_sub(bytes.len()));
                bytes.extend_from_slice(&chunk[..n]);
                if n < chunk.len() {
                    more = true;
                    break;
                }
            }
            line.client.written(bytes.len());
            if more {
                net.wait(stream, Way::ToBroker);
            } else {
                bytes.append(&mut line.raw);
            }
            let at = net.send(*now_us, stream, Way::ToBroker, bytes);
            if !more && line.client.wants_close() {
                over = over.or(Some("closed".into()));
            }
            self.arm_net(at, stream, Way::ToBroker);
        }
        if let Some(stream) = stream {
            if wake_broker {
                let (host, shard) = (self.net.get(stream).host, self.net.get(stream).shard);
                if self.hosts[host].is_running() {
                    self.write(host, ShardId(shard), stream);
                } else if let Some(life) = &mut self.hosts[host].life {
                    life.unwritten.push(stream);
                }
            }
            if let Some(why) = over {
                self.note(|_| format!("client {client} ends its connection: {why}"));
                self.hang_up(client, stream);
            }
        }
        self.alarm(client);
    }

    /// A client closes its stream, or has found it closed.
    fn hang_up(&mut self, client: usize, stream: usize) {
        let at = self.net.end(self.now_us, stream, Way::ToBroker);
        self.arm_net(at, stream, Way::ToBroker);
        self.leave(client, stream);
    }

    /// A client does not know a stream any more.
    fn leave(&mut self, client: usize, stream: usize) {
        self.net.get_mut(stream).left = true;
        self.net.read(stream, Way::ToClient);
        let World { now_us, people, books, press, wrong, .. } = self;
        let person = &mut people[client];
        let mut around = Around { now_us: *now_us, books, book: person.book, press, wrong };
        person.lost(&mut around);
        self.notice(stream);
    }

    fn connect(&mut self, client: usize) {
        let person = &mut self.people[client];
        let due = person.connects_at.is_some_and(|at| at <= self.now_us);
        if !due {
            return;
        }
        let host = person.host;
        if !self.hosts[host].is_up() || self.hosts[host].life.as_ref().is_some_and(|life| life.stopping.is_some()) {
            // Refused.
            person.connects_at = Some(self.now_us + self.draw.range(5_000, 60_000));
            return;
        }
        let shard = (self.net.count() % usize::from(self.hosts[host].setup.shards)) as u16;
        let stream = self.net.open(client, host, shard, self.hosts[host].starts);
        person.connect(self.now_us, stream);
        if let Some(life) = &mut self.hosts[host].life {
            life.ready.push(stream);
        }
        self.want_turn(host, 30);
    }

    /// Messages without a confirm and deliveries without an end, at clients of a broker.
    fn in_flight(&self, host: usize) -> u64 {
        self.people.iter().filter(|person| person.host == host).map(Person::in_flight).sum()
    }
}
