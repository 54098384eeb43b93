//! Deliveries that end in a transaction otherwise than acknowledged: what a commit makes of them, and a rollback.

use super::*;
use bytes::Bytes;
use packhorse_model::{DuplicateId, Identity, Reason};
use packhorse_queue::{IdBounds, Known};

/// The outcomes of m0 to m4; m5 is acknowledged.
fn outcomes() -> [Outcome; 6] {
    [
        Outcome::ReturnUnseen,
        seen(),
        Outcome::ReturnModified { undeliverable_here: true, annotations: Bytes::from_static(b"note") },
        Outcome::Reject { detail: "why".into() },
        Outcome::ReturnSeen { undeliverable_here: false, annotations: Bytes::from_static(b"seen") },
        Outcome::Acknowledge,
    ]
}

/// m0 to m6 are there, and all but the last have ended in X.
fn ended() -> Rig {
    let mut rig = Rig::new(10);
    rig.send_all(7);
    let consumer = rig.subscribe(Q, 1);
    for (got, outcome) in rig.receive(Q, consumer, 6).iter().zip(outcomes()) {
        assert!(rig.settle_in(txn(1), got, outcome.clone()));
        assert!(!rig.settle_in(txn(2), got, outcome), "once");
    }
    rig.roll_back(txn(2));
    rig.flush();
    let stats = rig.queue(Q).stats();
    assert_eq!((stats.depth, stats.removing, stats.ready), (7, 6, 1), "nobody else gets them");
    rig
}

fn annotations(rig: &Rig) -> [Option<&[u8]>; 2] {
    [2, 4].map(|sequence| rig.queue(Q).overlay(4, sequence).map(|overlay| &overlay.annotations[..]))
}

/// What is there after a commit, and what letter.
fn is_committed(rig: &mut Rig, consumer: u64, again: u32) {
    assert_eq!(annotations(rig), [Some(&b"note"[..]), Some(b"seen")]);
    let expected = [(0, again), (1, 1 + again), (2, again), (4, 1 + again)];
    let all = rig.drain(Q, consumer);
    assert_eq!(all[..4], expected);
    assert_eq!(all[4].0, 6);
    let letters = rig.drain(DLQ, consumer);
    assert_eq!(letters.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3]);
    for queue in [Q, DLQ] {
        rig.unsubscribe(queue, ConsumerId(consumer), false);
    }
    rig.flush();
}

fn letter(rig: &Rig) {
    let [relocation] = &rig.relocations[..] else { panic!("one letter: {:?}", rig.relocations) };
    let letter = relocation.overlay.dead_letter.as_ref().unwrap();
    let told = (letter.reason, &*letter.detail, letter.sequence, letter.deliveries, letter.leaving);
    assert_eq!(told, (Reason::Rejected, "why", 3, 1, false));
}

#[test]
fn a_commit_carries_them_out() {
    for prepares in [false, true] {
        for fault in FAULTS {
            let mut rig = ended();
            if prepares {
                rig.prepare(txn(1));
                rig = after(rig, fault);
                let stats = rig.queue(Q).stats();
                assert_eq!((stats.depth, stats.removing, stats.prepared_out), (7, 6, 6), "{fault:?}");
                assert_eq!(rig.drain(Q, 8).len(), 1);
                assert!(rig.relocations.is_empty() && annotations(&rig) == [None; 2], "nothing has happened");
                rig.unsubscribe(Q, ConsumerId(8), false);
                rig.decide(txn(1), true);
            } else {
                rig.commit(txn(1));
            }
            rig.flush();
            letter(&rig);
            is_committed(&mut rig, 9, 0);
        }
    }
}

#[test]
fn a_commit_is_carried_out_by_the_next_start_if_the_broker_dies_right_after_it() {
    for prepares in [false, true] {
        for fault in FAULTS.into_iter().skip(1) {
            let mut rig = ended();
            if prepares {
                rig.prepare(txn(1));
                rig.write_decision(txn(1), true);
            } else {
                rig.write_commit(txn(1));
            }
            rig.flush();
            assert!(rig.relocations.is_empty());
            for again in FAULTS {
                rig = after(rig, fault);
                // What goes to the dead-letter queue is not to be had, from the first moment on.
                let stats = rig.queue(Q).stats();
                assert_eq!((stats.removing, stats.prepared_out), (0, 0));
                rig.flush();
                if again == Fault::None {
                    letter(&rig);
                    let stats = rig.queue(Q).stats();
                    assert_eq!((stats.depth, stats.scheduled), (5, 0));
                    assert_eq!(rig.queue(DLQ).stats().depth, 1);
                } else {
                    assert!(rig.relocations.is_empty(), "it has gone");
                }
                assert_eq!(annotations(&rig), [Some(&b"note"[..]), Some(b"seen")]);
                rig = after(rig, again);
                rig.flush();
            }
            let got = rig.drain(Q, 7);
            assert!(got.iter().all(|(number, _)| [0, 1, 2, 4, 6].contains(number)), "{got:?}");
        }
    }
}

#[test]
fn a_rollback_brings_all_back_as_seen() {
    for prepares in [false, true] {
        let mut rig = ended();
        if prepares {
            rig.prepare(txn(1));
            rig.decide(txn(1), false);
        } else {
            rig.roll_back(txn(1));
        }
        rig.flush();
        for again in FAULTS {
            assert!(rig.relocations.is_empty() && annotations(&rig) == [None; 2]);
            let all = rig.drain(Q, 9);
            assert_eq!(all.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..7).collect::<Vec<_>>());
            if again == Fault::None {
                let counts: Vec<u32> = all.iter().map(|(_, deliveries)| *deliveries).collect();
                assert_eq!(counts, [1, 1, 1, 1, 1, 1, 0], "raised by the delivery that ended, and by nothing else");
            }
            rig.unsubscribe(Q, ConsumerId(9), false);
            rig.flush();
            rig = after(rig, again);
        }
    }
}

#[test]
fn who_declined_it_in_a_transaction_does_not_get_it_again() {
    let mut rig = Rig::new(10);
    rig.send_all(1);
    let consumer = rig.subscribe(Q, 1);
    for (number, seen_by_it) in [(1, false), (2, true)] {
        let got = rig.receive(Q, consumer, 1);
        let annotations = Bytes::new();
        let outcome = match seen_by_it {
            false => Outcome::ReturnModified { undeliverable_here: true, annotations },
            true => Outcome::ReturnSeen { undeliverable_here: true, annotations },
        };
        assert!(rig.settle_in(txn(number), &got[0], outcome));
        rig.roll_back(txn(number));
        rig.flush();
    }
    let got = rig.receive(Q, consumer, 1);
    assert_eq!(got[0].deliveries, 2, "rolled back, it never declined");
    let outcome = Outcome::ReturnModified { undeliverable_here: true, annotations: Bytes::new() };
    assert!(rig.settle_in(txn(3), &got[0], outcome));
    rig.commit(txn(3));
    rig.flush();
    assert_eq!(rig.receive(Q, consumer, 5), []);
    assert_eq!(rig.drain(Q, 2), [(0, 2)]);
}

#[test]
fn an_attempt_too_many_sends_it_on_at_the_commit() {
    let mut rig = Rig::new(2);
    rig.send_all(1);
    let consumer = rig.subscribe(Q, 1);
    for number in 1..=2 {
        let got = rig.receive(Q, consumer, 1);
        assert!(rig.settle_in(txn(number), &got[0], seen()));
        assert!(rig.relocations.is_empty());
        rig.commit(txn(number));
        rig.flush();
    }
    let reasons: Vec<Reason> = rig.relocations.iter().map(|r| r.overlay.dead_letter.as_ref().unwrap().reason).collect();
    assert_eq!(reasons, [Reason::DeliveryLimit]);
    assert_eq!((rig.drain(Q, 2), rig.drain(DLQ, 2)), (vec![], vec![(0, 0)]));
}

/// m0 and m1 have duplicate ids, and in one transaction m0 is released, m1 is rejected, both are sent again, and a new one is sent.
#[test]
fn what_is_given_back_is_not_stored_again_in_the_same_transaction() {
    let id = |n: u64| Identity::Id(DuplicateId::of(&n.to_be_bytes()));
    let bounds = IdBounds { max: 100, keep_ms: 60_000 };
    for (fault, commit) in FAULTS.into_iter().flat_map(|fault| [(fault, true), (fault, false)]) {
        for prepares in [true, false] {
            let mut rig = Rig::new(10);
            rig.remember_ids(bounds);
            assert_eq!([0, 1].map(|n| rig.send_as(id(n), n, true)), [Known::New; 2]);
            rig.flush();
            let consumer = rig.subscribe(Q, 1);
            let got = rig.receive(Q, consumer, 2);
            let again = [Known::Stored, Known::Stored, Known::New];
            assert_eq!([0, 1, 2].map(|n| rig.stage_identified(txn(1), id(n), n, true)), again);
            assert!(rig.settle_in(txn(1), &got[0], Outcome::ReturnUnseen));
            assert!(rig.settle_in(txn(1), &got[1], Outcome::Reject { detail: "why".into() }));
            assert_eq!([0, 1, 2].map(|n| rig.stage_identified(txn(1), id(n), n, true)), [Known::Stored; 3]);
            if prepares {
                rig.prepare(txn(1));
                rig = after(rig, fault);
                rig.remember_ids(bounds);
                rig.decide(txn(1), commit);
            } else if commit {
                rig.commit(txn(1));
            } else {
                rig.roll_back(txn(1));
            }
            rig.flush();
            let mut rig = after(rig, fault);
            rig.remember_ids(bounds);
            let now = [Known::Stored, Known::Stored, if commit { Known::Stored } else { Known::New }];
            assert_eq!([0, 1, 2].map(|n| rig.look(id(n), None)), now, "{fault:?}, {prepares}, {commit}");
            let numbers = |rig: &mut Rig, queue| rig.drain(queue, 9).into_iter().map(|(n, _)| n).collect::<Vec<_>>();
            let (there, letters) = if commit { (vec![0, 2], vec![1]) } else { (vec![0, 1], vec![]) };
            assert_eq!(numbers(&mut rig, Q), there, "{fault:?}, {prepares}, {commit}");
            assert_eq!(numbers(&mut rig, DLQ), letters, "{fault:?}, {prepares}, {commit}");
        }
    }
}
