//! Bytes on their way in, and where the next frame among them is.
//!
//! Owns the rule that fresh bytes are copied only where a frame is unfinished at their end. Must not know what a frame means.

use alloc::vec::Vec;

/// The bytes of one connection that are there to be read. Belongs to the caller, so that one read buffer serves many
/// connections.
#[derive(Debug)]
pub struct Input<'b> {
    /// What earlier turns left over: the connection's own, empty in the beginning, kept between turns. Only the engine
    /// changes it.
    pub partial: &'b mut Vec<u8>,
    /// What was just read. The engine takes from the front; when `next` returns `None`, nothing is left.
    pub fresh: &'b [u8],
}

/// The capacity that an empty `partial` may keep.
const KEEP_BYTES: usize = 4096;

/// Where one frame stands. `taken` bytes at the front of `partial` are consumed already.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut<'b> {
    Fresh(&'b [u8]),
    Partial { from: usize, to: usize },
}

impl<'b> Cut<'b> {
    /// The bytes of the frame.
    pub(crate) fn bytes<'i>(self, input: &'i Input<'b>) -> &'i [u8] {
        match self {
            Self::Fresh(bytes) => bytes,
            Self::Partial { from, to } => &input.partial[from..to],
        }
    }
}

impl<'b> Input<'b> {
    /// Finds the next whole unit; `size_of` tells its size from its first bytes, or that it cannot tell yet. Without one,
    /// what is there is kept in `partial`. An error of `size_of` is handed on at once: nothing is held for a unit that
    /// will not be taken.
    pub(crate) fn cut<E>(
        &mut self,
        taken: &mut usize,
        mut size_of: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
    ) -> Result<Option<Cut<'b>>, E> {
        if *taken == self.partial.len() {
            *taken = 0;
            self.partial.clear();
            if self.partial.capacity() > KEEP_BYTES {
                *self.partial = Vec::new();
            }
        }
        if self.partial.is_empty() {
            if let Some(size) = size_of(self.fresh)?
                && size <= self.fresh.len()
            {
                let (frame, rest) = self.fresh.split_at(size);
                self.fresh = rest;
                return Ok(Some(Cut::Fresh(frame)));
            }
            self.partial.extend_from_slice(self.fresh);
            self.fresh = &[];
            return Ok(None);
        }
        loop {
            let held = self.partial.len() - *taken;
            let need = match size_of(&self.partial[*taken..])? {
                Some(size) if size <= held => {
                    let from = *taken;
                    *taken += size;
                    return Ok(Some(Cut::Partial { from, to: *taken }));
                }
                Some(size) => size - held,
                // Eight bytes always tell.
                None => 8usize.saturating_sub(held).max(1),
            };
            if *taken > 0 {
                self.partial.drain(..*taken);
                *taken = 0;
            }
            if self.fresh.is_empty() {
                return Ok(None);
            }
            let (more, rest) = self.fresh.split_at(need.min(self.fresh.len()));
            self.partial.extend_from_slice(more);
            self.fresh = rest;
        }
    }

    /// Copies all that is fresh to `partial`, for later. Returns how many bytes that makes.
    pub(crate) fn hold(&mut self, taken: &mut usize) -> usize {
        if *taken > 0 {
            self.partial.drain(..*taken);
            *taken = 0;
        }
        self.partial.extend_from_slice(self.fresh);
        self.fresh = &[];
        self.partial.len()
    }

    /// Forgets everything: nothing more is read on this connection.
    pub(crate) fn drop_all(&mut self, taken: &mut usize) {
        *taken = 0;
        *self.partial = Vec::new();
        self.fresh = &[];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Units whose first byte is their length.
    fn size_of(bytes: &[u8]) -> Result<Option<usize>, u8> {
        match bytes.first() {
            None => Ok(None),
            Some(0) => Err(0),
            Some(n) => Ok(Some(usize::from(*n))),
        }
    }

    #[test]
    fn units_are_the_same_however_the_bytes_are_cut() {
        let stream: Vec<u8> = (0..200u8).flat_map(|i| vec![i % 13 + 1; usize::from(i % 13 + 1)]).collect();
        for step in 1..40 {
            let (mut partial, mut taken, mut got) = (Vec::new(), 0, Vec::new());
            let mut units = 0;
            for fresh in stream.chunks(step) {
                let mut input = Input { partial: &mut partial, fresh };
                while let Some(cut) = input.cut(&mut taken, size_of).unwrap() {
                    got.extend_from_slice(cut.bytes(&input));
                    units += 1;
                }
                assert!(input.fresh.is_empty());
                assert!(partial.len() <= 13);
            }
            assert_eq!(units, 200);
            assert!(got == stream);
        }
    }

    #[test]
    fn whole_units_are_not_copied() {
        let (mut partial, mut taken) = (Vec::new(), 0);
        let fresh = [2, 2, 3, 3, 3, 4];
        let mut input = Input { partial: &mut partial, fresh: &fresh };
        for want in [&fresh[..2], &fresh[2..5]] {
            let cut = input.cut(&mut taken, size_of).unwrap().unwrap();
            assert!(core::ptr::eq(cut.bytes(&input), want));
        }
        assert!(input.cut(&mut taken, size_of).unwrap().is_none());
        assert_eq!(partial, [4]);
    }

    #[test]
    fn held_bytes_are_cut_later() {
        let (mut partial, mut taken) = (Vec::new(), 0);
        let mut input = Input { partial: &mut partial, fresh: &[1, 2, 2, 3, 3] };
        assert!(input.cut(&mut taken, size_of).unwrap().is_some());
        assert_eq!(input.hold(&mut taken), 4);
        let cut = input.cut(&mut taken, size_of).unwrap().unwrap();
        assert_eq!(cut.bytes(&input), [2, 2]);
        input.fresh = &[3, 0];
        let cut = input.cut(&mut taken, size_of).unwrap().unwrap();
        assert_eq!(cut.bytes(&input), [3, 3, 3]);
        assert_eq!(input.cut(&mut taken, size_of).unwrap_err(), 0);
        input.drop_all(&mut taken);
        assert!(input.cut(&mut taken, size_of).unwrap().is_none());
    }
}
