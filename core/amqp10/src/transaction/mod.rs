//! What is said on a link to a coordinator: requests are the bodies of messages, answers are outcomes. The standard's own
//! `declare` and `discharge`, and our XA over them (`docs/formats/amqp-xa.md`).
//!
//! Must not know: what a transaction is, who asks, what is answered.

mod generated;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use crate::codec::{Declare, DecodeError, DeliveryState, Descriptor, Discharge, Error, Fault, Value};
use crate::limits::Limits;
use crate::message::{BodySection, MessageView, Section, write_value};

pub use generated::*;

/// The capability by which a coordinator says that it knows the bodies of XA, in this version.
pub const XA_CAPABILITY: &str = "packhorse:xa-1";

/// The capability by which a coordinator says that it knows [`TxCommit`] and [`TxStatus`], in this version.
pub const STATUS_CAPABILITY: &str = "packhorse:tx-status-1";

/// The property of an `open` that names the client's session.
pub const SESSION_PROPERTY: &str = "packhorse:session";

/// The property of an `open` with the number that the session's next commit will have.
pub const NEXT_COMMIT_PROPERTY: &str = "packhorse:next-commit";

/// The property of the broker's `open` that says which broker it is.
pub const BROKER_PROPERTY: &str = "packhorse:broker";

/// Flags, as XA numbers them.
pub mod flags {
    /// Neither join nor resume: the branch begins.
    pub const NONE: u32 = 0;
    /// `TMJOIN`
    pub const JOIN: u32 = 0x0020_0000;
    /// `TMRESUME`
    pub const RESUME: u32 = 0x0800_0000;
    /// `TMSUCCESS`
    pub const SUCCESS: u32 = 0x0400_0000;
    /// `TMSUSPEND`
    pub const SUSPEND: u32 = 0x0200_0000;
    /// `TMFAIL`
    pub const FAIL: u32 = 0x2000_0000;
}

/// What a message to a coordinator asks for.
//= amqp10 4.5.2, 4.5.3
//= amqp-xa 2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Begin a local transaction.
    Declare,
    /// Start, join or resume a branch.
    Start(XaStart<'a>),
    /// End a transaction known by its id.
    Discharge(Discharge<'a>),
    /// End, suspend or fail the work in a branch.
    End(XaEnd<'a>),
    /// Prepare a branch.
    Prepare(XaPrepare<'a>),
    /// Commit a branch.
    Commit(XaCommit<'a>),
    /// Roll back a branch.
    Rollback(XaRollback<'a>),
    /// Forget a heuristic outcome.
    Forget(XaForget<'a>),
    /// List branches.
    Recover(XaRecover<'a>),
    /// Commit a local transaction under a name.
    TxCommit(TxCommit<'a>),
    /// What became of it.
    TxStatus(TxStatus),
}

/// Why a message asks for nothing that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest<'a> {
    /// The body is not one amqp-value section.
    NotOneValue {
        /// The first section of the body; none if there is no body.
        found: Option<Section>,
    },
    /// A value without a descriptor, or with one that says nothing here.
    Unknown {
        /// Where: `request`, or `global-id of a declare`.
        what: &'static str,
        /// The descriptor.
        descriptor: Option<Descriptor<'a>>,
    },
    /// The type is known, and the value is not one.
    Malformed(DecodeError),
}

impl BadRequest<'_> {
    /// The standard's error condition for it.
    #[must_use]
    pub fn condition(&self) -> &'static str {
        match self {
            Self::NotOneValue { .. } => "amqp:decode-error",
            Self::Unknown { .. } => "amqp:not-implemented",
            Self::Malformed(error) => error.condition(),
        }
    }
}

impl fmt::Display for BadRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotOneValue { found: None } => {
                f.write_str("a message without a body: a coordinator takes a declare or discharge in an amqp-value")
            }
            Self::NotOneValue { found: Some(Section::Value) } => {
                f.write_str("a body of more than one section: a coordinator takes exactly one amqp-value")
            }
            Self::NotOneValue { found: Some(section) } => {
                let name = section.name();
                write!(f, "a body of section {name}: a coordinator takes a declare or discharge in an amqp-value")
            }
            Self::Unknown { what, descriptor: None } => write!(f, "{what}: a value without a descriptor says nothing"),
            Self::Unknown { what, descriptor: Some(Descriptor::Code(code)) } => {
                write!(f, "{what}: descriptor 0x{code:x} is not known here")
            }
            Self::Unknown { what, descriptor: Some(Descriptor::Symbol(symbol)) } => {
                let end = symbol.len().min(100);
                // Symbols are ASCII.
                write!(f, "{what}: descriptor \"{}\" is not known here", symbol.get(..end).unwrap_or_default())
            }
            Self::Malformed(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BadRequest<'_> {}

impl From<DecodeError> for BadRequest<'_> {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl<'a> Request<'a> {
    /// Reads the body of a whole message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(view: &MessageView<'a>, limits: &Limits) -> Result<Self, BadRequest<'a>> {
        let mut sections = view.body();
        let (Some(BodySection::Value(value)), None) = (sections.next(), sections.next()) else {
            return Err(BadRequest::NotOneValue { found: view.layout().body_kind() });
        };
        let what = "request";
        let Some((descriptor, _)) = value.as_described() else {
            return Err(BadRequest::Unknown { what, descriptor: None });
        };
        let bytes = value.as_bytes();
        let is = |code, symbol| descriptor.is(code, symbol);
        Ok(if is(Declare::CODE, Declare::SYMBOL) {
            match Declare::decode(bytes, limits)?.0.global_id {
                None => Self::Declare,
                Some(id) => Self::Start(start(id, limits)?),
            }
        } else if is(Discharge::CODE, Discharge::SYMBOL) {
            Self::Discharge(Discharge::decode(bytes, limits)?.0)
        } else if is(XaEnd::CODE, XaEnd::SYMBOL) {
            Self::End(XaEnd::decode(bytes, limits)?.0)
        } else if is(XaPrepare::CODE, XaPrepare::SYMBOL) {
            Self::Prepare(XaPrepare::decode(bytes, limits)?.0)
        } else if is(XaCommit::CODE, XaCommit::SYMBOL) {
            Self::Commit(XaCommit::decode(bytes, limits)?.0)
        } else if is(XaRollback::CODE, XaRollback::SYMBOL) {
            Self::Rollback(XaRollback::decode(bytes, limits)?.0)
        } else if is(XaForget::CODE, XaForget::SYMBOL) {
            Self::Forget(XaForget::decode(bytes, limits)?.0)
        } else if is(XaRecover::CODE, XaRecover::SYMBOL) {
            Self::Recover(XaRecover::decode(bytes, limits)?.0)
        } else if is(TxCommit::CODE, TxCommit::SYMBOL) {
            Self::TxCommit(TxCommit::decode(bytes, limits)?.0)
        } else if is(TxStatus::CODE, TxStatus::SYMBOL) {
            Self::TxStatus(TxStatus::decode(bytes, limits)?.0)
        } else {
            return Err(BadRequest::Unknown { what, descriptor: Some(descriptor) });
        })
    }

    /// Appends the message that asks for it: a body and nothing else.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_value(out, |out| match self {
            Self::Declare => Declare::default().encode(out),
            Self::Start(start) => {
                let mut id = Vec::new();
                start.encode(&mut id);
                let global_id = Value::from_encoded(&id, &Limits::default()).ok();
                debug_assert!(global_id.is_some(), "what was just encoded is a value");
                Declare { global_id }.encode(out);
            }
            Self::Discharge(v) => v.encode(out),
            Self::End(v) => v.encode(out),
            Self::Prepare(v) => v.encode(out),
            Self::Commit(v) => v.encode(out),
            Self::Rollback(v) => v.encode(out),
            Self::Forget(v) => v.encode(out),
            Self::Recover(v) => v.encode(out),
            Self::TxCommit(v) => v.encode(out),
            Self::TxStatus(v) => v.encode(out),
        });
    }
}

fn start<'a>(id: Value<'a>, limits: &Limits) -> Result<XaStart<'a>, BadRequest<'a>> {
    let descriptor = id.as_described().map(|(descriptor, _)| descriptor);
    if !descriptor.is_some_and(|descriptor| descriptor.is(XaStart::CODE, XaStart::SYMBOL)) {
        return Err(BadRequest::Unknown { what: "global-id of a declare", descriptor });
    }
    Ok(XaStart::decode(id.as_bytes(), limits)?.0)
}

/// What a coordinator says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// The transaction or branch can be worked in under this id.
    Declared(&'a [u8]),
    /// It is done.
    Accepted,
    /// It is not done.
    Rejected(Option<Error<'a>>),
    /// A code of XA.
    Result(XaResult<'a>),
    /// What became of a commit.
    Status(TxOutcome),
    /// Nothing that is known here.
    Other,
}

impl<'a> Response<'a> {
    /// Reads the state of a delivery to a coordinator.
    ///
    /// # Errors
    /// What is wrong with one of ours.
    pub fn read(state: &DeliveryState<'a>, limits: &Limits) -> Result<Self, DecodeError> {
        Ok(match state {
            DeliveryState::Declared(declared) => Self::Declared(declared.txn_id),
            DeliveryState::Accepted => Self::Accepted,
            DeliveryState::Rejected(rejected) => Self::Rejected(rejected.error),
            DeliveryState::Other(value) => match value.as_described() {
                Some((descriptor, _)) if descriptor.is(XaResult::CODE, XaResult::SYMBOL) => {
                    Self::Result(XaResult::decode(value.as_bytes(), limits)?.0)
                }
                Some((descriptor, _)) if descriptor.is(TxStatusResult::CODE, TxStatusResult::SYMBOL) => {
                    Self::Status(TxStatusResult::decode(value.as_bytes(), limits)?.0.outcome)
                }
                _ => Self::Other,
            },
            _ => Self::Other,
        })
    }
}

impl<'a> XaResult<'a> {
    /// The branches of a `recover`, in order.
    ///
    /// # Errors
    /// An element is not an [`XaXid`].
    pub fn xids(&self, limits: &Limits) -> Result<Vec<XaXid<'a>>, DecodeError> {
        let list = self.xids.unwrap_or_default();
        list.iter().map(|value| Ok(XaXid::decode(value.as_bytes(), limits)?.0)).collect()
    }
}

/// Writes a list of xids, for [`XaResult`].
pub fn write_xids<'x>(out: &mut Vec<u8>, xids: impl IntoIterator<Item = XaXid<'x>>) {
    crate::codec::ValueWriter::list(out, |list| {
        for xid in xids {
            xid.encode(list.next());
        }
    });
}

/// One of our outcomes as a delivery state: `bytes` is its encoding.
///
/// # Errors
/// What is wrong with the bytes.
pub fn as_state<'a>(bytes: &'a [u8], limits: &Limits) -> Result<DeliveryState<'a>, Fault> {
    Value::from_encoded(bytes, limits).map(DeliveryState::Other)
}
