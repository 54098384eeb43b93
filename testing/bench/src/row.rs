//! One measurement: its figures by name, in a line of CSV, and whether it counts.

use crate::scenario::Case;
use std::collections::BTreeMap;
use std::fmt::Write;

/// All figures that a row may have, in the order of the CSV.
pub(crate) const FIGURES: &[&str] = &[
    "per_second",
    "confirmed_per_second",
    "received_per_second",
    "units_per_second",
    "rate",
    "messages",
    "message_bytes",
    "cpu_us",
    "client_cpu_us",
    "confirm_p50_us",
    "confirm_p90_us",
    "confirm_p99_us",
    "confirm_p99_9_us",
    "confirm_p99_99_us",
    "confirm_max_us",
    "confirm_count",
    "end_to_end_p50_us",
    "end_to_end_p90_us",
    "end_to_end_p99_us",
    "end_to_end_p99_9_us",
    "end_to_end_p99_99_us",
    "end_to_end_max_us",
    "end_to_end_count",
    "whole_p50_us",
    "whole_p99_us",
    "whole_p99_9_us",
    "prepared",
    "recovered",
    "ready_ms",
    "recover_ms",
    "generator_late_us",
    "flushes_per_1000",
    "written_per_message_byte",
    "sliced_flushes_per_1000",
    "sliced_calls_per_1000",
    "rss_mib",
    "foreign_cpu_percent",
    "lost",
    "duplicated",
    "reordered",
    "corrupt",
    "misrouted",
    "refused",
    "missing",
    "unexpected",
    "raw_4k_p50_us",
    "raw_4k_p99_us",
    "raw_4k_per_second",
    "raw_4k_4_per_second",
    "raw_64k_per_second",
    "raw_64k_4_per_second",
    "raw_apart_percent",
    "cpu_score",
    "confirm_p50_over_raw",
];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) round: u32,
    pub(crate) case: String,
    pub(crate) system: String,
    /// Why it does not count.
    pub(crate) void: Option<String>,
    figures: BTreeMap<&'static str, f64>,
}

impl Row {
    /// No figures yet.
    pub(crate) fn new(round: u32, case: &str, system: &str) -> Row {
        Row { round, case: case.into(), system: system.into(), void: None, figures: BTreeMap::new() }
    }

    /// Whether it is of this case and system.
    pub(crate) fn is(&self, case: &Case, system: &str) -> bool {
        self.case == case.name && self.system == system
    }

    /// Sets a figure; the name is one of [`FIGURES`].
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        let known = FIGURES.iter().find(|known| **known == name);
        debug_assert!(known.is_some(), "{name} is not a figure");
        if let Some(name) = known {
            self.figures.insert(name, value);
        }
    }

    /// A figure, if it was measured.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// The row does not count, for this reason too.
    pub(crate) fn make_void(&mut self, why: &str) {
        match &mut self.void {
            None => self.void = Some(why.into()),
            Some(reasons) => {
                reasons.push_str("; ");
                reasons.push_str(why);
            }
        }
    }

    /// The line of CSV.
    pub(crate) fn csv(&self) -> String {
        let void = self.void.as_deref().unwrap_or("").replace('"', "'");
        let mut line = format!("{},{},{},\"{void}\"", self.round, self.case, self.system);
        for name in FIGURES {
            line.push(',');
            if let Some(value) = self.get(name) {
                let _ = write!(line, "{value:.3}");
            }
        }
        line
    }

    /// The line for people.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:>2}  {:<8} {:<10}", self.round, self.case, self.system);
        let mut figure = |name: &str, unit: &str, digits: usize| {
            if let Some(value) = self.get(name) {
                let _ = write!(line, "  {value:.digits$} {unit}");
            }
        };
        figure("per_second", "msg/s", 0);
        figure("units_per_second", "tx/s", 0);
        figure("recovered", "branches", 0);
        figure("recover_ms", "ms to the whole answer", 1);
        figure("cpu_us", "µs CPU", 2);
        figure("confirm_p50_us", "µs p50", 0);
        figure("confirm_p99_us", "µs p99", 0);
        figure("raw_4k_p50_us", "µs raw", 0);
        // Of peers only those counted in the slice after the measured time are known.
        let flushes =
            if self.get("flushes_per_1000").is_some() { "flushes_per_1000" } else { "sliced_flushes_per_1000" };
        figure(flushes, "flushes/1,000", 1);
        figure("sliced_calls_per_1000", "calls/1,000", 0);
        figure("rss_mib", "MiB", 0);
        figure("foreign_cpu_percent", "% foreign", 1);
        if let Some(void) = &self.void {
            let _ = write!(line, "  VOID: {void}");
        }
        line
    }
}

/// The first line of the CSV.
pub(crate) fn csv_head() -> String {
    format!("round,case,system,void,{}", FIGURES.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_columns_as_the_head() {
        let mut row = Row::new(3, "B1", "packhorse");
        row.set("per_second", 12.5);
        row.make_void("one \"reason\"");
        row.make_void("another");
        let line = row.csv();
        assert!(line.starts_with("3,B1,packhorse,\"one 'reason'; another\",12.500,,"), "{line}");
        assert_eq!(line.matches(',').count(), csv_head().matches(',').count());
    }
}
