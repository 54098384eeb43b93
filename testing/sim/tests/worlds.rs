//! The simulator itself: a seed is one history in every process, another seed is another one, and a world is worth looking at.

use packhorse_sim::{Settings, run};
use std::process::Command;

/// What another process says of a world.
fn elsewhere(seed: u64, shards: u16) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_packhorse-sim"))
        .args(["--seed", &seed.to_string(), "--shards", &shards.to_string()])
        .output()
        .expect("the simulator runs");
    String::from_utf8(output.stdout).expect("it prints text")
}

fn settings(seed: u64, shards: u16) -> Settings {
    Settings { shards: Some(shards), ..Settings::new(seed) }
}

#[test]
fn the_same_seed_gives_the_same_digest_in_two_processes() {
    for seed in [11, 12, 13] {
        for shards in [1, 2] {
            let (one, two) = (elsewhere(seed, shards), elsewhere(seed, shards));
            assert!(one.contains("digest"), "{one}");
            assert_eq!(one, two, "seed {seed}, {shards} shards");
            let here = format!("digest {:016x}", run(&settings(seed, shards)).digest);
            assert!(one.contains(&here), "this process says {here}, another one {one}");
        }
    }
}

#[test]
fn notes_change_nothing() {
    let noted = run(&Settings { notes: true, ..Settings::new(5) });
    assert_eq!(noted.digest, run(&Settings::new(5)).digest);
    assert!(!noted.notes.is_empty());
}

#[test]
fn another_seed_gives_another_digest() {
    assert_ne!(run(&settings(1, 1)).digest, run(&settings(2, 1)).digest);
    assert_ne!(run(&settings(1, 1)).digest, run(&settings(1, 2)).digest);
}

#[test]
fn a_world_has_thousands_of_messages_and_twenty_faults_in_flight() {
    for seed in 1..=20 {
        let verdict = run(&Settings::new(seed));
        assert!(verdict.totals.sent >= 2_000, "seed {seed}: {:?}", verdict.totals);
        let hits: u64 = verdict.hits.iter().sum();
        assert!(hits >= 20, "seed {seed}: {hits} faults hit something");
    }
}
