//! Looks into a disk's journal and flips bits there: in what was never confirmed, in bodies, in headers of confirmed blocks.
//!
//! Knows as much of the format as a forensic tool would: `docs/formats/journal.md`.

use crate::draw::Draw;
use crate::message::{find_bodies, sections_before};
use packhorse_history::MessageId;
use packhorse_journal::FileName;
use packhorse_journal::sim::SimDisk;

const UNIT: usize = 4096;
const HEADER: usize = 64;
/// Where a segment's salt stands.
const SALT: usize = 36;

/// A block as it stands in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    name: FileName,
    offset: usize,
    length: usize,
    meta: usize,
    pub(crate) number: u64,
    /// The highest block that it knows to be safe.
    pub(crate) durable: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The blocks of all segments, by number.
pub(crate) fn blocks(disk: &SimDisk) -> Vec<Block> {
    let mut all = Vec::new();
    let names: Vec<FileName> = disk.names().filter(|name| matches!(name, FileName::Segment(_))).collect();
    for name in names {
        let Some(bytes) = disk.content(name).filter(|bytes| bytes.len() > UNIT && bytes.starts_with(b"phSEGMNT"))
        else {
            continue;
        };
        let (run, first) = (u32_at(bytes, 40), u64_at(bytes, 48));
        let mut offset = UNIT;
        let salt = u32_at(bytes, SALT);
        let mut next: Option<u64> = None;
        while offset + HEADER <= bytes.len() {
            let block = &bytes[offset..];
            let (number, length) = (u64_at(block, 8), u32_at(block, 40) as usize);
            // What is left of an earlier use of the file is of another run, or counts otherwise.
            let fits =
                block.starts_with(b"phBK") && u32_at(block, 4) == run && length >= HEADER && length <= block.len();
            // A header that was flipped before says nothing that is true.
            let whole = crc32c::crc32c_append(salt, &block[..HEADER - 4]) == u32_at(block, HEADER - 4);
            if !fits || !whole || number < first || next.is_some_and(|next| next != number) {
                break;
            }
            let (meta, durable) = (u32_at(block, 44) as usize, u64_at(block, 16));
            all.push(Block { name, offset, length, meta, number, durable });
            next = Some(number + 1);
            offset += length.next_multiple_of(UNIT);
        }
    }
    all.sort_by_key(|block| block.number);
    all
}

/// The highest block that another one knows to be safe.
pub(crate) fn proven(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.durable).max().unwrap_or(0)
}

fn flip(disk: &mut SimDisk, name: FileName, offset: usize, bit: u8) {
    disk.damage(name, offset, |bytes| bytes[0] ^= 1 << bit);
}

/// Damages a block above `durable`, the last one that anybody was told of: one bit, or some bytes of a sector. Answers whose bodies it
/// hit, for a block with one wrong bit is whole, and so are transactions in it, but for that body. None: there is no such block.
pub(crate) fn flip_tail(disk: &mut SimDisk, durable: u64, one_bit: bool, draw: &mut Draw) -> Option<Vec<MessageId>> {
    let tail: Vec<Block> = blocks(disk).into_iter().filter(|block| block.number > durable).collect();
    if tail.is_empty() {
        return None;
    }
    let block = tail[draw.below(tail.len())];
    let at = draw.below(block.length);
    disk.write_back(block.name);
    let bodies = bodies_of(disk, &block);
    let hit = |count: usize| {
        let here = bodies.iter().filter(|(from, length, _)| *from < at + count && at < from + length);
        here.map(|(_, _, id)| *id).collect()
    };
    if one_bit {
        flip(disk, block.name, block.offset + at, draw.range(0, 7) as u8);
        return Some(hit(1));
    }
    let count = (draw.range(4, 64) as usize).min(512 - at % 512).min(block.length - at).max(1);
    let mask = draw.range(1, 127) as u8 | 0x80;
    disk.damage(block.name, block.offset + at, |bytes| bytes[..count].iter_mut().for_each(|byte| *byte ^= mask));
    Some(hit(count))
}

/// The bodies in a block, with what is stored in front of them: where each begins in it, its length, whose it is.
fn bodies_of(disk: &SimDisk, block: &Block) -> Vec<(usize, usize, MessageId)> {
    let mut bodies = Vec::new();
    let content = HEADER + block.meta;
    let bytes = disk.content(block.name).and_then(|file| file.get(block.offset + content..block.offset + block.length));
    if let Some(bytes) = bytes {
        find_bodies(bytes, |at, length, id| {
            let front = sections_before(bytes, at);
            bodies.push((content + at - front, length + front, id));
        });
    }
    bodies
}

/// Loses the end of the last block, from any of its units on, if it is above `durable`. False: it is not.
pub(crate) fn tear_tail(disk: &mut SimDisk, durable: u64, draw: &mut Draw) -> bool {
    let Some(block) = blocks(disk).pop().filter(|block| block.number > durable) else { return false };
    // Before its last byte, so that something is missing.
    let from = draw.below(block.length) / UNIT * UNIT;
    let most = block.length - from;
    disk.write_back(block.name);
    disk.damage(block.name, block.offset + from, |bytes| bytes[..most].fill(0));
    true
}

/// Hurts the file of a large message, if there is one: a bit is flipped, or it is cut, or it is gone; answers whose.
fn hurt_large(disk: &mut SimDisk, draw: &mut Draw) -> Option<MessageId> {
    let files: Vec<FileName> = disk.names().filter(|name| matches!(name, FileName::Large(_))).collect();
    if files.is_empty() {
        return None;
    }
    let name = files[draw.below(files.len())];
    let mut whose = Vec::new();
    bodies_in(disk, name, 0, 0, &mut whose);
    let content = disk.content(name)?.to_vec();
    // One that is still being written has no body yet, or is refused as not whole: nobody was told of it.
    let id = *whose.first()?;
    match draw.range(0, 2) {
        // Behind the header and the sum of the first unit: those of a file are not looked at.
        0 => flip(disk, name, 80 + draw.below(content.len() - 80), draw.range(0, 7) as u8),
        1 => disk.plant(name, Some(content[..draw.below(content.len())].to_vec())),
        _ => disk.plant(name, None),
    }
    Some(id)
}

/// Flips a bit in the body of a message in a block that is proven safe, or hurts the file of a large one; answers whose.
pub(crate) fn flip_body(disk: &mut SimDisk, draw: &mut Draw) -> Option<MessageId> {
    if let Some(id) = hurt_large(disk, draw) {
        return Some(id);
    }
    let all = blocks(disk);
    let safe = proven(&all);
    let mut bodies: Vec<(FileName, usize, usize, MessageId)> = Vec::new();
    // The newest ones are the likeliest to be waited for.
    for block in all.iter().rev().filter(|block| block.number <= safe) {
        let content = block.offset + HEADER + block.meta;
        let end = block.offset + block.length;
        let bytes = disk.content(block.name)?.get(content..end)?;
        find_bodies(bytes, |at, length, id| {
            if at + length <= bytes.len() {
                bodies.push((block.name, content + at, length, id));
            }
        });
        if bodies.len() > 200 {
            break;
        }
    }
    if bodies.is_empty() {
        return None;
    }
    let (name, offset, length, id) = bodies[draw.below(bodies.len())];
    flip(disk, name, offset + draw.below(length), draw.range(0, 7) as u8);
    Some(id)
}

/// A bit that was flipped in a header or in metadata. It may lie where no start looks for a while: a block that a checkpoint covers
/// is read when messages are in its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flipped {
    name: FileName,
    /// Of the segment in this use of the file.
    salt: u32,
    offset: usize,
    was: u8,
    bit: u8,
}

impl Flipped {
    /// Brings the byte back, as an operator does who has a copy of the file. False: it is not there as it was flipped.
    pub(crate) fn undo(self, disk: &mut SimDisk) -> bool {
        let there = disk.content(self.name).is_some_and(|content| {
            content.get(self.offset) == Some(&(self.was ^ (1 << self.bit))) && u32_at(content, SALT) == self.salt
        });
        if there {
            flip(disk, self.name, self.offset, self.bit);
        }
        there
    }
}

/// Flips a bit in the header or the metadata of a block up to `durable`, the last one that anybody was told of. False: there is none.
/// One that a later block proves is damage; the last one may be put right, but is never given up.
pub(crate) fn flip_header(disk: &mut SimDisk, durable: u64, draw: &mut Draw) -> Option<Flipped> {
    let all = blocks(disk);
    let confirmed: Vec<&Block> = all.iter().rev().filter(|block| block.number <= durable).take(4).collect();
    if confirmed.is_empty() {
        return None;
    }
    let block = confirmed[draw.below(confirmed.len())];
    let (offset, bit) = (block.offset + draw.below(HEADER + block.meta), draw.range(0, 7) as u8);
    let content = disk.content(block.name)?;
    let was = *content.get(offset)?;
    let flipped = Flipped { name: block.name, salt: u32_at(content, SALT), offset, was, bit };
    flip(disk, block.name, offset, bit);
    Some(flipped)
}

/// Whose bodies lie in a part of a file.
pub(crate) fn bodies_in(disk: &SimDisk, name: FileName, offset: u64, length: u32, out: &mut Vec<MessageId>) {
    let Some(bytes) = disk.content(name) else { return };
    let from = (offset as usize).min(bytes.len());
    let to = (from + length as usize).min(bytes.len());
    // A large message's file holds one body, wherever it is hurt.
    let part = if matches!(name, FileName::Large(_)) { bytes } else { &bytes[from..to] };
    find_bodies(part, |_, _, id| out.push(id));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with blocks of these numbers, a unit each.
    fn segment(numbers: &[u64]) -> Vec<u8> {
        let (salt, run) = (77u32, 3u32);
        let mut bytes = vec![0; UNIT];
        bytes[..8].copy_from_slice(b"phSEGMNT");
        bytes[SALT..SALT + 4].copy_from_slice(&salt.to_le_bytes());
        bytes[40..44].copy_from_slice(&run.to_le_bytes());
        bytes[48..56].copy_from_slice(&numbers[0].to_le_bytes());
        for number in numbers {
            let mut block = vec![0; UNIT];
            block[..4].copy_from_slice(b"phBK");
            block[4..8].copy_from_slice(&run.to_le_bytes());
            block[8..16].copy_from_slice(&number.to_le_bytes());
            block[16..24].copy_from_slice(&(number - 1).to_le_bytes());
            block[40..44].copy_from_slice(&(HEADER as u32).to_le_bytes());
            let sum = crc32c::crc32c_append(salt, &block[..HEADER - 4]);
            block[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
            bytes.extend(block);
        }
        bytes
    }

    #[test]
    fn a_block_that_is_hurt_already_is_not_taken_for_one_that_nobody_was_told_of() {
        let name = FileName::Segment(5);
        let numbers = |disk: &SimDisk| blocks(disk).iter().map(|block| block.number).collect::<Vec<_>>();
        for at in 0..HEADER {
            let mut disk = SimDisk::new(1);
            disk.plant(name, Some(segment(&[130, 131])));
            assert_eq!(numbers(&disk), [130, 131]);
            flip(&mut disk, name, UNIT + at, 3);
            assert_eq!(numbers(&disk), [0; 0], "byte {at}");
            assert!(flip_tail(&mut disk, 131, true, &mut Draw::new(1, 1)).is_none(), "byte {at}");
        }
    }
}
