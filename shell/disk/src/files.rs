//! A data directory: its lock, its open files, and one disk operation after another run over them.

use bytes::Bytes;
use packhorse_journal::{BlockingDisk, Dir, DiskOp, FileName, IoDone, IoError, IoErrorKind, IoResult, JournalError};
use packhorse_model::{Planted, planted};
use rustix::fs::{Advice, FallocateFlags, fallocate};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Slices of one system call; the system's limit.
const SLICES: usize = 1024;
/// Open files kept; beyond that those of large messages are opened again when needed.
const KEPT: usize = 512;

/// The lock of a data directory, held until dropped (or the process ends, however it ends).
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; makes the directory if it is not there.
    ///
    /// # Errors
    /// [`JournalError::InUse`] when another process, or another store in this one, has it.
    pub fn take(dir: &Path) -> Result<Lock, JournalError> {
        let fault = |op, path: &Path, error: io::Error| JournalError::Fault {
            op,
            path: path.display().to_string(),
            error: error.to_string(),
        };
        make_dir(dir).map_err(|e| fault("create", dir, e))?;
        let path = dir.join("LOCK");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| fault("open", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(JournalError::InUse { dir: dir.display().to_string() }),
            Err(TryLockError::Error(e)) => Err(fault("lock", &path, e)),
        }
    }
}

/// Makes a directory that stays: its name, and those of the folders made for it, are synced. A name that was there is synced as
/// well, because a process that made it may have been killed before it could.
fn make_dir(dir: &Path) -> io::Result<()> {
    let above = |dir: &Path| match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => Some(PathBuf::from(".")),
        above => above.map(Path::to_owned),
    };
    let mut names = vec![dir.to_owned()];
    while let Some(parent) = names.last().and_then(|dir| above(dir))
        && !parent.exists()
    {
        names.push(parent);
    }
    fs::create_dir_all(dir)?;
    for parent in names.iter().filter_map(|dir| above(dir)) {
        match File::open(&parent) {
            Ok(folder) => folder.sync_all()?,
            // Whoever may not read it has not made a name in it: that was done before, by somebody else.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Who watches operations: called before each one (`false`), where an error takes its place, and after each that went well.
#[cfg(feature = "failpoints")]
pub type Probe = fn(&DiskOp, bool) -> Result<(), IoError>;

#[cfg(feature = "failpoints")]
static PROBE: std::sync::OnceLock<Probe> = std::sync::OnceLock::new();

/// From now on `probe` watches all operations of the process; the first to ask stays.
#[cfg(feature = "failpoints")]
pub fn watch(probe: Probe) {
    PROBE.get_or_init(|| probe);
}

/// The files of a data directory. Operations on different files may run at once.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    open: Mutex<HashMap<FileName, Arc<File>>>,
}

impl Files {
    /// The files under `dir`.
    pub fn new(dir: &Path) -> Files {
        Files { dir: dir.to_owned(), open: Mutex::new(HashMap::new()) }
    }

    /// Runs one operation to its end.
    pub fn run(&self, op: DiskOp) -> IoResult {
        #[cfg(feature = "failpoints")]
        if let Some(probe) = PROBE.get() {
            probe(&op, false)?;
            let done = self.run_unwatched(op.clone())?;
            return probe(&op, true).map(|()| done);
        }
        self.run_unwatched(op)
    }

    fn run_unwatched(&self, op: DiskOp) -> IoResult {
        self.try_run(op).map_err(|error| IoError {
            kind: match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => IoErrorKind::NoSpace,
                ErrorKind::NotFound => IoErrorKind::NotFound,
                _ => IoErrorKind::Other,
            },
            text: error.to_string(),
        })
    }

    fn try_run(&self, op: DiskOp) -> io::Result<IoDone> {
        match op {
            DiskOp::CreateDir { dir } => fs::create_dir_all(self.dir_path(dir))?,
            DiskOp::Create { name, length } => {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.path(name))?;
                if length > 0 {
                    allocate(&file, length)?;
                }
                self.keep(name, Arc::new(file));
            }
            DiskOp::Write { name, offset, pieces, sync } => {
                let file = self.file(name)?;
                write_all(&file, offset, &pieces)?;
                if sync {
                    flush(name, &file)?;
                }
            }
            DiskOp::Sync { name } => self.file(name)?.sync_data()?,
            DiskOp::Uncache { name } => {
                // Advice, which some file systems refuse: there the cache is trusted.
                let _refused = rustix::fs::fadvise(&*self.file(name)?, 0, None, Advice::DontNeed);
            }
            DiskOp::SyncDir { dir } => File::open(self.dir_path(dir))?.sync_all()?,
            DiskOp::Rename { from, to } => {
                let mut open = self.open.lock().expect("no thread panics here");
                fs::rename(self.path(from), self.path(to))?;
                if let Some(file) = open.remove(&from) {
                    open.insert(to, file);
                }
            }
            DiskOp::Unlink { name } => {
                self.open.lock().expect("no thread panics here").remove(&name);
                match fs::remove_file(self.path(name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            DiskOp::Read { name, offset, length } => return self.read(name, offset, length).map(IoDone::Read),
        }
        Ok(IoDone::Done)
    }

    fn read(&self, name: FileName, offset: u64, length: u32) -> io::Result<Bytes> {
        let file = self.file(name)?;
        let mut buffer = vec![0; length as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(Bytes::from(buffer))
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    fn dir_path(&self, dir: Dir) -> PathBuf {
        self.dir.join(dir.path())
    }

    fn file(&self, name: FileName) -> io::Result<Arc<File>> {
        if let Some(file) = self.open.lock().expect("no thread panics here").get(&name) {
            return Ok(file.clone());
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(self.path(name))?);
        self.keep(name, file.clone());
        Ok(file)
    }

    fn keep(&self, name: FileName, file: Arc<File>) {
        let mut open = self.open.lock().expect("no thread panics here");
        if open.len() >= KEPT {
            open.retain(|name, _| !matches!(name, FileName::Large(_)));
        }
        if open.len() >= KEPT {
            open.clear();
        }
        open.insert(name, file);
    }
}

impl BlockingDisk for Files {
    fn list(&mut self, dir: Dir) -> Result<Vec<(FileName, u64)>, IoError> {
        let list = || -> io::Result<Vec<(FileName, u64)>> {
            let mut names = Vec::new();
            let entries = match fs::read_dir(self.dir_path(dir)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
                other => other?,
            };
            for entry in entries {
                let entry = entry?;
                let Some(name) = entry.file_name().to_str().and_then(|base| FileName::parse(dir, base)) else {
                    continue;
                };
                let metadata = entry.metadata()?;
                if metadata.is_file() {
                    names.push((name, metadata.len()));
                }
            }
            Ok(names)
        };
        list().map_err(|error| IoError { kind: IoErrorKind::Other, text: error.to_string() })
    }

    fn run(&mut self, op: DiskOp) -> IoResult {
        Files::run(self, op)
    }
}

/// Gives a new file its space, so that no write into it can find the disk full.
fn allocate(file: &File, length: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        // Some file systems cannot: then the space is taken by writing it.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let zeros = vec![0; 1 << 20];
            let mut offset = 0;
            while offset < length {
                let n = (length - offset).min(zeros.len() as u64);
                file.write_all_at(&zeros[..n as usize], offset)?;
                offset += n;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes what was written durable.
fn flush(name: FileName, file: &File) -> io::Result<()> {
    if matches!(name, FileName::Segment(_)) && planted(Planted::SkipFlush) {
        return Ok(());
    }
    file.sync_data()
}

fn write_all(file: &File, mut offset: u64, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let n = rest.len().min(SLICES);
        match rustix::io::pwritev(file, &rest[..n], offset) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
