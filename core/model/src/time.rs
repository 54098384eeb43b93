//! Time as a value: read once a turn by the shell, handed in; core never asks a clock.

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic microseconds since an arbitrary start of the process. Timers and deadlines use this.
    pub mono_us: u64,
    /// Wall clock, milliseconds since 1970-01-01T00:00:00Z. For display and conversion at the edges only.
    pub wall_ms: i64,
}

impl Now {
    /// Monotonic milliseconds.
    pub fn mono_ms(self) -> u64 {
        self.mono_us / 1000
    }
}
