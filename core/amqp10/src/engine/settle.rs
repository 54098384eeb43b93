//! Settlement: what is unsettled in each direction, the peer's dispositions, and ours in ranges.
//!
//! Owns the tables of unsettled deliveries and the merging of dispositions. A disposition costs what is outstanding, never
//! the width of its range.

use alloc::format;
use alloc::vec::Vec;

use super::connection::{Connection, role_index};
use super::emit::{Emit, Kind};
use super::event::{Decision, DeliveryOutcome, Fault};
use super::serial::Serial;
use super::session::{Session, after_end};
use super::terms::Misuse;
use super::{LinkId, SessionId};
use crate::codec::{DeliveryState, Disposition, Role, Symbols, Value};

/// A delivery that we sent and that is not settled.
#[derive(Debug)]
pub(crate) struct OutDelivery {
    pub(crate) link: LinkId,
    pub(crate) link_token: u64,
    pub(crate) token: u64,
    /// The terminal state that the peer gave it; final.
    pub(crate) decided: Option<Decision>,
}

/// A delivery that came and is not settled.
#[derive(Debug)]
pub(crate) struct InDelivery {
    pub(crate) link: LinkId,
    pub(crate) link_token: u64,
    pub(crate) token: u64,
    pub(crate) tag: [u8; 32],
    pub(crate) tag_len: u8,
    pub(crate) tag_hash: u32,
}

/// What the source of a sending link says about outcomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcomes {
    /// For deliveries settled without a state.
    default: Decision,
    /// Bits of those that are allowed; 0 = all.
    allowed: u8,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { default: Decision::Released, allowed: 0 }
    }
}

impl Outcomes {
    pub(crate) fn new(default: Decision, outcomes: &Symbols<'_>) -> Self {
        let mut allowed = 0;
        for symbol in outcomes.iter() {
            allowed |= match symbol {
                "amqp:accepted:list" => bit(Decision::Accepted),
                "amqp:rejected:list" => bit(Decision::Rejected),
                "amqp:released:list" => bit(Decision::Released),
                "amqp:modified:list" => bit(MODIFIED),
                "amqp:declared:list" => bit(Decision::Declared),
                // An outcome we do not know restricts the others all the same.
                _ => 1 << 7,
            };
        }
        Self { default, allowed }
    }

    fn allow(self, decision: Decision) -> bool {
        let bit = bit(decision);
        self.allowed == 0 || bit == 0 || self.allowed & bit != 0
    }
}

const MODIFIED: Decision = Decision::Modified { delivery_failed: false, undeliverable_here: false };

fn bit(decision: Decision) -> u8 {
    match decision {
        Decision::Accepted => 1,
        Decision::Rejected => 2,
        Decision::Released => 4,
        Decision::Modified { .. } => 8,
        Decision::Declared => 16,
        Decision::None | Decision::Received | Decision::Transactional | Decision::Other => 0,
    }
}

/// A state without its fields.
pub(crate) fn decision_of(state: Option<&DeliveryState<'_>>) -> Decision {
    match state {
        None => Decision::None,
        Some(DeliveryState::Received(_)) => Decision::Received,
        Some(DeliveryState::Accepted) => Decision::Accepted,
        Some(DeliveryState::Rejected(_)) => Decision::Rejected,
        Some(DeliveryState::Released) => Decision::Released,
        Some(DeliveryState::Modified(modified)) => Decision::Modified {
            delivery_failed: modified.delivery_failed,
            undeliverable_here: modified.undeliverable_here,
        },
        Some(DeliveryState::Declared(_)) => Decision::Declared,
        Some(DeliveryState::Transactional(_)) => Decision::Transactional,
        Some(DeliveryState::Other(_)) => Decision::Other,
    }
}

/// A disposition of ours that may still grow.
#[derive(Debug, Default)]
pub(crate) struct PendingRange {
    open: bool,
    first: Serial,
    last: Serial,
    settled: bool,
    /// The encoded state; empty = none.
    state: Vec<u8>,
    /// The caller's number for that state, see [`Connection::settle_incoming_as`]; 0 = none.
    number: u64,
}

/// `accepted`, encoded.
const ACCEPTED: [u8; 4] = [0x00, 0x53, 0x24, 0x45];

impl Session {
    /// Forgets a delivery that came.
    pub(crate) fn forget_incoming(&mut self, id: Serial) -> Option<InDelivery> {
        let delivery = self.incoming.remove(id)?;
        self.tags.remove(delivery.tag_hash, id);
        Some(delivery)
    }

    /// Forgets all deliveries of a link, in both directions.
    pub(crate) fn forget_deliveries(&mut self, link: LinkId) {
        if self.outgoing.len() > 0 {
            self.outgoing.retain(|_, delivery| delivery.link != link);
        }
        if self.incoming.len() > 0 {
            let tags = &mut self.tags;
            self.incoming.retain(|id, delivery| {
                if delivery.link == link {
                    tags.remove(delivery.tag_hash, id);
                }
                delivery.link != link
            });
        }
    }
}

impl Connection {
    //= amqp10 2.7.6
    pub(crate) fn on_disposition(
        &mut self,
        channel: u16,
        disposition: &Disposition<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let id = self.session_on(channel, "disposition")?;
        let Some(session) = self.session(id) else { return Ok(None) };
        if session.end_sent {
            return Ok(None);
        }
        if session.end_seen {
            return Err(after_end(channel, "disposition"));
        }
        let first = Serial(disposition.first);
        let last = Serial(disposition.last.unwrap_or(disposition.first));
        if first.after(last) {
            let text = format!("disposition from {} to {}: first after last", first.0, last.0);
            return Ok(self.fail_session(id, Fault::new("amqp:invalid-field", text)));
        }
        let decision = decision_of(disposition.state.as_ref());
        if !disposition.settled && matches!(decision, Decision::None | Decision::Received) {
            //= amqp10 3.4 (not terminal: no change)
            return Ok(None);
        }
        let ours = disposition.role == Role::Receiver;
        if ours {
            // The outcome inside a transaction is bound by the source as well.
            let inner = match &disposition.state {
                Some(DeliveryState::Transactional(state)) => {
                    state.outcome.map_or(Decision::None, |outcome| decision_of(Some(&outcome.into())))
                }
                _ => decision,
            };
            self.outcomes_of_ours(id, first, last, disposition.settled, decision, inner);
        } else {
            self.settled_by_sender(id, first, last, disposition.settled, decision);
        }
        let count = self.outcomes.len() as u32;
        // In a transaction it matters that nothing was found: what its work assumes does not hold.
        let stale = ours && decision == Decision::Transactional && self.pending.is_empty();
        if count == 0 && !stale {
            return Ok(self.pending.pop_front());
        }
        Ok(Some(Emit::framed(Kind::Disposition { session: id, ours, count }, frame, body)))
    }

    /// The receiver spoke of deliveries that we sent.
    fn outcomes_of_ours(
        &mut self,
        id: SessionId,
        first: Serial,
        last: Serial,
        settled: bool,
        told: Decision,
        inner: Decision,
    ) {
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        let (links, outcomes) = (&self.links, &mut self.outcomes);
        let mut forbidden: Option<LinkId> = None;
        session.outgoing.visit(first, last, |delivery_id, delivery| {
            let terms = links.get(delivery.link.index, delivery.link.generation).map(|link| link.outcomes);
            let terms = terms.unwrap_or_default();
            if !terms.allow(inner) {
                // One link at a time: the next disposition finds the next.
                forbidden = forbidden.or(Some(delivery.link));
                return true;
            }
            let outcome = |state, repeated| DeliveryOutcome {
                link: delivery.link,
                link_token: delivery.link_token,
                token: delivery.token,
                delivery_id: delivery_id.0,
                state,
                settled,
                repeated,
            };
            if settled {
                //= amqp10 3.5.3 (settled without an outcome: the default outcome)
                outcomes.push(match (delivery.decided, told) {
                    (Some(decided), _) => outcome(decided, true),
                    (None, Decision::None | Decision::Received) => outcome(terms.default, false),
                    (None, state) => outcome(state, false),
                });
                return false;
            }
            match told {
                // Provisional until the transaction ends.
                Decision::Transactional => outcomes.push(outcome(told, false)),
                state if delivery.decided.is_none() => {
                    outcomes.push(outcome(state, false));
                    delivery.decided = Some(state);
                }
                // A terminal state is final.
                _ => {}
            }
            true
        });
        if let Some(link) = forbidden {
            let text = format!("outcome {inner:?} is not among the source's outcomes");
            if let Some(emit) = self.fail_link(link, Fault::new("amqp:not-allowed", text)) {
                self.pending.push_back(emit);
            }
        }
    }

    /// The sender settled deliveries that we received.
    fn settled_by_sender(&mut self, id: SessionId, first: Serial, last: Serial, settled: bool, state: Decision) {
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        if !settled {
            return;
        }
        let (outcomes, tags) = (&mut self.outcomes, &mut session.tags);
        session.incoming.visit(first, last, |delivery_id, delivery| {
            outcomes.push(DeliveryOutcome {
                link: delivery.link,
                link_token: delivery.link_token,
                token: delivery.token,
                delivery_id: delivery_id.0,
                state,
                settled: true,
                repeated: false,
            });
            tags.remove(delivery.tag_hash, delivery_id);
            false
        });
    }

    /// Sets the caller's number for a delivery that came, for the outcome in which the peer settles it.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`]. A delivery that is settled already is not an error.
    pub fn set_incoming_token(&mut self, link: LinkId, delivery_id: u32, token: u64) -> Result<(), Misuse> {
        let session = self.link(link).ok_or(Misuse::NoLink)?.session;
        if let Some(delivery) =
            self.session_mut(session).and_then(|session| session.incoming.get_mut(Serial(delivery_id)))
            && delivery.link == link
        {
            delivery.token = token;
        }
        Ok(())
    }

    /// Gives a state to a delivery that came, and settles it if `settled`. Goes out with `flush`, in a range with its
    /// neighbors where those are alike.
    ///
    /// Tells whether the delivery was still unsettled; if not, nothing happens.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotOpen`], [`Misuse::NoLink`] (our `detach` is out: nothing may follow it).
    ///
    //= amqp10 2.8.3
    pub fn settle_incoming(
        &mut self,
        link: LinkId,
        delivery_id: u32,
        state: Option<&DeliveryState<'_>>,
        settled: bool,
    ) -> Result<bool, Misuse> {
        self.settle_incoming_as(link, delivery_id, state, settled, 0)
    }

    /// The same, with a number for the state: on this connection one number always stands for one state, so that neighbors with the
    /// same number are alike, and are not compared. 0: it has none.
    ///
    /// # Errors
    ///
    /// As [`Connection::settle_incoming`].
    pub fn settle_incoming_as(
        &mut self,
        link: LinkId,
        delivery_id: u32,
        state: Option<&DeliveryState<'_>>,
        settled: bool,
        number: u64,
    ) -> Result<bool, Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        let ours = self.link(link).filter(|link| link.detach_sent.is_none()).ok_or(Misuse::NoLink)?;
        let session = ours.session;
        let id = Serial(delivery_id);
        let Some(holder) = self.sessions.get_mut(session.index, session.generation) else {
            return Err(Misuse::NoLink);
        };
        if holder.incoming.get(id).is_none_or(|delivery| delivery.link != link) {
            return Ok(false);
        }
        if settled {
            holder.forget_incoming(id);
        }
        self.dispose(session, Role::Receiver, id, state, settled, number);
        Ok(true)
    }

    /// Settles a delivery of ours after the peer told its outcome ([`DeliveryOutcome`] not settled). Goes out with `flush`,
    /// in a range with its neighbors.
    ///
    /// Tells whether the delivery was still unsettled; if not, nothing happens.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotOpen`], [`Misuse::NoSession`].
    pub fn settle_outgoing(&mut self, session: SessionId, delivery_id: u32) -> Result<bool, Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        let holder = self.session_mut(session).filter(|session| !session.end_sent).ok_or(Misuse::NoSession)?;
        let Some(delivery) = holder.outgoing.remove(Serial(delivery_id)) else { return Ok(false) };
        // Behind our `detach` nothing is said about its deliveries.
        if self.link(delivery.link).is_some_and(|link| link.detach_sent.is_none()) {
            self.dispose(session, Role::Sender, Serial(delivery_id), None, true, 0);
        }
        Ok(true)
    }

    /// Adds to the range of a session, or writes that and begins a new one.
    fn dispose(
        &mut self,
        id: SessionId,
        role: Role,
        delivery: Serial,
        state: Option<&DeliveryState<'_>>,
        settled: bool,
        number: u64,
    ) {
        let at = role_index(role);
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        let range = &mut session.ranges[at];
        //= ^ never over 2^32: several clients lose a range across the wrap
        let extends = range.open
            && range.last.plus(1) == delivery
            && delivery.0 != 0
            && range.settled == settled
            && match state {
                Some(_) if number != 0 && range.number == number => true,
                None => range.state.is_empty(),
                Some(state) => state.is_encoded_as(&range.state, &mut self.scratch),
            };
        if extends {
            range.last = delivery;
            return;
        }
        if range.open {
            self.write_range(id, role);
        }
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        let range = &mut session.ranges[at];
        range.open = true;
        range.first = delivery;
        range.last = delivery;
        range.settled = settled;
        range.number = number;
        range.state.clear();
        state.into_iter().for_each(|state| state.encode(&mut range.state));
        self.mark_session(id);
    }

    /// Writes both ranges of a session.
    pub(crate) fn flush_ranges(&mut self, id: SessionId) {
        self.write_range(id, Role::Receiver);
        self.write_range(id, Role::Sender);
    }

    fn write_range(&mut self, id: SessionId, role: Role) {
        let limits = self.set.limits;
        let Some(session) = self.sessions.get_mut(id.index, id.generation) else { return };
        let range = &mut session.ranges[role_index(role)];
        if !range.open {
            return;
        }
        range.open = false;
        if session.end_sent {
            return;
        }
        let (first, last, settled, channel) = (range.first.0, range.last.0, range.settled, session.channel);
        // Taken out while it is looked at, and put back: it keeps its room.
        let encoded = core::mem::take(&mut range.state);
        let state = if encoded == ACCEPTED {
            Some(DeliveryState::Accepted)
        } else {
            Value::from_encoded(&encoded, &limits).ok().and_then(|value| DeliveryState::from_value(value, &limits).ok())
        };
        let disposition = Disposition {
            role,
            first,
            // One client reads a `last` of 0 as absent; with one delivery it is left out.
            last: (last != first).then_some(last),
            settled,
            state,
            batchable: false,
        };
        if !self.try_frame(channel, |out| disposition.encode(out)) {
            // A long error in a small frame: the state without its fields.
            let bare = Disposition { state: state.map(|state| bare(&state)), ..disposition };
            if !self.try_frame(channel, |out| bare.encode(out)) {
                self.frame(channel, |out| Disposition { state: None, ..disposition }.encode(out));
            }
        }
        if let Some(session) = self.sessions.get_mut(id.index, id.generation) {
            session.ranges[role_index(role)].state = encoded;
        }
    }
}

/// A state without its long fields.
fn bare<'a>(state: &DeliveryState<'a>) -> DeliveryState<'a> {
    match *state {
        DeliveryState::Rejected(mut rejected) => {
            if let Some(error) = &mut rejected.error {
                error.description = None;
                error.info = None;
            }
            DeliveryState::Rejected(rejected)
        }
        DeliveryState::Modified(mut modified) => {
            modified.message_annotations = None;
            DeliveryState::Modified(modified)
        }
        DeliveryState::Transactional(mut state) => {
            // An outcome is no transaction, so that this goes one level down and no further.
            state.outcome = state.outcome.and_then(|outcome| bare(&outcome.into()).outcome());
            DeliveryState::Transactional(state)
        }
        other => other,
    }
}
