//! What records of transactions leave to be done in the index: in slices, so that nobody waits for the log until a million operations
//! are taken in.
//!
//! Nothing that a later block says may meet the index in between: none is built before all is done ([`Index::is_behind`]). Records of
//! the same block may, behind one that decides on many operations. They seldom rest on that, for nobody knows of it yet; those that do
//! have it done first ([`Index::before`]).
//!
//! Must not know: blocks, what is durable.

use super::{Index, QueueIndex};
use crate::record::transactions::Work;
use crate::transactions::{Kept, Part, Refused};
use packhorse_model::{LargeId, QueueId, Sequence};
use packhorse_store::{Numbers, Redelivery};
use std::collections::VecDeque;
use std::sync::Arc;

/// What becomes of operations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// They happen, at this broker time, ms. What is added gets `numbers`; `noted`: no record tells its heads together with these.
    Commit { numbers: Option<Numbers>, noted: bool, at_ms: u64 },
    /// Of a branch in doubt: what is added is dropped, and what is removed comes back.
    Rollback,
    /// Of a transaction that was never in doubt: what is added is dropped.
    Drop,
    /// They are in doubt: what is removed is held.
    Hold,
}

/// Operations in a queue.
#[derive(Debug)]
struct Task {
    queue: QueueId,
    lists: VecDeque<Arc<Vec<Kept>>>,
    /// Operations of the first list that are done.
    done: usize,
    /// Some are numbers of producers, or duplicate ids.
    numbered: bool,
    fate: Fate,
    /// The first and the last entry that a commit brings back.
    returned: Option<(Sequence, Sequence)>,
}

/// See the file's head. In the order of their records.
#[derive(Debug, Default)]
pub(super) struct Behind {
    tasks: VecDeque<Task>,
}

impl Index {
    /// Whether records that were taken in have left something to be done.
    pub(crate) fn is_behind(&self) -> bool {
        !self.behind.tasks.is_empty()
    }

    /// Whether what is left is about this queue.
    pub(crate) fn is_behind_in(&self, queue: QueueId) -> bool {
        self.behind.tasks.iter().any(|task| task.queue == queue)
    }

    /// These operations are to be done, after what is to be done already.
    pub(super) fn later(&mut self, queue: QueueId, part: Part, fate: Fate) {
        if let Fate::Commit { numbers: Some(Numbers { first, count }), .. } = fate
            && let Some(queue) = self.queues.get_mut(&queue)
        {
            queue.facts.reserved = queue.facts.reserved.max(first.saturating_add(u64::from(count)));
        }
        if !part.is_empty() {
            let Part { lists, numbered, returned } = part;
            self.behind.tasks.push_back(Task { queue, lists: lists.into(), done: 0, numbered, fate, returned });
        }
    }

    /// Does what is left, `limit` operations at most; answers how many more it may have been. Files that no entry refers to any more
    /// are appended to `unlinks`.
    #[cold]
    pub(crate) fn catch_up(&mut self, mut limit: usize, unlinks: &mut Vec<LargeId>) -> Result<usize, Refused> {
        while limit > 0
            && let Some(mut task) = self.behind.tasks.pop_front()
        {
            let Some(list) = task.lists.front() else { continue };
            let end = list.len().min(task.done.saturating_add(limit));
            limit -= end - task.done;
            let last = end == list.len();
            let works = &list[task.done..end];
            let done = self.carry_out(task.queue, works, task.fate, unlinks);
            if task.numbered
                && let Fate::Commit { at_ms, .. } = task.fate
                && self.queues.contains_key(&task.queue)
            {
                self.transactions.number_all(task.queue, works.iter(), at_ms);
            }
            task.done = end;
            if last {
                task.lists.pop_front();
                task.done = 0;
            }
            if !task.lists.is_empty() {
                self.behind.tasks.push_front(task);
            }
            done?;
        }
        Ok(limit)
    }

    /// A record is about these entries: if what is left is about one of them, it is done first.
    pub(super) fn before(
        &mut self,
        queue: QueueId,
        mut ranges: impl Iterator<Item = (Sequence, Sequence)>,
        unlinks: &mut Vec<LargeId>,
    ) -> Result<(), Refused> {
        if self.is_behind() && ranges.any(|(first, last)| self.concerns(queue, first, last)) {
            self.catch_up(usize::MAX, unlinks)?;
        }
        Ok(())
    }

    /// A record is about a producer, a duplicate id, or all of a queue: which ones are known or forgotten goes by the order of records.
    #[cold]
    pub(super) fn before_number(&mut self, unlinks: &mut Vec<LargeId>) -> Result<(), Refused> {
        if self.behind.tasks.iter().any(|task| task.numbered) {
            self.catch_up(usize::MAX, unlinks)?;
        }
        Ok(())
    }

    /// Whether what is left may add one of these entries to a queue, or bring one back.
    #[cold]
    fn concerns(&self, id: QueueId, first: Sequence, last: Sequence) -> bool {
        let mut tasks = self.behind.tasks.iter().filter(|task| task.queue == id);
        // What a rollback brings back may itself still have to be held.
        let holds = tasks.clone().any(|task| matches!(task.fate, Fate::Hold));
        let held = |queue: &QueueIndex| first <= last && queue.held.range(first..=last).next().is_some();
        tasks.any(|task| match task.fate {
            Fate::Commit { numbers, .. } => {
                let added = numbers.map(|n| (n.first, n.first.saturating_add(u64::from(n.count)).saturating_sub(1)));
                added.into_iter().chain(task.returned).any(|(from, to)| from <= last && first <= to)
            }
            Fate::Rollback => holds || self.queues.get(&id).is_some_and(held),
            _ => false,
        })
    }

    fn carry_out(
        &mut self,
        id: QueueId,
        works: &[Kept],
        fate: Fate,
        unlinks: &mut Vec<LargeId>,
    ) -> Result<(), Refused> {
        match fate {
            Fate::Commit { numbers, noted, at_ms: _ } => {
                self.let_go(id, works);
                self.add(id, works, numbers, noted, unlinks)?;
                self.acknowledge(id, gone(works), unlinks);
                if let Some(queue) = self.queues.get_mut(&id) {
                    let back = works.iter().filter_map(returns);
                    back.for_each(|(sequence, back)| queue.redeliver(sequence, back.clone()));
                }
            }
            Fate::Rollback => {
                self.let_go(id, works);
                self.drop_works(works.iter(), unlinks);
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.come_back(works);
                }
            }
            Fate::Drop => self.drop_works(works.iter(), unlinks),
            Fate::Hold => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.hold(works);
                }
            }
        }
        Ok(())
    }

    /// What they remove is not held any more.
    fn let_go(&mut self, id: QueueId, works: &[Kept]) {
        if let Some(queue) = self.queues.get_mut(&id).filter(|queue| !queue.held.is_empty()) {
            removed(works).for_each(|(sequence, _)| {
                queue.held.remove(&sequence);
            });
        }
    }
}

impl QueueIndex {
    /// Entries are removed by a branch in doubt.
    pub(super) fn hold(&mut self, works: &[Kept]) {
        self.held.extend(removed(works).map(|(sequence, _)| sequence));
    }

    /// Entries are not removed after all.
    fn come_back(&mut self, works: &[Kept]) {
        for work in works {
            if let Work::Remove { sequence, deliveries, attempts, .. } = *work {
                self.redeliver(sequence, Redelivery { deliveries, attempts, overlay: None });
            }
        }
    }

    /// An entry has come back from a delivery.
    pub(super) fn redeliver(&mut self, sequence: Sequence, back: Redelivery) {
        if self.find(sequence).is_none() {
            return;
        }
        let note = self.notes.entry(sequence).or_default();
        (note.deliveries, note.attempts, note.suspect) = (back.deliveries, back.attempts, None);
        if back.overlay.is_some() {
            note.overlay = back.overlay;
        }
    }
}

/// Ranges of one number each.
fn removed(works: &[Kept]) -> impl Iterator<Item = (Sequence, Sequence)> {
    works.iter().filter_map(|work| match work {
        Work::Remove { sequence, .. } => Some((*sequence, *sequence)),
        Work::Add { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
    })
}

/// Of these, what a commit removes: numbers that follow each other in one range, for most are acknowledged in their order.
fn gone(works: &[Kept]) -> impl Iterator<Item = (Sequence, Sequence)> {
    let gone = works.iter().filter_map(|work| match work {
        Work::Remove { sequence, redelivery: None, .. } => Some(*sequence),
        Work::Remove { .. } | Work::Add { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
    });
    let mut gone = gone.peekable();
    std::iter::from_fn(move || {
        let first = gone.next()?;
        let mut last = first;
        while let Some(next) = gone.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        Some((first, last))
    })
}

/// What a commit brings back.
fn returns(work: &Kept) -> Option<(Sequence, &Redelivery)> {
    match work {
        Work::Remove { sequence, redelivery: Some(back), .. } => Some((*sequence, back)),
        Work::Remove { .. } | Work::Add { .. } | Work::Number { .. } | Work::DuplicateId(_) => None,
    }
}
