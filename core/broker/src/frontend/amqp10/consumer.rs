//! Messages out: credit goes to the queue, deliveries come from it, outcomes go back.
//!
//! A link that cannot send (session window, output) is *blocked*: its queue gives it nothing more, what was given already
//! waits here, and it goes on when there is room. Messages too large for one go are sent in parts; other links interleave.

use super::connection::{Connection, index, token};
use super::link::{Consumer, Kind, LargeOut, Link, Sending};
use super::render::{self, Front, Refused};
use crate::io::Level;
use crate::mail::{Deliver, Request};
use crate::queues::Queues;
use bytes::Bytes;
use packhorse_amqp10::codec::{DeliveryState, SenderSettleMode, TransactionalState};
use packhorse_amqp10::engine::{Decision, DeliveryOutcome, Misuse, Piece, SHARE_FROM_BYTES, SendParams, SessionId};
use packhorse_model::Content;

/// Bodies of more bytes are sent in parts, so that the output's bound holds.
const WHOLE_UP_TO_BYTES: u64 = 256 << 10;

/// How many deliveries a queue may give to a link ahead of what the link has sent; fewer when they are large, so that what waits
/// here is about as much as the output may hold.
const AHEAD: u64 = 256;

/// How much of a large message is read at once.
const READ_AHEAD_BYTES: u32 = 256 << 10;

impl Connection {
    /// The peer's `flow` for a link on which it receives.
    pub(super) fn on_credit(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        consumer.drained = false;
        if consumer.blocked {
            // New credit may be what it waits for.
            self.wake_link(queues, token);
            return;
        }
        self.tell_credit(queues, token);
    }

    /// Tells the queue how much the link takes, as things stand: its credit, or the next part of it. While it is blocked that
    /// is nothing, and a drain is not the queue's concern yet: what is ready is to be sent first, as far as the credit goes.
    pub(super) fn tell_credit(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        let ahead = ahead(consumer, self.limits.output_bytes);
        let limit = limit(consumer, self.engine.credit(link.id)).min(consumer.given + ahead);
        consumer.told = limit;
        let drain = !consumer.blocked && self.engine.draining(link.id);
        queues.request(consumer.queue, Request::Credit { consumer: consumer.consumer, limit, drain });
    }

    /// A link goes on, whatever it waited for.
    fn wake_link(&mut self, queues: &mut Queues, token: u64) {
        let place = index(token);
        if let Some(Kind::Consumer(consumer)) = self.links.get_mut(place as usize).map(|link| &mut link.kind)
            && std::mem::take(&mut consumer.blocked)
        {
            self.blocked.retain(|blocked| *blocked != place);
        }
        self.advance(queues, token);
    }

    /// Tells the queue the next part of the credit when half of the last one is used.
    fn renew(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        let left = consumer.told.saturating_sub(consumer.given);
        if !consumer.blocked
            && left <= ahead(consumer, self.limits.output_bytes) / 2
            && limit(consumer, self.engine.credit(link.id)) > consumer.told
        {
            self.tell_credit(queues, token);
        }
    }

    /// The queue has nothing more for a link that drains.
    pub(super) fn on_drained(&mut self, queues: &mut Queues, token: u64, limit: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        if consumer.told != limit {
            // It crossed with a later word of ours, which will be answered too.
            return;
        }
        if limit < whole(consumer, self.engine.credit(link.id)) && consumer.given >= limit {
            // That was a part of the credit. A link that is blocked tells the next one when it goes on.
            if !consumer.blocked {
                self.tell_credit(queues, token);
            }
            return;
        }
        consumer.drained = true;
        self.finish_drain(queues, token);
    }

    fn finish_drain(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        if consumer.drained
            && consumer.pending.is_empty()
            && consumer.sending.is_none()
            && self.engine.draining(link.id)
        {
            consumer.drained = false;
            // An error says that the link has gone meanwhile.
            let _ = self.engine.drained(link.id);
            self.tell_credit(queues, token);
        }
    }

    /// A delivery from the queue.
    pub(super) fn deliver(&mut self, queues: &mut Queues, token: u64, mut deliver: Deliver) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        // A link that is over has told its queue, which takes the delivery back.
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        consumer.given += 1;
        if consumer.frozen {
            let (queue, key) = (consumer.queue, deliver.key);
            let outcome = packhorse_model::Outcome::ReturnUnseen;
            queues.request(queue, Request::Settle { key, outcome, reply: None });
            return;
        }
        consumer.mean_bytes = (consumer.mean_bytes * 7 + deliver.content.length()) / 8;
        if consumer.pending.is_empty() && self.engine.sendable(link.id) {
            self.send(queues, token, deliver);
            self.renew(queues, token);
            return;
        }
        if let Content::Body(place) = deliver.content
            && deliver.body.is_none()
        {
            // What waits must not depend on the ring.
            deliver.body = queues.ring.get(place);
        }
        consumer.pending.push_back(deliver);
        self.block(queues, token);
    }

    /// The queue gives this link nothing more until it goes on.
    fn block(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        if !consumer.blocked {
            consumer.blocked = true;
            self.blocked.push(index(token));
            self.tell_credit(queues, token);
        }
    }

    /// Blocked links go on: those of one session, or all.
    pub(super) fn unblock(&mut self, queues: &mut Queues, session: Option<SessionId>) {
        let blocked = std::mem::take(&mut self.blocked);
        for place in blocked {
            let Some(link) = self.links.get_mut(place as usize) else { continue };
            let token = token(place, link.generation);
            let Kind::Consumer(consumer) = &mut link.kind else { continue };
            if session.is_some_and(|session| session != link.session) {
                self.blocked.push(place);
                continue;
            }
            consumer.blocked = false;
            self.advance(queues, token);
        }
    }

    /// Sends what waits on a link, as far as there is room; then the queue may give more.
    fn advance(&mut self, queues: &mut Queues, token: u64) {
        loop {
            self.continue_sending(queues, token);
            let Some(link) = self.links.get_mut(index(token) as usize) else { return };
            let Kind::Consumer(consumer) = &mut link.kind else { return };
            if consumer.sending.is_some() {
                return;
            }
            if consumer.pending.is_empty() {
                break;
            }
            if !self.engine.sendable(link.id) {
                self.block(queues, token);
                return;
            }
            if let Some(next) = consumer.pending.pop_front() {
                self.send(queues, token, next);
            }
        }
        self.finish_drain(queues, token);
        self.tell_credit(queues, token);
    }

    /// Sends a delivery whole, or begins to send it in parts. The link is sendable.
    fn send(&mut self, queues: &mut Queues, token: u64, deliver: Deliver) {
        let limits = self.limits;
        let now_ms = queues.broker_ms();
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Link { id, session, kind: Kind::Consumer(consumer), .. } = link else { return };
        let (id, me) = (*id, (token, *session));
        let settled = self.engine.settle_modes(id).is_some_and(|(snd, _)| snd == SenderSettleMode::Settled);
        let place = if settled { 0 } else { consumer.unsettled.insert(deliver.key) };
        let format = deliver.head.message_format;
        let txn = consumer.acquires.and_then(|epoch| self.txns.acquired(epoch, me, consumer, place, deliver.key));
        let state =
            txn.as_ref().map(|id| DeliveryState::Transactional(TransactionalState { txn_id: id, outcome: None }));
        let params =
            SendParams { token: place as u64, settled, format, state: state.as_ref(), ..SendParams::default() };
        let length = deliver.content.length();
        let most = self.engine.peer_max_message_size(id).unwrap_or(0);
        let sent = match deliver.content {
            Content::Large { length, .. } if most > 0 && length > most => Err(Misuse::TooLarge),
            Content::Large { id: file, length } => self.engine.begin_delivery(id, &params).map(|()| {
                let front =
                    Box::new(Front { head: deliver.head, deliveries: deliver.deliveries, overlay: deliver.overlay });
                let (key, place) = (deliver.key, (!settled).then_some(place));
                let rest = LargeOut { id: file, key, place, offset: 0, length, loading: false, front: Some(front) };
                consumer.sending = Some(Sending { chunk: Bytes::new(), rest: Some(rest) });
            }),
            Content::Body(resident) => {
                let share = length >= SHARE_FROM_BYTES as u64;
                let shared = deliver.body.or_else(|| share.then(|| queues.ring.get(resident)).flatten());
                let content = match &shared {
                    Some(bytes) => Some(&bytes[..]),
                    None => queues.ring.look(resident),
                };
                let Some(content) = content else {
                    // The queue hands out only what is resident, and nothing is evicted within a turn.
                    let text = format!("entry {} was handed out without its body", deliver.key.sequence);
                    queues.log(Level::Error, Some(self.id), text);
                    debug_assert!(false, "a body is resident when it is handed out");
                    return;
                };
                self.front.clear();
                let front = Front { head: deliver.head, deliveries: deliver.deliveries, overlay: deliver.overlay };
                let skip = render::put_front(&mut self.front, &front, content, length, now_ms, &limits).unwrap_or(0);
                if length <= WHOLE_UP_TO_BYTES && self.engine.fits(id, self.front.len() + content.len() - skip) {
                    let rest = shared.as_ref().map(|bytes| bytes.slice(skip..));
                    let piece = match &rest {
                        Some(bytes) => Piece::Share(bytes),
                        None => Piece::Copy(&content[skip..]),
                    };
                    self.engine.send(id, &params, &[Piece::Copy(&self.front), piece]).map(|_| ())
                } else {
                    let mut whole = Vec::with_capacity(self.front.len());
                    whole.extend_from_slice(&self.front);
                    let body =
                        shared.as_ref().map_or_else(|| Bytes::copy_from_slice(content), Clone::clone).slice(skip..);
                    self.engine.begin_delivery(id, &params).map(|()| {
                        consumer.sending = Some(Sending { chunk: body, rest: None });
                        consumer.front = whole;
                    })
                }
            }
        };
        match sent {
            Ok(()) => self.continue_sending(queues, token),
            Err(Misuse::TooLarge) => self.too_large_for_link(queues, token, place, length),
            Err(misuse) => {
                let why = Refused::new("amqp:internal-error", format!("a delivery could not be sent: {misuse}"));
                self.fail_link(queues, token, &why);
            }
        }
    }

    /// The message exceeds the link's max-message-size: it goes back, for others.
    fn too_large_for_link(&mut self, queues: &mut Queues, token: u64, place: usize, length: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        let most = self.engine.peer_max_message_size(link.id).unwrap_or(0);
        let text =
            format!("link \"{}\" takes messages of at most {most} bytes: one of {length} is passed over", link.name);
        consumer.sending = None;
        consumer.in_txn.remove(&place);
        let Some(key) = consumer.unsettled.try_remove(place) else {
            // It was settled when it was handed out: the link cannot go on without losing it silently.
            self.fail_link(queues, token, &Refused::new("amqp:link:message-size-exceeded", text));
            return;
        };
        let (queue, browses) = (consumer.queue, consumer.browses);
        queues.log(Level::Warn, Some(self.id), text);
        if browses {
            return;
        }
        let outcome = packhorse_model::Outcome::ReturnModified { undeliverable_here: true, annotations: Bytes::new() };
        queues.request(queue, Request::Settle { key, outcome, reply: None });
    }

    /// Sends more of a message that goes in parts.
    fn continue_sending(&mut self, queues: &mut Queues, token: u64) {
        let limits = self.limits;
        let now_ms = queues.broker_ms();
        let me = self.me_at(token);
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Link { id, kind: Kind::Consumer(consumer), .. } = link else { return };
        let id = *id;
        let Some(sending) = &mut consumer.sending else { return };
        if let Some(rest) = &mut sending.rest
            && let Some(front) = &rest.front
            && !rest.loading
            && rest.offset > 0
        {
            // The first part is here: its front can be made.
            let mut made = Vec::new();
            let skip = render::put_front(&mut made, front, &sending.chunk, rest.length, now_ms, &limits);
            sending.chunk = sending.chunk.slice(skip.unwrap_or(0)..);
            consumer.front = made;
            rest.front = None;
        }
        let ready = sending.rest.as_ref().is_none_or(|rest| rest.front.is_none());
        let mut done = false;
        if ready {
            let more_in_file = sending.rest.as_ref().is_some_and(|rest| rest.offset < rest.length);
            if !consumer.front.is_empty() {
                let last = sending.chunk.is_empty() && !more_in_file;
                match self.engine.send_chunk(id, Piece::Copy(&consumer.front), last) {
                    Ok(sent) => {
                        consumer.front.drain(..sent.consumed);
                        done = sent.done;
                    }
                    Err(misuse) => return self.sending_failed(queues, token, misuse),
                }
            }
            if consumer.front.is_empty() && !done && (!sending.chunk.is_empty() || !more_in_file) {
                match self.engine.send_chunk(id, Piece::Share(&sending.chunk), !more_in_file) {
                    Ok(sent) => {
                        sending.chunk = sending.chunk.slice(sent.consumed..);
                        done = sent.done;
                    }
                    Err(misuse) => return self.sending_failed(queues, token, misuse),
                }
            }
        }
        if done {
            let sent = consumer.sending.take().and_then(|sending| sending.rest);
            if let Some(LargeOut { key, place: None, .. }) = sent {
                let outcome = packhorse_model::Outcome::Acknowledge;
                queues.request(consumer.queue, Request::Settle { key, outcome, reply: None });
            }
            return;
        }
        if let Some(rest) = &mut sending.rest
            && sending.chunk.is_empty()
            && !rest.loading
            && rest.offset < rest.length
        {
            rest.loading = true;
            let (file, offset) = (rest.id, rest.offset);
            let length = u64::from(READ_AHEAD_BYTES).min(rest.length - offset) as u32;
            queues.read_large(me, file, offset, length);
        }
        // It goes on when there is room, or when the part is here; the queue gives nothing meanwhile.
        self.block(queues, token);
    }

    fn sending_failed(&mut self, queues: &mut Queues, token: u64, misuse: Misuse) {
        let Some(link) = self.link(token) else { return };
        let id = link.id;
        if misuse == Misuse::TooLarge {
            let _ = self.engine.abort_delivery(id);
            let most = self.engine.peer_max_message_size(id).unwrap_or(0);
            let why = format!("the message is larger than the link's max-message-size of {most} bytes");
            self.fail_link(queues, token, &Refused::new("amqp:link:message-size-exceeded", why));
            return;
        }
        let why = Refused::new("amqp:internal-error", format!("a delivery could not be sent: {misuse}"));
        self.fail_link(queues, token, &why);
    }

    /// A part of a large message.
    pub(super) fn on_large_loaded(&mut self, queues: &mut Queues, token: u64, bytes: Option<Bytes>) {
        // Asked for by an earlier link in this place, it is a part of another message, or another part.
        let Some(link) = self.link_mut(token) else { return };
        let id = link.id;
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        let Some(Sending { chunk, rest: Some(rest) }) = &mut consumer.sending else { return };
        let asked = u64::from(READ_AHEAD_BYTES).min(rest.length - rest.offset);
        let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 == asked) else {
            let text =
                format!("large message {}: its file cannot be read or is damaged at byte {}", rest.id.0, rest.offset);
            let (key, place, queue) = (rest.key, rest.place, consumer.queue);
            if let Some(place) = place {
                consumer.unsettled.try_remove(place);
                consumer.in_txn.remove(&place);
            }
            consumer.sending = None;
            consumer.front.clear();
            // An error says that nothing was begun.
            let _ = self.engine.abort_delivery(id);
            queues.log(Level::Warn, Some(self.id), text);
            queues.request(queue, Request::Unreadable { key });
            self.wake_link(queues, token);
            return;
        };
        rest.loading = false;
        rest.offset += bytes.len() as u64;
        *chunk = bytes;
        self.wake_link(queues, token);
    }

    /// What the peer says of deliveries of ours in one frame.
    pub(super) fn on_outcomes(
        &mut self,
        queues: &mut Queues,
        told: &[DeliveryOutcome],
        state: Option<&DeliveryState<'_>>,
    ) {
        let mut left = told;
        while let Some((first, others)) = left.split_first() {
            match self.accepted_in_txn(queues, left, state) {
                0 => {
                    self.on_outcome(queues, first, state);
                    left = others;
                }
                done => left = &left[done..],
            }
        }
    }

    /// What the peer says of a delivery of ours.
    fn on_outcome(&mut self, queues: &mut Queues, told: &DeliveryOutcome, state: Option<&DeliveryState<'_>>) {
        let me = self.me_at(told.link_token);
        let Some(link) = self.link_mut(told.link_token) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else {
            // The link is over; its queue has taken everything back.
            if !told.settled {
                let session = link.session;
                let _ = self.engine.settle_outgoing(session, told.delivery_id);
            }
            if matches!(told.state, Decision::Transactional) {
                self.nothing_retired(queues, state);
            }
            return;
        };
        if told.repeated {
            return;
        }
        if matches!(told.state, Decision::Transactional) {
            self.on_retired(queues, told, state);
            return;
        }
        if !consumer.in_txn.is_empty() && self.settles_in_txn(queues, told, state) {
            return;
        }
        let Some(link) = self.link_mut(told.link_token) else { return };
        let Kind::Consumer(consumer) = &mut link.kind else { return };
        if matches!(told.state, Decision::Other | Decision::Declared) {
            let why = "the outcome is of a type that is not known here; use accepted, rejected, released or modified";
            self.fail_link(queues, told.link_token, &Refused::new("amqp:not-allowed", why));
            return;
        }
        let Some(outcome) = render::outcome(told.state, state) else { return };
        let Some(key) = consumer.unsettled.try_remove(told.token as usize) else { return };
        if consumer.browses {
            if !told.settled {
                // Nothing comes of it, so there is nothing to wait for.
                let session = link.session;
                let _ = self.engine.settle_outgoing(session, told.delivery_id);
            }
            return;
        }
        let queue = consumer.queue;
        let reply = (!told.settled).then_some((me, told.delivery_id));
        if reply.is_some() {
            link.waiting += 1;
        }
        queues.request(queue, Request::Settle { key, outcome, reply });
    }
}

/// How many deliveries the queue may be ahead of what is sent.
fn ahead(consumer: &Consumer, output_bytes: usize) -> u64 {
    (output_bytes as u64 / consumer.mean_bytes.max(1)).clamp(1, AHEAD)
}

/// Deliveries in all that the queue may have given to the link.
fn limit(consumer: &Consumer, credit: u32) -> u64 {
    if consumer.blocked { consumer.given } else { whole(consumer, credit) }
}

/// The same, whether or not it can take them now.
fn whole(consumer: &Consumer, credit: u32) -> u64 {
    if consumer.frozen {
        return consumer.given;
    }
    (consumer.given + u64::from(credit)).saturating_sub(consumer.pending.len() as u64)
}
