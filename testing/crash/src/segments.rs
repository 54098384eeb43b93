//! The log of a data directory as whoever damages it sees it: blocks and bodies in its segments (`docs/formats/journal.md`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Blocks begin at multiples of this.
const UNIT: usize = 4096;

/// A file and a byte in it.
pub type Place = (PathBuf, usize);

/// See the module.
#[derive(Debug)]
pub struct Segments(Vec<(PathBuf, Vec<u8>)>);

impl Segments {
    /// Reads the segments of a data directory.
    pub fn of(data: &Path) -> Segments {
        let files = std::fs::read_dir(data.join("journal")).expect("a folder of every data directory");
        let mut paths: Vec<PathBuf> = files.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|kind| kind == "seg"));
        paths.sort();
        let read = |path: PathBuf| std::fs::read(&path).ok().map(|bytes| (path, bytes));
        Segments(paths.into_iter().filter_map(read).collect())
    }

    /// Where blocks begin, in the order of their numbers.
    pub fn blocks(&self) -> Vec<Place> {
        let mut blocks = Vec::new();
        for (path, bytes) in &self.0 {
            for at in (UNIT..bytes.len()).step_by(UNIT).filter(|at| bytes[*at..].starts_with(b"phBK")) {
                let number = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("eight bytes"));
                blocks.push((number, (path.clone(), at)));
            }
        }
        blocks.sort();
        blocks.into_iter().map(|(_, place)| place).collect()
    }

    /// Where the body of a message of producer 1 begins.
    pub fn body(&self, number: u64) -> Option<Place> {
        let mut name = b"pair\0\0\0\x01".to_vec();
        name.extend_from_slice(&number.to_be_bytes());
        self.0.iter().find_map(|(path, bytes)| {
            // Behind its CRC.
            let at = bytes.windows(name.len()).position(|window| window == name)?;
            Some((path.clone(), at - 4))
        })
    }

    /// Flips a bit of a file.
    pub fn flip(file: &Path, at: usize) {
        let file = File::options().read(true).write(true).open(file).expect("a file of the log");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).expect("it has that byte");
        byte[0] ^= 4;
        file.write_all_at(&byte, at as u64).expect("it can be written");
    }

    /// Zeroes the rest of a file.
    pub fn tear(file: &Path, from: usize) {
        let file = File::options().write(true).open(file).expect("a file of the log");
        let length = file.metadata().expect("it is there").len() as usize;
        file.write_all_at(&vec![0; length - from], from as u64).expect("it can be written");
    }
}
