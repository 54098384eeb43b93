//! The body of a message and its footer: checked where all of it is here, scanned by sizes where it streams past, and
//! written. Contents of binaries and texts are nobody's business here.

use alloc::vec::Vec;

use super::keys::{self, Keys};
use super::{Section, section_descriptor};
use crate::codec::cursor::{self, Bounds, Cursor, fixed_width};
use crate::codec::{DecodeError, Fault, List, Value, ValueWriter, put_binary, put_descriptor};
use crate::limits::Limits;

/// A walk whose limits were applied before.
pub(super) const TRUSTED: Bounds = Bounds { depth: Limits::MAX_DEPTH, zero_width: u32::MAX, content: false };

/// A section of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySection<'a> {
    /// Bytes.
    Data(&'a [u8]),
    /// A list.
    Sequence(List<'a>),
    /// A value. A text in it that is not valid shows as null.
    Value(Value<'a>),
}

/// Checks everything from `at` on: body sections and footer. Returns where the footer begins, or the end.
pub(super) fn check(bytes: &[u8], at: usize, last: Option<Section>, limits: &Limits) -> Result<usize, DecodeError> {
    let bounds = Bounds::skipped(limits);
    let mut last = last;
    let mut cursor = Cursor::new(bytes.get(at..).unwrap_or_default());
    while !cursor.is_empty() {
        let start = bytes.len() - cursor.rest().len();
        let descriptor =
            section_descriptor(&mut cursor).map_err(|fault| DecodeError::Value { what: "message section", fault })?;
        let section = Section::of(descriptor)?;
        section.follows(last)?;
        last = Some(section);
        let of = |fault| DecodeError::Value { what: section.name(), fault };
        constructor_fits(section, cursor.peek()).map_err(of)?;
        let value = cursor.value(bounds).map_err(of)?;
        if section == Section::Footer {
            keys::check(value, section, Keys::Annotations, bounds)?;
            return if cursor.is_empty() { Ok(start) } else { Err(behind_footer(cursor)) };
        }
    }
    Ok(bytes.len())
}

/// What is wrong with bytes behind a footer: a section out of order, or no section.
#[cold]
fn behind_footer(mut cursor: Cursor<'_>) -> DecodeError {
    match section_descriptor(&mut cursor) {
        Ok(descriptor) => match Section::of(descriptor) {
            Ok(section) => DecodeError::SectionOrder { section: section.name(), after: Section::Footer.name() },
            Err(error) => error,
        },
        Err(fault) => DecodeError::Value { what: "message section", fault },
    }
}

/// Whether a section's value may begin with this constructor. Nothing there is left for the reader to complain about.
fn constructor_fits(section: Section, constructor: Option<u8>) -> Result<(), Fault> {
    let Some(constructor) = constructor else { return Ok(()) };
    let (expected, fits) = match section {
        Section::Data => ("binary", matches!(constructor, cursor::BINARY8 | cursor::BINARY32)),
        Section::Value => return Ok(()),
        Section::Header | Section::Properties | Section::Sequence => {
            ("list", matches!(constructor, cursor::LIST0 | cursor::LIST8 | cursor::LIST32))
        }
        _ => ("map", matches!(constructor, cursor::MAP8 | cursor::MAP32)),
    };
    if fits { Ok(()) } else { Err(Fault::WrongType { expected, constructor }) }
}

/// The complete body sections at the start of `bytes`, which were checked before as far as they are complete.
pub(super) fn sections<'a>(bytes: &'a [u8]) -> impl Iterator<Item = BodySection<'a>> + use<'a> {
    let mut cursor = Cursor::new(bytes);
    core::iter::from_fn(move || {
        let section = Section::of(section_descriptor(&mut cursor).ok()?).ok()?;
        let value = Value::read(&mut cursor, TRUSTED).ok()?;
        match section {
            Section::Data => value.as_binary().map(BodySection::Data),
            Section::Sequence => value.as_list().map(BodySection::Sequence),
            Section::Value => Some(BodySection::Value(value)),
            _ => None,
        }
    })
}

/// Checks sections of a message as their bytes pass: their order, constructors, sizes that add up. What is inside a list,
/// map or array is passed over by its size. It holds 64 bytes and no more.
///
/// [`MessageView::body_scan`](super::MessageView::body_scan) makes one that goes on behind a view of the head, which checks
/// more; [`BodyScan::new`] makes one that starts at the message's first byte.
#[derive(Clone, Debug)]
pub struct BodyScan {
    /// Offset in the message of the next byte to come, or of the first byte in `held`.
    offset: u64,
    /// The start of a section that is not complete enough to tell its size.
    held: [u8; HELD],
    held_len: u8,
    /// Bytes of the current section that are passed over.
    skip: u64,
    last: Option<Section>,
    /// The section whose value is being read: its descriptor was seen, the size of its value not yet.
    inside: Option<Section>,
    /// Descriptors in front of the value.
    depth: u8,
    max_depth: u8,
    footer: Option<u64>,
}

/// More than the longest descriptor of a section, and than constructor, size and count of any value.
const HELD: usize = 64;

impl BodyScan {
    /// A scan from a message's first byte on.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self::after(0, None, limits)
    }

    /// A scan from `offset` on, behind the section `last`.
    pub(super) fn after(offset: u64, last: Option<Section>, limits: &Limits) -> Self {
        Self {
            offset,
            held: [0; HELD],
            held_len: 0,
            skip: 0,
            last,
            inside: None,
            depth: 0,
            max_depth: Bounds::skipped(limits).depth,
            footer: None,
        }
    }

    /// Takes the next bytes of the message.
    ///
    /// # Errors
    /// What is wrong with the body. The scan is of no use afterwards.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), DecodeError> {
        loop {
            let skipped = self.skip.min(chunk.len() as u64);
            self.skip -= skipped;
            self.offset += skipped;
            chunk = chunk.get(skipped as usize..).unwrap_or_default();
            if chunk.is_empty() {
                return Ok(());
            }
            // The start of a section, or of a value, may lie across chunks: it is read from a small copy.
            let held = usize::from(self.held_len);
            let more = chunk.len().min(HELD - held);
            if let (Some(to), Some(from)) = (self.held.get_mut(held..held + more), chunk.get(..more)) {
                to.copy_from_slice(from);
            }
            let known = held + more;
            let copy = self.held;
            match self.step(copy.get(..known).unwrap_or_default())? {
                Some(used) => {
                    // What was held before is shorter than what a step uses, or the step would have been possible before.
                    self.held_len = 0;
                    self.offset += used as u64;
                    chunk = chunk.get(used.saturating_sub(held)..).unwrap_or_default();
                }
                None if known == HELD => {
                    // No descriptor of a section is that long; other descriptors are passed over by their length.
                    return Err(DecodeError::UnknownSection { code: None });
                }
                None => {
                    self.held_len = known as u8;
                    return Ok(());
                }
            }
        }
    }

    /// Reads one descriptor, or the start of one value, of bytes that may end too early: then `None`.
    /// Otherwise returns how many bytes were read; `skip` says how many to pass over behind them.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let Some(section) = self.inside else {
            let descriptor = match section_descriptor(&mut cursor) {
                Ok(descriptor) => descriptor,
                Err(Fault::Truncated { .. }) => return Ok(None),
                Err(fault) => return Err(self.of(fault)),
            };
            let section = Section::of(descriptor)?;
            section.follows(self.last)?;
            if section == Section::Footer {
                self.footer = Some(self.offset);
            }
            self.last = Some(section);
            self.inside = Some(section);
            self.depth = 0;
            return Ok(Some(bytes.len() - cursor.rest().len()));
        };
        constructor_fits(section, cursor.peek()).map_err(|fault| self.of(fault))?;
        let size = match value_start(&mut cursor) {
            Ok(Start::Descriptor(size)) => {
                if self.depth >= self.max_depth {
                    return Err(self.of(Fault::TooDeep { limit: self.max_depth }));
                }
                self.depth += 1;
                self.skip = size;
                return Ok(Some(bytes.len() - cursor.rest().len()));
            }
            Ok(Start::Value(size)) => size,
            Err(Fault::Truncated { .. }) => return Ok(None),
            Err(fault) => return Err(self.of(fault)),
        };
        self.skip = size;
        self.inside = None;
        Ok(Some(bytes.len() - cursor.rest().len()))
    }

    /// Ends the scan: all bytes of the message were given. Returns where the footer begins, or the end of the message.
    ///
    /// # Errors
    /// The message ends inside a section, or has none at all.
    pub fn finish(&self) -> Result<u64, DecodeError> {
        if self.skip > 0 || self.held_len > 0 || self.inside.is_some() {
            return Err(self.of(Fault::Truncated { needed: self.skip.max(1), left: 0 }));
        }
        if self.last.is_none() {
            return Err(DecodeError::EmptyMessage);
        }
        Ok(self.footer.unwrap_or(self.offset))
    }

    fn of(&self, fault: Fault) -> DecodeError {
        let what = self.inside.or(self.last.filter(|_| self.skip > 0)).map_or("message section", Section::name);
        DecodeError::Value { what, fault }
    }
}

/// What a value starts with.
enum Start {
    /// A descriptor, of which that many bytes follow; behind them the value.
    Descriptor(u64),
    /// Constructor and size; that many bytes follow.
    Value(u64),
}

fn value_start(cursor: &mut Cursor<'_>) -> Result<Start, Fault> {
    let code = cursor.u8()?;
    if code == cursor::DESCRIBED {
        return Ok(Start::Descriptor(match cursor.u8()? {
            cursor::ULONG0 => 0,
            cursor::ULONG8 => 1,
            cursor::ULONG => 8,
            cursor::SYMBOL8 => cursor.length(false)?.into(),
            cursor::SYMBOL32 => cursor.length(true)?.into(),
            constructor => return Err(Fault::BadDescriptor { constructor }),
        }));
    }
    if let Some(width) = fixed_width(code) {
        return Ok(Start::Value(width.into()));
    }
    let wide = code & 0x10 != 0;
    match code & 0xe0 {
        0xa0 if cursor::is_variable_or_compound(code) => cursor.length(wide).map(|size| Start::Value(size.into())),
        0xc0 | 0xe0 if cursor::is_variable_or_compound(code) => {
            let size = cursor.length(wide)?;
            let count_width = if wide { 4 } else { 1 };
            if size < count_width {
                return Err(Fault::SizeTooSmall { size });
            }
            let count = cursor.length(wide)?;
            let rest = size - count_width;
            if code & 0xe0 == 0xc0 && count > rest {
                return Err(Fault::CountTooLarge { count, bytes: rest.into() });
            }
            if matches!(code, cursor::MAP8 | cursor::MAP32) && count % 2 != 0 {
                return Err(Fault::OddMap { count });
            }
            Ok(Start::Value(rest.into()))
        }
        _ => Err(Fault::UnknownConstructor(code)),
    }
}

/// Writes a data section.
//= amqp10 3.2.6
pub fn write_data(out: &mut Vec<u8>, bytes: &[u8]) {
    put_descriptor(out, u64::from(Section::Data.code()));
    put_binary(out, bytes);
}

/// Writes an amqp-sequence section whose elements `fill` writes.
//= amqp10 3.2.7
pub fn write_sequence(out: &mut Vec<u8>, fill: impl FnOnce(&mut ValueWriter<'_>)) {
    put_descriptor(out, u64::from(Section::Sequence.code()));
    ValueWriter::list(out, fill);
}

/// Writes an amqp-value section; `fill` must write exactly one value.
//= amqp10 3.2.8
pub fn write_value(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    put_descriptor(out, u64::from(Section::Value.code()));
    fill(out);
}
