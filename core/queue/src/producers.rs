//! Producers that number their messages: which numbers this queue has taken, so that a message that is sent twice is stored once
//! (`docs/decisions/0013-numbered-producers.md`).
//!
//! Must not know: links, bodies. What is not known any more is never taken for new: its producer is told that it is lost.

use crate::ids::IdBounds;
use crate::input::Turn;
use crate::queue::Queue;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use packhorse_model::{Identity, IdentityKey, Numbered, ProducerId, TxnId};
use packhorse_store::{Op, RecoveredProducer, Ticket};

/// A producer that was not used for so long is forgotten, ms.
const KEPT_MS: u64 = 600_000;
/// So many of a queue are known; beyond that the one that was not used for longest is forgotten.
const KEPT_MAX: usize = 10_000;
/// So many runs of a producer's numbers; beyond that the lowest is forgotten.
const RUNS_MAX: usize = 1_001;

/// What a queue knows of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// No message of this number came.
    New,
    /// The queue has taken one, or the transaction that asks has.
    Stored,
    /// Perhaps it has.
    Lost,
    /// A message of this number is in a transaction that is not decided.
    Undecided(TxnId),
}

#[derive(Debug)]
struct Producer {
    /// Of numbers below nothing is known.
    floor: u64,
    /// Numbers that were taken: closed runs, ascending and apart, none below the floor.
    runs: Vec<(u64, u64)>,
    used_ms: u64,
    /// The ticket of the last message that was taken.
    taken: Ticket,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: BTreeMap<ProducerId, Producer>,
    by_use: BTreeSet<(u64, ProducerId)>,
}

impl Producers {
    /// A producer comes, with its lowest number that is not confirmed, and the next one that was never sent. Its floor, and whether it
    /// was not known.
    fn open(&mut self, id: ProducerId, lowest: u64, next: u64, now_ms: u64) -> (u64, bool) {
        self.expire(now_ms);
        let known = self.known.contains_key(&id);
        let producer = self.used(id, next, now_ms);
        producer.raise(lowest);
        let floor = producer.floor;
        self.bound();
        (floor, !known)
    }

    fn look(&mut self, numbered: &Numbered, now_ms: u64) -> Known {
        self.expire(now_ms);
        match self.known.get(&numbered.producer) {
            None if numbered.fresh => Known::New,
            None => Known::Lost,
            Some(producer) if numbered.number < producer.floor => Known::Lost,
            Some(producer) if producer.has(numbered.number) => Known::Stored,
            Some(_) => Known::New,
        }
    }

    /// A message of this number was taken. The producer's floor, if it is known: else any of its numbers may have been forgotten.
    fn take(&mut self, numbered: &Numbered, now_ms: u64) -> Option<u64> {
        if !self.known.contains_key(&numbered.producer) {
            return None;
        }
        let producer = self.used(numbered.producer, 0, now_ms);
        producer.raise(numbered.lowest);
        producer.add(numbered.number);
        Some(producer.floor)
    }

    /// The producer's floor.
    fn floor(&self, numbered: &Numbered) -> u64 {
        self.known.get(&numbered.producer).map_or(numbered.lowest, |known| known.floor.max(numbered.lowest))
    }

    /// The ticket after which all messages of a producer that were taken are safe.
    fn taken(&self, producer: ProducerId) -> Ticket {
        self.known.get(&producer).map_or(Ticket(0), |known| known.taken)
    }

    /// The producer, used now; if it is not known, with this floor.
    fn used(&mut self, id: ProducerId, floor: u64, now_ms: u64) -> &mut Producer {
        let producer =
            self.known.entry(id).or_insert(Producer { floor, runs: Vec::new(), used_ms: now_ms, taken: Ticket(0) });
        if producer.used_ms != now_ms {
            self.by_use.remove(&(producer.used_ms, id));
            producer.used_ms = producer.used_ms.max(now_ms);
        }
        self.by_use.insert((producer.used_ms, id));
        producer
    }

    fn recovered(&mut self, told: RecoveredProducer) {
        let RecoveredProducer { producer, floor, runs, used_ms, .. } = told;
        self.by_use.insert((used_ms, producer));
        self.known.insert(producer, Producer { floor, runs, used_ms, taken: Ticket(0) });
        self.bound();
    }

    fn bound(&mut self) {
        while self.known.len() > KEPT_MAX {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.known.remove(&oldest);
        }
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some(&(used_ms, id)) = self.by_use.first()
            && used_ms.saturating_add(KEPT_MS) <= now_ms
        {
            self.by_use.pop_first();
            self.known.remove(&id);
        }
    }
}

impl Producer {
    /// The first run that ends at this number or behind it.
    fn at(&self, number: u64) -> usize {
        self.runs.partition_point(|(_, last)| *last < number)
    }

    fn has(&self, number: u64) -> bool {
        self.runs.get(self.at(number)).is_some_and(|(first, _)| *first <= number)
    }

    fn raise(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        self.runs.drain(..self.at(floor));
        if let Some((first, _)) = self.runs.first_mut() {
            *first = floor.max(*first);
        }
    }

    fn add(&mut self, number: u64) {
        if number < self.floor || self.has(number) {
            return;
        }
        let at = self.at(number);
        let joins_before = at > 0 && self.runs[at - 1].1 + 1 == number;
        let joins_after = self.runs.get(at).is_some_and(|(first, _)| number + 1 == *first);
        match (joins_before, joins_after) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].1 = number,
            (false, true) => self.runs[at].0 = number,
            (false, false) => self.runs.insert(at, (number, number)),
        }
        if self.runs.len() > RUNS_MAX {
            let (_, last) = self.runs.remove(0);
            self.floor = self.floor.max(last.saturating_add(1));
        }
    }
}

impl Queue {
    #[cold]
    pub(crate) fn open_producer(&mut self, producer: ProducerId, lowest: u64, next: u64, turn: &mut Turn<'_>) -> u64 {
        let at_ms = turn.broker_ms;
        let (floor, new) = self.producers.open(producer, lowest, next, at_ms);
        if new {
            turn.batch.push(Op::Producer { queue: self.id, producer, floor, stored: None, at_ms });
        }
        floor
    }

    /// So many duplicate ids are known from now on.
    pub fn remember_ids(&mut self, bounds: IdBounds) {
        self.ids.set_bounds(bounds);
    }

    /// How many duplicate ids are known at this broker time, ms.
    pub fn ids_known(&mut self, now_ms: u64) -> usize {
        self.ids.known(now_ms)
    }

    /// The older half of the duplicate ids is not known any more.
    pub fn forget_half_of_ids(&mut self) {
        self.ids.forget_half();
    }

    #[cold]
    pub(crate) fn look_for(&mut self, identity: &Identity, txn: Option<TxnId>, turn: &Turn<'_>) -> Known {
        match self.claims.get(&identity.key()) {
            // What becomes of the transaction becomes of both.
            Some(claimed) if txn == Some(*claimed) => return Known::Stored,
            Some(claimed) => return Known::Undecided(*claimed),
            None => {}
        }
        let known = match identity {
            Identity::Number(numbered) => self.producers.look(numbered, turn.broker_ms),
            Identity::Id(id) if self.ids.is_known(*id, turn.broker_ms) => Known::Stored,
            Identity::Id(_) => Known::New,
        };
        // One in a transaction counts with it.
        if known == Known::Stored && txn.is_none() {
            self.counts.duplicates += 1;
        }
        known
    }

    /// What was enqueued last has this identity, which is new.
    #[cold]
    pub(crate) fn identify(&mut self, identity: &Identity, persistent: bool, turn: &mut Turn<'_>) {
        let at_ms = turn.broker_ms;
        match identity {
            Identity::Number(numbered) => {
                self.know(numbered, turn);
                let Numbered { producer, number, .. } = *numbered;
                let Some(floor) = self.producers.take(numbered, at_ms).filter(|_| persistent) else { return };
                if let Some(known) = self.producers.known.get_mut(&producer) {
                    known.taken = turn.ticket;
                }
                turn.batch.push(Op::Producer { queue: self.id, producer, floor, stored: Some(number), at_ms });
            }
            Identity::Id(id) => {
                self.ids.take(*id, at_ms);
                if persistent && self.ids.bounds.max > 0 {
                    self.ids.taken = turn.ticket;
                    turn.batch.push(Op::DuplicateId { queue: self.id, id: *id, at_ms });
                }
            }
        }
    }

    /// A message in a transaction has this identity, which is new. As it is to be written.
    pub(crate) fn claim(&mut self, mut identity: Identity, txn: TxnId, turn: &mut Turn<'_>) -> Identity {
        if let Identity::Number(numbered) = &mut identity {
            self.know(numbered, turn);
            numbered.lowest = self.producers.floor(numbered);
        }
        self.claims.insert(identity.key(), txn);
        identity
    }

    /// The transaction that has this one is committed, or rolled back.
    pub(crate) fn decide_identity(&mut self, identity: &Identity, commit: bool, at_ms: u64) {
        self.claims.remove(&identity.key());
        match identity {
            Identity::Number(numbered) if commit => {
                self.producers.expire(at_ms);
                self.producers.take(numbered, at_ms);
            }
            Identity::Id(id) if commit => self.ids.take(*id, at_ms),
            _ => {}
        }
    }

    /// The ticket after which the message that has this identity is safe.
    pub(crate) fn safe_after(&self, identity: &Identity) -> Ticket {
        match identity {
            Identity::Number(numbered) => self.producers.taken(numbered.producer),
            Identity::Id(_) => self.ids.taken,
        }
    }

    /// Whether these are claimed for these transactions, and no others for any.
    pub(crate) fn are_claimed<'a>(&self, all: impl Iterator<Item = (&'a Identity, TxnId)>) -> bool {
        all.map(|(identity, txn)| (identity.key(), txn)).collect::<BTreeMap<IdentityKey, TxnId>>() == self.claims
    }

    /// A new number: if its producer was forgotten meanwhile, this is the highest that it has sent.
    fn know(&mut self, numbered: &Numbered, turn: &mut Turn<'_>) {
        if !self.producers.known.contains_key(&numbered.producer) {
            self.open_producer(numbered.producer, numbered.lowest, numbered.number, turn);
        }
    }

    #[cold]
    pub(crate) fn recovered_producer(&mut self, told: RecoveredProducer) {
        self.producers.recovered(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u16) -> ProducerId {
        let mut name = [0; 16];
        name[..2].copy_from_slice(&n.to_be_bytes());
        ProducerId(name)
    }

    fn numbered(number: u64, lowest: u64, fresh: bool) -> Numbered {
        Numbered { producer: id(1), number, lowest, fresh }
    }

    #[test]
    fn what_is_known_is_what_was_taken_from_the_floor_on() {
        // A generator for the test's choices.
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut seen = [0; 3];
        for _ in 0..200 {
            let mut producers = Producers::default();
            let mut floor = below(10);
            assert_eq!(producers.open(id(1), floor.min(below(10)), floor, 0), (floor, true));
            let mut taken = BTreeSet::new();
            for _ in 0..100 {
                let (number, lowest) = (below(60), below(30));
                let message = numbered(number, lowest.min(number), below(2) == 0);
                let expected = match number {
                    _ if number < floor => Known::Lost,
                    _ if taken.contains(&number) => Known::Stored,
                    _ => Known::New,
                };
                assert_eq!(producers.look(&message, 0), expected);
                seen[[Known::New, Known::Stored, Known::Lost].iter().position(|k| *k == expected).unwrap()] += 1;
                if expected == Known::New {
                    floor = floor.max(message.lowest);
                    taken.insert(number);
                    assert_eq!(producers.take(&message, 0), Some(floor));
                }
                let known = &producers.known[&id(1)];
                assert!(known.runs.is_sorted_by(|a, b| a.1 + 1 < b.0) && known.runs.iter().all(|r| r.0 <= r.1));
                assert!(known.runs.first().is_none_or(|run| run.0 >= floor));
            }
        }
        assert!(seen.iter().all(|n| *n > 1_000), "{seen:?}");
    }

    #[test]
    fn one_that_is_forgotten_is_never_taken_for_new() {
        let mut producers = Producers::default();
        assert_eq!(producers.look(&numbered(0, 0, false), 0), Known::Lost, "it did not come");
        assert_eq!(producers.open(id(1), 0, 0, 0), (0, true));
        assert_eq!(producers.look(&numbered(0, 0, false), KEPT_MS - 1), Known::New, "it was known all the time");
        producers.take(&numbered(0, 0, false), 5);
        assert_eq!(producers.open(id(1), 0, 1, KEPT_MS + 4), (0, false));
        assert_eq!(producers.look(&numbered(0, 0, false), KEPT_MS + 5), Known::Stored, "it was used by coming again");
        let later = 2 * KEPT_MS + 4;
        assert_eq!(producers.look(&numbered(0, 0, false), later), Known::Lost);
        // What was never sent can be taken all the same; of what is below nothing is known then.
        assert_eq!(producers.look(&numbered(7, 3, true), later), Known::New);
        assert_eq!(producers.take(&numbered(7, 3, true), later), None, "more than this one may be forgotten");
        assert_eq!(producers.open(id(1), 3, 7, later), (7, true), "until it is known that this is the highest");
        assert_eq!(producers.take(&numbered(7, 3, true), later), Some(7));
        assert_eq!(producers.look(&numbered(6, 3, false), later), Known::Lost);
        assert_eq!(producers.look(&numbered(7, 3, false), later), Known::Stored);
        // Beyond the count the one that was used first goes.
        for n in 2..=KEPT_MAX as u16 + 1 {
            producers.open(id(n), 0, 0, later + 1);
        }
        assert_eq!(producers.known.len(), KEPT_MAX);
        assert_eq!(producers.look(&numbered(7, 3, false), later + 1), Known::Lost);
        assert_eq!(producers.open(id(1), 3, 8, later + 2), (8, true), "it begins with what it never sent");
    }

    #[test]
    fn a_producer_has_so_many_gaps() {
        let mut producers = Producers::default();
        producers.open(id(1), 0, 0, 0);
        for n in 0..RUNS_MAX as u64 {
            producers.take(&numbered(2 * n, 0, true), 0);
        }
        assert_eq!(producers.look(&numbered(0, 0, false), 0), Known::Stored);
        let next = 2 * RUNS_MAX as u64;
        assert_eq!(producers.take(&numbered(next, 0, true), 0), Some(1));
        assert_eq!(producers.look(&numbered(0, 0, false), 0), Known::Lost);
        assert_eq!(producers.look(&numbered(1, 0, false), 0), Known::New);
    }
}
