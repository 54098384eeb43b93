//! Faults planted in the broker on purpose: each must be found by ordinary worlds, and for what it is.
//!
//! A fault is the choice of a whole process, so each has a process of its own (`packhorse-sim planted-one NAME`), two at a time. The
//! control is a process without a fault, whose worlds must be clean. Must not know what a fault does; what it must be found as is the
//! table here.

use crate::plan::Settings;
use crate::trial::trial;
use packhorse_model::{Planted, choose_planted};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Worlds within which each fault must be found.
const SEEDS: u64 = 300;

/// Worlds without a fault.
const CONTROL_SEEDS: u64 = 10;

/// Processes at a time.
const JOBS: usize = 2;

/// What the control is called.
const NONE: &str = "none";

/// The verb of a process with one fault.
const ONE: &str = "planted-one";

/// What each fault breaks: at least one of these must be named. In a world other things may break as well, for a message that is not
/// where the broker thinks has more than one consequence.
pub(crate) fn expected(fault: Planted) -> &'static [&'static str] {
    match fault {
        Planted::SkipFlush | Planted::ConfirmEarly | Planted::DropLastRecord => &["I1"],
        Planted::DropWhenFull | Planted::ForgetDeadLetterHalf | Planted::ShowEarly => &["I1"],
        Planted::WrongQueue => &["I2"],
        Planted::ForgetAcknowledgement | Planted::ResurrectAcknowledged => &["I3"],
        Planted::DeliverTwice | Planted::DeliverToTwo | Planted::StoreAgain => &["I3", "I4"],
        Planted::RedeliverUnflagged => &["I4", "I10"],
        Planted::LoseMark => &["I4"],
        Planted::SwapMessages | Planted::ReturnToTail => &["I5"],
        Planted::KeepSource => &["I8"],
        Planted::LeakCredit => &["I9"],
        Planted::ForgetCount => &["I10"],
        Planted::LeakMemory => &["I11"],
        Planted::HalveCommit => &["I6"],
        Planted::ForgetBranch | Planted::TimeOutPrepared | Planted::ReleaseRemove => &["I7"],
        Planted::CountTwice => &["I12"],
        // A number that two messages have: what is said of one of them is done to the other.
        Planted::ReuseSequence => &["I1", "I2", "I3"],
    }
}

/// Occasions for each time, in a world of two thousand messages.
fn one_in(fault: Planted) -> u32 {
    match fault {
        // What is never flushed is missed at the next start, which is refused, and no message is judged.
        Planted::SkipFlush => 3,
        Planted::ConfirmEarly => 20,
        Planted::ForgetCount => 2,
        Planted::KeepSource => 1,
        fault => fault.usual(),
    }
}

/// What came of one fault.
#[derive(Debug, Default)]
struct Row {
    fault: String,
    expected: &'static [&'static str],
    /// Everything that was named in the worlds that were run, invariants first.
    named: BTreeSet<String>,
    seeds: u64,
    /// The first breach of all, and the one that counts.
    first: String,
    told: String,
    took: Duration,
    /// How the process ended, if not as it should.
    failed: Option<String>,
}

impl Row {
    fn good(&self) -> bool {
        let found = self.expected.iter().any(|code| self.named.contains(*code));
        self.failed.is_none() && (if self.fault == NONE { self.named.is_empty() } else { found })
    }

    /// One line of what a process says of a world: `seed N`, or `breach CODE TEXT`.
    fn take(&mut self, line: &str) {
        if let Some(seed) = line.strip_prefix("seed ").and_then(|rest| rest.parse().ok()) {
            self.seeds = seed;
        } else if let Some((code, text)) = line.strip_prefix("breach ").and_then(|rest| rest.split_once(' ')) {
            self.named.insert(code.to_owned());
            let known = format!("seed {}: {text}", self.seeds);
            if self.first.is_empty() {
                self.first.clone_from(&known);
            }
            if self.told.is_empty() && self.expected.contains(&code) {
                self.told = known;
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<&str> = self.named.iter().map(String::as_str).collect();
        let named = if named.is_empty() { "–".to_owned() } else { named.join(" ") };
        let evidence = match (&self.failed, self.told.as_str(), self.first.as_str()) {
            (Some(why), ..) => why.as_str(),
            (None, "", "") => "0 violations",
            (None, "", first) => first,
            (None, told, _) => told,
        };
        let wanted = self.expected.join("/");
        let bad = match self.good() {
            true => String::new(),
            false => format!("NOT AS IT MUST BE (`packhorse-sim --seed {} --planted {}`): ", self.seeds, self.fault),
        };
        let took = self.took.as_secs_f64();
        write!(f, "{:<25}{wanted:<10}{named:<34}{:>5}{took:>7.1} s  {bad}{evidence}", self.fault, self.seeds)
    }
}

/// Runs each fault, or only these, and the control; prints the table and a line of counts. `seeds`: most worlds for each. Answer: all
/// is as it must be.
///
/// # Errors
/// There is no such fault: a sentence.
pub fn planted(only: &[String], seeds: Option<u64>) -> Result<bool, String> {
    only.iter().try_for_each(|name| plant(name))?;
    let all = std::iter::once(NONE).chain(Planted::ALL.into_iter().map(Planted::name));
    let queue: VecDeque<&str> = all.filter(|name| only.is_empty() || only.iter().any(|one| one == name)).collect();
    let order = queue.clone();
    let queue = Mutex::new(queue);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(name) = queue.lock().ok().and_then(|mut queue| queue.pop_front()) {
                    let row = in_a_process(name, seeds);
                    if let Ok(mut rows) = rows.lock() {
                        rows.push(row);
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().map_err(|_| "a process was not waited for".to_owned())?;
    rows.sort_by_key(|row| order.iter().position(|name| *name == row.fault));
    println!("{:<25}{:<10}{:<34}{:>5}{:>9}  first breach", "planted fault", "expected", "named", "seeds", "took");
    rows.iter().for_each(|row| println!("{row}"));
    let passed = rows.iter().filter(|row| row.good()).count();
    println!("{passed} passed, {} failed, 0 skipped", order.len() - passed);
    Ok(passed == order.len())
}

fn in_a_process(name: &str, seeds: Option<u64>) -> Row {
    let begin = Instant::now();
    let expected = Planted::named(name).map_or(&[][..], expected);
    let mut row = Row { fault: name.to_owned(), expected, ..Row::default() };
    let most = seeds.unwrap_or(if name == NONE { CONTROL_SEEDS } else { SEEDS });
    if let Err(why) = listen(name, most, &mut row) {
        row.failed = Some(why);
    }
    row.took = begin.elapsed();
    row
}

fn listen(name: &str, seeds: u64, row: &mut Row) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("which program is this? {error}"))?;
    let mut command = Command::new(program);
    command.args([ONE, name, "--seeds", &seeds.to_string()]).stdout(Stdio::piped());
    let mut process = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
    let output = process.stdout.take().ok_or("it has no output")?;
    for line in BufReader::new(output).lines() {
        row.take(&line.map_err(|error| format!("it cannot be heard: {error}"))?);
    }
    let status = process.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("its process ended with {status}")) }
}

/// Plants this fault in the worlds of this process, from now on; `none`: no fault.
///
/// # Errors
/// There is no such fault: a sentence.
pub fn plant(name: &str) -> Result<(), String> {
    let fault = Planted::named(name);
    if fault.is_none() && name != NONE {
        let names = Planted::ALL.map(Planted::name).join(", ");
        return Err(format!("there is no fault {name}; there are {names}"));
    }
    choose_planted(fault, fault.map_or(1, one_in));
    Ok(())
}

/// The process of one fault: worlds until one breaks what the fault must break, at most `seeds`.
///
/// # Errors
/// There is no such fault: a sentence.
pub fn one(name: &str, seeds: u64) -> Result<bool, String> {
    let wanted = Planted::named(name).map_or(&[][..], expected);
    for seed in 1..=seeds {
        println!("seed {seed}");
        // Anew for each world, so that one alone is the same.
        plant(name)?;
        let breaches = trial(&Settings::new(seed)).breaches;
        for breach in &breaches {
            println!("breach {} {}", breach.code, breach.to_string().replace('\n', " "));
        }
        if breaches.iter().any(|breach| wanted.contains(&breach.code.as_str())) {
            break;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_invariant_has_a_fault_that_must_break_it() {
        let all: BTreeSet<&str> = Planted::ALL.into_iter().flat_map(expected).copied().collect();
        for code in ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12"] {
            assert!(all.contains(code), "no fault breaks {code}");
        }
        assert!(Planted::ALL.len() >= 14);
    }

    fn row(fault: &str, lines: &[&str]) -> Row {
        let expected = Planted::named(fault).map_or(&[][..], expected);
        let mut row = Row { fault: fault.to_owned(), expected, ..Row::default() };
        lines.iter().for_each(|line| row.take(line));
        row
    }

    #[test]
    fn a_fault_counts_as_found_only_by_what_it_breaks() {
        let found = row("swap-messages", &["seed 1", "breach audit x", "seed 2", "breach I5 later first"]);
        assert!(found.good());
        assert_eq!((found.seeds, found.told.as_str()), (2, "seed 2: later first"));
        assert!(!row("swap-messages", &["seed 1", "breach panic x", "breach I1 gone"]).good());
        assert!(!row("swap-messages", &["seed 1"]).good());
        assert!(row(NONE, &["seed 10"]).good());
        assert!(!row(NONE, &["seed 1", "breach I1 gone"]).good());
        let mut died = row("swap-messages", &["seed 1", "breach I5 later first"]);
        died.failed = Some("it ended".to_owned());
        assert!(!died.good());
    }
}
