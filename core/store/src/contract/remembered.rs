//! What is remembered of what is completed, and for how long ([`crate::Remember`]).

use super::transactions::{unnamed, xid};
use super::{A, Build, Found, Make, StoreUnderTest, recover, with_queues};
use crate::{Commit, Op, RecoveredSession};
use alloc::vec;
use alloc::vec::Vec;
use packhorse_model::{BrokerId, ClientSession, ShardId, Token, TxnId, Xid};

fn txn() -> TxnId {
    TxnId { run: 1, number: 1, home: ShardId(0) }
}

/// A name that sorts as its number.
pub(super) fn session(n: u64) -> ClientSession {
    let mut name = [7; 16];
    name[..8].copy_from_slice(&n.to_be_bytes());
    ClientSession(name)
}

impl Build {
    /// A branch is committed in one phase. It had nothing.
    fn complete(self, number: u64, at_ms: u64) -> Build {
        self.commit(txn(), &[], Commit { xid: Some(xid(number)), ..unnamed(at_ms) })
    }

    /// A commit of a session.
    fn token(self, of: u64, counter: u64, at_ms: u64) -> Build {
        let token = Some(Token { broker: BrokerId([1; 16]), session: session(of), counter });
        self.commit(txn(), &[], Commit { token, ..unnamed(at_ms) })
    }
}

/// The broker time of this start, ms.
pub(super) fn now_ms<S: StoreUnderTest>(store: &mut S) -> u64 {
    store.handle(ShardId(0)).started_at_ms()
}

/// Lets so much time pass and something happen; then a crash. False: time does not pass.
pub(super) fn later<S: StoreUnderTest>(mut store: S, ms: u64) -> (S, bool) {
    let before = now_ms(&mut store);
    let passed = store.pass(ms);
    Build::default().op(Op::Reserve { queue: A, up_to: 1 }).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    assert!(!passed || now_ms(&mut store) >= before + ms, "broker time goes on");
    (store, passed)
}

fn completed(found: &Found) -> Vec<(Xid, u64)> {
    found.completed.iter().map(|(xid, _, at_ms)| (xid.clone(), *at_ms)).collect()
}

/// Outcomes of branches come back in the order of their times, until they are forgotten. A name has the last one that it had.
pub fn outcomes_are_remembered<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    let t = now_ms(&mut store);
    let build = Build::default().complete(3, t).complete(1, t).prepare(txn(), xid(2), &[], t + 1).complete(5, t + 1);
    build.decide(xid(2), false, &[], t + 2).complete(4, t + 2).submit(&mut store, 0);
    Build::default().op(Op::Forget { xid: xid(1) }).op(Op::Forget { xid: xid(9) }).submit(&mut store, 0);
    store.settle();
    let expected = [(xid(3), true, t), (xid(5), true, t + 1), (xid(2), false, t + 2), (xid(4), true, t + 2)];
    for start in 0..3 {
        store = if start == 1 { store.restart(2) } else { store.crash(2, start) };
        let found = recover(&mut store, 2);
        assert_eq!((&found.completed[..], found.branches.len()), (&expected[..], 0));
    }
    // The name of one is used again.
    let forget = Op::Forget { xid: xid(3) };
    Build::default()
        .op(forget)
        .prepare(txn(), xid(3), &[], t + 3)
        .decide(xid(3), false, &[], t + 4)
        .submit(&mut store, 0);
    let mut store = store.restart(2);
    let found = recover(&mut store, 2);
    assert_eq!(found.completed, [&expected[1..], &[(xid(3), false, t + 4)]].concat());
}

/// Beyond the count the oldest outcomes are forgotten, of those with the same time the first.
pub fn the_oldest_outcomes_are_forgotten_first<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, max) = (now_ms(&mut store), u64::from(store.remember().branches_max));
    let at = |n: u64| t + n / 3;
    // In an order that is not that of their names.
    let name = |n: u64| if n.is_multiple_of(2) { n } else { 1_000_000 - n };
    let expected = |last: u64| (last - max..last).map(|n| (xid(name(n)), at(n))).collect::<Vec<_>>();
    let mut next = 0;
    for last in [max + 5, max + 6, 2 * max + 7] {
        while next < last {
            let upper = (next + 500).min(last);
            (next..upper).fold(Build::default(), |build, n| build.complete(name(n), at(n))).submit(&mut store, 0);
            store.settle();
            next = upper;
        }
        store = store.crash(1, 1);
        let found = completed(&recover(&mut store, 1));
        assert!(found == expected(last), "{} of {max}: from {:?}", found.len(), found.first());
    }
}

/// An outcome that has its age when another is remembered, or at a start, is forgotten.
pub fn outcomes_are_forgotten_in_time<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, keep) = (now_ms(&mut store), store.remember().branches_ms);
    Build::default().complete(1, t).complete(2, t + 1).complete(3, t + 2).submit(&mut store, 0);
    Build::default().complete(4, t + keep).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let mut all = vec![(xid(2), t + 1), (xid(3), t + 2), (xid(4), t + keep)];
    assert_eq!(completed(&recover(&mut store, 1)), all);
    Build::default().token(1, 1, t + keep + 1).submit(&mut store, 0);
    store.settle();
    all.remove(0);
    let mut store = store.crash(1, 1);
    for ms in [0, keep - 1_000, 2_000, keep] {
        let passed;
        (store, passed) = later(store, ms);
        let now = now_ms(&mut store);
        all.retain(|(_, at_ms)| at_ms + keep > now);
        assert_eq!(completed(&recover(&mut store, 1)), all);
        assert_eq!(passed && ms == keep, all.is_empty());
    }
}

fn sessions(found: &Found) -> Vec<RecoveredSession> {
    found.sessions.values().cloned().collect()
}

fn remembered(of: u64, floor: u64, runs: &[(u64, u64)], used_ms: u64) -> RecoveredSession {
    RecoveredSession { session: session(of), floor, runs: runs.to_vec(), used_ms }
}

/// Numbers of a session's commits come back as runs, whatever their order. The first number that is known of a session is its floor.
/// What it committed and its name are one.
pub fn commits_of_sessions_are_remembered<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 2);
    let t = now_ms(&mut store);
    let named = [5, 6, 8, 7, 12, 11, 6].iter().enumerate();
    let build = named.fold(Build::default(), |build, (n, counter)| build.token(1, *counter, t + n as u64));
    build.submit(&mut store, 0);
    // A branch has no session and a commit need not have one.
    Build::default()
        .token(2, u64::MAX, t + 9)
        .complete(1, t + 9)
        .commit(txn(), &[], unnamed(t + 9))
        .submit(&mut store, 1);
    store.settle();
    for start in 0..3 {
        store = if start == 1 { store.restart(2) } else { store.crash(2, start) };
        let found = sessions(&recover(&mut store, 2));
        let expected =
            [remembered(1, 5, &[(5, 8), (11, 12)], t + 6), remembered(2, u64::MAX, &[(u64::MAX, u64::MAX)], t + 9)];
        assert_eq!(found, expected);
    }
    // It goes on where it was: one that was on its way joins two runs, one is below the floor; and time does not go back.
    let build = Build::default().token(1, 10, t + 8).token(1, 9, t + 7).token(1, 4, t + 3).token(2, 0, t + 3);
    build.submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(2, 1);
    let found = sessions(&recover(&mut store, 2));
    let both = [(0, 0), (u64::MAX, u64::MAX)];
    assert_eq!(found, [remembered(1, 5, &[(4, 12)], t + 8), remembered(2, u64::MAX, &both, t + 9)]);
}

/// Beyond so many gaps a session's lowest numbers are forgotten, and its floor says so.
pub fn a_session_has_so_many_gaps<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, gaps) = (now_ms(&mut store), u64::from(store.remember().gaps_max));
    let runs = |from: u64, to: u64| (from..to).map(|n| (10 * n, 10 * n + 1)).collect::<Vec<_>>();
    let named = |from: u64, to: u64| {
        (from..to).fold(Build::default(), |build, n| build.token(1, 10 * n, t).token(1, 10 * n + 1, t))
    };
    named(1, gaps + 2).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    assert_eq!(sessions(&recover(&mut store, 1)), [remembered(1, 10, &runs(1, gaps + 2), t)]);
    named(gaps + 2, gaps + 4).submit(&mut store, 0);
    // It is forgotten, and stays so.
    Build::default().token(1, 10, t).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    assert_eq!(sessions(&recover(&mut store, 1)), [remembered(1, 22, &runs(3, gaps + 4), t)]);
}

/// Beyond the count the sessions that were not used for longest are forgotten. One that comes again after that has its number as its
/// floor: what it committed before is not denied.
pub fn the_sessions_used_last_are_remembered<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, max) = (now_ms(&mut store), u64::from(store.remember().sessions_max));
    let name = |n: u64| if n.is_multiple_of(2) { n } else { 1_000_000 - n };
    let mut from = 0;
    while from < max {
        let upper = (from + 500).min(max);
        (from..upper).fold(Build::default(), |build, n| build.token(name(n), 1, t + n)).submit(&mut store, 0);
        store.settle();
        from = upper;
    }
    // The first is used again, so the second and third make room for two that are new.
    let build = Build::default().token(name(0), 2, t + max).token(name(max), 1, t + max + 1);
    build.token(name(max + 1), 1, t + max + 2).submit(&mut store, 0);
    let mut store = store.restart(1);
    let mut expected: Vec<_> =
        (3..max + 2).map(|n| remembered(name(n), 1, &[(1, 1)], t + n + u64::from(n >= max))).collect();
    expected.push(remembered(name(0), 1, &[(1, 2)], t + max));
    expected.sort_by_key(|s| s.session);
    assert!(sessions(&recover(&mut store, 1)) == expected);
    Build::default().token(name(1), 3, t + max + 3).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let found = recover(&mut store, 1);
    assert_eq!(found.sessions.len() as u64, max);
    assert_eq!(found.sessions[&session(name(1))], remembered(name(1), 3, &[(3, 3)], t + max + 3));
    assert!(!found.sessions.contains_key(&session(name(3))));
}

/// A session that was not used for its time is forgotten when another is used, when it is used itself, and at a start.
pub fn sessions_are_forgotten_in_time<S: StoreUnderTest>(make: Make<'_, S>) {
    let mut store = with_queues(make, 1);
    let (t, keep) = (now_ms(&mut store), store.remember().sessions_ms);
    Build::default().token(1, 1, t).token(2, 1, t).token(3, 1, t + 1).submit(&mut store, 0);
    Build::default().token(2, 2, t + keep).submit(&mut store, 0);
    Build::default().token(1, 2, t + keep).token(3, 2, t + keep).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 1);
    let mut all = vec![
        remembered(1, 2, &[(2, 2)], t + keep),
        remembered(2, 2, &[(2, 2)], t + keep),
        remembered(3, 1, &[(1, 2)], t + keep),
    ];
    for ms in [keep, keep - 1_000, 2_000] {
        let passed;
        (store, passed) = later(store, ms);
        let now = now_ms(&mut store);
        all.retain(|s| s.used_ms + keep > now);
        assert_eq!(sessions(&recover(&mut store, 1)), all);
        assert_eq!(passed && ms == 2_000, all.is_empty(), "after twice its time, and not before");
    }
    let t = t.max(now_ms(&mut store)) + keep - 1;
    Build::default().token(3, 3, t).submit(&mut store, 0);
    store.settle();
    let mut store = store.crash(1, 2);
    let expected = if all.is_empty() { remembered(3, 3, &[(3, 3)], t) } else { remembered(3, 1, &[(1, 3)], t) };
    assert_eq!(recover(&mut store, 1).sessions[&session(3)], expected);
}
