//! Producers that number their messages (`docs/formats/amqp-dedup.md`): properties of their links, and delivery-tags.
//!
//! Must not know: what becomes of a number.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{Data, Map, ValueWriter, put_symbol, put_ulong, put_uuid};

/// The property of a sender's `attach`, and of the answer, that names the producer.
pub const PRODUCER_PROPERTY: &str = "packhorse:producer";

/// The property of a sender's `attach` with its lowest number that is not confirmed.
pub const LOWEST_PROPERTY: &str = "packhorse:lowest-unconfirmed";

/// The property of a sender's `attach` with the lowest number that it has never sent.
pub const NEXT_PROPERTY: &str = "packhorse:next-number";

/// The property of the answer with the number below which nothing is known.
pub const FLOOR_PROPERTY: &str = "packhorse:floor";

/// The condition of a message that may have been stored, which nobody knows any more.
pub const DEDUP_LOST: &str = "packhorse:dedup-lost";

/// The condition of a message that is in a transaction which is not decided: it was not stored again, and may be sent again later.
pub const DEDUP_UNDECIDED: &str = "packhorse:dedup-undecided";

/// A producer, as it attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its name, a UUID.
    pub producer: [u8; 16],
    /// Its lowest number that is not confirmed.
    pub lowest: u64,
    /// The lowest number that it has never sent.
    pub next: u64,
}

impl Opening {
    /// Reads the properties of an `attach`. `None`: it is no such producer.
    ///
    /// # Errors
    ///
    /// One sentence: it says that it is one, and then says nonsense.
    pub fn read(properties: Option<Map<'_>>) -> Result<Option<Opening>, String> {
        let Some(properties) = properties else { return Ok(None) };
        let Some(producer) = properties.get(PRODUCER_PROPERTY) else { return Ok(None) };
        let Data::Uuid(producer) = producer.data() else { return Err(format!("{PRODUCER_PROPERTY} is a uuid")) };
        let number = |key| properties.get(key).and_then(|value| value.as_u64());
        let (Some(lowest), Some(next)) = (number(LOWEST_PROPERTY), number(NEXT_PROPERTY)) else {
            return Err(format!("{LOWEST_PROPERTY} and {NEXT_PROPERTY} are ulongs, and go with {PRODUCER_PROPERTY}"));
        };
        if lowest > next {
            return Err(format!("{LOWEST_PROPERTY}, {lowest}, is above {NEXT_PROPERTY}, {next}"));
        }
        Ok(Some(Opening { producer, lowest, next }))
    }

    /// The properties of an `attach`, encoded.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        ValueWriter::map(&mut out, |map| {
            put_symbol(map.next(), PRODUCER_PROPERTY);
            put_uuid(map.next(), self.producer);
            put_symbol(map.next(), LOWEST_PROPERTY);
            put_ulong(map.next(), self.lowest);
            put_symbol(map.next(), NEXT_PROPERTY);
            put_ulong(map.next(), self.next);
        });
        out
    }
}

/// The properties of the answer, encoded.
#[must_use]
pub fn answer(producer: [u8; 16], floor: u64) -> Vec<u8> {
    let mut out = Vec::new();
    ValueWriter::map(&mut out, |map| {
        put_symbol(map.next(), PRODUCER_PROPERTY);
        put_uuid(map.next(), producer);
        put_symbol(map.next(), FLOOR_PROPERTY);
        put_ulong(map.next(), floor);
    });
    out
}

/// Reads the properties of the answer: the floor. `None`: the broker does not know of numbers.
#[must_use]
pub fn floor(properties: Option<Map<'_>>) -> Option<u64> {
    properties?.get(FLOOR_PROPERTY)?.as_u64()
}

/// What a delivery-tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The message's number.
    pub number: u64,
    /// The producer's lowest number that is not confirmed.
    pub lowest: u64,
}

impl Tag {
    /// Reads a delivery-tag; `None`: it is none of a message with a number.
    #[must_use]
    pub fn read(tag: &[u8]) -> Option<Tag> {
        let (number, lowest) = tag.split_first_chunk::<8>()?;
        let (number, lowest) = (u64::from_be_bytes(*number), u64::from_be_bytes(lowest.try_into().ok()?));
        (lowest <= number).then_some(Tag { number, lowest })
    }

    /// The delivery-tag.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..].copy_from_slice(&self.lowest.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn map(bytes: &[u8]) -> Option<Map<'_>> {
        Some(Map::from_encoded(bytes, &Limits::default()).unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let opening = Opening { producer: [7; 16], lowest: 3, next: u64::MAX };
        assert_eq!(Opening::read(map(&opening.encoded())), Ok(Some(opening)));
        assert_eq!(floor(map(&answer([7; 16], 1 << 40))), Some(1 << 40));
        for (number, lowest) in [(0, 0), (u64::MAX, 1), (1 << 40, 1 << 40)] {
            let tag = Tag { number, lowest };
            assert_eq!(Tag::read(&tag.bytes()), Some(tag));
        }
    }

    #[test]
    fn others_are_no_such_producers_and_nonsense_is_told() {
        assert_eq!(Opening::read(None), Ok(None));
        assert_eq!(Opening::read(map(&answer([7; 16], 1)[..]).filter(|_| false)), Ok(None));
        assert_eq!(
            (floor(None), floor(map(&Opening { producer: [7; 16], lowest: 1, next: 1 }.encoded()))),
            (None, None)
        );
        // The answer's properties lack the numbers; the wrong way round; no uuid.
        assert!(Opening::read(map(&answer([7; 16], 1))).is_err());
        assert!(Opening::read(map(&Opening { producer: [7; 16], lowest: 2, next: 1 }.encoded())).is_err());
        let mut text = Vec::new();
        ValueWriter::map(&mut text, |map| {
            put_symbol(map.next(), PRODUCER_PROPERTY);
            put_ulong(map.next(), 1);
        });
        assert!(Opening::read(map(&text)).is_err());
        for tag in [&[0; 15][..], &[0; 17], &[], &Tag { number: 1, lowest: 2 }.bytes()] {
            assert_eq!(Tag::read(tag), None);
        }
    }
}
