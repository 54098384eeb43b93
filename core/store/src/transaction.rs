//! Words for transactions: what their records carry, and what a start recovers of them (`spec/transactions.md`, "Records").
//!
//! A transaction's work in one queue is its *part*. Where a part has much, most of it goes ahead in [`TxOps`] of about a MiB each, so
//! that no record is long; the record that decides says how much went ahead, and a log in which less is found is damaged.

use crate::{Batch, Body, Stored};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{Content, DuplicateId, Head, Overlay, ProducerId, QueueId, Sequence, Token, TxnId, Xid};

/// One operation of a transaction in a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum TxnOp {
    /// A persistent message that the transaction adds.
    Enqueue {
        /// Which of the part's adds, from 0; those of messages that are not persistent count too, and have no operation. Its number
        /// will be that of the part's first add + this.
        index: u32,
        /// Its head.
        head: Head,
        /// Its content.
        content: Stored,
    },
    /// A delivery of a stored entry ends in the transaction, which keeps the entry from others.
    Acknowledge {
        /// The entry.
        sequence: Sequence,
        /// Earlier deliveries once a rollback brings it back, raised by the one that has ended.
        deliveries: u32,
        /// Attempts once a rollback brings it back.
        attempts: u32,
        /// What a commit makes of it; `None`: it is acknowledged, and gone.
        redelivery: Option<Arc<Redelivery>>,
    },
    /// A message that the transaction adds has this number. It counts as [`crate::Op::Producer`] does once the transaction is committed,
    /// at the time of the record that says so.
    Number {
        /// Whose.
        producer: ProducerId,
        /// The number.
        number: u64,
        /// The producer sends nothing below again, or nothing is known of that.
        floor: u64,
    },
    /// The same of a message with a duplicate id, and [`crate::Op::DuplicateId`].
    DuplicateId(DuplicateId),
}

impl TxnOp {
    /// Whether it adds or removes a message.
    #[must_use]
    pub fn counts(&self) -> bool {
        !matches!(self, TxnOp::Number { .. } | TxnOp::DuplicateId(_))
    }
}

/// At the commit the entry comes back as [`crate::Op::Redeliver`] says it: it was released, modified or rejected. A rejected one
/// has an overlay that leaves ([`packhorse_model::DeadLetter::leaving`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redelivery {
    /// Earlier deliveries from then on.
    pub deliveries: u32,
    /// Attempts from then on.
    pub attempts: u32,
    /// The whole overlay from then on, if the outcome changes it.
    pub overlay: Option<Box<Overlay>>,
}

/// What of a part was written before the record that names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Records.
    pub records: u32,
    /// Operations in them, but for numbers.
    pub ops: u64,
    /// Bytes of bodies in them; a large message has none.
    pub bytes: u64,
}

/// Numbers that a queue drew for a part's adds, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// That of the first add.
    pub first: Sequence,
    /// How many.
    pub count: u32,
}

/// A transaction's part in a queue, as far as it did not go ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TxnPart {
    /// In the order in which they came.
    pub ops: Vec<TxnOp>,
    /// On the way between shards: what the bodies of `ops` refer to. In a batch empty, for they refer to the batch's pieces.
    pub pieces: Vec<Bytes>,
    /// What went ahead.
    pub ahead: Ahead,
    /// With a commit: the numbers of its adds, if it has any.
    pub numbers: Option<Numbers>,
    /// On the way between shards: messages that it does not add after all, because they are there already.
    pub duplicates: Figures,
}

impl TxnPart {
    /// Hands the bodies over to a batch, without a copy.
    pub fn hand_over(&mut self, batch: &mut Batch) {
        let pieces: Vec<u32> = self.pieces.drain(..).map(|piece| batch.share_piece(piece)).collect();
        for op in &mut self.ops {
            if let TxnOp::Enqueue { content: Stored::Body(Body { piece, .. }), .. } = op {
                *piece = pieces[*piece as usize];
            }
        }
    }
}

/// Operations of a part that go ahead. Kept under the transaction until a record names it, or [`crate::Op::TxDrop`] says that none will,
/// or a start, which drops what none names.
/// They mean nothing before: an entry that they remove is like any other. In a queue that is not there, here as in the records below,
/// a part is nothing: the queue was deleted meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct TxOps {
    /// The transaction.
    pub txn: TxnId,
    /// The queue.
    pub queue: QueueId,
    /// Which record of the part, from 0.
    pub record: u32,
    /// The operations.
    pub ops: Vec<TxnOp>,
}

/// Everything that the transaction did happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The transaction.
    pub txn: TxnId,
    /// By queue, in the order of ids.
    pub parts: Vec<(QueueId, TxnPart)>,
    /// Names the commit: the store remembers it.
    pub token: Option<Token>,
    /// A branch committed in one phase: the store remembers it.
    pub xid: Option<Xid>,
    /// Broker time, ms.
    pub at_ms: u64,
}

/// A part in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages that it adds.
    pub adds: u64,
    /// Messages that it removes.
    pub removes: u64,
    /// Bytes of the messages that it adds.
    pub bytes: u64,
}

/// The branch is in doubt: its bodies are kept, what it removes is *held*. A held entry stays, is no suspect any more, is not touched by
/// marks, and is not loaded. When the branch commits it is acknowledged, or comes back as the operation's [`Redelivery`] says; when it
/// rolls back it comes back with the numbers that the operation names.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The transaction.
    pub txn: TxnId,
    /// The branch.
    pub xid: Xid,
    /// The client.
    pub client: Arc<str>,
    /// By queue, in the order of ids: the part, and the whole of it in figures, with what is not persistent.
    pub parts: Vec<(QueueId, TxnPart, Figures)>,
    /// Wall clock, ms.
    pub wall_ms: i64,
    /// Broker time, ms.
    pub at_ms: u64,
}

/// A prepared branch is decided, and remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Decide {
    /// The branch.
    pub xid: Xid,
    /// What it added happens; else what it removed comes back.
    pub commit: bool,
    /// With a commit, the numbers of each queue's adds.
    pub numbers: Vec<(QueueId, Numbers)>,
    /// Broker time, ms.
    pub at_ms: u64,
}

/// What an operator made of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeuristicOutcome {
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
    /// One part was rolled back before, the rest as decided now.
    Mixed,
    /// The part in this queue is rolled back; the rest stays in doubt.
    PartRolledBack(QueueId),
}

/// As [`Decide`], but the branch stays, without contents, until [`crate::Op::Forget`]; see also [`HeuristicOutcome::PartRolledBack`].
#[derive(Clone, Debug, PartialEq)]
pub struct Heuristic {
    /// The branch.
    pub xid: Xid,
    /// How it ended.
    pub outcome: HeuristicOutcome,
    /// What becomes of the parts that it has.
    pub commit: bool,
    /// With a commit, the numbers of each queue's adds.
    pub numbers: Vec<(QueueId, Numbers)>,
    /// Who decided.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Wall clock, ms.
    pub wall_ms: i64,
    /// Broker time, ms.
    pub at_ms: u64,
}

/// A part of a branch that an operator rolled back alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// The queue.
    pub queue: QueueId,
    /// Who decided.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Wall clock, ms.
    pub wall_ms: i64,
}

/// A recovered branch: in doubt, or decided by an operator and not forgotten.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredBranch {
    /// Its id, as in its operations.
    pub txn: TxnId,
    /// Its name.
    pub xid: Xid,
    /// The client.
    pub client: Arc<str>,
    /// Wall clock of the prepare, ms.
    pub wall_ms: i64,
    /// Broker time of the prepare, ms.
    pub at_ms: u64,
    /// Parts in doubt, as far as they survived; none of which nothing did.
    pub parts: Vec<(QueueId, Figures)>,
    /// Parts that an operator rolled back.
    pub lost: Vec<LostPart>,
    /// Operations of messages that are not persistent: they did not survive. As at the prepare, whatever became of parts since.
    pub volatile: u64,
    /// An operator's decision of the whole: never [`HeuristicOutcome::PartRolledBack`], for which see `lost`.
    pub decided: Option<Box<Heuristic>>,
}

/// A recovered operation of a branch in doubt, for the shard of its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredOp {
    /// The transaction.
    pub txn: TxnId,
    /// The queue.
    pub queue: QueueId,
    /// What it does.
    pub op: RecoveredWork,
}

/// See [`RecoveredOp`].
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveredWork {
    /// A message to be added. It is not in memory: its content has buffer 0.
    Enqueue {
        /// As in [`TxnOp::Enqueue`].
        index: u32,
        /// Its head.
        head: Head,
        /// Its content's length or file.
        content: Content,
    },
    /// An entry to be removed, recovered before as an entry, with the numbers that it had when it was dispatched: marks do not touch it.
    Acknowledge {
        /// As in [`TxnOp::Acknowledge`].
        sequence: Sequence,
        /// See there.
        deliveries: u32,
        /// See there.
        attempts: u32,
        /// See there.
        redelivery: Option<Arc<Redelivery>>,
    },
    /// See [`TxnOp::Number`].
    Number {
        /// Whose.
        producer: ProducerId,
        /// The number.
        number: u64,
        /// See there.
        floor: u64,
    },
    /// See [`TxnOp::DuplicateId`].
    DuplicateId(DuplicateId),
}

/// What is remembered of a client's commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredSession {
    /// The session.
    pub session: packhorse_model::ClientSession,
    /// Numbers below are forgotten.
    pub floor: u64,
    /// Runs of committed numbers, closed, ascending.
    pub runs: Vec<(u64, u64)>,
    /// Broker time of its last commit, ms.
    pub used_ms: u64,
}

/// How much a store remembers of what is completed. Of branches it never remembers what the home of transactions has forgotten.
///
/// What is as old as the bound, by the time of a record before it adds something to remember or by that of a start, is forgotten. Beyond the
/// count those with the lowest times go first: of branches with the same time the one whose record came first, of sessions that with the
/// lowest name. A session that is not known begins with its first number as its floor, before which nothing is said: it may have
/// been forgotten. A message of a producer that is not known says nothing: a record without a message makes it known, with its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remember {
    /// How long the outcome of a completed branch is remembered, ms of broker time.
    pub branches_ms: u64,
    /// How many of them.
    pub branches_max: u32,
    /// How long a client's session is remembered after its last commit, ms of broker time.
    pub sessions_ms: u64,
    /// How many of them.
    pub sessions_max: u32,
    /// Most gaps among the committed numbers of one; beyond that the lowest are forgotten. The same holds for a producer's.
    pub gaps_max: u32,
    /// How long a producer that numbers its messages is remembered after its last use, ms of broker time.
    pub producers_ms: u64,
    /// How many of them, each in each queue.
    pub producers_max: u32,
    /// How long a duplicate id is remembered after its message was stored, ms of broker time.
    pub ids_ms: u64,
    /// How many of them, each in each queue.
    pub ids_max: u32,
}

impl Default for Remember {
    fn default() -> Remember {
        Remember {
            branches_ms: 600_000,
            branches_max: 100_000,
            sessions_ms: 600_000,
            sessions_max: 100_000,
            gaps_max: 1_000,
            producers_ms: 600_000,
            producers_max: 100_000,
            ids_ms: 86_400_000,
            ids_max: 500_000,
        }
    }
}
