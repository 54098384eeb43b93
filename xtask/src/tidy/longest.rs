//! The ten longest source files, generated ones apart, and how they moved in a week. A report, not a rule: length is a habit.

use super::Tree;
use std::process::Command;

const SHOWN: usize = 10;
const SECOND_NOUN_LINES: usize = 1_000;

/// The report as lines of text.
pub(super) fn report(tree: &Tree<'_>) -> Result<String, String> {
    let mut lengths = Vec::new();
    for file in tree.ending(".rs").filter(|file| !file.ends_with("/generated.rs") && !file.contains("/generated/")) {
        lengths.push((tree.read(file)?.lines().count(), file));
    }
    lengths.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let base = base(tree);
    let mut text = match &base {
        Some((_, date)) => format!("the longest files, and how they moved since {date}:\n"),
        None => "the longest files (no history to compare with):\n".to_owned(),
    };
    for (lines, file) in lengths.into_iter().take(SHOWN) {
        let before = base.as_ref().and_then(|(revision, _)| lines_at(tree, revision, file));
        text.push_str(&format!("  {}\n", row(file, lines, before)));
    }
    Ok(text)
}

fn row(file: &str, lines: usize, before: Option<usize>) -> String {
    let moved = match before {
        Some(before) if before == lines => "as before".to_owned(),
        Some(before) => format!("{:+}", lines as i64 - before as i64),
        None => "new".to_owned(),
    };
    let hint = if lines > SECOND_NOUN_LINES { "  is there a second noun in it?" } else { "" };
    format!("{lines:>6}  {moved:>9}  {file}{hint}")
}

/// The newest revision that is a week old, or else the first one, with its date.
fn base(tree: &Tree<'_>) -> Option<(String, String)> {
    let git = |arguments: &[&str]| {
        let answer = Command::new("git").args(arguments).current_dir(tree.root).output().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        (answer.status.success() && !text.is_empty()).then_some(text)
    };
    let revision = git(&["rev-list", "-1", "--before=7.days", "HEAD"])
        .or_else(|| git(&["rev-list", "--max-parents=0", "HEAD"])?.lines().next_back().map(str::to_owned))?;
    let date = git(&["show", "-s", "--format=%cs", &revision])?;
    Some((revision, date))
}

fn lines_at(tree: &Tree<'_>, revision: &str, file: &str) -> Option<usize> {
    let object = format!("{revision}:{file}");
    let answer = Command::new("git").args(["show", &object]).current_dir(tree.root).output().ok()?;
    answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).lines().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_the_movement() {
        assert_eq!(row("a.rs", 120, Some(100)).trim(), "120        +20  a.rs");
        assert_eq!(row("a.rs", 90, Some(100)).trim(), "90        -10  a.rs");
        assert!(row("a.rs", 100, Some(100)).contains("as before"));
        assert!(row("a.rs", 1_001, None).contains("new") && row("a.rs", 1_001, None).contains("second noun"));
    }
}
