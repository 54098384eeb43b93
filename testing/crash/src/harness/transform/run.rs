//! One run: a broker, a feeder and transformers, and kills of them until all is sent on; then everything is taken out, counted and judged.

use super::super::clock::{now_ns, pause};
use super::super::dead_letters;
use super::super::diary::Diary;
use super::super::fleet::histories;
use super::super::orders::Order;
use super::super::process::{Broker, KillNine, Setup, tail};
use super::worker::Role;
use super::{IN, OUT, sink};
use crate::Random;
use crate::transact::Figures;
use packhorse_history::{BrokerChange, Event, Options, Report, Source, check_files};
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TRANSFORMERS: u32 = 3;
/// How long anything may take that must come at last.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long what is committed may take to be seen.
const APPLIED: Duration = Duration::from_secs(5);
/// A message may be given back any number of times.
const SETTINGS: [&str; 1] = ["queues.delivery_limit=1000000"];
/// A long run has so many messages, and so many kills of each kind, or it was blind.
const LONG: u64 = 50_000;
const KILLS: u64 = 20;
/// So many messages must have been sent on since the last kill.
const PROGRESS: u64 = 100;
/// The number of the consuming link at the end: no worker has it.
const SINK: u32 = u32::MAX - 1;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub bin: PathBuf,
    /// This program, whose verb `worker` is a worker.
    pub program: PathBuf,
    /// An empty folder.
    pub dir: PathBuf,
    /// What is drawn is drawn from this.
    pub seed: u64,
    /// Messages that are sent, sent on, and counted.
    pub messages: u64,
    /// More of the broker's environment.
    pub environment: Vec<(String, String)>,
    /// A life of the broker, or of a worker, until the next kill, ms at most.
    pub life_ms: u64,
}

/// A worker over all its lives.
struct Worker {
    role: Role,
    number: u32,
    life: u32,
    child: Child,
}

struct Run<'a> {
    plan: &'a Plan,
    setup: Setup,
    random: Random,
    diary: Diary,
    run: u64,
    workers: Vec<Worker>,
    figures: Figures,
}

/// Carries it out. What is found stands in the figures; Err: the harness itself fails, or a process that must not end did.
pub fn run(plan: &Plan) -> Result<Figures, String> {
    let history = plan.dir.join("history");
    fs::create_dir_all(&history).map_err(|e| format!("{}: {e}", history.display()))?;
    let [amqp, http] = Setup::free_ports(plan.seed)?;
    let setup = Setup {
        bin: plan.bin.clone(),
        data: plan.dir.join("data"),
        dir: plan.dir.clone(),
        settings: SETTINGS.iter().map(|setting| (*setting).to_owned()).collect(),
        shards: 1,
        environment: plan.environment.clone(),
        amqp,
        http,
    };
    let run = plan.seed ^ 0x7472_616e_7366_6f72;
    let mut run = Run {
        plan,
        setup,
        random: Random::new(plan.seed),
        diary: Diary::begin(&history.join("coordinator.jsonl"), "coordinator", run)?,
        run,
        workers: Vec::new(),
        figures: Figures::new(plan.seed),
    };
    let broker = run.work()?;
    let origins = run.finish(broker)?;
    run.count(&origins);
    run.judge()?;
    for kind in ["the broker killed", "a client killed"] {
        let kills = run.figures.of(kind);
        if plan.messages >= LONG && kills < KILLS {
            run.figures.found.push(format!("blind: {kills} times {kind}"));
        }
    }
    Ok(std::mem::take(&mut run.figures))
}

impl Run<'_> {
    fn start(&mut self) -> Result<Broker, String> {
        self.setup.shards = 1 + self.random.below(2) as u16;
        let broker = Broker::start(&self.setup, &mut KillNine)?;
        self.diary.put(broker.ready_ns, &Event::Broker { change: BrokerChange::Start })?;
        self.diary.flush()?;
        Ok(broker)
    }

    fn spawn(&mut self, role: Role, number: u32, life: u32) -> Result<Worker, String> {
        let name = format!("{role:?}-{number}").to_lowercase();
        let log = self.plan.dir.join(format!("{name}.log"));
        let stderr = File::options().create(true).append(true).open(&log);
        let stderr = stderr.map_err(|e| format!("{}: {e}", log.display()))?;
        let history = self.plan.dir.join("history").join(format!("{name}-{life}.jsonl"));
        let mut command = Command::new(&self.plan.program);
        command.arg("worker").args(["--role", &format!("{role:?}").to_lowercase()]);
        command.args(["--number", &number.to_string(), "--life", &life.to_string()]);
        command.args(["--to", &self.setup.amqp.to_string(), "--run", &self.run.to_string()]);
        command.args(["--seed", &self.random.number().to_string(), "--origins", &self.plan.messages.to_string()]);
        command.arg("--history").arg(history).arg("--book").arg(self.plan.dir.join(format!("{name}.book")));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().map_err(|e| format!("cannot run a worker: {e}"))?;
        Ok(Worker { role, number, life, child })
    }

    /// Until all messages are sent on. The broker that runs then.
    fn work(&mut self) -> Result<Broker, String> {
        let mut broker = self.start()?;
        for number in 0..=TRANSFORMERS {
            let role = if number == 0 { Role::Feeder } else { Role::Transformer };
            let worker = self.spawn(role, number, 0)?;
            self.workers.push(worker);
        }
        let (mut progress, mut seen) = (0, Instant::now());
        loop {
            let life = 20 + self.random.number() % self.plan.life_ms;
            pause(Duration::from_millis(life));
            loop {
                let out = self.depth(&broker, OUT)?;
                // What is missing then is found by the count.
                if self.is_fed()? && self.depth(&broker, IN)? == 0 {
                    return Ok(broker);
                }
                self.all_alive()?;
                if out >= progress + PROGRESS {
                    (progress, seen) = (out, Instant::now());
                    break;
                }
                if seen.elapsed() > PATIENCE {
                    let log = tail(&self.setup.log());
                    return Err(format!("{out} messages are sent on, and no more for {PATIENCE:?}: {log}"));
                }
                // The last messages are fewer, and nobody is killed over them.
                pause(Duration::from_millis(2));
            }
            if self.random.below(2) == 0 {
                self.diary.tell(&Event::Broker { change: BrokerChange::Kill })?;
                broker.kill(&mut KillNine)?;
                self.figures.fault("the broker killed");
                broker = self.start()?;
            } else {
                let which = self.random.below(self.workers.len());
                self.kill(which)?;
            }
        }
    }

    fn depth(&self, broker: &Broker, queue: &str) -> Result<u64, String> {
        let Some(found) = broker.queue(queue)? else { return Ok(0) };
        found["depth"].as_u64().ok_or_else(|| format!("no depth in {found}"))
    }

    /// The feeder has sent everything and ended.
    fn is_fed(&mut self) -> Result<bool, String> {
        let status = self.workers[0].child.try_wait().map_err(|e| e.to_string())?;
        Ok(status.is_some_and(|status| status.success()))
    }

    fn all_alive(&mut self) -> Result<(), String> {
        for worker in &mut self.workers {
            if let Ok(Some(status)) = worker.child.try_wait() {
                if worker.role == Role::Feeder && status.success() {
                    continue;
                }
                let name = format!("{:?}-{}", worker.role, worker.number).to_lowercase();
                let log = tail(&self.plan.dir.join(format!("{name}.log")));
                return Err(format!("{name} ended ({status}): {log}; broker: {}", tail(&self.setup.log())));
            }
        }
        Ok(())
    }

    /// kill -9, and another life.
    fn kill(&mut self, which: usize) -> Result<(), String> {
        let Worker { role, number, life, child } = &mut self.workers[which];
        let (role, number, life) = (*role, *number, *life + 1);
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Ok(());
        }
        child.kill().and_then(|()| child.wait()).map_err(|e| format!("cannot kill a worker: {e}"))?;
        self.figures.fault("a client killed");
        self.workers[which] = self.spawn(role, number, life)?;
        Ok(())
    }

    /// Workers end, and everything is taken out. By origin, how often it came.
    fn finish(&mut self, mut broker: Broker) -> Result<std::collections::HashMap<u64, u32>, String> {
        for worker in &mut self.workers[1..] {
            let stdin = worker.child.stdin.as_mut().ok_or("a worker's input is not piped")?;
            let told = stdin.write_all(format!("{}\n", Order::End.word()).as_bytes()).and_then(|()| stdin.flush());
            told.map_err(|e| format!("a worker takes no orders: {e}"))?;
        }
        let until = Instant::now() + PATIENCE;
        for index in 1..self.workers.len() {
            loop {
                match self.workers[index].child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(None) if Instant::now() < until => pause(Duration::from_millis(2)),
                    other => return Err(format!("a transformer does not end in order: {other:?}")),
                }
            }
        }
        // What is committed is there for everybody, and survives once more.
        let until = Instant::now() + APPLIED;
        loop {
            // A message that was with a consumer at three kills, one right after the other, is taken for what kills (decision 0010).
            let out = self.depth(&broker, OUT)? + self.depth(&broker, dead_letters::NAME)?;
            if out == self.plan.messages {
                break;
            }
            if Instant::now() > until {
                self.figures.found.push(format!("{out} messages are in {OUT} before the last kill"));
                break;
            }
            pause(Duration::from_millis(2));
        }
        self.diary.tell(&Event::Broker { change: BrokerChange::Kill })?;
        broker.kill(&mut KillNine)?;
        self.figures.fault("the broker killed");
        broker = self.start()?;
        let depth = self.depth(&broker, OUT)?;
        let mut origins = sink::take(self.setup.amqp, self.run, SINK, depth, &mut self.diary)?;
        for queue in [IN, OUT] {
            let at = now_ns();
            match self.depth(&broker, queue)? {
                0 => self.diary.put(at, &Event::Drained { queue })?,
                left => self.figures.found.push(format!("{left} messages are left in {queue}")),
            }
        }
        let dead = dead_letters::read(self.setup.amqp, &broker, self.run, &mut self.diary, PATIENCE)?;
        for letter in dead {
            match letter.origin {
                Some(origin) if letter.reason == "broker-crash" => *origins.entry(origin).or_default() += 1,
                _ => self.figures.found.push(format!("a dead letter: {letter:?}")),
            }
            self.figures.count("taken for what kills", 1);
        }
        self.diary.tell(&Event::Broker { change: BrokerChange::Exit(None) })?;
        let status = broker.stop()?;
        if !status.success() {
            self.figures.found.push(format!("a stop in order ended with {status}"));
        }
        self.diary.tell(&Event::End)?;
        Ok(origins)
    }

    /// Each origin has come out once.
    fn count(&mut self, origins: &std::collections::HashMap<u64, u32>) {
        let all = 0..self.plan.messages;
        let missing = all.clone().filter(|origin| !origins.contains_key(origin)).count();
        let more: u64 = origins.values().map(|count| u64::from(*count) - 1).sum();
        let strange = origins.keys().filter(|origin| !all.contains(origin)).count();
        if missing + strange > 0 || more > 0 {
            let text =
                format!("of {} messages {missing} are missing, {more} came again, {strange} are strange", all.end);
            self.figures.found.push(text);
        }
        self.figures.count("messages", self.plan.messages);
    }

    fn judge(&mut self) -> Result<(), String> {
        let files = histories(&self.plan.dir.join("history"))?;
        for path in &files {
            self.tally(path)?;
        }
        let sources = files.iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            File::open(path).map(|file| (name, BufReader::with_capacity(1 << 16, file)))
        });
        let sources = sources.collect::<Result<Vec<_>, _>>().map_err(|e| format!("cannot read a history: {e}"))?;
        let report: Report = check_files(sources, &Options::default()).map_err(|e| format!("not to be judged: {e}"))?;
        for violation in report.violations().iter().take(10) {
            self.figures.found.push(violation.to_string());
        }
        for invariant in packhorse_history::Invariant::ALL {
            let judged = report.judged(invariant);
            if judged > 0 {
                self.figures.count(&format!("judged by {}", invariant.code()), judged);
            }
        }
        let log = fs::read(self.setup.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let bad = |line: &&str| line.contains(" ERROR ") || line.contains("assertion failed");
        if let Some(line) = log.lines().find(bad) {
            self.figures.found.push(format!("the broker's log says: {line}"));
        }
        Ok(())
    }

    /// What became of transactions.
    fn tally(&mut self, path: &std::path::Path) -> Result<(), String> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| format!("{name}: {e}"))?;
        let mut counts = [0; 3];
        let read = || -> Result<(), packhorse_history::HistoryError> {
            let Some(mut source) = Source::open(name.clone(), BufReader::new(file))? else { return Ok(()) };
            while source.advance()? {
                match source.event()? {
                    Event::CommitOk { .. } => counts[0] += 1,
                    Event::RollbackOk { .. } => counts[1] += 1,
                    Event::CommitUnknown { .. } => counts[2] += 1,
                    _ => {}
                }
            }
            Ok(())
        };
        read().map_err(|e| e.to_string())?;
        for (what, count) in ["committed", "rolled back", "commits without an answer"].iter().zip(counts) {
            self.figures.count(what, count);
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
