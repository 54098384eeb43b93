//! Transactions over the wire: a client that does one thing at a time and waits for its answer, and what it heard of its branches.

mod bench;
pub mod deaths;
mod figures;
pub mod giant;
mod ledger;
mod manager;
pub mod pipeline;

pub use bench::{Bench, QUEUE, X, fill, prepared, settled, worked};
pub use figures::Figures;
pub use ledger::{Heard, Ledger};
pub use manager::{Answer, Got, Manager, Verb, global_id, request, xid, xid_in_history};
pub use packhorse_client_core::Commits;
pub use packhorse_client_core::transaction::{TxOutcome, flags};
