//! The counts that were reached: a line each, `NAME COUNT`, kept in the repository.

use std::collections::BTreeMap;
use std::fmt;

const HEAD: &str =
    "# Instructions a message, release build. `cargo xtask bench instructions --update` writes this file.\n";

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Baseline {
    counts: BTreeMap<String, u64>,
}

/// What a count is beside its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Within the tolerance.
    Same,
    /// So many percent more.
    More(f64),
    /// So many percent fewer.
    Fewer(f64),
    /// There is no baseline.
    New,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Same => f.write_str("as before"),
            Verdict::More(percent) => write!(f, "FAILED: {percent:.1} % more"),
            Verdict::Fewer(percent) => write!(f, "FAILED: {percent:.1} % fewer"),
            Verdict::New => f.write_str("FAILED: has no baseline"),
        }
    }
}

impl Baseline {
    /// Reads a file of counts.
    pub(crate) fn parse(text: &str) -> Result<Baseline, String> {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || format!("baseline: `{line}` is not NAME COUNT");
            let (name, count) = line.split_once(' ').ok_or_else(wrong)?;
            counts.insert(name.to_owned(), count.trim().parse().map_err(|_| wrong())?);
        }
        Ok(Baseline { counts })
    }

    /// The file.
    pub(crate) fn render(&self) -> String {
        let lines = self.counts.iter().map(|(name, count)| format!("{name} {count}\n"));
        std::iter::once(HEAD.to_owned()).chain(lines).collect()
    }

    /// Keeps a count.
    pub(crate) fn set(&mut self, name: &str, count: u64) {
        self.counts.insert(name.to_owned(), count);
    }

    /// Compares a count with what is kept.
    pub(crate) fn judge(&self, name: &str, count: u64, tolerance_percent: f64) -> Verdict {
        let Some(before) = self.counts.get(name).filter(|before| **before > 0) else { return Verdict::New };
        // The difference first: it is exact, and 3 % of 1,000 is not a hair more than 30.
        let percent = (count as f64 - *before as f64) * 100.0 / *before as f64;
        match percent {
            percent if percent > tolerance_percent => Verdict::More(percent),
            percent if percent < -tolerance_percent => Verdict::Fewer(-percent),
            _ => Verdict::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut baseline = Baseline::default();
        baseline.set("queue", 500);
        baseline.set("link", 3000);
        assert_eq!(Baseline::parse(&baseline.render()), Ok(baseline));
        assert!(Baseline::parse("queue\n").is_err());
        assert!(Baseline::parse("queue many\n").is_err());
    }

    #[test]
    fn the_gate_closes_on_both_sides() {
        let baseline = Baseline::parse("queue 1000\n").unwrap();
        let judge = |count| baseline.judge("queue", count, 3.0);
        assert_eq!([judge(970), judge(1000), judge(1030)], [Verdict::Same; 3]);
        assert!(matches!(judge(1031), Verdict::More(p) if p > 3.0));
        assert!(matches!(judge(969), Verdict::Fewer(p) if p > 3.0));
        assert_eq!(baseline.judge("link", 5, 3.0), Verdict::New);
    }
}
