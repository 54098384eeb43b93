//! The queue as a value: what it consists of, the way in for entries, and the one place where an entry's state changes.
//!
//! Must not know: protocols, shards, where bodies are. Outcomes are in `settle`, dead letters in `relocate`, dispatch,
//! loads and everything done in slices in `dispatch`, limits in `limits`, operators' work in `purge` and `moves`.

use crate::browse::Browsers;
use crate::consumers::{ConsumerId, Consumers};
use crate::counts::{Counts, Stats};
use crate::entry::{Event, Illegal, Record, State, Transition};
use crate::exclusions::Exclusions;
use crate::history::{Histories, NONE};
use crate::ids::Ids;
use crate::input::{Answer, Effect, Enqueue, Input, Turn};
use crate::limits::Limits;
use crate::list::{List, Place};
use crate::marks::Marks;
use crate::moves::Mover;
use crate::producers::Producers;
use crate::purge::Purge;
use crate::relocate::Doomed;
use crate::slot::{Flag, Packed, Slot};
use crate::suspects::{Doubt, Suspects};
use crate::transactions::Transactions;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use packhorse_model::{
    Content, Head, IdentityKey, Overlay, Planted, QueueId, QueueName, QueueSettings, Sequence, TxnId, planted,
};
use packhorse_store::{Load, Op, RESERVE, RecoveredEntry, Stored, Ticket};

/// The level of messages that say nothing of their priority.
const USUAL_LEVEL: u8 = 4;

/// One priority level.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) list: List,
    /// Entries that become visible when these tickets are durable; both ascend.
    staged: VecDeque<(Ticket, Sequence)>,
    /// The bodies that were asked for.
    pub(crate) loading: Option<Load>,
    /// Of the bodies that came last: when this one is given, those after that one are asked for.
    pub(crate) ahead: Option<(Sequence, Sequence)>,
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: QueueName,
    pub(crate) settings: QueueSettings,
    /// It is somebody's dead-letter queue.
    pub(crate) dead_letters: bool,
    pub(crate) next: Sequence,
    /// Numbers below may be drawn, durably.
    reserved: Sequence,
    /// A reservation on its way.
    reserving: Option<(Ticket, Sequence)>,
    pub(crate) levels: [Option<Box<Level>>; 10],
    /// Which of them there are, a bit each.
    pub(crate) used: u16,
    pub(crate) histories: Histories,
    pub(crate) consumers: Consumers,
    pub(crate) exclusions: Exclusions,
    pub(crate) counts: Counts,
    pub(crate) marks: Marks,
    pub(crate) suspects: Suspects,
    pub(crate) transactions: Transactions,
    pub(crate) producers: Producers,
    pub(crate) ids: Ids,
    /// Messages in transactions that are not decided, by what tells that they are sent again: as many as these have such messages.
    pub(crate) claims: BTreeMap<IdentityKey, TxnId>,
    /// Entries that wait for their record, because they came back or are suspects: ticket, level, number. Tickets ascend.
    held: VecDeque<(Ticket, u8, Sequence)>,
    /// Entries on their way to other queues.
    pub(crate) doomed: BTreeMap<(u8, Sequence), Doomed>,
    /// Their bytes.
    pub(crate) doomed_bytes: u64,
    /// The dead-letter queue had no room the last time it was asked.
    pub(crate) jammed: bool,
    pub(crate) damaged: BTreeSet<(u8, Sequence)>,
    pub(crate) purges: VecDeque<Purge>,
    pub(crate) moves: VecDeque<Mover>,
    pub(crate) browsers: Browsers,
    pub(crate) limits: Limits,
    /// There is something to do in a dispatch beside giving entries to consumers: one look for all of it.
    pub(crate) errands: bool,
    pub(crate) epoch: u32,
    /// The last ticket that stored a body for memory's sake.
    volatile: Ticket,
    pub(crate) durable: Ticket,
}

impl Queue {
    /// A queue without entries. Numbers from `next` on may be drawn, up to `reserved`; both are durable with the queue.
    /// `dead_letters`: attempt limits do not apply and nothing is moved on to another dead-letter queue.
    pub fn new(
        id: QueueId,
        name: QueueName,
        settings: QueueSettings,
        next: Sequence,
        reserved: Sequence,
        dead_letters: bool,
    ) -> Queue {
        let mut queue = Queue {
            id,
            name,
            settings,
            dead_letters,
            next,
            reserved,
            reserving: None,
            levels: Default::default(),
            used: 0,
            histories: Histories::default(),
            consumers: Consumers::default(),
            exclusions: Exclusions::default(),
            counts: Counts::default(),
            marks: Marks::default(),
            suspects: Suspects::default(),
            transactions: Transactions::default(),
            producers: Producers::default(),
            ids: Ids::default(),
            claims: BTreeMap::new(),
            held: VecDeque::new(),
            doomed: BTreeMap::new(),
            damaged: BTreeSet::new(),
            doomed_bytes: 0,
            jammed: false,
            purges: VecDeque::new(),
            moves: VecDeque::new(),
            browsers: Browsers::default(),
            limits: Limits::default(),
            errands: false,
            epoch: 0,
            volatile: Ticket(0),
            durable: Ticket(0),
        };
        queue.set_limits();
        queue
    }

    /// Its id.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &QueueName {
        &self.name
    }

    /// Its settings.
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Whether it is a dead-letter queue.
    pub fn dead_letters(&self) -> bool {
        self.dead_letters
    }

    /// Says that it has become a dead-letter queue, or no longer is one.
    pub fn set_dead_letters(&mut self, dead_letters: bool) {
        self.dead_letters = dead_letters;
        self.set_limits();
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input<'_>, turn: &mut Turn<'_>, out: &mut alloc::vec::Vec<Effect>) -> Answer {
        match input {
            Input::Enqueue(message) => return Answer::Entered(self.enqueue(message, turn)),
            Input::Durable { up_to } => {
                self.on_durable(up_to, turn);
                if self.transactions.awaits().is_some() {
                    self.parts_durable(up_to, turn, out);
                }
            }
            Input::Subscribe { consumer, pre_settled } => self.consumers.add(consumer, pre_settled),
            Input::Browse { consumer } => self.browse(consumer),
            Input::Unsubscribe { consumer, lost } => {
                if !self.browser_leaves(consumer) {
                    self.consumers.leave(consumer, lost);
                }
            }
            Input::Credit { consumer, limit } => {
                if !self.browser_credit(consumer, limit) {
                    self.consumers.set_limit(consumer, limit);
                }
            }
            Input::Settle { key, outcome } => return Answer::Settled(self.settle(key, outcome, turn, out)),
            Input::Unreadable { key } => return Answer::Settled(self.unreadable(key, turn, out)),
            Input::Loaded { buffer, loaded } => self.on_loaded(buffer, loaded, turn, out),
            Input::Recovered(entry) => self.on_recovered(*entry, turn),
            Input::Reserve { head, content, stored, deliveries, overlay } => {
                return Answer::Entered(self.reserve(head, content, stored, deliveries, overlay, turn));
            }
            Input::Arrived { level, sequence } => self.on_arrived(level, sequence, Event::Durable, turn),
            Input::Abandon { level, sequence } => self.on_arrived(level, sequence, Event::Abandon, turn),
            Input::Relocate { key, to, stored } => return Answer::Settled(self.relocate(key, to, stored, turn)),
            Input::RelocateFailed { key } => self.postpone(key, turn),
            Input::Purge { token } => self.begin_purge(token),
            Input::Move { token, limit, strip_ttl } => self.begin_move(token, limit, strip_ttl),
            Input::StageEnqueue { txn, head, content, identity } => {
                return Answer::Settled(self.stage_enqueue(txn, head, content, identity, turn, out));
            }
            Input::StageSettle { txn, key, outcome } => {
                return Answer::Settled(self.stage_settle(txn, key, outcome, turn, out));
            }
            Input::StageAccept { txn, keys } => return Answer::Settled(self.stage_accept(txn, keys, turn, out)),
            Input::StageRefused { txn } => self.stage_refused(txn, turn, out),
            Input::StageDuplicate { txn, identity, bytes } => self.stage_duplicate(txn, &identity, bytes, turn, out),
            Input::Gather { txn, operations, purpose } => self.gather(txn, operations, purpose, turn, out),
            Input::Apply { txn, operations, resolution, buffers } => {
                self.apply(txn, operations, resolution, buffers, turn);
            }
            Input::DropRefused { txn, operations } => {
                return Answer::Settled(self.drop_refused(txn, operations, turn));
            }
            Input::OpenProducer { producer, lowest, next } => {
                return Answer::Floor(self.open_producer(producer, lowest, next, turn));
            }
            Input::Look { identity, txn } => return Answer::Known(self.look_for(&identity, txn, turn)),
            Input::Identify { identity, persistent } => self.identify(&identity, persistent, turn),
            Input::RecoveredId(id, at_ms) => self.ids.take(id, at_ms),
            Input::RecoveredProducer(told) => self.recovered_producer(*told),
            Input::RecoveredOp(op) => self.recovered_op(*op, turn),
            Input::Delete => {
                self.discard_files(out);
                turn.batch.push(Op::QueueDelete { id: self.id });
            }
            Input::Settings(settings) => {
                self.settings = settings;
                self.set_limits();
                turn.batch.push(Op::QueueChange { id: self.id, settings: self.settings.clone() });
            }
        }
        Answer::Nothing
    }

    /// The lowest ticket whose durability this queue waits for.
    pub fn awaits(&self) -> Option<Ticket> {
        let levels = self.used_levels().filter_map(|l| l.staged.front().map(|(ticket, _)| *ticket));
        let reserving = self.reserving.map(|(ticket, _)| ticket);
        let others = [reserving, self.held.front().map(|h| h.0), self.marks.awaits(), self.transactions.awaits()];
        levels.chain(others.into_iter().flatten()).min()
    }

    /// Whether it waits for any: the same question, and cheaper, for it is asked after each message.
    #[inline]
    pub fn waits(&self) -> bool {
        self.used_levels().any(|l| !l.staged.is_empty())
            || self.reserving.is_some()
            || !self.held.is_empty()
            || self.marks.awaits().is_some()
            || self.transactions.awaits().is_some()
    }

    /// The monotonic time, µs, at which [`Queue::dispatch`] has something to do even if nothing else happens.
    pub fn next_deadline(&self) -> Option<u64> {
        let probation = self.suspects.next_deadline();
        if self.doomed.is_empty() {
            return probation;
        }
        self.doomed.values().filter_map(|d| d.retry_at_us).chain(probation).min()
    }

    /// Its figures.
    pub fn stats(&self) -> Stats {
        let lists = self.levels.iter().flatten().map(|l| &l.list);
        let oldest = lists.filter_map(|l| l.live().find(|s| s.packed.state() != State::Staged));
        let (prepared_in, prepared_out) = self.prepared_counts();
        Stats {
            prepared_in,
            prepared_out,
            consumers: (self.consumers.len() + self.browsers.len()) as u64,
            credit: self.consumers.credit() + self.browsers.credit(),
            oldest_arrived_ms: oldest.map(|s| s.packed.arrived_ms).min(),
            ..self.counts.stats()
        }
    }

    /// What was added to an entry since it was stored.
    pub fn overlay(&self, level: u8, sequence: Sequence) -> Option<&Overlay> {
        let list = &self.levels.get(usize::from(level))?.as_ref()?.list;
        let slot = list.slot(list.find(sequence)?);
        if slot.packed.history == NONE {
            return None;
        }
        self.histories.get(slot.packed.history).overlay.as_deref()
    }

    /// Credit that a consumer has left.
    pub fn credit_of(&self, consumer: ConsumerId) -> u64 {
        match self.consumers.index(consumer) {
            Some(index) => self.consumers.get(index).credit(),
            None => self.browsers.credit_of(consumer),
        }
    }

    /// Whether nothing is ready, or about to be loaded or returned, that this consumer could get: a drain is complete.
    pub fn quiet_for(&self, consumer: ConsumerId) -> bool {
        if self.consumers.leaving().is_some() || !self.transactions.ending.is_empty() {
            return false;
        }
        if self.counts.of(State::Available) == 0 {
            return true;
        }
        let Some(index) = self.consumers.index(consumer) else { return self.browsers.quiet(consumer) };
        let Some(below) = &self.consumers.get(index).refused_below else { return false };
        self.levels.iter().enumerate().all(|(level, lists)| {
            let Some(l) = lists else { return true };
            let refused = |s| s < below[level] || self.exclusions.contains(consumer, level as u8, s);
            !l.list.unrestricted_ready() && l.list.restricted().all(refused)
        })
    }

    /// Draws so many numbers, one after the other, and answers the first. If the reservation of the last is not durable yet, the ticket
    /// that makes it so: nobody may see its entry before that, for a later start must never draw the number again.
    pub(crate) fn draw(&mut self, count: u64, turn: &mut Turn<'_>) -> (Sequence, Option<Ticket>) {
        let first = self.next;
        self.next += count;
        let enough = match self.reserving {
            None => self.next + RESERVE / 2 < self.reserved,
            Some((_, up_to)) => self.next <= up_to,
        };
        if !enough {
            let up_to = self.reserved.max(self.next) + RESERVE;
            turn.batch.push(Op::Reserve { queue: self.id, up_to });
            self.reserving = Some((turn.ticket, up_to));
        }
        let reservation = self.reserving.filter(|_| self.next > self.reserved).map(|(ticket, _)| ticket);
        (first, reservation)
    }

    /// The lowest number that waits for a flush.
    pub(crate) fn first_staged(&self) -> Option<Sequence> {
        self.levels.iter().flatten().filter_map(|l| l.staged.front()).map(|(_, sequence)| *sequence).min()
    }

    /// The levels that there are, from the lowest.
    #[inline]
    fn used_levels(&self) -> impl Iterator<Item = &Level> {
        let mut left = self.used;
        core::iter::from_fn(move || {
            let level = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            self.levels.get(level)?.as_deref()
        })
    }

    pub(crate) fn level_mut(&mut self, level: u8) -> &mut Level {
        let at = &mut self.levels[usize::from(level)];
        if at.is_none() {
            self.used |= 1 << level;
        }
        at.get_or_insert_default()
    }

    /// The list of a level that holds an entry.
    pub(crate) fn list(&self, level: u8) -> &List {
        &self.levels[usize::from(level)].as_ref().expect("a level with an entry").list
    }

    /// The list of a level that holds an entry.
    pub(crate) fn list_mut(&mut self, level: u8) -> &mut List {
        &mut self.levels[usize::from(level)].as_mut().expect("a level with an entry").list
    }

    pub(crate) fn find(&self, level: u8, sequence: Sequence) -> Option<Place> {
        self.levels.get(usize::from(level))?.as_ref()?.list.find(sequence)
    }

    /// The ready entry with the lowest number, of whatever level.
    pub(crate) fn oldest_ready(&mut self) -> Option<(u8, Sequence, Place)> {
        let mut oldest: Option<(u8, Sequence, Place)> = None;
        for level in 0..10u8 {
            let first = self.levels[usize::from(level)].as_mut().and_then(|l| l.list.first_ready(&mut 0, |_| true));
            if let Some((sequence, place)) = first
                && oldest.is_none_or(|(_, before, _)| sequence < before)
            {
                oldest = Some((level, sequence, place));
            }
        }
        oldest
    }

    fn enqueue(&mut self, message: Enqueue, turn: &mut Turn<'_>) -> Sequence {
        let Enqueue { head, content, stored, overlay } = message;
        let persistent = head.persistent();
        assert!(!persistent || stored.is_some(), "a persistent message is in the batch");
        let (sequence, reservation) = self.draw(1, turn);
        let level = head.level();
        // A non-persistent entry does not overtake a persistent one that waits for its flush (invariant 4).
        let before = self.level_mut(level).staged.back().map(|(ticket, _)| *ticket);
        let until = if persistent { Some(turn.ticket) } else { before.max(reservation) };
        let state = State::birth(until.is_some());
        let mut packed = Packed::new(head, content, state);
        if let Some(stored) = stored {
            packed.set(Flag::Stored, true);
            self.store(sequence, head, stored, turn);
        }
        if let Some(overlay) = overlay {
            let history = self.histories.add(level, sequence);
            self.histories.get_mut(history).overlay = Some(overlay);
            packed.history = history;
            packed.set(Flag::Overlay, true);
        }
        self.counts.born(state, packed.length());
        let l = self.level_mut(level);
        l.list.push(Slot { sequence, packed });
        if let Some(ticket) = until {
            l.staged.push_back((ticket, sequence));
        }
        if persistent && self.counts.of(State::Available) == 0 && self.consumers.credit() > 0 {
            self.mark(sequence, turn);
        }
        sequence
    }

    pub(crate) fn store(&mut self, sequence: Sequence, head: Head, content: Stored, turn: &mut Turn<'_>) {
        let volatile = !head.persistent();
        if volatile {
            self.volatile = turn.ticket;
        }
        turn.batch.push(Op::Enqueue { queue: self.id, sequence, head, content, volatile });
    }

    /// Sees to it that the range of `sequence` is marked; true if the mark is in this turn's batch.
    pub(crate) fn mark(&mut self, sequence: Sequence, turn: &mut Turn<'_>) -> bool {
        self.mark_many(sequence, self.consumers.credit(), turn)
    }

    fn mark_many(&mut self, sequence: Sequence, soon: u64, turn: &mut Turn<'_>) -> bool {
        let floor = self.levels.iter().flatten().filter_map(|l| l.list.floor()).min().unwrap_or(sequence);
        let soon = self.counts.of(State::Available).min(soon);
        self.marks.write(self.id, sequence, soon, floor, turn)
    }

    /// Whether a ready entry that nobody has seen may be taken out, by an operator or for lack of room. What is behind it goes on before that is
    /// durable, and a crash can bring it back: then it must be marked as what was given out is. Otherwise its range is marked first, and others if
    /// so many more are to go `soon`.
    pub(crate) fn may_leave(
        &mut self,
        level: u8,
        sequence: Sequence,
        place: Place,
        soon: u64,
        turn: &mut Turn<'_>,
    ) -> bool {
        let packed = &self.list(level).slot(place).packed;
        let told = packed.history != NONE && self.histories.get(packed.history).deliveries > 0;
        if told || !packed.persistent() || self.marks.cover(sequence) {
            return true;
        }
        if self.mark_many(sequence, soon, turn) {
            turn.batch.require_flush();
        }
        false
    }

    fn reserve(
        &mut self,
        head: Head,
        content: Content,
        stored: bool,
        deliveries: u32,
        overlay: Box<Overlay>,
        turn: &mut Turn<'_>,
    ) -> Sequence {
        let (sequence, _) = self.draw(1, turn);
        let level = head.level();
        let mut packed = Packed::new(head, content, State::birth(true));
        packed.set(Flag::Stored, stored);
        let told = *overlay != Overlay::default();
        packed.set(Flag::Overlay, told);
        if told || deliveries > 0 {
            packed.history = self.histories.add(level, sequence);
            let history = self.histories.get_mut(packed.history);
            (history.deliveries, history.overlay) = (deliveries, told.then_some(overlay));
        }
        self.counts.born(State::Staged, packed.length());
        self.level_mut(level).list.push(Slot { sequence, packed });
        sequence
    }

    fn on_arrived(&mut self, level: u8, sequence: Sequence, event: Event, turn: &mut Turn<'_>) {
        // Only a reservation may be ended so: what waits for a flush of its own has a ticket.
        if let Some(place) = self.find(level, sequence)
            && self.list(level).slot(place).packed.state() == State::Staged
        {
            self.must(level, place, event, turn);
        }
    }

    pub(crate) fn on_durable(&mut self, up_to: Ticket, turn: &mut Turn<'_>) {
        self.durable = up_to;
        self.marks.durable(up_to);
        if let Some((ticket, reserved)) = self.reserving
            && ticket <= up_to
        {
            self.reserved = reserved;
            self.reserving = None;
        }
        let mut rest = self.used;
        while rest != 0 {
            let level = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            while let Some(l) = &mut self.levels[usize::from(level)]
                && let Some(&(ticket, sequence)) = l.staged.front()
                && ticket <= up_to
            {
                l.staged.pop_front();
                let place = l.list.find(sequence).expect("a staged entry is in its list");
                self.must(level, place, Event::Durable, turn);
            }
        }
        while let Some(&(ticket, level, sequence)) = self.held.front()
            && ticket <= up_to
        {
            self.held.pop_front();
            // It may have been purged meanwhile.
            if let Some(place) = self.find(level, sequence) {
                self.list_mut(level).slot_mut(place).packed.set(Flag::Held, false);
                if sequence < self.suspects.below {
                    self.mark_durable(place, level, turn);
                }
            }
        }
    }

    fn on_recovered(&mut self, entry: RecoveredEntry, turn: &mut Turn<'_>) {
        let RecoveredEntry { key, head, content, deliveries, attempts, suspect, mut overlay } = entry;
        let letter = overlay.as_mut().filter(|overlay| overlay.leaves()).and_then(|o| o.dead_letter.take());
        let overlay = overlay.filter(|overlay| **overlay != Overlay::default());
        let (level, sequence) = (head.level(), key.sequence);
        let mut packed = Packed::new(head, content, State::birth(false));
        packed.set(Flag::Stored, true);
        packed.set(Flag::Overlay, overlay.is_some());
        if suspect.is_some() || deliveries > 0 || attempts > 0 || overlay.is_some() {
            let history = self.histories.add(level, sequence);
            let h = self.histories.get_mut(history);
            (h.deliveries, h.attempts, h.overlay) = (deliveries, attempts, overlay);
            packed.history = history;
            if let Some(blame) = suspect {
                self.recovered_suspect(level, sequence, history, blame);
            }
        }
        self.counts.recovered(packed.length());
        self.next = match planted(Planted::ReuseSequence) {
            false => self.next.max(sequence + 1),
            true if level == USUAL_LEVEL => sequence + 1,
            true => self.next,
        };
        self.level_mut(level).list.push(Slot { sequence, packed });
        if let Some(letter) = letter {
            self.leave_again(level, sequence, *letter, turn);
        }
    }

    /// Lets `event` happen to an entry in its list, and everything that follows from it by rule: figures, the order of what is ready, the
    /// record. Nothing else changes a state.
    pub(crate) fn change(
        &mut self,
        level: u8,
        place: Place,
        event: Event,
        turn: &mut Turn<'_>,
    ) -> Result<Transition, Illegal> {
        let list = &mut self.levels[usize::from(level)].as_mut().expect("a level with an entry").list;
        let slot = list.slot_mut(place);
        let transition = slot.apply(event)?;
        let restricted = slot.packed.has(Flag::Restricted);
        let (stored, persistent) = (slot.packed.has(Flag::Stored), slot.packed.persistent());
        let (sequence, length, history) = (slot.sequence, slot.packed.length(), slot.packed.history);
        let deliveries = if history == NONE { 0 } else { self.histories.get(history).deliveries };
        self.counts.changed(&transition, length, deliveries);
        match transition.record {
            Record::Acknowledge if stored && !planted(Planted::ForgetAcknowledgement) => {
                turn.batch.acknowledge(self.id, sequence)
            }
            // No start recovers it, so the record does not name it.
            Record::Decided if transition.to == State::Gone => {
                if stored && !persistent {
                    turn.batch.acknowledge(self.id, sequence);
                }
            }
            Record::Redeliver | Record::Decided => {
                let h = self.histories.get_mut(history);
                h.deliveries = h.deliveries.saturating_add(transition.deliveries);
                h.attempts = h.attempts.saturating_add(transition.attempts);
                (h.doubt, h.crashes, h.passed) = (Doubt::No, 0, 0);
                if stored && persistent && transition.record == Record::Redeliver {
                    slot.packed.set(Flag::Held, true);
                    self.held.push_back((turn.ticket, level, sequence));
                    let forgets = h.deliveries > 1 && planted(Planted::ForgetCount);
                    let recorded = h.deliveries - u32::from(forgets);
                    turn.batch.push(Op::Redeliver {
                        entry: packhorse_model::EntryKey { queue: self.id, sequence },
                        deliveries: recorded,
                        attempts: h.attempts,
                        overlay: h.overlay.clone(),
                    });
                    if self.consumers.credit() > 0 {
                        turn.batch.require_flush();
                    }
                }
            }
            // The record of a relocation names its target: `relocate` writes it.
            Record::None | Record::Acknowledge | Record::Relocate => {}
        }
        if transition.from == State::Available {
            list.remove_ready(sequence, restricted);
        }
        match transition.to {
            State::Available => {
                list.add_ready(sequence, restricted);
                if restricted {
                    let exclusions = &self.exclusions;
                    self.consumers.look_again(level, sequence, |c| exclusions.contains(c, level, sequence));
                }
            }
            State::Gone => {
                list.bury(place);
                if history != NONE {
                    self.histories.remove(history);
                }
                if restricted {
                    self.exclusions.remove_entry(level, sequence);
                }
            }
            _ => {}
        }
        Ok(transition)
    }

    /// [`Queue::change`] where the caller has seen that the event fits the state.
    pub(crate) fn must(&mut self, level: u8, place: Place, event: Event, turn: &mut Turn<'_>) -> Transition {
        match self.change(level, place, event, turn) {
            Ok(transition) => transition,
            Err(illegal) => panic!("queue {}: {illegal}", self.name),
        }
    }

    /// An entry that is ready waits for a record in this turn's batch.
    pub(crate) fn hold(&mut self, level: u8, sequence: Sequence, turn: &Turn<'_>) {
        let place = self.find(level, sequence).expect("what is ready is in its list");
        self.list_mut(level).slot_mut(place).packed.set(Flag::Held, true);
        self.held.push_back((turn.ticket, level, sequence));
    }

    /// What [`Queue::errands`] must say.
    pub(crate) fn has_errands(&self) -> bool {
        let ending = !self.transactions.ending.is_empty();
        ending || self.limits.drops() || !self.purges.is_empty() || !self.moves.is_empty() || self.browsers.len() > 0
    }

    /// Whether the record that holds this entry back is in this turn's batch.
    pub(crate) fn held_by(&self, turn: &Turn<'_>) -> bool {
        self.held.back().is_some_and(|(ticket, ..)| *ticket == turn.ticket)
    }

    /// Whether a body stored for memory's sake may still be on its way into the store.
    pub(crate) fn volatile_pending(&self) -> bool {
        self.volatile > self.durable
    }

    /// Checks the queue against its invariants by looking at every entry; a sentence if one is broken. For tests and
    /// simulations.
    pub fn audit(&self) -> Result<(), &'static str> {
        let mut counted = [0u64; State::ALL.len()];
        let mut bytes = 0;
        let mut histories = 0;
        for l in self.levels.iter().flatten() {
            l.list.audit()?;
            for slot in l.list.live() {
                counted[slot.packed.state() as usize] += 1;
                bytes += if slot.packed.state().in_depth() { slot.packed.length() } else { 0 };
                if slot.packed.history == NONE {
                    continue;
                }
                histories += 1;
                let history = self.histories.get(slot.packed.history);
                if (history.level, history.sequence) != (slot.packed.level(), slot.sequence) {
                    return Err("a history belongs to another entry");
                }
            }
        }
        counted[State::Staged as usize] += self.audit_parts()?;
        if self.waits() != self.awaits().is_some() {
            return Err("whether it waits is not what it waits for");
        }
        if State::ALL.iter().any(|s| counted[*s as usize] != self.counts.of(*s)) {
            return Err("a state is miscounted");
        }
        if bytes != self.counts.stats().bytes {
            return Err("the bytes are miscounted");
        }
        if self.errands != self.has_errands() {
            return Err("what is to be done in a dispatch is not known");
        }
        let doomed = self.doomed.keys().filter_map(|(level, s)| Some(self.list(*level).slot(self.find(*level, *s)?)));
        if self.doomed_bytes != doomed.map(|slot| slot.packed.length()).sum::<u64>() {
            return Err("the bytes on their way to other queues are miscounted");
        }
        if histories != self.histories.len() {
            return Err("a history has no entry");
        }
        if !self.counts.conserved() {
            return Err("entries came or went uncounted");
        }
        self.consumers.audit()
    }
}
