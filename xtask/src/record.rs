//! What a complete run of the test command ran: the file `xtask/test-run.json` in the target folder.
//!
//! `test` writes it at its end, `tidy` compares it with the workspace. Must not do: judge.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Members of the workspace and interop clients that took part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Package → tests that passed.
    pub(crate) members: BTreeMap<String, u64>,
    /// Packages whose binary or example a step started.
    pub(crate) started: BTreeSet<String>,
    /// Interop client → `run`, or why not.
    pub(crate) clients: BTreeMap<String, String>,
}

impl Record {
    /// Where the file is.
    pub(crate) fn path(target: &Path) -> PathBuf {
        target.join("xtask").join("test-run.json")
    }

    /// The last complete run; `None` before the first one.
    pub(crate) fn read(target: &Path) -> Result<Option<Record>, String> {
        let path = Record::path(target);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))?;
        let map = |key: &str| value[key].as_object().cloned().unwrap_or_default();
        Ok(Some(Record {
            members: map("members").into_iter().map(|(name, tests)| (name, tests.as_u64().unwrap_or(0))).collect(),
            started: value["started"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            clients: map("clients")
                .into_iter()
                .map(|(name, how)| (name, how.as_str().unwrap_or_default().to_owned()))
                .collect(),
        }))
    }

    /// Replaces the file.
    pub(crate) fn write(&self, target: &Path) -> Result<(), String> {
        let path = Record::path(target);
        let value = json!({"members": self.members, "started": self.started, "clients": self.clients});
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        }
        fs::write(&path, format!("{value:#}\n")).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(Record::read(folder.path()), Ok(None));
        let mut record = Record::default();
        record.members.insert("packhorse-model".to_owned(), 7);
        record.started.insert("packhorse-interop".to_owned());
        record.clients.insert("java".to_owned(), "skipped: no mvn".to_owned());
        record.write(folder.path()).expect("the folder is writable");
        assert_eq!(Record::read(folder.path()), Ok(Some(record)));
    }
}
