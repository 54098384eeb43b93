//! The last blocks, which nothing proves, with one flipped bit: whole once, and damaged since.
//!
//! A write that was torn leaves whole sectors as they were before; it never leaves a block in which every checksum holds but for one
//! bit. So such a block was written to its end, and may have been confirmed. Its bit is found by its checksum, and put right on
//! the medium before anything is built on it. A bit in a body stays as it is: it costs that entry, at reading, as in any other block.
//! Must not judge proved blocks: damage there ends the start.

use super::{Found, Scan, UNCONFIRMED_BYTES, Unproved};
use crate::block::{BlockHeader, HEADER, UNIT};
use crate::bytes_io::crc;
use crate::error::JournalError;
use crate::io::{DiskOp, FileName};
use bytes::Bytes;

/// CRC32C's polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The bit, counted from the first byte's lowest, that makes the checksum right when it is flipped.
pub(super) fn flipped_bit(seed: u32, bytes: &[u8], expected: u32) -> Option<usize> {
    let wrong = crc(seed, bytes) ^ expected;
    // What a wrong bit does to the sum depends on how many bits follow it alone.
    let mut effect = POLYNOMIAL;
    for bit in (0..bytes.len() * 8).rev() {
        if effect == wrong {
            return Some(bit);
        }
        effect = (effect >> 1) ^ if effect & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    None
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

impl Scan<'_, '_> {
    /// Puts the missing block right if it is at this place, whole but for one bit of its header or metadata. True: it was.
    pub(super) fn mend(&mut self, at: usize, offset: u64) -> Result<bool, JournalError> {
        let Found { header: segment, size, .. } = self.segments[at];
        let mut head = self.bytes(at, offset, HEADER as u32)?.to_vec();
        if head.len() < HEADER {
            return Ok(false);
        }
        let is_next = |header: &BlockHeader| {
            header.run == segment.run
                && header.number == self.number
                && header.previous == self.chain
                && offset + header.padded() <= size
                && u64::from(header.length) <= UNCONFIRMED_BYTES
        };
        let mut bit = None;
        let mut found = BlockHeader::decode(&head, segment.salt).map(|(header, _)| header).filter(is_next);
        for candidate in 0..HEADER * 8 {
            if found.is_some() {
                break;
            }
            flip(&mut head, candidate);
            found = BlockHeader::decode(&head, segment.salt).map(|(header, _)| header).filter(is_next);
            match found {
                Some(_) => bit = Some(candidate),
                None => flip(&mut head, candidate),
            }
        }
        let Some(header) = found else { return Ok(false) };
        let mut meta = self.bytes(at, offset + HEADER as u64, header.meta)?.to_vec();
        if meta.len() < header.meta as usize {
            return Ok(false);
        }
        if !BlockHeader::meta_holds(&head, &meta, segment.salt) {
            let expected = u32::from_le_bytes([head[56], head[57], head[58], head[59]]);
            match flipped_bit(segment.salt, &meta, expected) {
                Some(in_meta) if bit.is_none() => {
                    flip(&mut meta, in_meta);
                    bit = Some(HEADER * 8 + in_meta);
                }
                _ => return Ok(false),
            }
        }
        let Some(bit) = bit else { return Ok(false) };
        let previous = self.chain;
        let block = Unproved { number: header.number, previous, segment: at, offset, header, meta: Bytes::from(meta) };
        if !self.whole(&block)? {
            return Ok(false);
        }
        // The unit that holds the bit, as it is but for that.
        let name = FileName::Segment(segment.id);
        let unit = offset + (bit as u64 / 8) / UNIT * UNIT;
        let mut bytes = self.disk.read(name, unit, UNIT as u32)?.to_vec();
        flip(&mut bytes, bit - (unit - offset) as usize * 8);
        let pieces = vec![Bytes::from(bytes)];
        self.disk.run(DiskOp::Write { name, offset: unit, pieces, sync: true })?;
        self.window = super::Window::default();
        self.mended.push((segment.id, offset));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_is_found_wherever_it_is_and_only_if_it_is_one() {
        let bytes: Vec<u8> = (0..300u32).map(|n| ((n * n) >> 3) as u8).collect();
        let sum = crc(9, &bytes);
        assert_eq!(flipped_bit(9, &bytes, sum), None, "nothing is wrong");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            flip(&mut bad, bit);
            assert_eq!(flipped_bit(9, &bad, sum), Some(bit));
            flip(&mut bad, (bit * 7 + 13) % (bytes.len() * 8));
            assert_eq!(flipped_bit(9, &bad, sum), None, "two are too many");
        }
        // A sector that was never written.
        let mut torn = vec![3; 2048];
        let sum = crc(1, &torn);
        torn[512..1024].fill(0);
        assert_eq!(flipped_bit(1, &torn, sum), None);
        assert_eq!(flipped_bit(1, &[], 5), None);
    }
}
