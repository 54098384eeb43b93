//! A small seeded world: one node, scripted clients, byte pipes and a simulated disk under one seed.
//!
//! Everything that happens is a function of the seed: the same seed gives the same digest in every process. What the
//! broker promised is judged from what the clients saw alone ([`ledger`]). A driver: it may know everything, nothing knows it.

mod digest;
mod draw;
mod ledger;
mod pipe;
mod script;
mod world;

pub use ledger::Totals;
pub use world::{Settings, Verdict, run};
