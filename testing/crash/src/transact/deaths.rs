//! T12 of the fault plan: a branch is started, worked in, ended, prepared and decided, and at each of these steps the manager dies, or
//! the broker, or both, or what links them. What is in doubt is decided from another connection as the manager's log says, and the
//! branch has happened as a whole or not at all.

use super::bench::Bench;
use super::figures::Figures;
use super::ledger::Heard;
use super::manager::{Answer, Got, Manager, Verb, request};
use crate::broker::pause;
use crate::random::Random;
use crate::wire::Broken;
use packhorse_client_core::transaction::flags;
use serde_json::json;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

const IN: &str = "t12-in";
const OUT: &str = "t12-out";
/// Each start begins a segment.
const SETTINGS: [&str; 2] = ["--set", "data.segment_bytes=1048576"];
/// Timeout of a branch whose connection stands and says nothing more: nobody else can end the work in it.
const TIMEOUT_MS: u64 = 400;
/// How long the end of such a branch may be waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is done with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It begins.
    Start,
    /// A message is taken, and another one is sent.
    Work,
    /// Its work ends.
    End,
    /// It is prepared.
    Prepare,
    /// The manager commits it.
    Commit,
    /// The manager rolls it back.
    Rollback,
    /// An operator was quicker than the manager, which has heard of it and forgets it.
    Forget,
}

/// When in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing of it was sent.
    Before,
    /// It was sent, and the answer is not waited for.
    During,
    /// It was answered.
    After,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The manager: its log stays.
    Manager,
    /// The broker, by kill -9.
    Broker,
    /// One right after the other.
    Both,
    /// The connection is reset, or stands and says nothing more.
    Link,
}

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// At what.
    pub step: Step,
    /// When.
    pub when: When,
    /// Who.
    pub who: Who,
}

impl Cell {
    /// The whole table.
    pub fn all() -> Vec<Cell> {
        use Step::{Commit, End, Forget, Prepare, Rollback, Start, Work};
        let mut all = Vec::new();
        for step in [Start, Work, End, Prepare, Commit, Rollback, Forget] {
            for when in [When::Before, When::During, When::After] {
                for who in [Who::Manager, Who::Broker, Who::Both, Who::Link] {
                    all.push(Cell { step, when, who });
                }
            }
        }
        all
    }

    /// Work may be associated with the branch when it dies.
    fn is_open(self) -> bool {
        matches!(self.step, Step::Start | Step::Work | Step::End)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}, {:?} dies", self.when, self.step, self.who)
    }
}

/// What is known of a branch when somebody dies: the manager's log, and what an operator did.
#[derive(Debug)]
struct Branch {
    name: String,
    number: u64,
    txn: Vec<u8>,
    /// In the log.
    decision: Option<bool>,
    /// An operator's.
    heuristic: Option<bool>,
}

/// Each cell so many times, on one broker in `dir`.
pub fn run(dir: &Path, times: u64, seed: u64) -> Figures {
    run_planted(dir, times, seed, None)
}

/// The same with a fault planted in the broker, which must be one of feature `planted`.
pub fn run_planted(dir: &Path, times: u64, seed: u64, fault: Option<&str>) -> Figures {
    let bench = Bench::planted(dir, &SETTINGS, fault);
    let mut deaths = Deaths { bench, random: Random::new(seed), figures: Figures::new(seed), next: 0 };
    for time in 0..times {
        for cell in Cell::all() {
            if let Err(why) = deaths.cell(cell) {
                deaths.figures.found.push(format!("round {time}, {cell}: {why}"));
                return deaths.figures;
            }
            deaths.figures.count("cells", 1);
        }
    }
    deaths.figures
}

struct Deaths {
    bench: Bench,
    random: Random,
    figures: Figures,
    next: u64,
}

fn told(broken: Broken) -> String {
    format!("{broken:?}")
}

fn expect(what: &str, is: impl fmt::Debug, fine: bool) -> Result<(), String> {
    if fine { Ok(()) } else { Err(format!("{what}: {is:?}")) }
}

impl Deaths {
    fn cell(&mut self, cell: Cell) -> Result<(), String> {
        let number = self.next;
        self.next += 1;
        let name = format!("t12-{number}");
        let mut branch = Branch { name, number, txn: Vec::new(), decision: None, heuristic: None };
        let answer = self.bench.client("feeder").send(None, IN, number).map_err(told)?;
        expect("a message", &answer, answer == Answer::Accepted)?;
        let mut manager = self.bench.client("manager");
        self.live(&mut manager, &mut branch, cell)?;
        let silent = self.die(manager, cell.who);
        self.recover(&branch, cell, silent)
    }

    fn live(&mut self, manager: &mut Manager, branch: &mut Branch, cell: Cell) -> Result<(), String> {
        for step in [Step::Start, Step::Work, Step::End, Step::Prepare] {
            if step == cell.step {
                return self.last(manager, branch, cell);
            }
            self.carry_out(step, manager, branch, cell)?;
        }
        branch.decision = Some(match cell.step {
            Step::Commit => true,
            Step::Rollback => false,
            _ => self.random.below(2) == 0,
        });
        if cell.step == Step::Forget {
            self.interfere(manager, branch)?;
        }
        self.last(manager, branch, cell)
    }

    /// The step at which somebody dies.
    fn last(&mut self, manager: &mut Manager, branch: &mut Branch, cell: Cell) -> Result<(), String> {
        match cell.when {
            When::Before => return Ok(()),
            When::During => {
                self.begin(cell.step, manager, branch, cell).map_err(told)?;
                pause(Duration::from_micros(self.random.number() % 3_000));
                return Ok(());
            }
            When::After => self.carry_out(cell.step, manager, branch, cell)?,
        }
        if cell.step == Step::Prepare {
            // It dies before it has decided, or after it has written that down.
            branch.decision = *self.random.pick(&[None, Some(true), Some(false)]);
        }
        Ok(())
    }

    fn timeout(cell: Cell) -> u64 {
        if cell.who == Who::Link && cell.is_open() { TIMEOUT_MS } else { 0 }
    }

    fn carry_out(&mut self, step: Step, manager: &mut Manager, branch: &mut Branch, cell: Cell) -> Result<(), String> {
        let ledger = &mut self.bench.ledger;
        let code = match step {
            Step::Start => {
                let started = manager.start(&branch.name, flags::NONE, Deaths::timeout(cell)).map_err(told)?;
                branch.txn = started.map_err(|code| format!("start: {code}"))?;
                Ok(0)
            }
            Step::Work => {
                let got = take_one(manager).map_err(told)?;
                expect("the message that is there", got.number, got.number == branch.number)?;
                manager.accept(Some(&branch.txn), &got).map_err(told)?;
                let answer = manager.send(Some(&branch.txn), OUT, branch.number).map_err(told)?;
                expect("work", &answer, answer == Answer::Staged)?;
                Ok(0)
            }
            Step::End => manager.end(&branch.name, flags::SUCCESS),
            Step::Prepare => ledger.prepare(manager, &branch.name),
            Step::Commit => ledger.decide(manager, &branch.name, true),
            Step::Rollback => ledger.decide(manager, &branch.name, false),
            Step::Forget => manager.forget(&branch.name),
        };
        let code = code.map_err(told)?;
        expect(&format!("{step:?}"), code, code == 0)
    }

    /// Sends what the step says, and waits for nothing.
    fn begin(&mut self, step: Step, manager: &mut Manager, branch: &Branch, cell: Cell) -> Result<(), Broken> {
        let name = &branch.name;
        let verb = match step {
            Step::Start => Verb::Start { flags: flags::NONE, timeout: Deaths::timeout(cell) },
            Step::Work => {
                let got = take_one(manager)?;
                manager.accept(Some(&branch.txn), &got)?;
                manager.send_on(Some(&branch.txn), OUT, branch.number, true, 100)?;
                return manager.write();
            }
            Step::End => Verb::End(flags::SUCCESS),
            Step::Prepare => {
                self.bench.ledger.asks_to_prepare(name);
                Verb::Prepare
            }
            Step::Commit => {
                self.bench.ledger.asks_to_decide(name, true);
                Verb::Commit { one_phase: false }
            }
            Step::Rollback => {
                self.bench.ledger.asks_to_decide(name, false);
                Verb::Rollback
            }
            Step::Forget => Verb::Forget,
        };
        manager.ask(&request(name, verb)).map(|_| ())
    }

    /// An operator decides, and the manager hears of it.
    fn interfere(&mut self, manager: &mut Manager, branch: &mut Branch) -> Result<(), String> {
        let commits = self.random.below(2) == 0;
        let hex: String = branch.name.bytes().map(|byte| format!("{byte:02x}")).collect();
        let act = if commits { "commit" } else { "rollback" };
        let body = json!({ "reason": "the manager is gone" }).to_string();
        let path = format!("/api/v1/transactions/1:{hex}:62/{act}");
        let (status, answer) = self.bench.broker().request("POST", &path, &body);
        expect("an operator's decision", answer, status == 200)?;
        branch.heuristic = Some(commits);
        let decision = branch.decision.unwrap_or(false);
        let code = self.bench.ledger.decide(manager, &branch.name, decision).map_err(told)?;
        expect("what the manager hears", code, code == heuristic(commits))
    }

    /// The connection, if it stands.
    fn die(&mut self, manager: Manager, who: Who) -> Option<Manager> {
        self.figures.fault(&format!("{who:?} died").to_lowercase());
        match who {
            Who::Manager => {}
            Who::Broker => self.bench.kill(),
            Who::Both => {
                if self.random.below(2) == 0 {
                    drop(manager);
                    self.bench.kill();
                } else {
                    self.bench.stop();
                    drop(manager);
                    self.bench.start();
                }
            }
            Who::Link if self.random.below(3) == 0 => manager.reset(),
            Who::Link => return Some(manager),
        }
        None
    }

    fn recover(&mut self, branch: &Branch, cell: Cell, silent: Option<Manager>) -> Result<(), String> {
        let mut manager = self.bench.client("recovery");
        let listed = manager.recover().map_err(told)?;
        self.figures.count("found in doubt", listed.len() as u64);
        let wrong = self.bench.ledger.judge(&listed);
        expect("recover", &wrong, wrong.is_empty())?;
        let is_listed = listed.contains(&branch.name);
        let happened = match (branch.heuristic, self.bench.ledger.heard(&branch.name)) {
            (Some(commits), _) => {
                // It is listed until it is forgotten.
                expect("listed before the forget", is_listed, is_listed || cell.when != When::Before)?;
                expect("listed after it", is_listed, !is_listed || cell.when != When::After)?;
                let decision = branch.decision.unwrap_or(false);
                if is_listed {
                    let code = self.bench.ledger.decide(&mut manager, &branch.name, decision).map_err(told)?;
                    // The forget that was sent may have arrived only now.
                    let late = cell.when == When::During && code == -4;
                    expect("what the manager hears again", code, late || code == heuristic(commits))?;
                }
                let code = manager.forget(&branch.name).map_err(told)?;
                expect("forget", code, code == 0 || (code == -4 && cell.when != When::Before))?;
                commits
            }
            (None, Some(Heard::Decided(commits))) => {
                let code = self.bench.ledger.decide(&mut manager, &branch.name, commits).map_err(told)?;
                expect("the same decision again", code, code == 0)?;
                commits
            }
            (None, _) => {
                let decision = branch.decision.unwrap_or(false);
                let code = self.decide(&mut manager, branch, decision)?;
                let fine = code == 0 || (!decision && matches!(code, -4 | 100..=107));
                expect(&format!("the decision (commit: {decision})"), code, fine)?;
                decision
            }
        };
        self.figures.count(if happened { "committed" } else { "rolled back" }, 1);
        drop((silent, manager));
        self.bench.broker().until("the queues are at rest", |broker| {
            [IN, OUT].iter().all(|name| {
                let queue = broker.queue(name);
                let count = |what: &str| queue[what].as_u64().unwrap_or(0);
                count("depth") == count("ready") && count("staged") == 0
            })
        });
        self.bench.nothing_in_doubt();
        let mut taker = self.bench.client("taker");
        for (queue, there) in [(IN, !happened), (OUT, happened)] {
            let taken = taker.take(queue).map_err(told)?;
            let numbers: Vec<u64> = taken.iter().map(|(number, _)| *number).collect();
            let expected = if there { vec![branch.number] } else { vec![] };
            expect(&format!("{queue} (it happened: {happened})"), &numbers, numbers == expected)?;
        }
        Ok(())
    }

    /// Until the broker takes the decision: a connection that stands may still work in the branch, until its time is over.
    fn decide(&mut self, manager: &mut Manager, branch: &Branch, commit: bool) -> Result<i32, String> {
        const PROTO: i32 = -6;
        let until = Instant::now() + PATIENCE;
        loop {
            let code = self.bench.ledger.decide(manager, &branch.name, commit).map_err(told)?;
            if code != PROTO || Instant::now() > until {
                return Ok(code);
            }
            pause(Duration::from_millis(5));
        }
    }
}

fn take_one(manager: &mut Manager) -> Result<Got, Broken> {
    let link = manager.receiver(IN, 1)?;
    let got = manager.receive(link, 1)?;
    Ok(got[0])
}

/// `XA_HEURCOM`, `XA_HEURRB`.
fn heuristic(commits: bool) -> i32 {
    if commits { 7 } else { 6 }
}
