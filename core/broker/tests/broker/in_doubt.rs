//! Operators and branches in doubt, beside transaction managers: what is decided, by whom, when it is told, and who hears of it.

use crate::coordinator::{ask, commit, controlled, end, forget, prepare, recover, rollback, start};
use crate::world::{C, World, each, in_one, number};
use packhorse_amqp10::codec::Outcome;
use packhorse_amqp10::transaction::flags;
use packhorse_broker::{By, Command, Refusal, RefusalKind, Reply, TxAct, TxPage, TxReport, TxState};
use packhorse_model::Xid;

fn xid(g: &[u8]) -> Xid {
    Xid::new(1, g, b"b").unwrap()
}

fn by(reason: &str) -> By {
    By { who: "ann".into(), reason: reason.into() }
}

fn decide(g: &[u8], act: TxAct) -> Command {
    Command::TxDecide { xid: xid(g), act, by: by("the manager is gone") }
}

fn delete(name: &str, by: Option<By>) -> Command {
    Command::QueueDelete { name: name.into(), force: true, by }
}

fn refusal(reply: Option<Reply>) -> Refusal {
    match reply {
        Some(Reply::Refused(refusal)) => refusal,
        other => panic!("it is refused: {other:?}"),
    }
}

fn decided(reply: Option<Reply>) -> TxReport {
    match reply {
        Some(Reply::Decided { branch: Some(report) }) => *report,
        other => panic!("it is decided: {other:?}"),
    }
}

fn list(world: &mut World, states: &[TxState], limit: usize) -> TxPage {
    match world.ask(Command::TxList { after: None, states: states.to_vec(), limit }) {
        Reply::Transactions(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Begins a branch; the id to work under.
fn begin(world: &mut World, c: C, control: usize, g: &[u8]) -> Vec<u8> {
    assert_eq!(start(world, c, control, g, flags::NONE), "declared");
    world[c].links[control].declared.last().unwrap().clone()
}

/// A branch in doubt that takes 1 from `a` and adds 7 to each of these queues; its client is gone.
fn in_doubt(world: &mut World, g: &[u8], adds: &[&str]) {
    let (c, control) = controlled(world, "manager");
    world.fill("a", [1]);
    let r = world[c].receiver("a", 1);
    let senders: Vec<usize> = adds.iter().map(|queue| world[c].sender(queue)).collect();
    world.run();
    let txn = begin(world, c, control, g);
    for sender in senders {
        world[c].send_in(&txn, sender, number(7), false);
    }
    world[c].decide_in(&txn, r, 0, Some(Outcome::Accepted), true);
    world.run();
    assert_eq!(end(world, c, control, g, flags::SUCCESS), "xa 0");
    assert_eq!(prepare(world, c, control, g), "xa 0");
    world.kill(c);
    world.run();
}

#[test]
fn fs_41_the_manager_hears_what_an_operator_decided_until_it_forgets() {
    for (act, code, state) in
        [(TxAct::Commit, "xa 7", TxState::HeuristicCommitted), (TxAct::Rollback, "xa 6", TxState::HeuristicRolledBack)]
    {
        each(|world| {
            world.declare("b");
            in_doubt(world, b"x", &["b"]);
            // No answer, and nothing to be seen, before it is durable; a crash before that leaves it in doubt.
            world.hold_store();
            let id = world.command(0, decide(b"x", act));
            world.run();
            assert_eq!(world.reply(id), None);
            assert_eq!(world.queue("b").counters.ready, 0);
            world.crash(3);
            world.free_store();
            let reply = match list(world, &[TxState::Prepared], 9).transactions.len() {
                // What was written may have survived, unanswered.
                0 => world.ask(Command::TxShow { xid: xid(b"x") }),
                _ => world.ask(decide(b"x", act)),
            };
            let report = match reply {
                Reply::Transaction(report) | Reply::Decided { branch: Some(report) } => report,
                other => panic!("{other:?}"),
            };
            assert_eq!(report.view.state, state);
            world.crash(4);

            let (c, control) = controlled(world, "again");
            assert_eq!(recover(world, c, control), [b"x"]);
            assert_eq!(rollback(world, c, control, b"x"), code);
            assert_eq!(commit(world, c, control, b"x", false), code);
            let page = list(world, &[], 9);
            let told = page.transactions[0].decided().expect("it is told until it is forgotten");
            assert_eq!((told.who.as_str(), told.reason.as_str()), ("ann", "the manager is gone"));
            assert_eq!(forget(world, c, control, b"x"), "xa 0");
            assert_eq!(recover(world, c, control), [[0u8; 0]; 0]);
            assert_eq!(list(world, &[], 9), TxPage::default());
            let (a, b) = (world.take("a"), world.take("b"));
            if act == TxAct::Commit {
                assert_eq!((a, b), (vec![], vec![(7, 0)]));
            } else {
                assert_eq!(b, []);
                // One delivery more; two, where it may have been given to somebody before the crash that followed.
                assert!(matches!(a[..], [(1, 1 | 2)]), "{a:?}");
            }
        });
    }
}

#[test]
fn fs_43_a_queue_with_work_in_doubt_goes_only_for_a_reason() {
    each(|world| {
        for queue in ["b", "d"] {
            world.declare(queue);
        }
        in_doubt(world, b"x", &["b", "d"]);
        for (force, by) in [(false, None), (true, None), (false, Some(by("x"))), (true, Some(by(" ")))] {
            let refusal = refusal(Some(world.ask(Command::QueueDelete { name: "b".into(), force, by })));
            assert_eq!((refusal.kind, refusal.code), (RefusalKind::Conflict, "queue-in-doubt"));
            assert!(refusal.detail.contains(&xid(b"x").to_string()), "{}", refusal.detail);
        }
        assert_eq!((world.queue("b").counters.prepared_in, world.queue("a").counters.prepared_out), (1, 1));
        assert!(matches!(world.ask(delete("b", Some(by("no room")))), Reply::Deleted { .. }));
        assert!(!world.exists("b") && world.logged("queue \"b\" alone by operator \"ann\""));
        let show = |world: &mut World| match world.ask(Command::TxShow { xid: xid(b"x") }) {
            Reply::Transaction(report) => *report,
            other => panic!("{other:?}"),
        };
        for _ in 0..2 {
            let report = show(world);
            assert_eq!(report.view.state, TxState::Prepared, "the rest is in doubt as before");
            let mut names: Vec<_> = report.parts.iter().filter_map(|part| part.name.clone()).collect();
            names.sort();
            assert_eq!(names, ["a", "d"]);
            assert_eq!((report.lost.len(), report.lost[0].by.who.as_str()), (1, "ann"));
            assert!(report.lost[0].by.reason.contains("queue \"b\" deleted: no room"), "{:?}", report.lost);
            world.crash(5);
        }
        let (c, control) = controlled(world, "manager");
        assert_eq!(commit(world, c, control, b"x", false), "xa 5", "mixed");
        assert_eq!((world.take("a"), world.take("d")), (vec![], vec![(7, 0)]));
        assert_eq!(forget(world, c, control, b"x"), "xa 0");
    });
}

#[test]
fn fs_43_a_branch_whose_only_queue_goes_is_rolled_back() {
    each(|world| {
        in_doubt(world, b"x", &[]);
        assert!(matches!(world.ask(delete("a", Some(by("moved")))), Reply::Deleted { .. }));
        let (c, control) = controlled(world, "manager");
        assert_eq!(commit(world, c, control, b"x", false), "xa 6");
        world.crash(1);
        let (c, control) = controlled(world, "manager");
        assert_eq!(commit(world, c, control, b"x", false), "xa 6");
        assert!(!world.exists("a"));
    });
}

#[test]
fn a_deletion_waits_for_the_decisions_that_are_on_their_way() {
    each(|world| {
        world.declare("b");
        in_doubt(world, b"x", &["b"]);
        world.hold_store();
        let last = usize::from(world.kind.shards) - 1;
        let commit = world.command(last, decide(b"x", TxAct::Commit));
        world.run();
        let gone = world.command(last, delete("b", Some(by("moved"))));
        let again = world.command(0, decide(b"x", TxAct::Rollback));
        world.run();
        for id in [commit, gone, again] {
            assert_eq!(world.reply(id), None);
        }
        world.free_store();
        assert_eq!(decided(world.reply(commit)).view.state, TxState::HeuristicCommitted);
        assert_eq!(world.reply(gone), Some(Reply::Deleted { messages: 1 }), "with the message that was committed");
        assert_eq!(refusal(world.reply(again)).code, "branch-decided", "a decision is made once");
    });
}

#[test]
fn refusals_say_what_the_branch_is_and_what_to_do() {
    each(|world| {
        in_doubt(world, b"x", &[]);
        let (c, control) = controlled(world, "c");
        begin(world, c, control, b"y");
        let in_state = |world: &mut World, g: &[u8], act, code, words: &str| {
            let refusal = refusal(Some(world.ask(decide(g, act))));
            assert_eq!(refusal.code, code);
            assert!(refusal.detail.contains(words), "{}", refusal.detail);
        };
        in_state(world, b"y", TxAct::Commit, "branch-not-in-doubt", "is associated");
        in_state(world, b"y", TxAct::Forget, "branch-not-in-doubt", "their timeout");
        assert_eq!(end(world, c, control, b"y", flags::FAIL), "xa 0");
        in_state(world, b"y", TxAct::Rollback, "branch-not-in-doubt", "is rollback-only");
        in_state(world, b"x", TxAct::Forget, "branch-in-doubt", "commit it or roll it back first");
        in_state(world, b"z", TxAct::Rollback, "branch-not-found", "there is no branch");
        assert_eq!(world.refused(Command::TxShow { xid: xid(b"z") }), "branch-not-found");
        for who in [By { who: String::new(), reason: "r".into() }, by("")] {
            let command = Command::TxDecide { xid: xid(b"x"), act: TxAct::Commit, by: who };
            assert_eq!(world.refused(command), "reason-missing");
        }
        assert!(matches!(world.ask(decide(b"x", TxAct::Rollback)), Reply::Decided { branch: Some(_) }));
        in_state(
            world,
            b"x",
            TxAct::Commit,
            "branch-decided",
            "heuristically-rolled-back already by ann (the manager is gone)",
        );
        assert_eq!(world.ask(decide(b"x", TxAct::Forget)), Reply::Decided { branch: None });
        in_state(world, b"x", TxAct::Forget, "branch-not-found", "completed or forgotten");
    });
}

#[test]
fn whoever_waits_for_a_decision_when_the_broker_stops_is_told() {
    each(|world| {
        in_doubt(world, b"x", &[]);
        world.hold_store();
        let id = world.command(0, decide(b"x", TxAct::Commit));
        world.run();
        world.stop();
        world.run();
        assert_eq!(refusal(world.reply(id)).code, "broker-stopping");
        assert_eq!(world.refused(decide(b"x", TxAct::Commit)), "broker-stopping");
        world.free_store();
    });
}

#[test]
fn figures_count_what_is_where_it_is() {
    each(|world| {
        in_doubt(world, b"x", &[]);
        let (c, control) = controlled(world, "c");
        let (d, other) = controlled(world, "d");
        for (client, control) in [(c, control), (d, other)] {
            let declare = packhorse_amqp10::transaction::Request::Declare;
            assert_eq!(ask(world, client, control, &declare), "declared");
        }
        world.pass(2_000);
        let figures = |world: &mut World| {
            let mut sum = packhorse_broker::TxFigures::default();
            for shard in 0..usize::from(world.kind.shards) {
                match world.ask_at(shard, Command::Status) {
                    Reply::Shard(report) => sum.add(&report.transactions),
                    other => panic!("{other:?}"),
                }
            }
            sum.0
        };
        let stats = figures(world);
        assert_eq!((stats.local, stats.branches, stats.in_doubt, stats.heuristic), (2, 1, 1, 0));
        assert!((2_000..3_000).contains(&stats.in_doubt_age_ms), "{stats:?}");
        let mut locals = 0;
        for shard in 0..usize::from(world.kind.shards) {
            match world.ask_at(shard, Command::TxLocals { limit: 9 }) {
                Reply::Transactions(page) => locals += page.transactions.len(),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(locals, 2);
        decided(Some(world.ask(decide(b"x", TxAct::Rollback))));
        let stats = figures(world);
        assert_eq!((stats.in_doubt, stats.in_doubt_age_ms, stats.heuristic, stats.heuristic_decisions), (0, 0, 1, 1));
    });
}

/// A list looks at a bounded number of branches in one turn: who wants few of many gets pages with few in them, or none.
#[test]
fn a_list_of_few_among_many_comes_in_slices() {
    let many = |config: &mut packhorse_broker::Config| config.transactions.max_open_per_connection = 10_000;
    in_one(many, |world| {
        in_doubt(world, &[255, 255], &[]);
        let (c, control) = controlled(world, "c");
        for n in 0..5_000u16 {
            let g = n.to_be_bytes();
            begin(world, c, control, &g);
            assert_eq!(end(world, c, control, &g, flags::SUCCESS), "xa 0");
        }
        let first = list(world, &[TxState::Prepared], 10);
        assert!(first.transactions.is_empty() && first.next.is_some());
        let after = first.next;
        let second = match world.ask(Command::TxList { after, states: vec![TxState::Prepared], limit: 10 }) {
            Reply::Transactions(page) => page,
            other => panic!("{other:?}"),
        };
        assert_eq!((second.transactions.len(), second.next), (1, None));
        let page = list(world, &[TxState::Idle], 100);
        assert_eq!((page.transactions.len(), page.next), (100, Some(xid(&99u16.to_be_bytes()))));
    });
}
