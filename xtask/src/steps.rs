//! The steps of the test command, in the order in which they run: cheap ones first, so that a slip shows at once.
//!
//! One build serves all of them: what `build` made is what `unit`, `crash-points` and `interop` run. Must not do: print;
//! a step returns its counts and, where it failed, the text to show.

use crate::record::Record;
use crate::workspace::Metadata;
use crate::{codegen, command, crash, crash_points, interop, readme, sim, tidy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// One step.
pub(crate) struct Step {
    /// What to type to run it alone.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) what: &'static str,
    /// Whether `--quick` keeps it.
    pub(crate) quick: bool,
    /// Does it.
    pub(crate) run: fn(&mut Context) -> Result<Outcome, String>,
}

/// All of them, in order.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "fmt", what: "the source is formatted", quick: true, run: fmt },
    Step { name: "tidy", what: "documents, table of dependencies, licenses, headers", quick: true, run: tidy_rules },
    Step {
        name: "codegen",
        what: "generated source and tables are what their sources give",
        quick: true,
        run: generated,
    },
    Step { name: "clippy", what: "no warning in any target of any member", quick: true, run: clippy },
    Step { name: "build", what: "every member with its tests and examples", quick: true, run: build },
    Step { name: "unit", what: "cargo test of every member, real-process tests among them", quick: true, run: unit },
    Step {
        name: "readme",
        what: "the binary takes the command lines of the README and of pages for operators",
        quick: true,
        run: command_lines,
    },
    Step { name: "crash-points", what: "the journal stopped at each disk operation", quick: true, run: stopped },
    Step {
        name: "sim",
        what: "brokers and clients simulated, with all that can go wrong",
        quick: false,
        run: simulated,
    },
    Step { name: "crash", what: "the broker killed, and its power cut, while clients work", quick: false, run: killed },
    Step {
        name: "planted",
        what: "faults on purpose are found, each one; scenarios at failpoints",
        quick: false,
        run: planted,
    },
    Step { name: "instructions", what: "instruction counts of hot paths, within 3 %", quick: false, run: instructions },
    Step { name: "interop", what: "foreign clients against the broker", quick: false, run: matrix },
];

/// All members, with the simulated disk and the simulator's counts: the same for each call of cargo, so that it builds once.
const EVERYTHING: &[&str] = &["--workspace", "--features", "packhorse-journal/sim", "--features", sim::COUNTS];

/// Counts of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Checks that held.
    pub(crate) passed: u64,
    /// Checks that did not.
    pub(crate) failed: u64,
    /// Checks left out, with a reason in the output.
    pub(crate) skipped: u64,
    /// What to show if something failed.
    pub(crate) text: String,
    /// The names of what failed, of steps that know them.
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    /// A step that is one check.
    fn one() -> Outcome {
        Outcome { passed: 1, ..Outcome::default() }
    }

    /// The counts in words.
    pub(crate) fn describe(&self) -> String {
        match (self.failed, self.skipped) {
            (0, 0) => format!("{} passed", self.passed),
            (0, skipped) => format!("{} passed, {skipped} skipped", self.passed),
            (failed, skipped) => format!("{} passed, {failed} failed, {skipped} skipped", self.passed),
        }
    }
}

/// What the steps share.
pub(crate) struct Context {
    root: PathBuf,
    metadata: Metadata,
    logs: PathBuf,
    ci: bool,
    passed_on: Vec<String>,
    built: Option<Built>,
    /// What was run so far.
    pub(crate) record: Record,
}

impl Context {
    /// Nothing run yet.
    pub(crate) fn new(root: PathBuf, metadata: Metadata, ci: bool, passed_on: Vec<String>) -> Context {
        let logs = metadata.target.join("xtask").join("logs");
        Context { root, metadata, logs, ci, passed_on, built: None, record: Record::default() }
    }

    fn cargo(&self, name: &str, arguments: &[&str]) -> Result<command::Finished, String> {
        command::run(command::cargo(&self.root).args(arguments), &self.logs, name)
    }

    /// Skipped for a person, failed in CI: a part of the toolchain is missing.
    fn missing(&self, what: &str, install: &str) -> Result<Outcome, String> {
        let text = format!("{what} is not installed: {install}");
        if self.ci {
            return Err(text);
        }
        println!("   SKIPPED: {text}");
        Ok(Outcome { skipped: 1, ..Outcome::default() })
    }

    /// The executables of a build of the given packages, or of the whole workspace if that was built.
    fn built(&mut self, packages: &[&str]) -> Result<&Built, String> {
        if self.built.is_none() {
            let mut arguments = vec!["build", "--message-format=json-render-diagnostics"];
            arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
            self.built = Some(Built::new(self, &arguments)?);
        }
        self.built.as_ref().ok_or_else(|| "nothing was built".to_owned())
    }
}

/// Executables by package: tests, binaries and examples.
struct Built {
    tests: BTreeMap<PathBuf, String>,
    programs: BTreeMap<String, (PathBuf, String)>,
}

impl Built {
    /// Builds and listens to what cargo says it made.
    fn new(context: &Context, arguments: &[&str]) -> Result<Built, String> {
        let finished = context.cargo("build", arguments)?.succeeded()?;
        let packages: BTreeMap<&str, &str> =
            context.metadata.members().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        Ok(Built::parse(&finished.output, &packages))
    }

    /// Takes the artifacts out of cargo's JSON lines; `packages` maps ids to names.
    fn parse(output: &str, packages: &BTreeMap<&str, &str>) -> Built {
        let mut built = Built { tests: BTreeMap::new(), programs: BTreeMap::new() };
        for message in output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let (Some(id), Some(path), Some(name)) =
                (message["package_id"].as_str(), message["executable"].as_str(), message["target"]["name"].as_str())
            else {
                continue;
            };
            let Some(package) = packages.get(id) else { continue };
            if message["profile"]["test"].as_bool() == Some(true) {
                built.tests.insert(PathBuf::from(path), (*package).to_owned());
            } else {
                built.programs.insert(name.to_owned(), (PathBuf::from(path), (*package).to_owned()));
            }
        }
        built
    }

    fn program(&self, name: &str) -> Result<(&Path, &str), String> {
        let (path, package) = self.programs.get(name).ok_or_else(|| format!("the build made no program `{name}`"))?;
        Ok((path, package))
    }
}

fn fmt(context: &mut Context) -> Result<Outcome, String> {
    if !context.cargo("fmt-version", &["fmt", "--version"])?.ok {
        return context.missing("rustfmt", "rustup component add rustfmt");
    }
    let finished = context.cargo("fmt", &["fmt", "--all", "--check", "--", "--color", "never"])?;
    finished.succeeded().map_err(|text| format!("{text}\nRun `cargo fmt --all`."))?;
    Ok(Outcome::one())
}

fn tidy_rules(context: &mut Context) -> Result<Outcome, String> {
    let report = tidy::check(&context.root, &context.metadata)?;
    let failed = report.failed();
    Ok(Outcome { passed: report.rules() - failed, failed, text: report.text(), ..Outcome::default() })
}

fn generated(_: &mut Context) -> Result<Outcome, String> {
    codegen::run(&["--check".to_owned()])?;
    Ok(Outcome::one())
}

fn clippy(context: &mut Context) -> Result<Outcome, String> {
    if !context.cargo("clippy-version", &["clippy", "--version"])?.ok {
        return context.missing("clippy", "rustup component add clippy");
    }
    context
        .cargo("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?
        .succeeded()?;
    Ok(Outcome::one())
}

fn build(context: &mut Context) -> Result<Outcome, String> {
    let arguments = [&["build"], EVERYTHING, &["--all-targets", "--message-format=json-render-diagnostics"]].concat();
    context.built = Some(Built::new(context, &arguments)?);
    Ok(Outcome::one())
}

fn unit(context: &mut Context) -> Result<Outcome, String> {
    if context.built.is_none() {
        // Tests of the real process need the binary, which cargo would not build for another package's tests.
        build(context)?;
    }
    let packages: Vec<String> = context.metadata.members().map(|package| package.name.clone()).collect();
    let mut cargo = command::cargo(&context.root);
    cargo.arg("test").args(EVERYTHING).arg("--no-fail-fast");
    if let Some(built) = &context.built {
        cargo.env("PACKHORSE_BIN", built.program("packhorse")?.0);
    }
    if !context.passed_on.is_empty() {
        cargo.arg("--").args(&context.passed_on);
    }
    let finished = command::run(&mut cargo, &context.logs, "unit")?;
    let tests = context.built.as_ref().map(|built| &built.tests);
    let counts = TestCounts::parse(&finished.output, |binary| match binary {
        Binary::Executable(path) => {
            tests?.iter().find(|(known, _)| known.ends_with(path)).map(|(_, name)| name.clone())
        }
        Binary::Documentation(library) => packages.iter().find(|name| name.replace('-', "_") == library).cloned(),
    });
    let mut outcome = counts.outcome;
    if outcome.text.is_empty() {
        outcome.text = finished.tail();
    }
    for (package, passed) in counts.members {
        *context.record.members.entry(package).or_default() += passed;
    }
    if !finished.ok && outcome.failed == 0 {
        return Err(format!("{}\n{}", finished.tail(), finished.status));
    }
    Ok(outcome)
}

/// What `cargo test` announces before a block of tests.
enum Binary<'a> {
    Executable(&'a str),
    Documentation(&'a str),
}

/// Counts from the output of `cargo test`, by package; of what failed, the names and what was printed.
#[derive(Debug, Default)]
struct TestCounts {
    outcome: Outcome,
    members: BTreeMap<String, u64>,
}

impl TestCounts {
    fn parse(output: &str, owner: impl Fn(Binary<'_>) -> Option<String>) -> TestCounts {
        let mut counts = TestCounts::default();
        let mut package = None;
        let mut telling = false;
        for whole in output.lines() {
            let line = whole.trim();
            if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                counts
                    .outcome
                    .failures
                    .push(format!("{}{test}", package.iter().map(|name| format!("{name}: ")).collect::<String>()));
            }
            // From the first `failures:` of a block to its end there is what the failed tests printed.
            telling |= line == "failures:";
            if telling {
                counts.outcome.text.push_str(whole);
                counts.outcome.text.push('\n');
            }
            telling &= !line.starts_with("test result: ");
            if let Some(rest) = line.strip_prefix("Running ") {
                let path = rest.rsplit_once('(').map(|(_, path)| path.trim_end_matches(')'));
                package = path.and_then(|path| owner(Binary::Executable(path)));
            } else if let Some(library) = line.strip_prefix("Doc-tests ") {
                package = owner(Binary::Documentation(library));
            } else if line.starts_with("test result: ") {
                let count = |word: &str| count_before(line, word);
                counts.outcome.passed += count("passed");
                counts.outcome.failed += count("failed");
                counts.outcome.skipped += count("ignored");
                if let Some(package) = &package {
                    *counts.members.entry(package.clone()).or_default() += count("passed");
                }
            }
        }
        counts
    }
}

/// The number before a word, in `12 passed; 0 failed` and in `12 passed, 0 failed`; 0 if the word is not there.
fn count_before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';', ',', '.']).filter(|part| !part.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The counts of a program whose last line that speaks of `passed` and `failed` is its summary.
fn summary(finished: command::Finished) -> Result<Outcome, String> {
    let line = finished.output.lines().rev().find(|line| line.contains(" passed, ") && line.contains(" failed"));
    let Some(line) = line else {
        return Err(format!("{}\n{}, without its line `N passed, N failed`", finished.tail(), finished.status));
    };
    let count = |word: &str| count_before(line, word);
    let outcome = Outcome {
        passed: count("passed"),
        failed: count("failed"),
        skipped: count("skipped"),
        text: finished.tail(),
        failures: Vec::new(),
    };
    if finished.ok == (outcome.failed == 0) && outcome.passed + outcome.failed > 0 {
        Ok(outcome)
    } else {
        Err(format!("{}\n{}, which does not fit `{line}`", finished.tail(), finished.status))
    }
}

fn command_lines(context: &mut Context) -> Result<Outcome, String> {
    let binary = context.built(&["packhorse"])?.program("packhorse")?.0.to_owned();
    let mut outcome = Outcome::default();
    for page in readme::PAGES {
        let text =
            fs::read_to_string(context.root.join(page)).map_err(|error| format!("cannot read {page}: {error}"))?;
        let commands = readme::commands(&text);
        if commands.is_empty() {
            return Err(format!("{page} shows no command line any more"));
        }
        for arguments in commands {
            let finished = command::run(Command::new(&binary).args(&arguments).arg("--help"), &context.logs, "readme")?;
            if finished.ok {
                outcome.passed += 1;
            } else {
                outcome.failed += 1;
                let line = arguments.join(" ");
                outcome.text.push_str(&format!("{page} has `packhorse {line}`:\n{}\n", finished.tail()));
            }
        }
    }
    Ok(outcome)
}

fn stopped(context: &mut Context) -> Result<Outcome, String> {
    let built = context.built.as_ref().and_then(|built| built.program("crash_points").ok());
    let mut program = match built {
        Some((path, _)) => Command::new(path),
        None => {
            let mut cargo = command::cargo(&context.root);
            cargo.args(crash_points::CARGO_RUN).arg("--");
            cargo
        }
    };
    program.args(&context.passed_on).current_dir(&context.root);
    context.record.started.insert("packhorse-journal".to_owned());
    let finished = command::run(&mut program, &context.logs, "crash-points")?;
    show_lines(&finished.output);
    summary(finished)
}

/// Seeds of the sim step: a campaign has more.
const SEEDS: u64 = 300;

fn simulated(context: &mut Context) -> Result<Outcome, String> {
    // Alone, it would be built without its counts.
    if context.built.is_none() {
        build(context)?;
    }
    let (program, package) = context.built(&[])?.program(sim::PROGRAM)?;
    let (program, package) = (program.to_owned(), package.to_owned());
    context.record.started.insert(package);
    let mut command = sim::campaign(&program, &context.root);
    // Nothing of an earlier run counts.
    let folder = context.metadata.target.join("xtask").join(sim::FOLDER);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", folder.display()));
        }
        _ => {}
    }
    command.args(["--seeds", &SEEDS.to_string(), "--jobs", "2"]).arg("--dir").arg(folder);
    command.args(&context.passed_on).current_dir(&context.root);
    let finished = command::run(&mut command, &context.logs, "sim")?;
    show_lines(&finished.output);
    summary(finished)
}

/// Kills, power cuts and failing flushes of the crash step, each with more flags: a campaign makes more.
const DEATHS: [(&str, u32, &[&str]); 4] =
    [(crash::KILLS, 10, &[]), (crash::KILLS, 10, &[crash::FAULTS]), (crash::POWER, 5, &[]), (crash::FLUSHES, 5, &[])];

fn killed(context: &mut Context) -> Result<Outcome, String> {
    let built = context.built(&["packhorse", "packhorse-crash", "packhorse-interop"])?;
    let (harness, package) = built.program("packhorse-crash")?;
    let (harness, package, broker) = (harness.to_owned(), package.to_owned(), built.program("packhorse")?.0.to_owned());
    context.record.started.insert(package);
    let mut parts = Vec::new();
    // Runs of both kinds of kills have seeds that follow each other, so that foreign clients take part in one of them.
    let seeded = context.passed_on.iter().any(|argument| argument == "--seed");
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 1_000_000_000;
    for (verb, count, flags) in DEATHS {
        let mut command = crash::deaths(verb, &harness, &broker, &context.root, count);
        command.arg("--dir").arg(context.metadata.target.join("crash")).args(flags).args(&context.passed_on);
        if !seeded {
            command.args(["--seed", &seed.to_string()]);
            seed += u64::from(count.div_ceil(crash::PER_RUN));
        }
        let log = format!("crash-{verb}{}", flags.concat());
        let found = command::run(&mut command, &context.logs, &log).and_then(|finished| {
            show_lines(&finished.output);
            crash::outcome(finished)
        });
        parts.push(found);
    }
    joined(parts)
}

/// What is built with planted faults, with the tests of their places.
const WITH_PLANTED: [&str; 5] =
    ["packhorse-model", "packhorse-queue", "packhorse-journal", "packhorse", "packhorse-sim"];

fn planted(context: &mut Context) -> Result<Outcome, String> {
    let harness = context.built(&["packhorse", "packhorse-crash"])?.program("packhorse-crash")?.0.to_owned();
    let target = context.metadata.target.clone();
    let mut cargo = crash::planted_cargo("test", &context.root, &target);
    for package in WITH_PLANTED {
        cargo.args(["--package", package, "--features", &format!("{package}/planted")]);
    }
    // One build with everything that is for tests only: the scenarios at failpoints are run with it as well.
    cargo.args(["--features", "packhorse/failpoints", "--package", "packhorse-crash"]);
    cargo.args(["--features", "packhorse-crash/failpoints", "--test", "planted", "--test", "failpoints"]);
    let broker = crash::planted_target(&target).join("debug").join("packhorse");
    cargo.env("PACKHORSE_BIN", &broker);
    // What one part finds must not hide what the others do.
    let tests = command::run(cargo.arg("--no-fail-fast"), &context.logs, "planted-tests")?;
    let mut outcome = TestCounts::parse(&tests.output, |_| None).outcome;
    if !tests.ok && outcome.failed == 0 {
        // It was not built, and there is nothing to run.
        return Err(format!("{}\n{}", tests.tail(), tests.status));
    }
    if outcome.text.is_empty() {
        outcome.text = tests.tail();
    }
    let mut parts = vec![Ok(outcome)];
    let mut command = Command::new(harness);
    command.arg(crash::PLANTED).arg("--bin").arg(broker).arg("--dir").arg(target.join("crash"));
    command.args(&context.passed_on).current_dir(&context.root);
    let mut worlds = Command::new(crash::planted_target(&target).join("debug").join(sim::PROGRAM));
    worlds.arg(crash::PLANTED).current_dir(&context.root);
    for (mut command, log) in [(command, "planted"), (worlds, "planted-sim")] {
        let found = command::run(&mut command, &context.logs, log).and_then(|finished| {
            let table = finished.output.lines().position(|line| line.starts_with("planted fault "));
            let table: Vec<&str> = finished.output.lines().skip(table.unwrap_or(0)).collect();
            show_lines(&table.join("\n"));
            summary(finished)
        });
        parts.push(found);
    }
    joined(parts)
}

/// All parts of a step. One that could not be judged fails the step, and what the others came to is told as well.
fn joined(parts: Vec<Result<Outcome, String>>) -> Result<Outcome, String> {
    let (mut sum, mut judged, mut texts) = (Outcome::default(), true, Vec::new());
    for part in parts {
        match part {
            Ok(part) => {
                sum.passed += part.passed;
                sum.failed += part.failed;
                sum.skipped += part.skipped;
                sum.failures.extend(part.failures);
                texts.push(part.text);
            }
            Err(text) => {
                judged = false;
                texts.push(text);
            }
        }
    }
    sum.text = texts.join("\n");
    if judged {
        return Ok(sum);
    }
    let Outcome { passed, failed, text, .. } = sum;
    Err(format!("{text}\n{passed} passed, {failed} failed in the parts that could be judged"))
}

/// The only step with a build of its own: counts of a debug build say nothing.
fn instructions(context: &mut Context) -> Result<Outcome, String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return context.missing("valgrind", "apt-get install valgrind");
    }
    let arguments = ["run", "--release", "--quiet", "--package", "packhorse-instructions"];
    let finished = context.cargo("instructions", &arguments)?;
    show_lines(&finished.output);
    summary(finished)
}

fn matrix(context: &mut Context) -> Result<Outcome, String> {
    let report = context.logs.join("interop.json");
    let built = context.built(&["packhorse", "packhorse-interop"])?;
    let (driver, package) = built.program("packhorse-interop")?;
    let (driver, package, broker) = (driver.to_owned(), package.to_owned(), built.program("packhorse")?.0.to_owned());
    let mut command = interop::command(&driver, &broker, &report, &context.root, &context.passed_on);
    // A report of an earlier run must not stand in for this one.
    match fs::remove_file(&report) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", report.display()));
        }
        _ => {}
    }
    let finished = command::run(&mut command, &context.logs, "interop")?;
    show_lines(&finished.output);
    context.record.started.insert(package);
    if let Ok(text) = fs::read_to_string(&report) {
        context.record.clients = interop::clients(&text)?;
    }
    summary(finished)
}

/// A short program's whole output, for it is a table that people want to see.
fn show_lines(output: &str) {
    const MOST: usize = 120;
    let lines: Vec<&str> = output.lines().collect();
    for line in &lines[lines.len().saturating_sub(MOST)..] {
        println!("   {line}");
    }
}

/// Whether everything in the workspace took part in this run.
pub(crate) fn coverage(context: &Context) -> Result<(), String> {
    let findings = tidy::coverage::check(&context.root, &context.metadata, &context.record)?;
    if findings.is_empty() { Ok(()) } else { Err(findings.iter().map(|finding| format!("{finding}\n")).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/packhorse_model-0a1b)

running 2 tests
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/kill.rs (target/debug/deps/kill-77)
test starts ... ok
test kills::all ... FAILED

failures:

---- kills::all stdout ----
it is not dead

failures:
    kills::all

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests packhorse_model
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn tests_are_counted_by_package() {
        let counts = TestCounts::parse(OUTPUT, |binary| {
            Some(match binary {
                Binary::Executable(path) if path.ends_with("kill-77") => "crash".to_owned(),
                Binary::Executable(_) => "model".to_owned(),
                Binary::Documentation(library) => {
                    assert_eq!(library, "packhorse_model");
                    "model".to_owned()
                }
            })
        });
        assert_eq!((counts.outcome.passed, counts.outcome.failed, counts.outcome.skipped), (9, 1, 1));
        assert_eq!(counts.members, BTreeMap::from([("crash".to_owned(), 3), ("model".to_owned(), 6)]));
        assert_eq!(counts.outcome.failures, ["crash: kills::all"]);
        let text = counts.outcome.text;
        assert!(
            text.contains("it is not dead") && !text.contains("test starts") && !text.contains("Doc-tests"),
            "{text}"
        );
    }

    fn finished(ok: bool, output: &str) -> command::Finished {
        command::Finished { ok, status: "it ended".to_owned(), output: output.to_owned(), log: PathBuf::new() }
    }

    #[test]
    fn a_summary_must_fit_the_exit_code() {
        let outcome = summary(finished(true, "cell a\n12 passed, 0 failed, 3 skipped\n")).expect("it fits");
        assert_eq!((outcome.passed, outcome.failed, outcome.skipped), (12, 0, 3));
        assert_eq!(summary(finished(false, "11 passed, 1 failed")).expect("it fits").failed, 1);
        summary(finished(false, "12 passed, 0 failed")).expect_err("it ended with a failure");
        summary(finished(true, "11 passed, 1 failed")).expect_err("it claims success");
        summary(finished(true, "0 passed, 0 failed")).expect_err("nothing ran");
        summary(finished(true, "done")).expect_err("no summary");
    }

    #[test]
    fn a_part_that_fails_hides_no_other() {
        let part = |passed, failed, text: &str| Outcome { passed, failed, text: text.to_owned(), ..Outcome::default() };
        let sum = joined(vec![Ok(part(1, 2, "the first")), Ok(part(30, 0, "the second"))]).expect("both are judged");
        assert_eq!((sum.passed, sum.failed, sum.text.as_str()), (31, 2, "the first\nthe second"));
        let text = joined(vec![Err("it does not start".to_owned()), Ok(part(30, 4, "the second"))]);
        let text = text.expect_err("one is not judged");
        assert!(
            ["it does not start", "the second", "30 passed, 4 failed"].iter().all(|told| text.contains(told)),
            "{text}"
        );
    }

    #[test]
    fn artifacts_are_sorted_into_tests_and_programs() {
        let lines = r#"
{"reason":"compiler-artifact","package_id":"p 1","target":{"name":"kill"},"profile":{"test":true},"executable":"/t/kill-77"}
{"reason":"compiler-artifact","package_id":"p 1","target":{"name":"packhorse"},"profile":{"test":false},"executable":"/t/packhorse"}
{"reason":"compiler-artifact","package_id":"p 1","target":{"name":"lib"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"other","target":{"name":"x"},"profile":{"test":false},"executable":"/t/x"}
not json"#;
        let built = Built::parse(lines, &BTreeMap::from([("p 1", "crash")]));
        assert_eq!(built.tests, BTreeMap::from([(PathBuf::from("/t/kill-77"), "crash".to_owned())]));
        assert_eq!(built.program("packhorse"), Ok((Path::new("/t/packhorse"), "crash")));
        assert!(built.program("x").is_err());
    }
}
