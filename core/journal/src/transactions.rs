//! What a store keeps of transactions: operations that went ahead, branches in doubt or decided by an operator, what is
//! remembered of completed ones, clients' sessions, producers that number their messages. The fold of a start and the live index keep the same.
//!
//! Must not know: entries, segments' counts. Who asks puts what happens into queues.

mod completed;
mod ids;
mod producers;
mod sessions;

use crate::bytes_io::Malformed;
use crate::index::{Place, Stored};
use crate::record::Where;
use crate::record::transactions::{Commit, Part as Recorded, Prepare, Work};
use crate::watched::Watched;
use packhorse_model::{LargeId, QueueId, Sequence, TxnId, Xid};
use packhorse_store::{Decide, Heuristic, HeuristicOutcome, LostPart, Numbers, Remember};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use completed::{Completed, Outcome};
pub(crate) use ids::{Ids, Key as IdKey};
pub(crate) use producers::{Key as ProducerKey, Producers};
pub(crate) use sessions::{Session, Sessions};

/// Why a record cannot be taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is none of this version's.
    Malformed,
    /// What it rests on is not there: what, in a sentence.
    Missing(String),
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Refused {
        Refused::Malformed
    }
}

/// An operation with the place of its message.
pub(crate) type Kept = Work<Stored>;

impl Work<Where> {
    /// As others see it: `batch` is where the batch's content begins.
    #[inline]
    pub(crate) fn at(self, batch: Place) -> Result<Kept, Malformed> {
        Ok(match self {
            Work::Add { index, head, content } => Work::Add { index, head, content: content.at(batch)? },
            Work::Remove { sequence, deliveries, attempts, redelivery } => {
                Work::Remove { sequence, deliveries, attempts, redelivery }
            }
            Work::Number { producer, number, floor } => Work::Number { producer, number, floor },
            Work::DuplicateId(id) => Work::DuplicateId(id),
        })
    }
}

impl Where {
    /// Where it is: `batch` is where the batch's content begins.
    #[inline]
    pub(crate) fn at(self, batch: Place) -> Result<Stored, Malformed> {
        Ok(match self {
            Where::Body { offset, length, crc } => {
                let offset = batch.offset.checked_add(offset).ok_or(Malformed)?;
                Stored::Body { place: Place { segment: batch.segment, offset }, length, crc }
            }
            Where::Large { id, length } => Stored::Large { id, length },
        })
    }
}

/// A list of operations, where they are now.
pub(crate) fn placed(works: Vec<Work<Where>>, batch: Place) -> Result<Vec<Kept>, Malformed> {
    works.into_iter().map(|work| work.at(batch)).collect()
}

/// A transaction's operations in a queue: lists that came one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) lists: Vec<Arc<Vec<Kept>>>,
    /// Some are numbers of producers, or duplicate ids.
    pub(crate) numbered: bool,
    /// The first and the last entry that a commit brings back.
    pub(crate) returned: Option<(Sequence, Sequence)>,
}

impl Part {
    pub(crate) fn push(&mut self, works: Vec<Kept>) {
        if !works.is_empty() {
            for work in &works {
                match work {
                    Work::Number { .. } | Work::DuplicateId(_) => self.numbered = true,
                    Work::Remove { sequence, redelivery: Some(_), .. } => {
                        let (first, last) = self.returned.unwrap_or((*sequence, *sequence));
                        self.returned = Some((first.min(*sequence), last.max(*sequence)));
                    }
                    Work::Add { .. } | Work::Remove { .. } => {}
                }
            }
            self.lists.push(Arc::new(works));
        }
    }

    /// In their order.
    pub(crate) fn works(&self) -> impl Iterator<Item = &Kept> {
        self.lists.iter().flat_map(|list| list.iter())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// A part of which no record says yet what becomes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    pub(crate) part: Part,
    /// How many records, and operations without numbers, it is.
    pub(crate) records: u32,
    pub(crate) ops: u64,
}

impl Open {
    pub(crate) fn push(&mut self, works: Vec<Kept>) {
        self.ops += works.iter().filter(|work| work.counts()).count() as u64;
        self.part.push(works);
    }
}

/// What a branch is, for ever.
#[derive(Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) xid: Xid,
    pub(crate) client: Arc<str>,
    pub(crate) wall_ms: i64,
    pub(crate) at_ms: u64,
}

/// A branch in doubt, or decided by an operator and not forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) facts: Arc<Facts>,
    pub(crate) parts: BTreeMap<QueueId, Part>,
    pub(crate) lost: Vec<LostPart>,
    /// Operations of messages that are not persistent.
    pub(crate) volatile: u64,
    /// An operator's decision of the whole.
    pub(crate) decided: Option<Box<Heuristic>>,
}

/// A part that is decided, or given up.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) queue: QueueId,
    pub(crate) part: Part,
    /// What it adds gets these; `None`: it is rolled back.
    pub(crate) numbers: Option<Numbers>,
    pub(crate) commit: bool,
    /// When, in broker time, ms.
    pub(crate) at_ms: u64,
}

/// What a record says of a producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    pub(crate) key: ProducerKey,
    pub(crate) floor: u64,
    pub(crate) stored: Option<u64>,
    pub(crate) at_ms: u64,
}

/// A commit's part.
#[derive(Debug)]
pub(crate) struct Committed {
    /// What went ahead.
    pub(crate) ahead: Part,
    /// When, in broker time, ms.
    pub(crate) at_ms: u64,
    /// What is in its record.
    pub(crate) recorded: Recorded,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Transactions {
    remember: Remember,
    pub(crate) open: Watched<(TxnId, QueueId), Open>,
    pub(crate) branches: Watched<TxnId, Branch>,
    names: BTreeMap<Xid, TxnId>,
    pub(crate) completed: Completed,
    pub(crate) sessions: Sessions,
    pub(crate) producers: Producers,
    pub(crate) ids: Ids,
}

impl Default for Transactions {
    fn default() -> Transactions {
        Transactions::new(Remember::default())
    }
}

impl Transactions {
    pub(crate) fn new(remember: Remember) -> Transactions {
        Transactions {
            remember,
            open: Watched::default(),
            branches: Watched::default(),
            names: BTreeMap::new(),
            completed: Completed::default(),
            sessions: Sessions::default(),
            producers: Producers::default(),
            ids: Ids::default(),
        }
    }

    /// From now on what is told of all this is what it is now; or nothing any more.
    pub(crate) fn watch(&mut self, watch: bool) {
        self.open.watch(watch);
        self.branches.watch(watch);
        self.completed.outcomes.watch(watch);
        self.sessions.sessions.watch(watch);
        self.producers.producers.watch(watch);
        self.ids.ids.watch(watch);
    }

    /// Operations that go ahead.
    pub(crate) fn ahead(&mut self, txn: TxnId, queue: QueueId, works: Vec<Kept>) {
        let key = (txn, queue);
        if self.open.get(&key).is_none() {
            self.open.insert(key, Open::default());
        }
        let open = self.open.get_mut(&key).expect("it was just looked for");
        open.records += 1;
        open.push(works);
    }

    /// A branch that is told by a checkpoint.
    pub(crate) fn restore(&mut self, txn: TxnId, branch: Branch) {
        self.names.insert(branch.facts.xid.clone(), txn);
        self.branches.insert(txn, branch);
    }

    /// A commit: its parts in queues that there are, and what went ahead and is given up.
    pub(crate) fn commit(
        &mut self,
        commit: Commit,
        exists: impl Fn(QueueId) -> bool,
    ) -> Result<(Vec<Committed>, Vec<Leaving>), Refused> {
        let Commit { txn, parts, token, xid, at_ms } = commit;
        let mut committed = Vec::with_capacity(parts.len());
        for recorded in parts {
            let ahead = self.close(txn, &recorded, "commit", exists(recorded.queue))?;
            committed.push(Committed { ahead, at_ms, recorded });
        }
        if let Some(xid) = xid {
            self.complete(xid, true, at_ms);
        }
        if let Some(token) = token {
            self.expire(at_ms);
            self.sessions.commit(token.session, token.counter, at_ms, &self.remember);
        }
        Ok((committed, self.give_up(txn)))
    }

    /// A branch is in doubt. `fresh`: operations of its record by queue, where they are now. Answers what went ahead and is given up.
    pub(crate) fn prepare(
        &mut self,
        prepare: Prepare,
        batch: Place,
        exists: impl Fn(QueueId) -> bool,
    ) -> Result<Vec<Leaving>, Refused> {
        let Prepare { txn, xid, client, parts, wall_ms, at_ms } = prepare;
        if let Some(before) = self.names.get(&xid) {
            return Err(Refused::Missing(format!(
                "branch {xid} is prepared, and as transaction {before} it is already"
            )));
        }
        let (mut volatile, mut kept) = (0, BTreeMap::new());
        for mut recorded in parts {
            let there = exists(recorded.queue);
            let mut part = self.close(txn, &recorded, "prepare", there)?;
            let all = recorded.figures.adds + recorded.figures.removes;
            let here = recorded.works.iter().filter(|work| work.counts()).count() as u64;
            volatile += all.saturating_sub(recorded.ahead.ops + here);
            part.push(placed(std::mem::take(&mut recorded.works), batch)?);
            if there && !part.is_empty() {
                kept.insert(recorded.queue, part);
            }
        }
        let facts = Arc::new(Facts { xid, client, wall_ms, at_ms });
        self.restore(txn, Branch { facts, parts: kept, lost: Vec::new(), volatile, decided: None });
        Ok(self.give_up(txn))
    }

    /// What went ahead of a part that is decided.
    fn close(&mut self, txn: TxnId, part: &Recorded, what: &str, exists: bool) -> Result<Part, Refused> {
        let key = (txn, part.queue);
        let there = self.open.get(&key).map_or((0, 0), |open| (open.records, open.ops));
        let named = (part.ahead.records, part.ahead.ops);
        // A queue takes what it has with it when it goes.
        if there != named && exists {
            return Err(Refused::Missing(format!(
                "the {what} of transaction {txn} says that {} records with {} operations went ahead of it in queue {}; \
                 there are {} with {}",
                named.0, named.1, part.queue, there.0, there.1
            )));
        }
        Ok(self.open.remove(&key).map(|open| open.part).unwrap_or_default())
    }

    /// What went ahead and is named by no part of the record that decided.
    fn give_up(&mut self, txn: TxnId) -> Vec<Leaving> {
        let left = self.open.keys_from((txn, QueueId(0))).take_while(|(t, _)| *t == txn).copied();
        let left: Vec<(TxnId, QueueId)> = left.collect();
        left.into_iter().filter_map(|key| self.drop_open(&key)).collect()
    }

    /// What went ahead is rolled back.
    pub(crate) fn drop_open(&mut self, key: &(TxnId, QueueId)) -> Option<Leaving> {
        let part = self.open.remove(key)?.part;
        Some(Leaving { queue: key.1, part, numbers: None, commit: false, at_ms: 0 })
    }

    /// A start: what no record names never will be, and neither will removes of entries that are not there.
    pub(crate) fn start(&mut self, there: impl Fn(QueueId, Sequence) -> bool) {
        let open: Vec<(TxnId, QueueId)> = self.open.iter().map(|(key, _)| *key).collect();
        open.iter().for_each(|key| drop(self.open.remove(key)));
        let branches: Vec<TxnId> = self.branches.iter().map(|(txn, _)| *txn).collect();
        for txn in branches {
            let Some(branch) = self.branches.get_mut(&txn) else { continue };
            let mut lost = 0;
            for (queue, list) in branch.parts.iter_mut().flat_map(|(id, part)| part.lists.iter_mut().map(|l| (*id, l)))
            {
                let gone = |work: &Kept| matches!(work, Work::Remove { sequence, .. } if !there(queue, *sequence));
                if list.iter().any(gone) {
                    let before = list.len();
                    Arc::make_mut(list).retain(|work| !gone(work));
                    lost += (before - list.len()) as u64;
                }
            }
            branch.volatile += lost;
        }
    }

    /// A branch is decided by its manager. Answers its parts.
    pub(crate) fn decide(&mut self, decide: Decide) -> Result<Vec<Leaving>, Refused> {
        let Decide { xid, commit, numbers, at_ms } = decide;
        let txn = self.in_doubt(&xid, "decision")?;
        self.names.remove(&xid);
        let parts = self.branches.remove(&txn).map(|branch| branch.parts);
        self.complete(xid, commit, at_ms);
        Ok(leaving(parts.unwrap_or_default(), commit, &numbers, at_ms))
    }

    /// A branch is decided by an operator, or a part of it. Answers the parts that this decides.
    pub(crate) fn heuristic(&mut self, heuristic: Heuristic) -> Result<Vec<Leaving>, Refused> {
        let txn = self.in_doubt(&heuristic.xid, "decision of an operator")?;
        let Some(branch) = self.branches.get_mut(&txn) else { return Ok(Vec::new()) };
        Ok(match heuristic.outcome {
            HeuristicOutcome::PartRolledBack(queue) => {
                let Heuristic { who, reason, wall_ms, .. } = heuristic;
                branch.lost.push(LostPart { queue, who, reason, wall_ms });
                let part = branch.parts.remove(&queue).map(|part| (queue, part));
                leaving(part.into_iter().collect(), false, &[], heuristic.at_ms)
            }
            _ => {
                let parts = std::mem::take(&mut branch.parts);
                let left = leaving(parts, heuristic.commit, &heuristic.numbers, heuristic.at_ms);
                branch.decided = Some(Box::new(heuristic));
                left
            }
        })
    }

    /// Nothing is kept of a branch that is over.
    pub(crate) fn forget(&mut self, xid: &Xid) -> Result<(), Refused> {
        self.completed.remove(xid);
        let Some(txn) = self.names.get(xid) else { return Ok(()) };
        if self.branches.get(txn).is_some_and(|branch| branch.decided.is_none()) {
            return Err(Refused::Missing(format!("branch {xid} is to be forgotten, and no record decides it")));
        }
        self.branches.remove(txn);
        self.names.remove(xid);
        Ok(())
    }

    /// A queue is gone, and with it its producers and what transactions have in it. Answers the latter.
    pub(crate) fn queue_gone(&mut self, queue: QueueId) -> Vec<Leaving> {
        self.producers.queue_gone(queue);
        self.ids.queue_gone(queue);
        let open: Vec<(TxnId, QueueId)> = self.open.iter().map(|(key, _)| *key).filter(|key| key.1 == queue).collect();
        let mut gone: Vec<Leaving> = open.iter().filter_map(|key| self.drop_open(key)).collect();
        let with = self.branches.iter().filter(|(_, branch)| branch.parts.contains_key(&queue));
        let with: Vec<TxnId> = with.map(|(txn, _)| *txn).collect();
        for txn in with {
            let part = self.branches.get_mut(&txn).and_then(|branch| branch.parts.remove(&queue));
            gone.extend(part.map(|part| Leaving { queue, part, numbers: None, commit: false, at_ms: 0 }));
        }
        gone
    }

    /// The branch of this name, whose outcome is open.
    fn in_doubt(&self, xid: &Xid, what: &str) -> Result<TxnId, Refused> {
        let txn = self.names.get(xid);
        let txn = txn.filter(|txn| self.branches.get(txn).is_some_and(|branch| branch.decided.is_none()));
        let missing =
            || Refused::Missing(format!("a {what} names branch {xid}, and no branch of this name is in doubt"));
        txn.copied().ok_or_else(missing)
    }

    fn complete(&mut self, xid: Xid, committed: bool, at_ms: u64) {
        self.completed.put(xid, committed, at_ms, &self.remember);
        self.expire(at_ms);
    }

    /// Forgets what is too old at this broker time, ms.
    pub(crate) fn expire(&mut self, at_ms: u64) {
        self.completed.expire(at_ms, &self.remember);
        self.sessions.expire(at_ms, &self.remember);
    }

    /// A start, at this broker time, ms: forgets what is too old.
    pub(crate) fn expire_all(&mut self, at_ms: u64) {
        self.expire(at_ms);
        self.producers.expire(at_ms, &self.remember);
        self.ids.expire(at_ms, &self.remember);
    }

    /// Of committed operations in a queue that is there: numbers and duplicate ids of what is added.
    pub(crate) fn number_all<'a>(&mut self, queue: QueueId, works: impl Iterator<Item = &'a Kept>, at_ms: u64) {
        for work in works {
            match *work {
                Work::Number { producer, number, floor } => {
                    let key = (queue, producer);
                    self.numbered(Numbering { key, floor, stored: Some(number), at_ms }, true);
                }
                Work::DuplicateId(id) => self.identified((queue, id), at_ms, true),
                Work::Add { .. } | Work::Remove { .. } => {}
            }
        }
    }

    /// A producer numbers its messages in a queue that is there, if `exists`.
    #[cold]
    pub(crate) fn numbered(&mut self, told: Numbering, exists: bool) {
        let Numbering { key, floor, stored, at_ms } = told;
        self.producers.expire(at_ms, &self.remember);
        if exists {
            self.producers.take(key, floor, stored, at_ms, &self.remember);
        }
    }

    /// A message has a duplicate id, in a queue that is there, if `exists`.
    #[cold]
    pub(crate) fn identified(&mut self, key: IdKey, at_ms: u64, exists: bool) {
        self.ids.expire(at_ms, &self.remember);
        if exists {
            self.ids.take(key, at_ms, &self.remember);
        }
    }

    /// Lists of operations that are kept: those of open parts, and those of branches.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (QueueId, &Part, bool)> {
        let open = self.open.iter().map(|((_, queue), open)| (*queue, &open.part, false));
        let branches = self.branches.iter().flat_map(|(_, branch)| &branch.parts);
        open.chain(branches.map(|(queue, part)| (*queue, part, true)))
    }

    /// Large messages that are added.
    pub(crate) fn large(&self) -> impl Iterator<Item = LargeId> {
        self.parts().flat_map(|(_, part, _)| part.works()).filter_map(|work| match work {
            Work::Add { content: Stored::Large { id, .. }, .. } => Some(*id),
            _ => None,
        })
    }
}

fn leaving(parts: BTreeMap<QueueId, Part>, commit: bool, numbers: &[(QueueId, Numbers)], at_ms: u64) -> Vec<Leaving> {
    let of = |queue| numbers.iter().find(|(q, _)| *q == queue).map(|(_, numbers)| *numbers);
    parts.into_iter().map(|(queue, part)| Leaving { queue, part, numbers: of(queue), commit, at_ms }).collect()
}

/// The number of an added message.
pub(crate) fn number(queue: QueueId, numbers: Option<Numbers>, index: u32) -> Result<u64, Refused> {
    let number = numbers.filter(|n| index < n.count).and_then(|n| n.first.checked_add(u64::from(index)));
    number.ok_or_else(|| {
        Refused::Missing(format!(
            "a commit has no number for message {index} that it adds to queue {queue}: {numbers:?}"
        ))
    })
}
