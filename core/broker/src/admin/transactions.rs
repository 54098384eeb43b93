//! Transactions as operators see them. The words are XA's.

use packhorse_model::{QueueId, Sequence};
use packhorse_txn::{Audit, Part, Stats, View};

/// Who wants something done, and why: for the record, and for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What an operator does with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxAct {
    /// Commit it.
    Commit,
    /// Roll it back.
    Rollback,
    /// Forget that it was decided.
    Forget,
}

/// A page of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxPage {
    /// In their order.
    pub transactions: Vec<TxReport>,
    /// Where the next page begins, after this one; `None`: there is none. Of branches only.
    pub next: Option<packhorse_model::Xid>,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxReport {
    /// As its home sees it.
    pub view: View,
    /// Its parts, by queue.
    pub parts: Vec<TxPart>,
    /// Parts that were rolled back by force.
    pub lost: Vec<TxLost>,
}

impl TxReport {
    /// An operator's last decision on it.
    pub fn decided(&self) -> Option<&Audit> {
        self.view.decided.as_ref()
    }
}

/// What a transaction has in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxPart {
    /// The queue.
    pub queue: QueueId,
    /// Its name; `None`: it is gone.
    pub name: Option<String>,
    /// In figures.
    pub part: Part,
}

/// A part that was rolled back by force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxLost {
    /// The queue.
    pub queue: QueueId,
    /// Its name; `None`: it is gone.
    pub name: Option<String>,
    /// Who and why.
    pub by: By,
    /// Wall clock, ms.
    pub wall_ms: i64,
}

/// A page of what a transaction has in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxContents {
    /// What it adds, in order, then what it removes.
    pub messages: Vec<TxMessage>,
    /// There is more after the last of these.
    pub more: bool,
}

/// A message that a transaction adds or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxMessage {
    /// Of one that it removes: its number in the queue. What is added has none yet.
    pub removes: Option<Sequence>,
    /// Its length, bytes.
    pub length: u64,
    /// Its priority, 0 to 9.
    pub priority: u8,
    /// It survives a crash.
    pub persistent: bool,
}

/// Transactions in figures; sums over shards are the node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxFigures(pub Stats);

impl TxFigures {
    /// Adds another shard's.
    pub fn add(&mut self, other: &TxFigures) {
        let (sum, other) = (&mut self.0, &other.0);
        sum.local += other.local;
        sum.branches += other.branches;
        sum.in_doubt += other.in_doubt;
        sum.in_doubt_age_ms = sum.in_doubt_age_ms.max(other.in_doubt_age_ms);
        sum.heuristic += other.heuristic;
        sum.heuristic_decisions += other.heuristic_decisions;
        sum.remembered += other.remembered;
    }
}
