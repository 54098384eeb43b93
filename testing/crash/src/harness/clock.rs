//! The monotonic clock that all processes of a run share, and waiting for them.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of the machine's monotonic clock.
pub fn now_ns() -> u64 {
    let at = clock_gettime(ClockId::Monotonic);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Waits for real: what is waited for happens in other processes.
pub fn pause(time: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "other processes are watched, and nothing of them can be waited for"
    )]
    std::thread::sleep(time);
}
