//! Keys of the maps before a body: their types, and that none comes twice. Values are only passed over.

use alloc::vec::Vec;

use super::Section;
use crate::codec::cursor::{self, Bounds, Cursor};
use crate::codec::{Data, DecodeError, Fault, Value};

/// Which keys a map may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Symbol or ulong.
    //= amqp10 3.2.10
    Annotations,
    /// String.
    //= amqp10 3.2.5
    Properties,
}

/// A key as it is compared: by type and content, not by the width it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'a> {
    /// A ulong.
    Number(u64),
    /// A symbol, its bytes.
    Symbol(&'a [u8]),
    /// A string, its bytes.
    String(&'a [u8]),
    /// Of any other type: its bytes.
    Other(&'a [u8]),
}

impl<'a> Key<'a> {
    pub(crate) fn of(value: Value<'a>) -> Self {
        match value.data() {
            Data::Ulong(number) => Self::Number(number),
            Data::Symbol(text) => Self::Symbol(text.as_bytes()),
            Data::String(text) => Self::String(text.as_bytes()),
            _ => Self::Other(value.as_bytes()),
        }
    }
}

/// Keys that are compared each with each; more are sorted, so that a map full of keys costs no square of them.
const FEW: usize = 16;

/// Checks a section that must be exactly one map.
pub(crate) fn check(value: &[u8], section: Section, keys: Keys, bounds: Bounds) -> Result<(), DecodeError> {
    walk(value, keys, bounds).map_err(|fault| DecodeError::Value { what: section.name(), fault })
}

fn walk(value: &[u8], keys: Keys, bounds: Bounds) -> Result<(), Fault> {
    let mut cursor = Cursor::new(value);
    let (count, mut body) = match cursor.u8()? {
        code @ (cursor::MAP8 | cursor::MAP32) => cursor.compound(code)?,
        constructor => return Err(Fault::WrongType { expected: "map", constructor }),
    };
    if !cursor.is_empty() {
        return Err(Fault::SizeMismatch);
    }
    let bounds = Bounds { depth: bounds.depth.saturating_sub(1), ..bounds };
    let mut few = [Key::Number(0); FEW];
    let mut many = Vec::new();
    for index in 0..count as usize / 2 {
        let key = key(&mut body, keys)?;
        match few.get_mut(index) {
            Some(slot) => *slot = key,
            None => many.push(key),
        }
        if few.iter().take(index).any(|other| *other == key) {
            return Err(Fault::DuplicateKey);
        }
        body.value(bounds)?;
    }
    if !body.is_empty() {
        return Err(Fault::SizeMismatch);
    }
    many.sort_unstable();
    if many.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
        return Err(Fault::DuplicateKey);
    }
    Ok(())
}

#[inline]
fn key<'a>(body: &mut Cursor<'a>, keys: Keys) -> Result<Key<'a>, Fault> {
    let constructor = body.u8()?;
    Ok(match (constructor, keys) {
        (cursor::SYMBOL8 | cursor::SYMBOL32, Keys::Annotations) => {
            let len = body.length(constructor == cursor::SYMBOL32)?;
            let bytes = body.take(len)?;
            if !bytes.is_ascii() {
                return Err(Fault::BadSymbol);
            }
            Key::Symbol(bytes)
        }
        (cursor::ULONG, Keys::Annotations) => Key::Number(body.u64()?),
        (cursor::ULONG8, Keys::Annotations) => Key::Number(body.u8()?.into()),
        (cursor::ULONG0, Keys::Annotations) => Key::Number(0),
        (cursor::STRING8 | cursor::STRING32, Keys::Properties) => {
            let len = body.length(constructor == cursor::STRING32)?;
            Key::String(cursor::utf8(body.take(len)?)?.as_bytes())
        }
        _ => return Err(Fault::BadKey { constructor }),
    })
}
