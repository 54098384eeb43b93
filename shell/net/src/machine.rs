//! The two sides of a loop: the shard that it drives and the process that it runs in.

use packhorse_broker::{Effect, Input, Level, Reply};
use packhorse_model::{ConnectionId, Now, ShardId};
use std::io::IoSlice;

/// What a loop drives; a shard of the broker, or a test's stand-in.
pub trait Machine {
    /// Takes one input to its end; effects are appended.
    fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Effect>);

    /// Ends a turn: asks the store, dispatches, hands over the batch; effects are appended.
    fn end_turn(&mut self, now: Now, out: &mut Vec<Effect>);

    /// When a turn is due without any input, monotonic µs. A time in the past means at once.
    fn next_deadline(&self) -> Option<u64>;

    /// Lends the first bytes to write of a connection, in order, as slices; returns how many slices. 0 = nothing to write.
    fn output<'a>(&'a self, connection: ConnectionId, slices: &mut [IoSlice<'a>]) -> usize;

    /// So many of these bytes are written.
    fn written(&mut self, connection: ConnectionId, bytes: usize);
}

/// The process around the loops. Called from the threads of shards: must not wait.
pub trait Host: Send + Sync + 'static {
    /// Both clocks, read once a turn.
    fn now(&self) -> Now;

    /// The answer to a command.
    fn reply(&self, id: u64, reply: Reply);

    /// A line for the log.
    fn log(&self, shard: ShardId, level: Level, connection: Option<ConnectionId>, text: &str);

    /// The shard has stopped in order.
    fn stopped(&self, shard: ShardId);

    /// The store has failed; the process must end.
    fn store_failed(&self, what: &str);
}

impl<S: packhorse_store::Store> Machine for packhorse_broker::Shard<S> {
    fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Effect>) {
        packhorse_broker::Shard::handle(self, input, now, out);
    }

    fn end_turn(&mut self, now: Now, out: &mut Vec<Effect>) {
        packhorse_broker::Shard::end_turn(self, now, out);
    }

    fn next_deadline(&self) -> Option<u64> {
        packhorse_broker::Shard::next_deadline(self)
    }

    fn output<'a>(&'a self, connection: ConnectionId, slices: &mut [IoSlice<'a>]) -> usize {
        let chunks = packhorse_broker::Shard::output(self, connection);
        chunks.zip(slices).map(|(chunk, slice)| *slice = IoSlice::new(chunk)).count()
    }

    fn written(&mut self, connection: ConnectionId, bytes: usize) {
        packhorse_broker::Shard::written(self, connection, bytes);
    }
}
