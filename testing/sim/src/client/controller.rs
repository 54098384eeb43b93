//! A client's link to the coordinator of transactions: one request at a time, its answer in the caller's words.

use super::work::Work;
use super::{Around, Lost, known, misuse};
use crate::books::host_name;
use crate::draw::Draw;
use packhorse_client_core::Event as Told;
use packhorse_client_core::codec::DeliveryState;
use packhorse_client_core::transaction::{Request, Response, TxOutcome, XaXid};
use packhorse_client_core::{Client, ControllerOptions, DeliveryOutcome, Limits, LinkId, SessionId, response};
use packhorse_history::Event;

/// The link's number for its client.
pub(super) const TOKEN: u64 = 1_000;

/// Format of all xids.
const FORMAT: i32 = 1;

/// A transaction as its client knows it: the number in the history, and what the broker calls it.
#[derive(Clone, Debug)]
pub struct Tx {
    pub(crate) number: u64,
    pub(crate) id: Vec<u8>,
}

/// An answer that outlives the bytes it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The broker's name for what was declared.
    Declared(Vec<u8>),
    Done,
    /// Not done, with the error's condition.
    Refused(String),
    /// A code of XA, and a page of branches with whether there are more.
    Code(i32, Vec<Branch>, bool),
    Became(TxOutcome),
}

/// A branch's name. Usually the global id is the number of its transaction in the history, so that whoever lists it knows whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Branch {
    pub(crate) format: i32,
    pub(crate) global: Vec<u8>,
    pub(crate) qualifier: Vec<u8>,
}

impl Branch {
    pub(crate) fn new(tx: u64, host: usize) -> Branch {
        Branch { format: FORMAT, global: tx.to_be_bytes().to_vec(), qualifier: vec![host as u8] }
    }

    fn read(xid: &XaXid<'_>) -> Branch {
        Branch { format: xid.format_id, global: xid.global_id.to_vec(), qualifier: xid.branch_qualifier.to_vec() }
    }

    /// Its parts, as requests name them.
    pub(super) fn parts(&self) -> (i32, &[u8], &[u8]) {
        (self.format, &self.global, &self.qualifier)
    }

    pub(super) fn xid(&self) -> XaXid<'_> {
        XaXid { format_id: self.format, global_id: &self.global, branch_qualifier: &self.qualifier }
    }

    /// As the history names it.
    pub(crate) fn name(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{}:{}:{}", self.format, hex(&self.global), hex(&self.qualifier))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Controller {
    /// Its number among the controllers of its client, from 0.
    pub(super) nth: u64,
    link: Option<LinkId>,
    asked: u64,
    waits: bool,
}

impl Controller {
    pub(super) fn attach(&mut self, client: &mut Client, session: SessionId, xa: bool) -> Result<(), Lost> {
        let name = format!("controller-{}", self.nth);
        let options = ControllerOptions { name: &name, xa, token: TOKEN + self.nth };
        *self = Controller { link: Some(client.controller(session, &options).map_err(misuse)?), ..*self };
        self.waits = false;
        Ok(())
    }

    /// Whether a request may go.
    pub(super) fn is_free(&self, client: &Client) -> bool {
        !self.waits && self.link.is_some_and(|link| client.sendable(link))
    }

    pub(super) fn ask(&mut self, client: &mut Client, request: &Request<'_>) -> Result<(), Lost> {
        self.asked += 1;
        self.waits = true;
        client.request(known(self.link)?, self.asked, request).map(drop).map_err(misuse)
    }

    /// What the broker says to the request, if one of these outcomes is of it.
    pub(super) fn hear(&mut self, outcomes: &[DeliveryOutcome], state: Option<&DeliveryState<'_>>) -> Option<Said> {
        let token = TOKEN + self.nth;
        let ours = |one: &&DeliveryOutcome| one.link_token == token && one.token == self.asked && self.waits;
        outcomes.iter().find(ours)?;
        self.waits = false;
        Some(match response(state) {
            Response::Declared(id) => Said::Declared(id.to_vec()),
            Response::Accepted => Said::Done,
            Response::Rejected(error) => Said::Refused(error.map_or("", |error| error.condition).to_owned()),
            Response::Result(result) => {
                let xids = result.xids(&Limits::default()).unwrap_or_default();
                Said::Code(result.code, xids.iter().map(Branch::read).collect(), result.more)
            }
            Response::Status(outcome) => Said::Became(outcome),
            Response::Other => Said::Refused("an answer that is none".into()),
        })
    }

    /// Takes what has happened on the connection to whom it concerns; an answer of the coordinator is the caller's.
    pub(super) fn sort(
        &mut self,
        client: &Client,
        event: Told<'_>,
        (work, draw): (&mut Work, &mut Draw),
        around: &mut Around<'_>,
    ) -> Result<Option<Said>, Lost> {
        match event {
            Told::Outcomes { state } => {
                let outcomes = client.outcomes();
                let said = self.hear(outcomes, state.as_ref());
                if said.is_none() {
                    work.outcomes(outcomes, state.as_ref(), around);
                }
                Ok(said)
            }
            Told::LinkLost(lost) if lost.token == TOKEN + self.nth => {
                Err(format!("the broker ended a link to the coordinator: {}", lost.reason))
            }
            event => work.on(event, draw, around).map(|()| None),
        }
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self) {
        (self.link, self.waits) = (None, false);
    }
}

/// Tells the history that a transaction begins.
pub(super) fn begins(tx: u64, branch: Option<&Branch>, host: usize, around: &mut Around<'_>) {
    let (xid, broker) = (branch.map(Branch::name), host_name(host));
    around.put(&Event::TxBegin { tx, xid: xid.as_deref(), broker: Some(&broker) });
}
