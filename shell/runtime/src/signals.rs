//! SIGTERM and SIGINT, turned into messages to the main thread.

use crate::serve::Told;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::Sender;

/// Watches from now on, in a thread that lives as long as the process.
pub(crate) fn start(tell: Sender<Told>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let watch = move || {
        for signal in signals.forever() {
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            if tell.send(Told::Signal(name)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(())
}
