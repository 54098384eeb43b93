//! One connection of many on one thread: reads and writes that do not wait, and a wait for all of them.

use super::clock;
use crate::End;
use crate::amqp;
use crate::cli::Amqp;
use packhorse_client_core::{Client, Event, Input, SessionId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::IoSlice;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Pieces of output handed to one call.
const PIECES: usize = 64;

/// See the module. The socket itself blocks; each call says whether it wants to wait.
pub(super) struct Wire {
    pub(super) client: Client,
    socket: TcpStream,
    held: Vec<u8>,
    start: Instant,
}

impl Wire {
    /// Connects, logs in and begins a session.
    pub(super) fn open(amqp: &Amqp, purpose: &str) -> Result<(Wire, SessionId), End> {
        let (wire, session) = amqp::Wire::open(amqp, purpose)?;
        let (client, socket, held, start) = wire.into_parts();
        Ok((Wire { client, socket, held, start }, session))
    }

    /// Begins another session.
    pub(super) fn session(&mut self) -> Result<SessionId, End> {
        self.client.begin(0).map_err(|misuse| End::Refused(misuse.to_string()))
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Reads what is there and hands out its events, with the time of the read. False: nothing was there.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        wait: bool,
        mut on: impl FnMut(&mut Client, Event<'_>, u64) -> Result<(), End>,
    ) -> Result<bool, End> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let bytes = match recv(&self.socket, &mut *buffer, flags) {
            Ok((_, 0)) => return Err(End::Unreachable("the broker closed the connection".into())),
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(lost(e)),
        };
        let now_ns = clock::now_ns();
        let now_ms = self.now_ms();
        let mut input = Input { partial: &mut self.held, fresh: &buffer[..bytes] };
        while let Some(event) =
            self.client.next(&mut input, now_ms).map_err(|e| End::Unreachable(format!("the broker: {e}")))?
        {
            match event {
                Event::LinkLost(lost) => return Err(End::Refused(format!("the broker ended a link: {}", lost.reason))),
                Event::SessionLost { reason, .. } => {
                    return Err(End::Refused(format!("the broker ended a session: {reason}")));
                }
                Event::Closed { reason } => {
                    return Err(End::Unreachable(format!("the broker closed the connection: {reason}")));
                }
                event => on(&mut self.client, event, now_ns)?,
            }
        }
        Ok(true)
    }

    /// Writes as much as the socket takes. False: something is left.
    pub(super) fn write(&mut self) -> Result<bool, End> {
        self.client.flush(self.now_ms());
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
            let mut control = SendAncillaryBuffer::default();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &pieces[..count], &mut control, flags) {
                Ok(bytes) => self.client.written(bytes),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(lost(e)),
            }
        }
    }

    /// Keeps the connection alive when the peer wants to hear from us.
    pub(super) fn tick(&mut self) -> Result<(), End> {
        let now_ms = self.now_ms();
        if self.client.next_deadline().is_some_and(|at| at <= now_ms) {
            self.client.on_tick(now_ms).map_err(|e| End::Unreachable(format!("the broker: {e}")))?;
        }
        Ok(())
    }

    /// How long a waiting read waits.
    pub(super) fn set_patience(&self, patience: Duration) -> Result<(), End> {
        self.socket.set_read_timeout(Some(patience)).map_err(|e| End::Unreachable(e.to_string()))
    }

    /// Closes in order: what was said before has reached the broker when this returns. Answer: the broker said so too, and
    /// nothing came that nobody looked at.
    pub(super) fn close(mut self, buffer: &mut [u8]) -> Result<bool, End> {
        let now_ms = self.now_ms();
        if self.client.close(now_ms).is_err() {
            return Ok(false);
        }
        let mut unread = false;
        self.set_patience(Duration::from_millis(100))?;
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            self.write()?;
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                // Whatever still comes is not for us; the answer and the end of the stream follow each other.
                Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) => return Ok(false),
                Ok((_, bytes)) => {
                    let mut input = Input { partial: &mut self.held, fresh: &buffer[..bytes] };
                    while let Ok(Some(event)) = self.client.next(&mut input, now_ms) {
                        unread |= matches!(event, Event::Message(_));
                        if matches!(event, Event::Closed { .. }) {
                            return Ok(!unread);
                        }
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(lost(e)),
            }
        }
        Err(End::Unreachable("the broker does not answer the close".into()))
    }
}

/// Waits until one of the connections can be read, or written where `unwritten` says so, at most `wait_ns`. Fills
/// `readable`.
pub(super) fn wait<'a>(
    wires: impl Iterator<Item = (&'a Wire, bool)>,
    wait_ns: u64,
    readable: &mut Vec<bool>,
) -> Result<(), End> {
    let mut fds: Vec<PollFd<'_>> = wires
        .map(|(wire, unwritten)| {
            let flags = if unwritten { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&wire.socket, flags)
        })
        .collect();
    let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as _ };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(lost(e)),
    }
    readable.clear();
    readable.extend(fds.iter().map(|fd| fd.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)));
    Ok(())
}

fn lost(error: Errno) -> End {
    End::Unreachable(format!("the connection to the broker was lost: {error}"))
}
