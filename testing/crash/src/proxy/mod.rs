//! A TCP proxy that does to connections what networks do: it holds bytes back, cuts, forgets one side, lets an old connection
//! live on beside the new one.
//!
//! One thread carries all connections. Each client has a *door*, a port of its own, so that a fault can be aimed at a client; the faults of
//! one connection come one after the other. At most 256 KiB are held for each direction of a connection, and eight connections
//! live behind a door. Must not know AMQP beyond the first bytes of its frames.

mod boundary;
mod pair;
mod pipe;
mod relay;
#[cfg(test)]
mod tests;

use pair::Ordered;
use relay::{Order, Relay};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    ToBroker,
    /// From the broker.
    ToClient,
}

/// What is done to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of one way are held back, and so is news of an end. It heals, or ends in a reset.
    Blackhole(Way),
    /// Both ends are reset.
    Reset,
    /// The broker's end is reset; the client hears and is heard by nobody, and is reset at last.
    HalfOpenClient,
    /// The client's end is reset; the broker hears and is heard by nobody, and is reset at last.
    HalfOpenBroker,
    /// The connection is cut towards the client only. What it had sent reaches the broker when its next connection works.
    OldAlive,
    /// Both ways one byte at a time.
    OneByte,
    /// Both ways late.
    Delay,
    /// Cut inside the next frame that goes this way.
    Cut(Way),
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 10] = [
        Kind::Blackhole(Way::ToBroker),
        Kind::Blackhole(Way::ToClient),
        Kind::Reset,
        Kind::HalfOpenClient,
        Kind::HalfOpenBroker,
        Kind::OldAlive,
        Kind::OneByte,
        Kind::Delay,
        Kind::Cut(Way::ToBroker),
        Kind::Cut(Way::ToClient),
    ];

    /// What it is called in histories and reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Blackhole(Way::ToBroker) => "blackhole to broker",
            Kind::Blackhole(Way::ToClient) => "blackhole to client",
            Kind::Reset => "reset",
            Kind::HalfOpenClient => "half-open, client left",
            Kind::HalfOpenBroker => "half-open, broker left",
            Kind::OldAlive => "old connection alive",
            Kind::OneByte => "one-byte segments",
            Kind::Delay => "delay",
            Kind::Cut(Way::ToBroker) => "cut in a frame to broker",
            Kind::Cut(Way::ToClient) => "cut in a frame to client",
        }
    }
}

/// One fault with everything that may be drawn for it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// How long it lasts, or is waited for at most.
    pub time: Duration,
    /// How late bytes are in a `Delay`; how long they are gathered before an `OldAlive` is cut.
    pub late: Duration,
    /// A `Cut` leaves 1 + this modulo the frame's size less one bytes of the frame.
    pub at: u32,
    /// A `Blackhole` ends in a reset. Where something else is cut: with a reset instead of an end.
    pub rude: bool,
}

/// What came of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Felt {
    /// It met a connection, and something of it: bytes were held back, a frame was cut, the client's next connection worked before
    /// what was left of the old one reached the broker …
    pub done: bool,
    /// Bytes concerned: held back, gathered, late, sent alone; all of its way until it was cut.
    pub bytes: u64,
}

/// See the module. It ends when dropped, and all its connections with it.
#[derive(Debug)]
pub struct Proxy {
    doors: Vec<SocketAddr>,
    orders: Sender<Order>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Opens so many doors on this machine to one address, which need not be served yet: a connection that finds nobody there is
    /// reset.
    ///
    /// # Errors
    /// The system has no ports, or no thread.
    pub fn start(to: SocketAddr, doors: usize) -> io::Result<Proxy> {
        let listeners = (0..doors).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        let doors = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let (wake, woken) = UnixStream::pair()?;
        let (orders, given) = channel();
        let relay = Relay::new(to, listeners, woken, given)?;
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || relay.work())?;
        Ok(Proxy { doors, orders, wake, thread: Some(thread) })
    }

    /// The address of a door, from 0.
    pub fn door(&self, nth: usize) -> SocketAddr {
        self.doors[nth]
    }

    /// Does something to the newest connection through a door, from now on. The answer comes when it is over; at once, with nothing done, if there is
    /// no connection on which bytes went both ways.
    pub fn begin(&self, door: usize, fault: Fault) -> Receiver<Felt> {
        let (reply, felt) = channel();
        self.wait_for(|begun| Order::Fault { door, fault, reply, begun });
        felt
    }

    /// The next connection through a door is cut after so many bytes of one way: that end hears an end, or with `rude` a reset, after
    /// exactly these bytes; the other end is reset. The answer comes when it is cut, or has ended before that.
    pub fn cut_next(&self, door: usize, way: Way, bytes: u64, rude: bool) -> Receiver<Felt> {
        let (reply, felt) = channel();
        self.wait_for(|begun| Order::CutNext { door, ordered: Ordered { way, bytes, rude, reply }, begun });
        felt
    }

    /// Ends all faults: what was held back goes on, what is left of connections without a client is reset. Returns when that is done.
    pub fn calm(&self) {
        self.wait_for(|begun| Order::Calm { begun });
    }

    /// Gives an order and waits until the thread has taken it.
    fn wait_for(&self, order: impl FnOnce(Sender<()>) -> Order) {
        let (begun, done) = channel();
        self.order(order(begun));
        // An answer that does not come means that the thread is gone; whoever uses a connection finds out.
        let _ = done.recv();
    }

    fn order(&self, order: Order) {
        // Without the thread the answer's sender is dropped, which its receiver is told.
        let _ = self.orders.send(order);
        let _ = (&self.wake).write_all(&[0]);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
