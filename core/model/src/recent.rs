//! An ordered map for keys that are asked for many times in a row.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Range;
use core::ops::RangeBounds;
use slab::Slab;

/// Room for so many is kept when all are gone.
const KEPT: usize = 64;

/// As a `BTreeMap`; the value that was changed last is found again by one comparison.
#[derive(Clone, Debug)]
pub struct Recent<K, V> {
    places: BTreeMap<K, usize>,
    values: Slab<V>,
    /// The key that was looked for last, and its place.
    last: Option<(K, usize)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent { places: BTreeMap::new(), values: Slab::new(), last: None }
    }
}

impl<K: Copy + Ord, V> Recent<K, V> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Recent<K, V> {
        Recent::default()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether there is one with this key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// The value, to be read.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.places.get(key).map(|place| &self.values[*place])
    }

    /// The value, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        Some(&mut self.values[place])
    }

    #[inline]
    fn place(&mut self, key: &K) -> Option<usize> {
        match self.last {
            Some((last, place)) if last == *key => Some(place),
            _ => self.look_for(key),
        }
    }

    fn look_for(&mut self, key: &K) -> Option<usize> {
        let place = *self.places.get(key)?;
        self.last = Some((*key, place));
        Some(place)
    }

    /// The value, to be changed; `value` makes it if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let place = match self.place(&key) {
            Some(place) => place,
            None => self.put(key, value()),
        };
        &mut self.values[place]
    }

    fn put(&mut self, key: K, value: V) -> usize {
        let place = self.values.insert(value);
        self.places.insert(key, place);
        self.last = Some((key, place));
        place
    }

    /// Puts a value in; the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        self.put(key, value);
        before
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.last = None;
        let value = self.values.remove(place);
        if self.places.is_empty() && self.values.capacity() > KEPT {
            self.values = Slab::new();
        }
        Some(value)
    }

    /// Keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.places.keys()
    }

    /// Values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.places.values().map(|place| &self.values[*place])
    }

    /// Keys and values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.iter().map(|(key, place)| (key, &self.values[*place]))
    }

    /// Keys of this range with their values, ascending.
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        let places: Range<'_, K, usize> = self.places.range(keys);
        places.map(|(key, place)| (key, &self.values[*place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn it_is_a_map_whatever_was_looked_for_before() {
        let mut recent: Recent<u8, u32> = Recent::new();
        let mut map: BTreeMap<u8, u32> = BTreeMap::new();
        let mut dice = 7u32;
        for step in 0..20_000u32 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (dice >> 24) as u8 % 6;
            match (dice >> 16) % 5 {
                0 => assert_eq!(recent.insert(key, step), map.insert(key, step)),
                1 => assert_eq!(recent.remove(&key), map.remove(&key)),
                2 => assert_eq!(recent.get_or_insert_with(key, || step), map.entry(key).or_insert(step)),
                _ => {
                    // Twice: the second time it is the last one.
                    assert_eq!(recent.get_mut(&key), map.get_mut(&key));
                    assert_eq!(recent.get_mut(&key), map.get_mut(&key));
                }
            }
            assert_eq!((recent.get(&key), recent.contains_key(&key)), (map.get(&key), map.contains_key(&key)));
            assert_eq!((recent.len(), recent.is_empty()), (map.len(), map.is_empty()));
            assert!(recent.iter().eq(map.iter()) && recent.keys().eq(map.keys()) && recent.values().eq(map.values()));
            assert_eq!(recent.range(key..).collect::<Vec<_>>(), map.range(key..).collect::<Vec<_>>());
        }
    }
}
