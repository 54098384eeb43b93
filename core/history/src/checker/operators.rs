//! What operators did to queues: removals (a purge, or the end of a queue) and moves to another queue, each with the time in which it can
//! have happened and, if it was answered, how many messages it was.
//!
//! From them follows where a message can have come to be and since when, and which removals can explain that it is missing. How many
//! messages each can explain is judged by `explain`.

use super::brokers::Brokers;
use super::messages::{Place, Receipt, Sent};
use super::queues::Queues;
use super::record::Record;
use super::transactions::Transaction;

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// All that nobody holds was removed.
    Purge,
    /// The queue was deleted with everything in it.
    Delete,
    /// Ready ones were moved to this queue.
    Move(u32),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) id: u64,
    pub(crate) what: What,
    pub(crate) queue: u32,
    /// It has not happened before.
    pub(crate) at: u64,
    pub(crate) place: Place,
    /// It has not happened after.
    pub(crate) until: u64,
    /// How many messages; `None`: nobody knows.
    pub(crate) messages: Option<u64>,
}

/// A queue in which a message can have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) queue: u32,
    /// Not before.
    pub(crate) at: u64,
}

/// All operations.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub(crate) all: Vec<Operation>,
}

impl Operations {
    /// An operation begins. Err: another one has its number.
    pub(crate) fn begin(&mut self, id: u64, what: What, queue: u32, at: u64, place: Place) -> Result<(), String> {
        if self.all.iter().any(|operation| operation.id == id) {
            return Err(format!("operation {id} begins again; each has a number of its own"));
        }
        self.all.push(Operation { id, what, queue, at, place, until: u64::MAX, messages: None });
        Ok(())
    }

    /// Its answer. Err: it has not begun, is another one, or has been answered.
    pub(crate) fn answer(&mut self, id: u64, what: What, queue: u32, at: u64, messages: u64) -> Result<(), String> {
        let same = |operation: &&mut Operation| (operation.id, operation.what, operation.queue) == (id, what, queue);
        match self.all.iter_mut().find(same) {
            Some(operation) if operation.messages.is_none() => {
                (operation.until, operation.messages) = (at, Some(messages));
                Ok(())
            }
            Some(_) => Err(format!("a second answer to operation {id}")),
            None => Err(format!("an answer to operation {id}, which has not begun like this")),
        }
    }

    /// Everything is read: one without an answer is over when its broker ends.
    pub(crate) fn finish(&mut self, brokers: &Brokers, queues: &Queues) {
        for operation in self.all.iter_mut().filter(|operation| operation.messages.is_none()) {
            let broker = queues.get(operation.queue).broker;
            operation.until = brokers.first_end(broker, operation.at).unwrap_or(u64::MAX);
        }
    }

    /// Where a message can have been, its own queue first.
    pub(crate) fn reach(&self, sent: &Sent, slack: u64, into: &mut Vec<Reached>) {
        into.clear();
        into.push(Reached { queue: sent.queue, at: sent.at });
        loop {
            let mut changed = false;
            for operation in &self.all {
                let What::Move(target) = operation.what else { continue };
                let from = into.iter().find(|reached| reached.queue == operation.queue).map(|reached| reached.at);
                let Some(from) = from.filter(|from| *from <= operation.until.saturating_add(slack)) else { continue };
                let at = from.max(operation.at);
                match into.iter_mut().find(|reached| reached.queue == target) {
                    Some(known) if known.at <= at => {}
                    Some(known) => (known.at, changed) = (at, true),
                    None => {
                        into.push(Reached { queue: target, at });
                        changed = true;
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// The moves that can have brought a message, which can have been where `reach` says, to a queue in which it was seen at `at`.
    pub(crate) fn movers(&self, reach: &[Reached], queue: u32, at: u64, slack: u64) -> Vec<u32> {
        let can = |operation: &Operation| {
            operation.what == What::Move(queue)
                && operation.at <= at.saturating_add(slack)
                && was_there(reach, operation, slack)
        };
        self.indexes(can)
    }

    /// The removals that can explain why a message is missing. `receipts`: all of its deliveries. `dead`: the queues in which it can be as
    /// a dead letter. `heard`: the broker has certainly heard how this one ended, and had not taken it back before.
    pub(crate) fn removers(
        &self,
        reach: &[Reached],
        receipts: &[Receipt],
        dead: &[u32],
        heard: impl Fn(&Receipt) -> bool,
        slack: u64,
    ) -> Vec<u32> {
        let seen_from = receipts.iter().map(|receipt| receipt.from).max().unwrap_or(0);
        let can = |operation: &Operation| {
            // It was certainly sent out later.
            if operation.until.saturating_add(slack) < seen_from {
                return false;
            }
            let there = was_there(reach, operation, slack) || dead.contains(&operation.queue);
            match operation.what {
                What::Move(_) => false,
                What::Delete => there,
                What::Purge => {
                    let held = |receipt: &Receipt| {
                        let settled = receipt.end_place.is_some();
                        receipt.queue == operation.queue
                            && receipt.at + slack < operation.at
                            && settled
                            && heard(receipt)
                            && receipt.end_at > operation.until.saturating_add(slack)
                    };
                    there && !receipts.iter().any(held)
                }
            }
        };
        self.indexes(can)
    }

    fn indexes(&self, can: impl Fn(&Operation) -> bool) -> Vec<u32> {
        (0..self.all.len() as u32).filter(|index| can(&self.all[*index as usize])).collect()
    }

    /// The first time, not before `from`, at which somebody may have taken messages out of a queue.
    pub(crate) fn first_on(&self, queue: u32, from: u64) -> Option<u64> {
        let here = self.all.iter().filter(|operation| operation.queue == queue && operation.until >= from);
        here.map(|operation| operation.at).min()
    }

    /// Whether the order in which messages come out of a queue is that of their sending, for those that were sent to `home`: nothing
    /// comes back by moves, and nothing comes by two ways.
    pub(crate) fn keeps_order(&self, queue: u32, home: u32) -> bool {
        self.all.iter().all(|operation| match operation.what {
            What::Move(target) if target == queue => home != queue && operation.queue == home,
            // Moved to the home, it may have been here before.
            What::Move(target) => target != home,
            _ => true,
        })
    }

    /// Whether an operator did anything to this queue, or moved something into it.
    pub(crate) fn touched(&self, queue: u32) -> bool {
        self.all.iter().any(|one| one.queue == queue || one.what == What::Move(queue))
    }

    /// Purges and deletes of this queue that can have been carried out between two times: by force, with what is in doubt there.
    pub(crate) fn emptied(&self, queue: u32, from: u64, until: u64) -> impl Iterator<Item = &Operation> {
        let here = self.all.iter().filter(move |one| one.queue == queue && !matches!(one.what, What::Move(_)));
        here.filter(move |one| one.at <= until && one.until >= from)
    }

    /// Messages that purges certainly took out of a queue between two times; there may be more.
    pub(crate) fn purged(&self, queue: u32, after: u64, until: u64) -> u64 {
        let here = self.all.iter().filter(|one| one.queue == queue && one.what == What::Purge);
        here.filter(|one| one.at >= after && one.until <= until).filter_map(|one| one.messages).sum()
    }

    /// Whether a queue was deleted, or may have been, before `at`.
    pub(crate) fn may_be_new(&self, queue: u32, at: u64) -> bool {
        self.all.iter().any(|one| one.queue == queue && one.what == What::Delete && one.at <= at)
    }
}

impl Record {
    /// Whether an operator may have rolled back by force what a branch did in a queue at some time, by `at` and before it was over.
    pub(crate) fn forced(&self, transaction: &Transaction, (queue, since): (u32, u64), at: u64) -> bool {
        let slack = self.options.slack_ns;
        let mut emptied = self.operations.emptied(queue, since.saturating_sub(slack), at.saturating_add(slack));
        transaction.xid.is_some() && emptied.any(|one| !transaction.over(one.at.saturating_sub(slack)))
    }
}

fn was_there(reach: &[Reached], operation: &Operation, slack: u64) -> bool {
    let mut reach = reach.iter();
    reach.any(|reached| reached.queue == operation.queue && reached.at <= operation.until.saturating_add(slack))
}
