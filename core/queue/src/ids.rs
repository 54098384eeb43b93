//! Duplicate ids of messages that this queue has taken, the last of them: what comes with one of these again is not stored again
//! (`docs/formats/duplicate-ids.md`).
//!
//! Must not know: messages, where ids come from. What is not known any more is taken for new.

use alloc::collections::BTreeMap;
use packhorse_model::DuplicateId;
use packhorse_store::Ticket;

/// How many are known, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdBounds {
    /// So many; 0: none, and nothing is a duplicate.
    pub max: u32,
    /// After the message came, ms.
    pub keep_ms: u64,
}

impl Default for IdBounds {
    fn default() -> IdBounds {
        // A broker that was down for long is the one that is sent to again.
        IdBounds { max: 20_000, keep_ms: 86_400_000 }
    }
}

/// The broker time of an id's message, ms, and how many ids were taken before: of many that came within a millisecond the first is forgotten
/// first.
type Age = (u64, u64);

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) bounds: IdBounds,
    known: BTreeMap<DuplicateId, Age>,
    by_age: BTreeMap<Age, DuplicateId>,
    /// Ids that were taken so far.
    count: u64,
    /// The ticket of the last message that was taken.
    pub(crate) taken: Ticket,
}

impl Default for Ids {
    fn default() -> Ids {
        let (known, by_age) = (BTreeMap::new(), BTreeMap::new());
        Ids { bounds: IdBounds::default(), known, by_age, count: 0, taken: Ticket(0) }
    }
}

impl Ids {
    pub(crate) fn is_known(&mut self, id: DuplicateId, now_ms: u64) -> bool {
        self.expire(now_ms);
        self.known.contains_key(&id)
    }

    /// A message with this id was taken at this broker time, ms.
    pub(crate) fn take(&mut self, id: DuplicateId, at_ms: u64) {
        if self.bounds.max == 0 {
            return;
        }
        let age = (at_ms, self.count);
        self.count += 1;
        if let Some(before) = self.known.insert(id, age) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(age, id);
        self.bound();
    }

    /// How many are known at this time, ms.
    pub(crate) fn known(&mut self, now_ms: u64) -> usize {
        self.expire(now_ms);
        self.known.len()
    }

    /// The older half is not known any more.
    pub(crate) fn forget_half(&mut self) {
        let left = self.known.len() / 2;
        self.keep(left);
    }

    /// Others are known for longer, or shorter, from now on.
    pub(crate) fn set_bounds(&mut self, bounds: IdBounds) {
        self.bounds = bounds;
        self.bound();
    }

    fn bound(&mut self) {
        self.keep(self.bounds.max as usize);
    }

    fn keep(&mut self, most: usize) {
        while self.known.len() > most {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.known.remove(&oldest);
        }
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some(oldest) = self.by_age.first_entry()
            && oldest.key().0.saturating_add(self.bounds.keep_ms) <= now_ms
        {
            self.known.remove(&oldest.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_known_for_their_time() {
        let id = |n: u8| DuplicateId([n; 16]);
        let mut ids = Ids::default();
        ids.set_bounds(IdBounds { max: 0, keep_ms: 100 });
        ids.take(id(1), 0);
        assert!(!ids.is_known(id(1), 0), "without a bound nothing is");
        ids.set_bounds(IdBounds { max: 3, keep_ms: 100 });
        for n in 1..=4 {
            ids.take(id(n), u64::from(n));
        }
        assert_eq!([1, 2, 3, 4].map(|n| ids.is_known(id(n), 10)), [false, true, true, true]);
        assert_eq!([2, 3, 4].map(|n| ids.is_known(id(n), 103)), [false, false, true]);
        // The same again, as after a start: it counts from then on.
        ids.take(id(4), 50);
        assert!(ids.is_known(id(4), 149) && !ids.is_known(id(4), 150));
        assert_eq!((ids.known.len(), ids.by_age.len()), (0, 0));
        [5, 6].into_iter().for_each(|n| ids.take(id(n), 200));
        ids.set_bounds(IdBounds { max: 1, keep_ms: 100 });
        assert_eq!([5, 6].map(|n| ids.is_known(id(n), 200)), [false, true]);
        // At one time: those that came last are known, whatever they are.
        ids.set_bounds(IdBounds { max: 3, keep_ms: 100 });
        [4, 9, 1, 7, 3].into_iter().for_each(|n| ids.take(id(n), 300));
        assert_eq!([6, 4, 9, 1, 7, 3].map(|n| ids.is_known(id(n), 300)), [false, false, false, true, true, true]);
        assert_eq!((ids.known(300), ids.by_age.len()), (3, 3));
        ids.forget_half();
        assert_eq!([1, 7, 3].map(|n| ids.is_known(id(n), 300)), [false, false, true]);
        assert_eq!((ids.known(400), ids.by_age.len()), (0, 0));
    }
}
