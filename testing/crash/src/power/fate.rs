//! What a power cut leaves of what was not synced: drawn from a seed, and counted.
//!
//! Each cut has a temper: everything is lost, everything is kept, or writes are kept and lost in pieces, in the ways disks do it.

use super::content::{Fate, SECTOR};
use crate::random::Random;
use std::fmt;
use std::ops::AddAssign;

/// What cuts did; adds up over the cuts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Power cuts.
    pub cuts: u64,
    /// Of these, how many lost something.
    pub lossy: u64,
    /// Writes that were not synced.
    pub writes: u64,
    /// Of these, kept in part.
    pub torn: u64,
    /// Files with unsynced writes of several threads.
    pub overlaps: u64,
    /// Sectors of 512 bytes in these writes that were kept.
    pub sectors_kept: u64,
    /// Sectors that were lost.
    pub sectors_lost: u64,
    /// Changes of a size that were undone.
    pub sizes_undone: u64,
    /// Creations, renames and removals that were not synced and happened.
    pub names_kept: u64,
    /// Those that had not happened.
    pub names_undone: u64,
}

impl AddAssign for Cuts {
    fn add_assign(&mut self, other: Cuts) {
        self.cuts += other.cuts;
        self.lossy += other.lossy;
        self.writes += other.writes;
        self.torn += other.torn;
        self.overlaps += other.overlaps;
        self.sectors_kept += other.sectors_kept;
        self.sectors_lost += other.sectors_lost;
        self.sizes_undone += other.sizes_undone;
        self.names_kept += other.names_kept;
        self.names_undone += other.names_undone;
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cuts {
            cuts,
            lossy,
            writes,
            torn,
            overlaps,
            sectors_kept,
            sectors_lost,
            sizes_undone,
            names_kept,
            names_undone,
        } = self;
        write!(
            f,
            "{cuts} cuts, {lossy} of them lost something: of {writes} unsynced writes {torn} torn, {overlaps} files with \
             writes of several threads, of {} sectors {sectors_lost} \
             lost, of {} changes of names {names_undone} undone, {sizes_undone} sizes back",
            sectors_kept + sectors_lost,
            names_kept + names_undone
        )
    }
}

/// How a cut treats pieces of writes.
#[derive(Clone, Copy, Debug)]
enum Temper {
    Lose,
    Keep,
    /// Each piece by itself, this many of 16.
    Pieces(usize),
    /// A write from its begin to some place.
    Begin,
    /// A write from some place to its end.
    End,
    /// Whole writes.
    Whole,
}

/// See the module.
pub(crate) struct Drawn<'a> {
    random: &'a mut Random,
    temper: Temper,
    piece: usize,
    /// For writes that are kept up to a place or from one: pieces until then, drawn with the write.
    turn: usize,
    at: usize,
    whole: bool,
    pub(crate) did: Cuts,
}

impl Drawn<'_> {
    pub(crate) fn new(random: &mut Random) -> Drawn<'_> {
        let temper = match random.below(16) {
            0 | 1 => Temper::Lose,
            2 => Temper::Keep,
            3..=5 => Temper::Begin,
            6..=8 => Temper::End,
            9 | 10 => Temper::Whole,
            11 => Temper::Pieces(1),
            12 => Temper::Pieces(15),
            _ => Temper::Pieces(8),
        };
        Drawn::with(random, temper)
    }

    /// Nothing is kept.
    pub(crate) fn nothing(random: &mut Random) -> Drawn<'_> {
        Drawn::with(random, Temper::Lose)
    }

    /// Some pages reach the medium, some do not, as when a sync fails.
    pub(crate) fn some(random: &mut Random) -> Drawn<'_> {
        Drawn::with(random, Temper::Pieces(4))
    }

    fn with(random: &mut Random, temper: Temper) -> Drawn<'_> {
        let piece = if random.below(2) == 0 { SECTOR } else { 8 * SECTOR };
        let did = Cuts { cuts: 1, ..Cuts::default() };
        Drawn { random, temper, piece, turn: 0, at: 0, whole: false, did }
    }

    fn coin(&mut self) -> bool {
        self.random.below(2) == 0
    }

    /// How many of a folder's `n` changes were made.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        match self.temper {
            Temper::Lose => 0,
            Temper::Keep => n,
            _ => self.random.below(n + 1),
        }
    }

    /// The names are settled: this many of their changes kept, this many undone. The end of the cut.
    pub(crate) fn end(mut self, (kept, undone): (usize, usize)) -> Cuts {
        self.did.names_kept += kept as u64;
        self.did.names_undone += undone as u64;
        let Cuts { sectors_lost, names_undone, sizes_undone, .. } = self.did;
        self.did.lossy = u64::from(sectors_lost + names_undone + sizes_undone > 0);
        self.did
    }
}

impl Fate for Drawn<'_> {
    fn piece(&mut self) -> usize {
        // Short ones often, so that writes of one page are torn as well as those of hundreds.
        let reach = if self.coin() { 16 } else { 2048 };
        self.turn = 0;
        self.at = self.random.below(reach);
        self.whole = self.coin();
        self.piece
    }

    fn keeps(&mut self, bytes: usize) -> bool {
        self.turn += 1;
        let keeps = match self.temper {
            Temper::Lose => false,
            Temper::Keep => true,
            Temper::Pieces(of_16) => self.random.below(16) < of_16,
            Temper::Begin => self.turn <= self.at,
            Temper::End => self.turn > self.at,
            Temper::Whole => self.whole,
        };
        let sectors = bytes.div_ceil(SECTOR) as u64;
        *(if keeps { &mut self.did.sectors_kept } else { &mut self.did.sectors_lost }) += sectors;
        keeps
    }

    fn keeps_size(&mut self) -> bool {
        let keeps = match self.temper {
            Temper::Lose => false,
            Temper::Keep => true,
            _ => self.coin(),
        };
        self.did.sizes_undone += u64::from(!keeps);
        keeps
    }

    fn written(&mut self, kept: usize, pieces: usize) {
        self.did.writes += 1;
        self.did.torn += u64::from(kept > 0 && kept < pieces);
    }
}
