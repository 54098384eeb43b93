//! `packhorse-sim --seed N [--shards S]` runs one world and prints its digest; `--seeds N` runs worlds 1 to N with one and
//! two shards each.

use packhorse_sim::{Settings, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let worlds: Vec<Settings> = match (value("--seed"), value("--seeds")) {
        (Some(seed), _) => vec![Settings::new(seed, value("--shards").unwrap_or(1) as u16)],
        (None, Some(seeds)) => (1..=seeds).flat_map(|seed| [1, 2].map(|shards| Settings::new(seed, shards))).collect(),
        (None, None) => {
            eprintln!("usage: packhorse-sim --seed N [--shards S] | --seeds N");
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for settings in worlds {
        let verdict = run(settings);
        println!(
            "seed {} shards {} digest {:016x} {:?}",
            settings.seed, settings.shards, verdict.digest, verdict.totals
        );
        for violation in &verdict.violations {
            println!("  VIOLATION {violation}");
        }
        if verdict.violations.is_empty() {
            passed += 1;
        } else {
            failed += 1;
            println!("  again: cargo run -p packhorse-sim -- --seed {} --shards {}", settings.seed, settings.shards);
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
