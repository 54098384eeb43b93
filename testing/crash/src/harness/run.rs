//! One run: one data directory, clients that live through all of it, a broker that does not; then everything is drained, counted
//! and judged.

use super::canary::Canary;
use super::checkpoints::Checkpoints;
use super::clock::{now_ns, pause};
use super::dead_letters;
use super::diary::Diary;
use super::fleet::{Fleet, Sums, histories};
use super::network::{Hits, Network};
use super::plan::{CLIENTS, Plan};
use super::process::{Broker, Death, Setup, tail};
use super::tally::Tally;
use crate::Random;
use packhorse_history::{BrokerChange, Counters, Event, Invariant, Options, Report, check_files};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So much is to be in flight before the broker's time begins to run, and at its end: a little more than what counts.
const ENOUGH: u64 = 260;
/// So many branches are to be in doubt: one of them may be decided before the broker dies.
const ENOUGH_IN_DOUBT: u64 = 2;
/// And so many messages are to be confirmed in this life.
const ENOUGH_CONFIRMED: u64 = 300;
/// How long anything may take that must come at last.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a kill waits for enough in flight when its time has come.
const LATE: Duration = Duration::from_millis(500);

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Whether its clients were foreign ones.
    pub foreign: bool,
    /// In flight at each kill, and how much there was to judge.
    pub tally: Tally,
    /// What the checker says; `None`: it could not judge.
    pub report: Option<Report>,
    /// What went wrong beside: the broker did not start, ended by itself, kept messages …
    pub broken: Vec<String>,
    /// Dead letters found.
    pub dead_letters: u64,
    /// Processes stopped and continued.
    pub pauses: u64,
    /// What the network did.
    pub hits: Hits,
    /// Brokers killed before they were ready.
    pub killed_starting: u64,
    /// Brokers stopped in order.
    pub stopped: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Kills while one was being written.
    pub checkpoints_under_way: u64,
    /// Files of large messages at the kills.
    pub large_files: u64,
    /// Times in which the machine was too slow for anybody to say that the broker is stuck.
    pub stalls: u64,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Kills with enough in flight.
    pub fn counted(&self) -> usize {
        self.tally.kills.iter().filter(|kill| kill.counts()).count()
    }

    /// The invariants that are broken, and how often.
    pub fn violated(&self) -> Vec<(Invariant, u64)> {
        let all = Invariant::ALL.iter().map(|&one| (one, self.report.as_ref().map_or(0, |report| report.count(one))));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.report.as_ref().is_some_and(Report::is_clean)
    }

    /// The first thing that is broken, in a sentence.
    pub fn evidence(&self) -> Option<String> {
        let violation = self.report.as_ref().and_then(|report| report.violations().first());
        violation.map(ToString::to_string).or_else(|| self.broken.first().cloned())
    }
}

/// What does not change while a run goes on, and what is written down of it.
struct Run<'a> {
    plan: &'a Plan,
    setup: Setup,
    death: &'a mut dyn Death,
    diary: Diary,
    fleet: Fleet,
    /// While there are faults of the network, and the proxy after that.
    network: Option<Network>,
    random: Random,
    killed_at: Vec<u64>,
    outcome: Outcome,
}

/// Something about the broker that ends the run before its time: what was seen until then is judged all the same.
type Broken = String;

/// Runs it. `setup.dir` is made and must be empty; histories, logs and the data directory stay in it. Err: the harness itself fails.
pub fn run(plan: &Plan, mut setup: Setup, death: &mut dyn Death) -> Result<Outcome, String> {
    let begin = Instant::now();
    let dir = setup.dir.join("history");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    setup.settings.extend(plan.settings.iter().cloned());
    let diary = Diary::begin(&dir.join("coordinator.jsonl"), "coordinator", plan.run)?;
    let canary = Canary::start(&setup.dir, plan.run)?;
    let mut network = if plan.faults { Some(Network::open(setup.amqp, CLIENTS)?) } else { None };
    let to = |client| network.as_ref().map_or(setup.amqp, |network| network.door(client));
    let fleet = Fleet::start(plan, &setup, to)?;
    if let Some(network) = &mut network {
        let names = (0..CLIENTS).map(|client| fleet.name(client).to_owned()).collect();
        network.disturb(&dir, plan.run, plan.seed ^ 0x6e65_7477, names, &setup.flow())?;
    }
    let mut run = Run {
        plan,
        setup,
        death,
        diary,
        fleet,
        network,
        random: Random::new(plan.seed ^ 0x6b69_6c6c),
        killed_at: Vec::new(),
        outcome: Outcome { seed: plan.seed, foreign: plan.foreign(), ..Outcome::default() },
    };
    if let Err(broken) = run.work() {
        run.outcome.broken.push(broken);
    }
    run.calm()?;
    run.outcome.checkpoints = Checkpoints::look(&run.setup.data).newest;
    let Run { fleet, mut outcome, killed_at, setup, death, .. } = run;
    // Whoever still runs is killed: their files are what they are.
    drop(fleet);
    outcome.stalls = canary.end()?;
    let log = fs::read(setup.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let bad = |line: &&str| line.contains(" ERROR ") || line.contains("assertion failed");
    if let Some(line) = log.lines().filter(bad).find(|line| !death.explains(line)) {
        outcome.broken.push(format!("the broker's log says: {line}"));
    }
    judge(&mut outcome, &histories(&dir)?, &killed_at)?;
    outcome.took = begin.elapsed();
    Ok(outcome)
}

/// Reads the histories: what was in flight, and what the checker says.
fn judge(outcome: &mut Outcome, files: &[PathBuf], killed_at: &[u64]) -> Result<(), String> {
    outcome.tally = Tally::of(files.iter().map(PathBuf::as_path), killed_at)?;
    let sources = files.iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        File::open(path).map(|file| (name, BufReader::with_capacity(1 << 16, file)))
    });
    let sources = sources.collect::<Result<Vec<_>, _>>().map_err(|e| format!("cannot read a history: {e}"))?;
    match check_files(sources, &Options::default()) {
        Ok(report) => outcome.report = Some(report),
        Err(error) => outcome.broken.push(format!("the histories cannot be judged: {error}")),
    }
    Ok(())
}

impl Run<'_> {
    fn work(&mut self) -> Result<(), Broken> {
        let mut broker = self.start()?;
        let kills = self.plan.kills;
        while (self.killed_at.len() as u32) < kills {
            self.live(&mut broker)?;
            if self.random.below(10) == 0 {
                broker = self.stop(broker)?;
                continue;
            }
            self.kill(broker)?;
            if self.random.below(5) == 0 {
                self.kill_starting()?;
            }
            broker = self.start()?;
        }
        let finished = self.finish(&broker);
        // That it has ended says more than that it does not answer.
        self.still_there(&mut broker)?;
        finished?;
        self.stop_at_last(broker)
    }

    fn tell(&mut self, change: BrokerChange) -> Result<(), Broken> {
        self.diary.tell(&Event::Broker { change })
    }

    fn start(&mut self) -> Result<Broker, Broken> {
        self.draw_shards();
        let broker = Broker::start(&self.setup, self.death)?;
        self.diary.put(broker.ready_ns, &Event::Broker { change: BrokerChange::Start })?;
        self.diary.flush()?;
        Ok(broker)
    }

    fn draw_shards(&mut self) {
        self.setup.shards = *self.random.pick(&self.plan.shards);
    }

    /// Until enough is in flight, and then as long as the seed says, with pauses.
    fn live(&mut self, broker: &mut Broker) -> Result<(), Broken> {
        let before = self.fleet.sums()?.confirmed;
        let until = Instant::now() + PATIENCE;
        loop {
            let sums = self.fleet.sums()?;
            if is_enough(&sums) && sums.confirmed >= before + ENOUGH_CONFIRMED {
                break;
            }
            self.still_there(broker)?;
            if Instant::now() > until {
                return Err(format!("not enough in flight after {} s: {sums:?}", PATIENCE.as_secs()));
            }
            pause(Duration::from_millis(2));
        }
        let (from, to) = self.plan.life_ms;
        let end = Instant::now() + Duration::from_millis(from + self.random.number() % (to - from));
        let faults = self.random.below(3);
        for _ in 0..faults {
            let left = end.saturating_duration_since(Instant::now()).as_millis() as u64;
            if left < 20 {
                break;
            }
            pause(Duration::from_millis(self.random.number() % (left / 2)));
            self.pause_somebody(broker)?;
        }
        pause(end.saturating_duration_since(Instant::now()));
        self.still_there(broker)?;
        let late = Instant::now() + LATE;
        while !is_enough(&self.fleet.sums()?) && Instant::now() < late {
            pause(Duration::from_millis(1));
        }
        Ok(())
    }

    fn still_there(&mut self, broker: &mut Broker) -> Result<(), Broken> {
        let Some(status) = broker.ended() else { return Ok(()) };
        self.tell(BrokerChange::Exit(status.code()))?;
        Err(format!("the broker ended by itself ({status}): {}", tail(&self.setup.log())))
    }

    fn pause_somebody(&mut self, broker: &Broker) -> Result<(), Broken> {
        self.outcome.pauses += 1;
        let which = self.random.below(self.fleet.count() * 2);
        let time = Duration::from_millis(10 + self.random.number() % 250);
        // The broker as often as all clients together.
        let target = if which < self.fleet.count() { self.fleet.name(which).to_owned() } else { "broker".to_owned() };
        let fault = |start| Event::Fault { kind: "pause", target: &target, start };
        let signal = |signal| match which < self.fleet.count() {
            true => self.fleet.signal(which, signal),
            false => broker.signal(signal),
        };
        self.diary.tell(&fault(true))?;
        signal(Signal::STOP);
        pause(time);
        signal(Signal::CONT);
        self.diary.tell(&fault(false))
    }

    fn kill(&mut self, broker: Broker) -> Result<(), Broken> {
        self.tell(BrokerChange::Kill)?;
        self.killed_at.push(now_ns());
        broker.kill(self.death)?;
        self.gone()?;
        self.outcome.checkpoints_under_way += u64::from(Checkpoints::look(&self.setup.data).under_way);
        self.outcome.large_files += self.setup.large_files();
        Ok(())
    }

    /// It is gone now: what it confirmed since the death began, which may take its time, is of this life too.
    fn gone(&mut self) -> Result<(), Broken> {
        self.tell(BrokerChange::Kill)
    }

    /// A start that is killed before it can be ready, or just then.
    fn kill_starting(&mut self) -> Result<(), Broken> {
        self.draw_shards();
        let broker = Broker::begin(&self.setup, self.death)?;
        pause(Duration::from_micros(500 + self.random.number() % 40_000));
        self.tell(BrokerChange::Kill)?;
        broker.kill(self.death)?;
        self.gone()?;
        self.outcome.killed_starting += 1;
        Ok(())
    }

    /// A stop in order, and a start.
    fn stop(&mut self, broker: Broker) -> Result<Broker, Broken> {
        self.stop_in_order(broker)?;
        self.outcome.stopped += 1;
        self.start()
    }

    fn stop_at_last(&mut self, broker: Broker) -> Result<(), Broken> {
        self.stop_in_order(broker)?;
        self.diary.tell(&Event::End)
    }

    fn stop_in_order(&mut self, broker: Broker) -> Result<(), Broken> {
        self.tell(BrokerChange::Exit(None))?;
        let status = broker.stop()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("a stop in order ended with {status}: {}", tail(&self.setup.log())))
    }

    /// The network does nothing more on purpose, and nothing is under way on old connections.
    fn calm(&mut self) -> Result<(), Broken> {
        if let Some(network) = &mut self.network {
            self.outcome.hits = network.calm()?;
        }
        Ok(())
    }

    /// Drains everything, with quiet readings before and after.
    fn finish(&mut self, broker: &Broker) -> Result<(), Broken> {
        self.calm()?;
        self.fleet.end_producers(PATIENCE)?;
        // What they found is told, and what became of messages is judged all the same.
        if let Err(found) = self.fleet.end_transactions(PATIENCE) {
            self.outcome.broken.push(found);
        }
        self.fleet.hold_consumers(PATIENCE)?;
        self.quiet(broker)?;
        self.fleet.let_finish()?;
        let until = Instant::now() + PATIENCE;
        for name in self.plan.all_queues() {
            loop {
                let at = now_ns();
                let depth = broker.queue(name)?.map_or(Some(0), |queue| queue["depth"].as_u64());
                if depth == Some(0) {
                    self.diary.put(at, &Event::Drained { queue: name })?;
                    break;
                }
                if Instant::now() > until {
                    return Err(format!("{name} still holds {depth:?} messages after {} s", PATIENCE.as_secs()));
                }
                pause(Duration::from_millis(2));
            }
        }
        self.diary.flush()?;
        self.fleet.end_consumers(PATIENCE)?;
        let (to, run) = (self.setup.amqp, self.plan.run);
        self.outcome.dead_letters = dead_letters::read(to, broker, run, &mut self.diary, PATIENCE)?.len() as u64;
        self.quiet(broker)?;
        let until = Instant::now() + PATIENCE;
        while self.setup.large_files() > 0 {
            if Instant::now() > until {
                return Err(format!("{} files of large messages are left behind", self.setup.large_files()));
            }
            pause(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Nobody does anything: the broker's counters, once they stand still.
    fn quiet(&mut self, broker: &Broker) -> Result<(), Broken> {
        let until = Instant::now() + PATIENCE;
        for name in self.plan.all_queues() {
            let mut before = None;
            loop {
                let at = now_ns();
                let Some(queue) = broker.queue(name)? else { break };
                let count = |key: &str| queue[key].as_i64();
                let counters = Counters {
                    quiet: true,
                    depth: count("depth"),
                    ready: count("ready"),
                    acquired: count("acquired"),
                    enqueued: count("enqueued_total"),
                    acknowledged: count("acknowledged_total"),
                    dead_lettered: count("dead_lettered_total"),
                };
                // Dead letters may still be moving, which is not what anybody does.
                let still = [count("moving"), count("staged"), count("removing")].iter().all(|n| n.unwrap_or(0) == 0);
                if still && before == Some(counters) {
                    self.diary.put(at, &Event::Counters { queue: name, counters })?;
                    break;
                }
                if Instant::now() > until {
                    return Err(format!("the counters of {name} do not come to rest: {queue}"));
                }
                before = Some(counters);
                pause(Duration::from_millis(1));
            }
        }
        self.diary.flush()
    }
}

fn is_enough(sums: &Sums) -> bool {
    sums.unconfirmed >= ENOUGH && sums.unacknowledged >= ENOUGH && sums.in_doubt >= ENOUGH_IN_DOUBT
}
