//! What operations of transactions mean.

use super::{Entry, Model, Stuff, same, stuff};
use bytes::Bytes;
use packhorse_model::{ClientSession, DuplicateId, EntryKey, Head, ProducerId, QueueId, Sequence, TxnId, Xid};
use packhorse_store::{
    Figures, Heuristic, HeuristicOutcome, LostPart, Numbers, Op, Recovered, RecoveredBranch, RecoveredWork, Redelivery,
    TxnOp, TxnPart,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Add(u32, Head, Stuff),
    /// With the numbers after a rollback, and what a commit makes of the entry if it does not remove it.
    Remove(Sequence, u32, u32, Option<Arc<Redelivery>>),
    Number(ProducerId, u64, u64),
    Id(DuplicateId),
}

/// A branch in doubt or decided by an operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Branch {
    pub(crate) txn: TxnId,
    client: String,
    times: (i64, u64),
    pub(crate) parts: BTreeMap<QueueId, Vec<Work>>,
    lost: Vec<LostPart>,
    volatile: u64,
    pub(crate) decided: Option<Heuristic>,
}

/// Of all that is kept of transactions. Nothing is forgotten: the bounds are not reached here.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Transactions {
    /// What went ahead: records, and operations.
    pub(crate) ahead: BTreeMap<(TxnId, QueueId), (u32, Vec<Work>)>,
    pub(crate) branches: BTreeMap<Xid, Branch>,
    /// In the order of their ends, whose times are the same.
    pub(crate) completed: Vec<(Xid, bool, u64)>,
    /// The first number that was committed, all numbers, and the last time.
    sessions: BTreeMap<ClientSession, (u64, BTreeSet<u64>, u64)>,
}

impl Transactions {
    pub(super) fn queue_gone(&mut self, id: QueueId) {
        self.ahead.retain(|(_, queue), _| *queue != id);
        self.branches.values_mut().for_each(|branch| drop(branch.parts.remove(&id)));
    }

    fn complete(&mut self, xid: &Xid, committed: bool, at_ms: u64) {
        self.completed.retain(|(x, ..)| x != xid);
        self.completed.push((xid.clone(), committed, at_ms));
        self.completed.sort_by_key(|(.., at_ms)| *at_ms);
    }
}

fn works(ops: &[TxnOp], pieces: &[Bytes]) -> Vec<Work> {
    let works = ops.iter().map(|op| match op.clone() {
        TxnOp::Enqueue { index, head, content } => Work::Add(index, head, stuff(content, pieces)),
        TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery } => {
            Work::Remove(sequence, deliveries, attempts, redelivery)
        }
        TxnOp::Number { producer, number, floor } => Work::Number(producer, number, floor),
        TxnOp::DuplicateId(id) => Work::Id(id),
    });
    works.collect()
}

impl Model {
    pub(super) fn transaction(&mut self, op: &Op, pieces: &[Bytes]) {
        match op {
            Op::TxOps(ops) => {
                let (records, ahead) = self.transactions.ahead.entry((ops.txn, ops.queue)).or_default();
                assert_eq!(*records, ops.record, "the workload counts its records");
                *records += 1;
                ahead.extend(works(&ops.ops, pieces));
            }
            Op::TxDrop { txn, queue } => drop(self.transactions.ahead.remove(&(*txn, *queue))),
            Op::Commit(commit) => {
                for (queue, part) in &commit.parts {
                    let works = self.whole(commit.txn, *queue, part, pieces);
                    self.happen(*queue, works, part.numbers, commit.at_ms);
                }
                self.transactions.ahead.retain(|(txn, _), _| *txn != commit.txn);
                if let Some(xid) = &commit.xid {
                    self.transactions.complete(xid, true, commit.at_ms);
                }
                if let Some(token) = &commit.token {
                    let (_, numbers, used) =
                        self.transactions.sessions.entry(token.session).or_insert((token.counter, BTreeSet::new(), 0));
                    numbers.insert(token.counter);
                    *used = commit.at_ms.max(*used);
                }
            }
            Op::Prepare(prepare) => {
                let (mut parts, mut volatile) = (BTreeMap::new(), 0);
                for (queue, part, figures) in &prepare.parts {
                    let works = self.whole(prepare.txn, *queue, part, pieces);
                    volatile += figures.adds + figures.removes - messages(&works);
                    for work in &works {
                        if let Work::Remove(sequence, ..) = *work
                            && let Some(entry) = self.entries.get_mut(&EntryKey { queue: *queue, sequence })
                        {
                            (entry.held, entry.suspect) = (true, None);
                        }
                    }
                    parts.insert(*queue, works);
                }
                let (txn, client, times) = (prepare.txn, prepare.client.to_string(), (prepare.wall_ms, prepare.at_ms));
                let branch = Branch { txn, client, times, parts, lost: Vec::new(), volatile, decided: None };
                let before = self.transactions.branches.insert(prepare.xid.clone(), branch);
                assert!(before.is_none(), "the workload prepares a branch once");
            }
            Op::Decide(decide) => {
                let branch =
                    self.transactions.branches.remove(&decide.xid).expect("the workload decides what is there");
                self.end(branch.parts, decide.commit, &decide.numbers, decide.at_ms);
                self.transactions.complete(&decide.xid, decide.commit, decide.at_ms);
            }
            Op::Heuristic(heuristic) => {
                let branches = &mut self.transactions.branches;
                let branch = branches.get_mut(&heuristic.xid).expect("the workload decides what is there");
                let parts = if let HeuristicOutcome::PartRolledBack(queue) = heuristic.outcome {
                    let Heuristic { who, reason, wall_ms, .. } = (**heuristic).clone();
                    branch.lost.push(LostPart { queue, who, reason, wall_ms });
                    branch.parts.remove(&queue).map(|works| (queue, works)).into_iter().collect()
                } else {
                    branch.decided = Some((**heuristic).clone());
                    std::mem::take(&mut branch.parts)
                };
                self.end(parts, heuristic.commit, &heuristic.numbers, heuristic.at_ms);
            }
            Op::Forget { xid } => {
                self.transactions.branches.remove(xid);
                self.transactions.completed.retain(|(x, ..)| x != xid);
            }
            other => unreachable!("no operation of a transaction: {other:?}"),
        }
    }

    fn whole(&mut self, txn: TxnId, queue: QueueId, part: &TxnPart, pieces: &[Bytes]) -> Vec<Work> {
        let (records, mut whole) = self.transactions.ahead.remove(&(txn, queue)).unwrap_or_default();
        assert_eq!((records, messages(&whole)), (part.ahead.records, part.ahead.ops), "the workload counts");
        whole.extend(works(&part.ops, pieces));
        whole
    }

    fn happen(&mut self, queue: QueueId, works: Vec<Work>, numbers: Option<Numbers>, at_ms: u64) {
        for work in works {
            match work {
                Work::Add(index, head, content) => {
                    let first = numbers.expect("the workload draws numbers").first;
                    let key = EntryKey { queue, sequence: first + u64::from(index) };
                    let before = self.entries.insert(key, Entry::new(head, content, false));
                    assert!(before.is_none(), "the workload draws each number once");
                }
                Work::Remove(sequence, .., None) => drop(self.entries.remove(&EntryKey { queue, sequence })),
                Work::Remove(sequence, .., Some(back)) => {
                    if let Some(entry) = self.entries.get_mut(&EntryKey { queue, sequence }) {
                        (entry.deliveries, entry.attempts, entry.held) = (back.deliveries, back.attempts, false);
                        (entry.suspect, entry.overlay) = (None, back.overlay.clone().or(entry.overlay.take()));
                    }
                }
                Work::Number(producer, number, floor) => self.numbered(queue, producer, floor, Some(number), at_ms),
                Work::Id(id) => drop(self.ids.insert((queue, id), at_ms)),
            }
        }
    }

    fn end(&mut self, parts: BTreeMap<QueueId, Vec<Work>>, commit: bool, numbers: &[(QueueId, Numbers)], at_ms: u64) {
        for (queue, works) in parts {
            if commit {
                let numbers = numbers.iter().find(|(id, _)| *id == queue).map(|(_, numbers)| *numbers);
                self.happen(queue, works, numbers, at_ms);
                continue;
            }
            for work in works {
                if let Work::Remove(sequence, deliveries, attempts, _) = work
                    && let Some(entry) = self.entries.get_mut(&EntryKey { queue, sequence })
                {
                    (entry.deliveries, entry.attempts, entry.held) = (deliveries, attempts, false);
                }
            }
        }
    }

    /// Entries that are not volatile are left alone.
    pub(super) fn start_transactions(&mut self) {
        self.transactions.ahead.clear();
        for branch in self.transactions.branches.values_mut() {
            for (queue, works) in &mut branch.parts {
                let before = works.len();
                works.retain(|work| match *work {
                    Work::Add(..) | Work::Number(..) | Work::Id(_) => true,
                    Work::Remove(sequence, ..) => self.entries.contains_key(&EntryKey { queue: *queue, sequence }),
                });
                branch.volatile += (before - works.len()) as u64;
            }
        }
    }

    /// In which way what a start told of transactions differs from this model.
    pub(super) fn transactions_differ(&self, told: &[Vec<Recovered>]) -> Option<String> {
        let (mut parts, mut branches) = (BTreeMap::<(TxnId, QueueId), Vec<&RecoveredWork>>::new(), BTreeMap::new());
        let (mut completed, mut sessions) = (Vec::new(), Vec::new());
        for (shard, thing) in told.iter().enumerate().flat_map(|(shard, own)| own.iter().map(move |t| (shard, t))) {
            match thing {
                Recovered::BranchOp(op) if usize::from(op.queue.owner(told.len() as u16).0) != shard => {
                    return Some(format!("shard {shard} is told of {op:?}"));
                }
                Recovered::BranchOp(op) => parts.entry((op.txn, op.queue)).or_default().push(&op.op),
                Recovered::Branch(branch) => drop(branches.insert(branch.xid.clone(), &**branch)),
                Recovered::Completed { xid, committed, at_ms } => completed.push((xid.clone(), *committed, *at_ms)),
                Recovered::Session(session) => sessions.push(&**session),
                _ => {}
            }
        }
        if completed != self.transactions.completed {
            return Some(format!("completed branches are {completed:?} and not {:?}", self.transactions.completed));
        }
        if sessions.len() != self.transactions.sessions.len() {
            return Some(format!("{} sessions came", sessions.len()));
        }
        for session in sessions {
            let Some((floor, numbers, used)) = self.transactions.sessions.get(&session.session) else {
                return Some(format!("a session that is not there: {session:?}"));
            };
            let found: BTreeSet<u64> = session.runs.iter().flat_map(|(first, last)| *first..=*last).collect();
            if (session.floor, &found, session.used_ms) != (*floor, numbers, *used) {
                return Some(format!("{session:?} is not {numbers:?} from {floor} on"));
            }
        }
        if branches.len() != self.transactions.branches.len() {
            return Some(format!("{} branches came, and not {}", branches.len(), self.transactions.branches.len()));
        }
        for (xid, expected) in &self.transactions.branches {
            let Some(found) = branches.get(xid) else { return Some(format!("branch {xid} is missing")) };
            let mut figures = Vec::new();
            for (queue, works) in expected.parts.iter().filter(|(_, works)| !works.is_empty()) {
                let found = parts.remove(&(expected.txn, *queue)).unwrap_or_default();
                if found.len() != works.len() || !works.iter().zip(&found).all(|(work, found)| work.is(found)) {
                    return Some(format!("branch {xid} has {found:?} in queue {queue}, and not {works:?}"));
                }
                figures.push((*queue, counted(works)));
            }
            let Branch { txn, client, times: (wall_ms, at_ms), lost, volatile, decided, .. } = expected.clone();
            let (xid, decided) = (xid.clone(), decided.map(Box::new));
            let client = client.as_str().into();
            let expected =
                RecoveredBranch { txn, xid, client, wall_ms, at_ms, parts: figures, lost, volatile, decided };
            if **found != expected {
                return Some(format!("{found:?} and not {expected:?}"));
            }
        }
        parts.keys().next().map(|part| format!("operations that are no branch's: {part:?}"))
    }
}

impl Work {
    fn is(&self, found: &RecoveredWork) -> bool {
        match (self, found) {
            (Work::Add(n, expected, stuff), RecoveredWork::Enqueue { index, head, content }) => {
                (n, expected) == (index, head) && same(stuff, content)
            }
            (Work::Remove(n, d, a, r), RecoveredWork::Acknowledge { sequence, deliveries, attempts, redelivery }) => {
                (n, d, a, r) == (sequence, deliveries, attempts, redelivery)
            }
            (Work::Id(expected), RecoveredWork::DuplicateId(id)) => expected == id,
            (Work::Number(p, n, f), RecoveredWork::Number { producer, number, floor }) => {
                (p, n, f) == (producer, number, floor)
            }
            _ => false,
        }
    }
}

/// How many of them add or remove a message.
pub(crate) fn messages(works: &[Work]) -> u64 {
    works.iter().filter(|work| !matches!(work, Work::Number(..) | Work::Id(_))).count() as u64
}

fn counted(works: &[Work]) -> Figures {
    let mut figures = Figures::default();
    for work in works {
        match work {
            Work::Add(_, _, stuff) => {
                figures.adds += 1;
                figures.bytes += match stuff {
                    Stuff::Bytes(bytes) => bytes.len() as u64,
                    Stuff::Large(_, length) => *length,
                };
            }
            Work::Remove(..) => figures.removes += 1,
            Work::Number(..) | Work::Id(_) => {}
        }
    }
    figures
}
