//! Consuming links: since when they exist, what credit they gave and when, how they ended.
//!
//! From credit follows the earliest time at which the broker can have sent a delivery: the n-th one not before the credit that
//! covers n deliveries was given.

use super::messages::Place;
use packhorse_model::{Map, Seed};
use std::collections::VecDeque;

/// The end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detached {
    pub(crate) at: u64,
    pub(crate) orderly: bool,
    /// The broker's answer was seen: all that the client said before has reached it.
    pub(crate) answered: bool,
    /// When it was seen; 0: it was not.
    pub(crate) answered_at: u64,
}

/// One link's life.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) file: u32,
    pub(crate) queue: u32,
    /// 0: not recorded.
    pub(crate) attached_at: u64,
    pub(crate) presettled: bool,
    pub(crate) filtered: bool,
    pub(crate) received: u64,
    /// How many deliveries may have come in all, if credit is recorded.
    pub(crate) limit: Option<u64>,
    pub(crate) credit_place: Place,
    pub(crate) detached: Option<Detached>,
    /// Of each priority, the last delivery: when it can have been sent at the earliest, and its index.
    last: Vec<(u8, u64, u32)>,
    /// Limits above what was received, and since when.
    grants: VecDeque<(u64, u64)>,
}

impl Consumer {
    /// The credit that the link has now, if it is recorded.
    pub(crate) fn credit(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.received))
    }

    /// Deliveries may be on their way to it, as far as anybody knows.
    pub(crate) fn may_get_more(&self) -> bool {
        self.received < self.grants.back().map_or_else(|| self.limit.unwrap_or(u64::MAX), |(limit, _)| *limit)
    }

    /// Credit is given.
    pub(crate) fn grant(&mut self, credit: u32, at: u64, place: Place) {
        let limit = self.received + u64::from(credit);
        self.limit = Some(limit);
        self.credit_place = place;
        // Credit that is taken back may have been used already, so a lower limit changes nothing here.
        if self.grants.back().is_none_or(|(highest, _)| *highest < limit) {
            self.grants.push_back((limit, at));
        }
    }

    /// A delivery of this priority arrived.
    pub(crate) fn came(&mut self, priority: u8, from: u64, index: u32) {
        match self.last.iter_mut().find(|last| last.0 == priority) {
            Some(last) => *last = (priority, from, index),
            None => self.last.push((priority, from, index)),
        }
    }

    /// The delivery of a lower priority that came last, if it was certainly sent after this time.
    pub(crate) fn lower_after(&self, priority: u8, time: u64) -> Option<u32> {
        self.last.iter().find(|last| last.0 < priority && last.1 > time).map(|last| last.2)
    }

    /// A delivery arrives; answers the earliest time at which it can have been sent.
    pub(crate) fn receive(&mut self) -> u64 {
        self.received += 1;
        while let Some((limit, _)) = self.grants.front()
            && *limit < self.received
            && self.grants.len() > 1
        {
            self.grants.pop_front();
        }
        match self.grants.front() {
            Some((limit, at)) if *limit >= self.received => *at,
            _ => self.attached_at,
        }
    }
}

/// All links.
#[derive(Debug)]
pub(crate) struct Consumers {
    pub(crate) all: Vec<Consumer>,
    by_id: Map<u32, u32>,
}

impl Consumers {
    pub(crate) fn new() -> Consumers {
        Consumers { all: Vec::new(), by_id: Seed::fixed(3).map() }
    }

    /// Its index, if the link is known.
    pub(crate) fn find(&self, id: u32) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// A new link.
    pub(crate) fn add(&mut self, id: u32, file: u32, queue: u32, attached_at: u64) -> u32 {
        let index = self.all.len() as u32;
        self.by_id.insert(id, index);
        self.all.push(Consumer {
            file,
            queue,
            attached_at,
            presettled: false,
            filtered: false,
            received: 0,
            limit: None,
            credit_place: Place::default(),
            detached: None,
            last: Vec::new(),
            grants: VecDeque::new(),
        });
        index
    }

    pub(crate) fn get(&self, index: u32) -> &Consumer {
        &self.all[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Consumer {
        &mut self.all[index as usize]
    }
}
