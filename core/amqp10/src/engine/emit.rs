//! An event before it borrows: numbers only. It becomes an [`Event`] when its frame is at hand.
//!
//! Owns the step between the two. It exists because the engine may change while frames are looked at, but not while an
//! event is out.

use super::event::{
    AttachEvent, AttachFrame, BeginFrame, Event, Fault, FlowFrame, MechanismsFrame, OpenFrame, TransferEvent,
};
use super::{LinkId, SessionId};
use crate::codec::{
    Close, DeliveryState, Detach, Disposition, End, Role, SaslChallenge, SaslInit, SaslOutcome, SaslResponse,
    TransactionalState, Transfer,
};
use crate::limits::Limits;

/// A part of a frame: where it starts and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    from: u32,
    to: u32,
}

impl Part {
    /// Where `part` stands in `frame`, of which it must be a part.
    pub(crate) fn of(frame: &[u8], part: &[u8]) -> Self {
        if part.is_empty() {
            return Self::default();
        }
        let from = (part.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        debug_assert!(from + part.len() <= frame.len());
        Self { from: from as u32, to: (from + part.len()) as u32 }
    }

    fn get<'i>(&self, frame: &'i [u8]) -> &'i [u8] {
        &frame[self.from as usize..self.to as usize]
    }
}

/// What happened, with the place of the performative it came in.
#[derive(Debug)]
pub(crate) struct Emit {
    kind: Kind,
    body: Part,
}

#[derive(Debug)]
pub(crate) enum Kind {
    SaslInit,
    SaslResponse,
    SaslMechanisms,
    SaslChallenge,
    SaslOutcome,
    Opened,
    SessionBegun {
        session: SessionId,
        by_peer: bool,
    },
    SessionEnded {
        session: SessionId,
        token: u64,
        answered: bool,
    },
    SessionFailed {
        session: SessionId,
        token: u64,
        fault: Fault,
    },
    Attach {
        session: SessionId,
        link: LinkId,
        token: u64,
        role: Role,
        answer: bool,
        refused: bool,
        stolen: Option<LinkId>,
    },
    Detached {
        link: LinkId,
        token: u64,
        answered: bool,
        midway: bool,
    },
    LinkFailed {
        link: LinkId,
        token: u64,
        fault: Fault,
    },
    Credit {
        link: LinkId,
        token: u64,
        credit: u32,
        drain: bool,
        window_opened: bool,
    },
    SenderFlow {
        link: LinkId,
        token: u64,
        available: u32,
        drained: bool,
        window_opened: bool,
    },
    Drained {
        link: LinkId,
        token: u64,
    },
    SessionFlow {
        session: SessionId,
        token: u64,
        window_opened: bool,
    },
    Transfer(TransferKind),
    Disposition {
        session: SessionId,
        ours: bool,
        count: u32,
    },
    Closed {
        answered: bool,
    },
}

/// See [`TransferEvent`].
#[derive(Debug)]
pub(crate) struct TransferKind {
    pub(crate) link: LinkId,
    pub(crate) token: u64,
    pub(crate) delivery_id: u32,
    pub(crate) tag: Part,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) aborted: bool,
    pub(crate) resume: bool,
    pub(crate) batchable: bool,
    pub(crate) settle_first: bool,
    pub(crate) state: TransferState,
    pub(crate) payload: Part,
}

/// What a transfer says of the delivery's state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransferState {
    None,
    /// It is in the transaction of this id, and no more is said: as with each message of one.
    InTransaction(Part),
    /// Something else, to be decoded a second time: rare.
    Other,
}

impl TransferState {
    /// Of a transfer in `frame`.
    #[inline]
    pub(crate) fn of(transfer: &Transfer<'_>, frame: &[u8]) -> Self {
        match &transfer.state {
            None => Self::None,
            Some(DeliveryState::Transactional(TransactionalState { txn_id, outcome: None })) => {
                Self::InTransaction(Part::of(frame, txn_id))
            }
            Some(_) => Self::Other,
        }
    }
}

impl Emit {
    /// An event that came in this frame, whose body is `body`.
    pub(crate) fn framed(kind: Kind, frame: &[u8], body: &[u8]) -> Self {
        Self { kind, body: Part::of(frame, body) }
    }

    /// An event that needs no frame.
    pub(crate) fn bare(kind: Kind) -> Self {
        Self { kind, body: Part::default() }
    }

    /// The event. `frame` is the one it was made with.
    pub(crate) fn event<'i>(self, frame: &'i [u8], limits: &Limits) -> Event<'i> {
        /// Decodes again what was decoded before.
        macro_rules! again {
            ($of:ident, $body:expr) => {
                $of::decode($body, limits).expect("decoded before the event was made").0
            };
        }
        let body = self.body.get(frame);
        match self.kind {
            Kind::SaslInit => {
                let init = again!(SaslInit, body);
                Event::SaslInit {
                    mechanism: init.mechanism,
                    initial_response: init.initial_response,
                    hostname: init.hostname,
                }
            }
            Kind::SaslResponse => Event::SaslResponse(again!(SaslResponse, body).response),
            Kind::SaslMechanisms => Event::SaslMechanisms(MechanismsFrame::new(body, limits)),
            Kind::SaslChallenge => Event::SaslChallenge(again!(SaslChallenge, body).challenge),
            Kind::SaslOutcome => {
                let outcome = again!(SaslOutcome, body);
                Event::SaslOutcome { code: outcome.code, additional_data: outcome.additional_data }
            }
            Kind::Opened => Event::Opened(OpenFrame::new(body, limits)),
            Kind::SessionBegun { session, by_peer } => {
                Event::SessionBegun { session, by_peer, frame: BeginFrame::new(body, limits) }
            }
            Kind::SessionEnded { session, token, answered } => {
                Event::SessionEnded { session, token, error: again!(End, body).error, answered }
            }
            Kind::SessionFailed { session, token, fault } => Event::SessionFailed { session, token, fault },
            Kind::Attach { session, link, token, role, answer, refused, stolen } => Event::Attach(AttachEvent {
                session,
                link,
                token,
                role,
                answer,
                refused,
                stolen,
                frame: AttachFrame::new(body, limits),
            }),
            Kind::Detached { link, token, answered, midway } => {
                let detach = again!(Detach, body);
                Event::Detached { link, token, closed: detach.closed, error: detach.error, answered, midway }
            }
            Kind::LinkFailed { link, token, fault } => Event::LinkFailed { link, token, fault },
            Kind::Credit { link, token, credit, drain, window_opened } => {
                Event::Credit { link, token, credit, drain, window_opened, frame: FlowFrame::new(body, limits) }
            }
            Kind::SenderFlow { link, token, available, drained, window_opened } => Event::SenderFlow {
                link,
                token,
                available,
                drained,
                window_opened,
                frame: FlowFrame::new(body, limits),
            },
            Kind::Drained { link, token } => Event::Drained { link, token },
            Kind::SessionFlow { session, token, window_opened } => {
                Event::SessionFlow { session, token, window_opened, frame: FlowFrame::new(body, limits) }
            }
            Kind::Transfer(t) => Event::Transfer(TransferEvent {
                link: t.link,
                token: t.token,
                delivery_id: t.delivery_id,
                tag: t.tag.get(frame),
                format: t.format,
                settled: t.settled,
                first: t.first,
                last: t.last,
                aborted: t.aborted,
                resume: t.resume,
                batchable: t.batchable,
                settle_first: t.settle_first,
                state: match t.state {
                    TransferState::None => None,
                    TransferState::InTransaction(id) => {
                        let state = TransactionalState { txn_id: id.get(frame), outcome: None };
                        Some(DeliveryState::Transactional(state))
                    }
                    TransferState::Other => again!(Transfer, body).state,
                },
                payload: t.payload.get(frame),
            }),
            Kind::Disposition { session, ours, count } => {
                Event::Disposition { session, ours, state: again!(Disposition, body).state, count }
            }
            Kind::Closed { answered } => Event::Closed { error: again!(Close, body).error, answered },
        }
    }
}
