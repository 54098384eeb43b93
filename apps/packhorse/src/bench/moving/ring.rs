//! What goes round in a pair of queues: a fixed number of messages, each moved from the one to the other and back again.
//!
//! Each queue has one worker that takes from it, so its messages always come in the order of their numbers, the first behind the last. A
//! message that is lost, doubled or out of its place shows at once; how it ended up is counted when nothing moves any more.
//! Must not know how they are moved.

use crate::bench::seen::Violations;
use packhorse_history::MessageId;

/// How many violations are told in words.
const TOLD: usize = 10;

/// All pairs. Queue 2n and queue 2n + 1 are pair n, whose messages are those of producer n.
pub(super) struct Ring {
    /// Messages of a pair.
    count: u64,
    /// What comes next from each queue, where that is known.
    next: Vec<Option<u64>>,
    /// How often each message was found at the end.
    left: Vec<u8>,
    pub(super) violations: Violations,
    /// The first of them in words.
    pub(super) told: Vec<String>,
}

impl Ring {
    /// Nothing came yet.
    pub(super) fn new(queues: usize, count: u64) -> Ring {
        let next = (0..queues).map(|queue| Some(Ring::filled(queue, count).start)).collect();
        let left = vec![0; queues / 2 * count as usize];
        Ring { count, next, left, violations: Violations::default(), told: Vec::new() }
    }

    /// Numbers of the messages that a queue has in the beginning: half of its pair's.
    pub(super) fn filled(queue: usize, count: u64) -> std::ops::Range<u64> {
        if queue.is_multiple_of(2) { 0..count / 2 } else { count / 2..count }
    }

    /// A message came from a queue.
    pub(super) fn came(&mut self, queue: usize, message: MessageId) {
        let MessageId { producer, sequence } = message;
        if producer as usize != queue / 2 {
            self.violations.misrouted += 1;
            self.tell(|| format!("message {message} came from queue {queue}, where it was not sent to"));
            return;
        }
        if sequence >= self.count {
            self.violations.corrupt += 1;
            self.tell(|| format!("message {message} is one that does not exist"));
            return;
        }
        let expected = self.next[queue].replace((sequence + 1) % self.count);
        if let Some(expected) = expected.filter(|expected| *expected != sequence) {
            self.violations.reordered += 1;
            self.tell(|| format!("from queue {queue} came message {message} in the place of {producer}/{expected}"));
        }
    }

    /// The body of a message was not what it should be.
    pub(super) fn corrupt(&mut self, message: MessageId) {
        self.violations.corrupt += 1;
        self.tell(|| format!("the body of message {message} is not what was sent"));
    }

    /// Nothing moves any more: from now on what is left is counted, wherever it is.
    pub(super) fn stop(&mut self) {
        self.next.fill(None);
    }

    /// A message was left in a queue.
    pub(super) fn left(&mut self, queue: usize, message: MessageId) {
        self.came(queue, message);
        let place = u64::from(message.producer) * self.count + message.sequence;
        if let Some(times) = self.left.get_mut(place as usize).filter(|_| message.sequence < self.count) {
            *times = times.saturating_add(1);
        }
    }

    /// All that was left has been counted.
    pub(super) fn end(&mut self) {
        for (place, times) in std::mem::take(&mut self.left).into_iter().enumerate() {
            let message = MessageId::new((place as u64 / self.count) as u32, place as u64 % self.count);
            if times == 0 {
                self.violations.lost += 1;
                self.tell(|| format!("message {message} is in neither of its queues"));
            } else if times > 1 {
                self.violations.duplicated += u64::from(times) - 1;
                self.tell(|| format!("message {message} is there {times} times"));
            }
        }
    }

    /// A violation in words, if there are not too many.
    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.told.len() < TOLD {
            self.told.push(what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of the first pair, of which there are four, come from the first queue; then these are left in both.
    fn run(came: &[u64], left: [&[u64]; 2]) -> Violations {
        let mut ring = Ring::new(2, 4);
        for &sequence in came {
            ring.came(0, MessageId::new(0, sequence));
        }
        ring.stop();
        for (queue, left) in left.into_iter().enumerate() {
            for &sequence in left {
                ring.left(queue, MessageId::new(0, sequence));
            }
        }
        ring.end();
        ring.violations
    }

    #[test]
    fn a_ring_that_turned_and_kept_all_has_no_violation() {
        assert_eq!(run(&[], [&[0, 1], &[2, 3]]), Violations::default());
        assert_eq!(run(&[0, 1, 2, 3, 0, 1], [&[2], &[3, 0, 1]]), Violations::default());
        assert_eq!(run(&[0, 1], [&[], &[2, 3, 0, 1]]), Violations::default());
    }

    #[test]
    fn each_kind_of_violation_is_seen_alone() {
        let none = Violations::default();
        assert_eq!(run(&[0, 2], [&[3], &[0, 1, 2]]), Violations { reordered: 1, ..none });
        assert_eq!(run(&[0, 0], [&[1, 2], &[3, 0]]), Violations { reordered: 1, ..none });
        assert_eq!(run(&[], [&[0, 1], &[2]]), Violations { lost: 1, ..none });
        assert_eq!(run(&[], [&[0, 1, 2], &[2, 3]]), Violations { duplicated: 1, ..none });
        assert_eq!(run(&[], [&[1, 0], &[2, 3]]), Violations { reordered: 1, ..none });
        assert_eq!(run(&[0, 1, 9], [&[2, 3], &[0, 1]]), Violations { corrupt: 1, ..none });
    }

    #[test]
    fn what_comes_from_a_queue_of_another_pair_is_misrouted_and_yet_not_lost() {
        let mut ring = Ring::new(4, 2);
        ring.came(0, MessageId::new(0, 0));
        ring.came(2, MessageId::new(0, 1));
        assert_eq!(ring.violations, Violations { misrouted: 1, ..Violations::default() });
        assert!(ring.told[0].contains("0/1 came from queue 2"), "{:?}", ring.told);
    }
}
