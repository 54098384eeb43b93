//! What a checkpoint says of transactions: as it was when the checkpoint was begun, for what a record does to a transaction depends
//! on what was there before.

use super::item::{Item, put_stored, stored};
use super::walk::SLICE_BYTES;
use crate::bytes_io::{Malformed, Reader, put_bytes, put_u32, put_u64};
use crate::index::Stored;
use crate::record::transactions::{
    self, Work, put_add, put_heuristic, put_id, put_number, put_remove, put_txn, put_xid,
};
use crate::record::{Ranges, close, open, put_ranges};
use crate::tally::Tally;
use crate::transactions::{Branch, Facts, Kept, Outcome, Session, Transactions};
use packhorse_model::{ClientSession, DuplicateId, Overlay, ProducerId, QueueId, TxnId};
use packhorse_store::LostPart;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The kinds of items.
pub(super) mod code {
    pub(crate) const BRANCH: u8 = 7;
    pub(crate) const AHEAD: u8 = 8;
    pub(crate) const OPERATIONS: u8 = 9;
    pub(crate) const COMPLETED: u8 = 10;
    pub(crate) const SESSION: u8 = 11;
    pub(crate) const PRODUCER: u8 = 12;
    pub(crate) const DUPLICATE_ID: u8 = 13;
}

const COMMITTED: u8 = 1;
const DECIDED: u8 = 2;
const IN_DOUBT: u8 = 1;

/// A branch costs a slice as much as so many entries.
const BRANCH_COST: usize = 8;
/// About the bytes of an operation.
const OPERATION_BYTES: usize = 48;

pub(super) fn decode<'a>(code: u8, flags: u8, mut r: Reader<'a>) -> Result<Item<'a>, Malformed> {
    let r = &mut r;
    Ok(match code {
        code::BRANCH => {
            let (txn, at_ms, wall_ms, volatile) = (transactions::txn(r)?, r.u64()?, r.u64()? as i64, r.u64()?);
            let (xid, client) = (transactions::xid(r)?, r.text()?.into());
            let lost: Result<Vec<LostPart>, Malformed> = (0..r.u32()?).map(|_| lost(r)).collect();
            let decided = if flags & DECIDED == 0 {
                None
            } else {
                Some(Box::new(transactions::heuristic(r, flags & COMMITTED != 0)?))
            };
            let facts = Arc::new(Facts { xid, client, wall_ms, at_ms });
            Item::Branch { txn, branch: Branch { facts, parts: BTreeMap::new(), lost: lost?, volatile, decided } }
        }
        code::AHEAD => Item::Ahead { txn: transactions::txn(r)?, queue: QueueId(r.u64()?), records: r.u32()? },
        code::OPERATIONS => {
            let (txn, queue) = (transactions::txn(r)?, QueueId(r.u64()?));
            let works = transactions::works(r, stored)?;
            Item::Operations { txn, queue, works, in_doubt: flags & IN_DOUBT != 0 }
        }
        code::COMPLETED => {
            let (at_ms, order) = (r.u64()?, r.u64()?);
            let xid = transactions::xid(r)?;
            Item::Completed { xid, outcome: Outcome { committed: flags & COMMITTED != 0, at_ms, order } }
        }
        code::SESSION => {
            let (id, floor, used_ms) = (ClientSession(transactions::id(r)?), r.u64()?, r.u64()?);
            let runs = Ranges::new(r.rest())?.collect();
            Item::Session { id, session: Session { floor, runs, used_ms } }
        }
        code::PRODUCER => {
            let key = (QueueId(r.u64()?), ProducerId(transactions::id(r)?));
            let (floor, used_ms) = (r.u64()?, r.u64()?);
            let runs = Ranges::new(r.rest())?.collect();
            Item::Producer { key, producer: Session { floor, runs, used_ms } }
        }
        code::DUPLICATE_ID => {
            let key = (QueueId(r.u64()?), DuplicateId(transactions::id(r)?));
            Item::DuplicateId { key, at_ms: r.u64()? }
        }
        _ => return Err(Malformed),
    })
}

fn lost(r: &mut Reader<'_>) -> Result<LostPart, Malformed> {
    let (queue, wall_ms) = (QueueId(r.u64()?), r.u64()? as i64);
    Ok(LostPart { queue, who: r.text()?.into(), reason: r.text()?.into(), wall_ms })
}

/// Operations that are still to be told.
#[derive(Debug)]
struct List {
    txn: TxnId,
    queue: QueueId,
    in_doubt: bool,
    works: Arc<Vec<Kept>>,
    from: usize,
}

/// How far the telling of transactions is.
#[derive(Debug, Default)]
pub(super) struct Telling {
    lists: VecDeque<List>,
}

impl Telling {
    /// Tells more, as long as there are looks left at entries and room in the slice; true: all is told. Bodies are counted in `whole`.
    pub(super) fn go_on(
        &mut self,
        transactions: &mut Transactions,
        looks: &mut usize,
        out: &mut Vec<u8>,
        whole: &mut Tally,
    ) -> bool {
        while *looks > 0 && out.len() < SLICE_BYTES {
            if let Some(list) = self.lists.front_mut() {
                if list.tell(looks, out, whole) {
                    self.lists.pop_front();
                }
            } else if !self.next(transactions, looks, out) {
                return *looks > 0;
            }
        }
        false
    }

    /// Tells the next thing, but for its operations; false: no look is left, or there is none.
    fn next(&mut self, transactions: &mut Transactions, looks: &mut usize, out: &mut Vec<u8>) -> bool {
        if let Some((txn, branch)) = transactions.branches.tell(looks) {
            *looks = looks.saturating_sub(BRANCH_COST);
            put_branch(out, txn, &branch);
            for (queue, part) in branch.parts {
                self.add(txn, queue, true, part.lists);
            }
        } else if let Some(((txn, queue), ahead)) = transactions.open.tell(looks) {
            let start = open(out, code::AHEAD, 0, 0, 0);
            put_txn(out, txn);
            put_u64(out, queue.0);
            put_u32(out, ahead.records);
            close(out, start);
            self.add(txn, queue, false, ahead.part.lists);
        } else if let Some((xid, outcome)) = transactions.completed.outcomes.tell(looks) {
            let start = open(out, code::COMPLETED, if outcome.committed { COMMITTED } else { 0 }, 0, 0);
            [outcome.at_ms, outcome.order].into_iter().for_each(|n| put_u64(out, n));
            put_xid(out, &xid);
            close(out, start);
        } else if let Some((id, session)) = transactions.sessions.sessions.tell(looks) {
            let start = open(out, code::SESSION, 0, 0, 0);
            out.extend_from_slice(&id.0);
            [session.floor, session.used_ms].into_iter().for_each(|n| put_u64(out, n));
            put_ranges(out, session.runs.into_iter());
            close(out, start);
        } else if let Some(((queue, producer), known)) = transactions.producers.producers.tell(looks) {
            let start = open(out, code::PRODUCER, 0, 0, 0);
            put_u64(out, queue.0);
            out.extend_from_slice(&producer.0);
            [known.floor, known.used_ms].into_iter().for_each(|n| put_u64(out, n));
            put_ranges(out, known.runs.into_iter());
            close(out, start);
        } else if let Some(((queue, id), at_ms)) = transactions.ids.ids.tell(looks) {
            let start = open(out, code::DUPLICATE_ID, 0, 0, 0);
            put_u64(out, queue.0);
            out.extend_from_slice(&id.0);
            put_u64(out, at_ms);
            close(out, start);
        } else {
            return false;
        }
        true
    }

    fn add(&mut self, txn: TxnId, queue: QueueId, in_doubt: bool, lists: Vec<Arc<Vec<Kept>>>) {
        self.lists.extend(lists.into_iter().map(|works| List { txn, queue, in_doubt, works, from: 0 }));
    }
}

impl List {
    /// Tells the next operations; true: these are the last.
    fn tell(&mut self, looks: &mut usize, out: &mut Vec<u8>, whole: &mut Tally) -> bool {
        let mut room = SLICE_BYTES.saturating_sub(out.len());
        let fits = |work: &&Kept| {
            let fits = room > 0;
            room = room.saturating_sub(bytes(work));
            fits
        };
        let count = self.works[self.from..].iter().take(*looks).take_while(fits).count();
        *looks -= count;
        let start = open(out, code::OPERATIONS, if self.in_doubt { IN_DOUBT } else { 0 }, 0, 0);
        put_txn(out, self.txn);
        put_u64(out, self.queue.0);
        put_u32(out, count as u32);
        for work in &self.works[self.from..self.from + count] {
            match work {
                Work::Add { index, head, content } => {
                    put_add(out, *index, head, matches!(content, Stored::Large { .. }));
                    put_stored(out, content);
                    if let Stored::Body { place, .. } = content {
                        whole.add(place.segment, 1);
                    }
                }
                Work::Remove { sequence, deliveries, attempts, redelivery } => {
                    put_remove(out, *sequence, (*deliveries, *attempts), redelivery.as_deref());
                }
                Work::Number { producer, number, floor } => put_number(out, *producer, *number, *floor),
                Work::DuplicateId(id) => put_id(out, *id),
            }
        }
        close(out, start);
        self.from += count;
        self.from == self.works.len()
    }
}

/// About its length when it is told.
fn bytes(work: &Kept) -> usize {
    let overlay = match work {
        Work::Remove { redelivery: Some(back), .. } => back.overlay.as_deref(),
        Work::Remove { .. } | Work::Add { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
    };
    let detail = |overlay: &Overlay| overlay.dead_letter.as_ref().map_or(0, |letter| letter.detail.len());
    OPERATION_BYTES + overlay.map_or(0, |overlay| overlay.annotations.len() + detail(overlay))
}

fn put_branch(out: &mut Vec<u8>, txn: TxnId, branch: &Branch) {
    let Branch { facts, lost, volatile, decided, parts: _ } = branch;
    let flags = decided.as_ref().map_or(0, |decided| DECIDED | if decided.commit { COMMITTED } else { 0 });
    let start = open(out, code::BRANCH, flags, 0, 0);
    put_txn(out, txn);
    [facts.at_ms, facts.wall_ms as u64, *volatile].into_iter().for_each(|n| put_u64(out, n));
    put_xid(out, &facts.xid);
    put_bytes(out, facts.client.as_bytes());
    put_u32(out, lost.len() as u32);
    for LostPart { queue, who, reason, wall_ms } in lost {
        [queue.0, *wall_ms as u64].into_iter().for_each(|n| put_u64(out, n));
        put_bytes(out, who.as_bytes());
        put_bytes(out, reason.as_bytes());
    }
    if let Some(decided) = decided {
        put_heuristic(out, decided);
    }
    close(out, start);
}
