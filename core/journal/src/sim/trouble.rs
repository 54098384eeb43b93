//! Troubles of a simulated disk: the next operations of a kind fail or take long, once or for ever. And the book of what was struck,
//! so that whoever planted them knows when they came and what they hit.

use crate::io::{DiskOp, FileName};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reading a file.
    Read,
    /// Writing into one, synced or not.
    Write,
    /// Making a file or a folder's names safe, a write's sync included.
    Sync,
    /// Another name for a file.
    Rename,
    /// A new file.
    Create,
    /// Whatever comes.
    Any,
}

impl Verb {
    fn is(self, op: &DiskOp) -> bool {
        match self {
            Verb::Read => matches!(op, DiskOp::Read { .. }),
            Verb::Write => matches!(op, DiskOp::Write { .. }),
            Verb::Sync => matches!(op, DiskOp::Write { sync: true, .. } | DiskOp::Sync { .. } | DiskOp::SyncDir { .. }),
            Verb::Rename => matches!(op, DiskOp::Rename { .. }),
            Verb::Create => matches!(op, DiskOp::Create { .. }),
            Verb::Any => true,
        }
    }
}

/// What happens to an operation that is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An I/O error. A write has written its beginning, or nothing, or all; what a sync was to make safe never is.
    Error,
    /// An I/O error of a sync that leaves what it was to make safe as it was, for the next one to make safe.
    Unsynced,
    /// It takes so many µs longer.
    Slow(u64),
}

/// One trouble.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Echoed in [`Struck`].
    pub id: u64,
    /// Which operations.
    pub verb: Verb,
    /// What happens to them.
    pub effect: Effect,
    /// How many; a trouble of more than one outlives the process and the power, as a broken disk does.
    pub times: u64,
}

/// An operation that was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struck {
    /// The trouble's id; [`Struck::NO_SPACE`].
    pub id: u64,
    /// What was not read: file, first byte, bytes.
    pub unread: Option<(FileName, u64, u32)>,
}

impl Struck {
    /// There was no space for a new file.
    pub const NO_SPACE: u64 = u64::MAX;
}

/// How an operation fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// The write itself fails.
    Write,
    /// It fails after it was taken, or altogether.
    Error,
    /// It fails, and what it was to make safe waits for the next one.
    Unsynced,
    /// Of this trouble, by so many µs.
    Slow(u64, u64),
}

/// All troubles of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles {
    planted: Vec<Trouble>,
    struck: Vec<Struck>,
}

impl Troubles {
    pub(crate) fn plant(&mut self, trouble: Trouble) {
        self.planted.push(trouble);
    }

    pub(crate) fn clear(&mut self) {
        self.planted.clear();
    }

    pub(crate) fn spare(&mut self, id: u64) {
        self.planted.retain(|trouble| trouble.id != id);
    }

    /// Those that a restart does not end, with what was not told yet.
    pub(crate) fn lasting(&self) -> Troubles {
        let planted = self.planted.iter().filter(|trouble| trouble.times > 1).copied().collect();
        Troubles { planted, struck: self.struck.clone() }
    }

    pub(crate) fn take_struck(&mut self, out: &mut Vec<Struck>) {
        out.append(&mut self.struck);
    }

    pub(crate) fn no_space(&mut self) {
        self.struck.push(Struck { id: Struck::NO_SPACE, unread: None });
    }

    /// Whether this operation is struck, and how.
    pub(crate) fn strike(&mut self, op: &DiskOp) -> Option<Ill> {
        let at = self.planted.iter().position(|trouble| trouble.verb.is(op))?;
        let trouble = &mut self.planted[at];
        let Trouble { id, verb, effect, .. } = *trouble;
        trouble.times -= u64::from(trouble.times < u64::MAX);
        if trouble.times == 0 {
            self.planted.remove(at);
        }
        let unread = match op {
            DiskOp::Read { name, offset, length } if !matches!(effect, Effect::Slow(_)) => {
                Some((*name, *offset, *length))
            }
            _ => None,
        };
        self.struck.push(Struck { id, unread });
        Some(match effect {
            Effect::Slow(us) => Ill::Slow(id, us),
            Effect::Unsynced => Ill::Unsynced,
            Effect::Error if verb == Verb::Write => Ill::Write,
            Effect::Error => Ill::Error,
        })
    }
}
