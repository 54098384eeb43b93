//! Listening sockets, in two steps: bound early, so that a port in use is known before anything is recovered; listening only
//! when the broker is ready, so that no client waits on a broker that does not answer yet.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A bound address, not yet listening.
pub struct Bound {
    socket: Socket,
    address: SocketAddr,
}

impl Bound {
    /// Binds. Port 0 picks a free one.
    pub fn bind(address: SocketAddr) -> io::Result<Bound> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A port whose last connections linger in TIME_WAIT can be bound again; one that listens cannot.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Bound { socket, address })
    }

    /// The address with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens it for connections, as a listener of this crate.
    pub fn listen(self) -> io::Result<Listener> {
        let address = self.address;
        let listener = self.open()?;
        listener.set_nonblocking(true)?;
        Ok(Listener { socket: mio::net::TcpListener::from_std(listener), address })
    }

    /// Opens it for connections, as a listener of the standard library (blocking).
    pub fn open(self) -> io::Result<std::net::TcpListener> {
        self.socket.listen(BACKLOG)?;
        Ok(self.socket.into())
    }
}

/// A listening socket.
pub struct Listener {
    pub(crate) socket: mio::net::TcpListener,
    pub(crate) address: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_listens_cannot_be_bound_again() {
        let first = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.address();
        assert_ne!(address.port(), 0);
        let listener = first.listen().unwrap();
        let error = Bound::bind(address).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        Bound::bind(address).unwrap();
    }
}
