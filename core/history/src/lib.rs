//! The history of what clients did and saw, and the checker that judges it (`spec/checker.md`, `docs/formats/history.md`).
//!
//! A client process writes one file of [`Event`]s; the bodies it sends say whose they are ([`body`]). [`check_files`] reads the files of
//! all processes and says which invariants are broken. Must not know: the broker, or how files are opened.

mod binary;
pub mod body;
mod checker;
mod encode;
mod error;
mod event;
mod jsonl;
mod report;
mod scan;
mod source;
mod words;

pub use binary::BinaryWriter;
pub use checker::{Options, check_files};
pub use encode::VERSION;
pub use error::HistoryError;
pub use event::{BrokerChange, Counters, Event, Header, MessageId, XaVerb};
pub use jsonl::JsonlWriter;
pub use report::{Evidence, Invariant, Report, Totals, Violation};
pub use source::Source;
