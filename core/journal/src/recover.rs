//! What happens before a run: find the store or make it, begin with the newest checkpoint, read the log behind it, tell a torn
//! tail from damage, make the cut.
//!
//! The only part that may block. The rules (`docs/formats/journal.md`, "A start"): blocks count only in unbroken order,
//! number by number and sum by sum; what a later start has cut off is void; a block that cannot be read is a torn tail if
//! nothing proves that it was confirmed, and damage otherwise; nothing is ever appended behind a torn tail.

mod mend;
#[cfg(test)]
mod tests;

use crate::block::{self, BlockHeader, HEADER, UNIT};
use crate::bytes_io::{Draw, crc};
use crate::checkpoint::{self, Header, Held, Moment};
use crate::checkpointer::{Checkpointer, Kept, Summary};
use crate::error::JournalError;
use crate::fold::Fold;
use crate::index::{Index, Place};
use crate::io::{BlockingDisk, Dir, DiskOp, FileName, IoDone, IoError, IoErrorKind, Slot};
use crate::log::{Beginning, Log, Options};
use crate::record::{End, start_meta, stop_meta};
use crate::segment::{HeaderState, KNOWN, SegmentHeader, decode_store, encode_store};
use crate::supply::Supply;
use crate::transactions::Refused;
use bytes::Bytes;
use packhorse_model::{LargeId, Now};
use packhorse_store::{RESERVE, Remember};
use std::collections::{BTreeMap, VecDeque};

/// A start's own segment is pre-written to this size when no spare one is there: fast from the first flush on, and soon done.
const FIRST_BYTES: u64 = 16 << 20;
/// Segments at the end that may hold a block whose flush failed: two with blocks, and those that were ready or skipped.
const UNCACHED: u32 = 8;
/// Bytes read at once where small blocks follow one another, or nothing is known of what follows.
const WINDOW: u32 = 128 * 1024;
/// A checkpoint is read in steps of this.
const READ_BYTES: u32 = 4 << 20;

/// No block that can be put right is longer: one holds as much as one flush.
const UNCONFIRMED_BYTES: u64 = 256 << 20;

/// An opened journal.
pub struct Recovery {
    /// The log, ready to run.
    pub log: Log,
    /// What the start found.
    pub report: Report,
}

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries of all queues.
    pub messages: u64,
    /// Entries among them that may have been with a consumer when the process died.
    pub suspects: u64,
    /// Queues.
    pub queues: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the segments that hold them.
    pub bytes: u64,
    /// The torn tail that was cut off: segment and offset.
    pub torn: Option<(String, u64)>,
    /// Last blocks of which one bit was wrong and is put right: segment and offset.
    pub mended: Vec<(String, u64)>,
    /// Large messages without an entry, moved to the attic.
    pub orphans: u64,
}

/// Opens the journal of a data directory that the caller holds the lock of.
///
/// # Errors
/// See [`JournalError`]. After an error nothing has been changed that another start would need.
pub fn recover(disk: &mut dyn BlockingDisk, options: &Options, now: Now) -> Result<Recovery, JournalError> {
    assert!(
        options.segment_bytes.is_multiple_of(UNIT)
            && options.segment_bytes >= 4 * UNIT
            && options.segment_bytes < 1 << 32,
        "a segment of {} bytes; it must be a multiple of {UNIT}, at least 4 of them, and below 4 GiB",
        options.segment_bytes
    );
    let mut disk = Disk(disk);
    let mut draw = Draw::new(options.seed);
    let store = find_store(&mut disk, &mut draw)?;
    // An earlier process may have ended between making a file and making its name safe; what is not is not believed.
    for dir in [Dir::Root, Dir::Journal] {
        disk.run(DiskOp::SyncDir { dir })?;
    }
    let mut kept = Checkpoint::find(&mut disk, store, options.remember)?;
    let newest = kept.newest.take();
    let summary = newest.as_ref().map(Newest::summary);
    let found = Files::find(&mut disk, store, summary.as_ref())?;
    kept.judge(&found, summary.as_ref())?;
    let (mut fold, held, covered) = match newest {
        Some(Newest { fold, held, header, .. }) => (fold, held, Some(header)),
        None => (Fold::new(options.remember), Vec::new(), None),
    };
    for segment in &held {
        find_listed(&mut disk, &found.segments, segment, &mut fold)?;
    }
    // What lies before the checkpoint's place is needed for its bodies alone.
    let tail_at = covered.map_or(0, |h| found.segments.partition_point(|s| s.header.id < h.moment.place.segment));
    if let Some(Moment { place, .. }) = covered.map(|header| header.moment)
        && found.segments.get(tail_at).is_none_or(|s| s.header.id != place.segment)
    {
        let what = "it is missing, and the checkpoint says that the log goes on there".into();
        return Err(damaged(FileName::Segment(place.segment), 0, what, &fold));
    }
    let mut scan = Scan::new(&mut disk, &found.segments[tail_at..], fold, covered.as_ref());
    scan.run()?;
    let Scan { fold, number, chain, time, stopped, torn, mended, blocks, ends, .. } = scan;
    let mut fold = fold;

    let run = found.run.max(covered.map_or(0, |h| h.moment.run)) + 1;
    let next = (found.next_id, found.next_pool);
    let mut supply = Supply::new(store, run, draw.next(), options.segment_bytes, options.spare_segments, next);
    supply.covers(found.covers());
    for (name, size) in &found.spares {
        match name {
            FileName::Pool(n) if *size == options.segment_bytes => supply.spare(*n),
            name => supply.discard(*name),
        }
    }

    // The cut: from here on, older segments hold nothing from this block on.
    let started_at_ms = match time {
        Some((broker_ms, wall_ms)) => {
            broker_ms.saturating_add(u64::try_from(now.wall_ms.saturating_sub(wall_ms)).unwrap_or(0))
        }
        None => 0,
    };
    let before = match (stopped, time) {
        (true, _) => End::Stop,
        (false, time) => End::Crash(time.map_or(0, |(broker_ms, _)| broker_ms)),
    };
    let meta = start_meta(run, RESERVE, before);
    let length = (HEADER + meta.len()) as u64;
    let (mut active, steps) = supply.plan(block::padded(length), number, true, Some(FIRST_BYTES));
    for step in steps {
        disk.run(step)?;
    }
    let mut head = vec![0; HEADER];
    head.extend_from_slice(&meta);
    let header = BlockHeader {
        run,
        number,
        durable: number - 1,
        broker_ms: started_at_ms,
        wall_ms: now.wall_ms,
        length: length as u32,
        meta: meta.len() as u32,
        count: 1,
        previous: chain,
    };
    let chain = block::finish(&mut head, &header, active.salt);
    let mut pieces = vec![Bytes::from(head)];
    pieces.extend(block::padding(length));
    let name = FileName::Segment(active.id);
    disk.run(DiskOp::Write { name, offset: active.offset, pieces, sync: true })?;
    active.offset += header.padded();
    let content = Place { segment: active.id, offset: 0 };
    fold.apply(&meta, content).expect("what was just encoded can be read");

    let mut segments = BTreeMap::new();
    segments.insert(active.id, Kept { size: active.size, salt: active.salt, end: u64::MAX });
    for (at, segment) in found.segments.iter().enumerate() {
        let SegmentHeader { id, salt, .. } = segment.header;
        let size = segment.size;
        let held = held.iter().find(|held| held.id == id);
        let mended = mended.iter().any(|(segment, _)| *segment == id);
        if segment.blocks || mended || held.is_some() || covered.is_some_and(|h| h.moment.place.segment == id) {
            let end = match at.checked_sub(tail_at) {
                Some(at) => ends.get(at).map_or(number, |end| number.min(*end)),
                None => held.map_or(0, |held| held.end),
            };
            segments.insert(id, Kept { size, salt, end });
        } else {
            supply.give_back(id, size);
        }
    }
    let bytes = segments.values().map(|kept| kept.size).sum();
    // Whole segments, though short lives leave most of them empty: that is what the next start reads, and what the disk holds.
    let tail = &found.segments[tail_at..];
    let tail_bytes = tail.iter().filter(|s| segments.contains_key(&s.header.id)).map(|s| s.size).sum();
    for (name, size) in &found.unused {
        match name {
            FileName::Segment(id) => supply.give_back(*id, *size),
            name => supply.discard(*name),
        }
    }
    supply.end_give_back();
    let orphans = set_aside_orphans(&mut disk, &fold)?;

    let mut index = Index::new(options.seed);
    index.set_slice(options.slice_operations);
    let (queues, suspects) = (fold.names().len() as u64, fold.suspects());
    let (recovered, messages) = fold.finish(&mut index, options.shards, started_at_ms);
    let mended = mended.iter().map(|(id, at)| (FileName::Segment(*id).to_string(), *at)).collect();
    let report = Report { messages, suspects, queues, blocks, bytes, torn, mended, orphans };
    let seed = draw.next();
    let checkpoints = Checkpointer::new(options.checkpoints, seed, summary, kept.exist, tail_bytes, now.mono_us);
    let log = Log::new(Beginning {
        store,
        run,
        started_at_ms,
        now,
        next_block: number + 1,
        chain,
        active,
        segments,
        supply,
        checkpoints,
        index,
        recovered,
    });
    Ok(Recovery { log, report })
}

/// The disk with errors that name what was tried.
struct Disk<'a>(&'a mut dyn BlockingDisk);

impl Disk<'_> {
    fn run(&mut self, op: DiskOp) -> Result<IoDone, JournalError> {
        let (verb, path) = (op.verb(), op.subject().to_string());
        let needed = match &op {
            DiskOp::Create { length, .. } => *length,
            DiskOp::Write { pieces, .. } => pieces.iter().map(|p| p.len() as u64).sum(),
            _ => 0,
        };
        self.0.run(op).map_err(|error| match error.kind {
            IoErrorKind::NoSpace => JournalError::NoSpace { needed, path },
            _ => JournalError::Fault { op: verb, path, error: error.text },
        })
    }

    fn read(&mut self, name: FileName, offset: u64, length: u32) -> Result<Bytes, JournalError> {
        match self.run(DiskOp::Read { name, offset, length })? {
            IoDone::Read(bytes) => Ok(bytes),
            IoDone::Done => Ok(Bytes::new()),
        }
    }

    fn list(&mut self, dir: Dir) -> Result<Vec<(FileName, u64)>, JournalError> {
        let mut names = self.0.list(dir).map_err(|IoError { text, .. }| JournalError::Fault {
            op: "list",
            path: crate::io::Subject::Dir(dir).to_string(),
            error: text,
        })?;
        names.sort_unstable();
        Ok(names)
    }
}

/// Reads the store's identity, or makes a new store in an empty directory.
fn find_store(disk: &mut Disk<'_>, draw: &mut Draw) -> Result<[u8; 16], JournalError> {
    let known = || KNOWN.to_string();
    for dir in Dir::ALL {
        disk.run(DiskOp::CreateDir { dir })?;
    }
    let root = disk.list(Dir::Root)?;
    if root.iter().any(|(name, _)| *name == FileName::Store) {
        let bytes = disk.read(FileName::Store, 0, UNIT as u32)?;
        return decode_store(&bytes).map_err(|found| JournalError::OtherFormat {
            file: FileName::Store.to_string(),
            found,
            known: known(),
        });
    }
    if let Some((name, _)) = disk.list(Dir::Journal)?.first() {
        return Err(JournalError::OtherFormat {
            file: name.to_string(),
            found: "a segment without the STORE file that belongs to it".into(),
            known: known(),
        });
    }
    let mut store = [0; 16];
    store[..8].copy_from_slice(&draw.next().to_le_bytes());
    store[8..].copy_from_slice(&draw.next().to_le_bytes());
    let name = FileName::StoreTemp;
    disk.run(DiskOp::Unlink { name })?;
    disk.run(DiskOp::Create { name, length: 0 })?;
    disk.run(DiskOp::Write { name, offset: 0, pieces: vec![Bytes::from(encode_store(store))], sync: true })?;
    disk.run(DiskOp::Rename { from: name, to: FileName::Store })?;
    disk.run(DiskOp::SyncDir { dir: Dir::Large })?;
    disk.run(DiskOp::SyncDir { dir: Dir::Root })?;
    Ok(store)
}

/// The checkpoint that a start begins with.
struct Newest {
    header: Header,
    slot: Slot,
    held: Vec<Held>,
    fold: Fold,
}

impl Newest {
    fn summary(&self) -> Summary {
        let Header { number, moment: Moment { place, block, .. }, .. } = self.header;
        let held = self.held.iter().map(|held| held.id).collect();
        Summary { number, slot: self.slot, segment: place.segment, block, held }
    }
}

/// What there is of checkpoints.
struct Checkpoint {
    newest: Option<Newest>,
    /// Files that are there.
    exist: [bool; 2],
}

impl Checkpoint {
    /// Finds the newest one that is whole.
    fn find(disk: &mut Disk<'_>, store: [u8; 16], remember: Remember) -> Result<Checkpoint, JournalError> {
        let mut found = Checkpoint { newest: None, exist: [false; 2] };
        let mut headers = Vec::new();
        // One that cannot be read is as good as one that is not whole, if there is another.
        let mut unread = None;
        for (name, size) in disk.list(Dir::Root)? {
            let FileName::Checkpoint(slot) = name else { continue };
            found.exist[slot as usize] = true;
            let bytes = match read_header(disk, name) {
                Ok(bytes) => bytes,
                Err(fault @ JournalError::Fault { .. }) => {
                    unread = Some(fault);
                    continue;
                }
                Err(other) => return Err(other),
            };
            let other = |found| JournalError::OtherFormat { file: name.to_string(), found, known: KNOWN.into() };
            match Header::decode(&bytes) {
                None => {}
                Some(Err(version)) => return Err(other(format!("format {version}"))),
                Some(Ok(header)) if header.moment.store != store => {
                    return Err(other("a checkpoint of another store".into()));
                }
                Some(Ok(header)) => headers.push((header, slot, size)),
            }
        }
        headers.sort_unstable_by_key(|(header, ..)| std::cmp::Reverse(header.number));
        for (header, slot, size) in headers {
            // A length that the file does not have is not asked for.
            if header.length > size.saturating_sub(UNIT) {
                continue;
            }
            let bytes = match read_all(disk, FileName::Checkpoint(slot), UNIT, header.length) {
                Ok(bytes) => bytes,
                Err(fault @ JournalError::Fault { .. }) => {
                    unread = Some(fault);
                    continue;
                }
                Err(other) => return Err(other),
            };
            let Some(sections) = checkpoint::sections(&header, &bytes) else { continue };
            let mut fold = Fold::new(remember);
            if let Ok(held) = fold.load(header.next_queue, &sections) {
                found.newest = Some(Newest { header, slot, held, fold });
                break;
            }
        }
        match (&found.newest, unread) {
            (None, Some(fault)) => Err(fault),
            _ => Ok(found),
        }
    }

    /// Ends the start when a checkpoint is needed that is not there.
    fn judge(&self, files: &Files, newest: Option<&Summary>) -> Result<(), JournalError> {
        let covers = files.covers();
        let first = files.segments.first().map(|s| &s.header);
        let lost = match newest {
            Some(newest) => newest.block < covers,
            // The first segment is gone, and there is what may have stood for it.
            None => covers > 1 || (self.exist.contains(&true) && first.is_some_and(|h| h.id > 1)),
        };
        if lost {
            let covers = covers.max(first.map_or(1, |h| h.first));
            return Err(JournalError::CheckpointLost { covers });
        }
        Ok(())
    }
}

/// A checkpoint's header. As with segments: what an earlier process left is made safe, and what is not on the medium is not
/// believed.
fn read_header(disk: &mut Disk<'_>, name: FileName) -> Result<Bytes, JournalError> {
    disk.run(DiskOp::Sync { name })?;
    disk.run(DiskOp::Uncache { name })?;
    disk.read(name, 0, UNIT as u32)
}

/// Bytes of a file, however many.
fn read_all(disk: &mut Disk<'_>, name: FileName, from: u64, length: u64) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        let step = (length - bytes.len() as u64).min(u64::from(READ_BYTES)) as u32;
        let part = disk.read(name, from + bytes.len() as u64, step)?;
        if part.is_empty() {
            break;
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Finds the entries that a checkpoint lists in a segment: all its blocks are covered, and each must be there.
fn find_listed(disk: &mut Disk<'_>, segments: &[Found], held: &Held, fold: &mut Fold) -> Result<(), JournalError> {
    let name = FileName::Segment(held.id);
    let damage = |offset, what: &str, fold: &Fold| Err(damaged(name, offset, what.into(), fold));
    let Some(segment) = segments.iter().find(|s| s.header.id == held.id) else {
        return damage(0, "it is missing, and the checkpoint names messages in it", fold);
    };
    let SegmentHeader { salt, run, .. } = segment.header;
    if salt != held.salt {
        return damage(0, "it is not the one that the checkpoint names", fold);
    }
    let (mut offset, mut found, mut next) = (UNIT, 0, None);
    let mut window = Window::default();
    // Blocks follow one another without a gap.
    while held.listed > 0 && next.is_none_or(|next| next < held.end) {
        let bytes = window.bytes(disk, name, offset, HEADER as u32)?;
        let Some((header, _)) = BlockHeader::decode(&bytes, salt) else {
            return damage(offset, "a block that the checkpoint covers cannot be read", fold);
        };
        if header.run != run || header.number != next.unwrap_or(header.number) || header.number >= held.end {
            return damage(offset, "a block that the checkpoint covers is not there", fold);
        }
        let meta = window.bytes(disk, name, offset + HEADER as u64, header.meta)?;
        if !BlockHeader::meta_holds(&bytes, &meta, salt) {
            return damage(offset, "a block that the checkpoint covers cannot be read", fold);
        }
        window.expect(&header);
        let content = content_at(held.id, offset, &header);
        found += fold.fill(&meta, content).map_err(|_| unknown_record(held.id, header.number))?;
        next = Some(header.number + 1);
        offset += header.padded();
    }
    if found != held.listed {
        return damage(offset, "messages that the checkpoint names are not in it", fold);
    }
    Ok(())
}

/// Reading ahead in segments: of big blocks the metadata alone, about as long as that of the block before.
struct Window {
    name: FileName,
    start: u64,
    bytes: Bytes,
    stride: u32,
}

impl Default for Window {
    fn default() -> Window {
        Window { name: FileName::Store, start: 0, bytes: Bytes::new(), stride: WINDOW }
    }
}

impl Window {
    /// Bytes of a segment; fewer at its end.
    fn bytes(&mut self, disk: &mut Disk<'_>, name: FileName, offset: u64, length: u32) -> Result<Bytes, JournalError> {
        let end = self.start + self.bytes.len() as u64;
        if self.name == name && self.start <= offset && offset + u64::from(length) <= end {
            let from = (offset - self.start) as usize;
            return Ok(self.bytes.slice(from..from + length as usize));
        }
        let bytes = disk.read(name, offset, length.max(self.stride))?;
        (self.name, self.start, self.bytes) = (name, offset, bytes.clone());
        Ok(bytes.slice(..bytes.len().min(length as usize)))
    }

    /// This block was read: how much to read at once from now on.
    fn expect(&mut self, header: &BlockHeader) {
        let metadata = block::padded(u64::from(header.meta) + u64::from(header.meta) / 4 + UNIT) as u32;
        self.stride = if header.padded() > 2 * u64::from(metadata) { metadata } else { WINDOW.max(metadata) };
    }
}

/// A segment whose header is whole.
#[derive(Clone, Copy, Debug)]
struct Found {
    header: SegmentHeader,
    size: u64,
    /// Its first block is whole.
    blocks: bool,
}

/// What is in the folders.
struct Files {
    /// By id.
    segments: Vec<Found>,
    /// In the pool: of use or not.
    spares: Vec<(FileName, u64)>,
    /// Among the segments, never used.
    unused: Vec<(FileName, u64)>,
    run: u32,
    next_id: u32,
    next_pool: u32,
}

impl Files {
    /// The block up to which a checkpoint must cover, because what was before is gone; 1: nothing is.
    fn covers(&self) -> u64 {
        self.segments.iter().map(|s| s.header.covers).max().unwrap_or(1)
    }

    /// `newest`: the checkpoint that the start begins with.
    fn find(disk: &mut Disk<'_>, store: [u8; 16], newest: Option<&Summary>) -> Result<Files, JournalError> {
        let mut files =
            Files { segments: Vec::new(), spares: Vec::new(), unused: Vec::new(), run: 0, next_id: 1, next_pool: 1 };
        let mut renamed = false;
        let names = [disk.list(Dir::Journal)?, disk.list(Dir::Pool)?].concat();
        let ids = names.iter().filter_map(|(name, _)| match name {
            FileName::Segment(id) => Some(*id),
            _ => None,
        });
        let last = ids.max().unwrap_or(0);
        for (name, size) in names {
            match name {
                FileName::Segment(id) => files.next_id = files.next_id.max(id + 1),
                FileName::Pool(n) | FileName::PoolTemp(n) => files.next_pool = files.next_pool.max(n + 1),
                _ => {}
            }
            if let FileName::PoolTemp(_) = name {
                files.spares.push((name, size));
                continue;
            }
            // What an earlier process left to the system is made safe before anything is built on it …
            disk.run(DiskOp::Sync { name })?;
            // … and what a failed flush left looks whole in the cache and clean, and is not on disk: read past the cache. Only
            // the last blocks can be such, for all others were flushed well or the store would have ended before them.
            if matches!(name, FileName::Segment(id) if id + UNCACHED > last) {
                disk.run(DiskOp::Uncache { name })?;
            }
            let bytes = disk.read(name, 0, 2 * UNIT as u32)?;
            let in_pool = matches!(name, FileName::Pool(_));
            let header = match SegmentHeader::decode(&bytes) {
                HeaderState::Valid(header) => header,
                HeaderState::Blank if in_pool => {
                    files.spares.push((name, size));
                    continue;
                }
                HeaderState::Blank => {
                    files.unused.push((name, size));
                    continue;
                }
                HeaderState::Version(found) => {
                    return Err(JournalError::OtherFormat {
                        file: name.to_string(),
                        found: format!("format {found}"),
                        known: KNOWN.into(),
                    });
                }
                HeaderState::Damaged if in_pool => {
                    files.unused.push((name, size));
                    continue;
                }
                HeaderState::Damaged
                    if newest.is_some_and(|n| matches!(name, FileName::Segment(id) if !n.needs(id))) =>
                {
                    files.unused.push((name, size));
                    continue;
                }
                HeaderState::Damaged => {
                    return Err(damaged(name, 0, "the header's checksum fails".into(), &Fold::default()));
                }
            };
            if header.store != store {
                return Err(JournalError::OtherFormat {
                    file: name.to_string(),
                    found: "a segment of another store".into(),
                    known: "only segments of the store that its STORE file names".into(),
                });
            }
            files.run = files.run.max(header.run);
            files.next_id = files.next_id.max(header.id + 1);
            let first = bytes.get(UNIT as usize..).and_then(|b| BlockHeader::decode(b, header.salt));
            let blocks = first.is_some_and(|(b, _)| b.run == header.run);
            let own_name = name == FileName::Segment(header.id);
            // One that was freed, in the pool, or taken from there for a use whose header was never written.
            let freed = newest.is_some_and(|newest| !newest.needs(header.id));
            if !own_name && (!blocks || freed) {
                // Renamed for a new use whose header was never written, or given back.
                if in_pool {
                    files.spares.push((name, size))
                } else {
                    files.unused.push((name, size))
                }
                continue;
            }
            if !own_name {
                // Headers decide, names are hints.
                let to = FileName::Segment(header.id);
                disk.run(DiskOp::Rename { from: name, to })?;
                renamed = true;
            }
            files.segments.push(Found { header, size, blocks });
        }
        if renamed {
            disk.run(DiskOp::SyncDir { dir: Dir::Journal })?;
            disk.run(DiskOp::SyncDir { dir: Dir::Pool })?;
        }
        files.segments.sort_unstable_by_key(|s| s.header.id);
        if let Some(pair) = files.segments.windows(2).find(|pair| pair[0].header.id == pair[1].header.id) {
            let name = FileName::Segment(pair[0].header.id);
            return Err(damaged(name, 0, "another file has the same segment number".into(), &Fold::default()));
        }
        Ok(files)
    }
}

fn damaged(name: FileName, offset: u64, what: String, fold: &Fold) -> JournalError {
    JournalError::Damaged { segment: name.to_string(), offset, what, queues: fold.names() }
}

/// A block that is whole as far as headers and metadata tell, and not yet known to have been confirmed.
struct Unproved {
    number: u64,
    previous: u32,
    segment: usize,
    offset: u64,
    header: BlockHeader,
    meta: Bytes,
}

/// Reading the log in order.
struct Scan<'a, 'd> {
    disk: &'a mut Disk<'d>,
    segments: &'a [Found],
    window: Window,
    fold: Fold,
    /// The next block's number, and the chain before it.
    number: u64,
    chain: u32,
    /// Blocks up to here are known to have been confirmed.
    durable: u64,
    unproved: VecDeque<Unproved>,
    /// Broker and wall time of the last block.
    time: Option<(u64, i64)>,
    /// The last block ends a run in order.
    stopped: bool,
    /// Where block `number` should have been.
    stop: (usize, u64),
    torn: Option<(String, u64)>,
    /// Blocks that were put right: segment and offset.
    mended: Vec<(u32, u64)>,
    blocks: u64,
    /// For each segment, the first number that is not in it.
    ends: Vec<u64>,
}

impl<'a, 'd> Scan<'a, 'd> {
    /// `fold`: what came before; `checkpoint`: where the first block is, if it is not the log's first.
    fn new(disk: &'a mut Disk<'d>, segments: &'a [Found], fold: Fold, checkpoint: Option<&Header>) -> Scan<'a, 'd> {
        // What a start has cut had been read whole by that start, and what a checkpoint knows of is safe.
        let cut = segments.iter().filter(|s| s.header.cut).map(|s| s.header.first - 1).max().unwrap_or(0);
        let moment = checkpoint.map(|h| h.moment);
        let first = moment.map_or(UNIT, |m| u64::from(m.place.offset));
        Scan {
            disk,
            segments,
            window: Window::default(),
            fold,
            number: moment.map_or(1, |m| m.block + 1),
            chain: moment.map_or(0, |m| m.chain),
            durable: cut.max(checkpoint.map_or(0, |h| h.seen)),
            unproved: VecDeque::new(),
            time: moment.map(|m| (m.broker_ms, m.wall_ms)),
            stopped: moment.is_some_and(|m| m.stopped),
            stop: (0, first),
            torn: None,
            mended: Vec::new(),
            blocks: 0,
            ends: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), JournalError> {
        loop {
            self.read()?;
            if !self.judge_tail()? {
                return Ok(());
            }
        }
    }

    /// Reads on from where it stopped.
    fn read(&mut self) -> Result<(), JournalError> {
        let from = self.stop.0;
        self.ends.truncate(from);
        for at in from..self.segments.len() {
            let header = self.segments[at].header;
            if header.cut && self.number < header.first {
                return Err(self.damage("a block is missing that an earlier start has read"));
            }
            let limit = self.limit(at);
            let mut offset = if at == from { self.stop.1 } else { UNIT };
            while self.number < limit {
                let Some(length) = self.block_at(at, offset)? else { break };
                offset += length;
                self.stop = (at, offset);
            }
            self.ends.push(self.number);
        }
        Ok(())
    }

    /// The block from which on a later start has cut off this segment.
    fn limit(&self, at: usize) -> u64 {
        self.segments[at + 1..].iter().find(|s| s.header.cut).map_or(u64::MAX, |s| s.header.first)
    }

    fn damage(&self, what: &str) -> JournalError {
        let (at, offset) = self.stop;
        let id = self.segments.get(at).map_or(0, |s| s.header.id);
        damaged(FileName::Segment(id), offset, format!("block {}: {what}", self.number), &self.fold)
    }

    fn bytes(&mut self, at: usize, offset: u64, length: u32) -> Result<Bytes, JournalError> {
        let name = FileName::Segment(self.segments[at].header.id);
        self.window.bytes(self.disk, name, offset, length)
    }

    /// Takes in the block at this place if it is the next one; answers the bytes it takes there.
    fn block_at(&mut self, at: usize, offset: u64) -> Result<Option<u64>, JournalError> {
        let segment = self.segments[at];
        let bytes = self.bytes(at, offset, HEADER as u32)?;
        let Some((header, sum)) = BlockHeader::decode(&bytes, segment.header.salt) else { return Ok(None) };
        if header.run != segment.header.run || header.number != self.number || header.previous != self.chain {
            return Ok(None);
        }
        let meta = self.bytes(at, offset + HEADER as u64, header.meta)?;
        if !BlockHeader::meta_holds(&bytes, &meta, segment.header.salt) {
            return Ok(None);
        }
        self.window.expect(&header);
        let previous = self.chain;
        self.unproved.push_back(Unproved { number: header.number, previous, segment: at, offset, header, meta });
        self.number += 1;
        self.chain = sum;
        self.durable = self.durable.max(header.durable);
        while self.unproved.front().is_some_and(|block| block.number <= self.durable) {
            let block = self.unproved.pop_front().expect("there is a front");
            self.take(&block)?;
        }
        Ok(Some(header.padded()))
    }

    fn take(&mut self, block: &Unproved) -> Result<(), JournalError> {
        let id = self.segments[block.segment].header.id;
        self.fold.apply(&block.meta, content_of(id, block)).map_err(|refused| match refused {
            Refused::Malformed => unknown_record(id, block.number),
            Refused::Missing(what) => {
                let what = format!("block {}: {what}", block.number);
                damaged(FileName::Segment(id), block.offset, what, &self.fold)
            }
        })?;
        self.time = Some((block.header.broker_ms, block.header.wall_ms));
        self.stopped = block.meta == stop_meta();
        self.blocks += 1;
        Ok(())
    }

    /// Decides about the first block that is not there, and about the last ones that are. True: it is there now.
    fn judge_tail(&mut self) -> Result<bool, JournalError> {
        if self.number <= self.durable {
            return Err(self.damage("it cannot be read, and is known to have been confirmed"));
        }
        let (first, from) = self.stop;
        self.window.stride = WINDOW;
        let mut torn = None;
        for at in first..self.segments.len() {
            if self.number >= self.limit(at) {
                continue;
            }
            let Found { header: segment, size, .. } = self.segments[at];
            let mut offset = if at == first { from } else { UNIT };
            while offset + UNIT <= size {
                let bytes = self.bytes(at, offset, HEADER as u32)?;
                if let Some((header, _)) = BlockHeader::decode(&bytes, segment.salt)
                    && header.run == segment.run
                    && header.number >= self.number
                {
                    if header.number > self.number && header.durable >= self.number {
                        return Err(self.damage("it cannot be read, and a later block says that it was confirmed"));
                    }
                    torn.get_or_insert((FileName::Segment(segment.id).to_string(), offset));
                }
                offset += UNIT;
            }
        }
        for at in first..self.segments.len() {
            if self.number < self.limit(at) && self.mend(at, if at == first { from } else { UNIT })? {
                return Ok(true);
            }
        }
        // Blocks that nothing proves: whole with all their bodies, or the tail begins here.
        while let Some(block) = self.unproved.pop_front() {
            if self.whole(&block)? {
                self.take(&block)?;
                continue;
            }
            self.number = block.number;
            self.chain = block.previous;
            torn = Some((FileName::Segment(self.segments[block.segment].header.id).to_string(), block.offset));
            self.unproved.clear();
        }
        self.torn = torn;
        Ok(false)
    }

    fn whole(&mut self, block: &Unproved) -> Result<bool, JournalError> {
        let id = self.segments[block.segment].header.id;
        let content = content_of(id, block);
        let bodies = Fold::bodies_of(&block.meta, content).map_err(|_| unknown_record(id, block.number))?;
        let bytes = self.bytes(block.segment, block.offset, block.header.length)?;
        Ok(bodies.iter().all(|(place, length, sum)| {
            let from = (u64::from(place.offset) - block.offset) as usize;
            let body = bytes.get(from..from + *length as usize);
            body.is_some_and(|body| crc(0, body) == *sum || mend::flipped_bit(0, body, *sum).is_some())
        }))
    }
}

fn content_of(segment: u32, block: &Unproved) -> Place {
    content_at(segment, block.offset, &block.header)
}

fn content_at(segment: u32, offset: u64, header: &BlockHeader) -> Place {
    let offset = offset + HEADER as u64 + u64::from(header.meta);
    Place { segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
}

fn unknown_record(segment: u32, block: u64) -> JournalError {
    JournalError::OtherFormat {
        file: FileName::Segment(segment).to_string(),
        found: format!("a record of another version in block {block}"),
        known: KNOWN.into(),
    }
}

/// Moves large messages that no entry refers to out of the way; they are kept for people to look at.
fn set_aside_orphans(disk: &mut Disk<'_>, fold: &Fold) -> Result<u64, JournalError> {
    let wanted = fold.large();
    let mut orphans = 0;
    for (name, _) in disk.list(Dir::Large)? {
        if let FileName::Large(id) = name
            && !wanted.contains(&LargeId(id))
        {
            disk.run(DiskOp::Rename { from: name, to: FileName::Attic(id) })?;
            orphans += 1;
        }
    }
    if orphans > 0 {
        disk.run(DiskOp::SyncDir { dir: Dir::Attic })?;
        disk.run(DiskOp::SyncDir { dir: Dir::Large })?;
    }
    Ok(orphans)
}
