//! The end of a transaction's part: what it did happens, or is undone, in slices.
//!
//! Must not know: who decided. While an end is under way nothing else is done in a dispatch, so that nobody sees half of it.

use crate::entry::Event;
use crate::input::{Effect, Turn};
use crate::part::{Add, Part, Remove};
use crate::queue::Queue;
use crate::relocate::Cause;
use crate::slot::{Flag, Slot};
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{Content, Head, LargeId, Planted, Reason, Resident, Sequence, planted};
use packhorse_store::Stored;

/// A part that is decided.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) part: Part,
    commit: bool,
    /// How many of its adds, and then of its removes, are done.
    done: usize,
}

impl Ending {
    pub(crate) fn new(part: Part, commit: bool) -> Ending {
        Ending { part, commit, done: 0 }
    }

    /// Adds and removes that are not done.
    pub(crate) fn left(&self) -> (usize, usize) {
        let adds = self.part.adds.len();
        (adds.saturating_sub(self.done), self.part.removes.len() - self.done.saturating_sub(adds))
    }

    /// Adds that will not be, and are counted still.
    pub(crate) fn rolling_back(&self) -> usize {
        if self.commit { 0 } else { self.left().0 }
    }

    /// Files of what is not added yet that no store knows, see [`Part::unknown_file`]; of what is committed it knows those that are persistent.
    pub(crate) fn unknown_files(&self) -> impl Iterator<Item = LargeId> {
        let left = self.part.adds.iter().skip(self.done);
        let left = left.filter(|add| !(self.commit && add.packed.persistent()));
        left.filter_map(|add| self.part.unknown_file(add))
    }

    /// The number of an add.
    fn number(&self, add: &Add) -> Sequence {
        let numbers = self.part.numbers.expect("to commit, numbers were drawn for what is added");
        numbers.first + u64::from(add.index)
    }
}

impl Queue {
    /// Goes on with the ends of transactions as far as `work` goes; false: there is more to be done at once.
    pub(crate) fn end_parts(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        while let Some(mut ending) = self.transactions.ending.pop_front() {
            if self.must_wait(&ending) {
                self.transactions.ending.push_front(ending);
                return true;
            }
            while ending.left() != (0, 0) {
                if *work == 0 {
                    self.transactions.ending.push_front(ending);
                    return false;
                }
                *work -= 1;
                self.end_one(&ending, turn, out);
                ending.done += 1;
            }
            if let Some(numbers) = ending.part.numbers {
                self.transactions.drawn.remove(&numbers.first);
            }
        }
        true
    }

    /// What came before its numbers were drawn is seen first (G3), though the record of the transaction was durable sooner.
    fn must_wait(&self, ending: &Ending) -> bool {
        let Some(numbers) = ending.part.numbers.filter(|_| ending.commit) else { return false };
        self.first_staged().is_some_and(|sequence| sequence < numbers.first)
    }

    fn end_one(&mut self, ending: &Ending, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let part = &ending.part;
        let (adds, prepared) = (part.adds.len(), part.prepared);
        match part.adds.get(ending.done) {
            Some(add) if ending.commit && !(adds > 1 && planted(Planted::HalveCommit)) => {
                self.bring(add, ending.number(add), part, turn)
            }
            Some(add) => {
                let mut slot = Slot { sequence: 0, packed: add.packed };
                let gone = slot.apply(Event::Rollback).expect("what is added is staged");
                self.counts.changed(&gone, slot.packed.length(), 0);
                out.extend(part.unknown_file(add).map(Effect::Discard));
            }
            None => {
                let remove = &part.removes[ending.done - adds];
                self.end_remove(remove, ending.commit, prepared, turn, out);
            }
        }
    }

    /// A message that was added is in the queue from now on.
    fn bring(&mut self, add: &Add, sequence: Sequence, part: &Part, turn: &mut Turn<'_>) {
        let mut packed = add.packed;
        let level = packed.level();
        match packed.content() {
            Content::Body(body) => {
                let Resident { buffer, offset, length } = part.at(body);
                packed.place(buffer, offset, length);
            }
            // The record has those that are persistent. A file must be somebody's, to be dropped with its entry or after a crash.
            Content::Large { id, length } if !packed.persistent() => {
                packed.set(Flag::Stored, true);
                self.store(sequence, packed.head(), Stored::Large { id, length }, turn);
            }
            Content::Large { .. } => {}
        }
        // It changes its state before it is in the list, where nobody has seen it as staged.
        let mut slot = Slot { sequence, packed };
        let come = slot.apply(Event::Commit).expect("what is added is staged");
        self.counts.changed(&come, packed.length(), 0);
        self.level_mut(level).list.insert(slot);
    }

    fn end_remove(
        &mut self,
        remove: &Remove,
        commit: bool,
        prepared: bool,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) {
        let (level, sequence) = (remove.level, remove.sequence);
        let place = self.find(level, sequence).expect("what is being removed is in its list");
        let history = self.list(level).slot(place).packed.history;
        if !commit && self.is_exhausted(history) {
            let cause = Cause::Letter { reason: Reason::DeliveryLimit, detail: String::new() };
            self.divert(level, sequence, place, cause, turn, out);
            return;
        }
        if let Some(then) = remove.then.as_deref().filter(|_| commit) {
            self.carry_out(level, sequence, place, then.clone(), turn, out);
            return;
        }
        let event = match (commit, prepared) {
            (true, _) => Event::Commit,
            (false, true) => Event::DecideRollback,
            (false, false) => Event::Rollback,
        };
        self.must(level, place, event, turn);
    }

    /// [`Queue::spill`] of a message that was committed and is not in its list yet.
    #[cold]
    pub(crate) fn spill_ending(&mut self, sequence: Sequence, buffer: u64) -> Option<(Head, Resident)> {
        for ending in self.transactions.ending.iter_mut().filter(|ending| ending.commit) {
            let Some(index) = ending.part.numbers.and_then(|numbers| sequence.checked_sub(numbers.first)) else {
                continue;
            };
            let Ok(at) = ending.part.adds.binary_search_by_key(&index, |add| u64::from(add.index)) else { continue };
            let packed = ending.part.adds[at].packed;
            let Content::Body(body) = packed.content() else { return None };
            let body = ending.part.at(body);
            if at < ending.done || packed.has(Flag::Stored) || body.buffer != buffer {
                return None;
            }
            ending.part.adds[at].packed.set(Flag::Stored, true);
            return Some((packed.head(), body));
        }
        None
    }
}
