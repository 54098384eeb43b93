//! The composite and restricted types of the standard. Made by `cargo xtask codegen` from
//! `standard.toml`: change that, not this.

use alloc::vec::Vec;

use super::cursor::{Bounds, Cursor};
use super::encode::{self, FieldsWriter};
use super::error::{DecodeError, Fault};
use super::fields::{Fields, at, described, performative_code, required, required_symbols};
use super::union::{AttachTarget, DeliveryState, MessageId, Outcome};
use super::value::{Map, Symbols, Value};
use crate::limits::Limits;

/// Which end of a link speaks.
//= amqp10 2.8.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The end that sends messages.
    #[default]
    Sender,
    /// The end that receives messages.
    Receiver,
}

impl Role {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> bool {
        match self {
            Self::Sender => false,
            Self::Receiver => true,
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.boolean()? {
            None => None,
            Some(false) => Some(Self::Sender),
            Some(true) => Some(Self::Receiver),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_boolean(out, self.wire())
    }
}

/// When the sender of a link settles.
//= amqp10 2.8.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderSettleMode {
    /// Every delivery is sent unsettled.
    Unsettled,
    /// Every delivery is sent settled.
    Settled,
    /// Each delivery as the sender likes.
    #[default]
    Mixed,
}

impl SenderSettleMode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::Unsettled),
            Some(1) => Some(Self::Settled),
            Some(2) => Some(Self::Mixed),
            Some(_) => return Err(Fault::BadChoice { expected: "sender-settle-mode" }),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}

/// When the receiver of a link settles.
//= amqp10 2.8.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiverSettleMode {
    /// The receiver settles as soon as it has an outcome.
    #[default]
    First,
    /// The receiver settles after the sender has.
    Second,
}

impl ReceiverSettleMode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::First),
            Some(1) => Some(Self::Second),
            Some(_) => return Err(Fault::BadChoice { expected: "receiver-settle-mode" }),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}

/// What of a terminus outlives its container.
//= amqp10 3.5.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminusDurability {
    /// Nothing.
    #[default]
    None,
    /// That the terminus exists, and how it is configured.
    Configuration,
    /// The unsettled deliveries too.
    UnsettledState,
}

impl TerminusDurability {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Configuration => 1,
            Self::UnsettledState => 2,
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.uint()? {
            None => None,
            Some(0) => Some(Self::None),
            Some(1) => Some(Self::Configuration),
            Some(2) => Some(Self::UnsettledState),
            Some(_) => return Err(Fault::BadChoice { expected: "terminus-durability" }),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_uint(out, self.wire())
    }
}

/// From which event on a terminus counts down to its expiry.
//= amqp10 3.5.6
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminusExpiryPolicy {
    /// The link detached.
    LinkDetach,
    /// The session ended.
    #[default]
    SessionEnd,
    /// The connection closed.
    ConnectionClose,
    /// Never: it stays until it is closed.
    Never,
}

impl TerminusExpiryPolicy {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> &'static str {
        match self {
            Self::LinkDetach => "link-detach",
            Self::SessionEnd => "session-end",
            Self::ConnectionClose => "connection-close",
            Self::Never => "never",
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.symbol()? {
            None => None,
            Some("link-detach") => Some(Self::LinkDetach),
            Some("session-end") => Some(Self::SessionEnd),
            Some("connection-close") => Some(Self::ConnectionClose),
            Some("never") => Some(Self::Never),
            Some(_) => return Err(Fault::BadChoice { expected: "terminus-expiry-policy" }),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_symbol(out, self.wire())
    }
}

/// How a SASL exchange ended.
//= amqp10 5.3.3.6
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaslCode {
    /// Authenticated.
    #[default]
    Ok,
    /// Refused: the credentials did not do.
    Auth,
    /// A fault of the system.
    Sys,
    /// A fault of the system that will not go away by itself.
    SysPerm,
    /// A fault of the system that may go away.
    SysTemp,
}

impl SaslCode {
    /// The value on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::Sys => 2,
            Self::SysPerm => 3,
            Self::SysTemp => 4,
        }
    }

    #[inline]
    fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, Fault> {
        Ok(match fields.ubyte()? {
            None => None,
            Some(0) => Some(Self::Ok),
            Some(1) => Some(Self::Auth),
            Some(2) => Some(Self::Sys),
            Some(3) => Some(Self::SysPerm),
            Some(4) => Some(Self::SysTemp),
            Some(_) => return Err(Fault::BadChoice { expected: "sasl-code" }),
        })
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        encode::put_ubyte(out, self.wire())
    }
}

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

/// The target of a link that controls transactions.
//= amqp10 4.5.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coordinator<'a> {
    /// What the coordinator can do, or is asked for.
    pub capabilities: Symbols<'a>,
}

impl<'a> Coordinator<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "coordinator";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x30;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:coordinator:list";

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
        let value = Self { capabilities: fields.symbols().map_err(at("coordinator", "capabilities"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x30);
        if self.capabilities.is_empty() {
            w.null()
        } else {
            encode::put_symbols(w.field(), &self.capabilities)
        }
        w.finish();
    }
}

/// Body of a message that begins a transaction.
//= amqp10 4.5.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declare<'a> {
    /// Name of a global transaction.
    pub global_id: Option<Value<'a>>,
}

impl<'a> Declare<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "declare";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x31;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:declare:list";

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
        let value = Self { global_id: fields.value().map_err(at("declare", "global-id"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x31);
        w.option(self.global_id, |out, value| encode::put_value(out, &value));
        w.finish();
    }
}

/// Body of a message that ends a transaction.
//= amqp10 4.5.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discharge<'a> {
    /// The transaction.
    pub txn_id: &'a [u8],
    /// Roll back.
    pub fail: bool,
}

impl<'a> Discharge<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "discharge";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x32;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:discharge:list";

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
            txn_id: fields.binary().and_then(required).map_err(at("discharge", "txn-id"))?,
            fail: fields.boolean().map_err(at("discharge", "fail"))?.unwrap_or(false),
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x32);
        encode::put_binary(w.field(), self.txn_id);
        w.unless(self.fail, false, encode::put_boolean);
        w.finish();
    }
}

/// Outcome of a declare.
//= amqp10 4.5.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared<'a> {
    /// The transaction that was begun.
    pub txn_id: &'a [u8],
}

impl<'a> Declared<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "declared";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x33;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:declared:list";

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
        let value = Self { txn_id: fields.binary().and_then(required).map_err(at("declared", "txn-id"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x33);
        encode::put_binary(w.field(), self.txn_id);
        w.finish();
    }
}

/// State of a delivery that belongs to a transaction.
//= amqp10 4.5.8
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionalState<'a> {
    /// The transaction.
    pub txn_id: &'a [u8],
    /// The outcome, once the transaction commits.
    pub outcome: Option<Outcome<'a>>,
}

impl<'a> TransactionalState<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "transactional-state";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x34;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:transactional-state:list";

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
            txn_id: fields.binary().and_then(required).map_err(at("transactional-state", "txn-id"))?,
            outcome: match fields.composite().map_err(at("transactional-state", "outcome"))? {
                Some(cursor) => Some(Outcome::read(cursor, bounds)?),
                None => None,
            },
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x34);
        encode::put_binary(w.field(), self.txn_id);
        w.option(self.outcome, |out, value| value.encode(out));
        w.finish();
    }
}

/// The server's mechanisms, strongest first.
//= amqp10 5.3.3.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslMechanisms<'a> {
    /// The mechanisms.
    pub sasl_server_mechanisms: Symbols<'a>,
}

impl<'a> SaslMechanisms<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-mechanisms";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x40;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-mechanisms:list";

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
            sasl_server_mechanisms: fields
                .symbols()
                .and_then(required_symbols)
                .map_err(at("sasl-mechanisms", "sasl-server-mechanisms"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x40);
        encode::put_symbols(w.field(), &self.sasl_server_mechanisms);
        w.finish();
    }
}

/// The client's choice of a mechanism.
//= amqp10 5.3.3.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslInit<'a> {
    /// The mechanism.
    pub mechanism: &'a str,
    /// First response.
    pub initial_response: Option<&'a [u8]>,
    /// The virtual host that is meant.
    pub hostname: Option<&'a str>,
}

impl<'a> SaslInit<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-init";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x41;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-init:list";

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
            mechanism: fields.symbol().and_then(required).map_err(at("sasl-init", "mechanism"))?,
            initial_response: fields.binary().map_err(at("sasl-init", "initial-response"))?,
            hostname: fields.string().map_err(at("sasl-init", "hostname"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x41);
        encode::put_symbol(w.field(), self.mechanism);
        w.option(self.initial_response, encode::put_binary);
        w.option(self.hostname, encode::put_string);
        w.finish();
    }
}

/// A challenge of the server.
//= amqp10 5.3.3.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslChallenge<'a> {
    /// The challenge, opaque here.
    pub challenge: &'a [u8],
}

impl<'a> SaslChallenge<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-challenge";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x42;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-challenge:list";

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
        let value = Self { challenge: fields.binary().and_then(required).map_err(at("sasl-challenge", "challenge"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x42);
        encode::put_binary(w.field(), self.challenge);
        w.finish();
    }
}

/// A response of the client.
//= amqp10 5.3.3.4
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslResponse<'a> {
    /// The response, opaque here.
    pub response: &'a [u8],
}

impl<'a> SaslResponse<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-response";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x43;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-response:list";

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
        let value = Self { response: fields.binary().and_then(required).map_err(at("sasl-response", "response"))? };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x43);
        encode::put_binary(w.field(), self.response);
        w.finish();
    }
}

/// The end of the SASL exchange.
//= amqp10 5.3.3.5
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaslOutcome<'a> {
    /// How it ended.
    pub code: SaslCode,
    /// Further data of the mechanism.
    pub additional_data: Option<&'a [u8]>,
}

impl<'a> SaslOutcome<'a> {
    /// Its name in the standard.
    pub const NAME: &'static str = "sasl-outcome";
    /// Its numeric descriptor.
    pub const CODE: u64 = 0x44;
    /// Its symbolic descriptor.
    pub const SYMBOL: &'static str = "amqp:sasl-outcome:list";

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
            code: SaslCode::read(&mut fields).and_then(required).map_err(at("sasl-outcome", "code"))?,
            additional_data: fields.binary().map_err(at("sasl-outcome", "additional-data"))?,
        };
        fields.finish(Self::NAME)?;
        Ok(value)
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = FieldsWriter::begin(out, 0x44);
        self.code.encode(w.field());
        w.option(self.additional_data, encode::put_binary);
        w.finish();
    }
}

/// The body of an AMQP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "decoding must not allocate; the engine matches it where it is made")]
pub enum Performative<'a> {
    /// Opens a connection and tells its limits.
    Open(Open<'a>),
    /// Begins a session on a channel, or answers a begin.
    Begin(Begin<'a>),
    /// Attaches a link to a session, or answers an attach.
    Attach(Attach<'a>),
    /// Tells the state of a session and perhaps of one of its links.
    Flow(Flow<'a>),
    /// Carries a message or a part of one; the payload follows it in the frame.
    Transfer(Transfer<'a>),
    /// Tells the state of a range of deliveries.
    Disposition(Disposition<'a>),
    /// Detaches a link from its session.
    Detach(Detach<'a>),
    /// Ends a session.
    End(End<'a>),
    /// Closes a connection.
    Close(Close<'a>),
}

impl<'a> Performative<'a> {
    /// Its name in the standard.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => Open::NAME,
            Self::Begin(_) => Begin::NAME,
            Self::Attach(_) => Attach::NAME,
            Self::Flow(_) => Flow::NAME,
            Self::Transfer(_) => Transfer::NAME,
            Self::Disposition(_) => Disposition::NAME,
            Self::Detach(_) => Detach::NAME,
            Self::End(_) => End::NAME,
            Self::Close(_) => Close::NAME,
        }
    }

    /// Reads it by its descriptor.
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        Ok(match performative_code(cursor, Self::code_of)? {
            Some(Open::CODE) => Self::Open(Open::read_fields(cursor, bounds)?),
            Some(Begin::CODE) => Self::Begin(Begin::read_fields(cursor, bounds)?),
            Some(Attach::CODE) => Self::Attach(Attach::read_fields(cursor, bounds)?),
            Some(Flow::CODE) => Self::Flow(Flow::read_fields(cursor, bounds)?),
            Some(Transfer::CODE) => Self::Transfer(Transfer::read_fields(cursor, bounds)?),
            Some(Disposition::CODE) => Self::Disposition(Disposition::read_fields(cursor, bounds)?),
            Some(Detach::CODE) => Self::Detach(Detach::read_fields(cursor, bounds)?),
            Some(End::CODE) => Self::End(End::read_fields(cursor, bounds)?),
            Some(Close::CODE) => Self::Close(Close::read_fields(cursor, bounds)?),
            code => return Err(DecodeError::UnknownPerformative { code }),
        })
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open(value) => value.encode(out),
            Self::Begin(value) => value.encode(out),
            Self::Attach(value) => value.encode(out),
            Self::Flow(value) => value.encode(out),
            Self::Transfer(value) => value.encode(out),
            Self::Disposition(value) => value.encode(out),
            Self::Detach(value) => value.encode(out),
            Self::End(value) => value.encode(out),
            Self::Close(value) => value.encode(out),
        }
    }
}

impl<'a> From<Open<'a>> for Performative<'a> {
    fn from(value: Open<'a>) -> Self {
        Self::Open(value)
    }
}

impl<'a> From<Begin<'a>> for Performative<'a> {
    fn from(value: Begin<'a>) -> Self {
        Self::Begin(value)
    }
}

impl<'a> From<Attach<'a>> for Performative<'a> {
    fn from(value: Attach<'a>) -> Self {
        Self::Attach(value)
    }
}

impl<'a> From<Flow<'a>> for Performative<'a> {
    fn from(value: Flow<'a>) -> Self {
        Self::Flow(value)
    }
}

impl<'a> From<Transfer<'a>> for Performative<'a> {
    fn from(value: Transfer<'a>) -> Self {
        Self::Transfer(value)
    }
}

impl<'a> From<Disposition<'a>> for Performative<'a> {
    fn from(value: Disposition<'a>) -> Self {
        Self::Disposition(value)
    }
}

impl<'a> From<Detach<'a>> for Performative<'a> {
    fn from(value: Detach<'a>) -> Self {
        Self::Detach(value)
    }
}

impl<'a> From<End<'a>> for Performative<'a> {
    fn from(value: End<'a>) -> Self {
        Self::End(value)
    }
}

impl<'a> From<Close<'a>> for Performative<'a> {
    fn from(value: Close<'a>) -> Self {
        Self::Close(value)
    }
}

impl Performative<'_> {
    /// The numeric descriptor of a symbolic one.
    #[must_use]
    pub fn code_of(symbol: &str) -> Option<u64> {
        Some(match symbol {
            Open::SYMBOL => Open::CODE,
            Begin::SYMBOL => Begin::CODE,
            Attach::SYMBOL => Attach::CODE,
            Flow::SYMBOL => Flow::CODE,
            Transfer::SYMBOL => Transfer::CODE,
            Disposition::SYMBOL => Disposition::CODE,
            Detach::SYMBOL => Detach::CODE,
            End::SYMBOL => End::CODE,
            Close::SYMBOL => Close::CODE,
            _ => return None,
        })
    }
}

/// The body of a SASL frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the standard's names of types, as everywhere")]
pub enum SaslPerformative<'a> {
    /// The server's mechanisms, strongest first.
    SaslMechanisms(SaslMechanisms<'a>),
    /// The client's choice of a mechanism.
    SaslInit(SaslInit<'a>),
    /// A challenge of the server.
    SaslChallenge(SaslChallenge<'a>),
    /// A response of the client.
    SaslResponse(SaslResponse<'a>),
    /// The end of the SASL exchange.
    SaslOutcome(SaslOutcome<'a>),
}

impl<'a> SaslPerformative<'a> {
    /// Its name in the standard.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SaslMechanisms(_) => SaslMechanisms::NAME,
            Self::SaslInit(_) => SaslInit::NAME,
            Self::SaslChallenge(_) => SaslChallenge::NAME,
            Self::SaslResponse(_) => SaslResponse::NAME,
            Self::SaslOutcome(_) => SaslOutcome::NAME,
        }
    }

    /// Reads it by its descriptor.
    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, DecodeError> {
        Ok(match performative_code(cursor, Self::code_of)? {
            Some(SaslMechanisms::CODE) => Self::SaslMechanisms(SaslMechanisms::read_fields(cursor, bounds)?),
            Some(SaslInit::CODE) => Self::SaslInit(SaslInit::read_fields(cursor, bounds)?),
            Some(SaslChallenge::CODE) => Self::SaslChallenge(SaslChallenge::read_fields(cursor, bounds)?),
            Some(SaslResponse::CODE) => Self::SaslResponse(SaslResponse::read_fields(cursor, bounds)?),
            Some(SaslOutcome::CODE) => Self::SaslOutcome(SaslOutcome::read_fields(cursor, bounds)?),
            code => return Err(DecodeError::UnknownPerformative { code }),
        })
    }

    /// Appends it to `out`, in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::SaslMechanisms(value) => value.encode(out),
            Self::SaslInit(value) => value.encode(out),
            Self::SaslChallenge(value) => value.encode(out),
            Self::SaslResponse(value) => value.encode(out),
            Self::SaslOutcome(value) => value.encode(out),
        }
    }
}

impl<'a> From<SaslMechanisms<'a>> for SaslPerformative<'a> {
    fn from(value: SaslMechanisms<'a>) -> Self {
        Self::SaslMechanisms(value)
    }
}

impl<'a> From<SaslInit<'a>> for SaslPerformative<'a> {
    fn from(value: SaslInit<'a>) -> Self {
        Self::SaslInit(value)
    }
}

impl<'a> From<SaslChallenge<'a>> for SaslPerformative<'a> {
    fn from(value: SaslChallenge<'a>) -> Self {
        Self::SaslChallenge(value)
    }
}

impl<'a> From<SaslResponse<'a>> for SaslPerformative<'a> {
    fn from(value: SaslResponse<'a>) -> Self {
        Self::SaslResponse(value)
    }
}

impl<'a> From<SaslOutcome<'a>> for SaslPerformative<'a> {
    fn from(value: SaslOutcome<'a>) -> Self {
        Self::SaslOutcome(value)
    }
}

impl SaslPerformative<'_> {
    /// The numeric descriptor of a symbolic one.
    #[must_use]
    pub fn code_of(symbol: &str) -> Option<u64> {
        Some(match symbol {
            SaslMechanisms::SYMBOL => SaslMechanisms::CODE,
            SaslInit::SYMBOL => SaslInit::CODE,
            SaslChallenge::SYMBOL => SaslChallenge::CODE,
            SaslResponse::SYMBOL => SaslResponse::CODE,
            SaslOutcome::SYMBOL => SaslOutcome::CODE,
            _ => return None,
        })
    }
}
