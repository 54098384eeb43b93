//! I7, as far as `recover` and the verbs tell it: a branch that was prepared, as its manager knows by the answer, and that nobody has
//! decided, is listed and can be decided. What is not prepared, or is over, is not listed.
//!
//! What messages show of branches in doubt is found where messages are judged.

use super::atomic::moments;
use super::brokers::Brokers;
use super::judge::evidence;
use super::messages::Place;
use super::operators::What;
use super::record::Record;
use super::transactions::{Asked, List, Transaction, Wish, code};
use crate::report::{Invariant, Report, Violation};
use std::collections::{BTreeMap, BTreeSet};

/// Judges all lists, and all answers to verbs.
pub(super) fn judge(record: &Record, report: &mut Report) {
    let branches = || record.transactions.all.iter().filter(|one| one.xid.is_some());
    report.looked_at(Invariant::Prepared, branches().filter(|branch| branch.prepared.is_some()).count() as u64);
    for list in &record.transactions.lists {
        report.looked_at(Invariant::Prepared, 1);
        let mut listed: BTreeSet<&str> = BTreeSet::new();
        for xid in &list.xids {
            let branch = record.transactions.find(xid);
            let what = if !listed.insert(xid) {
                Some("recover listed it twice")
            } else {
                branch.map_or(Some("recover listed it, and nobody began it"), |branch| {
                    wrongly_listed(record, branch, list)
                })
            };
            if let Some(what) = what {
                tell(record, xid, branch, ("listed", list.place), what, report);
            }
        }
        for branch in branches() {
            let xid = branch.xid.as_deref().unwrap_or_default();
            if !listed.contains(xid) && must_be_listed(record, branch, list) {
                tell(
                    record,
                    xid,
                    Some(branch),
                    ("listed", list.place),
                    "it is in doubt, and recover did not list it",
                    report,
                );
            }
        }
    }
    let parts = parts(record);
    for (index, branch) in record.transactions.all.iter().enumerate().filter(|(_, one)| one.xid.is_some()) {
        let parts = parts.get(&(index as u32));
        for asked in &branch.asked {
            if let Some(what) = wrongly_answered(record, branch, asked, parts) {
                let answered = asked.answer.map_or(Place::default(), |(_, place, _)| place);
                tell(
                    record,
                    branch.xid.as_deref().unwrap_or_default(),
                    Some(branch),
                    ("answered", answered),
                    what,
                    report,
                );
            }
        }
    }
}

/// What each branch did in each queue, since when.
type Parts = BTreeMap<u32, u64>;

/// The parts of each branch, by its index; none if nothing was emptied, for then nobody asks.
fn parts(record: &Record) -> BTreeMap<u32, Parts> {
    let mut all: BTreeMap<u32, Parts> = BTreeMap::new();
    if record.operations.all.iter().all(|operation| matches!(operation.what, What::Move(_))) {
        return all;
    }
    let sent = record.messages.producers.iter().flat_map(|producer| &producer.sent);
    let sent = sent.map(|sent| (sent.tx, sent.queue, sent.at));
    let acknowledged = record.messages.receipts.iter().map(|one| (one.tx, one.queue, one.end_at));
    for (tx, queue, at) in sent.chain(acknowledged) {
        if record.transactions.get(tx).is_some_and(|transaction| transaction.xid.is_some()) {
            let since = all.entry(tx).or_default().entry(queue).or_insert(at);
            *since = at.min(*since);
        }
    }
    all
}

/// Why a branch cannot be in this list, if that is so.
fn wrongly_listed(record: &Record, branch: &Transaction, list: &List) -> Option<&'static str> {
    let slack = record.options.slack_ns;
    let latest = list.at.saturating_add(slack);
    let prepared = |asked: &Asked| asked.wish == Wish::Prepare && asked.at <= latest;
    if !branch.asked.iter().any(prepared) {
        return Some("recover listed it, and nobody had asked to prepare it");
    }
    let over = |asked: &Asked| match (asked.wish, asked.answer) {
        (Wish::Commit | Wish::Rollback | Wish::Forget, Some((at, _, code::OK))) => {
            at.saturating_add(slack) < list.asked_at
        }
        (Wish::Prepare, Some((at, _, code))) => {
            (code == code::READ_ONLY || code::rolled_back(code)) && at.saturating_add(slack) < list.asked_at
        }
        _ => false,
    };
    let decided = |asked: &Asked| asked.may_decide_for_others() && asked.at <= latest;
    let operated =
        branch.asked.iter().any(decided) && !branch.asked.iter().any(|asked| asked.wish == Wish::Forget && over(asked));
    (branch.asked.iter().any(over) && !operated).then_some("recover listed it, and it was over")
}

/// In doubt, or decided by an operator and not forgotten, all the while.
fn must_be_listed(record: &Record, branch: &Transaction, list: &List) -> bool {
    let slack = record.options.slack_ns;
    if !Brokers::concerns(branch.broker, list.broker) || (list.broker == Brokers::ALL && branch.broker != Brokers::ALL)
    {
        return false;
    }
    let known = |at: u64| at.saturating_add(slack) <= list.asked_at;
    let forgotten = |asked: &Asked| asked.may_forget() && asked.at <= list.at.saturating_add(slack);
    if branch.asked.iter().any(forgotten) {
        return false;
    }
    let in_doubt = branch.prepared.is_some_and(|(at, _)| known(at)) && branch.undecided(list.at, slack);
    in_doubt || branch.decided.is_some_and(known)
}

/// Why a branch that is in doubt cannot be answered like this, if that is so.
fn wrongly_answered(
    record: &Record,
    branch: &Transaction,
    asked: &Asked,
    parts: Option<&Parts>,
) -> Option<&'static str> {
    let slack = record.options.slack_ns;
    let (at, _, code) = asked.answer?;
    if !matches!(asked.wish, Wish::Prepare | Wish::Commit | Wish::Rollback) {
        return None;
    }
    let latest = at.saturating_add(slack);
    let others = || branch.asked.iter().filter(|other| other.place != asked.place && other.at <= latest);
    // By force a queue is deleted or emptied with its part of a branch, which then ends in its own way.
    let forced = || {
        let mut parts = parts.into_iter().flatten();
        parts.any(|(queue, since)| {
            record.operations.emptied(*queue, since.saturating_sub(slack), latest).next().is_some()
        })
    };
    let operated = || forced() || others().any(Asked::may_decide_for_others);
    let prepared = branch.prepared.is_some_and(|(since, place)| {
        place != asked.answer.map_or(Place::default(), |(_, place, _)| place) && since.saturating_add(slack) <= asked.at
    });
    match code {
        code::MIXED | code::HEURISTIC_ROLLED_BACK | code::HEURISTIC_COMMITTED | code::HAZARD => {
            (!operated()).then_some("it was said to be decided by an operator, and none has decided it")
        }
        code::NOT_THERE if prepared => {
            let decided = others().any(|other| other.may_commit() || other.may_roll_back() || other.may_forget());
            (!decided && !forced()).then_some("it was prepared, nobody has decided it, and the broker does not know it")
        }
        code if code::rolled_back(code) && prepared && asked.wish != Wish::Rollback => {
            let decided = others().any(Asked::may_roll_back);
            (!decided && !forced()).then_some("it was prepared, nobody rolled it back, and it is rolled back")
        }
        _ => None,
    }
}

fn tell(
    record: &Record,
    xid: &str,
    branch: Option<&Transaction>,
    event: (&'static str, Place),
    what: &'static str,
    report: &mut Report,
) {
    report.add(Invariant::Prepared, || {
        let mut events = branch.map_or_else(Vec::new, |branch| {
            moments(&[("begun", branch.begun), ("prepared", branch.prepared), ("commit asked", branch.commit_from)])
        });
        events.push(event);
        Violation {
            invariant: Invariant::Prepared,
            message: None,
            queue: None,
            events: events
                .into_iter()
                .filter(|(_, place)| place.is_some())
                .map(|(what, place)| evidence(record, what, place))
                .collect(),
            sentence: format!("branch {xid}: {what}"),
        }
    });
}
