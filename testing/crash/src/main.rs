//! `packhorse-crash kills`: the kill harness; `power`: the same with power cuts; `producer`, `consumer`, `transactor` and `manager` are the
//! client processes that it starts. `xa`, `pipeline`: branches whose manager, broker or link dies.
//!
//! Owns the command line only.

use clap::{Parser, Subcommand};
use packhorse_crash::harness::transform::{self, WorkerOptions};
use packhorse_crash::harness::{self, Campaign, ClientOptions, Death, KillNine, Verdict};
use packhorse_crash::planted;
use packhorse_crash::power::{FailedFlush, Layer, PowerCut};
use packhorse_crash::transact::{Figures, deaths, giant, pipeline};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
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
    /// The same with power cuts: what was not synced is lost
    Power(Kills),
    /// The same with flushes that fail: the broker must end by itself
    Flushes(Kills),
    /// Branches of XA: at each step the manager, the broker, both or the link dies, each cell so many times
    Xa(Branches),
    /// A pipeline whose manager dies so many times between prepare and decision
    Pipeline(Branches),
    /// Messages are sent, and sent on in transactions, while broker and clients are killed; each arrives once
    Transform(Branches),
    /// Transactions of so many bytes, the broker killed while they are committed
    Giant(Branches),
    /// A worker of such a run
    Worker(WorkerOptions),
    /// A broker of feature `planted`: each of its faults must be found
    Planted(Kills),
    /// A producing client of a run
    Producer(ClientOptions),
    /// A consuming client of a run
    Consumer(ClientOptions),
    /// A client of a run with local transactions
    Transactor(ClientOptions),
    /// A client of a run that manages branches
    Manager(ClientOptions),
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
    /// No run with foreign clients; otherwise one in four
    #[arg(long)]
    only_ours: bool,
    /// Clients work through a proxy that disturbs their connections
    #[arg(long)]
    faults: bool,
    /// Writes what it came to into this file too, as JSON
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Branches {
    /// How often
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// What is drawn is drawn from this; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Where runs put their files
    #[arg(long, default_value = "target/crash")]
    dir: PathBuf,
    /// Writes what it came to into this file too, as JSON
    #[arg(long)]
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Line::parse().verb {
        Verb::Xa(options) => branches(&options, "xa", deaths::run),
        Verb::Pipeline(options) => branches(&options, "pipeline", pipeline::run),
        Verb::Transform(options) => branches(&options, "transform", transformed),
        Verb::Giant(options) => branches(&options, "giant", giant::run),
        Verb::Worker(options) => transform::work(&options).map(|()| true),
        Verb::Kills(options) => kills(&options, &mut KillNine, "--kills").map(|verdict| verdict.is_clean()),
        Verb::Power(options) => power(&options),
        Verb::Flushes(options) => flushes(&options),
        // What foreign clients see is found in the other runs.
        Verb::Planted(options) => campaign(&Kills { only_ours: true, faults: false, ..options }, "--planted")
            .and_then(|campaign| planted::run(&campaign)),
        Verb::Producer(options) => harness::produce(&options).map(|()| true),
        Verb::Consumer(options) => harness::consume(&options).map(|()| true),
        Verb::Transactor(options) => harness::transact(&options).map(|()| true),
        Verb::Manager(options) => harness::manage(&options).map(|()| true),
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

fn kills(options: &Kills, death: &mut dyn Death, flag: &str) -> Result<Verdict, String> {
    let verdict = campaign(options, flag)?.run(death)?;
    println!("{verdict}");
    if let Some(path) = &options.report {
        verdict.write_report(path)?;
    }
    Ok(verdict)
}

/// A run about branches, in a folder of its own that stays if something is found.
fn branches(options: &Branches, verb: &str, run: impl FnOnce(&Path, u64, u64) -> Figures) -> Result<bool, String> {
    let (count, seed) = (options.count, options.seed.unwrap_or_else(another_seed));
    println!("cargo xtask crash --{verb} {count} --seed {seed}");
    let dir = options.dir.join(format!("{verb}-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    // Where the broker is not there any more, or does not answer, the run ends by a panic, which was printed.
    let figures = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&dir, count, seed)));
    let figures = figures.unwrap_or_else(|_| {
        let mut broken = Figures::new(seed);
        broken.found.push("the run ended before its time".to_owned());
        broken
    });
    println!("{figures}");
    if let Some(path) = &options.report {
        figures.write_report(path)?;
    }
    if figures.is_clean() {
        std::fs::remove_dir_all(&dir).map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
    } else {
        println!("log and data: {}", dir.display());
    }
    Ok(figures.is_clean())
}

/// Messages that are sent on, as many as `messages`.
fn transformed(dir: &Path, messages: u64, seed: u64) -> Figures {
    const LIFE_MS: u64 = 60;
    let ran = programs().and_then(|[program, bin]| {
        let (dir, environment) = (dir.to_owned(), Vec::new());
        transform::run(&transform::Plan { bin, program, dir, seed, messages, environment, life_ms: LIFE_MS })
    });
    ran.unwrap_or_else(|why| {
        let mut broken = Figures::new(seed);
        broken.found.push(why);
        broken
    })
}

/// This program, and the broker: that of `PACKHORSE_BIN`, or the one beside.
fn programs() -> Result<[PathBuf; 2], String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let bin = std::env::var_os("PACKHORSE_BIN").map_or_else(|| program.with_file_name("packhorse"), PathBuf::from);
    Ok([program, bin])
}

fn another_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 1_000_000_000
}

fn campaign(options: &Kills, flag: &str) -> Result<Campaign, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let bin = options.bin.clone().unwrap_or_else(|| program.with_file_name("packhorse"));
    if !bin.is_file() {
        return Err(format!("{}: not there; build it, or name one with --bin", bin.display()));
    }
    let seed = options.seed.unwrap_or_else(another_seed);
    let foreign = if options.only_ours { None } else { foreign(&program)? };
    Ok(Campaign {
        bin,
        environment: Vec::new(),
        program,
        foreign,
        dir: options.dir.clone(),
        seed,
        kills: options.count,
        kills_per_run: options.per_run,
        faults: options.faults,
        keep: options.keep,
        command: format!("cargo xtask crash {flag}"),
    })
}

/// Whether a layer can be mounted. Where it cannot, a person is told so; in CI that is an error.
fn layers() -> Result<bool, String> {
    let Err(why) = Layer::probe() else { return Ok(true) };
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return Err(format!("power cannot be cut: {why}"));
    }
    println!("SKIPPED: power cannot be cut: {why}; run as root, with /dev/fuse");
    Ok(false)
}

fn power(options: &Kills) -> Result<bool, String> {
    if !layers()? {
        return Ok(true);
    }
    let mut cuts = PowerCut::default();
    let verdict = kills(options, &mut cuts, "--power")?;
    println!("{cuts}");
    let blind = cuts.blind();
    blind.iter().for_each(|why| println!("{why}"));
    Ok(verdict.is_clean() && blind.is_none())
}

fn flushes(options: &Kills) -> Result<bool, String> {
    if !layers()? {
        return Ok(true);
    }
    let mut failed = FailedFlush::default();
    let verdict = kills(options, &mut failed, "--flushes")?;
    println!("{failed}");
    Ok(verdict.is_clean())
}

/// The command line of the foreign clients: Proton for Python, installed by the interop driver. `None`, with a sentence, where it
/// cannot be had; in CI that is an error.
fn foreign(program: &Path) -> Result<Option<Vec<String>>, String> {
    let driver = program.with_file_name("packhorse-interop");
    let installed = Command::new(&driver).args(["--prepare", "proton"]).output();
    let missing = match installed {
        Ok(output) if output.status.success() => {
            let python = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/client.py");
            return Ok(Some(vec![python, "-B".into(), script.into()]));
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => format!("{}: {e}; build it with `cargo build -p packhorse-interop`", driver.display()),
    };
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return Err(format!("no foreign clients: {missing}"));
    }
    println!("SKIPPED: the runs with Proton have our own clients instead, for Proton cannot be had: {missing}");
    Ok(None)
}
