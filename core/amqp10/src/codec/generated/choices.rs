//! The restricted types of the standard. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use crate::codec::encode::{self};
use crate::codec::error::Fault;
use crate::codec::fields::Fields;
use alloc::vec::Vec;

/// Which end of a link speaks.
//= amqp10 2.8.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The end that sends messages.
    #[default]
    Sender,
    /// The end that receives messages.
    Receiver,
}

impl Role {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> bool {
        match self {
            Self::Sender => false,
            Self::Receiver => true,
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.boolean()? {
            None => None,
            Some(false) => Some(Self::Sender),
            Some(true) => Some(Self::Receiver),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_boolean(out, self.wire())
    }
}

/// When the sender of a link settles.
//= amqp10 2.8.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderSettleMode {
    /// Every delivery is sent unsettled.
    Unsettled,
    /// Every delivery is sent settled.
    Settled,
    /// Each delivery as the sender likes.
    #[default]
    Mixed,
}

impl SenderSettleMode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::Unsettled),
            Some(1) => Some(Self::Settled),
            Some(2) => Some(Self::Mixed),
            Some(_) => return Err(Fault::BadChoice { expected: "sender-settle-mode" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}

/// When the receiver of a link settles.
//= amqp10 2.8.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiverSettleMode {
    /// The receiver settles as soon as it has an outcome.
    #[default]
    First,
    /// The receiver settles after the sender has.
    Second,
}

impl ReceiverSettleMode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::First),
            Some(1) => Some(Self::Second),
            Some(_) => return Err(Fault::BadChoice { expected: "receiver-settle-mode" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}

/// What of a terminus outlives its container.
//= amqp10 3.5.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminusDurability {
    /// Nothing.
    #[default]
    None,
    /// That the terminus exists, and how it is configured.
    Configuration,
    /// The unsettled deliveries too.
    UnsettledState,
}

impl TerminusDurability {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Configuration => 1,
            Self::UnsettledState => 2,
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.uint()? {
            None => None,
            Some(0) => Some(Self::None),
            Some(1) => Some(Self::Configuration),
            Some(2) => Some(Self::UnsettledState),
            Some(_) => return Err(Fault::BadChoice { expected: "terminus-durability" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_uint(out, self.wire())
    }
}

/// From which event on a terminus counts down to its expiry.
//= amqp10 3.5.6
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminusExpiryPolicy {
    /// The link detached.
    LinkDetach,
    /// The session ended.
    #[default]
    SessionEnd,
    /// The connection closed.
    ConnectionClose,
    /// Never: it stays until it is closed.
    Never,
}

impl TerminusExpiryPolicy {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> &'static str {
        match self {
            Self::LinkDetach => "link-detach",
            Self::SessionEnd => "session-end",
            Self::ConnectionClose => "connection-close",
            Self::Never => "never",
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.symbol()? {
            None => None,
            Some("link-detach") => Some(Self::LinkDetach),
            Some("session-end") => Some(Self::SessionEnd),
            Some("connection-close") => Some(Self::ConnectionClose),
            Some("never") => Some(Self::Never),
            Some(_) => return Err(Fault::BadChoice { expected: "terminus-expiry-policy" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_symbol(out, self.wire())
    }
}

/// How a SASL exchange ended.
//= amqp10 5.3.3.6
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaslCode {
    /// Authenticated.
    #[default]
    Ok,
    /// Refused: the credentials did not do.
    Auth,
    /// A fault of the system.
    Sys,
    /// A fault of the system that will not go away by itself.
    SysPerm,
    /// A fault of the system that may go away.
    SysTemp,
}

impl SaslCode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::Sys => 2,
            Self::SysPerm => 3,
            Self::SysTemp => 4,
        }
    }

    #[inline]
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::Ok),
            Some(1) => Some(Self::Auth),
            Some(2) => Some(Self::Sys),
            Some(3) => Some(Self::SysPerm),
            Some(4) => Some(Self::SysTemp),
            Some(_) => return Err(Fault::BadChoice { expected: "sasl-code" }),
        })
    }

    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}
