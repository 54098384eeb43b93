//! `cargo xtask tidy`: rules that the compiler does not know. Each rule is one module; this file runs them and prints.
//!
//! A finding names the place, what is wrong there and what to do. Must not do: change a file.

mod accepted;
pub(crate) mod coverage;
mod edges;
mod external;
mod links;
mod longest;
mod markdown;
mod sources;
mod testcommand;
mod walks;

use crate::record::Record;
use crate::workspace::{self, Metadata};
use std::fmt;
use std::fs;
use std::path::Path;

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    place: String,
    what: String,
    remedy: String,
}

impl Finding {
    /// Place, what is wrong, what to do.
    fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { place: place.into(), what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: {}\n      {}", self.place, self.what, self.remedy)
    }
}

/// What rules look at.
struct Tree<'a> {
    root: &'a Path,
    files: Vec<String>,
    metadata: &'a Metadata,
}

impl Tree<'_> {
    /// A file's text; an unreadable or missing one is a finding of its own for the rule that needs it.
    fn read(&self, file: &str) -> Result<String, String> {
        let bytes = fs::read(self.root.join(file)).map_err(|error| format!("cannot read {file}: {error}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The files whose name ends so.
    fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = &'t str> {
        self.files.iter().map(String::as_str).filter(move |file| file.ends_with(end))
    }
}

type Check = fn(&Tree<'_>) -> Result<Vec<Finding>, String>;

const RULES: &[(&str, Check)] = &[
    ("edges between crates are those of ARCHITECTURE.md", edges::check),
    ("the functions of the walks exist", walks::check),
    ("every source file says what it owns", sources::headers),
    ("crates without the standard library stay so", sources::without_std),
    ("no test is switched off", sources::ignored_tests),
    ("no address of a registry or of this machine", sources::hosts),
    ("licenses and duplicate versions are accepted ones", accepted::check),
    ("external dependencies have their line in docs/decisions", external::check),
    ("paths in documents exist", links::check),
    ("the README's test command is what CI runs", testcommand::check),
];

/// The rules and what they found.
pub(crate) struct Report {
    results: Vec<(&'static str, Vec<Finding>)>,
    notes: String,
}

impl Report {
    /// How many rules were looked at.
    pub(crate) fn rules(&self) -> u64 {
        self.results.len() as u64
    }

    /// How many are broken.
    pub(crate) fn failed(&self) -> u64 {
        self.results.iter().filter(|(_, findings)| !findings.is_empty()).count() as u64
    }

    /// Rules, findings and notes for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (rule, findings) in &self.results {
            text.push_str(&format!("{} {rule}\n", if findings.is_empty() { "ok  " } else { "FAIL" }));
            for finding in findings {
                text.push_str(&format!("{finding}\n"));
            }
        }
        text.push_str(&self.notes);
        text
    }
}

/// Looks at everything. `Err`: a rule could not be looked at.
pub(crate) fn check(root: &Path, metadata: &Metadata) -> Result<Report, String> {
    let tree = Tree { root, files: workspace::files(root)?, metadata };
    let mut results = Vec::new();
    for (rule, check) in RULES {
        let findings = check(&tree).unwrap_or_else(|error| vec![Finding::new("tidy", error, "Mend that first.")]);
        results.push((*rule, findings));
    }
    Ok(Report { results, notes: longest::report(&tree)? })
}

/// The task: all rules, and the last complete test run if there was one.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!("tidy takes no argument, not `{argument}`"));
    }
    let root = workspace::root();
    let metadata = Metadata::read(&root)?;
    let mut report = check(&root, &metadata)?;
    match Record::read(&metadata.target)? {
        Some(record) => report.results.push((coverage::RULE, coverage::check(&root, &metadata, &record)?)),
        None => report
            .notes
            .push_str("note: no complete run of `cargo xtask test` yet, so it is not known what it covers\n"),
    }
    print!("{}", report.text());
    match report.failed() {
        0 => Ok(()),
        failed => Err(format!("{failed} rules of tidy are broken; each finding says what to do")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_rule_is_counted_and_its_remedy_printed() {
        let finding = Finding::new("core/x", "is wrong", "Mend it.");
        let report = Report { results: vec![("a", vec![]), ("b", vec![finding])], notes: String::new() };
        assert_eq!((report.rules(), report.failed()), (2, 1));
        assert_eq!(report.text(), "ok   a\nFAIL b\n  core/x: is wrong\n      Mend it.\n");
    }
}
