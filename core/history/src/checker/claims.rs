//! Messages that only operators can explain: missing ones, which somebody has to have removed, and those in a queue to which they were not
//! sent, which somebody has to have moved. An operation that said how many messages it was explains no more than that.

use super::explain::Explanation;
use super::judge::{Case, evidence};
use super::messages::Place;
use super::operators::What;
use super::record::Record;
use crate::event::MessageId;
use crate::report::{Evidence, Invariant, Report, Violation};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Claim {
    message: MessageId,
    queue: u32,
    events: Vec<(&'static str, Place)>,
    operations: Vec<u32>,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Claims {
    missing: Vec<Claim>,
    moved: Vec<Claim>,
    /// Where surveys and browsers found messages, but for deliveries: message, queue, time, place.
    shown: BTreeMap<MessageId, Vec<(u32, u64, Place)>>,
}

impl Claims {
    pub(super) fn new(record: &Record) -> Claims {
        let mut shown: BTreeMap<MessageId, Vec<(u32, u64, Place)>> = BTreeMap::new();
        if record.operations.all.iter().any(|one| matches!(one.what, What::Move(_))) {
            for browsed in &record.browsed {
                let queue = record.browsers[&browsed.consumer].queue;
                shown.entry(browsed.message).or_default().push((queue, browsed.at, browsed.place));
            }
        }
        Claims { missing: Vec::new(), moved: Vec::new(), shown }
    }

    /// A message is missing, and removals can explain it.
    pub(super) fn miss(&mut self, case: &Case<'_>, events: &[(&'static str, Place)]) {
        let (message, queue, operations) = (case.id, case.sent.queue, case.removers.to_vec());
        self.missing.push(Claim { message, queue, events: events.to_vec(), operations });
    }

    /// Where a message was seen to which it was not sent, somebody moved it.
    pub(super) fn arrive(&mut self, record: &Record, case: &Case<'_>) {
        if case.reach.len() < 2 {
            return;
        }
        let slack = record.options.slack_ns;
        for reached in &case.reach[1..] {
            let received = case.receipts.iter().filter(|receipt| receipt.queue == reached.queue);
            let received = received.map(|receipt| (receipt.at, receipt.place));
            let shown = self.shown.get(&case.id).into_iter().flatten();
            let shown = shown.filter(|(queue, ..)| *queue == reached.queue).map(|(_, at, place)| (*at, *place));
            let Some((at, place)) = received.chain(shown).min() else { continue };
            let operations = record.operations.movers(case.reach, reached.queue, at, slack);
            let events = vec![("sent", case.sent.place), ("seen", place)];
            self.moved.push(Claim { message: case.id, queue: reached.queue, events, operations });
        }
    }

    pub(super) fn judge(&self, record: &Record, report: &mut Report) {
        let lost = "it was confirmed, it is missing, and operators removed fewer messages than are missing";
        explain(record, &self.missing, Invariant::Lost, lost, report);
        let phantom = "it is in a queue to which it was not sent, and operators moved fewer messages than came there";
        explain(record, &self.moved, Invariant::Phantom, phantom, report);
    }
}

fn explain(record: &Record, claims: &[Claim], invariant: Invariant, sentence: &'static str, report: &mut Report) {
    let mut explanation = Explanation::new(record.operations.all.iter().map(|operation| operation.messages));
    for claim in claims {
        if explanation.find(claim.operations.clone()) {
            continue;
        }
        report.add(invariant, || {
            let events = claim.events.iter().filter(|(_, place)| place.is_some());
            let mut events: Vec<Evidence> = events.map(|(what, place)| evidence(record, what, *place)).collect();
            let operations = claim.operations.iter().map(|index| &record.operations.all[*index as usize]);
            events.extend(operations.take(4).map(|operation| evidence(record, "operator", operation.place)));
            Violation {
                invariant,
                message: Some(claim.message),
                queue: Some(record.queues.get(claim.queue).name.clone()),
                events,
                sentence: sentence.to_owned(),
            }
        });
    }
}
