//! The kill harness itself, small: its processes work together, and it sees what a broker has forgotten.

use packhorse_crash::harness::{Campaign, Death, KillNine, Setup};
use std::path::{Path, PathBuf};

fn campaign(dir: &Path, seed: u64, kills: u64) -> Campaign {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_packhorse-crash"));
    let beside = program.with_file_name("packhorse");
    Campaign {
        bin: std::env::var_os("PACKHORSE_BIN").map_or(beside, PathBuf::from),
        environment: Vec::new(),
        program,
        foreign: None,
        dir: dir.into(),
        seed,
        kills,
        kills_per_run: 2,
        faults: false,
        keep: false,
        command: "cargo xtask crash --kills".into(),
    }
}

#[test]
fn a_run_with_two_kills_is_judged_and_clean() {
    let dir = tempfile::tempdir().unwrap();
    let verdict = campaign(dir.path(), 1, 2).run(&mut KillNine).unwrap();
    assert!(verdict.is_clean(), "{verdict}");
    assert!(verdict.counted >= 2 && verdict.confirmed > 1_000 && verdict.acknowledged > 1_000, "{verdict}");
    for code in ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9", "I10", "I12"] {
        let judged = verdict.judged.iter().find(|(invariant, _)| invariant.code() == code);
        assert!(judged.is_some_and(|(_, count)| *count > 0), "{code}: {verdict}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a clean run leaves nothing behind");
}

#[test]
fn a_run_with_faults_of_the_network_is_judged_and_clean() {
    let dir = tempfile::tempdir().unwrap();
    let verdict = Campaign { faults: true, ..campaign(dir.path(), 2_001, 1) }.run(&mut KillNine).unwrap();
    assert!(verdict.is_clean(), "{verdict}");
    assert!(verdict.hits.is_some_and(|hits| hits.sum() >= 3), "clients were disturbed at their work: {verdict}");
    assert!(verdict.counted >= 1 && verdict.confirmed > 1_000 && verdict.acknowledged > 1_000, "{verdict}");
}

/// Kills, and takes the data directory away.
struct Amnesia(PathBuf);

impl Death for Amnesia {
    fn word(&self) -> &'static str {
        "amnesia"
    }

    fn begin_run(&mut self, setup: &mut Setup) -> Result<(), String> {
        self.0 = setup.data.clone();
        Ok(())
    }

    fn kill(&mut self, broker: &mut std::process::Child) -> Result<(), String> {
        KillNine.kill(broker)?;
        std::fs::remove_dir_all(&self.0).map_err(|e| e.to_string())
    }
}

#[test]
fn a_broker_that_forgets_everything_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let verdict = campaign(dir.path(), 1_001, 1).run(&mut Amnesia(PathBuf::new())).unwrap();
    let lost = verdict.violated.iter().find(|(invariant, _)| invariant.code() == "I1");
    assert!(lost.is_some_and(|(_, count)| *count >= 100), "{verdict}");
    assert!(verdict.evidence.is_some() && verdict.replay.is_some(), "{verdict}");
    // The managers of branches know it too, by their own logs.
    let told = |line: &String| line.contains("was prepared, and is not listed");
    assert!(verdict.violated.iter().any(|(invariant, _)| invariant.code() == "I7"), "{verdict}");
    assert!(verdict.broken.iter().any(told), "{:?}", verdict.broken);
}
