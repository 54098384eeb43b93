//! Entries on their way to other queues, seen from the queue they leave: dead letters (`spec/entry.md`, "Redelivery"), and what
//! operators move.
//!
//! Must not know: which queue takes them, on which shard. An entry stays acquired, with no consumer, or scheduled, until
//! the record for both sides is written. If there is no room for a dead letter it stays here, scheduled, and is offered again.
//! Nothing of this way is durable before that record: after a crash the entry is ready here again, and nothing is lost. But what a
//! committed transaction has rejected is on its way again after a start, for the commit's record says so.

use crate::entry::{Event, State};
use crate::history::NONE;
use crate::input::{DeliveryKey, Effect, Relocation, Turn};
use crate::list::Place;
use crate::queue::Queue;
use crate::slot::Flag;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{DeadLetter, EntryKey, Planted, Reason, Sequence, planted};
use packhorse_store::Op;

/// How long an entry that the dead-letter queue could not take waits before it is offered again, µs.
pub const RETRY_US: u64 = 1_000_000;

/// The words of a dead letter whose reason is `broker-crash`.
pub(crate) const BROKEN: &str = "the broker died right after it had been delivered, three times in a row";

/// Why an entry leaves for another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// For the dead-letter queue.
    Letter { reason: Reason, detail: String },
    /// For the queue that an operator named.
    Move { token: u64 },
}

/// An entry on its way to another queue.
#[derive(Debug)]
pub(crate) struct Doomed {
    epoch: u32,
    cause: Cause,
    /// When to offer it again; `None` while an answer is awaited.
    pub(crate) retry_at_us: Option<u64>,
}

impl Queue {
    /// Sends a ready entry on its way to another queue.
    pub(crate) fn divert(
        &mut self,
        level: u8,
        sequence: Sequence,
        place: Place,
        cause: Cause,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) {
        self.must(level, place, Event::Divert, turn);
        let key = DeliveryKey { sequence, epoch: self.epoch, level };
        self.epoch = self.epoch.wrapping_add(1);
        self.doom(key, place, cause, out);
    }

    /// A start found an entry that was on its way to the dead-letter queue: the way begins again with the first dispatch.
    #[cold]
    pub(crate) fn leave_again(&mut self, level: u8, sequence: Sequence, letter: DeadLetter, turn: &mut Turn<'_>) {
        let place = self.find(level, sequence).expect("it was just put in");
        self.must(level, place, Event::Divert, turn);
        let cause = Cause::Letter { reason: letter.reason, detail: letter.detail };
        let doomed = Doomed { epoch: self.epoch, cause, retry_at_us: Some(turn.now.mono_us) };
        self.epoch = self.epoch.wrapping_add(1);
        self.doomed_bytes += self.list(level).slot(place).packed.length();
        self.doomed.insert((level, sequence), doomed);
    }

    /// Begins the way to another queue of an entry that nobody holds.
    pub(crate) fn doom(&mut self, key: DeliveryKey, place: Place, cause: Cause, out: &mut Vec<Effect>) {
        let doomed = Doomed { epoch: key.epoch, cause, retry_at_us: None };
        let relocation = self.relocation(key, place, &doomed);
        self.doomed.insert((key.level, key.sequence), doomed);
        self.doomed_bytes += relocation.content.length();
        out.push(Effect::Relocate(Box::new(relocation)));
    }

    /// It is no longer on its way, if it was.
    pub(crate) fn undoom(&mut self, level: u8, sequence: Sequence, place: Place) -> Option<Doomed> {
        let doomed = self.doomed.remove(&(level, sequence))?;
        self.doomed_bytes -= self.list(level).slot(place).packed.length();
        Some(doomed)
    }

    fn relocation(&self, key: DeliveryKey, place: Place, doomed: &Doomed) -> Relocation {
        let packed = &self.list(key.level).slot(place).packed;
        // One that was never delivered has none.
        let history = (packed.history != NONE).then(|| self.histories.get(packed.history));
        let mut overlay = history.and_then(|h| h.overlay.clone()).unwrap_or_default();
        let mut deliveries = history.map_or(0, |h| h.deliveries);
        let mut head = packed.head();
        let mut token = None;
        match &doomed.cause {
            Cause::Letter { reason, detail } => {
                // The delivery that ended here counts; those that ended in a crash are counted, and who overflows had none.
                let ended = !matches!(reason, Reason::BrokerCrash | Reason::Overflow);
                overlay.dead_letter = Some(Box::new(DeadLetter {
                    reason: *reason,
                    detail: detail.clone(),
                    address: self.name.clone(),
                    sequence: key.sequence,
                    deliveries: deliveries.saturating_add(u32::from(ended)),
                    leaving: false,
                }));
                deliveries = 0;
                head.ttl_ms = 0;
            }
            Cause::Move { token: by } => {
                token = Some(*by);
                if self.strips_ttl(*by) {
                    head.ttl_ms = 0;
                }
            }
        }
        Relocation {
            key,
            token,
            head,
            content: packed.content(),
            stored: packed.has(Flag::Stored),
            deliveries,
            overlay,
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
        let doomed = self.undoom(key.level, key.sequence, place).expect("it was just found");
        let relocation = self.relocation(key, place, &doomed);
        if relocation.stored && (!stored || planted(Planted::ForgetDeadLetterHalf)) {
            // It was spilled while it was under way, and its body went along without the store: the copy there is of no use.
            turn.batch.acknowledge(self.id, key.sequence);
        } else if relocation.stored {
            turn.batch.push(Op::Relocate {
                from: EntryKey { queue: self.id, sequence: key.sequence },
                to,
                head: relocation.head,
                deliveries: relocation.deliveries,
                attempts: 0,
                overlay: relocation.overlay,
            });
        }
        match doomed.cause {
            Cause::Letter { .. } => {
                self.jammed = false;
                let held = self.list(key.level).slot(place).packed.state() == State::Acquired;
                let event = if held && planted(Planted::KeepSource) { Event::ReturnSeen } else { Event::DeadLetter };
                self.must(key.level, place, event, turn);
            }
            Cause::Move { token } => {
                self.move_answered(token, true);
                self.must(key.level, place, Event::Move, turn);
            }
        }
        true
    }

    pub(crate) fn postpone(&mut self, key: DeliveryKey, turn: &mut Turn<'_>) {
        let Some(place) = self.doomed_place(key) else { return };
        if let Cause::Move { token } = self.doomed[&(key.level, key.sequence)].cause {
            self.undoom(key.level, key.sequence, place);
            self.move_answered(token, false);
            self.must(key.level, place, Event::Stay, turn);
            return;
        }
        if self.list(key.level).slot(place).packed.state() == State::Acquired {
            self.must(key.level, place, Event::Postpone, turn);
        }
        let doomed = self.doomed.get_mut(&(key.level, key.sequence)).expect("it was just found");
        doomed.retry_at_us = Some(turn.now.mono_us + RETRY_US);
        self.jammed = true;
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
