//! Items: what a checkpoint says, one fact each.

use super::transactions;
use crate::bytes_io::{Malformed, Reader, put_u32, put_u64};
use crate::index::{Facts, Marks, Note, Place, Stored, Suspect};
use crate::record::{self, Ranges, close, open, put_overlay};
use crate::transactions::{Branch, IdKey, Kept, Outcome, ProducerKey, Session};
use packhorse_model::{ClientSession, EntryKey, LargeId, QueueId, TxnId, Xid};
use packhorse_store::Blame;

/// The kinds of items.
pub(super) mod code {
    pub(crate) const QUEUE: u8 = 1;
    pub(crate) const LISTED: u8 = 2;
    pub(crate) const ENTRY: u8 = 3;
    pub(crate) const NUMBERS: u8 = 4;
    pub(crate) const MOVED: u8 = 5;
    pub(crate) const SEGMENT: u8 = 6;
}

const LARGE: u8 = 2;
const OVERLAY: u8 = 4;
const SUSPECT: u8 = 8;

/// A segment with something live in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) id: u32,
    pub(crate) salt: u32,
    /// It holds no block from this one on.
    pub(crate) end: u64,
    /// Entries to be found in it.
    pub(crate) listed: u64,
    /// Entries told whole, and messages that transactions add, whose bodies it holds.
    pub(crate) whole: u64,
}

/// One fact of a checkpoint.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Queue {
        id: QueueId,
        facts: Facts,
    },
    /// Entries that are live, and described by their Enqueue in the log.
    Listed {
        queue: QueueId,
        ranges: Ranges<'a>,
    },
    /// An entry with all that is to be known of it.
    Entry {
        key: EntryKey,
        stored: Stored,
        note: Note,
    },
    /// What happened to a listed entry.
    Numbers {
        key: EntryKey,
        note: Note,
    },
    /// What an entry was that a block behind the covered one moves.
    Moved {
        key: EntryKey,
        stored: Stored,
    },
    Segment(Held),
    /// A branch, but for its operations.
    Branch {
        txn: TxnId,
        branch: Branch,
    },
    /// So many records of operations went ahead in a queue.
    Ahead {
        txn: TxnId,
        queue: QueueId,
        records: u32,
    },
    /// Operations, behind those told before: of a branch, or ahead.
    Operations {
        txn: TxnId,
        queue: QueueId,
        works: Vec<Kept>,
        in_doubt: bool,
    },
    Completed {
        xid: Xid,
        outcome: Outcome,
    },
    Session {
        id: ClientSession,
        session: Session,
    },
    Producer {
        key: ProducerKey,
        producer: Session,
    },
    DuplicateId {
        key: IdKey,
        at_ms: u64,
    },
}

/// Reads the items of a section one by one.
pub(crate) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    pub(crate) fn new(section: &'a [u8]) -> Items<'a> {
        Items { rest: section }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut header = Reader::new(self.rest);
        let (code, flags, _, length) = (header.u8()?, header.u8()?, header.u16()?, header.u32()? as usize);
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Malformed);
        }
        let (item, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        decode(code, flags, &item[8..]).map(Some)
    }
}

fn decode(code: u8, flags: u8, body: &[u8]) -> Result<Item<'_>, Malformed> {
    let mut r = Reader::new(body);
    let queue = |r: &mut Reader<'_>| r.u64().map(QueueId);
    Ok(match code {
        code::QUEUE => {
            let (id, next, reserved) = (queue(&mut r)?, r.u64()?, r.u64()?);
            let (name, settings) = (record::name(r.text()?)?, record::settings(&mut r)?);
            let mut marks = Marks::default();
            marks.ranges.extend(Ranges::new(r)?);
            Item::Queue { id, facts: Facts { name, settings, next, reserved, marks } }
        }
        code::LISTED => Item::Listed { queue: queue(&mut r)?, ranges: Ranges::new(r)? },
        code::ENTRY => {
            let (key, stored, head) =
                (record::key(&mut r)?, stored(&mut r, flags & LARGE != 0)?, record::head(&mut r)?);
            let large = match stored {
                Stored::Large { id, length } => Some((id, length)),
                Stored::Body { .. } => None,
            };
            Item::Entry { key, stored, note: Note { head: Some(head), large, ..numbers(&mut r, flags)? } }
        }
        code::NUMBERS => Item::Numbers { key: record::key(&mut r)?, note: numbers(&mut r, flags)? },
        code::MOVED => Item::Moved { key: record::key(&mut r)?, stored: stored(&mut r, flags & LARGE != 0)? },
        code::SEGMENT => {
            let (id, salt) = (r.u32()?, r.u32()?);
            Item::Segment(Held { id, salt, end: r.u64()?, listed: r.u64()?, whole: r.u64()? })
        }
        transactions::code::BRANCH..=transactions::code::DUPLICATE_ID => transactions::decode(code, flags, r)?,
        _ => return Err(Malformed),
    })
}

pub(super) fn stored(r: &mut Reader<'_>, large: bool) -> Result<Stored, Malformed> {
    Ok(if large {
        Stored::Large { id: LargeId(r.u64()?), length: r.u64()? }
    } else {
        Stored::Body { place: Place { segment: r.u32()?, offset: r.u32()? }, length: r.u32()?, crc: r.u32()? }
    })
}

fn numbers(r: &mut Reader<'_>, flags: u8) -> Result<Note, Malformed> {
    let (deliveries, attempts) = (r.u32()?, r.u32()?);
    let suspect = if flags & SUSPECT != 0 {
        let (crashes, marked, at_ms) = (r.u32()?, r.u32()?, r.u64()?);
        Some(Box::new(Suspect { blame: Blame(crashes), marked_ms: (marked != 0).then_some(at_ms) }))
    } else {
        None
    };
    let overlay = if flags & OVERLAY != 0 { Some(Box::new(record::overlay(r)?)) } else { None };
    Ok(Note { deliveries, attempts, overlay, head: None, large: None, suspect })
}

pub(super) fn put_stored(out: &mut Vec<u8>, stored: &Stored) {
    match *stored {
        Stored::Body { place, length, crc } => {
            [place.segment, place.offset, length, crc].into_iter().for_each(|n| put_u32(out, n));
        }
        Stored::Large { id, length } => [id.0, length].into_iter().for_each(|n| put_u64(out, n)),
    }
}

pub(super) fn put_numbers(out: &mut Vec<u8>, note: &Note) {
    put_u32(out, note.deliveries);
    put_u32(out, note.attempts);
    if let Some(suspect) = &note.suspect {
        put_u32(out, suspect.blame.0);
        put_u32(out, u32::from(suspect.marked_ms.is_some()));
        put_u64(out, suspect.marked_ms.unwrap_or(0));
    }
    if let Some(overlay) = &note.overlay {
        put_overlay(out, overlay);
    }
}

pub(super) fn flags(stored: Option<&Stored>, note: Option<&Note>) -> u8 {
    let large = matches!(stored, Some(Stored::Large { .. }));
    let overlay = note.is_some_and(|note| note.overlay.is_some());
    let suspect = note.is_some_and(|note| note.suspect.is_some());
    let flag = |set, flag| if set { flag } else { 0 };
    flag(large, LARGE) | flag(overlay, OVERLAY) | flag(suspect, SUSPECT)
}

/// The table of segments, which ends a checkpoint.
pub(crate) fn put_segments(out: &mut Vec<u8>, held: impl Iterator<Item = Held>) {
    for Held { id, salt, end, listed, whole } in held {
        let start = open(out, code::SEGMENT, 0, 0, 0);
        put_u32(out, id);
        put_u32(out, salt);
        [end, listed, whole].into_iter().for_each(|n| put_u64(out, n));
        close(out, start);
    }
}
