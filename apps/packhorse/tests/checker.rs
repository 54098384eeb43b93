//! `packhorse checker`: its verdict is its exit code, and its words name the invariant.

mod common;

use common::packhorse;
use std::path::Path;

/// One message: sent, confirmed, received, acknowledged.
const HISTORY: &str = r#"{"packhorse_history":1,"run":"0000000000000001","process":"client","pid":1,"incarnation":1,"clock":"c","mono_ns":1000,"wall_ns":1764500000000000000}
{"at":2000,"event":"send","producer":1,"sequence":4,"queue":"orders","size_bytes":100,"crc":5,"persistent":true,"priority":4}
{"at":3000,"event":"sent_ok","producer":1,"sequence":4}
{"at":4000,"event":"attach","consumer":6,"queue":"orders"}
{"at":5000,"event":"recv","producer":1,"sequence":4,"consumer":6,"queue":"orders","delivery_count":0,"redelivered":false,"crc_ok":true}
{"at":6000,"event":"ack","producer":1,"sequence":4,"consumer":6,"confirmed":false}
"#;

/// Runs the checker on this text.
fn judge(text: &str, json: bool) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.jsonl");
    std::fs::write(&path, text).unwrap();
    let mut command = packhorse();
    command.arg("checker").arg(&path);
    if json {
        command.arg("--json");
    }
    command.output().unwrap()
}

#[test]
fn a_clean_history_ends_with_0_and_figures() {
    let output = judge(HISTORY, false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = judge(HISTORY, true);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    assert!(report.is_object(), "{report}");
}

#[test]
fn a_history_that_breaks_a_promise_ends_with_1_and_names_it() {
    // What was received was never sent.
    let lines = HISTORY.lines().filter(|line| !line.contains("\"send\"") && !line.contains("sent_ok"));
    let output = judge(&lines.map(|line| format!("{line}\n")).collect::<String>(), false);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("I2"), "{said}");
}

#[test]
fn what_is_no_history_ends_with_2_and_says_where() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let nowhere = Path::new("/nowhere/history.jsonl");
    for path in [readme, nowhere.to_str().unwrap()] {
        let output = packhorse().args(["checker", path]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(path), "{said}");
    }
}
