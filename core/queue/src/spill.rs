//! Bodies that no store has and whose memory is wanted: which entries need them still.
//!
//! Must not know: buffers beyond their numbers, or how a body gets into the store.

use crate::Queue;
use crate::entry::State;
use crate::slot::Flag;
use packhorse_model::{Content, Head, Resident, Sequence};

impl Queue {
    /// The shard is about to give up `buffer`, into which this entry's body was put. `Some`: the entry lives, its body is
    /// nowhere else, and the caller must hand it to the store as a volatile Enqueue in the turn's batch; from now on the
    /// queue takes it as stored there.
    pub fn spill(&mut self, level: u8, sequence: Sequence, buffer: u64) -> Option<(Head, Resident)> {
        let Some(place) = self.find(level, sequence) else { return self.spill_ending(sequence, buffer) };
        let packed = &mut self.list_mut(level).slot_mut(place).packed;
        if packed.state() == State::Gone || packed.has(Flag::Stored) {
            return None;
        }
        let Content::Body(body) = packed.content() else { return None };
        if body.buffer != buffer {
            return None;
        }
        packed.set(Flag::Stored, true);
        Some((packed.head(), body))
    }
}
