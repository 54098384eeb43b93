//! What can be wrong with bytes from a peer: the sentence for people and the standard's condition for programs.
//! Nothing here allocates; texts are made only when an error is shown.

use core::fmt;

/// What is wrong with one encoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end inside a value: `needed` more would be read, `left` are there.
    Truncated {
        /// Bytes the value needs at this point.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// No type of the standard has this constructor.
    UnknownConstructor(u8),
    /// A value of another type than the field has.
    WrongType {
        /// The type the field has.
        expected: &'static str,
        /// The constructor that came.
        constructor: u8,
    },
    /// A mandatory field is null or left out.
    Missing,
    /// A field of a restricted type holds something that is none of its choices.
    BadChoice {
        /// The restricted type.
        expected: &'static str,
    },
    /// A string that is not UTF-8.
    BadUtf8,
    /// A symbol with a byte outside ASCII.
    BadSymbol,
    /// A boolean whose byte is neither 0 nor 1.
    BadBoolean(u8),
    /// A char that is no Unicode scalar value.
    BadChar(u32),
    /// A list, map or array whose size does not hold even its own count.
    SizeTooSmall {
        /// The size as sent.
        size: u32,
    },
    /// A list, map or array that says it has more elements than bytes.
    CountTooLarge {
        /// The count as sent.
        count: u32,
        /// Bytes for elements.
        bytes: u64,
    },
    /// A list, map or array whose elements do not fill its size.
    SizeMismatch,
    /// A map with a key that has no value.
    OddMap {
        /// The count as sent.
        count: u32,
    },
    /// A map key of a type that this map does not allow.
    BadKey {
        /// The constructor of the key.
        constructor: u8,
    },
    /// A map that has one key twice.
    DuplicateKey,
    /// An array whose elements take no bytes, with more of them than we take.
    ZeroWidthArray {
        /// The count as sent.
        count: u32,
        /// The most we take.
        limit: u32,
    },
    /// Nested deeper than we take.
    TooDeep {
        /// The depth we take.
        limit: u8,
    },
    /// A descriptor that is neither ulong nor symbol.
    BadDescriptor {
        /// The constructor that came.
        constructor: u8,
    },
    /// A described value where none of the descriptors that fit here came.
    UnknownDescriptor {
        /// What would fit.
        expected: &'static str,
        /// The numeric descriptor; none if it was a symbol.
        code: Option<u64>,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, left } => write!(f, "cut short: {needed} bytes needed, {left} left"),
            Self::UnknownConstructor(code) => write!(f, "0x{code:02x} is the constructor of no type"),
            Self::WrongType { expected, constructor } => {
                write!(f, "a value of type {expected} is needed, constructor 0x{constructor:02x} came")
            }
            Self::Missing => f.write_str("mandatory, but null or left out"),
            Self::BadChoice { expected } => write!(f, "not one of the values of {expected}"),
            Self::BadUtf8 => f.write_str("a string that is not UTF-8"),
            Self::BadSymbol => f.write_str("a symbol that is not ASCII"),
            Self::BadBoolean(byte) => write!(f, "a boolean of value {byte}: only 0 and 1 exist"),
            Self::BadChar(value) => write!(f, "a char of value 0x{value:x}: no Unicode scalar value"),
            Self::SizeTooSmall { size } => write!(f, "a compound value of size {size}: too small for its own count"),
            Self::CountTooLarge { count, bytes } => {
                write!(f, "a compound value that says it has {count} elements in {bytes} bytes")
            }
            Self::SizeMismatch => f.write_str("a compound value whose elements do not fill its size"),
            Self::OddMap { count } => write!(f, "a map of {count} elements: a key without a value"),
            Self::BadKey { constructor } => {
                write!(f, "a map key with constructor 0x{constructor:02x}: not of the type that keys of this map have")
            }
            Self::DuplicateKey => f.write_str("a map that has the same key twice"),
            Self::ZeroWidthArray { count, limit } => {
                write!(f, "an array of {count} elements without bytes: at most {limit} are taken")
            }
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} levels"),
            Self::BadDescriptor { constructor } => {
                write!(f, "a descriptor with constructor 0x{constructor:02x}: only ulong and symbol are descriptors")
            }
            Self::UnknownDescriptor { expected, code: Some(code) } => {
                write!(f, "{expected} is needed, descriptor 0x{code:x} came")
            }
            Self::UnknownDescriptor { expected, code: None } => {
                write!(f, "{expected} is needed, another symbolic descriptor came")
            }
        }
    }
}

/// Why bytes from a peer could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A frame size below the eight bytes of its header.
    FrameTooSmall {
        /// The size as sent.
        size: u32,
    },
    /// A frame larger than we take.
    FrameTooLarge {
        /// The size as sent.
        size: u32,
        /// The most we take.
        limit: u32,
    },
    /// A data offset below the header, or past the end of the frame.
    BadDataOffset {
        /// The offset as sent, in units of four bytes.
        doff: u8,
        /// The size of the frame.
        size: u32,
    },
    /// A frame of a type that does not belong here.
    WrongFrameType {
        /// The type as sent.
        kind: u8,
        /// The type that belongs here.
        expected: u8,
    },
    /// A frame whose body must be one performative has none.
    EmptyBody,
    /// Bytes behind a performative that has no payload.
    TrailingBytes {
        /// The performative.
        composite: &'static str,
        /// How many.
        bytes: u32,
    },
    /// A body that is none of the performatives that belong here.
    UnknownPerformative {
        /// The numeric descriptor; none if it was a symbol.
        code: Option<u64>,
    },
    /// A fault in a field of a composite type.
    Field {
        /// The composite type.
        composite: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A fault in a value that is no field.
    Value {
        /// What the value is.
        what: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A section of a message that the standard does not have.
    UnknownSection {
        /// The numeric descriptor; none if it was a symbol.
        code: Option<u64>,
    },
    /// A section of a message that is out of order or comes twice.
    SectionOrder {
        /// The section.
        section: &'static str,
        /// The section before it.
        after: &'static str,
    },
    /// A message of no bytes at all.
    EmptyMessage,
    /// The sections before the body are larger than we take.
    HeadTooLarge {
        /// The most we take, in bytes.
        limit: u32,
    },
}

impl DecodeError {
    /// The standard's error condition for it.
    //= amqp10 2.8.16, 2.8.15
    #[must_use]
    pub fn condition(&self) -> &'static str {
        match self {
            Self::FrameTooSmall { .. }
            | Self::FrameTooLarge { .. }
            | Self::BadDataOffset { .. }
            | Self::WrongFrameType { .. } => "amqp:connection:framing-error",
            Self::UnknownPerformative { .. } => "amqp:not-implemented",
            Self::Field { fault, .. } | Self::Value { fault, .. } => match fault {
                Fault::UnknownDescriptor { .. } => "amqp:not-implemented",
                Fault::BadChoice { .. } => "amqp:invalid-field",
                _ => "amqp:decode-error",
            },
            Self::HeadTooLarge { .. } => "amqp:resource-limit-exceeded",
            Self::EmptyBody
            | Self::TrailingBytes { .. }
            | Self::UnknownSection { .. }
            | Self::SectionOrder { .. }
            | Self::EmptyMessage => "amqp:decode-error",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FrameTooSmall { size } => write!(f, "frame of size {size}: the header alone has 8 bytes"),
            Self::FrameTooLarge { size, limit } => write!(f, "frame of size {size}: at most {limit} bytes are taken"),
            Self::BadDataOffset { doff, size } => {
                write!(f, "frame of size {size} with data offset {doff}: it must be 2 or more and lie inside the frame")
            }
            Self::WrongFrameType { kind, expected } => {
                write!(f, "frame of type {kind}: only frames of type {expected} belong here")
            }
            Self::EmptyBody => f.write_str("frame without a body where one is needed"),
            Self::TrailingBytes { composite, bytes } => {
                write!(f, "{bytes} bytes behind {composite}, which has no payload")
            }
            Self::UnknownPerformative { code: Some(code) } => {
                write!(f, "descriptor 0x{code:x} is no performative of this place")
            }
            Self::UnknownPerformative { code: None } => {
                f.write_str("a symbolic descriptor that is no performative of this place")
            }
            Self::Field { composite, field, fault } => write!(f, "{composite}, field {field}: {fault}"),
            Self::Value { what, fault } => write!(f, "{what}: {fault}"),
            Self::UnknownSection { code: Some(code) } => write!(f, "descriptor 0x{code:x} is no section of a message"),
            Self::UnknownSection { code: None } => f.write_str("a symbolic descriptor that is no section of a message"),
            Self::SectionOrder { section, after } => write!(f, "message section {section} after {after}"),
            Self::EmptyMessage => f.write_str("message without any section"),
            Self::HeadTooLarge { limit } => write!(f, "message sections before the body: more than {limit} bytes"),
        }
    }
}

impl core::error::Error for DecodeError {}
