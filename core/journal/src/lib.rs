//! The journal: the durable store as a state machine over disk operations. Records, blocks, segments, group commit, checkpoints, recovery.
//!
//! A [`Log`] takes batches ([`Encoded`]), hands out disk operations ([`DiskOp`]) by lane, is told how they ended and releases
//! events in order. [`recover`] opens one. Whoever drives it brings files, threads and clocks: `shell/disk` real ones, the
//! `sim` feature simulated ones. Must not know: queues' rules, protocols, file handles.
//!
//! The format is described in `docs/formats/journal.md`.

mod block;
mod bytes_io;
mod checkpoint;
mod checkpointer;
mod error;
mod fold;
mod index;
mod io;
mod large;
mod line;
mod load;
mod log;
mod record;
mod recover;
mod segment;
#[cfg(feature = "sim")]
pub mod sim;
mod supply;
mod tally;
mod transactions;
mod watched;

pub use checkpointer::Checkpoints;
pub use error::JournalError;
pub use io::{BlockingDisk, Dir, DiskOp, FileName, IoDone, IoError, IoErrorKind, IoId, IoResult, Lane, Slot, Subject};
pub use log::{Log, Options};
pub use record::Encoded;
pub use recover::{Recovery, Report, recover};
