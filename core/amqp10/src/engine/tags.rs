//! The delivery-tags that a peer has in use, to catch one used twice.
//!
//! Owns a small hash set keyed by a seed, so that a peer cannot choose tags that collide. Must not hold the tags
//! themselves: they stand beside the deliveries, and the caller compares.

use alloc::vec;
use alloc::vec::Vec;

use super::serial::Serial;

/// A set of (hash of link and tag → delivery-id), open addressing, linear probing, no tombstones.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Used { hash: u32, id: u32 },
}

/// Spreads a number over all its bits (the finalizer of splitmix64): low bits of the result depend on every bit.
fn spread(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes a tag on a link under `seed`: folded multiplication, enough against a peer that does not know the seed. Tags are
/// counters mostly, so that what differs between two of them may be a single bit anywhere.
pub(crate) fn hash(seed: u64, link: u32, tag: &[u8]) -> u32 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let factor = spread(seed ^ K) | 1;
    let fold = |state: u64, word: u64| {
        let wide = u128::from(state ^ word ^ K) * u128::from(factor);
        (wide >> 64) as u64 ^ wide as u64
    };
    let mut state = fold(seed, u64::from(link) << 32 | tag.len() as u64);
    for chunk in tag.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = fold(state.rotate_left(23), u64::from_le_bytes(word));
    }
    spread(state) as u32
}

impl Tags {
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// How many tags are held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The id of a held tag with this hash for which `same` says yes.
    pub(crate) fn find(&self, hash: u32, mut same: impl FnMut(Serial) -> bool) -> Option<Serial> {
        if self.len == 0 {
            return None;
        }
        let mut at = hash as usize & self.mask();
        while let Slot::Used { hash: held, id } = self.slots[at] {
            if held == hash && same(Serial(id)) {
                return Some(Serial(id));
            }
            at = (at + 1) & self.mask();
        }
        None
    }

    /// Adds a tag that [`Self::find`] did not find.
    pub(crate) fn insert(&mut self, hash: u32, id: Serial) {
        if self.slots.len() < 2 * (self.len + 1) {
            let grown = vec![Slot::Free; (self.slots.len() * 2).max(16)];
            for slot in core::mem::replace(&mut self.slots, grown) {
                if let Slot::Used { hash, id } = slot {
                    self.put(hash, id);
                }
            }
        }
        self.put(hash, id.0);
        self.len += 1;
    }

    fn put(&mut self, hash: u32, id: u32) {
        let mut at = hash as usize & self.mask();
        while self.slots[at] != Slot::Free {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = Slot::Used { hash, id };
    }

    /// Removes the tag of delivery `id`.
    pub(crate) fn remove(&mut self, hash: u32, id: Serial) {
        if self.len == 0 {
            return;
        }
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            match self.slots[at] {
                Slot::Free => return,
                Slot::Used { hash: h, id: i } if h == hash && i == id.0 => break,
                Slot::Used { .. } => at = (at + 1) & mask,
            }
        }
        self.len -= 1;
        // Those behind move up, so that searches end at the first free slot.
        let mut hole = at;
        loop {
            at = (at + 1) & mask;
            let Slot::Used { hash: h, .. } = self.slots[at] else { break };
            let home = h as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole] = Slot::Free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..60), 1..400), narrow in any::<bool>()) {
            // `narrow` makes nearly all hashes collide.
            let hash_of = |key: u32| if narrow { key % 3 + 0xffff_fffd } else { hash(99, 1, &key.to_be_bytes()) };
            let mut tags = Tags::default();
            let mut model = BTreeMap::new();
            for (add, key) in steps {
                let found = tags.find(hash_of(key), |id| id.0 == key);
                prop_assert_eq!(found.is_some(), model.contains_key(&key));
                if add && found.is_none() {
                    tags.insert(hash_of(key), Serial(key));
                    model.insert(key, ());
                } else if !add {
                    tags.remove(hash_of(key), Serial(key));
                    model.remove(&key);
                }
                prop_assert_eq!(tags.len(), model.len());
                for key in model.keys() {
                    prop_assert!(tags.find(hash_of(*key), |id| id.0 == *key).is_some());
                }
            }
        }
    }

    #[test]
    fn counters_spread_whatever_the_seed() {
        for seed in [0, 1, 2, 7, u64::MAX] {
            for tag in [|n: u32| n.to_be_bytes(), |n: u32| n.to_le_bytes(), |n: u32| (n << 16).to_be_bytes()] {
                let mut cells = [0u32; 1024];
                for n in 0..4096u32 {
                    cells[hash(seed, 3, &tag(n)) as usize % cells.len()] += 1;
                }
                // Four are expected in each cell; by chance a cell with 20 is one in ten million.
                assert!(cells.iter().all(|count| *count < 20), "seed {seed}: {:?}", cells.iter().max());
            }
        }
    }

    #[test]
    fn the_hash_depends_on_seed_link_and_every_byte() {
        let base = hash(1, 2, b"0123456789");
        assert_ne!(base, hash(3, 2, b"0123456789"));
        assert_ne!(base, hash(1, 3, b"0123456789"));
        assert_ne!(base, hash(1, 2, b"0123456780"));
        assert_ne!(base, hash(1, 2, b"012345678"));
        assert_ne!(hash(1, 2, b""), hash(1, 2, b"\0"));
    }
}
