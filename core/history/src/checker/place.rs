//! I8: in a survey, a look into all queues of all brokers while nothing is under way, each message that is not consumed is found exactly
//! once. What nobody knows for certain may be there or not, but never twice.

use super::accounting::Known;
use super::judge::{Case, evidence};
use super::record::{Found, Record};
use crate::report::{Invariant, Report, Violation};

/// Judges a message in each survey that is complete.
pub(super) fn judge(record: &Record, case: &Case<'_>, report: &mut Report) {
    if record.surveys.is_empty() {
        return;
    }
    let first = record.found.partition_point(|found| found.message < case.id);
    let of_message = record.found[first..].iter().take_while(|found| found.message == case.id);
    let mut found: Vec<&Found> = Vec::new();
    found.extend(of_message);
    for (index, survey) in record.surveys.iter().enumerate().filter(|(_, survey)| survey.complete) {
        let here = found.iter().filter(|found| found.survey as usize == index);
        let count = here.clone().count();
        let wanted = (Known { record, case, at: survey.at }).somewhere();
        report.looked_at(Invariant::Place, u64::from(wanted || count > 0));
        let astray = here.clone().find(|found| !may_be_in(record, case, found));
        if (count == 1 && astray.is_none()) || (count == 0 && !wanted) {
            continue;
        }
        report.add(Invariant::Place, || {
            let mut events = vec![evidence(record, "sent", case.sent.place), evidence(record, "survey", survey.place)];
            events.extend(here.clone().map(|found| evidence(record, "found", found.place)));
            let places: Vec<_> = here.clone().map(|found| record.queues.get(found.queue).name.as_str()).collect();
            Violation {
                invariant: Invariant::Place,
                message: Some(case.id),
                queue: Some(record.queues.get(case.sent.queue).name.clone()),
                events,
                sentence: match count {
                    0 => "it was confirmed and not consumed, and it is in no queue of any broker".to_owned(),
                    1 => format!("it is in {}, where it cannot be", places.join("")),
                    _ => format!("it is there {count} times: in {}", places.join(", ")),
                },
            }
        });
    }
}

/// Whether it can have come there: its own queue, one to which it was moved, one of dead letters or expired messages.
fn may_be_in(record: &Record, case: &Case<'_>, found: &Found) -> bool {
    let name = &record.queues.get(found.queue).name;
    let options = &record.options;
    let aside = options.dead_letter_queues.contains(name) || options.expiry_queues.contains(name);
    aside || case.reach.iter().any(|reached| reached.queue == found.queue)
}
