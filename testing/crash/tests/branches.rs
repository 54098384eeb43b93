//! Scenarios of `spec/scenarios.md`, B, on the real binary with kill -9: branches of XA that are prepared, and what becomes of them. Those
//! that name a place in the process are in `failpoints`.

use packhorse_crash::Random;
use packhorse_crash::harness::pause;
use packhorse_crash::transact::{
    Answer, Bench, Got, QUEUE, X, deaths, fill, flags, pipeline, prepared, settled, worked,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Small, so that checkpoints come soon and segments are used again.
const SMALL: [&str; 4] = ["--set", "data.segment_bytes=1048576", "--set", "data.checkpoint_bytes=1048576"];

/// In a folder that vanishes with the test.
fn bench(flags: &[&str]) -> (tempfile::TempDir, Bench) {
    let dir = tempfile::tempdir().expect("a folder");
    let bench = Bench::new(dir.path(), flags);
    (dir, bench)
}

fn numbers(got: &[Got]) -> Vec<u64> {
    got.iter().map(|got| got.number).collect()
}

/// Everything that is left in the queue.
fn left(bench: &Bench) -> Vec<u64> {
    bench.client("k").take(QUEUE).unwrap().into_iter().map(|(number, _)| number).collect()
}

#[test]
fn fs_23_killed_when_prepared_then_committed() {
    let (_dir, mut bench) = bench(&[]);
    prepared(&mut bench);
    bench.kill();
    assert_eq!(bench.counts(), [2, 2, 2, 4]);
    let mut manager = bench.manager();
    let mut k = bench.client("k");
    assert_eq!(k.browse(QUEUE).unwrap(), [2, 3]);
    let r = k.receiver(QUEUE, 10).unwrap();
    assert_eq!(numbers(&k.drain(r).unwrap()), [2, 3], "and nothing else");
    assert_eq!(bench.decide(&mut manager, X, true), 0);
    k.grant(r, 10).unwrap();
    assert_eq!(numbers(&k.drain(r).unwrap()), [10, 11]);
    assert!(manager.recover().unwrap().is_empty());
    drop((k, manager));
    bench.kill();
    bench.manager();
    assert_eq!(left(&bench), [2, 3, 10, 11], "0 and 1 are gone for good");
}

#[test]
fn fs_24_killed_when_prepared_then_rolled_back() {
    let (_dir, mut bench) = bench(&[]);
    prepared(&mut bench);
    bench.kill();
    let mut manager = bench.manager();
    let mut k = bench.client("k");
    let r = k.receiver(QUEUE, 1).unwrap();
    let second = k.receive(r, 1).unwrap();
    assert_eq!(numbers(&second), [2]);
    assert_eq!(bench.decide(&mut manager, X, false), 0);
    assert_eq!(bench.counts()[3], 4);
    assert_eq!(k.browse(QUEUE).unwrap(), [0, 1, 3], "in the old order, beside what K has");
    k.accept_all(&second).unwrap();
    assert_eq!(bench.counts()[3], 3);
    k.grant(r, 10).unwrap();
    let rest = k.drain(r).unwrap();
    assert_eq!(numbers(&rest), [0, 1, 3]);
    // 3 is in the range of the mark under which 0 and 1 were given out before the kill.
    assert!(rest[..2].iter().all(|got| got.deliveries == 1), "they were seen: {rest:?}");
    k.accept_all(&rest).unwrap();
    assert_eq!(bench.counts(), [0, 0, 0, 0]);
    assert_eq!(manager.rollback(X).unwrap(), 0, "remembered");
}

#[test]
fn fs_25_prepared_for_longer_than_any_timeout() {
    const TIMEOUT_MS: u64 = 300;
    let timeout = format!("transactions.branch_timeout_ms={TIMEOUT_MS}");
    let (_dir, mut bench) = bench(&["--set", &timeout]);
    let manager = prepared(&mut bench);
    // Time is what this is about: it must do nothing, before the kill and after it.
    pause(Duration::from_millis(3 * TIMEOUT_MS));
    drop(manager);
    bench.kill();
    pause(Duration::from_millis(3 * TIMEOUT_MS));
    let mut manager = bench.manager();
    assert_eq!(manager.recover().unwrap().len(), 1);
    assert_eq!(bench.decide(&mut manager, X, true), 0);
    assert_eq!(left(&bench), [2, 3, 10, 11]);
}

/// What is in the queue, with earlier deliveries, and what is a dead letter, when all that is on its way has arrived.
fn settled_as(bench: &Bench, letters: u64) -> (Vec<(u64, u32)>, Vec<u64>) {
    bench.broker().until("its dead letters have arrived", |broker| {
        broker.queue("DLQ")["ready"].as_u64().unwrap_or(0) == letters && broker.queue(QUEUE)["scheduled"] == 0
    });
    let mut k = bench.client("k");
    let left = k.take(QUEUE).unwrap();
    let dead = if letters > 0 { k.take("DLQ").unwrap() } else { Vec::new() };
    (left, dead.into_iter().map(|(number, _)| number).collect())
}

#[test]
fn killed_right_behind_a_commit_other_outcomes_have_happened() {
    let (_dir, mut bench) = bench(&SMALL);
    let mut manager = bench.client("application");
    fill(&mut manager, 0..5);
    let txn = manager.declare().unwrap();
    settled(&mut manager, &txn);
    assert_eq!(manager.discharge(&txn, false).unwrap(), Answer::Accepted);
    bench.kill();
    let (left, dead) = settled_as(&bench, 1);
    assert_eq!(left.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 4], "{left:?}");
    // After the commit it may have been given out once more.
    assert!((1..=2).contains(&left[0].1) && left[1].1 <= 1, "{left:?}");
    assert_eq!(dead, [0]);
    bench.kill();
    assert_eq!(settled_as(&bench, 0), (vec![], vec![]), "nothing comes twice");
}

#[test]
fn killed_before_a_commit_other_outcomes_have_not_happened() {
    let (_dir, mut bench) = bench(&SMALL);
    let mut manager = bench.client("application");
    fill(&mut manager, 0..5);
    let txn = manager.declare().unwrap();
    settled(&mut manager, &txn);
    manager.write().unwrap();
    bench.broker().until("the queue has heard it", |broker| broker.queue(QUEUE)["removing"] == 4);
    bench.kill();
    let (left, dead) = settled_as(&bench, 0);
    assert_eq!(left.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{left:?}");
    assert!(left[..4].iter().all(|(_, deliveries)| *deliveries == 1), "they were seen: {left:?}");
    assert!(dead.is_empty());
}

#[test]
fn other_outcomes_of_a_prepared_branch_survive_starts_and_happen_with_its_commit() {
    for commit in [true, false] {
        let (_dir, mut bench) = bench(&SMALL);
        let mut manager = bench.client("application");
        fill(&mut manager, 0..5);
        let txn = manager.begin(X).unwrap();
        settled(&mut manager, &txn);
        assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
        assert_eq!(bench.prepare(&mut manager, X), 0);
        for _ in 0..2 {
            bench.kill();
            assert_eq!(bench.counts(), [1, 0, 4, 5], "nothing has happened");
        }
        let mut manager = bench.manager();
        assert_eq!(bench.decide(&mut manager, X, commit), 0);
        bench.kill();
        let (left, dead) = settled_as(&bench, u64::from(commit));
        // 4 lies in the range of the mark under which the others were given out.
        let left: Vec<_> = left.into_iter().filter(|(number, _)| *number != 4).collect();
        if commit {
            assert_eq!((left, dead), (vec![(1, 1), (2, 0)], vec![0]));
        } else {
            assert_eq!((left, dead), (vec![(0, 1), (1, 1), (2, 1), (3, 1)], vec![]));
        }
        bench.nothing_in_doubt();
    }
}

#[test]
fn fs_30_the_managers_connection_is_cut_after_and_before_the_prepare() {
    let (_dir, mut bench) = bench(&[]);
    drop(prepared(&mut bench));
    let mut manager = bench.manager();
    assert_eq!(bench.decide(&mut manager, X, true), 0);
    assert_eq!(left(&bench), [2, 3, 10, 11]);
    let mut application = bench.client("application");
    worked(&mut application);
    drop(application);
    bench.broker().until("it is rolled back", |broker| broker.queue(QUEUE)["ready"] == 4);
    assert_eq!(bench.prepare(&mut manager, X), 101, "XA_RBCOMMFAIL");
    assert_eq!(bench.client("k").take(QUEUE).unwrap(), [(0, 1), (1, 1), (2, 0), (3, 0)]);
    bench.nothing_in_doubt();
}

/// Starts the broker of a bench and kills it after a while, ready or not.
fn kill_starting(dir: &Path, flags: &[&str], after: Duration) {
    let mut command = packhorse_crash::serve(dir, flags);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the broker's binary can be run");
    pause(after);
    let _ = child.kill();
    child.wait().expect("it was killed");
}

#[test]
fn fs_31_killed_again_and_again_while_recovering() {
    let (_dir, mut bench) = bench(&SMALL);
    drop(prepared(&mut bench));
    // Checkpoints, and segments that are used again, over the head of the branch.
    let mut load = bench.client("load");
    for round in 0..2 {
        for number in 0..8 {
            assert_eq!(load.send_as(None, "other", number, true, 400_000).unwrap(), Answer::Accepted);
        }
        assert_eq!(load.take("other").unwrap().len(), 8, "round {round}");
    }
    drop(load);
    bench.stop();
    for after_ms in [3, 6, 10, 15, 25] {
        kill_starting(bench.dir(), &SMALL, Duration::from_millis(after_ms));
    }
    bench.start();
    assert_eq!(bench.counts(), [2, 2, 2, 4]);
    let mut manager = bench.manager();
    assert_eq!(manager.recover().unwrap().len(), 1);
    assert_eq!(bench.client("b").browse(QUEUE).unwrap(), [2, 3]);
    assert_eq!(bench.decide(&mut manager, X, true), 0);
    drop(manager);
    bench.kill();
    // Bodies check themselves.
    assert_eq!(left(&bench), [2, 3, 10, 11]);
    let mut manager = bench.manager();
    assert_eq!(manager.commit(X, false).unwrap(), 0, "remembered over kills");
}

#[test]
fn fs_32_rolled_back_among_messages_that_came_later() {
    let (_dir, mut bench) = bench(&[]);
    drop(prepared(&mut bench));
    fill(&mut bench.client("later"), 100..120);
    bench.kill();
    let mut manager = bench.manager();
    assert_eq!(bench.decide(&mut manager, X, false), 0);
    let expected: Vec<u64> = (0..4).chain(100..120).collect();
    assert_eq!(left(&bench), expected);
}

#[test]
fn fs_33_two_branches_interleaved_on_a_queue() {
    let (_dir, mut bench) = bench(&[]);
    let mut manager = bench.client("application");
    fill(&mut manager, 0..4);
    let one = manager.begin(X).unwrap();
    let first = manager.another_control().unwrap();
    let two = manager.begin("Y").unwrap();
    let r = manager.receiver(QUEUE, 4).unwrap();
    for got in manager.receive(r, 4).unwrap() {
        manager.accept(Some(if got.number % 2 == 0 { &one } else { &two }), &got).unwrap();
    }
    assert_eq!(manager.end("Y", flags::SUCCESS).unwrap(), 0);
    manager.control(first);
    assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
    for branch in [X, "Y"] {
        assert_eq!(bench.prepare(&mut manager, branch), 0);
    }
    drop(manager);
    bench.kill();
    let mut manager = bench.manager();
    assert_eq!(manager.recover().unwrap().len(), 2);
    assert_eq!(bench.decide(&mut manager, "Y", true), 0);
    assert_eq!(bench.decide(&mut manager, X, false), 0);
    assert_eq!(bench.client("k").take(QUEUE).unwrap(), [(0, 1), (2, 1)]);
}

#[test]
fn fs_37_a_branch_that_runs_into_its_timeout() {
    let (_dir, bench) = bench(&[]);
    let mut manager = bench.client("application");
    fill(&mut manager, 0..1);
    let txn = manager.start(X, flags::NONE, 1_000).unwrap().unwrap();
    let r = manager.receiver(QUEUE, 1).unwrap();
    let got = manager.receive(r, 1).unwrap();
    manager.accept(Some(&txn), &got[0]).unwrap();
    let mut k = bench.client("k");
    let theirs = k.receiver(QUEUE, 1).unwrap();
    // The manager's connection goes on meanwhile.
    manager.turn(Duration::from_millis(1)).unwrap();
    let again = k.receive(theirs, 1).unwrap();
    assert_eq!((again[0].number, again[0].deliveries), (0, 1));
    assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 106, "XA_RBTIMEOUT");
    assert_eq!(manager.prepare(X).unwrap(), 106);
    k.accept_all(&again).unwrap();
    assert_eq!(bench.counts(), [0, 0, 0, 0]);
    bench.nothing_in_doubt();
}

#[test]
fn fs_38_prepared_without_work_and_with_volatile_work_only() {
    let (_dir, mut bench) = bench(&[]);
    let mut manager = bench.client("application");
    manager.begin(X).unwrap();
    assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
    assert_eq!(bench.prepare(&mut manager, X), 3, "XA_RDONLY");
    assert!(manager.recover().unwrap().is_empty());
    let txn = manager.begin("Y").unwrap();
    for number in 0..2 {
        assert_eq!(manager.send_as(Some(&txn), QUEUE, number, false, 100).unwrap(), Answer::Staged);
    }
    assert_eq!(manager.end("Y", flags::SUCCESS).unwrap(), 0);
    assert_eq!(bench.prepare(&mut manager, "Y"), 0);
    drop(manager);
    bench.kill();
    let mut manager = bench.manager();
    assert_eq!(bench.decide(&mut manager, "Y", true), 0);
    assert_eq!(bench.counts(), [0, 0, 0, 0]);
    assert_eq!(left(&bench), [0; 0]);
    bench.broker().logged(&["without 2 of its operations"]);
}

#[test]
fn fs_41_an_operator_decides_a_prepared_branch() {
    for (act, code, after) in [("commit", 7, vec![2, 3, 10, 11]), ("rollback", 6, vec![0, 1, 2, 3])] {
        let (_dir, mut bench) = bench(&[]);
        drop(prepared(&mut bench));
        let (status, answer) = bench.operator(act);
        assert_eq!(status, 200, "{answer}");
        bench.kill();
        let mut manager = bench.manager();
        assert_eq!(manager.recover().unwrap().len(), 1, "listed until it is forgotten");
        assert_eq!(bench.decide(&mut manager, X, act == "rollback"), code, "XA_HEUR*, whatever it asks for");
        drop(manager);
        bench.kill();
        let mut manager = bench.manager();
        assert_eq!(manager.forget(X).unwrap(), 0);
        assert!(manager.recover().unwrap().is_empty());
        bench.kill();
        bench.nothing_in_doubt();
        assert_eq!(left(&bench), after);
    }
}

#[test]
fn fs_42_two_connections_join_one_branch() {
    let (_dir, mut bench) = bench(&[]);
    let (mut one, mut two) = (bench.client("one"), bench.client("two"));
    assert_eq!(one.broker(), two.broker(), "isSameRM");
    fill(&mut one, 0..1);
    let txn = one.begin(X).unwrap();
    let joined = two.start(X, flags::JOIN, 0).unwrap().unwrap();
    let r = one.receiver(QUEUE, 1).unwrap();
    let got = one.receive(r, 1).unwrap();
    one.accept(Some(&txn), &got[0]).unwrap();
    assert_eq!(two.send(Some(&joined), "out", 10).unwrap(), Answer::Staged);
    assert_eq!(one.end(X, flags::SUCCESS).unwrap(), 0);
    assert_eq!(one.prepare(X).unwrap(), -6, "the other one still works in it");
    assert_eq!(two.end(X, flags::SUCCESS).unwrap(), 0);
    assert_eq!(bench.prepare(&mut two, X), 0);
    drop((one, two));
    bench.kill();
    let mut manager = bench.manager();
    assert_eq!(bench.decide(&mut manager, X, true), 0);
    assert_eq!(left(&bench), [0; 0]);
    assert_eq!(bench.client("k").take("out").unwrap(), [(10, 0)]);
}

#[test]
fn fs_43_a_queue_with_prepared_entries_is_deleted() {
    for others in [false, true] {
        let (_dir, mut bench) = bench(&[]);
        let mut manager = bench.client("application");
        fill(&mut manager, 0..1);
        let txn = manager.begin(X).unwrap();
        let r = manager.receiver(QUEUE, 1).unwrap();
        let got = manager.receive(r, 1).unwrap();
        manager.accept(Some(&txn), &got[0]).unwrap();
        if others {
            assert_eq!(manager.send(Some(&txn), "out", 10).unwrap(), Answer::Staged);
        }
        assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
        assert_eq!(bench.prepare(&mut manager, X), 0);
        drop(manager);
        let delete = |bench: &Bench, query: &str| {
            bench.broker().request("DELETE", &format!("/api/v1/queues/{QUEUE}?{query}"), "")
        };
        let (status, answer) = delete(&bench, "");
        assert_eq!((status, &answer["code"]), (409, &json!("queue-in-doubt")), "{answer}");
        assert_eq!(delete(&bench, "force=true").0, 409, "a reason is needed");
        assert_eq!(bench.counts()[2], 1);
        let (status, answer) = delete(&bench, "force=true&reason=closed&who=ann");
        assert_eq!(status, 200, "{answer}");
        bench.kill();
        let mut manager = bench.manager();
        let code = bench.decide(&mut manager, X, true);
        assert_eq!(
            code,
            if others { 5 } else { 6 },
            "XA_HEURMIX where another queue did as it was told, else XA_HEURRB"
        );
        assert_eq!(manager.forget(X).unwrap(), 0);
        drop(manager);
        bench.kill();
        bench.nothing_in_doubt();
        assert_eq!(bench.broker().queue(QUEUE), Value::Null);
        let out = bench.client("k").take("out").unwrap();
        assert_eq!(out, if others { vec![(10, 0)] } else { vec![] });
    }
}

#[test]
fn fs_46_a_pipeline_with_an_external_decision_log() {
    // A long run has 1000 deaths: `cargo xtask crash --pipeline 1000`.
    let dir = tempfile::tempdir().expect("a folder");
    let (_, seed) = Random::from_environment(46);
    let figures = pipeline::run(dir.path(), 40, seed);
    assert!(figures.is_clean(), "{figures}");
    assert!(figures.of("committed") > 5 && figures.of("rolled back") > 5, "{figures}");
    assert!(figures.of("of these with the broker") > 1, "{figures}");
}

#[test]
fn t12_whoever_dies_at_each_step_a_branch_happens_as_a_whole_or_not_at_all() {
    // A long run has each cell more often: `cargo xtask crash --xa 20`.
    let dir = tempfile::tempdir().expect("a folder");
    let (_, seed) = Random::from_environment(12);
    let figures = deaths::run(dir.path(), 1, seed);
    assert!(figures.is_clean(), "{figures}");
    assert_eq!(figures.of("cells"), 84, "{figures}");
}
