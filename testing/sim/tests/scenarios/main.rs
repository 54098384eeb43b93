//! Fault scenarios of `spec/scenarios.md` in the simulator, each as a script (`packhorse_sim::Script`) that holds for every seed and for
//! one shard and two. At the end of each the world is drained, counted and judged like every drawn one (`core/history`).
//!
//! What the numbers of scenarios ask for in the millions is shown on one queue (`core/queue/tests/scenarios.rs`); here the same happens
//! through whole brokers, as often as a test of a second allows. Delays of redelivery (FS-59) do not exist yet.
//!
//! FS-23 to FS-46 are branches: `in_doubt`, `verbs`, `decisions`; so is T12 of the fault plan. What is in doubt after the end of a process
//! is compared with the log of whoever manages them (`Script::recover`).

mod damage;
mod deaths;
mod decisions;
mod in_doubt;
mod order;
mod races;
mod t12;
mod verbs;

use packhorse_client_core::Verdict;
use packhorse_journal::sim::CrashMode;
use packhorse_sim::{Death, Got, Point, Receiver, Script};

/// The queue of most scenarios.
const Q: &str = "orders";

/// A delivery that counts as an attempt, and comes back.
const FAILED: Verdict<'static> = Verdict::Modify { failed: true, undeliverable_here: false };

/// Runs a scenario for so many seeds from `first` on, each with one shard and with two.
fn worlds(first: u64, seeds: u64, scenario: impl Fn(&mut Script)) {
    for seed in first..first + seeds {
        for shards in [1, 2] {
            let mut script = Script::new(seed, shards, &[Q, "other"]);
            scenario(&mut script);
            script.finish();
        }
    }
}

/// The same, for each way in which a process ends.
fn deaths(first: u64, scenario: impl Fn(&mut Script, Death)) {
    for (number, death) in Death::ALL.into_iter().enumerate() {
        worlds(first + number as u64, 1, |script| scenario(script, death));
    }
}

/// Places and ways in which a process ends.
fn places() -> impl Iterator<Item = (Point, Death)> {
    Point::ALL.into_iter().flat_map(|point| Death::ALL.map(|death| (point, death)))
}

/// Whether a batch that was so far at such an end is there afterwards; `None`: it may be.
fn is_kept(point: Point, death: Death) -> Option<bool> {
    match (point, death) {
        (Point::BeforeSync, _) | (Point::DuringSync, Death::Power(CrashMode::Lose)) => Some(false),
        // The system has what was written.
        (Point::DuringSync, Death::Kill) | (Point::AfterSync | Point::BeforeFrames, _) => Some(true),
        (Point::DuringSync, Death::Power(_)) => None,
    }
}

fn numbers(got: &[Got]) -> Vec<u64> {
    got.iter().map(|got| got.number).collect()
}

/// Ends these deliveries, in this order.
fn decide(script: &mut Script, receiver: Receiver, got: &[Got], verdict: Verdict<'static>) {
    for one in got {
        script.decide(receiver, one.delivery, verdict);
    }
}

/// So many ordinary messages are in a queue; the client that brought them has gone.
fn filled(script: &mut Script, queue: &str, count: u64) {
    let who = script.client();
    let sender = script.producer(who, queue);
    script.send(sender, count);
    script.rest();
    assert_eq!(script.confirmed(sender).len() as u64, count);
    script.close(who);
    script.rest();
}

/// Until the broker has ended as it was told to, and runs again.
fn restarted(script: &mut Script) {
    let starts = script.starts();
    script.until("the broker ends, and starts again", |s| !s.is_armed() && s.starts() > starts && s.is_running());
}

/// Until the broker, which has ended as it was told to, runs again.
fn back(script: &mut Script) {
    script.until("the broker starts again", |s| !s.is_armed() && s.is_running());
}
