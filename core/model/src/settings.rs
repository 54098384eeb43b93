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
    /// How much it takes. In a dead-letter queue only bytes are limited, and nothing is dropped.
    pub limits: QueueLimits,
}

/// How much a queue takes, and what happens when it has that much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most messages; `None` = no such limit.
    pub max_messages: Option<u64>,
    /// Most bytes of messages; `None` = no such limit.
    pub max_bytes: Option<u64>,
    /// What happens to producers, or to messages, when a limit is reached.
    pub on_full: OnFull,
}

impl QueueLimits {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.max_messages.is_some() || self.max_bytes.is_some()
    }
}

/// What a full queue does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OnFull {
    /// Its producers get no credit until there is room. What credit already allowed is taken.
    #[default]
    Block = 0,
    /// What is sent to it is rejected.
    Reject = 1,
    /// Its oldest messages that are ready go to the dead-letter queue.
    DropOldest = 2,
}

impl OnFull {
    /// The stable word for configuration and API.
    pub fn as_str(self) -> &'static str {
        match self {
            OnFull::Block => "block",
            OnFull::Reject => "reject",
            OnFull::DropOldest => "drop-oldest",
        }
    }

    /// The policy with this word.
    pub fn parse(word: &str) -> Option<OnFull> {
        [OnFull::Block, OnFull::Reject, OnFull::DropOldest].into_iter().find(|p| p.as_str() == word)
    }
}

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings { default_durable: true, delivery_limit: 10, dead_letter: None, limits: QueueLimits::default() }
    }
}
