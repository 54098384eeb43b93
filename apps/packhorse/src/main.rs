//! The one binary: the broker (`serve`) and the command line. Wiring and screens, no broker logic.

mod amqp;
mod bench;
mod checker;
mod cli;
mod online;
#[cfg(feature = "planted")]
mod planted;
mod receive;
mod send;
mod server;
mod table;
mod tx;

use clap::{CommandFactory, Parser};
use cli::{Cli, Queue, Tx, Verb};
use std::process::ExitCode;

/// Under churn its memory does not creep, unlike the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version as people are told.
#[cfg(not(feature = "planted"))]
const VERSION: &str = env!("CARGO_PKG_VERSION");
#[cfg(feature = "planted")]
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " WITH PLANTED FAULTS, FOR TESTS ONLY");

/// How a verb ended; exit codes of `spec/operate.md`, "Verbs".
enum End {
    /// 0: done.
    Done,
    /// 1: the broker, or a check, said no.
    Refused(String),
    /// 2: the command line makes no sense.
    Usage(String),
    /// 3: no broker there.
    Unreachable(String),
    /// As `serve` ends.
    Code(u8),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.verb) {
        End::Done => ExitCode::SUCCESS,
        End::Refused(why) => told(1, &why),
        End::Usage(why) => told(2, &why),
        End::Unreachable(why) => told(3, &why),
        End::Code(code) => ExitCode::from(code),
    }
}

fn told(code: u8, why: &str) -> ExitCode {
    eprintln!("packhorse: {why}");
    ExitCode::from(code)
}

fn run(verb: Verb) -> End {
    match verb {
        Verb::Serve(args) => server::serve(&args),
        Verb::Config(cli::Config::Show { serve, json }) => server::config_show(&serve, json),
        Verb::Config(cli::Config::Check { file }) => server::config_check(&file),
        Verb::Status(online) => online::status(&online),
        Verb::Queue(Queue::List { limit, after, online }) => online::queue_list(limit, after.as_deref(), &online),
        Verb::Queue(Queue::Show { name, online }) => online::queue_show(&name, &online),
        Verb::Queue(Queue::Create { name, settings, online }) => online::queue_create(&name, &settings, &online),
        Verb::Queue(Queue::Delete { name, force, reason, who, online }) => {
            online::queue_delete(&name, force, reason.as_deref(), who, &online)
        }
        Verb::Queue(Queue::Purge { name, force, reason, who, online }) => {
            online::queue_purge(&name, force, reason.as_deref(), who, &online)
        }
        Verb::Tx(Tx::NotYet(words)) => not_yet("tx", &words),
        Verb::Tx(verb) => tx::run(&verb),
        Verb::Send(args) => send::run(&args),
        Verb::Receive(args) => receive::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Checker { files, json } => checker::run(&files, json),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "packhorse", &mut std::io::stdout());
            End::Done
        }
        Verb::Version { json } => {
            if json {
                println!("{}", version_document());
            } else {
                println!("packhorse {VERSION}");
            }
            End::Done
        }
        Verb::Queue(Queue::NotYet(words)) => not_yet("queue", &words),
        Verb::NotYet(words) => not_yet("", &words),
    }
}

fn version_document() -> serde_json::Value {
    #[cfg(not(feature = "planted"))]
    let document = serde_json::json!({ "version": VERSION });
    #[cfg(feature = "planted")]
    let document = serde_json::json!({ "version": VERSION, "planted": planted::names() });
    document
}

/// Verbs of the specification that this version has not.
const NOT_YET: &[&str] = &[
    "message",
    "topic",
    "subscription",
    "connection",
    "session",
    "link",
    "bridge",
    "lane",
    "cluster",
    "user",
    "permission",
    "journal",
    "queue retry",
    "queue browse",
    "queue move",
];

fn not_yet(group: &str, words: &[String]) -> End {
    let verb = words.first().map_or("", String::as_str);
    let full = format!("{group} {verb}").trim().to_string();
    if NOT_YET.contains(&full.as_str()) {
        return End::Usage(format!("`packhorse {full}` is not implemented yet"));
    }
    let help = format!("packhorse {group} --help").replace("  ", " ");
    End::Usage(format!("there is no verb `{full}`; see `{help}`"))
}
