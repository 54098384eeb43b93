//! Documents point at things that exist: link targets, and paths of this repository in code spans.

use super::markdown::{prose, spans, targets};
use super::{Finding, Tree};
use std::path::Path;

/// Top folders; a code span that begins with one of them is a path.
const TOPS: &[&str] = &["core/", "shell/", "apps/", "clients/", "testing/", "xtask/", "docs/", ".ci/", ".cargo/"];

/// Looks at every Markdown file but the change log, which speaks of the past.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in tree.ending(".md").filter(|file| *file != "CHANGELOG.md") {
        let text = tree.read(file)?;
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        for (number, line) in prose(&text) {
            let linked = targets(line).filter_map(link_path).map(|path| (path, folder.join(path)));
            let named = spans(line).filter_map(named_path).map(|path| (path, Path::new(path).to_path_buf()));
            for (path, full) in linked.chain(named) {
                // Documents within a folder may name its files from there.
                if !tree.root.join(&full).exists() && !tree.root.join(folder).join(path).exists() {
                    let what = format!("`{path}` does not exist");
                    findings.push(Finding::new(format!("{file}:{number}"), what, "Name what is there now."));
                }
            }
        }
    }
    Ok(findings)
}

/// The path of a link into this repository, without its anchor.
fn link_path(target: &str) -> Option<&str> {
    let path = target.split('#').next().unwrap_or_default();
    (!path.is_empty() && !path.contains("://") && !path.starts_with("mailto:")).then_some(path)
}

/// A code span that is a path from the root; patterns and placeholders are none.
fn named_path(span: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let path = span.trim_end_matches('/');
    let named = TOPS.iter().any(|top| span.starts_with(top)) && path.chars().all(plain) && !path.contains("...");
    named.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_a_path() {
        assert_eq!(link_path("docs/a.md#part"), Some("docs/a.md"));
        assert_eq!(link_path("https://example.org/a"), None);
        assert_eq!(link_path("#part"), None);
        assert_eq!(named_path("core/model/"), Some("core/model"));
        assert_eq!(named_path("core/*"), None);
        assert_eq!(named_path("testing/<name>"), None);
        assert_eq!(named_path("large/<id>"), None);
        assert_eq!(named_path("cargo xtask tidy"), None);
    }
}
