//! Producers of queues with limits: who may send how much, who waits until there is room (`spec/lanes.md`, "Flow control for
//! clients"). Producers of other queues are not known here; they need not ask.

use super::Queues;
use crate::admin::Alarm;
use crate::io::Level;
use crate::mail::{Answer, LinkRef, Payload};
use packhorse_model::QueueId;
use packhorse_queue::Limit;
use std::collections::{BTreeMap, BTreeSet};

/// The producers of one queue with limits.
#[derive(Debug, Default)]
pub(super) struct Producers {
    links: BTreeSet<LinkRef>,
    /// Those that wait for room, with the mean size of their messages, bytes.
    blocked: BTreeMap<LinkRef, u64>,
}

impl Producers {
    /// Whether somebody waits for room.
    #[inline]
    pub(super) fn any_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }
}

impl Queues {
    /// A producer wants credit: it is answered at once, or when there is room.
    pub(super) fn room(&mut self, id: QueueId, from: LinkRef, mean_bytes: u64) {
        // Without a queue its links are about to end.
        let Some(slot) = self.slot(id) else { return };
        let held = &mut self.held[slot as usize];
        if held.queue.limited() {
            held.producers.links.insert(from);
        }
        match held.queue.share(held.producers.links.len() as u64, mean_bytes) {
            Some(share) => self.answer(from, Answer::Room { share }),
            None => {
                held.producers.blocked.insert(from, mean_bytes);
            }
        }
    }

    /// A producer asks for nothing any more.
    pub(super) fn producer_left(&mut self, id: QueueId, from: LinkRef) {
        let Some(slot) = self.slot(id) else { return };
        let producers = &mut self.held[slot as usize].producers;
        producers.links.remove(&from);
        producers.blocked.remove(&from);
    }

    /// Something has happened to a queue whose producers wait: if there is room now, all of them go on.
    pub(super) fn relieve_producers(&mut self, slot: u32) {
        let Some(held) = self.held.get_mut(slot as usize) else { return };
        let producers = held.producers.links.len() as u64;
        if held.queue.share(producers, 1).is_none() {
            return;
        }
        let blocked = std::mem::take(&mut held.producers.blocked);
        if !held.queue.limited() {
            held.producers.links.clear();
        }
        for (link, mean_bytes) in blocked {
            let share = self.held[slot as usize].queue.share(producers, mean_bytes).unwrap_or(1);
            self.answer(link, Answer::Room { share });
        }
    }

    /// Limits may have changed: queues whose producers wait are looked at again.
    pub(super) fn look_at_limits(&mut self) {
        let waiting = self.held.iter().filter(|(_, held)| held.producers.any_blocked());
        for slot in waiting.map(|(slot, _)| slot as u32).collect::<Vec<_>>() {
            self.relieve_producers(slot);
        }
    }

    /// A queue that rejects is full.
    pub(super) fn refuse_full(
        &mut self,
        slot: u32,
        limit: Limit,
        from: LinkRef,
        delivery: u32,
        settled: bool,
        payload: &Payload<'_>,
    ) {
        let queue = &self.held[slot as usize].queue;
        let limits = queue.settings().limits;
        let most = match limit {
            Limit::Messages => limits.max_messages,
            Limit::Bytes => limits.max_bytes,
        };
        let (name, most) = (queue.name(), most.unwrap_or_default());
        let why = format!("queue \"{name}\" is full: it takes at most {most} {}", limit.as_str());
        self.discard(payload);
        if settled {
            self.log(Level::Warn, Some(from.connection), format!("a settled message was dropped: {why}"));
        } else {
            self.answer(from, Answer::NotEnqueued { delivery, condition: "amqp:resource-limit-exceeded", why });
        }
    }

    /// What operators should look at in this shard's queues.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = Alarm> {
        self.held.iter().filter_map(|(_, held)| {
            let waiting = held.queue.waiting_for_room();
            let text = || {
                let name = held.queue.name();
                format!(
                    "queue \"{name}\": {waiting} messages wait here because their dead-letter queue cannot take them"
                )
            };
            (waiting > 0).then(|| Alarm { code: "dead-letter-queue-full", text: text() })
        })
    }
}
