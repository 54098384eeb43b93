//! Shapes of the API's answers. Names are those of `spec/operate.md`; ids are strings, for they exceed what JSON numbers
//! hold exactly in many languages.

use crate::transactions::Figures;
use packhorse_broker::{Alarm, Counters, QueueInDoubt, QueueReport, ShardReport};
use packhorse_store::StoreStatus;
use serde::Serialize;

/// One queue.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    name: String,
    id: String,
    shard: u16,
    #[serde(flatten)]
    counts: Counts,
    oldest_age_ms: Option<u64>,
    full: bool,
    /// Which limit, if it is full: `messages` or `bytes`.
    full_limit: Option<&'static str>,
    settings: Settings,
}

/// A queue's settings, in the words of `PUT`.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    default_durable: bool,
    max_deliveries: u32,
    dead_letter: Option<String>,
    max_messages: Option<u64>,
    max_bytes: Option<u64>,
    /// What it does when it is full.
    full: &'static str,
}

/// Counts of a queue, or sums of them.
#[derive(Debug, Serialize)]
#[serde(remote = "Counters")]
struct CountsOf {
    ready: u64,
    scheduled: u64,
    acquired: u64,
    removing: u64,
    moving: u64,
    damaged: u64,
    staged: u64,
    prepared_in: u64,
    prepared_out: u64,
    depth: u64,
    bytes: u64,
    consumers: u64,
    credit: u64,
    enqueued_total: u64,
    acknowledged_total: u64,
    redelivered_total: u64,
    duplicates_total: u64,
    expired_total: u64,
    dead_lettered_total: u64,
    purged_total: u64,
    moved_total: u64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Counts(#[serde(with = "CountsOf")] Counters);

impl From<QueueReport> for Queue {
    fn from(report: QueueReport) -> Queue {
        Queue {
            name: report.name,
            id: report.id.to_string(),
            shard: report.shard,
            counts: Counts(report.counters),
            oldest_age_ms: report.oldest_age_ms,
            full: report.full.is_some(),
            full_limit: report.full.map(|limit| limit.as_str()),
            settings: Settings {
                default_durable: report.settings.default_durable,
                max_deliveries: report.settings.delivery_limit,
                dead_letter: report.settings.dead_letter.map(|n| n.as_str().to_string()),
                max_messages: report.settings.limits.max_messages,
                max_bytes: report.settings.limits.max_bytes,
                full: report.settings.limits.on_full.as_str(),
            },
        }
    }
}

/// A page of queues.
#[derive(Debug, Serialize)]
pub(crate) struct QueuePage {
    pub(crate) queues: Vec<Queue>,
    /// `after` of the next page; null = this is the last.
    pub(crate) next: Option<String>,
}

/// The answer to a deletion, or a purge.
#[derive(Debug, Serialize)]
pub(crate) struct Removed {
    pub(crate) name: String,
    pub(crate) messages: u64,
}

/// The node's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) version: &'static str,
    pub(crate) name: String,
    pub(crate) broker_id: Option<String>,
    pub(crate) state: &'static str,
    pub(crate) uptime_ms: u64,
    pub(crate) shards: u16,
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) links: u64,
    pub(crate) queues: u64,
    pub(crate) totals: Counts,
    pub(crate) memory_bytes: u64,
    pub(crate) store: Store,
    pub(crate) transactions: Figures,
    pub(crate) alarms: Vec<AlarmLine>,
}

/// The store's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    segments: u64,
    bytes: u64,
    last_durable_block: String,
    flushes: u64,
    flush_latency_mean_us: u64,
    flush_latency_max_us: u64,
    written_bytes: u64,
    content_bytes: u64,
}

/// One alarm.
#[derive(Debug, Serialize)]
pub(crate) struct AlarmLine {
    code: &'static str,
    text: String,
}

impl From<StoreStatus> for Store {
    fn from(status: StoreStatus) -> Store {
        Store {
            segments: status.segments,
            bytes: status.segment_bytes,
            last_durable_block: status.durable_block.to_string(),
            flushes: status.flushes,
            flush_latency_mean_us: status.flush_us_total.checked_div(status.flushes).unwrap_or(0),
            flush_latency_max_us: status.flush_us_max,
            written_bytes: status.written_bytes,
            content_bytes: status.content_bytes,
        }
    }
}

impl From<Alarm> for AlarmLine {
    fn from(alarm: Alarm) -> AlarmLine {
        AlarmLine { code: alarm.code, text: alarm.text }
    }
}

/// One report of all shards'. The store is shared, so its figures are taken once.
pub(crate) fn sum(reports: Vec<ShardReport>) -> ShardReport {
    let mut all = ShardReport::default();
    for report in reports {
        all.connections += report.connections;
        all.sessions += report.sessions;
        all.links += report.links;
        all.queues += report.queues;
        all.memory_bytes += report.memory_bytes;
        all.totals.add(&report.totals);
        all.store = report.store;
        all.transactions.add(&report.transactions);
        all.in_doubt.extend(report.in_doubt);
        for alarm in report.alarms {
            if !all.alarms.contains(&alarm) {
                all.alarms.push(alarm);
            }
        }
    }
    QueueInDoubt::keep_most(&mut all.in_doubt);
    all
}

pub(crate) fn counts(counters: Counters) -> Counts {
    Counts(counters)
}
