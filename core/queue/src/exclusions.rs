//! Which consumer must not get which entry again (the outcome "undeliverable here"). Few entries have one.
//!
//! Must not know: why. Found from either side, so that an entry that goes and a consumer that goes leave nothing behind.

use crate::ConsumerId;
use alloc::collections::BTreeSet;
use packhorse_model::Sequence;

type Entry = (u8, Sequence);

#[derive(Debug, Default)]
pub(crate) struct Exclusions {
    by_entry: BTreeSet<(Entry, ConsumerId)>,
    by_consumer: BTreeSet<(ConsumerId, Entry)>,
}

impl Exclusions {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_entry.is_empty()
    }

    pub(crate) fn add(&mut self, consumer: ConsumerId, level: u8, sequence: Sequence) {
        self.by_entry.insert(((level, sequence), consumer));
        self.by_consumer.insert((consumer, (level, sequence)));
    }

    pub(crate) fn contains(&self, consumer: ConsumerId, level: u8, sequence: Sequence) -> bool {
        self.by_entry.contains(&((level, sequence), consumer))
    }

    /// The entry is gone.
    pub(crate) fn remove_entry(&mut self, level: u8, sequence: Sequence) {
        let entry = (level, sequence);
        while let Some(&(_, consumer)) =
            self.by_entry.range((entry, ConsumerId(0))..=(entry, ConsumerId(u64::MAX))).next()
        {
            self.by_entry.remove(&(entry, consumer));
            self.by_consumer.remove(&(consumer, entry));
        }
    }

    /// Forgets one of the entries that a consumer that left must not get; false when there was none.
    pub(crate) fn forget_one_of(&mut self, consumer: ConsumerId) -> bool {
        let mut all = self.by_consumer.range((consumer, (0, 0))..=(consumer, (u8::MAX, u64::MAX)));
        let Some(&(_, entry)) = all.next() else { return false };
        self.by_consumer.remove(&(consumer, entry));
        self.by_entry.remove(&(entry, consumer));
        true
    }
}
