//! A TCP proxy between a client and the broker that keeps every byte of both directions. It changes nothing on the way. Its
//! port stays when the broker behind it is another.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// The bytes of one connection: what the client sent, what the broker sent.
#[derive(Default, Clone)]
pub(crate) struct Recording {
    pub(crate) from_client: Vec<u8>,
    pub(crate) from_broker: Vec<u8>,
}

/// Listens on a free port of the loopback until it is dropped.
pub(crate) struct Recorder {
    port: u16,
    broker: Arc<Mutex<SocketAddr>>,
    connections: Arc<Mutex<Vec<Recording>>>,
    stop: Arc<Mutex<bool>>,
}

impl Recorder {
    /// Starts to pass connections on to `broker`.
    pub(crate) fn start(broker: SocketAddr) -> Result<Recorder, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("recorder: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(Mutex::new(false));
        let broker = Arc::new(Mutex::new(broker));
        let (kept, stopped, to) = (Arc::clone(&connections), Arc::clone(&stop), Arc::clone(&broker));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *lock(&stopped) {
                    return;
                }
                let broker = *lock(&to);
                if let Ok(server) = TcpStream::connect(broker) {
                    record(client, server, &kept);
                }
            }
        });
        Ok(Recorder { port, broker, connections, stop })
    }

    /// The port clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Passes connections that come from now on to another broker.
    pub(crate) fn aim(&self, broker: SocketAddr) {
        *lock(&self.broker) = broker;
    }

    /// What was recorded so far, a connection each.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        lock(&self.connections).clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        *lock(&self.stop) = true;
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record(client: TcpStream, server: TcpStream, kept: &Arc<Mutex<Vec<Recording>>>) {
    let index = {
        let mut kept = lock(kept);
        kept.push(Recording::default());
        kept.len() - 1
    };
    for (from, to, is_client) in [(client.try_clone(), server.try_clone(), true), (Ok(server), Ok(client), false)] {
        let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
        let kept = Arc::clone(kept);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                {
                    let recording = &mut lock(&kept)[index];
                    let side = if is_client { &mut recording.from_client } else { &mut recording.from_broker };
                    side.extend_from_slice(&buffer[..count]);
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            // A half-closed side is passed on as such.
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
