//! `cargo xtask mutants`: whether the tests notice when a line of the code is another one. Each mutant is one small change of one line,
//! built in a copy of the tree and judged by the tests of its package, cheap ones first, and then by a few simulated worlds.
//!
//! A mutant that does not compile counts as nothing. A long run, not a step of the test command. Must not know: what a mutant means;
//! whether one that survives does harm is for people to say.

mod changes;

use crate::{command, workspace};
use changes::{Change, changes};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str = "\
cargo xtask mutants [entry|confirms|settle…] [--seeds N] [--only TEXT]

  --seeds N    simulated worlds for those that all tests let pass; 5 by default, 0: none
  --only TEXT  only lines that have this in them
";

/// A file whose lines are changed, and who judges, in this order: arguments of `cargo test`.
struct Subject {
    name: &'static str,
    file: &'static str,
    judges: &'static [&'static [&'static str]],
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "entry",
        file: "core/queue/src/entry.rs",
        judges: &[
            &["--package", "packhorse-queue", "--test", "states"],
            &["--package", "packhorse-queue", "--test", "scenarios"],
            &["--package", "packhorse-queue", "--test", "model"],
        ],
    },
    Subject {
        name: "confirms",
        file: "core/broker/src/confirms.rs",
        judges: &[
            &["--package", "packhorse-broker", "--lib", "confirms"],
            &["--package", "packhorse-broker", "--test", "broker", "confirms"],
        ],
    },
    Subject {
        name: "settle",
        file: "core/queue/src/settle.rs",
        judges: &[
            &["--package", "packhorse-queue", "--test", "scenarios"],
            &["--package", "packhorse-queue", "--test", "model"],
        ],
    },
];

/// A build or a test that takes longer stands still, which is noticed as well.
const PATIENCE: Duration = Duration::from_secs(300);

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    DoesNotCompile,
    KilledBy(String),
    Survives,
}

/// The counts of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    killed: usize,
    survived: usize,
    void: usize,
}

/// Makes mutants and judges them; prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut rest = arguments.to_vec();
    let seeds = command::take(&mut rest, "--seeds")?.map_or(Ok(5), |text| text.parse());
    let seeds: u64 = seeds.map_err(|_| format!("--seeds needs a number\n\n{USAGE}"))?;
    let only = command::take(&mut rest, "--only")?;
    if let Some(wrong) = rest.iter().find(|name| SUBJECTS.iter().all(|subject| subject.name != *name)) {
        return Err(format!("`{wrong}` means nothing here\n\n{USAGE}"));
    }
    let root = workspace::root();
    let yard = Yard::open(&root)?;
    let mut table = Vec::new();
    for subject in SUBJECTS.iter().filter(|one| rest.is_empty() || rest.iter().any(|name| name == one.name)) {
        let counts = yard.judge_all(subject, seeds, only.as_deref())?;
        table.push((subject.file, counts));
    }
    println!("\n| file | mutants | killed | survive | do not compile |\n|---|---|---|---|---|");
    for (file, Counts { killed, survived, void }) in &table {
        println!("| `{file}` | {} | {killed} | {survived} | {void} |", killed + survived);
    }
    let (killed, all) = table.iter().fold((0, 0), |(k, a), (_, c)| (k + c.killed, a + c.killed + c.survived));
    println!("\n{killed} of {all} are killed");
    if killed * 10 >= all * 9 { Ok(()) } else { Err("fewer than 90 % are killed".to_owned()) }
}

/// A copy of the tree, with a target folder of its own.
struct Yard {
    tree: PathBuf,
    target: PathBuf,
}

impl Yard {
    fn open(root: &Path) -> Result<Yard, String> {
        let folder = workspace::Metadata::read(root)?.target.join("mutants");
        let yard = Yard { tree: folder.join("tree"), target: folder.join("target") };
        for file in workspace::files(root)? {
            let (from, to) = (root.join(&file), yard.tree.join(&file));
            let text = fs::read(&from).map_err(|error| format!("cannot read {file}: {error}"))?;
            // What has not changed keeps its time, so that it is not built again.
            if fs::read(&to).is_ok_and(|known| known == text) {
                continue;
            }
            let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, text));
            made.map_err(|error| format!("cannot write {}: {error}", to.display()))?;
        }
        Ok(yard)
    }

    fn judge_all(&self, subject: &Subject, seeds: u64, only: Option<&str>) -> Result<Counts, String> {
        let path = self.tree.join(subject.file);
        let write = |text: &str| fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
        let original = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let all: Vec<Change> = changes(&original);
        let all: Vec<Change> =
            all.into_iter().filter(|one| only.is_none_or(|text| one.before.contains(text))).collect();
        println!("── {}: {} mutants", subject.file, all.len());
        for judge in subject.judges {
            if self.judge(judge)? != Verdict::Passed {
                return Err(format!("without a change `cargo test {}` fails", judge.join(" ")));
            }
        }
        let mut counts = Counts::default();
        for change in &all {
            write(&change.apply(&original))?;
            let fate = self.fate(subject, seeds);
            write(&original)?;
            match fate? {
                Fate::DoesNotCompile => counts.void += 1,
                Fate::KilledBy(who) => {
                    counts.killed += 1;
                    println!("killed by {who}: {change}");
                }
                Fate::Survives => {
                    counts.survived += 1;
                    println!("SURVIVES: {change}");
                }
            }
        }
        Ok(counts)
    }

    fn fate(&self, subject: &Subject, seeds: u64) -> Result<Fate, String> {
        for judge in subject.judges {
            match self.judge(judge)? {
                Verdict::DoesNotCompile => return Ok(Fate::DoesNotCompile),
                Verdict::Failed => return Ok(Fate::KilledBy(judge[2..].join(" ").replace("--", ""))),
                Verdict::Passed => {}
            }
        }
        if seeds > 0 && !self.worlds(seeds)? {
            return Ok(Fate::KilledBy("the simulator".to_owned()));
        }
        Ok(Fate::Survives)
    }

    fn judge(&self, arguments: &[&str]) -> Result<Verdict, String> {
        let mut build = self.cargo();
        build.arg("test").args(&arguments[..arguments.len().min(4)]).arg("--no-run");
        if !within(&mut build, PATIENCE)? {
            return Ok(Verdict::DoesNotCompile);
        }
        let passed = within(self.cargo().arg("test").args(arguments), PATIENCE)?;
        Ok(if passed { Verdict::Passed } else { Verdict::Failed })
    }

    /// Whether simulated worlds are clean.
    fn worlds(&self, seeds: u64) -> Result<bool, String> {
        if !within(self.cargo().args(["build", "--package", "packhorse-sim"]), PATIENCE * 2)? {
            return Err("the simulator does not build with a change that compiles".to_owned());
        }
        for seed in 1..=seeds {
            let mut sim = Command::new(self.target.join("debug").join("packhorse-sim"));
            if !within(sim.args(["--seed", &seed.to_string()]), PATIENCE)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn cargo(&self) -> Command {
        let mut cargo = command::cargo(&self.tree);
        // Built once, run for a moment.
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "none").env("RUSTFLAGS", "-Awarnings");
        cargo
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    DoesNotCompile,
    Failed,
    Passed,
}

/// Whether a program ends well in time; what it says is dropped. One that does not end is killed with all that it has started.
#[expect(clippy::disallowed_methods, reason = "it waits for another program, which tells nobody when it ends")]
fn within(command: &mut Command, patience: Duration) -> Result<bool, String> {
    let quiet = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = quiet.spawn().map_err(|error| format!("it does not start: {error}"))?;
    let begin = Instant::now();
    loop {
        match process.try_wait().map_err(|error| error.to_string())? {
            Some(status) => return Ok(status.success()),
            None if begin.elapsed() > patience => {
                let _ = Command::new("kill").args(["-9", "--", &format!("-{}", process.id())]).status();
                let _ = process.wait();
                return Ok(false);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
