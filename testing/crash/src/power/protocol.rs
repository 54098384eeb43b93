//! Requests of the kernel to a file system in user space, and answers to them: bytes only (`linux/fuse.h`, version 7.31).
//!
//! Knows the layout of what this file system answers and nothing of what it means. Every number is in the machine's order.

use std::time::Duration;

/// Bytes before the arguments of a request.
const IN_HEADER: usize = 40;
/// Bytes before the content of an answer.
pub(crate) const OUT_HEADER: usize = 16;
/// The most that one write carries.
pub(crate) const MAX_WRITE: usize = 1 << 20;
/// Enough for any request.
pub(crate) const BUFFER: usize = MAX_WRITE + 4096;
/// Names and attributes do not change behind the kernel's back.
const VALID_S: u64 = 1 << 20;

/// Error numbers of answers.
pub(crate) mod errno {
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const EEXIST: i32 = 17;
    pub(crate) const ENOTDIR: i32 = 20;
    pub(crate) const EISDIR: i32 = 21;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const ENOSYS: i32 = 38;
    pub(crate) const ENOTEMPTY: i32 = 39;
    pub(crate) const EOPNOTSUPP: i32 = 95;
}

/// A request, with what of its arguments is needed here.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    Init,
    Lookup {
        name: &'a [u8],
    },
    Attributes,
    Resize {
        size: u64,
    },
    SetOther,
    MakeFolder {
        name: &'a [u8],
    },
    Remove {
        name: &'a [u8],
        is_folder: bool,
    },
    Rename {
        from: &'a [u8],
        folder: u64,
        to: &'a [u8],
    },
    Create {
        name: &'a [u8],
    },
    Open,
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        bytes: &'a [u8],
    },
    Allocate {
        end: u64,
        keep_size: bool,
        other: bool,
    },
    Sync,
    Release,
    Space,
    OpenFolder,
    ReadFolder {
        handle: u64,
        offset: u64,
        size: u32,
    },
    SyncFolder,
    ReleaseFolder {
        handle: u64,
    },
    /// Nothing is expected in return.
    Silent,
    /// Not known, and not needed.
    Other,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// The thread that asks.
    pub(crate) thread: u32,
}

struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    /// The name that begins there, and where the next one does.
    fn name(&self, at: usize) -> Option<(&'a [u8], usize)> {
        let rest = self.0.get(at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        Some((&rest[..length], at + length + 1))
    }
}

/// Reads a request; none if its bytes are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Head, Request<'_>)> {
    let head = Arguments(bytes.get(..IN_HEADER)?);
    let (code, unique, node, thread) = (head.u32(4)?, head.u64(8)?, head.u64(16)?, head.u32(32)?);
    let args = Arguments(&bytes[IN_HEADER..]);
    let request = match code {
        1 => Request::Lookup { name: args.name(0)?.0 },
        // Forget, interrupt, forget many.
        2 | 36 | 42 => Request::Silent,
        3 => Request::Attributes,
        // Bit 3 of what is to be set: the size.
        4 if args.u32(0)? & 8 != 0 => Request::Resize { size: args.u64(16)? },
        4 => Request::SetOther,
        9 => Request::MakeFolder { name: args.name(8)?.0 },
        10 | 11 => Request::Remove { name: args.name(0)?.0, is_folder: code == 11 },
        12 => {
            let (from, next) = args.name(8)?;
            Request::Rename { from, folder: args.u64(0)?, to: args.name(next)?.0 }
        }
        14 => Request::Open,
        15 => Request::Read { offset: args.u64(8)?, size: args.u32(16)? },
        16 => Request::Write { offset: args.u64(8)?, bytes: args.0.get(40..40 + args.u32(16)? as usize)? },
        17 => Request::Space,
        18 => Request::Release,
        20 => Request::Sync,
        26 => Request::Init,
        27 => Request::OpenFolder,
        28 => Request::ReadFolder { handle: args.u64(0)?, offset: args.u64(8)?, size: args.u32(16)? },
        29 => Request::ReleaseFolder { handle: args.u64(0)? },
        30 => Request::SyncFolder,
        35 => Request::Create { name: args.name(16)?.0 },
        43 => {
            let mode = args.u32(24)?;
            let end = args.u64(8)?.checked_add(args.u64(16)?)?;
            Request::Allocate { end, keep_size: mode & 1 != 0, other: mode & !1 != 0 }
        }
        _ => Request::Other,
    };
    Some((Head { unique, node, thread }, request))
}

/// What a node looks like from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    pub(crate) node: u64,
    pub(crate) size: u64,
    pub(crate) is_folder: bool,
    /// Last written to, since 1970.
    pub(crate) written: Duration,
}

/// Builds an answer: the header's place first, then the content.
#[derive(Debug)]
pub(crate) struct Answer(Vec<u8>);

impl Answer {
    pub(crate) fn empty() -> Answer {
        Answer(vec![0; OUT_HEADER])
    }

    fn u16(mut self, value: u16) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn bytes(bytes: &[u8]) -> Answer {
        let mut answer = Vec::with_capacity(OUT_HEADER + bytes.len());
        answer.resize(OUT_HEADER, 0);
        answer.extend_from_slice(bytes);
        Answer(answer)
    }

    /// The beginning of it all: version, sizes, and of the features: several reads at once (bit 0), writes of more than a page
    /// (5), the names of a folder looked up at once (18), a limit of pages of ours (22).
    pub(crate) fn init() -> Answer {
        let features = 1 | 1 << 5 | 1 << 18 | 1 << 22;
        let answer = Answer::empty().u32(7).u32(31).u32(MAX_WRITE as u32).u32(features);
        let answer = answer.u16(64).u16(48).u32(MAX_WRITE as u32).u32(1).u16((MAX_WRITE / 4096) as u16).u16(0);
        (0..8).fold(answer, |answer, _| answer.u32(0))
    }

    fn looks(self, looks: Looks) -> Answer {
        let Looks { node, size, is_folder, written } = looks;
        let (seconds, rest) = (written.as_secs(), written.subsec_nanos());
        let mode = if is_folder { 0o040_755 } else { 0o100_644 };
        let answer = self
            .u64(node)
            .u64(size)
            .u64(size.div_ceil(512))
            .u64(seconds)
            .u64(seconds)
            .u64(seconds)
            .u32(rest)
            .u32(rest)
            .u32(rest);
        answer.u32(mode).u32(1).u32(0).u32(0).u32(0).u32(4096).u32(0)
    }

    pub(crate) fn attributes(looks: Looks) -> Answer {
        Answer::empty().u64(VALID_S).u32(0).u32(0).looks(looks)
    }

    pub(crate) fn entry(looks: Looks) -> Answer {
        Answer::empty().u64(looks.node).u64(0).u64(VALID_S).u64(VALID_S).u32(0).u32(0).looks(looks)
    }

    /// What was opened. `keep`: what the page cache has of it is kept (bit 1).
    pub(crate) fn opened(self, handle: u64, keep: bool) -> Answer {
        self.u64(handle).u32(u32::from(keep) << 1).u32(0)
    }

    pub(crate) fn written(bytes: usize) -> Answer {
        Answer::empty().u32(bytes as u32).u32(0)
    }

    /// A file system of blocks of 4096 bytes.
    pub(crate) fn space(blocks: u64, free: u64) -> Answer {
        let answer = Answer::empty().u64(blocks).u64(free).u64(free).u64(1 << 20).u64(1 << 20);
        let answer = answer.u32(4096).u32(255).u32(4096).u32(0);
        (0..6).fold(answer, |answer, _| answer.u32(0))
    }

    /// One name of a folder; false if it has no room in `size`.
    pub(crate) fn name(&mut self, size: usize, node: u64, next: u64, is_folder: bool, name: &[u8]) -> bool {
        let padded = name.len().next_multiple_of(8);
        if self.0.len() - OUT_HEADER + 24 + padded > size {
            return false;
        }
        let kind: u32 = if is_folder { 4 } else { 8 };
        self.0.extend_from_slice(&node.to_ne_bytes());
        self.0.extend_from_slice(&next.to_ne_bytes());
        self.0.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(name);
        self.0.resize(self.0.len() + padded - name.len(), 0);
        true
    }

    /// The bytes to be written, as the answer to that request.
    pub(crate) fn finish(mut self, unique: u64) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..16].copy_from_slice(&unique.to_ne_bytes());
        self.0
    }

    /// The same for an error.
    pub(crate) fn error(errno: i32, unique: u64) -> Vec<u8> {
        let mut answer = Answer::empty().finish(unique);
        answer[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        answer
    }
}
