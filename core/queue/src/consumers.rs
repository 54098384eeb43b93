//! The consumers of a queue: their credit, whose turn it is, and the chain of what each holds.
//!
//! Must not know: entries. Credit is a total (see [`crate::Input::Credit`]); the sum of all credit is kept here and changes
//! where a consumer's credit changes, in one function.

use crate::history::{Chain, NONE};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use packhorse_model::{Planted, Sequence, planted};
use slab::Slab;

/// A consumer's id, given by the shard; never used twice for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u64);

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) pre_settled: bool,
    /// Deliveries it may have been given in all, and those it was given.
    limit: u64,
    given: u64,
    /// What it holds.
    pub(crate) chain: Chain,
    /// Whether it stands in the ring.
    queued: bool,
    /// Per level: all restricted entries below this number are kept from it. `None`: nothing is.
    pub(crate) refused_below: Option<Box<[Sequence; 10]>>,
    /// Set when it has left: whether it was lost, and whether its oldest delivery has come back yet.
    pub(crate) leaving: Option<Leaving>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) lost: bool,
    pub(crate) oldest_is_back: bool,
}

impl Consumer {
    pub(crate) fn credit(&self) -> u64 {
        if self.leaving.is_some() { 0 } else { self.limit.saturating_sub(self.given) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Consumers {
    all: Slab<Consumer>,
    by_id: BTreeMap<ConsumerId, u32>,
    /// Those with credit, in order of their turns. Some may have lost it again.
    ring: VecDeque<u32>,
    /// Those that left and still hold entries.
    leaving: VecDeque<u32>,
    credit: u64,
    /// How many have `refused_below`.
    choosy: usize,
}

impl Consumers {
    pub(crate) fn add(&mut self, id: ConsumerId, pre_settled: bool) {
        let index = self.all.insert(Consumer {
            id,
            pre_settled,
            limit: 0,
            given: 0,
            chain: Chain::default(),
            queued: false,
            refused_below: None,
            leaving: None,
        });
        let before = self.by_id.insert(id, index as u32);
        assert!(before.is_none(), "a consumer's id is used once");
    }

    pub(crate) fn index(&self, id: ConsumerId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, index: u32) -> &Consumer {
        &self.all[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Consumer {
        &mut self.all[index as usize]
    }

    /// Consumers that have not left.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Sum of all credit.
    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    /// The one place where credit changes.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Consumer)) {
        let consumer = &mut self.all[index as usize];
        let before = consumer.credit();
        change(consumer);
        let after = consumer.credit();
        self.credit = self.credit - before + after;
        if after > 0 && !consumer.queued {
            consumer.queued = true;
            self.ring.push_back(index);
        }
    }

    pub(crate) fn set_limit(&mut self, id: ConsumerId, limit: u64) {
        if let Some(index) = self.index(id) {
            self.change(index, |c| c.limit = limit);
        }
    }

    /// One more entry was given to it.
    pub(crate) fn took(&mut self, index: u32) {
        self.change(index, |c| c.given += 1 + u64::from(planted(Planted::LeakCredit)));
    }

    /// Whose turn it is.
    pub(crate) fn turn(&mut self) -> Option<u32> {
        while let Some(&index) = self.ring.front() {
            let consumer = &mut self.all[index as usize];
            if consumer.credit() > 0 {
                return Some(index);
            }
            consumer.queued = false;
            self.ring.pop_front();
        }
        None
    }

    /// The turn goes to the next one.
    pub(crate) fn rotate(&mut self) {
        if self.ring.len() > 1 {
            self.ring.rotate_left(1);
        }
    }

    /// Another one than this that has credit.
    pub(crate) fn other(&self, index: u32) -> Option<u32> {
        self.ring.iter().copied().find(|other| *other != index && self.all[*other as usize].credit() > 0)
    }

    /// How many others than this have credit.
    pub(crate) fn others(&self, index: u32) -> usize {
        self.ring.iter().filter(|other| **other != index && self.all[**other as usize].credit() > 0).count()
    }

    /// Consumers that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.ring.len()
    }

    /// It gets nothing from now on; what it holds comes back by and by, and then [`Consumers::left`] forgets it.
    pub(crate) fn leave(&mut self, id: ConsumerId, lost: bool) {
        let Some(index) = self.by_id.remove(&id) else { return };
        self.change(index, |c| c.leaving = Some(Leaving { lost, oldest_is_back: false }));
        if self.all[index as usize].queued {
            self.ring.retain(|i| *i != index);
            self.all[index as usize].queued = false;
        }
        let consumer = &self.all[index as usize];
        if consumer.chain.first == NONE && consumer.refused_below.is_none() {
            self.all.remove(index as usize);
        } else {
            self.leaving.push_back(index);
        }
    }

    /// The first of those that left and still hold something.
    pub(crate) fn leaving(&self) -> Option<u32> {
        self.leaving.front().copied()
    }

    /// The first of those that left holds nothing any more.
    pub(crate) fn left(&mut self) {
        if let Some(index) = self.leaving.pop_front() {
            let consumer = self.all.remove(index as usize);
            self.choosy -= usize::from(consumer.refused_below.is_some());
        }
    }

    /// From now on something is kept from this consumer.
    pub(crate) fn make_choosy(&mut self, index: u32) {
        let refused = &mut self.all[index as usize].refused_below;
        if refused.is_none() {
            *refused = Some(Box::new([0; 10]));
            self.choosy += 1;
        }
    }

    /// A restricted entry became ready: those that may get it must look at it again.
    pub(crate) fn look_again(&mut self, level: u8, sequence: Sequence, excluded: impl Fn(ConsumerId) -> bool) {
        if self.choosy == 0 {
            return;
        }
        for (_, consumer) in &mut self.all {
            if let Some(below) = &mut consumer.refused_below {
                let below = &mut below[usize::from(level)];
                if *below > sequence && !excluded(consumer.id) {
                    *below = sequence;
                }
            }
        }
    }

    /// Checks the sums.
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        if self.credit != self.all.iter().map(|(_, c)| c.credit()).sum::<u64>() {
            return Err("the sum of credit is wrong");
        }
        for (index, consumer) in &self.all {
            if consumer.queued != self.ring.contains(&(index as u32)) || (consumer.credit() > 0 && !consumer.queued) {
                return Err("a consumer with credit does not stand in the ring once");
            }
        }
        Ok(())
    }
}
