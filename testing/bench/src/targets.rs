//! What is to be reached with transactions, and what was.

use crate::row::Row;
use crate::scenario::{BRANCHES, MOVE_PLAIN, MOVE_TX, RECOVER};
use crate::stats::{self, Range};
use crate::system::OURS;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// For people.
    pub(crate) what: &'static str,
    /// What is to be reached, in words.
    pub(crate) wanted: &'static str,
    /// What was, over the rounds that count; `None`: nothing counts.
    pub(crate) reached: Option<Range>,
    /// Digits behind the point.
    pub(crate) digits: usize,
    /// Whether the median is as wanted.
    pub(crate) met: bool,
}

/// The targets of the cases that were measured.
pub(crate) fn targets(rows: &[Row]) -> Vec<Target> {
    let measured = |case: &str| rows.iter().any(|row| row.case == case);
    let mut all = Vec::new();
    let mut add = |what, wanted, reached: Option<Range>, digits, met: fn(f64) -> bool| {
        all.push(Target { what, wanted, reached, digits, met: reached.is_some_and(|range| met(range.median)) });
    };
    if measured(MOVE_PLAIN) && measured(MOVE_TX) {
        let ratio = stats::between(rows, OURS, "per_second", MOVE_TX, MOVE_PLAIN);
        let what = "local transactions of 100 received and 100 sent, × the rate without transactions";
        add(what, "0.9 at least", ratio, 2, |ratio| ratio >= 0.9);
    }
    if measured(BRANCHES) {
        let rate = stats::figure(rows, BRANCHES, OURS, "units_per_second");
        add("branches of XA a second, 64 in parallel", "8,000 at least", rate, 0, |rate| rate >= 8000.0);
    }
    if measured(RECOVER) {
        let time = stats::figure(rows, RECOVER, OURS, "recover_ms").map(|range| range.map(|ms| ms / 1000.0));
        let what = "seconds from the start after kill -9 to the whole answer of recover, 1,000 branches";
        add(what, "2 at most", time, 3, |seconds| seconds <= 2.0);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_by_its_median_and_never_by_nothing() {
        let row = |round, case: &str, name: &str, value: f64| {
            let mut row = Row::new(round, case, OURS);
            row.set(name, value);
            row
        };
        let mut rows = vec![
            row(1, MOVE_PLAIN, "per_second", 1000.0),
            row(1, MOVE_TX, "per_second", 890.0),
            row(1, BRANCHES, "units_per_second", 8000.0),
            row(1, RECOVER, "recover_ms", 2000.1),
        ];
        let met = |rows: &[Row]| targets(rows).iter().map(|target| target.met).collect::<Vec<_>>();
        assert_eq!(met(&rows), [false, true, false]);
        rows[1].set("per_second", 900.0);
        rows[3].set("recover_ms", 2000.0);
        assert_eq!(met(&rows), [true; 3]);
        for row in &mut rows {
            row.make_void("noise");
        }
        assert_eq!(met(&rows), [false; 3]);
        assert_eq!(targets(&rows[2..3]).len(), 1);
    }
}
