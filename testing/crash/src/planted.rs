//! Faults planted in the broker on purpose: each must be found by the ordinary runs, within the kills or power cuts that CI makes.
//!
//! The broker is one of feature `planted`, which is told by its environment what to do wrong, and lists what it can. That one with
//! nothing chosen must be clean. Must not know what a fault does: what shows is judged like any other run.

use crate::harness::{Campaign, Death, KillNine};
use crate::power::{Layer, PowerCut};
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable by which a broker of feature `planted` is told.
const VARIABLE: &str = "PACKHORSE_PLANTED";
/// The one fault that kill -9 cannot show, for it leaves the page cache.
const SKIP_FLUSH: &str = "skip-flush";

/// Those that the harness must find. The simulator must find all (`cargo xtask sim --planted`); the others are rarer in a broker that
/// is killed twenty times, or need measurements that no client makes.
const OURS: [&str; 8] = [
    SKIP_FLUSH,
    "confirm-early",
    "drop-last-record",
    "forget-acknowledgement",
    "swap-messages",
    "redeliver-unflagged",
    "deliver-twice",
    "store-again",
];

/// How the harness says that a broker finds its data damaged: after a power cut that is as bad as a message that is lost.
const REFUSED: &str = "did not become ready (exit status: 65)";
/// Kills that an ordinary run in CI makes, and cuts within which the invariant must have shown: most are told before by a start
/// that is refused, since what a later block says of the missing one is found.
const KILLS: u64 = 20;
const CUTS: u64 = 20;
/// Kills of the control, which must be clean.
const CONTROL_KILLS: u64 = 3;

/// What came of one fault.
struct Row {
    fault: String,
    /// The invariants that were found broken, or what else told it.
    found: String,
    /// Kills or cuts that it took, and their word.
    made: u64,
    word: &'static str,
    took: Duration,
    evidence: String,
    good: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { fault, found, made, word, evidence, .. } = self;
        let number = format!("{made} {word}{}", if *made == 1 { "" } else { "s" });
        let bad = if self.good { "" } else { "NOT AS IT MUST BE: " };
        write!(f, "{fault:<24}{found:<16}{number:<14}{:>5.1} s  {bad}{evidence}", self.took.as_secs_f64())
    }
}

/// Runs the control and each fault that is for this harness, prints the table and a line of counts. `pattern`: broker, programs and
/// folder; its numbers and environment are not used. Answer: all is as it must be.
///
/// # Errors
/// The harness itself fails, or the broker is not one that can do something wrong: a sentence.
pub fn run(pattern: &Campaign) -> Result<bool, String> {
    let known = faults(&pattern.bin)?;
    if let Some(missing) = OURS.iter().find(|name| !known.iter().any(|known| known == *name)) {
        return Err(format!("{}: it does not know the fault {missing}", pattern.bin.display()));
    }
    let mut rows = vec![one(pattern, None, &mut KillNine)?];
    let mut skipped = Vec::new();
    for fault in &OURS.map(str::to_owned) {
        if fault != SKIP_FLUSH {
            rows.push(one(pattern, Some(fault), &mut KillNine)?);
        } else if let Err(why) = Layer::probe() {
            skipped.push(format!("{fault:<24}SKIPPED: the power cannot be cut: {why}; run as root, with /dev/fuse"));
        } else {
            rows.push(one(pattern, Some(fault), &mut PowerCut::default())?);
        }
    }
    println!("\n{:<24}{:<16}{:<14}{:>7}  evidence", "planted fault", "invariants", "it took", "");
    rows.iter().for_each(|row| println!("{row}"));
    skipped.iter().for_each(|line| println!("{line}"));
    let passed = rows.iter().filter(|row| row.good).count();
    let blind = std::env::var("CI").is_ok_and(|value| value == "true") && !skipped.is_empty();
    let failed = rows.len() - passed + usize::from(blind);
    println!("{passed} passed, {failed} failed, {} skipped", skipped.len());
    Ok(failed == 0)
}

/// What a broker lists.
fn faults(broker: &Path) -> Result<Vec<String>, String> {
    let output = Command::new(broker).args(["version", "--json"]).output();
    let output = output.map_err(|e| format!("{}: {e}", broker.display()))?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("{}: `version --json` is no JSON: {e}", broker.display()))?;
    let faults = said["planted"].as_array().map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned));
    let faults: Vec<String> = faults.into_iter().flatten().collect();
    if faults.is_empty() {
        return Err(format!("{}: not built with the feature `planted`", broker.display()));
    }
    Ok(faults)
}

/// Runs until a fault breaks an invariant, or its kills or cuts are used up. Folders with what was found on purpose are removed.
fn one(pattern: &Campaign, fault: Option<&str>, death: &mut dyn Death) -> Result<Row, String> {
    let name = fault.unwrap_or("none");
    println!("── {name}");
    let most = match fault {
        None => CONTROL_KILLS,
        Some(SKIP_FLUSH) => CUTS,
        Some(_) => KILLS,
    };
    let mut campaign = Campaign {
        environment: fault.map(|fault| (VARIABLE.to_owned(), fault.to_owned())).into_iter().collect(),
        dir: pattern.dir.join(name),
        // Judged after each, to know how many it takes.
        kills_per_run: if fault.is_none() { most as u32 } else { 1 },
        ..pattern.clone()
    };
    let begin = Instant::now();
    let (mut made, mut broken, mut refused_after) = (0, Vec::new(), None);
    let verdict = loop {
        campaign.kills = most - made;
        let verdict = campaign.run(death)?;
        made += verdict.made;
        campaign.seed += verdict.runs;
        broken.extend(verdict.broken.iter().cloned());
        if fault == Some(SKIP_FLUSH) && verdict.broken.iter().any(|why| why.contains(REFUSED)) {
            refused_after.get_or_insert(made);
        }
        // Something else may tell it first: a start that is refused. The next run may show what it does to messages.
        if fault.is_none() || !verdict.violated.is_empty() || made >= most {
            break verdict;
        }
    };
    let codes: Vec<&str> = verdict.violated.iter().map(|(invariant, _)| invariant.code()).collect();
    let (found, good) = match (codes.as_slice(), refused_after) {
        ([], Some(cuts)) => {
            made = cuts;
            ("start refused".to_owned(), true)
        }
        ([], None) => ("–".to_owned(), fault.is_none() && verdict.is_clean()),
        (codes, _) => (codes.join(" "), fault.is_some()),
    };
    let evidence = match codes.as_slice() {
        [] => broken.iter().flat_map(|why| why.lines()).find(|line| line.contains(" ERROR ")),
        _ => None,
    };
    let evidence = evidence.or(verdict.evidence.as_ref().and_then(|text| text.lines().next()));
    let evidence = evidence.unwrap_or("0 violations").to_owned();
    if good && !pattern.keep {
        fs::remove_dir_all(&campaign.dir).map_err(|e| format!("cannot remove {}: {e}", campaign.dir.display()))?;
    }
    Ok(Row { fault: name.to_owned(), found, made, word: death.word(), took: begin.elapsed(), evidence, good })
}
