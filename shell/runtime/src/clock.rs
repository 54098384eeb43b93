//! The clock: both readings that core gets as [`Now`]. The only place of the broker that asks the system for the time of a turn.

use packhorse_model::Now;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time since the process began to serve, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Now {
            mono_us: u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX),
            // A wall clock before 1970 is set wrongly; it is for display only.
            wall_ms: wall.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// Milliseconds since the start.
    pub(crate) fn elapsed_ms(self) -> u64 {
        self.now().mono_ms()
    }
}
