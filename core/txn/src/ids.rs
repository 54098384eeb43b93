//! Ids of those who ask.

use packhorse_model::{ConnectionId, ShardId};

/// What XA calls a thread of control: here a link to the coordinator, or another protocol's session. It is in one branch at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Control {
    /// Its connection.
    pub connection: ConnectionId,
    /// Which of the connection; never used again within it.
    pub number: u32,
    /// The connection's shard.
    pub shard: ShardId,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo {
    /// Who asked.
    pub control: Control,
    /// Which of its questions.
    pub question: u32,
}
