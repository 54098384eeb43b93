//! The name of a branch, and the notations in which people meet it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

/// Most bytes of the global id, and of the qualifier.
pub const PART_LIMIT_BYTES: usize = 64;

/// A branch's name. Equal when all three parts are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    format_id: i32,
    /// Length of the global id in `bytes`.
    global: u8,
    bytes: Box<[u8]>,
}

/// Reads a part of a notation.
type Read = fn(&str) -> Option<Vec<u8>>;

/// Why something is no xid: `XAER_INVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidError {
    /// A part is too long.
    TooLong {
        /// `global id` or `branch qualifier`.
        part: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Format −1 is XA's word for no xid at all.
    Null,
    /// The text is in none of the notations.
    Notation,
}

impl fmt::Display for XidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XidError::TooLong { part, bytes } => {
                write!(f, "the {part} has {bytes} bytes; the limit is {PART_LIMIT_BYTES}")
            }
            XidError::Null => f.write_str("format id -1 means that there is no xid: take another"),
            XidError::Notation => f.write_str(
                "not an xid: known are format:hex:hex, format_base64_base64 and X'hex',X'hex',format, of global id and qualifier",
            ),
        }
    }
}

impl core::error::Error for XidError {}

impl Xid {
    /// A name of these parts.
    pub fn new(format_id: i32, global: &[u8], qualifier: &[u8]) -> Result<Xid, XidError> {
        for (part, bytes) in [("global id", global), ("branch qualifier", qualifier)] {
            if bytes.len() > PART_LIMIT_BYTES {
                return Err(XidError::TooLong { part, bytes: bytes.len() });
            }
        }
        if format_id == -1 {
            return Err(XidError::Null);
        }
        let bytes = [global, qualifier].concat().into_boxed_slice();
        Ok(Xid { format_id, global: global.len() as u8, bytes })
    }

    /// The format id.
    #[must_use]
    pub fn format_id(&self) -> i32 {
        self.format_id
    }

    /// The global id.
    #[must_use]
    pub fn global(&self) -> &[u8] {
        &self.bytes[..usize::from(self.global)]
    }

    /// The branch qualifier.
    #[must_use]
    pub fn qualifier(&self) -> &[u8] {
        &self.bytes[usize::from(self.global)..]
    }

    /// `format_base64(global)_base64(qualifier)`, as JDBC drivers name prepared transactions.
    #[must_use]
    pub fn base64(&self) -> String {
        let mut out = String::new();
        let _ = write!(out, "{}_", self.format_id);
        put_base64(&mut out, self.global());
        out.push('_');
        put_base64(&mut out, self.qualifier());
        out
    }

    /// `X'global',X'qualifier',format` in hexadecimal, as SQL databases write it.
    #[must_use]
    pub fn sql(&self) -> String {
        let mut out = String::from("X'");
        put_hex(&mut out, self.global());
        out.push_str("',X'");
        put_hex(&mut out, self.qualifier());
        let _ = write!(out, "',{}", self.format_id);
        out
    }

    /// Reads any of the three notations.
    pub fn parse(text: &str) -> Result<Xid, XidError> {
        let text = text.trim();
        let (format, global, qualifier, read): (_, _, _, Read) =
            if let Some(rest) = text.strip_prefix("X'").or_else(|| text.strip_prefix("x'")) {
                let (global, rest) = rest.split_once("',").ok_or(XidError::Notation)?;
                let rest = rest.strip_prefix("X'").or_else(|| rest.strip_prefix("x'")).ok_or(XidError::Notation)?;
                let (qualifier, format) = rest.split_once("',").ok_or(XidError::Notation)?;
                (format, global, qualifier, hex)
            } else {
                let (separator, read): (_, Read) = if text.contains(':') { (':', hex) } else { ('_', base64) };
                let mut parts = text.splitn(3, separator);
                let mut part = || parts.next().ok_or(XidError::Notation);
                (part()?, part()?, part()?, read)
            };
        let format = format.trim().parse().map_err(|_| XidError::Notation)?;
        let global = read(global).ok_or(XidError::Notation)?;
        let qualifier = read(qualifier).ok_or(XidError::Notation)?;
        Xid::new(format, &global, &qualifier)
    }
}

/// `format:global:qualifier`, the last two in hexadecimal: ours.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        put_hex(&mut out, self.global());
        out.push(':');
        put_hex(&mut out, self.qualifier());
        write!(f, "{}:{out}", self.format_id)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn put_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|d| d.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn put_base64(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|&d| d == digit)?;
        bits = (bits << 6 | value as u32) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn three_notations_there_and_back() {
        let x = Xid::new(131_077, b"\x00\xffg", b"ab").unwrap();
        assert_eq!(x.to_string(), "131077:00ff67:6162");
        assert_eq!(x.base64(), "131077_AP9n_YWI=");
        assert_eq!(x.sql(), "X'00ff67',X'6162',131077");
        for length in 0..=PART_LIMIT_BYTES {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 37 + length) as u8).collect();
            let x = Xid::new(-7, &bytes, &bytes[length / 3..]).unwrap();
            assert_eq!((x.global(), x.qualifier(), x.format_id()), (&*bytes, &bytes[length / 3..], -7));
            for text in [x.to_string(), x.base64(), x.sql()] {
                assert_eq!(Xid::parse(&text), Ok(x.clone()), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_xid_is_refused() {
        for text in [
            "",
            "1",
            "1:ab",
            "1:abc:00",
            "1:zz:00",
            "x:00:00",
            "1_A_AA==",
            "1_AA===_",
            "1_A*==_AA==",
            "X'00',00',1",
            "X'00'",
        ] {
            assert_eq!(Xid::parse(text), Err(XidError::Notation), "{text}");
        }
        assert_eq!(Xid::parse("-1:00:00"), Err(XidError::Null));
        let long = "00".repeat(65);
        let wrong = XidError::TooLong { part: "branch qualifier", bytes: 65 };
        assert_eq!(Xid::parse(&alloc::format!("1::{long}")), Err(wrong));
    }
}
