//! A world that a script leads: one broker, clients that do as they are told, faults at exact places. It is the same world as a drawn
//! one, with the same machine, streams, disk, books and judgment; only what happens is written down instead of drawn. Delays, pieces,
//! times of the disk and settings of the broker still come from the seed, so a script is to hold for every seed.
//!
//! Owns the words of scripts. Must not know any one scenario.

mod branches;

use super::power::End;
use super::{Due, Phase, World};
use crate::client::{Got, Order, Queue, Role, Scripted, Stage, Use};
use crate::damage;
use crate::draw::Draw;
use crate::fault;
use crate::host::Setup;
use crate::message::Shape;
use crate::net::Way;
use crate::plan::{Cast, Plan, Settings};
use crate::seam::{Death, Kind, Point};
use crate::verdict::Verdict;
pub use branches::{Branch, Control, Heard};
use packhorse_broker::{Command, QueuePatch, QueueReport, Reply, ShardReport};
use packhorse_client_core::{Decision, Verdict as Outcome};
use packhorse_history::Event;
use packhorse_journal::DiskOp;
use packhorse_journal::sim::{CrashMode, Effect, Trouble, Verb, When};
use packhorse_model::ShardId;
use packhorse_store::Store;

/// The machine of a script.
const HOST: usize = 0;

/// By kill -9.
const KILLED: End = End::Process(CrashMode::Kill);

/// Virtual time within which what a script waits for has to come.
const PATIENCE_US: u64 = 60_000_000;

/// Nothing happens for so long: what is under way is through.
const REST_US: u64 = 3_000;

/// A client of a script, over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who(usize);

/// A producing link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    who: Who,
    out: usize,
}

/// A consuming link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    who: Who,
    input: usize,
}

/// See the module.
pub struct Script {
    world: World,
    shards: u16,
    dice: Draw,
    dead_letters: Queue,
    /// What managers of branches were answered.
    log: branches::Log,
    /// Of operators, so far.
    operations: u64,
}

impl Script {
    /// A broker with so many shards on an empty disk, which runs. It is judged for these queues.
    pub fn new(seed: u64, shards: u16, queues: &[&str]) -> Script {
        Script::with_checkpoints(seed, shards, queues, None)
    }

    /// The same; a checkpoint is due every so many µs.
    pub fn with_checkpoints(seed: u64, shards: u16, queues: &[&str], every_us: Option<u64>) -> Script {
        let mut setup = Setup::draw(&mut Draw::new(seed, 2), shards);
        setup.queues = queues.iter().map(|name| (*name).to_owned()).collect();
        setup.checkpoint_us = every_us.unwrap_or(setup.checkpoint_us);
        let settings = Settings { shards: Some(shards), notes: true, ..Settings::new(seed) };
        let plan = Plan {
            hosts: vec![setup],
            cast: Vec::<Cast>::new(),
            faults: Vec::new(),
            reserve: Vec::new(),
            acts: Vec::new(),
        };
        let mut world = World::of(&settings, plan);
        world.phase = Phase::Script;
        let dice = Draw::new(seed, 6);
        let (dead_letters, log) = (Queue::new(HOST, "DLQ"), branches::Log::default());
        let mut script = Script { world, shards, dice, dead_letters, log, operations: 0 };
        script.until("the broker runs", |script| script.is_running());
        script
    }

    // ---- time ----

    /// The next thing happens.
    pub fn step(&mut self) {
        if !self.world.step_on() {
            self.give_up("nothing happens any more");
        }
        let host = &mut self.world.hosts[HOST];
        if host.is_up() && host.with_disk(|disk| disk.crashed()) {
            let death = host.seam.take_then().expect("the power goes because somebody said how");
            self.world.die(HOST, death);
        }
    }

    /// Until something is so.
    ///
    /// # Panics
    /// If it does not come to be so within a minute of virtual time.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&mut Script) -> bool) {
        let since = self.world.now_us;
        while !so(self) {
            if self.world.now_us > since + PATIENCE_US {
                self.give_up(what);
            }
            self.step();
        }
    }

    /// For so many µs.
    pub fn wait(&mut self, us: u64) {
        let until = self.world.now_us + us;
        self.world.at(until, Due::Nothing);
        while self.world.now_us < until {
            self.step();
        }
    }

    /// Until nothing is under way: no order, no byte, no batch, no answer.
    pub fn rest(&mut self) {
        let mut since: Option<(u64, u64)> = None;
        self.until("nothing is under way", |script| {
            let Some(staged) = script.still() else {
                since = None;
                return false;
            };
            let now = script.world.now_us;
            // What is staged for long is so in a transaction.
            if since.is_none_or(|(_, before)| before != staged) {
                script.world.at(now + REST_US, Due::Nothing);
                since = Some((now, staged));
            }
            since.is_some_and(|(since, _)| now >= since + REST_US)
        });
    }

    /// If nothing is under way as far as one can see: how much is staged.
    fn still(&mut self) -> Option<u64> {
        let World { hosts, people, net, .. } = &self.world;
        let life = hosts[HOST].life.as_ref()?;
        let idle = |stream: usize| {
            let one = net.get(stream);
            let ways = [(Way::ToBroker, one.forgotten), (Way::ToClient, one.left)];
            ways.into_iter().all(|(way, gone)| gone || net.is_idle(stream, way))
        };
        let answered = people.iter().all(|person| match (&person.role, person.stage) {
            (_, Stage::Gone) => true,
            (Role::Script(scripted), _) => {
                let said = person.line.as_ref().is_some_and(|line| line.client.output_len() == 0);
                said && scripted.is_answered()
            }
            _ => false,
        });
        let staged = |shard| life.node.shard(ShardId(shard)).totals().staged;
        let still = !life.paused && answered && life.ready.is_empty() && life.sim.quiet() && (0..net.count()).all(idle);
        still.then(|| (0..self.shards).map(staged).sum())
    }

    fn give_up(&mut self, what: &str) -> ! {
        let left = self.world.left();
        let notes = self.world.notes.iter().flatten().rev().take(12);
        let notes: Vec<String> = notes.map(|(at, note)| format!("{at} {note}")).collect();
        let (seed, shards) = (self.world.seed, self.shards);
        panic!("seed {seed}, {shards} shards, {} µs: {what}: {left}\nlast notes: {notes:#?}", self.world.now_us)
    }

    // ---- clients ----

    /// A client that connects.
    pub fn client(&mut self) -> Who {
        let number = self.world.people.len();
        let role = Role::Script(Scripted::new(Draw::new(self.world.seed, 1_000 + number as u64), None));
        let at = self.world.now_us + 1;
        self.world.join(HOST, role, at);
        Who(number)
    }

    /// A producing link of a client.
    pub fn producer(&mut self, who: Who, queue: &str) -> Sender {
        let out = self.orders(who, |order| matches!(order, Order::Produce(_))) + self.scripted(who).outcomes.len();
        self.order(who, Order::Produce(Queue::new(HOST, queue)));
        Sender { who, out }
    }

    /// A consuming link of a client with its first credit; it wants answers to ends of deliveries.
    pub fn consumer(&mut self, who: Who, queue: &str, credit: u32) -> Receiver {
        self.attach(who, queue, credit, true)
    }

    /// One that wants no answers.
    pub fn careless_consumer(&mut self, who: Who, queue: &str, credit: u32) -> Receiver {
        self.attach(who, queue, credit, false)
    }

    fn attach(&mut self, who: Who, queue: &str, credit: u32, careful: bool) -> Receiver {
        let input = self.orders(who, |order| matches!(order, Order::Consume { .. })) + self.scripted(who).got.len();
        let purpose = if queue == self.dead_letters.name { Use::DeadLetters } else { Use::Consume };
        self.order(who, Order::Consume { queue: Queue::new(HOST, queue), purpose, credit, careful });
        Receiver { who, input }
    }

    /// Sends so many ordinary messages.
    pub fn send(&mut self, sender: Sender, count: u64) {
        for _ in 0..count {
            self.send_shaped(sender, Shape::default());
        }
    }

    /// Sends a message of this shape.
    pub fn send_shaped(&mut self, sender: Sender, shape: Shape) {
        self.order(sender.who, Order::Send { out: sender.out, shape, tx: None });
    }

    /// Sets the credit of a link: so many more may come.
    pub fn grant(&mut self, receiver: Receiver, credit: u32) {
        self.order(receiver.who, Order::Grant { input: receiver.input, credit });
    }

    /// Ends a delivery.
    pub fn decide(&mut self, receiver: Receiver, delivery: u32, verdict: Outcome<'static>) {
        self.order(receiver.who, Order::Decide { input: receiver.input, delivery, verdict, tx: None });
    }

    /// Says of a delivery, whether it is there or not, that it is accepted or given back.
    pub fn claim(&mut self, who: Who, delivery: u32, accept: bool) {
        self.order(who, Order::Claim { delivery, accept, tx: None });
    }

    /// Ends a link in order.
    pub fn detach(&mut self, receiver: Receiver) {
        self.order(receiver.who, Order::Detach { input: receiver.input });
    }

    /// Ends the session of a client in order.
    pub fn end_session(&mut self, who: Who) {
        self.order(who, Order::EndSession);
    }

    /// Closes the connection of a client in order.
    pub fn close(&mut self, who: Who) {
        self.order(who, Order::Close);
    }

    /// The client's process is gone; what it has sent arrives.
    pub fn kill_client(&mut self, who: Who) {
        if let Some(stream) = self.world.people[who.0].stream {
            self.world.hang_up(who.0, stream);
        }
    }

    /// The connection is cut: what is on its way is lost, and both sides know.
    pub fn cut(&mut self, who: Who) {
        if let Some(stream) = self.world.people[who.0].stream {
            let now = self.world.now_us;
            let [to_broker, to_client] = self.world.net.cut(now, stream);
            self.world.arm_net(to_broker, stream, Way::ToBroker);
            self.world.arm_net(to_client, stream, Way::ToClient);
        }
    }

    /// The client is gone without a word: what it has sent arrives, and the broker believes in its connection until it finds the silence
    /// too long.
    pub fn vanish(&mut self, who: Who) {
        if let Some(stream) = self.world.people[who.0].stream {
            self.world.net.vanish(stream, Way::ToClient, false);
            self.world.leave(who.0, stream);
        }
    }

    /// The next bytes of a client come one by one.
    pub fn single(&mut self, who: Who, bytes: usize) {
        if let Some(stream) = self.world.people[who.0].stream {
            self.world.net.single(stream, bytes);
        }
    }

    fn scripted(&self, who: Who) -> &Scripted {
        match &self.world.people[who.0].role {
            Role::Script(scripted) => scripted,
            _ => unreachable!("a client of a script"),
        }
    }

    fn orders(&self, who: Who, of: impl Fn(&Order) -> bool) -> usize {
        self.scripted(who).orders.iter().filter(|order| of(order)).count()
    }

    fn order(&mut self, who: Who, order: Order) {
        if let Role::Script(scripted) = &mut self.world.people[who.0].role {
            scripted.orders.push_back(order);
        }
        self.world.alarm_now(who.0);
    }

    // ---- what clients saw ----

    /// Everything that came on a link, in order.
    pub fn got(&self, receiver: Receiver) -> &[Got] {
        self.scripted(receiver.who).got.get(receiver.input).map_or(&[], Vec::as_slice)
    }

    /// Everything that came on a link since the `from`-th, when `count` have come since then.
    pub fn receive(&mut self, receiver: Receiver, from: usize, count: usize) -> Vec<Got> {
        self.until("deliveries come", |script| script.got(receiver).len() >= from + count);
        self.got(receiver)[from..].to_vec()
    }

    /// The messages of a link that the broker has taken.
    pub fn confirmed(&self, sender: Sender) -> Vec<u64> {
        let outcomes = self.scripted(sender.who).outcomes.get(sender.out);
        let taken = outcomes.into_iter().flatten().filter(|(_, decision)| **decision == Decision::Accepted);
        taken.map(|(number, _)| *number).collect()
    }

    /// Whether a client is there still.
    pub fn is_there(&self, who: Who) -> bool {
        self.world.people[who.0].stage != Stage::Gone
    }

    // ---- the broker ----

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.world.hosts[HOST].is_running()
    }

    /// Starts so far.
    pub fn starts(&self) -> u32 {
        self.world.hosts[HOST].starts
    }

    /// The codes with which it has ended by itself.
    pub fn exits(&self) -> Vec<i32> {
        self.world.exits.clone()
    }

    /// Of a queue, what the broker reports.
    pub fn queue(&mut self, name: &str) -> Option<QueueReport> {
        self.world.queue(HOST, name)
    }

    /// Of every shard, what it reports.
    pub fn reports(&mut self) -> Vec<ShardReport> {
        self.world.reports(HOST)
    }

    /// Creates a queue with a limit of deliveries.
    pub fn create(&mut self, name: &str, max_deliveries: u32) {
        let patch = QueuePatch { max_deliveries: Some(max_deliveries), ..QueuePatch::default() };
        let command = Command::QueuePut { name: name.to_owned(), patch };
        let reply = self.operate(command);
        assert!(matches!(reply, Some(Reply::Created { .. })), "{reply:?}");
    }

    /// What the broker logged, and why it was refused a start.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.world.notes.iter().flatten().map(|(_, note)| note.as_str())
    }

    /// The last block that anybody was told of.
    pub fn durable_block(&self) -> u64 {
        let life = self.world.hosts[HOST].life.as_ref().expect("the broker runs");
        life.node.shard(ShardId(0)).store().status().durable_block
    }

    // ---- faults ----

    /// The process ends when such a batch is so far, for the `passes`-th time (from 1) from now on, over all its lives.
    pub fn arm(&mut self, kind: Kind, point: Point, passes: u64, death: Death) {
        self.world.hosts[HOST].seam.arm(kind, point, passes, death);
    }

    /// Whether that end is still to come.
    pub fn is_armed(&self) -> bool {
        self.world.hosts[HOST].seam.is_armed()
    }

    /// The power goes at the `n`-th of the operations of the disk from now on that fit.
    pub fn arm_disk(&mut self, fits: fn(&DiskOp) -> bool, n: u64, when: When, death: Death) {
        let host = &mut self.world.hosts[HOST];
        host.seam.at_the_disk(death);
        host.with_disk(|disk| disk.crash_on(fits, n, when));
    }

    /// What is still to come does not.
    pub fn disarm(&mut self) {
        self.world.hosts[HOST].seam.disarm();
        self.world.hosts[HOST].with_disk(|disk| disk.crash_never());
    }

    /// The next operation of a kind fails; the process is right to end for it.
    pub fn trouble(&mut self, verb: Verb, effect: Effect) {
        let id = self.world.planted.len() as u64;
        self.world.planted.insert(id, (HOST, fault::Kind::SyncError));
        self.world.hosts[HOST].with_disk(|disk| disk.plant_trouble(Trouble { id, verb, effect, times: 1 }));
    }

    /// The process ends now, and is started again.
    pub fn kill(&mut self, death: Death) {
        self.world.die(HOST, death);
    }

    /// It ends again, at the `n`-th operation of the disk of its next start; the process is down.
    pub fn kill_start(&mut self, n: u64, when: When, death: Death) {
        let host = &mut self.world.hosts[HOST];
        host.seam.at_the_disk(death);
        host.with_disk(|disk| disk.crash_at(n, when));
    }

    /// Damages a sector of a block above `durable`, the last one that anybody was told of; the process is down. False: there is none.
    pub fn flip_tail(&mut self, durable: u64) -> bool {
        let Script { world, dice, .. } = self;
        world.hosts[HOST].with_disk(|disk| damage::flip_tail(disk, durable, false, dice)).is_some()
    }

    /// Loses the end of the last block, as a write that was torn does; the process is down. False: it is not above `durable`.
    pub fn tear_tail(&mut self, durable: u64) -> bool {
        let Script { world, dice, .. } = self;
        world.hosts[HOST].with_disk(|disk| damage::tear_tail(disk, durable, dice))
    }

    /// The process is killed, and a bit flips in the body of a stored message. Answers whose: link and number.
    pub fn flip_body(&mut self) -> Option<(u32, u64)> {
        let dice = &mut self.dice;
        let mut flipped = None;
        self.world.end(HOST, KILLED, |disk| flipped = damage::flip_body(disk, dice));
        let message = flipped?;
        self.world.books.put(self.world.book, &Event::Damaged { message });
        Some((message.producer, message.sequence))
    }

    /// The process is killed, and a bit flips in the header or the metadata of a block that another one proves. When a start was
    /// refused for it, the operator brings back the file. False: there is no such block.
    pub fn flip_header(&mut self) -> bool {
        let dice = &mut self.dice;
        let mut flipped = None;
        self.world.end(HOST, KILLED, |disk| {
            let proven = damage::proven(&damage::blocks(disk));
            flipped = damage::flip_header(disk, proven, dice);
        });
        self.world.hosts[HOST].flipped.extend(flipped);
        flipped.is_some()
    }

    /// The process stands still; what comes for it waits.
    pub fn freeze(&mut self) {
        if let Some(life) = &mut self.world.hosts[HOST].life {
            life.paused = true;
        }
    }

    /// It goes on, with everything that has come by now in one turn, connections in any order.
    pub fn thaw(&mut self) {
        let soon = self.world.now_us + 10;
        self.world.at(soon, Due::Nothing);
        self.until("what was said arrives", |script| {
            let World { people, net, now_us, .. } = &script.world;
            let said = people.iter().all(|p| p.line.as_ref().is_none_or(|line| line.client.output_len() == 0));
            *now_us >= soon && said && (0..net.count()).all(|stream| net.is_idle(stream, Way::ToBroker))
        });
        if let Some(life) = &mut self.world.hosts[HOST].life {
            for at in (1..life.ready.len()).rev() {
                life.ready.swap(at, self.dice.below(at + 1));
            }
        }
        self.world.wake(HOST);
    }

    /// A number from `low` to `high`, of the seed's dice.
    pub fn draw(&mut self, low: u64, high: u64) -> u64 {
        self.dice.range(low, high)
    }

    /// Brings a list into any order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.dice.below(at + 1));
        }
    }

    // ---- the end ----

    /// A new client takes everything that a queue holds, one after the other, and accepts it; what it saw, in order.
    pub fn drain(&mut self, queue: &str) -> Vec<Got> {
        self.rest();
        let Some(report) = self.queue(queue) else { return Vec::new() };
        let count = (report.counters.depth - report.counters.damaged) as usize;
        let who = self.client();
        let receiver = self.consumer(who, queue, 100);
        let (mut accepted, mut credited) = (0, 100);
        while accepted < count {
            let came = self.receive(receiver, accepted, 1);
            for got in came {
                accepted += 1;
                self.decide(receiver, got.delivery, Outcome::Accept);
            }
            if credited < accepted + 50 {
                credited = accepted + 100;
                self.grant(receiver, 100);
            }
        }
        self.rest();
        let got = self.got(receiver).to_vec();
        self.close(who);
        self.until("a client leaves", |script| !script.is_there(who));
        got
    }

    /// Everybody leaves; everything is looked for, consumed, counted and judged as in every world.
    ///
    /// # Panics
    /// If a promise was broken.
    pub fn finish(mut self) -> Verdict {
        self.until("the broker runs", |script| script.is_running());
        self.world.dismiss();
        self.world.enter(Phase::Leaving);
        let (seed, shards) = (self.world.seed, self.shards);
        let verdict = self.world.run();
        let breaches: Vec<String> = verdict.breaches.iter().map(ToString::to_string).collect();
        assert!(breaches.is_empty(), "seed {seed}, {shards} shards: {breaches:#?}");
        verdict
    }
}
