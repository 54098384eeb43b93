//! Transactions: scenarios of section B that name a place in the process.

use super::{SMALL, ask};
use packhorse_crash::transact::{
    Answer, Bench, Commits, Got, Heard, Ledger, Manager, QUEUE, TxOutcome, X, fill, flags, prepared, settled, worked,
};
use packhorse_crash::{Broken, Broker};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A broker that runs with failpoints armed.
fn armed(points: &str) -> (tempfile::TempDir, Bench) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::new(dir.path(), &SMALL);
    bench.arm(points);
    (dir, bench)
}

/// The broker died, and the manager heard no answer.
fn unanswered(answer: Result<i32, Broken>) {
    assert!(matches!(answer, Err(Broken::Lost(_))), "{answer:?}");
}

/// Everything that is in the queue.
fn take(bench: &Bench) -> Vec<(u64, u32)> {
    bench.client("k").take(QUEUE).unwrap()
}

fn numbers(taken: &[(u64, u32)]) -> Vec<u64> {
    taken.iter().map(|(number, _)| *number).collect()
}

#[test]
fn fs_26_killed_before_the_prepare_is_durable() {
    let (_dir, mut bench) = armed("xa.prepare.before_sync=crash");
    let mut manager = bench.client("application");
    worked(&mut manager);
    unanswered(bench.ledger.prepare(&mut manager, X));
    bench.killed();
    bench.start();
    let mut manager = bench.manager();
    assert!(manager.recover().unwrap().is_empty());
    assert_eq!(bench.prepare(&mut manager, X), -4, "XAER_NOTA");
    let taken = take(&bench);
    assert_eq!(numbers(&taken), [0, 1, 2, 3]);
    assert!(taken[..2].iter().all(|(_, deliveries)| *deliveries > 0), "they were seen: {taken:?}");
}

#[test]
fn fs_27_killed_when_the_prepare_is_durable_and_nobody_knows() {
    let (_dir, mut bench) = armed("xa.prepare.after_sync_before_reply=crash");
    let mut manager = bench.client("application");
    worked(&mut manager);
    unanswered(bench.ledger.prepare(&mut manager, X));
    bench.killed();
    bench.start();
    let mut manager = bench.manager();
    assert_eq!(manager.recover().unwrap().len(), 1);
    assert_eq!(bench.counts(), [2, 2, 2, 4]);
    assert_eq!(bench.decide(&mut manager, X, false), 0);
    let taken = take(&bench);
    assert_eq!(numbers(&taken), [0, 1, 2, 3]);
    assert!(taken[..2].iter().all(|(_, deliveries)| *deliveries == 1), "they were seen: {taken:?}");
}

#[test]
fn fs_28_killed_before_the_decision_is_durable() {
    for commit in [true, false] {
        let (_dir, mut bench) = armed("xa.decide.before_sync=crash");
        let mut manager = prepared(&mut bench);
        // Before the record is handed over nothing of the commit is to be seen: whoever listens is there when the process dies.
        let mut k = bench.client("k");
        let r = k.receiver(QUEUE, 10).unwrap();
        assert_eq!(k.drain(r).unwrap().iter().map(|got| got.number).collect::<Vec<_>>(), [2, 3]);
        k.grant(r, 10).unwrap();
        unanswered(bench.ledger.decide(&mut manager, X, commit));
        bench.killed();
        let late = loop {
            // What the broker sent until its end.
            if let Err(broken) = k.turn(std::time::Duration::from_secs(1)) {
                break broken;
            }
        };
        assert!(matches!(late, Broken::Lost(_)), "{late:?}");
        assert!(k.receive(r, 1).is_err(), "nothing more came");
        bench.start();
        let mut manager = bench.manager();
        assert_eq!(manager.recover().unwrap().len(), 1, "it is in doubt as before");
        assert_eq!(bench.counts(), [2, 2, 2, 4]);
        assert_eq!(bench.decide(&mut manager, X, commit), 0);
        assert_eq!(numbers(&take(&bench)), if commit { [2, 3, 10, 11] } else { [0, 1, 2, 3] });
    }
}

#[test]
fn fs_29_killed_when_the_decision_is_durable_and_not_applied() {
    for point in ["xa.decide.after_sync_before_apply", "xa.decide.after_apply_before_reply"] {
        for commit in [true, false] {
            let (_dir, mut bench) = armed(&format!("{point}=crash"));
            let mut manager = prepared(&mut bench);
            unanswered(bench.ledger.decide(&mut manager, X, commit));
            bench.killed();
            bench.start();
            let mut manager = bench.manager();
            assert!(manager.recover().unwrap().is_empty(), "{point}");
            assert_eq!(bench.counts(), [4, 0, 0, 4], "{point}");
            assert_eq!(bench.ledger.heard(X), Some(Heard::Deciding(commit)));
            assert_eq!(bench.decide(&mut manager, X, commit), 0, "{point}: asked again, it is remembered");
            assert_eq!(bench.decide(&mut manager, X, !commit), -4, "{point}: and not the opposite");
            assert_eq!(numbers(&take(&bench)), if commit { [2, 3, 10, 11] } else { [0, 1, 2, 3] }, "{point}");
        }
    }
}

/// An operator's request whose answer does not come.
fn ask_in_vain(broker: &Broker, path: &str, body: &str) {
    let mut stream = TcpStream::connect(broker.http()).unwrap();
    let length = body.len();
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    // It may be reset.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"", "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn fs_41_killed_when_an_operators_decision_is_durable() {
    for (act, code, after) in [("commit", 7, [2, 3, 10, 11]), ("rollback", 6, [0, 1, 2, 3])] {
        let (_dir, mut bench) = armed("xa.heuristic.after_sync=crash");
        drop(prepared(&mut bench));
        let body = json!({ "who": "ann", "reason": "the manager is gone" }).to_string();
        ask_in_vain(bench.broker(), &format!("/api/v1/transactions/1:58:62/{act}"), &body);
        bench.killed();
        bench.start();
        let mut manager = bench.manager();
        assert_eq!(manager.recover().unwrap().len(), 1);
        assert_eq!(bench.decide(&mut manager, X, act == "rollback"), code);
        let (status, shown) = bench.broker().get("/api/v1/transactions/1:58:62");
        assert_eq!(status, 200, "{shown}");
        assert!(shown.to_string().contains("the manager is gone"), "the reason is kept: {shown}");
        assert_eq!(manager.forget(X).unwrap(), 0);
        bench.nothing_in_doubt();
        assert_eq!(numbers(&take(&bench)), after);
    }
}

/// Message 0 is taken and message 10 is sent, in a local transaction that is to be commit 1 of its session.
fn local(manager: &mut Manager) -> Vec<u8> {
    fill(manager, 0..1);
    let txn = manager.declare().unwrap();
    let r = manager.receiver(QUEUE, 1).unwrap();
    let got = manager.receive(r, 1).unwrap();
    manager.accept(Some(&txn), &got[0]).unwrap();
    assert_eq!(manager.send(Some(&txn), QUEUE, 10).unwrap(), Answer::Staged);
    txn
}

#[test]
fn fs_44_killed_around_a_one_phase_commit_before_its_answer() {
    let session = |next| Some(Commits { session: [7; 16], next });
    for (point, done) in [
        ("tx.commit.before_sync", false),
        ("tx.commit.after_sync_before_apply", true),
        ("tx.commit.after_sync_before_reply", true),
    ] {
        let (_dir, mut bench) = armed(&format!("{point}=crash"));
        let mut manager = Manager::open_as(bench.broker().amqp(), "application", session(1)).unwrap();
        let txn = local(&mut manager);
        let answer = manager.commit_as(&txn, 1);
        assert!(matches!(answer, Err(Broken::Lost(_))), "{point}: {answer:?}");
        bench.killed();
        bench.start();
        let mut manager = Manager::open_as(bench.broker().amqp(), "application", session(1)).unwrap();
        let told = manager.status(1).unwrap();
        if done {
            assert_eq!(told, TxOutcome::Committed, "{point}");
            assert_eq!(numbers(&take(&bench)), [10], "{point}");
        } else {
            // The first commit of a session that died with the process: nobody knows the session.
            assert_ne!(told, TxOutcome::Committed, "{point}");
            assert_eq!(numbers(&take(&bench)), [0], "{point}");
        }
    }
}

#[test]
fn fs_44_what_was_said_in_it_beside_accepted_happens_with_it_or_not() {
    for (point, done) in [
        ("tx.commit.before_sync", false),
        ("tx.commit.after_sync_before_apply", true),
        ("tx.commit.after_sync_before_reply", true),
    ] {
        let (_dir, mut bench) = armed(&format!("{point}=crash"));
        let mut manager = bench.client("application");
        fill(&mut manager, 0..4);
        let txn = manager.declare().unwrap();
        settled(&mut manager, &txn);
        let answer = manager.discharge(&txn, false);
        assert!(matches!(answer, Err(Broken::Lost(_))), "{point}: {answer:?}");
        bench.killed();
        bench.start();
        if done {
            bench.broker().until("its dead letter has arrived", |broker| broker.queue("DLQ")["ready"] == 1);
            assert_eq!(numbers(&bench.client("k").take("DLQ").unwrap()), [0], "{point}");
        }
        let left = take(&bench);
        assert_eq!(numbers(&left), if done { vec![1, 2] } else { vec![0, 1, 2, 3] }, "{point}");
        assert!(left[0].1 > 0, "it was seen: {left:?}");
    }
}

#[test]
fn fs_44_killed_after_a_later_commit_it_is_known_and_a_retry_doubles_nothing() {
    let (_dir, mut bench) = armed("tx.commit.before_sync=crash@2");
    let session = |next| Some(Commits { session: [8; 16], next });
    let mut manager = Manager::open_as(bench.broker().amqp(), "application", session(1)).unwrap();
    let txn = local(&mut manager);
    assert_eq!(manager.commit_as(&txn, 1).unwrap(), Answer::Accepted);
    let txn = manager.declare().unwrap();
    assert_eq!(manager.send(Some(&txn), QUEUE, 11).unwrap(), Answer::Staged);
    manager.commit_as(&txn, 2).unwrap_err();
    bench.killed();
    bench.start();
    let mut manager = Manager::open_as(bench.broker().amqp(), "application", session(2)).unwrap();
    assert_eq!(manager.status(1).unwrap(), TxOutcome::Committed);
    assert_eq!(manager.status(2).unwrap(), TxOutcome::RolledBack, "and never will be");
    let txn = manager.declare().unwrap();
    assert_eq!(manager.send(Some(&txn), QUEUE, 11).unwrap(), Answer::Staged);
    assert!(matches!(manager.commit_as(&txn, 2).unwrap(), Answer::Rejected(_)), "this number is spent");
    let txn = manager.declare().unwrap();
    assert_eq!(manager.send(Some(&txn), QUEUE, 11).unwrap(), Answer::Staged);
    assert_eq!(manager.commit_as(&txn, 3).unwrap(), Answer::Accepted);
    assert_eq!(numbers(&take(&bench)), [10, 11]);
}

#[test]
fn fs_44_a_branch_that_is_committed_in_one_phase_is_known_when_it_is_asked_for_again() {
    for (point, code, after) in [
        ("tx.commit.before_sync", -4, [0, 1, 2, 3]),
        ("tx.commit.after_sync_before_apply", 0, [2, 3, 10, 11]),
        ("tx.commit.after_sync_before_reply", 0, [2, 3, 10, 11]),
    ] {
        let (_dir, mut bench) = armed(&format!("{point}=crash"));
        let mut manager = bench.client("application");
        worked(&mut manager);
        unanswered(manager.commit(X, true));
        bench.killed();
        bench.start();
        let mut manager = bench.manager();
        assert!(manager.recover().unwrap().is_empty(), "{point}");
        assert_eq!(manager.commit(X, true).unwrap(), code, "{point}");
        assert_eq!(numbers(&take(&bench)), after, "{point}");
        // Its name is free.
        manager.begin(X).unwrap();
        assert_eq!(manager.end(X, flags::SUCCESS).unwrap(), 0);
        assert_eq!(manager.rollback(X).unwrap(), 0);
    }
}

/// Queues that a branch adds to, and as many that it takes from.
const HALF: usize = 25;

fn queue_of(half: &str, nth: usize) -> String {
    format!("{half}-{nth:02}")
}

/// Sums over the queues of one half: `ready`, `prepared_in`, `prepared_out`, `depth`.
fn sums(broker: &Broker, half: &str) -> [u64; 4] {
    let mut sums = [0; 4];
    for nth in 0..HALF {
        let queue = broker.queue(&queue_of(half, nth));
        let count = |what: &str| queue[what].as_u64().unwrap_or(0);
        for (sum, what) in sums.iter_mut().zip(["ready", "prepared_in", "prepared_out", "depth"]) {
            *sum += count(what);
        }
    }
    sums
}

/// What the branch takes is there, and nothing more is written for that.
fn taken(manager: &mut Manager) -> Vec<Got> {
    let queues = (0..HALF).map(|nth| queue_of("out", nth));
    let one = |queue: String| {
        assert_eq!(manager.send(None, &queue, 100).unwrap(), Answer::Accepted);
        let link = manager.receiver(&queue, 1).unwrap();
        manager.receive(link, 1).unwrap()[0]
    };
    queues.map(one).collect()
}

/// A branch over all fifty queues, up to its commit. Some of what it adds is so large that it goes ahead of the branch's record.
fn over_fifty(manager: &mut Manager, ledger: &mut Ledger, branch: &str, taken: &[Got]) -> Result<(), Broken> {
    let txn = manager.begin(branch)?;
    for (nth, got) in taken.iter().enumerate() {
        manager.accept(Some(&txn), got)?;
        let size = if nth % 6 == 0 { 1_300_000 } else { 200 };
        let answer = manager.send_as(Some(&txn), &queue_of("in", nth), nth as u64, true, size)?;
        assert_eq!(answer, Answer::Staged);
    }
    let codes =
        [manager.end(branch, flags::SUCCESS)?, ledger.prepare(manager, branch)?, ledger.decide(manager, branch, true)?];
    assert_eq!(codes, [0; 3], "{branch}");
    Ok(())
}

#[test]
fn fs_45_a_branch_over_fifty_queues_is_all_or_nothing_at_each_write() {
    const ALL: u64 = HALF as u64;
    let dir = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::new(dir.path(), &SMALL);
    let (mut in_doubt, mut committed, mut nothing) = (0, 0, 0);
    // Killed before its n-th write (each is synced), until there are no more.
    for n in 1.. {
        let branch = format!("fifty-{n}");
        let mut manager = bench.client("application");
        let taken = taken(&mut manager);
        ask(bench.broker(), "PUT", "/disk.write", &format!("crash@{n}"));
        let over = match over_fifty(&mut manager, &mut bench.ledger, &branch, &taken) {
            Ok(()) => true,
            Err(Broken::Lost(_)) => false,
            Err(broken) => panic!("{branch}: {broken:?}"),
        };
        drop(manager);
        if over {
            bench.kill();
        } else {
            bench.killed();
            bench.start();
        }
        let mut manager = bench.manager();
        let (adds, removes) = (sums(bench.broker(), "in"), sums(bench.broker(), "out"));
        if manager.recover().unwrap().contains(&branch) {
            in_doubt += 1;
            assert_eq!((adds, removes), ([0, ALL, 0, 0], [0, 0, ALL, ALL]), "{branch} is in doubt");
            assert_eq!(bench.decide(&mut manager, &branch, true), 0, "{branch}");
        } else if matches!(bench.ledger.heard(&branch), Some(Heard::Deciding(_) | Heard::Decided(_))) {
            committed += 1;
            assert_eq!((adds, removes), ([ALL, 0, 0, ALL], [0; 4]), "{branch} is committed");
            assert_eq!(bench.decide(&mut manager, &branch, true), 0, "{branch}: remembered");
        } else {
            nothing += 1;
            assert_eq!((adds, removes), ([0; 4], [ALL, 0, 0, ALL]), "{branch} never was");
        }
        for nth in 0..HALF {
            for half in ["in", "out"] {
                manager.take(&queue_of(half, nth)).unwrap();
            }
        }
        if over {
            break;
        }
    }
    // Before each record that goes ahead, and before the prepare; before the decision; after it.
    assert!(nothing >= 4 && in_doubt >= 1 && committed >= 1, "{nothing} {in_doubt} {committed}");
}
