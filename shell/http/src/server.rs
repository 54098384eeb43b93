//! The thread that serves HTTP: accepts within a cap, bounds what a peer may cost, ends in order.

use crate::api::{self, App};
use crate::patient::Patient;
use crate::{Gateway, Node};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Who is at the other end of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// What a peer may cost.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections at a time; those above get 503 and are closed.
    pub connections: usize,
    /// Time for a request's head; also how long an idle connection is kept.
    pub head: Duration,
    /// Time for a whole request: reading its body and making the answer.
    pub request: Duration,
    /// How long a peer may take no byte of an answer.
    pub stall: Duration,
    /// Time for requests under way when the server stops.
    pub stop: Duration,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            connections: 256,
            head: Duration::from_secs(10),
            request: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            stop: Duration::from_secs(1),
        }
    }
}

/// Largest head of a request, bytes. Also hyper's read buffer.
const HEAD_BYTES: usize = 32 << 10;

/// A running server.
pub struct Server {
    thread: std::thread::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Serves on `listener` from now on.
    pub fn start(
        listener: std::net::TcpListener,
        gateway: Arc<Gateway>,
        node: Arc<Node>,
        limits: HttpLimits,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = watch::channel(false);
        let app = Arc::new(App { gateway, node });
        let serve = move || runtime.block_on(accept(listener, app, limits, stopped));
        let thread = std::thread::Builder::new().name("http".into()).spawn(serve)?;
        Ok(Server { thread, stop })
    }

    /// Takes no more requests; those under way have [`HttpLimits::stop`]. Returns when the thread has ended.
    pub fn stop(self) {
        // Without a receiver the thread has ended already.
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

async fn accept(listener: TcpListener, app: Arc<App>, limits: HttpLimits, mut stopped: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let router = api::router(app, limits.request);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // Out of descriptors or memory, or the peer was faster than we: a pause keeps this from spinning.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            refuse(&stream);
            continue;
        };
        let router = router.clone();
        let stopped = stopped.clone();
        tokio::spawn(async move {
            serve(stream, peer, router, limits, stopped).await;
            drop(slot);
        });
    }
    drop(listener);
    // All slots free = no connection left.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.stop, slots.acquire_many(all)).await;
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    router: axum::Router,
    limits: HttpLimits,
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are single writes; a delay would only be felt.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Patient::new(stream, limits.stall));
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        service.call(request)
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(io, service)
    );
    // Errors are the peer's: it went away, broke HTTP or was too slow. Nothing of ours depends on it.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn refuse(stream: &TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n";
    // A fresh socket takes these bytes at once; if not, closing it says enough.
    let _ = stream.try_write(ANSWER);
}
