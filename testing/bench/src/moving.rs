//! Measurements in which workers move messages, with and without transactions, and the one of what a killed broker knows.
//!
//! One process of the load has all workers: nobody else sends or takes, so a message that is moved is one received and one sent.

use crate::load::{Ended, Load};
use crate::row::Row;
use crate::scenario::{Case, Times};
use crate::slot::{self, Reading, Settings};
use crate::system::System;
use crate::{monotonic_ns, usage};
use serde_json::Value;
use std::path::Path;

/// The figures by which the load tells that something is wrong.
const WRONG: [&str; 6] = ["lost", "duplicated", "reordered", "corrupt", "misrouted", "refused"];

fn queues(case: &Case) -> Vec<String> {
    (0..case.queues).map(|n| format!("bench-{n}")).collect()
}

/// Workers move messages for the measured time.
pub(crate) fn load(
    settings: &Settings<'_>,
    system: &System,
    case: &Case,
    times: &Times,
    dir: &Path,
    row: &mut Row,
) -> Result<(), String> {
    let (broker, addresses) = system.start(dir, &queues(case))?;
    let arguments = case.arguments(None, monotonic_ns(), times);
    let mut mover = Load::start(settings.binary, "both", &broker, &addresses, &arguments)?;
    let clients = [mover.pid()];
    let start_ns = monotonic_ns() + slot::LEAD.as_nanos() as u64;
    let from_ns = start_ns + (times.warm_up * 1e9) as u64;
    let to_ns = from_ns + (times.measured * 1e9) as u64;
    mover.begin(start_ns)?;
    slot::pause_until(from_ns);
    let begun = Reading::take(&broker)?;
    slot::pause_until(to_ns);
    let ended = Reading::take(&broker)?;
    let family = ended.cpu.family(broker.pid);
    row.set("rss_mib", usage::rss_mib(&family));
    slot::slice(row, &mut mover, &family, times)?;
    set_figures(row, &mover.end()?);
    slot::set_usage(row, &broker, &clients, &begun, &ended);
    Ok(())
}

fn set_figures(row: &mut Row, ended: &Ended) {
    let mover = &ended.figures["mover"];
    let number = |name: &str| mover[name].as_f64().unwrap_or(0.0);
    row.set("per_second", number("messages_per_second"));
    row.set("units_per_second", number("per_second"));
    row.set("messages", number("messages"));
    row.set("message_bytes", number("message_bytes"));
    for (prefix, latencies) in [("confirm", &mover["confirm_us"]), ("whole", &mover["whole_us"])] {
        for point in ["p50", "p90", "p99", "p99_9", "p99_99", "max"] {
            let known = prefix == "confirm" || ["p50", "p99", "p99_9"].contains(&point);
            if let Some(us) = latencies[point].as_f64().filter(|_| known) {
                row.set(&format!("{prefix}_{point}_us"), us);
            }
        }
    }
    if let Some(count) = mover["confirm_us"]["count"].as_f64() {
        row.set("confirm_count", count);
    }
    set_wrong(row, mover, ended.violated);
}

fn set_wrong(row: &mut Row, figures: &Value, violated: bool) {
    for kind in WRONG {
        row.set(kind, figures["violations"][kind].as_f64().unwrap_or(0.0));
    }
    if violated {
        let told = figures["violations_told"][0].as_str().unwrap_or("no words");
        row.make_void(&format!("the history is wrong: {told}"));
    }
}

/// Prepares branches, kills the broker, starts it again and asks for them. What others use of the machine is not judged: this
/// takes too short a time to tell, and they can only make it longer.
pub(crate) fn recover(
    settings: &Settings<'_>,
    system: &System,
    case: &Case,
    (branches, batch): (u32, u32),
    dir: &Path,
    row: &mut Row,
) -> Result<(), String> {
    let run = monotonic_ns();
    let log = dir.join("prepared");
    let arguments = |scenario: &str| {
        let mut words = case.moving(scenario, batch, run);
        words.extend([format!("--count={branches}"), format!("--log={}", log.display())]);
        words
    };
    let (broker, addresses) = system.start(dir, &queues(case))?;
    let prepared = Load::at_once(settings.binary, &broker, &addresses, &arguments("prepare"))?;
    let mover = &prepared.figures["mover"];
    let number = |name: &str| mover[name].as_f64().unwrap_or(0.0);
    row.set("prepared", number("total"));
    row.set("messages", number("messages_total"));
    set_wrong(row, mover, prepared.violated);
    broker.kill();

    let start_ns = monotonic_ns();
    let (broker, addresses) = system.start(dir, &queues(case))?;
    let ready_ns = monotonic_ns();
    row.set("rss_mib", usage::rss_mib(&[broker.pid]));
    let found = Load::at_once(settings.binary, &broker, &addresses, &arguments("recover"))?;
    let answer = &found.figures["recover"];
    let complete_ns = answer["complete_ns"].as_u64().unwrap_or(0);
    row.set("ready_ms", (ready_ns - start_ns) as f64 / 1e6);
    row.set("recover_ms", complete_ns.saturating_sub(start_ns) as f64 / 1e6);
    row.set("recovered", answer["answered"].as_f64().unwrap_or(0.0));
    for kind in ["missing", "unexpected"] {
        row.set(kind, answer[kind].as_f64().unwrap_or(0.0));
    }
    set_wrong(row, answer, prepared.violated || found.violated);
    if number("total") != f64::from(branches) {
        row.make_void(&format!("{} branches were prepared instead of {branches}", number("total")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_load_tells_is_in_the_row_and_what_is_wrong_makes_it_void() {
        let mover = json!({
            "per_second": 50.0, "messages_per_second": 5000.0, "messages": 10_000, "confirm_us": { "p50": 700.0, "count": 100 },
            "whole_us": { "p50": 900.0, "p90": 950.0 }, "violations": { "reordered": 2 }, "violations_told": ["an order"],
        });
        let mut row = Row::new(1, "B5-tx", "packhorse");
        set_figures(&mut row, &Ended { figures: json!({ "mover": mover }), violated: true });
        let figures = ["per_second", "units_per_second", "confirm_p50_us", "whole_p50_us", "reordered"];
        assert_eq!(figures.map(|name| row.get(name)), [5000.0, 50.0, 700.0, 900.0, 2.0].map(Some));
        assert_eq!(row.void.as_deref(), Some("the history is wrong: an order"));
    }
}
