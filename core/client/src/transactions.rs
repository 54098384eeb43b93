//! Transactions: the link to a coordinator, and messages sent and settled in a transaction.
//!
//! Must not know: what a transaction is. The caller keeps the ids that come by [`Response::Declared`].

use crate::client::{Client, Verdict};
use alloc::vec::Vec;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, Coordinator, DeliveryState, ReceiverSettleMode, Role, SenderSettleMode, Source, Symbols,
    TransactionalState,
};
use packhorse_amqp10::engine::{LinkId, Misuse, OpenFrame, Piece, SendParams, SessionId};
use packhorse_amqp10::transaction::{BROKER_PROPERTY, Request, Response, TxStatusResult, XaResult};

/// A link to the coordinator of transactions.
#[derive(Clone, Copy, Debug)]
pub struct ControllerOptions<'a> {
    /// The link's name; unique for this container and direction.
    pub name: &'a str,
    /// Ask for branches of XA too.
    pub xa: bool,
    /// The caller's number for the link.
    pub token: u64,
}

impl Client {
    /// Attaches a link to the broker's coordinator. [`crate::Event::Attached`] says what it has, in the target's and the
    /// attach's capabilities; then requests go by [`Client::request`].
    ///
    /// # Errors
    ///
    /// As [`packhorse_amqp10::engine::Connection::attach`].
    pub fn controller(&mut self, session: SessionId, options: &ControllerOptions<'_>) -> Result<LinkId, Misuse> {
        let wanted: &[&str] = if options.xa { &[LOCAL, DISTRIBUTED] } else { &[LOCAL] };
        let coordinator = Coordinator { capabilities: Symbols::from_slice(wanted) };
        let attach = Attach {
            name: options.name,
            role: Role::Sender,
            snd_settle_mode: SenderSettleMode::Unsettled,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: Some(Source { outcomes: OUTCOMES, ..Source::default() }),
            target: Some(AttachTarget::Coordinator(coordinator)),
            ..Attach::default()
        };
        self.connection.attach(session, &attach, options.token)
    }

    /// Asks the coordinator. What it says comes as an [`crate::Event::Outcomes`] for `token`, to be read by [`response`].
    /// What was settled before goes out before it: the end of a transaction must not overtake its work.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn request(&mut self, controller: LinkId, token: u64, request: &Request<'_>) -> Result<u32, Misuse> {
        let mut message = Vec::new();
        request.encode(&mut message);
        self.connection.settle_now();
        self.send(controller, token, false, &[Piece::Copy(&message)])
    }

    /// As [`Client::send`], in the transaction that was declared as `txn`. Unless `settled`, its outcome is a transactional
    /// state, which holds when the transaction commits.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_in(
        &mut self,
        txn: &[u8],
        link: LinkId,
        token: u64,
        settled: bool,
        pieces: &[Piece<'_>],
    ) -> Result<u32, Misuse> {
        let state = DeliveryState::Transactional(TransactionalState { txn_id: txn, outcome: None });
        let params = SendParams { token, settled, state: Some(&state), ..SendParams::default() };
        self.connection.send(link, &params, pieces)
    }

    /// As [`Client::begin_message`], in a transaction.
    ///
    /// # Errors
    ///
    /// As [`Client::begin_message`].
    pub fn begin_message_in(&mut self, txn: &[u8], link: LinkId, token: u64, settled: bool) -> Result<(), Misuse> {
        let state = DeliveryState::Transactional(TransactionalState { txn_id: txn, outcome: None });
        let params = SendParams { token, settled, state: Some(&state), ..SendParams::default() };
        self.connection.begin_delivery(link, &params)
    }

    /// As [`Client::settle`], in a transaction: it holds when that commits.
    ///
    /// # Errors
    ///
    /// As [`Client::settle`].
    pub fn settle_in(&mut self, txn: &[u8], link: LinkId, delivery: u32, verdict: Verdict<'_>) -> Result<bool, Misuse> {
        self.connection.settle_incoming(link, delivery, Some(&in_transaction(txn, verdict)), true)
    }

    /// As [`Client::decide`], in a transaction: [`crate::Event::Confirmed`] comes when that has ended.
    ///
    /// # Errors
    ///
    /// As [`Client::decide`].
    pub fn decide_in(&mut self, txn: &[u8], link: LinkId, delivery: u32, verdict: Verdict<'_>) -> Result<bool, Misuse> {
        self.connection.settle_incoming(link, delivery, Some(&in_transaction(txn, verdict)), false)
    }
}

fn in_transaction<'a>(txn: &'a [u8], verdict: Verdict<'a>) -> DeliveryState<'a> {
    DeliveryState::Transactional(TransactionalState { txn_id: txn, outcome: verdict.state().outcome() })
}

/// Reads the state of an [`crate::Event::Outcomes`] as the coordinator's answer. What is damaged is [`Response::Other`].
#[must_use]
pub fn response<'a>(state: Option<&DeliveryState<'a>>) -> Response<'a> {
    state.and_then(|state| Response::read(state, &Limits::default()).ok()).unwrap_or(Response::Other)
}

/// Which broker it is, by its `open`; `None`: it does not say. Two connections with the same are to one resource manager of XA.
#[must_use]
pub fn broker_id(open: &OpenFrame<'_>) -> Option<[u8; 16]> {
    let value = open.decode().properties?.get(BROKER_PROPERTY)?;
    match value.data() {
        packhorse_amqp10::codec::Data::Uuid(id) => Some(id),
        _ => None,
    }
}

const LOCAL: &str = "amqp:local-transactions";
const DISTRIBUTED: &str = "amqp:distributed-transactions";

/// Outcomes that we understand from a coordinator.
const OUTCOMES: Symbols<'static> = Symbols::from_slice(&[
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:declared:list",
    XaResult::SYMBOL,
    TxStatusResult::SYMBOL,
]);
