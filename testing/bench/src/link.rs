//! A client's connection over a socket, one thread, blocking.

use packhorse_client_core::{Client, Event, Input, Login, Options, SessionId};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// See the module.
pub(crate) struct Link {
    pub(crate) client: Client,
    socket: TcpStream,
    held: Vec<u8>,
    buffer: Vec<u8>,
    start: Instant,
}

impl Link {
    /// Connects, logs in as nobody in particular and begins a session.
    pub(crate) fn open(amqp: &str, name: &str) -> Result<(Link, SessionId), String> {
        let socket = TcpStream::connect(amqp).map_err(|e| format!("{amqp}: {e}; is the broker running?"))?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let container_id = format!("packhorse-bench-{name}-{}", std::process::id());
        let options = Options { container_id, login: Login::Anonymous, idle_timeout_ms: 0, ..Options::default() };
        let client = Client::new(options, 0);
        let mut link = Link { client, socket, held: Vec::new(), buffer: vec![0; READ_BYTES], start: Instant::now() };
        let mut open = false;
        while !open {
            link.turn(|_, event| {
                open |= matches!(event, Event::Opened(_));
                Ok(())
            })?;
        }
        let session = link.client.begin(0).map_err(|e| e.to_string())?;
        Ok((link, session))
    }

    /// Nanoseconds since the connection began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Writes what is to be written, then waits for bytes and takes in what they say.
    pub(crate) fn turn(
        &mut self,
        mut on: impl FnMut(&mut Client, Event<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.write()?;
        let read = self.socket.read(&mut self.buffer).map_err(|e| format!("the connection broke: {e}"))?;
        if read == 0 {
            return Err("the broker closed the connection".into());
        }
        let now_ms = self.start.elapsed().as_millis() as u64;
        let mut input = Input { partial: &mut self.held, fresh: &self.buffer[..read] };
        while let Some(event) = self.client.next(&mut input, now_ms).map_err(|e| e.to_string())? {
            match event {
                Event::LinkLost(lost) => return Err(format!("the link ended: {}", lost.reason)),
                Event::SessionLost { reason, .. } => return Err(format!("the session ended: {reason}")),
                Event::Closed { reason } => return Err(format!("the connection was closed: {reason}")),
                other => on(&mut self.client, other)?,
            }
        }
        Ok(())
    }

    /// Writes what is to be written.
    pub(crate) fn write(&mut self) -> Result<(), String> {
        self.client.flush(self.start.elapsed().as_millis() as u64);
        while self.client.output_len() > 0 {
            let chunks: Vec<IoSlice<'_>> = self.client.output().take(64).map(IoSlice::new).collect();
            let written = self.socket.write_vectored(&chunks).map_err(|e| format!("the connection broke: {e}"))?;
            self.client.written(written);
        }
        Ok(())
    }

    /// Closes in order.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.client.close(self.start.elapsed().as_millis() as u64).map_err(|e| e.to_string())?;
        self.write()?;
        // Whatever still comes is not for us; the socket's end says that the broker has seen ours.
        while !matches!(self.socket.read(&mut self.buffer), Ok(0) | Err(_)) {}
        Ok(())
    }
}

