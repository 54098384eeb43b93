//! I5: per producer, queue and priority, messages are handed out for the first time in the order of sending.
//!
//! On one link the order of arrival shows it. Between links only what is certain counts: a message whose first delivery was sent after
//! one that was sent later had already been seen.
//!
//! A return does not change the order: what was certainly back before a link began comes to it before what was sent later.

use super::judge::evidence;
use super::messages::{Answer, End, Place, Receipt, Sent};
use super::record::{Disorder, Record};
use crate::event::MessageId;
use crate::report::{Invariant, Report, Violation};
use packhorse_model::{Map, Seed};

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
        // By queue to which they were sent, queue in which they were seen first, priority: of the messages sent later, the delivery that
        // was seen first.
        let mut later: Map<(u32, u32, u8), Receipt> = Seed::fixed(6).map();
        for sent in producer.sent.iter().rev() {
            if sent.in_tx || sent.delayed || sent.answer == Answer::Refused || record.queues.get(sent.queue).filtered {
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
                && !maybe_unread(record, sent, &first, seen);
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
    if !came_back && sent.answer != Answer::Refused && !maybe_unread(record, sent, &receipt, &earlier) {
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
        || maybe_unread(record, sent, &receipt, &lower)
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

/// Whether a delivery was back in its place before the link of a later one began: its own link had ended in order, with an answer.
fn certainly_back(record: &Record, earlier: &Receipt, later: &Receipt) -> bool {
    let (link, next) = (record.consumers.get(earlier.consumer), record.consumers.get(later.consumer));
    let back_at = link.detached.filter(|detached| detached.orderly && detached.answered).map(|over| over.answered_at);
    earlier.consumer != later.consumer
        && matches!(earlier.end, End::Open | End::GivenBack | End::Declined)
        && back_at.is_some_and(|at| at + record.options.slack_ns < next.attached_at)
}

/// Whether `first` may not have been the first time: another consumer, that was there when `overtaker` was sent out, closed its link
/// in order, and what was on its way to it went back unseen and unrecorded.
fn maybe_unread(record: &Record, sent: &Sent, first: &Receipt, overtaker: &Receipt) -> bool {
    let slack = record.options.slack_ns;
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
