//! Transactions: local ones and XA branches (`spec/transactions.md`), one set of rules for both.
//!
//! A transaction has a **home**: the shard whose [`Home`] holds its state. The home of a local transaction is the shard of its
//! connection. The home of every XA branch is shard 0: one registry, so that `recover`, lists for operators and a join from any
//! connection are simple. Verbs of connections elsewhere go there by mail, and results come back by mail.
//!
//! The **work** of a transaction is in queues, of any shard: entries `Staged` and `Removing` under its [`TxnId`]. Queues know
//! nothing of branches, and a home knows nothing of entries: only which queues have work, how much, and whether something in it
//! failed.
//!
//! A decision takes three steps, as a dead letter does: the home asks each queue with work for its part ([`Effect::Gather`]), it
//! writes one [`Record`] with all of them ([`Effect::Write`]), and when that is durable it tells each queue ([`Effect::Apply`]) and
//! answers. Between the second and the third the transaction is *on its way*: nothing is undone whose record may still become
//! durable, and whatever is asked meanwhile waits.
//!
//! [`Sessions`] answers what became of a commit whose reply was lost.
//!
//! Must not know: protocols, shards' mailboxes, what a queue's part looks like (the type parameter `P`). No clock, no I/O.
//!
//! Reading order: `state` (the table of XA as one function), `io` (what goes in and out), `home`, then the rest.
#![no_std]

extern crate alloc;

mod code;
mod home;
mod ids;
mod io;
mod limits;
mod memory;
mod parts;
mod sessions;
pub mod state;

pub use code::{Cause, Code};
pub use home::{Home, Page, Stats, View};
pub use ids::{Control, ReplyTo};
pub use io::{
    Act, Audit, Decision, Effect, Gathered, Heuristic, Input, NoWork, Record, Recovered, RecoveredBranch, Reply, Scan,
    Start, Turn, Work,
};
pub use limits::{Config, Limit, Refusal};
pub use memory::Completed;
pub use packhorse_model::{Purpose, Resolution};
pub use parts::{LostPart, Part};
pub use sessions::{SessionEffect, SessionInput, Sessions, SessionsConfig, TxStatus};
