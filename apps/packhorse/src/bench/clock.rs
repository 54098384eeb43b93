//! The monotonic clock that all processes of one machine share, and the span in which figures count.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(super) fn now_ns() -> u64 {
    let at = clock_gettime(ClockId::Monotonic);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Seconds as nanoseconds.
pub(super) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// What happens when, on the monotonic clock. A run by count has no end of its own: `to_ns` and `stop_ns` are `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Sending begins.
    pub(super) start_ns: u64,
    /// What happens from here on counts: the warm-up is over.
    pub(super) from_ns: u64,
    /// What happens from here on counts no more.
    pub(super) to_ns: u64,
    /// Sending ends.
    pub(super) stop_ns: u64,
}

impl Span {
    /// Whether what happens now counts.
    pub(super) fn counts(&self, at_ns: u64) -> bool {
        at_ns >= self.from_ns && at_ns < self.to_ns
    }
}
