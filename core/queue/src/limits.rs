//! Limits of a queue (`spec/lanes.md`, "Flow control for clients"): whether it is full, what credit its producers may have, and
//! what it drops.
//!
//! Must not know: links. Limits count what lives, staged or not. In a dead-letter queue only bytes count, and nothing is
//! dropped. Nothing here is asked for each message of a queue without limits.

use crate::input::{Effect, Turn};
use crate::queue::Queue;
use crate::relocate::Cause;
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{OnFull, Reason, Sequence};

/// A limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`packhorse_model::QueueLimits::max_messages`].
    Messages,
    /// [`packhorse_model::QueueLimits::max_bytes`].
    Bytes,
}

impl Limit {
    /// The stable word for logs and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::Messages => "messages",
            Limit::Bytes => "bytes",
        }
    }
}

/// Limits as they are in force; the highest number stands for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    messages: u64,
    bytes: u64,
    on_full: OnFull,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { messages: u64::MAX, bytes: u64::MAX, on_full: OnFull::Block }
    }
}

impl Limits {
    fn any(&self) -> bool {
        self.messages != u64::MAX || self.bytes != u64::MAX
    }

    /// Whether something may have to be dropped.
    pub(crate) fn drops(&self) -> bool {
        self.any() && self.on_full == OnFull::DropOldest
    }
}

impl Queue {
    /// Finds out which limits are in force, after something changed that they depend on.
    #[cold]
    pub(crate) fn set_limits(&mut self) {
        let told = self.settings.limits;
        self.limits = Limits {
            messages: told.max_messages.filter(|_| !self.dead_letters).unwrap_or(u64::MAX),
            bytes: told.max_bytes.unwrap_or(u64::MAX),
            // There is nowhere further to drop to.
            on_full: if self.dead_letters && told.on_full == OnFull::DropOldest { OnFull::Block } else { told.on_full },
        };
        self.errands = self.has_errands();
    }

    /// Whether it has limits: producers ask for their credit.
    #[inline]
    pub fn limited(&self) -> bool {
        self.limits.any()
    }

    /// Which limit is reached.
    pub fn full(&self) -> Option<Limit> {
        self.full_for(1)
    }

    /// The same for a message of so many bytes, at least one.
    fn full_for(&self, length: u64) -> Option<Limit> {
        let (messages, bytes) = self.counts.live();
        if messages >= self.limits.messages {
            Some(Limit::Messages)
        } else if bytes.saturating_add(length.max(1)) > self.limits.bytes {
            Some(Limit::Bytes)
        } else {
            None
        }
    }

    /// Why a message of this length is to be rejected; `None`: it is to be taken.
    pub fn refuses(&self, length: u64) -> Option<Limit> {
        if self.limits.on_full == OnFull::Reject { self.full_for(length) } else { None }
    }

    /// Whether an entry of this length may come from another queue.
    pub fn takes(&self, length: u64) -> bool {
        self.limits.on_full == OnFull::DropOldest || self.full_for(length).is_none()
    }

    /// Messages that each of so many producers may send, if its messages have so many bytes on average: at least one, or
    /// none at all (`None`) until there is room.
    pub fn share(&self, producers: u64, mean_bytes: u64) -> Option<u64> {
        match self.limits.on_full {
            OnFull::Reject => return Some(u64::MAX),
            // What it drops cannot go.
            OnFull::DropOldest if self.stuck() && self.full().is_some() => return None,
            OnFull::DropOldest => return Some(u64::MAX),
            OnFull::Block => {}
        }
        if self.full().is_some() {
            return None;
        }
        let (messages, bytes) = self.counts.live();
        let by_bytes = match self.limits.bytes {
            u64::MAX => u64::MAX,
            most => (most - bytes) / mean_bytes.max(1),
        };
        let free = by_bytes.min(match self.limits.messages {
            u64::MAX => u64::MAX,
            most => most - messages,
        });
        Some((free / producers.max(1)).max(1))
    }

    /// Whether its dead-letter queue had no room the last time it was asked.
    pub fn jammed(&self) -> bool {
        self.jammed
    }

    /// Whether this entry waits because its dead-letter queue cannot take it, or is offered to it just now.
    pub fn is_doomed(&self, sequence: Sequence) -> bool {
        (0..10).any(|level| self.doomed.contains_key(&(level, sequence)))
    }

    /// How many entries wait because their dead-letter queue cannot take them.
    pub fn waiting_for_room(&self) -> u64 {
        if self.jammed { self.doomed.values().filter(|d| d.retry_at_us.is_some()).count() as u64 } else { 0 }
    }

    /// Whether the dead-letter queue cannot take what is dropped.
    fn stuck(&self) -> bool {
        self.jammed && !self.doomed.is_empty()
    }

    /// Drops the oldest ready entries while the queue holds too much, as far as `work` goes; false: there is more.
    pub(crate) fn overflow(&mut self, work: &mut u32, turn: &mut Turn<'_>, out: &mut Vec<Effect>) -> bool {
        while self.limits.drops() && !self.stuck() && self.overflows() {
            let Some((level, sequence, place)) = self.oldest_ready() else { break };
            if !self.may_leave(level, sequence, place, 0, turn) {
                break;
            }
            if *work == 0 {
                return false;
            }
            *work -= 1;
            let cause = Cause::Letter { reason: Reason::Overflow, detail: String::new() };
            self.divert(level, sequence, place, cause, turn, out);
        }
        true
    }

    /// Whether it holds too much, without what is on its way to other queues.
    fn overflows(&self) -> bool {
        let (messages, bytes) = self.counts.live();
        let messages = messages - self.doomed.len() as u64;
        messages > self.limits.messages || bytes - self.doomed_bytes > self.limits.bytes
    }
}
