//! The world's dice (splitmix64): a generator per concern, all from one seed, so that what one concern draws changes no other.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The generator of one concern.
    pub(crate) fn new(seed: u64, concern: u64) -> Draw {
        let mut draw = Draw(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ concern.wrapping_mul(0xd6e8_feb8_6659_fd93));
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A place in a list of so many.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}
