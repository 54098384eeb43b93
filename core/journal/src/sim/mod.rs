//! A simulated disk and the journal over it, under one seed and virtual time. Feature `sim`: for tests and seeded worlds.

mod crash_points;
mod disk;
mod model;
mod trouble;
mod workloads;
mod world;

pub use crash_points::{Player, Points, Tally, crash_everywhere};
pub use disk::{CrashMode, SimDisk, SimFault, When};
pub use trouble::{Effect, Struck, Trouble, Verb};
pub use workloads::{Workload, workloads};
pub use world::{Sim, SimStore};
