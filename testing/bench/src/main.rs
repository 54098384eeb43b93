//! Benchmark driver: `packhorse-bench quick` for a first figure, `packhorse-bench run B1 B2 …` for scenarios beside other
//! brokers. The load comes from `packhorse bench`, in processes of its own.
//!
//! A driver only: it knows a broker as any client does, by AMQP, HTTP, and what the system says of its processes.

mod load;
mod moving;
mod probe;
mod quick;
mod report;
mod row;
mod run;
mod scenario;
mod slot;
mod stats;
mod system;
mod targets;
mod usage;

use clap::{Parser, Subcommand};
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Benchmarks of Packhorse and of other AMQP 1.0 brokers", version)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// One producer and one consumer against a fresh broker; figures as text and JSON
    Quick(quick::Options),
    /// Scenarios in interleaved rounds, with peers if wanted
    Run(run::Options),
}

fn main() -> ExitCode {
    let done = match Line::parse().verb {
        Verb::Quick(options) => quick::run(&options),
        Verb::Run(options) => run::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("packhorse-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Nanoseconds of the clock that all processes of the machine share.
fn monotonic_ns() -> u64 {
    let at = clock_gettime(ClockId::Monotonic);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Waits for real: what is measured here happens in other processes.
fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark is about real time")]
    std::thread::sleep(time);
}
