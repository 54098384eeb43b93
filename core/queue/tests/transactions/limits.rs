//! Limits, purges and deletion beside transactions.

use super::*;
use packhorse_model::{OnFull, QueueLimits, QueueSettings};
use packhorse_queue::Limit;

fn limited(rig: &mut Rig, limits: QueueLimits) {
    rig.handle(Q, Input::Settings(QueueSettings { delivery_limit: 10, limits, ..QueueSettings::default() }));
}

#[test]
fn staged_messages_count_against_the_limits_until_they_are_undone() {
    let mut rig = Rig::new(10);
    let limits = QueueLimits { max_messages: Some(3), max_bytes: Some(100), on_full: OnFull::Reject };
    limited(&mut rig, limits);
    rig.send_all(1);
    rig.stage(txn(1), &[1; 40], 4, true);
    assert_eq!((rig.queue(Q).full(), rig.queue(Q).refuses(80)), (None, Some(Limit::Bytes)));
    rig.stage(txn(1), &[1; 40], 4, false);
    assert_eq!((rig.queue(Q).full(), rig.queue(Q).refuses(1)), (Some(Limit::Messages), Some(Limit::Messages)));
    limited(&mut rig, QueueLimits { on_full: OnFull::Block, ..limits });
    assert_eq!(rig.queue(Q).share(1, 1), None);
    rig.roll_back(txn(1));
    assert_eq!((rig.queue(Q).full(), rig.queue(Q).share(1, 1)), (None, Some(2)));
    rig.stage(txn(2), &[1; 40], 4, true);
    rig.prepare(txn(2));
    rig = rig.crash(0);
    assert_eq!(rig.queue(Q).share(1, 1), Some(1), "what is prepared keeps its room over a crash");
    rig.decide(txn(2), true);
    assert_eq!(rig.queue(Q).share(1, 1), Some(1), "and needs no more when it is there");
}

#[test]
fn a_purge_leaves_alone_what_transactions_have() {
    for fault in [Fault::None, Fault::Kill(0)] {
        let mut rig = prepared(fault);
        rig.handle(Q, Input::Purge { token: 1 });
        rig.flush();
        let stats = rig.queue(Q).stats();
        assert_eq!((stats.ready, stats.purged_total), (0, 2));
        assert_eq!((stats.removing, stats.staged, stats.prepared_in, stats.prepared_out), (2, 2, 2, 2));
        rig.decide(txn(1), false);
        assert_eq!(rig.drain(Q, 5), [(0, 1), (1, 1)]);
    }
}

#[test]
fn a_deletion_is_refused_while_something_is_in_doubt() {
    let mut rig = Rig::new(10);
    rig.stage_number(txn(1), 1);
    assert!(!rig.queue(Q).in_doubt(), "what is not prepared is undone by the deletion");
    rig.prepare(txn(1));
    rig.stage_number(txn(2), 1);
    assert!(rig.queue(Q).in_doubt());
    assert_eq!(rig.queue(Q).prepared().collect::<Vec<_>>(), [txn(1)]);
    assert_eq!(rig.queue(Q).transactions().collect::<Vec<_>>(), [txn(1), txn(2)]);
    rig.decide(txn(1), false);
    assert!(!rig.queue(Q).in_doubt());
}
