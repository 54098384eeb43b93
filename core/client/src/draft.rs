//! Messages to be sent: from a few plain facts to bytes.

use alloc::vec::Vec;
use packhorse_amqp10::codec::{MessageId, Properties, ValueWriter, put_descriptor, put_string};
use packhorse_amqp10::message::{Section, write_data, write_header, write_value};

/// The body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A data section.
    Data(&'a [u8]),
    /// A string in an amqp-value section, as text messages are.
    Text(&'a str),
}

/// A message before it is encoded. What is `None` or empty is left out.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// Survives a restart of the broker; `None` = as the queue says.
    pub durable: Option<bool>,
    /// 0 to 9.
    pub priority: Option<u8>,
    /// Milliseconds to live.
    pub ttl_ms: Option<u32>,
    /// The standard's properties.
    pub properties: Properties<'a>,
    /// The application's properties, as strings.
    pub application: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: Body<'a>,
}

impl<'a> Draft<'a> {
    /// A message with this body and nothing else.
    pub fn new(body: Body<'a>) -> Draft<'a> {
        Draft { durable: None, priority: None, ttl_ms: None, properties: Properties::default(), application: &[], body }
    }

    /// The same with a message-id.
    #[must_use]
    pub fn with_id(mut self, id: MessageId<'a>) -> Draft<'a> {
        self.properties.message_id = Some(id);
        self
    }

    /// Appends the whole message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        match self.body {
            Body::Data(bytes) => write_data(out, bytes),
            Body::Text(text) => write_value(out, |out| put_string(out, text)),
        }
    }

    /// Appends everything before the body. A load generator encodes this once and sends bodies as pieces behind it.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        write_header(out, self.durable, self.priority, self.ttl_ms, None, None);
        if self.properties != Properties::default() {
            self.properties.encode(out);
        }
        if !self.application.is_empty() {
            put_descriptor(out, u64::from(Section::ApplicationProperties.code()));
            ValueWriter::map(out, |map| {
                for (key, value) in self.application {
                    put_string(map.next(), key);
                    put_string(map.next(), value);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_amqp10::Limits;
    use packhorse_amqp10::message::MessageView;

    #[test]
    fn what_is_drafted_is_read_back() {
        let mut draft = Draft::new(Body::Text("hello")).with_id(MessageId::Ulong(7));
        draft.durable = Some(true);
        draft.priority = Some(9);
        draft.ttl_ms = Some(1000);
        draft.application = &[("color", "red"), ("size", "4")];
        let mut bytes = Vec::new();
        draft.encode(&mut bytes);
        let view = MessageView::parse(&bytes, &Limits::default()).unwrap();
        assert_eq!(
            (view.header().durable, view.header().priority, view.header().ttl),
            (Some(true), Some(9), Some(1000))
        );
        assert_eq!(view.properties().message_id, Some(MessageId::Ulong(7)));
        assert_eq!(view.application_property("size").and_then(|v| v.as_str()), Some("4"));
        assert_eq!(view.layout().body_kind(), Some(Section::Value));
    }

    #[test]
    fn an_empty_draft_is_a_body_alone() {
        let mut bytes = Vec::new();
        Draft::new(Body::Data(b"x")).encode(&mut bytes);
        let view = MessageView::parse(&bytes, &Limits::default()).unwrap();
        assert!(!view.layout().has_header);
        assert_eq!(view.layout().body_start(), 0);
    }
}
