//! Log lines on standard error, for people or as JSON. A thread writes them, so that a reader of standard error that stands
//! still costs lines (counted) and never a turn.

use crate::config::LogFormat;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const WAITING: usize = 4096;

enum Item {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

#[derive(Clone)]
struct Pipe {
    items: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

static PIPE: OnceLock<Pipe> = OnceLock::new();

/// Starts logging for the process. A second call changes nothing.
pub(crate) fn start(format: LogFormat, level: tracing::Level) {
    let (sender, receiver) = sync_channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    let pipe = Pipe { items: sender, dropped: Arc::clone(&dropped) };
    if PIPE.set(pipe.clone()).is_err() {
        return;
    }
    let spawned =
        std::thread::Builder::new().name("log".into()).spawn(move || write(&receiver, &dropped, io::stderr()));
    if spawned.is_err() {
        // No thread: the receiver is gone and every line is dropped. A broker without threads ends soon anyhow.
        eprintln!("packhorse: cannot start the thread that writes the log");
    }
    let lines = tracing_subscriber::fmt().with_writer(pipe).with_max_level(level).with_target(false);
    // Fails when a test has set a subscriber of its own: then that one has the lines.
    let _ = match format {
        LogFormat::Human => {
            use io::IsTerminal;
            tracing::subscriber::set_global_default(lines.with_ansi(io::stderr().is_terminal()).finish())
        }
        LogFormat::Json => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
    };
}

/// A text that may hold words of a peer, as one line: control characters are escaped, so that nobody else begins a line of
/// the log or talks to the terminal that shows it.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().flat_map(|c| match c.is_control() {
        true => c.escape_default().collect::<Vec<_>>(),
        false => vec![c],
    });
    Cow::Owned(escaped.collect())
}

/// Waits until what was logged so far is written, for a while.
pub(crate) fn flush() {
    let Some(pipe) = PIPE.get() else { return };
    let (done, wait) = sync_channel(1);
    if pipe.items.try_send(Item::Flush(done)).is_ok() {
        let _ = wait.recv_timeout(Duration::from_secs(1));
    }
}

fn write(items: &Receiver<Item>, dropped: &AtomicU64, mut to: impl Write) {
    for item in items {
        match item {
            Item::Line(line) => {
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ =
                        writeln!(to, "{lost} lines of the log were dropped: standard error was not read fast enough");
                }
                // Nobody reads any more: there is nowhere left to say so.
                let _ = to.write_all(&line);
            }
            Item::Flush(done) => {
                let _ = to.flush();
                let _ = done.send(());
            }
        }
    }
}

/// One line while it is made; sent when it is complete.
struct Line {
    bytes: Vec<u8>,
    pipe: Pipe,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.pipe.items.try_send(Item::Line(std::mem::take(&mut self.bytes))).is_err() {
            self.pipe.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Pipe {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { bytes: Vec::new(), pipe: self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_cannot_begin_a_line() {
        assert_eq!(one_line("link \"grüße\" refused"), "link \"grüße\" refused");
        assert_eq!(one_line("a\nERROR b\r\u{1b}[2Jé"), "a\\nERROR b\\r\\u{1b}[2Jé");
    }

    #[test]
    fn lines_that_cannot_wait_are_counted_and_told() {
        let (sender, receiver) = sync_channel(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let pipe = Pipe { items: sender, dropped: Arc::clone(&dropped) };
        for n in 0..5 {
            writeln!(pipe.make_writer(), "line {n}").unwrap();
        }
        drop(pipe);
        let mut written = Vec::new();
        write(&receiver, &dropped, &mut written);
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("3 lines of the log were dropped"));
        assert_eq!(lines[1..], ["line 0", "line 1"]);
    }
}
