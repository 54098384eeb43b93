//! Counts by segment. Segments' numbers are dense and only go up, so that a count is a place in a list.

use std::collections::VecDeque;

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    first: u32,
    counts: VecDeque<u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, segment: u32, n: u64) {
        if n == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.first = segment;
        }
        while segment < self.first {
            self.counts.push_front(0);
            self.first -= 1;
        }
        let at = (segment - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += n;
    }

    /// Takes back what was added before.
    pub(crate) fn take(&mut self, segment: u32, n: u64) {
        let count = segment.checked_sub(self.first).and_then(|at| self.counts.get_mut(at as usize));
        let count = count.unwrap_or_else(|| panic!("segment {segment} was never counted"));
        *count -= n;
        while self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    pub(crate) fn get(&self, segment: u32) -> u64 {
        segment.checked_sub(self.first).and_then(|at| self.counts.get(at as usize)).copied().unwrap_or(0)
    }

    /// Segments whose count is not 0.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, n)| (self.first + at as u32, *n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_and_go_in_any_order() {
        let mut tally = Tally::default();
        for segment in [7, 9, 3, 9] {
            tally.add(segment, 2);
        }
        tally.add(5, 0);
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(3, 2), (7, 2), (9, 4)]);
        tally.take(3, 2);
        tally.take(9, 1);
        assert_eq!((tally.get(3), tally.get(7), tally.get(8), tally.get(9), tally.get(100)), (0, 2, 0, 3, 0));
        assert_eq!(tally.first, 7, "what is empty in front takes no room");
        tally.take(7, 2);
        tally.take(9, 3);
        assert_eq!(tally.iter().count(), 0);
        tally.add(2, 1);
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(2, 1)]);
    }
}
