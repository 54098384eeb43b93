//! The README's two commands: tests are passed by one of them, `.ci/run` calls just that, and this crate needs no other.

use super::{Finding, Tree};

const COMMAND: &str = "cargo xtask test";
const BROKER: &str = "cargo run --release -- serve";

/// Compares README.md, `.ci/run`, the alias and this crate's own dependencies.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (file, line) in [("README.md", COMMAND), ("README.md", BROKER), (".ci/run", COMMAND)] {
        if !has_line(&tree.read(file)?, line) {
            let remedy = "People type what the README says; CI must run just the same.";
            findings.push(Finding::new(file, format!("has no line `{line}`"), remedy));
        }
    }
    let members: Vec<&str> = tree.metadata.members().map(|package| package.name.as_str()).collect();
    for package in tree.metadata.members().filter(|package| package.name == "xtask") {
        for dependency in package.dependencies.iter().filter(|dependency| members.contains(&dependency.name.as_str())) {
            let what = format!("depends on `{}`", dependency.name);
            findings.push(Finding::new(
                "xtask/Cargo.toml",
                what,
                "Start its binary instead: tasks work when nothing compiles.",
            ));
        }
    }
    Ok(findings)
}

fn has_line(text: &str, wanted: &str) -> bool {
    text.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_stands_on_a_line_of_its_own() {
        assert!(has_line("```sh\ncargo xtask test          # passes the tests\n```\n", COMMAND));
        assert!(!has_line("cargo xtask test --quick\n", COMMAND));
        assert!(!has_line("use `cargo xtask test`\n", COMMAND));
    }
}
