//! A whole node in one place: all its shards, and the mail between them. The order of things in it is a function of its
//! inputs alone, so simulations and tests run what production runs; there each shard has a thread and the shell moves the mail.

use crate::io::{Effect, Input};
use crate::{Config, Shard};
use packhorse_model::{Now, Seed, ShardId};
use packhorse_store::Store;
use std::sync::Arc;

/// See the module.
pub struct Node<S> {
    shards: Vec<Shard<S>>,
    /// By shard: it has had mail since it ended its turn. A shard with a thread of its own would begin one for it.
    mailed: Vec<bool>,
    scratch: Vec<Effect>,
}

impl<S: Store> Node<S> {
    /// A node with one shard per handle, recovered.
    pub fn new(config: Config, seed: Seed, stores: impl IntoIterator<Item = S>, now: Now) -> Node<S> {
        let config = Arc::new(config);
        let shards: Vec<_> = stores
            .into_iter()
            .enumerate()
            .map(|(index, store)| {
                let mut shard = Shard::new(config.clone(), ShardId(index as u16), seed, store);
                while !shard.recover_step(now).done {}
                shard
            })
            .collect();
        assert_eq!(shards.len(), usize::from(config.shards), "one handle per shard");
        Node { mailed: vec![false; shards.len()], shards, scratch: Vec::new() }
    }

    /// Takes inputs, each for its shard, and ends the turn of every shard; mail is handed over until none is left.
    pub fn turn<'a>(
        &mut self,
        inputs: impl IntoIterator<Item = (ShardId, Input<'a>)>,
        now: Now,
        out: &mut Vec<(ShardId, Effect)>,
    ) {
        for (shard, input) in inputs {
            let mut effects = std::mem::take(&mut self.scratch);
            self.shards[usize::from(shard.0)].handle(input, now, &mut effects);
            self.route(shard, &mut effects, now, out);
            self.scratch = effects;
        }
        for index in 0..self.shards.len() {
            let mut effects = std::mem::take(&mut self.scratch);
            self.mailed[index] = false;
            self.shards[index].end_turn(now, &mut effects);
            self.route(ShardId(index as u16), &mut effects, now, out);
            self.scratch = effects;
        }
    }

    /// Hands mail to its shard; what that sends in turn is handed over as well.
    fn route(&mut self, from: ShardId, effects: &mut Vec<Effect>, now: Now, out: &mut Vec<(ShardId, Effect)>) {
        let mut mailed = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Mail { to, mail } => mailed.push((to, mail)),
                other => out.push((from, other)),
            }
        }
        for (to, mail) in mailed {
            let mut effects = Vec::new();
            self.mailed[usize::from(to.0)] = true;
            self.shards[usize::from(to.0)].handle(Input::Mail(mail), now, &mut effects);
            self.route(to, &mut effects, now, out);
        }
    }

    /// When the next turn has something to do even if nothing else happens, monotonic µs; 0 = at once.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.mailed.contains(&true) {
            return Some(0);
        }
        self.shards.iter().filter_map(Shard::next_deadline).min()
    }

    /// A shard.
    pub fn shard(&self, id: ShardId) -> &Shard<S> {
        &self.shards[usize::from(id.0)]
    }

    /// A shard, to write its output.
    pub fn shard_mut(&mut self, id: ShardId) -> &mut Shard<S> {
        &mut self.shards[usize::from(id.0)]
    }

    /// The shards, each for a thread of its own.
    pub fn into_shards(self) -> Vec<Shard<S>> {
        self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, QueuePatch, Reply};
    use packhorse_store::Memory;

    #[test]
    fn mail_to_a_shard_that_has_ended_its_turn_makes_another_one_due() {
        let memory = Memory::new(2, false);
        let config = Config { shards: 2, ..Config::default() };
        let now = Now { mono_us: 1, wall_ms: 1 };
        let handles = (0..2).map(|shard| memory.handle(ShardId(shard)));
        let mut node = Node::new(config, Seed::fixed(1), handles, now);
        let mut effects = Vec::new();
        let mut due = Vec::new();
        // The second shard learns at the end of its turn that its queues are durable, and tells the first.
        for (id, name) in (1..=8).map(|n| (n, format!("q{n}"))) {
            let command = Command::QueuePut { name, patch: QueuePatch::default() };
            node.turn([(ShardId(0), Input::Admin { id, command })], now, &mut effects);
            memory.flush_all();
            node.turn([], now, &mut effects);
            due.push(node.next_deadline() == Some(0));
            node.turn([], now, &mut effects);
            assert_ne!(node.next_deadline(), Some(0), "there is nothing more to do");
        }
        assert!(due.contains(&true) && due.contains(&false), "the owner is the one or the other: {due:?}");
        let made = |effect: &&(ShardId, Effect)| matches!(&effect.1, Effect::AdminReply { reply, .. } if matches!(**reply, Reply::Created { .. }));
        assert_eq!(effects.iter().filter(made).count(), 8);
    }
}
