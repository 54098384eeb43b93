//! The table of all settings: name, kind, default, meaning. Files, environment, `config show`, the HTTP API and the typed
//! configuration are all derived from it, so a setting exists once.
//!
//! Must not know where a value comes from (`load`) nor what is done with it (`serve`).

use packhorse_journal::Checkpoints;
use std::fmt;

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count, bytes or milliseconds.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// A text; empty = not set.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(n) => write!(f, "{n}"),
            Value::Flag(b) => write!(f, "{b}"),
            Value::Text(t) => write!(f, "{t:?}"),
            Value::List(items) => write!(f, "{items:?}"),
        }
    }
}

/// What kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number from 0 to this one. Narrower bounds are the owner's to check.
    Number(u64),
    /// `true` or `false`.
    Flag,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `ADDR:PORT` with a numeric address.
    Endpoint,
    /// Several of those.
    Endpoints,
}

impl Kind {
    /// What to write, for error sentences.
    pub fn expected(self) -> String {
        match self {
            Kind::Number(max) => format!("a whole number from 0 to {max}"),
            Kind::Flag => "true or false".into(),
            Kind::Text => "a text".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Endpoint => "ADDRESS:PORT such as 127.0.0.1:8672 or [::1]:8672".into(),
            Kind::Endpoints => "a list of ADDRESS:PORT such as 127.0.0.1:5672, [::1]:5672".into(),
        }
    }

    /// Whether `value` is of this kind.
    pub fn admits(self, value: &Value) -> bool {
        let endpoint = |text: &String| text.parse::<std::net::SocketAddr>().is_ok();
        match (self, value) {
            (Kind::Number(max), Value::Number(n)) => *n <= max,
            (Kind::Flag, Value::Flag(_)) | (Kind::Text, Value::Text(_)) => true,
            (Kind::Choice(words), Value::Text(t)) => words.contains(&t.as_str()),
            (Kind::Endpoint, Value::Text(t)) => endpoint(t),
            (Kind::Endpoints, Value::List(items)) => !items.is_empty() && items.iter().all(endpoint),
            _ => false,
        }
    }

    /// Reads a value from plain text, as in the environment. `None` = not of this kind.
    pub fn read(self, text: &str) -> Option<Value> {
        let value = match self {
            Kind::Number(_) => Value::Number(text.trim().parse().ok()?),
            Kind::Flag => Value::Flag(text.trim().parse().ok()?),
            Kind::Text | Kind::Choice(_) | Kind::Endpoint => Value::Text(text.into()),
            Kind::Endpoints => Value::List(text.split(',').map(|t| t.trim().to_string()).collect()),
        };
        self.admits(&value).then_some(value)
    }
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `section.key`, as in files; `PACKHORSE_SECTION__KEY` in the environment.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The value without a word from anybody.
    pub default: fn() -> Value,
    /// One line for people.
    pub help: &'static str,
}

const U16: u64 = u16::MAX as u64;
const U32: u64 = u32::MAX as u64;
const USIZE: u64 = usize::MAX as u64;

fn broker() -> packhorse_broker::Config {
    packhorse_broker::Config::default()
}

fn transactions() -> packhorse_broker::TransactionConfig {
    packhorse_broker::TransactionConfig::default()
}

fn text(t: &str) -> Value {
    Value::Text(t.into())
}

/// Half of the cores: the flushers, HTTP and the kernel's network work want the rest.
fn default_shards() -> Value {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    Value::Number((cores / 2).clamp(1, 16))
}

macro_rules! settings {
    ($($name:literal, $kind:expr, $default:expr, $help:literal;)*) => {
        &[$(Setting { name: $name, kind: $kind, default: || $default, help: $help }),*]
    };
}

/// All settings, in the order in which they are shown.
pub const SETTINGS: &[Setting] = settings! {
    "broker.name", Kind::Text, Value::Text(broker().broker_name), "name of this broker: container-id towards AMQP peers";
    "broker.shards", Kind::Number(U16), default_shards(), "threads that own queues and connections, 1 to 64";
    "data.dir", Kind::Text, text("./packhorse-data"), "directory of the journal; one broker at a time";
    "data.segment_bytes", Kind::Number(U32), Value::Number(64 << 20), "size of one journal file";
    "data.checkpoint_bytes", Kind::Number(USIZE), Value::Number(Checkpoints::default().every_bytes), "journal written between two checkpoints, about what a start has to read; from 65536";
    "data.checkpoint_interval_ms", Kind::Number(U32), Value::Number(Checkpoints::default().every_us / 1000), "time between two checkpoints if anything changed; from 10";
    "amqp.listen", Kind::Endpoints, Value::List(vec!["127.0.0.1:5672".into(), "[::1]:5672".into()]), "where AMQP is served; port 0 picks a free one";
    "amqp.max_connections", Kind::Number(U32), Value::Number(16_384), "AMQP connections at a time, all listeners together";
    "http.listen", Kind::Endpoint, text("127.0.0.1:8672"), "where the management API is served; port 0 picks a free one";
    "http.max_connections", Kind::Number(U32), Value::Number(256), "HTTP connections at a time";
    "ready.file", Kind::Text, text(""), "file that is written when the broker is ready; empty = none";
    "log.format", Kind::Choice(&["human", "json"]), text("human"), "log lines for people or as JSON";
    "log.level", Kind::Choice(&["error", "warn", "info", "debug"]), text("info"), "the least important lines that are shown";
    "queues.auto_create", Kind::Flag, Value::Flag(broker().auto_create), "attaching to an unknown name creates the queue";
    "queues.delivery_limit", Kind::Number(U32), Value::Number(broker().delivery_limit.into()), "attempts before a message goes to the dead-letter queue; 0 = no limit";
    "queues.dead_letter", Kind::Text, Value::Text(broker().dead_letter_queue), "default dead-letter queue, created on first need";
    "queues.duplicate_ids", Kind::Number(U32), Value::Number(broker().duplicate_ids.max.into()), "duplicate ids (_AMQ_DUPL_ID) that each queue remembers, 0 to 500000; 0 = none";
    "queues.duplicate_ids_keep_ms", Kind::Number(USIZE), Value::Number(broker().duplicate_ids.keep_ms), "how long a duplicate id is remembered, 1000 to 86400000";
    "limits.max_message_bytes", Kind::Number(USIZE), Value::Number(broker().max_message_bytes), "largest message";
    "limits.max_frame_bytes", Kind::Number(U32), Value::Number(broker().max_frame_bytes.into()), "largest AMQP frame";
    "limits.max_frame_before_open_bytes", Kind::Number(U32), Value::Number(broker().max_frame_before_open_bytes.into()), "largest AMQP frame before and including open";
    "limits.max_links", Kind::Number(U32), Value::Number(broker().max_links.into()), "links of one connection";
    "limits.max_sessions", Kind::Number(U16), Value::Number(broker().max_sessions.into()), "sessions of one connection";
    "limits.link_credit_max", Kind::Number(U32), Value::Number(broker().link_credit_max.into()), "most credit of one producer link";
    "limits.link_credit_bytes", Kind::Number(USIZE), Value::Number(broker().link_credit_bytes), "bytes that the credit of one producer link may stand for";
    "limits.memory_bytes", Kind::Number(USIZE), Value::Number(broker().memory_bytes), "memory for message bodies";
    "limits.max_output_bytes", Kind::Number(USIZE), Value::Number(broker().max_output_bytes as u64), "output held for one connection";
    "limits.idle_timeout_ms", Kind::Number(U32), Value::Number(broker().idle_timeout_ms.into()), "silence after which an AMQP peer is dropped; 0 = never";
    "limits.first_byte_timeout_ms", Kind::Number(U32), Value::Number(broker().first_byte_timeout_ms.into()), "deadline of a connection's first byte";
    "limits.sasl_timeout_ms", Kind::Number(U32), Value::Number(broker().sasl_timeout_ms.into()), "deadline of the login";
    "limits.open_timeout_ms", Kind::Number(U32), Value::Number(broker().open_timeout_ms.into()), "deadline of open after the login";
    "transactions.max_staged_bytes", Kind::Number(USIZE), Value::Number(transactions().max_staged_bytes), "bytes of messages in one transaction, from 65536";
    "transactions.max_memory_bytes", Kind::Number(USIZE), Value::Number(transactions().max_memory_bytes), "memory for bodies that wait in transactions, all together; from 1048576 for each shard";
    "transactions.max_open_per_connection", Kind::Number(U32), Value::Number(transactions().max_open_per_connection.into()), "open transactions of one connection, local ones and branches";
    "transactions.max_branches", Kind::Number(U32), Value::Number(transactions().max_branches.into()), "XA branches in all, those in doubt too";
    "transactions.local_timeout_ms", Kind::Number(USIZE), Value::Number(transactions().local_timeout_ms), "a local transaction that is open for longer is rolled back; 0 = never";
    "transactions.branch_timeout_ms", Kind::Number(USIZE), Value::Number(transactions().branch_timeout_ms), "the same for an XA branch that asks for no timeout, until it is prepared; 0 = never";
    "transactions.max_branch_timeout_ms", Kind::Number(USIZE), Value::Number(transactions().max_branch_timeout_ms), "the longest timeout that an XA branch may ask for; 0 = as asked";
    "transactions.remember_ms", Kind::Number(USIZE), Value::Number(transactions().remember_ms), "how long the outcome of a completed XA branch is remembered, for retries of the transaction manager; from 1000";
    "transactions.max_remembered", Kind::Number(U32), Value::Number(transactions().max_remembered.into()), "how many outcomes are remembered";
    "transactions.in_doubt_alarm_ms", Kind::Number(USIZE), Value::Number(transactions().in_doubt_alarm_ms), "an XA branch that is in doubt for longer raises an alarm; 0 = never";
};

/// Names that the documentation has and this version has not. They are refused with a sentence of their own.
pub(crate) const NOT_YET: &[&str] =
    &["auth.anonymous", "disk.watermark_bytes", "queues.expiry", "amqp.tls", "http.tls", "cluster.peers"];

/// The setting of this name.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.name == name)
}

/// The known name that looks most like `name`, if any looks like it at all.
pub(crate) fn near(name: &str) -> Option<&'static str> {
    let key = |full: &'static str| full.split_once('.').map_or(full, |(_, key)| key);
    let typed = name.rsplit('.').next().unwrap_or(name);
    let best = SETTINGS.iter().map(|s| (distance(name, s.name).min(distance(typed, key(s.name)) + 1), s.name)).min()?;
    (best.0 <= 1 + name.len() / 4).then_some(best.1)
}

/// Edits (insert, delete, replace) from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_of_its_kind_and_every_name_is_a_section_and_a_key() {
        for setting in SETTINGS {
            let value = (setting.default)();
            assert!(setting.kind.admits(&value), "{}: {value}", setting.name);
            assert_eq!(setting.name.split('.').count(), 2, "{}", setting.name);
            assert_eq!(setting.name, setting.name.to_lowercase());
            assert_eq!(SETTINGS.iter().filter(|s| s.name == setting.name).count(), 1, "{} twice", setting.name);
            assert!(!NOT_YET.contains(&setting.name), "{} is there", setting.name);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_by_the_nearest() {
        assert_eq!(near("limits.max_frame_byte"), Some("limits.max_frame_bytes"));
        assert_eq!(near("limit.max_links"), Some("limits.max_links"));
        assert_eq!(near("amqp.max_links"), Some("limits.max_links"));
        assert_eq!(near("data.directory"), None);
        assert_eq!(near("zzzzzzzzz"), None);
    }

    #[test]
    fn text_is_read_by_kind() {
        assert_eq!(Kind::Number(10).read("10"), Some(Value::Number(10)));
        assert_eq!(Kind::Number(10).read("11"), None);
        assert_eq!(Kind::Number(10).read("-1"), None);
        assert_eq!(Kind::Flag.read("true"), Some(Value::Flag(true)));
        assert_eq!(Kind::Flag.read("yes"), None);
        assert_eq!(Kind::Endpoint.read("localhost:1"), None);
        assert_eq!(Kind::Endpoint.read("[::1]:1"), Some(Value::Text("[::1]:1".into())));
        assert_eq!(
            Kind::Endpoints.read("[::1]:1, 127.0.0.1:2").map(|v| v.to_string()),
            Some(r#"["[::1]:1", "127.0.0.1:2"]"#.into())
        );
        assert_eq!(Kind::Endpoints.read(""), None);
        assert_eq!(Kind::Choice(&["a", "b"]).read("c"), None);
    }
}
