//! Links of a client that works in transactions: what it sends goes to several queues, what it receives is acknowledged in the same
//! transaction. Messages that it holds between two transactions it keeps for the next one.

use super::controller::{Controller, Tx};
use super::intake::{In, Returned, Standing};
use super::outlet::Out;
use super::{Around, Line, Lost};
use crate::draw::Draw;
use packhorse_client_core::codec::{DeliveryState, Outcome};
use packhorse_client_core::{Client, Decision, DeliveryOutcome, Event as Told, SessionId};

/// Tokens of consuming links begin here.
const INS: u64 = 100;

/// See the module.
pub(crate) struct Work {
    outs: Vec<Out>,
    ins: Vec<In>,
    tx: Option<Tx>,
}

impl Work {
    pub(crate) fn new(outs: Vec<Out>, ins: Vec<In>) -> Work {
        Work { outs, ins, tx: None }
    }

    /// Attaches what is not there.
    pub(super) fn attach(
        &mut self,
        client: &mut Client,
        session: SessionId,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        for (token, out) in self.outs.iter_mut().enumerate().filter(|(_, out)| out.link.is_none()) {
            out.attach(client, session, token as u64, around)?;
        }
        for (at, input) in self.ins.iter_mut().enumerate().filter(|(_, input)| input.standing == Standing::None) {
            input.attach(client, session, INS + at as u64, around)?;
        }
        Ok(())
    }

    /// What concerns its links.
    pub(super) fn on(&mut self, event: Told<'_>, draw: &mut Draw, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Attached { token, .. } => self.input(token).into_iter().for_each(In::stands),
            Told::Message(transfer) => {
                if let Some(input) = self.input(transfer.token) {
                    input.receive(&transfer, draw, around);
                }
            }
            Told::Drained { token, .. } => self.input(token).into_iter().for_each(|input| input.drained(around)),
            Told::LinkLost(lost) => match self.input(lost.token) {
                Some(input) if matches!(input.standing, Standing::Ending | Standing::Closing) => {
                    input.ended(&lost.reason, around);
                }
                _ => return Err(format!("the broker ended a link that works in transactions: {}", lost.reason)),
            },
            Told::Closed { reason } => {
                for input in self.ins.iter_mut().filter(|input| input.standing == Standing::Closing) {
                    input.ended(&reason, around);
                }
            }
            Told::SessionLost { reason, .. } => return Err(format!("the broker ended a session: {reason}")),
            _ => {}
        }
        Ok(())
    }

    fn input(&mut self, token: u64) -> Option<&mut In> {
        self.ins.get_mut(usize::try_from(token.checked_sub(INS)?).ok()?)
    }

    /// Answers to what was sent.
    pub(super) fn outcomes(
        &mut self,
        outcomes: &[DeliveryOutcome],
        state: Option<&DeliveryState<'_>>,
        around: &mut Around<'_>,
    ) {
        let (decision, reason) = read_outcome(state);
        for one in outcomes {
            let Some(out) = self.outs.get_mut(one.link_token as usize).filter(|out| out.link.is_some()) else {
                continue;
            };
            out.answered(one.token, decision.unwrap_or(one.state), reason, around);
        }
    }

    /// From now on in this transaction, or in none.
    pub(super) fn enter(&mut self, tx: Option<&Tx>) {
        self.outs.iter_mut().for_each(|out| out.tx = tx.cloned());
        self.ins.iter_mut().for_each(|input| input.tx = tx.cloned());
        self.tx = tx.cloned();
    }

    /// It ends its work in a branch: who decides that, and when, is open.
    pub(super) fn leaves(&mut self, around: &mut Around<'_>) {
        self.returned().iter().for_each(|one| one.may_happen(around));
        self.enter(None);
    }

    /// What was given back or rejected in the transaction, which is about to end.
    pub(super) fn returned(&mut self) -> Vec<Returned> {
        self.ins.iter_mut().flat_map(|input| std::mem::take(&mut input.returned)).collect()
    }

    /// What the broker calls the transaction.
    pub(super) fn tx_id(&self) -> Vec<u8> {
        self.tx.as_ref().map_or_else(Vec::new, |tx| tx.id.clone())
    }

    /// Does something, by the dice: sends a few messages, acknowledges a few deliveries.
    pub(super) fn step(&mut self, client: &mut Client, draw: &mut Draw, around: &mut Around<'_>) -> Result<(), Lost> {
        if draw.chance(70) && !self.outs.is_empty() {
            let (at, most) = (draw.below(self.outs.len()), draw.range(1, 5));
            self.outs[at].more(most);
            self.outs[at].send(client, most, draw, around)?;
        }
        for input in self.ins.iter_mut().filter(|input| input.standing == Standing::Up) {
            if draw.chance(60) {
                let all = draw.chance(50);
                input.settle(client, all, draw, around)?;
            }
        }
        Ok(())
    }

    /// Gives credit, and goes on with messages that are under way.
    pub(super) fn go_on(&mut self, client: &mut Client, around: &mut Around<'_>) -> Result<(), Lost> {
        for input in self.ins.iter_mut().filter(|input| input.standing == Standing::Up) {
            input.grant(client, around)?;
        }
        self.outs.iter_mut().try_for_each(|out| out.push(client))
    }

    /// What each client does before a step of its own. False: none is due, because an answer is missing, or because it is `done` and
    /// leaves.
    pub(super) fn is_free(
        &mut self,
        controller: &Controller,
        line: &mut Line,
        done: bool,
        around: &mut Around<'_>,
    ) -> Result<bool, Lost> {
        self.go_on(&mut line.client, around)?;
        if !controller.is_free(&line.client) {
            return Ok(false);
        }
        if done {
            self.enter(None);
            if self.leave(&mut line.client, around)? {
                line.close(around)?;
            }
        }
        Ok(!done)
    }

    /// No message is half sent.
    pub(super) fn is_whole(&self) -> bool {
        self.outs.iter().all(Out::is_whole)
    }

    /// Ends everything in order, a step at a time: what it holds goes back. True: nothing is there any more.
    pub(super) fn leave(&mut self, client: &mut Client, around: &mut Around<'_>) -> Result<bool, Lost> {
        for input in &mut self.ins {
            match input.standing {
                Standing::Up => input.drain(client)?,
                Standing::Drained => input.detach(client, around)?,
                _ => {}
            }
        }
        let gone = self.ins.iter().all(|input| input.standing == Standing::None);
        if gone {
            self.outs.iter_mut().for_each(|out| out.lost(around));
        }
        Ok(gone)
    }

    /// The connection is closed by the client, in order, with everything open.
    pub(super) fn close(&mut self, line: &mut Line, around: &mut Around<'_>) -> Result<(), Lost> {
        self.outs.iter_mut().for_each(|out| out.lost(around));
        self.ins.iter_mut().for_each(|input| input.ends(true, around));
        line.close(around)
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        self.enter(None);
        self.outs.iter_mut().for_each(|out| out.lost(around));
        for input in &mut self.ins {
            input.ends(false, around);
            input.standing = Standing::None;
            input.stale.clear();
        }
    }

    /// Messages without an answer, deliveries without an end.
    pub(super) fn open(&self) -> u64 {
        self.outs.iter().map(Out::unconfirmed).sum::<u64>() + self.ins.iter().map(In::open).sum::<u64>()
    }
}

/// What a state says of messages that were sent in a transaction, or `None`: what it says of any; and why, if it says so.
pub(super) fn read_outcome<'a>(state: Option<&DeliveryState<'a>>) -> (Option<Decision>, &'a str) {
    match state {
        Some(DeliveryState::Transactional(state)) => match state.outcome {
            Some(Outcome::Accepted) => (Some(Decision::Accepted), ""),
            _ => (Some(Decision::Rejected), "not taken into the transaction"),
        },
        Some(DeliveryState::Rejected(rejected)) => (None, rejected.error.map_or("", |error| error.condition)),
        _ => (None, "not taken"),
    }
}
