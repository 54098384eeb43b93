//! What a store remembers of what is completed, under the bounds of [`Remember`]: outcomes of branches, and clients' sessions.
//!
//! Must not know: branches in doubt, queues.

use crate::{Recovered, RecoveredSession, Remember};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use packhorse_model::{ClientSession, Token, Xid};

#[derive(Clone, Copy, Debug)]
struct Outcome {
    committed: bool,
    /// Broker time, and the how-manieth outcome it was.
    order: (u64, u64),
}

#[derive(Clone, Debug)]
struct Session {
    floor: u64,
    /// Committed numbers: first to last of each run.
    runs: BTreeMap<u64, u64>,
    used_ms: u64,
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Remembered {
    bounds: Remember,
    outcomes: BTreeMap<Xid, Outcome>,
    by_order: BTreeMap<(u64, u64), Xid>,
    completed: u64,
    sessions: BTreeMap<ClientSession, Session>,
    by_use: BTreeSet<(u64, ClientSession)>,
}

impl Remembered {
    pub(super) fn new(bounds: Remember) -> Remembered {
        Remembered { bounds, ..Remembered::default() }
    }

    /// A branch is completed at this broker time.
    pub(super) fn complete(&mut self, xid: &Xid, committed: bool, at_ms: u64) {
        self.forget(xid);
        self.completed += 1;
        let order = (at_ms, self.completed);
        self.outcomes.insert(xid.clone(), Outcome { committed, order });
        self.by_order.insert(order, xid.clone());
        while self.outcomes.len() > self.bounds.branches_max as usize {
            let Some((_, oldest)) = self.by_order.pop_first() else { break };
            self.outcomes.remove(&oldest);
        }
        self.expire(at_ms);
    }

    pub(super) fn forget(&mut self, xid: &Xid) {
        if let Some(outcome) = self.outcomes.remove(xid) {
            self.by_order.remove(&outcome.order);
        }
    }

    /// A commit with this name is durable.
    pub(super) fn committed(&mut self, token: &Token, at_ms: u64) {
        let Token { session, counter, .. } = *token;
        // A session that is too old by now is forgotten before it comes again: of its lower numbers nothing is known.
        self.expire(at_ms);
        let new = Session { floor: counter, runs: BTreeMap::new(), used_ms: at_ms };
        let s = self.sessions.entry(session).or_insert(new);
        self.by_use.remove(&(s.used_ms, session));
        s.used_ms = s.used_ms.max(at_ms);
        self.by_use.insert((s.used_ms, session));
        s.commit(counter);
        while s.runs.len() as u64 > u64::from(self.bounds.gaps_max) + 1 {
            let Some((_, last)) = s.runs.pop_first() else { break };
            s.floor = s.floor.max(last.saturating_add(1));
        }
        while self.sessions.len() > self.bounds.sessions_max as usize {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.sessions.remove(&oldest);
        }
    }

    /// It is this time: what is too old is forgotten.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let Remember { branches_ms, sessions_ms, .. } = self.bounds;
        while let Some((&(at_ms, _), _)) = self.by_order.first_key_value()
            && at_ms.saturating_add(branches_ms) <= now_ms
        {
            if let Some((_, oldest)) = self.by_order.pop_first() {
                self.outcomes.remove(&oldest);
            }
        }
        while let Some(&(used_ms, session)) = self.by_use.first()
            && used_ms.saturating_add(sessions_ms) <= now_ms
        {
            self.by_use.pop_first();
            self.sessions.remove(&session);
        }
    }

    /// Outcomes in the order of their times.
    pub(super) fn recover_completed(&self) -> impl Iterator<Item = Recovered> {
        self.by_order.iter().filter_map(|(&(at_ms, _), xid)| {
            let committed = self.outcomes.get(xid)?.committed;
            Some(Recovered::Completed { xid: xid.clone(), committed, at_ms })
        })
    }

    pub(super) fn recover_sessions(&self) -> impl Iterator<Item = Recovered> {
        self.sessions.iter().map(|(&session, s)| {
            let runs = s.runs.iter().map(|(first, last)| (*first, *last)).collect();
            Recovered::Session(Box::new(RecoveredSession { session, floor: s.floor, runs, used_ms: s.used_ms }))
        })
    }
}

impl Session {
    fn commit(&mut self, counter: u64) {
        let before = self.runs.range(..=counter).next_back().map(|(first, last)| (*first, *last));
        let first = match before {
            Some((_, last)) if last >= counter => return,
            Some((first, last)) if last + 1 == counter => first,
            _ => counter,
        };
        let after = counter.checked_add(1).and_then(|next| self.runs.remove(&next));
        self.runs.insert(first, after.unwrap_or(counter));
    }
}
