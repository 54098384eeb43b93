//! What a transaction has in queues.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::ops::AddAssign;
use packhorse_model::QueueId;

/// The work of a transaction in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Messages that it adds.
    pub adds: u64,
    /// Messages that it removes.
    pub removes: u64,
    /// Bytes of the messages that it adds.
    pub bytes: u64,
}

impl Part {
    /// Operations: how many the queue has got, or will have.
    #[must_use]
    pub fn operations(self) -> u64 {
        self.adds + self.removes
    }
}

impl AddAssign for Part {
    fn add_assign(&mut self, more: Part) {
        self.adds += more.adds;
        self.removes += more.removes;
        self.bytes += more.bytes;
    }
}

/// A part of a prepared branch that an operator rolled back by force, because its queue had to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// The queue.
    pub queue: QueueId,
    /// Who forced it.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Wall clock, ms.
    pub wall_ms: i64,
}

/// By queue, in the order of ids.
pub(crate) type Parts = BTreeMap<QueueId, Part>;
