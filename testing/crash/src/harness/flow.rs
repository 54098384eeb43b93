//! Figures that the client processes of a run show while they work: a small file with a place for each.
//!
//! They say when enough is in flight for a kill and how far an order is carried out. What counts in the end is taken from
//! the histories.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a place: four numbers, little-endian.
const PLACE_BYTES: usize = 32;

/// How far a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It works.
    #[default]
    Working,
    /// It holds no link, as it was told.
    Held,
    /// It accepts all that comes, as it was told.
    Finishing,
}

impl Stage {
    fn of(number: u64) -> Stage {
        match number {
            1 => Stage::Held,
            2 => Stage::Finishing,
            _ => Stage::Working,
        }
    }
}

/// What a client shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Confirmed sends, or acknowledgements.
    pub(super) done: u64,
    /// Sends without an answer, or deliveries without an end.
    pub(super) open: u64,
    /// How far it is.
    pub(super) stage: Stage,
}

/// A client's own place.
#[derive(Debug)]
pub(super) struct Place {
    file: File,
    offset: u64,
    shown: Option<Figures>,
}

impl Place {
    /// The place of this number in an existing file.
    pub(super) fn open(path: &Path, number: u32) -> io::Result<Place> {
        let file = File::options().write(true).open(path)?;
        Ok(Place { file, offset: u64::from(number) * PLACE_BYTES as u64, shown: None })
    }

    /// Shows these from now on.
    pub(super) fn show(&mut self, figures: Figures) -> io::Result<()> {
        if self.shown == Some(figures) {
            return Ok(());
        }
        self.shown = Some(figures);
        let numbers = [figures.done, figures.open, figures.stage as u64, 0];
        let mut bytes = [0; PLACE_BYTES];
        for (at, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        self.file.write_all_at(&bytes, self.offset)
    }
}

/// All places.
#[derive(Debug)]
pub(super) struct Board {
    file: File,
    places: usize,
}

impl Board {
    /// Makes the file.
    pub(super) fn make(path: &Path, places: usize) -> io::Result<Board> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        file.set_len((places * PLACE_BYTES) as u64)?;
        Ok(Board { file, places })
    }

    /// The same file, for somebody else who looks.
    pub(super) fn open(path: &Path, places: usize) -> io::Result<Board> {
        Ok(Board { file: File::open(path)?, places })
    }

    /// What all clients show now, by number.
    pub(super) fn read(&self) -> io::Result<Vec<Figures>> {
        let mut bytes = vec![0; self.places * PLACE_BYTES];
        self.file.read_exact_at(&mut bytes, 0)?;
        let number = |at: &[u8]| u64::from_le_bytes(at[..8].try_into().expect("eight bytes"));
        let places = bytes.chunks_exact(PLACE_BYTES);
        Ok(places
            .map(|at| Figures { done: number(at), open: number(&at[8..]), stage: Stage::of(number(&at[16..])) })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flow");
        let board = Board::make(&path, 3).unwrap();
        let figures = Figures { done: 5, open: 7, stage: Stage::Held };
        Place::open(&path, 1).unwrap().show(figures).unwrap();
        assert_eq!(board.read().unwrap(), [Figures::default(), figures, Figures::default()]);
    }
}
