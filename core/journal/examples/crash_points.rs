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
    println!("{:24} {:>9} {:>11} {:>8}", "workload", "disk ops", "recoveries", "failed");
    let (mut passed, mut failed, mut recoveries) = (0, 0, 0);
    for workload in &chosen {
        let (mut ops, mut starts, mut failures) = (0, 0, Vec::new());
        for seed in seeds.clone() {
            let tally = crash_everywhere(workload, seed, points);
            ops += tally.disk_ops;
            starts += tally.recoveries;
            passed += tally.passed;
            failures.extend(tally.failures);
        }
        println!("{:24} {ops:>9} {starts:>11} {:>8}", workload.name, failures.len());
        for failure in failures.iter().take(3) {
            println!("  {failure}");
        }
        failed += failures.len();
        recoveries += starts;
    }
    println!("{} workloads, {recoveries} recoveries", chosen.len());
    println!("{passed} passed, {failed} failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
