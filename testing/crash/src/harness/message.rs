//! Messages of a run: their sizes and kinds drawn from a seed, encoded, and taken apart again.

use crate::Random;
use packhorse_client_core::{Body, BodySection, Draft, Limits, MessageView};
use packhorse_history::MessageId;
use packhorse_history::body::{self, Checked};

/// What a message is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Bytes of its body.
    pub(super) size: usize,
    /// Whether it survives the broker.
    pub(super) persistent: bool,
    /// 0 to 9.
    pub(super) priority: u8,
}

impl Kind {
    /// Mostly small, a few of sizes that go through other paths: more than one frame's worth of a read, files of their own.
    pub(super) fn draw(random: &mut Random) -> Kind {
        let size = match random.below(10_000) {
            0 => 1_050_000 + random.below(300_000),
            1..=12 => 64_000 + random.below(240_000),
            13..=2_000 => 1_024 + random.below(3_072),
            _ => 16 + random.below(240),
        };
        let priority = if random.below(5) == 0 { random.below(10) as u8 } else { 4 };
        Kind { size, persistent: random.below(10) > 0, priority }
    }
}

/// Encodes messages into one buffer.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    body: Vec<u8>,
    bytes: Vec<u8>,
}

impl Encoder {
    /// Bytes that stand around a body at most.
    pub(super) const AROUND_BYTES: usize = 64;

    /// The whole message, and the CRC of its body's filler.
    pub(super) fn encode(&mut self, run: u64, message: MessageId, kind: Kind) -> (&[u8], u32) {
        self.encode_about(run, message, kind, None)
    }

    /// The same with what the message is about, which it says as its correlation-id.
    pub(super) fn encode_about(
        &mut self,
        run: u64,
        message: MessageId,
        kind: Kind,
        origin: Option<u64>,
    ) -> (&[u8], u32) {
        self.body.resize(kind.size, 0);
        let crc = body::fill(run, message, &mut self.body).expect("long enough, and sequences are small");
        self.bytes.clear();
        let mut draft = Draft::new(Body::Data(&self.body));
        draft.durable = Some(kind.persistent);
        draft.priority = Some(kind.priority);
        draft.properties.correlation_id = origin.map(packhorse_client_core::MessageId::Ulong);
        draft.encode(&mut self.bytes);
        (&self.bytes, crc)
    }
}

/// What a delivery says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whose it is.
    pub(super) message: MessageId,
    /// The body is what its sender made.
    pub(super) whole: bool,
    /// The delivery count.
    pub(super) count: u32,
    /// Why it is a dead letter; empty if it is none.
    pub(super) reason: String,
    /// What it is about, if it says that.
    pub(super) origin: Option<u64>,
}

impl Seen {
    /// Takes a message apart.
    pub(super) fn of(run: u64, bytes: &[u8]) -> Seen {
        let limits = Limits { message_head_bytes: u32::MAX, ..Limits::default() };
        let Ok(view) = MessageView::parse(bytes, &limits) else {
            return Seen { message: MessageId::NONE, whole: false, count: 0, reason: String::new(), origin: None };
        };
        let checked = match view.body().next() {
            Some(BodySection::Data(data)) => body::check(run, data),
            _ => Checked::Unreadable,
        };
        let (message, whole) = checked.for_recv();
        let origin = match view.properties().correlation_id {
            Some(packhorse_client_core::MessageId::Ulong(origin)) => Some(origin),
            _ => None,
        };
        let reason = view.message_annotations().and_then(|map| map.get("x-opt-packhorse-reason"));
        Seen {
            message,
            whole,
            count: view.header().delivery_count.unwrap_or(0),
            reason: reason.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default(),
            origin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_taken_apart_again() {
        let mut random = Random::new(1);
        let mut encoder = Encoder::default();
        for sequence in 0..200 {
            let (message, kind) = (MessageId::new(3, sequence), Kind::draw(&mut random));
            let (bytes, _) = encoder.encode(9, message, kind);
            assert!(bytes.len() <= kind.size + Encoder::AROUND_BYTES, "{kind:?}");
            let seen = Seen::of(9, bytes);
            assert_eq!(seen, Seen { message, whole: true, count: 0, reason: String::new(), origin: None });
            let (bytes, _) = encoder.encode_about(9, message, kind, Some(sequence));
            assert_eq!(Seen::of(9, bytes).origin, Some(sequence));
            assert_eq!(Seen::of(8, bytes).message, MessageId::NONE);
        }
    }

    #[test]
    fn sizes_go_from_the_least_to_files_of_their_own() {
        let mut random = Random::new(1);
        let sizes: Vec<usize> = (0..50_000).map(|_| Kind::draw(&mut random).size).collect();
        assert!(sizes.iter().any(|size| *size < 40) && sizes.iter().any(|size| *size > 1 << 20));
        assert!(sizes.iter().filter(|size| **size <= 4_096).count() > 49_000);
    }
}
