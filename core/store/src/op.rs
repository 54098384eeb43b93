//! Operations: the words in which a shard tells the store what happened (`spec/entry.md`, "Records").

use crate::{Commit, Decide, Heuristic, Prepare, TxOps};
use alloc::boxed::Box;
use bytes::Bytes;
use packhorse_model::{
    DuplicateId, EntryKey, Head, LargeId, Overlay, ProducerId, QueueId, QueueName, QueueSettings, Sequence, TxnId, Xid,
};

/// Bytes within a batch: a range of one of its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Index of the piece.
    pub piece: u32,
    /// Offset in the piece, bytes.
    pub offset: u32,
    /// Length, bytes.
    pub length: u32,
}

/// Where an Enqueue's content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// In this batch.
    Body(Body),
    /// In a file that was synced before this batch was submitted.
    Large {
        /// The file.
        id: LargeId,
        /// Its length in bytes.
        length: u64,
    },
}

/// One atomic operation. What it may depend on was submitted before it.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A message enters a queue.
    Enqueue {
        /// The queue.
        queue: QueueId,
        /// Its number there.
        sequence: Sequence,
        /// Its head.
        head: Head,
        /// Its content.
        content: Stored,
        /// Kept for memory's sake only: recovery skips it (`spec/entry.md`, "Persistent and not").
        volatile: bool,
    },
    /// Entries are gone: acknowledged or purged. The range is closed; numbers in it that name no entry are no error.
    Acknowledge {
        /// The queue.
        queue: QueueId,
        /// First number.
        first: Sequence,
        /// Last number.
        last: Sequence,
    },
    /// An entry came back after a delivery that counts, or a suspect after any delivery: it is a suspect no more.
    Redeliver {
        /// The entry.
        entry: EntryKey,
        /// Earlier deliveries from now on, absolute.
        deliveries: u32,
        /// Attempts from now on, absolute.
        attempts: u32,
        /// The whole overlay from now on, when this return changed it.
        overlay: Option<Box<Overlay>>,
    },
    /// An entry leaves one queue and enters another, body by reference, one record for both sides.
    Relocate {
        /// Where it was.
        from: EntryKey,
        /// Where it is now.
        to: EntryKey,
        /// The head there.
        head: Head,
        /// Earlier deliveries there.
        deliveries: u32,
        /// Attempts there.
        attempts: u32,
        /// The overlay there, with the reason.
        overlay: Box<Overlay>,
    },
    /// From now on entries of this range may have been dispatched.
    DispatchMark {
        /// The queue.
        queue: QueueId,
        /// First number of the range.
        first: Sequence,
        /// How many numbers.
        count: u32,
    },
    /// Suspects (`docs/decisions/0010-poison-guard.md`) of this range are about to be dispatched, and no others are. The range is
    /// closed; numbers in it that name no suspect are no error.
    ExactMark {
        /// The queue.
        queue: QueueId,
        /// First number.
        first: Sequence,
        /// Last number.
        last: Sequence,
        /// Broker time, ms; with [`crate::PASSED`] that at which they were dispatched, and they have passed since.
        at_ms: u64,
    },
    /// A queue exists. Sequences below `reserved` may be drawn from now on.
    QueueCreate {
        /// Its id, never used before.
        id: QueueId,
        /// Its name.
        name: QueueName,
        /// Its settings.
        settings: QueueSettings,
        /// See above.
        reserved: Sequence,
    },
    /// Settings of a queue from now on.
    QueueChange {
        /// The queue.
        id: QueueId,
        /// All settings.
        settings: QueueSettings,
    },
    /// A queue and all its entries are gone, and parts of transactions in it. A branch in doubt stays, without its part there; that
    /// should have been rolled back by force before ([`crate::HeuristicOutcome::PartRolledBack`]), for only then it is known as lost.
    QueueDelete {
        /// The queue.
        id: QueueId,
    },
    /// Sequences below `up_to` may be drawn from now on. A start begins at the highest `up_to` recorded.
    Reserve {
        /// The queue.
        queue: QueueId,
        /// See above.
        up_to: Sequence,
    },
    /// A producer numbers its messages ([`crate::RecoveredProducer`]). In a queue that is not there it is nothing.
    Producer {
        /// The queue.
        queue: QueueId,
        /// Which.
        producer: ProducerId,
        /// It sends nothing below again, or nothing is known of that.
        floor: u64,
        /// The number of a message that enters the queue in this batch; nothing, if the producer is not known. `None`: it is known
        /// from now on, and nothing of it was stored from the floor on.
        stored: Option<u64>,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// A message that enters the queue in this batch has this duplicate id. In a queue that is not there it is nothing.
    DuplicateId {
        /// The queue.
        queue: QueueId,
        /// The id.
        id: DuplicateId,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// Operations of a transaction that go ahead of its record.
    TxOps(Box<TxOps>),
    /// No record will name what went ahead of a transaction in a queue: it was rolled back. Nothing of it is kept, and if the
    /// transaction works there again, its records count from 0.
    TxDrop {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
    },
    /// A transaction is committed.
    Commit(Box<Commit>),
    /// A branch is prepared.
    Prepare(Box<Prepare>),
    /// A prepared branch is decided by its transaction manager.
    Decide(Box<Decide>),
    /// A prepared branch is decided by an operator, or after one had a hand in it.
    Heuristic(Box<Heuristic>),
    /// Neither the branch nor a memory of it is kept.
    Forget {
        /// The branch.
        xid: Xid,
    },
}

impl Op {
    /// Whether somebody may be waiting for this operation to be durable. Batches of only the others may wait up to 5 ms for
    /// company (`architecture.md` §2, "Settlements without a reply").
    pub fn urgent(&self) -> bool {
        match self {
            Op::Acknowledge { .. }
            | Op::Redeliver { .. }
            | Op::DispatchMark { .. }
            | Op::ExactMark { .. }
            | Op::TxDrop { .. } => false,
            Op::Enqueue { volatile, .. } => !volatile,
            Op::Relocate { .. }
            | Op::QueueCreate { .. }
            | Op::QueueChange { .. }
            | Op::QueueDelete { .. }
            | Op::Reserve { .. }
            | Op::Producer { .. }
            | Op::DuplicateId { .. }
            | Op::TxOps(_)
            | Op::Commit(_)
            | Op::Prepare(_)
            | Op::Decide(_)
            | Op::Heuristic(_)
            | Op::Forget { .. } => true,
        }
    }
}

/// A step in the life of a large message's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LargeOp {
    /// The file begins; nothing is at this id yet.
    Begin {
        /// The file.
        id: LargeId,
    },
    /// Bytes at the end. Answered by [`crate::Event::LargeWritten`] when written.
    Chunk {
        /// The file.
        id: LargeId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The file is whole: sync it and its directory entry. Answered by [`crate::Event::LargeSynced`].
    End {
        /// The file.
        id: LargeId,
    },
    /// The file is not wanted: its delivery was aborted. It may be removed.
    Abort {
        /// The file.
        id: LargeId,
    },
}
