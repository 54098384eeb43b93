//! What operations of transactions mean: work that went ahead, branches in doubt, and how they end.
//!
//! Must not know: how long what is completed is remembered.

use super::{Entry, Image, Stuff};
use crate::{
    Commit, Decide, Figures, Heuristic, HeuristicOutcome, LostPart, Numbers, Prepare, Recovered, RecoveredBranch,
    RecoveredOp, RecoveredWork, Redelivery, Stored, TxOps, TxnOp, TxnPart,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{DuplicateId, EntryKey, Head, LargeId, ProducerId, QueueId, Sequence, TxnId, Xid};

/// One operation, with its content.
#[derive(Clone, Debug)]
enum Work {
    Enqueue { index: u32, head: Head, content: Stuff },
    Acknowledge { sequence: Sequence, deliveries: u32, attempts: u32, redelivery: Option<Arc<Redelivery>> },
    Number { producer: ProducerId, number: u64, floor: u64 },
    DuplicateId(DuplicateId),
}

/// What of a part went ahead.
#[derive(Clone, Debug, Default)]
struct Ahead {
    records: u32,
    /// Of bodies.
    bytes: u64,
    work: Vec<Work>,
}

#[derive(Clone, Debug)]
struct Branch {
    txn: TxnId,
    client: Arc<str>,
    wall_ms: i64,
    at_ms: u64,
    parts: BTreeMap<QueueId, Vec<Work>>,
    lost: Vec<LostPart>,
    volatile: u64,
    decided: Option<Box<Heuristic>>,
}

/// Transactions that are not over.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches {
    ahead: BTreeMap<(TxnId, QueueId), Ahead>,
    branches: BTreeMap<Xid, Branch>,
}

impl Image {
    /// Operations are kept, and mean nothing yet. Those for a queue that is not there are nothing, here and below.
    pub(super) fn tx_ops(&mut self, ops: &TxOps, pieces: &[Bytes]) {
        let (work, bytes) = self.work(&ops.ops, pieces);
        if !self.queues.contains_key(&ops.queue) {
            self.drop_work(&work);
            return;
        }
        let ahead = self.branches.ahead.entry((ops.txn, ops.queue)).or_default();
        assert_eq!(ahead.records, ops.record, "a part's records come in order");
        ahead.records += 1;
        ahead.bytes += bytes;
        ahead.work.extend(work);
    }

    pub(crate) fn parts_ahead(&self) -> usize {
        self.branches.ahead.len()
    }

    /// What went ahead in a queue will never be.
    pub(super) fn tx_drop(&mut self, txn: TxnId, queue: QueueId) {
        if let Some(ahead) = self.branches.ahead.remove(&(txn, queue)) {
            self.drop_work(&ahead.work);
        }
    }

    /// The queue is deleted, and every part in it with it. A branch in doubt stays, without that part; nobody deletes a queue
    /// with such a part before that was rolled back by force.
    pub(super) fn parts_gone(&mut self, queue: QueueId) {
        let ahead = self.branches.ahead.extract_if(.., |(_, id), _| *id == queue).map(|(_, ahead)| ahead.work);
        let parts = self.branches.branches.values_mut().filter_map(|branch| branch.parts.remove(&queue));
        let gone: Vec<Work> = ahead.chain(parts).flatten().collect();
        self.drop_work(&gone);
    }

    /// Messages are not added after all.
    fn drop_work(&mut self, work: &[Work]) {
        for work in work {
            if let Work::Enqueue { content, .. } = work {
                self.drop_content(content);
            }
        }
    }

    /// What went ahead and is named by no part of the record that has decided.
    fn give_up(&mut self, txn: TxnId) {
        let left: Vec<QueueId> =
            self.branches.ahead.keys().filter(|(t, _)| *t == txn).map(|(_, queue)| *queue).collect();
        left.into_iter().for_each(|queue| self.tx_drop(txn, queue));
    }

    pub(super) fn commit(&mut self, commit: &Commit, pieces: &[Bytes]) {
        for (queue, part) in &commit.parts {
            if let Some(work) = self.whole(commit.txn, *queue, part, pieces) {
                self.happen(*queue, work, part.numbers, commit.at_ms);
            }
        }
        self.give_up(commit.txn);
        if let Some(xid) = &commit.xid {
            self.remembered.complete(xid, true, commit.at_ms);
        }
        if let Some(token) = &commit.token {
            self.remembered.committed(token, commit.at_ms);
        }
    }

    /// What the branch removes is held from now on: it stays, and is not touched by what may happen to those that are ready.
    pub(super) fn prepare(&mut self, prepare: &Prepare, pieces: &[Bytes]) {
        let mut parts = BTreeMap::new();
        let mut volatile = 0;
        for (queue, part, figures) in &prepare.parts {
            let Some(work) = self.whole(prepare.txn, *queue, part, pieces) else { continue };
            let all = figures.adds + figures.removes;
            volatile += all.checked_sub(messages(&work)).expect("a part's figures count all of its operations");
            for work in &work {
                if let Work::Acknowledge { sequence, .. } = *work
                    && let Some(entry) = self.entry(&EntryKey { queue: *queue, sequence })
                {
                    assert!(!entry.held, "an entry is in one branch");
                    // It was acknowledged, so nobody died of it.
                    (entry.held, entry.suspect) = (true, None);
                }
            }
            parts.insert(*queue, work);
        }
        self.give_up(prepare.txn);
        let Prepare { txn, client, wall_ms, at_ms, .. } = prepare.clone();
        let branch = Branch { txn, client, wall_ms, at_ms, parts, lost: Vec::new(), volatile, decided: None };
        let before = self.branches.branches.insert(prepare.xid.clone(), branch);
        assert!(before.is_none(), "an xid is prepared once");
    }

    pub(super) fn decide(&mut self, decide: &Decide) {
        let branch = self.branches.branches.remove(&decide.xid).expect("what is decided was prepared");
        assert!(branch.decided.is_none(), "a branch is decided once");
        self.end(branch.parts, decide.commit, &decide.numbers, decide.at_ms);
        self.remembered.complete(&decide.xid, decide.commit, decide.at_ms);
    }

    pub(super) fn heuristic(&mut self, heuristic: &Heuristic) {
        let branch = self.branches.branches.get_mut(&heuristic.xid).expect("what is decided was prepared");
        assert!(branch.decided.is_none(), "a branch is decided once");
        let parts = if let HeuristicOutcome::PartRolledBack(queue) = heuristic.outcome {
            assert!(!heuristic.commit, "a part that is rolled back is not committed");
            let Heuristic { who, reason, wall_ms, .. } = heuristic.clone();
            branch.lost.push(LostPart { queue, who, reason, wall_ms });
            branch.parts.remove(&queue).map(|work| (queue, work)).into_iter().collect()
        } else {
            branch.decided = Some(Box::new(heuristic.clone()));
            core::mem::take(&mut branch.parts)
        };
        self.end(parts, heuristic.commit, &heuristic.numbers, heuristic.at_ms);
    }

    pub(super) fn forget(&mut self, xid: &Xid) {
        let branch = self.branches.branches.remove(xid);
        assert!(branch.is_none_or(|b| b.decided.is_some()), "a branch in doubt is not forgotten");
        self.remembered.forget(xid);
    }

    /// The operations of a part: those that went ahead and those that came with the record. `None`: the queue is not there.
    fn whole(&mut self, txn: TxnId, queue: QueueId, part: &TxnPart, pieces: &[Bytes]) -> Option<Vec<Work>> {
        if !self.queues.contains_key(&queue) {
            let work = self.work(&part.ops, pieces).0;
            self.drop_work(&work);
            return None;
        }
        let Ahead { records, bytes, work: mut whole } = self.branches.ahead.remove(&(txn, queue)).unwrap_or_default();
        let found = crate::Ahead { records, ops: messages(&whole), bytes };
        assert_eq!(found, part.ahead, "what went ahead of {txn}'s record in queue {queue} is all there");
        whole.extend(self.work(&part.ops, pieces).0);
        Some(whole)
    }

    /// Operations with their contents, and bytes of bodies among them.
    fn work(&self, ops: &[TxnOp], pieces: &[Bytes]) -> (Vec<Work>, u64) {
        let mut bytes = 0;
        let work = ops.iter().map(|op| match op.clone() {
            TxnOp::Enqueue { index, head, content } => {
                if let Stored::Body(body) = content {
                    bytes += u64::from(body.length);
                }
                Work::Enqueue { index, head, content: self.stuff(content, pieces) }
            }
            TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery } => {
                Work::Acknowledge { sequence, deliveries, attempts, redelivery }
            }
            TxnOp::Number { producer, number, floor } => Work::Number { producer, number, floor },
            TxnOp::DuplicateId(id) => Work::DuplicateId(id),
        });
        (work.collect(), bytes)
    }

    /// Parts of a branch come to their end.
    fn end(&mut self, parts: BTreeMap<QueueId, Vec<Work>>, commit: bool, numbers: &[(QueueId, Numbers)], at_ms: u64) {
        for (queue, work) in parts {
            if commit {
                let numbers = numbers.iter().find(|(q, _)| *q == queue).map(|(_, numbers)| *numbers);
                self.happen(queue, work, numbers, at_ms);
            } else {
                self.undo(queue, work);
            }
        }
    }

    /// Adds get their numbers, removes are acknowledged or come back, and what producers call what is added counts.
    fn happen(&mut self, queue: QueueId, work: Vec<Work>, numbers: Option<Numbers>, at_ms: u64) {
        for work in work {
            match work {
                Work::Enqueue { index, head, content } => {
                    let Numbers { first, count } = numbers.expect("a commit has numbers for what it adds");
                    assert!(index < count, "there is a number for each add");
                    self.insert(queue, first + u64::from(index), Entry::new(head, content, false));
                }
                Work::Acknowledge { sequence, redelivery: Some(back), .. } => {
                    if let Some(e) = self.entry(&EntryKey { queue, sequence }) {
                        (e.deliveries, e.attempts) = (back.deliveries, back.attempts);
                        (e.held, e.suspect) = (false, None);
                        if back.overlay.is_some() {
                            e.overlay.clone_from(&back.overlay);
                        }
                    }
                }
                Work::Acknowledge { sequence, redelivery: None, .. } => {
                    if let Some(entry) = self.queues.get_mut(&queue).and_then(|q| q.entries.remove(&sequence)) {
                        self.drop_content(&entry.content);
                    }
                }
                Work::Number { producer, number, floor } => {
                    self.producers.expire(at_ms);
                    self.producers.take((queue, producer), floor, Some(number), at_ms);
                }
                Work::DuplicateId(id) => {
                    self.ids.expire(at_ms);
                    self.ids.take((queue, id), at_ms);
                }
            }
        }
    }

    /// Adds are gone, removes come back as if they had been returned.
    fn undo(&mut self, queue: QueueId, work: Vec<Work>) {
        for work in work {
            match work {
                Work::Enqueue { content, .. } => self.drop_content(&content),
                Work::Acknowledge { sequence, deliveries, attempts, .. } => {
                    if let Some(e) = self.entry(&EntryKey { queue, sequence }) {
                        (e.deliveries, e.attempts, e.held) = (deliveries, attempts, false);
                    }
                }
                Work::Number { .. } | Work::DuplicateId(_) => {}
            }
        }
    }

    /// After a start of the queues: what nothing names is gone, and removes of entries that are gone.
    pub(super) fn start_branches(&mut self) {
        self.branches.ahead.clear();
        for branch in self.branches.branches.values_mut() {
            for (queue, work) in &mut branch.parts {
                let entries = self.queues.get(queue).map(|q| &q.entries);
                let before = work.len();
                work.retain(|work| match work {
                    Work::Enqueue { .. } | Work::Number { .. } | Work::DuplicateId(_) => true,
                    Work::Acknowledge { sequence, .. } => entries.is_some_and(|e| e.contains_key(sequence)),
                });
                branch.volatile += (before - work.len()) as u64;
            }
        }
    }
}

impl Branches {
    /// The operations of branches in doubt in queues that `owned` names.
    pub(super) fn recover_ops(&self, owned: impl Fn(QueueId) -> bool) -> impl Iterator<Item = Recovered> {
        let parts = self.branches.values().flat_map(|b| b.parts.iter().map(|(q, work)| (b.txn, *q, work)));
        let parts = parts.filter(move |(_, queue, _)| owned(*queue));
        parts.flat_map(|(txn, queue, work)| {
            work.iter().map(move |work| {
                let op = match work {
                    Work::Enqueue { index, head, content } => {
                        RecoveredWork::Enqueue { index: *index, head: *head, content: content.recovered() }
                    }
                    Work::Acknowledge { sequence, deliveries, attempts, redelivery } => RecoveredWork::Acknowledge {
                        sequence: *sequence,
                        deliveries: *deliveries,
                        attempts: *attempts,
                        redelivery: redelivery.clone(),
                    },
                    Work::Number { producer, number, floor } => {
                        RecoveredWork::Number { producer: *producer, number: *number, floor: *floor }
                    }
                    Work::DuplicateId(id) => RecoveredWork::DuplicateId(*id),
                };
                Recovered::BranchOp(Box::new(RecoveredOp { txn, queue, op }))
            })
        })
    }

    /// The branches.
    pub(super) fn recover(&self) -> impl Iterator<Item = Recovered> {
        self.branches.iter().map(|(xid, b)| {
            let parts = b.parts.iter().filter(|(_, work)| !work.is_empty());
            Recovered::Branch(Box::new(RecoveredBranch {
                txn: b.txn,
                xid: xid.clone(),
                client: b.client.clone(),
                wall_ms: b.wall_ms,
                at_ms: b.at_ms,
                parts: parts.map(|(queue, work)| (*queue, figures(work))).collect(),
                lost: b.lost.clone(),
                volatile: b.volatile,
                decided: b.decided.clone(),
            }))
        })
    }

    /// Files of messages that branches in doubt add.
    pub(super) fn files(&self) -> impl Iterator<Item = LargeId> {
        let work = self.branches.values().flat_map(|b| b.parts.values().flatten());
        work.filter_map(|work| match work {
            Work::Enqueue { content: Stuff::Large { id, .. }, .. } => Some(*id),
            Work::Enqueue { .. } | Work::Acknowledge { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
        })
    }
}

/// How many of them add or remove a message.
fn messages(work: &[Work]) -> u64 {
    work.iter().filter(|work| !matches!(work, Work::Number { .. } | Work::DuplicateId(_))).count() as u64
}

fn figures(work: &[Work]) -> Figures {
    let mut figures = Figures::default();
    for work in work {
        match work {
            Work::Enqueue { content, .. } => {
                figures.adds += 1;
                figures.bytes += content.recovered().length();
            }
            Work::Acknowledge { .. } => figures.removes += 1,
            Work::Number { .. } | Work::DuplicateId(_) => {}
        }
    }
    figures
}
