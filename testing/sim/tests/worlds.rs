//! The simulator itself: a seed is one history in every process, another seed is another one, and a world is worth looking at.

use packhorse_history::{Event, Invariant, Options, Source, XaVerb, check_files};
use packhorse_sim::{Settings, run};
use std::collections::BTreeMap;
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

#[test]
fn worlds_with_transactions_have_some_of_every_fate() {
    let (mut committed, mut unknown, mut other, mut prepared, mut decided) = (0, 0, 0, 0, 0);
    let (mut resumed, mut shared) = (0, 0);
    for seed in [0, 1, 2, 9, 10, 11, 12, 13, 14] {
        let verdict = run(&Settings::new(seed));
        let sources = verdict.files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
        let report = check_files(sources, &Options::default()).expect("it was judged before");
        let totals = report.totals;
        committed += totals.transactions_committed;
        unknown += totals.transactions_unknown;
        other += totals.transactions - totals.transactions_committed - totals.transactions_unknown;
        prepared += report.judged(Invariant::Prepared);
        decided += told(&verdict.files);
        for files in starts(&verdict.files).into_values() {
            resumed += usize::from(files.values().any(|starts| *starts > 1));
            shared += usize::from(files.len() > 1);
        }
    }
    assert!(resumed >= 5 && shared >= 5, "{resumed} resumed where they began, {shared} worked in on two connections");
    let all = [committed, unknown, other, prepared];
    assert!(all.iter().all(|count| *count >= 10) && decided > 0, "{all:?}, {decided} decided by operators");
}

/// Of each branch, by process: how often it was begun, joined or resumed there.
fn starts(files: &[(String, Vec<u8>)]) -> BTreeMap<String, BTreeMap<&str, u64>> {
    let mut starts: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
    for (name, bytes) in files {
        let source = Source::open(name.clone(), bytes.as_slice()).expect("it is a history");
        let mut source = source.expect("it has a header");
        while source.advance().expect("it is whole") {
            if let Ok(Event::Xa { verb: XaVerb::Start, xid, code: Some(0) }) = source.event() {
                *starts.entry(xid.to_owned()).or_default().entry(name).or_default() += 1;
            }
        }
    }
    starts
}

/// How often an operator was told that he decided a branch.
fn told(files: &[(String, Vec<u8>)]) -> u64 {
    let mut decided = 0;
    for (name, bytes) in files {
        let source = Source::open(name.clone(), bytes.as_slice()).expect("it is a history");
        let mut source = source.expect("it has a header");
        while source.advance().expect("it is whole") {
            decided += u64::from(matches!(source.event(), Ok(Event::Decide { code: Some(0), .. })));
        }
    }
    decided
}
