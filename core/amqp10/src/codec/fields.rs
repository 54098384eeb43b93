//! Reading the fields of a composite type, in order. The generated code calls it; it knows the types of fields,
//! not the types they are fields of.

use super::cursor::{self, Bounds, Cursor, Descriptor};
use super::error::{DecodeError, Fault};
use super::union::MessageId;
use super::value::{Data, List, Map, Symbols, Value};

/// The fields of one composite value: what is left of its list.
pub(crate) struct Fields<'a> {
    cursor: Cursor<'a>,
    left: u32,
    bounds: Bounds,
}

/// Puts a fault into its place.
#[inline]
pub(crate) fn at(composite: &'static str, field: &'static str) -> impl FnOnce(Fault) -> DecodeError {
    move |fault| DecodeError::Field { composite, field, fault }
}

/// A mandatory field.
#[inline]
pub(crate) fn required<T>(value: Option<T>) -> Result<T, Fault> {
    value.ok_or(Fault::Missing)
}

/// A mandatory field of symbols: null is an error, and so is an array without elements.
pub(crate) fn required_symbols(symbols: Symbols<'_>) -> Result<Symbols<'_>, Fault> {
    if symbols.is_empty() { Err(Fault::Missing) } else { Ok(symbols) }
}

/// Reads the descriptor of one certain composite.
#[inline]
pub(crate) fn described(
    cursor: &mut Cursor<'_>,
    code: u64,
    symbol: &str,
    composite: &'static str,
) -> Result<(), DecodeError> {
    let of = |fault| DecodeError::Value { what: composite, fault };
    match cursor.u8().map_err(of)? {
        cursor::DESCRIBED => {}
        constructor => return Err(of(Fault::WrongType { expected: composite, constructor })),
    }
    let descriptor = cursor.descriptor().map_err(of)?;
    if descriptor.is(code, symbol) {
        Ok(())
    } else {
        Err(of(Fault::UnknownDescriptor { expected: composite, code: descriptor.code() }))
    }
}

/// Reads the descriptor of one of several performatives; `code_of` knows the symbolic ones.
#[inline]
pub(crate) fn performative_code(
    cursor: &mut Cursor<'_>,
    code_of: impl FnOnce(&str) -> Option<u64>,
) -> Result<Option<u64>, DecodeError> {
    let of = |fault| DecodeError::Value { what: "frame body", fault };
    match cursor.u8().map_err(of)? {
        cursor::DESCRIBED => {}
        constructor => return Err(of(Fault::WrongType { expected: "performative", constructor })),
    }
    Ok(match cursor.descriptor().map_err(of)? {
        Descriptor::Code(code) => Some(code),
        Descriptor::Symbol(symbol) => code_of(symbol),
    })
}

impl<'a> Fields<'a> {
    /// Opens the list of a composite whose descriptor was read.
    #[inline]
    pub(crate) fn open(cursor: &mut Cursor<'a>, bounds: Bounds, composite: &'static str) -> Result<Self, DecodeError> {
        let of = |fault| DecodeError::Value { what: composite, fault };
        match cursor.u8().map_err(of)? {
            cursor::LIST0 => Ok(Self { cursor: Cursor::new(&[]), left: 0, bounds }),
            code @ (cursor::LIST8 | cursor::LIST32) => {
                let (left, cursor) = cursor.compound(code).map_err(of)?;
                Ok(Self { cursor, left, bounds })
            }
            constructor => Err(of(Fault::WrongType { expected: "list", constructor })),
        }
    }

    /// Passes over fields that no version of the type we know has, and checks that they fill the list.
    //= amqp10 1.3.4 (^ extra fields are ignored)
    #[inline]
    pub(crate) fn finish(mut self, composite: &'static str) -> Result<(), DecodeError> {
        let of = |fault| DecodeError::Value { what: composite, fault };
        while self.left > 0 {
            self.left -= 1;
            self.cursor.value(self.bounds).map_err(of)?;
        }
        if self.cursor.is_empty() { Ok(()) } else { Err(of(Fault::SizeMismatch)) }
    }

    /// The constructor of the next field; none if it is null or left out.
    #[inline]
    fn next(&mut self) -> Result<Option<u8>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match self.cursor.u8()? {
            cursor::NULL => Ok(None),
            code => Ok(Some(code)),
        }
    }

    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<Option<bool>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::TRUE) => Some(true),
            Some(cursor::FALSE) => Some(false),
            Some(cursor::BOOLEAN) => match self.cursor.u8()? {
                0 => Some(false),
                1 => Some(true),
                byte => return Err(Fault::BadBoolean(byte)),
            },
            Some(constructor) => return Err(Fault::WrongType { expected: "boolean", constructor }),
        })
    }

    #[inline]
    pub(crate) fn ubyte(&mut self) -> Result<Option<u8>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::UBYTE) => Some(self.cursor.u8()?),
            Some(constructor) => return Err(Fault::WrongType { expected: "ubyte", constructor }),
        })
    }

    #[inline]
    pub(crate) fn ushort(&mut self) -> Result<Option<u16>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::USHORT) => Some(self.cursor.u16()?),
            Some(constructor) => return Err(Fault::WrongType { expected: "ushort", constructor }),
        })
    }

    #[inline]
    pub(crate) fn uint(&mut self) -> Result<Option<u32>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::UINT0) => Some(0),
            Some(cursor::UINT8) => Some(self.cursor.u8()?.into()),
            Some(cursor::UINT) => Some(self.cursor.u32()?),
            Some(constructor) => return Err(Fault::WrongType { expected: "uint", constructor }),
        })
    }

    #[inline]
    pub(crate) fn ulong(&mut self) -> Result<Option<u64>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::ULONG0) => Some(0),
            Some(cursor::ULONG8) => Some(self.cursor.u8()?.into()),
            Some(cursor::ULONG) => Some(self.cursor.u64()?),
            Some(constructor) => return Err(Fault::WrongType { expected: "ulong", constructor }),
        })
    }

    pub(crate) fn int(&mut self) -> Result<Option<i32>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::INT8) => Some(i8::from_be_bytes(self.cursor.array()?).into()),
            Some(cursor::INT) => Some(i32::from_be_bytes(self.cursor.array()?)),
            Some(constructor) => return Err(Fault::WrongType { expected: "int", constructor }),
        })
    }

    pub(crate) fn uuid(&mut self) -> Result<Option<[u8; 16]>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::UUID) => Some(self.cursor.array()?),
            Some(constructor) => return Err(Fault::WrongType { expected: "uuid", constructor }),
        })
    }

    #[inline]
    pub(crate) fn binary(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(code @ (cursor::BINARY8 | cursor::BINARY32)) => {
                let len = self.cursor.length(code == cursor::BINARY32)?;
                Some(self.cursor.take(len)?)
            }
            Some(constructor) => return Err(Fault::WrongType { expected: "binary", constructor }),
        })
    }

    #[inline]
    pub(crate) fn string(&mut self) -> Result<Option<&'a str>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(code @ (cursor::STRING8 | cursor::STRING32)) => {
                let len = self.cursor.length(code == cursor::STRING32)?;
                Some(cursor::utf8(self.cursor.take(len)?)?)
            }
            Some(constructor) => return Err(Fault::WrongType { expected: "string", constructor }),
        })
    }

    #[inline]
    pub(crate) fn symbol(&mut self) -> Result<Option<&'a str>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(code @ (cursor::SYMBOL8 | cursor::SYMBOL32)) => {
                let len = self.cursor.length(code == cursor::SYMBOL32)?;
                Some(cursor::ascii(self.cursor.take(len)?)?)
            }
            Some(constructor) => return Err(Fault::WrongType { expected: "symbol", constructor }),
        })
    }

    #[inline]
    pub(crate) fn timestamp(&mut self) -> Result<Option<i64>, Fault> {
        Ok(match self.next()? {
            None => None,
            Some(cursor::TIMESTAMP) => Some(i64::from_be_bytes(self.cursor.array()?)),
            Some(constructor) => return Err(Fault::WrongType { expected: "timestamp", constructor }),
        })
    }

    /// A message id: one of four types.
    #[inline]
    pub(crate) fn message_id(&mut self) -> Result<Option<MessageId<'a>>, Fault> {
        let Some(constructor) = self.next()? else { return Ok(None) };
        Ok(Some(match constructor {
            cursor::STRING8 | cursor::STRING32 => {
                let len = self.cursor.length(constructor == cursor::STRING32)?;
                MessageId::String(cursor::utf8(self.cursor.take(len)?)?)
            }
            cursor::ULONG => MessageId::Ulong(self.cursor.u64()?),
            cursor::ULONG8 => MessageId::Ulong(self.cursor.u8()?.into()),
            cursor::ULONG0 => MessageId::Ulong(0),
            cursor::UUID => MessageId::Uuid(self.cursor.array()?),
            cursor::BINARY8 | cursor::BINARY32 => {
                let len = self.cursor.length(constructor == cursor::BINARY32)?;
                MessageId::Binary(self.cursor.take(len)?)
            }
            _ => return Err(Fault::WrongType { expected: "message-id (ulong, uuid, binary, string)", constructor }),
        }))
    }

    /// A value of any type, validated.
    pub(crate) fn value(&mut self) -> Result<Option<Value<'a>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let value = Value::read(&mut self.cursor, self.bounds)?;
        Ok(if value.is_null() { None } else { Some(value) })
    }

    /// A map, validated. Keys of any type: real peers are not strict here, and a key of another type is never found. ^
    pub(crate) fn map(&mut self) -> Result<Option<Map<'a>>, Fault> {
        match self.value()? {
            None => Ok(None),
            Some(value) => match value.data() {
                Data::Map(map) => Ok(Some(map)),
                _ => Err(Fault::WrongType { expected: "map", constructor: value.constructor() }),
            },
        }
    }

    /// A list, validated.
    pub(crate) fn list(&mut self) -> Result<Option<List<'a>>, Fault> {
        match self.value()? {
            None => Ok(None),
            Some(value) => match value.data() {
                Data::List(list) => Ok(Some(list)),
                _ => Err(Fault::WrongType { expected: "list", constructor: value.constructor() }),
            },
        }
    }

    /// One symbol or an array of them.
    pub(crate) fn symbols(&mut self) -> Result<Symbols<'a>, Fault> {
        match self.value()? {
            None => Ok(Symbols::EMPTY),
            Some(value) => Symbols::from_value(value),
        }
    }

    /// A cursor at the next field, which is a composite; none if it is null or left out.
    /// What is read from it is read from this list.
    #[inline]
    pub(crate) fn composite(&mut self) -> Result<Option<&mut Cursor<'a>>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if self.cursor.peek() == Some(cursor::NULL) {
            self.cursor.u8()?;
            return Ok(None);
        }
        Ok(Some(&mut self.cursor))
    }
}
