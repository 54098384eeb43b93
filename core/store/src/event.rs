//! What the store answers.

use crate::{Blame, RecoveredBranch, RecoveredOp, RecoveredSession, Ticket};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{
    Content, DuplicateId, EntryKey, Head, LargeId, Overlay, ProducerId, QueueId, QueueName, QueueSettings, Sequence,
    Xid,
};

/// A request for bodies: up to `count` live entries of one queue and priority level, ascending from `from`, together at most
/// `bytes` (but at least one). What a branch in doubt holds is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The queue.
    pub queue: QueueId,
    /// The priority level, 0 to 9.
    pub level: u8,
    /// Lowest number wanted.
    pub from: Sequence,
    /// Most entries.
    pub count: u32,
    /// Most bytes.
    pub bytes: u32,
}

/// A request for a part of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadLarge {
    /// Echoed in the answer.
    pub token: u64,
    /// The file.
    pub id: LargeId,
    /// First byte.
    pub offset: u64,
    /// Most bytes; the answer is shorter only at the end of the file.
    pub length: u32,
}

/// One body of an answer to [`Load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedBody {
    /// The entry.
    pub sequence: Sequence,
    /// Offset and length in the buffer; `None`: the body failed its checksum or could not be read.
    pub range: Option<(u32, u32)>,
}

/// The answer to a [`Load`]: one buffer with all bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The request.
    pub load: Load,
    /// The bytes of all bodies.
    pub buffer: Bytes,
    /// The bodies in ascending order. Entries that are gone by now may be among them; entries never missing otherwise.
    pub bodies: Vec<LoadedBody>,
}

/// What comes back from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All batches of this shard up to here survive a crash.
    Durable {
        /// The last of them.
        up_to: Ticket,
    },
    /// Bodies asked for.
    Loaded(Box<Loaded>),
    /// A chunk of a large message is written (not yet safe).
    LargeWritten {
        /// The file.
        id: LargeId,
        /// Bytes written in all.
        written: u64,
    },
    /// A large message's file is safe.
    LargeSynced {
        /// The file.
        id: LargeId,
        /// Its length in bytes.
        length: u64,
    },
    /// A part of a large message; `None`: damaged or unreadable.
    LargeLoaded {
        /// As in the request.
        token: u64,
        /// The bytes.
        bytes: Option<Bytes>,
    },
    /// The file system has no room for what is submitted, which waits (`full`); or there is room again. Told to every shard when
    /// it changes. The store goes on by itself; nothing that waits is durable.
    Space {
        /// There is no room.
        full: bool,
    },
    /// The store has failed for good: nothing more becomes durable, the process must end (exit code 70).
    Failed(Failure),
}

/// Why the store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One sentence: operation, file, error.
    pub what: String,
}

/// One recovered thing.
#[derive(Clone, Debug, PartialEq)]
pub enum Recovered {
    /// A queue (of any shard: every shard has the whole directory).
    Queue {
        /// Its id.
        id: QueueId,
        /// Its name.
        name: QueueName,
        /// Its settings.
        settings: QueueSettings,
        /// Numbers from here on may be drawn in this run, up to `reserved`; both are durable already.
        next: Sequence,
        /// See above.
        reserved: Sequence,
    },
    /// Ids of queues below this one have been used.
    NextQueueId(QueueId),
    /// An entry of this shard.
    Entry(Box<RecoveredEntry>),
    /// An operation of a branch in doubt in a queue of this shard.
    BranchOp(Box<RecoveredOp>),
    /// A producer of a queue of this shard that numbers its messages.
    Producer(Box<RecoveredProducer>),
    /// The duplicate id of a message of a queue of this shard.
    DuplicateId {
        /// The queue.
        queue: QueueId,
        /// The id.
        id: DuplicateId,
        /// Broker time at which the message was stored, ms.
        at_ms: u64,
    },
    /// A branch in doubt, or decided by an operator and not forgotten. Shard 0 only.
    Branch(Box<RecoveredBranch>),
    /// A branch that is completed and remembered. Shard 0 only.
    Completed {
        /// Which.
        xid: Xid,
        /// Committed, or else rolled back.
        committed: bool,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// A client's session with commits that are remembered. Shard 0 only.
    Session(Box<RecoveredSession>),
}

/// A recovered entry. It is not in memory: its content has buffer 0.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredEntry {
    /// The entry.
    pub key: EntryKey,
    /// Its head.
    pub head: Head,
    /// Its content's length or file.
    pub content: Content,
    /// Earlier deliveries, those among them of which only marks tell that they may have been.
    pub deliveries: u32,
    /// Attempts.
    pub attempts: u32,
    /// `Some`: the process has died since it may have been delivered, and it has not come back from a delivery since: a suspect,
    /// to be dispatched under [`crate::Op::ExactMark`]. What crashes say of it.
    pub suspect: Option<Blame>,
    /// What was added since it was stored.
    pub overlay: Option<Box<Overlay>>,
}

/// What is known of a producer's numbers in a queue, bounded as [`crate::Remember`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredProducer {
    /// The queue.
    pub queue: QueueId,
    /// Which.
    pub producer: ProducerId,
    /// Of numbers below nothing is said.
    pub floor: u64,
    /// Runs of numbers that were stored, closed, ascending, none below the floor.
    pub runs: Vec<(u64, u64)>,
    /// Broker time of its last use, ms.
    pub used_ms: u64,
}

/// The store's figures for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Segments in use.
    pub segments: u64,
    /// Bytes of the segments in use.
    pub segment_bytes: u64,
    /// Highest block known durable.
    pub durable_block: u64,
    /// Flushes since the start.
    pub flushes: u64,
    /// Sum of their times, µs.
    pub flush_us_total: u64,
    /// The longest of them, µs.
    pub flush_us_max: u64,
    /// Bytes written to the journal since the start.
    pub written_bytes: u64,
    /// Bytes of bodies submitted since the start.
    pub content_bytes: u64,
}
