//! A checkpoint's header.

use crate::block::UNIT;
use crate::bytes_io::{Reader, crc, pad_to, put_u32, put_u64};
use crate::index::Place;
use crate::segment::{READS, VERSION};

const MAGIC: &[u8; 8] = b"phCHECKP";
/// Bytes of the header that are summed.
pub(super) const SUMMED: usize = 136;

/// A flag of the header: the covered block ends a run in order.
const STOPPED: u64 = 1;

/// Where the log is when a checkpoint begins: all that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) store: [u8; 16],
    /// The start that is running.
    pub(crate) run: u32,
    /// The last block handed out: blocks up to it are covered, and a start reads from the next one on. And its chain.
    pub(crate) block: u64,
    pub(crate) chain: u32,
    /// Where the next block is, or in the segment after.
    pub(crate) place: Place,
    pub(crate) broker_ms: u64,
    pub(crate) wall_ms: i64,
    /// That block ends the run in order.
    pub(crate) stopped: bool,
}

/// A checkpoint's header: in the first 4 KiB of its file, within one sector; written when all else is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) moment: Moment,
    /// + 1 each checkpoint of a store.
    pub(crate) number: u64,
    pub(crate) salt: u32,
    /// The last block that a slice may know of: known to be durable.
    pub(crate) seen: u64,
    pub(crate) next_queue: u64,
    /// Bytes of all sections.
    pub(crate) length: u64,
    /// The last section's sum, continued from all before it.
    pub(crate) sum: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(UNIT as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, 0);
        out.extend_from_slice(&self.moment.store);
        put_u64(&mut out, self.number);
        put_u32(&mut out, self.salt);
        put_u32(&mut out, self.moment.run);
        put_u64(&mut out, self.moment.block);
        put_u64(&mut out, self.seen);
        put_u32(&mut out, self.moment.place.segment);
        put_u32(&mut out, self.moment.place.offset);
        put_u64(&mut out, self.moment.broker_ms);
        put_u64(&mut out, self.moment.wall_ms as u64);
        put_u64(&mut out, self.next_queue);
        put_u64(&mut out, self.length);
        put_u32(&mut out, self.moment.chain);
        put_u32(&mut out, self.sum);
        put_u64(&mut out, if self.moment.stopped { STOPPED } else { 0 });
        put_u64(&mut out, 0);
        put_u64(&mut out, 0);
        debug_assert_eq!(out.len(), SUMMED);
        let sum = crc(0, &out);
        put_u32(&mut out, sum);
        pad_to(&mut out, UNIT as usize);
        out
    }

    /// Reads a header; `None` when it is not whole. A version of its own is told.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Header, u32>> {
        let mut r = Reader::new(bytes);
        let (magic, version, _) = (r.take(8).ok()?, r.u32().ok()?, r.u32().ok()?);
        let store = r.take(16).ok()?.try_into().ok()?;
        let (number, salt, run) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
        let (block, seen) = (r.u64().ok()?, r.u64().ok()?);
        let place = Place { segment: r.u32().ok()?, offset: r.u32().ok()? };
        let (broker_ms, wall_ms) = (r.u64().ok()?, r.u64().ok()? as i64);
        let (next_queue, length) = (r.u64().ok()?, r.u64().ok()?);
        let (chain, sum) = (r.u32().ok()?, r.u32().ok()?);
        let stopped = r.u64().ok()? & STOPPED != 0;
        r.take(16).ok()?;
        if magic != MAGIC || r.u32().ok()? != crc(0, bytes.get(..SUMMED)?) {
            return None;
        }
        if !READS.contains(&version) {
            return Some(Err(version));
        }
        let moment = Moment { store, run, block, chain, place, broker_ms, wall_ms, stopped };
        Some(Ok(Header { moment, number, salt, seen, next_queue, length, sum }))
    }
}
