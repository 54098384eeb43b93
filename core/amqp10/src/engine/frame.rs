//! Frames into the output.
//!
//! Owns the framing of what we send and the check against the peer's `max-frame-size`.

use alloc::vec::Vec;

use super::connection::Connection;
use crate::codec::{FrameHeader, FrameKind};

impl Connection {
    /// Queues bytes that are no frame: a protocol header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.copy(bytes);
        self.wrote = true;
    }

    /// Queues a frame whose body `fill` appends, unless it would be larger than `max` bytes. Tells whether it did.
    pub(crate) fn framed(&mut self, channel: u16, kind: FrameKind, max: u32, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        let tail = self.out.tail();
        let start = FrameHeader::begin(tail, kind, channel);
        fill(tail);
        if tail.len() - start > max as usize {
            self.out.truncate(start);
            return false;
        }
        FrameHeader::end(tail, start);
        self.wrote = true;
        true
    }

    /// Queues a frame, unless the peer does not take one so large.
    pub(crate) fn try_frame(&mut self, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.framed(channel, FrameKind::Amqp, self.peer_frame, fill)
    }

    /// Queues a frame that is always small enough.
    pub(crate) fn frame(&mut self, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        let fits = self.framed(channel, FrameKind::Amqp, self.peer_frame.max(512), fill);
        debug_assert!(fits, "a frame of fixed fields exceeds 512 bytes");
    }
}
