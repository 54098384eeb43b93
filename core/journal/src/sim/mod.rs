//! A simulated disk and the journal over it, under one seed and virtual time. Feature `sim`: for tests and seeded worlds.

mod disk;
mod world;

pub use disk::{CrashMode, SimDisk, SimFault, When};
pub use world::{Sim, SimStore};
