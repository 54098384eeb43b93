//! What a seed came to, as a worker tells it: lines of text that end with `end`.

use crate::coverage::CELLS;
use crate::fault::Kind;
use crate::plan::HITS;
use crate::verdict::{Breach, Occurred, Totals, Verdict};
use std::fmt::Write;

/// Messages of a world that is worth its name.
const MESSAGES: u64 = 2_000;

/// Transitions, by kind of fault (the last row: without any) and pair of state and event.
pub(crate) type Cells = Vec<[u64; CELLS]>;

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) digest: u64,
    pub(crate) totals: Totals,
    pub(crate) hits: [u64; Kind::COUNT],
    pub(crate) cells: Cells,
    pub(crate) faults: Vec<Occurred>,
    pub(crate) breaches: Vec<Breach>,
    /// Time of the processor, µs.
    pub(crate) cpu_us: u64,
}

impl Outcome {
    pub(crate) fn of(seed: u64, verdict: Verdict, cpu_us: u64) -> Outcome {
        let Verdict { digest, totals, breaches, hits, coverage, faults, .. } = verdict;
        Outcome { seed, digest, totals, hits, cells: coverage.cells, faults, breaches, cpu_us }
    }

    /// A worker has ended without a word about its seed.
    pub(crate) fn silent(seed: u64, why: String) -> Outcome {
        Outcome {
            seed,
            digest: 0,
            totals: Totals::default(),
            hits: [0; Kind::COUNT],
            cells: vec![[0; CELLS]; Kind::COUNT + 1],
            faults: Vec::new(),
            breaches: vec![Breach::new("abort", why)],
            cpu_us: 0,
        }
    }

    /// A world of all its faults has to be a world in which something happened.
    pub(crate) fn demand(&mut self) {
        let hits: u64 = self.hits.iter().sum();
        if self.breaches.is_empty() && (hits < HITS || self.totals.sent < MESSAGES) {
            let what = format!("{hits} faults hit work in flight, {} messages were sent", self.totals.sent);
            self.breaches.push(Breach::new("dull", what));
        }
    }

    pub(crate) fn write(&self) -> String {
        let mut text = format!("seed {}\ndigest {}\ncpu {}\n", self.seed, self.digest, self.cpu_us);
        write_totals(&mut text, &self.totals);
        write_counts(&mut text, &self.hits, &self.cells);
        for Occurred { number, at_us, kind, host } in &self.faults {
            let _written = writeln!(text, "fault {number} {at_us} {} {host}", kind.name());
        }
        for breach in &self.breaches {
            let _written = writeln!(text, "breach {} {}", breach.code, breach.what.replace('\n', "⏎"));
        }
        text.push_str("end\n");
        text
    }

    /// Out of its lines, without `end`.
    pub(crate) fn read(text: &str) -> Option<Outcome> {
        let mut outcome = Outcome::silent(0, String::new());
        outcome.breaches.clear();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "seed" => outcome.seed = rest.parse().ok()?,
                "digest" => outcome.digest = rest.parse().ok()?,
                "cpu" => outcome.cpu_us = rest.parse().ok()?,
                "totals" => outcome.totals = read_totals(rest)?,
                "hits" => outcome.hits = numbers(rest)?.try_into().ok()?,
                "cell" => read_cell(rest, &mut outcome.cells)?,
                "fault" => outcome.faults.push(read_fault(rest)?),
                "breach" => {
                    let (code, what) = rest.split_once(' ')?;
                    outcome.breaches.push(Breach::new(code, what.replace('⏎', "\n")));
                }
                _ => return None,
            }
        }
        Some(outcome)
    }
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(' ').map(|word| word.parse().ok()).collect()
}

pub(crate) fn write_totals(text: &mut String, totals: &Totals) {
    let values = totals.values().map(|value| value.to_string());
    let _written = writeln!(text, "totals {}", values.join(" "));
}

pub(crate) fn read_totals(rest: &str) -> Option<Totals> {
    Some(Totals::of(numbers(rest)?.try_into().ok()?))
}

pub(crate) fn write_counts(text: &mut String, hits: &[u64; Kind::COUNT], cells: &Cells) {
    let hits = hits.map(|hits| hits.to_string());
    let _written = writeln!(text, "hits {}", hits.join(" "));
    for (kind, cells) in cells.iter().enumerate() {
        for (cell, count) in cells.iter().enumerate().filter(|(_, count)| **count > 0) {
            let _written = writeln!(text, "cell {kind} {cell} {count}");
        }
    }
}

/// `hits`, of a line without that word.
pub(crate) fn read_hits(rest: &str) -> Option<[u64; Kind::COUNT]> {
    numbers(rest)?.try_into().ok()
}

pub(crate) fn read_cell(rest: &str, cells: &mut Cells) -> Option<()> {
    let [kind, cell, count] = numbers(rest)?.try_into().ok()?;
    *cells.get_mut(kind as usize)?.get_mut(cell as usize)? = count;
    Some(())
}

pub(crate) fn read_fault(rest: &str) -> Option<Occurred> {
    let words: Vec<&str> = rest.split(' ').collect();
    let [number, at_us, kind, host] = words.try_into().ok()?;
    Some(Occurred {
        number: number.parse().ok()?,
        at_us: at_us.parse().ok()?,
        kind: Kind::named(kind)?,
        host: host.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut outcome = Outcome::silent(77, "a sentence\n  of two lines".into());
        outcome.digest = u64::MAX;
        outcome.cpu_us = 5;
        outcome.totals.sent = 9;
        outcome.hits[3] = 4;
        outcome.cells[Kind::COUNT][CELLS - 1] = 12;
        outcome.faults.push(Occurred { number: 1_003, at_us: 1, kind: Kind::FlipBody, host: "n1".into() });
        let text = outcome.write();
        let text = text.strip_suffix("end\n").expect("the last line");
        assert_eq!(Outcome::read(text), Some(outcome));
        assert_eq!(Outcome::read("seed x"), None);
        assert_eq!(Outcome::read("what"), None);
    }

    #[test]
    fn a_world_without_faults_is_dull() {
        let mut outcome = Outcome::silent(1, String::new());
        outcome.breaches.clear();
        (outcome.totals.sent, outcome.hits[0]) = (MESSAGES, HITS);
        outcome.demand();
        assert_eq!(outcome.breaches, []);
        outcome.hits[0] -= 1;
        outcome.demand();
        assert_eq!(outcome.breaches[0].code, "dull");
    }
}
