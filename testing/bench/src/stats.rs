//! Medians, and ratios within rounds. Never across runs.

use crate::row::Row;

/// A median with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// How many values.
    pub(crate) count: usize,
}

impl Range {
    /// Of these values, if there are any.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Range> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Range { median, least, most, count: values.len() })
    }

    /// The same in another unit; `to` must ascend.
    pub(crate) fn map(self, to: impl Fn(f64) -> f64) -> Range {
        Range { median: to(self.median), least: to(self.least), most: to(self.most), count: self.count }
    }
}

/// A figure of a system in a case, over the rounds that count.
pub(crate) fn figure(rows: &[Row], case: &str, system: &str, name: &str) -> Option<Range> {
    Range::of(good(rows, case, system).filter_map(|row| row.get(name)).collect())
}

/// How much of a figure one system has for each of the other's: ratios of the rounds in which both count.
pub(crate) fn ratio(rows: &[Row], case: &str, name: &str, system: &str, other: &str) -> Option<Range> {
    let ratios = good(rows, case, system).filter_map(|row| {
        let there = good(rows, case, other).find(|there| there.round == row.round)?;
        Some(row.get(name)? / there.get(name).filter(|value| *value > 0.0)?)
    });
    Range::of(ratios.collect())
}

/// How much of a figure a system has in one case for each of another case's: ratios of the rounds in which both count.
pub(crate) fn between(rows: &[Row], system: &str, name: &str, case: &str, other: &str) -> Option<Range> {
    let ratios = good(rows, case, system).filter_map(|row| {
        let there = good(rows, other, system).find(|there| there.round == row.round)?;
        Some(row.get(name)? / there.get(name).filter(|value| *value > 0.0)?)
    });
    Range::of(ratios.collect())
}

fn good<'a>(rows: &'a [Row], case: &'a str, system: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.case == case && row.system == system && row.void.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, system: &str, value: f64, void: bool) -> Row {
        let mut row = Row::new(round, "B2-1k", system);
        row.set("per_second", value);
        if void {
            row.make_void("because");
        }
        row
    }

    #[test]
    fn a_median_of_few() {
        assert_eq!(Range::of(vec![]), None);
        assert_eq!(Range::of(vec![3.0]), Some(Range { median: 3.0, least: 3.0, most: 3.0, count: 1 }));
        assert_eq!(Range::of(vec![3.0, 1.0]), Some(Range { median: 2.0, least: 1.0, most: 3.0, count: 2 }));
        assert_eq!(Range::of(vec![9.0, 1.0, 2.0]), Some(Range { median: 2.0, least: 1.0, most: 9.0, count: 3 }));
    }

    #[test]
    fn ratios_stay_within_their_round_and_void_rows_are_out() {
        let rows = [
            row(1, "packhorse", 200.0, false),
            row(1, "artemis", 100.0, false),
            row(2, "packhorse", 90.0, false),
            row(2, "artemis", 30.0, false),
            row(3, "packhorse", 999.0, true),
            row(3, "artemis", 1.0, false),
            row(4, "packhorse", 999.0, false),
        ];
        let ratio = ratio(&rows, "B2-1k", "per_second", "packhorse", "artemis");
        assert_eq!(ratio, Some(Range { median: 2.5, least: 2.0, most: 3.0, count: 2 }));
        assert_eq!(figure(&rows, "B2-1k", "packhorse", "per_second").map(|range| range.count), Some(3));
    }
}
