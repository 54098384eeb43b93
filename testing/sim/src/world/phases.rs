//! The way to the end: faults are over, clients leave, nothing is under way; then everything is counted, looked for, consumed and
//! counted again. Each step has to come to its end within bounded time.

use super::World;
use crate::books::queue_name;
use crate::client::{Consumer, In, Manner, Queue, Role, Stage, Use};
use crate::draw::Draw;
use crate::verdict::Breach;
use packhorse_broker::{Command, Input, QueueReport, Reply, ShardReport};
use packhorse_history::{Counters, Event};
use packhorse_model::ShardId;

/// Virtual time within which each step has to be through.
const PATIENCE_US: u64 = 60_000_000;

/// How far the world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A script says what happens.
    Script,
    /// Clients work and things go wrong.
    Work,
    /// Everybody leaves.
    Leaving,
    /// Everything is looked for.
    Survey,
    /// Everything is consumed.
    Draining,
    /// Whoever consumed leaves.
    Closing,
    /// The end.
    Done,
}

impl World {
    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_since = self.now_us;
    }

    /// A look at the whole: whether the next phase can begin.
    pub(super) fn look(&mut self) {
        self.measure();
        if self.phase == Phase::Script {
            return;
        }
        if self.now_us > self.phase_since + PATIENCE_US {
            let left = self.left();
            let what = format!("phase {:?} did not come to its end within 60 s: {left}", self.phase);
            self.breaches.push(Breach::new("liveness", what));
            // Where nobody has been for so long nothing is under way, whatever the broker's own counters say.
            if self.people.iter().all(|person| person.stage == Stage::Gone) {
                self.count(true);
            }
            self.enter(Phase::Done);
            return;
        }
        let phase = self.phase;
        match phase {
            Phase::Work => {
                let healed = self.faults.is_empty() && self.spells.iter().all(|spell| spell.over);
                let up = self.hosts.iter().all(|host| host.is_running());
                if healed && up && self.operators.acts.is_empty() && !self.operators.are_done() {
                    self.lift_all();
                }
                let done = self.operators.are_done() && self.people.iter().all(|person| person.is_done());
                if healed && up && done {
                    if self.encore() {
                        self.enter(Phase::Work);
                    } else {
                        self.dismiss();
                        self.enter(Phase::Leaving);
                    }
                }
            }
            Phase::Leaving if self.is_quiet() => {
                self.count(true);
                self.books.put(self.book, &Event::Survey { start: true });
                self.send_in(Use::Survey);
                self.enter(Phase::Survey);
            }
            Phase::Survey if self.is_quiet() => {
                self.books.put(self.book, &Event::Survey { start: false });
                self.count(true);
                self.send_in(Use::Consume);
                self.enter(Phase::Draining);
            }
            Phase::Draining if self.is_drained() => {
                self.dismiss();
                self.enter(Phase::Closing);
            }
            Phase::Closing if self.is_quiet() => {
                self.count(true);
                self.drained();
                self.idle();
                self.enter(Phase::Done);
            }
            _ => {}
        }
    }

    /// Everybody is to go.
    pub(super) fn dismiss(&mut self) {
        for client in 0..self.people.len() {
            let person = &mut self.people[client];
            if person.stage == Stage::Working {
                person.stage = if person.line.is_some() { Stage::Leaving } else { Stage::Gone };
                self.alarm_now(client);
            }
        }
    }

    /// New clients, one for each queue, that do nothing but their duty.
    fn send_in(&mut self, purpose: Use) {
        for host in 0..self.hosts.len() {
            let mut queues = self.hosts[host].setup.queues.clone();
            queues.push("DLQ".into());
            let manner =
                Manner { careful: true, presettled: false, credit: 200, hold: 10, hold_us: 2_000, accepts: 100 };
            for name in queues {
                let of_dead_letters = name == "DLQ" && purpose == Use::Consume;
                let purpose = if of_dead_letters { Use::DeadLetters } else { purpose };
                let ins = vec![In::new(Queue::new(host, &name), purpose, manner)];
                let dice = Draw::new(self.seed, 5_000 + self.people.len() as u64);
                let mut consumer = Consumer::new(ins, purpose, dice, u64::MAX >> 2);
                consumer.calm = true;
                let at = self.now_us + 1_000;
                self.join(host, Role::Consume(consumer), at);
            }
        }
    }

    /// Asks a shard of a broker something.
    pub(super) fn ask(&mut self, host: usize, shard: u16, command: Command) -> Option<Reply> {
        self.asked += 1;
        let id = self.asked;
        self.hosts[host].catch_up(self.now_us);
        let now = self.hosts[host].now(self.now_us);
        let mut effects = Vec::new();
        let life = self.hosts[host].life.as_mut().filter(|life| !life.paused)?;
        life.node.turn([(ShardId(shard), Input::Admin { id, command })], now, &mut effects);
        self.obey(host, &mut effects);
        self.advance(host);
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.swap_remove(at).1)
    }

    pub(super) fn reports(&mut self, host: usize) -> Vec<ShardReport> {
        let shards = self.hosts[host].setup.shards;
        let mut reports = Vec::new();
        for shard in 0..shards {
            if let Some(Reply::Shard(report)) = self.ask(host, shard, Command::Status) {
                reports.push(*report);
            }
        }
        reports
    }

    pub(super) fn queue(&mut self, host: usize, name: &str) -> Option<QueueReport> {
        match self.ask(host, 0, Command::QueueGet { name: name.to_owned() }) {
            Some(Reply::Queue(report)) => Some(*report),
            _ => None,
        }
    }

    fn queue_names(&self, host: usize) -> Vec<String> {
        let mut names = self.hosts[host].setup.queues.clone();
        names.push("DLQ".into());
        names
    }

    /// Nobody is there and nothing is under way.
    fn is_quiet(&mut self) -> bool {
        if self.people.iter().any(|person| person.stage != Stage::Gone) {
            return false;
        }
        (0..self.hosts.len()).all(|host| {
            let reports = self.reports(host);
            let quiet = self.hosts[host].life.as_ref().is_some_and(|life| life.sim.quiet());
            let nobody = |report: &ShardReport| {
                let totals = &report.totals;
                // What waits for room in the dead-letter queue is shown to nobody.
                let on_its_way = totals.staged + totals.scheduled + totals.acquired + totals.moving + totals.removing;
                report.connections == 0 && on_its_way == 0
            };
            quiet && reports.iter().all(nobody)
        })
    }

    fn is_drained(&mut self) -> bool {
        (0..self.hosts.len()).all(|host| {
            self.reports(host).iter().all(|report| {
                let totals = &report.totals;
                totals.depth == totals.damaged && totals.staged == 0
            })
        })
    }

    /// Reads all counters.
    fn count(&mut self, quiet: bool) {
        for host in 0..self.hosts.len() {
            for name in self.queue_names(host) {
                let at = self.books.stamp();
                let Some(report) = self.queue(host, &name) else { continue };
                let told = |number: u64| i64::try_from(number).ok();
                let counters = Counters {
                    quiet,
                    depth: told(report.counters.depth),
                    ready: told(report.counters.ready),
                    acquired: told(report.counters.acquired),
                    enqueued: told(report.counters.enqueued_total),
                    acknowledged: told(report.counters.acknowledged_total),
                    dead_lettered: told(report.counters.dead_lettered_total),
                };
                // Nobody sends to the dead-letter queue, so nobody can say what it should hold.
                if name != "DLQ" {
                    let queue = queue_name(host, &name);
                    self.books.put_at(at, self.book, &Event::Counters { queue: &queue, counters });
                }
            }
        }
    }

    /// Says that all queues are empty, dead-letter queues last.
    fn drained(&mut self) {
        for host in 0..self.hosts.len() {
            for name in self.hosts[host].setup.queues.clone() {
                let queue = queue_name(host, &name);
                self.books.put(self.book, &Event::Drained { queue: &queue });
            }
        }
        for host in 0..self.hosts.len() {
            let queue = queue_name(host, "DLQ");
            self.books.put(self.book, &Event::Drained { queue: &queue });
        }
    }

    /// The same of one broker.
    pub(super) fn drained_at(&mut self, host: usize) {
        for name in self.queue_names(host) {
            let queue = queue_name(host, &name);
            self.books.put(self.book, &Event::Drained { queue: &queue });
        }
    }

    fn gauge(&mut self, kind: &str, host: usize, value: u64, most: u64) {
        let target = &self.hosts[host].name;
        self.books.put(self.book, &Event::Gauge { kind, target, value, most });
    }

    /// Measures what is bounded by settings.
    fn measure(&mut self) {
        for host in 0..self.hosts.len() {
            if !self.hosts[host].is_running() {
                continue;
            }
            let memory: u64 = self.reports(host).iter().map(|report| report.memory_bytes).sum();
            let most = self.hosts[host].memory_most();
            self.gauge("memory", host, memory, most);
            let connections = self.people.iter().filter(|person| person.host == host).count() as u64;
            let life = self.hosts[host].starts;
            let (mut open, mut longest) = (0, 0);
            for stream in 0..self.net.count() {
                let one = self.net.get(stream);
                if one.host == host && one.life == life && one.accepted && !one.forgotten {
                    open += 1;
                    longest = longest.max(self.hosts[host].output_bytes(ShardId(one.shard), stream as u64));
                }
            }
            // A client may have an old connection beside its new one, and another that its broker has not missed yet.
            self.gauge("handles", host, open, connections * 3 + 8);
            let most = self.hosts[host].output_most();
            self.gauge("output", host, longest, most);
        }
    }

    /// What is left when everybody is gone and everything is consumed.
    fn idle(&mut self) {
        for host in 0..self.hosts.len() {
            let (mut links, mut memory, mut damaged) = (0, 0, 0);
            for report in self.reports(host) {
                links += report.connections + report.sessions + report.links;
                memory += report.memory_bytes;
                damaged += report.totals.damaged;
            }
            self.gauge("handles at rest", host, links, 0);
            let most = self.hosts[host].setup.memory_bytes;
            self.gauge("memory at rest", host, memory, most);
            let large = self.hosts[host].with_disk(|disk| {
                disk.names().filter(|name| matches!(name, packhorse_journal::FileName::Large(_))).count() as u64
            });
            // One that is set aside keeps what there is of its file.
            self.gauge("large files at rest", host, large, damaged);
        }
    }

    /// What a world that is stuck has, in a sentence.
    pub(super) fn left(&mut self) -> String {
        let mut parts = Vec::new();
        for host in 0..self.hosts.len() {
            let up = self.hosts[host].is_running();
            let totals: Vec<String> = self
                .reports(host)
                .iter()
                .map(|report| {
                    let t = &report.totals;
                    format!(
                        "connections {} depth {} ready {} acquired {} staged {} scheduled {} damaged {} consumers {}",
                        report.connections, t.depth, t.ready, t.acquired, t.staged, t.scheduled, t.damaged, t.consumers
                    )
                })
                .collect();
            parts.push(format!(
                "{} {}: {}",
                self.hosts[host].name,
                if up { "runs" } else { "is down" },
                totals.join("; ")
            ));
        }
        let there = self.people.iter().filter(|person| person.stage != Stage::Gone).count();
        for (number, person) in self.people.iter().enumerate().filter(|(_, person)| person.stage != Stage::Gone) {
            parts.push(format!("client {number} {}", person.state()));
        }
        let busy = self.people.iter().filter(|person| !person.is_done()).count();
        let spells = self.spells.iter().filter(|spell| !spell.over).count();
        parts.push(format!(
            "{there} clients are there, {busy} of them are not done, {} faults are to come, {spells} last",
            self.faults.len()
        ));
        parts.join(" | ")
    }
}
