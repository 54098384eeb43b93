//! What the checker says of the history that a run has written.
//!
//! Judges nothing itself: `core/history` does.

use crate::End;
use packhorse_history::{Options, check_files};
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Reads both sides' files in the folder. The report as `packhorse checker --json` prints it: `judged` says how much there was
/// to judge of each invariant.
pub(super) fn judge(folder: &Path) -> Result<Value, End> {
    let open = |side: &str| {
        let name = format!("{side}.jsonl");
        let path = folder.join(&name);
        let file = File::open(&path).map_err(|e| End::Refused(format!("cannot read {}: {e}", path.display())))?;
        Ok((name, BufReader::with_capacity(1 << 20, file)))
    };
    let sources = ["producer", "consumer"].map(open).into_iter().collect::<Result<Vec<_>, End>>()?;
    let report = check_files(sources, &Options::default()).map_err(|e| End::Refused(format!("the history: {e}")))?;
    serde_json::from_str(&report.to_json()).map_err(|e| End::Refused(format!("the checker's report: {e}")))
}

/// A line for people.
pub(super) fn line(report: &Value) -> String {
    let judged = report["judged"].as_object().into_iter().flatten();
    let judged: Vec<String> = judged.map(|(code, count)| format!("{code} {count}")).collect();
    format!("judged {}: {} violations", judged.join(", "), report["violations_total"])
}
