//! Faults planted in dispatch, for tests of the harnesses (`packhorse_model::Planted`). In a build without the feature each of
//! these does nothing, and nothing of it is left.

use crate::entry::State;
use crate::input::{Deliver, Effect, Turn};
use crate::list::Place;
use crate::queue::Queue;
use crate::slot::Flag;
use alloc::vec::Vec;
use packhorse_model::{Planted, Sequence, planted};
use packhorse_store::Ticket;

/// Earlier deliveries as the consumer is told.
#[inline]
pub(crate) fn told(deliveries: u32) -> u32 {
    if deliveries > 0 && planted(Planted::RedeliverUnflagged) { 0 } else { deliveries }
}

impl Queue {
    /// What was handed to the store before this turn counts as durable.
    #[inline]
    pub(crate) fn perhaps_early(&mut self, turn: &mut Turn<'_>) {
        if planted(Planted::ShowEarly) {
            self.on_durable(Ticket(turn.ticket.0 - 1), turn);
        }
    }

    /// The entry to hand out, or its neighbor, if that may go to anyone and somebody is there for both.
    #[inline]
    pub(crate) fn perhaps_swapped(&self, level: u8, sequence: Sequence, place: Place) -> (Sequence, Place) {
        if planted(Planted::SwapMessages)
            && self.consumers.credit() > 1
            && let Some(next) = self.list(level).after(sequence)
            && next.packed.state() == State::Available
            && !next.packed.has(Flag::Restricted)
            && let Some(place) = self.find(level, next.sequence)
        {
            return (next.sequence, place);
        }
        (sequence, place)
    }

    /// The last delivery once more, if its consumer has credit for it: how often.
    #[inline]
    pub(crate) fn perhaps_again(&mut self, index: u32, out: &mut Vec<Effect>) -> u64 {
        if planted(Planted::DeliverTwice)
            && self.consumers.get(index).credit() > 0
            && let Some(last) = out.iter().rev().find(|effect| matches!(effect, Effect::Deliver(_))).cloned()
        {
            self.consumers.took(index);
            out.push(last);
            return 1;
        }
        0
    }

    /// The last delivery to somebody else as well, if anybody else has credit.
    #[inline]
    pub(crate) fn perhaps_to_another(&mut self, index: u32, out: &mut Vec<Effect>) {
        if planted(Planted::DeliverToTwo)
            && let Some(other) = self.consumers.other(index)
            && let Some(Effect::Deliver(last)) = out.iter().rev().find(|effect| matches!(effect, Effect::Deliver(_)))
        {
            let second = Deliver { consumer: self.consumers.get(other).id, ..*last };
            self.consumers.took(other);
            out.push(Effect::Deliver(second));
        }
    }
}
