//! The state machine of an entry (`spec/entry.md`, "States" and "Operations"): the one function that changes a state.
//!
//! Must not know: lists, counters, consumers. What a state carries (which delivery, which deadline) is kept beside the entry
//! by those who need it, so that a waiting entry costs nothing. The graph in `docs/states/entry.md` is generated from here.

use core::fmt;

/// Why an entry is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A consumer acknowledged it.
    Acknowledged,
    /// It lives on in the dead-letter queue.
    DeadLettered,
    /// An operator purged it.
    Purged,
    /// An operator moved it: it lives on in another queue.
    Moved,
    /// It never was: the operation that should have brought it died. Its number stays a gap.
    Abandoned,
}

/// The state of an entry: exactly one at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Stored, waiting for its flush, or for the record that brings it from another queue; or added by an undecided transaction.
    /// Nobody sees it.
    Staged = 0,
    /// Ready.
    Available = 1,
    /// Ready at a later time.
    Scheduled = 2,
    /// Given to one consumer and not settled, or on its way to the dead-letter queue.
    Acquired = 3,
    /// Its delivery has ended inside an undecided transaction.
    Removing = 4,
    /// Handed to a peer.
    Moving = 5,
    /// Its body failed its checksum or could not be read.
    Damaged = 6,
    /// No more.
    Gone = 7,
}

/// What can happen to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The record that stores it is durable.
    Durable,
    /// The operation that should have brought it died.
    Abandon,
    /// It is given to a consumer.
    Dispatch,
    /// The consumer has done with it.
    Acknowledge,
    /// It comes back; the application did not see it.
    ReturnUnseen,
    /// It comes back unseen, with annotations added, or free of suspicion.
    ReturnModified,
    /// It comes back; the application saw it.
    ReturnSeen,
    /// It comes back from a lost consumer; the application may have seen it, but was not working on it.
    ReturnLost,
    /// It is to go to another queue, though nobody holds it: it has killed the process too often, its queue is full, an operator
    /// moves it, a transaction that rejected it is committed, or one in which its delivery ended is over and its attempts are used up.
    Divert,
    /// It was to be moved by an operator, and the other queue cannot take it.
    Stay,
    /// It is to go to the dead-letter queue, and there is no room.
    Postpone,
    /// The record that moves it to the dead-letter queue is written.
    DeadLetter,
    /// The record that moves it to an operator's queue is written.
    Move,
    /// Its body turned out to be unreadable.
    Damage,
    /// An operator wants it gone.
    Purge,
    /// Its delivery ends in a transaction, or a start finds that it did in a branch in doubt.
    Remove,
    /// The transaction that adds or has acknowledged it is committed.
    Commit,
    /// The transaction that gave it back is committed; the application did not see it.
    CommitUnseen,
    /// The transaction that gave it back is committed; the application saw it.
    CommitSeen,
    /// The transaction that adds it, or in which its delivery ended, is rolled back, without a record.
    Rollback,
    /// The branch in which its delivery ended was in doubt, and is rolled back.
    DecideRollback,
}

/// The record that a transition of a stored entry writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nothing durable changes.
    None,
    /// `Acknowledge`.
    Acknowledge,
    /// `Redeliver`, durable before the next dispatch of the entry.
    Redeliver,
    /// `Relocate`, one record for both queues.
    Relocate,
    /// None of its own: the record that decides a transaction, or that it was prepared with, says it, and is durable.
    Decided,
}

/// What an event does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// Why, when the state after is [`State::Gone`].
    pub reason: Option<Reason>,
    /// Added to `deliveries`.
    pub deliveries: u32,
    /// Added to `attempts`.
    pub attempts: u32,
    /// Record to write.
    pub record: Record,
}

/// An event that cannot happen in this state: the caller is wrong, or the event is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an entry in state {:?} cannot take the event {:?}", self.state, self.event)
    }
}

impl core::error::Error for Illegal {}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 8] = [
        State::Staged,
        State::Available,
        State::Scheduled,
        State::Acquired,
        State::Removing,
        State::Moving,
        State::Damaged,
        State::Gone,
    ];

    /// Whether entries in this state count as depth (invariant 6).
    pub fn in_depth(self) -> bool {
        !matches!(self, State::Staged | State::Gone)
    }

    /// The state an entry is born in: `waits` when something must be durable before anyone may see it.
    pub fn birth(waits: bool) -> State {
        if waits { State::Staged } else { State::Available }
    }
}

impl Event {
    /// All events.
    pub const ALL: [Event; 21] = [
        Event::Durable,
        Event::Abandon,
        Event::Dispatch,
        Event::Acknowledge,
        Event::ReturnUnseen,
        Event::ReturnModified,
        Event::ReturnSeen,
        Event::ReturnLost,
        Event::Divert,
        Event::Stay,
        Event::Postpone,
        Event::DeadLetter,
        Event::Move,
        Event::Damage,
        Event::Purge,
        Event::Remove,
        Event::Commit,
        Event::CommitUnseen,
        Event::CommitSeen,
        Event::Rollback,
        Event::DecideRollback,
    ];
}

/// Decides what `event` does to an entry in `state`. Nothing else changes a state.
#[inline]
pub fn transition(state: State, event: Event) -> Result<Transition, Illegal> {
    TABLE[state as usize][event as usize].ok_or(Illegal { state, event })
}

/// All decisions, made when this is compiled: several are asked for with each message.
static TABLE: [[Option<Transition>; Event::ALL.len()]; State::ALL.len()] = {
    let mut table = [[None; Event::ALL.len()]; State::ALL.len()];
    let mut row = 0;
    while row < table.len() {
        let mut column = 0;
        while column < table[row].len() {
            table[row][column] = decide(State::ALL[row], Event::ALL[column]);
            column += 1;
        }
        row += 1;
    }
    table
};

/// See [`transition`]; `None` is illegal.
const fn decide(state: State, event: Event) -> Option<Transition> {
    use Event as E;
    use State as S;
    Some(match (state, event) {
        (S::Staged, E::Durable) => to(state, S::Available),
        (S::Staged, E::Abandon) => gone(state, Reason::Abandoned, Record::None),
        (S::Available, E::Dispatch) => to(state, S::Acquired),
        (S::Acquired, E::Acknowledge) => gone(state, Reason::Acknowledged, Record::Acknowledge),
        (S::Acquired, E::ReturnUnseen) => to(state, S::Available),
        (S::Acquired, E::ReturnModified) => back(state, 0, 0),
        (S::Acquired, E::ReturnSeen) => back(state, 1, 1),
        (S::Acquired, E::ReturnLost) => back(state, 1, 0),
        // Until the other queue has it. One that a transaction has goes when that rejected it, or its end was one attempt too many.
        (S::Available | S::Removing, E::Divert) => to(state, S::Scheduled),
        (S::Scheduled, E::Stay) => to(state, S::Available),
        (S::Scheduled, E::Move) => gone(state, Reason::Moved, Record::Relocate),
        (S::Acquired, E::Postpone) => to(state, S::Scheduled),
        (S::Acquired | S::Scheduled, E::DeadLetter) => gone(state, Reason::DeadLettered, Record::Relocate),
        // Found by reading ahead, or, of a large one, by its consumer's reading. Nobody reads what is on its way to another queue: that is
        // found there.
        (S::Available | S::Acquired, E::Damage) => to(state, S::Damaged),
        (S::Available | S::Scheduled | S::Damaged, E::Purge) => gone(state, Reason::Purged, Record::Acknowledge),
        (S::Available | S::Acquired, E::Remove) => to(state, S::Removing),
        (S::Staged, E::Commit) => to(state, S::Available),
        (S::Staged, E::Rollback) => gone(state, Reason::Abandoned, Record::None),
        (S::Removing, E::Commit) => gone(state, Reason::Acknowledged, Record::Decided),
        (S::Removing, E::CommitUnseen) => Transition { record: Record::Decided, ..back(state, 0, 0) },
        (S::Removing, E::CommitSeen | E::DecideRollback) => Transition { record: Record::Decided, ..back(state, 1, 1) },
        (S::Removing, E::Rollback) => back(state, 1, 1),
        // Moving is entered and left by the events of lanes.
        (S::Staged | S::Available | S::Scheduled | S::Acquired | S::Removing | S::Moving | S::Damaged | S::Gone, _) => {
            return None;
        }
    })
}

const fn to(from: State, to: State) -> Transition {
    Transition { from, to, reason: None, deliveries: 0, attempts: 0, record: Record::None }
}

const fn gone(from: State, reason: Reason, record: Record) -> Transition {
    Transition { reason: Some(reason), record, ..to(from, State::Gone) }
}

const fn back(from: State, deliveries: u32, attempts: u32) -> Transition {
    Transition { deliveries, attempts, record: Record::Redeliver, ..to(from, State::Available) }
}
