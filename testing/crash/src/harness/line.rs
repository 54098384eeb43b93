//! A client's connection whose reads and writes never wait, and the wait for it and for orders.

use super::orders;
use packhorse_client_core::{Client, Event, Input, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Pieces of output handed to one call.
const PIECES: usize = 64;
/// How long the kernel may take to connect: the broker is on this machine, or not there.
const CONNECT: Duration = Duration::from_secs(2);

/// Why a connection is of no more use.
pub(super) type Lost = String;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Everything that had come is read.
    All,
    /// There may be more.
    Some,
}

/// See the module.
pub(super) struct Line {
    /// The protocol.
    pub(super) client: Client,
    socket: TcpStream,
    held: Vec<u8>,
    start: Instant,
}

impl Line {
    /// Connects as this container; the login is under way.
    pub(super) fn open(to: SocketAddr, container: &str) -> Result<Line, Lost> {
        Line::open_with(to, Options { container_id: container.into(), ..Options::default() })
    }

    /// As [`Line::open`], with every option as given.
    pub(super) fn open_with(to: SocketAddr, options: Options) -> Result<Line, Lost> {
        let socket = TcpStream::connect_timeout(&to, CONNECT).map_err(|e| e.to_string())?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let client = Client::new(options, 0);
        Ok(Line { client, socket, held: Vec::new(), start: Instant::now() })
    }

    /// Milliseconds as the client wants them.
    pub(super) fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Reads what is there, at most once `buffer`, and hands out its events. The end of the session or the connection is an error.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        mut on: impl FnMut(&mut Client, Event<'_>) -> Result<(), Lost>,
    ) -> Result<Read, Lost> {
        let count = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err("the broker closed the socket".into()),
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Read::All),
            Err(e) => return Err(e.to_string()),
        };
        let now_ms = self.now_ms();
        let mut input = Input { partial: &mut self.held, fresh: &buffer[..count] };
        while let Some(event) = self.client.next(&mut input, now_ms).map_err(|e| e.to_string())? {
            match event {
                Event::SessionLost { reason, .. } => return Err(format!("the session ended: {reason}")),
                Event::Closed { reason } => return Err(format!("closed: {reason}")),
                event => on(&mut self.client, event)?,
            }
        }
        Ok(if count < buffer.len() { Read::All } else { Read::Some })
    }

    /// Writes as much as the socket takes. False: something is left.
    pub(super) fn write(&mut self) -> Result<bool, Lost> {
        let now_ms = self.now_ms();
        self.client.flush(now_ms);
        loop {
            if self.client.output_len() == 0 {
                return Ok(true);
            }
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (place, piece) in pieces.iter_mut().zip(self.client.output()) {
                *place = IoSlice::new(piece);
                count += 1;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &pieces[..count], &mut SendAncillaryBuffer::default(), flags) {
                Ok(bytes) => self.client.written(bytes),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    /// Keeps the connection alive when the peer wants to hear from us.
    pub(super) fn tick(&mut self) -> Result<(), Lost> {
        let now_ms = self.now_ms();
        if self.client.next_deadline().is_some_and(|at| at <= now_ms) {
            self.client.on_tick(now_ms).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Waits until the socket can be read, or written if something is left, or there is an order; at most so long.
    pub(super) fn wait(&self, unwritten: bool, most: Duration) {
        let orders = PollFd::from_borrowed_fd(orders::input(), PollFlags::IN);
        wait_for(&mut [self.to_poll(unwritten), orders], most);
    }

    /// The same without orders.
    pub(super) fn wait_for_socket(&self, unwritten: bool, most: Duration) {
        wait_for(&mut [self.to_poll(unwritten)], most);
    }

    fn to_poll(&self, unwritten: bool) -> PollFd<'_> {
        PollFd::new(&self.socket, if unwritten { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
    }
}

fn wait_for(fds: &mut [PollFd<'_>], most: Duration) {
    let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    // Interrupted or not: the caller looks again.
    let _ = poll(fds, Some(&timeout));
}
