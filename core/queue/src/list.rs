//! One priority level: entries in ascending sequence, and which of them are ready.
//!
//! Must not know: why an entry changes. Entries never move to another place in the order; one that is gone leaves a tombstone,
//! and tombstones cost at most about twice as much as what lives. A list is a row of chunks, so that no step touches more than a
//! few hundred entries at any depth.
//!
//! Ready entries are found without a search: all of them below `fresh` stand in `returned` or `restricted`; at and above
//! `fresh` they are met by walking on.

use crate::entry::State;
use crate::slot::Slot;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use packhorse_model::{Planted, Sequence, planted};

/// Entries in a full chunk.
const CHUNK: usize = 128;

/// Most entries of a chunk into which another one is put: there is room for what comes.
const WELL_FILLED: usize = CHUNK * 3 / 4;

/// Where an entry is, until the list changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: usize,
    slot: usize,
}

/// What stands next in a list, for one that only looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Ready(Sequence, Place),
    /// One that is not visible yet.
    Waits,
    End,
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

    fn live(&self) -> usize {
        self.slots.len() - self.dead
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
            self.new_chunk(self.chunks.len());
        }
        self.chunks.back_mut().expect("there is one now").slots.push(slot);
    }

    /// Puts an entry in, wherever its number belongs, and tells where it is. Other places are void afterwards.
    pub(crate) fn insert(&mut self, slot: Slot) -> Place {
        if self.last.is_none_or(|last| last < slot.sequence) {
            self.push(slot);
            let chunk = self.chunks.len() - 1;
            return Place { chunk, slot: self.chunks[chunk].slots.len() - 1 };
        }
        let place = self.room_for(slot.sequence);
        if slot.packed.state() == State::Available {
            self.add_ready(slot.sequence, false);
        }
        self.chunks[place.chunk].slots.insert(place.slot, slot);
        place
    }

    /// The place for a number that is below others, in a chunk with room.
    fn room_for(&mut self, sequence: Sequence) -> Place {
        let Some(chunk) = self.chunk_of(sequence) else {
            // Below all.
            if self.chunks.front().is_none_or(|c| c.slots.len() >= CHUNK) {
                self.new_chunk(0);
            }
            return Place { chunk: 0, slot: 0 };
        };
        let slots = &mut self.chunks[chunk].slots;
        if slots.len() >= CHUNK {
            slots.retain(|s| s.packed.state() != State::Gone);
            self.chunks[chunk].dead = 0;
        }
        let at = self.chunks[chunk].slots.partition_point(|s| s.sequence < sequence);
        if self.chunks[chunk].slots.len() < CHUNK {
            return Place { chunk, slot: at };
        }
        if at == CHUNK {
            if self.chunks.get(chunk + 1).is_none_or(|next| next.slots.len() > WELL_FILLED) {
                self.new_chunk(chunk + 1);
            }
            return Place { chunk: chunk + 1, slot: 0 };
        }
        // What comes next probably belongs right behind it, so it is the last of its chunk.
        self.new_chunk(chunk + 1);
        let mut upper = core::mem::take(&mut self.chunks[chunk + 1].slots);
        upper.extend(self.chunks[chunk].slots.drain(at..));
        let lives = upper.len();
        self.chunks[chunk + 1].slots = upper;
        // Neither fits to the other, but a small one may fit to the neighbor on its other side.
        self.join(chunk + 1, lives);
        self.join(chunk, at);
        self.room_for(sequence)
    }

    fn new_chunk(&mut self, at: usize) {
        let slots = self.spare.pop().unwrap_or_else(|| {
            // The first chunk grows with the queue, for most queues hold little.
            Vec::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK })
        });
        self.chunks.insert(at, Chunk { slots, dead: 0 });
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

    /// The first entry above `sequence`, gone or not.
    pub(crate) fn after(&self, sequence: Sequence) -> Option<&Slot> {
        let place = self.lower_bound(sequence.checked_add(1)?);
        self.chunks.get(place.chunk)?.slots.get(place.slot)
    }

    /// The entries at and above `sequence`, gone or not, in order.
    pub(crate) fn from(&self, sequence: Sequence) -> impl Iterator<Item = &Slot> {
        let Place { chunk, slot } = self.lower_bound(sequence);
        self.chunks.range(chunk.min(self.chunks.len())..).flat_map(|c| &c.slots).skip(slot)
    }

    /// What stands at or above `*from`, without what is neither ready nor to come; `*from` moves past that, at the cost of
    /// one of `steps` each. From `below` on something may still enter before it. `None`: there are no more steps.
    pub(crate) fn visible(&self, from: &mut Sequence, below: Sequence, steps: &mut u32) -> Option<Seen> {
        let mut place = self.lower_bound(*from);
        loop {
            let Some(chunk) = self.chunks.get(place.chunk) else { return Some(Seen::End) };
            let Some(slot) = chunk.slots.get(place.slot) else {
                place = Place { chunk: place.chunk + 1, slot: 0 };
                continue;
            };
            match slot.packed.state() {
                _ if slot.sequence >= below => return Some(Seen::Waits),
                State::Available => return Some(Seen::Ready(slot.sequence, place)),
                State::Staged => return Some(Seen::Waits),
                _ if *steps == 0 => return None,
                _ => {
                    *steps -= 1;
                    *from = slot.sequence + 1;
                    place.slot += 1;
                }
            }
        }
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
    ) -> Option<(Sequence, Place)> {
        let returned = self.returned.first().copied();
        let mut restricted = None;
        if !self.restricted.is_empty() {
            let found = self.restricted.range(*from..).copied().find(|s| allowed(*s));
            *from = found.unwrap_or(self.fresh);
            restricted = found;
        }
        if returned.is_some()
            && planted(Planted::ReturnToTail)
            && let Some(fresh) = self.next_fresh()
        {
            return Some(fresh);
        }
        let sequence = match (returned, restricted) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return self.next_fresh(),
        };
        let place = self.find(sequence).expect("a ready entry is in its list");
        Some((sequence, place))
    }

    /// Whether there is a ready entry that anyone may get.
    pub(crate) fn unrestricted_ready(&self) -> bool {
        self.ready > self.restricted.len() as u64
    }

    /// Ready entries that some consumer must not get.
    pub(crate) fn restricted(&self) -> impl Iterator<Item = Sequence> {
        self.restricted.iter().copied()
    }

    fn next_fresh(&mut self) -> Option<(Sequence, Place)> {
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
                    return Some((slot.sequence, place));
                }
                Some(_) => place.slot += 1,
                None => place = Place { chunk: place.chunk + 1, slot: 0 },
            }
        }
    }

    /// The entry at `place` is gone: a tombstone from now on. Places are void afterwards.
    pub(crate) fn bury(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk];
        debug_assert_eq!(chunk.slots[place.slot].packed.state(), State::Gone, "only what is gone is buried");
        chunk.dead += 1;
        let live = chunk.live();
        if live == 0 {
            self.remove_chunk(place.chunk);
        } else if live <= CHUNK / 2 {
            self.join(place.chunk, live);
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

    /// Joins a chunk with a neighbor where what lives of both fits well into one, without tombstones. The last chunk grows,
    /// and is left alone. So the chunks of a list are on average more than a third full, whatever goes in which order.
    fn join(&mut self, at: usize, live: usize) {
        let last = self.chunks.len() - 1;
        let fits = |other: usize| other < last && self.chunks[other].live() + live <= WELL_FILLED;
        let left = if at == last {
            return;
        } else if at > 0 && fits(at - 1) {
            at - 1
        } else if fits(at + 1) {
            at
        } else {
            return;
        };
        let mut right = core::mem::take(&mut self.chunks[left + 1].slots);
        let chunk = &mut self.chunks[left];
        chunk.slots.retain(|s| s.packed.state() != State::Gone);
        chunk.slots.extend(right.drain(..).filter(|s| s.packed.state() != State::Gone));
        chunk.dead = 0;
        self.chunks[left + 1].slots = right;
        self.remove_chunk(left + 1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Event;
    use crate::slot::{Flag, Packed};
    use packhorse_model::{Content, ContentFormat, Head, HeadFlags, Resident};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn packed(state: State) -> Packed {
        let head = Head {
            arrived_ms: 0,
            ttl_ms: 0,
            message_format: 0,
            priority: 4,
            flags: HeadFlags::default(),
            format: ContentFormat::Amqp10,
        };
        Packed::new(head, Content::Body(Resident { buffer: 1, offset: 0, length: 1 }), state)
    }

    /// A list beside a map of what it should hold.
    #[derive(Default)]
    struct Pair {
        list: List,
        model: BTreeMap<Sequence, State>,
        next: Sequence,
    }

    impl Pair {
        fn push(&mut self, gap: u64, state: State) {
            self.next += gap;
            self.list.push(Slot { sequence: self.next, packed: packed(state) });
            self.model.insert(self.next, state);
            self.next += 1;
        }

        /// Puts one in wherever it belongs, ready at once or to come.
        fn insert(&mut self, sequence: Sequence, state: State) {
            if self.list.find(sequence).is_some() {
                // Numbers are drawn once: this one was there.
                return;
            }
            let place = self.list.insert(Slot { sequence, packed: packed(state) });
            assert_eq!((self.list.find(sequence), self.list.slot(place).sequence), (Some(place), sequence));
            self.model.insert(sequence, state);
            self.next = self.next.max(sequence + 1);
        }

        fn change(&mut self, sequence: Sequence, event: Event) {
            let place = self.list.find(sequence).expect("what lives is found");
            let slot = self.list.slot_mut(place);
            assert_eq!(slot.sequence, sequence);
            let transition = slot.apply(event).unwrap();
            if transition.from == State::Available {
                self.list.remove_ready(sequence, false);
            }
            if transition.to == State::Available {
                self.list.add_ready(sequence, false);
            }
            if transition.to == State::Gone {
                self.list.bury(place);
                self.model.remove(&sequence);
            } else {
                self.model.insert(sequence, transition.to);
            }
        }

        fn first(&mut self) -> Option<Sequence> {
            let first = self.list.first_ready(&mut 0, |_| true).map(|(sequence, place)| {
                assert_eq!(self.list.find(sequence), Some(place));
                sequence
            });
            let expected = self.model.iter().find(|(_, s)| **s == State::Available).map(|(n, _)| *n);
            assert_eq!(first, expected, "the first ready entry");
            first
        }

        fn check(&self) {
            assert_eq!(self.list.audit(), Ok(()));
            let live: Vec<_> = self.list.live().map(|s| (s.sequence, s.packed.state())).collect();
            assert_eq!(live, self.model.iter().map(|(n, s)| (*n, *s)).collect::<Vec<_>>());
            let chunks = self.list.chunks.len();
            assert!(chunks <= 3 + self.model.len() * 3 / CHUNK, "{chunks} chunks for {} entries", self.model.len());
            assert!(self.list.spare.len() <= chunks + 2);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_list_is_a_sorted_map_however_long(steps in prop::collection::vec(any::<u32>(), 1..60)) {
            let mut pair = Pair::default();
            for step in steps {
                let [what, a, b, c] = step.to_le_bytes();
                let count = usize::from(a) * 4;
                let mut dice = u64::from(step);
                let mut pick = |n: usize| {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (dice >> 33) as usize % n.max(1)
                };
                match what % 8 {
                    0 | 1 => {
                        for n in 0..count {
                            // Dense, or with gaps, some of them wide.
                            let gap = if b % 3 == 0 { 0 } else { [0, 1, 5, 1 << 40][pick(4) * usize::from(n % 64 == 0)] };
                            pair.push(gap, if n % 7 == 3 && c % 2 == 0 { State::Staged } else { State::Available });
                        }
                    }
                    2 => {
                        for _ in 0..count {
                            let Some(first) = pair.first() else { break };
                            pair.change(first, Event::Dispatch);
                        }
                    }
                    3 => {
                        // Back in some order.
                        let mut held: Vec<_> =
                            pair.model.iter().filter(|(_, s)| **s == State::Acquired).map(|(n, _)| *n).collect();
                        for _ in 0..count.min(held.len()) {
                            let sequence = held.swap_remove(pick(held.len()));
                            pair.change(sequence, Event::ReturnUnseen);
                        }
                    }
                    4 => {
                        // Gone from the front, or anywhere.
                        let mut held: Vec<_> =
                            pair.model.iter().filter(|(_, s)| **s == State::Acquired).map(|(n, _)| *n).collect();
                        for _ in 0..count.min(held.len()) {
                            let at = if b % 2 == 0 { 0 } else { pick(held.len()) };
                            pair.change(held.remove(at), Event::Acknowledge);
                        }
                    }
                    5 | 6 => {
                        // A run of numbers, somewhere; below all of them, now and then.
                        let first = if b.is_multiple_of(5) { 0 } else { pick(pair.next as usize + 2) as u64 };
                        let state = if c.is_multiple_of(3) { State::Staged } else { State::Available };
                        for sequence in first..first + count as u64 / 2 {
                            pair.insert(sequence, state);
                        }
                    }
                    _ => {
                        let staged: Vec<_> =
                            pair.model.iter().filter(|(_, s)| **s == State::Staged).map(|(n, _)| *n).collect();
                        for sequence in staged.into_iter().take(count) {
                            pair.change(sequence, if b % 4 == 0 { Event::Abandon } else { Event::Durable });
                        }
                    }
                }
                pair.first();
                pair.check();
                let between = pair.next / 2;
                let found = pair.list.find(between).map(|p| pair.list.slot(p).packed.state() != State::Gone);
                prop_assert_eq!(found.unwrap_or(false), pair.model.contains_key(&between));
            }
        }
    }

    /// A few at a time, each into a chunk that is full or at its edge: chunks of one or two entries do not pile up.
    #[test]
    fn entries_that_come_one_by_one_into_full_chunks_leave_no_small_ones_behind() {
        for step in [1, 2, 63, 126, 127, 128, 129, 255] {
            let mut pair = Pair::default();
            for _ in 0..4 * CHUNK {
                pair.push(1, State::Available);
            }
            for round in 0..4 * CHUNK as u64 {
                pair.insert(2 * (round * step % (4 * CHUNK as u64)), State::Available);
                pair.check();
            }
            let mut pair = Pair::default();
            for n in 0..6 * CHUNK as u64 {
                pair.push(if n.is_multiple_of(step) { 2 } else { 0 }, State::Available);
            }
            for sequence in (0..pair.next).rev() {
                pair.insert(sequence, State::Staged);
                pair.check();
            }
        }
    }

    #[test]
    fn entries_kept_from_some_are_asked_for_from_the_hint_on() {
        let mut list = List::default();
        for sequence in 0..10 {
            list.push(Slot { sequence, packed: packed(State::Available) });
        }
        for sequence in 0..6 {
            let place = list.find(sequence).unwrap();
            list.slot_mut(place).apply(Event::Dispatch).unwrap();
            list.remove_ready(sequence, false);
        }
        for sequence in [1, 3, 4] {
            let place = list.find(sequence).unwrap();
            list.slot_mut(place).packed.set(Flag::Restricted, true);
            list.slot_mut(place).apply(Event::ReturnUnseen).unwrap();
            list.add_ready(sequence, true);
        }
        let (mut from, mut asked) = (0, Vec::new());
        let first = list.first_ready(&mut from, |s| {
            asked.push(s);
            s == 4
        });
        assert_eq!((first.map(|f| f.0), from, asked), (Some(4), 4, std::vec![1, 3, 4]));
        let first = list.first_ready(&mut from, |_| false);
        assert_eq!((first.map(|f| f.0), from), (Some(6), 6), "all are refused: the next is one that nobody had");
        assert_eq!(list.first_ready(&mut 0, |_| true).map(|f| f.0), Some(1));
        assert_eq!(list.audit(), Ok(()));
    }

    #[test]
    #[should_panic(expected = "ascending")]
    fn entries_enter_in_order() {
        let mut list = List::default();
        list.push(Slot { sequence: 5, packed: packed(State::Available) });
        list.push(Slot { sequence: 5, packed: packed(State::Available) });
    }
}
