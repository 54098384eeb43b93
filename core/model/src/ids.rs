//! Ids. Small, copyable, never reused within their scope.

use core::fmt;

/// A queue's id: unique in the store for ever. A queue deleted and declared again is another queue with another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// An entry's number within its queue. Drawn ascending, never reused within a queue id; gaps are legal.
pub type Sequence = u64;

/// An entry's identity for ever: the queue and its number there (`spec/entry.md`, "Identity and order").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// The queue that owns the entry.
    pub queue: QueueId,
    /// The number in that queue.
    pub sequence: Sequence,
}

/// A shard's index, 0-based. Shard 0 changes the directory of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A connection's id, unique for the life of the process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A large message's file, unique in the store for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeId(pub u64);

impl QueueId {
    /// The shard that owns this queue, of `shards` in all. A function of the id alone, so that the count of shards may
    /// change between two starts.
    pub fn owner(self, shards: u16) -> ShardId {
        ShardId((self.0 % u64::from(shards.max(1))) as u16)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.queue.0, self.sequence)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}
