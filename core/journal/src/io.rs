//! Disk operations as data: what the journal asks for and what comes back. Names are relative to the data directory.
//!
//! Must not know: file handles, threads, time. Whoever drives the journal runs these operations in any order and reports
//! each one's end; what must happen in order is handed out in order.

use bytes::Bytes;
use std::fmt;

/// A folder of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dir {
    /// The data directory itself.
    Root,
    /// Segments in use.
    Journal,
    /// Spare segments, pre-written.
    Pool,
    /// Large messages.
    Large,
    /// Large messages that no entry refers to, set aside at a start.
    Attic,
}

impl Dir {
    /// All folders, parents first.
    pub const ALL: [Dir; 5] = [Dir::Root, Dir::Journal, Dir::Pool, Dir::Large, Dir::Attic];

    /// The path within the data directory; empty for the root.
    pub fn path(self) -> &'static str {
        match self {
            Dir::Root => "",
            Dir::Journal => "journal",
            Dir::Pool => "pool",
            Dir::Large => "large",
            Dir::Attic => "large/attic",
        }
    }

    /// The folder that holds this one.
    pub fn parent(self) -> Dir {
        match self {
            Dir::Root | Dir::Journal | Dir::Pool | Dir::Large => Dir::Root,
            Dir::Attic => Dir::Large,
        }
    }
}

/// One of the two checkpoint files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// Both.
    pub const ALL: [Slot; 2] = [Slot::A, Slot::B];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }
}

/// A file of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// `STORE`: format and identity.
    Store,
    /// `STORE.tmp`: being made.
    StoreTemp,
    /// `ckpt.A` and `ckpt.B`: checkpoints, written by turns.
    Checkpoint(Slot),
    /// `journal/<id>.seg`.
    Segment(u32),
    /// `pool/<n>.free`.
    Pool(u32),
    /// `pool/<n>.tmp`: being pre-written.
    PoolTemp(u32),
    /// `large/<id>`.
    Large(u64),
    /// `large/attic/<id>`.
    Attic(u64),
}

impl FileName {
    /// The folder it is in.
    pub fn dir(self) -> Dir {
        match self {
            FileName::Store | FileName::StoreTemp | FileName::Checkpoint(_) => Dir::Root,
            FileName::Segment(_) => Dir::Journal,
            FileName::Pool(_) | FileName::PoolTemp(_) => Dir::Pool,
            FileName::Large(_) => Dir::Large,
            FileName::Attic(_) => Dir::Attic,
        }
    }

    /// The file that has this base name in this folder; `None` for a file that is none of ours.
    pub fn parse(dir: Dir, base: &str) -> Option<FileName> {
        let number = |suffix: &str| base.strip_suffix(suffix).and_then(|n| n.parse::<u32>().ok());
        let name = match dir {
            Dir::Root => match base {
                "STORE" => FileName::Store,
                "STORE.tmp" => FileName::StoreTemp,
                "ckpt.A" => FileName::Checkpoint(Slot::A),
                "ckpt.B" => FileName::Checkpoint(Slot::B),
                _ => return None,
            },
            Dir::Journal => FileName::Segment(number(".seg")?),
            Dir::Pool => match number(".free") {
                Some(n) => FileName::Pool(n),
                None => FileName::PoolTemp(number(".tmp")?),
            },
            Dir::Large => FileName::Large(u64::from_str_radix(base, 16).ok()?),
            Dir::Attic => FileName::Attic(u64::from_str_radix(base, 16).ok()?),
        };
        // Only the spelling that we write: `1.seg` beside `00000001.seg` would be one segment twice.
        (name.to_string().rsplit('/').next() == Some(base)).then_some(name)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Store => f.write_str("STORE"),
            FileName::StoreTemp => f.write_str("STORE.tmp"),
            FileName::Checkpoint(slot) => write!(f, "ckpt.{slot:?}"),
            FileName::Segment(n) => write!(f, "journal/{n:08}.seg"),
            FileName::Pool(n) => write!(f, "pool/{n:08}.free"),
            FileName::PoolTemp(n) => write!(f, "pool/{n:08}.tmp"),
            FileName::Large(id) => write!(f, "large/{id:016x}"),
            FileName::Attic(id) => write!(f, "large/attic/{id:016x}"),
        }
    }
}

/// The number of an operation, echoed with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Which worker an operation is for. Lanes never wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Block writes: producers wait for them. At most two in flight.
    Flush,
    /// Everything else that writes: segments to come, spare segments, large messages, checkpoints.
    Side,
    /// Reads for consumers.
    Read,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Makes a folder; there already is no error. Before a run only.
    CreateDir {
        /// The folder.
        dir: Dir,
    },
    /// Makes a file that does not exist and gives it `length` bytes of allocated space (0: none).
    Create {
        /// The file.
        name: FileName,
        /// Bytes; reading them before they are written gives zeros.
        length: u64,
    },
    /// Writes the pieces one after another; with `sync`, then makes the file's data safe (fdatasync).
    Write {
        /// The file.
        name: FileName,
        /// Where the first piece goes, bytes.
        offset: u64,
        /// The bytes.
        pieces: Vec<Bytes>,
        /// See above.
        sync: bool,
    },
    /// Makes a file's data safe.
    Sync {
        /// The file.
        name: FileName,
    },
    /// Drops what the system remembers of a file, as far as it is clean: later reads see what is on the medium. Before a run
    /// only.
    Uncache {
        /// The file.
        name: FileName,
    },
    /// Makes a folder's names safe.
    SyncDir {
        /// The folder.
        dir: Dir,
    },
    /// Gives a file another name.
    Rename {
        /// Old.
        from: FileName,
        /// New; no file has it.
        to: FileName,
    },
    /// Removes a file; not there is no error.
    Unlink {
        /// The file.
        name: FileName,
    },
    /// Reads up to `length` bytes; fewer only at the end of the file.
    Read {
        /// The file.
        name: FileName,
        /// First byte.
        offset: u64,
        /// Most bytes.
        length: u32,
    },
}

impl DiskOp {
    /// The operation as a verb, for sentences.
    pub fn verb(&self) -> &'static str {
        match self {
            DiskOp::CreateDir { .. } | DiskOp::Create { .. } => "create",
            DiskOp::Write { .. } => "write",
            DiskOp::Sync { .. } | DiskOp::SyncDir { .. } => "sync",
            DiskOp::Uncache { .. } => "drop the cache of",
            DiskOp::Rename { .. } => "rename",
            DiskOp::Unlink { .. } => "remove",
            DiskOp::Read { .. } => "read",
        }
    }

    /// What it concerns, for sentences.
    pub fn subject(&self) -> Subject {
        match self {
            DiskOp::CreateDir { dir } | DiskOp::SyncDir { dir } => Subject::Dir(*dir),
            DiskOp::Create { name, .. }
            | DiskOp::Write { name, .. }
            | DiskOp::Sync { name }
            | DiskOp::Uncache { name }
            | DiskOp::Unlink { name }
            | DiskOp::Read { name, .. } => Subject::File(*name),
            DiskOp::Rename { from, .. } => Subject::File(*from),
        }
    }
}

/// What an operation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A folder.
    Dir(Dir),
    /// A file.
    File(FileName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Dir(Dir::Root) => f.write_str("the data directory"),
            Subject::Dir(dir) => f.write_str(dir.path()),
            Subject::File(name) => name.fmt(f),
        }
    }
}

/// How an operation ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoDone {
    /// It is done.
    Done,
    /// Bytes of a read.
    Read(Bytes),
}

/// What kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoErrorKind {
    /// The file system is full.
    NoSpace,
    /// The file is not there.
    NotFound,
    /// Anything else.
    Other,
}

/// How an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoError {
    /// What kind.
    pub kind: IoErrorKind,
    /// The system's words.
    pub text: String,
}

/// An operation's result.
pub type IoResult = Result<IoDone, IoError>;

/// Runs operations to their end, one by one: what recovery uses before a run.
pub trait BlockingDisk {
    /// Names and sizes in bytes of our files in a folder; an absent folder is empty.
    fn list(&mut self, dir: Dir) -> Result<Vec<(FileName, u64)>, IoError>;

    /// Runs one operation.
    fn run(&mut self, op: DiskOp) -> IoResult;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_only_in_the_spelling_written() {
        let names = [
            FileName::Store,
            FileName::StoreTemp,
            FileName::Checkpoint(Slot::A),
            FileName::Checkpoint(Slot::B),
            FileName::Segment(7),
            FileName::Segment(123_456_789),
            FileName::Pool(1),
            FileName::PoolTemp(2),
            FileName::Large(0xabc),
            FileName::Attic(u64::MAX),
        ];
        for name in names {
            let path = name.to_string();
            let base = path.rsplit('/').next().unwrap();
            assert_eq!(FileName::parse(name.dir(), base), Some(name), "{path}");
        }
        for (dir, base) in
            [(Dir::Journal, "1.seg"), (Dir::Journal, "00000001.free"), (Dir::Large, "attic"), (Dir::Root, "LOCK")]
        {
            assert_eq!(FileName::parse(dir, base), None, "{base}");
        }
    }
}
