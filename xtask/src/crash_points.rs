//! `cargo xtask crash-points`: the journal on a simulated disk that stops at each of its operations.
//!
//! Must not do: know what is compared; that is the example `crash_points` of core/journal.

use crate::{command, workspace};

/// Runs the example with its own output on the terminal.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut cargo = command::cargo(&workspace::root());
    cargo.args(CARGO_RUN).arg("--").args(arguments);
    command::watch(&mut cargo)
}

/// How cargo builds and starts the example by itself.
pub(crate) const CARGO_RUN: [&str; 8] =
    ["run", "--quiet", "--package", "packhorse-journal", "--features", "sim", "--example", "crash_points"];
