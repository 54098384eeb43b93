//! A dispatch and the turn's records, judged.

use super::*;

impl World {
    pub(crate) fn candidate(&self, consumer: u64) -> Option<u64> {
        let ready = self.entries.iter().filter(|(_, e)| e.state == Is::Ready && !e.refused_by.contains(&consumer));
        ready.max_by_key(|(sequence, e)| (e.level, u64::MAX - **sequence)).map(|(sequence, _)| *sequence)
    }

    pub(crate) fn credit(&self) -> u64 {
        self.consumers.values().map(|c| c.limit.saturating_sub(c.given)).sum()
    }

    pub(crate) fn ready(&self) -> u64 {
        self.entries.values().filter(|e| e.state == Is::Ready).count() as u64
    }

    pub(crate) fn dispatch(&mut self, budget: u32) {
        self.over = self.until_us <= self.now_us;
        self.quarantine();
        for (sequence, entry) in &mut self.entries {
            if let Is::Doomed { key, scheduled, retry: Some(at) } = entry.state
                && at <= self.now_us
            {
                entry.state = Is::Doomed { key, scheduled, retry: None };
                // The reason is checked where it was first offered.
                let deliveries = entry.deliveries + u32::from(!entry.quarantined);
                self.expected.offers.push((*sequence, Reason::Rejected, deliveries));
            }
        }
        let mut work = budget;
        let returned = self.take_back(&mut work);
        let ops = self.batch.ops().len();
        let more = self.with(|queue, turn, out| queue.dispatch(turn, budget, out));
        self.pass(ops);
        if !returned {
            assert!(more, "what is not back yet is more work");
            assert!(!self.out.iter().any(|e| matches!(e, Effect::Deliver(_))), "nothing goes before all is back");
        }
        let returned = returned && self.end_parts(&mut work);
        if !returned {
            assert!(more, "what is not done yet is more work");
            assert!(!self.out.iter().any(|e| matches!(e, Effect::Deliver(_))), "nobody sees half of a transaction");
        }
        let work = self.purge(returned, work);
        let effects = std::mem::take(&mut self.out);
        let diverted = self.diverted(&effects, work, returned);
        if returned {
            self.browsed(&effects, work - diverted);
        }
        let plenty = self.ready() > self.credit();
        let nobody_refused = self.entries.values().all(|e| e.refused_by.is_empty());
        let mut given: BTreeMap<u64, u64> = self.consumers.keys().map(|id| (*id, 0)).collect();
        let mut offers = Vec::new();
        let mut damaged = Vec::new();
        let mut overlay: Option<Box<Overlay>> = None;
        for effect in effects {
            match effect {
                Effect::Ahead(_) | Effect::Gathered(_) | Effect::Discard(_) => {
                    panic!("nobody asked for {effect:?}")
                }
                Effect::Deliver(deliver) if self.browsers.contains_key(&deliver.consumer.0) => {}
                Effect::Deliver(deliver) => {
                    let consumer = deliver.consumer.0;
                    *given.get_mut(&consumer).expect("the consumer is there") += 1;
                    let past = self.deliver(consumer, deliver.key(), deliver.deliveries, deliver.has_overlay());
                    assert_eq!(overlay.take().map(|o| o.annotations.to_vec()), past);
                }
                Effect::Overlay(with) => overlay = Some(with),
                Effect::Load(load) => {
                    assert!(self.loads.iter().all(|l| l.level != load.level), "one load at a time for a level");
                    let entry = &self.entries[&load.from];
                    assert_eq!((load.queue, load.level, entry.state), (ID, entry.level, Is::Ready));
                    assert!(!self.resident(entry), "only what is not in memory is loaded");
                    self.loads.push(load);
                }
                Effect::Relocate(offer) if self.is_fresh(&offer) => {}
                Effect::Relocate(offer) => {
                    let letter = offer.overlay.dead_letter.as_ref().unwrap();
                    assert_eq!((letter.address.as_str(), letter.sequence), ("q", offer.key.sequence));
                    let stored = self.entries.get(&offer.key.sequence).is_none_or(|e| e.stored);
                    assert_eq!((offer.head.ttl_ms, offer.stored), (0, stored));
                    let annotations = self.entries.get(&offer.key.sequence).and_then(|e| e.overlay.clone());
                    if annotations.is_some() {
                        assert_eq!(Some(offer.overlay.annotations.to_vec()), annotations);
                    }
                    offers.push((offer.key.sequence, letter.reason, letter.deliveries));
                }
                Effect::Purged { token, count } => {
                    let (expected, _, purged) = self.purges.pop_front().expect("a purge was asked for");
                    assert_eq!((token, count), (expected, purged));
                }
                Effect::Moved { token, count } => self.move_done(token, count),
                Effect::Damaged { level, sequence } => {
                    // A purge may have taken it in the same turn.
                    assert!(self.entries.get(&sequence).is_none_or(|e| e.level == level));
                    damaged.push(sequence);
                }
            }
        }
        assert!(given.values().sum::<u64>() <= u64::from(budget), "work is bounded");
        // An offer that is made again has the reason of the first one, whatever that was.
        let numbers = |offers: &[(u64, Reason, u32)]| {
            let mut numbers: Vec<_> = offers.iter().map(|(s, _, d)| (*s, *d)).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(numbers(&offers), numbers(&self.expected.offers));
        assert_eq!(damaged, self.expected.damaged);
        if nobody_refused {
            let shares = given.iter().filter(|(id, _)| {
                let consumer = &self.consumers[*id];
                consumer.limit > consumer.given
            });
            let shares: Vec<u64> = shares.map(|(_, n)| *n).collect();
            let spread = shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0);
            assert!(spread <= if plenty { 32 } else { 1 }, "{given:?} is not fair");
        }
        if !more {
            self.nothing_is_left_undone();
        }
    }

    /// Those on probation have passed, as the batch tells it from this operation on.
    pub(crate) fn pass(&mut self, from: usize) {
        let mut passed: BTreeMap<u64, u64> = BTreeMap::new();
        for op in &self.batch.ops()[from..] {
            if let Op::ExactMark { queue, first, last, at_ms } = op
                && at_ms & PASSED != 0
            {
                assert_eq!(*queue, ID);
                let times = (*first..=*last).map(|s| self.probation.get(&s).copied().expect("it was on probation"));
                assert_eq!(times.max(), Some(at_ms & !PASSED));
                passed.extend((*first..=*last).map(|s| (s, 0)));
            }
        }
        let others = self.out.iter().any(|e| {
            matches!(e, Effect::Deliver(d)
            if !self.group.contains(&d.sequence) && !self.browsers.contains_key(&d.consumer.0))
        });
        let marks =
            self.batch.ops()[from..].iter().any(|op| matches!(op, Op::ExactMark { at_ms, .. } if at_ms & PASSED == 0));
        if passed.is_empty() && !others && !marks {
            return;
        }
        if !self.probation.is_empty() {
            assert!(self.over, "nobody passes before the time");
        }
        let may = |s: &u64| self.entries[s].suspect.is_some_and(|(_, passed)| passed < PASSES);
        let all: BTreeSet<u64> = self.probation.keys().copied().filter(may).collect();
        assert_eq!(passed.into_keys().collect::<BTreeSet<_>>(), all, "that they have passed is written down");
        self.probation.clear();
    }

    /// Applies what a purge removed, as the batch tells it.
    pub(crate) fn purge(&mut self, returned: bool, mut work: u32) -> u32 {
        let mut told: BTreeSet<u64> = BTreeSet::new();
        for op in self.batch.ops() {
            if let Op::Acknowledge { first, last, .. } = op {
                told.extend(*first..=*last);
            }
        }
        for effect in &self.out {
            if let Effect::Deliver(deliver) = effect
                && let Some(consumer) = self.consumers.get(&deliver.consumer.0)
                && consumer.pre_settled
            {
                let stored = self.entries[&deliver.sequence].stored;
                assert_eq!(
                    told.remove(&deliver.sequence),
                    stored,
                    "a pre-settled delivery is acknowledged in its turn"
                );
            }
        }
        for sequence in &self.expected.acknowledged {
            assert!(told.remove(sequence), "an acknowledgement is told to the store");
        }
        assert!(returned || told.is_empty(), "a purge waits for what comes back, and for transactions");
        let mut told = told.into_iter().peekable();
        let mut purged: Vec<u64> = Vec::new();
        let done = self.out.iter().filter(|e| matches!(e, Effect::Purged { .. })).count();
        purged.extend(told.by_ref());
        let there = purged.iter().copied().filter(|s| self.entries.contains_key(s));
        let unmarked: BTreeSet<u64> = there.filter(|s| !self.may_leave(*s)).collect();
        for (index, (_, below, count)) in self.purges.iter_mut().enumerate() {
            let mine: Vec<u64> = purged.iter().copied().filter(|s| s < below).collect();
            purged.retain(|s| s >= below);
            for sequence in mine {
                let entry = self.entries.remove(&sequence).expect("a purged entry was there");
                assert!(
                    !unmarked.contains(&sequence) || entry.state != Is::Ready,
                    "what goes unseen is marked, for a crash may bring it back"
                );
                let free = matches!(entry.state, Is::Ready | Is::Damaged | Is::Doomed { retry: Some(_), .. });
                assert!(free, "{sequence} was not to be purged: {entry:?}");
                work = work.checked_sub(1).expect("work is bounded");
                *count += 1;
                self.totals.purged += 1;
            }
            let left = self.entries.iter().any(|(sequence, e)| {
                sequence < below && matches!(e.state, Is::Ready | Is::Damaged | Is::Doomed { retry: Some(_), .. })
            });
            assert!(index >= done || !left, "a complete purge leaves nothing");
        }
        assert!(purged.is_empty(), "{purged:?} is gone without a reason");
        let settled: Vec<u64> = std::mem::take(&mut self.expected.acknowledged).into_iter().collect();
        assert!(settled.iter().all(|s| !self.entries.contains_key(s)));
        work
    }

    /// Judges one delivery; the answer is the overlay that must have come with it if it is pre-settled.
    pub(crate) fn deliver(&mut self, to: u64, key: DeliveryKey, deliveries: u32, has_overlay: bool) -> Option<Vec<u8>> {
        let consumer = &self.consumers[&to];
        assert!(consumer.limit > consumer.given, "a delivery needs credit");
        assert!(!self.move_is_open(), "what another queue may refuse comes back before later ones go");
        assert_eq!(self.candidate(to), Some(key.sequence), "order: priority, then number; nobody gets what it refused");
        let entry = &self.entries[&key.sequence];
        assert!(self.resident(entry), "only what is in memory is given");
        assert_eq!(entry.held, None, "a returned entry waits for its record");
        let belongs = entry.suspect.is_some() && self.group.contains(&key.sequence);
        assert!(self.probation.is_empty() || belongs, "all others wait for those that were blamed");
        if let Some((crashes, passed)) = entry.suspect {
            let marked_s = entry.marked_us.expect("a suspect has a mark of its own") / 1_000_000;
            assert!(self.now_us / 1_000_000 - marked_s <= FRESH_S, "a mark tells the time of the delivery");
            assert!(crashes == 0 || belongs, "they go in groups");
            if crashes > 0 && !consumer.pre_settled {
                self.probation.insert(key.sequence, STARTED_MS + self.now_us / 1000);
                self.over = false;
                let others = self.consumers.iter().filter(|(id, c)| **id != to && c.limit > c.given).count() as u64;
                let probation_us = if passed == 1 { LONG_PROBATION_US } else { PROBATION_US };
                self.until_us = self.now_us + probation_us.min(ROUND_US / (1 + others));
            }
        } else {
            assert!(!entry.persistent || self.marks.contains(&(key.sequence / 256)), "a mark is durable first");
        }
        assert_eq!((key.level, deliveries, has_overlay), (entry.level, entry.deliveries, entry.overlay.is_some()));
        assert!(!self.keys.contains(&key), "a delivery has a key of its own");
        self.totals.redelivered += u64::from(entry.deliveries > 0);
        self.keys.push(key);
        let consumer = self.consumers.get_mut(&to).unwrap();
        consumer.given += 1;
        if consumer.pre_settled {
            self.totals.acknowledged += 1;
            return self.entries.remove(&key.sequence).unwrap().overlay;
        }
        consumer.held.push_back(key.sequence);
        self.entries.get_mut(&key.sequence).unwrap().state = Is::Acquired(to, key);
        None
    }

    /// After a dispatch that says it is done: whoever has credit has nothing to get, or waits for something on its way.
    pub(crate) fn nothing_is_left_undone(&self) {
        assert!(self.leaving.is_empty());
        self.no_errand_is_left_undone();
        if self.move_is_open() {
            return;
        }
        for (id, consumer) in &self.consumers {
            if consumer.limit <= consumer.given {
                continue;
            }
            let Some(sequence) = self.candidate(*id) else { continue };
            let entry = &self.entries[&sequence];
            let marking = self.marking_of(sequence);
            if !self.probation.is_empty() && !self.over {
                continue;
            }
            let marking_group = self.group.iter().any(|s| self.entries.get(s).is_some_and(|e| e.held.is_some()));
            if entry.suspect.is_some_and(|(crashes, _)| crashes > 0) && marking_group {
                continue;
            }
            if entry.suspect.is_some() && self.resident(entry) && entry.held.is_none() {
                let marked = self.batch.ops().iter().any(|op| match op {
                    Op::ExactMark { first, last, .. } => (*first..=*last).contains(&sequence),
                    _ => false,
                });
                assert!(marked && self.batch.urgent(), "{sequence} should have been given");
                continue;
            }
            if let Some(ticket) = entry.held {
                assert!(ticket < self.ticket || self.batch.urgent(), "whoever waits for a record has it flushed");
            } else if !self.resident(entry) {
                assert!(self.loads.iter().any(|l| l.level == entry.level), "what is not in memory is asked for");
            } else {
                assert!(
                    entry.persistent && !self.marks.contains(&(sequence / 256)),
                    "{sequence} should have been given"
                );
                let ticket = marking.expect("what is not marked is being marked");
                assert!(ticket < self.ticket || self.batch.urgent(), "whoever waits for a mark has it flushed");
            }
        }
    }

    pub(crate) fn marking_of(&self, sequence: u64) -> Option<u64> {
        let before = self.marking.iter().find(|(_, range)| *range == sequence / 256).map(|(ticket, _)| *ticket);
        let now = self.batch.ops().iter().any(|op| match op {
            Op::DispatchMark { first, count, .. } => (*first..first + u64::from(*count)).contains(&sequence),
            _ => false,
        });
        before.or(now.then_some(self.ticket))
    }

    /// The batch contains exactly the records that the rules ask for, and is handed over.
    pub(crate) fn end_turn(&mut self) {
        let mut told = Expected::default();
        let mut marked: Vec<((u32, u32), u64)> = Vec::new();
        for op in self.batch.ops() {
            match op {
                Op::Enqueue { queue, sequence, volatile, .. } => {
                    assert_eq!(*queue, ID);
                    told.enqueued.push((*sequence, *volatile));
                }
                Op::Redeliver { entry, deliveries, attempts, overlay } => {
                    told.redelivered.push((entry.sequence, *deliveries, *attempts, overlay.is_some()));
                }
                Op::Relocate { from, to, head, deliveries, attempts, .. } => {
                    assert_eq!((from.queue, *attempts), (ID, 0));
                    told.relocated.push((from.sequence, to.sequence, head.ttl_ms, *deliveries));
                }
                Op::DispatchMark { queue, first, count } => {
                    assert_eq!((*queue, first % 256, count % 256), (ID, 0, 0));
                    self.marking.extend((0..u64::from(*count) / 256).map(|n| (self.ticket, first / 256 + n)));
                }
                // Looked at when it was pushed.
                Op::ExactMark { at_ms, .. } if at_ms & PASSED != 0 => {}
                Op::ExactMark { queue, first, last, at_ms } => {
                    assert_eq!((*queue, *at_ms), (ID, STARTED_MS + self.now_us / 1000));
                    for sequence in *first..=*last {
                        let entry = self.entries.get_mut(&sequence).expect("a suspect is there");
                        assert_eq!((entry.state, entry.held), (Is::Ready, None));
                        let suspect = entry.suspect.expect("only suspects are named");
                        entry.held = Some(self.ticket);
                        marked.push((suspect, sequence));
                    }
                }
                Op::Reserve { queue, up_to } => {
                    assert_eq!((*queue, self.reserving), (ID, None));
                    assert!(*up_to > self.reserved && *up_to > self.next);
                    self.reserving = Some((self.ticket, *up_to));
                }
                Op::Acknowledge { .. } => {}
                Op::TxOps(ops) => told.ahead.push((ops.txn.number, true)),
                Op::TxDrop { txn, queue } => {
                    assert_eq!(*queue, ID);
                    told.ahead.push((txn.number, false));
                }
                Op::QueueChange { id, settings } => assert_eq!((*id, settings.limits), (ID, self.limits)),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        let blamed: Vec<_> = marked.iter().filter(|((crashes, _), _)| *crashes > 0).collect();
        if let Some(((crashes, passed), _)) = blamed.first() {
            let alike = blamed.iter().all(|(kind, _)| *kind == (*crashes, *passed));
            assert!(alike && blamed.len() as u64 <= if *crashes == 1 { GROUP } else { 1 }, "{blamed:?} are no group");
            self.group = blamed.iter().map(|(_, sequence)| *sequence).collect();
        }
        let expected = std::mem::take(&mut self.expected);
        assert_eq!(told.enqueued, expected.enqueued);
        assert_eq!(told.redelivered, expected.redelivered);
        assert_eq!(told.relocated, expected.relocated);
        assert_eq!(told.ahead, expected.ahead);
        if !std::mem::take(&mut self.batch).is_empty() {
            self.ticket += 1;
        }
    }
}
