//! A blocking AMQP connection for the command line: core's client over one socket.

use crate::End;
use crate::cli::Amqp;
use packhorse_client_core::{Client, Event, Failure, Input, Login, Options, SessionId};
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long the broker may take to answer while something is asked of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection and its clock.
pub(crate) struct Wire {
    pub(crate) client: Client,
    stream: TcpStream,
    held: Vec<u8>,
    buffer: Vec<u8>,
    start: Instant,
}

/// Why a wait ended without an end of the work.
pub(crate) enum Wait {
    /// Bytes came and were handed on.
    Served,
    /// Nothing came in the time given.
    Silent,
}

impl Wire {
    /// Connects, logs in, opens, and begins a session.
    pub(crate) fn open(amqp: &Amqp, purpose: &str) -> Result<(Wire, SessionId), End> {
        let stream = connect(&amqp.amqp).map_err(|e| {
            let place = &amqp.amqp;
            let help = "start one with `packhorse serve`, or say where it is with --amqp";
            End::Unreachable(format!("no broker at {place}: {e}; {help}"))
        })?;
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
        let login = match &amqp.user {
            None => Login::Anonymous,
            Some(user) => Login::Plain { user: user.clone(), password: amqp.password.clone() },
        };
        let container_id = format!("packhorse-{purpose}-{}", std::process::id());
        let host = amqp.amqp.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_string());
        let client = Client::new(Options { container_id, hostname: host, login, ..Options::default() }, 0);
        let mut wire = Wire { client, stream, held: Vec::new(), buffer: vec![0; 256 << 10], start: Instant::now() };
        let mut opened = false;
        while !opened {
            let wait = wire.turn(PATIENCE, |_, event| {
                opened |= matches!(event, Event::Opened(_));
                Ok(())
            })?;
            if matches!(wait, Wait::Silent) {
                return Err(End::Unreachable(format!("{} does not answer like an AMQP broker", amqp.amqp)));
            }
        }
        let session = wire.client.begin(0).map_err(|e| End::Refused(e.to_string()))?;
        Ok((wire, session))
    }

    /// Client, socket, bytes of an unfinished frame, and the instant that is 0 to the client: for callers with a loop of their own.
    pub(crate) fn into_parts(self) -> (Client, TcpStream, Vec<u8>, Instant) {
        (self.client, self.stream, self.held, self.start)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes what there is, waits at most `patience` for bytes, hands out their events.
    pub(crate) fn turn(
        &mut self,
        patience: Duration,
        mut on: impl FnMut(&mut Client, Event<'_>) -> Result<(), End>,
    ) -> Result<Wait, End> {
        self.write()?;
        let until = Instant::now() + patience;
        let n = loop {
            // Woken for a sign of life of ours, too.
            let now_ms = self.now_ms();
            let alive = self.client.next_deadline().map(|at| Duration::from_millis(at.saturating_sub(now_ms) + 1));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Wait::Silent);
            }
            let wait = alive.map_or(left, |alive| alive.min(left));
            self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1)))).map_err(lost)?;
            match self.stream.read(&mut self.buffer) {
                Ok(n) => break n,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    let now_ms = self.now_ms();
                    self.client.on_tick(now_ms).map_err(failed)?;
                    self.write()?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(lost(e)),
            }
        };
        if n == 0 {
            return Err(End::Unreachable("the broker closed the connection".into()));
        }
        let now_ms = self.now_ms();
        let Wire { client, held, buffer, .. } = self;
        let mut input = Input { partial: held, fresh: &buffer[..n] };
        let mut end = None;
        while let Some(event) = client.next(&mut input, now_ms).map_err(failed)? {
            let told = match event {
                Event::Closed { ref reason } if reason.condition().is_some() => {
                    Err(End::Refused(format!("the broker closed the connection: {reason}")))
                }
                Event::SessionLost { ref reason, .. } if reason.condition().is_some() => {
                    Err(End::Refused(format!("the broker ended the session: {reason}")))
                }
                event => on(client, event),
            };
            if let Err(e) = told {
                end.get_or_insert(e);
            }
        }
        match end {
            Some(end) => Err(end),
            None => Ok(Wait::Served),
        }
    }

    /// Writes everything that waits.
    fn write(&mut self) -> Result<(), End> {
        let now_ms = self.now_ms();
        self.client.flush(now_ms);
        while self.client.output_len() > 0 {
            let slices: Vec<IoSlice<'_>> = self.client.output().take(64).map(IoSlice::new).collect();
            let n = self.stream.write_vectored(&slices).map_err(lost)?;
            self.client.written(n);
        }
        Ok(())
    }

    /// Closes in order: what was settled before has reached the broker when this returns.
    pub(crate) fn close(mut self) -> Result<(), End> {
        let now_ms = self.now_ms();
        if self.client.close(now_ms).is_err() {
            return Ok(());
        }
        let mut closed = false;
        while !closed {
            let wait = self.turn(PATIENCE, |_, event| {
                closed |= matches!(event, Event::Closed { .. });
                Ok(())
            })?;
            if matches!(wait, Wait::Silent) {
                return Err(End::Unreachable("the broker does not answer the close".into()));
            }
        }
        Ok(())
    }
}

fn connect(place: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "must be HOST:PORT");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn lost(error: io::Error) -> End {
    End::Unreachable(format!("the connection to the broker was lost: {error}"))
}

fn failed(failure: Failure) -> End {
    End::Refused(failure.to_string())
}
