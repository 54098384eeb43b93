//! Bytes on their way to the socket: small ones copied together, large ones kept by reference.
//!
//! Owns the order of bytes and what has been written of them. Must not know frames: [`super::frame`] builds those in here.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

/// Pieces of at least this many bytes are kept by reference instead of being copied.
pub const SHARE_FROM_BYTES: usize = 4096;

/// The capacity that an idle output keeps.
const KEEP_BYTES: usize = 16 * 1024;

/// A queue of bytes with one write end and one read end.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Copied bytes; those before `head` are written.
    copied: Vec<u8>,
    head: usize,
    /// Shared pieces, each with the position in `copied` before which it goes out.
    shared: VecDeque<(usize, Bytes)>,
    /// Sum of the lengths in `shared`.
    shared_len: usize,
}

impl Output {
    /// Bytes not yet written.
    pub(crate) fn len(&self) -> usize {
        self.copied.len() - self.head + self.shared_len
    }

    /// Where the next copied byte will stand; only meaningful for [`Self::patch_u32`] until the next [`Self::advance`].
    pub(crate) fn position(&self) -> usize {
        self.copied.len()
    }

    /// The copied bytes as a vector, for encoders that append. They must only append.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }

    /// Overwrites four bytes at `position` with `value`, big end first.
    pub(crate) fn patch_u32(&mut self, position: usize, value: u32) {
        self.copied[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Forgets the copied bytes from `position` on: a frame that was begun and cannot be finished.
    pub(crate) fn truncate(&mut self, position: usize) {
        debug_assert!(self.shared.back().is_none_or(|(at, _)| *at <= position));
        self.copied.truncate(position);
    }

    /// Appends bytes by copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    /// Appends bytes by reference if that pays, by copy otherwise.
    pub(crate) fn share(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_FROM_BYTES {
            self.copy(&bytes);
        } else {
            self.shared_len += bytes.len();
            self.shared.push_back((self.copied.len(), bytes));
        }
    }

    /// The bytes not yet written, in order, as chunks that are never empty.
    pub(crate) fn chunks(&self) -> Chunks<'_> {
        Chunks { out: self, at: self.head, next_shared: 0 }
    }

    /// Forgets the first `n` bytes: they were written.
    ///
    /// # Panics
    ///
    /// If fewer than `n` bytes are waiting.
    pub(crate) fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len(), "more bytes written than there were");
        while n > 0 {
            let border = self.shared.front().map_or(self.copied.len(), |(at, _)| *at);
            let copied = border - self.head;
            if copied > 0 {
                let step = copied.min(n);
                self.head += step;
                n -= step;
                continue;
            }
            let Some((_, bytes)) = self.shared.front_mut() else { break };
            let step = bytes.len().min(n);
            self.shared_len -= step;
            n -= step;
            if step == bytes.len() {
                self.shared.pop_front();
            } else {
                // `split_off` keeps the reference count, no byte moves.
                *bytes = bytes.split_off(step);
            }
        }
        if self.head == self.copied.len() && self.shared.is_empty() {
            self.copied.clear();
            self.head = 0;
            if self.copied.capacity() > KEEP_BYTES * 4 {
                self.copied.shrink_to(KEEP_BYTES);
            }
        } else if self.head >= KEEP_BYTES && self.head * 2 >= self.copied.len() {
            // Each byte is moved at most once per byte written: a reader that never quite catches up costs no growth.
            self.copied.drain(..self.head);
            for (at, _) in &mut self.shared {
                *at -= self.head;
            }
            self.head = 0;
        }
    }
}

/// The waiting bytes in order. Made by [`super::Connection::output`].
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    out: &'a Output,
    at: usize,
    next_shared: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.out.shared.get(self.next_shared) {
            Some((at, bytes)) if *at == self.at => {
                self.next_shared += 1;
                Some(bytes)
            }
            Some((at, _)) => {
                let chunk = &self.out.copied[self.at..*at];
                self.at = *at;
                Some(chunk)
            }
            None if self.at < self.out.copied.len() => {
                let chunk = &self.out.copied[self.at..];
                self.at = self.out.copied.len();
                Some(chunk)
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(out: &Output) -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in out.chunks() {
            assert!(!chunk.is_empty());
            bytes.extend_from_slice(chunk);
        }
        assert_eq!(bytes.len(), out.len());
        bytes
    }

    #[test]
    fn order_is_kept_between_copied_and_shared_and_any_write_length() {
        let big: Vec<u8> = (0..SHARE_FROM_BYTES + 7).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for step in [1usize, 3, 100, 4096, 5000, 1 << 20] {
            let mut out = Output::default();
            let mut want = Vec::new();
            let mut got = Vec::new();
            for round in 0..20u8 {
                out.copy(&[round; 5]);
                want.extend_from_slice(&[round; 5]);
                out.share(Bytes::from(big.clone()));
                out.share(Bytes::from(big.clone()));
                want.extend_from_slice(&big);
                want.extend_from_slice(&big);
                out.share(Bytes::from_static(b"small"));
                want.extend_from_slice(b"small");
                let n = step.min(out.len());
                got.extend_from_slice(&all(&out)[..n]);
                out.advance(n);
            }
            got.extend_from_slice(&all(&out));
            out.advance(out.len());
            assert_eq!(out.len(), 0);
            assert!(out.chunks().next().is_none());
            assert!(got == want);
        }
    }

    #[test]
    fn memory_stays_bounded_when_the_reader_never_quite_catches_up() {
        let mut out = Output::default();
        out.copy(&[0; 100]);
        for _ in 0..100_000 {
            out.copy(&[1; 100]);
            out.advance(100);
        }
        assert_eq!(out.len(), 100);
        assert!(out.copied.capacity() < 4 * KEEP_BYTES, "{}", out.copied.capacity());
    }

    #[test]
    fn a_patch_and_a_truncation_touch_only_what_is_named() {
        let mut out = Output::default();
        out.copy(b"keep");
        let at = out.position();
        out.copy(&[0; 4]);
        out.patch_u32(at, 0x0102_0304);
        assert_eq!(all(&out), *b"keep\x01\x02\x03\x04");
        out.truncate(at);
        assert_eq!(all(&out), b"keep");
    }
}
