//! The walks of ARCHITECTURE.md: each row names a file and functions in it, and these must exist.
//!
//! A walk is a table whose last two columns are `file` and `function`.

use super::markdown::{spans, tables};
use super::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Looks up each named function.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let text = tree.read(DOCUMENT)?;
    let mut findings = Vec::new();
    let mut walks = 0;
    for table in tables(&text) {
        let columns = table.header.len();
        if columns < 2 || table.header[columns - 2] != "file" || table.header[columns - 1] != "function" {
            continue;
        }
        walks += 1;
        for (line, cells) in &table.rows {
            let place = format!("{DOCUMENT}:{line}");
            let (Some(file), Some(functions)) = (cells.get(columns - 2), cells.get(columns - 1)) else {
                findings.push(Finding::new(place, "the row has too few cells", "Name a file and a function."));
                continue;
            };
            let Some(file) = spans(file).next() else {
                findings.push(Finding::new(place, "the row names no file", "Put the path into backticks."));
                continue;
            };
            if !tree.files.iter().any(|known| known == file) {
                findings.push(Finding::new(
                    place,
                    format!("`{file}` does not exist"),
                    "Name the file that does this now.",
                ));
                continue;
            }
            let source = tree.read(file)?;
            for function in spans(functions).filter(|function| !defines(&source, function)) {
                let what = format!("`{function}` is not in `{file}`");
                findings.push(Finding::new(place.clone(), what, "Name the function that does this now."));
            }
        }
    }
    if walks < 2 {
        findings.push(Finding::new(
            DOCUMENT,
            "the two walks are missing",
            "Keep both: producer to confirm, queue to settled.",
        ));
    }
    Ok(findings)
}

/// Whether a formatted source defines `function` or `Type::function`.
fn defines(source: &str, function: &str) -> bool {
    let (owner, name) = match function.rsplit_once("::") {
        Some((owner, name)) => (Some(owner), name),
        None => (None, function),
    };
    let mut block = "";
    for line in source.lines() {
        let indented = line.starts_with(' ');
        if !indented && (line.starts_with("impl") || line.contains("trait ")) {
            block = line;
        } else if !indented && line.starts_with('}') {
            block = "";
        }
        let Some((_, rest)) = line.split_once("fn ") else { continue };
        let found = rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']));
        let owned = match owner {
            Some(owner) => block.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == owner),
            None => true,
        };
        if found && owned && !line.trim_start().starts_with("//") {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
pub fn free<T>(t: T) {}
impl<'a> Shard<'a> {
    pub(crate) fn turn(&mut self) {}
}
pub trait Store {
    fn submit(&mut self);
}
// fn commented() {}
";

    #[test]
    fn functions_are_found_in_their_type() {
        for there in ["free", "Shard::turn", "turn", "Store::submit"] {
            assert!(defines(SOURCE, there), "{there}");
        }
        for not_there in ["Node::turn", "Shard::submit", "tur", "commented", "Shard::free"] {
            assert!(!defines(SOURCE, not_there), "{not_there}");
        }
    }
}
