//! Dead letters between queues, which may be on different shards: a place is kept in the dead-letter queue, then the source
//! writes one record for both sides, then the place is filled. The queue's own part is `packhorse_queue`'s.

use super::{Due, Queues, Reply};
use crate::io::Level;
use crate::mail::{Answer, Body};
use bytes::Bytes;
use packhorse_model::{Content, EntryKey, Head, Overlay, QueueId, Reason, Resident};
use packhorse_queue::{self as queue, DeliveryKey, Input};

/// An entry on its way to a dead-letter queue.
#[derive(Debug)]
pub(super) struct Relocating {
    relocation: Box<queue::Relocation>,
    /// The store has got it since it was offered.
    pub(super) spilled: bool,
    /// Who is told when it is there.
    reply: Option<Reply>,
}

impl Queues {
    /// A queue offers an entry. `reply` is told when it has arrived, or when its second offer has.
    pub(super) fn relocate(&mut self, slot: u32, relocation: Box<queue::Relocation>, reply: Option<Reply>) {
        let held = &self.held[slot as usize];
        let from = EntryKey { queue: held.id, sequence: relocation.key.sequence };
        let default = self.config.dead_letter_queue.as_str();
        let name = held.queue.settings().dead_letter.as_ref().map_or(default, |name| name.as_str()).to_string();
        let target = self.directory.by_name(&name).map(|known| (known.id, known.owner));
        let reply = reply.or_else(|| self.postponed.remove(&from));
        match target {
            Some((id, owner)) if owner == self.shard => {
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                let Some(relocating) = self.relocating.get(&from) else { return };
                let relocation = &relocating.relocation;
                let (head, content, overlay) = (relocation.head, relocation.content, relocation.overlay.clone());
                let stored = relocation.stored;
                let to = self.reserve(id, head, content, None, stored, overlay);
                self.on_reserved(from, to, head.level());
            }
            Some((id, owner)) => {
                let (head, overlay) = (relocation.head, relocation.overlay.clone());
                let (content, bytes) = match relocation.content {
                    Content::Body(place) if !relocation.stored => (relocation.content, self.ring.get(place)),
                    Content::Body(place) => (Content::Body(Resident { buffer: 0, ..place }), None),
                    large => (large, None),
                };
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                self.mail(owner, Body::Reserve { from, to: id, head, content, bytes, overlay });
            }
            None => {
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                self.want_dead_letter_queue(&name, from);
            }
        }
    }

    /// The dead-letter queue exists now (or cannot): entries that waited for it go on.
    pub(crate) fn relocate_again(&mut self, from: EntryKey, exists: bool) {
        let Some(Relocating { mut relocation, spilled, reply }) = self.relocating.remove(&from) else { return };
        let Some(slot) = self.slot(from.queue) else { return };
        if exists {
            relocation.stored |= spilled;
            self.relocate(slot, relocation, reply);
        } else {
            self.postpone(slot, from, relocation.key, reply);
        }
    }

    /// The dead-letter queue cannot take it: the queue offers it again after a while.
    fn postpone(&mut self, slot: u32, from: EntryKey, key: DeliveryKey, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.postponed.insert(from, reply);
        }
        self.tell(slot, Input::RelocateFailed { key });
    }

    /// A queue is gone with all its entries, also those on their way: nobody waits for them any more.
    pub(super) fn forget_relocating(&mut self, queue: QueueId) {
        let mut replies = Vec::new();
        self.relocating.retain(|from, relocating| {
            let stays = from.queue != queue;
            replies.extend(relocating.reply.take_if(|_| !stays));
            stays
        });
        self.postponed.retain(|from, reply| {
            let stays = from.queue != queue;
            replies.extend((!stays).then_some(*reply));
            stays
        });
        for (link, delivery) in replies {
            self.answer(link, Answer::Settled { delivery });
        }
    }

    /// Keeps a place in a dead-letter queue of this shard.
    pub(crate) fn reserve(
        &mut self,
        id: QueueId,
        head: Head,
        content: Content,
        bytes: Option<Bytes>,
        stored: bool,
        overlay: Box<Overlay>,
    ) -> Option<EntryKey> {
        let slot = self.slot(id)?;
        let mut keep = None;
        let content = match (content, bytes) {
            (Content::Body(place), Some(bytes)) => {
                let buffer = self.ring.open();
                keep = Some((buffer, bytes));
                Content::Body(Resident { buffer, offset: 0, ..place })
            }
            (content, _) => content,
        };
        let answer = self.tell(slot, Input::Reserve { head, content, stored, overlay });
        let to = EntryKey { queue: id, sequence: answer.sequence()? };
        if let Some((buffer, bytes)) = keep {
            let held = bytes.len();
            self.ring.fill_volatile(buffer, bytes, held, vec![(head.level(), to)]);
        } else if !stored && let Content::Body(place) = content {
            if place.buffer == self.volatile_buffer {
                self.volatile_entries.push((head.level(), to));
            } else {
                self.ring.also_in(place.buffer, (head.level(), to));
            }
        }
        Some(to)
    }

    /// The place in the dead-letter queue is known: write the move.
    pub(crate) fn on_reserved(&mut self, from: EntryKey, to: Option<EntryKey>, level: u8) {
        let Some(Relocating { relocation, reply, .. }) = self.relocating.remove(&from) else {
            // The source was deleted meanwhile.
            if let Some(to) = to {
                self.relocated(to, level, false);
            }
            return;
        };
        let Some(slot) = self.slot(from.queue) else { return };
        let Some(to) = to else {
            self.postpone(slot, from, relocation.key, reply);
            return;
        };
        let stored = relocation.stored;
        let reason = relocation.overlay.dead_letter.as_ref().map(|letter| letter.reason);
        let done = self.tell(slot, Input::Relocate { key: relocation.key, to, stored }).settled();
        if done && reason == Some(Reason::BrokerCrash) {
            let name = self.held[slot as usize].queue.name();
            let text = format!(
                "queue \"{name}\": message {} is quarantined: the broker died right after it had been delivered, three times \
                 in a row; it is in the dead-letter queue, with the reason broker-crash",
                from.sequence
            );
            self.log(Level::Warn, None, text);
        }
        if done && stored {
            self.batch.require_flush();
            self.due.wait(self.ticket, Due::Arrived { to, level });
        } else {
            self.relocated(to, level, done);
        }
        if let Some((link, delivery)) = reply {
            self.settled_when_durable(link, delivery);
        }
    }

    /// The reserved entry has come, or never will: tell its queue, here or elsewhere.
    pub(crate) fn relocated(&mut self, to: EntryKey, level: u8, done: bool) {
        let owner = to.queue.owner(self.config.shards);
        if owner != self.shard {
            self.mail(owner, Body::Relocated { to, level, done });
            return;
        }
        let Some(slot) = self.slot(to.queue) else { return };
        let sequence = to.sequence;
        let input = if done { Input::Arrived { level, sequence } } else { Input::Abandon { level, sequence } };
        self.tell(slot, input);
    }
}
