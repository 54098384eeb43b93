//! Long runs: worlds of many seeds, in processes side by side. What they came to is kept in a file, so that a run that was stopped goes on;
//! a seed that fails is made small; a run that is long enough has to have seen every kind of fault and every transition of an entry.

mod outcome;
mod shrink;
mod state;
mod table;
mod worker;

use crate::books::host_name;
use crate::digest::Digest;
use crate::fault::Kind;
use crate::plan::{Fault, faults_of};
use crate::verdict::Occurred;
use outcome::Outcome;
use state::{Failure, State};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use worker::Worker;
pub use worker::{numbers, work};

/// Between two writes of the state, and between two lines for people.
const EVERY: Duration = Duration::from_secs(10);

/// Seeds of one way to fail whose faults are made few: more of the same say nothing new.
const SHRUNK: usize = 5;

/// Worlds that making one small may take.
const TRIES: u32 = 300;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// Processes side by side.
    pub jobs: usize,
    /// Where the state is kept; made if it is not there.
    pub dir: PathBuf,
    /// Where what all of it came to is written, as JSON.
    pub report: Option<PathBuf>,
    /// What is built, for people.
    pub commit: String,
}

/// What the jobs share.
struct Shared<'a> {
    campaign: &'a Campaign,
    path: PathBuf,
    run: Mutex<Run>,
}

struct Run {
    state: State,
    next: u64,
    begun: Instant,
    saved: Instant,
    /// Seeds of this run.
    done: u64,
    /// No worker can be started, no state written.
    broken: Option<io::Error>,
}

impl Campaign {
    /// Runs what is not done, and prints what all of it came to. True: nothing failed.
    ///
    /// # Errors
    /// No worker can be started, or the state cannot be read or written.
    pub fn run(&self) -> io::Result<bool> {
        fs::create_dir_all(&self.dir)?;
        let path = self.dir.join("state");
        let program = program()?;
        let state = match State::load(&path)? {
            Some(state) if state.program == program => {
                println!("{} seeds are done, {} failed, on {}", state.seeds(), state.failed(), state.commit);
                state
            }
            Some(other) => {
                println!(
                    "what was done on {} ({} seeds) is of another program: from the beginning",
                    other.commit,
                    other.seeds()
                );
                State::new(program, &self.commit)
            }
            None => State::new(program, &self.commit),
        };
        let now = Instant::now();
        let run = Run { state, next: self.from, begun: now, saved: now, done: 0, broken: None };
        let shared = Shared { campaign: self, path, run: Mutex::new(run) };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| shared.job());
            }
        });
        let run = shared.run.into_inner().unwrap_or_else(PoisonError::into_inner);
        run.state.save(&shared.path)?;
        if let Some(error) = run.broken {
            return Err(error);
        }
        let state = &run.state;
        let gaps = table::gaps(state.seeds(), &state.hits, &state.cells);
        if let Some(path) = &self.report {
            fs::write(path, report(state, &gaps))?;
        }
        tell(&run, &gaps);
        Ok(state.failures.is_empty() && gaps.is_empty())
    }
}

/// Prints what it came to.
fn tell(run: &Run, gaps: &[String]) {
    let Run { state, done, begun, .. } = run;
    for failure in &state.failures {
        println!("\n{}", describe(failure, &state.commit));
    }
    println!("\n{}", table::table(&state.hits, &state.cells));
    for gap in gaps {
        println!("{gap}");
    }
    let State { totals, commit, .. } = state;
    let (seeds, cpu, took) = (state.seeds(), state.cpu_us.max(1) as f64 / 1e6, begun.elapsed().as_secs_f64());
    println!("{seeds} seeds on {commit}, {done} of them now, in {took:.1} s: {totals:?}");
    println!(
        "{} faults hit work in flight; {:.3} CPU s a seed, {:.0} events a CPU s",
        state.hits.iter().sum::<u64>(),
        cpu / seeds.max(1) as f64,
        totals.events as f64 / cpu
    );
    println!("{} passed, {} failed", seeds - state.failed(), state.failed() + gaps.len() as u64);
}

/// The same for programs.
fn report(state: &State, gaps: &[String]) -> String {
    let totals = &state.totals;
    let counts = [
        ("seeds", state.seeds()),
        ("messages", totals.sent),
        ("events", totals.events),
        ("starts", totals.starts),
        ("connections", totals.connections),
        ("faults in flight", state.hits.iter().sum()),
        ("CPU ms a seed", state.cpu_us / 1000 / state.seeds().max(1)),
    ];
    let faults: Vec<(&str, u64)> = Kind::ALL.iter().map(|kind| (kind.name(), state.hits[*kind as usize])).collect();
    let failed = state.failures.iter().map(|failure| format!("{}: `{}`", failure.breach, failure.replay()));
    let report = serde_json::json!({
        "seeds": state.ranges(),
        "counts": counts,
        "faults": faults,
        "violations": state.failed() + gaps.len() as u64,
        "found": failed.chain(gaps.iter().cloned()).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

/// What failed, how, and how to see it again.
fn describe(failure: &Failure, commit: &str) -> String {
    let mut text = format!("seed {} on {commit}: {}\n  {}", failure.seed, failure.breach, failure.replay());
    for fault in failure.faults.iter().flatten() {
        text.push_str(&format!(
            "\n    {:>6} {:>10} µs {} {}",
            fault.number,
            fault.at_us,
            fault.host,
            fault.kind.name()
        ));
    }
    text
}

/// Which program this is: what another one did does not count.
fn program() -> io::Result<u64> {
    let mut digest = Digest::new();
    digest.add(&fs::read(std::env::current_exe()?)?);
    digest.number(Kind::COUNT as u64);
    Ok(digest.value())
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One seed after the other.
    fn job(&self) {
        let mut worker = Worker::new();
        while let Some(seed) = self.next() {
            if let Err(error) = self.seed(&mut worker, seed) {
                self.lock().broken = Some(error);
                return;
            }
        }
    }

    fn next(&self) -> Option<u64> {
        let mut run = self.lock();
        let until = self.campaign.from + self.campaign.seeds;
        while run.next < until && run.state.is_done(run.next) {
            run.next += 1;
        }
        let seed = run.next;
        run.next += 1;
        (seed < until && run.broken.is_none()).then_some(seed)
    }

    fn seed(&self, worker: &mut Worker, seed: u64) -> io::Result<()> {
        let mut outcome = worker.run(seed, None)?;
        outcome.demand();
        let failure = match outcome.breaches.first().cloned() {
            None => None,
            Some(breach) => {
                let like = |failure: &&Failure| failure.faults.is_some() && failure.breach.code == breach.code;
                let enough = self.lock().state.failures.iter().filter(like).count() >= SHRUNK;
                // More faults are no cure of a dull world.
                let faults = if enough || breach.code == "dull" { None } else { few(worker, &outcome, &breach.code)? };
                Some(Failure { seed, breach, faults })
            }
        };
        let mut run = self.lock();
        run.state.add(&outcome);
        run.done += 1;
        if let Some(failure) = failure {
            let text = describe(&failure, &run.state.commit);
            println!("FAILED {text}");
            note(&self.campaign.dir, &text)?;
            run.state.failures.push(failure);
        }
        if run.saved.elapsed() >= EVERY {
            run.saved = Instant::now();
            run.state.save(&self.path)?;
            let (seeds, failed) = (run.state.seeds(), run.state.failed());
            let cpu = run.state.cpu_us as f64 / 1e6 / seeds as f64;
            let took = run.begun.elapsed().as_secs_f64();
            println!(
                "{seeds} seeds, {failed} failed; {} of {} in {took:.0} s, {cpu:.3} CPU s a seed",
                run.done, self.campaign.seeds
            );
        }
        Ok(())
    }
}

/// Failing seeds outlive the state, and the program that they failed with.
fn note(dir: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(dir.join("failures"))?;
    writeln!(file, "{text}")
}

/// The fewest faults with which a seed still fails that way; `None`: it does not fail with those that were carried out alone.
fn few(worker: &mut Worker, outcome: &Outcome, code: &str) -> io::Result<Option<Vec<Occurred>>> {
    let seed = outcome.seed;
    let numbers: Vec<u32> = match &outcome.faults[..] {
        // Nobody told which were carried out.
        [] => faults_of(seed).iter().map(|fault| fault.number).collect(),
        some => some.iter().map(|fault| fault.number).collect(),
    };
    let mut error = None;
    let mut fails = |faults: &[u32]| match worker.run(seed, Some(faults)) {
        Ok(outcome) => outcome.breaches.iter().any(|breach| breach.code == code),
        Err(failed) => {
            error = Some(failed);
            false
        }
    };
    let found = if fails(&numbers) { Some(shrink::shrink(numbers, TRIES, fails)) } else { None };
    if let Some(error) = error {
        return Err(error);
    }
    let Some(found) = found else { return Ok(None) };
    // Once more, for their times.
    let times = worker.run(seed, Some(&found))?.faults;
    // A world that panics does not tell them: then as they were planned.
    let planned = faults_of(seed).into_iter().filter(|fault| found.contains(&fault.number)).map(|fault| {
        let told = times.iter().find(|told| told.number == fault.number).cloned();
        let Fault { number, at_us, kind, host, .. } = fault;
        told.unwrap_or_else(|| Occurred { number, at_us, kind, host: host_name(host) })
    });
    Ok(Some(planned.collect()))
}
