//! I5: per producer, queue and priority, messages are handed out for the first time in the order of sending.
//!
//! On one link the order of arrival shows it. Between links only what is certain counts: a message whose first delivery was sent after
//! one that was sent later had already been seen.
//!
//! What is sent in transactions comes in the order of their commits, and in one transaction in the order of sending. Of two commits, and of a
//! commit and a message that is sent by itself, only what is certain counts: one was over before the other was asked for.
//!
//! Where messages are refused, one that was sent again may come later than what was sent after it.
//!
//! A return does not change the order: what was certainly back before a link began comes to it before what was sent later.

use super::judge::evidence;
use super::messages::{Answer, End, NONE, Place, Producer, Receipt, Sent};
use super::record::{Disorder, Record};
use super::transactions::Moment;
use crate::event::MessageId;
use crate::report::{Invariant, Report, Violation};
use packhorse_model::{Map, Seed};
use std::cmp::Reverse;

/// Judges all messages.
pub(super) fn judge(record: &Record, report: &mut Report) {
    let mut scratch = Vec::new();
    for disorder in &record.disorders {
        on_one_link(record, disorder, &mut scratch, report);
    }
    for inversion in &record.inversions {
        upside_down(record, inversion, &mut scratch, report);
    }
    for producer in &record.messages.producers {
        if producer.sent.iter().any(Sent::in_tx) {
            of_transactions(record, producer, &mut scratch, report);
        }
        // By queue to which they were sent, queue in which they were seen first, priority: of the messages sent later, the delivery that
        // was seen first.
        let mut later: Map<(u32, u32, u8), Receipt> = Seed::fixed(6).map();
        for sent in producer.sent.iter().rev() {
            if sent.in_tx() || sent.delayed || sent.answer == Answer::Refused || record.queues.get(sent.queue).filtered
            {
                continue;
            }
            record.messages.collect(sent.seen, &mut scratch);
            let Some(&first) = scratch.first() else { continue };
            if !record.operations.keeps_order(first.queue, sent.queue) {
                continue;
            }
            let key = (sent.queue, first.queue, sent.priority);
            let Some(seen) = later.get_mut(&key) else {
                later.insert(key, first);
                continue;
            };
            let overtaken = seen.at + record.options.slack_ns < first.from
                && seen.consumer != first.consumer
                && first.is_unflagged()
                && !maybe_away(record, sent, &first, seen);
            if overtaken {
                let message = MessageId::new(producer.id, sent.sequence);
                let events = [("sent", sent.place), ("overtaken by", seen.place), ("first received", first.place)];
                let what = "one that its producer sent later had been received before it was handed out";
                add(record, message, sent, &events, what, report);
            }
            if first.at < seen.at {
                *seen = first;
            }
        }
    }
}

/// A message with its place in the order of its queue: it came there between these moments.
#[derive(Clone, Copy)]
struct Entered {
    message: MessageId,
    tx: u32,
    from: Moment,
    by: Moment,
    /// Its index among all deliveries, and the delivery.
    receipt: (u32, Receipt),
}

impl Entered {
    /// Whether it came to the queue before the other one for certain.
    fn before(&self, other: &Entered, slack: u64) -> bool {
        if self.tx == other.tx {
            // Without a transaction that is judged where there is none.
            return self.tx != NONE && self.message.sequence < other.message.sequence;
        }
        let ((by, here), (from, there)) = (self.by, other.from);
        if here.file() == there.file() { here < there } else { by.saturating_add(slack) < from }
    }
}

/// The same for a producer that sends in transactions.
fn of_transactions(record: &Record, producer: &Producer, scratch: &mut Vec<Receipt>, report: &mut Report) {
    let slack = record.options.slack_ns;
    let mut all: Vec<((u32, u32, u8), Entered, bool)> = Vec::new();
    for sent in &producer.sent {
        let wanted = !sent.delayed && !matches!(sent.answer, Answer::Refused | Answer::RolledBack);
        if !wanted || record.queues.get(sent.queue).filtered {
            continue;
        }
        record.messages.collect(sent.seen, scratch);
        let Some(first) = scratch.first().copied() else { continue };
        let transaction = record.transactions.get(sent.tx);
        let told = (sent.answer == Answer::Confirmed).then_some((sent.answer_at, sent.answer_place));
        let Some(from) = transaction.map_or(Some((sent.at, sent.place)), |one| one.commit_from) else { continue };
        for (index, receipt) in record.messages.chain(sent.seen) {
            let by = told.unwrap_or((first.at, first.place));
            let entered = Entered {
                message: MessageId::new(producer.id, sent.sequence),
                tx: sent.tx,
                from,
                by,
                receipt: (index, receipt),
            };
            all.push(((sent.queue, receipt.queue, sent.priority), entered, receipt.place == first.place));
        }
    }
    // On one link, in the order of arrival.
    all.sort_by_key(|(key, entered, _)| (*key, entered.receipt.1.consumer, entered.receipt.0));
    for link in all.chunk_by(|one, other| (one.0, one.1.receipt.1.consumer) == (other.0, other.1.receipt.1.consumer)) {
        // Of those that came, the one that was asked for last, by itself or in a transaction; and of each transaction the last one.
        let mut latest: [Option<Entered>; 2] = [None; 2];
        let mut last: Map<u32, Entered> = Seed::fixed(11).map();
        for (_, entered, _) in link {
            let overtakers = [last.get(&entered.tx).copied(), latest[0], latest[1]].into_iter().flatten();
            let overtaker = overtakers.into_iter().find(|other| entered.before(other, slack));
            if let Some(overtaker) = overtaker.filter(|_| entered.receipt.1.is_unflagged()) {
                let (message, receipt, earlier) = (entered.message, entered.receipt.0, overtaker.receipt.0);
                on_one_link(record, &Disorder { message, receipt, earlier }, scratch, report);
            }
            let latest = &mut latest[usize::from(entered.tx != NONE)];
            if latest.is_none_or(|known| known.from < entered.from) {
                *latest = Some(*entered);
            }
            let last = last.entry(entered.tx).or_insert(*entered);
            if last.message.sequence < entered.message.sequence {
                *last = *entered;
            }
        }
    }
    // Between links, first deliveries alone: by the end of the time in which each came, the last first.
    all.retain(|(key, _, first)| *first && record.operations.keeps_order(key.1, key.0));
    all.sort_by_key(|(key, entered, _)| (*key, Reverse((entered.by, entered.message.sequence))));
    for queue in all.chunk_by(|one, other| one.0 == other.0) {
        let mut later: Vec<&Entered> = queue.iter().map(|(_, entered, _)| entered).collect();
        later.sort_by_key(|entered| entered.from);
        // Of those that came later for certain, by themselves or in a transaction, the one that was seen first; and of each transaction.
        let mut seen: [Option<&Entered>; 2] = [None; 2];
        let mut of_same: Map<u32, &Entered> = Seed::fixed(12).map();
        for (_, entered, _) in queue {
            while let Some(other) = later.pop_if(|other| other.from > entered.by) {
                earliest(&mut seen[usize::from(other.tx != NONE)], other);
            }
            let overtakers = [of_same.get(&entered.tx).copied(), seen[0], seen[1]].into_iter().flatten();
            let overtaker = overtakers.into_iter().find(|other| {
                let (seen, first) = (&other.receipt.1, &entered.receipt.1);
                seen.at.saturating_add(slack) < first.from
                    && seen.consumer != first.consumer
                    && entered.before(other, slack)
            });
            if let Some(overtaker) = overtaker {
                overtaken(record, entered, overtaker, report);
            }
            let mut same = of_same.get(&entered.tx).copied();
            earliest(&mut same, entered);
            of_same.extend(same.map(|same| (entered.tx, same)));
        }
    }
}

/// The one of both that was seen first.
fn earliest<'e>(slot: &mut Option<&'e Entered>, entered: &'e Entered) {
    if slot.is_none_or(|known| entered.receipt.1.at < known.receipt.1.at) {
        *slot = Some(entered);
    }
}

fn overtaken(record: &Record, entered: &Entered, overtaker: &Entered, report: &mut Report) {
    let (first, seen) = (&entered.receipt.1, &overtaker.receipt.1);
    let Some(sent) = record.messages.sent(entered.message) else { return };
    if first.is_unflagged() && !maybe_away(record, sent, first, seen) {
        let events = [("sent", sent.place), ("overtaken by", seen.place), ("first received", first.place)];
        let what = "one that came to the queue later had been received before it was handed out";
        add(record, entered.message, sent, &events, what, report);
    }
}

fn on_one_link(record: &Record, disorder: &Disorder, scratch: &mut Vec<Receipt>, report: &mut Report) {
    let message = disorder.message;
    let (receipt, earlier) =
        (record.messages.receipts[disorder.receipt as usize], record.messages.receipts[disorder.earlier as usize]);
    let Some(sent) = record.messages.sent(message) else { return };
    if !record.operations.keeps_order(receipt.queue, sent.queue) {
        return;
    }
    record.messages.collect(sent.seen, scratch);
    // Seen elsewhere before: it has come back to its place, perhaps behind the other one's back.
    let came_back = scratch.iter().any(|other| {
        other.place != receipt.place
            && !certainly_back(record, other, &receipt)
            && (if other.consumer == receipt.consumer {
                other.place < receipt.place
            } else {
                other.at <= receipt.at + record.options.slack_ns
            })
    });
    if !came_back && sent.answer != Answer::Refused && !maybe_away(record, sent, &receipt, &earlier) {
        let events = [("sent", sent.place), ("overtaken by", earlier.place), ("first received", receipt.place)];
        let what = "one that its producer sent later came before it on the same link";
        add(record, message, sent, &events, what, report);
    }
}

/// One of a lower priority came before it, on the same link, although it was ready: confirmed before the credit for that one existed.
/// Only if this was its first delivery, nobody else can have held it meanwhile, and no operator touched the queue.
fn upside_down(record: &Record, inversion: &Disorder, scratch: &mut Vec<Receipt>, report: &mut Report) {
    let message = inversion.message;
    let of = |index: u32| record.messages.receipts[index as usize];
    let (receipt, lower) = (of(inversion.receipt), of(inversion.earlier));
    let Some(sent) = record.messages.sent(message) else { return };
    if receipt.queue != sent.queue
        || record.queues.get(sent.queue).filtered
        || record.operations.touched(sent.queue)
        || maybe_away(record, sent, &receipt, &lower)
    {
        return;
    }
    record.messages.collect(sent.seen, scratch);
    if scratch.first().is_none_or(|first| first.place != receipt.place) {
        return;
    }
    let events = [
        ("sent", sent.place),
        ("confirmed", sent.answer_place),
        ("overtaken by", lower.place),
        ("first received", receipt.place),
    ];
    let what = "it was ready, and one of a lower priority came before it on the same link";
    add(record, message, sent, &events, what, report);
}

/// Whether a delivery was back in its place before the link of a later one began: its own link had ended in order, with an answer. What
/// was given back in a transaction waits for the end of that instead.
fn certainly_back(record: &Record, earlier: &Receipt, later: &Receipt) -> bool {
    let (link, next) = (record.consumers.get(earlier.consumer), record.consumers.get(later.consumer));
    let back_at = link.detached.filter(|detached| detached.orderly && detached.answered).map(|over| over.answered_at);
    earlier.consumer != later.consumer
        && earlier.returned_in == NONE
        && matches!(earlier.end, End::Open | End::GivenBack | End::Declined)
        && back_at.is_some_and(|at| at + record.options.slack_ns < next.attached_at)
}

/// Whether it may have come behind what was sent after it: its connection died, and it was sent again. The first may have been refused, as
/// others were, with an answer that nobody got.
pub(super) fn maybe_late(record: &Record, sent: &Sent) -> bool {
    sent.again && record.queues.get(sent.queue).refuses
}

/// Whether it may have been out of its place when `overtaker` was sent out: its body could not be read, and what is behind such a one goes on. Or
/// `first` may not have been the first time: another consumer, that was there when `overtaker` was sent out, closed its link in order, and what
/// was on its way to it went back unseen and unrecorded.
fn maybe_away(record: &Record, sent: &Sent, first: &Receipt, overtaker: &Receipt) -> bool {
    let slack = record.options.slack_ns;
    if maybe_late(record, sent) || sent.damaged_at.is_some_and(|at| at <= overtaker.at + slack) {
        return true;
    }
    let here = [Some(sent.queue), Some(first.queue).filter(|queue| *queue != sent.queue)];
    here.into_iter().flatten().flat_map(|queue| &record.queues.get(queue).unread).any(|unread| {
        unread.consumer != first.consumer
            && unread.attached_at <= overtaker.at + slack
            && unread.over_at + slack >= sent.at
            && unread.detached_at <= first.at + slack
    })
}

fn add(
    record: &Record,
    message: MessageId,
    sent: &Sent,
    events: &[(&'static str, Place)],
    sentence: &'static str,
    report: &mut Report,
) {
    report.add(Invariant::Order, || Violation {
        invariant: Invariant::Order,
        message: Some(message),
        queue: Some(record.queues.get(sent.queue).name.clone()),
        events: events.iter().map(|(what, place)| evidence(record, what, *place)).collect(),
        sentence: sentence.to_owned(),
    });
}
