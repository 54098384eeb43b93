//! Faults that are planted in the broker's transactions are found on the real binary, each by the run that is to find its kind.

use packhorse_crash::harness::transform;
use packhorse_crash::transact::{Figures, deaths};
use std::path::PathBuf;

#[test]
fn deaths_at_each_step_find_branches_that_are_forgotten_and_messages_that_are_let_go() {
    for fault in ["forget-branch:1", "release-remove:1"] {
        let dir = tempfile::tempdir().expect("a folder");
        let found = deaths::run_planted(dir.path(), 1, 1, Some(fault)).found;
        // What a cell says of its branch; a harness that breaks has found nothing.
        assert!(found.iter().any(|line| line.starts_with("round 0, ")), "{fault} is not found: {found:?}");
        println!("{fault}: {}", found[0]);
    }
}

#[test]
fn what_is_sent_on_in_halves_of_transactions_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_packhorse-crash"));
    let bin = std::env::var_os("PACKHORSE_BIN").map_or_else(|| program.with_file_name("packhorse"), PathBuf::from);
    let environment = vec![("PACKHORSE_PLANTED".to_owned(), "halve-commit:20".to_owned())];
    let dir_of = dir.path().to_owned();
    let plan = transform::Plan { bin, program, dir: dir_of, seed: 1, messages: 2_000, environment, life_ms: 100 };
    let figures = transform::run(&plan).unwrap_or_else(|why| {
        let mut broken = Figures::new(1);
        broken.found.push(why);
        broken
    });
    let found = figures.found;
    assert!(found.iter().any(|line| line.contains("before the last kill")), "{found:?}");
}
