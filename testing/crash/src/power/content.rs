//! A file as the system shows it, and as it is on the medium: writes that were not synced keep what they replaced.
//!
//! Knows bytes and order, nothing of names, requests or time. What of the unsynced survives is asked of the caller.

/// The size that a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// One unsynced change.
#[derive(Debug)]
struct Change {
    number: u64,
    kind: Kind,
    /// The size before.
    size: usize,
    /// What was there before, from [`Change::at`] on, as far as there was anything.
    old: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Write { offset: usize, length: usize, by: u32 },
    Resize { to: usize },
}

impl Change {
    fn at(&self) -> usize {
        match self.kind {
            Kind::Write { offset, .. } => offset,
            Kind::Resize { to } => to,
        }
    }
}

/// A change that was taken back, with what it had written.
struct Redo {
    number: u64,
    kind: Kind,
    new: Vec<u8>,
}

/// Asked for each change that is not synced, in order.
pub(crate) trait Fate {
    /// Of how many bytes the pieces of the next write are: each is kept or lost as a whole. At most 4096, at least [`SECTOR`].
    fn piece(&mut self) -> usize;
    /// Whether the next piece of `bytes` bytes is kept.
    fn keeps(&mut self, bytes: usize) -> bool;
    /// Whether a change of the size is kept.
    fn keeps_size(&mut self) -> bool;
    /// A write is through: how many of its pieces were kept, of how many.
    fn written(&mut self, kept: usize, pieces: usize);
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Content {
    live: Vec<u8>,
    pending: Vec<Change>,
    /// Of the last change.
    number: u64,
}

impl Content {
    /// Bytes, as the system shows it.
    pub(crate) fn size(&self) -> usize {
        self.live.len()
    }

    /// As the system shows it.
    pub(crate) fn read(&self, offset: usize, length: usize) -> &[u8] {
        let end = self.live.len().min(offset.saturating_add(length));
        &self.live[offset.min(end)..end]
    }

    /// Writes; a gap before it is zeros. `by`: the thread that does.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8], by: u32) {
        let (size, end) = (self.live.len(), offset + bytes.len());
        let old = self.read(offset, bytes.len()).to_vec();
        if end > size {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(bytes);
        self.changed(Kind::Write { offset, length: bytes.len(), by }, size, old);
    }

    /// Cuts the file off, or appends zeros.
    pub(crate) fn resize(&mut self, to: usize) {
        let size = self.live.len();
        if to != size {
            let old = self.read(to, size).to_vec();
            self.live.resize(to, 0);
            self.changed(Kind::Resize { to }, size, old);
        }
    }

    fn changed(&mut self, kind: Kind, size: usize, old: Vec<u8>) {
        self.number += 1;
        self.pending.push(Change { number: self.number, kind, size, old });
    }

    /// The number of the last change: what a sync that begins now makes safe.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Changes up to this one are on the medium.
    pub(crate) fn sync(&mut self, number: u64) {
        self.pending.retain(|change| change.number > number);
    }

    /// Unsynced changes and the bytes that they wrote.
    pub(crate) fn unsynced(&self) -> (usize, usize) {
        let bytes = self.pending.iter().map(|change| match change.kind {
            Kind::Write { length, .. } => length,
            Kind::Resize { .. } => 0,
        });
        (self.pending.len(), bytes.sum())
    }

    /// Whether several threads have written what is not synced.
    pub(crate) fn overlaps(&self) -> bool {
        let mut by = self.pending.iter().filter_map(|change| match change.kind {
            Kind::Write { by, .. } => Some(by),
            Kind::Resize { .. } => None,
        });
        let first = by.next();
        by.any(|by| Some(by) != first)
    }

    /// The power is gone: of what was not synced, what `fate` keeps.
    pub(crate) fn cut(&mut self, fate: &mut dyn Fate) {
        for redo in self.take_back() {
            self.redo(&redo, fate, false);
        }
    }

    /// A sync of the changes up to this one has failed, and the system says that their pages are clean: what did not reach the
    /// medium is gone, although the page cache above us still shows it.
    pub(crate) fn drop_pages(&mut self, number: u64, fate: &mut dyn Fate) {
        for redo in self.take_back() {
            if redo.number <= number {
                self.redo(&redo, fate, true);
                continue;
            }
            match redo.kind {
                Kind::Write { offset, by, .. } => self.write(offset, &redo.new, by),
                Kind::Resize { to } => self.resize(to),
            }
        }
    }

    /// Back to what is on the medium; what was taken back, in order.
    fn take_back(&mut self) -> Vec<Redo> {
        let mut redo = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let new = match change.kind {
                Kind::Write { offset, length, .. } => self.read(offset, length).to_vec(),
                Kind::Resize { .. } => Vec::new(),
            };
            self.live.resize(change.size, 0);
            let at = change.at().min(change.size);
            self.live[at..at + change.old.len()].copy_from_slice(&change.old);
            redo.push(Redo { number: change.number, kind: change.kind, new });
        }
        redo.reverse();
        redo
    }

    fn redo(&mut self, redo: &Redo, fate: &mut dyn Fate, size_is_safe: bool) {
        match redo.kind {
            Kind::Resize { to } => {
                if size_is_safe || fate.keeps_size() {
                    self.live.resize(to, 0);
                }
            }
            Kind::Write { offset, length, .. } => {
                let end = offset + length;
                if end > self.live.len() && (size_is_safe || fate.keeps_size()) {
                    self.live.resize(end, 0);
                }
                let piece = fate.piece();
                let (mut at, mut kept, mut pieces) = (offset, 0, 0);
                while at < end {
                    let next = ((at / piece + 1) * piece).min(end);
                    pieces += 1;
                    if fate.keeps(next - at) {
                        kept += 1;
                        // What lies behind the end of the file is there, but nobody can see it.
                        let seen = next.min(self.live.len());
                        if at < seen {
                            self.live[at..seen].copy_from_slice(&redo.new[at - offset..seen - offset]);
                        }
                    }
                    at = next;
                }
                fate.written(kept, pieces);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fate::Drawn;
    use super::*;
    use crate::Random;

    /// Keeps the pieces and sizes whose turn is in the list, by number.
    struct Listed {
        pieces: Vec<bool>,
        sizes: Vec<bool>,
    }

    impl Fate for Listed {
        fn piece(&mut self) -> usize {
            SECTOR
        }
        fn keeps(&mut self, _bytes: usize) -> bool {
            self.pieces.remove(0)
        }
        fn keeps_size(&mut self) -> bool {
            self.sizes.remove(0)
        }
        fn written(&mut self, _kept: usize, _pieces: usize) {}
    }

    fn cut(content: &mut Content, pieces: &[bool], sizes: &[bool]) {
        let mut fate = Listed { pieces: pieces.to_vec(), sizes: sizes.to_vec() };
        content.cut(&mut fate);
        assert!(fate.pieces.is_empty() && fate.sizes.is_empty(), "all were asked for");
    }

    fn synced(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes, 1);
        content.sync(content.number());
        content
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_goes_piece_by_piece() {
        let mut content = synced(&[1; 1536]);
        content.write(256, &[2; 1024], 1);
        content.write(512, &[3; 512], 1);
        assert_eq!(content.unsynced(), (2, 1536));
        // 256..512, 512..1024, 1024..1280 of the first; 512..1024 of the second.
        cut(&mut content, &[true, true, false, false], &[]);
        let mut expected = vec![1; 1536];
        expected[256..1024].fill(2);
        assert_eq!(content.read(0, 9999), expected);
        assert_eq!(content.unsynced(), (0, 0));
    }

    #[test]
    fn a_size_may_grow_before_its_data_and_data_may_come_before_the_size() {
        for (piece, size, expected) in [
            (true, true, vec![1, 1, 7, 7]),
            (false, true, vec![1, 1, 0, 0]),
            (true, false, vec![1, 1]),
            (false, false, vec![1, 1]),
        ] {
            let mut content = synced(&[1, 1]);
            content.write(2, &[7, 7], 1);
            cut(&mut content, &[piece], &[size]);
            assert_eq!(content.read(0, 99), expected, "{piece} {size}");
        }
        let mut content = synced(&[1; 4]);
        content.resize(1);
        content.resize(3);
        assert_eq!(content.read(0, 99), [1, 0, 0]);
        cut(&mut content, &[], &[true, false]);
        assert_eq!(content.read(0, 99), [1]);
        let mut content = synced(&[1; 4]);
        content.resize(1);
        cut(&mut content, &[], &[false]);
        assert_eq!(content.read(0, 99), [1; 4]);
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        let mut content = synced(&[1; 8]);
        content.write(0, &[2; 8], 1);
        let begun = content.number();
        content.write(4, &[3; 4], 1);
        content.sync(begun);
        cut(&mut content, &[false], &[]);
        assert_eq!(content.read(0, 8), [2; 8]);
    }

    #[test]
    fn dropped_pages_are_gone_and_what_came_later_is_not() {
        let mut content = synced(&[1; 8]);
        content.write(0, &[2; 12], 1);
        let begun = content.number();
        content.write(6, &[3; 2], 1);
        content.drop_pages(begun, &mut Listed { pieces: vec![false], sizes: Vec::new() });
        assert_eq!(content.read(0, 99), [1, 1, 1, 1, 1, 1, 3, 3, 0, 0, 0, 0]);
        assert_eq!(content.unsynced(), (1, 2));
        cut(&mut content, &[false], &[]);
        assert_eq!(content.read(0, 99), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn whatever_was_done_a_cut_leaves_what_was_there_since_the_last_sync() {
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let mut content = Content::default();
            // As it was after each change since what is safe, with the number of the change.
            let mut since = vec![(0, Vec::new())];
            for step in 1..60 {
                match random.below(8) {
                    0 => content.resize(random.below(6000)),
                    1 => {
                        // It began some changes ago.
                        let begun = random.below(since.len());
                        content.sync(since[begun].0);
                        since.drain(..begun);
                    }
                    _ => {
                        let (offset, length) = (random.below(5000), 1 + random.below(1500));
                        content.write(offset, &vec![step; length], 1);
                    }
                }
                if content.number() > since.last().expect("never empty").0 {
                    since.push((content.number(), content.read(0, usize::MAX).to_vec()));
                }
            }
            let mut drawn = Drawn::new(&mut random);
            content.cut(&mut drawn);
            let left = content.read(0, usize::MAX);
            let sizes = || since.iter().map(|(_, was)| was.len());
            let (least, most) = (sizes().min().unwrap(), sizes().max().unwrap());
            assert!((least..=most).contains(&left.len()), "seed {seed}: {} bytes", left.len());
            for (at, byte) in left.iter().enumerate() {
                let was = since.iter().any(|(_, was)| was.get(at) == Some(byte));
                assert!(was || (*byte == 0 && at >= least), "seed {seed}: byte {at} is {byte}");
            }
        }
    }
}
