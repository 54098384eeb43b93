//! A store that passes failpoints on the way in and on the way out: which ones is told by the operations of a batch.

use super::pass;
use packhorse_model::BrokerId;
use packhorse_store::{Batch, Event, LargeOp, Load, LoadLarge, Op, Recovered, Store, StoreStatus, Ticket};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What batches of a shard hold that a point is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    enqueue: bool,
    acknowledge: bool,
    redeliver: bool,
    relocate: bool,
    commit: bool,
    prepare: bool,
    decide: bool,
    heuristic: bool,
}

impl Kinds {
    fn of(batch: &Batch) -> Kinds {
        let mut kinds = Kinds::default();
        for op in batch.ops() {
            match op {
                Op::Enqueue { volatile, .. } => kinds.enqueue |= !volatile,
                Op::Acknowledge { .. } => kinds.acknowledge = true,
                Op::Redeliver { .. } => kinds.redeliver = true,
                Op::Relocate { .. } => kinds.relocate = true,
                Op::Commit(_) => kinds.commit = true,
                Op::Prepare(_) => kinds.prepare = true,
                Op::Decide(_) => kinds.decide = true,
                Op::Heuristic(_) => kinds.heuristic = true,
                _ => {}
            }
        }
        kinds
    }

    fn add(&mut self, other: Kinds) {
        self.enqueue |= other.enqueue;
        self.acknowledge |= other.acknowledge;
        self.redeliver |= other.redeliver;
        self.relocate |= other.relocate;
        self.commit |= other.commit;
        self.prepare |= other.prepare;
        self.decide |= other.decide;
        self.heuristic |= other.heuristic;
    }

    /// They are about to be handed over.
    fn before(self) {
        for (there, point) in [
            (self.enqueue, "entry.enqueue.before_sync"),
            (self.acknowledge, "entry.ack.before_sync"),
            (self.relocate, "entry.relocate.before_sync"),
            (self.commit, "tx.commit.before_sync"),
            (self.prepare, "xa.prepare.before_sync"),
            (self.decide, "xa.decide.before_sync"),
        ] {
            if there {
                pass(point);
            }
        }
    }

    /// They are durable, and the shard is not told yet.
    fn after(self) {
        for (there, point) in [
            (self.enqueue, "entry.enqueue.after_sync_before_visible"),
            (self.acknowledge, "entry.ack.after_sync_before_reply"),
            (self.relocate, "entry.relocate.after_sync"),
            (self.commit, "tx.commit.after_sync_before_apply"),
            (self.prepare, "xa.prepare.after_sync_before_reply"),
            (self.decide, "xa.decide.after_sync_before_apply"),
            (self.heuristic, "xa.heuristic.after_sync"),
        ] {
            if there {
                pass(point);
            }
        }
    }
}

/// What the store saw of a turn and the machine around the shard acts on, at the turn's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Persistent messages became durable.
    pub(crate) stored: Rc<Cell<bool>>,
    /// Messages came back.
    pub(crate) returned: Rc<Cell<bool>>,
    /// Commits in one phase became durable.
    pub(crate) committed: Rc<Cell<bool>>,
    /// Decisions of branches became durable.
    pub(crate) decided: Rc<Cell<bool>>,
}

/// See the module.
pub(crate) struct WatchedStore<S> {
    inner: S,
    seen: Seen,
    /// Batches on their way, by ticket.
    flying: VecDeque<(Ticket, Kinds)>,
    events: Vec<Event>,
}

impl<S: Store> WatchedStore<S> {
    /// Around `inner`; both on one thread with the machine that has the other half of `seen`.
    pub(crate) fn new(inner: S, seen: Seen) -> WatchedStore<S> {
        WatchedStore { inner, seen, flying: VecDeque::new(), events: Vec::new() }
    }
}

impl<S: Store> Store for WatchedStore<S> {
    fn next_ticket(&self) -> Ticket {
        self.inner.next_ticket()
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        let kinds = Kinds::of(&batch);
        kinds.before();
        let ticket = self.inner.submit(batch);
        if kinds.redeliver {
            self.seen.returned.set(true);
        }
        if kinds != Kinds::default() {
            self.flying.push_back((ticket, kinds));
        }
        ticket
    }

    fn large(&mut self, op: LargeOp) {
        self.inner.large(op);
    }

    fn load(&mut self, load: Load) {
        self.inner.load(load);
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.inner.load_large(load);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.inner.poll(&mut self.events);
        for event in self.events.drain(..) {
            if let Event::Durable { up_to } = event {
                let mut durable = Kinds::default();
                while let Some((ticket, kinds)) = self.flying.front()
                    && *ticket <= up_to
                {
                    durable.add(*kinds);
                    self.flying.pop_front();
                }
                durable.after();
                for (there, seen) in [
                    (durable.enqueue, &self.seen.stored),
                    (durable.commit, &self.seen.committed),
                    (durable.decide, &self.seen.decided),
                ] {
                    if there {
                        seen.set(true);
                    }
                }
            }
            out.push(event);
        }
    }

    fn recover(&mut self, limit: usize, out: &mut Vec<Recovered>) -> bool {
        self.inner.recover(limit, out)
    }

    fn broker(&self) -> BrokerId {
        self.inner.broker()
    }

    fn run(&self) -> u64 {
        self.inner.run()
    }

    fn started_at_ms(&self) -> u64 {
        self.inner.started_at_ms()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.inner.unflushed_bytes()
    }

    fn status(&self) -> StoreStatus {
        self.inner.status()
    }
}
