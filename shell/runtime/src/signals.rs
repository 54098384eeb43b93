//! SIGTERM and SIGINT, turned into messages to the main thread. SIGXFSZ, which would end the process amid a write past the
//! limit of a file's size, is taken and dropped: the write then fails, and is told like any other.

use crate::serve::Told;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::Sender;

/// Watches from now on, in a thread that lives as long as the process.
pub(crate) fn start(tell: Sender<Told>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGXFSZ])?;
    let watch = move || {
        for signal in signals.forever() {
            if signal == SIGXFSZ {
                continue;
            }
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            if tell.send(Told::Signal(name)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(())
}
