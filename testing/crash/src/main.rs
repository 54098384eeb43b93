//! `packhorse-crash kills`: the kill harness; `producer` and `consumer` are the client processes that it starts.
//!
//! Owns the command line only.

use clap::{Parser, Subcommand};
use packhorse_crash::harness::{self, Campaign, ClientOptions, KillNine};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Parser)]
#[command(about = "Kills the real broker while clients work, and judges what they saw", version)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs with kill -9 until so many kills count
    Kills(Kills),
    /// A producing client of a run
    Producer(ClientOptions),
    /// A consuming client of a run
    Consumer(ClientOptions),
}

#[derive(clap::Args)]
struct Kills {
    /// Kills that are to count
    #[arg(long, default_value_t = 20)]
    count: u64,
    /// The first run's seed; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// The broker; by default `packhorse` beside this program
    #[arg(long, env = "PACKHORSE_BIN")]
    bin: Option<PathBuf>,
    /// Where runs put their files
    #[arg(long, default_value = "target/crash")]
    dir: PathBuf,
    /// Kills of a run
    #[arg(long, default_value_t = 5)]
    per_run: u32,
    /// Keeps the files of clean runs too
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let done = match Line::parse().verb {
        Verb::Kills(options) => kills(&options),
        Verb::Producer(options) => harness::produce(&options).map(|()| true),
        Verb::Consumer(options) => harness::consume(&options).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("packhorse-crash: {why}");
            ExitCode::from(2)
        }
    }
}

fn kills(options: &Kills) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let bin = options.bin.clone().unwrap_or_else(|| program.with_file_name("packhorse"));
    if !bin.is_file() {
        return Err(format!("{}: not there; build it, or name one with --bin", bin.display()));
    }
    let seed = options.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() % 1_000_000_000
    });
    let campaign = Campaign {
        bin,
        environment: Vec::new(),
        program,
        foreign: None,
        dir: options.dir.clone(),
        seed,
        kills: options.count,
        kills_per_run: options.per_run,
        keep: options.keep,
        command: "cargo xtask crash --kills".into(),
    };
    let verdict = campaign.run(&mut KillNine)?;
    println!("{verdict}");
    Ok(verdict.is_clean())
}
