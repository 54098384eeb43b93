//! Consume, transform, produce in local transactions, with kill -9 of broker and clients: the effect is exactly once.

use packhorse_crash::Random;
use packhorse_crash::harness::transform::{Plan, run};
use std::path::PathBuf;

#[test]
fn what_is_sent_on_in_transactions_arrives_exactly_once_whoever_is_killed() {
    // A long run has 100,000 messages: `cargo xtask crash --transform 100000`.
    let dir = tempfile::tempdir().expect("a folder");
    let (_, seed) = Random::from_environment(100);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_packhorse-crash"));
    let bin = std::env::var_os("PACKHORSE_BIN").map_or_else(|| program.with_file_name("packhorse"), PathBuf::from);
    let (dir_of, environment) = (dir.path().to_owned(), Vec::new());
    let plan = Plan { bin, program, dir: dir_of, seed, messages: 15_000, environment, life_ms: 100 };
    let figures = run(&plan).unwrap_or_else(|why| panic!("PACKHORSE_CRASH_SEED={seed}: {why}"));
    assert!(figures.is_clean(), "PACKHORSE_CRASH_SEED={seed}: {figures}");
    assert!(figures.of("the broker killed") > 2 && figures.of("a client killed") > 1, "{figures}");
    assert!(figures.of("committed") > 100 && figures.of("rolled back") > 5, "{figures}");
    assert!(figures.of("judged by I6") > 50, "{figures}");
}
