//! A checkpoint: the fold of the log up to one block, as a file, and how it is taken from the live index
//! (`docs/formats/journal.md`, "Checkpoints").
//!
//! It is taken in slices while work goes on. A slice tells a queue as it is then, so that later ones may know of blocks
//! that are not covered. That does no harm, because a start takes in all blocks from the covered one on once more, and
//! each record but one says what holds afterwards, whatever held before. The one is Relocate, which needs what the entry
//! was: the index remembers that while a checkpoint is taken, and it is told as an item of its own.
//!
//! Must not know: files, when a checkpoint is due.

mod header;
mod item;
#[cfg(test)]
mod tests;
mod transactions;
mod walk;

use crate::bytes_io::{Reader, crc};

pub(crate) use header::{Header, Moment};
pub(crate) use item::{Held, Item, Items, put_segments};
pub(crate) use walk::Walk;

/// Bytes in front of a section: length and sum.
pub(crate) const SECTION_HEADER: usize = 8;

/// Fills in the header in front of a section whose items begin at [`SECTION_HEADER`]; answers the sum that the next one
/// continues.
pub(crate) fn finish_section(section: &mut [u8], sum: u32) -> u32 {
    let items = &section[SECTION_HEADER..];
    let (length, sum) = (items.len() as u32, crc(sum, items));
    section[..4].copy_from_slice(&length.to_le_bytes());
    section[4..8].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Takes the sections apart; `None` when they are not what the header says.
pub(crate) fn sections<'a>(header: &Header, mut bytes: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let (mut sum, mut sections) = (header.salt, Vec::new());
    if bytes.len() as u64 != header.length {
        return None;
    }
    while !bytes.is_empty() {
        let mut r = Reader::new(bytes);
        let (length, expected) = (r.u32().ok()? as usize, r.u32().ok()?);
        let items = r.take(length).ok()?;
        sum = crc(sum, items);
        if sum != expected {
            return None;
        }
        sections.push(items);
        bytes = &bytes[SECTION_HEADER + length..];
    }
    (sum == header.sum).then_some(sections)
}
