//! `serve`: from a configuration to a running broker and back to an exit reason.
//!
//! Order of a start: ports bound (one in use is known before anything else happens), HTTP answers, data directory locked and
//! recovered, shards recovered, listeners opened, ready. Order of a stop: listeners closed, shards stop, loops end, store
//! flushed and closed.

use crate::clock::Clock;
use crate::config::ServeConfig;
use crate::exit::ExitReason;
use crate::ready::{self, Ready};
use crate::{logging, signals};
use packhorse_broker::{Level, Reply, Shard};
use packhorse_disk::{DiskStore, OpenError, OpenOptions, OpenReport, ShardStore};
use packhorse_http::{Gateway, HttpLimits, Node, Phase, Server};
use packhorse_model::{ConnectionId, Now, Seed, ShardId};
use packhorse_net::{Bound, Door, Host, Limits, Mailbox, Post, Reactor};
use packhorse_store::Store;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a shard may take to answer an operator.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a connection may take.
const LINGER: Duration = Duration::from_secs(1);
/// How long an orderly stop may take before the rest is cut; nothing confirmed depends on it.
const STOP: Duration = Duration::from_secs(10);
/// How often a long recovery says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// What the main thread hears from the others.
pub(crate) enum Told {
    /// A signal to stop, by its name.
    Signal(&'static str),
    /// The data directory is open, or why not.
    Opened(Box<Result<Opened, ExitReason>>),
    /// A shard has recovered.
    Recovered,
    /// A shard has stopped in order.
    Stopped,
    /// The store has failed.
    StoreFailed(String),
    /// A loop cannot go on.
    LoopFailed(io::Error),
}

/// An open data directory: the store, its handles, what the start found.
pub(crate) type Opened = (DiskStore, Vec<ShardStore>, OpenReport);

/// The loops' view of the process.
struct Process {
    clock: Clock,
    gateway: Arc<Gateway>,
    told: Mutex<Sender<Told>>,
}

impl Process {
    fn tell(&self, told: Told) {
        // Nobody listens when the process ends.
        let _ = self.told.lock().expect("no panic under this lock: a panic ends the process").send(told);
    }
}

impl Host for Process {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn reply(&self, id: u64, reply: Reply) {
        self.gateway.reply(id, reply);
    }

    fn log(&self, shard: ShardId, level: Level, connection: Option<ConnectionId>, text: &str) {
        let connection = connection.map(tracing::field::display);
        let shard = shard.0;
        let text = logging::one_line(text);
        match level {
            Level::Debug => tracing::debug!(shard, connection, "{text}"),
            Level::Info => tracing::info!(shard, connection, "{text}"),
            Level::Warn => tracing::warn!(shard, connection, "{text}"),
            Level::Error => tracing::error!(shard, connection, "{text}"),
        }
    }

    fn stopped(&self, _shard: ShardId) {
        self.tell(Told::Stopped);
    }

    fn store_failed(&self, what: &str) {
        self.tell(Told::StoreFailed(what.to_string()));
    }
}

/// Runs a broker until it is told to stop or cannot go on. Logs to standard error, says that it is ready on standard output.
/// Installs a panic hook: from now on a failed state assertion ends the process (134).
pub fn serve(config: ServeConfig) -> ExitReason {
    logging::start(config.log_format, config.log_level);
    install_panic_hook();
    raise_descriptor_limit();
    let reason = match start(config) {
        Ok(running) => running.run(),
        Err(reason) => reason,
    };
    match &reason {
        ExitReason::Stopped => tracing::info!("{reason}"),
        _ => tracing::error!(exit_code = reason.code(), "{reason}"),
    }
    logging::flush();
    reason
}

/// A broker that is ready.
struct Running {
    store: DiskStore,
    http: Server,
    node: Arc<Node>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    loops: Vec<JoinHandle<()>>,
    told: Receiver<Told>,
    ready_file: Option<std::path::PathBuf>,
}

fn start(config: ServeConfig) -> Result<Running, ExitReason> {
    let clock = Clock::start();
    let fault = |what: &'static str| {
        move |e: io::Error| ExitReason::Other(format!("cannot {what}: {e}; look at the limits of this process"))
    };
    let (tell, told) = channel();
    signals::start(tell.clone()).map_err(fault("watch for signals"))?;
    // One of an earlier run would say that this one is ready.
    if let Some(path) = &config.ready_file {
        ready::remove_if_dead(path);
    }

    let amqp = bind_amqp(&config)?;
    let http = Bound::bind(config.http).map_err(|e| cannot_listen(config.http, "HTTP", &e))?;
    let http_address = http.address();
    let http = http.open().map_err(|e| cannot_listen(http_address, "HTTP", &e))?;

    let doors = packhorse_net::doors(config.broker.shards).map_err(fault("make the shards' wake-ups"))?;
    let mailboxes = doors[0].mailboxes();
    let node = Arc::new(Node::new(config.broker.broker_name.clone(), config.effective.to_json()));
    let to = Arc::clone(&mailboxes);
    let gateway = Arc::new(Gateway::new(config.broker.shards, PATIENCE, move |shard, id, command| {
        to[usize::from(shard.0)].post(Post::Admin { id, command });
    }));
    let limits = HttpLimits { connections: config.http_max_connections, ..HttpLimits::default() };
    let http = Server::start(http, Arc::clone(&gateway), Arc::clone(&node), limits).map_err(fault("start HTTP"))?;

    #[cfg(feature = "failpoints")]
    {
        crate::failpoints::from_environment().map_err(ExitReason::Config)?;
        packhorse_disk::watch(crate::failpoints::probe);
        node.set_failpoints(crate::failpoints::registry());
        tracing::warn!("a build for tests: failpoints are at /api/v1/failpoints");
    }
    let (store, handles, report) = open_store(&config, &mailboxes, &tell, &told)?;
    // Nobody else has this data directory, so nobody else is ready with it.
    if let Some(path) = &config.ready_file {
        let _ = std::fs::remove_file(path);
    }
    node.set_broker_id(uuid::Uuid::from_bytes(report.store).to_string());
    let process = Arc::new(Process { clock, gateway, told: Mutex::new(tell) });
    let loops = start_shards(&config, doors, handles, &process).map_err(fault("start the shards' threads"))?;
    let running = Running { store, http, node, mailboxes, loops, told, ready_file: config.ready_file.clone() };
    running.recovered(&report)?;

    let listen = |bound: Bound| {
        let address = bound.address();
        bound.listen().map_err(|e| cannot_listen(address, "AMQP", &e))
    };
    let addresses: Vec<SocketAddr> = amqp.iter().map(Bound::address).collect();
    let listeners = amqp.into_iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    running.mailboxes[0].post(Post::Listen(listeners));
    running.node.enter(Phase::Ready);
    let facts = Ready {
        amqp: addresses,
        http: http_address,
        data: config.data.clone(),
        messages: report.messages,
        recovery_ms: clock.elapsed_ms(),
    };
    announce(&facts, config.ready_file.as_deref())?;
    Ok(running)
}

fn announce(facts: &Ready, file: Option<&std::path::Path>) -> Result<(), ExitReason> {
    tracing::info!("{facts}");
    if let Some(path) = file {
        facts.write_file(path).map_err(|e| {
            let path = path.display();
            ExitReason::Config(format!("cannot write the ready file {path} (--ready-file): {e}"))
        })?;
    }
    // Nobody may be reading standard output; that is their choice.
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{facts}").and_then(|()| out.flush());
    ready::notify(&format!("READY=1\nSTATUS={facts}"));
    Ok(())
}

fn bind_amqp(config: &ServeConfig) -> Result<Vec<Bound>, ExitReason> {
    let mut bound = Vec::new();
    for address in &config.amqp {
        match Bound::bind(*address) {
            Ok(one) => bound.push(one),
            Err(e) if config.amqp_by_default && address.is_ipv6() && no_such_family(&e) => {
                tracing::info!("no IPv6 on this machine: AMQP is not served on {address}");
            }
            Err(e) => return Err(cannot_listen(*address, "AMQP", &e)),
        }
    }
    Ok(bound)
}

fn no_such_family(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || errno == Some(Errno::AFNOSUPPORT.raw_os_error())
}

fn cannot_listen(address: SocketAddr, what: &str, error: &io::Error) -> ExitReason {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_string(),
        _ => error.to_string(),
    };
    ExitReason::Listen(format!(
        "cannot listen on {address} for {what}: {why}; stop what listens there, or choose another port (0 picks a free one)"
    ))
}

/// Opens the data directory in a thread of its own, so that a signal ends a long recovery and a person sees that it goes on.
fn open_store(
    config: &ServeConfig,
    mailboxes: &Arc<[Arc<Mailbox>]>,
    tell: &Sender<Told>,
    told: &Receiver<Told>,
) -> Result<Opened, ExitReason> {
    let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
    let mut options = OpenOptions::new(&config.data, config.broker.shards, seed);
    options.segment_bytes = config.segment_bytes;
    options.checkpoints = config.checkpoints;
    // What the store remembers, the home of branches remembers as well.
    options.remember.branches_ms = config.broker.transactions.remember_ms;
    options.remember.branches_max = config.broker.transactions.max_remembered;
    let to = Arc::clone(mailboxes);
    let wake = Arc::new(move |shard: ShardId| to[usize::from(shard.0)].wake());
    let data = config.data.display().to_string();
    tracing::info!("reading the data directory {data}");
    let (tell, dir) = (tell.clone(), data.clone());
    let open = move || {
        let opened = DiskStore::open(&options, wake).map_err(|e| {
            // The journal names files within its directory.
            let said = e.to_string();
            let said = if said.contains(&dir) { said } else { format!("in {dir}: {said}") };
            match e {
                OpenError::InUse { .. } => ExitReason::InUse(said),
                OpenError::OtherFormat { .. } | OpenError::Damaged { .. } | OpenError::CheckpointLost { .. } => {
                    ExitReason::Data(said)
                }
                OpenError::Fault { .. } | OpenError::NoSpace { .. } => ExitReason::Storage(said),
            }
        });
        // Nobody listens when a signal was faster: the store is closed by being dropped.
        let _ = tell.send(Told::Opened(Box::new(opened)));
    };
    let spawned = std::thread::Builder::new().name("recovery".into()).spawn(open);
    spawned.map_err(|e| {
        ExitReason::Other(format!("cannot start the thread for recovery: {e}; look at the limits of this process"))
    })?;
    let started = Instant::now();
    let opened = loop {
        match told.recv_timeout(PROGRESS) {
            Ok(Told::Opened(opened)) => break (*opened)?,
            Ok(Told::Signal(name)) => {
                tracing::info!("{name} while reading the data directory: stopping at once");
                return Err(ExitReason::Stopped);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                tracing::info!("still reading the data directory {data}, for {} s", started.elapsed().as_secs());
                ready::notify("EXTEND_TIMEOUT_USEC=60000000");
            }
            Err(RecvTimeoutError::Disconnected) => return Err(all_ended()),
        }
    };
    let report = &opened.2;
    if let Some((segment, offset)) = &report.torn {
        tracing::info!("{segment} was cut at byte {offset}: an unfinished write, of which nothing had been confirmed");
    }
    for (segment, offset) in &report.mended {
        tracing::error!(
            "{segment} had a wrong bit in the block at byte {offset}, which was put right; nothing is lost, but the disk is not to be \
             trusted: look at the errors that it reports (smartctl, the kernel's log), and move the data directory to another one"
        );
    }
    if report.orphans > 0 {
        tracing::warn!("{} large messages without an entry were moved to {data}/large/attic", report.orphans);
    }
    if report.suspects > 0 {
        tracing::info!(
            "the broker did not stop in order: {} messages may have been delivered, and go out marked one by one",
            report.suspects
        );
    }
    tracing::info!(
        "the journal was read in {} ms: {} queues, {} messages, {} bytes",
        report.recovery_ms,
        report.queues,
        report.messages,
        report.bytes
    );
    Ok(opened)
}

fn start_shards(
    config: &ServeConfig,
    doors: Vec<Door>,
    handles: Vec<ShardStore>,
    process: &Arc<Process>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let broker = Arc::new(config.broker.clone());
    let (low, high) = uuid::Uuid::new_v4().as_u64_pair();
    let seed = Seed(low, high);
    let connections = connections_within(config.max_connections, descriptors());
    if connections < config.max_connections {
        tracing::info!(
            "at most {connections} connections instead of amqp.max_connections = {}: a process has {} descriptors here, and the store needs its share (ulimit -n)",
            config.max_connections,
            descriptors().unwrap_or_default()
        );
    }
    let limits = Limits { connections, linger: LINGER };
    doors
        .into_iter()
        .zip(handles)
        .zip(0..)
        .map(|((door, handle), index)| {
            let (broker, process) = (Arc::clone(&broker), Arc::clone(process));
            let shard = move || {
                #[cfg(feature = "failpoints")]
                let seen = crate::failpoints::Seen::default();
                #[cfg(feature = "failpoints")]
                let handle = crate::failpoints::WatchedStore::new(handle, seen.clone());
                let mut shard = Shard::new(broker, ShardId(index), seed, handle);
                recover(&mut shard, &process);
                process.tell(Told::Recovered);
                #[cfg(feature = "failpoints")]
                let shard = crate::failpoints::WatchedMachine::new(shard, seen);
                if let Err(e) = Reactor::new(door, shard, Arc::clone(&process), limits).run() {
                    process.tell(Told::LoopFailed(e));
                }
            };
            std::thread::Builder::new().name(format!("shard-{index}")).spawn(shard)
        })
        .collect()
}

/// Recovers a shard page by page; a long one says how far it is.
fn recover(shard: &mut Shard<impl Store>, process: &Process) {
    let mut told = Instant::now();
    loop {
        let progress = shard.recover_step(process.now());
        if progress.done {
            return;
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let shard = shard.id().0;
            tracing::info!(shard, "recovering: {} messages in {} queues so far", progress.entries, progress.queues);
        }
    }
}

impl Running {
    /// Waits until every shard has recovered.
    fn recovered(&self, report: &OpenReport) -> Result<(), ExitReason> {
        let mut left = self.loops.len();
        while left > 0 {
            match self.told.recv() {
                Ok(Told::Recovered) => left -= 1,
                Ok(Told::Signal(name)) => {
                    tracing::info!("{name} during recovery of {} messages: stopping at once", report.messages);
                    return Err(ExitReason::Stopped);
                }
                Ok(Told::StoreFailed(what)) => return Err(storage(&what)),
                Ok(Told::LoopFailed(e)) => return Err(loop_failed(&e)),
                Ok(Told::Stopped | Told::Opened(_)) => {}
                Err(_) => return Err(all_ended()),
            }
        }
        Ok(())
    }

    fn run(self) -> ExitReason {
        loop {
            match self.told.recv() {
                Ok(Told::Signal(name)) => {
                    tracing::info!("{name}: stopping in order; a second signal stops at once");
                    return self.stop();
                }
                Ok(Told::StoreFailed(what)) => {
                    self.node.enter(Phase::Failed(what.clone()));
                    return storage(&what);
                }
                Ok(Told::LoopFailed(e)) => return loop_failed(&e),
                Ok(Told::Recovered | Told::Stopped | Told::Opened(_)) => {}
                Err(_) => return all_ended(),
            }
        }
    }

    /// The orderly stop.
    fn stop(self) -> ExitReason {
        self.node.enter(Phase::Stopping);
        ready::notify("STOPPING=1");
        if let Some(path) = &self.ready_file {
            let _ = std::fs::remove_file(path);
        }
        self.post_all(|| Post::Stop);
        let deadline = Instant::now() + STOP;
        let mut left = self.loops.len();
        while left > 0 {
            match self.told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Told::Stopped) => left -= 1,
                Ok(Told::Signal(name)) => {
                    tracing::info!("{name} again: stopping at once; nothing that was confirmed is lost");
                    return ExitReason::Stopped;
                }
                Ok(Told::StoreFailed(what)) => {
                    self.node.enter(Phase::Failed(what.clone()));
                    return storage(&what);
                }
                Ok(Told::LoopFailed(e)) => return loop_failed(&e),
                Ok(Told::Recovered | Told::Opened(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("{left} shards did not stop within {} s: cutting their connections", STOP.as_secs());
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.post_all(|| Post::Exit);
        if left == 0 {
            for thread in self.loops {
                // A panic in one has ended the process already.
                let _ = thread.join();
            }
        }
        self.http.stop();
        match self.store.shutdown() {
            Ok(()) => ExitReason::Stopped,
            Err(failure) => storage(&failure.what),
        }
    }

    fn post_all(&self, post: impl Fn() -> Post) {
        for mailbox in &self.mailboxes[..] {
            mailbox.post(post());
        }
    }
}

fn storage(what: &str) -> ExitReason {
    ExitReason::Storage(format!(
        "the storage failed: {what}; look at the disk and its free space, then start again: what was confirmed is kept"
    ))
}

fn all_ended() -> ExitReason {
    ExitReason::Other("all threads of the broker have ended; start again, and please report this".into())
}

fn loop_failed(error: &io::Error) -> ExitReason {
    ExitReason::Other(format!("cannot wait for sockets: {error}; start again, and report this if it returns"))
}

/// A state assertion that fails anywhere ends the process: a step half done must confirm nothing. Recovery then sees what a
/// crash leaves, which is what it is for.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        logging::flush();
        let thread = std::thread::current();
        let trace = std::backtrace::Backtrace::capture();
        let mut err = io::stderr().lock();
        let name = thread.name().unwrap_or("?");
        let _ = writeln!(
            err,
            "packhorse: a state assertion failed in thread {name}: {panic}\n{trace}\n\
             packhorse: ending at once (134); start again, what was confirmed is kept, and please report this"
        );
        let _ = err.flush();
        #[expect(clippy::disallowed_methods, reason = "this is the hook that the lint speaks of")]
        std::process::abort();
    }));
}

/// Descriptors that the process may have; `None`: any number.
fn descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Connections that leave descriptors for the store, listeners and management: a segment that cannot be created because
/// peers have them all would end the broker.
fn connections_within(wanted: usize, descriptors: Option<u64>) -> usize {
    /// For segments, large messages, checkpoints and HTTP; of a small limit, half.
    const OTHERS: u64 = 512;
    let Some(all) = descriptors else { return wanted };
    let room = all.saturating_sub(OTHERS.min(all / 2));
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
}

/// Every connection is a descriptor; the soft limit is often 1,024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        tracing::debug!("the limit of open files stays at {current:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn connections_leave_descriptors_for_the_store() {
        assert_eq!(super::connections_within(16_384, None), 16_384);
        assert_eq!(super::connections_within(16_384, Some(1 << 20)), 16_384);
        assert_eq!(super::connections_within(16_384, Some(4096)), 4096 - 512);
        assert_eq!(super::connections_within(16_384, Some(60)), 30);
        assert_eq!(super::connections_within(16_384, Some(1)), 1);
    }
}
