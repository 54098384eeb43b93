//! Power cuts in the place of kill -9: the harness's runs with the data directory on a layer.

use super::{Cuts, Layer, Moment, Options, Side, Traffic};
use crate::Random;
use crate::harness::{Death, Setup};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// How long a cut waits for the request at which it is to come. Names change seldom.
const PATIENCE: Duration = Duration::from_millis(150);

/// See the module.
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

struct Run {
    layer: Layer,
    random: Random,
    dir: PathBuf,
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
        let layer = Layer::mount(&setup.dir.join("disk"), Options::default())?;
        // The folder's name has the run's seed in it.
        let name = setup.dir.file_name().unwrap_or_default().as_encoded_bytes();
        let random = Random::new(u64::from(crc32c::crc32c(name)));
        setup.data = layer.path().join("data");
        self.run = Some(Run { layer, random, dir: setup.dir.clone() });
        Ok(())
    }

    fn kill(&mut self, broker: &mut Child) -> Result<(), String> {
        let Run { layer, random, .. } = self.run.as_mut().ok_or("no run has begun")?;
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

    /// The medium is memory: what is on it is copied to where the run's other files are.
    fn end_run(&mut self) -> Result<(), String> {
        let Some(Run { layer, dir, .. }) = self.run.take() else { return Ok(()) };
        self.traffic += layer.traffic();
        copy(layer.path(), &dir.join("medium")).map_err(|e| format!("cannot copy what the medium has: {e}"))?;
        drop(layer);
        fs::remove_dir(dir.join("disk")).map_err(|e| format!("cannot remove the place of the mount: {e}"))
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
