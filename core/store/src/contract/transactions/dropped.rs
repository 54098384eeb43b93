//! What went ahead of a transaction and will never be: dropped when it is rolled back, or given up with its queue or by its record.

use super::{
    Do, Part, add, ahead, churn, enqueued, figures, large, numbered, numbers, part, readable, remove, told, txn,
    with_bodies, xid,
};
use crate::Op;
use crate::contract::{A, B, Build, Make, StoreUnderTest, bodies, recover, with_queues};
use alloc::vec;
use packhorse_model::{LargeId, QueueId, TxnId};

impl Build {
    pub(in crate::contract) fn drop_ahead(self, txn: TxnId, queue: QueueId) -> Build {
        self.op(Op::TxDrop { txn, queue })
    }
}

/// What went ahead in a queue is dropped, alone: entries that it was to remove are like others, the transaction's part in another queue
/// and other transactions stay as they were. If the transaction works there again, it begins anew.
pub fn what_went_ahead_is_dropped_in_one_queue<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    enqueued(&mut store, 2, A, &[0, 1, 2, 3]);
    enqueued(&mut store, 2, B, &[0, 1]);
    let (a, b) = (A.owner(2).0, B.owner(2).0);
    let first = [add(0, &[1; 3_000]), remove(0), remove(1)];
    let other = [add(0, b"other"), remove(2)];
    let there = [add(0, b"there"), remove(0)];
    Build::default().ahead(txn(1), A, 0, &first).ahead(txn(2), A, 0, &other).submit(&mut store, a);
    Build::default().ahead(txn(1), B, 0, &there).submit(&mut store, b);
    Build::default().ahead(txn(1), A, 1, &[add(1, b"more")]).submit(&mut store, a);
    store.settle();
    churn(&mut store, 2, 100);
    // Of a transaction that has nothing there, and again, it is no error.
    let build = Build::default().drop_ahead(txn(1), A).acknowledge(A, 1).drop_ahead(txn(3), A);
    build.drop_ahead(txn(1), A).submit(&mut store, a);
    store.settle();
    assert_eq!(bodies(&mut store, 2, A, 4), with_bodies(&[0, 2, 3]));
    let again = [add(0, b"again"), remove(3)];
    Build::default().ahead(txn(1), A, 0, &again).submit(&mut store, a);
    store.settle();
    churn(&mut store, 2, 200);
    let again = Part { ahead: ahead(&again), ..numbered(&[], 20, 1) };
    let there = Part { ahead: ahead(&there), ..numbered(&[], 300, 1) };
    Build::default().commit_all(1, &[(A, again), (B, there)]).submit(&mut store, b);
    let all = Part { ahead: ahead(&other), figures: figures(&other), ..part(&[]) };
    Build::default().prepare_all(2, &[(A, all)]).submit(&mut store, b);
    store.settle();
    for crash in 0..3 {
        assert_eq!(bodies(&mut store, 2, A, 4), [with_bodies(&[0]), vec![(20, b"again".to_vec())]].concat());
        assert_eq!(bodies(&mut store, 2, B, 4), [with_bodies(&[1]), vec![(300, b"there".to_vec())]].concat());
        store = store.crash(2, crash);
        let found = recover(&mut store, 2);
        assert_eq!(
            (numbers(&found, A), found.sequences(B)),
            (vec![0, 2, 20].into_iter().map(at_first).collect(), vec![1, 300])
        );
        assert_eq!((found.parts.len(), &found.parts[&(txn(2), A)]), (1, &told(&other)));
    }
}

/// An entry of which nothing is known but that it came.
fn at_first(sequence: u64) -> (u64, u32, u32, bool) {
    (sequence, 0, 0, false)
}

/// Wherever a crash comes before, between or after what went ahead, its drop and what came then, one state is left: nothing was
/// seen of what was dropped, and what was committed is whole. After a start a drop finds nothing, which is no error.
pub fn a_crash_around_a_drop_leaves_one_state<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut met = [false; 2];
    for seed in 0..24u64 {
        let mut store = with_queues(make, 1);
        enqueued(&mut store, 1, A, &[0, 1]);
        let (first, again) = ([add(0, &[3; 2_000]), remove(1)], [add(0, &[4; 2_000]), remove(0)]);
        Build::default().ahead(txn(1), A, 0, &first).submit(&mut store, 0);
        if seed % 3 == 0 {
            store.settle();
        }
        Build::default().drop_ahead(txn(1), A).submit(&mut store, 0);
        if seed % 3 == 1 {
            store.settle();
        }
        Build::default().ahead(txn(1), A, 0, &again).submit(&mut store, 0);
        let all = Part { ahead: ahead(&again), ..numbered(&[], 10, 1) };
        Build::default().commit_all(1, &[(A, all)]).submit(&mut store, 0);
        let mut store = if seed % 8 == 7 { store.restart(1) } else { store.crash(1, seed) };
        let found = recover(&mut store, 1);
        let committed = match found.sequences(A)[..] {
            [0, 1] => false,
            [1, 10] => true,
            ref other => panic!("neither (seed {seed}): {other:?}"),
        };
        assert!(found.parts.is_empty() && found.branches.is_empty());
        met[usize::from(committed)] = true;
        Build::default().drop_ahead(txn(1), A).submit(&mut store, 0);
        store.settle();
        let expected =
            if committed { [with_bodies(&[1]), vec![(10, vec![4; 2_000])]].concat() } else { with_bodies(&[0, 1]) };
        assert_eq!(bodies(&mut store, 1, A, 4), expected);
        let mut store = store.crash(1, seed + 1);
        assert_eq!(recover(&mut store, 1).entries, found.entries, "the next start finds the same (seed {seed})");
    }
    assert!(met[1], "what comes after a drop is committed");
}

/// Files of adds that went ahead and will never be go at once: those of a part that is dropped, of one in a queue that is deleted, or
/// was, and of one that the record which decides does not name. All others stay.
pub fn files_of_what_never_will_be_go_at_once<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    for id in 1..=8 {
        large(&mut store, id);
    }
    let file = |id: u64| [Do::Large(0, LargeId(id), 100_000)];
    let build = Build::default().ahead(txn(1), A, 0, &file(1)).ahead(txn(1), B, 0, &file(2));
    build
        .ahead(txn(2), A, 0, &file(3))
        .ahead(txn(3), A, 0, &file(4))
        .ahead(txn(4), A, 0, &file(5))
        .submit(&mut store, 0);
    store.settle();
    let there = |store: &mut S| [1, 2, 3, 4, 5, 6, 7, 8].map(|id| readable(store, id));
    assert_eq!(there(&mut store), [true; 8]);
    Build::default().drop_ahead(txn(1), A).submit(&mut store, 0);
    store.settle();
    assert_eq!(there(&mut store), [false, true, true, true, true, true, true, true], "dropped");
    let named = Part { ahead: ahead(&file(2)), ..numbered(&[], 5, 1) };
    let build = Build::default().commit_all(1, &[(B, named)]).commit_all(2, &[]).prepare_all(3, &[]);
    build.submit(&mut store, 0);
    store.settle();
    assert_eq!(there(&mut store), [false, true, false, false, true, true, true, true], "given up");
    let build = Build::default().op(Op::QueueDelete { id: A }).ahead(txn(5), A, 0, &file(6)).drop_ahead(txn(5), A);
    build.commit_all(6, &[(A, numbered(&file(7), 9, 1))]).submit(&mut store, 0);
    store.settle();
    assert_eq!(
        there(&mut store),
        [false, true, false, false, false, false, false, true],
        "in a queue that is not there"
    );
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    assert_eq!((found.entries.len(), found.sequences(B)), (1, vec![5]));
    // What nobody names is gone at a start, in whatever way it came.
    assert_eq!(there(&mut store), [false, true, false, false, false, false, false, false]);
    assert!(found.branches[&xid(3)].parts.is_empty());
}
