//! The interleaved run: rounds over cases, systems in random order, each measurement on fresh data; then medians and ratios.

use crate::report::{self, Run};
use crate::row::{self, Row};
use crate::scenario::{self, Case, PIPE_1K, Rate, Times, Work};
use crate::slot::{self, Noise, Settings};
use crate::stats::{self, Range};
use crate::system::{OURS, System};
use crate::targets;
use clap::Args;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Seconds after the measured ones in which system calls are counted.
const COOLDOWN: f64 = 3.0;

#[derive(Args)]
pub(crate) struct Options {
    /// B1 to B6, tx for B5 and B6, or single cases such as B2-1k
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// The binary of the broker and the load generator
    #[arg(long, env = "PACKHORSE_BIN")]
    broker: PathBuf,
    /// An argument of `packhorse serve`, may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    serve: Vec<String>,
    /// The folder of the peers' scripts
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Which of them take part
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "peers")]
    with: Vec<String>,
    /// Rounds: each case once with each system
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds to measure [default: as the scenario says]
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds of warm-up [default: 3; 10 and 20 for those that compile as they go]
    #[arg(long)]
    warmup: Option<f64>,
    /// Seconds of each probe of the disk
    #[arg(long, default_value_t = 3.0)]
    probe: f64,
    /// How often a void measurement is taken again
    #[arg(long, default_value_t = 1)]
    again: u32,
    /// CPU time of other programs above which a measurement is void, percent of the machine
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    foreign: f64,
    /// How far the disk's probes before and after may be apart before it is void, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 40.0)]
    apart: f64,
    /// Where the data folders are made; its file system is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Seed of the order [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// All measurements as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the report between its markers in docs/performance.md, and its measurements to docs/performance.csv (-tx.csv for B5 and B6)
    #[arg(long)]
    report: bool,
}

/// Runs; fails if a measurement of ours broke a promise or none counts.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let cases = scenario::cases(&options.scenarios)?;
    if options.report && cases.iter().any(Case::transacted) && !cases.iter().all(Case::transacted) {
        return Err("B1 to B4 have a report, and B5 and B6 another one: take either with --report".into());
    }
    let systems = systems(options)?;
    for system in &systems {
        system.install()?;
    }
    let facts = systems.iter().map(|s| Ok((s.name().to_string(), s.facts()?))).collect::<Result<_, String>>()?;
    let seed = options.seed.unwrap_or_else(crate::monotonic_ns);
    println!("{} with {}, {} rounds, seed {seed}", options.scenarios.join(" "), names(&systems), options.rounds);

    let mut csv = Csv::open(options, &cases)?;
    let mut rows = Vec::new();
    let mut order = Order(seed | 1);
    let mut share = None;
    for round in 1..=options.rounds {
        // Every other round goes the other way, so that a machine that becomes slower or faster favors no case. The first does not: some
        // cases take their rate from an earlier one.
        let mut turn: Vec<&Case> = cases.iter().collect();
        if round % 2 == 0 {
            turn.reverse();
        }
        for case in turn {
            let Some(rate) = rate(case, &rows, &systems, &mut share) else {
                if round == 1 {
                    println!(
                        "    {} is left out: it takes its rate from {PIPE_1K}, of which no measurement counts",
                        case.name
                    );
                }
                continue;
            };
            // Peers have no words for XA over AMQP.
            let takes_part = |system: &&System| !case.ours_only() || system.name() == OURS;
            let mut turn: Vec<&System> = systems.iter().filter(takes_part).collect();
            order.shuffle(&mut turn);
            for system in turn {
                rows.push(one(options, system, case, rate, round, &mut csv)?);
            }
        }
    }
    summary(&rows, &cases, &systems);
    for target in targets::targets(&rows) {
        let reached = show(target.reached, target.digits);
        let met = if target.met { "met" } else { "NOT MET" };
        println!("target   {}: {reached}; wanted: {}: {met}", target.what, target.wanted);
    }
    if options.report {
        let run = Run {
            rows: &rows,
            cases: &cases,
            systems: systems.iter().map(|system| system.name().to_string()).collect(),
            facts,
            rounds: options.rounds,
            seed,
            dir: &options.dir,
            noise: Noise { foreign_percent: options.foreign, apart_percent: options.apart },
        };
        report::write(Path::new("docs/performance.md"), &run)?;
        println!("written to docs/performance.md and {}", report::table(&cases));
    }
    verdict(&rows, &cases)
}

fn systems(options: &Options) -> Result<Vec<System>, String> {
    let mut systems = vec![System::Ours { binary: options.broker.clone(), arguments: options.serve.clone() }];
    for name in &options.with {
        let folder = options.peers.as_deref().unwrap_or(Path::new("."));
        systems.push(System::peer(folder, name)?);
    }
    Ok(systems)
}

/// One measurement, taken again if it is void.
fn one(
    options: &Options,
    system: &System,
    case: &Case,
    rate: Option<f64>,
    round: u32,
    csv: &mut Csv,
) -> Result<Row, String> {
    let noise = Noise { foreign_percent: options.foreign, apart_percent: options.apart };
    let settings = Settings { binary: &options.broker, dir: &options.dir, probe: options.probe, noise };
    let times = Times {
        warm_up: options.warmup.unwrap_or(system.warm_up_seconds()),
        measured: options.seconds.unwrap_or(case.seconds),
        cooldown: COOLDOWN,
    };
    let mut left = options.again;
    loop {
        let row = slot::measure(&settings, system, case, rate, &times, round).unwrap_or_else(|why| {
            let mut row = Row::new(round, case.name, system.name());
            row.make_void(&why);
            row
        });
        println!("{}", row.line());
        csv.add(&row)?;
        if row.void.is_none() || left == 0 || broken(&row) {
            return Ok(row);
        }
        left -= 1;
    }
}

/// Whether the history of a row is wrong: no reason to try again.
fn broken(row: &Row) -> bool {
    ["lost", "duplicated", "reordered", "corrupt", "misrouted", "missing", "unexpected"]
        .iter()
        .any(|kind| row.get(kind).is_some_and(|n| n > 0.0))
}

/// The rate of a case: outer `None`, if it cannot be known; inner, if there is none.
fn rate(case: &Case, rows: &[Row], systems: &[System], share: &mut Option<f64>) -> Option<Option<f64>> {
    match case.rate {
        Rate::Window => Some(None),
        Rate::Fixed(rate) => Some(Some(rate)),
        // Fixed when it is first needed: all rounds have the same.
        Rate::ShareOfBest(part) => {
            if share.is_none() {
                let (ours, peers) = systems.split_at(1);
                let best = |systems: &[System]| {
                    let figures = systems.iter().filter_map(|s| stats::figure(rows, PIPE_1K, s.name(), "per_second"));
                    figures.map(|range| range.median).max_by(f64::total_cmp)
                };
                *share = best(peers).or_else(|| best(ours)).map(|best| (best * part).round());
            }
            share.map(Some)
        }
    }
}

/// Numbers for the order of systems.
struct Order(u64);

impl Order {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }
}

/// Where measurements go as they are taken: a run of hours that is stopped leaves what it has.
struct Csv {
    files: Vec<fs::File>,
}

impl Csv {
    fn open(options: &Options, cases: &[Case]) -> Result<Csv, String> {
        let beside = options.report.then(|| PathBuf::from(report::table(cases)));
        let mut csv = Csv { files: Vec::new() };
        for path in [options.csv.clone(), beside].into_iter().flatten() {
            csv.files.push(fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
        csv.line(&row::csv_head())?;
        Ok(csv)
    }

    fn add(&mut self, row: &Row) -> Result<(), String> {
        self.line(&row.csv())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        self.files.iter_mut().try_for_each(|file| writeln!(file, "{line}")).map_err(|e| format!("CSV: {e}"))
    }
}

fn names(systems: &[System]) -> String {
    systems.iter().map(System::name).collect::<Vec<_>>().join(", ")
}

fn show(range: Option<Range>, digits: usize) -> String {
    range.map_or("-".into(), |r| format!("{:.digits$} [{:.digits$} … {:.digits$}]", r.median, r.least, r.most))
}

/// Medians of all, and ratios of ours to each peer.
fn summary(rows: &[Row], cases: &[Case], systems: &[System]) {
    println!("\nmedians [least … most] of the rounds that count");
    for case in cases {
        for system in systems {
            let figure = |name, digits| show(stats::figure(rows, case.name, system.name(), name), digits);
            if let Work::Recover { .. } = case.work {
                println!("{:<8} {} ms to the whole answer", case.name, figure("recover_ms", 1));
                continue;
            }
            println!(
                "{:<8} {:<10} {} msg/s, {} tx/s, {} µs CPU, confirm p50 {} µs, p99 {} µs, {} flushes/1,000",
                case.name,
                system.name(),
                figure("per_second", 0),
                figure("units_per_second", 0),
                figure("cpu_us", 2),
                figure("confirm_p50_us", 0),
                figure("confirm_p99_us", 0),
                figure(if system.name() == "packhorse" { "flushes_per_1000" } else { "sliced_flushes_per_1000" }, 1),
            );
        }
        for peer in &systems[1..] {
            let ratio = |name, ours, theirs| show(stats::ratio(rows, case.name, name, ours, theirs), 2);
            println!(
                "{:<8} packhorse / {}: {} × the rate; {} / packhorse: {} × the CPU, {} × the p50, {} × the p99",
                case.name,
                peer.name(),
                ratio("per_second", "packhorse", peer.name()),
                peer.name(),
                ratio("cpu_us", peer.name(), "packhorse"),
                ratio("confirm_p50_us", peer.name(), "packhorse"),
                ratio("confirm_p99_us", peer.name(), "packhorse"),
            );
        }
    }
}

/// Whether the run says anything, and whether ours kept its promises.
fn verdict(rows: &[Row], cases: &[Case]) -> Result<(), String> {
    let ours = || rows.iter().filter(|row| row.system == "packhorse");
    if let Some(row) = ours().find(|row| broken(row)) {
        let why = row.void.as_deref().unwrap_or("");
        return Err(format!("{} in round {}: {why}", row.case, row.round));
    }
    let measured = cases.iter().filter(|case| ours().any(|row| row.case == case.name));
    let empty: Vec<&str> = measured
        .filter(|case| !ours().any(|row| row.case == case.name && row.void.is_none()))
        .map(|case| case.name)
        .collect();
    if empty.is_empty() { Ok(()) } else { Err(format!("every measurement of {} is void", empty.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, system: &str, per_second: f64) -> Row {
        let mut row = Row::new(1, case, system);
        row.set("per_second", per_second);
        row
    }

    #[test]
    fn an_order_has_everybody_once_and_depends_on_the_seed() {
        let shuffled = |seed: u64| {
            let mut all = [0, 1, 2, 3, 4, 5, 6, 7];
            Order(seed | 1).shuffle(&mut all);
            all
        };
        let mut sorted = shuffled(77);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(shuffled(77), shuffled(77));
        assert_ne!(shuffled(77), shuffled(12345));
    }

    #[test]
    fn half_of_the_best_peer_is_ours_only_where_there_is_no_peer_and_stays() {
        let half = &scenario::cases(&["B4-half".to_string()]).unwrap()[0];
        let ours = System::Ours { binary: PathBuf::new(), arguments: Vec::new() };
        let peer = System::Peer { script: PathBuf::new(), name: "artemis".into() };
        let mut rows = vec![row(PIPE_1K, "packhorse", 100.0), row(PIPE_1K, "artemis", 40.0)];
        let (alone, both) = ([ours.clone()], [ours, peer]);
        assert_eq!(rate(half, &[], &both, &mut None), None);
        assert_eq!(rate(half, &rows, &alone, &mut None), Some(Some(50.0)));
        let mut share = None;
        assert_eq!(rate(half, &rows, &both, &mut share), Some(Some(20.0)));
        rows.push(row(PIPE_1K, "artemis", 400.0));
        assert_eq!(rate(half, &rows, &both, &mut share), Some(Some(20.0)));
    }

    #[test]
    fn a_run_fails_when_ours_broke_a_promise_or_nothing_counts() {
        let cases = scenario::cases(&["B1".to_string()]).unwrap();
        let good = row("B1", "packhorse", 5.0);
        let mut void = good.clone();
        void.make_void("noise");
        let mut wrong = void.clone();
        wrong.set("duplicated", 1.0);
        let mut theirs = wrong.clone();
        theirs.system = "artemis".into();
        assert_eq!(verdict(&[good.clone(), void.clone(), theirs], &cases), Ok(()));
        assert!(verdict(&[void], &cases).is_err());
        assert!(verdict(&[good, wrong], &cases).is_err());
    }
}
