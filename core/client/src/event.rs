//! What the client tells its caller.

use alloc::string::String;
use core::fmt;
use packhorse_amqp10::codec::{DeliveryState, Error, SaslCode};
use packhorse_amqp10::engine::{AttachFrame, Fault, LinkId, OpenFrame, SessionId, TransferEvent};

/// One thing that happened, in the order of the bytes. Borrows from the input only: commands may be given while it is held.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'i> {
    /// Something that the client has dealt with by itself: a step of the login, a hint.
    Other,
    /// Logged in and open: sessions may be begun.
    Opened(OpenFrame<'i>),
    /// The peer has answered our `begin`. Nothing needs to wait for it.
    Begun {
        /// The session.
        session: SessionId,
        /// The caller's number for it.
        token: u64,
    },
    /// A link stands.
    Attached {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// The peer's `attach`: what the terminus really is, the largest message.
        frame: AttachFrame<'i>,
    },
    /// A link is over, or was refused. Its id is dead.
    LinkLost(LinkLost<'i>),
    /// A session is over with all its links. Its id is dead.
    SessionLost {
        /// The session.
        session: SessionId,
        /// The caller's number for it.
        token: u64,
        /// Why.
        reason: Reason<'i>,
    },
    /// Credit for a sender changed: send while [`crate::Client::sendable`].
    Credit {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// Deliveries that may be sent now.
        credit: u32,
        /// Send what is ready, then call [`crate::Client::drained`], with credit 0 too.
        drain: bool,
    },
    /// The window of a session opened again: its senders may go on.
    Room {
        /// The session, if the peer spoke of it alone.
        session: Option<SessionId>,
    },
    /// Our `drain` of a receiver is answered: nothing more comes until the next `grant`.
    Drained {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
    },
    /// One frame of a message; see [`crate::Joiner`] for whole messages.
    Message(TransferEvent<'i>),
    /// The peer decided on deliveries of ours: [`crate::Client::outcomes`] until the next call of `next`. What it left
    /// unsettled is settled.
    Outcomes {
        /// The state as sent, for the error of a rejection.
        state: Option<DeliveryState<'i>>,
    },
    /// The peer has settled messages that it sent, in answer to [`crate::Client::decide`]: [`crate::Client::outcomes`] has them
    /// until the next call of `next`.
    Confirmed,
    /// The peer closed the connection. Write what is left, then close the socket.
    Closed {
        /// Why.
        reason: Reason<'i>,
    },
}

/// The end of a link.
#[derive(Debug)]
pub struct LinkLost<'i> {
    /// The link.
    pub link: LinkId,
    /// The caller's number for it.
    pub token: u64,
    /// It never stood: the peer refused our `attach`.
    pub refused: bool,
    /// Why.
    pub reason: Reason<'i>,
}

/// Why something ended.
#[derive(Debug)]
pub enum Reason<'i> {
    /// Without a word.
    None,
    /// The peer's error.
    Peer(Error<'i>),
    /// The peer broke a rule, and was told so.
    Fault(Fault),
}

impl<'i> Reason<'i> {
    pub(crate) fn of(error: Option<Error<'i>>) -> Reason<'i> {
        error.map_or(Reason::None, Reason::Peer)
    }

    /// The standard's condition, if there is one.
    pub fn condition(&self) -> Option<&str> {
        match self {
            Reason::None => None,
            Reason::Peer(error) => Some(error.condition),
            Reason::Fault(fault) => Some(fault.condition),
        }
    }
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => f.write_str("without a reason"),
            Reason::Peer(error) => match error.description {
                Some(text) => write!(f, "{}: {text}", error.condition),
                None => f.write_str(error.condition),
            },
            Reason::Fault(fault) => fault.fmt(f),
        }
    }
}

/// The connection cannot go on. Write what is left, then close the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer broke a rule of the connection or was too slow.
    Fault(Fault),
    /// The broker offers no mechanism that fits the login.
    NoMechanism {
        /// What is wanted.
        wanted: &'static str,
        /// What is offered, separated by blanks.
        offered: String,
    },
    /// The broker refused the login.
    LoginRefused {
        /// Its code.
        code: SaslCode,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Fault(fault) => fault.fmt(f),
            Failure::NoMechanism { wanted, offered } => {
                write!(f, "the broker does not offer {wanted}; it offers {offered}")
            }
            Failure::LoginRefused { code } => write!(f, "the broker refused the login ({code:?})"),
        }
    }
}

impl core::error::Error for Failure {}
