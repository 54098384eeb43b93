//! What records of transactions do to the fold, and what a start recovers of them.

use super::{Fold, Folded, Queue};
use crate::bytes_io::Malformed;
use crate::checkpoint::Item;
use crate::index::{Note, Place, Stored};
use crate::record::transactions::{Transactional, Work};
use crate::transactions::{Branch, Committed, Facts, Kept, Leaving, Open, Refused, number, placed};
use packhorse_model::{Content, Head, QueueId, Resident, Sequence, TxnId};
use packhorse_store::{
    Figures, Numbers, Recovered, RecoveredBranch, RecoveredOp, RecoveredProducer, RecoveredSession, RecoveredWork,
    Redelivery,
};

impl Fold {
    /// Takes in what a checkpoint says of transactions.
    pub(super) fn tell(&mut self, item: Item<'_>) -> Result<(), Malformed> {
        let kept = &mut self.transactions;
        match item {
            Item::Branch { txn, branch } => kept.restore(txn, branch),
            Item::Ahead { txn, queue, records } => kept.open.insert((txn, queue), Open { records, ..Open::default() }),
            Item::Operations { txn, queue, works, in_doubt: false } => {
                kept.open.get_mut(&(txn, queue)).ok_or(Malformed)?.push(works);
            }
            Item::Operations { txn, queue, works, in_doubt: true } => {
                kept.branches.get_mut(&txn).ok_or(Malformed)?.parts.entry(queue).or_default().push(works);
            }
            Item::Completed { xid, outcome } => kept.completed.restore(xid, outcome),
            Item::Session { id, session } => kept.sessions.restore(id, session),
            Item::Producer { key, producer } => kept.producers.restore(key, producer),
            Item::DuplicateId { key, at_ms } => kept.ids.restore(key, at_ms),
            other => unreachable!("nothing of a transaction: {other:?}"),
        }
        Ok(())
    }

    /// Takes in a record of a transaction; `batch` is where its batch's content begins.
    #[cold]
    pub(super) fn transaction(&mut self, record: Transactional, batch: Place) -> Result<(), Refused> {
        match record {
            Transactional::TxOps(ops) if self.queues.contains_key(&ops.queue) => {
                self.transactions.ahead(ops.txn, ops.queue, placed(ops.works, batch)?);
            }
            Transactional::TxOps(_) => {}
            Transactional::TxDrop { txn, queue } => drop(self.transactions.drop_open(&(txn, queue))),
            Transactional::Commit(commit) => {
                let (committed, _) = self.transactions.commit(commit, |id| self.queues.contains_key(&id))?;
                for Committed { ahead, at_ms, recorded } in committed {
                    let works = placed(recorded.works, batch)?;
                    self.add(recorded.queue, ahead.works(), recorded.numbers, true)?;
                    self.add(recorded.queue, works.iter(), recorded.numbers, false)?;
                    self.remove(recorded.queue, ahead.works().chain(&works));
                    self.number(recorded.queue, ahead.works().chain(&works), at_ms);
                }
            }
            Transactional::Prepare(prepare) => {
                let txn = prepare.txn;
                self.transactions.prepare(prepare, batch, |id| self.queues.contains_key(&id))?;
                self.hold(txn);
            }
            Transactional::Decide(decide) => {
                let left = self.transactions.decide(decide)?;
                left.into_iter().try_for_each(|left| self.decided(left))?;
            }
            Transactional::Heuristic(heuristic) => {
                let left = self.transactions.heuristic(heuristic)?;
                left.into_iter().try_for_each(|left| self.decided(left))?;
            }
            Transactional::Forget { xid } => self.transactions.forget(&xid)?,
        }
        Ok(())
    }

    /// What a branch in doubt removes is held.
    fn hold(&mut self, txn: TxnId) {
        for (queue, part) in self.transactions.branches.get(&txn).iter().flat_map(|branch| &branch.parts) {
            if let Some(queue) = self.queues.get_mut(queue) {
                part.works().for_each(|work| queue.hold(work));
            }
        }
    }

    /// As [`Fold::hold`], of all branches that a checkpoint tells.
    pub(super) fn hold_all(&mut self) {
        let all: Vec<TxnId> = self.transactions.branches.iter().map(|(txn, _)| *txn).collect();
        all.into_iter().for_each(|txn| self.hold(txn));
    }

    /// Messages are added to a queue. `noted`: no record tells their heads together with their numbers.
    fn add<'a>(
        &mut self,
        id: QueueId,
        works: impl Iterator<Item = &'a Kept>,
        numbers: Option<Numbers>,
        noted: bool,
    ) -> Result<(), Refused> {
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        if let Some(Numbers { first, count }) = numbers {
            queue.facts.reserved = queue.facts.reserved.max(first.saturating_add(u64::from(count)));
        }
        for work in works {
            let Work::Add { index, head, content } = *work else { continue };
            queue.entries.insert(Folded::new(number(id, numbers, index)?, head, content, noted));
        }
        Ok(())
    }

    /// Entries are removed, or come back.
    fn remove<'a>(&mut self, id: QueueId, works: impl Iterator<Item = &'a Kept>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        for work in works {
            let Work::Remove { sequence, redelivery, .. } = work else { continue };
            queue.held.remove(sequence);
            match redelivery {
                None => queue.entries.remove(*sequence, *sequence, |e| e.live = false),
                Some(back) => queue.redeliver(*sequence, (**back).clone()),
            }
        }
    }

    fn number<'a>(&mut self, id: QueueId, works: impl Iterator<Item = &'a Kept>, at_ms: u64) {
        if self.queues.contains_key(&id) {
            self.transactions.number_all(id, works, at_ms);
        }
    }

    fn decided(&mut self, left: Leaving) -> Result<(), Refused> {
        let Leaving { queue: id, part, numbers, commit, at_ms } = left;
        if commit {
            self.add(id, part.works(), numbers, true)?;
            self.remove(id, part.works());
            self.number(id, part.works(), at_ms);
        } else if let Some(queue) = self.queues.get_mut(&id) {
            part.works().for_each(|work| queue.come_back(work));
        }
        Ok(())
    }

    /// A start has come: transactions without an end are over.
    pub(super) fn start_transactions(&mut self) {
        let queues = &self.queues;
        self.transactions.start(|queue, sequence| {
            let next = queues.get(&queue).and_then(|queue| queue.entries.from(sequence).next());
            next.is_some_and(|entry| entry.sequence == sequence)
        });
    }

    /// Operations of branches in doubt, and producers, by shard, and what shard 0 is told of branches, completed ones and sessions.
    pub(super) fn recovered(&self, shards: u16) -> (Vec<Vec<Recovered>>, Vec<Recovered>) {
        let mut ops: Vec<Vec<Recovered>> = (0..shards).map(|_| Vec::new()).collect();
        let mut rest = Vec::new();
        for (txn, Branch { facts, parts, lost, volatile, decided }) in self.transactions.branches.iter() {
            let mut figures = Vec::with_capacity(parts.len());
            for (queue, part) in parts {
                let out = &mut ops[usize::from(queue.owner(shards).0)];
                let mut survived = Figures::default();
                for work in part.works() {
                    let op = match work.clone() {
                        Work::Add { index, head, content } => {
                            let content = told(content);
                            survived.adds += 1;
                            survived.bytes += content.length();
                            RecoveredWork::Enqueue { index, head, content }
                        }
                        Work::Remove { sequence, deliveries, attempts, redelivery } => {
                            survived.removes += 1;
                            RecoveredWork::Acknowledge { sequence, deliveries, attempts, redelivery }
                        }
                        Work::Number { producer, number, floor } => RecoveredWork::Number { producer, number, floor },
                        Work::DuplicateId(id) => RecoveredWork::DuplicateId(id),
                    };
                    out.push(Recovered::BranchOp(Box::new(RecoveredOp { txn: *txn, queue: *queue, op })));
                }
                if survived != Figures::default() {
                    figures.push((*queue, survived));
                }
            }
            let Facts { xid, client, wall_ms, at_ms } = &**facts;
            rest.push(Recovered::Branch(Box::new(RecoveredBranch {
                txn: *txn,
                xid: xid.clone(),
                client: client.clone(),
                wall_ms: *wall_ms,
                at_ms: *at_ms,
                parts: figures,
                lost: lost.clone(),
                volatile: *volatile,
                decided: decided.clone(),
            })));
        }
        for (&(queue, producer), known) in self.transactions.producers.producers.iter() {
            let runs = known.runs.iter().map(|(first, last)| (*first, *last)).collect();
            let (floor, used_ms) = (known.floor, known.used_ms);
            let told = RecoveredProducer { queue, producer, floor, runs, used_ms };
            ops[usize::from(queue.owner(shards).0)].push(Recovered::Producer(Box::new(told)));
        }
        for (&(queue, id), &at_ms) in self.transactions.ids.ids.iter() {
            ops[usize::from(queue.owner(shards).0)].push(Recovered::DuplicateId { queue, id, at_ms });
        }
        rest.extend(self.transactions.completed.by_time().map(|(xid, outcome)| Recovered::Completed {
            xid: xid.clone(),
            committed: outcome.committed,
            at_ms: outcome.at_ms,
        }));
        rest.extend(self.transactions.sessions.sessions.iter().map(|(id, session)| {
            Recovered::Session(Box::new(RecoveredSession {
                session: *id,
                floor: session.floor,
                runs: session.runs.iter().map(|(first, last)| (*first, *last)).collect(),
                used_ms: session.used_ms,
            }))
        }));
        (ops, rest)
    }
}

/// A content as a shard is told of it: not in memory.
pub(super) fn told(stored: Stored) -> Content {
    match stored {
        Stored::Body { length, .. } => Content::Body(Resident { buffer: 0, offset: 0, length }),
        Stored::Large { id, length } => Content::Large { id, length },
    }
}

impl Queue {
    /// An entry is removed by a branch in doubt; whoever got it has answered, so that no crash is blamed on it.
    fn hold(&mut self, work: &Kept) {
        if let Work::Remove { sequence, .. } = *work {
            self.held.insert(sequence);
            self.numbers.get_mut(&sequence).into_iter().for_each(|note: &mut Note| note.suspect = None);
            self.entries.get_mut(sequence).into_iter().for_each(|entry| entry.suspect = None);
        }
    }

    /// It is not removed after all.
    fn come_back(&mut self, work: &Kept) {
        if let Work::Remove { sequence, deliveries, attempts, .. } = *work {
            self.held.remove(&sequence);
            self.redeliver(sequence, Redelivery { deliveries, attempts, overlay: None });
        }
    }
}

impl Folded {
    /// A message that has just come in. `moved`: under this key no record tells it.
    pub(super) fn new(sequence: Sequence, head: Head, stored: Stored, moved: bool) -> Folded {
        Folded {
            sequence,
            live: true,
            head,
            stored,
            deliveries: 0,
            attempts: 0,
            overlay: None,
            suspect: None,
            moved: moved || matches!(stored, Stored::Large { .. }),
        }
    }
}
