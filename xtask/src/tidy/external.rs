//! Every dependency from outside has its line in docs/decisions/dependencies.md: why, and what it replaces.

use super::markdown::{spans, tables};
use super::{Finding, Tree};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/decisions/dependencies.md";

/// Compares the document's tables with what the members declare.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let members: BTreeSet<&str> = tree.metadata.members().map(|package| package.name.as_str()).collect();
    let declared: BTreeSet<&str> = tree
        .metadata
        .members()
        .flat_map(|package| &package.dependencies)
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !members.contains(name))
        .collect();
    let text = tree.read(DOCUMENT)?;
    Ok(compare(&declared, &listed(&text)))
}

/// Names in the first column of the tables that begin with `crate`.
fn listed(text: &str) -> BTreeSet<String> {
    let tables = tables(text).into_iter().filter(|table| table.header.first().is_some_and(|cell| cell == "crate"));
    let first = tables.flat_map(|table| table.rows).filter_map(|(_, cells)| cells.into_iter().next());
    first.flat_map(|cell| spans(&cell).map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn compare(declared: &BTreeSet<&str>, listed: &BTreeSet<String>) -> Vec<Finding> {
    let unexplained = declared.iter().filter(|name| !listed.contains(**name)).map(|name| {
        Finding::new(DOCUMENT, format!("`{name}` has no line"), "Say in one line why it is here and what it replaces.")
    });
    let unused = listed
        .iter()
        .filter(|name| !declared.contains(name.as_str()))
        .map(|name| Finding::new(DOCUMENT, format!("`{name}` is used by no member"), "Take its line out."));
    unexplained.chain(unused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_and_manifests_must_agree() {
        let listed = listed(
            "| crate | why |\n|---|---|\n| `bytes` | shared slices |\n| `gone` | x |\n\n| word | y |\n|---|---|\n| `z` | - |\n",
        );
        let found = compare(&BTreeSet::from(["bytes", "new"]), &listed);
        let what: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(what, ["`new` has no line", "`gone` is used by no member"]);
    }
}
