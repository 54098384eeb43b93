//! I6: of a transaction everything is visible or nothing, sends and acknowledgements alike. And what else its work shows: messages of one
//! that did not commit (I2), of one that is in doubt (I7), losses and duplicates of one whose outcome is known (I1, I3).
//!
//! Each send and each acknowledgement says yes, no or nothing. Yes: the message was seen; what was acknowledged is gone for good. No: the
//! message is nowhere although its queue was empty after the transaction was decided; what was acknowledged came again. Yes and no
//! together are I6, whatever anybody was told, and then nothing else is said of that transaction's work.

use super::judge::{Case, evidence};
use super::messages::{Answer, Place};
use super::record::Record;
use super::transactions::{Moment, Outcome, Transaction};
use crate::event::MessageId;
use crate::report::{Evidence, Invariant, Report, Violation};
use std::collections::BTreeMap;

/// What one message says of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    message: MessageId,
    /// When it was certain.
    at: u64,
    events: [(&'static str, Place); 2],
}

/// A violation of which is said only if the transaction as a whole is not broken.
#[derive(Debug)]
struct Pending {
    invariant: Invariant,
    message: MessageId,
    queue: u32,
    events: Vec<(&'static str, Place)>,
    sentence: &'static str,
}

/// What is known of one transaction's work.
#[derive(Debug, Default)]
struct Work {
    /// A message of it was seen, first.
    seen: Option<Sign>,
    /// What it acknowledged is gone for good, first.
    gone: Option<Sign>,
    /// A message of it is nowhere; the one of whose queue it was seen last.
    missing: Option<Sign>,
    /// What it acknowledged came again.
    back: Option<Sign>,
    pending: Vec<Pending>,
}

/// The work of all transactions, as messages are judged one by one.
#[derive(Debug, Default)]
pub(super) struct Atomic {
    works: BTreeMap<u32, Work>,
}

impl Sign {
    pub(super) fn new(case: &Case<'_>, at: u64, events: [(&'static str, Place); 2]) -> Sign {
        Sign { message: case.id, at, events }
    }
}

impl Atomic {
    /// There is work of this transaction.
    pub(super) fn worked(&mut self, tx: u32) {
        self.works.entry(tx).or_default();
    }

    /// A message of it was seen.
    pub(super) fn seen(&mut self, tx: u32, sign: Sign) {
        first(&mut self.works.entry(tx).or_default().seen, sign);
    }

    /// A message was shown to somebody: of one that was sent in a transaction, that says something.
    pub(super) fn shown(&mut self, record: &Record, case: &Case<'_>, at: u64, place: Place, how: &'static str) {
        let (sent, slack) = (case.sent, record.options.slack_ns);
        let Some(transaction) = record.transactions.get(sent.tx) else { return };
        self.seen(sent.tx, Sign::new(case, at, [("sent", sent.place), (how, place)]));
        let events = [("sent", sent.place), ("rolled back", sent.answer_place), (how, place)];
        let early = transaction.commit_from.is_none_or(|(from, _)| at.saturating_add(slack) < from);
        if transaction.undecided(at, slack) {
            let what = "it was sent in a branch that is in doubt, and it was seen";
            self.pending(sent.tx, Invariant::Prepared, case, &events, what);
        } else if sent.answer == Answer::RolledBack {
            let what = "it was sent in a transaction that was not committed, and it was seen";
            self.pending(sent.tx, Invariant::Phantom, case, &events, what);
        } else if early {
            let what = "it was seen before the commit of its transaction was asked for";
            self.pending(sent.tx, Invariant::Phantom, case, &events[..1], what);
        }
    }

    /// What it acknowledged is gone for good.
    pub(super) fn gone(&mut self, tx: u32, sign: Sign) {
        first(&mut self.works.entry(tx).or_default().gone, sign);
    }

    /// A message of it is nowhere.
    pub(super) fn missing(&mut self, tx: u32, sign: Sign) {
        let missing = &mut self.works.entry(tx).or_default().missing;
        if missing.is_none_or(|known| sign.at > known.at) {
            *missing = Some(sign);
        }
    }

    /// What it acknowledged came again.
    pub(super) fn back(&mut self, tx: u32, sign: Sign) {
        first(&mut self.works.entry(tx).or_default().back, sign);
    }

    /// Something else is wrong with a message of it.
    pub(super) fn pending(
        &mut self,
        tx: u32,
        invariant: Invariant,
        case: &Case<'_>,
        events: &[(&'static str, Place)],
        sentence: &'static str,
    ) {
        let pending =
            Pending { invariant, message: case.id, queue: case.sent.queue, events: events.to_vec(), sentence };
        self.works.entry(tx).or_default().pending.push(pending);
    }

    pub(super) fn judge(&self, record: &Record, report: &mut Report) {
        for (tx, work) in &self.works {
            let Some(transaction) = record.transactions.get(*tx) else { continue };
            report.looked_at(Invariant::Atomicity, 1);
            // Of a mixed one nothing is said either.
            let said = transaction.outcome() == Outcome::Mixed || work.half(record, transaction, report);
            for pending in &work.pending {
                if !said || pending.invariant == Invariant::Prepared {
                    pending.tell(record, report);
                }
            }
        }
        for transaction in record.transactions.all.iter().filter(|one| one.is_told_as_both()) {
            let places = [("told", transaction.committed), ("told", transaction.rolled_back)];
            let what = "one was told that it is committed, another that it is rolled back";
            tell(record, transaction, None, None, &moments(&places), what, report);
        }
    }
}

impl Work {
    /// Whether half of it was done; then that is told.
    fn half(&self, record: &Record, transaction: &Transaction, report: &mut Report) -> bool {
        let Some(yes) = self.seen.or(self.gone) else { return false };
        // Committed at the latest when somebody was told, or saw it, or when nothing was under way any more.
        let told = transaction.committed.map(|(at, _)| at);
        let signs = [self.seen, self.gone].into_iter().flatten().map(|sign| sign.at);
        let rest = record.quiet_after(transaction.last_asked());
        let by = signs.chain(told).chain(rest).min().unwrap_or(u64::MAX);
        let missing = self.missing.filter(|sign| sign.at >= by);
        let Some(no) = self.back.or(missing) else { return false };
        let what = match (self.seen.is_some(), self.back.is_some()) {
            (true, true) => "a message of it was seen, and one that it acknowledged came again",
            (true, false) => "a message of it was seen, and another one is nowhere",
            (false, true) => "one that it acknowledged is gone, and another one came again",
            (false, false) => "one that it acknowledged is gone, and one that was sent in it is nowhere",
        };
        let mut events: Vec<(&'static str, Place)> = Vec::new();
        events.extend(moments(&[("commit asked", transaction.commit_from)]));
        events.extend(moments(&[("committed", transaction.committed), ("rolled back", transaction.rolled_back)]));
        events.extend(yes.events.into_iter().chain(no.events));
        tell(record, transaction, Some(no.message), None, &events, what, report);
        true
    }
}

impl Pending {
    fn tell(&self, record: &Record, report: &mut Report) {
        report.add(self.invariant, || Violation {
            invariant: self.invariant,
            message: Some(self.message),
            queue: Some(record.queues.get(self.queue).name.clone()),
            events: places(record, &self.events),
            sentence: self.sentence.to_owned(),
        });
    }
}

fn first(slot: &mut Option<Sign>, sign: Sign) {
    if slot.is_none_or(|known| sign.at < known.at) {
        *slot = Some(sign);
    }
}

/// Those of these moments that there are, as places.
pub(super) fn moments(moments: &[(&'static str, Option<Moment>)]) -> Vec<(&'static str, Place)> {
    moments.iter().filter_map(|(what, moment)| moment.map(|(_, place)| (*what, place))).collect()
}

fn places(record: &Record, events: &[(&'static str, Place)]) -> Vec<Evidence> {
    let events = events.iter().filter(|(_, place)| place.is_some());
    events.map(|(what, place)| evidence(record, what, *place)).collect()
}

/// An I6 of a whole transaction.
fn tell(
    record: &Record,
    transaction: &Transaction,
    message: Option<MessageId>,
    queue: Option<String>,
    events: &[(&'static str, Place)],
    what: &'static str,
    report: &mut Report,
) {
    report.add(Invariant::Atomicity, || Violation {
        invariant: Invariant::Atomicity,
        message,
        queue,
        events: places(record, events),
        sentence: format!("{}: {what}", transaction.name()),
    });
}
