//! Consume, transform, produce: messages go into one queue, are taken from it and sent on to another in local transactions, and taken out
//! at the end, while broker and clients are killed at random. The effect must be exactly once.
//!
//! Each message carries the number of what it is about, its *origin*, which stays when it is sent on; the count over origins needs
//! nobody's word. The checker judges the histories besides.

mod book;
mod run;
mod sink;
mod worker;

pub use run::{Plan, run};
pub use worker::{Role, WorkerOptions, work};

/// Where messages are sent first.
const IN: &str = "transform-in";
/// Where they are sent on to.
const OUT: &str = "transform-out";
