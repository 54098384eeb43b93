//! Where things are: the repository's root, the target folder, the files that git knows, and what `cargo metadata` says.
//!
//! Must not do: judge. Rules are in `tidy`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root: the folder above this crate. `cargo run` says where that is; what was compiled in may be another working tree's
/// with the same target folder.
pub(crate) fn root() -> PathBuf {
    root_from(std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from))
}

/// `told`: a crate's folder, as cargo says; of another crate than this it counts for nothing.
fn root_from(told: Option<PathBuf>) -> PathBuf {
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = told.filter(|told| told.file_name() == compiled.file_name()).unwrap_or_else(|| compiled.to_path_buf());
    here.parent().expect("this crate lies in a folder of the repository").to_path_buf()
}

/// Every file that git tracks or would track, as paths from the root with `/`.
pub(crate) fn files(root: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| {
            format!("git does not start: {error}. Install git; tidy looks at the files that git knows.")
        })?;
    if !listed.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let mut files: Vec<String> = listed
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| root.join(name).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// One dependency that a package declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The other package.
    pub(crate) name: String,
    /// Only for tests and examples.
    pub(crate) dev: bool,
}

/// One package of the dependency graph.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// What cargo calls it in its messages.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its folder from the root, for a member; empty otherwise.
    pub(crate) folder: String,
    /// The licence expression, if it states one.
    pub(crate) license: Option<String>,
    /// What it declares.
    pub(crate) dependencies: Vec<Dependency>,
    /// Ids of the packages that are compiled into it, tests apart.
    pub(crate) linked: Vec<String>,
    /// Whether it is a member of the workspace.
    pub(crate) member: bool,
}

/// What `cargo metadata` says of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    /// All packages that the lock file resolves to.
    pub(crate) packages: Vec<Package>,
    /// The folder for everything built.
    pub(crate) target: PathBuf,
}

impl Metadata {
    /// Asks cargo.
    pub(crate) fn read(root: &Path) -> Result<Metadata, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let answer = Command::new(cargo)
            .args(["metadata", "--format-version", "1"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo metadata does not start: {error}"))?;
        if !answer.status.success() {
            return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&answer.stderr).trim()));
        }
        let value: Value = serde_json::from_slice(&answer.stdout)
            .map_err(|error| format!("cargo metadata answered something else than JSON: {error}"))?;
        Metadata::parse(&value)
    }

    /// Takes what is needed from the answer.
    pub(crate) fn parse(value: &Value) -> Result<Metadata, String> {
        let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
        let missing = |what: &str| format!("cargo metadata has no `{what}`; its format has changed");
        let root = PathBuf::from(text(value, "workspace_root").ok_or_else(|| missing("workspace_root"))?);
        let target = PathBuf::from(text(value, "target_directory").ok_or_else(|| missing("target_directory"))?);
        let members: Vec<&str> =
            value["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let links = links(&value["resolve"]);
        let mut packages = Vec::new();
        for package in value["packages"].as_array().ok_or_else(|| missing("packages"))? {
            let id = package["id"].as_str().ok_or_else(|| missing("id"))?;
            let member = members.contains(&id);
            let manifest = text(package, "manifest_path").ok_or_else(|| missing("manifest_path"))?;
            let folder = match Path::new(&manifest).parent().map(|folder| folder.strip_prefix(&root)) {
                Some(Ok(folder)) if member => folder.to_string_lossy().replace('\\', "/"),
                _ => String::new(),
            };
            let dependencies = package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|dependency| {
                    let name = text(dependency, "name")?;
                    Some(Dependency { name, dev: dependency["kind"].as_str() == Some("dev") })
                })
                .collect();
            let linked = links.get(id).cloned().unwrap_or_default();
            packages.push(Package {
                id: id.to_owned(),
                name: text(package, "name").ok_or_else(|| missing("name"))?,
                version: text(package, "version").ok_or_else(|| missing("version"))?,
                folder,
                license: text(package, "license"),
                dependencies,
                linked,
                member,
            });
        }
        Ok(Metadata { packages, target })
    }

    /// Names of everything compiled into a package, directly or not.
    pub(crate) fn reach(&self, package: &Package) -> BTreeSet<&str> {
        let by_id: BTreeMap<&str, &Package> = self.packages.iter().map(|p| (p.id.as_str(), p)).collect();
        let (mut names, mut open) = (BTreeSet::new(), vec![package]);
        while let Some(package) = open.pop() {
            for linked in package.linked.iter().filter_map(|id| by_id.get(id.as_str())) {
                if names.insert(linked.name.as_str()) {
                    open.push(linked);
                }
            }
        }
        names
    }

    /// The members of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.member)
    }
}

/// Package id → ids of what is compiled into it, from the resolved graph, without what only tests need.
fn links(resolve: &Value) -> BTreeMap<String, Vec<String>> {
    let mut links = BTreeMap::new();
    for node in resolve["nodes"].as_array().into_iter().flatten() {
        let ids = node["deps"].as_array().into_iter().flatten().filter(|link| {
            let kinds = link["dep_kinds"].as_array();
            kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"].as_str() != Some("dev")))
        });
        let ids = ids.filter_map(|link| link["pkg"].as_str().map(str::to_owned)).collect();
        if let Some(id) = node["id"].as_str() {
            links.insert(id.to_owned(), ids);
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_tells_members_folders_and_kinds_of_dependencies() {
        let value = json!({
            "workspace_root": "/w", "target_directory": "/w/target", "workspace_members": ["a 1"],
            "packages": [
                {"id": "a 1", "name": "a", "version": "1.0.0", "manifest_path": "/w/core/a/Cargo.toml", "license": null,
                 "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
                {"id": "b 2", "name": "b", "version": "2.0.0", "manifest_path": "/elsewhere/b/Cargo.toml",
                 "license": "MIT", "dependencies": []},
                {"id": "c 3", "name": "c", "version": "3.0.0", "manifest_path": "/elsewhere/c/Cargo.toml",
                 "license": "MIT", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "a 1", "deps": [{"pkg": "b 2", "dep_kinds": [{"kind": null}]}, {"pkg": "c 3", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "b 2", "deps": []},
            ]},
        });
        let metadata = Metadata::parse(&value).expect("all fields are there");
        assert_eq!(metadata.members().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let a = &metadata.packages[0];
        assert_eq!((a.folder.as_str(), a.license.as_deref()), ("core/a", None));
        assert_eq!(
            a.dependencies.iter().map(|d| (d.name.as_str(), d.dev)).collect::<Vec<_>>(),
            [("b", false), ("c", true)]
        );
        assert_eq!(metadata.packages[1].folder, "");
        assert_eq!(metadata.reach(a), BTreeSet::from(["b"]));
    }

    #[test]
    fn the_root_holds_this_crate() {
        assert!(root().join("xtask/Cargo.toml").is_file());
    }

    #[test]
    fn the_root_is_that_of_the_tree_in_which_cargo_runs() {
        let compiled = root_from(None);
        assert!(compiled.join("xtask/Cargo.toml").is_file());
        assert_eq!(root_from(Some("/another/tree/xtask".into())), Path::new("/another/tree"));
        assert_eq!(root_from(Some("/another/tree/core/queue".into())), compiled, "who started it is another crate");
    }
}
