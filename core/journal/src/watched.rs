//! A map whose state at one moment can be told later, a few things at a time, while it goes on changing: what a change would
//! overwrite is kept aside until it is told.
//!
//! Must not know: what it holds, who is told.

use std::collections::BTreeMap;
use std::ops::Bound;

/// See the file's head. Values are cheap to clone.
#[derive(Debug)]
pub(crate) struct Watched<K, V> {
    /// Each with the moment before which it was changed last.
    things: BTreeMap<K, (u64, V)>,
    /// Moments so far.
    moment: u64,
    watch: Option<Watch<K, V>>,
}

/// What is still to be told of the last moment.
#[derive(Debug)]
struct Watch<K, V> {
    /// Things up to this one are told, or kept aside.
    after: Option<K>,
    /// What things were that have changed since.
    aside: Vec<(K, V)>,
}

impl<K, V> Default for Watched<K, V> {
    fn default() -> Watched<K, V> {
        Watched { things: BTreeMap::new(), moment: 0, watch: None }
    }
}

impl<K: Ord + Clone, V: Clone> Watched<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.things.get(key).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.things.iter().map(|(key, (_, value))| (key, value))
    }

    /// Keys from this one on.
    pub(crate) fn keys_from(&self, from: K) -> impl Iterator<Item = &K> {
        self.things.range(from..).map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.keep_aside(&key);
        self.things.insert(key, (self.moment, value));
    }

    /// The thing, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.keep_aside(key);
        let (changed, value) = self.things.get_mut(key)?;
        *changed = self.moment;
        Some(value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.keep_aside(key);
        self.things.remove(key).map(|(_, value)| value)
    }

    fn keep_aside(&mut self, key: &K) {
        let Some(watch) = &mut self.watch else { return };
        if watch.after.as_ref().is_none_or(|after| after < key)
            && let Some((changed, value)) = self.things.get(key)
            && *changed < self.moment
        {
            watch.aside.push((key.clone(), value.clone()));
        }
    }

    /// From now on [`Watched::tell`] tells what is here at this moment; or nothing any more.
    pub(crate) fn watch(&mut self, watch: bool) {
        self.moment += u64::from(watch);
        self.watch = watch.then_some(Watch { after: None, aside: Vec::new() });
    }

    /// The next thing that was here at the moment. Each look at a thing takes one off `looks`, and none is left when it ends for
    /// that; otherwise, `None` says that all is told.
    pub(crate) fn tell(&mut self, looks: &mut usize) -> Option<(K, V)> {
        let watch = self.watch.as_mut()?;
        while *looks > 0 {
            *looks -= 1;
            if let Some(aside) = watch.aside.pop() {
                return Some(aside);
            }
            let from = watch.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((key, (changed, value))) = self.things.range((from, Bound::Unbounded)).next() else {
                self.watch = None;
                // This look was at nothing, and there is always one left when all is told.
                *looks += 1;
                return None;
            };
            watch.after = Some(key.clone());
            if *changed < self.moment {
                return Some((key.clone(), value.clone()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes_io::Draw;

    #[test]
    fn what_is_told_is_what_was_there_at_the_moment() {
        let (mut draw, mut aside) = (Draw::new(5), 0);
        for _ in 0..500 {
            let mut map: Watched<u64, u64> = Watched::default();
            let change = |map: &mut Watched<u64, u64>, draw: &mut Draw| {
                let (key, value) = (draw.next() % 20, draw.next());
                match draw.next() % 4 {
                    0 | 1 => map.insert(key, value),
                    2 => drop(map.remove(&key)),
                    _ => map.get_mut(&key).into_iter().for_each(|v| *v = value),
                }
            };
            // Twice, for what was told once is no reason not to be told again; a watch may end before all is told.
            for ended in [draw.next().is_multiple_of(4), false] {
                (0..draw.next() % 30).for_each(|_| change(&mut map, &mut draw));
                map.watch(true);
                let expected: BTreeMap<u64, u64> = map.iter().map(|(k, v)| (*k, *v)).collect();
                let mut told = BTreeMap::new();
                loop {
                    let mut looks = (draw.next() % 5) as usize;
                    let mut all = false;
                    while looks > 0 && !all {
                        match map.tell(&mut looks) {
                            Some((key, value)) => assert_eq!(told.insert(key, value), None, "told once"),
                            None => all = looks > 0,
                        }
                    }
                    if all || ended {
                        break;
                    }
                    (0..draw.next() % 4).for_each(|_| change(&mut map, &mut draw));
                    aside += map.watch.as_ref().map_or(0, |watch| watch.aside.len());
                }
                if ended {
                    map.watch(false);
                    assert_eq!(map.tell(&mut 10), None);
                } else {
                    assert_eq!(told, expected);
                }
            }
        }
        assert!(aside > 500, "{aside}");
    }
}
