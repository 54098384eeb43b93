//! What the front end keeps of a link, beside what the engine keeps.

use super::render::{Front, Kept};
use crate::mail::{Behind, Deliver};
use bytes::Bytes;
use packhorse_amqp10::engine::{LinkId, SessionId};
use packhorse_amqp10::message::BodyScan;
use packhorse_amqp10::producer::Opening;
use packhorse_model::{Head, Identity, LargeId, Outcome, ProducerId, QueueId, QueueName};
use packhorse_queue::{ConsumerId, DeliveryKey};
use std::collections::{BTreeMap, VecDeque};

/// A link of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) session: SessionId,
    pub(crate) generation: u32,
    pub(crate) name: String,
    /// Deliveries and settlements that wait for the disk; our `detach` goes out after their answers.
    pub(crate) waiting: u32,
    /// The peer has left; what it sent before is still on its way.
    pub(crate) leaving: bool,
    pub(crate) kind: Kind,
}

impl Link {
    /// Whether something is still to be said on it, or came whole and is not with its queue yet.
    pub(crate) fn is_amid(&self) -> bool {
        self.waiting > 0 || matches!(&self.kind, Kind::Producer(producer) if !producer.behind.is_empty())
    }
}

/// What a link is for.
#[derive(Debug)]
pub(crate) enum Kind {
    /// The peer's `attach` is not answered yet: its queue is being created or looked for.
    Pending(Pending),
    /// The peer sends.
    Producer(Producer),
    /// The peer receives.
    Consumer(Consumer),
    /// The peer begins and ends transactions.
    Coordinator(Box<Coordinator>),
    /// Refused or failed; only the peer's `detach` is missing.
    Over,
}

/// An `attach` that waits.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The queue's name.
    pub(crate) queue: QueueName,
    /// What the answer will say.
    pub(crate) kept: Kept,
    /// We receive: the peer is a producer.
    pub(crate) receiver: bool,
    /// The producer numbers its messages.
    pub(crate) opening: Option<Opening>,
    /// Shards that have not yet said that no older link of this name is left there, a bit each.
    pub(crate) stealing: u64,
}

/// A link on which the peer sends.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) queue: QueueId,
    /// Mean size of messages so far, bytes; decides how much credit is given.
    pub(crate) mean_bytes: u64,
    /// A delivery of which not all frames are here.
    pub(crate) partial: Option<Partial>,
    /// Whole deliveries that wait for a large one before them, which stands first: order is kept.
    pub(crate) behind: VecDeque<Behind>,
    /// Bytes of those in memory.
    pub(crate) behind_bytes: usize,
    /// Reading is paused for this link.
    pub(crate) pauses: bool,
    /// It waits for credit until the store has caught up.
    pub(crate) starved: bool,
    /// The queue has limits: it is asked before credit is given.
    pub(crate) limited: bool,
    /// … has been asked, when the link had so much credit.
    pub(crate) asked: Option<u32>,
    /// … and most credit that it allowed.
    pub(crate) share: u32,
    /// Deliveries that the sender wants settled at once although the link settles second.
    pub(crate) settle_first: Vec<u32>,
    /// It numbers its messages, and its number of the first that it sends for the first time.
    pub(crate) numbers: Option<Box<(ProducerId, u64)>>,
}

impl Producer {
    pub(crate) fn new(queue: QueueId, limited: bool) -> Producer {
        Producer {
            queue,
            mean_bytes: 1024,
            partial: None,
            behind: VecDeque::new(),
            behind_bytes: 0,
            pauses: false,
            starved: false,
            limited,
            asked: None,
            share: u32::MAX,
            settle_first: Vec::new(),
            numbers: None,
        }
    }
}

/// A link to the coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// The link's source has the outcome `rejected`: else a refusal ends the link.
    pub(crate) rejects: bool,
    /// A request of which not all frames are here.
    pub(crate) partial: Vec<u8>,
    /// Requests, by their deliveries, that wait until what was posted before them is with its queue; nothing overtakes them.
    pub(crate) waiting: VecDeque<(u32, Vec<u8>)>,
}

impl Coordinator {
    pub(crate) fn new(rejects: bool) -> Coordinator {
        Coordinator { rejects, partial: Vec::new(), waiting: VecDeque::new() }
    }
}

/// A delivery on its way in.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) delivery: u32,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    /// The transaction it is in, by its epoch; the last frame may be the first to say so.
    pub(crate) epoch: Option<u64>,
    /// Which message it is, if that is known.
    pub(crate) identity: Option<Identity>,
    pub(crate) body: PartialBody,
}

/// What has come of it.
#[derive(Debug)]
pub(crate) enum PartialBody {
    /// All bytes so far.
    Memory(Vec<u8>),
    /// It grew past the limit for memory and is streamed to a file.
    Large(Box<LargeIn>),
    /// It was refused; the rest is dropped.
    Dropped,
}

/// A large message on its way into its file.
#[derive(Debug)]
pub(crate) struct LargeIn {
    pub(crate) id: LargeId,
    pub(crate) head: Head,
    /// Bytes handed to the store.
    pub(crate) handed: u64,
    /// Bytes written by it.
    pub(crate) written: u64,
    /// Checks the sections that are not in memory; none for an opaque format.
    pub(crate) scan: Option<BodyScan>,
}

/// A link on which the peer receives.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) queue: QueueId,
    pub(crate) consumer: ConsumerId,
    /// Deliveries that came from the queue so far.
    pub(crate) given: u64,
    /// How many it may give in all, as it was told last.
    pub(crate) told: u64,
    /// Mean size of deliveries so far, bytes; decides how far the queue may be ahead.
    pub(crate) mean_bytes: u64,
    /// Of those given, what is not sent yet: the session's window or the connection's output was full.
    pub(crate) pending: VecDeque<Deliver>,
    /// A message that is being sent in parts.
    pub(crate) sending: Option<Sending>,
    /// Bytes that go before the parts: header and changed annotations.
    pub(crate) front: Vec<u8>,
    /// The queue has nothing more; the drain is answered when the above are empty.
    pub(crate) drained: bool,
    /// Keys of unsettled deliveries by the engine's token.
    pub(crate) unsettled: slab::Slab<DeliveryKey>,
    /// In the connection's list of blocked links; the queue gives nothing meanwhile.
    pub(crate) blocked: bool,
    /// It browses: it holds nothing, and what it says of a delivery is of no concern to the queue.
    pub(crate) browses: bool,
    /// What becomes of a delivery that is settled without a word.
    pub(crate) default_outcome: Outcome,
    /// Unsettled deliveries, by their place, that are in a transaction.
    pub(crate) in_txn: BTreeMap<usize, InTxn>,
    /// The transaction, by its epoch, in which the credit acquires.
    pub(crate) acquires: Option<u64>,
    /// That transaction has ended: nothing more until the peer's next `flow`.
    pub(crate) frozen: bool,
}

/// An unsettled delivery in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InTxn {
    pub(crate) epoch: u64,
    /// The peer has said what becomes of it. Else it was acquired in the transaction.
    pub(crate) said: bool,
}

impl Consumer {
    pub(crate) fn new(queue: QueueId, consumer: ConsumerId, browses: bool, default_outcome: Outcome) -> Consumer {
        Consumer {
            queue,
            consumer,
            given: 0,
            told: 0,
            mean_bytes: 1024,
            pending: VecDeque::new(),
            sending: None,
            front: Vec::new(),
            drained: false,
            unsettled: slab::Slab::new(),
            blocked: false,
            browses,
            default_outcome,
            in_txn: BTreeMap::new(),
            acquires: None,
            frozen: false,
        }
    }
}

/// A delivery that is sent in parts.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Bytes at hand.
    pub(crate) chunk: Bytes,
    /// What follows from the store, if it is a large message.
    pub(crate) rest: Option<LargeOut>,
}

/// The rest of a large message.
#[derive(Debug)]
pub(crate) struct LargeOut {
    pub(crate) id: LargeId,
    /// The delivery, and its place among the unsettled ones; none: it was sent settled, and is to be acknowledged when all of
    /// it is sent.
    pub(crate) key: DeliveryKey,
    pub(crate) place: Option<usize>,
    /// Next byte to ask for.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// A part was asked for.
    pub(crate) loading: bool,
    /// The front of the message is made when the first part is here.
    pub(crate) front: Option<Box<Front>>,
}
