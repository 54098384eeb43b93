//! What the caller tells the engine: configuration, terms of a link, parameters of a send, and what is wrong with a
//! command. Shapes only.

use alloc::sync::Arc;
use core::fmt;

use bytes::Bytes;

use crate::codec::{AttachTarget, DeliveryState, Map, ReceiverSettleMode, SenderSettleMode, Source, Symbols};
use crate::limits::Limits;

/// How a server's connection behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The `container-id` of an `open` that the engine must send by itself, when the peer fails before the caller's.
    pub container_id: Arc<str>,
    /// Limits on what the peer can make us hold; `frame_bytes`, `channel_max` and `handle_max` are told to it.
    pub limits: Limits,
    /// The `idle-time-out` we tell, in ms; 0 = none. The peer is cut after twice as long without a byte.
    pub idle_timeout_ms: u32,
    /// Whether a client may leave SASL out: only where ANONYMOUS is allowed.
    pub allow_bare: bool,
    /// Transfer frames that the peer may send per session before we say more: our `incoming-window`.
    pub incoming_window: u32,
    /// How long the first eight bytes may take, in ms.
    pub header_ms: u32,
    /// How long the login may take after that, in ms (rounds of ours included).
    pub sasl_ms: u32,
    /// How long the `open` may take after that, in ms.
    pub open_ms: u32,
    /// How long the peer may take to answer our `close`, in ms.
    pub close_ms: u32,
    /// A secret of this process: peers cannot build tags that collide.
    pub seed: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            container_id: Arc::from(""),
            limits: Limits::default(),
            idle_timeout_ms: 60_000,
            allow_bare: false,
            incoming_window: 2048,
            header_ms: 5_000,
            sasl_ms: 10_000,
            open_ms: 10_000,
            close_ms: 5_000,
            seed: 0,
        }
    }
}

/// How a client's connection behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The `container-id` of an `open` that the engine must send by itself, when the peer fails before the caller's.
    pub container_id: Arc<str>,
    /// Limits on what the peer can make us hold; `frame_bytes`, `channel_max` and `handle_max` are told to it.
    pub limits: Limits,
    /// The `idle-time-out` we tell, in ms; 0 = none. The peer is cut after twice as long without a byte.
    pub idle_timeout_ms: u32,
    /// Whether to log in by SASL before `open`.
    pub sasl: bool,
    /// Transfer frames that the peer may send per session before we say more: our `incoming-window`.
    pub incoming_window: u32,
    /// How long the server may take for its header, for each step of the login and for its `open`, in ms.
    pub handshake_ms: u32,
    /// How long the peer may take to answer our `close`, in ms.
    pub close_ms: u32,
    /// A secret of this process: peers cannot build tags that collide.
    pub seed: u64,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            container_id: Arc::from(""),
            limits: Limits::default(),
            idle_timeout_ms: 60_000,
            sasl: true,
            incoming_window: 2048,
            handshake_ms: 20_000,
            close_ms: 5_000,
            seed: 0,
        }
    }
}

/// Our answer to a peer's `attach`. Name, handle, role and (if we send) `initial-delivery-count` 0 are added.
#[derive(Clone, Debug, Default)]
pub struct LinkReply<'a> {
    /// The source as it really is; none only to answer a look-up that has none.
    pub source: Option<Source<'a>>,
    /// The target as it really is.
    pub target: Option<AttachTarget<'a>>,
    /// None: what the peer asked for.
    pub snd_settle_mode: Option<SenderSettleMode>,
    /// None: what the peer asked for.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// The largest message we take, in bytes; 0 = no limit.
    pub max_message_size: u64,
    /// What we offer on this link.
    pub offered_capabilities: Symbols<'a>,
    /// What we wish on this link.
    pub desired_capabilities: Symbols<'a>,
    /// Properties of the link.
    pub properties: Option<Map<'a>>,
    /// Whether to say that we kept no unsettled delivery (an empty map), where the peer sent its own map.
    pub empty_unsettled: bool,
}

/// How one delivery is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendParams<'a> {
    /// The caller's number for the delivery; comes back in its [`super::DeliveryOutcome`].
    pub token: u64,
    /// The delivery-tag, 1 to 32 bytes, unique on the link while unsettled. None: four bytes of the engine's choice.
    pub tag: Option<&'a [u8]>,
    /// Whether it is settled at once: no outcome follows.
    pub settled: bool,
    /// The message-format.
    pub format: u32,
    /// Whether the receiver may delay its disposition.
    pub batchable: bool,
    /// A state, such as a transaction.
    pub state: Option<&'a DeliveryState<'a>>,
    /// Whether this resumes a delivery of an earlier attachment.
    pub resume: bool,
}

/// A part of a payload.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Bytes to copy.
    Copy(&'a [u8]),
    /// Bytes that may be kept by reference until written; small ones are copied.
    Share(&'a Bytes),
}

impl Piece<'_> {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Copy(bytes) => bytes.len(),
            Self::Share(bytes) => bytes.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How far a chunk of a streamed delivery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes taken from the front of the chunk.
    pub consumed: usize,
    /// Whether the delivery is complete: its last frame is queued.
    pub done: bool,
}

/// A command that does not fit the state. It changed nothing, except where a variant says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The connection is not open, or closing.
    NotOpen,
    /// The id names no session that can still be used so.
    NoSession,
    /// The id names no link that can still be used so.
    NoLink,
    /// The command is for the other role, or the other side of SASL.
    WrongRole,
    /// The command comes at the wrong moment (accepting what is accepted, a second delivery amid a first one).
    WrongState,
    /// No channel, handle or place in a table is free.
    Full,
    /// A link of this name and role exists.
    NameInUse,
    /// No delivery can be sent on the link now, see [`super::Connection::sendable`].
    NotSendable,
    /// The message exceeds the peer's `max-message-size`, or its state the peer's `max-frame-size`.
    TooLarge,
    /// A settled delivery on a link whose sender leaves all unsettled, or the other way round (amqp10 2.7.5).
    SettleMode,
    /// A delivery-tag longer than 32 bytes, or empty.
    BadTag,
    /// The frame would exceed the peer's `max-frame-size`. For anything but `open`, the session has been ended with
    /// `amqp:session:frame-size-too-small`.
    ///
    //= amqp10 2.8.17
    FrameTooSmall,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOpen => "the connection is not open",
            Self::NoSession => "no such session",
            Self::NoLink => "no such link",
            Self::WrongRole => "not a command for this role",
            Self::WrongState => "not possible at this moment",
            Self::Full => "no channel, handle or place is free",
            Self::NameInUse => "a link of this name and role exists on the connection",
            Self::NotSendable => "nothing can be sent on the link now",
            Self::SettleMode => "settled or not: the link's snd-settle-mode wants the other",
            Self::TooLarge => "the message is larger than the peer takes",
            Self::BadTag => "a delivery-tag must have 1 to 32 bytes",
            Self::FrameTooSmall => "the frame is larger than the peer takes",
        })
    }
}

impl core::error::Error for Misuse {}
