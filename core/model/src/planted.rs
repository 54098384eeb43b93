//! Faults that are planted on purpose, to see that the harnesses find them: which there are, and the question at each place.
//!
//! Behind the feature `planted`, for tests only. Without it the question is a constant `false`, and nothing of this is in the
//! program. With it a process makes at most one choice at its start; a fault then happens once in so many occasions, counted,
//! so that it is as rare as a real one. The choice is the one thing in core that a whole process shares: a harness must not
//! know the places, and the places must not carry a setting that no release has.

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Planted {
    /// A flush of the log, for which confirms wait, is reported as done and was never made. Always.
    SkipFlush = 1,
    /// A producer gets its confirm when the message is handed to the store.
    ConfirmEarly,
    /// The last record of a batch is in no block.
    DropLastRecord,
    /// An acknowledgement is answered, and no record says so.
    ForgetAcknowledgement,
    /// Of two neighbors the later one is handed out first.
    SwapMessages,
    /// A message that was delivered before goes out with a count of 0.
    RedeliverUnflagged,
    /// A consumer gets the same delivery twice.
    DeliverTwice,
    /// A message that comes while memory is full is confirmed and in no queue.
    DropWhenFull,
    /// A message goes into another queue of the shard.
    WrongQueue,
    /// A message that is delivered again is counted twice among those that consumers hold.
    CountTwice,
    /// A delivery goes to a second consumer as well.
    DeliverToTwo,
    /// A delivery costs its consumer credit for two.
    LeakCredit,
    /// What was acknowledged stays in the store's index: the next checkpoint says that it is there.
    ResurrectAcknowledged,
    /// What is on its way to the disk is visible as if it were there.
    ShowEarly,
    /// A message that moves to the dead-letter queue leaves its own durably, and arrives in memory only.
    ForgetDeadLetterHalf,
    /// A message that comes back waits until everything else is given.
    ReturnToTail,
    /// A range of numbers is dispatched from, and no mark says so.
    LoseMark,
    /// The new delivery count of a message is in no record.
    ForgetCount,
    /// After a start, numbers are drawn that messages of another priority have.
    ReuseSequence,
    /// A message that moves to the dead-letter queue stays in its own as well.
    KeepSource,
    /// Memory of bodies is not given back.
    LeakMemory,
    /// A connection is lost, and a branch in doubt goes with it as if it had never been prepared.
    ForgetBranch,
    /// A message that is committed with others is not in its queue.
    HalveCommit,
    /// A branch in doubt is rolled back after a while.
    TimeOutPrepared,
    /// What a branch in doubt has acknowledged is ready again.
    ReleaseRemove,
    /// A message that is sent again under its number is stored again.
    StoreAgain,
}

/// Whether `fault` happens here and now.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn planted(_fault: Planted) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use choice::{choose, planted};

#[cfg(feature = "planted")]
mod choice {
    use super::Planted;
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// The fault in the low byte, 0 = none; above it the occasions for each time it happens.
    static CHOICE: AtomicU64 = AtomicU64::new(0);
    static OCCASIONS: AtomicU32 = AtomicU32::new(0);

    impl Planted {
        /// All of them.
        pub const ALL: [Planted; 26] = [
            Planted::SkipFlush,
            Planted::ConfirmEarly,
            Planted::DropLastRecord,
            Planted::ForgetAcknowledgement,
            Planted::SwapMessages,
            Planted::RedeliverUnflagged,
            Planted::DeliverTwice,
            Planted::DropWhenFull,
            Planted::WrongQueue,
            Planted::CountTwice,
            Planted::DeliverToTwo,
            Planted::LeakCredit,
            Planted::ResurrectAcknowledged,
            Planted::ShowEarly,
            Planted::ForgetDeadLetterHalf,
            Planted::ReturnToTail,
            Planted::LoseMark,
            Planted::ForgetCount,
            Planted::ReuseSequence,
            Planted::KeepSource,
            Planted::LeakMemory,
            Planted::ForgetBranch,
            Planted::HalveCommit,
            Planted::TimeOutPrepared,
            Planted::ReleaseRemove,
            Planted::StoreAgain,
        ];

        /// Its name outside.
        #[must_use]
        pub fn name(self) -> &'static str {
            match self {
                Planted::SkipFlush => "skip-flush",
                Planted::ConfirmEarly => "confirm-early",
                Planted::DropLastRecord => "drop-last-record",
                Planted::ForgetAcknowledgement => "forget-acknowledgement",
                Planted::SwapMessages => "swap-messages",
                Planted::RedeliverUnflagged => "redeliver-unflagged",
                Planted::DeliverTwice => "deliver-twice",
                Planted::DropWhenFull => "drop-when-full",
                Planted::WrongQueue => "wrong-queue",
                Planted::CountTwice => "count-twice",
                Planted::DeliverToTwo => "deliver-to-two",
                Planted::LeakCredit => "leak-credit",
                Planted::ResurrectAcknowledged => "resurrect-acknowledged",
                Planted::ShowEarly => "show-early",
                Planted::ForgetDeadLetterHalf => "forget-dead-letter-half",
                Planted::ReturnToTail => "return-to-tail",
                Planted::LoseMark => "lose-mark",
                Planted::ForgetCount => "forget-count",
                Planted::ReuseSequence => "reuse-sequence",
                Planted::KeepSource => "keep-source",
                Planted::LeakMemory => "leak-memory",
                Planted::ForgetBranch => "forget-branch",
                Planted::HalveCommit => "halve-commit",
                Planted::TimeOutPrepared => "time-out-prepared",
                Planted::ReleaseRemove => "release-remove",
                Planted::StoreAgain => "store-again",
            }
        }

        /// The fault of this name.
        #[must_use]
        pub fn named(name: &str) -> Option<Planted> {
            Planted::ALL.into_iter().find(|fault| fault.name() == name)
        }

        /// Occasions for each time that it happens, unless another number is asked for. An occasion is what the place that asks
        /// does: a flush, a message sent, a batch of several records, an acknowledgement, a dispatch, a return, a start, a
        /// connection lost, a message committed with others, a branch prepared, something that a home of transactions hears, a message sent again.
        #[must_use]
        pub fn usual(self) -> u32 {
            match self {
                Planted::SkipFlush
                | Planted::ShowEarly
                | Planted::ReturnToTail
                | Planted::ReuseSequence
                | Planted::StoreAgain => 1,
                Planted::ForgetDeadLetterHalf
                | Planted::KeepSource
                | Planted::LoseMark
                | Planted::LeakCredit
                | Planted::LeakMemory
                | Planted::ForgetBranch
                | Planted::ReleaseRemove => 4,
                Planted::DropLastRecord | Planted::CountTwice | Planted::ForgetCount | Planted::HalveCommit => 20,
                Planted::RedeliverUnflagged => 50,
                Planted::ConfirmEarly
                | Planted::DropWhenFull
                | Planted::ResurrectAcknowledged
                | Planted::TimeOutPrepared => 100,
                Planted::WrongQueue
                | Planted::DeliverToTwo
                | Planted::ForgetAcknowledgement
                | Planted::SwapMessages
                | Planted::DeliverTwice => 500,
            }
        }
    }

    /// Makes the process's choice: `fault` happens at each `one_in`-th occasion (0 counts as 1), or nothing does.
    pub fn choose(fault: Option<Planted>, one_in: u32) {
        let word = fault.map_or(0, |fault| fault as u64 | u64::from(one_in.max(1)) << 8);
        CHOICE.store(word, Ordering::Relaxed);
        OCCASIONS.store(0, Ordering::Relaxed);
    }

    /// Whether `fault` happens here and now. Asking is an occasion.
    #[must_use]
    pub fn planted(fault: Planted) -> bool {
        let word = CHOICE.load(Ordering::Relaxed);
        if word & 0xff != fault as u64 {
            return false;
        }
        let one_in = (word >> 8) as u32;
        OCCASIONS.fetch_add(1, Ordering::Relaxed) % one_in == one_in - 1
    }
}
