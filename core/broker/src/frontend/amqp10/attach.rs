//! Links come: the peer's `attach`, what must happen before it is answered, and the answer.
//!
//! A name is looked up, perhaps a queue created, an older link of the same name gives way, the consumer is announced to
//! its queue; each may involve other shards, so the attach waits as [`Kind::Pending`] and goes on in [`Connection::resume`].

use super::connection::{Connection, Going, clip, token};
use super::link::{Consumer, Kind, Pending, Producer};
use super::render::{self, Refused};
use crate::access::{self, Verb};
use crate::io::Level;
use crate::mail::{Body, LinkRef, Request};
use crate::queues::Queues;
use packhorse_amqp10::codec::{AttachTarget, Error, Map, SenderSettleMode};
use packhorse_amqp10::engine::{AttachEvent, LinkReply};
use packhorse_amqp10::producer::{self, Opening};
use packhorse_model::{Address, ProducerId, QueueId, ShardId};
use packhorse_queue::ConsumerId;

impl Connection {
    pub(super) fn on_attach(&mut self, queues: &mut Queues, event: &AttachEvent<'_>) {
        let attach = event.frame.decode();
        if let Some(stolen) = event.stolen
            && let Some(old) = self.engine.link_token(stolen)
        {
            self.link_goes(queues, old, Going::Stolen);
        }
        let receiver = Connection::is_receiver(event.role);
        if receiver && matches!(attach.target, Some(AttachTarget::Coordinator(_))) {
            self.attach_coordinator(event);
            return;
        }
        let wanted =
            if receiver { render::target(attach.target.as_ref()) } else { render::source(attach.source.as_ref()) };
        let wanted = wanted.and_then(|(name, kept)| {
            let verb = if receiver { Verb::Send } else { Verb::Receive };
            access::check(&self.principal, verb, &Address::Queue(name.clone()))
                .map_err(|denied| Refused::new("amqp:unauthorized-access", denied.0))?;
            let opening = if receiver { Opening::read(attach.properties) } else { Ok(None) };
            let opening = opening.map_err(|why| Refused::new("amqp:invalid-field", why))?;
            Ok((name, kept, opening))
        });
        let (queue, kept, opening) = match wanted {
            Ok(wanted) => wanted,
            Err(why) => {
                let token = self.insert(event.link, event.session, attach.name, Kind::Over);
                let _ = self.engine.set_link_token(event.link, token);
                self.refuse(queues, token, &why);
                return;
            }
        };
        // Names that differ only in role are different links.
        let name = self.link_name(attach.name, receiver);
        let pending = Pending { queue, kept, receiver, opening, stealing: 0 };
        let token = self.insert(event.link, event.session, attach.name, Kind::Pending(pending));
        // The link is there: the engine just named it.
        let _ = self.engine.set_link_token(event.link, token);
        let me = self.me_at(token);
        let old = queues.names.insert(name.clone(), me);
        if let Some(old) = old.filter(|old| *old != me) {
            queues.steal(old);
        }
        if queues.config.shards > 1 {
            if let Some(Kind::Pending(pending)) = self.link_mut(token).map(|link| &mut link.kind) {
                let all = u64::MAX >> (64 - u32::from(queues.config.shards));
                pending.stealing = all & !bit(queues.shard);
            }
            queues.mail_others(|| Body::Steal { link: name.clone(), by: me });
        }
        if old.is_some() || queues.config.shards > 1 {
            // The old link's deliveries go back before this one gets any: its end is an answer that comes first.
            queues.resumed.push(me);
            return;
        }
        self.go_on(queues, token);
    }

    /// Whether this link waits for `shard` to say that it has no older one. The mailboxes keep their order: then whatever
    /// is attached there did not know of this link yet.
    pub(crate) fn asks_to_steal(&self, of: LinkRef, shard: ShardId) -> bool {
        let link = self.link(token(of.link, of.generation));
        matches!(link.map(|link| &link.kind), Some(Kind::Pending(pending)) if pending.stealing & bit(shard) != 0)
    }

    /// Another shard has no older link of this name (any more).
    pub(crate) fn stolen_elsewhere(&mut self, queues: &mut Queues, to: LinkRef, from: ShardId) {
        let token = token(to.link, to.generation);
        if let Some(Kind::Pending(pending)) = self.link_mut(token).map(|link| &mut link.kind) {
            pending.stealing &= !bit(from);
            self.go_on(queues, token);
        }
    }

    /// What the link waited for has happened.
    pub(crate) fn resume(&mut self, queues: &mut Queues, to: LinkRef) {
        self.go_on(queues, token(to.link, to.generation));
    }

    fn go_on(&mut self, queues: &mut Queues, token: u64) {
        let me = self.me_at(token);
        let Some(link) = self.link(token) else { return };
        let Kind::Pending(pending) = &link.kind else { return };
        if pending.stealing != 0 {
            return;
        }
        let Some(known) = queues.directory.by_name(pending.queue.as_str()) else {
            if queues.config.auto_create {
                queues.want_queue(pending.queue.clone(), me);
            } else {
                let why =
                    format!("there is no queue \"{}\", and queues are not created on first use here", pending.queue);
                self.refuse(queues, token, &Refused::new("amqp:not-found", why));
            }
            return;
        };
        let queue = known.id;
        if let Some(opening) = pending.opening {
            queues.request(queue, Request::OpenProducer { from: me, opening });
        } else if pending.receiver {
            self.open_producer(queues, token, queue, None);
        } else {
            let modes = self.engine.settle_modes(link.id);
            let pre_settled = modes.is_some_and(|(snd, _)| snd == SenderSettleMode::Settled);
            let browses = pending.kept.browses;
            queues.request(queue, Request::Subscribe { from: me, pre_settled, browses });
        }
    }

    /// The queue knows a producer that numbers its messages.
    pub(super) fn on_producer_opened(&mut self, queues: &mut Queues, token: u64, queue: QueueId, floor: u64) {
        self.open_producer(queues, token, queue, Some(floor));
    }

    fn open_producer(&mut self, queues: &mut Queues, token: u64, queue: QueueId, floor: Option<u64>) {
        let limits = self.limits;
        let most = queues.config.max_message_bytes;
        let Some(link) = self.links.get_mut(super::connection::index(token) as usize) else { return };
        let Kind::Pending(pending) = &link.kind else { return };
        let opening = pending.opening;
        let properties = opening.zip(floor).map(|(opening, floor)| producer::answer(opening.producer, floor));
        let reply = LinkReply {
            source: None,
            target: Some(pending.kept.target().into()),
            max_message_size: most,
            properties: properties.as_deref().and_then(|bytes| Map::from_encoded(bytes, &limits).ok()),
            empty_unsettled: true,
            ..LinkReply::default()
        };
        let accepted = self.engine.accept_link(link.id, &reply);
        if accepted.is_err() {
            // The peer has gone meanwhile; its detach comes.
            return;
        }
        let mut producer = Producer::new(queue, queues.limited(queue));
        producer.numbers = opening.map(|opening| Box::new((ProducerId(opening.producer), opening.next)));
        link.kind = Kind::Producer(producer);
        self.renew_credit(queues, token);
    }

    pub(super) fn on_subscribed(&mut self, queues: &mut Queues, token: u64, queue: QueueId, consumer: ConsumerId) {
        let limits = self.limits;
        let Some(link) = self.links.get_mut(super::connection::index(token) as usize) else { return };
        let Kind::Pending(pending) = &link.kind else {
            // The link has gone meanwhile.
            queues.request(queue, Request::Unsubscribe { consumer, lost: false });
            return;
        };
        let (id, browses) = (link.id, pending.kept.browses);
        let default_outcome = pending.kept.default_outcome(&limits);
        let accepted = pending.kept.with_source(&limits, |source| {
            let reply = LinkReply { source: Some(source), target: None, empty_unsettled: true, ..LinkReply::default() };
            self.engine.accept_link(id, &reply)
        });
        if accepted.is_err() {
            // The peer has gone meanwhile; its detach comes.
            queues.request(queue, Request::Unsubscribe { consumer, lost: false });
            return;
        }
        link.kind = Kind::Consumer(Consumer::new(queue, consumer, browses, default_outcome));
        // Credit may have come before the answer.
        self.on_credit(queues, token);
    }

    /// The queue is gone, or has none for us; or the link was stolen.
    pub(super) fn on_ended(&mut self, queues: &mut Queues, token: u64, why: &Refused) {
        match self.link(token).map(|link| (&link.kind, link.id)) {
            Some((Kind::Pending(_), _)) => self.refuse(queues, token, why),
            Some((_, id)) if why.condition == "amqp:link:stolen" => {
                queues.log(Level::Info, Some(self.id), format!("a link ended: {}", why.why));
                self.link_goes(queues, token, Going::Stolen);
                let _ = self.engine.steal(id);
            }
            _ => self.fail_link(queues, token, why),
        }
    }

    fn refuse(&mut self, queues: &mut Queues, token: u64, why: &Refused) {
        let Some(link) = self.link(token) else { return };
        let (id, name) = (link.id, link.name.clone());
        let text = format!("link \"{}\" refused: {}: {}", clip(&name), why.condition, why.why);
        queues.log(Level::Warn, Some(self.id), text);
        self.link_goes(queues, token, Going::InOrder);
        let error = Error { condition: why.condition, description: Some(&why.why), info: None };
        let _ = self.engine.refuse_link(id, &error);
    }
}

/// A shard in a set of at most 64.
fn bit(shard: ShardId) -> u64 {
    1 << shard.0
}
