//! The threads around the journal, and each shard's handle on it.
//!
//! Two flushers, one thread for everything else that writes, one for reads. Each takes an operation under the lock, runs it
//! without, and reports under the lock again: the lock is held for microseconds, never over a system call on a file.

use crate::files::{Files, Lock};
use packhorse_journal::{Checkpoints, Encoded, IoId, IoResult, JournalError, Lane, Log, Options, recover};
use packhorse_model::{BrokerId, Now, ShardId};
use packhorse_store::{
    Batch, Event, Failure, LargeOp, Load, LoadLarge, Recovered, Remember, Store, StoreStatus, Ticket,
};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A sleeping flusher looks this often whether the running flush stalls, as long as there is traffic.
const WATCH_US: u64 = 20_000;

/// Between two slices of a large transaction, for others who want the lock.
const TURN_OVER: Duration = Duration::from_micros(50);

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The data directory; made if it is not there.
    pub dir: PathBuf,
    /// Shards, at least one.
    pub shards: u16,
    /// Bytes of a segment, a multiple of 4096.
    pub segment_bytes: u64,
    /// Pre-written segments kept in reserve.
    pub spare_segments: u32,
    /// From the system's randomness: salts and a new store's identity are drawn from it.
    pub seed: u64,
    /// When checkpoints are taken.
    pub checkpoints: Checkpoints,
    /// How much is remembered of transactions that are completed.
    pub remember: Remember,
}

impl OpenOptions {
    /// The defaults.
    pub fn new(dir: impl Into<PathBuf>, shards: u16, seed: u64) -> OpenOptions {
        let Options { shards, segment_bytes, spare_segments, seed, checkpoints, remember, .. } =
            Options::new(shards, seed);
        OpenOptions { dir: dir.into(), shards, segment_bytes, spare_segments, seed, checkpoints, remember }
    }
}

/// What a start found and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// The store's identity, drawn when it was made; it never changes.
    pub store: [u8; 16],
    /// Entries of all queues.
    pub messages: u64,
    /// Entries among them that may have been with a consumer when the process died.
    pub suspects: u64,
    /// Queues.
    pub queues: u64,
    /// Bytes of the segments in use.
    pub bytes: u64,
    /// Milliseconds.
    pub recovery_ms: u64,
    /// The number of this start.
    pub run: u64,
    /// A torn tail that was cut off: segment and offset. Nothing in it had been confirmed.
    pub torn: Option<(String, u64)>,
    /// Last blocks of which one bit was wrong and is put right: segment and offset.
    pub mended: Vec<(String, u64)>,
    /// Large messages without an entry, moved to `large/attic`.
    pub orphans: u64,
}

type Wake = Arc<dyn Fn(ShardId) + Send + Sync>;

struct State {
    log: Log,
    stop: bool,
    /// Flushers that sleep.
    parked: usize,
    /// Of these, without a time to wake up by themselves.
    asleep: usize,
    /// Who waits for the store to come to rest.
    resting: usize,
}

struct Shared {
    state: Mutex<State>,
    flush: Condvar,
    side: Condvar,
    read: Condvar,
    rest: Condvar,
    files: Files,
    started: Instant,
    wake: Wake,
    /// Dropped last, when no thread can write any more.
    _lock: Lock,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic under this lock ends the process")
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        Now { mono_us: self.started.elapsed().as_micros() as u64, wall_ms: wall }
    }

    /// Reports an operation's end and wakes whom that concerns.
    fn report(&self, lane: Lane, id: IoId, result: IoResult, wakes: &mut Vec<ShardId>) {
        let mut state = self.lock();
        let now = self.now();
        state.log.on_io(id, result, now);
        state.log.take_wakes(wakes);
        // A flusher takes what is due by itself.
        if lane != Lane::Flush && state.parked > 0 && state.log.flush_due(now) {
            self.flush.notify_one();
        }
        self.nudge(&state);
        drop(state);
        for shard in wakes.drain(..) {
            (self.wake)(shard);
        }
    }

    /// Wakes the threads beside the flushers that have got work, and who waits for the store to come to rest.
    fn nudge(&self, state: &State) {
        if state.log.side_due() {
            self.side.notify_one();
        }
        if state.log.read_due() {
            self.read.notify_one();
        }
        if state.resting > 0 {
            self.rest.notify_all();
        }
    }

    /// Waits until `rested` holds; it is asked after each operation.
    fn wait_until(&self, mut state: MutexGuard<'_, State>, rested: impl Fn(&Log) -> bool) -> Result<(), Failure> {
        state.resting += 1;
        let mut state = self
            .rest
            .wait_while(state, |state| state.log.failed().is_none() && !rested(&state.log))
            .expect("a panic under this lock ends the process");
        state.resting -= 1;
        state.log.failed().cloned().map_or(Ok(()), Err)
    }

    fn flusher(&self) {
        let mut wakes = Vec::new();
        loop {
            let mut state = self.lock();
            if state.stop {
                return;
            }
            if state.log.is_behind() {
                self.catch_up(state, &mut wakes);
                continue;
            }
            let now = self.now();
            if let Some((id, op)) = state.log.next_io(Lane::Flush, now) {
                // The other one is to watch this flush, or has enough for one of its own, or to go on with what this one decides.
                if state.asleep > 0 || (state.parked > 0 && (state.log.flush_due(now) || state.log.is_behind())) {
                    self.flush.notify_one();
                }
                self.nudge(&state);
                drop(state);
                let result = self.files.run(op);
                self.report(Lane::Flush, id, result, &mut wakes);
                continue;
            }
            self.nudge(&state);
            // It sleeps at once: looking for work any longer would keep the shard, which often waits for this core, from
            // making that work.
            let timeout = match state.log.next_deadline(Lane::Flush) {
                Some(at_us) => Some(at_us.saturating_sub(now.mono_us).clamp(1, WATCH_US)),
                None if !state.log.idle() => Some(WATCH_US),
                None => None,
            };
            state.parked += 1;
            let mut state = match timeout {
                Some(us) => {
                    let timeout = Duration::from_micros(us);
                    self.flush.wait_timeout(state, timeout).expect("a panic under this lock ends the process").0
                }
                None => {
                    state.asleep += 1;
                    let mut state = self.flush.wait(state).expect("a panic under this lock ends the process");
                    state.asleep -= 1;
                    state
                }
            };
            state.parked -= 1;
        }
    }

    /// Takes in a slice of a large transaction.
    #[expect(clippy::disallowed_methods, reason = "a lock is not fair: others need the time in which nobody holds it")]
    #[cold]
    fn catch_up(&self, mut state: MutexGuard<'_, State>, wakes: &mut Vec<ShardId>) {
        state.log.catch_up();
        state.log.take_wakes(wakes);
        let more = state.log.is_behind();
        self.nudge(&state);
        drop(state);
        for shard in wakes.drain(..) {
            (self.wake)(shard);
        }
        if more {
            // Who lets a lock go and asks for it again at once gets it before those who have been waiting.
            std::thread::sleep(TURN_OVER);
        }
    }

    fn worker(&self, lane: Lane) {
        let mut wakes = Vec::new();
        let condvar = if lane == Lane::Read { &self.read } else { &self.side };
        loop {
            let mut state = self.lock();
            if state.stop {
                return;
            }
            let now = self.now();
            if let Some((id, op)) = state.log.next_io(lane, now) {
                drop(state);
                let result = self.files.run(op);
                self.report(lane, id, result, &mut wakes);
                continue;
            }
            self.nudge(&state);
            match state.log.next_deadline(lane) {
                Some(at_us) => {
                    let timeout = Duration::from_micros(at_us.saturating_sub(now.mono_us).max(1));
                    drop(condvar.wait_timeout(state, timeout).expect("a panic under this lock ends the process"));
                }
                None => drop(condvar.wait(state).expect("a panic under this lock ends the process")),
            }
        }
    }
}

/// An open data directory and its threads. Dropped, it stops at once, as if the process were killed; [`DiskStore::shutdown`]
/// stops in order.
pub struct DiskStore {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl DiskStore {
    /// Locks, recovers and opens a data directory. `wake` is called from the store's threads, without any lock held, when
    /// [`Store::poll`] of a shard has something; it must be quick.
    ///
    /// # Errors
    /// See [`JournalError`]; its text is meant for operators.
    pub fn open(options: &OpenOptions, wake: Wake) -> Result<(DiskStore, Vec<ShardStore>, OpenReport), JournalError> {
        let lock = Lock::take(&options.dir)?;
        let mut files = Files::new(&options.dir);
        let started = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let journal = Options {
            shards: options.shards.max(1),
            segment_bytes: options.segment_bytes,
            spare_segments: options.spare_segments,
            checkpoints: options.checkpoints,
            remember: options.remember,
            ..Options::new(options.shards, options.seed)
        };
        let recovery = recover(&mut files, &journal, Now { mono_us: 0, wall_ms: wall })?;
        let report = OpenReport {
            store: recovery.log.store(),
            messages: recovery.report.messages,
            suspects: recovery.report.suspects,
            queues: recovery.report.queues,
            bytes: recovery.report.bytes,
            recovery_ms: started.elapsed().as_millis() as u64,
            run: recovery.log.run(),
            torn: recovery.report.torn,
            mended: recovery.report.mended,
            orphans: recovery.report.orphans,
        };
        let (run, started_at_ms) = (recovery.log.run(), recovery.log.started_at_ms());
        let shared = Arc::new(Shared {
            state: Mutex::new(State { log: recovery.log, stop: false, parked: 0, asleep: 0, resting: 0 }),
            flush: Condvar::new(),
            side: Condvar::new(),
            read: Condvar::new(),
            rest: Condvar::new(),
            files,
            started,
            wake,
            _lock: lock,
        });
        let mut store = DiskStore { shared: shared.clone(), threads: Vec::new() };
        for name in ["flush-1", "flush-2"] {
            let shared = shared.clone();
            store.spawn(name, move || shared.flusher())?;
        }
        for (name, lane) in [("store-side", Lane::Side), ("store-read", Lane::Read)] {
            let shared = shared.clone();
            store.spawn(name, move || shared.worker(lane))?;
        }
        let shards = (0..journal.shards)
            .map(|shard| ShardStore {
                shared: shared.clone(),
                shard: ShardId(shard),
                next: Ticket(1),
                run,
                started_at_ms,
            })
            .collect();
        Ok((store, shards, report))
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), JournalError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|error| JournalError::Fault {
            op: "start the thread",
            path: name.into(),
            error: error.to_string(),
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Makes everything durable that was submitted, takes a checkpoint, and stops.
    ///
    /// # Errors
    /// The store had failed, or failed now.
    pub fn shutdown(self) -> Result<(), Failure> {
        let mut state = self.shared.lock();
        state.log.close();
        self.shared.flush.notify_all();
        self.shared.side.notify_one();
        self.shared.wait_until(state, Log::settled)
    }

    /// Waits until everything submitted so far is durable and everything asked for is answered.
    ///
    /// # Errors
    /// The store had failed, or failed now.
    pub fn settle(&self) -> Result<(), Failure> {
        self.shared.wait_until(self.shared.lock(), Log::quiet)
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.stop = true;
        }
        self.shared.flush.notify_all();
        self.shared.side.notify_all();
        self.shared.read.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so already.
            drop(thread.join());
        }
    }
}

/// One shard's handle.
pub struct ShardStore {
    shared: Arc<Shared>,
    shard: ShardId,
    next: Ticket,
    run: u64,
    started_at_ms: u64,
}

impl Store for ShardStore {
    fn next_ticket(&self) -> Ticket {
        self.next
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        let batch = Encoded::new(batch);
        let mut state = self.shared.lock();
        let now = self.shared.now();
        let idle = state.log.idle();
        let ticket = state.log.submit(self.shard, batch, now);
        // One that may wait still sets a time, if nobody has one yet.
        let notify = state.parked > 0 && (idle || state.log.flush_due(now));
        drop(state);
        if notify {
            self.shared.flush.notify_one();
        }
        debug_assert_eq!(ticket, self.next);
        self.next = ticket.next();
        ticket
    }

    fn large(&mut self, op: LargeOp) {
        self.shared.lock().log.large(self.shard, op);
        self.shared.side.notify_one();
    }

    fn load(&mut self, load: Load) {
        let mut wakes = Vec::new();
        let mut state = self.shared.lock();
        state.log.load(self.shard, load);
        state.log.take_wakes(&mut wakes);
        let due = state.log.read_due();
        drop(state);
        if due {
            self.shared.read.notify_one();
        }
        // An answer without a read is there at once; the caller may poll only when woken.
        for shard in wakes {
            (self.shared.wake)(shard);
        }
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.shared.lock().log.load_large(self.shard, load);
        self.shared.read.notify_one();
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.shared.lock().log.poll(self.shard, out);
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        self.shared.lock().log.recover(self.shard, limit, out)
    }

    fn broker(&self) -> BrokerId {
        BrokerId(self.shared.lock().log.store())
    }

    fn run(&self) -> u64 {
        self.run
    }

    fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    fn unflushed_bytes(&self) -> u64 {
        self.shared.lock().log.unflushed_bytes()
    }

    fn status(&self) -> StoreStatus {
        self.shared.lock().log.status()
    }
}
