//! What is known of each message: how it was sent and answered, each delivery of it and how that ended. About 64 bytes a message and
//! 80 a delivery, in plain vectors; everything is kept until the end, so that nothing depends on the order in which files are read.

use crate::event::MessageId;
use packhorse_model::{Map, Seed};

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// File and line in one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

impl Place {
    pub(crate) fn new(file: usize, line: u64) -> Place {
        Place((file as u64) << 40 | line)
    }

    pub(crate) fn file(self) -> usize {
        (self.0 >> 40) as usize
    }

    pub(crate) fn line(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }

    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The broker's answer to a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Unknown,
    Confirmed,
    Refused,
    /// Sent in a transaction that was not committed.
    RolledBack,
}

/// A message as its sender knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) sequence: u64,
    pub(crate) at: u64,
    pub(crate) place: Place,
    /// Of the answer, or of `sent_unknown`.
    pub(crate) answer_at: u64,
    pub(crate) answer_place: Place,
    pub(crate) queue: u32,
    pub(crate) seen: Seen,
    pub(crate) answer: Answer,
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    pub(crate) ttl: bool,
    pub(crate) delayed: bool,
    /// The transaction it was sent in. Its answer is that of the transaction, once all is read.
    pub(crate) tx: u32,
    /// When its stored body was damaged on purpose, or could not be read.
    pub(crate) damaged_at: Option<u64>,
    /// Its connection died without an answer, and it was sent again.
    pub(crate) again: bool,
}

impl Sent {
    pub(crate) fn in_tx(&self) -> bool {
        self.tx != NONE
    }
}

/// What was seen of a message on the other side: heads of two chains, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) receipts: u32,
    pub(crate) fates: u32,
}

impl Seen {
    const NOTHING: Seen = Seen { receipts: NONE, fates: NONE };
}

/// How a delivery ended, as its consumer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not by itself; perhaps by its link's end.
    Open,
    Acknowledged,
    /// Acknowledged in a transaction of which nobody knows whether it was committed.
    AcknowledgedInTx,
    /// Acknowledged in a transaction that was not committed: given back as failed, at a time that nobody knows.
    RolledBack,
    /// Given back with its count as it was.
    GivenBack,
    /// The same, and not again to this link.
    Declined,
    /// Given back as failed.
    Failed,
    Rejected,
}

/// One delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// The broker sent it at this time or earlier.
    pub(crate) at: u64,
    /// The broker sent it at this time or later: the link, or the credit that it used, did not exist before.
    pub(crate) from: u64,
    pub(crate) place: Place,
    pub(crate) end_at: u64,
    pub(crate) end_place: Place,
    pub(crate) confirm_at: u64,
    pub(crate) confirm_place: Place,
    next: u32,
    pub(crate) consumer: u32,
    pub(crate) queue: u32,
    pub(crate) count: u32,
    /// The transaction it was acknowledged in; once all is read its end is what became of that.
    pub(crate) tx: u32,
    /// The transaction in which it was given back or rejected; once all is read its end is what became of that.
    pub(crate) returned_in: u32,
    pub(crate) end: End,
    pub(crate) redelivered: bool,
    pub(crate) crc_ok: bool,
    /// Given back, and not again to this link.
    pub(crate) not_here: bool,
}

impl Receipt {
    pub(crate) fn new(at: u64, from: u64, place: Place, consumer: u32, queue: u32) -> Receipt {
        Receipt {
            at,
            from,
            place,
            end_at: 0,
            end_place: Place::default(),
            confirm_at: 0,
            confirm_place: Place::default(),
            next: NONE,
            consumer,
            queue,
            count: 0,
            tx: NONE,
            returned_in: NONE,
            end: End::Open,
            redelivered: false,
            crc_ok: true,
            not_here: false,
        }
    }

    /// Whether the broker's answer to its acknowledgement was seen.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirm_place.is_some()
    }

    /// Whether it came as if for the first time.
    pub(crate) fn is_unflagged(&self) -> bool {
        self.count == 0 && !self.redelivered
    }
}

/// Where else a message was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) dead: bool,
    next: u32,
}

/// One producing link's messages, by ascending sequence.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) id: u32,
    pub(crate) sent: Vec<Sent>,
}

impl Producer {
    fn position(&self, sequence: u64) -> Option<usize> {
        let first = self.sent.first()?.sequence;
        let guess = usize::try_from(sequence.checked_sub(first)?).ok()?;
        match self.sent.get(guess) {
            Some(sent) if sent.sequence == sequence => Some(guess),
            _ => self.sent.binary_search_by_key(&sequence, |sent| sent.sequence).ok(),
        }
    }
}

/// All messages.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) producers: Vec<Producer>,
    by_id: Map<u32, u32>,
    last: (u32, u32),
    pub(crate) receipts: Vec<Receipt>,
    fates: Vec<Fate>,
    /// Seen and not sent, or sent a little later by the other process's clock.
    pub(crate) orphans: Map<MessageId, Seen>,
}

impl Messages {
    pub(crate) fn new() -> Messages {
        Messages {
            producers: Vec::new(),
            by_id: Seed::fixed(1).map(),
            last: (0, NONE),
            receipts: Vec::new(),
            fates: Vec::new(),
            orphans: Seed::fixed(2).map(),
        }
    }

    fn producer(&mut self, id: u32) -> Option<u32> {
        if self.last.1 != NONE && self.last.0 == id {
            return Some(self.last.1);
        }
        let index = *self.by_id.get(&id)?;
        self.last = (id, index);
        Some(index)
    }

    /// A message was sent. Err: not after the one before it.
    pub(crate) fn send(&mut self, id: u32, mut sent: Sent) -> Result<(), u64> {
        let index = match self.producer(id) {
            Some(index) => index,
            None => {
                let index = self.producers.len() as u32;
                self.producers.push(Producer { id, sent: Vec::new() });
                self.by_id.insert(id, index);
                index
            }
        };
        if let Some(seen) = self.orphans.remove(&MessageId::new(id, sent.sequence)) {
            sent.seen = seen;
        }
        let producer = &mut self.producers[index as usize];
        if let Some(last) = producer.sent.last().filter(|last| last.sequence >= sent.sequence) {
            return Err(last.sequence);
        }
        producer.sent.push(sent);
        Ok(())
    }

    /// The message, if it was sent.
    pub(crate) fn sent_mut(&mut self, message: MessageId) -> Option<&mut Sent> {
        let index = self.producer(message.producer)?;
        let producer = &mut self.producers[index as usize];
        let position = producer.position(message.sequence)?;
        producer.sent.get_mut(position)
    }

    /// The same, to look at.
    pub(crate) fn sent(&self, message: MessageId) -> Option<&Sent> {
        let producer = &self.producers[*self.by_id.get(&message.producer)? as usize];
        producer.sent.get(producer.position(message.sequence)?)
    }

    fn seen_mut(&mut self, message: MessageId) -> &mut Seen {
        // Asked twice, for the borrow of the first answer would reach over the second.
        if self.sent_mut(message).is_some()
            && let Some(index) = self.producer(message.producer)
        {
            let producer = &mut self.producers[index as usize];
            let position = producer.position(message.sequence).expect("it was there a moment ago");
            return &mut producer.sent[position].seen;
        }
        self.orphans.entry(message).or_insert(Seen::NOTHING)
    }

    /// A delivery was seen.
    pub(crate) fn receive(&mut self, message: MessageId, mut receipt: Receipt) -> u32 {
        let index = self.receipts.len() as u32;
        let seen = self.seen_mut(message);
        receipt.next = seen.receipts;
        seen.receipts = index;
        self.receipts.push(receipt);
        index
    }

    /// It was found in a dead-letter or expiry queue.
    pub(crate) fn found(&mut self, message: MessageId, at: u64, place: Place, dead: bool) {
        let index = self.fates.len() as u32;
        let seen = self.seen_mut(message);
        let next = std::mem::replace(&mut seen.fates, index);
        self.fates.push(Fate { at, place, dead, next });
    }

    /// The newest delivery of the message on this consumer's link that `wanted` likes.
    pub(crate) fn newest(
        &mut self,
        message: MessageId,
        consumer: u32,
        wanted: impl Fn(&Receipt) -> bool,
    ) -> Option<&mut Receipt> {
        let mut next = match self.sent_mut(message) {
            Some(sent) => sent.seen.receipts,
            None => self.orphans.get(&message)?.receipts,
        };
        while next != NONE {
            let receipt = &self.receipts[next as usize];
            if receipt.consumer == consumer && wanted(receipt) {
                return self.receipts.get_mut(next as usize);
            }
            next = receipt.next;
        }
        None
    }

    /// Its deliveries into `into`, by the time they were seen.
    pub(crate) fn collect(&self, seen: Seen, into: &mut Vec<Receipt>) {
        into.clear();
        let mut next = seen.receipts;
        while next != NONE {
            let receipt = self.receipts[next as usize];
            next = receipt.next;
            into.push(receipt);
        }
        into.sort_by_key(|receipt| (receipt.at, receipt.place));
    }

    /// Its deliveries with their indexes, newest first.
    pub(crate) fn chain(&self, seen: Seen) -> impl Iterator<Item = (u32, Receipt)> + '_ {
        let mut next = seen.receipts;
        std::iter::from_fn(move || {
            let (index, receipt) = (next, *self.receipts.get(next as usize)?);
            next = receipt.next;
            Some((index, receipt))
        })
    }

    /// Where it was found, newest first.
    pub(crate) fn fates(&self, seen: Seen) -> impl Iterator<Item = Fate> + '_ {
        let mut next = seen.fates;
        std::iter::from_fn(move || {
            let fate = *self.fates.get(next as usize)?;
            next = fate.next;
            Some(fate)
        })
    }
}

/// A message that nobody has seen yet.
pub(crate) fn unseen() -> Seen {
    Seen::NOTHING
}
