//! A consumer that takes messages one by one and says of each what becomes of it, as a test tells it.

use crate::books;
use crate::broker::Broker;
use crate::wire::{Broken, Wire};
use packhorse_client_core::{
    BodySection, Event, Joiner, Limits, LinkId, MessageView, Misuse, ReceiverOptions, Verdict,
};
use std::time::{Duration, Instant};

/// How long a turn waits when nothing comes.
const TURN: Duration = Duration::from_millis(20);
/// How long the broker may say nothing where it must say something.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its number among those of its producer; its body is whole.
    pub number: u64,
    /// Earlier deliveries, as its header says.
    pub deliveries: u32,
    /// Of a dead letter: why it is one.
    pub reason: Option<String>,
    /// The delivery's number in its session.
    pub delivery: u32,
}

/// See the module. Dropped, it is gone as the process of a client that was killed.
pub struct Reader {
    wire: Wire,
    link: LinkId,
    joiner: Joiner,
    /// Came, and was not asked for yet.
    came: Vec<Read>,
    /// Decided, and not answered.
    open: usize,
}

impl Reader {
    /// Begins to take from a queue of a broker with this credit.
    ///
    /// # Errors
    /// The broker is not there, or refuses.
    pub fn open(broker: &Broker, queue: &str, credit: u32) -> Result<Reader, Broken> {
        let (mut wire, session) = Wire::open(broker.amqp(), "reader")?;
        let options = ReceiverOptions { name: "in", address: queue, presettled: false, credit, token: 0 };
        let link = wire.client.careful_receiver(session, &options).map_err(misuse)?;
        Ok(Reader { wire, link, joiner: Joiner::default(), came: Vec::new(), open: 0 })
    }

    /// The next messages, as soon as so many have come.
    ///
    /// # Errors
    /// The connection breaks before, or a minute passes.
    pub fn take(&mut self, count: usize) -> Result<Vec<Read>, Broken> {
        self.turns(|reader| reader.came.len() >= count)?;
        Ok(self.came.drain(..count).collect())
    }

    /// Says what becomes of a message; the broker is to answer.
    ///
    /// # Errors
    /// The message is not this reader's.
    pub fn decide(&mut self, message: &Read, verdict: Verdict<'_>) -> Result<(), Broken> {
        self.wire.client.decide(self.link, message.delivery, verdict).map_err(misuse)?;
        self.open += 1;
        Ok(())
    }

    /// Until the broker has answered everything that was decided.
    ///
    /// # Errors
    /// The connection breaks before, or a minute passes.
    pub fn answered(&mut self) -> Result<(), Broken> {
        self.turns(|reader| reader.open == 0)
    }

    /// So many more may come from now on.
    ///
    /// # Errors
    /// The link is gone.
    pub fn grant(&mut self, credit: u32) -> Result<(), Broken> {
        self.wire.client.grant(self.link, credit).map_err(misuse)
    }

    fn turns(&mut self, done: impl Fn(&Reader) -> bool) -> Result<(), Broken> {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            if Instant::now() > until {
                return Err(Broken::Lost(format!(
                    "nothing for a minute; {} came, {} open",
                    self.came.len(),
                    self.open
                )));
            }
            let Reader { wire, joiner, came, open, .. } = self;
            wire.turn(TURN, |client, event| {
                match event {
                    Event::Message(transfer) => {
                        if let Some(bytes) = joiner.push(&transfer) {
                            came.push(read(bytes, transfer.delivery_id).map_err(Broken::Refused)?);
                        }
                    }
                    Event::Confirmed => *open -= client.outcomes().len(),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn misuse(misuse: Misuse) -> Broken {
    Broken::Refused(misuse.to_string())
}

fn read(message: &[u8], delivery: u32) -> Result<Read, String> {
    let view = MessageView::parse(message, &Limits::default()).map_err(|e| format!("not a message: {e}"))?;
    let data = view.body().find_map(|section| match section {
        BodySection::Data(bytes) => Some(bytes),
        _ => None,
    });
    let (_, number) = books::read_body(data.ok_or("a message without data")?)?;
    let reason = view.message_annotations().and_then(|map| map.get("x-opt-packhorse-reason"));
    let reason = reason.and_then(|value| value.as_str()).map(str::to_owned);
    Ok(Read { number, deliveries: view.header().delivery_count.unwrap_or(0), reason, delivery })
}
