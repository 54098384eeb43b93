//! How much transactions may take, and how they say that it is too much.

use core::fmt;
use packhorse_model::{BrokerId, ShardId, TxnId};

/// A limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Open transactions per connection, local ones and branches.
    OpenPerConnection,
    /// Bytes staged in one transaction.
    StagedBytes,
    /// Branches in all, prepared ones too.
    Branches,
    /// Questions that wait for one branch.
    Waiting,
}

impl Limit {
    /// What whoever has reached it can do.
    fn advice(self) -> &'static str {
        match self {
            Limit::OpenPerConnection => "end one of them first",
            Limit::StagedBytes => "commit the work in smaller transactions",
            Limit::Branches => "end some first; those in doubt are decided by their transaction manager or an operator",
            Limit::Waiting => "wait for the answers first",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::OpenPerConnection => "open transactions per connection",
            Limit::StagedBytes => "bytes staged in a transaction",
            Limit::Branches => "branches in all",
            Limit::Waiting => "questions that wait for a branch",
        })
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which.
    pub limit: Limit,
    /// Its value.
    pub value: u64,
    /// What it would have become.
    pub wanted: u64,
    /// The transaction concerned, when there is one already.
    pub txn: Option<TxnId>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(txn) = self.txn {
            write!(f, "transaction {txn}: ")?;
        }
        write!(f, "{}: {} is more than the limit of {}; ", self.limit, self.wanted, self.value)?;
        f.write_str(self.limit.advice())
    }
}

/// Settings of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The shard.
    pub shard: ShardId,
    /// The number of this start of the store.
    pub run: u64,
    /// The broker.
    pub broker: BrokerId,
    /// Open transactions per connection.
    pub open_per_connection_max: u32,
    /// Bytes staged per transaction.
    pub staged_bytes_max: u64,
    /// Branches in all.
    pub branches_max: u32,
    /// Questions that wait for one branch.
    pub waiting_max: u32,
    /// Timeout of a branch that asks for none, ms; 0: none.
    pub branch_timeout_ms: u64,
    /// The longest timeout of a branch, ms; 0: as asked.
    pub branch_timeout_max_ms: u64,
    /// Timeout of a local transaction, ms; 0: none.
    pub local_timeout_ms: u64,
    /// How long the outcome of a completed branch is remembered, ms of broker time.
    pub memory_ms: u64,
    /// How many outcomes are remembered.
    pub memory_max: u32,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new(shard: ShardId, run: u64, broker: BrokerId) -> Config {
        Config {
            shard,
            run,
            broker,
            open_per_connection_max: 1_000,
            staged_bytes_max: 2 << 30,
            branches_max: 100_000,
            waiting_max: 1_000,
            branch_timeout_ms: 300_000,
            branch_timeout_max_ms: 0,
            local_timeout_ms: 0,
            memory_ms: 600_000,
            memory_max: 100_000,
        }
    }
}
