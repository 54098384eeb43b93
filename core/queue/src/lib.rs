//! Queues: the state machine of an entry, order, credit, dispatch, redelivery, dead letters (`spec/entry.md`).
//!
//! A [`Queue`] is a plain value owned by one shard. It is told what happened by [`Queue::handle`], gives entries to consumers
//! in [`Queue::dispatch`], pushes the operations that must survive a crash into the turn's batch, and asks for everything
//! else by [`Effect`]s. Must not know: protocols, sockets, shards, where bodies are kept. No clock, no I/O, no hashing order.
//!
//! Reading order: `entry` (states and the one function that changes them), `slot` (an entry in 48 bytes), `list` (one
//! priority level), `history` (what only delivered entries need), `consumers`, then `queue` and its verbs; `part`, `transactions` and `ending`;
//! `suspects` last.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod browse;
mod consumers;
mod counts;
#[cfg(feature = "coverage")]
pub mod coverage;
mod dispatch;
mod ending;
pub mod entry;
mod exclusions;
mod history;
mod ids;
mod input;
mod limits;
mod list;
mod marks;
mod moves;
mod part;
mod planted;
mod producers;
mod purge;
mod queue;
pub mod relocate;
mod settle;
mod slot;
mod spill;
pub mod suspects;
mod transactions;

pub use consumers::ConsumerId;
pub use counts::Stats;
pub use ids::IdBounds;
pub use input::{Answer, Deliver, DeliveryKey, Effect, Enqueue, Gathered, Input, Relocation, Turn};
pub use limits::Limit;
pub use producers::Known;
pub use queue::Queue;
pub use transactions::PartItem;
