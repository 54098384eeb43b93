//! What goes ahead of a transaction's record: it is dropped in the store when the transaction is rolled back, and only then.

use super::*;

const BIG: usize = 600_000;

fn rollback(number: u64, operations: u64) -> Input<'static> {
    Input::Apply { txn: txn(number), operations, resolution: Resolution::Rollback, buffers: &[] }
}

/// A transaction stages so much that some of it goes ahead.
fn much(rig: &mut Rig, number: u64) {
    for n in 0..3 {
        rig.stage(txn(number), &vec![n; BIG], 4, true);
    }
}

#[test]
fn what_went_ahead_is_dropped_when_the_rest_is_rolled_back() {
    let mut rig = Rig::new(10);
    let consumer = rig.subscribe(Q, 1);
    much(&mut rig, 1);
    much(&mut rig, 2);
    much(&mut rig, 3);
    rig.stage_number(txn(4), 7);
    assert_eq!(rig.side(txn(1)).ahead, [2]);
    rig.flush();
    rig.handle(Q, rollback(1, 3));
    // Nothing of it went ahead.
    rig.handle(Q, rollback(4, 1));
    assert_eq!(rig.dropped(), [txn(1)]);
    rig.flush();
    // The records of these name what went ahead.
    rig.commit(txn(2));
    assert_eq!(rig.drops, 1);
    rig.prepare(txn(3));
    rig.decide(txn(3), false);
    rig.flush();
    assert_eq!(rig.drops, 1, "what is decided is dropped by nobody");
    assert!(rig.receive(Q, consumer, 10).iter().map(|got| got.body.clone()).eq((0..3).map(|n| vec![n; BIG])));
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.staged, stats.ready, stats.acquired), (0, 0, 3));
}

#[test]
fn what_was_asked_for_is_dropped_if_it_is_rolled_back_all_the_same() {
    let mut rig = Rig::new(10);
    for (number, purpose) in [(1, Purpose::Commit), (2, Purpose::Prepare)] {
        much(&mut rig, number);
        rig.gathered(txn(number), purpose);
        rig.handle(Q, rollback(number, 3));
        assert_eq!(rig.dropped(), [txn(number)], "another queue had no part to give");
        rig.flush();
    }
    assert_eq!(rig.queue(Q).stats().staged, 0);
}

#[test]
fn what_went_ahead_is_dropped_by_each_rollback_whatever_is_missing() {
    let mut rig = Rig::new(10);
    much(&mut rig, 1);
    // Two are missing.
    rig.handle(Q, rollback(1, 5));
    assert_eq!(rig.dropped(), [txn(1)]);
    rig.flush();
    for _ in 0..2 {
        rig.stage(txn(1), &vec![9; 2 * BIG], 4, true);
    }
    assert_eq!(
        (rig.side(txn(1)).ahead.len(), rig.queue(Q).transactions().count()),
        (1, 0),
        "they are dropped as they come"
    );
    assert_eq!(rig.dropped(), []);
    // What the rollback did not name is a part again, from its first record on, until it is rolled back too.
    for round in 1..=3 {
        much(&mut rig, 1);
        assert_eq!(rig.side(txn(1)).ahead.len(), 1 + round);
        rig.handle(Q, rollback(1, 3));
        // In one turn, or in several.
        assert_eq!(rig.dropped().len(), 1 + round / 3);
        if round != 2 {
            rig.flush();
        }
    }
    rig.flush();
    rig.forget_side(txn(1));
    much(&mut rig, 1);
    rig.commit(txn(1));
    assert_eq!(rig.queue(Q).stats().ready, 3);
    let rig = rig.crash(0);
    assert_eq!(rig.queue(Q).stats().ready, 3);
}

#[test]
fn files_that_went_ahead_go_with_the_drop_and_others_are_given_back() {
    let mut rig = Rig::new(10);
    let ahead = rig.stage_large(txn(1), 1 << 21, true);
    let volatile = rig.stage_large(txn(1), 1 << 21, false);
    rig.stage(txn(1), &vec![1; 2 * BIG], 4, true);
    let behind = rig.stage_large(txn(1), 1 << 21, true);
    assert_eq!(rig.side(txn(1)).ahead, [2]);
    rig.flush();
    assert_eq!(rig.large_files(), 3);
    rig.handle(Q, rollback(1, 4));
    rig.turns();
    assert_eq!(rig.discarded, [volatile, behind], "{ahead:?} is the store's");
    assert_eq!(rig.large_files(), 1);
    rig.flush();
    assert_eq!(rig.large_files(), 0);
    // As when the queue goes with a part in it.
    rig.stage_large(txn(2), 1 << 21, true);
    rig.stage(txn(2), &vec![1; 2 * BIG], 4, true);
    let behind = rig.stage_large(txn(2), 1 << 21, true);
    rig.flush();
    rig.discarded.clear();
    // What is committed and not carried out: its record has those that are persistent.
    rig.stage_large(txn(3), 1 << 21, true);
    let passing = rig.stage_large(txn(3), 1 << 21, false);
    rig.write_commit(txn(3));
    rig.flush();
    rig.apply(txn(3), Resolution::Commit);
    rig.delete_queue();
    assert_eq!(rig.discarded, [behind, passing]);
    rig.flush();
    assert_eq!(rig.large_files(), 0);
}
