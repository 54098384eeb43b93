//! The composite types of part 3 of the standard, messaging. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use super::{Error, TerminusDurability, TerminusExpiryPolicy};
use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::encode::{self, FieldsWriter};
use crate::codec::error::DecodeError;
use crate::codec::fields::{Fields, at, described, required};
use crate::codec::union::{MessageId, Outcome};
use crate::codec::value::{Map, Symbols};
use crate::limits::Limits;
use alloc::vec::Vec;

/// What a message asks of those who carry it. Defaults are not filled in: what is left out is told apart.
//= amqp10 3.2.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Survives a restart of whoever holds it; the standard's default is false.
    pub durable: Option<bool>,
    /// 0 to 9; the standard's default is 4.
    pub priority: Option<u8>,
    /// Milliseconds it lives.
    pub ttl: Option<u32>,
    /// No other link acquired it before; the standard's default is false.
    pub first_acquirer: Option<bool>,
    /// Unsuccessful deliveries before; the standard's default is 0.
    pub delivery_count: Option<u32>,
}

impl Header {
    /// Its name in the standard.
    pub const NAME: &'static str = "header";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x70;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:header:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            durable: fields.boolean().map_err(at("header", "durable"))?,
            priority: fields.ubyte().map_err(at("header", "priority"))?,
            ttl: fields.uint().map_err(at("header", "ttl"))?,
            first_acquirer: fields.boolean().map_err(at("header", "first-acquirer"))?,
            delivery_count: fields.uint().map_err(at("header", "delivery-count"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x70);
        w.option(self.durable, encode::put_boolean);
        w.option(self.priority, encode::put_ubyte);
        w.option(self.ttl, encode::put_uint);
        w.option(self.first_acquirer, encode::put_boolean);
        w.option(self.delivery_count, encode::put_uint);
        w.finish();
    }
}

/// The properties of a bare message.
//= amqp10 3.2.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    /// Name of the message.
    pub message_id: Option<MessageId<'a>>,
    /// Who made it.
    pub user_id: Option<&'a [u8]>,
    /// The node it is meant for.
    pub to: Option<&'a str>,
    /// What it is about.
    pub subject: Option<&'a str>,
    /// The node for answers.
    pub reply_to: Option<&'a str>,
    /// The message it answers.
    pub correlation_id: Option<MessageId<'a>>,
    /// Media type of its data sections.
    pub content_type: Option<&'a str>,
    /// How that is encoded.
    pub content_encoding: Option<&'a str>,
    /// When it expires, milliseconds since 1970.
    pub absolute_expiry_time: Option<i64>,
    /// When it was made, milliseconds since 1970.
    pub creation_time: Option<i64>,
    /// The group it belongs to.
    pub group_id: Option<&'a str>,
    /// Its place in the group, serial arithmetic.
    pub group_sequence: Option<u32>,
    /// The group of answers.
    pub reply_to_group_id: Option<&'a str>,
}

impl<'a> Properties<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "properties";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x73;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:properties:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            message_id: fields.message_id().map_err(at("properties", "message-id"))?,
            user_id: fields.binary().map_err(at("properties", "user-id"))?,
            to: fields.string().map_err(at("properties", "to"))?,
            subject: fields.string().map_err(at("properties", "subject"))?,
            reply_to: fields.string().map_err(at("properties", "reply-to"))?,
            correlation_id: fields.message_id().map_err(at("properties", "correlation-id"))?,
            content_type: fields.symbol().map_err(at("properties", "content-type"))?,
            content_encoding: fields.symbol().map_err(at("properties", "content-encoding"))?,
            absolute_expiry_time: fields.timestamp().map_err(at("properties", "absolute-expiry-time"))?,
            creation_time: fields.timestamp().map_err(at("properties", "creation-time"))?,
            group_id: fields.string().map_err(at("properties", "group-id"))?,
            group_sequence: fields.uint().map_err(at("properties", "group-sequence"))?,
            reply_to_group_id: fields.string().map_err(at("properties", "reply-to-group-id"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x73);
        w.option(self.message_id, encode::put_message_id);
        w.option(self.user_id, encode::put_binary);
        w.option(self.to, encode::put_string);
        w.option(self.subject, encode::put_string);
        w.option(self.reply_to, encode::put_string);
        w.option(self.correlation_id, encode::put_message_id);
        w.option(self.content_type, encode::put_symbol);
        w.option(self.content_encoding, encode::put_symbol);
        w.option(self.absolute_expiry_time, encode::put_timestamp);
        w.option(self.creation_time, encode::put_timestamp);
        w.option(self.group_id, encode::put_string);
        w.option(self.group_sequence, encode::put_uint);
        w.option(self.reply_to_group_id, encode::put_string);
        w.finish();
    }
}

/// How much of a delivery has arrived; not an outcome.
//= amqp10 3.4.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Sections wholly arrived.
    pub section_number: u32,
    /// Bytes of the next section that arrived.
    pub section_offset: u64,
}

impl Received {
    /// Its name in the standard.
    pub const NAME: &'static str = "received";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x23;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:received:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            section_number: fields.uint().and_then(required).map_err(at("received", "section-number"))?,
            section_offset: fields.ulong().and_then(required).map_err(at("received", "section-offset"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x23);
        encode::put_uint(w.field(), self.section_number);
        encode::put_ulong(w.field(), self.section_offset);
        w.finish();
    }
}

/// The receiver has the message and is responsible for it.
//= amqp10 3.4.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted;

impl Accepted {
    /// Its name in the standard.
    pub const NAME: &'static str = "accepted";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x24;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:accepted:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let fields = Fields::open(cursor, bounds, Self::NAME)?;
        fields.finish(Self::NAME)?;
        Ok(Self)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = FieldsWriter::begin(out, 0x24);
        w.finish();
    }
}

/// The message is invalid.
//= amqp10 3.4.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// Why.
    pub error: Option<Error<'a>>,
}

impl<'a> Rejected<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "rejected";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x25;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:rejected:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            error: match fields.composite().map_err(at("rejected", "error"))? {
                Some(cursor) => Some(Error::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x25);
        w.option(self.error, |out, value| value.encode(out));
        w.finish();
    }
}

/// The message was not and will not be dealt with; its delivery count stays.
//= amqp10 3.4.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released;

impl Released {
    /// Its name in the standard.
    pub const NAME: &'static str = "released";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x26;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:released:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Self, &'b [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'_>, bounds: Bounds) -> Result<Self, DecodeError> {
        let fields = Fields::open(cursor, bounds, Self::NAME)?;
        fields.finish(Self::NAME)?;
        Ok(Self)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let w = FieldsWriter::begin(out, 0x26);
        w.finish();
    }
}

/// The message was not dealt with, and is changed as told.
//= amqp10 3.4.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modified<'a> {
    /// The attempt counts as an unsuccessful one.
    pub delivery_failed: bool,
    /// Never again to this link.
    pub undeliverable_here: bool,
    /// Annotations that are merged into the message's.
    pub message_annotations: Option<Map<'a>>,
}

impl<'a> Modified<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "modified";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x27;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:modified:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            delivery_failed: fields.boolean().map_err(at("modified", "delivery-failed"))?.unwrap_or(false),
            undeliverable_here: fields.boolean().map_err(at("modified", "undeliverable-here"))?.unwrap_or(false),
            message_annotations: fields.map().map_err(at("modified", "message-annotations"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x27);
        w.unless(self.delivery_failed, false, encode::put_boolean);
        w.unless(self.undeliverable_here, false, encode::put_boolean);
        w.option(self.message_annotations, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}

/// Where messages of a link come from.
//= amqp10 3.5.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source<'a> {
    /// Address of the node.
    pub address: Option<&'a str>,
    /// What of the terminus is durable.
    pub durable: TerminusDurability,
    /// When it expires.
    pub expiry_policy: TerminusExpiryPolicy,
    /// Seconds it lives on after that event.
    pub timeout: u32,
    /// Asks for a node to be made.
    pub dynamic: bool,
    /// Properties of that node, keys are symbols.
    pub dynamic_node_properties: Option<Map<'a>>,
    /// Whether messages are moved or copied to the link.
    pub distribution_mode: Option<&'a str>,
    /// Filters: any key to a described value.
    pub filter: Option<Map<'a>>,
    /// Outcome of deliveries settled without one.
    pub default_outcome: Option<Outcome<'a>>,
    /// Outcomes that can be used, by descriptor.
    pub outcomes: Symbols<'a>,
    /// Extensions of the terminus.
    pub capabilities: Symbols<'a>,
}

impl<'a> Source<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "source";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x28;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:source:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            address: fields.string().map_err(at("source", "address"))?,
            durable: TerminusDurability::read(&mut fields)
                .map_err(at("source", "durable"))?
                .unwrap_or(TerminusDurability::None),
            expiry_policy: TerminusExpiryPolicy::read(&mut fields)
                .map_err(at("source", "expiry-policy"))?
                .unwrap_or(TerminusExpiryPolicy::SessionEnd),
            timeout: fields.uint().map_err(at("source", "timeout"))?.unwrap_or(0),
            dynamic: fields.boolean().map_err(at("source", "dynamic"))?.unwrap_or(false),
            dynamic_node_properties: fields.map().map_err(at("source", "dynamic-node-properties"))?,
            distribution_mode: fields.symbol().map_err(at("source", "distribution-mode"))?,
            filter: fields.map().map_err(at("source", "filter"))?,
            default_outcome: match fields.composite().map_err(at("source", "default-outcome"))? {
                Some(cursor) => Some(Outcome::read(cursor, bounds)?),
                None => None,
            },
            outcomes: fields.symbols().map_err(at("source", "outcomes"))?,
            capabilities: fields.symbols().map_err(at("source", "capabilities"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x28);
        w.option(self.address, encode::put_string);
        w.unless(self.durable, TerminusDurability::None, |out, value| value.encode(out));
        w.unless(self.expiry_policy, TerminusExpiryPolicy::SessionEnd, |out, value| value.encode(out));
        w.unless(self.timeout, 0, encode::put_uint);
        w.unless(self.dynamic, false, encode::put_boolean);
        w.option(self.dynamic_node_properties, |out, map| encode::put_map(out, &map));
        w.option(self.distribution_mode, encode::put_symbol);
        w.option(self.filter, |out, map| encode::put_map(out, &map));
        w.option(self.default_outcome, |out, value| value.encode(out));
        if self.outcomes.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.outcomes)
        }
        if self.capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.capabilities)
        }
        w.finish();
    }
}

/// Where messages of a link go to.
//= amqp10 3.5.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// Address of the node.
    pub address: Option<&'a str>,
    /// What of the terminus is durable.
    pub durable: TerminusDurability,
    /// When it expires.
    pub expiry_policy: TerminusExpiryPolicy,
    /// Seconds it lives on after that event.
    pub timeout: u32,
    /// Asks for a node to be made.
    pub dynamic: bool,
    /// Properties of that node, keys are symbols.
    pub dynamic_node_properties: Option<Map<'a>>,
    /// Extensions of the terminus.
    pub capabilities: Symbols<'a>,
}

impl<'a> Target<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "target";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x29;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:target:list";

    /// Decodes it from the start of `bytes`; returns what follows it too.
    ///
    /// # Errors
    /// What is wrong with the bytes, by field.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        described(cursor, Self::CODE, Self::SYMBOL, Self::NAME)?;
        Self::read_fields(cursor, bounds)
    }

    /// Reads the list behind the descriptor.
    pub(crate) fn read_fields(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(cursor, bounds, Self::NAME)?;
        let value = Self {
            address: fields.string().map_err(at("target", "address"))?,
            durable: TerminusDurability::read(&mut fields)
                .map_err(at("target", "durable"))?
                .unwrap_or(TerminusDurability::None),
            expiry_policy: TerminusExpiryPolicy::read(&mut fields)
                .map_err(at("target", "expiry-policy"))?
                .unwrap_or(TerminusExpiryPolicy::SessionEnd),
            timeout: fields.uint().map_err(at("target", "timeout"))?.unwrap_or(0),
            dynamic: fields.boolean().map_err(at("target", "dynamic"))?.unwrap_or(false),
            dynamic_node_properties: fields.map().map_err(at("target", "dynamic-node-properties"))?,
            capabilities: fields.symbols().map_err(at("target", "capabilities"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x29);
        w.option(self.address, encode::put_string);
        w.unless(self.durable, TerminusDurability::None, |out, value| value.encode(out));
        w.unless(self.expiry_policy, TerminusExpiryPolicy::SessionEnd, |out, value| value.encode(out));
        w.unless(self.timeout, 0, encode::put_uint);
        w.unless(self.dynamic, false, encode::put_boolean);
        w.option(self.dynamic_node_properties, |out, map| encode::put_map(out, &map));
        if self.capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.capabilities)
        }
        w.finish();
    }
}
