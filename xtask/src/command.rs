//! Command lines: taking them apart, starting a program and keeping what it prints: in a log file while it runs, on the screen when it fails.
//!
//! Must not do: decide what a failure means. That is the caller's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most lines of a failed program's output that are printed; the log has all of them.
const SHOWN_LINES: usize = 400;

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether it ended with 0.
    pub(crate) ok: bool,
    /// How it ended, for people.
    pub(crate) status: String,
    /// Standard output and standard error as they came.
    pub(crate) output: String,
    /// Where the output is kept.
    pub(crate) log: PathBuf,
}

impl Finished {
    /// The last lines of the output, with a hint at the rest.
    pub(crate) fn tail(&self) -> String {
        let lines: Vec<&str> = self.output.lines().collect();
        let hidden = lines.len().saturating_sub(SHOWN_LINES);
        let mut text = String::new();
        if hidden > 0 {
            text.push_str(&format!("({hidden} lines more in {})\n", self.log.display()));
        }
        text.push_str(&lines[hidden..].join("\n"));
        text
    }

    /// `Err` with the output unless the program ended with 0.
    pub(crate) fn succeeded(self) -> Result<Finished, String> {
        if self.ok { Ok(self) } else { Err(format!("{}\n{}", self.tail(), self.status)) }
    }
}

/// The cargo that started this program, or the one in the path.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsStr::new("cargo").to_owned()));
    command.current_dir(root);
    command
}

/// Runs a program to its end; both its outputs go to `<logs>/<name>.log`.
pub(crate) fn run(command: &mut Command, logs: &Path, name: &str) -> Result<Finished, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    fs::create_dir_all(logs).map_err(|error| format!("cannot create {}: {error}", logs.display()))?;
    let log = logs.join(format!("{name}.log"));
    let describe = |error: std::io::Error| format!("cannot write {}: {error}", log.display());
    let out = File::create(&log).map_err(describe)?;
    let err = out.try_clone().map_err(describe)?;
    let status = command
        .stdin(std::process::Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .map_err(|error| format!("`{program}` does not start: {error}"))?;
    let bytes = fs::read(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    let output = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Finished { ok: status.success(), status: format!("`{program}` ended with {status}"), output, log })
}

/// Runs a program with this one's own terminal, for tasks that a person watches.
pub(crate) fn watch(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("`{program}` does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}")) }
}

/// Takes `--name VALUE` out of the arguments.
pub(crate) fn take(arguments: &mut Vec<String>, name: &str) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|word| word == name) else { return Ok(None) };
    arguments.remove(at);
    if at == arguments.len() { Err(format!("{name} needs a value")) } else { Ok(Some(arguments.remove(at))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_are_kept_and_a_failure_shows_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let finished = run(&mut command, folder.path(), "step").expect("sh starts");
        assert_eq!(finished.output, "one\ntwo\n");
        assert_eq!(fs::read_to_string(folder.path().join("step.log")).expect("the log"), "one\ntwo\n");
        let text = finished.succeeded().expect_err("3 is a failure");
        assert!(text.contains("two") && text.contains("3"), "{text}");
    }

    #[test]
    fn a_long_output_is_cut_at_its_beginning() {
        let output = (0..SHOWN_LINES + 5).map(|n| format!("line {n}\n")).collect();
        let finished = Finished { ok: false, status: String::new(), output, log: PathBuf::from("x.log") };
        let tail = finished.tail();
        assert!(tail.starts_with("(5 lines more in x.log)\nline 5\n"), "{tail}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = run(&mut Command::new("no-such-program-here"), folder.path(), "step").expect_err("not there");
        assert!(error.contains("no-such-program-here"), "{error}");
    }
}
