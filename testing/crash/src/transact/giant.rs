//! Transactions of a GiB: many messages in one, and one message of that size. The broker is killed while they are worked in and while they
//! are committed; what was in one is there as a whole or not at all, as the question what became of the commit is answered.

use super::bench::Bench;
use super::figures::Figures;
use super::manager::{Answer, Manager};
use crate::broker::pause;
use crate::random::Random;
use crate::wire::Broken;
use packhorse_client_core::Commits;
use packhorse_client_core::transaction::TxOutcome;
use std::path::Path;
use std::time::{Duration, Instant};

const QUEUE: &str = "giant";
/// Bytes of a message where there are many.
const PIECE: u64 = 64 << 10;
/// Sends that wait for their answer.
const WINDOW: usize = 200;
/// Kills during the commit, for each kind.
const KILLS: u32 = 4;
const SESSION: [u8; 16] = [0x61; 16];

/// What a transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Many,
    One,
}

/// When the broker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The work is half done.
    Work,
    /// So long after the commit was asked for.
    Commit(Duration),
    /// The commit was answered.
    End,
}

struct Giant {
    bench: Bench,
    bytes: u64,
    counter: u64,
    figures: Figures,
}

/// With transactions of so many bytes, on a broker in `dir`.
pub fn run(dir: &Path, bytes: u64, seed: u64) -> Figures {
    let (message, staged) = (format!("limits.max_message_bytes={}", bytes * 2), bytes * 4);
    let staged = format!("transactions.max_staged_bytes={staged}");
    let bench = Bench::new(dir, &["--set", &message, "--set", &staged]);
    let mut giant = Giant { bench, bytes, counter: 1, figures: Figures::new(seed) };
    let mut random = Random::new(seed);
    for kind in [Kind::Many, Kind::One] {
        if let Err(why) = giant.all(kind, &mut random) {
            giant.figures.found.push(format!("{kind:?}: {why}"));
        }
    }
    giant.figures
}

fn told(broken: Broken) -> String {
    format!("{broken:?}")
}

impl Giant {
    fn all(&mut self, kind: Kind, random: &mut Random) -> Result<(), String> {
        let took = self.one(kind, At::End)?;
        self.one(kind, At::Work)?;
        for _ in 0..KILLS {
            // From right after it was asked for until a little later than it takes.
            let after = took.mul_f64((random.below(1_200) as f64) / 1_000.0);
            self.one(kind, At::Commit(after))?;
        }
        Ok(())
    }

    fn messages(&self, kind: Kind) -> u64 {
        if kind == Kind::Many { self.bytes.div_ceil(PIECE) } else { 1 }
    }

    fn size(&self, kind: Kind) -> usize {
        (if kind == Kind::Many { PIECE } else { self.bytes }) as usize
    }

    fn manager(&self) -> Result<Manager, String> {
        let commits = Commits { session: SESSION, next: self.counter };
        Manager::open_as(self.bench.broker().amqp(), "giant", Some(commits)).map_err(told)
    }

    /// The broker comes to know the session, before anything depends on it.
    fn first_commit(&mut self, manager: &mut Manager) -> Result<(), String> {
        let txn = manager.declare().map_err(told)?;
        let answer = manager.commit_as(&txn, self.counter).map_err(told)?;
        self.counter += 1;
        if answer == Answer::Accepted { Ok(()) } else { Err(format!("a commit of nothing: {answer:?}")) }
    }

    /// A transaction, and a kill. How long the commit took, if it was answered.
    fn one(&mut self, kind: Kind, at: At) -> Result<Duration, String> {
        let mut manager = self.manager()?;
        self.first_commit(&mut manager)?;
        let txn = manager.declare().map_err(told)?;
        let messages = self.messages(kind);
        let part = if at == At::Work { messages.div_ceil(2) } else { messages };
        let mut open = Vec::new();
        for number in 0..part {
            if open.len() >= WINDOW {
                staged(&mut manager, &mut open)?;
            }
            open.push(manager.send_on(Some(&txn), QUEUE, number, true, self.size(kind)).map_err(told)?);
        }
        if at != At::Work {
            staged(&mut manager, &mut open)?;
        }
        let (begin, counter) = (Instant::now(), self.counter);
        self.counter += 1;
        let answer = match at {
            At::Work => Err(Broken::Lost("not asked for".into())),
            At::End => manager.commit_as(&txn, counter),
            At::Commit(after) => {
                let token = manager.ask_to_commit(&txn, counter).map_err(told)?;
                pause(after.saturating_sub(begin.elapsed()));
                self.resident();
                self.bench.stop();
                let answer = manager.answer(token);
                self.bench.start();
                answer
            }
        };
        let took = begin.elapsed();
        if !matches!(at, At::Commit(_)) {
            self.resident();
            self.bench.kill();
        }
        drop(manager);
        self.figures.fault(match at {
            At::Work => "killed at work",
            At::Commit(_) => "killed while committing",
            At::End => "killed after the commit",
        });
        self.judge(kind, at, &answer, counter)?;
        Ok(took)
    }

    fn judge(&mut self, kind: Kind, at: At, answer: &Result<Answer, Broken>, counter: u64) -> Result<(), String> {
        let mut manager = self.manager()?;
        let depth = self.bench.broker().queue(QUEUE)["depth"].as_u64().unwrap_or(0);
        let outcome = manager.status(counter).map_err(told)?;
        let committed = outcome == TxOutcome::Committed;
        let known = matches!(outcome, TxOutcome::Committed | TxOutcome::RolledBack);
        let heard = *answer == Ok(Answer::Accepted);
        let whole = if committed { self.messages(kind) } else { 0 };
        if !known || depth != whole || (heard && !committed) || (at == At::Work && committed) {
            return Err(format!("{at:?}: {answer:?}, then {outcome:?}, and {depth} messages are there"));
        }
        self.figures.count(if committed { "committed" } else { "rolled back" }, 1);
        self.figures.count("bytes committed", whole * self.size(kind) as u64);
        // Each body checks itself.
        let numbers: Vec<u64> = manager.take(QUEUE).map_err(told)?.into_iter().map(|(number, _)| number).collect();
        if !numbers.iter().copied().eq(0..whole) {
            return Err(format!("{at:?}: {} messages came, and not in order", numbers.len()));
        }
        drop(manager);
        self.bench.broker().until("files of large messages are gone", |broker| broker.large_files() == 0);
        Ok(())
    }

    fn resident(&mut self) {
        let (name, now) = ("KiB resident at most", self.bench.broker().resident_kib());
        let before = self.figures.of(name);
        self.figures.count(name, now.saturating_sub(before));
    }
}

/// Waits for what is said of these sends.
fn staged(manager: &mut Manager, open: &mut Vec<u64>) -> Result<(), String> {
    for token in open.drain(..) {
        let answer = manager.answer(token).map_err(told)?;
        if answer != Answer::Staged {
            return Err(format!("a message: {answer:?}"));
        }
    }
    Ok(())
}
