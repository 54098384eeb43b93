//! Settings of a queue, durable with it.

use crate::QueueName;

/// What an operator may set on a queue. Defaults are the safe ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// A message without a word on durability is persistent.
    pub default_durable: bool,
    /// Attempts after which a message goes to the dead-letter queue; 0 = never.
    pub delivery_limit: u32,
    /// Name of the dead-letter queue; `None` = the broker's default, `DLQ`.
    pub dead_letter: Option<QueueName>,
}

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings { default_durable: true, delivery_limit: 10, dead_letter: None }
    }
}
