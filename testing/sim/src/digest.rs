//! What a run looked like, in one number (FNV-1a over everything that crossed a pipe, with its time).

/// A digest in the making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
