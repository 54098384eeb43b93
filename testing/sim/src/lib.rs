//! The broker under one seed: brokers with simulated disks, streams and clocks, tens of clients, and everything that can go wrong between
//! them. Everything that happens is a function of the seed, in every process.
//!
//! Only what `shell/` does is replaced: sockets, files, threads, clocks. What the brokers promised is judged by `core/history` from what
//! clients saw. A driver: it may know everything, nothing knows it.

mod books;
mod campaign;
mod client;
mod contents;
mod coverage;
mod damage;
mod digest;
mod draw;
mod fault;
mod host;
mod message;
mod net;
mod operator;
mod plan;
#[cfg(feature = "planted")]
mod planted;
mod seam;
mod story;
mod trial;
mod verdict;
mod world;

pub use campaign::{Campaign, numbers, work};
pub use client::{Got, Tx};
pub use coverage::Coverage;
pub use fault::Kind;
pub use message::Shape;
pub use plan::Settings;
#[cfg(feature = "planted")]
pub use planted::{one as planted_one, plant, planted};
pub use seam::{Death, Kind as BatchKind, Point};
pub use story::story;
pub use trial::trial;
pub use verdict::{Breach, Occurred, Totals, Verdict};
pub use world::run;
pub use world::script::{Branch, Control, Heard, Receiver, Script, Sender, Who};
