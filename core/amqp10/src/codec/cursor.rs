//! Reading from a slice: bytes, descriptors, and the walk that validates a value of any type without recursion.
//! It hands out borrowed slices and numbers; what they mean is the business of `value` and `fields`.

use super::error::Fault;
use crate::limits::Limits;

pub(crate) const DESCRIBED: u8 = 0x00;
pub(crate) const NULL: u8 = 0x40;
pub(crate) const TRUE: u8 = 0x41;
pub(crate) const FALSE: u8 = 0x42;
pub(crate) const UINT0: u8 = 0x43;
pub(crate) const ULONG0: u8 = 0x44;
pub(crate) const LIST0: u8 = 0x45;
pub(crate) const UBYTE: u8 = 0x50;
pub(crate) const BYTE: u8 = 0x51;
pub(crate) const UINT8: u8 = 0x52;
pub(crate) const ULONG8: u8 = 0x53;
pub(crate) const INT8: u8 = 0x54;
pub(crate) const LONG8: u8 = 0x55;
pub(crate) const BOOLEAN: u8 = 0x56;
pub(crate) const USHORT: u8 = 0x60;
pub(crate) const SHORT: u8 = 0x61;
pub(crate) const UINT: u8 = 0x70;
pub(crate) const INT: u8 = 0x71;
pub(crate) const FLOAT: u8 = 0x72;
pub(crate) const CHAR: u8 = 0x73;
pub(crate) const DECIMAL32: u8 = 0x74;
pub(crate) const ULONG: u8 = 0x80;
pub(crate) const LONG: u8 = 0x81;
pub(crate) const DOUBLE: u8 = 0x82;
pub(crate) const TIMESTAMP: u8 = 0x83;
pub(crate) const DECIMAL64: u8 = 0x84;
pub(crate) const DECIMAL128: u8 = 0x94;
pub(crate) const UUID: u8 = 0x98;
pub(crate) const BINARY8: u8 = 0xa0;
pub(crate) const STRING8: u8 = 0xa1;
pub(crate) const SYMBOL8: u8 = 0xa3;
pub(crate) const BINARY32: u8 = 0xb0;
pub(crate) const STRING32: u8 = 0xb1;
pub(crate) const SYMBOL32: u8 = 0xb3;
pub(crate) const LIST8: u8 = 0xc0;
pub(crate) const MAP8: u8 = 0xc1;
pub(crate) const LIST32: u8 = 0xd0;
pub(crate) const MAP32: u8 = 0xd1;
pub(crate) const ARRAY8: u8 = 0xe0;
pub(crate) const ARRAY32: u8 = 0xf0;

/// How far a walk may go; see [`Limits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Levels of nesting.
    pub(crate) depth: u8,
    /// Elements of an array whose elements take no bytes.
    pub(crate) zero_width: u32,
    /// Whether the text of strings and symbols, the truth of booleans and the range of chars is looked at.
    pub(crate) content: bool,
}

impl Bounds {
    /// For a value the broker looks into.
    pub(crate) fn parsed(limits: &Limits) -> Self {
        Self {
            depth: limits.parsed_depth.min(Limits::MAX_DEPTH),
            zero_width: limits.zero_width_elements,
            content: true,
        }
    }

    /// For a value that is only passed on.
    pub(crate) fn skipped(limits: &Limits) -> Self {
        Self {
            depth: limits.skipped_depth.min(Limits::MAX_DEPTH),
            zero_width: limits.zero_width_elements,
            content: false,
        }
    }
}

/// A descriptor: number or symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// Numeric: domain in the upper 32 bits, id in the lower.
    Code(u64),
    /// Symbolic.
    Symbol(&'a str),
}

impl Descriptor<'_> {
    /// The number, if it is one.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        match *self {
            Self::Code(code) => Some(code),
            Self::Symbol(_) => None,
        }
    }

    /// Whether it is either form of one type's descriptor.
    #[must_use]
    pub fn is(&self, code: u64, symbol: &str) -> bool {
        match *self {
            Self::Code(c) => c == code,
            Self::Symbol(s) => s == symbol,
        }
    }
}

/// A place in a slice, read forwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                Ok(byte)
            }
            None => Err(Fault::Truncated { needed: 1, left: 0 }),
        }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        match self.rest.split_first_chunk::<N>() {
            Some((chunk, rest)) => {
                self.rest = rest;
                Ok(*chunk)
            }
            None => Err(self.truncated(N as u64)),
        }
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: u32) -> Result<&'a [u8], Fault> {
        // A u32 fits a usize on every target this crate builds for (32 bits and up).
        match self.rest.split_at_checked(len as usize) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.truncated(u64::from(len))),
        }
    }

    #[cold]
    fn truncated(&self, needed: u64) -> Fault {
        Fault::Truncated { needed, left: self.rest.len() as u64 }
    }

    /// A length of one or four bytes: those of variable-width and compound types.
    #[inline]
    pub(crate) fn length(&mut self, wide: bool) -> Result<u32, Fault> {
        if wide { self.u32() } else { self.u8().map(u32::from) }
    }

    /// Reads the descriptor of a described value, whose `0x00` was read.
    //= amqp10 1.2 (descriptors are ulong or symbol; others are reserved)
    pub(crate) fn descriptor(&mut self) -> Result<Descriptor<'a>, Fault> {
        match self.u8()? {
            ULONG8 => Ok(Descriptor::Code(u64::from(self.u8()?))),
            ULONG => Ok(Descriptor::Code(self.u64()?)),
            ULONG0 => Ok(Descriptor::Code(0)),
            code @ (SYMBOL8 | SYMBOL32) => {
                let len = self.length(code == SYMBOL32)?;
                ascii(self.take(len)?).map(Descriptor::Symbol)
            }
            constructor => Err(Fault::BadDescriptor { constructor }),
        }
    }

    /// Validates the next value and returns its bytes, constructor included.
    #[inline]
    pub(crate) fn value(&mut self, bounds: Bounds) -> Result<&'a [u8], Fault> {
        let start = self.rest;
        match start.split_first() {
            // Most values have nothing inside: they need no stack.
            Some((&code, rest)) if code != DESCRIBED && code < LIST8 => {
                self.rest = rest;
                self.skip_scalar(code, bounds.content)?;
            }
            _ => self.walk(bounds)?,
        }
        let len = start.len() - self.rest.len();
        Ok(start.get(..len).unwrap_or_default())
    }

    /// Reads size and count of a list, map or array. What is returned lies inside what is left, and no count is larger
    /// than the bytes that are there for it.
    #[inline]
    pub(crate) fn compound(&mut self, code: u8) -> Result<(u32, Cursor<'a>), Fault> {
        let wide = code & 0x10 != 0;
        let size = self.length(wide)?;
        if size < if wide { 4 } else { 1 } {
            return Err(Fault::SizeTooSmall { size });
        }
        let mut body = Cursor::new(self.take(size)?);
        let count = body.length(wide)?;
        if matches!(code, LIST8 | LIST32 | MAP8 | MAP32) {
            if u64::from(count) > body.rest.len() as u64 {
                return Err(Fault::CountTooLarge { count, bytes: body.rest.len() as u64 });
            }
            if matches!(code, MAP8 | MAP32) && count % 2 != 0 {
                return Err(Fault::OddMap { count });
            }
        }
        Ok((count, body))
    }

    /// Reads the constructor of an array's elements behind the array's count: the descriptors are passed over.
    /// Returns the constructor and the number of descriptors.
    pub(crate) fn element_constructor(&mut self, depth_limit: u8) -> Result<(u8, u8), Fault> {
        let mut descriptors = 0u8;
        loop {
            let code = self.u8()?;
            if code != DESCRIBED {
                return Ok((code, descriptors));
            }
            descriptors += 1;
            if descriptors > depth_limit {
                return Err(Fault::TooDeep { limit: depth_limit });
            }
            self.descriptor()?;
        }
    }

    /// Passes over the next value, whatever it is. No recursion: the stack is an array, as deep as the limit allows.
    //= amqp10 1.2, 1.6
    #[inline(never)]
    fn walk(&mut self, bounds: Bounds) -> Result<(), Fault> {
        /// An open list, map or array.
        #[derive(Clone, Copy)]
        struct Level {
            /// Elements that are still to come.
            left: u32,
            /// Bytes of `rest` that remain when it is complete.
            end: usize,
            /// Constructor of all elements, for an array.
            element: Option<u8>,
            /// Nesting of its elements.
            depth: u8,
        }
        let mut stack = [Level { left: 0, end: 0, element: None, depth: 0 }; Limits::MAX_DEPTH as usize];
        let mut open = 0usize;
        loop {
            let (mut depth, element, end) = match open.checked_sub(1).and_then(|top| stack.get(top)) {
                Some(level) => (level.depth, level.element, level.end),
                None => (0, None, 0),
            };
            // An element must not reach past the compound value it is in: that one sees fewer bytes than `self`.
            let mut inner = Cursor::new(self.rest.get(..self.rest.len() - end).unwrap_or_default());
            let code = match element {
                Some(code) => code,
                None => loop {
                    let code = inner.u8()?;
                    if code != DESCRIBED {
                        break code;
                    }
                    depth += 1;
                    if depth > bounds.depth {
                        return Err(Fault::TooDeep { limit: bounds.depth });
                    }
                    inner.descriptor()?;
                },
            };
            let mut pushed = false;
            match code {
                LIST8 | LIST32 | MAP8 | MAP32 | ARRAY8 | ARRAY32 => {
                    let (count, mut body) = inner.compound(code)?;
                    let mut level = Level { left: count, end: inner.rest.len() + end, element: None, depth: depth + 1 };
                    if level.depth > bounds.depth {
                        return Err(Fault::TooDeep { limit: bounds.depth });
                    }
                    if matches!(code, ARRAY8 | ARRAY32) {
                        level.left = body.array_header(count, bounds, &mut level.depth, &mut level.element)?;
                    }
                    if level.left == 0 {
                        if !body.is_empty() {
                            return Err(Fault::SizeMismatch);
                        }
                    } else {
                        // Back to the start of the elements: `body` ends where `inner` goes on.
                        inner.rest = self
                            .rest
                            .get(self.rest.len() - end - inner.rest.len() - body.rest.len()..)
                            .unwrap_or_default();
                        let slot = stack.get_mut(open).ok_or(Fault::TooDeep { limit: bounds.depth })?;
                        *slot = level;
                        open += 1;
                        pushed = true;
                        self.rest = inner.rest;
                    }
                }
                _ => inner.skip_scalar(code, bounds.content)?,
            }
            if pushed {
                continue;
            }
            // `inner` is `self` without the last `end` bytes.
            let read = self.rest.len() - end - inner.rest.len();
            self.rest = self.rest.get(read..).unwrap_or_default();
            // One element is complete; with it perhaps the compound values that end here.
            loop {
                let Some(level) = open.checked_sub(1).and_then(|top| stack.get_mut(top)) else { return Ok(()) };
                level.left -= 1;
                if level.left > 0 {
                    break;
                }
                if self.rest.len() != level.end {
                    return Err(Fault::SizeMismatch);
                }
                open -= 1;
            }
        }
    }

    /// Reads what stands before an array's elements and passes over elements of a fixed width at once.
    /// Returns how many elements are still to be walked.
    fn array_header(
        &mut self,
        count: u32,
        bounds: Bounds,
        depth: &mut u8,
        element: &mut Option<u8>,
    ) -> Result<u32, Fault> {
        if count == 0 && self.is_empty() {
            // Some encoders leave the constructor out when there is no element. ^
            return Ok(0);
        }
        let (code, descriptors) = self.element_constructor(bounds.depth)?;
        *depth = depth.saturating_add(descriptors);
        if *depth > bounds.depth {
            return Err(Fault::TooDeep { limit: bounds.depth });
        }
        *element = Some(code);
        let bytes = self.rest.len() as u64;
        let width = match fixed_width(code) {
            Some(width) => width,
            None if is_variable_or_compound(code) => {
                if u64::from(count) > bytes {
                    return Err(Fault::CountTooLarge { count, bytes });
                }
                return Ok(count);
            }
            None => return Err(Fault::UnknownConstructor(code)),
        };
        if width == 0 && count > bounds.zero_width {
            return Err(Fault::ZeroWidthArray { count, limit: bounds.zero_width });
        }
        match (u64::from(count) * u64::from(width)).cmp(&bytes) {
            core::cmp::Ordering::Greater => return Err(Fault::CountTooLarge { count, bytes }),
            core::cmp::Ordering::Less => return Err(Fault::SizeMismatch),
            core::cmp::Ordering::Equal => {}
        }
        if bounds.content && matches!(code, BOOLEAN | CHAR) {
            return Ok(count);
        }
        self.rest = &[];
        Ok(0)
    }

    /// Passes over a value that has no elements.
    #[inline]
    fn skip_scalar(&mut self, code: u8, content: bool) -> Result<(), Fault> {
        if let Some(width) = fixed_width(code) {
            let bytes = self.take(u32::from(width))?;
            if content {
                match (code, bytes) {
                    (BOOLEAN, &[byte]) if byte > 1 => return Err(Fault::BadBoolean(byte)),
                    (CHAR, &[a, b, c, d]) => {
                        char(u32::from_be_bytes([a, b, c, d]))?;
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        match code {
            BINARY8 | STRING8 | SYMBOL8 | BINARY32 | STRING32 | SYMBOL32 => {
                let len = self.length(code & 0x10 != 0)?;
                let bytes = self.take(len)?;
                if content {
                    match code {
                        STRING8 | STRING32 => {
                            utf8(bytes)?;
                        }
                        SYMBOL8 | SYMBOL32 => {
                            ascii(bytes)?;
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Err(Fault::UnknownConstructor(code)),
        }
    }
}

/// Bytes of a fixed-width type behind its constructor.
//= amqp10 1.2 (table of constructors)
#[inline]
pub(crate) fn fixed_width(code: u8) -> Option<u8> {
    Some(match code {
        NULL | TRUE | FALSE | UINT0 | ULONG0 | LIST0 => 0,
        UBYTE | BYTE | UINT8 | ULONG8 | INT8 | LONG8 | BOOLEAN => 1,
        USHORT | SHORT => 2,
        UINT | INT | FLOAT | CHAR | DECIMAL32 => 4,
        ULONG | LONG | DOUBLE | TIMESTAMP | DECIMAL64 => 8,
        DECIMAL128 | UUID => 16,
        _ => return None,
    })
}

/// Whether a constructor is one whose size stands behind it.
pub(crate) fn is_variable_or_compound(code: u8) -> bool {
    matches!(
        code,
        BINARY8 | STRING8 | SYMBOL8 | BINARY32 | STRING32 | SYMBOL32 | LIST8 | MAP8 | LIST32 | MAP32 | ARRAY8 | ARRAY32
    )
}

/// The text of a string.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Fault> {
    core::str::from_utf8(bytes).map_err(|_| Fault::BadUtf8)
}

/// The text of a symbol.
#[inline]
pub(crate) fn ascii(bytes: &[u8]) -> Result<&str, Fault> {
    if bytes.is_ascii() { core::str::from_utf8(bytes).map_err(|_| Fault::BadSymbol) } else { Err(Fault::BadSymbol) }
}

/// A char of its number.
#[inline]
pub(crate) fn char(value: u32) -> Result<char, Fault> {
    core::char::from_u32(value).ok_or(Fault::BadChar(value))
}
