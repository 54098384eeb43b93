//! The first figure: one producer with many unconfirmed, one consumer, persistent messages, separate processes over TCP.
//!
//! The broker is a real process on a fresh data directory. What it used is read from the system, what it flushed from
//! its own status; the clients check every message, and a run that loses, doubles or reorders one fails.

use crate::load::Load;
use crate::monotonic_ns;
use crate::probe;
use crate::stats::Range;
use crate::system::System;
use crate::usage::{self, Snapshot};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Options {
    /// The binary of the broker and the load generator
    #[arg(long, env = "PACKHORSE_BIN")]
    broker: PathBuf,
    /// Messages in each round
    #[arg(long, default_value_t = 500_000)]
    count: u64,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Unconfirmed messages at most, and the consumer's credit
    #[arg(long, default_value_t = 1024)]
    window: u32,
    /// Rounds, each on a fresh data directory
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Where the data directories are made
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print JSON only
    #[arg(long)]
    json: bool,
}

/// Runs the rounds and prints each, then the medians.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let round = round(options)?;
        if !options.json {
            println!("round {number}: {}", line(&round));
        }
        rounds.push(round);
    }
    let median = |name: &str| {
        let all = rounds.iter().filter_map(|round| round[name].as_f64()).collect();
        Range::of(all).map(|range| range.median)
    };
    let names =
        ["per_second", "cpu_us", "flushes_per_1000", "confirm_p50_us", "confirm_p99_us", "raw_flush_us", "rss_mib"];
    let medians: Value =
        names.iter().map(|name| (name.to_string(), json!(median(name)))).collect::<serde_json::Map<_, _>>().into();
    if options.json {
        println!("{}", json!({ "rounds": rounds, "median": medians }));
    } else {
        println!("median:  {}", line(&medians));
    }
    Ok(())
}

fn line(round: &Value) -> String {
    let figure = |name: &str| round[name].as_f64().unwrap_or(0.0);
    format!(
        "{:.0} msg/s confirmed and acknowledged, broker {:.2} µs CPU/message, {:.1} fdatasyncs/1,000 confirms, confirm p50 {:.0} µs p99 {:.0} µs (raw flush p50 {:.0} µs), RSS {:.0} MiB",
        figure("per_second"),
        figure("cpu_us"),
        figure("flushes_per_1000"),
        figure("confirm_p50_us"),
        figure("confirm_p99_us"),
        figure("raw_flush_us"),
        figure("rss_mib")
    )
}

fn round(options: &Options) -> Result<Value, String> {
    let dir = tempfile::Builder::new().prefix("packhorse-bench").tempdir_in(&options.dir).map_err(|e| e.to_string())?;
    let raw = probe::flushes(dir.path(), 4096, 1, Duration::from_secs(1)).map_err(|e| format!("probe: {e}"))?;
    let system = System::Ours { binary: options.broker.clone(), arguments: Vec::new() };
    let (broker, addresses) = system.start(dir.path(), &["bench".to_string()])?;
    let arguments = [
        format!("--count={}", options.count),
        format!("--size={}", options.size),
        format!("--window={}", options.window),
        format!("--credit={}", options.window),
        "--run=1".to_string(),
    ];
    let load = |who| Load::start(&options.broker, who, &broker, &addresses, &arguments);
    let mut consumer = load("consumer")?;
    let mut producer = load("producer")?;
    let flushes = || -> Result<u64, String> {
        let status = broker.status()?.unwrap_or_default();
        status["store"]["flushes"].as_u64().ok_or_else(|| format!("the status names no flushes: {status}"))
    };
    let (flushed, before, start) = (flushes()?, Snapshot::take()?, monotonic_ns());
    consumer.begin(start)?;
    producer.begin(start)?;
    let produced = producer.end()?;
    let consumed = consumer.end()?;
    let seconds = (monotonic_ns() - start) as f64 / 1e9;
    let (flushed, after) = (flushes()? - flushed, Snapshot::take()?);
    if produced.violated || consumed.violated {
        return Err(format!("the history is wrong: {} {}", produced.figures, consumed.figures));
    }
    if flushed == 0 {
        return Err("the broker confirmed without a single flush: the run is void".into());
    }
    let count = options.count as f64;
    let latency = &produced.figures["producer"]["confirm_us"];
    Ok(json!({
        "per_second": count / seconds,
        "cpu_us": after.cpu_us(&before, broker.pid) / count,
        "flushes_per_1000": flushed as f64 * 1000.0 / count,
        "confirm_p50_us": latency["p50"],
        "confirm_p99_us": latency["p99"],
        "raw_flush_us": raw.p50_us,
        "rss_mib": usage::rss_mib(&after.family(broker.pid)),
    }))
}
