//! What links ask of queues, and the answers. A request for a queue of another shard goes there by mail, unseen by the link.

use super::{Due, Queues, Reply, Subscriber};
use crate::frontend::amqp10::render;
use crate::io::Level;
use crate::mail::{Answer, Body, LinkRef, Payload, Request};
use packhorse_model::{Head, Outcome, Planted, QueueId, planted};
use packhorse_queue::{self as queue, ConsumerId, DeliveryKey, Input};
use packhorse_store::{LargeOp, Ticket};

impl Queues {
    /// Takes a request for a queue, here or elsewhere.
    pub(crate) fn request(&mut self, id: QueueId, request: Request) {
        if id.owner(self.config.shards) != self.shard {
            self.mail(id.owner(self.config.shards), Body::Request { queue: id, request });
            return;
        }
        self.on_request(id, request);
    }

    /// A message for a queue. `settled`: the producer wants no answer.
    pub(crate) fn enqueue(
        &mut self,
        id: QueueId,
        from: LinkRef,
        delivery: u32,
        settled: bool,
        head: Head,
        payload: Payload<'_>,
    ) {
        if id.owner(self.config.shards) != self.shard {
            let payload = payload.into_owned();
            let request = Request::Enqueue { from, delivery, settled, head, payload };
            self.mail(id.owner(self.config.shards), Body::Request { queue: id, request });
            return;
        }
        match self.slot(id) {
            Some(_) if self.ring.is_short() && planted(Planted::DropWhenFull) => {
                if !settled {
                    self.answer(from, Answer::Enqueued { first: delivery, last: delivery });
                }
            }
            Some(slot) => {
                let queue = &self.held[slot as usize].queue;
                if queue.limited()
                    && let Some(limit) = queue.refuses(payload.length())
                {
                    self.refuse_full(slot, limit, from, delivery, settled, &payload);
                    return;
                }
                let slot = self.perhaps_another(slot);
                self.enter(slot, head, payload, None);
                if settled {
                } else if head.persistent() && !planted(Planted::ConfirmEarly) {
                    self.confirm(from, delivery);
                } else {
                    self.answer(from, Answer::Enqueued { first: delivery, last: delivery });
                }
            }
            None if settled => {
                self.discard(&payload);
                self.log(
                    Level::Warn,
                    Some(from.connection),
                    format!("a settled message for queue {id} was dropped: the queue is gone"),
                );
            }
            None => {
                self.discard(&payload);
                let why = "the queue was deleted".to_string();
                self.answer(from, Answer::NotEnqueued { delivery, condition: "amqp:resource-deleted", why });
            }
        }
    }

    /// A message is not taken: the file of a large one is of no use.
    pub(crate) fn discard(&mut self, payload: &Payload<'_>) {
        if let Payload::Large { id, .. } = payload {
            self.large_ops.push(LargeOp::Abort { id: *id });
        }
    }

    /// The queue, or by a planted fault another one of this shard.
    fn perhaps_another(&self, slot: u32) -> u32 {
        if !planted(Planted::WrongQueue) {
            return slot;
        }
        let others = self.held.iter().filter(|(other, held)| *other as u32 != slot && !held.queue.dead_letters());
        others.map(|(other, _)| other as u32).next().unwrap_or(slot)
    }

    pub(super) fn confirm(&mut self, link: LinkRef, delivery: u32) {
        if let Some(Due::Confirm { link: l, last, .. }) = self.due.last_mut(self.ticket)
            && *l == link
            && last.wrapping_add(1) == delivery
        {
            *last = delivery;
            return;
        }
        self.due.wait(self.ticket, Due::Confirm { link, first: delivery, last: delivery });
    }

    pub(crate) fn on_request(&mut self, id: QueueId, request: Request) {
        match request {
            Request::Enqueue { from, delivery, settled, head, payload } => {
                self.enqueue(id, from, delivery, settled, head, payload);
            }
            Request::Subscribe { from, pre_settled, browses } => self.subscribe(id, from, pre_settled, browses),
            Request::Room { from, mean_bytes } => self.room(id, from, mean_bytes),
            Request::NoRoom { from } => self.producer_left(id, from),
            Request::Credit { consumer, limit, drain } => {
                let Some(subscriber) = self.subscribers.get_mut(&consumer) else { return };
                if drain && subscriber.draining.is_none() {
                    self.draining.push(consumer);
                }
                subscriber.draining = drain.then_some(limit);
                let slot = subscriber.slot;
                self.tell(slot, Input::Credit { consumer, limit });
            }
            Request::Settle { key, outcome, reply } => self.settle(id, key, outcome, reply),
            Request::Unreadable { key } => {
                if let Some(slot) = self.slot(id) {
                    self.tell(slot, Input::Unreadable { key });
                }
            }
            Request::EnqueueOnce(message) => self.enqueue_once(id, *message),
            Request::OpenProducer { from, opening } => self.producer_opens(id, from, opening),
            Request::StageEnqueue { txn, head, payload, identity } => {
                self.on_stage_enqueue(id, txn, head, payload, identity.as_deref());
            }
            Request::StageSettle { txn, key, outcome } => self.on_stage_settle(id, txn, key, outcome),
            Request::StageAccept { txn, keys } => self.on_stage_accept(id, txn, &keys),
            Request::Unsubscribe { consumer, lost } => {
                let Some(subscriber) = self.subscribers.remove(&consumer) else { return };
                self.tell(subscriber.slot, Input::Unsubscribe { consumer, lost });
            }
        }
    }

    pub(super) fn subscribe(&mut self, id: QueueId, from: LinkRef, pre_settled: bool, browses: bool) {
        let Some(slot) = self.slot(id) else {
            let why = "the queue was deleted".to_string();
            self.answer(from, Answer::Ended { condition: "amqp:not-found", why });
            return;
        };
        let consumer = ConsumerId(self.next_consumer);
        self.next_consumer += 1;
        self.subscribers.insert(consumer, Subscriber { link: from, slot, draining: None });
        let comes = if browses { Input::Browse { consumer } } else { Input::Subscribe { consumer, pre_settled } };
        self.tell(slot, comes);
        self.answer(from, Answer::Subscribed { queue: id, consumer });
    }

    pub(super) fn settle(&mut self, id: QueueId, key: DeliveryKey, outcome: Outcome, reply: Option<Reply>) {
        let Some(slot) = self.slot(id) else {
            if let Some((link, delivery)) = reply {
                self.answer(link, Answer::Settled { delivery });
            }
            return;
        };
        let outcome = self.with_earlier_annotations(slot, key, outcome);
        let first = self.effects.len();
        self.handle(slot, Input::Settle { key, outcome });
        // A dead letter's answer waits until the letter has arrived.
        let relocates = self.effects[first..].iter().any(|e| matches!(e, queue::Effect::Relocate(r) if r.key == key));
        if relocates {
            self.run_effects_for(slot, reply.map(|reply| (key, reply)));
            return;
        }
        self.run_effects(slot);
        if let Some((link, delivery)) = reply {
            self.settled_when_durable(link, delivery);
        }
    }

    /// The ticket of all that was done so far.
    pub(super) fn last_ticket(&self) -> Ticket {
        if self.batch.is_empty() { Ticket(self.ticket.0 - 1) } else { self.ticket }
    }

    pub(super) fn settled_when_durable(&mut self, link: LinkRef, delivery: u32) {
        if self.batch.is_empty() {
            self.answer(link, Answer::Settled { delivery });
        } else {
            self.batch.require_flush();
            self.due.wait(self.ticket, Due::Settled { link, delivery });
        }
    }

    /// A `modified` says what to add; the queue keeps the whole of what was added.
    pub(super) fn with_earlier_annotations(&self, slot: u32, key: DeliveryKey, mut outcome: Outcome) -> Outcome {
        if let Outcome::ReturnSeen { annotations, .. } | Outcome::ReturnModified { annotations, .. } = &mut outcome
            && !annotations.is_empty()
            && let Some(overlay) = self.held[slot as usize].queue.overlay(key.level, key.sequence)
            && !overlay.annotations.is_empty()
        {
            *annotations = render::merge_annotations(&overlay.annotations, annotations);
        }
        outcome
    }

    /// To a link, here or elsewhere.
    pub(crate) fn answer(&mut self, to: LinkRef, answer: Answer) {
        if to.shard == self.shard {
            self.answers.push((to, answer));
        } else {
            self.mail(to.shard, Body::Answer { to, answer });
        }
    }
}
