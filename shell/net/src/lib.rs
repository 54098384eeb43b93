//! Sockets of the data plane: listeners, one readiness loop per shard, reads, vectored writes, mailboxes between shards.
//!
//! A loop drives one [`Machine`] (a shard) and moves its effects. It knows bytes and connections only: no protocol, no
//! queue, no store. Nothing in it waits but the poll.

mod accept;
mod connection;
mod listen;
mod machine;
mod mailbox;
mod reactor;

pub use listen::{Bound, Listener};
pub use machine::{Host, Machine};
pub use mailbox::{Door, Mailbox, Post, doors};
pub use reactor::{Limits, Reactor};
