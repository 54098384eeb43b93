//! What came so far: each message once, in order per producer and link, unchanged, on its own queue.
//!
//! A run without faults has no reason for any exception, so each one is a violation. Memory is a number per producer and one
//! per message that came before its neighbor.

use packhorse_history::MessageId;
use std::collections::BTreeSet;

/// How many violations are told in words.
const TOLD: usize = 10;

/// Violations by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Violations {
    /// Expected and never came.
    pub(super) lost: u64,
    /// Came again.
    pub(super) duplicated: u64,
    /// Came after a later message of its producer, on the same link.
    pub(super) reordered: u64,
    /// The body is not what its producer made.
    pub(super) corrupt: u64,
    /// Came from another queue than it was sent to.
    pub(super) misrouted: u64,
    /// Refused by the broker, or given back by it.
    pub(super) refused: u64,
}

impl Violations {
    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
    }

    /// Names and counts.
    pub(super) fn rows(&self) -> [(&'static str, u64); 6] {
        [
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
            ("misrouted", self.misrouted),
            ("refused", self.refused),
        ]
    }
}

/// One producer's messages.
#[derive(Clone, Debug, Default)]
struct Producer {
    /// All below came.
    next: u64,
    /// What came beyond.
    ahead: BTreeSet<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Seen {
    producers: Vec<Producer>,
    /// One past the highest sequence by link and producer.
    highest: Vec<u64>,
    pub(super) violations: Violations,
    /// The first of them in words.
    pub(super) told: Vec<String>,
}

impl Seen {
    /// Nothing came yet.
    pub(super) fn new(producers: u32, links: u32) -> Seen {
        Seen {
            producers: vec![Producer::default(); producers as usize],
            highest: vec![0; producers as usize * links as usize],
            violations: Violations::default(),
            told: Vec::new(),
        }
    }

    /// A message came on this link. True: for the first time.
    pub(super) fn came(&mut self, message: MessageId, link: u32) -> bool {
        let MessageId { producer, sequence } = message;
        let count = self.producers.len();
        let Some(known) = self.producers.get_mut(producer as usize) else {
            self.violations.corrupt += 1;
            self.tell(|| format!("message {message} is of a producer that does not exist"));
            return false;
        };
        if sequence < known.next || known.ahead.contains(&sequence) {
            self.violations.duplicated += 1;
            self.tell(|| format!("message {message} came twice"));
            return false;
        }
        if sequence == known.next {
            known.next += 1;
            while known.ahead.first() == Some(&known.next) {
                known.ahead.pop_first();
                known.next += 1;
            }
        } else {
            known.ahead.insert(sequence);
        }
        let highest = &mut self.highest[link as usize * count + producer as usize];
        if sequence < *highest {
            let before = *highest - 1;
            self.violations.reordered += 1;
            self.tell(|| format!("message {message} came after {producer}/{before}"));
        } else {
            *highest = sequence + 1;
        }
        true
    }

    /// The body of a message was not what its producer made.
    pub(super) fn corrupt(&mut self, message: MessageId) {
        self.violations.corrupt += 1;
        self.tell(|| format!("the body of message {message} is not what was sent"));
    }

    /// A message came from a queue that it was not sent to.
    pub(super) fn misrouted(&mut self, message: MessageId, queue: &str) {
        self.violations.misrouted += 1;
        self.tell(|| format!("message {message} came from {queue}, where it was not sent to"));
    }

    /// The end: so many messages were confirmed, and so many different ones came.
    pub(super) fn end(&mut self, expected: u64, received: u64) {
        let lost = expected.saturating_sub(received);
        self.violations.lost += lost;
        if lost > 0 {
            let hole = self.producers.iter().position(|producer| !producer.ahead.is_empty());
            let first = hole.map(|at| format!("; the first one is {at}/{}", self.producers[at].next));
            self.tell(|| format!("{lost} messages were confirmed and never came{}", first.unwrap_or_default()));
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.told.len() < TOLD {
            self.told.push(what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(came: &[(u32, u64, u32)]) -> Violations {
        let mut seen = Seen::new(2, 2);
        let mut received = 0;
        for &(producer, sequence, link) in came {
            received += u64::from(seen.came(MessageId::new(producer, sequence), link));
        }
        seen.end(3, received);
        seen.violations
    }

    #[test]
    fn a_clean_history_has_no_violation() {
        assert_eq!(run(&[(0, 0, 0), (1, 0, 1), (0, 1, 0)]), Violations::default());
        // Two links share a queue: each one's messages ascend, and nobody can compare across links.
        assert_eq!(run(&[(0, 1, 0), (0, 0, 1), (0, 2, 0)]), Violations::default());
    }

    #[test]
    fn each_kind_of_violation_is_seen_alone() {
        let none = Violations::default();
        assert_eq!(run(&[(0, 0, 0), (0, 2, 0)]), Violations { lost: 1, ..none });
        assert_eq!(run(&[(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 1, 0)]), Violations { duplicated: 1, ..none });
        assert_eq!(run(&[(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 0, 1)]), Violations { duplicated: 1, ..none });
        assert_eq!(run(&[(0, 0, 0), (0, 2, 0), (0, 1, 0)]), Violations { reordered: 1, ..none });
        assert_eq!(run(&[(0, 0, 0), (0, 1, 0), (0, 2, 0), (9, 0, 0)]), Violations { corrupt: 1, ..none });
    }

    #[test]
    fn only_the_first_violations_are_told() {
        let mut seen = Seen::new(1, 1);
        for _ in 0..100 {
            seen.came(MessageId::new(0, 0), 0);
        }
        assert_eq!((seen.violations.duplicated, seen.told.len()), (99, TOLD));
        assert_eq!(seen.violations.total(), 99);
    }
}
