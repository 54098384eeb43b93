//! Which crate may know which: the table of ARCHITECTURE.md against `cargo metadata` and the sources.
//!
//! The table has the columns `crate`, `may import`, `tests also`, `must not know`. A crate stands there by its folder, or with
//! others as `testing/*`; what it may import by folders (`core/model`), by `core/*`, or as `everything`. The words of
//! `must not know` are explained by the table `word`, `packages`, `paths` below it: packages must not be compiled in, paths
//! must not stand in the source.

use super::markdown::{Table, spans, tables};
use super::{Finding, Tree};
use crate::workspace::Package;
use std::collections::BTreeMap;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    line: usize,
    may: Vec<String>,
    tests: Vec<String>,
    not: Vec<String>,
}

/// What a word of the last column stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word {
    packages: Vec<String>,
    paths: Vec<String>,
}

/// Both tables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    crates: BTreeMap<String, Rule>,
    words: BTreeMap<String, Word>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules, String> {
        let tables = tables(text);
        let find = |header: &[&str]| {
            tables
                .iter()
                .find(|table| table.header == header)
                .ok_or_else(|| format!("{DOCUMENT} has no table with the columns {}", header.join(", ")))
        };
        let list = |cell: &str| spans(cell).map(str::to_owned).collect::<Vec<_>>();
        let imports = |cell: &str| if cell.starts_with("everything") { vec!["*".to_owned()] } else { list(cell) };
        let crates: &Table = find(&["crate", "may import", "tests also", "must not know"])?;
        let words: &Table = find(&["word", "packages", "paths"])?;
        let mut rules = Rules::default();
        for (line, cells) in &crates.rows {
            let [name, may, tests, not] = cells.as_slice() else {
                return Err(format!("{DOCUMENT}:{line}: a row of the crate table has four cells"));
            };
            let not = not.split(',').map(str::trim).filter(|word| *word != "–" && !word.is_empty());
            let rule =
                Rule { line: *line, may: imports(may), tests: imports(tests), not: not.map(str::to_owned).collect() };
            for name in spans(name) {
                rules.crates.insert(name.to_owned(), rule.clone());
            }
        }
        for (line, cells) in &words.rows {
            let [word, packages, paths] = cells.as_slice() else {
                return Err(format!("{DOCUMENT}:{line}: a row of the word table has three cells"));
            };
            rules.words.insert(word.clone(), Word { packages: list(packages), paths: list(paths) });
        }
        Ok(rules)
    }

    /// The row of a crate: its own, or one for its whole folder.
    fn rule(&self, folder: &str) -> Option<&Rule> {
        let wide = || self.crates.iter().find(|(pattern, _)| named(pattern, folder)).map(|(_, rule)| rule);
        self.crates.get(folder).or_else(wide)
    }
}

/// Whether the pattern (`core/model`, `core/*`, `*`) names the folder.
fn named(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => folder.starts_with(prefix),
        None => pattern == folder,
    }
}

/// Whether one of the patterns does.
fn names(patterns: &[String], folder: &str) -> bool {
    patterns.iter().any(|pattern| named(pattern, folder))
}

/// Compares the table with the workspace.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let rules = Rules::parse(&tree.read(DOCUMENT)?)?;
    let mut findings = Vec::new();
    let folders: BTreeMap<&str, &str> =
        tree.metadata.members().map(|package| (package.name.as_str(), package.folder.as_str())).collect();
    for name in rules.crates.keys().filter(|name| !folders.values().any(|folder| named(name, folder))) {
        let place = format!("{DOCUMENT}:{}", rules.crates[name].line);
        findings.push(Finding::new(
            place,
            format!("`{name}` is no member"),
            "Take the row out, or correct the folder.",
        ));
    }
    for package in tree.metadata.members() {
        let Some(rule) = rules.rule(&package.folder) else {
            let what = format!("`{}` has no row in the crate table", package.folder);
            findings.push(Finding::new(DOCUMENT, what, "Add one: what may it import, what must it not know?"));
            continue;
        };
        findings.extend(imports(package, rule, &folders));
        findings.extend(unknown_words(rule, &rules.words));
        for word in &rule.not {
            if let Some(meaning) = rules.words.get(word) {
                findings.extend(packages_known(tree, package, word, meaning));
                findings.extend(paths_known(tree, package, word, meaning)?);
            }
        }
    }
    Ok(findings)
}

fn imports(package: &Package, rule: &Rule, folders: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let Some(folder) = folders.get(dependency.name.as_str()) else { continue };
        let allowed = names(&rule.may, folder) || (dependency.dev && names(&rule.tests, folder));
        if !allowed && *folder != package.folder {
            findings.push(Finding::new(
                format!("{}/Cargo.toml", package.folder),
                format!(
                    "imports `{folder}`{}, which its row does not allow",
                    if dependency.dev { " in tests" } else { "" }
                ),
                format!("Do without, or add the edge to {DOCUMENT} with a record in docs/decisions that says why."),
            ));
        }
    }
    findings
}

fn unknown_words(rule: &Rule, words: &BTreeMap<String, Word>) -> Vec<Finding> {
    let unknown = rule.not.iter().filter(|word| !words.contains_key(*word));
    unknown
        .map(|word| {
            let place = format!("{DOCUMENT}:{}", rule.line);
            Finding::new(place, format!("`{word}` is not in the word table"), "Add its packages and paths there.")
        })
        .collect()
}

fn packages_known(tree: &Tree<'_>, package: &Package, word: &str, meaning: &Word) -> Vec<Finding> {
    let reach = tree.metadata.reach(package);
    let known = meaning.packages.iter().filter(|name| reach.contains(name.as_str()));
    known
        .map(|name| {
            let what = format!("must not know {word}, but `{name}` is compiled into it");
            Finding::new(
                format!("{}/Cargo.toml", package.folder),
                what,
                "Move what needs it to a crate that may know it.",
            )
        })
        .collect()
}

fn paths_known(tree: &Tree<'_>, package: &Package, word: &str, meaning: &Word) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    if meaning.paths.is_empty() {
        return Ok(findings);
    }
    let source = format!("{}/src/", package.folder);
    let test = |file: &str| file.contains("/tests/") || file.ends_with("/tests.rs");
    for file in tree.ending(".rs").filter(|file| file.starts_with(&source) && !test(file)) {
        for (number, line) in shipped(&tree.read(file)?) {
            if let Some(path) = meaning.paths.iter().find(|path| mentions(line, path)) {
                let what = format!("must not know {word}, but names `{path}`");
                findings.push(Finding::new(
                    format!("{file}:{number}"),
                    what,
                    "Pass in what is needed, as bytes, numbers or `Now`.",
                ));
            }
        }
    }
    Ok(findings)
}

/// Whether the line has the path as a whole: `.await` is not in `.awaiting`.
fn mentions(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = path.starts_with(part_of_a_word) && line[..at].ends_with(part_of_a_word);
        !before && !line[at + path.len()..].starts_with(part_of_a_word)
    })
}

/// The lines that are neither comments nor the test module at the end of the file, with their numbers.
fn shipped(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .take_while(|(_, line)| *line != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    const TEXT: &str = "\
| crate | may import | tests also | must not know |
|---|---|---|---|
| `core/model` | – | – | sockets, files |
| `core/queue`, `core/txn` | `core/model`, `core/store` | `core/journal` | – |
| `testing/*` | everything | – | – |

| word | packages | paths |
|---|---|---|
| sockets | `mio` | `std::net` |
";

    #[test]
    fn the_table_is_read() {
        let rules = Rules::parse(TEXT).expect("both tables are there");
        assert_eq!(rules.crates["core/txn"].may, ["core/model", "core/store"]);
        assert_eq!(rules.rule("testing/sim").expect("all of testing has a row").may, ["*"]);
        assert_eq!(rules.rule("shell/net"), None);
        assert_eq!(rules.crates["core/model"].not, ["sockets", "files"]);
        assert_eq!(rules.words["sockets"].paths, ["std::net"]);
        assert_eq!(unknown_words(&rules.crates["core/model"], &rules.words).len(), 1, "`files` has no meaning");
        assert!(Rules::parse("no table").is_err());
    }

    #[test]
    fn an_edge_must_be_allowed_and_one_of_tests_may_be_wider() {
        let rules = Rules::parse(TEXT).expect("both tables are there");
        let folders = BTreeMap::from([("m", "core/model"), ("j", "core/journal"), ("b", "core/broker")]);
        let edge = |name: &str, dev| Dependency { name: name.to_owned(), dev };
        let package = Package {
            id: String::new(),
            name: "q".to_owned(),
            version: String::new(),
            folder: "core/queue".to_owned(),
            license: None,
            dependencies: vec![
                edge("m", false),
                edge("j", true),
                edge("j", false),
                edge("b", true),
                edge("bytes", false),
            ],
            linked: vec![],
            member: true,
        };
        let found = imports(&package, &rules.crates["core/queue"], &folders);
        let what: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(what.len(), 2, "{what:?}");
        assert!(what[0].contains("`core/journal`,") && what[1].contains("`core/broker` in tests"), "{what:?}");
    }

    #[test]
    fn patterns() {
        let pattern = |text: &str| vec![text.to_owned()];
        assert!(names(&pattern("core/*"), "core/model") && !names(&pattern("core/*"), "shell/net"));
        assert!(names(&pattern("*"), "xtask") && !names(&pattern("core/model"), "core/model2"));
    }

    #[test]
    fn a_path_is_found_whole_only() {
        assert!(mentions("use std::net::TcpStream;", "std::net") && mentions("x.await?", ".await"));
        assert!(!mentions("self.awaiting.len()", ".await") && !mentions("unasync fn", "async fn"));
    }

    #[test]
    fn comments_and_tests_may_name_anything() {
        let text = "use a;\n// std::net\n    /// std::net\nlet b = std::net::c();\n#[cfg(test)]\nmod tests { use std::net; }\n";
        assert_eq!(shipped(text), [(1, "use a;"), (4, "let b = std::net::c();")]);
    }
}
