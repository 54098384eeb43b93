//! The command line as it is typed: verbs and flags, nothing of what they do.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A durable message broker.
#[derive(Parser)]
#[command(name = "packhorse", version = crate::VERSION, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run the broker
    Serve(Serve),
    /// Show the broker's state
    Status(Online),
    /// Look at queues, create and delete them
    #[command(subcommand)]
    Queue(Queue),
    /// Look at transactions; decide XA branches that are in doubt
    #[command(subcommand)]
    Tx(Tx),
    /// Send messages to an address
    Send(Send),
    /// Receive messages from an address
    Receive(Receive),
    /// Load a broker, measure it, and check what came of the messages
    Bench(Box<crate::bench::Bench>),
    /// Judge histories of a run, one file for each client process: exit 0 no violation, 1 violations
    Checker {
        /// The files, JSON lines or binary
        #[arg(required = true)]
        files: Vec<std::path::PathBuf>,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show or check the configuration
    #[command(subcommand)]
    Config(Config),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// A verb that is not there (yet).
    #[command(external_subcommand)]
    NotYet(Vec<String>),
}

/// Verbs about queues.
#[derive(Subcommand)]
pub(crate) enum Queue {
    /// List queues
    List {
        /// Only so many, one page
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        /// Only names after this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// Show one queue
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        online: Online,
    },
    /// Create a queue; nothing happens if it is there with these settings
    Create {
        /// Its name
        name: String,
        #[command(flatten)]
        settings: QueueSettings,
        #[command(flatten)]
        online: Online,
    },
    /// Delete a queue
    Delete {
        /// Its name
        name: String,
        /// Even when it holds messages or has consumers
        #[arg(long)]
        force: bool,
        /// Why, if branches in doubt have work in it, which is rolled back then
        #[arg(long, requires = "force")]
        reason: Option<String>,
        /// Who says so [default: the name of whoever runs this]
        #[arg(long, value_name = "NAME", requires = "reason")]
        who: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// Remove all messages of a queue that nobody holds
    Purge {
        /// Its name
        name: String,
        /// Even when branches in doubt have work in it, which is rolled back then
        #[arg(long, requires = "reason")]
        force: bool,
        /// Why it is forced
        #[arg(long, requires = "force")]
        reason: Option<String>,
        /// Who says so [default: the name of whoever runs this]
        #[arg(long, value_name = "NAME", requires = "reason")]
        who: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// A verb that is not there (yet).
    #[command(external_subcommand)]
    NotYet(Vec<String>),
}

/// Verbs about transactions. An XID is taken as it is shown here, as JDBC drivers write it (format_base64_base64), or as SQL
/// databases do (X'hex',X'hex',format).
#[derive(Subcommand)]
pub(crate) enum Tx {
    /// List XA branches: in doubt, decided by operators, or under way
    List {
        /// Only those in these states, with commas between: in-doubt, heuristic, prepared, idle, …
        #[arg(long, value_name = "STATES", conflicts_with = "local")]
        state: Option<String>,
        /// List open local transactions instead
        #[arg(long, conflicts_with = "after")]
        local: bool,
        /// Only so many, one page
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        /// Only those after this one
        #[arg(long, value_name = "XID", allow_hyphen_values = true)]
        after: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// Show a branch, and the messages that it adds and removes, by queue
    Show {
        /// Its name
        #[arg(allow_hyphen_values = true)]
        xid: String,
        /// Only messages of this queue
        #[arg(long, value_name = "NAME")]
        queue: Option<String>,
        /// Messages on a page [default: 100]
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
        /// Only messages after those of the page before, which says where that is
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// Do some work in a new branch and prepare it, for a rehearsal: it is in doubt then
    Prepare(Prepare),
    /// Commit a branch that is in doubt, in place of its transaction manager
    Commit(Decision),
    /// Roll back a branch that is in doubt, in place of its transaction manager
    Rollback(Decision),
    /// Forget that a branch was decided by an operator, when its transaction manager knows
    Forget {
        /// The branch
        #[arg(allow_hyphen_values = true)]
        xid: String,
        /// Who forgets it [default: the name of whoever runs this]
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        #[command(flatten)]
        online: Online,
    },
    /// A verb that is not there.
    #[command(external_subcommand)]
    NotYet(Vec<String>),
}

/// A branch for a rehearsal.
#[derive(Args)]
pub(crate) struct Prepare {
    /// Its name
    #[arg(allow_hyphen_values = true)]
    pub(crate) xid: String,
    /// A message that it adds, may be repeated
    #[arg(long, value_name = "ADDRESS=TEXT")]
    pub(crate) send: Vec<String>,
    /// Where it takes a message from, may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) receive: Vec<String>,
    #[command(flatten)]
    pub(crate) amqp: Amqp,
}

/// An operator's decision.
#[derive(Args)]
pub(crate) struct Decision {
    /// The branch
    #[arg(allow_hyphen_values = true)]
    pub(crate) xid: String,
    /// Why: kept with the branch until it is forgotten, and in the log
    #[arg(long)]
    pub(crate) reason: String,
    /// Who decides [default: the name of whoever runs this]
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,
    #[command(flatten)]
    pub(crate) online: Online,
}

/// Settings of a new queue.
#[derive(Args)]
pub(crate) struct QueueSettings {
    /// Attempts before a message goes to the dead-letter queue; 0 = no limit
    #[arg(long, value_name = "N")]
    pub(crate) max_deliveries: Option<u32>,
    /// Where those messages go
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) dead_letter: Option<String>,
    /// Whether a message without a word on durability is persistent
    #[arg(long, value_name = "BOOL")]
    pub(crate) default_durable: Option<bool>,
    /// Most messages in the queue
    #[arg(long, value_name = "N")]
    pub(crate) max_messages: Option<u64>,
    /// Most bytes of messages in the queue
    #[arg(long, value_name = "B")]
    pub(crate) max_bytes: Option<u64>,
    /// What happens when it is full
    #[arg(long, value_name = "POLICY", value_parser = ["block", "reject", "drop-oldest"])]
    pub(crate) full: Option<String>,
}

/// How to reach the broker's HTTP, and what to print.
#[derive(Args)]
pub(crate) struct Online {
    /// Where the management API is
    #[arg(long, env = "PACKHORSE_URL", default_value = "http://127.0.0.1:8672")]
    pub(crate) url: String,
    /// Print exactly what HTTP says
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of the broker; each is a setting, see `packhorse config show`.
#[derive(Args, Default)]
pub(crate) struct Serve {
    /// Configuration file, TOML
    #[arg(long, value_name = "FILE", env = "PACKHORSE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory [data.dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to serve AMQP, may be repeated [amqp.listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<String>,
    /// Where to serve HTTP [http.listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<String>,
    /// File to write when ready [ready.file]
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Threads that own queues and connections [broker.shards]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u64>,
    /// human or json [log.format]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// error, warn, info or debug [log.level]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Any other setting, may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Verbs about the configuration.
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Print each effective value with its origin, as `serve` with the same flags would have it
    Show {
        #[command(flatten)]
        serve: Serve,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration file
    Check {
        /// The file
        file: PathBuf,
    },
}

/// How to reach the broker's AMQP.
#[derive(Args, Clone)]
pub(crate) struct Amqp {
    /// Where AMQP is served
    #[arg(long, value_name = "HOST:PORT", env = "PACKHORSE_AMQP", default_value = "127.0.0.1:5672")]
    pub(crate) amqp: String,
    /// Log in with this name (PLAIN); otherwise ANONYMOUS
    #[arg(long, value_name = "NAME", env = "PACKHORSE_USER")]
    pub(crate) user: Option<String>,
    /// Its password
    #[arg(long, env = "PACKHORSE_PASSWORD", hide_env_values = true, default_value = "")]
    pub(crate) password: String,
}

/// Sends messages.
#[derive(Args)]
pub(crate) struct Send {
    /// Where to
    pub(crate) address: String,
    /// The body; - reads it from standard input
    pub(crate) text: Option<String>,
    /// How many messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) count: u64,
    /// Bodies of so many bytes instead of a text
    #[arg(long, value_name = "BYTES", conflicts_with = "text")]
    pub(crate) size: Option<usize>,
    /// An application property, may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) property: Vec<String>,
    /// 0 to 9
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Milliseconds to live
    #[arg(long, value_name = "MS")]
    pub(crate) ttl: Option<u32>,
    /// Whether the messages survive a restart of the broker
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) durable: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, hide = true)]
    pub(crate) delay: Option<String>,
    #[command(flatten)]
    pub(crate) amqp: Amqp,
}

/// Receives messages.
#[derive(Args)]
pub(crate) struct Receive {
    /// Where from
    pub(crate) address: String,
    /// End after so many messages; without it, when nothing is ready
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// End after so many milliseconds without a message [default: 10000 with --count]
    #[arg(long, value_name = "MS")]
    pub(crate) timeout: Option<u64>,
    /// Give the messages back instead of acknowledging them
    #[arg(long)]
    pub(crate) no_ack: bool,
    /// Print each message as a JSON object on a line
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, hide = true)]
    pub(crate) selector: Option<String>,
    #[command(flatten)]
    pub(crate) amqp: Amqp,
}
