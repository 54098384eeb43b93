//! Duplicate ids that a store knows, under the bounds of [`Remember`].
//!
//! Must not know: messages, whether the queues are there.

use crate::{Recovered, Remember};
use alloc::collections::{BTreeMap, BTreeSet};
use packhorse_model::{DuplicateId, QueueId};

type Key = (QueueId, DuplicateId);

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    bounds: Remember,
    known: BTreeMap<Key, u64>,
    by_age: BTreeSet<(u64, Key)>,
}

impl Ids {
    pub(super) fn new(bounds: Remember) -> Ids {
        Ids { bounds, ..Ids::default() }
    }

    /// See [`crate::Op::DuplicateId`].
    pub(super) fn take(&mut self, key: Key, at_ms: u64) {
        if let Some(before) = self.known.insert(key, at_ms) {
            self.by_age.remove(&(before, key));
        }
        self.by_age.insert((at_ms, key));
        while self.known.len() > self.bounds.ids_max as usize {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.known.remove(&oldest);
        }
    }

    pub(super) fn queue_gone(&mut self, queue: QueueId) {
        self.known.retain(|(id, _), _| *id != queue);
        self.by_age.retain(|(_, (id, _))| *id != queue);
    }

    /// It is this time: what is too old is forgotten.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some(&(at_ms, key)) = self.by_age.first()
            && at_ms.saturating_add(self.bounds.ids_ms) <= now_ms
        {
            self.by_age.pop_first();
            self.known.remove(&key);
        }
    }

    /// Those of queues that `owned` names.
    pub(super) fn recover(&self, owned: impl Fn(QueueId) -> bool) -> impl Iterator<Item = Recovered> {
        let own = self.known.iter().filter(move |((queue, _), _)| owned(*queue));
        own.map(|(&(queue, id), &at_ms)| Recovered::DuplicateId { queue, id, at_ms })
    }
}
