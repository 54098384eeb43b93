//! The codes of XA, and why a transaction was rolled back.

use crate::Limit;
use core::fmt;

/// What a verb of XA answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i8)]
pub enum Code {
    /// `XA_OK`.
    Ok = 0,
    /// `XA_RDONLY`: there was nothing to prepare, the branch is gone.
    ReadOnly = 3,
    /// `XA_RETRY`: nothing was decided, ask again.
    Retry = 4,
    /// `XA_HEURMIX`: a part was committed and a part rolled back.
    HeuristicMixed = 5,
    /// `XA_HEURRB`: an operator rolled it back.
    HeuristicRolledBack = 6,
    /// `XA_HEURCOM`: an operator committed it.
    HeuristicCommitted = 7,
    /// `XA_HEURHAZ`; never answered by this broker.
    HeuristicHazard = 8,
    /// `XA_NOMIGRATE`; never answered by this broker.
    NoMigrate = 9,
    /// `XA_RBROLLBACK`: rolled back, as asked.
    RolledBack = 100,
    /// `XA_RBCOMMFAIL`: a connection that worked in it was lost.
    RolledBackCommunication = 101,
    /// `XA_RBDEADLOCK`; never answered by this broker.
    RolledBackDeadlock = 102,
    /// `XA_RBINTEGRITY`: something in it was not as the application assumed.
    RolledBackIntegrity = 103,
    /// `XA_RBOTHER`.
    RolledBackOther = 104,
    /// `XA_RBPROTO`; never answered by this broker.
    RolledBackProtocol = 105,
    /// `XA_RBTIMEOUT`: it took too long.
    RolledBackTimeout = 106,
    /// `XA_RBTRANSIENT`: it may succeed at another time.
    RolledBackTransient = 107,
    /// `XAER_ASYNC`; never answered by this broker.
    Async = -2,
    /// `XAER_RMERR`: refused by a limit of the broker.
    ResourceError = -3,
    /// `XAER_NOTA`: there is no such branch.
    NotThere = -4,
    /// `XAER_INVAL`: the question makes no sense.
    Invalid = -5,
    /// `XAER_PROTO`: not in this state.
    Protocol = -6,
    /// `XAER_RMFAIL`: the broker is going down, and the outcome is not known.
    ResourceFailure = -7,
    /// `XAER_DUPID`: the branch is there already.
    Duplicate = -8,
    /// `XAER_OUTSIDE`: the asker has work in a local transaction.
    Outside = -9,
}

impl Code {
    /// All of them.
    pub const ALL: [Code; 24] = [
        Code::Ok,
        Code::ReadOnly,
        Code::Retry,
        Code::HeuristicMixed,
        Code::HeuristicRolledBack,
        Code::HeuristicCommitted,
        Code::HeuristicHazard,
        Code::NoMigrate,
        Code::RolledBack,
        Code::RolledBackCommunication,
        Code::RolledBackDeadlock,
        Code::RolledBackIntegrity,
        Code::RolledBackOther,
        Code::RolledBackProtocol,
        Code::RolledBackTimeout,
        Code::RolledBackTransient,
        Code::Async,
        Code::ResourceError,
        Code::NotThere,
        Code::Invalid,
        Code::Protocol,
        Code::ResourceFailure,
        Code::Duplicate,
        Code::Outside,
    ];

    /// The number that XA gives it.
    #[must_use]
    pub fn wire(self) -> i32 {
        i32::from(self as i8)
    }

    /// The name that XA gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "XA_OK",
            Code::ReadOnly => "XA_RDONLY",
            Code::Retry => "XA_RETRY",
            Code::HeuristicMixed => "XA_HEURMIX",
            Code::HeuristicRolledBack => "XA_HEURRB",
            Code::HeuristicCommitted => "XA_HEURCOM",
            Code::HeuristicHazard => "XA_HEURHAZ",
            Code::NoMigrate => "XA_NOMIGRATE",
            Code::RolledBack => "XA_RBROLLBACK",
            Code::RolledBackCommunication => "XA_RBCOMMFAIL",
            Code::RolledBackDeadlock => "XA_RBDEADLOCK",
            Code::RolledBackIntegrity => "XA_RBINTEGRITY",
            Code::RolledBackOther => "XA_RBOTHER",
            Code::RolledBackProtocol => "XA_RBPROTO",
            Code::RolledBackTimeout => "XA_RBTIMEOUT",
            Code::RolledBackTransient => "XA_RBTRANSIENT",
            Code::Async => "XAER_ASYNC",
            Code::ResourceError => "XAER_RMERR",
            Code::NotThere => "XAER_NOTA",
            Code::Invalid => "XAER_INVAL",
            Code::Protocol => "XAER_PROTO",
            Code::ResourceFailure => "XAER_RMFAIL",
            Code::Duplicate => "XAER_DUPID",
            Code::Outside => "XAER_OUTSIDE",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a transaction was rolled back, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Whoever may do so asked for it.
    Asked,
    /// The application said that its work failed.
    WorkFailed,
    /// A connection or session that worked in it was lost.
    Lost,
    /// It took too long.
    Timeout,
    /// It acknowledged a delivery that it did not hold any more.
    Stale,
    /// A queue or the disk had no room.
    Full,
    /// Bodies of messages that wait in transactions fill their part of the memory.
    Memory,
    /// A queue with work in it was deleted.
    QueueGone,
    /// A message of it is damaged, or another operation in it failed.
    OperationFailed,
    /// It has reached a limit of the broker.
    Limit(Limit),
    /// The outcome of its commit was asked for before it had one, so that it must not get another.
    Fenced,
    /// It sends a message again that may have been stored: nobody knows any more.
    NumberLost,
    /// It sends a message again that is in another transaction, which is not decided.
    NumberUndecided,
}

impl Cause {
    /// What XA calls it.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Cause::Asked | Cause::WorkFailed => Code::RolledBack,
            Cause::Lost => Code::RolledBackCommunication,
            Cause::Timeout => Code::RolledBackTimeout,
            Cause::Stale => Code::RolledBackIntegrity,
            Cause::Full | Cause::Memory | Cause::NumberUndecided => Code::RolledBackTransient,
            Cause::QueueGone | Cause::OperationFailed | Cause::Limit(_) | Cause::Fenced | Cause::NumberLost => {
                Code::RolledBackOther
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Asked => "it was rolled back",
            Cause::WorkFailed => "the application said that its work failed",
            Cause::Lost => "a connection or session that worked in it was lost",
            Cause::Timeout => "it took longer than its timeout",
            Cause::Stale => "it acknowledged a delivery that it did not hold any more",
            Cause::Full => "there was no room for a message in it",
            Cause::Memory => "messages in open transactions take up the memory that there is for them (transactions.max_memory_bytes): send it again when others have ended, or in smaller transactions",
            Cause::QueueGone => "a queue with work in it was deleted",
            Cause::OperationFailed => "an operation in it failed",
            Cause::Limit(limit) => return write!(f, "it reached the limit of {limit}"),
            Cause::Fenced => "its outcome was asked for before it was committed",
            Cause::NumberLost => "a message in it may have been stored before, and its number is not known any more: look whether it is there before it is sent under a new one",
            Cause::NumberUndecided => "a message in it is in another transaction, which is not decided: send it again when that is over",
        })
    }
}
