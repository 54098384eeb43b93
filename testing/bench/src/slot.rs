//! One measurement of one system: probe, start on a fresh folder, load, check, end, probe.

use crate::load::{Ended, Load};
use crate::moving;
use crate::probe::Probe;
use crate::row::Row;
use crate::scenario::{Case, Times, Work};
use crate::system::{OURS, Running, System};
use crate::usage::{self, Snapshot};
use crate::{monotonic_ns, pause};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How much noise a measurement may have and still count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    /// CPU time of others, percent of the machine.
    pub(crate) foreign_percent: f64,
    /// How far the disk's probes before and after are apart, percent.
    pub(crate) apart_percent: f64,
}

/// From the order to begin to the beginning: time for both sides to hear of it.
pub(crate) const LEAD: Duration = Duration::from_millis(300);

/// What all measurements of a run share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    /// The load generator's binary.
    pub(crate) binary: &'a Path,
    /// Where fresh folders are made.
    pub(crate) dir: &'a Path,
    /// Seconds of each probe of the disk.
    pub(crate) probe: f64,
    pub(crate) noise: Noise,
}

/// What is read at the beginning and at the end of the measured span.
pub(crate) struct Reading {
    at_ns: u64,
    pub(crate) cpu: Snapshot,
    status: Option<Value>,
}

impl Reading {
    pub(crate) fn take(broker: &Running) -> Result<Reading, String> {
        Ok(Reading { at_ns: monotonic_ns(), cpu: Snapshot::take()?, status: broker.status()? })
    }

    fn store(&self, name: &str) -> Option<f64> {
        self.status.as_ref()?["store"][name].as_f64()
    }
}

/// Measures. An `Err` is a measurement that did not come about.
pub(crate) fn measure(
    settings: &Settings<'_>,
    system: &System,
    case: &Case,
    rate: Option<f64>,
    times: &Times,
    round: u32,
) -> Result<Row, String> {
    let dir = tempfile::Builder::new().prefix("packhorse-bench").tempdir_in(settings.dir).map_err(|e| e.to_string())?;
    let probe = || Probe::take(dir.path(), settings.probe).map_err(|e| format!("probe: {e}"));
    let mut row = Row::new(round, case.name, system.name());
    let before = probe()?;
    match case.work {
        Work::Pipe => load(settings, system, case, rate, times, dir.path(), &mut row)?,
        Work::Move { .. } => moving::load(settings, system, case, times, dir.path(), &mut row)?,
        Work::Recover { branches, batch } => {
            moving::recover(settings, system, case, (branches, batch), dir.path(), &mut row)?;
        }
    }
    let after = probe()?;
    set_probes(&mut row, &before, &after);
    judge(&mut row, settings.noise);
    Ok(row)
}

fn load(
    settings: &Settings<'_>,
    system: &System,
    case: &Case,
    rate: Option<f64>,
    times: &Times,
    dir: &Path,
    row: &mut Row,
) -> Result<(), String> {
    let queues: Vec<String> = (0..case.queues).map(|n| format!("bench-{n}")).collect();
    let (broker, addresses) = system.start(dir, &queues)?;
    let arguments = case.arguments(rate, monotonic_ns(), times);
    let start = |who| Load::start(settings.binary, who, &broker, &addresses, &arguments);
    let mut consumer = if case.drain_after { None } else { Some(start("consumer")?) };
    let mut producer = start("producer")?;
    let clients: Vec<u32> = [Some(producer.pid()), consumer.as_ref().map(Load::pid)].into_iter().flatten().collect();

    let start_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    let from_ns = start_ns + (times.warm_up * 1e9) as u64;
    let to_ns = from_ns + (times.measured * 1e9) as u64;
    for load in [Some(&mut producer), consumer.as_mut()].into_iter().flatten() {
        load.begin(start_ns)?;
    }
    pause_until(from_ns);
    let begun = Reading::take(&broker)?;
    pause_until(to_ns);
    let ended = Reading::take(&broker)?;
    let family = ended.cpu.family(broker.pid);
    row.set("rss_mib", usage::rss_mib(&family));
    slice(row, &mut producer, &family, times)?;

    let produced = producer.end()?;
    let count = produced.figures["producer"]["total"].as_u64().unwrap_or(0);
    let mut consumer = match consumer.take() {
        Some(consumer) => consumer,
        None => {
            let mut late = start("consumer")?;
            late.begin(monotonic_ns())?;
            late
        }
    };
    consumer.expect(count)?;
    let consumed = consumer.end()?;
    set_figures(row, case, rate, &produced, &consumed);
    set_usage(row, &broker, &clients, &begun, &ended);
    Ok(())
}

/// Counts system calls while the load goes on after the measured span: the tracer costs time, so it must not be in there.
pub(crate) fn slice(row: &mut Row, producer: &mut Load, family: &[u32], times: &Times) -> Result<(), String> {
    if times.cooldown < 1.0 {
        return Ok(());
    }
    let before = producer.count()?;
    let calls = usage::calls(family, Duration::from_secs_f64(times.cooldown * 0.6))?;
    let count = producer.count()?.saturating_sub(before);
    if let (Some(calls), true) = (calls, count > 0) {
        row.set("sliced_flushes_per_1000", calls.flushes as f64 * 1000.0 / count as f64);
        row.set("sliced_calls_per_1000", calls.all as f64 * 1000.0 / count as f64);
    }
    Ok(())
}

fn set_figures(row: &mut Row, case: &Case, rate: Option<f64>, produced: &Ended, consumed: &Ended) {
    let (producer, consumer) = (&produced.figures["producer"], &consumed.figures["consumer"]);
    let number = |side: &Value, name: &str| side[name].as_f64().unwrap_or(0.0);
    let confirmed = number(producer, "per_second");
    row.set("confirmed_per_second", confirmed);
    row.set("message_bytes", number(producer, "message_bytes"));
    row.set("messages", number(producer, "counted"));
    row.set("generator_late_us", number(producer, "generator_late_us"));
    // What counts is done at both ends; a queue that only grows is no throughput.
    let received = number(consumer, "per_second");
    row.set("per_second", if case.drain_after { confirmed } else { confirmed.min(received) });
    if !case.drain_after {
        row.set("received_per_second", received);
    }
    if let Some(rate) = rate {
        row.set("rate", rate);
    }
    for (prefix, latencies) in [("confirm", &producer["confirm_us"]), ("end_to_end", &consumer["end_to_end_us"])] {
        for point in ["p50", "p90", "p99", "p99_9", "p99_99", "max"] {
            if let Some(us) = latencies[point].as_f64() {
                row.set(&format!("{prefix}_{point}_us"), us);
            }
        }
        if let Some(count) = latencies["count"].as_f64() {
            row.set(&format!("{prefix}_count"), count);
        }
    }
    for kind in ["lost", "duplicated", "reordered", "corrupt", "misrouted", "refused"] {
        row.set(kind, number(&producer["violations"], kind) + number(&consumer["violations"], kind));
    }
    if (produced.violated || consumed.violated) && !only_reordered(row) {
        let told =
            [producer, consumer].iter().find_map(|side| side["violations_told"][0].as_str()).unwrap_or("no words");
        row.make_void(&format!("the history is wrong: {told}"));
    }
}

/// Whether a peer's queue lost its order and nothing else is wrong: some do not promise it. The report tells how many; of ours
/// none is allowed.
fn only_reordered(row: &Row) -> bool {
    let figure = |kind| row.get(kind).unwrap_or(0.0);
    let others = ["lost", "duplicated", "corrupt", "misrouted", "refused"];
    row.system != OURS && figure("reordered") > 0.0 && others.iter().all(|kind| figure(kind) == 0.0)
}

pub(crate) fn set_usage(row: &mut Row, broker: &Running, clients: &[u32], begun: &Reading, ended: &Reading) {
    let seconds = (ended.at_ns - begun.at_ns) as f64 / 1e9;
    let measured = row.get("messages").unwrap_or(0.0);
    // Both ends count half: with a queue that grows or shrinks, the broker does one more often than the other.
    let received = row.get("received_per_second").map_or(measured, |rate| rate * seconds);
    let messages = (measured + received) / 2.0;
    if messages > 0.0 {
        row.set("cpu_us", ended.cpu.cpu_us(&begun.cpu, broker.pid) / messages);
        let clients: f64 = clients.iter().map(|pid| ended.cpu.cpu_us(&begun.cpu, *pid)).sum();
        row.set("client_cpu_us", clients / messages);
    }
    let mut known = vec![broker.pid, std::process::id()];
    known.extend(clients);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let foreign = ended.cpu.foreign_us(&begun.cpu, &known);
    row.set("foreign_cpu_percent", foreign / (seconds * 1e6 * cores) * 100.0);
    let since = |name| Some(ended.store(name)? - begun.store(name)?);
    if let (Some(flushes), true) = (since("flushes"), measured > 0.0) {
        row.set("flushes_per_1000", flushes * 1000.0 / measured);
    }
    let bytes = measured * row.get("message_bytes").unwrap_or(0.0);
    if let (Some(written), true) = (since("written_bytes"), bytes > 0.0) {
        row.set("written_per_message_byte", written / bytes);
    }
}

fn set_probes(row: &mut Row, before: &Probe, after: &Probe) {
    let mean = |of: fn(&Probe) -> f64| (of(before) + of(after)) / 2.0;
    row.set("raw_4k_p50_us", mean(|probe| probe.small.p50_us));
    row.set("raw_4k_p99_us", mean(|probe| probe.small.p99_us));
    row.set("raw_4k_per_second", mean(|probe| probe.small.per_second));
    row.set("raw_4k_4_per_second", mean(|probe| probe.small_4.per_second));
    row.set("raw_64k_per_second", mean(|probe| probe.large.per_second));
    row.set("raw_64k_4_per_second", mean(|probe| probe.large_4.per_second));
    row.set("cpu_score", mean(|probe| probe.cpu));
    row.set("raw_apart_percent", before.apart(after) * 100.0);
    if let (Some(p50), Some(raw)) = (row.get("confirm_p50_us"), row.get("raw_4k_p50_us").filter(|raw| *raw > 0.0)) {
        row.set("confirm_p50_over_raw", p50 / raw);
    }
}

/// What makes a measurement void beside a wrong history.
fn judge(row: &mut Row, noise: Noise) {
    let figure = |row: &Row, name| row.get(name).unwrap_or(0.0);
    if figure(row, "messages") == 0.0 {
        row.make_void("no message was confirmed in the measured time");
    }
    // Either count proves that flushes happened; a zero in any that was taken proves the contrary.
    for name in ["flushes_per_1000", "sliced_flushes_per_1000"] {
        if row.get(name) == Some(0.0) {
            row.make_void("confirmed without a single flush");
            break;
        }
    }
    let foreign = figure(row, "foreign_cpu_percent");
    if foreign > noise.foreign_percent {
        row.make_void(&format!("{foreign:.0} % of the machine was used by others"));
    }
    let apart = figure(row, "raw_apart_percent");
    if apart > noise.apart_percent {
        row.make_void(&format!("the disk's probes before and after are {apart:.0} % apart"));
    }
}

pub(crate) fn pause_until(at_ns: u64) {
    pause(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise = Noise { foreign_percent: 10.0, apart_percent: 40.0 };

    fn sound() -> Row {
        let mut row = Row::new(1, "B1", "packhorse");
        for (name, value) in
            [("messages", 9.0), ("flushes_per_1000", 1.0), ("foreign_cpu_percent", 9.9), ("raw_apart_percent", 39.0)]
        {
            row.set(name, value);
        }
        row
    }

    #[test]
    fn each_rule_alone_makes_a_row_void() {
        let mut row = sound();
        judge(&mut row, NOISE);
        assert_eq!(row.void, None);
        for (name, value) in [
            ("messages", 0.0),
            ("flushes_per_1000", 0.0),
            ("sliced_flushes_per_1000", 0.0),
            ("foreign_cpu_percent", 10.1),
            ("raw_apart_percent", 41.0),
        ] {
            let mut row = sound();
            row.set(name, value);
            judge(&mut row, NOISE);
            assert!(row.void.is_some(), "{name}");
        }
    }

    #[test]
    fn a_wrong_history_is_void_and_says_why() {
        let ended = |name: &str, violated| Ended {
            figures: serde_json::json!({ name: { "per_second": 10.0, "counted": 5,
                "violations": { "lost": u8::from(violated) }, "violations_told": ["message 0/3 came twice"] } }),
            violated,
        };
        let case = &crate::scenario::cases(&["B2-1k".to_string()]).unwrap()[0];
        let mut row = sound();
        set_figures(&mut row, case, None, &ended("producer", false), &ended("consumer", true));
        assert_eq!((row.get("lost"), row.get("per_second")), (Some(1.0), Some(10.0)));
        assert!(row.void.unwrap().contains("0/3"));
    }

    #[test]
    fn a_peer_may_lose_order_and_nothing_else_and_we_may_not_even_that() {
        let ended = |lost: u64| Ended {
            figures: serde_json::json!({ "consumer": { "violations": { "lost": lost, "reordered": 7 } } }),
            violated: true,
        };
        let sent = || Ended { figures: serde_json::json!({ "producer": { "counted": 5 } }), violated: false };
        let case = &crate::scenario::cases(&["B2-1k".to_string()]).unwrap()[0];
        let void = |system: &str, lost| {
            let mut row = Row::new(1, "B2-1k", system);
            set_figures(&mut row, case, None, &sent(), &ended(lost));
            assert_eq!(row.get("reordered"), Some(7.0));
            row.void.is_some()
        };
        assert_eq!([void("ramqp", 0), void("ramqp", 1), void(OURS, 0)], [false, true, true]);
    }
}
