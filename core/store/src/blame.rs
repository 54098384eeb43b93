//! Who is blamed for a crash (`docs/decisions/0010-poison-guard.md`): the one rule that every store applies at a start.

/// A suspect is blamed for a crash that comes sooner than this after its exact mark, ms of broker time.
pub const BLAME_MS: u64 = 10_000;

/// Added to the time of an exact mark: the suspect was given at that time, and nothing happened while all others waited for it.
pub const PASSED: u64 = 1 << 63;

/// What crashes say of a suspect. As a number, as it is stored: crashes it was blamed for, in a row, in the lower 16 bits; above,
/// those in a row with them that came when it had passed. One that has passed has been blamed at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blame(pub u32);

impl Blame {
    /// Crashes in a row that came right after its delivery.
    pub fn crashes(self) -> u32 {
        self.0 & 0xffff
    }

    /// Crashes that came soon after its delivery, but when it had passed: others were out at that time.
    pub fn passed(self) -> u32 {
        self.0 >> 16
    }

    /// After a crash at this broker time, ms. `marked_ms`: the time of its exact mark in the run that ended so, with [`PASSED`] or
    /// not.
    #[must_use]
    pub fn after_crash(self, marked_ms: Option<u64>, crashed_ms: u64) -> Blame {
        let Some(marked_ms) = marked_ms else { return Blame::default() };
        if crashed_ms.saturating_sub(marked_ms & !PASSED) >= BLAME_MS {
            return Blame::default();
        }
        let (crashes, passed) = match marked_ms & PASSED {
            0 => (self.crashes() + 1, self.passed()),
            // Others are likelier: it need not go alone.
            _ => (self.crashes().min(1), self.passed() + 1),
        };
        Blame(crashes.min(0xffff) | passed.min(0xffff) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_counts_by_what_its_mark_says() {
        let twice = Blame(2 | 1 << 16);
        assert_eq!((twice.crashes(), twice.passed()), (2, 1));
        assert_eq!(twice.after_crash(None, 5), Blame(0));
        assert_eq!(twice.after_crash(Some(100), 100 + BLAME_MS), Blame(0));
        assert_eq!(twice.after_crash(Some(100 | PASSED), 100 + BLAME_MS), Blame(0));
        assert_eq!(twice.after_crash(Some(100), 99 + BLAME_MS), Blame(3 | 1 << 16));
        assert_eq!(twice.after_crash(Some(100 | PASSED), 99 + BLAME_MS), Blame(1 | 2 << 16));
        assert_eq!(twice.after_crash(Some(100), 50), Blame(3 | 1 << 16), "a clock that stands is no alibi");
        let all = Blame(u32::MAX);
        assert_eq!((all.after_crash(Some(1), 1), all.after_crash(Some(1 | PASSED), 1)), (all, Blame(1 | 0xffff << 16)));
    }
}
