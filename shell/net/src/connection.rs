//! One socket as its loop sees it.

use mio::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place among the connections that the process may have; freed when dropped.
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Takes a place if fewer than `most` are taken.
    pub(crate) fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Slot> {
        if open.fetch_add(1, Ordering::Relaxed) >= most {
            open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Slot(Arc::clone(open)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which part of its life a connection is in.
pub(crate) enum Life {
    /// The shard knows it.
    Open,
    /// Over for the shard. What is left goes out until a deadline; what comes in is dropped.
    Closing(Closing),
}

/// The end of a connection.
pub(crate) struct Closing {
    /// Bytes still to write, and how many of them are written.
    pub(crate) rest: Vec<u8>,
    pub(crate) written: usize,
    /// Our direction is shut: only the peer's end is waited for.
    pub(crate) shut: bool,
    /// The peer has shut its direction.
    pub(crate) eof: bool,
    /// Bytes dropped so far.
    pub(crate) dropped: usize,
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) life: Life,
    /// The poll said that there is something to read, and a read has not said otherwise since.
    pub(crate) readable: bool,
    /// The poll said that the peer's direction has ended: read on to its end, a short read does not mean "no more".
    pub(crate) ended: bool,
    /// The shard wants no bytes now.
    pub(crate) paused: bool,
    /// The socket took less than we had: wait until the poll says writable.
    pub(crate) blocked: bool,
    /// A write failed with these words.
    pub(crate) broken: Option<String>,
    /// In the queue of connections to read.
    pub(crate) queued: bool,
    /// In the list of connections to write in this turn.
    pub(crate) dirty: bool,
    _slot: Slot,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, slot: Slot) -> Connection {
        Connection {
            stream,
            life: Life::Open,
            readable: false,
            ended: false,
            paused: false,
            blocked: false,
            broken: None,
            queued: false,
            dirty: false,
            _slot: slot,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.life, Life::Open)
    }
}
