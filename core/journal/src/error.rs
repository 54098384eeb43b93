//! Why a journal cannot be opened or go on. Each sentence names the thing, the limit or value, and what to do.

use packhorse_model::QueueName;
use std::fmt;

/// Why opening a data directory failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// Another process holds the directory's lock (exit code 66).
    InUse {
        /// The data directory.
        dir: String,
    },
    /// The directory was written by another version, or is no data directory (exit code 65).
    OtherFormat {
        /// The file that tells.
        file: String,
        /// What was found.
        found: String,
        /// What this program reads.
        known: String,
    },
    /// A block that was confirmed is damaged (exit code 65).
    Damaged {
        /// The segment's path in the data directory.
        segment: String,
        /// Offset of the damaged block, bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// Queues that exist before that place; the damaged block may concern any of them.
        queues: Vec<QueueName>,
    },
    /// No checkpoint can be read, and what it stands for is no longer in the log (exit code 65).
    CheckpointLost {
        /// A checkpoint has to cover the blocks up to this one.
        covers: u64,
    },
    /// The disk refused an operation (exit code 70).
    Fault {
        /// The operation: "write", "sync" ….
        op: &'static str,
        /// Path in the data directory.
        path: String,
        /// The system's words.
        error: String,
    },
    /// No room for what a start needs (exit code 70).
    NoSpace {
        /// Bytes needed.
        needed: u64,
        /// Path in the data directory.
        path: String,
    },
}

impl JournalError {
    /// The process's exit code (`spec/operate.md`, "Start").
    pub fn exit_code(&self) -> u8 {
        match self {
            JournalError::InUse { .. } => 66,
            JournalError::OtherFormat { .. } | JournalError::Damaged { .. } | JournalError::CheckpointLost { .. } => 65,
            JournalError::Fault { .. } | JournalError::NoSpace { .. } => 70,
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::InUse { dir } => write!(
                f,
                "the data directory {dir} is in use by another process; stop that one or choose another directory with --data"
            ),
            JournalError::OtherFormat { file, found, known } => write!(
                f,
                "{file} holds {found}, this program reads {known}; use the version of Packhorse that wrote it, or another directory with --data"
            ),
            JournalError::Damaged { segment, offset, what, queues } => {
                write!(
                    f,
                    "{segment} is damaged at byte {offset}: {what}; messages confirmed there may be lost. Queues that may be concerned: "
                )?;
                match queues.len() {
                    0 => f.write_str("none known")?,
                    n => {
                        for (i, name) in queues.iter().take(20).enumerate() {
                            write!(f, "{}{name}", if i > 0 { ", " } else { "" })?;
                        }
                        if n > 20 {
                            write!(f, " and {} more", n - 20)?;
                        }
                    }
                }
                f.write_str(
                    ". Keep a copy of the directory; restore the file from a backup, or start with another directory",
                )
            }
            JournalError::CheckpointLost { covers } => write!(
                f,
                "no checkpoint is whole (ckpt.A, ckpt.B), and the log before block {covers} is gone because one stood for it. \
                 Keep a copy of the directory for a salvage of what the segments still hold; restore ckpt.A and ckpt.B from a \
                 backup, or start with another directory"
            ),
            JournalError::Fault { op, path, error } => {
                write!(
                    f,
                    "the disk failed to {op} {path}: {error}; check the disk and the permissions, then start again"
                )
            }
            JournalError::NoSpace { needed, path } => write!(
                f,
                "no space for {path}, which needs {needed} bytes; free some space on that file system, then start again"
            ),
        }
    }
}

impl std::error::Error for JournalError {}
