//! Transactions: what they add and remove in this queue waits in parts until their homes have decided (`spec/transactions.md`).
//!
//! Must not know: homes, records, branches' names. A message that is added is counted as staged from the start, and stands in its
//! level's list from the end on; an entry that is removed stays where it is. How a part ends is in `ending`.

use crate::ending::Ending;
use crate::entry::{Event, State};
use crate::history::NONE;
use crate::input::{DeliveryKey, Effect, Gathered, Turn};
use crate::list::Place;
use crate::part::{Part, Question, Remove, Then};
use crate::queue::Queue;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use packhorse_model::{
    Content, Head, Identity, Numbered, Outcome, Planted, Purpose, Recent, Resolution, Sequence, TxnId, planted,
};
use packhorse_store::{Numbers, Op, RecoveredOp, RecoveredWork, Ticket, TxnOp};

/// A message in a transaction's part, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartItem {
    /// It is added.
    Add {
        /// Its head.
        head: Head,
        /// Length of its content, bytes.
        length: u64,
    },
    /// It is removed.
    Remove {
        /// Its number.
        sequence: Sequence,
        /// Its head.
        head: Head,
        /// Length of its content, bytes.
        length: u64,
    },
}

/// So many parts at once are given room for as many operations as the last one had.
const ROOMY_PARTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Not decided.
    pub(crate) parts: Recent<TxnId, Part>,
    /// Decided, and to be carried out in this order.
    pub(crate) ending: VecDeque<Ending>,
    /// Operations that rollbacks and refusals named, less those of them that came. So many are to be dropped when they come; below zero,
    /// they came before they were named. A transaction that is here has no part, or a closed one: nothing else comes of it.
    dead: BTreeMap<TxnId, i64>,
    /// What parts wait for.
    waits: BTreeSet<(Ticket, TxnId)>,
    /// First numbers drawn for parts that have not been carried out.
    pub(crate) drawn: BTreeSet<Sequence>,
    /// How many the last part that was decided added and removed: the next one gets room for as many.
    usual: (usize, usize),
}

impl Transactions {
    /// The lowest ticket waited for.
    #[inline]
    pub(crate) fn awaits(&self) -> Option<Ticket> {
        self.waits.first().map(|(ticket, _)| *ticket)
    }

    /// The part for so many operations that have come; `None`: they are to be dropped.
    #[inline]
    fn open(&mut self, txn: TxnId, operations: u64) -> Option<&mut Part> {
        let closed = match self.parts.get_mut(&txn) {
            // One that is open is not among the dead.
            Some(part) => part.closed,
            None => self.dead.contains_key(&txn),
        };
        if closed {
            owe(&mut self.dead, txn, -(operations as i64));
            return None;
        }
        // Not where many are open, for most of them may be small.
        let (adds, removes) = if self.parts.len() < ROOMY_PARTS { self.usual } else { (0, 0) };
        let part = self.parts.get_or_insert_with(txn, || Part::with_room(adds, removes));
        part.came += operations;
        Some(part)
    }

    /// Whether it has a part that takes no operations any more.
    fn is_closed(&self, txn: TxnId) -> bool {
        self.parts.get(&txn).is_some_and(|part| part.closed)
    }

    /// So many more are to be dropped when they come.
    fn owe(&mut self, txn: TxnId, operations: i64) {
        owe(&mut self.dead, txn, operations);
    }

    /// A part's answer waits for this ticket, if not for a later one.
    fn wait(&mut self, txn: TxnId, ticket: Ticket) {
        let Some(part) = self.parts.get_mut(&txn) else { return };
        if let Some(before) = part.until {
            self.waits.remove(&(before, txn));
        }
        let ticket = part.until.map_or(ticket, |before| before.max(ticket));
        part.until = Some(ticket);
        self.waits.insert((ticket, txn));
    }
}

impl Queue {
    pub(crate) fn stage_enqueue(
        &mut self,
        txn: TxnId,
        head: Head,
        content: Content,
        identity: Option<&Identity>,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(part) = self.transactions.open(txn, 1) else {
            if let Content::Large { id, .. } = content {
                out.push(Effect::Discard(id));
            }
            return false;
        };
        part.add(head, content);
        let due = part.is_due(turn.short);
        self.counts.born(State::birth(true), content.length());
        if let Some(identity) = identity {
            let identity = self.claim(*identity, txn, turn);
            part_of(&mut self.transactions, txn).identify(identity, head.persistent());
        }
        if due || identity.is_some() {
            self.has_come(txn, turn, out);
        }
        true
    }

    pub(crate) fn stage_settle(
        &mut self,
        txn: TxnId,
        key: DeliveryKey,
        outcome: Outcome,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.transactions.open(txn, 1).is_none() {
            return false;
        }
        let was_held = self.retire(txn, key, outcome, turn);
        self.perhaps_due(txn, turn, out);
        was_held
    }

    /// The same of many that are acknowledged. False: one of them at least was not held.
    pub(crate) fn stage_accept(
        &mut self,
        txn: TxnId,
        keys: &[DeliveryKey],
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.transactions.open(txn, keys.len() as u64).is_none() {
            return false;
        }
        let mut held = true;
        for key in keys {
            held &= self.retire(txn, *key, Outcome::Acknowledge, turn);
        }
        self.perhaps_due(txn, turn, out);
        held
    }

    /// A delivery ends in an open part; false: there is none such.
    #[inline]
    fn retire(&mut self, txn: TxnId, key: DeliveryKey, outcome: Outcome, turn: &mut Turn<'_>) -> bool {
        let ended = self.delivery(key).map(|place| {
            let then = self.intent(key, place, outcome);
            self.let_go(key.level, place);
            self.must(key.level, place, Event::Remove, turn);
            let DeliveryKey { sequence, level, .. } = key;
            let packed = self.list(level).slot(place).packed;
            let history = self.histories.get(packed.history);
            let numbers = (history.deliveries, history.attempts);
            let told = |then: &Then| Arc::new(then.told(&self.name, sequence, numbers, history.overlay.as_deref()));
            let op = packed.persistent().then(|| TxnOp::Acknowledge {
                sequence,
                deliveries: numbers.0.saturating_add(1),
                attempts: numbers.1.saturating_add(1),
                redelivery: then.as_deref().map(told),
            });
            (Remove { level, sequence, then }, op)
        });
        let Some((remove, op)) = ended else { return false };
        self.transactions.parts.get_mut(&txn).expect("it was opened").remove(remove, op);
        true
    }

    #[inline]
    fn perhaps_due(&mut self, txn: TxnId, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        if self.transactions.parts.get_mut(&txn).is_some_and(|part| part.is_due(turn.short)) {
            self.has_come(txn, turn, out);
        }
    }

    #[cold]
    pub(crate) fn stage_refused(&mut self, txn: TxnId, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        if self.transactions.open(txn, 1).is_some() {
            self.has_come(txn, turn, out);
        }
    }

    #[cold]
    pub(crate) fn stage_duplicate(
        &mut self,
        txn: TxnId,
        identity: &Identity,
        bytes: u64,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) {
        let Some(part) = self.transactions.open(txn, 1) else { return };
        part.duplicates.adds += 1;
        part.duplicates.bytes += bytes;
        // Its record is in another shard's batch, and says that the message is there.
        let safe = self.safe_after(identity);
        if safe > self.durable {
            self.transactions.wait(txn, safe);
        }
        self.has_come(txn, turn, out);
    }

    /// An operation has come, and the part is due: perhaps some go ahead, perhaps it was the last.
    #[cold]
    fn has_come(&mut self, txn: TxnId, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let part = self.transactions.parts.get_mut(&txn).expect("it was opened");
        if let Some(ahead) = part.take_ahead(txn, self.id, turn.short) {
            out.push(Effect::Ahead(ahead));
            self.transactions.wait(txn, turn.ticket);
        }
        self.answer(txn, turn, out);
    }

    #[cold]
    pub(crate) fn gather(
        &mut self,
        txn: TxnId,
        operations: u64,
        purpose: Purpose,
        turn: &mut Turn<'_>,
        out: &mut Vec<Effect>,
    ) {
        if purpose == Purpose::Decide && !self.transactions.parts.contains_key(&txn) {
            // Nothing of it survived.
            let part = Part::default().told(purpose);
            out.push(Effect::Gathered(Box::new(Gathered { txn, part, persistent: false, volatile: 0 })));
            return;
        }
        let part = self.transactions.parts.get_or_insert_with(txn, Part::default);
        part.question = Some(Question { operations, purpose });
        self.answer(txn, turn, out);
    }

    /// Answers the question for a part, if there is one, and all has come, and what it rests on is durable.
    fn answer(&mut self, txn: TxnId, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        let Some(part) = self.transactions.parts.get_mut(&txn) else { return };
        let Some(Question { operations, purpose }) = part.question else { return };
        if !part.closed && part.came < operations {
            return;
        }
        part.closed = true;
        let count = part.numbers_needed();
        if purpose != Purpose::Prepare && part.numbers.is_none() && count > 0 {
            let (first, reservation) = self.draw(u64::from(count), turn);
            self.transactions.drawn.insert(first);
            if let Some(part) = self.transactions.parts.get_mut(&txn) {
                part.numbers = Some(Numbers { first, count });
            }
            // Its record is in another shard's batch, and must not be durable before the numbers are.
            if let Some(ticket) = reservation {
                self.transactions.wait(txn, ticket);
            }
        }
        let Some(part) = self.transactions.parts.get_mut(&txn).filter(|part| part.until.is_none()) else { return };
        part.question = None;
        let (persistent, volatile) = (part.persistent, part.volatile);
        let part = part.told(purpose);
        out.push(Effect::Gathered(Box::new(Gathered { txn, part, persistent, volatile })));
    }

    /// What parts waited for is durable.
    #[cold]
    pub(crate) fn parts_durable(&mut self, up_to: Ticket, turn: &mut Turn<'_>, out: &mut Vec<Effect>) {
        while let Some(&(ticket, txn)) = self.transactions.waits.first()
            && ticket <= up_to
        {
            self.transactions.waits.pop_first();
            if let Some(part) = self.transactions.parts.get_mut(&txn) {
                part.until = None;
            }
            self.answer(txn, turn, out);
        }
    }

    #[cold]
    pub(crate) fn apply(
        &mut self,
        txn: TxnId,
        operations: u64,
        resolution: Resolution,
        buffers: &[u64],
        turn: &mut Turn<'_>,
    ) {
        let transactions = &mut self.transactions;
        if resolution == Resolution::Prepared {
            if let Some(part) = transactions.parts.get_mut(&txn) {
                part.prepare(buffers);
                if !part.removes.is_empty() && planted(Planted::ReleaseRemove) {
                    let mut one = Part::default();
                    one.prepared = true;
                    one.removes.extend(part.removes.pop());
                    transactions.ending.push_back(Ending::new(one, false));
                    self.errands = true;
                }
            }
            return;
        }
        let part = transactions.parts.remove(&txn);
        if resolution == Resolution::Rollback {
            // What is prepared is whole; of one from before this start nothing came.
            let came = part.as_ref().map_or(0, |part| if part.prepared { operations } else { part.came });
            transactions.owe(txn, operations as i64 - came as i64);
        }
        let Some(mut part) = part else { return };
        transactions.usual = (part.adds.len(), part.removes.len());
        let commit = resolution == Resolution::Commit;
        if commit {
            self.counts.duplicates += part.duplicates.adds;
        }
        for identity in core::mem::take(&mut part.identities) {
            self.decide_identity(&identity, commit, turn.broker_ms);
        }
        let transactions = &mut self.transactions;
        if resolution == Resolution::Rollback && part.leaves_ahead() {
            turn.batch.push(Op::TxDrop { txn, queue: self.id });
        }
        if let Some(ticket) = part.until {
            transactions.waits.remove(&(ticket, txn));
        }
        if resolution == Resolution::Commit {
            part.commit(buffers);
        }
        transactions.ending.push_back(Ending::new(part, resolution == Resolution::Commit));
        self.errands = true;
    }

    /// Whether a part was rolled back.
    #[cold]
    pub(crate) fn drop_refused(&mut self, txn: TxnId, operations: u64, turn: &mut Turn<'_>) -> bool {
        if self.transactions.is_closed(txn) {
            self.transactions.owe(txn, operations as i64);
            return false;
        }
        let was_there = self.transactions.parts.contains_key(&txn);
        self.apply(txn, operations, Resolution::Rollback, &[], turn);
        was_there
    }

    /// Something of a branch in doubt from before this start.
    #[cold]
    pub(crate) fn recovered_op(&mut self, recovered: RecoveredOp, turn: &mut Turn<'_>) {
        let RecoveredOp { txn, op, .. } = recovered;
        let part = self.transactions.parts.get_or_insert_with(txn, Part::default);
        part.set_recovered();
        match op {
            RecoveredWork::Enqueue { index, head, content } => {
                part.recovered_add(index, head, content);
                self.counts.born(State::birth(true), content.length());
            }
            RecoveredWork::Number { producer, number, floor } => {
                let identity = Identity::Number(Numbered { producer, number, lowest: floor, fresh: false });
                self.claims.insert(identity.key(), txn);
                part.identities.push(identity);
            }
            RecoveredWork::DuplicateId(id) => {
                self.claims.insert(Identity::Id(id).key(), txn);
                part.identities.push(Identity::Id(id));
            }
            RecoveredWork::Acknowledge { sequence, deliveries, attempts, redelivery } => {
                // One that is not there did not survive, and the branch has nothing to do with it.
                let Some((level, place)) = self.anywhere(sequence) else { return };
                let before = deliveries.saturating_sub(1);
                let then = redelivery.map(|told| Box::new(Then::recovered(&told, before)));
                part_of(&mut self.transactions, txn).removes.push(Remove { level, sequence, then });
                let mut index = self.list(level).slot(place).packed.history;
                if index == NONE {
                    index = self.histories.add(level, sequence);
                    self.list_mut(level).slot_mut(place).packed.history = index;
                }
                // They rise again when it comes back.
                let history = self.histories.get_mut(index);
                (history.deliveries, history.attempts) = (before, attempts.saturating_sub(1));
                self.must(level, place, Event::Remove, turn);
            }
        }
    }

    /// A ready entry of this number, whatever its level.
    fn anywhere(&self, sequence: Sequence) -> Option<(u8, Place)> {
        let found = (0..10).find_map(|level| Some((level, self.find(level, sequence)?)));
        found.filter(|(level, place)| self.list(*level).slot(*place).packed.state() == State::Available)
    }

    /// The transactions that have a part here and are not decided.
    pub fn transactions(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.transactions.parts.keys().copied()
    }

    /// Those of them that are in doubt, being prepared.
    pub fn prepared(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.transactions.parts.iter().filter(|(_, part)| part.prepared).map(|(txn, _)| *txn)
    }

    /// Whether the queue must not be deleted or emptied as a whole, because something here is in doubt.
    pub fn in_doubt(&self) -> bool {
        self.prepared().next().is_some()
    }

    /// What an undecided transaction does here: what it adds, then what it removes. `from`: which is the first wanted, of all.
    pub fn part(&self, txn: TxnId, from: usize, max: usize) -> Vec<PartItem> {
        let Some(part) = self.transactions.parts.get(&txn) else { return Vec::new() };
        let adds = part.adds.iter().map(|add| PartItem::Add { head: add.packed.head(), length: add.packed.length() });
        let removes = part.removes.iter().skip(from.saturating_sub(part.adds.len()));
        let removes = removes.filter_map(|Remove { level, sequence, .. }| {
            let packed = &self.list(*level).slot(self.find(*level, *sequence)?).packed;
            Some(PartItem::Remove { sequence: *sequence, head: packed.head(), length: packed.length() })
        });
        adds.skip(from).chain(removes).take(max).collect()
    }

    /// What is prepared: messages added, and messages removed.
    pub(crate) fn prepared_counts(&self) -> (u64, u64) {
        let undecided =
            self.transactions.parts.values().filter(|p| p.prepared).map(|p| (p.adds.len(), p.removes.len()));
        let ending = self.transactions.ending.iter().filter(|e| e.part.prepared).map(Ending::left);
        undecided.chain(ending).fold((0, 0), |(a, b), (adds, removes)| (a + adds as u64, b + removes as u64))
    }

    /// Staged messages that are being rolled back: they are gone, but for the work.
    pub fn rolling_back(&self) -> u64 {
        self.transactions.ending.iter().map(|ending| ending.rolling_back() as u64).sum()
    }

    /// Files that nobody knows when the queue is gone.
    pub(crate) fn discard_files(&self, out: &mut Vec<Effect>) {
        let undecided = self.transactions.parts.values().flat_map(Part::unknown_files);
        let ending = self.transactions.ending.iter().flat_map(Ending::unknown_files);
        out.extend(undecided.chain(ending).map(Effect::Discard));
    }

    /// Checks the parts against the lists; a sentence if they differ. Answer: how many are staged here.
    pub(crate) fn audit_parts(&self) -> Result<u64, &'static str> {
        let (mut staged, mut removing) = (0, 0);
        let undecided = self.transactions.parts.values().map(|part| (part, 0, 0));
        let ending = self.transactions.ending.iter().map(|e| {
            let (adds, removes) = e.left();
            (&e.part, e.part.adds.len() - adds, e.part.removes.len() - removes)
        });
        let mut firsts = BTreeSet::new();
        for (part, adds, removes) in undecided.chain(ending) {
            firsts.extend(part.numbers.map(|numbers| numbers.first));
            staged += (part.adds.len() - adds) as u64;
            for Remove { level, sequence, .. } in &part.removes[removes..] {
                let slot = self.find(*level, *sequence).map(|place| self.list(*level).slot(place));
                if slot.is_none_or(|slot| slot.packed.state() != State::Removing) {
                    return Err("a transaction removes an entry that is not being removed");
                }
                removing += 1;
            }
        }
        if removing != self.counts.of(State::Removing) {
            return Err("an entry is being removed by no transaction, or by two");
        }
        let names = self.transactions.parts.iter().flat_map(|(txn, part)| part.identities.iter().map(|i| (i, *txn)));
        if !self.are_claimed(names) {
            return Err("what transactions claim is not what their messages are");
        }
        if firsts != self.transactions.drawn {
            return Err("the numbers drawn for parts are not those that they have");
        }
        Ok(staged)
    }
}

#[cold]
fn owe(dead: &mut BTreeMap<TxnId, i64>, txn: TxnId, operations: i64) {
    let owed = dead.entry(txn).or_default();
    *owed += operations;
    if *owed == 0 {
        dead.remove(&txn);
    }
}

fn part_of(transactions: &mut Transactions, txn: TxnId) -> &mut Part {
    transactions.parts.get_or_insert_with(txn, Part::default)
}
