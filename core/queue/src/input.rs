//! What goes into a queue and what comes out: inputs, answers, effects.
//!
//! Must not know: how they are handled. An [`Effect`] is at most 64 bytes; the caller reuses its vector.

use crate::ConsumerId;
use crate::producers::Known;
use crate::slot::{Flag, Packed};
use alloc::boxed::Box;
use packhorse_model::{
    Content, DuplicateId, EntryKey, Head, Identity, LargeId, Now, Outcome, Overlay, ProducerId, Purpose, QueueSettings,
    Resolution, Sequence, TxnId,
};
use packhorse_store::{
    Batch, Load, Loaded, RecoveredEntry, RecoveredOp, RecoveredProducer, Stored, Ticket, TxOps, TxnPart,
};

/// What one turn of the shard lends to its queues.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The turn's time.
    pub now: Now,
    /// The same as broker time, ms.
    pub broker_ms: u64,
    /// The ticket that the turn's batch will get.
    pub ticket: Ticket,
    /// The turn's operations. The queue appends its own.
    pub batch: &'a mut Batch,
    /// Number of the oldest buffer of bodies still in memory. Ascends.
    pub oldest_resident: u64,
    /// Bodies of messages that wait in transactions take much of the memory that there is: they go ahead of records sooner.
    pub short: bool,
}

/// A message for a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Enqueue {
    /// Its head; decides level and persistence.
    pub head: Head,
    /// Where its body is now, or its file.
    pub content: Content,
    /// Where its content is in the turn's batch. Must be given for a persistent message. Given for another one, the store
    /// keeps the body for memory's sake (volatile), so that its buffer may be evicted; not given, its buffer must stay.
    pub stored: Option<Stored>,
    /// Annotations that came with it from elsewhere. Kept in memory only, so for messages that are not persistent.
    pub overlay: Option<Box<Overlay>>,
}

/// A delivery's identity: the entry and the number of times that something was delivered from this queue before. A key of
/// an earlier delivery of the same entry never matches a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    /// The entry's number.
    pub sequence: Sequence,
    /// Which delivery of this queue it is; wraps after 2^32.
    pub epoch: u32,
    /// The entry's priority level.
    pub level: u8,
}

/// All that can happen to a queue.
#[derive(Debug)]
pub enum Input<'a> {
    /// A message arrives. Answer: [`Answer::Entered`].
    Enqueue(Enqueue),
    /// The store says so. Needed only while [`crate::Queue::awaits`] names a ticket up to this one.
    Durable {
        /// All tickets up to here.
        up_to: Ticket,
    },
    /// A consumer comes, without credit. Its id was never used before in this queue.
    Subscribe {
        /// The consumer.
        consumer: ConsumerId,
        /// Its deliveries are acknowledged in the dispatching turn; those of large messages, which are read while they are
        /// sent, by [`Input::Settle`] when they are sent.
        pre_settled: bool,
    },
    /// A browser comes, without credit: it gets what is ready, in order, once each, and holds nothing. What it says of a
    /// delivery must not be told. [`Input::Credit`] and [`Input::Unsubscribe`] are for it as well.
    Browse {
        /// Its id, as a consumer's.
        consumer: ConsumerId,
    },
    /// A consumer goes. What it holds comes back in slices, in [`crate::Queue::dispatch`]; until that is done nothing is
    /// dispatched from this queue, so that order is kept.
    Unsubscribe {
        /// The consumer.
        consumer: ConsumerId,
        /// False: it went in order, what it holds was not seen. True: its connection broke (`spec/entry.md`, "Redelivery").
        lost: bool,
    },
    /// How much a consumer will take.
    Credit {
        /// The consumer.
        consumer: ConsumerId,
        /// Deliveries in all, since it subscribed, that it may have been given: those it got so far + its credit. A total,
        /// so that a word that crossed with deliveries on its way cannot be misread. May sink.
        limit: u64,
    },
    /// A consumer's word on a delivery. Answer: [`Answer::Settled`]; late and repeated words have no effect (invariant 2).
    /// Annotations in the outcome are the whole of what was added to the message so far: the front end merges them with
    /// [`crate::Queue::overlay`], for only it can read them.
    Settle {
        /// The delivery.
        key: DeliveryKey,
        /// The word.
        outcome: Outcome,
    },
    /// The content of this delivery cannot be read: a large message is read while it is sent. It is set aside
    /// ([`Effect::Damaged`]), and nobody gets it any more. Answer: [`Answer::Settled`].
    Unreadable {
        /// The delivery.
        key: DeliveryKey,
    },
    /// Bodies asked for by [`Effect::Load`].
    Loaded {
        /// The number that the shard gave to the answer's buffer.
        buffer: u64,
        /// The answer.
        loaded: &'a Loaded,
    },
    /// An entry from before this start; each queue's in ascending order, before everything else.
    Recovered(Box<RecoveredEntry>),
    /// An entry will come by reference from another queue. Answer: [`Answer::Entered`] with the number drawn for it.
    Reserve {
        /// The head there.
        head: Head,
        /// The content there.
        content: Content,
        /// Whether the store has it.
        stored: bool,
        /// Earlier deliveries there.
        deliveries: u32,
        /// The overlay there; an empty one is none.
        overlay: Box<Overlay>,
    },
    /// To the queue it was reserved in: the record that brings the reserved entry is durable.
    Arrived {
        /// Its level.
        level: u8,
        /// Its number.
        sequence: Sequence,
    },
    /// To the queue it was reserved in: the reserved entry will never come.
    Abandon {
        /// Its level.
        level: u8,
        /// Its number.
        sequence: Sequence,
    },
    /// To the source, after [`Input::Reserve`]: write the move and let go. Answer: [`Answer::Settled`]; without effect the
    /// entry has gone otherwise, and the reservation must be abandoned.
    Relocate {
        /// The delivery named by [`Effect::Relocate`].
        key: DeliveryKey,
        /// Where it goes.
        to: EntryKey,
        /// As it was reserved there: the store brings the body along. If it was not, and the store has got the entry since
        /// (for memory's sake), it is let go of like one that was acknowledged.
        stored: bool,
    },
    /// To the source: the other queue cannot take it. For a dead letter [`Effect::Relocate`] comes again after
    /// [`crate::relocate::RETRY_US`], see [`crate::Queue::next_deadline`]; an operator's move ends, and the entry is ready again.
    RelocateFailed {
        /// The delivery.
        key: DeliveryKey,
    },
    /// An operator empties the queue of all that nobody holds. Answered by [`Effect::Purged`].
    Purge {
        /// Echoed in the answer.
        token: u64,
    },
    /// An operator moves what is ready to another queue, oldest first: [`Effect::Relocate`] comes for each. Answered by
    /// [`Effect::Moved`].
    Move {
        /// Echoed in the answer, and in each [`Relocation`].
        token: u64,
        /// At most so many.
        limit: u64,
        /// The time to live ends at the move: the other queue is a dead-letter queue.
        strip_ttl: bool,
    },
    /// A message that a transaction adds. It is not seen, and has no number before the transaction is committed. Answer:
    /// [`Answer::Settled`]; without effect the transaction was rolled back before the message came, and its body is not needed.
    StageEnqueue {
        /// The transaction.
        txn: TxnId,
        /// Its head.
        head: Head,
        /// Its content: `buffer` names a piece of the transaction's bodies, which the caller keeps; see [`Effect::Ahead`] and
        /// [`Input::Apply`].
        content: Content,
        /// Which message it is, if that is known; it is [`crate::Known::New`].
        identity: Option<&'a Identity>,
    },
    /// A delivery ends in a transaction. Nobody else gets the entry before that is over; the outcome happens at the commit, and a
    /// rollback brings the entry back as seen. Answer: [`Answer::Settled`]; without effect the word was stale, and counts as an
    /// operation that has come.
    StageSettle {
        /// The transaction.
        txn: TxnId,
        /// The delivery.
        key: DeliveryKey,
        /// The word, as in [`Input::Settle`]; not [`Outcome::ReturnLost`], which is no consumer's.
        outcome: Outcome,
    },
    /// [`Input::StageSettle`] of many deliveries, each acknowledged, and each an operation. Answer: [`Answer::Settled`]; without effect
    /// the word was stale for some of them.
    StageAccept {
        /// The transaction.
        txn: TxnId,
        /// The deliveries.
        keys: &'a [DeliveryKey],
    },
    /// An operation of a transaction has come, and was refused.
    StageRefused {
        /// The transaction.
        txn: TxnId,
    },
    /// An operation of a transaction has come, and does nothing: it adds a message that is [`crate::Known::Stored`]. The part is
    /// answered for when that message is safe.
    StageDuplicate {
        /// The transaction.
        txn: TxnId,
        /// The message's.
        identity: Identity,
        /// Length of the message's content.
        bytes: u64,
    },
    /// The home of a transaction asks for the part here, once so many operations have come. Answered by [`Effect::Gathered`] then, and when
    /// what went ahead is durable. The part is closed from then on.
    Gather {
        /// The transaction.
        txn: TxnId,
        /// How many have come, refused ones too; with [`Purpose::Decide`] as for the prepare.
        operations: u64,
        /// What for. With [`Purpose::Commit`] and [`Purpose::Decide`] numbers are drawn.
        purpose: Purpose,
    },
    /// The home has decided. A commit or rollback is carried out in slices, in [`crate::Queue::dispatch`]; once it has begun nothing is dispatched
    /// from this queue until it is done. With a rollback of what is not prepared [`packhorse_store::Op::TxDrop`] is written, if something went ahead. A commit waits for what came before its numbers were drawn and is not durable yet. Of operations that have not come, so many as are missing are dropped when they come.
    Apply {
        /// The transaction.
        txn: TxnId,
        /// Of how many operations.
        operations: u64,
        /// What.
        resolution: Resolution,
        /// Buffers in the ring of the pieces that the caller still keeps, in the order of their numbers: with [`Resolution::Prepared`] of
        /// those with bodies of persistent messages, with [`Resolution::Commit`] of all that are left; none for a rollback.
        buffers: &'a [u64],
    },
    /// The home of a transaction has refused so many operations, which have come here or will. A part that is not closed is made of such
    /// operations only, and is rolled back; a closed one stays as it is. Answer: [`Answer::Settled`]: whether a part was rolled back.
    DropRefused {
        /// The transaction.
        txn: TxnId,
        /// How many.
        operations: u64,
    },
    /// A producer that numbers its messages comes, with its lowest number that is not confirmed, and the next one, which was never sent.
    /// Answer: [`Answer::Floor`], which holds when what this turn writes is durable.
    OpenProducer {
        /// Which.
        producer: ProducerId,
        /// See above.
        lowest: u64,
        /// See above.
        next: u64,
    },
    /// What is known of this message. Answer: [`Answer::Known`].
    Look {
        /// Which message.
        identity: Identity,
        /// The transaction that is to add its message.
        txn: Option<TxnId>,
    },
    /// The message that was enqueued last has this identity.
    Identify {
        /// Which is [`crate::Known::New`].
        identity: Identity,
        /// The message's.
        persistent: bool,
    },
    /// A producer from before this start.
    RecoveredProducer(Box<RecoveredProducer>),
    /// A duplicate id from before this start, and the broker time of its message, ms.
    RecoveredId(DuplicateId, u64),
    /// An operation of a branch in doubt from before this start, after all entries.
    RecoveredOp(Box<RecoveredOp>),
    /// The queue is deleted, with all its entries. The caller drops the value afterwards.
    Delete,
    /// Other settings from now on.
    Settings(QueueSettings),
}

/// A queue's direct answer to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing to say.
    Nothing,
    /// The number drawn for the entry.
    Entered(Sequence),
    /// Whether the input had an effect.
    Settled(bool),
    /// Of lower numbers of the producer nothing is known.
    Floor(u64),
    /// What is known of a number.
    Known(Known),
}

impl Answer {
    /// The number drawn, if one was.
    pub fn sequence(self) -> Option<Sequence> {
        match self {
            Answer::Entered(sequence) => Some(sequence),
            Answer::Nothing | Answer::Settled(_) | Answer::Floor(_) | Answer::Known(_) => None,
        }
    }

    /// Whether the input had an effect that can be had once only.
    pub fn settled(self) -> bool {
        self == Answer::Settled(true)
    }
}

/// An entry for a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Deliver {
    /// Who gets it.
    pub consumer: ConsumerId,
    /// The entry's number.
    pub sequence: Sequence,
    /// The delivery's number, see [`DeliveryKey::epoch`].
    pub epoch: u32,
    /// Earlier deliveries: AMQP's delivery-count.
    pub deliveries: u32,
    pub(crate) packed: Packed,
}

impl Deliver {
    /// The delivery's identity.
    pub fn key(&self) -> DeliveryKey {
        DeliveryKey { sequence: self.sequence, epoch: self.epoch, level: self.packed.level() }
    }

    /// The message's head.
    pub fn head(&self) -> Head {
        self.packed.head()
    }

    /// The message's content; its buffer is resident in this turn.
    pub fn content(&self) -> Content {
        self.packed.content()
    }

    /// Whether [`crate::Queue::overlay`] has something for it. For a pre-settled consumer the overlay is gone with the
    /// entry; it is in [`Effect::Overlay`], which comes just before.
    pub fn has_overlay(&self) -> bool {
        self.packed.has(Flag::Overlay)
    }
}

/// An entry on its way to another queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Relocation {
    /// Names it in [`Input::Relocate`].
    pub key: DeliveryKey,
    /// The operator's move that takes it; `None`: it goes to the dead-letter queue.
    pub token: Option<u64>,
    /// Its head there: in a dead-letter queue the time to live is gone.
    pub head: Head,
    /// Its content.
    pub content: Content,
    /// Whether the store has it: if not there is no record to wait for, and [`Input::Relocate`] writes none.
    pub stored: bool,
    /// Earlier deliveries there: of a dead letter none.
    pub deliveries: u32,
    /// Its overlay there: what it had, and of a dead letter its history here.
    pub overlay: Box<Overlay>,
}

/// A transaction's part in a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    /// The transaction.
    pub txn: TxnId,
    /// Its operations, but with [`Purpose::Decide`] only the numbers.
    pub part: TxnPart,
    /// Whether anything in it must survive a crash.
    pub persistent: bool,
    /// Messages in it, added or removed, that do not survive one.
    pub volatile: u64,
}

/// What a queue wants done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Give this entry to this consumer.
    Deliver(Deliver),
    /// The overlay of the delivery that follows, to a pre-settled consumer.
    Overlay(Box<Overlay>),
    /// Ask the store for bodies; the answer is [`Input::Loaded`].
    Load(Load),
    /// Reserve a place in the other queue ([`Input::Reserve`] there), then [`Input::Relocate`] or
    /// [`Input::RelocateFailed`] here. Attempts begin at 0 there.
    Relocate(Box<Relocation>),
    /// A purge is complete.
    Purged {
        /// As in the input.
        token: u64,
        /// Entries that it removed.
        count: u64,
    },
    /// A move is complete, or cannot go on.
    Moved {
        /// As in the input.
        token: u64,
        /// Entries that it moved.
        count: u64,
    },
    /// Operations of a transaction go ahead of its record: write [`packhorse_store::Op::TxOps`] into this turn's batch. Their bodies refer to
    /// the pieces that the caller keeps, which need not be kept any longer.
    Ahead(Box<TxOps>),
    /// The answer to [`Input::Gather`]. Bodies refer to the pieces that the caller keeps.
    Gathered(Box<Gathered>),
    /// The file of a large message that a transaction was to add, and that will never be: it is to be removed.
    Discard(LargeId),
    /// An entry's body cannot be read. The next entry is delivered.
    Damaged {
        /// Its level.
        level: u8,
        /// Its number.
        sequence: Sequence,
    },
}

const _: () = assert!(core::mem::size_of::<Effect>() <= 64, "an effect is at most 64 bytes");
