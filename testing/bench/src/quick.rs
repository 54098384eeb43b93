//! The first figure: one producer with many unconfirmed, one consumer, persistent messages, separate processes over TCP.
//!
//! The broker is a real process on a fresh data directory. What it used is read from the system, what it flushed from
//! its own status; the clients check every message, and a run that loses, doubles or reorders one fails.

use crate::probe;
use clap::Args;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Options {
    /// The broker's binary
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

/// A broker that dies with us.
struct Broker {
    child: Child,
    amqp: String,
    http: String,
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    fn start(binary: &Path, dir: &Path) -> Result<Broker, String> {
        let ready = dir.join("ready.json");
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]).arg(dir.join("data"));
        command.arg("--ready-file").arg(&ready).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", binary.display()))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                let facts: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
                let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
                return Ok(Broker { child, amqp: text(&facts["amqp"][0]), http: text(&facts["http"]) });
            }
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("the broker ended before it was ready: {status}"));
            }
            if Instant::now() > deadline {
                return Err("the broker was not ready after 20 s".into());
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the ready file is the broker's only sign, and it has none for waiting"
            )]
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn flushes(&self) -> Result<u64, String> {
        let mut socket = TcpStream::connect(&self.http).map_err(|e| format!("{}: {e}", self.http))?;
        let request = format!("GET /api/v1/status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
        socket.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map_err(|e| e.to_string())?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let status: Value = serde_json::from_str(body).map_err(|e| format!("status: {e}: {body}"))?;
        status["store"]["flushes"].as_u64().ok_or_else(|| format!("the status names no flushes: {status}"))
    }
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
        let mut all: Vec<f64> = rounds.iter().filter_map(|round| round[name].as_f64()).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let names =
        ["per_second", "cpu_us", "flushes_per_1000", "confirm_p50_us", "confirm_p99_us", "raw_flush_us", "rss_kib"];
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
        figure("rss_kib") / 1024.0
    )
}

fn round(options: &Options) -> Result<Value, String> {
    let dir = tempfile::Builder::new().prefix("packhorse-bench").tempdir_in(&options.dir).map_err(|e| e.to_string())?;
    let raw_flush_us = probe::raw_flush_us(dir.path()).map_err(|e| format!("probe: {e}"))?;
    let broker = Broker::start(&options.broker, dir.path())?;
    let pid = broker.child.id();
    let load = |verb: &str| {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(me);
        command.args([verb, "--amqp", &broker.amqp, "--queue", "bench"]);
        command.args(["--count", &options.count.to_string(), "--size", &options.size.to_string()]);
        command.args(["--window", &options.window.to_string()]);
        command.stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())
    };
    let flushes = broker.flushes()?;
    let cpu = probe::cpu_us(pid).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let consumer = load("consume")?;
    let producer = load("produce")?;
    let produced = report(producer, "the producer")?;
    let _ = report(consumer, "the consumer")?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = probe::cpu_us(pid).map_err(|e| e.to_string())? - cpu;
    let flushes = broker.flushes()? - flushes;
    if flushes == 0 {
        return Err("the broker confirmed without a single flush: the run is void".into());
    }
    let count = options.count as f64;
    Ok(json!({
        "per_second": count / seconds,
        "cpu_us": cpu as f64 / count,
        "flushes_per_1000": flushes as f64 * 1000.0 / count,
        "confirm_p50_us": produced["confirm_us"]["p50"],
        "confirm_p99_us": produced["confirm_us"]["p99"],
        "raw_flush_us": raw_flush_us,
        "rss_kib": probe::rss_kib(pid).map_err(|e| e.to_string())?,
    }))
}

/// Waits for a load process; what it printed.
fn report(child: Child, who: &str) -> Result<Value, String> {
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("{who} failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{who}: {e}"))
}
