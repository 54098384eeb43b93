//! Places where the standard takes one of several types: delivery states, outcomes, the target of an attach, message ids.
//! Composite ones have an escape for types we do not know, so that a stranger's extension is refused, not a fault.

use alloc::vec::Vec;

use super::cursor::{BINARY8, Bounds, Cursor, DESCRIBED, Descriptor, LIST0, LIST8, ULONG8};
use super::encode;
use super::error::{DecodeError, Fault};
use super::generated::{
    Accepted, Coordinator, Declared, Modified, Received, Rejected, Released, Target, TransactionalState,
};
use super::value::Value;

/// Reads the descriptor at the cursor's place without moving it; returns the place behind it too.
fn look<'a>(cursor: &Cursor<'a>, what: &'static str) -> Result<(Descriptor<'a>, Cursor<'a>), DecodeError> {
    let mut ahead = *cursor;
    let of = |fault| DecodeError::Value { what, fault };
    match ahead.u8().map_err(of)? {
        0 => Ok((ahead.descriptor().map_err(of)?, ahead)),
        constructor => Err(of(Fault::WrongType { expected: "described", constructor })),
    }
}

/// The number of a descriptor, symbols of the six delivery states included.
fn state_code(descriptor: Descriptor<'_>) -> Option<u64> {
    match descriptor {
        Descriptor::Code(code) => Some(code),
        Descriptor::Symbol(symbol) => Some(match symbol {
            Received::SYMBOL => Received::CODE,
            Accepted::SYMBOL => Accepted::CODE,
            Rejected::SYMBOL => Rejected::CODE,
            Released::SYMBOL => Released::CODE,
            Modified::SYMBOL => Modified::CODE,
            Declared::SYMBOL => Declared::CODE,
            TransactionalState::SYMBOL => TransactionalState::CODE,
            _ => return None,
        }),
    }
}

/// A terminal delivery state.
//= amqp10 3.4, 4.5.5
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The receiver is responsible for the message now.
    Accepted,
    /// The message is invalid.
    Rejected(Rejected<'a>),
    /// Not dealt with; the delivery count stays.
    Released,
    /// Not dealt with, and changed.
    Modified(Modified<'a>),
    /// A transaction was begun.
    Declared(Declared<'a>),
    /// Of a type we do not know.
    Other(Value<'a>),
}

impl<'a> Outcome<'a> {
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        // Looked at first: a transactional state holds an outcome, so that reading before refusing would nest without end.
        if let Some(code @ (Received::CODE | TransactionalState::CODE)) = state_code(look(cursor, "outcome")?.0) {
            return Err(not_an_outcome(code));
        }
        let state = DeliveryState::read(cursor, bounds)?;
        state.outcome().ok_or_else(|| not_an_outcome(TransactionalState::CODE))
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        DeliveryState::from(*self).encode(out);
    }

    /// The symbolic descriptor, as it stands in `source.outcomes`; none for a type we do not know.
    #[must_use]
    pub fn symbol(&self) -> Option<&'static str> {
        Some(match self {
            Self::Accepted => Accepted::SYMBOL,
            Self::Rejected(_) => Rejected::SYMBOL,
            Self::Released => Released::SYMBOL,
            Self::Modified(_) => Modified::SYMBOL,
            Self::Declared(_) => Declared::SYMBOL,
            Self::Other(_) => return None,
        })
    }
}

#[cold]
fn not_an_outcome(code: u64) -> DecodeError {
    DecodeError::Value { what: "outcome", fault: Fault::UnknownDescriptor { expected: "an outcome", code: Some(code) } }
}

const ACCEPTED: [u8; 4] = [DESCRIBED, ULONG8, Accepted::CODE as u8, LIST0];
const TRANSACTIONAL: u8 = TransactionalState::CODE as u8;

/// The longest id of a transaction.
///
//= amqp10 4.5.8
const TXN_ID_MAX: usize = 32;

/// A transactional state in the shortest form there is, without an outcome or with `accepted`: with work in transactions there are two of
/// them for each message. None: it is something else, or written otherwise; nothing was read.
#[inline]
fn short_transactional<'a>(cursor: &mut Cursor<'a>) -> Option<TransactionalState<'a>> {
    let (&[DESCRIBED, ULONG8, TRANSACTIONAL, LIST8, size, count, BINARY8, length], behind) =
        cursor.rest().split_first_chunk()?
    else {
        return None;
    };
    let (txn_id, behind) = behind.split_at_checked(usize::from(length))?;
    // The size counts what is behind it.
    let (outcome, more) = match (count, usize::from(size).checked_sub(3 + txn_id.len())?) {
        (1, 0) => (None, 0),
        (2, 4) if behind.starts_with(&ACCEPTED) => (Some(Outcome::Accepted), ACCEPTED.len()),
        _ => return None,
    };
    *cursor = Cursor::new(&behind[more..]);
    Some(TransactionalState { txn_id, outcome })
}

/// The id of a state that is written in this form, and whether it has an outcome.
#[inline]
fn as_short_transactional<'a>(state: &DeliveryState<'a>) -> Option<(&'a [u8], bool)> {
    let DeliveryState::Transactional(TransactionalState { txn_id, outcome }) = *state else { return None };
    let accepted = match outcome {
        None => false,
        Some(Outcome::Accepted) => true,
        Some(_) => return None,
    };
    (txn_id.len() <= TXN_ID_MAX).then_some((txn_id, accepted))
}

#[inline]
fn put_short_transactional(out: &mut Vec<u8>, txn_id: &[u8], accepted: bool) {
    let outcome: &[u8] = if accepted { &ACCEPTED } else { &[] };
    out.extend_from_slice(&short_head(txn_id, accepted));
    out.extend_from_slice(txn_id);
    out.extend_from_slice(outcome);
}

/// What such a state begins with, up to its id.
#[inline]
fn short_head(txn_id: &[u8], accepted: bool) -> [u8; 8] {
    let (count, outcome) = if accepted { (2, ACCEPTED.len() as u8) } else { (1, 0) };
    let length = txn_id.len() as u8;
    let size = 3 + length + outcome;
    [DESCRIBED, ULONG8, TRANSACTIONAL, LIST8, size, count, BINARY8, length]
}

/// The state of a delivery at one end of its link.
//= amqp10 3.4, 4.5.8
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState<'a> {
    /// A part has arrived; not terminal.
    Received(Received),
    /// The receiver is responsible for the message now.
    Accepted,
    /// The message is invalid.
    Rejected(Rejected<'a>),
    /// Not dealt with; the delivery count stays.
    Released,
    /// Not dealt with, and changed.
    Modified(Modified<'a>),
    /// A transaction was begun.
    Declared(Declared<'a>),
    /// Part of a transaction, perhaps with the outcome it has once that commits.
    Transactional(TransactionalState<'a>),
    /// Of a type we do not know.
    Other(Value<'a>),
}

impl<'a> DeliveryState<'a> {
    #[inline]
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        match short_transactional(cursor) {
            Some(state) => Ok(Self::Transactional(state)),
            None => Self::read_any(cursor, bounds),
        }
    }

    fn read_any(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let (descriptor, mut list) = look(cursor, "delivery state")?;
        let state = match state_code(descriptor) {
            Some(Accepted::CODE) => {
                Accepted::read_fields(&mut list, bounds)?;
                Self::Accepted
            }
            Some(Released::CODE) => {
                Released::read_fields(&mut list, bounds)?;
                Self::Released
            }
            Some(Received::CODE) => Self::Received(Received::read_fields(&mut list, bounds)?),
            Some(Rejected::CODE) => Self::Rejected(Rejected::read_fields(&mut list, bounds)?),
            Some(Modified::CODE) => Self::Modified(Modified::read_fields(&mut list, bounds)?),
            Some(Declared::CODE) => Self::Declared(Declared::read_fields(&mut list, bounds)?),
            Some(TransactionalState::CODE) => Self::Transactional(TransactionalState::read_fields(&mut list, bounds)?),
            _ => {
                let value = Value::read(cursor, bounds)
                    .map_err(|fault| DecodeError::Value { what: "delivery state", fault })?;
                return Ok(Self::Other(value));
            }
        };
        *cursor = list;
        Ok(state)
    }

    /// Decodes a state that stands by itself, as in an `unsettled` map.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_value(value: Value<'a>, limits: &crate::limits::Limits) -> Result<Self, DecodeError> {
        Self::read(&mut Cursor::new(value.as_bytes()), Bounds::parsed(limits))
    }

    /// The most bytes that a state takes which [`Self::is_short`].
    pub(crate) const SHORT_BYTES: usize = 48;

    /// Whether it takes few bytes for sure: it has nothing of any length in it.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Self::Accepted | Self::Released | Self::Received(_)) || as_short_transactional(self).is_some()
    }

    /// Appends it to `out`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match as_short_transactional(self) {
            Some((txn_id, accepted)) => put_short_transactional(out, txn_id, accepted),
            None => self.encode_any(out),
        }
    }

    /// Whether these bytes are what [`Self::encode`] writes of it. `scratch`: for those that have to be written to tell.
    #[inline]
    pub(crate) fn is_encoded_as(&self, bytes: &[u8], scratch: &mut Vec<u8>) -> bool {
        if let Self::Accepted = self {
            return bytes == ACCEPTED;
        }
        if let Some((txn_id, accepted)) = as_short_transactional(self) {
            let Some((head, mut rest)) = bytes.split_first_chunk() else { return false };
            if accepted {
                let Some((id, &ACCEPTED)) = rest.split_last_chunk() else { return false };
                rest = id;
            }
            return *head == short_head(txn_id, accepted) && rest == txn_id;
        }
        scratch.clear();
        self.encode_any(scratch);
        *scratch == bytes
    }

    fn encode_any(&self, out: &mut Vec<u8>) {
        match self {
            Self::Received(v) => v.encode(out),
            Self::Accepted => Accepted.encode(out),
            Self::Rejected(v) => v.encode(out),
            Self::Released => Released.encode(out),
            Self::Modified(v) => v.encode(out),
            Self::Declared(v) => v.encode(out),
            Self::Transactional(v) => v.encode(out),
            Self::Other(v) => encode::put_value(out, v),
        }
    }

    /// The outcome, if it is terminal by itself: neither `received` nor part of a transaction.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome<'a>> {
        Some(match *self {
            Self::Accepted => Outcome::Accepted,
            Self::Rejected(v) => Outcome::Rejected(v),
            Self::Released => Outcome::Released,
            Self::Modified(v) => Outcome::Modified(v),
            Self::Declared(v) => Outcome::Declared(v),
            Self::Other(v) => Outcome::Other(v),
            Self::Received(_) | Self::Transactional(_) => return None,
        })
    }
}

impl<'a> From<Outcome<'a>> for DeliveryState<'a> {
    fn from(outcome: Outcome<'a>) -> Self {
        match outcome {
            Outcome::Accepted => Self::Accepted,
            Outcome::Rejected(v) => Self::Rejected(v),
            Outcome::Released => Self::Released,
            Outcome::Modified(v) => Self::Modified(v),
            Outcome::Declared(v) => Self::Declared(v),
            Outcome::Other(v) => Self::Other(v),
        }
    }
}

/// The target of an attach.
//= amqp10 2.7.3, 3.5.4, 4.5.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachTarget<'a> {
    /// A node that takes messages.
    Target(Target<'a>),
    /// The coordinator of transactions.
    Coordinator(Coordinator<'a>),
    /// Of a type we do not know.
    Other(Value<'a>),
}

impl<'a> AttachTarget<'a> {
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let (descriptor, mut list) = look(cursor, "target")?;
        let target = if descriptor.is(Target::CODE, Target::SYMBOL) {
            Self::Target(Target::read_fields(&mut list, bounds)?)
        } else if descriptor.is(Coordinator::CODE, Coordinator::SYMBOL) {
            Self::Coordinator(Coordinator::read_fields(&mut list, bounds)?)
        } else {
            let value = Value::read(cursor, bounds).map_err(|fault| DecodeError::Value { what: "target", fault })?;
            return Ok(Self::Other(value));
        };
        *cursor = list;
        Ok(target)
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Target(v) => v.encode(out),
            Self::Coordinator(v) => v.encode(out),
            Self::Other(v) => encode::put_value(out, v),
        }
    }
}

impl<'a> From<Target<'a>> for AttachTarget<'a> {
    fn from(target: Target<'a>) -> Self {
        Self::Target(target)
    }
}

impl<'a> From<Coordinator<'a>> for AttachTarget<'a> {
    fn from(coordinator: Coordinator<'a>) -> Self {
        Self::Coordinator(coordinator)
    }
}

/// The name of a message. Ids of different types are never equal: number 1 is not the string "1".
//= amqp10 3.2.11 to 3.2.14
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageId<'a> {
    /// A number.
    Ulong(u64),
    /// A UUID, its bytes.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(&'a [u8]),
    /// Text.
    String(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use alloc::vec;
    use proptest::prelude::*;

    /// What is read, and how much is left.
    fn read<'a>(
        bytes: &'a [u8],
        how: impl Fn(&mut Cursor<'a>, Bounds) -> Result<DeliveryState<'a>, DecodeError>,
    ) -> Result<(DeliveryState<'a>, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let state = how(&mut cursor, Bounds::parsed(&Limits::default()))?;
        Ok((state, cursor.rest()))
    }

    proptest! {
        #[test]
        fn the_short_form_of_a_transactional_state_is_read_like_any(
            txn_id in prop::collection::vec(any::<u8>(), 0..40),
            outcome in prop::sample::select(vec![None, Some(Outcome::Accepted), Some(Outcome::Released)]),
            behind in prop::collection::vec(any::<u8>(), 0..4),
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            cut in any::<prop::sample::Index>(),
            whole in any::<bool>(),
        ) {
            let state = DeliveryState::Transactional(TransactionalState { txn_id: &txn_id, outcome });
            let mut bytes = Vec::new();
            state.encode(&mut bytes);
            bytes.extend(behind);
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len().min(8 + txn_id.len() + 4));
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let end = if whole { bytes.len() } else { cut.index(bytes.len() + 1) };
            let bytes = &bytes[..end];
            prop_assert_eq!(read(bytes, DeliveryState::read), read(bytes, DeliveryState::read_any));
        }

        #[test]
        fn the_short_form_is_what_is_written(
            txn_id in prop::collection::vec(any::<u8>(), 0..60),
            outcome in prop::sample::select(vec![None, Some(Outcome::Accepted), Some(Outcome::Released)]),
            before in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let wanted = TransactionalState { txn_id: &txn_id, outcome };
            let state = DeliveryState::Transactional(wanted);
            let (mut bytes, mut any) = (before.clone(), before.clone());
            state.encode(&mut bytes);
            state.encode_any(&mut any);
            prop_assert_eq!(&bytes, &any);
            let short = outcome != Some(Outcome::Released) && txn_id.len() <= TXN_ID_MAX;
            prop_assert_eq!(state.is_short(), short);
            if short {
                prop_assert!(bytes.len() - before.len() <= DeliveryState::SHORT_BYTES);
                prop_assert_eq!(short_transactional(&mut Cursor::new(&bytes[before.len()..])), Some(wanted));
            }
        }
    }

    #[test]
    fn states_without_anything_of_any_length_are_short() {
        let received = Received { section_number: u32::MAX, section_offset: u64::MAX };
        for state in [DeliveryState::Accepted, DeliveryState::Released, DeliveryState::Received(received)] {
            let mut bytes = Vec::new();
            state.encode(&mut bytes);
            assert!(state.is_short() && bytes.len() <= DeliveryState::SHORT_BYTES, "{state:?}");
        }
        assert!(!DeliveryState::Rejected(Rejected { error: None }).is_short());
    }
}
