//! What a run came to, in figures: shown at its end, and kept by whoever asks for a report.

use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

/// See the module. Names are kept in the order in which they first came.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What it was drawn from.
    pub seed: u64,
    counts: Vec<(String, u64)>,
    faults: Vec<(String, u64)>,
    /// What must not be, a line each.
    pub found: Vec<String>,
}

impl Figures {
    /// Of a run of this seed.
    pub fn new(seed: u64) -> Figures {
        Figures { seed, ..Figures::default() }
    }

    /// Nothing was found.
    pub fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// So many more of something.
    pub fn count(&mut self, name: &str, more: u64) {
        add(&mut self.counts, name, more);
    }

    /// One more fault.
    pub fn fault(&mut self, name: &str) {
        add(&mut self.faults, name, 1);
    }

    /// How many of something there were, or of a fault.
    pub fn of(&self, name: &str) -> u64 {
        self.counts.iter().chain(&self.faults).find(|(there, _)| there == name).map_or(0, |(_, count)| *count)
    }

    /// Writes it as the tools that keep runs read it.
    ///
    /// # Errors
    /// The file cannot be written: a sentence.
    pub fn write_report(&self, path: &Path) -> Result<(), String> {
        let report: Value = json!({
            "seeds": self.seed.to_string(),
            "counts": self.counts,
            "faults": self.faults,
            "violations": self.found.len(),
            "found": self.found.iter().take(3).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{report:#}\n")).map_err(|e| format!("{}: {e}", path.display()))
    }
}

fn add(to: &mut Vec<(String, u64)>, name: &str, more: u64) {
    match to.iter_mut().find(|(there, _)| there == name) {
        Some((_, count)) => *count += more,
        None => to.push((name.to_owned(), more)),
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.found {
            writeln!(f, "  {line}")?;
        }
        let all = self.counts.iter().chain(&self.faults);
        let all: Vec<String> = all.map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "seed {}: {}: {} violations", self.seed, all.join(", "), self.found.len())
    }
}
