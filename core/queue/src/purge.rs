//! An operator's purge: all that nobody holds goes, in slices.
//!
//! Must not know: who asked. Entries that come after the question stay.

use crate::dispatch::Taken;
use crate::entry::{Event, State};
use crate::input::{Effect, Turn};
use crate::queue::Queue;
use alloc::vec::Vec;
use packhorse_model::Sequence;

/// A purge in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purge {
    token: u64,
    /// Entries from here on came after it was asked for.
    below: Sequence,
    count: u64,
}

impl Queue {
    #[cold]
    pub(crate) fn begin_purge(&mut self, token: u64) {
        self.purges.push_back(Purge { token, below: self.next, count: 0 });
        self.errands = true;
    }

    /// Goes on with purges as far as `work` goes.
    pub(crate) fn purge(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> Taken {
        while let Some(&purge) = self.purges.front() {
            while let Some((level, sequence)) = self.purgeable(purge.below) {
                let place = self.find(level, sequence).expect("what is ready or set aside is in its list");
                let ready = self.list(level).slot(place).packed.state() == State::Available;
                if ready && !self.may_leave(level, sequence, place, purge.below - sequence, turn) {
                    return Taken::Waits;
                }
                if *work == 0 {
                    return Taken::Work;
                }
                *work -= 1;
                self.damaged.remove(&(level, sequence));
                self.undoom(level, sequence, place);
                self.must(level, place, Event::Purge, turn);
                self.purges.front_mut().expect("it is under way").count += 1;
            }
            let done = self.purges.pop_front().expect("it is under way");
            out.push(Effect::Purged { token: done.token, count: done.count });
        }
        Taken::All
    }

    /// An entry below `below` that nobody holds and nobody waits for.
    fn purgeable(&mut self, below: Sequence) -> Option<(u8, Sequence)> {
        if let Some((level, sequence, _)) = self.oldest_ready().filter(|(_, sequence, _)| *sequence < below) {
            return Some((level, sequence));
        }
        let scheduled = self.doomed.iter().find(|((_, s), d)| *s < below && d.retry_at_us.is_some());
        let damaged = self.damaged.iter().find(|(_, s)| *s < below);
        scheduled.map(|(key, _)| *key).or(damaged.copied())
    }
}
