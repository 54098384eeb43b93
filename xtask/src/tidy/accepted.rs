//! Licenses and duplicate versions in the dependency graph, against the file `xtask/accepted.toml`.

use super::{Finding, Tree};
use crate::workspace::Package;
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "xtask/accepted.toml";

/// What the file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Accepted {
    licenses: BTreeSet<String>,
    duplicates: BTreeMap<String, String>,
}

impl Accepted {
    fn parse(text: &str) -> Result<Accepted, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
        let licenses =
            table.get("licenses").and_then(toml::Value::as_array).ok_or(format!("{FILE} has no `licenses`"))?;
        let duplicates = table.get("duplicates").and_then(toml::Value::as_table);
        Ok(Accepted {
            licenses: licenses.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            duplicates: duplicates
                .into_iter()
                .flatten()
                .map(|(name, reason)| (name.clone(), reason.as_str().unwrap_or_default().to_owned()))
                .collect(),
        })
    }

    /// Whether a license expression can be met with accepted licenses.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut position = 0;
        let allowed = self.any(&words, &mut position);
        allowed && position == words.len()
    }

    fn any(&self, words: &[&str], position: &mut usize) -> bool {
        let mut allowed = self.all(words, position);
        while words.get(*position) == Some(&"OR") {
            *position += 1;
            allowed |= self.all(words, position);
        }
        allowed
    }

    fn all(&self, words: &[&str], position: &mut usize) -> bool {
        let mut allowed = self.one(words, position);
        while words.get(*position) == Some(&"AND") {
            *position += 1;
            allowed &= self.one(words, position);
        }
        allowed
    }

    fn one(&self, words: &[&str], position: &mut usize) -> bool {
        let Some(word) = words.get(*position) else { return false };
        *position += 1;
        if *word == "(" {
            let allowed = self.any(words, position);
            *position += 1;
            return allowed;
        }
        let mut name = (*word).to_owned();
        if words.get(*position) == Some(&"WITH") {
            name = format!("{word} WITH {}", words.get(*position + 1).unwrap_or(&""));
            *position += 2;
        }
        self.licenses.contains(&name)
    }
}

/// Compares the graph with the file.
pub(super) fn check(tree: &Tree<'_>) -> Result<Vec<Finding>, String> {
    let accepted = Accepted::parse(&tree.read(FILE)?)?;
    Ok(judge(&accepted, &tree.metadata.packages))
}

fn judge(accepted: &Accepted, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
        match &package.license {
            Some(license) if accepted.allows(license) => {}
            license => findings.push(Finding::new(
                format!("{} {}", package.name, package.version),
                format!("has the license `{}`", license.as_deref().unwrap_or("none stated")),
                format!("Do without it; or, if the license suits an Apache-2.0 program, add it to {FILE}."),
            )),
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !accepted.duplicates.contains_key(*name) {
            let list = versions.iter().copied().collect::<Vec<_>>().join(" and ");
            let what = format!("is in the graph as {list}");
            let remedy =
                format!("`cargo tree -d` shows who needs which; bring them together, or give the reason in {FILE}.");
            findings.push(Finding::new(*name, what, remedy));
        }
    }
    for (name, reason) in &accepted.duplicates {
        if versions.get(name.as_str()).is_none_or(|versions| versions.len() < 2) {
            findings.push(Finding::new(FILE, format!("`{name}` is no duplicate any more"), "Take its line out."));
        } else if reason.trim().is_empty() {
            findings.push(Finding::new(FILE, format!("`{name}` has no reason"), "Say who needs which version."));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted() -> Accepted {
        let text = "licenses = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\", \"Unicode-3.0\"]\n\
                    [duplicates]\nsyn = \"two generations of macros\"\nold = \"gone since\"\n";
        Accepted::parse(text).expect("well-formed")
    }

    #[test]
    fn license_expressions() {
        let accepted = accepted();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(accepted.allows(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", "GPL-2.0 WITH LLVM-exception", ""]
        {
            assert!(!accepted.allows(bad), "{bad}");
        }
    }

    #[test]
    fn duplicates_need_a_reason_and_reasons_a_duplicate() {
        let package = |name: &str, version: &str, license: Option<&str>| Package {
            id: String::new(),
            name: name.to_owned(),
            version: version.to_owned(),
            folder: String::new(),
            license: license.map(str::to_owned),
            dependencies: vec![],
            linked: vec![],
            member: false,
        };
        let packages = [
            package("syn", "1.0.0", Some("MIT")),
            package("syn", "2.0.0", Some("MIT")),
            package("old", "1.0.0", Some("MIT")),
            package("twice", "1.0.0", Some("MIT")),
            package("twice", "2.0.0", Some("MIT")),
            package("free", "1.0.0", None),
        ];
        let places: Vec<_> = judge(&accepted(), &packages).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["free 1.0.0", "twice", FILE]);
    }
}
