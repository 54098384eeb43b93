//! Workers that move messages from queue to queue: the same messages go round all the time, so that nothing but the moving is
//! measured, and each queue's order shows whether any was lost, doubled or overtaken.
//!
//! All connections are on one thread. What goes round is filled in before the run, and counted and taken away after it.

mod branches;
mod ring;
mod worker;

pub(super) use branches::recover;

use super::clock::{self, Span};
use super::control::Shared;
use super::figures::Side;
use super::intact::Intact;
use super::options::{Bench, Scenario};
use super::producer::misuse;
use super::wire::{self, READ_BYTES, Wire};
use crate::End;
use packhorse_client_core::{
    Body, Client, ControllerOptions, Draft, Event, LinkId, ReceiverOptions, SenderOptions, SenderSettleMode, SessionId,
    Verdict,
};
use packhorse_history::body::Checked;
use ring::Ring;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use worker::{Links, Mode, Moved, Plan, Worker};

/// Longest sleep; orders and the keeping alive of connections are looked after so often.
const NAP_NS: u64 = 50_000_000;
/// Without any progress for so long the run has failed.
const PATIENCE_NS: u64 = 60_000_000_000;
/// How long nothing may come from a queue before it is counted as it is.
const COUNT_PATIENCE_NS: u64 = 10_000_000_000;

/// Of the caller's number for a link, the kind; the rest is the worker's place on its connection.
const KINDS: u64 = 4;
const RECEIVER: u64 = 0;
const SENDER: u64 = 1;
const CONTROLLER: u64 = 2;

/// One connection and its workers, each with a session of its own.
struct Place {
    wire: Wire,
    workers: Vec<Worker>,
    unwritten: bool,
}

/// All workers, attached, with what they move in their queues.
pub(super) struct Movers {
    places: Vec<Place>,
    buffer: Vec<u8>,
    run: u64,
}

impl Movers {
    /// Connects, attaches all links, and fills the queues.
    pub(super) fn attach(bench: &Bench, run: u64) -> Result<Movers, End> {
        let plan = plan(bench, run, bench.span(0));
        let mut places = Vec::new();
        for connection in 0..bench.connections {
            let (mut wire, first) = Wire::open(&bench.amqp, &format!("bench-mover-{connection}"))?;
            let mut session = Some(first);
            let mut workers = Vec::new();
            for number in (connection..bench.workers).step_by(bench.connections as usize) {
                let session = session.take().map_or_else(|| wire.session(), Ok)?;
                let links = attach(&mut wire.client, session, &plan, number, workers.len() as u64)?;
                workers.push(Worker::new(&plan, number, links)?);
            }
            places.push(Place { wire, workers, unwritten: false });
        }
        let mut movers = Movers { places, buffer: vec![0; READ_BYTES], run };
        movers.fill(&plan)?;
        Ok(movers)
    }

    fn fill(&mut self, plan: &Plan<'_>) -> Result<(), End> {
        let mut moved = Moved::new(plan);
        let begun = clock::now_ns();
        loop {
            let mut filled = true;
            for place in &mut self.places {
                for worker in &mut place.workers {
                    let ready = worker.links.controller.is_none_or(|link| place.wire.client.sendable(link));
                    filled &= worker.fill(&mut place.wire.client, plan)? && ready;
                }
            }
            if filled {
                return Ok(());
            }
            self.turn(plan, &mut moved)?;
            if clock::now_ns() - begun > PATIENCE_NS {
                return Err(End::Refused("the queues could not be filled: no credit, or no confirms".into()));
            }
        }
    }

    /// Moves until the span or the count says stop, then counts what is there.
    pub(super) fn run(mut self, bench: &Bench, shared: &Shared, span: Span) -> Result<Value, End> {
        let plan = plan(bench, self.run, span);
        let mut moved = Moved::new(&plan);
        let mut last = (0, clock::now_ns());
        let mut ticked = last.1;
        loop {
            if shared.abort.load(Ordering::Relaxed) {
                return Err(End::Code(1));
            }
            let mut over = true;
            for place in &mut self.places {
                for worker in &mut place.workers {
                    worker.grant(&mut place.wire.client, &plan)?;
                    worker.pump(&mut place.wire.client, &plan)?;
                    over &= worker.over();
                }
            }
            if over {
                break;
            }
            self.turn(&plan, &mut moved)?;
            let now = clock::now_ns();
            if moved.side.done > last.0 {
                last = (moved.side.done, now);
                shared.confirmed.store(moved.messages, Ordering::Relaxed);
            }
            if now.saturating_sub(last.1.max(span.start_ns)) > PATIENCE_NS {
                return Err(End::Refused(format!("nothing has moved for {} s", PATIENCE_NS / 1_000_000_000)));
            }
            if now - ticked > NAP_NS {
                ticked = now;
                for place in &mut self.places {
                    place.wire.tick()?;
                }
            }
        }
        for place in self.places {
            place.wire.close(&mut self.buffer)?;
        }
        if bench.scenario == Scenario::Prepare {
            branches::write_log(bench, &moved.prepared)?;
        } else {
            count(&plan, &mut self.buffer, &mut moved.ring)?;
        }
        Ok(moved.into_json(&plan))
    }

    /// Writes, waits, reads.
    fn turn(&mut self, plan: &Plan<'_>, moved: &mut Moved) -> Result<(), End> {
        for place in &mut self.places {
            place.unwritten = !place.wire.write()?;
        }
        let mut readable = Vec::new();
        wire::wait(self.places.iter().map(|place| (&place.wire, place.unwritten)), NAP_NS, &mut readable)?;
        for (place, _) in self.places.iter_mut().zip(&readable).filter(|(_, readable)| **readable) {
            place.read(plan, &mut self.buffer, moved)?;
        }
        Ok(())
    }
}

impl Place {
    fn read(&mut self, plan: &Plan<'_>, buffer: &mut [u8], moved: &mut Moved) -> Result<(), End> {
        let Place { wire, workers, .. } = self;
        let mut told = Vec::new();
        wire.read(buffer, false, |client: &mut Client, event, now| {
            match event {
                Event::Message(transfer) => {
                    if let Some(worker) = workers.get_mut((transfer.token / KINDS) as usize) {
                        worker.on_message(plan, moved, &transfer)?;
                    }
                }
                Event::Outcomes { state } => {
                    told.clear();
                    told.extend_from_slice(client.outcomes());
                    for outcome in &told {
                        let Some(worker) = workers.get_mut((outcome.link_token / KINDS) as usize) else { continue };
                        if outcome.link_token % KINDS == CONTROLLER {
                            worker.on_answer(client, plan, moved, outcome, state.as_ref(), now)?;
                        } else {
                            worker.on_sent(client, plan, moved, outcome, state.as_ref(), now)?;
                        }
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl Moved {
    fn new(plan: &Plan<'_>) -> Moved {
        Moved {
            side: Side::new(plan.head.len() + plan.bench.size),
            whole: Side::new(0),
            ring: Ring::new(plan.bench.queue.len(), plan.bench.ring.unwrap_or(0)),
            messages: 0,
            counted: 0,
            prepared: Vec::new(),
        }
    }

    fn into_json(mut self, plan: &Plan<'_>) -> Value {
        let Span { from_ns, to_ns, .. } = plan.span;
        let seconds = (to_ns != u64::MAX).then(|| (to_ns - from_ns) as f64 / 1e9);
        self.side.violations = self.ring.violations;
        self.side.told = self.ring.told;
        let violations = self.side.violations.total();
        let mut mover = self.side.to_json(seconds, Some("confirm_us"));
        let whole = self.whole.to_json(seconds, Some("whole_us"));
        mover["whole_us"] = whole["whole_us"].clone();
        mover["messages"] = json!(self.counted);
        mover["messages_total"] = json!(self.messages);
        let seconds = mover["seconds"].as_f64().unwrap_or(0.0);
        mover["messages_per_second"] = json!(if seconds > 0.0 { self.counted as f64 / seconds } else { 0.0 });
        json!({
            "settings": {
                "workers": plan.bench.workers, "connections": plan.bench.connections, "batch": plan.batch,
                "ring": plan.bench.ring, "credit": plan.bench.credit, "size": plan.bench.size,
                "durable": plan.bench.durable, "count": plan.bench.count,
            },
            "mover": mover,
            "violations": violations,
        })
    }
}

fn plan(bench: &Bench, run: u64, span: Span) -> Plan<'_> {
    let mut head = Vec::new();
    Draft { durable: Some(bench.durable), ..Draft::new(Body::Data(&vec![0; bench.size])) }.encode(&mut head);
    head.truncate(head.len() - bench.size);
    let mode = match bench.scenario {
        Scenario::Pipe | Scenario::Transform => Mode::Alone,
        Scenario::LocalTx => Mode::Local,
        Scenario::Xa => Mode::Branch { commit: true },
        Scenario::Prepare | Scenario::Recover => Mode::Branch { commit: false },
    };
    Plan { bench, run, mode, batch: bench.batch.unwrap_or(1), span, head, intact: Intact::new(bench, run) }
}

/// Attaches a worker's links. It gets messages only when it grants credit.
fn attach(client: &mut Client, session: SessionId, plan: &Plan<'_>, number: u32, place: u64) -> Result<Links, End> {
    let queue = |number: u32| plan.bench.queue[number as usize].as_str();
    let name = format!("bench-{number}");
    let token = |kind| place * KINDS + kind;
    let receiver =
        ReceiverOptions { name: &name, address: queue(number), presettled: false, credit: 0, token: token(RECEIVER) };
    let sender = SenderOptions {
        name: &name,
        address: Some(queue(number ^ 1)),
        settle: SenderSettleMode::Unsettled,
        token: token(SENDER),
    };
    let name = format!("bench-control-{number}");
    let xa = matches!(plan.mode, Mode::Branch { .. });
    let controller = ControllerOptions { name: &name, xa, token: token(CONTROLLER) };
    Ok(Links {
        receiver: client.receiver(session, &receiver).map_err(misuse)?,
        sender: client.sender(session, &sender).map_err(misuse)?,
        controller: (plan.mode != Mode::Alone)
            .then(|| client.controller(session, &controller))
            .transpose()
            .map_err(misuse)?,
    })
}

/// Takes what is left from all queues: each message of the ring must be there once, in its order.
fn count(plan: &Plan<'_>, buffer: &mut [u8], ring: &mut Ring) -> Result<(), End> {
    ring.stop();
    let (mut wire, session) = Wire::open(&plan.bench.amqp, "bench-counter")?;
    let expected = plan.bench.ring.unwrap_or(0) * plan.bench.queue.len() as u64 / 2;
    let mut links: Vec<LinkId> = Vec::new();
    for (queue, address) in plan.bench.queue.iter().enumerate() {
        let credit = plan.bench.credit;
        let options = ReceiverOptions { name: address, address, presettled: false, credit, token: queue as u64 };
        links.push(wire.client.receiver(session, &options).map_err(misuse)?);
    }
    let mut joiners: Vec<_> = links.iter().map(|_| packhorse_client_core::Joiner::default()).collect();
    let (mut left, mut last) = (0, clock::now_ns());
    let mut drained: Option<usize> = None;
    while drained.is_none_or(|drained| drained < links.len()) && clock::now_ns() - last < COUNT_PATIENCE_NS {
        if left >= expected && drained.is_none() {
            // What comes beyond is too much.
            for link in &links {
                wire.client.drain(*link).map_err(misuse)?;
            }
            drained = Some(0);
        }
        let unwritten = !wire.write()?;
        let mut readable = Vec::new();
        wire::wait([(&wire, unwritten)].into_iter(), NAP_NS, &mut readable)?;
        let before = left;
        wire.read(buffer, false, |client, event, _| {
            match event {
                Event::Drained { .. } => drained = drained.map(|drained| drained + 1),
                Event::Message(transfer) => {
                    let queue = transfer.token as usize;
                    let Some(bytes) = joiners[queue].push(&transfer) else { return Ok(()) };
                    match plan.intact.check(bytes) {
                        Checked::Intact(message) => ring.left(queue, message),
                        Checked::Corrupt(message) => ring.corrupt(message),
                        Checked::Unreadable | Checked::OtherRun(_) => {
                            return Err(super::intact::not_empty(&plan.bench.queue[queue]));
                        }
                    }
                    left += 1;
                    client.settle(transfer.link, transfer.delivery_id, Verdict::Accept).map_err(misuse)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        if left > before {
            last = clock::now_ns();
        }
        for link in links.iter().filter(|_| drained.is_none()) {
            if wire.client.credit(*link) <= plan.bench.credit / 2 {
                wire.client.grant(*link, plan.bench.credit).map_err(misuse)?;
            }
        }
    }
    wire.close(buffer)?;
    ring.end();
    Ok(())
}
