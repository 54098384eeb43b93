//! The matrix of foreign AMQP 1.0 clients and features against the real binary: installs the clients, starts the broker,
//! runs every cell, prints the table. It judges by what clients saw, by bytes on the wire, and by the broker's counters;
//! it uses none of the broker's own code.

mod broker;
mod capture;
mod cell;
mod client;
mod install;
mod matrix;
mod recorder;
mod rows;
mod specs;
mod table;
mod wire;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;

use crate::{
    broker::{Broker, Source},
    client::Recipe,
    install::Missing,
    matrix::Plan,
    table::{Feature, Kind},
};

/// Runs foreign clients against the broker and prints a matrix: exit 0 when nothing failed, 1 when something did, 2 usage.
#[derive(Parser)]
#[command(name = "packhorse-interop")]
struct Arguments {
    /// The broker's binary; by default `packhorse` beside this program.
    #[arg(long, value_name = "PATH", env = "PACKHORSE_BIN")]
    broker: Option<PathBuf>,
    /// A broker that already runs, instead.
    #[arg(long, value_name = "HOST:PORT")]
    amqp: Option<SocketAddr>,
    /// The HTTP port of that broker, if it is ours.
    #[arg(long, value_name = "HOST:PORT", requires = "amqp")]
    http: Option<SocketAddr>,
    /// A shell command that kills that broker with SIGKILL, starts it again and waits until it is ready.
    #[arg(long, value_name = "COMMAND", requires = "amqp")]
    restart: Option<String>,
    /// Writes which clients were run, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only this client; may be repeated.
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,
    /// Records a short session of each client into DIR instead, for the protocol engine's tests.
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Only installs this client, and prints the program that runs it.
    #[arg(long, value_name = "NAME")]
    prepare: Option<String>,
    /// Only rows whose name contains this; may be repeated.
    #[arg(long, value_name = "PART")]
    feature: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("packhorse-interop: {reason}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let begin = Instant::now();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (cache, sources) = (home.join(".cache"), home.join("clients"));
    if let Some(name) = &arguments.prepare {
        let names = std::slice::from_ref(name);
        for kind in chosen(&table::CLIENTS, names, |kind, name| kind.name() == name, "client")? {
            println!("{}", prepared(kind, &cache, &sources)?.program);
        }
        return Ok(true);
    }
    let plan = Plan {
        source: source(arguments)?,
        kinds: chosen(&table::CLIENTS, &arguments.client, |kind, name| kind.name() == name, "client")?,
        features: {
            let all: Vec<&'static Feature> = table::FEATURES.iter().collect();
            chosen(&all, &arguments.feature, |feature, part| feature.name.contains(part), "feature")?
        },
        cache: &cache,
        sources: &sources,
        strict: std::env::var("CI").is_ok_and(|value| value == "true"),
    };
    if let Some(folder) = &arguments.capture {
        return capture_all(&plan, folder).map(|()| true);
    }
    let report = matrix::run(&plan)?;
    if let Some(file) = &arguments.report {
        std::fs::write(file, report.clients(&plan).to_string())
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(report.print(&plan, begin.elapsed()))
}

/// A client that must run.
fn prepared(kind: Kind, cache: &Path, sources: &Path) -> Result<Recipe, String> {
    install::prepare(kind, cache, sources).map_err(|missing| match missing {
        Missing::Tool(tool) => format!("{}: there is no {tool} on this machine", kind.name()),
        Missing::Broken(reason) => reason,
    })
}

fn capture_all(plan: &Plan<'_>, folder: &Path) -> Result<(), String> {
    let broker = Broker::start(&plan.source)?;
    for kind in &plan.kinds {
        let recipe = prepared(*kind, plan.cache, plan.sources)?;
        println!("{}: {} bytes", kind.name(), capture::session(*kind, &recipe, &broker, folder)?);
    }
    Ok(())
}

fn source(arguments: &Arguments) -> Result<Source, String> {
    if let Some(amqp) = arguments.amqp {
        return Ok(Source::Running { amqp, http: arguments.http, restart: arguments.restart.clone() });
    }
    let binary = match &arguments.broker {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("packhorse"),
    };
    if binary.is_file() {
        Ok(Source::Binary(binary))
    } else {
        Err(format!(
            "there is no broker at {}: build it with `cargo build -p packhorse`, or name one with --broker",
            binary.display()
        ))
    }
}

/// The items the user named, all if none; a name that fits nothing is an error.
fn chosen<T: Copy>(all: &[T], names: &[String], fits: fn(&T, &str) -> bool, what: &str) -> Result<Vec<T>, String> {
    if let Some(name) = names.iter().find(|name| !all.iter().any(|item| fits(item, name))) {
        return Err(format!("there is no {what} '{name}'"));
    }
    Ok(all.iter().copied().filter(|item| names.is_empty() || names.iter().any(|name| fits(item, name))).collect())
}
