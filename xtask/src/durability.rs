//! `cargo xtask durability`: writes the generated parts of `docs/durability-report.md`; with `--check` compares them.
//!
//! Long runs are added to `docs/durability.toml` by the tools that make them ([`record`]). Must not do: run anything, judge
//! anything.

mod runs;
mod scenarios;

pub(crate) use runs::Run;

use crate::{command, workspace};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The page.
const PAGE: &str = "docs/durability-report.md";

/// Writes the page; with `--check`, fails when it is not what sources and data give.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let root = workspace::root();
    match arguments {
        [] => write(&root),
        [flag] if flag == "--check" => check(&root),
        _ => Err("usage: cargo xtask durability [--check]".to_owned()),
    }
}

/// Adds a run to the data, and the page shows it. Any tool may call this at its end, when nothing else in the tree changes.
pub(crate) fn record(run: &Run) -> Result<(), String> {
    let root = workspace::root();
    runs::add(&root, run)?;
    write(&root)
}

/// Fails when the page is not what sources and data give.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let page = read(root, PAGE)?;
    if page == render(root, &page)? {
        Ok(())
    } else {
        Err(format!("{PAGE} is not what sources and {} give: run `cargo xtask durability`", runs::DATA))
    }
}

/// Starts a program that writes what it came to into `report` when it is given `--report PATH`, and adds that.
pub(crate) fn watch(kind: &str, report: &Path, program: &mut Command) -> Result<(), String> {
    // The commit is what was run, whatever is committed meanwhile.
    let run = Run::of(kind);
    if let Some(folder) = report.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    let _ = fs::remove_file(report);
    let ended = command::watch(program.arg("--report").arg(report));
    // One that found something is kept as well; one that never came to a verdict has nothing to keep.
    match fs::read_to_string(report) {
        Ok(text) => record(&filled(run, &text)?)?,
        Err(error) => println!("not recorded: {}: {error}", report.display()),
    }
    ended
}

/// What the program wrote, as a run to be kept.
fn filled(run: Run, report: &str) -> Result<Run, String> {
    #[derive(Deserialize)]
    struct Report {
        seeds: String,
        counts: Vec<(String, u64)>,
        faults: Vec<(String, u64)>,
        violations: u64,
        found: Vec<String>,
    }
    let report: Report = serde_json::from_str(report).map_err(|error| format!("the report of a run: {error}"))?;
    let Report { seeds, counts, faults, violations, found } = report;
    Ok(Run { seeds, counts, faults, violations, found, ..run })
}

/// Writes the page.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let page = render(root, &read(root, PAGE)?)?;
    std::fs::write(root.join(PAGE), page).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

/// The page with its generated parts made new.
fn render(root: &Path, page: &str) -> Result<String, String> {
    let page = put(page, "runs", &runs::render(&runs::read(root)?))?;
    put(&page, "scenarios", &scenarios::render(root)?)
}

/// Replaces what stands between the markers `<!-- name:begin -->` and `<!-- name:end -->`.
fn put(page: &str, name: &str, text: &str) -> Result<String, String> {
    let [begin, end] = ["begin", "end"].map(|what| format!("<!-- {name}:{what} -->\n"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} has lost its markers `{}`", begin.trim()))?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

/// A row of a table.
fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |\n", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

/// The header of a table.
fn header<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let lines = names.iter().map(|_| "---".to_owned()).collect::<Vec<_>>();
    row(names) + &row(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_markers_is_replaced_and_nothing_else() {
        let page = "a\n<!-- runs:begin -->\nold\n<!-- runs:end -->\nb\n";
        let new = put(page, "runs", "\nnew\n").expect("both markers are there");
        assert_eq!(new, "a\n<!-- runs:begin -->\n\nnew\n\n<!-- runs:end -->\nb\n");
        assert_eq!(put(&new, "runs", "new"), Ok(new.clone()), "again the same");
        let error = put("a\n<!-- runs:begin -->\nold\n", "runs", "new").expect_err("the end is missing");
        assert!(error.contains("markers"), "{error}");
    }

    #[test]
    fn a_report_becomes_a_run() {
        let text =
            r#"{"seeds":"1–2","counts":[["kills counted",9]],"faults":[["pause",3]],"violations":1,"found":["x"]}"#;
        let run = filled(Run { kind: "kills".to_owned(), ..Run::default() }, text).expect("all is there");
        assert_eq!((run.kind.as_str(), run.seeds.as_str(), run.violations), ("kills", "1–2", 1));
        assert_eq!((run.counts, run.faults), (vec![("kills counted".to_owned(), 9)], vec![("pause".to_owned(), 3)]));
        filled(Run::default(), "{}").expect_err("nothing is there");
    }

    #[test]
    fn tables_are_markdown() {
        assert_eq!(header(["a", "b"]), "| a | b |\n| --- | --- |\n");
        assert_eq!(row(["1".to_owned(), String::new()]), "| 1 |  |\n");
    }
}
