//! Local transactions, as fe2o3 has them: a transaction borrows its controller, and what is posted and accepted in it goes by
//! its id. The id is kept here as well, so that one that nobody gave can stand in its place.

use fe2o3_amqp::{
    Receiver, Sender,
    connection::ConnectionHandle,
    link::{
        DispositionError,
        delivery::{Delivery, DeliveryInfo},
    },
    session::SessionHandle,
    transaction::{
        Controller, Transaction, TransactionAcquisition, TransactionBase, TransactionDischarge, TransactionPosting,
        TransactionRetirement, TxnAcquisition,
    },
    types::{
        messaging::{Accepted, Body, Modified, Outcome, Rejected, Released},
        primitives::Value,
        transaction::TransactionId,
    },
};
use serde_json::{Value as Json, json};
use tokio::time::timeout;

use crate::{SHORT, Trouble, answered, messages};

/// The condition of a transaction that is not known: the library has a type for it, and prints that.
const UNKNOWN: (&str, &str) = ("TransactionError(UnknownId)", "amqp:transaction:unknown-id");

/// A controller lives until the program ends, for its transactions borrow it; its link goes with its session.
pub(crate) async fn coordinator(session: &mut SessionHandle<()>, link: &str) -> Result<&'static Controller, Trouble> {
    Ok(Box::leak(Box::new(Controller::attach(session, link).await?)))
}

/// The id that work goes by.
pub(crate) struct Id(TransactionId);

impl TransactionBase for Id {
    fn txn_id(&self) -> &TransactionId {
        &self.0
    }
}

impl TransactionPosting for Id {}

impl TransactionRetirement for Id {
    type RetireError = DispositionError;
}

/// A transaction under a name of the driver's.
pub(crate) struct Named {
    id: Id,
    declared: Option<Transaction<'static>>,
    acquired: Option<TxnAcquisition<'static, Transaction<'static>>>,
    /// The name of its connection.
    pub(crate) connection: String,
}

impl Named {
    pub(crate) async fn declare(controller: &'static Controller, connection: String) -> Result<Named, Trouble> {
        let declared = Transaction::declare(controller, None).await.map_err(told)?;
        Ok(Named { id: Id(declared.txn_id().clone()), declared: Some(declared), acquired: None, connection })
    }

    /// One that no broker gave an id.
    pub(crate) fn forged(connection: String) -> Named {
        Named { id: Id(TransactionId::from(b"nobody's".to_vec())), declared: None, acquired: None, connection }
    }

    pub(crate) async fn discharge(&mut self, connection: &ConnectionHandle<()>, fail: bool) -> Result<(), Trouble> {
        if let Some(acquisition) = self.acquired.take() {
            let ended = async { if fail { acquisition.rollback().await } else { acquisition.commit().await } };
            return Ok(answered(connection, ended).await?.map_err(told)?);
        }
        let declared = self.declared.as_mut().ok_or("fe2o3 discharges what it has declared")?;
        Ok(answered(connection, declared.discharge(fail)).await?.map_err(told)?)
    }

    pub(crate) async fn settle(
        &self,
        link: &mut Receiver,
        delivery: DeliveryInfo,
        outcome: &str,
    ) -> Result<(), Trouble> {
        let outcome = match outcome {
            "accept" => Outcome::Accepted(Accepted {}),
            "reject" => Outcome::Rejected(Rejected { error: None }),
            "release" => Outcome::Released(Released {}),
            _ => Outcome::Modified(Modified {
                delivery_failed: Some(true),
                undeliverable_here: None,
                message_annotations: None,
            }),
        };
        Ok(self.id.retire(link, delivery, outcome).await?)
    }

    /// Grants credit under the transaction, receives as many, and accepts the first of them.
    pub(crate) async fn acquire(&mut self, link: Receiver, count: u32, accept: usize) -> Result<Vec<Json>, Trouble> {
        let declared = self.declared.take().ok_or("a transaction that was declared, and has acquired nothing yet")?;
        // An acquisition borrows its link, which goes with the session, as the controller's does.
        let mut acquisition = declared.acquire(Box::leak(Box::new(link)), count).await.map_err(told)?;
        let mut summaries = Vec::new();
        for number in 0..count as usize {
            let delivery: Delivery<Body<Value>> = timeout(SHORT, acquisition.recv()).await?.map_err(told)?;
            summaries.push(messages::summary(delivery.message()));
            if number < accept {
                acquisition.accept(&delivery).await?;
            }
        }
        self.acquired = Some(acquisition);
        Ok(summaries)
    }

    /// Sends all, and then waits for what is said of them.
    pub(crate) async fn post(
        &self,
        link: &mut Sender,
        connection: &ConnectionHandle<()>,
        numbered: impl Iterator<Item = (u64, messages::Any)>,
    ) -> Result<Json, Trouble> {
        let mut open = Vec::new();
        for (number, message) in numbered {
            open.push((number, answered(connection, self.id.post_batchable(link, message)).await?.map_err(told)?));
        }
        let (mut accepted, mut others) = (0, Vec::new());
        for (number, outcome) in open {
            match answered(connection, outcome).await?.map_err(told)? {
                Outcome::Accepted(_) => accepted += 1,
                other => others.push(format!("{number}: {}", told(other))),
            }
        }
        Ok(json!({"accepted": accepted, "others": others}))
    }
}

/// In the library's words, but for a condition in the standard's.
pub(crate) fn told(trouble: impl std::fmt::Debug) -> String {
    format!("{trouble:?}").replace(UNKNOWN.0, UNKNOWN.1)
}
