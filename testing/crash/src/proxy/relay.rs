//! The proxy's thread: takes connections, waits for all of their sockets and for orders, lets pairs take steps.

use super::pair::{Ordered, Pair};
use super::{Fault, Felt};
use crate::harness::now_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// How long connecting may take: the broker is on this machine, or not there.
const CONNECT: Duration = Duration::from_millis(500);
/// Connections of a door; one more, and the oldest is reset.
const PAIRS: usize = 8;

/// What is asked of the thread.
#[derive(Debug)]
pub(super) enum Order {
    /// See `Proxy::begin`.
    Fault { door: usize, fault: Fault, reply: Sender<Felt>, begun: Sender<()> },
    /// See `Proxy::cut_next`.
    CutNext { door: usize, ordered: Ordered, begun: Sender<()> },
    /// See `Proxy::calm`.
    Calm { begun: Sender<()> },
    /// It is to end.
    Stop,
}

/// A port for one client.
#[derive(Debug)]
struct Door {
    listener: TcpListener,
    /// For the next connection.
    ordered: Option<Ordered>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Relay {
    to: SocketAddr,
    doors: Vec<Door>,
    woken: UnixStream,
    orders: Receiver<Order>,
    pairs: Vec<Pair>,
    next: u64,
}

/// What a file descriptor that was waited for belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Orders,
    Door(usize),
    Pair(usize),
}

impl Relay {
    pub(super) fn new(
        to: SocketAddr,
        listeners: Vec<TcpListener>,
        woken: UnixStream,
        orders: Receiver<Order>,
    ) -> io::Result<Relay> {
        woken.set_nonblocking(true)?;
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let doors = listeners.into_iter().map(|listener| Door { listener, ordered: None }).collect();
        Ok(Relay { to, doors, woken, orders, pairs: Vec::new(), next: 0 })
    }

    /// Until it is told to stop.
    pub(super) fn work(mut self) {
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready);
            let mut orders = false;
            let now = now_ns();
            for owner in ready.drain(..) {
                match owner {
                    Owner::Orders => orders = true,
                    Owner::Door(door) => self.accept(door),
                    Owner::Pair(at) => self.step(at, now),
                }
            }
            for at in 0..self.pairs.len() {
                if self.pairs[at].next_deadline(now).is_some() {
                    self.step(at, now);
                }
            }
            self.pairs.retain(|pair| !pair.is_over());
            if orders && !self.obey() {
                return;
            }
        }
    }

    fn step(&mut self, at: usize, now: u64) {
        let Pair { door, number, .. } = self.pairs[at];
        let newer = self.pairs.iter().any(|pair| pair.door == door && pair.number > number && pair.works());
        self.pairs[at].step(now, newer);
    }

    /// Who has something to do.
    fn wait(&self, ready: &mut Vec<Owner>) {
        let now = now_ns();
        let mut owners = vec![Owner::Orders];
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        for (at, door) in self.doors.iter().enumerate() {
            owners.push(Owner::Door(at));
            fds.push(PollFd::new(&door.listener, PollFlags::IN));
        }
        let mut deadline = None;
        for (at, pair) in self.pairs.iter().enumerate() {
            for (socket, reads, writes) in pair.wants(now) {
                // A socket from which nothing is wanted is left out: its end would be told again and again.
                let flags = PollFlags::empty()
                    | if reads { PollFlags::IN } else { PollFlags::empty() }
                    | if writes { PollFlags::OUT } else { PollFlags::empty() };
                if let Some(socket) = socket.filter(|_| reads || writes) {
                    owners.push(Owner::Pair(at));
                    fds.push(PollFd::new(socket, flags));
                }
            }
            deadline = [deadline, pair.next_deadline(now)].into_iter().flatten().min();
        }
        let timeout = deadline.map(|at: u64| {
            let left = at.saturating_sub(now);
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
        });
        // Interrupted: the next round looks again.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return;
        }
        let told = fds.iter().zip(owners).filter(|(fd, _)| !fd.revents().is_empty());
        for (_, owner) in told {
            if !matches!((ready.last(), owner), (Some(Owner::Pair(last)), Owner::Pair(this)) if *last == this) {
                ready.push(owner);
            }
        }
    }

    /// Takes a connection, if the broker takes one too; otherwise it is reset.
    fn accept(&mut self, door: usize) {
        let Ok((client, _)) = self.doors[door].listener.accept() else { return };
        let connect = || -> io::Result<TcpStream> {
            let broker = TcpStream::connect_timeout(&self.to, CONNECT)?;
            for socket in [&client, &broker] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            Ok(broker)
        };
        let Ok(broker) = connect() else {
            super::pair::reset(&mut Some(client));
            return;
        };
        let ordered = self.doors[door].ordered.take();
        let mut of_door = self.pairs.iter_mut().filter(|pair| pair.door == door && !pair.is_over());
        if let Some(oldest) = of_door.next().filter(|_| of_door.count() + 1 >= PAIRS) {
            oldest.abort();
        }
        self.pairs.push(Pair::new(self.next, door, client, broker, ordered));
        self.next += 1;
        self.step(self.pairs.len() - 1, now_ns());
    }

    /// Does what was ordered. False: it is to end.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(count) if count == bytes.len()) {}
        loop {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            };
            let now = now_ns();
            match order {
                Order::Fault { door, fault, reply, begun } => {
                    let newest = self.pairs.iter().rposition(|pair| pair.door == door);
                    match newest.filter(|at| self.pairs[*at].stands()) {
                        Some(at) => {
                            self.pairs[at].begin(fault, reply, now);
                            self.step(at, now);
                        }
                        None => {
                            let _ = reply.send(Felt::default());
                        }
                    }
                    let _ = begun.send(());
                }
                Order::CutNext { door, ordered, begun } => {
                    self.doors[door].ordered = Some(ordered);
                    let _ = begun.send(());
                }
                Order::Calm { begun } => {
                    self.pairs.iter_mut().for_each(|pair| pair.calm(now));
                    let _ = begun.send(());
                }
                Order::Stop => return false,
            }
            self.pairs.retain(|pair| !pair.is_over());
        }
    }
}
