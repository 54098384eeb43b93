//! What one side measured, as JSON and in words.

use super::seen::Violations;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Longest latency that is told apart, ns.
const LONGEST_NS: u64 = 600_000_000_000;

/// Percentiles that are told.
const POINTS: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9), ("p99_99", 99.99)];

/// Figures of one side: of all messages, and of those that count.
pub(super) struct Side {
    /// Messages confirmed, or received for the first time.
    pub(super) done: u64,
    /// Of those, the ones that count.
    counted: u64,
    /// When the first one was sent or came, when the last was done.
    first_ns: u64,
    last_ns: u64,
    latency: Histogram<u64>,
    /// How late the generator itself was at most, behind a schedule.
    late_ns: u64,
    message_bytes: usize,
    pub(super) violations: Violations,
    pub(super) told: Vec<String>,
}

impl Side {
    /// Nothing happened yet; messages are of so many bytes, encoded.
    pub(super) fn new(message_bytes: usize) -> Side {
        let latency = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are those of any histogram");
        Side {
            done: 0,
            counted: 0,
            first_ns: 0,
            last_ns: 0,
            latency,
            late_ns: 0,
            message_bytes,
            violations: Violations::default(),
            told: Vec::new(),
        }
    }

    /// A message is sent, or comes.
    pub(super) fn begun(&mut self, now_ns: u64) {
        if self.first_ns == 0 {
            self.first_ns = now_ns;
        }
    }

    /// A message is done; with its latency if it counts.
    pub(super) fn happened(&mut self, now_ns: u64, latency_ns: Option<u64>) {
        self.done += 1;
        self.last_ns = now_ns;
        if let Some(latency) = latency_ns {
            self.counted += 1;
            self.latency.saturating_record(latency.max(1));
        }
    }

    /// A message goes out so much later than it was due.
    pub(super) fn late(&mut self, by_ns: u64) {
        self.late_ns = self.late_ns.max(by_ns);
    }

    /// The first violations in words.
    pub(super) fn tell(&mut self, what: String) {
        if self.told.len() < 10 {
            self.told.push(what);
        }
    }

    /// The figures. `seconds`: how long was measured, unless the run had no such span; `latency`: what the latencies are called,
    /// if this side has any.
    pub(super) fn to_json(&self, seconds: Option<f64>, latency: Option<&str>) -> Value {
        let total = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        let seconds = seconds.unwrap_or(total);
        let per_second = if seconds > 0.0 { self.counted as f64 / seconds } else { 0.0 };
        let violations: serde_json::Map<_, _> =
            self.violations.rows().iter().map(|(name, count)| (name.to_string(), json!(count))).collect();
        let mut document = json!({
            "total": self.done,
            "total_seconds": total,
            "counted": self.counted,
            "seconds": seconds,
            "per_second": per_second,
            "violations": violations,
            "violations_told": self.told,
        });
        if self.message_bytes > 0 {
            document["message_bytes"] = json!(self.message_bytes);
            document["generator_late_us"] = json!(us(self.late_ns));
        }
        if let Some(name) = latency.filter(|_| !self.latency.is_empty()) {
            document[name] = self.latencies();
        }
        document
    }

    fn latencies(&self) -> Value {
        let mut points: serde_json::Map<_, _> = POINTS
            .iter()
            .map(|(name, percent)| (name.to_string(), json!(us(self.latency.value_at_percentile(*percent)))))
            .collect();
        points.insert("max".into(), json!(us(self.latency.max())));
        points.insert("mean".into(), json!((self.latency.mean() / 100.0).round() / 10.0));
        points.insert("count".into(), json!(self.latency.len()));
        points.into()
    }
}

/// Nanoseconds as microseconds with one decimal.
fn us(ns: u64) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}

/// The same figures for people.
pub(super) fn print(document: &Value) {
    for (side, verb, latency, what) in [
        ("producer", "confirmed", "confirm_us", "confirm latency"),
        ("consumer", "received", "end_to_end_us", "end to end"),
        ("mover", "done", "confirm_us", "end to answer"),
    ] {
        let Some(figures) = document.get(side) else { continue };
        let number = |name: &str| figures[name].as_f64().unwrap_or(0.0);
        println!(
            "{side:<9} {:>12.0} {verb} in {:.1} s: {:.0} a second",
            number("counted"),
            number("seconds"),
            number("per_second")
        );
        if let Some(rate) = figures["messages_per_second"].as_f64() {
            println!("          {} messages moved: {rate:.0} a second", figures["messages"]);
        }
        if let Some(points) = figures.get(latency) {
            let point = |name: &str| time(points[name].as_f64().unwrap_or(0.0));
            println!(
                "          {what}: p50 {}, p90 {}, p99 {}, p99.9 {}, p99.99 {}, max {} ({} messages)",
                point("p50"),
                point("p90"),
                point("p99"),
                point("p99_9"),
                point("p99_99"),
                point("max"),
                points["count"]
            );
        }
    }
    if let Some(figures) = document.get("recover") {
        println!(
            "recover   {} of {} branches in {:.1} ms",
            figures["answered"],
            figures["expected"],
            figures["milliseconds"].as_f64().unwrap_or(0.0)
        );
    }
    let sides = ["producer", "consumer", "mover", "recover"];
    let told = sides.iter().filter_map(|side| document[side]["violations_told"].as_array()).flatten();
    for violation in told.filter_map(Value::as_str) {
        println!("violation {violation}");
    }
    if let Some(report) = document.get("history") {
        println!("checker   {}", super::verdict::line(report));
        for violation in report["violations"].as_array().into_iter().flatten() {
            println!("violation {}: {}", violation["invariant"].as_str().unwrap_or("?"), violation["sentence"]);
        }
    }
    let seen = ["consumer", "mover", "recover"].iter().find_map(|side| document.get(side));
    match (document["violations"].as_u64(), seen) {
        (Some(0), Some(_)) => println!("history   every message once, in order, unchanged"),
        (Some(0), None) => println!("history   every message confirmed"),
        (count, _) => println!("history   {} VIOLATIONS", count.unwrap_or(0)),
    }
}

/// Microseconds for people.
fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_span_and_latencies_of_what_counts() {
        let mut side = Side::new(1100);
        side.begun(1_000_000_000);
        for n in 1..=100u64 {
            side.happened(1_000_000_000 + n * 10_000_000, (n > 50).then_some(n * 1000));
        }
        let spanned = side.to_json(Some(0.5), Some("confirm_us"));
        assert_eq!((spanned["total"].as_u64(), spanned["counted"].as_u64()), (Some(100), Some(50)));
        assert_eq!((spanned["per_second"].as_f64(), spanned["total_seconds"].as_f64()), (Some(100.0), Some(1.0)));
        let points = &spanned["confirm_us"];
        assert_eq!(
            (points["p50"].as_f64(), points["max"].as_f64(), points["count"].as_u64()),
            (Some(75.0), Some(100.0), Some(50))
        );
        assert_eq!(side.to_json(None, None)["per_second"].as_f64(), Some(50.0));
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!([time(12.4), time(1234.0), time(2_500_000.0)], ["12 µs", "1.23 ms", "2.50 s"]);
    }
}
