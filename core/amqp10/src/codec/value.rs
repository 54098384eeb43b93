//! A value of any type as a view of its bytes: validated once, looked into on demand, never copied.
//! It builds no tree and allocates nothing; writing values is the business of `encode`.

use super::cursor::{self, Bounds, Cursor, Descriptor};
use super::error::Fault;
use crate::limits::Limits;

/// One encoded value, constructor included. Always well formed, within the depth limit, its texts valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    bytes: &'a [u8],
}

/// What a [`Value`] holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data<'a> {
    /// Nothing.
    Null,
    /// True or false.
    Boolean(bool),
    /// Unsigned, 8 bits.
    Ubyte(u8),
    /// Unsigned, 16 bits.
    Ushort(u16),
    /// Unsigned, 32 bits.
    Uint(u32),
    /// Unsigned, 64 bits.
    Ulong(u64),
    /// Signed, 8 bits.
    Byte(i8),
    /// Signed, 16 bits.
    Short(i16),
    /// Signed, 32 bits.
    Int(i32),
    /// Signed, 64 bits.
    Long(i64),
    /// IEEE 754 binary32.
    Float(f32),
    /// IEEE 754 binary64.
    Double(f64),
    /// IEEE 754 decimal32, its bytes.
    Decimal32([u8; 4]),
    /// IEEE 754 decimal64, its bytes.
    Decimal64([u8; 8]),
    /// IEEE 754 decimal128, its bytes.
    Decimal128([u8; 16]),
    /// A Unicode scalar value.
    Char(char),
    /// Milliseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// A UUID, its bytes.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(&'a [u8]),
    /// Text.
    String(&'a str),
    /// ASCII text from a constrained domain.
    Symbol(&'a str),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// An array.
    Array(Array<'a>),
    /// A value with a descriptor.
    Described(Descriptor<'a>, Value<'a>),
}

impl<'a> Value<'a> {
    /// Null.
    pub const NULL: Value<'static> = Value { bytes: &[cursor::NULL] };

    /// Validates `bytes`, which must be exactly one value.
    ///
    /// # Errors
    /// What is wrong with the bytes; [`Fault::SizeMismatch`] if more follow.
    pub fn from_encoded(bytes: &'a [u8], limits: &Limits) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        if cursor.is_empty() { Ok(value) } else { Err(Fault::SizeMismatch) }
    }

    /// Validates the first value in `bytes`; returns it and what follows it.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn first(bytes: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), Fault> {
        let mut cursor = Cursor::new(bytes);
        let value = Self::read(&mut cursor, Bounds::parsed(limits))?;
        Ok((value, cursor.rest()))
    }

    pub(crate) fn read(cursor: &mut Cursor<'a>, bounds: Bounds) -> Result<Self, Fault> {
        cursor.value(bounds).map(|bytes| Self { bytes })
    }

    /// The bytes, constructor included.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The constructor; 0 for a described value.
    #[must_use]
    pub fn constructor(&self) -> u8 {
        self.bytes.first().copied().unwrap_or(cursor::NULL)
    }

    /// What the value holds.
    #[must_use]
    pub fn data(&self) -> Data<'a> {
        let mut cursor = Cursor::new(self.bytes);
        // The bytes were validated when the view was made, so that there is no error to tell here.
        let Ok(code) = cursor.u8() else { return Data::Null };
        if code == cursor::DESCRIBED {
            return match cursor.descriptor() {
                Ok(descriptor) => Data::Described(descriptor, Value { bytes: cursor.rest() }),
                Err(_) => Data::Null,
            };
        }
        data(code, &mut cursor).unwrap_or(Data::Null)
    }

    /// Whether it is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.constructor() == cursor::NULL
    }

    /// The boolean, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.data() {
            Data::Boolean(v) => Some(v),
            _ => None,
        }
    }

    /// The number, if it is of any integer type or a timestamp.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match self.data() {
            Data::Ubyte(v) => v.into(),
            Data::Ushort(v) => v.into(),
            Data::Uint(v) => v.into(),
            Data::Ulong(v) => v.into(),
            Data::Byte(v) => v.into(),
            Data::Short(v) => v.into(),
            Data::Int(v) => v.into(),
            Data::Long(v) | Data::Timestamp(v) => v.into(),
            _ => return None,
        })
    }

    /// The uint, if it is one.
    #[must_use]
    pub fn as_u32(&self) -> Option<u32> {
        match self.data() {
            Data::Uint(v) => Some(v),
            _ => None,
        }
    }

    /// The ulong, if it is one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self.data() {
            Data::Ulong(v) => Some(v),
            _ => None,
        }
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        match self.data() {
            Data::String(v) => Some(v),
            _ => None,
        }
    }

    /// The text, if it is a symbol.
    #[must_use]
    pub fn as_symbol(&self) -> Option<&'a str> {
        match self.data() {
            Data::Symbol(v) => Some(v),
            _ => None,
        }
    }

    /// The text, if it is a string or a symbol.
    #[must_use]
    pub fn as_text(&self) -> Option<&'a str> {
        match self.data() {
            Data::String(v) | Data::Symbol(v) => Some(v),
            _ => None,
        }
    }

    /// The bytes, if it is a binary.
    #[must_use]
    pub fn as_binary(&self) -> Option<&'a [u8]> {
        match self.data() {
            Data::Binary(v) => Some(v),
            _ => None,
        }
    }

    /// The list, if it is one.
    #[must_use]
    pub fn as_list(&self) -> Option<List<'a>> {
        match self.data() {
            Data::List(v) => Some(v),
            _ => None,
        }
    }

    /// The map, if it is one.
    #[must_use]
    pub fn as_map(&self) -> Option<Map<'a>> {
        match self.data() {
            Data::Map(v) => Some(v),
            _ => None,
        }
    }

    /// The array, if it is one.
    #[must_use]
    pub fn as_array(&self) -> Option<Array<'a>> {
        match self.data() {
            Data::Array(v) => Some(v),
            _ => None,
        }
    }

    /// Descriptor and value, if it is described.
    #[must_use]
    pub fn as_described(&self) -> Option<(Descriptor<'a>, Value<'a>)> {
        match self.data() {
            Data::Described(descriptor, value) => Some((descriptor, value)),
            _ => None,
        }
    }
}

impl core::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.data().fmt(f)
    }
}

/// Reads what stands behind the constructor `code`; no described values, whose constructor is not `code` alone.
pub(crate) fn data<'a>(code: u8, cursor: &mut Cursor<'a>) -> Result<Data<'a>, Fault> {
    Ok(match code {
        cursor::NULL => Data::Null,
        cursor::TRUE => Data::Boolean(true),
        cursor::FALSE => Data::Boolean(false),
        cursor::BOOLEAN => Data::Boolean(cursor.u8()? != 0),
        cursor::UBYTE => Data::Ubyte(cursor.u8()?),
        cursor::USHORT => Data::Ushort(cursor.u16()?),
        cursor::UINT => Data::Uint(cursor.u32()?),
        cursor::UINT8 => Data::Uint(cursor.u8()?.into()),
        cursor::UINT0 => Data::Uint(0),
        cursor::ULONG => Data::Ulong(cursor.u64()?),
        cursor::ULONG8 => Data::Ulong(cursor.u8()?.into()),
        cursor::ULONG0 => Data::Ulong(0),
        cursor::BYTE => Data::Byte(i8::from_be_bytes(cursor.array()?)),
        cursor::SHORT => Data::Short(i16::from_be_bytes(cursor.array()?)),
        cursor::INT => Data::Int(i32::from_be_bytes(cursor.array()?)),
        cursor::INT8 => Data::Int(i8::from_be_bytes(cursor.array()?).into()),
        cursor::LONG => Data::Long(i64::from_be_bytes(cursor.array()?)),
        cursor::LONG8 => Data::Long(i8::from_be_bytes(cursor.array()?).into()),
        cursor::FLOAT => Data::Float(f32::from_be_bytes(cursor.array()?)),
        cursor::DOUBLE => Data::Double(f64::from_be_bytes(cursor.array()?)),
        cursor::DECIMAL32 => Data::Decimal32(cursor.array()?),
        cursor::DECIMAL64 => Data::Decimal64(cursor.array()?),
        cursor::DECIMAL128 => Data::Decimal128(cursor.array()?),
        cursor::CHAR => Data::Char(cursor::char(cursor.u32()?)?),
        cursor::TIMESTAMP => Data::Timestamp(i64::from_be_bytes(cursor.array()?)),
        cursor::UUID => Data::Uuid(cursor.array()?),
        cursor::BINARY8 | cursor::BINARY32 => {
            let len = cursor.length(code == cursor::BINARY32)?;
            Data::Binary(cursor.take(len)?)
        }
        cursor::STRING8 | cursor::STRING32 => {
            let len = cursor.length(code == cursor::STRING32)?;
            Data::String(cursor::utf8(cursor.take(len)?)?)
        }
        cursor::SYMBOL8 | cursor::SYMBOL32 => {
            let len = cursor.length(code == cursor::SYMBOL32)?;
            Data::Symbol(cursor::ascii(cursor.take(len)?)?)
        }
        cursor::LIST0 => Data::List(List { items: &[], count: 0 }),
        cursor::LIST8 | cursor::LIST32 => {
            let (count, body) = cursor.compound(code)?;
            Data::List(List { items: body.rest(), count })
        }
        cursor::MAP8 | cursor::MAP32 => {
            let (count, body) = cursor.compound(code)?;
            Data::Map(Map { items: body.rest(), count })
        }
        cursor::ARRAY8 | cursor::ARRAY32 => {
            let (count, body) = cursor.compound(code)?;
            Data::Array(Array::of(count, body)?)
        }
        _ => return Err(Fault::UnknownConstructor(code)),
    })
}

/// A walk whose limits were applied before: for views of validated bytes.
const TRUSTED: Bounds = Bounds { depth: Limits::MAX_DEPTH, zero_width: u32::MAX, content: false };

/// The next value of validated bytes.
fn next_value<'a>(items: &mut &'a [u8]) -> Option<Value<'a>> {
    if items.is_empty() {
        return None;
    }
    let mut cursor = Cursor::new(items);
    let value = Value::read(&mut cursor, TRUSTED).ok()?;
    *items = cursor.rest();
    Some(value)
}

/// A list: an iterator makes its elements.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct List<'a> {
    items: &'a [u8],
    count: u32,
}

impl<'a> List<'a> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded elements, without the header of the list.
    #[must_use]
    pub fn items(&self) -> &'a [u8] {
        self.items
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut items = self.items;
        core::iter::from_fn(move || next_value(&mut items))
    }
}

impl core::fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A map: an iterator makes its pairs, in the order sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Map<'a> {
    items: &'a [u8],
    count: u32,
}

impl<'a> Map<'a> {
    /// Validates `bytes`, which must be exactly one map, constructor included.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn from_encoded(bytes: &'a [u8], limits: &Limits) -> Result<Self, Fault> {
        let value = Value::from_encoded(bytes, limits)?;
        value.as_map().ok_or(Fault::WrongType { expected: "map", constructor: value.constructor() })
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count / 2
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded keys and values, without the header of the map.
    #[must_use]
    pub fn items(&self) -> &'a [u8] {
        self.items
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + use<'a> {
        let mut items = self.items;
        core::iter::from_fn(move || Some((next_value(&mut items)?, next_value(&mut items)?)))
    }

    /// The value under a key that is the symbol or the string `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        let mut cursor = Cursor::new(self.items);
        while !cursor.is_empty() {
            let mut text = cursor;
            let found = match text.u8().ok()? {
                code @ (cursor::STRING8 | cursor::STRING32 | cursor::SYMBOL8 | cursor::SYMBOL32) => {
                    let len = text.length(code & 0x10 != 0).ok()?;
                    let found = text.take(len).ok()? == key.as_bytes();
                    cursor = text;
                    found
                }
                _ => {
                    cursor.value(TRUSTED).ok()?;
                    false
                }
            };
            let value = Value::read(&mut cursor, TRUSTED).ok()?;
            if found {
                return Some(value);
            }
        }
        None
    }
}

impl core::fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An array: elements of one constructor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Array<'a> {
    descriptor: Option<Descriptor<'a>>,
    element: u8,
    items: &'a [u8],
    count: u32,
}

impl<'a> Array<'a> {
    fn of(count: u32, mut body: Cursor<'a>) -> Result<Self, Fault> {
        if count == 0 && body.is_empty() {
            return Ok(Self { descriptor: None, element: cursor::NULL, items: &[], count });
        }
        let mut look = body;
        let descriptor = match look.u8()? {
            cursor::DESCRIBED => Some(look.descriptor()?),
            _ => None,
        };
        let (element, _) = body.element_constructor(Limits::MAX_DEPTH)?;
        Ok(Self { descriptor, element, items: body.rest(), count })
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The descriptor that each element has; the outermost, should there be several.
    #[must_use]
    pub fn descriptor(&self) -> Option<Descriptor<'a>> {
        self.descriptor
    }

    /// The constructor of the elements, below any descriptor.
    #[must_use]
    pub fn element_constructor(&self) -> u8 {
        self.element
    }

    /// The elements in order, without their descriptors.
    pub fn iter(&self) -> impl Iterator<Item = Data<'a>> + use<'a> {
        let (code, count) = (self.element, self.count);
        let mut cursor = Cursor::new(self.items);
        // A text that was not looked at and is none shows as null; what follows it is not lost.
        (0..count).map(move |_| data(code, &mut cursor).unwrap_or(Data::Null))
    }
}

impl core::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Several symbols: what a `multiple` field of type symbol holds. Null is the empty one.
//= amqp10 1.4 (one value, or an array of them)
#[derive(Clone, Copy, Default)]
pub struct Symbols<'a>(Repr<'a>);

#[derive(Clone, Copy, Default)]
enum Repr<'a> {
    /// None at all.
    #[default]
    Empty,
    /// A single one.
    One(&'a str),
    /// To be sent.
    Slice(&'a [&'a str]),
    /// As received: an array whose elements are symbols.
    Wire(Array<'a>),
}

impl<'a> Symbols<'a> {
    /// None.
    pub const EMPTY: Symbols<'static> = Symbols(Repr::Empty);

    /// Those of a slice, to be sent.
    #[must_use]
    pub const fn from_slice(symbols: &'a [&'a str]) -> Self {
        Self(Repr::Slice(symbols))
    }

    /// A single one.
    #[must_use]
    pub const fn one(symbol: &'a str) -> Self {
        Self(Repr::One(symbol))
    }

    pub(crate) fn from_value(value: Value<'a>) -> Result<Self, Fault> {
        match value.data() {
            Data::Null => Ok(Self(Repr::Empty)),
            Data::Symbol(symbol) => Ok(Self(Repr::One(symbol))),
            Data::Array(array)
                if array.is_empty()
                    || (array.descriptor.is_none() && matches!(array.element, cursor::SYMBOL8 | cursor::SYMBOL32)) =>
            {
                Ok(Self(if array.is_empty() { Repr::Empty } else { Repr::Wire(array) }))
            }
            Data::Array(array) => Err(Fault::WrongType { expected: "symbol", constructor: array.element }),
            _ => Err(Fault::WrongType { expected: "symbol or array of symbol", constructor: value.constructor() }),
        }
    }

    /// The symbols in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (one, slice, wire) = match self.0 {
            Repr::Empty => (None, None, None),
            Repr::One(symbol) => (Some(symbol), None, None),
            Repr::Slice(slice) => (None, Some(slice), None),
            Repr::Wire(array) => (None, None, Some(array)),
        };
        one.into_iter().chain(slice.unwrap_or_default().iter().copied()).chain(
            wire.into_iter().flat_map(|array| array.iter()).filter_map(|data| match data {
                Data::Symbol(symbol) => Some(symbol),
                _ => None,
            }),
        )
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {
            Repr::Empty => true,
            Repr::One(_) => false,
            Repr::Slice(slice) => slice.is_empty(),
            Repr::Wire(array) => array.is_empty(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Slice(slice) => slice.len(),
            Repr::Wire(array) => array.count as usize,
        }
    }

    /// Whether `symbol` is among them.
    #[must_use]
    pub fn contains(&self, symbol: &str) -> bool {
        self.iter().any(|s| s == symbol)
    }
}

impl<'a> From<&'a [&'a str]> for Symbols<'a> {
    fn from(symbols: &'a [&'a str]) -> Self {
        Self::from_slice(symbols)
    }
}

impl PartialEq for Symbols<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Symbols<'_> {}

impl core::fmt::Debug for Symbols<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
