//! Transactions in one queue: what is seen of them, what comes back and where, and what survives a crash.

mod ahead;
mod limits;
mod outcomes;
mod producers;
mod random;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "../rig/mod.rs"]
mod rig;
mod slices;
mod visible;

use packhorse_model::{HeadFlags, Outcome, Purpose, Resolution};
use packhorse_queue::{ConsumerId, Input, PartItem};
use rig::transactions::txn;
use rig::{DLQ, Got, Q, Rig, seen};

fn numbers(got: &[Got]) -> Vec<u64> {
    got.iter().map(Got::number).collect()
}

/// How the broker ends between two steps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Kill(u64),
    Stop,
}

const FAULTS: [Fault; 5] = [Fault::None, Fault::Kill(0), Fault::Kill(1), Fault::Kill(2), Fault::Stop];

fn after(rig: Rig, fault: Fault) -> Rig {
    match fault {
        Fault::None => rig,
        Fault::Kill(seed) => rig.crash(seed),
        Fault::Stop => rig.restart(),
    }
}

/// m0 to m3 are there, X has m0 and m1 and adds n0 and n1 (100 and 101), and is prepared; then the fault.
fn prepared(fault: Fault) -> Rig {
    let mut rig = Rig::new(10);
    rig.send_all(4);
    let consumer = rig.subscribe(Q, 1);
    for got in rig.receive(Q, consumer, 2) {
        assert!(rig.remove(txn(1), &got));
    }
    rig.stage_number(txn(1), 100);
    rig.stage_number(txn(1), 101);
    rig.prepare(txn(1));
    rig.unsubscribe(Q, consumer, true);
    rig.flush();
    let rig = after(rig, fault);
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.depth, stats.removing, stats.ready), (4, 2, 2), "{fault:?}");
    assert_eq!((stats.staged, stats.prepared_in, stats.prepared_out), (2, 2, 2), "{fault:?}");
    assert!(rig.queue(Q).in_doubt());
    rig
}

#[test]
fn what_is_prepared_is_invisible_until_it_is_decided_and_then_wholly_visible() {
    for fault in FAULTS {
        let mut rig = prepared(fault);
        let seen: Vec<u64> = rig.drain(Q, 2).iter().map(|(number, _)| *number).collect();
        assert_eq!(seen, [2, 3]);
        rig.unsubscribe(Q, ConsumerId(2), false);
        rig.flush();
        rig.decide(txn(1), true);
        rig.flush();
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.depth, stats.removing, stats.staged, stats.prepared_in, stats.prepared_out), (4, 0, 0, 0, 0));
        assert!(!rig.queue(Q).in_doubt());
        for again in FAULTS {
            assert_eq!(rig.drain(Q, 3).iter().map(|(n, _)| *n).collect::<Vec<_>>(), [2, 3, 100, 101]);
            rig.unsubscribe(Q, ConsumerId(3), false);
            rig.flush();
            rig = after(rig, again);
        }
    }
}

#[test]
fn fs_32_a_rollback_restores_order_before_what_was_sent_later() {
    for fault in FAULTS {
        let mut rig = prepared(fault);
        for number in 4..24 {
            rig.send(Q, number, 4, true);
        }
        rig.flush();
        rig.decide(txn(1), false);
        for again in FAULTS {
            let all = rig.drain(Q, 3);
            assert_eq!(all.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..24).collect::<Vec<_>>());
            if again == Fault::None {
                assert_eq!(
                    (all[0].1, all[1].1),
                    (1, 1),
                    "raised by the delivery that was acknowledged, and by nothing else"
                );
            }
            rig.unsubscribe(Q, ConsumerId(3), false);
            rig.flush();
            rig = after(rig, again);
        }
    }
}

#[test]
fn fs_33_two_branches_interleaved_end_each_as_they_were_decided() {
    for fault in FAULTS {
        let mut rig = Rig::new(10);
        rig.send_all(4);
        let consumer = rig.subscribe(Q, 1);
        for (index, got) in rig.receive(Q, consumer, 4).iter().enumerate() {
            assert!(rig.remove(txn(1 + index as u64 % 2), got));
        }
        rig.prepare(txn(1));
        rig.prepare(txn(2));
        rig = after(rig, fault);
        assert_eq!(rig.queue(Q).prepared().collect::<Vec<_>>(), [txn(1), txn(2)]);
        rig.decide(txn(2), true);
        rig.decide(txn(1), false);
        assert_eq!(rig.drain(Q, 3), [(0, 1), (2, 1)]);
    }
}

#[test]
fn fs_34_an_acknowledgement_of_what_another_branch_removes_is_stale_and_changes_nothing() {
    let mut rig = Rig::new(10);
    rig.send_all(2);
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 2);
    assert!(rig.remove(txn(1), &got[0]));
    assert!(!rig.remove(txn(1), &got[0]), "by the same");
    assert!(!rig.remove(txn(2), &got[0]), "by another");
    assert!(!rig.settle(&got[0], Outcome::Acknowledge) && !rig.settle(&got[0], seen()), "outside of transactions");
    assert!(!rig.handle(Q, Input::Unreadable { key: got[0].key }).settled());
    rig.prepare(txn(1));
    assert!(!rig.remove(txn(2), &got[0]), "when it is prepared");
    assert_eq!(rig.queue(Q).stats().prepared_out, 1);
    // A stale one counts as one that has come, so the part of the other is handed over.
    let gathered = rig.gathered(txn(2), Purpose::Prepare);
    assert_eq!((gathered.part.ops.len(), gathered.persistent, gathered.volatile), (0, false, 0));
    rig.roll_back(txn(2));
    assert_eq!(rig.queue(Q).stats().removing, 1);
    rig.decide(txn(1), true);
    assert!(rig.settle(&got[1], Outcome::Acknowledge));
    rig.flush();
    assert_eq!(rig.crash(1).queue(Q).stats().depth, 0);
}

#[test]
fn a_local_commit_is_all_or_nothing_after_a_crash() {
    for seed in 0..8 {
        let mut rig = Rig::new(10);
        rig.send_all(2);
        let consumer = rig.subscribe(Q, 1);
        for got in rig.receive(Q, consumer, 2) {
            assert!(rig.remove(txn(1), &got));
        }
        rig.stage_number(txn(1), 100);
        rig.stage(txn(1), b"101", 9, true);
        rig.write_commit(txn(1));
        let mut rig = rig.crash(seed);
        let left: Vec<u64> = rig.drain(Q, 1).iter().map(|(number, _)| *number).collect();
        assert!(left == [101, 100] || left == [0, 1], "{left:?}");
        assert!(!rig.queue(Q).in_doubt());
    }
}

#[test]
fn what_was_neither_prepared_nor_committed_is_as_if_it_had_never_been() {
    let mut rig = Rig::new(10);
    rig.send_all(2);
    let consumer = rig.subscribe(Q, 1);
    for got in rig.receive(Q, consumer, 2) {
        assert!(rig.remove(txn(1), &got));
    }
    rig.stage_number(txn(1), 100);
    rig.flush();
    let mut crashed = rig.crash(3);
    assert_eq!(crashed.drain(Q, 1).iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_rollback_without_a_record_of_its_own_raises_the_numbers_durably() {
    let mut rig = Rig::new(10);
    rig.send_all(2);
    let consumer = rig.subscribe(Q, 1);
    for got in rig.receive(Q, consumer, 2) {
        assert!(rig.remove(txn(1), &got));
    }
    rig.stage_number(txn(1), 100);
    rig.roll_back(txn(1));
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.ready, stats.staged, stats.depth), (2, 0, 2));
    rig.flush();
    let mut rig = rig.restart();
    // The mark of their range raises them once more.
    assert_eq!(rig.drain(Q, 1), [(0, 2), (1, 2)]);
}

#[test]
fn a_rollback_too_many_goes_to_the_dead_letter_queue() {
    for is_prepared in [false, true] {
        let mut rig = Rig::new(2);
        rig.send_all(1);
        let consumer = rig.subscribe(Q, 1);
        for round in 1..=2 {
            let got = rig.receive(Q, consumer, 1);
            assert_eq!(got[0].deliveries, round as u32 - 1);
            assert!(rig.remove(txn(round), &got[0]));
            if is_prepared {
                rig.prepare(txn(round));
                rig.decide(txn(round), false);
            } else {
                rig.roll_back(txn(round));
            }
            rig.flush();
        }
        let letter = rig.relocations[0].overlay.dead_letter.clone().unwrap();
        assert_eq!((letter.reason, letter.deliveries), (packhorse_model::Reason::DeliveryLimit, 2));
        assert_eq!((rig.queue(Q).stats().depth, rig.queue(rig::DLQ).stats().ready), (0, 1));
        let rig = rig.crash(0);
        assert_eq!((rig.queue(Q).stats().depth, rig.queue(rig::DLQ).stats().ready), (0, 1));
    }
}

#[test]
fn operators_see_what_a_transaction_does_here() {
    for fault in [Fault::None, Fault::Kill(0)] {
        let rig = prepared(fault);
        let queue = rig.queue(Q);
        assert_eq!(queue.transactions().collect::<Vec<_>>(), [txn(1)]);
        let told = |item: &PartItem| match item {
            PartItem::Add { head, length } => (None, head.flags.has(HeadFlags::PERSISTENT), *length),
            PartItem::Remove { sequence, head, length } => {
                (Some(*sequence), head.flags.has(HeadFlags::PERSISTENT), *length)
            }
        };
        let all: Vec<_> = queue.part(txn(1), 0, 100).iter().map(told).collect();
        assert_eq!(all, [(None, true, 3), (None, true, 3), (Some(0), true, 1), (Some(1), true, 1)]);
        for from in 0..6 {
            for max in 0..6 {
                let page: Vec<_> = queue.part(txn(1), from, max).iter().map(told).collect();
                assert_eq!(page, all.iter().skip(from).take(max).copied().collect::<Vec<_>>());
            }
        }
        assert_eq!(queue.part(txn(2), 0, 10), []);
    }
}

#[test]
fn operations_are_dropped_when_a_rollback_was_ahead_of_them() {
    let mut rig = Rig::new(10);
    rig.send_all(3);
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 3);
    let id = txn(1);
    let rollback = |operations| Input::Apply { txn: id, operations, resolution: Resolution::Rollback, buffers: &[] };
    assert!(rig.remove(id, &got[0]));
    rig.handle(Q, rollback(4));
    assert!(!rig.remove(id, &got[1]), "it comes too late");
    rig.stage_number(id, 100);
    let file = rig.stage_large(id, 1 << 21, true);
    assert_eq!(rig.discarded, [file], "nobody wants its file");
    assert_eq!(rig.queue(Q).stats().staged, 0);
    assert_eq!(rig.queue(Q).transactions().count(), 0);
    // One that the rollback did not name, and the rollback of that one.
    rig.handle(Q, rollback(1));
    rig.handle(Q, Input::StageRefused { txn: id });
    rig.flush();
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.ready, stats.acquired, stats.removing, stats.staged), (1, 2, 0, 0));
    // All that was named has come: the next one is a part again, until it is rolled back too.
    assert!(rig.remove(id, &got[2]));
    rig.handle(Q, rollback(1));
    rig.flush();
    assert_eq!(rig.queue(Q).stats().removing, 0);
    assert_eq!(rig.queue(Q).transactions().count(), 0);
}

#[test]
fn more_operations_than_the_first_rollback_names_are_those_of_the_next() {
    let mut rig = Rig::new(10);
    let id = txn(1);
    let rollback = |operations| Input::Apply { txn: id, operations, resolution: Resolution::Rollback, buffers: &[] };
    for number in 0..5 {
        rig.stage_number(id, number);
    }
    rig.handle(Q, rollback(3));
    rig.handle(Q, rollback(3));
    rig.stage_number(id, 5);
    rig.flush();
    assert_eq!((rig.queue(Q).stats().staged, rig.queue(Q).transactions().count()), (0, 0));
    rig.stage_number(id, 6);
    assert_eq!(rig.queue(Q).stats().staged, 1, "nothing is owed any more");
}

#[test]
fn what_the_home_refused_is_dropped_before_and_after_it_is_said_and_a_closed_part_stays() {
    for comes_first in [true, false] {
        let mut rig = Rig::new(10);
        rig.send_all(2);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 2);
        let id = txn(1);
        rig.stage_number(id, 100);
        assert!(rig.remove(id, &got[0]));
        rig.prepare(id);
        let refused = Input::DropRefused { txn: id, operations: 3 };
        let come = |rig: &mut Rig| {
            assert!(!rig.remove(id, &got[1]), "it stays with its consumer");
            let file = rig.stage_large(id, 1 << 21, true);
            assert_eq!(rig.discarded, [file], "nobody wants its file");
            rig.handle(Q, Input::StageRefused { txn: id });
        };
        if comes_first {
            come(&mut rig);
        }
        assert!(!rig.handle(Q, refused).settled(), "nothing is rolled back");
        if !comes_first {
            come(&mut rig);
        }
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.acquired, stats.removing, stats.staged), (1, 1, 1));
        rig.decide(id, true);
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.ready, stats.acquired, stats.removing, stats.staged), (1, 1, 0, 0));
        // All has come that was named: nothing is owed.
        rig.stage_number(id, 101);
        assert_eq!(rig.queue(Q).stats().staged, 1);
    }
}

#[test]
fn what_the_home_refused_is_a_part_of_its_own_where_there_is_none() {
    let mut rig = Rig::new(10);
    rig.send_all(1);
    let consumer = rig.subscribe(Q, 1);
    let got = rig.receive(Q, consumer, 1);
    let id = txn(1);
    // Some of it is there when the refusal comes, some comes later.
    assert!(rig.remove(id, &got[0]));
    rig.stage_number(id, 100);
    assert!(rig.handle(Q, Input::DropRefused { txn: id, operations: 3 }).settled(), "it is rolled back");
    rig.flush();
    rig.stage_number(id, 101);
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.ready + stats.acquired, stats.removing, stats.staged), (1, 0, 0));
    assert_eq!(rig.queue(Q).transactions().count(), 0);
    // Nothing of it is there yet.
    assert!(!rig.handle(Q, Input::DropRefused { txn: id, operations: 1 }).settled());
    rig.stage_number(id, 102);
    assert_eq!((rig.queue(Q).stats().staged, rig.queue(Q).transactions().count()), (0, 0));
}

#[test]
fn a_consumer_that_goes_leaves_to_the_transaction_what_it_acknowledged() {
    for lost in [false, true] {
        let mut rig = Rig::new(10);
        rig.send_all(3);
        let consumer = rig.subscribe(Q, 1);
        let got = rig.receive(Q, consumer, 3);
        assert!(rig.remove(txn(1), &got[0]));
        rig.unsubscribe(Q, consumer, lost);
        rig.flush();
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.ready, stats.removing, stats.acquired), (2, 1, 0));
        assert!(!rig.remove(txn(1), &got[1]), "it is back already");
        rig.roll_back(txn(1));
        let flagged = u32::from(lost);
        assert_eq!(rig.drain(Q, 2), [(0, 1), (1, flagged), (2, flagged)]);
    }
}
