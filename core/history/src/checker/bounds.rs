//! I11: what was measured against what settings allow.

use super::judge::evidence;
use super::record::Record;
use crate::report::{Invariant, Report, Violation};

/// Judges all measurements.
pub(super) fn judge(record: &Record, report: &mut Report) {
    report.looked_at(Invariant::Bounds, record.gauges);
    for excess in &record.excesses {
        report.add(Invariant::Bounds, || Violation {
            invariant: Invariant::Bounds,
            message: None,
            queue: None,
            events: vec![evidence(record, "measured", excess.place)],
            sentence: format!(
                "{} of {} is {}, and {} are allowed",
                excess.kind, excess.target, excess.value, excess.most
            ),
        });
    }
}
