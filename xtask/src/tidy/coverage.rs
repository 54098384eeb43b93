//! Every member of the workspace and every interop client took part in the README's test command.
//!
//! A member took part if one of its tests passed or one of its programs was a step of the run.

use super::Finding;
use crate::interop::CLIENTS;
use crate::record::Record;
use crate::workspace::Metadata;
use std::fs;
use std::path::Path;

/// The rule in words.
pub(super) const RULE: &str = "the last complete test run covers every member and every interop client";

/// Compares a run with the workspace.
pub(crate) fn check(root: &Path, metadata: &Metadata, record: &Record) -> Result<Vec<Finding>, String> {
    let folder = root.join(CLIENTS);
    let mut clients = Vec::new();
    if folder.is_dir() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("cannot read {CLIENTS}: {error}"))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("cannot read {CLIENTS}: {error}"))?;
            if entry.path().is_dir() {
                clients.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    clients.sort();
    let members: Vec<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    Ok(compare(&members, &clients, record))
}

fn compare(members: &[&str], clients: &[String], record: &Record) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        if record.members.get(*member).is_none_or(|tests| *tests == 0) && !record.started.contains(*member) {
            let remedy = "Give it a test, or a step in xtask/src/steps.rs; then run `cargo xtask test`.";
            findings.push(Finding::new(*member, "took no part in the test run", remedy));
        }
    }
    for client in clients {
        let place = format!("{CLIENTS}/{client}");
        match record.clients.get(client).map(String::as_str) {
            Some("run") => {}
            Some(how) if how.starts_with("skipped") && !ci() => {}
            Some(how) => findings.push(Finding::new(place, how, "Install its toolchain and run `cargo xtask test`.")),
            None => findings.push(Finding::new(
                place,
                "took no part in the test run",
                "Add it to the matrix in testing/interop, or take the folder out; then run `cargo xtask test`.",
            )),
        }
    }
    findings
}

fn ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_took_no_part_is_named() {
        let mut record = Record::default();
        record.members.insert("model".to_owned(), 3);
        record.members.insert("empty".to_owned(), 0);
        record.started.insert("interop".to_owned());
        record.clients.insert("python".to_owned(), "run".to_owned());
        record.clients.insert("java".to_owned(), "failed to start".to_owned());
        let clients = ["java", "node", "python"].map(str::to_owned);
        let found = compare(&["model", "empty", "interop", "net"], &clients, &record);
        let places: Vec<_> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["empty", "net", "testing/interop/clients/java", "testing/interop/clients/node"]);
    }
}
