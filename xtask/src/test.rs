//! `cargo xtask test`: the test command of the README. Runs the steps, prints their seconds, ends with one line of counts.
//!
//! Must not do: know how a step works. That is `steps`.

use crate::steps::{self, Context, Outcome, STEPS, Step};
use crate::workspace::{self, Metadata};
use std::time::{Duration, Instant};

/// A step that is over.
struct Done {
    name: &'static str,
    took: Duration,
    result: Result<Outcome, String>,
}

/// Runs all steps, or those that are named; arguments after `--` go to the last named step.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--list") {
        for step in STEPS {
            println!("{:<14}{}", step.name, step.what);
        }
        return Ok(());
    }
    let plan = Plan::parse(arguments)?;
    let root = workspace::root();
    let metadata = Metadata::read(&root)?;
    let target = metadata.target.clone();
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let complete = plan.complete();
    let mut context = Context::new(root, metadata, ci, plan.passed_on);

    let begun = Instant::now();
    let mut done = Vec::new();
    for step in plan.steps {
        println!("── {}: {}", step.name, step.what);
        let start = Instant::now();
        let result = (step.run)(&mut context);
        let took = start.elapsed();
        match &result {
            Ok(outcome) if outcome.failed == 0 => println!("   {:.1} s, {}", took.as_secs_f64(), outcome.describe()),
            Ok(outcome) => println!("{}\n   {:.1} s, {}: FAILED", outcome.text, took.as_secs_f64(), outcome.describe()),
            Err(text) => println!("{text}\n   {:.1} s: FAILED", took.as_secs_f64()),
        }
        done.push(Done { name: step.name, took, result });
    }
    if complete {
        context.record.write(&target)?;
        if let Err(text) = steps::coverage(&context) {
            println!("{text}");
            done.push(Done { name: "coverage", took: Duration::ZERO, result: Err(text) });
        }
    }
    let failed = print_table(&done, begun.elapsed());
    if failed == 0 { Ok(()) } else { Err("the test run failed; the steps above say why".to_owned()) }
}

/// Which steps, and how.
struct Plan {
    steps: Vec<&'static Step>,
    quick: bool,
    passed_on: Vec<String>,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Plan, String> {
        let mut plan = Plan { steps: Vec::new(), quick: false, passed_on: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => plan.quick = true,
                "--" => plan.passed_on = rest.by_ref().cloned().collect(),
                name => match STEPS.iter().find(|step| step.name == name) {
                    Some(step) => plan.steps.push(step),
                    None => {
                        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
                        return Err(format!("there is no step `{name}`; the steps are {}", known.join(", ")));
                    }
                },
            }
        }
        if !plan.passed_on.is_empty() && plan.steps.len() != 1 {
            return Err("arguments after `--` go to one step: name just one".to_owned());
        }
        if plan.steps.is_empty() {
            plan.steps = STEPS.iter().filter(|step| !plan.quick || step.quick).collect();
        }
        Ok(plan)
    }

    /// Whether this is the whole test command, so that its record counts.
    fn complete(&self) -> bool {
        self.steps.len() == STEPS.len() && !self.quick && self.passed_on.is_empty()
    }
}

/// Prints steps and seconds, then the one line that a runner looks for. A step that counts nothing itself counts as one.
fn print_table(done: &[Done], total: Duration) -> u64 {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    println!("\n{:<14}{:>9}  result", "step", "seconds");
    for step in done {
        let result = match &step.result {
            Ok(outcome) => {
                passed += outcome.passed;
                failed += outcome.failed;
                skipped += outcome.skipped;
                outcome.describe()
            }
            Err(_) => {
                failed += 1;
                "FAILED".to_owned()
            }
        };
        println!("{:<14}{:>9.1}  {result}", step.name, step.took.as_secs_f64());
    }
    println!("{:<14}{:>9.1}\n", "all", total.as_secs_f64());
    // Once more at the end, where a reader looks first and nothing is cut off.
    for step in done {
        for name in step.result.iter().flat_map(|outcome| &outcome.failures) {
            println!("failed: {}: {name}", step.name);
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        Plan::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_names_all_steps_run_and_the_record_counts() {
        let plan = plan("").expect("no arguments");
        assert_eq!(plan.steps.len(), STEPS.len());
        assert!(plan.complete());
    }

    #[test]
    fn a_quick_run_leaves_out_the_long_steps_and_does_not_count() {
        let plan = plan("--quick").expect("known");
        assert!(plan.steps.iter().all(|step| step.quick) && plan.steps.len() < STEPS.len());
        assert!(!plan.complete());
    }

    #[test]
    fn named_steps_take_arguments_only_alone() {
        let one = plan("interop -- python rhea").expect("one step");
        assert_eq!(one.passed_on, ["python", "rhea"]);
        assert!(plan("fmt interop -- python").is_err());
        let error = plan("inter").err().expect("no such step");
        assert!(error.contains("interop"), "{error}");
    }

    #[test]
    fn the_closing_counts_take_inner_counts_and_one_for_each_failed_step() {
        let outcome = Outcome { passed: 5, skipped: 2, ..Outcome::default() };
        let step = |result| Done { name: "x", took: Duration::ZERO, result };
        assert_eq!(print_table(&[step(Ok(outcome)), step(Err("no".to_owned()))], Duration::ZERO), 1);
    }
}
