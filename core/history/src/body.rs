//! Bodies that say whose they are: run, producer, sequence, and a checksum of the filler. So a checker needs nothing of the broker.
//!
//! Two layouts, little-endian (`docs/formats/history.md`): 40 bytes in front of the filler, or 16 where a body is shorter than that.
//! Must not allocate, except for a [`Template`], which is made once.

use crate::event::MessageId;

/// The shortest body that can say whose it is.
pub const LEAST_BYTES: usize = 16;
const LONG: usize = 40;
const LONG_MAGIC: [u8; 4] = *b"phb1";
const SHORT_MAGIC: u8 = 0xb5;
const SHORT_SEQUENCE_END: u64 = 1 << 40;

/// Why a body cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Below [`LEAST_BYTES`].
    TooShort(usize),
    /// A body below 40 bytes holds sequences up to 2^40 only.
    SequenceTooLarge(u64),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::TooShort(size) => {
                write!(f, "a body of {size} bytes cannot say whose it is: {LEAST_BYTES} is the least")
            }
            BodyError::SequenceTooLarge(sequence) => {
                write!(f, "sequence {sequence} does not fit a body of less than {LONG} bytes")
            }
        }
    }
}

impl std::error::Error for BodyError {}

/// What a body says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// As it was made, and of this run.
    Intact(MessageId),
    /// Whose it is can be read, and the rest is not what its sender made.
    Corrupt(MessageId),
    /// It does not say whose it is.
    Unreadable,
    /// A whole message of another run.
    OtherRun(u64),
}

impl Checked {
    /// The message and the `crc_ok` for an `Event::Recv`.
    pub fn for_recv(self) -> (MessageId, bool) {
        match self {
            Checked::Intact(message) => (message, true),
            Checked::Corrupt(message) => (message, false),
            Checked::Unreadable => (MessageId::NONE, false),
            Checked::OtherRun(_) => (MessageId::NONE, true),
        }
    }
}

/// Fills all of `body` for this message: its head, and a filler that differs from message to message. Answers the CRC of the filler.
pub fn fill(run: u64, message: MessageId, body: &mut [u8]) -> Result<u32, BodyError> {
    let head = body.len().min(LONG);
    if head < LONG {
        return stamp_short(run, message, body);
    }
    fill_filler(message, &mut body[head..]);
    let crc = crc32c::crc32c(&body[LONG..]);
    stamp_long(run, message, crc, body);
    Ok(crc)
}

/// A body whose filler and checksum are made once and whose head is rewritten for each message: for load generators.
#[derive(Clone, Debug)]
pub struct Template {
    run: u64,
    crc: u32,
    body: Vec<u8>,
}

impl Template {
    /// A template for bodies of `size_bytes` in this run.
    pub fn new(run: u64, size_bytes: usize) -> Result<Template, BodyError> {
        let mut body = vec![0; size_bytes];
        let crc = fill(run, MessageId::new(0, 0), &mut body)?;
        Ok(Template { run, crc, body })
    }

    /// The body of this message and the CRC of its filler.
    pub fn stamp(&mut self, message: MessageId) -> Result<(&[u8], u32), BodyError> {
        if self.body.len() < LONG {
            let crc = stamp_short(self.run, message, &mut self.body)?;
            return Ok((&self.body, crc));
        }
        stamp_long(self.run, message, self.crc, &mut self.body);
        Ok((&self.body, self.crc))
    }
}

/// Reads a body's head and checks all of it.
pub fn check(run: u64, body: &[u8]) -> Checked {
    if body.len() < LONG {
        return check_short(run, body);
    }
    let (head, filler) = body.split_at(LONG);
    if head[..4] != LONG_MAGIC || crc32c::crc32c(&head[8..]) != u32_at(head, 4) {
        return Checked::Unreadable;
    }
    let of_run = u64_at(head, 8);
    if of_run != run {
        return Checked::OtherRun(of_run);
    }
    let message = MessageId::new(u32_at(head, 16), u64_at(head, 20));
    let intact = filler.len() as u64 == u64_at(head, 28) && crc32c::crc32c(filler) == u32_at(head, 36);
    if intact { Checked::Intact(message) } else { Checked::Corrupt(message) }
}

fn stamp_long(run: u64, message: MessageId, crc: u32, body: &mut [u8]) {
    let filler = (body.len() - LONG) as u64;
    body[..4].copy_from_slice(&LONG_MAGIC);
    body[8..16].copy_from_slice(&run.to_le_bytes());
    body[16..20].copy_from_slice(&message.producer.to_le_bytes());
    body[20..28].copy_from_slice(&message.sequence.to_le_bytes());
    body[28..36].copy_from_slice(&filler.to_le_bytes());
    body[36..40].copy_from_slice(&crc.to_le_bytes());
    let head = crc32c::crc32c(&body[8..LONG]);
    body[4..8].copy_from_slice(&head.to_le_bytes());
}

/// `b5`, run (3 bytes), producer (4), sequence (5), checksum of everything else (3), filler.
fn stamp_short(run: u64, message: MessageId, body: &mut [u8]) -> Result<u32, BodyError> {
    if body.len() < LEAST_BYTES {
        return Err(BodyError::TooShort(body.len()));
    }
    if message.sequence >= SHORT_SEQUENCE_END {
        return Err(BodyError::SequenceTooLarge(message.sequence));
    }
    fill_filler(message, &mut body[LEAST_BYTES..]);
    body[0] = SHORT_MAGIC;
    body[1..4].copy_from_slice(&run.to_le_bytes()[..3]);
    body[4..8].copy_from_slice(&message.producer.to_le_bytes());
    body[8..13].copy_from_slice(&message.sequence.to_le_bytes()[..5]);
    let sum = short_sum(body);
    body[13..16].copy_from_slice(&sum);
    Ok(crc32c::crc32c(&body[LEAST_BYTES..]))
}

fn check_short(run: u64, body: &[u8]) -> Checked {
    if body.len() < LEAST_BYTES || body[0] != SHORT_MAGIC || body[13..16] != short_sum(body) {
        return Checked::Unreadable;
    }
    if body[1..4] != run.to_le_bytes()[..3] {
        return Checked::OtherRun(u64::from(u32::from_le_bytes([body[1], body[2], body[3], 0])));
    }
    let sequence = u64::from_le_bytes([body[8], body[9], body[10], body[11], body[12], 0, 0, 0]);
    Checked::Intact(MessageId::new(u32_at(body, 4), sequence))
}

fn short_sum(body: &[u8]) -> [u8; 3] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&body[..13]), &body[LEAST_BYTES..]).to_le_bytes();
    [sum[0], sum[1], sum[2]]
}

/// Eight bytes at a time from a counter multiplied by an odd number: quick, and different for each message.
fn fill_filler(message: MessageId, filler: &mut [u8]) {
    let mut word = (message.sequence << 20) ^ u64::from(message.producer) ^ 0x9e37_79b9_7f4a_7c15;
    let mut chunks = filler.chunks_exact_mut(8);
    for chunk in &mut chunks {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    let rest = chunks.into_remainder();
    let length = rest.len();
    rest.copy_from_slice(&word.to_be_bytes()[..length]);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 0x0123_4567_89ab_cdef;

    #[test]
    fn every_length_comes_back_and_every_changed_byte_is_seen() {
        for size in [16, 17, 24, 39, 40, 41, 48, 1024] {
            let message = MessageId::new(7, 123_456_789);
            let mut body = vec![0; size];
            fill(RUN, message, &mut body).expect("long enough");
            assert_eq!(check(RUN, &body), Checked::Intact(message), "{size}");
            for at in 0..size {
                body[at] ^= 0x10;
                assert_ne!(check(RUN, &body), Checked::Intact(message), "{size} bytes, byte {at}");
                body[at] ^= 0x10;
            }
            for shorter in 0..size {
                assert_ne!(check(RUN, &body[..shorter]), Checked::Intact(message), "{size} bytes cut to {shorter}");
            }
        }
    }

    #[test]
    fn another_run_is_told_apart() {
        for size in [16, 64] {
            let mut body = vec![0; size];
            fill(RUN + 1, MessageId::new(1, 2), &mut body).expect("long enough");
            let checked = check(RUN, &body);
            assert!(matches!(checked, Checked::OtherRun(_)), "{checked:?}");
            assert_eq!(checked.for_recv(), (MessageId::NONE, true));
        }
    }

    #[test]
    fn a_changed_filler_still_says_whose_it_is() {
        let mut body = vec![0; 64];
        fill(RUN, MessageId::new(1, 2), &mut body).expect("long enough");
        body[50] ^= 1;
        assert_eq!(check(RUN, &body), Checked::Corrupt(MessageId::new(1, 2)));
    }

    #[test]
    fn fillers_differ_and_templates_check() {
        let mut one = vec![0; 100];
        let mut two = vec![0; 100];
        let crc = fill(RUN, MessageId::new(1, 2), &mut one).expect("long enough");
        assert_ne!(fill(RUN, MessageId::new(1, 3), &mut two), Ok(crc));
        for size in [16, 100] {
            let mut template = Template::new(RUN, size).expect("long enough");
            for sequence in [0, 1, 1 << 39] {
                let message = MessageId::new(9, sequence);
                let (body, _) = template.stamp(message).expect("fits");
                assert_eq!(check(RUN, body), Checked::Intact(message));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(fill(RUN, MessageId::new(1, 2), &mut [0; 15]), Err(BodyError::TooShort(15)));
        assert_eq!(fill(RUN, MessageId::new(1, 1 << 40), &mut [0; 16]), Err(BodyError::SequenceTooLarge(1 << 40)));
        assert!(Template::new(RUN, 3).is_err());
    }
}
