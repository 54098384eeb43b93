//! The seeded world: a seed is one history, whatever process runs it, and no history breaks a promise.

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

#[test]
fn the_same_seed_gives_the_same_digest_in_two_processes() {
    for seed in [11, 12] {
        for shards in [1, 2] {
            let (one, two) = (elsewhere(seed, shards), elsewhere(seed, shards));
            assert!(one.contains("digest"), "{one}");
            assert_eq!(one, two, "seed {seed}, {shards} shards");
            let here = format!("digest {:016x}", run(Settings::new(seed, shards)).digest);
            assert!(one.contains(&here), "this process says {here}, another one {one}");
        }
    }
}

#[test]
fn another_seed_gives_another_digest() {
    assert_ne!(run(Settings::new(1, 1)).digest, run(Settings::new(2, 1)).digest);
    assert_ne!(run(Settings::new(1, 1)).digest, run(Settings::new(1, 2)).digest);
}

#[test]
fn no_world_breaks_a_promise() {
    let (mut confirmed, mut crashes, mut cuts) = (0, 0, 0);
    for seed in 1..=60 {
        for shards in [1, 2] {
            let verdict = run(Settings::new(seed, shards));
            assert!(
                verdict.violations.is_empty(),
                "{:#?}\nagain: cargo run -p packhorse-sim -- --seed {seed} --shards {shards}",
                verdict.violations
            );
            confirmed += verdict.totals.confirmed;
            crashes += verdict.totals.crashes;
            cuts += verdict.totals.cuts;
        }
    }
    // A world in which nothing happens proves nothing.
    assert!(confirmed > 50_000 && crashes > 60 && cuts > 150, "{confirmed} confirmed, {crashes} crashes, {cuts} cuts");
}
