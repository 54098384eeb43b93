//! What messages have to carry beside their bodies, as far as clients know: what was added when they were given back, how often they were
//! given back as failed, why they are dead letters. The checker's history does not tell this, so it is judged here, as I10: it belongs to
//! what survives a restart with a message's counts.
//!
//! Only what the broker has answered counts, and only for deliveries on links that were attached after the answer: others may have been on
//! their way before.

use packhorse_client_core::{Limits, MessageView};
use packhorse_history::MessageId;
use std::collections::BTreeMap;

/// What begins the names of annotations that consumers add.
const ADDED: &str = "x-opt-sim-";

/// What a return said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// It counts as an attempt.
    pub(crate) failed: bool,
    /// The number of the annotation that it added.
    pub(crate) added: Option<u32>,
}

/// What is known of one message; times are those of answers, ns.
#[derive(Debug, Default)]
struct Known {
    added: Vec<(u64, u32)>,
    /// Attempts that ended as failed, and in which queue.
    failed: Vec<(u64, String)>,
    /// Somebody rejected it.
    rejected: bool,
    /// When that was final, and in which queue.
    gone: Option<(u64, String)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    known: BTreeMap<MessageId, Known>,
    numbers: u32,
    /// Attempts that a message gets; 0: as many as it takes.
    pub(crate) limit: u32,
    pub(crate) wrong: Vec<String>,
}

/// A delivery to be looked at.
pub(crate) struct Delivery<'a> {
    pub(crate) message: MessageId,
    /// All of it, as it came.
    pub(crate) bytes: &'a [u8],
    /// The queue's full name, and whether it is one of dead letters.
    pub(crate) queue: &'a str,
    pub(crate) dead: bool,
    /// When its link was attached, ns.
    pub(crate) attached_ns: u64,
}

impl Contents {
    /// A number for an annotation.
    pub(crate) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// The name of that annotation.
    pub(crate) fn name(number: u32) -> String {
        format!("{ADDED}{number}")
    }

    /// Somebody rejects it.
    pub(crate) fn rejects(&mut self, message: MessageId) {
        self.known.entry(message).or_default().rejected = true;
    }

    /// The broker has answered that it is rejected in this queue.
    pub(crate) fn rejected_for_good(&mut self, at_ns: u64, message: MessageId, queue: &str) {
        self.known.entry(message).or_default().gone = Some((at_ns, queue.to_owned()));
    }

    /// The broker has answered a return.
    pub(crate) fn returned(&mut self, at_ns: u64, message: MessageId, said: Said, queue: &str) {
        if said == Said::default() {
            return;
        }
        let known = self.known.entry(message).or_default();
        known.added.extend(said.added.map(|number| (at_ns, number)));
        if said.failed {
            known.failed.push((at_ns, queue.to_owned()));
        }
    }

    /// A message came.
    pub(crate) fn look(&mut self, delivery: &Delivery<'_>) {
        let &Delivery { message, bytes, queue, dead, attached_ns } = delivery;
        let none = Known::default();
        let known = self.known.get(&message).unwrap_or(&none);
        if known.added.is_empty() && known.failed.is_empty() && known.gone.is_none() && !dead {
            return;
        }
        let Ok(view) = MessageView::parse(bytes, &Limits::default()) else { return };
        let told = |key: &str| view.message_annotations().and_then(|map| map.get(key));
        let mut wrong = Vec::new();
        for (_, number) in known.added.iter().filter(|(at, _)| *at < attached_ns) {
            let name = Contents::name(*number);
            if told(&name).and_then(|value| value.as_u32()) != Some(*number) {
                wrong.push(format!("what was added to it when it was given back, {name}, is not there any more"));
            }
        }
        let failed = known.failed.iter().filter(|(at, _)| *at < attached_ns).count() as u64;
        let here = known.failed.iter().filter(|(at, of)| *at < attached_ns && of == queue).count() as u64;
        if !dead && self.limit > 0 && here >= u64::from(self.limit) {
            wrong.push(format!("it was given back as failed {here} times, and gets {} attempts", self.limit));
        }
        // An operator may have moved it back from the dead letters, and then it says so.
        let again = known.gone.as_ref().is_some_and(|(at, of)| *at < attached_ns && of == queue);
        if again && !dead && told("x-opt-packhorse-reason").is_none() {
            wrong.push("it was rejected in a transaction that was committed, and is there still".to_owned());
        }
        if dead {
            let reason = told("x-opt-packhorse-reason").and_then(|value| value.as_str()).unwrap_or("none");
            // The delivery that ended here counts; that of a return that failed has been answered before.
            let (least, may) = match reason {
                "rejected" => (failed + 1, known.rejected),
                "delivery-limit" => (failed.max(1), self.limit > 0),
                "overflow" | "broker-crash" => (0, true),
                _ => (0, false),
            };
            let deliveries = told("x-opt-packhorse-deliveries").and_then(|value| value.as_u32()).map(u64::from);
            if !may {
                wrong.push(format!("it is a dead letter, and its reason cannot be `{reason}`"));
            } else if deliveries.is_none_or(|deliveries| deliveries < least) {
                wrong.push(format!("its dead letter speaks of {deliveries:?} deliveries, and there were {least}"));
            }
        }
        self.wrong.extend(wrong.into_iter().map(|what| format!("message {message}, queue {queue}: {what}")));
    }
}
