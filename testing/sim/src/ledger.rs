//! What the clients saw, and whether it breaks a promise (`spec/checker.md`, I1 to I5 and I10, as far as one small world can
//! tell). It knows nothing of the broker.

use std::collections::{BTreeMap, BTreeSet};

/// A message's name: who sent it, and its number there.
pub(crate) type Id = (u32, u64);

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// No answer, perhaps never.
    Unknown,
    Confirmed,
}

/// How a delivery ended, as far as its consumer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Not at all yet.
    Open,
    /// Accepted; the broker may not have heard of it.
    Accepted,
    /// Given back without a mark.
    Released,
    /// Given back as failed.
    Failed,
    /// Rejected.
    Rejected,
    /// The connection or the broker went.
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct Delivery {
    count: u32,
    ended: Ended,
    consumer: u64,
    /// Crashes of the broker before it.
    crashes: u64,
}

#[derive(Clone, Debug)]
struct Message {
    queue: u32,
    persistent: bool,
    sent: Sent,
    deliveries: Vec<Delivery>,
    /// Seen in the dead-letter queue.
    dead: u32,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages sent.
    pub sent: u64,
    /// Of those, confirmed.
    pub confirmed: u64,
    /// Deliveries seen.
    pub delivered: u64,
    /// Accepts told to the broker.
    pub accepted: u64,
    /// Messages seen in the dead-letter queue.
    pub dead_lettered: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Crashes of the broker.
    pub crashes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    messages: BTreeMap<Id, Message>,
    /// Highest number of a producer that a consumer's link got as a first delivery.
    firsts: BTreeMap<(u64, u32), u64>,
    pub(crate) totals: Totals,
    pub(crate) violations: Vec<String>,
    /// What a client saw go wrong that no rule names.
    seen: BTreeSet<String>,
}

impl Ledger {
    pub(crate) fn sent(&mut self, id: Id, queue: u32, persistent: bool) {
        self.totals.sent += 1;
        let message = Message { queue, persistent, sent: Sent::Unknown, deliveries: Vec::new(), dead: 0 };
        self.messages.insert(id, message);
    }

    pub(crate) fn confirmed(&mut self, id: Id) {
        self.totals.confirmed += 1;
        match self.messages.get_mut(&id) {
            Some(message) if message.sent == Sent::Confirmed => self.break_rule(format!("{id:?} was confirmed twice")),
            Some(message) => message.sent = Sent::Confirmed,
            None => self.break_rule(format!("I2 phantom: {id:?} was confirmed and never sent")),
        }
    }

    /// A delivery. `consumer`: the life of one consumer's link.
    pub(crate) fn received(&mut self, id: Id, queue: u32, consumer: u64, count: u32) {
        self.totals.delivered += 1;
        let Some(message) = self.messages.get_mut(&id) else {
            self.break_rule(format!("I2 phantom: {id:?} was delivered and never sent"));
            return;
        };
        if message.queue != queue {
            let was = message.queue;
            self.break_rule(format!("I2 wrong queue: {id:?} was sent to {was} and came from {queue}"));
            return;
        }
        let last = message.deliveries.last().copied();
        let crashes = self.totals.crashes;
        message.deliveries.push(Delivery { count, ended: Ended::Open, consumer, crashes });
        match last {
            // A message that was sent out before and never arrived is no first delivery: its count says so.
            None if count > 0 => {}
            None => {
                let first = self.firsts.entry((consumer, id.0)).or_insert(0);
                if *first > id.1 + 1 {
                    let above = *first - 1;
                    self.break_rule(format!("I5 order: {id:?} came first after number {above} of the same producer"));
                } else {
                    *first = id.1 + 1;
                }
            }
            Some(last) => {
                let least = match last.ended {
                    // A return has no reply: a crash may lose its record. Marks then tell that the message may have been
                    // delivered, not how often since the last durable number.
                    Ended::Cut | Ended::Accepted | Ended::Failed if last.crashes < crashes => last.count.max(1),
                    Ended::Released => last.count,
                    Ended::Failed | Ended::Cut | Ended::Accepted => last.count + 1,
                    Ended::Open => {
                        self.break_rule(format!("{id:?} was delivered again while its last delivery is open"));
                        return;
                    }
                    Ended::Rejected => last.count,
                };
                if count < least {
                    let ended = last.ended;
                    self.break_rule(format!(
                        "I4/I10 count: {id:?} came again with delivery-count {count} after {} ended as {ended:?}",
                        last.count
                    ));
                }
            }
        }
    }

    /// How a consumer ended a delivery.
    pub(crate) fn ended(&mut self, id: Id, consumer: u64, ended: Ended) {
        if ended == Ended::Accepted {
            self.totals.accepted += 1;
        }
        let deliveries = self.messages.get_mut(&id).map(|m| m.deliveries.iter_mut()).into_iter().flatten();
        if let Some(delivery) = deliveries.rev().find(|d| d.consumer == consumer) {
            delivery.ended = ended;
        }
    }

    /// A consumer's link is gone: what it held is back (or will be).
    pub(crate) fn gone(&mut self, consumer: u64, ended: Ended) {
        for message in self.messages.values_mut() {
            if let Some(delivery) = message.deliveries.last_mut()
                && delivery.consumer == consumer
                && delivery.ended == Ended::Open
            {
                delivery.ended = ended;
            }
        }
    }

    /// Seen in the dead-letter queue.
    pub(crate) fn dead(&mut self, id: Id) {
        self.totals.dead_lettered += 1;
        match self.messages.get_mut(&id) {
            Some(message) => message.dead += 1,
            None => self.break_rule(format!("I2 phantom: {id:?} is a dead letter and was never sent")),
        }
    }

    /// Everything has been drained: what was confirmed must have been seen to its end.
    pub(crate) fn close(&mut self) {
        let mut broken = Vec::new();
        for (id, message) in &self.messages {
            let done = message.deliveries.iter().any(|d| d.ended == Ended::Accepted);
            // A crash loses what is not persistent.
            let must = message.sent == Sent::Confirmed && (message.persistent || self.totals.crashes == 0);
            if must && !done && message.dead == 0 {
                broken.push(format!(
                    "I1 lost: {id:?} (queue {}) was confirmed and is nowhere: {message:?}",
                    message.queue
                ));
            }
            if message.deliveries.last().is_some_and(|d| d.ended == Ended::Open) {
                broken.push(format!("{id:?} is still held by a consumer after the end"));
            }
        }
        self.violations.extend(broken);
    }

    pub(crate) fn break_rule(&mut self, what: String) {
        if self.seen.insert(what.clone()) {
            self.violations.push(what);
        }
    }
}
