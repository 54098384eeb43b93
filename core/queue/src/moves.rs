//! An operator's move of ready entries to another queue: one record for both sides each, as for dead letters.
//!
//! Must not know: which queue takes them, on which shard. What cannot be taken there is ready here again, in its place.

use crate::entry::State;
use crate::input::{Effect, Turn};
use crate::queue::Queue;
use crate::relocate::Cause;
use alloc::vec::Vec;
use packhorse_model::Sequence;

/// Most entries of one move that are offered and not yet answered.
const WINDOW: u64 = 256;

/// A move in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover {
    token: u64,
    /// Entries from here on came after it was asked for.
    below: Sequence,
    /// How many more are to be offered.
    left: u64,
    /// Offered and not answered.
    under_way: u64,
    moved: u64,
    strip_ttl: bool,
}

impl Queue {
    #[cold]
    pub(crate) fn begin_move(&mut self, token: u64, limit: u64, strip_ttl: bool) {
        let left = limit.min(self.counts.of(State::Available));
        self.moves.push_back(Mover { token, below: self.next, left, under_way: 0, moved: 0, strip_ttl });
        self.errands = true;
    }

    /// Goes on with moves as far as `work` goes; false: there is more to be done at once.
    pub(crate) fn move_on(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        while let Some(&Mover { token, below, left, under_way, moved, .. }) = self.moves.front() {
            if left > 0 && under_way < WINDOW {
                let oldest = self.oldest_ready().filter(|(_, sequence, _)| *sequence < below);
                let Some((level, sequence, place)) = oldest else {
                    self.mover(token).left = 0;
                    continue;
                };
                if *work == 0 {
                    return false;
                }
                *work -= 1;
                let mover = self.mover(token);
                (mover.left, mover.under_way) = (left - 1, under_way + 1);
                self.divert(level, sequence, place, Cause::Move { token }, turn, out);
                continue;
            }
            if under_way > 0 {
                // The answers wake it.
                return true;
            }
            self.moves.pop_front();
            out.push(Effect::Moved { token, count: moved });
        }
        true
    }

    fn mover(&mut self, token: u64) -> &mut Mover {
        self.moves.iter_mut().find(|m| m.token == token).expect("it is under way")
    }

    /// Whether entries of this move lose their time to live.
    pub(crate) fn strips_ttl(&self, token: u64) -> bool {
        self.moves.iter().any(|m| m.token == token && m.strip_ttl)
    }

    /// An entry that was offered is there now, or cannot be taken: then the move ends.
    pub(crate) fn move_answered(&mut self, token: u64, moved: bool) {
        let mover = self.mover(token);
        mover.under_way -= 1;
        mover.moved += u64::from(moved);
        if !moved {
            mover.left = 0;
        }
    }
}
