//! Shapes of answers about transactions. An xid comes in all three notations, each of which is taken in return.

use super::IN_DOUBT;
use packhorse_broker::{Act, Audit, TxFigures, TxMessage, TxReport};
use serde::Serialize;

/// One transaction. A local one has no xid.
#[derive(Debug, Serialize)]
pub(crate) struct Transaction {
    id: String,
    kind: &'static str,
    xid: Option<String>,
    xid_base64: Option<String>,
    xid_sql: Option<String>,
    state: &'static str,
    in_doubt: bool,
    age_ms: u64,
    /// When it was prepared, or else when it began.
    since_unix_ms: i64,
    client: String,
    connections: Vec<String>,
    /// Why it can only be rolled back.
    cause: Option<String>,
    adds: u64,
    removes: u64,
    bytes: u64,
    /// Messages in it that a crash takes, or has taken.
    volatile: u64,
    queues: Vec<Part>,
    /// Parts that were rolled back by force.
    lost: Vec<Lost>,
    decision: Option<Decision>,
}

/// What it has in a queue.
#[derive(Debug, Serialize)]
struct Part {
    queue: Option<String>,
    queue_id: String,
    adds: u64,
    removes: u64,
    bytes: u64,
}

/// A part that was rolled back because its queue had to go.
#[derive(Debug, Serialize)]
struct Lost {
    queue: Option<String>,
    queue_id: String,
    who: String,
    reason: String,
    at_unix_ms: i64,
}

/// An operator's last decision.
#[derive(Debug, Serialize)]
struct Decision {
    act: &'static str,
    who: String,
    reason: String,
    at_unix_ms: i64,
}

impl From<&Audit> for Decision {
    fn from(audit: &Audit) -> Decision {
        Decision {
            act: match audit.act {
                Act::Commit => "commit",
                Act::Rollback => "rollback",
                Act::Forget => "forget",
                Act::Force(_) => "rollback-of-part",
            },
            who: audit.who.clone(),
            reason: audit.reason.clone(),
            at_unix_ms: audit.wall_ms,
        }
    }
}

impl From<TxReport> for Transaction {
    fn from(report: TxReport) -> Transaction {
        let view = &report.view;
        let xid = view.xid.as_ref();
        let sum = |figure: fn(&packhorse_broker::Part) -> u64| report.parts.iter().map(|p| figure(&p.part)).sum();
        Transaction {
            id: view.txn.to_string(),
            kind: if xid.is_some() { "branch" } else { "local" },
            xid: xid.map(|xid| xid.to_string()),
            xid_base64: xid.map(|xid| xid.base64()),
            xid_sql: xid.map(|xid| xid.sql()),
            state: view.state.word(),
            in_doubt: xid.is_some() && IN_DOUBT.contains(&view.state),
            age_ms: view.age_ms,
            since_unix_ms: view.wall_ms,
            client: view.client.to_string(),
            connections: view.connections.iter().map(|connection| connection.0.to_string()).collect(),
            cause: view.cause.map(|cause| cause.to_string()),
            adds: sum(|part| part.adds),
            removes: sum(|part| part.removes),
            bytes: sum(|part| part.bytes),
            volatile: view.volatile,
            queues: report
                .parts
                .iter()
                .map(|p| Part {
                    queue: p.name.clone(),
                    queue_id: p.queue.to_string(),
                    adds: p.part.adds,
                    removes: p.part.removes,
                    bytes: p.part.bytes,
                })
                .collect(),
            lost: report
                .lost
                .iter()
                .map(|lost| Lost {
                    queue: lost.name.clone(),
                    queue_id: lost.queue.to_string(),
                    who: lost.by.who.clone(),
                    reason: lost.by.reason.clone(),
                    at_unix_ms: lost.wall_ms,
                })
                .collect(),
            decision: report.decided().map(Decision::from),
        }
    }
}

/// A page of transactions.
#[derive(Debug, Serialize)]
pub(crate) struct TransactionPage {
    pub(crate) transactions: Vec<Transaction>,
    /// `after` of the next page; null = there is none, or these are local transactions.
    pub(crate) next: Option<String>,
    /// There are more.
    pub(crate) more: bool,
}

/// A transaction with a page of what it holds.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    pub(crate) transaction: Transaction,
    pub(crate) contents: Vec<Contents>,
    /// `after` of the next page; null = this is the last.
    pub(crate) next: Option<String>,
}

/// What it holds in a queue, as far as it is on this page.
#[derive(Debug, Serialize)]
pub(crate) struct Contents {
    pub(crate) queue: Option<String>,
    pub(crate) queue_id: String,
    pub(crate) messages: Vec<Message>,
}

/// A message that it adds or removes.
#[derive(Debug, Serialize)]
pub(crate) struct Message {
    does: &'static str,
    /// Of one that is removed; what is added gets its number when it is committed.
    sequence: Option<String>,
    bytes: u64,
    priority: u8,
    persistent: bool,
}

impl From<TxMessage> for Message {
    fn from(message: TxMessage) -> Message {
        Message {
            does: if message.removes.is_some() { "remove" } else { "add" },
            sequence: message.removes.map(|sequence| sequence.to_string()),
            bytes: message.length,
            priority: message.priority,
            persistent: message.persistent,
        }
    }
}

/// The answer to a decision.
#[derive(Debug, Serialize)]
pub(crate) struct Decided {
    pub(crate) xid: String,
    /// As it is now; null = it is forgotten.
    pub(crate) transaction: Option<Transaction>,
}

/// Transactions in figures.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    local: u64,
    branches: u64,
    in_doubt: u64,
    in_doubt_age_ms: u64,
    heuristic: u64,
    heuristic_decisions: u64,
    remembered: u64,
}

impl From<TxFigures> for Figures {
    fn from(TxFigures(stats): TxFigures) -> Figures {
        Figures {
            local: stats.local,
            branches: stats.branches,
            in_doubt: stats.in_doubt,
            in_doubt_age_ms: stats.in_doubt_age_ms,
            heuristic: stats.heuristic,
            heuristic_decisions: stats.heuristic_decisions,
            remembered: stats.remembered,
        }
    }
}
