//! A queue's figures. Each follows from a change of state, told here once (invariant 6); none is counted elsewhere.
//!
//! Must not know: who caused a change.

use crate::entry::{Reason, State, Transition};
use packhorse_model::{Planted, planted};

/// What a queue reports (`spec/operate.md`). Totals count since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries in state Available.
    pub ready: u64,
    /// Entries in state Scheduled.
    pub scheduled: u64,
    /// Entries in state Acquired.
    pub acquired: u64,
    /// Entries in state Removing.
    pub removing: u64,
    /// Entries in state Moving.
    pub moving: u64,
    /// Entries in state Damaged.
    pub damaged: u64,
    /// Entries in state Staged.
    pub staged: u64,
    /// Part of `staged`: in prepared branches.
    pub prepared_in: u64,
    /// Part of `removing`: in prepared branches.
    pub prepared_out: u64,
    /// Sum over all states but Staged and Gone.
    pub depth: u64,
    /// Bytes of content of the entries in `depth`.
    pub bytes: u64,
    /// Consumers.
    pub consumers: u64,
    /// Sum of their credit.
    pub credit: u64,
    /// Entries that became part of `depth`, without the recovered ones.
    pub enqueued_total: u64,
    /// Entries acknowledged.
    pub acknowledged_total: u64,
    /// Deliveries of entries that had been delivered before.
    pub redelivered_total: u64,
    /// Messages that were confirmed and not stored, because they came before.
    pub duplicates_total: u64,
    /// Entries expired.
    pub expired_total: u64,
    /// Entries moved to the dead-letter queue.
    pub dead_lettered_total: u64,
    /// Entries purged.
    pub purged_total: u64,
    /// Entries that operators moved to other queues.
    pub moved_total: u64,
    /// Broker time at which the oldest entry arrived, ms.
    pub oldest_arrived_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    states: [u64; State::ALL.len()],
    /// Of all in depth.
    bytes: u64,
    /// Of the staged ones.
    staged_bytes: u64,
    enqueued: u64,
    recovered: u64,
    acknowledged: u64,
    dead_lettered: u64,
    purged: u64,
    moved: u64,
    redelivered: u64,
    pub(crate) duplicates: u64,
}

impl Counts {
    /// An entry begins to exist.
    pub(crate) fn born(&mut self, state: State, length: u64) {
        self.states[state as usize] += 1;
        if state.in_depth() {
            self.bytes += length;
            self.enqueued += 1;
        } else {
            self.staged_bytes += length;
        }
    }

    /// An entry of an earlier run is there again.
    pub(crate) fn recovered(&mut self, length: u64) {
        self.states[State::Available as usize] += 1;
        self.bytes += length;
        self.recovered += 1;
    }

    /// An entry changed its state; `deliveries` are those before.
    pub(crate) fn changed(&mut self, transition: &Transition, length: u64, deliveries: u32) {
        let from = transition.from as usize;
        self.states[from] = self.states[from].checked_sub(1).expect("an entry leaves a state that it was in");
        if transition.from == State::Staged {
            self.staged_bytes -= length;
            if transition.to.in_depth() {
                self.bytes += length;
                self.enqueued += 1;
            }
        } else if transition.to == State::Gone {
            self.bytes -= length;
        }
        if transition.to == State::Gone {
            match transition.reason {
                Some(Reason::Acknowledged) => self.acknowledged += 1,
                Some(Reason::DeadLettered) => self.dead_lettered += 1,
                Some(Reason::Purged) => self.purged += 1,
                Some(Reason::Moved) => self.moved += 1,
                Some(Reason::Abandoned) | None => {}
            }
            return;
        }
        let again = transition.to == State::Acquired && deliveries > 0;
        self.states[transition.to as usize] += 1 + u64::from(again && planted(Planted::CountTwice));
        self.redelivered += u64::from(again);
    }

    pub(crate) fn of(&self, state: State) -> u64 {
        self.states[state as usize]
    }

    /// Entries that live, the staged ones too, and their bytes.
    pub(crate) fn live(&self) -> (u64, u64) {
        (self.states.iter().sum(), self.bytes + self.staged_bytes)
    }

    /// Entries in depth.
    pub(crate) fn depth(&self) -> u64 {
        State::ALL.iter().filter(|s| s.in_depth()).map(|s| self.of(*s)).sum()
    }

    /// The figures that follow from states.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            ready: self.of(State::Available),
            scheduled: self.of(State::Scheduled),
            acquired: self.of(State::Acquired),
            removing: self.of(State::Removing),
            moving: self.of(State::Moving),
            damaged: self.of(State::Damaged),
            staged: self.of(State::Staged),
            depth: self.depth(),
            bytes: self.bytes,
            enqueued_total: self.enqueued,
            acknowledged_total: self.acknowledged,
            redelivered_total: self.redelivered,
            duplicates_total: self.duplicates,
            dead_lettered_total: self.dead_lettered,
            purged_total: self.purged,
            moved_total: self.moved,
            ..Stats::default()
        }
    }

    /// Conservation: what came in is there or has gone by a counted way.
    pub(crate) fn conserved(&self) -> bool {
        let gone = self.acknowledged + self.dead_lettered + self.purged + self.moved;
        self.recovered + self.enqueued == self.depth() + gone
    }
}
