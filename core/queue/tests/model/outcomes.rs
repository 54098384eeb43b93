//! What consumers say of their deliveries, and what comes back from those that left.

use super::*;

impl World {
    pub(crate) fn settle(&mut self, key: DeliveryKey, b: u32) {
        let held_by = self.entries.get(&key.sequence).and_then(|e| match e.state {
            Is::Acquired(consumer, now) if now == key => Some(consumer),
            _ => None,
        });
        let undeliverable_here = b & 64 != 0;
        let annotations = if b & 32 != 0 { Bytes::from(vec![b as u8; 3]) } else { Bytes::new() };
        let outcome = match b % 8 {
            0 | 1 => Outcome::Acknowledge,
            2 => Outcome::ReturnUnseen,
            3 => Outcome::ReturnSeen { undeliverable_here, annotations: annotations.clone() },
            4 => Outcome::ReturnLost { attempted: b & 16 != 0 },
            5 => Outcome::ReturnModified { undeliverable_here, annotations: annotations.clone() },
            6 => Outcome::Reject { detail: "why".into() },
            _ => Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::new() },
        };
        if let Some(consumer) = held_by {
            match &outcome {
                Outcome::Acknowledge => {
                    self.let_go(consumer, key.sequence);
                    let gone = self.entries.remove(&key.sequence).unwrap();
                    self.totals.acknowledged += 1;
                    if gone.stored {
                        self.expected.acknowledged.insert(key.sequence);
                    }
                }
                Outcome::ReturnUnseen => self.back(key, consumer, Back::Unseen, false, &Bytes::new()),
                Outcome::ReturnSeen { undeliverable_here, annotations } => {
                    self.back(key, consumer, Back::Seen, *undeliverable_here, annotations);
                }
                Outcome::ReturnLost { attempted } => {
                    let back = if *attempted { Back::Seen } else { Back::Lost };
                    self.back(key, consumer, back, false, &Bytes::new());
                }
                Outcome::ReturnModified { undeliverable_here, annotations } => {
                    let back = if annotations.is_empty() { Back::Unseen } else { Back::Modified };
                    self.back(key, consumer, back, *undeliverable_here, annotations);
                }
                Outcome::Reject { .. } if self.dead_letters => {
                    self.back(key, consumer, Back::Seen, true, &Bytes::new());
                }
                Outcome::Reject { .. } => {
                    self.let_go(consumer, key.sequence);
                    self.doom(key, Reason::Rejected);
                }
            }
        }
        let answer = self.handle(Input::Settle { key, outcome });
        assert_eq!(answer, Answer::Settled(held_by.is_some()), "an outcome has its effect once, a late one none");
    }

    pub(crate) fn let_go(&mut self, consumer: u64, sequence: u64) {
        self.probation.remove(&sequence);
        let held = match self.consumers.get_mut(&consumer) {
            Some(consumer) => &mut consumer.held,
            None => &mut self.leaving.iter_mut().find(|l| l.id == consumer).unwrap().held,
        };
        held.retain(|s| *s != sequence);
    }

    pub(crate) fn doom(&mut self, key: DeliveryKey, reason: Reason) {
        let entry = self.entries.get_mut(&key.sequence).unwrap();
        entry.state = Is::Doomed { key, scheduled: false, retry: None };
        self.expected.offers.push((key.sequence, reason, entry.deliveries + 1));
    }

    pub(crate) fn back(
        &mut self,
        key: DeliveryKey,
        consumer: u64,
        back: Back,
        undeliverable_here: bool,
        annotations: &Bytes,
    ) {
        self.let_go(consumer, key.sequence);
        let ticket = self.ticket;
        let entry = self.entries.get_mut(&key.sequence).unwrap();
        if !annotations.is_empty() {
            entry.overlay = Some(annotations.to_vec());
        }
        if back == Back::Seen && entry.attempts + 1 >= LIMIT && !self.dead_letters {
            self.doom(key, Reason::DeliveryLimit);
            return;
        }
        if undeliverable_here {
            entry.refused_by.insert(consumer);
            match self.consumers.get_mut(&consumer) {
                Some(consumer) => consumer.choosy = true,
                None => self.leaving.iter_mut().find(|l| l.id == consumer).unwrap().choosy = true,
            }
        }
        entry.state = Is::Ready;
        entry.deliveries += u32::from(matches!(back, Back::Seen | Back::Lost));
        entry.attempts += u32::from(back == Back::Seen);
        // A suspect's return is written down, however it came back, and it is none any more.
        let suspect = entry.suspect.take();
        if (back != Back::Unseen || suspect.is_some()) && entry.persistent {
            entry.held = Some(ticket);
            let redelivered = (key.sequence, entry.deliveries, entry.attempts, entry.overlay.is_some());
            self.expected.redelivered.push(redelivered);
        }
    }

    pub(crate) fn relocation_answer(&mut self, a: u32, b: u32) {
        let doomed = self.entries.values().filter_map(|e| match e.state {
            Is::Doomed { key, retry: None, .. } => Some(key),
            _ => None,
        });
        let Some(key) = nth(doomed.collect(), a) else { return };
        match b % 4 {
            0 if self.entries[&key.sequence].moved_by.is_some() => {
                self.not_moved(key.sequence);
                self.handle(Input::RelocateFailed { key });
            }
            0 => {
                self.jammed = true;
                let retry = Some(self.now_us + RETRY_US);
                self.entries.get_mut(&key.sequence).unwrap().state = Is::Doomed { key, scheduled: true, retry };
                self.handle(Input::RelocateFailed { key });
            }
            1 => {
                let stale = DeliveryKey { epoch: key.epoch.wrapping_sub(1), ..key };
                let to = EntryKey { queue: QueueId(2), sequence: 1 };
                assert_eq!(self.handle(Input::Relocate { key: stale, to, stored: false }), Answer::Settled(false));
            }
            _ => {
                let to = EntryKey { queue: QueueId(2), sequence: u64::from(a) };
                let gone = self.entries.remove(&key.sequence).unwrap();
                match gone.moved_by {
                    Some(token) => self.has_moved(token),
                    None => {
                        self.totals.dead_lettered += 1;
                        self.jammed = false;
                    }
                }
                // What is not persistent may have been spilled since the place was reserved.
                let stored = gone.stored && (gone.persistent || a.is_multiple_of(2));
                if stored {
                    let (ttl, deliveries) = if gone.moved_by.is_some() { (5, gone.deliveries) } else { (0, 0) };
                    self.expected.relocated.push((key.sequence, to.sequence, ttl, deliveries));
                } else if gone.stored {
                    self.expected.acknowledged.insert(key.sequence);
                }
                assert_eq!(self.handle(Input::Relocate { key, to, stored }), Answer::Settled(true));
                assert_eq!(self.handle(Input::Relocate { key, to, stored }), Answer::Settled(false), "once only");
            }
        }
    }

    /// Takes back what gone consumers held, oldest first, each at the price of one.
    pub(crate) fn take_back(&mut self, work: &mut u32) -> bool {
        while let Some(front) = self.leaving.front() {
            let (id, lost, oldest_is_back, choosy) = (front.id, front.lost, front.oldest_is_back, front.choosy);
            if *work == 0 {
                return false;
            }
            if let Some(&sequence) = front.held.front() {
                *work -= 1;
                let Is::Acquired(_, key) = self.entries[&sequence].state else { panic!("what is held is acquired") };
                let back = match (lost, oldest_is_back) {
                    (false, _) => Back::Unseen,
                    (true, false) => Back::Seen,
                    (true, true) => Back::Lost,
                };
                self.back(key, id, back, false, &Bytes::new());
                self.leaving.front_mut().unwrap().oldest_is_back = true;
            } else if choosy && let Some(entry) = self.entries.values_mut().find(|e| e.refused_by.contains(&id)) {
                *work -= 1;
                entry.refused_by.remove(&id);
            } else {
                self.leaving.pop_front();
            }
        }
        true
    }

    /// Suspects that were blamed too often leave at the first dispatch.
    pub(crate) fn quarantine(&mut self) {
        let mut epoch = 0;
        for (sequence, entry) in &mut self.entries {
            if entry.suspect.is_some_and(|(crashes, _)| crashes >= CRASHES) && !self.dead_letters && !entry.quarantined
            {
                let key = DeliveryKey { sequence: *sequence, epoch, level: entry.level };
                (entry.state, entry.quarantined) = (Is::Doomed { key, scheduled: true, retry: None }, true);
                self.expected.offers.push((*sequence, Reason::BrokerCrash, entry.deliveries));
                epoch += 1;
            }
        }
    }
}
