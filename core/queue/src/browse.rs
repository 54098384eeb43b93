//! Browsers: consumers that see what is ready, in order and once each, and hold nothing.
//!
//! Must not know: protocols. A browser is a place in each level, a number: what is removed there is of no concern, what comes
//! later is seen later, and every entry is passed once. It changes no count, needs no mark, and nobody waits for it. An entry
//! that somebody held when it was passed is not shown when it comes back.

use crate::consumers::ConsumerId;
use crate::history::NONE;
use crate::input::{Deliver, Effect, Turn};
use crate::list::Seen;
use crate::planted::told;
use crate::queue::Queue;
use alloc::boxed::Box;
use alloc::vec::Vec;
use packhorse_model::Sequence;

/// Most entries that one browser passes in one dispatch.
const STEPS: u32 = 64;

#[derive(Debug)]
struct Browser {
    id: ConsumerId,
    /// As a consumer's: see [`crate::Input::Credit`].
    limit: u64,
    given: u64,
    /// What is below these numbers, one for each level, has been passed.
    from: Box<[Sequence; 10]>,
    /// Nothing more was to be seen the last time.
    quiet: bool,
}

impl Browser {
    fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.given)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Browsers {
    all: Vec<Browser>,
}

impl Browsers {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Sum of their credit.
    pub(crate) fn credit(&self) -> u64 {
        self.all.iter().map(Browser::credit).sum()
    }

    fn get(&self, id: ConsumerId) -> Option<&Browser> {
        self.all.iter().find(|b| b.id == id)
    }

    pub(crate) fn credit_of(&self, id: ConsumerId) -> u64 {
        self.get(id).map_or(0, Browser::credit)
    }

    /// Whether there is nothing for this one; also when there is no such browser.
    pub(crate) fn quiet(&self, id: ConsumerId) -> bool {
        self.get(id).is_none_or(|b| b.quiet)
    }
}

/// What a browser comes to.
enum Next {
    Given,
    /// Nothing is to be seen, or something must be waited for.
    Nothing {
        quiet: bool,
    },
    /// It has passed enough for now.
    Enough,
}

impl Queue {
    #[cold]
    pub(crate) fn browse(&mut self, id: ConsumerId) {
        self.browsers.all.push(Browser { id, limit: 0, given: 0, from: Box::new([0; 10]), quiet: false });
        self.errands = true;
    }

    /// False: it is no browser.
    #[inline]
    pub(crate) fn browser_credit(&mut self, id: ConsumerId, limit: u64) -> bool {
        !self.browsers.all.is_empty() && self.set_browser_credit(id, limit)
    }

    #[cold]
    fn set_browser_credit(&mut self, id: ConsumerId, limit: u64) -> bool {
        self.browsers.all.iter_mut().find(|b| b.id == id).map(|b| b.limit = limit).is_some()
    }

    /// False: it is no browser.
    #[cold]
    pub(crate) fn browser_leaves(&mut self, id: ConsumerId) -> bool {
        let before = self.browsers.len();
        self.browsers.all.retain(|b| b.id != id);
        self.errands = self.has_errands();
        self.browsers.len() < before
    }

    /// Shows browsers what they have credit for, a slice each; true: there is more.
    pub(crate) fn show_browsers(&mut self, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        let mut more = false;
        for index in 0..self.browsers.len() {
            let mut steps = STEPS;
            while self.browsers.all[index].credit() > 0 {
                match self.show(index, &mut steps, turn, out) {
                    Next::Given => {}
                    Next::Nothing { quiet } => {
                        self.browsers.all[index].quiet = quiet;
                        break;
                    }
                    Next::Enough => {
                        self.browsers.all[index].quiet = false;
                        more = true;
                        break;
                    }
                }
            }
        }
        more
    }

    fn show(&mut self, index: usize, steps: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> Next {
        // What a transaction adds is seen in its place, as soon as it is there.
        let below = self.transactions.drawn.first().copied().unwrap_or(Sequence::MAX);
        for level in (0..10u8).rev() {
            let Some(l) = &self.levels[usize::from(level)] else { continue };
            let browser = &mut self.browsers.all[index];
            let (sequence, place) = match l.list.visible(&mut browser.from[usize::from(level)], below, steps) {
                Some(Seen::Ready(sequence, place)) => (sequence, place),
                // Others of its level may not be seen before it is; lower levels may.
                Some(Seen::Waits | Seen::End) => continue,
                None => return Next::Enough,
            };
            if *steps == 0 {
                return Next::Enough;
            }
            *steps -= 1;
            let slot = *l.list.slot(place);
            if !slot.packed.resident(turn.oldest_resident) {
                self.load(level, sequence, out);
                return Next::Nothing { quiet: false };
            }
            browser.given += 1;
            browser.from[usize::from(level)] = sequence + 1;
            let deliveries = match slot.packed.history {
                NONE => 0,
                history => told(self.histories.get(history).deliveries),
            };
            // A number of its own, so that no word on it can be taken for one on a delivery.
            let epoch = self.epoch;
            self.epoch = epoch.wrapping_add(1);
            out.push(Effect::Deliver(Deliver {
                consumer: browser.id,
                sequence,
                epoch,
                deliveries,
                packed: slot.packed,
            }));
            return Next::Given;
        }
        Next::Nothing { quiet: true }
    }
}
