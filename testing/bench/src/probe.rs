//! What the machine can do at best, and what a process has used: the figures beside which others are read.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Median time of writing 4 KiB to a file of written blocks and flushing it, µs, over about a second.
pub(crate) fn raw_flush_us(dir: &Path) -> io::Result<u64> {
    let path = dir.join("probe");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    const BLOCKS: u64 = 1024;
    let block = [0x5a; 4096];
    for at in 0..BLOCKS {
        file.write_all_at(&block, at * 4096)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let one = Instant::now();
        file.write_all_at(&block, (times.len() as u64 % BLOCKS) * 4096)?;
        rustix::fs::fdatasync(&file)?;
        times.push(one.elapsed().as_micros() as u64);
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// CPU time, user and system, that a process has used, in µs.
pub(crate) fn cpu_us(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in parentheses, which may hold spaces.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Ok((ticks(11) + ticks(12)) * 1_000_000 / rustix::param::clock_ticks_per_second())
}

/// Resident memory of a process, KiB.
pub(crate) fn rss_kib(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0))
}
