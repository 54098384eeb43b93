//! `cargo xtask TASK`: what a developer and the CI do with the workspace. One module per task; this file only picks one.
//!
//! Must not do: depend on a crate of the workspace. A task starts binaries and reads files, so that it works, and says what
//! is wrong, even when nothing else compiles.

mod bench;
mod codegen;
mod command;
mod crash;
mod crash_points;
mod durability;
mod interop;
mod mutants;
mod readme;
mod record;
mod sim;
mod steps;
mod test;
mod tidy;
mod workspace;
// A task more: its module here, its arm in `main`, its line in `USAGE`.

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask TASK

  test [--quick] [STEP…]     everything that must hold, or only the named steps; `cargo xtask test --list` names them
  tidy                       what the compiler does not check: documents against code, headers, licenses, …
  codegen [--check]          writes (or compares) the source that comes from core/amqp10/standard.toml, and what `durability` does
  crash-points [ARGS…]       crashes the journal at each of its disk operations and compares what is recovered
  crash --kills N [ARGS…]    kills the broker while clients work, and judges what they saw
  crash --power N [ARGS…]    the same with power cuts: what was not synced is lost
  crash --flushes N [ARGS…]  the same with a disk that fails: the broker must end by itself
  crash --planted [ARGS…]    faults planted in the broker on purpose: each must be found; prints the table
  durability [--check]       writes (or compares) the generated parts of docs/durability-report.md
  sim --planted [NAME…]      faults planted in the broker on purpose, in the simulator; prints the table
  sim --seeds N [--jobs J]   brokers, clients and all that can go wrong between them, simulated: one world for each seed
  mutants [FILE…]            lines changed one by one: whether the tests notice; takes an hour
  bench KIND [ARGS…]         figures: `quick` for a first one, scenarios, instruction counts; without KIND it lists them
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let result = match task.as_str() {
        "test" => test::run(rest),
        "codegen" => codegen::run(rest),
        "tidy" => tidy::run(rest),
        "crash-points" => crash_points::run(rest),
        "crash" => crash::run(rest),
        "durability" => durability::run(rest),
        "sim" => sim::run(rest),
        "mutants" => mutants::run(rest),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no task `{other}`.\n\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}
