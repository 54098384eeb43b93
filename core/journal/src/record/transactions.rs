//! Records of transactions: codes 8 to 13 and 25, and the operations in them, which a checkpoint tells in the same form.
//!
//! Must not know: what becomes of an operation.

use super::{Where, close, code, head, open, overlay, put_head, put_overlay};
use crate::bytes_io::{Malformed, Reader, crc, put_bytes, put_u32, put_u64};
use bytes::Bytes;
use packhorse_model::{
    BrokerId, ClientSession, DuplicateId, Head, LargeId, ProducerId, QueueId, Sequence, ShardId, Token, TxnId, Xid,
};
use packhorse_store::{
    Ahead, Body, Decide, Figures, Heuristic, HeuristicOutcome, Numbers, Op, Redelivery, Stored, TxnOp, TxnPart,
};
use std::sync::Arc;

const TOKEN: u8 = 1;
const XID: u8 = 2;
const COMMIT: u8 = 1;

/// Bits of a part.
const AHEAD: u8 = 1;
const NUMBERS: u8 = 2;
const FIGURES: u8 = 4;

/// Kinds of operations.
const ADD: u8 = 1;
const ADD_LARGE: u8 = 2;
const REMOVE: u8 = 3;
const NUMBER: u8 = 4;
/// An entry that comes back at the commit, without an overlay and with one.
const RETURN: u8 = 5;
const RETURN_CHANGED: u8 = 6;
const DUPLICATE_ID: u8 = 7;
/// The shortest operation, bytes.
const REMOVE_BYTES: usize = 17;

/// One operation; `C` is where an added message's content is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work<C> {
    /// A message is added.
    Add {
        /// Which of the part's.
        index: u32,
        head: Head,
        content: C,
    },
    /// An entry is removed; the numbers are those with which a rollback brings it back.
    Remove {
        sequence: Sequence,
        deliveries: u32,
        attempts: u32,
        /// It is not removed after all, but comes back at the commit.
        redelivery: Option<Arc<Redelivery>>,
    },
    /// A message that is added has this number of a producer's.
    Number { producer: ProducerId, number: u64, floor: u64 },
    /// A message that is added has this duplicate id.
    DuplicateId(DuplicateId),
}

impl<C> Work<C> {
    /// Whether it adds or removes a message.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Work::Number { .. } | Work::DuplicateId(_))
    }
}

impl<C: Copy> Work<C> {
    /// Where the message that it adds is.
    pub(crate) fn content(&self) -> Option<C> {
        match self {
            Work::Add { content, .. } => Some(*content),
            Work::Remove { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
        }
    }
}

/// A record of a transaction: boxed in [`super::Record`], which is passed around for each message.
#[derive(Debug)]
pub(crate) enum Transactional {
    TxOps(TxOps),
    TxDrop { txn: TxnId, queue: QueueId },
    Commit(Commit),
    Prepare(Prepare),
    Decide(Decide),
    Heuristic(Heuristic),
    Forget { xid: Xid },
}

impl Transactional {
    /// Operations that are in it.
    pub(crate) fn works(&self) -> impl Iterator<Item = &Work<Where>> {
        let (works, parts): (&[Work<Where>], &[Part]) = match self {
            Transactional::TxOps(ops) => (&ops.works, &[]),
            Transactional::Commit(commit) => (&[], &commit.parts),
            Transactional::Prepare(prepare) => (&[], &prepare.parts),
            _ => (&[], &[]),
        };
        works.iter().chain(parts.iter().flat_map(|part| &part.works))
    }

    /// Entries of a queue that a decision in it removes, or keeps from being loaded.
    pub(crate) fn removed(&self, queue: QueueId) -> impl Iterator<Item = Sequence> {
        let (parts, returns): (&[Part], bool) = match self {
            Transactional::Commit(commit) => (&commit.parts, true),
            Transactional::Prepare(prepare) => (&prepare.parts, false),
            _ => (&[], false),
        };
        let works = parts.iter().filter(move |part| part.queue == queue).flat_map(|part| &part.works);
        works.filter_map(move |work| match work {
            // What a commit brings back is there.
            Work::Remove { redelivery: Some(_), .. } if returns => None,
            Work::Remove { sequence, .. } => Some(*sequence),
            Work::Add { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
        })
    }
}

/// A part, as far as it did not go ahead.
#[derive(Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) queue: QueueId,
    pub(crate) ahead: Ahead,
    pub(crate) numbers: Option<Numbers>,
    pub(crate) figures: Figures,
    pub(crate) works: Vec<Work<Where>>,
}

/// See [`packhorse_store::TxOps`].
#[derive(Debug, PartialEq)]
pub(crate) struct TxOps {
    pub(crate) txn: TxnId,
    pub(crate) queue: QueueId,
    pub(crate) record: u32,
    pub(crate) works: Vec<Work<Where>>,
}

/// See [`packhorse_store::Commit`].
#[derive(Debug, PartialEq)]
pub(crate) struct Commit {
    pub(crate) txn: TxnId,
    pub(crate) parts: Vec<Part>,
    pub(crate) token: Option<Token>,
    pub(crate) xid: Option<Xid>,
    pub(crate) at_ms: u64,
}

/// See [`packhorse_store::Prepare`].
#[derive(Debug, PartialEq)]
pub(crate) struct Prepare {
    pub(crate) txn: TxnId,
    pub(crate) xid: Xid,
    pub(crate) client: Arc<str>,
    pub(crate) parts: Vec<Part>,
    pub(crate) wall_ms: i64,
    pub(crate) at_ms: u64,
}

/// The pieces of a batch, and where each begins in its content.
pub(super) struct Content<'a> {
    pub(super) pieces: &'a [Bytes],
    pub(super) starts: &'a [usize],
}

impl Content<'_> {
    /// Offset in the batch's content, length, sum.
    ///
    /// # Panics
    /// When there are no such bytes.
    #[inline]
    pub(super) fn put(&self, out: &mut Vec<u8>, body: &Body) {
        let (from, length) = (body.offset as usize, body.length as usize);
        let bytes = self.pieces.get(body.piece as usize).and_then(|piece| piece.get(from..from + length));
        let bytes = bytes.unwrap_or_else(|| panic!("an operation names bytes outside its batch: {body:?}"));
        let mut put = [0; 12];
        put[..4].copy_from_slice(&((self.starts[body.piece as usize] + from) as u32).to_le_bytes());
        put[4..8].copy_from_slice(&body.length.to_le_bytes());
        put[8..].copy_from_slice(&crc(0, bytes).to_le_bytes());
        out.extend_from_slice(&put);
    }
}

/// Encodes an operation of transactions. Files that it refers to are appended to `large`.
#[cold]
pub(super) fn put(out: &mut Vec<u8>, op: &Op, content: &Content<'_>, large: &mut Vec<LargeId>) {
    let start;
    match op {
        Op::TxOps(ops) => {
            start = open(out, code::TX_OPS, 0, 0, 0);
            put_txn(out, ops.txn);
            put_u64(out, ops.queue.0);
            put_u32(out, ops.record);
            put_ops(out, &ops.ops, content, large);
        }
        Op::TxDrop { txn, queue } => {
            start = open(out, code::TX_DROP, 0, 0, 0);
            put_txn(out, *txn);
            put_u64(out, queue.0);
        }
        Op::Commit(commit) => {
            let flag = |set, flag| if set { flag } else { 0 };
            let flags = flag(commit.token.is_some(), TOKEN) | flag(commit.xid.is_some(), XID);
            start = open(out, code::COMMIT, flags, 0, 0);
            put_txn(out, commit.txn);
            put_u64(out, commit.at_ms);
            if let Some(Token { broker, session, counter }) = &commit.token {
                out.extend_from_slice(&broker.0);
                out.extend_from_slice(&session.0);
                put_u64(out, *counter);
            }
            if let Some(xid) = &commit.xid {
                put_xid(out, xid);
            }
            put_u32(out, commit.parts.len() as u32);
            for (queue, part) in &commit.parts {
                put_part(out, *queue, part, None, content, large);
            }
        }
        Op::Prepare(prepare) => {
            start = open(out, code::PREPARE, 0, 0, 0);
            put_txn(out, prepare.txn);
            put_u64(out, prepare.at_ms);
            put_u64(out, prepare.wall_ms as u64);
            put_xid(out, &prepare.xid);
            put_bytes(out, prepare.client.as_bytes());
            put_u32(out, prepare.parts.len() as u32);
            for (queue, part, figures) in &prepare.parts {
                put_part(out, *queue, part, Some(figures), content, large);
            }
        }
        Op::Decide(decide) => {
            start = open(out, code::DECIDE, if decide.commit { COMMIT } else { 0 }, 0, 0);
            put_u64(out, decide.at_ms);
            put_xid(out, &decide.xid);
            put_numbers_of(out, &decide.numbers);
        }
        Op::Heuristic(heuristic) => {
            start = open(out, code::HEURISTIC, if heuristic.commit { COMMIT } else { 0 }, 0, 0);
            put_heuristic(out, heuristic);
        }
        Op::Forget { xid } => {
            start = open(out, code::FORGET, 0, 0, 0);
            put_xid(out, xid);
        }
        other => unreachable!("no operation of a transaction: {other:?}"),
    }
    close(out, start);
}

/// The way back, of the fields of a record with one of these codes.
#[cold]
pub(super) fn decode(code: u8, flags: u8, r: &mut Reader<'_>) -> Result<Box<Transactional>, Malformed> {
    Ok(Box::new(match code {
        code::TX_OPS => {
            let (txn, queue, record) = (txn(r)?, QueueId(r.u64()?), r.u32()?);
            Transactional::TxOps(TxOps { txn, queue, record, works: works(r, within)? })
        }
        code::TX_DROP => Transactional::TxDrop { txn: txn(r)?, queue: QueueId(r.u64()?) },
        code::COMMIT => {
            let (txn, at_ms) = (txn(r)?, r.u64()?);
            let token = if flags & TOKEN != 0 { Some(token(r)?) } else { None };
            let xid = if flags & XID != 0 { Some(xid(r)?) } else { None };
            Transactional::Commit(Commit { txn, parts: list(r, part)?, token, xid, at_ms })
        }
        code::PREPARE => {
            let (txn, at_ms, wall_ms) = (txn(r)?, r.u64()?, r.u64()? as i64);
            let (xid, client) = (xid(r)?, r.text()?.into());
            Transactional::Prepare(Prepare { txn, xid, client, parts: list(r, part)?, wall_ms, at_ms })
        }
        code::DECIDE => {
            let (at_ms, xid, numbers) = (r.u64()?, xid(r)?, list(r, numbers_of)?);
            Transactional::Decide(Decide { xid, commit: flags & COMMIT != 0, numbers, at_ms })
        }
        code::HEURISTIC => Transactional::Heuristic(heuristic(r, flags & COMMIT != 0)?),
        code::FORGET => Transactional::Forget { xid: xid(r)? },
        _ => return Err(Malformed),
    }))
}

/// A count, and so many.
fn list<T>(r: &mut Reader<'_>, one: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    let count = r.u32()?;
    (0..count).map(|_| one(r)).collect()
}

pub(crate) fn put_txn(out: &mut Vec<u8>, txn: TxnId) {
    put_u64(out, txn.run);
    put_u64(out, txn.number);
    put_u32(out, u32::from(txn.home.0));
}

pub(crate) fn txn(r: &mut Reader<'_>) -> Result<TxnId, Malformed> {
    let (run, number, home) = (r.u64()?, r.u64()?, r.u32()?);
    Ok(TxnId { run, number, home: ShardId(u16::try_from(home).map_err(|_| Malformed)?) })
}

pub(crate) fn put_xid(out: &mut Vec<u8>, xid: &Xid) {
    put_u32(out, xid.format_id() as u32);
    put_bytes(out, xid.global());
    put_bytes(out, xid.qualifier());
}

pub(crate) fn xid(r: &mut Reader<'_>) -> Result<Xid, Malformed> {
    let (format_id, global, qualifier) = (r.u32()? as i32, r.bytes()?, r.bytes()?);
    Xid::new(format_id, global, qualifier).map_err(|_| Malformed)
}

fn token(r: &mut Reader<'_>) -> Result<Token, Malformed> {
    let (broker, session) = (BrokerId(id(r)?), ClientSession(id(r)?));
    Ok(Token { broker, session, counter: r.u64()? })
}

/// An identity's bytes.
pub(crate) fn id(r: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
    r.take(16)?.try_into().map_err(|_| Malformed)
}

fn put_part(
    out: &mut Vec<u8>,
    queue: QueueId,
    part: &TxnPart,
    figures: Option<&Figures>,
    content: &Content<'_>,
    large: &mut Vec<LargeId>,
) {
    debug_assert!(part.pieces.is_empty(), "the bodies of a part in a batch are in the batch");
    let TxnPart { ops, ahead, numbers, .. } = part;
    put_u64(out, queue.0);
    let flag = |set, flag| if set { flag } else { 0 };
    let flags = flag(*ahead != Ahead::default(), AHEAD) | flag(numbers.is_some(), NUMBERS);
    out.push(flags | flag(figures.is_some(), FIGURES));
    if *ahead != Ahead::default() {
        put_u32(out, ahead.records);
        [ahead.ops, ahead.bytes].into_iter().for_each(|n| put_u64(out, n));
    }
    if let Some(numbers) = numbers {
        put_numbers(out, numbers);
    }
    if let Some(Figures { adds, removes, bytes }) = figures {
        [*adds, *removes, *bytes].into_iter().for_each(|n| put_u64(out, n));
    }
    put_ops(out, ops, content, large);
}

fn part(r: &mut Reader<'_>) -> Result<Part, Malformed> {
    let (queue, flags) = (QueueId(r.u64()?), r.u8()?);
    if flags & !(AHEAD | NUMBERS | FIGURES) != 0 {
        return Err(Malformed);
    }
    let mut part =
        Part { queue, ahead: Ahead::default(), numbers: None, figures: Figures::default(), works: Vec::new() };
    if flags & AHEAD != 0 {
        part.ahead = Ahead { records: r.u32()?, ops: r.u64()?, bytes: r.u64()? };
    }
    if flags & NUMBERS != 0 {
        part.numbers = Some(numbers(r)?);
    }
    if flags & FIGURES != 0 {
        part.figures = Figures { adds: r.u64()?, removes: r.u64()?, bytes: r.u64()? };
    }
    part.works = works(r, within)?;
    Ok(part)
}

fn put_numbers(out: &mut Vec<u8>, numbers: &Numbers) {
    put_u64(out, numbers.first);
    put_u32(out, numbers.count);
}

fn numbers(r: &mut Reader<'_>) -> Result<Numbers, Malformed> {
    Ok(Numbers { first: r.u64()?, count: r.u32()? })
}

fn put_numbers_of(out: &mut Vec<u8>, numbers: &[(QueueId, Numbers)]) {
    put_u32(out, numbers.len() as u32);
    for (queue, numbers) in numbers {
        put_u64(out, queue.0);
        put_numbers(out, numbers);
    }
}

fn numbers_of(r: &mut Reader<'_>) -> Result<(QueueId, Numbers), Malformed> {
    Ok((QueueId(r.u64()?), numbers(r)?))
}

/// All of it but what becomes of the parts.
pub(crate) fn put_heuristic(out: &mut Vec<u8>, heuristic: &Heuristic) {
    let Heuristic { xid, outcome, commit: _, numbers, who, reason, wall_ms, at_ms } = heuristic;
    let (outcome, queue) = match outcome {
        HeuristicOutcome::Committed => (1, 0),
        HeuristicOutcome::RolledBack => (2, 0),
        HeuristicOutcome::Mixed => (3, 0),
        HeuristicOutcome::PartRolledBack(queue) => (4, queue.0),
    };
    put_u64(out, *at_ms);
    put_u64(out, *wall_ms as u64);
    out.push(outcome);
    put_u64(out, queue);
    put_xid(out, xid);
    put_bytes(out, who.as_bytes());
    put_bytes(out, reason.as_bytes());
    put_numbers_of(out, numbers);
}

pub(crate) fn heuristic(r: &mut Reader<'_>, commit: bool) -> Result<Heuristic, Malformed> {
    let (at_ms, wall_ms, outcome, queue) = (r.u64()?, r.u64()? as i64, r.u8()?, QueueId(r.u64()?));
    let outcome = match outcome {
        1 => HeuristicOutcome::Committed,
        2 => HeuristicOutcome::RolledBack,
        3 => HeuristicOutcome::Mixed,
        4 => HeuristicOutcome::PartRolledBack(queue),
        _ => return Err(Malformed),
    };
    let (xid, who, reason) = (xid(r)?, r.text()?.into(), r.text()?.into());
    Ok(Heuristic { xid, outcome, commit, numbers: list(r, numbers_of)?, who, reason, wall_ms, at_ms })
}

fn put_ops(out: &mut Vec<u8>, ops: &[TxnOp], content: &Content<'_>, large: &mut Vec<LargeId>) {
    put_u32(out, ops.len() as u32);
    for op in ops {
        match op {
            TxnOp::Enqueue { index, head, content: stored } => {
                put_add(out, *index, head, matches!(stored, Stored::Large { .. }));
                match stored {
                    Stored::Body(body) => content.put(out, body),
                    Stored::Large { id, length } => {
                        large.push(*id);
                        [id.0, *length].into_iter().for_each(|n| put_u64(out, n));
                    }
                }
            }
            TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery } => {
                put_remove(out, *sequence, (*deliveries, *attempts), redelivery.as_deref());
            }
            TxnOp::Number { producer, number, floor } => put_number(out, *producer, *number, *floor),
            TxnOp::DuplicateId(id) => put_id(out, *id),
        }
    }
}

/// An added message, up to its content.
pub(crate) fn put_add(out: &mut Vec<u8>, index: u32, head: &Head, large: bool) {
    let [a, b, c, d] = index.to_le_bytes();
    out.extend_from_slice(&[if large { ADD_LARGE } else { ADD }, a, b, c, d]);
    put_head(out, head);
}

/// A removed entry, or one that comes back; deliveries and attempts after a rollback.
pub(crate) fn put_remove(
    out: &mut Vec<u8>,
    sequence: Sequence,
    (deliveries, attempts): (u32, u32),
    redelivery: Option<&Redelivery>,
) {
    let mut put = [0; REMOVE_BYTES];
    put[0] = match redelivery {
        None => REMOVE,
        Some(Redelivery { overlay: None, .. }) => RETURN,
        Some(_) => RETURN_CHANGED,
    };
    put[1..9].copy_from_slice(&sequence.to_le_bytes());
    put[9..13].copy_from_slice(&deliveries.to_le_bytes());
    put[13..].copy_from_slice(&attempts.to_le_bytes());
    out.extend_from_slice(&put);
    if let Some(Redelivery { deliveries, attempts, overlay }) = redelivery {
        put_u32(out, *deliveries);
        put_u32(out, *attempts);
        overlay.iter().for_each(|overlay| put_overlay(out, overlay));
    }
}

/// The number of an added message.
pub(crate) fn put_number(out: &mut Vec<u8>, producer: ProducerId, number: u64, floor: u64) {
    out.push(NUMBER);
    out.extend_from_slice(&producer.0);
    put_u64(out, number);
    put_u64(out, floor);
}

/// The duplicate id of an added message.
pub(crate) fn put_id(out: &mut Vec<u8>, id: DuplicateId) {
    out.push(DUPLICATE_ID);
    out.extend_from_slice(&id.0);
}

/// A count and operations; `content` reads where an added message's content is, in a file or not.
pub(crate) fn works<C>(
    r: &mut Reader<'_>,
    content: impl Fn(&mut Reader<'_>, bool) -> Result<C, Malformed>,
) -> Result<Vec<Work<C>>, Malformed> {
    let count = r.u32()? as usize;
    // A count that cannot be takes no memory.
    let mut works = Vec::with_capacity(count.min(r.left() / REMOVE_BYTES));
    for _ in 0..count {
        works.push(match r.u8()? {
            kind @ (ADD | ADD_LARGE) => {
                Work::Add { index: r.u32()?, head: head(r)?, content: content(r, kind == ADD_LARGE)? }
            }
            REMOVE => {
                let (sequence, deliveries, attempts) = remove(r)?;
                Work::Remove { sequence, deliveries, attempts, redelivery: None }
            }
            kind @ (RETURN | RETURN_CHANGED) => {
                let (sequence, deliveries, attempts) = remove(r)?;
                let redelivery = Some(Arc::new(redelivery(r, kind == RETURN_CHANGED)?));
                Work::Remove { sequence, deliveries, attempts, redelivery }
            }
            DUPLICATE_ID => Work::DuplicateId(DuplicateId(id(r)?)),
            NUMBER => Work::Number { producer: ProducerId(id(r)?), number: r.u64()?, floor: r.u64()? },
            _ => return Err(Malformed),
        });
    }
    Ok(works)
}

#[inline]
fn remove(r: &mut Reader<'_>) -> Result<(Sequence, u32, u32), Malformed> {
    let mut r = Reader::new(r.take(REMOVE_BYTES - 1)?);
    Ok((r.u64()?, r.u32()?, r.u32()?))
}

fn redelivery(r: &mut Reader<'_>, changed: bool) -> Result<Redelivery, Malformed> {
    let (deliveries, attempts) = (r.u32()?, r.u32()?);
    let overlay = if changed { Some(Box::new(overlay(r)?)) } else { None };
    Ok(Redelivery { deliveries, attempts, overlay })
}

/// Where a content is, within its batch.
fn within(r: &mut Reader<'_>, large: bool) -> Result<Where, Malformed> {
    Ok(if large {
        Where::Large { id: LargeId(r.u64()?), length: r.u64()? }
    } else {
        Where::Body { offset: r.u32()?, length: r.u32()?, crc: r.u32()? }
    })
}

#[cfg(test)]
mod tests;
