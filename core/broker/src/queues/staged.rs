//! Parts of transactions in the queues of this shard, and the bodies of the messages that they add: pinned in memory until they are
//! written ahead or the transaction ends. Must not know homes.

use super::Queues;
use crate::mail::Payload;
use packhorse_model::{Head, Purpose, QueueId, Resolution, TxnId};
use packhorse_queue::DeliveryKey;

impl Queues {
    /// A transaction adds a message to a queue of this shard.
    pub(crate) fn on_stage_enqueue(&mut self, id: QueueId, txn: TxnId, head: Head, payload: Payload<'_>) {
        let _ = (id, txn, head, payload);
        todo!("parts of transactions")
    }

    /// A transaction acknowledges a delivery of a queue of this shard.
    pub(super) fn on_stage_acknowledge(&mut self, id: QueueId, txn: TxnId, key: DeliveryKey) {
        let _ = (id, txn, key);
        todo!("parts of transactions")
    }

    /// The home of a transaction asks for its part in a queue of this shard.
    pub(crate) fn on_gather(&mut self, txn: TxnId, id: QueueId, operations: u64, purpose: Purpose) {
        let _ = (txn, id, operations, purpose);
        todo!("parts of transactions")
    }

    /// The home of a transaction has decided.
    pub(crate) fn on_apply(&mut self, txn: TxnId, id: QueueId, operations: u64, resolution: Resolution) {
        let _ = (txn, id, operations, resolution);
        todo!("parts of transactions")
    }
}
