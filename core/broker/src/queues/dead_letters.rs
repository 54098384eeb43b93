//! Entries between queues, which may be on different shards: dead letters, and what operators move. A place is kept in the other
//! queue, then the source writes one record for both sides, then the place is filled. The queue's own part is `packhorse_queue`'s.

use super::{Due, Queues, Reply};
use crate::io::Level;
use crate::mail::{Answer, Body, Guest};
use packhorse_model::{Content, EntryKey, QueueId, Reason, Resident, Sequence};
use packhorse_queue::{self as queue, Input};
use std::ops::RangeInclusive;

/// An entry on its way to another queue.
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
        let reply = reply.or_else(|| self.postponed.remove(&from));
        let mut name = String::new();
        let target = match relocation.token {
            Some(token) => {
                let target = self.move_target(token);
                if target.is_none() {
                    self.postpone(slot, from, &relocation, reply);
                    return;
                }
                target
            }
            None => {
                let default = self.config.dead_letter_queue.as_str();
                name = held.queue.settings().dead_letter.as_ref().map_or(default, |name| name.as_str()).to_string();
                self.directory.by_name(&name).map(|known| (known.id, known.owner))
            }
        };
        match target {
            Some((id, owner)) => {
                let stored = relocation.stored;
                let (content, bytes) = match relocation.content {
                    Content::Body(place) if owner != self.shard && !stored => {
                        (relocation.content, self.ring.get(place))
                    }
                    Content::Body(place) if owner != self.shard => {
                        (Content::Body(Resident { buffer: 0, ..place }), None)
                    }
                    here => (here, None),
                };
                let (head, deliveries) = (relocation.head, relocation.deliveries);
                let overlay = relocation.overlay.clone();
                let guest = Guest { head, content, bytes, stored, deliveries, overlay };
                self.relocating.insert(from, Relocating { relocation, spilled: false, reply });
                if owner == self.shard {
                    let to = self.reserve(id, guest);
                    self.on_reserved(from, to, head.level());
                } else {
                    self.mail(owner, Body::Reserve { from, to: id, guest });
                }
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
            self.postpone(slot, from, &relocation, reply);
        }
    }

    /// The other queue cannot take it: a dead letter is offered again after a while, a move ends.
    fn postpone(&mut self, slot: u32, from: EntryKey, relocation: &queue::Relocation, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.postponed.insert(from, reply);
        }
        let queue = &self.held[slot as usize].queue;
        match relocation.token {
            Some(token) => self.move_answered(token, false),
            None if !queue.jammed() => {
                let text = format!(
                    "queue \"{}\": message {} stays here, because the dead-letter queue cannot take it",
                    queue.name(),
                    from.sequence
                );
                self.log(Level::Warn, None, text);
            }
            None => {}
        }
        self.tell(slot, Input::RelocateFailed { key: relocation.key });
    }

    /// A queue is gone with all its entries, also those on their way: nobody waits for them any more.
    pub(super) fn forget_relocating(&mut self, queue: QueueId) {
        let relocating = self.relocating.extract_if(entries_of(queue), |_, _| true).filter_map(|(_, r)| r.reply);
        let postponed = self.postponed.extract_if(entries_of(queue), |_, _| true).map(|(_, reply)| reply);
        let replies: Vec<Reply> = relocating.chain(postponed).collect();
        for (link, delivery) in replies {
            self.answer(link, Answer::Settled { delivery });
        }
    }

    /// Entries of a queue are gone that may have waited for room in their dead-letter queue: whoever waits for their end is told.
    #[cold]
    pub(super) fn settle_postponed(&mut self, slot: u32) {
        let queue = &self.held[slot as usize].queue;
        let gone = self.postponed.extract_if(entries_of(queue.id()), |from, _| !queue.is_doomed(from.sequence));
        let replies: Vec<Reply> = gone.map(|(_, reply)| reply).collect();
        for (link, delivery) in replies {
            self.settled_when_durable(link, delivery);
        }
    }

    /// Keeps a place in a queue of this shard; `None`: there is no such queue, or no room in it.
    pub(crate) fn reserve(&mut self, id: QueueId, guest: Guest) -> Option<EntryKey> {
        let slot = self.slot(id)?;
        let Guest { head, content, bytes, stored, deliveries, overlay } = guest;
        if !self.held[slot as usize].queue.takes(content.length()) {
            return None;
        }
        let mut keep = None;
        let content = match (content, bytes) {
            (Content::Body(place), Some(bytes)) => {
                let buffer = self.ring.open();
                keep = Some((buffer, bytes));
                Content::Body(Resident { buffer, offset: 0, ..place })
            }
            (content, _) => content,
        };
        let answer = self.tell(slot, Input::Reserve { head, content, stored, deliveries, overlay });
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

    /// The place in the other queue is known: write the move.
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
            self.postpone(slot, from, &relocation, reply);
            return;
        };
        let stored = relocation.stored;
        let reason = relocation.overlay.dead_letter.as_ref().map(|letter| letter.reason);
        let done = self.tell(slot, Input::Relocate { key: relocation.key, to, stored }).settled();
        if let Some(token) = relocation.token.filter(|_| done) {
            self.move_answered(token, true);
        }
        if done && reason == Some(Reason::BrokerCrash) {
            let name = self.held[slot as usize].queue.name();
            let text = format!(
                "queue \"{name}\": message {} is quarantined: the broker died right after it had been delivered, three times \
                 in a row; it is in the dead-letter queue, with the reason broker-crash",
                from.sequence
            );
            self.log(Level::Warn, None, text);
        }
        // One that no store has does not overtake those that were moved before it and wait for their flush.
        let after = self.last_ticket();
        if done && stored {
            self.batch.require_flush();
        }
        if done && (stored || (relocation.token.is_some() && after > self.due.durable())) {
            self.due.wait(after, Due::Arrived { to, level });
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

/// All keys of a queue's entries.
fn entries_of(queue: QueueId) -> RangeInclusive<EntryKey> {
    EntryKey { queue, sequence: 0 }..=EntryKey { queue, sequence: Sequence::MAX }
}
