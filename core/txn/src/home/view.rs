//! What operators see.

use super::{Home, Txn};
use crate::state::State;
use crate::{Audit, Cause, LostPart, Part};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};
use packhorse_model::{ConnectionId, QueueId, TxnId, Xid};

/// A page of `recover`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In their order.
    pub xids: Vec<Xid>,
    /// There are more after them.
    pub more: bool,
}

/// A transaction as operators see it. What it adds and removes, message by message, its queues know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its id.
    pub txn: TxnId,
    /// Of a branch. Notations: its `Display`, [`Xid::base64`], [`Xid::sql`].
    pub xid: Option<Xid>,
    /// A local transaction that is open is `Associated`.
    pub state: State,
    /// Since it was prepared, or else since it began, ms of broker time.
    pub age_ms: u64,
    /// Wall clock then, ms.
    pub wall_ms: i64,
    /// The client that began it.
    pub client: Arc<str>,
    /// Connections that work or worked in it; none once it is prepared.
    pub connections: Vec<ConnectionId>,
    /// Why it cannot be committed.
    pub cause: Option<Cause>,
    /// By queue.
    pub parts: Vec<(QueueId, Part)>,
    /// Parts that were rolled back by force.
    pub lost: Vec<LostPart>,
    /// Messages in it that a crash takes, or has taken; known once it is prepared.
    pub volatile: u64,
    /// An operator's last decision on it.
    pub decided: Option<Audit>,
}

/// Figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Local transactions, open or committing.
    pub local: u64,
    /// Branches in all.
    pub branches: u64,
    /// Branches in doubt.
    pub in_doubt: u64,
    /// Age of the oldest of these, ms.
    pub in_doubt_age_ms: u64,
    /// Branches decided by operators and not forgotten.
    pub heuristic: u64,
    /// Operators' decisions since the start.
    pub heuristic_decisions: u64,
    /// Outcomes remembered.
    pub remembered: u64,
}

impl<P> Home<P> {
    /// At most `max` branches after this one, in the order of xids; a list is complete when it is shorter.
    #[must_use]
    pub fn branches(&self, after: Option<&Xid>, max: usize, broker_ms: u64) -> Vec<View> {
        let names = self.names.range((after.map_or(Unbounded, Excluded), Unbounded));
        names.filter_map(|(_, id)| self.view(*id, broker_ms)).take(max).collect()
    }

    /// At most `max` local transactions after this one, likewise.
    #[must_use]
    pub fn locals(&self, after: Option<TxnId>, max: usize, broker_ms: u64) -> Vec<View> {
        let txns = self.txns.range((after.map_or(Unbounded, Excluded), Unbounded));
        txns.filter(|(_, txn)| txn.xid.is_none()).map(|(id, txn)| txn.view(*id, broker_ms)).take(max).collect()
    }

    /// A branch.
    #[must_use]
    pub fn branch(&self, xid: &Xid, broker_ms: u64) -> Option<View> {
        self.view(*self.names.get(xid)?, broker_ms)
    }

    /// A transaction.
    #[must_use]
    pub fn view(&self, id: TxnId, broker_ms: u64) -> Option<View> {
        Some(self.txns.get(&id)?.view(id, broker_ms))
    }

    /// Figures at this broker time.
    #[must_use]
    pub fn stats(&self, broker_ms: u64) -> Stats {
        let mut stats = Stats {
            heuristic_decisions: self.heuristics,
            remembered: self.memory.len() as u64,
            branches: self.names.len() as u64,
            local: (self.txns.len() - self.names.len()) as u64,
            ..Stats::default()
        };
        for txn in self.names.values().filter_map(|id| self.txns.get(id)) {
            if matches!(txn.state, State::Prepared | State::Deciding) {
                stats.in_doubt += 1;
                stats.in_doubt_age_ms = stats.in_doubt_age_ms.max(broker_ms.saturating_sub(txn.at_ms));
            }
            stats.heuristic += u64::from(txn.state.heuristic().is_some());
        }
        stats
    }
}

impl<P> Txn<P> {
    fn view(&self, txn: TxnId, broker_ms: u64) -> View {
        View {
            txn,
            xid: self.xid.clone(),
            state: self.state,
            age_ms: broker_ms.saturating_sub(self.at_ms),
            wall_ms: self.wall_ms,
            client: self.client.clone(),
            connections: self.connections.clone(),
            cause: self.cause,
            parts: self.parts.iter().map(|(queue, part)| (*queue, *part)).collect(),
            lost: self.lost.clone(),
            volatile: self.volatile,
            decided: self.decided.as_deref().cloned(),
        }
    }
}
