//! One receiving link over all its lives: what it holds, how deliveries end, how the link ends, and what of that is recorded when.

use super::clock::now_ns;
use super::diary::Diary;
use super::message::Seen;
use crate::Random;
use packhorse_client_core::{Client, Joiner, LinkId, Misuse, Reason, TransferEvent, Verdict};
use packhorse_history::{Event, MessageId};
use std::collections::{HashMap, VecDeque};

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
    /// Its end is asked for.
    Ending,
    /// The end of its connection is asked for.
    Closing,
}

/// A delivery without an end.
#[derive(Clone, Copy, Debug)]
struct Held {
    delivery: u32,
    message: MessageId,
}

/// See the module.
pub(super) struct In {
    pub(super) queue: String,
    pub(super) presettled: bool,
    /// Answers to acknowledgements are asked for.
    pub(super) careful: bool,
    pub(super) credit: u32,
    /// So many deliveries stay without an end.
    hold: usize,
    pub(super) link: Option<LinkId>,
    pub(super) standing: Standing,
    pub(super) number: u32,
    held: VecDeque<Held>,
    /// Ended, without the broker's answer, by delivery: acknowledged, or something else.
    asked: HashMap<u32, (MessageId, bool)>,
    joiner: Joiner,
    /// A delivery has begun to come and is not whole: the link's count has it, the history not yet.
    partly: bool,
}

impl In {
    /// A link with habits drawn from the seed.
    pub(super) fn draw(queue: &str, random: &mut Random) -> In {
        let hold = 24 + random.below(100);
        In {
            queue: queue.into(),
            presettled: false,
            careful: random.below(8) > 0,
            credit: (hold + 30 + random.below(400)) as u32,
            hold,
            link: None,
            standing: Standing::None,
            number: 0,
            held: VecDeque::new(),
            asked: HashMap::new(),
            joiner: Joiner::default(),
            partly: false,
        }
    }

    /// A link whose deliveries are acknowledged in transactions, few at a time.
    pub(super) fn held_back(queue: &str, random: &mut Random) -> In {
        let hold = 20 + random.below(60);
        In { careful: false, credit: hold as u32, hold, ..In::draw(queue, random) }
    }

    /// A link to which each message is sent at most once.
    pub(super) fn once(queue: &str) -> In {
        let mut random = Random::new(0);
        In { presettled: true, careful: false, ..In::draw(queue, &mut random) }
    }

    /// Deliveries without an end, or without the answer to it.
    pub(super) fn open(&self) -> u64 {
        (self.held.len() + self.asked.len()) as u64
    }

    /// There is no link.
    pub(super) fn is_gone(&self) -> bool {
        self.standing == Standing::None
    }

    /// It holds fewer deliveries than it likes to.
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < self.hold
    }

    /// A message has come in part.
    pub(super) fn is_midway(&self) -> bool {
        self.partly
    }

    /// No answer is missing.
    pub(super) fn is_answered(&self) -> bool {
        self.asked.is_empty()
    }

    /// Records that it will be attached, with its credit.
    pub(super) fn attach(&mut self, diary: &mut Diary) -> Result<(), String> {
        let (at, consumer) = (now_ns(), self.number);
        diary.put(at, &Event::Attach { consumer, queue: &self.queue, presettled: self.presettled, filtered: false })?;
        diary.put(at, &Event::Credit { consumer, credit: self.credit })?;
        self.standing = Standing::Coming;
        Ok(())
    }

    /// The broker has attached it.
    pub(super) fn stands(&mut self) {
        if self.standing == Standing::Coming {
            self.standing = Standing::Up;
        }
    }

    /// A frame of a delivery came.
    pub(super) fn receive(&mut self, transfer: &TransferEvent<'_>, run: u64, diary: &mut Diary) -> Result<(), String> {
        if matches!(self.standing, Standing::Ending | Standing::Closing | Standing::None) {
            return Ok(());
        }
        let (delivery, settled) = (transfer.delivery_id, transfer.settled);
        self.partly = !transfer.last;
        let Some(bytes) = self.joiner.push(transfer) else { return Ok(()) };
        let Seen { message, whole, count, .. } = Seen::of(run, bytes);
        let event = Event::Recv {
            message,
            consumer: self.number,
            queue: &self.queue,
            delivery_count: count,
            redelivered: count > 0,
            crc_ok: whole,
            tx: None,
        };
        diary.put(now_ns(), &event)?;
        if !settled {
            self.held.push_back(Held { delivery, message });
        }
        Ok(())
    }

    /// Ends as many deliveries as are more than it likes to hold, in all ways.
    pub(super) fn settle(&mut self, client: &mut Client, diary: &mut Diary, random: &mut Random) -> Result<(), String> {
        if self.held.len() <= self.hold + self.hold / 4 {
            return Ok(());
        }
        while self.held.len() > self.hold {
            let first = self.held.pop_front().expect("there are more than it holds");
            // Not always the oldest: some stay while hundreds pass.
            let one = if random.below(16) == 0 && !self.held.is_empty() {
                let at = random.below(self.held.len());
                std::mem::replace(&mut self.held[at], first)
            } else {
                first
            };
            let verdict = match random.below(200) {
                0..=5 => Verdict::Release,
                6 | 7 => Verdict::Reject { condition: "packhorse:crash", description: "rejected by the consumer" },
                8..=11 => Verdict::Modify { failed: true, undeliverable_here: false },
                12 | 13 => Verdict::Modify { failed: false, undeliverable_here: false },
                14 => Verdict::Modify { failed: true, undeliverable_here: true },
                15 => Verdict::Modify { failed: false, undeliverable_here: true },
                _ => Verdict::Accept,
            };
            self.end_delivery(one, verdict, client, diary)?;
        }
        Ok(())
    }

    /// Accepts everything.
    pub(super) fn finish(&mut self, client: &mut Client, diary: &mut Diary) -> Result<(), String> {
        while let Some(one) = self.held.pop_front() {
            self.end_delivery(one, Verdict::Accept, client, diary)?;
        }
        Ok(())
    }

    /// Acknowledges up to so many deliveries in a transaction, oldest first. `txn`: what the broker calls it.
    pub(super) fn accept_in(
        &mut self,
        txn: &[u8],
        tx: u64,
        most: usize,
        client: &mut Client,
        diary: &mut Diary,
    ) -> Result<(), String> {
        let link = self.link.ok_or("deliveries are held without a link")?;
        for one in self.held.drain(..most.min(self.held.len())) {
            let (message, consumer) = (one.message, self.number);
            diary.put(now_ns(), &Event::Ack { message, consumer, confirmed: false, tx: Some(tx) })?;
            client.settle_in(txn, link, one.delivery, Verdict::Accept).map_err(misuse)?;
        }
        Ok(())
    }

    fn end_delivery(
        &mut self,
        one: Held,
        verdict: Verdict<'_>,
        client: &mut Client,
        diary: &mut Diary,
    ) -> Result<(), String> {
        let (message, consumer) = (one.message, self.number);
        let event = match verdict {
            Verdict::Accept => Event::Ack { message, consumer, confirmed: false, tx: None },
            Verdict::Release => Event::Release { message, consumer, tx: None },
            Verdict::Reject { .. } => Event::Reject { message, consumer, tx: None },
            Verdict::Modify { failed, undeliverable_here } | Verdict::Annotate { failed, undeliverable_here, .. } => {
                Event::Modified { message, consumer, delivery_failed: failed, undeliverable_here, tx: None }
            }
        };
        diary.put(now_ns(), &event)?;
        let link = self.link.ok_or("deliveries are held without a link")?;
        if self.careful {
            self.asked.insert(one.delivery, (message, verdict == Verdict::Accept));
            client.decide(link, one.delivery, verdict).map_err(misuse)?;
        } else {
            client.settle(link, one.delivery, verdict).map_err(misuse)?;
        }
        Ok(())
    }

    /// The broker's answer to the end of a delivery. True: an acknowledgement is confirmed.
    pub(super) fn confirmed(&mut self, at: u64, delivery: u32, diary: &mut Diary) -> Result<bool, String> {
        let Some((message, acknowledged)) = self.asked.remove(&delivery) else { return Ok(false) };
        if acknowledged {
            diary.put(at, &Event::Ack { message, consumer: self.number, confirmed: true, tx: None })?;
        }
        Ok(acknowledged)
    }

    /// Gives new credit when half of it is used.
    pub(super) fn grant(&mut self, client: &mut Client, diary: &mut Diary) -> Result<(), String> {
        let Some(link) = self.link else { return Ok(()) };
        if client.credit(link) <= self.credit / 2 {
            let credit = self.credit + u32::from(self.partly);
            diary.put(now_ns(), &Event::Credit { consumer: self.number, credit })?;
            client.grant(link, self.credit).map_err(misuse)?;
        }
        Ok(())
    }

    /// Asks for what is ready; its link ends after that.
    pub(super) fn drain(&mut self, client: &mut Client) -> Result<(), String> {
        let Some(link) = self.link.filter(|_| self.standing == Standing::Up) else { return Ok(()) };
        self.standing = Standing::Draining;
        client.drain(link).map_err(misuse)
    }

    /// No more comes.
    pub(super) fn drained(&mut self, diary: &mut Diary) -> Result<(), String> {
        if self.standing == Standing::Draining {
            self.standing = Standing::Drained;
            diary.put(now_ns(), &Event::Credit { consumer: self.number, credit: 0 })?;
        }
        Ok(())
    }

    /// Ends the link in order, if it stands.
    pub(super) fn detach(&mut self, client: &mut Client, diary: &mut Diary) -> Result<(), String> {
        let Some(link) = self.link.filter(|_| matches!(self.standing, Standing::Up | Standing::Drained)) else {
            return Ok(());
        };
        // After a drain everything that came is recorded, and the answer to the end says so.
        let exact = self.standing == Standing::Drained;
        diary.put(now_ns(), &Event::Detach { consumer: self.number, orderly: true, confirmed: false })?;
        client.detach(link).map_err(misuse)?;
        self.forget();
        self.standing = if exact { Standing::Ending } else { Standing::Closing };
        Ok(())
    }

    /// The link is over. With a `reason` that is the broker's own word, which may have crossed ours: what was said here need not have been
    /// heard.
    pub(super) fn ended(&mut self, reason: &Reason<'_>, diary: &mut Diary) -> Result<(), String> {
        if self.standing == Standing::Ending && matches!(reason, Reason::None) {
            diary.put(now_ns(), &Event::Detach { consumer: self.number, orderly: true, confirmed: true })?;
        }
        (self.standing, self.link) = (Standing::None, None);
        Ok(())
    }

    /// The link ends with its connection: closed in `orderly` fashion, which is an act, or gone.
    pub(super) fn ends(&mut self, diary: &mut Diary, orderly: bool) -> Result<(), String> {
        if !matches!(self.standing, Standing::None | Standing::Ending | Standing::Closing) {
            diary.put(now_ns(), &Event::Detach { consumer: self.number, orderly, confirmed: false })?;
        }
        self.forget();
        self.link = None;
        self.standing = if orderly { Standing::Closing } else { Standing::None };
        Ok(())
    }

    fn forget(&mut self) {
        self.held.clear();
        self.asked.clear();
        self.joiner = Joiner::default();
        self.partly = false;
    }
}

fn misuse(misuse: Misuse) -> String {
    misuse.to_string()
}
