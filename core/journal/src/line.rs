//! A line: things in ascending order of their sequence, appended mostly at the end and removed mostly at the front.
//! 24 to 32 bytes an entry in the index, no node per entry.

use packhorse_model::Sequence;
use std::collections::VecDeque;

/// What a line holds.
pub(crate) trait Item {
    fn sequence(&self) -> Sequence;
    /// Whether it is still there; removed items stay in place until the line is tidied.
    fn live(&self) -> bool;
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Line<T> {
    items: VecDeque<T>,
    dead: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { items: VecDeque::new(), dead: 0 }
    }
}

impl<T: Item> Line<T> {
    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.items.reserve(more);
    }

    /// Puts an item at its place; one with the same sequence is replaced.
    pub(crate) fn insert(&mut self, item: T) {
        let sequence = item.sequence();
        if self.items.back().is_none_or(|last| last.sequence() < sequence) {
            self.items.push_back(item);
            return;
        }
        match self.items.binary_search_by_key(&sequence, Item::sequence) {
            Ok(at) => {
                if !self.items[at].live() {
                    self.dead -= 1;
                }
                self.items[at] = item;
            }
            Err(at) => self.items.insert(at, item),
        }
    }

    /// Position of the first item at or after `sequence`.
    fn position(&self, sequence: Sequence) -> usize {
        match self.items.front() {
            Some(front) if front.sequence() < sequence => self.items.partition_point(|i| i.sequence() < sequence),
            _ => 0,
        }
    }

    /// Calls `kill` for each live item from `first` to `last`; it must make the item dead.
    pub(crate) fn remove(&mut self, first: Sequence, last: Sequence, mut kill: impl FnMut(&mut T)) {
        let mut at = self.position(first);
        while let Some(item) = self.items.get_mut(at)
            && item.sequence() <= last
        {
            if item.live() {
                kill(item);
                debug_assert!(!item.live());
                self.dead += 1;
            }
            at += 1;
        }
        while self.items.front().is_some_and(|item| !item.live()) {
            self.items.pop_front();
            self.dead -= 1;
        }
        if self.dead > 64 && self.dead * 2 > self.items.len() {
            self.items.retain(Item::live);
            self.dead = 0;
        }
        if self.items.is_empty() && self.items.capacity() > 4096 {
            self.items.shrink_to(1024);
        }
    }

    /// The live item of this sequence.
    pub(crate) fn get_mut(&mut self, sequence: Sequence) -> Option<&mut T> {
        let at = self.position(sequence);
        self.items.get_mut(at).filter(|item| item.sequence() == sequence && item.live())
    }

    /// Calls `change` for each live item from `first` to `last`, ascending.
    pub(crate) fn change(&mut self, first: Sequence, last: Sequence, change: impl FnMut(&mut T)) {
        let at = self.position(first);
        let items = self.items.range_mut(at..).take_while(|item| item.sequence() <= last);
        items.filter(|item| item.live()).for_each(change);
    }

    /// The live items from `sequence` on.
    pub(crate) fn from(&self, sequence: Sequence) -> impl Iterator<Item = &T> {
        self.items.range(self.position(sequence)..).filter(|item| item.live())
    }

    /// All live items.
    pub(crate) fn into_live(self) -> impl Iterator<Item = T> {
        self.items.into_iter().filter(Item::live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u64, bool);

    impl Item for Thing {
        fn sequence(&self) -> u64 {
            self.0
        }
        fn live(&self) -> bool {
            self.1
        }
    }

    fn line(numbers: impl IntoIterator<Item = u64>) -> Line<Thing> {
        let mut line = Line::default();
        for n in numbers {
            line.insert(Thing(n, true));
        }
        line
    }

    fn live(line: &Line<Thing>) -> Vec<u64> {
        line.from(0).map(|t| t.0).collect()
    }

    #[test]
    fn late_ones_enter_sorted() {
        assert_eq!(live(&line([5, 9, 7, 1, 8])), [1, 5, 7, 8, 9]);
    }

    #[test]
    fn removal_takes_ranges_and_skips_gaps() {
        let mut line = line([1, 2, 5, 6, 9]);
        let mut gone = Vec::new();
        line.remove(2, 6, |t| {
            gone.push(t.0);
            t.1 = false;
        });
        assert_eq!(gone, [2, 5, 6]);
        assert_eq!(live(&line), [1, 9]);
        assert!(line.get_mut(5).is_none());
        assert!(line.get_mut(9).is_some());
        line.insert(Thing(5, true));
        assert_eq!(live(&line), [1, 5, 9]);
        line.remove(0, u64::MAX, |t| t.1 = false);
        assert!(live(&line).is_empty() && line.items.is_empty() && line.dead == 0);
    }

    #[test]
    fn dead_ones_in_the_middle_are_tidied_away() {
        let mut line = line(0..1000);
        for n in 1..900 {
            line.remove(n, n, |t| t.1 = false);
        }
        assert!(line.items.len() < 300, "{}", line.items.len());
        assert_eq!(live(&line).len(), 101);
    }
}
