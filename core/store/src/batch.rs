//! A batch: the operations of one turn and the bytes that they refer to. All or nothing.

use crate::{Body, Op};
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{QueueId, Sequence};

/// A shard's number for a submitted batch: 1, 2, 3 … in one run of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The ticket after this one.
    #[must_use]
    pub fn next(self) -> Ticket {
        Ticket(self.0 + 1)
    }
}

/// Operations in order, with their bodies in pieces. Piece 0 collects small bodies by copy; further pieces are shared.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    ops: Vec<Op>,
    small: Vec<u8>,
    pieces: Vec<Bytes>,
    urgent: bool,
    sealed: bool,
}

impl Batch {
    /// An empty batch whose first piece is copied into this empty buffer.
    pub fn with_buffer(buffer: Vec<u8>) -> Batch {
        debug_assert!(buffer.is_empty(), "the buffer of a new batch is empty");
        Batch { small: buffer, ..Batch::default() }
    }

    /// Makes room for so many operations.
    pub fn reserve(&mut self, ops: usize) {
        self.ops.reserve(ops);
    }

    /// Bytes of bodies copied so far; 0 once the batch is sealed.
    pub fn copied_bytes(&self) -> usize {
        self.small.len()
    }

    /// Gives back the memory of the copied bodies' buffer when most of it is not used: it is kept as long as they are.
    pub fn shrink(&mut self) {
        if self.small.len() < self.small.capacity() / 2 {
            self.small.shrink_to_fit();
        }
    }

    /// Memory that the copied bodies hold, bytes, until the batch is sealed.
    pub fn copied_capacity(&self) -> usize {
        self.small.capacity()
    }

    /// Whether there is nothing to submit.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The operations so far.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Bytes of bodies so far.
    pub fn content_bytes(&self) -> usize {
        self.small.len() + self.pieces.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether somebody waits for this batch: a flush must not be put off.
    pub fn urgent(&self) -> bool {
        self.urgent
    }

    /// Says that somebody waits for an operation that is not urgent by itself, e.g. an acknowledgement with a reply.
    pub fn require_flush(&mut self) {
        self.urgent = true;
    }

    /// Copies a small body behind the others.
    pub fn copy_body(&mut self, bytes: &[u8]) -> Body {
        debug_assert!(!self.sealed, "a sealed batch takes no more bytes");
        let offset = self.small.len() as u32;
        self.small.extend_from_slice(bytes);
        Body { piece: 0, offset, length: bytes.len() as u32 }
    }

    /// Takes a body as a piece of its own, without a copy.
    pub fn share_body(&mut self, bytes: Bytes) -> Body {
        let length = bytes.len() as u32;
        let piece = self.share_piece(bytes);
        Body { piece, offset: 0, length }
    }

    /// Takes a piece that holds any number of bodies; the answer is its index.
    pub fn share_piece(&mut self, bytes: Bytes) -> u32 {
        debug_assert!(!self.sealed, "a sealed batch takes no more bytes");
        self.pieces.push(bytes);
        self.pieces.len() as u32
    }

    /// Appends an operation.
    pub fn push(&mut self, op: Op) {
        self.urgent |= op.urgent();
        self.ops.push(op);
    }

    /// Appends an acknowledgement, merged with the operation before it where that makes one range.
    pub fn acknowledge(&mut self, queue: QueueId, sequence: Sequence) {
        if let Some(Op::Acknowledge { queue: q, last, .. }) = self.ops.last_mut()
            && *q == queue
            && *last + 1 == sequence
        {
            *last = sequence;
            return;
        }
        self.push(Op::Acknowledge { queue, first: sequence, last: sequence });
    }

    /// Ends the copying: the pieces (index 0 = the copied bodies), shared, for a cache. Nothing may be copied in after this.
    pub fn seal(&mut self) -> &[Bytes] {
        if !self.sealed {
            self.sealed = true;
            self.pieces.insert(0, Bytes::from(core::mem::take(&mut self.small)));
        }
        &self.pieces
    }

    /// The batch's parts: operations, and all pieces (index 0 = the copied bodies).
    pub fn into_parts(mut self) -> (Vec<Op>, Vec<Bytes>) {
        self.seal();
        (self.ops, self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_acknowledgements_are_one_range() {
        let mut batch = Batch::default();
        for (queue, sequence) in [(1, 5), (1, 6), (1, 8), (2, 9), (2, 10)] {
            batch.acknowledge(QueueId(queue), sequence);
        }
        let ranges: Vec<_> = batch
            .ops()
            .iter()
            .map(|op| match op {
                Op::Acknowledge { queue, first, last } => (queue.0, *first, *last),
                _ => unreachable!("only acknowledgements were pushed"),
            })
            .collect();
        assert_eq!(ranges, [(1, 5, 6), (1, 8, 8), (2, 9, 10)]);
        assert!(!batch.urgent());
        batch.require_flush();
        assert!(batch.urgent());
    }

    #[test]
    fn pieces_keep_their_index_when_sealed() {
        let mut batch = Batch::default();
        let shared = batch.share_body(Bytes::from_static(b"shared"));
        let copied = batch.copy_body(b"copied");
        assert_eq!((shared.piece, copied.piece), (1, 0));
        assert_eq!(batch.content_bytes(), 12);
        batch.seal();
        assert_eq!(batch.content_bytes(), 12);
        let (_, pieces) = batch.into_parts();
        assert_eq!(&pieces[0][..], b"copied");
        assert_eq!(&pieces[1][..], b"shared");
    }
}
