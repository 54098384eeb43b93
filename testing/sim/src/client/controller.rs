//! A client's link to the coordinator of transactions: one request at a time, its answer in the caller's words.

use super::{Around, Lost, known, misuse};
use crate::books::host_name;
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
pub(crate) struct Tx {
    pub(crate) number: u64,
    pub(crate) id: Vec<u8>,
}

/// An answer that outlives the bytes it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The broker's name for what was declared.
    Declared(Vec<u8>),
    Done,
    /// Not done, with the error's condition.
    Refused(String),
    /// A code of XA, and a page of branches with whether there are more.
    Code(i32, Vec<Branch>, bool),
    Became(TxOutcome),
}

/// A branch's name. The global id is the number of its transaction in the history, so that whoever lists it knows whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    global: [u8; 8],
    qualifier: [u8; 1],
}

impl Branch {
    pub(super) fn new(tx: u64, host: usize) -> Branch {
        Branch { global: tx.to_be_bytes(), qualifier: [host as u8] }
    }

    fn read(xid: &XaXid<'_>) -> Option<Branch> {
        let (global, qualifier) = (xid.global_id.try_into().ok()?, xid.branch_qualifier.try_into().ok()?);
        (xid.format_id == FORMAT).then_some(Branch { global, qualifier })
    }

    /// Its parts, as requests name them.
    pub(super) fn parts(&self) -> (i32, &[u8], &[u8]) {
        (FORMAT, &self.global, &self.qualifier)
    }

    pub(super) fn xid(&self) -> XaXid<'_> {
        XaXid { format_id: FORMAT, global_id: &self.global, branch_qualifier: &self.qualifier }
    }

    /// As the history names it.
    pub(super) fn name(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{FORMAT}:{}:{}", hex(&self.global), hex(&self.qualifier))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Controller {
    link: Option<LinkId>,
    asked: u64,
    waits: bool,
}

impl Controller {
    pub(super) fn attach(&mut self, client: &mut Client, session: SessionId, xa: bool) -> Result<(), Lost> {
        let options = ControllerOptions { name: "controller", xa, token: TOKEN };
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
        let ours = |one: &&DeliveryOutcome| one.link_token == TOKEN && one.token == self.asked && self.waits;
        outcomes.iter().find(ours)?;
        self.waits = false;
        Some(match response(state) {
            Response::Declared(id) => Said::Declared(id.to_vec()),
            Response::Accepted => Said::Done,
            Response::Rejected(error) => Said::Refused(error.map_or("", |error| error.condition).to_owned()),
            Response::Result(result) => {
                let xids = result.xids(&Limits::default()).unwrap_or_default();
                Said::Code(result.code, xids.iter().filter_map(Branch::read).collect(), result.more)
            }
            Response::Status(outcome) => Said::Became(outcome),
            Response::Other => Said::Refused("an answer that is none".into()),
        })
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
