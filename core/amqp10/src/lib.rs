//! AMQP 1.0: codec and protocol engine without I/O, for both roles. Bytes in, borrowed structs and events out.
//!
//! It knows no socket, no clock and nothing of ours: neither queues nor SASL mechanisms.
#![no_std]

extern crate alloc;

pub mod codec;
pub mod engine;
mod limits;
pub mod message;

pub use limits::Limits;
