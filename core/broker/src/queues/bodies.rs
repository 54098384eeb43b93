//! Bodies of messages on this shard: copied into the turn's batch or a buffer of their own, kept in the ring, spilled and read
//! again. Must not know links.

use super::Queues;
use crate::mail::{LinkRef, Payload};
use bytes::Bytes;
use packhorse_model::{Content, EntryKey, Head, LargeId, Overlay, Resident};
use packhorse_queue::{Enqueue, Input};
use packhorse_store::{Batch, Load, LoadLarge, Loaded, Op, Stored, Ticket};

/// A body of at least this many bytes that came in many frames becomes a piece of its own instead of being copied.
const SHARE_FROM_BYTES: usize = 64 << 10;

impl Queues {
    /// Puts a message into a queue of this shard.
    pub(super) fn enter(&mut self, slot: u32, head: Head, payload: Payload<'_>, overlay: Option<Box<Overlay>>) -> u64 {
        let persistent = head.persistent();
        let mut keep = None;
        let (content, stored) = match payload {
            Payload::Large { id, length } => (Content::Large { id, length }, Some(Stored::Large { id, length })),
            Payload::Slice(bytes) if persistent => self.copy(bytes),
            Payload::Shared(bytes) if persistent && bytes.len() < SHARE_FROM_BYTES => self.copy(&bytes),
            Payload::Shared(bytes) if persistent => {
                let body = self.batch.share_body(bytes);
                let buffer = self.piece(body.piece);
                (Content::Body(Resident { buffer, offset: 0, length: body.length }), Some(Stored::Body(body)))
            }
            Payload::Slice(bytes) => (self.copy_volatile(bytes), None),
            Payload::Shared(bytes) if bytes.len() < SHARE_FROM_BYTES => (self.copy_volatile(&bytes), None),
            Payload::Shared(bytes) => {
                let buffer = self.ring.open();
                let content = Content::Body(Resident { buffer, offset: 0, length: bytes.len() as u32 });
                keep = Some((buffer, bytes));
                (content, None)
            }
        };
        let entered = self.tell(slot, Input::Enqueue(Enqueue { head, content, stored, overlay }));
        let sequence = entered.sequence().expect("an enqueue draws a number");
        let key = EntryKey { queue: self.held[slot as usize].id, sequence };
        if let Some((buffer, bytes)) = keep {
            let held = bytes.len();
            self.ring.fill_volatile(buffer, bytes, held, vec![(head.level(), key)]);
        } else if stored.is_none() {
            self.volatile_entries.push((head.level(), key));
        }
        sequence
    }

    pub(super) fn copy(&mut self, bytes: &[u8]) -> (Content, Option<Stored>) {
        let body = self.batch.copy_body(bytes);
        let buffer = self.piece(0);
        let content = Content::Body(Resident { buffer, offset: body.offset, length: body.length });
        (content, Some(Stored::Body(body)))
    }

    pub(super) fn copy_volatile(&mut self, bytes: &[u8]) -> Content {
        if self.volatile_buffer == 0 {
            self.volatile_buffer = self.ring.open();
        }
        let offset = self.volatile.len() as u32;
        self.volatile.extend_from_slice(bytes);
        Content::Body(Resident { buffer: self.volatile_buffer, offset, length: bytes.len() as u32 })
    }

    /// The number in the ring of a piece of the batch.
    pub(super) fn piece(&mut self, index: u32) -> u64 {
        let index = index as usize;
        if self.pieces.len() <= index {
            self.pieces.resize(index + 1, 0);
        }
        if self.pieces[index] == 0 {
            self.pieces[index] = self.ring.open();
        }
        self.pieces[index]
    }

    /// Bodies are in memory now.
    pub(crate) fn on_loaded(&mut self, loaded: &Loaded) {
        self.loading -= 1;
        let buffer = self.ring.open();
        self.ring.fill(buffer, loaded.buffer.clone(), loaded.buffer.len(), Ticket(0));
        if let Some(slot) = self.slot(loaded.load.queue) {
            self.tell(slot, Input::Loaded { buffer, loaded });
        }
    }

    /// Makes the bytes that were copied in so far readable.
    pub(crate) fn seal_volatile(&mut self) {
        if self.volatile_buffer != 0 {
            let next = self.ring.buffer_for(self.volatile.len());
            let mut bytes = std::mem::replace(&mut self.volatile, next);
            if bytes.len() < bytes.capacity() / 2 {
                bytes.shrink_to_fit();
            }
            let held = bytes.capacity();
            let entries = std::mem::take(&mut self.volatile_entries);
            self.ring.fill_volatile(std::mem::take(&mut self.volatile_buffer), Bytes::from(bytes), held, entries);
        }
    }

    /// Takes the turn's batch, if there is anything in it; its bodies stay in the ring.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        if self.batch.is_empty() {
            debug_assert!(self.pieces.is_empty(), "bodies come with operations");
            return None;
        }
        // The next turn will bring about as much as this one.
        let copied = self.batch.copied_bytes();
        let next = if copied == 0 { Vec::new() } else { self.ring.buffer_for(copied) };
        let mut next = Batch::with_buffer(next);
        next.reserve(self.batch.ops().len());
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.shrink();
        let copied = batch.copied_capacity();
        for (index, piece) in batch.seal().iter().enumerate() {
            if let Some(buffer) = self.pieces.get(index).copied().filter(|b| *b != 0) {
                let held = if index == 0 { copied } else { piece.len() };
                self.ring.fill(buffer, piece.clone(), held, self.ticket);
            }
        }
        self.pieces.clear();
        Some(batch)
    }

    /// The next load for the store, unless memory is short: then it waits, for what keeps memory is flushed soon, and whatever
    /// waits for that starts a turn.
    pub(crate) fn next_load(&mut self) -> Option<Load> {
        if !self.ring.has_room_for_load(self.loading) {
            return None;
        }
        let load = self.loads.pop_front()?;
        self.loading += 1;
        Some(load)
    }

    /// Evicts bodies while memory is short; non-persistent ones go to the store first.
    pub(crate) fn reclaim(&mut self) {
        while let Some(spill) = self.ring.reclaim(self.due.durable()) {
            let mut piece = None;
            for (level, key) in &spill.entries {
                let Some(slot) = self.slot(key.queue) else { continue };
                let queue = &mut self.held[slot as usize].queue;
                let Some((head, place)) = queue.spill(*level, key.sequence, spill.buffer) else { continue };
                if let Some(relocating) = self.relocating.get_mut(key) {
                    relocating.spilled = true;
                }
                let piece = *piece.get_or_insert_with(|| self.batch.share_piece(spill.bytes.clone()));
                let body = packhorse_store::Body { piece, offset: place.offset, length: place.length };
                self.batch.push(Op::Enqueue {
                    queue: key.queue,
                    sequence: key.sequence,
                    head,
                    content: Stored::Body(body),
                    volatile: true,
                });
            }
            let after = if piece.is_some() { self.ticket } else { Ticket(0) };
            self.ring.spilled(spill, after);
        }
    }

    /// A file for a large message. Unique for ever: it names the start, the shard and a count.
    pub(crate) fn new_large(&mut self) -> LargeId {
        self.large_count += 1;
        LargeId(self.run << 40 | u64::from(self.shard.0) << 32 | u64::from(self.large_count))
    }

    /// Asks for a part of a large message, for a link of this shard.
    pub(crate) fn read_large(&mut self, link: LinkRef, id: LargeId, offset: u64, length: u32) {
        let token = self.next_token;
        self.next_token += 1;
        self.large_readers.insert(token, link);
        self.large_loads.push(LoadLarge { token, id, offset, length });
    }
}
