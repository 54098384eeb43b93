//! One file of a history as a stream: header, then events one by one, each with its line.
//!
//! Knows both formats by their first byte. Owns the tolerance for a killed writer: an incomplete last line or record is left out, anything else that cannot be read is an error.

use crate::binary::{Decoder, MAGIC};
use crate::error::HistoryError;
use crate::event::{Event, Header};
use crate::scan::Fields;
use std::io::BufRead;

/// Longest line; a longer one is no history.
const LINE_BYTES: usize = 1 << 20;
/// How a header that we wrote begins.
const BEGINNING: &[u8] = b"{\"packhorse_history\":";

/// A file being read.
#[derive(Debug)]
pub struct Source<R> {
    name: String,
    reader: R,
    header: Header,
    line: Vec<u8>,
    number: u64,
    fields: Fields,
    at_ns: u64,
    cut: bool,
    /// Of a binary file.
    decoder: Option<Decoder>,
}

impl<R: BufRead> Source<R> {
    /// Reads the header. `name` is what errors and violations call the file. None: the writer was killed before its header was whole,
    /// so it has done nothing.
    pub fn open(name: String, reader: R) -> Result<Option<Source<R>>, HistoryError> {
        let header = Header {
            run: 0,
            process: String::new(),
            pid: 0,
            incarnation: 0,
            clock: String::new(),
            mono_ns: 0,
            wall_ns: 0,
        };
        let mut source = Source {
            name,
            reader,
            header,
            line: Vec::new(),
            number: 0,
            fields: Fields::default(),
            at_ns: 0,
            cut: false,
            decoder: None,
        };
        if source.is_binary()? {
            return source.open_binary();
        }
        if !source.read_line()? {
            let begins = source.line.len().min(BEGINNING.len());
            let cut = source.line[..begins] == BEGINNING[..begins];
            return if cut { Ok(None) } else { Err(source.error("not a history: it has no first line")) };
        }
        source.header = source.fields.header(&source.line).map_err(|what| source.error(what))?;
        Ok(Some(source))
    }

    /// A binary file begins with `p`, a header in JSON with a brace or a blank.
    fn is_binary(&mut self) -> Result<bool, HistoryError> {
        let first = self.reader.fill_buf().map(|bytes| bytes.first().copied());
        Ok(first.map_err(|error| self.error(format!("cannot read: {error}")))? == Some(MAGIC[0]))
    }

    fn open_binary(mut self) -> Result<Option<Source<R>>, HistoryError> {
        self.number = 1;
        self.read_bytes(MAGIC.len() as u64)?;
        if self.line.len() < MAGIC.len() && MAGIC.starts_with(&self.line) {
            return Ok(None);
        }
        if self.line != MAGIC {
            return Err(self.error("not a history of this version: it begins with other bytes than `phHIST1`"));
        }
        if !self.read_record()? {
            return Ok(None);
        }
        let mut decoder = Decoder::default();
        decoder.header(&mut self.line, &mut self.fields).map_err(|what| self.error(what))?;
        self.header = self.fields.header(&self.line).map_err(|what| self.error(what))?;
        decoder.begin(self.header.mono_ns);
        self.decoder = Some(decoder);
        Ok(Some(self))
    }

    /// The next record of a binary file into `line`. False: there is none, or not the whole of it.
    fn read_record(&mut self) -> Result<bool, HistoryError> {
        let mut length = 0u64;
        for shift in [0, 7, 14] {
            self.read_bytes(1)?;
            let Some(&byte) = self.line.first() else {
                self.cut = shift > 0;
                return Ok(false);
            };
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.read_bytes(length)?;
                self.cut = (self.line.len() as u64) < length;
                return Ok(!self.cut);
            }
        }
        Err(self.error("a record of more than 2 MiB"))
    }

    /// So many bytes into `line`, or what there is.
    fn read_bytes(&mut self, count: u64) -> Result<(), HistoryError> {
        self.line.clear();
        let mut missing = count as usize;
        while missing > 0 {
            let there = match self.reader.fill_buf() {
                Ok(there) => there,
                Err(error) => return Err(self.error(format!("cannot read: {error}"))),
            };
            let taken = there.len().min(missing);
            if taken == 0 {
                break;
            }
            self.line.extend_from_slice(&there[..taken]);
            self.reader.consume(taken);
            missing -= taken;
        }
        Ok(())
    }

    /// Goes to the next event. False: there is none.
    pub fn advance(&mut self) -> Result<bool, HistoryError> {
        if let Some(mut decoder) = self.decoder.take() {
            self.number += 1;
            let there = self.read_record();
            let taken = match there {
                Ok(true) => decoder.event(&mut self.line, &mut self.fields),
                _ => Ok(()),
            };
            self.decoder = Some(decoder);
            taken.map_err(|what| self.error(what))?;
            if !there? {
                return Ok(false);
            }
        } else if !self.read_line()? {
            return Ok(false);
        }
        self.at_ns = self.fields.at_ns(&self.line).map_err(|what| self.error(what))?;
        Ok(true)
    }

    /// The event that `advance` went to.
    pub fn event(&self) -> Result<Event<'_>, HistoryError> {
        self.fields.event(&self.line).map_err(|what| self.error(what))
    }

    /// When it happened, on the monotonic clock.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Its line, from 1; in a binary file the number of its record.
    pub fn line(&self) -> u64 {
        self.number
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the file ended in the middle of a line or record.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn error(&self, what: impl Into<String>) -> HistoryError {
        HistoryError::new(&self.name, self.number, what)
    }

    fn read_line(&mut self) -> Result<bool, HistoryError> {
        self.line.clear();
        self.number += 1;
        let mut limited = std::io::Read::take(&mut self.reader, LINE_BYTES as u64);
        let read =
            limited.read_until(b'\n', &mut self.line).map_err(|error| self.error(format!("cannot read: {error}")))?;
        if read == 0 {
            return Ok(false);
        }
        if self.line.pop_if(|last| *last == b'\n').is_none() {
            if read == LINE_BYTES {
                return Err(self.error(format!("a line of more than {LINE_BYTES} bytes")));
            }
            // The writer was killed in the middle of this write, so it has not acted on it either.
            self.cut = true;
            return Ok(false);
        }
        self.fields.scan(&mut self.line).map_err(|what| HistoryError::new(&self.name, self.number, what))?;
        Ok(true)
    }
}
