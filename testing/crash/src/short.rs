//! A client whose sessions do everything once: log in, send a message, take one and accept it, close.

use crate::books::{self, Books, Receipt};
use crate::load::{misuse, read};
use crate::wire::{Broken, Wire};
use packhorse_client_core::{
    Body, Decision, Draft, Event, Joiner, Piece, ReceiverOptions, SenderOptions, SenderSettleMode, Verdict,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a session may take on which nothing is done to the connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a body.
const BODY_BYTES: usize = 40;

/// See the module.
#[derive(Debug)]
pub struct Short {
    /// Its number in bodies.
    pub id: u32,
    /// The queue to which it sends, and from which it takes.
    pub queue: &'static str,
    /// What it did and saw in all sessions; each session is a life.
    pub books: Books,
    sessions: u32,
}

impl Short {
    /// A client that has done nothing.
    pub fn new(id: u32, queue: &'static str) -> Short {
        Short { id, queue, books: Books::default(), sessions: 0 }
    }

    /// One session, from the first byte to the last, or until its connection breaks; the books say how far it came.
    ///
    /// # Errors
    /// The connection broke, or the broker refused something.
    pub fn session(&mut self, to: SocketAddr) -> Result<(), Broken> {
        self.sessions += 1;
        let (id, life) = (self.id, self.sessions);
        let Books { sent, received, .. } = &mut self.books;
        let sent = sent.entry(id).or_default();
        let (mut wire, session) = Wire::open(to, &format!("short-{id}"))?;
        let receiver =
            ReceiverOptions { name: "short-in", address: self.queue, presettled: false, credit: 1, token: 1 };
        let from = wire.client.careful_receiver(session, &receiver).map_err(misuse)?;
        let sender = SenderOptions {
            name: "short-out",
            address: Some(self.queue),
            settle: SenderSettleMode::Unsettled,
            token: 0,
        };
        let out = wire.client.sender(session, &sender).map_err(misuse)?;
        let (mut asked, mut confirmed, mut taken, mut accepted) = (false, false, false, false);
        let mut joiner = Joiner::default();
        let until = Instant::now() + PATIENCE;
        while !(confirmed && accepted) {
            if Instant::now() > until {
                return Err(Broken::Refused(format!("stuck: sent {asked}, confirmed {confirmed}, taken {taken}")));
            }
            if !asked && wire.client.sendable(out) {
                let number = sent.len() as u64;
                let mut message = Vec::new();
                let body = books::body(id, number, BODY_BYTES);
                Draft { durable: Some(true), ..Draft::new(Body::Data(&body)) }.encode(&mut message);
                wire.client.send(out, number, false, &[Piece::Copy(&message)]).map_err(misuse)?;
                sent.push(false);
                asked = true;
            }
            wire.turn(Duration::from_secs(1), |client, event| {
                match event {
                    Event::Outcomes { .. } => {
                        for outcome in client.outcomes() {
                            if outcome.state != Decision::Accepted {
                                return Err(Broken::Refused(format!("message {}: {:?}", outcome.token, outcome.state)));
                            }
                            sent[outcome.token as usize] = true;
                            confirmed = true;
                        }
                    }
                    Event::Message(transfer) => {
                        let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
                        let (producer, number, deliveries) = read(bytes).map_err(Broken::Refused)?;
                        received.push(Receipt { producer, number, deliveries, life, acknowledged: false });
                        client.decide(from, transfer.delivery_id, Verdict::Accept).map_err(misuse)?;
                        taken = true;
                    }
                    Event::Confirmed => {
                        received.last_mut().filter(|_| taken).expect("one was taken").acknowledged = true;
                        accepted = true;
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        wire.close()
    }
}
