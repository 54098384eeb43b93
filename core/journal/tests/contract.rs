//! The journal over the simulated disk passes the contract of all stores.
#![cfg(feature = "sim")]

use packhorse_journal::Options;
use packhorse_journal::sim::{CrashMode, Sim, SimDisk, SimStore};
use packhorse_model::{Now, ShardId};
use packhorse_store::contract::{FEW, StoreUnderTest};
use packhorse_store::{Remember, Store};

struct Journal {
    sim: Sim,
    handles: Vec<SimStore>,
}

fn open(disk: SimDisk, shards: u16) -> Journal {
    let options = Options { segment_bytes: 64 * 1024, remember: FEW, slice_operations: 2, ..Options::new(shards, 7) };
    let now = Now { mono_us: 0, wall_ms: 1_000_000 };
    let (sim, _) = Sim::open(disk, &options, now).unwrap_or_else(|(error, _)| panic!("{error}"));
    let handles = (0..shards).map(|shard| sim.handle(ShardId(shard))).collect();
    Journal { sim, handles }
}

impl StoreUnderTest for Journal {
    fn handle(&mut self, shard: ShardId) -> &mut dyn Store {
        &mut self.handles[usize::from(shard.0)]
    }

    fn settle(&mut self) {
        self.sim.settle();
    }

    fn restart(self, shards: u16) -> Journal {
        open(self.sim.stop(), shards)
    }

    fn crash(self, shards: u16, seed: u64) -> Journal {
        // Some way into what is under way.
        for _ in 0..seed % 5 {
            self.sim.step(&mut |_, _, _| {});
        }
        let mode = [CrashMode::Lose, CrashMode::Torn(512), CrashMode::Torn(4096), CrashMode::Kill][seed as usize % 4];
        open(self.sim.disk().crash(mode, seed), shards)
    }

    fn pass(&mut self, ms: u64) -> bool {
        self.sim.advance(self.sim.now().mono_us + ms * 1000);
        true
    }

    fn remember(&self) -> Remember {
        FEW
    }
}

packhorse_store::contract_tests!(|shards| open(SimDisk::new(u64::from(shards)), shards));
