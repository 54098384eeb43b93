//! Numbers of producers in transactions: a message counts as taken once its transaction is committed, and what is sent again meanwhile is
//! neither stored twice nor said to be stored.

use super::*;
use packhorse_model::{DuplicateId, Identity, Numbered, ProducerId, TxnId};
use packhorse_queue::Known;
use std::collections::{BTreeMap, BTreeSet};

const PRODUCER: ProducerId = ProducerId([7; 16]);

/// A number that may have been sent before.
fn number(number: u64) -> Identity {
    Identity::Number(Numbered { producer: PRODUCER, number, lowest: 0, fresh: false })
}

/// A queue that knows the producer.
fn known() -> Rig {
    let mut rig = Rig::new(10);
    rig.handle(Q, Input::OpenProducer { producer: PRODUCER, lowest: 0, next: 0 });
    rig.flush();
    rig
}

#[test]
fn a_number_counts_once_its_transaction_is_committed() {
    for fault in FAULTS {
        let mut rig = known();
        assert_eq!([1, 2].map(|n| rig.stage_identified(txn(1), number(n), n, n == 1)), [Known::New; 2]);
        // What becomes of the transaction becomes of both.
        assert_eq!(rig.stage_identified(txn(1), number(1), 1, true), Known::Stored);
        rig.commit(txn(1));
        assert_eq!([1, 2].map(|n| rig.look(number(n), None)), [Known::Stored; 2]);
        let mut rig = after(rig, fault);
        // What is not persistent is lost, and so is its number.
        let second = if fault == Fault::None { Known::Stored } else { Known::New };
        assert_eq!([1, 2].map(|n| rig.send_as(number(n), n, true)), [Known::Stored, second], "{fault:?}");
        assert_eq!(rig.stage_identified(txn(2), number(1), 1, true), Known::Stored);
        rig.commit(txn(2));
        assert_eq!(numbers_there(&mut rig), [1, 2], "{fault:?}");
    }
}

#[test]
fn a_number_is_free_again_after_a_rollback() {
    for fault in FAULTS {
        let mut rig = known();
        assert_eq!(rig.stage_identified(txn(1), number(1), 1, true), Known::New);
        if fault == Fault::None {
            rig.roll_back(txn(1));
        }
        let mut rig = after(rig, fault);
        assert_eq!(rig.stage_identified(txn(2), number(1), 1, true), Known::New, "{fault:?}");
        rig.commit(txn(2));
        assert_eq!(rig.send_as(number(1), 1, true), Known::Stored);
        assert_eq!(numbers_there(&mut rig), [1]);
    }
}

#[test]
fn a_number_in_doubt_is_neither_stored_again_nor_said_to_be_stored() {
    for (fault, commit) in FAULTS.into_iter().flat_map(|fault| [(fault, true), (fault, false)]) {
        let mut rig = known();
        rig.stage_identified(txn(1), number(1), 1, true);
        assert_eq!(rig.send_as(number(1), 1, true), Known::Undecided(txn(1)));
        rig.prepare(txn(1));
        let mut rig = after(rig, fault);
        assert_eq!(rig.send_as(number(1), 1, true), Known::Undecided(txn(1)), "{fault:?}");
        assert_eq!(rig.stage_identified(txn(2), number(1), 1, true), Known::Undecided(txn(1)));
        rig.roll_back(txn(2));
        rig.decide(txn(1), commit);
        let mut rig = after(rig, fault);
        let now = if commit { Known::Stored } else { Known::New };
        assert_eq!(rig.send_as(number(1), 1, true), now, "{fault:?}");
        assert_eq!(numbers_there(&mut rig), [1]);
    }
}

#[test]
fn a_part_that_leaves_a_message_out_is_answered_for_when_the_first_is_safe() {
    let mut rig = known();
    assert_eq!(rig.send_as(number(1), 1, true), Known::New);
    assert_eq!(rig.stage_identified(txn(1), number(1), 1, true), Known::Stored);
    assert!(!rig.gather(txn(1), Purpose::Commit), "it says that the message is there");
    let gathered = rig.gathered(txn(1), Purpose::Commit);
    assert!(!gathered.persistent && gathered.part.ops.is_empty());
    assert_eq!(gathered.part.duplicates.adds, 1);
    rig.apply(txn(1), Resolution::Commit);
    // And when it is safe, at once.
    assert_eq!(rig.stage_identified(txn(2), number(1), 1, true), Known::Stored);
    rig.gathered_at_once(txn(2), Purpose::Commit);
}

#[test]
fn what_is_not_known_any_more_is_not_taken_for_new_by_a_late_commit() {
    let mut rig = known();
    rig.stage_identified(txn(1), number(1), 1, true);
    rig.prepare(txn(1));
    assert_eq!(rig.send_as(number(2), 2, true), Known::New);
    // The producer is forgotten, and with it that 2 was stored.
    rig.pass(600_001);
    rig.decide(txn(1), true);
    assert_eq!([1, 2].map(|n| rig.send_as(number(n), n, true)), [Known::Lost; 2]);
    let mut rig = rig.crash(1);
    assert_eq!([1, 2].map(|n| rig.send_as(number(n), n, true)), [Known::Lost; 2]);
    assert_eq!(numbers_there(&mut rig), [1, 2]);
}

fn numbers_there(rig: &mut Rig) -> Vec<u64> {
    rig.flush();
    rig.turns();
    let mut numbers: Vec<u64> = rig.drain(Q, 77).into_iter().map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn duplicate_ids_are_stored_once_and_counted() {
    let id = |n: u64| Identity::Id(DuplicateId::of(&n.to_be_bytes()));
    let bounds = packhorse_queue::IdBounds { max: 3, keep_ms: 60_000 };
    for fault in FAULTS {
        let mut rig = Rig::new(10);
        rig.remember_ids(bounds);
        assert_eq!([1, 1].map(|n| rig.send_as(id(n), n, true)), [Known::New, Known::Stored]);
        // A start knows their order by the millisecond.
        rig.pass(1);
        assert_eq!(
            [1, 2, 2].map(|n| rig.stage_identified(txn(1), id(n), n, true)),
            [Known::Stored, Known::New, Known::Stored]
        );
        assert_eq!(rig.send_as(id(2), 2, true), Known::Undecided(txn(1)));
        rig.stage_identified(txn(2), id(3), 3, true);
        rig.roll_back(txn(2));
        rig.prepare(txn(1));
        let stats = rig.queue(Q).stats();
        assert_eq!(stats.duplicates_total, 1, "those in a transaction count with it");
        let mut rig = after(rig, fault);
        rig.remember_ids(bounds);
        assert_eq!(rig.send_as(id(2), 2, true), Known::Undecided(txn(1)), "{fault:?}");
        rig.decide(txn(1), true);
        let mut rig = after(rig, fault);
        rig.remember_ids(bounds);
        assert_eq!(
            [1, 2, 3].map(|n| rig.send_as(id(n), n, true)),
            [Known::Stored, Known::Stored, Known::New],
            "{fault:?}"
        );
        // A fourth, and the first is forgotten: then it is new, and stored again.
        assert_eq!([4, 2, 1].map(|n| rig.send_as(id(n), n, true)), [Known::New, Known::Stored, Known::New]);
        rig.flush();
        rig.pass(60_000);
        assert_eq!(rig.look(id(4), None), Known::New, "its time is over");
        assert_eq!(numbers_there(&mut rig), [1, 1, 2, 3, 4], "{fault:?}");
    }
}

/// Random sends, again and again under few numbers, in and out of transactions that end in all ways, with kills and stops: against sets.
#[test]
fn each_number_is_there_once() {
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut seen = [0; 3];
    for _ in 0..60 {
        let mut rig = known();
        let mut taken = BTreeSet::new();
        let mut open: BTreeMap<TxnId, (BTreeSet<u64>, bool)> = BTreeMap::new();
        let mut next = 0;
        for _ in 0..80 {
            let n = below(24);
            let holder = open.iter().find(|(_, (numbers, _))| numbers.contains(&n)).map(|(txn, _)| *txn);
            let expected = |own: Option<TxnId>| match holder {
                Some(holder) if own == Some(holder) => Known::Stored,
                Some(holder) => Known::Undecided(holder),
                None if taken.contains(&n) => Known::Stored,
                None => Known::New,
            };
            let unprepared: Vec<TxnId> = open.iter().filter(|(_, (_, prepared))| !prepared).map(|(t, _)| *t).collect();
            let pick = unprepared.get(below(3) as usize).copied();
            match below(10) {
                0..=2 => {
                    let known = expected(None);
                    seen[usize::from(known == Known::Stored)
                        + 2 * usize::from(matches!(known, Known::Undecided(_)))] += 1;
                    assert_eq!(rig.send_as(number(n), n, true), known);
                    if known == Known::New {
                        taken.insert(n);
                    }
                    if below(2) == 0 {
                        rig.flush();
                    }
                }
                3..=6 => {
                    let id = pick.unwrap_or_else(|| {
                        next += 1;
                        txn(next)
                    });
                    let known = expected(Some(id));
                    // What cannot be told poisons the transaction; here it is not sent.
                    if matches!(known, Known::Undecided(_)) {
                        continue;
                    }
                    assert_eq!(rig.stage_identified(id, number(n), n, true), known);
                    let part = open.entry(id).or_default();
                    if known == Known::New {
                        part.0.insert(n);
                    }
                }
                7 => {
                    if let Some(id) = pick {
                        rig.commit(id);
                        taken.extend(open.remove(&id).unwrap().0);
                    }
                }
                8 => match (pick, below(2)) {
                    (Some(id), 0) => {
                        rig.roll_back(id);
                        open.remove(&id);
                    }
                    (Some(id), _) if !open[&id].0.is_empty() => {
                        rig.prepare(id);
                        open.get_mut(&id).unwrap().1 = true;
                    }
                    _ => {
                        let prepared = open.iter().find(|(_, (_, prepared))| *prepared).map(|(id, _)| *id);
                        if let Some(id) = prepared {
                            let commit = below(2) == 0;
                            rig.decide(id, commit);
                            let (numbers, _) = open.remove(&id).unwrap();
                            taken.extend(numbers.into_iter().filter(|_| commit));
                        }
                    }
                },
                _ if below(4) == 0 => {
                    rig.flush();
                    rig = if below(2) == 0 { rig.crash(n) } else { rig.restart() };
                    open.retain(|_, (_, prepared)| *prepared);
                }
                _ => rig.turns(),
            }
            rig.queue(Q).audit().unwrap();
        }
        for id in open.keys().copied().collect::<Vec<_>>() {
            if open[&id].1 {
                rig.decide(id, false);
            } else {
                rig.roll_back(id);
            }
        }
        assert_eq!(numbers_there(&mut rig), taken.into_iter().collect::<Vec<_>>());
    }
    assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
}
