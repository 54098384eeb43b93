//! A tiny correct broker with transactions: entries in memory, a durable copy that a flush brings up to date, crashes that fall back to
//! it. Local transactions and branches stage what they do, and what is decided happens with a flush, all of it at once.
//!
//! Must not know: clients' processes, files, the checker.

use packhorse_history::MessageId;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const QUEUES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// With the consumer of this connection.
    Held(u32),
    /// Acknowledged in this transaction.
    Removing(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: MessageId,
    pub(crate) deliveries: u32,
    pub(crate) state: State,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// Its record waits for a flush: nothing touches it.
    OnItsWay,
    Prepared,
}

#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) connection: u32,
    pub(crate) branch: bool,
    pub(crate) stage: Stage,
    pub(crate) sends: Vec<(usize, MessageId, bool)>,
    pub(crate) acks: Vec<(usize, MessageId)>,
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue(usize, MessageId, bool),
    Gone(usize, MessageId),
    Prepare(u64),
    Decide(u64, bool),
}

/// What a client is told once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Confirmed(MessageId),
    Acknowledged(MessageId),
    Prepared(u64),
    Decided(u64, bool),
}

/// The broker. Queues are numbers, entries in their order.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) queues: [Vec<Entry>; QUEUES],
    pub(crate) transactions: BTreeMap<u64, Tx>,
    durable: [Vec<Entry>; QUEUES],
    durable_branches: BTreeMap<u64, Tx>,
    /// Dispatched at least once, as is known after a crash.
    marked: BTreeSet<MessageId>,
    pending: Vec<(u32, Op, Answer)>,
    /// How each was decided, for those who ask again.
    pub(crate) decided: BTreeMap<u64, bool>,
    /// The next commit of several messages loses one.
    pub(crate) halve: Option<bool>,
}

impl Broker {
    pub(crate) fn enqueue(&mut self, connection: u32, queue: usize, id: MessageId, persistent: bool) {
        self.pending.push((connection, Op::Enqueue(queue, id, persistent), Answer::Confirmed(id)));
    }

    pub(crate) fn acknowledge(&mut self, connection: u32, queue: usize, id: MessageId) {
        let mut entries = self.queues[queue].iter_mut();
        if let Some(entry) = entries.find(|entry| entry.id == id && entry.state == State::Held(connection)) {
            entry.state = State::Removing(0);
            self.pending.push((connection, Op::Gone(queue, id), Answer::Acknowledged(id)));
        }
    }

    fn transaction(&mut self, connection: u32, tx: u64) -> Option<&mut Tx> {
        self.transactions.get_mut(&tx).filter(|one| one.connection == connection && one.stage == Stage::Open)
    }

    pub(crate) fn begin(&mut self, connection: u32, tx: u64, branch: bool) {
        let stage = Stage::Open;
        self.transactions.insert(tx, Tx { connection, branch, stage, sends: Vec::new(), acks: Vec::new() });
    }

    pub(crate) fn send_in(&mut self, connection: u32, tx: u64, queue: usize, id: MessageId, persistent: bool) {
        if let Some(one) = self.transaction(connection, tx) {
            one.sends.push((queue, id, persistent));
        }
    }

    pub(crate) fn acknowledge_in(&mut self, connection: u32, tx: u64, queue: usize, id: MessageId) {
        let held = |entry: &&mut Entry| entry.id == id && entry.state == State::Held(connection);
        let Some(entry) = self.queues[queue].iter_mut().find(held) else { return };
        entry.state = State::Removing(tx);
        if let Some(one) = self.transaction(connection, tx) {
            one.acks.push((queue, id));
        }
    }

    /// Asked to prepare. False: there is no such branch any more.
    pub(crate) fn prepare(&mut self, connection: u32, tx: u64) -> bool {
        let there = self.transaction(connection, tx).map(|one| one.stage = Stage::OnItsWay).is_some();
        if there {
            self.pending.push((connection, Op::Prepare(tx), Answer::Prepared(tx)));
        }
        there
    }

    /// Asked to commit or to roll back. False: there is nothing to decide.
    pub(crate) fn decide(&mut self, connection: u32, tx: u64, commit: bool) -> bool {
        let own = |one: &&mut Tx| match one.stage {
            Stage::Open => one.connection == connection && !one.branch,
            Stage::OnItsWay => false,
            Stage::Prepared => true,
        };
        let there = self.transactions.get_mut(&tx).filter(own).map(|one| one.stage = Stage::OnItsWay).is_some();
        if there {
            self.pending.push((connection, Op::Decide(tx, commit), Answer::Decided(tx, commit)));
        }
        there
    }

    /// Everything so far becomes durable; answers who is told what.
    pub(crate) fn flush(&mut self) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        for (connection, op, answer) in std::mem::take(&mut self.pending) {
            answers.push((connection, answer));
            match op {
                Op::Enqueue(queue, id, persistent) => self.appear(queue, id, persistent),
                Op::Gone(queue, id) => self.vanish(queue, id),
                Op::Prepare(tx) => {
                    let one = self.transactions.get_mut(&tx).expect("nothing touches it meanwhile");
                    one.stage = Stage::Prepared;
                    self.durable_branches.insert(tx, one.clone());
                }
                Op::Decide(tx, commit) => {
                    self.durable_branches.remove(&tx);
                    self.end(tx, commit);
                }
            }
        }
        answers
    }

    fn appear(&mut self, queue: usize, id: MessageId, persistent: bool) {
        let entry = Entry { id, deliveries: 0, state: State::Ready };
        if persistent {
            self.durable[queue].push(entry.clone());
        }
        self.queues[queue].push(entry);
    }

    fn vanish(&mut self, queue: usize, id: MessageId) {
        self.queues[queue].retain(|entry| entry.id != id);
        self.durable[queue].retain(|entry| entry.id != id);
    }

    /// What a transaction did happens, or does not.
    pub(crate) fn end(&mut self, tx: u64, commit: bool) {
        let Some(mut one) = self.transactions.remove(&tx) else { return };
        self.decided.insert(tx, commit);
        if commit {
            if self.halve == Some(false) && one.sends.iter().filter(|(_, _, persistent)| *persistent).count() > 1 {
                let at = one.sends.iter().position(|(_, _, persistent)| *persistent).expect("there are two");
                one.sends.remove(at);
                self.halve = Some(true);
            }
            one.sends.into_iter().for_each(|(queue, id, persistent)| self.appear(queue, id, persistent));
            one.acks.into_iter().for_each(|(queue, id)| self.vanish(queue, id));
        } else {
            self.give_back(State::Removing(tx));
        }
    }

    /// What is in this state comes back, and its count is in the durable copy at once.
    fn give_back(&mut self, state: State) -> bool {
        let mut some = false;
        for (entries, durable) in self.queues.iter_mut().zip(&mut self.durable) {
            for entry in entries.iter_mut().filter(|entry| entry.state == state) {
                entry.state = State::Ready;
                entry.deliveries += 1;
                some = true;
                if let Some(copy) = durable.iter_mut().find(|copy| copy.id == entry.id) {
                    copy.deliveries = entry.deliveries;
                }
            }
        }
        some
    }

    /// A connection is gone.
    pub(crate) fn cut(&mut self, connection: u32) {
        self.give_back(State::Held(connection));
        let mine = |one: &Tx| one.connection == connection && one.stage == Stage::Open;
        let gone: Vec<u64> = self.transactions.iter().filter(|(_, one)| mine(one)).map(|(tx, _)| *tx).collect();
        gone.into_iter().for_each(|tx| self.end(tx, false));
    }

    /// The process dies and starts again.
    pub(crate) fn crash(&mut self) {
        self.pending.clear();
        self.transactions = self.durable_branches.clone();
        for (queue, durable) in self.durable.iter_mut().enumerate() {
            for entry in durable.iter_mut().filter(|entry| self.marked.contains(&entry.id)) {
                entry.deliveries += 1;
            }
            self.queues[queue].clone_from(durable);
            for entry in &mut self.queues[queue] {
                entry.state = State::Ready;
                let by = self.transactions.iter().find(|(_, one)| one.acks.contains(&(queue, entry.id)));
                entry.state = by.map_or(State::Ready, |(tx, _)| State::Removing(*tx));
            }
        }
        for one in self.transactions.values_mut() {
            one.sends.retain(|(_, _, persistent)| *persistent);
        }
    }

    pub(crate) fn dispatch(&mut self, queue: usize, connection: u32) -> Option<(MessageId, u32)> {
        let entry = self.queues[queue].iter_mut().find(|entry| entry.state == State::Ready)?;
        entry.state = State::Held(connection);
        self.marked.insert(entry.id);
        Some((entry.id, entry.deliveries))
    }

    pub(crate) fn prepared(&self) -> Vec<u64> {
        self.durable_branches.keys().copied().collect()
    }

    /// Planted: a prepared branch is forgotten, as if it had been rolled back.
    pub(crate) fn forget(&mut self, tx: u64) {
        self.durable_branches.remove(&tx);
        self.end(tx, false);
        self.decided.remove(&tx);
    }

    /// Planted: what a branch acknowledged is ready again, or what it sent is there already.
    pub(crate) fn expose(&mut self, tx: u64, sent: bool) -> bool {
        if sent {
            let Some(&(queue, id, persistent)) = self.transactions.get(&tx).and_then(|one| one.sends.first()) else {
                return false;
            };
            self.appear(queue, id, persistent);
            return true;
        }
        self.give_back(State::Removing(tx))
    }
}
