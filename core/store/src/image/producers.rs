//! What a store knows of producers that number their messages, under the bounds of [`Remember`].
//!
//! Must not know: messages, whether the queues are there.

use crate::{Recovered, RecoveredProducer, Remember};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use packhorse_model::{ProducerId, QueueId};

type Key = (QueueId, ProducerId);

#[derive(Clone, Debug)]
struct Producer {
    floor: u64,
    /// The lowest ones may be missing: `floor` says from where on all are here.
    stored: BTreeSet<u64>,
    used_ms: u64,
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Producers {
    bounds: Remember,
    known: BTreeMap<Key, Producer>,
    by_use: BTreeSet<(u64, Key)>,
}

impl Producers {
    pub(super) fn new(bounds: Remember) -> Producers {
        Producers { bounds, ..Producers::default() }
    }

    /// See [`crate::Op::Producer`].
    pub(super) fn take(&mut self, key: Key, floor: u64, stored: Option<u64>, at_ms: u64) {
        if stored.is_some() && !self.known.contains_key(&key) {
            // Other numbers, higher ones too, may have been stored and forgotten.
            return;
        }
        let new = Producer { floor, stored: BTreeSet::new(), used_ms: at_ms };
        let producer = self.known.entry(key).or_insert(new);
        self.by_use.remove(&(producer.used_ms, key));
        producer.used_ms = producer.used_ms.max(at_ms);
        self.by_use.insert((producer.used_ms, key));
        producer.floor = producer.floor.max(floor);
        producer.stored.extend(stored);
        producer.tidy();
        while producer.runs().len() > self.bounds.gaps_max as usize + 1 {
            producer.floor = producer.runs()[0].1.saturating_add(1);
            producer.tidy();
        }
        while self.known.len() > self.bounds.producers_max as usize {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.known.remove(&oldest);
        }
    }

    pub(super) fn queue_gone(&mut self, queue: QueueId) {
        self.known.retain(|(id, _), _| *id != queue);
        self.by_use.retain(|(_, (id, _))| *id != queue);
    }

    /// It is this time: what is too old is forgotten.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some(&(used_ms, key)) = self.by_use.first()
            && used_ms.saturating_add(self.bounds.producers_ms) <= now_ms
        {
            self.by_use.pop_first();
            self.known.remove(&key);
        }
    }

    /// Those of queues that `owned` names.
    pub(super) fn recover(&self, owned: impl Fn(QueueId) -> bool) -> impl Iterator<Item = Recovered> {
        self.known.iter().filter(move |((queue, _), _)| owned(*queue)).map(|(&(queue, producer), p)| {
            let (floor, runs, used_ms) = (p.floor, p.runs(), p.used_ms);
            Recovered::Producer(Box::new(RecoveredProducer { queue, producer, floor, runs, used_ms }))
        })
    }
}

impl Producer {
    fn tidy(&mut self) {
        self.stored = self.stored.split_off(&self.floor);
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &number in &self.stored {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        runs
    }
}
