//! Runs the cells and prints what came of them.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value as Json, json};

use crate::{
    broker::{Broker, Source},
    cell::Cell,
    client::{Client, Recipe},
    install::{self, Missing},
    specs,
    table::{self, Feature, Kind},
};

/// What became of one cell.
#[derive(Debug, Clone, PartialEq)]
enum Verdict {
    Passed,
    Failed(String),
    /// The client's interface cannot express it.
    NotApplicable(&'static str),
    /// Work that could be done elsewhere: a tool is missing here, or the broker cannot be killed.
    Skipped(String),
}

/// All verdicts of a run.
#[derive(Default)]
pub(crate) struct Report {
    cells: BTreeMap<(Kind, &'static str), Verdict>,
    seconds: BTreeMap<Kind, (f64, f64)>,
    slowest: Vec<(f64, Kind, &'static str)>,
}

/// What to run.
pub(crate) struct Plan<'a> {
    pub(crate) source: Source,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) features: Vec<&'static Feature>,
    pub(crate) cache: &'a Path,
    pub(crate) sources: &'a Path,
    /// A missing toolchain is a failure.
    pub(crate) strict: bool,
}

/// Columns that run at the same time.
const COLUMNS_AT_ONCE: usize = 2;

struct Shared<'a> {
    plan: &'a Plan<'a>,
    broker: Mutex<Broker>,
    dead_letters: Mutex<()>,
    report: Mutex<Report>,
}

/// Runs the whole plan.
pub(crate) fn run(plan: &Plan<'_>) -> Result<Report, String> {
    let broker = Broker::start(&plan.source)?;
    println!(
        "broker: {}{}",
        broker.amqp(),
        if broker.is_ours() { "" } else { " (no HTTP: its counters are not compared)" }
    );
    let shared = Shared {
        plan,
        broker: Mutex::new(broker),
        dead_letters: Mutex::new(()),
        report: Mutex::new(Report::default()),
    };
    let queue: Mutex<VecDeque<Kind>> = Mutex::new(plan.kinds.iter().copied().collect());
    thread::scope(|scope| {
        for _ in 0..COLUMNS_AT_ONCE {
            scope.spawn(|| {
                while let Some(kind) = { lock(&queue).pop_front() } {
                    column(&shared, kind);
                }
            });
        }
    });
    Ok(shared.report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn column(shared: &Shared<'_>, kind: Kind) {
    let plan = shared.plan;
    let begin = Instant::now();
    let all = |verdict: Verdict| {
        let mut report = lock(&shared.report);
        for feature in &plan.features {
            report.cells.insert((kind, feature.name), verdict.clone());
        }
    };
    let recipe = match install::prepare(kind, plan.cache, plan.sources) {
        Ok(recipe) => recipe,
        Err(Missing::Tool(tool)) if !plan.strict => {
            println!("{}: skipped, there is no {tool} on this machine", kind.name());
            return all(Verdict::Skipped(format!("no {tool} on this machine")));
        }
        Err(Missing::Tool(tool)) => return all(Verdict::Failed(format!("no {tool} on this machine, and CI=true"))),
        Err(Missing::Broken(reason)) => return all(Verdict::Failed(format!("not prepared: {reason}"))),
    };
    let prepared = begin.elapsed();
    let mut client = None;
    for feature in &plan.features {
        let start = Instant::now();
        let verdict = match table::not_applicable(kind, feature.name) {
            Some(reason) => Verdict::NotApplicable(reason),
            None if feature.own_broker && !Broker::can_restart(&plan.source) => {
                Verdict::Skipped("this broker is not ours to kill".into())
            }
            None => match cell(shared, kind, feature, &recipe, &mut client) {
                Ok(()) => Verdict::Passed,
                Err(reason) => Verdict::Failed(reason),
            },
        };
        let took = start.elapsed().as_secs_f64();
        let sign = verdict.sign();
        println!("{:>8} {:<22} {sign} {took:.1} s", kind.name(), feature.name);
        let mut report = lock(&shared.report);
        report.slowest.push((took, kind, feature.name));
        report.cells.insert((kind, feature.name), verdict);
    }
    let mut report = lock(&shared.report);
    report.seconds.insert(kind, (prepared.as_secs_f64(), (begin.elapsed() - prepared).as_secs_f64()));
}

fn cell(
    shared: &Shared<'_>,
    kind: Kind,
    feature: &Feature,
    recipe: &Recipe,
    slot: &mut Option<Client>,
) -> Result<(), String> {
    // The shared broker is only read from (its addresses), so each cell works on a view of its own.
    let mut broker = if feature.own_broker {
        Broker::start(&shared.plan.source)?
    } else {
        let mut broker = lock(&shared.broker);
        if !broker.is_alive() {
            return Err(format!("the broker has ended\n{}", broker.log_tail()));
        }
        broker.view()
    };
    let mut client = match slot.take() {
        Some(client) => client,
        None => Client::start(recipe)?,
    };
    // A broker that kept its data from an earlier run would fill the counters, so a name is used once.
    let moment =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let queue = format!("interop.{}.{}.{moment:x}", feature.name, kind.name());
    let mut cell =
        Cell { kind, client: &mut client, recipe, broker: &mut broker, queue, dead_letters: &shared.dead_letters };
    let outcome = (feature.run)(&mut cell);
    match outcome {
        Ok(()) => {
            // What could not be closed in order is no fault of the feature; a new process then serves the next cell.
            if client.reset().is_ok() {
                *slot = Some(client);
            }
            Ok(())
        }
        Err(reason) => {
            client.kill();
            let log = if feature.own_broker { broker.log_tail() } else { String::new() };
            Err(if log.is_empty() { reason } else { format!("{reason}\n  the broker's log:\n{log}") })
        }
    }
}

impl Verdict {
    fn sign(&self) -> &'static str {
        match self {
            Verdict::Passed => "✓",
            Verdict::Failed(_) => "✗",
            Verdict::NotApplicable(_) => "n/a",
            Verdict::Skipped(_) => "skip",
        }
    }
}

impl Report {
    /// Prints the table, the reasons, and last the plain line of counts; whether nothing failed.
    pub(crate) fn print(&self, plan: &Plan<'_>, took: Duration) -> bool {
        println!();
        let width = plan.features.iter().map(|feature| feature.name.len()).max().unwrap_or(0);
        let head: Vec<String> = plan.kinds.iter().map(|kind| format!("{:^9}", kind.name())).collect();
        println!("{:width$} {}", "", head.join(" "));
        for feature in &plan.features {
            let signs: Vec<String> = plan
                .kinds
                .iter()
                .map(|kind| format!("{:^9}", self.cells.get(&(*kind, feature.name)).map_or("-", Verdict::sign)))
                .collect();
            println!("{:width$} {}", feature.name, signs.join(" "));
        }
        for (name, which) in [("seconds", 1), ("to prepare", 0)] {
            let times: Vec<String> = plan
                .kinds
                .iter()
                .map(|kind| {
                    self.seconds
                        .get(kind)
                        .map_or(String::new(), |(prepare, run)| format!("{:.0}", [prepare, run][which]))
                })
                .map(|text| format!("{text:^9}"))
                .collect();
            println!("{name:width$} {}", times.join(" "));
        }
        println!();
        self.print_reasons(plan);
        let mut slowest = self.slowest.clone();
        slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        let slowest: Vec<String> = slowest
            .iter()
            .take(5)
            .map(|(seconds, kind, feature)| format!("{} {feature} {seconds:.1} s", kind.name()))
            .collect();
        println!("slowest: {}; all: {:.0} s", slowest.join(", "), took.as_secs_f64());
        let count = |wanted: fn(&Verdict) -> bool| self.cells.values().filter(|verdict| wanted(verdict)).count();
        let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
        println!(
            "{} passed, {failed} failed, {} skipped",
            count(|verdict| *verdict == Verdict::Passed),
            count(|verdict| matches!(verdict, Verdict::Skipped(_)))
        );
        failed == 0
    }

    /// What became of each column, by the folder of its program: `run`, or why not.
    pub(crate) fn clients(&self, plan: &Plan<'_>) -> Json {
        let told = |kind: &Kind| {
            let whole: Vec<&Verdict> =
                self.cells.iter().filter(|((of, _), _)| of == kind).map(|(_, verdict)| verdict).collect();
            match whole.first() {
                Some(Verdict::Skipped(reason))
                    if whole.iter().all(|verdict| matches!(verdict, Verdict::Skipped(_))) =>
                {
                    format!("skipped: {reason}")
                }
                _ => "run".to_owned(),
            }
        };
        let clients: serde_json::Map<String, Json> =
            plan.kinds.iter().map(|kind| (kind.folder().to_owned(), json!(told(kind)))).collect();
        json!({ "clients": clients })
    }

    fn print_reasons(&self, plan: &Plan<'_>) {
        let mut not_applicable: BTreeMap<(Kind, &str), Vec<&str>> = BTreeMap::new();
        for ((kind, feature), verdict) in &self.cells {
            match verdict {
                Verdict::Failed(reason) => println!("✗ {} {feature}: {reason}", kind.name()),
                Verdict::NotApplicable(reason) => not_applicable.entry((*kind, *reason)).or_default().push(feature),
                Verdict::Skipped(reason) => println!("skip {} {feature}: {reason}", kind.name()),
                Verdict::Passed => {}
            }
        }
        for ((kind, reason), features) in &not_applicable {
            println!("n/a {} {}: {reason}", kind.name(), features.join(", "));
        }
        // What the content rows leave out of a client's list of messages is told too.
        if plan.features.iter().any(|feature| ["sections", "types"].contains(&feature.name)) {
            for kind in &plan.kinds {
                let left_out: Vec<String> = specs::cannot(*kind)
                    .iter()
                    .filter(|(_, reason)| !reason.is_empty())
                    .map(|(need, reason)| format!("{need}: {reason}"))
                    .collect();
                if !left_out.is_empty() {
                    println!("left out of sections and types for {}: {}", kind.name(), left_out.join("; "));
                }
            }
        }
    }
}
