//! Rules for the text of source files: headers, no switched-off tests, no addresses that work on one machine only.

use super::{Finding, Tree};

/// Every Rust file opens with `//!`: what it owns and must not do.
pub(super) fn headers(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs") {
        if !has_header(&tree.read(file)?) {
            findings.push(Finding::new(
                file,
                "does not begin with a `//!` header",
                "Say in its first lines what the file owns and what it must not do.",
            ));
        }
    }
    Ok(findings)
}

fn has_header(text: &str) -> bool {
    text.lines().next().and_then(|line| line.strip_prefix("//!")).is_some_and(|rest| rest.trim().len() > 10)
}

/// Crates that do without the standard library, so that nothing of it can slip in.
const WITHOUT_STD: &[&str] = &["core/model", "core/store", "core/queue", "core/txn", "core/amqp10"];

/// These crates stay `no_std`.
pub(super) fn without_std(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for folder in WITHOUT_STD {
        let file = format!("{folder}/src/lib.rs");
        if !tree.read(&file)?.lines().any(|line| line == "#![no_std]") {
            findings.push(Finding::new(file, "has lost its `#![no_std]`", "Put it back; `alloc` has what is needed."));
        }
    }
    Ok(findings)
}

/// No test is switched off: it is either right or gone.
pub(super) fn ignored_tests(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let mark = concat!("#[", "ignore");
    let mut findings = Vec::new();
    for file in tree.ending(".rs") {
        for (index, line) in tree.read(file)?.lines().enumerate() {
            if line.trim_start().starts_with(mark) {
                let place = format!("{file}:{}", index + 1);
                findings.push(Finding::new(
                    place,
                    "switches a test off",
                    "Make it quick enough to run, or take it out.",
                ));
            }
        }
    }
    Ok(findings)
}

/// Parts of the names of package registries, split so that this file does not find itself.
const REGISTRIES: &[&str] = &[
    concat!("registry.", "npmjs"),
    concat!("files.", "pythonhosted"),
    concat!("pypi", ".org"),
    concat!("repo.maven", ".apache"),
    concat!("repo1.", "maven"),
    concat!("proxy.", "golang"),
    concat!("sum.", "golang"),
    concat!("static.", "crates"),
    concat!("index.", "crates.io"),
];

/// No registry's host and no path of this checkout: both belong into the settings of a machine.
pub(super) fn hosts(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let here = format!("{}/", tree.root.display());
    let mut findings = Vec::new();
    for file in &tree.files {
        let text = tree.read(file)?;
        for (index, line) in text.lines().enumerate() {
            if let Some(found) = machine_address(line, &here) {
                findings.push(Finding::new(
                    format!("{file}:{}", index + 1),
                    format!("names `{found}`"),
                    "Leave it to the settings of the package manager, or to a path from the repository's root.",
                ));
            }
        }
    }
    Ok(findings)
}

fn machine_address<'a>(line: &str, here: &'a str) -> Option<&'a str> {
    REGISTRIES.iter().copied().find(|host| line.contains(host)).or_else(|| line.contains(here).then_some(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_something() {
        assert!(has_header("//! Owns the nouns, and nothing else.\n"));
        assert!(!has_header("//!\nfn main() {}\n"));
        assert!(!has_header("use std::fs;\n//! Too late to say what it is.\n"));
        assert!(!has_header(""));
    }

    #[test]
    fn addresses_of_registries_and_of_the_checkout_are_found() {
        let line = format!("\"resolved\": \"https://{}.org/rhea\"", REGISTRIES[0]);
        assert_eq!(machine_address(&line, "/home/me/ph/"), Some(REGISTRIES[0]));
        assert_eq!(machine_address("see /home/me/ph/target", "/home/me/ph/"), Some("/home/me/ph/"));
        assert_eq!(machine_address("source = \"registry+https://github.com/rust-lang/crates.io-index\"", "/x/"), None);
    }
}
