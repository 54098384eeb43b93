//! When checkpoints are taken, and the steps of taking one: made beside the flushes, a slice at a time, never more than one
//! step under way. Says afterwards which segments nobody needs any more.
//!
//! Must not know: what a checkpoint holds, how segments come and go.

use crate::block::UNIT;
use crate::bytes_io::Draw;
use crate::checkpoint::{Header, Held, Moment, SECTION_HEADER, Walk, finish_section, put_segments};
use crate::index::Index;
use crate::io::{Dir, DiskOp, FileName, IoError, IoErrorKind, IoResult, Slot};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A file system that is full is asked again after this.
const RETRY_US: u64 = 10_000_000;
/// While flushes wait for space that a checkpoint may free, one is taken this often.
const PRESSED_US: u64 = 1_000_000;

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// After so many bytes of journal: what a start has to read behind the last one.
    pub every_bytes: u64,
    /// After so many µs, if anything has changed.
    pub every_us: u64,
    /// At a stop in order, if anything has changed.
    pub at_stop: bool,
    /// Entries that one slice of it looks at, at most: what is done at once under the log's lock, well below a millisecond.
    pub slice_entries: usize,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints { every_bytes: 256 << 20, every_us: 60_000_000, at_stop: true, slice_entries: 8192 }
    }
}

impl Checkpoints {
    /// None is ever taken, and no segment is used again: for tests that look at a whole log.
    pub fn never() -> Checkpoints {
        Checkpoints { every_bytes: u64::MAX, every_us: u64::MAX, at_stop: false, ..Checkpoints::default() }
    }
}

/// A segment in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) size: u64,
    pub(crate) salt: u32,
    /// It holds no block from this one on; of the segment in use the highest number.
    pub(crate) end: u64,
}

/// A checkpoint that is safe, as far as segments are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) number: u64,
    pub(crate) slot: Slot,
    /// Segments before this one are needed only if something in them is live.
    pub(crate) segment: u32,
    /// It covers blocks up to this one.
    pub(crate) block: u64,
    /// Segments with something live.
    pub(crate) held: BTreeSet<u32>,
}

impl Summary {
    /// Whether a start from it reads this segment.
    pub(crate) fn needs(&self, segment: u32) -> bool {
        segment >= self.segment || self.held.contains(&segment)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Create,
    SyncDir,
    Slices,
    /// All slices are written; the blocks that they know of may not be safe yet.
    Sync,
    Header,
}

#[derive(Debug)]
struct Job {
    slot: Slot,
    stage: Stage,
    running: bool,
    walk: Walk,
    moment: Moment,
    number: u64,
    salt: u32,
    /// Bytes of sections so far, and their sum.
    length: u64,
    sum: u32,
    /// The last block that it knows of, once all is told.
    seen: Option<u64>,
    next_queue: u64,
    held: BTreeSet<u32>,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    rules: Checkpoints,
    draw: Draw,
    newest: Option<Summary>,
    /// Files that are there.
    exist: [bool; 2],
    job: Option<Job>,
    /// Bytes of blocks, and whether any of them held a batch, since the last checkpoint was begun.
    bytes: u64,
    changed: bool,
    begun_us: u64,
    not_before_us: u64,
    number: u64,
}

impl Checkpointer {
    /// `newest`: the one that a start was made from, if any; `bytes`: of the segments behind it.
    pub(crate) fn new(
        rules: Checkpoints,
        seed: u64,
        newest: Option<Summary>,
        exist: [bool; 2],
        bytes: u64,
        now_us: u64,
    ) -> Checkpointer {
        Checkpointer {
            rules,
            draw: Draw::new(seed),
            number: newest.as_ref().map_or(0, |s| s.number),
            newest,
            exist,
            job: None,
            bytes,
            changed: true,
            begun_us: now_us,
            not_before_us: 0,
        }
    }

    /// A block was handed out.
    pub(crate) fn block(&mut self, bytes: u64, batches: bool) {
        self.bytes += bytes;
        self.changed |= batches;
    }

    /// Whether one is to be begun now, because flushes wait for space: it frees something by what it holds, or by making
    /// the one before the older of two, which is needed for fewer `segments`.
    pub(crate) fn pressed(&self, now_us: u64, segments: &BTreeMap<u32, Kept>) -> bool {
        let waiting = || match &self.newest {
            Some(newest) => segments.keys().any(|id| !newest.needs(*id)),
            None => false,
        };
        self.job.is_none()
            && now_us >= self.begun_us.saturating_add(PRESSED_US)
            && self.rules.every_us < u64::MAX
            && (self.changed || waiting())
    }

    /// Whether one is to be begun now; `stop`: the log is being stopped in order and has nothing else left to do.
    pub(crate) fn due(&self, now_us: u64, stop: bool) -> bool {
        let full = self.bytes >= self.rules.every_bytes;
        let old = now_us >= self.begun_us.saturating_add(self.rules.every_us);
        let at_stop = stop && self.rules.at_stop;
        self.job.is_none() && self.changed && now_us >= self.not_before_us && (full || old || at_stop)
    }

    /// Whether a stop in order still waits for one.
    pub(crate) fn keeps_stop(&self) -> bool {
        // On a full disk a stop does without.
        self.job.is_some() || (self.rules.at_stop && self.changed && self.not_before_us == 0)
    }

    /// When [`Checkpointer::due`] will be, if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let waits = self.job.is_none() && self.changed && self.rules.every_us < u64::MAX;
        let full = self.bytes >= self.rules.every_bytes;
        let at = if full { 0 } else { self.begun_us.saturating_add(self.rules.every_us) };
        (waits || (full && self.job.is_none() && self.changed)).then(|| at.max(self.not_before_us))
    }

    /// Whether one is under way.
    pub(crate) fn busy(&self) -> bool {
        self.job.is_some()
    }

    pub(crate) fn begin(&mut self, moment: Moment, index: &mut Index, now_us: u64) {
        let slot = self.newest.as_ref().map_or(Slot::A, |newest| newest.slot.other());
        self.number += 1;
        self.bytes = 0;
        self.changed = false;
        self.begun_us = now_us;
        let salt = self.draw.next() as u32;
        self.job = Some(Job {
            slot,
            stage: if self.exist[slot as usize] { Stage::Slices } else { Stage::Create },
            running: false,
            walk: Walk::new(index, moment.place),
            moment,
            number: self.number,
            salt,
            length: 0,
            sum: salt,
            seen: None,
            next_queue: 0,
            held: BTreeSet::new(),
        });
    }

    /// The next step, if there is one: `next_block` is the log's next, `durable` its last safe one.
    pub(crate) fn next_io(
        &mut self,
        index: &mut Index,
        segments: &BTreeMap<u32, Kept>,
        next_block: u64,
        durable: u64,
    ) -> Option<DiskOp> {
        let job = self.job.as_mut().filter(|job| !job.running)?;
        let name = FileName::Checkpoint(job.slot);
        let op = match job.stage {
            Stage::Create => DiskOp::Create { name, length: 0 },
            Stage::SyncDir => DiskOp::SyncDir { dir: Dir::Root },
            Stage::Slices => {
                let mut section = vec![0; SECTION_HEADER];
                if !job.walk.done() {
                    job.walk.slice(index, &mut section, self.rules.slice_entries.max(1));
                }
                if job.walk.done() {
                    job.walk.moved(index, &mut section);
                    index.watch(false);
                    job.seen = Some(next_block - 1);
                    job.next_queue = index.next_queue();
                    let held = job.walk.segments().filter_map(|id| {
                        // A body in a block that is not covered.
                        let kept = segments.get(&id)?;
                        let (listed, whole) = job.walk.held(id);
                        Some(Held { id, salt: kept.salt, end: kept.end.min(job.moment.block + 1), listed, whole })
                    });
                    let held: Vec<Held> = held.collect();
                    job.held = held.iter().map(|held| held.id).collect();
                    put_segments(&mut section, held.into_iter());
                }
                job.sum = finish_section(&mut section, job.sum);
                let offset = UNIT + job.length;
                job.length += section.len() as u64;
                DiskOp::Write { name, offset, pieces: vec![Bytes::from(section)], sync: false }
            }
            Stage::Sync => DiskOp::Sync { name },
            // Not before all that it knows of is safe.
            Stage::Header if job.seen.is_none_or(|seen| seen > durable) => return None,
            Stage::Header => {
                let header = Header {
                    moment: job.moment,
                    number: job.number,
                    salt: job.salt,
                    seen: job.seen.unwrap_or(job.moment.block),
                    next_queue: job.next_queue,
                    length: job.length,
                    sum: job.sum,
                };
                DiskOp::Write { name, offset: 0, pieces: vec![Bytes::from(header.encode())], sync: true }
            }
        };
        job.running = true;
        Some(op)
    }

    /// A step has ended. Answers the checkpoint before the one that is now safe, if there is one: what it does not need
    /// nobody does. `Err`: the step failed for good.
    pub(crate) fn on_io(
        &mut self,
        result: IoResult,
        index: &mut Index,
        now_us: u64,
    ) -> Result<Option<Summary>, IoError> {
        let job = self.job.as_mut().expect("a step was running");
        job.running = false;
        match result {
            Err(error) if error.kind == IoErrorKind::NoSpace => {
                // Done without; what the file held is lost, the other file's is not.
                self.exist[job.slot as usize] |= job.stage != Stage::Create;
                self.job = None;
                self.changed = true;
                self.not_before_us = now_us + RETRY_US;
                index.watch(false);
                return Ok(None);
            }
            other => drop(other?),
        }
        job.stage = match job.stage {
            Stage::Create => Stage::SyncDir,
            Stage::SyncDir => {
                self.exist[job.slot as usize] = true;
                Stage::Slices
            }
            Stage::Slices if job.seen.is_none() => Stage::Slices,
            Stage::Slices => Stage::Sync,
            Stage::Sync => Stage::Header,
            Stage::Header => {
                let Job { slot, moment, number, held, .. } = self.job.take().expect("it was just used");
                let (segment, block) = (moment.place.segment, moment.block);
                self.not_before_us = 0;
                return Ok(self.newest.replace(Summary { number, slot, segment, block, held }));
            }
        };
        Ok(None)
    }
}
