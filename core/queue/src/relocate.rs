//! Dead letters, seen from the queue they leave (`spec/entry.md`, "Redelivery").
//!
//! Must not know: which queue takes them, on which shard. The entry stays acquired, with no consumer, until the record for
//! both sides is written; if there is no room it stays here, scheduled, and is offered again.
//! Nothing of this way is durable before that record: after a crash the entry is ready here again, and nothing is lost.

use crate::entry::{Event, State};
use crate::input::{DeliveryKey, Effect, Relocation, Turn};
use crate::list::Place;
use crate::queue::Queue;
use crate::slot::Flag;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{DeadLetter, EntryKey, Overlay, Reason};
use packhorse_store::Op;

/// How long an entry that the dead-letter queue could not take waits before it is offered again, µs.
pub const RETRY_US: u64 = 1_000_000;

/// The words of a dead letter whose reason is `broker-crash`.
pub(crate) const BROKEN: &str = "the broker died right after it had been delivered, three times in a row";

/// An entry on its way to the dead-letter queue.
#[derive(Debug)]
pub(crate) struct Doomed {
    epoch: u32,
    reason: Reason,
    detail: String,
    /// When to offer it again; `None` while an answer is awaited.
    pub(crate) retry_at_us: Option<u64>,
}

impl Queue {
    /// Begins the way of an acquired entry, which nobody holds any more, to the dead-letter queue.
    pub(crate) fn doom(
        &mut self,
        key: DeliveryKey,
        place: Place,
        reason: Reason,
        detail: String,
        out: &mut Vec<Effect>,
    ) {
        let doomed = Doomed { epoch: key.epoch, reason, detail, retry_at_us: None };
        let relocation = self.relocation(key, place, &doomed);
        self.doomed.insert((key.level, key.sequence), doomed);
        out.push(Effect::Relocate(Box::new(relocation)));
    }

    fn relocation(&self, key: DeliveryKey, place: Place, doomed: &Doomed) -> Relocation {
        let packed = &self.list(key.level).slot(place).packed;
        let history = self.histories.get(packed.history);
        let dead_letter = DeadLetter {
            reason: doomed.reason,
            detail: doomed.detail.clone(),
            address: self.name.clone(),
            sequence: key.sequence,
            // The delivery that ended here counts; those that ended in a crash are counted.
            deliveries: history.deliveries.saturating_add(u32::from(doomed.reason != Reason::BrokerCrash)),
        };
        let annotations = history.overlay.as_ref().map(|o| o.annotations.clone()).unwrap_or_default();
        let mut head = packed.head();
        head.ttl_ms = 0;
        Relocation {
            key,
            head,
            content: packed.content(),
            stored: packed.has(Flag::Stored),
            overlay: Box::new(Overlay { annotations, dead_letter: Some(Box::new(dead_letter)) }),
        }
    }

    fn doomed_place(&self, key: DeliveryKey) -> Option<Place> {
        let doomed = self.doomed.get(&(key.level, key.sequence))?;
        if doomed.epoch != key.epoch {
            return None;
        }
        self.find(key.level, key.sequence)
    }

    pub(crate) fn relocate(&mut self, key: DeliveryKey, to: EntryKey, stored: bool, turn: &mut Turn<'_>) -> bool {
        let Some(place) = self.doomed_place(key) else { return false };
        let doomed = self.doomed.remove(&(key.level, key.sequence)).expect("it was just found");
        let relocation = self.relocation(key, place, &doomed);
        if relocation.stored && !stored {
            // It was spilled while it was under way, and its body went along without the store: the copy there is of no use.
            turn.batch.acknowledge(self.id, key.sequence);
        } else if relocation.stored {
            turn.batch.push(Op::Relocate {
                from: EntryKey { queue: self.id, sequence: key.sequence },
                to,
                head: relocation.head,
                deliveries: 0,
                attempts: 0,
                overlay: relocation.overlay,
            });
        }
        self.must(key.level, place, Event::DeadLetter, turn);
        true
    }

    pub(crate) fn postpone(&mut self, key: DeliveryKey, turn: &mut Turn<'_>) {
        let Some(place) = self.doomed_place(key) else { return };
        if self.list(key.level).slot(place).packed.state() == State::Acquired {
            self.must(key.level, place, Event::Postpone, turn);
        }
        let doomed = self.doomed.get_mut(&(key.level, key.sequence)).expect("it was just found");
        doomed.retry_at_us = Some(turn.now.mono_us + RETRY_US);
    }

    /// Offers again what had no room, when its time has come.
    pub(crate) fn offer_again(&mut self, turn: &Turn<'_>, out: &mut Vec<Effect>) {
        if self.next_deadline().is_none_or(|at| at > turn.now.mono_us) {
            return;
        }
        let due = |at: Option<u64>| at.is_some_and(|at| at <= turn.now.mono_us);
        let keys: Vec<_> = self.doomed.iter().filter(|(_, d)| due(d.retry_at_us)).map(|(k, d)| (*k, d.epoch)).collect();
        for ((level, sequence), epoch) in keys {
            let key = DeliveryKey { sequence, epoch, level };
            let place = self.find(level, sequence).expect("a postponed entry is in its list");
            let doomed = self.doomed.get_mut(&(level, sequence)).expect("its key was just read");
            doomed.retry_at_us = None;
            let relocation = self.relocation(key, place, &self.doomed[&(level, sequence)]);
            out.push(Effect::Relocate(Box::new(relocation)));
        }
    }
}
