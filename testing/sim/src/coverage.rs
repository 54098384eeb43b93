//! Which transitions of entries happened while which faults lasted: counted by `core/queue` itself under its feature `coverage`, which no
//! release has, and credited here to the faults of the moment.
//!
//! The counts are the process's: one world at a time.

use crate::fault::Kind;
#[cfg(feature = "coverage")]
use packhorse_queue::coverage::counts;
use packhorse_queue::entry::{Event, State};

/// Pairs of a state and an event.
pub(crate) const CELLS: usize = State::ALL.len() * Event::ALL.len();

type Counts = [u64; CELLS];

#[cfg(not(feature = "coverage"))]
fn counts() -> Counts {
    [0; CELLS]
}

/// What one world, or many, have covered.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// By kind of fault, the last without any: transitions by state and event.
    pub(crate) cells: Vec<[u64; CELLS]>,
    lasting: [u32; Kind::COUNT],
    seen: Counts,
}

impl Coverage {
    /// From now on.
    pub(crate) fn begin() -> Coverage {
        Coverage { cells: vec![[0; CELLS]; Kind::COUNT + 1], lasting: [0; Kind::COUNT], seen: counts() }
    }

    /// A fault begins or is over.
    pub(crate) fn change(&mut self, kind: Kind, start: bool) {
        self.credit();
        let lasting = &mut self.lasting[kind as usize];
        *lasting = if start { *lasting + 1 } else { lasting.saturating_sub(1) };
    }

    /// Credits what has happened since the last time.
    pub(crate) fn credit(&mut self) {
        let now = counts();
        let mut none = true;
        for (kind, cells) in self.cells.iter_mut().enumerate() {
            let lasts = self.lasting.get(kind).map_or(none, |lasting| *lasting > 0);
            none &= !lasts;
            if lasts {
                for (cell, (now, before)) in cells.iter_mut().zip(now.iter().zip(&self.seen)) {
                    *cell += now - before;
                }
            }
        }
        self.seen = now;
    }
}
