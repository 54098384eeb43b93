//! Random legal commands on two engines, interleaved at random: neither ever finds fault with the other, no credit is overrun,
//! and the counts agree when all is quiet.

use packhorse_amqp10::codec::*;
use proptest::prelude::*;

use crate::world::*;

#[derive(Clone, Debug)]
enum Step {
    Attach { server: bool, session: usize, link: usize, sender: bool, snd: u8, rcv: bool },
    Detach { server: bool, link: usize, closed: bool },
    Grant { server: bool, link: usize, credit: u32 },
    Drain { server: bool, link: usize },
    Drained { server: bool, link: usize },
    Send { server: bool, link: usize, len: usize, settled: bool },
    Stream { server: bool, link: usize, len: usize },
    Chunk { server: bool, link: usize, len: usize },
    Abort { server: bool, link: usize },
    Settle { server: bool, link: usize, nth: usize, what: usize },
    Flush { server: bool },
    Pump { server: bool, bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let server = any::<bool>();
    let link = 0usize..4;
    prop_oneof![
        2 => (server, 0usize..2, link.clone(), any::<bool>(), 0u8..3, any::<bool>())
            .prop_map(|(server, session, link, sender, snd, rcv)| Step::Attach { server, session, link, sender, snd, rcv }),
        1 => (server, link.clone(), any::<bool>()).prop_map(|(server, link, closed)| Step::Detach { server, link, closed }),
        6 => (server, link.clone(), 0u32..9).prop_map(|(server, link, credit)| Step::Grant { server, link, credit }),
        2 => (server, link.clone()).prop_map(|(server, link)| Step::Drain { server, link }),
        3 => (server, link.clone()).prop_map(|(server, link)| Step::Drained { server, link }),
        9 => (server, link.clone(), 0usize..1500, any::<bool>())
            .prop_map(|(server, link, len, settled)| Step::Send { server, link, len, settled }),
        3 => (server, link.clone(), 0usize..4000).prop_map(|(server, link, len)| Step::Stream { server, link, len }),
        6 => (server, link.clone(), 0usize..1500).prop_map(|(server, link, len)| Step::Chunk { server, link, len }),
        1 => (server, link.clone()).prop_map(|(server, link)| Step::Abort { server, link }),
        6 => (server, link, 0usize..20, 0usize..4)
            .prop_map(|(server, link, nth, what)| Step::Settle { server, link, nth, what }),
        6 => server.prop_map(|server| Step::Flush { server }),
        9 => (server, 1usize..3000).prop_map(|(server, bytes)| Step::Pump { server, bytes }),
    ]
}

const NAMES: [&str; 4] = ["w", "x", "y", "z"];

fn apply(world: &mut World, step: &Step) {
    match *step {
        Step::Attach { server, session, link, sender, snd, rcv } => {
            let name = NAMES[link];
            // Legal: neither side has a link of that name, under either role, nor is one on its way.
            let taken = world.client.ends.contains_key(name) || world.server.ends.contains_key(name);
            if taken || world.server.sessions.len() < 2 {
                return;
            }
            let role = if sender { Role::Sender } else { Role::Receiver };
            let snd =
                [SenderSettleMode::Mixed, SenderSettleMode::Unsettled, SenderSettleMode::Settled][usize::from(snd)];
            let rcv = if rcv { ReceiverSettleMode::Second } else { ReceiverSettleMode::First };
            world.side(server).attach(session, name, role, snd, rcv);
        }
        Step::Detach { server, link, closed } => world.side(server).detach(NAMES[link], closed),
        Step::Grant { server, link, credit } => world.side(server).grant(NAMES[link], credit),
        Step::Drain { server, link } => world.side(server).drain(NAMES[link]),
        Step::Drained { server, link } => world.side(server).drained(NAMES[link]),
        Step::Send { server, link, len, settled } => {
            let number = world.number();
            world.side(server).send(NAMES[link], number, len, settled);
        }
        Step::Stream { server, link, len } => {
            let number = world.number();
            world.side(server).begin_stream(NAMES[link], number, len);
        }
        Step::Chunk { server, link, len } => {
            world.side(server).chunk(NAMES[link], len);
        }
        Step::Abort { server, link } => world.side(server).abort(NAMES[link]),
        Step::Settle { server, link, nth, what } => world.side(server).settle(NAMES[link], nth, what),
        Step::Flush { server } => world.side(server).flush(),
        Step::Pump { server, bytes } => {
            world.pump(server, bytes);
        }
    }
}

/// Brings all that was begun to its end.
fn finish(world: &mut World) {
    world.settle_down();
    for _ in 0..1000 {
        let mut moved = false;
        for server in [false, true] {
            for name in NAMES {
                let side = world.side(server);
                moved |= side.chunk(name, usize::MAX);
                side.drained(name);
                while side.ends.get(name).is_some_and(|end| end.attached && end.waiting.iter().any(|(_, told)| !told)) {
                    let at = side.ends[name].waiting.iter().position(|(_, told)| !told).unwrap();
                    side.settle(name, at, 0);
                    moved = true;
                }
            }
        }
        world.settle_down();
        if !moved {
            break;
        }
    }
    for server in [false, true] {
        for name in NAMES {
            world.side(server).drained(name);
        }
    }
    world.settle_down();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn two_engines_never_find_fault_with_each_other(
        steps in prop::collection::vec(step(), 1..250),
        frames in (512u32..2000, 512u32..2000),
        window in 1u32..12,
    ) {
        let mut world = World::new(frames.0, frames.1, window);
        world.settle_down();
        for (link, name) in NAMES.iter().enumerate() {
            let role = if link % 2 == 0 { Role::Sender } else { Role::Receiver };
            world.client.attach(link / 2, name, role, SenderSettleMode::Mixed, ReceiverSettleMode::First);
        }
        world.settle_down();
        for step in &steps {
            apply(&mut world, step);
        }
        finish(&mut world);
        world.check_agreement();
        for (name, end) in world.client.ends.iter().chain(&world.server.ends) {
            prop_assert!(end.stream.is_none(), "{} has a delivery under way", name);
            prop_assert!(end.out.is_empty(), "{} has unsettled {:?}", name, end.out);
            prop_assert!(end.waiting.is_empty(), "{} waits for {:?}", name, end.waiting);
        }
        for side in [&world.client, &world.server] {
            for (name, end) in &side.ends {
                prop_assert!(!side.conn.draining(end.id), "a drain on {} is not answered", name);
            }
        }
        for name in NAMES {
            let (Some(client), Some(server)) = (world.client.ends.get(name), world.server.ends.get(name)) else { continue };
            let (sender, receiver) = if client.role == Role::Sender { (client, server) } else { (server, client) };
            prop_assert_eq!(&sender.sent, &receiver.got);
        }
    }
}
