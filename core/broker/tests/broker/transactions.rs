//! Local transactions as clients see them: all or nothing, several at once, and every way in which one cannot be committed.

use crate::coordinator::{answer, ask, controlled, declare, discharge};
use crate::world::{C, Msg, SenderTerms, World, each, each_with, number};
use packhorse_amqp10::codec::{DeliveryState, Discharge, Outcome, SenderSettleMode, TransactionalState, Transfer};
use packhorse_amqp10::transaction::{Request, TxCommit, TxStatus};
use packhorse_broker::{By, Command, OnFull, QueueLimits, QueuePatch, Reply};

const ACCEPTED: Option<Outcome<'static>> = Some(Outcome::Accepted);

/// A queue with these messages, and a receiver that has got them.
pub(crate) fn received(
    world: &mut World,
    c: C,
    queue: &str,
    numbers: impl IntoIterator<Item = u64>,
    credit: u32,
) -> usize {
    world.fill(queue, numbers);
    let r = world[c].receiver(queue, credit);
    world.run();
    r
}

fn outcome(world: &World, c: C, link: usize, token: u64) -> String {
    let told = &world[c].links[link].outcomes;
    told.iter().find(|(t, _)| *t == token).map_or("nothing", |(_, text)| text).to_string()
}

/// How many messages each of these queues has ready.
pub(crate) fn ready(world: &mut World, queues: &[&str]) -> Vec<u64> {
    queues.iter().map(|queue| world.queue(queue).counters.ready).collect()
}

#[test]
fn sends_and_acknowledgements_in_several_queues_happen_together() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        for queue in ["b", "d"] {
            world.declare(queue);
        }
        let r = received(world, c, "a", 1..=3, 2);
        let (b, d) = (world[c].sender("b"), world[c].sender("d"));
        world.run();
        let txn = declare(world, c, control);
        let tokens = [10, 11].map(|n| world[c].send_in(&txn, b, number(n), false));
        world[c].send_in(&txn, d, number(20), true);
        world[c].decide_in(&txn, r, 0, ACCEPTED, true);
        world.run();
        for token in tokens {
            assert_eq!(outcome(world, c, b, token), "in transaction accepted");
        }
        assert_eq!(ready(world, &["a", "b", "d"]), [1, 0, 0], "nothing is seen of it");
        assert_eq!(world.queue("a").counters.depth, 3);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(world.queue("a").counters.depth, 2);
        assert_eq!(world.take("b"), [(10, 0), (11, 0)]);
        assert_eq!(world.take("d"), [(20, 0)]);
        // The same rolled back.
        let txn = declare(world, c, control);
        world[c].send_in(&txn, b, number(12), false);
        world[c].send_in(&txn, d, number(21), true);
        world[c].decide_in(&txn, r, 1, ACCEPTED, true);
        world.run();
        assert_eq!(discharge(world, c, control, &txn, true), "accepted");
        assert_eq!(ready(world, &["b", "d"]), [0, 0]);
        world[c].close();
        world.run();
        assert_eq!(world.take("a"), [(2, 1), (3, 0)], "back at its place, and it counts as delivered");
    });
}

#[test]
fn nothing_is_accepted_or_seen_before_the_commit_is_durable() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "a", [1], 1);
        let (b, watch) = (world[c].sender("b"), world.client("watch"));
        let seen = world[watch].receiver("b", 10);
        world.run();
        let txn = declare(world, c, control);
        world.hold_store();
        world[c].send_in(&txn, b, number(10), false);
        world[c].decide_in(&txn, r, 0, ACCEPTED, true);
        world.run();
        let token = world[c].request(control, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
        world.run();
        assert_eq!(answer(world, c, control, token), "nothing");
        assert!(world[watch].links[seen].got.is_empty());
        // Nothing can be done to it any more, and nothing comes into it.
        let late = world[c].send_in(&txn, b, number(11), false);
        world.run();
        assert_eq!(outcome(world, c, b, late), "rejected amqp:transaction:unknown-id");
        world.flush();
        assert_eq!(answer(world, c, control, token), "accepted");
        // Before it is given to somebody, that is marked.
        world.free_store();
        assert_eq!(world[watch].numbers(seen), [10]);
    });
}

#[test]
fn several_at_once_over_links_and_sessions_do_not_mix() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        world.declare("q");
        let session = world[c].begin();
        let one = world[c].sender("q");
        let two = world[c].sender_with(session, "two", "q", SenderTerms::default());
        world.run();
        let txns: Vec<Vec<u8>> = (0..3).map(|_| declare(world, c, control)).collect();
        for n in 0..9 {
            let (txn, link) = (&txns[n as usize % 3], if n % 2 == 0 { one } else { two });
            world[c].send_in(txn, link, number(n), n % 4 == 0);
        }
        let plain = world[c].send(one, number(100));
        world.run();
        assert_eq!(outcome(world, c, one, plain), "accepted", "beside them");
        assert_eq!(discharge(world, c, control, &txns[1], true), "accepted");
        assert_eq!(discharge(world, c, control, &txns[2], false), "accepted");
        assert_eq!(discharge(world, c, control, &txns[0], false), "accepted");
        let numbers: Vec<u64> = world.take("q").into_iter().map(|(n, _)| n).collect();
        let (mut second, mut first): (Vec<u64>, Vec<u64>) = numbers[1..].iter().partition(|n| **n % 3 == 2);
        assert_eq!(numbers[0], 100);
        assert_eq!(numbers[1..4], second, "in the order of the commits");
        second.sort_unstable();
        first.sort_unstable();
        assert_eq!((second, first), (vec![2, 5, 8], vec![0, 3, 6]));
    });
}

#[test]
fn a_late_transfer_never_joins_the_next_one() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        let old = declare(world, c, control);
        assert_eq!(discharge(world, c, control, &old, false), "accepted");
        let next = declare(world, c, control);
        let late = world[c].send_in(&old, s, number(1), false);
        let good = world[c].send_in(&next, s, number(2), false);
        world.run();
        assert_eq!(outcome(world, c, s, late), "rejected amqp:transaction:unknown-id");
        assert_eq!(outcome(world, c, s, good), "in transaction accepted");
        assert_eq!(discharge(world, c, control, &next, false), "accepted");
        // One that was sent settled cannot be refused but by the link's end.
        world[c].send_in(&old, s, number(3), true);
        world.run();
        assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:transaction:unknown-id"));
        assert_eq!(world.take("q"), [(2, 0)]);
    });
}

#[test]
fn what_is_lost_is_rolled_back() {
    each(|world| {
        for how in 0..3 {
            let queue = &format!("q{how}");
            let (c, control) = controlled(world, "c");
            let session = world[c].begin();
            let r = received(world, c, queue, [1, 2], 1);
            let s = world[c].sender(queue);
            let second = world[c].controller(session, "second");
            world.run();
            let txn = declare(world, c, if how == 1 { second } else { control });
            world[c].send_in(&txn, s, number(3), false);
            world[c].decide_in(&txn, r, 0, ACCEPTED, true);
            world.run();
            match how {
                0 => world[c].detach(control, true),
                1 => world[c].end(session),
                _ => world.kill(c),
            }
            world.run();
            assert_eq!(ready(world, &[queue]), [2], "way {how}");
            if how < 2 {
                let late = world[c].send_in(&txn, s, number(4), false);
                world.run();
                assert_eq!(outcome(world, c, s, late), "rejected amqp:transaction:unknown-id");
                world[c].close();
                world.run();
            }
            assert_eq!(world.take(queue), [(1, 1), (2, 0)], "way {how}");
        }
    });
}

#[test]
fn a_commit_on_its_way_is_not_undone_by_a_loss() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        let txn = declare(world, c, control);
        world.hold_store();
        world[c].send_in(&txn, s, number(1), false);
        world.run();
        world[c].request(control, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
        world.run();
        // Closed, our client would not listen any more.
        world[c].detach(control, false);
        world.run();
        assert_eq!(world[c].links[control].ended, None, "our detach comes behind the answer");
        world.flush();
        assert_eq!(world[c].links[control].outcomes.last().unwrap().1, "accepted");
        assert_eq!(world[c].links[control].ended.as_deref(), Some(""));
        world.free_store();
        let txn = {
            let second = world[c].controller(0, "second");
            world.run();
            let txn = declare(world, c, second);
            world[c].send_in(&txn, s, number(2), false);
            world.hold_store();
            world.run();
            world[c].request(second, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
            world.run();
            world.kill(c);
            world.run();
            txn
        };
        assert!(!txn.is_empty());
        world.free_store();
        assert_eq!(world.take("q"), [(1, 0), (2, 0)]);
    });
}

#[test]
fn one_that_takes_too_long_is_undone_at_once_and_says_so_at_its_end() {
    each_with(
        |config| config.transactions.local_timeout_ms = 1_000,
        |world| {
            let (c, control) = controlled(world, "c");
            let r = received(world, c, "a", 1..=2, 2);
            let s = world[c].sender("b");
            world.run();
            let txn = declare(world, c, control);
            world[c].send_in(&txn, s, number(1), false);
            world[c].decide_in(&txn, r, 0, ACCEPTED, true);
            world.pass(999);
            assert_eq!(ready(world, &["a"]), [0]);
            world.pass(2);
            assert_eq!(ready(world, &["a"]), [1], "others may have it");
            let late = world[c].send_in(&txn, s, number(2), false);
            world.run();
            assert_eq!(outcome(world, c, s, late), "rejected amqp:transaction:timeout");
            // What it acknowledges too late comes back as what it had acknowledged: the application has seen both.
            world[c].decide_in(&txn, r, 1, ACCEPTED, true);
            world.run();
            assert_eq!(world.take("a"), [(1, 1), (2, 1)]);
            assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:timeout");
            assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:unknown-id");
            // Rolling it back is always possible.
            let txn = declare(world, c, control);
            world.pass(1_001);
            assert_eq!(discharge(world, c, control, &txn, true), "accepted");
            assert_eq!(ready(world, &["b"]), [0]);
        },
    );
}

#[test]
fn too_many_bytes_are_refused_with_the_figure() {
    each_with(
        |config| config.transactions.max_staged_bytes = 64 << 10,
        |world| {
            let (c, control) = controlled(world, "c");
            let s = world[c].sender("q");
            world.run();
            let txn = declare(world, c, control);
            let first = world[c].send_in(&txn, s, Msg::new(1).length(60_000).bytes(), false);
            let second = world[c].send_in(&txn, s, Msg::new(2).length(60_000).bytes(), false);
            world.run();
            assert_eq!(outcome(world, c, s, first), "in transaction accepted");
            assert_eq!(outcome(world, c, s, second), "rejected amqp:resource-limit-exceeded");
            assert!(world[c].links[s].why.contains("65536"), "{}", world[c].links[s].why);
            assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:rollback");
            assert!(world[c].links[control].why.contains("bytes staged"), "{}", world[c].links[control].why);
            assert_eq!(ready(world, &["q"]), [0]);
        },
    );
}

#[test]
fn a_posting_that_fails_keeps_the_transaction_from_being_committed() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        for settled in [false, true] {
            let txn = declare(world, c, control);
            world[c].send_in(&txn, s, number(1), false);
            let bad = world[c].send_in(&txn, s, vec![0xff; 9], settled);
            world.run();
            if settled {
                assert_eq!(world[c].links[s].ended.as_deref(), Some("amqp:decode-error"));
            } else {
                assert_eq!(outcome(world, c, s, bad), "rejected amqp:decode-error");
            }
            assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:rollback");
        }
        assert_eq!(ready(world, &["q"]), [0]);
    });
}

#[test]
fn a_link_that_is_taken_away_keeps_the_transaction_from_being_committed() {
    each(|world| {
        let old = world.client_as(0, "me", None);
        let control = world[old].controller(0, "control");
        let s = world[old].sender_with(0, "name", "q", SenderTerms::default());
        world.run();
        let txn = declare(world, old, control);
        world[old].send_in(&txn, s, number(1), false);
        world.run();
        // Another connection takes the link by its name; what the old one is told does not come through.
        let room = std::mem::take(&mut world.pipe_of(old).room);
        let new = world.client_as(1, "me", None);
        world[new].sender_with(0, "name", "q", SenderTerms::default());
        world.run();
        // What it sends there goes nowhere, so what came before must not be committed without it.
        world[old].send_in(&txn, s, number(2), false);
        let discharge = Request::Discharge(Discharge { txn_id: &txn, fail: false });
        let token = world[old].request(control, &discharge);
        world.run();
        world.pipe_of(old).room = room;
        world.run();
        assert_eq!(answer(world, old, control, token), "rejected amqp:transaction:rollback");
        assert_eq!(ready(world, &["q"]), [0]);
    });
}

#[test]
fn a_full_queue_or_one_that_goes_is_told_at_the_end() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let limits = QueueLimits { max_messages: Some(2), max_bytes: None, on_full: OnFull::Block };
        world.put("small", QueuePatch { limits: Some(limits), ..QueuePatch::default() });
        world.declare("gone");
        let (small, gone) = (world[c].sender("small"), world[c].sender("gone"));
        world.run();
        let txn = declare(world, c, control);
        // Credit for more than fits is not given, so that only one that is not asked for can be too many.
        for n in 0..2 {
            world[c].send_in(&txn, small, number(n), false);
        }
        world.run();
        assert_eq!(world[c].engine.credit(world[c].links[small].id), 0);
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        let txn = declare(world, c, control);
        world[c].send_in(&txn, gone, number(7), false);
        world.run();
        let by = Some(By { who: "me".into(), reason: "test".into() });
        let reply = world.ask(Command::QueueDelete { name: "gone".into(), force: true, by });
        assert!(matches!(reply, Reply::Deleted { .. }), "{reply:?}");
        assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:rollback");
        assert!(world[c].links[control].why.contains("deleted"), "{}", world[c].links[control].why);
        assert_eq!(ready(world, &["small"]), [2]);
    });
}

// ---- postings in frames ----

#[test]
fn a_large_message_is_in_it_even_if_the_end_is_asked_for_right_behind() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        for fail in [false, true] {
            let txn = declare(world, c, control);
            let large = Msg::new(5).length(3 << 20).bytes();
            let token = world[c].send_in(&txn, s, large.clone(), false);
            let small = world[c].send_in(&txn, s, number(6), false);
            while world[c].unsent(s) > 0 {
                world.turn();
            }
            let end = world[c].request(control, &Request::Discharge(Discharge { txn_id: &txn, fail }));
            world.run();
            assert_eq!(outcome(world, c, s, token), "in transaction accepted");
            assert_eq!(outcome(world, c, s, small), "in transaction accepted");
            assert_eq!(answer(world, c, control, end), "accepted");
            let r = world[c].receiver("q", 10);
            world.run();
            assert_eq!(world[c].numbers(r), if fail { vec![] } else { vec![5, 6] });
            if !fail {
                assert!(world[c].links[r].got[0].bytes.ends_with(&large[large.len() - 1000..]));
            }
            world[c].accept_all(r);
            world[c].detach(r, true);
            world.run();
        }
    });
}

/// A raw peer with a link to the coordinator (handle 0) that has declared, and a producer's (handle 1).
pub(crate) fn raw(world: &mut World) -> (crate::world::P, Vec<u8>) {
    let p = world.peer_open("raw");
    world[p].attach_controller("control", 0);
    world[p].attach_sender("s", 1, "q");
    world.run();
    world[p].request(0, 0, &Request::Declare);
    world.run();
    let frames = world[p].frames.clone();
    let declared = frames.iter().find_map(|frame| {
        let (disposition, _) =
            packhorse_amqp10::codec::Disposition::decode(&frame[8..], &packhorse_amqp10::Limits::default()).ok()?;
        match disposition.state? {
            DeliveryState::Declared(declared) => Some(declared.txn_id.to_vec()),
            _ => None,
        }
    });
    world[p].said();
    (p, declared.expect("it was declared"))
}

fn in_txn(id: &[u8]) -> Option<DeliveryState<'_>> {
    Some(DeliveryState::Transactional(TransactionalState { txn_id: id, outcome: None }))
}

fn frame(id: u32, state: Option<DeliveryState<'_>>, more: bool) -> Transfer<'_> {
    let tag = Box::leak(Box::new(id.to_be_bytes()));
    Transfer { handle: 1, delivery_id: Some(id), delivery_tag: Some(tag), more, state, ..Transfer::default() }
}

#[test]
fn the_first_frame_or_the_last_may_name_the_transaction() {
    each(|world| {
        let (p, txn) = raw(world);
        let bytes = number(1);
        world[p].transfer_as(&frame(10, in_txn(&txn), true), &bytes[..5]);
        world[p].transfer_as(&Transfer { handle: 1, ..Transfer::default() }, &bytes[5..]);
        world[p].transfer_as(&frame(11, None, true), &bytes[..5]);
        world[p].transfer_as(&Transfer { handle: 1, state: in_txn(&txn), ..Transfer::default() }, &bytes[5..]);
        world.run();
        let said = world[p].said();
        let accepted = said.iter().filter(|line| line.contains("Transactional") && line.contains("Accepted")).count();
        assert!(accepted >= 1 && said.iter().any(|l| l.contains("disp(10")), "{said:?}");
        assert_eq!(ready(world, &["q"]), [0]);
        world[p].request(0, 1, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
        world.run();
        assert!(world[p].said().contains(&"disp(1, accepted, settled)".to_string()));
        assert_eq!(ready(world, &["q"]), [2]);
    });
}

#[test]
fn the_end_amid_a_posting_ends_the_control_link() {
    each(|world| {
        let (p, txn) = raw(world);
        let bytes = number(1);
        world[p].transfer_as(&frame(10, in_txn(&txn), true), &bytes[..5]);
        world[p].request(0, 1, &Request::Discharge(Discharge { txn_id: &txn, fail: false }));
        world.run();
        assert_eq!(world[p].said(), ["detach 0 closed amqp:transaction:rollback"]);
        world[p].detach(0, true);
        // The rest comes, and is refused: it is in nothing any more.
        world[p].transfer_as(&Transfer { handle: 1, ..Transfer::default() }, &bytes[5..]);
        world.run();
        assert_eq!(world[p].said(), ["disp(10, rejected amqp:transaction:unknown-id, settled)"]);
        world[p].transfer(1, 12, &bytes);
        world.run();
        assert_eq!(world[p].said(), ["disp(12, accepted, settled)"], "the producer's link goes on");
        assert_eq!(ready(world, &["q"]), [1]);
    });
}

#[test]
fn a_rollback_amid_a_posting_leaves_the_rest_to_be_refused() {
    each(|world| {
        let (p, txn) = raw(world);
        let bytes = number(1);
        world[p].transfer_as(&frame(10, in_txn(&txn), true), &bytes[..5]);
        world[p].request(0, 1, &Request::Discharge(Discharge { txn_id: &txn, fail: true }));
        world.run();
        assert_eq!(world[p].said(), ["disp(1, accepted, settled)"]);
        world[p].transfer_as(&Transfer { handle: 1, state: in_txn(&txn), ..Transfer::default() }, &bytes[5..]);
        world.run();
        assert_eq!(world[p].said(), ["disp(10, rejected amqp:transaction:unknown-id, settled)"]);
    });
}

#[test]
fn one_delivery_in_two_transactions_fails_both() {
    each(|world| {
        let (p, one) = raw(world);
        world[p].request(0, 1, &Request::Declare);
        world.run();
        let frames = world[p].frames.clone();
        let (disposition, _) = packhorse_amqp10::codec::Disposition::decode(
            &frames.last().unwrap()[8..],
            &packhorse_amqp10::Limits::default(),
        )
        .unwrap();
        let Some(DeliveryState::Declared(declared)) = disposition.state else { panic!("{disposition:?}") };
        let two = declared.txn_id.to_vec();
        world[p].said();
        let bytes = number(1);
        world[p].transfer_as(&frame(10, in_txn(&one), true), &bytes[..5]);
        world[p].transfer_as(&Transfer { handle: 1, more: true, state: in_txn(&two), ..Transfer::default() }, b"");
        world[p].transfer_as(&Transfer { handle: 1, state: in_txn(&two), ..Transfer::default() }, &bytes[5..]);
        world.run();
        assert_eq!(world[p].said(), ["disp(10, rejected amqp:transaction:rollback, settled)"]);
        for (at, txn) in [(2, &one), (3, &two)] {
            world[p].request(0, at, &Request::Discharge(Discharge { txn_id: txn, fail: false }));
            world.run();
            let said = format!("disp({at}, rejected amqp:transaction:rollback, settled)");
            assert_eq!(world[p].said(), [said]);
        }
        assert_eq!(ready(world, &["q"]), [0]);
    });
}

// ---- retirements ----

#[test]
fn fs_94_what_was_answered_is_there_after_a_crash_and_nothing_else() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let r = received(world, c, "a", 1..=4, 4);
        let s = world[c].sender("b");
        world.run();
        let (one, two) = (declare(world, c, control), declare(world, c, control));
        for (n, txn) in [(0, &one), (1, &two)] {
            world[c].send_in(txn, s, number(10 + n), false);
            world[c].decide_in(txn, r, n as usize, ACCEPTED, true);
        }
        world.run();
        assert_eq!(discharge(world, c, control, &one, false), "accepted");
        world.crash(7);
        let numbers: Vec<u64> = world.take("a").iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [2, 3, 4]);
        assert_eq!(world.take("b").len(), 1);
    });
}

#[test]
fn what_became_of_a_commit_whose_reply_was_lost() {
    each(|world| {
        let broker = world_broker(world);
        let session = [5; 16];
        let (c, control) = controlled(world, "c");
        let s = world[c].sender("q");
        world.run();
        let (one, two) = (declare(world, c, control), declare(world, c, control));
        world[c].send_in(&one, s, number(1), false);
        world[c].send_in(&two, s, number(2), false);
        world.run();
        let commit = |txn, counter| Request::TxCommit(TxCommit { txn_id: txn, broker, session, counter });
        let status = |counter| Request::TxStatus(TxStatus { broker, session, counter });
        assert_eq!(ask(world, c, control, &commit(&one, 1)), "accepted");
        let (d, asks) = controlled(world, "d");
        assert_eq!(ask(world, d, asks, &status(1)), "committed");
        assert_eq!(ask(world, d, asks, &status(2)), "rolledback");
        // It is fenced: what is asked for can get no other answer later.
        assert_eq!(ask(world, c, control, &commit(&two, 2)), "rejected amqp:transaction:rollback");
        assert_eq!(world.take("q"), [(1, 0)]);
        assert_eq!(ask(world, d, asks, &status(9)), "rolledback");
        let unknown = TxStatus { broker, session: [6; 16], counter: 1 };
        assert_eq!(ask(world, d, asks, &Request::TxStatus(unknown)), "expired");
    });
}

/// The broker's id, as its `open` says it.
fn world_broker(world: &mut World) -> [u8; 16] {
    let p = world.peer();
    world[p].hello("asks");
    world.run();
    let frames = world[p].frames.clone();
    let open = frames
        .iter()
        .find_map(|frame| packhorse_amqp10::codec::Open::decode(&frame[8..], &packhorse_amqp10::Limits::default()).ok())
        .unwrap()
        .0;
    let value = open.properties.unwrap().get("packhorse:broker").unwrap();
    let packhorse_amqp10::codec::Data::Uuid(id) = value.data() else { panic!("{value:?}") };
    id
}

#[test]
fn a_producer_that_settles_all_may_work_in_transactions() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let terms = SenderTerms { snd: SenderSettleMode::Settled, ..SenderTerms::default() };
        let s = world[c].sender_with(0, "s", "q", terms);
        world.run();
        let txn = declare(world, c, control);
        for n in 0..100 {
            world[c].send_in(&txn, s, number(n), true);
        }
        world.run();
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(world.take("q").len(), 100);
    });
}
