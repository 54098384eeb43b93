//! What the bodies of frames can be. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use super::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome,
    SaslResponse, Transfer,
};
use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::error::DecodeError;
use crate::codec::fields::performative_code;
use alloc::vec::Vec;

/// The body of an AMQP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "decoding must not allocate; the engine matches it where it is made")]
pub enum Performative<'a> {
    /// Opens a connection and tells its limits.
    Open(Open<'a>),
    /// Begins a session on a channel, or answers a begin.
    Begin(Begin<'a>),
    /// Attaches a link to a session, or answers an attach.
    Attach(Attach<'a>),
    /// Tells the state of a session and perhaps of one of its links.
    Flow(Flow<'a>),
    /// Carries a message or a part of one; the payload follows it in the frame.
    Transfer(Transfer<'a>),
    /// Tells the state of a range of deliveries.
    Disposition(Disposition<'a>),
    /// Detaches a link from its session.
    Detach(Detach<'a>),
    /// Ends a session.
    End(End<'a>),
    /// Closes a connection.
    Close(Close<'a>),
}

impl<'a> Performative<'a> {
    /// Its name in the standard.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => Open::NAME,
            Self::Begin(_) => Begin::NAME,
            Self::Attach(_) => Attach::NAME,
            Self::Flow(_) => Flow::NAME,
            Self::Transfer(_) => Transfer::NAME,
            Self::Disposition(_) => Disposition::NAME,
            Self::Detach(_) => Detach::NAME,
            Self::End(_) => End::NAME,
            Self::Close(_) => Close::NAME,
        }
    }

    /// Reads it by its descriptor.
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        Ok(match performative_code(cursor, Self::code_of)? {
            Some(Open::CODE) => Self::Open(Open::read_fields(cursor, bounds)?),
            Some(Begin::CODE) => Self::Begin(Begin::read_fields(cursor, bounds)?),
            Some(Attach::CODE) => Self::Attach(Attach::read_fields(cursor, bounds)?),
            Some(Flow::CODE) => Self::Flow(Flow::read_fields(cursor, bounds)?),
            Some(Transfer::CODE) => Self::Transfer(Transfer::read_fields(cursor, bounds)?),
            Some(Disposition::CODE) => Self::Disposition(Disposition::read_fields(cursor, bounds)?),
            Some(Detach::CODE) => Self::Detach(Detach::read_fields(cursor, bounds)?),
            Some(End::CODE) => Self::End(End::read_fields(cursor, bounds)?),
            Some(Close::CODE) => Self::Close(Close::read_fields(cursor, bounds)?),
            code => return Err(DecodeError::UnknownPerformative { code }),
        })
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(value) => value.encode(out),
            Self::Begin(value) => value.encode(out),
            Self::Attach(value) => value.encode(out),
            Self::Flow(value) => value.encode(out),
            Self::Transfer(value) => value.encode(out),
            Self::Disposition(value) => value.encode(out),
            Self::Detach(value) => value.encode(out),
            Self::End(value) => value.encode(out),
            Self::Close(value) => value.encode(out),
        }
    }
}

impl<'a> From<Open<'a>> for Performative<'a> {
    fn from(value: Open<'a>) -> Self {
        Self::Open(value)
    }
}

impl<'a> From<Begin<'a>> for Performative<'a> {
    fn from(value: Begin<'a>) -> Self {
        Self::Begin(value)
    }
}

impl<'a> From<Attach<'a>> for Performative<'a> {
    fn from(value: Attach<'a>) -> Self {
        Self::Attach(value)
    }
}

impl<'a> From<Flow<'a>> for Performative<'a> {
    fn from(value: Flow<'a>) -> Self {
        Self::Flow(value)
    }
}

impl<'a> From<Transfer<'a>> for Performative<'a> {
    fn from(value: Transfer<'a>) -> Self {
        Self::Transfer(value)
    }
}

impl<'a> From<Disposition<'a>> for Performative<'a> {
    fn from(value: Disposition<'a>) -> Self {
        Self::Disposition(value)
    }
}

impl<'a> From<Detach<'a>> for Performative<'a> {
    fn from(value: Detach<'a>) -> Self {
        Self::Detach(value)
    }
}

impl<'a> From<End<'a>> for Performative<'a> {
    fn from(value: End<'a>) -> Self {
        Self::End(value)
    }
}

impl<'a> From<Close<'a>> for Performative<'a> {
    fn from(value: Close<'a>) -> Self {
        Self::Close(value)
    }
}

impl Performative<'_> {
    /// The numeric descriptor of a symbolic one.
    #[must_use]
    pub fn code_of(symbol: &str) -> Option<u64> {
        Some(match symbol {
            Open::SYMBOL => Open::CODE,
            Begin::SYMBOL => Begin::CODE,
            Attach::SYMBOL => Attach::CODE,
            Flow::SYMBOL => Flow::CODE,
            Transfer::SYMBOL => Transfer::CODE,
            Disposition::SYMBOL => Disposition::CODE,
            Detach::SYMBOL => Detach::CODE,
            End::SYMBOL => End::CODE,
            Close::SYMBOL => Close::CODE,
            _ => return None,
        })
    }
}

/// The body of a SASL frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the standard's names of types, as everywhere")]
pub enum SaslPerformative<'a> {
    /// The server's mechanisms, strongest first.
    SaslMechanisms(SaslMechanisms<'a>),
    /// The client's choice of a mechanism.
    SaslInit(SaslInit<'a>),
    /// A challenge of the server.
    SaslChallenge(SaslChallenge<'a>),
    /// A response of the client.
    SaslResponse(SaslResponse<'a>),
    /// The end of the SASL exchange.
    SaslOutcome(SaslOutcome<'a>),
}

impl<'a> SaslPerformative<'a> {
    /// Its name in the standard.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SaslMechanisms(_) => SaslMechanisms::NAME,
            Self::SaslInit(_) => SaslInit::NAME,
            Self::SaslChallenge(_) => SaslChallenge::NAME,
            Self::SaslResponse(_) => SaslResponse::NAME,
            Self::SaslOutcome(_) => SaslOutcome::NAME,
        }
    }

    /// Reads it by its descriptor.
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        Ok(match performative_code(cursor, Self::code_of)? {
            Some(SaslMechanisms::CODE) => Self::SaslMechanisms(SaslMechanisms::read_fields(cursor, bounds)?),
            Some(SaslInit::CODE) => Self::SaslInit(SaslInit::read_fields(cursor, bounds)?),
            Some(SaslChallenge::CODE) => Self::SaslChallenge(SaslChallenge::read_fields(cursor, bounds)?),
            Some(SaslResponse::CODE) => Self::SaslResponse(SaslResponse::read_fields(cursor, bounds)?),
            Some(SaslOutcome::CODE) => Self::SaslOutcome(SaslOutcome::read_fields(cursor, bounds)?),
            code => return Err(DecodeError::UnknownPerformative { code }),
        })
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::SaslMechanisms(value) => value.encode(out),
            Self::SaslInit(value) => value.encode(out),
            Self::SaslChallenge(value) => value.encode(out),
            Self::SaslResponse(value) => value.encode(out),
            Self::SaslOutcome(value) => value.encode(out),
        }
    }
}

impl<'a> From<SaslMechanisms<'a>> for SaslPerformative<'a> {
    fn from(value: SaslMechanisms<'a>) -> Self {
        Self::SaslMechanisms(value)
    }
}

impl<'a> From<SaslInit<'a>> for SaslPerformative<'a> {
    fn from(value: SaslInit<'a>) -> Self {
        Self::SaslInit(value)
    }
}

impl<'a> From<SaslChallenge<'a>> for SaslPerformative<'a> {
    fn from(value: SaslChallenge<'a>) -> Self {
        Self::SaslChallenge(value)
    }
}

impl<'a> From<SaslResponse<'a>> for SaslPerformative<'a> {
    fn from(value: SaslResponse<'a>) -> Self {
        Self::SaslResponse(value)
    }
}

impl<'a> From<SaslOutcome<'a>> for SaslPerformative<'a> {
    fn from(value: SaslOutcome<'a>) -> Self {
        Self::SaslOutcome(value)
    }
}

impl SaslPerformative<'_> {
    /// The numeric descriptor of a symbolic one.
    #[must_use]
    pub fn code_of(symbol: &str) -> Option<u64> {
        Some(match symbol {
            SaslMechanisms::SYMBOL => SaslMechanisms::CODE,
            SaslInit::SYMBOL => SaslInit::CODE,
            SaslChallenge::SYMBOL => SaslChallenge::CODE,
            SaslResponse::SYMBOL => SaslResponse::CODE,
            SaslOutcome::SYMBOL => SaslOutcome::CODE,
            _ => return None,
        })
    }
}
