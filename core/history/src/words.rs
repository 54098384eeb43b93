//! The words of a history: names of fields and kinds of events. In JSON they are written out, in a binary file they are their numbers here, so
//! a word keeps its place for ever and new ones come last.

/// The name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    PackhorseHistory,
    Run,
    Process,
    Pid,
    Incarnation,
    Clock,
    MonoNs,
    WallNs,
    At,
    Event,
    Producer,
    Sequence,
    Queue,
    SizeBytes,
    Crc,
    Persistent,
    TtlMs,
    DelayMs,
    Priority,
    Tx,
    Reason,
    Consumer,
    Presettled,
    Filtered,
    Credit,
    DeliveryCount,
    Redelivered,
    CrcOk,
    Confirmed,
    DeliveryFailed,
    UndeliverableHere,
    Orderly,
    Quiet,
    Depth,
    Ready,
    Acquired,
    Enqueued,
    Acknowledged,
    DeadLettered,
    Change,
    Code,
    Kind,
    Target,
    Start,
    Xid,
    Xids,
    Broker,
    Value,
    Most,
    Operation,
    Deletes,
    Messages,
    Commit,
}

const KEYS: [(Key, &str); 53] = [
    (Key::PackhorseHistory, "packhorse_history"),
    (Key::Run, "run"),
    (Key::Process, "process"),
    (Key::Pid, "pid"),
    (Key::Incarnation, "incarnation"),
    (Key::Clock, "clock"),
    (Key::MonoNs, "mono_ns"),
    (Key::WallNs, "wall_ns"),
    (Key::At, "at"),
    (Key::Event, "event"),
    (Key::Producer, "producer"),
    (Key::Sequence, "sequence"),
    (Key::Queue, "queue"),
    (Key::SizeBytes, "size_bytes"),
    (Key::Crc, "crc"),
    (Key::Persistent, "persistent"),
    (Key::TtlMs, "ttl_ms"),
    (Key::DelayMs, "delay_ms"),
    (Key::Priority, "priority"),
    (Key::Tx, "tx"),
    (Key::Reason, "reason"),
    (Key::Consumer, "consumer"),
    (Key::Presettled, "presettled"),
    (Key::Filtered, "filtered"),
    (Key::Credit, "credit"),
    (Key::DeliveryCount, "delivery_count"),
    (Key::Redelivered, "redelivered"),
    (Key::CrcOk, "crc_ok"),
    (Key::Confirmed, "confirmed"),
    (Key::DeliveryFailed, "delivery_failed"),
    (Key::UndeliverableHere, "undeliverable_here"),
    (Key::Orderly, "orderly"),
    (Key::Quiet, "quiet"),
    (Key::Depth, "depth"),
    (Key::Ready, "ready"),
    (Key::Acquired, "acquired"),
    (Key::Enqueued, "enqueued"),
    (Key::Acknowledged, "acknowledged"),
    (Key::DeadLettered, "dead_lettered"),
    (Key::Change, "change"),
    (Key::Code, "code"),
    (Key::Kind, "kind"),
    (Key::Target, "target"),
    (Key::Start, "start"),
    (Key::Xid, "xid"),
    (Key::Xids, "xids"),
    (Key::Broker, "broker"),
    (Key::Value, "value"),
    (Key::Most, "most"),
    (Key::Operation, "operation"),
    (Key::Deletes, "deletes"),
    (Key::Messages, "messages"),
    (Key::Commit, "commit"),
];

impl Key {
    /// The word in a file.
    pub(crate) fn name(self) -> &'static str {
        KEYS[self as usize].1
    }

    /// The one with this number.
    pub(crate) fn from_number(number: u8) -> Option<Key> {
        KEYS.get(usize::from(number)).map(|(word, _)| *word)
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    SentOk,
    SentRejected,
    SentUnknown,
    Attach,
    Credit,
    Recv,
    Ack,
    Release,
    Reject,
    Modified,
    Detach,
    Expired,
    Dlq,
    Drained,
    Counters,
    Broker,
    Fault,
    Tick,
    Clock,
    End,
    TxBegin,
    CommitSent,
    CommitOk,
    CommitUnknown,
    RollbackOk,
    XaStart,
    XaEnd,
    XaPrepare,
    XaCommit,
    XaRollback,
    XaForget,
    RecoverList,
    Node,
    Host,
    Damaged,
    Survey,
    Present,
    Gauge,
    Detached,
    Purge,
    Move,
    Browser,
    Browsed,
    Decide,
}

const KINDS: [(Kind, &str); 45] = [
    (Kind::Send, "send"),
    (Kind::SentOk, "sent_ok"),
    (Kind::SentRejected, "sent_rejected"),
    (Kind::SentUnknown, "sent_unknown"),
    (Kind::Attach, "attach"),
    (Kind::Credit, "credit"),
    (Kind::Recv, "recv"),
    (Kind::Ack, "ack"),
    (Kind::Release, "release"),
    (Kind::Reject, "reject"),
    (Kind::Modified, "modified"),
    (Kind::Detach, "detach"),
    (Kind::Expired, "expired"),
    (Kind::Dlq, "dlq"),
    (Kind::Drained, "drained"),
    (Kind::Counters, "counters"),
    (Kind::Broker, "broker"),
    (Kind::Fault, "fault"),
    (Kind::Tick, "tick"),
    (Kind::Clock, "clock"),
    (Kind::End, "end"),
    (Kind::TxBegin, "tx_begin"),
    (Kind::CommitSent, "commit_sent"),
    (Kind::CommitOk, "commit_ok"),
    (Kind::CommitUnknown, "commit_unknown"),
    (Kind::RollbackOk, "rollback_ok"),
    (Kind::XaStart, "xa_start"),
    (Kind::XaEnd, "xa_end"),
    (Kind::XaPrepare, "xa_prepare"),
    (Kind::XaCommit, "xa_commit"),
    (Kind::XaRollback, "xa_rollback"),
    (Kind::XaForget, "xa_forget"),
    (Kind::RecoverList, "recover_list"),
    (Kind::Node, "node"),
    (Kind::Host, "host"),
    (Kind::Damaged, "damaged"),
    (Kind::Survey, "survey"),
    (Kind::Present, "present"),
    (Kind::Gauge, "gauge"),
    (Kind::Detached, "detached"),
    (Kind::Purge, "purge"),
    (Kind::Move, "move"),
    (Kind::Browser, "browser"),
    (Kind::Browsed, "browsed"),
    (Kind::Decide, "decide"),
];

impl Kind {
    /// The word in a file.
    pub(crate) fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// The one with this number.
    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        KINDS.get(usize::from(number)).map(|(word, _)| *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_at_its_number() {
        assert!(KEYS.iter().enumerate().all(|(number, (key, _))| *key as usize == number));
        assert!(KINDS.iter().enumerate().all(|(number, (kind, _))| *kind as usize == number));
    }
}
