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
                _ => {}
            }
        }
        kinds
    }
}

/// What the store saw of a turn and the machine around the shard acts on, at the turn's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Persistent messages became durable.
    pub(crate) stored: Rc<Cell<bool>>,
    /// Messages came back.
    pub(crate) returned: Rc<Cell<bool>>,
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
        if kinds.enqueue {
            pass("entry.enqueue.before_sync");
        }
        if kinds.acknowledge {
            pass("entry.ack.before_sync");
        }
        if kinds.relocate {
            pass("entry.relocate.before_sync");
        }
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
                    durable.enqueue |= kinds.enqueue;
                    durable.acknowledge |= kinds.acknowledge;
                    durable.relocate |= kinds.relocate;
                    self.flying.pop_front();
                }
                if durable.enqueue {
                    pass("entry.enqueue.after_sync_before_visible");
                    self.seen.stored.set(true);
                }
                if durable.acknowledge {
                    pass("entry.ack.after_sync_before_reply");
                }
                if durable.relocate {
                    pass("entry.relocate.after_sync");
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
