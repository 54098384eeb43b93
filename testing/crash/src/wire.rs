//! A well-behaved client over a blocking socket: core's client with reads that end after a time.

use packhorse_client_core::{Client, Event, Failure, Input, Login, OpenFrame, Options, SessionId};
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// How long the broker may take to open a connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a connection is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The socket.
    Lost(String),
    /// The broker closed it with this condition and sentence.
    Closed {
        /// The standard's condition.
        condition: Option<String>,
        /// What it says.
        why: String,
    },
    /// A link or session of ours ended, or the broker broke a rule.
    Refused(String),
}

/// See the module.
pub struct Wire {
    /// The protocol.
    pub client: Client,
    socket: TcpStream,
    held: Vec<u8>,
    buffer: Vec<u8>,
    start: Instant,
}

impl Wire {
    /// Connects as this container, logs in and begins a session.
    pub fn open(to: SocketAddr, container: &str) -> Result<(Wire, SessionId), Broken> {
        let options = Options { container_id: container.into(), login: Login::Anonymous, ..Options::default() };
        Wire::open_with(to, options, |_| {})
    }

    /// As [`Wire::open`], with every option as given; the broker's `open` is shown to `opened`.
    pub fn open_with(
        to: SocketAddr,
        options: Options,
        mut opened: impl FnMut(&OpenFrame<'_>),
    ) -> Result<(Wire, SessionId), Broken> {
        let socket = TcpStream::connect(to).map_err(lost)?;
        socket.set_nodelay(true).map_err(lost)?;
        // A broker that is full does not read; then writing must not hang either.
        socket.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
        let client = Client::new(options, 0);
        let mut wire = Wire { client, socket, held: Vec::new(), buffer: vec![0; READ_BYTES], start: Instant::now() };
        let mut open = false;
        while !open {
            if wire.start.elapsed() > PATIENCE {
                return Err(Broken::Lost("no open after a minute".into()));
            }
            wire.turn(Duration::from_secs(1), |_, event| {
                if let Event::Opened(frame) = event {
                    open = true;
                    opened(&frame);
                }
                Ok(())
            })?;
        }
        let session = wire.client.begin(0).map_err(|e| Broken::Refused(e.to_string()))?;
        Ok((wire, session))
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Writes what is to be written, waits at most `patience` for bytes, hands out their events. The end of a link, a session or
    /// the connection that we did not ask for is an error.
    pub fn turn(
        &mut self,
        patience: Duration,
        mut on: impl FnMut(&mut Client, Event<'_>) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        self.write()?;
        self.socket.set_read_timeout(Some(patience.max(Duration::from_millis(1)))).map_err(lost)?;
        let read = match self.socket.read(&mut self.buffer) {
            Ok(0) => return Err(Broken::Lost("the broker closed the socket".into())),
            Ok(read) => read,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let now_ms = self.now_ms();
                return self.client.on_tick(now_ms).map_err(failed);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(lost(e)),
        };
        let now_ms = self.now_ms();
        let Wire { client, held, buffer, .. } = self;
        let mut input = Input { partial: held, fresh: &buffer[..read] };
        let mut end = Ok(());
        while let Some(event) = client.next(&mut input, now_ms).map_err(failed)? {
            let done = match event {
                Event::LinkLost(link) => Err(Broken::Refused(format!("link {}: {}", link.token, link.reason))),
                Event::SessionLost { reason, .. } => Err(Broken::Refused(format!("session: {reason}"))),
                Event::Closed { reason } => {
                    Err(Broken::Closed { condition: reason.condition().map(str::to_string), why: reason.to_string() })
                }
                event => on(client, event),
            };
            // A closed connection says more than the links that went with it.
            if let Err(broken) = done
                && (end.is_ok() || matches!(broken, Broken::Closed { .. }))
            {
                end = Err(broken);
            }
        }
        end
    }

    /// Writes what is to be written.
    pub fn write(&mut self) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        self.client.flush(now_ms);
        while self.client.output_len() > 0 {
            let chunks: Vec<IoSlice<'_>> = self.client.output().take(64).map(IoSlice::new).collect();
            match self.socket.write_vectored(&chunks) {
                Ok(written) => self.client.written(written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // What the broker said before it went is still to be read.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
                Err(e) => return Err(lost(e)),
            }
        }
        Ok(())
    }

    /// Ends the connection by a reset, without a word.
    pub fn reset(self) {
        // Where it cannot be, the end is one in order.
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Closes in order: returns when the broker has answered, so that everything before has taken effect.
    pub fn close(mut self) -> Result<(), Broken> {
        let now_ms = self.now_ms();
        self.client.close(now_ms).map_err(|e| Broken::Refused(e.to_string()))?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.turn(Duration::from_secs(1), |_, _| Ok(())) {
                Err(Broken::Closed { condition: None, .. }) => return Ok(()),
                Err(Broken::Refused(_)) | Ok(()) => {}
                Err(broken) => return Err(broken),
            }
        }
        Err(Broken::Lost("no answer to close".into()))
    }
}

fn lost(error: io::Error) -> Broken {
    Broken::Lost(error.to_string())
}

fn failed(failure: Failure) -> Broken {
    Broken::Refused(failure.to_string())
}
