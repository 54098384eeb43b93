//! Ids of transactions, names of commits, and what a transaction's home says to queues.

use crate::ShardId;
use core::fmt;

/// A transaction, for ever: the run of the store makes sure that none is ever used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The start of the store in which it began.
    pub run: u64,
    /// The number that its home drew in that run, ascending from 1.
    pub number: u64,
    /// Its home when it began. After a restart a prepared branch is at home in shard 0, as it was.
    pub home: ShardId,
}

impl TxnId {
    /// Length of [`TxnId::to_bytes`].
    pub const BYTES: usize = 18;

    /// The id as bytes, as clients see it: AMQP allows 32.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.run.to_be_bytes());
        out[8..10].copy_from_slice(&self.home.0.to_be_bytes());
        out[10..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// The way back; `None` when these bytes are no id of ours.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<TxnId> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (run, rest) = bytes.split_first_chunk::<8>()?;
        let (home, rest) = rest.split_first_chunk::<2>()?;
        Some(TxnId {
            run: u64::from_be_bytes(*run),
            home: ShardId(u16::from_be_bytes(*home)),
            number: u64::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.home.0, self.number)
    }
}

/// A broker's identity: that of its store. Equal ids are what `isSameRM` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub [u8; 16]);

/// A client's session over all its connections, named by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientSession(pub [u8; 16]);

/// Names a commit, so that its outcome can be asked for after a lost reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The broker that the commit was sent to.
    pub broker: BrokerId,
    /// The session that sent it.
    pub session: ClientSession,
    /// Its number in that session, ascending in the order in which commits are asked for.
    pub counter: u64,
}

/// Why a queue is asked for its part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// To commit: numbers are drawn for what is added.
    Commit,
    /// To prepare: no numbers.
    Prepare,
    /// To commit what is prepared: only the numbers, now.
    Decide,
}

/// What a queue does with its part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// It is prepared.
    Prepared,
    /// What it adds appears, what it removes is gone.
    Commit,
    /// What it adds is gone, what it removes comes back.
    Rollback,
}
