//! The memory of completed branches, so that a verb retried after a lost reply is answered as it was.
//!
//! What a record completed is remembered by the store as well (`durable`), under the same bounds, and comes back after a start.
//! What was rolled back without a record, because it was never prepared, is remembered by this run only: a start presumes it
//! anyway. When a branch begins under a remembered name, the store must be told to forget, or a start might answer for the new
//! branch what was true of the old one. So what the store may still hold must be known here: a durable outcome is kept twice as
//! long as it is told, for the store's time may fall behind by a crash.

use crate::{Cause, Decision};
use alloc::collections::{BTreeMap, VecDeque};
use packhorse_model::Xid;

/// How a branch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack(Cause),
}

impl From<Decision> for Completed {
    /// How a branch ended that was decided so: what was prepared is rolled back for no other cause than that it is asked for.
    fn from(decision: Decision) -> Completed {
        match decision {
            Decision::Commit => Completed::Committed,
            Decision::Rollback => Completed::RolledBack(Cause::Asked),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    outcome: Completed,
    at_ms: u64,
    durable: bool,
    /// Tells this entry from an earlier one of the same xid in `Kind::order`.
    stamp: u64,
}

/// Durable entries, or the others.
#[derive(Debug, Default)]
struct Kind {
    /// Oldest first; those whose stamps are outdated are gone.
    order: VecDeque<(u64, u64, Xid)>,
    count: usize,
}

#[derive(Debug)]
pub(crate) struct Memory {
    entries: BTreeMap<Xid, Entry>,
    durable: Kind,
    passing: Kind,
    stamp: u64,
    keep_ms: u64,
    /// Most entries of each kind.
    count_max: usize,
}

impl Memory {
    pub(crate) fn new(keep_ms: u64, count_max: u32) -> Memory {
        let (entries, durable, passing) = (BTreeMap::new(), Kind::default(), Kind::default());
        Memory { entries, durable, passing, stamp: 0, keep_ms, count_max: count_max as usize }
    }

    fn kind(&mut self, durable: bool) -> &mut Kind {
        if durable { &mut self.durable } else { &mut self.passing }
    }

    /// The branch has ended at this broker time. Times come in order, those of recovery first.
    pub(crate) fn put(&mut self, xid: Xid, outcome: Completed, at_ms: u64, durable: bool) {
        self.remove(&xid);
        self.stamp += 1;
        let (stamp, count_max) = (self.stamp, self.count_max);
        let kind = self.kind(durable);
        kind.order.push_back((at_ms, stamp, xid.clone()));
        kind.count += 1;
        self.entries.insert(xid, Entry { outcome, at_ms, durable, stamp });
        while self.kind(durable).count > count_max {
            self.drop_oldest(durable);
        }
        if self.kind(durable).order.len() > 2 * count_max + 16 {
            let mut order = core::mem::take(&mut self.kind(durable).order);
            order.retain(|(_, stamp, xid)| self.entries.get(xid).is_some_and(|entry| entry.stamp == *stamp));
            self.kind(durable).order = order;
        }
    }

    /// Drops what is too old at this broker time.
    pub(crate) fn expire(&mut self, broker_ms: u64) {
        for (durable, keep_ms) in [(true, self.keep_ms.saturating_mul(2)), (false, self.keep_ms)] {
            while self.kind(durable).order.front().is_some_and(|(at, ..)| at.saturating_add(keep_ms) <= broker_ms) {
                self.drop_oldest(durable);
            }
        }
    }

    fn drop_oldest(&mut self, durable: bool) {
        let Some((_, stamp, xid)) = self.kind(durable).order.pop_front() else { return };
        if self.entries.get(&xid).is_some_and(|entry| entry.stamp == stamp) {
            self.remove(&xid);
        }
    }

    /// The outcome.
    pub(crate) fn get(&self, xid: &Xid, broker_ms: u64) -> Option<Completed> {
        let entry = self.entries.get(xid)?;
        (entry.at_ms.saturating_add(self.keep_ms) > broker_ms).then_some(entry.outcome)
    }

    /// Whether the store may still hold an outcome.
    pub(crate) fn is_durable(&self, xid: &Xid) -> bool {
        self.entries.get(xid).is_some_and(|entry| entry.durable)
    }

    pub(crate) fn remove(&mut self, xid: &Xid) {
        if let Some(entry) = self.entries.remove(xid) {
            self.kind(entry.durable).count -= 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
