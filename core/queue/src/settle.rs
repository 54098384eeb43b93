//! Outcomes: what a consumer's word does to the entry that it was given.
//!
//! Must not know: protocols. A word is keyed by delivery, so that a late or repeated one does nothing (invariant 2).

use crate::entry::{Event, State};
use crate::history::{NOBODY, NONE};
use crate::input::{DeliveryKey, Effect, Turn};
use crate::list::Place;
use crate::part::{Then, Way};
use crate::queue::Queue;
use crate::relocate::Cause;
use crate::slot::Flag;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use packhorse_model::{Outcome, Overlay, Reason, Sequence};

/// How an entry comes back.
struct Return {
    event: Event,
    undeliverable_here: bool,
    annotations: Bytes,
}

impl Return {
    fn plain(event: Event) -> Return {
        Return { event, undeliverable_here: false, annotations: Bytes::new() }
    }
}

/// What an outcome means here.
enum Verdict {
    Acknowledged,
    Back(Return),
    /// To the dead-letter queue, with these words.
    Rejected(String),
}

impl Queue {
    pub(crate) fn settle(
        &mut self,
        key: DeliveryKey,
        outcome: Outcome,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.delivery(key) else { return false };
        match self.verdict(outcome) {
            Verdict::Acknowledged => {
                self.let_go(key.level, place);
                self.must(key.level, place, Event::Acknowledge, turn);
            }
            Verdict::Back(back) => self.put_back(key, place, back, turn, out),
            Verdict::Rejected(detail) => {
                self.let_go(key.level, place);
                self.doom(key, place, Cause::Letter { reason: Reason::Rejected, detail }, out);
            }
        }
        true
    }

    #[inline]
    fn verdict(&self, outcome: Outcome) -> Verdict {
        Verdict::Back(match outcome {
            Outcome::Acknowledge => return Verdict::Acknowledged,
            Outcome::ReturnUnseen => Return::plain(Event::ReturnUnseen),
            Outcome::ReturnLost { attempted: true } => Return::plain(Event::ReturnSeen),
            Outcome::ReturnLost { attempted: false } => Return::plain(Event::ReturnLost),
            Outcome::ReturnSeen { undeliverable_here, annotations } => {
                Return { event: Event::ReturnSeen, undeliverable_here, annotations }
            }
            Outcome::ReturnModified { undeliverable_here, annotations } => {
                let event = if annotations.is_empty() { Event::ReturnUnseen } else { Event::ReturnModified };
                Return { event, undeliverable_here, annotations }
            }
            // There is nowhere further to go. It stays, and this consumer does not get it again, or it would be given to it
            // and rejected for ever.
            Outcome::Reject { .. } if self.dead_letters => {
                Return { event: Event::ReturnSeen, undeliverable_here: true, annotations: Bytes::new() }
            }
            Outcome::Reject { detail } => return Verdict::Rejected(detail),
        })
    }

    /// What the commit of a transaction makes of a delivery that has ended in it; `None`: it is acknowledged, and gone.
    pub(crate) fn intent(&self, key: DeliveryKey, place: Place, outcome: Outcome) -> Option<Box<Then>> {
        let index = self.list(key.level).slot(place).packed.history;
        let history = self.histories.get(index);
        let letter = |reason, detail, overlay| Then { way: Way::Letter { reason, detail }, overlay, not_to: None };
        Some(Box::new(match self.verdict(outcome) {
            Verdict::Acknowledged => return None,
            Verdict::Rejected(detail) => letter(Reason::Rejected, detail, None),
            Verdict::Back(Return { event, undeliverable_here, annotations }) => {
                let overlay = (!annotations.is_empty()).then(|| {
                    let before = history.overlay.as_deref().cloned().unwrap_or_default();
                    Box::new(Overlay { annotations, ..before })
                });
                match event {
                    Event::ReturnUnseen | Event::ReturnModified => {
                        let not_to = undeliverable_here.then(|| self.consumers.get(history.consumer).id);
                        Then { way: Way::Back(Event::CommitUnseen), overlay, not_to }
                    }
                    _ if self.is_exhausted(index) => letter(Reason::DeliveryLimit, String::new(), overlay),
                    _ => {
                        let not_to = undeliverable_here.then(|| self.consumers.get(history.consumer).id);
                        Then { way: Way::Back(Event::CommitSeen), overlay, not_to }
                    }
                }
            }
        }))
    }

    /// A transaction is committed in which this delivery ended otherwise than acknowledged.
    pub(crate) fn carry_out(
        &mut self,
        level: u8,
        sequence: Sequence,
        place: Place,
        then: Then,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) {
        let Then { way, overlay, not_to } = then;
        let index = self.list(level).slot(place).packed.history;
        if overlay.is_some() {
            self.histories.get_mut(index).overlay = overlay;
            self.list_mut(level).slot_mut(place).packed.set(Flag::Overlay, true);
        }
        let event = match way {
            Way::Letter { reason, detail } => {
                self.divert(level, sequence, place, Cause::Letter { reason, detail }, turn, out);
                return;
            }
            Way::Back(event) => event,
        };
        // A consumer that has left does not come again.
        if let Some((id, consumer)) = not_to.and_then(|id| Some((id, self.consumers.index(id)?))) {
            self.exclusions.add(id, level, sequence);
            self.consumers.make_choosy(consumer);
            self.list_mut(level).slot_mut(place).packed.set(Flag::Restricted, true);
        }
        self.must(level, place, event, turn);
        if !self.histories.get(index).matters() {
            self.list_mut(level).slot_mut(place).packed.history = NONE;
            self.histories.remove(index);
        }
    }

    /// Sets an entry aside whose consumer could not be sent all of it.
    pub(crate) fn unreadable(&mut self, key: DeliveryKey, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.delivery(key) else { return false };
        self.let_go(key.level, place);
        self.set_aside(key.level, place, turn, out);
        true
    }

    /// The place of the entry that a consumer holds under this key.
    #[inline]
    pub(crate) fn delivery(&self, key: DeliveryKey) -> Option<Place> {
        let place = self.find(key.level, key.sequence)?;
        let slot = self.list(key.level).slot(place);
        if slot.packed.state() != State::Acquired {
            return None;
        }
        let history = self.histories.get(slot.packed.history);
        (history.epoch == key.epoch && history.consumer != NOBODY).then_some(place)
    }

    /// Takes an entry out of its consumer's hands.
    #[inline]
    pub(crate) fn let_go(&mut self, level: u8, place: Place) {
        let slot = self.list(level).slot(place);
        let (index, sequence) = (slot.packed.history, slot.sequence);
        let history = self.histories.get_mut(index);
        let consumer = core::mem::replace(&mut history.consumer, NOBODY);
        self.histories.unlink(&mut self.consumers.get_mut(consumer).chain, index);
        if self.suspects.wait() {
            self.suspects.back(level, sequence);
        }
    }

    fn put_back(&mut self, key: DeliveryKey, place: Place, back: Return, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let level = key.level;
        let index = self.list(level).slot(place).packed.history;
        let consumer = self.histories.get(index).consumer;
        self.let_go(level, place);
        let changed = !back.annotations.is_empty();
        if changed {
            let overlay = self.histories.get_mut(index).overlay.get_or_insert_default();
            overlay.annotations = back.annotations;
        }
        if back.event == Event::ReturnSeen && self.is_exhausted(index) {
            let cause = Cause::Letter { reason: Reason::DeliveryLimit, detail: String::new() };
            self.doom(key, place, cause, out);
            return;
        }
        if back.undeliverable_here {
            let id = self.consumers.get(consumer).id;
            self.exclusions.add(id, level, key.sequence);
            self.consumers.make_choosy(consumer);
        }
        let matters = back.event != Event::ReturnUnseen || self.histories.get(index).matters();
        // That a suspect came back must be known after a crash, or it would be blamed.
        let event = match back.event {
            Event::ReturnUnseen if self.suspected(key.sequence, index) => Event::ReturnModified,
            event => event,
        };
        let slot = self.list_mut(level).slot_mut(place);
        if back.undeliverable_here {
            slot.packed.set(Flag::Restricted, true);
        }
        if changed {
            slot.packed.set(Flag::Overlay, true);
        }
        if !matters {
            slot.packed.history = NONE;
            self.histories.remove(index);
        }
        self.must(level, place, event, turn);
    }

    /// Whether one more attempt is one too many.
    pub(crate) fn is_exhausted(&self, history: u32) -> bool {
        let limit = self.settings.delivery_limit;
        limit > 0 && self.histories.get(history).attempts.saturating_add(1) >= limit && !self.dead_letters
    }

    /// Takes back what consumers that left still hold, oldest first, as far as `work` goes; true when nothing is left. The
    /// oldest delivery of a lost consumer is the one its application was working on.
    pub(crate) fn take_back(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        while let Some(index) = self.consumers.leaving() {
            loop {
                let consumer = self.consumers.get(index);
                let (id, leaving) = (consumer.id, consumer.leaving.expect("it is leaving"));
                if consumer.chain.first == NONE {
                    if *work == 0 {
                        return false;
                    }
                    if !self.exclusions.forget_one_of(id) {
                        break;
                    }
                    *work -= 1;
                    continue;
                }
                if *work == 0 {
                    return false;
                }
                *work -= 1;
                let history = self.histories.get(consumer.chain.first);
                let key = DeliveryKey { sequence: history.sequence, epoch: history.epoch, level: history.level };
                let event = match (leaving.lost, leaving.oldest_is_back) {
                    (false, _) => Event::ReturnUnseen,
                    (true, false) => Event::ReturnSeen,
                    (true, true) => Event::ReturnLost,
                };
                let place = self.delivery(key).expect("what a consumer holds is acquired");
                self.put_back(key, place, Return::plain(event), turn, out);
                self.consumers.get_mut(index).leaving =
                    Some(crate::consumers::Leaving { oldest_is_back: true, ..leaving });
            }
            self.consumers.left();
        }
        true
    }
}
