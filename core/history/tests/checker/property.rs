//! Histories of the reference broker are never blamed; with one planted fault they are, and for that fault.

use super::reference::Fault;
use super::world::World;
use packhorse_history::{Invariant, Options, Report, check_files};
use proptest::prelude::*;

fn check(seed: u64, steps: usize, fault: Fault) -> (Report, bool) {
    let run = World::run(seed, steps, fault);
    let sources = run.files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
    let report = check_files(sources, &Options::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (report, run.exercised)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_correct_broker_is_never_blamed(seed in any::<u64>(), steps in 1usize..3_000) {
        let (report, _) = check(seed, steps, Fault::None);
        prop_assert!(report.is_clean(), "{report}");
        prop_assert_eq!(report.totals.not_judged_for_loss, 0, "everything was drained: {}", report);
    }
}

/// A consumer closed its link in order after it was broken, with an acknowledgement that never arrived; the random runs above met it.
#[test]
fn an_end_that_nobody_answered_proves_no_acknowledgement() {
    let (report, _) = check(4_193_727_880_522_057_418, 115, Fault::None);
    assert!(report.is_clean(), "{report}");
}

/// Runs seeds until the fault happened `wanted` times, and demands that each time it was found, and nothing else. A counter that is
/// too low may tell of a lost message as well, and one that is too high of a duplicate.
fn caught(fault: Fault, invariant: Invariant, wanted: u32) {
    let mut exercised = 0;
    for seed in 0..400 {
        let (report, happened) = check(seed, 1_500, fault);
        if !happened {
            assert!(report.is_clean(), "seed {seed}: {report}");
            continue;
        }
        exercised += 1;
        assert!(report.count(invariant) > 0, "seed {seed}: {fault:?} was not found\n{report}");
        let others = report.violations().iter().filter(|one| one.invariant != invariant);
        let others = others.filter(|one| one.invariant != Invariant::Accounting).count();
        assert_eq!(others, 0, "seed {seed}: {fault:?}\n{report}");
        if exercised == wanted {
            return;
        }
    }
    panic!("{fault:?} happened {exercised} times in 400 runs");
}

#[test]
fn a_message_that_vanishes_is_found() {
    caught(Fault::Lose, Invariant::Lost, 20);
}

#[test]
fn a_message_that_comes_back_after_its_acknowledgement_was_confirmed_is_found() {
    caught(Fault::Duplicate, Invariant::Duplicate, 20);
}

#[test]
fn a_redelivery_without_a_flag_is_found() {
    caught(Fault::Unflagged, Invariant::SilentDuplicate, 20);
}

#[test]
fn two_messages_that_changed_places_are_found() {
    caught(Fault::Swap, Invariant::Order, 20);
}

#[test]
fn a_count_that_went_down_is_found() {
    caught(Fault::CountDown, Invariant::Counts, 20);
}

#[test]
fn a_message_that_nobody_sent_is_found() {
    caught(Fault::Phantom, Invariant::Phantom, 20);
}

#[test]
fn a_changed_body_is_found() {
    caught(Fault::Body, Invariant::Phantom, 20);
}

#[test]
fn a_silence_is_found() {
    caught(Fault::Silence, Invariant::Stuck, 20);
}

#[test]
fn a_counter_that_is_wrong_is_found() {
    caught(Fault::Counter, Invariant::Accounting, 20);
}
