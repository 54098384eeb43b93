//! What a campaign came to, for the programs that keep such figures: one JSON object in a file.

use super::campaign::Verdict;
use serde_json::{Value, json};
use std::path::Path;

impl Verdict {
    /// Counts and faults in the order in which they are to be shown, the seeds, and what was broken.
    pub fn report(&self) -> Value {
        let word = self.word;
        let counts = [
            (format!("{word}s counted"), self.counted),
            (format!("{word}s made"), self.made),
            ("runs".to_owned(), self.runs),
            ("with foreign clients".to_owned(), self.foreign),
            ("confirmed".to_owned(), self.confirmed),
            ("acknowledged, answered".to_owned(), self.acknowledged),
            ("flagged redelivered".to_owned(), self.redelivered),
            ("dead letters".to_owned(), self.dead_letters),
            ("starts killed".to_owned(), self.killed_starting),
            ("checkpoints".to_owned(), self.checkpoints),
            (format!("of these being written at a {word}"), self.checkpoints_under_way),
            (format!("large files at {word}s"), self.large_files),
            ("transactions committed".to_owned(), self.committed),
            ("branches decided".to_owned(), self.decided),
            (format!("{word}s amid the end of a transaction"), self.amid_decisions),
            (format!("{word}s with branches in doubt"), self.amid_doubt),
        ];
        let violations: u64 = self.violated.iter().map(|(_, count)| count).sum();
        let seeds = match self.runs {
            0 | 1 => self.seed.to_string(),
            runs => format!("{}–{}", self.seed, self.seed + runs - 1),
        };
        let found: Vec<&String> = self.evidence.iter().filter(|_| !self.is_clean()).collect();
        let mut faults = vec![("pause", self.pauses)];
        faults.extend(self.hits.iter().flat_map(|hits| hits.each()));
        json!({
            "seeds": seeds,
            "counts": counts,
            "faults": faults,
            "violations": violations + self.broken.len() as u64,
            "found": found,
        })
    }

    /// Writes that.
    ///
    /// # Errors
    /// The file cannot be written: a sentence.
    pub fn write_report(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, format!("{:#}\n", self.report())).map_err(|e| format!("{}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Hits;

    #[test]
    fn the_report_has_everything_that_is_kept() {
        let clean = Verdict { word: "kill", seed: 7, runs: 3, counted: 5, pauses: 4, ..Verdict::default() }.report();
        assert_eq!((clean["seeds"].as_str(), clean["violations"].as_u64()), (Some("7–9"), Some(0)));
        assert_eq!(clean["counts"][0], json!(["kills counted", 5]));
        assert_eq!(clean["faults"], json!([["pause", 4]]));
        assert_eq!(clean["found"], json!([]));
        let disturbed = Verdict { hits: Some(Hits::default()), ..Verdict::default() }.report();
        assert_eq!(disturbed["faults"].as_array().map(Vec::len), Some(11));
        assert_eq!(disturbed["faults"][3], json!(["reset", 0]));
        let broken = vec!["it ended".to_owned()];
        let broken = Verdict { runs: 1, broken, evidence: Some("it ended".into()), ..Verdict::default() }.report();
        assert_eq!((broken["seeds"].as_str(), broken["violations"].as_u64()), (Some("0"), Some(1)));
        assert_eq!(broken["found"], json!(["it ended"]));
    }
}
