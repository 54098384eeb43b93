//! Commands of operators and their answers, without any protocol's words. `shell/http` renders them.

mod transactions;

pub use transactions::{By, TxAct, TxContents, TxFigures, TxLost, TxMessage, TxPage, TxPart, TxReport};

use packhorse_model::{QueueId, QueueLimits, QueueSettings, TxnId, Xid};
use packhorse_queue::Limit;
use packhorse_store::StoreStatus;
use packhorse_txn::state::State;

/// A command. Those for one queue may be given to any shard; those marked "per shard" answer for one shard only and are
/// to be given to each, the answers merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Figures of this shard (per shard). Answered by [`Reply::Shard`].
    Status,
    /// This shard's queues in the order of names (per shard). Answered by [`Reply::Queues`].
    QueueList {
        /// Only names after this one.
        after: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// One queue. Answered by [`Reply::Queue`].
    QueueGet {
        /// Its name.
        name: String,
    },
    /// Creates a queue, or does nothing if it exists with these settings. Answered by [`Reply::Created`] when durable.
    QueuePut {
        /// Its name.
        name: String,
        /// What to set; the rest has defaults.
        patch: QueuePatch,
    },
    /// Deletes a queue. Answered by [`Reply::Deleted`] when durable.
    QueueDelete {
        /// Its name.
        name: String,
        /// Even when it holds messages or has consumers.
        force: bool,
        /// Who forces it, and why: needed if branches in doubt have work in it, for that is rolled back.
        by: Option<By>,
    },
    /// Removes all messages that nobody holds and that are there when the command is carried out. Answered by
    /// [`Reply::Purged`] when durable.
    QueuePurge {
        /// Its name.
        name: String,
        /// Who forces it, and why, if branches in doubt have work in it: that is rolled back.
        by: Option<By>,
    },
    /// Moves ready messages, oldest first, to the end of another queue, which is created if an attach would create it.
    /// Answered by [`Reply::Moved`] when the last of them is durable.
    QueueMove {
        /// Where they are.
        from: String,
        /// Where they go.
        to: String,
        /// At most so many.
        limit: u64,
    },
    /// Sets other limits. Answered by [`Reply::Changed`] when durable.
    QueueChange {
        /// Its name.
        name: String,
        /// Its limits from now on.
        limits: QueueLimits,
    },
    /// Branches in the order of their xids; to shard 0, their home. Answered by [`Reply::Transactions`].
    TxList {
        /// Only those after this one.
        after: Option<Xid>,
        /// Only those in one of these states; none given: all.
        states: Vec<State>,
        /// At most so many.
        limit: usize,
    },
    /// Open local transactions of this shard (per shard). Answered by [`Reply::Transactions`]; there are more than the
    /// answer has if it has `limit` of them.
    TxLocals {
        /// At most so many.
        limit: usize,
    },
    /// One branch; to shard 0. Answered by [`Reply::Transaction`].
    TxShow {
        /// Its name.
        xid: Xid,
    },
    /// What a transaction adds to a queue and removes from it, message by message. Answered by [`Reply::TxContents`].
    TxPart {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
        /// Which message of the part is the first one wanted, from 0: what it adds comes first.
        from: u64,
        /// At most so many messages.
        limit: usize,
    },
    /// An operator decides a branch in doubt, or has what was decided forgotten; to shard 0. Answered by [`Reply::Decided`] when
    /// durable.
    TxDecide {
        /// The branch.
        xid: Xid,
        /// What.
        act: TxAct,
        /// Who and why; a reason may be empty only with [`TxAct::Forget`].
        by: By,
    },
}

impl Command {
    /// The queue whose shard carries it out, of a command that takes its time.
    pub(crate) fn queue(&self) -> Option<&str> {
        match self {
            Command::QueuePurge { name, .. } | Command::QueueChange { name, .. } => Some(name),
            Command::QueueMove { from, .. } => Some(from),
            _ => None,
        }
    }

    /// The queue that it is about, if it is about one.
    pub(crate) fn named(&self) -> &str {
        match self {
            Command::QueueDelete { name, .. } => name,
            other => other.queue().unwrap_or("?"),
        }
    }

    /// Who forces it.
    pub(crate) fn by(&self) -> Option<&By> {
        match self {
            Command::QueueDelete { by, .. } | Command::QueuePurge { by, .. } => by.as_ref(),
            _ => None,
        }
    }
}

/// Settings of a queue as an operator gives them; `None` = default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePatch {
    /// See [`QueueSettings::default_durable`].
    pub default_durable: Option<bool>,
    /// See [`QueueSettings::delivery_limit`].
    pub max_deliveries: Option<u32>,
    /// See [`QueueSettings::dead_letter`].
    pub dead_letter: Option<String>,
    /// See [`QueueLimits`].
    pub limits: Option<QueueLimits>,
}

/// The one answer to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Figures of one shard.
    Shard(Box<ShardReport>),
    /// A page of one shard's queues.
    Queues(ListPage),
    /// One queue.
    Queue(Box<QueueReport>),
    /// The queue exists as asked.
    Created {
        /// The queue as it is now.
        queue: Box<QueueReport>,
        /// False: it was there already.
        new: bool,
    },
    /// The queue is gone.
    Deleted {
        /// Messages that went with it.
        messages: u64,
    },
    /// All that nobody held is gone.
    Purged {
        /// How many messages that were.
        messages: u64,
    },
    /// Messages are in the other queue.
    Moved {
        /// How many. Fewer than were asked for and ready: the other queue was full, or deleted, in between.
        messages: u64,
    },
    /// The queue has the settings that were asked for.
    Changed {
        /// The queue as it is now.
        queue: Box<QueueReport>,
    },
    /// A page of branches, or local transactions.
    Transactions(TxPage),
    /// One branch.
    Transaction(Box<TxReport>),
    /// A page of what a transaction has in a queue.
    TxContents(TxContents),
    /// A branch is decided, or forgotten.
    Decided {
        /// The branch as it is now; `None`: it is forgotten.
        branch: Option<Box<TxReport>>,
    },
    /// It was not done.
    Refused(Refusal),
}

/// A page of queues.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPage {
    /// In the order of names.
    pub queues: Vec<QueueReport>,
    /// Whether this shard has more after the last one.
    pub more: bool,
}

/// Kinds of refusals, each with a stable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// No such thing.
    NotFound,
    /// It exists with other settings, or is in use.
    Conflict,
    /// The name or a value breaks a rule.
    Invalid,
    /// The broker is stopping or its store has failed.
    Unavailable,
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub kind: RefusalKind,
    /// Stable code, e.g. `queue-not-found`.
    pub code: &'static str,
    /// One sentence: the thing, the limit, the value, what to do.
    pub detail: String,
}

/// Counts of one queue, each derived from its entries' states (`spec/operate.md`, "A queue reports").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of spec/operate.md, defined there")]
pub struct Counters {
    pub ready: u64,
    pub scheduled: u64,
    pub acquired: u64,
    pub removing: u64,
    pub moving: u64,
    pub damaged: u64,
    pub staged: u64,
    pub prepared_in: u64,
    pub prepared_out: u64,
    pub depth: u64,
    pub bytes: u64,
    pub consumers: u64,
    pub credit: u64,
    pub enqueued_total: u64,
    pub acknowledged_total: u64,
    pub redelivered_total: u64,
    pub duplicates_total: u64,
    pub expired_total: u64,
    pub dead_lettered_total: u64,
    pub purged_total: u64,
    pub moved_total: u64,
}

impl Counters {
    /// Adds another queue's counts.
    pub fn add(&mut self, other: &Counters) {
        let sums = [
            (&mut self.ready, other.ready),
            (&mut self.scheduled, other.scheduled),
            (&mut self.acquired, other.acquired),
            (&mut self.removing, other.removing),
            (&mut self.moving, other.moving),
            (&mut self.damaged, other.damaged),
            (&mut self.staged, other.staged),
            (&mut self.prepared_in, other.prepared_in),
            (&mut self.prepared_out, other.prepared_out),
            (&mut self.depth, other.depth),
            (&mut self.bytes, other.bytes),
            (&mut self.consumers, other.consumers),
            (&mut self.credit, other.credit),
            (&mut self.enqueued_total, other.enqueued_total),
            (&mut self.acknowledged_total, other.acknowledged_total),
            (&mut self.redelivered_total, other.redelivered_total),
            (&mut self.duplicates_total, other.duplicates_total),
            (&mut self.expired_total, other.expired_total),
            (&mut self.dead_lettered_total, other.dead_lettered_total),
            (&mut self.purged_total, other.purged_total),
            (&mut self.moved_total, other.moved_total),
        ];
        for (sum, part) in sums {
            *sum += part;
        }
    }
}

/// One queue as operators see it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueReport {
    /// Its id.
    pub id: QueueId,
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: QueueSettings,
    /// The shard that owns it.
    pub shard: u16,
    /// Its counts.
    pub counters: Counters,
    /// Age of the oldest entry, ms; `None` = empty.
    pub oldest_age_ms: Option<u64>,
    /// The limit that it has reached; `None` = it is not full.
    pub full: Option<Limit>,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Stable code.
    pub code: &'static str,
    /// One sentence.
    pub text: String,
}

/// One shard's figures; sums over shards are the node's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardReport {
    /// Open connections.
    pub connections: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Open links.
    pub links: u64,
    /// Queues owned.
    pub queues: u64,
    /// Sum over its queues.
    pub totals: Counters,
    /// Bytes of bodies in memory.
    pub memory_bytes: u64,
    /// The store's figures; the store is shared, so these are the node's already.
    pub store: StoreStatus,
    /// Transactions at home here.
    pub transactions: TxFigures,
    /// Queues with work of branches in doubt, those with most first; [`QUEUES_IN_DOUBT`] at most.
    pub in_doubt: Vec<QueueInDoubt>,
    /// Alarms.
    pub alarms: Vec<Alarm>,
}

/// How many queues are named for being in doubt, of a shard and of the node.
pub const QUEUES_IN_DOUBT: usize = 100;

/// What branches in doubt have in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueInDoubt {
    /// Its name.
    pub name: String,
    /// Messages that they add.
    pub prepared_in: u64,
    /// Messages that they remove.
    pub prepared_out: u64,
}

impl QueueInDoubt {
    /// Keeps the queues with most, in the order of how much, then of names.
    pub fn keep_most(queues: &mut Vec<QueueInDoubt>) {
        queues.sort_by(|a, b| {
            let most = |queue: &QueueInDoubt| queue.prepared_in + queue.prepared_out;
            most(b).cmp(&most(a)).then_with(|| a.name.cmp(&b.name))
        });
        queues.truncate(QUEUES_IN_DOUBT);
    }
}
