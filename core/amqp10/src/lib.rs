//! AMQP 1.0: codec and protocol engine without I/O, for both roles. Bytes in, borrowed structs and events out.
//!
//! It knows no socket, no clock and nothing of ours: neither queues nor SASL mechanisms.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod codec;
pub mod engine;
#[doc(hidden)]
pub mod fuzz;
mod limits;
pub mod message;
pub mod producer;
pub mod transaction;

pub use limits::Limits;
