//! What goes into a shard and what comes out.

use crate::admin::{Command, Reply};
use packhorse_model::{ConnectionId, ShardId};

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port of the peer, for logs and operators.
    pub peer: String,
    /// Address and port it connected to.
    pub local: String,
    /// Both ends are loopback addresses: logins without a user are allowed.
    pub loopback: bool,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer closed its direction.
    Eof,
    /// The socket failed: the system's words.
    Error(String),
}

/// All that can happen to a shard.
#[derive(Debug)]
pub enum Input<'a> {
    /// A socket was accepted and belongs to this shard from now on.
    Accepted {
        /// A fresh id.
        connection: ConnectionId,
        /// Its ends.
        endpoint: Endpoint,
    },
    /// Bytes arrived, in order. At most 256 KiB in one turn over all connections.
    Received {
        /// The connection; one that the shard has ended already is ignored.
        connection: ConnectionId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The peer is gone. What it sent before has been handed in.
    Lost {
        /// The connection.
        connection: ConnectionId,
        /// How.
        how: Lost,
    },
    /// A command of an operator. Answered exactly once by [`Effect::AdminReply`], perhaps by another shard.
    Admin {
        /// Unique in the process; echoed.
        id: u64,
        /// The command.
        command: Command,
    },
    /// From another shard, in the order it was sent.
    Mail(Box<Mail>),
    /// Stop in order: refuse new connections, close links and connections with `amqp:connection:forced`, flush.
    /// [`Effect::Stopped`] follows.
    Stop,
}

/// What a shard sends to another. Opaque to the shell: it moves these between shards, in order per pair.
#[derive(Debug)]
pub struct Mail(pub(crate) crate::mail::Body);

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Worth knowing only when looking for something.
    Debug,
    /// Normal events of the broker's life.
    Info,
    /// Something was refused or went wrong for one peer.
    Warn,
    /// The broker itself is in trouble.
    Error,
}

/// All that a shard asks of the outside. Bytes to write are pulled, see [`crate::Shard::output`].
#[derive(Debug)]
pub enum Effect {
    /// The connection has bytes to write.
    Output {
        /// The connection.
        connection: ConnectionId,
    },
    /// Write what is left (give up after a while), then close the socket. The id is not used again; no [`Input::Lost`] is expected.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// Stop or go on reading this socket (back-pressure of a large message or of the store).
    Reading {
        /// The connection.
        connection: ConnectionId,
        /// True: read no more until told.
        paused: bool,
    },
    /// The answer to an operator.
    AdminReply {
        /// The command's id.
        id: u64,
        /// The answer.
        reply: Box<Reply>,
    },
    /// For another shard: put it into its mailbox and wake it.
    Mail {
        /// The other shard.
        to: ShardId,
        /// The content.
        mail: Box<Mail>,
    },
    /// A line for the log.
    Log {
        /// How much it matters.
        level: Level,
        /// The connection it is about.
        connection: Option<ConnectionId>,
        /// One sentence: what happened to which thing, and why.
        text: String,
    },
    /// The orderly stop is done; everything is flushed.
    Stopped,
    /// The store has failed: no more confirms. End the process with exit code 70 and these words.
    StoreFailed {
        /// One sentence.
        what: String,
    },
}
