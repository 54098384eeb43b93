//! Who decides a branch, and what becomes of it over queues, operators and logs: FS-41 to FS-46.

use crate::in_doubt::{finds, prepared, worked};
use crate::{Q, back, deaths, decide, filled, is_kept, numbers, places, restarted, worlds};
use packhorse_client_core::Verdict;
use packhorse_client_core::transaction::{TxOutcome, flags};
use packhorse_journal::sim::{CrashMode, When};
use packhorse_journal::{DiskOp, FileName};
use packhorse_sim::{BatchKind, Branch, Control, Death, Heard, Script, Sender, Shape};
use std::cell::Cell;
use std::collections::BTreeMap;

#[test]
fn fs_41_an_operator_decides_a_prepared_branch() {
    for (number, end) in places().map(Some).chain([None]).enumerate() {
        for commit in [true, false] {
            worlds(4_100 + 2 * number as u64 + u64::from(commit), 1, |script| {
                let doubt = prepared(script);
                let death = end.map_or(Death::Kill, |(_, death)| death);
                if let Some((point, death)) = end {
                    script.arm(BatchKind::Heuristic, point, 1, death);
                    assert_eq!(script.decide_by_operator(&doubt.x, commit), None, "{end:?}: no answer came");
                    back(script);
                    let there = script.counts(Q) == [4, 0, 0, 4];
                    assert_eq!(there, is_kept(point, death).unwrap_or(there), "{end:?}");
                    // He asks again; what was done is not done again.
                    assert_eq!(script.decide_by_operator(&doubt.x, commit), Some(!there), "{end:?}");
                } else {
                    assert_eq!(script.decide_by_operator(&doubt.x, commit), Some(true));
                }
                script.kill(death);
                restarted(script);
                let manager = finds(script, &[&doubt.x]);
                let told = Some(if commit { 7 } else { 6 });
                assert_eq!(script.decide_branch(manager, &doubt.x, !commit), told, "XA_HEUR*, whatever it asks for");
                assert_eq!(script.decide_branch(manager, &doubt.x, commit), told);
                script.kill(death);
                restarted(script);
                let manager = finds(script, &[&doubt.x]);
                assert_eq!(script.forget(manager, &doubt.x), Some(0));
                assert_eq!(script.recover(manager), []);
                script.kill(death);
                restarted(script);
                finds(script, &[]);
                let after = if commit { ["m2", "m3", "n0", "n1"] } else { ["m0", "m1", "m2", "m3"] };
                assert_eq!(doubt.drain(script), after);
            });
        }
    }
}

#[test]
fn fs_41_killed_around_a_forget() {
    for (number, (point, death)) in places().enumerate() {
        worlds(4_160 + number as u64, 1, |script| {
            let doubt = prepared(script);
            assert_eq!(script.decide_by_operator(&doubt.x, true), Some(true));
            script.arm(BatchKind::Forget, point, 1, death);
            assert_eq!(script.forget(doubt.app, &doubt.x), None, "{point:?} {death:?}");
            back(script);
            let manager = script.manager();
            let forgotten = script.recover(manager).is_empty();
            assert_eq!(forgotten, is_kept(point, death).unwrap_or(forgotten), "{point:?} {death:?}");
            assert_eq!(script.forget(manager, &doubt.x), Some(if forgotten { -4 } else { 0 }));
            assert_eq!(doubt.drain(script), ["m2", "m3", "n0", "n1"]);
        });
    }
}

#[test]
fn fs_42_two_connections_join_one_branch() {
    deaths(4_200, |script, death| {
        filled(script, Q, 1);
        let (one, two) = (script.client(), script.client());
        let controls = [script.control(one), script.control(two)];
        let receiver = script.consumer(one, Q, 1);
        let sender = script.producer(two, "other");
        let got = script.receive(receiver, 0, 1);
        let x = script.branch();
        let tx = script.begin(controls[0], &x);
        assert_eq!(script.start(controls[1], &x, flags::JOIN), Some(0));
        let joined = script.tx(controls[1]);
        script.accept_in(&tx, receiver, got[0].delivery);
        script.send_in(&joined, sender, 1);
        assert_eq!(script.end(controls[0], &x, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(controls[0], &x), Some(-6), "the other one still works in it");
        assert_eq!(script.end(controls[1], &x, flags::SUCCESS), Some(0));
        assert_eq!(script.prepare(controls[1], &x), Some(0));
        script.kill(death);
        restarted(script);
        let manager = finds(script, &[&x]);
        assert_eq!((script.counts(Q), script.counts("other")), ([0, 0, 1, 1], [0, 1, 0, 0]));
        assert_eq!(script.commit(manager, &x), Some(0));
        assert_eq!(script.counts(Q), [0; 4]);
        assert_eq!(numbers(&script.drain("other")), [0]);
    });
}

#[test]
fn fs_42_whoever_is_lost_of_two_undoes_the_work_of_both() {
    for (number, at) in [0, 1].into_iter().enumerate() {
        worlds(4_210 + number as u64, 2, |script| {
            filled(script, Q, 1);
            let clients = [script.client(), script.client()];
            let controls = clients.map(|who| script.control(who));
            let receiver = script.consumer(clients[0], Q, 1);
            let sender = script.producer(clients[1], "other");
            let got = script.receive(receiver, 0, 1);
            let x = script.branch();
            let tx = script.begin(controls[0], &x);
            assert_eq!(script.start(controls[1], &x, flags::JOIN), Some(0));
            let joined = script.tx(controls[1]);
            script.accept_in(&tx, receiver, got[0].delivery);
            script.send_in(&joined, sender, 1);
            script.rest();
            script.cut(clients[at]);
            script.until("it leaves", |s| !s.is_there(clients[at]));
            script.rest();
            let left = controls[1 - at];
            assert_eq!(script.end(left, &x, flags::SUCCESS), Some(101), "XA_RBCOMMFAIL");
            assert_eq!(script.prepare(left, &x), Some(101));
            script.close(clients[1 - at]);
            script.rest();
            assert_eq!((script.counts(Q), script.counts("other")), ([1, 0, 0, 1], [0; 4]));
        });
    }
}

#[test]
fn fs_43_a_queue_with_prepared_entries_is_deleted() {
    for others in [false, true] {
        deaths(4_300 + 10 * u64::from(others), |script, death| {
            filled(script, Q, 1);
            let who = script.client();
            let control = script.control(who);
            let receiver = script.consumer(who, Q, 1);
            let sender = script.producer(who, "other");
            let got = script.receive(receiver, 0, 1);
            let x = script.branch();
            let tx = script.begin(control, &x);
            script.accept_in(&tx, receiver, got[0].delivery);
            if others {
                script.send_in(&tx, sender, 1);
            }
            assert_eq!(script.end(control, &x, flags::SUCCESS), Some(0));
            assert_eq!(script.prepare(control, &x), Some(0));
            script.close(who);
            script.rest();
            assert_eq!(script.delete(Q, false), Err("queue-in-doubt"));
            assert_eq!(script.counts(Q), [0, 0, 1, 1]);
            script.delete(Q, true).expect("it is insisted on");
            script.kill(death);
            restarted(script);
            let manager = finds(script, &[&x]);
            // XA_HEURMIX where another queue did as it was told, else XA_HEURRB.
            assert_eq!(script.commit(manager, &x), Some(if others { 5 } else { 6 }));
            assert_eq!(script.forget(manager, &x), Some(0));
            script.kill(death);
            restarted(script);
            finds(script, &[]);
            assert!(script.queue(Q).is_none());
            assert_eq!(numbers(&script.drain("other")), [0][..usize::from(others)]);
        });
    }
}

#[test]
fn fs_44_killed_around_a_commit_it_is_known_and_a_retry_doubles_nothing() {
    for (number, (point, death)) in places().enumerate() {
        worlds(4_400 + number as u64, 1, |script| {
            filled(script, Q, 2);
            let session = [7; 16];
            let who = script.client_of(session, 1);
            let control = script.control(who);
            let receiver = script.consumer(who, Q, 2);
            let sender = script.producer(who, "other");
            let got = script.receive(receiver, 0, 2);
            let mut txs = Vec::new();
            for counter in [1, 2] {
                let tx = script.declare(control);
                script.accept_in(&tx, receiver, got[counter as usize - 1].delivery);
                script.send_in(&tx, sender, 1);
                script.rest();
                if counter == 2 {
                    script.arm(BatchKind::Commit, point, 1, death);
                }
                let answer = script.commit_as(control, &tx, counter);
                assert_eq!(answer, (counter == 1).then_some(true), "{point:?} {death:?}");
                txs.push(tx);
            }
            back(script);
            let who = script.client_of(session, 2);
            let control = script.control(who);
            let told = script.status(control, &txs[1], 2);
            let kept = told == TxOutcome::Committed;
            assert!(kept || told == TxOutcome::RolledBack, "{told:?}");
            assert_eq!(kept, is_kept(point, death).unwrap_or(kept), "{point:?} {death:?}");
            assert_eq!(script.counts(Q), [u64::from(!kept), 0, 0, u64::from(!kept)]);
            if !kept {
                // It does the same again. The number is spent.
                let receiver = script.consumer(who, Q, 1);
                let again = script.receive(receiver, 0, 1);
                assert_eq!((again[0].number, again[0].deliveries), (1, 1));
                let sender = script.producer(who, "other");
                for (counter, fine) in [(2, false), (3, true)] {
                    let tx = script.declare(control);
                    if fine {
                        script.accept_in(&tx, receiver, again[0].delivery);
                    }
                    script.send_in(&tx, sender, 1);
                    assert_eq!(script.commit_as(control, &tx, counter), Some(fine), "number {counter}");
                }
            }
            script.rest();
            assert_eq!(script.counts(Q), [0; 4]);
            assert_eq!(script.drain("other").len(), 2, "each once");
        });
    }
}

#[test]
fn fs_44_a_branch_that_is_committed_in_one_phase_is_known_when_it_is_asked_for_again() {
    for (number, (point, death)) in places().enumerate() {
        worlds(4_430 + number as u64, 1, |script| {
            let doubt = worked(script);
            script.arm(BatchKind::Commit, point, 1, death);
            assert_eq!(script.commit_one_phase(doubt.app, &doubt.x), None, "{point:?} {death:?}");
            back(script);
            let manager = finds(script, &[]);
            let kept = script.counts(Q) == [4, 0, 0, 4] && doubt.browse(script)[0] == "m2";
            assert_eq!(kept, is_kept(point, death).unwrap_or(kept), "{point:?} {death:?}");
            assert_eq!(script.commit_one_phase(manager, &doubt.x), Some(if kept { 0 } else { -4 }));
            let after = if kept { ["m2", "m3", "n0", "n1"] } else { ["m0", "m1", "m2", "m3"] };
            assert_eq!(doubt.drain(script), after);
        });
    }
}

/// Queues that a branch adds to, and as many that it takes from.
const HALF: usize = 25;

/// Sums over these queues: `ready`, `prepared_in`, `prepared_out`, `depth`.
fn sums(script: &mut Script, queues: &[String]) -> [u64; 4] {
    let mut sums = [0; 4];
    for queue in queues {
        for (sum, count) in sums.iter_mut().zip(script.counts(queue)) {
            *sum += count;
        }
    }
    sums
}

/// The writes of blocks.
fn of_a_block(op: &DiskOp) -> bool {
    matches!(op, DiskOp::Write { name: FileName::Segment(_), .. })
}

/// A branch over all fifty queues, up to its commit. Some of what it adds is so large that it goes ahead of the branch's record. False:
/// the broker died.
fn over_fifty(script: &mut Script, x: &Branch, ins: &[String], outs: &[String], n: u64, end: (When, Death)) -> bool {
    let who = script.client();
    let control = script.control(who);
    let senders: Vec<Sender> = ins.iter().map(|queue| script.producer(who, queue)).collect();
    let receivers: Vec<_> = outs.iter().map(|queue| script.consumer(who, queue, 1)).collect();
    let deliveries: Vec<u32> = receivers.iter().map(|r| script.receive(*r, 0, 1)[0].delivery).collect();
    script.rest();
    script.arm_disk(of_a_block, n, end.0, end.1);
    if script.start(control, x, flags::NONE) != Some(0) {
        return false;
    }
    let tx = script.tx(control);
    for (nth, receiver) in receivers.iter().enumerate() {
        script.accept_in(&tx, *receiver, deliveries[nth]);
        for size in if nth == 0 { &[400_000; 3][..] } else { &[200] } {
            script.send_shaped_in(&tx, senders[nth], Shape { size: *size, ..Shape::default() });
        }
    }
    script.end(control, x, flags::SUCCESS) == Some(0)
        && script.prepare(control, x) == Some(0)
        && script.commit(control, x) == Some(0)
}

#[test]
fn fs_45_a_branch_over_fifty_queues_is_all_or_nothing_at_each_record() {
    const ENDS: [(When, Death); 5] = [
        (When::Before, Death::Kill),
        (When::During, Death::Power(CrashMode::Torn(512))),
        (When::After, Death::Kill),
        (When::After, Death::Power(CrashMode::Lose)),
        (When::During, Death::Power(CrashMode::Lose)),
    ];
    const ALL: u64 = HALF as u64;
    let names = |half: &str| (0..HALF).map(|nth| format!("{half}-{nth:02}")).collect::<Vec<_>>();
    let (ins, outs) = (names("in"), names("out"));
    let all: Vec<&str> = ins.iter().chain(&outs).map(String::as_str).collect();
    let (mut in_doubt, mut committed, mut nothing) = (0, 0, 0);
    for (number, end) in ENDS.into_iter().enumerate() {
        let seed = 4_500 + number as u64;
        let mut script = Script::new(seed, 1 + (seed % 2) as u16, &all);
        // At its n-th write, until there are no more.
        for n in 1.. {
            let writer = script.client();
            for queue in &outs {
                let sender = script.producer(writer, queue);
                script.send(sender, 1);
            }
            script.rest();
            script.close(writer);
            let x = script.branch();
            let over = over_fifty(&mut script, &x, &ins, &outs, n, end) && script.is_armed();
            if over {
                script.disarm();
                script.kill(end.1);
            }
            back(&mut script);
            let manager = script.manager();
            let listed = script.recover(manager);
            let (adds, removes) = (sums(&mut script, &ins), sums(&mut script, &outs));
            let heard = script.heard(&x);
            if listed.contains(&x) {
                in_doubt += 1;
                assert_eq!((adds, removes), ([0, ALL + 2, 0, 0], [0, 0, ALL, ALL]), "{end:?} {n}: it is in doubt");
                assert_eq!(script.commit(manager, &x), Some(0));
            } else if matches!(heard, Some(Heard::Deciding(_) | Heard::Decided(_))) {
                committed += 1;
                assert_eq!((adds, removes), ([ALL + 2, 0, 0, ALL + 2], [0; 4]), "{end:?} {n}: it is committed");
                assert_eq!(script.commit(manager, &x), Some(0), "remembered");
            } else {
                nothing += 1;
                assert_eq!((adds, removes), ([0; 4], [ALL, 0, 0, ALL]), "{end:?} {n}: it never was");
            }
            script.close(script.client_of_control(manager));
            for queue in &all {
                script.drain(queue);
            }
            if over {
                break;
            }
        }
        script.finish();
    }
    // Before what goes ahead and the prepare; before the decision; after it.
    assert!(nothing >= 5 && in_doubt >= 3 && committed >= 5, "{nothing} {in_doubt} {committed}");
}

/// Takes a message and sends it on, in a branch that is prepared then. The message's number.
fn one_of_the_pipeline(script: &mut Script, control: Control, x: &Branch) -> u64 {
    let who = script.client_of_control(control);
    let receiver = script.consumer(who, Q, 1);
    let sender = script.producer(who, "other");
    let got = script.receive(receiver, 0, 1).remove(0);
    let tx = script.begin(control, x);
    script.accept_in(&tx, receiver, got.delivery);
    script.send_in(&tx, sender, 1);
    assert_eq!(script.end(control, x, flags::SUCCESS), Some(0));
    assert_eq!(script.prepare(control, x), Some(0));
    got.number
}

#[test]
fn fs_46_a_pipeline_with_an_external_decision_log_a_thousand_deaths() {
    const DEATHS: u64 = 100;
    let (committed, with_broker) = (Cell::new(0), Cell::new(0));
    worlds(4_600, 5, |script| {
        // A message may be rolled back any number of times.
        script.create(Q, 100_000);
        filled(script, Q, DEATHS);
        // The log: by branch the message, and whether it is to be committed. Nothing else outlives a manager.
        let mut log: BTreeMap<Branch, (u64, bool)> = BTreeMap::new();
        let mut rolled_back = 0;
        for death in 0..=DEATHS {
            let manager = script.manager();
            for x in script.recover(manager) {
                let commit = log.get(&x).is_some_and(|(_, commit)| *commit);
                rolled_back += u64::from(!commit);
                assert_eq!(script.decide_branch(manager, &x, commit), Some(0));
            }
            if death == DEATHS {
                break;
            }
            let x = script.branch();
            let number = one_of_the_pipeline(script, manager, &x);
            // Now and then it dies before it has decided.
            if script.draw(0, 4) > 0 {
                let commit = script.draw(0, 4) < 3;
                log.insert(x, (number, commit));
            }
            script.kill_client(script.client_of_control(manager));
            if script.draw(0, 5) == 0 {
                with_broker.set(with_broker.get() + 1);
                let how = Death::ALL[script.draw(0, 4) as usize];
                script.kill(how);
                restarted(script);
            }
        }
        let mut expected: Vec<u64> = log.values().filter(|(_, commit)| *commit).map(|(number, _)| *number).collect();
        expected.sort_unstable();
        committed.set(committed.get() + expected.len());
        let rest: Vec<u64> = (0..DEATHS).filter(|number| expected.binary_search(number).is_err()).collect();
        assert_eq!(rolled_back, rest.len() as u64);
        let who = script.client();
        let receiver = script.consumer(who, Q, 200);
        let left = script.receive(receiver, 0, rest.len());
        assert_eq!(numbers(&left), rest, "what was rolled back, in order");
        decide(script, receiver, &left, Verdict::Accept);
        assert_eq!(script.drain("other").len(), expected.len(), "what was committed");
    });
    assert!(committed.get() >= 100 && with_broker.get() >= 50, "{} {}", committed.get(), with_broker.get());
}
