//! `cargo xtask bench`: builds the broker and the benchmark driver and starts the one against the other.
//!
//! Must not do: measure. The figures come from `packhorse-bench` and `packhorse-instructions`.

use crate::{command, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
cargo xtask bench KIND

  quick [ARGS…]          one producer, one consumer, a first figure
  B1 B2 B3 B4 [ARGS…]    scenarios in interleaved rounds; `cargo xtask bench B1 --help` names the arguments
  tx [ARGS…]             B5 and B6 the same way: local transactions, branches of XA, and recover after kill -9
  instructions [ARGS…]   instruction counts of hot paths against their baseline

Scenarios are built with the profile `dist`, the others with `release`; `--profile NAME` changes that.
";

/// What a person asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// What is built and started.
    program: &'static str,
    profile: String,
    arguments: Vec<String>,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Wanted, String> {
        let mut arguments = arguments.to_vec();
        let mut profile = None;
        if let Some(at) = arguments.iter().position(|word| word == "--profile") {
            let words: Vec<String> = arguments.drain(at..(at + 2).min(arguments.len())).collect();
            profile = Some(words.get(1).cloned().ok_or("--profile needs a name")?);
        }
        let (program, usual) = match arguments.first().map(String::as_str) {
            None | Some("help" | "--help" | "-h") => return Err(USAGE.to_owned()),
            Some("quick") => ("packhorse-bench", "release"),
            Some("instructions") => {
                arguments.remove(0);
                ("packhorse-instructions", "release")
            }
            Some(_) => {
                arguments.insert(0, "run".to_owned());
                ("packhorse-bench", "dist")
            }
        };
        Ok(Wanted { program, profile: profile.unwrap_or_else(|| usual.to_owned()), arguments })
    }
}

/// Builds and starts what the arguments ask for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let wanted = Wanted::parse(arguments)?;
    let root = workspace::root();
    let programs = build(&root, &wanted)?;
    let mut bench = Command::new(programs.join(wanted.program));
    bench.args(&wanted.arguments).env("PACKHORSE_BIN", programs.join("packhorse")).current_dir(&root);
    command::watch(&mut bench)
}

/// Builds; where the programs are.
fn build(root: &Path, wanted: &Wanted) -> Result<PathBuf, String> {
    let mut build = command::cargo(root);
    build.args(["build", "--profile", &wanted.profile, "--package", wanted.program]);
    if wanted.program == "packhorse-bench" {
        build.args(["--package", "packhorse"]);
    }
    command::watch(&mut build)?;
    Ok(workspace::Metadata::read(root)?.target.join(&wanted.profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Wanted, String> {
        Wanted::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_kind_has_its_program_and_its_profile() {
        let wanted = |program, profile: &str, line: &str| Wanted {
            program,
            profile: profile.to_owned(),
            arguments: line.split_whitespace().map(str::to_owned).collect(),
        };
        assert_eq!(parse("quick --count 5"), Ok(wanted("packhorse-bench", "release", "quick --count 5")));
        assert_eq!(parse("B1 B2 --report"), Ok(wanted("packhorse-bench", "dist", "run B1 B2 --report")));
        assert_eq!(parse("tx --rounds 3"), Ok(wanted("packhorse-bench", "dist", "run tx --rounds 3")));
        assert_eq!(parse("B1 --profile release"), Ok(wanted("packhorse-bench", "release", "run B1")));
        assert_eq!(parse("instructions --update"), Ok(wanted("packhorse-instructions", "release", "--update")));
        assert!(parse("").is_err());
        assert!(parse("B1 --profile").is_err());
    }
}
