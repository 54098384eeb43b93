//! An entry at rest: 48 bytes, whatever the message.
//!
//! Must not know: order, consumers. The state bits change only through [`Slot::apply`], which asks `entry::transition`.

use crate::entry::{Event, Illegal, State, Transition, transition};
use packhorse_model::{Content, ContentFormat, Head, HeadFlags, LargeId, Resident, Sequence};

/// Head, content and condition of an entry, packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    /// Broker time of arrival, ms.
    pub(crate) arrived_ms: u64,
    /// Number of the buffer, or of the large file.
    place: u64,
    /// Offset in the buffer, or the low half of a large file's length.
    low: u32,
    /// Length in the buffer, or the high half of a large file's length.
    high: u32,
    ttl_ms: u32,
    message_format: u32,
    /// Index in the histories, 0 = none.
    pub(crate) history: u32,
    priority: u8,
    head_flags: HeadFlags,
    format: ContentFormat,
    status: u8,
}

/// Three bits of `status` are the state.
const STATE: u8 = 7;

/// Yes/no facts of an entry: the other bits of `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Flag {
    /// The store knows it: leaving needs a record.
    Stored = 1 << 3,
    /// The content is a file of its own.
    Large = 1 << 4,
    /// Back, but its record is not durable yet: not dispatched before that.
    Held = 1 << 5,
    /// Some consumer must not get it again.
    Restricted = 1 << 6,
    /// It has an overlay.
    Overlay = 1 << 7,
}

impl Packed {
    pub(crate) fn new(head: Head, content: Content, state: State) -> Packed {
        let (place, low, high, large) = match content {
            Content::Body(Resident { buffer, offset, length }) => (buffer, offset, length, 0),
            Content::Large { id, length } => (id.0, length as u32, (length >> 32) as u32, Flag::Large as u8),
        };
        Packed {
            arrived_ms: head.arrived_ms,
            place,
            low,
            high,
            ttl_ms: head.ttl_ms,
            message_format: head.message_format,
            history: 0,
            priority: head.priority,
            head_flags: head.flags,
            format: head.format,
            status: state as u8 | large,
        }
    }

    pub(crate) fn head(&self) -> Head {
        Head {
            arrived_ms: self.arrived_ms,
            ttl_ms: self.ttl_ms,
            message_format: self.message_format,
            priority: self.priority,
            flags: self.head_flags,
            format: self.format,
        }
    }

    pub(crate) fn content(&self) -> Content {
        if self.has(Flag::Large) {
            Content::Large { id: LargeId(self.place), length: self.length() }
        } else {
            Content::Body(Resident { buffer: self.place, offset: self.low, length: self.high })
        }
    }

    /// Length of the content, bytes.
    pub(crate) fn length(&self) -> u64 {
        if self.has(Flag::Large) { u64::from(self.low) | u64::from(self.high) << 32 } else { u64::from(self.high) }
    }

    /// Whether the content can be sent now.
    pub(crate) fn resident(&self, oldest_resident: u64) -> bool {
        self.has(Flag::Large) || (self.place != 0 && self.place >= oldest_resident)
    }

    /// Notes where the body was loaded to.
    pub(crate) fn place(&mut self, buffer: u64, offset: u32, length: u32) {
        debug_assert!(!self.has(Flag::Large), "a large message is not loaded into a buffer");
        (self.place, self.low, self.high) = (buffer, offset, length);
    }

    pub(crate) fn persistent(&self) -> bool {
        self.head_flags.has(HeadFlags::PERSISTENT)
    }

    pub(crate) fn level(&self) -> u8 {
        self.priority.min(9)
    }

    pub(crate) fn state(&self) -> State {
        State::ALL[usize::from(self.status & STATE)]
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.status & flag as u8 != 0
    }

    pub(crate) fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.status |= flag as u8;
        } else {
            self.status &= !(flag as u8);
        }
    }
}

/// An entry in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) sequence: Sequence,
    pub(crate) packed: Packed,
}

impl Slot {
    /// Lets `event` happen. The only place that changes the state bits. Several times for each message, so there is no call.
    #[inline(always)]
    pub(crate) fn apply(&mut self, event: Event) -> Result<Transition, Illegal> {
        let transition = transition(self.packed.state(), event)?;
        #[cfg(feature = "coverage")]
        crate::coverage::count(transition.from, event);
        self.packed.status = self.packed.status & !STATE | transition.to as u8;
        Ok(transition)
    }
}

const _: () = assert!(core::mem::size_of::<Slot>() <= 48, "an entry at rest costs at most 48 bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_content_come_out_as_they_went_in() {
        let head = Head {
            arrived_ms: u64::MAX,
            ttl_ms: 7,
            message_format: 0x8000_0001,
            priority: 200,
            flags: HeadFlags::PERSISTENT.with(HeadFlags::PRIORITY_SAID),
            format: ContentFormat::Amqp10,
        };
        for content in [
            Content::Body(Resident { buffer: u64::MAX, offset: u32::MAX, length: 5 }),
            Content::Large { id: LargeId(9), length: (7 << 32) | 3 },
        ] {
            for state in State::ALL {
                let packed = Packed::new(head, content, state);
                assert_eq!((packed.head(), packed.content(), packed.state()), (head, content, state));
                assert_eq!(packed.length(), content.length());
                assert_eq!(packed.level(), 9);
            }
        }
    }

    #[test]
    fn buffer_zero_and_older_buffers_are_not_resident() {
        let head = Head {
            arrived_ms: 0,
            ttl_ms: 0,
            message_format: 0,
            priority: 4,
            flags: HeadFlags::default(),
            format: ContentFormat::Amqp10,
        };
        let body = |buffer| Content::Body(Resident { buffer, offset: 0, length: 1 });
        assert!(!Packed::new(head, body(0), State::Available).resident(0));
        assert!(!Packed::new(head, body(4), State::Available).resident(5));
        assert!(Packed::new(head, body(5), State::Available).resident(5));
        assert!(Packed::new(head, Content::Large { id: LargeId(1), length: 1 }, State::Available).resident(5));
    }
}
