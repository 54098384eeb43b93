//! The unsettled deliveries of one session and direction, found by delivery-id.
//!
//! Owns the memory rule: what is held is proportional to what is unsettled, whatever ids the peer chooses and however
//! long one delivery stays. Must not know what a delivery is.

use alloc::collections::{BTreeMap, VecDeque};

use super::serial::Serial;

/// Ids that follow each other stand in a ring and are found by subtraction; the others (odd ids from the peer, old
/// deliveries that stay while thousands pass) in a tree.
#[derive(Debug)]
pub(crate) struct Deliveries<T> {
    /// The id at the front of the ring.
    base: Serial,
    ring: VecDeque<Option<T>>,
    /// How many places of the ring are taken.
    in_ring: usize,
    strays: BTreeMap<u32, T>,
}

/// Empty places that the ring may always have.
const SLACK: usize = 64;

impl<T> Default for Deliveries<T> {
    fn default() -> Self {
        Self { base: Serial(0), ring: VecDeque::new(), in_ring: 0, strays: BTreeMap::new() }
    }
}

impl<T> Deliveries<T> {
    /// How many deliveries are held.
    pub(crate) fn len(&self) -> usize {
        self.in_ring + self.strays.len()
    }

    fn place(&self, id: Serial) -> Option<usize> {
        let place = id.since(self.base) as usize;
        (place < self.ring.len()).then_some(place)
    }

    /// The delivery with this id.
    pub(crate) fn get(&self, id: Serial) -> Option<&T> {
        match self.place(id) {
            Some(place) if self.ring[place].is_some() => self.ring[place].as_ref(),
            _ => self.strays.get(&id.0),
        }
    }

    /// The delivery with this id, to change.
    pub(crate) fn get_mut(&mut self, id: Serial) -> Option<&mut T> {
        match self.place(id) {
            Some(place) if self.ring[place].is_some() => self.ring[place].as_mut(),
            _ => self.strays.get_mut(&id.0),
        }
    }

    /// Adds a delivery; its id must be free.
    pub(crate) fn insert(&mut self, id: Serial, value: T) {
        debug_assert!(self.get(id).is_none(), "delivery-id {id:?} twice");
        if self.in_ring == 0 {
            self.ring.clear();
            self.base = id;
        }
        let end = self.base.plus(u32::try_from(self.ring.len()).unwrap_or(u32::MAX));
        let gap = id.since(end) as usize;
        if id.before(end) {
            self.strays.insert(id.0, value);
            return;
        }
        if gap > SLACK {
            // Pre-settled deliveries passed in between, or the peer jumps: the ring starts again here. Each delivery
            // moves to the tree at most once.
            self.ring_to_strays(0);
            self.base = id;
        } else {
            self.ring.extend(core::iter::repeat_with(|| None).take(gap));
        }
        self.ring.push_back(Some(value));
        self.in_ring += 1;
        self.tighten();
    }

    /// Takes a delivery out.
    pub(crate) fn remove(&mut self, id: Serial) -> Option<T> {
        let from_ring = self.place(id).and_then(|place| self.ring[place].take());
        match from_ring {
            Some(value) => {
                self.in_ring -= 1;
                self.tighten();
                Some(value)
            }
            None => self.strays.remove(&id.0),
        }
    }

    /// Visits what is held from `first` to `last`, both included and not before each other, in order of id except that
    /// strays come first; drops those for which `keep` says no. Costs what is held, not what the range spans.
    pub(crate) fn visit(&mut self, first: Serial, last: Serial, mut keep: impl FnMut(Serial, &mut T) -> bool) {
        // Strays before the ring: tightening that makes new ones of what was visited.
        if !self.strays.is_empty() {
            if first.0 <= last.0 {
                self.visit_strays(first.0, last.0, &mut keep);
            } else {
                self.visit_strays(first.0, u32::MAX, &mut keep);
                self.visit_strays(0, last.0, &mut keep);
            }
        }
        let start = i64::from(first.distance(self.base));
        let end = start + i64::from(last.since(first));
        let places = i64::try_from(self.ring.len()).unwrap_or(i64::MAX);
        let mut removed = false;
        for place in start.max(0)..(end + 1).min(places) {
            let place = usize::try_from(place).unwrap_or(0);
            let id = self.base.plus(u32::try_from(place).unwrap_or(0));
            if let Some(value) = self.ring[place].as_mut()
                && !keep(id, value)
            {
                self.ring[place] = None;
                self.in_ring -= 1;
                removed = true;
            }
        }
        if removed {
            self.tighten();
        }
    }

    fn visit_strays(&mut self, from: u32, to: u32, keep: &mut impl FnMut(Serial, &mut T) -> bool) {
        let mut at = from;
        while let Some((id, value)) = self.strays.range_mut(at..=to).next() {
            let id = *id;
            if !keep(Serial(id), value) {
                self.strays.remove(&id);
            }
            match id.checked_add(1) {
                Some(next) if next <= to => at = next,
                _ => break,
            }
        }
    }

    /// Visits everything held and drops that for which `keep` says no.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Serial, &mut T) -> bool) {
        for place in 0..self.ring.len() {
            let id = self.base.plus(u32::try_from(place).unwrap_or(0));
            if let Some(value) = self.ring[place].as_mut()
                && !keep(id, value)
            {
                self.ring[place] = None;
                self.in_ring -= 1;
            }
        }
        self.strays.retain(|id, value| keep(Serial(*id), value));
        self.tighten();
    }

    fn pop_front(&mut self) {
        let id = self.base.take();
        if let Some(Some(value)) = self.ring.pop_front() {
            self.in_ring -= 1;
            self.strays.insert(id.0, value);
        }
    }

    fn ring_to_strays(&mut self, leave: usize) {
        while self.ring.len() > leave {
            self.pop_front();
        }
    }

    /// Drops empty places at the front; where a few old deliveries hold many empty places, they move to the tree.
    fn tighten(&mut self) {
        while let Some(None) = self.ring.front() {
            self.pop_front();
        }
        while self.ring.len() > SLACK + 4 * self.in_ring {
            self.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn r2_7_6_a_range_of_all_ids_costs_what_is_outstanding() {
        let mut table = Deliveries::default();
        for id in 0..5 {
            table.insert(Serial(u32::MAX - 1).plus(id), id);
        }
        let mut seen = Vec::new();
        table.visit(Serial(0x8000_0001), Serial(0x7fff_ffff), |_, value| {
            seen.push(*value);
            *value != 3
        });
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(table.len(), 4);
        assert!(table.get(Serial(1)).is_none());
    }

    #[test]
    fn memory_follows_what_is_unsettled_when_one_old_delivery_stays() {
        let mut table = Deliveries::default();
        table.insert(Serial(7), ());
        for n in 8..100_000 {
            table.insert(Serial(n), ());
            if n > 20 {
                table.remove(Serial(n - 10)).unwrap();
            }
        }
        assert!(table.ring.len() < 500, "{}", table.ring.len());
        assert!(table.get(Serial(7)).is_some());
        assert_eq!(table.remove(Serial(7)), Some(()));
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(start in any::<u32>(), steps in prop::collection::vec((0u8..6, 0u32..300, 0u32..300), 1..400)) {
            let mut table = Deliveries::default();
            let mut model = BTreeSet::new();
            let mut next = Serial(start);
            for (what, a, b) in steps {
                match what {
                    0..=2 => {
                        let id = if what == 2 { next.plus(a) } else { next };
                        if model.insert(id.0) {
                            table.insert(id, id.0);
                        }
                        next = id.plus(1);
                    }
                    3 => {
                        let id = next.minus(a);
                        prop_assert_eq!(table.remove(id).is_some(), model.remove(&id.0));
                    }
                    4 => {
                        let first = next.minus(a);
                        let last = first.plus(b);
                        let mut hit = BTreeSet::new();
                        table.visit(first, last, |id, value| {
                            assert_eq!(id.0, *value);
                            assert!(hit.insert(id.0));
                            id.0 % 3 == 0
                        });
                        let want: BTreeSet<u32> = model.iter().copied().filter(|id| Serial(*id).since(first) <= b).collect();
                        prop_assert_eq!(&hit, &want);
                        model.retain(|id| !hit.contains(id) || id % 3 == 0);
                    }
                    _ => {
                        table.retain(|id, _| id.0 % 7 != 0);
                        model.retain(|id| id % 7 != 0);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for id in &model {
                    prop_assert_eq!(table.get(Serial(*id)), Some(id));
                }
                prop_assert!(table.ring.len() <= SLACK + 4 * table.in_ring);
            }
        }
    }
}
