//! Suspects: entries that may have been with a consumer when the process died, and the guard against one that kills it again and
//! again (`docs/decisions/0010-poison-guard.md`).
//!
//! Must not know: how a crash is told from a stop, or which crash an entry is blamed for; the store does. A suspect is dispatched
//! only under a mark that names it, until it has come back from one delivery. Those that were blamed once go in small groups, each on
//! probation while all others wait, and one that was blamed twice goes alone; so the next crash is blamed on few, and the one after
//! that on one.

use crate::entry::State;
use crate::history::NONE;
use crate::input::{Effect, Turn};
use crate::list::Place;
use crate::queue::Queue;
use crate::relocate::{BROKEN, Cause};
use crate::slot::Flag;
use alloc::vec::Vec;
use packhorse_model::{Reason, Sequence};
use packhorse_store::{Blame, Op, PASSED};

/// Crashes in a row after which an entry goes to the dead-letter queue.
pub const CRASHES: u32 = 3;

/// How long suspects that were blamed before keep all others waiting at most, while their consumers say nothing, µs; then they have
/// passed. A client that settles hundreds at once gets them at this pace.
pub const PROBATION_US: u64 = 100_000;

/// The same for one that had passed when the next crash came: perhaps it takes longer.
pub const LONG_PROBATION_US: u64 = 400_000;

/// In this time each consumer with credit has its turn, µs, however many there are and even if all others say nothing, because nobody is
/// at the end of their connections any more: probations share it. (A consumer with credit gets what is ready within a second, I9 of the
/// checker; the rest is for flushes.)
pub const ROUND_US: u64 = 600_000;

/// One that had passed in so many crashes in a row does not pass any more: each crash within ten seconds is blamed on it.
pub const PASSES: u32 = 2;

/// Most suspects on probation together, which were blamed once. About as many as there are groups when a thousand were blamed, so
/// that to look through the groups and through one group takes about as long.
pub const GROUP: usize = 32;

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
    /// Those that were blamed before and were marked last, together.
    group: Vec<(u8, Sequence)>,
    /// Of these, those that are with consumers and have not passed: level, number, when they were given in broker time, ms.
    out: Vec<(u8, Sequence, u64)>,
    /// When they may pass, monotonic µs.
    until_us: u64,
    /// That time has come. As long as nothing else goes, they do not pass: there is nobody else to blame.
    over: bool,
}

impl Suspects {
    /// Whether there were any in this run.
    pub(crate) fn any(&self) -> bool {
        self.below > 0
    }

    /// Whether all others wait for some on probation.
    pub(crate) fn wait(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether this one does not wait: it belongs to those on probation.
    fn belongs(&self, level: u8, sequence: Sequence) -> bool {
        self.group.contains(&(level, sequence))
    }

    /// When that ends at the latest, µs.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        (self.wait() && !self.over).then_some(self.until_us)
    }

    /// An entry has left its consumer's hands.
    #[cold]
    pub(crate) fn back(&mut self, level: u8, sequence: Sequence) {
        self.out.retain(|(l, s, _)| (*l, *s) != (level, sequence));
    }
}

impl Queue {
    /// A suspect is there again.
    pub(crate) fn recovered_suspect(&mut self, level: u8, sequence: Sequence, history: u32, blame: Blame) {
        let h = self.histories.get_mut(history);
        h.doubt = Doubt::Suspect;
        h.crashes = blame.crashes().min(u32::from(u8::MAX)) as u8;
        h.passed = blame.passed().min(u32::from(u8::MAX)) as u8;
        self.suspects.below = self.suspects.below.max(sequence + 1);
        if blame.crashes() >= CRASHES {
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
        self.suspects.over = self.suspects.until_us <= turn.now.mono_us;
        self.quarantine(turn, out);
    }

    /// Whether one that is next must wait because others are on probation. If their time is over, they pass now.
    #[cold]
    pub(crate) fn others_first(&mut self, level: u8, sequence: Sequence, suspect: bool, turn: &mut Turn<'_>) -> bool {
        if suspect && self.suspects.belongs(level, sequence) {
            return false;
        }
        if self.suspects.over {
            self.pass(turn);
        }
        self.suspects.wait()
    }

    /// Those on probation have passed: the next crash is blamed on others. What is marked next is in this batch or a later one, so
    /// that this is durable before any of it is given.
    fn pass(&mut self, turn: &mut Turn<'_>) {
        let mut out = core::mem::take(&mut self.suspects.out);
        out.sort_unstable();
        out.retain(|(level, sequence, _)| {
            let place = self.find(*level, *sequence).expect("what a consumer holds is in its list");
            let history = self.list(*level).slot(place).packed.history;
            u32::from(self.histories.get(history).passed) < PASSES
        });
        self.push_marks(out.into_iter().map(|(_, sequence, given_ms)| (sequence, given_ms)), PASSED, turn);
    }

    /// Whether a suspect that is next may go now. If not, it and all suspects that present credit could take are being marked.
    #[cold]
    pub(crate) fn vouch(&mut self, level: u8, sequence: Sequence, history: u32, turn: &mut Turn<'_>) -> bool {
        let h = self.histories.get(history);
        let fresh = h.doubt == Doubt::Marked && seconds(turn).wrapping_sub(h.marked_s) <= FRESH_S;
        if fresh && (h.crashes == 0 || self.suspects.belongs(level, sequence)) {
            return true;
        }
        if self.suspects.wait() || (h.crashes > 0 && self.marking_group()) {
            // Its mark is too old by now, and those that were marked with it are out; or others come first.
            return false;
        }
        self.mark_suspects(level, sequence, turn);
        turn.batch.require_flush();
        false
    }

    /// Whether the mark of a group is on its way.
    fn marking_group(&self) -> bool {
        // One that went meanwhile, purged or moved, keeps nobody waiting.
        let held = |level: u8, sequence| {
            self.find(level, sequence).is_some_and(|place| {
                let packed = &self.list(level).slot(place).packed;
                packed.has(Flag::Held) && packed.state() != State::Gone
            })
        };
        self.suspects.group.iter().any(|(level, sequence)| held(*level, *sequence))
    }

    /// Marks the suspects from this one on, as many as there is credit for: those that were never blamed, or a group of those that
    /// were blamed once, or one that was blamed more often.
    fn mark_suspects(&mut self, level: u8, from: Sequence, turn: &mut Turn<'_>) {
        let window = self.consumers.credit().clamp(1, WINDOW) as usize;
        let mut chosen: Vec<(Sequence, u32)> = Vec::new();
        let mut alike = None;
        let ready = self.list(level).from(from).filter(|s| s.packed.state() == State::Available);
        for slot in ready.take(window) {
            if slot.packed.has(Flag::Held) || !self.suspected(slot.sequence, slot.packed.history) {
                continue;
            }
            let h = self.histories.get(slot.packed.history);
            let kind = (h.crashes, if h.crashes > 0 { h.passed } else { 0 });
            let most = match h.crashes {
                0 => window,
                1 => GROUP,
                _ => 1,
            };
            if *alike.get_or_insert(kind) != kind || chosen.len() == most {
                break;
            }
            chosen.push((slot.sequence, slot.packed.history));
        }
        if alike.is_some_and(|(crashes, _)| crashes > 0) {
            self.suspects.group.clear();
            self.suspects.group.extend(chosen.iter().map(|(sequence, _)| (level, *sequence)));
        }
        let at_ms = turn.broker_ms;
        for (sequence, history) in &chosen {
            self.histories.get_mut(*history).doubt = Doubt::Marked;
            self.hold(level, *sequence, turn);
        }
        self.push_marks(chosen.into_iter().map(|(sequence, _)| (sequence, at_ms)), 0, turn);
    }

    /// Writes that these suspects, in ascending order with the broker time of their dispatch, are marked or have passed: one operation
    /// for each run of numbers.
    fn push_marks(&self, suspects: impl Iterator<Item = (Sequence, u64)>, passed: u64, turn: &mut Turn<'_>) {
        let mut run: Option<(Sequence, Sequence, u64)> = None;
        let mut push = |(first, last, at_ms): (Sequence, Sequence, u64)| {
            turn.batch.push(Op::ExactMark { queue: self.id, first, last, at_ms: at_ms | passed });
        };
        for (sequence, at_ms) in suspects {
            run = match run {
                Some((first, last, latest)) if last + 1 == sequence => Some((first, sequence, latest.max(at_ms))),
                before => {
                    before.into_iter().for_each(&mut push);
                    Some((sequence, sequence, at_ms))
                }
            };
        }
        run.into_iter().for_each(push);
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
        let h = self.histories.get(history);
        if h.crashes > 0 {
            let probation_us = if h.passed == 1 { LONG_PROBATION_US } else { PROBATION_US };
            let share_us = ROUND_US / (1 + self.consumers.others(h.consumer) as u64);
            self.suspects.out.push((level, sequence, turn.broker_ms));
            self.suspects.until_us = turn.now.mono_us + probation_us.min(share_us);
            self.suspects.over = false;
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
            let cause = Cause::Letter { reason: Reason::BrokerCrash, detail: BROKEN.into() };
            self.divert(level, sequence, place, cause, turn, out);
        }
    }
}

/// Monotonic time in whole seconds.
fn seconds(turn: &Turn<'_>) -> u32 {
    (turn.now.mono_us / 1_000_000) as u32
}
