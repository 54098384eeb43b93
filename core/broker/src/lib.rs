//! The broker without an outside: shards that own queues and connections, routing, front ends, confirms, administration.
//!
//! Inputs and bytes in, effects and bytes out; no clock, no I/O, no threads. `shell/runtime` drives it in production,
//! `testing/sim` under a seed; both call the same functions in the same order (`ARCHITECTURE.md`, "Shards").

mod access;
mod admin;
mod config;
mod confirms;
mod directory;
mod frontend;
mod io;
mod mail;
mod node;
mod queues;
mod ring;
mod shard;
mod topology;
mod transactions;

pub use admin::{
    Alarm, By, Command, Counters, ListPage, QUEUES_IN_DOUBT, QueueInDoubt, QueuePatch, QueueReport, Refusal,
    RefusalKind, Reply, ShardReport, TxAct, TxContents, TxFigures, TxLost, TxMessage, TxPage, TxPart, TxReport,
};
pub use config::{Config, ConfigError, TransactionConfig};
pub use io::{Effect, Endpoint, Input, Level, Lost, Mail};
pub use node::Node;
pub use packhorse_model::{OnFull, QueueLimits};
pub use packhorse_queue::{IdBounds, Limit};
pub use packhorse_txn::state::State as TxState;
pub use packhorse_txn::{Act, Audit, Part, Stats, View};
pub use shard::{Recovery, Shard};
