//! What the engine tells its caller: events that borrow from the input, outcomes of deliveries, faults.
//!
//! Owns these shapes only. An event never borrows from the connection, so that the caller may command the connection
//! while it looks at one; it never owns bytes of a peer, so that nothing pins a read buffer.

use alloc::borrow::Cow;
use core::fmt;

use super::{LinkId, SessionId};
use crate::codec::{Attach, Begin, DeliveryState, Error, Flow, Open, Role, SaslCode, SaslMechanisms};
use crate::limits::Limits;

/// One thing that happened. At most one per frame, in the order of the bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'i> {
    /// Server: the client chose a mechanism. Answer with `sasl_challenge` or `sasl_outcome`; until then nothing
    /// further is read.
    SaslInit {
        /// The mechanism, not checked against the list offered.
        mechanism: &'i str,
        /// The initial response; absent is not the same as empty.
        initial_response: Option<&'i [u8]>,
        /// The host that the client wants to reach.
        hostname: Option<&'i str>,
    },
    /// Server: the client's answer to our challenge. Answer with `sasl_challenge` or `sasl_outcome`.
    SaslResponse(&'i [u8]),
    /// Client: the server's mechanisms, strongest first. Answer with `sasl_init`.
    SaslMechanisms(MechanismsFrame<'i>),
    /// Client: a challenge. Answer with `sasl_response`.
    SaslChallenge(&'i [u8]),
    /// Client: the outcome. After [`SaslCode::Ok`] call `open` (if not yet called); after any other the connection is
    /// over and [`super::Connection::wants_close`] says so.
    SaslOutcome {
        /// How it went.
        code: SaslCode,
        /// The mechanism's last word.
        additional_data: Option<&'i [u8]>,
    },

    /// The peer's `open`. A server answers with `open` (or `open` and `close`); until then nothing further is read.
    Opened(OpenFrame<'i>),
    /// A session stands: the peer began it (answered already), or it answered our `begin`.
    SessionBegun {
        /// The session.
        session: SessionId,
        /// Whether the peer began it.
        by_peer: bool,
        /// The peer's `begin`.
        frame: BeginFrame<'i>,
    },
    /// The session is over for the peer, with all its links: all frames before this one have taken effect. Unless
    /// `answered`, the caller settles what it still can, then calls `end`. The id dies with that call; when answered, it is
    /// dead already.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// The caller's number for it.
        token: u64,
        /// The peer's reason.
        error: Option<Error<'i>>,
        /// Whether our `end` is out already.
        answered: bool,
    },
    /// The peer broke a rule of the session: our `end` with this error is queued, what the peer still sends on it is
    /// dropped. Its links are gone. [`Event::SessionEnded`] with `answered` follows when the peer answers.
    SessionFailed {
        /// The session.
        session: SessionId,
        /// The caller's number for it.
        token: u64,
        /// What rule.
        fault: Fault,
    },

    /// The peer's `attach`.
    Attach(AttachEvent<'i>),
    /// The link is over (`closed`) or suspended for the peer; all frames before this one have taken effect. Unless
    /// `answered`, the caller settles what it still can, then calls `detach` with the same `closed`. The id dies with that
    /// call; when answered, it is dead already.
    Detached {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// Whether the terminus ends too, not only the link's attachment.
        closed: bool,
        /// The peer's reason.
        error: Option<Error<'i>>,
        /// Whether our `detach` is out already.
        answered: bool,
        /// Whether a delivery of the peer's was under way: it counts as aborted.
        midway: bool,
    },
    /// The peer broke a rule of the link: our `detach` (closing, with this error) is queued, what the peer still
    /// sends on it is dropped. [`Event::Detached`] with `answered` follows when the peer answers.
    LinkFailed {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// What rule.
        fault: Fault,
    },

    /// The peer's `flow` for a link on which we send: credit, drain, or the session window may have changed.
    Credit {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// Deliveries that may be sent now, as the counts of both sides say.
        credit: u32,
        /// Whether the peer wants the credit used up: send what is ready, then call `drained`, with credit 0 too.
        drain: bool,
        /// Whether the session could send no frame before and can now: other links of it may go on.
        window_opened: bool,
        /// The frame, for its properties.
        frame: FlowFrame<'i>,
    },
    /// The peer's `flow` for a link on which we receive.
    SenderFlow {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
        /// What the peer says it could send; a hint.
        available: u32,
        /// Whether our `drain` is answered: no credit is left.
        drained: bool,
        /// Whether the session could send no frame before and can now.
        window_opened: bool,
        /// The frame, for its properties.
        frame: FlowFrame<'i>,
    },
    /// Our `drain` is answered by deliveries alone: they used up the credit. (Otherwise [`Event::SenderFlow`] says so.)
    Drained {
        /// The link.
        link: LinkId,
        /// The caller's number for it.
        token: u64,
    },
    /// The peer's `flow` for the session alone.
    SessionFlow {
        /// The session.
        session: SessionId,
        /// The caller's number for it.
        token: u64,
        /// Whether the session could send no frame before and can now: its links may go on.
        window_opened: bool,
        /// The frame, for its properties.
        frame: FlowFrame<'i>,
    },

    /// One `transfer` frame.
    Transfer(TransferEvent<'i>),
    /// The peer settled, or gave states to, deliveries: take them with `take_outcomes` before the next `next`.
    Disposition {
        /// The session.
        session: SessionId,
        /// Whether they are deliveries that *we* sent; otherwise the peer settles what it sent to us.
        ours: bool,
        /// The state as sent, for its error and annotations. For what it means to each delivery see [`DeliveryOutcome`].
        state: Option<DeliveryState<'i>>,
        /// How many outcomes wait. 0 only with a transactional state on deliveries of ours none of which is unsettled: in its
        /// transaction that is no harmless repetition.
        count: u32,
    },

    /// The peer's `close`: all frames before it have taken effect. Unless `answered`, the caller settles what it still can,
    /// then calls `close(None)`.
    Closed {
        /// The peer's reason.
        error: Option<Error<'i>>,
        /// Whether our `close` is out already.
        answered: bool,
    },
}

/// The peer's `attach`: a new link awaiting `accept_link` or `refuse_link`, or the answer to ours.
#[derive(Debug)]
pub struct AttachEvent<'i> {
    /// The session.
    pub session: SessionId,
    /// The link.
    pub link: LinkId,
    /// The caller's number for the link (0 for a new one).
    pub token: u64,
    /// What *we* are on this link.
    pub role: Role,
    /// Whether this answers our own `attach`. Otherwise the caller must accept or refuse.
    pub answer: bool,
    /// Only with `answer`: the peer's terminus is null although we sent one, so it refuses; its `detach` follows.
    pub refused: bool,
    /// An older link of this connection with the same name and role, which this one took over: `detach` with
    /// `amqp:link:stolen` is queued for it. Its deliveries go back before the new link gets any.
    pub stolen: Option<LinkId>,
    /// The peer's `attach`.
    pub frame: AttachFrame<'i>,
}

/// One `transfer` frame of a delivery that the peer sends.
#[derive(Debug)]
pub struct TransferEvent<'i> {
    /// The link.
    pub link: LinkId,
    /// The caller's number for the link.
    pub token: u64,
    /// The delivery, unique in its session while unsettled.
    pub delivery_id: u32,
    /// The delivery-tag, at most 32 bytes; only with `first`, otherwise empty.
    pub tag: &'i [u8],
    /// The message-format of the delivery; 0 is the standard's own.
    pub format: u32,
    /// Whether the sender has settled the delivery, in this frame or before.
    pub settled: bool,
    /// Whether this is the first frame of the delivery.
    pub first: bool,
    /// Whether this is the last frame of the delivery (true too if `aborted`).
    pub last: bool,
    /// Whether the sender takes the delivery back: nothing of it counts, it gets no outcome.
    pub aborted: bool,
    /// Whether it resumes an earlier delivery. The engine keeps no unsettled map, so that a resumed delivery is always
    /// unknown and passed over, as the standard says: never true at present.
    pub resume: bool,
    /// Whether the sender does not mind delayed dispositions.
    pub batchable: bool,
    /// Whether the receiver settles first for this delivery although the link says second.
    pub settle_first: bool,
    /// The state of the delivery at the sender (a transaction, for one), if this frame has one.
    pub state: Option<DeliveryState<'i>>,
    /// The bytes of this frame; empty if `aborted`.
    pub payload: &'i [u8],
}

/// What became of one delivery, told by the peer. Filled by `take_outcomes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryOutcome {
    /// The link of the delivery; it may be suspended by now.
    pub link: LinkId,
    /// The caller's number for the link at the time of the delivery.
    pub link_token: u64,
    /// The caller's number for the delivery.
    pub token: u64,
    /// The delivery.
    pub delivery_id: u32,
    /// What the peer decided, with the source's default outcome put in where it settled without a state.
    pub state: Decision,
    /// Whether the peer has settled: the engine has forgotten the delivery. Otherwise the caller settles it.
    pub settled: bool,
    /// Whether the decision was told by an earlier outcome already (which then holds) and only `settled` is new.
    pub repeated: bool,
}

/// A state of a delivery without its fields, which stand in [`Event::Disposition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No state: only when the peer settles what *it* sent.
    None,
    /// Received: not terminal.
    Received,
    /// Accepted.
    Accepted,
    /// Rejected; the error is in the event.
    Rejected,
    /// Released.
    Released,
    /// Modified; the annotations are in the event.
    Modified {
        /// Whether the attempt counts.
        delivery_failed: bool,
        /// Whether this link must not get it again.
        undeliverable_here: bool,
    },
    /// A transaction was declared; its id is in the event.
    Declared,
    /// In a transaction; id and outcome are in the event.
    Transactional,
    /// An outcome of a type we do not know; its value is in the event.
    Other,
}

/// A rule that the peer broke: the standard's condition and one sentence that names thing, limit and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The standard's error condition.
    pub condition: &'static str,
    /// The sentence.
    pub sentence: Cow<'static, str>,
    /// What the peer gets to see of it.
    pub told: Told,
}

/// How a peer learns of its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// By a frame that carries the condition.
    Frame,
    /// By the protocol header that we want: it spoke something else.
    Header,
    /// By a header, and it spoke TLS to a port without TLS.
    TlsHello,
    /// By nothing but the end of the connection (SASL has no other way; a deadline; bytes past the limit of what is held).
    Silence,
}

impl Fault {
    pub(crate) fn new(condition: &'static str, sentence: impl Into<Cow<'static, str>>) -> Self {
        Self { condition, sentence: sentence.into(), told: Told::Frame }
    }

    pub(crate) fn told(condition: &'static str, sentence: impl Into<Cow<'static, str>>, told: Told) -> Self {
        Self { condition, sentence: sentence.into(), told }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.condition, self.sentence)
    }
}

impl core::error::Error for Fault {}

/// Makes the type of a peer's performative that is decoded on demand: events stay small, and most callers look once.
macro_rules! frames {
    ($($(#[$doc:meta])* $name:ident => $of:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<'i> {
            bytes: &'i [u8],
            limits: Limits,
        }

        impl<'i> $name<'i> {
            pub(crate) fn new(bytes: &'i [u8], limits: &Limits) -> Self {
                Self { bytes, limits: *limits }
            }

            /// The fields.
            ///
            /// # Panics
            ///
            /// Never: the same bytes were decoded before the event was made.
            #[must_use]
            pub fn decode(&self) -> $of<'i> {
                $of::decode(self.bytes, &self.limits).expect("decoded before the event was made").0
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.decode().fmt(f)
            }
        }
    )*};
}

frames! {
    /// The peer's `open`.
    OpenFrame => Open;
    /// The peer's `begin`.
    BeginFrame => Begin;
    /// The peer's `attach`.
    AttachFrame => Attach;
    /// The peer's `flow`.
    FlowFrame => Flow;
    /// The server's mechanisms.
    MechanismsFrame => SaslMechanisms;
}
