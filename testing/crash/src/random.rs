//! Numbers from a seed: the same seed, the same run.

/// A small generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// From the variable `PACKHORSE_CRASH_SEED`, otherwise from the seed that is written in the test.
    pub fn from_environment(otherwise: u64) -> (Random, u64) {
        let seed = match std::env::var("PACKHORSE_CRASH_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|e| panic!("PACKHORSE_CRASH_SEED={text}: {e}")),
            Err(_) => otherwise,
        };
        (Random::new(seed), seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.number() as u8
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
