//! What "durable" means: operations, batches, tickets, and the `Store` trait that the journal, memory and later SQL implement.
//!
//! Must not know: files, SQL, queues' rules, protocols. A *batch* is all or nothing and in order: the operations of one turn
//! of one shard. A *ticket* numbers a shard's batches, by one. `Durable { up_to }` is always a prefix of that shard's tickets.
//!
//! Rules for every implementation (`spec/entry.md`, "The store"): confirm only past the durable ticket; a failed write or
//! flush is final; recovery may lose an unflushed suffix of a shard's batches, never leave a hole.
#![no_std]

extern crate alloc;

mod batch;
mod blame;
#[cfg(feature = "contract")]
pub mod contract;
mod event;
mod image;
mod memory;
mod op;
mod transaction;

pub use batch::{Batch, Ticket};
pub use blame::{BLAME_MS, Blame, PASSED};
pub use event::{
    Event, Failure, Load, LoadLarge, Loaded, LoadedBody, Recovered, RecoveredEntry, RecoveredProducer, StoreStatus,
};
pub use memory::{Memory, MemoryStore};
pub use op::{Body, LargeOp, Op, Stored};
pub use transaction::{
    Ahead, Commit, Decide, Figures, Heuristic, HeuristicOutcome, LostPart, Numbers, Prepare, RecoveredBranch,
    RecoveredOp, RecoveredSession, RecoveredWork, Redelivery, Remember, TxOps, TxnOp, TxnPart,
};

use alloc::vec::Vec;
use packhorse_model::BrokerId;

/// How many numbers each start reserves for a queue beyond those reserved before (`spec/entry.md`, "Identity and order").
pub const RESERVE: u64 = 1 << 20;

/// One shard's handle on the store. Called per turn, never per message. Never blocks, never promises a place.
pub trait Store {
    /// The ticket that the next [`submit`](Store::submit) will return.
    fn next_ticket(&self) -> Ticket;

    /// Hands over a batch. The answer comes as [`Event::Durable`] through [`poll`](Store::poll).
    fn submit(&mut self, batch: Batch) -> Ticket;

    /// One step in the life of a large message's file. Steps of one file take effect in order.
    fn large(&mut self, op: LargeOp);

    /// Asks for bodies; answered by [`Event::Loaded`]. An entry whose batch is not durable yet may be missing from the answer.
    fn load(&mut self, load: Load);

    /// Asks for a part of a large message; answered by [`Event::LargeLoaded`].
    fn load_large(&mut self, load: LoadLarge);

    /// Appends what has happened since the last call.
    fn poll(&mut self, out: &mut Vec<Event>);

    /// Appends at most `limit` recovered things: all queues, then this shard's entries, each queue's in sequence order; then the
    /// operations of branches in doubt in this shard's queues, each part's in their order; then the producers of this shard's queues; and for shard 0 the branches, completed ones in
    /// the order of their times, and clients' sessions; false when there is nothing more. Called before the first submit only. Each start gives every queue
    /// numbers that no earlier start could draw: it begins at the highest number reserved before, and reserves [`RESERVE`] more.
    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool;

    /// The store's identity, for ever: that of the broker.
    fn broker(&self) -> BrokerId;

    /// The number of this start of the store: 1 the first time, + 1 each start, never reused.
    fn run(&self) -> u64;

    /// Broker time at this start in ms: broker time `t` is this + monotonic ms since the start.
    fn started_at_ms(&self) -> u64;

    /// Bytes submitted by all shards and not yet durable.
    fn unflushed_bytes(&self) -> u64;

    /// Figures for operators.
    fn status(&self) -> StoreStatus;
}
