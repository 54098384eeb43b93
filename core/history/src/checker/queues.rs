//! Queues by name, and what happened to each as a whole: who consumed, when it was seen empty, what the broker counted, and the gaps in
//! which consumers with credit got nothing (for I9).

use super::consumers::Consumers;
use super::messages::Place;
use crate::event::Counters;
use packhorse_model::{Map, Seed};

/// A time in which nothing was delivered from a queue although a consumer had credit and everybody was alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// One with credit all the while.
    pub(crate) consumer: u32,
}

/// A consumer that closed its link in order while deliveries may have been on their way: they went back unseen, and unrecorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) consumer: u32,
    pub(crate) attached_at: u64,
    pub(crate) detached_at: u64,
    /// When the broker had done so for certain.
    pub(crate) over_at: u64,
}

/// A reading of the broker's counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) counters: Counters,
    /// No link of the queue was attached then.
    pub(crate) unattended: bool,
    /// The broker had ended at least once before.
    pub(crate) after_end: bool,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// Whose it is; see `Brokers`.
    pub(crate) broker: u32,
    /// When it was seen empty.
    pub(crate) drained: Vec<(u64, Place)>,
    /// A consumer with a filter was there: nobody can say what the others should have got.
    pub(crate) filtered: bool,
    /// A message was refused here.
    pub(crate) refuses: bool,
    pub(crate) unread: Vec<Unread>,
    /// When pre-settled links ended with something on its way, and until when more may have been sent: it is gone, rightly.
    pub(crate) presettled_lost: Vec<(u64, u64)>,
    pub(crate) readings: Vec<Reading>,
    /// When all was quiet, ascending.
    pub(crate) quiet: Vec<u64>,
    pub(crate) gaps: Vec<Gap>,
    /// Links that are there now.
    pub(crate) attached: Vec<u32>,
    /// Since when nothing has happened that could explain silence.
    since: u64,
}

impl Queue {
    /// The last time not after `at` when it was seen empty.
    pub(crate) fn drained_before(&self, at: u64) -> Option<u64> {
        let after = self.drained.partition_point(|(drained, _)| *drained <= at);
        after.checked_sub(1).map(|last| self.drained[last].0)
    }

    /// The first time from `at` on when all was quiet.
    pub(crate) fn quiet_after(&self, at: u64) -> Option<u64> {
        self.quiet.get(self.quiet.partition_point(|quiet| *quiet < at)).copied()
    }

    /// Whether a message sent at `sent` may have gone, before `until`, with a pre-settled link.
    pub(crate) fn lost_presettled(&self, sent: u64, until: u64) -> bool {
        self.presettled_lost.iter().any(|(from, over)| *from <= until && *over >= sent)
    }

    /// Something happened now that ends the silence or explains it. `alive`: by file, the last time at which the process said that it
    /// had taken everything; `born`: since when the broker runs, for links from before it died with another one.
    pub(crate) fn interrupt(
        &mut self,
        now: u64,
        stuck_ns: u64,
        consumers: &Consumers,
        alive: &[u64],
        up: bool,
        born: u64,
    ) {
        let since = std::mem::replace(&mut self.since, now);
        if !up || now.saturating_sub(since) < stuck_ns {
            return;
        }
        let (mut to, mut with_credit) = (now, None);
        for &index in &self.attached {
            let consumer = consumers.get(index);
            if consumer.attached_at < born {
                continue;
            }
            if consumer.may_get_more() {
                to = to.min(alive[consumer.file as usize]);
            }
            if !consumer.filtered && consumer.credit().is_some_and(|credit| credit > 0) {
                with_credit = Some(index);
            }
        }
        if let Some(consumer) = with_credit
            && to.saturating_sub(since) >= stuck_ns
        {
            self.gaps.push(Gap { from: since, to, consumer });
        }
    }
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) all: Vec<Queue>,
    by_name: Map<String, u32>,
    last: u32,
}

impl Queues {
    pub(crate) fn new() -> Queues {
        Queues { all: Vec::new(), by_name: Seed::fixed(4).map(), last: 0 }
    }

    /// The index of a queue that was named at `now`.
    pub(crate) fn index(&mut self, name: &str, now: u64) -> u32 {
        if self.all.get(self.last as usize).is_some_and(|queue| queue.name == name) {
            return self.last;
        }
        self.last = match self.by_name.get(name) {
            Some(index) => *index,
            None => {
                let index = self.all.len() as u32;
                self.by_name.insert(name.to_owned(), index);
                self.all.push(Queue {
                    name: name.to_owned(),
                    broker: super::brokers::Brokers::ALL,
                    drained: Vec::new(),
                    filtered: false,
                    refuses: false,
                    unread: Vec::new(),
                    presettled_lost: Vec::new(),
                    readings: Vec::new(),
                    quiet: Vec::new(),
                    gaps: Vec::new(),
                    attached: Vec::new(),
                    since: now,
                });
                index
            }
        };
        self.last
    }

    /// The queue of that name, if anybody named it.
    pub(crate) fn find(&self, name: &str) -> Option<&Queue> {
        self.by_name.get(name).map(|index| &self.all[*index as usize])
    }

    /// Its number.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Everything is read: what is searched by time is put in its order, which the merge keeps only nearly.
    pub(crate) fn finish(&mut self) {
        for queue in &mut self.all {
            queue.drained.sort_unstable();
            queue.readings.sort_by_key(|reading| reading.at);
            queue.quiet =
                queue.readings.iter().filter(|reading| reading.counters.quiet).map(|reading| reading.at).collect();
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Queue {
        &self.all[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Queue {
        &mut self.all[index as usize]
    }
}
