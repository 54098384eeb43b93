//! Long runs: what was run, how often, on which commit, with how many faults of each kind, and what it found.
//!
//! Owns `docs/durability.toml`, to which tools add and from which nothing is taken, and how it is shown.

use super::{header, row};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The file of all runs.
pub(super) const DATA: &str = "docs/durability.toml";

/// One long run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// What was run: `kills with faults`, `sim seeds` … Runs of a kind share a table.
    pub(crate) kind: String,
    /// The day, `2026-11-30`.
    pub(crate) date: String,
    /// The commit that was run.
    pub(crate) commit: String,
    /// Whether the tree was not exactly that commit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) dirty: bool,
    /// The seeds, for people: `1–20`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) seeds: String,
    /// How much was done: a name and a number each, in the order in which they are to be shown.
    pub(crate) counts: Vec<(String, u64)>,
    /// Faults while work was in flight, by kind.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) faults: Vec<(String, u64)>,
    /// Broken invariants, and whatever else was broken.
    pub(crate) violations: u64,
    /// What was found, a sentence each.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) found: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Run {
    /// A run of this kind that ends today, on the commit that is checked out; all else is to be filled in.
    pub(crate) fn of(kind: &str) -> Run {
        let root = crate::workspace::root();
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).current_dir(&root).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Run {
            kind: kind.to_owned(),
            date: date(seconds),
            commit: git(&["rev-parse", "--short=7", "HEAD"]).unwrap_or_else(|| "unknown".to_owned()),
            // The figures themselves are no change of what was run.
            dirty: git(&["status", "--porcelain", "--", ".", ":!docs"]).is_none_or(|changes| !changes.is_empty()),
            ..Run::default()
        }
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }
}

/// The day of a time in seconds since 1970, in UTC.
fn date(seconds: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, seconds / 86_400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    run: Vec<Run>,
}

/// All runs, oldest first.
pub(super) fn read(root: &Path) -> Result<Vec<Run>, String> {
    let file: File = toml::from_str(&super::read(root, DATA)?).map_err(|error| format!("{DATA}: {error}"))?;
    Ok(file.run)
}

/// Adds one at the end.
pub(super) fn add(root: &Path, run: &Run) -> Result<(), String> {
    // One that cannot be read must not be added to.
    read(root)?;
    let text = toml::to_string(&File { run: vec![run.clone()] }).map_err(|error| format!("{DATA}: {error}"))?;
    let file = fs::File::options().append(true).open(root.join(DATA));
    file.and_then(|mut file| write!(file, "\n{text}")).map_err(|error| format!("cannot write {DATA}: {error}"))
}

/// For each kind of run, the one that was run last first: a table of its runs, the newest first, the faults of all of them together,
/// what they found.
pub(super) fn render(runs: &[Run]) -> String {
    let mut text = String::new();
    for kind in names(runs.iter().rev().map(|run| &run.kind)) {
        let runs: Vec<&Run> = runs.iter().rev().filter(|run| run.kind == *kind).collect();
        let _ = writeln!(text, "### {}{}\n", kind[..1].to_uppercase(), &kind[1..]);
        let counts = names(runs.iter().flat_map(|run| run.counts.iter().map(|(name, _)| name)));
        let columns = ["date", "commit", "seeds"].into_iter();
        text += &header(columns.chain(counts.iter().map(|name| name.as_str())).chain(["violations"]));
        for run in &runs {
            let commit = format!("{}{}", run.commit, if run.dirty { " and changes" } else { "" });
            let counts = counts.iter().map(|name| run.count(name).map_or("–".to_owned(), grouped));
            let first = [run.date.clone(), commit, run.seeds.clone()].into_iter();
            text += &row(first.chain(counts).chain([grouped(run.violations)]));
        }
        text += "\n";
        let faults = names(runs.iter().flat_map(|run| run.faults.iter().map(|(name, _)| name)));
        if !faults.is_empty() {
            let sum = |kind: &String| -> u64 {
                runs.iter().flat_map(|run| &run.faults).filter(|(known, _)| known == kind).map(|(_, hits)| hits).sum()
            };
            let hits: Vec<String> = faults.iter().map(|kind| format!("{kind} {}", grouped(sum(kind)))).collect();
            let _ = writeln!(text, "Faults while work was in flight, in all of these: {}.\n", hits.join(", "));
        }
        let mut found = runs.iter().flat_map(|run| run.found.iter().map(|what| (&run.date, what))).peekable();
        if found.peek().is_some() {
            text += "Found:\n\n";
            found.for_each(|(date, what)| text += &format!("- {date}: {what}\n"));
            text += "\n";
        }
    }
    text
}

/// Each name once, in the order in which they come first.
fn names<'a>(all: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
    let mut names = Vec::new();
    all.into_iter().for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    names
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(date: &str, seeds: u64) -> Run {
        Run {
            kind: "sim seeds".to_owned(),
            date: date.to_owned(),
            commit: "abc".to_owned(),
            seeds: "1–9".to_owned(),
            counts: vec![("seeds".to_owned(), seeds), ("events".to_owned(), 1_234_567)],
            faults: vec![("pause".to_owned(), 5)],
            violations: 1,
            found: vec!["a \"bug\", and\nmore".to_owned()],
            ..Run::default()
        }
    }

    #[test]
    fn what_is_added_is_read_again_after_what_was_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("docs")).expect("writable");
        fs::write(folder.path().join(DATA), "# Head\n").expect("writable");
        let runs = [sample("2026-01-01", 1), Run { dirty: true, ..sample("2026-01-02", 2) }];
        runs.iter().for_each(|run| add(folder.path(), run).expect("it can be read"));
        assert_eq!(read(folder.path()), Ok(runs.to_vec()));
        fs::write(folder.path().join(DATA), "[[run]]\nkind = 5\n").expect("writable");
        add(folder.path(), &runs[0]).expect_err("what is there is no run");
    }

    #[test]
    fn runs_of_a_kind_share_a_table_and_their_faults_are_summed() {
        let other = Run {
            kind: "kills".to_owned(),
            counts: Vec::new(),
            faults: Vec::new(),
            found: Vec::new(),
            ..sample("2026-01-01", 0)
        };
        let text = render(&[sample("2026-01-01", 1), other, Run { dirty: true, ..sample("2026-01-02", 20_000) }]);
        let expected = "### Sim seeds\n\n| date | commit | seeds | seeds | events | violations |\n| --- | --- | --- | --- | --- | --- |\n\
            | 2026-01-02 | abc and changes | 1–9 | 20,000 | 1,234,567 | 1 |\n| 2026-01-01 | abc | 1–9 | 1 | 1,234,567 | 1 |\n\n\
            Faults while work was in flight, in all of these: pause 10.\n\nFound:\n\n- 2026-01-02: a \"bug\"";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("### Kills\n\n| date | commit | seeds | violations |\n"), "{text}");
    }

    #[test]
    fn days_and_numbers() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_399), "2000-02-28");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_796_000_000), "2026-11-30");
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_run_of_today_knows_its_commit() {
        let run = Run::of("kills");
        assert_eq!((run.kind.as_str(), run.date.len()), ("kills", 10));
        assert!(!run.commit.is_empty());
    }
}
