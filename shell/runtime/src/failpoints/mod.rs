//! Failpoints (`spec/scenarios.md`, "Harness rules"): named places at the seam between core and the outside where a test lets
//! the process die, fail, wait, or stand still until told. Only with the feature `failpoints`, which no release has.
//!
//! `PACKHORSE_FAILPOINTS="entry.ack.before_sync=crash@3; disk.sync=error@2+"` arms them at the start, `PUT
//! /api/v1/failpoints/NAME` with such an action later, `DELETE` disarms and lets go who waits there; `GET` shows how often each
//! was passed. Must not know what a point means to the broker: places are in `store`, `machine` and `disk`.

mod disk;
mod machine;
mod store;

use packhorse_http::Failpoints;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) use disk::probe;
pub(crate) use machine::WatchedMachine;
pub(crate) use store::{Seen, WatchedStore};

/// The environment variable that arms failpoints at the start.
const VARIABLE: &str = "PACKHORSE_FAILPOINTS";

/// All points that this version has: name, and where it is.
const POINTS: &[(&str, &str)] = &[
    ("entry.enqueue.before_sync", "a batch with a persistent message is about to be handed to the store"),
    ("entry.enqueue.after_sync_before_visible", "such a batch is durable, and the shard does not know yet"),
    ("entry.enqueue.after_visible_before_confirm", "the shard has taken that in, and no frame has gone out"),
    ("entry.dispatch.after_pick", "a turn gave messages to consumers, and no frame has gone out"),
    ("entry.dispatch.before_return", "the frames of such a turn are out, and the next one has not begun"),
    ("entry.ack.before_sync", "a batch with an acknowledgement is about to be handed to the store"),
    ("entry.ack.after_sync_before_reply", "such a batch is durable, and no reply has gone out"),
    ("entry.return.after_memory", "messages have come back in memory, and their record is not durable"),
    ("entry.relocate.before_sync", "a batch that moves a message between queues is about to be handed to the store"),
    ("entry.relocate.after_sync", "such a batch is durable, and the shard does not know yet"),
    ("tx.commit.before_sync", "a batch that commits a transaction in one phase is about to be handed to the store"),
    ("tx.commit.after_sync_before_apply", "such a batch is durable, and the shard does not know yet"),
    ("tx.commit.after_sync_before_reply", "the shard has taken that in, and no frame has gone out"),
    ("xa.prepare.before_sync", "a batch that prepares a branch is about to be handed to the store"),
    ("xa.prepare.after_sync_before_reply", "such a batch is durable, and the shard does not know yet"),
    ("xa.decide.before_sync", "a batch with a manager's decision of a branch is about to be handed to the store"),
    ("xa.decide.after_sync_before_apply", "such a batch is durable, and the shard does not know yet"),
    ("xa.decide.after_apply_before_reply", "the shard has taken that in, and no frame has gone out"),
    ("xa.heuristic.after_sync", "an operator's decision of a branch is durable, and the shard does not know yet"),
    ("checkpoint.begin", "the first operation on a checkpoint's file"),
    ("checkpoint.mid", "a later operation on it, before its header"),
    ("checkpoint.before_switch", "the header that makes a checkpoint valid is about to be written"),
    ("checkpoint.after_switch", "that header is safe"),
    ("checkpoint.before_delete_old", "the first segment after that is about to be given up"),
    ("disk.create", "a file is about to be made"),
    ("disk.write", "bytes are about to be written"),
    ("disk.sync", "a file or folder is about to be made safe, alone or with a write"),
    ("disk.rename", "a file is about to get another name"),
    ("disk.unlink", "a file is about to be removed"),
    ("disk.read", "bytes are about to be read"),
];

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The process is gone, as by kill -9.
    Crash,
    /// The operation fails (EIO). At points of the disk and of checkpoints only.
    Error,
    /// An assertion of the thread fails.
    Panic,
    /// The thread waits so long.
    Delay(Duration),
    /// The thread waits until the point is disarmed.
    Pause,
}

/// An action and the passes that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Armed {
    action: Action,
    /// The n-th pass from now on, from 1.
    at: u64,
    /// And all after it.
    onward: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    passed: u64,
    /// Since it was armed.
    counted: u64,
    armed: Option<Armed>,
    /// Threads that wait here.
    waiting: u64,
}

/// The failpoints of the process.
pub(crate) struct Registry {
    points: Mutex<Vec<Point>>,
    let_go: Condvar,
}

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    Arc::new(Registry { points: Mutex::new(vec![Point::default(); POINTS.len()]), let_go: Condvar::new() })
});

/// An operation that was made to fail.
#[derive(Debug)]
pub(crate) struct Failed;

/// The process's failpoints.
pub(crate) fn registry() -> Arc<Registry> {
    Arc::clone(&REGISTRY)
}

/// Passes a point where nothing can fail.
pub(crate) fn pass(name: &str) {
    // Such a point takes no `error`.
    let _never = REGISTRY.hit(name);
}

/// Arms what the environment says.
///
/// # Errors
/// A sentence: which part is not understood.
pub(crate) fn from_environment() -> Result<(), String> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, action) = part.split_once('=').ok_or_else(|| format!("{VARIABLE}: {part:?} is not NAME=ACTION"))?;
        REGISTRY.arm(name.trim(), action.trim()).map_err(|why| format!("{VARIABLE}: {why}"))?;
        tracing::warn!("failpoint {}: {}", name.trim(), action.trim());
    }
    Ok(())
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Vec<Point>> {
        self.points.lock().expect("a panic under this lock ends the process")
    }

    /// Passes the point `name`, which the table has; does there what it is armed with.
    pub(crate) fn hit(&self, name: &str) -> Result<(), Failed> {
        let index = index(name).expect("places name points of the table");
        let mut points = self.lock();
        let point = &mut points[index];
        point.passed += 1;
        let Some(armed) = point.armed else { return Ok(()) };
        point.counted += 1;
        if point.counted != armed.at && !(armed.onward && point.counted > armed.at) {
            return Ok(());
        }
        match armed.action {
            Action::Crash => {
                // The signal cannot be caught, and takes the process before this returns.
                let _dead = kill_process(getpid(), Signal::KILL);
                unreachable!("killed")
            }
            Action::Error => Err(Failed),
            Action::Panic => {
                drop(points);
                panic!("the failpoint {name} says so");
            }
            Action::Delay(time) => {
                drop(points);
                #[expect(clippy::disallowed_methods, reason = "a test asked for this thread to be slow")]
                std::thread::sleep(time);
                Ok(())
            }
            Action::Pause => {
                points[index].waiting += 1;
                let mut points = self
                    .let_go
                    .wait_while(points, |points| points[index].armed == Some(armed))
                    .expect("a panic under this lock ends the process");
                points[index].waiting -= 1;
                Ok(())
            }
        }
    }
}

impl Failpoints for Registry {
    fn list(&self) -> Value {
        let points = self.lock();
        let one = |(point, (name, place)): (&Point, &(&str, &str))| {
            let armed = point.armed.map(|armed| armed.to_string());
            json!({ "name": name, "place": place, "passed": point.passed, "armed": armed, "waiting": point.waiting })
        };
        Value::Array(points.iter().zip(POINTS).map(one).collect())
    }

    fn arm(&self, name: &str, action: &str) -> Result<(), String> {
        let index = index(name).ok_or_else(|| unknown(name))?;
        let armed = Armed::read(name, action)?;
        let mut points = self.lock();
        points[index].armed = Some(armed);
        points[index].counted = 0;
        self.let_go.notify_all();
        Ok(())
    }

    fn disarm(&self, name: &str) -> Result<(), String> {
        let index = index(name).ok_or_else(|| unknown(name))?;
        self.lock()[index].armed = None;
        self.let_go.notify_all();
        Ok(())
    }
}

fn index(name: &str) -> Option<usize> {
    POINTS.iter().position(|(point, _)| *point == name)
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = POINTS.iter().map(|(name, _)| *name).collect();
    format!("no failpoint is named {name:?}; there are {}", names.join(", "))
}

impl Armed {
    /// Reads `crash`, `error`, `panic`, `delay:MS` or `pause`, with `@N` for the N-th pass (otherwise the first) and `@N+` for that and all
    /// later ones.
    fn read(name: &str, text: &str) -> Result<Armed, String> {
        let (what, when) = text.split_once('@').unwrap_or((text, "1"));
        let (count, onward) = when.strip_suffix('+').map_or((when, false), |count| (count, true));
        let at = count.parse().ok().filter(|at| *at > 0);
        let at = at.ok_or_else(|| format!("{name}={text}: {count:?} is not the number of a pass, from 1"))?;
        let action = match what.split_once(':') {
            None if what == "crash" => Action::Crash,
            None if what == "panic" => Action::Panic,
            None if what == "pause" => Action::Pause,
            None if what == "error" && (name.starts_with("disk.") || name.starts_with("checkpoint.")) => Action::Error,
            None if what == "error" => return Err(format!("{name} cannot fail; disk.* and checkpoint.* can")),
            Some(("delay", ms)) if ms.parse::<u64>().is_ok() => {
                Action::Delay(Duration::from_millis(ms.parse().expect("just seen")))
            }
            _ => return Err(format!("{name}={text}: {what:?} is none of crash, error, panic, delay:MS, pause")),
        };
        Ok(Armed { action, at, onward })
    }
}

impl fmt::Display for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Crash => f.write_str("crash")?,
            Action::Error => f.write_str("error")?,
            Action::Panic => f.write_str("panic")?,
            Action::Delay(time) => write!(f, "delay:{}", time.as_millis())?,
            Action::Pause => f.write_str("pause")?,
        }
        write!(f, "@{}{}", self.at, if self.onward { "+" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Registry {
        Registry { points: Mutex::new(vec![Point::default(); POINTS.len()]), let_go: Condvar::new() }
    }

    #[test]
    fn an_action_happens_at_its_pass_and_at_no_other() {
        let registry = empty();
        registry.arm("disk.sync", "error@3").unwrap();
        let failed: Vec<bool> = (0..5).map(|_| registry.hit("disk.sync").is_err()).collect();
        assert_eq!(failed, [false, false, true, false, false]);
        registry.arm("disk.sync", "error@2+").unwrap();
        let failed: Vec<bool> = (0..4).map(|_| registry.hit("disk.sync").is_err()).collect();
        assert_eq!(failed, [false, true, true, true]);
        registry.disarm("disk.sync").unwrap();
        assert!(registry.hit("disk.sync").is_ok());
        assert_eq!(registry.lock()[index("disk.sync").unwrap()].passed, 10);
    }

    #[test]
    fn who_waits_is_let_go() {
        let registry = Arc::new(empty());
        registry.arm("entry.ack.before_sync", "pause").unwrap();
        let other = Arc::clone(&registry);
        let thread = std::thread::spawn(move || other.hit("entry.ack.before_sync").is_ok());
        while registry.lock()[index("entry.ack.before_sync").unwrap()].waiting == 0 {
            std::thread::yield_now();
        }
        registry.disarm("entry.ack.before_sync").unwrap();
        assert!(thread.join().unwrap());
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        let registry = empty();
        for (name, action, word) in [
            ("disk.sink", "crash", "no failpoint"),
            ("disk.sync", "explode", "none of"),
            ("disk.sync", "delay:soon", "none of"),
            ("disk.sync", "error@0", "number of a pass"),
            ("entry.ack.before_sync", "error", "cannot fail"),
        ] {
            let why = registry.arm(name, action).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        for text in ["crash@1", "error@2+", "delay:20@1", "pause@7"] {
            assert_eq!(Armed::read("disk.read", text).unwrap().to_string(), text);
        }
    }
}
