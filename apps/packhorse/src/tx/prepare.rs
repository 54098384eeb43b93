//! `packhorse tx prepare`: does some work in a branch and prepares it, as a transaction manager would that then is heard of no more.
//! For rehearsals: what an operator does about a branch in doubt is better learned before there is one.

use crate::End;
use crate::amqp::{Wait, Wire};
use crate::cli::Prepare;
use packhorse_client_core::codec::{DeliveryState, Outcome};
use packhorse_client_core::transaction::{Request, Response, XaEnd, XaPrepare, XaStart, flags};
use packhorse_client_core::{
    Body, Client, ControllerOptions, Draft, Event, Joiner, LinkId, Misuse, Piece, ReceiverOptions, SenderOptions,
    SenderSettleMode, SessionId, Verdict, response,
};
use packhorse_model::Xid;
use std::time::Duration;

/// How long the broker may say nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// `XAER_DUPID`.
const DUPLICATE: i32 = -8;

/// The link to the coordinator, and what it is asked.
const CONTROLLER: u64 = 0;
/// Links of work have higher numbers.
const FIRST_LINK: u64 = 1;

pub(super) fn run(args: &Prepare) -> End {
    match prepare(args) {
        Ok(()) => End::Done,
        Err(end) => end,
    }
}

/// What the broker has said.
#[derive(Default)]
struct Said {
    /// The id to work under.
    txn: Option<Vec<u8>>,
    /// The code of the last verb.
    code: Option<i32>,
    /// Links that can send.
    sendable: bool,
    /// Messages of the present link that are in the branch.
    done: bool,
    joiner: Joiner,
}

fn prepare(args: &Prepare) -> Result<(), End> {
    let xid = Xid::parse(&args.xid).map_err(|e| End::Usage(format!("{}: {e}", args.xid)))?;
    if args.send.is_empty() && args.receive.is_empty() {
        return Err(End::Usage("say what is in the branch: --send ADDRESS=TEXT, --receive ADDRESS, or both".into()));
    }
    let mut sends = Vec::new();
    for pair in &args.send {
        let pair = pair.split_once('=').ok_or_else(|| End::Usage(format!("--send {pair}: write ADDRESS=TEXT")))?;
        sends.push(pair);
    }
    let (format_id, global_id, branch_qualifier) = (xid.format_id(), xid.global(), xid.qualifier());
    let (mut wire, session) = Wire::open(&args.amqp, "prepare")?;
    let mut said = Said::default();
    let options = ControllerOptions { name: "prepare", xa: true, token: CONTROLLER };
    let controller = wire.client.controller(session, &options).map_err(misuse)?;
    said.wait(&mut wire, "credit on the link to its coordinator", |said| said.sendable)?;

    let start = XaStart { format_id, global_id, branch_qualifier, flags: flags::NONE, timeout: 0 };
    said.ask(&mut wire, controller, &Request::Start(start))?;
    let txn = said.txn.take().ok_or_else(|| End::Refused("the broker has begun no branch".into()))?;
    let mut number = FIRST_LINK;
    for (address, text) in sends {
        said.send(&mut wire, session, number, &txn, address, text)?;
        number += 1;
    }
    for address in &args.receive {
        said.receive(&mut wire, session, number, &txn, address)?;
        number += 1;
    }
    let end = XaEnd { format_id, global_id, branch_qualifier, flags: flags::SUCCESS };
    said.ask(&mut wire, controller, &Request::End(end))?;
    said.ask(&mut wire, controller, &Request::Prepare(XaPrepare { format_id, global_id, branch_qualifier }))?;
    wire.close()?;
    println!("branch {xid} is prepared, and now in doubt: packhorse tx show {}", super::quoted(&xid.to_string()));
    Ok(())
}

impl Said {
    fn wait(&mut self, wire: &mut Wire, what: &str, there: impl Fn(&Said) -> bool) -> Result<(), End> {
        while !there(self) {
            if matches!(wire.turn(PATIENCE, |client, event| self.on(client, event))?, Wait::Silent) {
                let seconds = PATIENCE.as_secs();
                return Err(End::Refused(format!(
                    "the broker gives no {what} within {seconds} s; nothing is prepared, what was done in the branch is rolled back"
                )));
            }
        }
        Ok(())
    }

    /// Asks the coordinator; a code of XA other than `XA_OK` ends it all.
    fn ask(&mut self, wire: &mut Wire, controller: LinkId, request: &Request<'_>) -> Result<(), End> {
        self.code = None;
        wire.client.request(controller, CONTROLLER, request).map_err(misuse)?;
        self.wait(wire, "answer", |said| said.code.is_some())
    }

    fn send(
        &mut self,
        wire: &mut Wire,
        session: SessionId,
        number: u64,
        txn: &[u8],
        address: &str,
        text: &str,
    ) -> Result<(), End> {
        let name = format!("prepare-{number}");
        let options =
            SenderOptions { name: &name, address: Some(address), settle: SenderSettleMode::Unsettled, token: number };
        let link = wire.client.sender(session, &options).map_err(misuse)?;
        (self.sendable, self.done) = (false, false);
        self.wait(wire, "credit", |said| said.sendable)?;
        let mut draft = Draft::new(Body::Text(text));
        draft.durable = Some(true);
        let mut message = Vec::new();
        draft.encode(&mut message);
        wire.client.send_in(txn, link, number, false, &[Piece::Copy(&message)]).map_err(misuse)?;
        self.wait(wire, "answer", |said| said.done)
    }

    fn receive(
        &mut self,
        wire: &mut Wire,
        session: SessionId,
        number: u64,
        txn: &[u8],
        address: &str,
    ) -> Result<(), End> {
        let name = format!("prepare-{number}");
        let options = ReceiverOptions { name: &name, address, presettled: false, credit: 1, token: number };
        wire.client.receiver(session, &options).map_err(misuse)?;
        self.done = false;
        self.txn = Some(txn.to_vec());
        self.wait(wire, &format!("message of {address}"), |said| said.done)?;
        self.txn = None;
        Ok(())
    }

    fn on(&mut self, client: &mut Client, event: Event<'_>) -> Result<(), End> {
        match event {
            Event::LinkLost(lost) => return Err(End::Refused(lost.reason.to_string())),
            Event::Credit { credit, .. } => self.sendable |= credit > 0,
            Event::Outcomes { state } => {
                let controls = client.outcomes().iter().any(|outcome| outcome.link_token == CONTROLLER);
                if controls { self.answered(state.as_ref())? } else { self.sent(state.as_ref())? }
            }
            Event::Message(transfer) => {
                if self.joiner.push(&transfer).is_some()
                    && let Some(txn) = &self.txn
                {
                    client
                        .settle_in(txn, transfer.link, transfer.delivery_id, Verdict::Accept)
                        .map_err(|e| End::Refused(e.to_string()))?;
                    self.done = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, state: Option<&DeliveryState<'_>>) -> Result<(), End> {
        match response(state) {
            Response::Declared(txn) => (self.txn, self.code) = (Some(txn.to_vec()), Some(0)),
            Response::Result(result) if result.code == 0 => self.code = Some(0),
            Response::Result(result) => {
                let said = result.description.map_or(String::new(), |text| format!(": {text}"));
                let advice = if result.code == DUPLICATE {
                    "; there is a branch of this name: take another one, or see packhorse tx list"
                } else {
                    ""
                };
                return Err(End::Refused(format!("XA answers {}{said}{advice}", result.code)));
            }
            Response::Rejected(Some(error)) => {
                let said = error.description.unwrap_or("the coordinator rejects it");
                return Err(End::Refused(format!("{}: {said}", error.condition)));
            }
            other => return Err(End::Refused(format!("the coordinator answers {other:?}"))),
        }
        Ok(())
    }

    fn sent(&mut self, state: Option<&DeliveryState<'_>>) -> Result<(), End> {
        match state {
            Some(DeliveryState::Transactional(t)) if matches!(t.outcome, Some(Outcome::Accepted)) => {
                self.done = true;
                Ok(())
            }
            other => Err(End::Refused(format!("the message is not taken: {other:?}"))),
        }
    }
}

fn misuse(misuse: Misuse) -> End {
    End::Refused(misuse.to_string())
}
