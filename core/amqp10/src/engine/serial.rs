//! Serial numbers: 32-bit counters that wrap (RFC 1982).
//!
//! Owns the one comparison and the one difference that the engine uses for delivery-ids, transfer-ids and
//! delivery-counts. Must not be mixed with plain `u32` comparison: that is the failure it exists to prevent.

use core::fmt;

/// A wrapping 32-bit counter of the standard's type `sequence-no`.
///
/// //= amqp10 2.8.10
///
/// It has no `Ord`: the order of serial numbers is not transitive, so every comparison says what it means.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// The number `n` steps further on, wrapping.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The number `n` steps back, wrapping.
    #[must_use]
    pub const fn minus(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// How many steps lead from `earlier` to `self`, wrapping: always non-negative, meaningful when `self` is not before it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The signed distance from `other` to `self`, from −2^31 to 2^31 − 1.
    #[must_use]
    pub const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether `self` comes before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Whether `self` comes after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// Returns the present value and steps on by one.
    pub const fn take(&mut self) -> Self {
        let now = *self;
        self.0 = self.0.wrapping_add(1);
        now
    }
}

impl From<u32> for Serial {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_8_10_order_survives_the_wrap() {
        let last = Serial(u32::MAX);
        let next = last.plus(1);
        assert_eq!(next, Serial(0));
        assert!(last.before(next));
        assert!(next.after(last));
        assert!(!next.before(last));
        assert_eq!(next.since(last), 1);
        assert_eq!(next.distance(last), 1);
        assert_eq!(last.distance(next), -1);
        assert_eq!(Serial(3).minus(5), Serial(u32::MAX - 1));
    }

    #[test]
    fn r2_8_10_take_steps_over_the_wrap() {
        let mut n = Serial(u32::MAX);
        assert_eq!(n.take(), Serial(u32::MAX));
        assert_eq!(n.take(), Serial(0));
        assert_eq!(n, Serial(1));
    }
}
