//! Order, visibility, and where bodies are.

use super::*;

#[test]
fn what_is_committed_stands_where_its_numbers_were_drawn() {
    let mut rig = Rig::new(10);
    let consumer = rig.subscribe(Q, 1);
    for number in 0..300 {
        rig.stage_number(txn(1), number);
    }
    rig.write_commit(txn(1));
    // Sent later, and seen earlier: nobody waits for a decision on its way.
    for number in 300..310 {
        rig.send(Q, number, 4, true);
    }
    rig.flush();
    let early = rig.receive(Q, consumer, 4);
    assert_eq!(numbers(&early), [300, 301, 302, 303]);
    rig.apply(txn(1), Resolution::Commit);
    let got = rig.receive(Q, consumer, 302);
    assert_eq!(numbers(&got), (0..300).chain([304, 305]).collect::<Vec<_>>());
    for got in early.iter().chain(&got).rev() {
        assert!(rig.settle(got, Outcome::ReturnUnseen));
    }
    rig.flush();
    assert_eq!(numbers(&rig.receive(Q, consumer, 400)), (0..310).collect::<Vec<_>>());
}

#[test]
fn a_commit_waits_for_what_was_sent_before_it() {
    let mut rig = Rig::new(10);
    let consumer = rig.subscribe(Q, 1);
    rig.credit(Q, consumer, 10);
    rig.send(Q, 0, 4, true);
    rig.end_turn();
    // Nothing in it needs a record.
    rig.stage(txn(1), b"1", 4, false);
    let gathered = rig.gathered_at_once(txn(1), Purpose::Commit);
    assert!(!gathered.persistent && gathered.volatile == 1 && gathered.part.ops.is_empty());
    rig.apply(txn(1), Resolution::Commit);
    rig.turns();
    assert_eq!(rig.take(consumer), [], "what is before it waits for its flush");
    assert!(!rig.queue(Q).quiet_for(consumer), "something is to come");
    rig.flush();
    assert_eq!(numbers(&rig.take(consumer)), [0, 1]);
}

#[test]
fn a_browser_waits_for_numbers_that_are_drawn() {
    let mut rig = Rig::new(10);
    rig.send_all(1);
    let browser = ConsumerId(9);
    rig.handle(Q, Input::Browse { consumer: browser });
    rig.credit(Q, browser, 10);
    rig.stage_number(txn(1), 1);
    rig.stage_number(txn(2), 2);
    rig.write_commit(txn(1));
    rig.send(Q, 3, 4, true);
    rig.flush();
    assert_eq!(numbers(&rig.take(browser)), [0]);
    rig.apply(txn(1), Resolution::Commit);
    rig.flush();
    assert_eq!(numbers(&rig.take(browser)), [1, 3]);
    rig.commit(txn(2));
    rig.flush();
    assert_eq!(numbers(&rig.take(browser)), [2]);
}

#[test]
fn bodies_are_found_wherever_they_are() {
    for (is_prepared, fault) in [(false, Fault::None), (true, Fault::None), (true, Fault::Kill(0))] {
        let mut rig = Rig::new(10);
        let consumer = rig.subscribe(Q, 1);
        let body = |n: u64| vec![n as u8; if n.is_multiple_of(5) { 400_000 } else { 3 }];
        let persistent = |n: u64| n % 3 != 1;
        for n in 0..40 {
            rig.stage(txn(1), &body(n), 4, persistent(n));
        }
        let ahead = rig.side(txn(1)).ahead.clone();
        assert!(ahead.len() >= 2, "{ahead:?}: more than 1 MiB goes ahead");
        if is_prepared {
            rig.prepare(txn(1));
            rig = after(rig, fault);
            if fault != Fault::None {
                rig.handle(Q, Input::Subscribe { consumer, pre_settled: false });
            }
            rig.decide(txn(1), true);
        } else {
            rig.commit(txn(1));
        }
        let got = rig.receive(Q, consumer, 100);
        let expected = (0..40).filter(|n| fault == Fault::None || persistent(*n)).map(body);
        assert!(got.iter().map(|g| g.body.clone()).eq(expected), "{is_prepared} {fault:?}");
        assert_eq!(rig.damaged, []);
        let mut rig = rig.crash(0);
        rig.handle(Q, Input::Subscribe { consumer, pre_settled: false });
        let got = rig.receive(Q, consumer, 100);
        assert!(got.iter().map(|g| g.body.clone()).eq((0..40).filter(|n| persistent(*n)).map(body)));
    }
}

#[test]
fn a_part_is_handed_over_when_all_has_come_and_what_went_ahead_is_durable() {
    let mut rig = Rig::new(10);
    for n in 0..5 {
        rig.stage(txn(1), &vec![n; 300_000], 4, true);
    }
    assert_eq!(rig.side(txn(1)).ahead, [4]);
    rig.side(txn(1)).figures.adds += 1;
    assert!(!rig.gather(txn(1), Purpose::Commit), "one has not come");
    rig.end_turn();
    rig.flush();
    assert!(rig.side(txn(1)).gathered.is_none());
    rig.handle(Q, Input::StageRefused { txn: txn(1) });
    rig.turns();
    let gathered = rig.side(txn(1)).gathered.take().expect("all has come");
    let ahead = packhorse_store::Ahead { records: 1, ops: 4, bytes: 1_200_000 };
    assert_eq!((gathered.part.ops.len(), gathered.part.ahead), (1, ahead));
    assert_eq!(gathered.part.numbers, Some(packhorse_store::Numbers { first: 0, count: 5 }));
    for n in 0..4 {
        rig.stage(txn(2), &vec![n; 300_000], 4, true);
    }
    assert!(!rig.gather(txn(2), Purpose::Prepare), "what went ahead is not durable");
    rig.turns();
    assert!(rig.side(txn(2)).gathered.is_none());
    rig.flush();
    let gathered = rig.side(txn(2)).gathered.take().expect("it is durable");
    assert_eq!((gathered.part.ops.len(), gathered.part.numbers), (0, None));
}

#[test]
fn what_is_not_persistent_has_no_operation_and_goes_with_the_process() {
    let mut rig = Rig::new(10);
    rig.send(Q, 0, 4, false);
    rig.send(Q, 1, 4, true);
    rig.flush();
    let consumer = rig.subscribe(Q, 1);
    for got in rig.receive(Q, consumer, 2) {
        assert!(rig.remove(txn(1), &got));
    }
    rig.stage(txn(1), b"2", 4, false);
    rig.stage(txn(1), b"3", 4, true);
    let file = rig.stage_large(txn(1), 1 << 21, false);
    let gathered = rig.gathered(txn(1), Purpose::Commit);
    assert_eq!((gathered.volatile, gathered.persistent), (3, true));
    let indexes: Vec<_> = gathered
        .part
        .ops
        .iter()
        .filter_map(|op| match op {
            packhorse_store::TxnOp::Enqueue { index, .. } => Some(*index),
            _ => None,
        })
        .collect();
    assert_eq!((indexes, gathered.part.ops.len()), (vec![1], 2), "those that survive, with their indexes");
    assert_eq!(gathered.part.numbers.unwrap().count, 3);
    rig.side(txn(1)).gathered = Some(gathered);
    rig.commit(txn(1));
    rig.flush();
    assert_eq!(rig.large_files(), 1);
    let got = rig.receive(Q, consumer, 10);
    assert_eq!((got.len(), rig.queue(Q).stats().depth), (3, 3));
    // Its file goes with it, as that of any other.
    assert!(rig.settle(&got[2], Outcome::Acknowledge));
    rig.flush();
    assert_eq!((rig.large_files(), rig.discarded.contains(&file)), (0, false));
    let mut rig = rig.crash(0);
    assert_eq!(rig.drain(Q, 1).iter().map(|(n, _)| *n).collect::<Vec<_>>(), [3]);
}

#[test]
fn files_of_what_never_came_are_discarded_by_whoever_knows_them() {
    // Of a branch in doubt the store drops those that are persistent.
    let mut rig = Rig::new(10);
    let a = rig.stage_large(txn(1), 1 << 21, true);
    let b = rig.stage_large(txn(1), 1 << 21, false);
    rig.roll_back(txn(1));
    assert_eq!(rig.discarded, [a, b]);
    rig.stage_large(txn(2), 1 << 21, true);
    let b = rig.stage_large(txn(2), 1 << 21, false);
    rig.prepare(txn(2));
    rig.decide(txn(2), false);
    assert_eq!(rig.discarded[2..], [b]);
    let c = rig.stage_large(txn(3), 1 << 21, true);
    rig.handle(Q, Input::Delete);
    rig.turns();
    assert_eq!(rig.discarded[3..], [c]);
    assert_eq!(rig.large_files(), 0);
}
