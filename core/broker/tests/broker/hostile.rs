//! Peers that break rules: whatever bytes come, the broker goes on for everybody else, and nothing of theirs stays behind.

use crate::world::{Msg, P, World, each, number};
use packhorse_amqp10::codec::{DeliveryState, Modified, Rejected, Transfer};
use packhorse_amqp10::transaction::{Request, XaEnd, XaRecover, XaStart, flags};

fn dice(state: &mut u64, sides: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize % sides
}

/// Everything that a peer may say in a short life, in one write.
fn life(world: &mut World, p: P) {
    let peer = &mut world[p];
    peer.hello("hostile");
    peer.attach_sender("s", 0, "q");
    peer.attach_receiver("r", 1, "q");
    peer.attach_receiver("other", 2, "DLQ");
    peer.flow(1, 0, 5, false);
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
    peer.attach_controller("control", 3);
    let start = XaStart { format_id: 1, global_id: b"g", branch_qualifier: b"", flags: 0, timeout: 0 };
    let end = XaEnd { format_id: 1, global_id: b"g", branch_qualifier: b"", flags: flags::SUCCESS };
    peer.request(3, 20, &Request::Declare);
    peer.request(3, 21, &Request::Start(start));
    peer.request(3, 22, &Request::End(end));
    peer.request(3, 23, &Request::Recover(XaRecover { after: None, max: 9 }));
    peer.flow(1, 4, 3, true);
    peer.detach(1, true);
    peer.detach(0, false);
    peer.end();
    peer.close();
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
        life(world, p);
        let good = world[p].written();
        world.run();
        let mut state = 0x5eed_0001;
        for _ in 0..120 {
            let mut bytes = good.clone();
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
            let p = world.peer();
            world[p].raw(&bytes);
            world.run();
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
fn frames_in_any_order() {
    each(|world| {
        let mut state = 0x5eed_0002;
        for _ in 0..50 {
            let p = world.peer_open("shuffling");
            for _ in 0..40 {
                let handle = dice(&mut state, 3) as u32;
                let n = dice(&mut state, 12) as u32;
                let peer = &mut world[p];
                match dice(&mut state, 14) {
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
