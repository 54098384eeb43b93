//! The one hash map of core: keyed, seeded by the node, so that a peer cannot choose colliding keys and a simulation repeats.

use core::hash::BuildHasher;
use siphasher::sip::SipHasher13;

/// The node's hash seed: drawn by the runtime at start, fixed in simulations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seed(pub u64, pub u64);

impl Seed {
    /// A seed from one number, for tests and simulations.
    pub fn fixed(n: u64) -> Seed {
        Seed(n, n ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// An empty map under this seed.
    pub fn map<K, V>(self) -> Map<K, V> {
        Map::with_hasher(self)
    }
}

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// A hash map whose order is a function of the seed. Where order can be seen from outside, use an ordered map.
pub type Map<K, V> = hashbrown::HashMap<K, V, Seed>;
