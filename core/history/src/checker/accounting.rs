//! I12: the broker's counters against what clients saw. Each counter has a range, for what nobody saw answered may have happened or not;
//! a value outside of it, or a negative one, is a violation. Counters are judged one by one.

use super::judge::{Case, evidence};
use super::messages::{Answer, End, NONE, Receipt};
use super::operators::{Operation, What};
use super::queues::{Queues, Reading};
use super::record::Record;
use super::transactions::Transaction;
use crate::report::{Invariant, Report, Violation};

/// What can be the value of a counter.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: i64,
    most: i64,
}

impl Bounds {
    fn add(&mut self, presence: Certainty) {
        self.least += i64::from(presence == Certainty::Yes);
        self.most += i64::from(presence != Certainty::No);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    No,
    Maybe,
    Yes,
}

/// What clients know of a queue at one reading of its counters.
#[derive(Clone, Copy, Debug)]
struct Sheet {
    reading: Reading,
    depth: Bounds,
    enqueued: Bounds,
    acknowledged: Bounds,
    dead_lettered: Bounds,
}

/// Quiet readings of a queue that are compared; of more, the last ones.
pub(super) const SHEETS_MOST: usize = 64;

/// Sheets for each quiet reading, by queue.
#[derive(Debug)]
pub(super) struct Ledger {
    sheets: Vec<Vec<Sheet>>,
}

impl Ledger {
    pub(super) fn new(queues: &Queues) -> Ledger {
        let sheets = queues.all.iter().map(|queue| {
            let quiet = queue.readings.iter().filter(|reading| reading.counters.quiet);
            quiet.skip(queue.quiet.len().saturating_sub(SHEETS_MOST)).map(|&reading| Sheet::new(reading)).collect()
        });
        Ledger { sheets: sheets.collect() }
    }

    /// Enters a message.
    pub(super) fn add(&mut self, record: &Record, case: &Case<'_>) {
        for reached in case.reach {
            for sheet in &mut self.sheets[reached.queue as usize] {
                let known = Known { record, case, at: sheet.reading.at };
                // Where it went if somebody moved it nobody says; how many were moved says nothing of what they became.
                let moved = case.reach.iter().any(|other| other.queue != case.sent.queue && other.at <= known.at);
                let here = |certainty| match (certainty, moved, reached.queue == case.sent.queue) {
                    (Certainty::No, ..) | (_, false, false) => Certainty::No,
                    (_, true, _) => Certainty::Maybe,
                    (certainty, false, true) => certainty,
                };
                let present = match known.present() {
                    Certainty::Yes if known.may_be_removed() => Certainty::Maybe,
                    present => present,
                };
                sheet.depth.add(here(present));
                sheet.enqueued.add(if reached.queue == case.sent.queue {
                    known.stored()
                } else {
                    here(known.stored())
                });
                sheet.acknowledged.add(here(known.acknowledged()));
                sheet.dead_lettered.add(here(known.dead_lettered()));
            }
        }
    }

    /// Compares.
    pub(super) fn judge(&self, record: &Record, report: &mut Report) {
        for (number, (queue, sheets)) in record.queues.all.iter().zip(&self.sheets).enumerate() {
            for reading in &queue.readings {
                let counters = &reading.counters;
                let named = [
                    ("depth", counters.depth),
                    ("ready", counters.ready),
                    ("acquired", counters.acquired),
                    ("enqueued", counters.enqueued),
                    ("acknowledged", counters.acknowledged),
                    ("dead_lettered", counters.dead_lettered),
                ];
                for (name, value) in named {
                    if let Some(value) = value.filter(|value| *value < 0) {
                        add(record, &queue.name, reading, report, || format!("the counter {name} is {value}"));
                    }
                }
            }
            for sheet in sheets {
                // What purges took is counted: of what could be there so much is gone.
                let at = sheet.reading.at;
                let since = queue.drained_before(at).unwrap_or(0);
                let mut sheet = *sheet;
                let purged = i64::try_from(record.operations.purged(number as u32, since, at)).unwrap_or(i64::MAX);
                sheet.depth.least = sheet.depth.least.saturating_sub(purged).max(0);
                sheet.depth.most = sheet.depth.most.saturating_sub(purged);
                // Another queue of the same name counts anew.
                sheet.reading.after_end |= record.operations.may_be_new(number as u32, at);
                sheet.judge(record, &queue.name, report);
            }
        }
    }
}

impl Sheet {
    fn new(reading: Reading) -> Sheet {
        let none = Bounds::default();
        Sheet { reading, depth: none, enqueued: none, acknowledged: none, dead_lettered: none }
    }

    fn judge(&self, record: &Record, queue: &str, report: &mut Report) {
        let counters = &self.reading.counters;
        let mut bounded = vec![("depth", counters.depth, self.depth)];
        let up_to_depth = Bounds { least: 0, most: self.depth.most };
        bounded.push(("ready", counters.ready, up_to_depth));
        let nobody = Bounds::default();
        bounded.push(("acquired", counters.acquired, if self.reading.unattended { nobody } else { up_to_depth }));
        // Totals begin again with the broker's process.
        if !self.reading.after_end {
            bounded.push(("enqueued", counters.enqueued, self.enqueued));
            bounded.push(("acknowledged", counters.acknowledged, self.acknowledged));
            bounded.push(("dead_lettered", counters.dead_lettered, self.dead_lettered));
        }
        for (name, value, Bounds { least, most }) in bounded {
            if let Some(value) = value.filter(|value| *value >= 0 && !(least..=most).contains(value)) {
                add(record, queue, &self.reading, report, || match least == most {
                    true => format!("the counter {name} is {value}, and by what clients saw it is {least}"),
                    false => format!("the counter {name} is {value}, and by what clients saw it is {least} to {most}"),
                });
            }
        }
    }
}

fn add(record: &Record, queue: &str, reading: &Reading, report: &mut Report, sentence: impl FnOnce() -> String) {
    report.add(Invariant::Accounting, || Violation {
        invariant: Invariant::Accounting,
        message: None,
        queue: Some(queue.to_owned()),
        events: vec![evidence(record, "counters", reading.place)],
        sentence: sentence(),
    });
}

/// What is known of one message at one time, while nothing was under way.
pub(super) struct Known<'r> {
    pub(super) record: &'r Record,
    pub(super) case: &'r Case<'r>,
    pub(super) at: u64,
}

impl Known<'_> {
    fn seen_before(&self) -> impl Iterator<Item = &Receipt> {
        self.case.receipts.iter().filter(|receipt| receipt.at <= self.at)
    }

    /// Whether the broker took it.
    fn stored(&self) -> Certainty {
        let sent = self.case.sent;
        if matches!(sent.answer, Answer::Refused | Answer::RolledBack) || sent.at > self.at {
            return Certainty::No;
        }
        if let Some(transaction) = self.record.transactions.get(sent.tx) {
            return self.stored_in(transaction);
        }
        let confirmed = sent.answer == Answer::Confirmed;
        // Nothing was under way, so what was seen later had been stored before.
        let seen = !self.case.receipts.is_empty() || !self.case.fates.is_empty() || self.case.astray;
        if confirmed || seen { Certainty::Yes } else { Certainty::Maybe }
    }

    /// The same of one that was sent in a transaction, which may be in doubt however quiet it is.
    fn stored_in(&self, transaction: &Transaction) -> Certainty {
        let sent = self.case.sent;
        if transaction.commit_from.is_none_or(|(from, _)| from > self.at) {
            return Certainty::No;
        }
        let told = sent.answer == Answer::Confirmed && sent.answer_at <= self.at;
        // A local one that was asked for is decided when nothing is under way.
        let seen = match transaction.xid {
            None => !self.case.receipts.is_empty() || !self.case.fates.is_empty() || self.case.astray,
            Some(_) => self.seen_before().next().is_some(),
        };
        if told || seen { Certainty::Yes } else { Certainty::Maybe }
    }

    /// Whether an acknowledgement of it counts.
    fn acknowledged(&self) -> Certainty {
        let mut known = Certainty::No;
        for receipt in self.seen_before().filter(|receipt| receipt.end_at <= self.at) {
            match receipt.end {
                End::Acknowledged if receipt.is_confirmed() && receipt.confirm_at <= self.at => return Certainty::Yes,
                End::Acknowledged | End::AcknowledgedInTx if receipt.tx != NONE => {
                    let transaction = self.record.transactions.get(receipt.tx);
                    let asked = transaction.and_then(|one| one.commit_from).is_some_and(|(from, _)| from <= self.at);
                    known = if asked { Certainty::Maybe } else { known };
                }
                End::Acknowledged if self.arrived(receipt) => return Certainty::Yes,
                End::Acknowledged | End::AcknowledgedInTx => known = Certainty::Maybe,
                _ => {}
            }
        }
        if known == Certainty::No && self.lost_presettled() {
            known = Certainty::Maybe;
        }
        known
    }

    /// Whether it may have been on its way to a pre-settled link, of its queue or of one to which it was moved: then it is acknowledged,
    /// and nobody saw it.
    fn lost_presettled(&self) -> bool {
        let lost = |queue| self.record.queues.get(queue).lost_presettled(self.case.sent.at, self.at);
        self.case.reach.iter().any(|reached| lost(reached.queue))
    }

    /// Whether what the consumer said at the end of this delivery has certainly reached the broker and been kept: nobody died.
    fn arrived(&self, receipt: &Receipt) -> bool {
        if receipt.is_confirmed() && receipt.confirm_at <= self.at {
            return true;
        }
        let consumer = self.record.consumers.get(receipt.consumer);
        let broken = consumer.detached.filter(|detached| !(detached.orderly && detached.answered));
        let broker = self.record.queues.get(receipt.queue).broker;
        // A pre-settled one has its end when it is sent, which may be long before it is seen.
        let since = if consumer.presettled { receipt.from } else { receipt.end_at };
        broken.is_none_or(|detached| detached.at > self.at) && !self.record.ended_between(broker, since, self.at)
    }

    /// Whether it went to the dead-letter queue.
    fn dead_lettered(&self) -> Certainty {
        let found = self.case.fates.iter().find(|fate| fate.dead);
        if let Some(fate) = found {
            return if fate.at <= self.at { Certainty::Yes } else { Certainty::Maybe };
        }
        let tried = self.seen_before().any(|receipt| match receipt.end {
            End::Rejected | End::Failed | End::RolledBack => true,
            End::Open => self.record.consumers.get(receipt.consumer).detached.is_some_and(|detached| !detached.orderly),
            End::Acknowledged | End::AcknowledgedInTx => !self.arrived(receipt),
            // It may have been rolled back, which counts as an attempt.
            End::GivenBack | End::Declined => receipt.returned_in != NONE,
        });
        if tried { Certainty::Maybe } else { Certainty::No }
    }

    /// Since when its sending is certainly over: answered, its connection or process gone, or at a time when nothing was under way.
    fn rested(&self) -> Option<u64> {
        let sent = self.case.sent;
        let transaction = self.record.transactions.get(sent.tx);
        let answered = sent.answer_place.is_some().then_some(sent.answer_at);
        // Others can still decide a branch.
        let followed = self.record.files[sent.place.file()].followed_at;
        let followed = followed.filter(|_| transaction.is_none_or(|one| one.xid.is_none()));
        let asked = transaction.map_or(sent.at, |one| one.last_asked().max(sent.at));
        let quiet = self.record.queues.get(sent.queue).quiet_after(asked);
        [answered, followed, quiet].into_iter().flatten().min()
    }

    /// Whether it is in its queue, in whatever state.
    fn present(&self) -> Certainty {
        let sent = self.case.sent;
        let stored = self.stored();
        if stored == Certainty::No {
            return Certainty::No;
        }
        // Seen empty, when this message had come to rest.
        let rested = self.rested();
        let queue = self.record.queues.get(sent.queue);
        let seen_empty = queue.drained_before(self.at).is_some_and(|drained| rested.is_some_and(|at| at <= drained));
        if seen_empty && sent.damaged_at.is_none() {
            return Certainty::No;
        }
        if self.case.fates.iter().any(|fate| fate.at <= self.at) {
            return Certainty::No;
        }
        match self.acknowledged() {
            Certainty::Yes => return Certainty::No,
            Certainty::Maybe => return Certainty::Maybe,
            Certainty::No => {}
        }
        let doubtful = stored == Certainty::Maybe
            || sent.ttl
            || sent.damaged_at.is_some()
            || self.case.astray
            || !self.case.fates.is_empty()
            || self.dead_lettered() != Certainty::No
            || (!sent.persistent && self.record.ended_between(queue.broker, sent.at, self.at))
            || self.lost_presettled();
        if doubtful { Certainty::Maybe } else { Certainty::Yes }
    }

    /// Whether a removal of which nobody knows how many messages it was, or that took everything, may have taken it. Those of the other
    /// kind are counted where all messages are.
    fn may_be_removed(&self) -> bool {
        self.removers().any(|operation| operation.messages.is_none() || operation.what == What::Delete)
    }

    fn removers(&self) -> impl Iterator<Item = &Operation> {
        let all = self.case.removers.iter().map(|index| &self.record.operations.all[*index as usize]);
        all.filter(|operation| operation.at <= self.at)
    }

    /// Whether a branch may hold it, that has acknowledged it and is not over.
    fn hidden(&self) -> bool {
        self.case.receipts.iter().filter(|receipt| receipt.tx != NONE && receipt.end_at <= self.at).any(|receipt| {
            let transaction = self.record.transactions.get(receipt.tx);
            transaction.is_some_and(|transaction| transaction.xid.is_some() && !transaction.over(self.at))
        })
    }

    /// Whether it is somewhere for certain, be it in its own queue or in a dead-letter queue.
    pub(super) fn somewhere(&self) -> bool {
        let Case { sent, fates, astray, .. } = self.case;
        let queue = self.record.queues.get(sent.queue);
        sent.answer == Answer::Confirmed
            && sent.answer_at <= self.at
            && !(sent.ttl || sent.damaged_at.is_some() || *astray || self.hidden())
            && self.removers().next().is_none()
            && self.acknowledged() == Certainty::No
            && !fates.iter().any(|fate| fate.at <= self.at)
            && (sent.persistent || !self.record.ended_between(queue.broker, sent.at, self.at))
            && !self.lost_presettled()
    }
}
