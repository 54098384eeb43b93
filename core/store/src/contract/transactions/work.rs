//! The work of transactions as the rules write it: operations, parts, the records of their ends, and what a start is to tell of them.

use super::super::{Build, head, not_in_memory};
use crate::{
    Ahead, Commit, Decide, Figures, Heuristic, HeuristicOutcome, LostPart, Numbers, Op, Prepare, RecoveredWork,
    Redelivery, Stored, TxOps, TxnOp, TxnPart,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{Content, DuplicateId, LargeId, ProducerId, QueueId, Sequence, ShardId, TxnId, Xid};

/// An operation of a transaction, as the rules write them.
#[derive(Clone, Debug)]
pub(in crate::contract) enum Do {
    /// An add of this index, of this priority, with this body.
    Add(u32, u8, Vec<u8>),
    /// An add of this index, with the content of this file.
    Large(u32, LargeId, u64),
    /// A remove of this entry, and what its deliveries and attempts are when it comes back.
    Remove(Sequence, u32, u32),
    /// The same, and what a commit makes of the entry, which does not remove it.
    Return(Sequence, u32, u32, Arc<Redelivery>),
    /// What is added has this number of this producer; its floor.
    Number(ProducerId, u64, u64),
    /// What is added has this duplicate id.
    Id(DuplicateId),
}

/// Adds a message of the usual priority.
pub(in crate::contract) fn add(index: u32, body: &[u8]) -> Do {
    Do::Add(index, 4, body.to_vec())
}

/// Removes an entry that was delivered once.
pub(in crate::contract) fn remove(sequence: Sequence) -> Do {
    Do::Remove(sequence, 1, 1)
}

pub(in crate::contract) fn xid(n: u64) -> Xid {
    Xid::new(7, &n.to_be_bytes(), b"branch").expect("the test's names are valid")
}

pub(in crate::contract) fn txn(number: u64) -> TxnId {
    TxnId { run: 1, number, home: ShardId(0) }
}

/// What went ahead of a part, if it was all of it in one record.
pub(in crate::contract) fn ahead(work: &[Do]) -> Ahead {
    let bytes = work.iter().map(|work| if let Do::Add(_, _, body) = work { body.len() as u64 } else { 0 });
    Ahead { records: 1, ops: messages(work), bytes: bytes.sum() }
}

/// How many of them add or remove a message.
pub(in crate::contract) fn messages(work: &[Do]) -> u64 {
    work.iter().filter(|work| !matches!(work, Do::Number(..) | Do::Id(_))).count() as u64
}

pub(in crate::contract) fn figures(work: &[Do]) -> Figures {
    let mut figures = Figures::default();
    for work in work {
        match work {
            Do::Add(_, _, body) => {
                (figures.adds, figures.bytes) = (figures.adds + 1, figures.bytes + body.len() as u64)
            }
            Do::Large(_, _, length) => (figures.adds, figures.bytes) = (figures.adds + 1, figures.bytes + length),
            Do::Remove(..) | Do::Return(..) => figures.removes += 1,
            Do::Number(..) | Do::Id(_) => {}
        }
    }
    figures
}

/// As a start tells it.
pub(in crate::contract) fn told(work: &[Do]) -> Vec<RecoveredWork> {
    let one = |work: &Do| match work {
        Do::Add(index, priority, body) => {
            let content = not_in_memory(body.len());
            RecoveredWork::Enqueue { index: *index, head: head(*priority), content }
        }
        Do::Large(index, id, length) => {
            let content = Content::Large { id: *id, length: *length };
            RecoveredWork::Enqueue { index: *index, head: head(4), content }
        }
        Do::Remove(sequence, deliveries, attempts) => {
            let (sequence, deliveries, attempts) = (*sequence, *deliveries, *attempts);
            RecoveredWork::Acknowledge { sequence, deliveries, attempts, redelivery: None }
        }
        Do::Return(sequence, deliveries, attempts, redelivery) => {
            let (sequence, deliveries, attempts) = (*sequence, *deliveries, *attempts);
            RecoveredWork::Acknowledge { sequence, deliveries, attempts, redelivery: Some(redelivery.clone()) }
        }
        Do::Number(producer, number, floor) => {
            RecoveredWork::Number { producer: *producer, number: *number, floor: *floor }
        }
        Do::Id(id) => RecoveredWork::DuplicateId(*id),
    };
    work.iter().map(one).collect()
}

/// A part as the rules write it.
#[derive(Clone, Debug, Default)]
pub(in crate::contract) struct Part {
    pub(in crate::contract) ahead: Ahead,
    pub(in crate::contract) work: Vec<Do>,
    pub(in crate::contract) numbers: Option<Numbers>,
    /// The whole, with what went ahead and what is not persistent.
    pub(in crate::contract) figures: Figures,
}

/// A part of which nothing went ahead.
pub(in crate::contract) fn part(work: &[Do]) -> Part {
    Part { work: work.to_vec(), figures: figures(work), ..Part::default() }
}

/// The same, and its adds have so many numbers, from here on.
pub(in crate::contract) fn numbered(work: &[Do], first: Sequence, count: u32) -> Part {
    Part { numbers: Some(Numbers { first, count }), ..part(work) }
}

impl Build {
    fn txn_ops(&mut self, work: &[Do]) -> Vec<TxnOp> {
        let one = |work: &Do| match work {
            Do::Add(index, priority, body) => {
                // Long bodies travel as pieces of their own.
                let content = Stored::Body(if body.len() < 512 {
                    self.0.copy_body(body)
                } else {
                    self.0.share_body(Bytes::copy_from_slice(body))
                });
                TxnOp::Enqueue { index: *index, head: head(*priority), content }
            }
            Do::Large(index, id, length) => {
                let content = Stored::Large { id: *id, length: *length };
                TxnOp::Enqueue { index: *index, head: head(4), content }
            }
            Do::Remove(sequence, deliveries, attempts) => {
                let (sequence, deliveries, attempts) = (*sequence, *deliveries, *attempts);
                TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery: None }
            }
            Do::Return(sequence, deliveries, attempts, redelivery) => {
                let (sequence, deliveries, attempts) = (*sequence, *deliveries, *attempts);
                TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery: Some(redelivery.clone()) }
            }
            Do::Number(producer, number, floor) => {
                TxnOp::Number { producer: *producer, number: *number, floor: *floor }
            }
            Do::Id(id) => TxnOp::DuplicateId(*id),
        };
        work.iter().map(one).collect()
    }

    fn txn_part(&mut self, part: &Part) -> TxnPart {
        TxnPart { ops: self.txn_ops(&part.work), ahead: part.ahead, numbers: part.numbers, ..TxnPart::default() }
    }

    pub(in crate::contract) fn ahead(mut self, txn: TxnId, queue: QueueId, record: u32, work: &[Do]) -> Build {
        let ops = self.txn_ops(work);
        self.op(Op::TxOps(Box::new(TxOps { txn, queue, record, ops })))
    }

    pub(in crate::contract) fn commit(mut self, txn: TxnId, parts: &[(QueueId, Part)], more: Commit) -> Build {
        let parts = parts.iter().map(|(queue, part)| (*queue, self.txn_part(part))).collect();
        self.op(Op::Commit(Box::new(Commit { txn, parts, ..more })))
    }

    pub(in crate::contract) fn prepare(mut self, txn: TxnId, xid: Xid, parts: &[(QueueId, Part)], at_ms: u64) -> Build {
        let parts = parts.iter().map(|(queue, part)| (*queue, self.txn_part(part), part.figures)).collect();
        let (client, wall_ms) = ("ann".into(), at_ms as i64 - 5);
        self.op(Op::Prepare(Box::new(Prepare { txn, xid, client, parts, wall_ms, at_ms })))
    }

    pub(in crate::contract) fn decide(
        self,
        xid: Xid,
        commit: bool,
        numbers: &[(QueueId, Numbers)],
        at_ms: u64,
    ) -> Build {
        self.op(Op::Decide(Box::new(Decide { xid, commit, numbers: numbers.to_vec(), at_ms })))
    }

    pub(in crate::contract) fn heuristic(self, heuristic: &Heuristic) -> Build {
        self.op(Op::Heuristic(Box::new(heuristic.clone())))
    }

    pub(in crate::contract) fn commit_all(self, number: u64, parts: &[(QueueId, Part)]) -> Build {
        self.commit(txn(number), parts, unnamed(1_000))
    }

    pub(in crate::contract) fn prepare_all(self, number: u64, parts: &[(QueueId, Part)]) -> Build {
        self.prepare(txn(number), xid(number), parts, 1_000 + number)
    }
}

/// A commit without a name, at this broker time.
pub(in crate::contract) fn unnamed(at_ms: u64) -> Commit {
    Commit { txn: txn(0), parts: Vec::new(), token: None, xid: None, at_ms }
}

pub(in crate::contract) fn from(first: Sequence, count: u32) -> Numbers {
    Numbers { first, count }
}

pub(in crate::contract) fn force(number: u64, queue: QueueId) -> Heuristic {
    operator(number, HeuristicOutcome::PartRolledBack(queue), &[])
}

pub(in crate::contract) fn operator(
    number: u64,
    outcome: HeuristicOutcome,
    numbers: &[(QueueId, Numbers)],
) -> Heuristic {
    let (who, reason) = (String::from("joe"), String::from("stuck: \u{20ac}"));
    let commit = !numbers.is_empty() || outcome == HeuristicOutcome::Committed;
    Heuristic { xid: xid(number), outcome, commit, numbers: numbers.to_vec(), who, reason, wall_ms: -3, at_ms: 2_000 }
}

pub(in crate::contract) fn lost(queue: QueueId) -> LostPart {
    let Heuristic { who, reason, wall_ms, .. } = force(0, queue);
    LostPart { queue, who, reason, wall_ms }
}
