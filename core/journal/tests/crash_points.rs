//! Crashes at every disk operation of all workloads, as `cargo xtask crash-points` prints them.
#![cfg(feature = "sim")]

use packhorse_journal::sim::{Points, crash_everywhere, workloads};

#[test]
fn a_crash_at_any_disk_operation_leaves_a_durable_prefix() {
    let (mut recoveries, mut checkpoints, mut recycled, mut failures) = (0, 0, 0, Vec::new());
    let all = workloads();
    assert!(all.len() >= 6);
    for workload in &all {
        let tally = crash_everywhere(workload, 1, Points::All);
        assert!(tally.disk_ops > 20, "{}: {tally:?}", workload.name);
        recoveries += tally.recoveries;
        checkpoints += tally.checkpoints;
        recycled += tally.recycled;
        failures.extend(tally.failures);
    }
    assert!(failures.is_empty(), "{} failures, the first:\n{}", failures.len(), failures[0]);
    assert!(recoveries >= 2000, "only {recoveries} recoveries");
    assert!(checkpoints >= 20 && recycled >= 10, "{checkpoints} checkpoints, {recycled} segments used again");
}

#[test]
fn a_workload_replays_from_its_seed() {
    let workload = &workloads()[1];
    let first = crash_everywhere(workload, 3, Points::One(10));
    assert_eq!(first, crash_everywhere(workload, 3, Points::One(10)));
    assert_ne!(first.disk_ops, 0);
}
