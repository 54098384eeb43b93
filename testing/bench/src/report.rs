//! The report: `docs/performance.md` between its markers. What a person wrote around them stays.

use crate::row::Row;
use crate::scenario::{CREDIT, Case, Work};
use crate::slot::Noise;
use crate::stats::{self, Range};
use crate::system;
use crate::targets;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a report stands between, and where its measurements are.
struct Place {
    begin: &'static str,
    end: &'static str,
    table: &'static str,
}

const PIPES: Place =
    Place { begin: "<!-- measured: begin -->", end: "<!-- measured: end -->", table: "performance.csv" };
const TRANSACTIONS: Place = Place {
    begin: "<!-- measured with transactions: begin -->",
    end: "<!-- measured with transactions: end -->",
    table: "performance-tx.csv",
};

/// Cases with transactions have a place of their own: they are taken at another time than the others.
fn place(cases: &[Case]) -> &'static Place {
    if cases.iter().any(Case::transacted) { &TRANSACTIONS } else { &PIPES }
}

/// The file with the measurements of a report.
pub(crate) fn table(cases: &[Case]) -> String {
    format!("docs/{}", place(cases).table)
}

/// What a run has to tell.
pub(crate) struct Run<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) cases: &'a [Case],
    /// Ours first.
    pub(crate) systems: Vec<String>,
    /// What each says of itself.
    pub(crate) facts: Vec<(String, Vec<(String, String)>)>,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) dir: &'a Path,
    pub(crate) noise: Noise,
}

/// Puts the report into the file.
pub(crate) fn write(path: &Path, run: &Run<'_>) -> Result<(), String> {
    let place = place(run.cases);
    let empty = || format!("# Speed, measured\n\n{}\n{}\n", place.begin, place.end);
    let before = fs::read_to_string(path).unwrap_or_else(|_| empty());
    let text = put(&before, place, &render(run)?)?;
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The text with what is between the markers replaced.
fn put(text: &str, place: &Place, report: &str) -> Result<String, String> {
    let Place { begin: first, end: last, .. } = place;
    let (Some(begin), Some(end)) = (text.find(first), text.find(last)) else {
        return Err(format!("the report goes between `{first}` and `{last}`, and they are not there"));
    };
    if end < begin {
        return Err(format!("`{last}` stands before `{first}`"));
    }
    Ok(format!("{}\n{}\n{}", &text[..begin + first.len()], report.trim_end(), &text[end..]))
}

fn render(run: &Run<'_>) -> Result<String, String> {
    let mut out = String::new();
    conditions(run, &mut out)?;
    reached(run, &mut out);
    for case in run.cases {
        match case.work {
            Work::Pipe => one_case(run, case, &mut out),
            Work::Move { .. } => moved(run, case, &mut out),
            Work::Recover { .. } => recovered(run, case, &mut out),
        }
    }
    if !run.cases.iter().any(Case::transacted) {
        durability(run, &mut out);
    }
    Ok(out)
}

fn conditions(run: &Run<'_>, out: &mut String) -> Result<(), String> {
    let told = |program: &str, arguments: &[&str]| system::text(Command::new(program).args(arguments));
    let date = told("date", &["-u", "+%Y-%m-%d"])?;
    let commit = told("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|_| "unknown".into());
    let file_system = told("stat", &["-f", "-c", "%T", &run.dir.to_string_lossy()])?;
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("unknown")
        .trim_start_matches([':', '\t', ' ']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = told("uname", &["-sr"])?;
    let rustc = told("rustc", &["--version"]).unwrap_or_else(|_| "unknown".into());
    let words: Vec<String> = std::env::args().skip(2).collect();
    let _ = write!(
        out,
        "Measured on {} at commit {} with `cargo xtask bench {}`: {} rounds, seed {}.\n\
         Machine: {cpu}, {cores} cores, {}, data on {}, {}.\n\n",
        date.trim(),
        commit.trim(),
        words.join(" "),
        run.rounds,
        run.seed,
        kernel.trim(),
        file_system.trim(),
        rustc.trim()
    );
    let Noise { foreign_percent, apart_percent } = run.noise;
    let table = place(run.cases).table;
    let _ = writeln!(
        out,
        "Medians [least … most] of the rounds that count. Ratios are taken within a round. A measurement is void, and left out, when its history is \
         wrong (of a peer, lost order alone is told and counts), when nothing was flushed, when others used more than {foreign_percent} % of the machine, or when the disk's probes before and after \
         are more than {apart_percent} % apart. All of them, void ones included, are in [{table}]({table}).\n"
    );
    if run.cases.iter().any(Case::transacted) {
        let _ = writeln!(
            out,
            "Broker and workers are processes of their own. The same messages go round all the time: a message moved is one received, acknowledged and sent. \
             Each worker waits for the answer to its commit before it goes on. Each system starts on an empty folder.\n"
        );
        return Ok(());
    }
    let _ = writeln!(
        out,
        "Broker, producers and consumers are processes of their own; consumers have a credit of {CREDIT}, check each body and accept each message. Each system starts on an empty folder.\n"
    );
    Ok(())
}

fn one_case(run: &Run<'_>, case: &Case, out: &mut String) {
    let rows = run.rows;
    if !rows.iter().any(|row| row.case == case.name) {
        return;
    }
    let _ = writeln!(out, "## {}: {}\n", case.name, case.what);
    let ended = rows.iter().any(|row| row.case == case.name && row.get("end_to_end_p50_us").is_some());
    out.push_str("| system | rounds | messages/s | broker CPU µs | client CPU µs | confirm p50 µs | p99 | p99.9 | p99.99 | flushes /1,000 | calls /1,000 | RSS MiB |");
    out.push_str(if ended { " end to end p50 µs | p99 | p99.9 |\n" } else { "\n" });
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|");
    out.push_str(if ended { "---|---|---|\n" } else { "\n" });
    for system in &run.systems {
        let figure = |name, digits| cell(stats::figure(rows, case.name, system, name), digits);
        // Ours counts its own flushes in the measured time; of others we know those of the slice after it.
        let own = stats::figure(rows, case.name, system, "flushes_per_1000");
        let flushes = own.or_else(|| stats::figure(rows, case.name, system, "sliced_flushes_per_1000"));
        let mut cells = vec![
            system.clone(),
            counting(run, case, system),
            figure("per_second", 0),
            figure("cpu_us", 2),
            figure("client_cpu_us", 2),
            figure("confirm_p50_us", 0),
            figure("confirm_p99_us", 0),
            figure("confirm_p99_9_us", 0),
            figure("confirm_p99_99_us", 0),
            cell(flushes, 1),
            figure("sliced_calls_per_1000", 0),
            figure("rss_mib", 0),
        ];
        if ended {
            cells.extend(["p50", "p99", "p99_9"].map(|point| {
                let name = format!("end_to_end_{point}_us");
                cell(stats::figure(rows, case.name, system, &name), 0)
            }));
        }
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    if run.systems.len() > 1 {
        ratios(run, case, out);
    }
    beside(run, case, out);
    voids(run, case, out);
}

/// What was to be reached with transactions.
fn reached(run: &Run<'_>, out: &mut String) {
    let targets = targets::targets(run.rows);
    if targets.is_empty() {
        return;
    }
    out.push_str("| target | wanted | reached | |\n|---|---|---|---|\n");
    for target in targets {
        let met = if target.met { "met" } else { "not met" };
        let _ =
            writeln!(out, "| {} | {} | {} | {met} |", target.what, target.wanted, cell(target.reached, target.digits));
    }
    out.push('\n');
}

/// A case in which workers move messages.
fn moved(run: &Run<'_>, case: &Case, out: &mut String) {
    if !run.rows.iter().any(|row| row.case == case.name) {
        return;
    }
    let _ = writeln!(out, "## {}: {}\n", case.name, case.what);
    out.push_str("| system | rounds | messages/s | transactions/s | broker CPU µs/message | client CPU µs/message | end to answer p50 µs | p99 | p99.9 | whole p50 µs | p99 | flushes /1,000 messages | RSS MiB |\n");
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for system in run.systems.iter().filter(|system| run.rows.iter().any(|row| row.is(case, system))) {
        let figure = |name, digits| cell(stats::figure(run.rows, case.name, system, name), digits);
        let own = stats::figure(run.rows, case.name, system, "flushes_per_1000");
        let flushes = own.or_else(|| stats::figure(run.rows, case.name, system, "sliced_flushes_per_1000"));
        let alone = matches!(case.work, Work::Move { scenario: "transform", .. });
        let cells = [
            system.clone(),
            counting(run, case, system),
            figure("per_second", 0),
            if alone { "–".into() } else { figure("units_per_second", 0) },
            figure("cpu_us", 2),
            figure("client_cpu_us", 2),
            figure("confirm_p50_us", 0),
            figure("confirm_p99_us", 0),
            figure("confirm_p99_9_us", 0),
            figure("whole_p50_us", 0),
            figure("whole_p99_us", 0),
            cell(flushes, 1),
            figure("rss_mib", 0),
        ];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    beside(run, case, out);
    voids(run, case, out);
}

/// What a killed broker knew.
fn recovered(run: &Run<'_>, case: &Case, out: &mut String) {
    if !run.rows.iter().any(|row| row.case == case.name) {
        return;
    }
    let figure = |name, digits| cell(stats::figure(run.rows, case.name, system::OURS, name), digits);
    let _ = writeln!(out, "## {}: {}\n", case.name, case.what);
    out.push_str("| rounds | prepared | recovered | ready after ms | whole answer after ms | RSS MiB |\n|---|---|---|---|---|---|\n");
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} |\n",
        counting(run, case, system::OURS),
        figure("prepared", 0),
        figure("recovered", 0),
        figure("ready_ms", 1),
        figure("recover_ms", 1),
        figure("rss_mib", 0),
    );
    out.push_str("All answered prepares were in it, in order, and nothing else; then all were committed, and every message was in its queue once.\n\n");
    voids(run, case, out);
}

/// How many rounds of a system count.
fn counting(run: &Run<'_>, case: &Case, system: &str) -> String {
    let all = run.rows.iter().filter(|row| row.is(case, system));
    let (good, total) = all.fold((0, 0), |(good, total), row| (good + u32::from(row.void.is_none()), total + 1));
    format!("{good} of {total}")
}

fn ratios(run: &Run<'_>, case: &Case, out: &mut String) {
    out.push_str("| packhorse against | × the messages/s | 1/× the broker CPU | 1/× the confirm p50 | 1/× the p99 | 1/× the p99.9 |\n|---|---|---|---|---|---|\n");
    for peer in &run.systems[1..] {
        let ratio = |name, ours: &str, theirs: &str| cell(stats::ratio(run.rows, case.name, name, ours, theirs), 2);
        let _ = writeln!(
            out,
            "| {peer} | {} | {} | {} | {} | {} |",
            ratio("per_second", "packhorse", peer),
            ratio("cpu_us", peer, "packhorse"),
            ratio("confirm_p50_us", peer, "packhorse"),
            ratio("confirm_p99_us", peer, "packhorse"),
            ratio("confirm_p99_9_us", peer, "packhorse"),
        );
    }
    out.push('\n');
}

/// The machine's own limits, from the probes around our measurements.
fn beside(run: &Run<'_>, case: &Case, out: &mut String) {
    let figure = |name, digits| cell(stats::figure(run.rows, case.name, "packhorse", name), digits);
    let _ = writeln!(
        out,
        "Beside packhorse: raw write and fdatasync of 4 KiB p50 {} µs, p99 {} µs; {} a second one at a time, {} with four in flight; 64 KiB: {} and {} a second. \
         Confirm p50 over the raw one: {}. Written per byte of message: {}.\n",
        figure("raw_4k_p50_us", 0),
        figure("raw_4k_p99_us", 0),
        figure("raw_4k_per_second", 0),
        figure("raw_4k_4_per_second", 0),
        figure("raw_64k_per_second", 0),
        figure("raw_64k_4_per_second", 0),
        figure("confirm_p50_over_raw", 2),
        figure("written_per_message_byte", 2),
    );
}

fn voids(run: &Run<'_>, case: &Case, out: &mut String) {
    let void = run.rows.iter().filter(|row| row.case == case.name);
    let mut any = false;
    for row in void {
        if let (None, Some(count)) = (&row.void, row.get("reordered").filter(|count| *count > 0.0)) {
            let _ = writeln!(
                out,
                "- {} in round {} delivered {} messages out of order",
                row.system,
                row.round,
                number(count, 0)
            );
            any = true;
        }
        if let Some(why) = &row.void {
            let _ = writeln!(out, "- void: {} in round {}: {}", row.system, row.round, why.replace('\n', " "));
            any = true;
        }
    }
    if any {
        out.push('\n');
    }
}

/// What a confirm means on each, as its script says, and the flushes that were counted.
fn durability(run: &Run<'_>, out: &mut String) {
    out.push_str("## What a confirm means\n\n| system | version | a confirm means | settings | flushes seen per 1,000 messages, 1 in flight |\n|---|---|---|---|---|\n");
    for (system, facts) in &run.facts {
        let fact =
            |name: &str| facts.iter().find(|(fact, _)| fact == name).map_or("", |(_, value)| value).replace('|', "/");
        let seen = cell(stats::figure(run.rows, "B1", system, "sliced_flushes_per_1000"), 0);
        let _ =
            writeln!(out, "| {system} | {} | {} | {} | {seen} |", fact("version"), fact("confirm"), fact("settings"));
    }
}

fn cell(range: Option<Range>, digits: usize) -> String {
    match range {
        None => "–".into(),
        Some(r) if r.count == 1 => number(r.median, digits),
        Some(r) => format!("{} [{} … {}]", number(r.median, digits), number(r.least, digits), number(r.most, digits)),
    }
}

/// A number with a comma between thousands.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let Place { begin, end, .. } = PIPES;
        let other = format!("{}\nother\n{}", TRANSACTIONS.begin, TRANSACTIONS.end);
        let text = format!("before\n{begin}\nold\n{end}\n{other}\nafter\n");
        assert_eq!(put(&text, &PIPES, "new\n").unwrap(), format!("before\n{begin}\nnew\n{end}\n{other}\nafter\n"));
        assert!(put("no markers", &PIPES, "new").is_err());
        assert!(put(&text[..text.len() - 40], &TRANSACTIONS, "new").is_err());
        assert!(put(&format!("{end}{begin}"), &PIPES, "new").is_err());
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        assert_eq!(
            [number(1234567.0, 0), number(999.0, 0), number(1234.5, 1), number(-1234.0, 0)],
            ["1,234,567", "999", "1,234.5", "-1,234"]
        );
    }

    #[test]
    fn a_report_of_transactions_has_targets_rates_and_what_a_killed_broker_knew() {
        let cases = scenario::cases(&["tx".to_string()]).unwrap();
        let row = |case: &str, figures: &[(&str, f64)]| {
            let mut row = Row::new(1, case, "packhorse");
            figures.iter().for_each(|(name, value)| row.set(name, *value));
            row
        };
        let rows = [
            row("B5-plain", &[("per_second", 100_000.0)]),
            row("B5-tx", &[("per_second", 95_000.0), ("units_per_second", 950.0)]),
            row("B6-recover", &[("recover_ms", 120.0), ("recovered", 1000.0)]),
        ];
        let run = Run {
            rows: &rows,
            cases: &cases,
            systems: vec!["packhorse".into()],
            facts: Vec::new(),
            rounds: 1,
            seed: 5,
            dir: Path::new("."),
            noise: Noise { foreign_percent: 10.0, apart_percent: 40.0 },
        };
        let out = render(&run).unwrap();
        for wanted in [
            "| 0.9 at least | 0.95 | met |",
            "| 2 at most | 0.120 | met |",
            "| packhorse | 1 of 1 | 100,000 | – |",
            "| packhorse | 1 of 1 | 95,000 | 950 |",
            "| 1 of 1 | – | 1,000 | – | 120.0 |",
            "performance-tx.csv",
        ] {
            assert!(out.contains(wanted), "{wanted} is not in\n{out}");
        }
        assert!(!out.contains("B6-xa:"), "{out}");
    }

    #[test]
    fn a_report_has_each_system_its_ratio_and_what_is_void() {
        let cases = scenario::cases(&["B2-1k".to_string()]).unwrap();
        let row = |system: &str, per_second: f64, void: bool| {
            let mut row = Row::new(1, "B2-1k", system);
            row.set("per_second", per_second);
            if void {
                row.make_void("the history is wrong: message 0/3 came twice");
            }
            row
        };
        let mut rows =
            [row("packhorse", 123_456.0, false), row("artemis", 61_728.0, false), row("ramqp", 70_000.0, true)];
        rows[1].set("reordered", 1234.0);
        let facts = vec![("artemis".to_string(), vec![("confirm".to_string(), "written and flushed".to_string())])];
        let run = Run {
            rows: &rows,
            cases: &cases,
            systems: ["packhorse", "artemis", "ramqp"].map(str::to_string).into(),
            facts,
            rounds: 1,
            seed: 5,
            dir: Path::new("."),
            noise: Noise { foreign_percent: 10.0, apart_percent: 40.0 },
        };
        let mut out = String::new();
        one_case(&run, &cases[0], &mut out);
        durability(&run, &mut out);
        for wanted in [
            "| packhorse | 1 of 1 | 123,456 |",
            "| artemis | 2.00 |",
            "| ramqp | 0 of 1 | – |",
            "void: ramqp in round 1: the history is wrong",
            "written and flushed",
            "- artemis in round 1 delivered 1,234 messages out of order",
        ] {
            assert!(out.contains(wanted), "{wanted} is not in\n{out}");
        }
    }
}
