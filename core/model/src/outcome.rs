//! What a consumer says about a delivery, without any protocol's words (table in ARCHITECTURE.md, "Outcomes").

use alloc::string::String;
use bytes::Bytes;

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the entry is gone.
    Acknowledge,
    /// Back to its place, both numbers unchanged: the application did not see it.
    ReturnUnseen,
    /// Back to its place, deliveries + 1 and attempts + 1.
    ReturnSeen {
        /// Never again to this consumer.
        undeliverable_here: bool,
        /// Annotations to merge over the message's own, encoded map; empty = none.
        annotations: Bytes,
    },
    /// Back to its place; deliveries + 1 and attempts as said: an abrupt disconnect (`spec/entry.md`, "Redelivery").
    ReturnLost {
        /// Whether the application was working on it, as far as can be known.
        attempted: bool,
    },
    /// Back to its place with numbers unchanged, never again to this consumer, annotations merged.
    ReturnModified {
        /// Never again to this consumer.
        undeliverable_here: bool,
        /// Annotations to merge over the message's own, encoded map; empty = none.
        annotations: Bytes,
    },
    /// To the dead-letter queue at once.
    Reject {
        /// The consumer's words, may be empty.
        detail: String,
    },
}
