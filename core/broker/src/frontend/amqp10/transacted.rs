//! Work in transactions: messages that are posted, deliveries that are retired, and what becomes of the latter here when their
//! transaction ends.
//!
//! What a consumer says of a delivery in a transaction happens if that is committed, and only then. Each outcome goes to the queue at
//! once, which keeps the entry from others, and gives it to them, as seen, when the transaction is rolled back: for this link the
//! delivery is over then, also where the standard would leave it with the link (4.4.4.2, deliveries that the client has not
//! settled). Only what is said of a delivery that was acquired in a transaction whose end was asked for is kept here: it happens
//! after a commit, outside of it.

use super::connection::{Connection, generation, index, token};
use super::coordinator::unknown_id;
use super::link::{InTxn, Kind, Partial, PartialBody, Producer};
use super::open_txns::{Held, What, wire_id};
use super::render::{self, Refused};
use super::verdicts::no_work;
use crate::io::Level;
use crate::mail::{Behind, Payload, Request};
use crate::queues::Queues;
use bytes::Bytes;
use packhorse_amqp10::codec::{DeliveryState, Error, Map, Outcome, Rejected, SenderSettleMode, TransactionalState};
use packhorse_amqp10::engine::{Decision, DeliveryOutcome, TransferEvent};
use packhorse_model::{Head, Identity, LargeId, QueueId, TxnId};
use packhorse_queue::DeliveryKey;
use packhorse_store::LargeOp;
use packhorse_txn::{Cause, Input, NoWork};
use std::collections::VecDeque;

/// A delivery that is posted in a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub(super) delivery: u32,
    pub(super) settled: bool,
    pub(super) epoch: u64,
    pub(super) identity: Option<Identity>,
}

impl Connection {
    // ---- in ----

    /// The epoch of the transaction that a frame names; none: the delivery is refused, and this frame of it is dealt with.
    pub(super) fn posted_in(&mut self, queues: &mut Queues, transfer: &TransferEvent<'_>, id: &[u8]) -> Option<u64> {
        let (token, delivery) = (transfer.token, transfer.delivery_id);
        let epoch = self.txns.resolve(id);
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return None };
        let before = producer.partial.as_ref().and_then(|partial| partial.epoch);
        if matches!(&producer.partial, Some(Partial { body: PartialBody::Dropped, .. })) {
            // It was refused already; what is still to come of it is of no interest.
            if transfer.last {
                producer.partial = None;
                self.renew_credit(queues, token);
            }
            return None;
        }
        if epoch.is_some() && (before.is_none() || before == epoch) {
            return epoch;
        }
        let partial = producer.partial.take();
        let settled = transfer.settled || partial.as_ref().is_some_and(|partial| partial.settled);
        self.drop_partial(queues, token, partial);
        let why = match (epoch, before) {
            (Some(_), Some(_)) => {
                //= amqp10 4.4.1 (one delivery in two transactions: neither can be committed)
                let why = "the frames of one delivery name two transactions";
                Refused::new("amqp:transaction:rollback", why)
            }
            _ => unknown_id(id),
        };
        for epoch in [epoch.filter(|_| before.is_some()), before].into_iter().flatten() {
            self.fail_txn(queues, epoch);
        }
        self.refuse_delivery(queues, token, delivery, settled, None, &why);
        if !transfer.last {
            self.drop_rest(token, transfer);
        }
        None
    }

    /// A whole delivery goes to its queue, to be there when its transaction is committed. It is answered at once: what goes wrong
    /// from now on, the answer to the transaction's end tells.
    pub(super) fn post(
        &mut self,
        queues: &mut Queues,
        token: u64,
        Posting { delivery, settled, epoch, identity }: Posting,
        head: Head,
        payload: Payload<'_>,
    ) {
        let Some(Kind::Producer(producer)) = self.link(token).map(|link| &link.kind) else { return };
        let queue = producer.queue;
        let staged = match self.txns.working(epoch) {
            Some(open) => {
                open.worked = true;
                let (txn, control) = (open.txn, open.control);
                let control = self.control(control);
                let identity = identity.map(Box::new);
                let staged = queues.stage_enqueue(queue, txn, control, head, payload, identity);
                staged.map(|()| wire_id(txn, epoch)).map_err(|why| no_work(&why))
            }
            None => {
                queues.discard(&payload);
                Err(Refused::new("amqp:transaction:unknown-id", "the transaction has ended meanwhile"))
            }
        };
        match staged {
            Ok(_) if settled => {}
            Ok(id) => {
                let state = TransactionalState { txn_id: &id, outcome: Some(Outcome::Accepted) };
                self.settle_as(token, delivery, &DeliveryState::Transactional(state), epoch);
            }
            Err(why) if settled => self.fail_link(queues, token, &why),
            Err(why) => {
                let error = Error { condition: why.condition, description: Some(&why.why), info: None };
                self.settle(token, delivery, &DeliveryState::Rejected(Rejected { error: Some(error) }));
            }
        }
        if !settled {
            self.answered(token, 1);
        }
    }

    /// Something in a transaction has failed here: it cannot be committed.
    pub(super) fn fail_txn(&mut self, queues: &mut Queues, epoch: u64) {
        if let Some(open) = self.txns.get(epoch) {
            queues.transact(Input::Failed { txn: open.txn, cause: Cause::OperationFailed });
        }
    }

    /// Whether a delivery in the transaction has not come to its last frame.
    pub(super) fn amid_posting(&self, epoch: u64) -> bool {
        self.links.iter().any(|(_, link)| {
            matches!(&link.kind, Kind::Producer(p) if p.partial.as_ref().is_some_and(|p| p.epoch == Some(epoch)))
        })
    }

    /// Whether a delivery in the transaction is whole and not with its queue yet.
    pub(super) fn awaits_posting(&self, epoch: u64) -> bool {
        self.links
            .iter()
            .any(|(_, link)| matches!(&link.kind, Kind::Producer(p) if p.behind.iter().any(|b| b.epoch == Some(epoch))))
    }

    /// A producer's link breaks off: what was posted on it and is not with its queue never will be.
    pub(super) fn drop_posted(&mut self, queues: &mut Queues, producer: &mut Producer) {
        let behind = std::mem::take(&mut producer.behind);
        let (posted, others): (VecDeque<Behind>, _) = behind.into_iter().partition(|behind| behind.epoch.is_some());
        producer.behind = others;
        for behind in posted {
            if let Payload::Large { id, .. } = behind.payload {
                abort(queues, id);
            }
            if let Some(epoch) = behind.epoch {
                self.fail_txn(queues, epoch);
            }
        }
        self.resume_requests(queues);
    }

    // ---- out ----

    /// What the peer says of a delivery of ours in a transaction.
    pub(super) fn on_retired(
        &mut self,
        queues: &mut Queues,
        told: &DeliveryOutcome,
        state: Option<&DeliveryState<'_>>,
    ) {
        let Some(DeliveryState::Transactional(state)) = state else { return };
        let Some(epoch) = self.txns.resolve(state.txn_id) else {
            self.fail_link(queues, told.link_token, &unknown_id(state.txn_id));
            return;
        };
        self.retire(queues, told, epoch, state.outcome.map(DeliveryState::from));
    }

    /// Deliveries of one link that the peer accepts and settles in a transaction by one frame, as most do, go to their queue
    /// together. How many of the first these are; 0: the first is to be looked at by itself.
    #[inline]
    pub(super) fn accepted_in_txn(
        &mut self,
        queues: &mut Queues,
        told: &[DeliveryOutcome],
        state: Option<&DeliveryState<'_>>,
    ) -> usize {
        match state {
            Some(DeliveryState::Transactional(TransactionalState { txn_id, outcome: Some(Outcome::Accepted) })) => {
                self.retire_accepted(queues, told, txn_id)
            }
            _ => 0,
        }
    }

    fn retire_accepted(&mut self, queues: &mut Queues, told: &[DeliveryOutcome], txn_id: &[u8]) -> usize {
        let Some(epoch) = self.txns.resolve(txn_id) else { return 0 };
        let Some((txn, control)) = self.txns.working(epoch).map(|open| (open.txn, open.control)) else { return 0 };
        let Some(token) = told.first().map(|told| told.link_token) else { return 0 };
        let link = self.links.get_mut(index(token) as usize).filter(|link| link.generation == generation(token));
        let Some(Kind::Consumer(consumer)) = link.map(|link| &mut link.kind) else { return 0 };
        if consumer.browses || !consumer.in_txn.is_empty() {
            return 0;
        }
        let queue = consumer.queue;
        let alike = |told: &&DeliveryOutcome| {
            told.link_token == token && told.settled && !told.repeated && matches!(told.state, Decision::Transactional)
        };
        let found = |told: &DeliveryOutcome| consumer.unsettled.try_remove(told.token as usize);
        let mut keys = std::mem::take(&mut self.retired);
        keys.clear();
        keys.extend(told.iter().take_while(alike).map_while(found));
        let count = keys.len();
        if count > 0 {
            self.retire_all(queues, epoch, queue, (txn, control), &keys);
        }
        self.retired = keys;
        count
    }

    fn retire_all(
        &mut self,
        queues: &mut Queues,
        epoch: u64,
        queue: QueueId,
        (txn, control): (TxnId, u64),
        keys: &[DeliveryKey],
    ) {
        if let Some(open) = self.txns.working(epoch) {
            open.worked = true;
        }
        let control = self.control(control);
        if let Err(why) = queues.stage_accept(queue, txn, control, keys) {
            self.not_retired(queues, txn, keys.len(), &why);
            keys.iter().for_each(|key| give_back(queues, queue, *key));
        }
    }

    fn not_retired(&self, queues: &mut Queues, txn: TxnId, deliveries: usize, why: &NoWork) {
        let why = no_work(why).why;
        let what = if deliveries == 1 { "a delivery".to_string() } else { format!("{deliveries} deliveries") };
        let text = format!("the end of {what} in transaction {txn} was refused: {why}");
        queues.log(Level::Info, Some(self.id), text);
    }

    /// What the peer says outside of a transaction of a delivery that is in one. False: it is not.
    pub(super) fn settles_in_txn(
        &mut self,
        queues: &mut Queues,
        told: &DeliveryOutcome,
        state: Option<&DeliveryState<'_>>,
    ) -> bool {
        let Some(link) = self.links.get(index(told.link_token) as usize) else { return false };
        let Kind::Consumer(consumer) = &link.kind else { return false };
        let Some(&InTxn { epoch, .. }) = consumer.in_txn.get(&(told.token as usize)) else { return false };
        self.retire(queues, told, epoch, state.copied());
        true
    }

    fn retire(&mut self, queues: &mut Queues, told: &DeliveryOutcome, epoch: u64, state: Option<DeliveryState<'_>>) {
        let (token, place) = (told.link_token, told.token as usize);
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let session = link.session;
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        if consumer.browses {
            if !told.settled {
                // Nothing comes of it, so there is nothing to wait for.
                let _ = self.engine.settle_outgoing(session, told.delivery_id);
            }
            return;
        }
        match consumer.in_txn.get(&place).copied() {
            Some(InTxn { epoch: other, .. }) if other != epoch => {
                //= amqp10 4.4.2 (one delivery in two transactions: neither can be committed)
                self.fail_txn(queues, epoch);
                self.fail_txn(queues, other);
                return;
            }
            Some(InTxn { said: true, .. }) => {
                // It was said before. Only the settling may be new.
                if told.settled {
                    consumer.in_txn.remove(&place);
                    consumer.unsettled.try_remove(place);
                    if let Some(open) = self.txns.get_mut(epoch) {
                        let held = open.held.iter_mut().find(|held| (held.link, held.place) == (token, Some(place)));
                        if let Some(held) = held {
                            held.place = None;
                        }
                    }
                }
                return;
            }
            // It was acquired in this transaction, or is in none yet.
            Some(InTxn { said: false, .. }) | None => {}
        }
        let outcome = match &state {
            None if !told.settled => return,
            None => consumer.default_outcome.clone(),
            Some(state) => match render::outcome_of(state) {
                Some(outcome) => outcome,
                None => {
                    let why =
                        "the outcome is of a type that is not known here; use accepted, rejected, released or modified";
                    self.fail_link(queues, token, &Refused::new("amqp:not-allowed", why));
                    self.fail_txn(queues, epoch);
                    return;
                }
            },
        };
        let found =
            if told.settled { consumer.unsettled.try_remove(place) } else { consumer.unsettled.get(place).copied() };
        let (Some(key), queue) = (found, consumer.queue) else {
            self.stale(queues, epoch);
            return;
        };
        if told.settled {
            consumer.in_txn.remove(&place);
        }
        let Some(open) = self.txns.get_mut(epoch) else { return };
        open.worked = true;
        let (txn, control, closed) = (open.txn, open.control, open.closed);
        let what = if closed {
            // Of what was acquired in a transaction that is being ended: it happens afterwards.
            What::Outcome(outcome)
        } else {
            let control = self.control(control);
            if let Err(why) = queues.stage_settle(queue, txn, control, key, outcome) {
                self.not_retired(queues, txn, 1, &why);
                if told.settled {
                    give_back(queues, queue, key);
                }
                return;
            }
            if told.settled {
                return;
            }
            What::Settled
        };
        let place = (!told.settled).then_some(place);
        if let Some(place) = place
            && let Some(Kind::Consumer(consumer)) = self.link_mut(token).map(|link| &mut link.kind)
        {
            consumer.in_txn.insert(place, InTxn { epoch, said: true });
        }
        let held = Held { link: token, session, delivery: told.delivery_id, place, queue, key, what };
        if let Some(open) = self.txns.get_mut(epoch) {
            open.held.push(held);
        }
    }

    /// A `flow` of the peer's may say that its credit is for a transaction: deliveries are acquired in that, and go back when it is
    /// rolled back. False: it cannot be, and the link is over.
    //= amqp10 4.4.3
    pub(super) fn credit_in(&mut self, queues: &mut Queues, token: u64, properties: Option<Map<'_>>) -> bool {
        let id = properties.and_then(|map| map.get("txn-id"));
        let Some(Kind::Consumer(consumer)) = self.link_mut(token).map(|link| &mut link.kind) else { return true };
        consumer.frozen = false;
        consumer.acquires = None;
        let Some(id) = id else { return true };
        let id = id.as_binary().unwrap_or_default();
        let Some(link) = self.links.get_mut(index(token) as usize) else { return false };
        let settled = self.engine.settle_modes(link.id).is_some_and(|(snd, _)| snd == SenderSettleMode::Settled);
        let why = match (self.txns.resolve(id), &mut link.kind) {
            (None, _) => unknown_id(id),
            (Some(_), _) if settled => {
                let why =
                    "what is settled when it is sent cannot be acquired in a transaction: attach without that mode";
                Refused::new("amqp:not-implemented", why)
            }
            (Some(epoch), Kind::Consumer(consumer)) => {
                // Who browses acquires nothing.
                consumer.acquires = (!consumer.browses).then_some(epoch);
                return true;
            }
            _ => return true,
        };
        self.fail_link(queues, token, &why);
        false
    }

    /// Nothing more is acquired in a transaction: credit for it ends, until the peer's next `flow` says for what it is.
    pub(super) fn stop_acquiring(&mut self, queues: &mut Queues, epoch: u64) {
        let acquiring =
            self.links.iter().filter(|(_, link)| matches!(&link.kind, Kind::Consumer(c) if c.acquires == Some(epoch)));
        let tokens: Vec<u64> = acquiring.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            let Some(Kind::Consumer(consumer)) = self.link_mut(token).map(|link| &mut link.kind) else { continue };
            consumer.acquires = None;
            consumer.frozen = true;
            let queue = consumer.queue;
            for deliver in std::mem::take(&mut consumer.pending) {
                let outcome = packhorse_model::Outcome::ReturnUnseen;
                queues.request(queue, Request::Settle { key: deliver.key, outcome, reply: None });
            }
            self.tell_credit(queues, token);
        }
    }

    /// A disposition in a transaction found nothing that it could be about.
    pub(super) fn nothing_retired(&mut self, queues: &mut Queues, state: Option<&DeliveryState<'_>>) {
        let Some(DeliveryState::Transactional(state)) = state else { return };
        if let Some(epoch) = self.txns.resolve(state.txn_id) {
            self.stale(queues, epoch);
        }
    }

    /// The application's other work in the transaction assumed an acknowledgement that cannot be had.
    fn stale(&mut self, queues: &mut Queues, epoch: u64) {
        if let Some(open) = self.txns.get(epoch) {
            queues.transact(Input::Failed { txn: open.txn, cause: Cause::Stale });
        }
    }

    // ---- the end ----

    /// A transaction has ended: to deliveries that waited for it happens what was said, or not.
    pub(super) fn finish(&mut self, queues: &mut Queues, held: Vec<Held>, committed: bool) {
        for Held { link: token, session, delivery, place, queue, key, what } in held {
            let me = self.me_at(token);
            let Some(link) = self.link_mut(token) else { continue };
            // A link that is over has given back what it held.
            let Kind::Consumer(consumer) = &mut link.kind else { continue };
            let said = place.and_then(|place| consumer.in_txn.get(&place)).map(|in_txn| in_txn.said);
            if matches!(what, What::Acquired)
                && (said != Some(false) || place.and_then(|place| consumer.unsettled.get(place)) != Some(&key))
            {
                // Something was said of it since.
                continue;
            }
            if let Some(place) = place {
                consumer.in_txn.remove(&place);
            }
            match (what, committed) {
                (What::Acquired, true) => {}
                (What::Acquired, false) if consumer.sending.is_some() => {
                    let why = "a transaction was rolled back amid a delivery that was acquired in it";
                    self.fail_link(queues, token, &Refused::new("amqp:transaction:rollback", why));
                }
                (What::Acquired, false) => {
                    if let Some(place) = place {
                        consumer.unsettled.try_remove(place);
                    }
                    let outcome =
                        packhorse_model::Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::new() };
                    queues.request(queue, Request::Settle { key, outcome, reply: None });
                }
                (What::Settled, _) => {
                    if let Some(place) = place {
                        consumer.unsettled.try_remove(place);
                        let _ = self.engine.settle_outgoing(session, delivery);
                    }
                }
                (What::Outcome(outcome), true) => {
                    let reply = place.map(|_| (me, delivery));
                    if let Some(place) = place {
                        consumer.unsettled.try_remove(place);
                        link.waiting += 1;
                    }
                    queues.request(queue, Request::Settle { key, outcome, reply });
                }
                (What::Outcome(_), false) => {
                    if place.is_none() {
                        let outcome = consumer.default_outcome.clone();
                        queues.request(queue, Request::Settle { key, outcome, reply: None });
                    }
                }
            }
        }
    }
}

/// A delivery that the client has settled did not end: as a rollback gives it back, for the application has seen it.
fn give_back(queues: &mut Queues, queue: QueueId, key: DeliveryKey) {
    let outcome = packhorse_model::Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::new() };
    queues.request(queue, Request::Settle { key, outcome, reply: None });
}

fn abort(queues: &mut Queues, id: LargeId) {
    queues.large_writers.remove(&id);
    queues.large_ops.push(LargeOp::Abort { id });
}
