//! The coordinator: what is asked of it and what it answers, bodies that mean nothing, links that end.

use crate::world::{C, World, each, each_with, number};
use packhorse_amqp10::codec::{
    Attach, AttachTarget, Coordinator, Discharge, Role, SenderSettleMode, Source, Symbols, Target, Transfer,
    put_string, put_symbolic_descriptor,
};
use packhorse_amqp10::message::{write_data, write_value};
use packhorse_amqp10::transaction::{
    Request, TxCommit, TxStatus, XaCommit, XaEnd, XaForget, XaPrepare, XaRecover, XaRollback, XaStart, flags,
};

/// A client with a link to the coordinator.
pub(crate) fn controlled(world: &mut World, name: &str) -> (C, usize) {
    let c = world.client(name);
    let control = world[c].controller(0, "control");
    world.run();
    assert!(world[c].links[control].attached, "{}", world[c].links[control].why);
    (c, control)
}

/// Asks, and waits for the answer.
pub(crate) fn ask(world: &mut World, c: C, control: usize, request: &Request<'_>) -> String {
    let token = world[c].request(control, request);
    world.run();
    answer(world, c, control, token)
}

pub(crate) fn answer(world: &mut World, c: C, control: usize, token: u64) -> String {
    let told: Vec<&str> =
        world[c].links[control].outcomes.iter().filter(|(t, _)| *t == token).map(|(_, text)| &text[..]).collect();
    assert!(told.len() <= 1, "one answer each: {told:?}");
    told.first().copied().unwrap_or("nothing").to_string()
}

/// Begins a local transaction; its id.
pub(crate) fn declare(world: &mut World, c: C, control: usize) -> Vec<u8> {
    assert_eq!(ask(world, c, control, &Request::Declare), "declared");
    let id = world[c].links[control].declared.last().unwrap().clone();
    assert!(id.len() <= 32);
    id
}

pub(crate) fn discharge(world: &mut World, c: C, control: usize, txn: &[u8], fail: bool) -> String {
    ask(world, c, control, &Request::Discharge(Discharge { txn_id: txn, fail }))
}

/// A branch by its global id.
pub(crate) fn start(world: &mut World, c: C, control: usize, g: &[u8], flags: u32) -> String {
    let start = XaStart { format_id: 1, global_id: g, branch_qualifier: b"b", flags, timeout: 0 };
    ask(world, c, control, &Request::Start(start))
}

pub(crate) fn end(world: &mut World, c: C, control: usize, g: &[u8], flags: u32) -> String {
    ask(world, c, control, &Request::End(XaEnd { format_id: 1, global_id: g, branch_qualifier: b"b", flags }))
}

pub(crate) fn prepare(world: &mut World, c: C, control: usize, g: &[u8]) -> String {
    ask(world, c, control, &Request::Prepare(XaPrepare { format_id: 1, global_id: g, branch_qualifier: b"b" }))
}

pub(crate) fn commit(world: &mut World, c: C, control: usize, g: &[u8], one_phase: bool) -> String {
    let commit = XaCommit { format_id: 1, global_id: g, branch_qualifier: b"b", one_phase };
    ask(world, c, control, &Request::Commit(commit))
}

pub(crate) fn rollback(world: &mut World, c: C, control: usize, g: &[u8]) -> String {
    ask(world, c, control, &Request::Rollback(XaRollback { format_id: 1, global_id: g, branch_qualifier: b"b" }))
}

pub(crate) fn forget(world: &mut World, c: C, control: usize, g: &[u8]) -> String {
    ask(world, c, control, &Request::Forget(XaForget { format_id: 1, global_id: g, branch_qualifier: b"b" }))
}

/// The branches that are listed, by their global ids.
pub(crate) fn recover(world: &mut World, c: C, control: usize) -> Vec<Vec<u8>> {
    assert_eq!(ask(world, c, control, &Request::Recover(XaRecover { after: None, max: 100 })), "xa 0");
    std::mem::take(&mut world[c].links[control].listed)
}

#[test]
fn the_answer_has_what_holds_and_no_more() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let answer = &world[c].links[control].answer;
        for capability in [
            "amqp:local-transactions",
            "amqp:distributed-transactions",
            "amqp:multi-txns-per-ssn",
            "amqp:multi-ssns-per-txn",
            "packhorse:xa-1",
            "packhorse:tx-status-1",
        ] {
            assert!(answer.contains(capability), "{answer}");
        }
        assert!(!answer.contains("promotable"), "{answer}");
        // Whom it is one resource manager with.
        assert!(world[c].open_answer.contains("packhorse:broker"), "{}", world[c].open_answer);
    });
}

#[test]
fn a_transaction_without_work_is_committed_or_rolled_back() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let (one, two) = (declare(world, c, control), declare(world, c, control));
        assert_ne!(one, two);
        assert_eq!(discharge(world, c, control, &one, false), "accepted");
        assert_eq!(discharge(world, c, control, &two, true), "accepted");
        // Both are over.
        for txn in [one, two] {
            for fail in [false, true] {
                let answer = discharge(world, c, control, &txn, fail);
                assert_eq!(answer, "rejected amqp:transaction:unknown-id");
            }
        }
        assert!(world[c].links[control].attached, "the link stays");
    });
}

#[test]
fn an_id_of_another_connection_is_unknown() {
    each(|world| {
        let (a, control) = controlled(world, "a");
        let txn = declare(world, a, control);
        let (b, other) = controlled(world, "b");
        assert_eq!(discharge(world, b, other, &txn, false), "rejected amqp:transaction:unknown-id");
        assert_eq!(discharge(world, b, other, b"", false), "rejected amqp:transaction:unknown-id");
        assert_eq!(discharge(world, b, other, &[7; 4000], true), "rejected amqp:transaction:unknown-id");
        assert_eq!(discharge(world, a, control, &txn, false), "accepted");
    });
}

#[test]
fn another_link_of_the_connection_may_end_it() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let session = world[c].begin();
        let second = world[c].controller(session, "second");
        world.run();
        let txn = declare(world, c, control);
        assert_eq!(discharge(world, c, second, &txn, false), "accepted");
        assert_eq!(discharge(world, c, control, &txn, false), "rejected amqp:transaction:unknown-id");
    });
}

#[test]
fn bodies_that_ask_for_nothing_are_refused_by_name_and_cost_nobody_else() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let (other, s) = (world.client("other"), 0);
        world[other].sender("q");
        let value = |put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write_value(&mut out, put);
            out
        };
        let mut data = Vec::new();
        write_data(&mut data, b"declare");
        let cases = [
            (data, "amqp:decode-error", "section data"),
            (value(&|out| put_string(out, "declare")), "amqp:not-implemented", "without a descriptor"),
            (
                value(&|out| {
                    put_symbolic_descriptor(out, "acme:begin:list");
                    out.push(0x45);
                }),
                "amqp:not-implemented",
                "acme:begin:list",
            ),
            (vec![0x00, 0x53, 0x77, 0x00, 0x53, 0x32, 0x45], "amqp:decode-error", "discharge, field txn-id"),
            (vec![0xff; 40], "amqp:decode-error", "message section"),
        ];
        for (bytes, condition, words) in cases {
            let token = world[c].send(control, bytes);
            world.run();
            assert_eq!(answer(world, c, control, token), format!("rejected {condition}"));
            assert!(world[c].links[control].why.contains(words), "{}: {words}", world[c].links[control].why);
        }
        assert_eq!(ask(world, c, control, &Request::Declare), "declared", "the link goes on");
        world[other].send(s, number(1));
        world.run();
        assert_eq!(world[other].confirmed(s), [0]);
    });
}

#[test]
fn where_nothing_can_be_rejected_the_link_ends_with_the_error() {
    each(|world| {
        let c = world.client("c");
        let source = Source {
            outcomes: Symbols::from_slice(&["amqp:accepted:list", "amqp:declared:list"]),
            ..Source::default()
        };
        let attach = Attach {
            name: "control",
            role: Role::Sender,
            source: Some(source),
            target: Some(Coordinator::default().into()),
            ..Attach::default()
        };
        let control = world[c].attach(0, &attach);
        world.run();
        let txn = declare(world, c, control);
        assert_eq!(discharge(world, c, control, b"none", false), "nothing");
        assert_eq!(world[c].links[control].ended.as_deref(), Some("amqp:transaction:unknown-id"));
        // Its transactions are gone with it.
        let second = world[c].controller(0, "second");
        world.run();
        assert_eq!(discharge(world, c, second, &txn, true), "rejected amqp:transaction:unknown-id");
    });
}

#[test]
fn a_request_that_is_sent_settled_ends_the_link() {
    each(|world| {
        let c = world.client("c");
        let attach = Attach {
            name: "control",
            role: Role::Sender,
            snd_settle_mode: SenderSettleMode::Mixed,
            source: Some(Source::default()),
            target: Some(Coordinator::default().into()),
            ..Attach::default()
        };
        let control = world[c].attach(0, &attach);
        world.run();
        let mut bytes = Vec::new();
        Request::Declare.encode(&mut bytes);
        world[c].send_as(control, bytes, true, 0);
        world.run();
        assert_eq!(world[c].links[control].ended.as_deref(), Some("amqp:not-allowed"));
    });
}

#[test]
fn a_request_of_many_frames_and_one_that_is_too_long() {
    each(|world| {
        let p = world.peer_open("raw");
        let peer = &mut world[p];
        peer.attach_controller("control", 0);
        world.run();
        world[p].said();
        let mut bytes = Vec::new();
        Request::Declare.encode(&mut bytes);
        let first = Transfer { delivery_id: Some(0), delivery_tag: Some(b"0"), more: true, ..Transfer::default() };
        world[p].transfer_as(&first, &bytes[..2]);
        world[p].transfer_as(&Transfer { more: true, ..Transfer::default() }, &bytes[2..3]);
        world[p].transfer_as(&Transfer::default(), &bytes[3..]);
        // Another one is taken back.
        let back = Transfer { delivery_id: Some(1), delivery_tag: Some(b"1"), more: true, ..Transfer::default() };
        world[p].transfer_as(&back, b"\xff\xff");
        world[p].transfer_as(&Transfer { aborted: true, ..Transfer::default() }, b"");
        world[p].transfer(0, 2, &bytes);
        world.run();
        let said = world[p].said();
        assert_eq!(said.iter().filter(|line| line.contains("Declared")).count(), 2, "{said:?}");
        world[p].transfer(0, 3, &[0; 20_000]);
        world.run();
        let said = world[p].said();
        assert!(said.contains(&"detach 0 closed amqp:link:message-size-exceeded".to_string()), "{said:?}");
    });
}

#[test]
fn credit_goes_on_for_ever_and_open_transactions_do_not() {
    each_with(
        |config| config.transactions.max_open_per_connection = 5,
        |world| {
            let (c, control) = controlled(world, "c");
            for _ in 0..2_000 {
                world[c].request(control, &Request::Declare);
            }
            world.run();
            let told = &world[c].links[control].outcomes;
            let declared = told.iter().filter(|(_, text)| text == "declared").count();
            let refused = told.iter().filter(|(_, text)| text == "rejected amqp:resource-limit-exceeded").count();
            assert_eq!((declared, refused), (5, 1_995));
            let why = &world[c].links[control].why;
            assert!(why.contains("open transactions per connection: 6 is more than the limit of 5"), "{why}");
            let ids = world[c].links[control].declared.clone();
            for txn in ids {
                assert_eq!(discharge(world, c, control, &txn, true), "accepted");
            }
            declare(world, c, control);
        },
    );
}

#[test]
fn the_link_a_session_or_the_connection_takes_its_transactions_along() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let txn = declare(world, c, control);
        world[c].detach(control, true);
        world.run();
        assert_eq!(world[c].links[control].ended.as_deref(), Some(""));
        let session = world[c].begin();
        let second = world[c].controller(session, "second");
        world.run();
        assert_eq!(discharge(world, c, second, &txn, false), "rejected amqp:transaction:unknown-id");
        let txn = declare(world, c, second);
        world[c].end(session);
        world.run();
        let third = world[c].controller(0, "third");
        world.run();
        assert_eq!(discharge(world, c, third, &txn, false), "rejected amqp:transaction:unknown-id");
        declare(world, c, third);
        world.kill(c);
        world.run();
    });
}

#[test]
fn a_producer_may_be_called_as_a_coordinators_link_and_links_of_that_name_do_not_fight() {
    each(|world| {
        // A library that names its link by what it is for, in many connections of one container.
        let a = world.client("same");
        let b = world.client("same");
        let (x, y) = (world[a].controller(0, "txn-ctrl"), world[b].controller(0, "txn-ctrl"));
        world.run();
        let (one, two) = (declare(world, a, x), declare(world, b, y));
        assert_eq!(discharge(world, a, x, &one, false), "accepted");
        assert_eq!(discharge(world, b, y, &two, false), "accepted");
        let target = Target { address: Some("q"), ..Target::default() };
        let attach = Attach {
            name: "txn-ctrl",
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AttachTarget::Target(target)),
            ..Attach::default()
        };
        let c = world.client("same");
        let s = world[c].attach(0, &attach);
        world.run();
        assert!(world[c].links[s].attached && world[a].links[x].attached);
    });
}

#[test]
fn a_branch_without_work_goes_its_ways() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        assert_eq!(start(world, c, control, b"g", flags::NONE), "declared");
        let (other, theirs) = controlled(world, "other");
        assert_eq!(start(world, other, theirs, b"g", flags::NONE), "xa -8", "XAER_DUPID");
        assert_eq!(start(world, c, control, b"h", flags::NONE), "xa -6", "one branch at a time");
        assert_eq!(prepare(world, c, control, b"g"), "xa -6");
        assert_eq!(end(world, c, control, b"g", flags::SUSPEND), "xa 0");
        assert_eq!(start(world, c, control, b"g", flags::JOIN), "xa -6");
        assert_eq!(start(world, c, control, b"g", flags::RESUME), "declared");
        assert_eq!(end(world, c, control, b"g", flags::SUCCESS), "xa 0");
        assert_eq!(prepare(world, c, control, b"g"), "xa 3", "XA_RDONLY");
        assert_eq!(commit(world, c, control, b"g", false), "xa -4", "XAER_NOTA");
        assert_eq!(rollback(world, c, control, b"none"), "xa -4");
        assert_eq!(forget(world, c, control, b"none"), "xa -4");
        assert!(recover(world, c, control).is_empty());
        // By its txn-id, as one who knows nothing of XA would end it.
        assert_eq!(start(world, c, control, b"i", flags::NONE), "declared");
        let txn = world[c].links[control].declared.last().unwrap().clone();
        assert_eq!(discharge(world, c, control, &txn, false), "accepted");
        assert_eq!(start(world, c, control, b"j", flags::NONE), "declared");
        let txn = world[c].links[control].declared.last().unwrap().clone();
        assert_eq!(discharge(world, c, control, &txn, true), "accepted");
        assert_eq!(end(world, c, control, b"j", flags::SUCCESS), "xa -4");
        assert_eq!(discharge(world, c, control, &txn, true), "rejected amqp:transaction:unknown-id");
    });
}

#[test]
fn names_and_flags_that_are_none() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let long = [b'g'; 65];
        assert_eq!(start(world, c, control, &long, flags::NONE), "xa -5", "XAER_INVAL");
        assert_eq!(prepare(world, c, control, &long), "xa -5");
        let null = XaStart { format_id: -1, global_id: b"g", branch_qualifier: b"", flags: 0, timeout: 0 };
        assert_eq!(ask(world, c, control, &Request::Start(null)), "xa -5");
        assert_eq!(start(world, c, control, b"g", 1), "xa -5");
        assert_eq!(end(world, c, control, b"g", flags::JOIN), "xa -5");
        assert_eq!(start(world, c, control, &long[..64], flags::NONE), "declared");
    });
}

#[test]
fn what_became_of_a_commit_can_be_asked() {
    each(|world| {
        let (c, control) = controlled(world, "c");
        let stranger = TxStatus { broker: [9; 16], session: [1; 16], counter: 1 };
        assert_eq!(ask(world, c, control, &Request::TxStatus(stranger)), "notmine");
        let txn = declare(world, c, control);
        let other = TxCommit { txn_id: &txn, broker: [9; 16], session: [1; 16], counter: 1 };
        let answer = ask(world, c, control, &Request::TxCommit(other));
        assert_eq!(answer, "rejected amqp:precondition-failed", "named after another broker");
        assert_eq!(discharge(world, c, control, &txn, false), "accepted", "it is as it was");
    });
}
