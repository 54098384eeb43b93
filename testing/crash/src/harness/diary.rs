//! The history of one process of a run (`docs/formats/history.md`).
//!
//! Owns the file. The caller keeps the rule: an act is put and flushed before its bytes go to a socket.

use super::clock::now_ns;
use packhorse_history::{Event, Header, JsonlWriter};
use std::fs::File;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
pub(super) struct Diary {
    writer: JsonlWriter<File>,
}

impl Diary {
    /// Begins a file. `process`: the name in reports; `run`: the number in all files and bodies of the run. Err: a sentence.
    pub(super) fn begin(path: &Path, process: &str, run: u64) -> Result<Diary, String> {
        let file = File::create(path).map_err(|e| format!("cannot write the history {}: {e}", path.display()))?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header {
            run,
            process: process.into(),
            pid: std::process::id(),
            incarnation: 0,
            clock: boot.trim().into(),
            mono_ns: now_ns(),
            wall_ns: wall.as_nanos() as u64,
        };
        JsonlWriter::new(file, &header).map(|writer| Diary { writer }).map_err(|e| lost(&e))
    }

    /// Adds an event of this time.
    pub(super) fn put(&mut self, at_ns: u64, event: &Event<'_>) -> Result<(), String> {
        self.writer.put(at_ns, event).map_err(|e| lost(&e))
    }

    /// Adds an event of now, and everything goes to the file.
    pub(super) fn tell(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.put(now_ns(), event)?;
        self.flush()
    }

    /// Everything goes to the file.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.writer.flush().map_err(|e| lost(&e))
    }
}

fn lost(error: &std::io::Error) -> String {
    format!("cannot write the history: {error}")
}
