//! What is known of messages' duplicate ids, bounded by time and count.

use crate::watched::Watched;
use packhorse_model::{DuplicateId, QueueId};
use packhorse_store::Remember;
use std::collections::BTreeSet;

/// An id in a queue.
pub(crate) type Key = (QueueId, DuplicateId);

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Each with the broker time of its message, ms.
    pub(crate) ids: Watched<Key, u64>,
    by_age: BTreeSet<(u64, Key)>,
}

impl Ids {
    /// A message with this id is stored.
    pub(crate) fn take(&mut self, key: Key, at_ms: u64, remember: &Remember) {
        self.restore(key, at_ms);
        while self.ids.len() > remember.ids_max as usize && self.drop_oldest(|_| true) {}
    }

    /// An id that a checkpoint tells, or a record.
    pub(crate) fn restore(&mut self, key: Key, at_ms: u64) {
        if let Some(before) = self.ids.get(&key) {
            self.by_age.remove(&(*before, key));
        }
        self.by_age.insert((at_ms, key));
        self.ids.insert(key, at_ms);
    }

    /// A queue is gone, and with it what is known of its messages.
    pub(crate) fn queue_gone(&mut self, queue: QueueId) {
        let gone = self.ids.keys_from((queue, DuplicateId([0; 16]))).take_while(|(id, _)| *id == queue).copied();
        for key in gone.collect::<Vec<Key>>() {
            if let Some(at_ms) = self.ids.remove(&key) {
                self.by_age.remove(&(at_ms, key));
            }
        }
    }

    /// Drops those that are too old at this broker time, ms.
    pub(crate) fn expire(&mut self, at_ms: u64, remember: &Remember) {
        while self.drop_oldest(|stored| stored.saturating_add(remember.ids_ms) <= at_ms) {}
    }

    fn drop_oldest(&mut self, when: impl Fn(u64) -> bool) -> bool {
        let Some(oldest) = self.by_age.first().copied().filter(|(at_ms, _)| when(*at_ms)) else { return false };
        self.by_age.remove(&oldest);
        self.ids.remove(&oldest.1);
        true
    }
}
