//! What is wrong with a history itself. Nothing here says anything about a broker: a file that cannot be read is not judged.

use std::fmt;

/// A file of a history cannot be used: file, line, and what to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryError {
    /// The name that the source came with.
    pub file: String,
    /// Line, from 1; 0: the file as a whole. In a binary file, the number of the record.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

impl HistoryError {
    pub(crate) fn new(file: &str, line: u64, what: impl Into<String>) -> HistoryError {
        HistoryError { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for HistoryError {}
