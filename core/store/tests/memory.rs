//! The memory store passes the contract, with batches durable at once and with batches durable when settled.

use packhorse_model::ShardId;
use packhorse_store::contract::{FEW, StoreUnderTest};
use packhorse_store::{Memory, MemoryStore, Remember, Store};

/// A memory store and its handles.
struct UnderTest {
    memory: Memory,
    now_ms: u64,
    handles: Vec<MemoryStore>,
}

impl UnderTest {
    fn over(memory: Memory, shards: u16) -> UnderTest {
        let now_ms = memory.handle(ShardId(0)).started_at_ms();
        let handles = (0..shards).map(|shard| memory.handle(ShardId(shard))).collect();
        UnderTest { memory, now_ms, handles }
    }
}

impl StoreUnderTest for UnderTest {
    fn handle(&mut self, shard: ShardId) -> &mut dyn Store {
        &mut self.handles[usize::from(shard.0)]
    }

    fn settle(&mut self) {
        self.memory.flush_all();
    }

    fn restart(self, shards: u16) -> UnderTest {
        UnderTest::over(self.memory.restart(shards), shards)
    }

    fn crash(self, shards: u16, seed: u64) -> UnderTest {
        UnderTest::over(self.memory.crash(shards, seed), shards)
    }

    fn pass(&mut self, ms: u64) -> bool {
        self.now_ms += ms;
        self.memory.set_broker_time_ms(self.now_ms);
        true
    }

    fn remember(&self) -> Remember {
        FEW
    }
}

mod durable_when_settled {
    use super::*;
    packhorse_store::contract_tests!(|shards| UnderTest::over(Memory::remembering(shards, false, FEW), shards));
}

mod durable_at_once {
    use super::*;
    packhorse_store::contract_tests!(|shards| UnderTest::over(Memory::remembering(shards, true, FEW), shards));
}

/// With the bounds of a store of which nobody wants others.
mod with_the_usual_memory {
    use super::*;

    struct Usual(UnderTest);

    impl StoreUnderTest for Usual {
        fn handle(&mut self, shard: ShardId) -> &mut dyn Store {
            self.0.handle(shard)
        }

        fn settle(&mut self) {
            self.0.settle();
        }

        fn restart(self, shards: u16) -> Usual {
            Usual(self.0.restart(shards))
        }

        fn crash(self, shards: u16, seed: u64) -> Usual {
            Usual(self.0.crash(shards, seed))
        }

        fn pass(&mut self, ms: u64) -> bool {
            self.0.pass(ms)
        }
    }

    packhorse_store::contract_tests!(|shards| Usual(UnderTest::over(Memory::new(shards, false), shards)));
}
