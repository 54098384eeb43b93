//! A slab with generations, and a map from a peer's small numbers to slots of ours.
//!
//! Owns the rule that an id of something gone never names something new. Must not know what it holds.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Values under (index, generation); a freed index comes back with the next generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// How many values are held.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores what `make` makes of its own (index, generation).
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32, u32) -> T) -> (u32, u32) {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("tables are capped far below 2^32");
                self.slots.push(Slot { generation: 0, value: None });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(make(index, slot.generation));
        (index, slot.generation)
    }

    /// The value under this index and generation.
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation { slot.value.as_ref() } else { None }
    }

    /// The value under this index and generation, to change.
    pub(crate) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation { slot.value.as_mut() } else { None }
    }

    /// Takes the value out; its id is dead from now on.
    pub(crate) fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// All values, in order of index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

/// A map from numbers that are mostly small: channels and handles. A peer that uses large ones costs itself a tree
/// search, and us no memory beyond what it holds.
#[derive(Debug)]
pub(crate) struct SmallMap<V> {
    low: Vec<Option<V>>,
    high: BTreeMap<u32, V>,
}

/// Numbers below this are found by index.
const LOW: u32 = 256;

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        Self { low: Vec::new(), high: BTreeMap::new() }
    }
}

impl<V: Copy> SmallMap<V> {
    /// The value under `key`.
    pub(crate) fn get(&self, key: u32) -> Option<V> {
        if key < LOW { self.low.get(key as usize).copied().flatten() } else { self.high.get(&key).copied() }
    }

    /// Sets the value under `key`, which must be free.
    pub(crate) fn insert(&mut self, key: u32, value: V) {
        if key < LOW {
            let at = key as usize;
            if self.low.len() <= at {
                self.low.resize(at + 1, None);
            }
            debug_assert!(self.low[at].is_none());
            self.low[at] = Some(value);
        } else {
            self.high.insert(key, value);
        }
    }

    /// Frees `key`.
    pub(crate) fn remove(&mut self, key: u32) {
        if key < LOW {
            if let Some(slot) = self.low.get_mut(key as usize) {
                *slot = None;
            }
        } else {
            self.high.remove(&key);
        }
    }

    /// The lowest free number up to and including `max`.
    pub(crate) fn lowest_free(&self, max: u32) -> Option<u32> {
        let mut key = self.low.iter().position(Option::is_none).unwrap_or(self.low.len());
        if key as u64 >= u64::from(LOW) {
            for used in self.high.keys() {
                if *used as usize != key {
                    break;
                }
                key += 1;
            }
        }
        u32::try_from(key).ok().filter(|key| *key <= max)
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = V> {
        self.low.iter().copied().flatten().chain(self.high.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_never_names_a_new_value() {
        let mut slab = Slab::default();
        let (i, g) = slab.insert_with(|_, _| 'a');
        assert_eq!(slab.get(i, g), Some(&'a'));
        assert_eq!(slab.remove(i, g), Some('a'));
        assert_eq!(slab.remove(i, g), None);
        let (i2, g2) = slab.insert_with(|_, _| 'b');
        assert_eq!((i, g + 1), (i2, g2));
        assert_eq!(slab.get(i, g), None);
        assert_eq!(slab.get_mut(i2, g2), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.iter().count(), 1);
    }

    #[test]
    fn numbers_are_given_out_lowest_first_over_the_border() {
        let mut map = SmallMap::default();
        for n in 0..300 {
            assert_eq!(map.lowest_free(u32::MAX), Some(n));
            map.insert(n, n);
        }
        assert_eq!(map.lowest_free(299), None);
        for gap in [256, 0, 17] {
            map.remove(gap);
            assert_eq!(map.get(gap), None);
            assert_eq!(map.lowest_free(u32::MAX), Some(gap));
            map.insert(gap, gap);
        }
        assert_eq!(map.values().count(), 300);
        assert_eq!(map.get(299), Some(299));
        assert_eq!(map.get(300), None);
    }

    #[test]
    fn a_peer_that_uses_large_numbers_costs_no_more_memory() {
        let mut map = SmallMap::default();
        map.insert(u32::MAX, ());
        assert_eq!(map.get(u32::MAX), Some(()));
        assert!(map.low.is_empty());
    }
}
