//! The receiving side: all consuming connections on one thread. Takes each message, checks it, accepts it.

use super::clock::{self, Span};
use super::control::Shared;
use super::diary::Diary;
use super::figures::Side;
use super::intact::{Intact, not_empty};
use super::options::Bench;
use super::producer::misuse;
use super::seen::Seen;
use super::wire::{self, READ_BYTES, Wire};
use crate::End;
use packhorse_client_core::{Client, Event, Joiner, LinkId, ReceiverOptions, Verdict};
use packhorse_history::body::Checked;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest sleep; orders and the keeping alive of connections are looked after so often.
const NAP_NS: u64 = 50_000_000;
/// Without any message for so long the rest is lost: the first while it is not known how many there are.
const PATIENCE_NS: u64 = 120_000_000_000;
const PATIENCE_AT_END_NS: u64 = 20_000_000_000;
/// How long a broker may take to say that there is nothing more.
const DRAIN_PATIENCE_NS: u64 = 10_000_000_000;

/// One consuming connection.
struct Link {
    wire: Wire,
    link: LinkId,
    number: u32,
    queue: usize,
    joiner: Joiner,
    unwritten: bool,
    /// It was asked to send what there is and no more: whether the answer came.
    drained: Option<bool>,
}

/// What does not change during a run.
struct Plan<'a> {
    bench: &'a Bench,
    span: Span,
    intact: Intact,
}

/// The consumers, attached, with credit.
pub(super) struct Consumers {
    links: Vec<Link>,
    buffer: Vec<u8>,
}

impl Consumers {
    /// Connects all of them and waits until each link stands.
    pub(super) fn attach(bench: &Bench, diary: &mut Diary) -> Result<Consumers, End> {
        let mut buffer = vec![0; READ_BYTES];
        let mut links = Vec::new();
        for number in 0..bench.consumers.unwrap_or(1) {
            let (mut wire, session) = Wire::open(&bench.amqp, &format!("bench-consumer-{number}"))?;
            let queue = bench.queue_of(number);
            diary.attached(clock::now_ns(), number, queue)?;
            diary.flush()?;
            // Credit comes when it can be told whose messages come: they may be there already.
            let options =
                ReceiverOptions { name: "bench", address: &bench.queue[queue], presettled: false, credit: 0, token: 0 };
            let link = wire.client.receiver(session, &options).map_err(misuse)?;
            wire.set_patience(Duration::from_nanos(NAP_NS))?;
            let mut stands = false;
            while !stands {
                wire.write()?;
                wire.read(&mut buffer, true, |_, event, _| match event {
                    Event::Attached { .. } => {
                        stands = true;
                        Ok(())
                    }
                    _ => Ok(()),
                })?;
            }
            links.push(Link { wire, link, number, queue, joiner: Joiner::default(), unwritten: false, drained: None });
        }
        Ok(Consumers { links, buffer })
    }

    /// Receives until as many messages came as are expected.
    pub(super) fn run(
        self,
        bench: &Bench,
        run: u64,
        shared: &Shared,
        span: Span,
        mut diary: Diary,
    ) -> Result<Side, End> {
        let Consumers { mut links, mut buffer } = self;
        let plan = Plan { bench, span, intact: Intact::new(bench, run) };
        let mut seen = Seen::new(bench.connections, links.len() as u32);
        let mut side = Side::new(0);
        let mut readable = vec![false; links.len()];
        for one in &mut links {
            one.grant(&plan, &mut diary)?;
        }
        let mut last = clock::now_ns();
        let mut ticked = last;
        loop {
            if shared.abort.load(Ordering::Relaxed) {
                return Err(End::Code(1));
            }
            diary.flush()?;
            for one in &mut links {
                one.unwritten = !one.wire.write()?;
            }
            let expected = shared.expect.load(Ordering::Relaxed);
            let now = clock::now_ns();
            let patience = if expected == u64::MAX { PATIENCE_NS } else { PATIENCE_AT_END_NS };
            if side.done >= expected || now.saturating_sub(last.max(span.start_ns)) > patience {
                break;
            }
            let alone = links.len() == 1 && !links[0].unwritten;
            if !alone {
                wire::wait(links.iter().map(|one| (&one.wire, one.unwritten)), NAP_NS, &mut readable)?;
            }
            let before = side.done;
            let mut came = false;
            for (one, readable) in links.iter_mut().zip(&readable) {
                if alone || *readable {
                    came |= one.read(&plan, alone, &mut buffer, &mut seen, &mut side, &mut diary)?;
                }
            }
            if !came {
                // Nothing had reached us when we began to wait.
                diary.ticked(now)?;
            }
            let now = clock::now_ns();
            if side.done > before {
                last = now;
                shared.received.store(side.done, Ordering::Relaxed);
            }
            if now - ticked > NAP_NS {
                ticked = now;
                for one in &mut links {
                    one.wire.tick()?;
                }
            }
        }
        let expected = shared.expect.load(Ordering::Relaxed);
        if expected == u64::MAX {
            return Err(End::Refused(format!("no message for {} s", PATIENCE_NS / 1_000_000_000)));
        }
        if diary.kept() {
            drain(&mut links, &plan, &mut buffer, &mut seen, &mut side, &mut diary)?;
        }
        seen.end(expected, side.done);
        for one in links {
            diary.detached(clock::now_ns(), one.number, false)?;
            diary.flush()?;
            if one.wire.close(&mut buffer)? {
                diary.detached(clock::now_ns(), one.number, true)?;
            }
        }
        diary.end()?;
        side.violations = seen.violations;
        side.told = seen.told;
        Ok(side)
    }
}

/// Asks for whatever is left, until the broker says that there is nothing more: a queue of which all links hear that is
/// empty, for nobody else uses it and we give nothing back.
fn drain(
    links: &mut [Link],
    plan: &Plan<'_>,
    buffer: &mut [u8],
    seen: &mut Seen,
    side: &mut Side,
    diary: &mut Diary,
) -> Result<(), End> {
    let asked = clock::now_ns();
    for one in links.iter_mut() {
        one.wire.client.drain(one.link).map_err(misuse)?;
        one.drained = Some(false);
    }
    let mut readable = vec![false; links.len()];
    while links.iter().any(|one| one.drained == Some(false)) && clock::now_ns() - asked < DRAIN_PATIENCE_NS {
        diary.flush()?;
        for one in links.iter_mut() {
            one.unwritten = !one.wire.write()?;
        }
        wire::wait(links.iter().map(|one| (&one.wire, one.unwritten)), NAP_NS, &mut readable)?;
        for (one, _) in links.iter_mut().zip(&readable).filter(|(_, readable)| **readable) {
            one.read(plan, false, buffer, seen, side, diary)?;
        }
    }
    for queue in 0..plan.bench.queue.len() {
        if links.iter().filter(|one| one.queue == queue).all(|one| one.drained == Some(true)) {
            diary.drained(asked, queue)?;
        }
    }
    diary.ticked(clock::now_ns())
}

impl Link {
    /// Takes what is there. False: nothing was.
    fn read(
        &mut self,
        plan: &Plan<'_>,
        wait: bool,
        buffer: &mut [u8],
        seen: &mut Seen,
        side: &mut Side,
        diary: &mut Diary,
    ) -> Result<bool, End> {
        let Link { wire, link, number, queue, joiner, drained, .. } = self;
        let came = wire.read(buffer, wait, |client: &mut Client, event, now| {
            if let (Event::Drained { .. }, Some(answered)) = (&event, &mut *drained) {
                *answered = true;
                return diary.credit(now, *number, 0);
            }
            let Event::Message(transfer) = event else { return Ok(()) };
            let delivery = transfer.delivery_id;
            let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
            let name = &plan.bench.queue[*queue];
            let message = match plan.intact.check(bytes) {
                Checked::Intact(message) => message,
                Checked::Corrupt(message) => {
                    seen.corrupt(message);
                    message
                }
                // Somebody else's: not acknowledged, so it goes back.
                Checked::Unreadable | Checked::OtherRun(_) => return Err(not_empty(name)),
            };
            if plan.bench.queue_of(message.producer) != *queue {
                seen.misrouted(message, name);
            }
            diary.received(now, message, *number, *queue, bytes)?;
            side.begun(now);
            if seen.came(message, *number) {
                let due = plan.bench.due_ns(plan.span.start_ns, message.producer, message.sequence);
                let counts = plan.span.counts(due.unwrap_or(now));
                side.happened(now, counts.then(|| due.map_or(0, |due| now.saturating_sub(due))));
            }
            diary.acknowledged(now, message, *number)?;
            client.settle(*link, delivery, Verdict::Accept).map_err(misuse)?;
            Ok(())
        })?;
        if self.drained.is_none() && self.wire.client.credit(self.link) <= plan.bench.credit / 2 {
            self.grant(plan, diary)?;
        }
        Ok(came)
    }

    /// Gives the whole credit.
    fn grant(&mut self, plan: &Plan<'_>, diary: &mut Diary) -> Result<(), End> {
        diary.credit(clock::now_ns(), self.number, plan.bench.credit)?;
        self.wire.client.grant(self.link, plan.bench.credit).map_err(misuse)
    }
}
