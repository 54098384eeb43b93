//! What records of transactions do to the index. Messages that are added are counted in their segment from their record on, so
//! that it is kept.

use super::{Entry, Index, LARGE, Note, Place, QueueIndex, Stored, refer, release};
use crate::record::transactions::{Transactional, Work};
use crate::transactions::{Committed, Kept, Leaving, Refused, Transactions, number, placed};
use packhorse_model::{LargeId, QueueId, Sequence};
use packhorse_store::Numbers;

impl Index {
    /// Takes in a record of a transaction; `batch` is where its batch's content begins.
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
                if let Some(left) = self.transactions.drop_open(&(txn, queue)) {
                    self.drop_works(left.part.works(), unlinks);
                }
            }
            Transactional::Commit(commit) => {
                let (committed, left) = self.transactions.commit(commit, |id| self.queues.contains_key(&id))?;
                for Committed { ahead, recorded } in committed {
                    let (queue, numbers) = (recorded.queue, recorded.numbers);
                    let works = placed(recorded.works, batch)?;
                    self.count(&works);
                    self.add(queue, ahead.works(), numbers, true, unlinks)?;
                    // The record itself tells these, as an Enqueue would.
                    self.add(queue, works.iter(), numbers, false, unlinks)?;
                    self.acknowledge(queue, removed(ahead.works().chain(&works)), unlinks);
                }
                left.iter().for_each(|left| self.drop_works(left.part.works(), unlinks));
            }
            Transactional::Prepare(prepare) => {
                for part in &prepare.parts {
                    let works: Result<Vec<Kept>, _> = part.works.iter().map(|work| work.at(batch)).collect();
                    let works = works?;
                    self.count(&works);
                    if !self.queues.contains_key(&part.queue) {
                        self.drop_works(works.iter(), unlinks);
                    }
                }
                let txn = prepare.txn;
                let left = self.transactions.prepare(prepare, batch, |id| self.queues.contains_key(&id))?;
                left.iter().for_each(|left| self.drop_works(left.part.works(), unlinks));
                for (queue, part) in self.transactions.branches.get(&txn).iter().flat_map(|branch| &branch.parts) {
                    if let Some(queue) = self.queues.get_mut(queue) {
                        queue.hold(part.works());
                    }
                }
            }
            Transactional::Decide(decide) => {
                let left = self.transactions.decide(decide)?;
                left.iter().try_for_each(|left| self.decided(left, unlinks))?;
            }
            Transactional::Heuristic(heuristic) => {
                let left = self.transactions.heuristic(heuristic)?;
                left.iter().try_for_each(|left| self.decided(left, unlinks))?;
            }
            Transactional::Forget { xid } => self.transactions.forget(&xid)?,
        }
        Ok(())
    }

    /// Messages are added by a transaction: from here on their bodies are needed.
    fn count(&mut self, works: &[Kept]) {
        for work in works {
            match work {
                Work::Add { content: Stored::Body { place, .. }, .. } => self.live.add(place.segment, 1),
                Work::Add { content: Stored::Large { id, .. }, .. } => refer(&mut self.references, *id),
                Work::Remove { .. } => {}
            }
        }
    }

    /// Messages are not added after all.
    pub(super) fn drop_works<'a>(&mut self, works: impl Iterator<Item = &'a Kept>, unlinks: &mut Vec<LargeId>) {
        for work in works {
            match work {
                Work::Add { content: Stored::Body { place, .. }, .. } => self.live.take(place.segment, 1),
                Work::Add { content: Stored::Large { id, .. }, .. } => release(&mut self.references, *id, unlinks),
                Work::Remove { .. } => {}
            }
        }
    }

    /// Messages that were counted become entries. `noted`: no record tells their heads together with their numbers.
    fn add<'a>(
        &mut self,
        id: QueueId,
        works: impl Iterator<Item = &'a Kept>,
        numbers: Option<Numbers>,
        noted: bool,
        unlinks: &mut Vec<LargeId>,
    ) -> Result<(), Refused> {
        let Some(queue) = self.queues.get_mut(&id) else {
            self.drop_works(works, unlinks);
            return Ok(());
        };
        if let Some(Numbers { first, count }) = numbers {
            queue.facts.reserved = queue.facts.reserved.max(first.saturating_add(u64::from(count)));
        }
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
    fn decided(&mut self, left: &Leaving, unlinks: &mut Vec<LargeId>) -> Result<(), Refused> {
        let Leaving { queue: id, part, numbers, commit } = left;
        if let Some(queue) = self.queues.get_mut(id) {
            removed(part.works()).for_each(|(sequence, _)| {
                queue.held.remove(&sequence);
            });
        }
        if *commit {
            self.add(*id, part.works(), *numbers, true, unlinks)?;
            self.acknowledge(*id, removed(part.works()), unlinks);
            return Ok(());
        }
        self.drop_works(part.works(), unlinks);
        if let Some(queue) = self.queues.get_mut(id) {
            queue.come_back(part.works());
        }
        Ok(())
    }

    /// Puts back what a start has found of transactions, once all queues and entries are there.
    pub(crate) fn restore_transactions(&mut self, transactions: Transactions) {
        for (id, part, in_doubt) in transactions.parts() {
            for list in &part.lists {
                self.count(list);
            }
            if in_doubt && let Some(queue) = self.queues.get_mut(&id) {
                queue.hold(part.works());
            }
        }
        self.transactions = transactions;
    }
}

impl QueueIndex {
    /// Entries are removed by a branch in doubt.
    fn hold<'a>(&mut self, works: impl Iterator<Item = &'a Kept>) {
        self.held.extend(removed(works).map(|(sequence, _)| sequence));
    }

    /// Entries are not removed after all.
    fn come_back<'a>(&mut self, works: impl Iterator<Item = &'a Kept>) {
        for work in works {
            if let Work::Remove { sequence, deliveries, attempts } = *work
                && self.find(sequence).is_some()
            {
                let note = self.notes.entry(sequence).or_default();
                (note.deliveries, note.attempts, note.suspect) = (deliveries, attempts, None);
            }
        }
    }
}

/// Ranges of one number each.
fn removed<'a>(works: impl Iterator<Item = &'a Kept>) -> impl Iterator<Item = (Sequence, Sequence)> {
    works.filter_map(|work| match work {
        Work::Remove { sequence, .. } => Some((*sequence, *sequence)),
        Work::Add { .. } => None,
    })
}
