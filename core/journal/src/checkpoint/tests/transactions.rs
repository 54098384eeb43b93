//! Random operations of transactions for a history.

use super::History;
use packhorse_model::{
    BrokerId, ClientSession, DuplicateId, EntryKey, LargeId, ProducerId, QueueId, Sequence, ShardId, Token, TxnId, Xid,
};
use packhorse_store::{
    Ahead, Batch, Commit, Decide, Figures, Heuristic, HeuristicOutcome, Numbers, Op, Prepare, Redelivery, Stored,
    TxOps, TxnOp, TxnPart,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A part as the history knows it.
#[derive(Default)]
struct Staged {
    ahead: Ahead,
    adds: u32,
    /// Whether a commit brings it back.
    removes: Vec<(Sequence, bool)>,
}

type Parts = BTreeMap<QueueId, Staged>;

/// Transactions of a history.
#[derive(Default)]
pub(super) struct Transactions {
    open: Vec<(TxnId, Parts)>,
    /// In doubt.
    branches: Vec<(Xid, Parts)>,
    /// Decided in one way or another: they may be forgotten, and completed ones come again.
    ended: Vec<(Xid, bool)>,
    count: u64,
    ms: u64,
    /// Large messages.
    pub(super) large: u64,
}

impl History {
    /// A start: what no record names is gone.
    pub(super) fn start(&mut self) {
        for (_, parts) in std::mem::take(&mut self.transactions.open) {
            self.back(parts);
        }
    }

    /// Entries that are not removed after all.
    fn back(&mut self, parts: Parts) {
        self.come_back(parts, false);
    }

    /// The same, of all or of those that a commit brings back.
    fn come_back(&mut self, parts: Parts, committed: bool) {
        for (queue, part) in parts {
            if self.next.contains_key(&queue.0) {
                let back = part.removes.into_iter().filter(|(_, returned)| *returned || !committed);
                self.live.extend(back.map(|(sequence, _)| EntryKey { queue, sequence }));
            }
        }
    }

    fn some_ops(&mut self, batch: &mut Batch, queue: QueueId, part: &mut Staged) -> Vec<TxnOp> {
        let mut ops = Vec::new();
        for _ in 0..self.below(4) {
            // Rather young ones: old ones are suspects.
            let at = self.live.iter().rposition(|key| key.queue == queue);
            if let Some(at) = at
                && self.below(3) == 0
            {
                let EntryKey { sequence, .. } = self.live.remove(at);
                let redelivery = (self.below(3) == 0).then(|| {
                    let overlay = (self.below(2) == 0).then(|| self.overlay());
                    Arc::new(Redelivery { deliveries: 7, attempts: 4, overlay })
                });
                part.removes.push((sequence, redelivery.is_some()));
                ops.push(TxnOp::Acknowledge {
                    sequence,
                    deliveries: 1 + self.below(5) as u32,
                    attempts: 3,
                    redelivery,
                });
                continue;
            }
            // Messages that are not persistent have no operation.
            part.adds += u32::from(self.below(8) == 0);
            let content = match self.below(8) {
                0 => {
                    self.transactions.large += 1;
                    Stored::Large { id: LargeId(self.draw.next()), length: 6 }
                }
                n => Stored::Body(batch.copy_body(&vec![n as u8; n as usize])),
            };
            ops.push(TxnOp::Enqueue { index: part.adds, head: self.head(), content });
            part.adds += 1;
            if self.below(3) == 0 {
                let (producer, number) = (ProducerId([self.below(2) as u8; 16]), self.below(50));
                ops.push(TxnOp::Number { producer, number, floor: self.below(9) });
            } else if self.below(3) == 0 {
                ops.push(TxnOp::DuplicateId(DuplicateId([self.below(9) as u8; 16])));
            }
        }
        ops
    }

    fn ahead(&mut self, batch: &mut Batch, txn: TxnId, parts: &mut Parts) {
        let queue = self.some_queue();
        let part = parts.entry(queue).or_default();
        let (before, record) = (batch.content_bytes(), part.ahead.records);
        let ops = self.some_ops(batch, queue, part);
        part.ahead.records += 1;
        part.ahead.ops += ops.iter().filter(|op| op.counts()).count() as u64;
        part.ahead.bytes += (batch.content_bytes() - before) as u64;
        batch.push(Op::TxOps(Box::new(TxOps { txn, queue, record, ops })));
    }

    /// A transaction that is open, or a new one, to be ended.
    fn some_transaction(&mut self) -> (TxnId, Parts) {
        let n = self.transactions.open.len() as u64;
        if n > 0 && self.below(4) > 0 {
            let at = self.below(n) as usize;
            return self.transactions.open.remove(at);
        }
        self.transactions.count += 1;
        let number = self.transactions.count;
        // Not in the order of their numbers, for there are several homes.
        (TxnId { run: 1, number, home: ShardId((number % 3) as u16) }, Parts::new())
    }

    /// What is told of parts that end now.
    fn told(&mut self, batch: &mut Batch, parts: &mut Parts, numbers: bool) -> Vec<(QueueId, TxnPart)> {
        if self.below(2) == 0 {
            parts.entry(self.some_queue()).or_default();
        }
        let told = parts.iter_mut().map(|(queue, part)| {
            let ops = self.some_ops(batch, *queue, part);
            let numbers = (numbers && part.adds > 0).then(|| self.numbers(*queue, part.adds));
            (*queue, TxnPart { ops, ahead: part.ahead, numbers, ..TxnPart::default() })
        });
        told.collect()
    }

    /// Numbers for messages, whose queue may be gone.
    fn numbers(&mut self, queue: QueueId, count: u32) -> Numbers {
        let first = match self.next.get_mut(&queue.0) {
            Some(next) => {
                let first = *next + 1;
                *next += u64::from(count);
                self.live.extend((first..=*next).map(|sequence| EntryKey { queue, sequence }));
                first
            }
            None => 7,
        };
        Numbers { first, count }
    }

    fn numbers_of(&mut self, parts: &Parts) -> Vec<(QueueId, Numbers)> {
        let adds = parts.iter().filter(|(_, part)| part.adds > 0);
        adds.map(|(queue, part)| (*queue, self.numbers(*queue, part.adds))).collect()
    }

    fn some_xid(&mut self) -> Xid {
        let again = self.transactions.ended.iter().position(|(_, completed)| *completed);
        if let Some(at) = again
            && self.below(4) == 0
        {
            return self.transactions.ended.remove(at).0;
        }
        self.transactions.count += 1;
        Xid::new(1, &self.transactions.count.to_be_bytes(), &[2]).unwrap()
    }

    fn at_ms(&mut self) -> u64 {
        self.transactions.ms += self.below(10);
        self.transactions.ms
    }

    pub(super) fn numbered(&mut self, batch: &mut Batch) {
        let (queue, producer) = (self.some_queue(), ProducerId([self.below(4) as u8; 16]));
        if self.below(4) > 0 {
            batch.push(Op::Producer { queue, producer, floor: self.below(20), stored: None, at_ms: self.at_ms() });
        }
        let (floor, stored) = (self.below(20), Some(self.below(40)));
        batch.push(Op::Producer { queue, producer, floor, stored, at_ms: self.at_ms() });
        let (id, at_ms) = (DuplicateId([self.below(9) as u8; 16]), self.at_ms());
        batch.push(Op::DuplicateId { queue, id, at_ms });
    }

    pub(super) fn transaction(&mut self, batch: &mut Batch) {
        match self.below(20) {
            0..6 => {
                let (txn, mut parts) = self.some_transaction();
                self.ahead(batch, txn, &mut parts);
                self.transactions.open.push((txn, parts));
            }
            6..10 => {
                let (txn, mut parts) = self.some_transaction();
                if self.below(12) == 0 {
                    // Given up by a record that names nothing.
                    let (parts, at_ms) = (std::mem::take(&mut parts), self.at_ms());
                    self.back(parts);
                    batch.push(Op::Commit(Box::new(Commit { txn, parts: Vec::new(), token: None, xid: None, at_ms })));
                    return;
                }
                let told = self.told(batch, &mut parts, true);
                self.come_back(parts, true);
                let session = ClientSession([self.below(3) as u8; 16]);
                let counter = self.transactions.count * 2 / (1 + self.below(3));
                let token = (self.below(2) == 0).then_some(Token { broker: BrokerId([1; 16]), session, counter });
                let xid = (self.below(4) == 0).then(|| self.some_xid());
                self.transactions.ended.extend(xid.clone().map(|xid| (xid, true)));
                batch.push(Op::Commit(Box::new(Commit { txn, parts: told, token, xid, at_ms: self.at_ms() })));
            }
            10..14 => {
                let ((txn, mut parts), xid) = (self.some_transaction(), self.some_xid());
                let told = self.told(batch, &mut parts, false);
                let told = told.into_iter().map(|(queue, part)| {
                    let Staged { adds, removes, .. } = &parts[&queue];
                    (queue, part, Figures { adds: u64::from(*adds), removes: removes.len() as u64, bytes: 9 })
                });
                let (parts_told, at_ms) = (told.collect(), self.at_ms());
                let (client, wall_ms) = ("client".into(), -7);
                let prepare = Prepare { txn, xid: xid.clone(), client, parts: parts_told, wall_ms, at_ms };
                batch.push(Op::Prepare(Box::new(prepare)));
                self.transactions.branches.push((xid, parts));
            }
            _ if self.transactions.branches.is_empty() => {}
            what => {
                let at = self.below(self.transactions.branches.len() as u64) as usize;
                let (xid, mut parts) = self.transactions.branches.remove(at);
                let (commit, at_ms) = (self.below(2) == 0, self.at_ms());
                let numbers = if commit { self.numbers_of(&parts) } else { Vec::new() };
                if what < 17 {
                    self.come_back(parts, commit);
                    batch.push(Op::Decide(Box::new(Decide { xid: xid.clone(), commit, numbers, at_ms })));
                    self.transactions.ended.push((xid, true));
                } else if what < 19 {
                    let some = parts.keys().next().copied().filter(|_| !commit && self.below(2) == 0);
                    let outcome = match some {
                        Some(queue) => HeuristicOutcome::PartRolledBack(queue),
                        None if commit => HeuristicOutcome::Committed,
                        None => HeuristicOutcome::Mixed,
                    };
                    let (who, reason, wall_ms) = ("ann".into(), "old".into(), 8);
                    let told = Heuristic { xid: xid.clone(), outcome, commit, numbers, who, reason, wall_ms, at_ms };
                    batch.push(Op::Heuristic(Box::new(told)));
                    if let Some(queue) = some {
                        let part = parts.remove(&queue).map(|part| (queue, part));
                        self.back(part.into_iter().collect());
                        self.transactions.branches.push((xid, parts));
                    } else {
                        self.come_back(parts, commit);
                        self.transactions.ended.push((xid, false));
                    }
                } else {
                    self.transactions.branches.push((xid, parts));
                    if let Some((xid, _)) = self.transactions.ended.pop() {
                        batch.push(Op::Forget { xid });
                    }
                }
            }
        }
    }
}
