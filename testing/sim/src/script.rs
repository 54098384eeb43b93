//! Scripted clients: producers with a window, consumers with every outcome, both over the engine's client role, both
//! reconnecting. Which script a client follows, and each step in it, is drawn from the seed.

use crate::draw::Draw;
use crate::ledger::{Ended, Id, Ledger};
use packhorse_amqp10::Limits;
use packhorse_amqp10::message::{BodySection, MessageView};
use packhorse_client_core::{
    Body, Client, Decision, Draft, Event, Input, Joiner, LinkId, Login, Options, Piece, ReceiverOptions, SenderOptions,
    SenderSettleMode, SessionId, Verdict,
};
use std::collections::BTreeMap;

/// What a client does.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Produce {
        queue: u32,
        /// Number of the next message.
        next: u64,
        /// Number after the last message.
        until: u64,
        window: u64,
    },
    Consume {
        queue: u32,
        credit: u32,
        /// Percent of deliveries that are accepted; the rest is released, modified or (now and then) rejected.
        accepts: u64,
        /// Reads the dead-letter queue.
        dead_letters: bool,
        /// Holds this many before it settles any.
        holds: usize,
    },
}

/// A life of a client between two connections.
struct Life {
    client: Client,
    held: Vec<u8>,
    session: Option<SessionId>,
    link: Option<LinkId>,
    joiner: Joiner,
    unconfirmed: BTreeMap<u64, u64>,
    /// Deliveries not settled yet.
    open: Vec<(u32, Id)>,
}

/// See the module.
pub(crate) struct Scripted {
    pub(crate) name: u32,
    pub(crate) task: Task,
    draw: Draw,
    life: Option<Life>,
    /// When it connects (again).
    pub(crate) connects_at_us: Option<u64>,
    /// When it settles what it holds, however little.
    pub(crate) settles_at_us: Option<u64>,
    lives: u64,
    /// From now on every delivery is accepted.
    pub(crate) calm: bool,
}

/// A sim's queue name.
pub(crate) fn queue_name(queue: u32) -> String {
    if queue == u32::MAX { "DLQ".into() } else { format!("q{queue}") }
}

impl Scripted {
    pub(crate) fn new(seed: u64, name: u32, task: Task, connects_at_us: u64) -> Scripted {
        Scripted {
            name,
            task,
            draw: Draw::new(seed, 100 + u64::from(name)),
            life: None,
            connects_at_us: Some(connects_at_us),
            settles_at_us: None,
            lives: 0,
            calm: false,
        }
    }

    /// Whether it has nothing left to do; a consumer never knows.
    pub(crate) fn done(&self) -> bool {
        match &self.task {
            Task::Produce { next, until, .. } => {
                next == until && self.life.as_ref().is_none_or(|life| life.unconfirmed.is_empty())
            }
            Task::Consume { .. } => true,
        }
    }

    /// The life of its consumer's link, unique in the world.
    pub(crate) fn consumer(&self) -> u64 {
        u64::from(self.name) << 32 | self.lives
    }

    pub(crate) fn connect(&mut self, now_ms: u64) {
        self.connects_at_us = None;
        self.lives += 1;
        let options = Options {
            container_id: format!("client-{}-{}", self.name, self.lives),
            login: if self.draw.chance(50) {
                Login::Anonymous
            } else {
                Login::Plain { user: "guest".into(), password: "guest".into() }
            },
            incoming_window: if self.draw.chance(30) { 4 } else { 2048 },
            ..Options::default()
        };
        self.life = Some(Life {
            client: Client::new(options, now_ms),
            held: Vec::new(),
            session: None,
            link: None,
            joiner: Joiner::default(),
            unconfirmed: BTreeMap::new(),
            open: Vec::new(),
        });
    }

    /// The stream is gone.
    pub(crate) fn lost(&mut self, ledger: &mut Ledger, now_us: u64) {
        if self.life.take().is_some() {
            ledger.gone(self.consumer(), Ended::Cut);
            self.settles_at_us = None;
            self.connects_at_us = Some(now_us + self.draw.range(1_000, 200_000));
        }
    }

    /// Bytes of the broker. `Err`: the connection is of no more use.
    pub(crate) fn receive(&mut self, bytes: &[u8], ledger: &mut Ledger, now_us: u64) -> Result<(), String> {
        let now_ms = now_us / 1000;
        let consumer = self.consumer();
        let Some(life) = &mut self.life else { return Ok(()) };
        let mut held = std::mem::take(&mut life.held);
        let mut input = Input { partial: &mut held, fresh: bytes };
        let mut result = Ok(());
        loop {
            match life.client.next(&mut input, now_ms) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if let Err(why) = on_event(life, &self.task, consumer, event, ledger) {
                        result = Err(why);
                        break;
                    }
                }
                Err(failure) => {
                    result = Err(failure.to_string());
                    break;
                }
            }
        }
        life.held = held;
        if !life.open.is_empty() && self.settles_at_us.is_none() {
            self.settles_at_us = Some(now_us + self.draw.range(100, 30_000));
        }
        result
    }

    /// Does what is to be done now; its words are in the client's output.
    pub(crate) fn act(&mut self, ledger: &mut Ledger, now_us: u64) {
        let now_ms = now_us / 1000;
        let name = self.name;
        let consumer = self.consumer();
        let Some(life) = &mut self.life else { return };
        match &mut self.task {
            Task::Produce { queue, next, until, window } => {
                while let Some(link) = life.link
                    && *next < *until
                    && (life.unconfirmed.len() as u64) < *window
                    && life.client.sendable(link)
                {
                    let size = match self.draw.range(0, 99) {
                        0 => 200_000,
                        1..=9 => 5_000,
                        _ => self.draw.range(0, 300) as usize,
                    };
                    let persistent = self.draw.chance(85);
                    let body = make_body((name, *next), size);
                    let mut encoded = Vec::new();
                    Draft { durable: Some(persistent), ..Draft::new(Body::Data(&body)) }.encode(&mut encoded);
                    if !life.client.fits(link, encoded.len())
                        || life.client.send(link, *next, false, &[Piece::Copy(&encoded)]).is_err()
                    {
                        break;
                    }
                    ledger.sent((name, *next), *queue, persistent);
                    life.unconfirmed.insert(*next, now_us);
                    *next += 1;
                }
            }
            Task::Consume { credit, accepts, dead_letters, holds, .. } => {
                let due = self.settles_at_us.is_some_and(|at| at <= now_us);
                if due || life.open.len() >= *holds {
                    self.settles_at_us = None;
                    // Mostly in order, sometimes not.
                    if self.draw.chance(20) {
                        life.open.reverse();
                    }
                    let keep = if self.draw.chance(10) && !self.calm { life.open.len() / 2 } else { 0 };
                    for (delivery, id) in life.open.drain(keep..) {
                        let Some(link) = life.link else { break };
                        let accept = self.calm || *dead_letters || self.draw.chance(*accepts);
                        let (verdict, ended) = if accept {
                            (Verdict::Accept, Ended::Accepted)
                        } else {
                            match self.draw.range(0, 9) {
                                0 => {
                                    let why = Verdict::Reject { condition: "sim:rejected", description: "by the dice" };
                                    (why, Ended::Rejected)
                                }
                                1..=5 => (Verdict::Release, Ended::Released),
                                _ => (Verdict::Modify { failed: true, undeliverable_here: false }, Ended::Failed),
                            }
                        };
                        if life.client.settle(link, delivery, verdict) == Ok(true) && !*dead_letters {
                            ledger.ended(id, consumer, ended);
                        }
                    }
                    if !life.open.is_empty() {
                        self.settles_at_us = Some(now_us + self.draw.range(100, 30_000));
                    }
                }
                if let Some(link) = life.link
                    && life.client.credit(link) <= *credit / 2
                {
                    // An error says that the link is going.
                    let _ = life.client.grant(link, *credit);
                }
            }
        }
        life.client.flush(now_ms);
    }

    /// The bytes it has to say.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let Some(life) = &mut self.life else { return Vec::new() };
        let bytes: Vec<u8> = life.client.output().flatten().copied().collect();
        life.client.written(bytes.len());
        bytes
    }
}

fn on_event(life: &mut Life, task: &Task, consumer: u64, event: Event<'_>, ledger: &mut Ledger) -> Result<(), String> {
    match event {
        Event::Opened(_) => {
            let session = life.client.begin(0).map_err(|e| e.to_string())?;
            life.session = Some(session);
            let link = match task {
                Task::Produce { queue, .. } => {
                    let address = queue_name(*queue);
                    let options = SenderOptions {
                        name: "out",
                        address: Some(&address),
                        settle: SenderSettleMode::Mixed,
                        token: 0,
                    };
                    life.client.sender(session, &options)
                }
                Task::Consume { queue, credit, .. } => {
                    let address = queue_name(*queue);
                    let options =
                        ReceiverOptions { name: "in", address: &address, presettled: false, credit: *credit, token: 0 };
                    life.client.receiver(session, &options)
                }
            };
            life.link = Some(link.map_err(|e| e.to_string())?);
        }
        Event::Outcomes { .. } => {
            let Task::Produce { .. } = task else { return Ok(()) };
            for outcome in life.client.outcomes() {
                if life.unconfirmed.remove(&outcome.token).is_none() {
                    continue;
                }
                match outcome.state {
                    Decision::Accepted => ledger.confirmed(((consumer >> 32) as u32, outcome.token)),
                    other => ledger.break_rule(format!("a message got the outcome {other:?}")),
                }
            }
        }
        Event::Message(transfer) => {
            let Task::Consume { queue, dead_letters, .. } = task else { return Ok(()) };
            let delivery = transfer.delivery_id;
            let Some(bytes) = life.joiner.push(&transfer) else { return Ok(()) };
            match read_message(bytes) {
                Ok((id, _)) if *dead_letters => {
                    ledger.dead(id);
                    life.open.push((delivery, id));
                }
                Ok((id, count)) => {
                    ledger.received(id, *queue, consumer, count);
                    life.open.push((delivery, id));
                }
                Err(why) => ledger.break_rule(format!("I2 content: {why}")),
            }
        }
        Event::LinkLost(lost) => return Err(format!("the link was lost: {}", lost.reason)),
        Event::SessionLost { reason, .. } => return Err(format!("the session was lost: {reason}")),
        Event::Closed { reason } => return Err(format!("the connection was closed: {reason}")),
        _ => {}
    }
    Ok(())
}

/// A body that tells whose it is and can be checked.
fn make_body((producer, number): Id, size: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(12 + size);
    body.extend_from_slice(&producer.to_be_bytes());
    body.extend_from_slice(&number.to_be_bytes());
    let mut filler = Draw::new(number, u64::from(producer));
    while body.len() < 12 + size {
        body.extend_from_slice(&filler.next().to_be_bytes());
    }
    body.truncate(12 + size);
    body
}

/// Whose message it is and how often it was delivered before.
fn read_message(bytes: &[u8]) -> Result<(Id, u32), String> {
    let view = MessageView::parse(bytes, &Limits::default()).map_err(|e| e.to_string())?;
    let count = view.header().delivery_count.unwrap_or(0);
    let Some(BodySection::Data(body)) = view.body().next() else { return Err("a body that is not data".into()) };
    if body.len() < 12 {
        return Err(format!("a body of {} bytes", body.len()));
    }
    let producer = u32::from_be_bytes(body[..4].try_into().expect("four bytes"));
    let number = u64::from_be_bytes(body[4..12].try_into().expect("eight bytes"));
    if body != make_body((producer, number), body.len() - 12) {
        return Err(format!("({producer}, {number}) came with another filler"));
    }
    Ok(((producer, number), count))
}
