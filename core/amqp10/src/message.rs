//! A message as it lies in a delivery: where its sections are, and a look into those before the body.
//!
//! One pass, nothing copied, nothing rebuilt: the bare message and the footer leave as the bytes they came as. It works on
//! a prefix too, since a large message is routed long before its last byte is here; [`BodyScan`] checks the rest as it
//! passes. Which value means what to a queue is not decided here.

mod annotations;
mod body;
mod keys;

use alloc::vec::Vec;
use core::ops::Range;

use crate::codec::cursor::{self, Bounds, Cursor, Descriptor};
use crate::codec::{DecodeError, Fault, Map, Properties, Value};
use crate::limits::Limits;

pub use crate::codec::{Header, MessageId};
pub use annotations::{merge_annotations, write_annotations};
pub use body::{BodyScan, BodySection, write_data, write_sequence, write_value};
use keys::Keys;

/// A section of a message.
//= amqp10 3.2
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// What those who carry the message shall do.
    Header,
    /// For the next hop only.
    DeliveryAnnotations,
    /// For the way to the receiver.
    MessageAnnotations,
    /// The standard's properties: the bare message begins.
    Properties,
    /// The application's properties.
    ApplicationProperties,
    /// A body of bytes; may repeat.
    Data,
    /// A body of lists; may repeat.
    Sequence,
    /// A body of one value.
    Value,
    /// What can only be known once the bare message is complete.
    Footer,
}

impl Section {
    /// Its name in the standard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::DeliveryAnnotations => "delivery-annotations",
            Self::MessageAnnotations => "message-annotations",
            Self::Properties => "properties",
            Self::ApplicationProperties => "application-properties",
            Self::Data => "data",
            Self::Sequence => "amqp-sequence",
            Self::Value => "amqp-value",
            Self::Footer => "footer",
        }
    }

    /// Its numeric descriptor.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Header => 0x70,
            Self::DeliveryAnnotations => 0x71,
            Self::MessageAnnotations => 0x72,
            Self::Properties => 0x73,
            Self::ApplicationProperties => 0x74,
            Self::Data => 0x75,
            Self::Sequence => 0x76,
            Self::Value => 0x77,
            Self::Footer => 0x78,
        }
    }

    /// The section of a numeric descriptor as nearly everyone writes it: `0x00 0x53 code`.
    #[inline]
    fn of_short(bytes: &[u8]) -> Option<Self> {
        let &[cursor::DESCRIBED, cursor::ULONG8, code, ..] = bytes else { return None };
        Some(match code {
            0x70 => Self::Header,
            0x71 => Self::DeliveryAnnotations,
            0x72 => Self::MessageAnnotations,
            0x73 => Self::Properties,
            0x74 => Self::ApplicationProperties,
            0x75 => Self::Data,
            0x76 => Self::Sequence,
            0x77 => Self::Value,
            0x78 => Self::Footer,
            _ => return None,
        })
    }

    /// The section of any descriptor.
    fn of(descriptor: Descriptor<'_>) -> Result<Self, DecodeError> {
        Ok(match descriptor {
            Descriptor::Code(0x70) | Descriptor::Symbol("amqp:header:list") => Self::Header,
            Descriptor::Code(0x71) | Descriptor::Symbol("amqp:delivery-annotations:map") => Self::DeliveryAnnotations,
            Descriptor::Code(0x72) | Descriptor::Symbol("amqp:message-annotations:map") => Self::MessageAnnotations,
            Descriptor::Code(0x73) | Descriptor::Symbol("amqp:properties:list") => Self::Properties,
            Descriptor::Code(0x74) | Descriptor::Symbol("amqp:application-properties:map") => {
                Self::ApplicationProperties
            }
            Descriptor::Code(0x75) | Descriptor::Symbol("amqp:data:binary") => Self::Data,
            Descriptor::Code(0x76) | Descriptor::Symbol("amqp:amqp-sequence:list") => Self::Sequence,
            Descriptor::Code(0x77) | Descriptor::Symbol("amqp:amqp-value:*") => Self::Value,
            Descriptor::Code(0x78) | Descriptor::Symbol("amqp:footer:map") => Self::Footer,
            _ => return Err(DecodeError::UnknownSection { code: descriptor.code() }),
        })
    }

    /// Whether it belongs to the body.
    #[must_use]
    pub fn is_body(self) -> bool {
        matches!(self, Self::Data | Self::Sequence | Self::Value)
    }

    /// Checks that the section may follow `last`.
    fn follows(self, last: Option<Section>) -> Result<(), DecodeError> {
        let Some(last) = last else { return Ok(()) };
        let fits = match (last, self) {
            (Self::Data, Self::Data) | (Self::Sequence, Self::Sequence) => true,
            _ => last < self && !(last.is_body() && self.is_body()),
        };
        if fits { Ok(()) } else { Err(DecodeError::SectionOrder { section: self.name(), after: last.name() }) }
    }
}

/// Where a section lies: from its descriptor to its last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
    /// Start of the list or map behind the descriptor.
    value: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn value(self) -> Range<usize> {
        self.value as usize..self.end as usize
    }
}

/// Where the sections of a message are, and what its header says: all of a [`MessageView`] but the bytes. It can be kept
/// and put back on the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The header, every field as sent; all `None` without a header section.
    pub header: Header,
    /// Whether there is a header section.
    pub has_header: bool,
    delivery_annotations: Span,
    message_annotations: Span,
    properties: Span,
    application_properties: Span,
    /// Where properties, application-properties, body or footer begin, whichever comes first.
    bare: u32,
    /// Where the body, or the footer, begins.
    body: u32,
    /// The kind of the first body section, once its first bytes are here.
    body_kind: Option<Section>,
    /// Where the footer begins (the end, if there is none), once all bytes were seen.
    footer: Option<u64>,
}

impl Layout {
    /// The view of the bytes that this layout was made from.
    #[must_use]
    pub fn view<'a>(&self, bytes: &'a [u8]) -> MessageView<'a> {
        MessageView { bytes, layout: *self }
    }

    /// Where what travels on begins, the message-annotations or what follows them: header and delivery-annotations live one
    /// hop. Offset from the start of the message.
    #[must_use]
    pub fn content_start(&self) -> usize {
        let annotations = self.message_annotations();
        if annotations.is_empty() { self.bare as usize } else { annotations.start }
    }

    /// Where the bare message begins: offset from the start of the message.
    #[must_use]
    pub fn bare_start(&self) -> usize {
        self.bare as usize
    }

    /// Where the body begins: offset from the start of the message.
    #[must_use]
    pub fn body_start(&self) -> usize {
        self.body as usize
    }

    /// Where the message-annotations section lies, its descriptor included; empty if there is none.
    #[must_use]
    pub fn message_annotations(&self) -> Range<usize> {
        self.message_annotations.range()
    }

    /// The kind of the body. `None`: there is none, or its first bytes are not here yet.
    #[must_use]
    pub fn body_kind(&self) -> Option<Section> {
        self.body_kind
    }

    /// Whether the message was seen, and checked, to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.footer.is_some()
    }
}

/// A message, or the first part of one that holds all sections before the body.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// What comes next in a message.
struct Next {
    section: Section,
    /// Offset of the value behind the descriptor.
    value: usize,
}

impl<'a> MessageView<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// What is wrong with it: [`DecodeError::condition`] is `amqp:decode-error`, or `amqp:resource-limit-exceeded` when what
    /// stands before the body is larger than [`Limits::message_head_bytes`].
    //= amqp10 3.2
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        match Self::parse_prefix(bytes, Some(bytes.len() as u64), limits)? {
            Some(view) => Ok(view),
            // With the length known to be here, what is cut short is an error, not a reason to wait.
            None => Err(DecodeError::Value { what: "message", fault: Fault::Truncated { needed: 1, left: 0 } }),
        }
    }

    /// Reads the start of a message. `total` is its length where that is known (the last frame of a delivery is here).
    /// `None`: sections before the body are not complete yet, call again with more bytes. The body is checked only when all
    /// of the message is here; otherwise give all bytes from [`Layout::body_start`] on to [`MessageView::body_scan`].
    ///
    /// # Errors
    /// As [`MessageView::parse`].
    pub fn parse_prefix(bytes: &'a [u8], total: Option<u64>, limits: &Limits) -> Result<Option<Self>, DecodeError> {
        let whole = total.is_some_and(|total| total <= bytes.len() as u64);
        if whole && bytes.is_empty() {
            return Err(DecodeError::EmptyMessage);
        }
        let mut layout = Layout::default();
        let mut last = None;
        let mut at = 0usize;
        let mut bare = None;
        loop {
            if at == bytes.len() {
                if whole {
                    break;
                }
                return Self::wait(bytes, limits);
            }
            let Some(next) = Self::next_section(bytes, at, whole)? else { return Self::wait(bytes, limits) };
            next.section.follows(last)?;
            if next.section >= Section::Properties && bare.is_none() {
                bare = Some(at);
            }
            if next.section >= Section::Data {
                layout.body_kind = next.section.is_body().then_some(next.section);
                break;
            }
            let Some(end) = Self::section_end(bytes, &next, whole, limits)? else { return Self::wait(bytes, limits) };
            let span = Span { start: at as u32, end: end as u32, value: next.value as u32 };
            let value = bytes.get(span.value()).unwrap_or_default();
            layout.check_head_section(next.section, span, value, limits)?;
            last = Some(next.section);
            at = end;
        }
        if at > limits.message_head_bytes as usize {
            return Err(DecodeError::HeadTooLarge { limit: limits.message_head_bytes });
        }
        layout.body = at as u32;
        layout.bare = bare.unwrap_or(at) as u32;
        if whole {
            layout.footer = Some(body::check(bytes, at, last, limits)? as u64);
        }
        Ok(Some(Self { bytes, layout }))
    }

    /// More bytes are needed, unless there are as many already as may stand before a body.
    fn wait(bytes: &[u8], limits: &Limits) -> Result<Option<Self>, DecodeError> {
        if bytes.len() > limits.message_head_bytes as usize {
            return Err(DecodeError::HeadTooLarge { limit: limits.message_head_bytes });
        }
        Ok(None)
    }

    /// Reads a section's descriptor. `None`: it is not complete.
    fn next_section(bytes: &[u8], at: usize, whole: bool) -> Result<Option<Next>, DecodeError> {
        let of = |fault| DecodeError::Value { what: "message section", fault };
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(section) = Section::of_short(rest) {
            return Ok(Some(Next { section, value: at + 3 }));
        }
        let mut cursor = Cursor::new(rest);
        let descriptor = match section_descriptor(&mut cursor) {
            Ok(descriptor) => descriptor,
            Err(Fault::Truncated { .. }) if !whole => return Ok(None),
            Err(fault) => return Err(of(fault)),
        };
        Ok(Some(Next { section: Section::of(descriptor)?, value: bytes.len() - cursor.rest().len() }))
    }

    /// Where a list or map section ends, by its size alone. `None`: its end is not here yet.
    fn section_end(bytes: &[u8], next: &Next, whole: bool, limits: &Limits) -> Result<Option<usize>, DecodeError> {
        let of = |fault| DecodeError::Value { what: next.section.name(), fault };
        let mut cursor = Cursor::new(bytes.get(next.value..).unwrap_or_default());
        let size = (|| match cursor.u8()? {
            cursor::LIST0 => Ok(0),
            code @ (cursor::LIST8 | cursor::MAP8 | cursor::LIST32 | cursor::MAP32) => {
                cursor.length(code & 0x10 != 0).map(u64::from)
            }
            constructor => Err(Fault::WrongType { expected: "list or map", constructor }),
        })();
        let size = match size {
            Ok(size) => size,
            Err(Fault::Truncated { .. }) if !whole => return Ok(None),
            Err(fault) => return Err(of(fault)),
        };
        let start = (bytes.len() - cursor.rest().len()) as u64;
        let end = start + size;
        if end > u64::from(limits.message_head_bytes) {
            return Err(DecodeError::HeadTooLarge { limit: limits.message_head_bytes });
        }
        if end <= bytes.len() as u64 {
            Ok(Some(end as usize))
        } else if whole {
            Err(of(Fault::Truncated { needed: size, left: bytes.len() as u64 - start }))
        } else {
            Ok(None)
        }
    }

    /// All bytes: of the message, or of the prefix that was given.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the sections are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The header, every field as sent; all `None` without a header section.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.layout.header
    }

    /// The delivery-annotations, if there are any.
    #[must_use]
    pub fn delivery_annotations(&self) -> Option<Map<'a>> {
        self.map(self.layout.delivery_annotations)
    }

    /// The message-annotations, if there are any.
    #[must_use]
    pub fn message_annotations(&self) -> Option<Map<'a>> {
        self.map(self.layout.message_annotations)
    }

    /// The application-properties, if there are any.
    #[must_use]
    pub fn application_properties(&self) -> Option<Map<'a>> {
        self.map(self.layout.application_properties)
    }

    /// The footer, if there is one and the message is whole.
    #[must_use]
    pub fn footer(&self) -> Option<Map<'a>> {
        let bytes = self.bytes.get(self.layout.footer? as usize..)?;
        let mut cursor = Cursor::new(bytes);
        section_descriptor(&mut cursor).ok()?;
        trusted(cursor.rest())?.as_map()
    }

    /// The properties, read anew at each call; all `None` without such a section.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        self.bytes
            .get(self.layout.properties.value())
            .filter(|bytes| !bytes.is_empty())
            .and_then(|bytes| Properties::read_fields(&mut Cursor::new(bytes), body::TRUSTED).ok())
            .unwrap_or_default()
    }

    /// The message-annotation under the symbol `key`.
    #[must_use]
    pub fn message_annotation(&self, key: &str) -> Option<Value<'a>> {
        self.message_annotations()?.get(key)
    }

    /// The application-property of name `key`.
    #[must_use]
    pub fn application_property(&self, key: &str) -> Option<Value<'a>> {
        self.application_properties()?.get(key)
    }

    /// The message-annotations section as it lies there, its descriptor included; empty if there is none.
    #[must_use]
    pub fn message_annotations_bytes(&self) -> &'a [u8] {
        self.bytes.get(self.layout.message_annotations.range()).unwrap_or_default()
    }

    /// The bare message: properties to body. Of a prefix: what is here of it, and perhaps of the footer.
    #[must_use]
    pub fn bare(&self) -> &'a [u8] {
        let end = self.layout.footer.map_or(self.bytes.len(), |footer| footer as usize);
        self.bytes.get(self.layout.bare as usize..end).unwrap_or_default()
    }

    /// The bare message and the footer: what leaves as the bytes it came as.
    #[must_use]
    pub fn bare_and_footer(&self) -> &'a [u8] {
        self.bytes.get(self.layout.bare as usize..).unwrap_or_default()
    }

    /// The sections of the body in order. Of a prefix: those that are complete.
    pub fn body(&self) -> impl Iterator<Item = BodySection<'a>> + use<'a> {
        body::sections(self.bytes.get(self.layout.body as usize..).unwrap_or_default())
    }

    /// What checks the body of a message that is not whole here, as its bytes pass.
    #[must_use]
    pub fn body_scan(&self, limits: &Limits) -> BodyScan {
        let last = [
            (self.layout.application_properties, Section::ApplicationProperties),
            (self.layout.properties, Section::Properties),
            (self.layout.message_annotations, Section::MessageAnnotations),
            (self.layout.delivery_annotations, Section::DeliveryAnnotations),
        ]
        .into_iter()
        .find(|(span, _)| span.end > 0)
        .map(|(_, section)| section)
        .or(self.layout.has_header.then_some(Section::Header));
        BodyScan::after(u64::from(self.layout.body), last, limits)
    }

    fn map(&self, span: Span) -> Option<Map<'a>> {
        trusted(self.bytes.get(span.value())?)?.as_map()
    }
}

impl Layout {
    /// Checks one section before the body and takes note of it.
    fn check_head_section(
        &mut self,
        section: Section,
        span: Span,
        value: &[u8],
        limits: &Limits,
    ) -> Result<(), DecodeError> {
        let parsed = Bounds::parsed(limits);
        match section {
            Section::Header => {
                self.header = exactly(value, section, |cursor| Header::read_fields(cursor, parsed))?;
                self.has_header = true;
            }
            Section::DeliveryAnnotations => {
                keys::check(value, section, Keys::Annotations, Bounds::skipped(limits))?;
                self.delivery_annotations = span;
            }
            Section::MessageAnnotations => {
                keys::check(value, section, Keys::Annotations, parsed)?;
                self.message_annotations = span;
            }
            Section::Properties => {
                exactly(value, section, |cursor| Properties::read_fields(cursor, parsed))?;
                self.properties = span;
            }
            _ => {
                keys::check(value, section, Keys::Properties, parsed)?;
                self.application_properties = span;
            }
        }
        Ok(())
    }
}

/// Reads a section that must fill its bytes.
fn exactly<'a, T>(
    value: &'a [u8],
    section: Section,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut cursor = Cursor::new(value);
    let read = read(&mut cursor)?;
    if cursor.is_empty() {
        Ok(read)
    } else {
        Err(DecodeError::Value { what: section.name(), fault: Fault::SizeMismatch })
    }
}

/// Reads the descriptor that each section begins with.
fn section_descriptor<'a>(cursor: &mut Cursor<'a>) -> Result<Descriptor<'a>, Fault> {
    match cursor.u8()? {
        cursor::DESCRIBED => cursor.descriptor(),
        constructor => Err(Fault::WrongType { expected: "described", constructor }),
    }
}

/// A view of bytes that were checked before.
fn trusted(bytes: &[u8]) -> Option<Value<'_>> {
    if bytes.is_empty() {
        return None;
    }
    Value::read(&mut Cursor::new(bytes), body::TRUSTED).ok()
}

/// Writes a header section in its shortest form; nothing at all when every field is `None`.
//= amqp10 3.2.1
pub fn write_header(
    out: &mut Vec<u8>,
    durable: Option<bool>,
    priority: Option<u8>,
    ttl: Option<u32>,
    first_acquirer: Option<bool>,
    delivery_count: Option<u32>,
) {
    let header = Header { durable, priority, ttl, first_acquirer, delivery_count };
    if header != Header::default() {
        header.encode(out);
    }
}

#[cfg(test)]
mod tests;
