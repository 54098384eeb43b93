//! Crashes the journal at every disk operation of its workloads and prints what was recovered.
//!
//! `cargo run -p packhorse-journal --features sim --example crash_points --
//! [--quick] [--seeds N] [--workload NAME] [--seed N] [--op N]`

use packhorse_journal::sim::{Points, Workload, crash_everywhere, workloads};
use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "this is a program: its arguments come from the command line")]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut only, mut seeds, mut points) = (None, 1..2, Points::All);
    while let Some(name) = args.next() {
        if name == "--quick" {
            points = Points::Each(5);
            continue;
        }
        let value = args.next().unwrap_or_default();
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{name} needs a number, not {value:?}"));
        match name.as_str() {
            "--workload" => only = Some(value),
            "--seed" => seeds = number()..number() + 1,
            "--seeds" => seeds = 1..number() + 1,
            "--op" => points = Points::One(number()),
            _ => panic!("unknown option {name}; there are --quick, --workload, --seed, --seeds and --op"),
        }
    }
    let chosen: Vec<Workload> =
        workloads().into_iter().filter(|w| only.as_ref().is_none_or(|name| name == w.name)).collect();
    assert!(!chosen.is_empty(), "there is no workload {only:?}");
    let titles = ["disk ops", "checkpoints", "recycled", "recoveries", "failed"];
    println!(
        "{:28} {:>9} {:>11} {:>8} {:>11} {:>8}",
        "workload", titles[0], titles[1], titles[2], titles[3], titles[4]
    );
    let (mut passed, mut failures_of_all, mut recoveries) = (0, 0, 0);
    for workload in &chosen {
        let (mut ops, mut checkpoints, mut recycled, mut starts, mut failures) = (0, 0, 0, 0, Vec::new());
        for seed in seeds.clone() {
            let tally = crash_everywhere(workload, seed, points);
            ops += tally.disk_ops;
            checkpoints += tally.checkpoints;
            recycled += tally.recycled;
            starts += tally.recoveries;
            passed += tally.passed;
            failures.extend(tally.failures);
        }
        let (name, failed) = (workload.name, failures.len());
        println!("{name:28} {ops:>9} {checkpoints:>11} {recycled:>8} {starts:>11} {failed:>8}");
        for failure in failures.iter().take(3) {
            println!("  {failure}");
        }
        failures_of_all += failed;
        recoveries += starts;
    }
    println!("{} workloads, {recoveries} recoveries", chosen.len());
    println!("{passed} passed, {failures_of_all} failed");
    if failures_of_all > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
