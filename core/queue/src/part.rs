//! A transaction's part in a queue, as a value: what it adds and removes, how much of that was written ahead, where bodies are.
//!
//! Must not know: the queue's lists and counts. What is added has no number here, so it stands in no list; its number will be that
//! of the first add + its index.

use crate::ConsumerId;
use crate::entry::{Event, State};
use crate::slot::{Flag, Packed};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{
    Content, DeadLetter, Head, Identity, LargeId, Numbered, Overlay, Purpose, QueueId, QueueName, Reason, Resident,
    Sequence, TxnId,
};
use packhorse_store::{Ahead, Body, Figures, Numbers, Redelivery, Stored, Ticket, TxOps, TxnOp, TxnPart};

/// What is not written weighs so much at most, bytes: bodies, overlays, and [`OP_BYTES`] for each operation.
const AHEAD_BYTES: u64 = 1 << 20;

/// The same while memory is short.
const AHEAD_SHORT_BYTES: u64 = 16 << 10;
/// A new part has room for so many adds, and removes, at most: an empty one is to stay small.
const ROOM_MAX: usize = 128;
/// What an operation weighs beside its body.
const OP_BYTES: u64 = 64;

/// A message that is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Add {
    pub(crate) index: u32,
    /// Its body's place is a piece of the transaction's, see [`Part::at`].
    pub(crate) packed: Packed,
}

/// An entry whose delivery has ended in the transaction.
#[derive(Debug)]
pub(crate) struct Remove {
    pub(crate) level: u8,
    pub(crate) sequence: Sequence,
    /// What a commit makes of it; `None`: it is gone.
    pub(crate) then: Option<Box<Then>>,
}

/// What a commit makes of an entry that was not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Then {
    pub(crate) way: Way,
    /// Its whole overlay, if that changes.
    pub(crate) overlay: Option<Box<Overlay>>,
    /// Who does not get it any more.
    pub(crate) not_to: Option<ConsumerId>,
}

/// See [`Then`].
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// It is ready again.
    Back(Event),
    /// It goes to the dead-letter queue.
    Letter { reason: Reason, detail: String },
}

impl Then {
    /// As a record says it, of an entry of this queue that has these numbers, and this overlay.
    pub(crate) fn told(
        &self,
        address: &QueueName,
        sequence: Sequence,
        (deliveries, attempts): (u32, u32),
        before: Option<&Overlay>,
    ) -> Redelivery {
        let overlay = self.overlay.clone();
        match &self.way {
            Way::Back(Event::CommitSeen) => {
                Redelivery { deliveries: deliveries.saturating_add(1), attempts: attempts.saturating_add(1), overlay }
            }
            Way::Back(_) => Redelivery { deliveries, attempts, overlay },
            Way::Letter { reason, detail } => {
                let mut overlay = overlay.unwrap_or_else(|| Box::new(before.cloned().unwrap_or_default()));
                overlay.dead_letter = Some(Box::new(DeadLetter {
                    reason: *reason,
                    detail: detail.clone(),
                    address: address.clone(),
                    sequence,
                    deliveries: deliveries.saturating_add(1),
                    leaving: true,
                }));
                Redelivery { deliveries, attempts, overlay: Some(overlay) }
            }
        }
    }

    /// The way back. `deliveries`: earlier ones, before that which has ended.
    pub(crate) fn recovered(told: &Redelivery, deliveries: u32) -> Then {
        let mut overlay = told.overlay.clone();
        let way = match overlay.as_mut().filter(|overlay| overlay.leaves()).and_then(|o| o.dead_letter.take()) {
            Some(letter) => Way::Letter { reason: letter.reason, detail: letter.detail },
            None if told.deliveries > deliveries => Way::Back(Event::CommitSeen),
            None => Way::Back(Event::CommitUnseen),
        };
        Then { way, overlay: overlay.filter(|overlay| **overlay != Overlay::default()), not_to: None }
    }
}

/// A question for the part that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) operations: u64,
    pub(crate) purpose: Purpose,
}

#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) adds: Vec<Add>,
    pub(crate) removes: Vec<Remove>,
    /// Operations that have come, refused and stale ones too.
    pub(crate) came: u64,
    /// All have come.
    pub(crate) closed: bool,
    /// The branch is in doubt.
    pub(crate) prepared: bool,
    pub(crate) question: Option<Question>,
    /// The answer to it waits for this ticket.
    pub(crate) until: Option<Ticket>,
    /// Drawn for the adds.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) persistent: bool,
    /// Messages in it that do not survive a crash.
    pub(crate) volatile: u64,
    /// Identities of what is added.
    pub(crate) identities: Vec<Identity>,
    /// Messages that it does not add, because they are there already.
    pub(crate) duplicates: Figures,
    /// The next add's index.
    next_index: u32,
    /// What is to be written.
    ops: Vec<TxnOp>,
    /// What that weighs, bytes.
    weight: u64,
    /// That much of it is overlays.
    overlays: u64,
    ahead: Ahead,
    /// Adds of lower indexes went ahead, if they are persistent.
    index_ahead: u32,
    /// Pieces that the caller keeps, ascending: of persistent messages, and of others.
    pieces: Vec<u64>,
    volatile_pieces: Vec<u64>,
    /// Pieces that are in the ring, ascending, each with its buffer.
    places: Vec<(u64, u64)>,
}

impl Part {
    /// An empty part, with room for so many operations, of few.
    pub(crate) fn with_room(adds: usize, removes: usize) -> Part {
        let (adds, removes) = (adds.min(ROOM_MAX), removes.min(ROOM_MAX));
        Part {
            adds: Vec::with_capacity(adds),
            removes: Vec::with_capacity(removes),
            ops: Vec::with_capacity(adds + removes),
            ..Part::default()
        }
    }

    pub(crate) fn add(&mut self, head: Head, content: Content) {
        let index = self.next_index;
        let mut packed = Packed::new(head, content, State::birth(true));
        let persistent = head.persistent();
        packed.set(Flag::Stored, persistent);
        self.adds.push(Add { index, packed });
        self.next_index += 1;
        let pieces = if persistent { &mut self.pieces } else { &mut self.volatile_pieces };
        if let Content::Body(Resident { buffer, .. }) = content
            && pieces.last() != Some(&buffer)
        {
            pieces.push(buffer);
        }
        if !persistent {
            self.volatile += 1;
            return;
        }
        let content = match content {
            Content::Body(Resident { buffer, offset, length }) => {
                self.weight += u64::from(length);
                Stored::Body(Body { piece: buffer as u32, offset, length })
            }
            Content::Large { id, length } => Stored::Large { id, length },
        };
        self.write(TxnOp::Enqueue { index, head, content });
    }

    /// `op`: of an entry that survives a crash.
    pub(crate) fn remove(&mut self, remove: Remove, op: Option<TxnOp>) {
        self.removes.push(remove);
        let Some(op) = op else {
            self.volatile += 1;
            return;
        };
        if let TxnOp::Acknowledge { redelivery: Some(back), .. } = &op {
            let bytes = back.overlay.as_ref().map_or(0, |overlay| {
                overlay.annotations.len() + overlay.dead_letter.as_ref().map_or(0, |letter| letter.detail.len())
            });
            self.overlays += bytes as u64;
            self.weight += bytes as u64;
        }
        self.write(op);
    }

    /// The message that was added last has this identity.
    pub(crate) fn identify(&mut self, identity: Identity, persistent: bool) {
        self.identities.push(identity);
        if persistent {
            self.write(match identity {
                Identity::Number(Numbered { producer, number, lowest, .. }) => {
                    TxnOp::Number { producer, number, floor: lowest }
                }
                Identity::Id(id) => TxnOp::DuplicateId(id),
            });
        }
    }

    fn write(&mut self, op: TxnOp) {
        self.persistent = true;
        self.weight += OP_BYTES;
        self.ops.push(op);
    }

    /// An add from before this start.
    pub(crate) fn recovered_add(&mut self, index: u32, head: Head, content: Content) {
        let mut packed = Packed::new(head, content, State::birth(true));
        packed.set(Flag::Stored, true);
        self.adds.push(Add { index, packed });
        self.next_index = self.next_index.max(index + 1);
    }

    /// From before this start: nothing comes any more.
    pub(crate) fn set_recovered(&mut self) {
        (self.closed, self.prepared, self.persistent) = (true, true, true);
    }

    /// Whether something may follow from the operation that has come: enough is there to go ahead, or somebody waits for the last one.
    /// `short`: memory is.
    #[inline]
    pub(crate) fn is_due(&self, short: bool) -> bool {
        self.goes_ahead(short) || self.question.is_some()
    }

    #[inline]
    fn goes_ahead(&self, short: bool) -> bool {
        self.weight >= if short { AHEAD_SHORT_BYTES } else { AHEAD_BYTES }
    }

    /// What goes ahead, if that is enough by now.
    pub(crate) fn take_ahead(&mut self, txn: TxnId, queue: QueueId, short: bool) -> Option<Box<TxOps>> {
        if !self.goes_ahead(short) {
            return None;
        }
        let ops = core::mem::take(&mut self.ops);
        let record = self.ahead.records;
        self.ahead.records += 1;
        self.index_ahead = self.next_index;
        self.ahead.ops += ops.iter().filter(|op| op.counts()).count() as u64;
        let others = OP_BYTES * ops.len() as u64 + core::mem::take(&mut self.overlays);
        self.ahead.bytes += core::mem::take(&mut self.weight) - others;
        self.pieces.clear();
        Some(Box::new(TxOps { txn, queue, record, ops }))
    }

    /// Whether something went ahead that no record will name once it is rolled back.
    pub(crate) fn leaves_ahead(&self) -> bool {
        self.ahead.records > 0 && !self.prepared
    }

    /// Numbers that its adds need.
    pub(crate) fn numbers_needed(&self) -> u32 {
        self.next_index
    }

    /// What the record is told.
    pub(crate) fn told(&mut self, purpose: Purpose) -> TxnPart {
        match purpose {
            Purpose::Decide => TxnPart { numbers: self.numbers, ..TxnPart::default() },
            Purpose::Commit | Purpose::Prepare => {
                let ops = core::mem::take(&mut self.ops);
                let (ahead, numbers, duplicates) = (self.ahead, self.numbers, self.duplicates);
                TxnPart { ops, pieces: Vec::new(), ahead, numbers, duplicates }
            }
        }
    }

    /// It is prepared: bodies of persistent messages are in the ring.
    pub(crate) fn prepare(&mut self, buffers: &[u64]) {
        self.prepared = true;
        self.places = self.pieces.drain(..).zip(buffers.iter().copied()).collect();
    }

    /// It is committed: all pieces that are left are in the ring.
    pub(crate) fn commit(&mut self, buffers: &[u64]) {
        let mut left: Vec<u64> = self.pieces.drain(..).chain(self.volatile_pieces.drain(..)).collect();
        left.sort_unstable();
        self.places.extend(left.into_iter().zip(buffers.iter().copied()));
        self.places.sort_unstable();
    }

    /// Where the body of an add is in the ring; what went ahead, or is from before this start, is not there.
    pub(crate) fn at(&self, body: Resident) -> Resident {
        let found = self.places.binary_search_by_key(&body.buffer, |(piece, _)| *piece);
        Resident { buffer: found.map_or(0, |at| self.places[at].1), ..body }
    }

    /// Its files that no store knows.
    pub(crate) fn unknown_files(&self) -> impl Iterator<Item = LargeId> {
        self.adds.iter().filter_map(|add| self.unknown_file(add))
    }

    /// Of what is persistent and went ahead, or is a branch's in doubt, the store keeps the files, and drops them itself.
    pub(crate) fn unknown_file(&self, add: &Add) -> Option<LargeId> {
        let known = add.packed.persistent() && (self.prepared || add.index < self.index_ahead);
        match add.packed.content() {
            Content::Large { id, .. } if !known => Some(id),
            _ => None,
        }
    }
}
