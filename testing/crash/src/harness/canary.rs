//! Watches the machine while a run goes on: a device flush and a short sleep, again and again. If that takes long, nobody can say
//! that the broker is stuck (I9), and the history says so: a fault `stall` of the `machine`.

use super::clock::{now_ns, pause};
use super::diary::Diary;
use packhorse_history::Event;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two flushes.
const NAP: Duration = Duration::from_millis(50);
/// A flush and a nap that take longer than this are a stall. The broker may need two flushes before it delivers.
const LONG_NS: u64 = 250_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Canary {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Canary {
    /// Begins to watch; writes `machine.jsonl` among the histories and a file beside them.
    pub(super) fn start(dir: &Path, run: u64) -> Result<Canary, String> {
        let mut diary = Diary::begin(&dir.join("history").join("machine.jsonl"), "machine", run)?;
        let path = dir.join("canary");
        let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let watch = move || {
            let mut stalls = 0;
            while !told.load(Ordering::Relaxed) {
                let begin = now_ns();
                flush(&file).map_err(|e| format!("{}: {e}", path.display()))?;
                pause(NAP);
                let end = now_ns();
                if end - begin > LONG_NS {
                    stalls += 1;
                    let fault = |start| Event::Fault { kind: "stall", target: "machine", start };
                    diary.put(begin, &fault(true))?;
                    diary.put(end, &fault(false))?;
                }
            }
            diary.tell(&Event::End)?;
            Ok(stalls)
        };
        Ok(Canary { stop, thread: std::thread::spawn(watch) })
    }

    /// Ends; answers how many stalls there were.
    pub(super) fn end(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err("the watch over the machine panicked".into()))
    }
}

/// What the broker's own flushes may wait for: data, and the file system's books, for a new segment or a checkpoint changes those
/// as well. (Seen: a large tree was removed beside a run, and for a second nothing that changed a file's size came back, while
/// writes in place did.)
fn flush(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(&[0x55; 512], 0)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watch_leaves_a_history_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("history")).unwrap();
        Canary::start(dir.path(), 5).unwrap().end().unwrap();
        let text = std::fs::read_to_string(dir.path().join("history/machine.jsonl")).unwrap();
        let report = packhorse_history::check_files([("m".to_owned(), text.as_bytes())], &Default::default()).unwrap();
        assert!(report.is_clean() && text.contains("\"end\""), "{text}");
    }
}
