//! What a campaign has so far, in one file: which seeds are done with which program, what they came to, which failed. Replaced as a whole,
//! so that a campaign that is killed goes on where the file was written last.

use super::outcome::{self, Cells, Outcome};
use crate::coverage::CELLS;
use crate::fault::Kind;
use crate::verdict::{Breach, Occurred, Totals};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The first line.
const HEAD: &str = "packhorse-sim campaign 1";

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    /// The first of its breaches.
    pub(crate) breach: Breach,
    /// The fewest faults that were found with which it fails that way; `None`: nobody looked, or only all of them do.
    pub(crate) faults: Option<Vec<Occurred>>,
}

impl Failure {
    /// The command that shows it.
    pub(crate) fn replay(&self) -> String {
        let numbers = self.faults.as_ref().map(|faults| {
            let mut numbers: Vec<u32> = faults.iter().map(|fault| fault.number).collect();
            numbers.sort_unstable();
            format!(" --faults {}", super::worker::list(&numbers))
        });
        format!("cargo xtask sim --seed {}{}", self.seed, numbers.unwrap_or_default())
    }
}

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Digest of the program.
    pub(crate) program: u64,
    /// For people.
    pub(crate) commit: String,
    pub(crate) totals: Totals,
    pub(crate) cpu_us: u64,
    pub(crate) hits: [u64; Kind::COUNT],
    pub(crate) cells: Cells,
    /// First and last seed of each run of seeds without a gap.
    done: BTreeMap<u64, u64>,
    pub(crate) failures: Vec<Failure>,
}

impl State {
    pub(crate) fn new(program: u64, commit: &str) -> State {
        State {
            program,
            commit: commit.to_owned(),
            totals: Totals::default(),
            cpu_us: 0,
            hits: [0; Kind::COUNT],
            cells: vec![[0; CELLS]; Kind::COUNT + 1],
            done: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn is_done(&self, seed: u64) -> bool {
        self.done.range(..=seed).next_back().is_some_and(|(_, last)| *last >= seed)
    }

    /// Seeds that are done.
    pub(crate) fn seeds(&self) -> u64 {
        self.done.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The same for people: `1–300, 500`.
    pub(crate) fn ranges(&self) -> String {
        let one = |(first, last): (&u64, &u64)| match first == last {
            true => first.to_string(),
            false => format!("{first}–{last}"),
        };
        self.done.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.len() as u64
    }

    /// Takes in what a seed came to.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let seed = outcome.seed;
        self.totals.add(&outcome.totals);
        self.cpu_us += outcome.cpu_us;
        self.hits.iter_mut().zip(outcome.hits).for_each(|(sum, hits)| *sum += hits);
        for (sum, cells) in self.cells.iter_mut().flatten().zip(outcome.cells.iter().flatten()) {
            *sum += cells;
        }
        let before = self.done.range(..seed).next_back().map(|(first, last)| (*first, *last));
        let first = match before {
            Some((first, last)) if last + 1 == seed => first,
            _ => seed,
        };
        let last = self.done.remove(&(seed + 1)).unwrap_or(seed);
        self.done.insert(first, last);
    }

    fn write(&self) -> String {
        let mut text = format!("{HEAD}\nprogram {:016x}\ncommit {}\ncpu {}\n", self.program, self.commit, self.cpu_us);
        outcome::write_totals(&mut text, &self.totals);
        outcome::write_counts(&mut text, &self.hits, &self.cells);
        for (first, last) in &self.done {
            let _written = writeln!(text, "done {first} {last}");
        }
        for Failure { seed, breach, faults } in &self.failures {
            let shrunk = if faults.is_some() { "shrunk" } else { "whole" };
            let what = breach.what.replace('\n', "⏎");
            let _written = writeln!(text, "failed {seed} {shrunk} {} {what}", breach.code);
            for Occurred { number, at_us, kind, host } in faults.iter().flatten() {
                let _written = writeln!(text, "fault {number} {at_us} {} {host}", kind.name());
            }
        }
        text
    }

    fn read(text: &str) -> Option<State> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return None;
        }
        let mut state = State::new(0, "");
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "program" => state.program = u64::from_str_radix(rest, 16).ok()?,
                "commit" => state.commit = rest.to_owned(),
                "cpu" => state.cpu_us = rest.parse().ok()?,
                "totals" => state.totals = outcome::read_totals(rest)?,
                "hits" => state.hits = outcome::read_hits(rest)?,
                "cell" => outcome::read_cell(rest, &mut state.cells)?,
                "done" => {
                    let (first, last) = rest.split_once(' ')?;
                    state.done.insert(first.parse().ok()?, last.parse().ok()?);
                }
                "failed" => {
                    let words: Vec<&str> = rest.splitn(4, ' ').collect();
                    let [seed, shrunk, code, what] = words.try_into().ok()?;
                    let breach = Breach::new(code, what.replace('⏎', "\n"));
                    let faults = (shrunk == "shrunk").then(Vec::new);
                    state.failures.push(Failure { seed: seed.parse().ok()?, breach, faults });
                }
                "fault" => {
                    let faults = state.failures.last_mut()?.faults.as_mut()?;
                    faults.push(outcome::read_fault(rest)?);
                }
                _ => return None,
            }
        }
        Some(state)
    }

    /// The state in a file; `None`: there is none yet, or it is of another version of this program's.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn load(path: &Path) -> io::Result<Option<State>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(State::read(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        std::fs::write(&new, self.write())?;
        std::fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seed: u64) -> Outcome {
        let mut outcome = Outcome::silent(seed, "gone".into());
        outcome.totals.events = 10;
        outcome.hits[1] = 2;
        outcome.cells[0][5] = 3;
        outcome
    }

    #[test]
    fn seeds_that_are_done_become_runs_without_a_gap() {
        let mut state = State::new(1, "c");
        for seed in [5, 7, 6, 1, 2, 9] {
            assert!(!state.is_done(seed));
            state.add(&outcome(seed));
            assert!(state.is_done(seed));
        }
        assert_eq!(state.done, BTreeMap::from([(1, 2), (5, 7), (9, 9)]));
        assert_eq!((state.seeds(), state.ranges().as_str()), (6, "1–2, 5–7, 9"));
        assert!(!state.is_done(3) && !state.is_done(8) && !state.is_done(10));
        assert_eq!((state.totals.events, state.hits[1], state.cells[0][5]), (60, 12, 18));
    }

    #[test]
    fn a_campaign_goes_on_where_it_was() {
        let path = std::env::temp_dir().join(format!("packhorse-sim-state-{}", std::process::id()));
        let mut state = State::new(77, "abc, changed");
        state.add(&outcome(4));
        let host = "n0".to_owned();
        let fault = Occurred { number: 3, at_us: 9, kind: Kind::Kill, host };
        let breach = Breach::new("I1", "I1 lost: x\n  sent a:1".into());
        state.failures.push(Failure { seed: 4, breach: breach.clone(), faults: Some(vec![fault]) });
        state.failures.push(Failure { seed: 5, breach: breach.clone(), faults: Some(vec![]) });
        state.failures.push(Failure { seed: 6, breach, faults: None });
        state.save(&path).expect("a temporary file");
        assert_eq!(State::load(&path).expect("it is there"), Some(state.clone()));
        let replays: Vec<String> = state.failures.iter().map(Failure::replay).collect();
        assert_eq!(replays[0], "cargo xtask sim --seed 4 --faults 3");
        assert_eq!(replays[1], "cargo xtask sim --seed 5 --faults -");
        assert_eq!(replays[2], "cargo xtask sim --seed 6");
        std::fs::write(&path, "something else").expect("a temporary file");
        assert_eq!(State::load(&path).expect("it is there"), None);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(State::load(&path).expect("no file is no error"), None);
    }
}
