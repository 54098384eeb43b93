//! What is known of producers that number their messages: the numbers that each has stored in a queue, bounded by time and count.

use super::sessions::Session;
use crate::watched::Watched;
use packhorse_model::{ProducerId, QueueId};
use packhorse_store::Remember;
use std::collections::BTreeSet;

/// A producer in a queue.
pub(crate) type Key = (QueueId, ProducerId);

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    /// Numbers as those of a session's commits, none below the floor.
    pub(crate) producers: Watched<Key, Session>,
    /// By last use.
    idle: BTreeSet<(u64, Key)>,
}

impl Producers {
    /// A producer is used, and perhaps a message of it is stored.
    pub(crate) fn take(&mut self, key: Key, floor: u64, stored: Option<u64>, at_ms: u64, remember: &Remember) {
        if self.producers.get(&key).is_none() {
            if stored.is_some() {
                // It may have been forgotten, and with it any of its numbers.
                return;
            }
            self.producers.insert(key, Session { floor, ..Session::default() });
        }
        let producer = self.producers.get_mut(&key).expect("it was just looked for");
        self.idle.remove(&(producer.used_ms, key));
        producer.used_ms = producer.used_ms.max(at_ms);
        producer.raise(floor);
        if let Some(number) = stored.filter(|number| *number >= producer.floor) {
            producer.commit(number, remember.gaps_max);
        }
        self.idle.insert((producer.used_ms, key));
        while self.producers.len() > remember.producers_max as usize && self.drop_oldest(|_| true) {}
    }

    /// A producer that a checkpoint tells.
    pub(crate) fn restore(&mut self, key: Key, producer: Session) {
        self.idle.insert((producer.used_ms, key));
        self.producers.insert(key, producer);
    }

    /// A queue is gone, and with it what is known of its producers.
    pub(crate) fn queue_gone(&mut self, queue: QueueId) {
        let gone = self.producers.keys_from((queue, ProducerId([0; 16]))).take_while(|(id, _)| *id == queue).copied();
        for key in gone.collect::<Vec<Key>>() {
            if let Some(producer) = self.producers.remove(&key) {
                self.idle.remove(&(producer.used_ms, key));
            }
        }
    }

    /// Drops those that were not used for too long at this broker time, ms.
    pub(crate) fn expire(&mut self, at_ms: u64, remember: &Remember) {
        while self.drop_oldest(|used| used.saturating_add(remember.producers_ms) <= at_ms) {}
    }

    fn drop_oldest(&mut self, when: impl Fn(u64) -> bool) -> bool {
        let Some(oldest) = self.idle.first().copied().filter(|(used, _)| when(*used)) else { return false };
        self.idle.remove(&oldest);
        self.producers.remove(&oldest.1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const KEY: Key = (QueueId(1), ProducerId([1; 16]));

    #[test]
    fn a_floor_cuts_runs_and_only_rises() {
        let remember = Remember { gaps_max: 1, ..Remember::default() };
        let mut producers = Producers::default();
        let mut now = |floor, stored, at_ms| {
            producers.take(KEY, floor, stored, at_ms, &remember);
            producers.producers.get(&KEY).cloned().unwrap()
        };
        let session = |floor, runs: &[(u64, u64)], used_ms| Session {
            floor,
            runs: runs.iter().copied().collect::<BTreeMap<u64, u64>>(),
            used_ms,
        };
        assert_eq!(now(3, None, 5), session(3, &[], 5));
        [3, 4, 5, 8, 2].into_iter().for_each(|n| drop(now(1, Some(n), 6)));
        assert_eq!(now(0, Some(4), 4), session(3, &[(3, 5), (8, 8)], 6));
        assert_eq!(now(4, None, 6), session(4, &[(4, 5), (8, 8)], 6));
        assert_eq!(now(4, Some(10), 7), session(6, &[(8, 8), (10, 10)], 7));
        assert_eq!(now(9, None, 7), session(9, &[(10, 10)], 7));
        assert_eq!(now(11, None, 7), session(11, &[], 7));
        assert_eq!(now(u64::MAX, Some(u64::MAX), 7), session(u64::MAX, &[(u64::MAX, u64::MAX)], 7));
        producers.queue_gone(QueueId(2));
        assert_eq!((producers.producers.len(), producers.idle.len()), (1, 1));
        producers.queue_gone(QueueId(1));
        assert_eq!((producers.producers.len(), producers.idle.len()), (0, 0));
    }
}
