//! Transactions: the naive rules.

use super::*;
use packhorse_model::{DeadLetter, Purpose, Resolution, ShardId, TxnId};
use packhorse_store::{Ahead, Numbers, Redelivery, TxnOp};
use std::sync::Arc;

#[derive(Debug)]
struct Add {
    head: Head,
    length: u64,
    /// Where its body is once it is in the ring.
    buffer: u64,
    /// Its body was spilled.
    stored: bool,
    /// It went ahead of the record, and its body with it.
    ahead: bool,
}

/// What a commit makes of an entry.
#[derive(Debug)]
enum Then {
    Gone,
    /// It comes back, perhaps as seen, perhaps not to this consumer.
    Back(bool, Option<u64>),
    Letter(Reason),
}

#[derive(Debug)]
struct Remove {
    sequence: u64,
    then: Then,
    /// All that it has then, if that changes.
    annotations: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Part {
    adds: Vec<Add>,
    removes: Vec<Remove>,
    /// What the record must be told.
    ops: Vec<TxnOp>,
    ahead: Ahead,
    /// Operations that have come.
    came: u64,
    /// Operations in all and why the home wants to know, until it is answered.
    asked: Option<(u64, Purpose)>,
    answered: Option<Purpose>,
    prepared: bool,
    first: Option<u64>,
    /// The answer waits for this ticket.
    until: Option<u64>,
}

impl Part {
    fn takes_operations(&self) -> bool {
        match self.asked {
            Some((operations, _)) => self.came < operations,
            None => self.answered.is_none() && !self.prepared,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ending {
    part: Part,
    commit: bool,
    done: usize,
}

fn id(number: u64) -> TxnId {
    TxnId { run: 1, number, home: ShardId(0) }
}

impl World {
    pub(crate) fn transact(&mut self, what: u32, a: u32, b: u32) {
        match what {
            0 | 1 => {
                let number = self.open_part(a);
                self.stage_add(number, b);
            }
            2 | 3 => {
                let number = self.open_part(b);
                if b.is_multiple_of(4) {
                    self.stage_accept(number, a, b);
                } else {
                    self.stage_remove(number, a, b);
                }
            }
            4 => {
                let dead = self.dead.keys().copied();
                let closed = self.parts.iter().filter(|(_, p)| !p.takes_operations()).map(|(n, _)| *n);
                match nth(dead.chain(closed).collect(), a) {
                    Some(number) if b % 4 == 3 => self.drop_refused(number, u64::from(b / 4 % 4)),
                    Some(number) => self.comes_for_nothing(number, b),
                    None => {
                        let number = self.open_part(a);
                        self.parts.get_mut(&number).unwrap().came += 1;
                        self.handle(Input::StageRefused { txn: id(number) });
                    }
                }
            }
            5 | 6 => self.go_on(a, b),
            _ => {
                if let Some(number) = nth(self.parts.keys().copied().collect(), a) {
                    let part = &self.parts[&number];
                    match b % 4 {
                        // All that there is of it was refused, and some of that may still come.
                        0 if part.asked.is_none() && part.takes_operations() => {
                            let operations = part.came + u64::from(b / 4 % 3);
                            self.drop_refused(number, operations);
                        }
                        _ => self.end_part(number, Resolution::Rollback),
                    }
                }
            }
        }
        self.answers();
    }

    /// An operation of a transaction of which nothing is taken any more: named before, or named later.
    fn comes_for_nothing(&mut self, number: u64, b: u32) {
        let key = self.keys.first().copied();
        if let Some(key) = key.filter(|_| b.is_multiple_of(3)) {
            let keys = [key; 3];
            self.owe(number, -3);
            let answer = self.handle(Input::StageAccept { txn: id(number), keys: &keys });
            assert_eq!(answer, Answer::Settled(false), "they are dropped");
            return;
        }
        self.owe(number, -1);
        match key.filter(|_| b.is_multiple_of(2)) {
            Some(key) => {
                let answer = self.handle(Input::StageSettle { txn: id(number), key, outcome: Outcome::Acknowledge });
                assert_eq!(answer, Answer::Settled(false), "it is dropped");
            }
            None => drop(self.handle(Input::StageRefused { txn: id(number) })),
        }
    }

    /// The home has refused so many.
    fn drop_refused(&mut self, number: u64, operations: u64) {
        let open = self.parts.get(&number).filter(|part| part.takes_operations()).map(|part| part.came);
        match open {
            Some(_) => self.undo(number, operations),
            None => self.owe(number, operations as i64),
        }
        let answer = self.handle(Input::DropRefused { txn: id(number), operations });
        assert_eq!(answer, Answer::Settled(open.is_some_and(|came| came > 0)), "what is closed stays");
    }

    fn owe(&mut self, number: u64, operations: i64) {
        let owed = self.dead.entry(number).or_default();
        *owed += operations;
        if *owed == 0 {
            self.dead.remove(&number);
        }
    }

    /// One that takes operations, perhaps a new one.
    fn open_part(&mut self, pick: u32) -> u64 {
        let open: Vec<u64> = self.parts.iter().filter(|(_, p)| p.takes_operations()).map(|(n, _)| *n).collect();
        match open.get(pick as usize % 3) {
            Some(number) => *number,
            None => {
                self.next_txn += 1;
                self.parts.insert(self.next_txn, Part::default());
                self.next_txn
            }
        }
    }

    fn stage_add(&mut self, number: u64, b: u32) {
        let persistent = !self.unstored || !b.is_multiple_of(3);
        let head = self.head([4, 4, 9][b as usize % 3], persistent);
        // Now and then so much that all of it goes ahead.
        let length = if b % 16 == 7 { 1 << 20 } else { b % 32 };
        let part = self.parts.get_mut(&number).unwrap();
        let index = part.adds.len() as u32;
        let body = Body { piece: index, offset: 0, length };
        if persistent {
            part.ops.push(TxnOp::Enqueue { index, head, content: Stored::Body(body) });
        }
        part.adds.push(Add { head, length: u64::from(length), buffer: 0, stored: persistent, ahead: false });
        part.came += 1;
        let content = Content::Body(Resident { buffer: u64::from(index), offset: 0, length });
        self.handle(Input::StageEnqueue { txn: id(number), head, content, identity: None });
        if persistent && length == 1 << 20 {
            self.goes_ahead(number);
        }
    }

    /// What there is of the part goes ahead in this turn.
    fn goes_ahead(&mut self, number: u64) {
        let at = self.out.iter().position(|effect| matches!(effect, Effect::Ahead(_))).expect("a MiB goes ahead");
        let Effect::Ahead(told) = self.out.remove(at) else { unreachable!("it was just looked at") };
        let part = self.parts.get_mut(&number).unwrap();
        assert_eq!((told.txn, told.queue, told.record), (id(number), ID, part.ahead.records));
        assert_eq!(told.ops, std::mem::take(&mut part.ops));
        part.ahead.records += 1;
        part.ahead.ops += told.ops.len() as u64;
        let adds = part.adds.iter_mut().filter(|add| add.head.persistent() && !add.ahead);
        adds.for_each(|add| {
            part.ahead.bytes += add.length;
            add.ahead = true;
        });
        part.until = Some(self.ticket);
        self.batch.push(Op::TxOps(told));
        self.expected.ahead.push((number, true));
    }

    /// What a commit makes of an entry of which its consumer says this, and what it says.
    fn then(&self, sequence: u64, consumer: u64, b: u32) -> (Remove, Outcome) {
        let annotations = if b & 32 != 0 { Bytes::from(vec![b as u8; 3]) } else { Bytes::new() };
        let undeliverable_here = b & 64 != 0;
        let exhausted = self.entries[&sequence].attempts + 1 >= LIMIT && !self.dead_letters;
        let seen = |not_to| if exhausted { Then::Letter(Reason::DeliveryLimit) } else { Then::Back(true, not_to) };
        let not_to = undeliverable_here.then_some(consumer);
        let changed = (!annotations.is_empty()).then(|| annotations.to_vec());
        let (then, annotations, outcome) = match b / 3 % 8 {
            0 => (Then::Back(false, None), None, Outcome::ReturnUnseen),
            1 => (seen(not_to), changed, Outcome::ReturnSeen { undeliverable_here, annotations }),
            2 => (Then::Back(false, not_to), changed, Outcome::ReturnModified { undeliverable_here, annotations }),
            3 if self.dead_letters => (seen(Some(consumer)), None, Outcome::Reject { detail: "why".into() }),
            3 => (Then::Letter(Reason::Rejected), None, Outcome::Reject { detail: "why".into() }),
            _ => (Then::Gone, None, Outcome::Acknowledge),
        };
        (Remove { sequence, then, annotations }, outcome)
    }

    /// The same, as the record is told it.
    fn redelivery(&self, remove: &Remove) -> Option<Arc<Redelivery>> {
        let entry = &self.entries[&remove.sequence];
        let (deliveries, attempts) = (entry.deliveries, entry.attempts);
        let overlay = |annotations: &Vec<u8>| {
            let (annotations, dead_letter) = (Bytes::from(annotations.clone()), None);
            Box::new(Overlay { annotations, dead_letter })
        };
        let changed = remove.annotations.as_ref().map(overlay);
        Some(Arc::new(match remove.then {
            Then::Gone => return None,
            Then::Back(seen, _) => {
                let seen = u32::from(seen);
                Redelivery { deliveries: deliveries + seen, attempts: attempts + seen, overlay: changed }
            }
            Then::Letter(reason) => {
                let before = || entry.overlay.as_ref().map(overlay).unwrap_or_default();
                let mut overlay = changed.unwrap_or_else(before);
                overlay.dead_letter = Some(Box::new(DeadLetter {
                    reason,
                    detail: if reason == Reason::Rejected { "why".into() } else { String::new() },
                    address: self.queue.name().clone(),
                    sequence: remove.sequence,
                    deliveries: deliveries + 1,
                    leaving: true,
                }));
                Redelivery { deliveries, attempts, overlay: Some(overlay) }
            }
        }))
    }

    /// A key that is held, or now and then any.
    fn pick_key(&self, a: u32) -> Option<DeliveryKey> {
        let acquired = self.entries.values().filter_map(|e| match e.state {
            Is::Acquired(_, key) => Some(key),
            _ => None,
        });
        let late = a.is_multiple_of(5).then(|| nth(self.keys.clone(), a)).flatten();
        late.or_else(|| nth(acquired.collect(), a))
    }

    /// Many are acknowledged by one word; some of them may be stale, or named twice.
    fn stage_accept(&mut self, number: u64, a: u32, b: u32) {
        let keys: Vec<DeliveryKey> = (0..b / 4 % 5).filter_map(|n| self.pick_key(a.wrapping_add(n * 7))).collect();
        if keys.is_empty() {
            return;
        }
        let mut all = true;
        for key in &keys {
            all &= self.removes(number, *key, None).is_some();
        }
        let answer = self.handle(Input::StageAccept { txn: id(number), keys: &keys });
        assert_eq!(answer, Answer::Settled(all), "only who holds them removes them, once");
    }

    fn stage_remove(&mut self, number: u64, a: u32, b: u32) {
        let Some(key) = self.pick_key(a) else { return };
        let removed = self.removes(number, key, Some(b));
        let held = removed.is_some();
        let outcome = removed.unwrap_or(Outcome::Acknowledge);
        let answer = self.handle(Input::StageSettle { txn: id(number), key, outcome });
        assert_eq!(answer, Answer::Settled(held), "only who holds it removes it, once");
    }

    /// An operation that ends a delivery comes: the outcome, which `b` says, or else it is acknowledged. `None`: nobody holds it.
    fn removes(&mut self, number: u64, key: DeliveryKey, b: Option<u32>) -> Option<Outcome> {
        let held_by = self.entries.get(&key.sequence).and_then(|e| match e.state {
            Is::Acquired(consumer, now) if now == key => Some(consumer),
            _ => None,
        });
        self.parts.get_mut(&number).unwrap().came += 1;
        let consumer = held_by?;
        let (remove, outcome) = match b {
            Some(b) => self.then(key.sequence, consumer, b),
            None => (Remove { sequence: key.sequence, then: Then::Gone, annotations: None }, Outcome::Acknowledge),
        };
        let redelivery = self.redelivery(&remove);
        let entry = self.entries.get_mut(&key.sequence).unwrap();
        entry.state = Is::Removing;
        let part = self.parts.get_mut(&number).unwrap();
        part.removes.push(remove);
        if entry.persistent {
            let (deliveries, attempts) = (entry.deliveries + 1, entry.attempts + 1);
            part.ops.push(TxnOp::Acknowledge { sequence: key.sequence, deliveries, attempts, redelivery });
        }
        self.let_go(consumer, key.sequence);
        Some(outcome)
    }

    /// The next step of some transaction.
    fn go_on(&mut self, a: u32, b: u32) {
        let Some(number) = nth(self.parts.keys().copied().collect(), a) else { return };
        let part = self.parts.get_mut(&number).unwrap();
        let purpose = match (part.asked, part.answered) {
            (Some(_), _) => return,
            (None, Some(Purpose::Prepare)) => return self.end_part(number, Resolution::Prepared),
            (None, Some(_)) => return self.end_part(number, Resolution::Commit),
            (None, None) if part.prepared => Purpose::Decide,
            (None, None) if b.is_multiple_of(2) => Purpose::Commit,
            (None, None) => Purpose::Prepare,
        };
        let missing = if part.prepared { 0 } else { u64::from(b / 2 % 4).saturating_sub(2) };
        let operations = part.came + missing;
        part.asked = Some((operations, purpose));
        self.handle(Input::Gather { txn: id(number), operations, purpose });
    }

    /// What homes were told in this turn is what they must be told, and when.
    pub(crate) fn answers(&mut self) {
        for part in self.parts.values_mut() {
            let Some((operations, purpose)) = part.asked else { continue };
            if part.came >= operations && purpose != Purpose::Prepare && part.first.is_none() && !part.adds.is_empty() {
                part.first = Some(self.next);
                self.next += part.adds.len() as u64;
                let ticket = self.reserving.map_or(self.ticket, |(ticket, _)| ticket);
                part.until = part.until.max((self.next > self.reserved).then_some(ticket));
            }
        }
        let mut expected = BTreeSet::new();
        for (number, part) in &mut self.parts {
            if let Some((operations, purpose)) = part.asked
                && part.came >= operations
                && part.until.is_none_or(|ticket| ticket <= self.durable)
            {
                (part.asked, part.answered) = (None, Some(purpose));
                expected.insert(*number);
            }
        }
        for effect in std::mem::take(&mut self.out) {
            let Effect::Gathered(gathered) = effect else {
                self.out.push(effect);
                continue;
            };
            let number = gathered.txn.number;
            assert!(expected.remove(&number), "{number} was not asked for, or not all has come");
            let part = &self.parts[&number];
            let numbers = part.first.map(|first| Numbers { first, count: part.adds.len() as u32 });
            let decide = part.answered == Some(Purpose::Decide);
            assert_eq!(gathered.part.ops, if decide { Vec::new() } else { part.ops.clone() });
            let ahead = if decide { Ahead::default() } else { part.ahead };
            assert_eq!((gathered.part.numbers, gathered.part.ahead), (numbers, ahead));
            let persistent = part.ops.len() as u64 + part.ahead.ops;
            let volatile = (part.adds.len() + part.removes.len()) as u64 - persistent;
            assert_eq!((gathered.persistent, gathered.volatile), (persistent > 0, volatile));
        }
        assert!(expected.is_empty(), "{expected:?} were to be answered");
    }

    fn end_part(&mut self, number: u64, resolution: Resolution) {
        let part = self.parts.get_mut(&number).unwrap();
        let operations = part.asked.map_or(part.came, |(operations, _)| operations.max(part.came));
        let mut buffers = Vec::new();
        let persistent = |add: &Add| add.head.persistent();
        for add in part.adds.iter_mut().filter(|add| add.buffer == 0 && !add.ahead) {
            if resolution == Resolution::Commit || resolution == Resolution::Prepared && persistent(add) {
                add.buffer = self.buffer;
                buffers.push(self.buffer);
                self.buffer += 1;
            }
        }
        if resolution == Resolution::Prepared {
            (part.prepared, part.answered) = (true, None);
        } else {
            match resolution {
                Resolution::Rollback => self.undo(number, operations),
                _ => {
                    let part = self.parts.remove(&number).unwrap();
                    self.ending.push_back(Ending { part, commit: true, done: 0 });
                }
            }
        }
        self.handle(Input::Apply { txn: id(number), operations, resolution, buffers: &buffers });
    }

    /// So many operations of a part were made, and none of them is to stay.
    fn undo(&mut self, number: u64, operations: u64) {
        let part = self.parts.remove(&number).unwrap();
        if !part.prepared && part.ahead.records > 0 {
            self.expected.ahead.push((number, false));
        }
        self.owe(number, operations as i64 - part.came as i64);
        self.ending.push_back(Ending { part, commit: false, done: 0 });
    }

    /// Ends of transactions, each step at the price of one; false: there are more steps.
    pub(crate) fn end_parts(&mut self, work: &mut u32) -> bool {
        while let Some(Ending { part, commit, done }) = self.ending.front_mut() {
            let (first, commit, at) = (part.first, *commit, *done);
            let waits =
                |(s, e): (&u64, &Entry)| matches!(e.state, Is::Staged(Some(_))) && first.is_some_and(|f| *s < f);
            if commit && self.entries.iter().any(waits) {
                return true;
            }
            if at == part.adds.len() + part.removes.len() {
                self.ending.pop_front();
                continue;
            }
            if *work == 0 {
                return false;
            }
            *work -= 1;
            *done += 1;
            match part.adds.get(at) {
                Some(add) if commit => {
                    let sequence = first.expect("numbers were drawn") + at as u64;
                    let Add { head, length, buffer, stored, .. } = *add;
                    self.add(sequence, head.level(), head.persistent(), Is::Ready, length);
                    let entry = self.entries.get_mut(&sequence).unwrap();
                    (entry.arrived, entry.buffer, entry.stored) = (head.arrived_ms, buffer, stored);
                }
                Some(_) => {}
                None => {
                    let (at, prepared) = (at - part.adds.len(), part.prepared);
                    let Remove { sequence, then, annotations } = &mut part.removes[at];
                    let (sequence, annotations) = (*sequence, annotations.take());
                    match std::mem::replace(then, Then::Gone) {
                        Then::Gone => self.end_remove(sequence, commit, prepared),
                        _ if !commit => self.end_remove(sequence, commit, prepared),
                        then => self.come_back(sequence, then, annotations),
                    }
                }
            }
        }
        true
    }

    /// A commit does not remove it.
    fn come_back(&mut self, sequence: u64, then: Then, annotations: Option<Vec<u8>>) {
        let entry = self.entries.get_mut(&sequence).expect("what is being removed is there");
        assert_eq!(entry.state, Is::Removing);
        entry.overlay = annotations.or(entry.overlay.take());
        match then {
            Then::Letter(reason) => self.send_on(sequence, reason),
            Then::Back(seen, not_to) => {
                let consumers = self.consumers.get_mut(&not_to.unwrap_or(u64::MAX)).map(|one| &mut one.choosy);
                let leaving = self.leaving.iter_mut().find(|one| Some(one.id) == not_to).map(|one| &mut one.choosy);
                if let Some(choosy) = consumers.or(leaving) {
                    *choosy = true;
                    entry.refused_by.extend(not_to);
                }
                entry.state = Is::Ready;
                entry.deliveries += u32::from(seen);
                entry.attempts += u32::from(seen);
                entry.suspect = None;
            }
            Then::Gone => unreachable!("that is removed"),
        }
    }

    /// It goes to the dead-letter queue though nobody holds it.
    fn send_on(&mut self, sequence: u64, reason: Reason) {
        let offer = self.out.iter().find_map(|effect| match effect {
            Effect::Relocate(offer) if offer.key.sequence == sequence => Some(offer.key),
            _ => None,
        });
        let key = offer.expect("it is sent on");
        let entry = self.entries.get_mut(&sequence).unwrap();
        entry.state = Is::Doomed { key, scheduled: true, retry: None };
        self.expected.offers.push((sequence, reason, entry.deliveries + 1));
    }

    fn end_remove(&mut self, sequence: u64, commit: bool, prepared: bool) {
        let entry = self.entries.get_mut(&sequence).expect("what is being removed is there");
        assert_eq!(entry.state, Is::Removing);
        if commit {
            let gone = self.entries.remove(&sequence).unwrap();
            self.totals.acknowledged += 1;
            if gone.stored && !gone.persistent {
                self.expected.acknowledged.insert(sequence);
            }
            return;
        }
        if entry.attempts + 1 >= LIMIT && !self.dead_letters {
            self.send_on(sequence, Reason::DeliveryLimit);
            return;
        }
        entry.state = Is::Ready;
        (entry.deliveries, entry.attempts, entry.suspect) = (entry.deliveries + 1, entry.attempts + 1, None);
        // The record that decides a prepared one says it.
        if entry.persistent && !prepared {
            entry.held = Some(self.ticket);
            let redelivered = (sequence, entry.deliveries, entry.attempts, entry.overlay.is_some());
            self.expected.redelivered.push(redelivered);
        }
    }

    /// What is added and not in the queue yet, with whether it is prepared.
    fn staged_adds(&self) -> impl Iterator<Item = (&Add, bool)> {
        let open = self.parts.values().flat_map(|p| p.adds.iter().map(|add| (add, p.prepared)));
        let ending = self.ending.iter().flat_map(|e| e.part.adds.iter().skip(e.done).map(|add| (add, e.part.prepared)));
        open.chain(ending)
    }

    /// Messages staged in transactions, and their bytes.
    pub(crate) fn staged_in_parts(&self) -> (u64, u64) {
        (self.staged_adds().count() as u64, self.staged_adds().map(|(add, _)| add.length).sum())
    }

    /// Messages added and removed by what is prepared.
    pub(crate) fn in_doubt(&self) -> (u64, u64) {
        let removes = self.parts.values().filter(|p| p.prepared).map(|p| p.removes.len());
        let ending = self.ending.iter().filter(|e| e.part.prepared);
        let ending = ending.map(|e| e.part.removes.len() - e.done.saturating_sub(e.part.adds.len()));
        (
            self.staged_adds().filter(|(_, prepared)| *prepared).count() as u64,
            removes.chain(ending).sum::<usize>() as u64,
        )
    }

    pub(crate) fn check_parts(&self) {
        let all: Vec<TxnId> =
            self.parts.iter().filter(|(_, p)| p.came > 0 || p.asked.is_some()).map(|(n, _)| id(*n)).collect();
        let told: Vec<TxnId> = self.queue.transactions().collect();
        assert!(all.iter().all(|txn| told.contains(txn)));
        let prepared: Vec<TxnId> = self.parts.iter().filter(|(_, p)| p.prepared).map(|(n, _)| id(*n)).collect();
        assert_eq!(
            (self.queue.prepared().collect::<Vec<_>>(), self.queue.in_doubt()),
            (prepared.clone(), !prepared.is_empty())
        );
    }

    /// The lowest number that may still come before others.
    pub(crate) fn drawn(&self) -> u64 {
        let ending = self.ending.iter().filter_map(|e| e.part.first);
        self.parts.values().filter_map(|p| p.first).chain(ending).min().unwrap_or(u64::MAX)
    }

    /// Bodies of what is committed and not in its list yet, when their buffers go.
    pub(crate) fn spill_ending(&mut self, oldest: u64) {
        for Ending { part, commit, done } in &mut self.ending {
            let Some(first) = part.first.filter(|_| *commit) else { continue };
            for (sequence, add) in (first..).zip(&mut part.adds).skip(*done) {
                let level = add.head.level();
                assert_eq!(self.queue.spill(level, sequence, add.buffer + 1), None, "it is in another buffer");
                if add.buffer >= oldest {
                    continue;
                }
                let spilled = self.queue.spill(level, sequence, add.buffer);
                assert_eq!(spilled.is_some(), !add.stored, "what is in memory only is spilled");
                let Some((head, place)) = spilled else { continue };
                assert_eq!((head, u64::from(place.length)), (add.head, add.length));
                let content = Stored::Body(Body { piece: 0, offset: 0, length: place.length });
                self.batch.push(Op::Enqueue { queue: ID, sequence, head, content, volatile: true });
                self.expected.enqueued.push((sequence, true));
                add.stored = true;
            }
        }
    }

    /// All are undone.
    pub(crate) fn end_all_parts(&mut self) {
        for number in self.parts.keys().copied().collect::<Vec<_>>() {
            self.end_part(number, Resolution::Rollback);
        }
    }
}
