//! The memory of completed branches, bounded by time and count.

use crate::watched::Watched;
use packhorse_model::Xid;
use packhorse_store::Remember;
use std::collections::BTreeMap;

/// How a branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) committed: bool,
    /// Broker time, ms.
    pub(crate) at_ms: u64,
    /// Ascending in the order in which they were decided.
    pub(crate) order: u64,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    pub(crate) outcomes: Watched<Xid, Outcome>,
    /// By time.
    oldest: BTreeMap<(u64, u64), Xid>,
    next: u64,
}

impl Completed {
    /// A branch is completed now.
    pub(crate) fn put(&mut self, xid: Xid, committed: bool, at_ms: u64, remember: &Remember) {
        let order = self.next;
        self.restore(xid, Outcome { committed, at_ms, order });
        while self.outcomes.len() > remember.branches_max as usize && self.drop_oldest(|_| true) {}
    }

    /// One that was completed before.
    pub(crate) fn restore(&mut self, xid: Xid, outcome: Outcome) {
        self.remove(&xid);
        self.next = self.next.max(outcome.order.saturating_add(1));
        self.oldest.insert((outcome.at_ms, outcome.order), xid.clone());
        self.outcomes.insert(xid, outcome);
    }

    pub(crate) fn remove(&mut self, xid: &Xid) {
        if let Some(Outcome { at_ms, order, .. }) = self.outcomes.remove(xid) {
            self.oldest.remove(&(at_ms, order));
        }
    }

    /// Drops what is too old at this broker time, ms.
    pub(crate) fn expire(&mut self, at_ms: u64, remember: &Remember) {
        while self.drop_oldest(|before| before.saturating_add(remember.branches_ms) <= at_ms) {}
    }

    fn drop_oldest(&mut self, when: impl Fn(u64) -> bool) -> bool {
        let Some(oldest) = self.oldest.first_entry().filter(|oldest| when(oldest.key().0)) else { return false };
        self.outcomes.remove(&oldest.remove());
        true
    }

    /// All, by time.
    pub(crate) fn by_time(&self) -> impl Iterator<Item = (&Xid, &Outcome)> {
        self.oldest.values().filter_map(|xid| Some((xid, self.outcomes.get(xid)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(n: u8) -> Xid {
        Xid::new(1, &[n], &[]).unwrap()
    }

    fn names(completed: &Completed) -> Vec<u8> {
        completed.by_time().map(|(xid, _)| xid.global()[0]).collect()
    }

    #[test]
    fn the_oldest_are_forgotten_by_count_and_by_time() {
        let remember = Remember { branches_max: 3, branches_ms: 100, ..Remember::default() };
        let mut completed = Completed::default();
        for (n, at) in [(1, 10), (2, 10), (3, 20), (4, 15)] {
            completed.put(xid(n), n % 2 == 0, at, &remember);
        }
        assert_eq!(names(&completed), [2, 4, 3], "by time, and by order where that is the same");
        // A name that comes again is as new as its last time.
        completed.put(xid(2), false, 30, &remember);
        assert_eq!(names(&completed), [4, 3, 2]);
        assert!(!completed.outcomes.get(&xid(2)).unwrap().committed);
        completed.expire(114, &remember);
        assert_eq!(names(&completed), [4, 3, 2]);
        completed.expire(115, &remember);
        assert_eq!(names(&completed), [3, 2]);
        completed.remove(&xid(3));
        completed.remove(&xid(9));
        assert_eq!(names(&completed), [2]);
        assert_eq!(completed.outcomes.len(), 1);
    }
}
