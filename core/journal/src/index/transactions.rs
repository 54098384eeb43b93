//! What records of transactions do to the index. Messages that are added are counted in their segment from their record on, so
//! that it is kept.

use super::behind::Fate;
use super::{Entry, Index, LARGE, Note, Place, Stored, refer, release};
use crate::record::transactions::{Transactional, Work};
use crate::transactions::{Committed, Kept, Leaving, Part, Refused, Transactions, number, placed};
use packhorse_model::{LargeId, QueueId};
use packhorse_store::Numbers;

impl Index {
    /// Takes in a record of a transaction; `batch` is where its batch's content begins. What it does to entries is done by
    /// [`Index::catch_up`].
    #[cold]
    pub(super) fn transaction(
        &mut self,
        record: Transactional,
        batch: Place,
        unlinks: &mut Vec<LargeId>,
    ) -> Result<(), Refused> {
        match record {
            Transactional::TxOps(ops) => {
                // As all else that comes after the queue's end.
                let works = placed(ops.works, batch)?;
                self.count(&works);
                if self.queues.contains_key(&ops.queue) {
                    self.transactions.ahead(ops.txn, ops.queue, works);
                } else {
                    self.drop_works(works.iter(), unlinks);
                }
            }
            Transactional::TxDrop { txn, queue } => {
                let left = self.transactions.drop_open(&(txn, queue));
                left.into_iter().for_each(|left| self.later(queue, left.part, Fate::Drop));
            }
            Transactional::Commit(commit) => {
                let (committed, left) = self.transactions.commit(commit, |id| self.queues.contains_key(&id))?;
                for Committed { ahead, at_ms, recorded } in committed {
                    let (queue, numbers) = (recorded.queue, recorded.numbers);
                    let works = placed(recorded.works, batch)?;
                    self.count(&works);
                    self.later(queue, ahead, Fate::Commit { numbers, noted: true, at_ms });
                    // The record itself tells these, as an Enqueue would.
                    let mut told = Part::default();
                    told.push(works);
                    self.later(queue, told, Fate::Commit { numbers, noted: false, at_ms });
                }
                self.give_up(left);
            }
            Transactional::Prepare(prepare) => {
                for part in &prepare.parts {
                    let works: Result<Vec<Kept>, _> = part.works.iter().map(|work| work.clone().at(batch)).collect();
                    let works = works?;
                    self.count(&works);
                    if !self.queues.contains_key(&part.queue) {
                        self.drop_works(works.iter(), unlinks);
                    }
                }
                let txn = prepare.txn;
                let left = self.transactions.prepare(prepare, batch, |id| self.queues.contains_key(&id))?;
                self.give_up(left);
                let parts = self.transactions.branches.get(&txn).map(|branch| branch.parts.clone());
                for (queue, part) in parts.into_iter().flatten() {
                    self.later(queue, part, Fate::Hold);
                }
            }
            Transactional::Decide(decide) => {
                let left = self.transactions.decide(decide)?;
                left.into_iter().for_each(|left| self.decided(left));
            }
            Transactional::Heuristic(heuristic) => {
                let left = self.transactions.heuristic(heuristic)?;
                left.into_iter().for_each(|left| self.decided(left));
            }
            Transactional::Forget { xid } => self.transactions.forget(&xid)?,
        }
        Ok(())
    }

    /// What went ahead of nothing, or goes with its queue.
    pub(super) fn give_up(&mut self, left: Vec<Leaving>) {
        left.into_iter().for_each(|left| self.later(left.queue, left.part, Fate::Drop));
    }

    /// Messages are added by a transaction: from here on their bodies are needed.
    fn count(&mut self, works: &[Kept]) {
        for work in works {
            match work {
                Work::Add { content: Stored::Body { place, .. }, .. } => self.live.add(place.segment, 1),
                Work::Add { content: Stored::Large { id, .. }, .. } => refer(&mut self.references, *id),
                Work::Remove { .. } | Work::Number { .. } | Work::DuplicateId(_) => {}
            }
        }
    }

    /// Messages are not added after all.
    pub(super) fn drop_works<'a>(&mut self, works: impl Iterator<Item = &'a Kept>, unlinks: &mut Vec<LargeId>) {
        for work in works {
            match work {
                Work::Add { content: Stored::Body { place, .. }, .. } => self.live.take(place.segment, 1),
                Work::Add { content: Stored::Large { id, .. }, .. } => release(&mut self.references, *id, unlinks),
                Work::Remove { .. } | Work::Number { .. } | Work::DuplicateId(_) => {}
            }
        }
    }

    /// Messages that were counted become entries. `noted`: no record tells their heads together with their numbers.
    pub(super) fn add(
        &mut self,
        id: QueueId,
        works: &[Kept],
        numbers: Option<Numbers>,
        noted: bool,
        unlinks: &mut Vec<LargeId>,
    ) -> Result<(), Refused> {
        let Some(queue) = self.queues.get_mut(&id) else {
            self.drop_works(works.iter(), unlinks);
            return Ok(());
        };
        for work in works {
            let Work::Add { index, head, content } = *work else { continue };
            let sequence = number(id, numbers, index)?;
            let (entry, large) = match content {
                Stored::Body { place, length, crc } => (Entry { sequence, place, length, crc }, None),
                Stored::Large { id, length } => {
                    let place = Place { segment: LARGE, offset: 0 };
                    (Entry { sequence, place, length: 0, crc: 0 }, Some((id, length)))
                }
            };
            if noted || large.is_some() {
                let note = Note { head: Some(head), large, ..Note::default() };
                queue.notes.insert(sequence, Box::new(note));
            }
            queue.insert(head.level(), entry);
        }
        Ok(())
    }

    /// A part of a branch is decided.
    fn decided(&mut self, left: Leaving) {
        let Leaving { queue, part, numbers, commit, at_ms } = left;
        let fate = if commit { Fate::Commit { numbers, noted: true, at_ms } } else { Fate::Rollback };
        self.later(queue, part, fate);
    }

    /// Puts back what a start has found of transactions, once all queues and entries are there.
    pub(crate) fn restore_transactions(&mut self, transactions: Transactions) {
        for (id, part, in_doubt) in transactions.parts() {
            for list in &part.lists {
                self.count(list);
            }
            if in_doubt && let Some(queue) = self.queues.get_mut(&id) {
                part.lists.iter().for_each(|list| queue.hold(list));
            }
        }
        self.transactions = transactions;
    }
}
