//! A client that does what a script tells it, one order after the other, and nothing by itself. It writes the same books as the others.

use super::{Around, In, Line, Lost, Manner, Out, Queue, Use, misuse};
use crate::message::{Habits, Shape};
use packhorse_client_core::codec::{DeliveryState, Disposition, FrameHeader, FrameKind, Role};
use packhorse_client_core::{Decision, Event as Told, Verdict};
use std::collections::{BTreeMap, VecDeque};

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// A producing link.
    Produce(Queue),
    /// A consuming link: with its first credit, and whether it wants answers to ends of deliveries.
    Consume { queue: Queue, purpose: Use, credit: u32, careful: bool },
    /// A message, as soon as there is credit for it.
    Send { out: usize, shape: Shape },
    /// This is the credit from now on.
    Grant { input: usize, credit: u32 },
    /// A delivery ends so.
    Decide { input: usize, delivery: u32, verdict: Verdict<'static> },
    /// A word on a delivery that the engine would not say: it is over, or was never there.
    Claim { delivery: u32, accept: bool },
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
    dice: Option<crate::draw::Draw>,
}

impl Scripted {
    pub(crate) fn new(dice: crate::draw::Draw) -> Scripted {
        Scripted { dice: Some(dice), ..Scripted::default() }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Outcomes { .. } => {
                for outcome in line.client.outcomes() {
                    let at = outcome.link_token as usize;
                    self.outs[at].answered(outcome.token, outcome.state, "not taken", around);
                    self.outcomes[at].insert(outcome.token, outcome.state);
                }
            }
            // Consuming links have the numbers behind those of producing ones that can be.
            Told::Attached { token, .. } => {
                if let Some(input) = token.checked_sub(INS) {
                    self.ins[input as usize].stands();
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
                Some(input) => self.ins[input as usize].ended(&lost.reason, around),
                None => return Err(format!("the broker ended a producer's link: {}", lost.reason)),
            },
            Told::SessionLost { reason, .. } | Told::Closed { reason } => {
                self.ins.iter_mut().for_each(|input| input.ended(&reason, around));
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
            Order::Send { out, shape } => return self.outs[out].send_one(client, shape, around),
            Order::Grant { input, credit } => self.ins[input].give_credit(client, credit, around)?,
            Order::Decide { input, delivery, verdict } => {
                self.ins[input].decide(client, delivery, verdict, around)?;
            }
            Order::Claim { delivery, accept } => {
                let claim = Disposition {
                    role: Role::Receiver,
                    first: delivery,
                    last: Some(delivery),
                    settled: true,
                    state: Some(if accept { DeliveryState::Accepted } else { DeliveryState::Released }),
                    batchable: false,
                };
                FrameHeader::encode(&mut line.raw, FrameKind::Amqp, 0, |out| claim.encode(out));
            }
            Order::Detach { input } => self.ins[input].detach(client, around)?,
            Order::EndSession => {
                self.ins.iter_mut().for_each(|input| input.ends(true, around));
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
        self.orders.is_empty() && self.outs.iter().all(|o| o.unconfirmed() == 0) && self.ins.iter().all(In::is_answered)
    }
}

/// Numbers of consuming links begin here.
const INS: u64 = 1 << 32;
