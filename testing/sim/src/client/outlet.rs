//! One producing link over all its lives: what it has sent, what is confirmed, what of it is recorded when.

use super::controller::Tx;
use super::{Around, Lost, Queue, known, misuse};
use crate::draw::Draw;
use crate::message::{Habits, Shape};
use packhorse_client_core::producer::DEDUP_LOST;
use packhorse_client_core::{Client, Decision, LinkId, Numbering, Piece, SenderOptions, SenderSettleMode, SessionId};
use packhorse_history::{Event, MessageId};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
pub(crate) struct Out {
    queue: Queue,
    habits: Habits,
    window: usize,
    /// What it sends belongs to this transaction.
    pub(super) tx: Option<Tx>,
    pub(crate) link: Option<LinkId>,
    /// The number of this life.
    producer: u32,
    next: u64,
    until: u64,
    /// Sent and without an answer, by ascending number; `true`: there is one.
    unconfirmed: VecDeque<(u64, bool)>,
    waiting: u64,
    /// A message that is longer than the window: its bytes, and how many are gone.
    partial: Option<(Vec<u8>, usize)>,
    numbers: Option<Box<Numbers>>,
}

/// Of a link whose messages have numbers, or duplicate ids, and are sent again in its next life: that life is the same to the history, and
/// so are they.
struct Numbers {
    numbering: Numbering,
    /// The broker is told no numbers; each message has its name as duplicate id.
    ids: bool,
    /// What each message without an answer is, and whether it was sent in an earlier life.
    shapes: BTreeMap<u64, (Shape, bool)>,
    /// What is to be sent again, ascending.
    again: VecDeque<u64>,
}

impl Out {
    pub(crate) fn new(queue: Queue, habits: Habits, window: usize, messages: u64) -> Out {
        let unconfirmed = VecDeque::new();
        Out {
            queue,
            habits,
            window,
            tx: None,
            link: None,
            producer: 0,
            next: 0,
            until: messages,
            unconfirmed,
            waiting: 0,
            partial: None,
            numbers: None,
        }
    }

    /// Its messages have numbers, all of them wait for a confirm and outlive the process: what is sent again keeps its order.
    pub(crate) fn numbered(self, producer: [u8; 16]) -> Out {
        self.known(producer, false)
    }

    /// The same with duplicate ids, as clients of others have them.
    pub(crate) fn identified(self) -> Out {
        self.known([0; 16], true)
    }

    fn known(mut self, producer: [u8; 16], ids: bool) -> Out {
        (self.habits.volatile, self.habits.settled) = (0, 0);
        let (numbering, shapes, again) = (Numbering::new(producer), BTreeMap::new(), VecDeque::new());
        self.numbers = Some(Box::new(Numbers { numbering, ids, shapes, again }));
        self
    }

    fn identifies(&self) -> bool {
        self.numbers.as_ref().is_some_and(|numbers| numbers.ids)
    }

    /// What the broker is told of numbers.
    fn numbering(&self) -> Option<&Numbering> {
        self.numbers.as_ref().filter(|numbers| !numbers.ids).map(|numbers| &numbers.numbering)
    }

    pub(crate) fn attach(
        &mut self,
        client: &mut Client,
        session: SessionId,
        token: u64,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        if self.numbers.is_none() || self.next == 0 {
            self.producer = around.books.link();
        }
        let name = format!("out-{token}");
        let options =
            SenderOptions { name: &name, address: Some(&self.queue.name), settle: SenderSettleMode::Mixed, token };
        let link = match self.numbering() {
            Some(numbering) => client.numbered_sender(session, &options, numbering),
            None => client.sender(session, &options),
        };
        self.link = Some(link.map_err(misuse)?);
        Ok(())
    }

    /// Sends what may go: at most so many messages. Answers how many went.
    pub(crate) fn send(
        &mut self,
        client: &mut Client,
        most: u64,
        draw: &mut Draw,
        around: &mut Around<'_>,
    ) -> Result<u64, Lost> {
        let Some(link) = self.link else { return Ok(0) };
        if !self.go_on(client, link)? {
            return Ok(0);
        }
        let mut sent = 0;
        while sent < most
            && let Some(numbers) = &mut self.numbers
            && self.waiting < self.window as u64
            && client.sendable(link)
            && let Some(number) = numbers.again.pop_front()
        {
            sent += 1;
            let (shape, _) = numbers.shapes[&number];
            around.press.make(MessageId::new(self.producer, number), shape, numbers.ids);
            if !self.put_out(client, link, number, shape.settled, around)? {
                return Ok(sent);
            }
        }
        while sent < most && self.next < self.until && self.waiting < self.window as u64 && client.sendable(link) {
            let shape = self.habits.draw(draw);
            sent += 1;
            if !self.put(client, link, shape, around)? {
                break;
            }
        }
        Ok(sent)
    }

    /// Sends one message of this shape. False: not now.
    pub(super) fn send_one(
        &mut self,
        client: &mut Client,
        shape: Shape,
        around: &mut Around<'_>,
    ) -> Result<bool, Lost> {
        let link = known(self.link)?;
        let free = self.go_on(client, link)? && client.sendable(link);
        if free {
            self.put(client, link, shape, around)?;
        }
        Ok(free)
    }

    /// Goes on with what is under way.
    pub(super) fn push(&mut self, client: &mut Client) -> Result<(), Lost> {
        if let Some(link) = self.link {
            self.go_on(client, link)?;
        }
        Ok(())
    }

    /// Sends the next message, or its beginning. False: it is not through.
    fn put(&mut self, client: &mut Client, link: LinkId, shape: Shape, around: &mut Around<'_>) -> Result<bool, Lost> {
        let id = MessageId::new(self.producer, self.next);
        let crc = around.press.make(id, shape, self.identifies());
        let event = Event::Send {
            message: id,
            queue: &self.queue.full,
            size_bytes: shape.size as u32,
            crc,
            persistent: shape.persistent,
            ttl_ms: 0,
            delay_ms: 0,
            priority: shape.priority,
            tx: self.tx.as_ref().map(|tx| tx.number),
        };
        around.put(&event);
        let token = self.next;
        self.next += 1;
        if let Some(numbers) = &mut self.numbers {
            let drawn = numbers.numbering.draw();
            debug_assert_eq!(drawn, token, "a message's number is its place among all of its link");
            numbers.shapes.insert(token, (shape, false));
        }
        self.put_out(client, link, token, shape.settled, around)
    }

    /// Sends the message that was just made, or its beginning. False: it is not through.
    fn put_out(
        &mut self,
        client: &mut Client,
        link: LinkId,
        token: u64,
        settled: bool,
        around: &mut Around<'_>,
    ) -> Result<bool, Lost> {
        if !settled {
            self.unconfirmed.push_back((token, false));
            self.waiting += 1;
        }
        let bytes = &around.press.encoded;
        let fits = client.fits(link, bytes.len());
        match (&self.tx, self.numbering()) {
            (None, Some(numbering)) if fits => {
                client.send_numbered(link, token, numbering, token, &[Piece::Copy(bytes)]).map(drop)
            }
            (None, Some(numbering)) => client.begin_numbered(link, token, numbering, token),
            (None, None) if fits => client.send(link, token, settled, &[Piece::Copy(bytes)]).map(drop),
            (Some(tx), _) if fits => client.send_in(&tx.id, link, token, settled, &[Piece::Copy(bytes)]).map(drop),
            (None, None) => client.begin_message(link, token, settled),
            (Some(tx), _) => client.begin_message_in(&tx.id, link, token, settled),
        }
        .map_err(misuse)?;
        if fits {
            return Ok(true);
        }
        self.partial = Some((bytes.clone(), 0));
        self.go_on(client, link)
    }

    /// Goes on with a message that is under way. False: it is not through.
    fn go_on(&mut self, client: &mut Client, link: LinkId) -> Result<bool, Lost> {
        let Some((bytes, gone)) = &mut self.partial else { return Ok(true) };
        let part = client.send_part(link, Piece::Copy(&bytes[*gone..]), true).map_err(misuse)?;
        *gone += part.consumed;
        if part.done {
            self.partial = None;
        }
        Ok(part.done)
    }

    pub(crate) fn answered(&mut self, sequence: u64, decision: Decision, reason: &str, around: &mut Around<'_>) {
        let at = self.unconfirmed.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        let Some(slot) = at.ok().and_then(|at| self.unconfirmed.get_mut(at)).filter(|slot| !slot.1) else {
            around.wrong.push(format!("an outcome for message {sequence}, which waits for none"));
            return;
        };
        slot.1 = true;
        self.waiting -= 1;
        while self.unconfirmed.front().is_some_and(|(_, answered)| *answered) {
            self.unconfirmed.pop_front();
        }
        let message = MessageId::new(self.producer, sequence);
        let mut again = false;
        if let Some(numbers) = &mut self.numbers {
            numbers.numbering.done(sequence);
            again = numbers.shapes.remove(&sequence).is_some_and(|(_, again)| again);
        }
        let event = match decision {
            // Whether the first one was stored nobody knows, or a queue that is gone did.
            _ if again && [DEDUP_LOST, "amqp:resource-deleted"].contains(&reason) => Event::SentUnknown { message },
            Decision::Accepted => Event::SentOk { message },
            _ => Event::SentRejected { message, reason },
        };
        around.put(&event);
    }

    /// The link is gone: nobody knows what became of what has no answer.
    pub(crate) fn lost(&mut self, around: &mut Around<'_>) {
        if let Some(numbers) = &mut self.numbers {
            numbers.again = numbers.numbering.unconfirmed().collect();
            numbers.shapes.values_mut().for_each(|(_, again)| *again = true);
        }
        for (sequence, answered) in self.unconfirmed.drain(..) {
            if !answered {
                around.put(&Event::SentUnknown { message: MessageId::new(self.producer, sequence) });
            }
        }
        self.waiting = 0;
        self.partial = None;
        self.link = None;
    }

    pub(crate) fn unconfirmed(&self) -> u64 {
        self.waiting
    }

    /// The number that this life of the link has in the history.
    pub(super) fn producer(&self) -> u32 {
        self.producer
    }

    /// There is more to send.
    pub(crate) fn more(&mut self, messages: u64) {
        self.until = self.until.max(self.next) + messages;
    }

    /// No message is half sent.
    pub(super) fn is_whole(&self) -> bool {
        self.partial.is_none()
    }

    pub(crate) fn is_sent(&self) -> bool {
        let again = self.numbers.as_ref().is_some_and(|numbers| !numbers.again.is_empty());
        self.next >= self.until && self.partial.is_none() && !again
    }
}
