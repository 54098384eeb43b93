//! Suspects: entries that may have been with a consumer when the process died, and the guard against one that kills it again and
//! again (`docs/decisions/0010-poison-guard.md`).
//!
//! Must not know: how a crash is told from a stop, or which crash an entry is blamed for; the store does. A suspect is dispatched
//! only under a mark that names it, until it has come back from one delivery. One that was blamed before goes alone, so that
//! the next crash is blamed on nobody else.

use crate::entry::{Event, State};
use crate::history::NONE;
use crate::input::{DeliveryKey, Effect, Turn};
use crate::list::Place;
use crate::queue::Queue;
use crate::relocate::BROKEN;
use crate::slot::Flag;
use alloc::vec::Vec;
use packhorse_model::{Reason, Sequence};
use packhorse_store::Op;

/// Crashes in a row after which an entry goes to the dead-letter queue.
pub const CRASHES: u32 = 3;

/// How long a suspect that was blamed before keeps all others waiting at most, while its consumer says nothing, µs. A client
/// that settles hundreds at once gets them at this pace, and a consumer with credit gets what is ready within a second (I9 of the
/// checker).
pub const ALONE_US: u64 = 100_000;

/// A mark that was durable so long ago, seconds, no longer tells when its suspect is dispatched: it is marked again.
const FRESH_S: u32 = 2;

/// Most entries that are marked at once.
const WINDOW: u64 = 4096;

/// What is doubtful about an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It is no suspect.
    #[default]
    No,
    /// It must be marked first.
    Suspect,
    /// It has a mark of its own; until that is durable the entry is held.
    Marked,
}

/// What a queue keeps about its suspects; what each of them needs is in its history.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// None has this number or a higher one.
    pub(crate) below: Sequence,
    /// Those that go to the dead-letter queue, until the queue is dispatched for the first time.
    condemned: Vec<(u8, Sequence)>,
    /// The one that is with a consumer while all others wait, and until when.
    alone: Option<(u8, Sequence, u64)>,
}

impl Suspects {
    /// Whether there were any in this run.
    pub(crate) fn any(&self) -> bool {
        self.below > 0
    }

    /// Whether all wait for one.
    pub(crate) fn wait(&self) -> bool {
        self.alone.is_some()
    }

    /// When that ends at the latest, µs.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.alone.map(|(.., until_us)| until_us)
    }

    /// An entry has left its consumer's hands.
    #[cold]
    pub(crate) fn back(&mut self, level: u8, sequence: Sequence) {
        self.alone = self.alone.filter(|(l, s, _)| (*l, *s) != (level, sequence));
    }
}

impl Queue {
    /// A suspect is there again.
    pub(crate) fn recovered_suspect(&mut self, level: u8, sequence: Sequence, history: u32, crashes: u32) {
        let h = self.histories.get_mut(history);
        h.doubt = Doubt::Suspect;
        h.crashes = crashes.min(u32::from(u8::MAX)) as u8;
        self.suspects.below = self.suspects.below.max(sequence + 1);
        if crashes >= CRASHES {
            self.suspects.condemned.push((level, sequence));
        }
    }

    /// Whether this entry is a suspect.
    pub(crate) fn suspected(&self, sequence: Sequence, history: u32) -> bool {
        sequence < self.suspects.below && self.doubted(history)
    }

    #[cold]
    fn doubted(&self, history: u32) -> bool {
        history != NONE && self.histories.get(history).doubt != Doubt::No
    }

    /// What comes before each dispatch of a queue that has or had suspects.
    #[cold]
    pub(crate) fn before_suspects(&mut self, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        self.suspects.alone = self.suspects.alone.filter(|(.., until_us)| *until_us > turn.now.mono_us);
        self.quarantine(turn, out);
    }

    /// Whether a suspect that is next may go now. If not, it and all suspects that present credit could take are being marked.
    #[cold]
    pub(crate) fn vouch(&mut self, level: u8, sequence: Sequence, history: u32, turn: &mut Turn<'_>) -> bool {
        let h = self.histories.get(history);
        if h.doubt == Doubt::Marked && seconds(turn).wrapping_sub(h.marked_s) <= FRESH_S {
            return true;
        }
        self.mark_suspects(level, sequence, turn);
        turn.batch.require_flush();
        false
    }

    /// Marks the suspects from this one on, as many as there is credit for; one that was blamed before is marked alone.
    fn mark_suspects(&mut self, level: u8, from: Sequence, turn: &mut Turn<'_>) {
        let window = self.consumers.credit().clamp(1, WINDOW) as usize;
        let mut chosen: Vec<(Sequence, u32)> = Vec::new();
        let ready = self.list(level).from(from).filter(|s| s.packed.state() == State::Available);
        for slot in ready.take(window) {
            if slot.packed.has(Flag::Held) || !self.suspected(slot.sequence, slot.packed.history) {
                continue;
            }
            let blamed = self.histories.get(slot.packed.history).crashes > 0;
            if blamed && !chosen.is_empty() {
                break;
            }
            chosen.push((slot.sequence, slot.packed.history));
            if blamed {
                break;
            }
        }
        let at_ms = turn.broker_ms;
        let mut range: Option<(Sequence, Sequence)> = None;
        for (sequence, history) in chosen {
            self.histories.get_mut(history).doubt = Doubt::Marked;
            self.hold(level, sequence, turn);
            range = match range {
                Some((first, last)) if last + 1 == sequence => Some((first, sequence)),
                before => {
                    self.push_mark(before, at_ms, turn);
                    Some((sequence, sequence))
                }
            };
        }
        self.push_mark(range, at_ms, turn);
    }

    fn push_mark(&self, range: Option<(Sequence, Sequence)>, at_ms: u64, turn: &mut Turn<'_>) {
        if let Some((first, last)) = range {
            turn.batch.push(Op::ExactMark { queue: self.id, first, last, at_ms });
        }
    }

    /// What held a suspect back is durable: from now on its mark is fresh, for a while.
    #[cold]
    pub(crate) fn mark_durable(&mut self, place: Place, level: u8, turn: &Turn<'_>) {
        let history = self.list(level).slot(place).packed.history;
        if history != NONE {
            self.histories.get_mut(history).marked_s = seconds(turn);
        }
    }

    /// A suspect was given to a consumer that has to settle it.
    #[cold]
    pub(crate) fn gave_suspect(&mut self, level: u8, sequence: Sequence, history: u32, turn: &Turn<'_>) {
        if self.histories.get(history).crashes > 0 {
            self.suspects.alone = Some((level, sequence, turn.now.mono_us + ALONE_US));
        }
    }

    /// Sends on what has killed the process too often. In a dead-letter queue it stays: there is nowhere further to go, and who
    /// reads that queue does it knowingly.
    fn quarantine(&mut self, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        for (level, sequence) in core::mem::take(&mut self.suspects.condemned) {
            let Some(place) = self.find(level, sequence) else { continue };
            if self.dead_letters || self.list(level).slot(place).packed.state() != State::Available {
                continue;
            }
            self.must(level, place, Event::Quarantine, turn);
            let key = DeliveryKey { sequence, epoch: self.epoch, level };
            self.epoch = self.epoch.wrapping_add(1);
            self.doom(key, place, Reason::BrokerCrash, BROKEN.into(), out);
        }
    }
}

/// Monotonic time in whole seconds.
fn seconds(turn: &Turn<'_>) -> u32 {
    (turn.now.mono_us / 1_000_000) as u32
}
