//! How often each transition of an entry has happened in this process. Behind the feature `coverage`, for long runs of the simulator that
//! want to know what they have not seen; no release has it.

use crate::entry::{Event, State};
use core::sync::atomic::{AtomicU64, Ordering};

/// Pairs of a state and an event.
pub const CELLS: usize = State::ALL.len() * Event::ALL.len();

/// By cell, how often it has happened.
pub type Counts = [u64; CELLS];

static COUNTS: [AtomicU64; CELLS] = [const { AtomicU64::new(0) }; CELLS];

/// The cell of a pair.
#[must_use]
pub fn cell(state: State, event: Event) -> usize {
    state as usize * Event::ALL.len() + event as usize
}

/// A transition has happened.
pub(crate) fn count(state: State, event: Event) {
    COUNTS[cell(state, event)].fetch_add(1, Ordering::Relaxed);
}

/// All counts so far.
#[must_use]
pub fn counts() -> Counts {
    core::array::from_fn(|cell| COUNTS[cell].load(Ordering::Relaxed))
}
