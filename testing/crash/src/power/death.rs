//! Power cuts and failed flushes in the place of kill -9: the harness's runs with the data directory on a layer.

use super::{Cuts, Fault, Faulty, Layer, Moment, Options, Pages, Side, Traffic};
use crate::Random;
use crate::harness::{Death, Setup, pause};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a cut waits for the request at which it is to come. Names change seldom.
const PATIENCE: Duration = Duration::from_millis(150);
/// How long a fault may wait for its request: the slowest clients send a few messages a second.
const STRIKES: Duration = Duration::from_secs(30);
/// A broker whose flush fails is gone after this.
const GONE: Duration = Duration::from_secs(1);
/// And is not waited for any longer.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The exit code of a broker whose storage failed.
const STORAGE_FAILED: i32 = 70;

/// A layer, and what is drawn for it.
struct Run {
    layer: Layer,
    random: Random,
    dir: PathBuf,
}

impl Run {
    /// Mounts beside the run's folder: if this process is killed, a dead mount must not stand in the way of the next run.
    fn begin(setup: &mut Setup) -> Result<Run, String> {
        static MOUNTS: AtomicU32 = AtomicU32::new(0);
        let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("packhorse-power-{}-{number}", std::process::id());
        let layer = Layer::mount(&std::env::temp_dir().join(name), Options::default())?;
        // The folder's name has the run's seed in it.
        let name = setup.dir.file_name().unwrap_or_default().as_encoded_bytes();
        let random = Random::new(u64::from(crc32c::crc32c(name)));
        setup.data = layer.path().join("data");
        Ok(Run { layer, random, dir: setup.dir.clone() })
    }

    /// The medium is memory: if anybody will look at it, it is copied to where the run's other files are.
    fn end(self, clean: bool) -> Result<Traffic, String> {
        let Run { layer, dir, .. } = self;
        if !clean {
            copy(layer.path(), &dir.join("medium")).map_err(|e| format!("cannot copy what the medium has: {e}"))?;
        }
        let (traffic, at) = (layer.traffic(), layer.path().to_owned());
        drop(layer);
        fs::remove_dir(&at).map_err(|e| format!("cannot remove {}: {e}", at.display()))?;
        Ok(traffic)
    }
}

fn none() -> String {
    "no run has begun".into()
}

/// Power cuts.
#[derive(Default)]
pub struct PowerCut {
    run: Option<Run>,
    /// What the cuts did.
    pub cuts: Cuts,
    /// Of them, at a request that was chosen.
    pub chosen: u64,
    /// What went through the layers.
    pub traffic: Traffic,
}

impl PowerCut {
    /// Why its runs show nothing, if they do not.
    pub fn blind(&self) -> Option<String> {
        (self.cuts.lossy == 0).then(|| format!("blind: no cut lost anything: {self}"))
    }
}

impl fmt::Display for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { writes, bytes, syncs } = self.traffic;
        write!(
            f,
            "{}; {} at a request that was chosen; {writes} writes of {bytes} bytes and {syncs} syncs in all",
            self.cuts, self.chosen
        )
    }
}

impl Death for PowerCut {
    fn word(&self) -> &'static str {
        "power cut"
    }

    fn begin_run(&mut self, setup: &mut Setup) -> Result<(), String> {
        self.run = Some(Run::begin(setup)?);
        Ok(())
    }

    fn kill(&mut self, broker: &mut Child) -> Result<(), String> {
        let Run { layer, random, .. } = self.run.as_mut().ok_or_else(none)?;
        let moment = *random.pick(&[Moment::Write, Moment::Sync, Moment::Name, Moment::Name, Moment::Overlap]);
        let (side, more) = match moment {
            Moment::Overlap => (Side::After, 0),
            _ => (*random.pick(&[Side::Before, Side::After]), random.below(4) as u32),
        };
        // Before a sync, there is always something to lose.
        let came =
            layer.freeze_at(moment, side, more, PATIENCE) || layer.freeze_at(Moment::Sync, Side::Before, 0, PATIENCE);
        layer.freeze();
        broker.kill().map_err(|e| format!("cannot kill the broker: {e}"))?;
        // Its threads that wait for an answer can end when the layer gives up on them.
        self.cuts += layer.cut(random);
        self.chosen += u64::from(came);
        broker.wait().map(|_| ()).map_err(|e| format!("cannot wait for the broker: {e}"))
    }

    fn end_run(&mut self, clean: bool) -> Result<(), String> {
        let Some(run) = self.run.take() else { return Ok(()) };
        self.traffic += run.end(clean)?;
        Ok(())
    }
}

/// Requests that fail under load: the broker must end by itself, at once. The next one starts on what the page cache shows, or on
/// what the medium has.
#[derive(Default)]
pub struct FailedFlush {
    run: Option<Run>,
    /// Faults that struck.
    pub faults: u64,
    /// Followed by a power cut.
    pub cuts: Cuts,
    /// The longest time from a fault to the broker's end.
    pub slowest: Duration,
}

impl fmt::Display for FailedFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedFlush { faults, cuts, slowest, .. } = self;
        write!(f, "{faults} requests failed, the broker was gone after {} ms at most; then {cuts}", slowest.as_millis())
    }
}

/// Fails one of the requests that a broker under load makes.
fn draw(random: &mut Random) -> Fault {
    let (op, path) = *random.pick(&[
        (Faulty::Sync, "journal/"),
        (Faulty::Sync, "journal/"),
        (Faulty::Sync, "journal/"),
        (Faulty::Write, "journal/"),
        (Faulty::Sync, "ckpt."),
        (Faulty::Write, "ckpt."),
        (Faulty::SyncFolder, "journal"),
        (Faulty::Name, "pool"),
    ]);
    // Once, and the next would go well, as systems do; or until it is mended.
    let times = match op {
        // The first part of a long write may have gone well: the system tells how much, and the rest is written anew.
        Faulty::Write => u64::MAX,
        _ => *random.pick(&[1, u64::MAX]),
    };
    let pages = *random.pick(&[Pages::Dirty, Pages::Dropped, Pages::Dropped]);
    Fault { op, path: path.into(), after: random.below(4) as u64, times, pages }
}

impl Death for FailedFlush {
    fn word(&self) -> &'static str {
        "flush failure"
    }

    fn begin_run(&mut self, setup: &mut Setup) -> Result<(), String> {
        self.run = Some(Run::begin(setup)?);
        Ok(())
    }

    fn kill(&mut self, broker: &mut Child) -> Result<(), String> {
        let Run { layer, random, .. } = self.run.as_mut().ok_or_else(none)?;
        let mut fault = draw(random);
        layer.fail(fault.clone());
        let mut since = layer.until_failed(PATIENCE * 4);
        if since.is_none() {
            // Large files, as segments of the default size are, are seldom begun.
            fault = Fault { op: Faulty::Sync, path: String::new(), after: 0, ..fault };
            layer.fail(fault.clone());
            since = layer.until_failed(STRIKES);
        }
        let since = since.ok_or("nothing was flushed although clients work")?;
        let status = wait(broker).map_err(|why| format!("{fault:?}: {why}"))?;
        let took = since.elapsed();
        layer.heal();
        self.faults += 1;
        self.slowest = self.slowest.max(took);
        if random.below(2) == 0 {
            self.cuts += layer.cut(random);
        }
        match status.code() {
            Some(STORAGE_FAILED) if took <= GONE => Ok(()),
            Some(STORAGE_FAILED) => Err(format!("{fault:?}: the broker went on for {took:?}")),
            _ => Err(format!("{fault:?}: the broker ended with {status}, not {STORAGE_FAILED}")),
        }
    }

    fn explains(&self, line: &str) -> bool {
        line.contains("exit_code=70")
    }

    fn end_run(&mut self, clean: bool) -> Result<(), String> {
        self.run.take().map_or(Ok(()), |run| run.end(clean).map(drop))
    }
}

/// Waits for an end that nobody but the process itself brings about.
fn wait(broker: &mut Child) -> Result<ExitStatus, String> {
    let until = Instant::now() + GIVEN_UP;
    loop {
        match broker.try_wait().map_err(|e| format!("cannot wait for the broker: {e}"))? {
            Some(status) => return Ok(status),
            None if Instant::now() > until => {
                return Err(format!("the broker goes on for {GIVEN_UP:?}"));
            }
            None => pause(Duration::from_millis(1)),
        }
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
