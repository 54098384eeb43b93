//! Accepting: sockets get their options and are dealt to shards in turn. Errors are told once a second and never spin.

use crate::connection::Slot;
use crate::mailbox::{Accepted, Mailbox, Post};
use crate::{Host, Listener};
use mio::{Interest, Registry, Token};
use packhorse_broker::{Endpoint, Level};
use packhorse_model::{ConnectionId, Now, ShardId};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Accepted in one turn; the rest waits for the next, so that a storm of connections leaves room for messages.
const PER_TURN: usize = 64;
/// Pause after the system had no descriptor or memory for a connection.
const BACK_OFF_US: u64 = 100_000;
/// A complaint of the same kind is repeated at most so often.
const COMPLAIN_US: u64 = 1_000_000;

/// The listeners of the process, on shard 0.
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    most: usize,
    open: Arc<AtomicUsize>,
    next_id: u64,
    next_shard: usize,
    next_listener: usize,
    /// The poll said that somebody waits, and no accept has said otherwise since.
    pub(crate) ready: bool,
    /// No accept before this time, monotonic µs.
    pub(crate) not_before_us: u64,
    complain_after_us: u64,
    refused: u64,
}

impl Acceptor {
    pub(crate) fn new(most: usize) -> Acceptor {
        Acceptor {
            listeners: Vec::new(),
            most,
            open: Arc::default(),
            next_id: 1,
            next_shard: 0,
            next_listener: 0,
            ready: false,
            not_before_us: 0,
            complain_after_us: 0,
            refused: 0,
        }
    }

    /// Serves these listeners too. `token(n)` is the n-th's.
    pub(crate) fn serve(
        &mut self,
        listeners: Vec<Listener>,
        registry: &Registry,
        token: impl Fn(usize) -> Token,
    ) -> io::Result<()> {
        for mut listener in listeners {
            registry.register(&mut listener.socket, token(self.listeners.len()), Interest::READABLE)?;
            self.listeners.push(listener);
        }
        self.ready = true;
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.listeners.clear();
        self.ready = false;
    }

    /// Accepts what waits, within bounds.
    pub(crate) fn accept(&mut self, now: Now, mailboxes: &[Arc<Mailbox>], host: &impl Host) {
        if !self.ready || now.mono_us < self.not_before_us {
            return;
        }
        let mut room = PER_TURN;
        // Another one is first each time: a storm on one does not shut out the rest.
        let count = self.listeners.len();
        self.next_listener = (self.next_listener + 1) % count.max(1);
        for at in (self.next_listener..count).chain(0..self.next_listener) {
            loop {
                if room == 0 {
                    return;
                }
                room -= 1;
                match self.listeners[at].socket.accept() {
                    Ok((stream, peer)) => self.deal(stream, peer, at, now, mailboxes, host),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if gone(&e) => {}
                    Err(e) => {
                        // Whoever waits still waits: the level of an edge-triggered listener is remembered in `ready`.
                        self.not_before_us = now.mono_us + BACK_OFF_US;
                        let address = self.listeners[at].address;
                        self.complain(now, host, || {
                            format!("cannot accept on {address}: {e}; trying again every 100 ms")
                        });
                        return;
                    }
                }
            }
        }
        self.ready = false;
    }

    fn deal(
        &mut self,
        stream: mio::net::TcpStream,
        peer: SocketAddr,
        at: usize,
        now: Now,
        mailboxes: &[Arc<Mailbox>],
        host: &impl Host,
    ) {
        let local = stream.local_addr().unwrap_or(self.listeners[at].address);
        let Some(slot) = Slot::take(&self.open, self.most) else {
            self.refused += 1;
            let (refused, most) = (self.refused, self.most);
            self.complain(now, host, || {
                format!(
                    "closed {refused} new connections, the last from {peer}: amqp.max_connections = {most} are open"
                )
            });
            return;
        };
        // A socket without these works too, only worse; one that is dead already shows that at the first read.
        let socket = SockRef::from(&stream);
        let _ = socket.set_tcp_nodelay(true);
        let probes = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));
        let _ = socket.set_tcp_keepalive(&probes);
        let loopback = peer.ip().to_canonical().is_loopback() && local.ip().to_canonical().is_loopback();
        let endpoint = Endpoint { peer: peer.to_string(), local: local.to_string(), loopback };
        let connection = ConnectionId(self.next_id);
        self.next_id += 1;
        mailboxes[self.next_shard].post(Post::Accepted(Box::new(Accepted { connection, endpoint, stream, slot })));
        self.next_shard = (self.next_shard + 1) % mailboxes.len();
    }

    fn complain(&mut self, now: Now, host: &impl Host, text: impl FnOnce() -> String) {
        if now.mono_us >= self.complain_after_us {
            self.complain_after_us = now.mono_us + COMPLAIN_US;
            self.refused = 0;
            host.log(ShardId(0), Level::Warn, None, &text());
        }
    }
}

/// The peer was gone before it was accepted: no fault of ours, nothing to wait for.
fn gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
