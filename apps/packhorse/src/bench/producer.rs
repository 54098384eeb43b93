//! The sending side: all producing connections on one thread, each with one link and its window.
//!
//! With a rate it is an open loop: a message has a due time, its latency counts from there, and what could not be sent in time
//! is sent as soon as it can be. Without one it is closed: a message is sent when the window has room.

use super::clock::{self, Span};
use super::control::Shared;
use super::diary::Diary;
use super::figures::Side;
use super::options::Bench;
use super::wire::{self, READ_BYTES, Wire};
use crate::End;
use packhorse_client_core::codec::DeliveryState;
use packhorse_client_core::{
    Body, Client, Decision, Draft, Event, LinkId, Misuse, Piece, SenderOptions, SenderSettleMode,
};
use packhorse_history::MessageId;
use packhorse_history::body::Template;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest sleep; orders and the keeping alive of connections are looked after so often.
const NAP_NS: u64 = 50_000_000;
/// Without any confirm for so long the run has failed.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Output of a connection above which it takes no further message: the rest goes out first.
const OUTPUT_BYTES: usize = 256 << 10;

/// A message without an outcome.
#[derive(Clone, Copy, Default)]
struct Slot {
    sequence: u64,
    /// When it was sent, or was due.
    at_ns: u64,
}

/// One producing connection.
struct Link {
    wire: Wire,
    link: LinkId,
    number: u32,
    queue: usize,
    /// The next sequence, and how many there are.
    next: u64,
    quota: u64,
    template: Template,
    /// A message that did not fit the session's window, and how much of it is sent.
    partial: Vec<u8>,
    partial_at: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    unwritten: bool,
}

/// What does not change during a run.
struct Plan<'a> {
    bench: &'a Bench,
    shared: &'a Shared,
    span: Span,
    /// A message before its body.
    head: Vec<u8>,
}

/// The producers, attached, with credit, and not yet started.
pub(super) struct Producers {
    links: Vec<Link>,
    buffer: Vec<u8>,
}

impl Producers {
    /// Connects all of them and waits for credit on each.
    pub(super) fn attach(bench: &Bench, run: u64) -> Result<Producers, End> {
        let mut buffer = vec![0; READ_BYTES];
        let mut links = Vec::new();
        for number in 0..bench.connections {
            let (mut wire, session) = Wire::open(&bench.amqp, &format!("bench-producer-{number}"))?;
            let queue = bench.queue_of(number);
            let options = SenderOptions {
                name: "bench",
                address: Some(&bench.queue[queue]),
                settle: SenderSettleMode::Unsettled,
                token: 0,
            };
            let link = wire.client.sender(session, &options).map_err(misuse)?;
            let template = Template::new(run, bench.size).map_err(|e| End::Usage(e.to_string()))?;
            links.push(Link {
                wire,
                link,
                number,
                queue,
                next: 0,
                quota: bench.quota(number),
                template,
                partial: Vec::new(),
                partial_at: 0,
                slots: vec![Slot::default(); bench.window as usize],
                free: (0..bench.window).rev().collect(),
                unwritten: false,
            });
        }
        for one in &mut links {
            one.wire.set_patience(Duration::from_nanos(NAP_NS))?;
            let begun = clock::now_ns();
            while !one.wire.client.sendable(one.link) {
                one.wire.write()?;
                one.wire.read(&mut buffer, true, |_, _, _| Ok(()))?;
                if clock::now_ns() - begun > PATIENCE_NS {
                    return Err(End::Refused(format!("{} gives no credit", bench.queue[one.queue])));
                }
            }
        }
        Ok(Producers { links, buffer })
    }

    /// Sends until the span or the count says stop and every message has its outcome.
    pub(super) fn run(self, bench: &Bench, shared: &Shared, span: Span, mut diary: Diary) -> Result<Side, End> {
        let Producers { mut links, mut buffer } = self;
        let mut head = Vec::new();
        Draft { durable: Some(bench.durable), ..Draft::new(Body::Data(&vec![0; bench.size])) }.encode(&mut head);
        let message_bytes = head.len();
        head.truncate(message_bytes - bench.size);
        let plan = Plan { bench, shared, span, head };
        let mut side = Side::new(message_bytes);
        let mut readable = vec![false; links.len()];
        let mut last = clock::now_ns();
        let mut ticked = last;
        loop {
            if shared.abort.load(Ordering::Relaxed) {
                return Err(End::Code(1));
            }
            let now = clock::now_ns();
            let mut wake = now + NAP_NS;
            let mut open = false;
            for one in &mut links {
                wake = wake.min(one.pump(&plan, &mut side, &mut diary)?);
                open |= !one.ended(&plan, now);
            }
            diary.flush()?;
            for one in &mut links {
                one.unwritten = !one.wire.write()?;
            }
            if !open {
                break;
            }
            // One connection that only waits for the broker: reading is waiting, and saves a call.
            let alone = links.len() == 1 && !links[0].unwritten && bench.rate.is_none();
            if !alone {
                let wait = wake.saturating_sub(clock::now_ns());
                wire::wait(links.iter().map(|one| (&one.wire, one.unwritten)), wait, &mut readable)?;
            }
            let before = side.done;
            for (one, readable) in links.iter_mut().zip(&readable) {
                if alone || *readable {
                    one.read(&plan, alone, &mut buffer, &mut side, &mut diary)?;
                }
            }
            let now = clock::now_ns();
            if side.done > before {
                last = now;
                shared.confirmed.store(side.done, Ordering::Relaxed);
            }
            if links.iter().any(|one| one.in_flight() > 0) && now.saturating_sub(last) > PATIENCE_NS {
                return Err(End::Refused(format!(
                    "no confirm for {} s; {} messages wait for one",
                    PATIENCE_NS / 1_000_000_000,
                    links.iter().map(Link::in_flight).sum::<usize>()
                )));
            }
            if now - ticked > NAP_NS {
                ticked = now;
                for one in &mut links {
                    one.wire.tick()?;
                }
            }
        }
        for one in links {
            one.wire.close(&mut buffer)?;
        }
        diary.end()?;
        Ok(side)
    }
}

impl Link {
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is left to send or to wait for.
    fn ended(&self, plan: &Plan<'_>, now: u64) -> bool {
        self.sent_all(plan, now) && self.partial.is_empty() && self.in_flight() == 0
    }

    /// Whether no further message begins. What is due before the end is sent, however late: left out, the worst latencies
    /// would be missing.
    fn sent_all(&self, plan: &Plan<'_>, now: u64) -> bool {
        let next_ns = self.due_ns(plan).unwrap_or(now);
        self.next >= self.quota || next_ns >= plan.span.stop_ns
    }

    /// When the next message is due, on a schedule.
    fn due_ns(&self, plan: &Plan<'_>) -> Option<u64> {
        plan.bench.due_ns(plan.span.start_ns, self.number, self.next)
    }

    /// Sends what may be sent. Answers when the next message is due, if time is all that it waits for.
    fn pump(&mut self, plan: &Plan<'_>, side: &mut Side, diary: &mut Diary) -> Result<u64, End> {
        loop {
            let client = &mut self.wire.client;
            if !self.partial.is_empty() {
                let rest = Piece::Copy(&self.partial[self.partial_at..]);
                let part = client.send_part(self.link, rest, true).map_err(misuse)?;
                if !part.done {
                    self.partial_at += part.consumed;
                    return Ok(u64::MAX);
                }
                self.partial.clear();
                self.partial_at = 0;
            }
            let now = clock::now_ns();
            if self.sent_all(plan, now) {
                return Ok(u64::MAX);
            }
            if now < plan.span.start_ns {
                return Ok(plan.span.start_ns);
            }
            let Some(&slot) = self.free.last() else { return Ok(u64::MAX) };
            let due = self.due_ns(plan);
            if let Some(due) = due {
                if due > now {
                    return Ok(due);
                }
                side.late(now - due);
            }
            let client = &mut self.wire.client;
            if !client.sendable(self.link) || client.output_len() > OUTPUT_BYTES {
                return Ok(u64::MAX);
            }
            let message = MessageId::new(self.number, self.next);
            let (body, crc) = self.template.stamp(message).map_err(|e| End::Usage(e.to_string()))?;
            diary.sent(now, message, self.queue, plan.bench.size, crc, plan.bench.durable)?;
            let token = u64::from(slot);
            if client.fits(self.link, plan.head.len() + body.len()) {
                let pieces = [Piece::Copy(&plan.head), Piece::Copy(body)];
                client.send(self.link, token, false, &pieces).map_err(misuse)?;
            } else {
                client.begin_message(self.link, token, false).map_err(misuse)?;
                self.partial.extend_from_slice(&plan.head);
                self.partial.extend_from_slice(body);
            }
            self.free.pop();
            self.slots[slot as usize] = Slot { sequence: self.next, at_ns: due.unwrap_or(now) };
            self.next += 1;
            side.begun(now);
            plan.shared.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes in confirms.
    fn read(
        &mut self,
        plan: &Plan<'_>,
        wait: bool,
        buffer: &mut [u8],
        side: &mut Side,
        diary: &mut Diary,
    ) -> Result<(), End> {
        let Link { wire, slots, free, number, .. } = self;
        wire.read(buffer, wait, |client: &mut Client, event, now| {
            let Event::Outcomes { state } = event else { return Ok(()) };
            for outcome in client.outcomes() {
                if outcome.repeated || outcome.state == Decision::Received {
                    continue;
                }
                let slot = slots[outcome.token as usize];
                let message = MessageId::new(*number, slot.sequence);
                free.push(outcome.token as u32);
                if outcome.state != Decision::Accepted {
                    side.violations.refused += 1;
                    let why = refusal(outcome.state, state.as_ref());
                    diary.refused(now, message, &why)?;
                    side.tell(format!("message {message} was not accepted: {why}"));
                    continue;
                }
                diary.confirmed(now, message)?;
                // Of a schedule, what was due in the span counts, however late it came.
                let counts = plan.span.counts(if plan.bench.rate.is_some() { slot.at_ns } else { now });
                side.happened(now, counts.then(|| now.saturating_sub(slot.at_ns)));
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn refusal(decision: Decision, state: Option<&DeliveryState<'_>>) -> String {
    match state {
        Some(DeliveryState::Rejected(rejected)) => rejected
            .error
            .map_or_else(|| "rejected".into(), |e| format!("{}: {}", e.condition, e.description.unwrap_or("rejected"))),
        _ => format!("{decision:?}"),
    }
}

pub(super) fn misuse(misuse: Misuse) -> End {
    End::Refused(misuse.to_string())
}
