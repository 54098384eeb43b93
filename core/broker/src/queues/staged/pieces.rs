//! Bodies of the messages that a transaction adds to one queue, in pieces. A piece has a number, ascending over the part's life, by
//! which the queue knows it. Must not know queues, transactions or the ring.

use crate::mail::Payload;
use bytes::Bytes;
use packhorse_model::{Content, Head, Resident};
use packhorse_store::{Batch, Body, Stored, TxnOp};

/// A body of at least this many bytes that came in many frames is a piece of its own instead of being copied.
const SHARE_FROM_BYTES: usize = 64 << 10;

/// A piece takes no more bodies from here on: as much as goes ahead at once.
const FULL_BYTES: usize = 1 << 20;

/// The least room of a piece that is not the first of its kind.
const ROOM_BYTES: usize = 4 << 10;

/// Whose bodies are in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of messages that survive a crash: the store gets them.
    Persistent,
    /// Of others: nothing else has them.
    Volatile,
}

impl Kind {
    pub(super) fn of(head: &Head) -> Kind {
        if head.persistent() { Kind::Persistent } else { Kind::Volatile }
    }
}

/// The bytes of a piece.
#[derive(Debug)]
pub(super) enum Bodies {
    /// More may be copied behind them, as far as there is room: what is there is not moved.
    Growing(Vec<u8>),
    Whole(Bytes),
}

impl Bodies {
    fn len(&self) -> usize {
        match self {
            Bodies::Growing(bytes) => bytes.len(),
            Bodies::Whole(bytes) => bytes.len(),
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Bodies::Growing(mut bytes) => {
                if bytes.len() < bytes.capacity() / 2 {
                    bytes.shrink_to_fit();
                }
                Bytes::from(bytes)
            }
            Bodies::Whole(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
pub(super) struct Piece {
    number: u64,
    pub(super) kind: Kind,
    pub(super) bytes: Bodies,
    /// Bodies in it that are not written ahead.
    left: u32,
    /// Level and index of the adds, of a volatile one.
    pub(super) adds: Vec<(u8, u32)>,
}

impl Piece {
    /// The bytes, shared: nothing is copied in any more.
    fn seal(&mut self) -> Bytes {
        if let Bodies::Growing(bytes) = &mut self.bytes {
            self.bytes = Bodies::Whole(Bodies::Growing(std::mem::take(bytes)).into_bytes());
        }
        match &self.bytes {
            Bodies::Whole(bytes) => bytes.clone(),
            Bodies::Growing(_) => unreachable!("it was made whole"),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// In the order of numbers.
    pieces: Vec<Piece>,
    /// The last number.
    last: u64,
    /// Messages added so far.
    adds: u32,
    /// Sum over the pieces.
    bytes: u64,
}

impl Pieces {
    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps the body of the next message; the content by which the queue knows it.
    pub(super) fn add(&mut self, level: u8, kind: Kind, payload: Payload<'_>) -> Content {
        let index = self.adds;
        self.adds += 1;
        let content = match payload {
            Payload::Large { id, length } => return Content::Large { id, length },
            Payload::Slice(bytes) => self.copy(kind, bytes),
            Payload::Shared(bytes) if bytes.len() < SHARE_FROM_BYTES => self.copy(kind, &bytes),
            Payload::Shared(bytes) => {
                let length = bytes.len() as u32;
                let piece = self.open(kind, Bodies::Whole(bytes));
                piece.left = 1;
                Resident { buffer: piece.number, offset: 0, length }
            }
        };
        self.bytes += u64::from(content.length);
        if kind == Kind::Volatile
            && let Some(piece) = self.find(content.buffer)
        {
            piece.adds.push((level, index));
        }
        Content::Body(content)
    }

    fn copy(&mut self, kind: Kind, bytes: &[u8]) -> Resident {
        // Numbers ascend over the bodies of a kind, so only the last piece of it takes more.
        let last = self.pieces.iter().rposition(|piece| piece.kind == kind);
        let takes =
            |held: &Bodies| matches!(held, Bodies::Growing(held) if held.capacity() - held.len() >= bytes.len());
        let piece = match last {
            Some(at) if takes(&self.pieces[at].bytes) => &mut self.pieces[at],
            last => {
                // The first has room for one body, as many transactions have no more; each later one for twice as much as the one before.
                let before = last.map(|at| self.pieces[at].bytes.len());
                let room = before.map_or(0, |before| (2 * before).clamp(ROOM_BYTES, FULL_BYTES));
                self.open(kind, Bodies::Growing(Vec::with_capacity(room.max(bytes.len()))))
            }
        };
        piece.left += 1;
        let Bodies::Growing(held) = &mut piece.bytes else { unreachable!("it takes more") };
        let offset = held.len() as u32;
        held.extend_from_slice(bytes);
        Resident { buffer: piece.number, offset, length: bytes.len() as u32 }
    }

    fn open(&mut self, kind: Kind, bytes: Bodies) -> &mut Piece {
        self.last += 1;
        self.pieces.push(Piece { number: self.last, kind, bytes, left: 0, adds: Vec::new() });
        self.pieces.last_mut().expect("it was just put in")
    }

    fn find(&mut self, number: u64) -> Option<&mut Piece> {
        let at = self.pieces.binary_search_by_key(&number, |piece| piece.number).ok()?;
        self.pieces.get_mut(at)
    }

    /// The message that was added last is not wanted.
    pub(super) fn remove_last(&mut self, kind: Kind, content: Content) {
        self.adds -= 1;
        let Content::Body(body) = content else { return };
        let Ok(at) = self.pieces.binary_search_by_key(&body.buffer, |piece| piece.number) else { return };
        let piece = &mut self.pieces[at];
        if let Bodies::Growing(held) = &mut piece.bytes {
            held.truncate(body.offset as usize);
        }
        if kind == Kind::Volatile {
            piece.adds.pop();
        }
        piece.left -= 1;
        self.bytes -= u64::from(body.length);
        if piece.left == 0 {
            self.pieces.remove(at);
        }
    }

    /// What these operations refer to, shared, numbered anew from 0.
    pub(super) fn share(&mut self, ops: &mut [TxnOp]) -> Vec<Bytes> {
        let mut shared: Vec<Bytes> = Vec::new();
        let mut last = None;
        for body in bodies(ops) {
            let number = u64::from(body.piece);
            if last != Some(number) {
                let piece = self.find(number).expect("the queue names a piece that is kept");
                shared.push(piece.seal());
                last = Some(number);
            }
            body.piece = shared.len() as u32 - 1;
        }
        shared
    }

    /// Puts what these operations refer to into the batch; it is not kept any longer.
    pub(super) fn hand_over(&mut self, ops: &mut [TxnOp], batch: &mut Batch) {
        let mut last = None;
        for body in bodies(ops) {
            let number = u64::from(body.piece);
            let piece = self.find(number).expect("the queue names a piece that is kept");
            piece.left -= 1;
            body.piece = match last {
                Some((before, index)) if before == number => index,
                _ => batch.share_piece(piece.seal()),
            };
            last = Some((number, body.piece));
        }
        let kept = &mut self.bytes;
        self.pieces.retain(|piece| {
            let stays = piece.left > 0;
            *kept -= if stays { 0 } else { piece.bytes.len() as u64 };
            stays
        });
    }

    /// Takes out those of persistent messages.
    pub(super) fn take_persistent(&mut self) -> Vec<Piece> {
        let taken: Vec<Piece> = self.pieces.extract_if(.., |piece| piece.kind == Kind::Persistent).collect();
        self.bytes -= taken.iter().map(|piece| piece.bytes.len() as u64).sum::<u64>();
        taken
    }

    /// All of them.
    pub(super) fn take_all(self) -> Vec<Piece> {
        self.pieces
    }
}

/// The bodies that operations refer to. Those of a part come in the order of their pieces.
fn bodies(ops: &mut [TxnOp]) -> impl Iterator<Item = &mut Body> {
    ops.iter_mut().filter_map(|op| match op {
        TxnOp::Enqueue { content: Stored::Body(body), .. } => Some(body),
        TxnOp::Enqueue { .. } | TxnOp::Acknowledge { .. } | TxnOp::Number { .. } | TxnOp::DuplicateId(_) => None,
    })
}
