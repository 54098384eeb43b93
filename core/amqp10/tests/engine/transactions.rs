//! Rules of part 4, as far as they are the engine's: links to a coordinator, states of deliveries in a transaction.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::*;
use packhorse_amqp10::transaction::{XaResult, as_state};

use crate::kit::*;

/// A peer's attach to a coordinator.
fn controller(mode: ReceiverSettleMode) -> Attach<'static> {
    let capabilities = Symbols::one("amqp:local-transactions");
    Attach { target: Some(Coordinator { capabilities }.into()), rcv_settle_mode: mode, ..sender("control", 0) }
}

/// A server with a link to its coordinator.
fn coordinating(mode: ReceiverSettleMode, open: Open<'_>) -> (Rig, LinkId) {
    let mut rig = Rig::server_with(config(), open);
    rig.reply = LinkReply {
        source: source("here"),
        target: Some(Coordinator { capabilities: Symbols::one("amqp:local-transactions") }.into()),
        ..LinkReply::default()
    };
    rig.send(controller(mode));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    (rig, link)
}

fn open() -> Open<'static> {
    Open { container_id: "peer", max_frame_size: 4096, ..Open::default() }
}

/// The dispositions written since the last call.
fn dispositions(rig: &mut Rig, f: impl FnMut(Disposition<'_>)) {
    let mut f = f;
    let bytes = rig.bytes();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let size = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        if let Ok((disposition, _)) = Disposition::decode(&rest[8..size], &Limits::default()) {
            f(disposition);
        }
        rest = &rest[size..];
    }
}

#[test]
fn r4_5_1_the_answer_has_the_coordinator_as_its_target() {
    let mut rig = Rig::server();
    rig.reply = LinkReply {
        source: source("here"),
        target: Some(Coordinator { capabilities: Symbols::one("amqp:local-transactions") }.into()),
        ..LinkReply::default()
    };
    rig.send(controller(ReceiverSettleMode::First));
    let bytes = rig.bytes();
    let (attach, _) = Attach::decode(&bytes[8..], &Limits::default()).unwrap();
    let Some(AttachTarget::Coordinator(coordinator)) = attach.target else { panic!("{attach:?}") };
    assert!(coordinator.capabilities.contains("amqp:local-transactions"));
}

#[test]
fn r4_2_declared_goes_out_settled_and_is_the_end_of_the_delivery() {
    let (mut rig, link) = coordinating(ReceiverSettleMode::First, open());
    rig.transfer(first(0, 3), "declare");
    let state = DeliveryState::Declared(Declared { txn_id: b"t1" });
    assert_eq!(rig.conn.settle_incoming(link, 3, Some(&state), true), Ok(true));
    let mut seen = 0;
    dispositions(&mut rig, |d| {
        assert_eq!((d.role, d.first, d.last, d.settled), (Role::Receiver, 3, None, true));
        assert_eq!(d.state, Some(state));
        seen += 1;
    });
    assert_eq!(seen, 1);
    // The same again finds nothing, and so does the peer's settle.
    assert_eq!(rig.conn.settle_incoming(link, 3, Some(&state), true), Ok(false));
    rig.seen();
    rig.send(disposition(Role::Sender, 3, 3, true, None));
    assert_eq!(rig.seen(), [""; 0]);
}

#[test]
fn r4_2_declared_on_a_link_that_settles_second_is_held_until_the_peer_settles() {
    let (mut rig, link) = coordinating(ReceiverSettleMode::Second, open());
    rig.transfer(first(0, 3), "declare");
    let state = DeliveryState::Declared(Declared { txn_id: b"t1" });
    assert_eq!(rig.conn.settle_incoming(link, 3, Some(&state), false), Ok(true));
    dispositions(&mut rig, |d| assert_eq!((d.settled, d.state), (false, Some(state))));
    rig.seen();
    rig.send(disposition(Role::Sender, 3, 3, true, Some(state)));
    assert_eq!(rig.seen(), ["outcomes(of theirs: 3 Declared settled)"]);
    rig.send(disposition(Role::Sender, 3, 3, true, Some(state)));
    assert_eq!(rig.seen(), [""; 0], "it is forgotten");
}

#[test]
fn r4_4_1_a_transactional_state_of_ours_goes_out_settled_or_not_in_ranges() {
    let (mut rig, link) = coordinating(ReceiverSettleMode::Second, open());
    let of = |id| DeliveryState::Transactional(TransactionalState { txn_id: id, outcome: Some(Outcome::Accepted) });
    for id in 0..4 {
        rig.transfer(first(0, id), "posted");
    }
    for id in 0..4u32 {
        let state = of(if id < 3 { b"t1" } else { b"t2" });
        assert_eq!(rig.conn.settle_incoming(link, id, Some(&state), id == 3), Ok(true));
    }
    let mut seen = Vec::new();
    dispositions(&mut rig, |d| seen.push((d.first, d.last, d.settled, d.state == Some(of(b"t1")))));
    assert_eq!(seen, [(0, Some(2), false, true), (3, None, true, false)]);
    // Unsettled ones are the peer's to settle, one by one or all.
    rig.seen();
    rig.send(disposition(Role::Sender, 0, 9, true, None));
    assert_eq!(rig.seen(), ["outcomes(of theirs: 0 None settled, 1 None settled, 2 None settled)"]);
}

#[test]
fn r4_4_2_an_outcome_in_a_transaction_can_be_given_again_until_the_delivery_is_settled() {
    let mut rig = Rig::server();
    rig.reply = LinkReply { source: source("q"), target: target("here"), ..LinkReply::default() };
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, 100));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    rig.conn.send(link, &SendParams { token: 1, ..SendParams::default() }, &[Piece::Copy(b"x")]).unwrap();
    rig.out();
    let state = |txn_id, outcome| DeliveryState::Transactional(TransactionalState { txn_id, outcome });
    rig.send(disposition(Role::Receiver, 0, 0, false, Some(state(b"t1", Some(Outcome::Accepted)))));
    rig.send(disposition(Role::Receiver, 0, 0, false, Some(state(b"t2", Some(Outcome::Released)))));
    assert_eq!(rig.seen(), ["outcomes(of ours: 0 Transactional)", "outcomes(of ours: 0 Transactional)"]);
    // We settle it when the transaction has ended.
    let session = rig.sessions[0];
    assert_eq!(rig.conn.settle_outgoing(session, 0), Ok(true));
    assert_eq!(rig.out(), ["disp(sent 0, none, settled)"]);
    assert_eq!(rig.conn.settle_outgoing(session, 0), Ok(false));
}

#[test]
fn in_a_transaction_it_is_told_that_nothing_was_found() {
    let mut rig = Rig::server();
    rig.reply = LinkReply { source: source("q"), target: target("here"), ..LinkReply::default() };
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, 100));
    rig.out();
    rig.seen();
    let link = rig.links[0];
    rig.conn.send(link, &SendParams::default(), &[Piece::Copy(b"x")]).unwrap();
    rig.out();
    rig.send(disposition(Role::Receiver, 0, 0, true, Some(DeliveryState::Accepted)));
    rig.seen();
    rig.send(disposition(Role::Receiver, 0, 0, true, Some(DeliveryState::Accepted)));
    assert_eq!(rig.seen(), [""; 0], "outside of one it is a repetition");
    let state = DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: Some(Outcome::Accepted) });
    for settled in [false, true] {
        rig.send(disposition(Role::Receiver, 0, 7, settled, Some(state)));
        assert_eq!(rig.seen(), ["outcomes(of ours: )"]);
    }
    // Of what the peer sent to us it says nothing.
    rig.send(disposition(Role::Sender, 0, 7, true, Some(state)));
    assert_eq!(rig.seen(), [""; 0]);
    assert_eq!(rig.out(), [""; 0]);
}

#[test]
fn a_state_that_is_too_long_for_the_peers_frames_loses_its_words_only() {
    let (mut rig, link) =
        coordinating(ReceiverSettleMode::First, Open { container_id: "peer", max_frame_size: 512, ..Open::default() });
    let words = "x".repeat(600);
    let error = Error { condition: "amqp:transaction:rollback", description: Some(&words), info: None };
    let rejected = Rejected { error: Some(error) };
    let states = [
        DeliveryState::Rejected(rejected),
        DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: Some(Outcome::Rejected(rejected)) }),
    ];
    for (id, state) in states.iter().enumerate() {
        rig.transfer(first(0, id as u32), "x");
        rig.conn.settle_incoming(link, id as u32, Some(state), true).unwrap();
    }
    let mut seen = Vec::new();
    dispositions(&mut rig, |d| {
        let rejected = match d.state {
            Some(DeliveryState::Rejected(rejected)) => rejected,
            Some(DeliveryState::Transactional(TransactionalState {
                txn_id: b"t",
                outcome: Some(Outcome::Rejected(rejected)),
            })) => rejected,
            other => panic!("{other:?}"),
        };
        let error = rejected.error.unwrap();
        seen.push((d.settled, error.condition.to_owned(), error.description.is_some()));
    });
    assert_eq!(seen, vec![(true, "amqp:transaction:rollback".to_owned(), false); 2]);
}

#[test]
fn neighbors_are_one_range_by_the_number_of_their_state_or_by_what_it_says() {
    let (mut rig, link) = coordinating(ReceiverSettleMode::First, open());
    let of = |txn_id| TransactionalState { txn_id, outcome: Some(Outcome::Accepted) };
    let (one, two) = (DeliveryState::Transactional(of(b"one")), DeliveryState::Transactional(of(b"two")));
    let bare = DeliveryState::Transactional(TransactionalState { txn_id: b"two", outcome: None });
    let told = [
        // By the number; then the same state without one, and with one again.
        (0, one, 1),
        (1, one, 1),
        (2, one, 0),
        (3, one, 1),
        // Others.
        (4, two, 2),
        (5, two, 0),
        (6, bare, 3),
        (7, DeliveryState::Accepted, 0),
        // No neighbor.
        (9, DeliveryState::Accepted, 0),
    ];
    for id in 0..10 {
        rig.transfer(first(0, id), "x");
    }
    for (id, state, number) in &told {
        assert_eq!(rig.conn.settle_incoming_as(link, *id, Some(state), true, *number), Ok(true));
    }
    let mut seen = Vec::new();
    dispositions(&mut rig, |d| {
        let words = match d.state {
            Some(DeliveryState::Accepted) => "accepted".to_string(),
            Some(DeliveryState::Transactional(state)) => {
                let outcome = if state.outcome.is_some() { "accepted" } else { "nothing" };
                format!("{} {outcome}", std::str::from_utf8(state.txn_id).unwrap())
            }
            other => panic!("{other:?}"),
        };
        seen.push((d.first, d.last.unwrap_or(d.first), words));
    });
    let wanted =
        [(0, 3, "one accepted"), (4, 5, "two accepted"), (6, 6, "two nothing"), (7, 7, "accepted"), (9, 9, "accepted")];
    assert_eq!(seen, wanted.map(|(first, last, words)| (first, last, words.to_string())));
}

#[test]
fn an_outcome_of_ours_passes_as_it_is() {
    let (mut rig, link) = coordinating(ReceiverSettleMode::First, open());
    rig.transfer(first(0, 0), "xa-end");
    let mut bytes = Vec::new();
    XaResult { code: -6, xids: None, more: false, description: Some("why") }.encode(&mut bytes);
    let state = as_state(&bytes, &Limits::default()).unwrap();
    rig.conn.settle_incoming(link, 0, Some(&state), true).unwrap();
    let mut seen = 0;
    dispositions(&mut rig, |d| {
        assert_eq!((d.settled, d.state), (true, Some(state)));
        seen += 1;
    });
    assert_eq!(seen, 1);
}

#[test]
fn r4_4_1_the_state_may_stand_in_any_frame_of_a_posting() {
    let mut rig = Rig::server();
    rig.send(sender("in", 0));
    rig.out();
    rig.seen();
    let state = Some(DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: None }));
    rig.transfer(Transfer { state, ..more(first(0, 0)) }, "a");
    rig.transfer(next(0), "b");
    rig.transfer(more(first(0, 1)), "a");
    rig.transfer(Transfer { state, ..next(0) }, "b");
    assert_eq!(
        rig.seen(),
        [
            "transfer(0 first state \"a\")",
            "transfer(0 last \"b\")",
            "transfer(1 first \"a\")",
            "transfer(1 last state \"b\")"
        ]
    );
}
