//! Parts of transactions in the queues of this shard: what homes ask of them, and the bodies of the messages that they add, which are
//! pinned in memory until they are written ahead or the transaction ends. Must not know homes or connections.

mod pieces;

use super::Queues;
use crate::mail::Payload;
use crate::ring::Ring;
use packhorse_model::{EntryKey, Head, Identity, Outcome, Purpose, QueueId, Recent, Resolution, ShardId, TxnId};
use packhorse_queue::{self as queue, DeliveryKey};
use packhorse_store::{Op, Ticket, TxOps};
use packhorse_txn::{Cause, Gathered, Input};
use pieces::{Kind, Pieces};

/// What the shard knows of a transaction's part in one of its queues.
#[derive(Debug, Default)]
struct Part {
    pieces: Pieces,
    stage: Stage,
    /// The number drawn for its first add.
    first: Option<u64>,
}

/// How far a part has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It may grow.
    #[default]
    Open,
    /// The home waits for it.
    Asked,
    /// The home has it: its record may be on its way to the disk.
    HandedOver,
    /// In doubt.
    Prepared,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Staged {
    parts: Recent<(QueueId, TxnId), Part>,
}

impl Staged {
    /// The parts in a queue.
    fn of(&self, queue: QueueId) -> impl Iterator<Item = (TxnId, &Part)> {
        let first = TxnId { run: 0, number: 0, home: ShardId(0) };
        let last = TxnId { run: u64::MAX, number: u64::MAX, home: ShardId(u16::MAX) };
        self.parts.range((queue, first)..=(queue, last)).map(|((_, txn), part)| (*txn, part))
    }

    /// Whether a record that names a part in this queue may be on its way to the disk, and the queue must not be deleted before it.
    pub(super) fn hands_over(&self, queue: QueueId) -> bool {
        self.of(queue).any(|(_, part)| part.stage == Stage::HandedOver)
    }

    /// A transaction's part in a queue, which begins if there is none.
    fn part(&mut self, queue: QueueId, txn: TxnId) -> &mut Part {
        self.parts.get_or_insert_with((queue, txn), Part::default)
    }

    /// Takes out a part that is over; its bodies are not pinned any more.
    fn take(&mut self, queue: QueueId, txn: TxnId, ring: &mut Ring) -> Option<Part> {
        let part = self.parts.remove(&(queue, txn))?;
        ring.unpin(part.pieces.bytes());
        Some(part)
    }
}

impl Queues {
    /// A transaction adds a message to a queue of this shard.
    pub(crate) fn on_stage_enqueue(
        &mut self,
        id: QueueId,
        txn: TxnId,
        head: Head,
        payload: Payload<'_>,
        identity: Option<&Identity>,
    ) {
        let Some(slot) = self.slot(id) else {
            self.discard(&payload);
            self.tell_home(Input::Failed { txn, cause: Cause::QueueGone });
            return;
        };
        if let Some(identity) = identity
            && !self.is_new_in(slot, txn, identity, &payload)
        {
            return;
        }
        let queue = &self.held[slot as usize].queue;
        if queue.limited() && queue.refuses(payload.length()).is_some() {
            self.refuse_staged(slot, txn, &payload, Cause::Full);
            return;
        }
        let in_memory = if matches!(payload, Payload::Large { .. }) { 0 } else { payload.length() };
        if !self.ring.may_pin(in_memory) {
            self.refuse_staged(slot, txn, &payload, Cause::Memory);
            return;
        }
        let pieces = &mut self.staged.part(id, txn).pieces;
        let before = pieces.bytes();
        let content = pieces.add(head.level(), Kind::of(&head), payload);
        self.ring.pin(pieces.bytes() - before);
        if !self.tell(slot, queue::Input::StageEnqueue { txn, head, content, identity }).settled() {
            self.drop_last(id, txn, Kind::of(&head), content);
        }
    }

    /// A message is not taken, and its transaction fails.
    #[cold]
    fn refuse_staged(&mut self, slot: u32, txn: TxnId, payload: &Payload<'_>, cause: Cause) {
        self.discard(payload);
        self.tell(slot, queue::Input::StageRefused { txn });
        self.tell_home(Input::Failed { txn, cause });
    }

    /// The message that was added last was not taken: its transaction was rolled back before it came.
    #[cold]
    fn drop_last(&mut self, id: QueueId, txn: TxnId, kind: Kind, content: packhorse_model::Content) {
        let Some(part) = self.staged.parts.get_mut(&(id, txn)) else { return };
        let before = part.pieces.bytes();
        part.pieces.remove_last(kind, content);
        self.ring.unpin(before - part.pieces.bytes());
        if part.stage == Stage::Open && part.pieces.is_empty() {
            self.staged.parts.remove(&(id, txn));
        }
    }

    /// A delivery of a queue of this shard ends in a transaction.
    pub(super) fn on_stage_settle(&mut self, id: QueueId, txn: TxnId, key: DeliveryKey, outcome: Outcome) {
        let cause = match self.slot(id) {
            Some(slot) => {
                let outcome = self.with_earlier_annotations(slot, key, outcome);
                if self.tell(slot, queue::Input::StageSettle { txn, key, outcome }).settled() {
                    return;
                }
                Cause::Stale
            }
            None => Cause::QueueGone,
        };
        self.tell_home(Input::Failed { txn, cause });
    }

    /// Deliveries of a queue of this shard are acknowledged in a transaction.
    pub(crate) fn on_stage_accept(&mut self, id: QueueId, txn: TxnId, keys: &[DeliveryKey]) {
        let cause = match self.slot(id) {
            Some(slot) if self.tell(slot, queue::Input::StageAccept { txn, keys }).settled() => return,
            Some(_) => Cause::Stale,
            None => Cause::QueueGone,
        };
        self.tell_home(Input::Failed { txn, cause });
    }

    /// The home of a transaction asks for its part in a queue of this shard.
    pub(crate) fn on_gather(&mut self, txn: TxnId, id: QueueId, operations: u64, purpose: Purpose) {
        match self.slot(id) {
            Some(slot) => {
                self.staged.part(id, txn).stage = Stage::Asked;
                self.tell(slot, queue::Input::Gather { txn, operations, purpose });
            }
            None => self.tell_home(Input::Gathered { txn, queue: id, answer: Gathered::Gone }),
        }
    }

    /// A queue hands over a part.
    pub(super) fn gathered(&mut self, slot: u32, gathered: queue::Gathered) {
        let id = self.held[slot as usize].id;
        let queue::Gathered { txn, mut part, persistent, volatile } = gathered;
        let kept = self.staged.part(id, txn);
        kept.stage = Stage::HandedOver;
        kept.first = part.numbers.map(|numbers| numbers.first).or(kept.first);
        part.pieces = kept.pieces.share(&mut part.ops);
        let answer = Gathered::Ready { part, persistent, volatile };
        self.tell_home(Input::Gathered { txn, queue: id, answer });
    }

    /// Operations of a part go ahead of its record.
    pub(super) fn write_ahead(&mut self, mut ahead: Box<TxOps>) {
        if let Some(part) = self.staged.parts.get_mut(&(ahead.queue, ahead.txn)) {
            let before = part.pieces.bytes();
            part.pieces.hand_over(&mut ahead.ops, &mut self.batch);
            self.ring.unpin(before - part.pieces.bytes());
        }
        self.batch.push(Op::TxOps(ahead));
    }

    /// The home of a transaction has decided.
    pub(crate) fn on_apply(&mut self, txn: TxnId, id: QueueId, operations: u64, resolution: Resolution) {
        let slot = self.slot(id);
        let mut buffers = Vec::new();
        match resolution {
            Resolution::Prepared => {
                if let Some(part) = self.staged.parts.get_mut(&(id, txn)) {
                    part.stage = Stage::Prepared;
                    let before = part.pieces.bytes();
                    let persistent = part.pieces.take_persistent();
                    self.ring.unpin(before - part.pieces.bytes());
                    // The store has them since the prepare.
                    buffers.extend(persistent.into_iter().map(|piece| piece.into_ring(&mut self.ring, id, None)));
                }
            }
            Resolution::Commit => {
                if let Some(Part { pieces, first, .. }) = self.staged.take(id, txn, &mut self.ring) {
                    let into_ring = |piece: pieces::Piece| piece.into_ring(&mut self.ring, id, first);
                    buffers.extend(pieces.take_all().into_iter().map(into_ring));
                }
            }
            Resolution::Rollback => drop(self.staged.take(id, txn, &mut self.ring)),
        }
        if let Some(slot) = slot {
            self.tell(slot, queue::Input::Apply { txn, operations, resolution, buffers: &buffers });
        }
    }

    /// Operations that the home of a transaction has refused have come, or will.
    #[cold]
    pub(crate) fn on_drop_refused(&mut self, txn: TxnId, id: QueueId, operations: u64) {
        let Some(slot) = self.slot(id) else { return };
        if self.tell(slot, queue::Input::DropRefused { txn, operations }).settled() {
            self.staged.take(id, txn, &mut self.ring);
        }
    }

    /// An operation of a branch in doubt from before this start.
    pub(crate) fn recovered_op(&mut self, op: Box<packhorse_store::RecoveredOp>) {
        let Some(slot) = self.slot(op.queue) else { return };
        self.staged.part(op.queue, op.txn).stage = Stage::Prepared;
        self.tell(slot, queue::Input::RecoveredOp(op));
    }

    /// See [`Staged::hands_over`].
    pub(crate) fn hands_over(&self, id: QueueId) -> bool {
        self.staged.hands_over(id)
    }

    /// A queue is gone, and parts of transactions in it: their homes are told if they wait, or else when they ask.
    pub(super) fn forget_staged(&mut self, id: QueueId) {
        let parts: Vec<_> = self.staged.of(id).map(|(txn, part)| (txn, part.stage)).collect();
        for (txn, stage) in parts {
            self.staged.take(id, txn, &mut self.ring);
            if stage == Stage::Asked {
                self.tell_home(Input::Gathered { txn, queue: id, answer: Gathered::Gone });
            }
        }
    }
}

impl pieces::Piece {
    /// Puts the bodies into the ring; the number of their buffer. `first`: the number of the part's first add, by which those of messages
    /// that are not persistent are known.
    fn into_ring(self, ring: &mut Ring, queue: QueueId, first: Option<u64>) -> u64 {
        let buffer = ring.open();
        let pieces::Piece { bytes, kind, adds, .. } = self;
        let bytes = bytes.into_bytes();
        let held = bytes.len();
        match (kind, first) {
            (Kind::Persistent, _) => ring.fill(buffer, bytes, held, Ticket(0)),
            (Kind::Volatile, first) => {
                let key = |index: u32| EntryKey { queue, sequence: first.unwrap_or(0) + u64::from(index) };
                ring.fill_volatile(
                    buffer,
                    bytes,
                    held,
                    adds.into_iter().map(|(level, index)| (level, key(index))).collect(),
                );
            }
        }
        buffer
    }
}
