//! The supply of segments: the one that comes next, made ready before it is needed, and spare ones that are pre-written in
//! the background, because a flush into bytes written before is twice as fast as one into fresh space.
//!
//! Must not know: blocks, batches. No space is met here and nowhere else: a segment is allocated whole before it is used.

use crate::block::UNIT;
use crate::bytes_io::{Draw, ZEROS, zeros};
use crate::io::{Dir, DiskOp, FileName, IoErrorKind, IoResult};
use crate::segment::SegmentHeader;
use bytes::Bytes;
use std::collections::VecDeque;

/// Zeros are written in steps of this …
const FILL_STEP: u64 = 1 << 20;
/// … each that many µs: 50 MB/s, so that pre-writing never competes with flushes for the disk.
const FILL_PACE_US: u64 = 20_000;
/// After so many steps a sync, so that the last one is short.
const FILL_SYNC_STEPS: u64 = 4;
/// A file system that is full is asked again after this.
const RETRY_US: u64 = 1_000_000;
/// Spare files kept at most; a steady flow needs fewer.
const POOL_MOST: usize = 8;

/// A segment in use or ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) salt: u32,
    pub(crate) size: u64,
    /// Where the next block goes.
    pub(crate) offset: u64,
}

impl Segment {
    /// Time to make the next one ready.
    pub(crate) fn half_full(&self) -> bool {
        self.offset * 2 >= self.size
    }
}

/// A small job for the disk: steps one after another.
#[derive(Debug, Default)]
struct Job {
    steps: VecDeque<DiskOp>,
    running: bool,
}

#[derive(Debug)]
enum Next {
    /// Nothing is being done about it.
    Idle,
    Making {
        segment: Segment,
        job: Job,
    },
    Ready(Segment),
    /// The file system was full.
    Full {
        job: Job,
        retry_at_us: u64,
    },
}

#[derive(Debug)]
enum Fill {
    Idle { not_before_us: u64 },
    Filling { number: u32, written: u64, running: bool, next_at_us: u64 },
    Naming { number: u32, job: Job },
    Giving { job: Job },
}

/// Which job an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Next,
    Fill,
    Back,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Supply {
    store: [u8; 16],
    run: u32,
    draw: Draw,
    segment_bytes: u64,
    spares: u32,
    next_id: u32,
    next_pool: u32,
    /// For headers to come: the block up to which a checkpoint must cover.
    covers: u64,
    next: Next,
    /// Spare files, each `segment_bytes` long.
    pool: VecDeque<u32>,
    fill: Fill,
    /// Moves: segments that are no longer needed to the pool, files of no use away.
    back: Job,
    /// Spare files that `back` will have made.
    coming: Vec<u32>,
}

impl Supply {
    pub(crate) fn new(
        store: [u8; 16],
        run: u32,
        seed: u64,
        segment_bytes: u64,
        spares: u32,
        next: (u32, u32),
    ) -> Supply {
        Supply {
            store,
            run,
            draw: Draw::new(seed),
            segment_bytes,
            spares,
            next_id: next.0,
            next_pool: next.1,
            covers: 1,
            next: Next::Idle,
            pool: VecDeque::new(),
            fill: Fill::Idle { not_before_us: 0 },
            back: Job::default(),
            coming: Vec::new(),
        }
    }

    /// A spare file found at the start.
    pub(crate) fn spare(&mut self, number: u32) {
        self.pool.push_back(number);
    }

    /// Segments are gone that only a checkpoint of the blocks up to this one stands for: headers to come say so.
    pub(crate) fn covers(&mut self, block: u64) {
        self.covers = self.covers.max(block);
    }

    /// A segment that holds nothing, or nothing that is needed: it goes to the pool, to be used again.
    pub(crate) fn give_back(&mut self, id: u32, size: u64) {
        let most = POOL_MOST.max(self.spares as usize);
        if size == self.segment_bytes && self.pool.len() + self.coming.len() < most {
            let number = self.next_pool;
            self.next_pool += 1;
            self.back.steps.push_back(DiskOp::Rename { from: FileName::Segment(id), to: FileName::Pool(number) });
            self.coming.push(number);
        } else {
            self.discard(FileName::Segment(id));
        }
    }

    /// Ends the giving back: the moves are made safe before the files are used again, or a file would have two names.
    pub(crate) fn end_give_back(&mut self) {
        if !self.coming.is_empty() {
            self.back.steps.push_back(DiskOp::SyncDir { dir: Dir::Pool });
            self.back.steps.push_back(DiskOp::SyncDir { dir: Dir::Journal });
        }
    }

    /// A file that is of no use.
    pub(crate) fn discard(&mut self, name: FileName) {
        self.back.steps.push_back(DiskOp::Unlink { name });
    }

    /// The steps that make a new segment with room for a block of `bytes`; `cut`: see [`SegmentHeader`]. With
    /// `pre_write` a file that is not from the pool is filled with zeros.
    pub(crate) fn plan(
        &mut self,
        bytes: u64,
        first: u64,
        cut: bool,
        pre_write: Option<u64>,
    ) -> (Segment, VecDeque<DiskOp>) {
        let id = self.next_id;
        self.next_id += 1;
        let least = UNIT + bytes;
        let mut steps = VecDeque::new();
        let name = FileName::Segment(id);
        let spare = if least <= self.segment_bytes { self.pool.pop_front() } else { None };
        let size = match (spare, pre_write) {
            (Some(_), _) => self.segment_bytes,
            (None, Some(size)) => size.min(self.segment_bytes).max(least),
            (None, None) => self.segment_bytes.max(least),
        };
        match spare {
            Some(number) => steps.push_back(DiskOp::Rename { from: FileName::Pool(number), to: name }),
            None => steps.push_back(DiskOp::Create { name, length: size }),
        }
        if spare.is_none() && pre_write.is_some() {
            let mut offset = 0;
            while offset < size {
                let length = FILL_STEP.min(size - offset);
                steps.push_back(DiskOp::Write { name, offset, pieces: zero_pieces(length), sync: false });
                offset += length;
            }
        }
        let salt = self.draw.next() as u32;
        let header =
            SegmentHeader { store: self.store, id, salt, run: self.run, cut, first, size, covers: self.covers };
        steps.push_back(DiskOp::Write { name, offset: 0, pieces: vec![Bytes::from(header.encode())], sync: true });
        steps.push_back(DiskOp::SyncDir { dir: Dir::Journal });
        if spare.is_some() {
            steps.push_back(DiskOp::SyncDir { dir: Dir::Pool });
        }
        (Segment { id, salt, size, offset: UNIT }, steps)
    }

    /// The segment that is ready, if it has room for a block of `bytes`. One that is too small is given back; a larger
    /// one is then made.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Segment> {
        match self.next {
            Next::Ready(segment) if segment.size - segment.offset >= bytes => {
                self.next = Next::Idle;
                Some(segment)
            }
            // Skipped for good: a larger one is made.
            Next::Ready(segment) => {
                self.next = Next::Idle;
                self.give_back(segment.id, segment.size);
                self.end_give_back();
                None
            }
            _ => None,
        }
    }

    /// Bytes of the largest block that any segment holds.
    pub(crate) fn room(&self) -> u64 {
        self.segment_bytes - UNIT
    }

    /// Makes sure that a segment is being made.
    pub(crate) fn want(&mut self, bytes: u64, first: u64, now_us: u64) {
        let due = match &self.next {
            Next::Idle => true,
            Next::Full { job, retry_at_us } => job.steps.is_empty() && !job.running && *retry_at_us <= now_us,
            Next::Making { .. } | Next::Ready(_) => false,
        };
        if due {
            let (segment, steps) = self.plan(bytes, first, false, None);
            self.next = Next::Making { segment, job: Job { steps, running: false } };
        }
    }

    /// Whether nothing is being done about the next segment.
    pub(crate) fn idle(&self) -> bool {
        matches!(self.next, Next::Idle)
    }

    /// Whether a segment is ready.
    pub(crate) fn ready(&self) -> bool {
        matches!(self.next, Next::Ready(_))
    }

    /// Whether the last attempt to make the next segment found the file system full.
    pub(crate) fn full(&self) -> bool {
        matches!(self.next, Next::Full { .. })
    }

    /// What the disk may do now.
    pub(crate) fn next_io(&mut self, now_us: u64) -> Option<(Part, DiskOp)> {
        if let Next::Making { job, .. } | Next::Full { job, .. } = &mut self.next
            && let Some(op) = job.start()
        {
            return Some((Part::Next, op));
        }
        if let Some(op) = self.back.start() {
            return Some((Part::Back, op));
        }
        self.fill_io(now_us).map(|op| (Part::Fill, op))
    }

    fn fill_io(&mut self, now_us: u64) -> Option<DiskOp> {
        if let Fill::Idle { not_before_us } = self.fill
            && not_before_us <= now_us
            && ((self.pool.len() + self.coming.len()) as u64) < u64::from(self.spares)
        {
            let number = self.next_pool;
            self.next_pool += 1;
            self.fill = Fill::Filling { number, written: 0, running: true, next_at_us: now_us };
            return Some(DiskOp::Create { name: FileName::PoolTemp(number), length: self.segment_bytes });
        }
        match &mut self.fill {
            Fill::Filling { number, written, running, next_at_us } if !*running && *next_at_us <= now_us => {
                *running = true;
                *next_at_us = now_us + FILL_PACE_US;
                let offset = *written;
                let length = FILL_STEP.min(self.segment_bytes - offset);
                *written += length;
                let last = *written == self.segment_bytes;
                let sync = last || (*written / FILL_STEP).is_multiple_of(FILL_SYNC_STEPS);
                Some(DiskOp::Write { name: FileName::PoolTemp(*number), offset, pieces: zero_pieces(length), sync })
            }
            Fill::Naming { job, .. } | Fill::Giving { job } => job.start(),
            _ => None,
        }
    }

    /// When [`Supply::next_io`] has something that it has not now.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let fill = match self.fill {
            Fill::Idle { not_before_us } if ((self.pool.len() + self.coming.len()) as u64) < u64::from(self.spares) => {
                Some(not_before_us)
            }
            Fill::Filling { running: false, next_at_us, .. } => Some(next_at_us),
            _ => None,
        };
        let next = match self.next {
            Next::Full { retry_at_us, .. } => Some(retry_at_us),
            _ => None,
        };
        [fill, next].into_iter().flatten().min()
    }

    /// An operation has ended. `Err`: it failed for good.
    pub(crate) fn on_io(&mut self, part: Part, result: IoResult, now_us: u64) -> Result<(), crate::io::IoError> {
        match part {
            Part::Next => self.next_done(result, now_us),
            Part::Fill => self.fill_done(result, now_us),
            Part::Back => {
                self.back.running = false;
                result?;
                if self.back.steps.is_empty() {
                    self.pool.extend(self.coming.drain(..));
                }
                Ok(())
            }
        }
    }

    fn next_done(&mut self, result: IoResult, now_us: u64) -> Result<(), crate::io::IoError> {
        match &mut self.next {
            Next::Making { segment, job } => {
                job.running = false;
                match result {
                    Ok(_) if job.steps.is_empty() => self.next = Next::Ready(*segment),
                    Ok(_) => {}
                    // Only `Create` allocates: the steps after it are all still to come, and the file is of no use.
                    Err(error) if error.kind == IoErrorKind::NoSpace && job.steps.len() == 2 => {
                        let steps = VecDeque::from([DiskOp::Unlink { name: FileName::Segment(segment.id) }]);
                        self.next = Next::Full { job: Job { steps, running: false }, retry_at_us: now_us + RETRY_US };
                    }
                    Err(error) => return Err(error),
                }
            }
            Next::Full { job, .. } => {
                job.running = false;
                result?;
            }
            Next::Idle | Next::Ready(_) => unreachable!("nothing was running for the next segment"),
        }
        Ok(())
    }

    fn fill_done(&mut self, result: IoResult, now_us: u64) -> Result<(), crate::io::IoError> {
        let idle = Fill::Idle { not_before_us: now_us };
        match &mut self.fill {
            Fill::Filling { number, written, running, .. } => {
                *running = false;
                let number = *number;
                match result {
                    Err(error) if error.kind == IoErrorKind::NoSpace => {
                        let steps = VecDeque::from([DiskOp::Unlink { name: FileName::PoolTemp(number) }]);
                        self.fill = Fill::Giving { job: Job { steps, running: false } };
                    }
                    Err(error) => return Err(error),
                    Ok(_) if *written == self.segment_bytes => {
                        let steps = VecDeque::from([
                            DiskOp::Rename { from: FileName::PoolTemp(number), to: FileName::Pool(number) },
                            DiskOp::SyncDir { dir: Dir::Pool },
                        ]);
                        self.fill = Fill::Naming { number, job: Job { steps, running: false } };
                    }
                    Ok(_) => {}
                }
            }
            Fill::Naming { number, job } => {
                job.running = false;
                result?;
                if job.steps.is_empty() {
                    self.pool.push_back(*number);
                    self.fill = idle;
                }
            }
            Fill::Giving { job } => {
                job.running = false;
                result?;
                self.fill = Fill::Idle { not_before_us: now_us + 10 * RETRY_US };
            }
            Fill::Idle { .. } => unreachable!("nothing was running for the pool"),
        }
        Ok(())
    }
}

impl Job {
    fn start(&mut self) -> Option<DiskOp> {
        if self.running {
            return None;
        }
        let op = self.steps.pop_front()?;
        self.running = true;
        Some(op)
    }
}

/// `length` zeros in shared pieces.
fn zero_pieces(length: u64) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut left = length as usize;
    while left > 0 {
        let n = left.min(ZEROS);
        pieces.push(zeros(n));
        left -= n;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{IoDone, IoError};

    fn supply(segment_bytes: u64, spares: u32) -> Supply {
        Supply::new([0; 16], 1, 1, segment_bytes, spares, (1, 1))
    }

    /// Runs what there is until `until_us`, all of it at once; when, and what.
    fn run(supply: &mut Supply, from_us: u64, until_us: u64) -> Vec<(u64, DiskOp)> {
        let (mut now, mut done) = (from_us, Vec::new());
        loop {
            while let Some((part, op)) = supply.next_io(now) {
                supply.on_io(part, Ok(IoDone::Done), now).unwrap();
                done.push((now, op));
            }
            match supply.next_deadline() {
                Some(at) if at <= until_us => now = at.max(now),
                _ => return done,
            }
        }
    }

    #[test]
    fn spares_are_pre_written_at_50_mb_a_second_and_then_no_more() {
        let mut supply = supply(8 << 20, 2);
        let done = run(&mut supply, 0, 10_000_000);
        let written: Vec<u64> =
            done.iter().filter(|(_, op)| matches!(op, DiskOp::Write { .. })).map(|(at, _)| *at).collect();
        assert_eq!(written.len(), 16);
        assert!(written.windows(2).all(|w| w[0] == w[1] || w[1] - w[0] == FILL_PACE_US), "{written:?}");
        assert!(*written.last().unwrap() >= 14 * FILL_PACE_US);
        assert_eq!(supply.pool.len(), 2);
        // A spare that is used is made up for, and the segment made of it is allocated already.
        let (segment, steps) = supply.plan(UNIT, 7, false, None);
        assert_eq!((segment.size, supply.pool.len()), (8 << 20, 1));
        assert!(matches!(steps[0], DiskOp::Rename { from: FileName::Pool(_), to: FileName::Segment(1) }));
        assert!(steps.iter().all(|op| !matches!(op, DiskOp::Create { .. })));
        run(&mut supply, 20_000_000, 30_000_000);
        assert_eq!(supply.pool.len(), 2);
    }

    #[test]
    fn a_segment_is_ready_when_all_its_steps_are_safe() {
        let mut supply = supply(1 << 20, 0);
        supply.want(UNIT, 5, 0);
        supply.want(UNIT, 5, 0);
        let mut kinds = Vec::new();
        while let Some((part, op)) = supply.next_io(0) {
            assert!(supply.next_io(0).is_none(), "one step after another");
            assert!(supply.take(UNIT).is_none(), "it is not ready yet");
            supply.on_io(part, Ok(IoDone::Done), 0).unwrap();
            kinds.push(op.verb());
        }
        assert_eq!(kinds, ["create", "write", "sync"]);
        let segment = supply.take(UNIT).expect("it is ready");
        assert_eq!((segment.id, segment.offset, segment.size), (1, UNIT, 1 << 20));
        assert!(supply.idle());
    }

    #[test]
    fn a_full_disk_is_asked_again_and_other_errors_are_final() {
        let error = |kind| Err(IoError { kind, text: "error".into() });
        let mut supply = supply(1 << 20, 0);
        supply.want(UNIT, 5, 0);
        let (part, _) = supply.next_io(0).unwrap();
        supply.on_io(part, error(IoErrorKind::NoSpace), 100).unwrap();
        let (part, op) = supply.next_io(100).unwrap();
        assert!(matches!(op, DiskOp::Unlink { name: FileName::Segment(1) }));
        supply.on_io(part, Ok(IoDone::Done), 100).unwrap();
        supply.want(UNIT, 5, 101);
        assert!(supply.next_io(101).is_none(), "not at once");
        let at = supply.next_deadline().unwrap();
        supply.want(UNIT, 5, at);
        let (part, op) = supply.next_io(at).unwrap();
        assert!(matches!(op, DiskOp::Create { name: FileName::Segment(2), .. }));
        assert!(supply.on_io(part, error(IoErrorKind::Other), at).is_err());
    }

    #[test]
    fn a_block_that_no_ordinary_segment_holds_gets_its_own() {
        let mut supply = supply(1 << 20, 0);
        supply.want(5 << 20, 1, 0);
        run(&mut supply, 0, 0);
        assert_eq!(supply.take(5 << 20).map(|s| s.size - s.offset), Some(5 << 20));
    }
}
