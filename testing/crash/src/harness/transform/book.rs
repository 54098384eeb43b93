//! A worker's own book of its commits: what it asked for, and what it knows became of it. It outlives the process, as an application's
//! database would: a commit is in it before it is asked for.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A commit that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its number in the client's session.
    pub(super) counter: u64,
    /// The transaction in the history; `None`: one without work, by which the broker comes to know the session.
    pub(super) tx: Option<u64>,
    /// Origins below this are sent once it is committed.
    pub(super) origins: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Book {
    file: File,
    /// The next number.
    pub(super) next: u64,
    /// The last one that is committed.
    pub(super) committed: Option<Asked>,
    /// What became of this nobody knows yet.
    pub(super) open: Option<Asked>,
}

impl Book {
    /// Reads what earlier lives wrote, and goes on.
    pub(super) fn open(path: &Path) -> Result<Book, String> {
        let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
        let text = if path.exists() { std::fs::read_to_string(path).map_err(wrong)? } else { String::new() };
        // A last line in part says nothing: what it was to say was not acted on.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let file = File::options().create(true).append(true).open(path).map_err(wrong)?;
        file.set_len(whole as u64).map_err(wrong)?;
        let mut book = Book { file, next: 1, committed: None, open: None };
        for line in text[..whole].lines() {
            book.read(line).ok_or_else(|| format!("{}: {line:?} is no line of a book", path.display()))?;
        }
        Ok(book)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["ask", counter, tx, origins] => {
                let tx = if tx == "-" { None } else { Some(tx.parse().ok()?) };
                let asked = Asked { counter: counter.parse().ok()?, tx, origins: origins.parse().ok()? };
                (self.next, self.open) = (asked.counter + 1, Some(asked));
            }
            ["yes"] => self.committed = self.open.take(),
            ["no"] => self.open = None,
            _ => return None,
        }
        Some(())
    }

    fn put(&mut self, line: &str) -> Result<(), String> {
        self.file.write_all(line.as_bytes()).map_err(|e| format!("cannot write a book: {e}"))
    }

    /// A commit is about to be asked for.
    pub(super) fn ask(&mut self, tx: Option<u64>, origins: u64) -> Result<u64, String> {
        let asked = Asked { counter: self.next, tx, origins };
        let tx = tx.map_or("-".to_owned(), |tx| tx.to_string());
        self.put(&format!("ask {} {tx} {origins}\n", asked.counter))?;
        (self.next, self.open) = (self.next + 1, Some(asked));
        Ok(asked.counter)
    }

    /// It is committed, or it is not and never will be.
    pub(super) fn learn(&mut self, committed: bool) -> Result<(), String> {
        self.put(if committed { "yes\n" } else { "no\n" })?;
        match self.open.take() {
            Some(asked) if committed => self.committed = Some(asked),
            _ => {}
        }
        Ok(())
    }

    /// Origins below this are sent.
    pub(super) fn origins(&self) -> u64 {
        self.committed.map_or(0, |asked| asked.origins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_life_knows_what_an_earlier_one_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("book");
        let mut book = Book::open(&path).unwrap();
        assert_eq!((book.next, book.origins()), (1, 0));
        book.ask(None, 0).unwrap();
        book.learn(true).unwrap();
        book.ask(Some(7), 50).unwrap();
        let mut book = Book::open(&path).unwrap();
        let open = Asked { counter: 2, tx: Some(7), origins: 50 };
        assert_eq!((book.next, book.open, book.origins()), (3, Some(open), 0));
        book.learn(false).unwrap();
        book.ask(Some(8), 50).unwrap();
        book.learn(true).unwrap();
        book.put("ask 4 9 9").unwrap();
        let book = Book::open(&path).unwrap();
        assert_eq!((book.next, book.open, book.origins()), (4, None, 50));
        assert!(Book::open(&path).unwrap().open.is_none(), "the line in part is gone");
    }
}
