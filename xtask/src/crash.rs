//! `cargo xtask crash`: builds the broker and the kill harness and starts the one against the other.
//!
//! Must not do: judge. `packhorse-crash` does, and says what its verbs take.

use crate::steps::Outcome;
use crate::{command, durability, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
cargo xtask crash --kills N | --power N | --flushes N | --xa N | --pipeline N | --transform N | --giant BYTES |
                  --planted [--seed S] [ARGS…]

  --kills N      kill -9 while clients work, until N kills count; what clients saw is judged
  --power N      the same with power cuts: what was not synced is lost; as root, with /dev/fuse
  --flushes N    writes and syncs fail: the broker must end at once, and the next one lacks nothing; as root, with /dev/fuse
  --xa N         branches of XA: manager, broker, both or link die at each step, each cell of the table N times
  --pipeline N   a pipeline with a decision log of its own, whose transaction manager dies N times
  --transform N  N messages are taken from a queue and sent to another in transactions, while broker and clients are killed
  --giant BYTES  transactions of so many bytes, of many messages and of one, with kills at work and while they are committed
  --planted      faults planted in the broker on purpose: each must be found, and a table says how
  --seed S       the first run's seed; by default another one each time
  --profile P    what is built; `release` by default
  --faults       clients work through a TCP proxy that holds back, cuts and forgets their connections, beside the kills
  --record       adds what it came to to docs/durability-report.md

Further arguments: `--per-run N`, `--keep`, `--dir DIR`, `--only-ours` (no foreign clients).
";

/// The harness's verb for kill -9.
pub(crate) const KILLS: &str = "kills";
/// And for power cuts.
pub(crate) const POWER: &str = "power";
/// And for flushes that fail.
pub(crate) const FLUSHES: &str = "flushes";
/// And for deaths at each step of a branch.
const XA: &str = "xa";
/// And for a pipeline of branches.
const PIPELINE: &str = "pipeline";
/// And for messages that are sent on in transactions.
const TRANSFORM: &str = "transform";
/// And for transactions of a GiB.
const GIANT: &str = "giant";
/// And for faults on purpose.
pub(crate) const PLANTED: &str = "planted";
/// Kills of a run, if the harness is not told otherwise.
pub(crate) const PER_RUN: u32 = 5;
/// The harness's flag for faults of the network.
pub(crate) const FAULTS: &str = "--faults";

/// What a person asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    profile: String,
    /// What it is called where it is recorded; `None`: it is not.
    record: Option<String>,
    /// The harness's command line.
    arguments: Vec<String>,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Wanted, String> {
        let mut rest = arguments.to_vec();
        let profile = command::take(&mut rest, "--profile")?.unwrap_or_else(|| "release".to_owned());
        let record = rest.iter().position(|word| word == "--record").map(|at| rest.remove(at)).is_some();
        for (verb, kind) in [
            (KILLS, "kills"),
            (POWER, "power cuts"),
            (FLUSHES, "failing flushes"),
            (XA, "deaths at each step of a branch"),
            (PIPELINE, "a pipeline with a decision log"),
            (TRANSFORM, "consume, transform, produce"),
            (GIANT, "transactions of a GiB"),
        ] {
            if let Some(count) = command::take(&mut rest, &format!("--{verb}"))? {
                let arguments = [vec![verb.to_owned(), "--count".to_owned(), count], rest].concat();
                let faults = if arguments.iter().any(|word| word == FAULTS) { " with faults" } else { "" };
                return Ok(Wanted { profile, record: record.then(|| format!("{kind}{faults}")), arguments });
            }
        }
        match rest.iter().position(|word| word == "--planted") {
            Some(_) if record => Err(format!("--planted has a table of its own\n\n{USAGE}")),
            Some(at) => {
                rest[at] = PLANTED.to_owned();
                rest[..=at].rotate_right(1);
                Ok(Wanted { profile, record: None, arguments: rest })
            }
            None => Err(USAGE.to_owned()),
        }
    }
}

/// Builds and starts what the arguments ask for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let wanted = Wanted::parse(arguments)?;
    let root = workspace::root();
    let mut build = command::cargo(&root);
    build.args(["build", "--profile", &wanted.profile]);
    build.args(["--package", "packhorse", "--package", "packhorse-crash", "--package", "packhorse-interop"]);
    command::watch(&mut build)?;
    let target = workspace::Metadata::read(&root)?.target;
    let folder = if wanted.profile == "dev" { "debug" } else { &wanted.profile };
    let mut broker = target.join(folder).join("packhorse");
    if wanted.arguments[0] == PLANTED {
        let mut build = planted_cargo("build", &root, &target);
        command::watch(build.args(["--profile", &wanted.profile, "--package", "packhorse", "--features", "planted"]))?;
        broker = planted_target(&target).join(folder).join("packhorse");
    }
    let mut harness = Command::new(target.join(folder).join("packhorse-crash"));
    harness.args(&wanted.arguments).env("PACKHORSE_BIN", broker).current_dir(&root);
    let Some(kind) = &wanted.record else { return command::watch(&mut harness) };
    durability::watch(kind, &target.join("xtask").join("crash-report.json"), &mut harness)
}

/// Where programs with planted faults are, so that nobody takes them for the ordinary ones.
pub(crate) fn planted_target(target: &Path) -> PathBuf {
    target.join("planted")
}

/// Cargo that puts programs there, and shares everything that is compiled on the way with the ordinary builds.
pub(crate) fn planted_cargo(verb: &str, root: &Path, target: &Path) -> Command {
    let mut cargo = command::cargo(root);
    cargo.arg(verb).arg("--target-dir").arg(planted_target(target)).env("CARGO_BUILD_BUILD_DIR", target);
    cargo
}

/// The harness's command line in the test command: the programs are built.
pub(crate) fn deaths(verb: &str, harness: &Path, broker: &Path, root: &Path, count: u32) -> Command {
    let mut command = Command::new(harness);
    command.args([verb, "--count", &count.to_string()]).arg("--bin").arg(broker).current_dir(root);
    command
}

/// The counts of the harness's last line, `20 kills counted (21 made), …: 0 violations`. Where the system does not let it, it
/// says `SKIPPED: …` alone; in CI it fails then.
pub(crate) fn outcome(finished: command::Finished) -> Result<Outcome, String> {
    let line = finished.output.lines().rev().find(|line| line.contains("s counted ("));
    let counted = line.and_then(|line| line.split(' ').next()).and_then(|word| word.parse().ok()).unwrap_or(0);
    if finished.ok && counted > 0 {
        return Ok(Outcome { passed: counted, ..Outcome::default() });
    }
    if finished.ok && line.is_none() && finished.output.lines().any(|line| line.starts_with("SKIPPED: ")) {
        return Ok(Outcome { skipped: 1, ..Outcome::default() });
    }
    Err(format!("{}\n{}", finished.tail(), finished.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wanted, String> {
        Wanted::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_become_the_harness_s() {
        let wanted = |profile: &str, line: &str| Wanted {
            profile: profile.to_owned(),
            record: None,
            arguments: line.split_whitespace().map(str::to_owned).collect(),
        };
        assert_eq!(parse("--kills 100"), Ok(wanted("release", "kills --count 100")));
        assert_eq!(
            parse("--seed 7 --kills 5 --profile dev --keep"),
            Ok(wanted("dev", "kills --count 5 --seed 7 --keep"))
        );
        assert_eq!(parse("--power 60"), Ok(wanted("release", "power --count 60")));
        assert_eq!(parse("--flushes 30"), Ok(wanted("release", "flushes --count 30")));
        assert_eq!(parse("--seed 3 --planted --keep"), Ok(wanted("release", "planted --seed 3 --keep")));
        let recorded = parse("--record --power 5").expect("a flag of ours");
        assert_eq!(recorded.record.as_deref(), Some("power cuts"));
        assert_eq!(recorded.arguments, ["power", "--count", "5"]);
        let recorded = parse("--kills 400 --faults --record").expect("flags of ours");
        assert_eq!(recorded.record.as_deref(), Some("kills with faults"));
        assert_eq!(recorded.arguments, ["kills", "--count", "400", "--faults"]);
        assert_eq!(parse("--xa 20"), Ok(wanted("release", "xa --count 20")));
        assert_eq!(parse("--pipeline 1000"), Ok(wanted("release", "pipeline --count 1000")));
        assert!(parse("").is_err());
        assert!(parse("--kills").is_err());
        assert!(parse("--planted --record").is_err());
    }

    #[test]
    fn the_last_line_is_counted_if_the_harness_says_that_it_is_clean() {
        let finished = |ok, output: &str| command::Finished {
            ok,
            status: "it ended".to_owned(),
            output: output.to_owned(),
            log: PathBuf::new(),
        };
        let line = "run 1: fine\n20 kills counted (21 made), 5 confirmed: 0 violations\n";
        assert_eq!(outcome(finished(true, line)).map(|outcome| outcome.passed), Ok(20));
        outcome(finished(false, line)).expect_err("it ended with a failure");
        outcome(finished(true, "0 kills counted (9 made)")).expect_err("nothing counted");
        outcome(finished(true, "nothing")).expect_err("nothing ran");
        let skipped = "SKIPPED: power cannot be cut: not as root\n";
        assert_eq!(outcome(finished(true, skipped)).map(|outcome| outcome.skipped), Ok(1));
        outcome(finished(false, skipped)).expect_err("in CI");
        outcome(finished(true, &format!("{skipped}0 kills counted (9 made)"))).expect_err("nothing counted");
    }
}
