//! Peers that break rules: whatever bytes come, the broker goes on for everybody else, and nothing of theirs stays behind.

use crate::world::{Msg, P, World, each, number};
use packhorse_amqp10::codec::{DeliveryState, Discharge, Modified, Outcome, Rejected, TransactionalState, Transfer};
use packhorse_amqp10::transaction::{Request, XaEnd, XaRecover, XaStart, flags};

fn dice(state: &mut u64, sides: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize % sides
}

/// Stands for the id of the first transaction in a life.
const ID: [u8; 26] = [0xee; 26];

/// A life in which the first transaction's id is what it will be, if it begins first.
fn foretold(world: &mut World, life: &[u8], shard: usize) -> Vec<u8> {
    let c = world.client_at(shard, "foretells");
    let control = world[c].controller(0, "control");
    world.run();
    let mut id = crate::coordinator::declare(world, c, control);
    world[c].close();
    world.run();
    // Its number is the home's next one, and the epoch is the connection's first.
    let number = u64::from_be_bytes(id[10..18].try_into().unwrap()) + 1;
    id[10..18].copy_from_slice(&number.to_be_bytes());
    let mut bytes = life.to_vec();
    let places: Vec<usize> = (0..life.len() - ID.len()).filter(|at| life[*at..].starts_with(&ID)).collect();
    assert!(places.len() > 5);
    for at in places {
        bytes[at..at + ID.len()].copy_from_slice(&id);
    }
    bytes
}

/// Everything that a peer may say in a short life, in one write. After so many bytes it should wait: for credit, for a transaction.
fn life(world: &mut World, p: P) -> [usize; 2] {
    let peer = &mut world[p];
    peer.hello("hostile");
    peer.attach_sender("s", 0, "q");
    peer.attach_receiver("r", 1, "q");
    peer.attach_receiver("other", 2, "DLQ");
    peer.flow(1, 0, 5, false);
    peer.attach_controller("control", 3);
    let asks = peer.written().len();
    peer.request(3, 20, &Request::Declare);
    let declares = peer.written().len();
    for n in 0..4 {
        peer.transfer(0, n, &Msg::new(u64::from(n)).durable(n.is_multiple_of(2)).length(40).bytes());
    }
    let first =
        Transfer { handle: 0, delivery_id: Some(9), delivery_tag: Some(b"nine"), more: true, ..Transfer::default() };
    peer.transfer_as(&first, &number(9)[..7]);
    peer.transfer_as(&Transfer { handle: 0, ..Transfer::default() }, &number(9)[7..]);
    peer.dispose(0, 0, Some(DeliveryState::Accepted), true);
    peer.dispose(1, 2, Some(DeliveryState::Rejected(Rejected::default())), false);
    let modified = Modified { delivery_failed: true, undeliverable_here: true, message_annotations: None };
    peer.dispose(3, 3, Some(DeliveryState::Modified(modified)), true);
    let start = XaStart { format_id: 1, global_id: b"g", branch_qualifier: b"", flags: 0, timeout: 0 };
    let end = XaEnd { format_id: 1, global_id: b"g", branch_qualifier: b"", flags: flags::SUCCESS };
    peer.request(3, 21, &Request::Start(start));
    peer.request(3, 22, &Request::End(end));
    peer.request(3, 23, &Request::Recover(XaRecover { after: None, max: 9 }));
    let state = DeliveryState::Transactional(TransactionalState { txn_id: &ID, outcome: Some(Outcome::Accepted) });
    for (n, settled) in [(30, false), (31, true)] {
        let tag = [n as u8];
        let settled = Some(settled);
        let posted = Transfer { handle: 0, delivery_id: Some(n), delivery_tag: Some(&tag), ..Transfer::default() };
        peer.transfer_as(&Transfer { settled, state: Some(state), ..posted }, &number(u64::from(n)));
    }
    let large = Transfer { delivery_id: Some(32), delivery_tag: Some(b"l"), state: Some(state), ..Transfer::default() };
    peer.transfer_as(&Transfer { more: true, ..large }, &number(32)[..9]);
    peer.transfer_as(&Transfer { handle: 0, ..Transfer::default() }, &number(32)[9..]);
    peer.dispose(0, 3, Some(state), false);
    peer.dispose(0, 3, Some(state), true);
    peer.request(3, 24, &Request::Discharge(Discharge { txn_id: &ID, fail: false }));
    peer.flow(1, 4, 3, true);
    peer.detach(1, true);
    peer.detach(0, false);
    peer.end();
    peer.close();
    [asks, declares]
}

/// Lives it, with these waits.
fn live(world: &mut World, p: P, bytes: &[u8], waits: [usize; 2]) {
    let [first, second] = waits.map(|at| at.min(bytes.len()));
    for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
        world[p].raw(part);
        world.run();
    }
}

/// A good client comes and goes, and takes what is there.
fn still_serves(world: &mut World) {
    let c = world.client("good");
    let (s, r) = (world[c].sender("good"), world[c].receiver("good", 5));
    world.run();
    world[c].send(s, number(7));
    world.run();
    assert_eq!((world[c].numbers(r), world[c].confirmed(s)), (vec![7], vec![0]));
    world[c].accept_all(r);
    for queue in ["q", "DLQ"] {
        let r = world[c].receiver(queue, 100_000);
        world.run();
        for at in 0..world[c].links[r].got.len() {
            world[c].accept(r, at);
        }
        world.run();
        assert_eq!(world.queue(queue).counters.consumers, 1, "nobody else is left");
        assert_eq!(world.queue(queue).counters.depth, 0);
    }
    world[c].close();
    world.run();
}

#[test]
fn bytes_changed_anywhere() {
    each(|world| {
        let p = world.peer();
        let waits = life(world, p);
        let good = world[p].written();
        world.run();
        let mut state = 0x5eed_0001;
        let shards = usize::from(world.kind.shards);
        for round in 0..120 {
            let mut bytes = foretold(world, &good, round % shards);
            for _ in 0..1 + dice(&mut state, 3) {
                // The login is not what is tried here.
                let at = 60 + dice(&mut state, bytes.len() - 60);
                match dice(&mut state, 4) {
                    0 => bytes[at] = dice(&mut state, 256) as u8,
                    1 => bytes[at] ^= 1 << dice(&mut state, 8),
                    2 => drop(bytes.drain(at..(at + dice(&mut state, 20)).min(bytes.len()))),
                    _ => bytes.truncate(at),
                }
                bytes.resize(bytes.len().max(100), 0);
            }
            let p = world.peer_at(round % shards, true);
            let waits = if round % 4 > 0 { waits } else { [0; 2] };
            live(world, p, &bytes, waits);
            world.audit();
            if dice(&mut state, 2) == 0 {
                world.fin(p);
            } else {
                let pipe = world[p].pipe;
                world.cut_pipe(pipe, packhorse_broker::Lost::Error("reset".into()));
            }
            world.run();
        }
        world.audit();
        still_serves(world);
    });
}

#[test]
fn a_life_in_which_nothing_is_changed_works_in_a_transaction() {
    each(|world| {
        let p = world.peer();
        let waits = life(world, p);
        let good = world[p].written();
        world.run();
        let bytes = foretold(world, &good, 0);
        let p = world.peer_at(0, true);
        live(world, p, &bytes, waits);
        let said = world[p].said();
        assert!(said.iter().any(|line| line.contains("Transactional")), "{said:?}");
        // What it says of deliveries 0 to 3 it has said before, outside of the transaction.
        assert!(said.contains(&"disp(24, rejected amqp:transaction:rollback, settled)".to_string()), "{said:?}");
        let counters = world.queue("q").counters;
        assert_eq!((counters.staged, counters.removing), (0, 0), "nothing of it stays behind");
    });
}

#[test]
fn frames_in_any_order() {
    each(|world| {
        let mut state = 0x5eed_0002;
        for _ in 0..50 {
            let p = world.peer_open("shuffling");
            for _ in 0..40 {
                let handle = dice(&mut state, 3) as u32;
                let n = dice(&mut state, 12) as u32;
                let peer = &mut world[p];
                match dice(&mut state, 18) {
                    0 => peer.attach_sender(["a", "b"][n as usize % 2], handle, ["q", "DLQ"][n as usize % 2]),
                    1 => peer.attach_receiver(["a", "b"][n as usize % 2], handle, ["q", "DLQ"][n as usize % 2]),
                    2 => peer.detach(handle, n.is_multiple_of(2)),
                    3 => peer.flow(handle, n, n * 3, n.is_multiple_of(3)),
                    4..=6 => peer.transfer(handle, n, &number(u64::from(n))),
                    7 => peer.dispose(n, n + 3, Some(DeliveryState::Accepted), n.is_multiple_of(2)),
                    8 => peer.dispose(0, n, Some(DeliveryState::Released), n.is_multiple_of(2)),
                    9 => peer.dispose(0, n, Some(DeliveryState::Rejected(Rejected::default())), n.is_multiple_of(2)),
                    10 if n == 0 => peer.end(),
                    11 if n == 0 => peer.begin(n),
                    12 => {
                        let tag = [n as u8];
                        let transfer = Transfer {
                            handle,
                            delivery_id: Some(n),
                            delivery_tag: Some(&tag),
                            more: n.is_multiple_of(2),
                            aborted: n.is_multiple_of(5),
                            settled: n.is_multiple_of(3).then_some(true),
                            ..Transfer::default()
                        };
                        peer.transfer_as(&transfer, &number(1)[..n as usize]);
                    }
                    13 => peer.attach_controller(["a", "c"][n as usize % 2], handle),
                    14 => peer.request(handle, n, &Request::Declare),
                    15 => {
                        let state = TransactionalState { txn_id: &ID, outcome: Some(Outcome::Accepted) };
                        peer.dispose(0, n, Some(DeliveryState::Transactional(state)), n.is_multiple_of(2));
                    }
                    16 => {
                        let discharge = Discharge { txn_id: &ID, fail: n.is_multiple_of(2) };
                        peer.request(handle, n, &Request::Discharge(discharge));
                    }
                    _ => {
                        world.turn();
                    }
                }
            }
            world.run();
            world.audit();
            world.fin(p);
            world.run();
        }
        still_serves(world);
    });
}
