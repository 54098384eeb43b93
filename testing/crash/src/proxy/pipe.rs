//! One way of a connection: bytes that were read and are not written yet, and the rule by which they go.

use super::boundary::Boundary;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::net::TcpStream;

/// Bytes that are held at most.
const HELD_BYTES: usize = 256 << 10;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// How bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// As they come.
    Free,
    /// Neither read nor written.
    Held,
    /// Read and kept.
    Gathered,
    /// Read and forgotten.
    Dropped,
    /// One at a time.
    Bytewise,
    /// So many nanoseconds after they came.
    Late(u64),
}

/// How a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It may send more.
    Open,
    /// It has ended its stream.
    Ended,
    /// It was reset.
    Reset,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) flow: Flow,
    pub(super) source: Source,
    /// The other end takes nothing any more.
    pub(super) broken: bool,
    /// Bytes that were written.
    pub(super) written: u64,
    /// Bytes that went late or alone since this was last set to 0.
    pub(super) slowed: u64,
    /// Inside which frame it is to be cut: the draw of `Fault::at`.
    pub(super) cut_frame: Option<u32>,
    /// Nothing is written beyond this byte of the stream.
    pub(super) limit: Option<u64>,
    held: Vec<u8>,
    start: usize,
    /// Of the held bytes of a late way: how many, and when they may go.
    due: VecDeque<(usize, u64)>,
    boundary: Boundary,
}

impl Pipe {
    pub(super) fn new() -> Pipe {
        Pipe {
            flow: Flow::Free,
            source: Source::Open,
            broken: false,
            written: 0,
            slowed: 0,
            cut_frame: None,
            limit: None,
            held: Vec::new(),
            start: 0,
            due: VecDeque::new(),
            boundary: Boundary::default(),
        }
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.held.len() - self.start
    }

    /// Whether it would read now.
    pub(super) fn reads(&self) -> bool {
        let room = self.held() < HELD_BYTES || self.broken || self.flow == Flow::Dropped;
        self.source == Source::Open && self.flow != Flow::Held && room
    }

    /// Whether everything that its source sent has gone.
    pub(super) fn is_done(&self) -> bool {
        self.source != Source::Open && self.flow != Flow::Held && (self.held() == 0 || self.broken)
    }

    /// Whether it has come to the byte at which it is to be cut.
    pub(super) fn at_limit(&self) -> bool {
        self.limit == Some(self.written)
    }

    /// Reads what is there, at most a little.
    pub(super) fn read(&mut self, from: &TcpStream, now: u64) {
        if !self.reads() {
            return;
        }
        if self.start == self.held.len() {
            self.held.clear();
            self.start = 0;
        } else if self.start >= HELD_BYTES {
            self.held.drain(..self.start);
            self.start = 0;
        }
        self.held.reserve(READ_BYTES);
        let before = self.held.len();
        match recv(from, spare_capacity(&mut self.held), RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.source = Source::Ended,
            Ok((count, _)) => self.took(before, count, now),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.source = Source::Reset,
        }
    }

    fn took(&mut self, before: usize, count: usize, now: u64) {
        let (cut, limit) = (&mut self.cut_frame, &mut self.limit);
        self.boundary.pass(&self.held[before..], |start, size| {
            if let Some(at) = cut.take_if(|_| size > 1) {
                *limit = Some(start + 1 + u64::from(at) % (size - 1));
            }
        });
        match self.flow {
            _ if self.broken => self.forget(),
            Flow::Dropped => self.forget(),
            Flow::Late(late) => {
                self.due.push_back((count, now + late));
                self.slowed += count as u64;
            }
            _ => {}
        }
    }

    /// Throws away what is held.
    pub(super) fn forget(&mut self) {
        self.held.clear();
        self.start = 0;
        self.due.clear();
    }

    /// Everything goes as it comes from now on.
    pub(super) fn set_free(&mut self) {
        self.flow = Flow::Free;
        self.due.clear();
        self.cut_frame = None;
    }

    /// Bytes that may be written now.
    pub(super) fn writable(&self, now: u64) -> usize {
        let count = match self.flow {
            _ if self.broken => 0,
            Flow::Free => self.held(),
            Flow::Held | Flow::Gathered | Flow::Dropped => 0,
            Flow::Bytewise => self.held().min(1),
            Flow::Late(_) => {
                // What came before it was late goes at once.
                let late: usize = self.due.iter().filter(|(_, due)| *due > now).map(|(count, _)| count).sum();
                self.held() - late
            }
        };
        let most = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.written));
        count.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// When more may be written, if that is a matter of time.
    pub(super) fn next_due(&self, now: u64) -> Option<u64> {
        match self.flow {
            Flow::Late(_) => self.due.iter().map(|(_, due)| *due).find(|due| *due > now),
            _ => None,
        }
    }

    /// Writes what may go and the other end takes.
    pub(super) fn write(&mut self, to: &TcpStream, now: u64) {
        let count = self.writable(now);
        if count == 0 {
            return;
        }
        let bytes = &self.held[self.start..self.start + count];
        match send(to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(written) => {
                self.start += written;
                self.written += written as u64;
                if self.flow == Flow::Bytewise {
                    self.slowed += written as u64;
                }
                self.went(written);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.broken = true;
                self.forget();
            }
        }
    }

    /// Takes what was written out of what is due: the last ones to come are late the longest.
    fn went(&mut self, mut written: usize) {
        let late: usize = self.due.iter().map(|(count, _)| count).sum();
        // Held from before it was late.
        written = written.saturating_sub((self.held() + written).saturating_sub(late));
        while let Some((count, _)) = self.due.front_mut().filter(|_| written > 0) {
            let gone = written.min(*count);
            (*count, written) = (*count - gone, written - gone);
            if *count == 0 {
                self.due.pop_front();
            }
        }
    }
}
