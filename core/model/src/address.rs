//! Addresses and names: what producers send to and consumers read from (`spec/operate.md`, "Addresses over AMQP 1.0").

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Longest name of a queue or topic, in bytes of UTF-8.
pub const NAME_LIMIT_BYTES: usize = 255;

/// A valid name: 1 to 255 bytes of UTF-8 without control characters. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<str>);

/// Why a name or an address was refused. The text names the rule, the limit and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// No character at all.
    Empty,
    /// More bytes than [`NAME_LIMIT_BYTES`].
    TooLong {
        /// Bytes of the refused name.
        bytes: usize,
    },
    /// A control character at this byte.
    Control {
        /// Offset in bytes.
        at: usize,
        /// The character's code point.
        code: u32,
    },
    /// `%` without two hexadecimal digits, or digits that make no UTF-8.
    Escape {
        /// Offset in bytes.
        at: usize,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Empty => write!(f, "the name is empty; a name has 1 to {NAME_LIMIT_BYTES} bytes"),
            AddressError::TooLong { bytes } => {
                write!(f, "the name has {bytes} bytes; a name has at most {NAME_LIMIT_BYTES} bytes of UTF-8")
            }
            AddressError::Control { at, code } => {
                write!(f, "the name has the control character U+{code:04X} at byte {at}; names have none")
            }
            AddressError::Escape { at } => {
                write!(f, "the address has a broken percent escape at byte {at}; write %25 for a percent sign")
            }
        }
    }
}

impl core::error::Error for AddressError {}

impl QueueName {
    /// Checks `name` against the rules for names.
    pub fn new(name: &str) -> Result<QueueName, AddressError> {
        if name.is_empty() {
            return Err(AddressError::Empty);
        }
        if name.len() > NAME_LIMIT_BYTES {
            return Err(AddressError::TooLong { bytes: name.len() });
        }
        if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(AddressError::Control { at, code: c as u32 });
        }
        Ok(QueueName(Arc::from(name)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::borrow::Borrow<str> for QueueName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A queue: `orders`, `queue://orders`, `/queues/orders`.
    Queue(QueueName),
    /// A topic: `topic://prices`, `/topics/prices`.
    Topic(QueueName),
}

impl Address {
    /// Parses the text of an AMQP address. A plain name is a queue; capabilities of the terminus may say otherwise.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if let Some(name) = text.strip_prefix("queue://") {
            return Ok(Address::Queue(QueueName::new(name)?));
        }
        if let Some(name) = text.strip_prefix("topic://") {
            return Ok(Address::Topic(QueueName::new(name)?));
        }
        if let Some(name) = text.strip_prefix("/queues/") {
            return Ok(Address::Queue(QueueName::new(&unescape(name)?)?));
        }
        if let Some(name) = text.strip_prefix("/topics/") {
            return Ok(Address::Topic(QueueName::new(&unescape(name)?)?));
        }
        Ok(Address::Queue(QueueName::new(text)?))
    }
}

fn unescape(text: &str) -> Result<String, AddressError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3).and_then(|d| core::str::from_utf8(d).ok());
        let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u8::from_str_radix(d, 16).ok()).ok_or(AddressError::Escape { at })?;
        out.push(code);
        at += 3;
    }
    String::from_utf8(out).map_err(|e| AddressError::Escape { at: e.utf8_error().valid_up_to() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes_without_control_characters() {
        assert_eq!(QueueName::new(""), Err(AddressError::Empty));
        assert!(QueueName::new(&"é".repeat(127)).is_ok());
        assert_eq!(QueueName::new(&"é".repeat(128)), Err(AddressError::TooLong { bytes: 256 }));
        assert_eq!(QueueName::new("a\nb"), Err(AddressError::Control { at: 1, code: 10 }));
        assert_eq!(QueueName::new("a\u{85}"), Err(AddressError::Control { at: 1, code: 0x85 }));
        assert!(QueueName::new("grüße/€ 😀").is_ok());
    }

    #[test]
    fn one_queue_has_three_spellings() {
        let queue = Address::Queue(QueueName::new("or ders").unwrap());
        for text in ["or ders", "queue://or ders", "/queues/or%20ders"] {
            assert_eq!(Address::parse(text).unwrap(), queue);
        }
        assert_eq!(Address::parse("topic://p").unwrap(), Address::Topic(QueueName::new("p").unwrap()));
        assert_eq!(Address::parse("/topics/p").unwrap(), Address::Topic(QueueName::new("p").unwrap()));
        // Elsewhere a percent sign is an ordinary character.
        assert_eq!(Address::parse("50%").unwrap(), Address::Queue(QueueName::new("50%").unwrap()));
    }

    #[test]
    fn broken_escapes_are_refused_with_their_place() {
        assert_eq!(Address::parse("/queues/a%2"), Err(AddressError::Escape { at: 1 }));
        assert_eq!(Address::parse("/queues/%+1"), Err(AddressError::Escape { at: 0 }));
        assert_eq!(Address::parse("/queues/%ff"), Err(AddressError::Escape { at: 0 }));
        assert_eq!(Address::parse("/queues/%00"), Err(AddressError::Control { at: 0, code: 0 }));
    }
}
