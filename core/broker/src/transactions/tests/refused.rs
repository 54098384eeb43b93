//! Work that a home elsewhere refuses, when a queue has it already or will: it is no rollback of the part.

use super::*;

/// The branch, prepared, and what it has in its queues; then work of the same branch comes from another connection.
fn prepared(rig: &mut Rig, late: Option<(usize, usize)>) {
    let (a, b, c) = (rig.declare("a"), rig.declare("b"), rig.declare("c"));
    rig.send(a, "old");
    let consumer = rig.consumer(a);
    let old = rig.got(consumer).remove(0);
    rig.leave(consumer);
    let (control, other) = (rig.control(0), rig.control(1));
    let consumer = rig.consumer(a);
    let txn = rig.start(control, &xid("x"));
    rig.add(control, txn, a, "one");
    rig.add(control, txn, b, "two");
    let key = rig.got(consumer).remove(0).key;
    assert_eq!(key.sequence, old.key.sequence);
    rig.remove(control, txn, a, key);
    rig.prepare(control, &xid("x"));
    let pinned = rig.pinned();

    // With a part of it, and without one.
    rig.slow(late);
    for queue in [a, b, c] {
        rig.add(other, txn, queue, "late");
        rig.add_as(other, txn, queue, "late", false).unwrap();
        rig.add_large(other, txn, queue, true);
    }
    rig.remove(other, txn, a, key);
    rig.run();
    rig.slow(None);
    rig.run();
    assert!(rig.refused.iter().all(|refused| *refused == (other, txn, NoWork::Unknown)));
    assert!(rig.refused.len() >= 3, "of each queue: {:?}", rig.refused);
    assert_eq!(rig.pinned(), pinned, "nothing of what was refused stays");
    for (name, wanted) in [("a", (1, 0, 1, 1)), ("b", (0, 0, 1, 0)), ("c", (0, 0, 0, 0))] {
        assert_eq!(counts(rig, name), wanted, "{name}: what is prepared stays");
    }

    assert_eq!(rig.code(control, &xid("x"), Verb::Commit), Code::Ok);
    rig.leave(consumer);
    assert_eq!((rig.texts(a), rig.texts(b)), (vec!["one".to_string()], vec!["two".to_string()]));
    assert!(rig.texts(c).is_empty());
    assert_eq!(rig.pinned(), 0);
}

#[test]
fn refused_work_leaves_a_prepared_branch_as_it_is() {
    prepared(&mut Rig::new(2), None);
    // Home, connection and queue in three shards: the work overtakes its refusal, or the refusal the work.
    for late in [None, Some((0, 1)), Some((0, 2)), Some((1, 0)), Some((1, 2))] {
        prepared(&mut Rig::new(3), late);
    }
}
