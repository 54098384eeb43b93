//! The matrix of foreign clients: how its driver is started and what it reports.
//!
//! Must not do: know a client. The driver `packhorse-interop` installs and starts them.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Where the clients' folders are.
pub(crate) const CLIENTS: &str = "testing/interop/clients";

/// The driver's command line: which broker to start, and where to report.
pub(crate) fn command(driver: &Path, broker: &Path, report: &Path, root: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(driver);
    command.arg("--broker").arg(broker).arg("--report").arg(report).args(arguments).current_dir(root);
    command
}

/// Client → `run`, or why it was skipped.
pub(crate) fn clients(report: &str) -> Result<BTreeMap<String, String>, String> {
    let value: Value =
        serde_json::from_str(report).map_err(|error| format!("the interop report is not JSON: {error}"))?;
    let clients = value["clients"].as_object().ok_or("the interop report has no `clients`")?;
    Ok(clients.iter().map(|(name, how)| (name.clone(), how.as_str().unwrap_or("?").to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_clients_and_how_they_fared() {
        let report = r#"{"clients": {"python": "run", "java": "skipped: no mvn"}, "cells": 3}"#;
        let clients = clients(report).expect("well-formed");
        assert_eq!(clients["python"], "run");
        assert_eq!(clients["java"], "skipped: no mvn");
        super::clients("{}").expect_err("no clients");
    }
}
