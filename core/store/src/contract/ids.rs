//! Duplicate ids of messages: which are known, and for how long ([`crate::Remember`]).

use super::remembered::now_ms;
use super::transactions::{Do, add, from, numbered, part, told, txn, unnamed, xid};
use super::{A, B, Build, Found, Make, StoreUnderTest, recover, with_queues};
use crate::Op;
use alloc::vec::Vec;
use packhorse_model::{DuplicateId, QueueId};

/// An id that sorts as its number.
pub(super) fn duplicate(n: u64) -> DuplicateId {
    let mut id = [3; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    DuplicateId(id)
}

impl Build {
    fn id(self, queue: QueueId, n: u64, at_ms: u64) -> Build {
        self.op(Op::DuplicateId { queue, id: duplicate(n), at_ms })
    }
}

fn ids(found: &Found) -> Vec<(QueueId, DuplicateId, u64)> {
    found.ids.iter().map(|((queue, id), at_ms)| (*queue, *id, *at_ms)).collect()
}

/// An id and its message are one: after a crash both are there or neither is. Ids go with their queue.
pub fn ids_come_with_their_messages<S: StoreUnderTest>(make: Make<'_, S>) {
    for seed in 0..8 {
        let mut store = with_queues(make, 2);
        let t = now_ms(&mut store);
        for n in 0..8 {
            Build::default().enqueue(A, n, b"identified").id(A, n, t + n).submit(&mut store, A.owner(2).0);
            if n == seed {
                store.settle();
            }
        }
        Build::default().id(B, 3, t).id(QueueId(99), 1, t).submit(&mut store, B.owner(2).0);
        let mut store = store.crash(2, seed);
        let found = recover(&mut store, 2);
        let there = found.sequences(A).len() as u64;
        assert!(there > seed);
        let known: Vec<_> = ids(&found).into_iter().filter(|(queue, ..)| *queue == A).collect();
        assert_eq!(known, (0..there).map(|n| (A, duplicate(n), t + n)).collect::<Vec<_>>());
        let mut store = store.restart(1);
        assert_eq!(recover(&mut store, 1).ids, found.ids);
        Build::default().op(Op::QueueDelete { id: A }).submit(&mut store, 0);
        store.settle();
        assert!(recover(&mut store.crash(1, seed), 1).ids.keys().all(|(queue, _)| *queue == B));
    }
}

/// Beyond the count those of the oldest messages are forgotten, whatever their queue, and each after its time.
pub fn the_last_ids_are_known<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, max) = (now_ms(&mut store), u64::from(store.remember().ids_max));
    let queue = |n: u64| if n.is_multiple_of(2) { A } else { B };
    let mut at = 0;
    while at < max + 2 {
        let upper = (at + 500).min(max + 2);
        (at..upper).fold(Build::default(), |build, n| build.id(queue(n), n, t + n)).submit(&mut store, 0);
        store.settle();
        at = upper;
    }
    let mut expected: Vec<_> = (2..max + 2).map(|n| (queue(n), duplicate(n), t + n)).collect();
    expected.sort_unstable();
    let mut store = store.restart(1);
    assert!(ids(&recover(&mut store, 1)) == expected);
    // One whose time comes by the record of another is gone.
    let keep = store.remember().ids_ms;
    Build::default().id(A, max + 5, t + keep + max).submit(&mut store, 0);
    store.settle();
    expected.retain(|(.., at_ms)| *at_ms > t + max);
    expected.push((A, duplicate(max + 5), t + keep + max));
    expected.sort_unstable();
    assert!(ids(&recover(&mut store.crash(1, 1), 1)) == expected);
}

/// In a transaction they count when it is committed, and are kept with what is in doubt.
pub fn ids_in_transactions_count_with_them<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let t = now_ms(&mut store);
    let message = |n: u64| [add(0, b"identified"), Do::Id(duplicate(n))];
    let build = Build::default().commit(txn(1), &[(A, numbered(&message(1), 10, 1))], unnamed(t + 1));
    let build = build.prepare(txn(2), xid(2), &[(A, part(&message(2)))], t);
    build.prepare(txn(3), xid(3), &[(B, part(&message(3)))], t).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    assert_eq!(ids(&found), [(A, duplicate(1), t + 1)]);
    assert_eq!(found.parts[&(txn(2), A)], told(&message(2)));
    let build = Build::default().decide(xid(2), true, &[(A, from(20, 1))], t + 2);
    build.decide(xid(3), false, &[], t + 2).submit(&mut store, 0);
    store.settle();
    for start in 0..2 {
        store = store.crash(1, start);
        assert_eq!(ids(&recover(&mut store, 1)), [(A, duplicate(1), t + 1), (A, duplicate(2), t + 2)]);
    }
}
