//! What processes use: CPU time and memory as the system counts them, system calls as its tracer does.

use crate::{pause, system};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Flag of a process that is a thread of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// One line of `/proc/PID/stat`, as far as we need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    kernel: bool,
    /// User and system time.
    ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The second field is the name in parentheses, which may hold blanks and parentheses.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Stat {
            parent: u32::try_from(field(1)?).ok()?,
            kernel: field(6)? & KERNEL_THREAD != 0,
            ticks: field(11)? + field(12)?,
        })
    }
}

/// CPU times of everything at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    processes: BTreeMap<u32, Stat>,
    /// Ticks of all CPUs in user and system mode, stolen ones included; interrupts left out, which belong to nobody.
    busy: u64,
}

impl Snapshot {
    /// Looks at every process.
    pub(crate) fn take() -> Result<Snapshot, String> {
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // It may have ended since it was listed.
            if let Some(stat) = fs::read_to_string(entry.path().join("stat")).ok().and_then(|text| Stat::parse(&text)) {
                processes.insert(pid, stat);
            }
        }
        let text = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
        Ok(Snapshot { processes, busy: busy(&text) })
    }

    /// The process and all its descendants.
    pub(crate) fn family(&self, pid: u32) -> Vec<u32> {
        let mut family = vec![pid];
        let mut at = 0;
        while let Some(&one) = family.get(at) {
            family.extend(self.processes.iter().filter(|(_, stat)| stat.parent == one).map(|(pid, _)| *pid));
            at += 1;
        }
        family
    }

    /// CPU time of the process and its descendants since `before`, µs.
    pub(crate) fn cpu_us(&self, before: &Snapshot, pid: u32) -> f64 {
        us(self.ticks(before, &self.family(pid)))
    }

    /// CPU time since `before` of what is neither the kernel's nor of one of these families, µs.
    pub(crate) fn foreign_us(&self, before: &Snapshot, known: &[u32]) -> f64 {
        let families: Vec<u32> = known.iter().flat_map(|pid| self.family(*pid)).collect();
        let kernel: Vec<u32> = self.processes.iter().filter(|(_, stat)| stat.kernel).map(|(pid, _)| *pid).collect();
        let ours = self.ticks(before, &families) + self.ticks(before, &kernel);
        us(self.busy.saturating_sub(before.busy).saturating_sub(ours))
    }

    fn ticks(&self, before: &Snapshot, pids: &[u32]) -> u64 {
        let ticks = |snapshot: &Snapshot, pid| snapshot.processes.get(pid).map_or(0, |stat: &Stat| stat.ticks);
        pids.iter().map(|pid| ticks(self, pid).saturating_sub(ticks(before, pid))).sum()
    }
}

fn us(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// user, nice, system and steal of the line of all CPUs.
fn busy(text: &str) -> u64 {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 7].iter().filter_map(|at| fields.get(*at)).sum()
}

/// Resident memory of these processes, MiB.
pub(crate) fn rss_mib(pids: &[u32]) -> f64 {
    let one = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    pids.iter().filter_map(one).sum::<f64>() / 1024.0
}

/// System calls of a slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    /// fsync and fdatasync.
    pub(crate) flushes: u64,
    /// All.
    pub(crate) all: u64,
}

/// Counts the system calls of these processes for a while. `None`: this machine has neither perf with its tracepoints nor strace.
pub(crate) fn calls(pids: &[u32], time: Duration) -> Result<Option<Calls>, String> {
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let events = "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync,raw_syscalls:sys_enter";
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ";", "-e", events, "-p", &list, "--", "sleep", &time.as_secs_f64().to_string()]);
    // perf counts on standard error, and what `sleep` says is of no use.
    if let Ok(output) = perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()
        && let Some(calls) = parse_perf(&String::from_utf8_lossy(&output.stderr))
    {
        return Ok(Some(calls));
    }
    strace(pids, time)
}

fn strace(pids: &[u32], time: Duration) -> Result<Option<Calls>, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = dir.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-q", "-o"]).arg(&path);
    strace.args(pids.iter().flat_map(|pid| ["-p".to_string(), pid.to_string()]));
    let Ok(mut child) = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return Ok(None);
    };
    pause(time);
    let pid = child.id().to_string();
    // strace lets go and writes its table when it is interrupted.
    system::text(Command::new("kill").args(["-INT", &pid]))?;
    child.wait().map_err(|e| e.to_string())?;
    let table = fs::read_to_string(&path).unwrap_or_default();
    Ok(parse_strace(&table))
}

/// perf's lines `COUNT;;EVENT;…`.
fn parse_perf(text: &str) -> Option<Calls> {
    let count = |event: &str| {
        let line = text.lines().find(|line| line.split(';').nth(2) == Some(event))?;
        line.split(';').next()?.parse::<u64>().ok()
    };
    let flushes = count("syscalls:sys_enter_fsync")? + count("syscalls:sys_enter_fdatasync")?;
    Some(Calls { flushes, all: count("raw_syscalls:sys_enter")? })
}

/// strace's table: percent, seconds, µs a call, calls, sometimes errors, name.
fn parse_strace(table: &str) -> Option<Calls> {
    let mut calls = Calls { flushes: 0, all: 0 };
    let mut any = false;
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(count)) = (words.last(), words.get(3).and_then(|word| word.parse::<u64>().ok())) else {
            continue;
        };
        if *name == "total" {
            continue;
        }
        any = true;
        calls.all += count;
        if matches!(*name, "fsync" | "fdatasync") {
            calls.flushes += count;
        }
    }
    any.then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_no_obstacle() {
        let text = "12 (a b) c) S 7 12 12 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 100 0 0";
        assert_eq!(Stat::parse(text), Some(Stat { parent: 7, kernel: false, ticks: 42 }));
        let kernel = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 1 0 0";
        assert_eq!(Stat::parse(kernel).map(|stat| stat.kernel), Some(true));
    }

    #[test]
    fn foreign_is_what_neither_we_nor_the_kernel_used() {
        let stat = |parent, kernel, ticks| Stat { parent, kernel, ticks };
        let snapshot = |broker, child, other, kernel, busy| Snapshot {
            processes: [
                (10, stat(1, false, broker)),
                (11, stat(10, false, child)),
                (20, stat(1, false, other)),
                (2, stat(0, true, kernel)),
            ]
            .into(),
            busy,
        };
        let before = snapshot(100, 0, 0, 50, 1000);
        let after = snapshot(130, 20, 40, 60, 1110);
        assert_eq!(after.cpu_us(&before, 10), us(50));
        assert_eq!(after.foreign_us(&before, &[10]), us(50));
    }

    #[test]
    fn busy_leaves_out_waiting_and_interrupts() {
        assert_eq!(busy("cpu  10 20 30 400 500 6000 7000 80 9 9\ncpu0 1 1\n"), 140);
    }

    #[test]
    fn both_tracers_tables_are_read() {
        let perf = "12;;syscalls:sys_enter_fsync;1;100.00;;\n30;;syscalls:sys_enter_fdatasync;1;100.00;;\n900;;raw_syscalls:sys_enter;1;100.00;;\n";
        assert_eq!(parse_perf(perf), Some(Calls { flushes: 42, all: 900 }));
        assert_eq!(parse_perf("<not supported>;;syscalls:sys_enter_fsync;0;100.00;;\n"), None);
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ------\n 90.00    0.900000         100      9000           fdatasync\n 10.00    0.100000          10       100        10 epoll_wait\n------ ----------- ----------- --------- --------- ------\n100.00    1.000000         109      9100        10 total\n";
        assert_eq!(parse_strace(strace), Some(Calls { flushes: 9000, all: 9100 }));
        assert_eq!(parse_strace(""), None);
    }

    #[test]
    fn our_own_process_is_found() {
        let snapshot = Snapshot::take().unwrap();
        let me = std::process::id();
        assert!(snapshot.family(me).contains(&me));
        assert!(rss_mib(&[me]) > 0.1);
    }
}
