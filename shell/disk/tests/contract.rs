//! The store on real files passes the contract of all stores.

use packhorse_disk::{DiskStore, OpenOptions, ShardStore};
use packhorse_model::ShardId;
use packhorse_store::contract::{FEW, StoreUnderTest};
use packhorse_store::{Remember, Store};
use std::sync::Arc;
use tempfile::TempDir;

struct OnDisk {
    dir: TempDir,
    store: DiskStore,
    shards: Vec<ShardStore>,
}

fn open(dir: TempDir, shards: u16) -> OnDisk {
    let options = OpenOptions { segment_bytes: 64 * 1024, remember: FEW, ..OpenOptions::new(dir.path(), shards, 11) };
    let (store, shards, _) = DiskStore::open(&options, Arc::new(|_| {})).unwrap_or_else(|error| panic!("{error}"));
    OnDisk { dir, store, shards }
}

impl StoreUnderTest for OnDisk {
    fn handle(&mut self, shard: ShardId) -> &mut dyn Store {
        &mut self.shards[usize::from(shard.0)]
    }

    fn settle(&mut self) {
        self.store.settle().expect("the disk works");
    }

    fn restart(self, shards: u16) -> OnDisk {
        self.store.shutdown().expect("the disk works");
        drop(self.shards);
        open(self.dir, shards)
    }

    fn crash(self, shards: u16, _seed: u64) -> OnDisk {
        // As if killed: whatever has not begun to be written is lost.
        drop(self.store);
        drop(self.shards);
        open(self.dir, shards)
    }

    fn remember(&self) -> Remember {
        FEW
    }
}

packhorse_store::contract_tests!(|shards| open(tempfile::tempdir().expect("a temporary directory"), shards));
