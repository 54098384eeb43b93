//! Places at the seam between a broker and its store where a script lets the process end: those of the failpoints of the real process
//! (`shell/runtime/src/failpoints`), told by the operations of a batch. Without a script nothing is armed and nothing is remembered.

use packhorse_journal::sim::{CrashMode, SimStore};
use packhorse_model::BrokerId;
use packhorse_store::{Batch, Event, LargeOp, Load, LoadLarge, Op, Recovered, Store, StoreStatus, Ticket};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a batch must hold to be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A persistent message that comes in.
    Enqueue,
    /// An acknowledgement.
    Acknowledge,
    /// A message that comes back.
    Redeliver,
    /// A message that goes to another queue.
    Relocate,
    /// A mark: its messages may go out from when it is durable.
    Mark,
    /// A transaction, or a branch in one phase, that is committed.
    Commit,
    /// A branch that is prepared.
    Prepare,
    /// A prepared branch that is decided by its manager.
    Decide,
    /// One that is decided by an operator.
    Heuristic,
    /// One whose heuristic outcome is forgotten.
    Forget,
}

impl Kind {
    fn is_in(self, batch: &Batch) -> bool {
        batch.ops().iter().any(|op| match self {
            Kind::Enqueue => matches!(op, Op::Enqueue { volatile: false, .. }),
            Kind::Acknowledge => matches!(op, Op::Acknowledge { .. }),
            Kind::Redeliver => matches!(op, Op::Redeliver { .. }),
            Kind::Relocate => matches!(op, Op::Relocate { .. }),
            Kind::Mark => matches!(op, Op::DispatchMark { .. } | Op::ExactMark { .. }),
            Kind::Commit => matches!(op, Op::Commit(_)),
            Kind::Prepare => matches!(op, Op::Prepare(_)),
            Kind::Decide => matches!(op, Op::Decide(_)),
            Kind::Heuristic => matches!(op, Op::Heuristic(_)),
            Kind::Forget => matches!(op, Op::Forget { .. }),
        })
    }
}

/// How far a batch is when the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// It is about to be handed to the store.
    BeforeSync,
    /// The store has begun to write it, and it is not safe.
    DuringSync,
    /// It is durable, and the shard does not know.
    AfterSync,
    /// The shard has taken that in, and no frame has gone out.
    BeforeFrames,
}

impl Point {
    /// All of them, in the order of their times.
    pub const ALL: [Point; 4] = [Point::BeforeSync, Point::DuringSync, Point::AfterSync, Point::BeforeFrames];
}

/// How a process ends by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// kill -9: what the system has of its files stays.
    Kill,
    /// The machine's power goes; what of the unsynced is kept.
    Power(CrashMode),
}

impl Death {
    /// All that differ for a disk.
    pub const ALL: [Death; 5] = [
        Death::Kill,
        Death::Power(CrashMode::Lose),
        Death::Power(CrashMode::Torn(512)),
        Death::Power(CrashMode::Torn(4096)),
        Death::Power(CrashMode::Torn(usize::MAX)),
    ];
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    kind: Kind,
    point: Point,
    death: Death,
    /// So many passes are still to come, this one included.
    passes: u64,
}

/// What all shards of a machine, and whoever drives it, know of an end to come. It outlives processes.
#[derive(Debug, Default)]
pub(crate) struct Seam {
    armed: Cell<Option<Armed>>,
    /// The process is to end at the end of this turn, before a frame goes out.
    over: Cell<Option<Death>>,
    /// Nothing that the process does has an effect any more.
    dead: Cell<bool>,
    /// The power goes at the next write of a block.
    at_write: Cell<bool>,
    /// How, then.
    then: Cell<Option<Death>>,
}

impl Seam {
    pub(crate) fn arm(&self, kind: Kind, point: Point, passes: u64, death: Death) {
        self.armed.set(Some(Armed { kind, point, death, passes }));
    }

    /// None is to come.
    pub(crate) fn disarm(&self) {
        self.armed.set(None);
        self.then.set(None);
        self.at_write.set(false);
    }

    /// Whether an end is still to come.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.get().is_some() || self.over.get().is_some() || self.then.get().is_some()
    }

    /// How the process is to end now, if it is.
    pub(crate) fn take_over(&self) -> Option<Death> {
        self.over.take()
    }

    /// The disk is armed by somebody else: how the process ends when it meets what is to come.
    pub(crate) fn at_the_disk(&self, death: Death) {
        self.then.set(Some(death));
    }

    /// The disk has met what was to come: how the process ends.
    pub(crate) fn take_then(&self) -> Option<Death> {
        self.then.take()
    }

    /// Whether the power goes at the next write of a block from now on; said once.
    pub(crate) fn is_due(&self) -> bool {
        self.at_write.take()
    }

    /// Passes a point. True: this is where it ends.
    fn pass(&self, kind: Kind, point: Point) -> bool {
        let Some(mut armed) = self.armed.get().filter(|armed| (armed.kind, armed.point) == (kind, point)) else {
            return false;
        };
        armed.passes -= 1;
        if armed.passes > 0 {
            self.armed.set(Some(armed));
            return false;
        }
        self.armed.set(None);
        match point {
            Point::DuringSync => {
                self.at_write.set(true);
                self.then.set(Some(armed.death));
            }
            Point::BeforeSync | Point::AfterSync => {
                self.dead.set(true);
                self.over.set(Some(armed.death));
            }
            Point::BeforeFrames => self.over.set(Some(armed.death)),
        }
        true
    }
}

/// A shard's handle, watched.
pub(crate) struct SeamStore {
    inner: SimStore,
    seam: Rc<Seam>,
    /// Batches on their way that are of the armed kind.
    flying: VecDeque<(Ticket, Kind)>,
    events: Vec<Event>,
}

impl SeamStore {
    /// For a process that begins.
    pub(crate) fn new(inner: SimStore, seam: Rc<Seam>) -> SeamStore {
        seam.dead.set(false);
        SeamStore { inner, seam, flying: VecDeque::new(), events: Vec::new() }
    }
}

impl Store for SeamStore {
    fn next_ticket(&self) -> Ticket {
        self.inner.next_ticket()
    }

    fn submit(&mut self, batch: Batch) -> Ticket {
        if self.seam.dead.get() {
            return self.inner.next_ticket();
        }
        let Some(Armed { kind, .. }) = self.seam.armed.get().filter(|armed| armed.kind.is_in(&batch)) else {
            return self.inner.submit(batch);
        };
        if self.seam.pass(kind, Point::BeforeSync) {
            return self.inner.next_ticket();
        }
        let ticket = self.inner.submit(batch);
        self.seam.pass(kind, Point::DuringSync);
        self.flying.push_back((ticket, kind));
        ticket
    }

    fn large(&mut self, op: LargeOp) {
        if !self.seam.dead.get() {
            self.inner.large(op);
        }
    }

    fn load(&mut self, load: Load) {
        self.inner.load(load);
    }

    fn load_large(&mut self, load: LoadLarge) {
        self.inner.load_large(load);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        if self.flying.is_empty() {
            return self.inner.poll(out);
        }
        let mut events = std::mem::take(&mut self.events);
        self.inner.poll(&mut events);
        for event in events.drain(..) {
            let mut hit = None;
            while let Event::Durable { up_to } = event
                && let Some((ticket, kind)) = self.flying.front().copied()
                && ticket <= up_to
            {
                self.flying.pop_front();
                hit = Some(kind);
            }
            if let Some(kind) = hit {
                self.seam.pass(kind, Point::AfterSync);
                self.seam.pass(kind, Point::BeforeFrames);
            }
            if !self.seam.dead.get() {
                out.push(event);
            }
        }
        self.events = events;
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
