//! Dispatch marks: which ranges of 256 numbers may have been dispatched, as the store knows it (`spec/entry.md`, "Operations").
//!
//! Must not know: entries. A mark is durable before the first dispatch from its range; the next range is marked half-way
//! through the current one, so that a steady flow waits for no flush of its own.

use alloc::collections::{BTreeSet, VecDeque};
use packhorse_model::{Planted, QueueId, Sequence, planted};
use packhorse_store::{Op, Ticket};

use crate::input::Turn;

/// Numbers in a range.
const RANGE: u64 = 256;
/// Most ranges that one mark covers, when as many entries are about to go at once.
const RANGES_AT_ONCE: u64 = 16;

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Durably marked ranges, by number / 256.
    durable: BTreeSet<u64>,
    /// Written and not yet durable: ticket, first range, ranges.
    pending: VecDeque<(Ticket, u64, u64)>,
    /// A durable range, to answer most questions without a search.
    current: Option<u64>,
    /// The range whose successor was looked after.
    ahead_of: Option<u64>,
}

impl Marks {
    /// Whether an entry may be dispatched as far as marks go.
    pub(crate) fn cover(&mut self, sequence: Sequence) -> bool {
        let range = sequence / RANGE;
        if self.current == Some(range) {
            return true;
        }
        if self.durable.contains(&range) {
            self.current = Some(range);
            return true;
        }
        false
    }

    /// Marks the range of `sequence` in this turn's batch, unless that has been done, and as many after it as `soon`
    /// entries need. `floor`: no entry lives below it. Answer: the mark is in this turn's batch.
    pub(crate) fn write(
        &mut self,
        queue: QueueId,
        sequence: Sequence,
        soon: u64,
        floor: Sequence,
        turn: &mut Turn<'_>,
    ) -> bool {
        let range = sequence / RANGE;
        if let Some((ticket, ..)) =
            self.pending.iter().find(|(_, first, count)| (*first..first + count).contains(&range))
        {
            return *ticket == turn.ticket;
        }
        if self.durable.contains(&range) {
            return false;
        }
        while self.durable.first().is_some_and(|r| *r < floor / RANGE) {
            self.durable.pop_first();
        }
        let count = (soon / RANGE + 1).min(RANGES_AT_ONCE);
        let marked = if planted(Planted::LoseMark) { 0 } else { (count * RANGE) as u32 };
        turn.batch.push(Op::DispatchMark { queue, first: range * RANGE, count: marked });
        self.pending.push_back((turn.ticket, range, count));
        true
    }

    /// Whether `sequence`, dispatched now, is past the middle of its range for the first time: if so, a number in the next.
    pub(crate) fn next_range(&mut self, sequence: Sequence) -> Option<Sequence> {
        let range = sequence / RANGE;
        if sequence % RANGE < RANGE / 2 || self.ahead_of == Some(range) {
            return None;
        }
        self.ahead_of = Some(range);
        Some((range + 1) * RANGE)
    }

    pub(crate) fn durable(&mut self, up_to: Ticket) {
        while let Some(&(ticket, first, count)) = self.pending.front()
            && ticket <= up_to
        {
            self.pending.pop_front();
            self.durable.extend(first..first + count);
        }
    }

    /// The lowest ticket waited for.
    pub(crate) fn awaits(&self) -> Option<Ticket> {
        self.pending.front().map(|(ticket, ..)| *ticket)
    }
}
