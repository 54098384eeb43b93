//! The broker's settings, as values. Files, flags and environment are `shell/runtime`'s.

use packhorse_model::{BrokerId, ShardId};
use packhorse_queue::IdBounds;
use std::fmt;

/// Limits and defaults of a node (`spec/operate.md`, "Names and limits"). All sizes in bytes, times in ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The container-id in our `open`, also the broker's name in reports.
    pub broker_name: String,
    /// Number of shards, 1 to 64.
    pub shards: u16,
    /// Largest message accepted.
    pub max_message_bytes: u64,
    /// Our max-frame-size, 512 B to 16 MiB.
    pub max_frame_bytes: u32,
    /// Largest frame before and including `open`.
    pub max_frame_before_open_bytes: u32,
    /// Links per connection.
    pub max_links: u32,
    /// Sessions per connection.
    pub max_sessions: u16,
    /// Most credit granted to one producer link.
    pub link_credit_max: u32,
    /// Bytes that a producer link's credit may stand for: credit × mean size.
    pub link_credit_bytes: u64,
    /// Memory for bodies, all shards together.
    pub memory_bytes: u64,
    /// Output held per connection before its links get no dispatch.
    pub max_output_bytes: usize,
    /// Idle time-out that we ask of peers; 0 = none.
    pub idle_timeout_ms: u32,
    /// Deadline for the first byte of a connection.
    pub first_byte_timeout_ms: u32,
    /// Deadline for the login, from the first byte.
    pub sasl_timeout_ms: u32,
    /// Deadline for `open`, from the login.
    pub open_timeout_ms: u32,
    /// Delivery limit of queues created on first use; 0 = none.
    pub delivery_limit: u32,
    /// Name of the default dead-letter queue.
    pub dead_letter_queue: String,
    /// Whether attaching to a name creates the queue.
    pub auto_create: bool,
    /// How many duplicate ids of messages each queue remembers, and for how long.
    pub duplicate_ids: IdBounds,
    /// How many all queues of a shard remember together; no setting. The store keeps as many of all shards.
    pub all_duplicate_ids: u32,
    /// Of transactions.
    pub transactions: TransactionConfig,
}

/// How much transactions may take, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionConfig {
    /// Bytes staged in one transaction.
    pub max_staged_bytes: u64,
    /// Memory for the bodies that wait in all transactions together, a share of it for the queues of each shard. They are there until they
    /// are written or the transaction ends, and those of messages that are not persistent are never written.
    pub max_memory_bytes: u64,
    /// Open transactions per connection, local ones and branches.
    pub max_open_per_connection: u32,
    /// Branches in all, those in doubt too.
    pub max_branches: u32,
    /// Timeout of a local transaction; 0 = none.
    pub local_timeout_ms: u64,
    /// Timeout of a branch that asks for none, until it is prepared; 0 = none.
    pub branch_timeout_ms: u64,
    /// The longest timeout that a branch may ask for; 0 = as asked.
    pub max_branch_timeout_ms: u64,
    /// How long the outcome of a completed branch is remembered.
    pub remember_ms: u64,
    /// How many outcomes are remembered.
    pub max_remembered: u32,
    /// A branch that is in doubt for longer raises an alarm; 0 = never.
    pub in_doubt_alarm_ms: u64,
}

impl Default for TransactionConfig {
    fn default() -> TransactionConfig {
        TransactionConfig {
            max_staged_bytes: 2 << 30,
            max_memory_bytes: 256 << 20,
            max_open_per_connection: 1_000,
            max_branches: 100_000,
            local_timeout_ms: 0,
            branch_timeout_ms: 300_000,
            max_branch_timeout_ms: 0,
            remember_ms: 600_000,
            max_remembered: 100_000,
            in_doubt_alarm_ms: 3_600_000,
        }
    }
}

impl TransactionConfig {
    /// As the home of a shard's transactions has them.
    #[must_use]
    pub fn home(&self, shard: ShardId, run: u64, broker: BrokerId) -> packhorse_txn::Config {
        packhorse_txn::Config {
            open_per_connection_max: self.max_open_per_connection,
            staged_bytes_max: self.max_staged_bytes,
            branches_max: self.max_branches,
            branch_timeout_ms: self.branch_timeout_ms,
            branch_timeout_max_ms: self.max_branch_timeout_ms,
            local_timeout_ms: self.local_timeout_ms,
            memory_ms: self.remember_ms,
            memory_max: self.max_remembered,
            ..packhorse_txn::Config::new(shard, run, broker)
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            broker_name: "packhorse".into(),
            shards: 1,
            max_message_bytes: 1 << 30,
            max_frame_bytes: 1 << 20,
            max_frame_before_open_bytes: 8 << 10,
            max_links: 65_536,
            max_sessions: 1024,
            link_credit_max: 5000,
            link_credit_bytes: 8 << 20,
            memory_bytes: 256 << 20,
            max_output_bytes: 1 << 20,
            idle_timeout_ms: 60_000,
            first_byte_timeout_ms: 5_000,
            sasl_timeout_ms: 10_000,
            open_timeout_ms: 10_000,
            delivery_limit: 10,
            dead_letter_queue: "DLQ".into(),
            auto_create: true,
            duplicate_ids: IdBounds::default(),
            all_duplicate_ids: 500_000,
            transactions: TransactionConfig::default(),
        }
    }
}

/// A setting outside its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting's name in configuration files.
    pub setting: &'static str,
    /// The value given.
    pub value: String,
    /// The rule it breaks.
    pub rule: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.setting, self.value, self.rule)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks every bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bound = |setting, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(ConfigError { setting, value: value.to_string(), rule: format!("must be {low} to {high}") })
        };
        bound("broker.shards", u64::from(self.shards), 1, 64)?;
        bound("limits.max_message_bytes", self.max_message_bytes, 1, 1 << 40)?;
        bound("limits.max_frame_bytes", u64::from(self.max_frame_bytes), 512, 16 << 20)?;
        bound("limits.max_frame_before_open_bytes", u64::from(self.max_frame_before_open_bytes), 512, 1 << 20)?;
        bound("limits.max_links", u64::from(self.max_links), 1, 1 << 20)?;
        bound("limits.max_sessions", u64::from(self.max_sessions), 1, 65_535)?;
        bound("limits.link_credit_max", u64::from(self.link_credit_max), 1, 1 << 20)?;
        bound("limits.link_credit_bytes", self.link_credit_bytes, 1, 1 << 40)?;
        bound("limits.memory_bytes", self.memory_bytes, 16 << 20, 1 << 50)?;
        bound("limits.max_output_bytes", self.max_output_bytes as u64, 64 << 10, 1 << 30)?;
        bound("limits.idle_timeout_ms", u64::from(self.idle_timeout_ms), 0, 86_400_000)?;
        for (setting, value) in [
            ("limits.first_byte_timeout_ms", self.first_byte_timeout_ms),
            ("limits.sasl_timeout_ms", self.sasl_timeout_ms),
            ("limits.open_timeout_ms", self.open_timeout_ms),
        ] {
            bound(setting, u64::from(value), 10, 3_600_000)?;
        }
        packhorse_model::QueueName::new(&self.dead_letter_queue).map_err(|e| ConfigError {
            setting: "queues.dead_letter",
            value: self.dead_letter_queue.clone(),
            rule: e.to_string(),
        })?;
        let tx = &self.transactions;
        let day_ms = 86_400_000;
        let IdBounds { max, keep_ms } = self.duplicate_ids;
        bound("queues.duplicate_ids", u64::from(max), 0, 500_000)?;
        // The store keeps none for longer.
        bound("queues.duplicate_ids_keep_ms", keep_ms, 1_000, day_ms)?;
        bound("transactions.max_staged_bytes", tx.max_staged_bytes, 64 << 10, 1 << 40)?;
        // The largest message that is not a file must fit, wherever its queue is.
        let least = u64::from(self.shards) << 20;
        bound("transactions.max_memory_bytes", tx.max_memory_bytes, least, 1 << 40)?;
        bound("transactions.max_open_per_connection", u64::from(tx.max_open_per_connection), 1, 1 << 20)?;
        bound("transactions.max_branches", u64::from(tx.max_branches), 1, 1 << 24)?;
        bound("transactions.local_timeout_ms", tx.local_timeout_ms, 0, 365 * day_ms)?;
        bound("transactions.branch_timeout_ms", tx.branch_timeout_ms, 0, 365 * day_ms)?;
        bound("transactions.max_branch_timeout_ms", tx.max_branch_timeout_ms, 0, 365 * day_ms)?;
        bound("transactions.remember_ms", tx.remember_ms, 1_000, 7 * day_ms)?;
        bound("transactions.max_remembered", u64::from(tx.max_remembered), 1, 1 << 24)?;
        bound("transactions.in_doubt_alarm_ms", tx.in_doubt_alarm_ms, 0, 365 * day_ms)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_every_bound() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_value_outside_its_bounds_is_named_with_the_rule() {
        let error = Config { max_frame_bytes: 511, ..Config::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "limits.max_frame_bytes = 511: must be 512 to 16777216");
        let error = Config { shards: 0, ..Config::default() }.check().unwrap_err();
        assert_eq!(error.setting, "broker.shards");
        let error = Config { dead_letter_queue: "a\nb".into(), ..Config::default() }.check().unwrap_err();
        assert_eq!(error.setting, "queues.dead_letter");
    }
}
