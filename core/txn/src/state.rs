//! The state machine of an XA branch (`spec/transactions.md`, "XA branch states"): the one function that says what a verb does.
//!
//! Must not know: queues, records, who waits. `docs/states/branch.md` is generated from here.

use crate::{Cause, Code, Completed, Purpose};

/// The state of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There is none.
    None,
    /// On its way from none to associated: its xid was used before, and the memory of that is being forgotten.
    Starting,
    /// Somebody works in it.
    Associated,
    /// Nobody works in it, and somebody will resume.
    Suspended,
    /// Everybody has ended the work in it.
    Idle,
    /// It can only be rolled back. Its work is undone already.
    RollbackOnly,
    /// On its way from idle to prepared.
    Preparing,
    /// On its way from idle to committed, in one phase.
    Committing,
    /// In doubt: it survives everything until it is decided.
    Prepared,
    /// On its way from prepared to an outcome, of whosever decision.
    Deciding,
    /// An operator committed it.
    HeuristicCommitted,
    /// An operator rolled it back.
    HeuristicRolledBack,
    /// A part was rolled back by an operator, and the rest decided.
    HeuristicMixed,
    /// On its way from a heuristic outcome to none.
    Forgetting,
}

impl State {
    /// All of them.
    pub const ALL: [State; 14] = [
        State::None,
        State::Starting,
        State::Associated,
        State::Suspended,
        State::Idle,
        State::RollbackOnly,
        State::Preparing,
        State::Committing,
        State::Prepared,
        State::Deciding,
        State::HeuristicCommitted,
        State::HeuristicRolledBack,
        State::HeuristicMixed,
        State::Forgetting,
    ];

    /// Whether a record is being made whose flush everybody waits for.
    #[must_use]
    pub fn on_its_way(self) -> bool {
        matches!(self, State::Starting | State::Preparing | State::Committing | State::Deciding | State::Forgetting)
    }

    /// Whether `recover` lists it: from the flush that prepares it until the flush that ends it.
    #[must_use]
    pub fn listed(self) -> bool {
        matches!(self, State::Prepared | State::Deciding | State::Forgetting) || self.heuristic().is_some()
    }

    /// The code of a heuristic outcome.
    #[must_use]
    pub fn heuristic(self) -> Option<Code> {
        Some(match self {
            State::HeuristicCommitted => Code::HeuristicCommitted,
            State::HeuristicRolledBack => Code::HeuristicRolledBack,
            State::HeuristicMixed => Code::HeuristicMixed,
            _ => return None,
        })
    }

    /// The stable word for operators.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::None => "none",
            State::Starting => "starting",
            State::Associated => "associated",
            State::Suspended => "suspended",
            State::Idle => "idle",
            State::RollbackOnly => "rollback-only",
            State::Preparing => "preparing",
            State::Committing => "committing",
            State::Prepared => "prepared",
            State::Deciding => "deciding",
            State::HeuristicCommitted => "heuristically-committed",
            State::HeuristicRolledBack => "heuristically-rolled-back",
            State::HeuristicMixed => "heuristically-mixed",
            State::Forgetting => "forgetting",
        }
    }
}

/// What can happen to a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// `start(TMNOFLAGS)`
    Start,
    /// `start(TMJOIN)`
    Join,
    /// `start(TMRESUME)`
    Resume,
    /// `end(TMSUCCESS)`
    End,
    /// `end(TMSUSPEND)`
    Suspend,
    /// `end(TMFAIL)`
    Fail,
    /// `prepare`
    Prepare,
    /// `commit`, the second of two phases
    Commit,
    /// `commit(TMONEPHASE)`
    CommitOnePhase,
    /// `rollback`
    Rollback,
    /// `forget`
    Forget,
    /// An operator commits.
    OperatorCommit,
    /// An operator rolls back.
    OperatorRollback,
    /// An operator forgets.
    OperatorForget,
    /// An operator's force rolls back the part in one queue.
    Force,
    /// A connection or session that worked in it is lost.
    Lose,
    /// Its time is over.
    Timeout,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 17] = [
        Verb::Start,
        Verb::Join,
        Verb::Resume,
        Verb::End,
        Verb::Suspend,
        Verb::Fail,
        Verb::Prepare,
        Verb::Commit,
        Verb::CommitOnePhase,
        Verb::Rollback,
        Verb::Forget,
        Verb::OperatorCommit,
        Verb::OperatorRollback,
        Verb::OperatorForget,
        Verb::Force,
        Verb::Lose,
        Verb::Timeout,
    ];
}

/// The asker's own association with the branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mine {
    /// There is none.
    #[default]
    None,
    /// It works in it.
    Active,
    /// It has suspended its work.
    Suspended,
}

/// What else the answer depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The asker's association. With [`Verb::End`] and [`Verb::Fail`] on a suspended branch, of a stranger: that which it ends.
    pub mine: Mine,
    /// There are other active associations. With [`Verb::Lose`], of others than those that are lost.
    pub others_active: bool,
    /// There are other suspended ones, likewise.
    pub others_suspended: bool,
    /// There is work in it.
    pub work: bool,
    /// Something in it failed; or, of a rollback-only one, why.
    pub cause: Option<Cause>,
    /// What the memory of completed branches holds, when there is no branch.
    pub memory: Option<Completed>,
    /// A start would bring that memory back.
    pub memory_durable: bool,
    /// The disk has no room.
    pub full: bool,
    /// With [`Verb::Force`]: it has a part in that queue.
    pub has_part: bool,
}

/// What is done besides the change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing.
    Nothing,
    /// The branch begins, the asker in it.
    Begin,
    /// The asker works in it.
    Associate,
    /// The asker's association ends, if it has one.
    Disassociate,
    /// The asker's association rests.
    Suspend,
    /// Its work is undone; the asker's association ends, if it has one.
    Undo,
    /// Queues are asked for their parts, for a record.
    Gather(Purpose),
    /// A record is written that needs nothing from queues.
    Write,
}

/// What a verb does to a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The answer; `None`: later, when the record is durable.
    pub code: Option<Code>,
    /// State after.
    pub to: State,
    /// What is done.
    pub deed: Deed,
    /// What the memory of completed branches learns.
    pub remember: Option<Completed>,
}

/// Decides what `verb` does to a branch in `state`; `None`: it waits until the branch is not on its way any more.
#[must_use]
pub fn transition(state: State, verb: Verb, facts: &Facts) -> Option<Step> {
    use State as S;
    use Verb as V;
    let stay = |code| Step { code: Some(code), to: state, deed: Deed::Nothing, remember: None };
    let go = |code, to, deed| Step { code: Some(code), to, deed, remember: None };
    let later = |to, deed| Step { code: None, to, deed, remember: None };
    let end = |code, deed, how| Step { code: Some(code), to: S::None, deed, remember: Some(how) };
    let undo = |cause: Cause| end(cause.code(), Deed::Undo, Completed::RolledBack(cause));
    let rest = match (facts.others_active, facts.others_suspended) {
        (true, _) => S::Associated,
        (false, true) => S::Suspended,
        (false, false) => S::Idle,
    };
    let shared = facts.others_active || facts.others_suspended;
    let why = facts.cause.unwrap_or(Cause::OperationFailed);
    Some(match (state, verb) {
        // No timer touches what is on its way, nor what is prepared, nor what has had its time.
        (S::Starting | S::Preparing | S::Committing | S::Deciding | S::Forgetting, V::Timeout) => stay(Code::Ok),
        (S::Starting | S::Preparing | S::Committing | S::Deciding | S::Forgetting, _) => return None,

        (S::None, V::Start) if facts.memory_durable => later(S::Starting, Deed::Begin),
        (S::None, V::Start) => go(Code::Ok, S::Associated, Deed::Begin),
        (S::None, V::Prepare | V::CommitOnePhase) if let Some(Completed::RolledBack(cause)) = facts.memory => {
            stay(cause.code())
        }
        (S::None, V::Commit | V::CommitOnePhase) if facts.memory == Some(Completed::Committed) => stay(Code::Ok),
        (S::None, V::Rollback) if matches!(facts.memory, Some(Completed::RolledBack(_))) => stay(Code::Ok),
        (S::None, V::Lose | V::Timeout) => stay(Code::Ok),
        (S::None, _) => stay(Code::NotThere),

        (_, V::Start) => stay(Code::Duplicate),

        (S::Associated | S::Idle, V::Join) => go(Code::Ok, S::Associated, Deed::Associate),
        (S::Suspended, V::Resume) => go(Code::Ok, S::Associated, Deed::Associate),
        (S::RollbackOnly, V::Join | V::Resume) => stay(why.code()),
        (_, V::Join | V::Resume) => stay(Code::Protocol),

        (S::Associated | S::Suspended, V::End | V::Suspend | V::Fail) if facts.mine == Mine::None => {
            stay(Code::Protocol)
        }
        (S::Associated | S::Suspended, V::End) => go(Code::Ok, rest, Deed::Disassociate),
        (S::Associated, V::Suspend) if facts.mine == Mine::Active => {
            go(Code::Ok, if facts.others_active { S::Associated } else { S::Suspended }, Deed::Suspend)
        }
        (S::Associated | S::Suspended, V::Fail) => go(Code::Ok, S::RollbackOnly, Deed::Undo),
        (S::RollbackOnly, V::End | V::Suspend | V::Fail) => go(why.code(), state, Deed::Disassociate),
        (_, V::End | V::Suspend | V::Fail) => stay(Code::Protocol),

        (S::Idle | S::RollbackOnly, V::Prepare | V::CommitOnePhase) if let Some(cause) = facts.cause => undo(cause),
        (S::Idle, V::Prepare) if !facts.work => {
            Step { remember: None, ..end(Code::ReadOnly, Deed::Nothing, Completed::Committed) }
        }
        (S::Idle, V::CommitOnePhase) if !facts.work => end(Code::Ok, Deed::Nothing, Completed::Committed),
        (S::Idle, V::Prepare) => later(S::Preparing, Deed::Gather(Purpose::Prepare)),
        (S::Idle, V::CommitOnePhase) => later(S::Committing, Deed::Gather(Purpose::Commit)),
        (S::Idle, V::Rollback) => end(Code::Ok, Deed::Undo, Completed::RolledBack(Cause::Asked)),
        (S::RollbackOnly, V::Rollback) => end(Code::Ok, Deed::Undo, Completed::RolledBack(why)),

        (S::Prepared, V::Prepare) => stay(Code::Ok),
        (S::Prepared, V::Commit) if facts.full => stay(Code::Retry),
        (S::Prepared, V::Commit | V::OperatorCommit) => later(S::Deciding, Deed::Gather(Purpose::Decide)),
        (S::Prepared, V::Rollback | V::OperatorRollback) => later(S::Deciding, Deed::Write),
        (S::Prepared, V::Force) if facts.has_part => later(S::Deciding, Deed::Write),

        (
            S::HeuristicCommitted | S::HeuristicRolledBack | S::HeuristicMixed,
            V::Commit | V::Rollback | V::OperatorCommit | V::OperatorRollback,
        ) => stay(state.heuristic().unwrap_or(Code::Protocol)),
        (S::HeuristicCommitted | S::HeuristicRolledBack | S::HeuristicMixed, V::Forget | V::OperatorForget) => {
            later(S::Forgetting, Deed::Write)
        }

        // A part of what is not prepared goes with its queue, and poisons the branch; a part that is gone needs no force.
        (_, V::Force) => stay(Code::NotThere),

        (S::Associated | S::Suspended | S::Idle, V::Lose) if shared => go(Code::Ok, S::RollbackOnly, Deed::Undo),
        (S::Associated | S::Suspended | S::Idle, V::Lose) => Step { code: Some(Code::Ok), ..undo(Cause::Lost) },
        (S::RollbackOnly, V::Lose) if !shared => Step { code: Some(Code::Ok), ..undo(why) },
        (S::Associated | S::Suspended | S::Idle, V::Timeout) => go(Code::Ok, S::RollbackOnly, Deed::Undo),
        (_, V::Lose | V::Timeout) => stay(Code::Ok),

        (
            S::Associated
            | S::Suspended
            | S::Idle
            | S::RollbackOnly
            | S::Prepared
            | S::HeuristicCommitted
            | S::HeuristicRolledBack
            | S::HeuristicMixed,
            V::Prepare
            | V::Commit
            | V::CommitOnePhase
            | V::Rollback
            | V::Forget
            | V::OperatorCommit
            | V::OperatorRollback
            | V::OperatorForget,
        ) => stay(Code::Protocol),
    })
}
