//! What browsers saw: a browsing link shows what is in a queue, each message at most once and in the order of the queue, and takes
//! nothing. What it shows has to be there: sent, not refused, not surely gone before the link came to be, with its own body (I2); twice is
//! I4, out of order I5.

use super::atomic::Atomic;
use super::judge::{Case, evidence};
use super::messages::{Answer, End, Place, Receipt};
use super::operators::Reached;
use super::order::maybe_late;
use super::record::Record;
use crate::event::MessageId;
use crate::report::{Invariant, Report, Violation};
use std::collections::BTreeMap;

/// A browsing link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Browser {
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) queue: u32,
    pub(crate) file: u32,
}

/// A message that one showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Browsed {
    pub(crate) message: MessageId,
    pub(crate) consumer: u32,
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) crc_ok: bool,
}

/// Judges all of them.
pub(super) fn judge(record: &Record, atomic: &mut Atomic, report: &mut Report) {
    report.looked_at(Invariant::Phantom, record.browsed.len() as u64);
    let mut highest: BTreeMap<(u32, u32, u32, u8), Browsed> = BTreeMap::new();
    let (mut receipts, mut reach) = (Vec::new(), Vec::new());
    let mut by_message: BTreeMap<(u32, MessageId), Browsed> = BTreeMap::new();
    for browsed in &record.browsed {
        let browser = &record.browsers[&browsed.consumer];
        let Some(sent) = record.messages.sent(browsed.message) else {
            add(record, browsed, &[], Invariant::Phantom, "it was shown to a browser, and nobody has sent it", report);
            continue;
        };
        let slack = record.options.slack_ns;
        record.messages.collect(sent.seen, &mut receipts);
        record.operations.reach(sent, slack, &mut reach);
        let known = |reached: &Reached| reached.queue == browser.queue && reached.at <= browsed.at + slack;
        let gone = || {
            let answered = |receipt: &&Receipt| receipt.end == End::Acknowledged && receipt.is_confirmed();
            receipts.iter().filter(answered).find(|receipt| receipt.confirm_at + slack < browser.at)
        };
        let case = Case {
            id: browsed.message,
            sent,
            receipts: &receipts,
            astray: false,
            reach: &reach,
            removers: &[],
            fates: &[],
        };
        atomic.shown(record, &case, browsed.at, browsed.place, "shown");
        // In a branch that is in doubt it is hidden.
        let hidden = || {
            let mut in_tx = receipts.iter().filter(|receipt| receipt.end_at + slack < browser.at);
            in_tx.find(|receipt| {
                let transaction = record.transactions.get(receipt.tx);
                transaction.is_some_and(|one| {
                    let part = (receipt.queue, receipt.end_at);
                    let in_doubt = one.in_doubt(browser.at, slack) && one.undecided(browsed.at, slack);
                    in_doubt && !record.forced(one, part, browsed.at)
                })
            })
        };
        if let Some(receipt) = hidden() {
            let events = [("acknowledged", receipt.end_place), ("shown", browsed.place)];
            let what = "a branch that acknowledged it is in doubt, and a browser was shown it";
            atomic.pending(receipt.tx, Invariant::Prepared, &case, &events, what);
        }
        let sent_place = ("sent", sent.place);
        if sent.answer == Answer::Refused {
            let events = [sent_place, ("refused", sent.answer_place)];
            add(record, browsed, &events, Invariant::Phantom, "it was refused, and shown to a browser", report);
        } else if !browsed.crc_ok {
            let what = "a browser was shown another body than the one that was sent";
            add(record, browsed, &[sent_place], Invariant::Phantom, what, report);
        } else if !reach.iter().any(known) {
            let what = "it was shown to a browser of a queue where it cannot be";
            add(record, browsed, &[sent_place], Invariant::Phantom, what, report);
        } else if let Some(receipt) = gone() {
            let events = [sent_place, ("acknowledged", receipt.end_place), ("confirmed", receipt.confirm_place)];
            let what = "its acknowledgement was confirmed before the browser came, and it was shown all the same";
            add(record, browsed, &events, Invariant::Phantom, what, report);
        }
        if let Some(first) = by_message.insert((browsed.consumer, browsed.message), *browsed) {
            let events = [sent_place, ("shown", first.place)];
            add(record, browsed, &events, Invariant::SilentDuplicate, "a browser was shown it twice", report);
            continue;
        }
        if sent.in_tx() || sent.delayed || !record.operations.keeps_order(browser.queue, sent.queue) {
            continue;
        }
        // What a consumer had when others were moved, and gave back, was moved behind them.
        let was_away = |receipt: &Receipt| receipt.from <= browsed.at.saturating_add(slack);
        if browser.queue != sent.queue && receipts.iter().any(was_away) {
            continue;
        }
        let key = (browsed.consumer, browsed.message.producer, sent.queue, sent.priority);
        match highest.get(&key) {
            Some(before) if before.message.sequence > browsed.message.sequence => {
                if maybe_late(record, sent) {
                    continue;
                }
                let events = [sent_place, ("overtaken by", before.place)];
                let what = "a browser was shown one that its producer sent later before it";
                add(record, browsed, &events, Invariant::Order, what, report);
            }
            _ => {
                highest.insert(key, *browsed);
            }
        }
    }
}

fn add(
    record: &Record,
    browsed: &Browsed,
    before: &[(&'static str, Place)],
    invariant: Invariant,
    sentence: &'static str,
    report: &mut Report,
) {
    let browser = &record.browsers[&browsed.consumer];
    report.add(invariant, || {
        let here = [("browser", browser.place), ("shown", browsed.place)];
        let events = before.iter().chain(&here).filter(|(_, place)| place.is_some());
        Violation {
            invariant,
            message: Some(browsed.message),
            queue: Some(record.queues.get(browser.queue).name.clone()),
            events: events.map(|(what, place)| evidence(record, what, *place)).collect(),
            sentence: sentence.to_owned(),
        }
    });
}
