//! Power loss for a real process: a file system that knows what was synced, and forgets the rest when the power is cut.
//!
//! `kill -9` leaves the page cache, so it cannot show that a flush is missing. A [`Layer`] is mounted (FUSE) under a data
//! directory; the kernel's page cache works above it as above a disk, and below it the layer keeps apart what was synced and what
//! was only written. [`Layer::freeze`] is the moment of the power cut: from there on nothing takes effect and nobody gets an
//! answer. The process is then killed, [`Layer::cut`] draws from a seed what survives of the unsynced, and mounts that anew.
//! Writes and syncs can also be made to fail, in both ways that systems treat the pages of a failed sync.
//!
//! Content lies in memory. Must not know: what the files are, and whose.

mod content;
mod death;
mod fate;
mod protocol;
mod serve;
#[cfg(test)]
mod tests;
mod tree;

pub use death::{FailedFlush, PowerCut};
pub use fate::Cuts;

use crate::random::Random;
use fate::Drawn;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serve::{Shared, State};
use std::ffi::CString;
use std::fs::File;
use std::ops::AddAssign;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that answer. Two flushers, one more writer and a reader may each wait for a sync.
const WORKERS: usize = 5;

/// One write in so many takes longer.
const STALL_EACH: u64 = 32;

/// What a layer is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a sync takes at least.
    pub sync: Duration,
    /// How long one write in 32 takes at least. The kernel lets nobody else write to a file while it is synced, but
    /// hands it over after a write to whoever has waited for 4 ms: so flushes overlap here, too.
    pub stall: Duration,
    /// Bytes of all files together; more is ENOSPC.
    pub bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { sync: Duration::from_micros(300), stall: Duration::from_millis(10), bytes: 4 << 30 }
    }
}

/// A kind of request at which the power may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Bytes are written.
    Write,
    /// A file or folder is synced.
    Sync,
    /// A file is created, renamed or removed.
    Name,
    /// Bytes are written to a file that has unsynced ones of another thread: two flushes overlap. Always after it.
    Overlap,
}

/// Before a request takes effect, or after it, without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It did not happen.
    Before,
    /// It happened, and nobody was told.
    After,
}

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulty {
    /// Syncs of files.
    Sync,
    /// Syncs of folders.
    SyncFolder,
    /// Creations, renames and removals; one that fails changes nothing.
    Name,
    /// Writes; nothing of one that fails is written.
    Write,
}

/// What becomes of unsynced pages when their sync fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// They stay unsynced: a later sync may make them safe.
    Dirty,
    /// They count as clean. The page cache shows them until it drops them; the medium has some and will never have the others.
    Dropped,
}

/// Requests answered with EIO.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which.
    pub op: Faulty,
    /// Of files and folders whose path below the mount contains this; empty: of all. The path of a creation or removal is its
    /// folder's, that of a rename the folder's from which it goes.
    pub path: String,
    /// So many of them go well first.
    pub after: u64,
    /// So many fail then; those after them go well.
    pub times: u64,
    /// For syncs.
    pub pages: Pages,
}

/// What went through a layer since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Writes.
    pub writes: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Syncs of files and folders.
    pub syncs: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.syncs += other.syncs;
    }
}

struct Session {
    workers: Vec<JoinHandle<()>>,
    /// Requests wait for an answer as long as somebody has the device open.
    _device: Arc<File>,
}

/// See the module. Unmounted when dropped; what it held is gone then.
pub struct Layer {
    at: PathBuf,
    shared: Arc<Shared>,
    session: Option<Session>,
}

impl Layer {
    /// Mounts an empty one on the folder `at`, which is made if it is not there.
    ///
    /// # Errors
    /// Why it cannot be mounted, as a sentence's end.
    pub fn mount(at: &Path, options: Options) -> Result<Layer, String> {
        let state = State {
            tree: tree::Tree::new(),
            frozen: false,
            at: None,
            faults: Vec::new(),
            failed: None,
            traffic: Traffic::default(),
            listings: Default::default(),
            next_listing: 0,
            random: Random::new(1),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), news: Condvar::new(), options });
        std::fs::create_dir_all(at).map_err(|e| format!("{}: {e}", at.display()))?;
        let mut layer = Layer { at: at.into(), shared, session: None };
        layer.begin()?;
        Ok(layer)
    }

    /// The same for tests: nothing where this user may not mount. A person is told so, in CI it is a failure.
    pub fn or_skip(at: &Path, options: Options) -> Option<Layer> {
        match Layer::mount(at, options) {
            Ok(layer) => Some(layer),
            Err(why) => {
                let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
                assert!(!ci, "power cannot be cut: {why}; CI runs as root and with /dev/fuse");
                println!("SKIPPED: power cannot be cut: {why}; run as root, with /dev/fuse");
                None
            }
        }
    }

    /// Whether one can be mounted: tries it.
    ///
    /// # Errors
    /// Why not.
    pub fn probe() -> Result<(), String> {
        let at = std::env::temp_dir().join(format!("packhorse-power-{}", std::process::id()));
        let tried = Layer::mount(&at, Options::default()).map(drop);
        // Whatever could not be removed is an empty folder.
        let _ = std::fs::remove_dir(&at);
        tried
    }

    fn begin(&mut self) -> Result<(), String> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = Arc::new(device.map_err(|e| format!("/dev/fuse: {e}"))?);
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = CString::new(data).expect("without a zero byte");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("packhorse-power", &self.at, "fuse", flags, Some(data.as_c_str()))
            .map_err(|e| format!("no file system can be mounted on {}: {e}", self.at.display()))?;
        let mut session = Session { workers: Vec::new(), _device: Arc::clone(&device) };
        for _ in 0..WORKERS {
            let (shared, device) = (Arc::clone(&self.shared), Arc::clone(&device));
            session.workers.push(std::thread::spawn(move || shared.work(&device)));
        }
        self.session = Some(session);
        Ok(())
    }

    /// The folder under which it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// The power goes now: nothing takes effect any more, nobody gets an answer. Whoever waits for one waits until [`Layer::cut`].
    pub fn freeze(&self) {
        self.shared.lock().frozen = true;
    }

    /// The power goes at such a request, after `more` others of its kind. Whether one came within `patience`; if not, it has not gone.
    pub fn freeze_at(&self, moment: Moment, side: Side, more: u32, patience: Duration) -> bool {
        let mut state = self.shared.lock();
        state.at = Some((moment, side, more));
        let until = Instant::now() + patience;
        while !state.frozen {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.at = None;
                return false;
            }
            state = self.shared.news.wait_timeout(state, left).expect("no thread panics under this lock").0;
        }
        true
    }

    /// Ends all requests that wait, draws what survives of what was not synced, and mounts that. Freezes first if that was not
    /// done. Processes that use the layer must have been sent SIGKILL, or they see errors; they can be waited for afterwards.
    ///
    /// # Panics
    /// When it cannot be mounted again.
    pub fn cut(&mut self, random: &mut Random) -> Cuts {
        self.cut_as(Drawn::new(random))
    }

    /// The same, and nothing survives that was not synced.
    pub fn lose(&mut self) -> Cuts {
        self.cut_as(Drawn::nothing(&mut Random::new(0)))
    }

    fn cut_as(&mut self, mut drawn: Drawn<'_>) -> Cuts {
        self.freeze();
        self.end();
        let mut state = self.shared.lock();
        // A file whose name is lost is lost with it.
        let names = state.tree.cut(|n| drawn.below(n));
        for content in state.tree.files_mut() {
            drawn.did.overlaps += u64::from(content.overlaps());
            content.cut(&mut drawn);
        }
        let did = drawn.end(names);
        state.frozen = false;
        state.at = None;
        state.listings.clear();
        drop(state);
        self.begin().unwrap_or_else(|why| panic!("after a power cut: {why}"));
        did
    }

    /// From now on, these requests fail; earlier faults stay.
    pub fn fail(&self, fault: Fault) {
        self.shared.lock().faults.push(fault);
    }

    /// No request fails any more.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.faults.clear();
        state.failed = None;
    }

    /// Waits until a fault strikes: when the first one did; none if that takes longer than `patience`.
    pub fn until_failed(&self, patience: Duration) -> Option<Instant> {
        let state = self.shared.lock();
        let waited = self.shared.news.wait_timeout_while(state, patience, |state| state.failed.is_none());
        waited.expect("no thread panics under this lock").0.failed.map(|(since, _)| since)
    }

    /// How many requests a fault has struck since it was set or healed.
    pub fn failures(&self) -> u64 {
        self.shared.lock().failed.map_or(0, |(_, times)| times)
    }

    /// What went through it.
    pub fn traffic(&self) -> Traffic {
        self.shared.lock().traffic
    }

    /// Writes, their bytes, and changes of names that a cut could undo now.
    pub fn unsynced(&self) -> (usize, usize, usize) {
        let state = self.shared.lock();
        let files = state.tree.files().map(content::Content::unsynced);
        let (writes, bytes) = files.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        (writes, bytes, state.tree.unsynced())
    }

    fn end(&mut self) {
        if let Some(session) = self.session.take() {
            // With force, requests that wait end with an error, and the threads with them.
            let _unmounted = unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH);
            for worker in session.workers {
                worker.join().expect("a worker does not panic");
            }
        }
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        self.freeze();
        self.end();
    }
}
