//! A client of an AMQP 1.0 broker without I/O: login, sessions, senders, receivers over the engine's client role.
//!
//! Used by the command line, the load generator and the simulator; a crate for applications will stand on it. No clock, no
//! sockets, no allocation per message. Must not know the broker.
//!
//! ```text
//! let mut client = Client::new(Options::default(), now_ms);
//! let mut held = Vec::new();                          // what a read leaves of an unfinished frame
//! loop {
//!     /* write client.output(), tell client.written(n); read some bytes */
//!     let mut input = Input { partial: &mut held, fresh: &bytes };
//!     while let Some(event) = client.next(&mut input, now_ms)? {
//!         match event {
//!             Event::Opened(_) => { /* begin, attach: all may be done at once */ }
//!             Event::Message(transfer) => { /* joiner.push(&transfer), client.settle(…) */ }
//!             Event::Outcomes { .. } => { /* client.outcomes(): what became of what was sent */ }
//!             …
//!         }
//!     }
//!     while client.sendable(link) { client.send(link, token, false, &[Piece::Copy(&message)])?; }
//!     client.flush(now_ms);
//! }
//! ```
#![no_std]

extern crate alloc;

mod client;
mod draft;
mod event;
mod joiner;
mod numbering;
mod transactions;

pub use client::{Client, Commits, Login, Options, ReceiverOptions, SenderOptions, Verdict};
pub use draft::{Body, Draft};
pub use event::{Event, Failure, LinkLost, Reason};
pub use joiner::Joiner;
pub use numbering::{Numbering, floor};
pub use transactions::{ControllerOptions, broker_id, response};

pub use packhorse_amqp10::codec::{MessageId, SenderSettleMode};
pub use packhorse_amqp10::engine::{
    AttachFrame, Decision, DeliveryOutcome, Input, LinkId, Misuse, OpenFrame, Phase, Piece, Sent, SessionId,
    TransferEvent,
};
pub use packhorse_amqp10::message::{BodySection, MessageView};
pub use packhorse_amqp10::{Limits, codec, producer, transaction};
