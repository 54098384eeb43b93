//! One file of a history as a stream: header, then events one by one, each with its line.
//!
//! Owns the tolerance for a killed writer: an incomplete last line is left out, anything else that cannot be read is an error.

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
        };
        if !source.read_line()? {
            let begins = source.line.len().min(BEGINNING.len());
            let cut = source.line[..begins] == BEGINNING[..begins];
            return if cut { Ok(None) } else { Err(source.error("not a history: it has no first line")) };
        }
        source.header = source.fields.header(&source.line).map_err(|what| source.error(what))?;
        Ok(Some(source))
    }

    /// Goes to the next event. False: there is none.
    pub fn advance(&mut self) -> Result<bool, HistoryError> {
        if !self.read_line()? {
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

    /// Its line, from 1.
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

    /// Whether the file ended in the middle of a line.
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
