//! An operator's move of ready entries to another queue: one record for both sides each, as for dead letters.
//!
//! Must not know: which queue takes them, on which shard. What cannot be taken there is ready here again, in its place: until it is
//! known what is taken, consumers get nothing, for what comes back must not find that later ones went before it. They have their turn
//! between one window and the next.

use crate::dispatch::Taken;
use crate::entry::State;
use crate::input::{Effect, Turn};
use crate::queue::Queue;
use crate::relocate::Cause;
use alloc::vec::Vec;
use packhorse_model::Sequence;

/// Most entries of one move that are offered at once.
const WINDOW: u64 = 256;

/// A move in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover {
    token: u64,
    /// Entries from here on came after it was asked for.
    below: Sequence,
    /// How many more are to be offered.
    left: u64,
    /// How many of these at once, before consumers have their turn.
    window: u64,
    /// Offered and not answered.
    under_way: u64,
    moved: u64,
    strip_ttl: bool,
}

impl Queue {
    #[cold]
    pub(crate) fn begin_move(&mut self, token: u64, limit: u64, strip_ttl: bool) {
        let left = limit.min(self.counts.of(State::Available));
        self.moves.push_back(Mover {
            token,
            below: self.next,
            left,
            window: left.min(WINDOW),
            under_way: 0,
            moved: 0,
            strip_ttl,
        });
        self.errands = true;
    }

    /// Goes on with moves as far as `work` goes.
    pub(crate) fn move_on(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> Taken {
        while let Some(&Mover { token, below, left, window, under_way, moved, .. }) = self.moves.front() {
            let oldest = self.oldest_ready().filter(|(_, sequence, _)| left > 0 && *sequence < below);
            let Some((level, sequence, place)) = oldest else {
                if under_way > 0 {
                    self.mover(token).end();
                    return Taken::Waits;
                }
                self.moves.pop_front();
                out.push(Effect::Moved { token, count: moved });
                continue;
            };
            if window == 0 {
                if under_way > 0 {
                    return Taken::Waits;
                }
                self.mover(token).window = left.min(WINDOW);
                return Taken::Next;
            }
            if !self.may_leave(level, sequence, place, left.min(below - sequence), turn) {
                return Taken::Waits;
            }
            if *work == 0 {
                return Taken::Work;
            }
            *work -= 1;
            let mover = self.mover(token);
            (mover.left, mover.window, mover.under_way) = (left - 1, window - 1, under_way + 1);
            self.divert(level, sequence, place, Cause::Move { token }, turn, out);
        }
        Taken::All
    }

    /// Whether something was offered that may still come back.
    pub(crate) fn move_is_open(&self) -> bool {
        self.moves.front().is_some_and(|mover| mover.under_way > 0)
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
            mover.end();
        }
    }
}

impl Mover {
    /// Nothing more is offered.
    fn end(&mut self) {
        (self.left, self.window) = (0, 0);
    }
}
