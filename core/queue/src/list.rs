//! One priority level: entries in ascending sequence, and which of them are ready.
//!
//! Must not know: why an entry changes. Entries never move to another place in the order; one that is gone leaves a tombstone,
//! and tombstones cost at most about as much as what lives. A list is a row of chunks, so that no step touches more than a
//! few hundred entries at any depth.
//!
//! Ready entries are found without a search: all of them below `fresh` stand in `returned` or `restricted`; at and above
//! `fresh` they are met by walking on.

use crate::entry::State;
use crate::slot::Slot;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use packhorse_model::Sequence;

/// Entries in a full chunk.
const CHUNK: usize = 128;

/// Where an entry is, until the list changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: usize,
    slot: usize,
}

#[derive(Debug)]
struct Chunk {
    slots: Vec<Slot>,
    dead: usize,
}

impl Chunk {
    fn first(&self) -> Sequence {
        self.slots[0].sequence
    }

    fn lower_bound(&self, sequence: Sequence) -> usize {
        // Without gaps the difference of the numbers is the distance.
        let guess = sequence.saturating_sub(self.first()).min(self.slots.len() as u64 - 1) as usize;
        if self.slots[guess].sequence == sequence {
            return guess;
        }
        self.slots.partition_point(|s| s.sequence < sequence)
    }
}

#[derive(Debug, Default)]
pub(crate) struct List {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<Slot>>,
    /// Ready entries in all.
    ready: u64,
    /// No ready entry below this one is met by walking.
    fresh: Sequence,
    /// Where `fresh` probably is.
    hint: Place,
    /// Ready entries below `fresh` that anyone may get.
    returned: BTreeSet<Sequence>,
    /// Ready entries below `fresh` that some consumer must not get.
    restricted: BTreeSet<Sequence>,
    last: Option<Sequence>,
}

impl List {
    /// Appends an entry, above all others.
    pub(crate) fn push(&mut self, slot: Slot) {
        assert!(self.last.is_none_or(|l| l < slot.sequence), "entries enter in ascending order");
        self.last = Some(slot.sequence);
        if slot.packed.state() == State::Available {
            self.ready += 1;
        }
        if self.chunks.back().is_none_or(|c| c.slots.len() >= CHUNK) {
            let slots = self.spare.pop().unwrap_or_else(|| {
                // The first chunk grows with the queue, for most queues hold little.
                Vec::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK })
            });
            self.chunks.push_back(Chunk { slots, dead: 0 });
        }
        self.chunks.back_mut().expect("there is one now").slots.push(slot);
    }

    /// The place of the entry with this number, gone or not.
    pub(crate) fn find(&self, sequence: Sequence) -> Option<Place> {
        let place = self.lower_bound(sequence);
        let slot = self.chunks.get(place.chunk)?.slots.get(place.slot)?;
        (slot.sequence == sequence).then_some(place)
    }

    pub(crate) fn slot(&self, place: Place) -> &Slot {
        &self.chunks[place.chunk].slots[place.slot]
    }

    pub(crate) fn slot_mut(&mut self, place: Place) -> &mut Slot {
        &mut self.chunks[place.chunk].slots[place.slot]
    }

    /// All entries that are not gone, in order.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|c| &c.slots).filter(|s| s.packed.state() != State::Gone)
    }

    /// A number that no live entry is below.
    pub(crate) fn floor(&self) -> Option<Sequence> {
        self.chunks.front().map(Chunk::first)
    }

    /// Ready entries.
    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// An entry became ready.
    pub(crate) fn add_ready(&mut self, sequence: Sequence, restricted: bool) {
        self.ready += 1;
        if sequence < self.fresh {
            let set = if restricted { &mut self.restricted } else { &mut self.returned };
            set.insert(sequence);
        } else {
            debug_assert!(!restricted, "only an entry that was given once is kept from anyone");
        }
    }

    /// An entry is no longer ready.
    pub(crate) fn remove_ready(&mut self, sequence: Sequence, restricted: bool) {
        self.ready -= 1;
        if sequence < self.fresh {
            let set = if restricted { &mut self.restricted } else { &mut self.returned };
            let there = set.remove(&sequence);
            debug_assert!(there, "a ready entry below the walk stands in a set");
        } else if sequence == self.fresh {
            self.fresh += 1;
            self.hint.slot += 1;
        }
    }

    /// The first ready entry that `allowed` agrees to; it is asked for restricted ones from `*from` on only, and `*from`
    /// becomes a number below which all of them are refused.
    pub(crate) fn first_ready(
        &mut self,
        from: &mut Sequence,
        mut allowed: impl FnMut(Sequence) -> bool,
    ) -> Option<Sequence> {
        let returned = self.returned.first().copied();
        let mut restricted = None;
        if !self.restricted.is_empty() {
            let found = self.restricted.range(*from..).copied().find(|s| allowed(*s));
            *from = found.unwrap_or(self.fresh);
            restricted = found;
        }
        match (returned, restricted) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (Some(a), None) | (None, Some(a)) => Some(a),
            (None, None) => self.next_fresh(),
        }
    }

    /// Whether there is a ready entry that anyone may get.
    pub(crate) fn unrestricted_ready(&self) -> bool {
        self.ready > self.restricted.len() as u64
    }

    /// Ready entries that some consumer must not get.
    pub(crate) fn restricted(&self) -> impl Iterator<Item = Sequence> {
        self.restricted.iter().copied()
    }

    fn next_fresh(&mut self) -> Option<Sequence> {
        if self.ready == (self.returned.len() + self.restricted.len()) as u64 {
            return None;
        }
        let mut place = self.hint;
        let known = self.chunks.get(place.chunk).and_then(|c| c.slots.get(place.slot));
        if known.is_none_or(|s| s.sequence != self.fresh) {
            place = self.lower_bound(self.fresh);
        }
        loop {
            match self.chunks[place.chunk].slots.get(place.slot) {
                Some(slot) if slot.packed.state() == State::Available => {
                    self.fresh = slot.sequence;
                    self.hint = place;
                    return Some(slot.sequence);
                }
                Some(_) => place.slot += 1,
                None => place = Place { chunk: place.chunk + 1, slot: 0 },
            }
        }
    }

    /// The entry at `place` is gone: a tombstone from now on. Places are void afterwards.
    pub(crate) fn bury(&mut self, place: Place) {
        let tail = place.chunk + 1 == self.chunks.len();
        let chunk = &mut self.chunks[place.chunk];
        debug_assert_eq!(chunk.slots[place.slot].packed.state(), State::Gone, "only what is gone is buried");
        chunk.dead += 1;
        if chunk.dead == chunk.slots.len() {
            self.remove_chunk(place.chunk);
        } else if !tail && chunk.dead * 2 >= chunk.slots.len().max(8) {
            self.compact(place.chunk);
        }
    }

    fn remove_chunk(&mut self, at: usize) {
        let mut chunk = self.chunks.remove(at).expect("the chunk is there");
        chunk.slots.clear();
        // Enough for a depth that goes up and down, never much more than what lives.
        if chunk.slots.capacity() >= CHUNK || self.chunks.is_empty() {
            self.spare.push(chunk.slots);
        }
        while self.spare.len() > self.chunks.len() + 2 {
            self.spare.pop();
        }
    }

    /// Drops a chunk's tombstones and joins it with a neighbor where both fit in half a chunk.
    fn compact(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        chunk.slots.retain(|s| s.packed.state() != State::Gone);
        chunk.dead = 0;
        let length = chunk.slots.len();
        let fits = |other: &Chunk| other.slots.len() + length <= CHUNK / 2;
        if at > 0 && fits(&self.chunks[at - 1]) {
            let moved = self.chunks.remove(at).expect("the chunk is there");
            self.chunks[at - 1].slots.extend(moved.slots);
        } else if at + 2 < self.chunks.len() && fits(&self.chunks[at + 1]) {
            let moved = self.chunks.remove(at + 1).expect("the chunk is there");
            self.chunks[at].slots.extend(moved.slots);
            self.chunks[at].dead = moved.dead;
        } else {
            self.chunks[at].slots.shrink_to(length);
        }
    }

    /// The first entry at or above `sequence`, gone or not; past the end if there is none.
    fn lower_bound(&self, sequence: Sequence) -> Place {
        let Some(at) = self.chunk_of(sequence) else { return Place::default() };
        let slot = self.chunks[at].lower_bound(sequence);
        if slot == self.chunks[at].slots.len() { Place { chunk: at + 1, slot: 0 } } else { Place { chunk: at, slot } }
    }

    /// The last chunk that begins at or below `sequence`.
    fn chunk_of(&self, sequence: Sequence) -> Option<usize> {
        let first = self.chunks.front()?.first();
        if sequence < first {
            return None;
        }
        let (mut low, mut high) = (0, self.chunks.len() - 1);
        let last = self.chunks[high].first();
        if sequence >= last {
            return Some(high);
        }
        // Numbers are nearly evenly spread, so the first guess is nearly right: look there, then halve what is left.
        let share = (sequence - first) as f64 / (last - first) as f64;
        let mut guess = ((share * high as f64) as usize).min(high - 1);
        for _ in 0..2 {
            if self.chunks[guess].first() > sequence {
                high = guess;
                guess = guess.saturating_sub(1).max(low);
            } else if self.chunks[guess + 1].first() <= sequence {
                low = guess + 1;
                guess = (guess + 1).min(high - 1);
            } else {
                return Some(guess);
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.chunks[middle].first() <= sequence {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Checks the list against its own rules; a sentence if one is broken.
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let mut previous = None;
        let mut ready = 0;
        let mut in_sets = 0;
        for chunk in &self.chunks {
            if chunk.slots.is_empty() {
                return Err("a chunk is empty");
            }
            if chunk.dead != chunk.slots.iter().filter(|s| s.packed.state() == State::Gone).count() {
                return Err("a chunk miscounts its tombstones");
            }
            for slot in &chunk.slots {
                if previous.is_some_and(|p| p >= slot.sequence) {
                    return Err("entries are out of order");
                }
                previous = Some(slot.sequence);
                let is_ready = slot.packed.state() == State::Available;
                let restricted = slot.packed.has(crate::slot::Flag::Restricted);
                let in_returned = self.returned.contains(&slot.sequence);
                let in_restricted = self.restricted.contains(&slot.sequence);
                let below = slot.sequence < self.fresh;
                if (in_returned, in_restricted) != (is_ready && below && !restricted, is_ready && below && restricted) {
                    return Err("an entry stands in the wrong set");
                }
                ready += u64::from(is_ready);
                in_sets += usize::from(in_returned) + usize::from(in_restricted);
            }
        }
        if ready != self.ready {
            return Err("the ready entries are miscounted");
        }
        if in_sets != self.returned.len() + self.restricted.len() {
            return Err("a set names an entry that is not in the list");
        }
        Ok(())
    }
}
