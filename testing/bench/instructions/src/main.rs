//! Counts the instructions that hot paths take for a message, and compares them with `baseline.txt`: a gate that noise does
//! not move.
//!
//! Each piece of work is run by this same program under callgrind twice, with N and with 2 N messages; the difference divided
//! by N leaves out what is done once. Without valgrind a person is told so and CI fails. Must not do: measure time.

mod baseline;
mod broker;
mod codec;
mod journal;
mod queue;

use baseline::{Baseline, Verdict};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// How far a count may be from its baseline, percent.
const TOLERANCE_PERCENT: f64 = 3.0;
/// Messages of the shorter run.
const MESSAGES: u64 = 3200;

const USAGE: &str = "\
packhorse-instructions [--update]

Counts instructions a message and compares them with testing/bench/instructions/baseline.txt; with --update it writes that file.
";

/// A piece of work: its name, what it is, and the function that does it for so many messages.
struct Work {
    name: &'static str,
    what: &'static str,
    run: fn(u64),
}

const WORKS: &[Work] = &[
    Work { name: "message", what: "a 1 KiB message encoded, and its sections read", run: codec::message },
    Work { name: "link", what: "a 1 KiB message over a link: transfer, disposition, both engines", run: codec::link },
    Work { name: "queue", what: "enqueue, durable, dispatch, acknowledge", run: queue::flow },
    Work { name: "journal", what: "append of a 1 KiB message and of its acknowledgement", run: journal::append },
    Work {
        name: "broker",
        what: "a shard over the journal: one message in, one out and acknowledged",
        run: broker::plain,
    },
    Work {
        name: "txn",
        what: "the same in local transactions of 100 messages in and 100 out",
        run: broker::transactions,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] => compare(false),
        ["--update"] => compare(true),
        ["work", name, messages] => work(name, messages),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("packhorse-instructions: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Does a piece of work: what callgrind watches.
fn work(name: &str, messages: &str) -> Result<(), String> {
    let work = WORKS.iter().find(|work| work.name == name).ok_or_else(|| format!("there is no work `{name}`"))?;
    let messages = messages.parse().map_err(|_| format!("`{messages}` is not a number of messages"))?;
    (work.run)(messages);
    Ok(())
}

fn compare(update: bool) -> Result<(), String> {
    if !has_valgrind() {
        let why = "valgrind is not installed, and it counts the instructions: apt-get install valgrind";
        if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
            return Err(why.into());
        }
        println!("SKIPPED: {why}");
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.txt");
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => Baseline::parse(&text)?,
        Err(_) if update => Baseline::default(),
        Err(e) => return Err(format!("{}: {e}; --update makes one", path.display())),
    };
    let mut after = Baseline::default();
    let (mut passed, mut failed) = (0, 0);
    for work in WORKS {
        let count = count(work.name)?;
        after.set(work.name, count);
        let verdict = before.judge(work.name, count, TOLERANCE_PERCENT);
        println!("{:<8} {count:>7} instructions a message  {verdict}  ({})", work.name, work.what);
        if verdict == Verdict::Same { passed += 1 } else { failed += 1 }
    }
    if update {
        std::fs::write(&path, after.render()).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("written to {}", path.display());
        return Ok(());
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        return Ok(());
    }
    Err(format!(
        "{failed} counts are more than {TOLERANCE_PERCENT} % from the baseline. Fewer are welcome and more may be right: then \
         `cargo xtask bench instructions --update`, with the reason in the commit."
    ))
}

fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Instructions a message of a piece of work.
fn count(name: &str) -> Result<u64, String> {
    let (short, long) = (total(name, MESSAGES)?, total(name, 2 * MESSAGES)?);
    Ok(long.saturating_sub(short).div_ceil(MESSAGES))
}

/// Instructions of the whole program with so many messages.
fn total(name: &str, messages: u64) -> Result<u64, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = std::env::temp_dir().join(format!("packhorse-instructions-{}-{name}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(me).args(["work", name, &messages.to_string()]);
    let output = valgrind.output().map_err(|e| format!("valgrind: {e}"))?;
    let _ = std::fs::remove_file::<PathBuf>(out);
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name} under valgrind ended with {}:\n{text}", output.status));
    }
    collected(&text).ok_or_else(|| format!("callgrind said no count:\n{text}"))
}

/// The number in callgrind's line `==PID== Collected : N`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_count_is_found() {
        assert_eq!(collected("==1== \n==1== Events    : Ir\n==1== Collected : 1234567\n"), Some(1_234_567));
        assert_eq!(collected("==1== Events    : Ir\n"), None);
    }

    #[test]
    fn every_work_is_done_and_has_its_baseline() {
        let baseline = Baseline::parse(include_str!("../baseline.txt")).unwrap();
        for one in WORKS {
            work(one.name, "320").unwrap();
            assert_ne!(baseline.judge(one.name, 0, TOLERANCE_PERCENT), Verdict::New, "{}", one.name);
        }
        assert!(work("nothing", "1").is_err());
    }
}
