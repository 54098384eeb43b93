//! `cargo xtask bench`: builds the release broker and the load generator and starts the one against the other.
//!
//! Must not do: measure. The figures come from `packhorse-bench`.

use crate::{command, workspace};
use std::process::Command;

/// `quick` and what follows go to the load generator, which starts the broker itself.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() {
        return Err("bench needs a kind of run: `cargo xtask bench quick`".to_owned());
    }
    let root = workspace::root();
    let mut build = command::cargo(&root);
    build.args(["build", "--release", "--package", "packhorse", "--package", "packhorse-bench"]);
    command::watch(&mut build)?;
    let release = workspace::Metadata::read(&root)?.target.join("release");
    let mut bench = Command::new(release.join("packhorse-bench"));
    bench.args(arguments).env("PACKHORSE_BIN", release.join("packhorse")).current_dir(&root);
    command::watch(&mut bench)
}
