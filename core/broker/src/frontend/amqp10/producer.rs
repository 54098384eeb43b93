//! Messages in: transfers become deliveries, deliveries become requests to queues, answers become dispositions. Large
//! messages stream into files as they come; what follows them on the same link waits, so that order is kept.

use super::connection::{Connection, Going, index, token};
use super::link::{Kind, LargeIn, Partial, PartialBody, Producer};
use super::render::{self, Refused};
use super::transacted::Posting;
use crate::mail::{Behind, LinkRef, Payload, Request};
use crate::queues::{OnceEnqueue, Queues};
use bytes::Bytes;
use packhorse_amqp10::codec::{DeliveryState, Error, ReceiverSettleMode, Rejected};
use packhorse_amqp10::engine::TransferEvent;
use packhorse_amqp10::message::MessageView;
use packhorse_amqp10::producer::Tag;
use packhorse_model::{Identity, LargeId, Numbered};
use packhorse_store::LargeOp;
use packhorse_txn::{Cause, Input};

/// Deliveries of more bytes are streamed to a file.
const LARGE_FROM_BYTES: usize = 1 << 20;

/// Bytes of one link that may wait, for the disk or behind a large message, before the connection is not read.
const WAITING_BYTES: u64 = 1 << 20;

impl Connection {
    pub(super) fn on_transfer(&mut self, queues: &mut Queues, transfer: &TransferEvent<'_>) {
        let (token, delivery) = (transfer.token, transfer.delivery_id);
        let modes = self.engine.settle_modes(transfer.link);
        let second = modes.is_some_and(|(_, rcv)| rcv == ReceiverSettleMode::Second);
        let Some(link) = self.link_mut(token) else { return };
        let producer = match &mut link.kind {
            Kind::Producer(producer) => producer,
            Kind::Coordinator(_) => return self.on_request_frame(queues, transfer),
            _ => return,
        };
        if second && transfer.settle_first && !transfer.settled && transfer.last {
            producer.settle_first.push(delivery);
        }
        let mut epoch = None;
        if let Some(DeliveryState::Transactional(state)) = &transfer.state {
            epoch = self.posted_in(queues, transfer, state.txn_id);
            if epoch.is_none() {
                return;
            }
        }
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        if transfer.aborted {
            let partial = producer.partial.take();
            self.drop_partial(queues, token, partial);
            self.renew_credit(queues, token);
            return;
        }
        let mut identity = None;
        if producer.numbers.is_some() && transfer.first {
            identity = self.number_of(queues, transfer, epoch).map(Identity::Number);
            if identity.is_none() {
                return;
            }
        }
        if transfer.first && transfer.last {
            let coming = Coming { delivery, format: transfer.format, settled: transfer.settled, epoch, identity };
            self.on_delivery(queues, token, coming, Whole::Slice(transfer.payload));
        } else {
            self.gather(queues, transfer, epoch, identity);
        }
        if transfer.last {
            self.renew_credit(queues, token);
        }
    }

    /// The number of a delivery whose producer numbers its messages. `None`: it has none that could be; the delivery is dealt with.
    #[cold]
    fn number_of(&mut self, queues: &mut Queues, transfer: &TransferEvent<'_>, epoch: Option<u64>) -> Option<Numbered> {
        let token = transfer.token;
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return None };
        let (id, next) = producer.numbers.as_deref_mut()?;
        let Some(Tag { number, lowest }) = Tag::read(transfer.tag) else {
            let why = "delivery-tags of a producer that numbers its messages are its number and its lowest that is not confirmed, 8 bytes each";
            self.fail_link(queues, token, &Refused::new("amqp:invalid-field", why));
            epoch.into_iter().for_each(|epoch| self.fail_txn(queues, epoch));
            return None;
        };
        let fresh = number >= *next;
        *next = (*next).max(number.saturating_add(1));
        Some(Numbered { producer: *id, number, lowest, fresh })
    }

    /// One frame of a delivery of several.
    fn gather(
        &mut self,
        queues: &mut Queues,
        transfer: &TransferEvent<'_>,
        epoch: Option<u64>,
        identity: Option<Identity>,
    ) {
        let token = transfer.token;
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let partial = producer.partial.get_or_insert_with(|| Partial {
            delivery: transfer.delivery_id,
            format: transfer.format,
            settled: false,
            epoch: None,
            identity,
            body: PartialBody::Memory(Vec::new()),
        });
        partial.settled |= transfer.settled;
        partial.epoch = partial.epoch.or(epoch);
        match &mut partial.body {
            PartialBody::Memory(bytes) => {
                bytes.extend_from_slice(transfer.payload);
                if bytes.len() > LARGE_FROM_BYTES {
                    self.start_large(queues, token);
                }
            }
            PartialBody::Large(large) => {
                let checked = large.scan.as_mut().map_or(Ok(()), |scan| scan.push(transfer.payload));
                match checked {
                    Ok(()) => {
                        large.handed += transfer.payload.len() as u64;
                        let bytes = Bytes::copy_from_slice(transfer.payload);
                        queues.large_ops.push(LargeOp::Chunk { id: large.id, bytes });
                        self.pace(token);
                    }
                    Err(error) => {
                        let why = Refused::new(error.condition(), error.to_string());
                        self.refuse_partial(queues, token, &why);
                    }
                }
            }
            PartialBody::Dropped => {}
        }
        if transfer.last {
            self.complete(queues, token);
        }
    }

    /// A delivery has outgrown memory: what is here goes to a file, and so does the rest.
    fn start_large(&mut self, queues: &mut Queues, token: u64) {
        let limits = self.limits;
        let me = self.me_at(token);
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let queue = producer.queue;
        let Some(partial) = &mut producer.partial else { return };
        let PartialBody::Memory(bytes) = &mut partial.body else { return };
        let default_durable = queues.default_durable(queue);
        let (head, start, scan) = if partial.format == 0 {
            let view = match MessageView::parse_prefix(bytes, None, &limits) {
                Ok(Some(view)) => view,
                // The sections before the body are not all here yet; their size has a limit of its own.
                Ok(None) => return,
                Err(error) => {
                    let why = Refused::new(error.condition(), error.to_string());
                    self.refuse_partial(queues, token, &why);
                    return;
                }
            };
            let read = render::read(&view, default_durable, queues.broker_ms());
            if partial.identity.is_none() && queues.config.duplicate_ids.max > 0 {
                match render::duplicate_id(&view) {
                    Ok(id) => partial.identity = id.map(Identity::Id),
                    Err(why) => {
                        self.refuse_partial(queues, token, &why);
                        return;
                    }
                }
            }
            let mut scan = view.body_scan(&limits);
            if let Err(error) = scan.push(&bytes[view.layout().body_start()..]) {
                let why = Refused::new(error.condition(), error.to_string());
                self.refuse_partial(queues, token, &why);
                return;
            }
            (read.head, read.content_start, Some(scan))
        } else {
            (render::opaque_head(partial.format, default_durable, queues.broker_ms()), 0, None)
        };
        let id = queues.new_large();
        let first = Bytes::from(std::mem::take(bytes)).slice(start..);
        let handed = first.len() as u64;
        queues.large_writers.insert(id, me);
        queues.large_ops.push(LargeOp::Begin { id });
        queues.large_ops.push(LargeOp::Chunk { id, bytes: first });
        partial.body = PartialBody::Large(Box::new(LargeIn { id, head, handed, written: 0, scan }));
        self.pace(token);
    }

    /// The last frame of a delivery of several is here.
    fn complete(&mut self, queues: &mut Queues, token: u64) {
        let Some(link) = self.link_mut(token) else { return };
        let Kind::Producer(producer) = &mut link.kind else { return };
        let Some(partial) = producer.partial.take() else { return };
        let Partial { delivery, format, settled, epoch, identity, body } = partial;
        match body {
            PartialBody::Memory(bytes) => {
                let coming = Coming { delivery, format, settled, epoch, identity };
                self.on_delivery(queues, token, coming, Whole::Bytes(Bytes::from(bytes)));
            }
            PartialBody::Large(large) => {
                let finished = large.scan.as_ref().map_or(Ok(0), |scan| scan.finish());
                if let Err(error) = finished {
                    queues.large_writers.remove(&large.id);
                    queues.large_ops.push(LargeOp::Abort { id: large.id });
                    let why = Refused::new(error.condition(), error.to_string());
                    self.refuse_delivery(queues, token, delivery, settled, epoch, &why);
                    return;
                }
                queues.large_ops.push(LargeOp::End { id: large.id });
                let mean = &mut producer.mean_bytes;
                *mean = (*mean * 15 + large.handed) / 16;
                let payload = Payload::Large { id: large.id, length: large.handed };
                producer.behind.push_back(Behind {
                    delivery,
                    settled,
                    head: large.head,
                    payload,
                    unsynced: true,
                    epoch,
                    identity,
                });
                if !settled {
                    link.waiting += 1;
                }
            }
            PartialBody::Dropped => {}
        }
    }

    /// A whole delivery: its header is read, the rest goes to the queue as it is.
    fn on_delivery(&mut self, queues: &mut Queues, token: u64, coming: Coming, whole: Whole<'_>) {
        let Coming { delivery, format, settled, epoch, mut identity } = coming;
        let limits = self.limits;
        let me = self.me_at(token);
        let Some(link) = self.link_mut(token) else { return };
        let Kind::Producer(producer) = &mut link.kind else { return };
        let default_durable = queues.default_durable(producer.queue);
        let bytes = whole.bytes();
        let (head, start) = if format == 0 {
            match MessageView::parse(bytes, &limits) {
                Ok(view) => {
                    let read = render::read(&view, default_durable, queues.broker_ms());
                    if identity.is_none() && queues.config.duplicate_ids.max > 0 {
                        match render::duplicate_id(&view) {
                            Ok(id) => identity = id.map(Identity::Id),
                            Err(why) => {
                                self.refuse_delivery(queues, token, delivery, settled, epoch, &why);
                                return;
                            }
                        }
                    }
                    (read.head, read.content_start)
                }
                Err(error) => {
                    let why = Refused::new(error.condition(), error.to_string());
                    self.refuse_delivery(queues, token, delivery, settled, epoch, &why);
                    return;
                }
            }
        } else {
            (render::opaque_head(format, default_durable, queues.broker_ms()), 0)
        };
        producer.mean_bytes = (producer.mean_bytes * 15 + bytes.len() as u64) / 16;
        if !settled {
            link.waiting += 1;
        }
        let payload = match whole {
            Whole::Slice(bytes) => Payload::Slice(&bytes[start..]),
            Whole::Bytes(bytes) => Payload::Shared(bytes.slice(start..)),
        };
        if !producer.behind.is_empty() {
            producer.behind_bytes += bytes_in_memory(&payload);
            let payload = payload.into_owned();
            let unsynced = false;
            producer.behind.push_back(Behind { delivery, settled, head, payload, unsynced, epoch, identity });
            self.pace(token);
        } else if let Some(epoch) = epoch {
            self.post(queues, token, Posting { delivery, settled, epoch, identity }, head, payload);
        } else if let Some(identity) = identity {
            let (queue, payload) = (producer.queue, payload.into_owned());
            let message = OnceEnqueue { from: me, delivery, settled, head, payload, identity };
            queues.enqueue_once(queue, message);
        } else {
            queues.enqueue(producer.queue, me, delivery, settled, head, payload);
        }
    }

    /// Deliveries of the link whose turn it is go to the queue.
    fn release_behind(&mut self, queues: &mut Queues, token: u64) {
        let me = self.me_at(token);
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let mut posted = Vec::new();
        while let Some(behind) = producer.behind.pop_front_if(|behind| !behind.unsynced) {
            producer.behind_bytes -= bytes_in_memory(&behind.payload);
            match behind.epoch {
                Some(epoch) => {
                    let Behind { delivery, settled, head, payload, identity, .. } = behind;
                    posted.push((Posting { delivery, settled, epoch, identity }, head, payload));
                }
                None => queues.enqueue_behind(producer.queue, me, behind),
            }
        }
        if !posted.is_empty() {
            // They are invisible until they are committed, which puts them where it is then.
            for (posting, head, payload) in posted {
                self.post(queues, token, posting, head, payload);
            }
            self.resume_requests(queues);
        }
        self.pace(token);
    }

    /// Pauses reading while more waits for this link than memory should hold.
    fn pace(&mut self, token: u64) {
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let unwritten = match producer.partial.as_ref().map(|partial| &partial.body) {
            Some(PartialBody::Large(large)) => large.handed - large.written,
            _ => 0,
        };
        let waiting = unwritten + producer.behind_bytes as u64;
        let pauses = if producer.pauses { waiting > WAITING_BYTES / 2 } else { waiting > WAITING_BYTES };
        if pauses != producer.pauses {
            producer.pauses = pauses;
            self.paused_by = if pauses { self.paused_by + 1 } else { self.paused_by - 1 };
        }
    }

    pub(super) fn on_large_written(&mut self, token: u64, id: LargeId, written: u64) {
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        if let Some(Partial { body: PartialBody::Large(large), .. }) = &mut producer.partial
            && large.id == id
        {
            large.written = written;
        }
        self.pace(token);
    }

    pub(super) fn on_large_synced(&mut self, queues: &mut Queues, token: u64, id: LargeId, length: u64) {
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        for behind in &mut producer.behind {
            if let Payload::Large { id: waiting, length: handed } = &behind.payload
                && *waiting == id
            {
                debug_assert_eq!(*handed, length, "the store has written what it was handed");
                behind.unsynced = false;
            }
        }
        self.release_behind(queues, token);
        self.end_if_leaving(token);
    }

    /// A producer's link ends; what was whole still counts. Unless the connection is lost, the link stays until it is told.
    pub(super) fn producer_goes(&mut self, queues: &mut Queues, token: u64, mut producer: Producer, going: Going) {
        if std::mem::take(&mut producer.limited) {
            queues.request(producer.queue, Request::NoRoom { from: self.me_at(token) });
        }
        let partial = producer.partial.take();
        if std::mem::take(&mut producer.pauses) {
            self.paused_by -= 1;
        }
        if going == Going::Stolen {
            // Its peer does not know yet. What it goes on sending there is dropped unseen, in whatever transaction it is.
            let gone = queues.directory.by_id(producer.queue).is_none();
            let cause = if gone { Cause::QueueGone } else { Cause::OperationFailed };
            for txn in self.txns.working_all() {
                queues.transact(Input::Failed { txn, cause });
            }
        } else if going == Going::Lost
            && let Some(Partial { epoch: Some(epoch), .. }) = partial
        {
            self.fail_txn(queues, epoch);
        }
        self.drop_partial(queues, token, partial);
        if going != Going::Lost && !producer.behind.is_empty() {
            if let Some(link) = self.link_mut(token) {
                link.leaving = true;
                link.kind = Kind::Producer(producer);
            }
            return;
        }
        if producer.behind.iter().any(|behind| behind.epoch.is_some()) {
            self.drop_posted(queues, &mut producer);
        }
        if !producer.behind.is_empty() {
            queues.adopt(producer.queue, self.me_at(token), producer.behind);
        }
    }

    fn end_if_leaving(&mut self, token: u64) {
        if let Some(link) = self.link_mut(token)
            && link.leaving
            && matches!(&link.kind, Kind::Producer(producer) if producer.behind.is_empty())
        {
            link.kind = Kind::Over;
        }
    }

    pub(super) fn drop_partial(&mut self, queues: &mut Queues, token: u64, partial: Option<Partial>) {
        if let Some(Partial { body: PartialBody::Large(large), .. }) = partial {
            queues.large_writers.remove(&large.id);
            queues.large_ops.push(LargeOp::Abort { id: large.id });
            self.pace(token);
        }
    }

    /// The frames that are still to come of a delivery that was refused are dropped.
    pub(super) fn drop_rest(&mut self, token: u64, transfer: &TransferEvent<'_>) {
        if let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) {
            producer.partial = Some(Partial {
                delivery: transfer.delivery_id,
                format: transfer.format,
                settled: transfer.settled,
                epoch: None,
                identity: None,
                body: PartialBody::Dropped,
            });
        }
    }

    /// Refuses the delivery of which not all frames are here.
    fn refuse_partial(&mut self, queues: &mut Queues, token: u64, why: &Refused) {
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let Some(partial) = &mut producer.partial else { return };
        let (delivery, settled, epoch) = (partial.delivery, partial.settled, partial.epoch.take());
        let body = std::mem::replace(&mut partial.body, PartialBody::Dropped);
        let dropped = Partial { delivery, format: 0, settled, epoch, identity: None, body };
        self.drop_partial(queues, token, Some(dropped));
        self.refuse_delivery(queues, token, delivery, settled, epoch, why);
    }

    /// Rejects a delivery; one that its sender has settled cannot be rejected, so its link ends. What fails in a transaction fails
    /// that.
    pub(super) fn refuse_delivery(
        &mut self,
        queues: &mut Queues,
        token: u64,
        delivery: u32,
        settled: bool,
        epoch: Option<u64>,
        why: &Refused,
    ) {
        if let Some(epoch) = epoch {
            self.fail_txn(queues, epoch);
        }
        if settled {
            self.fail_link(queues, token, why);
        } else {
            self.reject(queues, token, delivery, why);
        }
    }

    /// Tells the producer that a delivery is not taken.
    pub(super) fn reject(&mut self, queues: &mut Queues, token: u64, delivery: u32, why: &Refused) {
        let text = format!("a message was rejected: {}: {}", why.condition, why.why);
        queues.log(crate::io::Level::Warn, Some(self.id), text);
        let error = Error { condition: why.condition, description: Some(&why.why), info: None };
        self.settle(token, delivery, &DeliveryState::Rejected(Rejected { error: Some(error) }));
    }

    /// These deliveries are safe.
    pub(super) fn on_confirmed(&mut self, token: u64, first: u32, last: u32) {
        let count = last.wrapping_sub(first).wrapping_add(1);
        for offset in 0..count {
            self.settle(token, first.wrapping_add(offset), &DeliveryState::Accepted);
        }
        self.answered(token, count);
    }

    pub(super) fn settle(&mut self, token: u64, delivery: u32, state: &DeliveryState<'_>) {
        self.settle_as(token, delivery, state, 0);
    }

    /// The same, with the engine's number for the state.
    #[inline]
    pub(super) fn settle_as(&mut self, token: u64, delivery: u32, state: &DeliveryState<'_>, number: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let second = self.engine.settle_modes(link.id).is_some_and(|(_, rcv)| rcv == ReceiverSettleMode::Second);
        let settled = match &mut link.kind {
            Kind::Producer(producer) if second => {
                let place = producer.settle_first.iter().position(|id| *id == delivery);
                place.map(|place| producer.settle_first.swap_remove(place)).is_some()
            }
            _ => !second,
        };
        // The link or the session may be gone; then nobody waits for it.
        let _ = self.engine.settle_incoming_as(link.id, delivery, Some(state), settled, number);
    }

    /// Grants new credit when half of it is used: as much as its messages' size allows. Takes some back when messages have
    /// become much larger; what is on its way may still come.
    pub(super) fn renew_credit(&mut self, queues: &mut Queues, token: u64) {
        let me = self.me_at(token);
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Producer(producer) = &mut link.kind else { return };
        let by_bytes = queues.config.link_credit_bytes / producer.mean_bytes.max(1);
        let most = by_bytes.clamp(1, u64::from(queues.config.link_credit_max)) as u32;
        let most = most.min(producer.share);
        let credit = self.engine.credit(link.id);
        if credit > most / 2 && credit / 2 <= most {
            return;
        }
        if queues.behind {
            if !std::mem::replace(&mut producer.starved, true) {
                queues.starved.push(me);
            }
            return;
        }
        if producer.limited {
            self.ask_for_room(queues, token);
            return;
        }
        let _ = self.engine.grant(link.id, most);
    }

    /// Asks the queue how much credit the link may have.
    fn ask_for_room(&mut self, queues: &mut Queues, token: u64) {
        let me = self.me_at(token);
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Producer(producer) = &mut link.kind else { return };
        if producer.asked.is_none() {
            producer.asked = Some(self.engine.credit(link.id));
            let request = Request::Room { from: me, mean_bytes: producer.mean_bytes };
            queues.request(producer.queue, request);
        }
    }

    /// The queue has room for so many messages of this link.
    pub(super) fn on_room(&mut self, queues: &mut Queues, token: u64, share: u64) {
        let Some(link) = self.links.get_mut(index(token) as usize) else { return };
        let Kind::Producer(producer) = &mut link.kind else { return };
        if !producer.limited {
            // It has no limits any more.
            return;
        }
        producer.share = u32::try_from(share).unwrap_or(u32::MAX);
        let most = (queues.config.link_credit_bytes / producer.mean_bytes.max(1))
            .clamp(1, u64::from(queues.config.link_credit_max))
            .min(share) as u32;
        // What has come since the link asked was on its way when the queue looked.
        let credit = self.engine.credit(link.id);
        let since = producer.asked.take().map_or(0, |asked| asked.saturating_sub(credit));
        let _ = self.engine.grant(link.id, most.saturating_sub(since));
        if since > 0 {
            self.renew_credit(queues, token);
        }
    }

    /// The queue may have other limits, or none.
    pub(super) fn limits_changed(&mut self, queues: &mut Queues, token: u64) {
        let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) else { return };
        let (before, now) = (producer.limited, queues.limited(producer.queue));
        producer.limited = now;
        if now {
            self.ask_for_room(queues, token);
        } else if before {
            producer.asked = None;
            producer.share = u32::MAX;
            self.renew_credit(queues, token);
        }
    }

    /// The store has caught up: credit that was withheld is granted.
    pub(crate) fn feed(&mut self, queues: &mut Queues, to: LinkRef) {
        let token = token(to.link, to.generation);
        if let Some(Kind::Producer(producer)) = self.link_mut(token).map(|link| &mut link.kind) {
            producer.starved = false;
            self.renew_credit(queues, token);
        }
    }
}

/// A whole delivery but its bytes.
struct Coming {
    delivery: u32,
    format: u32,
    settled: bool,
    /// The transaction it is in.
    epoch: Option<u64>,
    /// Which message it is, if that is known.
    identity: Option<Identity>,
}

/// All bytes of a delivery.
enum Whole<'a> {
    /// In one frame.
    Slice(&'a [u8]),
    /// Gathered from several.
    Bytes(Bytes),
}

impl Whole<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Whole::Slice(bytes) => bytes,
            Whole::Bytes(bytes) => bytes,
        }
    }
}

fn bytes_in_memory(payload: &Payload<'_>) -> usize {
    match payload {
        Payload::Slice(bytes) => bytes.len(),
        Payload::Shared(bytes) => bytes.len(),
        Payload::Large { .. } => 0,
    }
}
