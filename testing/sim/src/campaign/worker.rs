//! Workers: processes of this program that run one world after the other, because what an entry's transitions are counted in is the
//! process's, and because a world may take its process with it.
//!
//! To a worker: `SEED\n` or `SEED NUMBER,NUMBER\n` (only these faults; `-`: none). Back: an outcome, `outcome.rs`.

use super::outcome::Outcome;
use crate::plan::Settings;
use crate::trial::trial;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// No world takes so many seconds, in whatever build: it hangs.
const HANGS: u32 = 120;

/// Of a worker whose world hangs.
const HUNG: i32 = 3;

/// Does what a worker does, until its input ends.
///
/// # Errors
/// Its input or output is broken.
pub fn work() -> std::io::Result<()> {
    let (begin, begun) = channel::<bool>();
    std::thread::spawn(move || {
        while let Ok(busy) = begun.recv() {
            if busy && hangs(&begun, Duration::from_secs(1)) {
                std::process::exit(HUNG);
            }
        }
    });
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some(settings) = asked(&line) else {
            return Err(std::io::Error::other(format!("a worker does not understand `{line}`")));
        };
        let _watched = begin.send(true);
        let before = cpu_us();
        let verdict = trial(&settings);
        let outcome = Outcome::of(settings.seed, verdict, cpu_us().saturating_sub(before));
        let _watched = begin.send(false);
        out.write_all(outcome.write().as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// Waits for the end of the world that has begun; true: it does not come. Seconds are counted one by one, so that time in which the whole
/// process stands still, stopped from outside, counts as one of them at most.
fn hangs(begun: &Receiver<bool>, second: Duration) -> bool {
    (0..HANGS).all(|_| begun.recv_timeout(second) == Err(RecvTimeoutError::Timeout))
}

fn asked(line: &str) -> Option<Settings> {
    let (seed, faults) = line.split_once(' ').map_or((line, None), |(seed, faults)| (seed, Some(faults)));
    let faults = match faults {
        None => None,
        Some(text) => Some(numbers(text)?),
    };
    Some(Settings { faults, ..Settings::new(seed.parse().ok()?) })
}

/// Numbers of faults as a command line has them: `3,17`; `-` for none.
pub fn numbers(text: &str) -> Option<Vec<u32>> {
    if text == "-" {
        return Some(Vec::new());
    }
    text.split(',').map(|word| word.parse().ok()).collect()
}

/// The other way round.
pub(crate) fn list(numbers: &[u32]) -> String {
    match numbers {
        [] => "-".to_owned(),
        some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Time that the processor has spent on this process's first thread, µs; where the system does not say, the time of day.
fn cpu_us() -> u64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = told.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanos.map_or_else(
        || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64),
        |nanos| nanos / 1000,
    )
}

/// A worker as its campaign knows it.
pub(crate) struct Worker {
    process: Option<(Child, BufReader<ChildStdout>)>,
}

impl Worker {
    pub(crate) fn new() -> Worker {
        Worker { process: None }
    }

    fn process(&mut self) -> std::io::Result<&mut (Child, BufReader<ChildStdout>)> {
        if self.process.is_none() {
            let mut command = Command::new(std::env::current_exe()?);
            let mut child = command
                .arg("--worker")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()?;
            let out = child.stdout.take().expect("it is piped");
            self.process = Some((child, BufReader::new(out)));
        }
        Ok(self.process.as_mut().expect("it was just started"))
    }

    /// Runs a world in it. A worker that ends over it is a breach of that seed, and the next call starts another one.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn run(&mut self, seed: u64, faults: Option<&[u32]>) -> std::io::Result<Outcome> {
        let (child, out) = self.process()?;
        let line = match faults {
            None => format!("{seed}\n"),
            Some(faults) => format!("{seed} {}\n", list(faults)),
        };
        // One that has ended does not read; its output says so next.
        let _written = child.stdin.as_mut().expect("it is piped").write_all(line.as_bytes());
        let mut text = String::new();
        loop {
            let before = text.len();
            if out.read_line(&mut text)? == 0 {
                let status = child.wait()?;
                self.process = None;
                let why = match status.code() {
                    Some(HUNG) => format!("the world hangs: not through within {HANGS} s"),
                    _ => format!("the process ended with {status}"),
                };
                return Ok(Outcome::silent(seed, why));
            }
            if &text[before..] == "end\n" {
                text.truncate(before);
                let told = Outcome::read(&text).filter(|outcome| outcome.seed == seed);
                return Ok(told.unwrap_or_else(|| Outcome::silent(seed, format!("the worker said: {text}"))));
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.process.take() {
            drop(child.stdin.take());
            let _over = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_hangs_that_does_not_come_to_its_end() {
        let (begin, begun) = channel();
        assert!(hangs(&begun, Duration::from_millis(1)));
        begin.send(false).expect("somebody listens");
        assert!(!hangs(&begun, Duration::from_millis(1)));
        drop(begin);
        assert!(!hangs(&begun, Duration::from_secs(1)), "the process ends");
    }

    #[test]
    fn what_a_worker_is_asked_is_what_it_does() {
        assert_eq!(asked("12"), Some(Settings::new(12)));
        let few = Settings { faults: Some(vec![3, 17]), ..Settings::new(12) };
        assert_eq!(asked(&format!("12 {}", list(&[3, 17]))), Some(few));
        let none = Settings { faults: Some(vec![]), ..Settings::new(12) };
        assert_eq!(asked(&format!("12 {}", list(&[]))), Some(none));
        assert_eq!(asked("12 x"), None);
        assert_eq!(asked(""), None);
    }
}
