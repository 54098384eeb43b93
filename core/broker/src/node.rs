//! A whole node in one place: all its shards, and the mail between them. The order of things in it is a function of its
//! inputs alone, so simulations and tests run what production runs; there each shard has a thread and the shell moves the mail.

use crate::Mail;
use crate::io::{Effect, Input};
use crate::{Config, Shard};
use packhorse_model::{Now, Seed, ShardId};
use packhorse_store::Store;
use std::collections::VecDeque;
use std::sync::Arc;

/// Says how much of so much waiting mail is handed over now.
type Postman = Box<dyn FnMut(usize) -> usize>;

/// See the module.
pub struct Node<S> {
    shards: Vec<Shard<S>>,
    /// Mail takes its time, if there is one.
    postman: Option<Postman>,
    /// What waits, by sender and receiver.
    waiting: Vec<VecDeque<Box<Mail>>>,
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
        let waiting = (0..shards.len() * shards.len()).map(|_| VecDeque::new()).collect();
        Node { mailed: vec![false; shards.len()], shards, postman: None, waiting, scratch: Vec::new() }
    }

    /// From now on mail waits between one shard and another, as it does between threads: at the beginning of each turn `postman` says of
    /// each pair of shards how much of what waits there comes, in its order. It must not say 0 for ever.
    pub fn delay_mail(&mut self, postman: impl FnMut(usize) -> usize + 'static) {
        self.postman = Some(Box::new(postman));
    }

    /// Takes inputs, each for its shard, and ends the turn of every shard. Mail is handed over until none is left, unless it takes its time
    /// ([`Node::delay_mail`]).
    pub fn turn<'a>(
        &mut self,
        inputs: impl IntoIterator<Item = (ShardId, Input<'a>)>,
        now: Now,
        out: &mut Vec<(ShardId, Effect)>,
    ) {
        self.hand_over(now, out);
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

    /// Hands over as much of the mail that waits as has come by now.
    fn hand_over(&mut self, now: Now, out: &mut Vec<(ShardId, Effect)>) {
        let Some(postman) = &mut self.postman else { return };
        let mut come = Vec::new();
        for (pair, waiting) in self.waiting.iter_mut().enumerate().filter(|(_, waiting)| !waiting.is_empty()) {
            let to = ShardId((pair % self.shards.len()) as u16);
            let many = postman(waiting.len()).min(waiting.len());
            come.extend(waiting.drain(..many).map(|mail| (to, mail)));
        }
        come.into_iter().for_each(|(to, mail)| self.deliver(to, mail, now, out));
    }

    /// Takes mail to its shard, or lets it wait; what the shard sends in turn goes the same way.
    fn route(&mut self, from: ShardId, effects: &mut Vec<Effect>, now: Now, out: &mut Vec<(ShardId, Effect)>) {
        let mut mailed = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Mail { to, mail } => mailed.push((to, mail)),
                other => out.push((from, other)),
            }
        }
        for (to, mail) in mailed {
            if self.postman.is_some() {
                let pair = usize::from(from.0) * self.shards.len() + usize::from(to.0);
                self.waiting[pair].push_back(mail);
            } else {
                self.deliver(to, mail, now, out);
            }
        }
    }

    fn deliver(&mut self, to: ShardId, mail: Box<Mail>, now: Now, out: &mut Vec<(ShardId, Effect)>) {
        let mut effects = Vec::new();
        self.mailed[usize::from(to.0)] = true;
        self.shards[usize::from(to.0)].handle(Input::Mail(mail), now, &mut effects);
        self.route(to, &mut effects, now, out);
    }

    /// When the next turn has something to do even if nothing else happens, monotonic µs; 0 = at once.
    pub fn next_deadline(&self) -> Option<u64> {
        if self.mailed.contains(&true) || self.waiting.iter().any(|mail| !mail.is_empty()) {
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
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn mail_that_takes_its_time_is_handed_over_as_the_postman_says() {
        let memory = Memory::new(2, true);
        let config = Config { shards: 2, ..Config::default() };
        let now = Now { mono_us: 1, wall_ms: 1 };
        let handles = (0..2).map(|shard| memory.handle(ShardId(shard)));
        let mut node = Node::new(config, Seed::fixed(1), handles, now);
        // Nothing comes at first, then one piece of mail in each turn.
        let comes = Rc::new(Cell::new(false));
        let postman = comes.clone();
        node.delay_mail(move |waiting| {
            assert!(waiting > 0, "it is asked for something");
            usize::from(postman.get())
        });
        let mut effects = Vec::new();
        let commands = (1..=8).map(|n| {
            let command = Command::QueuePut { name: format!("q{n}"), patch: QueuePatch::default() };
            (ShardId(0), Input::Admin { id: n, command })
        });
        node.turn(commands, now, &mut effects);
        node.turn([], now, &mut effects);
        let created = |effects: &[(ShardId, Effect)]| {
            let of = |effect: &(ShardId, Effect)| match &effect.1 {
                Effect::AdminReply { id, reply } if matches!(**reply, Reply::Created { .. }) => Some(*id),
                _ => None,
            };
            effects.iter().filter_map(of).collect::<Vec<_>>()
        };
        for _ in 0..3 {
            assert_eq!(node.next_deadline(), Some(0), "something waits");
            node.turn([], now, &mut effects);
        }
        let here = created(&effects);
        assert!(
            !here.is_empty() && here.len() < 8,
            "some queues are the other shard's, and it has not heard of them: {here:?}"
        );
        comes.set(true);
        let mut turns = 0;
        while node.next_deadline() == Some(0) {
            turns += 1;
            assert!(turns < 100, "nothing waits for ever");
            node.turn([], now, &mut effects);
        }
        let there = created(&effects).split_off(here.len());
        assert_eq!(here.len() + there.len(), 8);
        assert!(there.is_sorted(), "mail keeps its order: {there:?}");
    }

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
