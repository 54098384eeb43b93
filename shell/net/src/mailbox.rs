//! What other threads tell a shard: a vector under a lock, and one wake-up per batch.

use mio::{Poll, Waker};
use packhorse_broker::{Command, Endpoint, Mail};
use packhorse_model::{ConnectionId, ShardId};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One thing told to a shard's loop.
pub enum Post {
    /// Serve these listeners (shard 0).
    Listen(Vec<crate::Listener>),
    /// A socket that is this shard's from now on.
    Accepted(Box<Accepted>),
    /// From another shard.
    Mail(Box<Mail>),
    /// A command of an operator.
    Admin {
        /// Unique in the process.
        id: u64,
        /// The command.
        command: Command,
    },
    /// Close listeners, stop in order.
    Stop,
    /// All shards have stopped: end the loop as soon as the last bytes are out.
    Exit,
}

/// A fresh connection on its way to its shard.
pub struct Accepted {
    pub(crate) connection: ConnectionId,
    pub(crate) endpoint: Endpoint,
    pub(crate) stream: mio::net::TcpStream,
    pub(crate) slot: crate::connection::Slot,
}

/// A shard's mailbox.
pub struct Mailbox {
    posts: Mutex<Vec<Post>>,
    waker: Waker,
    /// A wake-up is under way that the loop has not seen: no second system call.
    woken: AtomicBool,
}

impl Mailbox {
    /// Adds one thing and wakes the shard.
    pub fn post(&self, post: Post) {
        self.lock().push(post);
        self.wake();
    }

    /// Adds all of `posts` in their order, emptying the vector, and wakes the shard.
    pub fn post_all(&self, posts: &mut Vec<Post>) {
        self.lock().append(posts);
        self.wake();
    }

    /// Makes the shard run a turn: something that it asks for is ready.
    pub fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // Fails only when the counter behind it overflows, and then the loop is awake anyhow.
            let _ = self.waker.wake();
        }
    }

    /// Takes all, leaving `empty` in place. The flag goes down first: what is added later wakes again.
    pub(crate) fn take(&self, empty: &mut Vec<Post>) {
        debug_assert!(empty.is_empty());
        self.woken.store(false, Ordering::Release);
        std::mem::swap(&mut *self.lock(), empty);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Post>> {
        self.posts.lock().expect("no panic under this lock: a panic ends the process")
    }
}

/// Where a loop waits: its poll, with its mailbox attached. Made before the shards, so that the store can wake them.
pub struct Door {
    pub(crate) shard: ShardId,
    pub(crate) poll: Poll,
    /// The mailboxes of all shards, this one's at its own index.
    pub(crate) mailboxes: Arc<[Arc<Mailbox>]>,
}

impl Door {
    /// The mailboxes of all shards, in their order.
    pub fn mailboxes(&self) -> Arc<[Arc<Mailbox>]> {
        Arc::clone(&self.mailboxes)
    }
}

/// Doors for `shards` shards.
pub fn doors(shards: u16) -> io::Result<Vec<Door>> {
    let mut polls = Vec::new();
    let mut mailboxes = Vec::new();
    for _ in 0..shards {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), crate::reactor::WAKER)?;
        mailboxes.push(Arc::new(Mailbox { posts: Mutex::default(), waker, woken: AtomicBool::new(false) }));
        polls.push(poll);
    }
    let mailboxes: Arc<[Arc<Mailbox>]> = mailboxes.into();
    let door = |(shard, poll)| Door { shard: ShardId(shard), poll, mailboxes: Arc::clone(&mailboxes) };
    Ok((0..shards).zip(polls).map(door).collect())
}
