//! What is remembered of clients' commits: the numbers that each session has committed, bounded by time and count.

use crate::watched::Watched;
use packhorse_model::ClientSession;
use packhorse_store::Remember;
use std::collections::{BTreeMap, BTreeSet};

/// One client's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Numbers below are forgotten.
    pub(crate) floor: u64,
    /// Committed: first to last of each run.
    pub(crate) runs: BTreeMap<u64, u64>,
    /// Broker time of its last commit, ms.
    pub(crate) used_ms: u64,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) sessions: Watched<ClientSession, Session>,
    /// By last use.
    idle: BTreeSet<(u64, ClientSession)>,
}

impl Sessions {
    /// A session has committed this number now.
    pub(crate) fn commit(&mut self, id: ClientSession, counter: u64, at_ms: u64, remember: &Remember) {
        if self.sessions.get(&id).is_none() {
            // One that is not known may have been forgotten: nothing is said of its numbers below.
            self.sessions.insert(id, Session { floor: counter, ..Session::default() });
        }
        let session = self.sessions.get_mut(&id).expect("it was just looked for");
        self.idle.remove(&(session.used_ms, id));
        session.used_ms = session.used_ms.max(at_ms);
        session.commit(counter, remember.gaps_max);
        self.idle.insert((session.used_ms, id));
        while self.sessions.len() > remember.sessions_max as usize && self.drop_oldest(|_| true) {}
    }

    /// A session that a checkpoint tells.
    pub(crate) fn restore(&mut self, id: ClientSession, session: Session) {
        self.idle.insert((session.used_ms, id));
        self.sessions.insert(id, session);
    }

    /// Drops those that were not used for too long at this broker time, ms.
    pub(crate) fn expire(&mut self, at_ms: u64, remember: &Remember) {
        while self.drop_oldest(|used| used.saturating_add(remember.sessions_ms) <= at_ms) {}
    }

    fn drop_oldest(&mut self, when: impl Fn(u64) -> bool) -> bool {
        let Some(oldest) = self.idle.first().copied().filter(|(used, _)| when(*used)) else { return false };
        self.idle.remove(&oldest);
        self.sessions.remove(&oldest.1);
        true
    }
}

impl Session {
    /// Numbers below are of no interest any more.
    pub(super) fn raise(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        let mut left = self.runs.split_off(&floor);
        if let Some((_, last)) = self.runs.pop_last().filter(|(_, last)| *last >= floor) {
            left.insert(floor, last);
        }
        self.runs = left;
    }

    pub(super) fn commit(&mut self, counter: u64, gaps_max: u32) {
        if self.runs.range(..=counter).next_back().is_some_and(|(_, last)| counter <= *last) {
            return;
        }
        let first = match self.runs.range(..counter).next_back() {
            Some((first, last)) if last + 1 == counter => *first,
            _ => counter,
        };
        let last = counter.checked_add(1).and_then(|next| self.runs.remove(&next)).unwrap_or(counter);
        self.runs.insert(first, last);
        while self.runs.len() > gaps_max as usize + 1 {
            let Some((_, last)) = self.runs.pop_first() else { break };
            self.floor = self.floor.max(last.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ClientSession {
        ClientSession([n; 16])
    }

    #[test]
    fn numbers_are_runs_and_the_lowest_gaps_are_forgotten() {
        let remember = Remember { gaps_max: 2, ..Remember::default() };
        let mut sessions = Sessions::default();
        for counter in [7, 9, 8, 3, 20, 9] {
            sessions.commit(id(1), counter, 5, &remember);
        }
        let session = sessions.sessions.get(&id(1)).unwrap();
        assert_eq!(session.floor, 7, "the first that was ever seen, and 3 is told all the same");
        assert_eq!(session.runs, BTreeMap::from([(3, 3), (7, 9), (20, 20)]));
        sessions.commit(id(1), 30, 6, &remember);
        let session = sessions.sessions.get(&id(1)).unwrap();
        assert_eq!((session.floor, session.used_ms), (7, 6));
        assert_eq!(session.runs, BTreeMap::from([(7, 9), (20, 20), (30, 30)]));
        sessions.commit(id(1), u64::MAX, 1, &remember);
        let session = sessions.sessions.get(&id(1)).unwrap();
        assert_eq!((session.floor, session.used_ms), (10, 6));
        assert_eq!(session.runs.len(), 3);
    }

    #[test]
    fn the_sessions_that_were_used_longest_ago_are_forgotten() {
        let remember = Remember { sessions_max: 2, sessions_ms: 100, ..Remember::default() };
        let mut sessions = Sessions::default();
        let known = |sessions: &Sessions| sessions.sessions.iter().map(|(id, _)| id.0[0]).collect::<Vec<_>>();
        for (n, at) in [(1, 10), (2, 20), (1, 30), (3, 40)] {
            sessions.commit(id(n), 1, at, &remember);
        }
        assert_eq!(known(&sessions), [1, 3]);
        sessions.expire(129, &remember);
        assert_eq!(known(&sessions), [1, 3]);
        sessions.expire(130, &remember);
        assert_eq!(known(&sessions), [3]);
        assert_eq!(sessions.idle.len(), 1);
    }
}
