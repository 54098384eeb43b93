//! The body cache: the ring of recent buffers of bodies, evicted whole and oldest first.
//!
//! An entry holds no reference, only a place (`model::Resident`); "still in memory" is one comparison of buffer numbers. A
//! buffer is not evicted before its batch is durable, for until then nothing else holds the bytes; a buffer of
//! non-persistent bodies is first handed to the store ([`Ring::reclaim`]). Must not know queues or protocols.

use bytes::Bytes;
use packhorse_model::{EntryKey, Planted, Resident, planted};
use packhorse_store::Ticket;
use std::collections::VecDeque;

/// What the ring knows of one buffer.
#[derive(Debug)]
enum Slot {
    /// Bytes are still being copied into it; its place in the order is taken.
    Open,
    /// Bodies that are in the store, or will be once the ticket is durable.
    Stored { bytes: Bytes, held: usize, after: Ticket },
    /// Bodies of non-persistent entries that no store has.
    Volatile { bytes: Bytes, held: usize, entries: Vec<(u8, EntryKey)> },
    /// Nothing was put into it.
    Empty,
}

/// Asked of the caller when memory is short: these bodies exist nowhere else. Hand those of entries that still live to the
/// store and tell [`Ring::spilled`]; the buffer goes when that ticket is durable.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) buffer: u64,
    pub(crate) bytes: Bytes,
    held: usize,
    /// Level and key of each entry put into the buffer.
    pub(crate) entries: Vec<(u8, EntryKey)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: VecDeque<Slot>,
    /// Number of the first slot; the first buffer ever is 1, for 0 means "not in memory".
    oldest: u64,
    /// Memory held by all buffers.
    bytes: u64,
    /// Memory of bodies elsewhere that cannot be evicted: those of transactions.
    pinned: u64,
    /// Buffers of bodies that were read.
    read: u64,
    /// Buffers of bodies that no store has; none is older than the number.
    volatile: u64,
    volatile_from: u64,
    budget: u64,
    /// The most that may be pinned.
    pinned_max: u64,
    /// Memory of evicted buffers, for the next ones: memory that was touched before costs nothing to touch again.
    spare: Vec<Vec<u8>>,
}

/// Buffers kept for the next turns, and the smallest worth keeping.
const SPARES: usize = 16;
const SPARE_FROM_BYTES: usize = 16 << 10;
/// About what a load brings.
const LOAD_BYTES: u64 = 320 << 10;
/// The largest buffer made ahead.
const LARGEST_BYTES: usize = 1 << 20;

impl Ring {
    /// A ring for about `budget` bytes, and what it pins besides.
    pub(crate) fn new(budget: u64, pinned_max: u64) -> Ring {
        Ring {
            slots: VecDeque::new(),
            oldest: 1,
            bytes: 0,
            pinned: 0,
            read: 0,
            volatile: 0,
            volatile_from: 1,
            budget,
            pinned_max,
            spare: Vec::new(),
        }
    }

    /// Numbers below this one are not in memory.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Bytes held, those elsewhere too.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.pinned
    }

    /// Bytes held elsewhere.
    #[cfg(test)]
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// So many more bytes are held elsewhere.
    pub(crate) fn pin(&mut self, bytes: u64) {
        self.pinned += bytes;
    }

    /// Whether so much is held elsewhere that it should become less soon.
    pub(crate) fn pins_much(&self) -> bool {
        self.pinned > self.pinned_max / 2
    }

    /// Whether so many more bytes may be held elsewhere.
    pub(crate) fn may_pin(&self, bytes: u64) -> bool {
        self.pinned.saturating_add(bytes) <= self.pinned_max
    }

    /// So many fewer.
    pub(crate) fn unpin(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.pinned, "what is let go was held");
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// Whether they are more than they should be.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes() > self.budget
    }

    /// An empty buffer for about so many bytes.
    pub(crate) fn buffer_for(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |spare: &Vec<u8>| spare.capacity() >= bytes && spare.capacity() / 4 <= bytes;
        match self.spare.iter().position(fits) {
            Some(at) => self.spare.swap_remove(at),
            None => Vec::with_capacity(bytes.min(LARGEST_BYTES).next_power_of_two()),
        }
    }

    /// Takes the next number, for a buffer whose bytes come later.
    pub(crate) fn open(&mut self) -> u64 {
        self.slots.push_back(Slot::Open);
        self.oldest + self.slots.len() as u64 - 1
    }

    /// Whether another run of bodies may be read while so many are under way. One always may, unless one that was read cannot be
    /// evicted because what lies before it waits for a flush.
    pub(crate) fn has_room_for_load(&self, under_way: u64) -> bool {
        let fits = self.bytes() + (under_way + 1) * LOAD_BYTES <= self.budget;
        fits || (under_way == 0 && (!self.is_short() || self.read == 0))
    }

    /// Bytes of an opened buffer that the store gets with this ticket, and the memory they hold. `Ticket(0)`: the store has
    /// them already.
    pub(crate) fn fill(&mut self, buffer: u64, bytes: Bytes, held: usize, after: Ticket) {
        self.set(buffer, if bytes.is_empty() { Slot::Empty } else { Slot::Stored { bytes, held, after } });
    }

    /// Bytes of an opened buffer that nothing else has, and the memory they hold.
    pub(crate) fn fill_volatile(&mut self, buffer: u64, bytes: Bytes, held: usize, entries: Vec<(u8, EntryKey)>) {
        self.set(buffer, if entries.is_empty() { Slot::Empty } else { Slot::Volatile { bytes, held, entries } });
    }

    /// Another entry has its body in this buffer of non-persistent bodies.
    pub(crate) fn also_in(&mut self, buffer: u64, entry: (u8, EntryKey)) {
        let slot = buffer.checked_sub(self.oldest).and_then(|index| self.slots.get_mut(index as usize));
        if let Some(Slot::Volatile { entries, .. }) = slot {
            entries.push(entry);
        }
    }

    /// The entries of a spilled buffer are on their way into the store with this ticket.
    pub(crate) fn spilled(&mut self, spill: Spill, after: Ticket) {
        let Spill { buffer, bytes, held, .. } = spill;
        // None of its entries lives any more.
        let none = after == Ticket(0);
        self.set(buffer, if none { Slot::Empty } else { Slot::Stored { bytes, held, after } });
    }

    /// The bytes of a body, shared; `None` if it is not in memory.
    pub(crate) fn get(&self, place: Resident) -> Option<Bytes> {
        if place.length == 0 {
            return Some(Bytes::new());
        }
        let bytes = self.buffer(place.buffer)?;
        Some(bytes.slice(place.offset as usize..place.offset as usize + place.length as usize))
    }

    /// The bytes of a body, borrowed; `None` if it is not in memory.
    pub(crate) fn look(&self, place: Resident) -> Option<&[u8]> {
        if place.length == 0 {
            return Some(&[]);
        }
        let bytes = self.buffer(place.buffer)?;
        Some(&bytes[place.offset as usize..place.offset as usize + place.length as usize])
    }

    /// Evicts what memory is short of and the store has up to `durable`. `Some`: the oldest buffer must be spilled first.
    pub(crate) fn reclaim(&mut self, durable: Ticket) -> Option<Spill> {
        loop {
            let short = self.is_short();
            match self.slots.front() {
                Some(Slot::Empty) => {}
                Some(Slot::Stored { after, .. }) if short && *after <= durable => {}
                // What comes behind one that waits for its flush would pile up meanwhile; in the store it counts.
                _ if short && self.volatile > 0 => return self.oldest_volatile(),
                _ => return None,
            }
            if let Some(Slot::Stored { bytes, held, after }) = self.slots.pop_front() {
                self.read -= u64::from(after == Ticket(0));
                if planted(Planted::LeakMemory) {
                    std::mem::forget(bytes);
                } else {
                    self.bytes -= held as u64;
                    self.keep(bytes);
                }
            }
            self.oldest += 1;
        }
    }

    fn oldest_volatile(&mut self) -> Option<Spill> {
        let from = self.volatile_from.max(self.oldest);
        for number in from..self.oldest + self.slots.len() as u64 {
            let slot = &mut self.slots[(number - self.oldest) as usize];
            if !matches!(slot, Slot::Volatile { .. }) {
                continue;
            }
            let Slot::Volatile { bytes, held, entries } = std::mem::replace(slot, Slot::Open) else {
                unreachable!("matched above")
            };
            self.bytes -= held as u64;
            self.volatile -= 1;
            self.volatile_from = number + 1;
            return Some(Spill { buffer: number, bytes, held, entries });
        }
        None
    }

    /// Keeps the memory of an evicted buffer, if nobody else has a part of it.
    fn keep(&mut self, bytes: Bytes) {
        if self.spare.len() < SPARES
            && bytes.len() >= SPARE_FROM_BYTES
            && let Ok(buffer) = bytes.try_into_mut()
        {
            let mut buffer = Vec::from(buffer);
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn buffer(&self, number: u64) -> Option<&Bytes> {
        let index = number.checked_sub(self.oldest)?;
        match self.slots.get(index as usize)? {
            Slot::Stored { bytes, .. } | Slot::Volatile { bytes, .. } => Some(bytes),
            Slot::Open | Slot::Empty => None,
        }
    }

    fn set(&mut self, number: u64, slot: Slot) {
        let index = (number - self.oldest) as usize;
        debug_assert!(matches!(self.slots[index], Slot::Open), "buffer {number} is filled once");
        match &slot {
            Slot::Stored { held, after, .. } => {
                self.bytes += *held as u64;
                self.read += u64::from(*after == Ticket(0));
            }
            Slot::Volatile { held, .. } => {
                self.bytes += *held as u64;
                self.volatile += 1;
                self.volatile_from = self.volatile_from.min(number);
            }
            Slot::Open | Slot::Empty => {}
        }
        self.slots[index] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_model::QueueId;

    fn place(buffer: u64, offset: u32, length: u32) -> Resident {
        Resident { buffer, offset, length }
    }

    #[test]
    fn a_buffer_stays_until_its_ticket_is_durable() {
        let mut ring = Ring::new(10, 0);
        let first = ring.open();
        ring.fill(first, Bytes::from_static(b"0123456789abcdef"), 16, Ticket(1));
        assert_eq!(ring.look(place(first, 2, 3)), Some(&b"234"[..]));
        assert!(ring.reclaim(Ticket(0)).is_none());
        assert_eq!(ring.look(place(first, 2, 3)), Some(&b"234"[..]));
        assert!(ring.reclaim(Ticket(1)).is_none());
        assert_eq!(ring.look(place(first, 2, 3)), None);
        assert_eq!((ring.bytes(), ring.oldest()), (0, first + 1));
    }

    #[test]
    fn nothing_is_evicted_within_the_budget_and_an_open_buffer_keeps_its_place() {
        let mut ring = Ring::new(100, 0);
        let (open, filled) = (ring.open(), ring.open());
        ring.fill(filled, Bytes::from_static(b"xyz"), 3, Ticket(0));
        assert!(ring.reclaim(Ticket(9)).is_none());
        assert_eq!(ring.look(place(filled, 0, 3)), Some(&b"xyz"[..]));
        assert_eq!(ring.look(place(open, 0, 1)), None);
        assert_eq!(ring.look(place(open, 0, 0)), Some(&[][..]), "of nothing there is always all");
        ring.fill(open, Bytes::new(), 0, Ticket(0));
        assert!(ring.reclaim(Ticket(9)).is_none());
        assert_eq!(ring.oldest(), filled);
    }

    #[test]
    fn bodies_that_exist_nowhere_else_are_spilled_first() {
        let mut ring = Ring::new(4, 0);
        let key = EntryKey { queue: QueueId(1), sequence: 7 };
        let buffer = ring.open();
        ring.fill_volatile(buffer, Bytes::from_static(b"volatile"), 8, vec![(4, key)]);
        let spill = ring.reclaim(Ticket(0)).expect("memory is short");
        assert_eq!((&spill.bytes[..], &spill.entries[..]), (&b"volatile"[..], &[(4, key)][..]));
        ring.spilled(spill, Ticket(3));
        assert_eq!(ring.look(place(buffer, 0, 8)), Some(&b"volatile"[..]));
        assert!(ring.reclaim(Ticket(2)).is_none());
        assert!(ring.reclaim(Ticket(3)).is_none());
        assert_eq!((ring.look(place(buffer, 0, 8)), ring.bytes()), (None, 0));
    }

    #[test]
    fn what_no_store_has_is_spilled_although_a_flush_is_waited_for_before_it() {
        let mut ring = Ring::new(4, 0);
        let first = ring.open();
        ring.fill(first, Bytes::from_static(b"stored"), 6, Ticket(1));
        let buffers = [ring.open(), ring.open()];
        let key = |sequence| vec![(4, EntryKey { queue: QueueId(1), sequence })];
        // Filled the other way round.
        ring.fill_volatile(buffers[1], Bytes::from_static(b"two"), 3, key(2));
        let spill = ring.reclaim(Ticket(0)).expect("memory is short");
        assert_eq!(spill.buffer, buffers[1]);
        ring.spilled(spill, Ticket(2));
        assert!(ring.reclaim(Ticket(0)).is_none());
        ring.fill_volatile(buffers[0], Bytes::from_static(b"one"), 3, key(1));
        let spill = ring.reclaim(Ticket(0)).expect("memory is short");
        assert_eq!(spill.buffer, buffers[0]);
        // Its entries have gone.
        ring.spilled(spill, Ticket(0));
        assert_eq!(ring.bytes(), 9);
        assert!(ring.reclaim(Ticket(2)).is_none());
        assert_eq!((ring.bytes(), ring.oldest()), (3, buffers[1]), "within the budget again");
    }

    #[test]
    fn loads_wait_while_memory_is_short_but_for_one() {
        let mut ring = Ring::new(1 << 20, 0);
        assert!(ring.has_room_for_load(0) && ring.has_room_for_load(2) && !ring.has_room_for_load(3));
        let batch = ring.open();
        ring.fill(batch, Bytes::from_static(b"unflushed"), 2 << 20, Ticket(1));
        assert!(ring.has_room_for_load(0) && !ring.has_room_for_load(1));
        let read = ring.open();
        ring.fill(read, Bytes::from_static(b"read"), 300 << 10, Ticket(0));
        assert!(!ring.has_room_for_load(0), "it cannot be evicted before the batch");
        assert!(ring.reclaim(Ticket(1)).is_none());
        assert!(ring.has_room_for_load(0) && ring.has_room_for_load(1));
        let mut tiny = Ring::new(0, 0);
        let read = tiny.open();
        tiny.fill(read, Bytes::from_static(b"read"), 4, Ticket(0));
        assert!(!tiny.has_room_for_load(0));
        assert!(tiny.reclaim(Ticket(0)).is_none());
        assert!(tiny.has_room_for_load(0), "one always goes");
    }

    #[test]
    fn the_memory_of_an_evicted_buffer_is_used_again() {
        let mut ring = Ring::new(0, 0);
        let mut buffer = ring.buffer_for(40_000);
        buffer.resize(40_000, 7);
        let (at, held) = (buffer.as_ptr(), buffer.capacity());
        let number = ring.open();
        ring.fill(number, Bytes::from(buffer), held, Ticket(1));
        assert_eq!(ring.bytes(), held as u64);
        assert!(ring.reclaim(Ticket(1)).is_none());
        let again = ring.buffer_for(30_000);
        assert_eq!((again.as_ptr(), again.len(), ring.bytes()), (at, 0, 0));
        // Not for a few bytes: they would pin it.
        ring.spare.push(again);
        let small = ring.buffer_for(100);
        assert_ne!(small.as_ptr(), at);
    }
}
