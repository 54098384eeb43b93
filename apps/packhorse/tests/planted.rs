//! Faults on purpose are in a build that asks for them, and in no other.

mod common;

use common::packhorse;

/// What `packhorse version` and `packhorse --version` say.
fn versions() -> [String; 2] {
    ["version", "--version"].map(|word| {
        let output = packhorse().arg(word).output().unwrap();
        assert!(output.status.success(), "{word}");
        String::from_utf8(output.stdout).unwrap()
    })
}

#[cfg(not(feature = "planted"))]
#[test]
fn an_ordinary_build_has_no_planted_fault() {
    for said in versions() {
        assert_eq!(said, format!("packhorse {}\n", env!("CARGO_PKG_VERSION")));
    }
    // The names are in a build that can do it (`a_build_for_tests_has_all_names`), so their absence says something.
    let binary = std::fs::read(common::BIN).unwrap();
    for name in [&b"drop-last-record"[..], b"forget-acknowledgement", b"redeliver-unflagged", b"PACKHORSE_PLANTED"] {
        assert!(!binary.windows(name.len()).any(|bytes| bytes == name), "{}", String::from_utf8_lossy(name));
    }
    // And nobody can choose one.
    let dir = tempfile::tempdir().unwrap();
    let mut command = common::serve(dir.path(), &[]);
    command.env("PACKHORSE_PLANTED", "no-such-fault").arg("--ready-file").arg(dir.path().join("ready.json"));
    common::Broker::spawn(&mut command, &dir.path().join("ready.json")).kill();
}

#[cfg(feature = "planted")]
mod with {
    use super::*;
    use common::{Broker, refused, serve};

    #[test]
    fn a_build_for_tests_has_all_names() {
        for said in versions() {
            assert!(said.contains("PLANTED FAULTS"), "{said}");
        }
        let binary = std::fs::read(common::BIN).unwrap();
        for name in [&b"drop-last-record"[..], b"forget-acknowledgement", b"redeliver-unflagged", b"PACKHORSE_PLANTED"]
        {
            assert!(binary.windows(name.len()).any(|bytes| bytes == name), "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn an_unknown_fault_is_refused_with_64_and_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["no-such-fault", "skip", "skip-flush:", "skip-flush:0", "skip-flush:x", ":3"] {
            let mut command = serve(dir.path(), &[]);
            command.env("PACKHORSE_PLANTED", wrong);
            let (code, said) = refused(command);
            assert_eq!(code, Some(64), "{said}");
            assert!(said.contains(wrong), "{said}");
        }
        assert!(!dir.path().join("data").exists(), "nothing was opened");
    }

    #[test]
    fn each_fault_has_a_feature_that_chooses_it() {
        let output = packhorse().args(["version", "--json"]).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = said["planted"].as_array().unwrap();
        assert!(names.len() >= 14, "{said}");
        let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/planted.rs")).unwrap();
        for name in names.iter().map(|name| name.as_str().unwrap()) {
            assert!(manifest.contains(&format!("planted-{name} = [\"planted\"]")), "{name}");
            assert!(source.contains(&format!("feature = \"planted-{name}\"")), "{name}");
        }
    }

    #[test]
    fn a_broker_with_a_fault_says_so_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = serve(dir.path(), &["--listen", "192.0.2.1:1"]);
        command.env("PACKHORSE_PLANTED", "deliver-twice:9");
        let (_, said) = refused(command);
        assert!(said.lines().next().unwrap().contains("planted deliver-twice, one in 9"), "{said}");
    }

    #[test]
    fn a_load_run_finds_what_a_broker_does_wrong_by_its_history() {
        for (fault, invariants) in [("deliver-twice:100", ["I3", "I4"]), ("swap-messages:100", ["I5", "I5"])] {
            let dir = tempfile::tempdir().unwrap();
            let ready = dir.path().join("ready.json");
            let mut command = serve(dir.path(), &[]);
            command.env("PACKHORSE_PLANTED", fault).arg("--ready-file").arg(&ready);
            let broker = Broker::spawn(&mut command, &ready);
            let folder = dir.path().join("history");
            let words = "bench --count 2000 --json --quiet --history";
            let output = broker.run(&words.split(' ').chain([folder.to_str().unwrap()]).collect::<Vec<_>>());
            assert_eq!(output.status.code(), Some(1), "{fault}");
            let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let counts = &said["history"]["invariants"];
            let found = invariants.iter().any(|invariant| counts[invariant].as_u64() > Some(0));
            assert!(found && said["violations"].as_u64() > Some(0), "{fault}: {counts}");
        }
    }
}
