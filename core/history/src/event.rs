//! Events: what one client process did and saw, one value each. `docs/formats/history.md` says when each is recorded.
//!
//! Owns the vocabulary only. Must not know: how events are written (`jsonl`) or judged (`checker`).
//!
//! One rule gives time its meaning: the clock is read **before** an act (`Send`, `Ack` unconfirmed, `Release`, `Detach`, …) and
//! **after** an observation (`SentOk`, `Recv`, `Ack` confirmed, …), and an act is in the file before its bytes go to the socket.

use std::fmt;

/// A message's name: who sent it and which one it was. Unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The producing link; a new number after each attach, unique over all processes of the run.
    pub producer: u32,
    /// Its number there; ascends in the order of sending. Gaps are legal.
    pub sequence: u64,
}

impl MessageId {
    /// A body that does not say whose it is, or that belongs to another run.
    pub const NONE: MessageId = MessageId { producer: u32::MAX, sequence: u64::MAX };

    /// A name from its two parts.
    pub fn new(producer: u32, sequence: u64) -> MessageId {
        MessageId { producer, sequence }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == MessageId::NONE { f.write_str("unknown") } else { write!(f, "{}/{}", self.producer, self.sequence) }
    }
}

/// What stands at the top of a file: one client process in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The run: the same in all files that are checked together, and in the bodies.
    pub run: u64,
    /// Name of the process, kept over its restarts.
    pub process: String,
    /// Its process id.
    pub pid: u32,
    /// Counts the lives of the process: 0, 1, 2 …
    pub incarnation: u32,
    /// Which monotonic clock: the machine's boot id. Files of one check share it.
    pub clock: String,
    /// The monotonic clock now, in nanoseconds.
    pub mono_ns: u64,
    /// The wall clock at the same instant, in nanoseconds since 1970.
    pub wall_ns: u64,
}

/// What the broker's process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerChange {
    /// It said that it is ready. An observation.
    Start,
    /// It is about to be killed. An act.
    Kill,
    /// It ended or is about to be told to end, with the exit code if there is one. An act if told, otherwise as early as is certain.
    Exit(Option<i32>),
}

/// A broker's counters of one queue; absent ones were not read. Signed, so that a negative one can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Nobody did anything from before these were read until after, and nothing was under way.
    pub quiet: bool,
    /// Messages in the queue, in whatever state.
    pub depth: Option<i64>,
    /// Those ready.
    pub ready: Option<i64>,
    /// Those with a consumer.
    pub acquired: Option<i64>,
    /// Messages ever taken, since the broker's process began.
    pub enqueued: Option<i64>,
    /// Messages ever acknowledged, since the broker's process began.
    pub acknowledged: Option<i64>,
    /// Messages that went to the dead-letter queue, since the broker's process began.
    pub dead_lettered: Option<i64>,
}

/// A verb of XA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XaVerb {
    /// `xa_start`
    Start,
    /// `xa_end`
    End,
    /// `xa_prepare`
    Prepare,
    /// `xa_commit`
    Commit,
    /// `xa_rollback`
    Rollback,
    /// `xa_forget`
    Forget,
}

/// One thing that a client did (an act) or saw (an observation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Act: a message goes out.
    Send {
        /// Which.
        message: MessageId,
        /// To where.
        queue: &'a str,
        /// Length of its body.
        size_bytes: u32,
        /// CRC-32C of its filler, as `body::fill` returned it.
        crc: u32,
        /// Whether it is to survive a crash.
        persistent: bool,
        /// Its time to live; 0: for ever.
        ttl_ms: u64,
        /// Delivery is asked for that much later; 0: at once.
        delay_ms: u64,
        /// 0 to 9.
        priority: u8,
        /// The transaction it is sent in.
        tx: Option<u64>,
    },
    /// Observation: the broker confirmed it.
    SentOk {
        /// Which.
        message: MessageId,
    },
    /// Observation: the broker refused it.
    SentRejected {
        /// Which.
        message: MessageId,
        /// The error it gave.
        reason: &'a str,
    },
    /// Observation: the connection died before an answer came. A send without any answer means the same.
    SentUnknown {
        /// Which.
        message: MessageId,
    },
    /// Act: a consuming link comes to be. Without this event a consumer's deliveries can be placed in time less well.
    Attach {
        /// A new number for each link, unique over all processes of the run.
        consumer: u32,
        /// From where.
        queue: &'a str,
        /// The broker forgets a delivery as it sends it.
        presettled: bool,
        /// It takes only some messages (a selector), so that nobody can say what it should get.
        filtered: bool,
    },
    /// Act: the link's credit becomes so much, counted from the deliveries recorded so far. After a drain: 0.
    Credit {
        /// Whose.
        consumer: u32,
        /// How many more deliveries may come.
        credit: u32,
    },
    /// Observation: a delivery arrived.
    Recv {
        /// Which message, by its body ([`MessageId::NONE`] if that says nothing usable).
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// Of which queue.
        queue: &'a str,
        /// The delivery count that came with it: earlier deliveries.
        delivery_count: u32,
        /// The flag that came with it; a protocol that has only the count says `delivery_count > 0`.
        redelivered: bool,
        /// The body is what its sender made.
        crc_ok: bool,
        /// The transaction it is received in.
        tx: Option<u64>,
    },
    /// Act (`confirmed` false): accepted. Observation (`confirmed` true): the broker's answer, so the acknowledgement is durable.
    Ack {
        /// Which message.
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// Whether this is the answer.
        confirmed: bool,
        /// The transaction it is acknowledged in.
        tx: Option<u64>,
    },
    /// Act: given back as unseen; its count stays.
    Release {
        /// Which message.
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// The transaction at whose commit that happens.
        tx: Option<u64>,
    },
    /// Act: rejected; it goes to the dead-letter queue.
    Reject {
        /// Which message.
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// The transaction at whose commit that happens.
        tx: Option<u64>,
    },
    /// Act: given back modified.
    Modified {
        /// Which message.
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// Its count rises.
        delivery_failed: bool,
        /// Never again to this link.
        undeliverable_here: bool,
        /// The transaction at whose commit that happens.
        tx: Option<u64>,
    },
    /// The link ends. `orderly`, an act: the client closes it, and what is not settled goes back as unseen. Otherwise an observation:
    /// the connection is gone.
    Detach {
        /// Whose.
        consumer: u32,
        /// Whether the client asked for it.
        orderly: bool,
        /// Observation, after the act: the broker's answer came, and every delivery that came before it is recorded. Without this
        /// nobody knows what was on its way, and I5 looks away from what may have gone back unread.
        confirmed: bool,
    },
    /// Observation, after an orderly `Detach`: the broker has answered it, or the end of the link's session or connection, and deliveries
    /// that came before are not recorded. Nothing that was sent later can have been among them.
    Detached {
        /// Whose.
        consumer: u32,
    },
    /// Observation: found in the expiry queue.
    Expired {
        /// Which message.
        message: MessageId,
    },
    /// Observation: found in the dead-letter queue.
    Dlq {
        /// Which message.
        message: MessageId,
        /// The reason that it carries.
        reason: &'a str,
    },
    /// Observation with the time *before* the question: the queue holds nothing in any state.
    Drained {
        /// Which queue.
        queue: &'a str,
    },
    /// Observation with the time *before* the question: the broker's counters.
    Counters {
        /// Of which queue.
        queue: &'a str,
        /// What it said.
        counters: Counters,
    },
    /// What became of the broker, where there is one.
    Broker {
        /// What.
        change: BrokerChange,
    },
    /// What became of one of several brokers.
    Node {
        /// Its name.
        broker: &'a str,
        /// What.
        change: BrokerChange,
    },
    /// A queue is a queue of this broker: what befalls another one does not concern it.
    Host {
        /// Which queue.
        queue: &'a str,
        /// The broker's name.
        broker: &'a str,
    },
    /// Act of whoever injects faults: the stored body of this message is damaged, or cannot be read. It may be missing from here on; it
    /// must not come with another body.
    Damaged {
        /// Which.
        message: MessageId,
    },
    /// A look into all queues of all brokers at a time when nothing is under way: begins (`start`, an act), or is complete.
    Survey {
        /// Begins, or ends.
        start: bool,
    },
    /// Observation within a survey: the message is there.
    Present {
        /// Which.
        message: MessageId,
        /// Where it was found.
        queue: &'a str,
    },
    /// Observation: how much of something there is, and the most that settings allow.
    Gauge {
        /// Of what: `memory`, `handles`, `disk` …
        kind: &'a str,
        /// Whose: a broker's name …
        target: &'a str,
        /// How much.
        value: u64,
        /// The most.
        most: u64,
    },
    /// Act (without `messages`): an operator removes from a queue all messages that nobody holds; with `deletes` the queue itself with
    /// everything in it. Observation (with them): that is done, and so many it was; 0 too if it was refused. Without an answer nobody
    /// knows.
    Purge {
        /// A number for it, unique over all processes of the run.
        operation: u64,
        /// From which queue.
        queue: &'a str,
        /// The queue goes as well.
        deletes: bool,
        /// How many messages went.
        messages: Option<u64>,
    },
    /// The same of an operator who moves ready messages, oldest first, to the end of another queue.
    Move {
        /// A number for it, unique over all processes of the run.
        operation: u64,
        /// From which queue.
        queue: &'a str,
        /// To which.
        target: &'a str,
        /// How many messages were moved.
        messages: Option<u64>,
    },
    /// Act: a browsing link comes to be, which shows what is in the queue and takes nothing.
    Browser {
        /// A new number for each link, unique over all consuming and browsing links of the run.
        consumer: u32,
        /// Of which queue.
        queue: &'a str,
    },
    /// Observation: a browsing link shows a message.
    Browsed {
        /// Which message, by its body.
        message: MessageId,
        /// On which link.
        consumer: u32,
        /// The body is what its sender made.
        crc_ok: bool,
    },
    /// A fault begins (`start`) or is over.
    Fault {
        /// What kind: `pause`, `partition`, `disk-full` …
        kind: &'a str,
        /// What it hits: `broker`, the name of a process, a link …
        target: &'a str,
        /// Begins, or ends.
        start: bool,
    },
    /// Observation: the process runs and has recorded everything that had reached it. Ten a second from an idle client let I9 see.
    Tick,
    /// Both clocks once more: after a step of the wall clock, or now and then.
    Clock {
        /// Nanoseconds since 1970 at the event's time.
        wall_ns: u64,
    },
    /// The last event of a process that ends in order.
    End,
    /// Act: a transaction begins, or a branch of a distributed one.
    TxBegin {
        /// A number for it, unique over all processes of the run. Whoever works in it, from whatever process, names this number.
        tx: u64,
        /// The branch, as in `Xa`; no two transactions of a run have the same. `None`: a local transaction.
        xid: Option<&'a str>,
        /// The broker that has it, where there are several.
        broker: Option<&'a str>,
    },
    /// Act: commit of a local transaction is asked for.
    CommitSent {
        /// Of which.
        tx: u64,
    },
    /// Observation: committed, by the answer to the commit, or, after `CommitUnknown`, to the question what became of it.
    CommitOk {
        /// Which.
        tx: u64,
    },
    /// Observation: the connection died before the answer.
    CommitUnknown {
        /// Of which.
        tx: u64,
    },
    /// Observation: rolled back, by the answer to whatever was asked.
    RollbackOk {
        /// Which.
        tx: u64,
    },
    /// An XA verb: an act without `code`, its answer with it, in the same file.
    Xa {
        /// Which.
        verb: XaVerb,
        /// The branch: format id, global id and qualifier, in hexadecimal, with colons between.
        xid: &'a str,
        /// The answer.
        code: Option<i32>,
    },
    /// Act (without `xids`): all branches in doubt are asked for. Observation (with them): the whole list.
    RecoverList {
        /// The branches as in `Xa`, with blanks between.
        xids: Option<&'a str>,
        /// Of which broker, where there are several.
        broker: Option<&'a str>,
    },
    /// An operator decides a branch in doubt, whatever its transaction manager will want: an act without `code`, its answer with it, in
    /// the same file.
    Decide {
        /// The branch, as in `Xa`.
        xid: &'a str,
        /// To commit it, or else to roll it back.
        commit: bool,
        /// 0 if it was done, else the code of XA that says why not.
        code: Option<i32>,
    },
}
