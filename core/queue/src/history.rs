//! What only entries that were delivered once need: counts, the overlay, and the delivery that is under way.
//!
//! Must not know: lists, states. Histories live in chunks that never move; freed ones are used again, so that a steady flow
//! allocates nothing. The deliveries of one consumer are chained oldest first.

use crate::suspects::Doubt;
use alloc::boxed::Box;
use alloc::vec::Vec;
use packhorse_model::{Overlay, Sequence};

const CHUNK: usize = 1 << 10;

/// No history, no neighbor.
pub(crate) const NONE: u32 = 0;
/// Not with a consumer.
pub(crate) const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) sequence: Sequence,
    pub(crate) deliveries: u32,
    pub(crate) attempts: u32,
    /// The delivery under way, if the entry is acquired.
    pub(crate) epoch: u32,
    /// Index of the consumer that holds the entry, or [`NOBODY`].
    pub(crate) consumer: u32,
    previous: u32,
    next: u32,
    pub(crate) level: u8,
    pub(crate) doubt: Doubt,
    /// Of a suspect: crashes in a row that came right after its dispatch, and those that came when it had passed.
    pub(crate) crashes: u8,
    pub(crate) passed: u8,
    /// When its mark became durable, seconds.
    pub(crate) marked_s: u32,
    pub(crate) overlay: Option<Box<Overlay>>,
}

impl History {
    /// Whether it says more than "never delivered".
    pub(crate) fn matters(&self) -> bool {
        self.deliveries != 0 || self.attempts != 0 || self.overlay.is_some() || self.doubt != Doubt::No
    }
}

/// A chain of deliveries, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) first: u32,
    last: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Histories {
    chunks: Vec<Vec<History>>,
    /// First of the free ones, chained by `next`.
    free: u32,
    live: usize,
}

impl Histories {
    /// A new history for an entry, with nobody.
    pub(crate) fn add(&mut self, level: u8, sequence: Sequence) -> u32 {
        self.live += 1;
        let fresh = History {
            sequence,
            deliveries: 0,
            attempts: 0,
            epoch: 0,
            consumer: NOBODY,
            previous: NONE,
            next: NONE,
            level,
            doubt: Doubt::No,
            crashes: 0,
            passed: 0,
            marked_s: 0,
            overlay: None,
        };
        if self.free != NONE {
            let index = self.free;
            let place = self.get_mut(index);
            let next = place.next;
            *place = fresh;
            self.free = next;
            return index;
        }
        if self.chunks.last().is_none_or(|c| c.len() == CHUNK) {
            // The first chunk grows with the queue, for most queues hold little; the others are made whole.
            self.chunks.push(Vec::with_capacity(if self.chunks.is_empty() { 0 } else { CHUNK }));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(fresh);
        (chunk * CHUNK + self.chunks[chunk].len()) as u32
    }

    /// Forgets one that is in no chain; gives back its overlay.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<Overlay>> {
        let free = self.free;
        let history = self.get_mut(index);
        debug_assert_eq!((history.previous, history.next), (NONE, NONE), "a freed history is in no chain");
        let overlay = history.overlay.take();
        history.consumer = NOBODY;
        history.next = free;
        self.free = index;
        self.live -= 1;
        overlay
    }

    pub(crate) fn get(&self, index: u32) -> &History {
        let at = index as usize - 1;
        &self.chunks[at / CHUNK][at % CHUNK]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut History {
        let at = index as usize - 1;
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Appends to a chain.
    pub(crate) fn link(&mut self, chain: &mut Chain, index: u32) {
        let last = chain.last;
        self.get_mut(index).previous = last;
        if last == NONE {
            chain.first = index;
        } else {
            self.get_mut(last).next = index;
        }
        chain.last = index;
    }

    /// Takes out of a chain.
    pub(crate) fn unlink(&mut self, chain: &mut Chain, index: u32) {
        let history = self.get_mut(index);
        let (previous, next) = (history.previous, history.next);
        (history.previous, history.next) = (NONE, NONE);
        if previous == NONE {
            chain.first = next;
        } else {
            self.get_mut(previous).next = next;
        }
        if next == NONE {
            chain.last = previous;
        } else {
            self.get_mut(next).previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chained(all: &Histories, chain: &Chain) -> Vec<u32> {
        let mut out = Vec::new();
        let mut at = chain.first;
        while at != NONE {
            out.push(at);
            at = all.get(at).next;
        }
        out
    }

    #[test]
    fn chains_keep_order_and_freed_places_are_used_again() {
        let mut all = Histories::default();
        let mut chain = Chain::default();
        let indexes: Vec<u32> = (0..3000).map(|n| all.add(4, n)).collect();
        for &index in &indexes {
            all.link(&mut chain, index);
        }
        for &index in indexes.iter().filter(|i| *i % 3 != 0) {
            all.unlink(&mut chain, index);
            all.remove(index);
        }
        let left: Vec<u32> = indexes.iter().copied().filter(|i| i % 3 == 0).collect();
        assert_eq!(chained(&all, &chain), left);
        assert_eq!(all.len(), left.len());
        let again = all.add(4, 7);
        assert!(again % 3 != 0 && again <= 3000, "a freed place is used first");
        assert_eq!(all.get(again).sequence, 7);
        for index in left {
            all.unlink(&mut chain, index);
        }
        assert_eq!((chain.first, chain.last), (NONE, NONE));
    }
}
