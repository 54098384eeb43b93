//! Writing values into a `Vec<u8>`: shortest forms, no other allocation. It never fails: what a caller hands over is
//! typed, and lengths past what the standard can say (4 GiB) do not fit a frame anyway.

use alloc::vec::Vec;

use super::cursor as code;
use super::union::MessageId;
use super::value::{List, Map, Symbols, Value};

/// Writes null.
pub fn put_null(out: &mut Vec<u8>) {
    out.push(code::NULL);
}

/// Writes a boolean.
pub fn put_boolean(out: &mut Vec<u8>, value: bool) {
    out.push(if value { code::TRUE } else { code::FALSE });
}

/// Writes a ubyte.
pub fn put_ubyte(out: &mut Vec<u8>, value: u8) {
    out.extend_from_slice(&[code::UBYTE, value]);
}

/// Writes a ushort.
pub fn put_ushort(out: &mut Vec<u8>, value: u16) {
    let [a, b] = value.to_be_bytes();
    out.extend_from_slice(&[code::USHORT, a, b]);
}

/// Writes a uint in its shortest form.
#[inline]
pub fn put_uint(out: &mut Vec<u8>, value: u32) {
    match value {
        0 => out.push(code::UINT0),
        1..=0xff => out.extend_from_slice(&[code::UINT8, value as u8]),
        _ => {
            let [a, b, c, d] = value.to_be_bytes();
            out.extend_from_slice(&[code::UINT, a, b, c, d]);
        }
    }
}

/// Writes a ulong in its shortest form.
#[inline]
pub fn put_ulong(out: &mut Vec<u8>, value: u64) {
    match value {
        0 => out.push(code::ULONG0),
        1..=0xff => out.extend_from_slice(&[code::ULONG8, value as u8]),
        _ => put_fixed(out, code::ULONG, &value.to_be_bytes()),
    }
}

/// Writes a byte.
pub fn put_byte(out: &mut Vec<u8>, value: i8) {
    put_fixed(out, code::BYTE, &value.to_be_bytes());
}

/// Writes a short.
pub fn put_short(out: &mut Vec<u8>, value: i16) {
    put_fixed(out, code::SHORT, &value.to_be_bytes());
}

/// Writes an int in its shortest form.
pub fn put_int(out: &mut Vec<u8>, value: i32) {
    match i8::try_from(value) {
        Ok(small) => put_fixed(out, code::INT8, &small.to_be_bytes()),
        Err(_) => put_fixed(out, code::INT, &value.to_be_bytes()),
    }
}

/// Writes a long in its shortest form.
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    match i8::try_from(value) {
        Ok(small) => put_fixed(out, code::LONG8, &small.to_be_bytes()),
        Err(_) => put_fixed(out, code::LONG, &value.to_be_bytes()),
    }
}

/// Writes a float.
pub fn put_float(out: &mut Vec<u8>, value: f32) {
    put_fixed(out, code::FLOAT, &value.to_be_bytes());
}

/// Writes a double.
pub fn put_double(out: &mut Vec<u8>, value: f64) {
    put_fixed(out, code::DOUBLE, &value.to_be_bytes());
}

/// Writes a decimal32 of its bytes.
pub fn put_decimal32(out: &mut Vec<u8>, value: [u8; 4]) {
    put_fixed(out, code::DECIMAL32, &value);
}

/// Writes a decimal64 of its bytes.
pub fn put_decimal64(out: &mut Vec<u8>, value: [u8; 8]) {
    put_fixed(out, code::DECIMAL64, &value);
}

/// Writes a decimal128 of its bytes.
pub fn put_decimal128(out: &mut Vec<u8>, value: [u8; 16]) {
    put_fixed(out, code::DECIMAL128, &value);
}

/// Writes a char.
pub fn put_char(out: &mut Vec<u8>, value: char) {
    put_fixed(out, code::CHAR, &u32::from(value).to_be_bytes());
}

/// Writes a timestamp: milliseconds since 1970-01-01 UTC.
pub fn put_timestamp(out: &mut Vec<u8>, value: i64) {
    put_fixed(out, code::TIMESTAMP, &value.to_be_bytes());
}

/// Writes a UUID of its bytes.
pub fn put_uuid(out: &mut Vec<u8>, value: [u8; 16]) {
    put_fixed(out, code::UUID, &value);
}

/// Writes a binary in its shortest form.
#[inline]
pub fn put_binary(out: &mut Vec<u8>, value: &[u8]) {
    put_variable(out, code::BINARY8, code::BINARY32, value);
}

/// Writes a string in its shortest form.
pub fn put_string(out: &mut Vec<u8>, value: &str) {
    put_variable(out, code::STRING8, code::STRING32, value.as_bytes());
}

/// Writes a symbol in its shortest form. It must be ASCII.
pub fn put_symbol(out: &mut Vec<u8>, value: &str) {
    debug_assert!(value.is_ascii(), "a symbol is ASCII");
    put_variable(out, code::SYMBOL8, code::SYMBOL32, value.as_bytes());
}

/// Writes a message id.
pub fn put_message_id(out: &mut Vec<u8>, value: MessageId<'_>) {
    match value {
        MessageId::Ulong(v) => put_ulong(out, v),
        MessageId::Uuid(v) => put_uuid(out, v),
        MessageId::Binary(v) => put_binary(out, v),
        MessageId::String(v) => put_string(out, v),
    }
}

/// Writes several symbols as an array, none as an empty one. A single one too is an array: some peers take no other form.
pub fn put_symbols(out: &mut Vec<u8>, symbols: &Symbols<'_>) {
    let wide = symbols.iter().any(|s| s.len() > 0xff);
    put_array(out, if wide { code::SYMBOL32 } else { code::SYMBOL8 }, |out| {
        let mut count = 0;
        for symbol in symbols.iter() {
            put_length(out, wide, symbol.len());
            out.extend_from_slice(symbol.as_bytes());
            count += 1;
        }
        count
    });
}

/// Writes a value as it is.
pub fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    out.extend_from_slice(value.as_bytes());
}

/// Writes a map that came from elsewhere.
pub fn put_map(out: &mut Vec<u8>, map: &Map<'_>) {
    put_compound(out, code::MAP8, code::MAP32, |out| {
        out.extend_from_slice(map.items());
        map.len() * 2
    });
}

/// Writes a list that came from elsewhere.
pub fn put_list(out: &mut Vec<u8>, list: &List<'_>) {
    put_compound(out, code::LIST8, code::LIST32, |out| {
        out.extend_from_slice(list.items());
        list.len()
    });
}

/// Writes the descriptor of a described value; the value must follow.
#[inline]
pub fn put_descriptor(out: &mut Vec<u8>, descriptor: u64) {
    out.push(code::DESCRIBED);
    put_ulong(out, descriptor);
}

/// Writes a symbolic descriptor; the value must follow.
pub fn put_symbolic_descriptor(out: &mut Vec<u8>, descriptor: &str) {
    out.push(code::DESCRIBED);
    put_symbol(out, descriptor);
}

#[inline]
fn put_fixed(out: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    out.push(code);
    out.extend_from_slice(bytes);
}

#[inline]
fn put_variable(out: &mut Vec<u8>, short: u8, long: u8, bytes: &[u8]) {
    let wide = bytes.len() > 0xff;
    out.push(if wide { long } else { short });
    put_length(out, wide, bytes.len());
    out.extend_from_slice(bytes);
}

#[inline]
fn put_length(out: &mut Vec<u8>, wide: bool, len: usize) {
    if wide {
        out.extend_from_slice(&(len as u32).to_be_bytes());
    } else {
        out.push(len as u8);
    }
}

/// Writes a list or map whose elements `fill` writes; it returns how many they are.
pub(crate) fn put_compound(out: &mut Vec<u8>, short: u8, long: u8, fill: impl FnOnce(&mut Vec<u8>) -> u32) {
    let start = out.len();
    out.extend_from_slice(&[short, 0, 0]);
    let count = fill(out);
    close_compound(out, start, long, count);
}

/// Writes an array of elements with the constructor `element`, which `fill` writes without it; it returns their number.
pub(crate) fn put_array(out: &mut Vec<u8>, element: u8, fill: impl FnOnce(&mut Vec<u8>) -> u32) {
    put_compound(out, code::ARRAY8, code::ARRAY32, |out| {
        out.push(element);
        fill(out)
    });
}

/// Fills in size and count of a compound value that was begun in the short form at `start`; widens it when needed.
#[inline]
fn close_compound(out: &mut Vec<u8>, start: usize, long: u8, count: u32) {
    let items = start + 3;
    let size = out.len() - items + 1;
    if size <= 0xff && count <= 0xff {
        if let Some(header) = out.get_mut(start + 1..items) {
            header.copy_from_slice(&[size as u8, count as u8]);
        }
        return;
    }
    widen(out, start, long, count);
}

/// Rare: the elements move by six bytes, from `short size count` to `long size×4 count×4`.
#[cold]
fn widen(out: &mut Vec<u8>, start: usize, long: u8, count: u32) {
    let items = start + 3;
    let len = out.len() - items;
    out.extend_from_slice(&[0; 6]);
    out.copy_within(items..items + len, items + 6);
    let [a, b, c, d] = (len as u32 + 4).to_be_bytes();
    let [e, f, g, h] = count.to_be_bytes();
    if let Some(header) = out.get_mut(start..start + 9) {
        header.copy_from_slice(&[long, a, b, c, d, e, f, g, h]);
    }
}

/// The fields of a composite being written: trailing nulls are never written.
pub(crate) struct FieldsWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    /// Fields written, nulls between them included.
    count: u32,
    /// Nulls that are written once a field that is not null follows.
    nulls: u32,
}

impl<'v> FieldsWriter<'v> {
    /// Begins a composite.
    #[inline]
    pub(crate) fn begin(out: &'v mut Vec<u8>, descriptor: u8) -> Self {
        out.extend_from_slice(&[code::DESCRIBED, code::ULONG8, descriptor, code::LIST8, 0, 0]);
        let start = out.len() - 3;
        Self { out, start, count: 0, nulls: 0 }
    }

    /// Begins a composite whose descriptor is not the standard's.
    pub(crate) fn begin_wide(out: &'v mut Vec<u8>, descriptor: u64) -> Self {
        put_descriptor(out, descriptor);
        out.extend_from_slice(&[code::LIST8, 0, 0]);
        let start = out.len() - 3;
        Self { out, start, count: 0, nulls: 0 }
    }

    /// A field that is null.
    #[inline]
    pub(crate) fn null(&mut self) {
        self.nulls += 1;
    }

    /// Where the next field, which is not null, is written to.
    #[inline]
    pub(crate) fn field(&mut self) -> &mut Vec<u8> {
        for _ in 0..self.nulls {
            self.out.push(code::NULL);
        }
        self.count += self.nulls + 1;
        self.nulls = 0;
        self.out
    }

    /// A field that may be null.
    #[inline(always)]
    pub(crate) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
        match value {
            Some(value) => put(self.field(), value),
            None => self.null(),
        }
    }

    /// A field whose default is written as null.
    #[inline]
    pub(crate) fn unless<T: PartialEq>(&mut self, value: T, default: T, put: impl FnOnce(&mut Vec<u8>, T)) {
        if value == default { self.null() } else { put(self.field(), value) }
    }

    /// Ends the composite.
    #[inline]
    pub(crate) fn finish(self) {
        if self.count == 0 {
            self.out.truncate(self.start);
            self.out.push(code::LIST0);
        } else {
            close_compound(self.out, self.start, code::LIST32, self.count);
        }
    }
}

/// Writes lists, maps and what is in them. The functions `put_*` write single values; this one counts elements.
///
/// ```
/// # extern crate alloc;
/// use packhorse_amqp10::codec::{put_symbol, put_string, ValueWriter};
/// let mut bytes = alloc::vec::Vec::new();
/// ValueWriter::map(&mut bytes, |map| {
///     put_symbol(map.next(), "product");
///     put_string(map.next(), "Packhorse");
/// });
/// assert_eq!(&bytes[..3], &[0xc1, 21, 2]);
/// ```
pub struct ValueWriter<'v> {
    out: &'v mut Vec<u8>,
    count: u32,
}

impl ValueWriter<'_> {
    /// Writes a list whose elements `fill` writes.
    pub fn list(out: &mut Vec<u8>, fill: impl FnOnce(&mut ValueWriter<'_>)) {
        put_compound(out, code::LIST8, code::LIST32, |out| Self::filled(out, fill));
    }

    /// Writes a map whose keys and values `fill` writes by turns.
    pub fn map(out: &mut Vec<u8>, fill: impl FnOnce(&mut ValueWriter<'_>)) {
        put_compound(out, code::MAP8, code::MAP32, |out| Self::filled(out, fill));
    }

    fn filled(out: &mut Vec<u8>, fill: impl FnOnce(&mut ValueWriter<'_>)) -> u32 {
        let mut writer = ValueWriter { out, count: 0 };
        fill(&mut writer);
        writer.count
    }

    /// Where the next element goes. Exactly one value must be written to it (a descriptor and its value are one).
    #[expect(clippy::should_implement_trait, reason = "not an iterator: it hands out the place of the next element")]
    pub fn next(&mut self) -> &mut Vec<u8> {
        self.count += 1;
        self.out
    }
}
