//! Messages that tests send, and what they look like on arrival.

use packhorse_amqp10::Limits;
use packhorse_amqp10::message::{MessageView, write_data, write_header};

/// A message with a number as its body.
#[derive(Clone, Debug)]
pub(crate) struct Msg {
    number: u64,
    length: usize,
    durable: Option<bool>,
    priority: Option<u8>,
    ttl: Option<u32>,
    annotations: Vec<u8>,
}

impl Msg {
    /// Without a word on durability: queues keep it, by default.
    pub(crate) fn new(number: u64) -> Msg {
        Msg { number, length: 16, durable: None, priority: None, ttl: None, annotations: Vec::new() }
    }

    pub(crate) fn durable(mut self, durable: bool) -> Msg {
        self.durable = Some(durable);
        self
    }

    pub(crate) fn priority(mut self, priority: u8) -> Msg {
        self.priority = Some(priority);
        self
    }

    pub(crate) fn ttl(mut self, ttl: u32) -> Msg {
        self.ttl = Some(ttl);
        self
    }

    /// The body has so many bytes.
    pub(crate) fn length(mut self, length: usize) -> Msg {
        self.length = length.max(8);
        self
    }

    /// Encoded sections between header and body.
    pub(crate) fn sections(mut self, encoded: &[u8]) -> Msg {
        self.annotations = encoded.to_vec();
        self
    }

    /// The bytes of the message.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length + 64);
        write_header(&mut out, self.durable, self.priority, self.ttl, None, None);
        out.extend_from_slice(&self.annotations);
        let mut body = vec![0; self.length];
        body[..8].copy_from_slice(&self.number.to_be_bytes());
        // Bytes that tell their place.
        for (at, byte) in body.iter_mut().enumerate().skip(8) {
            *byte = (at as u64 ^ self.number ^ (at as u64 >> 8)) as u8;
        }
        write_data(&mut out, &body);
        out
    }
}

/// The number in a message made by [`Msg`]; checks that its body is whole.
pub(crate) fn number_of(bytes: &[u8]) -> u64 {
    let limits = Limits::default();
    let view = MessageView::parse(bytes, &limits).expect("what arrives is a message");
    let data = match view.body().next() {
        Some(packhorse_amqp10::message::BodySection::Data(data)) => data,
        other => panic!("the body is a data section: {other:?}"),
    };
    let number = u64::from_be_bytes(data[..8].try_into().expect("eight bytes"));
    for (at, byte) in data.iter().enumerate().skip(8) {
        assert_eq!(*byte, (at as u64 ^ number ^ (at as u64 >> 8)) as u8, "message {number} differs at byte {at}");
    }
    number
}

/// A message with a number and nothing else.
pub(crate) fn number(number: u64) -> Vec<u8> {
    Msg::new(number).bytes()
}
