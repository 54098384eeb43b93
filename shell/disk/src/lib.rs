//! The durable store on files: runs the journal's disk operations with a few threads, and gives each shard its handle.
//!
//! [`DiskStore::open`] locks a data directory, recovers it and starts the threads. The journal decides what is written and in
//! which order; nothing here knows the format. Must not know: brokers, protocols.

mod files;
mod store;

pub use files::{Files, Lock};
#[cfg(feature = "failpoints")]
pub use files::{Probe, watch};
pub use packhorse_journal::{Checkpoints, JournalError as OpenError};
pub use store::{DiskStore, OpenOptions, OpenReport, ShardStore};
