//! The checkpoints of a data directory, seen from outside: how many there were, and whether one was being written.
//!
//! Knows of `docs/formats/journal.md` only where a checkpoint's number stands.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

/// How a checkpoint begins.
const MAGIC: &[u8; 8] = b"phCHECKP";
/// Where its number stands.
const NUMBER_AT: usize = 32;

/// What the two files say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoints {
    /// The number of the newest whole one: so many were written.
    pub(super) newest: u64,
    /// The other file was written to after it: the next one is under way.
    pub(super) under_way: bool,
}

impl Checkpoints {
    /// Looks.
    pub(super) fn look(data: &Path) -> Checkpoints {
        let mut both: Vec<(u64, SystemTime)> =
            ["ckpt.A", "ckpt.B"].iter().filter_map(|name| number(&data.join(name))).collect();
        both.sort_unstable();
        match both[..] {
            [] => Checkpoints::default(),
            [(newest, _)] => Checkpoints { newest, under_way: false },
            [(_, older_at), (newest, newest_at), ..] => Checkpoints { newest, under_way: older_at > newest_at },
        }
    }
}

/// A file's number, 0 if it has none yet, and when it was written to.
fn number(path: &Path) -> Option<(u64, SystemTime)> {
    let mut file = File::open(path).ok()?;
    let at = file.metadata().and_then(|of| of.modified()).ok()?;
    let mut head = [0; NUMBER_AT + 8];
    let whole = file.read_exact(&mut head).is_ok() && head.starts_with(MAGIC);
    let number = head[NUMBER_AT..].try_into().expect("eight bytes");
    Some((if whole { u64::from_le_bytes(number) } else { 0 }, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_newest_counts_and_a_younger_older_one_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Checkpoints::look(dir.path()), Checkpoints::default());
        let write = |name: &str, number: u64, second: u64| {
            let mut head = MAGIC.to_vec();
            head.resize(NUMBER_AT, 0);
            head.extend_from_slice(&number.to_le_bytes());
            fs::write(dir.path().join(name), head).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            File::options().append(true).open(dir.path().join(name)).unwrap().set_modified(at).unwrap();
        };
        write("ckpt.A", 7, 100);
        assert_eq!(Checkpoints::look(dir.path()), Checkpoints { newest: 7, under_way: false });
        write("ckpt.B", 8, 200);
        assert_eq!(Checkpoints::look(dir.path()), Checkpoints { newest: 8, under_way: false });
        write("ckpt.A", 7, 300);
        assert_eq!(Checkpoints::look(dir.path()), Checkpoints { newest: 8, under_way: true });
    }
}
