//! A segment file's header, and the STORE file (`docs/formats/journal.md`, "Files").

use crate::block::UNIT;
use crate::bytes_io::{Reader, crc, pad_to, put_u32, put_u64};

/// The version of all formats in a data directory: what is written.
pub(crate) const VERSION: u32 = 5;
/// What can be read.
pub(crate) const READS: core::ops::RangeInclusive<u32> = 1..=VERSION;
/// … in words.
pub(crate) const KNOWN: &str = "formats 1 to 4";

const SEGMENT_MAGIC: &[u8; 8] = b"phSEGMNT";
const STORE_MAGIC: &[u8; 8] = b"phSTORE\n";

/// Bytes of a header that are summed, its CRC behind them.
const SUMMED: usize = 72;

/// A segment's header: the first 4 KiB; what is used fits in one sector, which a disk writes whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) store: [u8; 16],
    pub(crate) id: u32,
    pub(crate) salt: u32,
    /// The start of the store that made it.
    pub(crate) run: u32,
    /// Made by a start: older segments hold nothing from block `first` on.
    pub(crate) cut: bool,
    /// No block below this one is in the segment; for a cut exactly the first.
    pub(crate) first: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// Lowest block that a checkpoint must cover once segments before this one are gone; 1 = none is gone.
    pub(crate) covers: u64,
}

/// What a segment's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// Never used.
    Blank,
    /// Whole.
    Valid(SegmentHeader),
    /// Another version of the format.
    Version(u32),
    /// Neither.
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(UNIT as usize);
        out.extend_from_slice(SEGMENT_MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, u32::from(self.cut));
        out.extend_from_slice(&self.store);
        put_u32(&mut out, self.id);
        put_u32(&mut out, self.salt);
        put_u32(&mut out, self.run);
        put_u32(&mut out, UNIT as u32);
        put_u64(&mut out, self.first);
        put_u64(&mut out, self.size);
        put_u64(&mut out, self.covers);
        debug_assert_eq!(out.len(), SUMMED);
        let sum = crc(0, &out);
        put_u32(&mut out, sum);
        pad_to(&mut out, UNIT as usize);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> HeaderState {
        let bytes = &bytes[..bytes.len().min(SUMMED + 4)];
        if bytes.iter().all(|b| *b == 0) {
            return HeaderState::Blank;
        }
        SegmentHeader::parse(bytes).unwrap_or(HeaderState::Damaged)
    }

    fn parse(bytes: &[u8]) -> Option<HeaderState> {
        let mut r = Reader::new(bytes);
        let magic = r.take(8).ok()?;
        let version = r.u32().ok()?;
        let flags = r.u32().ok()?;
        let store: [u8; 16] = r.take(16).ok()?.try_into().ok()?;
        let (id, salt, run, unit) = (r.u32().ok()?, r.u32().ok()?, r.u32().ok()?, r.u32().ok()?);
        let (first, size, covers) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
        let sum = r.u32().ok()?;
        if magic != SEGMENT_MAGIC || sum != crc(0, &bytes[..SUMMED]) {
            return None;
        }
        if !READS.contains(&version) || u64::from(unit) != UNIT {
            return Some(HeaderState::Version(version));
        }
        Some(HeaderState::Valid(SegmentHeader { store, id, salt, run, cut: flags & 1 != 0, first, size, covers }))
    }
}

/// The STORE file's content.
pub(crate) fn encode_store(uuid: [u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    out.extend_from_slice(STORE_MAGIC);
    put_u32(&mut out, VERSION);
    out.extend_from_slice(&uuid);
    let sum = crc(0, &out);
    put_u32(&mut out, sum);
    out
}

/// Reads the STORE file: the store's identity, or what is wrong in words.
pub(crate) fn decode_store(bytes: &[u8]) -> Result<[u8; 16], String> {
    let mut r = Reader::new(bytes);
    let magic = r.take(8);
    if magic != Ok(&STORE_MAGIC[..]) {
        return Err("no Packhorse store".into());
    }
    let version = r.u32().map_err(|_| "a cut-off header")?;
    if !READS.contains(&version) {
        return Err(format!("format {version}"));
    }
    let uuid = r.take(16).map_err(|_| "a cut-off header")?;
    let sum = r.u32().map_err(|_| "a cut-off header")?;
    if sum != crc(0, &bytes[..28]) {
        return Err("a header whose checksum fails".into());
    }
    Ok(uuid.try_into().expect("16 bytes were taken"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SegmentHeader {
        SegmentHeader { store: [7; 16], id: 9, salt: 1, run: 2, cut: true, first: 3, size: 4, covers: 1 }
    }

    #[test]
    fn a_segment_header_is_read_back_and_damage_is_told_from_blank() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(SegmentHeader::decode(&bytes), HeaderState::Valid(sample()));
        assert_eq!(SegmentHeader::decode(&[0; 4096]), HeaderState::Blank);
        for bit in 0..(SUMMED + 4) * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bad), HeaderState::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        let sum = crc(0, &bytes[..SUMMED]);
        bytes[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), HeaderState::Version(9));
        let mut store = encode_store([1; 16]);
        assert_eq!(decode_store(&store), Ok([1; 16]));
        store[8] = 9;
        assert_eq!(decode_store(&store), Err("format 9".into()));
        assert!(decode_store(b"hello").is_err());
        assert!(decode_store(&encode_store([1; 16])[..20]).is_err());
    }
}
