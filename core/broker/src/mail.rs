//! What travels between links and queues, and between shards. A link and its queue may live in different shards; both speak
//! in these requests and answers, which are handed over at once within a shard and by mail between two.

use crate::admin::Command;
use crate::queues::OnceEnqueue;
use bytes::Bytes;
use packhorse_amqp10::producer::Opening;
use packhorse_model::{
    ClientSession, ConnectionId, Content, EntryKey, Head, Identity, LargeId, Outcome, Overlay, Purpose, QueueId,
    QueueName, QueueSettings, Resolution, ShardId, TxnId,
};
use packhorse_queue::{ConsumerId, DeliveryKey};
use packhorse_store::TxnPart;
use packhorse_txn::{Control, NoWork, ReplyTo, SessionInput, TxStatus};

/// Names one link of one connection for ever: answers that come after its end find nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkRef {
    pub(crate) shard: ShardId,
    /// Where the shard keeps the connection.
    pub(crate) slot: u32,
    pub(crate) connection: ConnectionId,
    /// Where the connection keeps the link.
    pub(crate) link: u32,
    /// Counts the uses of that place.
    pub(crate) generation: u32,
}

/// From a link to a queue.
#[derive(Debug)]
pub(crate) enum Request {
    /// A message from a producer of another shard. Answered by [`Answer::Enqueued`] or [`Answer::NotEnqueued`] unless
    /// `settled`.
    Enqueue { from: LinkRef, delivery: u32, settled: bool, head: Head, payload: Payload<'static> },
    /// The same of a producer that numbers its messages.
    EnqueueOnce(Box<OnceEnqueue>),
    /// A producer that numbers its messages comes. Answered by [`Answer::ProducerOpened`] or [`Answer::Ended`].
    OpenProducer { from: LinkRef, opening: Opening },
    /// A consumer comes, or one that only browses. Answered by [`Answer::Subscribed`] or [`Answer::Ended`].
    Subscribe { from: LinkRef, pre_settled: bool, browses: bool },
    /// Deliveries in all that the consumer may have been given since it came; with `drain` answered by
    /// [`Answer::Drained`] once there is nothing more for it.
    Credit { consumer: ConsumerId, limit: u64, drain: bool },
    /// What became of a delivery. `reply`: answered by [`Answer::Settled`] with this number when durable.
    Settle { key: DeliveryKey, outcome: Outcome, reply: Option<(LinkRef, u32)> },
    /// The content of this delivery cannot be read.
    Unreadable { key: DeliveryKey },
    /// A producer of a queue with limits wants credit; its messages have so many bytes on average. Answered by
    /// [`Answer::Room`], when there is room.
    Room { from: LinkRef, mean_bytes: u64 },
    /// A producer that asked for room goes, or has no need to ask any more.
    NoRoom { from: LinkRef },
    /// A message that a transaction adds; its home knows of it.
    StageEnqueue { txn: TxnId, head: Head, payload: Payload<'static>, identity: Option<Box<Identity>> },
    /// A delivery ends in a transaction; its home knows of it.
    StageSettle { txn: TxnId, key: DeliveryKey, outcome: Outcome },
    /// The same of many deliveries that are acknowledged.
    StageAccept { txn: TxnId, keys: Vec<DeliveryKey> },
    /// The consumer goes.
    Unsubscribe { consumer: ConsumerId, lost: bool },
}

/// The content of a message on its way into a queue.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes of the read buffer, to be copied.
    Slice(&'a [u8]),
    /// Bytes of their own.
    Shared(Bytes),
    /// In a file that is synced.
    Large { id: LargeId, length: u64 },
}

impl Payload<'_> {
    /// Length, bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Payload::Slice(bytes) => bytes.len() as u64,
            Payload::Shared(bytes) => bytes.len() as u64,
            Payload::Large { length, .. } => *length,
        }
    }

    /// The same without a loan.
    pub(crate) fn into_owned(self) -> Payload<'static> {
        match self {
            Payload::Slice(bytes) => Payload::Shared(Bytes::copy_from_slice(bytes)),
            Payload::Shared(bytes) => Payload::Shared(bytes),
            Payload::Large { id, length } => Payload::Large { id, length },
        }
    }
}

/// A whole delivery that waits until its file, or that of one before it on the same link, is synced.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) delivery: u32,
    pub(crate) settled: bool,
    pub(crate) head: Head,
    pub(crate) payload: Payload<'static>,
    /// Its file is not synced yet.
    pub(crate) unsynced: bool,
    /// The transaction it is in, by the connection's epoch.
    pub(crate) epoch: Option<u64>,
    /// Its number, if it has one.
    pub(crate) identity: Option<Identity>,
}

impl Behind {
    /// Whether its content is this file.
    pub(crate) fn is_file(&self, file: LargeId) -> bool {
        matches!(self.payload, Payload::Large { id, .. } if id == file)
    }
}

/// From a queue to a link.
#[derive(Debug)]
pub(crate) enum Answer {
    /// These deliveries of the producer (a closed range of delivery-ids, serial) are safe, or in memory if not persistent.
    Enqueued { first: u32, last: u32 },
    /// This one is not.
    NotEnqueued { delivery: u32, condition: &'static str, why: String },
    /// The producer that numbers its messages may send; below the floor nothing is known of its numbers.
    ProducerOpened { queue: QueueId, floor: u64 },
    /// The producer may have so much credit.
    Room { share: u64 },
    /// The consumer may be given credit.
    Subscribed { queue: QueueId, consumer: ConsumerId },
    /// A delivery.
    Deliver(Deliver),
    /// Nothing more for now: the credit is to be used up. `limit` as in the request, so that one of an earlier request is
    /// not taken for an answer to a later one.
    Drained { limit: u64 },
    /// The outcome of this delivery is durable.
    Settled { delivery: u32 },
    /// The queue is gone, or there is none.
    Ended { condition: &'static str, why: String },
}

/// From the home of a transaction, or from the table of client sessions, to a connection.
#[derive(Debug)]
pub(crate) enum TxnAnswer {
    /// To a question.
    Reply { to: ReplyTo, reply: packhorse_txn::Reply },
    /// Work was refused.
    Refused { control: Control, txn: TxnId, why: NoWork },
    /// What became of a commit.
    Status { to: ReplyTo, status: TxStatus },
}

impl TxnAnswer {
    /// Whom it is for.
    pub(crate) fn control(&self) -> Control {
        match self {
            TxnAnswer::Reply { to, .. } | TxnAnswer::Status { to, .. } => to.control,
            TxnAnswer::Refused { control, .. } => *control,
        }
    }
}

/// What nobody is there to hear: tests without connections look at it.
#[cfg(test)]
#[derive(Debug)]
pub(crate) enum Unheard {
    /// To a link, with the body that it would have found in the ring.
    Link(LinkRef, Answer, Option<Bytes>),
    /// To a control.
    Txn(TxnAnswer),
}

/// One message for one consumer.
#[derive(Debug)]
pub(crate) struct Deliver {
    pub(crate) key: DeliveryKey,
    pub(crate) head: Head,
    pub(crate) content: Content,
    /// The body, when it does not come from this shard's ring in this turn. A large message's is in its file.
    pub(crate) body: Option<Bytes>,
    pub(crate) deliveries: u32,
    pub(crate) overlay: Option<Box<Overlay>>,
}

/// What an operator's command has found out before it reaches the shard of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportAs {
    Queue,
    Created { new: bool },
    Changed,
}

/// An entry that comes from another queue by reference.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) head: Head,
    pub(crate) content: Content,
    /// The body of an entry that the store does not have, when it is another shard's.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) stored: bool,
    pub(crate) deliveries: u32,
    pub(crate) overlay: Box<Overlay>,
}

/// From shard to shard.
#[derive(Debug)]
pub(crate) enum Body {
    /// For a queue of the receiver.
    Request { queue: QueueId, request: Request },
    /// For a link of the receiver.
    Answer { to: LinkRef, answer: Answer },
    /// To shard 0: this queue is wanted.
    Want { name: QueueName, settings: QueueSettings },
    /// From shard 0 to the owner of a new queue: it is durable.
    Own { id: QueueId, name: QueueName, settings: QueueSettings },
    /// From the owner to all others: the queue exists.
    Exists { id: QueueId, name: QueueName, settings: QueueSettings },
    /// From the owner to all others: the queue is gone.
    Gone { id: QueueId },
    /// From the owner to all others: the queue has other settings.
    Changed { id: QueueId, settings: QueueSettings },
    /// An operator's command that the receiver must carry out.
    Admin { id: u64, command: Command },
    /// An operator is to be told of this queue.
    Report { id: u64, queue: QueueId, report: ReportAs },
    /// From the shard of a queue to that of its dead-letter queue, or of one that an operator named: keep a place.
    Reserve { from: EntryKey, to: QueueId, guest: Guest },
    /// The answer: this place is kept, or there is no such queue.
    Reserved { from: EntryKey, to: Option<EntryKey>, level: u8 },
    /// The entry has come (`done`), durably if it must, or it never will.
    Relocated { to: EntryKey, level: u8, done: bool },
    /// A link of this name is being attached: an older one elsewhere is to give way.
    Steal { link: LinkName, by: LinkRef },
    /// To the home of a transaction.
    Home(Box<packhorse_txn::Input<TxnPart>>),
    /// From the home to a queue: hand over the part.
    Gather { txn: TxnId, queue: QueueId, operations: u64, purpose: Purpose },
    /// From the home to a queue: it is decided.
    Apply { txn: TxnId, queue: QueueId, operations: u64, resolution: Resolution },
    /// From the home to a queue: so many operations that come there were refused.
    DropRefused { txn: TxnId, queue: QueueId, operations: u64 },
    /// To shard 0: an operator's command about this queue, in which these transactions are prepared.
    InDoubt { id: u64, queue: QueueId, txns: Vec<TxnId>, command: Command },
    /// To a connection of the receiver.
    TxnAnswer(TxnAnswer),
    /// To shard 0, where the table of client sessions is.
    Session(Box<SessionInput>),
    /// From shard 0 to all others: the session asks for a commit's outcome, so its other connections are over.
    CloseOthers { session: ClientSession, but: ReplyTo },
    /// They are.
    OthersClosed { but: ReplyTo },
    /// None is left there, on shard `from`.
    Stolen { by: LinkRef, from: ShardId },
}

/// What makes a link the same link: both containers (one is ours), name and role. `user` keeps others from taking it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkName {
    pub(crate) container: String,
    pub(crate) name: String,
    pub(crate) receiver: bool,
    pub(crate) user: Option<String>,
}
