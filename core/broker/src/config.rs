//! The broker's settings, as values. Files, flags and environment are `shell/runtime`'s.

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
