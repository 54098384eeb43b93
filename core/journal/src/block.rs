//! A block: what one flush writes. Header, metadata of all batches, then their content as it is
//! (`docs/formats/journal.md`, "Blocks").

use crate::bytes_io::{Reader, crc};
use bytes::Bytes;

/// Blocks and segments are laid out in units of this: a confirmed block is never rewritten.
pub(crate) const UNIT: u64 = 4096;

/// Bytes of a block's header.
pub(crate) const HEADER: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"phBK");

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Number of the start of the store that wrote it.
    pub(crate) run: u32,
    /// + 1 each block, store-wide, from 1.
    pub(crate) number: u64,
    /// Highest block known durable when this one was issued.
    pub(crate) durable: u64,
    /// Broker time, ms.
    pub(crate) broker_ms: u64,
    /// Wall clock, ms since 1970.
    pub(crate) wall_ms: i64,
    /// Bytes of the whole block, without padding.
    pub(crate) length: u32,
    /// Bytes of metadata.
    pub(crate) meta: u32,
    /// Batches.
    pub(crate) count: u32,
    /// The header CRC of the block before: the chain.
    pub(crate) previous: u32,
}

impl BlockHeader {
    /// Bytes that the block takes in its segment.
    pub(crate) fn padded(&self) -> u64 {
        padded(u64::from(self.length))
    }

    /// Reads a header; `None` when its CRC under `salt` fails or its lengths cannot be. Answers the header's CRC too.
    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<(BlockHeader, u32)> {
        let bytes = bytes.get(..HEADER)?;
        let mut r = Reader::new(bytes);
        if r.u32().ok()? != MAGIC {
            return None;
        }
        let header = BlockHeader {
            run: r.u32().ok()?,
            number: r.u64().ok()?,
            durable: r.u64().ok()?,
            broker_ms: r.u64().ok()?,
            wall_ms: r.u64().ok()? as i64,
            length: r.u32().ok()?,
            meta: r.u32().ok()?,
            count: r.u32().ok()?,
            previous: r.u32().ok()?,
        };
        let _meta_crc = r.u32().ok()?;
        let sum = r.u32().ok()?;
        let fits = u64::from(header.length) >= HEADER as u64 + u64::from(header.meta) && header.meta.is_multiple_of(8);
        (sum == crc(salt, &bytes[..HEADER - 4]) && fits).then_some((header, sum))
    }

    /// Whether `meta`, the metadata behind the header `bytes`, is whole.
    pub(crate) fn meta_holds(bytes: &[u8], meta: &[u8], salt: u32) -> bool {
        bytes.get(56..60).is_some_and(|sum| sum == crc(salt, meta).to_le_bytes())
    }
}

/// Bytes rounded up to whole units.
pub(crate) fn padded(length: u64) -> u64 {
    length.next_multiple_of(UNIT)
}

/// Fills in the header in front of `out`, whose bytes from [`HEADER`] on are the metadata. Answers the header's CRC.
pub(crate) fn finish(out: &mut [u8], header: &BlockHeader, salt: u32) -> u32 {
    let meta_crc = crc(salt, &out[HEADER..]);
    let mut bytes = [0u8; HEADER];
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&header.run.to_le_bytes());
    bytes[8..16].copy_from_slice(&header.number.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.durable.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.broker_ms.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.wall_ms.to_le_bytes());
    bytes[40..44].copy_from_slice(&header.length.to_le_bytes());
    bytes[44..48].copy_from_slice(&header.meta.to_le_bytes());
    bytes[48..52].copy_from_slice(&header.count.to_le_bytes());
    bytes[52..56].copy_from_slice(&header.previous.to_le_bytes());
    bytes[56..60].copy_from_slice(&meta_crc.to_le_bytes());
    let sum = crc(salt, &bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    out[..HEADER].copy_from_slice(&bytes);
    sum
}

/// Zeros after a block of `length` bytes up to the next unit, so that no page is written in part.
pub(crate) fn padding(length: u64) -> Option<Bytes> {
    let n = (padded(length) - length) as usize;
    (n > 0).then(|| crate::bytes_io::zeros(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, BlockHeader) {
        let mut out = vec![0; HEADER];
        out.extend_from_slice(b"metadata");
        let header = BlockHeader {
            run: 3,
            number: 77,
            durable: 75,
            broker_ms: 1234,
            wall_ms: -5,
            length: 100,
            meta: 8,
            count: 2,
            previous: 0xdead_beef,
        };
        (out, header)
    }

    #[test]
    fn a_header_is_read_back_under_its_salt_only() {
        let (mut out, header) = sample();
        let sum = finish(&mut out, &header, 42);
        assert_eq!(BlockHeader::decode(&out, 42), Some((header, sum)));
        assert!(BlockHeader::meta_holds(&out, &out[HEADER..], 42));
        assert_eq!(BlockHeader::decode(&out, 43), None);
        assert!(!BlockHeader::meta_holds(&out, &out[HEADER..], 43));
        assert_eq!(BlockHeader::decode(&out[..63], 42), None);
    }

    #[test]
    fn each_flipped_bit_is_noticed() {
        let (mut out, header) = sample();
        finish(&mut out, &header, 42);
        for bit in 0..out.len() * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let header_ok = BlockHeader::decode(&bad, 42).is_some();
            let meta_ok = BlockHeader::meta_holds(&bad, &bad[HEADER..], 42);
            assert!(!header_ok || !meta_ok, "bit {bit}");
        }
    }
}
