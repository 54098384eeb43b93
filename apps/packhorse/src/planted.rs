//! A build with planted faults, for tests of the harnesses only: which fault this process has, and that it says so.
//!
//! The feature `planted` leaves the choice to `PACKHORSE_PLANTED=NAME[:N]`, `planted-NAME` makes it when building. Must not
//! know what a fault does; that is `packhorse_model::Planted` and the places that ask.

use packhorse_model::{Planted, choose_planted};

const VARIABLE: &str = "PACKHORSE_PLANTED";

/// What was chosen when this was built.
const FIXED: [(bool, Planted); Planted::ALL.len()] = [
    (cfg!(feature = "planted-skip-flush"), Planted::SkipFlush),
    (cfg!(feature = "planted-confirm-early"), Planted::ConfirmEarly),
    (cfg!(feature = "planted-drop-last-record"), Planted::DropLastRecord),
    (cfg!(feature = "planted-forget-acknowledgement"), Planted::ForgetAcknowledgement),
    (cfg!(feature = "planted-swap-messages"), Planted::SwapMessages),
    (cfg!(feature = "planted-redeliver-unflagged"), Planted::RedeliverUnflagged),
    (cfg!(feature = "planted-deliver-twice"), Planted::DeliverTwice),
    (cfg!(feature = "planted-drop-when-full"), Planted::DropWhenFull),
    (cfg!(feature = "planted-wrong-queue"), Planted::WrongQueue),
    (cfg!(feature = "planted-count-twice"), Planted::CountTwice),
    (cfg!(feature = "planted-deliver-to-two"), Planted::DeliverToTwo),
    (cfg!(feature = "planted-leak-credit"), Planted::LeakCredit),
    (cfg!(feature = "planted-resurrect-acknowledged"), Planted::ResurrectAcknowledged),
    (cfg!(feature = "planted-show-early"), Planted::ShowEarly),
    (cfg!(feature = "planted-forget-dead-letter-half"), Planted::ForgetDeadLetterHalf),
    (cfg!(feature = "planted-return-to-tail"), Planted::ReturnToTail),
    (cfg!(feature = "planted-lose-mark"), Planted::LoseMark),
    (cfg!(feature = "planted-forget-count"), Planted::ForgetCount),
    (cfg!(feature = "planted-reuse-sequence"), Planted::ReuseSequence),
    (cfg!(feature = "planted-keep-source"), Planted::KeepSource),
    (cfg!(feature = "planted-leak-memory"), Planted::LeakMemory),
    (cfg!(feature = "planted-forget-branch"), Planted::ForgetBranch),
    (cfg!(feature = "planted-halve-commit"), Planted::HalveCommit),
    (cfg!(feature = "planted-time-out-prepared"), Planted::TimeOutPrepared),
    (cfg!(feature = "planted-release-remove"), Planted::ReleaseRemove),
    (cfg!(feature = "planted-store-again"), Planted::StoreAgain),
];

/// What can be planted.
pub(crate) fn names() -> [&'static str; Planted::ALL.len()] {
    Planted::ALL.map(Planted::name)
}

/// Makes the choice and tells it on standard error.
///
/// # Errors
/// No such fault, or more than one: a sentence.
pub(crate) fn choose() -> Result<(), String> {
    let said = std::env::var(VARIABLE).ok().filter(|said| !said.is_empty());
    let built: Vec<Planted> = FIXED.iter().filter(|(fixed, _)| *fixed).map(|(_, fault)| *fault).collect();
    let (fault, one_in) = match (built.as_slice(), said.as_deref()) {
        ([], None) => {
            eprintln!("packhorse: A BUILD FOR TESTS: faults can be planted by {VARIABLE}; none is");
            return Ok(());
        }
        ([], Some(said)) => read(said)?,
        ([fault], None) => (*fault, fault.usual()),
        (built, said) => {
            let built: Vec<&str> = built.iter().map(|fault| fault.name()).collect();
            return Err(format!(
                "one fault at a time: this was built with {}, {VARIABLE} is {:?}",
                built.join(", "),
                said.unwrap_or("not set")
            ));
        }
    };
    choose_planted(Some(fault), one_in);
    eprintln!("packhorse: A BUILD FOR TESTS LOSES OR SPOILS MESSAGES: planted {}, one in {one_in}", fault.name());
    Ok(())
}

/// `NAME` or `NAME:N`.
fn read(said: &str) -> Result<(Planted, u32), String> {
    let (name, one_in) = said.split_once(':').map_or((said, None), |(name, n)| (name, Some(n)));
    let fault = Planted::named(name)
        .ok_or_else(|| format!("{VARIABLE}={said}: there is no such fault; there are {}", names().join(", ")))?;
    let one_in = one_in.map_or(Ok(fault.usual()), str::parse).ok().filter(|n| *n > 0);
    Ok((fault, one_in.ok_or_else(|| format!("{VARIABLE}={said}: write NAME or NAME:N with N from 1 on"))?))
}
