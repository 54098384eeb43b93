//! Orders of a driver that runs several load processes as one: lines on standard input, answers on standard output.
//!
//! `start NS` begins at that reading of the monotonic clock, `expect N` tells consumers how many messages must come in all,
//! `count` is answered by `count N`: what this process has confirmed or received so far. We say `ready` once, when all
//! links stand. The end of standard input means that the driver is gone, and ends us.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the sides of one process, the driver's orders and the progress lines share. Counters only: nothing is decided by
/// how two of them relate at one instant.
#[derive(Debug)]
pub(super) struct Shared {
    /// When to begin; 0 = not known yet.
    pub(super) start_ns: AtomicU64,
    /// Messages that must come in all; `u64::MAX` = not known yet.
    pub(super) expect: AtomicU64,
    /// Messages sent.
    pub(super) sent: AtomicU64,
    /// Messages confirmed.
    pub(super) confirmed: AtomicU64,
    /// Different messages received.
    pub(super) received: AtomicU64,
    /// Somebody failed: everybody ends.
    pub(super) abort: AtomicBool,
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared {
            start_ns: AtomicU64::new(0),
            expect: AtomicU64::new(u64::MAX),
            sent: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            received: AtomicU64::new(0),
            abort: AtomicBool::new(false),
        }
    }

    /// Follows the orders of `input` until it ends; `count` is answered on `output` with `counter`.
    pub(super) fn obey(&self, input: impl BufRead, counter: &AtomicU64, mut output: impl Write) {
        for line in input.lines() {
            let Ok(line) = line else { break };
            let (word, number) = line.split_once(' ').unwrap_or((&line, ""));
            match (word, number.parse()) {
                ("start", Ok(at)) => self.start_ns.store(at, Ordering::Relaxed),
                ("expect", Ok(count)) => self.expect.store(count, Ordering::Relaxed),
                ("count", _) => {
                    let told = writeln!(output, "count {}", counter.load(Ordering::Relaxed));
                    if told.and_then(|()| output.flush()).is_err() {
                        break;
                    }
                }
                _ => eprintln!("packhorse: no such order: {line}"),
            }
        }
        self.abort.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_followed_and_their_end_ends_us() {
        let shared = Shared::new();
        shared.confirmed.store(17, Ordering::Relaxed);
        let mut said = Vec::new();
        shared.obey(&b"start 5\ncount\nexpect 9\n"[..], &shared.confirmed, &mut said);
        assert_eq!(String::from_utf8(said).unwrap(), "count 17\n");
        let load = |a: &AtomicU64| a.load(Ordering::Relaxed);
        assert_eq!((load(&shared.start_ns), load(&shared.expect)), (5, 9));
        assert!(shared.abort.load(Ordering::Relaxed));
    }
}
