//! Dispatch: who gets what next, and everything else that a queue does in slices.
//!
//! Must not know: how a delivery travels. Consumers with credit take turns, one entry each; runs of up to 32 only when more is
//! ready than all their credit. Only entries whose body is in memory are given; where that is not so for the first one that
//! a consumer should get, the consumer waits: no later entry overtakes it, and no entry is acquired while it is being read.

use crate::entry::{Event, State};
use crate::history::NONE;
use crate::input::{Deliver, DeliveryKey, Effect, Turn};
use crate::list::Place;
use crate::planted::told;
use crate::queue::Queue;
use crate::slot::Flag;
use alloc::vec::Vec;
use packhorse_model::{Content, Sequence};
use packhorse_store::{Load, Loaded};

/// Most entries that one consumer gets at once.
const RUN: u64 = 32;
/// Most entries of one load.
const LOAD_COUNT: u32 = 256;
/// Most bytes of one load.
const LOAD_BYTES: u32 = 256 << 10;

/// What an offer to a consumer came to.
#[derive(PartialEq, Eq)]
enum Offer {
    Given,
    /// Nothing is there for it, or the first entry for it must be waited for.
    Nothing,
}

/// How far operators' wishes came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// As far as they can go, or there are none.
    All,
    /// There is more, and it comes first.
    Work,
    /// There is more, when something is known that wakes the queue: that the next one is marked, or that what was offered elsewhere is taken.
    Waits,
    /// There is more, after consumers have had their turn.
    Next,
}

/// How far the other things came.
enum Errands {
    Done,
    /// There is more, and consumers need not wait for it.
    More,
    /// There is more, and it comes first.
    First,
    /// Consumers have to wait until something is known, which wakes the queue. Whether there is more that need not wait.
    Unknown {
        more: bool,
    },
}

impl Queue {
    /// Takes back what consumers left behind, purges, and gives entries to consumers, until `budget` entries were touched.
    /// True: there is more to do at once; call again in the next turn.
    pub fn dispatch(&mut self, turn: &mut Turn<'_>, budget: u32, out: &mut Vec<Effect>) -> bool {
        let mut work = budget;
        self.perhaps_early(turn);
        if self.suspects.any() {
            self.before_suspects(turn, out);
        }
        self.offer_again(turn, out);
        if !self.take_back(&mut work, turn, out) {
            return true;
        }
        let mut more = false;
        if self.errands {
            match self.run_errands(&mut work, turn, out) {
                Errands::Done => {}
                Errands::More => more = true,
                Errands::First => return true,
                Errands::Unknown { more } => return more,
            }
        }
        let mut idle = 0;
        while idle < self.consumers.waiting() && self.counts.of(State::Available) > 0 {
            let Some(index) = self.consumers.turn() else { break };
            let plenty = self.counts.of(State::Available) > self.consumers.credit();
            let run = if plenty { self.consumers.get(index).credit().min(RUN) } else { 1 };
            let mut given = 0;
            while given < run {
                if work == 0 {
                    return true;
                }
                work -= 1;
                if self.offer(index, turn, out) == Offer::Nothing {
                    break;
                }
                given += 1 + self.perhaps_again(index, out);
                self.perhaps_to_another(index, out);
            }
            if given == 0 && self.exclusions.is_empty() {
                // All would get the same entry. Whose turn it is keeps it, also if that entry is being waited for.
                break;
            }
            self.consumers.rotate();
            idle = if given > 0 { 0 } else { idle + 1 };
        }
        more
    }

    /// What is to be done beside giving entries to consumers: ends of transactions, what operators want, what overflows, what browsers see.
    #[cold]
    fn run_errands(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> Errands {
        if !self.end_parts(work, turn, out) {
            return Errands::First;
        }
        let taken = match self.purge(work, turn, out) {
            Taken::All => self.move_on(work, turn, out),
            waits => waits,
        };
        if taken == Taken::Work || !self.overflow(work, turn, out) {
            return Errands::First;
        }
        self.errands = self.has_errands();
        let more = self.show_browsers(turn, out);
        if self.move_is_open() {
            Errands::Unknown { more }
        } else if more || taken == Taken::Next {
            Errands::More
        } else {
            Errands::Done
        }
    }

    fn offer(&mut self, index: u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> Offer {
        let mut rest = self.used;
        while rest != 0 {
            let level = rest.ilog2() as u8;
            rest &= !(1 << level);
            let Some((sequence, place)) = self.candidate(index, level) else { continue };
            let (sequence, place) = self.perhaps_swapped(level, sequence, place);
            let slot = self.list(level).slot(place);
            let (held, persistent) = (slot.packed.has(Flag::Held), slot.packed.persistent());
            let (resident, history) = (slot.packed.resident(turn.oldest_resident), slot.packed.history);
            let suspect = self.suspected(sequence, history);
            if self.suspects.wait() && self.others_first(level, sequence, suspect, turn) {
                return Offer::Nothing;
            }
            if held {
                if self.held_by(turn) {
                    turn.batch.require_flush();
                }
                return Offer::Nothing;
            }
            if !resident {
                self.load(level, sequence, out);
            }
            let marked = if suspect {
                // Only when nothing else keeps it: its mark is to tell when it went.
                resident && self.vouch(level, sequence, history, turn)
            } else {
                let marked = !persistent || self.marks.cover(sequence);
                if !marked && self.mark(sequence, turn) {
                    turn.batch.require_flush();
                }
                marked
            };
            if !resident || !marked {
                return Offer::Nothing;
            }
            let settles = self.give(index, level, place, turn, out);
            if suspect && settles {
                self.gave_suspect(level, sequence, history, turn);
            }
            self.load_ahead(level, sequence, turn.oldest_resident, out);
            if persistent
                && !suspect
                && let Some(next) = self.marks.next_range(sequence)
                && self.counts.of(State::Available) > 0
                && !self.marks.cover(next)
            {
                self.mark(next, turn);
            }
            return Offer::Given;
        }
        Offer::Nothing
    }

    /// The first ready entry of a level that a consumer may get.
    fn candidate(&mut self, index: u32, level: u8) -> Option<(Sequence, Place)> {
        let list = &mut self.levels[usize::from(level)].as_mut()?.list;
        if list.ready() == 0 {
            return None;
        }
        let consumer = self.consumers.get_mut(index);
        let id = consumer.id;
        let exclusions = &self.exclusions;
        match &mut consumer.refused_below {
            Some(below) => list.first_ready(&mut below[usize::from(level)], |s| !exclusions.contains(id, level, s)),
            None => list.first_ready(&mut 0, |_| true),
        }
    }

    /// Gives an entry to a consumer; true: it is to be settled.
    fn give(&mut self, index: u32, level: u8, place: Place, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        let consumer = self.consumers.get(index);
        let (id, pre_settled) = (consumer.id, consumer.pre_settled);
        self.consumers.took(index);
        self.must(level, place, Event::Dispatch, turn);
        let epoch = self.epoch;
        self.epoch = epoch.wrapping_add(1);
        let slot = *self.list(level).slot(place);
        let mut history = slot.packed.history;
        // The file of a large one goes with the entry, so it stays until all of it is sent.
        if pre_settled && !matches!(slot.packed.content(), Content::Large { .. }) {
            let mut deliveries = 0;
            if history != NONE {
                let past = self.histories.get_mut(history);
                deliveries = past.deliveries;
                if let Some(overlay) = past.overlay.take() {
                    out.push(Effect::Overlay(overlay));
                }
            }
            out.push(Effect::Deliver(Deliver {
                consumer: id,
                sequence: slot.sequence,
                epoch,
                deliveries,
                packed: slot.packed,
            }));
            self.must(level, place, Event::Acknowledge, turn);
            return false;
        }
        if history == NONE {
            history = self.histories.add(level, slot.sequence);
            self.list_mut(level).slot_mut(place).packed.history = history;
        }
        let past = self.histories.get_mut(history);
        (past.epoch, past.consumer) = (epoch, index);
        let deliveries = told(past.deliveries);
        self.histories.link(&mut self.consumers.get_mut(index).chain, history);
        out.push(Effect::Deliver(Deliver {
            consumer: id,
            sequence: slot.sequence,
            epoch,
            deliveries,
            packed: slot.packed,
        }));
        true
    }

    pub(crate) fn load(&mut self, level: u8, from: Sequence, out: &mut Vec<Effect>) {
        let queue = self.id;
        let loading = &mut self.level_mut(level).loading;
        if loading.is_none() {
            let load = Load { queue, level, from, count: LOAD_COUNT, bytes: LOAD_BYTES };
            *loading = Some(load);
            out.push(Effect::Load(load));
        }
    }

    /// Asks for the bodies behind those that came last, once half of these are given.
    #[inline]
    fn load_ahead(&mut self, level: u8, given: Sequence, oldest_resident: u64, out: &mut Vec<Effect>) {
        let l = self.level_mut(level);
        let Some((middle, last)) = l.ahead else { return };
        if given < middle || l.loading.is_some() {
            return;
        }
        l.ahead = None;
        if let Some(slot) = l.list.after(last)
            && slot.packed.state() == State::Available
            && !slot.packed.resident(oldest_resident)
        {
            let from = slot.sequence;
            self.load(level, from, out);
        }
    }

    pub(crate) fn on_loaded(&mut self, buffer: u64, loaded: &Loaded, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let (level, from) = (loaded.load.level, loaded.load.from);
        if self.level_mut(level).loading == Some(loaded.load) {
            self.level_mut(level).loading = None;
        }
        let middle = loaded.bodies.get(loaded.bodies.len() / 2);
        self.level_mut(level).ahead = middle.zip(loaded.bodies.last()).map(|(m, last)| (m.sequence, last.sequence));
        for body in &loaded.bodies {
            // Some have gone meanwhile.
            let Some(place) = self.find(level, body.sequence) else { continue };
            match body.range {
                Some((offset, length)) => {
                    let packed = &mut self.list_mut(level).slot_mut(place).packed;
                    if !packed.resident(turn.oldest_resident) {
                        packed.place(buffer, offset, length);
                    }
                }
                None => self.damage(level, place, turn, out),
            }
        }
        if loaded.bodies.first().is_none_or(|b| b.sequence != from)
            && let Some(place) = self.find(level, from)
            && !self.list(level).slot(place).packed.resident(turn.oldest_resident)
            && !self.volatile_pending()
        {
            // The store knows nothing of an entry that is here.
            self.damage(level, place, turn, out);
        }
    }

    /// Sets an entry aside whose body cannot be read. One that a consumer holds has been read before, and stays with it.
    fn damage(&mut self, level: u8, place: Place, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let slot = self.list(level).slot(place);
        if slot.packed.state() == State::Available && !slot.packed.resident(turn.oldest_resident) {
            self.set_aside(level, place, turn, out);
        }
    }

    pub(crate) fn set_aside(&mut self, level: u8, place: Place, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let sequence = self.list(level).slot(place).sequence;
        self.must(level, place, Event::Damage, turn);
        self.damaged.insert((level, sequence));
        out.push(Effect::Damaged { level, sequence });
    }
}

impl From<&Deliver> for DeliveryKey {
    fn from(deliver: &Deliver) -> DeliveryKey {
        deliver.key()
    }
}
