//! Messages that say which they are, by a producer's number or an id of their own: each is stored once
//! (`docs/decisions/0013-numbered-producers.md`). Which ones a queue has taken is the queue's business; here they meet links, answers
//! and the disk.

use super::{Due, Queues};
use crate::io::Level;
use crate::mail::{Answer, Behind, LinkRef, Payload, Request};
use packhorse_amqp10::producer::{DEDUP_LOST, DEDUP_UNDECIDED, Opening};
use packhorse_model::{Head, Identity, Planted, ProducerId, QueueId, TxnId, planted};
use packhorse_queue::{self as queue, Input, Known};
use packhorse_txn::{self as txn, Cause};
use std::collections::BinaryHeap;

/// A message that says which it is, on its way to a queue.
#[derive(Debug)]
pub(crate) struct OnceEnqueue {
    pub(crate) from: LinkRef,
    pub(crate) delivery: u32,
    pub(crate) settled: bool,
    pub(crate) head: Head,
    pub(crate) payload: Payload<'static>,
    pub(crate) identity: Identity,
}

impl Queues {
    /// A producer comes to a queue of this shard. Answered when the queue would know it after a crash.
    #[cold]
    pub(super) fn producer_opens(&mut self, id: QueueId, link: LinkRef, opening: Opening) {
        let Some(slot) = self.slot(id) else {
            let why = "the queue was deleted".to_string();
            self.answer(link, Answer::Ended { condition: "amqp:not-found", why });
            return;
        };
        let Opening { producer, lowest, next } = opening;
        let producer = ProducerId(producer);
        if let queue::Answer::Floor(floor) = self.tell(slot, Input::OpenProducer { producer, lowest, next }) {
            self.when_all_is_durable(Due::Opened { link, queue: id, floor });
        }
    }

    /// A message outside of transactions whose turn has come on its link.
    pub(crate) fn enqueue_behind(&mut self, id: QueueId, from: LinkRef, behind: Behind) {
        let Behind { delivery, settled, head, payload, identity, .. } = behind;
        match identity {
            Some(identity) => {
                self.enqueue_once(id, OnceEnqueue { from, delivery, settled, head, payload, identity });
            }
            None => self.enqueue(id, from, delivery, settled, head, payload),
        }
    }

    /// A message that says which it is, for a queue. Answered as [`Queues::enqueue`] is; one that the queue has taken before is not stored
    /// again, and confirmed when the first is safe.
    #[cold]
    pub(crate) fn enqueue_once(&mut self, id: QueueId, message: OnceEnqueue) {
        let owner = id.owner(self.config.shards);
        if owner != self.shard {
            self.request(id, Request::EnqueueOnce(Box::new(message)));
            return;
        }
        let OnceEnqueue { from, delivery, settled, head, payload, identity } = message;
        let Some(slot) = self.slot(id) else {
            self.enqueue(id, from, delivery, settled, head, payload);
            return;
        };
        let refused = match self.look_for(slot, identity, None) {
            Known::New => None,
            Known::Stored if planted(Planted::StoreAgain) => None,
            Known::Stored => {
                self.discard(&payload);
                if !settled {
                    self.when_all_is_durable(Due::Confirm { link: from, first: delivery, last: delivery });
                }
                return;
            }
            Known::Lost => {
                let why = "may have been stored: that is not known any more, and it was not stored now. Look whether it is there before it is sent under a new number".to_string();
                Some((DEDUP_LOST, why))
            }
            Known::Undecided(txn) => {
                let why = format!(
                    "is in transaction {txn}, which is not decided, and was not stored now. Send it again when that is over"
                );
                Some((DEDUP_UNDECIDED, why))
            }
        };
        if let Some((condition, why)) = refused {
            self.discard(&payload);
            let why = match identity {
                Identity::Number(numbered) => format!("message {} of this producer {why}", numbered.number),
                Identity::Id(_) => format!("a message of this duplicate id {why}"),
            };
            if settled {
                self.log(Level::Warn, Some(from.connection), format!("a settled message was dropped: {why}"));
            } else {
                self.answer(from, Answer::NotEnqueued { delivery, condition, why });
            }
            return;
        }
        let queue = &self.held[slot as usize].queue;
        if queue.limited()
            && let Some(limit) = queue.refuses(payload.length())
        {
            self.refuse_full(slot, limit, from, delivery, settled, &payload);
            return;
        }
        self.enter(slot, head, payload, None);
        // In the batch of its message: after a crash both are there, or neither is.
        self.tell(slot, Input::Identify { identity, persistent: head.persistent() });
        if matches!(identity, Identity::Id(_)) {
            self.bound_ids();
        }
        if settled {
        } else if head.persistent() {
            self.confirm(from, delivery);
        } else {
            self.answer(from, Answer::Enqueued { first: delivery, last: delivery });
        }
    }

    /// Whether a message that a transaction adds is one that the queue has not taken. If not, it is dealt with: it is not added again, or
    /// the transaction cannot be committed.
    #[cold]
    pub(super) fn is_new_in(&mut self, slot: u32, txn: TxnId, identity: &Identity, payload: &Payload<'_>) -> bool {
        let cause = match self.look_for(slot, *identity, Some(txn)) {
            Known::New => {
                if matches!(identity, Identity::Id(_)) {
                    self.bound_ids();
                }
                return true;
            }
            Known::Stored => {
                let (identity, bytes) = (*identity, payload.length());
                self.discard(payload);
                self.tell(slot, Input::StageDuplicate { txn, identity, bytes });
                return false;
            }
            Known::Lost => Cause::NumberLost,
            Known::Undecided(_) => Cause::NumberUndecided,
        };
        self.discard(payload);
        self.tell(slot, Input::StageRefused { txn });
        self.tell_home(txn::Input::Failed { txn, cause });
        false
    }

    /// A message with a duplicate id has come. Now and then those of all queues are counted; while they are too many, the queue that has most
    /// forgets the older half of its own.
    fn bound_ids(&mut self) {
        let most = self.config.all_duplicate_ids.max(1);
        self.identified += 1;
        if self.identified < most.div_ceil(16).min(1_024) {
            return;
        }
        self.identified = 0;
        let now_ms = self.broker_ms();
        let queues = self.held.iter_mut().map(|(slot, held)| (held.queue.ids_known(now_ms), slot));
        let mut known: BinaryHeap<(usize, usize)> = queues.filter(|(ids, _)| *ids > 0).collect();
        let mut all: usize = known.iter().map(|(ids, _)| ids).sum();
        while all > most as usize
            && let Some((ids, slot)) = known.pop()
        {
            let queue = &mut self.held[slot].queue;
            queue.forget_half_of_ids();
            let left = queue.ids_known(now_ms);
            all -= ids - left;
            if left > 0 {
                known.push((left, slot));
            }
        }
    }

    fn look_for(&mut self, slot: u32, identity: Identity, txn: Option<TxnId>) -> Known {
        match self.tell(slot, Input::Look { identity, txn }) {
            queue::Answer::Known(known) => known,
            other => unreachable!("a queue says what it knows of a message, and not {other:?}"),
        }
    }

    /// Something is due when all that was done so far is durable.
    fn when_all_is_durable(&mut self, due: Due) {
        let ticket = self.last_ticket();
        if ticket <= self.due.durable() {
            self.fall_due(due);
            return;
        }
        if !self.batch.is_empty() {
            self.batch.require_flush();
        }
        self.due.wait(ticket, due);
    }
}
