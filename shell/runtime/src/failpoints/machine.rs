//! A shard that passes failpoints between its turns: frames of a turn go out only after `end_turn` has returned.

use super::{Seen, WatchedStore, pass};
use packhorse_broker::{Effect, Input, Shard};
use packhorse_model::{ConnectionId, Now};
use packhorse_net::Machine;
use packhorse_store::Store;
use std::io::IoSlice;

/// See the module.
pub(crate) struct WatchedMachine<S: Store> {
    shard: Shard<WatchedStore<S>>,
    seen: Seen,
    /// Messages that consumers had at the end of the last turn.
    acquired: u64,
    /// That turn gave some to them.
    dispatched: bool,
}

impl<S: Store> WatchedMachine<S> {
    /// Around `shard`, whose store has the other half of `seen`.
    pub(crate) fn new(shard: Shard<WatchedStore<S>>, seen: Seen) -> WatchedMachine<S> {
        WatchedMachine { shard, seen, acquired: 0, dispatched: false }
    }
}

impl<S: Store> Machine for WatchedMachine<S> {
    fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.dispatched) {
            pass("entry.dispatch.before_return");
        }
        self.shard.handle(input, now, out);
    }

    fn end_turn(&mut self, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.dispatched) {
            pass("entry.dispatch.before_return");
        }
        self.acquired = self.shard.totals().acquired;
        self.shard.end_turn(now, out);
        let acquired = self.shard.totals().acquired;
        self.dispatched = acquired > self.acquired;
        if self.dispatched {
            pass("entry.dispatch.after_pick");
        }
        if self.seen.returned.take() {
            pass("entry.return.after_memory");
        }
        if self.seen.stored.take() {
            pass("entry.enqueue.after_visible_before_confirm");
        }
        if self.seen.committed.take() {
            pass("tx.commit.after_sync_before_reply");
        }
        if self.seen.decided.take() {
            pass("xa.decide.after_apply_before_reply");
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.shard.next_deadline()
    }

    fn output<'a>(&'a self, connection: ConnectionId, slices: &mut [IoSlice<'a>]) -> usize {
        Machine::output(&self.shard, connection, slices)
    }

    fn written(&mut self, connection: ConnectionId, bytes: usize) {
        self.shard.written(connection, bytes);
    }
}
