//! Loads: bodies read back for queues. Neighbours are read together, each body is checked, one buffer answers.
//!
//! Must not know: what is live (the index says), when a place is safe to read (the log says).

use crate::bytes_io::crc;
use crate::index::{Entry, Place};
use crate::io::{DiskOp, FileName};
use bytes::Bytes;
use packhorse_store::{Event, Load, Loaded, LoadedBody};

/// Bodies at most this far apart are read in one go: reading on is cheaper than another operation.
const GAP_BYTES: u64 = 256 * 1024;
/// Most bytes of one read that holds several bodies.
const READ_BYTES: u64 = 4 << 20;

/// So much between the bodies is kept in memory with them; more is worth a copy.
const GAPS_KEPT_BYTES: u64 = 64 * 1024;

/// A load under way.
#[derive(Debug)]
pub(crate) struct LoadJob {
    pub(crate) shard: u16,
    load: Load,
    entries: Vec<Entry>,
    /// First place, length, bytes that came.
    reads: Vec<(Place, u32, Option<Bytes>)>,
    left: usize,
}

impl LoadJob {
    /// Plans the reads of `entries`; the operations are to be run, each reported by its position.
    pub(crate) fn new(shard: u16, load: Load, entries: Vec<Entry>) -> (LoadJob, Vec<DiskOp>) {
        let mut reads: Vec<(Place, u32, Option<Bytes>)> = Vec::new();
        for entry in entries.iter().filter(|e| e.length > 0) {
            let (from, to) = span(entry);
            if let Some((place, length, _)) = reads.last_mut() {
                let end = u64::from(place.offset) + u64::from(*length);
                let total = to.saturating_sub(u64::from(place.offset));
                if place.segment == entry.place.segment && from >= end && from - end <= GAP_BYTES && total <= READ_BYTES
                {
                    *length = total as u32;
                    continue;
                }
            }
            reads.push((entry.place, entry.length, None));
        }
        let left = reads.len();
        let job = LoadJob { shard, load, entries, reads, left };
        let ops = (0..left).map(|read| job.op(read)).collect();
        (job, ops)
    }

    /// The operation of a read, by its position.
    pub(crate) fn op(&self, read: usize) -> DiskOp {
        let (place, length, _) = &self.reads[read];
        let name = FileName::Segment(place.segment);
        DiskOp::Read { name, offset: u64::from(place.offset), length: *length }
    }

    /// A read has ended; `None`: it failed. Answers whether all have.
    pub(crate) fn on_read(&mut self, read: usize, bytes: Option<Bytes>) -> bool {
        self.reads[read].2 = bytes;
        self.left -= 1;
        self.left == 0
    }

    /// Whether it reads from this segment.
    pub(crate) fn reads_from(&self, segment: u32) -> bool {
        self.reads.iter().any(|(place, ..)| place.segment == segment)
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn done(&self) -> bool {
        self.left == 0
    }

    /// The answer: one read as it is, unless much lies between the bodies in it; otherwise copies of the bodies alone.
    pub(crate) fn finish(self) -> Event {
        let wanted: u64 = self.entries.iter().map(|e| u64::from(e.length)).sum();
        let as_it_is = match &self.reads[..] {
            [(_, length, _)] => u64::from(*length) <= wanted + GAPS_KEPT_BYTES,
            _ => false,
        };
        let mut copies = Vec::new();
        if !as_it_is {
            copies.reserve_exact(wanted as usize);
        }
        let mut bodies = Vec::with_capacity(self.entries.len());
        let mut reads = self.reads.iter().peekable();
        for entry in &self.entries {
            if entry.length == 0 {
                bodies.push(LoadedBody { sequence: entry.sequence, range: Some((0, 0)) });
                continue;
            }
            // Entries lie in the reads in the order in which they were planned.
            while reads.next_if(|(place, length, _)| !within(entry, *place, *length)).is_some() {}
            let found = reads.peek().and_then(|(place, _, bytes)| {
                let at = (entry.place.offset - place.offset) as usize;
                let body = bytes.as_ref()?.get(at..at + entry.length as usize)?;
                (crc(0, body) == entry.crc).then_some((at, body))
            });
            let range = found.map(|(at, body)| {
                if as_it_is {
                    return (at as u32, entry.length);
                }
                let at = copies.len() as u32;
                copies.extend_from_slice(body);
                (at, entry.length)
            });
            bodies.push(LoadedBody { sequence: entry.sequence, range });
        }
        let mut reads = self.reads.into_iter().map(|(_, _, bytes)| bytes.unwrap_or_default());
        let one = reads.next().filter(|_| as_it_is);
        let buffer = one.unwrap_or_else(|| Bytes::from(copies));
        Event::Loaded(Box::new(Loaded { load: self.load, buffer, bodies }))
    }
}

fn span(entry: &Entry) -> (u64, u64) {
    let from = u64::from(entry.place.offset);
    (from, from + u64::from(entry.length))
}

fn within(entry: &Entry, place: Place, length: u32) -> bool {
    let (from, to) = span(entry);
    entry.place.segment == place.segment
        && from >= u64::from(place.offset)
        && to <= u64::from(place.offset) + u64::from(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_model::QueueId;

    fn entry(sequence: u64, segment: u32, offset: u32, body: &[u8]) -> Entry {
        Entry { sequence, place: Place { segment, offset }, length: body.len() as u32, crc: crc(0, body) }
    }

    fn load() -> Load {
        Load { queue: QueueId(1), level: 4, from: 0, count: 100, bytes: 1 << 20 }
    }

    fn answer(job: LoadJob) -> (Vec<Option<Vec<u8>>>, usize) {
        let Event::Loaded(loaded) = job.finish() else { panic!("a load is answered") };
        let body = |range: Option<(u32, u32)>| {
            let (at, n) = range?;
            Some(loaded.buffer[at as usize..(at + n) as usize].to_vec())
        };
        (loaded.bodies.iter().map(|b| body(b.range)).collect(), loaded.buffer.len())
    }

    #[test]
    fn neighbours_are_read_together_and_far_ones_apart() {
        let far = 100 + GAP_BYTES as u32 + 3;
        let entries = vec![
            entry(1, 1, 100, b"one"),
            entry(2, 1, 200, b"two"),
            entry(3, 1, 0, b""),
            entry(4, 1, 203 + far, b"four"),
            entry(5, 2, 300, b"five"),
            entry(6, 2, 50, b"six"),
        ];
        let (mut job, ops) = LoadJob::new(0, load(), entries);
        let reads: Vec<(String, u64, u32)> = ops
            .iter()
            .map(|op| match op {
                DiskOp::Read { name, offset, length } => (name.to_string(), *offset, *length),
                other => panic!("a load only reads: {other:?}"),
            })
            .collect();
        let segment = |n: u32| FileName::Segment(n).to_string();
        let expected = [
            (segment(1), 100, 103),
            (segment(1), u64::from(203 + far), 4),
            (segment(2), 300, 4),
            // Backwards is no neighbour: a homecoming entry may lie anywhere.
            (segment(2), 50, 3),
        ];
        assert_eq!(reads, expected);
        let mut together = vec![0; 103];
        together[..3].copy_from_slice(b"one");
        together[100..].copy_from_slice(b"two");
        // Answers may come in any order; the third read fails.
        assert!(!job.on_read(3, Some(Bytes::from_static(b"six"))));
        assert!(!job.on_read(2, None));
        assert!(!job.on_read(0, Some(Bytes::from(together))));
        assert!(job.on_read(1, Some(Bytes::from_static(b"four"))));
        let (bodies, bytes) = answer(job);
        let expected: Vec<Option<Vec<u8>>> =
            [Some("one"), Some("two"), Some(""), Some("four"), None, Some("six")].map(|b| b.map(|b| b.into())).into();
        assert_eq!(bodies, expected);
        assert_eq!(bytes, 3 + 3 + 4 + 3, "of several reads the bodies are copied, and nothing else");
    }

    #[test]
    fn much_between_bodies_does_not_stay_in_memory() {
        let far = GAPS_KEPT_BYTES as u32 + 100;
        let entries = vec![
            entry(1, 1, 0, b"one"),
            entry(2, 1, far, b""),
            entry(3, 1, far, b"three"),
            entry(4, 1, far + 5, b"evil"),
            entry(5, 3, 7, b"five"),
            entry(6, 4, 7, b"unread"),
        ];
        let (mut job, ops) = LoadJob::new(0, load(), entries);
        assert_eq!(ops.len(), 3);
        let mut read = vec![9; far as usize + 9];
        read[..3].copy_from_slice(b"one");
        read[far as usize..].copy_from_slice(b"threeEvil");
        job.on_read(0, Some(Bytes::from(read)));
        job.on_read(1, Some(Bytes::from_static(b"five")));
        assert!(job.on_read(2, None));
        let (bodies, bytes) = answer(job);
        let expected: Vec<Option<Vec<u8>>> =
            [Some("one"), Some(""), Some("three"), None, Some("five"), None].map(|b| b.map(|b| b.into())).into();
        assert_eq!((bodies, bytes), (expected, 3 + 5 + 4));
    }

    #[test]
    fn one_read_is_handed_on_as_it_is_unless_much_lies_between_the_bodies() {
        for (gap, as_it_is) in [(0, true), (GAPS_KEPT_BYTES as u32, true), (GAPS_KEPT_BYTES as u32 + 1, false)] {
            let entries = vec![entry(1, 1, 8, b"one"), entry(2, 1, 11, b""), entry(3, 1, 11 + gap, b"two")];
            let (mut job, ops) = LoadJob::new(0, load(), entries);
            assert_eq!(ops.len(), 1);
            let read = Bytes::from([&b"one"[..], &vec![9; gap as usize], b"two"].concat());
            assert!(job.on_read(0, Some(read.clone())));
            let Event::Loaded(loaded) = job.finish() else { panic!("a load is answered") };
            let body = |n: usize| {
                let (at, length) = loaded.bodies[n].range.unwrap();
                &loaded.buffer[at as usize..(at + length) as usize]
            };
            assert_eq!((body(0), body(1), body(2)), (&b"one"[..], &b""[..], &b"two"[..]), "{gap}");
            // Without a copy: it is the same memory.
            assert_eq!(loaded.buffer.as_ptr() == read.as_ptr(), as_it_is, "{gap}");
            assert_eq!(loaded.buffer.len(), if as_it_is { read.len() } else { 6 }, "{gap}");
        }
    }

    #[test]
    fn a_body_that_is_not_what_was_written_is_told_damaged() {
        let entries = vec![entry(1, 1, 0, b"good"), entry(2, 1, 4, b"evil"), entry(3, 1, 8, b"cut off")];
        let (mut job, ops) = LoadJob::new(0, load(), entries);
        assert_eq!(ops.len(), 1);
        assert!(job.on_read(0, Some(Bytes::from_static(b"goodEvilcut"))));
        assert_eq!(answer(job).0, [Some(b"good".to_vec()), None, None]);
    }

    #[test]
    fn nothing_to_read_is_answered_at_once() {
        for entries in [vec![], vec![entry(1, 1, 0, b"")]] {
            let n = entries.len();
            let (job, ops) = LoadJob::new(0, load(), entries);
            assert!(ops.is_empty() && job.done());
            assert_eq!(answer(job), (vec![Some(Vec::new()); n], 0));
        }
    }
}
