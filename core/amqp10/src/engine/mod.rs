//! The protocol engine of AMQP 1.0 without I/O, for both roles: connection, SASL framing, sessions, links, flow,
//! deliveries and their settlement.
//!
//! Owns the protocol's state and its rules; must not know sockets, clocks, SASL mechanisms, queues or messages.
//! Bytes go in by [`Connection::next`], which hands out [`Event`]s that borrow from those bytes only; bytes come out by
//! [`Connection::output`]. Commands may be given while an event is held.
//!
//! ```text
//! let mut input = Input { partial: &mut held, fresh: bytes_just_read };
//! while let Some(event) = conn.next(&mut input, now_ms)? {
//!     /* look at the event, command the connection */
//! }
//! /* end of the turn */
//! conn.flush(now_ms);
//! for chunk in conn.output() { /* write */ }
//! conn.advance_output(written);
//! if conn.wants_close() && conn.output_len() == 0 { /* close the socket */ }
//! ```
//!
//! # Commands
//!
//! | about | commands |
//! |---|---|
//! | login, server | [`Connection::sasl_mechanisms`] (before the first `next`), `sasl_challenge`, `sasl_outcome` |
//! | login, client | `sasl_init`, `sasl_response` |
//! | connection | `open`, `close`, `flush`, `on_tick`, `next_deadline`, `set_reading`, `wants_close`, `wants_read`, `phase` |
//! | session | `begin`, `end`, `probe`, `set_session_token`, `session_window` |
//! | link | `attach`, `accept_link`, `refuse_link`, `detach`, `steal`, `set_link_token`, `forget_deliveries` |
//! | receiving | `grant`, `drain`, `credit`, `settle_incoming`, `set_incoming_token` |
//! | sending | `sendable`, `fits`, `send`; `begin_delivery`, `send_chunk`, `abort_delivery`; `drained`, `set_available`, `settle_outgoing` |
//!
//! Answers that the caller owes: `open` to [`Event::Opened`] (server), `accept_link` or `refuse_link` to [`Event::Attach`] that is
//! no answer, `detach` to [`Event::Detached`], `end` to [`Event::SessionEnded`], `close` to [`Event::Closed`], each unless it says
//! `answered`; `drained` to [`Event::Credit`] with `drain`, once all that is ready was sent. A peer's `begin` is answered by the engine.
//!
//! # Order
//!
//! Everything the peer sent before a `detach`, `end`, `close` or the end of the stream takes effect before it. What we
//! settle goes out before our own `detach`, `end` or `close`.
//!
//! # Faults
//!
//! The narrowest scope answers. A fault of a link or session is an event ([`Event::LinkFailed`],
//! [`Event::SessionFailed`]) and the connection goes on; a fault of the connection is the `Err` of [`Connection::next`]:
//! the right `close` is queued, and what the peer still sends is dropped until its own `close`. Nothing else comes out of
//! `next` after that but [`Event::Closed`]. A command that does not fit the state is [`Misuse`] and changes nothing.
//!
//! # Memory
//!
//! Every table has a cap in [`crate::limits::Limits`]. Once tables have grown to the traffic, a message costs no
//! allocation.

mod connection;
mod deliveries;
mod emit;
mod event;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod input;
mod link;
mod output;
mod sasl;
mod sending;
mod serial;
mod session;
mod settle;
mod slab;
mod tags;
mod terms;
mod timer;
mod transfer;

pub use connection::{Connection, Phase};
pub use event::{
    AttachEvent, AttachFrame, BeginFrame, Decision, DeliveryOutcome, Event, Fault, FlowFrame, MechanismsFrame,
    OpenFrame, Told, TransferEvent,
};
pub use input::Input;
pub use output::{Chunks, SHARE_FROM_BYTES};
pub use serial::Serial;
pub use terms::{ClientConfig, LinkReply, Misuse, Piece, SendParams, Sent, ServerConfig};

/// A session of one connection. Ids of sessions that are gone never name a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A link of one connection. Ids of links that are gone never name a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
