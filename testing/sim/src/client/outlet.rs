//! One producing link over all its lives: what it has sent, what is confirmed, what of it is recorded when.

use super::controller::Tx;
use super::{Around, Lost, Queue, known, misuse};
use crate::draw::Draw;
use crate::message::{Habits, Shape};
use packhorse_client_core::{Client, Decision, LinkId, Piece, SenderOptions, SenderSettleMode, SessionId};
use packhorse_history::{Event, MessageId};
use std::collections::VecDeque;

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
        }
    }

    pub(crate) fn attach(
        &mut self,
        client: &mut Client,
        session: SessionId,
        token: u64,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        self.producer = around.books.link();
        let name = format!("out-{token}");
        let options =
            SenderOptions { name: &name, address: Some(&self.queue.name), settle: SenderSettleMode::Mixed, token };
        self.link = Some(client.sender(session, &options).map_err(misuse)?);
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
        let crc = around.press.make(id, shape);
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
        if !shape.settled {
            self.unconfirmed.push_back((self.next, false));
            self.waiting += 1;
        }
        let token = self.next;
        self.next += 1;
        let bytes = &around.press.encoded;
        let (fits, settled) = (client.fits(link, bytes.len()), shape.settled);
        match &self.tx {
            None if fits => client.send(link, token, settled, &[Piece::Copy(bytes)]).map(drop),
            Some(tx) if fits => client.send_in(&tx.id, link, token, settled, &[Piece::Copy(bytes)]).map(drop),
            None => client.begin_message(link, token, settled),
            Some(tx) => client.begin_message_in(&tx.id, link, token, settled),
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
        let event = match decision {
            Decision::Accepted => Event::SentOk { message },
            _ => Event::SentRejected { message, reason },
        };
        around.put(&event);
    }

    /// The link is gone: nobody knows what became of what has no answer.
    pub(crate) fn lost(&mut self, around: &mut Around<'_>) {
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
        self.next >= self.until && self.partial.is_none()
    }
}
