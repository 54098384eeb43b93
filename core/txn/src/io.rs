//! What goes into a home and what comes out.
//!
//! Must not know: how it is handled. An [`Effect`] is at most 64 bytes; the caller reuses its vector.

use crate::state::Verb;
use crate::{Cause, Code, Control, LostPart, Page, Part, Refusal, ReplyTo};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use packhorse_model::{ClientSession, ConnectionId, Now, Purpose, QueueId, Resolution, Token, TxnId, Xid};
use packhorse_store::Ticket;

/// What one turn of the shard lends.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The turn's time.
    pub now: Now,
    /// The same as broker time, ms.
    pub broker_ms: u64,
    /// The ticket that the turn's batch will get: that of every record written in this turn.
    pub ticket: Ticket,
}

/// What the asker of a start says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Timeout of a branch that begins, ms; 0: the default.
    pub timeout_ms: u64,
    /// The asker has work in a local transaction.
    pub local_work: bool,
    /// The client, for operators.
    pub client: Arc<str>,
}

/// Work that goes to a queue. Told before any later verb of the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The transaction.
    pub txn: TxnId,
    /// Who works.
    pub control: Control,
    /// In which queue.
    pub queue: QueueId,
    /// How much.
    pub part: Part,
    /// It is on its way to the queue, which must be told if it is refused. False: it goes there only if it is not refused.
    pub sent: bool,
}

/// Which answers of `recover` are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// XA's flags: 0 goes on, `0x0100_0000` begins, `0x0080_0000` ends. The home keeps the place.
    Flags(u32),
    /// After this one; the asker keeps the place.
    After(Option<Xid>),
}

/// What an operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Commit it.
    Commit,
    /// Roll it back.
    Rollback,
    /// Forget that it was decided.
    Forget,
    /// Roll back the part in one queue.
    Force(QueueId),
}

/// A queue's answer. It has closed its part: nothing is added to it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gathered<P> {
    /// Its part.
    Ready {
        /// Operations, or numbers.
        part: P,
        /// Whether anything in it must survive a crash.
        persistent: bool,
        /// Messages in it that do not survive one.
        volatile: u64,
    },
    /// Something in it failed.
    Failed(Cause),
    /// The queue is gone.
    Gone,
}

/// How an operator's decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heuristic {
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
    /// A part rolled back, the rest as the decision says.
    Mixed,
    /// The part in this queue is rolled back, the rest stays prepared.
    PartRolledBack(QueueId),
}

/// Whether the queues' parts become real. Carried by each record that ends a prepared branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// They do.
    Commit,
    /// They do not.
    Rollback,
}

/// A record for the store. Parts are in the order of queue ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<P> {
    /// Operations and decision in one. With `xid`, a branch committed in one phase, to be remembered.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// The operations.
        parts: Vec<(QueueId, P)>,
        /// Names the commit.
        token: Option<Token>,
        /// Names the branch.
        xid: Option<Xid>,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// The branch is prepared.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// The branch.
        xid: Xid,
        /// The operations.
        parts: Vec<(QueueId, P)>,
        /// What they are in figures.
        figures: Vec<(QueueId, Part)>,
        /// The client.
        client: Arc<str>,
        /// Wall clock, ms.
        wall_ms: i64,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// The prepared branch is decided, and to be remembered.
    Decide {
        /// The branch.
        xid: Xid,
        /// How.
        decision: Decision,
        /// Numbers drawn; none for a rollback.
        parts: Vec<(QueueId, P)>,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// The same by an operator, or by the transaction manager after an operator rolled back a part: kept until it is forgotten.
    Heuristic {
        /// The branch.
        xid: Xid,
        /// How it ended.
        outcome: Heuristic,
        /// What becomes of the parts that it has.
        decision: Decision,
        /// Numbers drawn; none for a rollback.
        parts: Vec<(QueueId, P)>,
        /// Who.
        who: String,
        /// Why.
        reason: String,
        /// Wall clock, ms.
        wall_ms: i64,
        /// Broker time, ms.
        at_ms: u64,
    },
    /// Neither the branch nor a memory of it is kept.
    Forget {
        /// The branch.
        xid: Xid,
    },
}

/// What a start recovers. Memories come in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// A branch that is prepared or heuristically decided.
    Branch(RecoveredBranch),
    /// A branch that is completed and remembered.
    Completed {
        /// Which.
        xid: Xid,
        /// Committed, or rolled back.
        decision: Decision,
        /// Broker time, ms.
        at_ms: u64,
    },
}

/// See [`Recovered::Branch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredBranch {
    /// Its id, as queues recover it.
    pub txn: TxnId,
    /// Its name.
    pub xid: Xid,
    /// Its client.
    pub client: Arc<str>,
    /// Wall clock of the prepare, ms.
    pub wall_ms: i64,
    /// Broker time of the prepare, ms.
    pub at_ms: u64,
    /// Its parts that survived.
    pub parts: Vec<(QueueId, Part)>,
    /// Parts that an operator rolled back.
    pub lost: Vec<LostPart>,
    /// Operations that were in it and did not survive, being of messages that are not persistent.
    pub volatile: u64,
    /// An operator's decision.
    pub decided: Option<(Heuristic, Box<Audit>)>,
}

/// An operator's decision, for the log. Durable when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The branch.
    pub xid: Xid,
    /// What.
    pub act: Act,
    /// Who.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Wall clock, ms.
    pub wall_ms: i64,
}

/// All that can happen to a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<P> {
    /// A local transaction begins. Answer: [`Reply::Declared`] or [`Reply::Refused`].
    Declare {
        /// The asker.
        to: ReplyTo,
        /// The client, for operators.
        client: Arc<str>,
    },
    /// A transaction ends: commit, or with `fail` rollback. Of a branch it is the end of the asker's work and a commit in one
    /// phase, or a rollback. Answer: [`Reply::Committed`], [`Reply::RolledBack`], [`Reply::Unknown`], [`Reply::InDoubt`]; of a branch,
    /// [`Reply::Code`].
    Discharge {
        /// The asker.
        to: ReplyTo,
        /// The transaction.
        txn: TxnId,
        /// Roll back.
        fail: bool,
        /// Names the commit; local transactions only.
        token: Option<Token>,
    },
    /// A verb of XA: those from [`Verb::Start`] to [`Verb::Forget`]. Answer: [`Reply::Started`] or [`Reply::Code`].
    Xa {
        /// The asker.
        to: ReplyTo,
        /// The branch.
        xid: Xid,
        /// The verb.
        verb: Verb,
        /// With a start, join or resume.
        start: Option<Start>,
    },
    /// `recover`. Answer: [`Reply::Xids`] or [`Reply::Code`].
    Recover {
        /// The asker.
        to: ReplyTo,
        /// Which.
        scan: Scan,
        /// At most so many; 0 is taken for 1.
        max: u32,
    },
    /// Work in a transaction. Answer only if refused: [`Effect::Refused`].
    Work(Work),
    /// An operation in a queue failed, with which the transaction cannot be committed.
    Failed {
        /// The transaction.
        txn: TxnId,
        /// Why.
        cause: Cause,
    },
    /// The answer to [`Effect::Gather`].
    Gathered {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
        /// The answer.
        answer: Gathered<P>,
    },
    /// The answer to [`Effect::Admit`].
    Admitted {
        /// The transaction.
        txn: TxnId,
        /// The commit may go on.
        granted: bool,
    },
    /// The store says so.
    Durable {
        /// All tickets of this shard up to here.
        up_to: Ticket,
    },
    /// The store has failed: the process must end. Whoever waits for a record is told that the outcome is not known.
    StoreFailed,
    /// The disk has no room, or has room again.
    Space {
        /// There is none.
        full: bool,
    },
    /// A link to the coordinator, or a session, has ended: its local transactions are rolled back, and branches that it was
    /// associated with.
    ControlLost {
        /// Which.
        control: Control,
    },
    /// A connection has ended: its local transactions are rolled back, and all branches it worked in that are not prepared.
    ConnectionLost {
        /// Which.
        connection: ConnectionId,
    },
    /// An operator decides. Answer: [`Reply::Code`]: `XA_OK` when the decision is durable, else why not (`XAER_INVAL`: a decision
    /// needs a name and a reason).
    Operate {
        /// The asker.
        to: ReplyTo,
        /// The branch.
        xid: Xid,
        /// What.
        act: Act,
        /// Who.
        who: String,
        /// Why.
        reason: String,
    },
    /// Something from before this start; before everything else.
    Recovered(Box<Recovered>),
    /// Nothing but the time.
    Tick,
}

/// What a home answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The transaction has begun.
    Declared(TxnId),
    /// `XA_OK` to a start, join or resume: the id to work under.
    Started(TxnId),
    /// A code of XA.
    Code(Code),
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack(Cause),
    /// There is no such transaction.
    Unknown,
    /// A limit; with XA `XAER_RMERR`.
    Refused(Box<Refusal>),
    /// The store failed in between; with XA `XAER_RMFAIL`.
    InDoubt,
    /// A page of `recover`.
    Xids(Box<Page>),
}

impl Reply {
    /// The code that XA would give.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Reply::Declared(_) | Reply::Started(_) | Reply::Committed | Reply::Xids(_) => Code::Ok,
            Reply::Code(code) => *code,
            Reply::RolledBack(cause) => cause.code(),
            Reply::Unknown => Code::NotThere,
            Reply::Refused(_) => Code::ResourceError,
            Reply::InDoubt => Code::ResourceFailure,
        }
    }
}

/// Why work is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWork {
    /// There is no such transaction, or it takes no work any more, or none of this asker.
    Unknown,
    /// It can only be rolled back, and is undone already.
    RolledBack(Cause),
    /// It was undone just now, for this work would have gone beyond a limit.
    Limit(Box<Refusal>),
}

/// What a home wants from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<P> {
    /// Answer.
    Reply {
        /// Whom.
        to: ReplyTo,
        /// What.
        reply: Reply,
    },
    /// Tell that work was refused.
    Refused {
        /// Whom.
        control: Control,
        /// The transaction.
        txn: TxnId,
        /// Why.
        why: NoWork,
    },
    /// Ask the queue for its part, once it has got so many operations of the transaction in all. Answer: [`Input::Gathered`].
    Gather {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
        /// How many.
        operations: u64,
        /// What for.
        purpose: Purpose,
    },
    /// Ask the client sessions' table whether this commit may go on. Answer: [`Input::Admitted`].
    Admit {
        /// The transaction.
        txn: TxnId,
        /// The commit's number.
        counter: u64,
        /// The session.
        session: ClientSession,
    },
    /// Tell that table how a commit that was let in has ended.
    Ended {
        /// The commit's number.
        counter: u64,
        /// The session.
        session: ClientSession,
        /// Durably, or else never.
        committed: bool,
    },
    /// Put this into the turn's batch.
    Write(Box<Record<P>>),
    /// Tell the queue. Of operations that have not come there yet, so many as are missing are dropped when they come; only a
    /// rollback can be ahead of them.
    Apply {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
        /// Of how many operations.
        operations: u64,
        /// What.
        resolution: Resolution,
    },
    /// Tell the queue that so many operations were refused that come there all the same. What the transaction has there and was not handed
    /// over is made of such operations only, and goes; a part that was handed over stays as it is.
    Drop {
        /// The transaction.
        txn: TxnId,
        /// The queue.
        queue: QueueId,
        /// How many.
        operations: u64,
    },
    /// An operator's decision is durable: for the log.
    Audit(Box<Audit>),
    /// A branch was committed of which this many operations were lost by a crash: for the log.
    VolatileLost {
        /// Which.
        xid: Xid,
        /// How many.
        count: u64,
    },
}

const _: () = assert!(core::mem::size_of::<Effect<Box<[u64]>>>() <= 64, "an effect is at most 64 bytes");
