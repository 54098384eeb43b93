//! A client that does what a script tells it, one order after the other, and nothing by itself. It writes the same books as the others.

use super::browser::show;
use super::controller::{TOKEN, Tx};
use super::desk::{Desk, Identity, Question};
use super::work::read_outcome;
use super::{Around, In, Line, Lost, Manner, Out, Queue, Use, misuse};
use crate::message::{Habits, Seen, Shape};
use packhorse_client_core::codec::{
    DeliveryState, Disposition, FrameHeader, FrameKind, Outcome, Role, TransactionalState,
};
use packhorse_client_core::{Commits, Decision, Event as Told, Joiner, LinkId, Piece, Verdict, broker_id};
use packhorse_history::Event;
use std::collections::{BTreeMap, VecDeque};

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// A producing link.
    Produce(Queue),
    /// A consuming link: with its first credit, and whether it wants answers to ends of deliveries.
    Consume { queue: Queue, purpose: Use, credit: u32, careful: bool },
    /// A browsing link.
    Browse(Queue),
    /// A message, as soon as there is credit for it, in a transaction or in none.
    Send { out: usize, shape: Shape, tx: Option<Tx> },
    /// Something that is no message, in a transaction; what becomes of it is not looked at.
    Spoil { out: usize, tx: Tx },
    /// This is the credit from now on.
    Grant { input: usize, credit: u32 },
    /// A delivery ends so; if it is accepted, in a transaction or in none.
    Decide { input: usize, delivery: u32, verdict: Verdict<'static>, tx: Option<Tx> },
    /// A word on a delivery that the engine would not say: it is over, or was never there.
    Claim { delivery: u32, accept: bool, tx: Option<Tx> },
    /// A link to the coordinator.
    Control,
    /// A question there, when the one before is answered.
    Ask { control: usize, question: Question },
    /// The link ends in order while deliveries may be on their way.
    Detach { input: usize },
    /// The session ends in order, with all its links.
    EndSession,
    /// The connection closes in order.
    Close,
}

/// A delivery as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The producing link that it came in on: links count from 1 in the order of their attaching, over the whole world.
    pub producer: u32,
    /// Its number among the messages of that link, from 0.
    pub number: u64,
    /// How often it was delivered before.
    pub deliveries: u32,
    /// The body is its sender's.
    pub whole: bool,
    /// Of a dead letter: why it is one.
    pub reason: Option<String>,
    /// The broker has answered the end of the delivery.
    pub answered: bool,
    /// The delivery's number in its session.
    pub delivery: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Scripted {
    outs: Vec<Out>,
    ins: Vec<In>,
    pub(crate) orders: VecDeque<Order>,
    /// By consuming link: what came, in order.
    pub(crate) got: Vec<Vec<Got>>,
    /// By producing link: what the broker said of each message.
    pub(crate) outcomes: Vec<BTreeMap<u64, Decision>>,
    /// By browsing link: what it was shown, in order.
    pub(crate) shown: Vec<Shown>,
    /// Links to the coordinator.
    pub(crate) desks: Vec<Desk>,
    /// What its `open` says of its commits.
    pub(crate) commits: Option<Commits>,
    broker: Option<[u8; 16]>,
    dice: Option<crate::draw::Draw>,
}

/// What a browsing link has seen: by producing link and number.
pub(crate) struct Shown {
    pub(crate) seen: Vec<(u32, u64)>,
    consumer: u32,
    link: LinkId,
    joiner: Joiner,
}

impl Scripted {
    pub(crate) fn new(dice: crate::draw::Draw, commits: Option<Commits>) -> Scripted {
        Scripted { dice: Some(dice), commits, ..Scripted::default() }
    }

    /// The number that a producing link has in the history.
    pub(crate) fn producer(&self, out: usize) -> Option<u32> {
        self.outs.get(out).map(Out::producer)
    }

    fn identity(&self) -> Identity {
        let session = self.commits.map_or([0; 16], |commits| commits.session);
        Identity { broker: self.broker.unwrap_or_default(), session }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(frame) => self.broker = broker_id(&frame),
            Told::Outcomes { state } => {
                let outcomes = line.client.outcomes();
                let identity = self.identity();
                for desk in &mut self.desks {
                    if let Some(said) = desk.hear(outcomes, state.as_ref()) {
                        return desk.heard(said, identity, &mut line.client, around);
                    }
                }
                let (decision, reason) = read_outcome(state.as_ref());
                for outcome in outcomes.iter().filter(|outcome| outcome.token != SPOILED) {
                    let (at, decision) = (outcome.link_token as usize, decision.unwrap_or(outcome.state));
                    self.outs[at].answered(outcome.token, decision, reason, around);
                    self.outcomes[at].insert(outcome.token, decision);
                }
            }
            // Consuming links have the numbers behind those of producing ones that can be.
            Told::Attached { token, .. } => {
                if let Some(input) = token.checked_sub(INS).filter(|input| *input < BROWSERS) {
                    self.ins[input as usize].stands();
                }
            }
            Told::Message(transfer) if transfer.token >= INS + BROWSERS => {
                let shown = &mut self.shown[(transfer.token - INS - BROWSERS) as usize];
                if let Some(bytes) = shown.joiner.push(&transfer) {
                    let Seen { id: message, whole: crc_ok, .. } = Seen::of(bytes);
                    around.put(&Event::Browsed { message, consumer: shown.consumer, crc_ok });
                    shown.seen.push((message.producer, message.sequence));
                    line.client.grant(shown.link, SHOWN).map_err(misuse)?;
                }
            }
            Told::Message(transfer) => {
                let at = (transfer.token - INS) as usize;
                let dice = self.dice.as_mut().expect("it has dice");
                if let Some(seen) = self.ins[at].receive(&transfer, dice, around) {
                    let (producer, number) = (seen.id.producer, seen.id.sequence);
                    let (deliveries, whole, delivery) = (seen.count, seen.whole, transfer.delivery_id);
                    let reason = self.ins[at].reason.take();
                    self.got[at].push(Got { producer, number, deliveries, whole, reason, answered: false, delivery });
                }
            }
            Told::Confirmed => {
                for outcome in line.client.outcomes() {
                    let at = (outcome.link_token - INS) as usize;
                    let stamp = around.books.stamp();
                    self.ins[at].confirmed(stamp, outcome.delivery_id, around);
                    let got = self.got[at].iter_mut().rev().find(|got| got.delivery == outcome.delivery_id);
                    if let Some(got) = got {
                        got.answered = true;
                    }
                }
            }
            Told::LinkLost(lost) => match lost.token.checked_sub(INS) {
                Some(browser) if browser >= BROWSERS => {}
                Some(input) => self.ins[input as usize].ended(&lost.reason, around),
                None if lost.token >= TOKEN => {
                    return Err(format!("the broker ended a link to the coordinator: {}", lost.reason));
                }
                None => return Err(format!("the broker ended a producer's link: {}", lost.reason)),
            },
            Told::SessionLost { reason, .. } | Told::Closed { reason } => {
                self.ins.iter_mut().for_each(|input| input.ended(&reason, around));
                self.desks.iter_mut().for_each(|desk| desk.lost(around));
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        if leaving {
            self.orders = [Order::Close].into();
        }
        for out in &mut self.outs {
            out.push(&mut line.client)?;
        }
        while !line.closing
            && let Some(order) = self.orders.front().cloned()
        {
            if !self.obey(order, line, around)? {
                break;
            }
            self.orders.pop_front();
        }
        Ok(())
    }

    /// False: not yet.
    fn obey(&mut self, order: Order, line: &mut Line, around: &mut Around<'_>) -> Result<bool, Lost> {
        let Some(session) = line.session else { return Ok(false) };
        let client = &mut line.client;
        match order {
            Order::Produce(queue) => {
                let habits = Habits { volatile: 0, priorities: 0, settled: 0, huge: 0 };
                let mut out = Out::new(queue, habits, usize::MAX >> 1, u64::MAX);
                out.attach(client, session, self.outs.len() as u64, around)?;
                self.outs.push(out);
                self.outcomes.push(BTreeMap::new());
            }
            Order::Consume { queue, purpose, credit, careful } => {
                let manner = Manner { careful, presettled: false, credit, hold: 0, hold_us: 1, accepts: 100 };
                let mut input = In::new(queue, purpose, manner);
                input.attach(client, session, INS + self.ins.len() as u64, around)?;
                self.ins.push(input);
                self.got.push(Vec::new());
            }
            Order::Browse(queue) => {
                let (consumer, nth) = (around.books.link(), self.shown.len() as u64);
                around.put(&Event::Browser { consumer, queue: &queue.full });
                let name = format!("browser-{nth}");
                let link = show(client, session, &queue, &name, true, INS + BROWSERS + nth)?;
                client.grant(link, SHOWN).map_err(misuse)?;
                self.shown.push(Shown { seen: Vec::new(), consumer, link, joiner: Joiner::default() });
            }
            Order::Send { out, shape, tx } => {
                self.outs[out].tx = tx;
                return self.outs[out].send_one(client, shape, around);
            }
            Order::Spoil { out, tx } => {
                let Some(link) = self.outs[out].link.filter(|link| client.sendable(*link)) else { return Ok(false) };
                client.send_in(&tx.id, link, SPOILED, false, &[Piece::Copy(&[0xff; 5])]).map_err(misuse)?;
            }
            Order::Control => {
                self.desks.push(Desk::attach(self.desks.len(), client, session)?);
            }
            Order::Ask { control, question } => {
                let identity = self.identity();
                let desk = &mut self.desks[control];
                return Ok(desk.is_answered() && desk.ask(question, identity, client, around)?);
            }
            Order::Grant { input, credit } => self.ins[input].give_credit(client, credit, around)?,
            Order::Decide { input, delivery, verdict, tx } => {
                self.ins[input].tx = tx;
                self.ins[input].decide(client, delivery, verdict, around)?;
                self.ins[input].tx = None;
            }
            Order::Claim { delivery, accept, tx } => {
                let outcome = if accept { Outcome::Accepted } else { Outcome::Released };
                let state = match &tx {
                    Some(tx) => {
                        DeliveryState::Transactional(TransactionalState { txn_id: &tx.id, outcome: Some(outcome) })
                    }
                    None if accept => DeliveryState::Accepted,
                    None => DeliveryState::Released,
                };
                let claim = Disposition {
                    role: Role::Receiver,
                    first: delivery,
                    last: Some(delivery),
                    settled: true,
                    state: Some(state),
                    batchable: false,
                };
                FrameHeader::encode(&mut line.raw, FrameKind::Amqp, 0, |out| claim.encode(out));
            }
            Order::Detach { input } => self.ins[input].detach(client, around)?,
            Order::EndSession => {
                self.ins.iter_mut().for_each(|input| input.ends(true, around));
                self.outs.iter_mut().for_each(|out| out.lost(around));
                client.end(session).map_err(misuse)?;
            }
            Order::Close => {
                self.ins.iter_mut().for_each(|input| input.ends(true, around));
                self.outs.iter_mut().for_each(|out| out.lost(around));
                line.close(around)?;
            }
        }
        Ok(true)
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        self.outs.iter_mut().for_each(|out| out.lost(around));
        self.ins.iter_mut().for_each(|input| input.ends(false, around));
        self.desks.iter_mut().for_each(|desk| desk.lost(around));
        self.orders.clear();
    }

    /// Whether it consumes: then its clock is part of the history.
    pub(super) fn consumes(&self) -> bool {
        !self.ins.is_empty()
    }

    pub(super) fn open(&self) -> u64 {
        self.outs.iter().map(Out::unconfirmed).sum::<u64>() + self.ins.iter().map(In::open).sum::<u64>()
    }

    /// Nothing is left to say, and every message sent and delivery ended has its answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.orders.is_empty()
            && self.outs.iter().all(|o| o.unconfirmed() == 0)
            && self.ins.iter().all(In::is_answered)
            && self.desks.iter().all(Desk::is_answered)
    }
}

/// Numbers of consuming links begin here.
const INS: u64 = 1 << 32;

/// And of these, those of browsing links.
const BROWSERS: u64 = 1 << 31;

/// Credit of a browsing link, at all times.
const SHOWN: u32 = 1_000;

/// The number of everything that is no message.
const SPOILED: u64 = u64::MAX;
