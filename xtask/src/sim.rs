//! `cargo xtask sim`: builds the simulator with its counts and starts it.
//!
//! Must not do: judge. `packhorse-sim` does.

use crate::{command, crash, durability, workspace};
use std::path::Path;
use std::process::Command;

const USAGE: &str = "\
cargo xtask sim --seeds N [--jobs J] [--from S] | --seed N [--faults 3,17] | --planted [NAME…] [ARGS…]

  --seeds N      the worlds of N seeds; goes on where a run of the same program was stopped
  --seed N       one world, with all its faults or only some
  --planted      faults planted in the broker on purpose, all or these: each must be found, and a table says how
  --profile P    what is built; `release` by default
  --record       adds what the seeds came to to docs/durability-report.md

Further arguments: `--dir DIR` (where the state is kept; target/sim by default), `--about X` (the story of a message or a client).
";

/// The package, and its program.
pub(crate) const PROGRAM: &str = "packhorse-sim";
/// Transitions of entries are counted.
pub(crate) const COUNTS: &str = "packhorse-sim/coverage";
/// Where a campaign keeps its state, in the target folder.
pub(crate) const FOLDER: &str = "sim";

/// Builds and starts what the arguments ask for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut rest = arguments.to_vec();
    let profile = command::take(&mut rest, "--profile")?.unwrap_or_else(|| "release".to_owned());
    let record = rest.iter().position(|word| word == "--record").map(|at| rest.remove(at)).is_some();
    let many = rest.iter().any(|word| word == "--seeds");
    let planted = rest.iter().position(|word| word == "--planted").map(|at| rest.remove(at)).is_some();
    if !planted && !many && !rest.iter().any(|word| word == "--seed") {
        return Err(USAGE.to_owned());
    }
    let root = workspace::root();
    if planted {
        return find_planted(&root, &profile, &rest);
    }
    let mut build = command::cargo(&root);
    build.args(["build", "--profile", &profile, "--package", PROGRAM, "--features", COUNTS]);
    command::watch(&mut build)?;
    let target = workspace::Metadata::read(&root)?.target;
    let folder = if profile == "dev" { "debug" } else { &profile };
    let program = target.join(folder).join(PROGRAM);
    let mut sim = if many { campaign(&program, &root) } else { Command::new(&program) };
    if many && !rest.iter().any(|word| word == "--dir") {
        sim.arg("--dir").arg(target.join(FOLDER));
    }
    sim.args(&rest).current_dir(&root);
    match many && record {
        true => durability::watch("sim seeds", &target.join("xtask").join("sim-report.json"), &mut sim),
        false => command::watch(&mut sim),
    }
}

/// Builds the simulator with planted faults, beside the ordinary one, and lets it look for them.
fn find_planted(root: &Path, profile: &str, names: &[String]) -> Result<(), String> {
    let target = workspace::Metadata::read(root)?.target;
    let mut build = crash::planted_cargo("build", root, &target);
    build.args(["--profile", profile, "--package", PROGRAM, "--features", "packhorse-sim/planted"]);
    command::watch(&mut build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let mut sim = Command::new(crash::planted_target(&target).join(folder).join(PROGRAM));
    command::watch(sim.arg(crash::PLANTED).args(names).current_dir(root))
}

/// The simulator for many seeds: it is to say of which commit they are.
pub(crate) fn campaign(program: &Path, root: &Path) -> Command {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty=, changed"]).current_dir(root);
    let told = git.output().ok().filter(|output| output.status.success());
    let commit = told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut command = Command::new(program);
    command.arg("--commit").arg(commit.unwrap_or_else(|| "no commit".to_owned()));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_seeds_there_is_nothing_to_run() {
        let error = run(&["--jobs".to_owned(), "2".to_owned()]).expect_err("no seeds");
        assert!(error.contains("--seeds N"), "{error}");
        let error = run(&["--seed".to_owned(), "2".to_owned(), "--profile".to_owned()]).expect_err("no profile");
        assert!(error.contains("--profile needs a value"), "{error}");
    }
}
