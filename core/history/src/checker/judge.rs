//! Judges message by message, when everything is read: I1 to I4, I9, I10, and what I6, I7 and I12 need of each message.
//!
//! The question is always: is there an order of what the broker did, and an outcome of what nobody saw answered, that explains what was
//! seen? Only if there is none it is a violation. What is known of the order: a delivery was sent after its link or the credit for
//! it existed (`from`) and before it was seen (`at`); on one link deliveries come in the order in which they were sent; counts rise.

use super::accounting::Ledger;
use super::atomic::{Atomic, Sign};
use super::claims::Claims;
use super::messages::{Answer, End, Fate, NONE, Place, Receipt, Sent};
use super::operators::Reached;
use super::record::Record;
use crate::event::MessageId;
use crate::report::{Evidence, Invariant, Report, Totals, Violation};

/// Deliveries of one message that are compared with each other: neighbors in time up to so far apart.
const NEIGHBORS: usize = 32;

/// One message under judgment.
pub(super) struct Case<'r> {
    pub(super) id: MessageId,
    pub(super) sent: &'r Sent,
    /// Deliveries from queues in which it can have been, by the time they were seen.
    pub(super) receipts: &'r [Receipt],
    /// Delivered from another queue.
    pub(super) astray: bool,
    /// Where it can have been: its own queue, and those to which operators moved.
    pub(super) reach: &'r [Reached],
    /// Removals by operators that can explain why it is missing, by number.
    pub(super) removers: &'r [u32],
    pub(super) fates: &'r [Fate],
}

/// Judges everything and writes the report.
pub(super) fn judge(record: &Record, report: &mut Report) {
    let mut ledger = Ledger::new(&record.queues);
    let mut all = Vec::new();
    let mut receipts = Vec::new();
    let mut fates = Vec::new();
    let mut reach = Vec::new();
    let mut claims = Claims::new(record);
    let mut atomic = Atomic::default();
    let dead: Vec<u32> =
        record.options.dead_letter_queues.iter().filter_map(|name| record.queues.number(name)).collect();
    let mut gaps_used: Vec<Vec<bool>> = record.queues.all.iter().map(|queue| vec![false; queue.gaps.len()]).collect();
    for producer in &record.messages.producers {
        for sent in &producer.sent {
            record.messages.collect(sent.seen, &mut all);
            record.operations.reach(sent, record.options.slack_ns, &mut reach);
            receipts.clear();
            receipts.extend(all.iter().filter(|receipt| can_be_from(record, &reach, receipt)));
            let dead = if all.is_empty() { &[] } else { &dead[..] };
            let heard = |receipt: &Receipt| {
                let detached = record.consumers.get(receipt.consumer).detached;
                receipt.is_confirmed() || detached.is_some_and(|detached| detached.orderly && detached.answered)
            };
            let removers = record.operations.removers(&reach, &all, dead, heard, record.options.slack_ns);
            fates.clear();
            fates.extend(record.messages.fates(sent.seen));
            let case = Case {
                id: MessageId::new(producer.id, sent.sequence),
                sent,
                receipts: &receipts,
                astray: all.len() != receipts.len(),
                reach: &reach,
                removers: &removers,
                fates: &fates,
            };
            let judge = Judge { record, case: &case };
            report.looked_at(Invariant::Order, u64::from(!receipts.is_empty()));
            for twice in [Invariant::SilentDuplicate, Invariant::Counts] {
                report.looked_at(twice, u64::from(receipts.len() > 1));
            }
            judge.phantom(&all, &mut atomic, report);
            claims.arrive(record, &case);
            let lost = judge.lost(&mut claims, &mut atomic, report);
            judge.unseen(&mut atomic);
            judge.drained_in_doubt(&mut atomic);
            if !judge.back(&mut atomic) {
                judge.twice(report);
            }
            super::place::judge(record, &case, report);
            if !lost {
                judge.stuck(&mut gaps_used[sent.queue as usize], report);
            }
            ledger.add(record, &case);
        }
    }
    let answered = record.totals.acknowledged_confirmed;
    report.looked_at(Invariant::Phantom, record.totals.received);
    report.looked_at(Invariant::Duplicate, answered);
    report.looked_at(Invariant::Stuck, record.files.iter().filter(|file| file.consumes).map(|file| file.ticks).sum());
    report.looked_at(Invariant::Accounting, record.queues.all.iter().map(|queue| queue.quiet.len() as u64).sum());
    never_sent(record, report);
    claims.judge(record, report);
    super::browse::judge(record, &mut atomic, report);
    atomic.judge(record, report);
    super::prepared::judge(record, report);
    super::order::judge(record, report);
    super::bounds::judge(record, report);
    ledger.judge(record, report);
    report.totals = Totals::of(record, report.totals.not_judged_for_loss);
}

impl Totals {
    fn of(record: &Record, not_judged_for_loss: u64) -> Totals {
        let mut totals = record.totals;
        totals.files = record.files.len() as u64;
        totals.unknown = totals.sent - totals.confirmed - totals.refused - totals.rolled_back;
        totals.not_judged_for_loss = not_judged_for_loss;
        totals
    }
}

/// Whether a message can have been in the queue from which this delivery came.
fn can_be_from(record: &Record, reach: &[Reached], receipt: &Receipt) -> bool {
    // Its own queue always: that something seems to have come before it was sent is no matter of moves.
    let home = reach[0].queue == receipt.queue;
    let latest = receipt.at.saturating_add(record.options.slack_ns);
    home || reach.iter().any(|reached| reached.queue == receipt.queue && reached.at <= latest)
}

/// A piece of evidence.
pub(super) fn evidence(record: &Record, what: &'static str, place: Place) -> Evidence {
    Evidence { what, file: record.files[place.file()].name.clone(), line: place.line() }
}

fn never_sent(record: &Record, report: &mut Report) {
    for &(place, whole, queue) in &record.unreadable {
        report.add(Invariant::Phantom, || Violation {
            invariant: Invariant::Phantom,
            message: None,
            queue: Some(record.queues.get(queue).name.clone()),
            events: vec![evidence(record, "received", place)],
            sentence: if whole {
                "a message of another run was received".to_owned()
            } else {
                "a body was received that does not say whose it is".to_owned()
            },
        });
    }
    let mut orphans: Vec<_> = record.messages.orphans.iter().collect();
    orphans.sort_by_key(|(id, _)| **id);
    let mut receipts = Vec::new();
    for (id, seen) in orphans {
        record.messages.collect(*seen, &mut receipts);
        report.add(Invariant::Phantom, || {
            let mut events: Vec<_> = receipts.iter().map(|one| evidence(record, "received", one.place)).collect();
            events.extend(record.messages.fates(*seen).map(|fate| evidence(record, "found", fate.place)));
            Violation {
                invariant: Invariant::Phantom,
                message: Some(*id),
                queue: receipts.first().map(|one| record.queues.get(one.queue).name.clone()),
                events,
                sentence: "it was received and nobody sent it".to_owned(),
            }
        });
    }
}

/// Whether a message is anywhere.
enum Nowhere {
    /// It is not: all queues where it can be were seen empty, first and last at these times.
    Gone { empty_at: u64, drained: Place },
    /// Rightly, for all anybody knows.
    Excused,
    /// Nobody looked into its queue.
    NotLooked,
    /// Nobody looked into the others where it may be.
    MayBeElsewhere,
}

struct Judge<'r, 'c> {
    record: &'r Record,
    case: &'c Case<'c>,
}

impl Judge<'_, '_> {
    fn add(
        &self,
        report: &mut Report,
        invariant: Invariant,
        events: &[(&'static str, Place)],
        sentence: impl FnOnce() -> String,
    ) {
        report.add(invariant, || {
            let events = events.iter().filter(|(_, place)| place.is_some());
            Violation {
                invariant,
                message: Some(self.case.id),
                queue: Some(self.record.queues.get(self.case.sent.queue).name.clone()),
                events: events.map(|(what, place)| evidence(self.record, what, *place)).collect(),
                sentence: sentence(),
            }
        });
    }

    fn slack(&self) -> u64 {
        self.record.options.slack_ns
    }

    /// I2: refused and yet delivered, from another queue, with another body, or of a transaction that was not committed by then.
    fn phantom(&self, all: &[Receipt], atomic: &mut Atomic, report: &mut Report) {
        let sent = self.case.sent;
        let fate = self.case.fates.last().map(|fate| (fate.at, fate.place));
        if let Some((at, place)) = all.first().map(|first| (first.at, first.place)).or(fate) {
            atomic.shown(self.record, self.case, at, place, "received");
        }
        let Some(first) = all.first() else { return };
        if sent.answer == Answer::Refused {
            let events = [("sent", sent.place), ("refused", sent.answer_place), ("received", first.place)];
            self.add(report, Invariant::Phantom, &events, || "it was refused, and received all the same".to_owned());
        }
        if let Some(wrong) = all.iter().find(|receipt| !can_be_from(self.record, self.case.reach, receipt)) {
            let queue = &self.record.queues.get(wrong.queue).name;
            let events = [("sent", sent.place), ("received", wrong.place)];
            self.add(report, Invariant::Phantom, &events, || format!("it was received from queue {queue}"));
        }
        if let Some(wrong) = all.iter().find(|receipt| !receipt.crc_ok) {
            let events = [("sent", sent.place), ("received", wrong.place)];
            self.add(report, Invariant::Phantom, &events, || "its body is not the one that was sent".to_owned());
        }
        self.not_here(report);
    }

    /// I2: it came again on a link that had said "not here". Of what was moved nobody says that any more.
    fn not_here(&self, report: &mut Report) {
        if self.case.reach.len() > 1 {
            return;
        }
        let receipts = self.case.receipts;
        for declined in receipts.iter().filter(|receipt| receipt.not_here) {
            let again = |receipt: &&Receipt| receipt.consumer == declined.consumer && receipt.place > declined.place;
            if let Some(again) = receipts.iter().find(again) {
                let events = [("received", declined.place), ("given back", declined.end_place), ("again", again.place)];
                self.add(report, Invariant::Phantom, &events, || {
                    "its consumer gave it back as undeliverable here, and it came to the same link again".to_owned()
                });
                return;
            }
        }
    }

    /// I1: confirmed, or persistent and received, which is visible only once it is safe; its queue seen empty afterwards, and it came to
    /// no end that anybody knows. True: lost, or nobody can say.
    fn lost(&self, claims: &mut Claims, atomic: &mut Atomic, report: &mut Report) -> bool {
        let Case { sent, receipts, astray, fates, .. } = self.case;
        let safe_at = match (sent.answer, receipts.first()) {
            (Answer::Confirmed, _) => sent.answer_at,
            (Answer::Unknown, Some(first)) if sent.persistent => first.at,
            (Answer::Unknown | Answer::Refused | Answer::RolledBack, _) => return false,
        };
        if sent.damaged_at.is_some() {
            return true;
        }
        let acknowledged = |receipt: &Receipt| receipt.end == End::Acknowledged;
        if *astray || !fates.is_empty() || receipts.iter().any(acknowledged) {
            report.looked_at(Invariant::Lost, u64::from(sent.persistent));
            return false;
        }
        let (empty_at, drained) = match self.nowhere(safe_at) {
            Nowhere::Gone { empty_at, drained } => (empty_at, drained),
            Nowhere::Excused => return false,
            Nowhere::NotLooked => {
                report.totals.not_judged_for_loss += 1;
                return false;
            }
            Nowhere::MayBeElsewhere => {
                report.totals.not_judged_for_loss += 1;
                return true;
            }
        };
        report.looked_at(Invariant::Lost, u64::from(sent.persistent));
        let last = receipts.last().map_or(Place::default(), |receipt| receipt.place);
        let ended = receipts.last().map_or(Place::default(), |receipt| receipt.end_place);
        let events = [
            ("sent", sent.place),
            (if sent.answer == Answer::Confirmed { "confirmed" } else { "unanswered" }, sent.answer_place),
            ("last received", last),
            ("given back", ended),
            ("seen empty", drained),
        ];
        // If it is gone because a transaction acknowledged it, that one was committed.
        let mut in_doubt = receipts.iter().filter(|receipt| receipt.end == End::AcknowledgedInTx);
        if let Some(first) = in_doubt.next() {
            if in_doubt.next().is_none() && self.case.removers.is_empty() {
                let signs = [("acknowledged", first.end_place), ("seen empty", drained)];
                atomic.gone(first.tx, Sign::new(self.case, empty_at, signs));
            }
            return false;
        }
        if !self.case.removers.is_empty() {
            // Whether there is room for it among what was removed is judged when all are known.
            claims.miss(self.case, &events);
            return true;
        }
        if let Some(undone) = receipts.iter().rev().find(|receipt| receipt.end == End::RolledBack) {
            let signs = [("acknowledged", undone.end_place), ("seen empty", drained)];
            atomic.gone(undone.tx, Sign::new(self.case, empty_at, signs));
            let what =
                "a transaction that acknowledged it was not committed, it did not come back, and its queue is empty";
            atomic.pending(undone.tx, Invariant::Lost, self.case, &events, what);
            return true;
        }
        if sent.in_tx() && receipts.is_empty() {
            atomic.missing(sent.tx, Sign::new(self.case, empty_at, [("sent", sent.place), ("seen empty", drained)]));
            let what = "it was sent in a transaction that was committed, it was never received, and its queue is empty";
            atomic.pending(sent.tx, Invariant::Lost, self.case, &events, what);
            return true;
        }
        self.add(report, Invariant::Lost, &events, || {
            if sent.answer != Answer::Confirmed {
                "it was received, so it was stored, and never acknowledged, it did not come back, and its queue is empty".to_owned()
            } else if receipts.is_empty() {
                "it was confirmed and never received, and its queue is empty".to_owned()
            } else {
                "it was confirmed, received and never acknowledged, it did not come back, and its queue is empty"
                    .to_owned()
            }
        });
        true
    }

    /// Whether it is nowhere for certain, if it was there at `safe_at` and nobody acknowledged it.
    fn nowhere(&self, safe_at: u64) -> Nowhere {
        let Case { sent, receipts, .. } = self.case;
        let queue = self.record.queues.get(sent.queue);
        // Every queue where it can be was seen empty.
        let seen_empty = |reached: &Reached| {
            let since = if reached.queue == sent.queue { safe_at } else { reached.at };
            self.record.queues.get(reached.queue).drained.last().copied().filter(|(at, _)| *at >= since)
        };
        let empty: Option<Vec<(u64, Place)>> = self.case.reach.iter().map(seen_empty).collect();
        let Some(empty) = empty else { return Nowhere::NotLooked };
        let empty_at = empty.iter().map(|(at, _)| *at).min();
        let (Some(empty_at), Some((drained_at, drained))) = (empty_at, empty.into_iter().max()) else {
            return Nowhere::NotLooked;
        };
        if !sent.persistent && self.record.ended_between(queue.broker, sent.at, u64::MAX) {
            return Nowhere::Excused;
        }
        let presettled = |reached: &Reached| {
            self.record.queues.get(reached.queue).lost_presettled(sent.at.saturating_sub(self.slack()), u64::MAX)
        };
        if self.case.reach.iter().any(presettled) {
            return Nowhere::Excused;
        }
        // It may have gone to a place that nobody looked into.
        let options = &self.record.options;
        let elsewhere = (sent.ttl && !self.record.was_drained(&options.expiry_queues, drained_at))
            || (!receipts.is_empty() && !self.record.was_drained(&options.dead_letter_queues, drained_at));
        if elsewhere { Nowhere::MayBeElsewhere } else { Nowhere::Gone { empty_at, drained } }
    }

    /// For I6: sent in a transaction of which nobody knows whether it was committed, and it is nowhere, so it was not.
    fn unseen(&self, atomic: &mut Atomic) {
        let Case { sent, receipts, astray, fates, .. } = self.case;
        let Some(transaction) = self.record.transactions.get(sent.tx) else { return };
        atomic.worked(sent.tx);
        let nobody = receipts.is_empty() && fates.is_empty() && !astray && self.case.removers.is_empty();
        if sent.answer != Answer::Unknown || sent.damaged_at.is_some() || !nobody {
            return;
        }
        let since = transaction.commit_from.map_or(0, |(at, _)| at);
        if let Nowhere::Gone { empty_at, drained } = self.nowhere(since) {
            atomic.missing(sent.tx, Sign::new(self.case, empty_at, [("sent", sent.place), ("seen empty", drained)]));
        }
    }

    /// For I6 and I7: a transaction acknowledged it, and it came again afterwards, or is a dead letter; so that was not committed. True: it
    /// must not have come again, so how it came says nothing.
    fn back(&self, atomic: &mut Atomic) -> bool {
        let receipts = self.case.receipts;
        let mut wrong = false;
        for first in receipts.iter().filter(|receipt| receipt.tx != NONE) {
            let Some(transaction) = self.record.transactions.get(first.tx) else { continue };
            atomic.worked(first.tx);
            let again = receipts.iter().find(|again| again.place != first.place && self.sent_after(first, again));
            let again = again.map(|again| (again.at, again.place));
            let fate = self.case.fates.last().map(|fate| (fate.at, fate.place));
            let Some((at, place)) = again.or(fate) else { continue };
            if self.record.forced(transaction, (first.queue, first.end_at), at) {
                continue;
            }
            atomic.back(first.tx, Sign::new(self.case, at, [("acknowledged", first.end_place), ("again", place)]));
            let events = [("received", first.place), ("acknowledged", first.end_place), ("again", place)];
            wrong |= transaction.undecided(at, self.slack()) || first.is_confirmed();
            if transaction.undecided(at, self.slack()) {
                let what = "a branch that acknowledged it is in doubt, and it came again";
                atomic.pending(first.tx, Invariant::Prepared, self.case, &events, what);
            } else if first.is_confirmed() {
                let what = "a transaction that acknowledged it was committed, and it was received again";
                atomic.pending(first.tx, Invariant::Duplicate, self.case, &events, what);
            }
        }
        wrong
    }

    /// For I7: a branch that is in doubt has it, and its queue was said to be empty.
    fn drained_in_doubt(&self, atomic: &mut Atomic) {
        let Case { sent, receipts, .. } = self.case;
        let acknowledged = receipts.iter().map(|one| (one.tx, (one.queue, one.end_at), one.end_place));
        for (tx, part, place) in std::iter::once((sent.tx, (sent.queue, sent.at), sent.place)).chain(acknowledged) {
            let queue = part.0;
            let Some(transaction) = self.record.transactions.get(tx).filter(|one| one.prepared.is_some()) else {
                continue;
            };
            let volatile =
                !sent.persistent && self.record.ended_between(self.record.queues.get(queue).broker, sent.at, u64::MAX);
            let excused = volatile || sent.damaged_at.is_some() || sent.ttl || sent.answer == Answer::Refused;
            if excused {
                continue;
            }
            let mut drained = self.record.queues.get(queue).drained.iter();
            let wrong = |at: u64| transaction.in_doubt(at, self.slack()) && !self.record.forced(transaction, part, at);
            if let Some((_, empty)) = drained.find(|(at, _)| wrong(*at)) {
                let prepared = transaction.prepared.map_or(Place::default(), |(_, place)| place);
                let events = [("in the branch", place), ("prepared", prepared), ("seen empty", *empty)];
                let what = "a branch that is in doubt has it, and the queue is empty";
                atomic.pending(tx, Invariant::Prepared, self.case, &events, what);
                return;
            }
        }
    }

    /// I3, I4 and I10: what its deliveries say about each other.
    fn twice(&self, report: &mut Report) {
        let receipts = self.case.receipts;
        let confirmed =
            |receipt: &&Receipt| receipt.is_confirmed() && receipt.end == End::Acknowledged && receipt.tx == NONE;
        if let Some(acknowledged) = receipts.iter().find(confirmed)
            && let Some(fate) = self.case.fates.first()
        {
            self.after_acknowledgement(acknowledged, fate.place, "it was found in another queue", report);
            return;
        }
        if receipts.len() < 2 {
            return;
        }
        for first in receipts.iter().filter(confirmed) {
            let again = receipts.iter().find(|again| {
                let both = again.is_confirmed() && again.end == End::Acknowledged && again.place > first.place;
                again.place != first.place && (both || (first.confirm_at <= again.at && self.sent_after(first, again)))
            });
            if let Some(again) = again {
                self.after_acknowledgement(first, again.place, "it was received again", report);
                return;
            }
        }
        if !self.silent(report) {
            self.went_down(report);
        }
    }

    fn after_acknowledgement(&self, first: &Receipt, again: Place, what: &str, report: &mut Report) {
        let events = [
            ("received", first.place),
            ("acknowledged", first.end_place),
            ("confirmed", first.confirm_place),
            ("again", again),
        ];
        self.add(report, Invariant::Duplicate, &events, || format!("its acknowledgement was confirmed, and {what}"));
    }

    /// Whether the broker certainly sent `later` after `first`, or else broke another invariant.
    fn sent_after(&self, first: &Receipt, later: &Receipt) -> bool {
        if self.certainly_after(first, later) || later.count > first.count {
            return true;
        }
        // With equal counts `later` could be the earlier one only if its consumer gave it back unseen in between; it does so after having
        // recorded it, except for what was on its way when it closed the link. Or if the broker died in between: then both may count from
        // what was on disk.
        let closed = self.record.consumers.get(later.consumer).detached;
        let unread = closed.is_some_and(|closed| closed.orderly && closed.at <= first.at + self.slack());
        let broker = self.record.queues.get(first.queue).broker;
        let died = self.record.ended_between(broker, later.from, first.at);
        later.count == first.count && first.at + self.slack() < later.at && !unread && !died
    }

    /// The same, from links and times alone.
    fn certainly_after(&self, first: &Receipt, later: &Receipt) -> bool {
        if first.consumer == later.consumer {
            return first.place < later.place;
        }
        first.at + self.slack() <= later.from
    }

    /// I4: two deliveries, both as if they were the first, and neither was given back unseen before the other.
    fn silent(&self, report: &mut Report) -> bool {
        let mut before: Option<&Receipt> = None;
        for receipt in self.case.receipts.iter().filter(|receipt| receipt.is_unflagged()) {
            if let Some(first) = before
                && !self.returned_unseen(first, receipt.at)
                && !self.returned_unseen(receipt, first.at)
            {
                let events = [("received", first.place), ("ended", first.end_place), ("received again", receipt.place)];
                self.add(report, Invariant::SilentDuplicate, &events, || {
                    "it was received twice, the second time not marked as redelivered, and not given back unseen between".to_owned()
                });
                return true;
            }
            before = Some(receipt);
        }
        false
    }

    /// Whether this delivery went back with its count as it was, before `at`.
    fn returned_unseen(&self, receipt: &Receipt, at: u64) -> bool {
        let latest = at + self.slack();
        match receipt.end {
            End::GivenBack | End::Declined => receipt.end_at <= latest,
            End::Open => {
                let closed = self.record.consumers.get(receipt.consumer).detached;
                closed.is_some_and(|closed| closed.orderly && closed.at <= latest)
            }
            End::Acknowledged | End::AcknowledgedInTx | End::RolledBack | End::Failed | End::Rejected => false,
        }
    }

    /// I10: a count or flag that is lower in a delivery that was certainly sent later.
    fn went_down(&self, report: &mut Report) {
        let receipts = self.case.receipts;
        for (index, later) in receipts.iter().enumerate() {
            for first in receipts[index.saturating_sub(NEIGHBORS)..index].iter().rev() {
                let lower = later.count < first.count || (first.redelivered && !later.redelivered);
                if lower && self.certainly_after(first, later) {
                    let events = [("received", first.place), ("received again", later.place)];
                    self.add(report, Invariant::Counts, &events, || {
                        let flag = |one: &Receipt| if one.redelivered { "redelivered" } else { "not redelivered" };
                        format!(
                            "its delivery count was {} ({}) and later {} ({})",
                            first.count,
                            flag(first),
                            later.count,
                            flag(later)
                        )
                    });
                    return;
                }
            }
        }
    }

    /// I9: ready all through a gap of its queue.
    fn stuck(&self, used: &mut [bool], report: &mut Report) {
        let Case { sent, receipts, astray, fates, .. } = self.case;
        let queue = self.record.queues.get(sent.queue);
        // Of what was moved only as far as it stayed where it was.
        let receipts = &receipts[..receipts.iter().position(|one| one.queue != sent.queue).unwrap_or(receipts.len())];
        if queue.gaps.is_empty() || sent.answer != Answer::Confirmed || sent.ttl || sent.delayed {
            return;
        }
        if *astray || !fates.is_empty() || !queue.presettled_lost.is_empty() {
            return;
        }
        // Since when it is ready, and from when on it can have been taken out. A link may be over without its consumer knowing: what it
        // gives back can have been ready, and taken out, since it was sent there. Nor does its producer know when it came to the queue; that
        // it was committed it may learn long after.
        let mut ready = Some((sent.answer_at, sent.at));
        // Once acknowledged it may be gone, and a later receipt need not show that it was not: its link may be one of a broker
        // that had died by then, read late.
        let mut gone = false;
        for receipt in receipts.iter() {
            if let Some(ready) = ready {
                self.stuck_between(ready, receipt.at, Some(receipt), used, report);
            }
            gone |= matches!(receipt.end, End::Acknowledged | End::AcknowledgedInTx | End::Rejected);
            ready = (receipt.end == End::GivenBack && !gone).then_some((receipt.end_at, receipt.from));
        }
        if let Some(ready) = ready {
            self.stuck_between(ready, u64::MAX, None, used, report);
        }
    }

    fn stuck_between(
        &self,
        (ready, takeable): (u64, u64),
        until: u64,
        then: Option<&Receipt>,
        used: &mut [bool],
        report: &mut Report,
    ) {
        let sent = self.case.sent;
        let queue = self.record.queues.get(sent.queue);
        if !sent.persistent && self.record.ended_between(queue.broker, sent.at, until) {
            return;
        }
        // An operator may have taken it out.
        let taken = self.record.operations.first_on(sent.queue, takeable.saturating_sub(self.slack()));
        let until = until.min(taken.unwrap_or(u64::MAX));
        let first = queue.gaps.partition_point(|gap| gap.to <= ready);
        for (gap, used) in queue.gaps.iter().zip(used).skip(first).take_while(|(gap, _)| gap.from < until) {
            let (from, to) = (gap.from.max(ready + self.slack()), gap.to.min(until));
            if *used || to.saturating_sub(from) < self.record.options.stuck_ns {
                continue;
            }
            // One a gap: the others that waited with it would say the same.
            *used = true;
            let consumer = self.record.consumers.get(gap.consumer);
            let events = [
                ("confirmed", sent.answer_place),
                ("credit", consumer.credit_place),
                ("received", then.map_or(Place::default(), |receipt| receipt.place)),
            ];
            self.add(report, Invariant::Stuck, &events, || {
                format!(
                    "it was ready, a consumer had credit, and nothing was delivered for {} ms",
                    (to - from) / 1_000_000
                )
            });
        }
    }
}

impl Record {
    /// Whether a queue's broker ended in this time.
    pub(super) fn ended_between(&self, broker: u32, from: u64, to: u64) -> bool {
        let slack = self.options.slack_ns;
        self.brokers.ended_between(broker, from.saturating_sub(slack), to.saturating_add(slack))
    }

    /// Whether all of these queues that exist were seen empty, not before `after`. A queue that nobody named was not looked into.
    fn was_drained(&self, names: &[String], after: u64) -> bool {
        let slack = self.options.slack_ns;
        names.iter().all(|name| {
            let last = self.queues.find(name).and_then(|queue| queue.drained.last());
            last.is_some_and(|(at, _)| at + slack >= after)
        })
    }
}
