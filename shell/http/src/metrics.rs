//! `/metrics`: the figures of `/api/v1/status` as Prometheus reads them. Sums over all queues, so that the number of lines does not
//! grow with what clients name; only queues with work in doubt are named, and not more than a hundred. Must not know where a figure comes from.

use packhorse_broker::{QueueInDoubt, ShardReport};
use std::fmt::{Display, Write};

/// Text format of Prometheus.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Lines under construction.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// One figure. Those whose names end in `_total` only rise.
    fn put(&mut self, name: &str, help: &str, value: impl Display) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.head(name, help, kind);
        let _ = writeln!(self.0, "packhorse_{name} {value}");
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP packhorse_{name} {help}\n# TYPE packhorse_{name} {kind}");
    }
}

/// What is said of the process.
pub(crate) struct About<'a> {
    pub(crate) version: &'a str,
    pub(crate) uptime_ms: u64,
    pub(crate) shards: u16,
}

pub(crate) fn render(about: &About<'_>, report: &ShardReport) -> String {
    let mut lines = Lines::default();
    lines.head("info", "The version that runs", "gauge");
    // A version is ours: letters, digits, dots and dashes.
    let _ = writeln!(lines.0, "packhorse_info{{version=\"{}\"}} 1", about.version);
    lines.put("uptime_seconds", "Time since the start", seconds(about.uptime_ms, 1000));
    lines.put("shards", "Threads that own queues and connections", about.shards);
    lines.put("connections", "Open connections", report.connections);
    lines.put("sessions", "Open sessions", report.sessions);
    lines.put("links", "Open links", report.links);
    lines.put("queues", "Queues", report.queues);
    lines.put("memory_bytes", "Bodies of messages in memory", report.memory_bytes);
    queues(&mut lines, report);
    transactions(&mut lines, report);
    store(&mut lines, report);
    lines.head("alarm", "Alarms that are on, by code", "gauge");
    let mut codes: Vec<&str> = report.alarms.iter().map(|alarm| alarm.code).collect();
    codes.sort_unstable();
    codes.dedup();
    for code in codes {
        let _ = writeln!(lines.0, "packhorse_alarm{{code=\"{code}\"}} 1");
    }
    lines.0
}

fn queues(lines: &mut Lines, report: &ShardReport) {
    let sums = &report.totals;
    for (name, help, value) in [
        ("queue_ready", "Messages that can be delivered", sums.ready),
        ("queue_scheduled", "Messages that wait for their time", sums.scheduled),
        ("queue_acquired", "Messages with consumers", sums.acquired),
        ("queue_removing", "Messages whose removal is not complete", sums.removing),
        ("queue_moving", "Messages on their way to another queue", sums.moving),
        ("queue_damaged", "Messages that are set aside, unreadable", sums.damaged),
        ("queue_staged", "Messages that are not there yet", sums.staged),
        ("queue_depth", "Messages in queues", sums.depth),
        ("queue_bytes", "Bytes of messages in queues", sums.bytes),
        ("queue_consumers", "Consumers", sums.consumers),
        ("queue_credit", "Credit of consumers", sums.credit),
        ("queue_enqueued_total", "Messages that came", sums.enqueued_total),
        ("queue_acknowledged_total", "Messages that were acknowledged", sums.acknowledged_total),
        ("queue_redelivered_total", "Deliveries that were not the first", sums.redelivered_total),
        ("queue_duplicates_total", "Messages that came before and were not stored again", sums.duplicates_total),
        ("queue_expired_total", "Messages that expired", sums.expired_total),
        ("queue_dead_lettered_total", "Messages that went to dead-letter queues", sums.dead_lettered_total),
        ("queue_purged_total", "Messages that were purged", sums.purged_total),
        ("queue_moved_total", "Messages that operators moved", sums.moved_total),
    ] {
        lines.put(name, &format!("{help}, all queues"), value);
    }
    in_doubt(
        lines,
        "queue_prepared_in",
        "Staged messages that branches in doubt add",
        report,
        sums.prepared_in,
        |queue| queue.prepared_in,
    );
    in_doubt(
        lines,
        "queue_prepared_out",
        "Messages that branches in doubt remove",
        report,
        sums.prepared_out,
        |queue| queue.prepared_out,
    );
}

/// What branches in doubt have in the queues with most of it, and, without a name, in all others: the sum is that of all queues.
fn in_doubt(
    lines: &mut Lines,
    name: &str,
    help: &str,
    report: &ShardReport,
    all: u64,
    of: impl Fn(&QueueInDoubt) -> u64,
) {
    lines.put(name, &format!("{help}, by queue; without a name: in all others"), rest(report, all, &of));
    for queue in &report.in_doubt {
        let _ = writeln!(lines.0, "packhorse_{name}{{queue=\"{}\"}} {}", label(&queue.name), of(queue));
    }
}

/// What is in no queue that is named.
fn rest(report: &ShardReport, all: u64, of: impl Fn(&QueueInDoubt) -> u64) -> u64 {
    all.saturating_sub(report.in_doubt.iter().map(of).sum())
}

/// A text in a label's quotes.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn transactions(lines: &mut Lines, report: &ShardReport) {
    let stats = &report.transactions.0;
    lines.put("transactions_local", "Local transactions that are open", stats.local);
    lines.put("transactions_branches", "XA branches", stats.branches);
    lines.put("transactions_in_doubt", "XA branches that are prepared and not decided", stats.in_doubt);
    let age = seconds(stats.in_doubt_age_ms, 1000);
    lines.put("transactions_in_doubt_age_seconds", "Age of the oldest of these, 0 without one", age);
    lines.put("transactions_heuristic", "XA branches that operators decided and nobody has forgotten", stats.heuristic);
    let decisions = stats.heuristic_decisions;
    lines.put("transactions_heuristic_decisions_total", "Decisions of operators on XA branches", decisions);
    lines.put("transactions_remembered", "Outcomes of XA branches that are remembered", stats.remembered);
}

fn store(lines: &mut Lines, report: &ShardReport) {
    let store = &report.store;
    lines.put("store_segments", "Files of the journal", store.segments);
    lines.put("store_bytes", "Bytes of these", store.segment_bytes);
    lines.put("store_flushes_total", "Flushes of the disk", store.flushes);
    lines.put("store_flush_seconds_total", "Time that these took", seconds(store.flush_us_total, 1_000_000));
    lines.put("store_flush_seconds_max", "The longest of them", seconds(store.flush_us_max, 1_000_000));
    lines.put("store_written_bytes_total", "Bytes written to the journal", store.written_bytes);
    lines.put("store_content_bytes_total", "Bytes of messages among these", store.content_bytes);
}

/// A time in `parts` of a second as seconds.
fn seconds(time: u64, parts: u64) -> String {
    let digits = parts.ilog10() as usize;
    format!("{}.{:0digits$}", time / parts, time % parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_broker::{Alarm, Counters, Stats, TxFigures};

    #[test]
    fn each_figure_has_a_head_and_one_line() {
        let stats = Stats { in_doubt: 2, in_doubt_age_ms: 61_005, heuristic_decisions: 3, ..Stats::default() };
        let alarm = |text: &str| Alarm { code: "transactions-in-doubt", text: text.into() };
        let report = ShardReport {
            transactions: TxFigures(stats),
            alarms: vec![alarm("one"), alarm("two")],
            totals: Counters { prepared_in: 7, prepared_out: 3, ..Counters::default() },
            in_doubt: vec![QueueInDoubt { name: "a \"b\" \\c".into(), prepared_in: 5, prepared_out: 3 }],
            ..ShardReport::default()
        };
        let text = render(&About { version: "0.1.0", uptime_ms: 1_500, shards: 2 }, &report);
        for line in [
            "packhorse_info{version=\"0.1.0\"} 1",
            "packhorse_uptime_seconds 1.500",
            "packhorse_queue_prepared_in 2",
            r#"packhorse_queue_prepared_in{queue="a \"b\" \\c"} 5"#,
            "packhorse_queue_prepared_out 0",
            r#"packhorse_queue_prepared_out{queue="a \"b\" \\c"} 3"#,
            "packhorse_transactions_in_doubt 2",
            "packhorse_transactions_in_doubt_age_seconds 61.005",
            "# TYPE packhorse_transactions_heuristic_decisions_total counter",
            "packhorse_transactions_heuristic_decisions_total 3",
            "packhorse_alarm{code=\"transactions-in-doubt\"} 1",
        ] {
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().expect("a name");
            let heads = text.lines().filter(|l| l.starts_with(&format!("# TYPE {name} "))).count();
            assert_eq!(heads, 1, "{line}");
            assert!(line.rsplit(' ').next().is_some_and(|value| value.parse::<f64>().is_ok()), "{line}");
        }
        assert!(text.ends_with('\n'));
    }
}
