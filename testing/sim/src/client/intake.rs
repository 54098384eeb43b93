//! One consuming link over all its lives: what it holds, how deliveries end, how the link ends, and what of that is recorded when.

use super::controller::Tx;
use super::{Around, Lost, Queue, known, misuse};
use crate::contents::{Contents, Delivery, Said};
use crate::draw::Draw;
use crate::message::Seen;
use packhorse_client_core::codec::{Map, ValueWriter, put_symbol, put_uint};
use packhorse_client_core::{
    Client, Joiner, Limits, LinkId, MessageView, Reason, ReceiverOptions, SessionId, TransferEvent, Verdict,
};
use packhorse_history::{Event, MessageId};
use std::collections::VecDeque;

/// Where dead letters go.
const DEAD_LETTERS: &str = "DLQ";

/// Credit of a link that looks at everything there is.
const SURVEY_CREDIT: u32 = 20_000;

/// Deliveries that are over, remembered so that they can be ended once more.
const STALE: usize = 32;

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is none.
    None,
    /// Asked for.
    Coming,
    /// It stands.
    Up,
    /// What is ready was asked for, and no more comes after the answer.
    Draining,
    /// The answer came.
    Drained,
    /// Its end is asked for, and everything that came is recorded.
    Ending,
    /// Its end is asked for, or that of its session or connection, and something may be on its way.
    Closing,
}

/// What becomes of what a link gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is consumed.
    Consume,
    /// It is consumed; it is a dead letter.
    DeadLetters,
    /// It is looked at and given back.
    Survey,
}

/// How a link likes to work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Answers to acknowledgements are asked for.
    pub(crate) careful: bool,
    pub(crate) presettled: bool,
    pub(crate) credit: u32,
    /// So many deliveries stay without an end …
    pub(crate) hold: usize,
    /// … for so many µs, about.
    pub(crate) hold_us: u64,
    /// Percent of deliveries that are accepted.
    pub(crate) accepts: u64,
}

/// A delivery that was given back or rejected in a transaction.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    message: MessageId,
    queue: String,
    said: Said,
    rejected: bool,
}

impl Returned {
    /// Its transaction may be committed from now on.
    pub(super) fn may_happen(&self, around: &mut Around<'_>) {
        if self.rejected {
            around.books.contents.rejects(self.message);
        }
    }

    /// The broker has answered that it is.
    pub(super) fn happened(&self, around: &mut Around<'_>) {
        let at_ns = around.books.stamp();
        around.books.contents.returned(at_ns, self.message, self.said, &self.queue);
        if self.rejected {
            around.books.contents.rejected_for_good(at_ns, self.message, &self.queue);
        }
    }
}

/// A delivery without an end.
#[derive(Clone, Copy, Debug)]
struct Held {
    delivery: u32,
    message: MessageId,
}

/// See the module.
pub(crate) struct In {
    pub(crate) queue: Queue,
    manner: Manner,
    purpose: Use,
    pub(crate) link: Option<LinkId>,
    pub(crate) standing: Standing,
    /// What is accepted is so in this transaction.
    pub(super) tx: Option<Tx>,
    number: u32,
    attached_ns: u64,
    held: VecDeque<Held>,
    /// Ended, without the broker's answer: delivery, message, whether it was acknowledged, what was said if not. About in the order of
    /// ending.
    asked: VecDeque<(u32, MessageId, bool, Said)>,
    /// What ended in the transaction otherwise than accepted.
    pub(super) returned: Vec<Returned>,
    pub(crate) stale: VecDeque<u32>,
    joiner: Joiner,
    /// A delivery has begun to come and is not whole: the link's count has it, the history not yet.
    partly: bool,
    /// When it ends what it holds, however little.
    pub(crate) settle_at: Option<u64>,
    /// Why the dead letter that came last is one.
    pub(super) reason: Option<String>,
}

impl In {
    pub(crate) fn new(queue: Queue, purpose: Use, manner: Manner) -> In {
        let manner = match purpose {
            Use::Survey => Manner { careful: false, presettled: false, credit: SURVEY_CREDIT, ..manner },
            _ => manner,
        };
        In {
            queue,
            manner,
            purpose,
            link: None,
            standing: Standing::None,
            tx: None,
            number: 0,
            attached_ns: 0,
            held: VecDeque::new(),
            asked: VecDeque::new(),
            returned: Vec::new(),
            stale: VecDeque::new(),
            joiner: Joiner::default(),
            partly: false,
            settle_at: None,
            reason: None,
        }
    }

    /// Deliveries without an end, or without the answer to it.
    pub(crate) fn open(&self) -> u64 {
        (self.held.len() + self.asked.len()) as u64
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.asked.is_empty()
    }

    pub(crate) fn attach(
        &mut self,
        client: &mut Client,
        session: SessionId,
        token: u64,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        self.number = around.books.link();
        self.attached_ns = around.books.stamp();
        let (consumer, Manner { presettled, credit, careful, .. }) = (self.number, self.manner);
        if self.purpose == Use::Consume {
            around.put(&Event::Attach { consumer, queue: &self.queue.full, presettled, filtered: false });
            around.put(&Event::Credit { consumer, credit });
        }
        self.standing = Standing::Coming;
        let name = format!("in-{token}");
        let options = ReceiverOptions { name: &name, address: &self.queue.name, presettled, credit, token };
        let link =
            if careful { client.careful_receiver(session, &options) } else { client.receiver(session, &options) };
        self.link = Some(link.map_err(misuse)?);
        Ok(())
    }

    pub(crate) fn stands(&mut self) {
        if self.standing == Standing::Coming {
            self.standing = Standing::Up;
        }
    }

    /// A frame of a delivery came. Answers what is known of the message when it is whole.
    pub(crate) fn receive(
        &mut self,
        transfer: &TransferEvent<'_>,
        draw: &mut Draw,
        around: &mut Around<'_>,
    ) -> Option<Seen> {
        if matches!(self.standing, Standing::Ending | Standing::Closing | Standing::None) {
            return None;
        }
        let (delivery, settled) = (transfer.delivery_id, transfer.settled);
        self.partly = !transfer.last;
        let bytes = self.joiner.push(transfer)?;
        let seen = Seen::of(bytes);
        let Seen { id: message, whole, count } = seen;
        if self.purpose == Use::DeadLetters {
            self.reason = reason_of(bytes);
        }
        let dead = self.queue.name == DEAD_LETTERS;
        let (queue, attached_ns) = (self.queue.full.as_str(), self.attached_ns);
        around.books.contents.look(&Delivery { message, bytes, queue, dead, attached_ns });
        match self.purpose {
            Use::Consume => {
                let event = Event::Recv {
                    message,
                    consumer: self.number,
                    queue: &self.queue.full,
                    delivery_count: count,
                    redelivered: count > 0,
                    crc_ok: whole,
                    tx: None,
                };
                around.put(&event);
            }
            Use::DeadLetters => around.put(&Event::Dlq { message, reason: "in the dead-letter queue" }),
            Use::Survey => around.put(&Event::Present { message, queue: &self.queue.full }),
        }
        if !settled {
            self.held.push_back(Held { delivery, message });
            if self.settle_at.is_none() && self.purpose != Use::Survey {
                let us = self.manner.hold_us;
                self.settle_at = Some(around.now_us + draw.range(us / 2, us * 2));
            }
        }
        Some(seen)
    }

    /// Ends one delivery; one that is not there has ended with its link.
    pub(super) fn decide(
        &mut self,
        client: &mut Client,
        delivery: u32,
        verdict: Verdict<'_>,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        let Some(at) = self.held.iter().position(|held| held.delivery == delivery) else { return Ok(()) };
        let one = self.held.remove(at).expect("it was just found");
        self.end_delivery(one, verdict, client, around)
    }

    /// Ends deliveries: those that are more than it likes to hold, or have been held for long. `calm`: all, and well.
    pub(crate) fn settle(
        &mut self,
        client: &mut Client,
        calm: bool,
        draw: &mut Draw,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        let due = self.settle_at.is_some_and(|at| at <= around.now_us);
        let many = self.held.len() > self.manner.hold + self.manner.hold / 4;
        if self.held.is_empty() || !(due || many || calm) {
            return Ok(());
        }
        let keep = match (calm, due) {
            (true, _) => 0,
            (false, true) => self.held.len().min(self.manner.hold) / 4,
            (false, false) => self.manner.hold,
        };
        while self.held.len() > keep {
            let first = self.held.pop_front().expect("there are more than are kept");
            // Not always the oldest: some stay while many pass.
            let one = if !calm && draw.chance(5) && !self.held.is_empty() {
                let at = draw.below(self.held.len());
                std::mem::replace(&mut self.held[at], first)
            } else {
                first
            };
            let verdict = if calm || self.purpose == Use::DeadLetters || draw.chance(self.manner.accepts) {
                Verdict::Accept
            } else {
                match draw.range(0, 9) {
                    0 => Verdict::Reject { condition: "packhorse:sim", description: "by the dice" },
                    1..=4 => Verdict::Release,
                    5 | 6 => Verdict::Modify { failed: true, undeliverable_here: false },
                    7 => Verdict::Modify { failed: false, undeliverable_here: false },
                    8 => Verdict::Modify { failed: true, undeliverable_here: true },
                    _ => Verdict::Modify { failed: false, undeliverable_here: true },
                }
            };
            self.end_delivery(one, verdict, client, around)?;
        }
        let us = self.manner.hold_us;
        self.settle_at = (!self.held.is_empty()).then(|| around.now_us + draw.range(us / 2, us * 2));
        Ok(())
    }

    fn end_delivery(
        &mut self,
        one: Held,
        verdict: Verdict<'_>,
        client: &mut Client,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        let (message, consumer) = (one.message, self.number);
        // Of what it does not accept a part is no part of the transaction.
        let inside = verdict == Verdict::Accept || !one.delivery.is_multiple_of(3);
        let tx = self.tx.as_ref().filter(|_| inside);
        let number = tx.map(|tx| tx.number);
        let event = match verdict {
            Verdict::Accept => Event::Ack { message, consumer, confirmed: false, tx: number },
            Verdict::Release => Event::Release { message, consumer, tx: number },
            Verdict::Reject { .. } => Event::Reject { message, consumer, tx: number },
            Verdict::Modify { failed, undeliverable_here } | Verdict::Annotate { failed, undeliverable_here, .. } => {
                Event::Modified { message, consumer, delivery_failed: failed, undeliverable_here, tx: number }
            }
        };
        if self.purpose == Use::Consume {
            around.put(&event);
        }
        let rejected = matches!(verdict, Verdict::Reject { .. });
        if rejected && tx.is_none() {
            around.books.contents.rejects(message);
        }
        let link = known(self.link)?;
        let mut said = Said::default();
        let mut added = Vec::new();
        let verdict = match verdict {
            // Every other one has something added.
            Verdict::Modify { failed, undeliverable_here } if one.delivery.is_multiple_of(2) => {
                let number = around.books.contents.number();
                said = Said { failed, added: Some(number) };
                ValueWriter::map(&mut added, |map| {
                    put_symbol(map.next(), &Contents::name(number));
                    put_uint(map.next(), number);
                });
                let annotations = Map::from_encoded(&added, &Limits::default()).expect("a map was written");
                Verdict::Annotate { failed, undeliverable_here, annotations }
            }
            Verdict::Modify { failed, .. } => {
                said.failed = failed;
                verdict
            }
            verdict => verdict,
        };
        if let Some(tx) = tx {
            client.settle_in(&tx.id, link, one.delivery, verdict).map_err(misuse)?;
            if verdict != Verdict::Accept {
                self.returned.push(Returned { message, queue: self.queue.full.clone(), said, rejected });
            }
            self.remember(one.delivery);
        } else if self.manner.careful {
            self.asked.push_back((one.delivery, message, verdict == Verdict::Accept, said));
            client.decide(link, one.delivery, verdict).map_err(misuse)?;
        } else {
            client.settle(link, one.delivery, verdict).map_err(misuse)?;
            self.remember(one.delivery);
        }
        Ok(())
    }

    fn remember(&mut self, delivery: u32) {
        if self.stale.len() == STALE {
            self.stale.pop_front();
        }
        self.stale.push_back(delivery);
    }

    /// The broker's answer to the end of a delivery.
    pub(crate) fn confirmed(&mut self, at_ns: u64, delivery: u32, around: &mut Around<'_>) {
        let Some(at) = self.asked.iter().position(|(asked, ..)| *asked == delivery) else { return };
        let (_, message, acknowledged, said) = self.asked.remove(at).expect("it was just found");
        around.books.contents.returned(at_ns, message, said, &self.queue.full);
        if acknowledged && self.purpose == Use::Consume {
            let event = Event::Ack { message, consumer: self.number, confirmed: true, tx: None };
            around.put_at(at_ns, &event);
        }
        self.remember(delivery);
    }

    /// Gives new credit when half of it is used.
    pub(crate) fn grant(&mut self, client: &mut Client, around: &mut Around<'_>) -> Result<(), Lost> {
        let link = known(self.link)?;
        if client.credit(link) <= self.manner.credit / 2 {
            self.give_credit(client, self.manner.credit, around)?;
        }
        Ok(())
    }

    /// This is its credit from here on.
    pub(super) fn give_credit(
        &mut self,
        client: &mut Client,
        credit: u32,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        if self.purpose == Use::Consume {
            let told = credit + u32::from(self.partly);
            around.put(&Event::Credit { consumer: self.number, credit: told });
        }
        client.grant(known(self.link)?, credit).map_err(misuse)
    }

    /// Asks for what is ready; its link ends after that.
    pub(crate) fn drain(&mut self, client: &mut Client) -> Result<(), Lost> {
        let Some(link) = self.link.filter(|_| self.standing == Standing::Up) else { return Ok(()) };
        self.standing = Standing::Draining;
        client.drain(link).map_err(misuse)
    }

    /// No more comes.
    pub(crate) fn drained(&mut self, around: &mut Around<'_>) {
        if self.standing == Standing::Draining {
            self.standing = Standing::Drained;
            if self.purpose == Use::Consume {
                around.put(&Event::Credit { consumer: self.number, credit: 0 });
            }
        }
    }

    /// Ends the link in order, if it stands.
    pub(crate) fn detach(&mut self, client: &mut Client, around: &mut Around<'_>) -> Result<(), Lost> {
        let Some(link) = self.link.filter(|_| matches!(self.standing, Standing::Up | Standing::Drained)) else {
            return Ok(());
        };
        // After a drain everything that came is recorded, and the answer to the end says so.
        let exact = self.standing == Standing::Drained;
        if self.purpose == Use::Consume {
            around.put(&Event::Detach { consumer: self.number, orderly: true, confirmed: false });
        }
        client.detach(link).map_err(misuse)?;
        self.forget();
        self.standing = if exact { Standing::Ending } else { Standing::Closing };
        Ok(())
    }

    /// The link is over, or its session or connection. With a `reason` that is the broker's own word: it may have crossed ours, and then
    /// what was said here has not been heard.
    pub(crate) fn ended(&mut self, reason: &Reason<'_>, around: &mut Around<'_>) {
        let consumer = self.number;
        let answered = matches!(reason, Reason::None);
        match self.standing {
            _ if !answered => {}
            Standing::Ending if self.purpose == Use::Consume => {
                around.put(&Event::Detach { consumer, orderly: true, confirmed: true });
            }
            Standing::Closing if self.purpose == Use::Consume => {
                around.put(&Event::Detached { consumer });
            }
            _ => {}
        }
        (self.standing, self.link) = (Standing::None, None);
    }

    /// The link ends with its session or connection: closed in `orderly` fashion, which is an act, or gone.
    pub(crate) fn ends(&mut self, orderly: bool, around: &mut Around<'_>) {
        let over = matches!(self.standing, Standing::None | Standing::Ending | Standing::Closing);
        if !over && self.purpose == Use::Consume {
            around.put(&Event::Detach { consumer: self.number, orderly, confirmed: false });
        }
        self.forget();
        self.link = None;
        self.standing = match self.standing {
            Standing::None => Standing::None,
            _ if orderly => Standing::Closing,
            _ => Standing::None,
        };
    }

    fn forget(&mut self) {
        let open: Vec<u32> = self.held.drain(..).map(|held| held.delivery).collect();
        open.into_iter().take(4).for_each(|delivery| self.remember(delivery));
        self.asked.clear();
        self.returned.clear();
        self.joiner = Joiner::default();
        self.partly = false;
        self.settle_at = None;
    }
}

/// Why a dead letter is one, as its broker says.
fn reason_of(bytes: &[u8]) -> Option<String> {
    let view = MessageView::parse(bytes, &Limits::default()).ok()?;
    Some(view.message_annotations()?.get("x-opt-packhorse-reason")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Books;
    use crate::message::Press;
    use packhorse_client_core::codec::Error;
    use packhorse_history::Source;

    /// What a link's book says of its end, which was asked for in order when it stood so, if that came with this reason.
    fn told(standing: Standing, reason: &Reason<'_>) -> Vec<String> {
        let (mut books, mut press, mut wrong) = (Books::new(), Press::default(), Vec::new());
        let book = books.open("client-0".into());
        let mut around = Around { now_us: 1, books: &mut books, book, press: &mut press, wrong: &mut wrong };
        let manner = Manner { careful: true, presettled: false, credit: 1, hold: 1, hold_us: 1, accepts: 100 };
        let mut input = In::new(Queue::new(0, "q0"), Use::Consume, manner);
        input.standing = standing;
        input.ended(reason, &mut around);
        assert_eq!((input.standing, input.link), (Standing::None, None));
        let files = books.judge(1, &mut crate::digest::Digest::new()).files;
        let (name, bytes) = &files[book];
        let mut source =
            Source::open(name.clone(), bytes.as_slice()).expect("it was written").expect("it has a header");
        let mut told = Vec::new();
        while source.advance().expect("it is whole") {
            told.push(format!("{:?}", source.event().expect("it is an event")));
        }
        told
    }

    /// Seed 7666 of 16019ad: the broker gave up a connection of which nothing came, just when its client wanted to end it, and what the
    /// client had acknowledged last was thought to have arrived.
    #[test]
    fn an_end_with_a_reason_is_no_answer_to_what_was_said_before() {
        let error = Error { condition: "amqp:resource-limit-exceeded", description: None, info: None };
        for standing in [Standing::Closing, Standing::Ending] {
            assert_eq!(told(standing, &Reason::None).len(), 1, "{standing:?}: an answer");
            assert_eq!(told(standing, &Reason::Peer(error)), [""; 0], "{standing:?}: its own word");
        }
    }
}
