//! The header of a frame, and the two kinds of bodies: AMQP and SASL. It reads one frame from a slice; when there is
//! one, and what it means, is the engine's business.

use alloc::vec::Vec;

use super::cursor::{Bounds, Cursor};
use super::error::DecodeError;
use super::generated::{Performative, SaslPerformative};
use crate::limits::Limits;

/// The eight bytes that a connection opens with: `AMQP`, protocol id, version.
//= amqp10 2.2
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";

/// The protocol header of the SASL layer.
//= amqp10 5.3.2
pub const SASL_PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// The type of a frame.
//= amqp10 2.3.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An AMQP frame.
    Amqp,
    /// A SASL frame.
    Sasl,
}

impl FrameKind {
    /// The byte on the wire.
    #[must_use]
    pub fn wire(self) -> u8 {
        match self {
            Self::Amqp => 0,
            Self::Sasl => 1,
        }
    }
}

/// The header of a frame.
//= amqp10 2.3.1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Size of the whole frame in bytes, header included.
    pub size: u32,
    /// Where the body starts, in units of four bytes; past 2 there is an extended header.
    pub doff: u8,
    /// The type of the frame as sent; 0 is AMQP, 1 is SASL.
    pub kind: u8,
    /// The channel; nothing for a SASL frame.
    pub channel: u16,
}

impl FrameHeader {
    /// Bytes of a header without extension.
    pub const LEN: usize = 8;

    /// Reads and checks a header as soon as its eight bytes are there, so that nothing is ever held for a frame that will
    /// not be taken. `None`: fewer than eight bytes (a size that is wrong is told from its four bytes on).
    ///
    /// # Errors
    /// Size below 8 or above `max_size`, data offset below 2 or past the end, another type than `expected`.
    pub fn parse(bytes: &[u8], max_size: u32, expected: FrameKind) -> Result<Option<Self>, DecodeError> {
        let Some((&size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let size = u32::from_be_bytes(size);
        if size < Self::LEN as u32 {
            return Err(DecodeError::FrameTooSmall { size });
        }
        if size > max_size {
            return Err(DecodeError::FrameTooLarge { size, limit: max_size });
        }
        let Some(&[doff, kind, c, d]) = rest.first_chunk::<4>() else { return Ok(None) };
        if doff < 2 || u32::from(doff) * 4 > size {
            return Err(DecodeError::BadDataOffset { doff, size });
        }
        if kind != expected.wire() {
            return Err(DecodeError::WrongFrameType { kind, expected: expected.wire() });
        }
        Ok(Some(Self { size, doff, kind, channel: u16::from_be_bytes([c, d]) }))
    }

    /// The body of `frame`, which starts with this header and holds all of it; an extended header is skipped.
    #[must_use]
    pub fn body<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.doff) * 4..self.size as usize).unwrap_or_default()
    }

    /// Appends a frame whose body `fill` writes.
    pub fn encode(out: &mut Vec<u8>, kind: FrameKind, channel: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = Self::begin(out, kind, channel);
        fill(out);
        Self::end(out, start);
    }

    /// Appends a header whose size is not known yet; returns what [`FrameHeader::end`] needs.
    #[inline]
    pub fn begin(out: &mut Vec<u8>, kind: FrameKind, channel: u16) -> usize {
        let start = out.len();
        let [c, d] = channel.to_be_bytes();
        out.extend_from_slice(&[0, 0, 0, 8, 2, kind.wire(), c, d]);
        start
    }

    /// Fills in the size of the frame begun at `start`, which ends at the end of `out`.
    #[inline]
    pub fn end(out: &mut [u8], start: usize) {
        let size = (out.len() - start) as u32;
        if let Some(field) = out.get_mut(start..start + 4) {
            field.copy_from_slice(&size.to_be_bytes());
        }
    }
}

impl<'a> Performative<'a> {
    /// Decodes the body of an AMQP frame: the performative and the payload behind it (of a transfer; empty for others).
    /// `None`: an empty frame, which only shows that the peer lives.
    ///
    /// # Errors
    /// What is wrong with the body; [`DecodeError::TrailingBytes`] for a payload behind a performative that has none.
    //= amqp10 2.3.2, 2.4.5
    #[inline]
    pub fn decode(body: &'a [u8], limits: &Limits) -> Result<Option<(Self, &'a [u8])>, DecodeError> {
        if body.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(body);
        let performative = Self::read(&mut cursor, Bounds::parsed(limits))?;
        let payload = cursor.rest();
        if !payload.is_empty() && !matches!(performative, Self::Transfer(_)) {
            return Err(DecodeError::TrailingBytes { composite: performative.name(), bytes: payload.len() as u32 });
        }
        Ok(Some((performative, payload)))
    }
}

impl<'a> SaslPerformative<'a> {
    /// Decodes the body of a SASL frame.
    ///
    /// # Errors
    /// What is wrong with the body; it must be exactly one performative.
    //= amqp10 5.3.1
    pub fn decode(body: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        if body.is_empty() {
            return Err(DecodeError::EmptyBody);
        }
        let mut cursor = Cursor::new(body);
        let performative = Self::read(&mut cursor, Bounds::parsed(limits))?;
        match cursor.rest().len() {
            0 => Ok(performative),
            bytes => Err(DecodeError::TrailingBytes { composite: performative.name(), bytes: bytes as u32 }),
        }
    }
}
