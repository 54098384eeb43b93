//! The numbers of what a producer sends, over all its connections: a broker that knows of numbers stores what is sent twice once
//! (`docs/formats/amqp-dedup.md`).
//!
//! The caller keeps the messages. A producer has one address; after a reconnect it attaches by [`Client::numbered_sender`], and sends
//! again what is not confirmed, each message under the number that it had. What is below the floor of the broker's answer may have been
//! stored, and the broker does not know: it rejects that with `packhorse:dedup-lost`.

use crate::client::{Client, SenderOptions};
use alloc::collections::BTreeSet;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{DeliveryState, Map, TransactionalState};
use packhorse_amqp10::engine::{AttachFrame, LinkId, Misuse, Piece, SendParams, SessionId};
use packhorse_amqp10::producer::{self, Opening, Tag};

/// See the module.
#[derive(Clone, Debug)]
pub struct Numbering {
    producer: [u8; 16],
    next: u64,
    unconfirmed: BTreeSet<u64>,
}

impl Numbering {
    /// A producer of this name, a UUID that nobody else has, and that has sent nothing.
    #[must_use]
    pub fn new(producer: [u8; 16]) -> Numbering {
        Numbering { producer, next: 0, unconfirmed: BTreeSet::new() }
    }

    /// The number of a message that is to be sent for the first time.
    pub fn draw(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.unconfirmed.insert(number);
        number
    }

    /// A message is confirmed, or given up: it is not sent again.
    pub fn done(&mut self, number: u64) {
        self.unconfirmed.remove(&number);
    }

    /// Numbers of what is to be sent again after a reconnect, ascending.
    pub fn unconfirmed(&self) -> impl Iterator<Item = u64> + '_ {
        self.unconfirmed.iter().copied()
    }

    fn lowest(&self) -> u64 {
        self.unconfirmed.first().copied().unwrap_or(self.next)
    }

    fn opening(&self) -> Opening {
        Opening { producer: self.producer, lowest: self.lowest(), next: self.next }
    }

    /// The delivery-tag of a message of this number.
    fn tag(&self, number: u64) -> [u8; 16] {
        Tag { number, lowest: self.lowest().min(number) }.bytes()
    }
}

impl Client {
    /// As [`Client::sender`], of a producer that numbers its messages. Send by [`Client::send_numbered`], once [`floor`] of the
    /// answer's frame is known: without one the broker stores what is sent twice twice.
    ///
    /// # Errors
    ///
    /// As [`Client::sender`].
    pub fn numbered_sender(
        &mut self,
        session: SessionId,
        options: &SenderOptions<'_>,
        numbering: &Numbering,
    ) -> Result<LinkId, Misuse> {
        let properties = numbering.opening().encoded();
        let properties = Map::from_encoded(&properties, &Limits::default()).ok();
        self.attach_sender(session, options, properties)
    }

    /// As [`Client::send`], under a number that [`Numbering::draw`] gave.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_numbered(
        &mut self,
        link: LinkId,
        token: u64,
        numbering: &Numbering,
        number: u64,
        pieces: &[Piece<'_>],
    ) -> Result<u32, Misuse> {
        self.connection.send(link, &params(token, &numbering.tag(number)), pieces)
    }

    /// As [`Client::begin_message`], under a number that [`Numbering::draw`] gave.
    ///
    /// # Errors
    ///
    /// As [`Client::begin_message`].
    pub fn begin_numbered(
        &mut self,
        link: LinkId,
        token: u64,
        numbering: &Numbering,
        number: u64,
    ) -> Result<(), Misuse> {
        self.connection.begin_delivery(link, &params(token, &numbering.tag(number)))
    }

    /// As [`Client::send_numbered`], in the transaction that was declared as `txn`. The message is [`Numbering::done`] once that is committed,
    /// and not by its outcome.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_numbered_in(
        &mut self,
        txn: &[u8],
        link: LinkId,
        token: u64,
        numbering: &Numbering,
        number: u64,
        pieces: &[Piece<'_>],
    ) -> Result<u32, Misuse> {
        let tag = numbering.tag(number);
        let state = DeliveryState::Transactional(TransactionalState { txn_id: txn, outcome: None });
        self.connection.send(link, &SendParams { state: Some(&state), ..params(token, &tag) }, pieces)
    }
}

fn params(token: u64, tag: &[u8; 16]) -> SendParams<'_> {
    SendParams { token, tag: Some(tag), ..SendParams::default() }
}

/// The number below which the broker knows nothing of the producer. `None`: it does not know of numbers.
#[must_use]
pub fn floor(attach: &AttachFrame<'_>) -> Option<u64> {
    producer::floor(attach.decode().properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_confirmed_keeps_its_number_and_holds_the_lowest() {
        let mut numbering = Numbering::new([1; 16]);
        assert_eq!(numbering.opening(), Opening { producer: [1; 16], lowest: 0, next: 0 });
        assert_eq!([numbering.draw(), numbering.draw(), numbering.draw()], [0, 1, 2]);
        numbering.done(1);
        assert_eq!(Tag::read(&numbering.tag(2)), Some(Tag { number: 2, lowest: 0 }));
        numbering.done(0);
        assert_eq!(numbering.opening(), Opening { producer: [1; 16], lowest: 2, next: 3 });
        assert_eq!(numbering.unconfirmed().collect::<alloc::vec::Vec<_>>(), [2]);
        numbering.done(2);
        assert_eq!(numbering.opening(), Opening { producer: [1; 16], lowest: 3, next: 3 });
        // One that was given up is sent all the same.
        assert_eq!(Tag::read(&numbering.tag(1)), Some(Tag { number: 1, lowest: 1 }));
    }
}
