//! The AMQP 1.0 type system and its frames: bytes to borrowed structs and back.
//!
//! Decoding allocates nothing and recurses nowhere; encoding appends to a `Vec<u8>`. No state is kept between frames: what
//! a frame means where is the engine's business.

pub(crate) mod cursor;
pub(crate) mod encode;
mod error;
pub(crate) mod fields;
mod frame;
mod generated;
mod union;
mod value;

pub use cursor::Descriptor;
pub use encode::*;
pub use error::{DecodeError, Fault};
pub use frame::{FrameHeader, FrameKind, PROTOCOL_HEADER, SASL_PROTOCOL_HEADER};
pub use generated::*;
pub use union::{AttachTarget, DeliveryState, MessageId, Outcome};
pub use value::{Array, Data, List, Map, Symbols, Value};

#[cfg(test)]
mod tests;
