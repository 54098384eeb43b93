//! Large messages: files of their own, written while they arrive (`docs/formats/journal.md`, "Large messages").
//!
//! A file is a header and units of 64 KiB, each with its length and sum, so that any part can be read and checked alone.
//! Steps of one file are handed out one at a time and so take effect in order. Must not know: entries, references.

use crate::bytes_io::{crc, put_u32, put_u64};
use crate::io::{Dir, DiskOp, FileName, IoError, IoErrorKind, IoResult};
use crate::segment::VERSION;
use bytes::{Buf, Bytes};
use packhorse_model::LargeId;
use packhorse_store::{Event, LargeOp};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a file's header.
const HEADER: u64 = 64;
/// Content bytes of a unit.
const UNIT: usize = 64 * 1024;
/// Bytes in front of a unit's content: length and sum.
const UNIT_HEADER: u64 = 8;
/// Most units of one write.
const WRITE_UNITS: usize = 16;

/// A file system that is full is asked again after this.
const RETRY_US: u64 = 1_000_000;

const MAGIC: &[u8; 8] = b"phLARGE\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be created.
    New,
    /// Takes bytes.
    Open,
    /// All is written and synced, the folder is not.
    Synced,
}

#[derive(Debug)]
struct File {
    shard: u16,
    stage: Stage,
    /// The step under way; kept to be done again if the file system is full.
    running: Option<DiskOp>,
    /// A write that found the file system full, and when to try it again.
    again: Option<(DiskOp, u64)>,
    /// The unit that is not full yet, from its start: written, but to be written again.
    tail: Vec<Bytes>,
    tail_bytes: usize,
    /// Not written.
    waiting: VecDeque<Bytes>,
    /// Number of the tail's unit.
    unit: u64,
    /// Content bytes handed to the disk.
    written: u64,
    ended: bool,
    aborted: bool,
}

/// All files that are being written.
#[derive(Debug, Default)]
pub(crate) struct LargeFiles {
    files: BTreeMap<LargeId, File>,
    /// Files with something to do, in the order in which that came up.
    ready: VecDeque<LargeId>,
    /// Files that wait for space.
    full: usize,
}

impl LargeFiles {
    /// Takes in a step.
    ///
    /// # Panics
    /// On a step of a file that was not begun, or begun twice: what follows would be lost.
    pub(crate) fn step(&mut self, shard: u16, op: LargeOp) {
        let id = match op {
            LargeOp::Begin { id } => {
                let before = self.files.insert(id, File::new(shard, Stage::New));
                assert!(before.is_none(), "large message {} was begun twice", id.0);
                id
            }
            LargeOp::Chunk { id, bytes } => {
                self.file(id).waiting.push_back(bytes);
                id
            }
            LargeOp::End { id } => {
                self.file(id).ended = true;
                id
            }
            LargeOp::Abort { id } => {
                // One that is whole already is no longer known here.
                let file = self.files.entry(id).or_insert_with(|| File::new(shard, Stage::Synced));
                file.aborted = true;
                file.waiting.clear();
                id
            }
        };
        self.ready.push_back(id);
    }

    fn file(&mut self, id: LargeId) -> &mut File {
        self.files.get_mut(&id).unwrap_or_else(|| panic!("large message {} was not begun", id.0))
    }

    /// Whether this one is not safe yet, or given up.
    pub(crate) fn under_way(&self, id: LargeId) -> bool {
        self.files.contains_key(&id)
    }

    /// Whether no file has anything to do.
    pub(crate) fn quiet(&self) -> bool {
        self.ready.is_empty() && self.files.values().all(|f| f.running.is_none() && f.again.is_none())
    }

    /// What the disk may do now.
    pub(crate) fn next_io(&mut self, store: &[u8; 16], now_us: u64) -> Option<(LargeId, DiskOp)> {
        if self.full > 0 {
            let due = |f: &File| f.again.as_ref().is_some_and(|(_, at)| *at <= now_us);
            self.ready.extend(self.files.iter().filter(|(_, f)| due(f)).map(|(id, _)| *id));
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(file) = self.files.get_mut(&id) else { continue };
            if file.running.is_some() {
                continue;
            }
            match file.again.take() {
                Some((op, at)) if !file.aborted && at > now_us => {
                    file.again = Some((op, at));
                    continue;
                }
                Some((op, _)) if !file.aborted => {
                    self.full -= 1;
                    file.running = Some(op.clone());
                    return Some((id, op));
                }
                Some(_) => self.full -= 1,
                None => {}
            }
            let name = FileName::Large(id.0);
            let op = match file.stage {
                _ if file.aborted && file.stage == Stage::New => {
                    self.files.remove(&id);
                    continue;
                }
                _ if file.aborted => DiskOp::Unlink { name },
                Stage::New => DiskOp::Create { name, length: 0 },
                Stage::Open if !file.waiting.is_empty() => file.write(id, store),
                Stage::Open if file.ended && file.written == 0 => {
                    DiskOp::Write { name, offset: 0, pieces: vec![header(id, store)], sync: true }
                }
                Stage::Open if file.ended => DiskOp::Sync { name },
                Stage::Open => continue,
                Stage::Synced => DiskOp::SyncDir { dir: Dir::Large },
            };
            file.running = Some(op.clone());
            return Some((id, op));
        }
        None
    }

    /// Whether a file waits for space.
    pub(crate) fn full(&self) -> bool {
        self.full > 0
    }

    /// When a file that waits for space is tried again.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.full == 0 {
            return None;
        }
        self.files.values().filter_map(|f| f.again.as_ref().map(|(_, at)| *at)).min()
    }

    /// A step of a file has ended. `Err`: it failed.
    pub(crate) fn on_io(
        &mut self,
        id: LargeId,
        op: Done,
        result: IoResult,
        now_us: u64,
    ) -> Result<Option<(u16, Event)>, IoError> {
        let file = self.files.get_mut(&id).expect("a file with a running step is kept");
        let running = file.running.take().expect("its step was running");
        match result {
            // Its producer waits, which does no harm to anyone else.
            Err(error) if error.kind == IoErrorKind::NoSpace && !file.aborted => {
                file.again = Some((running, now_us + RETRY_US));
                self.full += 1;
                return Ok(None);
            }
            Err(error) if error.kind == IoErrorKind::NoSpace => {}
            other => drop(other?),
        }
        let shard = file.shard;
        if file.aborted {
            if op == Done::Unlink {
                self.files.remove(&id);
            } else {
                file.stage = Stage::Open;
                self.ready.push_back(id);
            }
            return Ok(None);
        }
        let event = match op {
            Done::Create => {
                file.stage = Stage::Open;
                None
            }
            Done::Write { sync: false } => Some(Event::LargeWritten { id, written: file.written }),
            Done::Write { sync: true } | Done::Sync => {
                file.stage = Stage::Synced;
                None
            }
            Done::SyncDir => {
                let length = file.written;
                self.files.remove(&id);
                return Ok(Some((shard, Event::LargeSynced { id, length })));
            }
            Done::Unlink => unreachable!("only an aborted file is removed"),
        };
        self.ready.push_back(id);
        Ok(event.map(|event| (shard, event)))
    }
}

/// Which step it was that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Create,
    Write { sync: bool },
    Sync,
    SyncDir,
    Unlink,
}

impl Done {
    pub(crate) fn of(op: &DiskOp) -> Done {
        match op {
            DiskOp::Create { .. } => Done::Create,
            DiskOp::Write { sync, .. } => Done::Write { sync: *sync },
            DiskOp::Sync { .. } => Done::Sync,
            DiskOp::SyncDir { .. } => Done::SyncDir,
            DiskOp::Unlink { .. } => Done::Unlink,
            DiskOp::CreateDir { .. } | DiskOp::Rename { .. } | DiskOp::Uncache { .. } | DiskOp::Read { .. } => {
                unreachable!("no step of a large message")
            }
        }
    }
}

impl File {
    fn new(shard: u16, stage: Stage) -> File {
        File {
            shard,
            stage,
            running: None,
            again: None,
            tail: Vec::new(),
            tail_bytes: 0,
            waiting: VecDeque::new(),
            unit: 0,
            written: 0,
            ended: false,
            aborted: false,
        }
    }

    /// The write of what waits: the tail again, longer, and full units behind it.
    fn write(&mut self, id: LargeId, store: &[u8; 16]) -> DiskOp {
        let mut pieces = Vec::new();
        let first = self.written == 0;
        if first {
            pieces.push(header(id, store));
        }
        let offset = if first { 0 } else { HEADER + self.unit * (UNIT as u64 + UNIT_HEADER) };
        for _ in 0..WRITE_UNITS {
            while self.tail_bytes < UNIT
                && let Some(mut bytes) = self.waiting.pop_front()
            {
                let part = bytes.split_to(bytes.len().min(UNIT - self.tail_bytes));
                if !bytes.is_empty() {
                    self.waiting.push_front(bytes);
                }
                self.tail_bytes += part.len();
                self.written += part.len() as u64;
                if !part.is_empty() {
                    self.tail.push(part);
                }
            }
            if self.tail_bytes == 0 {
                break;
            }
            let sum = self.tail.iter().fold(unit_seed(id, self.unit), |sum, part| crc(sum, part));
            let mut head = Vec::with_capacity(UNIT_HEADER as usize);
            put_u32(&mut head, self.tail_bytes as u32);
            put_u32(&mut head, sum);
            pieces.push(Bytes::from(head));
            pieces.extend(self.tail.iter().cloned());
            if self.tail_bytes < UNIT {
                break;
            }
            self.tail.clear();
            self.tail_bytes = 0;
            self.unit += 1;
        }
        DiskOp::Write { name: FileName::Large(id.0), offset, pieces, sync: false }
    }
}

fn header(id: LargeId, store: &[u8; 16]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER as usize);
    out.extend_from_slice(MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, UNIT as u32);
    out.extend_from_slice(store);
    put_u64(&mut out, id.0);
    let sum = crc(0, &out);
    put_u32(&mut out, sum);
    out.resize(HEADER as usize, 0);
    Bytes::from(out)
}

/// A unit at another place, or of another message, never passes.
fn unit_seed(id: LargeId, unit: u64) -> u32 {
    crc(crc(0, &id.0.to_le_bytes()), &unit.to_le_bytes())
}

/// The read that covers content bytes `offset..offset + length`.
pub(crate) fn read_op(id: LargeId, offset: u64, length: u32) -> DiskOp {
    let first = offset / UNIT as u64;
    let last = (offset + u64::from(length).max(1) - 1) / UNIT as u64;
    let span = UNIT as u64 + UNIT_HEADER;
    DiskOp::Read {
        name: FileName::Large(id.0),
        offset: HEADER + first * span,
        length: u32::try_from((last - first + 1) * span).expect("a part of a large message is less than 4 GiB"),
    }
}

/// Checks what [`read_op`] brought and takes the content out; `None`: damaged.
pub(crate) fn extract(id: LargeId, offset: u64, length: u32, mut bytes: Bytes) -> Option<Bytes> {
    let mut unit = offset / UNIT as u64;
    let mut skip = (offset % UNIT as u64) as usize;
    let mut left = length as usize;
    let mut out = Vec::with_capacity(left);
    while left > 0 && bytes.len() >= UNIT_HEADER as usize {
        let (n, sum) = (bytes.get_u32_le() as usize, bytes.get_u32_le());
        if n > UNIT || n > bytes.len() {
            return None;
        }
        let content = bytes.split_to(n);
        if crc(unit_seed(id, unit), &content) != sum {
            return None;
        }
        let part = content.get(skip..).unwrap_or_default();
        let part = &part[..part.len().min(left)];
        out.extend_from_slice(part);
        left -= part.len();
        skip = 0;
        unit += 1;
        if n < UNIT {
            break;
        }
    }
    Some(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::IoDone;

    const STORE: [u8; 16] = [1; 16];

    /// Runs all steps there are; the file's bytes, and what was told.
    fn run(files: &mut LargeFiles, disk: &mut Vec<u8>) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((id, op)) = files.next_io(&STORE, 0) {
            if let DiskOp::Write { offset, pieces, .. } = &op {
                let bytes = pieces.concat();
                let end = *offset as usize + bytes.len();
                disk.resize(disk.len().max(end), 0);
                disk[*offset as usize..end].copy_from_slice(&bytes);
            }
            events.extend(files.on_io(id, Done::of(&op), Ok(IoDone::Done), 0).unwrap().map(|(_, event)| event));
        }
        events
    }

    fn read(id: LargeId, disk: &[u8], offset: u64, length: u32) -> Option<Bytes> {
        let DiskOp::Read { offset: from, length: n, .. } = read_op(id, offset, length) else { panic!("it is a read") };
        let from = disk.len().min(from as usize);
        let to = disk.len().min(from + n as usize);
        extract(id, offset, length, Bytes::copy_from_slice(&disk[from..to]))
    }

    fn file(chunks: &[usize]) -> (Vec<u8>, Vec<u8>, Vec<Event>) {
        let id = LargeId(7);
        let (mut files, mut disk, mut events, mut content) =
            (LargeFiles::default(), Vec::new(), Vec::new(), Vec::new());
        files.step(0, LargeOp::Begin { id });
        for (n, length) in chunks.iter().enumerate() {
            let chunk: Vec<u8> = (0..*length).map(|i| (i / 5 + n) as u8).collect();
            content.extend_from_slice(&chunk);
            files.step(0, LargeOp::Chunk { id, bytes: Bytes::from(chunk) });
            if n % 3 != 1 {
                events.extend(run(&mut files, &mut disk));
            }
        }
        files.step(0, LargeOp::End { id });
        events.extend(run(&mut files, &mut disk));
        assert!(files.quiet() && files.files.is_empty());
        (content, disk, events)
    }

    #[test]
    fn any_chunks_make_the_same_file_and_any_part_reads_back() {
        for chunks in
            [&[][..], &[1], &[UNIT], &[UNIT - 1, 1, 1], &[10, 0, 100_000, 5, 200_000, 1], &[3 * UNIT, 1_200_000]]
        {
            let (content, disk, events) = file(chunks);
            let id = LargeId(7);
            let length = content.len() as u64;
            assert_eq!(events.last(), Some(&Event::LargeSynced { id, length }));
            let units = content.len().div_ceil(UNIT);
            assert_eq!(disk.len(), HEADER as usize + content.len() + units * UNIT_HEADER as usize);
            for (offset, n) in [(0, 1), (0, 70_000), (UNIT - 1, 2), (UNIT, UNIT), (90_000, 1_000_000), (0, 2_000_000)] {
                let expected = content.get(offset..content.len().min(offset + n)).unwrap_or_default();
                let found = read(id, &disk, offset as u64, n as u32).unwrap();
                assert!(found == expected, "{chunks:?} {offset} {n}: {} bytes", found.len());
            }
        }
    }

    #[test]
    fn each_chunk_is_told_when_it_is_written() {
        let id = LargeId(7);
        let (mut files, mut disk) = (LargeFiles::default(), Vec::new());
        files.step(3, LargeOp::Begin { id });
        for written in [10, 20, 30] {
            files.step(3, LargeOp::Chunk { id, bytes: Bytes::from_static(b"0123456789") });
            assert_eq!(run(&mut files, &mut disk), [Event::LargeWritten { id, written }]);
        }
    }

    #[test]
    fn damage_and_strangers_are_told() {
        let (_, disk, _) = file(&[200_000]);
        for at in [HEADER as usize, HEADER as usize + 5, HEADER as usize + 100, HEADER as usize + UNIT + 7] {
            let mut bad = disk.clone();
            bad[at] ^= 1;
            assert_eq!(read(LargeId(7), &bad, 0, 65_536), None, "byte {at}");
            assert!(read(LargeId(7), &bad, 2 * UNIT as u64, 10).is_some(), "other units are whole");
        }
        assert_eq!(read(LargeId(8), &disk, 0, 10), None, "a unit of another message");
        let mut swapped = disk.clone();
        let span = UNIT + UNIT_HEADER as usize;
        swapped.copy_within(HEADER as usize + span..HEADER as usize + 2 * span, HEADER as usize);
        assert_eq!(read(LargeId(7), &swapped, 0, 10), None, "a unit at another place");
        assert_eq!(read(LargeId(7), &disk[..1000], 0, 10), None, "a file cut off");
    }
}
