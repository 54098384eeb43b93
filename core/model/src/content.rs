//! What the broker keeps of a message: a small head that it understands, and content that it never rewrites.

use crate::{LargeId, QueueName, Sequence};
use alloc::boxed::Box;
use alloc::string::String;
use bytes::Bytes;

/// How the content's bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ContentFormat {
    /// Sections of an AMQP 1.0 message from message-annotations on (header and delivery-annotations are not kept);
    /// with a `message_format` other than 0, the delivery's bytes as they came.
    Amqp10 = 1,
}

/// Facts of a message beside its content. Copied, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Broker time of arrival, ms.
    pub arrived_ms: u64,
    /// Time to live in ms as the producer gave it; 0 = none.
    pub ttl_ms: u32,
    /// AMQP `message-format` of the delivery.
    pub message_format: u32,
    /// Priority as the producer gave it (default 4); the queue has ten levels, see [`Head::level`].
    pub priority: u8,
    /// Yes/no facts.
    pub flags: HeadFlags,
    /// Format of the content.
    pub format: ContentFormat,
}

impl Head {
    /// The priority level, 0 to 9: priorities above 9 count as 9.
    pub fn level(&self) -> u8 {
        self.priority.min(9)
    }

    /// Whether the message survives a crash.
    pub fn persistent(&self) -> bool {
        self.flags.has(HeadFlags::PERSISTENT)
    }
}

/// Yes/no facts of a message, a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFlags(pub u8);

impl HeadFlags {
    /// Survives a crash: by the producer's word, or by the queue's `default_durable`.
    pub const PERSISTENT: HeadFlags = HeadFlags(1);
    /// The producer's header said durable=true; only then the header that goes out says it.
    pub const DURABLE_SAID: HeadFlags = HeadFlags(2);
    /// The producer gave a priority.
    pub const PRIORITY_SAID: HeadFlags = HeadFlags(4);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: HeadFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union.
    #[must_use]
    pub fn with(self, other: HeadFlags) -> HeadFlags {
        HeadFlags(self.0 | other.0)
    }
}

/// Where an entry's content is, as the queue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes of this length; in memory at this place if the buffer is still there, otherwise to be loaded from the store.
    Body(Resident),
    /// A file of its own, streamed.
    Large {
        /// The file.
        id: LargeId,
        /// Its length in bytes.
        length: u64,
    },
}

impl Content {
    /// Length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Content::Body(r) => u64::from(r.length),
            Content::Large { length, .. } => *length,
        }
    }
}

/// A place in the ring of recent buffers: buffers are numbered ascending and evicted oldest first, so "still resident" is
/// one comparison with the oldest number. Buffer 0 never exists: "not in memory".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Number of the buffer, 0 = in the store only.
    pub buffer: u64,
    /// Offset in the buffer, bytes.
    pub offset: u32,
    /// Length, bytes.
    pub length: u32,
}

/// Why a message ended in a dead-letter or expiry queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A consumer rejected it.
    Rejected = 1,
    /// It reached the queue's delivery limit.
    DeliveryLimit = 2,
    /// The process died right after it had been delivered, several times in a row.
    BrokerCrash = 3,
    /// Its queue was full, and drops the oldest.
    Overflow = 4,
}

impl Reason {
    /// The stable word for annotations, logs and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::DeliveryLimit => "delivery-limit",
            Reason::BrokerCrash => "broker-crash",
            Reason::Overflow => "overflow",
        }
    }
}

/// A dead letter's history, told on delivery by the annotations `x-opt-packhorse-…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub reason: Reason,
    /// The consumer's words: condition and description of a `rejected`; may be empty.
    pub detail: String,
    /// Name of the queue it came from.
    pub address: QueueName,
    /// Its number there.
    pub sequence: Sequence,
    /// Earlier deliveries there.
    pub deliveries: u32,
    /// It is there still: a transaction that rejected it was committed, and its way to the dead-letter queue is not over.
    pub leaving: bool,
}

/// What was added to a message since it was stored; few messages have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Annotations of `modified` outcomes, an encoded map in the content's format, merged over the message's own; empty = none.
    pub annotations: Bytes,
    /// Set in dead-letter queues, and of what is on its way to one, see [`DeadLetter::leaving`].
    pub dead_letter: Option<Box<DeadLetter>>,
}

impl Overlay {
    /// Whether its message leaves its queue for a dead-letter queue, and nobody gets it any more.
    pub fn leaves(&self) -> bool {
        self.dead_letter.as_ref().is_some_and(|letter| letter.leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_stays_small() {
        assert!(core::mem::size_of::<Head>() <= 24);
        assert!(core::mem::size_of::<Content>() <= 24);
    }
}
