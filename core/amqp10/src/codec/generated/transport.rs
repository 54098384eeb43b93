//! The composite types of part 2 of the standard, transport. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use super::{ReceiverSettleMode, Role, SenderSettleMode, Source};
use crate::codec::cursor::{Bounds, Cursor};
use crate::codec::encode::{self, FieldsWriter};
use crate::codec::error::DecodeError;
use crate::codec::fields::{Fields, at, described, required};
use crate::codec::union::{AttachTarget, DeliveryState};
use crate::codec::value::{Map, Symbols};
use crate::limits::Limits;
use alloc::vec::Vec;

/// Opens a connection and tells its limits.
//= amqp10 2.7.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// Name of the container that speaks.
    pub container_id: &'a str,
    /// The virtual host that is meant.
    pub hostname: Option<&'a str>,
    /// Largest frame the speaker takes, in bytes.
    pub max_frame_size: u32,
    /// Highest channel number the speaker takes.
    pub channel_max: u16,
    /// Milliseconds of silence after which the speaker gives up.
    pub idle_time_out: Option<u32>,
    /// Locales the speaker can send texts in.
    pub outgoing_locales: Symbols<'a>,
    /// Locales the speaker would like texts in.
    pub incoming_locales: Symbols<'a>,
    /// Extensions the speaker has.
    pub offered_capabilities: Symbols<'a>,
    /// Extensions the speaker would use.
    pub desired_capabilities: Symbols<'a>,
    /// Properties of the connection, keys are symbols.
    pub properties: Option<Map<'a>>,
}

impl Default for Open<'_> {
    fn default() -> Self {
        Self {
            container_id: "",
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_time_out: None,
            outgoing_locales: Symbols::EMPTY,
            incoming_locales: Symbols::EMPTY,
            offered_capabilities: Symbols::EMPTY,
            desired_capabilities: Symbols::EMPTY,
            properties: None,
        }
    }
}

impl<'a> Open<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "open";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x10;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:open:list";

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
            container_id: fields.string().and_then(required).map_err(at("open", "container-id"))?,
            hostname: fields.string().map_err(at("open", "hostname"))?,
            max_frame_size: fields.uint().map_err(at("open", "max-frame-size"))?.unwrap_or(u32::MAX),
            channel_max: fields.ushort().map_err(at("open", "channel-max"))?.unwrap_or(u16::MAX),
            idle_time_out: fields.uint().map_err(at("open", "idle-time-out"))?,
            outgoing_locales: fields.symbols().map_err(at("open", "outgoing-locales"))?,
            incoming_locales: fields.symbols().map_err(at("open", "incoming-locales"))?,
            offered_capabilities: fields.symbols().map_err(at("open", "offered-capabilities"))?,
            desired_capabilities: fields.symbols().map_err(at("open", "desired-capabilities"))?,
            properties: fields.map().map_err(at("open", "properties"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x10);
        encode::put_string(w.field(), self.container_id);
        w.option(self.hostname, encode::put_string);
        w.unless(self.max_frame_size, u32::MAX, encode::put_uint);
        w.unless(self.channel_max, u16::MAX, encode::put_ushort);
        w.option(self.idle_time_out, encode::put_uint);
        if self.outgoing_locales.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.outgoing_locales)
        }
        if self.incoming_locales.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.incoming_locales)
        }
        if self.offered_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.offered_capabilities)
        }
        if self.desired_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.desired_capabilities)
        }
        w.option(self.properties, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}

/// Begins a session on a channel, or answers a begin.
//= amqp10 2.7.2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin<'a> {
    /// In an answer: the channel of the begin that it answers.
    pub remote_channel: Option<u16>,
    /// Transfer id of the next transfer frame the speaker sends.
    pub next_outgoing_id: u32,
    /// Transfer frames the speaker can take now.
    pub incoming_window: u32,
    /// Transfer frames the speaker may want to send now.
    pub outgoing_window: u32,
    /// Highest handle the speaker takes.
    pub handle_max: u32,
    /// Extensions the speaker has.
    pub offered_capabilities: Symbols<'a>,
    /// Extensions the speaker would use.
    pub desired_capabilities: Symbols<'a>,
    /// Properties of the session, keys are symbols.
    pub properties: Option<Map<'a>>,
}

impl Default for Begin<'_> {
    fn default() -> Self {
        Self {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: 0,
            outgoing_window: 0,
            handle_max: u32::MAX,
            offered_capabilities: Symbols::EMPTY,
            desired_capabilities: Symbols::EMPTY,
            properties: None,
        }
    }
}

impl<'a> Begin<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "begin";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x11;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:begin:list";

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
            remote_channel: fields.ushort().map_err(at("begin", "remote-channel"))?,
            next_outgoing_id: fields.uint().and_then(required).map_err(at("begin", "next-outgoing-id"))?,
            incoming_window: fields.uint().and_then(required).map_err(at("begin", "incoming-window"))?,
            outgoing_window: fields.uint().and_then(required).map_err(at("begin", "outgoing-window"))?,
            handle_max: fields.uint().map_err(at("begin", "handle-max"))?.unwrap_or(u32::MAX),
            offered_capabilities: fields.symbols().map_err(at("begin", "offered-capabilities"))?,
            desired_capabilities: fields.symbols().map_err(at("begin", "desired-capabilities"))?,
            properties: fields.map().map_err(at("begin", "properties"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x11);
        w.option(self.remote_channel, encode::put_ushort);
        encode::put_uint(w.field(), self.next_outgoing_id);
        encode::put_uint(w.field(), self.incoming_window);
        encode::put_uint(w.field(), self.outgoing_window);
        w.unless(self.handle_max, u32::MAX, encode::put_uint);
        if self.offered_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.offered_capabilities)
        }
        if self.desired_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.desired_capabilities)
        }
        w.option(self.properties, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}

/// Attaches a link to a session, or answers an attach.
//= amqp10 2.7.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attach<'a> {
    /// Name of the link.
    pub name: &'a str,
    /// Number of the link in the speaker's direction of the session.
    pub handle: u32,
    /// Which end of the link the speaker is.
    pub role: Role,
    /// When the sender settles.
    pub snd_settle_mode: SenderSettleMode,
    /// When the receiver settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Where messages come from; null: none, or a look-up by name.
    pub source: Option<Source<'a>>,
    /// Where messages go to; null: none, or a look-up by name.
    pub target: Option<AttachTarget<'a>>,
    /// Unsettled deliveries the speaker holds: tag to state.
    pub unsettled: Option<Map<'a>>,
    /// The map above is not all of it.
    pub incomplete_unsettled: bool,
    /// From a sender: where its delivery-count starts.
    pub initial_delivery_count: Option<u32>,
    /// Largest message the speaker takes, in bytes; 0 and null: any.
    pub max_message_size: Option<u64>,
    /// Extensions the speaker has.
    pub offered_capabilities: Symbols<'a>,
    /// Extensions the speaker would use.
    pub desired_capabilities: Symbols<'a>,
    /// Properties of the link, keys are symbols.
    pub properties: Option<Map<'a>>,
}

impl<'a> Attach<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "attach";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x12;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:attach:list";

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
            name: fields.string().and_then(required).map_err(at("attach", "name"))?,
            handle: fields.uint().and_then(required).map_err(at("attach", "handle"))?,
            role: Role::read(&mut fields).and_then(required).map_err(at("attach", "role"))?,
            snd_settle_mode: SenderSettleMode::read(&mut fields)
                .map_err(at("attach", "snd-settle-mode"))?
                .unwrap_or(SenderSettleMode::Mixed),
            rcv_settle_mode: ReceiverSettleMode::read(&mut fields)
                .map_err(at("attach", "rcv-settle-mode"))?
                .unwrap_or(ReceiverSettleMode::First),
            source: match fields.composite().map_err(at("attach", "source"))? {
                Some(cursor) => Some(Source::read(cursor, bounds)?),
                None => None,
            },
            target: match fields.composite().map_err(at("attach", "target"))? {
                Some(cursor) => Some(AttachTarget::read(cursor, bounds)?),
                None => None,
            },
            unsettled: fields.map().map_err(at("attach", "unsettled"))?,
            incomplete_unsettled: fields.boolean().map_err(at("attach", "incomplete-unsettled"))?.unwrap_or(false),
            initial_delivery_count: fields.uint().map_err(at("attach", "initial-delivery-count"))?,
            max_message_size: fields.ulong().map_err(at("attach", "max-message-size"))?,
            offered_capabilities: fields.symbols().map_err(at("attach", "offered-capabilities"))?,
            desired_capabilities: fields.symbols().map_err(at("attach", "desired-capabilities"))?,
            properties: fields.map().map_err(at("attach", "properties"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x12);
        encode::put_string(w.field(), self.name);
        encode::put_uint(w.field(), self.handle);
        self.role.encode(w.field());
        w.unless(self.snd_settle_mode, SenderSettleMode::Mixed, |out, value| value.encode(out));
        w.unless(self.rcv_settle_mode, ReceiverSettleMode::First, |out, value| value.encode(out));
        w.option(self.source, |out, value| value.encode(out));
        w.option(self.target, |out, value| value.encode(out));
        w.option(self.unsettled, |out, map| encode::put_map(out, &map));
        w.unless(self.incomplete_unsettled, false, encode::put_boolean);
        w.option(self.initial_delivery_count, encode::put_uint);
        w.option(self.max_message_size, encode::put_ulong);
        if self.offered_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.offered_capabilities)
        }
        if self.desired_capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.desired_capabilities)
        }
        w.option(self.properties, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}

/// Tells the state of a session and perhaps of one of its links.
//= amqp10 2.7.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow<'a> {
    /// Transfer id the speaker expects next; null: it has not seen the peer's begin.
    pub next_incoming_id: Option<u32>,
    /// Transfer frames the speaker can take now.
    pub incoming_window: u32,
    /// Transfer id of the next transfer frame the speaker sends.
    pub next_outgoing_id: u32,
    /// Transfer frames the speaker may want to send now.
    pub outgoing_window: u32,
    /// The link the fields below speak of; null: none.
    pub handle: Option<u32>,
    /// Deliveries sent on the link, as the speaker knows it.
    pub delivery_count: Option<u32>,
    /// Deliveries the receiver takes beyond delivery-count.
    pub link_credit: Option<u32>,
    /// Messages the sender has waiting.
    pub available: Option<u32>,
    /// The sender uses up all credit now.
    pub drain: bool,
    /// The peer answers with a flow of its own.
    pub echo: bool,
    /// Properties of the link state, keys are symbols.
    pub properties: Option<Map<'a>>,
}

impl<'a> Flow<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "flow";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x13;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:flow:list";

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
            next_incoming_id: fields.uint().map_err(at("flow", "next-incoming-id"))?,
            incoming_window: fields.uint().and_then(required).map_err(at("flow", "incoming-window"))?,
            next_outgoing_id: fields.uint().and_then(required).map_err(at("flow", "next-outgoing-id"))?,
            outgoing_window: fields.uint().and_then(required).map_err(at("flow", "outgoing-window"))?,
            handle: fields.uint().map_err(at("flow", "handle"))?,
            delivery_count: fields.uint().map_err(at("flow", "delivery-count"))?,
            link_credit: fields.uint().map_err(at("flow", "link-credit"))?,
            available: fields.uint().map_err(at("flow", "available"))?,
            drain: fields.boolean().map_err(at("flow", "drain"))?.unwrap_or(false),
            echo: fields.boolean().map_err(at("flow", "echo"))?.unwrap_or(false),
            properties: fields.map().map_err(at("flow", "properties"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x13);
        w.option(self.next_incoming_id, encode::put_uint);
        encode::put_uint(w.field(), self.incoming_window);
        encode::put_uint(w.field(), self.next_outgoing_id);
        encode::put_uint(w.field(), self.outgoing_window);
        w.option(self.handle, encode::put_uint);
        w.option(self.delivery_count, encode::put_uint);
        w.option(self.link_credit, encode::put_uint);
        w.option(self.available, encode::put_uint);
        w.unless(self.drain, false, encode::put_boolean);
        w.unless(self.echo, false, encode::put_boolean);
        w.option(self.properties, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}

/// Carries a message or a part of one; the payload follows it in the frame.
//= amqp10 2.7.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The link the delivery is on.
    pub handle: u32,
    /// Number of the delivery in the session; needed in its first frame.
    pub delivery_id: Option<u32>,
    /// Name of the delivery on the link; needed in its first frame.
    pub delivery_tag: Option<&'a [u8]>,
    /// Format of the payload; 0 is that of part 3.
    pub message_format: Option<u32>,
    /// The sender has settled; null: as in earlier frames of the delivery.
    pub settled: Option<bool>,
    /// More frames of this delivery follow.
    pub more: bool,
    /// Settle mode of this delivery, where the link leaves it open.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// State of the delivery at the sender.
    pub state: Option<DeliveryState<'a>>,
    /// Takes up a delivery of before the link was detached.
    pub resume: bool,
    /// The delivery is given up, its payload void.
    pub aborted: bool,
    /// The peer may wait with its answer.
    pub batchable: bool,
}

impl<'a> Transfer<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "transfer";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x14;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:transfer:list";

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
            handle: fields.uint().and_then(required).map_err(at("transfer", "handle"))?,
            delivery_id: fields.uint().map_err(at("transfer", "delivery-id"))?,
            delivery_tag: fields.binary().map_err(at("transfer", "delivery-tag"))?,
            message_format: fields.uint().map_err(at("transfer", "message-format"))?,
            settled: fields.boolean().map_err(at("transfer", "settled"))?,
            more: fields.boolean().map_err(at("transfer", "more"))?.unwrap_or(false),
            rcv_settle_mode: ReceiverSettleMode::read(&mut fields).map_err(at("transfer", "rcv-settle-mode"))?,
            state: match fields.composite().map_err(at("transfer", "state"))? {
                Some(cursor) => Some(DeliveryState::read(cursor, bounds)?),
                None => None,
            },
            resume: fields.boolean().map_err(at("transfer", "resume"))?.unwrap_or(false),
            aborted: fields.boolean().map_err(at("transfer", "aborted"))?.unwrap_or(false),
            batchable: fields.boolean().map_err(at("transfer", "batchable"))?.unwrap_or(false),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x14);
        encode::put_uint(w.field(), self.handle);
        w.option(self.delivery_id, encode::put_uint);
        w.option(self.delivery_tag, encode::put_binary);
        w.option(self.message_format, encode::put_uint);
        w.option(self.settled, encode::put_boolean);
        w.unless(self.more, false, encode::put_boolean);
        w.option(self.rcv_settle_mode, |out, value| value.encode(out));
        w.option(self.state, |out, value| value.encode(out));
        w.unless(self.resume, false, encode::put_boolean);
        w.unless(self.aborted, false, encode::put_boolean);
        w.unless(self.batchable, false, encode::put_boolean);
        w.finish();
    }
}

/// Tells the state of a range of deliveries.
//= amqp10 2.7.6
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disposition<'a> {
    /// Which end of the links the speaker is.
    pub role: Role,
    /// First delivery id of the range.
    pub first: u32,
    /// Last delivery id of the range; null: as first.
    pub last: Option<u32>,
    /// The speaker has settled.
    pub settled: bool,
    /// State of the deliveries at the speaker.
    pub state: Option<DeliveryState<'a>>,
    /// The peer may wait with its answer.
    pub batchable: bool,
}

impl<'a> Disposition<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "disposition";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x15;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:disposition:list";

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
            role: Role::read(&mut fields).and_then(required).map_err(at("disposition", "role"))?,
            first: fields.uint().and_then(required).map_err(at("disposition", "first"))?,
            last: fields.uint().map_err(at("disposition", "last"))?,
            settled: fields.boolean().map_err(at("disposition", "settled"))?.unwrap_or(false),
            state: match fields.composite().map_err(at("disposition", "state"))? {
                Some(cursor) => Some(DeliveryState::read(cursor, bounds)?),
                None => None,
            },
            batchable: fields.boolean().map_err(at("disposition", "batchable"))?.unwrap_or(false),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x15);
        self.role.encode(w.field());
        encode::put_uint(w.field(), self.first);
        w.option(self.last, encode::put_uint);
        w.unless(self.settled, false, encode::put_boolean);
        w.option(self.state, |out, value| value.encode(out));
        w.unless(self.batchable, false, encode::put_boolean);
        w.finish();
    }
}

/// Detaches a link from its session.
//= amqp10 2.7.7
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detach<'a> {
    /// The link.
    pub handle: u32,
    /// The link ends for good, its terminus with it.
    pub closed: bool,
    /// Why.
    pub error: Option<Error<'a>>,
}

impl<'a> Detach<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "detach";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x16;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:detach:list";

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
            handle: fields.uint().and_then(required).map_err(at("detach", "handle"))?,
            closed: fields.boolean().map_err(at("detach", "closed"))?.unwrap_or(false),
            error: match fields.composite().map_err(at("detach", "error"))? {
                Some(cursor) => Some(Error::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x16);
        encode::put_uint(w.field(), self.handle);
        w.unless(self.closed, false, encode::put_boolean);
        w.option(self.error, |out, value| value.encode(out));
        w.finish();
    }
}

/// Ends a session.
//= amqp10 2.7.8
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End<'a> {
    /// Why.
    pub error: Option<Error<'a>>,
}

impl<'a> End<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "end";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x17;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:end:list";

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
            error: match fields.composite().map_err(at("end", "error"))? {
                Some(cursor) => Some(Error::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x17);
        w.option(self.error, |out, value| value.encode(out));
        w.finish();
    }
}

/// Closes a connection.
//= amqp10 2.7.9
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Close<'a> {
    /// Why.
    pub error: Option<Error<'a>>,
}

impl<'a> Close<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "close";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x18;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:close:list";

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
            error: match fields.composite().map_err(at("close", "error"))? {
                Some(cursor) => Some(Error::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x18);
        w.option(self.error, |out, value| value.encode(out));
        w.finish();
    }
}

/// An error: a condition for programs, a sentence for people.
//= amqp10 2.8.14
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Error<'a> {
    /// What went wrong, as a symbol.
    pub condition: &'a str,
    /// What went wrong, as a sentence.
    pub description: Option<&'a str>,
    /// Further particulars, keys are symbols.
    pub info: Option<Map<'a>>,
}

impl<'a> Error<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "error";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x1d;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:error:list";

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
            condition: fields.symbol().and_then(required).map_err(at("error", "condition"))?,
            description: fields.string().map_err(at("error", "description"))?,
            info: fields.map().map_err(at("error", "info"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x1d);
        encode::put_symbol(w.field(), self.condition);
        w.option(self.description, encode::put_string);
        w.option(self.info, |out, map| encode::put_map(out, &map));
        w.finish();
    }
}
