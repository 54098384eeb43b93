//! A producer and a consumer that keep books over many lives of a broker.

use crate::books::{self, Receipt};
use crate::wire::{Broken, Wire};
use packhorse_client_core::{
    Body, Decision, Draft, Event, Joiner, Limits, MessageView, Misuse, Numbering, Piece, ReceiverOptions,
    SenderOptions, SenderSettleMode, Verdict,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a turn waits when nothing comes, so that a wish to stop is seen.
const TURN: Duration = Duration::from_millis(20);

pub(crate) fn misuse(misuse: Misuse) -> Broken {
    Broken::Refused(misuse.to_string())
}

/// How the broker knows a message that is sent again.
#[derive(Debug)]
pub enum Again {
    /// Not at all: what was unknown when a connection broke stays unknown and is not sent again.
    Never,
    /// Each message has its producer and number as duplicate id: one who forgot what he has sent may send all of it again.
    ByIds,
    /// By numbers (`docs/formats/amqp-dedup.md`): what was unknown when a connection broke is sent again on the next one.
    ByNumbers(Numbering),
}

/// Sends numbered persistent messages, so many unconfirmed at a time. Numbers go on from life to life.
#[derive(Debug)]
pub struct Producer {
    /// Its number in bodies.
    pub id: u32,
    /// The queue.
    pub queue: &'static str,
    /// Unconfirmed messages at most.
    pub window: usize,
    /// Bytes of a body.
    pub size: usize,
    /// By number: sent, and true when confirmed.
    pub sent: Vec<bool>,
    /// Stops by itself after so many.
    pub most: usize,
    /// When all is confirmed, waits so long before more is sent; none = as fast as it goes.
    pub pace: Option<Duration>,
    /// Messages that are sent again.
    pub again: Again,
}

impl Producer {
    /// A producer that has sent nothing.
    pub fn new(id: u32, queue: &'static str, window: usize, size: usize) -> Producer {
        Producer { id, queue, window, size, sent: Vec::new(), most: usize::MAX, pace: None, again: Again::Never }
    }

    /// Sends until told to stop and all is confirmed, or until the connection breaks. `confirmed` counts along.
    pub fn run(&mut self, to: SocketAddr, stop: &AtomicBool, confirmed: &AtomicU64) -> Result<(), Broken> {
        let (mut wire, session) = Wire::open(to, &format!("books-producer-{}", self.id))?;
        let options = SenderOptions {
            name: "books-out",
            address: Some(self.queue),
            settle: SenderSettleMode::Unsettled,
            token: 0,
        };
        let mut unknown = VecDeque::new();
        let link = match &self.again {
            Again::ByNumbers(numbering) => {
                unknown.extend(numbering.unconfirmed());
                wire.client.numbered_sender(session, &options, numbering)
            }
            _ => wire.client.sender(session, &options),
        };
        let link = link.map_err(misuse)?;
        let mut open = 0;
        let mut message = Vec::new();
        loop {
            let stopping = stop.load(Ordering::Relaxed) || (self.sent.len() >= self.most && unknown.is_empty());
            if stopping && open == 0 {
                return wire.close();
            }
            while !stopping && open < self.window && wire.client.sendable(link) {
                let number = match unknown.front() {
                    Some(number) => *number,
                    None if self.sent.len() < self.most => self.sent.len() as u64,
                    None => break,
                };
                let body = books::body(self.id, number, self.size);
                message.clear();
                let id = format!("{}/{number}", self.id);
                let properties = [("_AMQ_DUPL_ID", id.as_str())];
                let application: &[_] = if matches!(self.again, Again::ByIds) { &properties } else { &[] };
                Draft { durable: Some(true), application, ..Draft::new(Body::Data(&body)) }.encode(&mut message);
                if !wire.client.fits(link, message.len()) {
                    break;
                }
                let is_new = unknown.pop_front().is_none();
                if is_new {
                    self.sent.push(false);
                }
                let pieces = [Piece::Copy(&message)];
                match &mut self.again {
                    Again::ByNumbers(numbering) => {
                        if is_new {
                            assert_eq!(numbering.draw(), number, "both count from 0");
                        }
                        wire.client.send_numbered(link, number, numbering, number, &pieces)
                    }
                    _ => wire.client.send(link, number, false, &pieces),
                }
                .map_err(misuse)?;
                open += 1;
            }
            let Producer { sent, again, .. } = self;
            wire.turn(TURN, |client, event| {
                if let Event::Outcomes { .. } = event {
                    for outcome in client.outcomes() {
                        if outcome.state != Decision::Accepted {
                            return Err(Broken::Refused(format!("message {}: {:?}", outcome.token, outcome.state)));
                        }
                        sent[outcome.token as usize] = true;
                        if let Again::ByNumbers(numbering) = again {
                            numbering.done(outcome.token);
                        }
                        open -= 1;
                        confirmed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            })?;
            if let Some(pace) = self.pace
                && open == 0
            {
                wire.turn(pace, |_, _| Ok(()))?;
            }
        }
    }
}

/// Receives and accepts everything, and waits for the broker's word that an acknowledgement is safe.
#[derive(Debug)]
pub struct Consumer {
    /// The queue.
    pub queue: &'static str,
    /// Credit.
    pub window: u32,
    /// What came, in order.
    pub received: Vec<Receipt>,
    /// Lives of the broker before this one.
    pub life: u32,
}

impl Consumer {
    /// A consumer that has received nothing.
    pub fn new(queue: &'static str, window: u32) -> Consumer {
        Consumer { queue, window, received: Vec::new(), life: 0 }
    }

    /// Receives until told to stop, or until the connection breaks. `received` counts along.
    pub fn run(&mut self, to: SocketAddr, stop: &AtomicBool, received: &AtomicU64) -> Result<(), Broken> {
        let (mut wire, session) = Wire::open(to, "books-consumer")?;
        let options =
            ReceiverOptions { name: "books-in", address: self.queue, presettled: false, credit: self.window, token: 0 };
        let link = wire.client.careful_receiver(session, &options).map_err(misuse)?;
        let mut joiner = Joiner::default();
        // What is decided and not confirmed: delivery and place in the books.
        let mut open: Vec<(u32, usize)> = Vec::new();
        loop {
            if stop.load(Ordering::Relaxed) && open.is_empty() {
                return wire.close();
            }
            let (books, life) = (&mut self.received, self.life);
            wire.turn(TURN, |client, event| {
                match event {
                    Event::Message(transfer) => {
                        let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
                        let (producer, number, deliveries) = read(bytes).map_err(Broken::Refused)?;
                        open.push((transfer.delivery_id, books.len()));
                        books.push(Receipt { producer, number, deliveries, life, acknowledged: false });
                        client.decide(link, transfer.delivery_id, Verdict::Accept).map_err(misuse)?;
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                    Event::Confirmed => {
                        for outcome in client.outcomes() {
                            let id = outcome.delivery_id;
                            if let Some(at) = open.iter().position(|(delivery, _)| *delivery == id) {
                                books[open.remove(at).1].acknowledged = true;
                            }
                        }
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if wire.client.credit(link) <= self.window / 2 && !stop.load(Ordering::Relaxed) {
                wire.client.grant(link, self.window).map_err(misuse)?;
            }
        }
    }
}

/// Whose message it is, and its delivery-count.
pub(crate) fn read(message: &[u8]) -> Result<(u32, u64, u32), String> {
    let view = MessageView::parse(message, &Limits::default()).map_err(|e| format!("not a message: {e}"))?;
    let data = view.body().find_map(|section| match section {
        packhorse_client_core::BodySection::Data(bytes) => Some(bytes),
        _ => None,
    });
    let (producer, number) = books::read_body(data.ok_or("a message without data")?)?;
    Ok((producer, number, view.header().delivery_count.unwrap_or(0)))
}
