//! What the machine can do at best, right before and after a measurement: the figures beside which others are read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of the probe's file: written once, so that a flush needs no new blocks.
const FILE_BYTES: u64 = 4 << 20;

/// Writing and flushing with so many in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Flushes {
    /// Median time of a write with its fdatasync, µs.
    pub(crate) p50_us: f64,
    /// Its 99th percentile.
    pub(crate) p99_us: f64,
    /// Of all in flight together.
    pub(crate) per_second: f64,
}

/// The machine at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Probe {
    /// 4 KiB, one in flight.
    pub(crate) small: Flushes,
    /// 4 KiB, four in flight.
    pub(crate) small_4: Flushes,
    /// 64 KiB, one in flight.
    pub(crate) large: Flushes,
    /// 64 KiB, four in flight.
    pub(crate) large_4: Flushes,
    /// Rounds of an arithmetic loop, millions a second.
    pub(crate) cpu: f64,
}

impl Probe {
    /// Takes about `seconds` for the disk and a third of that for the CPU.
    pub(crate) fn take(dir: &Path, seconds: f64) -> io::Result<Probe> {
        let each = Duration::from_secs_f64(seconds / 4.0);
        Ok(Probe {
            small: flushes(dir, 4 << 10, 1, each)?,
            small_4: flushes(dir, 4 << 10, 4, each)?,
            large: flushes(dir, 64 << 10, 1, each)?,
            large_4: flushes(dir, 64 << 10, 4, each)?,
            cpu: cpu(Duration::from_secs_f64(seconds / 3.0)),
        })
    }

    /// How far the disk's medians of two probes are apart: 0.4 = the slower one took 40 % longer.
    pub(crate) fn apart(&self, other: &Probe) -> f64 {
        let (a, b) = (self.small.p50_us, other.small.p50_us);
        if a.min(b) > 0.0 { a.max(b) / a.min(b) - 1.0 } else { 0.0 }
    }
}

/// Writes blocks over a file that has them and flushes each, `in_flight` at a time.
pub(crate) fn flushes(dir: &Path, block_bytes: usize, in_flight: u64, time: Duration) -> io::Result<Flushes> {
    let path = dir.join("probe");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let block = vec![0x5a; block_bytes];
    for at in 0..FILE_BYTES / block_bytes as u64 {
        file.write_all_at(&block, at * block_bytes as u64)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut times = std::thread::scope(|scope| {
        let (file, block) = (&file, &block);
        let threads: Vec<_> =
            (0..in_flight).map(|number| scope.spawn(move || one(file, block, number, in_flight, time))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, io::Error>(all)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    let at = |q: f64| times.get(((times.len() - 1) as f64 * q) as usize).map_or(0.0, |ns| *ns as f64 / 1000.0);
    Ok(Flushes { p50_us: at(0.5), p99_us: at(0.99), per_second: times.len() as f64 / seconds })
}

fn one(file: &File, block: &[u8], number: u64, in_flight: u64, time: Duration) -> io::Result<Vec<u64>> {
    let blocks = FILE_BYTES / block.len() as u64;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || times.is_empty() {
        let begun = Instant::now();
        let place = (times.len() as u64 * in_flight + number) % blocks;
        file.write_all_at(block, place * block.len() as u64)?;
        rustix::fs::fdatasync(file)?;
        times.push(begun.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

fn cpu(time: Duration) -> f64 {
    let start = Instant::now();
    let mut rounds = 0u64;
    let mut word = 1u64;
    while start.elapsed() < time {
        for _ in 0..100_000 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ word >> 7;
        }
        rounds += 100_000;
        std::hint::black_box(word);
    }
    rounds as f64 / start.elapsed().as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_measures_each_kind_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let probe = Probe::take(dir.path(), 0.04).unwrap();
        for kind in [probe.small, probe.small_4, probe.large, probe.large_4] {
            assert!(kind.p50_us > 0.0 && kind.p99_us >= kind.p50_us && kind.per_second > 0.0, "{probe:?}");
        }
        assert!(probe.cpu > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn probes_are_compared_by_the_slower_one() {
        let probe = |p50_us| Probe { small: Flushes { p50_us, ..Flushes::default() }, ..Probe::default() };
        assert!((probe(100.0).apart(&probe(150.0)) - 0.5).abs() < 1e-9);
        assert!((probe(150.0).apart(&probe(100.0)) - 0.5).abs() < 1e-9);
    }
}
