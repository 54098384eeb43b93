//! Local transactions, as fe2o3 has them: a transaction borrows its controller, and what is posted and accepted in it goes by
//! its id. The id is kept here as well, so that one that nobody gave can stand in its place.

use fe2o3_amqp::{
    Receiver, Sender,
    connection::ConnectionHandle,
    link::{DispositionError, delivery::DeliveryInfo},
    session::SessionHandle,
    transaction::{
        Controller, Transaction, TransactionBase, TransactionDischarge, TransactionPosting, TransactionRetirement,
    },
    types::{messaging::Outcome, transaction::TransactionId},
};
use serde_json::{Value as Json, json};

use crate::{Trouble, answered, messages};

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
    /// The name of its connection.
    pub(crate) connection: String,
}

impl Named {
    pub(crate) async fn declare(controller: &'static Controller, connection: String) -> Result<Named, Trouble> {
        let declared = Transaction::declare(controller, None).await.map_err(told)?;
        Ok(Named { id: Id(declared.txn_id().clone()), declared: Some(declared), connection })
    }

    /// One that no broker gave an id.
    pub(crate) fn forged(connection: String) -> Named {
        Named { id: Id(TransactionId::from(b"nobody's".to_vec())), declared: None, connection }
    }

    pub(crate) async fn discharge(&mut self, connection: &ConnectionHandle<()>, fail: bool) -> Result<(), Trouble> {
        let declared = self.declared.as_mut().ok_or("fe2o3 discharges what it has declared")?;
        Ok(answered(connection, declared.discharge(fail)).await?.map_err(told)?)
    }

    pub(crate) async fn accept(&self, link: &mut Receiver, delivery: DeliveryInfo) -> Result<(), Trouble> {
        Ok(self.id.accept(link, delivery).await?)
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
